"""Starts along a path, against the formulas of warm_start.py's docstring in NumPy."""

import numpy as np
import pytest
from scipy import optimize

import marginlinear as ml
from marginlinear._core.admm import ADMM
from marginlinear._core.block_cd import BlockCD
from marginlinear._core.rows import Rows
from marginlinear.algorithms import warm_start
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.warm_start import best_mix, best_step, extrapolated


def sqnorm(x):
    return float(x @ x)


def problem(seed, parts):
    """(parts, images, l, h, held duals, their image, D of duals)"""
    rng = np.random.default_rng(seed)
    rows, duals = rng.standard_normal((12, 7)), rng.random((parts, 12))
    l, h, held = rng.random(12), rng.random(12) * (rng.random(12) < 0.7), rng.random(12) * (rng.random(12) < 0.3)
    duals[:, held > 0] = 0

    def D(a):
        return l @ a - sqnorm(a @ rows) / 2 - (h * a * a).sum() / 2

    return duals, duals @ rows, l, h, held, held @ rows, D


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("with_held", [False, True])
def test_the_mix_has_the_best_bound(seed, parts, with_held):
    duals, images, l, h, held, held_image, D = problem(seed, parts)
    if not with_held:
        held = np.zeros_like(held)
    t = best_mix(list(images), sqnorm, duals @ l, (duals * h) @ duals.T, held_image if with_held else None)
    slow = optimize.minimize(lambda t: -D(held + t @ duals), np.zeros(parts), method="BFGS", options={"gtol": 1e-10})
    assert D(held + t @ duals) == pytest.approx(-slow.fun, rel=1e-9)
    assert t == pytest.approx(slow.x, rel=1e-5, abs=1e-6)


def test_parts_that_say_the_same_are_no_harm():
    duals, images, l, h, _, held_image, _ = problem(0, 1)
    one = best_mix(list(images), sqnorm, duals @ l, (duals * h) @ duals.T, held_image)
    twice = np.vstack([duals, 2 * duals])
    two = best_mix(list(np.vstack([images, 2 * images])), sqnorm, twice @ l, (twice * h) @ twice.T, held_image)
    assert two @ twice == pytest.approx(one @ duals, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_the_step_has_the_best_bound_between_two(seed):
    duals, images, l, h, _, _, D = problem(seed, 2)
    duals, images = duals * [[1], [0.2]], images * [[1], [0.2]]
    step = best_step(*images, sqnorm, duals @ l, (duals * h) @ duals.T)
    values = [D(duals[0] + s * (duals[1] - duals[0])) for s in np.linspace(0, 1, 1001)]
    assert 0 <= step <= 1
    assert D(duals[0] + step * (duals[1] - duals[0])) >= max(values) - 1e-12


def test_duals_that_grow_as_a_power_of_the_cost_are_foreseen():
    """a = c^0.5 and a = c are met exactly; what does not go on, or went another way, stays."""
    cost, before, new = np.full(5, 4.0), np.full(5, 1.0), np.full(5, 16.0)
    found = extrapolated(np.array([2.0, 4.0, 3.0, -1.0, 8.0]), cost, (np.array([1.0, 1.0, 0.0, 1.0, 1.0]), before), new)
    assert found == pytest.approx([4.0, 16.0, 3.0, -1.0, 32.0])


@pytest.mark.parametrize("solver, algorithm, mixed", [
    ("l2svr", "newton", 0), ("logistic", "newton", 0), ("l2svr", "cd", 1), ("l1svr", "auto", 1)])
def test_where_a_mix_costs_more_than_it_spares_there_is_none(monkeypatch, solver, algorithm, mixed):
    """Duals at their bounds, and many sweeps asked for, want one."""
    calls = []
    best_start = warm_start.best_start
    monkeypatch.setattr(warm_start, "best_start", lambda mix: calls.append(mix) or best_start(mix))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5))
    z = X @ rng.standard_normal(5) + rng.standard_normal(200)
    y = z if solver.endswith("svr") else z > 0
    first, cold = (ml.train(X, y, solver=solver, C=C, algorithm=algorithm, tol=1e-6) for C in (1.0, 2.0))
    warm = ml.train(X, y, solver=solver, C=2.0, algorithm=algorithm, tol=1e-6, start=first)
    assert len(calls) == mixed and warm.info.converged
    assert warm.info.objective == pytest.approx(cold.info.objective, rel=2e-6)


def test_named_rivals_keep_their_weights():
    """J at the weights of a smaller cost is at most as many times as large as the cost is; a mix of duals says nothing
    of it."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=300).astype(np.int32)
    X = Rows.from_dense(2 + rng.standard_normal((300, 12)) + rng.standard_normal((4, 12))[y])

    def engine(cost, mu=0.7):
        return BlockCD(X, y, 4, np.full(300, cost), loss="squared", low=0.8, high=1.2, mu=mu)

    first = engine(1.0)
    before = ADMM(first).run(60, Budget(None, None))
    state = first.state(False)
    assert state["named"] and state["kappa"] > 0
    again, convex = engine(3.0), engine(3.0, mu=0.0)
    warm_start.resume(again, state)
    np.testing.assert_array_equal(again.iterates.W, state["W"])
    assert before < again.primal()[1] <= 3 * before
    warm_start.resume(convex, state)
    assert convex.iterates.kappa == 0
