"""Over a Gram matrix: steps of a BlockCD within an active set of rows.

A round has the scores of its rows class by class, and the columns of its own rows alone, gathered from a cache of
float32 rows as they are asked for. What rows outside add to the scores is in them from the start.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fmax, fmin
from libc.stdint cimport int32_t, uint64_t

from marginlinear._core.block_cd cimport BlockCD
from marginlinear._core.block_problem cimport dot, max_other, solve_hinge_block_by_class
from marginlinear._core.check cimport check
from marginlinear._core.joint_loss cimport SQUARED, fenchel_gap, joint_t, largest_dual, solve_block
from marginlinear._core.row_cache cimport RowCache, untouched
from marginlinear._core.shrinking cimport shuffle

cdef extern from "spread.h":
    ctypedef void (*spread_f "ml_spread_f")(const float* row, Py_ssize_t n, const double* c, double* const* sums,
                                            Py_ssize_t count) noexcept nogil
    spread_f spread_of "ml_spread_of"() noexcept nogil

ctypedef double* sums_p
cdef spread_f spread = spread_of()

cdef enum:
    ABSENT = -1
    LANES = 8       # columns of a set are a multiple of it
    MANY = 64       # classes that are added at once
    TURN = 2000     # visits between looks at the signals

# Passes from one step along what they have done to the next.
cdef int EVERY = 5
# Less of that way than this is not worth a step.
cdef double LITTLE = 0.1
# A pass leaves rows with less than this part of the mean gap of the pass before.
cdef double LEVEL = 0.1


cdef class ActiveBlocks:
    """Rounds on one engine.

    Parameters
    ----------
    engine : BlockCD
        Over Gram rows, without a centre. Duals, scores and the factors of classes are its own.
    cache : RowCache
        Of the same rows.
    room : int
        Bytes for the gathered columns of a set.
    company : int
        Rows that are made together.

    Attributes
    ----------
    steps : int
        So far.
    """

    cdef readonly BlockCD engine
    cdef readonly RowCache cache
    cdef readonly Py_ssize_t steps, room, company
    cdef Py_ssize_t n, k, wide, n_gathered
    cdef joint_t phi
    cdef uint64_t rng
    # Where the norm is not the one of all weights: scores are multiplied by the class's factor.
    cdef bint uneven
    cdef const double[::1] factor
    # Of the set's rows: their numbers, constants, duals; scores by class.
    cdef const int32_t[::1] where
    cdef int32_t[::1] y, rival
    cdef double[::1] cost, fixed, diagonal, beta
    cdef double[:, ::1] alpha, scores
    # The row of `gathered` of a row of the set is its slot, and that row's own number `stands`.
    cdef float[:, ::1] gathered
    cdef float[::1] columns
    cdef int32_t[::1] slot, stands
    cdef Py_ssize_t[::1] order
    cdef double[::1] scratch
    # Duals and scores where the last step along what passes have done began.
    cdef object before

    def __init__(self, BlockCD engine, RowCache cache, *, Py_ssize_t room, seed=0, Py_ssize_t company=32):
        self.engine, self.cache, self.room, self.company, self.rng = engine, cache, room, company, seed
        self.k, self.columns = engine.n_classes, np.empty(0, dtype=np.float32)
        self.scratch = np.empty(6 * self.k)
        self.uneven, self.factor = engine.uneven, engine.factor

    def round(self, const int32_t[::1] active, double part, double enough, Py_ssize_t most):
        """Steps at the rows `active`, until their gaps add up to no more than this part of them at the start, or to
        `enough`, or after `most` passes.

        Returns
        -------
        int32 array
            The rows whose duals have moved, rising.
        float64 array of shape (rows, k)
            The changes of their coefficients.
        bool
            Whether their gaps are as small as was asked for.
        """
        cdef Py_ssize_t turn
        cdef double left = 0, first = -1
        self._begin(active)
        before = self._coefficients()
        for turn in range(1, most + 1):
            left = self._pass(LEVEL * left / max(1, self.n))
            if first < 0:
                first = left
            if left <= max(part * first, enough):
                break
            if turn % EVERY == 0:
                self._go_on()
        change = self._coefficients() - before
        rows = np.asarray(active)
        np.asarray(self.engine.alpha)[rows] = self.alpha
        np.asarray(self.engine.beta)[rows] = self.beta
        moved = change.any(axis=1)
        return rows[moved], np.ascontiguousarray(change[moved]), left <= max(part * first, enough)

    def _begin(self, active):
        cdef Py_ssize_t n = len(active), k = self.k, room
        cdef BlockCD engine = self.engine
        rows = np.asarray(active)
        self.n, self.wide, self.where, self.phi = n, (n + LANES - 1) // LANES * LANES, active, engine.phi
        self.y, self.rival = np.asarray(engine.y)[rows], np.asarray(engine.rival)[rows]
        self.cost, self.fixed = np.asarray(engine.cost)[rows], np.asarray(engine.fixed)[rows]
        self.diagonal = engine.rows.sqnorms()[rows]
        self.alpha, self.beta = np.asarray(engine.alpha)[rows], np.asarray(engine.beta)[rows]
        self.scores = np.zeros((k, self.wide))
        np.asarray(self.scores)[:, :n] = engine.iterates.W[:engine.rows.m * k].reshape(-1, k)[rows].T
        self.before, self.n_gathered, self.slot = None, 0, np.full(n, ABSENT, dtype=np.int32)
        self.stands, self.order = np.empty(n, dtype=np.int32), np.arange(n)
        room = max(1, min(n, self.room // (4 * self.wide)))
        if self.columns.shape[0] < room * self.wide:
            self.columns = untouched(1, max(room * self.wide, self.room // 4))[0]
        self.gathered = np.asarray(self.columns)[:room * self.wide].reshape(room, self.wide)

    def _coefficients(self):
        """alpha_il - [l = y_i] beta_i + [l = r_i] beta_i"""
        out, rows = np.array(self.alpha), np.arange(self.n)
        if self.phi.upper:
            out[rows, self.y] -= self.beta
            if self.engine.named:
                out[rows, self.rival] += self.beta
        return out

    def _pass(self, double level):
        """One step at each row whose gap is above the level, in random order; the sum of all gaps as they were met."""
        cdef Py_ssize_t at = 0
        cdef double sum = 0
        shuffle(&self.order[0], self.n, &self.rng)
        while at < self.n:
            with nogil:
                at = self._visit(at, min(self.n, at + TURN), level, &sum)
            if at < self.n and self.slot[self.order[at]] == ABSENT:
                self._gather(at, level)
            PyErr_CheckSignals()
        return sum

    cdef double _gap(self, Py_ssize_t i, double* s) noexcept nogil:
        """That of row i, whose scores s becomes."""
        cdef Py_ssize_t l, y = self.y[i]
        for l in range(self.k):
            s[l] = self.scores[l, i] * (self.factor[l] if self.uneven else 1.0)
        return fenchel_gap(&self.phi, self.cost[i], s[y], max_other(s, self.k, y), self._reference(i, s),
                           self.alpha[i, y], self.beta[i], dot(&self.alpha[i, 0], s, self.k))

    cdef double _reference(self, Py_ssize_t i, const double* s) noexcept nogil:
        if not self.phi.upper:
            return 0
        return s[self.rival[i]] if self.engine.named else self.fixed[i]

    cdef Py_ssize_t _visit(self, Py_ssize_t start, Py_ssize_t stop, double level, double* sum) noexcept nogil:
        """Steps at the places start to stop of the order; the place of a row that is not gathered, or stop."""
        cdef Py_ssize_t at, i, l, r, y, k = self.k
        cdef double A, F, b, gap
        cdef double* s = &self.scratch[0]
        cdef double* B = s + k
        cdef double* v = B + k
        cdef double* a = v + k
        cdef double* change = a + k
        cdef double* curvature = change + k
        cdef const double* old
        for at in range(start, stop):
            i = self.order[at]
            gap = self._gap(i, s)
            if gap <= level:
                sum[0] += gap
                continue
            y, A, old, F = self.y[i], self.diagonal[i], &self.alpha[i, 0], 0
            r = self.rival[i] if self.phi.upper and self.engine.named else -1
            for l in range(k):
                curvature[l] = A * self.factor[l] if self.uneven else A
                B[l] = s[l] - curvature[l] * old[l] + self.phi.low
            B[y] -= self.phi.low
            if self.phi.upper:
                B[y] += A * self.beta[i]
                if r >= 0:
                    B[r] -= A * self.beta[i]
                    F = self.phi.high - (B[y] - (B[r] - self.phi.low))
                else:
                    F = self.phi.high + self.fixed[i] - B[y]
            if self.uneven:
                solve_hinge_block_by_class(B, k, y, curvature, self.cost[i], a)
                b = 0
            else:
                b = solve_block(&self.phi, B, k, y, A, self.cost[i], r, F, a, v)
            for l in range(k):
                change[l] = a[l] - old[l]
            if self.phi.upper:
                change[y] -= b - self.beta[i]
                if r >= 0:
                    change[r] += b - self.beta[i]
            if self._move(i, change):
                return at
            for l in range(k):
                self.alpha[i, l] = a[l]
            if self.phi.upper:
                self.beta[i] = b
            sum[0] += gap
            self.steps += 1
        return stop

    cdef bint _move(self, Py_ssize_t i, const double* change) noexcept nogil:
        """scores_l += change_l row i, over the set's columns; True, and nothing done, where the row is not gathered."""
        cdef Py_ssize_t l, count = 0
        cdef double[MANY] c
        cdef sums_p[MANY] to
        for l in range(self.k):
            if change[l] == 0:
                continue
            if self.slot[i] == ABSENT:
                return True
            if count == MANY:
                spread(&self.gathered[self.slot[i], 0], self.wide, c, to, count)
                count = 0
            c[count], to[count] = change[l], &self.scores[l, 0]
            count += 1
        if count:
            spread(&self.gathered[self.slot[i], 0], self.wide, c, to, count)
        return False

    cdef _gather(self, Py_ssize_t at, double level):
        """Let the row of the place `at` of the order stand among the gathered ones, in place of the one that does so
        for longest. Rows that will soon be asked for are made with it."""
        cdef Py_ssize_t i = self.order[at], j, u, place = self.n_gathered % self.gathered.shape[0]
        cdef Py_ssize_t most = min(self.company, self.cache.capacity)
        cdef int32_t row_number = self.where[i]
        cdef const float* row
        cdef float* out
        cdef list wanted
        if not self.cache.has(row_number):
            wanted = [row_number]
            u = at + 1
            while u < self.n and len(wanted) < most:
                j = self.order[u]
                u += 1
                if not self.cache.has(self.where[j]) and self.slot[j] == ABSENT and (
                        self._gap(j, &self.scratch[0]) > level):
                    wanted.append(self.where[j])
            self.cache.require(wanted)
        if self.n_gathered >= self.gathered.shape[0]:
            self.slot[self.stands[place]] = ABSENT
        row, out = self.cache.at(row_number), &self.gathered[place, 0]
        with nogil:
            for u in range(self.n):
                check(self.where[u], self.cache.m)
                out[u] = row[self.where[u]]
            for u in range(self.n, self.wide):
                out[u] = 0
        self.slot[i], self.stands[place] = <int32_t>place, <int32_t>i
        self.n_gathered += 1

    def _go_on(self):
        """Go on the way that the last passes went, to where D is highest; rows end where they would leave their range.

        Passes crawl along directions in which D hardly bends; what many of them have in common is such a one.
        """
        n, rows = self.n, np.arange(self.n)
        y, cost, scores = np.asarray(self.y), np.asarray(self.cost), np.asarray(self.scores)
        alpha, beta, before = np.asarray(self.alpha), np.asarray(self.beta), self.before
        self.before = alpha.copy(), beta.copy(), scores.copy()
        if before is None:
            return
        along, upwards, S = alpha - before[0], beta - before[1], scores - before[2]
        change = along.copy()
        if self.phi.upper:
            change[rows, y] -= upwards
            if self.engine.named:
                change[rows, self.rival] += upwards
        own, rise = alpha[rows, y], along[rows, y]
        factor = np.asarray(self.factor)[:, np.newaxis] if self.uneven else 1.0
        # What D rises by, a row and a unit of the way, and how it bends.
        slope, bend = self.phi.low * rise - (change * (factor * scores[:, :n]).T).sum(axis=1), np.zeros(n)
        if self.phi.kind == SQUARED:
            slope -= own * rise / (2 * cost)
            bend += rise * rise / (2 * cost)
        if self.phi.upper:
            slope -= upwards * (self.phi.high + (0 if self.engine.named else np.asarray(self.fixed)))
            slope -= beta * upwards / (2 * cost * self.phi.mu)
            bend += upwards * upwards / (2 * cost * self.phi.mu)
        curvature = (change * (factor * S[:, :n]).T).sum() + bend.sum()
        if not (slope.sum() > LITTLE * curvature and curvature > 0):
            return
        t = slope.sum() / curvature
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(along > 0, -alpha / along, np.inf)
            ends[rows, y] = np.inf if self.phi.kind == SQUARED else np.where(rise > 0, (cost - own) / rise, np.inf)
            way = np.minimum(np.minimum(t, ends.min(axis=1)), np.where(upwards < 0, -beta / upwards, np.inf))
        way = np.maximum(way, 0.0)
        total = (way * slope).sum()
        if not total > 0:
            return
        kept = scores.copy()
        scores += t * S
        self._add((way - t)[:, np.newaxis] * change)
        S = scores - kept
        curvature = ((way[:, np.newaxis] * change) * (factor * S[:, :n]).T).sum() + (way * way * bend).sum()
        part = min(1.0, total / curvature) if curvature > 0 else 1.0
        scores[:] = kept + part * S
        self._add_duals(part * way[:, np.newaxis] * along, part * way * upwards)

    def _add(self, const double[:, ::1] change):
        """The scores follow coefficients that change by this much."""
        cdef Py_ssize_t at = 0
        while at < self.n:
            with nogil:
                while at < self.n and not self._move(self.order[at], &change[self.order[at], 0]):
                    at += 1
            if at < self.n:
                self._gather(at, INFINITY)
        PyErr_CheckSignals()

    def _add_duals(self, const double[:, ::1] along, const double[::1] upwards):
        """The duals change by this much, which leads out of their range by rounding alone."""
        cdef Py_ssize_t i, l, y
        cdef double total, most
        with nogil:
            for i in range(self.n):
                y, total, most = self.y[i], 0, largest_dual(&self.phi, self.cost[i], self.k)
                for l in range(self.k):
                    if l != y:
                        self.alpha[i, l] = fmin(0.0, self.alpha[i, l] + along[i, l])
                        total -= self.alpha[i, l]
                if total > most:
                    for l in range(self.k):
                        self.alpha[i, l] *= most / total
                    total = most
                self.alpha[i, y] = total
                self.beta[i] = fmax(0.0, self.beta[i] + upwards[i])
