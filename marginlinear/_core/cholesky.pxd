from libc.stdint cimport int32_t


cdef class NormalMatrix:
    cdef Py_ssize_t d, room
    cdef int threads
    cdef double[:, :, ::1] z
    cdef double[:, ::1] total
    cdef void pack(self, Py_ssize_t at, const double* row) noexcept nogil
    cdef void fill(self, Py_ssize_t at, const int32_t* columns, const double* values, Py_ssize_t n,
                   double share) noexcept nogil
    cdef clear(self)
    cdef add(self, Py_ssize_t n)
    cdef double[:, ::1] result(self)
