"""The pages tell what happens: their blocks of code run and print what stands below them.

Of README.md and each page of docs/, the blocks of sh and python run in the order of the page, in an empty folder that
holds the shipped data; python blocks share their names. A block of text directly below one is what it prints on
standard output, but for its numbers nearly so, `...` standing for what is left out. Not run are blocks with
`pip install`, those below a line `<!-- not run: the reason -->`, and those below `<!-- needs: MODULE -->` where that
module of an extra is not installed.

With MARGINLINEAR_WRITE=1 in the environment, what is printed is written into the pages.
"""

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import io
import math
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from marginlinear import cli, registry

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<kind>\w+)\n(?P<code>.*?)^```\n"
                   r"(?P<printed>```text\n.*?^```$)?", re.MULTILINE | re.DOTALL)
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NUMBER = r"(?<![\w.])[+-]?\d++(?:,\d{3})*+(?:\.\d++)?+(?:e[+-]?\d++)?+"
# Numbers that may be others on another machine: counts of steps, what is found among equals, and seconds.
WANDERS = re.compile(r"(#iter|nSV|certificate|rho|C|mu|gamma|p|width)(?: =|':) $| in $")


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    """A folder with the commands of the package that this interpreter imports, and `python` for itself."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    for found in pkgutil.iter_modules(cli.__path__):
        module = importlib.import_module(f"{cli.__name__}.{found.name}")
        if hasattr(module, "PROGRAM"):
            script = folder / module.PROGRAM
            script.write_text(f"#!{sys.executable}\nfrom {module.__name__} import main\n\nmain()\n")
            script.chmod(0o755)
    return folder


def runnable(page):
    """(kind, code, what it prints or None, line) of the blocks of a page that are run."""
    text = page.read_text("utf-8")
    for found in BLOCK.finditer(text):
        word, _, module = (found["note"] or "").partition(": ")
        left_out = word == "not run" or (word == "needs" and importlib.util.find_spec(module) is None)
        if found["kind"] in ("sh", "python") and not left_out and "pip install" not in found["code"]:
            printed = found["printed"]
            yield (found["kind"], found["code"], printed and printed.removeprefix("```text\n").removesuffix("```"),
                   text.count("\n", 0, found.start()) + 1)


def agree(printed, out):
    """Whether a page tells what is printed: the words as they are, numbers to a few per cent."""
    pieces, out, start = [" ".join(piece.split()) for piece in printed.split("...")], " ".join(out.split()), 0
    for place, piece in enumerate(pieces):
        shape = re.compile(pattern(piece, f"({NUMBER})") + r"\Z" * (place == len(pieces) - 1))
        found = shape.search(out, start) if place else shape.match(out)
        if found is None or not all(
                math.isclose(value(number[0]), value(other), rel_tol=0.05, abs_tol=0.005)
                for number, other in zip(re.finditer(NUMBER, piece), found.groups(), strict=True)
                if not WANDERS.search(piece[:number.start()])):
            return False
        start = found.end()
    return True


def test_agree():
    assert agree("Accuracy = 80.8% (808/1000)\n", "Accuracy = 80.1%  (801/1000)\n")
    assert agree("#iter = 13\nC = 4\n...\nlast 0.5\n", "#iter = 20\nC = 8\na\nb\nlast 0.501\n")
    assert not agree("Accuracy = 80.8%\n", "Accuracy = 70.8%\n")
    assert not agree("11\n9\n", "11\n8\n")
    assert not agree("one\n...\ntwo\n", "one\nthree\n")
    assert not agree("one\n", "one\ntwo\n")
    assert agree("one\n...\ntwo\n", "one\n\ntwo\n")


def pattern(text, number):
    """An expression for what a text with `...` stands for, with any numbers."""
    parts = re.split(rf"(\.\.\.|{NUMBER})", text)
    return "".join(re.escape(part) if place % 2 == 0 else ".*?" if part == "..." else number
                   for place, part in enumerate(parts))


def value(number):
    return float(number.replace(",", ""))


def as_printed(printed, out):
    """The lines of a block of text as they are printed now; what it leaves out, it goes on leaving out."""
    lines = ["(?:.*\n)*?" if line.strip() == "..." else "(" + re.sub(r"(?:\\ )+", " +", pattern(line, NUMBER)) + ")\n"
             for line in printed.splitlines()]
    found = re.fullmatch("".join(lines), out)
    assert found, f"no longer of the form\n{printed}\nbut\n{out}"
    now = iter(found.groups())
    lines = [(line, line if line.strip() == "..." else next(now)) for line in printed.splitlines()]
    return "".join((old if re.match(r"(?!.*\.\.\..).*[a-z,] \.\.\.$", old) else new) + "\n" for old, new in lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page, commands, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "data").symlink_to(ROOT / "data")
    names = {"__name__": "__main__"}
    for kind, code, printed, line in runnable(page):
        where = f"{page.relative_to(ROOT)}:{line}"
        if kind == "sh":
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], capture_output=True, text=True,
                                  timeout=240)
            assert done.returncode == 0, f"{where}: status {done.returncode}\n{done.stderr}"
            out = done.stdout
        else:
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(compile(code, where, "exec"), names)
            out = stream.getvalue()
        if printed is not None and "MARGINLINEAR_WRITE" in os.environ:
            text = page.read_text("utf-8")
            page.write_text(text.replace(f"```text\n{printed}```", f"```text\n{as_printed(printed, out)}```"), "utf-8")
        elif printed is not None:
            assert agree(printed, out), f"{where}: printed is\n{out}"
    if page.parent == ROOT and (ROOT / ".git").exists() and shutil.which("git"):
        # Its readers are in a clone.
        made = {path.name for path in tmp_path.iterdir()} - {"data"}
        ignored = subprocess.run(["git", "-c", "safe.directory=*", "check-ignore", "--no-index", *made], cwd=ROOT,
                                 capture_output=True, text=True)
        assert set(ignored.stdout.split()) == made


def test_every_method_has_a_page_with_a_block():
    pages = {page.stem: page for page in (ROOT / "docs" / "methods").glob("*.md")}
    assert set(pages) - {"index"} == set(registry.methods())
    assert all(list(runnable(pages[name])) for name in registry.methods())


def test_readme_lists_the_methods():
    text = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (`\w[\w-]*`(?:, `\d+`)?) \|", text, re.MULTILINE)
    assert rows == [f"`{name}`" + ("" if method.liblinear is None else f", `{method.liblinear}`")
                    for name, method in registry.methods().items()]
    *some, last = (f"`{name}`" for name, method in registry.methods().items() if not method.kernels)
    assert f"Every method but {', '.join(some)} and {last} takes a kernel" in " ".join(text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages(page):
    """mkdocs checks those of the site; pages that it makes are not files of the repository."""
    made = {"contributing.md", "changelog.md", *re.findall(r"[\w-]+\.svg", page.read_text("utf-8"))}
    for link in re.findall(r"\]\(([\w/.-]+)\)", page.read_text("utf-8")):
        assert link in made or (page.parent / link).exists(), link


def public():
    """(name, object) of every public name of the modules that have a page, and of their classes' methods."""
    for module_name in (page.stem for page in sorted((ROOT / "docs" / "api").glob("*.md"))):
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            # Of an extra that is not installed; any other is imported by its own tests.
            continue
        yield module_name, module
        for name in module.__all__:
            thing = getattr(module, name)
            yield f"{module_name}.{name}", thing
            if inspect.isclass(thing):
                yield from ((f"{module_name}.{name}.{member}", value) for member, value in vars(thing).items()
                            if not member.startswith("_"))


def test_docstrings():
    """Public functions and classes have docstrings, and the examples of docstrings give what they say."""
    parser, runner, examples = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=SAME), 0
    for name, thing in public():
        documented = inspect.isclass(thing) or inspect.isroutine(thing)
        assert inspect.getdoc(thing) or not documented, f"{name} has no docstring"
        test = parser.get_doctest(inspect.getdoc(thing) or "", {}, name, None, None)
        examples += len(test.examples)
        runner.run(test)
    assert examples and not runner.summarize(verbose=False).failed
