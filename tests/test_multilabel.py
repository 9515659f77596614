"""Rows with several labels: against one binary fit a label, scikit-learn's metrics, and files that say the same."""

import io
import itertools
import re
import subprocess
from importlib.util import find_spec

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import liblinearutil, registry
from marginlinear.algorithms import multiclass
from marginlinear.cli import inspect, plot, predict, scale, train
from marginlinear.data.label_sets import LabelSets, are_label_sets, label_sets_of
from marginlinear.errors import DataError
from marginlinear.libsvm import dump_libsvm, libsvm_blocks, load_libsvm, read_libsvm
from marginlinear.selection.metrics import LabelAgreement

NAMES = np.array(["ant", "bee", "cat", "dog"])
BINARY = [name for name, method in registry.methods().items() if method.classifies and not method.joint]
JOINT = [name for name, method in registry.methods().items() if method.classifies and method.joint]


def data(m=120, n=6, seed=0):
    """(X, bool indicator of shape (m, 4)), the first row with two labels or more, some rows without any."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n))
    Y = X @ rng.standard_normal((n, 4)) + rng.standard_normal((m, 4)) > 0.8
    order = np.argsort(-Y.sum(axis=1), kind="stable")
    order[1:] = np.sort(order[1:])
    assert (Y.sum(axis=1) == 0).any() and Y[order[0]].sum() > 1
    return X[order], Y[order]


def sets_of(Y):
    return [set(NAMES[row].tolist()) for row in Y]


@pytest.mark.parametrize("solver", BINARY)
@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_each_column_is_the_binary_fit_of_its_label(solver, kernel):
    """Objectives and bounds are sums over the labels: each lies between those of the fits one by one."""
    method = registry.get(solver)
    if kernel and not method.kernels:
        pytest.skip("no kernels")
    X, Y = data()
    given = {"solver": solver, "bias": 1.0, **({"kernel": kernel} if kernel else {})}
    if solver in ("ldm-asgd", "nusvc"):
        given |= {"epochs": 3} if solver == "ldm-asgd" else {"nu": 0.4}
    if method.offset:
        del given["bias"]
    model = ml.train(X, Y, **given)
    scores = model.decision_function(X)
    assert scores.shape == Y.shape and model.multilabel
    singles = [ml.train(X, Y[:, at], **given) for at in range(4)]
    if model.info.bound is not None:
        assert {one.info.status for one in (model, *singles)} == {"finished" if solver == "ldm-asgd" else "converged"}
        rounding = 1e-12 * abs(model.info.objective)
        assert sum(one.info.bound for one in singles) <= model.info.objective + rounding
        assert model.info.bound <= sum(one.info.objective for one in singles) + rounding
    apart = max(np.abs(one.decision_function(X) - scores[:, at]).max() for at, one in enumerate(singles))
    assert apart < 0.3 * np.abs(scores).max()


def test_columns_that_are_not_batched_are_the_same_bits():
    """Where rows are in no canonical order, and a column a fit of its own, it is that of the label alone."""
    X, Y = data(m=4000, n=40)
    given = {"solver": "l2svc", "algorithm": "cd", "threads": 1}
    model = ml.train(X, Y, **given)
    for at in range(4):
        assert np.array_equal(ml.train(X, Y[:, at], **given).weights[:, 0], model.weights[:, at])


def test_batches_take_the_sets_as_classes(monkeypatch):
    X, Y = data(m=3000, n=30)
    taken = []
    batch = multiclass.Batch
    monkeypatch.setattr(multiclass, "Batch", lambda problem, codes, *rest: taken.append(codes) or batch(
        problem, codes, *rest))
    model = ml.train(X, Y, solver="l2svc")
    assert taken and {codes.shape[0] for codes in taken} == {len({tuple(row) for row in Y.tolist()})}
    assert model.info.converged


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_find_the_same(threads):
    X, Y = data()
    found = ml.train(X, Y, solver="odm", threads=threads).weights
    assert threads >= 4 or np.array_equal(found, ml.train(X, Y, solver="odm", threads=2).weights)


def forms(Y):
    rows = [tuple(np.flatnonzero(row).tolist()) for row in Y]
    yield "indicator", Y
    yield "numbers", Y.astype(np.int64)
    yield "floats", Y.astype(np.float32)
    yield "csr", sparse.csr_array(Y.astype(np.int8))
    yield "csc", sparse.csc_matrix(Y.astype(float))
    yield "coo", sparse.coo_array(Y.astype(float))
    yield "sets", list(map(set, rows))
    yield "frozensets", tuple(map(frozenset, rows))
    yield "tuples", rows
    yield "lists", list(map(list, rows))
    objects = np.empty(len(rows), dtype=object)
    objects[:] = rows
    yield "objects", objects
    yield "LabelSets", LabelSets.of_indicator(Y, np.arange(4))


def test_every_form_of_targets_is_the_same_model():
    X, Y = data()
    weights = ml.train(X, Y, solver="l2svc").weights
    for name, y in forms(Y):
        model = ml.train(X, y, solver="l2svc")
        assert np.array_equal(model.weights, weights), name
        assert model.classes.tolist() == [0, 1, 2, 3], name
        assert np.array_equal(ml.cross_validate(X, y, solver="l2svc").scores,
                              ml.cross_validate(X, Y, solver="l2svc").scores), name


def test_tables_name_their_columns():
    pandas = pytest.importorskip("pandas")
    X, Y = data()
    table = pandas.DataFrame(Y.astype(int), columns=["dog", "ant", "cat", "bee"])
    model = ml.train(X, table, solver="l2svc")
    assert model.classes.tolist() == ["dog", "ant", "cat", "bee"]
    series = pandas.Series(sets_of(Y))
    assert ml.train(X, series, solver="l2svc").classes.tolist() == NAMES.tolist()


def test_predictions():
    X, Y = data()
    model = ml.train(X, sets_of(Y), solver="l2svc", bias=1.0)
    scores, found = model.decision_function(X), model.predict(X)
    assert found.dtype == np.int8 and np.array_equal(found, scores > 0)
    named = model.predict_labels(X)
    assert named.tolist() == [tuple(NAMES[row].tolist()) for row in scores > 0]
    assert named == model.labels_of(scores) and named[3] == named.tolist()[3]
    assert np.mean(found == Y) > 0.8
    assert model.predict(X[:0]).shape == (0, 4)
    assert type(model).__name__ in repr(model) and "4 labels (ant, bee, cat, dog)" in repr(model)


def test_predictions_by_blocks_are_the_same(monkeypatch):
    X, Y = data()
    model = ml.train(X, Y, solver="l2svc")
    whole = model.predict(X)
    monkeypatch.setattr("marginlinear.model.SCORES", 40)
    assert np.array_equal(model.predict(X), whole)
    assert np.array_equal(model.predict(sparse.csr_array(X)), whole)


@pytest.mark.parametrize("how", [{}, {"bias": 1.0}, {"kernel": "rbf"}, {"scale": "range"},
                                 {"kernel": "rbf", "bias": 1.0}])
def test_labels_that_no_row_or_every_row_has(how):
    X, Y = data()
    wider = np.column_stack([np.ones(len(Y)), Y, np.zeros(len(Y))])
    model, alone = ml.train(X, wider, solver="l2svc", **how), ml.train(X, Y, solver="l2svc", **how)
    scores = model.decision_function(X)
    assert np.allclose(scores[:, 0], 1, atol=1e-12) and np.allclose(scores[:, 5], -1, atol=1e-12)
    assert np.allclose(scores[:, 1:5], alone.decision_function(X), atol=1e-9)
    assert model.info.objective == alone.info.objective
    with pytest.raises(ValueError, match="each label is in all rows or in none"):
        ml.train(X, wider[:, [0, 5]], solver="l2svc", **how)


def test_classes_name_columns_or_all_labels():
    X, Y = data()
    model = ml.train(X, Y, solver="l2svc", classes=NAMES[::-1])
    assert model.classes.tolist() == NAMES[::-1].tolist()
    more = ml.train(X, sets_of(Y), solver="l2svc", classes=[*NAMES, "fly"])
    assert more.classes.tolist() == [*NAMES, "fly"] and (more.decision_function(X)[:, 4] == -1).all()
    for classes, fix in ((NAMES[:3], "4 columns"), (["a", "a", "b", "c"], "3 different labels"),
                         (["a", "b c", "d", "e"], "white space")):
        with pytest.raises(ValueError, match=fix):
            ml.train(X, Y, solver="l2svc", classes=classes)
    with pytest.raises(ValueError, match="is not among them"):
        ml.train(X, sets_of(Y), solver="l2svc", classes=NAMES[:3])
    with pytest.raises(ValueError, match="y holds words"):
        ml.train(X, sets_of(Y), solver="l2svc", classes=[1, 2])


@pytest.mark.parametrize("change, fix", [
    (lambda Y: 2 * Y, "other values than 0 and 1"), (lambda Y: sparse.csr_array(3.0 * Y), "other values than 0 and 1"),
    (lambda Y: Y.astype(int).tolist(), "numpy.array"), (lambda Y: Y[:, :1].astype(int).tolist(), "2 dimensions"),
    (lambda Y: Y[:-1], "X has 120 rows, y has 119"),
    (lambda Y: [*map(set, Y[:-1].tolist()), 3], "row 119 is 3"), (lambda Y: [{1}, {"a"}] * 60, "all numbers or all"),
    (lambda Y: [{"a b"}, {"c"}] * 60, "white space"), (lambda Y: [{1}, {np.nan}] * 60, "not finite"),
    (lambda Y: [set()] * 120, "in all rows or in none"), (lambda Y: Y.astype("U"), "other values than 0 and 1"),
    (lambda Y: np.where(Y, np.nan, 0), "other values than 0 and 1"), (lambda Y: Y[:, :, None], "3 dimensions")])
def test_targets_that_are_refused(change, fix):
    X, Y = data()
    with pytest.raises(ValueError, match=fix):
        ml.train(X, change(Y), solver="l2svc")


def test_what_learns_one_label_says_so():
    X, Y = data()
    for solver in JOINT:
        for call in (ml.train, ml.cross_validate):
            with pytest.raises(ValueError, match=f"'{solver}' learns one label a row.*solver = 'l2svc'"):
                call(X, Y, solver=solver)
    for how in ("ovo", "ecoc"):
        with pytest.raises(ValueError, match=f"multiclass = '{how}' is for one label a row"):
            ml.train(X, Y, solver="l2svc", multiclass=how)
    with pytest.raises(ValueError, match="class_weight = 'balanced' is for one label"):
        ml.train(X, Y, solver="l2svc", class_weight="balanced")
    with pytest.raises(ValueError, match="2 dimensions"):
        ml.train(X, Y, solver="l1svr")
    model = ml.train(X, Y, solver="l2svc")
    for call in (lambda: model.margins(X, Y), lambda: model.places_in_classes([1]),
                 lambda: ml.margin_report(model, X, Y), lambda: ml.margin_report(model, X, Y[:, 0])):
        with pytest.raises(TypeError, match="multi-label"):
            call()
    with pytest.raises(ValueError, match=r"one (label a row )?is needed"):
        ml.margin_report(ml.train(X, Y[:, 0], solver="l2svc"), X, LabelSets.of_indicator(Y, np.arange(4)))


@pytest.mark.parametrize("how", [{}, {"kernel": "linear"}])
@pytest.mark.parametrize("call", [
    pytest.param(ml.to_onnx, marks=pytest.mark.skipif(find_spec("onnx") is None, reason="needs onnx")),
    ml.to_c, lambda model: ml.to_sql(model, "rows"), ml.to_liblinear, liblinearutil.model])
def test_other_programs_have_no_such_model(call, how):
    with pytest.raises(ValueError, match=r"the model is .*multi-label"):
        call(ml.train(*data(), solver="l2svc", **how))


def test_predictions_of_dask_are_of_one_label():
    pytest.importorskip("dask")
    from dask.array import from_array

    from marginlinear.dask import prediction

    X, Y = data()
    model = ml.train(X, Y, solver="logistic")
    for call in (prediction.predict, prediction.decision_function, prediction.predict_proba):
        with pytest.raises(ValueError, match="the model is multi-label"):
            call(model, from_array(X))


def test_weights_of_rows():
    X, Y = data()
    weights = np.arange(len(Y)) % 3
    twice = np.repeat(np.arange(len(Y)), weights)
    one = ml.train(X, Y, solver="l2svc", sample_weight=weights)
    assert np.array_equal(one.weights, ml.train(X[twice], Y[twice], solver="l2svc").weights)


def test_a_start_and_a_checkpoint(tmp_path):
    X, Y = data()
    given = {"solver": "l2svc", "algorithm": "cd", "tol": 1e-8}
    model = ml.train(X, Y, checkpoint=tmp_path / "c", **given)
    for again in (ml.train(X, Y, start=model, **given), ml.train(X, Y, resume_from=tmp_path / "c", **given)):
        assert again.info.n_iter < model.info.n_iter
        assert np.allclose(again.weights, model.weights, atol=1e-4)
    with pytest.raises(ValueError, match="start"):
        ml.train(X, Y[:, ::-1], start=model, **given)


def test_a_start_from_a_file(tmp_path):
    """Its columns are those of all labels, also of one that is told from none."""
    X, Y = data()
    Y = np.column_stack([np.ones(len(Y)), Y])
    given = {"solver": "l2svc", "bias": 1.0, "algorithm": "newton", "tol": 1e-10}
    model = ml.train(X, Y, **given)
    ml.save_model(model, tmp_path / "m")
    again = ml.train(X, Y, start=ml.load_model(tmp_path / "m"), **given)
    assert again.info.n_iter < model.info.n_iter
    assert np.allclose(again.weights, model.weights, atol=1e-6)


def test_a_fit_that_is_stopped_has_a_model():
    X, Y = data()
    model = ml.train(X, Y, solver="l2svc", algorithm="cd", tol=1e-9, threads=1,
                     callback=lambda progress: progress.columns == 2)
    assert model.info.status == "stopped" and model.columns == 4 and type(model) is ml.MultiLabelModel


def test_rows_on_disk(tmp_path):
    X, Y = data()
    store = ml.Store.write([(X, Y[:, 0].astype(int))], tmp_path / "s")
    model = ml.train(store, Y, solver="l2svc", bias=1.0)
    assert np.array_equal(model.predict(store), ml.train(X, Y, solver="l2svc", bias=1.0, tol=1e-5).predict(X))
    dump_libsvm(X, Y, tmp_path / "d")
    with pytest.raises(DataError, match=r"several labels.*here each row is to have one"):
        ml.Store.write(tmp_path / "d", tmp_path / "s2")


# Probabilities


@pytest.mark.parametrize("how", [{"solver": "l2svc"}, {"solver": "logistic"}, {"solver": "l1svc", "kernel": "rbf"}])
def test_probabilities_agree_with_the_labels(how):
    X, Y = data()
    Y = np.column_stack([Y, np.ones(len(Y))])
    model = ml.train(X, Y, bias=1.0, probability=True, **how)
    p = model.predict_proba(X)
    assert p.shape == Y.shape and (p >= 0).all() and (p <= 1).all()
    assert np.array_equal(p > 0.5, model.predict(X) == 1)
    # Where they are right they are near the frequencies.
    assert np.abs(p[:, :4].mean(axis=0) - Y[:, :4].mean(axis=0)).max() < 0.1
    if how["solver"] == "logistic":
        scores = model.decision_function(X)
        assert np.allclose(p, 1 / (1 + np.exp(-scores)), atol=1e-12)


def test_probabilities_of_one_label_are_those_of_two_classes():
    X, Y = data()
    model = ml.train(X, Y, solver="logistic")
    alone = ml.train(X, Y[:, 1], solver="logistic", tol=1e-10)
    p = ml.train(X, Y, solver="logistic", tol=1e-10).predict_proba(X)
    assert np.allclose(p[:, 1], alone.predict_proba(X)[:, 1], atol=1e-6)
    with pytest.raises(ValueError, match="probability=True"):
        ml.train(X, Y, solver="l2svc").predict_proba(X)
    assert model.calibration.kind == "sigmoid"


# Metrics


def test_metrics_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for seed, (m, k) in enumerate(itertools.product((1, 7, 50), (1, 2, 9))):
        rng = np.random.default_rng(seed)
        Y = rng.random((m, k)) < 0.3
        scores = np.round(rng.standard_normal((m, k)), 1)
        predicted = scores > 0.5
        found = LabelAgreement().add(Y[:m // 2], predicted[:m // 2], scores[:m // 2])
        found.add(Y[m // 2:], predicted[m // 2:], scores[m // 2:])
        for average in ("micro", "macro"):
            expected = metrics.f1_score(Y, predicted, average=average, zero_division=np.nan) if k > 1 else None
            if k > 1 and (Y | predicted).any():
                assert getattr(found, f"{average}_f1") == pytest.approx(expected, abs=1e-12)
        if k > 1:
            assert found.lrap == pytest.approx(metrics.label_ranking_average_precision_score(Y, scores), abs=1e-12)
        assert found.accuracy == pytest.approx(metrics.accuracy_score(Y, predicted), abs=1e-12)


def test_labels_that_are_not_known_are_missed():
    Y = np.array([[True, False], [True, False]])
    found = LabelAgreement().add(Y, Y, Y - 0.5, np.array([0, 2]))
    assert (found.micro_f1, found.macro_f1, found.accuracy, found.lrap) == (4 / 6, 1.0, 0.5, 1.0)
    none = LabelAgreement().add(~Y & False, ~Y & False, Y * 0.0)
    assert np.isnan(none.micro_f1) and np.isnan(none.macro_f1) and none.lrap == 1.0


def test_cross_validation():
    metrics = pytest.importorskip("sklearn.metrics")
    X, Y = data()
    for metric, of in (("lrap", lambda f, cv: metrics.label_ranking_average_precision_score(Y[f], cv.scores[f])),
                       ("micro_f1", lambda f, cv: metrics.f1_score(Y[f], cv.predictions[f], average="micro")),
                       ("macro_f1", lambda f, cv: metrics.f1_score(Y[f], cv.predictions[f], average="macro")),
                       ("accuracy", lambda f, cv: metrics.accuracy_score(Y[f], cv.predictions[f]))):
        cv = ml.cross_validate(X, Y, solver="l2svc", metric=metric, threads=2)
        assert cv.fold_scores == pytest.approx([of(cv.fold_of == fold, cv) for fold in range(5)], abs=1e-12)
        assert cv.predictions.dtype == np.int8 and np.array_equal(cv.predictions, cv.scores > 0)
    assert ml.cross_validate(X, Y, solver="l2svc").score == ml.cross_validate(X, Y, solver="l2svc",
                                                                              metric="micro_f1").score
    inside = cv.fold_of != 2
    model = ml.train(X[inside], Y[inside], solver="l2svc")
    assert np.allclose(cv.scores[~inside], model.decision_function(X[~inside]), atol=1e-12)
    for metric, y in (("auc", Y), ("lrap", Y[:, 0])):
        with pytest.raises(ValueError, match=f"'{metric}' does not measure"):
            ml.cross_validate(X, y, solver="l2svc", metric=metric)


def test_rare_labels_go_to_different_folds():
    X, Y = data(m=100)
    Y = np.column_stack([Y, np.zeros(100, dtype=bool)])
    Y[:10, 4] = True
    cv = ml.cross_validate(X, Y, solver="l2svc", folds=5)
    assert np.bincount(cv.fold_of[:10], minlength=5).tolist() == [2] * 5


def test_a_label_that_a_fold_lacks():
    X, Y = data()
    Y = np.column_stack([Y, np.arange(len(Y)) == 3])
    cv = ml.cross_validate(X, Y, solver="l2svc", probability=True)
    assert cv.scores[3, 4] == -1
    assert ml.train(X, Y, solver="l2svc", probability=True).predict_proba(X).shape == Y.shape


def test_search(tmp_path):
    X, Y = data()
    grid = {"C": [0.01, 1.0]}
    found = ml.search(X, sets_of(Y), solver="l2svc", grid=grid, metric="lrap", log=tmp_path / "log")
    assert type(found.model) is ml.MultiLabelModel and found.best_score == max(e["score"] for e in found.table)
    again = ml.search(X, sets_of(Y), solver="l2svc", grid=grid, metric="lrap", resume=tmp_path / "log")
    assert again.table == found.table
    with pytest.raises(DataError, match="data"):
        ml.search(X, sets_of(~Y), solver="l2svc", grid=grid, metric="lrap", resume=tmp_path / "log")
    classes, folds = ml.out_of_fold(X, Y, solver="l2svc")
    assert classes.tolist() == [0, 1, 2, 3] and next(folds).places.shape[1] == 4
    kernel = ml.search(X, Y, solver="l2svc", kernel="rbf", grid={"gamma": [0.1, 1.0]}, refit=False)
    assert len(kernel.table) == 2


# Files


TEXT = b"3,1 1:1\n 2:1\n#c\n1\n1,3,1 1:-1 2:.5\n\t1:1\n-2.5\n"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_file_is_read_without_an_option(threads):
    for size in (8, 1 << 18):
        read = read_libsvm(io.BytesIO(TEXT), threads=threads, _block_size=size)
        assert read.labels.tolist() == [(1, 3), (), (1,), (1, 3), (), (-2.5,)]
        assert read.indptr.tolist() == [0, 1, 2, 2, 4, 5, 5]
        parts = [part.labels.tolist() for part in libsvm_blocks(io.BytesIO(TEXT), threads=threads, _block_size=size)]
        assert list(itertools.chain(*parts)) == read.labels.tolist()
    X, y = load_libsvm(io.BytesIO(TEXT))
    assert X.shape == (6, 2) and y.classes.tolist() == [-2.5, 1, 3]


@pytest.mark.parametrize("text, how, labels", [
    (b"cat 1:1\nh\xc3\xa9\n", {}, ["cat", "h\u00e9"]), (b"_1\n", {}, ["_1"]),
    (b"nancy\ninfo 1:1\n", {}, ["nancy", "info"]),
    (b"a,b 1:1\nb 1:1\n 1:1\n", {}, [("a", "b"), ("b",), ()]), (b"# c\n\n" * 50 + b"a\n", {}, ["a"]),
    (b"a,b 1:1\nb\n", {"text_labels": True}, ["a,b", "b"]), (b"a\n1\n", {"text_labels": True}, ["a", "1"]),
    (b"1\n", {"text_labels": True}, ["1"]), (b" 1:1\n2,1\n", {"multilabel": True}, [(), (1, 2)]),
    (b" 1:1\n" * 40 + b"b\n", {"multilabel": True}, [()] * 40 + [("b",)]), (b" 1:1\n", {"multilabel": True}, [()]),
    (b"1,b\n", {"multilabel": True, "text_labels": True}, [("1", "b")]),
    (b"1\n2\n", {"multilabel": True}, [(1,), (2,)]),
    (b"1 1:1\n2\n", {"multilabel": False, "text_labels": False}, [1, 2])])
def test_what_the_first_label_tells(text, how, labels):
    for size, threads in itertools.product((8, 1 << 18), (1, 3)):
        assert read_libsvm(io.BytesIO(text), threads=threads, _block_size=size, **how).labels.tolist() == labels


@pytest.mark.parametrize("text, how, line, column, words", [
    # A damaged label makes no other kind of file.
    (b"1 1:1\nx 1:1\n", {}, 2, 1, ["'x' is not a number", "--text-labels"]),
    (b"1 1:1\n1,2 1:1\n", {}, 2, 1, ["several labels '1,2'", "--multilabel", "--text-labels"]),
    (b"a 1:1\nb,c 1:1\n", {}, 2, 1, ["several labels 'b,c'", "--multilabel"]),
    (b"x 1:1\n1 1:1\n", {}, 2, 1, ["'1' is a number", "--text-labels"]),
    (b"a,b 1:1\nb,7 1:1\n", {}, 2, 3, ["'7' is a number"]), (b"1,a 1:1\n", {}, 1, 3, ["'a' is not a number"]),
    (b"1,2 1:1\n3,x 1:1\n", {}, 2, 3, ["'x' is not a number"]), (b"l0 1:1\n1 1:1\n", {}, 2, 1, ["is a number"]),
    (b"0x1 1:1\n", {}, 1, 1, ["not a number"]), (b"-a 1:1\n", {}, 1, 1, ["not a number"]),
    (b"inf 1:1\n", {}, 1, 1, ["not finite"]), (b"Infinity\n", {}, 1, 1, ["not finite"]),
    (b"1,2 1:1\n1:1 2:1\n", {}, 2, 1, ["no label before '1:1'", "begins with a blank"]),
    (b" 1:1\n", {}, 1, 2, ["no label", "--multilabel"]), (b"1,2 1:1\n1,,2 1:1\n", {}, 2, 3, ["missing beside a comma"]),
    (b"1,2 1:1\n1,2, 1:1\n", {}, 2, 5, ["missing beside a comma"]),
    (b",1 1:1\n", {"multilabel": True}, 1, 1, ["missing"]),
    (b"a,b 1:1\nb,,a\n", {}, 2, 3, ["missing beside a comma"]), (b"1,2,3\n", {}, 1, 1, ["CSV"]),
    (b"a,b\n", {}, 1, 1, ["CSV"]), (b"a,b 1:1\na,\xff\n", {}, 2, 1, ["UTF-8"]),
    (b"a,b 1:1\n 1:1\n\xff\n", {}, 3, 1, ["UTF-8"]),
    (b"1,2 1:1\n1,inf 1:1\n", {}, 2, 3, ["not finite"]), (b"1,9007199254740993 1:1\n", {}, 1, 3, ["2^53"]),
    (b"a,b 1:1\nb,a# 1:1\n", {}, 2, 3, ["label 'a' ends at '#'"]),
    (b"1,2 1:1\n1;2 1:1\n", {}, 2, 1, ["'1;2' is not a number"]),
    (b"1,2 1:1\n", {"multilabel": False}, 1, 1, ["here each row is to have one"]),
    (b"a\n", {"text_labels": False}, 1, 1, ["not a number"]), (b"the words of a letter\n", {}, 1, 5, ["index:value"])])
def test_a_wrong_line_is_an_error(text, how, line, column, words):
    for size, threads in itertools.product((8, 1 << 18), (1, 3)):
        with pytest.raises(DataError) as caught:
            read_libsvm(io.BytesIO(text), threads=threads, _block_size=size, **how)
        assert (caught.value.line, caught.value.column) == (line, column)
        assert all(word in caught.value.reason for word in words), caught.value.reason


def test_any_text_is_read_as_the_reference_reads_it():
    from test_libsvm import assert_as_reference

    rng = np.random.default_rng(0)
    pieces = [b"1", b"2.5", b"a", b"bc", b",", b" ", b"\n", b"1:1", b" 2:3", b"-", b"inf", b"#", b"\t", b"nan", b"\xff"]
    for _ in range(6000):
        text = b"".join(pieces[at] for at in rng.integers(0, len(pieces), rng.integers(1, 14)))
        how = {} if rng.random() < 0.6 else {"multilabel": True}
        assert_as_reference(text, _block_size=int(rng.choice([8, 64])), threads=1, **how)


def test_what_is_written_reads_back(tmp_path):
    X, Y = data()
    X[1] = 0
    Y[1] = False
    for y in (Y, sparse.csr_array(Y.astype(int)), sets_of(Y), [{0.5 * a for a in np.flatnonzero(row)} for row in Y]):
        dump_libsvm(X, y, tmp_path / "d")
        for how in {}, {"multilabel": True}:
            again, labels = load_libsvm(tmp_path / "d", **how)
            assert np.array_equal(again.toarray(), X) and labels.tolist() == label_sets_of(y).tolist()
    assert (tmp_path / "d").read_bytes().splitlines()[1] == b" 1:0"
    dump_libsvm(X, Y, tmp_path / "z", zero_based=True)
    assert load_libsvm(tmp_path / "z", zero_based=True)[1].tolist() == label_sets_of(Y).tolist()
    for y, fix in (([{"a,b"}, {"c"}] * 60, "commas"), ([{2**53}, {1}] * 60, "2\\^53"), (Y[:5], "5 rows")):
        with pytest.raises(ValueError, match=fix):
            dump_libsvm(X, y, tmp_path / "d")


def test_stores_know_words(tmp_path):
    (tmp_path / "d").write_text("ham 1:1\nspam 2:1\nham 1:2\n")
    store = ml.Store.write(tmp_path / "d", tmp_path / "s")
    assert store.y.tolist() == ["ham", "spam", "ham"] and store.classes.tolist() == ["ham", "spam"]
    store.require_source(tmp_path / "d")


def test_label_sets():
    found = LabelSets.of_flat(np.array(["b", "a", "b", "b"]), np.array([0, 3, 4, 4]))
    assert found.tolist() == [(), ("a", "b"), ("b",), ()] and len(found) == 4 and found[-2] == ("b",)
    assert found[1:3].tolist() == [("a", "b"), ("b",)] and found[np.array([2, 0])].tolist() == [("b",), ()]
    assert found[np.array([True, False, True, False])].tolist() == [(), ("b",)]
    with pytest.raises(IndexError):
        found[4]
    sets, codes = found.patterns()
    assert [sets[code] for code in codes] == found.tolist() and len(sets) == 3
    assert not are_label_sets(["a", "b"]) and not are_label_sets(np.zeros((3, 1))) and not are_label_sets([])
    indicator, unknown = found.among(np.array(["c", "b"]))
    assert indicator.tolist() == [[False, False], [False, True], [False, True], [False, False]]
    assert unknown.tolist() == [0, 1, 0, 0]


# Models


MODELS = [{}, {"bias": 1.0}, {"kernel": "rbf"}, {"scale": "unit"}, {"scale": "range"}, {"probability": True},
          {"kernel": "rbf", "probability": True, "bias": 1.0}]


@pytest.mark.parametrize("how", MODELS)
@pytest.mark.parametrize("labels", [4, 2, 1])
def test_models_are_saved_and_loaded(tmp_path, how, labels):
    X, Y = data()
    # With two labels of which each row has one, the columns say one thing twice.
    Y = np.column_stack([Y[:, 0], ~Y[:, 0]]) if labels == 2 else Y[:, :labels]
    model = ml.train(X, sets_of(np.pad(Y, ((0, 0), (0, 4 - labels)))), solver="l2svc", **how)
    path = tmp_path / "m"
    ml.save_model(model, path)
    again = ml.load_model(path)
    assert type(again) is type(model) and again.multilabel and again.classes.tolist() == NAMES[:labels].tolist()
    assert np.allclose(again.decision_function(X), model.decision_function(X), rtol=0, atol=1e-13)
    if "kernel" not in how:
        assert np.array_equal(again.decision_function(X), model.decision_function(X))
    assert again.calibration == model.calibration and again.params == model.params
    ml.save_model(again, tmp_path / "m2")
    assert "kernel" in how or path.read_bytes() == (tmp_path / "m2").read_bytes()
    assert b"\nmultilabel 1\n" in path.read_bytes()


def test_other_programs_refuse_the_files(tmp_path):
    import shutil

    X, Y = data()
    dump_libsvm(X, Y[:, 0].astype(int), tmp_path / "d")
    for how, program in (({}, "liblinear-predict"), ({"kernel": "rbf"}, "svm-predict")):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
        ml.save_model(ml.train(X, Y, solver="l2svc", **how), tmp_path / "m")
        done = subprocess.run([program, tmp_path / "d", tmp_path / "m", tmp_path / "o"], capture_output=True,
                              check=False)
        assert done.returncode != 0


def test_liblinearutil_refuses_the_files(tmp_path):
    X, Y = data()
    ml.save_model(ml.train(X, Y, solver="l2svc"), tmp_path / "m")
    with pytest.raises(ValueError, match="the model is multi-label"):
        liblinearutil.load_model(str(tmp_path / "m"))
    dump_libsvm(X, Y, tmp_path / "d")
    with pytest.raises(DataError, match="here each row is to have one"):
        liblinearutil.svm_read_problem(str(tmp_path / "d"))


@pytest.mark.parametrize("old, new, reason", [
    (b"multilabel 1", b"multilabel 0", "give 1"), (b"multilabel 1", b"multilabel", "give 1"),
    (b"multilabel 1\n", b"", "codes is missing"), (b"multilabel 1", b"multilabel 1\nmultilabel 1", "already"),
    (b"multilabel 1", b"multilabel 1\ncodes + - + -", "multilabel does not go with codes"),
    (b"MARGINLINEAR", b"MCSVM_CS", "multilabel does not go with MCSVM_CS"),
    (b"nr_class 4", b"nr_class 5", "nr_class is 5"),
    (b'"slope": [', b'"slope": [1.0, ', "slope has shape"),
    (b'"slope": [', b'"slope": [-', "outside|calibration|slope"),
    (b'"kind": "sigmoid"', b'"kind": "pairwise"', "kind is"), (b'"kind": "sigmoid"', b'"kind": "logistic"', "kind is")])
def test_files_that_are_wrong(tmp_path, old, new, reason):
    from test_reading import resealed

    X, Y = data()
    ml.save_model(ml.train(X, Y, solver="l2svc", probability=True), tmp_path / "m")
    text = (tmp_path / "m").read_bytes()
    assert old in text
    (tmp_path / "m").write_bytes(resealed(text.replace(old, new, 1)))
    with pytest.raises(DataError, match=reason):
        ml.load_model(tmp_path / "m")


# Commands


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, Y = data()
    dump_libsvm(X[:80], Y[:80], "d")
    dump_libsvm(X[80:], Y[80:], "t")
    dump_libsvm(X[:80], sets_of(Y[:80]), "words")
    dump_libsvm(X[:80], Y[:80, 0].astype(int), "one")
    (tmp_path / "none").write_text(" 1:1\n 2:1\n")
    assert train.main(["-q", "-s", "l2svc", "-B", "1", "--probability", "d", "m"]) == 0
    return tmp_path


def test_commands_train_and_predict(folder, capsys):
    assert predict.main(["-b", "1", "--scores", "t", "m", "o"]) == 0
    told = capsys.readouterr().out
    (X, y), model = load_libsvm("t"), ml.load_model("m")
    scores = model.decision_function(X)
    found = LabelAgreement().add(y.indicator(), scores > 0, scores)
    exact = round(found.accuracy * len(y))
    assert told == (f"Micro F1 = {found.micro_f1:g}\nMacro F1 = {found.macro_f1:g}\n"
                    f"Label ranking average precision = {found.lrap:g}\n"
                    f"Exact match = {100 * found.accuracy:g}% ({exact}/40)\n")
    head, *lines = (folder / "o").read_text().splitlines()
    assert head == "labels 0 1 2 3"
    for line, row, p in zip(lines, scores, model.predict_proba(X), strict=True):
        labels, *numbers = line.split(" ")
        assert labels == ",".join(map(str, np.flatnonzero(row > 0)))
        assert list(map(float, numbers)) == [*p, *row]
    assert predict.main(["t", "m", "o"]) == 0
    assert (folder / "o").read_text().splitlines() == [line.split(" ")[0] for line in lines]


def test_commands_know_words(folder, capsys):
    assert train.main(["-q", "-s", "logistic", "words", "mw"]) == 0
    assert predict.main(["-b", "1", "words", "mw", "o"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("Micro F1") and told.err == ""
    assert (folder / "o").read_text().startswith("labels ant bee cat dog\n")
    assert predict.main(["d", "mw", "o"]) == 0
    assert re.search(r"WARNING: \d+ labels of the rows are none that the model knows",
                     capsys.readouterr().err)


@pytest.mark.parametrize("words, status, told", [
    ("-s l2svc -v 5 d", 0, "Cross Validation Micro F1 = "),
    ("-s l2svc -v 5 --metric lrap d", 0, "Ranking precision = "),
    ("-s l2svc -v 5 --metric macro_f1 d", 0, "Macro F1 = "), ("-s l2svc -v 5 --metric accuracy d", 0, "Accuracy = "),
    ("-s l2svc -C --grid C=1,4 --metric lrap --refit d m2", 0, "CV ranking precision = "),
    ("-s l2svc -C -v 2 d", 0, "CV micro F1 = "),
    ("-s l2svc -w1 2 --multilabel none m2", 1, "each label is in all rows"),
    ("-s l2svc -v 5 --metric lrap --multilabel one", 0, "Ranking precision"),
    ("-s l2svc -v 5 --metric auc d", 1, "'auc' does not measure"),
    ("-s l2svc -v 5 --metric lrap one", 1, "does not measure"),
    ("-s mcodm d m2", 1, "solver = 'mcodm' learns one label a row"),
    ("-s l1svr d m2", 1, "here each row is to have one"),
    ("-s l2svc --store s d m2", 1, "here each row is to have one"),
    ("-s l2svc --multilabel --store s d m2", 2, "--store"),
    ("-s l1svr --multilabel d m2", 2, "--multilabel is for classes"), ("-s l2svc -w1 2 d m2", 1, "class_weight"),
    ("-s l2svc -wcat 2 words m2", 1, "class_weight"), ("-s l2svc -wcat 2 d m2", 2, "not a number")])
def test_training_commands(folder, capsys, words, status, told):
    assert train.main(words.split()) == status
    found = capsys.readouterr()
    assert told in (found.err if status else found.out)


def test_other_commands_refuse_the_model(folder, capsys):
    for command, words in ((inspect, "m t"), (predict, "--margins t m o")):
        assert command.main(words.split()) == 1
        assert "m: the model is multi-label" in capsys.readouterr().err


def test_models_of_one_label_refuse_the_data(folder, capsys):
    assert train.main(["-q", "-s", "l2svc", "one", "m1"]) == 0
    for command, words in ((inspect, "m1 t"), (predict, "t m1 o")):
        assert command.main(words.split()) == 1
        assert re.search(r"t:\d+:\d+: .*(one|label)", capsys.readouterr().err)


def test_pictures_need_one_label(folder, capsys):
    pytest.importorskip("matplotlib")
    assert train.main(["-q", "-s", "l2svc", "one", "m1"]) == 0
    assert plot.main(["margins", "t", "m", "-o", "x.svg"]) == 1
    assert "m: the model is multi-label" in capsys.readouterr().err
    assert plot.main(["margins", "t", "m1", "-o", "x.svg"]) == 1
    assert re.search(r"t:\d+:\d+: .*(one|label)", capsys.readouterr().err)


def test_scaling_of_files(folder, capsysbinary):
    assert scale.main(["--multilabel", "-q", "-o", "scaled", "-l", "0", "d"]) == 0
    assert load_libsvm("scaled", multilabel=True)[1] == load_libsvm("d")[1]
    assert scale.main(["--multilabel", "-y", "0", "1", "d"]) == 2
