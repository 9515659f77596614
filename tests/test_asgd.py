"""Averaged stochastic gradient descent: its steps against plain NumPy, its bound, and ldm-asgd against ldm."""

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import registry
from marginlinear._core.asgd import AveragedSGD
from marginlinear.data.arrays import as_rows
from marginlinear.problem import Problem, Run


def problem(m=40, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d))
    X[m // 2] = 0
    y = (X @ rng.standard_normal(d) + rng.standard_normal(m) > 0).astype(np.int32)
    weight, hinge = rng.uniform(0.5, 2, m), rng.uniform(1, 30, m)
    return X, y, weight, hinge


def objective(w, X, y, weight, hinge, pull, spread):
    g = np.where(y == 1, 1, -1) * (X @ w)
    p = weight / weight.sum()
    mean = p @ g
    return w @ w / 2 + p @ (hinge * np.maximum(0, 1 - g)) - pull * mean + spread * (p @ (g - mean) ** 2)


@pytest.mark.parametrize("eta0", [0.01, 0.9])
@pytest.mark.parametrize("pull, spread", [(0.0, 0.0), (0.7, 0.0), (0.2, 0.4)])
def test_steps(pull, spread, eta0):
    """The lazily scaled steps are the plain ones: the same draws, w and its average held as they are."""
    X, y, _, hinge = problem()
    m = len(y)
    engine = AveragedSGD(as_rows(X, -1.0), y, np.ones(m), hinge, pull=pull, spread=spread, seed=3)
    draws = AveragedSGD(as_rows(X, -1.0), y, np.ones(m), hinge, pull=pull, spread=spread, seed=3)
    sign = np.where(y == 1, 1.0, -1.0)
    w, average, terms, t = np.zeros(X.shape[1]), 0.0, 0, 0
    for _ in range(4):
        order = draws.draw(m)
        other = draws.draw(m) if spread else order
        for i, j in zip(order, other, strict=True):
            g = sign[i] * (X[i] @ w)
            factor = -pull - hinge[i] * (g < 1) + 2 * spread * (g - sign[j] * (X[j] @ w))
            eta = eta0 / (1 + eta0 * t) ** 0.75
            w = (1 - eta) * w - eta * factor * sign[i] * X[i]
            t += 1
            if t > m + 7:
                terms += 1
                average = average + (w - average) / terms
        engine.epoch(eta0, m + 7)
    assert (engine.visits, engine.averaged) == (t, terms)
    assert np.allclose(engine.weights(), average, rtol=1e-9, atol=1e-9 * abs(average).max())
    assert engine.met.sum() == terms


def test_gradients_are_unbiased():
    """Their mean over all pairs of rows, by probability, is the derivative of P."""
    X, y, weight, hinge = problem()
    w = np.random.default_rng(1).standard_normal(X.shape[1])
    pull, spread = 0.3, 0.6
    sign, p = np.where(y == 1, 1.0, -1.0), weight / weight.sum()
    g = sign * (X @ w)
    factor = 2 * spread * (g[:, None] - g) - pull - (hinge * (g < 1))[:, None]
    mean = w + (p[:, None] * p * factor).sum(axis=1) * sign @ X
    terms = X, y, weight, hinge, pull, spread
    for part, e in zip(mean, np.eye(len(w)) * 1e-6, strict=True):
        slope = (objective(w + e, *terms) - objective(w - e, *terms)) / 2e-6
        assert part == pytest.approx(slope, rel=1e-4, abs=1e-5)


def test_objective_and_certificate():
    """The certificate holds at any weights, for any part of the hinge's range, and is 0 at the optimum."""
    X, y, weight, hinge = problem()
    pull, spread = 0.3, 0.6
    engine = AveragedSGD(as_rows(X, -1.0), y, weight, hinge, pull=pull, spread=spread)
    size = weight.sum()
    # h_i p_i = C_i: every row is an instance of weight `weight`, of a class of its own.
    run = Run(tol=1e-12, algorithm="auto", max_iter=10**6, time_limit=20, seed=0, threads=1)
    exact = registry.get("ldm").fit(
        Problem(as_rows(X, -1.0), y, 2, weight, hinge / size),
        {"C": 1.0, "lambda1": spread / 2, "lambda2": pull}, run)
    best, least = np.asarray(exact.weights)[:, 0], exact.info.objective
    rng = np.random.default_rng(2)
    for w in (best, np.zeros(len(best)), best + rng.standard_normal(len(best))):
        margins = engine.margins(w)
        value = engine.objective(w, margins)
        assert value == pytest.approx(objective(w, X, y, weight, hinge, pull, spread), rel=1e-12)
        for active in (np.zeros(len(y)), np.ones(len(y)), rng.random(len(y)), (margins < 1).astype(float)):
            assert engine.certificate(w, margins, active) >= (value - least) * (1 - 1e-9) - 1e-9 * least
    margins = engine.margins(best)
    p, sign = weight / size, np.where(y == 1, 1.0, -1.0)
    dual = exact.state["duals"] / weight * size - pull + 2 * spread * (margins - p @ margins)
    active = np.clip(dual / hinge, 0, 1)
    assert engine.certificate(best, margins, active) <= 1e-6 * least
    assert np.allclose(engine.combination(p), (p * sign) @ X)


def test_draws_follow_the_weights():
    """Row i comes as often as its weight says, rounded up or down; a weight of 0 never."""
    X, y, weight, hinge = problem()
    weight[::5] = 0
    engine = AveragedSGD(as_rows(X, -1.0), y, weight, hinge, pull=0.0, spread=0.0, seed=1)
    orders = [engine.draw(1000) for _ in range(20)]
    for order in orders:
        apart = np.bincount(order, minlength=len(y)) - 1000 * weight / weight.sum()
        assert abs(apart).max() < 1
    assert not np.array_equal(orders[0], orders[1])
    assert not np.isin(np.flatnonzero(weight == 0), orders).any()
    equal = AveragedSGD(as_rows(X, -1.0), y, np.ones(40), hinge, pull=0.0, spread=0.0)
    assert sorted(equal.draw(40)) == list(range(40))


def text_like(m=4000, d=500, seed=0):
    """Sparse rows of norm 1, two overlapping classes."""
    rng = np.random.default_rng(seed)
    X = sparse.random_array((m, d), density=0.03, random_state=rng, format="csr")
    X = sparse.csr_array(X / np.maximum(1e-9, sparse.linalg.norm(X, axis=1))[:, None])
    y = X @ rng.standard_normal(d) + 0.1 * rng.standard_normal(m) > 0
    return X, y.astype(int)


@pytest.mark.parametrize("C", [0.1, 1.0])
@pytest.mark.parametrize("lambda1", [0.0, 0.25, 100.0])
def test_five_epochs_come_near_the_optimum(C, lambda1):
    X, y = text_like()
    means = {"C": C, "lambda1": lambda1, "lambda2": 0.25}
    exact = ml.train(X, y, solver="ldm", tol=1e-5, **means).info
    for seed in range(3):
        info = ml.train(X, y, solver="ldm-asgd", seed=seed, **means).info
        assert info.status in ("finished", "converged")
        assert info.n_iter <= 5
        assert info.bound <= exact.objective
        assert exact.bound <= info.objective <= 1.04 * exact.objective
        assert info.certificate <= 0.3 * info.objective


def test_more_epochs_come_nearer():
    X, y = text_like()
    found = [ml.train(X, y, solver="ldm-asgd", epochs=epochs).info for epochs in (1, 4, 16, 64)]
    assert [info.n_iter for info in found] == [1, 4, 16, 64]
    objectives = [info.objective for info in found]
    assert objectives == sorted(objectives, reverse=True)
    assert found[-1].certificate < found[0].certificate / 5
    # Enough of them reach a tolerance, and then stop.
    info = ml.train(X, y, solver="ldm-asgd", epochs=10**6, tol=0.02).info
    assert info.converged
    assert info.n_iter < 10**6


def test_parameters():
    X, y = text_like(m=500)
    small, searched = (ml.train(X, y, solver="ldm-asgd", **given).info for given in ({"eta0": 1e-9}, {}))
    assert small.objective > searched.objective
    with pytest.warns(ml.ConvergenceWarning, match="max_iter"):
        assert ml.train(X, y, solver="ldm-asgd", epochs=10, max_iter=3).info.n_iter == 3
    for wrong in ({"epochs": 0}, {"eta0": 0.0}, {"eta0": 1.0}, {"algorithm": "cd"}, {"lambda1": -1.0}):
        with pytest.raises(ValueError, match=r" is not "):
            ml.train(X, y, solver="ldm-asgd", **wrong)
    with pytest.raises(TypeError, match="kernel"):
        ml.train(X, y, solver="ldm-asgd", kernel="rbf")


def test_no_step_goes_beyond_where_rows_are_empty():
    info = ml.train(np.array([[0.0, 0.0]] * 3 + [[1.0, 0.0]]), np.array([0, 1, 0, 1]), solver="ldm-asgd").info
    assert np.isfinite([info.objective, info.bound]).all()
