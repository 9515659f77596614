cdef class NormalMatrix:
    cdef Py_ssize_t d, room
    cdef int threads
    cdef double[:, :, ::1] z
    cdef double[:, ::1] total
    cdef void pack(self, Py_ssize_t at, const double* row) noexcept nogil
    cdef clear(self)
    cdef add(self, Py_ssize_t n)
    cdef double[:, ::1] result(self)
