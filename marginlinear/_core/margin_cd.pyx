"""Dual coordinate descent for binary losses of the margin: one dual variable a row.

    P(w) = 1/2 ||w||^2 + sum_i c_i phi_i(g_i) + spread min_v sum_i c_i (g_i - v)^2,   g_i = y_i <w, x_i>, y_i = +1, -1

phi_i is one of a few tables (margin_loss.pxd). With spread > 0 the best v is the mean of the margins, and v is a
variable of the problem: at a given v, spread (g - v)^2 goes into the tables, and v follows after every sweep.

    D(a) = -1/2 ||u||^2 + sum_i h_i(v),    u = sum_i a_i y_i x_i,    h_i(v) = min_z c_i phi_{i,v}(z) + a_i z

With spread > 0 that needs h'(v) = sum_i h_i'(v) = 0. Duals a - h'(v) c/sum c, with what pulls z to v lowered by the
same, have it, and bound P at any v:

    D = -1/2 ||u - h'(v) x||^2 + h(v) - v h'(v) + h'(v)^2/(4 spread sum c),    x = sum_i c_i y_i x_i/sum c

A row may have a target z_i: its margin is g_i = y_i <w, x_i> - z_i, and with v = 0

    D(a) = -1/2 ||u||^2 + sum_i (h_i + a_i z_i)

All duals start at 0. Where that is out of a dual's range (piecewise.pxd) D is -inf, no bound, until a sweep has visited
every row.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs, log

from marginlinear._core.dual_engine cimport ROWS_TO_FETCH, SUM_LOSSES, UPDATE_ROWS, DualEngine, task_t
from marginlinear._core.margin_loss cimport (
    conjugate_at,
    coordinate_step,
    curvature_at,
    dual_at,
    dual_term,
    fenchel_gap,
    in_range,
    jump_at,
    least_curvature,
    loss_at,
    loss_t,
    slope_at,
    visit,
)
from marginlinear._core.rows cimport (
    AHEAD,
    FETCH,
    Rows,
    place_prefetch,
    prefetch,
    row_axpy,
    row_dot,
    row_prefetch,
    row_present,
    row_turn,
    rows_t,
    weights_prefetch,
)
from marginlinear._core.shrinking cimport note_visit
from marginlinear._core.vector import dot, total

# Bytes of weights from which on asking for them ahead of a row's turn saves more than it costs.
cdef double FAR = 8e6
# P is summed about the mean of the margins, from the margins, where v^2 is so many times as large, and has a ROUNDING.
cdef double CANCELLED = 1e6, ROUNDING = 1e-14
cdef enum:
    MAX_SKIP = 16    # sweeps
    TRIALS = 30      # of a search along a line


def table_of(knots, parts):
    """One row of `tables`: a loss of len(parts) pieces, 1 to 3, cut at `knots`, each piece (quad, slope, level); with
    "softplus" in place of the parts, and no knots, log(1 + exp(-g))."""
    soft = parts == "softplus"
    knots, parts = list(knots), [(0.25, -0.5, log(2.0))] if soft else list(parts)
    knots += (knots[len(knots) - 1:] or [0.0]) * (2 - len(knots))
    parts += parts[len(parts) - 1:] * (3 - len(parts))
    return np.concatenate((knots, *zip(*parts, strict=True), [soft]), dtype=np.float64)


cdef class MarginCD(DualEngine):
    """State and sweeps of one problem.

    Parameters
    ----------
    rows : Rows
    y : int32 array of shape (m,)
        1 for a positive row, 0 for a negative one.
    cost : float64 array of shape (m,)
        c_i > 0.
    tables : list of float64 arrays
        As `table_of` returns them.
    group : int32 array of shape (m,), optional
        The table of each row; default: the first.
    spread : float
        Weight of the squared distances of the margins from their mean, which counts rows by `cost`.
    targets : float64 array of shape (m,), optional
        z_i, which do not go with spread; default: 0.
    seed : int
    threads : int
        For passes that only read; sweeps use one.

    Attributes
    ----------
    duals : float64 array of shape (m,)
        a_i, in the direction of the margin.
    mean : float
        v.
    stable : bool
        Whether v is no variable: where it follows the margins, sweeps that have not caught up with it may diverge.
    curved : bool
        Whether a loss has curvature.
    """

    lines = True

    def __init__(self, Rows rows, y, cost, tables, *, group=None, double spread=0.0, targets=None, seed=0,
                 int threads=1):
        cdef Py_ssize_t at, m = rows.m
        DualEngine.__init__(self, rows, cost, 1, m, None, seed, threads)
        self.positive, self.spread = y, spread
        self.group = np.zeros(m, dtype=np.int32) if group is None else group
        self.targets, self.target = targets, NULL
        if targets is not None:
            if spread > 0:
                raise ValueError("targets do not go with spread")
            self.target = &self.targets[0]
        self.tables, self.shifted = np.array(tables), np.array(tables)
        self.phi = <const loss_t*> &self.shifted[0, 0]
        for at in range(self.tables.shape[0]):
            self.nonsmooth |= jump_at(&self.phi[at], 0) > 0 or jump_at(&self.phi[at], 1) > 0
            self.curved |= self.tables[at, 2] > 0 or self.tables[at, 3] > 0 or self.tables[at, 4] > 0
        self.piecewise_linear, self.stable = spread == 0 and not self.curved, spread == 0
        self.empty = np.flatnonzero(np.asarray(self.sqnorms) == 0).tolist()
        self.size = total(self.cost)
        self.margins = [None, None]
        self.far, self.mean_row = 8.0 * rows.d > FAR, None
        self.set_mean(0.0)

    cdef int perform(self, task_t* task) except -1 nogil:
        perform(self, self.rows, task)
        return 0

    def untouched(self):
        """Whether nothing has been done yet: W is 0."""
        return self.n_iter == 0 and not np.any(self.iterates.W)

    def of_rows(self, which):
        """The problem of these rows alone, at costs of the same sum for the same costs."""
        share = self.rows.m / len(which)
        return MarginCD(self.rows.select(which), np.asarray(self.positive)[which], np.asarray(self.cost)[which] * share,
                        list(np.asarray(self.tables)), group=np.asarray(self.group)[which], spread=self.spread,
                        targets=None if self.targets is None else np.asarray(self.targets)[which],
                        threads=self.threads)

    def coefficients(self, const double[::1] duals, Py_ssize_t lo, Py_ssize_t hi):
        """y_i a_i"""
        cdef Py_ssize_t i
        cdef double[::1] out = np.empty(hi - lo)
        with nogil:
            for i in range(lo, hi):
                out[i - lo] = duals[i] if self.positive[i] else -duals[i]
        return out

    def set_empty_duals(self):
        """And v is the mean of the margins."""
        if self.spread > 0:
            self._need_mean_row()
            self.set_mean(self.iterates.dot(self.mean_row))
        else:
            self.set_mean(0.0)

    def set_mean(self, double mean):
        """v: spread (g - v)^2 is in the tables. The duals of rows with x_i = 0 follow."""
        cdef Py_ssize_t at, i, j
        self.mean = mean
        for at in range(self.tables.shape[0]):
            for j in range(3):
                self.shifted[at, 2 + j] = self.tables[at, 2 + j] + 2 * self.spread
                self.shifted[at, 5 + j] = self.tables[at, 5 + j] - 2 * self.spread * mean
                self.shifted[at, 8 + j] = self.tables[at, 8 + j] + self.spread * mean * mean
        for i in self.empty:
            self.duals[i] = dual_at(&self.phi[self.group[i]], self.cost[i], margin_at_zero(self, i))

    def take_losses(self, tables):
        """Other losses in the place of these, as many, with kinks where these have them. Where there are duals the
        caller calls `resume`."""
        np.asarray(self.tables)[:] = tables
        np.asarray(self.shifted)[:, :2] = self.tables[:, :2]
        self.set_mean(self.mean)

    cdef _need_mean_row(self):
        if self.mean_row is None:
            self.mean_row, self.mean_row_sqnorm = self.mean_of_rows()

    def mean_of_rows(self):
        """(r, ||r||^2) where <r, w> is the mean of the margins; over Gram rows a sum over the scores."""
        share = np.asarray(self.cost) * (1 / self.size)
        weights = self.weights_of(share)
        mean_row = self.coefficients(share, 0, self.rows.m) if self.rows.is_gram else weights
        return mean_row, dot(mean_row, weights)

    def resume(self, state):
        DualEngine.resume(self, state)
        self.set_empty_duals()

    def set_skip_tolerance(self, double gap):
        """Where the mean moves with the margins, by steps of 1/(1 + K) of what is left to go, K twice spread times the
        sum of c ||x||^2, what rows leave undone adds up over these steps, and its gap is the square of that."""
        if self.spread > 0:
            self._need_mean_row()
        pull = 1 + 2 * self.spread * self.size * self.mean_row_sqnorm
        self.skip_tolerance = gap / (max(1, self.rows.m) * pull * pull)

    def models_at(self, margins):
        """(quad, slope) of each row's loss about its margin: phi' is quad z + slope at a z nearby."""
        cdef Py_ssize_t i
        cdef const loss_t* phi
        cdef const double[::1] g = np.ascontiguousarray(margins)
        cdef double[::1] quad = np.empty(self.rows.m), slope = np.empty(self.rows.m)
        with nogil:
            for i in range(self.rows.m):
                phi = <const loss_t*> &self.tables[self.group[i], 0]
                quad[i] = curvature_at(phi, g[i])
                slope[i] = slope_at(phi, g[i]) - quad[i] * g[i]
        return np.asarray(quad), np.asarray(slope)

    def loss_of(self, const double[::1] margins):
        """sum_i c_i phi(g_i)"""
        cdef Py_ssize_t i
        cdef double loss = 0
        with nogil:
            for i in range(self.rows.m):
                loss += self.cost[i] * loss_at(&self.phi[self.group[i]], margins[i])
        return loss

    def slopes_at(self, margins, double shift):
        """c_i phi'(g_i) at margins of scores that are all higher by the shift: array of shape (m,)"""
        cdef Py_ssize_t i
        cdef const double[::1] g = margins
        cdef double[::1] out = np.empty(self.rows.m)
        cdef double at
        with nogil:
            for i in range(self.rows.m):
                at = g[i] + (shift if self.positive[i] else -shift)
                out[i] = self.cost[i] * slope_at(&self.phi[self.group[i]], at)
        return np.asarray(out)

    def duals_near(self, const double[::1] duals, margins, double A, double shift):
        """The duals after a coordinate step of each row with this A, as if it were the only one and all scores were
        higher by the shift: array of shape (m,), within the duals' bounds. A large A keeps them near."""
        cdef Py_ssize_t i
        cdef const double[::1] g = margins
        cdef double[::1] out = np.empty(self.rows.m)
        cdef double at, curvature
        with nogil:
            for i in range(self.rows.m):
                at = g[i] + (shift if self.positive[i] else -shift)
                out[i] = coordinate_step(&self.phi[self.group[i]], self.cost[i], at - A * duals[i], A, g[i],
                                         &curvature)
        return np.asarray(out)

    def into_range(self):
        """Every dual goes to the nearest place where D is finite."""
        cdef Py_ssize_t i
        for i in range(self.rows.m):
            self.duals[i] = in_range(&self.phi[self.group[i]], self.cost[i], self.duals[i])

    def end_sweep(self, double gap, double loss, double tight):
        DualEngine.end_sweep(self, gap, loss, tight)
        if self.spread > 0:
            self.set_empty_duals()

    def shorten(self, Py_ssize_t start, Py_ssize_t stop, const double[::1] before, double t):
        cdef Py_ssize_t at, i
        with nogil:
            for at in range(start, stop):
                i = self.order[at]
                self.duals[i] = before[at] + t * (self.duals[i] - before[at])

    def primal(self, bint averaged=False):
        """Around a centre, for `line_search`, the margins are kept."""
        if self.iterates.kappa > 0 and self.margins[averaged] is None:
            self.margins[averaged] = self.rows.zeros(self.rows.m)
        value = self._primal(self.iterates.vector(averaged), self.margins[averaged])
        return value, value, 0

    def _primal(self, weights, margins):
        cdef double half = self.iterates.sqnorm_of(weights) / 2, loss, moment, value, mean
        loss, _, moment, _ = self.loss_sums(weights, margins)
        # The sum was taken about v: about the mean of these margins it is least.
        value = half + loss - self.spread * moment * moment / self.size
        mean = max(fabs(self.mean), fabs(self.mean + moment / self.size))
        if self.spread * self.size * mean * mean <= CANCELLED * fabs(value):
            return value
        if margins is None:
            margins = self.rows.zeros(self.rows.m)
            self.loss_sums(weights, margins)
        return self._objective(weights, margins)

    @property
    def rounding(self):
        """Of spread (g - v)^2, summed as g^2, g v and v^2."""
        return ROUNDING * self.spread * self.size * self.mean * self.mean

    def margins_of(self, weights):
        """g_i at these weights: array of shape (m,)"""
        margins = self.rows.zeros(self.rows.m)
        self._primal(weights, margins)
        return margins

    def line_search(self, weights, margins, bint averaged, double enough):
        """Move weights to where P is least on the line through them and W, or W_avg, as the last `primal` saw it around
        a centre, and then on that through 0; returns P, each time to within `enough`. Their margins follow."""
        iterates = self.iterates
        other = iterates.vector(averaged)
        far = iterates.sqdistance_of(other, weights)
        along = (iterates.sqnorm_of(other) - iterates.sqnorm_of(weights) - far) / 2
        turns = np.array(self.margins[averaged])
        iterates.mix(turns, 1.0, margins, -1.0)
        s = self._search(margins, turns, along, far, 0.5, enough)
        iterates.mix(weights, 1 - s, other, s)
        own = iterates.sqnorm_of(weights)
        turns = np.array(margins) if self.target == NULL else np.add(margins, self.targets)
        s = self._search(margins, turns, own, own, 0.05, enough)
        iterates.mix(weights, 1 + s, weights, 0.0)
        return self._objective(weights, margins)

    cdef double _objective(self, weights, const double[::1] margins) except? -1:
        """P of weights with these margins."""
        cdef Py_ssize_t i
        cdef double loss = self.spread * covariance(self.cost, margins, margins) if self.spread > 0 else 0.0
        with nogil:
            for i in range(self.rows.m):
                loss += self.cost[i] * loss_at(<const loss_t*> &self.tables[self.group[i], 0], margins[i])
        return self.iterates.sqnorm_of(weights) / 2 + loss

    cdef double _search(self, margins, turns, double along, double far, double t, double enough) except? -1:
        """margins += s turns to the least P; returns s, with |s| = t as the first trial. The norm's part of P is
        along s + far s^2/2."""
        if self.spread > 0:
            far += 2 * self.spread * covariance(self.cost, turns, turns)
            along += 2 * self.spread * covariance(self.cost, margins, turns)
        cdef double slope = along + self._slope(margins, turns, 0.0), sign = -1.0 if slope > 0 else 1.0
        cdef double low = 0, low_slope = -fabs(slope), high = INFINITY, high_slope = 0
        cdef int before = 0
        # What is to be gained is at most this, as P' grows by `far` at least.
        if slope * slope <= 2 * far * enough:
            return 0.0
        for _ in range(TRIALS):
            slope = sign * (along + sign * t * far + self._slope(margins, turns, sign * t))
            # Regula falsi, where the slope at an end that stays is halved (Illinois).
            if slope < 0:
                low, low_slope = t, slope
                high_slope *= 0.5 if before < 0 else 1.0
                before = -1
            else:
                high, high_slope = t, slope
                low_slope *= 0.5 if before > 0 else 1.0
                before = 1
            if fabs(slope) * (high - low) <= enough:
                break
            t = (low * high_slope - high * low_slope) / (high_slope - low_slope) if high < INFINITY else 2 * low
        else:
            t = low
        self.iterates.mix(margins, 1.0, turns, sign * t)
        return sign * t

    cdef double _slope(self, const double[::1] margins, const double[::1] turns, double t) except? -1:
        """The losses' part of P' at margins + t turns."""
        cdef Py_ssize_t i
        cdef double slope = 0
        with nogil:
            for i in range(self.rows.m):
                slope += self.cost[i] * turns[i] * slope_at(<const loss_t*> &self.tables[self.group[i], 0],
                                                            margins[i] + t * turns[i])
        PyErr_CheckSignals()
        return slope

    def dual(self):
        iterates = self.iterates
        return self._bound(self.duals, iterates.dual_sqnorm(), iterates.dual_dot)

    def averaged_dual(self):
        iterates = self.iterates
        return self._bound(self.mean_duals, iterates.averaged_sqnorm(), iterates.averaged_dot)

    def recomputed_dual(self, bint averaged, weights=None):
        duals = self._duals(averaged)
        weights = self.weights_of(duals) if weights is None else weights
        return self._bound(duals, self.iterates.sqnorm_of(weights), lambda row: dot(row, weights))

    def _bound(self, duals, double sqnorm, along):
        """D of duals with ||u||^2 and, along(.), <., u>."""
        return self.bound_of(*self.dual_sums(duals), sqnorm, along)

    def dual_sums(self, duals):
        """(h, h'/(2 spread)) of these duals, the latter 0 without spread."""
        cdef const double[::1] a = duals
        cdef const loss_t* phi
        cdef double h = 0, slope = 0
        cdef Py_ssize_t i
        with nogil:
            for i in range(self.rows.m):
                phi = &self.phi[self.group[i]]
                h += dual_term(phi, self.cost[i], a[i]) - a[i] * margin_at_zero(self, i)
                if self.spread > 0:
                    slope += self.cost[i] * (self.mean - conjugate_at(phi, -a[i] / self.cost[i]))
        return h, slope

    def sum_of_levels(self, const double[::1] duals):
        """sum_i c_i max_j |level_j| over the rows whose dual is not 0."""
        cdef Py_ssize_t i
        cdef double s = 0
        # Where a table has the constants of its pieces.
        cdef const double[::1] most = np.abs(np.asarray(self.tables)[:, 8:11]).max(axis=1)
        with nogil:
            for i in range(self.rows.m):
                s += self.cost[i] * most[self.group[i]] * (duals[i] != 0)
        return s

    def bound_of(self, double h, double slope, double sqnorm, along):
        """D of `dual_sums`, ||u||^2 and <., u>."""
        if self.spread > 0:
            self._need_mean_row()
            slope *= 2 * self.spread
            sqnorm += slope * (slope * self.mean_row_sqnorm - 2 * along(self.mean_row))
            h += slope * (slope / (4 * self.spread * self.size) - self.mean)
        return h - sqnorm / 2

    def count_of(self, duals):
        return int(np.count_nonzero(duals))

    def loss_at_zero(self):
        # Without targets all margins are 0, their mean is 0 too, and the spread adds nothing.
        cdef Py_ssize_t i
        cdef double value = 0
        cdef double[::1] same = np.empty(self.tables.shape[0])
        for i in range(self.tables.shape[0]):
            same[i] = loss_at(<const loss_t*> &self.tables[i, 0], 0.0)
        with nogil:
            for i in range(self.rows.m):
                value += self.cost[i] * (same[self.group[i]] if self.target == NULL else loss_at(
                    <const loss_t*> &self.tables[self.group[i], 0], margin_at_zero(self, i)))
        return value

    def condition(self):
        cdef Py_ssize_t i, at
        cdef const loss_t* phi
        cdef double whole = 0
        cdef double[::1] weight = np.empty(self.tables.shape[0])
        for at in range(self.tables.shape[0]):
            phi = &self.phi[at]
            weight[at] = max(jump_at(phi, 0), jump_at(phi, 1))
            for i in range(3):
                weight[at] = max(weight[at], phi.pieces.quad[i] / 2)
        for i in range(self.rows.m):
            whole += self.cost[i] * weight[self.group[i]] * self.sqnorms[i]
        return whole / self.rows.m


