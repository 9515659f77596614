cdef class Iterates:
    cdef readonly object W, averaged
    cdef object _V, _z
    cdef double[::1] w, v, z, mean
    cdef readonly double kappa
    cdef readonly bint accelerated

    cdef double _combination(self, double p, double q)


cdef double square_sum(const double[::1] values) noexcept nogil
