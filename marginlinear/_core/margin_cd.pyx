"""Dual coordinate descent for binary losses of the margin: one dual variable a row.

    P(w) = 1/2 ||w||^2 + sum_i c_i phi_i(g_i) + spread min_v sum_i c_i (g_i - v)^2,   g_i = y_i <w, x_i>, y_i = +1, -1

phi_i is one of a few tables (piecewise.pxd). With spread > 0 the best v is the mean of the margins, and v is a variable
of the problem: at a given v, spread (g - v)^2 goes into the tables, and v follows after every sweep.

    D(a) = -1/2 ||u||^2 + sum_i h_i(v),    u = sum_i a_i y_i x_i,    h_i(v) = min_z c_i phi_{i,v}(z) + a_i z

With spread > 0 that needs h'(v) = sum_i h_i'(v) = 0. Duals a - h'(v) c/sum c, with what pulls z to v lowered by the
same, have it, and bound P at any v:

    D = -1/2 ||u - h'(v) x||^2 + h(v) - v h'(v) + h'(v)^2/(4 spread sum c),    x = sum_i c_i y_i x_i/sum c

All duals start at 0. Where that is out of a dual's range (piecewise.pxd) D is -inf, no bound, until a sweep has visited
every row.

The sweeps run around a centre (iterates.pyx): row i's step has A = ||x_i||^2/(1 + kappa), and w moves by 1/(1 + kappa)
times the change of the dual.

A dual that a visit leaves where it is sits at a bound or a kink of D, without a gap, and most of those stay there. Such
a row rests for as many sweeps as it had calm visits in a row before. No row is left out for good, and values of P and D
see all rows, so that there is nothing to undo at the end.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, uint8_t, uint64_t

from marginlinear._core.shrinking cimport keep_awake, shuffle
from marginlinear._core.iterates cimport Iterates
from marginlinear._core.piecewise cimport (
    conjugate_at,
    dual_at,
    dual_term,
    gap_of,
    jump_at,
    loss_at,
    pieces_t,
    slope_at,
    step_to,
)
from marginlinear._core.rows cimport (
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
from marginlinear._core.vector import (
    Buffer,
    assign,
    clear,
    copied,
    count_nonzero,
    dot,
    largest_change,
    scaled,
    seen,
    total,
    zeros,
)
from marginlinear.threads import run_chunks

# Work of one slice between looks at the signals: about 20 ms.
cdef double SLICE = 2e7
# Bytes of weights from which on asking for them ahead of a row's turn saves more than it costs.
cdef double FAR = 8e6
# Rows between the request for a row's values and its turn.
# P is summed about the mean of the margins, from the margins, where v^2 is so many times as large, and has a ROUNDING.
cdef double CANCELLED = 1e6, ROUNDING = 1e-14
cdef enum:
    AHEAD = 3
    LONGEST_REST = 16    # sweeps
    PIECES = 11          # numbers of a loss: sizeof(pieces_t) in doubles
    TRIALS = 30          # of a search along a line


cdef struct sums_t:
    double gap        # sum_i of the rows' gaps, each before its own update
    double loss       # sum_i c_i phi_{i,v}(g_i)
    double first      # sum_i c_i (g_i - v)


cdef enum Work:
    VISIT    # coordinate steps at the rows order[start:stop]; start becomes the first that was not made
    SEEK     # found[:count]: rows of order[start:stop] that are absent, and whose step is not 0; nothing changed
    LOSSES   # sums at rows start to stop, and their margins; nothing else changed
    ADD      # W += sum_i y_i dual_i x_i; start becomes the first that was not added


cdef struct task_t:
    Work what
    Py_ssize_t start
    Py_ssize_t stop
    sums_t* sums
    const double* dual
    double* W
    double* margins    # NULL: not wanted
    Py_ssize_t* found
    Py_ssize_t count


def table_of(knots, parts):
    """One row of `tables`: a loss of len(parts) pieces, 1 to 3, cut at `knots`, each piece (quad, slope, level)."""
    knots, parts = list(knots), list(parts)
    knots += [knots[len(knots) - 1] if knots else 0.0] * (2 - len(knots))
    parts += [parts[len(parts) - 1]] * (3 - len(parts))
    cdef Py_ssize_t j
    found = Buffer("d", PIECES)
    cdef double[::1] row = found
    row[0], row[1] = knots
    for j, (quad, slope, level) in enumerate(parts):
        row[2 + j], row[5 + j], row[8 + j] = quad, slope, level
    return found


cdef class MarginCD:
    """State and sweeps of one problem. Arrays are Buffers, or what the caller gave; attributes show them as NumPy's.

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
    seed : int
    threads : int
        For passes that only read; sweeps use one.

    Attributes
    ----------
    iterates : Iterates
        W, flat.
    duals : float64 array of shape (m,)
        a_i, in the direction of the margin.
    mean : float
        v.
    negligible : float
        A row whose gap is not above it is left as it is.
    visits : int
        Of rows, by all sweeps.
    kinked : bool
        Whether the derivative of a loss jumps.
    stable : bool
        Whether v is no variable: where it follows the margins, sweeps that have not caught up with it may diverge.
    curved, flat : bool
        Whether a loss has curvature; whether none has, and there is no spread.
    """

    lines = True

    cdef readonly Rows rows
    cdef readonly Iterates iterates
    cdef readonly object before
    cdef readonly double spread, mean, gap, loss, slack, size, excess
    cdef public Py_ssize_t n_iter
    cdef readonly double negligible
    cdef readonly Py_ssize_t visits
    cdef readonly bint kinked, curved, flat, stable
    cdef bint far
    cdef readonly int threads
    cdef uint64_t rng
    cdef Py_ssize_t visited, slice_rows
    cdef object _y, _cost, _duals, _mean_duals, _kept_duals, _group, _tables, _shifted
    cdef object _order, _sqnorm, _mean_row, _rest, _calm, _margins
    cdef list empty
    cdef uint8_t[::1] rest, calm
    cdef double[::1] a, sq
    cdef const double[::1] c
    cdef double mean_row_sqnorm
    cdef const int32_t[::1] positive, which
    cdef Py_ssize_t[::1] order
    cdef double[:, ::1] table, shifted
    cdef const pieces_t* phi

    def __init__(self, Rows rows, y, cost, tables, *, group=None, double spread=0.0, seed=0, int threads=1):
        cdef Py_ssize_t i, at, m = rows.m
        cdef const double[::1] row
        self.rows, self._y, self._cost, self.spread = rows, y, cost, spread
        self.threads, self.rng, self.slack = threads, seed, 0.0
        self.negligible = -INFINITY
        self.iterates = Iterates(rows.d, rows.is_gram)
        self._duals = zeros("d", m)
        self._group = zeros("i", m) if group is None else group
        self._tables = Buffer("d", len(tables), PIECES)
        self.table = self._tables
        for at, row in enumerate(tables):
            self.table[at, :] = row
        self._shifted = copied(self._tables)
        self.shifted = self._shifted
        self.phi = <const pieces_t*> &self.shifted[0, 0]
        for at in range(self.table.shape[0]):
            self.kinked |= jump_at(&self.phi[at], 0) > 0 or jump_at(&self.phi[at], 1) > 0
            self.curved |= self.table[at, 2] > 0 or self.table[at, 3] > 0 or self.table[at, 4] > 0
        self.flat, self.stable = spread == 0 and not self.curved, spread == 0
        self._sqnorm = rows.sqnorms()
        self._order = Buffer("q", m)
        self.a, self.c, self.sq, self.order = self._duals, self._cost, self._sqnorm, self._order
        self.positive, self.which = self._y, self._group
        self.empty = []
        for i in range(m):
            if self.sq[i] == 0:
                self.empty.append(i)
        self.size = total(self._cost)
        self._margins = [None, None]
        self._rest, self._calm = zeros("B", m), zeros("B", m)
        self.rest, self.calm = self._rest, self._calm
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * m / (1.0 + <double>rows.nnz)))
        self.far = 8.0 * rows.d > FAR
        if spread > 0:
            # <mean_row, w> is the mean of the margins; over Gram rows a sum over the scores.
            share = scaled(self._cost, 1 / self.size)
            weights = self.summed(share)
            self._mean_row = self._signed(share) if rows.is_gram else weights
            self.mean_row_sqnorm = dot(self._mean_row, weights)
        self.settle()

    @property
    def y(self):
        return seen(self._y)

    @property
    def cost(self):
        return seen(self._cost)

    @property
    def duals(self):
        return seen(self._duals)

    @property
    def mean_duals(self):
        return seen(self._mean_duals)

    @property
    def group(self):
        return seen(self._group)

    @property
    def tables(self):
        return seen(self._tables)

    def _signed(self, const double[::1] values):
        """y_i times values: of rows' duals, or the reverse."""
        cdef Py_ssize_t i
        found = Buffer("d", values.shape[0])
        cdef double[::1] out = found
        for i in range(values.shape[0]):
            out[i] = values[i] if self.positive[i] else -values[i]
        return found

    def settle(self):
        """v is the mean of the margins. A row with x_i = 0 has g_i = 0 for any w: its dual leaves no gap there."""
        cdef Py_ssize_t i
        if self.spread > 0:
            self._set_mean(self.iterates.dot(self._mean_row))
        for i in self.empty:
            self.a[i] = dual_at(&self.phi[self.which[i]], self.c[i], 0.0)

    def _set_mean(self, double mean):
        """Put spread (g - mean)^2 into the tables."""
        cdef Py_ssize_t at, j
        self.mean = mean
        for at in range(self.table.shape[0]):
            for j in range(3):
                self.shifted[at, 2 + j] = self.table[at, 2 + j] + 2 * self.spread
                self.shifted[at, 5 + j] = self.table[at, 5 + j] - 2 * self.spread * mean
                self.shifted[at, 8 + j] = self.table[at, 8 + j] + self.spread * mean * mean

    def resume(self, state):
        """Go on from the `state()` of an engine on the same rows; where a row's cost changed, without spread, from the
        mix of warm_start.py, with spread from scaled duals. W may be None: that of the duals."""
        clear(self._rest)
        before = state.get("before")
        if self.spread == 0 and largest_change(self._cost, state["cost"]) != 0:
            duals, cost = seen(state["duals"]), seen(state["cost"])
            self.before = {"duals": duals, "cost": cost}
            self.duals[:], U = self._mixed(duals, cost, before)
            self.iterates.resume(U, U, 0.0)
        else:
            self.before = before
            self._rescale(state["duals"], state["cost"])
            U = self.summed(self._duals)
            self.iterates.resume(U if state["W"] is None else state["W"], U, state["kappa"])
        self.settle()

    def _rescale(self, const double[:] duals, const double[:] cost):
        """Duals of another cost, by its ratio, cut as `_cut` does it."""
        cdef Py_ssize_t i, at
        cdef double low, high
        for i in range(self.rows.m):
            at = self.which[i]
            low = -self.shifted[at, 7] if self.shifted[at, 4] == 0 else -INFINITY
            high = -self.shifted[at, 5] if self.shifted[at, 2] == 0 else INFINITY
            self.a[i] = min(max(duals[i] * (self.c[i] / cost[i]), self.c[i] * low), self.c[i] * high)

    def _mixed(self, duals, cost, before):
        """(duals, U): the best mix of the duals of another cost, and of those before, with its weights."""
        import numpy as np

        from marginlinear.algorithms.warm_start import best_mix, best_step, extrapolated

        force = duals / cost
        knot, curvature = self._pieces(force)
        low, high = self._range()
        held = np.where((force <= low) | (force >= high), force * self.cost, 0.0)
        parts = [duals]
        if before is not None:
            pair = before["duals"], before["cost"]
            parts += [extrapolated(duals, cost, pair, self.cost), before["duals"]]
        parts = [np.where(held == 0, part, 0.0) for part in parts]
        parts = np.array([part for part in parts if part.any()]).reshape(-1, self.rows.m)
        sqnorm_of = self.iterates.sqnorm_of

        def values(parts):
            return parts @ knot, (parts * (curvature / self.cost)) @ parts.T

        def inside(duals, U):
            """Cut off, with the weights that go with it: a pass over the rows that are cut."""
            cut = self._cut(duals)
            return cut, U + self.weights_of(cut - duals)

        images = [self.weights_of(part) for part in parts]
        fixed = self.weights_of(held) if held.any() else None
        U = images[0] if fixed is None and duals.any() else self.weights_of(duals)
        scale = best_mix([U], sqnorm_of, *values(duals[np.newaxis]))
        old, here = inside(scale * duals, scale * U)
        shares = best_mix(images, sqnorm_of, *values(parts), fixed)
        mixed = sum((t * image for t, image in zip(shares, images, strict=True)),
                    np.zeros_like(U) if fixed is None else fixed)
        new, there = inside(held + shares @ parts, mixed)
        step = best_step(here, there, sqnorm_of, *values(np.array([old, new])))
        return self._cut(old + step * (new - old)), here + step * (there - here)

    def _pieces(self, force):
        """(l, h) of D's terms l a - h a^2/(2 c) for rows where -phi' is `force`: at a knot h = 0."""
        import numpy as np

        knot, curvature = np.zeros(self.rows.m), np.zeros(self.rows.m)
        for at, table in enumerate(self.tables):
            knots, quad, slope = table[:2], table[2:5], table[5:8]
            # phi' where each piece ends and the next begins.
            edges = [part[j] * knots[i] + slope[j] for i in range(2) for part, j in ((quad, i), (quad, i + 1))]
            which = np.flatnonzero(self.group == at)
            place = np.searchsorted(edges, -force[which], side="left")
            place[-force[which] == edges[0]] = 1 if quad[0] == 0 else 0
            piece = place // 2
            inside = (place % 2 == 0) & (quad[piece] > 0)
            knot[which] = np.where(inside, -slope[piece] / np.where(inside, quad[piece], 1.0),
                                   knots[np.minimum(piece, 1)])
            curvature[which] = np.where(inside, 1 / np.where(inside, quad[piece], 1.0), 0.0)
        return knot, curvature

    def _range(self):
        """The least and the largest -phi' of each row."""
        import numpy as np

        shifted, group = np.asarray(self._shifted), self.group
        quad, slope = shifted[:, 2:5], shifted[:, 5:8]
        low = np.where(quad[:, 2] == 0, -slope[:, 2], -np.inf)
        high = np.where(quad[:, 0] == 0, -slope[:, 0], np.inf)
        return low[group], high[group]

    def _cut(self, duals):
        """Duals within the range of -c phi', which the loss of other parameters may not share."""
        import numpy as np

        low, high = self._range()
        return np.clip(duals, self.cost * low, self.cost * high)

    def state(self, bint averaged):
        """What `resume` needs: the duals (or their averages) and the weights."""
        return {"duals": self._chosen(averaged), "cost": self._cost, "W": self.iterates.vector(False),
                "kappa": self.iterates.kappa, "before": self.before}

    def working_arrays(self):
        """(duals, y, cost, group, tables), for steps of another kind, which change the duals."""
        return self._duals, self._y, self._cost, self._group, self._tables

    def keep_duals(self, bint averaged):
        """From here on `state`, `recomputed_dual` and `count_support` speak of these duals as they are now."""
        if self._kept_duals is None:
            self._kept_duals = Buffer("d", self.rows.m)
        assign(self._kept_duals, self._mean_duals if averaged else self._duals)

    def _chosen(self, bint averaged):
        if self._kept_duals is not None:
            return self._kept_duals
        return self._mean_duals if averaged else self._duals

    def neglect(self, double gap):
        """Leave rows as they are whose gaps add up to no more than `gap`, each an equal share of it.

        Where the mean moves with the margins, by steps of 1/(1 + K) of what is left to go, K = 2 spread sum c ||x||^2,
        what rows leave undone adds up over these steps, and its gap is the square of that.
        """
        pull = 1 + 2 * self.spread * self.size * self.mean_row_sqnorm
        self.negligible = gap / (max(1, self.rows.m) * pull * pull)

    def sweep(self):
        """Visit every row once in a new random order, but those that rest. Sets sums over the rows as they were met:
        `gap` and `loss`."""
        cdef Py_ssize_t start
        cdef sums_t sums
        cdef task_t task
        sums.gap = sums.loss = 0
        task.what, task.sums = VISIT, &sums
        self.rows.begin_pass()
        with nogil:
            self.visited = keep_awake(&self.sq[0], &self.rest[0], self.rows.m, &self.order[0])
            shuffle(&self.order[0], self.visited, &self.rng)
        self.visits += self.visited
        for start in range(0, self.visited, self.slice_rows):
            task.start, task.stop = start, min(self.visited, start + self.slice_rows)
            self._perform(&task)
        self.gap, self.loss = sums.gap, sums.loss
        if self.spread > 0:
            self.settle()
        self.n_iter += 1

    cdef _perform(self, task_t* task):
        """The task, with rows fetched where it has stopped for them, and a look at the signals."""
        while True:
            with nogil:
                perform(self, self.rows, task)
            PyErr_CheckSignals()
            if task.start == task.stop:
                return
            import numpy as np

            if task.what == ADD:
                dual = np.asarray(<const double[:self.rows.m]> task.dual)
                self.rows.fetch(task.start + np.flatnonzero(dual[task.start:]))
            else:
                self.rows.fetch(self._wanted(task))

    cdef _wanted(self, const task_t* stopped):
        """The absent rows, from where the visit stopped on, whose duals would change at the present scores."""
        import numpy as np

        cdef Py_ssize_t[::1] found = np.empty(FETCH, dtype=np.intp)
        cdef task_t task = stopped[0]
        task.what, task.stop, task.found, task.count = SEEK, self.visited, &found[0], 0
        with nogil:
            perform(self, self.rows, &task)
        return np.asarray(found)[:task.count]

    def primal(self, bint averaged=False):
        """(P, P, 0) at W, or at W_avg, exactly, by one pass over the rows. Around a centre, for `approach`, the margins
        are kept."""
        if self.iterates.kappa > 0 and self._margins[averaged] is None:
            self._margins[averaged] = Buffer("d", self.rows.m)
        value = self._primal(self.iterates.vector(averaged), self._margins[averaged])
        return value, value, 0

    def _primal(self, weights, margins):
        cdef double half = self.iterates.sqnorm_of(weights) / 2, loss, first, value, mean
        loss, first = self._losses(weights, margins)
        # The sum was taken about v: about the mean of these margins it is least.
        value = half + loss - self.spread * first * first / self.size
        mean = max(fabs(self.mean), fabs(self.mean + first / self.size))
        if self.spread * self.size * mean * mean <= CANCELLED * fabs(value):
            return value
        if margins is None:
            margins = Buffer("d", self.rows.m)
            self._losses(weights, margins)
        return self._objective(weights, margins)

    def _losses(self, weights, margins):
        parts = run_chunks(lambda lo, hi: self._primal_part(lo, hi, weights, margins), self.rows.m, self.threads)
        return sum(part[0] for part in parts), sum(part[1] for part in parts)

    @property
    def rounding(self):
        """What rounding may take from D beside a part of its value: spread (g - v)^2 is summed as g^2, g v and v^2."""
        return ROUNDING * self.spread * self.size * self.mean * self.mean

    def _primal_part(self, Py_ssize_t lo, Py_ssize_t hi, double[::1] W, double[::1] margins):
        cdef Py_ssize_t start
        cdef sums_t sums
        cdef task_t task
        sums.gap = sums.loss = sums.first = 0
        task.what, task.sums, task.W = LOSSES, &sums, &W[0]
        task.margins = NULL if margins is None else &margins[0]
        for start in range(lo, hi, self.slice_rows):
            task.start, task.stop = start, min(hi, start + self.slice_rows)
            with nogil:
                perform(self, self.rows, &task)
            PyErr_CheckSignals()
        return sums.loss, sums.first

    def margins_of(self, weights):
        """y_i <weights, x_i>: a Buffer of shape (m,)"""
        margins = Buffer("d", self.rows.m)
        self._primal(weights, margins)
        return margins

    def approach(self, weights, margins, bint averaged, double enough):
        """Move weights to where P is least on the line through them and W, or W_avg, as the last `primal` saw it around
        a centre, and then on that through 0; returns P, each time to within `enough`. Their margins follow."""
        iterates = self.iterates
        other = iterates.vector(averaged)
        far = iterates.sqdistance_of(other, weights)
        along = (iterates.sqnorm_of(other) - iterates.sqnorm_of(weights) - far) / 2
        turns = copied(self._margins[averaged])
        iterates.mix(turns, 1.0, margins, -1.0)
        s = self._search(margins, turns, along, far, 0.5, enough)
        iterates.mix(weights, 1 - s, other, s)
        own = iterates.sqnorm_of(weights)
        s = self._search(margins, copied(margins), own, own, 0.05, enough)
        iterates.mix(weights, 1 + s, weights, 0.0)
        return self._objective(weights, margins)

    cdef double _objective(self, weights, const double[::1] margins) except? -1:
        """P of weights with these margins."""
        cdef Py_ssize_t i
        cdef double loss = self.spread * covariance(self.c, margins, margins) if self.spread > 0 else 0.0
        with nogil:
            for i in range(self.rows.m):
                loss += self.c[i] * loss_at(<const pieces_t*> &self.table[self.which[i], 0], margins[i])
        return self.iterates.sqnorm_of(weights) / 2 + loss

    cdef double _search(self, margins, turns, double along, double far, double t, double enough) except? -1:
        """margins += s turns to the least P; returns s, with |s| = t as the first trial. The norm's part of P is
        along s + far s^2/2."""
        if self.spread > 0:
            far += 2 * self.spread * covariance(self.c, turns, turns)
            along += 2 * self.spread * covariance(self.c, margins, turns)
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
                slope += self.c[i] * turns[i] * slope_at(<const pieces_t*> &self.table[self.which[i], 0],
                                                         margins[i] + t * turns[i])
        PyErr_CheckSignals()
        return slope

    def dual(self):
        """D at the duals of the sweeps."""
        iterates = self.iterates
        return self._bound(self._duals, iterates.dual_sqnorm(), iterates.dual_dot)

    def averaged_dual(self):
        """D at the averaged duals."""
        iterates = self.iterates
        return self._bound(self._mean_duals, iterates.averaged_sqnorm(), iterates.averaged_dot)

    def dual_weights(self, bint averaged):
        """u of the duals, or of their averages, summed afresh from the rows."""
        return self.summed(self._chosen(averaged))

    def recompute_scores(self):
        """Over Gram rows: the scores of W, summed afresh from its coefficients."""
        W = self.iterates.vector(False)
        assign(W, self.summed(self._signed(memoryview(W)[self.rows.m:])))

    def refresh(self):
        """The weights summed afresh from the rows: what many small changes have rounded away comes back."""
        if self.rows.is_gram:
            self.recompute_scores()
        self.iterates.refresh(self.summed(self._duals))
        self.settle()

    def recomputed_dual(self, bint averaged, weights=None):
        """D at the duals, or at their averages, with their `dual_weights`, recomputed unless they are given."""
        duals = self._chosen(averaged)
        weights = self.summed(duals) if weights is None else weights
        return self._bound(duals, self.iterates.sqnorm_of(weights), lambda row: dot(row, weights))

    def _bound(self, duals, double sqnorm, along):
        """D of duals with ||u||^2 and, along(.), <., u>."""
        cdef const double[::1] a = duals
        cdef const pieces_t* phi
        cdef double h = 0, slope = 0
        cdef Py_ssize_t i
        with nogil:
            for i in range(self.rows.m):
                phi = &self.phi[self.which[i]]
                h += dual_term(phi, self.c[i], a[i])
                if self.spread > 0:
                    slope += self.c[i] * (self.mean - conjugate_at(phi, -a[i] / self.c[i]))
        if self.spread > 0:
            slope *= 2 * self.spread
            sqnorm += slope * (slope * self.mean_row_sqnorm - 2 * along(self._mean_row))
            h += slope * (slope / (4 * self.spread * self.size) - self.mean)
        return h - sqnorm / 2

    def weights_at(self, state):
        """The weights of a vector such as W."""
        return state

    def count_support(self, bint averaged):
        """Rows with a non-zero dual."""
        return count_nonzero(self._chosen(averaged))

    def average(self, double weight, double A, double a):
        """Add the duals to their average with this weight; returns what Iterates.average does."""
        cdef Py_ssize_t i
        cdef double[::1] mean
        if self._mean_duals is None:
            self._mean_duals = zeros("d", self.rows.m)
        if weight == 1:
            assign(self._mean_duals, self._duals)
        else:
            mean = self._mean_duals
            with nogil:
                for i in range(self.a.shape[0]):
                    mean[i] += weight * (self.a[i] - mean[i])
        return self.iterates.average(weight, A, a)

    def loss_at_zero(self):
        """P(0)."""
        # With all margins 0 their mean is 0 too, and the spread adds nothing.
        cdef Py_ssize_t i
        cdef double value = 0
        for i in range(self.rows.m):
            value += self.c[i] * loss_at(<const pieces_t*> &self.table[self.which[i], 0], 0.0)
        return value

    def start_over(self):
        """Duals and weights of 0, plain sweeps."""
        clear(self._duals)
        clear(self._rest)
        self.iterates.plain()
        clear(self.iterates.vector(False))
        self.settle()

    def adapt(self):
        """The problem of the sweeps is that of the method, whatever the weights."""

    def adopt(self):
        """Go on from the averaged duals and weights."""
        assign(self._duals, self._mean_duals)
        clear(self._rest)
        self.iterates.adopt()
        self.settle()

    def stiffness(self):
        """Mean of c_i ||x_i||^2 times the loss's own weight: how far a row's loss outweighs the norm of W."""
        cdef Py_ssize_t i, at
        cdef const pieces_t* phi
        cdef double whole = 0
        cdef double[::1] weight = Buffer("d", self.table.shape[0])
        for at in range(self.table.shape[0]):
            phi = &self.phi[at]
            weight[at] = max(jump_at(phi, 0), jump_at(phi, 1), phi.quad[0] / 2, phi.quad[1] / 2, phi.quad[2] / 2)
        for i in range(self.rows.m):
            whole += self.c[i] * weight[self.which[i]] * self.sq[i]
        return whole / self.rows.m

    def weights_of(self, duals):
        """u of these duals, summed afresh: flat float64 array of shape (d,)."""
        return seen(self.summed(duals))

    def summed(self, const double[::1] dual):
        flat = zeros("d", self.rows.d)
        cdef double[::1] W = flat
        cdef task_t task
        cdef Py_ssize_t start, m = self.rows.m
        self.rows.begin_pass()
        task.what, task.dual, task.W = ADD, &dual[0], &W[0]
        for start in range(0, m, self.slice_rows):
            task.start, task.stop = start, min(m, start + self.slice_rows)
            self._perform(&task)
        return flat


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
    if task.what == VISIT:
        visit(self, X, task)
    elif task.what == SEEK:
        seek(self, X, task)
    elif task.what == LOSSES:
        losses(self, X, task)
    else:
        accumulate(self, X, task)


