"""Sparse weights of several classes: coordinate descent over features, whose k weights are a block.

    P(W) = sum_j penalty(w_j) + sum_i c_i log sum_l exp(s_il - s_iy),     s_i = sum_j x_ij w_j,   y the row's class

A proximal Newton step minimises, over some features' weights, the quadratic model of the loss with the penalty as it
is. In the direction V row i's scores move by d_i = sum_j x_ij v_j, and the loss's slope in them by

    e_i = c_i p_i (d_i - p_i.d_i),      p_i the classes' shares of exp(s_i),

so that the model's slope in w_j is sum_i x_ij (c_i (p_i - e_y) + e_i). A block's curvature, sum_i c_i x_ij^2
(diag(p_i) - p_i p_i'), is at most the diagonal matrix of sum_i c_i x_ij^2 b_i, where b_i = p_i, or 2 p_i (1 - p_i),
whose excess over diag(p_i) - p_i p_i' is diagonally dominant: with it a block's problem is `minimise` of penalty.pxd.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, exp, fabs, fmax, log
from libc.stdint cimport int32_t, int64_t

from marginlinear._core.columns cimport Columns
from marginlinear._core.penalty cimport (
    Penalty,
    centre_of,
    dual_norm_of,
    l1_of,
    l2_of,
    minimise,
    norm_of,
    penalty_t,
    square,
    violations_of,
)
from marginlinear._core.rows cimport Rows

from marginlinear._core.quadratic import MEMORY, extrapolated, least

# As in feature_cd.pyx.
cdef double NU = 1e-12, ENOUGH = 0.01, ROUNDING = 1e-14, EXACT = 0.03
# Shares below this are lost sooner or later; changes of a score that are no longer small.
cdef double TINY = 1e-200, FAR = 50
cdef enum:
    HALVINGS = 40


cdef struct cycle_t:
    Py_ssize_t n     # columns that are not left out, at the front
    double last      # how near to the range's ends the others are held to come
    double enough    # sum of violations


cdef class FeatureBlocks:
    """State and steps of one problem.

    Parameters
    ----------
    rows : Rows
        Of features.
    y : int32 array of shape (m,)
        The rows' classes.
    n_classes : int
        k
    cost : float64 array of shape (m,)
        c_i > 0.
    penalty : Penalty

    Attributes
    ----------
    cycles : int
        Passes over sets of columns so far.
    """

    cdef readonly Py_ssize_t cycles
    cdef Columns columns
    cdef const penalty_t* penalty
    cdef object part
    cdef Py_ssize_t m, k
    cdef const int32_t[::1] y
    cdef const double[::1] cost
    # Scores; p; d and e.
    cdef double[:, ::1] W, S, p, way, turn
    # A row's loss; of a block, numbers.
    cdef double[::1] loss, G, z, moved
    cdef int32_t[::1] features, who
    cdef int64_t[::1] begins
    cdef double[::1] values
    # Of each column.
    cdef double[:, ::1] slope, bend, change

    def __init__(self, Rows rows, y, Py_ssize_t n_classes, cost, Penalty penalty):
        self.columns, self.part, self.penalty = Columns(rows), penalty, &penalty.of
        self.m, self.k, self.y, self.cost = rows.m, n_classes, y, cost
        self.p, self.way, self.turn = np.empty((3, rows.m, n_classes))
        self.loss = np.empty(rows.m)
        self.G, self.z, self.moved = np.empty((3, n_classes))
        self.slope = self.bend = self.change = np.empty((0, n_classes))

    def turn_to(self, W, S):
        """Weights of shape (d, k) and their scores, of shape (m, k), which steps change."""
        self.W, self.S = W, S

    def gather(self, wanted):
        """The numbers of the columns of these features; those that are not there yet are gathered."""
        places, columns = self.columns.gather(wanted), self.columns
        self.features, self.begins = columns.features, columns.begins
        self.values, self.who = columns.values, columns.who
        if columns.n > self.slope.shape[0]:
            self.slope, self.bend, self.change = np.empty((3, columns.n, self.k))
        return places

    def slopes(self, const Py_ssize_t[::1] order):
        """Of the loss with l2/2 ||w||^2, in the weights of these columns: float64 array of shape (columns, k)."""
        with nogil:
            model(self, order)
        return np.asarray(self.slope)[np.asarray(order)]

    def product(self, const Py_ssize_t[::1] order, const double[:, ::1] V, double[:, ::1] out):
        """The Hessian of the loss at the last `slopes` times V is written to `out`, shapes (columns, k)."""
        with nogil:
            multiply(self, order, V, out)
        PyErr_CheckSignals()

    def step(self, Py_ssize_t[::1] order, double part, Py_ssize_t most):
        """A proximal Newton step on these columns, by at most so many cycles, until violations of optimality add up to
        this part of what they are at the start.

        Returns
        -------
        float
            Their sum at the start.
        float
            By how much P falls; 0 where W has not moved.
        float
            The part of the step that W went; 1 for all of it.
        """
        cdef double violation, fall, part_gone = 1
        with nogil:
            violation = model(self, order)
        order = order[:front(self, order)]
        if order.shape[0] == 0:
            return violation, 0.0, 1.0
        self._solve(order, part * violation, most)
        with nogil:
            fall = go(self, order, &part_gone)
        PyErr_CheckSignals()
        return violation, fall, part_gone

    def leap(self, Py_ssize_t[::1] order, Py_ssize_t most):
        """A proximal Newton step on these columns by the matrix of the model's curvature, the penalty's norm being
        ABSOLUTE. Returns whether there is one: False where those of them that are not 0, or should not be, have more
        than `most` weights."""
        cdef double violation, part_gone = 1
        with nogil:
            violation = model(self, order)
        order = order[:front(self, order)]
        columns, k = np.array(order), self.k
        if not 0 < len(columns) * k <= most:
            return False
        features = np.asarray(self.features)[columns]
        kinks = np.where(features == self.penalty.free, 0.0, self.penalty.l1)
        H = self.curvature(order)
        H[np.diag_indices_from(H)] += NU + np.repeat(np.where(features == self.penalty.free, 0.0, self.penalty.l2), k)
        change, _ = least(H, np.asarray(self.slope)[columns].reshape(-1), np.asarray(self.W)[features].reshape(-1),
                          np.repeat(kinks, k), EXACT * violation)
        np.asarray(self.change)[columns] = change.reshape(-1, k)
        self.cycles += 1
        with nogil:
            trace_way(self, order)
            go(self, order, &part_gone)
        PyErr_CheckSignals()
        return True

    def curvature(self, const Py_ssize_t[::1] order):
        """The Hessian of the loss at the last `slopes`, over these columns, k rows of it for each: float64 array of
        shape (columns k, columns k)."""
        cdef Py_ssize_t a, l, k = self.k
        cdef double[:, ::1] H = np.zeros((order.shape[0] * k, order.shape[0] * k))
        cdef double[::1] spread = np.zeros(self.m)
        for a in range(order.shape[0]):
            with nogil:
                add_curvature(self, order, a, &spread[0], H)
            PyErr_CheckSignals()
        for a in range(H.shape[0]):
            for l in range(a):
                H[l, a] = H[a, l]
        return np.asarray(H)

    def descend(self, Py_ssize_t[::1] order):
        """A cycle over these columns on P itself, where its model is true of small steps alone: each block goes the
        part 1, 1/2, 1/4, ... of its step that lowers P enough.

        Returns
        -------
        float
            The sum of the violations that it met.
        float
            By how much P falls.
        """
        cdef double violation, fall = 0
        with nogil:
            share(self)
            violation = descend_blocks(self, order, &fall)
        self.cycles += 1
        PyErr_CheckSignals()
        return violation, fall

    def _solve(self, Py_ssize_t[::1] order, double enough, Py_ssize_t most):
        """Cycles over the columns."""
        cdef cycle_t state
        state.n, state.last, state.enough = order.shape[0], INFINITY, enough
        change, way, turn = np.asarray(self.change), np.asarray(self.way), np.asarray(self.turn)
        p, cost, columns = np.asarray(self.p), np.asarray(self.cost)[:, np.newaxis], np.array(order)
        slope, w = np.asarray(self.slope)[columns], np.asarray(self.W)[np.asarray(self.features)[columns]]
        places = np.asarray(self.features)[columns]

        def turn_of(d):
            return cost * p * (d - np.einsum("ij,ij->i", p, d)[:, np.newaxis])

        def model_at(v, d):
            d = d.reshape(way.shape)
            W = np.zeros_like(self.W)
            W[places] = w + v.reshape(w.shape)
            return slope.reshape(-1) @ v + 0.5 * np.vdot(d, turn_of(d)) + self.part.value(W)

        def state_of():
            return change[columns].reshape(-1), way.reshape(-1).copy()

        trail = [state_of()]
        for _ in range(most):
            with nogil:
                done = cycle(self, order, &state)
            self.cycles += 1
            PyErr_CheckSignals()
            if done:
                return
            trail.append(state_of())
            if len(trail) > MEMORY:
                best = extrapolated(trail, model_at)
                change[columns], way[:] = best[0].reshape(w.shape), best[1].reshape(way.shape)
                turn[:] = turn_of(way)
                trail = [state_of()]


cdef inline double dot(const double* x, const double* y, Py_ssize_t k) noexcept nogil:
    cdef Py_ssize_t l = 0
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    while l + 4 <= k:
        s0 += x[l] * y[l]
        s1 += x[l + 1] * y[l + 1]
        s2 += x[l + 2] * y[l + 2]
        s3 += x[l + 3] * y[l + 3]
        l += 4
    while l < k:
        s0 += x[l] * y[l]
        l += 1
    return (s0 + s1) + (s2 + s3)


cdef inline double loss_at(const double* s, const double* d, double part, Py_ssize_t y, Py_ssize_t k) noexcept nogil:
    """log sum_l exp(s_l - s_y) of the scores s + part d."""
    cdef Py_ssize_t l
    cdef double top = -INFINITY, total = 0
    for l in range(k):
        top = fmax(top, s[l] + part * d[l])
    for l in range(k):
        total += exp(s[l] + part * d[l] - top)
    return log(total) + (top - (s[y] + part * d[y]))


cdef void share(FeatureBlocks self) noexcept nogil:
    """Losses and p at the scores; `way` becomes c_i (p_i - e_y), `turn` c_i b_i."""
    cdef Py_ssize_t i, l, k = self.k
    cdef double top, total, largest, c
    cdef double* s
    cdef double* p
    for i in range(self.m):
        s, p, c, top, total, largest = &self.S[i, 0], &self.p[i, 0], self.cost[i], -INFINITY, 0, 0
        for l in range(k):
            top = fmax(top, s[l])
        for l in range(k):
            p[l] = exp(s[l] - top)
            total += p[l]
        self.loss[i] = log(total) + (top - s[self.y[i]])
        for l in range(k):
            p[l] /= total
            largest = fmax(largest, p[l])
            self.way[i, l] = c * p[l]
        for l in range(k):
            self.turn[i, l] = c * (p[l] if largest <= 0.5 else 2 * p[l] * (1 - p[l]))
        self.way[i, self.y[i]] -= c


cdef double model(FeatureBlocks self, const Py_ssize_t[::1] order) noexcept nogil:
    """The columns' slopes and bends at the scores of now. Returns the sum of violations."""
    cdef Py_ssize_t at, s, l, j, k = self.k
    cdef int64_t q
    cdef double total = 0, l2, x
    cdef double* slope
    cdef double* bend
    cdef const double* way
    cdef const double* turn
    share(self)
    for at in range(order.shape[0]):
        s = order[at]
        j, slope, bend = self.features[s], &self.slope[s, 0], &self.bend[s, 0]
        l2 = l2_of(self.penalty, j)
        for l in range(k):
            slope[l], bend[l], self.change[s, l] = l2 * self.W[j, l], l2 + NU, 0
        for q in range(self.begins[s], self.begins[s + 1]):
            x, way, turn = self.values[q], &self.way[self.who[q], 0], &self.turn[self.who[q], 0]
            for l in range(k):
                slope[l] += x * way[l]
                bend[l] += x * x * turn[l]
        total += violations_of(self.penalty.norm, l1_of(self.penalty, j), &self.W[j, 0], slope, k)
    self.way[:, :] = 0
    self.turn[:, :] = 0
    return total


