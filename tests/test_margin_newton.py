"""Proximal Newton steps on binary losses: derivatives, the certificate, and fits that agree with coordinate descent."""

import threading
import time

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear._core.margin_cd import MarginCD, table_of
from marginlinear._core.margin_newton import MarginNewton, few_products
from marginlinear._core.rows import Rows
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.newton import MarginNewtonCost, levels_of
from marginlinear.methods.l1svc import HINGE
from marginlinear.methods.l2svc import SQUARED_HINGE
from marginlinear.methods.logistic import SOFTPLUS
from marginlinear.methods.lssvm import SQUARE
from marginlinear.methods.mamc import LINEAR
from marginlinear.threads import Cancelled

BAND = (0.8, 1.2), ((2, -1.6, 0.64), (0, 0, 0), (1, -1.2, 0.72))
# Jumps of different size at both knots, curvature between and beyond.
KINKED = (-0.5, 1.0), ((0, -3, 0), (2, -1, 0.75), (1, 0.5, 0.75 - 0.5))
TABLES = {"hinge": HINGE, "squared": SQUARED_HINGE, "square": SQUARE, "linear": LINEAR, "band": BAND, "kinked": KINKED,
          "softplus": SOFTPLUS}
# The pieces of a loss can hold a spread, softplus cannot.
WITH_SPREAD = [(table, spread) for table in TABLES for spread in (0.0, 0.3) if table != "softplus" or spread == 0]
METHODS = [("l1svc", {}), ("l2svc", {}), ("odm", {}), ("odm", {"mu": 0.0}), ("lssvm", {}), ("mamc", {}), ("ldm", {}),
           ("ldm", {"lambda1": 30.0, "lambda2": 5.0})]


