"""The weight vectors of an accelerated dual method, and the few operations it needs of them (math.md 9.1, 9.2).

    W = (kappa V + U)/(1 + kappa)      where the sweeps are
    V                                  the centre of the proximal term kappa/2 ||W - V||^2
    z                                  the long-step sequence, from which the next centre is extrapolated
    U = (1 + kappa) W - kappa V        the weights of the duals, U = sum_i dual_i x_i
    U_avg, W_avg                       averages of U (the weights of the averaged duals) and of W over outer steps

Sweeps that end before a sub-problem is solved leave noise in W and in U. It goes out of the averages, so that
D(averaged duals) and P(W_avg) close a gap that P(W) and D(duals) leave open, for the hinge above all.

With kappa = 0 (plain coordinate descent) W = U, and V, z and the averages are not allocated.

With a factor b_l for each class, vectors have columns and stand for the weights w_l = b_l W_l; products are
<X, Y> = sum_l b_l <X_l, Y_l>. All that is said above holds for any b, which may change at any time. U has no b in it.

Over a Gram matrix a vector is a pair: the scores K c, then the coefficients c. What is linear is the same for both
halves, and <x, y> is the scores of x times the coefficients of y.

Sums run over blocks of fixed size in a fixed order: BLAS would sum in an order that depends on its threads. Between
blocks signals are looked at, since there may be 10^9 weights.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY

cdef enum:
    BLOCK = 4194304    # numbers, about 10 ms


cdef double combined_square_sum(double p, const double[::1] x, double q, const double[::1] y,
                                bint paired) except? -1:
    """||p x + q y||^2"""
    cdef Py_ssize_t j, start, stop, n = x.shape[0] // 2 if paired else x.shape[0], other = n if paired else 0
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        with nogil:
            j = start
            while j + 4 <= stop:
                s0 += (p * x[j] + q * y[j]) * (p * x[other + j] + q * y[other + j])
                s1 += (p * x[j + 1] + q * y[j + 1]) * (p * x[other + j + 1] + q * y[other + j + 1])
                s2 += (p * x[j + 2] + q * y[j + 2]) * (p * x[other + j + 2] + q * y[other + j + 2])
                s3 += (p * x[j + 3] + q * y[j + 3]) * (p * x[other + j + 3] + q * y[other + j + 3])
                j += 4
            while j < stop:
                s0 += (p * x[j] + q * y[j]) * (p * x[other + j] + q * y[other + j])
                j += 1
        PyErr_CheckSignals()
    return (s0 + s1) + (s2 + s3)


cdef class_square_sums(double p, const double[::1] x, double q, const double[::1] y, bint paired, Py_ssize_t k):
    """||p x_l + q y_l||^2 of each of k columns: float64 array of shape (k,)"""
    cdef Py_ssize_t j, l, row, start, stop, n = x.shape[0] // 2 if paired else x.shape[0], other = n if paired else 0
    cdef Py_ssize_t step = max(1, BLOCK // k)
    out = np.zeros(k)
    cdef double[::1] sums = out
    for start in range(0, n // k, step):
        stop = min(n // k, start + step)
        with nogil:
            for row in range(start, stop):
                j = row * k
                for l in range(k):
                    sums[l] += (p * x[j + l] + q * y[j + l]) * (p * x[other + j + l] + q * y[other + j + l])
        PyErr_CheckSignals()
    return out


cdef double combined_dot(const double[::1] x, double p, const double[::1] y, double q, const double[::1] z) except? -1:
    """x.(p y + q z), x having as many numbers or, over a Gram matrix, one a score"""
    cdef Py_ssize_t j, start, stop, n = x.shape[0]
    cdef double s = 0
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        with nogil:
            for j in range(start, stop):
                s += x[j] * (p * y[j] + q * z[j])
        PyErr_CheckSignals()
    return s


cdef inline double turn_at(Iterates self, Py_ssize_t j, Py_ssize_t at, double back) noexcept nogil:
    """The part of <V - W, W - X> of the numbers at j and, over a Gram matrix, at their coefficients `at`."""
    return (self.v[j] - self.w[j]) * (back * (self.z[at] - self.v[at]) - (self.v[at] - self.w[at]))


cdef class Iterates:
    """Flat float64 vectors of `size` numbers.

    Parameters
    ----------
    size : int
    paired : bool
        Whether the vectors are pairs of scores and coefficients.
    factors : float64 array of shape (columns,) or None
        b > 0, one of each column. None: all are 1.

    Attributes
    ----------
    W : array of shape (size,)
    averaged : array of shape (size,) or None
        W_avg.
    kappa, last_sqnorm : float
        The latter is what `sqnorm` returned last, infinite before.
    """

    def __init__(self, Py_ssize_t size, bint paired=False, factors=None):
        self.paired = paired
        self.factors = factors
        self.W = np.zeros(size)
        self.w = self.W
        self.kappa, self.last_sqnorm = 0.0, INFINITY

    def vector(self, bint averaged):
        """W_avg, or W."""
        return self.averaged if averaged else self.W

    cdef _allocate(self):
        if self.averaged is None:
            self.averaged = np.zeros(self.w.shape[0])
            self.mean_w = self.averaged
            self.v, self.z, self.mean_u = (np.zeros(self.w.shape[0]) for _ in range(3))

    def start(self, double kappa):
        """From plain sweeps (W = U): V = z = W and strength kappa."""
        self._allocate()
        self._place(0.0, self.w, 0.0, self.w)
        self.kappa = kappa

    def resume(self, const double[::1] W, const double[::1] U, double kappa):
        """Weights W beside duals whose weights are U: V = ((1 + kappa) W - U)/kappa, z = W.

        Plain sweeps can end at weights that are not those of their last duals: these need a kappa > 0 to be kept.
        """
        if kappa == 0 and not np.array_equal(W, U):
            kappa = 1.0
        if kappa > 0:
            self._allocate()
            self._place(1 / kappa, W, -1 / kappa, U)
        else:
            self.w[:] = U
        self.kappa = kappa

    def refresh(self, const double[::1] U):
        """The weights of the duals are U, V = ((1 + kappa) W - U)/kappa, z = W; without a centre W = U."""
        if self.kappa > 0:
            self._place(1 / self.kappa, self.w, -1 / self.kappa, U)
        else:
            self.w[:] = U

    cdef _place(self, double p, const double[::1] W, double q, const double[::1] U):
        """V = W + p W + q U,  z = W"""
        cdef Py_ssize_t j, start, stop, n = self.w.shape[0]
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            with nogil:
                for j in range(start, stop):
                    self.v[j] = W[j] + (p * W[j] + q * U[j])
                    self.z[j] = W[j]
                    self.w[j] = W[j]
            PyErr_CheckSignals()

    def exchange(self, double[::1] other not None):
        """Swap the weights of W with an array of weights."""
        self.scale(self.W, 1.0)
        self.scale(other, -1.0)
        cdef Py_ssize_t j, start, stop, n = self.w.shape[0]
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            with nogil:
                for j in range(start, stop):
                    self.w[j], other[j] = other[j], self.w[j]
            PyErr_CheckSignals()

    def scale(self, x, double power):
        """x_l *= b_l^power, in place: from vectors to weights by 1, back by -1."""
        if self.factors is None:
            return
        cdef double[::1] flat = x
        cdef const double[::1] b = self.factors**power
        cdef Py_ssize_t l, row, start, k = b.shape[0], n = flat.shape[0] // k, step = max(1, BLOCK // k)
        for start in range(0, n, step):
            with nogil:
                for row in range(start, min(n, start + step)):
                    for l in range(k):
                        flat[row * k + l] *= b[l]
            PyErr_CheckSignals()

    def change_factors(self, factors):
        """Other numbers b. U stays; V, z and W_avg keep the weights that they stand for, so that W moves with V.

        Were V to stay, the weights of the centre would follow b, b the weights, and neither would come to rest.
        """
        cdef const double[::1] ratio = self.factors / factors
        cdef Py_ssize_t l, at, row, start, k = ratio.shape[0], n = self.w.shape[0] // k, step = max(1, BLOCK // k)
        cdef double share = self.kappa / (1 + self.kappa)
        self.factors[:] = factors
        if self.kappa == 0:
            return
        for start in range(0, n, step):
            with nogil:
                for row in range(start, min(n, start + step)):
                    for l in range(k):
                        at = row * k + l
                        self.w[at] += share * (ratio[l] - 1) * self.v[at]
                        self.v[at] *= ratio[l]
                        self.z[at] *= ratio[l]
                        self.mean_w[at] *= ratio[l]
            PyErr_CheckSignals()

    def plain(self):
        """kappa = 0, W = U."""
        cdef Py_ssize_t j, start, stop, n = self.w.shape[0]
        cdef double kappa = self.kappa
        if kappa > 0:
            for start in range(0, n, BLOCK):
                stop = min(n, start + BLOCK)
                with nogil:
                    for j in range(start, stop):
                        self.w[j] = (1 + kappa) * self.w[j] - kappa * self.v[j]
                PyErr_CheckSignals()
        self.kappa = 0.0

    def sqdistance(self):
        """||W - V||^2"""
        return self._square_sum(1.0, self.w, -1.0, self.v) if self.kappa > 0 else 0.0

    def sqdistance_of(self, const double[::1] x, const double[::1] y):
        """||x - y||^2 of vectors of this kind."""
        return self._square_sum(1.0, x, -1.0, y)

    def mix(self, double[::1] x, double p, const double[::1] y, double q):
        """x = p x + q y, in place."""
        cdef Py_ssize_t j, start, stop, n = x.shape[0]
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            with nogil:
                for j in range(start, stop):
                    x[j] = p * x[j] + q * y[j]
            PyErr_CheckSignals()

    def add_up(self, const double[:, ::1] copies, double[::1] move, Py_ssize_t lo, Py_ssize_t hi):
        """Of the numbers lo to hi, whole columns: move += sum_g (copies_g - W). Returns their parts of the
        squared norms of that sum, of its terms, and of move. Threads may add up several ranges."""
        cdef Py_ssize_t j, g, k = 1 if self.factors is None else len(self.factors)
        cdef double whole = 0, each = 0, moved = 0, b = 1, change, added
        cdef const double[::1] factors = self.factors
        with nogil:
            for j in range(lo, hi):
                if k > 1:
                    b = factors[j % k]
                added = 0
                for g in range(copies.shape[0]):
                    change = copies[g, j] - self.w[j]
                    added += change
                    each += b * change * change
                move[j] += added
                whole += b * added * added
                moved += b * move[j] * move[j]
        return whole, each, moved

    def pool(self, double[:, ::1] copies, double[::1] move, const Py_ssize_t[::1] places, double share):
        """Of the numbers at these places: move += sum_g (copies_g - W), W += share times that sum, copies_g = W.
        Returns the squared norms of the sum and of its terms. Threads may pool different places."""
        cdef Py_ssize_t at, j, g, k = 1 if self.factors is None else len(self.factors)
        cdef double whole = 0, each = 0, b = 1, change, added
        cdef const double[::1] factors = self.factors
        with nogil:
            for at in range(places.shape[0]):
                j = places[at]
                if k > 1:
                    b = factors[j % k]
                added = 0
                for g in range(copies.shape[0]):
                    change = copies[g, j] - self.w[j]
                    added += change
                    each += b * change * change
                move[j] += added
                whole += b * added * added
                self.w[j] += share * added
                for g in range(copies.shape[0]):
                    copies[g, j] = self.w[j]
        return whole, each

    cdef double _square_sum(self, double p, const double[::1] x, double q, const double[::1] y) except? -1:
        """||p x + q y||^2"""
        if self.factors is None:
            return combined_square_sum(p, x, q, y, self.paired)
        return self.factors @ class_square_sums(p, x, q, y, self.paired, len(self.factors))

    def class_sqnorms_of(self, const double[::1] other):
        """||other_l||^2, without b: float64 array, one number a factor."""
        return class_square_sums(1.0, other, 0.0, other, self.paired, len(self.factors))

    def class_sqnorms(self):
        """||W_l||^2"""
        return self.class_sqnorms_of(self.w)

    def dual_class_sqnorms(self):
        """||U_l||^2"""
        if self.kappa > 0:
            return class_square_sums(1 + self.kappa, self.w, -self.kappa, self.v, self.paired, len(self.factors))
        return self.class_sqnorms_of(self.w)

    def averaged_class_sqnorms(self):
        """||U_avg,l||^2"""
        return self.class_sqnorms_of(self.mean_u)

    def sqnorm(self):
        """||W||^2"""
        self.last_sqnorm = self.sqnorm_of(self.w)
        return self.last_sqnorm

    def sqnorm_of(self, const double[::1] other):
        """||other||^2 of a vector of this kind."""
        return self._square_sum(1.0, other, 0.0, other)

    def dot(self, const double[::1] x):
        """x.W"""
        return combined_dot(x, 1.0, self.w, 0.0, self.w)

    def dual_dot(self, const double[::1] x):
        """x.U"""
        if self.kappa > 0:
            return combined_dot(x, 1 + self.kappa, self.w, -self.kappa, self.v)
        return self.dot(x)

    def averaged_dot(self, const double[::1] x):
        """x.U_avg"""
        return combined_dot(x, 1.0, self.mean_u, 0.0, self.mean_u)

    def dual_sqnorm(self):
        """||U||^2"""
        if self.kappa > 0:
            return self._square_sum(1 + self.kappa, self.w, -self.kappa, self.v)
        return self.sqnorm_of(self.w)

    def averaged_sqnorm(self):
        """||U_avg||^2"""
        return self.sqnorm_of(self.mean_u)

    def average(self, double weight, double A, double a):
        """U_avg += weight (U - U_avg),  W_avg likewise,  z = ((1 + A) z + a U)/(1 + A + a).

        Returns <V - W, W - X>, positive where the last outer step (from X to W) and the pull of the centre disagree.
        X is not stored: V was (A X + a z)/(A + a), so X = V + (a/A)(V - z), and X = V where A was 0.
        """
        cdef Py_ssize_t j, start, stop, n = self.w.shape[0]
        cdef Py_ssize_t half = n // 2 if self.paired else n, other = half if self.paired else 0
        cdef double u, kappa = self.kappa, keep = (1 + A) / (1 + A + a), step = a / (1 + A + a)
        cdef double back = a / A if A > 0 else 0.0
        cdef double turn = 0
        cdef bint plain = self.factors is None, together = plain and not self.paired
        cdef const double[::1] b = self.factors
        cdef Py_ssize_t l, row, k = 1 if plain else b.shape[0], block = max(k, BLOCK // k * k)
        for start in range(0, 0 if together else half, block):
            stop = min(half, start + block)
            with nogil:
                if plain:
                    for j in range(start, stop):
                        turn += turn_at(self, j, other + j, back)
                else:
                    for row in range(start // k, stop // k):
                        for l in range(k):
                            turn += b[l] * turn_at(self, row * k + l, other + row * k + l, back)
            PyErr_CheckSignals()
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            with nogil:
                for j in range(start, stop):
                    if together:
                        turn += turn_at(self, j, j, back)
                    u = (1 + kappa) * self.w[j] - kappa * self.v[j]
                    self.mean_u[j] += weight * (u - self.mean_u[j])
                    self.mean_w[j] += weight * (self.w[j] - self.mean_w[j])
                    self.z[j] = keep * self.z[j] + step * u
            PyErr_CheckSignals()
        return turn

    def recentre(self, double kappa, double A, double a, bint restart):
        """The next centre: V = (A W + a z)/(A + a), W = (kappa V + U)/(1 + kappa); z = W first at a restart."""
        self._recentre(kappa, A, a, restart, self.w, self.v, self.z)
        self.kappa = kappa

    def recentred(self, double kappa, double A, double a, bint restart):
        """W as `recentre` would leave it, to the bit: a new array."""
        W, V, z = (np.empty(self.w.shape[0]) for _ in range(3))
        self._recentre(kappa, A, a, restart, W, V, z)
        return W

    cdef _recentre(self, double kappa, double A, double a, bint restart, double[::1] W, double[::1] V, double[::1] z):
        """What `recentre` makes of the vectors, which W, V and z may be."""
        cdef Py_ssize_t j, start, stop, n = self.w.shape[0]
        cdef double u, old = self.kappa, share = A / (A + a)
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            with nogil:
                for j in range(start, stop):
                    u = (1 + old) * self.w[j] - old * self.v[j]
                    z[j] = self.w[j] if restart else self.z[j]
                    V[j] = share * self.w[j] + (1 - share) * z[j]
                    W[j] = (kappa * V[j] + u) / (1 + kappa)
            PyErr_CheckSignals()

    def adopt(self):
        """Go on from the averages: U = U_avg, V = z = W_avg, W = (kappa V + U)/(1 + kappa)."""
        cdef Py_ssize_t j, start, stop, n = self.w.shape[0]
        cdef double kappa = self.kappa
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            with nogil:
                for j in range(start, stop):
                    self.v[j] = self.z[j] = self.mean_w[j]
                    self.w[j] = (kappa * self.v[j] + self.mean_u[j]) / (1 + kappa)
            PyErr_CheckSignals()
