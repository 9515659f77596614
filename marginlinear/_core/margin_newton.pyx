"""Proximal semismooth Newton steps on the problem of a MarginCD, for few features (proximal.pyx, math.md 1.6).

    P(w) = 1/2 ||w||^2 + sum_i c_i phi_i(g_i) + spread sum_i c_i (g_i - v)^2,   v the mean of the margins g_i

The dual form of c phi with a proximal term of strength gamma around q,

    smooth_i = max_b -b g - c phi*(-b/c) - gamma/2 (b - q)^2,

has its maximiser b at the coordinate step from the margin g - gamma q with A = gamma, and the curvature h_i = -db/dg.
gamma_i = g/(2 c_i), over the jump of phi'; gamma = 0 where phi' is continuous: what is left is Newton's method on P.

The spread is quadratic and stays as it is. Its duals are -tau_i, tau_i = 2 spread c_i (g_i - v), those of P

    a_i = b_i - tau_i,   U = sum_i a_i y_i x_i,   sum_i tau_i = 0.

The conjugate of spread c (. - v)^2 at tau is tau g - spread c (g - v)^2, and a sum of two functions has a conjugate of
at most the sum of theirs, here for any v; so that D(a) >= P(w) - e - G with e = sum_i [c phi(g) + c phi*(-b/c) + b g].
The curvature of F is

    H = I + sum_i (h_i + 2 spread c_i) x_i x_i' - 2 spread/size z z',   z = sum_i c_i y_i x_i,   size = sum_i c_i.

A step along d = H^-1 (W - U) takes margins to g - t turn. The duals of the model that it minimises, b + h turn, have
the weights W - d, which no pass over the rows is needed for, and at W - t d a gap of second order: where they are in
range they are the duals of the step. Those that are not are cut off, and their rows added; where a few rows, at knots
or far out, make up most of the gap, a coordinate step of each raises D. U, of the duals that are best for each margin,
is summed when another step follows.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport int32_t
from libc.string cimport memset

from marginlinear._core.cholesky cimport NormalMatrix
from marginlinear._core.margin_cd cimport MarginCD
from marginlinear._core.margin_loss cimport (
    coordinate_step,
    fenchel_gap,
    in_range,
    jump_at,
    jump_middle,
    loss_at,
    loss_t,
    response,
)
from marginlinear._core.proximal cimport ProximalNewton, sequential_dot
from marginlinear._core.rows cimport (
    SLICE,
    Rows,
    data_t,
    feature,
    row_axpy,
    row_begin,
    row_dot,
    row_end,
    scores_t,
    value,
)
from marginlinear._core.softplus cimport LARGE

from marginlinear._core.proximal import MOST, solve

cdef extern from "tile.h" nogil:
    enum:
        PANEL "ML_PANEL"

cdef extern from "soft.h" nogil:
    void soft "ml_soft"(const double* g, const double* c, Py_ssize_t n, double* own, double* curvature, double* loss)
    void entropy "ml_entropy"(double* x, Py_ssize_t n)

cdef enum:
    BLOCK = 256    # rows whose exponentials are taken at once

# A search ends where the slope is down to this part of that at its start, or after so many evaluations.
cdef double FLAT = 0.1
cdef int TRIALS = 60
# A full step is taken without a search where F falls by this part of the slope at its start; half of it at best.
cdef double ENOUGH = 0.25

# Margins of unscaled rows are sums of large terms. Their rounding, times the curvature and the rows again, would keep
# G up; after a step that moves no margin by more than this they are not summed afresh but moved with the step.
cdef double NEAR = 1e-2
# Steps that moved a margin by more come before such a one.
cdef double FAR = 0.1

# Rows with so many times the mean gap have a coordinate step of their own after a Newton step.
cdef double OUTLIER = 5

# Where more than one row in so many has a dual of the model that is out of range, it is not taken.
cdef double CUT = 20

# A product that is added to its own place costs so many of those in tiles.
cdef double APART = 10


cdef enum Work:
    SCORES     # out[i] = y_i <w, x_i>
    GATHER     # the rows who[start:stop] times their roots, in panels of `gram`
    OUTER      # their products with themselves, times the squares of their roots, added to `gram`
    STEPS      # coordinate steps of the rows who[start:stop], of weights `out`; `gain` is what they raise D by


cdef struct task_t:
    Work what
    Py_ssize_t start
    Py_ssize_t stop
    const double* w
    double* out
    const int32_t* who
    const double* root
    const double* sqnorms
    double gain


cdef class MarginNewton(ProximalNewton):
    """Steps on binary losses."""

    cdef Py_ssize_t slice_rows
    cdef double moved
    # Whether U and G are still those of the duals of the last step's model.
    cdef bint behind
    # Whether steps are certified by their model's duals, and how many of those are out of range.
    cdef bint by_model
    cdef Py_ssize_t cut
    cdef NormalMatrix gram
    cdef readonly double spread, size, v
    cdef const double[:, ::1] tables
    cdef const double[::1] c, soft, row_sum, targets
    cdef const int32_t[::1] positive, group
    cdef double[::1] dual, own, margin, turn, centre, weight, root
    cdef int32_t[::1] who
    cdef double[:, ::1] constant

    def __init__(self, MarginCD engine, rough=None, bint part=False, bint bounds=True):
        """From the (weights, g) of steps on fewer `rough` rows in place of the engine's, where they are given. bounds:
        whether these are to be good."""
        # Sweeps over long rows at a large C can leave weights that are worse than none.
        fresh = engine.untouched()
        poor = not part and not fresh and not engine.primal()[0] <= engine.loss_at_zero()
        if poor:
            engine.start_over()
        super().__init__(engine)
        if poor:
            # So large that the proximal term acts on all rows.
            self.g = MOST
        cdef Py_ssize_t i, j, m = self.rows.m, d = self.rows.d
        cdef double double_spread = 2 * engine.spread
        self.spread, self.size = engine.spread, engine.size
        self.dual, self.positive, self.group, self.tables = engine.duals, engine.positive, engine.group, engine.tables
        self.targets = engine.targets
        self.c = engine.cost
        self.own, self.margin, self.turn, self.weight = (self.rows.zeros(m) for _ in range(4))
        # A centre that nothing depends on needs no room.
        self.q = self.rows.zeros(m) if engine.nonsmooth or part else np.asarray(self.own)
        self.centre = self.q
        self.soft = softness_of(self.tables)
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * m / (1.0 + <double>self.rows.nnz)))
        self.moved, self.behind = INFINITY, False
        # Of kinks the model knows nothing.
        self.by_model = bounds and not engine.nonsmooth
        self.gram = NormalMatrix(self.rows.d, m, engine.threads)
        self.who, self.root = np.empty(self.gram.room, np.int32), np.empty(self.gram.room)
        if part:
            return
        self.constant = np.eye(d)
        cdef const double[:, ::1] gram
        if self.spread > 0:
            self.row_sum = self.sum_of_rows()
            gram = self.gram_of(False)
            for i in range(d):
                for j in range(d):
                    self.constant[i, j] += double_spread * gram[i, j]
                    self.constant[i, j] -= double_spread / self.size * (self.row_sum[i] * self.row_sum[j])
        if rough is not None:
            np.asarray(self.W)[:] = rough[0]
            self.g = rough[1]
        self.begin_rows(self.W, self._mean(self.W))
        if engine.nonsmooth and fresh:
            for i in range(m):
                self.own[i] = middle_dual(<const loss_t*> &self.tables[self.group[i], 0], self.c[i], self.margin[i])
        self.restart()

    def sum_of_rows(self):
        """z"""
        return self.engine.weights_of(self.c)

    def begin_rows(self, const double[::1] W, double mean):
        """b = a + tau at the duals of the sweeps, where the mean of the margins is `mean`."""
        cdef Py_ssize_t i
        self._measure_margins(W)
        for i in range(self.rows.m):
            self.own[i] = self.dual[i] + 2 * self.spread * self.c[i] * (self.margin[i] - mean)

    def move_centre(self):
        """Where no loss has a kink nothing depends on it."""
        if self.engine.nonsmooth:
            ProximalNewton.move_centre(self)

    def centre_on(self, const double[::1] centre):
        """q"""
        self.centre[:] = centre

    def duals_of_rows(self):
        """b: float64 array of shape (m,)"""
        return np.asarray(self.own)

    def gram_of(self, bint curvatures):
        """sum_i h_i x_i x_i', or with c_i in place of the curvatures: (d, d), until the next is asked for."""
        return self._gram(self.weight if curvatures else self.c)

    def curvature(self):
        """A generalised Hessian of F at the last W: float64 array of shape (d, d)."""
        return np.array(self._curvature())

    cdef double[:, ::1] _curvature(self):
        """`curvature`, until the next is asked for."""
        cdef Py_ssize_t i, j
        cdef double[:, ::1] H = self.gram_of(True)
        for i in range(self.rows.d):
            for j in range(self.rows.d):
                H[i, j] += self.constant[i, j]
        return H

    cdef double[:, ::1] _gram(self, const double[::1] weights):
        """sum_i weights_i x_i x_i', of shape (d, d), until the next is asked for."""
        cdef Py_ssize_t i = 0, j, m = self.rows.m
        cdef NormalMatrix gram = self.gram
        cdef task_t task
        task.what, task.who, task.root = GATHER, &self.who[0], &self.root[0]
        if few_products(self.rows):
            task.what = OUTER
        self.rows.require()
        gram.clear()
        task.start = 0
        while i < m:
            with nogil:
                task.stop = 0
                while i < m and task.stop < gram.room:
                    if weights[i] > 0:
                        self.who[task.stop], self.root[task.stop] = <int32_t>i, sqrt(weights[i])
                        task.stop += 1
                    i += 1
                perform(self, self.rows, &task)
            if task.what == GATHER:
                gram.add(task.stop)
            else:
                PyErr_CheckSignals()
        if task.what == OUTER:
            with nogil:
                for i in range(gram.d):
                    for j in range(i):
                        gram.total[i, j] += gram.total[j, i]
        return gram.result()

    def _direction(self, gradient):
        return solve(self._curvature(), gradient, self.engine.threads)

    def _duals(self):
        return np.asarray(self.own)

    cdef double _mean(self, const double[::1] W):
        return sequential_dot(self.row_sum, W) / self.size if self.spread > 0 else 0.0

    def _publish(self):
        ProximalNewton._publish(self)
        self.engine.set_empty_duals()

    def _respond(self, const double[::1] W):
        return self._evaluate(W, False)

    def _again(self):
        return self._evaluate(self.W, True)

    cdef double _evaluate(self, const double[::1] W, bint measured) except? -1:
        """F at W. Sets the duals, U, and the values of the problem at W and these duals."""
        cdef double F
        self.v = self._mean(W)
        sums, self.U = self.respond_rows(W, self.v, measured)
        self.behind, self.afresh = False, self.afresh or not measured
        F = self._take(W, sums)
        self.G = 0.5 * self._subtract(W)
        self.bound = self.primal - self.e - self.G
        return F

    cdef double _take(self, const double[::1] W, sums) except? -1:
        """F at W, P and e, of the sums that `respond_rows` returns."""
        cdef double loss, gap, move, spread
        loss, gap, move, spread = sums
        self.e = gap
        self.primal = self.objective = 0.5 * sequential_dot(W, W) + loss + self.spread * spread
        return self.primal - gap - 0.5 * move

    def respond_rows(self, const double[::1] W, double mean, bint measured=False):
        """The duals at W, whose margins have this mean, and may be at hand.

        Returns ((loss, e, sum_i gamma_i (b_i - q_i)^2, sum_i c_i (g_i - mean)^2), U).
        """
        if not measured:
            self._measure_margins(W)
        sums = self._respond_margins(mean)
        self._set_duals(mean)
        return sums, self.engine.weights_of(self.dual)

    cdef _respond_margins(self, double mean):
        """b and h at the margins; the sums of `respond_rows`."""
        cdef Py_ssize_t i
        cdef const loss_t* phi
        cdef double g, c, gamma, own, loss = 0, gap = 0, move = 0, spread = 0
        if self.tables.shape[0] == 1 and (<const loss_t*> &self.tables[0, 0]).soft:
            return self._respond_softly(), 0.0, 0.0, 0.0
        with nogil:
            for i in range(self.rows.m):
                phi, c, g = <const loss_t*> &self.tables[self.group[i], 0], self.c[i], self.margin[i]
                gamma = self.g * self.soft[self.group[i]] / (2 * c)
                if gamma == 0:
                    self.own[i] = response(phi, c, g, &self.weight[i], &own)
                    loss += own
                else:
                    self.own[i] = coordinate_step(phi, c, g - gamma * self.centre[i], gamma, g, &self.weight[i])
                    loss += c * loss_at(phi, g)
                    gap += fenchel_gap(phi, c, g, self.own[i])
                move += gamma * (self.own[i] - self.centre[i]) * (self.own[i] - self.centre[i])
                spread += c * (g - mean) * (g - mean)
        return loss, gap, move, spread

    cdef double _respond_softly(self) noexcept nogil:
        """The same of softplus for all rows; the sum of their losses."""
        cdef Py_ssize_t start = 0, i, n
        cdef double[BLOCK] losses
        cdef double loss = 0
        while start < self.rows.m:
            n = min(BLOCK, self.rows.m - start)
            soft(&self.margin[start], &self.c[start], n, &self.own[start], &self.weight[start], losses)
            for i in range(n):
                loss += losses[i]
            start += n
        return loss

    cdef _set_duals(self, double mean):
        """a = b - tau"""
        cdef Py_ssize_t i
        with nogil:
            for i in range(self.rows.m):
                self.dual[i] = self.own[i] - 2 * self.spread * self.c[i] * (self.margin[i] - mean)

    def step(self):
        """After a step, U; where that has the better bound W stays. Then another step."""
        cdef double bound
        if self.behind:
            self._catch_up()
            bound = self.primal - self.e - self.G
            if bound > self.bound:
                self.bound = bound
                self._publish()
                return
        ProximalNewton.step(self)

    cdef _catch_up(self):
        """U and G of the best duals for the margins."""
        self._set_duals(self.v)
        self.U, self.behind = self.engine.weights_of(self.dual), False
        self.G = 0.5 * self._subtract(self.W)

    cdef _model_duals(self):
        """b + h turn, in the place of a, and how many are out of range."""
        cdef Py_ssize_t i, cut = 0
        cdef double b
        if not self.by_model:
            return
        with nogil:
            for i in range(self.rows.m):
                self.dual[i] = b = self.own[i] + self.weight[i] * self.turn[i]
                cut += in_range(<const loss_t*> &self.tables[self.group[i], 0], self.c[i], b) != b
        self.cut = cut

    cdef void _gaps(self, Py_ssize_t start, Py_ssize_t stop, double* out) noexcept nogil:
        """Those of the duals a of at most BLOCK rows, beside b and h of their margins."""
        cdef Py_ssize_t i, at
        cdef const loss_t* phi
        cdef double[BLOCK] other
        cdef double c, g, s, r, off
        if self.tables.shape[0] > 1 or not (<const loss_t*> &self.tables[0, 0]).soft:
            for i in range(start, stop):
                out[i - start] = fenchel_gap(<const loss_t*> &self.tables[self.group[i], 0], self.c[i], self.margin[i],
                                             self.dual[i])
            return
        phi = <const loss_t*> &self.tables[0, 0]
        # c s and c r, as of softplus.softplus_gap.
        for i in range(start, stop):
            at, c, s = i - start, self.c[i], self.own[i]
            r = c * self.weight[i] / s
            off = self.dual[i] - s if self.margin[i] > 0 else r - (c - self.dual[i])
            out[at], other[at] = off / s, -off / r
        entropy(out, stop - start)
        entropy(other, stop - start)
        for i in range(start, stop):
            at, c, g, s = i - start, self.c[i], self.margin[i], self.own[i]
            if fabs(g) > LARGE:
                out[at] = fenchel_gap(phi, c, g, self.dual[i])
            else:
                out[at] = s * out[at] + c * self.weight[i] / s * other[at]

    cdef double _arrive(self, const double[::1] direction, double t, sums) except? -1:
        """F at W, where a step along `direction` has come to, the sums of `respond_rows` being those of its margins.
        The duals are those of its model, U and the bound theirs."""
        cdef Py_ssize_t i, j, part, start, stop, count = 0, m = self.rows.m
        cdef double b, c, off, gap = 0, F = self._take(self.W, sums), mean = self._mean(direction)
        cdef double[BLOCK] gaps
        cdef double[::1] cuts
        cdef bint cut = self.cut > 0
        self.behind = self.by_model and self.cut * CUT <= m
        if not self.behind:
            self._catch_up()
            self.bound = self.primal - self.e - self.G
            return F
        if cut:
            cuts = self.rows.zeros(m)
        with nogil:
            for part in range((m + BLOCK - 1) // BLOCK):
                start, stop = part * BLOCK, min(m, (part + 1) * BLOCK)
                for i in range(start, stop if cut else start):
                    b = in_range(<const loss_t*> &self.tables[self.group[i], 0], self.c[i], self.dual[i])
                    cuts[i], self.dual[i] = b - self.dual[i], b
                self._gaps(start, stop, gaps)
                for i in range(start, stop):
                    # tau is that of W - d, too.
                    c, off = self.c[i], (1 - t) * (self.turn[i] - mean)
                    gap += gaps[i - start] + self.spread * c * off * off
                    self.dual[i] -= 2 * self.spread * c * (self.margin[i] - self.v - off)
                    self.turn[i] = gaps[i - start]
            for j in range(self.W.shape[0]):
                self.U[j] = self.W[j] - (1 - t) * direction[j]
        if cut:
            self.U = np.add(self.U, self.engine.weights_of(cuts))
        self.bound = self.primal - gap - 0.5 * self._subtract(self.W)
        if self.spread == 0:
            for i in range(self.rows.m):
                if self.turn[i] * self.rows.m > OUTLIER * gap:
                    self.who[count] = <int32_t>i
                    count += 1
                    if count == self.who.shape[0]:
                        self.bound += self._coordinate_steps(count)
                        count = 0
            self.bound += self._coordinate_steps(count)
        return F

    cdef double _coordinate_steps(self, Py_ssize_t count) except? -1:
        """Of the first `count` rows of `who`; returns what D rises by."""
        cdef Py_ssize_t start
        cdef task_t task
        cdef const double[::1] sqnorms = self.rows.sqnorms()
        task.what, task.who, task.out, task.sqnorms, task.gain = STEPS, &self.who[0], &self.U[0], &sqnorms[0], 0
        for start in range(0, count, self.slice_rows):
            task.start, task.stop = start, min(count, start + self.slice_rows)
            with nogil:
                perform(self, self.rows, &task)
            PyErr_CheckSignals()
        return task.gain

    cdef _measure_margins(self, const double[::1] W):
        cdef Py_ssize_t i
        self._measure(W, self.margin)
        if self.targets is not None:
            for i in range(self.rows.m):
                self.margin[i] -= self.targets[i]

    cdef _measure(self, const double[::1] W, double[::1] out):
        """out = the margins of all rows, as if their targets were 0."""
        cdef Py_ssize_t start
        cdef task_t task
        task.what, task.w, task.out = SCORES, &W[0], &out[0]
        self.rows.require()
        for start in range(0, self.rows.m, self.slice_rows):
            task.start, task.stop = start, min(self.rows.m, start + self.slice_rows)
            with nogil:
                perform(self, self.rows, &task)
            PyErr_CheckSignals()

    def _search(self, const double[::1] direction, double fall):
        """W moves by -t `direction` to where F hardly falls any more; returns t.

        Along a line F' is increasing and linear between the knots: Newton's method in one variable, in a bracket.
        """
        cdef Py_ssize_t i, j
        cdef double t = 1, low = 0, high = INFINITY, slope = 0, curvature = 0, far = 0
        cdef double own = sequential_dot(direction, direction), mean = self._mean(direction)
        if not self.engine.nonsmooth and self.moved > FAR:
            if self._step_in_full(direction, fall):
                return 1.0
        else:
            self._measure(direction, self.turn)
            self._model_duals()
        for _ in range(TRIALS):
            self._slope(t, mean, &slope, &curvature)
            for j in range(direction.shape[0]):
                slope += (t * direction[j] - self.W[j]) * direction[j]
            curvature += own
            if fabs(slope) <= FLAT * fall:
                break
            if slope < 0:
                low = t
            else:
                high = t
            t -= slope / curvature
            if not low < t < high:
                # By orders of magnitude at first: where few rows curve F, its minimum may be at a tiny t.
                t = (low + high) / 2 if high < 8 * low else sqrt(high * max(low, 1e-6 * high))
        for j in range(self.W.shape[0]):
            self.W[j] -= t * direction[j]
        for i in range(self.rows.m):
            far = max(far, fabs(t * self.turn[i]))
        self.moved, self.afresh = far, far > NEAR
        if self.afresh:
            self._measure_margins(self.W)
        else:
            for i in range(self.rows.m):
                self.margin[i] -= t * self.turn[i]
        self.v = self._mean(self.W)
        self.value = self._arrive(direction, t, self._respond_margins(self.v))
        return t

    def _step_in_full(self, const double[::1] direction, double fall):
        """W moves by -`direction` if F falls enough; else `turn` becomes the margins of the direction."""
        cdef Py_ssize_t i
        cdef double before = self.value, most = 0
        self.start[:] = self.W
        self.turn[:] = self.margin
        for i in range(self.W.shape[0]):
            self.W[i] -= direction[i]
        self._measure_margins(self.W)
        for i in range(self.rows.m):
            self.turn[i] -= self.margin[i]
            most = max(most, fabs(self.turn[i]))
        self._model_duals()
        self.v = self._mean(self.W)
        sums = self._respond_margins(self.v)
        self.value = self._take(self.W, sums)
        if self.value <= before - ENOUGH * fall:
            self.moved, self.afresh = most, True
            self._arrive(direction, 1.0, sums)
            return True
        self.W[:], self.value = self.start, before
        self.v = self._mean(self.W)
        for i in range(self.rows.m):
            self.margin[i] += self.turn[i]
        return False

    def slopes(self, const double[::1] W, const double[::1] direction, double v, double mean, lengths):
        """The losses' part of F' at W - t direction for each length t; v and mean are those of the margins of W and of
        the direction. Float64 array."""
        cdef double slope, curvature
        self.v = v
        self._measure_margins(W)
        self._measure(direction, self.turn)
        found = []
        for t in lengths:
            self._slope(t, mean, &slope, &curvature)
            found.append(slope)
        return np.array(found)

    cdef void _slope(self, double t, double mean, double* slope, double* curvature) noexcept nogil:
        """The losses' part of (F', F'') at W - t direction, `turn` being the margins of the direction."""
        cdef Py_ssize_t i
        cdef const loss_t* phi
        cdef double g, c, gamma, b, h, off, turn, loss
        slope[0] = curvature[0] = 0
        for i in range(self.rows.m):
            phi, c, turn = <const loss_t*> &self.tables[self.group[i], 0], self.c[i], self.turn[i]
            g = self.margin[i] - t * turn
            gamma = self.g * self.soft[self.group[i]] / (2 * c)
            if gamma == 0:
                b = response(phi, c, g, &h, &loss)
            else:
                b = coordinate_step(phi, c, g - gamma * self.centre[i], gamma, g, &h)
            off = turn - mean
            slope[0] += b * turn - 2 * self.spread * c * (g - self.v + t * mean) * off
            curvature[0] += h * turn * turn + 2 * self.spread * c * off * off


def softness_of(const double[:, ::1] tables):
    """1/(the largest jump of phi') of each table, 0 where there is none."""
    cdef const loss_t* phi
    cdef double jump
    cdef Py_ssize_t at
    cdef double[::1] out = np.empty(tables.shape[0])
    for at in range(tables.shape[0]):
        phi = <const loss_t*> &tables[at, 0]
        jump = max(jump_at(phi, 0), jump_at(phi, 1))
        out[at] = 1 / jump if jump > 0 else 0.0
    return out


cdef double middle_dual(const loss_t* phi, double c, double g) noexcept nogil:
    """In the middle of the duals at the kink that is nearest to a margin; 0 without a kink."""
    cdef double first = jump_at(phi, 0), second = jump_at(phi, 1), off = phi.pieces.knot[0] + phi.pieces.knot[1] - 2 * g
    if first == 0 and second == 0:
        return 0
    return -c * jump_middle(phi, 0 if first > 0 and (second == 0 or off > 0) else 1)


ctypedef fused engine_t:
    MarginNewton

include "on_features.pxi"


def few_products(Rows rows):
    """Whether the products of each row's own values are so few that sums one by one are quicker than those of tiles."""
    cdef double each = 1 + <double>rows.nnz / rows.m
    return APART * each * each < <double>rows.d * rows.d


cdef inline void perform_on(MarginNewton self, const data_t* X, task_t* task) noexcept nogil:
    if task.what == SCORES:
        measure(self, X, task)
    elif task.what == GATHER:
        gather(X, task, self.gram)
    elif task.what == OUTER:
        outer(X, task, self.gram)
    else:
        coordinate_steps(self, X, task)


cdef void measure(MarginNewton self, const data_t* X, const task_t* task) noexcept nogil:
    cdef Py_ssize_t i
    cdef double s
    for i in range(task.start, task.stop):
        s = row_dot(X, i, task.w)
        task.out[i] = s if self.positive[i] else -s


cdef inline void put(NormalMatrix gram, Py_ssize_t at, Py_ssize_t j, double x) noexcept nogil:
    gram.z[<size_t>j // PANEL, at, <size_t>j % PANEL] = x


cdef void gather(const data_t* X, const task_t* task, NormalMatrix gram) noexcept nogil:
    cdef Py_ssize_t at, i, p
    cdef double t
    for at in range(task.start, task.stop):
        i, t = task.who[at], task.root[at]
        for p in range(gram.z.shape[0]):
            memset(&gram.z[p, at - task.start, 0], 0, PANEL * sizeof(double))
        for p in range(row_begin(X, i), row_end(X, i)):
            put(gram, at - task.start, feature(X, i, p), t * value(X, i, p))
        if X.bias >= 0:
            put(gram, at - task.start, X.n, t * X.bias)


cdef void outer(const data_t* X, const task_t* task, NormalMatrix gram) noexcept nogil:
    """Each product of two features once, on and below the diagonal where those of a row rise, and of renumbered rows
    on either side of it. Four rows of the sum at a time read each value once."""
    cdef Py_ssize_t at, i, j, p, q, start, stop
    cdef double t, u, u1, u2, u3, v
    cdef scores_t row, row1, row2, row3
    for at in range(task.start, task.stop):
        i, t = task.who[at], task.root[at] * task.root[at]
        start, stop = row_begin(X, i), row_end(X, i)
        p = start
        while p + 4 <= stop:
            u, row = t * value(X, i, p), &gram.total[feature(X, i, p), 0]
            u1, row1 = t * value(X, i, p + 1), &gram.total[feature(X, i, p + 1), 0]
            u2, row2 = t * value(X, i, p + 2), &gram.total[feature(X, i, p + 2), 0]
            u3, row3 = t * value(X, i, p + 3), &gram.total[feature(X, i, p + 3), 0]
            for q in range(start, p + 1):
                j, v = feature(X, i, q), value(X, i, q)
                row[j] += u * v
                row1[j] += u1 * v
                row2[j] += u2 * v
                row3[j] += u3 * v
            j, v = feature(X, i, p + 1), value(X, i, p + 1)
            row1[j] += u1 * v
            row2[j] += u2 * v
            row3[j] += u3 * v
            j, v = feature(X, i, p + 2), value(X, i, p + 2)
            row2[j] += u2 * v
            row3[j] += u3 * v
            row3[feature(X, i, p + 3)] += u3 * value(X, i, p + 3)
            p += 4
        for p in range(p, stop):
            u, row = t * value(X, i, p), &gram.total[feature(X, i, p), 0]
            for q in range(start, p + 1):
                row[feature(X, i, q)] += u * value(X, i, q)
        if X.bias >= 0:
            u, row = t * X.bias, &gram.total[X.n, 0]
            for q in range(start, stop):
                row[feature(X, i, q)] += u * value(X, i, q)
            row[X.n] += u * X.bias


cdef void coordinate_steps(MarginNewton self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t at, i
    cdef const loss_t* phi
    cdef double c, A, g, a, change, h
    for at in range(task.start, task.stop):
        i = task.who[at]
        phi, c, A, a = <const loss_t*> &self.tables[self.group[i], 0], self.c[i], task.sqnorms[i], self.dual[i]
        if A == 0:
            continue
        g = row_dot(X, i, task.out)
        g = (g if self.positive[i] else -g) - (self.targets[i] if self.targets is not None else 0.0)
        change = coordinate_step(phi, c, g - A * a, A, g, &h) - a
        task.gain += fenchel_gap(phi, c, g, a) - fenchel_gap(phi, c, g, a + change) - A / 2 * change * change
        self.dual[i] = a + change
        row_axpy(X, i, change if self.positive[i] else -change, task.out)
