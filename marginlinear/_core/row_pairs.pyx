"""Steps along pairs of duals whose sum is fixed, one dual a row of features.

    D(a) = -1/2 ||w||^2,   w = sum_i a_i x_i,   0 <= a_i <= c_i

One dual takes from another: t = (<w, x_j> - <w, x_i>)/||x_i - x_j||^2 of a_j goes to a_i, cut off where either meets
its bound.
"""

from cpython.exc cimport PyErr_CheckSignals

from marginlinear._core.rows cimport (
    AHEAD,
    Rows,
    data_t,
    feature,
    place_prefetch,
    row_axpy,
    row_begin,
    row_dot,
    row_end,
    row_prefetch,
    value,
    weights_prefetch,
)

# Bytes of weights from which on asking for them ahead of a row's turn saves more than it costs.
cdef double FAR = 8e6

cdef enum Task:
    SCORES
    STEPS

cdef struct task_t:
    Task what
    Py_ssize_t start, stop      # SCORES: places of `rows`
    const Py_ssize_t* rows
    double* out
    const Py_ssize_t* up        # STEPS: rows whose duals may rise, and those whose duals may fall
    const Py_ssize_t* down
    Py_ssize_t p, q, ups, downs, steps
    const double* cost
    const double* sqnorms
    double* a
    double* w
    bint far

ctypedef fused engine_t:
    Rows

include "on_features.pxi"


cdef void perform_on(engine_t self, const data_t* X, task_t* task) noexcept nogil:
    if task.what == SCORES:
        scores(X, task)
    else:
        steps(X, task)


cdef void scores(const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t at, i
    for at in range(task.start, task.stop):
        i = task.rows[at]
        if at + 2 * AHEAD < task.stop:
            place_prefetch(X, task.rows[at + 2 * AHEAD])
        if at + AHEAD < task.stop:
            row_prefetch(X, task.rows[at + AHEAD])
        if task.far and at + 1 < task.stop:
            weights_prefetch(X, task.rows[at + 1], task.w, 1)
        task.out[at] = row_dot(X, i, task.w)


cdef void steps(const data_t* X, task_t* task) noexcept nogil:
    """The rows in turn, the next one on a side where the last has met its bound; both after a step that was not cut
    off, or none."""
    cdef Py_ssize_t i, j, left = task.stop
    cdef double slope, room, t
    while task.p < task.ups and task.q < task.downs and left > 0:
        i, j = task.up[task.p], task.down[task.q]
        left -= 1
        if task.p + 1 < task.ups:
            row_prefetch(X, task.up[task.p + 1])
        if task.q + 1 < task.downs:
            row_prefetch(X, task.down[task.q + 1])
        slope = row_dot(X, j, task.w) - row_dot(X, i, task.w)
        if i == j or slope <= 0:
            task.p += 1
            task.q += 1
            continue
        room = min(task.cost[i] - task.a[i], task.a[j])
        # At least that: ||x_i - x_j||^2 is at most twice the sum of the squares.
        t = slope / 2 / (task.sqnorms[i] + task.sqnorms[j])
        if t < room:
            t = slope / max(0.0, task.sqnorms[i] + task.sqnorms[j] - 2 * product(X, i, j))
        task.steps += 1
        if t < room:
            task.a[i] += t
            task.a[j] -= t
            task.p += 1
            task.q += 1
        else:
            t = room
            if task.a[j] == room:
                task.a[i] = min(task.cost[i], task.a[i] + room)
                task.a[j] = 0
                task.q += 1
            else:
                task.a[i] = task.cost[i]
                task.a[j] -= room
            task.p += task.a[i] == task.cost[i]
        row_axpy(X, i, t, task.w)
        row_axpy(X, j, -t, task.w)


cdef inline double product(const data_t* X, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """<x_i, x_j>"""
    cdef Py_ssize_t p = row_begin(X, i), q = row_begin(X, j), end = row_end(X, i), last = row_end(X, j), f, g
    cdef double s = X.bias * X.bias if X.bias > 0 else 0.0
    while p < end and q < last:
        f, g = feature(X, i, p), feature(X, j, q)
        if f == g:
            s += value(X, i, p) * value(X, j, q)
        p += f <= g
        q += g <= f
    return s


def scores_at(Rows rows, const Py_ssize_t[::1] which, double[::1] w, double[::1] out, Py_ssize_t lo, Py_ssize_t hi):
    """out[lo:hi] = <w, x_i> of the rows which[lo:hi]."""
    cdef task_t task
    if lo < hi and rows.d:
        task.what, task.start, task.stop, task.w, task.out = SCORES, lo, hi, &w[0], &out[0]
        task.rows, task.far = &which[0], 8.0 * rows.d > FAR
        with nogil:
            perform(rows, rows, &task)
        PyErr_CheckSignals()


def pair_steps(Rows rows, const Py_ssize_t[::1] up, const Py_ssize_t[::1] down, const double[::1] cost,
               double[::1] a, double[::1] w):
    """Steps that raise the duals of rows `up` and lower those of `down`, from the first of each on; a and w follow.
    Returns how many there were."""
    cdef task_t task
    cdef const double[::1] sqnorms = rows.sqnorms()
    if up.shape[0] == 0 or down.shape[0] == 0 or rows.d == 0:
        return 0
    task.what, task.up, task.down, task.ups, task.downs = STEPS, &up[0], &down[0], up.shape[0], down.shape[0]
    task.p = task.q = task.steps = 0
    task.cost, task.sqnorms, task.a, task.w = &cost[0], &sqnorms[0], &a[0], &w[0]
    task.stop = rows.slice()
    while task.p < task.ups and task.q < task.downs:
        with nogil:
            perform(rows, rows, &task)
        PyErr_CheckSignals()
    return task.steps
