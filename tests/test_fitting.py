"""margin-train and Python give one model; what writes it."""

from pathlib import Path

import numpy as np
import pytest

import marginlinear as ml
from marginlinear.cli import train


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
    for name, labels in (("two", ["-1", "+1"]), ("three", ["3", "1", "2.5"]), ("words", ["spam", "\u00e9", "ham"])):
        (tmp_path / name).write_text(text(labels, 9, 60), "utf-8")
        (tmp_path / f"large-{name}").write_text(text(labels, 300, 450), "utf-8")
    return tmp_path


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


def test_what_may_have_been_meant():
    X, y = np.eye(4), [0, 1, 0, 1]
    for given, told in [({"c": 1}, "'c' (did you mean C?): it takes"), ({"lamda": 1}, "(did you mean lambda_?)"),
                        ({"cv": 3}, "'cv': it takes"), ({"solver": "LinearSVC"}, "(did you mean l2svc?): give")]:
        with pytest.raises((TypeError, ValueError)) as error:
            ml.train(X, y, **given)
        assert told in str(error.value)
