cdef class Iterates:
    cdef readonly object W, averaged, factors
    cdef double[::1] w, v, z, mean_u, mean_w
    cdef readonly double kappa, last_sqnorm
    cdef readonly bint paired

    cdef _allocate(self)
    cdef double _square_sum(self, double p, const double[::1] x, double q, const double[::1] y) except? -1
    cdef _place(self, double p, const double[::1] W, double q, const double[::1] U)
    cdef _recentre(self, double kappa, double A, double a, bint restart, double[::1] W, double[::1] V, double[::1] z)
