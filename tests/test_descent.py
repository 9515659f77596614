"""The descent's decisions, on engines that only count."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import marginlinear
from marginlinear.algorithms.certificate import OF_GAP, Budget, Check, Incumbent, SkipTolerance
from marginlinear.algorithms.descent import EARLY, Descent
from marginlinear.status import SWEEPS, TIME_LIMIT


def stalled(gap, *, follows_best, renewal):
    """A Descent after a dozen checks that all found this gap below an objective of 1,000, tolerance 1e-3."""
    engine = SimpleNamespace(iterates=SimpleNamespace(kappa=0.0), n_iter=0, nonsmooth=False, loss_at_zero=lambda: 1e3,
                             rows=SimpleNamespace(is_gram=False))
    descent = Descent(engine, Budget(None, None), 1e-3, "accelerated")
    descent.renewal, incumbent = renewal, descent.incumbent
    incumbent.follows_best, incumbent.objective, descent.accelerator.switching = follows_best, 1000.0, False
    incumbent.last = Check(999.0, 999.0, True, 999.0 - gap, True)
    incumbent.best_primal, incumbent.bound = 999.0, 999.0 - gap
    for n_iter in range(100, 700, 50):
        engine.n_iter = n_iter
        descent.accelerator.judge(descent.skip, descent.wanted)
    return descent


@pytest.mark.parametrize(("gap", "follows_best", "renewal", "switches"), [
    (5.0, True, 0.0, True), (0.9, True, 0.0, False), (0.5, False, 0.3, True), (0.2, False, 0.3, False)])
def test_a_stall_above_the_gap_that_ends_the_stage_asks_for_another_way(gap, follows_best, renewal, switches):
    """Around an incumbent that stays, a gap within the tolerance does not end the stage: mcodm on sector at C = 128
    made 20,000 sweeps without trying the other way to set kappa."""
    assert stalled(gap, follows_best=follows_best, renewal=renewal).accelerator.switching is switches


def test_stalls_make_sweeps_skip_less():
    skip, before = stalled(5.0, follows_best=True, renewal=0.0).skip, SkipTolerance()
    assert skip.of_allowed < skip.of_gap < 1e-6 < before.of_gap < before.of_allowed


@pytest.mark.parametrize(("flat", "value", "gap", "expected"), [
    (False, -math.inf, 50.0, -math.inf), (False, 0.1, 50.0, 50.0 * OF_GAP), (False, 5.0, 50.0, 5.0),
    (False, 0.1, math.inf, 0.1), (True, 0.1, 50.0, 0.1)])
def test_what_a_sweep_skips(flat, value, gap, expected):
    """Nothing before the first check, when duals may be out of their range: mamc would never leave 0."""
    skip = SkipTolerance()
    skip.value = value
    assert skip.of_sweep(SimpleNamespace(piecewise_linear=flat, gap=gap)) == expected


def test_the_incumbent_is_certified_by_the_best_bound_of_any_check():
    kept, weights = [], np.zeros(2)
    engine = SimpleNamespace(has_references=False, keep_duals=kept.append, iterates=SimpleNamespace(
        vector=lambda averaged: weights + averaged, scale=lambda x, power: None))
    incumbent = Incumbent(engine)
    for check in (Check(10.0, 10.0, False, 8.0, True), Check(9.0, 9.0, True, 7.0, False),
                  Check(9.5, 9.5, False, 8.5, False)):
        incumbent.note(check)
    assert (incumbent.objective, incumbent.bound, incumbent.best_primal) == (9.0, 8.5, 9.0)
    assert incumbent.weights.tolist() == [1, 1] and kept == [True, False]
    assert incumbent.certified(0.5 / 9) and not incumbent.certified(0.4 / 9)
    # One that stays is not replaced, and bounds on another problem say nothing of it.
    incumbent.follows_best = False
    incumbent.forget_bounds()
    incumbent.note(Check(1.0, 1.0, False, 0.5, False))
    assert (incumbent.objective, incumbent.bound, incumbent.best_primal) == (9.0, 0.5, 1.0)


def test_a_capped_budget_is_the_same_but_for_its_cap():
    budget = Budget(10, None)
    capped = budget.capped(4)
    capped.record(1, 2.0)
    assert budget.history == [{"n_iter": 1, "seconds": budget.history[0]["seconds"], "objective": 2.0, "bound": None,
                               "certificate": None, "residual": None}]
    assert (budget.exhausted(4), capped.exhausted(4), budget.exhausted(10)) == (None, SWEEPS, SWEEPS)
    assert budget.capped(20).exhausted(10) == SWEEPS and Budget(10, 0.0).exhausted(0) == TIME_LIMIT


@pytest.mark.parametrize("solver", ["l1svc", "l2svc", "ldm", "cs"])
def test_first_sweeps_are_checked_when_they_may_be_the_last(solver):
    """A pass for each of the checks at sweeps 4, 8, 12, ... would cost a tenth of a run; what is certified in the end
    is still what the last of them has found, or better."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 40)) * (rng.random((300, 40)) < 0.2)
    y = np.sign(X @ rng.normal(size=40) + rng.normal(size=300))
    info = marginlinear.train(X, y, solver=solver, C=0.05, tol=1e-3, algorithm="cd").info
    *checks, last = info.history
    assert info.converged and info.n_iter < EARLY
    assert all(entry["certificate"] <= 2e-3 * entry["objective"] for entry in checks)
    assert last["certificate"] == info.certificate <= checks[-1]["certificate"] * (1 + 1e-9)


@pytest.mark.parametrize(("gap", "kappa", "stable", "ran_away"), [
    (1e12, 0.0, True, False), (1e12, 0.0, False, True), (1e12, 1.0, True, True), (1e8, 1.0, False, False),
    (math.inf, 0.0, True, True), (math.nan, 1.0, False, True)])
def test_sweeps_that_diverge(gap, kappa, stable, ran_away):
    """P(0) = 1, D = -999: W = 0 may be 1,000 from the optimum. Stable sweeps come back from anything finite."""
    engine = SimpleNamespace(iterates=SimpleNamespace(kappa=kappa), gap=gap, stable=stable, n_iter=0,
                             piecewise_linear=True, rows=SimpleNamespace(is_gram=False), loss_at_zero=lambda: 1.0,
                             set_skip_tolerance=lambda gap: None, sweep=lambda: None)
    descent = Descent(engine, Budget(None, None), 1e-3, "cd")
    descent.incumbent.bound = -999.0
    assert descent._sweep() is not ran_away
