"""Sparse weights by proximal points, each of them by Newton steps on its dual (Li, Sun and Toh, SIAM J. Optim. 2018).

    P(w) = R(w) + sum_i c_i phi(y_i w.x_i),      R(w) = l1 ||w||_1 + l2/2 ||w||^2

    w+ = argmin_w P(w) + T(w),      T(w) = sum_j (w_j - z_j)^2/(2 sigma_j),      z the last one

At duals a_i, which are the forces -c_i phi'(g_i) of some margins g, and U = sum_i a_i y_i x_i, its dual is -psi,

    psi(a) = sum_i c_i phi*(-a_i/c_i) + max_w [U.w - R(w) - T(w)],
    w_j(U) = S(z_j + sigma_j U_j, sigma_j l1)/(1 + sigma_j l2) there,      S(v, t) = sign(v) (|v| - t)_+

The gradient of psi is the margins of w(U) less g. Its curvature knows the kinks of R and of phi' alike: with h_i =
c_i phi''(g_i) and B = (y_i x_ij) over the features with a weight it is, and its inverse takes that of (Woodbury),

    1/h + B diag(sigma/(1 + sigma l2)) B',      B' diag(h) B + diag(1/sigma + l2)

of which the smaller one is solved: with a row and a column for each row at work, h_i > 0, or for each weight.

A proximal Newton step on P (feature_cd.pyx) knows only those rows that are at work where it begins: with nearly as many
weights as such rows it goes small parts of its way. These steps come to the optimum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from marginlinear._core.proximal import solve
from marginlinear.threads import aside

if TYPE_CHECKING:
    from marginlinear._core.feature_cd import FeatureCD
    from marginlinear._typing import FloatArray, IntpArray
    from marginlinear.algorithms.certificate import Budget

# A point is found where P + T is no more than this part of T above its least value; what rounding leaves, a part of it.
SOLVED, ROUNDED = 0.1, 1e-12
# Newton steps to a point, at most. sigma becomes GROWTH times as large after no more than FEW, half of it after more
# than MANY, and a LESSth where they do not come to the point, TRIALS times.
STEPS, FEW, MANY, GROWTH, LESS, TRIALS = 50, 6, 15, 3.0, 10.0, 4
# Weights, or rows at work, of a system, at most.
MOST = 4000
# Rows are multiplied as sparse ones where that many of their values at most are not 0.
SPARSE = 0.05
# The part of a step's promised fall that is enough, its halvings, and the part of psi that is rounding.
ENOUGH, HALVINGS, ROUNDING = 1e-4, 30, 1e-14
# What a Newton step costs, beside a multiplication of a cycle over columns: the n^3 of n weights, or rows at work where
# these are fewer, is SOLVING times as cheap; all passes over a stored value are PASSES of them; its calls.
SOLVING, PASSES, CALLS = 30, 3, 3e5
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

    def unknowns(self) -> int:
        """Those of a Newton step's system at the engine's weights: these, or rows at work where there are fewer."""
        return min(int(np.count_nonzero(self.engine.W)), self.engine.count_support())

    def price(self, n: int) -> float:
        """Of a Newton step with n unknowns, in multiplications of a cycle over columns."""
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
        """A Newton step on psi; whether one lowers it. There is none for more weights and rows at work than MOST."""
        some, at_work = np.flatnonzero(self.w), np.flatnonzero(self.h > 0)
        if len(at_work) < len(some):
            n, direction = len(at_work), self._over_rows
        else:
            n, direction = len(some), self._over_weights
        if n > MOST:
            return False
        move = np.zeros(len(self.g))
        move[at_work] = direction(some, at_work)
        fall, part = float((self.h * self.slope) @ move), 1.0
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

    def _over_weights(self, some: IntpArray, at_work: IntpArray) -> FloatArray:
        """The step in the margins of the rows at work, by the system over the weights."""
        engine, along = self.engine, np.zeros(len(self.w))
        if len(some):
            engine.bend_rows(self.h)
            H = engine.curvature(engine.gather(some).astype(np.intp))
            H[np.diag_indices_from(H)] += 1 / self.sigma[some]
            along[some] = solve(H, engine.sum_of(self.h * self.slope)[some], self.threads)
        found: FloatArray = (self.slope - engine.margins_of(along))[at_work]
        return found

    def _over_rows(self, some: IntpArray, at_work: IntpArray) -> FloatArray:
        """The same by the system over the rows."""
        h, sign = self.h[at_work], np.asarray(self.engine.sign)[at_work]
        root = np.sqrt(self.sigma / (1 + self.sigma * self.l2))
        H = self._products(at_work, some, root) * (sign * sign[:, np.newaxis])
        H[np.diag_indices_from(H)] += 1 / h
        found: FloatArray = solve(H, self.slope[at_work], self.threads) / h
        return found

    def _products(self, at_work: IntpArray, some: IntpArray, root: FloatArray) -> FloatArray:
        """Inner products of these rows over these features, each of which is multiplied by its root."""
        rows = self.engine.rows.select(at_work)
        stored = some[some < rows.n]
        X: Any = rows.arrays
        if isinstance(X, tuple):
            from scipy.sparse import csr_array

            _, indices, indptr = X
            X = csr_array((rows.stored(), indices[: rows.nnz], indptr), shape=(rows.m, rows.n))[:, stored]
            X = X.astype(np.float64).multiply(root[stored]).tocsr()
            if X.nnz > SPARSE * len(at_work) * len(stored):
                X = X.toarray()
        else:
            X = X[:, stored] * root[stored]
        H: FloatArray = aside(np.matmul, X, X.T) if isinstance(X, np.ndarray) else (X @ X.T).toarray()
        if len(stored) < len(some):
            H += (rows.bias * root[-1]) ** 2
        return H

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
