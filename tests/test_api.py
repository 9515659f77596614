"""Model and what surrounds `train`; what every method must do is in test_registry.py."""

import copy
import functools
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear.api import require_memory
from marginlinear.data.arrays import CSR
from marginlinear.data.checks import class_factors
from marginlinear.model import KernelModel, Model
from marginlinear.problem import counted


def test_import_brings_nothing_that_is_not_used():
    code = ("import sys, marginlinear as ml\n"
            "assert not {'numpy', 'scipy', 'sklearn', 'matplotlib', 'torch'} & set(sys.modules)\n"
            "ml.train, ml.load_libsvm, ml.save_model\n"
            "assert 'numpy' in sys.modules and 'scipy' not in sys.modules\n"
            "[getattr(ml, name) for name in ml.__all__]\n"
            "assert not {'sklearn', 'matplotlib', 'torch'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True)


def joint(**options):
    """Three features, four classes, a bias feature of 2."""
    weights = np.arange(16.0).reshape(4, 4) % 7 - 3
    return Model(weights, np.array([2, 3, 5, 7]), bias=2.0, **options)


def binary():
    return Model(np.array([[1.0], [-2.0], [0.5]]), np.array([-1, 4]))


def data(m=30, n=3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, n))
    X[rng.random((m, n)) < 0.4] = 0
    return X


def test_scores_of_several_columns():
    model, X = joint(), data()
    scores = X @ model.weights[:3] + 2.0 * model.weights[3]
    assert model.joint and model.n_features == 3
    assert model.coef.shape == (4, 3)
    assert np.allclose(model.intercept, 2.0 * model.weights[3])
    assert np.allclose(model.decision_function(X), scores)
    assert (model.predict(X) == model.classes[scores.argmax(axis=1)]).all()


def test_scores_of_one_column():
    model, X = binary(), data()
    scores = X @ model.weights[:, 0]
    assert not model.joint and model.n_features == 3
    assert model.coef.shape == (1, 3)
    assert model.intercept.tolist() == [0.0]
    assert model.decision_function(X).shape == (30,)
    assert np.allclose(model.decision_function(X), scores)
    assert (model.predict(X) == np.where(scores > 0, 4, -1)).all()


def test_ties_go_to_the_first_class():
    X = np.zeros((2, 3))
    assert Model(np.zeros((3, 4)), [7, 5, 3, 2]).predict(X).tolist() == [7, 7]
    assert binary().predict(X).tolist() == [-1, -1]


def test_margins():
    model, X = joint(), data()
    y = model.classes[np.arange(30) % 4]
    scores = model.decision_function(X)
    own = scores[np.arange(30), np.arange(30) % 4].copy()
    scores[np.arange(30), np.arange(30) % 4] = -np.inf
    assert np.allclose(model.margins(X, y), own - scores.max(axis=1))
    assert np.allclose(model.margins(X, y.tolist()), own - scores.max(axis=1))
    assert ((model.margins(X, model.predict(X))) >= 0).all()
    signs = np.where(np.arange(30) % 2, 4, -1)
    expected = np.where(np.arange(30) % 2, 1, -1) * (X @ binary().weights[:, 0])
    assert np.allclose(binary().margins(X, signs), expected)


def test_margins_of_classes_in_any_order():
    X = data()
    ascending = Model(np.eye(3), np.array(["a", "b", "c"]))
    other = Model(np.eye(3)[:, [2, 0, 1]], np.array(["c", "a", "b"]))
    y = np.array(["b", "c", "a"] * 10)
    assert np.allclose(ascending.margins(X, y), other.margins(X, y))


