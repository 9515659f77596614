"""Dual coordinate descent for up to 8 binary problems over the same rows: a row is visited once for all of them.

    P_l(w) = 1/2 ||w||^2 + sum_i c_i phi(g_il),   g_il = sign_il <w_l, x_i>,   l = 0, ..., 7

Each problem is that of MarginCD without spread. They share the rows, the costs c and the table phi. A feature's weights
in all problems are one cache line, W[8 j + l]: what a visit costs are the lines that it waits for, so that problems
that have ended, or that there are not, cost little beside the others.

A row is skipped for as many sweeps as it had visits in a row that moved none of its duals (dual_engine.pyx).
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY
from libc.stdint cimport int8_t, int32_t, uint8_t, uint64_t, uintptr_t

from marginlinear._core.shrinking cimport active_rows, drawn_chunks, note_visit, shuffle
from marginlinear._core.margin_loss cimport dual_at, dual_term, loss_at, loss_t, visit
from marginlinear._core.rows cimport (
    AHEAD,
    SLICE,
    Rows,
    data_t,
    feature,
    prefetch,
    row_begin,
    row_end,
    row_prefetch,
    value,
    weights_prefetch,
)
from marginlinear.threads import Cancelled, run_chunks

cdef enum:
    K = 8                # columns of the weights
    MAX_SKIP = 16        # sweeps
    BLOCK = 524288       # rows of weights between looks at the signals

WIDTH = K


cdef enum Work:
    UPDATE_ROWS    # coordinate steps at the rows order[start:stop]
    SUM_LOSSES     # at the rows start to stop
    ADD_ROWS       # W += sum_i sign_i dual_i x_i


cdef struct task_t:
    Work what
    Py_ssize_t start
    Py_ssize_t stop
    double* gap          # K of each
    double* loss
    double* W


cdef class BatchMarginCD:
    """State and sweeps of the problems. What there is one number of for each problem is a list of k.

    Parameters
    ----------
    rows : Rows
        Of features, not of a Gram matrix.
    y : int32 array of shape (m,)
        Class of each row.
    codes : int8 array of shape (classes, k)
        +1 or -1: the sign of each class in each of k <= WIDTH problems.
    cost : float64 array of shape (m,)
        c_i > 0.
    table : float64 array
        phi, as `margin_cd.table_of` returns it.
    seed : int
    threads : int
        For passes that only read; sweeps use one.
    cancel : threading.Event, optional
        Once set, a pass ends within about 20 ms, with Cancelled.

    Attributes
    ----------
    active : list of int
        Numbers of the problems that are swept; to be set by `retire` alone.
    gap : list of float
        Sums over the rows of the last sweep, each row's gap taken as it was met.
    objective_seen : list of float
        P_l, each row's loss taken as it was met.
    W : float64 array of shape (d, k)
    duals : float64 array of shape (m, k)
        In the direction of the margins.
    """

    cdef readonly Rows rows
    cdef readonly Py_ssize_t k, n_iter
    cdef readonly list active, gap, objective_seen
    cdef object cancel
    cdef int threads
    cdef uint64_t rng
    cdef Py_ssize_t slice_rows, count
    cdef double[::1] w, a
    cdef const double[::1] c, sqnorms, table
    cdef const int32_t[::1] y
    cdef int8_t[:, ::1] signs
    cdef uint8_t[::1] skip, idle
    cdef Py_ssize_t[::1] order
    cdef Py_ssize_t which[K]
    cdef double skip_tolerance[K]
    # ||w_l||^2, as the sweeps' steps change it.
    cdef double sqnorm[K]
    cdef const loss_t* phi
    # phi is 0 from here to there.
    cdef double zero_from, zero_to

    def __init__(self, Rows rows, y, const int8_t[:, :] codes, cost, table, *, seed=0, int threads=1, cancel=None):
        cdef Py_ssize_t m = rows.m, i, j, l
        self.rows, self.k, self.n_iter, self.cancel = rows, codes.shape[1], 0, cancel
        self.y, self.c, self.table, self.sqnorms = y, cost, table, rows.sqnorms()
        self.signs = np.zeros((codes.shape[0], K), dtype=np.int8)
        self.signs[:, :self.k] = codes
        self.threads, self.rng = threads, seed
        self.w, self.a = aligned(np.zeros, rows.d * K), aligned(rows.zeros, m * K)
        self.order = np.empty(m, dtype=np.intp)
        self.skip, self.idle = np.zeros(m, dtype=np.uint8), np.zeros(m, dtype=np.uint8)
        for l in range(K):
            self.skip_tolerance[l], self.sqnorm[l] = -INFINITY, 0
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * m / (5 * (1.0 + <double>rows.nnz))))
        self.phi = <const loss_t*> &self.table[0]
        self.zero_from, self.zero_to = INFINITY, -INFINITY
        for j in range(3):
            if self.phi.pieces.quad[j] == 0 and self.phi.pieces.slope[j] == 0 and self.phi.pieces.level[j] == 0:
                self.zero_from = min(self.zero_from, self.phi.pieces.knot[j - 1] if j else -INFINITY)
                self.zero_to = max(self.zero_to, self.phi.pieces.knot[j] if j < 2 else INFINITY)
        # A row with x_i = 0 has g_i = 0 for any w: its dual leaves no gap there.
        for i in range(m):
            if self.sqnorms[i] == 0:
                for l in range(self.k):
                    self.a[i * K + l] = dual_at(self.phi, self.c[i], 0.0)
        self._activate(list(range(self.k)))

    @property
    def W(self):
        return np.asarray(self.w).reshape(-1, K)[:, :self.k]

    @property
    def duals(self):
        return np.asarray(self.a).reshape(-1, K)[:, :self.k]

    def duals_of(self, Py_ssize_t l):
        """Those of one problem, side by side."""
        return self.duals[:, l].copy()

    def write(self, double[:, :] weights):
        """weights[:] = W"""
        cdef Py_ssize_t j, l, start, d = self.rows.d
        for start in range(0, d, BLOCK):
            with nogil:
                for j in range(start, min(d, start + BLOCK)):
                    for l in range(self.k):
                        weights[j, l] = self.w[j * K + l]
            PyErr_CheckSignals()

    def _activate(self, list numbers):
        self.active, self.count = numbers, len(numbers)
        for at, l in enumerate(numbers):
            self.which[at] = l

    def retire(self, numbers):
        """Sweep these problems no more: their weights and duals stay as they are."""
        self._activate([l for l in self.active if l not in numbers])

    cdef _perform(self, task_t* task, Py_ssize_t start, Py_ssize_t stop):
        """The task from start to stop, with looks at the signals between its slices."""
        cdef Py_ssize_t at
        for at in range(start, stop, self.slice_rows):
            task.start, task.stop = at, min(stop, at + self.slice_rows)
            with nogil:
                perform(self, self.rows, task)
            PyErr_CheckSignals()
            if self.cancel is not None and self.cancel.is_set():
                raise Cancelled

    def sweep(self):
        """Visit every row that is not skipped once, in a new random order."""
        cdef task_t task
        cdef Py_ssize_t visited, lo, hi, l
        cdef double gap[K]
        cdef double loss[K]
        for l in range(K):
            gap[l] = loss[l] = 0
        task.what, task.W, task.gap, task.loss = UPDATE_ROWS, &self.w[0], gap, loss
        for window in self.rows.windows(drawn_chunks(self.rows, &self.skip[0], &self.rng)):
            visited = 0
            for lo, hi in window:
                with nogil:
                    visited += active_rows(&self.sqnorms[0], &self.skip[0], lo, hi, &self.order[visited])
            with nogil:
                shuffle(&self.order[0], visited, &self.rng)
            self._perform(&task, 0, visited)
        self.gap = [gap[l] for l in range(self.k)]
        self.objective_seen = [loss[l] + self.sqnorm[l] / 2 for l in range(self.k)]
        self.n_iter += 1

    def set_skip_tolerance(self, gaps):
        """Leave duals as they are whose gaps add up, in each problem, to no more than its number of `gaps`."""
        cdef Py_ssize_t l
        for l in range(self.k):
            self.skip_tolerance[l] = gaps[l] / max(1, self.rows.m)

    def primal(self):
        """P_l at the weights, exactly, by one pass over the rows."""
        self.rows.require()
        parts = run_chunks(self._losses, self.rows.m, self.threads)
        return [sum(part) + sqnorm / 2 for *part, sqnorm in zip(*parts, self._sqnorms(), strict=True)]

    def _losses(self, Py_ssize_t lo, Py_ssize_t hi):
        cdef task_t task
        cdef Py_ssize_t l
        cdef double loss[K]
        for l in range(K):
            loss[l] = 0
        task.what, task.W, task.loss = SUM_LOSSES, &self.w[0], loss
        self._perform(&task, lo, hi)
        return [loss[l] for l in range(self.k)]

    def refresh(self):
        """The weights of all problems, those not swept any more too, summed afresh from the rows and the duals."""
        cdef task_t task
        cdef Py_ssize_t start
        for start in range(0, self.w.shape[0], K * BLOCK):
            self.w[start:min(self.w.shape[0], start + K * BLOCK)] = 0
            PyErr_CheckSignals()
        self.rows.require()
        task.what, task.W = ADD_ROWS, &self.w[0]
        self._perform(&task, 0, self.rows.m)

    def dual(self):
        """D_l at the duals, the weights being theirs: -inf where a dual is out of its range."""
        cdef double at_rest = dual_term(self.phi, 1.0, 0.0)
        cdef double a
        cdef double h[K]
        cdef Py_ssize_t i, l, start, m = self.rows.m
        for l in range(K):
            h[l] = 0
        for start in range(0, m, BLOCK):
            with nogil:
                for i in range(start, min(m, start + BLOCK)):
                    for l in range(self.k):
                        a = self.a[i * K + l]
                        if a == 0:
                            h[l] += self.c[i] * at_rest
                        else:
                            h[l] += dual_term(self.phi, self.c[i], a)
            PyErr_CheckSignals()
        return [h[l] - sqnorm / 2 for l, sqnorm in enumerate(self._sqnorms())]

    def _sqnorms(self):
        """||w_l||^2"""
        cdef double sums[K]
        cdef Py_ssize_t j, l, start, d = self.rows.d
        for l in range(K):
            sums[l] = 0
        for start in range(0, d, BLOCK):
            with nogil:
                for j in range(start, min(d, start + BLOCK)):
                    for l in range(K):
                        sums[l] += self.w[j * K + l] * self.w[j * K + l]
            PyErr_CheckSignals()
        return [sums[l] for l in range(self.k)]


cdef double[::1] aligned(zeros, Py_ssize_t n):
    """n zeros that begin with a cache line."""
    cdef double[::1] buffer = zeros(n + 8)
    cdef Py_ssize_t past = <Py_ssize_t>(<uintptr_t> &buffer[0] // 8 % 8), begin = 8 - past if past else 0
    return buffer[begin:begin + n]


cdef inline void scores_of(const data_t* X, Py_ssize_t i, const double* W, double* s) noexcept nogil:
    """s_l = <w_l, x_i>, in the order of the features"""
    cdef Py_ssize_t p
    cdef double v, s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0
    cdef const double* w
    for p in range(row_begin(X, i), row_end(X, i)):
        v = value(X, i, p)
        w = W + feature(X, i, p) * K
        s0 += v * w[0]
        s1 += v * w[1]
        s2 += v * w[2]
        s3 += v * w[3]
        s4 += v * w[4]
        s5 += v * w[5]
        s6 += v * w[6]
        s7 += v * w[7]
    s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7] = s0, s1, s2, s3, s4, s5, s6, s7
    if X.bias >= 0:
        add_line(s, X.bias, W + X.n * K)


cdef inline void update(const data_t* X, Py_ssize_t i, const double* delta, double* W) noexcept nogil:
    """w_l += delta_l x_i"""
    cdef Py_ssize_t p
    for p in range(row_begin(X, i), row_end(X, i)):
        add_line(W + feature(X, i, p) * K, value(X, i, p), delta)
    if X.bias >= 0:
        add_line(W + X.n * K, X.bias, delta)


cdef inline void add_line(double* w, double v, const double* d) noexcept nogil:
    """w_l += v d_l; all are read before the first is written, so that the compiler may use vectors."""
    cdef double w0 = w[0] + v * d[0], w1 = w[1] + v * d[1], w2 = w[2] + v * d[2], w3 = w[3] + v * d[3]
    cdef double w4 = w[4] + v * d[4], w5 = w[5] + v * d[5], w6 = w[6] + v * d[6], w7 = w[7] + v * d[7]
    w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7] = w0, w1, w2, w3, w4, w5, w6, w7


ctypedef fused engine_t:
    BatchMarginCD

include "on_features.pxi"


cdef inline void perform_on(BatchMarginCD self, const data_t* X, task_t* task) noexcept nogil:
    if task.what == UPDATE_ROWS:
        update_rows(self, X, task)
    elif task.what == SUM_LOSSES:
        sum_losses(self, X, task)
    else:
        add_rows(self, X, task)


cdef void update_rows(BatchMarginCD self, const data_t* X, task_t* task) noexcept nogil:
    """Coordinate steps: scores, exact minima along the duals, update of the weights."""
    cdef Py_ssize_t at, i, l, n
    cdef double g, old, new, own, loss, A, c
    cdef double s[K]
    cdef double delta[K]
    cdef double* a
    cdef const int8_t* sign
    cdef bint moved
    for at in range(task.start, task.stop):
        i = self.order[at]
        if at + AHEAD < task.stop:
            row_prefetch(X, self.order[at + AHEAD])
            prefetch(&self.a[self.order[at + AHEAD] * K])
        if at + 1 < task.stop:
            weights_prefetch(X, self.order[at + 1], task.W, K)
        scores_of(X, i, task.W, s)
        sign, a = &self.signs[self.y[i], 0], &self.a[i * K]
        A, c, moved = self.sqnorms[i], self.c[i], False
        for l in range(K):
            delta[l] = 0
        for n in range(self.count):
            l = self.which[n]
            g, old = s[l] * sign[l], a[l]
            if old == 0 and g >= self.zero_from and g <= self.zero_to:
                continue
            new = visit(self.phi, c, A, g, old, self.skip_tolerance[l], &own, &loss)
            task.gap[l] += own
            task.loss[l] += loss
            if new != old:
                delta[l] = (new - old) * sign[l]
                self.sqnorm[l] += delta[l] * (2 * s[l] + delta[l] * A)
                a[l] = new
                moved = True
        note_visit(&self.skip[i], &self.idle[i], moved, MAX_SKIP)
        if moved:
            update(X, i, delta, task.W)


cdef void sum_losses(BatchMarginCD self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, l, n
    cdef double s[K]
    cdef const int8_t* sign
    for i in range(task.start, task.stop):
        if i + 1 < task.stop:
            weights_prefetch(X, i + 1, task.W, K)
        scores_of(X, i, task.W, s)
        sign = &self.signs[self.y[i], 0]
        for n in range(self.count):
            l = self.which[n]
            task.loss[l] += self.c[i] * loss_at(self.phi, s[l] * sign[l])


cdef void add_rows(BatchMarginCD self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, l
    cdef double delta[K]
    cdef const int8_t* sign
    cdef bint any_of
    for i in range(task.start, task.stop):
        if i + 1 < task.stop:
            weights_prefetch(X, i + 1, task.W, K)
        sign, any_of = &self.signs[self.y[i], 0], False
        for l in range(K):
            delta[l] = self.a[i * K + l] * sign[l]
            any_of = any_of or delta[l] != 0
        if any_of:
            update(X, i, delta, task.W)
