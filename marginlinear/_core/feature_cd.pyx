"""Sparse weights: coordinate descent over the features that may have one.

    P(w) = l1 ||w||_1 + l2/2 ||w||^2 + sum_i c_i phi(g_i),   g_i = y_i w.x_i,   phi smooth

    D(a) = - sum_i c_i phi*(-a_i/c_i) - [sum_j (|U_j| - l1)_+^2/(2 l2), or |U_j| <= l1 for all j where l2 = 0],
    U = sum_i a_i y_i x_i

One feature's weight may cost nothing, that of the bias: U is 0 there.

Rows are met in passes alone: `survey` has margins, forces a_i = -c_i phi'(g_i) and U from one of them, `gather` the
columns of some features, x_ij by feature. A proximal Newton step (Yuan, Ho and Lin, JMLR 2012) minimises, over
these, the quadratic model of the loss with the penalty as it is,

    -U.v + sum_i c_i phi''(g_i) (y_i v.x_i)^2/2 + penalty(w + v),

by coordinate descent that leaves out what stays at 0, and goes the part of v that lowers P enough. Where that is a
small part, phi'' was too small for so long a step, as that of the logistic loss is far from 0: the next models have at
least a part of the curvature of a quadratic function that is nowhere below the loss.

With L the largest phi'', D is 1/(c_i L)-strongly concave in a_i: duals that lack a gap G have, of the best ones' U*,

    |U_j - U*_j| <= sqrt(2 G L sum_i c_i x_ij^2),

and features with |U*_j| < l1 have no weight at the optimum (Ndiaye, Fercoq, Gramfort and Salmon, JMLR 2017).
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs, fmax, fmin, sqrt, tanh
from libc.stdint cimport int32_t, int64_t, uint64_t

from marginlinear._core.cholesky cimport NormalMatrix
from marginlinear._core.columns cimport Columns
from marginlinear._core.margin_loss cimport dual_at, dual_term, loss_t, response
from marginlinear._core.penalty cimport (
    ABSOLUTE,
    ascent,
    best_move,
    l1_of,
    l2_of,
    over_of,
    penalty_at,
    penalty_t,
    violation_of,
)
from marginlinear._core.rows cimport (
    SLICE,
    Rows,
    data_t,
    feature,
    row_axpy,
    row_begin,
    row_dot,
    row_end,
    value,
)
from marginlinear._core.shrinking cimport shuffle

from marginlinear._core.quadratic import MEMORY, extrapolated, least
from marginlinear._core.scores import add_rows, scores_of

cdef extern from "soft.h" nogil:
    void soft "ml_soft"(const double* g, const double* c, Py_ssize_t n, double* own, double* curvature, double* loss)

# What is added to the model's curvature, so that no column is without.
cdef double NU = 1e-12
# An Armijo step: the part of the promised descent that is enough.
cdef double ENOUGH = 0.01
# What the sums of the line search may be off by, a part of their terms' sizes.
cdef double ROUNDING = 1e-14
# What duals that are scaled to be feasible may be beyond l1, a part of it.
cdef double ROUNDED = 1e-15
# The part of that curvature that models have at least, `lift`: 0 at first, LIFT after a step that goes less than SHORT
# of its way, RAISED times as large after another, 1 at most, and as many times less, or 0, after one that goes whole.
cdef double SHORT = 0.06, LIFT = 0.001, RAISED = 10
# Columns of which the curvature's matrix is made, and the part of the violations that is left then.
MATRIX, EXACT = 500, 0.03
# It is made of 8 x 8 tiles where no less than this part of the columns' table is stored.
cdef double TABLE = 0.3
cdef enum:
    HALVINGS = 40
    BLOCK = 256    # rows whose losses are taken at once
cdef enum Work:
    SURVEY    # margins, forces, loss and U of the rows start to stop
    MULTIPLY  # `matrix`: the curvature over the columns with spot[s] >= 0
    GATHER    # over these the rows start to stop times the roots of their curvatures, packed by `gram`
    SQUARE    # square[j] = sum_i c_i x_ij^2


cdef struct task_t:
    Work what
    Py_ssize_t start
    Py_ssize_t stop
    Py_ssize_t packed    # rows, those without curvature being left out
    double loss


cdef struct cycle_t:
    Py_ssize_t n     # columns that are not left out, at the front
    double last      # how near to the range's ends the others are held to come
    double enough    # sum of violations


cdef class FeatureCD:
    """State and steps of one problem.

    Parameters
    ----------
    rows : Rows
        Of features.
    y : int32 array of shape (m,)
        1 for a positive row, 0 for a negative one.
    cost : float64 array of shape (m,)
        c_i > 0.
    table : float64 array
        The loss, as margin_cd.table_of returns it.
    l1, l2 : float
        l1 > 0, l2 >= 0.
    seed : int
    free : int
        The feature whose weight costs nothing; -1 for none.

    Attributes
    ----------
    W : float64 array of shape (d,)
    U : float64 array of shape (d,)
        At the weights of the last survey.
    sign : float64 array of shape (m,)
        1 or -1: y.
    cycles : int
        Passes over sets of columns so far.
    work : float
        Multiplications of them so far.
    """

    cdef readonly Rows rows
    cdef readonly double[::1] W, U, sign
    cdef readonly Py_ssize_t cycles
    cdef readonly double work
    cdef Columns columns
    cdef penalty_t penalty
    cdef const double[::1] table
    cdef const loss_t* phi
    cdef uint64_t rng
    cdef Py_ssize_t slice_rows
    cdef const double[::1] cost
    cdef readonly double[::1] force
    # y_i a_i, the curvatures and losses, of the margins where `current`; +1 or -1; losses after a step.
    cdef double[::1] margin, pull, curve, loss, tried
    # Beside each other, as they are read: curvatures, and v.x_i of a change v of the weights.
    cdef double[:, ::1] image
    cdef bint current
    cdef double lift
    # The columns' arrays, and what a step knows of each.
    cdef int32_t[::1] place, features, who
    cdef int64_t[::1] begins
    cdef double[::1] values, slope, bend, change
    # While a matrix is made: each column's row of it; the values of a row of data.
    cdef int32_t[::1] spot, found
    cdef double[::1] found_values
    cdef double[:, ::1] matrix
    cdef NormalMatrix gram
    cdef double[::1] square

    def __init__(self, Rows rows, y, cost, table, double l1, double l2, seed,
                 Py_ssize_t free=-1):
        cdef Py_ssize_t m = rows.m, d = rows.d
        self.rows, self.cost, self.rng = rows, cost, seed
        self.penalty.norm, self.penalty.l1, self.penalty.l2, self.penalty.free = ABSOLUTE, l1, l2, free
        self.table = table
        self.phi = <const loss_t*> &self.table[0]
        self.U, self.columns = np.empty(d), Columns(rows)
        self.force, self.pull, self.curve, self.loss, self.tried = np.empty((5, m))
        self.image = np.empty((m, 2))
        self.turn_to(np.zeros(d), y, np.empty(m))
        self.slope = self.bend = self.change = self.square = np.empty(0)
        self.gather(())
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * m / (1.0 + 2.0 * rows.nnz)))

    @property
    def l1(self):
        return self.penalty.l1

    @property
    def l2(self):
        return self.penalty.l2

    @property
    def free(self):
        return self.penalty.free

    def of_rows(self, which):
        """The problem of these rows alone, at costs of the same sum for the same costs."""
        cost = np.asarray(self.cost)[which] * (self.rows.m / len(which))
        return FeatureCD(self.rows.select(which), np.asarray(self.sign)[which] > 0, cost, self.table, self.penalty.l1,
                         self.penalty.l2, self.rng, self.penalty.free)

    def turn_to(self, W, y, margin):
        """Another problem over these rows: its weights and margins, which steps change, and its positive rows."""
        self.W, self.margin, self.sign = W, margin, np.where(np.asarray(y) > 0, 1.0, -1.0)
        self.current = False

    def slope_of_bias(self, double shift):
        """sum_i y_i c_i phi'(g_i) where all scores are higher by the shift."""
        cdef Py_ssize_t i
        cdef double total = 0
        with nogil:
            for i in range(self.rows.m):
                total -= self.sign[i] * dual_at(self.phi, self.cost[i], self.margin[i] + self.sign[i] * shift)
        return total

    @property
    def corner(self):
        """The margin from which on a loss with pieces is 0."""
        return INFINITY if self.phi.soft else self.phi.pieces.knot[1]

    def respond_to(self, const double[::1] margin):
        """Of the rows at these margins: -c_i phi'(g_i), c_i phi''(g_i) and c_i phi(g_i)."""
        forces, curvatures, losses = np.empty((3, self.rows.m))
        cdef double[::1] force = forces, curve = curvatures, loss = losses
        with nogil:
            responses(self, 0, self.rows.m, &margin[0], &force[0], &curve[0], &loss[0])
        return forces, curvatures, losses

    def margins_of(self, w):
        """y_i w.x_i of weights: float64 array of shape (m,)"""
        found = np.empty((self.rows.m, 1))
        scores_of(self.rows, w.reshape(-1, 1), found, 0, self.rows.m)
        return np.asarray(self.sign) * found[:, 0]

    def sum_of(self, force):
        """sum_i a_i y_i x_i of such a_i: float64 array of shape (d,)"""
        found = np.zeros(self.rows.d)
        add_rows(self.rows, np.asarray(self.sign) * force, found, 0, self.rows.m)
        return found

    def dual_of(self, const double[::1] force):
        """- sum_i c_i phi*(-a_i/c_i) at these a_i."""
        cdef Py_ssize_t i
        cdef double total = 0
        with nogil:
            for i in range(self.rows.m):
                total += dual_term(self.phi, self.cost[i], force[i])
        return total

    cdef double _pass(self, Work what) except? -1:
        """Over all rows; the sum of their losses, where that is asked for."""
        cdef task_t task
        cdef Py_ssize_t start
        task.what, task.loss = what, 0
        self.rows.require()
        for start in range(0, self.rows.m, self.slice_rows):
            task.start, task.stop = start, min(self.rows.m, start + self.slice_rows)
            with nogil:
                perform(self, self.rows, &task)
            PyErr_CheckSignals()
        return task.loss

    def survey(self):
        """P at W, from the rows; margins, forces and U follow."""
        cdef Py_ssize_t j
        cdef double penalty = 0
        self.U[:] = 0
        for j in range(self.rows.d):
            penalty += penalty_at(&self.penalty, j, self.W[j])
        penalty += self._pass(SURVEY)
        self.current = True
        return penalty

    def bound(self, double share):
        """D of the forces times `share`; -inf where these are not feasible."""
        cdef Py_ssize_t i, j
        cdef double total = 0, over, l1 = self.penalty.l1, l2 = self.penalty.l2
        with nogil:
            for j in range(self.rows.d):
                if j == self.penalty.free:
                    continue
                over = over_of(l1, share * self.U[j])
                if over > 0:
                    total += over * over / (2 * l2) if l2 > 0 else 0.0 if over <= ROUNDED * l1 else INFINITY
            total = -total
            for i in range(self.rows.m):
                total += dual_term(self.phi, self.cost[i], share * self.force[i])
        return total

    def radii(self, double gap):
        """How far U, of duals that lack this gap, may be from that of the best ones: float64 array of shape (d,)"""
        bend = 0.25 if self.phi.soft else max(self.phi.pieces.quad[i] for i in range(3))
        return np.sqrt(2 * gap * bend * self.squares())

    def squares(self):
        """sum_i c_i x_ij^2: float64 array of shape (d,)"""
        if self.square.shape[0] == 0:
            self.square = np.zeros(self.rows.d)
            self._pass(SQUARE)
        return np.asarray(self.square)

    def count_support(self):
        """Rows with a force."""
        return int(np.count_nonzero(self.force))

    def gather(self, wanted):
        """The numbers of the columns of these features; those that are not there yet are gathered."""
        places, columns = self.columns.gather(wanted), self.columns
        self.place, self.features, self.begins = columns.place, columns.features, columns.begins
        self.values, self.who = columns.values, columns.who
        if columns.n > self.slope.shape[0]:
            self.slope, self.bend, self.change = np.empty((3, columns.n))
        return places

    def step(self, Py_ssize_t[::1] order, double part, Py_ssize_t most):
        """A proximal Newton step on these columns, by cycles until violations of optimality add up to this part of what
        they are at the start, or `most` of them.

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
        if order.shape[0] <= MATRIX:
            self._solve_by_matrix(order, EXACT * violation)
        else:
            self._solve_by_columns(order, part * violation, most)
        with nogil:
            fall = go(self, order, &part_gone)
        if fall > 0:
            self.loss, self.tried = self.tried, self.loss
        if fall == 0 or part_gone < SHORT:
            self.lift = fmin(1.0, fmax(LIFT, RAISED * self.lift))
        elif part_gone == 1:
            self.lift = self.lift / RAISED if self.lift > LIFT else 0
        PyErr_CheckSignals()
        return violation, fall, part_gone

    def _solve_by_columns(self, Py_ssize_t[::1] order, double enough, Py_ssize_t most):
        """Cycles over the columns; `image` goes with the change."""
        cdef cycle_t state
        state.n, state.last, state.enough = order.shape[0], INFINITY, enough
        change, way = np.asarray(self.change), np.asarray(self.image)[:, 1]
        columns = np.array(order)
        curve, slope = np.asarray(self.curve), np.asarray(self.slope)[columns]
        penalty = self._penalty_of(columns)

        def model_at(v, image):
            return slope @ v + 0.5 * (curve * image) @ image + penalty(v)

        trail = [(change[columns], way.copy())]
        for _ in range(most):
            with nogil:
                done = cycle(self, order, &state)
            self.cycles += 1
            PyErr_CheckSignals()
            if done:
                return
            trail.append((change[columns], way.copy()))
            if len(trail) > MEMORY:
                change[columns], way[:] = extrapolated(trail, model_at)
                trail = [(change[columns], way.copy())]

    def _trace_way(self, Py_ssize_t[::1] columns):
        """`image` of the change of these columns, which is all of it."""
        cdef Py_ssize_t at
        self.image[:, 1] = 0
        with nogil:
            for at in range(columns.shape[0]):
                if self.change[columns[at]] != 0:
                    move_way(self, columns[at], self.change[columns[at]])

    def _solve_by_matrix(self, order, double enough):
        """Of the matrix of the model's curvature."""
        columns = np.array(order)
        w = np.asarray(self.W)[np.asarray(self.features)[columns]]
        np.asarray(self.change)[columns], turns = least(
            self.curvature(order), np.asarray(self.slope)[columns], w, self._kinks(columns), enough)
        self.cycles += 1
        self.work += turns * len(columns) ** 2
        self._trace_way(order)

    def _penalty_of(self, columns):
        """The penalty's part of the model's value, and the curvature that no row has, as a function of the change."""
        w, l1, l2 = np.asarray(self.W)[np.asarray(self.features)[columns]], self._kinks(columns), self.penalty.l2 + NU
        return lambda v: 0.5 * l2 * v @ v + l1 @ np.abs(w + v)

    def _kinks(self, columns):
        """l1 of each of these columns."""
        return np.where(np.asarray(self.features)[columns] == self.penalty.free, 0.0, self.penalty.l1)

    def bend_rows(self, const double[::1] curvature):
        """c_i phi'' in place of those at W."""
        self.curve[:] = curvature
        self.current = False

    def curvature(self, const Py_ssize_t[::1] order):
        """sum_i c_i phi'' x_i x_i' over these columns, and l2 and a little more on its diagonal: float64 array of shape
        (n, n)."""
        cdef Py_ssize_t a, b, n = order.shape[0]
        cdef double[:, ::1] H
        spots = np.full(self.columns.n, -1, dtype=np.int32)
        spots[order] = np.arange(n)
        self.spot = spots
        self.found, self.found_values = np.empty(n, dtype=np.int32), np.empty(n)
        if np.diff(self.begins)[np.asarray(order)].sum() < TABLE * n * self.rows.m:
            H = self.matrix = np.zeros((n, n))
            self._pass(MULTIPLY)
            with nogil:
                for a in range(n):
                    for b in range(a):
                        H[a, b] += H[b, a]
                        H[b, a] = H[a, b]
        else:
            H = self._product_of_tables(n)
        for a in range(n):
            H[a, a] += l2_of(&self.penalty, self.features[order[a]]) + NU
        return np.asarray(H)

    cdef double[:, ::1] _product_of_tables(self, Py_ssize_t n):
        cdef task_t task
        cdef NormalMatrix gram = NormalMatrix(n, self.rows.m, 1)
        self.gram, task.what, task.stop = gram, GATHER, 0
        self.rows.require()
        gram.clear()
        while task.stop < self.rows.m:
            task.start, task.packed = task.stop, 0
            task.stop = min(self.rows.m, task.start + gram.room)
            with nogil:
                perform(self, self.rows, &task)
            gram.add(task.packed)
        self.gram = None
        return gram.result()


