"""Averaged stochastic gradient descent for losses of the margin and of its spread over the rows.

    P(w) = 1/2 ||w||^2 + E[h_i (1 - g_i)_+] - pull E[g_i] + spread Var[g_i],     g_i = y_i <w, x_i>, y_i = +1, -1

E and Var are over the rows, row i having probability p_i. With i and j drawn independently of each other

    w + [2 spread (g_i - g_j) - pull - h_i [g_i < 1]] y_i x_i

is a subgradient of P in the mean. Steps and averages are those of Xu (2011), P being 1-strongly convex:

    w -= eta_t G_t,   eta_t = eta0/(1 + eta0 t)^(3/4),        w_avg = mean of w after the steps t > t0

Both are held scaled, w = u/p and w_avg = (v + q u)/r, so that a step costs the values of its rows and no more:

    p /= 1 - eta;  delta = -eta p [...] y_i;  u += delta x_i;  v -= q delta x_i;  r /= 1 - 1/n;  q += r/(n p)

for the n-th term of the average; the first is v = 0, q = 1, r = p. Of the visits that the average is over, the part
that met g_i < 1 is the mean of the hinge's subgradients: a dual variable.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport pow
from libc.stdint cimport int32_t, uint64_t

from marginlinear._core.shrinking cimport shuffle
from marginlinear._core.rng cimport rng_next
from marginlinear._core.rows cimport AHEAD, SLICE, Rows, data_t, row_axpy, row_dot, row_prefetch
from marginlinear.threads import run_chunks

# Scales beyond this go into the vectors.
cdef double LARGE = 1e5

cdef enum Task:
    STEPS
    MARGINS
    COMBINE

cdef struct task_t:
    Task what
    Py_ssize_t start, stop
    double eta0             # of STEPS; those after step t0 enter the average
    Py_ssize_t t0
    const double* a         # the weights of MARGINS, the coefficients of COMBINE
    double* out


cdef class AveragedSGD:
    """State and epochs of one problem.

    Parameters
    ----------
    rows : Rows
        Not a Gram matrix.
    y : int32 array of shape (m,)
        1 for a positive row, 0 for a negative one.
    weight : float64 array of shape (m,)
        p_i up to a common factor; rows of weight 0 are never met.
    hinge : float64 array of shape (m,)
        h_i.
    pull, spread : float
    seed : int
    threads : int
        For passes that only read.

    Attributes
    ----------
    visits, averaged : int
        Steps t so far, and terms n of the average.
    met, active : int32 arrays of shape (m,)
        Of the steps in the average those at each row, and those of them with g_i < 1.
    """

    cdef readonly Rows rows
    cdef readonly object y, weight, hinge, met, active
    cdef readonly double pull, spread
    cdef readonly Py_ssize_t visits, averaged, draws
    cdef readonly uint64_t rng
    cdef int threads
    cdef Py_ssize_t slice_rows
    cdef double p, q, r
    cdef double[::1] u, v
    cdef int32_t[::1] seen, below
    cdef const double[::1] h, share
    cdef const int32_t[::1] positive
    cdef Py_ssize_t[::1] order, other

    def __init__(self, Rows rows, y, weight, hinge, *, double pull, double spread, seed=0, int threads=1):
        self.rows, self.y, self.weight, self.hinge = rows, y, weight, hinge
        self.pull, self.spread, self.threads, self.rng = pull, spread, threads, seed
        self.positive, self.h, self.share = y, hinge, weight
        self.draws = np.count_nonzero(weight)
        self.order, self.other = (np.empty(self.draws, dtype=np.intp) for _ in range(2))
        self.u, self.v = np.zeros(rows.d), np.zeros(rows.d)
        self.met, self.active = (np.zeros(rows.m, dtype=np.int32) for _ in range(2))
        self.seen, self.below = self.met, self.active
        self.slice_rows = max(1, <Py_ssize_t>(SLICE // 2 * rows.m / (1.0 + <double>rows.nnz)))
        self.start(seed)

    def start(self, uint64_t rng):
        """From w = 0 and with this state of the generator."""
        self.u[:], self.v[:], self.met[:], self.active[:] = 0, 0, 0, 0
        self.visits = self.averaged = 0
        self.p = self.q = self.r = 1
        self.rng = rng

    def state(self):
        """What `resume` needs."""
        return {"W": self.weights(), "met": self.met, "active": self.active, "visits": self.visits,
                "averaged": self.averaged, "rng": self.rng}

    def resume(self, state):
        """Go on from w = w_avg."""
        self.start(state["rng"])
        np.asarray(self.u)[:], self.met[:], self.active[:] = state["W"], state["met"], state["active"]
        self.visits, self.averaged = state["visits"], state["averaged"]

    def draw(self, Py_ssize_t count):
        """`count` rows in random order, row i count p_i times, rounded up or down at random: intp array."""
        out = np.empty(count, dtype=np.intp)
        cdef Py_ssize_t[::1] view = out
        fill_order(self.share, view, &self.rng)
        return out

    def epoch(self, double eta0, Py_ssize_t t0):
        """As many steps as there are rows of positive weight; those after step t0 enter the average."""
        cdef Py_ssize_t start
        cdef task_t task
        fill_order(self.share, self.order, &self.rng)
        if self.spread > 0:
            fill_order(self.share, self.other, &self.rng)
        task.what, task.eta0, task.t0 = STEPS, eta0, t0
        for start in range(0, self.draws, self.slice_rows):
            task.start, task.stop = start, min(self.draws, start + self.slice_rows)
            with nogil:
                perform(self, self.rows, &task)
            PyErr_CheckSignals()

    def weights(self):
        """w_avg, or w where nothing has been averaged: float64 array of shape (d,)."""
        if self.averaged == 0:
            return np.asarray(self.u) / self.p
        return np.asarray(self.u) * (self.q / self.r) + np.asarray(self.v) / self.r

    def margins(self, weights):
        """g_i of the rows, 0 for those of weight 0: float64 array of shape (m,)."""
        out = np.empty(self.rows.m)
        run_chunks(lambda lo, hi: self._margins(lo, hi, weights, out), self.rows.m, self.threads, self.rows.slice())
        return out

    def _margins(self, Py_ssize_t lo, Py_ssize_t hi, const double[::1] w, double[::1] out):
        cdef task_t task
        task.what, task.start, task.stop, task.a, task.out = MARGINS, lo, hi, &w[0], &out[0]
        with nogil:
            perform(self, self.rows, &task)
        PyErr_CheckSignals()

    def combination(self, coefficients):
        """sum_i coefficients_i y_i x_i: float64 array of shape (d,)."""
        out = np.zeros(self.rows.d)
        cdef double[::1] w = out
        cdef const double[::1] a = coefficients
        cdef Py_ssize_t start
        cdef task_t task
        task.what, task.a, task.out = COMBINE, &a[0], &w[0]
        for start in range(0, self.rows.m, self.slice_rows):
            task.start, task.stop = start, min(self.rows.m, start + self.slice_rows)
            with nogil:
                perform(self, self.rows, &task)
            PyErr_CheckSignals()
        return out

    def mean(self, values):
        """E of an array of shape (m,); summed without BLAS, whose order of sums depends on its threads."""
        return float((self.weight * values).sum() / self.weight.sum())

    def objective(self, weights, margins):
        """P at weights with these margins."""
        mean = self.mean(margins)
        each = self.hinge * np.maximum(0, 1 - margins) + self.spread * (margins - mean) ** 2
        return float((weights * weights).sum()) / 2 + self.mean(each) - self.pull * mean

    def certificate(self, weights, margins, active):
        """An upper bound of P(weights) - min P, from s active_i, active_i in [0, 1], for the best s in [0, 1].

        b_i = h_i active_i is a subgradient of the hinge somewhere. With a_i = b_i + pull - 2 spread (g_i - E[g])

            P(w) - min P <= E[h_i (1 - g_i)_+ - b_i (1 - g_i)] + 1/2 ||w - E[a_i y_i x_i]||^2

        and the right side is a parabola in s.
        """
        share = self.weight / self.weight.sum()
        b = self.hinge * active
        along = self.combination(share * b)
        rest = weights - self.combination(share * (self.pull - 2 * self.spread * (margins - self.mean(margins))))
        slope, square = self.mean(b * (1 - margins)) + float((rest * along).sum()), float((along * along).sum())
        s = min(1.0, max(0.0, slope / square)) if square > 0 else 1.0
        rest -= s * along
        return self.mean(self.hinge * np.maximum(0, 1 - margins) - s * b * (1 - margins)) + float(
            (rest * rest).sum()) / 2


cdef void fill_order(const double[::1] weight, Py_ssize_t[::1] out, uint64_t* rng) noexcept:
    """Rows in proportion to their weights by one random offset (systematic sampling), then shuffled."""
    cdef Py_ssize_t i, at = 0, n = out.shape[0]
    cdef double total = 0, part = 0, offset
    with nogil:
        for i in range(weight.shape[0]):
            total += weight[i]
        # Uniform on (0, 1).
        offset = (<double>(rng_next(rng) >> 11) + 0.5) / 9007199254740992.0
        for i in range(weight.shape[0]):
            part += weight[i]
            while at < n and at + offset < part / total * n:
                out[at] = i
                at += 1
        # What rounding left over.
        while at < n:
            out[at] = weight.shape[0] - 1
            at += 1
        shuffle(&out[0], n, rng)


ctypedef fused engine_t:
    AveragedSGD

include "on_features.pxi"


cdef void perform_on(engine_t self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i
    if task.what == STEPS:
        steps(self, X, task)
        return
    for i in range(task.start, task.stop):
        if task.what == MARGINS:
            task.out[i] = 0
            if self.share[i] > 0:
                task.out[i] = row_dot(X, i, task.a) if self.positive[i] else -row_dot(X, i, task.a)
        elif task.a[i] != 0:
            row_axpy(X, i, task.a[i] if self.positive[i] else -task.a[i], task.out)


cdef inline void steps(AveragedSGD self, const data_t* X, const task_t* task) noexcept nogil:
    cdef Py_ssize_t at, i, j, stop = task.stop
    cdef double eta, g, factor, delta, sign
    cdef double* u = &self.u[0]
    cdef double* v = &self.v[0]
    for at in range(task.start, stop):
        i = self.order[at]
        if at + AHEAD < stop:
            row_prefetch(X, self.order[at + AHEAD])
            if self.spread > 0:
                row_prefetch(X, self.other[at + AHEAD])
        sign = 1.0 if self.positive[i] else -1.0
        g = sign * row_dot(X, i, u) / self.p
        factor = -self.pull
        if g < 1:
            factor -= self.h[i]
        if self.spread > 0:
            j = self.other[at]
            factor += 2 * self.spread * (g - (1.0 if self.positive[j] else -1.0) * row_dot(X, j, u) / self.p)
        eta = task.eta0 / pow(1 + task.eta0 * self.visits, 0.75)
        self.visits += 1
        self.p /= 1 - eta
        delta = -eta * self.p * factor
        if delta != 0:
            row_axpy(X, i, delta * sign, u)
            if self.averaged > 0:
                row_axpy(X, i, -self.q * delta * sign, v)
        if self.visits > task.t0:
            self.averaged += 1
            self.seen[i] += 1
            self.below[i] += g < 1
            if self.averaged == 1:
                self.q, self.r = 1, self.p
            else:
                self.r *= <double>self.averaged / (self.averaged - 1)
                self.q += self.r / (self.averaged * self.p)
        if self.p > LARGE or self.r > LARGE:
            rescale(self)


cdef void rescale(AveragedSGD self) noexcept nogil:
    """p = r = 1"""
    self.q *= self.p / self.r
    scale(self.u, 1 / self.p)
    scale(self.v, 1 / self.r)
    self.p = self.r = 1


cdef inline void scale(double[::1] x, double factor) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(x.shape[0]):
        x[j] *= factor
