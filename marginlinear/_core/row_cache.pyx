"""Rows of a Gram matrix as float32 numbers: those that were asked for last."""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from cython cimport view
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from marginlinear._core.check cimport check

cdef extern from "spread.h":
    ctypedef void (*spread_f "ml_spread_f")(const float* row, Py_ssize_t n, const double* c, double* const* sums,
                                            Py_ssize_t count) noexcept nogil
    spread_f spread_of "ml_spread_of"() noexcept nogil

ctypedef double* sums_p
cdef spread_f spread = spread_of()

cdef enum:
    NOWHERE = -1
    STRIP = 1024    # columns that stay in a core's cache while rows are added
    BATCH = 128     # rows that are there at once
    MANY = 64       # classes that are added at once
    TOGETHER = 32   # rows that are made at once


cdef float[:, ::1] untouched(Py_ssize_t rows, Py_ssize_t columns):
    """Memory that the system gives page by page, as it is written to: NumPy asks for large pages, and to clear room for
    these may take the system several times as long."""
    return view.array(shape=(max(1, rows), max(1, columns)), itemsize=sizeof(float), format="f")


cdef class RowCache:
    """The rows used last.

    Parameters
    ----------
    source : object
        source.fill(which, out) puts the rows `which`, an int array, into a float32 array of shape (len(which), m).
        source.known: whether it has what they are made of at hand, so that no row counts as made.
    m : int
    capacity : int
        Rows, at least 1.

    Attributes
    ----------
    made : int
        Rows that were asked of the source so far.
    """

    def __init__(self, source, Py_ssize_t m, Py_ssize_t capacity):
        if capacity < 1:
            raise ValueError(f"capacity = {capacity} is not allowed: give at least 1")
        self.source, self.m, self.capacity, self.made = source, m, min(capacity, m), 0
        self.store = untouched(self.capacity, m)
        self.made_at_once = np.empty((0, m), dtype=np.float32)
        self.row_of = np.full(self.capacity, NOWHERE, dtype=np.int32)
        self.slot_of = np.full(m, NOWHERE, dtype=np.int32)
        ring = np.arange(self.capacity + 1, dtype=np.int32)
        self.newer, self.older = np.roll(ring, 1), np.roll(ring, -1)

    cdef bint has(self, Py_ssize_t i) noexcept nogil:
        check(i, self.m)
        return self.slot_of[i] != NOWHERE

    cdef const float* at(self, Py_ssize_t i) noexcept nogil:
        """Row i, from here on the newest; NULL where it is not there."""
        cdef int32_t slot, end = <int32_t>self.capacity
        check(i, self.m)
        slot = self.slot_of[i]
        if slot == NOWHERE:
            return NULL
        self.newer[self.older[slot]] = self.newer[slot]
        self.older[self.newer[slot]] = self.older[slot]
        self.older[slot], self.newer[slot] = self.older[end], end
        self.newer[self.older[end]] = slot
        self.older[end] = slot
        return &self.store[slot, 0]

    def fill(self):
        """Make all rows; the capacity is m."""
        everyone = np.arange(self.m, dtype=np.int32)
        self.source.fill(everyone, np.asarray(self.store))
        self.row_of, self.slot_of, self.made = everyone, everyone.copy(), self.m

    def present(self, which):
        """Whether each row of an int array is there."""
        return np.asarray(self.slot_of)[which] != NOWHERE

    def require(self, which):
        """Let the rows `which`, at most `capacity`, be there, in place of those that were not used for longest."""
        cdef Py_ssize_t at, first
        cdef int32_t slot, i
        cdef const int32_t[::1] wanted = np.ascontiguousarray(which, dtype=np.int32)
        if wanted.shape[0] > self.capacity:
            raise ValueError(f"require: {wanted.shape[0]} rows, there is room for {self.capacity}")
        missing = {wanted[at] for at in range(wanted.shape[0]) if self.at(wanted[at]) == NULL}
        if not missing:
            return
        absent = np.array(sorted(missing), dtype=np.intp)
        if self.made_at_once.shape[0] < min(len(absent), TOGETHER):
            self.made_at_once = np.empty((min(len(absent), TOGETHER), self.m), dtype=np.float32)
        for first in range(0, len(absent), TOGETHER):
            part = absent[first:first + TOGETHER]
            self.source.fill(part, np.asarray(self.made_at_once)[:len(part)])
            for at in range(len(part)):
                slot, i = self.newer[self.capacity], part[at]
                if self.row_of[slot] != NOWHERE:
                    self.slot_of[self.row_of[slot]] = NOWHERE
                self.row_of[slot], self.slot_of[i] = i, slot
                memcpy(&self.store[slot, 0], &self.made_at_once[at, 0], self.m * sizeof(float))
                self.at(i)
        if not self.source.known:
            self.made += len(absent)

    def add(self, which, const double[:, ::1] coefficients, double[:, ::1] sums):
        """sums += sum_i row_i' coefficients_i over the rows `which`, in their order.

        Parameters
        ----------
        which : int array
        coefficients : float64 array of shape (len(which), k)
        sums : float64 array of shape (m, k)
        """
        cdef Py_ssize_t lo, hi, at, start, stop, k = coefficients.shape[1], step = min(self.capacity, BATCH)
        cdef const int32_t[::1] wanted = np.ascontiguousarray(which, dtype=np.int32)
        cdef const float* rows[BATCH]
        cdef double[:, ::1] strip = np.empty((k, STRIP if k > 1 else 0))
        if coefficients.shape[0] != wanted.shape[0] or sums.shape[0] != self.m or sums.shape[1] != k:
            raise ValueError(f"add: {wanted.shape[0]} rows, {coefficients.shape[0]} coefficients of {k}, sums "
                             f"{sums.shape[0]} x {sums.shape[1]} of {self.m}")
        lo = 0
        while lo < wanted.shape[0]:
            hi = min(lo + step, wanted.shape[0])
            self.require(wanted[lo:hi])
            with nogil:
                for at in range(lo, hi):
                    rows[at - lo] = self.at(wanted[at])
                start = 0
                while start < self.m:
                    stop = min(start + STRIP, self.m)
                    if k == 1:
                        add_one(rows, start, stop, &coefficients[lo, 0], hi - lo, &sums[0, 0])
                    else:
                        add_several(rows, start, stop, coefficients[lo:hi], sums, strip)
                    start = stop
            PyErr_CheckSignals()
            lo = hi


