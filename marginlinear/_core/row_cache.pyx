"""Rows of a Gram matrix as float32 numbers: those that were asked for last."""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from cython cimport view
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from marginlinear._core.check cimport check

cdef enum:
    NOWHERE = -1
    STRIP = 1024    # columns that stay in the first cache while rows are added


cdef float[:, ::1] untouched(Py_ssize_t rows, Py_ssize_t columns):
    """Memory that the system gives page by page, as it is written to: NumPy asks for large pages, and to clear room for
    these may take the system several times as long."""
    return view.array(shape=(max(1, rows), max(1, columns)), itemsize=sizeof(float), format="f")


cdef void add_four(const float** rows, const double* coefficients, Py_ssize_t start, Py_ssize_t stop,
                   double* sums) noexcept nogil:
    """sums += coefficients_0 rows_0 + ... + coefficients_3 rows_3, in this order."""
    cdef const float* first = rows[0]
    cdef const float* second = rows[1]
    cdef const float* third = rows[2]
    cdef const float* fourth = rows[3]
    cdef double a = coefficients[0], b = coefficients[1], c = coefficients[2], d = coefficients[3]
    cdef Py_ssize_t j
    for j in range(start, stop):
        sums[j] = (((sums[j] + a * first[j]) + b * second[j]) + c * third[j]) + d * fourth[j]


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
        cdef Py_ssize_t at
        cdef int32_t slot, i
        cdef const int32_t[::1] wanted = np.ascontiguousarray(which, dtype=np.int32)
        cdef const float[:, ::1] rows
        if wanted.shape[0] > self.capacity:
            raise ValueError(f"require: {wanted.shape[0]} rows, there is room for {self.capacity}")
        missing = {wanted[at] for at in range(wanted.shape[0]) if self.at(wanted[at]) == NULL}
        if not missing:
            return
        absent = np.array(sorted(missing), dtype=np.intp)
        if len(absent) > self.made_at_once.shape[0]:
            self.made_at_once = np.empty((len(absent), self.m), dtype=np.float32)
        rows = self.made_at_once
        self.source.fill(absent, np.asarray(self.made_at_once)[:len(absent)])
        for at in range(len(absent)):
            slot, i = self.newer[self.capacity], absent[at]
            if self.row_of[slot] != NOWHERE:
                self.slot_of[self.row_of[slot]] = NOWHERE
            self.row_of[slot], self.slot_of[i] = i, slot
            memcpy(&self.store[slot, 0], &rows[at, 0], self.m * sizeof(float))
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
        cdef Py_ssize_t lo, hi, at, start, stop, j, l, k = coefficients.shape[1], step = min(self.capacity, 32)
        cdef const int32_t[::1] wanted = np.ascontiguousarray(which, dtype=np.int32)
        cdef const float* rows[32]
        cdef const float* row
        cdef double* sum
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
                    stop, at = min(start + STRIP, self.m), lo
                    if k == 1:
                        while at + 4 <= hi:
                            add_four(&rows[at - lo], &coefficients[at, 0], start, stop, &sums[0, 0])
                            at += 4
                    for at in range(at, hi):
                        row = rows[at - lo]
                        for j in range(start, stop):
                            sum = &sums[j, 0]
                            for l in range(k):
                                sum[l] += coefficients[at, l] * row[j]
                    start = stop
            PyErr_CheckSignals()
            lo = hi


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
        for at in range(wanted.shape[0]):
            check(wanted[at], rows.shape[0])
            row, own, sum = &rows[wanted[at], 0], &coefficients[at, 0], &sums[0, 0]
            for j in range(m):
                for l in range(k):
                    sum[l] += own[l] * row[j]
                sum += k