cdef void multiply(FeatureBlocks self, const Py_ssize_t[::1] order, const double[:, ::1] V,
                   double[:, ::1] out) noexcept nogil:
    cdef Py_ssize_t at, s, i, l, k = self.k
    cdef int64_t q
    cdef double x, mean
    cdef double* way
    cdef double* turn
    self.way[:, :] = 0
    out[:, :] = 0
    for at in range(order.shape[0]):
        s = order[at]
        for q in range(self.begins[s], self.begins[s + 1]):
            x, way = self.values[q], &self.way[self.who[q], 0]
            for l in range(k):
                way[l] += x * V[at, l]
    for i in range(self.m):
        way, turn = &self.way[i, 0], &self.turn[i, 0]
        mean = dot(&self.p[i, 0], way, k)
        for l in range(k):
            turn[l] = self.cost[i] * self.p[i, l] * (way[l] - mean)
    for at in range(order.shape[0]):
        s = order[at]
        for q in range(self.begins[s], self.begins[s + 1]):
            x, turn = self.values[q], &self.turn[self.who[q], 0]
            for l in range(k):
                out[at, l] += x * turn[l]


cdef void add_curvature(FeatureBlocks self, const Py_ssize_t[::1] order, Py_ssize_t a, double* spread,
                        double[:, ::1] H) noexcept nogil:
    """To the a-th column's k rows of H, for the columns j' up to itself, sum_i c_i x_ij x_ij' (diag(p_i) - p_i p_i'),
    of each k x k block, which is symmetric, the lower half, and the upper one from there. `spread` is 0, and remains
    so."""
    cdef Py_ssize_t b, l, j, k = self.k
    cdef int64_t q
    cdef double c, part
    cdef const double* p
    cdef double* row
    for q in range(self.begins[order[a]], self.begins[order[a] + 1]):
        spread[self.who[q]] = self.values[q]
    for b in range(a + 1):
        for q in range(self.begins[order[b]], self.begins[order[b] + 1]):
            c = self.cost[self.who[q]] * spread[self.who[q]] * self.values[q]
            if c == 0:
                continue
            p = &self.p[self.who[q], 0]
            for l in range(k):
                row, part = &H[a * k + l, b * k], c * p[l]
                for j in range(l):
                    row[j] -= part * p[j]
                row[l] += part * (1 - p[l])
        for l in range(k):
            for j in range(l):
                H[a * k + j, b * k + l] = H[a * k + l, b * k + j]
    for q in range(self.begins[order[a]], self.begins[order[a] + 1]):
        spread[self.who[q]] = 0