cdef void add_one(const float** rows, Py_ssize_t start, Py_ssize_t stop, const double* coefficients, Py_ssize_t count,
                  double* sums) noexcept nogil:
    """The sums from start to stop, of one column: four rows at a time, in their order."""
    cdef const float* first
    cdef const float* second
    cdef const float* third
    cdef const float* fourth
    cdef double a, b, c, d
    cdef Py_ssize_t at = 0, j
    while at + 4 <= count:
        first, second, third, fourth = rows[at], rows[at + 1], rows[at + 2], rows[at + 3]
        a, b, c, d = coefficients[at], coefficients[at + 1], coefficients[at + 2], coefficients[at + 3]
        for j in range(start, stop):
            sums[j] = (((sums[j] + a * first[j]) + b * second[j]) + c * third[j]) + d * fourth[j]
        at += 4
    for at in range(at, count):
        first, a = rows[at], coefficients[at]
        for j in range(start, stop):
            sums[j] += a * first[j]


cdef void add_several(const float** rows, Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] coefficients,
                      double[:, ::1] sums, double[:, ::1] strip) noexcept nogil:
    """The sums from start to stop, class by class: most rows have a coefficient in a few classes alone."""
    cdef Py_ssize_t at, j, l, count, n = stop - start, k = coefficients.shape[1]
    cdef double[MANY] c
    cdef sums_p[MANY] to
    for j in range(n):
        for l in range(k):
            strip[l, j] = sums[start + j, l]
    for at in range(coefficients.shape[0]):
        count = 0
        for l in range(k):
            if coefficients[at, l] == 0:
                continue
            if count == MANY:
                spread(rows[at] + start, n, c, to, count)
                count = 0
            c[count], to[count] = coefficients[at, l], &strip[l, 0]
            count += 1
        spread(rows[at] + start, n, c, to, count)
    for j in range(n):
        for l in range(k):
            sums[start + j, l] = strip[l, j]


cdef void add_four(const double[:, ::1] rows, const Py_ssize_t* which, const double* coefficients, Py_ssize_t m,
                   double* sums) noexcept nogil:
    """sums += four rows, one after the other."""
    cdef const double* first = &rows[which[0], 0]
    cdef const double* second = &rows[which[1], 0]
    cdef const double* third = &rows[which[2], 0]
    cdef const double* fourth = &rows[which[3], 0]
    cdef double a = coefficients[0], b = coefficients[1], c = coefficients[2], d = coefficients[3]
    cdef Py_ssize_t j
    for j in range(4):
        check(which[j], rows.shape[0])
    for j in range(m):
        sums[j] = (((sums[j] + a * first[j]) + b * second[j]) + c * third[j]) + d * fourth[j]


def add_rows(const double[:, ::1] rows, which, const double[:, ::1] coefficients, double[:, ::1] sums):
    """sums += sum_i row_i' coefficients_i over the rows `which`, an int array, in their order; coefficients have shape
    (len(which), k), sums (m, k)."""
    cdef const Py_ssize_t[::1] wanted = np.ascontiguousarray(which, dtype=np.intp)
    cdef Py_ssize_t at, j, l, m = sums.shape[0], k = sums.shape[1]
    cdef const double* row
    cdef const double* own
    cdef double* sum
    if wanted.shape[0] != coefficients.shape[0] or rows.shape[1] != m or coefficients.shape[1] != k:
        raise ValueError(f"add_rows: {wanted.shape[0]} rows of {rows.shape[1]}, {coefficients.shape[0]} x "
                         f"{coefficients.shape[1]} coefficients, sums {m} x {k}")
    with nogil:
        at = 0
        while k == 1 and at + 4 <= wanted.shape[0]:
            add_four(rows, &wanted[at], &coefficients[at, 0], m, &sums[0, 0])
            at += 4
        for at in range(at, wanted.shape[0]):
            check(wanted[at], rows.shape[0])
            row, own, sum = &rows[wanted[at], 0], &coefficients[at, 0], &sums[0, 0]
            for j in range(m):
                for l in range(k):
                    sum[l] += own[l] * row[j]
                sum += k
