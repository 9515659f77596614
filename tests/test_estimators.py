"""An estimator for each method, those without labels or with other parameters, and what is around all of them."""

import inspect
import subprocess
import sys
import warnings

import numpy as np
import pytest

import marginlinear as ml
from marginlinear import registry

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is missing: pip install 'marginlinear[sklearn]'")

from sklearn.base import clone, is_regressor  # noqa: E402
from sklearn.metrics import f1_score  # noqa: E402
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402
from test_sklearn import problem  # noqa: E402

from marginlinear import sklearn as ours  # noqa: E402

OF_METHOD = {name: ours.estimators.of_method(name) for name in registry.methods()}
each = pytest.mark.parametrize("name", OF_METHOD)
pytestmark = pytest.mark.filterwarnings("ignore:(msvmav|oneclass) did not converge")


def test_every_method_has_an_estimator_and_every_parameter_a_place():
    assert set(ours.estimators.OF_METHOD) == set(registry.methods())
    for name, estimator in OF_METHOD.items():
        method = estimator._method
        assert method.name == name
        # What estimators have other words for.
        taken = {p.name for p in method.takes} - {"free_bias"}
        assert taken <= set(inspect.signature(type(estimator)).parameters), name


def expected(estimator):
    """The checks that an estimator fails with other parameters than its own."""
    few_passes = {"check_class_weight_classifiers": "a few epochs are not enough for factors of 1000 and 1e-4"}
    return few_passes if getattr(estimator, "stochastic", False) else {}


# tests/test_sklearn.py checks those of the defaults there.
@parametrize_with_checks([OF_METHOD[name] for name in ("smlr", "ldm-asgd", "nusvc", "lssvm", "mamc", "oneclass",
                                                       "nusvr")], expected_failed_checks=expected)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@each
def test_the_model_is_that_of_train(name):
    X, y = problem(2, m=60)
    estimator, method = clone(OF_METHOD[name]).fit(X, y), registry.get(name)
    given = {"bias": 1} if hasattr(estimator, "fit_intercept") else {}
    nu = {"nu": estimator.nu} if hasattr(estimator, "nu") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        model = ml.train(X, None if method.one_class else y, solver=name, tol=estimator.tol, **given, **nu)
    assert estimator.model_.weights.tobytes() == model.weights.tobytes()
    if method.regression:
        np.testing.assert_allclose(estimator.predict(X), model.predict(X), atol=1e-12)
    elif method.one_class:
        # The offset is the score of a row, which is 0 but for rounding.
        np.testing.assert_allclose(estimator.decision_function(X), model.decision_function(X), atol=1e-12)
    else:
        assert np.array_equal(estimator.predict(X), model.predict(X))
    assert estimator.info_.status == model.info.status and estimator.dual_gap_ == model.info.certificate


@each
def test_names_of_features_and_routed_weights(name):
    pandas = pytest.importorskip("pandas", reason="pandas is missing: pip install pandas")
    X, y = problem(2, m=60)
    weights = np.random.default_rng(1).integers(1, 3, len(y)).astype(float)
    frame = pandas.DataFrame(X, columns=list("abcd"))
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = clone(OF_METHOD[name]).set_fit_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False).set_output(transform="pandas"),
                                 estimator).fit(frame, y, sample_weight=weights)
        if name == "l1svc":
            estimator.set_score_request(sample_weight=True)
            grid = GridSearchCV(estimator, {"C": [0.1, 1.0]}, cv=3).fit(X, y, sample_weight=weights)
            best = clone(estimator).set_params(**grid.best_params_).fit(X, y, sample_weight=weights)
            assert grid.best_estimator_.coef_.tobytes() == best.coef_.tobytes()
    assert pipeline[-1].feature_names_in_.tolist() == list("abcd")
    alone = clone(OF_METHOD[name]).fit(pipeline[0].transform(frame).to_numpy(), y, sample_weight=weights)
    assert pipeline[-1].coef_.tobytes() == alone.coef_.tobytes()