cdef double covariance(const double[::1] c, const double[::1] x, const double[::1] y) noexcept nogil:
    """sum_i c_i (x_i - mean of x) (y_i - mean of y)"""
    cdef Py_ssize_t i
    cdef double size = 0, first = 0, second = 0, s = 0
    for i in range(c.shape[0]):
        size += c[i]
        first += c[i] * x[i]
        second += c[i] * y[i]
    for i in range(c.shape[0]):
        s += c[i] * (x[i] - first / size) * (y[i] - second / size)
    return s


ctypedef fused engine_t:
    MarginCD

include "on_rows.pxi"


cdef inline void perform_on(MarginCD self, const rows_t* X, task_t* task) noexcept nogil:
    if task.what == UPDATE_ROWS:
        update_rows(self, X, task)
    elif task.what == ROWS_TO_FETCH:
        rows_to_fetch(self, X, task)
    elif task.what == SUM_LOSSES:
        sum_losses(self, X, task)
    else:
        add_rows(self, X, task)


cdef inline double margin_at_zero(MarginCD self, Py_ssize_t i) noexcept nogil:
    """g_i at w = 0: -z_i"""
    return 0.0 if self.target == NULL else -self.target[i]


cdef inline double margin_of(MarginCD self, Py_ssize_t i, double score) noexcept nogil:
    """g_i where <w, x_i> is this score"""
    cdef double g = score if self.positive[i] else -score
    return g if self.target == NULL else g - self.target[i]


