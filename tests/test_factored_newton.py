"""Newton steps over a factor of the rows' products, of a kernel or of few rows: the optimum of a quadratic program,
where sweeps and steps of two variables crawl, rounding, kernels that have no factor."""

import numpy as np
import oracles
import pytest

import marginlinear as ml
from marginlinear.algorithms import pairs
from marginlinear.algorithms.factored_newton import PANEL, factor_of, is_factor
from marginlinear.algorithms.fixed_sums import TwoSumPairs

GAMMA = 0.4


def problem(m=150, seed=0):
    """Overlapping classes, numbers, and a weight of each row; two equal rows of different classes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, 4))
    y = np.where(X[:, 0] * X[:, 1] + 0.5 * rng.standard_normal(m) > 0, 1, -1)
    X[5], y[5] = X[6], -y[6]
    return X, y, X.sum(axis=1) + np.sin(5 * X[:, 0]), rng.uniform(0.5, 2, m)


def features_of(K):
    """Rows whose products are K."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0))


def least(solver, K, y, z, cost, weight):
    """The least P, over features of which K is the Gram matrix, by an interior-point method."""
    X, n = features_of(K), len(K)
    none = np.zeros(n)
    margins = y[:, None] * X
    if solver == "l1svr":
        return oracles.minimal_program(np.eye(n), none, (
            np.vstack([X, -X]), np.append(z, -z) - 0.2, np.tile(cost, 2), np.zeros(2 * n)))[1]
    if solver == "rmm":
        return oracles.minimal_program(np.eye(n), none, (margins, 1.0, cost, none),
                                       (-margins, -1.2, 3 * cost, none))[1]
    if solver == "ldm":
        size, total = weight.sum(), margins.T @ weight
        spread = margins.T @ (weight[:, None] * margins) - np.outer(total, total) / size
        return oracles.minimal_program(np.eye(n) + 4 * 2.0 / size * spread, -1.5 / size * total, (
            margins, 1.0, cost, none))[1]
    return oracles.minimal_program(np.eye(n), none, (margins, 1.0, cost, none))[1]


@pytest.mark.parametrize("C", [0.1, 100.0])
@pytest.mark.parametrize("solver, given", [
    ("l1svc", {}), ("l1svr", {"epsilon": 0.2}), ("rmm", {"margin_bound": 1.2}),
    ("ldm", {"lambda1": 2.0, "lambda2": 1.5})])
@pytest.mark.parametrize("wide", [False, True])
def test_the_optimum(solver, given, C, wide):
    """Over a kernel, and over the features that a row has one for each other row of."""
    X, y, z, weight = problem(60)
    if solver == "rmm":
        given = {**given, "bound_cost": 3 * C}
    K = oracles.rbf(X, X, GAMMA) + 1
    best = least(solver, K, y, z, C * weight, weight)
    rows = np.hstack([features_of(K - 1), np.zeros((60, 5))]) if wide else X
    kernel = {} if wide else {"kernel": "rbf", "gamma": GAMMA}
    info = ml.train(rows, z if solver == "l1svr" else y, solver=solver, bias=1.0, C=C, tol=1e-9, algorithm="newton",
                    sample_weight=weight, **given, **kernel).info
    assert (info.status, info.algorithm) == ("converged", "newton") and info.n_iter < 100
    assert info.objective == pytest.approx(best, rel=1e-7, abs=1e-7)
    assert info.bound <= best * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("solver", ["l1svc", "l2svc", "logistic", "odm", "l1svr"])
