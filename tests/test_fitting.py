"""Training by margin-train where NumPy cannot be imported; labels as classes; what writes the model."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import marginlinear as ml
from marginlinear._core.vector import spread
from marginlinear.cli import train
from marginlinear.libsvm import classes_of, read_views

ROOT = str(Path(ml.__file__).parents[1])
WITHOUT_NUMPY = """
import sys

sys.modules["numpy"] = None
from marginlinear.cli.train import main

for line in {!a}:
    print(main(line.split()), line)
"""


def text(labels, features, rows, seed=0):
    """A LIBSVM file: of each label its own feature, and three others at random."""
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(rows):
        which = np.union1d(i % len(labels), rng.choice(np.arange(len(labels), features), 3, replace=False)) + 1
        values = rng.standard_normal(len(which)) + 2 * (which <= len(labels))
        lines.append(" ".join([labels[i % len(labels)], *(f"{j}:{v:.5g}" for j, v in zip(which, values, strict=True))]))
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current folder of files with two and three classes, small ones and large ones: these are not made canonical."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ROOT)
    for name, labels in (("two", ["-1", "+1"]), ("three", ["3", "1", "2.5"]), ("words", ["spam", "\u00e9", "ham"])):
        (tmp_path / name).write_text(text(labels, 9, 60), "utf-8")
        (tmp_path / f"large-{name}").write_text(text(labels, 300, 450), "utf-8")
    (tmp_path / "wide-three").write_text(text(["3", "1", "2.5"], 70_000, 60))
    (tmp_path / "ten").write_text(text([*map(str, range(10))], 30, 200))
    (tmp_path / "one").write_text("1 1:1\n1 2:1\n")
    (tmp_path / "none").write_text("1\n2\n")
    (tmp_path / "huge").write_text("1 1:1e200 2:1\n2 2:1\n")
    (tmp_path / "w").write_text("".join(f"{1 + i % 3}\n" for i in range(60)))
    return tmp_path


LINES = [
    *(f"-s {name} {data}" for name in ("l1svc", "l2svc", "odm", "ldm", "mcodm", "cs") for data in ("two", "large-two")),
    *(f"-s {name} {data}" for name in ("mcodm", "cs") for data in ("three", "large-three")),
    *(f"-s {name} {data}" for name in ("l1svc", "l2svc", "odm", "ldm") for data in ("three", "large-three", "ten")),
    "-s l1svc -c 100 -e 1e-6 wide-three", "-s l2svc -c 1000 -e 1e-6 --threads 2 three", "-s odm --algorithm cd three",
    "-s l2svc -e 1e-9 --max-iter 2 --strict ten", "-s l1svc -w2.5 2 -B 1 --float32 three", "-s ldm --weights w three",
    "-s lssvm --text-labels words",
    "-s mcodm --text-labels -w\u00e9 3 words", "-s cs --text-labels large-words",
    "-s l2svc -w1 2 -w-1 0.5 -w7 2 two", "-s l1svc -w-1 4 -B 1 large-two", "-s ldm -w1 3 large-two",
    "-s mcodm -w2.5 2 -w3 0.1 three", "-s mcodm -c 100 three", "-s mcodm --weights w -B 2 three",
    "-s odm --weights w two",
    "-s l2svc --float32 large-two", "-s mcodm --float32 -B 1 large-three", "-s l2svc --threads 2 large-two",
    "-s l1svc -e 1e-9 --max-iter 3 --strict two", "-s cs --algorithm cd -c 10 three",
    "-s l2svc one", "-s mcodm none", "-s l2svc huge",
]


def test_the_same_models_without_numpy(folder, capsys):
    """And the same messages and exit statuses."""
    script = WITHOUT_NUMPY.format([f"-q {line} a{i}" for i, line in enumerate(LINES)])
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, encoding="utf-8", check=True,
                           env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert [int(line.split()[0]) for line in child.stdout.splitlines()] == [
        train.main(["-q", *line.split(), f"b{i}"]) for i, line in enumerate(LINES)]
    assert capsys.readouterr().err == child.stderr
    for i, line in enumerate(LINES):
        ours, theirs = (Path(name).read_bytes() if os.path.exists(name) else None for name in (f"a{i}", f"b{i}"))
        assert ours == theirs and (ours is None) == (line.split()[-1] in ("one", "none", "huge")), line


def test_standard_input_and_output_without_numpy(folder):
    assert train.main(["-q", "two", "b"]) == 0
    child = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY.format(["-q - -"])], capture_output=True, check=True,
                           input=Path("two").read_bytes())
    model, status = child.stdout.rsplit(b"\n", 2)[:2]
    assert (model + b"\n", status) == (Path("b").read_bytes(), b"0 -q - -")


@pytest.mark.parametrize("line", [
    "-s l2svc two", "-s mcodm large-three", "-s cs --text-labels words", "-s ldm -B 1 two",
    "-s l2svc --multiclass ovo three", "-s softmax three", "-s lssvm -w2.5 2 three"])
def test_python_gives_the_same_model(line, folder):
    """Of arrays: one way for both."""
    options = line.split()
    assert train.main(["-q", *options, "a"]) == 0
    data = ml.libsvm.read_libsvm(options[-1], text_labels="--text-labels" in options)
    ml.save_model(ml.train(data, data.labels, solver=options[1], bias=1 if "-B" in options else -1,
                           class_weight={2.5: 2} if "-w2.5" in options else None,
                           **({"multiclass": "ovo"} if "ovo" in options else {})), "b")
    assert Path("a").read_bytes() == Path("b").read_bytes()


@pytest.mark.parametrize("labels", ["3 1 3 -7", "0.5 -1 0.5 1e15", "2", " ".join(map(str, range(500, 0, -1)))])
def test_classes_of_numbers(labels):
    read = read_views(io.BytesIO("".join(f"{label} 1:1\n" for label in labels.split()).encode()))
    classes, codes = classes_of(read.labels)
    wanted, places = np.unique(np.asarray(read.labels), return_inverse=True)
    assert classes == wanted.tolist() and [*map(type, classes)] == [*map(type, wanted.tolist())]
    assert memoryview(codes).tolist() == places.tolist()


def test_classes_of_words():
    classes, codes = classes_of(["b", "\u00e9", "a", "b"])
    assert classes == ["a", "b", "\u00e9"] and memoryview(codes).tolist() == [1, 2, 0, 1]
    assert memoryview(spread(np.array([0.5, 2, 4]), codes)).tolist() == [2, 4, 0.5, 2]


@pytest.mark.parametrize("shape", [(50_000, 1), (20_000, 3), (30_000, 2)])
def test_models_are_written_alike_by_any_number_of_threads(shape, tmp_path):
    model = ml.Model(np.random.default_rng(0).standard_normal(shape), np.arange(max(2, shape[1])))
    for threads in (1, 2, 3):
        ml.save_model(model, tmp_path / str(threads), threads=threads)
    assert len({(tmp_path / str(threads)).read_bytes() for threads in (1, 2, 3)}) == 1
    assert (ml.load_model(tmp_path / "2").weights == model.weights).all()
    model.weights[shape[0] - 1] = np.nan
    with pytest.raises(ValueError, match="the model is not saved: it holds a weight that is not finite"):
        ml.save_model(model, tmp_path / "1", threads=2)


@pytest.mark.parametrize("solver", ["l1svc", "l2svc", "mcodm", "cs"])
def test_costs_that_overflow_are_refused(solver):
    with pytest.raises(ValueError, match="C times the weights of rows and classes overflows"):
        ml.train(np.eye(2), [1, 2], solver=solver, C=1e10, class_weight={1: 1e308})
