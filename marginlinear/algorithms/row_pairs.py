"""One-class machines over rows of features: pairs of duals whose sum is fixed (_core/row_pairs.pyx).

    P(w, rho) = 1/2 ||w||^2 - total rho + sum_i c_i (rho - w.x_i)_+
    D(a) = -1/2 ||w||^2,   w = sum_i a_i x_i,   0 <= a_i <= c_i,  sum_i a_i = total

At the best rho for w, a quantile of the scores s_i = w.x_i,

    P - D = sum of (c_i - a_i)(rho - s_i) where s_i < rho, and of a_i (s_i - rho) where s_i > rho:

duals of rows below rho are to rise, those of rows above it to fall. Each turn takes them in pairs, the farthest from
rho first. Turns over all rows tell the certificate; between them are turns over rows no farther from rho than the
farthest that had something to gain, and those with duals between their bounds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marginlinear._core.row_pairs import pair_steps, scores_at
from marginlinear._core.scores import add_rows
from marginlinear._core.vector import dot, total
from marginlinear.algorithms.fixed_sums import threshold
from marginlinear.status import allowance
from marginlinear.threads import run_chunks

if TYPE_CHECKING:
    from marginlinear._core.rows import Rows
    from marginlinear._typing import FloatArray, IntpArray
    from marginlinear.algorithms.certificate import Budget

# The first weights are those of every so manieth row.
SAMPLE = 4
# Turns over a part of the rows end with this part of the gap of all, or of the tolerance, or after so many.
PART, OF_TOLERANCE, TURNS = 0.2, 0.3, 10
# So large a part of the rows is no less work than all of them.
FEW = 0.25
# Pairs that have visited each row so often are slow: where features differ much in size, or all rows lie about 0.
VISITS = 16


class Best(NamedTuple):
    """P, and the length and the rho at which weights have it."""

    objective: float
    length: float
    rho: float



def best_of(scores: FloatArray, cost: FloatArray, total: float, square: float) -> Best:
    """The Best of weights with these scores and ||w||^2: the rho and the length where P is least, which is 0 where
    nothing is below that."""
    rho, height = threshold(scores, cost, total)
    length = height / square if height > 0 and square > 0 else 0.0
    return Best(-0.5 * length * length * square, length, rho)


class RowPairs:
    """Duals, and their weights.

    Attributes
    ----------
    duals : float64 array of shape (m,)
    weights : float64 array of shape (d,)
    best : Best
        Of the weights at the last turn over all rows.
    bound : float
    n_iter : int
        Turns.
    """

    # From the first turn on.
    best: Best

    def __init__(self, rows: Rows, cost: FloatArray, total: float, threads: int) -> None:
        self.rows, self.cost, self.total, self.threads = rows, cost, total, threads
        self.everyone = np.arange(rows.m)
        self.best, self.n_iter, self.visits = None, 0, 0  # type: ignore[assignment]  # as above

    def begin(self) -> None:
        """With the rows that are lowest along the sum of a sample of them."""
        duals = np.zeros(self.rows.m)
        duals[::SAMPLE] = self.cost[::SAMPLE]
        self.take(duals)
        scores = self._scores(self.everyone)
        rho, _ = threshold(scores, self.cost, self.total)
        duals, at = np.where(scores < rho, self.cost, 0.0), np.flatnonzero(scores == rho)
        room = self.cost[at]
        duals[at] = np.clip(self.total - total(duals) - (np.cumsum(room) - room), 0.0, room)
        self.take(duals)

    def take(self, duals: FloatArray) -> None:
        """Go on from these, which are to have the sum."""
        self.duals, self.weights = duals, self._weights_of(duals)
        self.fresh = True

    def until(self, tol: float, budget: Budget) -> str | bool:
        """Take turns until P is certified to `tol`. Returns whether it is, or what has run out; False, too, where the
        pairs are slow or have come to no more than rounding."""
        visits = VISITS * self.rows.m
        while True:
            scores = self._scores(self.everyone)
            square = dot(self.weights, self.weights)
            self.best, self.bound = best_of(scores, self.cost, self.total, square), -0.5 * square
            ended = budget.exhausted(self.n_iter)
            if not self.fresh and (ended or self.certificate <= allowance(tol, self.best.objective)):
                afresh = self._weights_of(self.duals)
                self.bound = -0.5 * dot(afresh, afresh)
            budget.record(self.n_iter, self.best.objective, self.bound, self.certificate)
            if ended or self.certificate <= allowance(tol, self.best.objective):
                return ended or True
            if not math.isfinite(self.certificate) or self.visits > visits:
                return False
            steps, reach = self._move(self.everyone, scores, self.best.rho)
            if steps == 0:
                return False
            near = np.abs(scores - self.best.rho) <= reach
            near |= (self.duals > 0) & (self.duals < self.cost)
            if np.count_nonzero(near) <= FEW * self.rows.m:
                enough = max(PART * self.certificate, OF_TOLERANCE * allowance(tol, self.best.objective))
                self._turns(np.flatnonzero(near), enough, budget)

    @property
    def certificate(self) -> float:
        return self.best.objective - self.bound

    def best_at(self, weights: FloatArray) -> Best:
        """The Best of these weights, whosever they are."""
        return best_of(self._scores(self.everyone, weights), self.cost, self.total, dot(weights, weights))

    def _turns(self, which: IntpArray, enough: float, budget: Budget) -> None:
        """Turns over these rows, whose gap is to be `enough`."""
        cost = self.cost[which]
        for _ in range(TURNS):
            scores, duals = self._scores(which), self.duals[which]
            rho, _ = threshold(scores, cost, float(duals.sum()))
            gap = dot(np.where(scores < rho, cost - duals, duals), np.abs(scores - rho))
            if gap <= enough or budget.exhausted(self.n_iter) or self._move(which, scores, rho)[0] == 0:
                break

    def _move(self, which: IntpArray, scores: FloatArray, rho: float) -> tuple[int, float]:
        """Pair steps of these rows; (how many, how far from rho one was that might have had one)."""
        cost, duals = self.cost[which], self.duals[which]
        up = np.flatnonzero((scores <= rho) & (duals < cost))
        down = np.flatnonzero((scores >= rho) & (duals > 0))
        up, down = up[np.argsort(scores[up])], down[np.argsort(-scores[down])]
        reach = float(np.abs(scores[np.concatenate((up[:1], down[:1]))] - rho).max(initial=0.0))
        self.n_iter, self.visits, self.fresh = self.n_iter + 1, self.visits + len(up) + len(down), False
        return pair_steps(self.rows, which[up], which[down], self.cost, self.duals, self.weights), reach

    def _scores(self, which: IntpArray, weights: FloatArray | None = None) -> FloatArray:
        """Those of the duals' weights, or of others."""
        out, weights = np.zeros(len(which)), self.weights if weights is None else weights
        run_chunks(lambda lo, hi: scores_at(self.rows, which, weights, out, lo, hi), len(which), self.threads,
                   self.rows.share())
        self.visits += len(which)
        return out

    def _weights_of(self, duals: FloatArray) -> FloatArray:
        weights, rows = np.zeros(self.rows.d), self.rows
        # One range after another, so that the sums are the same for any number of threads.
        run_chunks(lambda lo, hi: add_rows(rows, duals, weights, lo, hi), rows.m, 1, rows.slice())
        return weights
