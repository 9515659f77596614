"""What type checkers know of the package: a user's script, and the errors that they find in it."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import typed_estimators_user
import typed_user

import marginlinear as ml
from marginlinear import _typing
from marginlinear import params as P

ROOT = Path(ml.__file__).parents[1]
# Each line with what mypy and basedpyright call what is wrong in it.
WRONG = """\
import marginlinear as ml
import marginlinear.selection
from marginlinear.sklearn import SVC, LinearSVC, MCODMClassifier

model = ml.train([[1.0], [2.0]], [1, 2])
ml.trian([[1.0], [2.0]], [1, 2])  # attr-defined reportAttributeAccessIssue
ml.train([[1.0], [2.0]], [1, 2], solver=1.5)  # arg-type reportArgumentType
ml.train([[1.0], [2.0]], [1, 2], c=4)  # call-arg reportCallIssue
ml.train([[1.0], [2.0]], [1, 2], kernel="rfb")  # arg-type reportArgumentType
ml.search([[1.0], [2.0]], [1, 2], metric="acuracy")  # arg-type reportArgumentType
ml.cross_validate([[1.0], [2.0]], [1, 2], max_iter="9")  # arg-type reportArgumentType
model.wieghts  # attr-defined reportAttributeAccessIssue
ml.selection.serach  # attr-defined reportAttributeAccessIssue
MCODMClassifier(c=1)  # call-arg reportCallIssue
SVC(kernel="rfb")  # arg-type reportArgumentType
LinearSVC(loss="hing")  # arg-type reportArgumentType
MCODMClassifier().fit([[1.0], [2.0]], [1, 2]).coef_.shpae  # attr-defined reportAttributeAccessIssue
"""


def needs(checker):
    return pytest.mark.skipif(importlib.util.find_spec(checker) is None, reason=f"{checker} is not installed: .[dev]")


def mypy(folder):
    """{(file, line): code} of the errors in a folder of scripts."""
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "--no-pretty",
         "--hide-error-context", f"--cache-dir={folder / 'cache'}", f"--python-executable={sys.executable}", "."],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "MYPYPATH": "" if ROOT.name == "site-packages" else str(ROOT)})
    assert found.returncode in (0, 1), found.stdout + found.stderr
    errors = re.findall(r"^(\w+\.py):(\d+): error: .*\[([\w-]+)\]$", found.stdout, re.MULTILINE)
    assert bool(errors) == bool(found.returncode), found.stdout
    return {(name, int(line)): code for name, line, code in errors}


def basedpyright(folder):
    config = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)], "include": ["."]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    found = subprocess.run([sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable,
                            "--project", str(folder)], cwd=folder, capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stdout + found.stderr
    return {(Path(error["file"]).name, error["range"]["start"]["line"] + 1): error["rule"]
            for error in json.loads(found.stdout)["generalDiagnostics"]}


@pytest.mark.parametrize("checker", [pytest.param(mypy, marks=needs("mypy")),
                                     pytest.param(basedpyright, marks=needs("basedpyright"))])
def test_a_users_script(checker, tmp_path):
    for script in typed_user, typed_estimators_user:
        path = Path(script.__file__)
        (tmp_path / path.name).write_text(path.read_text("utf-8"))
    (tmp_path / "wrong.py").write_text(WRONG)
    wanted = {("wrong.py", number): line.partition("  # ")[2].split()[checker is basedpyright]
              for number, line in enumerate(WRONG.splitlines(), 1) if "  # " in line}
    assert len(wanted) == 12
    assert checker(tmp_path) == wanted


def test_the_script_runs(tmp_path, monkeypatch):
    """What type checkers find no fault in is what the package does."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(60) > 0, 1, 2)
    ml.dump_libsvm(X, y, tmp_path / "train.txt")
    model = typed_user.trained(tmp_path)
    assert typed_user.predicted(tmp_path / "model", X.astype(np.float32)).shape == (60, 2)
    assert typed_user.searched(X.tolist(), [f"w{label}" for label in y]).keys() == {"C", "mu"}
    assert 0.5 < typed_user.judged(model, X, y) <= 1
    assert len(typed_user.labelled(tmp_path, X, X > 0)) == 60


def test_the_script_of_estimators_runs():
    pytest.importorskip("sklearn", reason="scikit-learn is missing: pip install 'marginlinear[sklearn]'")
    X = np.random.default_rng(0).standard_normal((60, 3))
    assert typed_estimators_user.fitted(X, ["a" if x > 0 else "b" for x in X[:, 0]]).shape == (60, 2)
    assert typed_estimators_user.in_their_places(X, X[:, 0] > 0).dtype == np.float64


def test_public_names_for_type_checkers():
    """What is imported when it is first used is what type checkers are told is there."""
    text = Path(ml.__file__).read_text("utf-8").partition("if TYPE_CHECKING:")[2].partition("\n\n")[0]
    told = {name: home for home, names in re.findall(r"from (\S+) import (.+)", text) for name in names.split(", ")}
    assert told == ml._HOME
    assert {*told, "__version__"} == set(ml.__all__)


def test_parameters_for_type_checkers():
    run = {p.name for p in P.RUN}
    own = {p.name for p in P.OWN}
    assert _typing.MethodParameters.__annotations__.keys() == own | run - {"seed", "threads"}
    assert _typing.FitParameters.__annotations__.keys() == own | run
    assert _typing.SearchParameters.__annotations__.keys() == own | run - {"seed", "threads"} | {
        p.name for p in P.AROUND}


@pytest.mark.parametrize("name", sorted(_typing.SearchParameters.__annotations__.keys() | {"seed", "threads"}))
def test_types_of_parameters(name):
    """The words of a parameter are those of its declaration; so is its kind of number."""
    param = next(p for p in (*P.OWN, *P.RUN, *P.AROUND) if p.name == name)
    kinds = {**_typing.FitParameters.__annotations__, **_typing.SearchParameters.__annotations__}
    text = kinds[name].__forward_arg__
    if name == "memory":
        assert text == "int | str | None"
    elif name == "scale":
        assert (text, get_args(_typing.Scale)) == ("Scale | None", param.choices)
    elif param.type is str:
        words = re.findall(r"'(\w+)'", text)
        assert tuple(words) == (*param.choices, *(word for word in param.python if isinstance(word, str)))
        assert ("KernelFunction" in text) == (callable in param.python)
    else:
        kind = {float: "Number", int: "Integer", bool: "Flag"}[param.type]
        assert text == f"{kind}{' | str' * param.relative} | None"


def test_words_for_type_checkers():
    assert get_args(_typing.Metric) == P.METRICS
    assert get_args(_typing.Route) == P.ALGORITHM.choices
    assert get_args(_typing.Multiclass) == P.MULTICLASS.choices
    assert {*get_args(_typing.KernelName)} == {word for word in (*P.KERNEL.choices, *P.KERNEL.python)
                                               if isinstance(word, str)}
