"""The descent's decisions, on engines that only count."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import marginlinear
from marginlinear.algorithms.descent import EARLY, TRIFLE, Budget, Check, Descent


def stalled(gap, *, convex, renewal):
    """A Descent after a dozen checks that all found this gap below a ceiling of 1,000, tolerance 1e-3."""
    engine = SimpleNamespace(iterates=SimpleNamespace(kappa=0.0), n_iter=0, kinked=False, loss_at_zero=lambda: 1e3)
    descent = Descent(engine, Budget(None, None), 1e-3, "accelerated")
    descent.convex, descent.renewal, descent.ceiling, descent.switching = convex, renewal, 1000.0, False
    descent.last = Check(999.0, 999.0, True, 999.0 - gap, True)
    descent.best_primal, descent.best_bound = 999.0, 999.0 - gap
    for n_iter in range(100, 700, 50):
        engine.n_iter = n_iter
        descent._judge()
    return descent


@pytest.mark.parametrize(("gap", "convex", "renewal", "switches"), [
    (5.0, True, 0.0, True), (0.9, True, 0.0, False), (0.5, False, 0.3, True), (0.2, False, 0.3, False)])
def test_a_stall_above_the_gap_that_ends_the_stage_asks_for_another_way(gap, convex, renewal, switches):
    """Around an anchor that stays, a gap within the tolerance does not end the stage: mcodm on sector at C = 128 made
    20,000 sweeps without trying the other way to set kappa."""
    assert stalled(gap, convex=convex, renewal=renewal).switching is switches


@pytest.mark.parametrize(("flat", "left_out", "gap", "expected"), [
    (False, -math.inf, 50.0, -math.inf), (False, 0.1, 50.0, 50.0 * TRIFLE), (False, 5.0, 50.0, 5.0),
    (False, 0.1, math.inf, 0.1), (True, 0.1, 50.0, 0.1)])
def test_what_a_sweep_leaves_out(flat, left_out, gap, expected):
    """Nothing before the first check, when duals may be out of their range: mamc would never leave 0."""
    told = []
    engine = SimpleNamespace(iterates=SimpleNamespace(kappa=0.0), n_iter=0, gap=gap, flat=flat, neglect=told.append,
                             sweep=lambda: None, loss_at_zero=lambda: 1.0)
    descent = Descent(engine, Budget(None, None), 1e-3, "cd")
    descent.left_out = left_out
    descent._sweep()
    assert told == [expected]


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
    engine = SimpleNamespace(iterates=SimpleNamespace(kappa=kappa), gap=gap, stable=stable, loss_at_zero=lambda: 1.0)
    descent = Descent(engine, Budget(None, None), 1e-3, "cd")
    descent.best_bound = -999.0
    assert descent._ran_away() is ran_away
