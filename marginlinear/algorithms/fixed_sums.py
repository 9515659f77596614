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
from marginlinear._core.vector import dot
from marginlinear.algorithms.pairs import ROUNDING, PairFit

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    def start_of_steps(self) -> State | None:
        return {**self.state(), "rho": -self.offset} if self.offset < 0 else None

    def _clear(self) -> FloatArray:
        """How far each score is above rho."""
        engine = self.engine
        return np.asarray(engine.scores) + engine.shift - UNIT * engine.drift * np.asarray(engine.root)

    def _values_at(self, square: float, square_of_duals: float) -> tuple[float, float]:
        rho, height = threshold(np.asarray(self.engine.scores), self.cost, self.sum)
        self.length = height / square if height > 0 and square > 0 else 0.0
        self.engine.shift, self.offset = -rho, -rho * self.length
        return -0.5 * self.length * self.length * square, -0.5 * square_of_duals

    def _solution(self, objective: float, bound: float, stopped: str | None,
                  coefficients: FloatArray | None = None) -> Solution:
        solution = super()._solution(objective, bound, stopped, coefficients)
        return solution._replace(weights=np.vstack((self.length * solution.weights[:-1], solution.weights[-1:])))


class TwoSumPairs(PairFit):
    """Two sides of variables, each with a sum of its own.

    `sides` are masks of the variables, `total` what those of the first add up to, and those of the second to -total.
    """

    # Newton steps are those of several fits.
    crawl = 4 * PairFit.crawl
    # rho, or epsilon, that is best for the scores.
    t: float

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

    def start_of_steps(self) -> State | None:
        return {**self.state(), "centre": self.offset, "t": self.t} if self.t > 0 else None

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
        sides = self.signs > 0, self.signs < 0
        require_rows(cost, sides, nu)
        self._start_with(0.5 * nu * float(cost.sum()), *sides)

    def _values_at(self, square: float, square_of_duals: float) -> tuple[float, float]:
        scores, (first, second) = np.asarray(self.engine.scores), self.sides
        u, above = threshold(scores[first], self.cost[first], self.total)
        v, below = threshold(-scores[second], self.cost[second], self.total)
        height = above + below
        self.length = height / square if height > 0 and square > 0 else 0.0
        self.t, self.offset = 0.5 * (u + v), 0.5 * (v - u)
        self._choose_by(-u, v)
        return -0.5 * self.length * self.length * square, -0.5 * square_of_duals

    def _solution(self, objective: float, bound: float, stopped: str | None,
                  coefficients: FloatArray | None = None) -> Solution:
        solution = super()._solution(objective, bound, stopped, coefficients)
        weights, notes = in_units_of_rho(solution.weights, self.t if self.length > 0 else 0.0)
        return solution._replace(weights=weights, info=solution.info._replace(notes=notes))


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

    def _variables_at(self, duals: FloatArray) -> FloatArray:
        """Rows have a part in both sides where their sums are less than they must be."""
        above, below = np.maximum(duals, 0.0), np.maximum(-duals, 0.0)
        room = self.cost - above - below
        both = room * (max(0.0, self.total - 0.5 * float(above.sum() + below.sum())) / float(room.sum() or 1.0))
        return np.concatenate((above + both, -(below + both)))

    def _values_at(self, square: float, square_of_duals: float) -> tuple[float, float]:
        z, whole = np.asarray(self.problem.targets), float(self.cost.sum())
        residuals = z - np.asarray(self.engine.scores)
        above, below, self.t, self.offset = band_of(residuals, self.cost, 2 * self.total)
        self._choose_by(above, -below)
        loss = np.maximum(0.0, np.abs(residuals - self.offset) - self.t)
        return (0.5 * square + self.nu * self.t * whole + float(self.cost @ loss),
                float(self._coefficients() @ z) - 0.5 * square_of_duals)

    def _solution(self, objective: float, bound: float, stopped: str | None,
                  coefficients: FloatArray | None = None) -> Solution:
        solution = super()._solution(objective, bound, stopped, coefficients)
        return solution._replace(info=solution.info._replace(notes=(told_epsilon(self.t),)))


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


def band_of(residuals: FloatArray, cost: FloatArray, total: float) -> tuple[float, float, float, float]:
    """(above, below, epsilon, offset): the best widths of a band whose cost is total/2 on each side, each a quantile,
    and the band's half width and middle, where it is not to be below 0."""
    above, below = (-threshold(sign * residuals, cost, total / 2)[0] for sign in (-1.0, 1.0))
    if above + below < 0:
        return above, below, 0.0, threshold(residuals, cost, 0.5 * float(cost.sum()))[0]
    return above, below, 0.5 * (above + below), 0.5 * (above - below)


def moved_to(total: float, duals: FloatArray, cost: FloatArray) -> Iterator[FloatArray]:
    """Duals between 0 and cost with this sum, as far as there is room: once those between their bounds moved as far as
    that goes, which changes D least, and then all; once all, which leaves weights of 0 where they are. Each goes the
    same part of its way to a bound."""
    everyone = np.ones(len(duals), dtype=bool)
    duals = np.clip(duals, 0.0, cost)
    for groups in (((duals > 0) & (duals < cost), everyone), (everyone,)):
        moved = duals
        for which in groups:
            missing = total - math.fsum(moved)
            way = (cost - moved if missing > 0 else moved) * which
            room = float(way.sum())
            if room > 0:
                moved = moved + way * (math.copysign(1.0, missing) * min(1.0, abs(missing) / room))
        yield moved


def require_rows(cost: FloatArray, sides: tuple[BoolArray, BoolArray], nu: float) -> None:
    """ValueError where a class has less than half of the part nu of all costs."""
    least, whole = min(float(cost[side].sum()) for side in sides), float(cost.sum())
    if 0.5 * nu * whole > least:
        raise ValueError(f"nu = {nu:g} is more than twice the part of the smaller class: give at most "
                         f"{2 * least / whole:g}")


def in_units_of_rho(weights: FloatArray, rho: float) -> tuple[FloatArray, tuple[str, ...]]:
    """(weights, notes) that nusvc tells; rho is 0 where no weights have a margin."""
    if rho > 0:
        return weights / rho, ()
    return 0.0 * weights, ("nu is too small for classes that overlap so much: all weights are 0; give a larger nu",)


def told_epsilon(epsilon: float) -> str:
    return f"epsilon is {epsilon:.6g}"