def test_few_rows_of_many_features(solver):
    """Sweeps come first where rows are nearly orthogonal; steps, and their weights, where they are not."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 800))
    y = np.where(X[:, 0] > 0, 1, -1)
    easy = ml.train(X, y, solver=solver, C=1000).info
    assert easy.converged
    assert easy.algorithm != "newton"
    assert easy.n_iter < 100
    X[:, :20] *= np.logspace(0, 2, 20)
    model = ml.train(X, y, solver=solver, C=1000, tol=1e-9, max_iter=1000)
    other = ml.train(X @ np.linalg.qr(X.T)[0], y, solver=solver, C=1000, tol=1e-9, algorithm="newton")
    assert model.info.converged
    assert model.info.algorithm == "newton"
    assert model.info.objective == pytest.approx(other.info.objective, rel=1e-8, abs=1e-8)


def test_rows_of_zeros():
    y = np.array([1, -1] * 10)
    for solver in ("l1svc", "l2svc", "ldm"):
        info = ml.train(np.zeros((20, 50)), y, solver=solver, algorithm="newton").info
        assert info.converged


@pytest.mark.parametrize("solver", ["l1svc", "l2svc", "logistic", "l1svr"])
def test_products_that_lose_all_but_one_feature(solver):
    """Steps are over the features themselves."""
    X = np.random.default_rng(0).standard_normal((20, 50))
    X[:, 0] *= 1e12
    info = ml.train(X, np.array([1, -1] * 10), solver=solver, C=100).info
    assert info.converged


@pytest.mark.parametrize("solver", ["rmm", "ldm"])
def test_sweeps_that_would_crawl_are_followed_by_steps(solver):
    X, y, *_ = problem()
    info = ml.train(X, y, solver=solver, kernel="rbf", gamma=0.02, C=1e4).info
    assert (info.status, info.algorithm) == ("converged", "newton")


def in_order(info, seen):
    """Whether the checks of both parts of a fit follow each other, and a callback has seen the same."""
    told = [(check["n_iter"], check["seconds"]) for check in info.history]
    return (told == sorted(told) and told[0][0] < told[-1][0] and info.seconds >= told[-1][1]
            and {check.n_iter for check in seen} <= {n_iter for n_iter, _ in told})


def test_pairs_that_crawl_are_followed_by_steps():
    """Targets that a smooth function interpolates: K is singular but for rounding."""
    x = np.random.default_rng(0).standard_normal((120, 1))
    known = {"solver": "l1svr", "kernel": "rbf", "gamma": 3.0, "C": 50.0, "epsilon": 0.0}
    seen = []
    model = ml.train(x, 0.5 * x[:, 0], callback=seen.append, **known)
    info = model.info
    assert (info.status, info.algorithm) == ("converged", "newton")
    assert pairs.CRAWL < info.n_iter < 200
    assert in_order(info, seen)
    K, b = oracles.rbf(x, x, 3.0), np.zeros(len(x))
    b[model.support_indices] = model.dual_coef[:, 0]
    assert info.objective == pytest.approx(0.5 * b @ K @ b + 50 * abs(0.5 * x[:, 0] - K @ b).sum(), rel=1e-6)


def test_steps_that_meet_rounding_end():
    x = np.random.default_rng(0).standard_normal((120, 1))
    with pytest.warns(ml.ConvergenceWarning, match="stalled"):
        info = ml.train(x, 0.5 * x[:, 0], solver="l1svr", kernel="rbf", gamma=3.0, C=1e4, epsilon=0.0, tol=1e-13,
                        algorithm="newton").info
    assert info.n_iter < 1000 and info.bound <= info.objective


def test_a_kernel_that_is_not_positive_semidefinite():
    X, y, *_ = problem()
    with pytest.warns(ml.ConvergenceWarning):
        info = ml.train(X, y, solver="l1svc", kernel="sigmoid", gamma=1.0, coef0=1.0, C=100, algorithm="newton",
                        max_iter=200).info
    assert np.isfinite(info.objective) and info.status != "converged"


@pytest.mark.parametrize("m, rank", [(1, 1), (10, 3), (PANEL, PANEL), (2 * PANEL + 5, 2 * PANEL + 5), (300, 70),
                                     (30, 0)])
def test_factor(m, rank):
    A = np.random.default_rng(m).standard_normal((m, rank)) * np.linspace(1, 1e-3, rank)
    K = A @ A.T
    L, rows = factor_of(K)
    # Rounding has columns of its own.
    assert rank <= len(rows) == L.shape[1] <= min(m, rank + 5) and len(set(rows.tolist())) == len(rows)
    assert abs(K - L @ L.T).max(initial=0) <= 1e-13 * K.max()
    assert (np.triu(L[rows], 1) == 0).all() and (np.diagonal(L[rows]) > 0).all()
    for most in (0, 3, PANEL + 1):
        some, first = factor_of(K, most)
        assert np.array_equal(some, L[:, :most]) and np.array_equal(first, rows[:most])
        assert is_factor(some, K) == (most >= rank)


def test_float32_rows_that_are_too_rough_are_followed_by_steps():
    """A constant of 100 in kernel values that differ by less than 1: pairs ended with a gap of a third."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((50, 1))
    y = np.where(X[:, 0] + rng.standard_normal(50) > 0, 1, -1)
    for solver in ("l1svc", "l2svc"):
        info = ml.train(X, y, solver=solver, kernel="rbf", gamma=0.3, bias=10.0, C=2000.0).info
        assert info.status == "converged"


