"""smlr against SciPy, l1lr and its certificate in NumPy."""

from pathlib import Path

import numpy as np
import pytest
from scipy import optimize

import marginlinear as ml

DATA = Path(__file__).parent.parent / "data"


def problem(m=150, d=8, k=4):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(m, d))
    y = (X @ rng.normal(size=(d, k)) + rng.gumbel(size=(m, k))).argmax(axis=1)
    return X, y, rng.uniform(0.5, 2.0, m)


def objective(W, X, y, cost, ratio):
    S = X @ W
    losses = np.logaddexp.reduce(S, axis=1) - S[np.arange(len(y)), y]
    return ratio * abs(W).sum() + (1 - ratio) / 2 * (W * W).sum() + cost @ losses


def least(X, y, k, cost, ratio):
    """P*, of W = U - V with U, V >= 0."""
    d = X.shape[1]

    def value(v):
        W = v[:d * k].reshape(d, k) - v[d * k:].reshape(d, k)
        S = X @ W
        p = np.exp(S - np.logaddexp.reduce(S, axis=1)[:, None])
        p[np.arange(len(y)), y] -= 1
        slope = ((X.T * cost) @ p + (1 - ratio) * W).ravel()
        total = objective(W, X, y, cost, 0) - 0.5 * (W * W).sum() + (1 - ratio) / 2 * (W * W).sum() + ratio * v.sum()
        return total, np.concatenate((slope + ratio, ratio - slope))

    return optimize.minimize(value, np.full(2 * d * k, 0.01), jac=True, bounds=[(0, None)] * (2 * d * k),
                             method="L-BFGS-B", options={"maxiter": 20000, "maxfun": 100000, "ftol": 1e-15,
                                                         "gtol": 1e-9}).fun


@pytest.mark.parametrize("C", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_the_optimum_is_between_bound_and_objective(C, ratio):
    X, y, weights = problem()
    model = ml.train(X, y, solver="smlr", C=C, l1_ratio=ratio, sample_weight=weights, tol=1e-9)
    info = model.info
    assert info.converged
    assert info.objective == pytest.approx(objective(model.coef.T, X, y, C * weights, ratio), rel=1e-12)
    optimum = least(X, y, 4, C * weights, ratio)
    assert info.bound <= optimum + 1e-11 * optimum
    assert info.objective <= optimum + 1e-9 * max(1.0, optimum)
    # The bound is that of distributions over the classes, each feature within its bound.
    S = X @ model.coef.T
    p = np.exp(S - np.logaddexp.reduce(S, axis=1)[:, None])
    U = X.T @ (C * weights[:, None] * (np.eye(4)[y] - p))
    if ratio == 1:
        share = min(1.0, 1 / abs(U).max())
        q = share * p + (1 - share) * np.eye(4)[y]
        dual = (C * weights) @ -np.where(q > 0, q * np.log(np.maximum(q, 1e-300)), 0.0).sum(axis=1)
        assert dual <= info.bound + 1e-8 * optimum


def test_a_cost_that_is_too_small_leaves_no_weight():
    X, y, _ = problem()
    least_cost = 1 / abs(X.T @ (np.eye(4)[y] - 0.25)).max()
    model = ml.train(X, y, solver="smlr", C=0.99 * least_cost)
    assert model.info.converged
    assert not model.coef.any()
    assert ml.train(X, y, solver="smlr", C=1.1 * least_cost, tol=1e-6).coef.any()


def test_of_two_classes_half_the_weights_of_l1lr():
    """w_2 = -w_1 costs as much as w_2 - w_1 does: |w| = |w/2| + |-w/2|."""
    X, y, _ = problem()
    both = ml.train(X, y > 1, solver="smlr", C=0.5, tol=1e-9).info
    one = ml.train(X, y > 1, solver="l1lr", C=0.5, tol=1e-9).info
    assert both.objective == pytest.approx(one.objective, rel=1e-8)


def test_files_and_probabilities(tmp_path):
    X, y = ml.load_libsvm(DATA / "dna")
    model = ml.train(X, y, solver="smlr", bias=1.0)
    assert model.info.converged
    ml.save_model(model, tmp_path / "m")
    loaded = ml.load_model(tmp_path / "m")
    assert np.array_equal(loaded.predict(X), model.predict(X))
    p = np.exp(model.decision_function(X))
    assert np.allclose(loaded.predict_proba(X), p / p.sum(axis=1, keepdims=True))
    warm = ml.train(X, y, solver="smlr", bias=1.0, C=1.1, start=model)
    assert warm.info.converged
    assert warm.info.objective <= model.info.objective * 1.1
