"""Newton steps over a kernel: the certificate from the formulas, the optimum of the sweeps, what is refused."""

import numpy as np
import oracles
import pytest

import marginlinear as ml
from marginlinear.algorithms import newton

GAMMA, THETA = 0.4, 0.2
METHODS = [("lssvm", {}), ("odm", {}), ("odm", {"mu": 0.0}), ("l2svc", {})]


def problem(m=240, seed=0):
    """Overlapping classes, two equal rows of different ones."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, 4))
    y = (X[:, 0] * X[:, 1] + 0.5 * rng.standard_normal(m) > 0).astype(int)
    X[5], y[5] = X[6], 1 - y[6]
    return X, y


def gap_of(solver, b, K, sign, C, mu):
    """(P, P - D) of the coefficients b, whose duals are a = sign b, from the formulas of the methods."""
    g, a = sign * (K @ b), sign * b
    half = 0.5 * b @ K @ b
    if solver == "odm":
        C, low, high = C / (1 - THETA) ** 2, 1 - THETA, 1 + THETA
        up, down = np.maximum(a, 0), np.maximum(-a, 0)
        primal = C * (np.maximum(0, low - g) ** 2 + mu * np.maximum(0, g - high) ** 2).sum()
        if mu == 0:
            assert down.max() == 0
        dual = (low * up - up**2 / (4 * C) - high * down - (down**2 / (4 * C * mu) if mu else 0)).sum()
    else:
        short = 1 - g if solver == "lssvm" else np.maximum(0, 1 - g)
        assert solver == "lssvm" or a.min() >= 0
        primal, dual = C * (short**2).sum(), (a - a**2 / (4 * C)).sum()
    return half + primal, half + primal - dual + half


# Conjugate gradients are for losses without a flat piece.
@pytest.mark.parametrize(("solver", "params", "limit"), [("lssvm", {}, 10)] + [(*one, 3000) for one in METHODS])
@pytest.mark.parametrize("C", [0.1, 5.0, 1000.0])
def test_certificate(monkeypatch, solver, params, limit, C):
    monkeypatch.setattr(newton, "LIMIT", limit)
    X, y = problem()
    model = ml.train(X, y, solver=solver, kernel="rbf", gamma=GAMMA, C=C, algorithm="newton", tol=1e-6, bias=-1,
                     **params)
    assert (model.info.status, model.info.algorithm) == ("converged", "newton")
    b = np.zeros(len(y))
    b[model.support_indices] = model.dual_coef[:, 0]
    objective, gap = gap_of(solver, b, oracles.rbf(X, X, GAMMA), np.where(y == 1, 1.0, -1.0), C, params.get("mu", 0.8))
    assert model.info.objective == pytest.approx(objective, rel=1e-9)
    assert -1e-9 * objective <= gap <= 1e-6 * max(1, objective)


@pytest.mark.parametrize("C", [0.1, 5.0, 1000.0])
def test_targets(C):
    """Of squares, against the closed form; of squares outside of a band, against sweeps."""
    X, _ = problem()
    z, K = X.sum(axis=1) + np.sin(5 * X[:, 0]), oracles.rbf(X, X, GAMMA)
    known = {"solver": "l2svr", "kernel": "rbf", "gamma": GAMMA, "C": C, "tol": 1e-6, "bias": -1}
    model = ml.train(X, z, epsilon=0.0, algorithm="newton", **known)
    assert (model.info.status, model.info.algorithm) == ("converged", "newton")
    b = np.linalg.solve(K + np.eye(len(z)) / (2 * C), z)
    assert np.allclose(model.predict(X), K @ b, rtol=0, atol=1e-4)
    assert model.info.objective == pytest.approx(b @ z / 2, rel=1e-6)
    steps, sweeps = (ml.train(X, z, epsilon=0.5, algorithm=route, max_iter=10**6, **known).info
                     for route in ("newton", "cd"))
    assert steps.status == sweeps.status == "converged" and steps.n_iter < 20
    assert steps.objective == pytest.approx(sweeps.objective, rel=2e-6)


@pytest.mark.parametrize("C", [0.1, 5.0, 100.0])
@pytest.mark.parametrize(("solver", "params"), METHODS)
def test_optimum_is_that_of_the_sweeps(solver, params, C):
    X, y = problem(seed=1)
    known = {"solver": solver, "kernel": "rbf", "gamma": GAMMA, "C": C, "tol": 1e-8, **params}
    sweeps = ml.train(X, y, algorithm="cd", **known).info
    steps = ml.train(X, y, algorithm="newton", **known).info
    assert sweeps.status == steps.status == "converged"
    assert steps.objective == pytest.approx(sweeps.objective, rel=2e-8)
    assert steps.n_iter < sweeps.n_iter


@pytest.mark.parametrize("C", [0.1, 5.0, 300.0])
@pytest.mark.parametrize(("solver", "params"), [("cs", {}), ("ww", {}), ("mcodm", {"mu": 0.0}), ("mcodm", {})])
def test_joint_methods(solver, params, C):
    """The weights of the duals, the certificate from the formulas and, of convex ones, the optimum of the sweeps."""
    X, y = problem(m=120)
    y = y + (X[:, 2] > 0.5)
    known = {"solver": solver, "kernel": "rbf", "gamma": GAMMA, "C": C, "bias": -1, "theta": THETA, **params}
    if solver != "mcodm":
        del known["theta"]
    model = ml.train(X, y, algorithm="newton", tol=1e-6, **known)
    info = model.info
    assert (info.status, info.algorithm) == ("converged", "newton")
    W = np.zeros((len(y), 3))
    W[model.support_indices] = model.dual_coef
    rows = np.arange(len(y))
    scores = oracles.rbf(X, X, GAMMA) @ W
    short = 1 - scores[rows, y][:, np.newaxis] + scores
    short[rows, y] = 0
    if solver == "ww":
        loss = np.maximum(0, short).sum()
    elif solver == "cs":
        loss = np.maximum(0, short.max(axis=1)).sum()
    else:
        short[rows, y] = -np.inf
        g = 1 - short.max(axis=1)
        loss = (np.maximum(0, 1 - THETA - g) ** 2 + params.get("mu", 0.8) * np.maximum(0, g - 1 - THETA) ** 2).sum()
        loss /= (1 - THETA) ** 2
    assert info.objective == pytest.approx(0.5 * (W * scores).sum() + C * loss, rel=1e-9)
    assert 0 <= info.objective - info.bound <= 1.001e-6 * max(1, info.objective)
    if params.get("mu") == 0 or solver != "mcodm":
        swept = ml.train(X, y, algorithm="cd", tol=1e-6, **known).info
        assert swept.status == "converged"
        assert info.objective == pytest.approx(swept.objective, rel=2e-6)


def test_joint_methods_take_steps_where_sweeps_are_slow(monkeypatch):
    X, y = problem(m=120)
    y = y + (X[:, 2] > 0.5)
    known = {"solver": "cs", "kernel": "rbf", "gamma": 0.01, "C": 1000.0}
    model = ml.train(X, y, **known)
    assert (model.info.status, model.info.algorithm) == ("converged", "newton")
    # A matrix that is too large: sweeps end what is asked for by no name.
    monkeypatch.setattr(newton, "LIMIT", 100)
    assert ml.train(X, y, **known).info.algorithm == "accelerated"


def test_joint_methods_over_a_kernel_that_is_not_positive_semidefinite_end():
    X, y = problem()
    y = y + (X[:, 2] > 0.5)
    for solver in ("cs", "mcodm"):
        with pytest.warns(ml.ConvergenceWarning):
            info = ml.train(X, y, solver=solver, kernel="sigmoid", gamma=1.0, coef0=1.0, C=100, algorithm="newton",
                            max_iter=200).info
        assert info.status != "converged" and np.isfinite(info.objective)


def test_a_restart_stops_at_once():
    X, y = problem()
    known = {"solver": "odm", "kernel": "rbf", "gamma": GAMMA, "C": 10, "algorithm": "newton"}
    model = ml.train(X, y, tol=1e-6, **known)
    again = ml.train(X, y, start=model, tol=1e-5, **known)
    assert again.info.n_iter <= 1
    assert again.info.objective == pytest.approx(model.info.objective, rel=2e-5)


def test_least_squares_takes_steps_where_sweeps_are_slow():
    X, y = problem()
    info = ml.train(X, y, solver="lssvm", kernel="rbf", gamma=GAMMA, C=1000, tol=1e-9).info
    assert (info.status, info.algorithm) == ("converged", "newton")


def test_a_kernel_that_is_not_positive_semidefinite_ends():
    X, y = problem()
    with pytest.warns(ml.ConvergenceWarning):
        info = ml.train(X, y, solver="lssvm", kernel="sigmoid", gamma=1.0, coef0=1.0, C=100, algorithm="newton",
                        max_iter=200).info
    assert info.status != "converged"
    assert np.isfinite(info.objective)


def test_what_newton_does_not_take_is_refused(monkeypatch):
    X, y = problem()
    known = {"kernel": "rbf", "gamma": GAMMA, "algorithm": "newton"}
    with pytest.raises(ValueError, match="newton' needs all kernel rows, 0 MB: give a larger cache"):
        ml.train(X, y, solver="lssvm", cache=0.01, **known)
    with pytest.raises(ValueError, match=r"K\(x, x\) of at most 1e\+09: here .*take a smaller C"):
        ml.train(X, y, solver="lssvm", C=1e12, **known)
    with pytest.raises(ValueError, match="newton' over a kernel takes at most 3000 rows, the norm 2, and no loss of"):
        ml.train(X, y, solver="lpmcsvm", **known)
    with pytest.raises(ValueError, match="newton' needs all kernel rows, 0 MB: give a larger cache"):
        ml.train(X, y, solver="cs", cache=0.01, **known)
    with pytest.raises(ValueError, match=r"K\(x, x\) of at most 1e\+09: here .*take a smaller C"):
        ml.train(X, y, solver="cs", C=1e12, **known)
    monkeypatch.setattr(newton, "LIMIT", 100)
    for solver in ("odm", "l1svc"):
        with pytest.raises(ValueError, match="takes at most 3000 rows of a loss with a flat piece or a kink: here 240"):
            ml.train(X, y, solver=solver, **known)
    assert ml.train(X, y, solver="lssvm", **known).info.status == "converged"
