"""Python handles on the inline kernels, so that tests can hold a slow oracle against each kernel alone."""

import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from marginlinear._core cimport block_problem, margin_loss, rng, rows, shrinking
from marginlinear._core.margin_loss cimport loss_t
from marginlinear._core.rows cimport Rows, rows_t

cdef enum Kernel:
    SCORES
    UPDATE
    DOT
    AXPY
    SQNORM


cdef struct task_t:
    Kernel what
    Py_ssize_t i
    Py_ssize_t k
    Py_ssize_t count
    double factor
    double value
    const double* delta
    const int32_t* which
    double* s
    double* W


cdef void perform_on(Rows self, const rows_t* X, task_t* call) noexcept nogil:
    if call.what == SCORES:
        rows.row_scores(X, call.i, call.W, call.k, call.s)
    elif call.what == UPDATE:
        rows.row_update(X, call.i, call.delta, call.which, call.count, call.W, call.k)
    elif call.what == DOT:
        call.value = rows.row_dot(X, call.i, call.W)
    elif call.what == AXPY:
        rows.row_axpy(X, call.i, call.factor, call.W)
    else:
        call.value = rows.row_sqnorm(X, call.i)


ctypedef fused engine_t:
    Rows

include "../marginlinear/_core/on_rows.pxi"


def row_scores(Rows X, Py_ssize_t i, double[:, ::1] W):
    """s_l = <w_l, x_i> for the columns w_l of W."""
    cdef task_t call
    out = np.empty(W.shape[1])
    cdef double[::1] s = out
    call.what, call.i, call.k, call.W, call.s = SCORES, i, W.shape[1], &W[0, 0], &s[0]
    perform(X, X, &call)
    return out


def row_update(Rows X, Py_ssize_t i, const double[::1] delta, const int32_t[::1] which, double[:, ::1] W):
    """w_l += delta_l x_i for l in `which`, in place."""
    cdef task_t call
    call.what, call.i, call.k, call.count, call.W = UPDATE, i, W.shape[1], which.shape[0], &W[0, 0]
    call.delta, call.which = &delta[0], &which[0]
    perform(X, X, &call)


def row_dot(Rows X, Py_ssize_t i, double[::1] w):
    """<w, x_i>"""
    cdef task_t call
    call.what, call.i, call.W = DOT, i, &w[0]
    perform(X, X, &call)
    return call.value


def row_axpy(Rows X, Py_ssize_t i, double a, double[::1] w):
    """w += a x_i, in place."""
    cdef task_t call
    call.what, call.i, call.factor, call.W = AXPY, i, a, &w[0]
    perform(X, X, &call)


def row_sqnorm(Rows X, Py_ssize_t i):
    """<x_i, x_i>"""
    cdef task_t call
    call.what, call.i = SQNORM, i
    perform(X, X, &call)
    return call.value


def threshold(values, double P, double Q):
    """nu with Q nu = P + sum_l (values_l - nu)_+."""
    cdef double[::1] ended = np.append(values, np.nan)
    return block_problem.threshold(&ended[0], ended.shape[0] - 1, P, Q)


def solve_squared_block(const double[::1] B, Py_ssize_t y, double A, double q, double upper=-1, Py_ssize_t r=-1,
                        double F=0):
    """(a, b) of block_problem.solve_squared_block."""
    cdef double[::1] scratch = np.empty(B.shape[0])
    out = np.full(B.shape[0], np.nan)
    cdef double[::1] a = out
    b = block_problem.solve_squared_block(&B[0], B.shape[0], y, A, q, upper, r, F, &a[0], &scratch[0])
    return out, b


def solve_hinge_block(const double[::1] B, Py_ssize_t y, double A, double cap):
    """a of block_problem.solve_hinge_block."""
    cdef double[::1] scratch = np.empty(B.shape[0])
    out = np.full(B.shape[0], np.nan)
    cdef double[::1] a = out
    block_problem.solve_hinge_block(&B[0], B.shape[0], y, A, cap, &a[0], &scratch[0])
    return out


def solve_hinge_block_by_class(const double[::1] B, Py_ssize_t y, const double[::1] A, double cap):
    """a of block_problem.solve_hinge_block_by_class."""
    out = np.full(B.shape[0], np.nan)
    cdef double[::1] a = out
    block_problem.solve_hinge_block_by_class(&B[0], B.shape[0], y, &A[0], cap, &a[0])
    return out


def solve_top_block(const double[::1] B, Py_ssize_t y, double A, double E, double cap, Py_ssize_t K):
    """a of block_problem.solve_top_block."""
    cdef double[::1] scratch = np.empty(B.shape[0])
    out = np.full(B.shape[0], np.nan)
    cdef double[::1] a = out
    block_problem.solve_top_block(&B[0], B.shape[0], y, A, E, cap, K, &a[0], &scratch[0])
    return out


def solve_sum_block(const double[::1] B, Py_ssize_t y, double A, double E, double cap):
    """a of block_problem.solve_sum_block."""
    cdef double[::1] scratch = np.empty(B.shape[0])
    out = np.full(B.shape[0], np.nan)
    cdef double[::1] a = out
    block_problem.solve_sum_block(&B[0], B.shape[0], y, A, E, cap, &a[0], &scratch[0])
    return out


def rng_stream(uint64_t seed, Py_ssize_t count):
    """The first numbers of the generator, uint64."""
    return np.array([rng.rng_next(&seed) for _ in range(count)], dtype=np.uint64)


def rng_below(uint64_t seed, uint32_t n, Py_ssize_t count):
    """The first numbers on [0, n)."""
    return np.array([rng.rng_below(&seed, n) for _ in range(count)], dtype=np.uint32)


def shuffled(order, uint64_t seed):
    """A shuffled copy of `order`."""
    out = np.array(order, dtype=np.intp)
    cdef Py_ssize_t[::1] view = out
    shrinking.shuffle(&view[0], view.shape[0], &seed)
    return out


def piece_loss(const double[::1] table, double g):
    """phi(g) of a row of `tables` of margin_cd."""
    return margin_loss.loss_at(<const loss_t*> &table[0], g)


def piece_dual(const double[::1] table, double c, double g):
    """a of margin_loss.dual_at."""
    return margin_loss.dual_at(<const loss_t*> &table[0], c, g)


def piece_step(const double[::1] table, double c, double base, double A, double start=0.0):
    """(a, curvature) of margin_loss.coordinate_step."""
    cdef double curvature = float("nan")
    a = margin_loss.coordinate_step(<const loss_t*> &table[0], c, base, A, start, &curvature)
    return a, curvature


def piece_gap(const double[::1] table, double c, double g, double a):
    """c phi(g) + c phi*(-a/c) + a g"""
    return margin_loss.fenchel_gap(<const loss_t*> &table[0], c, g, a)


def piece_dual_term(const double[::1] table, double c, double a):
    """-c phi*(-a/c)"""
    return margin_loss.dual_term(<const loss_t*> &table[0], c, a)


def active_rows(const double[::1] sqnorms, uint8_t[::1] skip):
    """The positions of the sqnorms > 0 that are not skipped; `skip` is counted down in place."""
    out = np.empty(sqnorms.shape[0], dtype=np.intp)
    cdef Py_ssize_t[::1] order = out
    return out[:shrinking.active_rows(&sqnorms[0], &skip[0], 0, sqnorms.shape[0], &order[0])]
