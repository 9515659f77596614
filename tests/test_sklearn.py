"""The estimators: scikit-learn's own checks and tools, and the same models as `train` and the commands."""

import functools
import inspect
import io
import pickle
import subprocess
import sys
import threading
import warnings
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import params as P
from marginlinear import registry


def python(code, *options):
    return subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True)


def test_the_package_does_not_import_sklearn():
    code = "import sys, marginlinear.api, marginlinear.cli.train; print('sklearn' in sys.modules)"
    assert python(code).stdout == "False\n"


def test_without_sklearn_the_extra_is_named():
    run = python("import sys; sys.modules['sklearn'] = None; import marginlinear.sklearn")
    assert run.returncode == 1 and "pip install 'marginlinear[sklearn]'" in run.stderr


sklearn = pytest.importorskip("sklearn", reason="scikit-learn is missing: pip install 'marginlinear[sklearn]'")

import joblib  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.datasets import load_breast_cancer, load_svmlight_file  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from marginlinear import sklearn as ours  # noqa: E402

# Those of the same parameters around their own; tests/test_estimators.py has the others.
ESTIMATORS = [estimator for name in ours.__all__ if name.endswith("Classifier") and {"fit_intercept", "class_weight"}
              <= inspect.signature(estimator := getattr(ours, name)).parameters.keys()]
BINARY = [ours.LDMClassifier, ours.ODMClassifier, ours.MSVMAvClassifier, ours.SVMClassifier]
# Its cap is its end, and no failure.
pytestmark = pytest.mark.filterwarnings("ignore:msvmav did not converge")
each = pytest.mark.parametrize("Estimator", ESTIMATORS, ids=lambda cls: cls.__name__)
each_with_kernels = pytest.mark.parametrize(
    "Estimator", [cls for cls in ESTIMATORS if registry.get(cls.method_name).kernels], ids=lambda cls: cls.__name__)


