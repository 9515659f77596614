"""Scores, sums and margins of rows under a linear model, by ranges of rows, without the GIL."""

import numpy as np

from libc.stdint cimport int32_t

from marginlinear._core.rows cimport Rows, data_t, feature, row_axpy, row_begin, row_dot, row_end, row_scores, value

cdef enum Task:
    SCORES
    ADD
    COUNT

cdef struct task_t:
    Task what
    Py_ssize_t start, stop, k
    const double* a         # the weights of SCORES, the factors of ADD
    double* out

ctypedef fused engine_t:
    Rows

include "on_features.pxi"


cdef void perform_on(engine_t self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, p, k = task.k
    for i in range(task.start, task.stop):
        if task.what == ADD:
            if task.a[i] != 0:
                row_axpy(X, i, task.a[i], task.out)
        elif task.what == COUNT:
            for p in range(row_begin(X, i), row_end(X, i)):
                task.out[feature(X, i, p)] += value(X, i, p) != 0
            if X.bias > 0:
                task.out[X.n] += 1
        elif k == 1:
            task.out[i] = row_dot(X, i, task.a)
        else:
            row_scores(X, i, task.a, k, task.out + i * k)


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
    cdef task_t task
    if W.shape[0] != rows.d or out.shape[0] != rows.m or out.shape[1] != W.shape[1]:
        raise ValueError("scores_of: shapes do not fit")
    require_range(rows, lo, hi, "scores_of")
    if rows.d == 0:
        out[lo:hi] = 0
    elif lo < hi and W.shape[1]:
        task.what, task.start, task.stop, task.k, task.a, task.out = SCORES, lo, hi, W.shape[1], &W[0, 0], &out[0, 0]
        with nogil:
            perform(rows, rows, &task)


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
    cdef task_t task
    if a.shape[0] != rows.m or out.shape[0] != rows.d:
        raise ValueError("add_rows: shapes do not fit")
    require_range(rows, lo, hi, "add_rows")
    if lo < hi and rows.d:
        task.what, task.start, task.stop, task.k, task.a, task.out = ADD, lo, hi, 1, &a[0], &out[0]
        with nogil:
            perform(rows, rows, &task)


def count_rows(Rows rows, double[::1] out, Py_ssize_t lo, Py_ssize_t hi):
    """out_j += how many rows lo to hi have a feature j that is not 0: float64 array of shape (d,)."""
    cdef task_t task
    if out.shape[0] != rows.d:
        raise ValueError("count_rows: shapes do not fit")
    require_range(rows, lo, hi, "count_rows")
    if lo < hi and rows.d:
        task.what, task.start, task.stop, task.k, task.out = COUNT, lo, hi, 1, &out[0]
        with nogil:
            perform(rows, rows, &task)


cdef require_range(Rows rows, Py_ssize_t lo, Py_ssize_t hi, str what):
    if not 0 <= lo <= hi <= rows.m:
        raise ValueError(f"{what}: rows out of range")
    if rows.is_gram:
        raise ValueError(f"{what}: a Gram matrix holds no features")


def margins_of(const double[:, ::1] scores, const int32_t[::1] y):
    """g_i = s_{i, y_i} - max_{l != y_i} s_{il}: float64 array of shape (m,).

    ValueError for y of another length, or with classes that have no score.
    """
    cdef Py_ssize_t i, l, m = scores.shape[0], k = scores.shape[1]
    cdef double rival
    result = np.empty(m)
    cdef double[::1] out = result
    if y.shape[0] != m:
        raise ValueError(f"margins_of: {y.shape[0]} classes for {m} rows")
    for i in range(m):
        if not 0 <= y[i] < k:
            raise ValueError(f"margins_of: class {y[i]} of row {i} is outside 0 to {k - 1}")
    with nogil:
        for i in range(m):
            rival = -1e308 * 10
            for l in range(k):
                if l != y[i] and scores[i, l] > rival:
                    rival = scores[i, l]
            out[i] = scores[i, y[i]] - rival
    return result
