"""Classes in the places of scikit-learn's: its signatures, attributes, decisions, and its own tests."""

import importlib.util
import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is missing: pip install 'marginlinear[sklearn]'")

from sklearn import linear_model, svm  # noqa: E402
from sklearn.datasets import load_iris, load_svmlight_file  # noqa: E402
from sklearn.exceptions import ConvergenceWarning, NotFittedError  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import marginlinear as ml  # noqa: E402
from marginlinear import sklearn as ours  # noqa: E402
from marginlinear.data.one_against_one import unpacked  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("LinearSVC", "LinearSVR", "LogisticRegression", "NuSVC", "NuSVR", "OneClassSVM", "SVC", "SVR")
LINEAR = ("LinearSVC", "LinearSVR", "LogisticRegression")
PAIRS = ("NuSVC", "SVC")
each = pytest.mark.parametrize("name", NAMES)
as_in_19 = pytest.mark.skipif(sklearn.__version__.split(".")[:2] != ["1", "9"],
                              reason="what is compared with is scikit-learn 1.9's")
# Of theirs, which do not end within these tolerances.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def theirs(name):
    return getattr(svm, name, None) or getattr(linear_model, name)


def rows_of(name, how="dense"):
    X, y = load_svmlight_file(str(ROOT / "data" / name))
    X = StandardScaler(with_mean=False).fit_transform(X)
    return (X.toarray() if how == "dense" else X), y


def target_of(name, y):
    return y if name in ("LinearSVC", "LogisticRegression", *PAIRS) else np.sin(np.arange(len(y))) + y


def precise(name):
    """Parameters by which both come near to the optimum."""
    return ({"tol": 1e-7, "max_iter": 10_000} if name in LINEAR else {"tol": 1e-6}) | (
        {"nu": 0.3} if name in ("NuSVC", "NuSVR", "OneClassSVM") else {})


def fitted(name, X, y, **given):
    return [module.fit(X, y) for module in (getattr(ours, name)(**given), theirs(name)(**given))]


def parameters_of(cls):
    """Those of the constructor; only ours have types."""
    return [p.replace(annotation=p.empty) for p in inspect.signature(cls).parameters.values()]


@as_in_19
@each
def test_signature_and_methods(name):
    assert parameters_of(getattr(ours, name)) == parameters_of(theirs(name))
    public = {member for member in dir(theirs(name)) if not member.startswith("_")}
    # Callbacks are not there, n_support_ is set by fit, and unused_param left over in a class body.
    assert public - set(dir(getattr(ours, name))) <= {"set_callbacks", "n_support_", "unused_param"}
    assert getattr(ours, name).__doc__.count("Parameters\n----------") == 1


def failing(estimator):
    """What scikit-learn's own class fails too: rows that are repeated or have a weight give the same optimum, but not
    the same bits."""
    if type(estimator).__name__ in LINEAR:
        return {}
    checks = {f"check_sample_weight_equivalence_on_{kind}_data": "another way to the optimum"
              for kind in ("dense", "sparse")}
    if isinstance(estimator, ours.NuSVC):
        checks["check_class_weight_classifiers"] = "nu is infeasible"
    return checks


@parametrize_with_checks([getattr(ours, name)() for name in NAMES], expected_failed_checks=failing)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@each
@pytest.mark.parametrize("data", ["vehicle", "dna"])
@pytest.mark.parametrize("how", ["dense", "sparse"])
def test_the_same_decisions(name, data, how):
    X, y = rows_of(data, how)
    X, y = X[:600], target_of(name, y[:600])
    # Of the two losses of LinearSVR the one whose optimum LIBLINEAR comes to.
    given = {"loss": "squared_epsilon_insensitive", "dual": False} if name == "LinearSVR" else {}
    mine, other = fitted(name, X, y, **precise(name), **given)
    assert mine.converged_
    decide = "decision_function" if hasattr(other, "decision_function") else "predict"
    found, wanted = getattr(mine, decide)(X), getattr(other, decide)(X)
    assert found.shape == wanted.shape
    assert abs(found - wanted).max() <= 0.02 * abs(wanted).max()
    assert abs(found - wanted).mean() <= 2e-3 * abs(wanted).max()
    if decide == "decision_function":
        # Rows on the boundary may be on either side of it.
        clear = abs(wanted).reshape(len(y), -1).min(axis=1) > 1e-3
        assert (mine.predict(X) == other.predict(X))[clear].all()