def problem(k=3, m=40, d=4, seed=0):
    """(X, y) with values that float32 holds."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d)).round(2)
    X[rng.random((m, d)) < 0.2] = 0
    X = X.astype(np.float32).astype(np.float64)
    y = (X @ rng.standard_normal((d, k)) + rng.standard_normal((m, k))).argmax(axis=1)
    y[:k] = np.arange(k)
    return X, y


@parametrize_with_checks([*(Estimator() for Estimator in ESTIMATORS), ours.MCODMClassifier(probability=True),
                          ours.LogisticClassifier(penalty="l1"), ours.SVMRegressor()])
@pytest.mark.filterwarnings("ignore:(ldm|topk) did not converge")
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@each
def test_parameters_are_those_of_the_registry(Estimator):
    method = registry.get(Estimator.method_name)
    declared = {p.name: p for p in (*method.takes, *method.run, P.PROBABILITY)}
    signature = inspect.signature(Estimator).parameters
    renamed = {"bias", "seed", "threads"}
    routes = {"algorithm"} if len(method.routes) == 1 else set()
    other = {*ours.base.OWN_WORDS, *Estimator.own_words} - {"gamma"}
    assert set(signature) - other == set(declared) - renamed - routes
    assert signature["tol"].default == min(1e-4, declared["tol"].default)
    for name in set(signature) - other - {"gamma", "tol"}:
        assert signature[name].default == declared[name].default, name
    assert all(p.kind is p.KEYWORD_ONLY for p in signature.values())
    text = Estimator.__doc__
    for name, parameter in signature.items():
        default = parameter.default
        quoted = f'"{default}"' if isinstance(default, str) else default
        line = next(line for line in text.splitlines() if line.startswith(f"{name} : "))
        assert line.endswith(f"default={quoted}")
        if name in declared and name not in ours.base.OWN_WORDS and declared[name].domain:
            assert f"in {declared[name].domain}, " in line
    for word in ("Parameters\n----------", "Attributes\n----------", "References\n----------", "classes_ :"):
        assert word in text


@pytest.mark.parametrize("Estimator", sorted({*ESTIMATORS} - {ours.MSVMAvClassifier}, key=lambda cls: cls.__name__))
def test_coefficients_are_near_the_optimum_by_default(Estimator):
    """Where a tolerance of 1e-3 leaves a tenth of the largest, and the wrong sign of the least."""
    X, y = (part[:300] for part in load_breast_cancer(return_X_y=True))
    X = StandardScaler().fit_transform(X[:, :5])
    found, optimum = (Estimator(**given).fit(X, y).coef_ for given in ({}, {"tol": 1e-9}))
    assert abs(found - optimum).max() < 0.06 * abs(optimum).max()


def test_the_two_losses_take_the_same_parameters():
    assert registry.get("l1svc").takes == registry.get("l2svc").takes
    with pytest.raises(ValueError, match=r"^loss = 'log' is not allowed: give hinge \| squared_hinge"):
        ours.SVMClassifier(loss="log").fit(*problem(2))


def trained_by_command(folder, X, y, *options):
    """The model of margin-train on rows and labels, written to a file and read again."""
    from marginlinear.cli.train import main

    ml.dump_libsvm(X, y, folder / "data")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main([*options, str(folder / "data"), str(folder / "model")]) == 0
    return ml.load_model(folder / "model")


@each
@pytest.mark.parametrize("k", [2, 3])
def test_one_model_from_estimator_train_and_command(Estimator, k, tmp_path):
    X, y = problem(k)
    X, name = sparse.csr_array(X), Estimator.method_name
    estimator = Estimator().fit(X, y)
    command = trained_by_command(tmp_path, X, y, "-s", name, "-B", "1", "-e", str(estimator.tol))
    for other in (ml.train(X, y, solver=name, bias=1, tol=estimator.tol), command):
        assert other.weights.tobytes() == estimator.model_.weights.tobytes()
        assert other.params == estimator.model_.params
        assert (other.classes == estimator.classes_).all()
    assert (command.predict(X) == estimator.predict(X)).all()
    bare = Estimator(fit_intercept=False).fit(X, y)
    assert bare.model_.weights.tobytes() == ml.train(X, y, solver=name, bias=-1, tol=bare.tol).weights.tobytes()
    assert (bare.intercept_ == 0).all()


@each_with_kernels
def test_one_kernel_model_from_estimator_train_and_command(Estimator, tmp_path):
    X, y = problem(2)
    X, name = sparse.csr_array(X), Estimator.method_name
    estimator = Estimator(kernel="rbf", gamma=0.5, tol=1e-3).fit(X, y)
    for other in (ml.train(X, y, solver=name, bias=1, kernel="rbf", gamma=0.5, tol=1e-3),
                  trained_by_command(tmp_path, X, y, "-s", name, "-B", "1", "-t", "rbf", "-g", "0.5", "-e", "1e-3")):
        assert np.array_equal(other.decision_function(X), estimator.model_.decision_function(X))


@each
@pytest.mark.parametrize("k", [2, 3])
def test_attributes_and_shapes(Estimator, k):
    X, y = problem(k)
    names = np.array(["ape", "bee", "cat"])
    estimator = Estimator(intercept_scaling=2.0, verbose=0).fit(X, names[y])
    columns = 1 if k == 2 else k
    assert estimator.classes_.tolist() == names[:k].tolist()
    assert estimator.coef_.shape == (columns, 4) and estimator.intercept_.shape == (columns,)
    scores = estimator.decision_function(X)
    assert scores.shape == ((len(y),) if k == 2 else (len(y), k))
    assert np.allclose(scores.reshape(len(y), -1), X @ estimator.coef_.T + estimator.intercept_, atol=1e-9)
    places = (scores > 0).astype(int) if k == 2 else scores.argmax(axis=1)
    assert (estimator.classes_[places] == estimator.predict(X)).all()
    info = estimator.info_
    assert estimator.n_iter_ == info.n_iter and estimator.converged_ == info.converged
    assert estimator.objective_ == info.objective and estimator.dual_gap_ == info.certificate
    assert estimator.n_features_in_ == 4 and not hasattr(estimator, "feature_names_in_")
    assert not hasattr(estimator, "support_")
    assert estimator.score(X, names[y]) == (estimator.predict(X) == names[y]).mean()


@pytest.mark.parametrize("Estimator", BINARY, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("how", P.MULTICLASS.choices)
def test_multiclass(Estimator, how):
    X, y = problem(4, m=80)
    estimator = Estimator(multiclass=how).fit(X, y)
    scores = estimator.decision_function(X)
    assert scores.shape == (80, 4)
    assert (scores.argmax(axis=1) == estimator.predict(X)).all()
    assert len(estimator.coef_) == estimator.model_.weights.shape[1]
    assert len(np.unique(scores)) > 300


@pytest.mark.parametrize("how", ["ovo", "ecoc"])
def test_votes_are_ordered_by_the_scores_behind_them(how):
    """As scikit-learn's own votes, but for a tie, where the first class wins here as in `predict`."""
    from sklearn.utils.multiclass import _ovr_decision_function

    X, y = problem(4, m=300)
    estimator = ours.SVMClassifier(multiclass=how).fit(X, y)
    found, model = estimator.decision_function(X), estimator.model_
    columns, votes = model.decision_function(X), model._ranks(model.decision_function(X))
    first, best = votes.argmax(axis=1), votes.max(axis=1, keepdims=True)
    tied = (votes == best).sum(axis=1) > 1
    assert tied.any() and (found.argmax(axis=1) == first).all()
    sums = columns @ model.codes.T
    expected = votes + sums / (3 * (1 + abs(sums)))
    if how == "ovo":
        assert np.allclose(expected, _ovr_decision_function(columns <= 0, -columns, 4))
    moved = np.argwhere(found != expected)
    assert len(moved) and tied[moved[:, 0]].all() and (moved[:, 1] == first[moved[:, 0]]).all()
    np.testing.assert_allclose(found[moved[:, 0], moved[:, 1]], expected.max(axis=1)[moved[:, 0]], rtol=1e-15)