def test_costs_that_are_too_large_for_steps_ask_for_none():
    x = np.random.default_rng(0).standard_normal((120, 1))
    with pytest.warns(ml.ConvergenceWarning):
        info = ml.train(x, 0.5 * x[:, 0], solver="l1svr", kernel="rbf", gamma=3.0, C=1e11, epsilon=0.0,
                        max_iter=200).info
    assert info.algorithm == "pairs"


@pytest.mark.parametrize("solver, given", [
    ("l1svr", {"C": 500.0, "epsilon": 0.0, "free_bias": True}), ("nusvr", {"C": 20.0, "nu": 0.5}),
    ("nusvr", {"C": 20.0, "nu": 0.9, "tol": 1e-9})])
def test_with_an_offset_too(solver, given):
    """As above. What is told is of the coefficients that the model has."""
    x = np.random.default_rng(0).standard_normal((120, 1))
    z, seen = np.sin(2 * x[:, 0]) + 5, []
    model = ml.train(x, z, solver=solver, kernel="rbf", gamma=4.0, callback=seen.append, **given)
    info = model.info
    assert (info.status, info.algorithm) == ("converged", "newton")
    assert in_order(info, seen)
    K, b = oracles.rbf(x, x, 4.0), np.zeros(len(x))
    b[model.support_indices] = model.dual_coef[:, 0]
    residuals = np.abs(z - K @ b - model.intercept[0])
    loss = residuals.sum() if solver == "l1svr" else min(
        given["nu"] * len(z) * epsilon + np.maximum(0, residuals - epsilon).sum() for epsilon in [0.0, *residuals])
    assert info.objective == pytest.approx(0.5 * b @ K @ b + given["C"] * loss, rel=1e-6)


def test_nu_classes_that_pairs_crawl_on():
    X, y, *_ = problem()
    known = {"solver": "nusvc", "nu": 0.3, "kernel": "rbf", "gamma": 0.02}
    pairs_alone = ml.train(X, y, tol=1e-3, **known)
    model = ml.train(X, y, tol=1e-9, **known)
    assert (pairs_alone.info.algorithm, model.info.algorithm) == ("pairs", "newton")
    assert model.info.converged and model.info.n_outer > 1
    assert pairs_alone.info.bound <= model.info.objective <= pairs_alone.info.objective + 1e-9
    # A start of it is one for pairs again.
    again = ml.train(X, y, tol=1e-9, start=model, **known).info
    assert again.converged


@pytest.mark.parametrize("away", [0.0, 30.0])
def test_a_half_space_that_pairs_crawl_on(monkeypatch, away):
    """Features that differ in size, about the origin, where the optimum is 0, and away from it."""
    if away > 0:
        monkeypatch.setattr(pairs.PairFit, "crawls", lambda *_: True)
    X = np.random.default_rng(0).standard_normal((400, 12)) * np.logspace(-1, 2, 12) + away * np.eye(12)[0]
    model = ml.train(X, solver="oneclass", nu=0.3, kernel="linear", tol=1e-5)
    info, b = model.info, np.zeros(len(X))
    assert (info.status, info.algorithm) == ("converged", "newton")
    b[model.support_indices] = model.dual_coef[:, 0]
    w = b @ X
    rho = np.sort(X @ w)[120 - 1]
    height = 120 * rho - np.maximum(0, rho - X @ w).sum()
    assert info.objective == pytest.approx(-max(0.0, height) ** 2 / (2 * (w @ w or 1.0)), rel=1e-6)
    assert (info.objective < 0) == (away > 0)


