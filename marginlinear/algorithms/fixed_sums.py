"""Over a kernel: pairs of variables whose sums the problem fixes, those of one-class machines and of nu.

    1/2 ||w||^2 - total rho + sum_i c_i (rho - w.x_i)_+

has the dual -1/2 ||w||^2, w = sum_i b_i x_i, 0 <= b_i <= c_i that add up to `total`; where rows have signs and scores a
bias, those of either sign add up to half of it, and so do those of residuals above and below a band whose width is
found. For given scores the best rho, and with it the bias or the width, is a quantile on each side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from marginlinear._core.pair_cd import UNIT
from marginlinear._core.scores import add_rows
from marginlinear._core.vector import dot
from marginlinear.algorithms.pairs import ROUNDING, PairFit
from marginlinear.data.arrays import CSR
from marginlinear.data.kernels import Kernel, gram_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._typing import BoolArray, FloatArray, State
    from marginlinear.algorithms.pairs import Variables
    from marginlinear.problem import Problem, Run, Solution

# So many scores are sorted; of more the half with the quantile is found first.
FEW = 64
FLAT = (0.0,), ((0, -1, 0), (0, 0, 0))


class HalfSpacePairs(PairFit):
    """Over Gram rows, without labels: 1/2 ||w||^2 - total rho + sum_i c_i (rho - w.x_i)_+, whose dual is -1/2 ||w||^2,
    w = sum_i b_i x_i with 0 <= b_i <= c_i that add up to `total`.

    The objective is taken at the best rho, and the best length of both; the offset is -rho.
    """

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, total: float) -> None:
        super().__init__(problem, run, cost, FLAT, True)
        self.sum, self.signs, self.length = total, np.ones(len(cost)), 0.0

    def _begin(self) -> None:
        """The first rows have all of the sum."""
        self._take(np.clip(self.sum - (np.cumsum(self.cost) - self.cost), 0.0, self.cost))

    def _resume(self, start: State) -> None:
        """From duals of the same sum."""
        duals = start["duals"]
        if (duals <= self.cost).all() and abs(duals.sum() - self.sum) <= ROUNDING * self.sum:
            self._take(duals)
        else:
            self._begin()

    def _clear(self) -> FloatArray:
        """How far each score is above rho."""
        engine = self.engine
        return np.asarray(engine.scores) + engine.shift - UNIT * engine.drift * np.asarray(engine.root)

    def _values(self) -> tuple[float, float]:
        b, scores = np.asarray(self.engine.b), np.asarray(self.engine.scores)
        square = float(b @ scores)
        rho, height = threshold(scores, self.cost, self.sum)
        self.length = height / square if height > 0 and square > 0 else 0.0
        self.engine.shift, self.offset = -rho, -rho * self.length
        return -0.5 * self.length * self.length * square, -0.5 * square

    def _solution(self, objective: float, bound: float, stopped: str | None) -> Solution:
        solution = super()._solution(objective, bound, stopped)
        return solution._replace(weights=np.vstack((self.length * solution.weights[:-1], solution.weights[-1:])))


class TwoSumPairs(PairFit):
    """Two sides of variables, each with a sum of its own.

    `sides` are masks of the variables, `total` what those of the first add up to, and those of the second to -total.
    """

    def _start_with(self, total: float, first: BoolArray, second: BoolArray) -> None:
        self.total, self.sides, self.group = total, (first, second), second.astype(np.int8)

    def _begin(self) -> None:
        """The first variables of each side have all of its sum."""
        engine, b = self.engine, np.zeros(len(self.sides[0]))
        for side, bound in zip(self.sides, (engine.upper, engine.lower), strict=True):
            room = np.abs(np.asarray(bound)[side])
            b[side] = np.sign(np.asarray(bound)[side]) * np.clip(self.total - (np.cumsum(room) - room), 0.0, room)
        self._take(b)

    def _resume(self, start: State) -> None:
        """From variables of the same sums."""
        b, engine = start["variables"], self.engine
        inside = (b >= engine.lower).all() and (b <= engine.upper).all()
        if inside and all(abs(abs(b[side].sum()) - self.total) <= ROUNDING * self.total for side in self.sides):
            self._take(b, exactly=True)
        else:
            self._begin()

    def state(self) -> State:
        return {**super().state(), "variables": np.array(self.engine.b if self.last is None else self.last)}

    def _choose_by(self, first: float, second: float) -> None:
        """The shifts of both sides by which the next active set is chosen. One that leaves nothing to rise, or nothing
        to fall, while a pair would gain, as where many slopes are equal, is put in the middle of the best pair's."""
        engine, b, slopes = self.engine, np.asarray(self.engine.b), np.asarray(self.engine.slopes())
        shifts = []
        for side, shift in zip(self.sides, (first, second), strict=True):
            rising, falling = side & (b < engine.upper), side & (b > engine.lower)
            most, least = slopes[rising].max(initial=-math.inf), slopes[falling].min(initial=math.inf)
            shifts.append(shift if most <= least or least < shift < most else least + (most - least) / 2)
        engine.shift, engine.other_shift = shifts

    def _balance(self) -> None:
        engine, b = self.engine, np.asarray(self.engine.b)
        for side, sign in zip(self.sides, (1.0, -1.0), strict=True):
            room = np.where(side, np.minimum(b - engine.lower, engine.upper - b), -1.0)
            b[np.argmax(room)] -= math.fsum(b[side]) - sign * self.total

    def _refresh(self) -> None:
        self._balance()
        self._recompute(np.arange(len(self.cost)))