cdef inline double strength(MarginCD self, Py_ssize_t i, const task_t* task) noexcept nogil:
    """A of row i's step."""
    cdef double A = self.sqnorms[i] * task.theta
    if task.before != NULL:
        A += task.extra * task.along[i] * task.along[i]
    return A


cdef inline double margin_step(MarginCD self, const rows_t* X, Py_ssize_t i, const task_t* task, double* g,
                               double* gap, double* loss) noexcept nogil:
    """Row i's dual after its exact minimum, its margin g, its gap before and its loss.

    Where the gap is negligible, the old dual.
    """
    g[0] = row_dot(X, i, task.W)
    if task.before != NULL:
        g[0] += task.extra * task.along[i] * task.pull[0]
    g[0] = margin_of(self, i, g[0])
    return visit(&self.phi[self.group[i]], self.cost[i], strength(self, i, task), g[0], self.duals[i],
                 self.skip_tolerance, gap, loss)


cdef inline void own_prefetch(MarginCD self, Py_ssize_t i) noexcept nogil:
    """Ask for row i's own numbers."""
    prefetch(&self.duals[i])
    prefetch(&self.cost[i])
    prefetch(&self.sqnorms[i])
    prefetch(&self.positive[i])
    prefetch(&self.group[i])
    if self.target != NULL:
        prefetch(&self.target[i])


