"""What the site shows of the package, made when it is built, so that nothing is written twice.

A line `<!-- make: WORD ARGUMENT -->` of a page is replaced by what the function `make_WORD` returns for the argument. A
page methods/NAME.md is only the text on when to use the method: title, objective, parameters and mathematics are put
around it, and every method of the registry must have one.
"""

import ast
import contextlib
import inspect
import io
import os
import pkgutil
import re
import shlex
import tempfile
import warnings
from importlib import import_module
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from marginlinear import ConvergenceWarning, cli, load_libsvm, options, params, registry, train
from marginlinear.compare import grids

ROOT = Path(__file__).parent.parent
MARKER = re.compile(r"^<!-- make: (\w+) ?(.*?) -->$", re.MULTILINE)
# The commands that make the figure of a method, as its page prints them.
FIGURE = """\
margin-train -s {name} -B 1 -q data/vehicle {name}.model
margin-train -s {other} -B 1 -q data/vehicle {other}.model
margin-plot margins -q -o {name}.svg data/vehicle {other}.model {name}.model
"""
# The sections of a docstring of numpydoc that are lists of names.
LISTS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns")


def classifiers():
    """Those that have margins of scores, with several classes too."""
    return [name for name, method in registry.methods().items() if has_scores(method)]


def has_scores(method):
    return method.classifies and params.MULTICLASS.name not in method.defaults


def on_config(config):
    """The menu's methods are the registry's."""
    methods = [{name: f"methods/{name}.md"} for name in registry.methods()]
    for entry in config.nav:
        if "Methods" in entry:
            entry["Methods"] = [{"All": "methods/index.md"}, *methods]
    return config


def on_files(files, config):
    """Pages without a source of their own, and a page for each method."""
    for name in ("CONTRIBUTING", "CHANGELOG"):
        text = (ROOT / f"{name}.md").read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, f"{name.lower()}.md", content=text))
    for page in [file for file in files if file.src_uri.endswith(".md")]:
        for name, picture in drawn(drawing(page.content_string)):
            files.append(File.generated(config, str(Path(page.src_uri).with_name(name)), content=picture))
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
    makers = {"methods": make_methods, "commands": make_commands, "api": lambda _: make_api(config.extra["api"]),
              "docstring": make_docstring, "class": make_class, "estimators": make_estimators, "sweeps": make_sweeps,
              "grids": make_grids}
    return MARKER.sub(lambda found: makers[found[1]](found[2]), markdown)


def method_page(method, text):
    """All of a method's page around the text on when to use it."""
    numbers = " or ".join(f"`-s {number}`" for number in method.numbers)
    number = f", or LIBLINEAR's number {numbers}" if numbers else ""
    takes = ["regression" if method.regression else "one class" if method.one_class else
             "joint multi-class" if method.joint else "binary, several classes by `--multiclass`",
             "linear and kernel" if method.kernels else "linear only",
             "rows in memory only" if not method.stores else
             f"{'if linear also ' if method.kernels else ''}from [stores](../stores.md), larger than memory"]
    mathematics = inspect.getdoc(import_module(f"marginlinear.methods.{registry.MODULES[method.name]}"))
    return "\n".join([
        f"# {method.name}\n", f"{method.summary[0].upper()}{method.summary[1:]}: `-s {method.name}`{number}; "
        f"{', '.join(takes)}. {where_it_runs(method)}\n",
        "Minimises\n", *indented(split_objective(method.objective)), "",
        f"Source: {escaped(method.reference)}.\n", "## When to use it\n", text.strip(), "",
        "## Parameters\n", *parameter_table(method.params), "",
        *other_defaults(method), "Every method also takes [those of every run](../commands.md).\n",
        *([f"Routes: {', '.join(f'`{route}`' for route in method.routes)}.\n"] if len(method.routes) > 1 else []),
        *(margins_of(method) if has_scores(method) else []), "## Mathematics\n", *indented(mathematics)])


def over_clusters(method):
    return method.terms is not None or method.smooth


def where_it_runs(method):
    """A sentence on threads and clusters, as `fitting.require_partitions` has it."""
    if not over_clusters(method):
        return "It runs over [threads](../threads.md), not over [clusters](../clusters.md)."
    free = any(p.name == "free_bias" for p in method.params)
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


def make_commands(_):
    """`--help` of every command of the package."""
    lines = []
    for program, main in commands().items():
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            main(["--help"])
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
    """(name, bytes) of the pictures that lines of the package's commands make, in a folder that holds the data."""
    known = commands()
    with tempfile.TemporaryDirectory() as folder, inside(folder):
        os.symlink(ROOT / "data", "data")
        for line in lines:
            program, *words = shlex.split(line)
            said = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                status = known[program](words)
            if status:
                raise PluginError(f"{line}: exit status {status}\n{said.buffer.getvalue().decode()}")
        return [(path.name, path.read_bytes()) for path in sorted(Path().glob("*.svg"))]


