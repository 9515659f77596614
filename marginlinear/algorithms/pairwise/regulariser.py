"""The regularisers R(W) + eps ||b||^2: values, gradients, curvatures and conjugates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import helmert

from marginlinear.algorithms.pairwise.passes import add_product, blocks, by_rows, gram, sqnorm
from marginlinear.threads import aside

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, IntpArray

# Strengths of pairs are no less than this part of the largest one.
FLOOR = 1e-12
# D2_jl = G_jj + G_ll - 2 G_jl has lost its digits below this part of G_jj + G_ll.
CANCELLED = 1e-8


class Quadratic:
    """R(W) = square ||W||^2 - shared ||sum_l w_l||^2, and eps ||b||^2 where `bias` is the value of b's feature."""

    p = 2.0
    tau = 0.0
    threads = 1
    quadratic = True

    def __init__(self, square: float, shared: float = 0.0, eps: float = 0.0, bias: float | None = None) -> None:
        self.square, self.shared, self.bias = square, shared, bias
        self.leak = eps
        self.features = slice(None, None if bias is None else -1)

    def evaluate(self, W: FloatArray) -> tuple[float, float]:
        """R(W) + eps ||b||^2, and what the rounding has added to it: 0."""
        return self._value(W[self.features]) + self._of_bias(W), 0.0

    def add_gradient(self, W: FloatArray, out: FloatArray) -> None:
        A, B = W[self.features], out[self.features]

        def some(lo: int, hi: int) -> None:
            B[lo:hi] += 2 * self.square * A[lo:hi]
            if self.shared:
                B[lo:hi] -= 2 * self.shared * A[lo:hi].sum(axis=1, keepdims=True)

        by_rows(some, A, self.threads)
        self._add_bias(W, out)

    def add_product(self, W: FloatArray, V: FloatArray, out: FloatArray) -> None:
        """out += Hessian at W times V, both in the coordinates of the basis."""
        features = self.features
        out[features] += V[features]
        if self.bias is not None:
            out[-1] += self._own_of_bias() * (V[-1] @ self.basis.T @ self.basis)

    def divide(self, W: FloatArray) -> None:
        """W = the inverse Hessian times W, whose columns add up to 0."""
        if self.square != 0.5:
            by_rows(lambda lo, hi: np.divide(W[lo:hi], 2 * self.square, out=W[lo:hi]), W, self.threads)
        if self.bias is not None:
            W[-1] *= 2 * self.square / self._own_of_bias() if self.bias else 0.0

    def first_tau(self, lost: float, k: int) -> float:
        """A rounding to begin with, where W = 0 loses `lost`."""
        return 0.0

    def factorise(self, k: int) -> None:
        """Eigenvalues of M, and its eigenvectors where they are not the axes, at the weights last evaluated."""
        self.eigen = np.full(k, 2 * self.square), np.eye(k)

    def align(self, curvature: FloatArray) -> FloatArray:
        """A basis T of the classes' directions with T'MT = I and T' curvature T diagonal; returns its diagonal.

        The constant direction has no part in it: the last column is 0.
        """
        values, vectors = self.eigen
        k = len(values)
        free = helmert(k)
        root = free @ vectors / np.sqrt(values) @ vectors.T @ free.T
        curvatures, turn = aside(np.linalg.eigh, root @ (free @ curvature @ free.T) @ root)
        self.basis = np.zeros((k, k))
        self.basis[:, :-1] = free.T @ root @ turn
        return np.append(np.maximum(curvatures, 0), 0.0)

    def curvature_of_bias(self) -> FloatArray | None:
        """Of eps ||b||^2 in each direction of the basis, None without a bias."""
        if self.bias is None:
            return None
        return self._own_of_bias() * np.append((self.basis[:, :-1] ** 2).sum(axis=0), 1.0)

    def hessian_of_bias(self) -> FloatArray | None:
        """The Hessian's part for the bias, in the coordinates of the basis; None without a bias, I where its feature is
        0, and nothing has a slope."""
        if self.bias is None:
            return None
        return self._own_of_bias() * self.basis.T @ self.basis if self.bias else np.eye(len(self.basis))

    def inverse_of_bias(self) -> FloatArray | None:
        """The inverse of the Hessian's part for the bias, in the coordinates of the basis; None without a bias."""
        if self.bias is None:
            return None
        found = np.zeros_like(self.basis)
        if self.bias:
            free = self.basis[:, :-1]
            found[:-1, :-1] = np.linalg.inv(free.T @ free) / self._own_of_bias()
        return found

    def rank_ones(self, k: int) -> tuple[IntpArray, IntpArray, FloatArray]:
        """Pairs of classes j, l and weights a_jl: the Hessian is M and the sum of a_jl v v' over them, v = (w_j - w_l)
        (e_j - e_l)'."""
        none = np.empty(0, dtype=np.intp)
        return none, none, np.empty(0)

    def conjugate(self, W: FloatArray, gradient: FloatArray, scratch: FloatArray) -> tuple[float, float, float]:
        """(A, q, B) with R*(theta U) <= A theta^q + B theta^2, U = -(gradient of the losses) and U_b included."""
        A, B, V = (vectors[self.features] for vectors in (W, gradient, scratch))

        def some(lo: int, hi: int) -> None:
            # V = W - gradient M^-1
            np.multiply(B[lo:hi], -0.5 / self.square, out=V[lo:hi])
            V[lo:hi] += A[lo:hi]

        by_rows(some, A, self.threads)
        return 0.0, 2.0, self.square * sqnorm(V) + self._conjugate_of_bias(W, gradient)

    def first_strength(self, U: FloatArray, size: float) -> FloatArray:
        """`strength` to begin with, one for all pairs: at about W = U M^-1, or for p < 2, where U says little of W, at
        ||w_j - w_l|| = `size`; 0 where `square` has the whole of M."""
        return np.zeros((U.shape[1], U.shape[1]))

    def strength(self, before: FloatArray, part: float) -> FloatArray:
        """lambda p S at the weights last evaluated, float64 array of shape (k, k): `part` of the way from `before`, by
        logarithms. `before` itself where nothing changes it."""
        return before

    def _value(self, W: FloatArray) -> float:
        return self.square * sqnorm(W) - (self.shared * sqnorm(W.sum(axis=1)) if self.shared else 0.0)

    def _of_bias(self, W: FloatArray) -> float:
        return 0.0 if self.bias is None else self.leak * self.bias**2 * sqnorm(W[-1])

    def _add_bias(self, W: FloatArray, out: FloatArray) -> None:
        if self.bias is not None:
            out[-1] += 2 * self.leak * self.bias**2 * W[-1]

    def _own_of_bias(self) -> float:
        # Asked where there is one.
        assert self.bias is not None
        return 2 * self.leak * self.bias**2

    def _conjugate_of_bias(self, W: FloatArray, gradient: FloatArray) -> float:
        # eps ||b - g_b/(2 eps)||^2 with b and its gradient in units of the score.
        if not self.bias:
            return 0.0
        return self.leak * sqnorm(self.bias * W[-1] - gradient[-1] / (2 * self.leak * self.bias))


