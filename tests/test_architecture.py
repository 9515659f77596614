"""The contracts of docs/architecture.md: imports go down, without circles, and each room keeps to what it is for."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

# What is installed has no compiled sources.
PACKAGE = Path(__file__).parents[1] / "marginlinear"
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
# `from a import b, c`, `from a cimport (b, c)`, `import a`, `cimport a`: at any depth.
IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(marginlinear[\w.]*)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n#]*)|"
                    r"c?import[ \t]+(marginlinear[\w.]*))", re.MULTILINE)
# What type checkers alone read may come from anywhere.
FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+", re.MULTILINE)
FLOOR = re.compile(r"^floor (\d) +(\w+) +(.+)$", re.MULTILINE)
FLOORS = {room: int(number) for number, _, rooms in FLOOR.findall(PAGE.read_text("utf-8")) for room in rooms.split()}
# What varies another method's objective says so by importing it.
VARIANTS = {("ism3", "m3svm"), ("ldm_asgd", "ldm")}
# A command line taken apart: each of its words is an attribute.
MANY_ATTRIBUTES = {"marginlinear.cli.train.Training": 29}
MOST_ATTRIBUTES = 24
# Names that the glossary has replaced.
RETIRED = ("BlockSteps", "Book", "Buffer", "ColumnsCD", "Compact", "LastGram", "MarginSteps", "Splitting", "Together",
           "approach", "drop_anchor", "gap_of", "inward", "keep_awake", "kinked", "neglect",
           "numbered", "outward", "settle", "step_of", "step_to", "stiffness")


def modules():
    """{dotted name: its files}, compiled sources and their declarations included."""
    found = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".pyx", ".pxd", ".pxi"):
            parts = ("marginlinear", *path.relative_to(PACKAGE).with_suffix("").parts)
            found.setdefault(".".join(parts[:-1] if parts[-1] == "__init__" else parts), []).append(path)
    return found


MODULES = modules()


def targets(path):
    """The modules that a file imports: `from a import b` is a.b where that is one, else a."""
    for base, names, whole in IMPORT.findall(re.sub(FOR_TYPES, "", path.read_text("utf-8"))):
        for name in re.findall(r"(?<! as )\b(?!as\b)\w+", names.strip("()")) or [""]:
            yield f"{base}.{name}" if f"{base}.{name}" in MODULES else base or whole


def imports_of(module):
    return {found for path in MODULES[module] for found in targets(path)} - {module}


def floor_of(module):
    room = module.split(".")[1]
    assert room in FLOORS, f"{module}: docs/architecture.md gives {room} no floor"
    return FLOORS[room]


IN_ROOMS = [module for module in MODULES if module != "marginlinear"]


@pytest.mark.parametrize("module", IN_ROOMS)
def test_imports_go_down(module):
    assert [found for found in imports_of(module) if found in IN_ROOMS and floor_of(found) > floor_of(module)] == []


def test_every_room_stands():
    assert {module.split(".")[1] for module in IN_ROOMS} == FLOORS.keys()


def test_a_wheel_has_every_package():
    declared = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]
    assert sorted(declared) == sorted(name for name, files in MODULES.items() if files[0].stem == "__init__")


def test_no_circles():
    """Modules that import nothing that is left are taken away until none is left."""
    left = {module: imports_of(module) & MODULES.keys() for module in IN_ROOMS}
    # A package is its __init__ to those who import it; to its own modules it is the folder they stand in.
    left = {module: {found for found in imports if not module.startswith(f"{found}.")}
            for module, imports in left.items()}
    while free := [module for module, imports in left.items() if not imports & left.keys()]:
        for module in free:
            del left[module]
    assert left == {}


def test_methods_do_not_know_each_other():
    inside = {(module.rpartition(".")[2], found.rpartition(".")[2])
              for module in IN_ROOMS if module.startswith("marginlinear.methods.")
              for found in imports_of(module) if found.startswith("marginlinear.methods.")}
    assert inside <= VARIANTS
    naming = [path.name for files in MODULES.values() for path in files
              if "marginlinear.methods" in re.sub(IMPORT, "", path.read_text("utf-8"))]
    assert naming == ["registry.py"]


def test_the_core_is_compiled_and_knows_nothing_above():
    core = {module: files for module, files in MODULES.items() if module.startswith("marginlinear._core")}
    assert [path.name for files in core.values() for path in files if path.suffix == ".py"] == ["__init__.py"]
    allowed = ("marginlinear._core", "marginlinear.errors", "marginlinear.threads")
    assert [(module, found) for module in core for found in imports_of(module) if not found.startswith(allowed)] == []


def test_faces_and_formats_do_not_know_each_other():
    faces = [room for room, floor in FLOORS.items() if floor == max(FLOORS.values())]
    across = {(module, found) for module in IN_ROOMS for found in imports_of(module)
              if module.split(".")[1] in faces and found.split(".")[1:2] != module.split(".")[1:2]
              and found.split(".")[1:2] and found.split(".")[1] in faces}
    assert across <= {("marginlinear.cli.plot", "marginlinear.plotting"),
                      ("marginlinear.cli.cluster", "marginlinear.dask")}
    formats = {"marginlinear.modelfile.linear", "marginlinear.modelfile.kernel"}
    assert [module for module in formats if imports_of(module) & formats] == []


HIDDEN = """\
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
"""

TRAINS = """\
import numpy as np
import marginlinear as ml
from marginlinear.cli import predict, train
rng = np.random.default_rng(0)
X, y = rng.standard_normal((40, 3)), np.arange(40) % 3
ml.save_model(ml.train(X, y, solver="mcodm"), "made")
assert (ml.load_model("made").predict(X) == ml.train(X, y).predict(X)).all()
ml.dump_libsvm(X, y, "rows")
assert train.main(["-q", "rows", "model"]) == 0 and predict.main(["-q", "rows", "model", "out"]) == 0
"""

HELPS = """\
import importlib
for name in ("train", "predict", "scale", "inspect", "plot", "export", "compare"):
    command = importlib.import_module(f"marginlinear.cli.{name}")
    assert command.main(["--help", "man"]) == command.main(["--help"]) == 0 and command.main(["--nonsense"]) == 2