def problem(m=200, d=6, seed=0):
    """Overlapping classes; some zeros, an empty row, equal rows of the same and of different classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=m)
    X = rng.normal(size=(m, d)) + rng.normal(size=d) * (y[:, np.newaxis] - 0.5)
    X[rng.random((m, d)) < 0.2] = 0
    X[3] = 0
    X[5], y[5] = X[4], y[4]
    X[7], y[7] = X[6], 1 - y[6]
    return X, y


def engine_of(table, spread, X, y, seed=0):
    cost = np.random.default_rng(seed).uniform(0.5, 2, len(y))
    tables = [table_of(*TABLES[table]), table_of(*TABLES["hinge"])]
    # The last rows have the second table.
    group = (np.arange(len(y)) > 0.8 * len(y)).astype(np.int32)
    engine = MarginCD(Rows.from_dense(X), y.astype(np.int32), cost, tables, group=group, spread=spread)
    for _ in range(3):
        engine.sweep()
    return engine


@pytest.mark.parametrize(("table", "spread"), WITH_SPREAD)
def test_derivatives_by_central_differences(table, spread):
    X, y = problem(m=40, d=4)
    engine = engine_of(table, spread, X, y)
    newton = MarginNewton(engine)
    rng = np.random.default_rng(1)
    for size in (0.1, 1.0):
        W = engine.iterates.W + size * rng.normal(size=4)
        gradient = newton.smooth(W)[1]
        curvature = newton.curvature()
        assert np.allclose(curvature, curvature.T)
        h = 1e-7
        for _ in range(5):
            v = rng.normal(size=4)
            above, slope_above = newton.smooth(W + h * v)
            below, slope_below = newton.smooth(W - h * v)
            assert (above - below) / (2 * h) == pytest.approx(gradient @ v, rel=1e-5, abs=1e-5)
            np.testing.assert_allclose((slope_above - slope_below) / (2 * h), curvature @ v, rtol=1e-4,
                                       atol=1e-4 * np.abs(curvature @ v).max())


@pytest.mark.parametrize(("table", "spread"), WITH_SPREAD)
def test_values_of_a_step_are_those_of_the_engine(table, spread):
    X, y = problem()
    engine = engine_of(table, spread, X, y)
    newton = MarginNewton(engine)
    gaps, bounds = [], []
    for _ in range(20):
        newton.step()
        bounds.append(newton.bound)
        assert newton.primal == pytest.approx(engine.primal()[0], rel=1e-12)
        for bound in (engine.dual(), engine.recomputed_dual(False)):
            if spread == 0:
                assert newton.bound == pytest.approx(bound, rel=1e-9, abs=1e-9)
        assert newton.primal >= engine.dual() - 1e-9 * abs(newton.primal)
        gaps.append(newton.primal - min(newton.bound, engine.dual()))
    assert gaps[-1] < 1e-3 * abs(newton.primal)
    # Bounds of any step hold for all: they are bounds of the optimum.
    assert max(bounds) <= newton.primal + 1e-9 * abs(newton.primal)


@pytest.mark.parametrize(("solver", "options"), METHODS)
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("shape", [(200, 6), (30, 60)])
def test_agrees_with_coordinate_descent(solver, options, C, shape):
    X, y = problem(*shape)
    options = {"solver": solver, "C": C, "tol": 1e-7, **options}
    weights = np.random.default_rng(3).uniform(0.5, 2, len(y))
    slow = ml.train(X, y, sample_weight=weights, algorithm="accelerated", max_iter=10**6, **options)
    fast = ml.train(X, y, sample_weight=weights, algorithm="newton", **options)
    assert slow.info.converged and fast.info.converged
    assert fast.info.certificate >= -1e-9 * abs(fast.info.objective)
    assert fast.info.objective == pytest.approx(slow.info.objective, rel=3e-7, abs=3e-7)
    allowed = np.sqrt(2 * 2e-7 * max(1, abs(fast.info.objective)))
    assert np.linalg.norm(fast.weights - slow.weights) <= 2 * allowed


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("solver", ["l1svc", "ldm"])
def test_storages_agree(kind, solver):
    X, y = problem()
    X = X.astype(kind)
    fits = [ml.train(data, y, solver=solver, C=10, algorithm="newton", bias=1.0) for data in (X, sparse.csr_array(X))]
    assert fits[0].info.algorithm == "newton"
    np.testing.assert_allclose(fits[0].weights, fits[1].weights, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("bias", [-1.0, 2.0])
@pytest.mark.parametrize("values", [3, 7, 30])
def test_sums_of_products(kind, bias, values):
    """Rows of few values are multiplied one by one, others in tiles."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((300, 60), density=values / 60, rng=rng, format="csr", dtype=kind)
    cost = rng.uniform(0.5, 2, 300)
    rows = Rows.from_csr(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64), 60, bias=bias)
    assert few_products(rows) == (values < 30)
    engine = MarginCD(rows, rng.integers(2, size=300).astype(np.int32), cost, [table_of(*TABLES["squared"])])
    Z = X.toarray().astype(float)
    Z = Z if bias < 0 else np.column_stack([Z, np.full(300, bias)])
    np.testing.assert_allclose(MarginNewton(engine).gram_of(False), (Z.T * cost) @ Z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("m", [1, 7, 300, 1001])
def test_exponentials_of_many_rows(m):
    """Margins from 0 to where their exponentials are no numbers, with the values that NumPy has."""
    rng = np.random.default_rng(m)
    x, y, cost = 10.0 ** rng.uniform(-9, 3.2, (m, 1)), rng.integers(2, size=m).astype(np.int32), rng.uniform(0.5, 2, m)
    x[0] = 0
    newton = MarginNewton(MarginCD(Rows.from_dense(x), y, cost, [table_of(*SOFTPLUS)]))
    _, gradient = newton.smooth(np.ones(1))
    g = np.where(y, x[:, 0], -x[:, 0])
    away = np.exp(-np.logaddexp(0, np.abs(g)))
    share = np.where(g > 0, away, 1 - away)
    assert newton.primal == pytest.approx(0.5 + cost @ np.logaddexp(0, -g), rel=1e-14)
    np.testing.assert_allclose(newton.duals_of_rows(), cost * share, rtol=1e-14, atol=1e-300)
    np.testing.assert_allclose(gradient, 1 - x.T @ (np.where(y, 1, -1) * cost * share), rtol=1e-13)
    np.testing.assert_allclose(newton.curvature(), 1 + (x.T * cost * share * (1 - share)) @ x, rtol=1e-9)


@pytest.mark.parametrize("m", [9, 300, 1001])
@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0])
def test_gaps_of_many_rows(m, size):
    """The bound of a step, by its gaps, is D at its duals: near those of the margins, far from them and cut off."""
    X, y = problem(m=m, d=4)
    engine = MarginCD(Rows.from_dense(size * X), y.astype(np.int32), np.linspace(0.5, 2, m), [table_of(*SOFTPLUS)])
    newton = MarginNewton(engine)
    for _ in range(6):
        newton.step()
        assert newton.bound == pytest.approx(engine.recomputed_dual(False), rel=1e-11, abs=1e-11)


def test_model_duals_certify_a_step_that_leaves_a_large_gradient():
    """Of long rows at a large C, what is left of the gradient after a first step is far too much for a certificate."""
    X, y = alternating()
    engine = MarginCD(Rows.from_dense(10 * X), y.astype(np.int32), np.full(len(y), 10.0), [table_of(*SOFTPLUS)])
    newton = MarginNewtonCost.begin(engine, Budget(None, None))
    newton.step()
    gap = newton.primal - newton.bound
    gradient = newton.smooth(np.asarray(newton.W))[1]
    assert 0 <= gap < 1e-3 * newton.primal < 0.5 * gradient @ gradient