class Pairwise(Quadratic):
    """R(W) = lambda sum_{j<l} (||w_j - w_l||^2 + tau^2)^{p/2} + eps (||W||^2 + ||b||^2)."""

    quadratic = False

    def __init__(self, p: float, lam: float, eps: float, bias: float | None) -> None:
        super().__init__(eps, 0.0, eps, bias)
        self.p, self.lam = p, lam

    def first_tau(self, lost: float, k: int) -> float:
        # A tenth of it.
        return 0.0 if self.p >= 2 else (0.2 * lost / (self.lam * k * (k - 1))) ** (1 / self.p)

    def evaluate(self, W: FloatArray) -> tuple[float, float]:
        features, p = W[self.features], self.p
        pairs = distances(features)
        rounded = pairs + self.tau**2
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            true = self.lam / 2 * (pairs ** (p / 2)).sum()
            excess = 0.0 if p >= 2 else self.lam / 2 * off_diagonal(rounded ** (p / 2)).sum() - true
            self.S, self.T = (off_diagonal(rounded ** power) for power in (p / 2 - 1, p / 2 - 2))
        return true + self._value(features) + self._of_bias(W), excess

    def add_gradient(self, W: FloatArray, out: FloatArray) -> None:
        super().add_gradient(W, out)
        features = self.features
        add_product(W[features], self.lam * self.p * laplacian(self.S), out[features], self.threads)

    def add_product(self, W: FloatArray, V: FloatArray, out: FloatArray) -> None:
        super().add_product(W, V, out)
        features, p, basis = self.features, self.p, self.basis
        A = gram(W[features], V[features], self.threads) @ basis.T
        own = A.diagonal()
        along = self.T * (own[:, None] + own - A - A.T)  # <w_j - w_l, v_j - v_l> ||w_j - w_l||^{p-4}
        add_product(W[features], self.lam * p * (p - 2) * laplacian(along) @ basis, out[features], self.threads)

    def rank_ones(self, k: int) -> tuple[IntpArray, IntpArray, FloatArray]:
        first, second = np.triu_indices(k, 1)
        return first, second, self.lam * self.p * (self.p - 2) * self.T[first, second]

    def first_strength(self, U: FloatArray, size: float) -> FloatArray:
        k, p = U.shape[1], self.p
        if p >= 2:
            # ||u_j - u_l|| = lambda p S k ||w_j - w_l||
            size = (math.sqrt(distances(U).sum() / (k * (k - 1))) / (self.lam * p * k)) ** (1 / (p - 1))
        return self.lam * p * (size ** (p - 2) if size > 0 else 1.0) * (1 - np.eye(k))

    def strength(self, before: FloatArray, part: float) -> FloatArray:
        S = self.lam * self.p * self.S
        if not S.any():
            return before
        with np.errstate(divide="ignore"):
            return off_diagonal(before ** (1 - part) * np.maximum(S, FLOOR * S.max()) ** part)

    def factorise(self, k: int) -> None:
        values, vectors = aside(np.linalg.eigh, self.lam * self.p * laplacian(self.S))
        self.eigen = np.maximum(values, 0) + 2 * self.square, vectors

    def conjugate(self, W: FloatArray, gradient: FloatArray, scratch: FloatArray) -> tuple[float, float, float]:
        p, lam, features = self.p, self.lam, self.features
        values, vectors = self.eigen
        A, V = W[features], scratch[features]

        def copy(lo: int, hi: int) -> None:
            V[lo:hi] = A[lo:hi]

        by_rows(copy, V, self.threads)
        add_product(gradient[features], -(vectors / values) @ vectors.T, V, self.threads)
        with np.errstate(over="ignore", invalid="ignore"):
            flow = p * self.S * np.sqrt(distances(V))  # ||F_jl||/lambda
            B = self.leak * sqnorm(V) + self._conjugate_of_bias(W, gradient)
            if p == 1:
                return flow.max(), math.inf, B
            q = p / (p - 1)
            A = lam * (p - 1) / 2 * ((flow / p) ** q).sum()
        return A, q, B


def off_diagonal(S: FloatArray) -> FloatArray:
    """S with zeros on the diagonal and where it was not finite."""
    S[~np.isfinite(S)] = 0.0
    np.fill_diagonal(S, 0.0)
    return S


def laplacian(S: FloatArray) -> FloatArray:
    return np.diag(S.sum(axis=1)) - S


def distances(W: FloatArray) -> FloatArray:
    """||w_j - w_l||^2 of the columns, exact where they are nearly equal."""
    G = gram(W, W)
    own = G.diagonal()
    sizes = own[:, None] + own
    D2 = sizes - G - G.T
    np.fill_diagonal(D2, 0.0)
    near = np.triu(CANCELLED * sizes > D2, 1)
    for j in np.flatnonzero(near.any(axis=1)):
        others = np.flatnonzero(near[j])
        exact = np.zeros(len(others))
        for part in blocks(len(W), len(others)):
            exact += ((W[part, others] - W[part, j : j + 1]) ** 2).sum(axis=0)
        D2[j, others] = D2[others, j] = exact
    return D2