@pytest.mark.parametrize("y, words", [
    (np.full(30, 4), "label 4 is not among the classes"),
    (np.full(30, 99), "label 99 is not among"),
    (np.full(29, 2), "29 labels for 30 rows"),
])
def test_margins_refuse(y, words):
    with pytest.raises(ValueError, match=words):
        joint().margins(data(), y)


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array, sparse.csc_array, sparse.coo_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_features_that_are_missing_or_new(kind, dtype):
    """Of a file's rows missing features are zeros, those above n_features are left out; the bias stays the bias.

    Arrays must have the model's features.
    """
    model, X = joint(), data().astype(dtype)
    scores = model.decision_function(X)
    narrow = X.copy()
    narrow[:, 1:] = 0
    wide = np.hstack([X, np.ones((30, 5), dtype=dtype)])
    for given, expected in ((X[:, :1], model.decision_function(narrow)), (wide, scores)):
        assert np.allclose(model.decide(kind(given)), expected)
        csr = sparse.csr_array(given)
        assert np.allclose(model.decision_function(CSR(csr.data, csr.indices, csr.indptr, csr.shape[1])), expected)
        for call in (model.decision_function, model.predict, lambda X: model.margins(X, np.full(30, 2)),
                     lambda X: ml.margin_report(model, X, np.full(30, 2))):
            with pytest.raises(ValueError, match=rf"X has {given.shape[1]} features, the model 3: .*load_libsvm"):
                call(kind(given))


def test_rows_of_nothing():
    assert joint().predict(np.zeros((0, 3))).shape == (0,)
    assert joint().decision_function(sparse.csr_array((0, 3))).shape == (0, 4)
    assert np.allclose(joint().decide(np.zeros((5, 0))), joint().intercept)


@pytest.mark.parametrize("X, words", [
    (np.array([[1.0, np.nan, 0.0]]), "row 0, feature 1 is nan"),
    (np.zeros(3), "two dimensions"),
    (np.zeros((2, 3, 1)), "two dimensions"),
    (np.array([["a", "b", "c"]]), "numbers are needed"),
])
def test_prediction_refuses(X, words):
    with pytest.raises(ValueError, match=words):
        joint().predict(X)


def test_prediction_does_not_depend_on_threads():
    model, X = joint(), data(20_000)
    expected = model.decision_function(X, threads=1)
    for threads in (2, 8, None):
        assert model.decision_function(X, threads=threads).tobytes() == expected.tobytes()


def test_prediction_leaves_x_alone():
    X = sparse.csr_array(data())
    X.sort_indices()
    X.data.flags.writeable = X.indices.flags.writeable = X.indptr.flags.writeable = False
    joint().predict(X)
    dense = data()
    dense.flags.writeable = False
    joint().predict(dense)


def test_shapes_must_fit():
    with pytest.raises(ValueError, match="3 columns for 4 classes"):
        Model(np.zeros((2, 3)), [1, 2, 3, 4])
    with pytest.raises(ValueError, match="1 columns for 3 classes"):
        Model(np.zeros((2, 1)), [1, 2, 3])


@pytest.mark.parametrize("weights", [None, np.arange(30) % 3])
@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_the_readers_arrays_need_no_scipy(weights, bias):
    """arrays.CSR, what the commands pass on, is a CSR matrix like any other."""
    X, y = sparse.csr_array(data()), np.arange(30) % 4
    own = CSR(X.data, X.indices, X.indptr, 3)
    ours = ml.train(own, y, sample_weight=weights, bias=bias)
    theirs = ml.train(X, y, sample_weight=weights, bias=bias)
    assert ours.weights.tobytes() == theirs.weights.tobytes()
    assert ours.decision_function(own).tobytes() == theirs.decision_function(X).tobytes()
    assert own.shape == X.shape


def test_two_names_of_the_cost():
    with pytest.raises(ValueError, match="C and lambda are two names"):
        ml.train(data(), np.arange(30) % 2, C=1.0, lambda_=3.0)


def test_the_first_method_is_the_default():
    assert ml.train(data(), np.arange(30) % 2).solver == "mcodm"


@pytest.mark.parametrize("options", [{}, {"bias": 2.0}, {"bias": 0.0}, {"scale": "range", "bias": 1.0},
                                     {"scale": "unit"}, {"kernel": "rbf"}, {"kernel": "rbf", "bias": 1.0}], ids=str)
