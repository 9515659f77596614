"""Smooth losses with a quadratic regulariser by L-BFGS in the rows' scores, for fewer rows than features.

    P(W) = F(X W) + 1/2 <W, M W>,    W = M^-1 X' A,    S = X W = K A,    K = X M^-1 X'

With R = dF/dS, M^-1 times the gradient of P is M^-1 X' (A + R), its scores are S + K R: from W = 0 on, weights,
gradients and what L-BFGS keeps of both have this form. Each is a pair (A, S) of arrays of shape (m, k), and <A_1, S_2>
is the inner product <W_1, M W_2>, so that the steps are those of L-BFGS on M^1/2 W: with one product with K each, and
none to search along a line. The bound of __init__ is theta <-S, R> + theta F - theta^2/2 <R, K R>.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from marginlinear.algorithms.pairwise.passes import CACHED, add, by_rows, dot, maximum
from marginlinear.status import allowance
from marginlinear.threads import run_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from marginlinear._core.smooth import SmoothLoss
    from marginlinear._typing import FloatArray, State
    from marginlinear.algorithms.certificate import Budget
    from marginlinear.algorithms.pairwise.regulariser import Quadratic

# (A, S) of weights or a gradient; a step, the gradient's change over it, and their product.
Pair: TypeAlias = "tuple[FloatArray, ...]"
Turn: TypeAlias = "tuple[Pair, Pair, float]"

# Steps that are remembered; steps within which the certificate is to halve.
MEMORY, PATIENCE = 8, 20
# Part of the slope that may be left at the end of a search of so many trials; how far the next one is within the
# bracket, or beyond the last one; the part of a value that is rounding.
FLAT, TRIALS, WITHIN, BEYOND, ROUNDING = 0.25, 30, 0.1, 10.0, 1e-13


class ScoreDescent:
    """L-BFGS from W = 0, or near a start, until it is certified, or crawls.

    Parameters
    ----------
    loss : SmoothLoss
    regulariser : Quadratic
    W, work : float64 arrays of shape (d, k)
        The start, and the weights at the end; room.
    tol : float
    budget : Budget
    threads : int
    state_of_weights : callable
        The state of a fit by Newton steps, which has W.
    """

    def __init__(self, loss: SmoothLoss, regulariser: Quadratic, W: FloatArray, work: FloatArray, tol: float,
                 budget: Budget, threads: int, state_of_weights: Callable[[], State]) -> None:
        self.loss, self.regulariser, self.W, self.work = loss, regulariser, W, work
        self.tol, self.budget, self.threads = tol, budget, threads
        self.size = max(1, CACHED // W.shape[1])
        self.n_iter, self.state_of_weights = 0, state_of_weights
        self.A: FloatArray | None = None

    def run(self) -> int:
        """The steps that were taken."""
        loss = self.loss
        pairs: deque[Turn] = deque(maxlen=MEMORY)
        A, S = self._start()
        self.A = A
        R = S.copy()
        lost = loss.value_at(R)
        gradient: Pair | None = None
        step: Pair = A, S
        best, settled = math.inf, 0
        while True:
            KR = self._times(R)
            objective = lost + self._dot(A, S) / 2
            bound = maximum(lost - self._dot(S, R), 0.0, 2.0, self._dot(R, KR) / 2)
            gap = objective - bound
            if gap <= best / 2:
                best, settled = gap, self.n_iter
            if gap <= allowance(self.tol, objective) or self.n_iter - settled >= PATIENCE or (
                    self.budget.exhausted(self.n_iter)):
                break
            self.budget.record(self.n_iter, objective, bound, gap)
            before, gradient = gradient, (R, KR)
            self._add(gradient, 1.0, (A, S))
            if before is not None:
                self._scale(before, -1.0)
                self._add(before, 1.0, gradient)
                pairs.append((step, before, self._dot(step[0], before[1])))
            step = self._direction(gradient, pairs)
            found = self._search(A, S, step, gradient, lost)
            if found is None:
                break
            t, lost, R = found
            self._scale(step, t)
            self._add((A, S), 1.0, step)
            self.n_iter += 1
        self._write()
        return self.n_iter

    def state(self) -> State:
        """See Run.fits."""
        self._write()
        return self.state_of_weights()

    def _write(self) -> None:
        """The weights as they are into W."""
        if self.A is not None and self.n_iter:
            self._weights(self.A, self.W)

    def _start(self) -> Pair:
        """(A, S) of the start: its part along U = -M^-1 X' R, which it is a multiple of if it was optimal with other
        costs."""
        S = self.loss.scores(self.W.reshape(-1))
        A = np.zeros_like(S)
        if self.W.any():
            np.copyto(A, S)
            self.loss.value_at(A)
            U = self._times(A)
            square = self._dot(A, U)
            along = max(0.0, -self._dot(S, A) / square) if square > 0 else 0.0
            self._scale((A, U), -along)
            S = U
        return A, S

    def _weights(self, A: FloatArray, out: FloatArray) -> None:
        """M^-1 X' A"""
        self.loss.combine(A, out.reshape(-1))
        self.regulariser.divide(out)

    def _times(self, R: FloatArray) -> FloatArray:
        """K R"""
        self._weights(R, self.work)
        return self.loss.scores(self.work.reshape(-1))

    def _direction(self, gradient: Pair, pairs: Sequence[Turn]) -> Pair:
        """Minus the inverse Hessian that the pairs tell of, times the gradient."""
        step, factors = tuple(map(np.copy, gradient)), []
        for move, change, product in reversed(pairs):
            factors.append(self._dot(move[0], step[1]) / product)
            self._add(step, -factors[-1], change)
        if pairs:
            _, change, product = pairs[-1]
            self._scale(step, product / self._dot(*change))
        for (move, change, product), factor in zip(pairs, reversed(factors), strict=True):
            self._add(step, factor - self._dot(change[0], step[1]) / product, move)
        self._scale(step, -1.0)
        return step

    def _search(self, A: FloatArray, S: FloatArray, step: Pair, gradient: Pair,
                lost: float) -> tuple[float, float, FloatArray] | None:
        """(t, loss, residuals) where P is lower by t steps and its slope less; None where no such t is found."""
        along, square = self._dot(A, step[1]), self._dot(*step)
        slope = self._dot(gradient[0], step[1])
        noise = ROUNDING * max(1.0, abs(lost))
        t, low, high, secant = 1.0, (0.0, slope), (math.inf, math.inf), math.inf
        if not slope < 0:
            return None
        for _ in range(TRIALS):
            R = S.copy()
            self._add((R,), t, step[1:])
            value = self.loss.value_at(R)
            here = along + t * square + self._dot(R, step[1])
            if abs(here) <= -FLAT * slope and value + t * along + t * t / 2 * square <= lost + noise:
                return t, value, R
            if here < 0:
                # Where a secant would meet 0, or further where it is of no help.
                secant = (t * low[1] - low[0] * here) / (low[1] - here) if here > low[1] else math.inf
                low = t, here
            else:
                high = (t, here) if math.isfinite(here) else (t, math.inf)
            if high[0] == math.inf:
                t = min(secant, BEYOND * t)
                continue
            width = high[0] - low[0]
            part = low[1] / (low[1] - high[1])
            t = low[0] + width * min(1 - WITHIN, max(WITHIN, part))
        return None

    def _dot(self, a: FloatArray, b: FloatArray) -> float:
        return sum(run_chunks(lambda lo, hi: dot(a[lo:hi], b[lo:hi]), len(a), self.threads, self.size))

    def _add(self, out: tuple[FloatArray, ...], factor: float, pair: tuple[FloatArray, ...]) -> None:
        """out += factor pair"""
        for mine, other in zip(out, pair, strict=True):
            by_rows(partial(_add_some, mine, factor, other), mine, self.threads)

    def _scale(self, pair: Pair, factor: float) -> None:
        for mine in pair:
            by_rows(partial(_scale_some, mine, factor), mine, self.threads)


def _add_some(a: FloatArray, factor: float, b: FloatArray, lo: int, hi: int) -> None:
    add(a[lo:hi], factor, b[lo:hi])


def _scale_some(a: FloatArray, factor: float, lo: int, hi: int) -> None:
    np.multiply(a[lo:hi], factor, out=a[lo:hi])
