"""Calibrations against an oracle, and the rule that the largest probability is that of the predicted class."""

import pickle

import numpy as np
import pytest
from scipy import optimize, sparse

import marginlinear as ml
from marginlinear import calibration, registry
from marginlinear.calibration import LOGISTIC, SIGMOID, TEMPERATURE, Calibration
from marginlinear.folds import stratified_folds

RNG = np.random.default_rng(0)
LABELS = {2: [-1, 1], 3: [1, 2, 7], 5: [1, 2, 3, 4, 5]}


def sample(k, m=120, noise=1.5):
    """Dense rows of k overlapping classes, and their labels."""
    rng = np.random.default_rng(k)
    codes = np.arange(m) % k
    X = rng.standard_normal((m, k + 1)) * noise
    X[np.arange(m), codes] += 2
    return X, np.array(LABELS[k])[codes]


def targets(codes, weights, k):
    counts = np.array([weights[codes == label].sum() for label in range(k)])
    found = np.repeat(1 / (counts[codes] + 2)[:, None] / (k - 1), k, axis=1)
    found[np.arange(len(codes)), codes] = (counts[codes] + 1) / (counts[codes] + 2)
    return found


def loss(logits, codes, weights, k):
    """Cross-entropy with Platt's targets."""
    logs = logits - logits.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    return -(weights[:, None] * targets(codes, weights, k) * logs).sum()


@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1.0, 1e6, 1e150])
@pytest.mark.parametrize("prior", [0.03, 0.5, 0.9])
def test_the_sigmoid_is_the_most_likely_one(scale, prior):
    rng = np.random.default_rng(3)
    codes = (rng.random(300) < prior).astype(int)
    f = rng.standard_normal(300) + 2 * codes - 1.3
    weights = rng.uniform(0.5, 3, 300)
    found = calibration.fit(f * scale, codes, weights, 2)

    def value(ab):
        t = ab[0] * f + ab[1]
        return loss(np.column_stack([np.zeros_like(t), t]), codes, weights, 2)

    best = optimize.minimize(value, [1.0, 0.0], method="BFGS", options={"gtol": 1e-10})
    assert value([found.slope * scale, found.offset]) <= best.fun * (1 + 1e-10)
    assert found.kind == SIGMOID and np.allclose([found.slope * scale, found.offset], best.x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1.0, 1e6, 1e150])
@pytest.mark.parametrize("k", [3, 7])
def test_the_temperature_is_the_most_likely_one(scale, k):
    rng = np.random.default_rng(k)
    codes = rng.integers(0, k, 400)
    scores = rng.standard_normal((400, k))
    scores[np.arange(400), codes] += 1
    weights = rng.uniform(0.5, 3, 400)
    found = calibration.fit(scores * scale, codes, weights, k)
    best = optimize.minimize_scalar(lambda slope: loss(slope * scores, codes, weights, k), bounds=(0, 100),
                                    method="bounded", options={"xatol": 1e-10})
    assert found.kind == TEMPERATURE and found.slope * scale == pytest.approx(best.x, rel=1e-6)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("how", ["zeros", "equal", "separated", "reversed", "outlier", "tiny"])
def test_no_scores_fail(k, how):
    codes = np.arange(60) % k
    scores = {"zeros": np.zeros((60, k)), "equal": np.full((60, k), 3.5), "separated": 10.0 * np.eye(k)[codes],
              "reversed": -1.0 * np.eye(k)[codes], "tiny": 1e-300 * np.eye(k)[codes],
              "outlier": np.vstack([np.eye(k)[codes][:-1], [[1e12, *[0] * (k - 1)]]])}[how]
    for ranks in [scores] + [scores[:, 1] - scores[:, 0]] * (k == 2):
        found = calibration.fit(ranks, codes, np.ones(60), k).check(k)
        if how in ("zeros", "equal", "reversed"):
            assert found.slope == pytest.approx(0, abs=1e-9)
        if how == "separated":
            assert found.slope > 0
        p = found.probabilities(ranks, np.argmax(scores, axis=1))
        assert np.isfinite(p).all() and np.allclose(p.sum(axis=1), 1)
        assert (p.argmax(axis=1) == np.argmax(scores, axis=1)).all()