@pytest.mark.parametrize("known, found", [([7, 2, 3], [2, 3]), ([1, 2, 3, 4], [2, 3, 4])])
def test_classes_without_rows_never_win(options, known, found, tmp_path):
    X, y = data(60), np.resize(found, 60)
    for solver in ("mcodm", "l1svc"):
        model, without = (ml.train(X, y, solver=solver, **given, **options) for given in ({"classes": known}, {}))
        assert model.classes.tolist() == sorted(known)
        ml.save_model(model, tmp_path / "model")
        for other in (model, ml.load_model(tmp_path / "model")):
            for rows in (X, 1e6 * X, -X, 0 * X):
                scores = other.decision_function(rows)
                assert (other.predict(rows) == without.predict(rows)).all()
                there = np.isin(other.classes, without.classes)
                assert (scores[:, ~there].max(axis=1) < scores[:, there].max(axis=1)).all()
    again = ml.train(X, y, classes=known, start=ml.train(X, y, **options), **options)
    assert again.info.n_iter == 0 and again.classes.tolist() == sorted(known)


@pytest.mark.parametrize("classes, words", [([1, 2], "label 0 of y is not among them"),
                                            (["0", "1"], "label 0 of y is not among them")])
def test_classes_are_those_of_y_at_least(classes, words):
    with pytest.raises(ValueError, match=words):
        ml.train(np.eye(2), [0, 1], classes=classes)
    known = np.array(["b", "a", "c"], dtype=object)
    assert ml.train(np.eye(2), ["a", "b"], classes=known).classes.tolist() == ["a", "b", "c"]


def test_features_beyond_the_machine():
    """2000 classes: 32 TiB of weights, refused before they are asked for."""
    columns = np.full(2000, 2**31 - 2)
    wide = sparse.csr_array((np.ones(2000), columns, np.arange(2001)), shape=(2000, 2**31 - 1))
    with pytest.raises(MemoryError, match=r"2147483647 features need \d+\.\d GiB"):
        ml.train(wide, np.arange(2000))


def test_features_beyond_int32():
    wide = sparse.csr_array((np.ones(2), np.array([0, 2**31]), np.array([0, 1, 2])), shape=(2, 2**31 + 1))
    with pytest.raises(ValueError, match=r"2147483649 features: at most 2147483647"):
        ml.train(wide, [0, 1])


def test_public_names():
    assert set(ml.__all__) <= set(dir(ml))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ml.nonsense


@pytest.mark.parametrize("wrong", [2**32 + 1, -(2**32) + 1, 3])
def test_wide_indices_are_not_folded(wrong):
    """int64 index 2^32 + 1 would be 1 as an int32."""
    X = sparse.csr_array(np.eye(3))
    X.indices = X.indices.astype(np.int64)
    X.indices[1] = wrong
    X.has_canonical_format = True
    with pytest.raises(ValueError, match="feature numbers"):
        ml.train(X, [0, 1, 1])


def test_weights_must_be_numbers():
    with pytest.raises(ValueError, match="sample_weight"):
        ml.train(np.eye(3), [0, 1, 1], sample_weight=["a", "b", "c"])


def test_a_list_of_words_and_numbers_is_refused():
    with pytest.raises(ValueError, match="all numbers or all strings"):
        ml.train(np.eye(3), ["a", 1, "a"])


def test_masks_are_not_dropped():
    masked = np.ma.masked_array(np.eye(3), mask=np.eye(3) > 0)
    with pytest.raises(ValueError, match="masked"):
        ml.train(masked, [0, 1, 1])


WRONG = [[], 3, "x", None, object(), b"x", {"x": "x"}, np.zeros((2, 2, 2))]
METHOD_PARAMETERS = ("C", "lambda_", "mu", "theta", "outer", "max_outer", "restarts", "kernel", "tol", "bias",
                     "algorithm", "seed", "threads", "max_iter", "time_limit", "gamma", "degree", "cache", "coef0")


