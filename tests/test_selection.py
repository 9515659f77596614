"""Cross-validation and search, against plain loops over `train`."""

import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import params as P
from marginlinear import registry
from marginlinear.cli import train as command
from marginlinear.cli.output import StatusLine
from marginlinear.data import kernels
from marginlinear.data.folds import stratified_folds
from marginlinear.selection import grid, metrics
from marginlinear.selection.doubling import doubling_grid

ROOT = str(Path(ml.__file__).parents[1])
METHODS = [name for name, method in registry.methods().items() if method.classifies]


def clusters(k=3, m=90, seed=0, noise=1.5):
    rng = np.random.default_rng(seed)
    y = np.arange(m) % k
    return rng.standard_normal((m, 4)) * noise + 2 * np.eye(k, 4)[y], y + 5


X3, y3 = clusters()
X2, y2 = clusters(2)


def plain_loop(X, y, n, seed=0, **given):
    """(fold of each row, model of each fold)"""
    folds = stratified_folds(y, n, seed)
    return folds, [ml.train(X[folds != fold], y[folds != fold], seed=seed, **given) for fold in range(n)]


# ---- cross_validate


@pytest.mark.parametrize("given", [{"solver": "mcodm"}, {"solver": "l2svc"}, {"solver": "ldm", "multiclass": "ovo"},
                                   {"solver": "cs", "kernel": "rbf"}], ids=str)
@pytest.mark.parametrize("data", [(X3, y3), (X2, y2)], ids=["three", "two"])
def test_cross_validation_is_a_loop_over_train(given, data):
    X, y = data
    found = ml.cross_validate(X, y, folds=4, seed=3, **given)
    folds, models = plain_loop(X, y, 4, 3, **given)
    assert (found.fold_of == folds).all()
    for fold, model in enumerate(models):
        held = folds == fold
        assert (found.predictions[held] == model.predict(X[held])).all()
        scores = model.decision_function(X[held])
        expected = model.ordered_ranks(scores)
        assert found.scores[held].tobytes() == np.ascontiguousarray(expected).tobytes()
        assert found.fold_scores[fold] == np.mean(model.predict(X[held]) == y[held])
        assert found.infos[fold].objective == model.info.objective
    assert found.score == np.mean(found.predictions == y)


def test_weights_are_those_of_the_rows():
    weights = np.arange(len(y3)) % 4 * 1.0
    found = ml.cross_validate(X3, y3, solver="cs", folds=3, sample_weight=weights, class_weight={5: 3.0})
    folds = stratified_folds(y3, 3, 0)
    for fold in range(3):
        inside = folds != fold
        model = ml.train(X3[inside], y3[inside], solver="cs", sample_weight=weights[inside], class_weight={5: 3.0})
        assert (model.predict(X3[~inside]) == found.predictions[~inside]).all()
    with pytest.raises(ValueError, match=r"sample_weight has shape \(2,\), X has 90 rows"):
        ml.cross_validate(X3, y3, sample_weight=[1, 2])


def test_storages_and_threads_give_the_same_bits():
    first = ml.cross_validate(X3, y3, threads=1)
    for X in (sparse.csr_array(X3), sparse.coo_array(X3), np.asfortranarray(X3)):
        for threads in (1, 3):
            other = ml.cross_validate(X, y3, threads=threads)
            assert (other.predictions == first.predictions).all()
            assert np.allclose(other.scores, first.scores, rtol=1e-12, atol=1e-12)
    assert ml.cross_validate(X3, y3, threads=4).scores.tobytes() == first.scores.tobytes()


