from marginlinear._core.rows cimport Rows


cdef class ProximalNewton:
    cdef readonly double primal, objective, bound
    cdef object engine, W, U, q
    cdef Rows rows
    cdef double g, value, e, G
