"""The inverse of a rounded hinge's whole Hessian, for few weights.

In the coordinates of the regulariser's basis T, the terms as in active.py,

    H = I + sum_i x_i x_i' (x) T'B_i T + sum_{j<l} a_jl v_jl v_jl',     B_i = sum_l h_il (e_{y_i} - e_l)(e_{y_i} - e_l)'

and b has its own curvature in place of I. On features of very different lengths conjugate gradients alone leave the
directions next to flat, on which the bound depends most, as on that of b.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from marginlinear.algorithms.pairwise.active import inverted, matrix_of
from marginlinear.algorithms.pairwise.passes import blocks

if TYPE_CHECKING:
    from marginlinear._core.rows import Rows
    from marginlinear._typing import FloatArray, Int32Array
    from marginlinear.algorithms.certificate import Budget
    from marginlinear.algorithms.pairwise.regulariser import Quadratic


class WholeHessian:
    """H^-1 in the coordinates of the regulariser's basis.

    Parameters
    ----------
    curvature : float64 array of shape (k, k, d, d)
        sum_i B_i (x) x_i x_i'
    regulariser : Quadratic or Pairwise
        As evaluated at W, and aligned.
    W : float64 array of shape (d, k)

    What rounding makes singular gives not-a-numbers.
    """

    def __init__(self, curvature: FloatArray, regulariser: Quadratic, W: FloatArray) -> None:
        # The last column is 0.
        T = regulariser.basis[:, :-1]
        (d, k), n = W.shape, W.shape[0] * T.shape[1]
        system = np.tensordot(np.tensordot(T, curvature, (0, 0)), T, (1, 0)).transpose(1, 0, 2, 3)
        system = np.ascontiguousarray(system)
        own = np.ones((d, 1, 1)) * np.eye(k - 1)
        of_bias = regulariser.hessian_of_bias()
        if of_bias is not None:
            own[-1] = of_bias[:-1, :-1]
        at = np.arange(d)
        system[at, :, at] += own
        system = system.reshape(n, n)
        first, second, a = regulariser.rank_ones(k)
        along = np.zeros((d, k - 1, len(a)))
        A = W[regulariser.features]
        along[regulariser.features] = np.einsum("jp,pc->jcp", A[:, first] - A[:, second], T[first] - T[second])
        along = along.reshape(n, len(a))
        system += (along * a) @ along.T
        # Features of any lengths.
        self.roots = 1 / np.sqrt(np.maximum(system.diagonal(), np.finfo(float).tiny))
        system *= self.roots
        system *= self.roots[:, np.newaxis]
        self.inverse = inverted(system)

    def __call__(self, r: FloatArray, lo: int, hi: int) -> FloatArray:
        """Features lo to hi of H^-1 r."""
        found = np.zeros_like(r)
        found[:, :-1] = (self.roots * (self.inverse @ (self.roots * r[:, :-1].reshape(-1)))).reshape(len(r), -1)
        return found[lo:hi]


def curvature_of(rows: Rows, y: Int32Array, H: FloatArray, budget: Budget) -> FloatArray | None:
    """sum_i B_i (x) x_i x_i', float64 array of shape (k, k, d, d); None where the budget ends."""
    d, k = rows.d, H.shape[1]
    pairs = np.zeros((k, k, d, d))
    for part in blocks(rows.m, k * d):
        if budget.exhausted(0):
            return None
        which = np.arange(rows.m)[part]
        X = matrix_of(rows.select(which))
        X = X.toarray() if isinstance(X, csr_array) else X
        for j in np.unique(y[part]):
            mine = y[part] == j
            own = X[mine]
            weighted = (H[part][mine, :, np.newaxis] * own[:, np.newaxis]).reshape(len(own), k * d)
            pairs[j] += (weighted.T @ own).reshape(k, d, d)
    found = -(pairs + pairs.transpose(1, 0, 2, 3))
    at = np.arange(k)
    found[at, at] = -found.sum(axis=1)
    return found