def test_an_offset_is_no_reason_for_a_factor_of_the_factor(monkeypatch):
    """Rows of a factor with as many columns, and the bias, are not fewer than their features."""
    monkeypatch.setattr(pairs.PairFit, "crawls", lambda *_: True)
    monkeypatch.delattr("marginlinear.algorithms.factored_newton.FactoredNewton.__init__")
    X, y, *_ = problem()
    info = ml.train(X, y, solver="l1svc", kernel="rbf", gamma=5.0, free_bias=True, C=100.0, tol=1e-6).info
    assert (info.status, info.algorithm) == ("converged", "newton")


def test_pairs_go_on_where_the_kernel_has_no_factor(monkeypatch):
    """Values that a file gave, not quite positive semidefinite."""
    monkeypatch.setattr(pairs.PairFit, "crawls", lambda *_: True)
    X, y, *_ = problem()
    K = oracles.rbf(X, X, 0.4) - 1e-4 * np.eye(len(X))
    info = ml.train(K, y, solver="l1svc", kernel="precomputed", free_bias=True, C=100.0, tol=1e-6).info
    assert info.converged and info.algorithm == "pairs" and info.n_iter > 1


def test_few_columns_are_sooner_worth_steps(monkeypatch):
    """The matrix of 400 numbers has some 30."""
    x = np.random.default_rng(0).uniform(-3, 3, (400, 1))
    z, known = np.sin(2 * x[:, 0]), {"solver": "nusvr", "kernel": "rbf", "gamma": 1.0, "C": 10.0, "nu": 0.5}
    sooner = ml.train(x, z, **known).info
    monkeypatch.setattr(pairs, "SQUARE", np.inf)
    later = ml.train(x, z, **known).info
    assert sooner.algorithm == later.algorithm == "newton" and sooner.n_iter < later.n_iter
    assert max(sooner.bound, later.bound) <= min(sooner.objective, later.objective)


@pytest.mark.parametrize(("solver", "d", "options"), [
    ("l2svc", 20, {}), ("l1svc", 60, {"free_bias": True}), ("l1svr", 60, {"epsilon": 0.01})])
def test_steps_take_over_when_rounds_have_cost_as_much(solver, d, options):
    """Rounds went on for 16 times the work of steps with a curved loss, and over a seventh as many columns as rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((420, d))
    z = X @ rng.standard_normal(d) + 3 * rng.standard_normal(420)
    y = z if solver == "l1svr" else z > 0
    info = ml.train(X, y, solver=solver, kernel="linear", C=100.0, tol=1e-4, **options).info
    assert (info.status, info.algorithm) == ("converged", "newton")
    assert info.n_iter < 120


@pytest.mark.parametrize("limit", [{"max_iter": 40}, {"max_iter": 60}])
def test_steps_that_are_cut_off_lose_nothing(monkeypatch, limit):
    """Those of nu are of several fits, each of another epsilon."""
    x = np.random.default_rng(0).standard_normal((120, 1))
    z, known = np.sin(2 * x[:, 0]) + 5, {"solver": "nusvr", "kernel": "rbf", "gamma": 4.0, "C": 20.0, "nu": 0.5}
    with pytest.warns(ml.ConvergenceWarning, match="cap on sweeps"):
        cut = ml.train(x, z, **known, **limit)
    monkeypatch.setattr(TwoSumPairs, "crawl", np.inf)
    with pytest.warns(ml.ConvergenceWarning, match="cap on sweeps"):
        rounds = ml.train(x, z, **known, max_iter=pairs.CRAWL).info
    info, K, b = cut.info, oracles.rbf(x, x, 4.0), np.zeros(len(x))
    assert info.algorithm == "newton" and info.n_iter == limit["max_iter"]
    assert info.objective <= rounds.objective * (1 + 1e-6) and info.bound >= rounds.bound - 1e-6
    b[cut.support_indices] = cut.dual_coef[:, 0]
    residuals = np.abs(z - K @ b - cut.intercept[0])
    loss = min(0.5 * len(z) * epsilon + np.maximum(0, residuals - epsilon).sum() for epsilon in [0.0, *residuals])
    assert info.objective == pytest.approx(0.5 * b @ K @ b + 20 * loss, rel=1e-6)
