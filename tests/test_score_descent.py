"""L-BFGS in the rows' scores: softmax and ism3 at p = 2 of fewer rows than features."""

import numpy as np
import oracles
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear._core.rows import Rows
from marginlinear._core.smooth import SmoothLoss
from marginlinear.algorithms.pairwise import lbfgs

LOSSES = ["logistic", "softmax"]


def data(seed, m=14, d=20, k=3):
    """Fewer rows than features, two of them the same."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d)) * (rng.random((m, d)) < 0.5)
    X[1] = X[0]
    y = rng.integers(k, size=m)
    y[2 : 2 + k] = np.arange(k)
    return X, y


@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("seed", range(6))
def test_softmax_against_scipy(seed, storage):
    k, C = 2 + seed % 3, (0.1, 2.0, 50.0)[seed % 3]
    X, y = data(seed, k=k)
    weights = np.random.default_rng(seed).integers(0, 4, len(y)).astype(float)
    model = ml.train(storage(X), y, solver="softmax", C=C, tol=1e-9, sample_weight=weights)
    best = oracles.minimal_pairs(X, y, k, C * weights, "softmax", 0, 2, 0.5, 0.0, bias=False)
    value = oracles.pairs_objective(model.coef.T, np.zeros(k), X, y, C * weights, "softmax", 0, 2, 0.5, 0.0)
    assert (model.info.status, model.info.algorithm) == ("converged", "lbfgs")
    assert model.info.objective == pytest.approx(value, rel=1e-11)
    assert abs(value - best) <= 1e-8 * best
    assert value - best <= model.info.certificate + 1e-10 * value
    assert abs(model.coef.sum(axis=0)).max() <= 1e-12 * abs(model.coef).max()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", [0.5, 2.0])
def test_ism3_with_a_bias_against_scipy(loss, bias):
    """The bias has a curvature of its own, eps."""
    X, y = data(3)
    lam, eps = 0.02, 1e-3
    model = ml.train(X, y, solver="ism3", loss=loss, norm=2, lambda_=lam, eps=eps, bias=bias, tol=1e-9)
    best = oracles.minimal_pairs(X, y, 3, np.ones(len(y)), loss, lam, 2, eps, 0.0)
    assert (model.info.status, model.info.algorithm) == ("converged", "lbfgs")
    assert abs(model.info.objective - best) <= 1e-8 * best


def test_a_start_is_taken_up():
    """Along C, and where the start is the solution."""
    X, y = data(5, m=40, d=200)
    first = ml.train(X, y, solver="softmax", C=1.0, tol=1e-10)
    again = ml.train(X, y, solver="softmax", C=1.0, tol=1e-8, start=first)
    near = ml.train(X, y, solver="softmax", C=1.1, tol=1e-8, start=first)
    cold = ml.train(X, y, solver="softmax", C=1.1, tol=1e-8)
    assert again.info.n_iter == 0
    assert near.info.n_iter < cold.info.n_iter
    assert near.info.objective == pytest.approx(cold.info.objective, rel=1e-7)


def test_newton_goes_on_where_it_crawls(monkeypatch):
    monkeypatch.setattr(lbfgs, "PATIENCE", 1)
    X, y = data(1, m=40, d=60)
    X *= 10.0 ** np.linspace(-3, 3, X.shape[1])
    model = ml.train(X, y, solver="softmax", C=10, tol=1e-9)
    best = oracles.minimal_pairs(X, y, 3, np.full(len(y), 10.0), "softmax", 0, 2, 0.5, 0.0, bias=False)
    assert (model.info.status, model.info.algorithm) == ("converged", "newton")
    assert abs(model.info.objective - best) <= 1e-8 * best


def test_steps_are_counted_and_capped():
    X, y = data(2, m=40, d=200)
    full = ml.train(X, y, solver="softmax", C=100, tol=1e-8).info
    with pytest.warns(ml.ConvergenceWarning):
        some = ml.train(X, y, solver="softmax", C=100, tol=1e-8, max_iter=2).info
    assert some.n_iter == 2 < full.n_iter
    assert full.objective <= some.objective
    assert some.objective - some.certificate <= full.objective
    assert [entry["n_iter"] for entry in full.history] == list(range(full.n_iter + 1))


@pytest.mark.parametrize("threads", [2, 3])
def test_same_bits_for_any_number_of_threads(threads):
    X, y = data(4, m=60, d=5000, k=3)
    one, other = (ml.train(sparse.csr_array(X), y, solver="softmax", tol=1e-6, threads=n) for n in (1, threads))
    assert one.weights.tobytes() == other.weights.tobytes()


@pytest.mark.parametrize("loss", [*LOSSES, "hinge"])
def test_value_at_scores(loss):
    """The value of the weights that the scores are of, and residuals that make its gradient."""
    X, y = data(0)
    rng = np.random.default_rng(0)
    W, cost = rng.standard_normal(X.shape[1] * 3), rng.uniform(0, 2, len(y))
    terms = SmoothLoss(Rows.from_dense(X, -1.0), y.astype(np.int32), 3, cost, loss=loss, width=0.1)
    gradient, mine = np.empty_like(W), np.empty_like(W)
    value = terms.value_and_gradient(W, gradient)
    S = terms.scores(W)
    assert terms.value_at(S) == value
    terms.combine(S, mine)
    assert np.array_equal(mine, gradient)
