"""Over features: machines that are given nu, a part of the rows, in place of a cost or of the width of a band.

    P(w, b, t) = 1/2 ||w||^2 + sum_i c_i phi(g_i; t) - s T t,      T = nu sum_i c_i

with phi = (t - g)_+ and s = 1 of classes, g = y (w.x + b), or phi = (|g| - t)_+ and s = -1 of residuals, g = w.x + b -
z, t >= 0. For one t the rest is a fit with a bias that costs nothing (free_bias.py), whose sum of |duals| is s times
the slope of its optimum over t, which is convex: the t where that sum is T is looked for. P is taken at the best t and
b for w, a quantile on either side; D, which knows nothing of t, at duals that are moved to T/2 on each side, and at
those of the nearest t below and above, mixed until they have that sum: where the optimum has a kink over t, as of rows
that the cost of w hardly moves, none else are near. `n_outer` counts the values of t.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from marginlinear._core.margin_cd import table_of
from marginlinear._core.vector import dot
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.dual import MarginFit
from marginlinear.algorithms.fixed_sums import band_of, in_units_of_rho, moved_to, require_rows, threshold, told_epsilon
from marginlinear.algorithms.free_bias import FreeBiasFit
from marginlinear.algorithms.secant import Valley
from marginlinear.problem import Solution
from marginlinear.status import STALLED, allowance, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from marginlinear._typing import FloatArray, State, Table
    from marginlinear.problem import Problem, Run

# The first fit's tolerance; later ones have this part of what the certificate lacks, or at least of its tolerance.
FIRST, PART, LEAST = 0.1, 0.2, 0.5
# Fits are many, and to tight tolerances: Newton steps that cost as many sweeps, or multiplications, are worth it.
SWEEPS, MULTIPLICATIONS = 100.0, 3e7
# An epsilon of this part of the first one may as well be 0.
NONE = 1e-3
# So many fits in a row that bring neither a lower P nor a higher D are the end: what is left is rounding.
IDLE = 8


class NuFit:
    """One fit of a problem whose last feature is the bias feature.

    Attributes
    ----------
    t : float
    objective : float
        The lowest P so far; `weights` are its w, and last the bias.
    feasible : array of shape (m,)
        The duals of the highest D so far.
    """

    # s, as above.
    side: float

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, nu: float) -> None:
        self.problem, self.run, self.cost = problem, run, cost
        self.total = nu * float(cost.sum())
        self.told = Budget(None, None, run.progress)
        self.objective, self.bound, self.certificate = math.inf, -math.inf, math.inf
        self.weights = np.zeros(problem.rows.d)
        self.feasible = np.zeros(problem.rows.m)
        # The last duals whose sum was above T, and those whose sum was not, with what it was above.
        self.known: dict[bool, tuple[FloatArray, float]] = {}
        self.t = self.first = 1.0 if run.start is None else run.start["t"]
        self.free = FreeBiasFit(
            problem, run._replace(tol=max(run.tol, FIRST), progress=None, fits=None),
            partial(MarginFit, cost=cost, tables=[self._table()]),
            max(SWEEPS, MULTIPLICATIONS / (1.0 + problem.rows.nonzeros())))
        if run.start is None or self.t == 0:
            self.t = self.first = self._first()
            self._take_losses()
        run.enlist(self)

    def _take_losses(self) -> None:
        self.free.solver.engine.take_losses([table_of(*self._table())])

    def _first(self) -> float:
        """A t to begin with, above 0."""
        raise NotImplementedError

    def _table(self) -> Table:
        """phi"""
        raise NotImplementedError

    def _note_primal(self, weights: FloatArray, scores: FloatArray) -> bool:
        """Whether these weights, and their scores without a bias, have a lower P."""
        raise NotImplementedError

    def _dual(self, duals: FloatArray, half: float) -> float:
        """D of duals that have their sums, and ||u||^2/2."""
        raise NotImplementedError

    def _feasible(self, duals: FloatArray) -> Iterator[FloatArray]:
        """These duals, those of each side moved to T/2."""
        raise NotImplementedError

    def _ended(self) -> tuple[FloatArray, tuple[str, ...]]:
        """The weights that are told, and notes."""
        raise NotImplementedError

    def solution(self) -> Solution:
        free, solver, n_outer, idle = self.free, self.free.solver, 0, 0
        engine, tol, search = solver.engine, self.run.tol, Valley()
        looked = self.run.start is None
        while True:
            if looked:
                inner = free.solution()
                n_outer, idle = n_outer + 1, idle + 1
                scores, duals = free.scores, free.feasible
            else:
                # What a fit has left may be all that is asked for.
                inner = solver.solution_of_incumbent()
                scores, duals = free.scores_of(np.array(engine.iterates.vector(False))), inner.state["duals"]
            lower = self._note_primal(inner.weights[:-1, 0], scores)
            excess = float(np.abs(duals).sum()) - self.total
            if self._note_bound(duals, excess) or lower:
                idle = 0
            self.certificate = self.objective - self.bound
            self.told.record(engine.n_iter, self.objective, self.bound, self.certificate)
            stopped = solver.budget.exhausted(engine.n_iter) or (STALLED if idle >= IDLE else None)
            if stopped or self.certificate <= allowance(tol, self.objective):
                break
            if not looked:
                looked = True
                continue
            lacking: float = inner.info.certificate  # type: ignore[assignment]  # a dual fit has one
            value = inner.info.objective - self.side * self.total * self.t
            t = self._allowed(search.after(self.t, value, self.side * excess, max(0.0, lacking)), search.low is None)
            part = max(PART * self.certificate, LEAST * allowance(tol, self.objective))
            part = min(part / max(1.0, abs(inner.info.objective)), FIRST)
            if t == self.t:
                part = min(part, PART * free.run.tol)
            self.t = t
            self._take_losses()
            engine.resume({"duals": inner.state["duals"], "W": None, "kappa": 0.0})
            free.renew(part)
        status, reason = status_of(self.certificate, self.objective, tol, stopped or STALLED)
        weights, notes = self._ended()
        weights = np.append(weights[:-1], weights[-1] / self.problem.rows.bias)
        info = inner.info._replace(
            status=status, reason=reason, n_iter=engine.n_iter, n_outer=n_outer, objective=self.objective,
            bound=self.bound, certificate=self.certificate, tol=tol, seconds=self.told.seconds,
            history=self.told.history, n_support=int(np.count_nonzero(self.feasible)), notes=notes)
        return Solution(weights.reshape(-1, 1), info, self._with_best(inner.state))

    def _allowed(self, t: float, falling: bool) -> float:
        """The t to go on at; falling: whether none has been too small."""
        return t

    def _note_bound(self, duals: FloatArray, excess: float) -> bool:
        """Whether these duals, whose sum is above T by the excess, or a mix, have a higher D."""
        self.known[excess > 0] = duals, excess
        candidates = [duals]
        if len(self.known) == 2:
            (low, missing), (high, over) = self.known[False], self.known[True]
            candidates.append(low + (high - low) * (missing / (missing - over)))
        engine, higher = self.free.solver.engine, False
        for candidate in candidates:
            for feasible in self._feasible(candidate):
                u = engine.weights_of(feasible)[:-1]
                bound = self._dual(feasible, 0.5 * float(u @ u))
                if bound > self.bound:
                    self.bound, self.feasible, higher = bound, feasible, True
        return higher

    def state(self) -> State:
        """That of the fit at the t of now, with the best weights and duals so far: see Run.fits."""
        return self._with_best(self.free.state())

    def _with_best(self, state: State) -> State:
        if self.objective == math.inf:
            return {**state, "t": self.t}
        W = np.append(self.weights[:-1], self.weights[-1] / self.problem.rows.bias)
        return {**state, "W": W, "duals": self.feasible, "t": self.t}


class NuClassFit(NuFit):
    """1/2 ||w||^2 - T rho + sum_i c_i (rho - y_i (w.x_i + b))_+, at the best length of w, b and rho; t is rho. Weights
    that are told are in units of rho."""

    side = 1.0

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, nu: float) -> None:
        self.sides = problem.y > 0, problem.y <= 0
        require_rows(cost, self.sides, nu)
        self.rho = 0.0
        super().__init__(problem, run, cost, nu)

    def _first(self) -> float:
        """The best rho for the weights of equal duals."""
        engine, duals = self.free.solver.engine, np.zeros(len(self.cost))
        for side in self.sides:
            duals[side] = self.cost[side] * (self.total / 2 / float(self.cost[side].sum()))
        W = engine.weights_of(duals)
        self._note_primal(W[:-1], self.free.scores_of(W))
        # These weights may be in another order of the features.
        self.objective = math.inf
        return self.rho if self.rho > 0 else 1.0

    def _table(self) -> Table:
        return (self.t,), ((0, -1, self.t), (0, 0, 0))

    def _note_primal(self, weights: FloatArray, scores: FloatArray) -> bool:
        first, second = self.sides
        u, above = threshold(scores[first], self.cost[first], self.total / 2)
        v, below = threshold(-scores[second], self.cost[second], self.total / 2)
        square, height = float(weights @ weights), above + below
        length = height / square if height > 0 and square > 0 else 0.0
        objective = -0.5 * length * length * square
        if not objective < self.objective:
            return False
        self.objective, self.rho = objective, length * (u + v) / 2
        self.weights = np.append(length * weights, length * (v - u) / 2)
        return True

    def _dual(self, duals: FloatArray, half: float) -> float:
        return -half

    def _feasible(self, duals: FloatArray) -> Iterator[FloatArray]:
        first, second = self.sides
        for above, below in zip(*(moved_to(self.total / 2, duals[side], self.cost[side]) for side in self.sides),
                                strict=True):
            moved = np.empty(len(duals))
            moved[first], moved[second] = above, below
            yield moved

    def _ended(self) -> tuple[FloatArray, tuple[str, ...]]:
        return in_units_of_rho(self.weights, self.rho)


class NuResidualFit(NuFit):
    """1/2 ||w||^2 + sum_i c_i (nu epsilon + (|z_i - w.x_i - b| - epsilon)_+), epsilon >= 0; t is epsilon."""

    side = -1.0

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, nu: float) -> None:
        self.targets = np.array(problem.targets)
        self.epsilon, self.above = 0.0, np.zeros(len(cost), dtype=bool)
        super().__init__(problem, run, cost, nu)

    def _first(self) -> float:
        """Half of the band that is best for weights of 0, which they make the narrower."""
        epsilon = band_of(self.targets, self.cost, self.total)[2]
        return epsilon / 2 if epsilon > 0 else 0.5 * float(np.ptp(self.targets)) or 1.0

    def _table(self) -> Table:
        return (-self.t, self.t), ((0, -1, -self.t), (0, 0, 0), (0, 1, -self.t))

    def _allowed(self, t: float, falling: bool) -> float:
        return 0.0 if falling and t < NONE * self.first else t

    def _note_primal(self, weights: FloatArray, scores: FloatArray) -> bool:
        residuals = self.targets - scores
        *_, epsilon, offset = band_of(residuals, self.cost, self.total)
        residuals -= offset
        objective = 0.5 * float(weights @ weights) + self.total * epsilon + dot(
            self.cost, np.maximum(0.0, np.abs(residuals) - epsilon))
        self.above = residuals > 0
        if not objective < self.objective:
            return False
        self.objective, self.epsilon, self.weights = objective, epsilon, np.append(weights, offset)
        return True

    def _dual(self, duals: FloatArray, half: float) -> float:
        return dot(duals, self.targets) - half

    def _feasible(self, duals: FloatArray) -> Iterator[FloatArray]:
        """As they are, too: their sums need not be T/2 but be equal and no more, as where epsilon is 0."""
        above = np.where(duals == 0, self.above, duals > 0)
        sides, size, half = (above, ~above), np.abs(duals), self.total / 2
        moved = zip(*(moved_to(half, size[side], self.cost[side]) for side in sides), strict=True)
        for found in ([size[side] for side in sides], *moved):
            sums = [math.fsum(of_side) for of_side in found]
            feasible = np.empty(len(duals))
            for side, sign, of_side, whole in zip(sides, (1.0, -1.0), found, sums, strict=True):
                feasible[side] = of_side * (sign * (min(*sums, half) / whole if whole > 0 else 0.0))
            yield feasible

    def _ended(self) -> tuple[FloatArray, tuple[str, ...]]:
        return self.weights, (told_epsilon(self.epsilon),)
