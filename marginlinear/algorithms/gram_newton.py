"""Semismooth Newton steps over Gram rows, for binary losses with curvature and without kinks (math.md 1.6).

    P(b) = 1/2 b'K b + sum_i c_i phi_i(g_i),   g_i = y_i s_i - z_i the margins, less the targets of a regression,

with s = K b the scores of the coefficients b, and a_i = y_i b_i the duals.

A row whose margin is on a curved piece, phi(g) = quad/2 g^2 + slope g + level, is free, F; the dual of any other is the
constant -c slope of its piece. Of a loss without pieces it is the parabola about the margin. With those fixed, the free
coefficients of a step solve

    (K_FF + diag(d)) b_F = y_F (z_F - slope/quad) - K_FN b_N,   d_i = 1/(c_i quad)

By Cholesky where the free rows are few, otherwise by conjugate gradients. The residual r of these has the Fenchel gap
sum_i r_i^2/(2 d_i). They are preconditioned by the rows of K of a random set J (Nystrom), with which

    (K_FJ K_JJ^-1 K_JF + diag(d))^-1 = 1/d - 1/d K_FJ (K_JJ + K_JF 1/d K_FJ)^-1 K_JF 1/d

The step goes along a line to where P hardly falls any more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import dsymv, ssymv

from marginlinear._core.proximal import solve
from marginlinear.status import ROUNDING
from marginlinear.threads import aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._core.margin_cd import MarginCD
    from marginlinear._typing import AnyArray, BoolArray, FloatArray

# Conjugate gradients reduce the gap to this part, in so many iterations at most; where the direction does not fall yet,
# to a TIGHTER part.
REDUCED, TIGHTER, ITERATIONS = 1e-4, 0.1, 60
# Rows of the preconditioner: this many times the square root of c quad K_ii, at most this part of all.
RANK, PART = 100, 0.05
# On the diagonal of K_JJ, as a part of it: its rows may depend on each other.
RIDGE = 1e-9
# A margin's curvature times K_ii: down to here its row is taken for one without.
FLATTEST = 1e-12
# A search ends where the slope is down to this part of that at its start, or after so many evaluations.
FLAT, TRIALS = 0.5, 60


class GramNewton:
    """Steps on the state of a MarginCD over Gram rows, all of which are held.

    Parameters
    ----------
    engine : MarginCD
    limit : int
        Free rows that one factorisation takes. Beyond, steps are good where no piece is flat: what conjugate gradients
        leave moves margins from one to another.

    Attributes
    ----------
    primal, objective : float
        P at the weights.
    bound : float
        D at the duals.
    """

    afresh = False
    K: AnyArray
    primal: float
    objective: float
    bound: float
    sketch: tuple[FloatArray, FloatArray] | None

    def __init__(self, engine: MarginCD, limit: int) -> None:
        self.engine, self.K, self.limit = engine, np.asarray(engine.rows.arrays), limit
        self.sign = np.where(np.asarray(engine.positive) > 0, 1.0, -1.0)
        self.cost, self.diagonal = np.asarray(engine.cost), np.diagonal(self.K)
        self.targets = np.zeros(len(self.cost)) if engine.targets is None else np.asarray(engine.targets)
        self.random, self.sketch = np.random.default_rng(0), None
        self.restart()

    def restart(self) -> None:
        """From the duals and losses of the engine."""
        weights = np.asarray(self.engine.weights_of(self.engine.duals))
        self.scores, self.b = weights[:len(self.cost)].copy(), weights[len(self.cost):].copy()
        self._publish()

    def step(self) -> None:
        """One step; `primal` is not finite where there is none, of a kernel that is not positive semidefinite."""
        quad, slope, dual = self._pieces(self.scores)
        free = quad > 0
        fixed = np.where(free, 0.0, dual - self.b)
        turn = self._times(fixed)
        d = 1 / (self.cost[free] * quad[free])
        middle = self.sign * self.targets
        middle[free] -= self.sign[free] * slope[free] / quad[free]
        wanted = (middle - self.scores - turn)[free] - d * self.b[free]
        if np.count_nonzero(free) <= self.limit:
            change = self._solved(free, d, wanted)
            direction, turn = fixed + change, turn + self._times(change)
        else:
            direction, turn = self._iterated(free, d, wanted, fixed, turn, self.b - dual)
        self.engine.n_iter += 1
        if not (self.b - dual) @ turn < 0:
            # P does not fall that way: at the optimum, or where the kernel is not positive semidefinite.
            self.primal = self.primal if self.bound >= self.primal - ROUNDING * abs(self.primal) else math.nan
            return
        t = self._search(direction, turn)
        self.b += t * direction
        self.scores += t * turn
        self._publish()

    def _times(self, b: FloatArray) -> FloatArray:
        """K b"""
        if not b.any():
            return np.zeros(len(b))
        # K is symmetric: one of its triangles is read.
        single = self.K.dtype == np.float32
        product: FloatArray = ssymv(1.0, self.K.T, b).astype(np.float64) if single else dsymv(1.0, self.K.T, b)
        return product

    def _pieces(self, scores: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(quad, slope) of the piece of each margin, and the coefficients -y c phi' there."""
        margins = self.sign * scores - self.targets
        quad, slope = self.engine.models_at(margins)
        steep = slope + quad * margins
        flat = quad * self.cost * self.diagonal <= FLATTEST
        return np.where(flat, 0.0, quad), np.where(flat, steep, slope), -self.sign * self.cost * steep

    def _solved(self, free: BoolArray, d: FloatArray, wanted: FloatArray) -> FloatArray:
        """The changes of all coefficients, by Cholesky; not finite where it fails."""
        which, change = np.flatnonzero(free), np.zeros(len(free))
        if len(which):
            matrix = self.K[np.ix_(which, which)].astype(np.float64, copy=False)
            matrix[np.diag_indices(len(which))] += d
            change[which] = solve(matrix, wanted, self.engine.threads)
        return change

    def _iterated(self, free: BoolArray, d: FloatArray, wanted: FloatArray, fixed: FloatArray, turn: FloatArray,
                  gradient: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(direction, K direction), by conjugate gradients to a direction along which P falls."""
        precondition = self._preconditioner(free, d)
        change, product, p = (np.zeros(len(free)) for _ in range(3))
        residual, before = wanted.copy(), 0.0
        target = REDUCED * float((residual**2 / d).sum())
        for _ in range(ITERATIONS):
            z = precondition(residual)
            size = float(residual @ z)
            p[free] = z + (size / before * p[free] if before else 0.0)
            before = size
            q = self._times(p)
            ahead = q[free] + d * p[free]
            curvature = float(p[free] @ ahead)
            if not curvature > 0:
                break
            t = size / curvature
            change += t * p
            product += t * q
            residual -= t * ahead
            left = float((residual**2 / d).sum())
            if left <= target:
                if gradient @ (turn + product) < 0:
                    break
                target = TIGHTER * left
        return fixed + change, turn + product

    def _preconditioner(self, free: BoolArray, d: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The function that multiplies by (K_FJ K_JJ^-1 K_JF + diag(d))^-1."""
        if self.sketch is None:
            self.sketch = self._sketch(float((np.diagonal(self.K)[free] / d).mean()))
        rows, corner = self.sketch
        if not free.all():
            rows = rows[:, free]
        scaled = rows / np.sqrt(d)
        try:
            factor = cho_factor(aside(np.matmul, scaled, scaled.T) + corner, lower=True, overwrite_a=True)
        except LinAlgError:
            return lambda u: u / d
        return lambda u: (u - rows.T @ cho_solve(factor, rows @ (u / d))) / d

    def _sketch(self, condition: float) -> tuple[FloatArray, FloatArray]:
        """(the rows J of K, K_JJ)"""
        m = len(self.K)
        J = np.sort(self.random.permutation(m)[:min(int(PART * m), math.ceil(RANK * math.sqrt(condition)))])
        rows = self.K[J].astype(np.float64, copy=False)
        corner = rows[:, J]
        corner[np.diag_indices(len(J))] *= 1 + RIDGE
        return rows, corner

    def _search(self, direction: FloatArray, turn: FloatArray) -> float:
        """Where P hardly falls any more on the way from b along `direction`, whose scores are `turn`."""
        along, own = float(self.b @ turn), float(direction @ turn)
        t, low, high, first = 0.0, 0.0, math.inf, None
        for _ in range(TRIALS):
            scores = self.scores + t * turn
            quad, _, dual = self._pieces(scores)
            value = along + t * own - float(dual @ turn)
            if first is None:
                first, t = value, 1.0
                continue
            if abs(value) <= FLAT * abs(first):
                break
            if value < 0:
                low = t
            else:
                high = t
            t -= value / (own + float((self.cost * quad) @ turn**2))
            if not low < t < high:
                t = (low + high) / 2
        return t

    def _publish(self) -> None:
        """Weights and duals become those of the engine; duals out of their range go to its end."""
        engine = self.engine
        duals, W = np.asarray(engine.duals), np.concatenate((self.scores, self.b))
        duals[:] = self.sign * self.b
        engine.into_range()
        moved = self.sign * duals - self.b
        if moved.any():
            U = W + np.concatenate((self._times(moved), moved))
            engine.iterates.resume(W, U, 1.0)
        else:
            engine.iterates.resume(W, W, 0.0)
        engine.set_empty_duals()
        self.primal, self.objective, _ = engine.primal()
        self.bound = engine.dual()
