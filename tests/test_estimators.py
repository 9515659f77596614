"""An estimator for each method, those without labels or with other parameters, and what is around all of them."""

import inspect
import warnings

import numpy as np
import pytest

import marginlinear as ml
from marginlinear import registry

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is missing: pip install 'marginlinear[sklearn]'")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from marginlinear import sklearn as ours  # noqa: E402
from tests.test_sklearn import problem  # noqa: E402

# The estimator of each method.
OF_METHOD = {
    "mcodm": ours.MCODMClassifier(),
    "cs": ours.CrammerSingerClassifier(),
    "topk": ours.TopKClassifier(),
    "lpmcsvm": ours.LpMCSVMClassifier(),
    "m3svm": ours.M3SVMClassifier(),
    "ism3": ours.ISM3Classifier(),
    "ww": ours.WestonWatkinsClassifier(),
    "softmax": ours.SoftmaxClassifier(),
    "smlr": ours.SoftmaxClassifier(penalty="l1"),
    "ldm": ours.LDMClassifier(),
    "ldm-asgd": ours.LDMClassifier(stochastic=True),
    "odm": ours.ODMClassifier(),
    "rmm": ours.RMMClassifier(),
    "l1svc": ours.SVMClassifier(),
    "l2svc": ours.SVMClassifier(loss="squared_hinge"),
    "nusvc": ours.NuSVMClassifier(),
    "logistic": ours.LogisticClassifier(),
    "l1l2svc": ours.SVMClassifier(loss="squared_hinge", penalty="l1"),
    "l1lr": ours.LogisticClassifier(penalty="l1"),
    "lssvm": ours.SVMClassifier(loss="squared_error"),
    "mamc": ours.MAMCClassifier(),
    "msv": ours.MSVClassifier(),
    "msvmav": ours.MSVMAvClassifier(),
    "oneclass": ours.OneClassDetector(),
    "l1svr": ours.SVMRegressor(),
    "l2svr": ours.SVMRegressor(loss="squared_epsilon_insensitive"),
    "nusvr": ours.NuSVMRegressor(),
}
each = pytest.mark.parametrize("name", OF_METHOD)
pytestmark = pytest.mark.filterwarnings("ignore:(msvmav|oneclass) did not converge")


def test_every_method_has_an_estimator_and_every_parameter_a_place():
    assert list(OF_METHOD) == list(registry.methods())
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
    with pytest.raises(ValueError, match="nu = 0.9 is more than twice the part of the smaller class"):
        ours.NuSVMClassifier(nu=0.9).fit(X[:20], [0] * 15 + [1] * 5)


def test_a_kernel_goes_not_with_what_is_for_weights():
    X, y = problem(2)
    for machine in (ours.LDMClassifier(stochastic=True, kernel="rbf"), ours.SVMClassifier(penalty="l1", kernel="rbf")):
        with pytest.raises(ValueError, match="does not go with a kernel"):
            machine.fit(X, y)
    with pytest.raises(ValueError, match='penalty = "l1" goes with loss = "squared_hinge"'):
        ours.SVMClassifier(penalty="l1", loss="squared_error").fit(X, y)
