from marginlinear._core.rows cimport Rows


cdef class ProximalNewton:
    cdef readonly double primal, objective, bound, fall, e
    cdef readonly object engine
    cdef object q
    cdef Rows rows
    cdef public double g, value
    cdef readonly bint afresh
    cdef double G
    cdef Py_ssize_t cut
    cdef readonly double[::1] W
    cdef double[::1] U, gradient, start
    cdef double _subtract(self, const double[::1] W) noexcept nogil
    cdef double _product(self, const double[::1] x, const double[::1] y) noexcept nogil


cdef double sequential_dot(const double[::1] x, const double[::1] y) noexcept nogil