def test_reversed_scores_give_the_mean_of_the_targets():
    codes = np.array([0] * 30 + [1] * 10)
    found = calibration.fit(np.where(codes == 1, -1.0, 1.0), codes, np.ones(40), 2)
    mean = (10 * 11 / 12 + 30 / 32) / 40
    assert found.slope == 0 and found.offset == pytest.approx(np.log(mean / (1 - mean)))


def test_a_weight_is_a_row_given_so_often():
    rng = np.random.default_rng(5)
    for k in (2, 4):
        codes, scores, times = rng.integers(0, k, 80), rng.standard_normal((80, k)), rng.integers(1, 4, 80)
        scores[np.arange(80), codes] += 1
        once = calibration.fit(scores, codes, times.astype(float), k)
        often = calibration.fit(np.repeat(scores, times, axis=0), np.repeat(codes, times), np.ones(times.sum()), k)
        assert np.allclose(once[1:], often[1:], rtol=1e-7)


NEAR = [0.0, -0.0, 5e-324, -5e-324, 1e-17, -1e-17, 1e-3, -1e-3, 0.5, -0.5, 40.0, -40.0, 1e300, -1e300]


@pytest.mark.parametrize("slope", [0.0, 1e-300, 0.5, 3.0, 1e300])
@pytest.mark.parametrize("offset", [-2.0, -1e-17, 0.0, 0.3, 800.0])
def test_the_sigmoid_is_decided_at_zero(slope, offset):
    model = ml.Model(np.ones((1, 1)), [-1, 1], calibration=Calibration(SIGMOID, slope, offset))
    f = np.array(NEAR)
    p = model.proba_of(f)
    assert (model.classes[p.argmax(axis=1)] == model.labels_of(f)).all()
    assert np.allclose(p.sum(axis=1), 1, rtol=0, atol=1e-15) and (p >= 0).all()
    order = np.argsort(f, kind="stable")
    assert (np.diff(p[order, 1]) >= 0).all()
    with np.errstate(over="ignore"):
        platt = 1 / (1 + np.exp(-(slope * f + offset)))
    agrees = (platt > 0.5) == (f > 0)
    assert np.allclose(p[agrees, 1], platt[agrees])
    # Else the nearest that agrees.
    assert set(p[~agrees, 1]) <= {0.5, np.nextafter(0.5, 1)}


@pytest.mark.parametrize("kind, slopes", [(TEMPERATURE, [0.0, 1e-300, 1.0, 1e300]), (LOGISTIC, [1.0])])
def test_ties_and_near_ties_of_several_classes(kind, slopes):
    ulp = np.nextafter(1.0, 2.0)
    scores = np.array([[1, 1, 1], [1, ulp, 1], [1, 1, ulp], [0, 5e-324, 0], [-1, -800, 300], [50, 50.1, 0],
                       [-1e300, 1e300, 0], [-900, -900.1, -899.9], [1e300, 1e300, -1e300]])
    for slope in slopes:
        model = ml.Model(np.ones((1, 3)), [1, 2, 3], calibration=Calibration(kind, slope).check(3))
        p = model.proba_of(scores)
        assert np.isfinite(p).all() and np.allclose(p.sum(axis=1), 1, rtol=0, atol=1e-12)
        assert (model.classes[p.argmax(axis=1)] == model.labels_of(scores)).all()