@contextlib.contextmanager
def inside(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def make_docstring(name):
    """The docstring of a module, as it stands there."""
    return "\n".join(indented(inspect.getdoc(import_module(name))))


def make_class(place):
    """A class of a module that cannot be imported here: `PATH NAME`."""
    path, name = place.split()
    parts = ast.parse((ROOT / path).read_text("utf-8")).body
    found = next(part for part in parts if isinstance(part, ast.ClassDef) and part.name == name)
    module = path.removesuffix(".py").replace("/", ".")
    return "\n".join(["```python", f"from {module} import {name}", "```", "", *prose(ast.get_docstring(found))])


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


def make_api(names):
    """Every public name of the modules."""
    lines = []
    for name in names:
        module = import_module(name)
        lines += [f"## {name}\n", *prose(inspect.getdoc(module)), ""]
        public = [(member, getattr(module, member)) for member in sorted(module.__all__)]
        for member, thing in public:
            if callable(thing):
                lines += described(thing, f"{name}.{member}")
                for base in unshown_bases(thing, [thing for _, thing in public]):
                    lines += members_of(base, member)
    return "\n".join(lines)


def unshown_bases(thing, shown):
    """A class, and those of its bases in the package whose members the page has nowhere else; none for a function."""
    bases = thing.__mro__ if inspect.isclass(thing) else ()
    ours = [base for base in bases if base.__module__.startswith("marginlinear")]
    return [base for base in ours if base is thing or base not in shown]


def described(thing, name):
    """A function or a class, without its members."""
    doc = inspect.getdoc(thing) or ""
    short = name.rpartition(".")[2]
    embedded = doc.partition("\n")[0]
    if embedded.startswith(f"{short}("):  # Cython's, with the signature
        doc, signature = doc.partition("\n")[2], embedded.removeprefix(short)
    else:
        signature = signature_of(thing)
    return [f"### {short}\n", *indented(name + signature), "", *prose(doc), ""]


def members_of(base, name):
    """The documented properties and methods that `base` defines, as those of the class `name`."""
    lines = []
    for member, value in vars(base).items():
        function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if member.startswith("_") or not getattr(function, "__doc__", None):
            continue
        if isinstance(value, property):
            lines += [f"#### {name}.{member}\n", *prose(inspect.getdoc(value)), ""]
        elif inspect.isfunction(function):
            lines += [f"#### {name}.{member}\n", *indented(member + signature_of(function)), "",
                      *prose(inspect.getdoc(function)), ""]
    return lines


def signature_of(thing):
    if inspect.isclass(thing) and issubclass(thing, BaseException) and "__init__" not in vars(thing):
        return ""
    # Types are told in words below.
    signature = inspect.signature(thing)
    plain = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    signature = signature.replace(parameters=plain, return_annotation=signature.empty)
    return re.sub(r"\b(self|cls)(, |(?=\)))", "", str(signature), count=1)


def prose(doc):
    """A docstring's lines as Markdown: sections of names as lists, indented text and examples as code."""
    lines, section, entries = [], "", False
    source = (doc or "").strip().splitlines()
    for number, line in enumerate(source):
        below = source[number + 1] if number + 1 < len(source) else ""
        if re.fullmatch(r"-{3,}", line) and section:
            continue
        if re.fullmatch(r"-{3,}", below):
            section, entries = line, False
            lines += ["", f"**{line}**", ""]
            continue
        if section in LISTS and entries and line[:1].strip() and not source[number - 1].strip():
            # A paragraph at the margin, below a blank line, is no entry: the list is over.
            section = ""
        if section not in LISTS or not line.strip():
            example = line.startswith((">>> ", "... ")) or section == "Examples"
            lines.append(f"    {line}" if example else line if line.startswith("    ") else escaped(line))
        elif not line.startswith(" "):
            name, _, kind = line.partition(" : ")
            entries = True
            lines += ["", f"`{name}`" + (f" : {escaped(kind)}" if kind else "")]
        elif lines[-1].startswith("`"):
            lines.append(f":   {escaped(line.strip())}")
        else:
            lines.append(f"    {escaped(line.strip())}")
    return lines


def escaped(text):
    """Text without Markdown's signs, except in what stands between backquotes."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*_\[\]|])", r"\\\1", part).replace("<", "&lt;")
                   for part in parts)


def indented(text):
    """Lines of a block of code."""
    return ["```text", *text.rstrip().splitlines(), "```"]