class NuPairs(TwoSumPairs):
    """1/2 ||w||^2 - total rho + sum_i c_i (rho - y_i f_i)_+,   f_i = w.x_i + bias

    The objective is at the best rho and bias, and the best length of all; weights and offset are in units of rho.
    """

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, nu: float) -> None:
        super().__init__(problem, run, cost, FLAT, True)
        total = 0.5 * nu * float(cost.sum())
        least = min(float(cost[self.signs == sign].sum()) for sign in (1, -1))
        if total > least:
            raise ValueError(f"nu = {nu:g} is more than twice the part of the smaller class: give at most "
                             f"{2 * least / float(cost.sum()):g}")
        self._start_with(total, self.signs > 0, self.signs < 0)

    def _values(self) -> tuple[float, float]:
        b, scores, (first, second) = np.asarray(self.engine.b), np.asarray(self.engine.scores), self.sides
        square = float(b @ scores)
        u, above = threshold(scores[first], self.cost[first], self.total)
        v, below = threshold(-scores[second], self.cost[second], self.total)
        height = above + below
        self.length = height / square if height > 0 and square > 0 else 0.0
        self.rho, self.offset = 0.5 * (u + v), 0.5 * (v - u)
        self._choose_by(-u, v)
        return -0.5 * self.length * self.length * square, -0.5 * square

    def _solution(self, objective: float, bound: float, stopped: str | None) -> Solution:
        solution = super()._solution(objective, bound, stopped)
        if self.length > 0:
            return solution._replace(weights=solution.weights / self.rho)
        note = "nu is too small for rows that the kernel does not tell apart: all weights are 0; give a larger nu"
        return solution._replace(weights=0.0 * solution.weights, info=solution.info._replace(notes=(note,)))


