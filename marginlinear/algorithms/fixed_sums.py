"""Over a kernel: pairs of variables whose sums the problem fixes, those of one-class machines and of nu.

    1/2 ||w||^2 - total rho + sum_i c_i (rho - w.x_i)_+

has the dual -1/2 ||w||^2, w = sum_i b_i x_i, 0 <= b_i <= c_i that add up to `total`; where rows have signs and scores a
bias, those of either sign add up to half of it, and so do those of residuals above and below a band whose width is
found. For given scores the best rho, and with it the bias or the width, is a quantile on each side.
"""

import math

import numpy as np

from marginlinear.algorithms.pairs import PairFit

FLAT = (0.0,), ((0, -1, 0), (0, 0, 0))


class HalfSpacePairs(PairFit):
    """Over Gram rows, without labels: 1/2 ||w||^2 - total rho + sum_i c_i (rho - w.x_i)_+, whose dual is -1/2 ||w||^2,
    w = sum_i b_i x_i with 0 <= b_i <= c_i that add up to `total`.

    The objective is taken at the best rho, and the best length of both; the offset is -rho.
    """

    def __init__(self, problem, run, cost, total):
        super().__init__(problem, run, cost, FLAT, True)
        self.sum, self.signs, self.length = total, np.ones(len(cost)), 0.0

    def _begin(self):
        """The first rows have all of the sum."""
        engine, before = self.engine, np.cumsum(self.cost) - self.cost
        engine.b[:] = np.clip(self.sum - before, 0.0, self.cost)
        which = np.flatnonzero(engine.b)
        engine.update(which, np.asarray(engine.b)[which, np.newaxis])

    def _resume(self, start):
        """The fit begins anew: duals of another sum are no start."""

    def _refresh(self):
        self._balance()
        self._recompute(np.arange(len(self.cost)))

    def _values(self):
        b, scores = np.asarray(self.engine.b), np.asarray(self.engine.scores)
        square = float(b @ scores)
        rho, height = threshold(scores, self.cost, self.sum)
        self.length = height / square if height > 0 and square > 0 else 0.0
        self.engine.shift, self.offset = -rho, -rho * self.length
        return -0.5 * self.length * self.length * square, -0.5 * square

    def _solution(self, objective, bound, stopped):
        solution = super()._solution(objective, bound, stopped)
        return solution._replace(weights=np.vstack((self.length * solution.weights[:-1], solution.weights[-1:])))


def threshold(scores, cost, total):
    """(rho, height) with the largest height, total rho - sum_i c_i (rho - s_i)_+: a quantile of the scores."""
    order = np.argsort(scores, kind="stable")
    below = np.cumsum(cost[order])
    rho = float(scores[order[min(np.searchsorted(below, total), len(order) - 1)]])
    return rho, total * rho - float(cost @ np.maximum(0.0, rho - scores))


class TwoSumPairs(PairFit):
    """Two sides of variables, each with a sum of its own: rounds are on either side in turn.

    `sides` are masks of the variables, `total` what those of the first add up to, and those of the second to -total.
    """

    def _start_with(self, total, first, second):
        self.total, self.sides, self.turn = total, (first, second), 0

    def _fill(self):
        """The first variables of each side have all of its sum."""
        engine, b = self.engine, np.asarray(self.engine.b)
        for side, bound in zip(self.sides, (engine.upper, engine.lower), strict=True):
            room = np.abs(np.asarray(bound)[side])
            b[side] = np.sign(np.asarray(bound)[side]) * np.clip(self.total - (np.cumsum(room) - room), 0.0, room)
        coefficients = self._coefficients()
        which = np.flatnonzero(coefficients)
        engine.update(which, coefficients[which, np.newaxis])

    _begin = _fill

    def _resume(self, start):
        """The fit begins anew: duals of another sum are no start."""

    def _balance(self):
        engine, b = self.engine, np.asarray(self.engine.b)
        for side, sign in zip(self.sides, (1.0, -1.0), strict=True):
            room = np.where(side, np.minimum(b - engine.lower, engine.upper - b), -1.0)
            b[np.argmax(room)] -= math.fsum(b[side]) - sign * self.total

    def _refresh(self):
        self._balance()
        self._recompute(np.arange(len(self.cost)))

    def _active(self):
        self.turn = 1 - self.turn
        self.engine.shift = self.shifts[self.turn]
        chosen = super()._active()
        return chosen[self.sides[self.turn][chosen]]


class NuPairs(TwoSumPairs):
    """1/2 ||w||^2 - total rho + sum_i c_i (rho - y_i f_i)_+,   f_i = w.x_i + bias"""

    def __init__(self, problem, run, cost, nu):
        super().__init__(problem, run, cost, FLAT, True)
        total = 0.5 * nu * float(cost.sum())
        self._start_with(total, self.signs > 0, self.signs < 0)

    def _values(self):
        b, scores, (first, second) = np.asarray(self.engine.b), np.asarray(self.engine.scores), self.sides
        square = float(b @ scores)
        u, above = threshold(scores[first], self.cost[first], self.total)
        v, below = threshold(-scores[second], self.cost[second], self.total)
        height = above + below
        self.length = height / square if height > 0 and square > 0 else 0.0
        self.rho, self.offset = 0.5 * (u + v), 0.5 * (v - u)
        self.shifts = -u, v
        return -0.5 * self.length * self.length * square, -0.5 * square


class NuResidualPairs(TwoSumPairs):
    """1/2 ||w||^2 + sum_i c_i (nu epsilon + (|z_i - f_i| - epsilon)_+),   f_i = w.x_i + bias, epsilon >= 0"""

    def __init__(self, problem, run, cost, nu):
        super().__init__(problem, run, cost, FLAT, True)
        m = len(cost)
        self.nu = nu
        self._start_with(0.5 * nu * float(cost.sum()), np.arange(2 * m) < m, np.arange(2 * m) >= m)

    def _variables(self):
        z, none = np.asarray(self.problem.targets), np.zeros(len(self.cost))
        return (np.tile(np.arange(len(z), dtype=np.int32), 2), np.tile(z, 2), np.zeros(2 * len(z)),
                np.concatenate((none, -self.cost)), np.concatenate((self.cost, none)))

    def _coefficients(self):
        return np.asarray(self.engine.b).reshape(2, -1).sum(axis=0)

    def _values(self):
        b, scores, z = self._coefficients(), np.asarray(self.engine.scores), self.problem.targets
        half, residuals, whole = 0.5 * float(b @ scores), z - scores, float(self.cost.sum())
        u, _ = threshold(-residuals, self.cost, self.total)
        v, _ = threshold(residuals, self.cost, self.total)
        self.shifts = -u, v
        self.epsilon, self.offset = -0.5 * (u + v), 0.5 * (v - u)
        if self.epsilon < 0:
            self.epsilon, self.offset = 0.0, threshold(residuals, self.cost, 0.5 * whole)[0]
        loss = np.maximum(0.0, np.abs(residuals - self.offset) - self.epsilon)
        return half + self.nu * self.epsilon * whole + float(self.cost @ loss), float(b @ z) - half