ctypedef fused engine_t:
    FeatureCD

include "on_features.pxi"


cdef inline void perform_on(FeatureCD self, const data_t* X, task_t* task) noexcept nogil:
    if task.what == SURVEY:
        survey_rows(self, X, task)
    elif task.what == MULTIPLY:
        multiply_rows(self, X, task)
    elif task.what == GATHER:
        gather_rows(self, X, task)
    else:
        add_squares(self, X, task)


cdef void survey_rows(FeatureCD self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t start = task.start, stop, i
    while start < task.stop:
        stop = min(task.stop, start + BLOCK)
        for i in range(start, stop):
            self.margin[i] = self.sign[i] * row_dot(X, i, &self.W[0])
        respond(self, start, stop, &self.margin[start], &self.loss[start])
        for i in range(start, stop):
            task.loss += self.loss[i]
            self.force[i] = self.sign[i] * self.pull[i]
            if self.pull[i] != 0:
                row_axpy(X, i, self.pull[i], &self.U[0])
        start = stop


cdef inline void respond(FeatureCD self, Py_ssize_t start, Py_ssize_t stop, const double* margin,
                         double* loss) noexcept nogil:
    """`pull`, `curve` and losses of rows start to stop, at these margins."""
    cdef Py_ssize_t i
    responses(self, start, stop - start, margin, &self.pull[start], &self.curve[start], loss)
    for i in range(start, stop):
        self.pull[i] *= self.sign[i]


cdef inline void responses(FeatureCD self, Py_ssize_t start, Py_ssize_t n, const double* margin, double* own,
                           double* curve, double* loss) noexcept nogil:
    """-c_i phi', c_i phi'' and c_i phi of n rows from `start` on, at these margins."""
    cdef Py_ssize_t i
    if self.phi.soft:
        soft(margin, &self.cost[start], n, own, curve, loss)
    else:
        for i in range(n):
            own[i] = response(self.phi, self.cost[start + i], margin[i], &curve[i], &loss[i])


cdef inline double chord(FeatureCD self, double g) noexcept nogil:
    """phi'' of the least quadratic function that is phi at g, with its slope, and nowhere below it (Jaakkola and
    Jordan, Statistics and Computing 2000)."""
    if self.phi.soft:
        return tanh(0.5 * g) / (2 * g) if fabs(g) > 1e-4 else 0.25
    return fmax(fmax(self.phi.pieces.quad[0], self.phi.pieces.quad[1]), self.phi.pieces.quad[2])


cdef inline Py_ssize_t find(FeatureCD self, Py_ssize_t j, double x, Py_ssize_t count) noexcept nogil:
    """Note a value of the matrix's columns; how many there are now."""
    cdef int32_t s = self.place[j]
    if s >= 0 and self.spot[s] >= 0 and x != 0:
        self.found[count], self.found_values[count] = self.spot[s], x
        return count + 1
    return count


cdef void add_squares(FeatureCD self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, p
    cdef double x
    for i in range(task.start, task.stop):
        for p in range(row_begin(X, i), row_end(X, i)):
            x = value(X, i, p)
            self.square[feature(X, i, p)] += self.cost[i] * x * x
        if X.bias > 0:
            self.square[X.n] += self.cost[i] * X.bias * X.bias


cdef inline Py_ssize_t find_row(FeatureCD self, const data_t* X, Py_ssize_t i) noexcept nogil:
    """Note the values of row i."""
    cdef Py_ssize_t p, n = 0
    for p in range(row_begin(X, i), row_end(X, i)):
        n = find(self, feature(X, i, p), value(X, i, p), n)
    return find(self, X.n, X.bias, n) if X.bias > 0 else n


cdef void multiply_rows(FeatureCD self, const data_t* X, task_t* task) noexcept nogil:
    """Of the matrix's entries at (s, t) and (t, s) one gets what belongs to both."""
    cdef Py_ssize_t i, a, b, n
    cdef double x
    cdef double* row
    cdef const int32_t* found = &self.found[0]
    cdef const double* values = &self.found_values[0]
    for i in range(task.start, task.stop):
        if self.curve[i] == 0:
            continue
        n = find_row(self, X, i)
        for a in range(n):
            row, x = &self.matrix[found[a], 0], self.curve[i] * values[a]
            for b in range(a + 1):
                row[found[b]] += x * values[b]


cdef void gather_rows(FeatureCD self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, n
    for i in range(task.start, task.stop):
        if self.curve[i] == 0:
            continue
        n = find_row(self, X, i)
        self.gram.fill(task.packed, &self.found[0], &self.found_values[0], n, sqrt(self.curve[i]))
        task.packed += 1


cdef inline double curved_dot(FeatureCD self, Py_ssize_t s) noexcept nogil:
    """sum_i x_is curve_i way_i"""
    cdef int64_t p = self.begins[s], stop = self.begins[s + 1]
    cdef const double* x = &self.values[0]
    cdef const int32_t* who = &self.who[0]
    cdef const double* image = &self.image[0, 0]
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    while p + 4 <= stop:
        s0 += x[p] * bent(image, who[p])
        s1 += x[p + 1] * bent(image, who[p + 1])
        s2 += x[p + 2] * bent(image, who[p + 2])
        s3 += x[p + 3] * bent(image, who[p + 3])
        p += 4
    while p < stop:
        s0 += x[p] * bent(image, who[p])
        p += 1
    return (s0 + s1) + (s2 + s3)


cdef inline double bent(const double* image, Py_ssize_t i) noexcept nogil:
    return image[2 * i] * image[2 * i + 1]


cdef inline void move_way(FeatureCD self, Py_ssize_t s, double d) noexcept nogil:
    """The change of column s grows by d."""
    cdef int64_t p
    cdef const double* x = &self.values[0]
    cdef const int32_t* who = &self.who[0]
    cdef double* image = &self.image[0, 0]
    for p in range(self.begins[s], self.begins[s + 1]):
        image[2 * who[p] + 1] += d * x[p]


cdef double model(FeatureCD self, const Py_ssize_t[::1] order) noexcept nogil:
    """The columns' slopes and bends at the margins of now. Returns the sum of violations."""
    cdef Py_ssize_t i, at, s
    cdef int64_t p
    cdef double total = 0, bend, force, w, l2
    cdef const double* x = &self.values[0]
    cdef const int32_t* who = &self.who[0]
    cdef double* image = &self.image[0, 0]
    if not self.current:
        respond(self, 0, self.rows.m, &self.margin[0], &self.loss[0])
        self.current = True
    if self.lift > 0:
        for i in range(self.rows.m):
            self.curve[i] = fmax(self.curve[i], self.lift * self.cost[i] * chord(self, self.margin[i]))
    # For the columns the second one is y_i a_i.
    for i in range(self.rows.m):
        image[2 * i], image[2 * i + 1] = self.curve[i], self.pull[i]
    for at in range(order.shape[0]):
        s = order[at]
        w, l2 = self.W[self.features[s]], l2_of(&self.penalty, self.features[s])
        bend = force = 0
        for p in range(self.begins[s], self.begins[s + 1]):
            bend += x[p] * x[p] * image[2 * who[p]]
            force += x[p] * image[2 * who[p] + 1]
        self.slope[s] = l2 * w - force
        self.bend[s], self.change[s] = bend + l2 + NU, 0
        total += violation_of(l1_of(&self.penalty, self.features[s]), w, self.slope[s])
    for i in range(self.rows.m):
        image[2 * i + 1] = 0
    return total


cdef Py_ssize_t front(FeatureCD self, Py_ssize_t[::1] order) noexcept nogil:
    """Bring the columns to the front that have a weight or should; how many these are."""
    cdef Py_ssize_t at, s, n = 0
    for at in range(order.shape[0]):
        s = order[at]
        if self.W[self.features[s]] != 0 or fabs(self.slope[s]) > l1_of(&self.penalty, self.features[s]):
            order[at], order[n] = order[n], s
            n += 1
    return n


cdef bint cycle(FeatureCD self, Py_ssize_t[::1] order, cycle_t* state) noexcept nogil:
    """Coordinate descent on the model: `change` and `image`. Whether violations are small enough.

    Columns that stay at 0, well within the range of l1, are left out until the others are done.
    """
    cdef Py_ssize_t at = 0, s, kept
    cdef double G, w, d, l1, total = 0, worst = 0
    shuffle(&order[0], state.n, &self.rng)
    while at < state.n:
        s = order[at]
        w = self.W[self.features[s]] + self.change[s]
        l1 = l1_of(&self.penalty, self.features[s])
        G = self.slope[s] + (l2_of(&self.penalty, self.features[s]) + NU) * self.change[s] + curved_dot(self, s)
        if w == 0 and fabs(G) + state.last < l1:
            state.n -= 1
            kept, order[at] = order[at], order[state.n]
            order[state.n] = kept
            continue
        at += 1
        self.work += self.begins[s + 1] - self.begins[s]
        d = violation_of(l1, w, G)
        total += d
        worst = fmax(worst, d)
        if d == 0:
            continue
        d = best_move(l1, w, G, self.bend[s])
        self.change[s] = d + self.change[s] if d != -w else -self.W[self.features[s]]
        move_way(self, s, d)
    state.last = worst / self.rows.m
    if total > state.enough:
        return False
    if state.n == order.shape[0]:
        return True
    state.n, state.last = order.shape[0], INFINITY
    return False


cdef double go(FeatureCD self, const Py_ssize_t[::1] order, double* gone) noexcept nogil:
    """W and the margins go the part 1, 1/2, 1/4, ... of the change that lowers P enough, as far as rounding tells;
    the losses are `tried` then. Returns by how much P falls."""
    cdef Py_ssize_t i, j, at, s, start, stop, _
    cdef double[BLOCK] margin
    cdef double promised = 0, part = 1, w, before, after, fall, total
    for at in range(order.shape[0]):
        s = order[at]
        if self.change[s] != 0:
            j = self.features[s]
            promised -= ascent(l1_of(&self.penalty, j), l2_of(&self.penalty, j), self.W[j], self.slope[s],
                               self.change[s])
    if not promised > 0:
        return 0
    for _ in range(HALVINGS):
        fall = total = 0
        for at in range(order.shape[0]):
            s = order[at]
            if self.change[s] != 0:
                j = self.features[s]
                w = self.W[j]
                before = penalty_at(&self.penalty, j, w)
                after = penalty_at(&self.penalty, j, w + part * self.change[s])
                fall += before - after
                total += before + after
        start = 0
        while start < self.rows.m:
            stop = min(self.rows.m, start + BLOCK)
            for i in range(start, stop):
                margin[i - start] = self.margin[i] + part * self.sign[i] * self.image[i, 1]
            respond(self, start, stop, margin, &self.tried[start])
            for i in range(start, stop):
                fall += self.loss[i] - self.tried[i]
                total += self.loss[i] + self.tried[i]
            start = stop
        if fall >= ENOUGH * part * promised - ROUNDING * total:
            for at in range(order.shape[0]):
                s = order[at]
                self.W[self.features[s]] += part * self.change[s]
            for i in range(self.rows.m):
                self.margin[i] += part * self.sign[i] * self.image[i, 1]
            gone[0] = part
            return fmax(fall, ROUNDING * total)
        part /= 2
    self.current = False
    return 0