class NuResidualPairs(TwoSumPairs):
    """1/2 ||w||^2 + sum_i c_i (nu epsilon + (|z_i - f_i| - epsilon)_+),   f_i = w.x_i + bias, epsilon >= 0"""

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, nu: float) -> None:
        super().__init__(problem, run, cost, FLAT, True)
        m = len(cost)
        self.nu = nu
        self._start_with(0.5 * nu * float(cost.sum()), np.arange(2 * m) < m, np.arange(2 * m) >= m)

    def _variables(self) -> Variables:
        z, none = np.asarray(self.problem.targets), np.zeros(len(self.cost))
        return (np.tile(np.arange(len(z), dtype=np.int32), 2), np.tile(z, 2), np.zeros(2 * len(z)),
                np.concatenate((none, -self.cost)), np.concatenate((self.cost, none)))

    def _coefficients(self, variables: FloatArray | None = None) -> FloatArray:
        found: FloatArray = super()._coefficients(variables).reshape(2, -1).sum(axis=0)
        return found

    def _values(self) -> tuple[float, float]:
        b, scores, z = self._coefficients(), np.asarray(self.engine.scores), np.asarray(self.problem.targets)
        half, residuals, whole = 0.5 * float(b @ scores), z - scores, float(self.cost.sum())
        # The best widths of the band above and below, each a quantile.
        above, below = (-threshold(sign * residuals, self.cost, self.total)[0] for sign in (-1.0, 1.0))
        self._choose_by(above, -below)
        self.epsilon, self.offset = 0.5 * (above + below), 0.5 * (above - below)
        if self.epsilon < 0:
            self.epsilon, self.offset = 0.0, threshold(residuals, self.cost, 0.5 * whole)[0]
        loss = np.maximum(0.0, np.abs(residuals - self.offset) - self.epsilon)
        return half + self.nu * self.epsilon * whole + float(self.cost @ loss), float(b @ z) - half

    def _solution(self, objective: float, bound: float, stopped: str | None) -> Solution:
        solution = super()._solution(objective, bound, stopped)
        return solution._replace(info=solution.info._replace(notes=(f"epsilon is {self.epsilon:.6g}",)))


def threshold(scores: FloatArray, cost: FloatArray, total: float) -> tuple[float, float]:
    """(rho, height) with the largest height, total rho - sum_i c_i (rho - s_i)_+: a quantile of the scores."""
    if cost.min() == cost.max():
        at = min(max(math.ceil(total / cost[0]) - 1, 0), len(scores) - 1)
        rho = float(np.partition(scores, at)[at])
    else:
        # The half where the sum of the costs comes to the total, again and again.
        which, below = np.arange(len(scores)), 0.0
        while len(which) > FEW:
            half = len(which) // 2
            which = which[np.argpartition(scores[which], half)]
            lower = float(cost[which[:half]].sum())
            if below + lower >= total:
                which = which[:half]
            else:
                which, below = which[half:], below + lower
        which = which[np.argsort(scores[which], kind="stable")]
        at = int(np.searchsorted(below + np.cumsum(cost[which]), total))
        rho = float(scores[which[min(at, len(which) - 1)]])
    below_rho = rho - scores
    return rho, total * rho - dot(cost, np.maximum(0.0, below_rho, out=below_rho))


def fit_by_pairs(made: Callable[[Problem, Run, FloatArray, float], NuPairs | NuResidualPairs], problem: Problem,
                 run: Run, cost: FloatArray, nu: float) -> Solution:
    """The Solution of `made`, NuPairs or NuResidualPairs; of rows of features by their products, as weights of these
    and of the bias feature.

    Coefficients add up to 0, so that dense rows can be taken from their mean: products of rows far from the origin
    differ by less than their float32 holds.
    """
    rows = problem.rows
    if rows.is_gram:
        return made(problem, run, cost, nu).convex()  # type: ignore[return-value]  # with an offset none is dense
    arrays = rows.arrays
    if isinstance(arrays, tuple):
        X, mean = CSR(rows.stored(), *arrays[1:], rows.n), 0.0
    else:
        mean = arrays.mean(axis=0, dtype=np.float64)
        X = arrays - mean
    gram = gram_rows(Kernel("linear"), X, rows.n, threads=run.threads)
    solution = made(problem._replace(rows=gram), run, cost, nu).convex()
    assert solution is not None
    weights = np.zeros(rows.d)
    add_rows(rows, np.ascontiguousarray(solution.weights[:-1, 0]), weights, 0, rows.m)
    weights[-1] = (solution.weights[-1, 0] - np.sum(weights[:-1] * mean)) / rows.bias
    return solution._replace(weights=weights.reshape(-1, 1), state={**solution.state, "W": weights})