cdef inline void note_step(MarginCD self, Py_ssize_t i, double g, double gap, double a, task_t* task) noexcept nogil:
    """The step from row i's dual to a, at the margin g, where it had this gap."""
    cdef const loss_t* phi = &self.phi[self.group[i]]
    cdef double c = self.cost[i], change = a - self.duals[i]
    task.sums.gain += gap - fenchel_gap(phi, c, g, a) - strength(self, i, task) / 2 * change * change
    task.sums.curvature += least_curvature(phi, c) * change * change
    task.pull[0] += (change if self.positive[i] else -change) * task.along[i]


cdef void update_rows(MarginCD self, const rows_t* X, task_t* task) noexcept nogil:
    """Coordinate steps: margin, exact minimum along the dual, update of the weights."""
    cdef Py_ssize_t at, i
    # Sums go on where the rows before were left, so that a stop changes no bit of them.
    cdef double g, a, own, own_loss, move, gap = task.sums.gap, loss = task.sums.loss
    cdef double* w = task.W
    for at in range(task.start, task.stop):
        i = self.order[at]
        if at + 2 * AHEAD < task.stop:
            place_prefetch(X, self.order[at + 2 * AHEAD])
        if at + AHEAD < task.stop:
            row_prefetch(X, self.order[at + AHEAD])
            own_prefetch(self, self.order[at + AHEAD])
        if self.far and at + 1 < task.stop:
            weights_prefetch(X, self.order[at + 1], w, 1)
        a = margin_step(self, X, i, task, &g, &own, &own_loss)
        row_turn(X, i)
        if a != self.duals[i] and not row_present(X, i):
            task.start = at
            break
        gap += own
        loss += own_loss
        if task.before != NULL:
            task.before[at] = self.duals[i]
            if a != self.duals[i]:
                note_step(self, i, g, own, a, task)
        note_visit(&self.skip[i], &self.idle[i], a != self.duals[i], MAX_SKIP)
        if a != self.duals[i]:
            move = (a - self.duals[i]) * task.theta
            row_axpy(X, i, move if self.positive[i] else -move, w)
            self.duals[i] = a
    else:
        task.start = task.stop
    task.sums.gap, task.sums.loss, task.sums.tight = gap, loss, loss


cdef void rows_to_fetch(MarginCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t at, i
    cdef double g, own, loss
    for at in range(task.start, task.stop):
        i = self.order[at]
        if not row_present(X, i) and margin_step(self, X, i, task, &g, &own, &loss) != self.duals[i]:
            task.found[task.count] = i
            task.count += 1
            if task.count == FETCH:
                return


cdef void sum_losses(MarginCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i
    cdef double g
    for i in range(task.start, task.stop):
        if self.far and i + 1 < task.stop:
            weights_prefetch(X, i + 1, task.W, 1)
        g = margin_of(self, i, row_dot(X, i, task.W))
        if task.values != NULL:
            task.values[i] = g
        task.sums.loss += self.cost[i] * loss_at(&self.phi[self.group[i]], g)
        task.sums.moment += self.cost[i] * (g - self.mean)


cdef void add_rows(MarginCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(task.start, task.stop):
        if self.far and i + 1 < task.stop and task.coefficients[i + 1] != 0:
            weights_prefetch(X, i + 1, task.W, 1)
        if task.coefficients[i] != 0:
            if not row_present(X, i):
                task.start = i
                return
            row_axpy(X, i, task.coefficients[i], task.W)
    task.start = task.stop