def test_precomputed_kernel():
    gram = X3 @ X3.T
    found = ml.cross_validate(gram, y3, solver="cs", kernel="precomputed", folds=3)
    same = ml.cross_validate(X3, y3, solver="cs", kernel="linear", folds=3)
    assert np.allclose(found.scores, same.scores, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("given", [{"solver": "cs"}, {"solver": "l2svc"}, {"solver": "l2svc", "multiclass": "ovo"}],
                         ids=str)
def test_a_class_that_a_fold_lacks(given):
    """Label 9 has one row: the model of its fold does not know it."""
    X, y = np.vstack([X2, [[9.0, 9, 9, 9]]]), np.append(y2, 9)
    found = ml.cross_validate(X, y, folds=3, **given)
    held = found.fold_of == found.fold_of[-1]
    assert found.scores.shape == (len(y), 3)
    assert (found.scores[held, 2] == -np.inf).all()
    assert np.isfinite(found.scores[~held]).all()
    model = ml.train(X[~held], y[~held], **given)
    assert (found.predictions[held] == model.predict(X[held])).all()
    assert 0 < ml.cross_validate(X, y, folds=3, metric="auc", **given).score < 1


def test_too_many_folds_leave_one_out():
    with pytest.warns(UserWarning, match="# folds > # data"):
        found = ml.cross_validate(X2[:20], y2[:20], solver="l2svc", folds=100)
    assert sorted(found.fold_of) == list(range(20))


def test_refusals():
    for given, message in [({"folds": 1}, r"folds = 1 is not allowed: give integer in \[2, inf\)"),
                           ({"metric": "f2"}, "metric = 'f2' is not allowed"),
                           ({"solver": "x"}, "solver = 'x' is not known"),
                           ({"C": -1}, "C = -1 is not allowed"),
                           ({"seed": -1}, "seed = -1 is not allowed")]:
        with pytest.raises(ValueError, match=message):
            ml.cross_validate(X3, y3, **given)
    with pytest.raises(TypeError, match="no parameter 'Cost'"):
        ml.cross_validate(X3, y3, Cost=1)
    with pytest.raises(ValueError, match="at least 2 classes"):
        ml.cross_validate(X3, np.ones(90))
    with pytest.raises(ValueError, match="leaves label 5 alone in its training rows"):
        ml.cross_validate(X2[:11], [5] * 10 + [6], folds=5)
    with pytest.warns(UserWarning, match="class label 77 specified in weight is not found"):
        ml.cross_validate(X3, y3, class_weight={77: 2.0})


def test_fits_that_do_not_converge_are_told_once():
    with pytest.warns(ml.ConvergenceWarning, match=r"3 of 3 fits did not converge \(3 max_iter\)") as caught:
        ml.cross_validate(X3, y3, solver="cs", folds=3, tol=1e-12, max_iter=1)
    assert len(caught) == 1


def test_advice_names_c_only_where_there_is_one():
    for solver, named in (("cs", True), ("msvmav", False)):
        with pytest.warns(ml.ConvergenceWarning) as caught:
            ml.cross_validate(X3, y3, solver=solver, folds=2, tol=1e-12, max_iter=1)
        assert ("smaller C" in str(caught[0].message)) == named


def test_out_of_fold():
    classes, folds = ml.out_of_fold(X3, y3, solver="cs", folds=3)
    whole = ml.cross_validate(X3, y3, solver="cs", folds=3)
    assert classes.tolist() == [5, 6, 7]
    for fold in folds:
        assert (whole.scores[fold.rows] == fold.scores).all()
        assert (whole.predictions[fold.rows] == classes[fold.places]).all()


# ---- metrics


def slow_auc(positive, scores):
    pairs = [(a > b) + (a == b) / 2 for a in scores[positive] for b in scores[~positive]]
    return sum(pairs) / len(pairs)


def test_metrics_by_counting():
    rng = np.random.default_rng(0)
    y, predicted = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    scores = rng.integers(-3, 3, (50, 3)) * 1.0
    assert metrics.balanced(y, predicted, scores) == pytest.approx(
        sum(sum((y == c) & (predicted == c)) / sum(y == c) for c in range(3)) / 3)
    assert metrics.auc(y, None, scores) == pytest.approx(
        sum(slow_auc(y == c, scores[:, c]) for c in range(3)) / 3)
    two = (y > 0).astype(int)
    assert metrics.auc(two, None, scores[:, 0]) == pytest.approx(slow_auc(two == 1, scores[:, 0]))
    assert math.isnan(metrics.auc(np.ones(5), None, scores[:5, 0]))


def test_metrics_are_those_of_scikit_learn():
    theirs = pytest.importorskip("sklearn.metrics", reason="needs scikit-learn: pip install marginlinear[sklearn]")
    rng = np.random.default_rng(1)
    for k in (2, 4):
        y, predicted, scores = rng.integers(0, k, 80), rng.integers(0, k, 80), rng.random((80, k)).round(1) + 0.05
        scores /= scores.sum(axis=1, keepdims=True)
        assert metrics.accuracy(y, predicted, scores) == pytest.approx(theirs.accuracy_score(y, predicted))
        assert metrics.balanced(y, predicted, scores) == pytest.approx(theirs.balanced_accuracy_score(y, predicted))
        f1 = theirs.f1_score(y, predicted, average="macro")
        assert metrics.f1_macro(y, predicted, scores) == pytest.approx(f1)
        area = theirs.roc_auc_score(y, scores[:, 1] if k == 2 else scores, multi_class="ovr")
        assert metrics.auc(y, predicted, scores[:, 1] if k == 2 else scores) == pytest.approx(area)


@pytest.mark.parametrize("metric", P.OF_CLASSES)
def test_scores_are_means_of_the_folds_but_accuracy_is_that_of_all_rows(metric):
    found = ml.cross_validate(X3[:-1], y3[:-1], metric=metric, folds=4)
    expected = np.mean(found.predictions == y3[:-1]) if metric == "accuracy" else found.fold_scores.mean()
    assert found.score == pytest.approx(expected, rel=1e-15)


# ---- groups, own folds, several metrics


def test_groups_stay_together_and_own_folds_are_taken():
    groups = [f"patient {i // 4}" for i in range(90)]
    found = ml.cross_validate(X3, y3, folds=3, groups=groups, seed=1)
    together = {}
    for group, fold in zip(groups, found.fold_of, strict=True):
        assert together.setdefault(group, fold) == fold
    assert np.ptp(np.bincount(found.fold_of)) <= 4
    for own in (found.fold_of, found.fold_of + 1):
        again = ml.cross_validate(X3, y3, folds=own, seed=1)
        assert (again.fold_of == found.fold_of).all() and again.scores.tobytes() == found.scores.tobytes()
    searched = ml.search(X3, y3, folds=found.fold_of + 1, grid="C=1", refit=False, seed=1)
    assert searched.table[0]["fold_scores"] == found.fold_scores.tolist()
    targets = ml.cross_validate(X3, X3[:, 0], solver="l2svr", folds=3, groups=groups, seed=1)
    assert targets.score == pytest.approx(np.mean((targets.predictions - X3[:, 0])**2))


@pytest.mark.parametrize("given, message", [
    ({"folds": [0, 1]}, r"folds has shape \(2,\), X has 90 rows"),
    ({"folds": np.ones(90)}, "folds holds float64: give the fold of each row as an integer"),
    ({"folds": np.ones(90, dtype=int)}, "all rows are in one fold"),
    ({"folds": np.arange(90) % 2 * 2}, "folds: 2 stands where 1 should come next"),
    ({"folds": np.arange(90) % 2 - 1}, "folds: -1 stands where 1 should come next"),
    ({"folds": np.arange(90) % 2, "groups": y3}, "groups and the folds of the rows are both given"),
    ({"groups": y3[:-1]}, "groups has 89 entries, X has 90 rows"),
    ({"groups": y3}, "3 groups for 5 folds: give fewer folds"),
    ({"folds": (y3 == 5) + 0, "solver": "l2svc", "y": np.where(y3 == 5, 1, 2)}, "leaves label 1 alone in its training "
     "rows: give other folds or groups"),
    ({"metric": "accuracy,f2"}, "metric = 'f2' is not allowed"),
    ({"metric": []}, r"metric = \[\] is not allowed: give accuracy"),
    ({"metric": 3}, "metric = 3 is not allowed: give a name, or a list of names"),
    ({"metric": ["auc", "mse"]}, "metric = 'mse' does not measure what mcodm predicts"),
    ({"metric": "brier"}, r"metric = 'brier' asks for probabilities, and the scores of mcodm are none: give "
     r"--probability \(probability=True\)"),
], ids=str)
def test_what_is_refused_of_folds_and_metrics(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ml.cross_validate(X3, given.pop("y", y3), **{"solver": "mcodm", **given})


def test_several_metrics_are_those_of_several_searches(tmp_path):
    names = ["auc", "log_loss", "brier", "accuracy"]
    given = {"solver": "logistic", "grid": "C=0.1,1,10", "folds": 3, "refit": False}
    found = ml.search(X3, y3, metric=names, log=tmp_path / "log", **given)
    for name in names:
        alone = ml.search(X3, y3, metric=name, **given)
        first = name == names[0]
        for entry, other in zip(found.table, alone.table, strict=True):
            assert entry["score" if first else name] == other["score"]
            assert entry["fold_scores" if first else f"fold_{name}"] == other["fold_scores"]
        assert alone.best_params == found.best_params or not first
        assert alone.best_score == (min if name in P.ERRORS else max)(entry["score"] for entry in alone.table)
    lines = (tmp_path / "log").read_text().splitlines(keepends=True)
    (tmp_path / "cut").write_text("".join(lines[:5]))
    again = ml.search(X3, y3, metric=names, resume=tmp_path / "cut", **given)
    assert [{**entry, "seconds": 0} for entry in again.table] == [{**entry, "seconds": 0} for entry in found.table]
    (tmp_path / "cut").write_text("".join(lines[:5]).replace('"brier": ', '"brier": -'))
    with pytest.raises(ml.DataError, match=r"metrics is .* an object of scores by log_loss, brier, accuracy is needed"):
        ml.search(X3, y3, metric=names, resume=tmp_path / "cut", **given)
    with pytest.raises(ml.DataError, match="its metric is 'auc,log_loss,brier,accuracy', here it is 'auc'"):
        ml.search(X3, y3, metric="auc", resume=tmp_path / "log", **given)
    with pytest.raises(ml.DataError, match="the log of another search: its data"):
        ml.search(X3, y3, metric=names, resume=tmp_path / "log", groups=np.arange(90) // 2, **given)


def test_probabilities_of_a_fold_are_those_of_its_calibrated_model():
    found = ml.cross_validate(X3, y3, solver="mcodm", folds=3, probability=True, metric="log_loss")
    folds, models = plain_loop(X3, y3, 3, solver="mcodm", probability=True)
    for fold, model in enumerate(models):
        held = folds == fold
        assert found.probabilities[held] == pytest.approx(model.predict_proba(X3[held]))
        own = found.probabilities[held][np.arange(sum(held)), y3[held] - 5]
        assert found.fold_scores[fold] == pytest.approx(-np.log(own).mean())
    kept = ml.search(X3, y3, solver="mcodm", folds=3, probability=True, metric="log_loss", grid="C=1", keep=True)
    assert kept.validation.probabilities.tobytes() == found.probabilities.tobytes()
    assert kept.model.calibration is not None
    # A class that a fold's training rows lack has the probability 0.
    X, y = np.vstack([X2, [[9.0, 9, 9, 9]]]), np.append(y2, 9)
    lacking = ml.cross_validate(X, y, folds=3, solver="logistic", metric="log_loss")
    assert lacking.probabilities[-1, 2] == 0 and lacking.fold_scores.max() > -math.log(metrics.LEAST) / 40


def test_tables_of_several_metrics_are_read_and_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(X3, y3, "d")
    Path("groups").write_text("".join(f"{i // 3}\n" for i in range(90)))
    words = ["-s", "logistic", "-C", "--grid", "C=1,10,100", "--groups", "groups", "--metric", "log_loss,auc", "d"]
    assert command.main([*words, "--table", "t.csv"]) == 0
    head, *rows, best = capsys.readouterr().out.splitlines()[1:]
    assert head.split()[:7] == ["C", "CV", "log", "loss", "deviation", "CV", "AUC"] and len(rows) == 3
    assert command.main([*words, "--table", "t.json"]) == 0
    from marginlinear.selection.tables import read_table

    found = json.loads(Path("t.json").read_text())
    for entry, other in zip(read_table("t.csv"), found, strict=True):
        assert {**entry, "seconds": 0} == {**other, "seconds": 0} and len(entry["fold_auc"]) == 5
    low = min(found, key=lambda entry: entry["score"])
    assert best == f"Best C = {low['C']:g}  CV log loss = {low['score']:g}"
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install marginlinear[plot]")
    from marginlinear.plotting import SearchDisplay

    assert SearchDisplay.from_file("t.csv", score="auc").params == []


@pytest.mark.parametrize("words, text, message", [
    ("-v 2 --groups f", "1\n\n", r"f:2:1: an empty line is no group: give one word or number a line"),
    ("-v 2 --groups f", "1\n", r"f:2:1: 1 groups for 90 rows: give one a row"),
    ("--fold-file f", "1\n 1.5\n", r"f:2:2: '1.5' is not the number of a fold: give an integer of 0 or more a line"),
    ("--fold-file f", "1\n3\n" * 45, r"f:2:1: fold 3, but no row is in fold 2: number the folds from 0 or from 1"),
    ("--fold-file f", "1\n" * 90, r"f:90:1: all rows are in fold 1: give 2 folds or more"),
    ("--fold-file f -v 2", "", r"--fold-file has the folds: leave out -v"),
    ("--groups f", "", r"--groups is for cross-validation: give -v or -C too"),
    ("--fold-file f --cluster local:1", "", r"--fold-file works on rows that are here: leave it out with --cluster"),
    ("-v 2 --groups nothere", "", r"can't open group file nothere: "),
])
def test_files_of_groups_and_folds(words, text, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(X3, y3, "d")
    Path("f").write_text(text)
    assert command.main(["-s", "l2svc", *words.split(), "d"]) in (1, 2)
    assert re.search(message, capsys.readouterr().err)


def test_a_byte_order_mark_is_no_group(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(X3, y3, "d")
    for words, text in (("-v 3 --groups", "ant\n"), ("--fold-file", "1\n"), ("-v 3 --weights", "1\n")):
        lines = [text] * 30 + [text.replace("1", "2").replace("ant", "bee")] * 30 + [text.replace("ant", "cat")] * 30
        told = []
        for mark in ("", "\ufeff"):
            Path("f").write_text(mark + "".join(lines), encoding="utf-8")
            assert command.main(["-s", "l2svc", *words.split(), "f", "--json", "d"]) == 0
            told.append(json.loads(capsys.readouterr().out)["selection"])
        assert told[0]["groups"] == told[1]["groups"]
        assert told[0]["points"][0]["fold_scores"] == told[1]["points"][0]["fold_scores"]


# ---- grids


@pytest.mark.parametrize("text, values", [
    ("C=log2:-5:2:3", {"C": [2**-5, 2**-3, 2**-1, 2.0, 8.0]}),
    ("C=log10:-2:1:1", {"C": [0.01, 0.1, 1.0, 10.0]}),
    ("mu=0.2:0.2:0.8", {"mu": [0.2, 0.4, 0.6, 0.8]}),
    ("C=1,4,log2:4:1:5,4", {"C": [1.0, 4.0, 16.0, 32.0]}),
    ("C=16,1,outer=paper,ccp", {"C": [1.0, 16.0], "outer": ["paper", "ccp"]}),
    ("--lambda=1,theta=0.1", {"lambda_": [1.0], "theta": [0.1]}),
    ("lambda=2:-1:1", {"lambda_": [1.0, 2.0]}),
    ("degree=log2:0:1:3,bias=-1,1", {"degree": [1, 2, 4, 8], "bias": [-1.0, 1.0]}),
])
def test_grid_text(text, values):
    assert grid.parse_grid(text, registry.get("mcodm")) == values


def test_grid_text_in_units_of_rows_and_cost():
    text = "lambda1=1mC,log10:-3:1:-2mC,0,2,lambda2=0:0.5:1mC"
    assert grid.parse_grid(text, registry.get("ldm")) == {"lambda1": [0.0, 2.0, "0.001mC", "0.01mC", "1mC"],
                                                          "lambda2": ["0mC", "0.5mC", "1mC"]}
    with pytest.raises(ValueError, match="C = '1mC' is not allowed"):
        grid.parse_grid("C=1mC", registry.get("ldm"))


BAD_GRIDS = [
    ("1,2", "'1' has no name"), ("D=1", "'D' is not a parameter of mcodm: give one of C, lambda, mu"),
    ("C=", "C = '' is not allowed"), ("C=1,C=2", "C stands there twice"), ("C=log2:1:1", "is no range"),
    ("C=log3:1:1:2", "is no range"), ("C=1:0:2", "is no range"), ("C=2:1:1", "is no range"),
    ("C=1:nan:2", "is no range"),
    ("C=0:1:2", r"C = 0.0 is not allowed: give number in \(0, inf\)"), ("mu=0:0.6:1.3", "mu = 1.2 is not allowed"),
    ("outer=best", r"give ccp \| paper"), ("C=log2:2000:1:2001", r"C = 'inf' is not allowed|C = inf"),
    ("C=1,lambda=2", "two names of one thing"), ("gamma=1", "of no use without a kernel"),
]


@pytest.mark.parametrize("text, message", BAD_GRIDS)
def test_bad_grids(text, message):
    with pytest.raises(ValueError, match=message):
        ml.search(X3, y3, grid=text)


def test_bad_grids_of_python():
    for given, message in [({"C": "12"}, "no list of values"), ({"C": []}, "no values"), ({"C": [1, -1]}, "C = -1 "),
                           ({"K": [1]}, "'K' is not a parameter")]:
        with pytest.raises(ValueError, match=message):
            ml.search(X3, y3, grid=given)
    with pytest.raises(ValueError, match=r"C is given as 2 and by the grid"):
        ml.search(X3, y3, grid={"C": [1]}, C=2)


# ---- search


def test_search_is_a_loop_over_train_along_c():
    found = ml.search(X3, y3, solver="mcodm", grid={"C": [4, 0.25, 1], "mu": [0.2, 0.8]}, folds=3, seed=1)
    folds = stratified_folds(y3, 3, 1)
    for mu in (0.2, 0.8):
        right = dict.fromkeys((0.25, 1.0, 4.0), 0)
        for fold in range(3):
            inside, model = folds != fold, None
            for C in right:
                model = ml.train(X3[inside], y3[inside], C=C, mu=mu, seed=1, start=model)
                right[C] += int(np.sum(model.predict(X3[~inside]) == y3[~inside]))
        for entry in found.table:
            if entry["mu"] == mu:
                assert entry["score"] == right[entry["C"]] / len(y3)
    best = max(entry["score"] for entry in found.table)
    first = next(entry for entry in found.table if entry["score"] == best)
    assert found.best_params == {"C": first["C"], "mu": first["mu"]}
    assert found.best_score == best
    again = ml.train(X3, y3, seed=1, **found.best_params)
    assert found.model.weights.tobytes() == again.weights.tobytes() or found.model.info.converged


def without_time(table):
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in table]


@pytest.mark.parametrize("solver", ["mcodm", "l1svc", "msvmav"])
def test_the_number_of_threads_changes_nothing(solver):
    tables = []
    for threads in (1, 2, 5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ml.ConvergenceWarning)
            tables.append(without_time(ml.search(X3, y3, solver=solver, folds=3, refit=False, threads=threads).table))
    assert tables[0] == tables[1] == tables[2]


@pytest.mark.parametrize("solver", ["mcodm", "cs", "l1svc", "l2svc", "odm", "softmax"])
def test_a_path_ends_where_cold_fits_end(solver):
    model = None
    for C in (0.1, 1.0, 10.0, 100.0, 3.0):
        model = ml.train(X3, y3, solver=solver, C=C, start=model, tol=1e-6)
        cold = ml.train(X3, y3, solver=solver, C=C, tol=1e-6)
        assert model.info.converged
        # mcodm's problem has several critical points.
        assert model.info.objective == pytest.approx(cold.info.objective, rel=2e-2 if solver == "mcodm" else 3e-6)


def test_rows_are_checked_and_arranged_once_a_chain(monkeypatch):
    """Of three folds for each theta, whatever the number of Cs; scaled too, they are what a fit by itself has."""
    from marginlinear import api
    from marginlinear.data import scaling

    calls = []
    for place, name in ((api, "canonical"), (api, "training_data"), (scaling, "learned")):
        original = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *given, original=original, name=name, **more: (
            calls.append(name), original(*given, **more))[1])
    grid = {"C": [0.1, 1.0, 10.0, 100.0], "theta": [0.1, 0.3]}
    found = ml.search(X2, y2, solver="odm", grid=grid, folds=3, refit=False, scale="range", threads=1)
    assert [calls.count(name) for name in ("canonical", "training_data", "learned")] == [6, 6, 6]
    alone = ml.cross_validate(X2, y2, solver="odm", C=0.1, theta=0.3, folds=3, scale="range")
    entry = next(entry for entry in found.table if (entry["C"], entry["theta"]) == (0.1, 0.3))
    assert entry["fold_scores"] == alone.fold_scores.tolist()


@pytest.mark.parametrize("solver", METHODS)
def test_every_method_is_searched_and_trained_on_the_command_line(solver, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(X2, y2, "d")
    options = ["-s", solver, "-C", "-v", "2", "--refit", "-e", "0.1", "--table", "t.json"]
    if solver == "msvmav":
        options += ["--grid", "alpha=10,100,beta=0.01,0.1"]
    if solver == "nusvc":
        options += ["--grid", "nu=0.2,0.4"]
    assert command.main([*options, "d", "m"]) == 0
    shown = capsys.readouterr().out
    method = registry.get(solver)
    axes = {"msvmav": ("alpha", "beta"), "nusvc": ("nu",)}.get(solver, ("C",))
    words = " ".join(rf"{axis} = \S+" for axis in axes)
    best = re.search(rf"^Best {words}  CV accuracy = \S+%$", shown, re.MULTILINE)
    assert best, shown
    table = json.loads(Path("t.json").read_text())
    if solver in ("l2svc", "logistic"):
        assert [entry["C"] for entry in table] == doubling_grid(method, X2, y2, {})["C"]
    else:
        assert len(table) == {"msvmav": 4, "nusvc": 2}.get(solver, 8)
    model = ml.load_model("m")
    winner = max(table, key=lambda entry: entry["score"])
    assert all(model.params[axis] == winner[axis] for axis in axes)
    if solver != "nusvc":
        assert grid.default_grid(method)


@pytest.mark.parametrize("number", [0, 2, 11])
def test_the_values_of_C_are_liblinears(number, capfd):
    """The first that it says, and the last: where one is given, too."""
    theirs = pytest.importorskip("liblinear.liblinearutil", reason="pip install liblinear-official")
    method = registry.get(str(number))
    X, y = X2 * 3, np.where(y2 == 5, 1.0, -1.0) if number < 11 else X2 @ [1, -2, 0.5, 3.0]
    for options, given in [("", {}), ("-B 1", {"bias": 1.0}), ("-c 0.3", {"C": 0.3})]:
        theirs.train(y, X, f"-s {number} -C {options}")
        lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("log2c=")]
        log2 = [float(line.split()[1]) for line in lines if number < 11 or float(line.split()[3]) == 0]
        found = doubling_grid(method, X, y, given)
        assert np.log2(found["C"])[: len(log2)] == pytest.approx(log2[: len(found["C"])], abs=0.006)
        assert found["C"][-1] <= 2.0 ** (20 if number == 11 else 10) < 2 * found["C"][-1]
        if number == 11:
            assert found["epsilon"] == pytest.approx(abs(y).max() * np.arange(20) / 20)
    if number == 11:
        few = doubling_grid(method, X, y, {"epsilon": 0.12 * abs(y).max()})["epsilon"]
        assert few == pytest.approx(abs(y).max() * np.array([0, 0.05, 0.1]))


def test_where_a_search_begins(tmp_path, monkeypatch, capsys):
    """At a given C with every method; of rows in any storage, scaled or not, at the same one."""
    found = ml.search(X3, y3, solver="cs", C=100.0, refit=False, folds=2)
    assert [entry["C"] for entry in found.table] == [100.0, 200.0, 400.0, 800.0]
    rbf = {"solver": "l2svc", "kernel": "rbf", "refit": False, "folds": 2, "tol": 0.1}
    assert [entry["C"] for entry in ml.search(X2, y2, **rbf).table] == [2.0**i for i in range(-5, 10, 2)]
    assert [entry["C"] for entry in ml.search(X2, y2, C=512.0, **rbf).table] == [512.0, 1024.0]
    logistic = registry.get("logistic")
    ranged, largest = (X2 - X2.min(axis=0)) / np.ptp(X2, axis=0), X2 / abs(X2).max(axis=0)
    for scale, S in [(None, X2), ("range", ranged), ("maxabs", largest)]:
        plain = doubling_grid(logistic, S, y2, {"bias": 1.0})
        given = {"free_bias": True} if scale is None else {"free_bias": True, "scale": scale}
        assert doubling_grid(logistic, sparse.csr_array(X2), y2, given) == plain
    twice = doubling_grid(logistic, X2, y2, {}, sample_weight=np.full(len(y2), 2))["C"]
    assert twice == doubling_grid(logistic, np.vstack((X2, X2)), np.tile(y2, 2), {})["C"]
    assert doubling_grid(registry.get("l2svr"), X2, np.zeros(len(y2)), {}) == {"C": [2.0**i for i in range(21)],
                                                                               "epsilon": [0.0]}
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(X2, X2[:, 0], "d")
    assert command.main(["-s", "11", "-C", "-c", "524288", "-v", "2", "-p", "0.01", "--refit", "d", "m"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^Best C = (524288|1\.04858e\+06) Best p = 0  CV MSE = \S+$", shown, re.MULTILINE), shown
    assert ml.load_model("m").params["epsilon"] == 0


# ---- logs


def test_resume(tmp_path):
    log, fits = str(tmp_path / "log"), []
    given = {"solver": "cs", "grid": {"C": [0.1, 1.0, 10.0]}, "folds": 3, "refit": False, "threads": 1}
    whole = ml.search(X3, y3, **given, log=log, progress=fits.append)
    assert [fit["done"] for fit in fits] == list(range(1, 10))
    lines = Path(log).read_bytes().splitlines(keepends=True)
    assert len(lines) == 10
    # Cut in the midst of a line: seven fits are whole, the last one alone in its fold.
    Path(log).write_bytes(b"".join(lines[:8]) + lines[8][:20])
    fits.clear()
    again = ml.search(X3, y3, **given, resume=log, progress=fits.append)
    assert [(fit["done"], fit["fold"]) for fit in fits] == [(7, 3), (8, 3), (9, 3)]
    assert len(Path(log).read_text().splitlines()) == 11
    assert without_time(again.table) == without_time(whole.table)
    fits.clear()
    third = ml.search(X3, y3, **given, resume=log, progress=fits.append)
    assert not fits
    assert third.table == again.table
    wider = {**given, "grid": {"C": [0.1, 1.0, 10.0, 100.0]}}
    found = ml.search(X3, y3, **wider, resume=log, progress=fits.append)
    assert len(fits) == 12
    assert without_time(found.table) == without_time(ml.search(X3, y3, **wider).table)
    fits.clear()
    further = {**given, "grid": {"C": [0.1, 1.0, 10.0, 100.0], "bias": [-1.0, 1.0]}, "refit": False}
    with pytest.raises(ValueError, match="its grid is"):
        ml.search(X3, y3, **further, resume=log)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_interrupted_search_is_resumed_bit_for_bit(threads, tmp_path, monkeypatch, capsys):
    """Ctrl-C in the midst of the fits: status 130, no table, and a log that gives the same table in the end."""
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(X3, y3, "d")
    options = ["-s", "mcodm", "-v", "3", "--grid", "C=0.1,1,10,mu=0.2,0.8", "--threads", str(threads)]
    assert command.main([*options, "--table", "whole.json", "d"]) == 0
    fits = []

    def interrupted(line, what="", done=0, total=None, unit="", note=""):
        if unit == "fits":
            fits.append(done)
            if len(fits) == 8:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StatusLine, "show", interrupted)
        assert command.main([*options, "--table", "t.json", "--log", "log", "d"]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert sorted(os.listdir()) == ["d", "log", "whole.json"]
    assert 9 <= len(Path("log").read_text().splitlines()) < 19
    assert command.main([*options, "--table", "t.json", "--resume", "log", "d"]) == 0
    tables = [without_time(json.loads(Path(name).read_text())) for name in ("t.json", "whole.json")]
    assert tables[0] == tables[1]


def test_a_terminal_shows_a_bar(tmp_path, monkeypatch):
    tqdm = pytest.importorskip("tqdm").tqdm
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(X2, y2, "d")
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(tqdm, "update", lambda bar, n: [setattr(bar, "n", bar.n + n), bar.refresh()])
    assert command.main(["-s", "l2svc", "--grid", "C=1,2", "-v", "2", "--threads", "1", "d"]) == 0
    bars = [line for line in terminal.getvalue().split("\r") if "best of a fold" in line]
    found = [re.match(r" *(\d+)%.*\| (\d)/4 \[.* fits?/s, best of a fold \S+% C = [12]\]", bar) for bar in bars]
    assert [match.groups() for match in found] == [("25", "1"), ("25", "1"), ("50", "2"), ("75", "3"), ("100", "4")]


def test_tables_say_the_same(tmp_path, monkeypatch, capsys):
    """As text, CSV and JSON, with a fold that has no value."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(metrics.METRICS, "auc", lambda y, predicted, scores: math.nan if y[0] else 0.1 + 0.2)
    ml.dump_libsvm(X2, y2, "d")
    options = ["-s", "l2svc", "--grid", "C=0.1,1,kernel=linear,rbf", "-v", "4", "--metric", "auc", "d"]
    assert command.main(["--table", "t.json", *options]) == 0
    assert command.main(["--table", "t.csv", *options]) == 0
    shown = capsys.readouterr().out.splitlines()

    def refused(word):
        raise AssertionError(f"{word} is no JSON")

    table = json.loads(Path("t.json").read_text(), parse_constant=refused)
    with open("t.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["C"], row["kernel"]) for row in rows] == [("0.1", "linear"), ("0.1", "rbf"), ("1.0", "linear"),
                                                           ("1.0", "rbf")]
    assert [(entry["C"], entry["kernel"]) for entry in table] == [(float(row["C"]), row["kernel"]) for row in rows]
    assert None in table[0]["fold_scores"]
    for row, entry in zip(rows, table, strict=True):
        assert len(entry["fold_scores"]) == 4
        for fold, score in enumerate(entry["fold_scores"], 1):
            assert score == float(row[f"fold_{fold}"]) if score is not None else row[f"fold_{fold}"] == "nan"
        assert [float(row[name]) for name in ("score", "n_iter", "unconverged")] == \
            [entry[name] for name in ("score", "n_iter", "unconverged")]
    header = next(line for line in shown if "deviation" in line)
    assert header.split() == ["C", "kernel", "CV", "AUC", "deviation", "sweeps", "seconds", "unconverged"]
    text = shown[shown.index(header) + 1].split()
    assert text[:3] == ["0.1", "linear", f"{100 * table[0]['score']:.4f}%"]
    assert int(text[4]) == table[0]["n_iter"]


def test_the_time_limit_is_that_of_each_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(X3, y3, "d")
    options = ["-s", "cs", "--grid", "C=1,100", "-v", "2", "-e", "1e-12", "--time-limit", "1e-9", "--table", "t.json"]
    assert command.main([*options, "d"]) == 0
    assert command.main([*options, "--strict", "d"]) == 3
    shown = capsys.readouterr()
    assert "WARNING: not converged: 4 of 4 fits; " in shown.err
    assert "--time-limit" in shown.err
    assert "Best C = 1  CV accuracy = " in shown.out
    assert [entry["unconverged"] for entry in json.loads(Path("t.json").read_text())] == [2, 2]


def test_a_log_of_another_search_is_refused(tmp_path):
    log = str(tmp_path / "log")
    given = {"solver": "cs", "grid": "C=1,2", "folds": 3, "refit": False}
    ml.search(X3, y3, **given, log=log)
    before = Path(log).read_bytes()
    for change, name in [({"folds": 4}, "folds is 3, here it is 4"), ({"tol": 0.1}, "tol is 0.001"),
                         ({"metric": "auc"}, "metric is 'accuracy'"), ({"solver": "l2svc"}, "solver is 'cs'"),
                         ({"seed": 1}, "seed is 0"), ({"class_weight": {5: 2}}, "data is "),
                         ({"sample_weight": np.ones(90)}, "data is "), ({"bias": 1}, "bias is -1.0")]:
        with pytest.raises(ValueError, match=f"the log of another search: its {name}"):
            ml.search(X3, y3, **{**given, **change}, resume=log)
    with pytest.raises(ValueError, match="its data is"):
        ml.search(X3 + 1, y3, **given, resume=log)
    assert Path(log).read_bytes() == before
    for text in ("", "x", "x\n", "[1]\n", '{"n_iter": 1}\n'):
        Path(log).write_text(text)
        with pytest.raises(ValueError, match=r"not (the log|a line) of a search"):
            ml.search(X3, y3, **given, resume=log)
    Path(log).write_bytes(before + b'{"params": {"C": 1.0}, "fold": 9}\n')
    with pytest.raises(ValueError, match=":8:1: not a fit of this search"):
        ml.search(X3, y3, **given, resume=log)
    with pytest.raises(ValueError, match="log and resume are both given"):
        ml.search(X3, y3, **given, log=log, resume=log)
    with pytest.raises(OSError, match="No such file"):
        ml.search(X3, y3, **given, resume=str(tmp_path / "none"))


def test_interrupt_and_resume(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 20)) * 10.0 ** rng.integers(-3, 3, 20)
    ml.dump_libsvm(X, np.arange(2000) % 5, str(tmp_path / "d"))
    arguments = ["-s", "cs", "--grid", "C=1e-6,1e6", "-e", "1e-13", "--time-limit", "50", "--log", "log", "--refit",
                 "d"]
    process = subprocess.Popen([sys.executable, "-m", "marginlinear.cli.train", *arguments], cwd=tmp_path,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ROOT})
    with process:
        for _ in range(3000):
            if (tmp_path / "log").exists() and (tmp_path / "log").stat().st_size:
                break
            time.sleep(0.01)
        time.sleep(0.3)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        # 0.2 s on an idle machine; the end of the interpreter and a busy machine come on top.
        assert time.monotonic() - began < 3
        assert process.stderr.read() == (b"what is done is in log: the same command with --resume log goes on\n"
                                         b"margin-train: interrupted\n")
    assert sorted(os.listdir(tmp_path)) == ["d", "log"]


@pytest.mark.parametrize("cache", [None, 0.01])
def test_a_kernel_is_evaluated_once_along_c(cache, monkeypatch):
    """Of each fold, and for each gamma; the rows that were kept change no bit of what is found."""
    made, gram_rows = [], kernels.gram_rows
    monkeypatch.setattr(kernels, "gram_rows", lambda kernel, *rest, **others: (
        made.append(kernel.gamma), gram_rows(kernel, *rest, **others))[1])
    costs, gammas = [0.1, 1.0, 10.0, 100.0], [0.1, 0.5]
    found = ml.search(X3, y3, solver="cs", kernel="rbf", grid={"gamma": gammas, "C": costs}, cache=cache, folds=3,
                      refit=False)
    assert sorted(made) == sorted(3 * gammas)
    folds = stratified_folds(y3, 3, 0)
    for gamma in gammas:
        sweeps = dict.fromkeys(costs, 0)
        for fold in range(3):
            inside, model = folds != fold, None
            for C in costs:
                model = ml.train(X3[inside], y3[inside], solver="cs", kernel="rbf", gamma=gamma, C=C, cache=cache,
                                 start=model)
                sweeps[C] += model.info.n_iter
        assert {entry["C"]: entry["n_iter"] for entry in found.table if entry["gamma"] == gamma} == sweeps


@pytest.mark.parametrize("weights", [None, np.arange(90) % 5 * 1.0], ids=["", "weights"])
@pytest.mark.parametrize("given", [
    {"solver": "l1svc", "multiclass": "ovo", "free_bias": True, "cache": 1},
    {"solver": "l2svc", "bias": 1.0, "kernel": "poly", "coef0": 1.0}, {"solver": "cs"}, {"solver": "odm"}], ids=str)
def test_products_and_parts_that_fits_share_change_no_bit(given, weights, monkeypatch):
    """Of all rows, for all folds and gammas, on any number of threads; of two classes, along C."""
    rng = np.random.default_rng(2)
    X = np.hstack([X3, rng.standard_normal((90, 16))])
    X[5] = X[6]
    shared, made = kernels.shared_points, []
    monkeypatch.setattr(kernels, "shared_points", lambda *rest: (made.append(shared(*rest)), made[-1])[1])
    found = []
    for part, beside, threads in ((0.5, 0.25, 1), (0.5, 0.25, 3), (0, 2, 1)):
        monkeypatch.setattr(kernels, "OF_PRODUCTS", part)
        monkeypatch.setattr(kernels, "BESIDE", beside)
        given = {"kernel": "rbf", "threads": threads, "folds": 3, "sample_weight": weights, **given}
        table = ml.search(X, y3, grid={"C": [1.0, 10.0], "gamma": [0.02, 0.1]}, refit=False, **given).table
        checked = ml.cross_validate(sparse.csr_array(X), y3, gamma=0.05, **given)
        found.append((without_time(table), checked.scores.tobytes(), [info.bound for info in checked.infos]))
    assert found[0] == found[1] == found[2]
    assert [points is not None for points in made] == [True] * 4 + [False] * 2
    assert all(points.products.shape == (90, 90) for points in made[:4])


@pytest.mark.parametrize("given", [{"scale": "range"}, {"cache": 0.01}, {"kernel": lambda X, Z: X @ Z.T}],
                         ids=["scale", "cache", "callable"])
def test_products_are_not_shared_where_they_are_of_no_use(given, monkeypatch):
    """Folds are scaled each in its own way; there is no room; the kernel is the user's."""
    X, made = np.hstack([X3] * 5), []
    values = kernels.kernel_values
    monkeypatch.setattr(kernels, "kernel_values", lambda *rest: made.append(rest[0].kind) or values(*rest))
    ml.cross_validate(X, y3, folds=3, solver="l1svc", threads=1, **{"kernel": "rbf", **given})
    assert "linear" not in made


@pytest.mark.parametrize(("text", "words"), [
    ("C=1:0.0000001:1e9", r"C = '1:0.0000001:1e9' has 9999999990000001 values, more than 100000: give a larger step"),
    ("C=1:1:1000,mu=0:0.001:1", "grid: 1001000 points, more than 100000: give fewer values")])
def test_a_grid_without_end_is_refused(text, words):
    """It was made, point by point, in silence."""
    with pytest.raises(ValueError, match=words):
        ml.search(np.eye(4), [0, 1, 0, 1], solver="mcodm", grid=text)
