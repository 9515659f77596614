"""What the site shows of the package, made when it is built, so that nothing is written twice.

A line `<!-- make: WORD ARGUMENT -->` of a page is replaced by what the function `make_WORD` returns for the argument. A
page methods/NAME.md is only the text on when to use the method: title, objective, parameters and mathematics are put
around it, and every method of the registry must have one. A program gallery/NAME.py is run, and gets a page of its
docstring, whose first line is its claim, its picture, what it prints, and its code.
"""

import ast
import contextlib
import inspect
import io
import json
import os
import pkgutil
import re
import runpy
import shlex
import tempfile
import textwrap
import warnings
from importlib import import_module
from pathlib import Path

import charts
import matplotlib
import typeset
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from marginlinear import ConvergenceWarning, cli, load_libsvm, options, params, registry, train
from marginlinear.compare import grids

ROOT = Path(__file__).parent.parent
GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.py"))
# What tests/test_docs.py is told of a block.
FOR_TESTS = re.compile(r"^<!-- (?:needs|not run): .*? -->\n", re.MULTILINE)
MARKER = re.compile(r"^<!-- make: (\w+) ?(.*?) -->$", re.MULTILINE)
# The commands that make the figure of a method, as its page prints them.
FIGURE = """\
margin-train -s {name} -B 1 -q data/vehicle {name}.model
margin-train -s {other} -B 1 -q data/vehicle {other}.model
margin-plot margins -q -o {name}.svg data/vehicle {other}.model {name}.model
"""


def classifiers():
    """Those that have margins of scores, with several classes too."""
    return [name for name, method in registry.methods().items() if has_scores(method)]


def has_scores(method):
    return method.classifies and params.MULTICLASS.name not in method.defaults


def on_config(config):
    """The menu's methods are the registry's; fences of formulas."""
    entries = {"Methods": ["methods/index.md", *(f"methods/{name}.md" for name in registry.methods())],
               "Gallery": ["gallery/index.md", *(f"gallery/{script.stem}.md" for script in GALLERY)]}
    for entry in config.nav:
        for name in entries.keys() & entry.keys():
            entry[name] = entries[name]
    config.mdx_configs["pymdownx.superfences"] = {
        "custom_fences": [{"name": "math", "class": "formula", "format": typeset.fence}]}
    return config


def on_files(files, config):
    """Pages without a source of their own, and a page for each method."""
    for name in ("CONTRIBUTING", "CHANGELOG"):
        text = (ROOT / f"{name}.md").read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, f"{name.lower()}.md", content=text))
    for page in [file for file in files if file.src_uri.endswith(".md")]:
        for name, picture in drawn(drawing(page.content_string)):
            files.append(File.generated(config, str(Path(page.src_uri).with_name(name)), content=picture))
    for script in GALLERY:
        page, pictures = example(script)
        files.append(File.generated(config, f"gallery/{script.stem}.md", content=page))
        for name, picture in pictures:
            files.append(File.generated(config, f"gallery/{name}", content=picture))
    for method in classifiers():
        for name, picture in drawn(figure_commands(method).splitlines()):
            files.append(File.generated(config, f"methods/{name}", content=picture))
    written = {Path(file.src_uri).stem for file in files if re.match(r"methods/.*\.md$", file.src_uri)} - {"index"}
    for name in written ^ set(registry.methods()):
        raise PluginError(f"docs/methods/{name}.md: there must be one page for each method of the registry")
    return files


def on_page_markdown(markdown, page, config, files):
    folder, _, name = page.file.src_uri.removesuffix(".md").rpartition("/")
    if folder == "methods" and name != "index":
        markdown = method_page(registry.get(name), markdown)
    makers = {"methods": make_methods, "commands": make_commands, "docstring": make_docstring,
              "estimators": make_estimators, "sweeps": make_sweeps, "gallery": make_gallery,
              "grids": make_grids, "papers": make_papers, "schema": make_schema,
              "chart": lambda name: getattr(charts, name)()}
    return MARKER.sub(lambda found: makers[found[1]](found[2]), FOR_TESTS.sub("", markdown))