def public_calls(folder):
    """(function, its arguments that go together) of all that users call."""
    X, y, path = data(), np.arange(30) % 3, folder / "m"
    model = ml.train(X, y, probability=True)
    ml.save_model(model, path)
    ml.dump_libsvm(X, y, folder / "d")
    fit = {"X": X, "y": y, "class_weight": None, "sample_weight": None}
    method = dict.fromkeys(METHOD_PARAMETERS)
    folds = {"folds": 2, "seed": 0, "threads": None, "kernel": None, "C": 1.0}
    rows = {"X": X, "threads": None}
    yield ml.train, {**fit, **method, "start": None, "callback": None, "on_interrupt": "raise", "checkpoint": None,
                     "checkpoint_seconds": 60, "resume_from": None, "probability": False, "scale": None}
    yield ml.train, {"X": X, "y": y, "solver": "odm"}
    yield functools.partial(ml.train, X, y, solver="odm"), {"multiclass": "ovr"}
    yield ml.cross_validate, {**fit, **folds, "solver": "mcodm", "metric": "accuracy"}
    yield lambda **given: list(ml.out_of_fold(**given)[1]), {**fit, **folds, "solver": "mcodm"}
    yield ml.search, {**fit, **folds, "C": None, "metric": "auc", "grid": {"C": [1]}, "refit": False, "log": None,
                      "resume": None, "progress": None}
    yield ml.margin_report, {"model": model, "X": X, "y": y, "sample_weight": None, "feature_names": None, "n_top": 1,
                             "n_lowest": 1, "threads": None}
    for call in (model.decision_function, model.decide, model.predict, model.predict_proba):
        yield call, rows
    yield model.margins, {**rows, "y": y}
    yield ml.save_model, {"model": model, "path": path, "threads": None}
    yield ml.load_model, {"path": path}
    yield ml.load_libsvm, {"source": folder / "d", "dtype": "float64", "n_features": None, "zero_based": False,
                           "text_labels": False, "threads": None}
    yield ml.dump_libsvm, {"X": X, "y": y, "target": folder / "e", "zero_based": False, "comment": None}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__ + str(np.shape(wrong)))
def test_arguments_of_the_wrong_kind_are_named(wrong, tmp_path, monkeypatch):
    """Taken, or refused by a ValueError or TypeError that says which argument it is."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, given in public_calls(tmp_path):
            call(**given)
            for name in given:
                try:
                    call(**{**given, name: wrong})
                except (ValueError, TypeError) as error:
                    # What is wrong with a file "x", which is there once it was written, is told of the file.
                    assert name.rstrip("_") in str(error) or str(error).startswith("x:"), (call, name, error)
                except FileNotFoundError as error:
                    assert error.filename == "x", (call, name)


@pytest.mark.parametrize("given, kind, words", [
    ({"B": 1}, TypeError, r"no parameter 'B' \(did you mean bias\?\): it takes"),
    ({"c": 1}, TypeError, r"\(did you mean C\?\)"), ({"e": 1}, TypeError, r"\(did you mean tol\?\)"),
    ({"gama": 1}, TypeError, r"\(did you mean gamma\?\)"), ({"solvr": "cs"}, TypeError, r"\(did you mean solver\?\)"),
    ({"callback": 3}, TypeError, r"callback = 3 is not allowed: give a function"),
    ({"class_weight": "uniform"}, ValueError, r"class_weight = 'uniform' .* or .balanced"),
    ({"class_weight": [1, 2]}, TypeError, r"class_weight = \[1, 2\] "),
    ({"class_weight": {0: "a"}}, ValueError, r"class_weight\[0\] = 'a'"),
    ({"class_weight": {0: True}}, ValueError, r"class_weight\[0\] = True"),
])
def test_train_refuses(given, kind, words):
    with pytest.raises(kind, match=words):
        ml.train(data(), np.arange(30) % 2, **given)


@pytest.mark.parametrize("grid", [3, [1], object()])
def test_a_grid_is_text_or_a_dict(grid):
    with pytest.raises(TypeError, match=r"grid = .*give a dict"):
        ml.search(data(), np.arange(30) % 2, grid=grid)


def test_files_are_no_numbers(tmp_path):
    """3 may be a descriptor of the process's own."""
    for call in (lambda: ml.save_model(joint(), 3), lambda: ml.load_model(0), lambda: ml.load_libsvm(0),
                 lambda: ml.dump_libsvm(data(), np.ones(30), 1)):
        with pytest.raises(TypeError, match="path"):
            call()


