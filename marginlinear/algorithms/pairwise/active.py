"""The inverse of a rounded hinge's Hessian, where few pairs of a row and a class have nearly all of its curvature.

With D_jl = w_j - w_l, e_j the axes of the classes, M as in regulariser.py and h_il > 0 the curvature of row i's loss
against class l,

    H = M + sum_il h_il u_il u_il' + sum_{j<l} a_jl v_jl v_jl',        u_il = x_i (e_{y_i} - e_l)',
    a_jl = lambda p (p - 2) ||D_jl||^{p-4},                              v_jl = D_jl (e_j - e_l)'

What is sharp of a hinge are those h_il whose margins are at the corner, of which there are no more than free variables.
With these alone, q = 1, ..., n and the signs s of their weights, U their vectors times the roots of these,

    H^-1 = M^-1 - M^-1 U (diag(s) + U'M^-1 U)^-1 U'M^-1                                       (Woodbury)

and what is left out, and rounding, are for the conjugate gradients. <U_q, M^-1 U_r> is a product of features, of rows
or of D, and one of classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array, hstack

from marginlinear.algorithms.pairwise.passes import gram
from marginlinear.algorithms.pairwise.regulariser import laplacian
from marginlinear.threads import aside

if TYPE_CHECKING:
    from typing import Any

    from marginlinear._core.rows import Rows
    from marginlinear._typing import FloatArray, Int32Array, IntpArray
    from marginlinear.algorithms.pairwise.regulariser import Quadratic

# Most terms, whose n x n system is solved; what part of the curvature they may leave out.
MOST, LEFT = 1500, 1e-2


def sharpest(H: FloatArray, most: int) -> IntpArray | None:
    """The places in H, of shape (m, k), of its largest values, no more than `most`, that leave no more than the part
    LEFT of its sum; None where there are no such."""
    flat = H.reshape(-1)
    total = flat.sum()
    if most < 1 or not 0 < total < np.inf:
        return None
    found = np.argpartition(flat, -most)[-most:] if most < flat.size else np.arange(flat.size)
    found = found[np.argsort(-flat[found], kind="stable")]
    n = int(np.searchsorted(np.cumsum(flat[found]), (1 - LEFT) * total)) + 1
    return found[:n + n // 4] if n <= len(found) else None


class ActivePairs:
    """H^-1 in the coordinates of the regulariser's basis, in which M is the identity but for the bias.

    Parameters
    ----------
    rows : Rows
    y : int32 array of shape (m,)
    H : float64 array of shape (m, k)
        h_il
    which : integer array of shape (n,)
        Places in H of those that are sharp.
    regulariser : Quadratic or Pairwise
        As evaluated at W, and aligned.
    W : float64 array of shape (d, k)

    What rounding makes singular gives not-a-numbers.
    """

    def __init__(self, rows: Rows, y: Int32Array, H: FloatArray, which: IntpArray, regulariser: Quadratic,
                 W: FloatArray) -> None:
        k, n = len(regulariser.basis), len(which)
        self.basis, self.features, self.W = regulariser.basis, regulariser.features, W[regulariser.features]
        self.first, self.second, a = regulariser.rank_ones(k)
        row, other = np.divmod(which, k)
        own = y[row].astype(np.intp)
        row, at = np.unique(row, return_inverse=True)
        self.X = matrix_of(rows.select(row))
        # Of pair q: the score of its row for its own class, less that for the other.
        self.picks = csr_array((np.repeat([1.0, -1.0], n), (np.tile(np.arange(n), 2),
                                                            np.concatenate([at * k + own, at * k + other]))),
                               (n, len(row) * k))
        X = self.X[:, self.features]
        K, scores = X @ X.T, X @ self.W
        system = np.empty((n + len(a), n + len(a)))
        system[:n, :n] = (K.toarray() if isinstance(K, csr_array) else K)[np.ix_(at, at)]
        system[:n, n:] = (scores[:, self.first] - scores[:, self.second])[at]
        system[n:, :n] = system[:n, n:].T
        system[n:, n:] = between(gram(self.W, self.W), self.first, self.second)
        system *= between(self.basis @ self.basis.T, np.concatenate([own, self.first]),
                          np.concatenate([other, self.second]))
        self.of_bias = regulariser.inverse_of_bias()
        if self.of_bias is not None:
            system[:n, :n] += rows.bias**2 * between(self.basis @ self.of_bias @ self.basis.T, own, other)
        weights = np.concatenate([H.reshape(-1)[which], a])
        self.roots = np.sqrt(abs(weights))
        system *= self.roots
        system *= self.roots[:, np.newaxis]
        system[np.diag_indices_from(system)] += np.where(weights < 0, -1.0, 1.0)
        self.inverse = inverted(system)

    def __call__(self, r: FloatArray, lo: int, hi: int) -> FloatArray:
        """Features lo to hi of H^-1 r."""
        free = self._free(r)
        V = free @ self.basis.T
        A = gram(self.W, V[self.features])
        own = A.diagonal()
        dots = np.concatenate([self.picks @ (self.X @ V).reshape(-1),
                               (own[:, np.newaxis] + own - A - A.T)[self.first, self.second]])
        dots = self.roots * (self.inverse @ (self.roots * dots))
        n, k = self.picks.shape[0], len(self.basis)
        V = self.X.T @ (self.picks.T @ dots[:n]).reshape(-1, k)
        S = np.zeros((k, k))
        S[self.first, self.second] = S[self.second, self.first] = dots[n:]
        V[self.features] += self.W @ laplacian(S)
        return free[lo:hi] - self._free(V @ self.basis)[lo:hi]

    def _free(self, r: FloatArray) -> FloatArray:
        """M^-1 r"""
        if self.of_bias is None:
            return r
        found = r.copy()
        found[-1] = r[-1] @ self.of_bias
        return found


def inverted(system: FloatArray) -> FloatArray:
    """The inverse, of not-a-numbers where it is singular."""
    try:
        return aside(np.linalg.inv, system)
    except np.linalg.LinAlgError:
        return np.full_like(system, np.nan)


def matrix_of(rows: Rows) -> Any:
    """Rows with their bias feature, of shape (m, d): a CSR array, or of dense rows a float64 array."""
    if isinstance(rows.arrays, tuple):
        _, indices, indptr = rows.arrays
        X = csr_array((rows.stored().astype(np.float64), indices[:rows.nnz], indptr), shape=(rows.m, rows.n))
        return X if rows.bias < 0 else hstack([X, np.full((rows.m, 1), rows.bias)], format="csr")
    table = rows.arrays.astype(np.float64)
    return table if rows.bias < 0 else np.column_stack([table, np.full(rows.m, rows.bias)])


def between(A: FloatArray, a: IntpArray, b: IntpArray) -> FloatArray:
    """(e_a - e_b)' A (e_a' - e_b'), of all pairs of these pairs."""
    sides = A[a] - A[b]
    found: FloatArray = sides[:, a] - sides[:, b]
    return found
