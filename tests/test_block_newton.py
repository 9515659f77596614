"""Proximal Newton steps: the derivatives of what they minimise, and fits that agree with the other routes."""

import time

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear._core.block_cd import BlockCD
from marginlinear._core.block_newton import BlockNewton, GramBlockNewton
from marginlinear._core.rows import Rows

METHODS = [("mcodm", {}), ("mcodm", {"mu": 0.0}), ("mcodm", {"outer": "paper"}), ("cs", {}), ("lpmcsvm", {"norm": 1.2})]
HINGES = "hinge", "norm"


def problem(m=200, d=6, k=4, seed=0, scale=1.0):
    """Overlapping classes; some zeros, one empty row, one repeated row."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=m)
    X = rng.normal(size=(m, d)) + 0.8 * rng.normal(size=(k, d))[y]
    X[rng.random((m, d)) < 0.2] = 0
    X[3] = 0
    X[5], y[5] = X[4], y[4]
    return scale * X, y


def objective(W, X, y, solver, C, mu=0.8, theta=0.2):
    """The method's objective from its definition."""
    scores = X @ W
    own = scores[np.arange(len(y)), y]
    scores[np.arange(len(y)), y] = -np.inf
    margins = own - scores.max(axis=1)
    half = 0.5 * np.sum(W * W)
    if solver == "cs":
        return half + C * np.maximum(0, 1 - margins).sum()
    low, high = np.maximum(0, 1 - theta - margins), np.maximum(0, margins - 1 - theta)
    return half + C / (1 - theta) ** 2 * (low**2 + mu * high**2).sum()


def engine_of(loss, X, y, k, seed=0, make=Rows.from_dense):
    rng = np.random.default_rng(seed)
    engine = BlockCD(make(X), y.astype(np.int32), k, rng.uniform(0.5, 2, len(y)),
                     loss="hinge" if loss in HINGES else "sum" if loss == "sum" else "squared",
                     low=1.0 if loss in HINGES else 0.8, high=1.1, mu=0.7, norm=1.2 if loss == "norm" else 2.0)
    for _ in range(3):
        engine.sweep()
        engine.adapt()
    if loss == "rival":
        engine.name_rivals(engine.best_rivals()[0])
    elif loss == "fixed":
        engine.fix_references(engine.best_rivals()[1])
    return engine


@pytest.mark.parametrize("loss", ["hinge", "sum", "lower", "rival", "fixed"])
@pytest.mark.parametrize("k", [2, 5])
def test_steps_over_gram_rows_are_those_over_features(loss, k):
    X, y = problem(m=60, k=k)
    features = BlockNewton(engine_of(loss, X, y, k))
    gram = GramBlockNewton(engine_of(loss, X @ X.T, y, k, make=Rows.from_gram))
    # Of one more, at the optimum, rounding decides.
    for _ in range(6):
        for newton in (features, gram):
            newton.step()
        scores, coefficients = np.asarray(gram.W).reshape(2, len(y), k)
        assert np.allclose(scores, X @ np.asarray(features.W).reshape(-1, k), rtol=1e-6, atol=1e-6)
        assert np.allclose(X @ X.T @ coefficients, scores, atol=1e-9)
        assert gram.value == pytest.approx(features.value, rel=1e-8)
        assert gram.g == features.g


@pytest.mark.parametrize("loss", ["hinge", "lower"])
def test_conjugate_gradients_where_more_duals_are_free_than_one_solution_takes(loss):
    X, y = problem(m=800, k=6)
    engines = [BlockCD(make(rows), y.astype(np.int32), 6, np.full(800, 20.0), low=0.8,
                       loss="hinge" if loss == "hinge" else "squared")
               for make, rows in ((Rows.from_dense, X), (Rows.from_gram, X @ X.T))]
    features, gram = BlockNewton(engines[0]), GramBlockNewton(engines[1])
    # At W = 0 all 4,000 duals are within their ranges.
    gradient = gram.smooth(np.asarray(gram.W))[1]
    scores, coefficients = gradient.reshape(2, 800, 6)
    direction = np.asarray(gram._direction(gradient)).reshape(2, 800, 6)
    assert np.allclose(X @ X.T @ direction[1], direction[0])
    features.smooth(np.asarray(features.W))
    left = (X.T @ coefficients).ravel() - features.curvature() @ (X.T @ direction[1]).ravel()
    assert left @ left <= 2e-6 * np.vdot(scores, coefficients)
    bound = -np.inf
    for _ in range(150):
        gram.step()
        bound = max(bound, gram.bound)
        if gram.primal - bound <= 1e-3 * gram.primal:
            break
    assert engines[1].primal()[0] == pytest.approx(gram.primal, rel=1e-9)
    assert 0 <= gram.primal - bound <= 1e-3 * gram.primal
    before = np.array(gram.W)
    gram.W[7] += 1.0
    gram.restart()
    assert np.allclose(gram.W, before)