cdef void trace_way(FeatureBlocks self, const Py_ssize_t[::1] order) noexcept nogil:
    """`way` of the change of these columns, which is all of it."""
    cdef Py_ssize_t at, s, l, k = self.k
    cdef int64_t q
    cdef double* way
    self.way[:, :] = 0
    for at in range(order.shape[0]):
        s = order[at]
        for q in range(self.begins[s], self.begins[s + 1]):
            way = &self.way[self.who[q], 0]
            for l in range(k):
                way[l] += self.values[q] * self.change[s, l]


cdef Py_ssize_t front(FeatureBlocks self, Py_ssize_t[::1] order) noexcept nogil:
    """Bring the columns to the front that have a weight or should; how many these are."""
    cdef Py_ssize_t at, s, j, n = 0
    for at in range(order.shape[0]):
        s = order[at]
        j = self.features[s]
        if square(&self.W[j, 0], self.k) > 0 or dual_norm_of(self.penalty.norm, &self.slope[s, 0],
                                                             self.k) > l1_of(self.penalty, j):
            order[at], order[n] = order[n], s
            n += 1
    return n


cdef bint cycle(FeatureBlocks self, Py_ssize_t[::1] order, cycle_t* state) noexcept nogil:
    """Coordinate descent on the model: `change`, and in `way` and `turn` d and e. Whether violations are small enough.

    Columns that stay at 0, well within the range of l1, are left out until the others are done.
    """
    cdef Py_ssize_t at = 0, s, j, l, kept, k = self.k
    cdef int64_t q
    cdef double l1, l2, x, violation, total = 0, worst = 0
    cdef double* G = &self.G[0]
    cdef double* w = &self.moved[0]
    cdef double* z = &self.z[0]
    cdef const double* turn
    while at < state.n:
        s = order[at]
        j = self.features[s]
        l1, l2 = l1_of(self.penalty, j), l2_of(self.penalty, j) + NU
        for l in range(k):
            w[l] = self.W[j, l] + self.change[s, l]
            G[l] = self.slope[s, l] + l2 * self.change[s, l]
        for q in range(self.begins[s], self.begins[s + 1]):
            x, turn = self.values[q], &self.turn[self.who[q], 0]
            for l in range(k):
                G[l] += x * turn[l]
        if dual_norm_of(self.penalty.norm, G, k) + state.last < l1 and square(w, k) == 0:
            state.n -= 1
            kept, order[at] = order[at], order[state.n]
            order[state.n] = kept
            continue
        at += 1
        violation = violations_of(self.penalty.norm, l1, w, G, k)
        total += violation
        worst = fmax(worst, violation)
        if violation == 0:
            continue
        for l in range(k):
            z[l] = self.bend[s, l] * w[l] - G[l]
            G[l] = w[l]
        minimise(self.penalty.norm, l1, z, &self.bend[s, 0], w, k)
        if l1 > 0:
            centre_of(self.penalty.norm, l1, self.penalty.l2, w, k)
        for l in range(k):
            z[l] = w[l] - G[l]
            self.change[s, l] = w[l] - self.W[j, l]
        for q in range(self.begins[s], self.begins[s + 1]):
            move(self, self.who[q], self.values[q], z)
    state.last = worst / self.m
    if total > state.enough:
        return False
    if state.n == order.shape[0]:
        return True
    state.n, state.last = order.shape[0], INFINITY
    return False


