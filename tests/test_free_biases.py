"""Several classes whose biases cost nothing: softmax and smlr against SciPy, their certificates in NumPy."""

from pathlib import Path

import numpy as np
import pytest
from scipy import optimize

import marginlinear as ml
from marginlinear.algorithms.free_biases import best_biases

DATA = Path(__file__).resolve().parent.parent / "data"
K, D = 4, 6


def problem(m=150):
    """Rows far from 0, and classes of different sizes: the biases are large."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(m, D)) + 2.0
    scores = (X - 2) @ rng.normal(size=(D, K)) + rng.gumbel(size=(m, K)) + [0, 1, 2, 0]
    return X, scores.argmax(axis=1), rng.uniform(0.5, 2.0, m)


def losses(S, y, cost):
    return cost @ (np.logaddexp.reduce(S, axis=1) - S[np.arange(len(y)), y])


def shares(S, y):
    """[l = y_i] - p_il"""
    return np.eye(S.shape[1])[y] - np.exp(S - np.logaddexp.reduce(S, axis=1)[:, np.newaxis])


def least(X, y, cost, ratio):
    """P*, of W = U - V with U, V >= 0."""
    size = D * K

    def value(v):
        U, V, b = v[:size].reshape(D, K), v[size:2 * size].reshape(D, K), v[2 * size:]
        W, S = U - V, X @ (U - V) + b
        residual = -cost[:, np.newaxis] * shares(S, y)
        slope = X.T @ residual + (1 - ratio) * W
        total = losses(S, y, cost) + ratio * (U + V).sum() + (1 - ratio) / 2 * (W * W).sum()
        return total, np.concatenate(((slope + ratio).ravel(), (ratio - slope).ravel(), residual.sum(axis=0)))

    return optimize.minimize(value, np.r_[np.full(2 * size, 0.01), np.zeros(K)], jac=True,
                             bounds=[(0, None)] * (2 * size) + [(None, None)] * K, method="L-BFGS-B",
                             options={"maxiter": 20000, "maxfun": 100000, "ftol": 1e-15, "gtol": 1e-9}).fun


@pytest.mark.parametrize("C", [0.02, 1.0, 100.0])
@pytest.mark.parametrize(("solver", "ratio"), [("softmax", 0.0), ("smlr", 1.0), ("smlr", 0.4)])
@pytest.mark.parametrize("bias", [1.0, 5.0])
def test_the_optimum_is_between_bound_and_objective(solver, ratio, C, bias):
    X, y, weights = problem()
    given = {"l1_ratio": ratio} if ratio else {}
    model = ml.train(X, y, solver=solver, C=C, free_bias=True, bias=bias, sample_weight=weights, tol=1e-10, **given)
    info, W, S = model.info, model.coef.T, model.decision_function(X)
    assert info.converged
    value = losses(S, y, C * weights) + ratio * abs(W).sum() + (1 - ratio) / 2 * (W * W).sum()
    assert info.objective == pytest.approx(value, rel=1e-10)
    optimum = least(X, y, C * weights, ratio)
    assert info.bound <= optimum + 1e-9 * optimum
    assert info.objective <= optimum + 1e-8 * max(1.0, optimum)
    # The distributions that the bound is made of have the sums that biases ask for.
    assert abs((C * weights) @ shares(S, y)).max() <= 1e-9 * C * weights.sum()
    # And biases that cost have a higher optimum.
    assert info.bound <= ml.train(X, y, solver=solver, C=C, bias=bias, sample_weight=weights, **given).info.objective


@pytest.mark.parametrize("solver", ["softmax", "smlr"])
def test_a_fit_that_is_cut_off_has_a_bound(solver):
    X, y, _ = problem()
    with pytest.warns(ml.ConvergenceWarning, match="max_iter"):
        cut = ml.train(X, y, solver=solver, C=10, free_bias=True, tol=1e-8, max_iter=1)
    whole = ml.train(X, y, solver=solver, C=10, free_bias=True, tol=1e-8)
    assert cut.info.status == "max_iter"
    assert cut.info.bound <= whole.info.objective <= cut.info.objective
    assert whole.info.bound <= cut.info.objective
    assert ml.train(X, y, solver=solver, C=10, free_bias=True, tol=1e-8, start=whole).info.n_iter < whole.info.n_iter


def test_of_two_classes_that_of_logistic():
    X, y, _ = problem()
    X, y = X[y < 2], y[y < 2]
    two = ml.train(X, y, solver="softmax", C=0.5, free_bias=True, tol=1e-9)
    one = ml.train(X, y, solver="logistic", C=1.0, free_bias=True, tol=1e-9)
    assert two.coef[1] - two.coef[0] == pytest.approx(one.coef[0], rel=1e-3, abs=1e-4)
    assert two.intercept[1] - two.intercept[0] == pytest.approx(one.intercept[0], rel=1e-3)
    assert 2 * two.info.objective == pytest.approx(one.info.objective, rel=1e-8)


def test_rows_on_disk(tmp_path):
    X, y = ml.load_libsvm(DATA / "dna")
    model = ml.train(X, y, solver="softmax", free_bias=True, tol=1e-6)
    paged = ml.train(ml.Store.write([(X, y)], tmp_path / "rows"), solver="softmax", free_bias=True, tol=1e-6)
    assert model.info.converged
    assert paged.info.converged
    assert paged.info.bound <= model.info.objective
    assert model.info.bound <= paged.info.objective


@pytest.mark.parametrize("spread", [0.1, 30.0])
def test_best_biases(spread):
    rng = np.random.default_rng(1)
    scores, y, cost = spread * rng.normal(size=(90, 3)), np.arange(90) % 3, rng.uniform(0.1, 9, 90)
    b = best_biases(scores, y, cost)
    assert abs(cost @ shares(scores + b, y)).max() <= 1e-12 * cost.sum()
    assert abs(b.sum()) <= 1e-9
