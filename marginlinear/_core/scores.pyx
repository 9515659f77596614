"""Scores, sums and margins of rows under a linear model, by ranges of rows, without the GIL."""

import numpy as np

from libc.stdint cimport int32_t

from marginlinear._core.rows cimport (
    CSR32,
    CSR64,
    DENSE32,
    DENSE64,
    NARROW32,
    NARROW64,
    Rows,
    data_t,
    row_axpy,
    row_dot,
    row_scores,
)


cdef void fill(const data_t* X, const double[:, ::1] W, double[:, ::1] out, Py_ssize_t lo,
               Py_ssize_t hi) noexcept nogil:
    cdef Py_ssize_t i, k = W.shape[1]
    if X.d == 0:
        out[lo:hi] = 0
        return
    for i in range(lo, hi):
        if k == 1:
            out[i, 0] = row_dot(X, i, &W[0, 0])
        else:
            row_scores(X, i, &W[0, 0], k, &out[i, 0])


def scores_of(Rows rows, const double[:, ::1] W, double[:, ::1] out, Py_ssize_t lo, Py_ssize_t hi):
    """out[lo:hi] = X[lo:hi] @ W, the bias feature included.

    Parameters
    ----------
    rows : Rows
        CSR or dense, d features.
    W : float64 array of shape (d, k)
    out : float64 array of shape (m, k)
    lo, hi : int
    """
    if W.shape[0] != rows.d or out.shape[0] != rows.m or out.shape[1] != W.shape[1]:
        raise ValueError("scores_of: shapes do not fit")
    if not 0 <= lo <= hi <= rows.m:
        raise ValueError("scores_of: rows out of range")
    with nogil:
        if rows.storage == CSR64:
            fill(&rows.csr64, W, out, lo, hi)
        elif rows.storage == CSR32:
            fill(&rows.csr32, W, out, lo, hi)
        elif rows.storage == NARROW64:
            fill(&rows.narrow64, W, out, lo, hi)
        elif rows.storage == NARROW32:
            fill(&rows.narrow32, W, out, lo, hi)
        elif rows.storage == DENSE64:
            fill(&rows.dense64, W, out, lo, hi)
        elif rows.storage == DENSE32:
            fill(&rows.dense32, W, out, lo, hi)
        else:
            with gil:
                raise ValueError("scores_of: a Gram matrix holds no features")


cdef void add(const data_t* X, const double* a, double* out, Py_ssize_t lo, Py_ssize_t hi) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(lo, hi):
        if a[i] != 0:
            row_axpy(X, i, a[i], out)


def add_rows(Rows rows, const double[::1] a, double[::1] out, Py_ssize_t lo, Py_ssize_t hi):
    """out += sum_{lo <= i < hi} a_i x_i, the bias feature included; a row with a_i = 0 is not read.

    Parameters
    ----------
    rows : Rows
        CSR or dense, d features.
    a : float64 array of shape (m,)
    out : float64 array of shape (d,)
    lo, hi : int
    """
    if a.shape[0] != rows.m or out.shape[0] != rows.d:
        raise ValueError("add_rows: shapes do not fit")
    if not 0 <= lo <= hi <= rows.m:
        raise ValueError("add_rows: rows out of range")
    if lo == hi or rows.d == 0:
        return
    with nogil:
        if rows.storage == CSR64:
            add(&rows.csr64, &a[0], &out[0], lo, hi)
        elif rows.storage == CSR32:
            add(&rows.csr32, &a[0], &out[0], lo, hi)
        elif rows.storage == NARROW64:
            add(&rows.narrow64, &a[0], &out[0], lo, hi)
        elif rows.storage == NARROW32:
            add(&rows.narrow32, &a[0], &out[0], lo, hi)
        elif rows.storage == DENSE64:
            add(&rows.dense64, &a[0], &out[0], lo, hi)
        elif rows.storage == DENSE32:
            add(&rows.dense32, &a[0], &out[0], lo, hi)
        else:
            with gil:
                raise ValueError("add_rows: a Gram matrix holds no features")


def margins_of(const double[:, ::1] scores, const int32_t[::1] y):
    """g_i = s_{i, y_i} - max_{l != y_i} s_{il}: float64 array of shape (m,)."""
    cdef Py_ssize_t i, l, m = scores.shape[0], k = scores.shape[1]
    cdef double rival
    result = np.empty(m)
    cdef double[::1] out = result
    with nogil:
        for i in range(m):
            rival = -1e308 * 10
            for l in range(k):
                if l != y[i] and scores[i, l] > rival:
                    rival = scores[i, l]
            out[i] = scores[i, y[i]] - rival
    return result