cdef inline void move(FeatureBlocks self, Py_ssize_t i, double x, const double* v) noexcept nogil:
    """Row i's scores grow by x v."""
    cdef Py_ssize_t l
    cdef const double* p = &self.p[i, 0]
    cdef double* way = &self.way[i, 0]
    cdef double* turn = &self.turn[i, 0]
    cdef double mean = dot(p, v, self.k), cx = self.cost[i] * x
    for l in range(self.k):
        way[l] += x * v[l]
        turn[l] += cx * p[l] * (v[l] - mean)


cdef double descend_blocks(FeatureBlocks self, const Py_ssize_t[::1] order, double* gone) noexcept nogil:
    """As `cycle`, with p, W and the scores of now for each block."""
    cdef Py_ssize_t at, s, j, l, i, _, k = self.k
    cdef int64_t q
    cdef double l1, l2, x, c, largest, violation, promised, part, before, after, size, fall, total = 0
    cdef double* G = &self.G[0]
    cdef double* w = &self.moved[0]
    cdef double* v = &self.z[0]
    cdef double* bend
    cdef double* p
    for at in range(order.shape[0]):
        s = order[at]
        j, bend = self.features[s], &self.bend[s, 0]
        l1, l2 = l1_of(self.penalty, j), l2_of(self.penalty, j)
        for l in range(k):
            G[l] = l2 * self.W[j, l]
        for q in range(self.begins[s], self.begins[s + 1]):
            i = self.who[q]
            x, p = self.cost[i] * self.values[q], &self.p[i, 0]
            for l in range(k):
                G[l] += x * p[l]
            G[self.y[i]] -= x
        violation = violations_of(self.penalty.norm, l1, &self.W[j, 0], G, k)
        total += violation
        if violation == 0:
            continue
        for l in range(k):
            bend[l] = l2 + NU
        for q in range(self.begins[s], self.begins[s + 1]):
            i = self.who[q]
            c, p, largest = self.cost[i] * self.values[q] * self.values[q], &self.p[i, 0], 0
            for l in range(k):
                largest = fmax(largest, p[l])
            for l in range(k):
                bend[l] += c * p[l] * (1 if largest <= 0.5 else 2 * (1 - p[l]))
        for l in range(k):
            v[l] = bend[l] * self.W[j, l] - G[l]
        minimise(self.penalty.norm, l1, v, bend, w, k)
        if l1 > 0:
            centre_of(self.penalty.norm, l1, self.penalty.l2, w, k)
        for l in range(k):
            v[l] = w[l] - self.W[j, l]
        promised = -dot(G, v, k) - 0.5 * l2 * square(v, k) - l1 * (
            norm_of(self.penalty.norm, w, k) - norm_of(self.penalty.norm, &self.W[j, 0], k))
        part = 1
        for _ in range(HALVINGS if promised > 0 else 0):
            for l in range(k):
                w[l] = self.W[j, l] + part * v[l]
            before = l1 * norm_of(self.penalty.norm, &self.W[j, 0], k) + 0.5 * l2 * square(&self.W[j, 0], k)
            after = l1 * norm_of(self.penalty.norm, w, k) + 0.5 * l2 * square(w, k)
            size = before + after
            fall = before - after - rise(self, s, v, part, &size)
            if fall >= ENOUGH * part * promised - ROUNDING * size:
                gone[0] += fmax(fall, ROUNDING * size)
                for l in range(k):
                    self.W[j, l] = w[l]
                for q in range(self.begins[s], self.begins[s + 1]):
                    i = self.who[q]
                    for l in range(k):
                        self.S[i, l] += part * self.values[q] * v[l]
                        self.p[i, l] = self.turn[q - self.begins[s], l]
                break
            part /= 2
    return total