def alternating(m=6000, d=5):
    """Rows of both classes in turn: of every eighth one class would be left out."""
    X = np.random.default_rng(0).normal(size=(m, d))
    X[::2] += 0.5
    return X, np.arange(m) % 2


@pytest.mark.parametrize("solver", ["logistic", "l1svc", "l2svc", "rmm", "ldm", "l1svr", "l2svr"])
def test_steps_that_begin_on_a_part_of_the_rows(solver):
    X, y = alternating()
    assert levels_of(Rows.from_dense(X)) == 2
    fits = [ml.train(X, y, solver=solver, algorithm="newton", tol=1e-7, threads=threads) for threads in (1, 2)]
    slow = ml.train(X, y, solver=solver, algorithm="cd", tol=1e-5)
    assert fits[0].info.converged and fits[0].info.n_iter < 25
    assert fits[0].info.objective == pytest.approx(slow.info.objective, rel=2e-5)
    assert fits[0].info.bound <= slow.info.objective
    np.testing.assert_array_equal(fits[0].weights, fits[1].weights)


@pytest.mark.parametrize("rows", [300, 6000])
@pytest.mark.parametrize("solver", ["logistic", "l1svc"])
def test_first_steps_keep_to_the_budget(solver, rows):
    X, y = alternating(rows)
    for max_iter in (1, 2):
        with pytest.warns(ml.ConvergenceWarning):
            fit = ml.train(X, y, solver=solver, algorithm="newton", tol=1e-12, max_iter=max_iter)
        assert fit.info.n_iter == max_iter and fit.info.status == "max_iter"
    cancel = threading.Event()
    cancel.set()
    engine = MarginCD(Rows.from_dense(X), y.astype(np.int32), np.ones(rows), [table_of(*TABLES["squared"])])
    if levels_of(engine.rows):
        with pytest.raises(Cancelled):
            MarginNewtonCost.begin(engine, Budget(None, None, cancel=cancel))


def test_part_of_an_engine():
    X, y = problem()
    engine = engine_of("band", 0.3, X, y)
    which = np.array([3, 4, 100, 190])
    part = engine.of_rows(which)
    np.testing.assert_array_equal(part.positive, y[which])
    np.testing.assert_array_equal(part.group, [0, 0, 0, 1])
    np.testing.assert_allclose(part.cost, np.asarray(engine.cost)[which] * 50)
    assert part.untouched() and not engine.untouched() and part.spread == engine.spread
    W = np.arange(1.0, 7)
    np.testing.assert_array_equal(part.margins_of(W), np.asarray(engine.margins_of(W))[which])


def test_part_has_its_targets():
    X, y = problem()
    z = np.arange(200.0)
    engine = MarginCD(Rows.from_dense(X), y.astype(np.int32), np.ones(200), [table_of(*HINGE)], targets=z)
    np.testing.assert_array_equal(engine.of_rows(np.array([7, 9])).targets, [7, 9])


def test_steps_go_on_from_weights_that_are_there():
    X, y = problem(m=2000, d=4)
    engine = engine_of("squared", 0.0, X, y)
    W = engine.iterates.W.copy()
    np.testing.assert_array_equal(MarginNewtonCost.begin(engine, Budget(None, None)).W, W)


def test_same_bits_twice():
    X, y = problem()
    fits = [ml.train(X, y, solver="ldm", C=10, algorithm="newton", threads=t).weights for t in (1, 1, 2)]
    assert (fits[0] == fits[1]).all() and (fits[0] == fits[2]).all()


@pytest.mark.parametrize(("solver", "options"), METHODS)
def test_weights_equal_repeats(solver, options):
    X, y = problem(m=80)
    repeats = np.random.default_rng(2).integers(1, 4, len(y))
    options = {"solver": solver, "algorithm": "newton", "tol": 1e-8, **options}
    weighted = ml.train(X, y, sample_weight=repeats, **options)
    repeated = ml.train(np.repeat(X, repeats, axis=0), np.repeat(y, repeats), **options)
    assert weighted.info.objective == pytest.approx(repeated.info.objective, rel=1e-7)
    np.testing.assert_allclose(weighted.weights, repeated.weights, atol=1e-3)


