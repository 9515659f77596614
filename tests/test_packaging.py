"""Wheels, workflows, the oldest versions, the recipe and the image say what pyproject.toml says."""

import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import marginlinear

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# The page builds with what is newest; the oldest PyTorch for a processor alone is in no package index.
NOT_PINNED = {"docs", "dev", "torch"}
INSTRUCTIONS = {"FROM", "RUN", "COPY", "WORKDIR", "CMD", "ENV"}


def requirements(group):
    """{name: least version} of a list of requirements, extras of the package itself left out."""
    found = (re.fullmatch(r"([\w-]+)>=([\d.]+)", entry) for entry in group if not entry.startswith("marginlinear["))
    return {match[1]: match[2] for match in found}


def minor(text):
    """The Python 3.x in a text, as x."""
    return int(re.search(r"3\.?(\d+)", text)[1])


@pytest.fixture(scope="module")
def pythons():
    """The x of each Python 3.x of the classifiers."""
    head = "Programming Language :: Python :: 3."
    return [int(line.removeprefix(head)) for line in PROJECT["project"]["classifiers"] if line.startswith(head)]


def test_lower_bounds_are_the_versions_of_the_oldest_lane():
    extras = PROJECT["project"]["optional-dependencies"]
    bounds = requirements(PROJECT["project"]["dependencies"])
    for name in extras.keys() - NOT_PINNED:
        bounds |= requirements(extras[name])
    lines = (ROOT / ".ci" / "oldest.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert {name: pins.get(name) for name in bounds} == bounds
    assert pins.keys() - bounds.keys() == {"pyparsing"}
    assert requirements(PROJECT["build-system"]["requires"]).items() <= bounds.items()


def test_pythons_are_those_of_the_wheels_and_lanes(pythons):
    assert minor(PROJECT["project"]["requires-python"]) == min(pythons)
    assert pythons == list(range(min(pythons), max(pythons) + 1))
    wheels = PROJECT["tool"]["cibuildwheel"]
    assert wheels["build"].split() == [f"cp3{x}-*" for x in pythons] + [f"cp3{max(pythons)}t-*"]
    command, script = wheels["test-command"].split()
    assert command == "python" and (ROOT / script.removeprefix("{project}/")).exists()
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    lanes = re.findall(r'python(?:-version)?: "3\.(\d+t?)"', tests)
    assert sorted(set(lanes)) == sorted([str(min(pythons)), str(max(pythons)), f"{max(pythons)}t"])


def test_workflows_hold():
    assert [path.name for path in WORKFLOWS] == ["tests.yml", "wheels.yml"]
    for checker in (["actionlint"], ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"]):
        if shutil.which(checker[0]):
            done = subprocess.run([*checker, *map(str, WORKFLOWS)], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            return
    pytest.skip("neither actionlint nor check-jsonschema is on PATH: pip install check-jsonschema")


def test_what_workflows_run_is_there():
    yaml = pytest.importorskip("yaml")
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            for command in (step["run"] for step in job["steps"] if "run" in step):
                for word in re.findall(r"(?<!\S)(?:\.ci|tools)/[\w./]+", command):
                    # The gate makes the sdist, which does not hold it.
                    assert (ROOT / word).exists() or word == ".ci/run", f"{path.name}: {word}"
                for extra in re.findall(r"\.\[(\w[\w,]*)\]", command):
                    assert set(extra.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()


def test_the_recipe_agrees(pythons):
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text("utf-8"))
    project = PROJECT["project"]
    assert recipe["schema_version"] == 1
    assert recipe["package"] == {"name": project["name"], "version": "${{ version }}"}
    assert recipe["context"]["version"] == marginlinear.__version__
    about = recipe["about"]
    assert (about["summary"], about["license"]) == (project["description"], project["license"])
    assert (ROOT / about["license_file"]).exists()
    build, needs = recipe["build"], recipe["requirements"]
    assert build["skip"] == [f'match(python, "<3.{min(pythons)}")']
    assert build["python"]["entry_points"] == [f"{name} = {where}" for name, where in project["scripts"].items()]
    assert sorted(needs["run"]) == sorted(["python", *(d.replace(">", " >") for d in project["dependencies"])])
    assert sorted(needs["host"]) == sorted(["python", "pip", *(d.replace(">", " >")
                                                              for d in PROJECT["build-system"]["requires"])])


def test_the_image_agrees(pythons):
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    steps = [line.split(maxsplit=1) for line in text.replace("\\\n", " ").splitlines() if line]
    assert {word for word, _ in steps} <= INSTRUCTIONS and steps[0][0] == "FROM"
    sources = [rest.split()[0] for word, rest in steps if word == "FROM"]
    python, alpine = re.fullmatch(r"python:3\.(\d+)-alpine([\d.]+)", sources[0]).groups()
    assert int(python) == max(pythons) and sources[1:] == [f"alpine:{alpine}"]
    assert set(re.findall(r"python3\.(\d+)", text)) == {python}
    command, = (rest for word, rest in steps if word == "CMD")
    assert re.match(r'\["([\w-]+)"', command)[1] in PROJECT["project"]["scripts"]
    lines = (ROOT / ".dockerignore").read_text("utf-8").split()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert lines[0] == "*" and all((ROOT / name).exists() for name in let_in)
    # What the build reads, and what the image is tried with.
    assert {"pyproject.toml", "setup.py", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"],
            "marginlinear", *re.findall(r"source=([^,]+)", text)} == let_in


def test_smoke():
    if ROOT in Path(marginlinear.__file__).resolve().parents:
        pytest.skip("tools/smoke.py tries an installed package")
    done = subprocess.run([sys.executable, ROOT / "tools" / "smoke.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Accuracy = " in done.stdout


def test_no_module_brings_the_gil_back():
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("this Python has a GIL")
    code = ("import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
            "assert not sys._is_gil_enabled()")
    names = [found.name for package in ("marginlinear._core", "marginlinear.libsvm")
             for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")]
    subprocess.run([sys.executable, "-W", "error", "-c", code, *names], check=True)


def test_an_index_is_named_where_it_is_said_to_come():
    """Nothing is published: who reads `pip install marginlinear` finds beside it that this is for later."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for part in re.split(r"\n\s*\n", page.read_text("utf-8")):
            if re.search(r"""(pip|conda|uv|pipx) (pip |tool )?install [^`\n]*(?<![/.\w])marginlinear""", part):
                assert "once it is published" in " ".join(part.split()).lower(), f"{page.relative_to(ROOT)}: {part}"
