"""The dual variables of the rounded hinge loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from marginlinear.algorithms.pairwise.passes import by_rows

if TYPE_CHECKING:
    from marginlinear._core.smooth import SmoothLoss
    from marginlinear._typing import FloatArray, Int32Array, IntArray

# Rounds of scaling that balance the duals for the bias.
BALANCING = 100


class HingeDuals:
    """Dual variables of the rounded hinge that follow the steps, for Newton's method in W and rho at once.

    rho = g'(x), x = 1 - t, in the form (2 rho - 1) sqrt(x^2 + width^2) = x is far nearer to linear than g' itself. Its
    linear equation taken out of the system, H is that of the loss but for h = (1 - sigma x/r)/(2 r) in place of
    width^2/(2 r^3), sigma = 2 rho - 1, r = sqrt(x^2 + width^2) (Chan, Golub and Mulet, A Nonlinear Primal-Dual Method
    for Total Variation-Based Image Restoration, 1999). rho is dual feasible, and better than g'(x) until the end.
    """

    # There from the first `move` and `bend` on.
    x: FloatArray
    sigma: FloatArray
    H: FloatArray

    def __init__(self, loss: SmoothLoss, y: Int32Array, cost: FloatArray) -> None:
        self.loss, self.cost, self.y = loss, cost[:, np.newaxis], y
        self.x = self.sigma = self.H = None  # type: ignore[assignment]  # as above

    def _own(self, lo: int, hi: int) -> tuple[IntArray, Int32Array]:
        """Where rows lo to hi have the entries of their own classes."""
        return np.arange(hi - lo), self.y[lo:hi]

    def move(self, W: FloatArray, t: float, sigma: FloatArray | None = None) -> None:
        """The weights are W now, after the part t of a step; the first time, or with a `sigma` of its own, without."""
        scores, width = self.loss.scores(W.reshape(-1)), self.loss.width
        before = self.x if sigma is None else None
        if before is None:
            self.sigma = np.empty_like(scores)

        def some(lo: int, hi: int) -> None:
            own, x, mine = self._own(lo, hi), scores[lo:hi], self.sigma[lo:hi]
            x[:] = 1 - x[own][:, np.newaxis] + x
            if before is None:
                mine[:] = x / np.hypot(x, width) if sigma is None else sigma[lo:hi]
            else:
                root = np.hypot(before[lo:hi], width)
                bent = before[lo:hi] / root
                turn = (1 - mine * bent) * (x - before[lo:hi]) / root
                mine += t * (bent - mine) + turn
                np.clip(mine, -1, 1, out=mine)
            mine[own] = -1.0

        by_rows(some, scores)
        self.x = scores

    def bend(self) -> None:
        """H for the weights and the width as they are."""
        if self.H is None:
            self.H = np.empty_like(self.x)

        def some(lo: int, hi: int) -> None:
            x, H = self.x[lo:hi], self.H[lo:hi]
            root = np.hypot(x, self.loss.width)
            H[:] = self.cost[lo:hi] * np.maximum(0, 1 - self.sigma[lo:hi] * x / root) / (2 * root)
            H[self._own(lo, hi)] = 0.0

        by_rows(some, self.x)

    def rho(self, balanced: bool) -> FloatArray:
        """rho, float64 array of shape (m, k).

        The gradient's part for b is divided by eps in the bound. `balanced` rho make it 0, at the price of some loss:
        N_jl = sum over the rows of class j of c_i rho_il is to have the same sums of rows and columns, to which end
        rho_il is lowered to u_{y_i} v_l rho_il, step by step.
        """
        if balanced:
            rho = self.rho(False)
            return self.scaled(rho, *balancing(self.flows(rho)))
        rho = np.empty_like(self.sigma)

        def some(lo: int, hi: int) -> None:
            rho[lo:hi] = (1 + self.sigma[lo:hi]) / 2

        by_rows(some, rho)
        return rho

    def flows(self, rho: FloatArray) -> FloatArray:
        """N"""
        N = np.zeros((rho.shape[1], rho.shape[1]))
        for j in range(len(N)):
            of_class = self.y == j
            N[j] = self.cost[of_class, 0] @ rho[of_class]
        return N

    def scaled(self, rho: FloatArray, u: FloatArray, v: FloatArray) -> FloatArray:
        """u_{y_i} v_l rho_il, in place."""
        rho *= u[self.y][:, np.newaxis]
        rho *= v
        return rho

    def gradient(self, rho: FloatArray, out: FloatArray) -> None:
        """The gradient of the losses that rho makes."""
        R = np.empty_like(rho)

        def some(lo: int, hi: int) -> None:
            part = R[lo:hi]
            np.multiply(self.cost[lo:hi], rho[lo:hi], out=part)
            part[self._own(lo, hi)] = -part.sum(axis=1)

        by_rows(some, R)
        self.loss.combine(R, out.reshape(-1))

    def gained(self, rho: FloatArray, width: float) -> float:
        """-loss*(rho) = sum_i c_i sum_{l != y} (rho_il + width sqrt(rho_il (1 - rho_il)))."""
        gained = np.empty(len(rho))

        def some(lo: int, hi: int) -> None:
            part = rho[lo:hi]
            gained[lo:hi] = (part + width * np.sqrt(part * (1 - part)) if width else part).sum(axis=1)

        by_rows(some, rho)
        return float(gained @ self.cost[:, 0])


def balancing(N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(u, v) that give N the same sums of rows and columns."""
    u, v = np.ones((2, len(N)))
    for _ in range(BALANCING):
        for factor, axis in ((u, 1), (v, 0)):
            kept = N * np.outer(u, v)
            mine, others = kept.sum(axis=axis), kept.sum(axis=1 - axis)
            factor *= np.minimum(1, np.divide(others, mine, out=np.ones(len(N)), where=mine > 0))
    return u, v