def test_where_rows_are():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.standard_normal((95, 2)), [[9, 0], [-8, 2], [0, 9], [3, -9], [7, 7]]])
    for given in ({}, {"kernel": "rbf", "gamma": 0.05}):
        detector = ours.OneClassDetector(nu=0.1, **given).fit(X + 3)
        scores, labels = detector.decision_function(X + 3), detector.predict(X + 3)
        assert np.array_equal(labels, np.where(scores >= 0, 1, -1)) and (labels == -1).mean() <= 0.1 + 1e-9
        np.testing.assert_allclose(detector.score_samples(X + 3) - detector.offset_, scores, atol=1e-12)
        assert np.array_equal(clone(detector).fit_predict(X + 3), labels)
    assert (labels[:95] == 1).mean() > 0.9 and (labels[95:] == -1).all()


def test_nu_is_what_it_says():
    X, y = problem(2, m=200)
    machine = ours.NuSVMClassifier(nu=0.4, kernel="rbf", tol=1e-6).fit(X, y)
    errors = (np.where(y == 1, 1, -1) * machine.decision_function(X) < 1 - 1e-3).mean()
    assert errors <= 0.4 <= len(machine.support_) / len(y)
    target = X @ [1.0, -2.0, 0.5, 0.0] + np.random.default_rng(0).standard_normal(200)
    machine = ours.NuSVMRegressor(nu=0.3, C=10.0).fit(X, target)
    assert machine.score(X, target) > 0.7
    with pytest.raises(ValueError, match=r"nu = 0\.9 is more than twice the part of the smaller class"):
        ours.NuSVMClassifier(nu=0.9).fit(X[:20], [0] * 15 + [1] * 5)


def test_a_kernel_goes_not_with_what_is_for_weights():
    X, y = problem(2)
    for machine in (ours.LDMClassifier(stochastic=True, kernel="rbf"), ours.SVMClassifier(penalty="l1", kernel="rbf")):
        with pytest.raises(ValueError, match="does not go with a kernel"):
            machine.fit(X, y)
    with pytest.raises(ValueError, match='penalty = "l1" goes with loss = "squared_hinge"'):
        ours.SVMClassifier(penalty="l1", loss="squared_error").fit(X, y)


@parametrize_with_checks([ours.LinearMarginCV(grid="C=1,4", cv=3),
                          ours.LinearMarginCV(ours.SVMRegressor(), grid="C=1,4", cv=3)])
def test_scikit_learns_checks_of_the_search(estimator, check):
    check(estimator)


def test_the_search_is_that_of_fits_one_by_one():
    X, y = problem(3, m=150)
    grid, folds = {"C": [4.0, 0.01, 0.1]}, StratifiedKFold(4, shuffle=True, random_state=1)
    search = ours.LinearMarginCV("odm", grid=grid, cv=folds, scoring="f1_macro").fit(X, y)
    assert [point["C"] for point in search.points_] == [0.01, 0.1, 4.0] and search.scores_.shape == (4, 3)
    for p, point in enumerate(search.points_):
        alone = cross_val_score(ours.ODMClassifier(**point), X, y, cv=folds, scoring="f1_macro")
        np.testing.assert_allclose(search.scores_[:, p], alone, atol=0.03)
    means = search.scores_.mean(axis=0)
    assert search.best_score_ == means.max() and search.points_[means.argmax()]["C"] == search.C_
    best = ours.ODMClassifier(C=search.C_).fit(X, y)
    assert search.coef_.tobytes() == best.coef_.tobytes() and search.converged_ and search.dual_gap_ == best.dual_gap_
    assert np.array_equal(search.predict(X), best.predict(X)) and search.classes_.tolist() == [0, 1, 2]
    assert search.score(X, y) == pytest.approx(f1_score(y, best.predict(X), average="macro"))
    again = ours.LinearMarginCV("odm", grid=grid, cv=folds, scoring="f1_macro", n_jobs=2).fit(X, y)
    assert (again.scores_ == search.scores_).all() and (again.n_iter_path_ == search.n_iter_path_).all()


