"""The estimators in other libraries: docs/together.md says what was tried."""

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="pip install 'marginlinear[sklearn]'")

from scipy import sparse
from sklearn.base import ClassifierMixin, OutlierMixin, RegressorMixin
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import marginlinear as ml
from marginlinear import sklearn as ours
from marginlinear.sklearn import together
from marginlinear.sklearn.together import TRUSTED, register

CLASSIFIERS = together.classes_with(ClassifierMixin)
REGRESSORS = together.classes_with(RegressorMixin)
OUTLIERS = together.classes_with(OutlierMixin)


def data(k, m=90, n=4, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(m) % k
    X = rng.standard_normal((m, n))
    X[np.arange(m), y] += 1.5
    return X, y


def fitted(estimator, k=3, labels=lambda y: y):
    X, y = data(k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ours.ConvergenceWarning)
        return estimator.fit(X, labels(y))


def test_all_estimators_are_there():
    known = {thing for name in ours.__all__ if isinstance(thing := getattr(ours, name), type)
             and not issubclass(thing, Warning)} - {ours.LinearMarginCV}
    assert known == {*CLASSIFIERS, *REGRESSORS, *OUTLIERS}


def test_another_library_is_refused():
    with pytest.raises(ValueError, match=r"library = 'onnxmltools' is not allowed: give skl2onnx \| eli5"):
        register("onnxmltools")


# ---- skl2onnx


@pytest.fixture(scope="module")
def converted():
    """A function from an estimator to one from rows to the outputs of its graph."""
    skl2onnx = pytest.importorskip("skl2onnx", reason="pip install skl2onnx")
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    register("skl2onnx")
    register("skl2onnx")

    def convert(estimator, X, **options):
        made = skl2onnx.to_onnx(estimator, X[:1], **options)
        ran = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        name, = (given.name for given in ran.get_inputs())
        return lambda X: ran.run(None, {name: X})

    return convert


PLAIN = {"zipmap": False}


def two_columns(scores):
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


@pytest.mark.parametrize("cls", CLASSIFIERS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_skl2onnx_of_classifiers(converted, cls, k, dtype):
    estimator = fitted(cls(), k, lambda y: np.array(["a", "ö", "c"])[y])
    X = data(k, seed=1)[0].astype(dtype)
    options = {**PLAIN, "raw_scores": True}
    labels, scores = converted(estimator, X, options={cls: options})(X)
    assert labels.tolist() == estimator.predict(X).tolist()
    assert scores.dtype == dtype
    np.testing.assert_allclose(scores, two_columns(estimator.decision_function(X)), rtol=1e-6, atol=1e-6)
    if hasattr(estimator, "predict_proba"):
        _, chances = converted(estimator, X, options={cls: PLAIN})(X)
        np.testing.assert_allclose(chances, estimator.predict_proba(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("estimator, k", [
    (ours.SVMClassifier(multiclass="ovo"), 4), (ours.LDMClassifier(multiclass="ecoc"), 4),
    (ours.ODMClassifier(kernel="rbf", multiclass="ovo"), 4), (ours.MCODMClassifier(kernel="rbf", probability=True), 3),
    (ours.CrammerSingerClassifier(kernel="poly"), 2), (ours.SVMClassifier(kernel="rbf", free_bias=True), 2)])
@pytest.mark.parametrize("labels", [lambda y: y, lambda y: y > 0, lambda y: 2.0 * y], ids=["int", "bool", "float"])
def test_skl2onnx_of_options(converted, estimator, k, labels):
    if labels(np.arange(k)).dtype == bool:
        k = 2
    fitted(estimator, k, labels)
    X = data(k, seed=2)[0]
    found, scores = converted(estimator, X, options={type(estimator): PLAIN})(X)
    assert found.tolist() == estimator.predict(X).tolist()
    expected = estimator.predict_proba(X) if estimator.probability else two_columns(estimator.decision_function(X))
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("estimator", [*(cls() for cls in REGRESSORS),
                                       ours.SVMRegressor(kernel="rbf", free_bias=True),
                                       ours.SVMRegressor(loss="squared_epsilon_insensitive", fit_intercept=False)])
def test_skl2onnx_of_regressors(converted, estimator):
    X, y = data(3)
    estimator.fit(X, X @ np.arange(4) + y)
    other = data(3, seed=1)[0]
    found, = converted(estimator, other)(other)
    np.testing.assert_allclose(found[:, 0], estimator.predict(other), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cls", OUTLIERS, ids=lambda cls: cls.__name__)
def test_skl2onnx_of_outliers(converted, cls):
    estimator, other = cls().fit(data(3)[0]), 2 * data(3, seed=1)[0]
    labels, scores = converted(estimator, other)(other)
    assert labels[:, 0].tolist() == estimator.predict(other).tolist()
    np.testing.assert_allclose(scores[:, 0], estimator.decision_function(other), rtol=1e-6, atol=1e-6)


def test_skl2onnx_of_a_function_is_refused(converted):
    estimator = ours.MCODMClassifier(kernel=lambda a, b: a @ b.T)
    with pytest.raises(ValueError, match="MCODMClassifier: kernel is a Python function"):
        converted(fitted(estimator), data(3)[0], options={ours.MCODMClassifier: PLAIN})


def test_skl2onnx_of_a_pipeline_in_a_search(converted):
    X, y = data(3)
    search = GridSearchCV(make_pipeline(StandardScaler(), ours.MCODMClassifier()),
                          {"mcodmclassifier__C": [0.1, 1]}, cv=2).fit(X, y)
    for estimator in (search.best_estimator_, search):
        labels, chances = converted(estimator, X.astype(np.float32))(X.astype(np.float32))
        assert labels.tolist() == search.predict(X).tolist()
        assert {*chances[0]} == {0, 1, 2}  # skl2onnx's maps


def test_skl2onnx_gives_places_and_labels(converted):
    estimator = fitted(ours.SVMClassifier(), labels=lambda y: np.array(["a", "ö", "c"], dtype=object)[y])
    X = data(3, seed=1)[0]
    places = np.searchsorted(estimator.classes_, estimator.predict(X))
    found = converted(estimator, X, options={ours.SVMClassifier: {**PLAIN, "nocl": True}})(X)
    assert found[0].tolist() == places.tolist()
    found = converted(estimator, X, options={ours.SVMClassifier: {**PLAIN, "output_class_labels": True}})(X)
    assert found[0].tolist() == estimator.predict(X).tolist() and found[2].tolist() == estimator.classes_.tolist()


def test_skl2onnx_takes_changed_weights(converted):
    estimator = fitted(ours.SVMClassifier())
    estimator.coef_ *= -2
    X = data(3, seed=1)[0]
    _, scores = converted(estimator, X, options={ours.SVMClassifier: PLAIN})(X)
    np.testing.assert_allclose(scores, estimator.decision_function(X), rtol=1e-6)


def test_skl2onnx_of_an_old_opset_is_refused(converted):
    X, _ = data(3)
    with pytest.raises(ValueError, match="target_opset = 12: the graph needs 13 or more"):
        converted(fitted(ours.SVMClassifier()), X, options={ours.SVMClassifier: PLAIN}, target_opset=12)


# ---- eli5


@pytest.fixture(scope="module")
def eli5():
    module = pytest.importorskip("eli5", reason="pip install eli5")
    register("eli5")
    return module


@pytest.mark.parametrize("cls", [cls for cls in CLASSIFIERS if getattr(cls(), "kernel", None) is None],
                         ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("k", [2, 3])
def test_eli5_explains_classifiers(eli5, cls, k):
    # Of pairs there is nothing to explain.
    estimator = fitted(cls(multiclass="ovr") if getattr(cls(), "multiclass", None) == "ovo" else cls(), k)
    found = eli5.explain_weights(estimator, feature_names=["p", "q", "r", "s"], top=5)
    assert found.error is None and [target.target for target in found.targets] == ([1] if k == 2 else [0, 1, 2])
    for target, coef, intercept in zip(found.targets, estimator.coef_, estimator.intercept_, strict=True):
        told = {w.feature: w.weight for w in (*target.feature_weights.pos, *target.feature_weights.neg)}
        wanted = dict(zip(["p", "q", "r", "s", "<BIAS>"], [*coef, intercept], strict=True))
        assert told == pytest.approx({name: weight for name, weight in wanted.items() if weight})
    X = data(k, seed=1)[0]
    one = eli5.explain_prediction(estimator, X[0])
    scores = np.atleast_1d(estimator.decision_function(X[:1])[0])
    assert [target.score for target in one.targets] == pytest.approx(scores.tolist())


def test_eli5_explains_regressors(eli5):
    X, y = data(3)
    estimator = ours.SVMRegressor().fit(X, X @ np.arange(4) + y)
    found = eli5.explain_weights(estimator)
    assert found.error is None
    assert {w.feature for w in found.targets[0].feature_weights.pos} >= {"x3"}
    assert eli5.explain_prediction(estimator, X[0]).targets[0].score == pytest.approx(estimator.predict(X[:1])[0])


def test_eli5_is_told_what_cannot_be_explained(eli5):
    assert "no weights of features" in eli5.explain_weights(fitted(ours.MCODMClassifier(kernel="rbf"))).error
    estimator = fitted(ours.SVMClassifier(multiclass="ovo"))
    assert "pairs of classes" in eli5.explain_weights(estimator).error
    assert "pairs of classes" in eli5.explain_prediction(estimator, data(3)[0][0]).error


# ---- skops


@pytest.fixture
def restored():
    """A function from a fitted estimator to what skops has written and read."""
    skops = pytest.importorskip("skops.io", reason="pip install skops")

    def restore(estimator):
        data = skops.dumps(estimator)
        assert set(skops.get_untrusted_types(data=data)) <= set(TRUSTED)
        return skops.loads(data, trusted=TRUSTED)

    return restore


@pytest.mark.parametrize("cls", [*CLASSIFIERS, *REGRESSORS, *OUTLIERS], ids=lambda cls: cls.__name__)
def test_skops_restores_estimators(restored, cls, tmp_path):
    estimator = fitted(cls())
    found = restored(estimator)
    X = data(3, seed=1)[0]
    assert np.array_equal(found.predict(X), estimator.predict(X))
    ml.save_model(found.model_, tmp_path / "restored")
    ml.save_model(estimator.model_, tmp_path / "model")
    assert (tmp_path / "restored").read_bytes() == (tmp_path / "model").read_bytes()


@pytest.mark.parametrize("estimator", [
    ours.MCODMClassifier(probability=True), ours.ODMClassifier(kernel="rbf", multiclass="ovo", probability=True),
    ours.SVMClassifier(multiclass="ecoc", warm_start=True), ours.SVMRegressor(kernel="rbf", free_bias=True)])
@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_skops_restores_all_parts(restored, estimator, as_rows):
    X, y = data(3)
    found = restored(estimator.fit(as_rows(X), y))
    assert np.array_equal(found.predict(X), estimator.predict(X)) and found.info_ == estimator.info_
    if hasattr(estimator, "predict_proba"):
        assert np.array_equal(found.predict_proba(X), estimator.predict_proba(X))


# ---- shap, imbalanced-learn, Optuna, dask-ml, Yellowbrick


@pytest.mark.parametrize("k", [2, 3])
def test_shap_explains_linear_classifiers(k):
    shap = pytest.importorskip("shap", reason="pip install shap")
    estimator, X = fitted(ours.MCODMClassifier(), k), data(k, seed=1)[0]
    found = shap.LinearExplainer(estimator, X)(X)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, estimator.decision_function(X), rtol=1e-9)


def test_shap_explains_regressions_and_probabilities():
    shap = pytest.importorskip("shap", reason="pip install shap")
    X, y = data(3)
    estimator = ours.SVMRegressor().fit(X, X @ np.arange(4) + y)
    found = shap.Explainer(estimator, X)(X)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, estimator.predict(X), rtol=1e-9)
    kernel = fitted(ours.MCODMClassifier(kernel="rbf", probability=True))
    values = shap.KernelExplainer(kernel.predict_proba, X[:10]).shap_values(X[:2], silent=True)
    expected = kernel.predict_proba(X[:2]) - kernel.predict_proba(X[:10]).mean(axis=0)
    np.testing.assert_allclose(values.sum(axis=1), expected, atol=1e-9)


def test_imbalanced_learn_resamples_before_a_fit():
    pipeline = pytest.importorskip("imblearn.pipeline", reason="pip install imbalanced-learn")
    from imblearn.ensemble import BalancedBaggingClassifier
    from imblearn.over_sampling import RandomOverSampler

    X, _ = data(3)
    y = (np.arange(len(X)) % 9 == 0).astype(int)
    found = pipeline.make_pipeline(RandomOverSampler(random_state=0), ours.ODMClassifier()).fit(X, y)
    X2, y2 = RandomOverSampler(random_state=0).fit_resample(X, y)
    assert np.array_equal(found[-1].coef_, ours.ODMClassifier().fit(X2, y2).coef_)
    bag = BalancedBaggingClassifier(ours.ODMClassifier(), n_estimators=3, random_state=0).fit(X, y)
    assert bag.predict(X).mean() > y.mean()


def test_optuna_searches():
    optuna = pytest.importorskip("optuna", reason="pip install optuna")
    X, y = data(3)

    def objective(trial):
        estimator = ours.ODMClassifier(C=trial.suggest_float("C", 1e-3, 1e3, log=True))
        return cross_val_score(estimator, X, y, cv=3).mean()

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=3)
    assert study.best_value == max(objective(optuna.trial.FixedTrial(trial.params)) for trial in study.trials)


def test_dask_ml_predicts_in_blocks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own imports
        wrappers = pytest.importorskip("dask_ml.wrappers", reason="pip install dask-ml")
    import dask.array

    X, y = data(3)
    found = wrappers.ParallelPostFit(ours.LogisticClassifier()).fit(X, y)
    blocks, own = dask.array.from_array(X, chunks=(30, 4)), ours.LogisticClassifier().fit(X, y)
    assert np.array_equal(found.predict(blocks).compute(), own.predict(X))
    np.testing.assert_allclose(found.predict_proba(blocks).compute(), own.predict_proba(X), rtol=1e-12)


def test_yellowbrick_draws():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own imports
        classifier = pytest.importorskip("yellowbrick.classifier", reason="pip install yellowbrick")
    import matplotlib

    matplotlib.use("agg")
    X, y = data(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fonts, and of the matplotlib that it was made for
        drawn = classifier.ConfusionMatrix(ours.SVMClassifier(), force_model=True).fit(X, y)
        assert drawn.score(X, y) == pytest.approx(ours.SVMClassifier().fit(X, y).score(X, y))
        drawn.finalize()
    assert drawn.confusion_matrix_.sum() == len(y)