def test_balanced_class_weights():
    """Rows of a class count by their weights, as in scikit-learn's LinearSVC: weights are repeated rows."""
    X, y = data(), np.array([0] * 20 + [1] * 10)
    weights = 1.0 + np.arange(30) % 3
    for sample_weight in (None, weights):
        sizes = np.bincount(y, sample_weight)
        factors = dict(enumerate((sizes.sum() / (2 * sizes)).tolist()))
        found, expected = (ml.train(X, y, solver="l1svc", class_weight=given, sample_weight=sample_weight)
                           for given in ("balanced", factors))
        assert found.weights.tobytes() == expected.weights.tobytes()
    repeated = np.repeat(np.arange(30), weights.astype(int))
    again = ml.train(X[repeated], y[repeated], solver="l1svc", class_weight="balanced")
    assert again.weights.tobytes() == found.weights.tobytes()
    # Each fold counts its own training rows.
    assert ml.cross_validate(X, y, solver="l1svc", folds=3, class_weight="balanced").score > 0.3
    found = ml.search(X, y, solver="l1svc", grid="C=1", folds=3, class_weight="balanced").model
    assert found.weights.tobytes() == ml.train(X, y, solver="l1svc", class_weight="balanced").weights.tobytes()


def test_weights_of_many_classes_are_looked_up():
    compared = 0

    class Label(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return int(self) == other

    factors = class_factors({Label(c): c + 1.0 for c in range(500)}, np.arange(500), np.ones(500))
    assert factors.tolist() == [c + 1.0 for c in range(500)] and compared < 10 * 500


def test_a_label_of_class_weight_is_compared_with_labels():
    with pytest.warns(UserWarning, match=r"class label \(1, 2\) specified"):
        found = ml.train(data(), np.arange(30) % 2 + 1, class_weight={(1, 2): 9.0})
    assert found.weights.tobytes() == ml.train(data(), np.arange(30) % 2 + 1).weights.tobytes()


# ---- kernels


def kernel_value(name, X, Z, gamma=0.5, degree=2, coef0=1.5):
    """The kernels' formulas."""
    products = X @ Z.T
    return {
        "linear": products,
        "poly": (gamma * products + coef0) ** degree,
        "rbf": np.exp(-gamma * ((X[:, None] - Z[None]) ** 2).sum(axis=2)),
        "sigmoid": np.tanh(gamma * products + coef0),
    }[name]


PARAMETERS = {"linear": {}, "poly": {"gamma": 0.5, "degree": 2, "coef0": 1.5}, "rbf": {"gamma": 0.5},
              "sigmoid": {"gamma": 0.5, "coef0": 1.5}}
SOLVERS = ["mcodm", "cs", "l1svc", "ldm"]


def two_classes(m=60, seed=3):
    X = data(m)
    noise = np.random.default_rng(seed).standard_normal(m)
    return X, np.where(X[:, 0] + X[:, 1] ** 2 + noise > 0.7, 5, -2)


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
@pytest.mark.parametrize("bias", [-1.0, 2.0])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", PARAMETERS)
def test_scores_over_support_vectors(name, solver, bias, kind):
    X, y = two_classes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ml.ConvergenceWarning)  # sigmoid is not positive semidefinite here
        model = ml.train(kind(X), y, solver=solver, kernel=name, bias=bias, max_iter=20, **PARAMETERS[name])
    support = model.support if isinstance(model.support, np.ndarray) else model.support.toarray()
    constant = bias**2 if bias >= 0 else 0
    test = data(40)[10:]
    expected = (kernel_value(name, test, support) + constant) @ model.dual_coef
    scores = model.decision_function(kind(test))
    assert np.allclose(scores.reshape(30, -1), expected, rtol=1e-9, atol=1e-9)
    assert np.allclose(model.intercept, constant * model.dual_coef.sum(axis=0))
    assert model.n_support == len(model.dual_coef) == model.support_counts.sum() == len(support)
    assert (model.dual_coef != 0).any(axis=1).all()
    assert model.dual_coef.shape[1] == (2 if model.joint else 1)
    assert model.n_features == 3
    assert (model.predict(kind(test)) == model.labels_of(scores)).all()
    # Grouped by class, classes[1] first: each is a row of its class.
    labels = np.repeat([5, -2], model.support_counts[::-1])
    for row, label in zip(support, labels, strict=True):
        assert label in y[(row == X).all(axis=1)]