cdef inline double step_of(MarginCD self, const rows_t* X, Py_ssize_t i, double shrink, double* g,
                           double* gap) noexcept nogil:
    """Row i's dual after its exact minimum, its margin g and its gap before.

    Where the gap is negligible, the old dual.
    """
    cdef double A = self.sq[i] * shrink, curvature
    cdef const pieces_t* phi = &self.phi[self.which[i]]
    g[0] = row_dot(X, i, &self.iterates.w[0])
    if not self.positive[i]:
        g[0] = -g[0]
    gap[0] = gap_of(phi, self.c[i], g[0], self.a[i])
    if gap[0] <= self.negligible:
        return self.a[i]
    return step_to(phi, self.c[i], g[0] - A * self.a[i], A, &curvature)


cdef inline void own_prefetch(MarginCD self, Py_ssize_t i) noexcept nogil:
    """Ask for row i's own numbers."""
    prefetch(&self.a[i])
    prefetch(&self.c[i])
    prefetch(&self.sq[i])
    prefetch(&self.positive[i])
    prefetch(&self.which[i])


cdef void visit(MarginCD self, const rows_t* X, task_t* task) noexcept nogil:
    """Coordinate steps: margin, exact minimum along the dual, update of the weights."""
    cdef Py_ssize_t at, i
    cdef double shrink = 1 / (1 + self.iterates.kappa)
    # Sums go on where the rows before were left, so that a stop changes no bit of them.
    cdef double g, a, own, move, gap = task.sums.gap, loss = task.sums.loss
    cdef double* w = &self.iterates.w[0]
    for at in range(task.start, task.stop):
        i = self.order[at]
        if at + 2 * AHEAD < task.stop:
            place_prefetch(X, self.order[at + 2 * AHEAD])
        if at + AHEAD < task.stop:
            row_prefetch(X, self.order[at + AHEAD])
            own_prefetch(self, self.order[at + AHEAD])
        if self.far and at + 1 < task.stop:
            weights_prefetch(X, self.order[at + 1], w, 1)
        a = step_of(self, X, i, shrink, &g, &own)
        row_turn(X, i)
        if a != self.a[i] and not row_present(X, i):
            task.start = at
            break
        gap += own
        loss += self.c[i] * loss_at(&self.phi[self.which[i]], g)
        if a != self.a[i]:
            move = (a - self.a[i]) * shrink
            row_axpy(X, i, move if self.positive[i] else -move, w)
            self.a[i] = a
            self.calm[i] = 0
        else:
            self.rest[i] = self.calm[i]
            self.calm[i] += self.calm[i] < LONGEST_REST
    else:
        task.start = task.stop
    task.sums.gap, task.sums.loss = gap, loss


