"""Methods whose problem is a quadratic program, against its solution by an interior-point method, to 1e-9."""

import numpy as np
import pytest

import marginlinear as ml
from tests import oracles

TOL = 1e-9
m, d = 30, 3


def above(*parts):
    """Rows of G of G v <= 0, from blocks of columns that are each a column or a matrix."""
    return np.column_stack(parts)


def one_class(X, y, z, nu, C):
    """v = (w, rho, xi): xi >= rho - w.x, xi >= 0"""
    linear = np.concatenate([np.zeros(d), [-nu * m], np.ones(m)])
    G = np.vstack([above(-X, np.ones(m), -np.eye(m)), above(np.zeros((m, d + 1)), -np.eye(m))])
    return linear, G, np.zeros(2 * m), lambda w, rho: w @ w / 2 - nu * m * rho + np.maximum(0, rho - X @ w).sum()


def nu_classes(X, y, z, nu, C):
    """v = (w, rho, b, xi): xi >= rho - y (w.x + b), xi >= 0"""
    linear = np.concatenate([np.zeros(d), [-nu * m, 0], np.ones(m)])
    G = np.vstack([above(-y[:, None] * X, np.ones(m), -y, -np.eye(m)), above(np.zeros((m, d + 2)), -np.eye(m))])
    return linear, G, np.zeros(2 * m), lambda w, rho, b: (
        w @ w / 2 - nu * m * rho + np.maximum(0, rho - y * (X @ w + b)).sum())


def nu_numbers(X, y, z, nu, C):
    """v = (w, epsilon, b, xi): xi >= |z - w.x - b| - epsilon, xi >= 0, epsilon >= 0"""
    linear = np.concatenate([np.zeros(d), [C * nu * m, 0], np.full(m, C)])
    ones, none = np.ones(m), np.zeros((m, d + 2))
    G = np.vstack([above(-X, -ones, -ones, -np.eye(m)), above(X, -ones, ones, -np.eye(m)), above(none, -np.eye(m)),
                   -np.eye(d + 2 + m)[d]])
    return linear, G, np.concatenate([-z, z, np.zeros(m + 1)]), lambda w, epsilon, b: (
        w @ w / 2 + C * (nu * m * epsilon + np.maximum(0, abs(z - X @ w - b) - epsilon).sum()))


def residuals(X, y, z, nu, C):
    """v = (w, xi): xi >= |z - w.x| - 0.2, xi >= 0"""
    G = np.vstack([above(-X, -np.eye(m)), above(X, -np.eye(m)), above(np.zeros((m, d)), -np.eye(m))])
    h = np.concatenate([0.2 - z, 0.2 + z, np.zeros(m)])
    return np.concatenate([np.zeros(d), np.full(m, C)]), G, h, lambda w: (
        w @ w / 2 + C * np.maximum(0, abs(z - X @ w) - 0.2).sum())


def two_sides(X, y, z, nu, C):
    """v = (w, xi, eta): xi >= 1 - g, eta >= g - 1.2, xi >= 0, eta >= 0, D = 3 C"""
    Z, I, O = y[:, None] * X, np.eye(m), np.zeros((m, m))
    none = np.zeros((m, d))
    G = np.vstack([above(-Z, -I, O), above(Z, O, -I), above(none, -I, O), above(none, O, -I)])
    h = np.concatenate([-np.ones(m), np.full(m, 1.2), np.zeros(2 * m)])
    return np.concatenate([np.zeros(d), np.full(m, C), np.full(m, 3 * C)]), G, h, lambda w: (
        w @ w / 2 + C * np.maximum(0, 1 - Z @ w).sum() + 3 * C * np.maximum(0, Z @ w - 1.2).sum())


PROBLEMS = {
    "oneclass": (one_class, 1, lambda nu, C: {"nu": nu}),
    "nusvc": (nu_classes, 2, lambda nu, C: {"nu": nu}),
    "nusvr": (nu_numbers, 2, lambda nu, C: {"nu": nu, "C": C}),
    "l1svr": (residuals, 0, lambda nu, C: {"C": C, "epsilon": 0.2}),
    "rmm": (two_sides, 0, lambda nu, C: {"C": C, "bound_cost": 3 * C, "margin_bound": 1.2}),
}


@pytest.mark.parametrize("solver", PROBLEMS)
@pytest.mark.parametrize("seed", range(8))
def test_the_optimum_is_that_of_the_program(solver, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d)) + 1.5
    y = np.where((X + 0.7 * rng.standard_normal((m, d))) @ [1, -1, 0.5] > 0.7, 1, -1)
    y[:4] = [1, -1, 1, -1]
    z = X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(m)
    nu, C = rng.uniform(0.1, 0.5), 10.0 ** rng.uniform(-1.5, 1)
    program, others, given = PROBLEMS[solver]
    linear, G, h, objective = program(X, y, z, nu, C)
    H = np.diag(np.arange(len(linear)) < d).astype(float)
    v, multipliers = oracles.convex_qp(H, linear, G, h)
    best, bound = objective(v[:d], *v[d:d + others]), -v[:d] @ v[:d] / 2 - h @ multipliers
    assert abs(best - bound) <= TOL * max(1, abs(best))
    told = z if solver.endswith("svr") else y
    info = ml.train(X, told, solver=solver, tol=TOL, **given(nu, C)).info
    assert info.converged
    assert abs(info.objective - best) <= 2 * TOL * max(1, abs(best))
    assert info.bound <= best + 1e-11 * max(1, abs(best))
