"""What proximal semismooth Newton methods share (math.md 1.6): the schedule and the steps.

In its dual form, loss_i = max_p <p, u_i> - h_i(p), a proximal term around earlier duals q makes a loss with kinks
differentiable and leaves it as it is where p = q:

    smooth_i = max_p <p, u_i> - h_i(p) - gamma_i/2 ||p - q_i||^2,   gamma_i = g/(2 c_i)

F(W) = 1/2 ||W||^2 + sum_i smooth_i has the gradient W - U, U the weights of the maximising duals, so that with them

    P(W) - D = e + G,   e = sum_i [loss_i + h_i(p) - <p, u_i>],   G = 1/2 ||gradient||^2.

F is minimised roughly, to a G below e, by Newton steps; then q moves to p, g falls, and so on.

Over Gram rows W and U are scores and coefficients, as in iterates.pyx, and all of this holds with products that are the
scores of one times the coefficients of the other.
"""

import numpy as np

from libc.math cimport fabs, fmax, fmin

from marginlinear._core.rows cimport GRAM

from marginlinear._core.cholesky import factor, substitute

# g: at first, its fall after each solve and its floor; its rise after a step cut below SHORT, up to MOST, or from the
# time when so MANY in a row were, up to FAR. Where rows stay at knots of the loss, q comes to their duals by steps of
# 1/g.
FIRST, FALL, LAST = 0.3, 0.3, 1e-8
RISE, MOST, SHORT, MANY, FAR = 3.0, 3.0, 0.2, 8, 100.0
# F is solved when G <= SOLVED e.
SOLVED = 0.3
# On the diagonal of the scaled curvature, which unscaled data make singular to working precision; tenfold, up to MUCH,
# as long as it is not positive definite.
RIDGE, MUCH = 1e-15, 1e-6
# F is a sum over all rows: this much of it may be rounding.
ROUNDING = 1e-13


cdef double sequential_dot(const double[::1] x, const double[::1] y) noexcept nogil:
    """sum_j x_j y_j, term by term: vector.dot adds by parts, which rounds otherwise."""
    cdef Py_ssize_t j
    cdef double s = 0
    for j in range(x.shape[0]):
        s += x[j] * y[j]
    return s


def solve(H, wanted, int threads):
    """H^-1 wanted for a positive definite H, which is overwritten; its diagonal may range widely."""
    ridge, H = RIDGE, np.asarray(H)
    with np.errstate(all="ignore"):
        scale = 1 / np.sqrt(H.diagonal())
        right = scale * wanted
        H *= scale
        H *= scale[:, np.newaxis]
    while True:
        np.fill_diagonal(H, 1 + ridge)
        if factor(H, threads):
            return scale * substitute(H, right)
        if ridge >= MUCH:
            # Not finite.
            return np.full(len(H), np.nan)
        ridge *= 10


cdef class ProximalNewton:
    """Steps on the state of an engine: its weights and duals.

    A subclass has `_respond(W)`, which returns F(W) and sets the duals, U, e, G and the attributes below, `_duals()`,
    the p, and `_direction(gradient)`, curvature^-1 gradient. Its `__init__` sets the centre q and restarts.

    What is summed over the rows has methods of its own, since rows may be elsewhere (algorithms/partitions/newton.py):
    there `part` is True, and W, g and the centre come with each call.

    Attributes
    ----------
    g : float
    value : float
        F at W.
    primal, objective : float
        As the engine's `primal` returns them, at W.
    bound : float
        D at the duals.
    fall : float
        Twice what the last step promised F to fall by.
    e : float
        Of the equation above.
    """

    START = FIRST

    def __init__(self, engine):
        self.engine, self.rows = engine, engine.rows
        self.W = engine.iterates.W.copy()
        self.U, self.gradient, self.start = (np.empty(self.W.shape[0]) for _ in range(3))
        self.g = self.START

    def restart(self):
        """The engine's problem has changed: W stays, the duals follow."""
        self._recentre()
        self._publish()

    def smooth(self, const double[::1] W):
        """(F(W), its gradient) about the present centre; the duals of the engine become those of W."""
        return self._respond(W), np.asarray(W) - self.U

    def step(self):
        """One Newton step with backtracking; the centre moves first if its problem is solved."""
        if self.G <= SOLVED * self.e:
            self.g = fmax(LAST, FALL * self.g)
            self._recentre()
        self._subtract(self.W)
        cdef const double[::1] direction = self._direction(self.gradient)
        self.fall = self._product(self.gradient, direction)
        if self._search(direction, self.fall) < SHORT:
            self.cut += 1
            self.g = fmax(self.g, fmin(FAR if self.cut > MANY else MOST, RISE * self.g))
            self.value = self._again()
        else:
            self.cut = 0
        self._publish()
        self.engine.n_iter += 1

    cdef double _subtract(self, const double[::1] W) noexcept nogil:
        """gradient = W - U; returns its squared norm."""
        cdef Py_ssize_t j
        for j in range(W.shape[0]):
            self.gradient[j] = W[j] - self.U[j]
        return self._product(self.gradient, self.gradient)

    cdef double _product(self, const double[::1] x, const double[::1] y) noexcept nogil:
        """<x, y> of vectors of the kind of W."""
        cdef Py_ssize_t half = x.shape[0] // 2
        if self.rows.storage == GRAM:
            return sequential_dot(x[:half], y[half:])
        return sequential_dot(x, y)

    def _search(self, const double[::1] direction, double fall):
        """W moves by -t `direction`, t = 1, 1/2, ... until F falls by its share of t `fall`; returns t."""
        cdef Py_ssize_t j
        cdef double value = self.value, t = 1
        self.start[:] = self.W
        while True:
            for j in range(self.W.shape[0]):
                self.W[j] = self.start[j] - t * direction[j]
            self.value = self._respond(self.W)
            if self.value <= value - 1e-4 * t * fall + ROUNDING * fabs(value) or t < 1e-6:
                return t
            t /= 2

    def _recentre(self):
        self.move_centre()
        self.value = self._again()

    def move_centre(self):
        """q = p"""
        np.asarray(self.q)[:] = np.asarray(self._duals())

    def _again(self):
        """F at the same W, after a change of the centre or of g."""
        return self._respond(self.W)

    def _publish(self):
        """W and U become those of the engine: W is a proximal point of U, of strength 1 about V = 2W - U."""
        self.engine.iterates.resume(self.W, self.U, 1.0)
