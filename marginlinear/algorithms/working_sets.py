"""Sparse weights: the features that violate optimality most are solved for, until the gap of all is small enough.

    P(w) = l1 ||w||_1 + l2/2 ||w||^2 + sum_i c_i phi(y_i w.x_i),   D(a) as in _core/feature_cd.pyx

A survey of the rows has U = sum_i a_i y_i x_i with a_i = -c_i phi'. Where l2 = 0 the duals must have |U_j| <= l1: they
are those forces times a share that makes them so, and the best one below it. At the optimum the share is 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from marginlinear.algorithms.free_bias import ROUNDING, bracket
from marginlinear.algorithms.newton import ROUGH, ROUGH_STEPS, levels_of, part_of_rows
from marginlinear.algorithms.sparse_newton import MOST, ProximalPoints
from marginlinear.problem import Info, Solution
from marginlinear.status import STALLED, allowance, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from marginlinear._core.feature_cd import FeatureCD
    from marginlinear._typing import BoolArray, Flag, FloatArray, IntArray, IntpArray, State, Table
    from marginlinear.algorithms.certificate import Budget
    from marginlinear.problem import Problem, Run

# The first set has so many features; a later one all that have a weight, and as many again.
FIRST = 1000
# A set is solved until its violations are this part of what those of all features are, a step's model until they are
# this part of the set's.
PART, MODEL = 0.3, 0.3
# The cycles of a step, at most: twice as many after one that W went whole, half as many after another, whose model was
# solved better than it was true.
CYCLES = 8
# Where the objective falls by less than this part of what the certificate may be, the bound is what lacks: so many
# features, those that violate optimality most and so scale all duals down, are solved for alone, again if the
# certificate is then less than this part of what it was. Where no more than FEW have a weight, all are at once anyway.
SMALL, WORST, LESS, FEW = 0.1, 50, 0.6, 500
# A gap that is a smaller part of the objective than this tells of features without a weight; what rounding leaves of
# one.
NARROW, ROUNDED = 0.1, 1e-14
# Proximal points follow when steps have cost as much as so many Newton steps of theirs, or made this part of the cycles
# that are allowed.
AHEAD, LATEST = 30, 0.75
# Steps on a set.
STEPS = 20


class SparseFit:
    """A binary fit of the loss `table`, as margin_cd.table_of takes it, of costs `cost`.

    Parameters
    ----------
    problem : Problem
    run : Run
    cost : float64 array of shape (m,)
    table : tuple
    l1, l2 : float
    free_bias : bool
        Whether the weight of the bias feature, the last one, costs nothing. Then it is the best one for the others
        wherever duals are made, which so have sum_i y_i a_i = 0.
    """

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, table: Table, l1: float, l2: float,
                 free_bias: bool = False) -> None:
        from marginlinear._core.feature_cd import FeatureCD
        from marginlinear._core.margin_cd import table_of
        from marginlinear.algorithms.certificate import Budget
        from marginlinear.algorithms.dual import renumbered

        problem, run, self.to_outer = renumbered(problem, run, rotated=False)
        self.run = run
        self.free, self.bias = problem.rows.d - 1 if free_bias else -1, problem.rows.bias
        self.engine = FeatureCD(problem.rows, problem.y, cost, table_of(*table), l1, l2, run.seed, self.free)
        self.positive, self.cycles = np.asarray(problem.y) > 0, 1
        self.zero = np.zeros(problem.rows.d, dtype=bool)
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        self.points, self.moving = ProximalPoints(self.engine, self.budget, run.threads), False
        run.enlist(self)
        if run.start is not None:
            np.asarray(self.engine.W)[:] = run.start["W"]
        else:
            begin_on_part(self.engine, self.budget)

    def convex(self) -> Solution:
        engine, bound, stopped = self.engine, -math.inf, None
        alone: Flag
        before, earlier, alone = math.inf, math.inf, False
        if self.free >= 0:
            engine.survey()
        while True:
            objective = self.survey()
            for dual, share in self.bounds():
                self.screen(share, objective - dual, objective)
                bound = max(bound, dual)
            certificate = objective - bound
            self.budget.record(self.n_iter, objective, bound, certificate)
            if certificate <= allowance(self.run.tol, objective):
                break
            stopped = self.budget.spent(self.n_iter, objective, bound)
            if stopped:
                break
            if self.budget.idle == 0 and self.move(certificate):
                continue
            alone = (before - objective <= SMALL * allowance(self.run.tol, objective)
                     and np.count_nonzero(engine.W) > FEW and not (alone and certificate > LESS * earlier))
            earlier = certificate
            if alone:
                self.solve_worst()
            else:
                before = objective
                self.solve()
        status, reason = status_of(certificate, objective, self.run.tol, stopped or STALLED)
        weights = self.weights()
        columns = weights.size // len(weights)
        # Features that no row has are none of the engine's.
        told = weights.size - columns * np.count_nonzero(~self.zero)
        info = Info(status=status, reason=reason, algorithm="newton" if self.moving else "cd", n_iter=self.n_iter,
                    n_outer=0, objective=objective, bound=bound, certificate=certificate,
                    n_support=engine.count_support(), seconds=self.budget.seconds, tol=self.run.tol,
                    history=self.budget.history,
                    notes=(f"{np.count_nonzero(weights)} of {weights.size} weights are not 0",
                           f"{told} are 0 at the optimum, as the certificate tells"))
        return Solution(weights.reshape(len(weights), columns), info, self.state())

    @property
    def n_iter(self) -> int:
        return self.engine.cycles + self.points.n_iter

    def state(self) -> State:
        """The weights as they are: see Run.fits."""
        return {"W": self.weights(), "duals": np.array(self.engine.force)}

    def weights(self) -> FloatArray:
        """Those of the features as they were given: float64 array of shape (d,)"""
        W = np.array(self.engine.W)
        return W if self.to_outer is None else self.to_outer(W)

    def survey(self) -> float:
        """P, at the best bias where that is free."""
        engine = self.engine
        if self.free >= 0:
            low, high = bracket(engine.slope_of_bias, 0.0, 1e-3, ROUNDING * float(np.sum(engine.force)))
            shift = high if math.isinf(low) else low
            engine.W[self.free] += shift / self.bias
        return engine.survey()

    def bounds(self) -> Iterator[tuple[float, float]]:
        """`bound` of the forces at the weights, and then of those of a proximal point, which are better ones."""
        yield self.bound()
        forces = self.points.forces
        if forces is not None:
            if self.free >= 0:
                balance(forces, self.positive)
            np.asarray(self.engine.force)[:] = forces
            np.asarray(self.engine.U)[:] = self.engine.sum_of(forces)
            yield self.bound()

    def bound(self) -> tuple[float, float]:
        """The best D of the forces times a share, and that share."""
        engine = self.engine
        U = np.abs(engine.U)
        if self.free >= 0:
            U[self.free] = 0.0
        return best_share(engine.bound, U.max(), engine.l1, engine.l2)

    def screen(self, share: float, gap: float, objective: float) -> None:
        """Features without a weight at the optimum, as the forces times this share tell, whose gap this is."""
        if gap > NARROW * abs(objective):
            return
        engine = self.engine
        # A bound above the objective by rounding is none below it.
        reach = share * np.abs(engine.U) + engine.radii(max(gap, ROUNDED * abs(objective)))
        self.zero |= reach < engine.l1
        if self.free >= 0:
            self.zero[self.free] = False

    def violations(self) -> FloatArray:
        """The least subgradients' sizes, of all features, at the last survey; 0 of the one whose weight is free, which
        that survey has found, and of those without a weight now and at the optimum."""
        W, l1 = np.asarray(self.engine.W), self.engine.l1
        slope = self.engine.l2 * W - np.asarray(self.engine.U)
        found: FloatArray = np.where(W == 0, np.maximum(0.0, np.abs(slope) - l1), np.abs(slope + l1 * np.sign(W)))
        found[self.zero & (W == 0)] = 0.0
        if self.free >= 0:
            found[self.free] = 0.0
        return found

    def solve_worst(self) -> None:
        """A step on the features that violate optimality most."""
        violations = self.violations()
        worst = np.argpartition(-violations, WORST)[:WORST]
        self.engine.step(self._columns(worst[violations[worst] > 0]), MODEL, CYCLES)

    def _columns(self, wanted: IntArray) -> IntpArray:
        """Those of these features, gathered, and of the bias where that is free."""
        if self.free >= 0:
            wanted = np.union1d(wanted, [self.free])
        return self.engine.gather(wanted).astype(np.intp)

    def move(self, certificate: float) -> bool:
        """To the next proximal point, if these have begun."""
        engine, points = self.engine, self.points
        n = points.unknowns()
        if not 0 < n <= MOST:
            return False
        due = AHEAD * points.price(n)
        self.moving = self.moving or engine.work > due or engine.cycles > LATEST * self.budget.max_iter
        if self.moving:
            points.step(certificate)
            if self.free >= 0:
                # The best bias is that at the engine's margins.
                engine.survey()
        return self.moving

    def solve(self) -> None:
        """Steps on the features with a weight, and those that violate optimality most."""
        engine, violations = self.engine, self.violations()
        columns = self._columns(features_to_solve(np.asarray(engine.W), violations))
        enough = PART * violations.sum()
        for _ in range(STEPS):
            violation, fall, part = engine.step(columns, MODEL, self.cycles)
            self.cycles = min(CYCLES, 2 * self.cycles) if part == 1 else max(1, self.cycles // 2)
            if violation <= enough or fall == 0 or self.budget.exhausted(self.n_iter):
                return


def begin_on_part(engine: FeatureCD, budget: Budget) -> None:
    """Steps on a part of the rows, and before on a part of those, while they are many for each feature; their weights
    become the engine's."""
    if levels_of(engine.rows) == 0:
        return
    part = engine.of_rows(part_of_rows(engine.rows.m))
    begin_on_part(part, budget)
    columns, objective = part.gather(np.arange(part.rows.d)).astype(np.intp), part.survey()
    for _ in range(ROUGH_STEPS):
        fall = part.step(columns, MODEL, CYCLES)[1]
        objective -= fall
        if fall <= ROUGH * objective or budget.exhausted(part.cycles):
            break
    np.asarray(engine.W)[:] = part.W