@each_with_kernels
@pytest.mark.parametrize("k", [2, 3])
def test_kernels(Estimator, k):
    X, y = problem(k)
    weights = np.where(np.arange(len(y)) % 7 == 3, 0.0, 1.0)

    def rbf(A, B):
        return np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    fitted = [Estimator(kernel=kernel, gamma=0.5, tol=1e-6).fit(rows, y, sample_weight=weights)
              for kernel, rows in (("rbf", X), (rbf, X), ("precomputed", rbf(X, X)), ("rbf", sparse.csr_array(X)))]
    first = fitted[0]
    scores = first.decision_function(X)
    for other, rows in zip(fitted[1:], (X, rbf(X, X), sparse.csc_array(X)), strict=True):
        assert np.allclose(other.decision_function(rows), scores, rtol=1e-2, atol=1e-2)
    for estimator in fitted:
        support, duals = estimator.support_, estimator.dual_coef_
        assert duals.shape == (1 if k == 2 else k, len(support))
        assert (np.diff(y[support]) >= 0).all() and weights[support].all()
        assert estimator.n_support_.tolist() == np.bincount(y[support]).tolist()
        found = rbf(X, X[support]) @ duals.T + estimator.intercept_
        rows = rbf(X, X) if estimator.kernel == "precomputed" else X
        assert np.allclose(found.reshape(scores.shape), estimator.decision_function(rows), atol=1e-9)
        assert not hasattr(estimator, "coef_")
    assert (first.support_vectors_ == X[first.support_]).all()
    assert not hasattr(fitted[2], "support_vectors_")
    assert fitted[2].__sklearn_tags__().input_tags.pairwise
    assert hasattr(first.set_params(kernel=None).fit(X, y), "coef_") and not hasattr(first, "support_")


def test_gamma():
    X, y = problem()
    for gamma, value in (("scale", 1 / (4 * X.var())), ("auto", 1 / 4), (0.3, 0.3)):
        for rows in (X, sparse.csr_array(X)):
            model = ours.ODMClassifier(kernel="rbf", gamma=gamma).fit(rows, y).model_
            assert model.kernel.gamma == pytest.approx(value, rel=1e-12)
    # What the kernel does not use is left aside, as by scikit-learn's SVC.
    assert ours.ODMClassifier(kernel="linear", gamma=0.3, degree=2).fit(X, y).model_.kernel.kind == "linear"
    with pytest.raises(ValueError, match=r"^gamma = 'wide' is not allowed"):
        ours.ODMClassifier(kernel="rbf", gamma="wide").fit(X, y)
    assert ours.ODMClassifier(kernel="rbf").fit(np.ones((6, 2)), [0, 1] * 3).model_.kernel.gamma == 1