@pytest.mark.parametrize("bias", [-1.0, 2.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_linear_and_precomputed_kernels_are_the_linear_method(solver, bias):
    X, y = two_classes()
    weights = np.arange(60) % 3  # rows of weight 0 among them
    options = {"solver": solver, "bias": bias, "sample_weight": weights, "tol": 1e-13, "algorithm": "cd"}
    plain = ml.train(X, y, **options)
    kernel = ml.train(X, y, kernel="linear", **options)
    given = ml.train(X @ X.T, y, kernel="precomputed", **options)
    function = ml.train(X, y, kernel=lambda X, Z: X @ Z.T, **options)
    test = data(90, 3)
    scores = plain.decision_function(test)
    assert np.allclose(kernel.decision_function(test), scores, rtol=1e-6, atol=1e-6)
    assert np.allclose(function.decision_function(test), scores, rtol=1e-6, atol=1e-6)
    assert np.allclose(given.decision_function(test @ X.T), scores, rtol=1e-6, atol=1e-6)
    assert (weights[given.support] > 0).all()
    assert kernel.info.objective == pytest.approx(plain.info.objective, rel=1e-8)


@pytest.mark.parametrize("kind", [np.array, np.ndarray.tolist, sparse.csr_array, sparse.coo_array, "CSR"], ids=str)
def test_precomputed_kernels_in_any_storage(tmp_path, kind):
    """Support vectors keep the numbers of the rows, those of weight 0 counted, in a file too."""
    X, y = two_classes()
    K = X @ X.T
    weights = np.arange(60) % 3
    csr = sparse.csr_array(K)
    given = CSR(csr.data, csr.indices, csr.indptr, 60) if kind == "CSR" else kind(K)
    model = ml.train(given, y, solver="l1svc", kernel="precomputed", sample_weight=weights)
    plain = ml.train(K, y, solver="l1svc", kernel="precomputed", sample_weight=weights)
    assert model.n_features == 60
    assert (model.support == plain.support).all() and (weights[model.support] > 0).all()
    assert np.allclose(model.decision_function(given), plain.decision_function(K))
    ml.save_model(model, tmp_path / "m")
    assert ml.load_model(tmp_path / "m").predict(given).tolist() == model.predict(given).tolist()


def test_default_of_gamma_and_what_params_hold():
    X, y = two_classes()
    model = ml.train(X, y, solver="l1svc", kernel="rbf", cache=10)
    assert model.params == {"C": 1.0, "kernel": "rbf", "gamma": 1 / 3, "free_bias": False, "tol": 1e-3,
                            "algorithm": "auto", "seed": 0}
    assert (model.kernel.kind, model.kernel.gamma) == ("rbf", 1 / 3)
    assert ml.train(X, y, solver="l1svc", kernel=2).params["kernel"] == "rbf"
    assert set(ml.train(X, y, solver="l1svc").params) == {"C", "free_bias", "tol", "algorithm", "seed"}


def test_features_above_those_of_training_are_part_of_a_distance():
    X, y = two_classes()
    model = ml.train(X, y, kernel="rbf", gamma=1.0)
    wide = np.hstack([X, np.full((60, 2), 50.0)])
    assert np.allclose(model.decide(wide), model.intercept)
    narrow = X.copy()
    narrow[:, 1:] = 0
    assert np.allclose(model.decide(X[:, :1]), model.decision_function(narrow))
    for given in (wide, X[:, :1]):
        with pytest.raises(ValueError, match=rf"X has {given.shape[1]} features, the model 3"):
            model.predict(given)


def test_a_kernel_model_has_no_weights_of_features():
    X, y = two_classes()
    model = ml.train(X, y, kernel="linear")
    with pytest.raises(AttributeError, match="no weights of features"):
        _ = model.coef
    assert not hasattr(model, "coef")
    with pytest.raises(ValueError, match="3 support vectors"):
        KernelModel(model.kernel, X[:3], np.ones((2, 1)), [0, 1], support_counts=[1, 1], intercept=[0], n_features=3)


def product(X, Z):
    return X @ Z.T


@pytest.mark.parametrize("kernel", ["rbf", "precomputed", product], ids=["rbf", "precomputed", "callable"])
def test_kernel_models_can_be_copied_and_gone_on_from(kernel):
    X, y = two_classes()
    X = X @ X.T if kernel == "precomputed" else X
    model = ml.train(X, y, kernel=kernel, tol=1e-4)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert other.decision_function(X).tobytes() == model.decision_function(X).tobytes()
        assert other.params == model.params
        with pytest.raises(ValueError, match="no dual variables"):
            ml.train(X, y, kernel=kernel, start=other)
    again = ml.train(X, y, kernel=kernel, tol=1e-4, start=model)
    assert again.info.converged and again.info.n_iter == 0


@pytest.mark.parametrize("how", ["ovr", "ovo", "ecoc"])
@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_kernels_of_several_binary_problems(how, bias):
    """The linear kernel is the linear method, and a fit can be gone on from."""
    X, y = data(80), np.random.default_rng(2).integers(0, 4, 80)
    options = {"solver": "l2svc", "multiclass": how, "bias": bias, "tol": 1e-14, "algorithm": "cd"}
    plain = ml.train(X, y, **options)
    model = ml.train(X, y, kernel="linear", **options)
    assert np.allclose(model.decision_function(X), plain.decision_function(X), rtol=1e-6, atol=1e-6)
    assert (model.predict(X) == plain.predict(X)).all()
    assert model.params["multiclass"] == how
    again = ml.train(X, y, kernel="linear", start=model, **options)
    assert again.info.n_iter == 0
    with pytest.raises(ValueError, match=r"^start: a model with multiclass"):
        ml.train(X, y, kernel="linear", start=model, **{**options, "multiclass": "ovr" if how == "ovo" else "ovo"})


@pytest.mark.parametrize("options, words", [
    ({"kernel": "rbf", "gamma": 0.7}, r"^start: a model with kernel = \('rbf', 0.5,"),
    ({"kernel": "linear"}, "^start: a model with kernel"),
    ({}, "^start: a model with features|^start: a model with kernel"),
    ({"kernel": "rbf", "gamma": 0.5, "bias": 1.0}, "^start: a model with bias feature = False, this fit has True"),
    ({"kernel": "rbf", "gamma": 0.5, "solver": "cs"}, "^start: a model with method = mcodm, this fit has cs"),
])
def test_a_start_has_the_same_kernel(options, words):
    X, y = two_classes()
    model = ml.train(X, y, kernel="rbf", gamma=0.5)
    with pytest.raises(ValueError, match=words):
        ml.train(X, y, start=model, **options)


@pytest.mark.parametrize("X, options, words", [
    (np.eye(4), {"kernel": "rbf", "degree": 2}, "degree = 2 is of no use with kernel = rbf"),
    (np.eye(4), {"gamma": 2}, "gamma = 2.0 is of no use without a kernel"),
    (np.eye(4), {"kernel": "rfb"}, "kernel = 'rfb' is not allowed"),
    (np.eye(4), {"kernel": "rbf", "gamma": 0}, "gamma = 0 is not allowed"),
    (np.ones((4, 3)), {"kernel": "precomputed"}, "4 rows and 3 columns: .*square"),
    (np.zeros((4, 0)), {"kernel": "rbf", "bias": 1.0}, "0 features: a kernel needs some"),
    (np.triu(np.ones((4, 4))), {"kernel": "precomputed"}, "not symmetric"),
    (np.eye(4), {"kernel": lambda X, Z: np.ones(3)}, "kernel returned float64 of shape"),
    (np.eye(4) * np.nan, {"kernel": "rbf"}, "is nan"),
])
def test_kernels_refuse(X, options, words):
    with pytest.raises(ValueError, match=words):
        ml.train(X, [0, 1, 0, 1], **options)


def test_an_indefinite_kernel_is_not_called_a_defect():
    X, y = two_classes()
    with pytest.warns(ml.ConvergenceWarning, match=r"l2svc did not converge \(failed\).* not positive semi"):
        ml.train(X, y, solver="l2svc", kernel="sigmoid", gamma=0.5, coef0=1.5, bias=2.0, max_iter=300)


def test_rows_that_no_gram_matrix_can_have():
    many = sparse.csr_array((2**31 - 1, 1))
    with pytest.raises(MemoryError, match="2147483647 rows"):
        require_memory(10**3, many.shape[0], "rows")


# ---- several binary problems


def coded():
    """A column for each pair of four classes, and one that tells two classes from the others."""
    codes = np.array([[1, 1, 1, 0, 0, 0, 1], [-1, 0, 0, 1, 1, 0, 1], [0, -1, 0, -1, 0, 1, -1],
                      [0, 0, -1, 0, -1, -1, -1]])
    return Model(np.random.default_rng(5).standard_normal((3, 7)), np.array([2, 3, 5, 7]), codes=codes)


def votes_of(model, scores):
    """Counted one by one."""
    votes = np.zeros((len(scores), len(model.classes)))
    for i, row in enumerate(scores):
        for place, code in enumerate(model.codes):
            votes[i, place] = sum(c == (1 if s > 0 else -1) for c, s in zip(code, row, strict=True))
    return votes


def test_codes_are_decoded_by_votes():
    model, X = coded(), data()
    X[0] = 0  # scores of 0 are votes for the negative classes
    scores = model.decision_function(X)
    assert scores.shape == (30, 7) and np.allclose(scores, X @ model.weights)
    votes = votes_of(model, scores)
    assert not model.joint
    assert (model.predict(X) == model.classes[votes.argmax(axis=1)]).all()
    assert (model.places_of(scores) == votes.argmax(axis=1)).all()
    places = np.arange(30) % 4
    own = votes[np.arange(30), places].copy()
    votes[np.arange(30), places] = -1
    assert (model.margins(X, model.classes[places]) == own - votes.max(axis=1)).all()
    back = pickle.loads(pickle.dumps(model))
    assert (back.predict(X) == model.predict(X)).all()


def test_one_column_with_codes():
    model = Model(np.array([[1.0]]), ["a", "b", "c"], codes=[[1], [-1], [1]])
    scores = model.decision_function([[2.0], [-1.0], [0.0]])
    assert scores.shape == (3,)
    assert model.labels_of(scores).tolist() == ["a", "b", "b"]
    assert model.margins([[2.0], [-1.0]], ["a", "a"]).tolist() == [0.0, -1.0]


@pytest.mark.parametrize("codes", [[[1], [-1]], [[1, 1], [-1, 1], [0, 1]], [[1], [-1], [2]]])
def test_codes_must_fit(codes):
    with pytest.raises(ValueError, match=r"codes must be -1, 0 or 1, in the shape \(3, 1\)"):
        Model(np.ones((2, 1)), [1, 2, 3], codes=codes)


def test_results_tell_their_story_in_a_few_lines(tmp_path):
    X, y = data(), np.arange(30) % 3
    model = ml.train(X, y, solver="mcodm", C=4, bias=1.0, probability=True, scale="unit")
    ml.save_model(model, tmp_path / "m")
    loaded, kernel = ml.load_model(tmp_path / "m"), ml.train(X, y, solver="l1svc", kernel="rbf", gamma=0.5)
    search = ml.search(X, y, solver="cs", grid={"C": [1, 2]})
    for told in (model, loaded, kernel, model.info, ml.cross_validate(X, y, solver="cs"), search,
                 number := ml.train(X, X[:, 0], solver="l1svr"), ml.margin_report(model, X, y),
                 ml.residual_report(number, X, X[:, 0])):
        lines = repr(told).splitlines()
        assert 4 <= len(lines) <= 5 and max(map(len, lines)) < 160 and "nan" not in repr(told)
        assert told._repr_html_().count("<tr>") == len(lines) - 1
    assert repr(model).splitlines()[0] == f"Model of mcodm: 3 classes (0, 1, 2) from {counted(X.shape[1], 'feature')}"
    for words in ("C = 4, mu = 0.8", "converged: certificate", "3 columns of weights", "bias feature 1",
                  "rows scaled by unit", "probabilities by temperature"):
        assert words in repr(model)
    assert f"{kernel.n_support} support vectors" in repr(kernel) and "gamma = 0.5" in repr(kernel)
    assert "2 points" in repr(search) and repr(search).startswith("Search: best C = ")
    words = ml.train(X, np.array(["<a>", "b&", "c"])[y])
    assert "&lt;a&gt;, b&amp;" in words._repr_html_()
