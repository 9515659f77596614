"""Greedy steps of two variables of a dual at a time (Steinwart, Hush and Scovel, JMLR 2011; with a fixed sum: Platt
1998, the second variable as Fan, Chen and Lin, JMLR 2005, choose it).

    max D(b) = sum_v (target_v b_v - add_v b_v^2/2) - 1/2 sum_uv b_u b_v K(p_u, p_v),    lower_v <= b_v <= upper_v,

p_v being the row of variable v, and sum_v b_v what it is where `sum_is_fixed`, or with groups the sum over each of the
two. The slope of D along b_v is

    target_v - F(p_v) - add_v b_v,      F(p) = sum_v b_v K(p_v, p).

A round moves the variables of an active set. It reads the columns of their own rows alone, which are gathered, once,
from a cache of float32 rows; afterwards F follows for all rows.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs, fmax, fmin, nextafter, sqrt
from libc.stdint cimport int8_t, int32_t

from marginlinear._core.check cimport check
from marginlinear._core.piecewise cimport dual_term, loss_at, piece_at, pieces_t, slope_at
from marginlinear._core.row_cache cimport RowCache, untouched

cdef extern from "pair.h":
    enum:
        LANES "ML_LANES"
    ctypedef struct pair_t "ml_pair_t":
        Py_ssize_t n
        double* slope
        const double* curvature
        const double* inverse
        const double* down
        const double* up
    ctypedef struct move_t "ml_move_t":
        const float* row[2]
        double step[2]
    ctypedef struct passes_t "ml_passes_t":
        int width
        Py_ssize_t (*first)(const pair_t* x, const move_t* move, double* best) noexcept nogil
        Py_ssize_t (*second)(const pair_t* x, const float* row, double step, double curvature,
                             double* best) noexcept nogil
        Py_ssize_t (*rising)(const pair_t* x, const move_t* move, double* best) noexcept nogil
        Py_ssize_t (*falling)(const pair_t* x, const float* row, double slope, double curvature,
                              double* best) noexcept nogil
    const passes_t* passes_of "ml_passes_of"(int width) noexcept nogil
    const double SINGULAR "ML_SINGULAR"

cdef enum:
    ABSENT = -1
    TURN = 1000     # steps between looks at the signals

# Why steps ended.
cdef enum End:
    DONE
    MISSING         # a row that is not in the cache
    LOOK

# A row is made early where its gain is this part of the best one.
cdef double SOON = 0.03
cdef double TINY = 1e-30
# A best shift is looked for at this part of its range from a guess, and then so many times as far.
cdef double NEARBY = 1e-3, WIDER = 8
# A slope that is this part of the sum of the costs, which losses of slope 1 have, is rounding.
cdef double FLAT = 1e-12

cdef const passes_t* passes


def choose_width(int width=8):
    """Take vectors of up to `width` numbers from here on; returns how many they have. For tests."""
    global passes
    passes = passes_of(width)
    return passes.width


choose_width()
# Of a float32 number of a kernel, its error, relative to the value.
UNIT = 2**-23


cdef class PairCD:
    """State and steps of one problem.

    Parameters
    ----------
    cache : RowCache
        Of the rows of K.
    diagonal : float64 array of shape (m,)
        Of K.
    point : int32 array of shape (n,)
        The row of each variable.
    target, add, lower, upper : float64 arrays of shape (n,)
        add >= 0, lower <= 0 <= upper, which may be infinite.
    sum_is_fixed : bool
    group : int8 array of shape (n,), optional
        0 or 1 for each variable, where the sums of both groups are fixed.
    room : int
        Bytes for the gathered columns of an active set.
    company : int
        Rows that are made together.

    Attributes
    ----------
    b : float64 array of shape (n,)
    scores : float64 array of shape (m,)
        F.
    curvature : float64 array of shape (n,)
        K(p_v, p_v) + add_v.
    shift, other_shift : float
        Of all slopes, where the sum is fixed, and of those of group 1: what tells which variables are far from where
        they will be.
    steps : int
        Of two variables, so far.
    root : float64 array of shape (m,)
        Of the diagonal.
    drift : float
        The sum of |change| root(K(p, p)) of all changes: where no value of K is larger than those on its diagonal
        allow, F(p) has an error of UNIT drift root(K(p, p)) at most, by float32 numbers.
    """

    cdef readonly RowCache cache
    cdef readonly Py_ssize_t steps, room, company
    cdef readonly bint sum_is_fixed
    cdef readonly bint grouped
    cdef public double shift, other_shift, drift
    cdef readonly double[::1] root
    cdef readonly double[::1] b, scores, curvature
    # Of the scores' coefficients, by row, after a round; else zeros.
    cdef double[::1] change
    cdef readonly const double[::1] target, add, lower, upper
    cdef const int32_t[::1] point
    cdef const int8_t[::1] group
    # Of the active set: the row of `gathered` of variable v is slot[v], and that row's variable is `stands`.
    cdef pair_t active
    # Of two groups: where the first ends, and the second begins, in vectors of its own.
    cdef Py_ssize_t ends, begins
    cdef double[:, ::1] own
    cdef float[:, ::1] gathered
    cdef float[::1] columns
    cdef const int32_t[::1] where
    cdef int32_t[::1] slot, stands
    # Rows to make with one that is asked for, of variables that would rise, or fall, by most.
    cdef int32_t[:, ::1] soon
    cdef double[:, ::1] soon_gain
    cdef Py_ssize_t n_gathered
    cdef move_t move
    cdef bint moved

    def __init__(self, RowCache cache, diagonal, point, target, add, lower, upper, *, bint sum_is_fixed=False,
                 group=None, Py_ssize_t room, Py_ssize_t company=8):
        self.cache, self.point, self.target, self.add = cache, point, target, add
        self.lower, self.upper, self.sum_is_fixed = lower, upper, sum_is_fixed
        self.grouped, self.group = group is not None, np.zeros(len(target), dtype=np.int8) if group is None else group
        # A row of zeros has no curvature: one long step takes its variable to a bound.
        self.curvature = np.maximum(np.asarray(diagonal)[np.asarray(point)] + np.asarray(add), TINY)
        self.room, self.company = room, company
        self.soon_gain, self.soon = np.empty((2, company)), np.empty((2, company), dtype=np.int32)
        self.b, self.scores = np.zeros(len(target)), np.zeros(len(diagonal))
        self.change, self.root, self.drift = np.zeros(len(diagonal)), np.sqrt(diagonal), 0.0
        self.columns = np.empty(0, dtype=np.float32)

    def slopes(self):
        """Of D along each variable: float64 array of shape (n,)."""
        return self.target - np.asarray(self.scores)[self.point] - np.multiply(self.add, self.b)

    def choose(self, Py_ssize_t least, double multiple, jitter=None):
        """Variables of the next round: those that are free, those that gain most by a step of their own, as many
        upwards as downwards in each group, and half of all chosen, and of the others those that are next to move.

        Parameters
        ----------
        least : int
            So many, at least, or all.
        multiple : float
            And this multiple of the free ones.
        jitter : float64 array of shape (n,), optional
            Factors of the gains, where many are equal, in whatever order they stand.

        Returns
        -------
        int32 array
            Their numbers, rising.
        """
        cdef Py_ssize_t n = self.b.shape[0], n_free = 0, size, v, at = 0, ties, way, ways = 4 if self.grouped else 2
        cdef double slope, step, gain, bar
        cdef double[4] enough
        cdef Py_ssize_t[4] count = [0, 0, 0, 0]
        cdef const double[::1] factors = jitter
        cdef double[::1] rank = np.empty(n), order = np.empty(n)
        cdef double[:, ::1] gains = np.empty((ways, n))
        cdef int32_t[::1] chosen
        with nogil:
            for v in range(n):
                n_free += self.lower[v] < self.b[v] < self.upper[v]
            size = min(n, max(least, <Py_ssize_t>(multiple * n_free)))
        chosen = np.arange(size, dtype=np.int32)
        if size == n:
            return np.asarray(chosen)
        with nogil:
            for v in range(n):
                slope = self.target[v] - self.scores[self.point[v]] - self.add[v] * self.b[v]
                slope -= self.other_shift if self.group[v] else self.shift
                step = fmin(fmax(slope / self.curvature[v], self.lower[v] - self.b[v]), self.upper[v] - self.b[v])
                gain = step * (slope - 0.5 * self.curvature[v] * step)
                if self.lower[v] < self.b[v] < self.upper[v]:
                    rank[v] = INFINITY
                else:
                    rank[v] = -fabs(slope) / sqrt(self.curvature[v])
                order[v] = 0
                if gain > 0:
                    if factors is not None:
                        gain *= factors[v]
                    order[v] = gain if step > 0 else -gain
                    way = 2 * self.group[v] + (step > 0)
                    gains[way, count[way]] = gain
                    count[way] += 1
            for way in range(ways):
                enough[way] = largest(&gains[way, 0], count[way], size // (2 * ways))
            for v in range(n):
                if order[v] and fabs(order[v]) >= enough[2 * self.group[v] + (order[v] > 0)]:
                    # Where free ones leave no room for all of these, it is for those that gain most.
                    rank[v] = fmax(rank[v], fabs(order[v]))
                order[v] = rank[v]
            bar = largest(&order[0], n, size)
            ties = size
            for v in range(n):
                ties -= rank[v] > bar
            for v in range(n):
                if rank[v] > bar or (rank[v] == bar and ties > 0):
                    ties -= rank[v] == bar
                    chosen[at] = v
                    at += 1
        return np.asarray(chosen)

    def round(self, variables, double part, Py_ssize_t most):
        """Steps within an active set until one promises no more than a `part` of the first one's gain, at most so many.

        Parameters
        ----------
        variables : int array
            Their numbers, rising.

        Returns
        -------
        float
            What D rose by.
        """
        cdef const int32_t[::1] chosen = self.in_groups(np.ascontiguousarray(variables, dtype=np.int32))
        cdef Py_ssize_t n = chosen.shape[0], wide = (n + LANES - 1) // LANES * LANES, at, v, until = self.steps + most
        cdef double risen = 0, enough = -1
        cdef End end = LOOK
        self.own, self.where, self.slot = np.zeros((6, wide)), chosen, np.full(n, ABSENT, dtype=np.int32)
        with nogil:
            for at in range(wide):
                self.own[1, at] = self.own[2, at] = 1.0
            for at in range(n):
                if self.ends <= at < self.begins:
                    continue
                v = chosen[at]
                check(v, self.b.shape[0])
                self.own[0, at] = self.target[v] - self.scores[self.point[v]] - self.add[v] * self.b[v]
                self.own[1, at], self.own[2, at] = self.curvature[v], 1 / self.curvature[v]
                self.own[3, at], self.own[4, at] = self.lower[v] - self.b[v], self.upper[v] - self.b[v]
                self.own[5, at] = self.b[v]
        self.n_gathered, self.moved, self.stands = 0, False, np.empty(n, dtype=np.int32)
        room = max(2, min(n, self.room // (4 * wide)))
        if self.columns.shape[0] < room * wide:
            self.columns = untouched(1, max(room * wide, self.room // 4))[0]
        self.gathered = np.asarray(self.columns)[:room * wide].reshape(room, wide)
        self.active = pair_t(n, &self.own[0, 0], &self.own[1, 0], &self.own[2, 0], &self.own[3, 0], &self.own[4, 0])
        while end != DONE and self.steps < until:
            with nogil:
                if self.grouped:
                    end = self.run_in_groups(min(self.steps + TURN, until), part, &enough, &risen, &v)
                else:
                    end = self.run(min(self.steps + TURN, until), part, &enough, &risen, &v)
            if end == MISSING:
                self.gather(v)
            PyErr_CheckSignals()
        self.follow()
        return risen

    cdef End run(self, Py_ssize_t until, double part, double* enough, double* risen,
                 Py_ssize_t* missing) noexcept nogil:
        """Steps, until so many were made."""
        cdef pair_t* x = &self.active
        cdef Py_ssize_t i, j
        cdef double best, gain
        while self.steps < until:
            if self.sum_is_fixed:
                i = passes.rising(x, &self.move if self.moved else NULL, &best)
            else:
                i = passes.first(x, &self.move if self.moved else NULL, &best)
                if enough[0] < 0:
                    enough[0] = part * best
            self.moved = False
            if i < 0 or (not self.sum_is_fixed and best <= enough[0]):
                return DONE
            if self.slot[i] == ABSENT:
                missing[0] = i
                return MISSING
            j = self.partner(i, &best)
            if self.sum_is_fixed:
                if enough[0] < 0:
                    # What a step gains goes as the square of the difference of the slopes.
                    enough[0] = sqrt(part) * best
                if j < 0 or best <= enough[0]:
                    return DONE
            if j >= 0 and self.slot[j] == ABSENT:
                missing[0] = j
                return MISSING
            gain = self.exchange(i, j) if self.sum_is_fixed else self.together(i, j)
            self.moved = True
            risen[0] += gain
            self.steps += 1
            if gain <= 0:
                return DONE
        return LOOK

    def in_groups(self, chosen):
        """The variables of group 1 after those of group 0, from the next vector on: what is between cannot move."""
        self.ends = self.begins = len(chosen)
        if not self.grouped:
            return chosen
        group = np.asarray(self.group)[chosen]
        first, second = chosen[group == 0], chosen[group == 1]
        self.ends = len(first)
        self.begins = (self.ends + LANES - 1) // LANES * LANES
        return np.concatenate((first, np.full(self.begins - self.ends, chosen[0], dtype=np.int32), second))

    cdef End run_in_groups(self, Py_ssize_t until, double part, double* enough, double* risen,
                           Py_ssize_t* missing) noexcept nogil:
        """As `run`: each step is of two variables of one group, whose slopes differ most."""
        cdef pair_t side
        cdef move_t move
        cdef Py_ssize_t i, j, at, g
        cdef Py_ssize_t[2] rising
        cdef double best, gain, widest
        cdef Py_ssize_t found
        while self.steps < until:
            for g in range(2):
                side = self.side(g)
                move = self.move
                if g and self.moved:
                    move.row[0], move.row[1] = move.row[0] + self.begins, move.row[1] + self.begins
                at = self.begins if g else 0
                rising[g] = passes.rising(&side, &move if self.moved else NULL, &best)
                if rising[g] >= 0:
                    rising[g] += at
            self.moved = False
            i = j = -1
            widest = -INFINITY
            for g in range(2):
                if rising[g] < 0:
                    continue
                if self.slot[rising[g]] == ABSENT:
                    missing[0] = rising[g]
                    return MISSING
                side, at = self.side(g), self.begins if g else 0
                found = passes.falling(&side, &self.gathered[self.slot[rising[g]], at], self.active.slope[rising[g]],
                                       self.active.curvature[rising[g]], &best)
                if found >= 0 and best > widest:
                    i, j, widest = rising[g], found + at, best
            if enough[0] < 0:
                enough[0] = sqrt(part) * widest
            if j < 0 or widest <= enough[0]:
                return DONE
            if self.slot[j] == ABSENT:
                missing[0] = j
                return MISSING
            gain = self.exchange(i, j)
            self.moved = True
            risen[0] += gain
            self.steps += 1
            if gain <= 0:
                return DONE
        return LOOK

    cdef pair_t side(self, Py_ssize_t g) noexcept nogil:
        """The active variables of a group."""
        cdef Py_ssize_t at = self.begins if g else 0, n = self.active.n - at if g else self.ends
        return pair_t(n, &self.own[0, at], &self.own[1, at], &self.own[2, at], &self.own[3, at], &self.own[4, at])

    cdef Py_ssize_t partner(self, Py_ssize_t i, double* best) noexcept nogil:
        """The variable to move with i, or -1."""
        cdef pair_t* x = &self.active
        cdef const float* row = &self.gathered[self.slot[i], 0]
        cdef double down = self.own[3, i], up = self.own[4, i], step
        cdef Py_ssize_t j
        if self.sum_is_fixed:
            return passes.falling(x, row, x.slope[i], x.curvature[i], best)
        step = fmin(fmax(x.slope[i] * x.inverse[i], down), up)
        self.own[3, i] = self.own[4, i] = 0
        j = passes.second(x, row, step, x.curvature[i], best)
        self.own[3, i], self.own[4, i] = down, up
        return j

    cdef double exchange(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """The exact step of i by as much as j falls; what D rises by."""
        cdef pair_t* x = &self.active
        cdef double fall = x.slope[i] - x.slope[j], both = x.curvature[i] + x.curvature[j]
        cdef double curvature = fmax(both - 2.0 * self.gathered[self.slot[i], j], SINGULAR * both)
        cdef double step = fmin(fall / curvature, fmin(x.up[i], -x.down[j]))
        self.take(0, i, step)
        self.take(1, j, -step)
        return step * (fall - 0.5 * curvature * step)

    cdef double together(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """The exact step of i and, unless it is -1, j; what D rises by."""
        cdef pair_t* x = &self.active
        cdef double p = x.slope[i], A = x.curvature[i], s = fmin(fmax(p * x.inverse[i], x.down[i]), x.up[i])
        cdef double q, B, c, t, u, v, det, gain, best
        cdef int edge
        if j < 0:
            self.take(0, i, s)
            self.move.row[1], self.move.step[1] = self.move.row[0], 0
            return s * (p - 0.5 * A * s)
        q, B, c = x.slope[j], x.curvature[j], self.gathered[self.slot[i], j]
        t = fmin(fmax((q - c * s) * x.inverse[j], x.down[j]), x.up[j])
        best = s * p + t * q - 0.5 * (A * s * s + B * t * t) - c * s * t
        det = A * B - c * c
        u, v = (p * B - q * c) / det, (q * A - p * c) / det
        if det > SINGULAR * A * B and x.down[i] <= u <= x.up[i] and x.down[j] <= v <= x.up[j]:
            s, t, best = u, v, u * p + v * q - 0.5 * (A * u * u + B * v * v) - c * u * v
        else:
            # The maximum is on an edge of the box.
            for edge in range(4):
                if edge < 2:
                    u = x.down[i] if edge else x.up[i]
                    v = fmin(fmax((q - c * u) * x.inverse[j], x.down[j]), x.up[j])
                else:
                    v = x.down[j] if edge == 3 else x.up[j]
                    u = fmin(fmax((p - c * v) * x.inverse[i], x.down[i]), x.up[i])
                if not (fabs(u) < INFINITY and fabs(v) < INFINITY):
                    continue
                gain = u * p + v * q - 0.5 * (A * u * u + B * v * v) - c * u * v
                if gain > best:
                    s, t, best = u, v, gain
        self.take(0, i, s)
        self.take(1, j, t)
        return best

    cdef void take(self, int at, Py_ssize_t i, double step) noexcept nogil:
        """Let variable i move; the slopes follow in the next pass, but for what it has of its own."""
        self.move.row[at], self.move.step[at] = &self.gathered[self.slot[i], 0], step
        self.own[0, i] -= self.add[self.where[i]] * step
        self.own[3, i] -= step
        self.own[4, i] -= step
        self.own[5, i] += step

    cdef gather(self, Py_ssize_t v):
        """Let the row of variable v stand among the gathered ones, in place of the one that does so for longest."""
        cdef Py_ssize_t i = self.point[self.where[v]], u, place = self.n_gathered % self.gathered.shape[0]
        cdef const float* row
        cdef float* out
        if not self.cache.has(i):
            self.cache.require(self.wanted(v))
        if self.n_gathered >= self.gathered.shape[0]:
            self.slot[self.stands[place]] = ABSENT
        row, out = self.cache.at(i), &self.gathered[place, 0]
        with nogil:
            for u in range(self.active.n):
                check(self.where[u], self.point.shape[0])
                out[u] = row[self.point[self.where[u]]]
            for u in range(self.active.n, self.gathered.shape[1]):
                out[u] = 0
        self.slot[v], self.stands[place] = place, v
        self.n_gathered += 1

    cdef wanted(self, Py_ssize_t v):
        """The row of variable v, and those of others that will soon be asked for: rows made together take less time."""
        cdef const pair_t* x = &self.active
        cdef Py_ssize_t u, at, side, most = min(self.company, self.cache.capacity) // 2
        cdef Py_ssize_t[2] count = [0, 0]
        cdef double slope, step, gain, best = 0
        cdef int32_t i
        with nogil:
            for u in range(x.n):
                slope = x.slope[u] - (self.other_shift if u >= self.begins else self.shift)
                step = fmin(fmax(slope * x.inverse[u], x.down[u]), x.up[u])
                gain = step * (slope - 0.5 * x.curvature[u] * step)
                best = fmax(best, gain)
                side, i = step > 0, self.point[self.where[u]]
                if gain < SOON * best or gain <= 0 or u == v or self.cache.has(i):
                    continue
                # The best so far stand in falling order.
                at = count[side]
                if at == most and (at == 0 or self.soon_gain[side, at - 1] >= gain):
                    continue
                if at < most:
                    count[side] += 1
                else:
                    at -= 1
                while at > 0 and self.soon_gain[side, at - 1] < gain:
                    self.soon_gain[side, at], self.soon[side, at] = (
                        self.soon_gain[side, at - 1], self.soon[side, at - 1])
                    at -= 1
                self.soon_gain[side, at], self.soon[side, at] = gain, i
        others = sorted((-self.soon_gain[side, at], self.soon[side, at])
                        for side in range(2) for at in range(count[side]) if self.soon_gain[side, at] >= SOON * best)
        return [self.point[self.where[v]], *(i for _, i in others)][:min(self.company, self.cache.capacity)]

    cdef follow(self):
        """b and the scores, after the steps of a round."""
        cdef Py_ssize_t at, v, count = 0
        cdef int32_t i
        cdef double after
        cdef int32_t[::1] rows = np.empty(self.active.n, dtype=np.int32)
        cdef double[:, ::1] sums = np.empty((self.active.n, 1))
        with nogil:
            for at in range(self.active.n):
                if self.ends <= at < self.begins:
                    continue
                v, i = self.where[at], self.point[self.where[at]]
                # What has come to a bound is there, whatever rounding says.
                if self.own[4, at] == 0:
                    after = self.upper[v]
                elif self.own[3, at] == 0:
                    after = self.lower[v]
                else:
                    after = fmin(fmax(self.own[5, at], self.lower[v]), self.upper[v])
                if after == self.b[v]:
                    continue
                if self.change[i] == 0:
                    rows[count] = i
                    count += 1
                self.change[i] += after - self.b[v]
                self.b[v] = after
            for at in range(count):
                sums[at, 0] = self.change[rows[at]]
                self.change[rows[at]] = 0
        self.update(rows[:count], sums[:count])

    def update(self, which, sums):
        """The scores follow coefficients of the rows `which` that have moved by `sums`, of shape (len(which), 1)."""
        cdef const int32_t[::1] rows = np.ascontiguousarray(which, dtype=np.int32)
        cdef const double[:, ::1] change = sums
        cdef Py_ssize_t at
        for at in range(rows.shape[0]):
            self.drift += fabs(change[at, 0]) * self.root[rows[at]]
        self.cache.add(rows, sums, np.asarray(self.scores)[:, np.newaxis])


cdef double largest(double* values, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
    """The k-th largest of n values, which are put into another order (Hoare's selection); the least one where k > n."""
    cdef Py_ssize_t low = 0, high = n - 1, i, j
    cdef double pivot
    k = min(k, n) - 1
    if k < 0:
        return INFINITY
    while low < high:
        pivot, i, j = values[low + (high - low) // 2], low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return values[k]


def values_of(table, const double[::1] cost, const double[::1] signs, const double[::1] scores, const double[::1] b,
              double shift=0.0):
    """(sum_i c_i phi(g_i), the dual's sum of -c_i phi*(-a_i/c_i)) at the margins g_i = sign_i (score_i + shift) and the
    duals a_i = sign_i b_i; `table` as margin_cd.table_of makes it."""
    cdef const double[::1] numbers = np.ascontiguousarray(table)
    cdef const pieces_t* phi = <const pieces_t*> &numbers[0]
    cdef double loss = 0, dual = 0
    cdef Py_ssize_t i
    with nogil:
        for i in range(cost.shape[0]):
            loss += cost[i] * loss_at(phi, signs[i] * (scores[i] + shift))
            dual += dual_term(phi, cost[i], signs[i] * b[i])
    return loss, dual


def best_shift(table, const double[::1] cost, const double[::1] signs, const double[::1] scores, double low,
               double high, double guess):
    """The shift of all scores at which their loss is least, between low and high, found soon where a guess is near; of
    several such shifts, where the loss is flat, the middle."""
    cdef double rounding = FLAT * float(np.sum(cost))
    cdef double first = shift_of_slope(-rounding, table, cost, signs, scores, low, high, guess)
    cdef double last = shift_of_slope(rounding, table, cost, signs, scores, first, high,
                                      nextafter(first, high))
    return first + (last - first) / 2


def shift_of_slope(double slope_there, table, const double[::1] cost, const double[::1] signs,
                   const double[::1] scores, double low, double high, double guess):
    """The shift of all scores, between low and high, from which on their loss has this slope or a larger one."""
    cdef const double[::1] numbers = np.ascontiguousarray(table)
    cdef const pieces_t* phi = <const pieces_t*> &numbers[0]
    cdef int32_t[::1] rest = np.arange(cost.shape[0], dtype=np.int32)
    # The loss's slope is `level` + `rise` shift, and that of the rest: rows with a knot between low and high.
    cdef double middle = fmin(fmax(guess, low), high), stride = NEARBY * (high - low)
    cdef double slope, level = 0, rise = 0, quad, loss = 0
    cdef Py_ssize_t n_rest = cost.shape[0], at, left
    cdef bint above = False, below = False
    cdef int32_t i
    cdef int piece
    with nogil:
        while True:
            if above and below:
                middle = low + (high - low) / 2
            if not low < middle < high:
                if above and below:
                    break
                above = below = True
                continue
            slope, left = level + rise * middle, 0
            for at in range(n_rest):
                i = rest[at]
                slope += cost[i] * signs[i] * slope_at(phi, signs[i] * (scores[i] + middle))
            if slope < slope_there:
                low, above = middle, True
                middle += stride
            else:
                high, below = middle, True
                middle -= stride
            stride *= WIDER
            for at in range(n_rest):
                i = rest[at]
                piece = piece_at(phi, signs[i] * (scores[i] + low))
                if piece == piece_at(phi, signs[i] * (scores[i] + high)):
                    quad = cost[i] * phi.quad[piece]
                    level += quad * scores[i] + cost[i] * signs[i] * phi.slope[piece]
                    rise += quad
                else:
                    rest[left] = i
                    left += 1
            n_rest = left
        # The corner of a loss is at one of them, and its cost may be large.
        for at in range(n_rest):
            i = rest[at]
            loss += cost[i] * loss_at(phi, signs[i] * (scores[i] + low))
            loss -= cost[i] * loss_at(phi, signs[i] * (scores[i] + high))
    return low if loss <= 0 else high