def test_fits_of_the_search_go_on_from_the_last_one():
    X, y = problem(3, m=150)
    grid = {"C": [2.0**e for e in range(-3, 6)]}
    search = ours.LinearMarginCV("odm", grid=grid, cv=3).fit(X, y)
    cold = sum(ours.ODMClassifier(**point).fit(X[train], y[train]).n_iter_ for point in search.points_
               for train, _ in StratifiedKFold(3).split(X, y))
    assert search.n_iter_path_.sum() < 0.8 * cold


def test_a_search_takes_every_estimator():
    """Also those without warm_start, whose n_iter_ is an array, and parameters of a kernel that is their own."""
    X, y = problem(2)
    for estimator, grid in ((ours.LinearSVC(), "C=0.1,1"), (ours.LogisticRegression(), "C=0.1,1"),
                            (ours.SVMClassifier(kernel="rbf"), {"C": [1.0], "gamma": [0.01, 0.1]})):
        search = ours.LinearMarginCV(estimator, grid=grid, cv=2).fit(X, y)
        assert search.scores_.shape == (2, 2) and search.best_score_ > 0.5


def test_groups_own_folds_and_weights():
    X, y = problem(2, m=120)
    groups = np.arange(120) % 6
    seen = []

    def scorer(estimator, X, y):
        seen.append(len(X))
        return estimator.score(X, y)

    by_groups = ours.LinearMarginCV("l1svc", grid="C=1", cv=GroupKFold(6), scoring=scorer).fit(X, y, groups=groups)
    assert seen == [20] * 6 and by_groups.scores_.shape == (6, 1)
    own = [(np.flatnonzero(groups != g), np.flatnonzero(groups == g)) for g in (0, 3)]
    by_hand = ours.LinearMarginCV("l1svc", grid="C=1", cv=own).fit(X, y)
    for (train, test), (score,) in zip(own, by_hand.scores_, strict=True):
        assert score == ours.SVMClassifier().fit(X[train], y[train]).score(X[test], y[test])
    weights = np.random.default_rng(0).integers(0, 3, 120).astype(float)
    weighted = ours.LinearMarginCV("l1svc", grid="C=1", cv=own).fit(X, y, sample_weight=weights)
    for (train, test), (score,) in zip(own, weighted.scores_, strict=True):
        alone = ours.SVMClassifier().fit(X[train], y[train], sample_weight=weights[train])
        assert score == alone.score(X[test], y[test], sample_weight=weights[test])
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), ours.LinearMarginCV(
            "l1svc", grid="C=1", cv=GroupKFold(6)).set_fit_request(sample_weight=True, groups=True))
        pipeline.fit(X, y, sample_weight=weights, groups=groups)
    assert pipeline[-1].scores_.shape == (6, 1)


@pytest.mark.parametrize("estimator", [ours.SVMClassifier(kernel="rbf"), ours.SVMClassifier(kernel="precomputed"),
                                       ours.LogisticClassifier(penalty="l1"), "mcodm", "l2svr"])
def test_what_can_be_searched_for(estimator):
    X, y = problem(2, m=60)
    rows = X @ X.T if getattr(estimator, "kernel", "") == "precomputed" else X
    search = ours.LinearMarginCV(estimator, grid={"C": [0.1, 1.0]}, cv=3).fit(rows, y)
    assert search.scores_.shape == (3, 2) and search.score(rows, y) > 0.3
    assert is_regressor(search) == (estimator == "l2svr")
    assert hasattr(search, "predict_proba") == isinstance(estimator, ours.LogisticClassifier)