cdef double rise(FeatureBlocks self, Py_ssize_t s, const double* v, double part, double* size) noexcept nogil:
    """What the loss rises by where the column's block grows by part v; `turn` becomes its rows' p there, and `size`
    larger by the sizes of what is added up. They are those of now times exponentials where nothing can have been lost
    or come up again, and made of the scores elsewhere."""
    cdef Py_ssize_t i, l, k = self.k
    cdef int64_t q
    cdef double total = 0, sums, x, off, after
    cdef bint lost, near
    cdef double* new
    for q in range(self.begins[s], self.begins[s + 1]):
        i, x, new, sums = self.who[q], part * self.values[q], &self.turn[q - self.begins[s], 0], 0
        lost, near = False, True
        for l in range(k):
            lost |= self.p[i, l] < TINY
            near &= v[l] == 0 or (fabs(x * v[l]) < FAR and self.p[i, l] >= TINY)
            new[l] = self.p[i, l] * exp(x * v[l]) if v[l] != 0 else self.p[i, l]
            sums += new[l]
        if not near or (lost and sums < 0.5):
            off, after = loss_at(&self.S[i, 0], v, 0, self.y[i], k), loss_at(&self.S[i, 0], v, x, self.y[i], k)
            sums = after + self.S[i, self.y[i]] + x * v[self.y[i]]
            for l in range(k):
                new[l] = exp(self.S[i, l] + x * v[l] - sums)
            total += self.cost[i] * (after - off)
            size[0] += self.cost[i] * (after + off)
            continue
        for l in range(k):
            new[l] /= sums
        off = x * v[self.y[i]]
        total += self.cost[i] * (log(sums) - off)
        size[0] += self.cost[i] * (fabs(log(sums)) + fabs(off))
    return total


