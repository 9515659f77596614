"""Over a Gram matrix: steps of a BlockCD within an active set of rows.

A round has the scores of its rows class by class, and the columns of its own rows alone, gathered from a cache of
float32 rows as they are asked for. What rows outside add to the scores is in them from the start.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint64_t

from marginlinear._core.block_cd cimport BlockCD
from marginlinear._core.block_problem cimport dot, max_other
from marginlinear._core.check cimport check
from marginlinear._core.joint_loss cimport fenchel_gap, joint_t, solve_block
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

# A pass leaves rows with less than this part of the mean gap of the pass before.
cdef double LEVEL = 0.1


cdef class ActiveBlocks:
    """Rounds on one engine.

    Parameters
    ----------
    engine : BlockCD
        With p = 2, over Gram rows. Duals and scores are its own.
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

    def __init__(self, BlockCD engine, RowCache cache, *, Py_ssize_t room, seed=0, Py_ssize_t company=32):
        self.engine, self.cache, self.room, self.company, self.rng = engine, cache, room, company, seed
        self.k, self.columns = engine.n_classes, np.empty(0, dtype=np.float32)
        self.scratch = np.empty(5 * self.k)

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
        cdef double left = 0, first = -1
        self._begin(active)
        before = self._coefficients()
        for _ in range(most):
            left = self._pass(LEVEL * left / max(1, self.n))
            if first < 0:
                first = left
            if left <= max(part * first, enough):
                break
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
        self.n_gathered, self.slot = 0, np.full(n, ABSENT, dtype=np.int32)
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
            s[l] = self.scores[l, i]
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
                B[l] = s[l] - A * old[l] + self.phi.low
            B[y] -= self.phi.low
            if self.phi.upper:
                B[y] += A * self.beta[i]
                if r >= 0:
                    B[r] -= A * self.beta[i]
                    F = self.phi.high - (B[y] - (B[r] - self.phi.low))
                else:
                    F = self.phi.high + self.fixed[i] - B[y]
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
