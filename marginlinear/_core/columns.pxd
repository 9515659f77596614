from libc.stdint cimport int32_t, int64_t

from marginlinear._core.rows cimport Rows


cdef class Columns:
    cdef readonly Rows rows
    cdef readonly int64_t[::1] counts
    cdef Py_ssize_t n, slice_rows
    # Of each feature, its column; of each column, its feature and where its values begin.
    cdef int32_t[::1] place, features, who
    cdef int64_t[::1] begins
    cdef double[::1] values
    cdef int _pass(self, int what, Py_ssize_t first=*) except -1
