"""odm against Newton's method in NumPy, and the identities of math.md 1.5, 2 and 7."""

import numpy as np
import oracles
import pytest

import marginlinear as ml

SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_certified_against_newton(seed):
    X, y, sign, C = oracles.random_binary(seed)
    mu, theta = [0.8, 0.0, 1.0, 0.3][seed % 4], [0.2, 0.0, 0.6][seed % 3]
    cost = np.full(len(y), C / (1 - theta) ** 2)
    best = oracles.minimal_odm(X, sign, cost, mu, theta)
    for algorithm in ("auto", "cd", "accelerated", "newton"):
        model = ml.train(X, y, solver="odm", C=C, mu=mu, theta=theta, algorithm=algorithm, tol=1e-9, max_iter=10**6)
        w, info = model.coef[0], model.info
        assert info.converged
        g = sign * (X @ w)
        value = 0.5 * w @ w + cost @ (np.maximum(0, 1 - theta - g) ** 2 + mu * np.maximum(0, g - 1 - theta) ** 2)
        assert info.objective == pytest.approx(value, rel=1e-10)
        assert ((w - best) ** 2).sum() <= 2 * info.certificate + 1e-9 * max(1, best @ best)


def same_scores(left, right, X, factor=1.0, tol=1e-6):
    scale = max(1, abs(right.decision_function(X)).max())
    assert np.allclose(left.decision_function(X), factor * right.decision_function(X), atol=tol * scale)


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_mu_zero_is_a_scaled_l2_svc(seed):
    X, y, _, C = oracles.random_binary(seed)
    theta = 0.4
    ours = ml.train(X, y, solver="odm", C=C, mu=0, theta=theta, tol=1e-14, max_iter=10**6)
    svc = ml.train(X, y, solver="l2svc", C=C / (1 - theta) ** 2, tol=1e-14, max_iter=10**6)
    same_scores(ours, svc, X, 1 - theta)
    assert ours.info.objective == pytest.approx((1 - theta) ** 2 * svc.info.objective, rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_theta_zero_mu_one_is_ridge_regression(seed):
    X, y, sign, C = oracles.random_binary(seed)
    ours = ml.train(X, y, solver="odm", C=C, mu=1, theta=0, tol=1e-14, max_iter=10**6)
    least_squares = ml.train(X, y, solver="lssvm", C=C, tol=1e-14, max_iter=10**6)
    ridge = np.linalg.solve(np.eye(X.shape[1]) + 2 * C * X.T @ X, 2 * C * X.T @ sign)
    assert np.allclose(ours.coef[0], ridge, atol=1e-6)
    assert np.allclose(least_squares.coef[0], ridge, atol=1e-6)


@pytest.mark.parametrize("outer", ["ccp", "paper"])
@pytest.mark.parametrize("seed", SEEDS[::4])
def test_mcodm_with_two_classes(seed, outer):
    """ccp: odm(2 lambda, mu); the paper's fixed point: the decisions of odm(2 lambda, mu/2). Objective: 2 J."""
    X, y, _, C = oracles.random_binary(seed)
    mu, theta = 0.6, 0.2
    joint = ml.train(X, y, solver="mcodm", C=C, mu=mu, theta=theta, outer=outer, tol=1e-11, max_iter=10**6,
                     max_outer=3000)
    binary = ml.train(X, y, solver="odm", C=2 * C, mu=mu if outer == "ccp" else mu / 2, theta=theta, tol=1e-13,
                      max_iter=10**6)
    scores = joint.decision_function(X)
    assert np.allclose(scores[:, 1] - scores[:, 0], binary.decision_function(X), atol=1e-4)
    if outer == "ccp":
        assert 2 * joint.info.objective == pytest.approx(binary.info.objective, rel=1e-8)


def test_lambda_is_c_times_the_rows():
    X, y, _, _ = oracles.random_binary(2)
    by_c = ml.train(X, y, solver="odm", C=0.5)
    by_lambda = ml.train(X, y, solver="odm", lambda_=0.5 * len(y))
    assert np.allclose(by_c.weights, by_lambda.weights, rtol=1e-12)
    with pytest.raises(ValueError, match="C and lambda are two names of one thing"):
        ml.train(X, y, solver="odm", C=1, lambda_=1)