def test_conjugate_gradients_of_no_gradient_and_of_no_inner_product():
    y = np.arange(800, dtype=np.int32) % 6
    for K, finite in ((np.zeros((800, 800)), True), (-np.eye(800), False)):
        gram = GramBlockNewton(BlockCD(Rows.from_gram(K), y, 6, np.full(800, 20.0), loss="hinge"))
        direction = gram._direction(gram.smooth(np.asarray(gram.W))[1])
        assert np.isfinite(direction).all() == finite
        assert direction.any() != finite


@pytest.mark.parametrize("loss", ["hinge", "norm", "lower", "rival", "fixed"])
@pytest.mark.parametrize("k", [2, 5])
def test_derivatives_by_central_differences(loss, k):
    X, y = problem(m=40, d=4, k=k)
    engine = engine_of(loss, X, y, k)
    newton = BlockNewton(engine)
    rng = np.random.default_rng(1)
    for spread in (0.1, 1.0):
        W = engine.iterates.W + spread * rng.normal(size=4 * k)
        gradient = newton.smooth(W)[1]
        curvature = newton.curvature()
        assert np.allclose(curvature, curvature.T)
        h = 1e-7
        for _ in range(5):
            v = rng.normal(size=4 * k)
            above, slope_above = newton.smooth(W + h * v)
            below, slope_below = newton.smooth(W - h * v)
            assert (above - below) / (2 * h) == pytest.approx(gradient @ v, rel=1e-5, abs=1e-5)
            np.testing.assert_allclose((slope_above - slope_below) / (2 * h), curvature @ v, rtol=1e-4,
                                       atol=1e-4 * np.abs(curvature @ v).max())


@pytest.mark.parametrize("loss", ["hinge", "norm", "lower", "rival", "fixed"])
def test_values_of_a_step_are_those_of_the_engine(loss):
    X, y = problem()
    engine = engine_of(loss, X, y, 4)
    newton = BlockNewton(engine)
    for _ in range(6):
        newton.step()
        primal, tight, stale = engine.primal()
        assert newton.primal == pytest.approx(primal, rel=1e-12)
        assert newton.objective == pytest.approx(tight, rel=1e-12)
        assert newton.stale == stale
        assert newton.bound == pytest.approx(engine.recomputed_dual(False), rel=1e-9, abs=1e-9)
        assert newton.bound == pytest.approx(engine.dual(), rel=1e-9, abs=1e-9)
        assert newton.primal >= newton.bound - 1e-9 * abs(newton.primal)


@pytest.mark.parametrize(("solver", "mu"), [("mcodm", 0.8), ("mcodm", 0.0), ("cs", None)])
@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("k", [2, 4])
def test_agrees_with_accelerated_sweeps(solver, mu, C, k, rows_as_given):
    X, y = problem(k=k)
    options = {} if mu is None else {"mu": mu}
    # Sweeps alone stall above this tolerance in about one order of the rows of three: cs, k = 4, C = 100.
    a, b = (ml.train(X, y, solver=solver, C=C, algorithm=route, tol=1e-6, seed=1, **options)
            for route in ("accelerated", "newton"))
    assert a.info.converged and b.info.converged
    assert b.info.certificate >= -1e-9 * b.info.objective
    convex = solver == "cs" or k == 2 or mu == 0
    assert b.info.objective == pytest.approx(a.info.objective, rel=3e-6 if convex else 1e-3)
    assert b.info.objective == pytest.approx(objective(b.weights, X, y, solver, C, **options), rel=1e-9)


@pytest.mark.filterwarnings("ignore::marginlinear.ConvergenceWarning")
@pytest.mark.parametrize("k", [2, 4])
def test_fixed_references(k):
    """The published outer loop, whose own convergence is slow whatever solves its problems."""
    X, y = problem(k=k)
    a, b = (ml.train(X, y, C=1, algorithm=route, outer="paper", tol=1e-8, max_outer=5000)
            for route in ("accelerated", "newton"))
    assert b.info.algorithm == "newton"
    assert b.info.objective == pytest.approx(a.info.objective, rel=1e-4)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_storages_agree(kind):
    X, y = problem()
    X = X.astype(kind)
    fits = [ml.train(data, y, C=10, algorithm="newton", bias=1.0) for data in (X, sparse.csr_array(X))]
    assert fits[0].info.algorithm == "newton"
    np.testing.assert_allclose(fits[0].weights, fits[1].weights, rtol=1e-6, atol=1e-9)