assert importlib.import_module("marginlinear.cli.train").main(["-C", "--grid", "mu=2", "rows"]) == 2
"""


@pytest.mark.parametrize("hidden, code", [
    (("scipy", "sklearn", "matplotlib", "torch", "dask"), TRAINS),
    (("numpy", "scipy", "sklearn", "matplotlib", "torch", "dask"), HELPS),
], ids=["without SciPy", "without NumPy"])
def test_what_is_not_needed_is_not_imported(tmp_path, hidden, code):
    done = subprocess.run([sys.executable, "-c", HIDDEN.format(names=hidden) + code], cwd=tmp_path, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def attributes():
    """{class: names that its methods store on self}, of all Python sources."""
    found = {}
    for module, files in MODULES.items():
        for path in files:
            for node in ast.walk(ast.parse(path.read_text("utf-8"))) if path.suffix == ".py" else ():
                if isinstance(node, ast.ClassDef):
                    found[f"{module}.{node.name}"] = {
                        at.attr for at in ast.walk(node) if isinstance(at, ast.Attribute)
                        and isinstance(at.ctx, ast.Store) and isinstance(at.value, ast.Name) and at.value.id == "self"}
    return found


def test_no_class_holds_everything():
    sizes = {name: len(names) for name, names in attributes().items()}
    assert {name: size for name, size in sizes.items()
            if size > MANY_ATTRIBUTES.get(name, MOST_ATTRIBUTES)} == {}


def test_retired_names_are_not_defined_again():
    defined = re.compile(rf"^\s*(?:class|def|c(?:p)?def[\w* ]*?)\s+\*?({'|'.join(RETIRED)})\s*[(:]", re.MULTILINE)
    assert [(path.name, name) for files in MODULES.values() for path in files
            for name in defined.findall(path.read_text("utf-8"))] == []


def test_the_top_is_small():
    assert len([path for path in PACKAGE.iterdir() if path.suffix in (".py", ".pyx")]) <= 22
