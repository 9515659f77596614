"""Sparse weights by proximal points, each of them by Newton steps on its dual (Li, Sun and Toh, SIAM J. Optim. 2018).

    P(w) = R(w) + sum_i c_i phi(y_i w.x_i),      R(w) = l1 ||w||_1 + l2/2 ||w||^2

    w+ = argmin_w P(w) + T(w),      T(w) = sum_j (w_j - z_j)^2/(2 sigma_j),      z the last one

At duals a_i, which are the forces -c_i phi'(g_i) of some margins g, and U = sum_i a_i y_i x_i, its dual is -psi,

    psi(a) = sum_i c_i phi*(-a_i/c_i) + max_w [U.w - R(w) - T(w)],
    w_j(U) = S(z_j + sigma_j U_j, sigma_j l1)/(1 + sigma_j l2) there,      S(v, t) = sign(v) (|v| - t)_+

The gradient of psi is the margins of w(U) less g. Its curvature knows the kinks of R and of phi' alike: with h_i =
c_i phi''(g_i) and B = (y_i x_ij) over the features with a weight it is, and its inverse takes that of (Woodbury),

    1/h + B diag(sigma/(1 + sigma l2)) B',      B' diag(h) B + diag(1/sigma + l2)

A proximal Newton step on P (feature_cd.pyx) knows only those rows that are at work where it begins: with nearly as many
weights as such rows it goes small parts of its way. These steps come to the optimum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from marginlinear._core.proximal import solve

if TYPE_CHECKING:
    from marginlinear._core.feature_cd import FeatureCD
    from marginlinear._typing import FloatArray
    from marginlinear.algorithms.certificate import Budget

# A point is found where P + T is no more than this part of T above its least value; what rounding leaves, a part of it.
SOLVED, ROUNDED = 0.1, 1e-12
# Newton steps to a point, at most. sigma becomes GROWTH times as large after no more than FEW, half of it after more
# than MANY, and a LESSth where they do not come to the point, TRIALS times.
STEPS, FEW, MANY, GROWTH, LESS, TRIALS = 50, 6, 15, 3.0, 10.0, 4
# Weights of a system, at most.
MOST = 4000
# The part of a step's promised fall that is enough, its halvings, and the part of psi that is rounding.
ENOUGH, HALVINGS, ROUNDING = 1e-4, 30, 1e-14
# What a Newton step costs, beside a multiplication of a cycle over columns: the n^3 of n weights, or rows at work where
# these are fewer, is SOLVING times as cheap; PASSES over the stored values; its calls.
SOLVING, PASSES, CALLS = 30, 10, 3e5
# 1/sigma_j is in proportion to sum_i c_i x_ij^2, which is taken for no less than this part of the largest.
LEAST = 1e-16


class ProximalPoints:
    """Moves the weights of an engine from proximal point to proximal point.

    Attributes
    ----------
    n_iter : int
        Newton steps so far.
    """

    def __init__(self, engine: FeatureCD, budget: Budget, threads: int) -> None:
        self.engine, self.budget, self.threads = engine, budget, threads
        self.n_iter, self.sigma = 0, 0.0
        self.g: FloatArray | None = None

    def price(self, n: int) -> float:
        """Of a Newton step, in multiplications of a cycle over columns; n: weights or rows at work."""
        return n**3 / SOLVING + PASSES * self.engine.rows.nnz + CALLS

    @property
    def forces(self) -> FloatArray | None:
        """The duals of the last point, None before: float64 array of shape (m,)"""
        return None if self.g is None else self.engine.respond_to(self.g)[0]

    def step(self, certificate: float) -> None:
        """The engine's weights become those of the next point; they stay where it is not found.

        The first sigma makes T(0) the certificate.
        """
        z, squares = np.array(self.engine.W), self.engine.squares()
        squares = np.maximum(squares, LEAST * squares.max())
        if self.sigma == 0:
            self.sigma = float(squares @ z**2) / (2 * certificate)
        for _ in range(TRIALS):
            point = Point(self.engine, z, self.sigma / squares, self.g, self.threads)
            n_iter = self._approach(point)
            self.g = point.g
            if point.found:
                self.sigma *= GROWTH if n_iter <= FEW else 0.5 if n_iter > MANY else 1.0
                np.asarray(self.engine.W)[:] = point.w
                return
            if self._exhausted():
                return
            self.sigma /= LESS

    def _approach(self, point: Point) -> int:
        """Newton steps to the point; their number."""
        for n_iter in range(STEPS):
            if point.found or self._exhausted() or not point.newton():
                return n_iter
            self.n_iter += 1
        return STEPS

    def _exhausted(self) -> bool:
        return self.budget.exhausted(self.engine.cycles + self.n_iter) is not None


class Point:
    """The problem of one proximal point.

    Parameters
    ----------
    engine : FeatureCD
    z, sigma : float64 arrays of shape (d,)
    g : float64 array of shape (m,), optional
        The margins of the first duals, changed in place; default: those of z.
    threads : int

    Attributes
    ----------
    w : float64 array of shape (d,)
        w(U) of the duals.
    g : float64 array of shape (m,)
        Where the duals are 0 and the margins of w need no others, it has these.
    found : bool
    """

    def __init__(self, engine: FeatureCD, z: FloatArray, sigma: FloatArray, g: FloatArray | None,
                 threads: int) -> None:
        self.engine, self.z, self.sigma, self.threads = engine, z, sigma, threads
        costs = np.arange(len(z)) != engine.free
        self.l1, self.l2 = engine.l1 * costs, engine.l2 * costs
        self.g = engine.margins_of(z) if g is None else g
        self.psi, self.w = self._at(self.g)
        self._respond()

    def newton(self) -> bool:
        """A Newton step on psi; whether one lowers it. There is none for more weights than MOST."""
        engine, h, some = self.engine, self.h, np.flatnonzero(self.w)
        if len(some) > MOST:
            return False
        along = np.zeros(len(self.w))
        if len(some):
            engine.bend_rows(h)
            H = engine.curvature(engine.gather(some).astype(np.intp))
            H[np.diag_indices_from(H)] += 1 / self.sigma[some]
            along[some] = solve(H, engine.sum_of(h * self.slope)[some], self.threads)
        move = np.where(h > 0, self.slope - engine.margins_of(along), 0.0)
        fall, part = float((h * self.slope) @ move), 1.0
        if not fall > 0:
            return False
        for _ in range(HALVINGS):
            g = self.g + part * move
            psi, w = self._at(g)
            if psi <= self.psi - ENOUGH * part * fall + ROUNDING * abs(self.psi):
                self.g, self.psi, self.w = g, psi, w
                self._respond()
                return True
            part /= 2
        return False

    def _at(self, g: FloatArray) -> tuple[float, FloatArray]:
        """psi and w(U) of the duals at these margins."""
        a = self.engine.respond_to(g)[0]
        U = self.engine.sum_of(a)
        v = self.z + self.sigma * U
        w = np.copysign(np.maximum(np.abs(v) - self.sigma * self.l1, 0.0), v) / (1 + self.sigma * self.l2)
        return float(U @ w) - self._penalty(w) - self._distance(w) - self.engine.dual_of(a), w

    def _respond(self) -> None:
        """What follows from g and w."""
        engine, margins = self.engine, self.engine.margins_of(self.w)
        idle = self.g >= engine.corner
        self.g[idle] = np.maximum(margins[idle], engine.corner)
        self.slope = margins - self.g
        # At the corner phi'' is that of where the slope leads.
        self.h = engine.respond_to(np.where(idle, margins, self.g))[1]
        T = self._distance(self.w)
        gap = float(engine.respond_to(margins)[2].sum()) + self._penalty(self.w) + T + self.psi
        self.found = gap <= max(SOLVED * T, ROUNDED * abs(self.psi))

    def _penalty(self, w: FloatArray) -> float:
        return float(self.l1 @ np.abs(w) + (self.l2 * w) @ w / 2)

    def _distance(self, w: FloatArray) -> float:
        """T"""
        return float(((w - self.z) ** 2 / self.sigma).sum() / 2)