def on_post_build(config):
    typeset.write_font(Path(config.site_dir) / "math.woff")


def method_page(method, text):
    """All of a method's page around the text on when to use it."""
    numbers = " or ".join(f"`-s {number}`" for number in method.numbers)
    number = f", or LIBLINEAR's number {numbers}" if numbers else ""
    takes = ["regression" if method.regression else "one class" if method.one_class else
             "joint multi-class" if method.joint else "binary, several classes by `--multiclass`",
             "linear and kernel" if method.kernels else "linear only",
             "rows in memory only" if not method.stores else
             f"{'if linear also ' if method.kernels else ''}from [stores](../stores.md), larger than memory"]
    mathematics = import_module(f"marginlinear.methods.{registry.MODULES[method.name]}").__doc__.strip()
    return "\n".join([
        f"# {method.name}\n", f"{method.summary[0].upper()}{method.summary[1:]}: `-s {method.name}`{number}; "
        f"{', '.join(takes)}. {where_it_runs(method)}\n",
        "Minimises\n", typeset.display(split_objective(method.objective)), "",
        f"Source: {escaped(method.reference)}.\n", "## When to use it\n", text.strip(), "",
        "## Parameters\n", *parameter_table(method.params), "",
        *other_defaults(method), *papers_values(method),
        "Every method also takes [those of every run](../commands.md).\n",
        *([f"Routes: {', '.join(f'`{route}`' for route in method.routes)}.\n"] if len(method.routes) > 1 else []),
        *(margins_of(method) if has_scores(method) else []), "## Mathematics\n", *formulas(mathematics)])


def formulas(doc):
    """A docstring's paragraphs, those that are indented as formulas."""
    for paragraph in doc.split("\n\n"):
        shown = textwrap.indent(textwrap.dedent(paragraph), "    ") == paragraph
        yield typeset.display(textwrap.dedent(paragraph)) if shown else escaped(paragraph)
        yield ""


def over_clusters(method):
    return method.terms is not None or method.smooth or method.sparse


def where_it_runs(method):
    """A sentence on threads and clusters, as `fitting.require_partitions` has it."""
    if not over_clusters(method):
        return "It runs over [threads](../threads.md), not over [clusters](../clusters.md)."
    free = not method.sparse and any(p.name == "free_bias" for p in method.params)
    return (f"{'Linear, it' if method.kernels else 'It'} runs over [threads](../threads.md) and "
            f"[clusters](../clusters.md){', there without `-R`' if free else ''}.")


def margins_of(method):
    return ["## Its margins\n", "The margins of the training rows beside those of another method, by\n",
            "```sh", figure_commands(method.name) + "```\n", f"![Distribution of the margins]({method.name}.svg)\n"]


def split_objective(objective):
    """A long objective as lines, its definitions below each other."""
    return re.sub(r", (?=\w+(\(\w\))? = )", ",\n", objective)


def parameter_table(declared):
    if not declared:
        return ["It has none of its own."]
    lines = ["| Python | command line | default | domain | meaning |", "| --- | --- | --- | --- | --- |"]
    for p in declared:
        flags = f"`-{p.letter}`, `{p.flag}`" if p.letter else f"`{p.flag}`"
        default = "" if p.default is None else f"`{p.default}`"
        lines.append(f"| `{p.name}` | {flags} | {default} | {escaped(p.allowed)} | {escaped(p.help)} |")
    return lines


def other_defaults(method):
    if not method.defaults:
        return []
    told = options.flags_with(method.defaults, (*params.RUN, params.MULTICLASS))
    return ["Its defaults of what others take too: " + ", ".join(f"`{flag}`" for flag in told) + ".\n"]


def papers_values(method):
    """Sentences on what the method's paper has in place of the defaults."""
    paper = method.paper
    if paper is None:
        return []
    words = []
    if paper.values:
        told = ", ".join(f"`{flag}`" for flag in options.flags_with(paper.values, method.params))
        words.append(f"`--paper`, in Python `paper=True`, stands for {told}: {paper.place}.")
    else:
        words.append(f"There is no `--paper`: {paper.place}.")
    if paper.grid:
        words.append(f"`--grid paper` stands for what the paper chose from, `{paper.grid}`.")
    return [" ".join(words) + "\n"]


