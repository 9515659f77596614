"""topk against a quadratic program, its limits, and the metric that it is for."""

from pathlib import Path

import numpy as np
import oracles
import pytest

import marginlinear as ml

DATA = Path(__file__).parent.parent / "data"


def objective(W, X, y, cost, K):
    scores, rows = X @ W, np.arange(len(y))
    values = 1 - scores[rows, y][:, np.newaxis] + scores
    values[rows, y] = 0
    return 0.5 * (W**2).sum() + cost @ np.maximum(0, np.sort(values, axis=1)[:, -K:].mean(axis=1))


@pytest.mark.parametrize("seed", range(10))
def test_certified_against_a_qp(seed):
    rng = np.random.default_rng(seed)
    m, k = 25, 3 + seed % 4
    y = np.append(np.arange(k), rng.integers(0, k, m - k))
    X = rng.standard_normal((m, 3)) + rng.standard_normal((k, 3))[y]
    X[5], X[7], y[7] = 0, X[6], (y[6] + 1) % k
    weight, C, K = rng.uniform(0.3, 2, m), 10.0 ** rng.uniform(-2, 1), 1 + seed % (k - 1 + seed % 2)
    best = oracles.minimal_topk(X, y, k, C * weight, K)
    for algorithm in ("auto", "cd", "accelerated"):
        model = ml.train(X, y, solver="topk", C=C, K=K, sample_weight=weight, algorithm=algorithm, tol=1e-10,
                         max_iter=10**6)
        info = model.info
        assert info.converged
        assert info.objective == pytest.approx(objective(model.coef.T, X, y, C * weight, K), rel=1e-10)
        assert info.objective == pytest.approx(best, rel=1e-9)
        assert info.bound <= best * (1 + 1e-11)


def test_one_of_them_is_crammer_and_singers():
    X, y = ml.load_libsvm(DATA / "vehicle")
    one, cs = ml.train(X, y, solver="topk", C=0.5, K=1, tol=1e-7), ml.train(X, y, solver="cs", C=0.5, tol=1e-7)
    assert (one.weights == cs.weights).all() and one.info.algorithm == cs.info.algorithm == "newton"
    # The default is one less than there are classes, of no more than five of them.
    three = ml.train(X, y, solver="topk", C=0.5, tol=1e-7)
    assert (three.weights == ml.train(X, y, solver="topk", C=0.5, tol=1e-7, K=3).weights).all()
    again = ml.train(X, y, solver="topk", C=1.0, K=2, tol=1e-7, start=three)
    cold = ml.train(X, y, solver="topk", C=1.0, K=2, tol=1e-7)
    assert again.info.objective == pytest.approx(cold.info.objective, rel=2e-7)


def test_what_is_refused():
    with pytest.raises(ValueError, match="K = 4 is not allowed: give 1 to the number of classes, 3"):
        ml.train(np.eye(3), [0, 1, 2], solver="topk", K=4)


def test_the_metric():
    X, y = ml.load_libsvm(DATA / "news20.test")
    found = {metric: ml.cross_validate(X, y, solver="topk", folds=3, metric=metric) for metric in
             ("accuracy", "top3", "top5", "top10")}
    values = [found[metric].score for metric in found]
    assert values == sorted(values) and values[0] < values[1] < values[3]
    scores = found["top5"].scores
    rank = (-scores).argsort(axis=1)[:, :5]
    places = np.searchsorted(np.unique(y), y)
    assert found["top5"].score == pytest.approx((rank == places[:, np.newaxis]).any(axis=1).mean(), abs=2e-3)
