"""Calibrations against an oracle, and the rule that the largest probability is that of the predicted class."""

import pickle
import signal
import time
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, sparse

import marginlinear as ml
from marginlinear import calibration, registry
from marginlinear.api import ModelFit
from marginlinear.calibration import LOGISTIC, PAIRWISE, SIGMOID, TEMPERATURE, Calibration
from marginlinear.data.arrays import as_rows
from marginlinear.data.canonical import merged
from marginlinear.data.codes import codes_of
from marginlinear.data.folds import stratified_folds

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
    """Those of Platt for two classes; of more, all rows together are counted."""
    n = np.array([weights[codes == label].sum() for label in range(k)])[codes] if k == 2 else np.full(
        len(codes), weights.sum())
    found = np.repeat(1 / (n + 2)[:, None] / (k - 1), k, axis=1)
    found[np.arange(len(codes)), codes] = (n + 1) / (n + 2)
    return found


def loss(logits, codes, weights, k):
    """Cross-entropy with these targets."""
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


NEAR = np.array([0.0, -0.0, 5e-324, -5e-324, 1e-320, -1e-320, 1e-17, -1e-17, 1e-3, -1e-3, 0.5, -0.5, 40.0, -40.0, 1e300,
                 -1e300, 1.7e308, -1.7e308])


def assert_decided(p, places):
    """Each row of p is a distribution whose only largest is that of its place: in whatever order the columns stand."""
    assert np.isfinite(p).all() and (p >= 0).all() and np.allclose(p.sum(axis=1), 1, rtol=0, atol=1e-12)
    rest = p.copy()
    rest[np.arange(len(p)), places] = -1
    assert (p[np.arange(len(p)), places] > rest.max(axis=1)).all()


@pytest.mark.parametrize("slope", [0.0, 1e-300, 0.5, 3.0, 1e300])
@pytest.mark.parametrize("offset", [-2.0, -1e-17, 0.0, 0.3, 800.0, -1e300])
def test_the_sigmoid_is_decided_at_zero(slope, offset):
    model = ml.Model(np.ones((1, 1)), [-1, 1], calibration=Calibration(SIGMOID, slope, offset))
    p = model.proba_of(NEAR)
    assert_decided(p, model.places_of(NEAR))
    # Those just above a half are apart from it by the last bit.
    assert (np.diff(p[np.argsort(NEAR, kind="stable"), 1]) >= -np.finfo(float).eps).all()
    with np.errstate(over="ignore"):
        platt = 1 / (1 + np.exp(-(slope * NEAR + offset)))
    agrees = (platt > 0.5) == (NEAR > 0)
    assert np.allclose(p[agrees, 1], platt[agrees])
    # Else the nearest that agrees.
    assert set(p[~agrees, 1]) <= {0.5, np.nextafter(0.5, 1)}
    # Two columns that say the same.
    both = ml.Model(np.ones((1, 2)), [-1, 1], calibration=model.calibration)
    half = NEAR / 2
    assert_decided(both.proba_of(np.column_stack([-half, half])), both.places_of(np.column_stack([-half, half])))


