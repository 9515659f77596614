from marginlinear._core.rows cimport Rows


cdef class ProximalNewton:
    cdef readonly double primal, objective, bound
    cdef object engine, q
    cdef Rows rows
    cdef double g, value, e, G
    cdef double[::1] W, U, gradient, start
    cdef double _subtract(self, const double[::1] W) noexcept nogil


cdef double sequential_dot(const double[::1] x, const double[::1] y) noexcept nogil