cdef double go(FeatureBlocks self, const Py_ssize_t[::1] order, double* gone) noexcept nogil:
    """W and the scores go the part 1, 1/2, 1/4, ... of the change that lowers P enough, as far as rounding tells;
    `way` has d. Returns by how much P falls."""
    cdef Py_ssize_t i, j, at, s, l, _, k = self.k
    cdef double promised = 0, size = 0, part = 1, before, after, linear, fall, total, l1, l2
    cdef double* w = &self.moved[0]
    for at in range(order.shape[0]):
        s = order[at]
        j = self.features[s]
        l1, l2 = l1_of(self.penalty, j), l2_of(self.penalty, j)
        for l in range(k):
            w[l] = self.W[j, l] + self.change[s, l]
        linear = dot(&self.slope[s, 0], &self.change[s, 0], k) + 0.5 * l2 * square(&self.change[s, 0], k)
        after, before = l1 * norm_of(self.penalty.norm, w, k), l1 * norm_of(self.penalty.norm, &self.W[j, 0], k)
        promised -= linear + (after - before)
        size += fabs(linear) + after + before
    if not promised > -ROUNDING * size:
        return 0
    for _ in range(HALVINGS):
        fall = total = 0
        for at in range(order.shape[0]):
            s = order[at]
            j = self.features[s]
            l1, l2 = l1_of(self.penalty, j), l2_of(self.penalty, j)
            for l in range(k):
                w[l] = self.W[j, l] + part * self.change[s, l]
            before = l1 * norm_of(self.penalty.norm, &self.W[j, 0], k) + 0.5 * l2 * square(&self.W[j, 0], k)
            after = l1 * norm_of(self.penalty.norm, w, k) + 0.5 * l2 * square(w, k)
            fall += before - after
            total += before + after
        for i in range(self.m):
            before = self.cost[i] * self.loss[i]
            after = self.cost[i] * loss_at(&self.S[i, 0], &self.way[i, 0], part, self.y[i], k)
            fall += before - after
            total += before + after
        if fall >= ENOUGH * part * promised - ROUNDING * total:
            for at in range(order.shape[0]):
                s = order[at]
                for l in range(k):
                    self.W[self.features[s], l] += part * self.change[s, l]
            for i in range(self.m):
                for l in range(k):
                    self.S[i, l] += part * self.way[i, l]
            gone[0] = part
            return fmax(fall, ROUNDING * total)
        part /= 2
    return 0