def hostile_scores(k, rng, m=200):
    """Scores with ties, zeros, one step of rounding between them, and magnitudes from 1e-320 to 1e300."""
    scores = rng.choice(NEAR, (m, k))
    scores[: m // 4] = rng.standard_normal((m // 4, 1)) * 10.0 ** rng.integers(-300, 300, (m // 4, 1))
    scores[: m // 8, rng.integers(k)] = np.nextafter(scores[: m // 8, 0], np.inf)
    scores[m // 2 :] = rng.integers(-2, 3, (m - m // 2, k))
    return scores


@pytest.mark.parametrize("k", [3, 4, 26])
@pytest.mark.parametrize("kind, slopes", [(TEMPERATURE, [0.0, 1e-320, 1e-300, 1.0, 7.3, 1e300]), (LOGISTIC, [1.0])])
def test_ties_and_near_ties_of_several_classes(k, kind, slopes):
    rng = np.random.default_rng(k)
    for slope in slopes:
        model = ml.Model(np.ones((1, k)), np.arange(k), calibration=Calibration(kind, slope).check(k))
        scores = hostile_scores(k, rng)
        assert_decided(model.proba_of(scores), model.places_of(scores))


@pytest.mark.parametrize("how", ["ovo", "ecoc"])
@pytest.mark.parametrize("k", [3, 4, 9])
def test_ties_of_votes(how, k):
    codes = codes_of(how, k, 0)
    pairs = codes.shape[1]
    rng = np.random.default_rng(k)
    kinds = [Calibration(TEMPERATURE, slope) for slope in (0.0, 0.4, 1e300)]
    if how == "ovo":
        kinds += [Calibration(PAIRWISE, tuple(rng.standard_normal(pairs) * size), tuple(rng.standard_normal(pairs)))
                  for size in (1e-3, 1.0, 1e3)]
    for found in kinds:
        model = ml.Model(np.ones((1, pairs)), np.arange(k), codes=codes, calibration=found.check(k))
        scores = hostile_scores(pairs, rng)
        assert_decided(model.proba_of(scores), model.places_of(scores))


def test_what_does_not_agree_becomes_the_nearest_that_does():
    """The projection on q_y >= q_l, against SLSQP."""
    rng = np.random.default_rng(0)
    for k in (2, 3, 5):
        p = rng.dirichlet(np.full(k, 0.5), 8)
        places = np.argmin(p, axis=1)
        found = calibration._decided(p.copy(), places)
        assert_decided(found, places)
        for row, place, expected in zip(p, places, found, strict=True):
            rules = [{"type": "eq", "fun": lambda q: q.sum() - 1},
                     {"type": "ineq", "fun": lambda q, place=place: q[place] - q}]
            best = optimize.minimize(lambda q, row=row: ((q - row) ** 2).sum(), np.full(k, 1 / k), method="SLSQP",
                                     constraints=rules, options={"ftol": 1e-14})
            assert np.allclose(best.x, expected, atol=1e-6)


def solved(system, right):
    """The solution of a small linear system by elimination in fractions: exact."""
    rows = [[Fraction(value) for value in (*row, b)] for row, b in zip(system, right, strict=True)]
    n = len(rows)
    for at in range(n):
        pivot = next(i for i in range(at, n) if rows[i][at])
        rows[at], rows[pivot] = rows[pivot], rows[at]
        rows[at] = [value / rows[at][at] for value in rows[at]]
        for i in range(n):
            if i != at and (factor := rows[i][at]):
                rows[i] = [value - factor * other for value, other in zip(rows[i], rows[at], strict=True)]
    return [float(row[-1]) for row in rows]


@pytest.mark.parametrize("k", [3, 4, 7])
def test_coupled_probabilities_are_the_optimum(k, monkeypatch):
    """Where the gradient of sum_i sum_j (r_ji p_i - r_ij p_j)^2 is the same for all classes; some r near 0 and 1."""
    monkeypatch.setattr(calibration, "BLOCK", 3 * (k + 1) ** 2)
    t = np.random.default_rng(k).standard_normal((8, k * (k - 1) // 2)) * np.array([0.0, 0.1, 5, 50] * 2)[:, None]
    r = np.clip(1 / (1 + np.exp(-t)), 1e-7, 1 - 1e-7)
    first, second = np.triu_indices(k, 1)
    for row, p in zip(r, calibration.coupled(r), strict=True):
        full = [[Fraction(0)] * k for _ in range(k)]
        for i, j, value in zip(first, second, row.tolist(), strict=True):
            full[i][j], full[j][i] = Fraction(value), 1 - Fraction(value)
        half_gradient = [[sum(full[l][i] ** 2 for l in range(k)) if i == j else -full[i][j] * full[j][i]
                          for j in range(k)] for i in range(k)]
        system = [[*line, 1] for line in half_gradient] + [[1] * k + [0]]
        exact = np.array(solved(system, [0] * k + [1])[:k])
        assert (exact >= 0).all() and np.allclose(p, exact, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("name", [name for name, method in registry.methods().items() if method.classifies])
@pytest.mark.parametrize("k", [2, 3])
def test_every_method_has_probabilities(name, k):
    X, y = sample(k, m=60)
    plain = ml.train(X, y, solver=name, tol=0.1)
    model = ml.train(X, y, solver=name, tol=0.1, probability=True)
    assert np.array_equal(plain.weights, model.weights)
    assert plain.calibration == (None if registry.get(name).probabilities is None else model.calibration)
    p = model.predict_proba(X)
    assert p.shape == (60, k) and (p >= 0).all() and np.allclose(p.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert (model.classes[p.argmax(axis=1)] == model.predict(X)).all()
    assert np.array_equal(p, model.proba_of(model.decision_function(X)))
    copy = pickle.loads(pickle.dumps(model))
    assert copy.calibration == model.calibration and np.array_equal(copy.predict_proba(X), p)


@pytest.mark.parametrize("solver, options, k", [
    ("l2svc", {"bias": 1.0}, 2), ("mcodm", {}, 2), ("mcodm", {}, 3), ("ldm", {}, 3),
    ("ldm", {"multiclass": "ovo"}, 3), ("odm", {"multiclass": "ecoc"}, 5), ("cs", {"kernel": "rbf"}, 3),
    ("cs", {"kernel": "precomputed"}, 3)])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_scores_are_out_of_fold(monkeypatch, solver, options, k, threads):
    X, y = sample(k)
    weights = np.where(np.arange(len(y)) % 4, 1.0, 2.0)
    square = "precomputed" in options.values()
    X = X @ X.T if square else np.vstack([X, X[:7]])
    y, weights = (y, weights) if square else (np.append(y, y[:7]), np.append(weights, weights[:7]))
    seen = []

    def fit(ranks, y, weights, n_classes):
        seen.extend([ranks, y, weights])
        return fitted(ranks, y, weights, n_classes)

    fitted = calibration.fit
    monkeypatch.setattr(calibration, "fit", fit)
    given = {"solver": solver, "class_weight": {LABELS[k][0]: 2.0}, **options}
    model = ml.train(X, y, sample_weight=weights, seed=3, probability=True, threads=threads, **given)
    # The rows that are repeated are there once, with both weights.
    codes = np.searchsorted(model.classes, y).astype(np.int32)
    which, weights = ((np.arange(len(y)), weights) if square
                      else map(np.asarray, merged(as_rows(X, -1.0), codes, weights)))
    assert len(which) == 120 and weights.sum() == 150 + (not square) * 9
    X, y = X[which], y[which]
    codes = np.searchsorted(model.classes, y)
    folds = stratified_folds(codes, 5, 3)
    ranks = None
    for fold in range(5):
        there = folds != fold
        part = ml.train(X[there][:, there] if square else X[there], y[there], sample_weight=weights[there], seed=3,
                        **given)
        found = part._ranks(part.decision_function(X[~there][:, there] if square else X[~there]))
        ranks = np.empty((len(y), *found.shape[1:])) if ranks is None else ranks
        ranks[~there] = found
    assert all(np.array_equal(*pair) for pair in zip(seen, (ranks, codes, weights), strict=True))
    assert model.calibration == fitted(ranks, codes, weights, k)


@pytest.mark.parametrize("kernel", [None, "rbf"])
@pytest.mark.parametrize("k", [2, 3])
def test_a_weight_is_a_repeated_row_and_0_is_none(kernel, k):
    X, y = sample(k, m=60)
    times = np.random.default_rng(k).integers(0, 3, 60)
    options = {"probability": True, "solver": "cs", "tol": 1e-9, **({"kernel": kernel} if kernel else {})}
    weighted = ml.train(X, y, sample_weight=times, **options)
    order = np.random.default_rng(0).permutation(times.sum())
    repeated = ml.train(np.repeat(X, times, axis=0)[order], np.repeat(y, times)[order], **options)
    if kernel is None:
        assert weighted.calibration == repeated.calibration
        assert np.array_equal(weighted.predict_proba(X), repeated.predict_proba(X))
    else:
        assert np.allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-4)


def test_softmax_is_a_model_of_probabilities():
    X, y = sample(3)
    model = ml.train(X, y, solver="softmax")
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


def test_a_lone_row_of_two_classes():
    X, y = sample(2, m=30)
    y[:] = 1
    y[:2] = 9
    assert ml.train(X, y, probability=True).calibration.kind == SIGMOID
    X[0] = X[1]
    for rows in (slice(None), slice(1, None)):
        with pytest.raises(ValueError, match="probability needs at least 2 different rows of each class: label 9 has"):
            ml.train(X[rows], y[rows], probability=True)
        assert ml.train(X[rows], y[rows]).calibration is None


def test_a_lone_row_of_several_classes_is_learned_from_in_all_folds():
    X, y = sample(5, m=100)
    y[0] = 0
    trained = []

    def kernel(left, right):
        trained.append(len(left) == len(right) and any(np.array_equal(row, X[0]) for row in left))
        return left @ right.T

    ml.train(X, y, kernel=kernel, solver="cs", probability=True, threads=1)
    model = ml.train(X, y, probability=True)
    # By the model, and by those of all five folds.
    assert sum(trained) == 6 and model.predict_proba(X).shape == (100, 6)
    with pytest.raises(ValueError, match="at least 2 different rows of a class: label 1 has 1"):
        ml.train(X[:3], [1, 2, 3], probability=True)


def test_fewer_rows_than_folds():
    X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), [1, 1, 2, 2]
    seen = []
    assert ml.train(X, y, probability=True, callback=seen.append).calibration.kind == SIGMOID
    assert {check.folds for check in seen} == {None, 4}


@pytest.mark.parametrize("threads", [1, 4])
def test_a_callback_is_told_the_fold(threads):
    X, y = sample(3)
    seen = []
    ml.train(X, y, probability=True, callback=seen.append, threads=threads)
    assert {(check.fold, check.folds) for check in seen} == {(None, None), *((i, 5) for i in range(1, 6))}


def test_what_a_callback_raises_ends_the_fits():
    X, y = sample(3)

    def stop(check):
        if check.fold:
            raise RuntimeError("enough")

    for threads in (1, 3):
        with pytest.raises(RuntimeError, match="enough"):
            ml.train(X, y, probability=True, callback=stop, threads=threads)


def test_a_fold_that_cannot_be_trained_is_named():
    # Without the last row a fold's feature goes from 0 to 1e-310.
    X, y = np.array([[0.0], [1e-310], [0.0], [1e-310], [3.0]]), [1, 1, 2, 2, 2]
    for threads in (1, 2):
        with pytest.raises(ValueError, match=r"too near to be scaled \(in fold \d of 5 of the calibration\)"):
            ml.train(X, y, scale="range", probability=True, threads=threads)
    ml.train(X, y, scale="range")


def test_refusals():
    X, y = sample(2)
    model = ml.train(sparse.csr_array(X), y)
    for call in (lambda: model.predict_proba(X), lambda: model.proba_of(np.zeros(3))):
        with pytest.raises(ValueError, match="train it with probability=True"):
            call()
    with pytest.raises(ValueError, match="probability = 'yes' is not allowed"):
        ml.train(X, y, probability="yes")


@pytest.mark.parametrize("k, wrong, words", [
    (2, Calibration(TEMPERATURE), "for 2 classes it is sigmoid or pairwise"),
    (3, Calibration(SIGMOID), "temperature or logistic or pairwise"),
    (2, Calibration(SIGMOID, (1.0,)), r"slope has shape \(1,\)"),
    (3, Calibration(PAIRWISE, (1.0, 2.0, 3.0), 0.0), r"offset has shape \(\): \(3,\) is needed"),
    (3, Calibration(PAIRWISE, (1.0, np.nan, 3.0), (0.0,) * 3), "slope is .*nan"),
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


def test_ctrl_c_in_a_fold(monkeypatch):
    """The model itself is done at once; the folds would take 20 s each."""
    X, y = sample(3)
    fitted = ModelFit.model

    def model(fit, *arguments, **rest):
        fit.run_values["time_limit"] = 20.0 if "threads" in rest else 0.0
        return fitted(fit, *arguments, **rest)

    monkeypatch.setattr(ModelFit, "model", model)
    X = X * 10.0 ** RNG.integers(-3, 3, X.shape[1])
    sent = []

    def interrupt(check):
        if check.fold and not sent:
            sent.append(time.monotonic())
            signal.raise_signal(signal.SIGINT)

    for threads in (1, 2):
        sent.clear()
        with pytest.raises(KeyboardInterrupt):
            ml.train(X, y, solver="cs", C=1e6, tol=1e-15, probability=True, callback=interrupt, threads=threads,
                     algorithm="cd", max_iter=2**31 - 1)
        # 0.2 s on an idle machine.
        assert time.monotonic() - sent[0] < 2