def make_papers(_):
    """The defaults of the methods beside the values of their papers."""
    lines = ["| method | defaults | the paper's values, `--paper` | the paper's grid, `--grid paper` |",
             "| --- | --- | --- | --- |"]
    for method in registry.methods().values():
        paper = method.paper
        if paper is None:
            continue
        shape = [p for p in method.params if isinstance(p.default, (int, float)) and not isinstance(p.default, bool)
                 and p.name not in ("max_outer", "restarts")]
        ours = ", ".join(f"`{flag}`" for flag in options.flags_with({p.name: p.default for p in shape}, shape))
        theirs = ", ".join(f"`{flag}`" for flag in options.flags_with(paper.values, method.params))
        lines.append(f"| [`{method.name}`](methods/{method.name}.md) | {ours or 'they follow from the rows'} | "
                     f"{f'{theirs}: ' if theirs else 'none: '}{escaped(paper.place)} | "
                     f"{f'`{paper.grid}`' if paper.grid else 'not known'} |")
    return "\n".join(lines)


def make_methods(_):
    """The registry as a table."""
    lines = ["| method | what it is | classes | kernels | [stores](../stores.md) | [clusters](../clusters.md) "
             "| LIBLINEAR |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for m in registry.methods().values():
        number = ", ".join(f"`-s {number}`" for number in m.numbers)
        classes = "" if not m.classifies else "joint" if m.joint else "binary"
        told = " | ".join("yes" if has else "" for has in (m.kernels, m.stores, over_clusters(m)))
        lines.append(f"| [`{m.name}`]({m.name}.md) | {escaped(m.summary)} | {classes} | {told} | {number} |")
    return "\n".join(lines)


def make_sweeps(sets):
    """Sweeps of each method on data sets, at its defaults but with a bias."""
    names = sets.split()
    data = [load_libsvm(ROOT / "data" / name) for name in names]
    lines = [f"| method | {' | '.join(names)} |", "| --- |" + " ---: |" * len(names)]
    for method in classifiers():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the table tells
            infos = [train(X, y, solver=method, bias=1).info for X, y in data]
        told = [f"{info.n_iter}" if info.converged else f"{info.n_iter}, {info.status}" for info in infos]
        lines.append(f"| `{method}` | {' | '.join(told)} |")
    return "\n".join(lines)


def make_grids(_):
    """What a comparison tries of each parameter, and why."""
    lines = ["| parameter | values | reason |", "| --- | --- | --- |"]
    for name, (values, reason) in {**grids.AXES, "gamma": grids.GAMMA}.items():
        lines.append(f"| `{name}` | `{values}` | {escaped(reason)} |")
    return "\n".join(lines)


def make_schema(_):
    """The keys of what --json prints, each below the one that has it."""
    schema = json.loads((ROOT / "docs" / "schema.json").read_text("utf-8"))
    lines = ["| key | type | what it is |", "| --- | --- | --- |"]
    lines += [f"| `{key}` | {kind} | {escaped(what)} |" for key, kind, what in keys_of(schema, schema)]
    return "\n".join(lines)


def keys_of(schema, whole, above=""):
    """(path, types, description) of all keys below a part of a JSON schema."""
    for name, part in schema.get("properties", {}).items():
        own = {**whole["$defs"][part["$ref"].rpartition("/")[2]], **part} if "$ref" in part else part
        types = own.get("type", "")
        values = ", ".join(json.dumps(value) for value in own.get("enum", [own["const"]] if "const" in own else []))
        path = f"{above}{name}"
        yield path, values or " or ".join([types] if isinstance(types, str) else types), own["description"]
        items = own.get("items")
        while items is not None and "$ref" in items:
            items = whole["$defs"][items["$ref"].rpartition("/")[2]]
        yield from keys_of(own if items is None else items, whole, f"{path}{'' if items is None else '[]'}.")


def make_commands(_):
    """`--help all` of every command of the package."""
    lines = []
    for program, main in commands().items():
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            main(["--help", "all"])
        lines += [f"## {program}\n", *indented(text.getvalue()), ""]
    return "\n".join(lines)


def commands():
    """Name of each command -> its main function."""
    modules = [import_module(f"{cli.__name__}.{found.name}") for found in pkgutil.iter_modules(cli.__path__)]
    return {module.PROGRAM: module.main for module in modules if hasattr(module, "PROGRAM")}


def figure_commands(name):
    """The commands of the figure on a method's page: beside l1svc, or beside the default where that is the page's."""
    return FIGURE.format(name=name, other="mcodm" if name == "l1svc" else "l1svc")


def drawing(markdown):
    """The commands of a page's pictures: all of the package's in blocks of sh that use no more of the shell."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()
             if line.partition(" ")[0] in commands() and not re.search("[|<>&;]", line)]
    return lines if any(line.startswith("margin-plot") for line in lines) else []


def drawn(lines):
    """(name, bytes) of the pictures that lines of the package's commands make."""
    known = commands()
    with workplace():
        for line in lines:
            program, *words = shlex.split(line)
            said = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                status = known[program](words)
            if status:
                raise PluginError(f"{line}: exit status {status}\n{said.buffer.getvalue().decode()}")
        return made_pictures()


def example(script):
    """The page of a program of the gallery, and its pictures."""
    matplotlib.use("agg")
    with workplace(), contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(script), run_name="__main__")
        pictures = made_pictures()
    source = script.read_text("utf-8")
    tree = ast.parse(source)
    claim, _, more = ast.get_docstring(tree).partition("\n")
    code = "".join(source.splitlines(keepends=True)[tree.body[0].end_lineno:]).strip()
    page = [f"# {title_of(script)}\n", f"**{escaped(claim)}**\n", f"![{claim}]({script.stem}.svg)\n", more.strip(), "",
            "It prints\n", *indented(said.getvalue()), "",
            f"The program, [{script.name}]({script.name}):\n", "```python", code, "```"]
    return "\n".join(page), pictures


