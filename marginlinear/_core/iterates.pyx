"""The weight vectors of an accelerated dual method, and the few operations it needs of them (math.md 9.1, 9.2).

    W = (kappa V + U)/(1 + kappa)      where the sweeps are
    V                                  the centre of the proximal term kappa/2 ||W - V||^2
    z                                  the long-step sequence, from which the next centre is extrapolated
    U = (1 + kappa) W - kappa V        the weights of the duals, U = sum_i dual_i x_i
    U_avg                              the weights of the averaged duals

With kappa = 0 (plain coordinate descent) W = U, and V, z, U_avg are not allocated.
"""

import numpy as np


cdef double square_sum(const double[::1] values) noexcept nogil:
    """||values||^2, two running sums in a fixed order: BLAS would sum in an order that depends on its threads."""
    cdef Py_ssize_t j, n = values.shape[0]
    cdef double s0 = 0, s1 = 0
    for j in range(n // 2):
        s0 += values[2 * j] * values[2 * j]
        s1 += values[2 * j + 1] * values[2 * j + 1]
    if n % 2:
        s0 += values[n - 1] * values[n - 1]
    return s0 + s1


cdef class Iterates:
    """Flat float64 vectors of `size` numbers.

    Attributes
    ----------
    W : array of shape (size,)
    kappa : float
    """

    def __init__(self, Py_ssize_t size):
        self.W = np.zeros(size)
        self.w = self.W
        self.kappa = 0.0
        self.accelerated = False

    def _allocate(self):
        if not self.accelerated:
            self._V, self._z, self.averaged = (np.zeros_like(self.W) for _ in range(3))
            self.v, self.z, self.mean = self._V, self._z, self.averaged
            self.accelerated = True

    def start(self, double kappa):
        """From plain sweeps (W = U): V = z = W and strength kappa."""
        self._allocate()
        self._V[:] = self.W
        self._z[:] = self.W
        self.kappa = kappa

    def resume(self, W, U, double kappa):
        """Weights W beside duals whose weights are U: V = ((1 + kappa) W - U)/kappa, z = W; kappa = 0: W = U."""
        self.W[:] = U if kappa == 0 else W
        if kappa > 0:
            self._allocate()
            np.multiply(W, 1 + kappa, out=self._V)
            self._V -= U
            self._V /= kappa
            self._z[:] = W
        self.kappa = kappa

    def exchange(self, double[::1] other):
        """Swap W with an array of its size."""
        cdef Py_ssize_t j
        with nogil:
            for j in range(self.w.shape[0]):
                self.w[j], other[j] = other[j], self.w[j]

    def plain(self):
        """kappa = 0, W = U."""
        cdef Py_ssize_t j
        cdef double kappa = self.kappa
        if kappa > 0:
            with nogil:
                for j in range(self.w.shape[0]):
                    self.w[j] = (1 + kappa) * self.w[j] - kappa * self.v[j]
        self.kappa = 0.0

    def sqdistance(self):
        """||W - V||^2"""
        return self._combination(1.0, -1.0) if self.kappa > 0 else 0.0

    def sqnorm(self):
        """||W||^2"""
        return square_sum(self.w)

    def dual_sqnorm(self):
        """||U||^2"""
        return self._combination(1 + self.kappa, -self.kappa) if self.kappa > 0 else square_sum(self.w)

    def averaged_sqnorm(self):
        """||U_avg||^2"""
        return square_sum(self.mean)

    cdef double _combination(self, double p, double q):
        """||p W + q V||^2"""
        cdef Py_ssize_t j, n = self.w.shape[0]
        cdef double s0 = 0, s1 = 0, t0, t1
        with nogil:
            for j in range(n // 2):
                t0 = p * self.w[2 * j] + q * self.v[2 * j]
                t1 = p * self.w[2 * j + 1] + q * self.v[2 * j + 1]
                s0 += t0 * t0
                s1 += t1 * t1
            if n % 2:
                t0 = p * self.w[n - 1] + q * self.v[n - 1]
                s0 += t0 * t0
        return s0 + s1

    def average(self, double weight, double A, double a):
        """U_avg += weight (U - U_avg),  z = ((1 + A) z + a U)/(1 + A + a).

        Returns <V - W, W - X>, positive where the last outer step (from X to W) and the pull of the centre disagree.
        X is not stored: the centre was V = (A X + a' z)/(A + a'), so X - V is a multiple of V - z, and the sign
        of the product is that of <V - W, W - V> + (a'/A) <V - W, z - V> for the a' and A that made V.
        """
        cdef Py_ssize_t j
        cdef double u, kappa = self.kappa, keep = (1 + A) / (1 + A + a), step = a / (1 + A + a)
        cdef double back = a / A if A > 0 else 0.0
        cdef double turn = 0, pull
        with nogil:
            for j in range(self.w.shape[0]):
                u = (1 + kappa) * self.w[j] - kappa * self.v[j]
                pull = self.v[j] - self.w[j]
                turn += pull * (back * (self.z[j] - self.v[j]) - pull)
                self.mean[j] += weight * (u - self.mean[j])
                self.z[j] = keep * self.z[j] + step * u
        return turn

    def recentre(self, double kappa, double A, double a, bint restart):
        """The next centre: V = (A W + a z)/(A + a), W = (kappa V + U)/(1 + kappa); z = W first at a restart."""
        cdef Py_ssize_t j
        cdef double u, old = self.kappa, share = A / (A + a)
        with nogil:
            for j in range(self.w.shape[0]):
                u = (1 + old) * self.w[j] - old * self.v[j]
                if restart:
                    self.z[j] = self.w[j]
                self.v[j] = share * self.w[j] + (1 - share) * self.z[j]
                self.w[j] = (kappa * self.v[j] + u) / (1 + kappa)
        self.kappa = kappa