def test_the_search_of_another_grid_and_what_it_refuses():
    X, y = problem(2, m=60)
    search = ours.LinearMarginCV("nusvc", grid="nu=0.1,0.3", cv=3).fit(X, y)
    assert search.best_params_["nu"] in (0.1, 0.3)
    assert not hasattr(search, "C_")
    two = ours.LinearMarginCV(grid="C=1,2,mu=0.2,0.8", cv=3).fit(X, y)
    assert len(two.points_) == 4 and set(two.best_params_) == {"C", "mu"}
    for estimator, grid, error, words in (
            ("nusvc", None, ValueError, "nusvc has no C"), ("svm", None, ValueError, "solver = 'svm' is not known"),
            (StandardScaler(), None, TypeError, r"^estimator = StandardScaler\(\) is not allowed"),
            ("l1svc", "D=1", ValueError, "'D' is not a parameter of l1svc"),
            ("l1svc", "bias=1,2", ValueError, "'bias' is not a parameter of SVMClassifier")):
        with pytest.raises(error, match=words):
            ours.LinearMarginCV(estimator, grid=grid).fit(X, y)
    with pytest.raises(ValueError, match="no point of the grid has a score"):
        ours.LinearMarginCV("l1svc", grid="C=1", cv=3, scoring=lambda *_: np.nan).fit(X, y)


def recorder(log, stop_at=None):
    """A callback that keeps what it is told, and asks for the end at its check number `stop_at`."""

    class Recorder:
        def setup(self, estimator, context):
            log.append("setup")

        def teardown(self, estimator, context):
            log.append("teardown")

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None):
            if context.task_name != "check":
                return False
            log.append(((fitted_estimator.predict(X) == y).mean(), fitted_estimator.dual_gap_, metadata))
            return len(log) == stop_at

    return Recorder()


def test_scikit_learns_callbacks():
    pytest.importorskip("sklearn.callback", reason="scikit-learn 1.9 or newer is needed")
    from sklearn.callback import ScoringMonitor

    X, y = problem(3, m=300)
    log, estimator = [], ours.MCODMClassifier(tol=1e-6)
    plain = clone(estimator).fit(X, y)
    estimator.set_callbacks(recorder(log)).fit(X, y, sample_weight=np.ones(300))
    assert log[0] == "setup" and log[-1] == "teardown" and len(log) > 3
    assert estimator.coef_.tobytes() == plain.coef_.tobytes() and not hasattr(estimator, "_callback_fit_ctx")
    assert all(0 <= score <= 1 and gap >= -1e-9 and len(told["sample_weight"]) == 300 for score, gap, told in log[1:-1])
    log.clear()
    stopped = ours.MCODMClassifier(tol=1e-12).set_callbacks(recorder(log, stop_at=2)).fit(X, y)
    assert stopped.info_.status == "stopped" and not stopped.converged_ and log[-1] == "teardown"
    assert stopped.predict(X).shape == (300,)
    detector = ours.OneClassDetector().set_callbacks(recorder([])).fit(X + 3)
    assert detector.converged_
    monitor = ScoringMonitor(scoring="accuracy")
    machine = ours.SVMClassifier(C=100.0).set_callbacks(monitor)
    make_pipeline(StandardScaler(), machine).fit(X, y)
    log = monitor.get_logs()
    assert len(log.data) >= 2 and log.data[-1]["accuracy"] == machine.score(StandardScaler().fit_transform(X), y)


def test_without_callbacks_estimators_are_the_same():
    """As with scikit-learn 1.6 to 1.8; its own classes of 1.9 have taken theirs before."""
    code = ("import sys, sklearn.linear_model, sklearn.model_selection; sys.modules['sklearn.callback'] = None; "
            "import numpy as np; from marginlinear.sklearn import SVMClassifier; "
            "print(SVMClassifier().fit(np.eye(4), [0, 1, 0, 1]).converged_, hasattr(SVMClassifier, 'set_callbacks'))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True False\n", done.stderr