def balance(forces: FloatArray, positive: BoolArray) -> None:
    """Lower those of one class, so that sum_i y_i a_i = 0."""
    sides = positive, ~positive
    sums = [float(forces[side].sum()) for side in sides]
    for side, total in zip(sides, sums, strict=True):
        if total > 0:
            forces[side] *= min(sums) / total


def features_to_solve(W: FloatArray, violations: FloatArray) -> IntArray:
    """The features with a weight, and those others that violate optimality most."""
    held, others = np.flatnonzero(W), np.flatnonzero((W == 0) & (violations > 0))
    room = max(FIRST, len(held))
    if len(others) > room:
        others = others[np.argpartition(-violations[others], room)[:room]]
    return np.concatenate((held, others))


def best_share(bound: Callable[[float], float], largest: float, l1: float, l2: float) -> tuple[float, float]:
    """(bound(share), share), the largest of those allowed, `largest` being that of |U|: D is concave in the share."""
    most = min(1.0, l1 / largest) if largest > 0 and l2 == 0 else 1.0
    best = bound(most)
    # Where a little less is worth more, so is what is between.
    if bound((1 - 1e-6) * most) > best:
        from scipy.optimize import minimize_scalar

        found = minimize_scalar(lambda share: -bound(share), bounds=(0.0, most), method="bounded")
        if -found.fun > best:
            return -found.fun, found.x
    return best, most