@each
@pytest.mark.parametrize("make", [np.asarray, np.float32, sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_what_X_may_be(Estimator, make):
    X, y = problem()
    assert np.allclose(Estimator().fit(make(X), y).decision_function(make(X)),
                       Estimator().fit(X, y).decision_function(X), rtol=1e-2, atol=1e-2)


def test_float32_is_not_copied(monkeypatch):
    X, y = problem()
    seen, fit_model = [], ours.base.fit_model
    monkeypatch.setattr(ours.base, "fit_model",
                        lambda X, *rest, **given: seen.append(X) or fit_model(X, *rest, **given))
    for rows in (X.astype(np.float32), sparse.csr_array(X.astype(np.float32)), X, sparse.csr_array(X)):
        ours.ODMClassifier().fit(rows, y)
        assert seen[-1] is rows or np.shares_memory(getattr(seen[-1], "data", seen[-1]), getattr(rows, "data", rows))


def test_svmlight_files_fit_as_they_are(tmp_path):
    X, y = problem()
    ml.dump_libsvm(X, y, tmp_path / "data")
    rows, labels = load_svmlight_file(str(tmp_path / "data"))
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    estimator = ours.MCODMClassifier().fit(rows, labels)
    assert estimator.predict(rows).dtype == labels.dtype
    assert estimator.model_.weights.tobytes() == ml.train(sparse.csr_array(X), y, bias=1, tol=1e-4).weights.tobytes()


@each
def test_weights(Estimator):
    """Lists, Series and arrays; "balanced" counts them."""
    pandas = pytest.importorskip("pandas", reason="pandas is missing: pip install pandas")
    X, y = problem()
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    fits = [Estimator(class_weight="balanced").fit(X, y, sample_weight=kind(weights))
            for kind in (np.asarray, list, pandas.Series)]
    repeated = Estimator(class_weight="balanced").fit(X.repeat(weights.astype(int), axis=0),
                                                      y.repeat(weights.astype(int)))
    for other in (*fits[1:], repeated):
        assert other.coef_.tobytes() == fits[0].coef_.tobytes()
    sizes = np.bincount(y, weights=weights)
    by_hand = Estimator(class_weight=dict(enumerate(sizes.sum() / (3 * sizes)))).fit(X, y, sample_weight=weights)
    assert by_hand.coef_.tobytes() == fits[0].coef_.tobytes()

WAYS = {"linear": {}, "no intercept": {"fit_intercept": False}, "probability": {"probability": True},
        **{how: {"multiclass": how} for how in ("ovo", "ecoc")}, "kernel": {"kernel": "rbf", "gamma": 0.5}}


def ways_of(Estimator, *names):
    """(words for the estimator's parameters, an estimator with them) for the ways that it has."""
    taken = inspect.signature(Estimator).parameters
    return [(name, Estimator(tol=1e-2, **WAYS[name])) for name in names or WAYS if WAYS[name].keys() <= taken.keys()]


@each
@pytest.mark.parametrize("empty", [[0], [1, 2]], ids=["one", "two"])
def test_a_class_of_weight_0_stays_and_never_wins(Estimator, empty, tmp_path):
    X, y = problem(4, m=80)
    kept = ~np.isin(y, empty)
    for way, estimator in ways_of(Estimator):
        estimator.fit(X, y, sample_weight=kept.astype(float))
        scores, labels = estimator.decision_function(X), estimator.predict(X)
        without = clone(estimator).fit(X[kept], y[kept])
        assert estimator.classes_.tolist() == [0, 1, 2, 3] and scores.shape == (80, 4), way
        assert (labels == without.predict(X)).all() and (scores.argmax(axis=1) == labels).all(), way
        # The other classes' scores differ from each other as without it.
        if len(empty) == 1:
            others = np.delete(scores, empty[0], axis=1)
            assert np.allclose(others, without.decision_function(X), atol=1e-9), way
            assert (scores[:, empty[0]] < others.max(axis=1)).all(), way
        else:
            score = without.decision_function(X)
            assert np.allclose(scores[:, 3] - scores[:, 0], score, atol=1e-9) or way in P.MULTICLASS.choices, way
        if way != "kernel":
            assert estimator.coef_.shape[0] == len(estimator.intercept_)
        if way == "probability":
            found = estimator.predict_proba(X)
            assert np.allclose(found.sum(axis=1), 1) and (found.argmax(axis=1) == labels).all()
        ml.save_model(estimator.model_, tmp_path / "model")
        read = ml.load_model(tmp_path / "model")
        assert (read.predict(X) == labels).all() and read.classes.tolist() == [0, 1, 2, 3], way
    with pytest.raises(ValueError, match=r"at least 2 classes, y, its rows of weight 0 left out, has 1 class"):
        Estimator().fit(X, y, sample_weight=(y == 0).astype(float))


@each
@pytest.mark.parametrize("k", [2, 4])
def test_linear_decisions_are_made_of_coef_and_intercept(Estimator, k, tmp_path):
    """Whatever is assigned, in whatever type, or changed in place: scores, labels, probabilities, margins, files."""
    X, y = problem(k, m=80)
    wanted = np.random.default_rng(1).standard_normal((k * (k - 1) // 2 + 9, 4))
    for way, estimator in ways_of(Estimator, "linear", "no intercept", "probability", "ovo", "ecoc"):
        fitted = estimator.fit(X, y)
        assert fitted.model_.info is fitted.info_
        found = fitted.model_.decision_function(X)
        scored = fitted.coef_, fitted.intercept_
        assert np.allclose(X @ scored[0].T + scored[1], (found[:, 1:] - found[:, :1]) if found.shape[1:] == (2,)
                           else found.reshape(80, -1), atol=1e-9)
        for change in ("assigned", "in place", "float32", "sparse", "scalar"):
            estimator = pickle.loads(pickle.dumps(fitted))
            coef, intercept = wanted[:len(fitted.coef_)].astype(np.float32), np.arange(len(fitted.coef_)) - 0.5
            if change == "in place":
                estimator.coef_[:], estimator.intercept_[:] = coef, intercept
            else:
                estimator.coef_ = sparse.csr_array(coef) if change == "sparse" else coef.astype(
                    np.float32 if change == "float32" else np.float64)
                intercept = intercept * 0 + 5 if change == "scalar" else intercept
                estimator.intercept_ = 5 if change == "scalar" else intercept
            columns = X @ coef.astype(np.float64).T + intercept
            codes = fitted.model_.codes
            if k == 2:
                scores, places = columns[:, 0], (columns[:, 0] > 0).astype(int)
            elif codes is None:
                scores, places = columns, columns.argmax(axis=1)
            else:
                votes = (columns[:, None] > 0) * (codes > 0) + (columns[:, None] <= 0) * (codes < 0)
                scores, places = None, votes.sum(axis=2).argmax(axis=1)
            if scores is not None:
                assert np.allclose(estimator.decision_function(X), scores, atol=1e-9), (way, change)
            assert (estimator.predict(X) == places).all(), (way, change)
            if way == "probability":
                assert (estimator.predict_proba(X).argmax(axis=1) == places).all()
            model = pickle.loads(pickle.dumps(estimator)).model_
            ml.save_model(model, tmp_path / "model")
            for other in (model, ml.load_model(tmp_path / "model")):
                assert (other.predict(X) == places).all() and other.info is None, (way, change)
            assert ((model.margins(X, y) > 0) <= (places == y)).all()
        for name, wrong in (("coef_", fitted.coef_[:, :3]), ("intercept_", np.zeros(99)), ("coef_", fitted.coef_[0])):
            broken = pickle.loads(pickle.dumps(fitted))
            setattr(broken, name, wrong)
            with pytest.raises(ValueError, match=r"coef_ has shape .* are needed"):
                broken.predict(X)


def test_a_warm_start_goes_on_from_what_was_trained():
    X, y = problem(3)
    estimator = ours.MCODMClassifier(warm_start=True).fit(X, y)
    weights = estimator.model_.weights.copy()
    estimator.coef_[:] = 0
    assert estimator.fit(X, y).n_iter_ == 0 and (estimator.model_.weights == weights).all()



@each
def test_pandas_and_set_output(Estimator):
    pandas = pytest.importorskip("pandas", reason="pandas is missing: pip install pandas")
    X, y = problem()
    frame = pandas.DataFrame(X, columns=list("abcd"))
    pipeline = make_pipeline(StandardScaler(), Estimator()).set_output(transform="pandas").fit(frame, y)
    assert pipeline[-1].feature_names_in_.tolist() == list("abcd")
    labels = pandas.Series(np.array(["x", "y", "z"])[y])
    estimator = Estimator().fit(frame, labels)
    assert set(estimator.predict(frame)) <= {"x", "y", "z"}
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(frame.rename(columns={"a": "e"}))


@each
def test_selection_calibration_threads_and_copies(Estimator):
    X, y = problem(m=60)
    name = "C" if "C" in inspect.signature(Estimator).parameters else "alpha"
    step, Estimator = Estimator.__name__.lower(), functools.partial(Estimator, tol=1e-2)
    search = GridSearchCV(make_pipeline(StandardScaler(), Estimator()),
                          {f"{step}__{name}": [0.1, 10.0]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.4
    assert cross_val_score(Estimator(), X, y, cv=3).shape == (3,)
    calibrated = CalibratedClassifierCV(Estimator(), cv=3).fit(X, y)
    assert np.allclose(calibrated.predict_proba(X).sum(axis=1), 1)
    estimator = Estimator(n_jobs=2).fit(X, y)
    assert clone(estimator).get_params() == estimator.get_params()
    copy = pickle.loads(pickle.dumps(estimator))
    assert copy.decision_function(X).tobytes() == estimator.decision_function(X).tobytes()
    fits = joblib.Parallel(n_jobs=2, prefer="threads")(joblib.delayed(Estimator().fit)(X, y) for _ in range(3))
    assert {fit.coef_.tobytes() for fit in fits} == {estimator.coef_.tobytes()}


def test_metadata_routing():
    X, y = problem(m=60)
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = ours.MCODMClassifier().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), estimator)
        pipeline.fit(X, y, sample_weight=weights)
        grid = GridSearchCV(estimator, {"C": [1.0, 3.0]}, cv=3).fit(X, y, sample_weight=weights)
    rows = StandardScaler().fit_transform(X)
    alone = ours.MCODMClassifier().fit(rows, y, sample_weight=weights)
    assert pipeline[-1].coef_.tobytes() == alone.coef_.tobytes()
    best = ours.MCODMClassifier(**grid.best_params_).fit(X, y, sample_weight=weights)
    assert grid.best_estimator_.coef_.tobytes() == best.coef_.tobytes()


@each
@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_warm_start(Estimator, kernel):
    if kernel and not registry.get(Estimator.method_name).kernels:
        pytest.skip("no kernels")
    X, y = problem(m=60)
    given = {"kernel": kernel} if kernel else {}
    estimator = Estimator(warm_start=True, **given).fit(X, y)
    if not estimator.converged_:
        return
    cold = Estimator(**given).fit(X, y)
    assert estimator.n_iter_ == cold.n_iter_ > 0
    assert estimator.fit(X, y).n_iter_ == 0
    # Other weights go on; other rows, labels or an own bias start anew, as does a copy from a pickle.
    estimator.fit(X, y, sample_weight=np.full(len(y), 2.0))
    copy = pickle.loads(pickle.dumps(estimator.fit(X, y)))
    for again in (estimator.fit(X + 1, y), estimator.fit(X, np.roll(y, 1)), estimator.fit(X[:-1], y[:-1]),
                  estimator.set_params(fit_intercept=False).fit(X[:-1], y[:-1]), copy.fit(X, y)):
        assert again.n_iter_ > 0
    assert copy.n_iter_ == cold.n_iter_
    assert estimator.set_params(warm_start=False, fit_intercept=True).fit(X, y).n_iter_ == cold.n_iter_


@each
@pytest.mark.parametrize("k", [2, 3])
def test_probabilities(Estimator, k):
    X, y = problem(k)
    names = np.array(["ape", "bee", "cat"])[y]
    bare, estimator = Estimator(tol=1e-2), Estimator(probability=True, tol=1e-2).fit(X, names)
    asked_for = bare._method.probabilities is None
    assert [hasattr(bare, name) for name in ("predict_proba", "predict_log_proba")] == 2 * [not asked_for]
    for unfit in (Estimator(probability=True),
                  *([clone(bare).fit(X, names).set_params(probability=True)] if asked_for else [])):
        for method in (unfit.predict_proba, unfit.predict_log_proba):
            with pytest.raises(sklearn.exceptions.NotFittedError):
                method(X)
    found = estimator.predict_proba(X)
    assert found.shape == (len(y), k) and np.allclose(found.sum(axis=1), 1)
    assert (estimator.classes_[found.argmax(axis=1)] == estimator.predict(X)).all()
    assert np.allclose(np.exp(estimator.predict_log_proba(X)), found)
    assert bare.fit(X, names).model_.weights.tobytes() == estimator.model_.weights.tobytes()
    model = ml.train(X, names, solver=Estimator.method_name, bias=1, tol=1e-2, probability=True)
    assert model.weights.tobytes() == estimator.model_.weights.tobytes()
    np.testing.assert_allclose(model.predict_proba(X), found, rtol=1e-12)


def test_random_state():
    X, y = problem(m=200)
    fit = [ours.CrammerSingerClassifier(random_state=state).fit(X, y).coef_.tobytes()
           for state in (0, 0, np.int64(5), np.random.RandomState(1), np.random.RandomState(1), None, None)]
    assert fit[0] == fit[1] and fit[3] == fit[4]
    assert len({fit[0], fit[2], fit[3], fit[5], fit[6]}) == 5
    seeded = ml.train(X, y, solver="cs", bias=1, seed=5, tol=1e-4)
    assert ours.CrammerSingerClassifier(random_state=5).fit(X, y).model_.weights.tobytes() == seeded.weights.tobytes()


def test_convergence_warning():
    """scikit-learn's class and ours at once, at the line that called fit, in every thread."""
    X, y = problem(m=200)
    estimator = ours.SVMClassifier(C=1e4, max_iter=1)
    for category in (ConvergenceWarning, ml.ConvergenceWarning):
        with pytest.warns(category, match=r"l1svc did not converge \(max_iter\)") as caught:
            estimator.fit(X, y)
        assert [w.filename for w in caught] == [__file__]
    assert not estimator.converged_ and estimator.n_iter_ == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        threads = [threading.Thread(target=estimator.fit, args=(X, y)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_lambda_stands_in_place_of_C():
    X, y = problem()
    by_lambda = ours.MCODMClassifier(lambda_=30.0).fit(X, y)
    assert by_lambda.model_.weights.tobytes() == ml.train(X, y, lambda_=30.0, bias=1, tol=1e-4).weights.tobytes()
    with pytest.raises(ValueError, match="two names of one thing"):
        ours.MCODMClassifier(C=2.0, lambda_=30.0).fit(X, y)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        ours.MCODMClassifier(lambda_=30.0).predict(X)


def test_bad_values():
    X, y = problem()
    for given, words in (({"C": 0}, "C = 0 is not allowed"), ({"mu": 2}, "mu = 2 is not allowed"),
                         ({"intercept_scaling": 0}, "intercept_scaling = 0 is not allowed"),
                         ({"kernel": "cosine"}, "kernel = 'cosine' is not allowed"),
                         ({"class_weight": {0: -1.0}}, r"class_weight\[0\] = -1.0 is not allowed"),
                         ({"class_weight": {7: 1.0}}, "class_weight"), ({"class_weight": "even"}, "class_weight"),
                         ({"random_state": "now"}, "seed"), ({"n_jobs": 0}, "n_jobs")):
        with pytest.raises(ValueError, match=words):
            ours.MCODMClassifier(**given).fit(X, y)
    with pytest.raises(ValueError, match="at least 2 classes"):
        ours.MCODMClassifier().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match=r"sample_weight\[0\] = -1.0 is not allowed"):
        ours.MCODMClassifier().fit(X, y, sample_weight=-np.ones(len(y)))


def test_verbose(capsys):
    ours.ODMClassifier(verbose=True).fit(*problem(2))
    assert "ODMClassifier: " in (out := capsys.readouterr().out) and "certificate" in out
    ours.ODMClassifier().fit(*problem(2))
    assert not capsys.readouterr().out


def test_a_subclass_of_ones_own():
    class Mine(ours.ODMClassifier):
        """Mine."""

        def __init__(self, *, C=3.0, wide=False):
            super().__init__(C=C, theta=0.5 if wide else 0.2)
            self.wide = wide

    X, y = problem()
    for wide, theta in ((False, 0.2), (True, 0.5)):
        mine, plain = clone(Mine(wide=wide)).fit(X, y), ours.ODMClassifier(C=3.0, theta=theta).fit(X, y)
        assert (mine.coef_ == plain.coef_).all()
