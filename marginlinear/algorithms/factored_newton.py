"""Newton steps for binary losses over the rows of a factor L of their inner products, K = L L': over Gram rows, where
losses have kinks or there is a variance, and over rows that are fewer than their features.

Scores are L w, and w = L' b for the coefficients b_i = y_i a_i of duals a: the problem is that of MarginNewton, with a
feature for each column of L. Where w is not of the duals, w = L'(b + c), the coefficients c are on the rows of which L
is triangular: as many as it has columns, few where the kernel is smooth.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular

from marginlinear._core.margin_cd import MarginCD
from marginlinear._core.margin_newton import MarginNewton
from marginlinear._core.scores import scores_of
from marginlinear.data.arrays import as_rows
from marginlinear.threads import aside

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, IntpArray

# Columns end where they would add less than this part of the largest K_ii to any; L is a factor where it leaves no
# more than that part.
LEAST, LEFT = 1e-15, 1e-9
# Columns after which K is brought up to date.
PANEL = 64


class FactoredNewton:
    """Steps on the state of a MarginCD over rows of features, or over Gram rows, all of which are held.

    Attributes
    ----------
    primal, objective : float
        P at the weights; not finite where there is no step, of a kernel that is not positive semidefinite.
    bound : float
        D at the duals.
    """

    afresh = False
    primal: float
    objective: float
    bound: float

    def __init__(self, engine: MarginCD) -> None:
        rows = engine.rows
        self.engine, self.K = engine, np.asarray(rows.arrays) if rows.is_gram else rows.products()
        self.sign = np.where(np.asarray(engine.positive) > 0, 1.0, -1.0)
        self.L, self.pivots = factor_of(self.K)
        if len(self.pivots) == 0:
            # Of rows of zeros: the weight of a feature that no row has.
            self.L = np.zeros((len(self.K), 1))
        self.definite = is_factor(self.L, self.K)
        self.inner = MarginCD(
            as_rows(self.L, -1.0), np.asarray(engine.positive), np.asarray(engine.cost),
            list(np.asarray(engine.tables)), group=np.asarray(engine.group), spread=engine.spread,
            targets=None if engine.targets is None else np.asarray(engine.targets), threads=engine.threads)
        self.restart()

    def restart(self) -> None:
        """From the duals of the engine."""
        if np.any(self.engine.duals):
            self.inner.resume({"duals": np.array(self.engine.duals), "W": None, "kappa": 0.0})
        else:
            self.inner.sweep()
        self.newton = MarginNewton(self.inner)
        self._publish()

    def step(self) -> None:
        """One step."""
        self.engine.n_iter += 1
        if not self.definite:
            self.primal = math.nan
            return
        self.newton.step()
        self._publish()

    def _publish(self) -> None:
        """Weights and duals become those of the engine."""
        engine, w = self.engine, np.asarray(self.newton.W)
        np.asarray(engine.duals)[:] = self.inner.duals
        b = self.sign * np.asarray(engine.duals)
        apart = w - aside(np.matmul, b, self.L)
        c = self._on_pivots(apart)
        if engine.rows.is_gram:
            scores = aside(np.matmul, self.K, b)
            U, W = np.concatenate((scores, b)), np.concatenate((scores + aside(np.matmul, self.L, apart), b + c))
        else:
            U = engine.weights_of(np.asarray(engine.duals))
            W = U + engine.weights_of(self.sign * c)
            # What rounding has made of the scores, L w, of rows that are far from orthogonal.
            scores = np.empty((len(b), 1))
            scores_of(engine.rows, W.reshape(-1, 1), scores, 0, len(b))
            lost = aside(np.matmul, self.L, w) - scores[:, 0]
            W += engine.weights_of(self.sign * self._on_pivots(self._solved(lost[self.pivots], 0)))
        engine.iterates.resume(W, U, 1.0)
        engine.set_empty_duals()
        self.primal, self.objective, _ = engine.primal()
        self.bound = engine.dual()

    def _on_pivots(self, w: FloatArray) -> FloatArray:
        """c with w = L' c, 0 but for the pivots."""
        c = np.zeros(len(self.L))
        c[self.pivots] = self._solved(w, 1)
        return c

    def _solved(self, right: FloatArray, trans: int) -> FloatArray:
        """Over the pivots L^-1 right or, `trans` being 1, L'^-1 right."""
        if len(self.pivots) == 0:
            return np.zeros(0)
        found: FloatArray = solve_triangular(self.L[self.pivots], right, trans=trans, lower=True, check_finite=False)
        return found


def factor_of(K: FloatArray, most: int | None = None) -> tuple[FloatArray, IntpArray]:
    """(L, rows): K = L L' but for rounding, or for what `most` columns leave, L[rows] lower triangular. By Cholesky
    factorisation, with the largest pivot each time."""
    m, rest = len(K), K.copy()
    most = m if most is None else most
    left, L, pivots = np.diagonal(K).copy(), np.zeros((m, most)), np.zeros(most, dtype=np.intp)
    least, rank = LEAST * float(left.max(initial=0.0)), 0
    while rank < most:
        start = rank
        for rank in range(start, min(most, start + PANEL)):
            p = int(np.argmax(left))
            column = rest[:, p] - L[:, start:rank] @ L[p, start:rank]
            column[pivots[:rank]] = 0
            if not (left[p] > least and column[p] > 0):
                return L[:, :rank].copy(), pivots[:rank]
            L[:, rank] = column / math.sqrt(column[p])
            left -= L[:, rank] ** 2
            left[p], pivots[rank] = -math.inf, p
        rank += 1
        panel = L[:, start:rank]
        rest -= aside(np.matmul, panel, panel.T)
    return L, pivots


def is_factor(L: FloatArray, K: FloatArray) -> bool:
    """Whether `factor_of` has left nothing of K: not where K is not positive semidefinite, or has more columns."""
    diagonal = np.diagonal(K)
    left = np.abs(diagonal - np.einsum("ij,ij->i", L, L))
    return float(left.max(initial=0.0)) <= LEFT * float(diagonal.max(initial=0.0))