@each
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("how", ["dense", "sparse"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_attributes(name, k, how, kernel):
    X, y = rows_of("vehicle", how)
    X, y = X[y <= k][:200], y[y <= k][:200]
    given = {} if name in LINEAR else {"kernel": kernel}
    mine, other = fitted(name, X, target_of(name, y), **given)
    for attribute in [a for a in vars(other) if a.endswith("_") and not a.startswith("_")] + (
            [] if name in LINEAR else ["n_support_"] + ["coef_"] * (kernel == "linear")):
        found, wanted = getattr(mine, attribute), getattr(other, attribute)
        assert type(found) is type(wanted), attribute
        if attribute in ("support_", "dual_coef_", "support_vectors_"):
            # How many there are is known to within the tolerance.
            assert found.ndim == wanted.ndim
            assert found.dtype == wanted.dtype
            assert found.shape[-1] == len(mine.support_) or attribute == "support_vectors_"
        elif hasattr(wanted, "shape"):
            assert found.shape == wanted.shape, attribute
            assert found.dtype == wanted.dtype, attribute
    assert mine.converged_ is True
    assert 0 <= mine.dual_gap_ <= 1e-3 * max(1.0, abs(mine.objective_))
    if name not in LINEAR and kernel == "linear":
        scores = np.asarray(X @ mine.coef_.T) if how == "dense" else (X @ mine.coef_.T).toarray()
        decide = mine.predict if "R" in name else mine.set_params(**(
            {"decision_function_shape": "ovo"} if name in PAIRS else {})).decision_function
        assert np.ravel(scores + mine.intercept_) == pytest.approx(np.ravel(decide(X)), abs=1e-8)
        with pytest.raises(AttributeError):
            mine.coef_ = 0
        with pytest.raises(ValueError):
            (mine.coef_ if how == "dense" else mine.coef_.data)[:] = 0
    again = pickle.loads(pickle.dumps(mine))
    assert np.array_equal(again.predict(X), mine.predict(X))


def svc_objective(estimator, X, y, C):
    """The sum of the objectives of all pairs of classes, by kernel="linear"."""
    scores = X @ estimator.coef_.T + estimator.intercept_
    value, column = 0.0, 0
    for i, first in enumerate(estimator.classes_):
        for second in estimator.classes_[i + 1:]:
            which, w = (y == first) | (y == second), estimator.coef_[column]
            signs = np.where(y[which] == first, 1, -1) * (1 if len(estimator.classes_) > 2 else -1)
            value += 0.5 * w @ w + C * np.maximum(0, 1 - signs * scores[which, column]).sum()
            column += 1
    return value


@pytest.mark.parametrize("data", ["vehicle", "dna"])
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_objectives_of_svc(data, C):
    X, y = rows_of(data)
    mine, other = (svc_objective(e, X, y, C) for e in fitted("SVC", X, y, kernel="linear", C=C))
    assert mine <= other * (1 + 1e-5)
    estimator = ours.SVC(kernel="linear", C=C).fit(X, y)
    assert estimator.objective_ == pytest.approx(mine, rel=1e-4)


def logistic_objective(estimator, X, y, C, ratio):
    scores = estimator.decision_function(X)
    scores = scores if scores.ndim == 2 else np.column_stack([np.zeros(len(y)), scores])
    own = scores[np.arange(len(y)), np.searchsorted(estimator.classes_, y)]
    w = estimator.coef_
    return ratio * abs(w).sum() + (1 - ratio) / 2 * (w * w).sum() + C * (
        np.logaddexp.reduce(scores, axis=1) - own).sum()


@as_in_19
@pytest.mark.parametrize("data, k", [("vehicle", 3), ("dna", 2)])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_objectives_of_logistic_regression(data, k, ratio):
    X, y = rows_of(data)
    X, y = X[y <= k], y[y <= k]
    given = {"C": 0.1, "l1_ratio": ratio, "solver": "saga" if ratio else "lbfgs"}
    mine, other = (logistic_objective(e, X, y, 0.1, ratio) for e in fitted("LogisticRegression", X, y, **given))
    assert mine <= other * (1 + 1e-7)
    assert ours.LogisticRegression(**given).fit(X, y).objective_ == pytest.approx(mine, rel=1e-9)


@pytest.mark.parametrize("given", [{}, {"loss": "hinge"}, {"penalty": "l1", "dual": False},
                                   {"intercept_scaling": 5, "class_weight": "balanced"}])
def test_objectives_of_linear_svc(given):
    X, y = rows_of("dna")
    y = np.where(y == 1, 1, -1)
    mine, other = fitted("LinearSVC", X, y, C=0.1, **given)
    scaling = given.get("intercept_scaling", 1)
    cost = 0.1 * np.where(y == 1, 0.5 / np.mean(y == 1), 0.5 / np.mean(y == -1)) if "class_weight" in given else 0.1

    def value(estimator):
        w = np.append(estimator.coef_, estimator.intercept_ / scaling)
        loss = np.maximum(0, 1 - y * estimator.decision_function(X))
        penalty = abs(w).sum() if given.get("penalty") == "l1" else 0.5 * w @ w
        return penalty + (cost * (loss if given.get("loss") == "hinge" else loss**2)).sum()

    assert value(mine) <= value(other) * (1 + 1e-4)
    assert mine.objective_ == pytest.approx(value(mine), rel=1e-9)


@pytest.mark.parametrize("name", ["SVR", "NuSVR", "OneClassSVM"])
def test_callable_precomputed_and_named_kernels(name):
    X, y = rows_of("vehicle")
    X, y = X[:120], target_of(name, y[:120])
    named, given, function = (getattr(ours, name)(kernel=kernel, tol=1e-6).fit(rows, y) for kernel, rows in (
        ("linear", X), ("precomputed", X @ X.T), (lambda A, B: A @ B.T, X)))
    for estimator, rows in ((given, X @ X.T), (function, X)):
        # The decisions of one-class support vectors between their bounds are 0 but for rounding.
        clear = np.abs(named.decision_function(X)) > 1e-6 if name == "OneClassSVM" else np.ones(len(X), bool)
        assert estimator.predict(rows)[clear] == pytest.approx(named.predict(X)[clear], rel=1e-3, abs=1e-3)
        assert estimator.support_vectors_.shape == (0, 0)
        assert not hasattr(estimator, "coef_")


def test_shapes_of_decisions_and_ties():
    X, y = rows_of("vehicle")
    ovo, ovr = (ours.SVC(decision_function_shape=shape).fit(X, y) for shape in ("ovo", "ovr"))
    pairs, votes = ovo.decision_function(X), ovr.decision_function(X)
    assert pairs.shape == (len(y), 6)
    assert votes.shape == (len(y), 4)
    assert votes == pytest.approx(svm.SVC(tol=1e-6).fit(X, y).decision_function(X), abs=5e-3)
    assert (ovr.predict(X) == ovo.predict(X)).all()
    assert (ovr.set_params(break_ties=True).predict(X) == ovr.classes_[votes.argmax(axis=1)]).all()
    with pytest.raises(ValueError, match="break_ties must be False"):
        ovo.set_params(break_ties=True).predict(X)
    assert ovo.n_iter_.shape == (6,)
    assert ovo.n_iter_.max() == ovo.info_.n_iter
    columns = unpacked(ovo.dual_coef_.T, ovo.n_support_)
    assert columns.sum(axis=0) == pytest.approx(np.zeros(6), abs=1e-6)


@pytest.mark.parametrize("name", ["LinearSVC", "SVC", "SVR", "OneClassSVM"])
def test_negative_weights_leave_rows_out(name):
    X, y = load_iris(return_X_y=True)
    weight = np.where(np.arange(150) % 7 == 0, -2.0, 1.5)
    estimator = getattr(ours, name)
    found = estimator().fit(X, y, sample_weight=weight).predict(X)
    assert (found == estimator().fit(X, y, sample_weight=np.maximum(weight, 0)).predict(X)).all()
    with pytest.raises(ValueError, match="zero or negative"):
        estimator().fit(X, y, sample_weight=-weight.clip(0.1))


def test_negative_weights_of_logistic_regression():
    X, y = load_iris(return_X_y=True)
    weight = np.where(np.arange(150) % 7 == 0, -2.0, 1.5)
    with pytest.raises(ValueError, match=r"sample_weight\[0\] = -2.0 is not allowed"):
        ours.LogisticRegression().fit(X, y, sample_weight=weight)
    ours.LogisticRegression(solver="liblinear").fit(X, y == 1, sample_weight=weight)


def test_sparse_coefficients():
    X, y = load_iris(return_X_y=True)
    for estimator in (ours.LinearSVC(penalty="l1", C=0.05), ours.LogisticRegression(l1_ratio=1, solver="saga", C=0.1)):
        estimator.fit(X, y)
        dense, scores = estimator.coef_.copy(), estimator.decision_function(X)
        assert estimator.sparsify() is estimator
        assert sparse.isspmatrix_csr(estimator.coef_)
        assert estimator.coef_.nnz < dense.size
        assert estimator.decision_function(X) == pytest.approx(scores, rel=1e-12)
        assert (estimator.densify().coef_ == dense).all()
        with pytest.raises(NotFittedError):
            type(estimator)().sparsify()


def test_infinite_cost():
    X, y = load_iris(return_X_y=True)
    hard, other = fitted("SVC", X[:100], y[:100], kernel="linear", C=np.inf)
    assert hard.converged_
    assert hard.coef_ == pytest.approx(other.coef_, rel=1e-2, abs=1e-3)
    X, y = rows_of("vehicle")
    X, y = X[:, :4], np.where(y > 2, 1, 0)
    free, other = fitted("LogisticRegression", X, y, C=np.inf, tol=1e-8, max_iter=1000)
    assert free.coef_ == pytest.approx(other.coef_, rel=1e-4)
    with pytest.raises(ValueError, match="C"):
        ours.LinearSVC(C=np.inf).fit(X, y)


def test_labels_of_any_kind_and_classes_without_weight():
    X, y = load_iris(return_X_y=True)
    names = np.array(["New York", "Los Angeles", "Rome"])
    for estimator in (ours.LinearSVC(class_weight={"New York": 2}), ours.SVC(), ours.LogisticRegression()):
        estimator.fit(X, names[y])
        assert estimator.classes_.tolist() == sorted(names)
        assert (estimator.predict(X) == names[y]).mean() > 0.9
        assert estimator.model_.classes.tolist() == [0, 1, 2]
        assert type(estimator)().fit(X, np.array(["a", "b", "c"])[y]).model_.classes.tolist() == ["a", "b", "c"]
    left_out = ours.LogisticRegression(class_weight={2: 0}).fit(X, y)
    assert left_out.classes_.tolist() == [0, 1, 2]
    assert set(left_out.predict(X)) == {0, 1}
    with pytest.raises(ValueError, match="all samples of class 2 have zero or negative weights"):
        ours.SVC().fit(X, y, sample_weight=y < 2)


def test_probabilities():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(FutureWarning, match="probability"):
        estimator = ours.SVC(probability=True).fit(X, y)
    assert estimator.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(150))
    assert (estimator.classes_[estimator.predict_proba(X).argmax(axis=1)] == estimator.predict(X)).all()
    with pytest.warns(FutureWarning), pytest.raises(AttributeError, match="for two classes"):
        estimator.probA_  # noqa: B018
    assert not hasattr(ours.SVC().fit(X, y), "predict_proba")
    with pytest.warns(FutureWarning):
        two = ours.SVC(probability=True).fit(X, y == 1)
        A, B = two.probA_, two.probB_
    assert A.shape == B.shape == (1,)
    f = two.decision_function(X)
    sigmoid = 1 / (1 + np.exp(A * f - B))
    clear = abs(sigmoid - 0.5) > 0.2
    assert two.predict_proba(X)[clear, 1] == pytest.approx(sigmoid[clear], abs=1e-6)
    proba = ours.LogisticRegression(max_iter=500).fit(X, y).predict_proba(X)
    assert proba == pytest.approx(linear_model.LogisticRegression(tol=1e-8, max_iter=9999).fit(X, y).predict_proba(X),
                                  abs=1e-4)


def test_what_is_refused_is_named():
    X, y = load_iris(return_X_y=True)
    for estimator, words in (
            (ours.LinearSVC(loss="hinge", dual=False), "loss='hinge', dual=False: give dual=True or 'auto'"),
            (ours.LinearSVC(loss="hinge", penalty="l1"), "give loss='squared_hinge'"),
            (ours.LinearSVR(dual=False), "dual=False: give dual=True"),
            (ours.SVC(kernel="cosine"), "The 'kernel' parameter of SVC must be"),
            (ours.SVC(gamma=0.0), "gamma = 0.0 is not allowed"),
            (ours.LogisticRegression(l1_ratio=1), "Solver lbfgs supports only"),
            (ours.LogisticRegression(solver="liblinear"), "does not support multiclass"),
            (ours.LogisticRegression(solver="saga", dual=True), "supports only dual=False")):
        with pytest.raises(ValueError, match=words):
            estimator.fit(X, y)
    with pytest.raises(TypeError, match="Sparse precomputed"):
        ours.SVC(kernel="precomputed").fit(sparse.csr_array(X @ X.T), y)


def test_a_limit_warns_where_it_left_something():
    X, y = rows_of("vehicle")
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        assert ours.LogisticRegression(C=100, max_iter=1).fit(X, y).converged_ is False
    with pytest.warns(ConvergenceWarning):
        assert ours.SVC(C=100, kernel="linear", max_iter=1).fit(X, y).fit_status_ == 1
    # Within tol, though not within its square.
    found = [ours.LogisticRegression(tol=1e-2, max_iter=max_iter).fit(X, y) for max_iter in range(1, 12)]
    for estimator in found:
        assert estimator.converged_ is (estimator.dual_gap_ <= 1e-2 * max(1.0, estimator.objective_))
    assert {(e.info_.status, e.converged_) for e in found} == {("max_iter", False), ("max_iter", True),
                                                               ("converged", True)}
    # What is asked for is below rounding.
    assert ours.LinearSVC(tol=1e-300).fit(X, y).converged_ is True


def test_a_kernel_that_is_not_positive_semidefinite_warns():
    X, y = rows_of("vehicle")
    X -= X.mean(axis=0)
    with pytest.warns(ConvergenceWarning, match="not positive semidefinite"):
        assert ours.SVC(kernel="sigmoid").fit(X, y).converged_ is False
    with pytest.raises(ValueError, match="not positive semidefinite"):
        ours.SVC(kernel="sigmoid", coef0=-1).fit(X, y)


@each
def test_random_state_changes_no_optimum_and_none_is_a_seed(name):
    X, y = rows_of("vehicle")
    X, y = X[:200], target_of(name, y[:200])
    one, two = (getattr(ours, name)(**precise(name)).fit(X, y) for _ in range(2))
    assert (one.predict(X) == two.predict(X)).all()
    assert one.model_.weights.tobytes() == two.model_.weights.tobytes()


def test_float32_rows_and_saved_models(tmp_path):
    X, y = load_iris(return_X_y=True)
    estimator = ours.LogisticRegression().fit(X.astype(np.float32), y)
    assert estimator.coef_.dtype == np.float32
    assert estimator.model_.info is estimator.info_
    for saved in (estimator, ours.SVC().fit(X, y), ours.LinearSVC().fit(X, y)):
        ml.save_model(saved.model_, tmp_path / "model")
        assert (ml.load_model(tmp_path / "model").predict(X) == saved.predict(X)).mean() > 0.98


TOOL = ROOT / "tools" / "sklearn_tests.py"


def list_version():
    spec = importlib.util.spec_from_file_location("sklearn_tests", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool.listed()[0]


@pytest.mark.skipif(sklearn.__version__ != list_version(),
                    reason="tools/sklearn_tests.txt lists tests of another version of scikit-learn")
def test_scikit_learns_own_tests(tmp_path):
    """All pass but the listed ones, and these fail."""
    run = subprocess.run([sys.executable, TOOL, "sklearn.svm.tests.test_svm"], capture_output=True, text=True,
                         cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path(ours.__file__).parents[2])})
    assert run.returncode == 0, run.stdout[-5000:]
    assert " 0 failed" in run.stdout
