"""A half-space with most rows: pairs of variables of a sum that is given."""

import numpy as np

from marginlinear.algorithms.pairs import ROUNDING, PairFit

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
        self._take(np.clip(self.sum - (np.cumsum(self.cost) - self.cost), 0.0, self.cost))

    def _resume(self, start):
        """From duals of the same sum."""
        duals = start["duals"]
        if (duals <= self.cost).all() and abs(duals.sum() - self.sum) <= ROUNDING * self.sum:
            self._take(duals)
        else:
            self._begin()

    def _take(self, b):
        self.engine.b[:] = b
        which = np.flatnonzero(b)
        self.engine.update(which, b[which, np.newaxis])

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
