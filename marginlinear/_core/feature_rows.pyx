"""What fits of sparse weights ask of rows that they do not hold: forces at given scores, their sums by features, and
the rows of some of the features."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint16_t

from marginlinear._core.margin_loss cimport dual_at, dual_term, loss_at, loss_t
from marginlinear._core.rows cimport Rows, data_t, feature, row_axpy, row_begin, row_end, row_update, value

cdef enum Task:
    COMBINE
    PICK

cdef struct task_t:
    Task what
    Py_ssize_t start, stop, first, k
    const double* forces       # of the rows from `first` on, k each
    double* sums
    const int32_t* place
    int64_t* begins
    void* values
    void* features
    bint single, narrow        # values are float32, features uint16

ctypedef fused engine_t:
    Rows

include "on_features.pxi"


cdef void perform_on(engine_t self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(task.start, task.stop):
        if task.what == PICK:
            pick_row(X, i, task)
        elif task.k == 1:
            if task.forces[i - task.first] != 0:
                row_axpy(X, i, task.forces[i - task.first], task.sums)
        else:
            row_update(X, i, task.forces + (i - task.first) * task.k, NULL, task.k, task.sums, task.k)


cdef inline void pick_row(const data_t* X, Py_ssize_t i, task_t* task) noexcept nogil:
    cdef Py_ssize_t p
    cdef int64_t at = task.begins[i]
    cdef int32_t s
    cdef double x
    for p in range(row_begin(X, i), row_end(X, i)):
        s, x = task.place[feature(X, i, p)], value(X, i, p)
        if s < 0 or x == 0:
            continue
        if task.single:
            (<float*> task.values)[at] = <float> x
        else:
            (<double*> task.values)[at] = x
        if task.narrow:
            (<uint16_t*> task.features)[at] = <uint16_t> s
        else:
            (<int32_t*> task.features)[at] = s
        at += 1
    task.begins[i + 1] = at


def pick(Rows rows, const int32_t[::1] place, int64_t[::1] begins, values, features, Py_ssize_t lo, Py_ssize_t hi):
    """The values of rows lo to hi that are not 0, of features that have a place, follow those of the rows before.

    Parameters
    ----------
    rows : Rows
        CSR or dense, n stored features.
    place : int32 array of shape (n,)
        Rising where it is not -1.
    begins : int64 array of shape (m + 1,)
        begins[lo] is where they begin; it is told on up to begins[hi].
    values : float64 or float32 array
    features : int32 or uint16 array
        Both with room for all of them.
    lo, hi : int
    """
    cdef task_t task
    cdef double[::1] v64
    cdef float[::1] v32
    cdef int32_t[::1] wide
    cdef uint16_t[::1] short
    if place.shape[0] != rows.n or begins.shape[0] != rows.m + 1 or not 0 <= lo <= hi <= rows.m or rows.is_gram:
        raise ValueError("pick: shapes do not fit")
    if lo == hi:
        return
    if len(values) == 0 or rows.n == 0:
        begins[lo + 1:hi + 1] = begins[lo]
        return
    task.what, task.start, task.stop, task.place, task.begins = PICK, lo, hi, &place[0], &begins[0]
    task.single, task.narrow = values.itemsize == sizeof(float), features.itemsize == sizeof(uint16_t)
    if task.single:
        v32 = values
        task.values = &v32[0]
    else:
        v64 = values
        task.values = &v64[0]
    if task.narrow:
        short = features
        task.features = &short[0]
    else:
        wide = features
        task.features = &wide[0]
    with nogil:
        perform(rows, rows, &task)
    PyErr_CheckSignals()


def combine(Rows rows, const double[:, ::1] forces, double[:, ::1] sums, Py_ssize_t lo, Py_ssize_t hi):
    """sums += sum_{lo <= i < hi} x_i forces_{i - lo}', the bias feature included.

    Parameters
    ----------
    rows : Rows
        CSR or dense, d features.
    forces : float64 array of shape (hi - lo, k)
    sums : float64 array of shape (d, k)
    lo, hi : int
    """
    cdef task_t task
    if (sums.shape[0] != rows.d or forces.shape[0] != hi - lo or sums.shape[1] != forces.shape[1]
            or not 0 <= lo <= hi <= rows.m or rows.is_gram):
        raise ValueError("combine: shapes do not fit")
    if lo == hi or rows.d == 0 or forces.shape[1] == 0:
        return
    task.what, task.start, task.stop, task.first, task.k = COMBINE, lo, hi, lo, forces.shape[1]
    task.forces, task.sums = &forces[0, 0], &sums[0, 0]
    with nogil:
        perform(rows, rows, &task)
    PyErr_CheckSignals()


cdef const loss_t* loss_of(const double[::1] table) except NULL:
    if table.shape[0] * sizeof(double) < sizeof(loss_t):
        raise ValueError("table: give that of margin_cd.table_of")
    return <const loss_t*> &table[0]


def forces_of(const double[::1] table, const double[::1] cost, const int32_t[::1] y, const double[::1] scores,
              double[::1] out):
    """out_i = y_i a_i, a_i = -c_i phi'(y_i s_i), y_i being 1, or -1 for class 0; returns sum_i c_i phi(y_i s_i).

    Parameters
    ----------
    table : float64 array
        As margin_cd.table_of returns it.
    cost, scores, out : float64 arrays of shape (m,)
    y : int32 array of shape (m,)
    """
    cdef Py_ssize_t i
    cdef const loss_t* phi = loss_of(table)
    cdef double sign, total = 0
    if not cost.shape[0] == y.shape[0] == scores.shape[0] == out.shape[0]:
        raise ValueError("forces_of: shapes do not fit")
    with nogil:
        for i in range(scores.shape[0]):
            sign = 1.0 if y[i] > 0 else -1.0
            out[i] = sign * dual_at(phi, cost[i], sign * scores[i])
            total += cost[i] * loss_at(phi, sign * scores[i])
    return total


def dual_sum(const double[::1] table, const double[::1] cost, const int32_t[::1] y, const double[::1] forces,
             double share):
    """-sum_i c_i phi*(-a_i/c_i), the duals being the forces of `forces_of` times the share."""
    cdef Py_ssize_t i
    cdef const loss_t* phi = loss_of(table)
    cdef double total = 0
    if not cost.shape[0] == y.shape[0] == forces.shape[0]:
        raise ValueError("dual_sum: shapes do not fit")
    with nogil:
        for i in range(forces.shape[0]):
            total += dual_term(phi, cost[i], share * (forces[i] if y[i] > 0 else -forces[i]))
    return total