def test_same_bits_twice():
    X, y = problem()
    fits = [ml.train(X, y, C=10, algorithm="newton", threads=t).weights for t in (1, 1, 2)]
    assert (fits[0] == fits[1]).all() and (fits[0] == fits[2]).all()


@pytest.mark.parametrize("solver", ["mcodm", "cs"])
def test_weights_equal_repeats(solver):
    X, y = problem(m=80)
    repeats = np.random.default_rng(2).integers(1, 4, len(y))
    options = {"solver": solver, "algorithm": "newton", "tol": 1e-8}
    if solver == "mcodm":
        options["mu"] = 0.0
    weighted = ml.train(X, y, sample_weight=repeats, **options)
    repeated = ml.train(np.repeat(X, repeats, axis=0), np.repeat(y, repeats), **options)
    assert weighted.info.objective == pytest.approx(repeated.info.objective, rel=1e-7)
    np.testing.assert_allclose(weighted.weights, repeated.weights, atol=1e-3)


@pytest.mark.parametrize("solver", ["mcodm", "cs"])
def test_raw_features(solver):
    """Features of size 1 to 1e4: the reason for this route."""
    X, y = problem(m=400, d=5, k=2)
    X = X * 10.0 ** np.arange(5)
    for C in (1.0, 1e4):
        model = ml.train(X, y, solver=solver, C=C)
        assert model.info.converged and model.info.algorithm == "newton"


@pytest.mark.parametrize(("solver", "options"), METHODS)
def test_warm_start_stops_at_once(solver, options):
    X, y = problem()
    first = ml.train(X, y, solver=solver, C=5, algorithm="newton", **options)
    again = ml.train(X, y, solver=solver, C=5, algorithm="newton", start=first, **options)
    assert first.info.converged and again.info.converged
    assert again.info.n_iter <= (2 if options.get("outer") == "paper" else 0)


@pytest.mark.parametrize("route", ["cd", "accelerated", "newton", "auto"])
def test_goes_on_from_another_route(route):
    X, y = problem()
    first = ml.train(X, y, C=5, algorithm="newton", tol=1e-2)
    second = ml.train(X, y, C=50, algorithm=route, start=first)
    third = ml.train(X, y, C=5, algorithm="newton", start=second)
    assert second.info.converged and third.info.converged


def test_limits_are_obeyed():
    X, y = problem(m=400)
    with pytest.warns(ml.ConvergenceWarning):
        model = ml.train(X, y, C=1000, algorithm="newton", tol=1e-12, max_iter=13)
    assert (model.info.status, model.info.n_iter, model.info.algorithm) == ("max_iter", 13, "newton")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20000, 60)), rng.integers(10, size=20000)
    with pytest.warns(ml.ConvergenceWarning):
        model = ml.train(X, y, C=1000, algorithm="newton", tol=1e-12, time_limit=0.3)
    # Time for one step more on a machine whose BLAS threads have to wait for others.
    assert model.info.status == "time_limit" and model.info.seconds < 20


@pytest.mark.filterwarnings("ignore")
def test_interrupt_is_noticed(interrupts_second_round):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20000, 60)), rng.integers(10, size=20000)
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        ml.train(X, y, C=100, algorithm="newton", tol=1e-12, callback=interrupts_second_round)
    assert time.perf_counter() - started < 20


@pytest.mark.parametrize("solver", ["cs", "lpmcsvm"])
def test_steps_that_are_cut_short_again_and_again(solver):
    """The proximal term grows until steps are whole; otherwise thousands would not do."""
    rng = np.random.default_rng(1)
    X = np.round(2 * rng.normal(size=(300, 20)))
    y = (X @ rng.normal(size=(20, 3)) + 3 * rng.normal(size=(300, 3))).argmax(axis=1)
    assert ml.train(X, y, solver=solver, C=1e6, algorithm="newton", max_iter=500).info.converged


def test_too_many_weights_are_refused():
    X, y = np.eye(6, 1200), np.array([0, 1, 2, 3, 4, 5])
    with pytest.raises(ValueError, match=r"5 x 1200 = 6000.*'auto'"):
        ml.train(X, y, algorithm="newton")
    assert ml.train(X, y, tol=1e-2).info.algorithm != "newton"