@pytest.mark.parametrize(("solver", "options"), METHODS)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_raw_features(solver, options, kind):
    """Features of size 1 to 1e4, two of them nearly equal and one constant: the reason for this route."""
    X, y = problem(m=400, d=5)
    X = X * 10.0 ** np.arange(5)
    X = np.column_stack([X, X[:, 4] * (1 + 1e-7), np.full(len(y), 1e4)]).astype(kind)
    for C in (1.0, 1e4):
        info = ml.train(X, y, solver=solver, C=C, **options).info
        assert info.converged and info.n_iter <= 100
        assert info.algorithm == "newton" or solver == "mamc"


@pytest.mark.parametrize("solver", ["l1svc", "ldm", "odm"])
@pytest.mark.parametrize("C", [1.0, 1e4])
def test_raw_features_that_separate(solver, C):
    """More features than rows, of size 1e4: the curvature is singular to working precision."""
    X, y = problem(m=60, d=150)
    info = ml.train(1e4 * X, y, solver=solver, C=C, algorithm="newton").info
    assert info.converged and info.n_iter <= 100


@pytest.mark.parametrize("solver", ["l1svc", "ldm", "odm", "lssvm"])
def test_raw_features_of_few_values(solver):
    """Hundreds of rows with one margin: where few rows curve F, steps are 1e-13 of what the curvature promises."""
    X = 1e4 * np.random.default_rng(0).integers(2, size=(500, 4))
    y = np.random.default_rng(1).random(500) < 0.2 + 0.15 * X.sum(axis=1) / 1e4
    info = ml.train(X, y, solver=solver, C=1e4, algorithm="newton").info
    assert info.converged and info.n_iter <= 60


def test_margins_that_are_sums_of_large_terms():
    """Nearly equal features of size 1e7 with weights of size 1: G ends far below the rounding of the margins."""
    rng = np.random.default_rng(0)
    X = np.outer(rng.uniform(1e6, 1e7, 300), np.ones(6)) + rng.normal(size=(300, 6))
    y = X @ [1, -1, 1, -1, 1, -1] + rng.normal(size=300) > 0
    info = ml.train(X, y, solver="lssvm", C=1e4, algorithm="newton", tol=1e-6).info
    assert info.converged and info.n_iter <= 60


@pytest.mark.parametrize(("solver", "options"), METHODS)
def test_warm_start_stops_at_once(solver, options):
    X, y = problem()
    first = ml.train(X, y, solver=solver, C=5, algorithm="newton", **options)
    again = ml.train(X, y, solver=solver, C=5, algorithm="newton", start=first, **options)
    assert first.info.converged and again.info.converged
    assert again.info.n_iter == 0


@pytest.mark.parametrize("route", ["cd", "accelerated", "newton", "auto"])
@pytest.mark.parametrize("solver", ["l1svc", "ldm", "odm"])
def test_goes_on_from_another_route(route, solver):
    X, y = problem()
    first = ml.train(X, y, solver=solver, C=5, algorithm="newton", tol=1e-2)
    second = ml.train(X, y, solver=solver, C=50, algorithm=route, start=first)
    third = ml.train(X, y, solver=solver, C=5, algorithm="newton", start=second)
    assert second.info.converged and third.info.converged


def test_limits_are_obeyed():
    X, y = problem(m=400)
    with pytest.warns(ml.ConvergenceWarning):
        model = ml.train(X, y, solver="l1svc", C=1000, algorithm="newton", tol=1e-14, max_iter=13)
    assert (model.info.status, model.info.n_iter, model.info.algorithm) == ("max_iter", 13, "newton")


@pytest.mark.filterwarnings("ignore")
def test_interrupt_is_noticed(interrupts_second_round):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20000, 200)), rng.integers(2, size=20000)
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        ml.train(X, y, solver="l1svc", C=100, algorithm="newton", tol=1e-300, callback=interrupts_second_round)
    assert time.perf_counter() - started < 20


def test_too_many_weights_are_refused():
    X, y = sparse.eye_array(3001, 4000), np.arange(3001) % 2
    with pytest.raises(ValueError, match=r"3001.*'auto'"):
        ml.train(X, y, solver="l1svc", algorithm="newton")
    assert ml.train(X, y, solver="l1svc", tol=1e-2).info.algorithm != "newton"


@pytest.mark.parametrize("solver", ["l1svc", "l2svc", "odm", "lssvm", "ldm"])
def test_few_rows_far_from_the_origin(solver):
    """A step costs hundreds of sweeps of few rows: auto took the accelerator to the cap on sweeps, which it met."""
    rng = np.random.RandomState(0)
    X, y = rng.normal(loc=100, size=(100, 2)), rng.randint(2, size=100)
    for bias in (-1, 1):
        assert ml.train(X, y, solver=solver, bias=bias).info.converged