cdef void seek(MarginCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t at, i
    cdef double g, own, shrink = 1 / (1 + self.iterates.kappa)
    for at in range(task.start, task.stop):
        i = self.order[at]
        if not row_present(X, i) and step_of(self, X, i, shrink, &g, &own) != self.a[i]:
            task.found[task.count] = i
            task.count += 1
            if task.count == FETCH:
                return


cdef void losses(MarginCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i
    cdef double g
    for i in range(task.start, task.stop):
        if self.far and i + 1 < task.stop:
            weights_prefetch(X, i + 1, task.W, 1)
        g = row_dot(X, i, task.W)
        if not self.positive[i]:
            g = -g
        if task.margins != NULL:
            task.margins[i] = g
        task.sums.loss += self.c[i] * loss_at(&self.phi[self.which[i]], g)
        task.sums.first += self.c[i] * (g - self.mean)


cdef void accumulate(MarginCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(task.start, task.stop):
        if self.far and i + 1 < task.stop and task.dual[i + 1] != 0:
            weights_prefetch(X, i + 1, task.W, 1)
        if task.dual[i] != 0:
            if not row_present(X, i):
                task.start = i
                return
            row_axpy(X, i, task.dual[i] if self.positive[i] else -task.dual[i], task.W)
    task.start = task.stop
