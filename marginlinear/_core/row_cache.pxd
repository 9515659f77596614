from libc.stdint cimport int32_t

cdef float[:, ::1] untouched(Py_ssize_t rows, Py_ssize_t columns)


cdef class RowCache:
    cdef readonly Py_ssize_t m, capacity, made
    cdef object source
    cdef float[:, ::1] store, made_at_once
    # By slot: its row, and its neighbours in the order of use, that of `capacity` being the newest and the oldest.
    cdef int32_t[::1] row_of, newer, older
    cdef int32_t[::1] slot_of

    cdef const float* at(self, Py_ssize_t i) noexcept nogil
    cdef bint has(self, Py_ssize_t i) noexcept nogil