def title_of(script):
    return script.stem[0].upper() + script.stem[1:].replace("-", " ")


@contextlib.contextmanager
def workplace():
    """An empty folder to work in, but for the data."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.symlink(ROOT / "data", "data")
        yield


def made_pictures():
    return [(path.name, path.read_bytes()) for path in sorted(Path().glob("*.svg"))]


def make_gallery(_):
    """A card for each program."""
    lines = ['<div class="grid cards" markdown>\n']
    for script in GALLERY:
        claim = ast.get_docstring(ast.parse(script.read_text("utf-8"))).partition("\n")[0]
        lines += [f"-   [![]({script.stem}.svg)]({script.stem}.md)\n",
                  f"    [{title_of(script)}]({script.stem}.md): {escaped(claim)}\n"]
    return "\n".join([*lines, "</div>"])


def make_docstring(name):
    """The docstring of a module."""
    return f"::: {name}\n    options:\n      members: false\n      show_root_heading: false"


def make_estimators(_):
    """The estimators as a table: the method of each, and its first sentence."""
    from marginlinear import sklearn

    lines = ["| estimator | method | |", "| --- | --- | --- |"]
    for name in sklearn.__all__:
        estimator = getattr(sklearn, name)
        if issubclass(estimator, sklearn.base.MarginEstimator):
            first = inspect.getdoc(estimator).partition("\n")[0]
            lines.append(f"| `{name}` | [`{estimator.method_name}`](methods/{estimator.method_name}.md) | "
                         f"{escaped(first)} |")
    return "\n".join(lines)


def escaped(text):
    """Text without Markdown's signs, except in what stands between backquotes."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*_\[\]|])", r"\\\1", part).replace("<", "&lt;")
                   for part in parts)


def indented(text):
    """Lines of a block of code."""
    return ["```text", *text.rstrip().splitlines(), "```"]
