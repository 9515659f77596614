"""The penalty of all features' weights: what a certificate asks of it, and Newton steps on what is not 0."""

import numpy as np

from libc.math cimport INFINITY, fmax, sqrt

NORMS = {"l1": ABSOLUTE, "group": GROUP}
NAMES = {norm: name for name, norm in NORMS.items()}


cdef class Penalty:
    """sum_j [l1 N(w_j) + l2/2 ||w_j||^2] of W, of shape (d, k), as penalty.pxd has it.

    Parameters
    ----------
    norm : {"l1", "group"}
    l1, l2 : float
        l1 > 0, l2 >= 0.
    free : int
        The feature whose weights cost nothing; -1 for none.
    """

    def __init__(self, norm, double l1, double l2, Py_ssize_t free=-1):
        self.of.norm, self.of.l1, self.of.l2, self.of.free = NORMS[norm], l1, l2, free

    def among(self, features):
        """That of some features alone, an ascending array, in whose order their weights then are."""
        cdef Py_ssize_t at = np.searchsorted(features, self.of.free)
        free = at if at < len(features) and features[at] == self.of.free else -1
        return Penalty(NAMES[self.of.norm], self.of.l1, self.of.l2, free)

    @property
    def norm(self):
        return NAMES[self.of.norm]

    @property
    def l1(self):
        return self.of.l1

    @property
    def l2(self):
        return self.of.l2

    def value(self, const double[:, ::1] W):
        cdef Py_ssize_t j, k = W.shape[1]
        cdef double total = 0
        with nogil:
            for j in range(W.shape[0]):
                if j != self.of.free:
                    total += self.of.l1 * norm_of(self.of.norm, &W[j, 0], k) + 0.5 * self.of.l2 * square(&W[j, 0], k)
        return total

    def dual_norm(self, const double[:, ::1] U):
        """The largest N*(U_j) of features that cost something."""
        cdef Py_ssize_t j
        cdef double most = 0
        with nogil:
            for j in range(U.shape[0]):
                if j != self.of.free:
                    most = fmax(most, dual_norm_of(self.of.norm, &U[j, 0], U.shape[1]))
        return most

    def conjugate(self, const double[:, ::1] U, double share):
        """The penalty's conjugate at share U, share >= 0: inf where l2 = 0 and an N*(share U_j) is above l1, but for
        rounding."""
        cdef Py_ssize_t j
        cdef double total = 0
        if share == 0:
            return 0.0
        with nogil:
            for j in range(U.shape[0]):
                if j != self.of.free:
                    # N*(share u) <= l1 where N*(u) <= l1/share.
                    total += excess_of(self.of.norm, self.of.l1 / share, &U[j, 0], U.shape[1])
        total *= share * share
        if self.of.l2 > 0:
            return total / (2 * self.of.l2)
        return 0.0 if total <= (1e-15 * self.of.l1) ** 2 else INFINITY

    def violations(self, const double[:, ::1] W, const double[:, ::1] U):
        """The lengths of the features' least subgradients, U_j being minus the slopes of the loss; 0 of the one that
        costs nothing, which is best wherever U is made."""
        cdef Py_ssize_t j, l, k = W.shape[1]
        found, slope = np.zeros(W.shape[0]), np.empty(k)
        cdef double[::1] lengths = found, G = slope
        with nogil:
            for j in range(W.shape[0]):
                if j != self.of.free:
                    for l in range(k):
                        G[l] = self.of.l2 * W[j, l] - U[j, l]
                    lengths[j] = violations_of(self.of.norm, self.of.l1, &W[j, 0], &G[0], k)
        return found

    def smooth(self, const double[:, ::1] W):
        """Of shape (d, k): which weights Newton steps may move, as near W the penalty is smooth in them."""
        cdef Py_ssize_t free = self.of.free
        found = np.asarray(W) != 0
        if self.of.norm == GROUP:
            found = np.repeat(found.any(axis=1)[:, np.newaxis], W.shape[1], axis=1)
        if free >= 0:
            found[free] = True
        return found

    def add_slope(self, const double[:, ::1] W, double[:, ::1] out):
        """The slope of l1 N at W is added to `out` where it has one."""
        cdef Py_ssize_t j, l, k = W.shape[1]
        cdef double length
        with nogil:
            for j in range(W.shape[0]):
                if j == self.of.free:
                    continue
                length = sqrt(square(&W[j, 0], k))
                for l in range(k):
                    if W[j, l] != 0:
                        out[j, l] += self.of.l1 * (
                            W[j, l] / length if self.of.norm == GROUP else 1.0 if W[j, l] > 0 else -1.0)

    def add_bend(self, const double[:, ::1] W, const double[:, ::1] V, double[:, ::1] out):
        """The penalty's Hessian at W, times V, which is 0 where W has none, is added to `out`."""
        cdef Py_ssize_t j, l, k = W.shape[1]
        cdef double length, along
        with nogil:
            for j in range(W.shape[0]):
                if j == self.of.free:
                    continue
                length, along = sqrt(square(&W[j, 0], k)), 0
                if length == 0:
                    continue
                if self.of.norm == GROUP:
                    for l in range(k):
                        along += W[j, l] * V[j, l]
                    along /= length * length
                for l in range(k):
                    out[j, l] += self.of.l2 * V[j, l]
                    if self.of.norm == GROUP:
                        out[j, l] += self.of.l1 / length * (V[j, l] - along * W[j, l])

    def stop_at_zero(self, const double[:, ::1] W, double[:, ::1] new):
        """What on the way from W to `new` crosses 0 ends there."""
        cdef Py_ssize_t j, l, k = W.shape[1]
        cdef double along
        with nogil:
            for j in range(W.shape[0]):
                if j == self.of.free:
                    continue
                along = 0
                for l in range(k):
                    along += W[j, l] * new[j, l]
                for l in range(k):
                    if (along if self.of.norm == GROUP else W[j, l] * new[j, l]) < 0:
                        new[j, l] = 0

    def centre(self, double[:, ::1] W):
        """`centre_of` each feature's weights that cost something."""
        cdef Py_ssize_t j
        with nogil:
            for j in range(W.shape[0]):
                if j != self.of.free:
                    centre_of(self.of.norm, self.of.l1, self.of.l2, &W[j, 0], W.shape[1])