@pytest.mark.parametrize("name", list(registry.methods()))
@pytest.mark.parametrize("k", [2, 3])
def test_every_method_has_probabilities(name, k):
    X, y = sample(k, m=60)
    plain = ml.train(X, y, solver=name, tol=0.1)
    model = ml.train(X, y, solver=name, tol=0.1, probability=True)
    assert np.array_equal(plain.weights, model.weights) and plain.calibration is None
    p = model.predict_proba(X)
    assert p.shape == (60, k) and (p >= 0).all() and np.allclose(p.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert (model.classes[p.argmax(axis=1)] == model.predict(X)).all()
    assert np.array_equal(p, model.proba_of(model.decision_function(X)))
    copy = pickle.loads(pickle.dumps(model))
    assert copy.calibration == model.calibration and np.array_equal(copy.predict_proba(X), p)


@pytest.mark.parametrize("solver, options, k", [
    ("l2svc", {"bias": 1.0}, 2), ("mcodm", {}, 2), ("mcodm", {}, 3), ("ldm", {}, 3),
    ("ldm", {"multiclass": "ovo"}, 3), ("odm", {"multiclass": "ecoc"}, 5), ("cs", {"kernel": "rbf"}, 3)])
def test_the_scores_are_out_of_fold(solver, options, k):
    X, y = sample(k)
    weights = np.where(np.arange(len(y)) % 4, 1.0, 2.0)
    given = {"solver": solver, "class_weight": {LABELS[k][0]: 2.0}, **options}
    model = ml.train(X, y, sample_weight=weights, seed=3, probability=True, **given)
    codes = np.searchsorted(model.classes, y)
    folds = stratified_folds(codes, 5, 3)
    parts = [None] * len(y)
    for fold in range(5):
        there = folds != fold
        part = ml.train(X[there], y[there], sample_weight=weights[there], seed=3, **given)
        ranks = part._ranks(part.decision_function(X[~there]))
        for row, rank in zip(np.flatnonzero(~there), ranks, strict=True):
            parts[row] = rank
    assert model.calibration == calibration.fit(np.array(parts), codes, weights, k)


def test_precomputed_kernels():
    X, y = sample(3, m=60)
    by_rows = ml.train(X, y, solver="cs", kernel="linear", probability=True)
    by_matrix = ml.train(X @ X.T, y, solver="cs", kernel="precomputed", probability=True)
    assert by_matrix.calibration.slope == pytest.approx(by_rows.calibration.slope, rel=1e-2)
    assert np.allclose(by_matrix.predict_proba(X @ X.T), by_rows.predict_proba(X), atol=0.02)


def test_softmax_is_a_model_of_probabilities():
    X, y = sample(3)
    model = ml.train(X, y, solver="softmax", probability=True)
    s = model.decision_function(X)
    assert np.allclose(model.predict_proba(X), np.exp(s) / np.exp(s).sum(axis=1, keepdims=True))
    assert model.calibration == Calibration(TEMPERATURE)
    X, y = sample(2)
    assert ml.train(X, y, solver="softmax", probability=True).calibration == Calibration(SIGMOID)


def test_better_than_the_scores_by_themselves():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((2000, 3))
    y = (rng.random(2000) < 1 / (1 + np.exp(-(3 * X[:, 0] - X[:, 1] - 1)))).astype(int)
    model = ml.train(X[:1000], y[:1000], solver="l1svc", bias=1.0, probability=True)
    p = model.predict_proba(X[1000:])[:, 1]
    true = 1 / (1 + np.exp(-(3 * X[1000:, 0] - X[1000:, 1] - 1)))
    assert np.abs(p - true).mean() < 0.05


def test_few_rows_of_a_class():
    X, y = sample(3, m=30)
    y[y == 7] = 1
    y[:2] = 9
    assert len(ml.train(X, y, probability=True).classes) == 3
    with pytest.raises(ValueError, match="probability needs at least 2 rows of each class: label 9 has 1"):
        ml.train(X[1:], y[1:], probability=True)
    assert ml.train(X[1:], y[1:]).calibration is None


def test_progress_names_the_fold():
    X, y = sample(3)
    seen = []
    ml.train(X, y, probability=True, progress=seen.append)
    assert {check.get("fold") for check in seen} == {None, 1, 2, 3, 4, 5}


def test_refusals():
    X, y = sample(2)
    model = ml.train(sparse.csr_array(X), y)
    for call in (lambda: model.predict_proba(X), lambda: model.proba_of(np.zeros(3))):
        with pytest.raises(ValueError, match="train it with probability=True"):
            call()
    with pytest.raises(ValueError, match="probability = 'yes' is not allowed"):
        ml.train(X, y, probability="yes")


@pytest.mark.parametrize("k, wrong, words", [
    (2, Calibration(TEMPERATURE), "for 2 classes it is sigmoid"),
    (3, Calibration(SIGMOID), "temperature or logistic"),
    (2, Calibration(SIGMOID, -1.0), "slope is -1"),
    (2, Calibration(SIGMOID, np.nan), "slope is nan"),
    (2, Calibration(SIGMOID, np.inf), "slope is inf"),
    (2, Calibration(SIGMOID, 1.0, np.inf), "offset is inf"),
    (3, Calibration(TEMPERATURE, 1.0, 2.0), "offset is 2"),
    (3, Calibration(LOGISTIC, 2.0), "slope is 2"),
    (3, Calibration("platt"), "platt"),
])
def test_domains(k, wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong.check(k)
