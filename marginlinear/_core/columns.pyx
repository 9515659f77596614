"""The numbers of some features, by feature: columns that passes over the rows gather as they are asked for."""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t

from marginlinear._core.rows cimport SLICE, Rows, data_t, feature, row_begin, row_end, value

cdef enum:
    BLOCK = 256    # values of a row that are looked at before those that are wanted are put

cdef enum Work:
    COUNT     # how many values each feature has
    GATHER    # columns of the features with place[j] >= first


cdef struct task_t:
    Work what
    Py_ssize_t start
    Py_ssize_t stop
    Py_ssize_t first


cdef class Columns:
    """
    Parameters
    ----------
    rows : Rows
        Of features.

    Attributes
    ----------
    rows : Rows
    counts : int64 array of shape (d,)
        Values of each feature.
    """

    def __init__(self, Rows rows):
        cdef Py_ssize_t m = rows.m, d = rows.d
        self.rows, self.counts = rows, np.zeros(d, dtype=np.int64)
        self.place, self.begins = np.full(d, -1, dtype=np.int32), np.zeros(1, dtype=np.int64)
        self.features, self.who = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
        self.values = np.empty(0)
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * m / (1.0 + 2.0 * rows.nnz)))
        self._pass(COUNT)

    cdef int _pass(self, int what, Py_ssize_t first=0) except -1:
        """Over all rows."""
        cdef task_t task
        cdef Py_ssize_t start
        task.what, task.first = <Work>what, first
        self.rows.require()
        for start in range(0, self.rows.m, self.slice_rows):
            task.start, task.stop = start, min(self.rows.m, start + self.slice_rows)
            with nogil:
                perform(self, self.rows, &task)
            PyErr_CheckSignals()
        return 0

    def gather(self, wanted):
        """The numbers of the columns of these features; those that are not there yet are gathered."""
        wanted = np.asarray(wanted, dtype=np.int32)
        place = np.asarray(self.place)
        new = wanted[place[wanted] < 0]
        if len(new):
            first = self.n
            self._make_room(np.asarray(self.counts)[new].sum())
            self.features = np.concatenate((np.asarray(self.features)[:first], new))
            place[new] = np.arange(first, first + len(new), dtype=np.int32)
            begins = np.asarray(self.begins)[:first + 1]
            self.begins = np.concatenate((begins, begins[first] + np.cumsum(np.asarray(self.counts)[new])))
            self.n += len(new)
            starts = np.array(self.begins)
            self._pass(GATHER, first)
            self.begins = starts
        return place[wanted]

    def _make_room(self, Py_ssize_t more):
        """For so many more values, those that are there kept. What is not written to takes no memory."""
        cdef Py_ssize_t kept = self.begins[self.n], room
        if kept + more > self.values.shape[0]:
            room = min(2 * (kept + more), np.asarray(self.counts).sum())
            values, who = np.empty(room), np.empty(room, dtype=np.int32)
            values[:kept], who[:kept] = self.values[:kept], self.who[:kept]
            self.values, self.who = values, who


ctypedef fused engine_t:
    Columns

include "on_features.pxi"


cdef inline void perform_on(Columns self, const data_t* X, task_t* task) noexcept nogil:
    if task.what == COUNT:
        count_values(self, X, task)
    else:
        gather_values(self, X, task)


cdef void count_values(Columns self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, p
    for i in range(task.start, task.stop):
        for p in range(row_begin(X, i), row_end(X, i)):
            self.counts[feature(X, i, p)] += 1
    if X.bias > 0:
        self.counts[X.n] += task.stop - task.start


cdef inline void put(Columns self, Py_ssize_t i, Py_ssize_t j, double x) noexcept nogil:
    """The next value of feature j's column."""
    cdef Py_ssize_t s = self.place[j]
    self.who[self.begins[s]] = <int32_t>i
    self.values[self.begins[s]] = x
    self.begins[s] += 1


cdef void gather_values(Columns self, const data_t* X, task_t* task) noexcept nogil:
    """The beginnings of the new columns go on to their ends."""
    cdef Py_ssize_t i, p, start, stop, end, a, n
    cdef Py_ssize_t[BLOCK] found
    for i in range(task.start, task.stop):
        start, end = row_begin(X, i), row_end(X, i)
        while start < end:
            # Whether a value is wanted cannot be foretold: no branch asks.
            stop, n = min(end, start + BLOCK), 0
            for p in range(start, stop):
                found[n] = p
                n += self.place[feature(X, i, p)] >= task.first
            for a in range(n):
                put(self, i, feature(X, i, found[a]), value(X, i, found[a]))
            start = stop
        if X.bias > 0 and self.place[X.n] >= task.first:
            put(self, i, X.n, X.bias)
