"""Dual coordinate descent for rounded hinges of all pairs of classes, in a metric of the classes.

    P(W) = sum_i c_i sum_{l != y_i} g(x_il) + 1/2 tr(W M W'),    x_il = 1 - s_{i,y_i} + s_il,  s_il = <w_l, x_i>
    D(a) = sum_i sum_{l != y_i} (a_il + width sqrt(a_il (c_i - a_il))) - 1/2 tr(U Q U'),     0 <= a_il <= c_i

    g(x) = (x + sqrt(x^2 + width^2))/2,   Q = M^-1,   W = U Q,
    U    = sum_i x_i u_i',   u_i = sum_{l != y_i} a_il (e_{y_i} - e_l)

The step of one pair alone, where a moves by t,

    Q_yl = ||x_i||^2 (Q_yy + Q_ll - 2 Q_yl),    x' = x - Q_yl t,    a + t = c_i g'(x'),

is an equation in x', of a rising function. A row's pairs have steps in turn until these bring little; its weights move
once, by Q u_i's change.

The bias feature may have a curvature of its own: then its scores are b, which moves by `lift` times the change of u_i.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, uint8_t, uint64_t

from marginlinear._core.rows cimport (
    AHEAD,
    GRAM,
    SLICE,
    Rows,
    data_t,
    place_prefetch,
    row_begin,
    row_end,
    row_prefetch,
    row_scores,
    row_update,
    value,
)
from marginlinear._core.shrinking cimport active_rows, note_visit, shuffle

cdef enum:
    TURNS = 10      # of the pairs of a row, at most
    STEPS = 60      # of Newton or bisection for one pair
    MAX_SKIP = 20   # sweeps that a row is skipped for, at most

# A row's turns end with one that brings no more than this part of the row's gap; one pair's equation is solved to this
# part of its curvature times the cost.
cdef double LITTLE = 0.01
cdef double EXACT = 1e-9
cdef double ROUNDING = 1e-15


cdef struct task_t:
    Py_ssize_t start, stop
    double* W
    const double* metric
    double lift, skip_tolerance
    double gap, loss


cdef class HingeCD:
    """The duals, and sweeps over them.

    Parameters
    ----------
    rows : Rows
        In memory; not a Gram matrix.
    y : int32 array of shape (m,)
        Classes 0 to n_classes - 1.
    n_classes : int
        k, at least 2.
    cost : float64 array of shape (m,)
        c_i > 0.
    width : float
        Of the hinge's rounding, positive.
    seed : int
        Of the order of the rows.

    Attributes
    ----------
    duals : float64 array of shape (m, k)
        a; 0 at [i, y_i].
    balance : float64 array of shape (k,)
        sum_i u_i.
    loss, gap : float
        Sums over the rows that the last sweep visited, each before its own steps: of c_i g(x_il), and of the duality
        gaps c_i g(x_il) - a_il x_il - width sqrt(a_il (c_i - a_il)) >= 0, all 0 at the optimum.

    Raises
    ------
    ValueError
        For a Gram matrix, arrays of other shapes, or a width that is not positive.
    """

    cdef readonly Rows rows
    cdef readonly Py_ssize_t n_classes
    cdef readonly double width, gap, loss
    cdef readonly double[:, ::1] duals
    cdef readonly double[::1] balance
    cdef const double[::1] cost
    cdef const int32_t[::1] y
    cdef double[::1] scratch
    cdef uint8_t[::1] skip, idle
    cdef Py_ssize_t[::1] order
    cdef int32_t[::1] which
    cdef uint64_t rng

    def __init__(self, Rows rows, y, Py_ssize_t n_classes, cost, *, double width, uint64_t seed):
        cdef Py_ssize_t m = rows.m
        if rows.storage == GRAM:
            raise ValueError("HingeCD: a Gram matrix holds no features")
        if len(y) != m or len(cost) != m or n_classes < 2 or (m and not 0 <= y.min() <= y.max() < n_classes):
            raise ValueError(f"HingeCD: {m} rows, {len(y)} labels, {len(cost)} costs, {n_classes} classes")
        if not width > 0:
            raise ValueError(f"width = {width:g} is not allowed: positive")
        self.rows, self.y, self.n_classes, self.cost = rows, y, n_classes, np.ascontiguousarray(cost)
        self.width, self.rng = width, seed
        self.duals, self.balance = rows.zeros(m * n_classes).reshape(m, n_classes), np.zeros(n_classes)
        self.skip, self.idle = np.zeros(m, dtype=np.uint8), np.zeros(m, dtype=np.uint8)
        self.order, self.scratch = np.empty(m, dtype=np.intp), np.empty(3 * n_classes)
        self.which = np.arange(n_classes, dtype=np.int32)

    def sweep(self, double[:, ::1] W, const double[:, ::1] metric, double lift, double skip_tolerance):
        """Steps at every row once in a random order, but those that are skipped.

        Parameters
        ----------
        W : float64 array of shape (d, k)
            U Q; moves with the duals.
        metric : float64 array of shape (k, k)
            Q.
        lift : float
            Of the bias; 0: its feature is like the others.
        skip_tolerance : float
            A row whose gap is not above it is left as it is.
        """
        cdef task_t task
        cdef Py_ssize_t at, count, size, k = self.n_classes
        if W.shape[0] != self.rows.d or W.shape[1] != k or metric.shape[0] != k or metric.shape[1] != k:
            raise ValueError("HingeCD: shapes do not fit")
        task.gap = task.loss = 0
        if self.rows.m and self.rows.d:
            with nogil:
                count = active_rows(&self.cost[0], &self.skip[0], 0, self.rows.m, &self.order[0])
                shuffle(&self.order[0], count, &self.rng)
            task.W, task.metric, task.lift, task.skip_tolerance = &W[0, 0], &metric[0, 0], lift, skip_tolerance
            size = max(1, <Py_ssize_t>(SLICE * self.rows.m / (1.0 + (<double>self.rows.nnz + self.rows.m * k) * k)))
            for at in range(0, count, size):
                task.start, task.stop = at, min(count, at + size)
                with nogil:
                    perform(self, self.rows, &task)
                PyErr_CheckSignals()
        self.gap, self.loss = task.gap, task.loss

    def resume(self, const double[:, ::1] duals):
        """Go on from these duals, which W is to be made of."""
        cdef Py_ssize_t i, l, y
        if duals.shape[0] != self.rows.m or duals.shape[1] != self.n_classes:
            raise ValueError("HingeCD: shapes do not fit")
        self.skip[:] = 0
        self.balance[:] = 0
        with nogil:
            for i in range(self.rows.m):
                y = self.y[i]
                for l in range(self.n_classes):
                    self.duals[i, l] = 0 if l == y else duals[i, l]
                    self.balance[y] += self.duals[i, l]
                    self.balance[l] -= self.duals[i, l]


ctypedef fused engine_t:
    HingeCD

include "on_features.pxi"


cdef inline double best_part(double x, double part, double curvature, double width) noexcept nogil:
    """g'(x') where x' + curvature (g'(x') - part) = x."""
    cdef double r = x + curvature * part, low = r - curvature, high = r, root, left
    cdef Py_ssize_t _
    # Without rounding; between its ends where g' would be there.
    part = r / curvature
    if part <= 0:
        x = high
    elif part >= 1:
        x = low
    else:
        x = min(high, max(low, width * (part - 0.5) / sqrt(part * (1 - part))))
    for _ in range(STEPS):
        root = sqrt(x * x + width * width)
        part = (1 + x / root) / 2
        left = x + curvature * part - r
        if fabs(left) <= EXACT * curvature + ROUNDING * fabs(r):
            break
        if left > 0:
            high = x
        else:
            low = x
        x -= left / (1 + curvature * width * width / (2 * root * root * root))
        if not low < x < high:
            x = (low + high) / 2
    return part


cdef inline double pair_step(HingeCD self, Py_ssize_t i, Py_ssize_t l, double A, const task_t* task, double* s,
                             double* turned, double* u) noexcept nogil:
    """The best dual of one pair: moves row i's scores, Q u_i and u_i; returns about twice what it brings."""
    cdef Py_ssize_t j, k = self.n_classes, y = self.y[i]
    cdef const double* own = task.metric + y * k
    cdef const double* other = task.metric + l * k
    cdef double c = self.cost[i], a = self.duals[i, l], best, move, change
    cdef double curvature = A * (own[y] + other[l] - 2 * own[l]) + 2 * task.lift
    # Nothing moves these scores.
    if not curvature * c > 0:
        curvature = self.width * EXACT / c
    best = c * best_part(1 - s[y] + s[l], a / c, curvature * c, self.width)
    change = best - a
    if change * change * curvature <= task.skip_tolerance / k:
        return 0
    self.duals[i, l] = best
    u[y] += change
    u[l] -= change
    for j in range(k):
        move = change * (own[j] - other[j])
        turned[j] += move
        s[j] += A * move
    s[y] += task.lift * change
    s[l] -= task.lift * change
    return change * change * curvature


cdef inline double row_gap(HingeCD self, Py_ssize_t i, const double* s, double* loss) noexcept nogil:
    cdef Py_ssize_t l, y = self.y[i]
    cdef double c = self.cost[i], gap = 0, a, x, lost
    for l in range(self.n_classes):
        if l != y:
            a, x = self.duals[i, l], 1 - s[y] + s[l]
            lost = c * (x + sqrt(x * x + self.width * self.width)) / 2
            gap += lost - a * x - self.width * sqrt(a * (c - a))
            loss[0] += lost
    return gap


cdef void perform_on(HingeCD self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t at, i, l, p, _, k = self.n_classes
    cdef double A, gap, brought
    cdef bint moved
    cdef double* s = &self.scratch[0]
    cdef double* turned = s + k
    cdef double* u = turned + k
    # The weights of the bias move by themselves.
    cdef data_t plain = X[0]
    plain.bias = -1
    for at in range(task.start, task.stop):
        i = self.order[at]
        if at + 2 * AHEAD < task.stop:
            place_prefetch(X, self.order[at + 2 * AHEAD])
        if at + AHEAD < task.stop:
            row_prefetch(X, self.order[at + AHEAD])
        row_scores(X, i, task.W, k, s)
        gap = row_gap(self, i, s, &task.loss)
        task.gap += gap
        moved = False
        if gap > task.skip_tolerance:
            A = X.bias * X.bias if X.bias > 0 and task.lift == 0 else 0.0
            for p in range(row_begin(X, i), row_end(X, i)):
                A += value(X, i, p) * value(X, i, p)
            for l in range(k):
                turned[l] = u[l] = 0
            for _ in range(TURNS):
                brought = 0
                for l in range(k):
                    if l != self.y[i]:
                        brought += pair_step(self, i, l, A, task, s, turned, u)
                moved = moved or brought > 0
                if brought <= LITTLE * gap:
                    break
        note_visit(&self.skip[i], &self.idle[i], moved, MAX_SKIP)
        if not moved:
            continue
        row_update(&plain, i, turned, &self.which[0], k, task.W, k)
        for l in range(k):
            self.balance[l] += u[l]
            if X.bias > 0:
                task.W[X.n * k + l] += task.lift * u[l] / X.bias if task.lift > 0 else X.bias * turned[l]
