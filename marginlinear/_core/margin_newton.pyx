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
"""

import math

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport sqrt
from libc.stdint cimport int32_t

from marginlinear._core.pieces cimport gap_of, jump_at, loss_at, pieces_t, step_to
from marginlinear._core.proximal cimport ProximalNewton
from marginlinear._core.rows cimport (
    CSR32,
    CSR64,
    DENSE32,
    DENSE64,
    GRAM,
    NARROW32,
    NARROW64,
    Rows,
    data_t,
    row_axpy,
    row_dot,
)
from marginlinear._core.symmetric cimport Gram

from marginlinear._core.proximal import LIMIT, MOST, solve

# Work of one slice between looks at the signals: about 20 ms.
cdef double SLICE = 2e7
# Numbers of rows that are packed at once.
cdef Py_ssize_t BUFFER = 1 << 18
# A search ends where the slope is down to this part of that at its start, or after so many evaluations.
cdef double FLAT = 0.1
cdef int TRIALS = 60

# Margins of unscaled rows are sums of large terms. Their rounding, times the curvature and the rows again, would keep
# G up; after a step that moves no margin by more than this they are not summed afresh but moved with the step.
cdef double NEAR = 1e-2


cdef enum Work:
    MARGINS    # out[i] = y_i <w, x_i>
    GATHER     # the rows who[start:stop] times their roots, packed by `gram`; `out` is scratch


cdef struct task_t:
    Work what
    Py_ssize_t start
    Py_ssize_t stop
    const double* w
    double* out
    const int32_t* who
    const double* root


cdef class MarginNewton(ProximalNewton):
    """Steps on binary losses."""

    # Steps from the sweeps' duals to 1e-3: about 4 for smooth losses, 10 to 20 for the hinge.
    STEPS = 8

    cdef Py_ssize_t slice_rows
    cdef Gram gram
    cdef double spread, size, v
    cdef object b, margins, weights, constant, row_sum, softness
    cdef const double[:, ::1] tables
    cdef const double[::1] c, soft
    cdef const int32_t[::1] positive, which
    cdef double[::1] dual, own, margin, centre, weight

    def __init__(self, engine):
        import numpy as np

        # Sweeps over long rows at a large C can leave weights that are worse than none.
        poor = engine.primal()[0] > engine.loss_at_zero()
        if poor:
            engine.start_over()
        super().__init__(engine)
        if poor:
            # So large that the proximal term acts on all rows.
            self.g = MOST
        cdef Py_ssize_t m = self.rows.m
        self.spread, self.size, self.tables = engine.spread, engine.size, engine.tables
        self.c, self.positive, self.which, self.dual = engine.cost, engine.y, engine.group, engine.duals
        self.b, self.q, self.margins, self.weights = (np.empty(m) for _ in range(4))
        self.own, self.centre, self.margin, self.weight = self.b, self.q, self.margins, self.weights
        self.softness = softness_of(engine.tables)
        self.soft = self.softness
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * m / (1.0 + <double>self.rows.nnz)))
        self.gram = Gram(self.rows.d, max(1, min(m, BUFFER // self.rows.d)), engine.threads)
        self.constant = np.eye(self.rows.d)
        if self.spread > 0:
            self.row_sum = engine.weights_of(engine.cost)
            self.constant += 2 * self.spread * self._gram(engine.cost)
            self.constant -= 2 * self.spread / self.size * np.outer(self.row_sum, self.row_sum)
        self._measure(self.W, self.margins)
        # b = a + tau at the duals of the sweeps, and the centre with it.
        self.b[:] = engine.duals + 2 * self.spread * engine.cost * (self.margins - self._mean(self.W))
        self.restart()

    @staticmethod
    def sweeps_of_a_step(engine):
        """What a step costs, in sweeps, roughly; infinite where steps are not possible."""
        cdef Rows rows = engine.rows
        if rows.storage == GRAM or rows.d > LIMIT:
            return math.inf
        # A multiplication costs 150 times what it does in a product of tiles, 60 times what it does in a solution; the
        # calls of a step cost 100,000. Of a loss without curvature about a third of the rows is at a knot.
        sweep = 1.0 + <double>rows.nnz
        products = <double>rows.m / (1 if engine.curved else 3) * rows.d * rows.d
        algebra = (products / 150 + <double>rows.d ** 3 / 60) / sweep
        return 3.0 + algebra + 1e5 / sweep

    @staticmethod
    def require(engine):
        """ValueError where steps are not possible."""
        cdef Rows rows = engine.rows
        if rows.storage == GRAM:
            raise ValueError("algorithm = 'newton' works on features, not on a kernel: take 'auto'")
        if rows.d > LIMIT:
            raise ValueError(f"algorithm = 'newton' solves for one weight a feature, at most {LIMIT}: here "
                             f"{rows.d}; take 'auto'")

    def curvature(self):
        """A generalised Hessian of F at the last W: float64 array of shape (d, d)."""
        return self.constant + self._gram(self.weights)

    def _gram(self, weights):
        """sum_i weights_i x_i x_i': float64 array of shape (d, d)."""
        import numpy as np

        cdef Py_ssize_t start, stop
        active = np.flatnonzero(weights > 0).astype(np.int32)
        cdef const int32_t[::1] who = active
        cdef const double[::1] root = np.sqrt(weights[active])
        cdef Gram gram = self.gram
        cdef double[::1] scratch = np.empty(self.rows.d)
        cdef task_t task
        task.what, task.out = GATHER, &scratch[0]
        gram.clear()
        for start in range(0, who.shape[0], gram.room):
            stop = min(who.shape[0], start + gram.room)
            task.start, task.stop, task.who, task.root = start, stop, &who[0], &root[0]
            with nogil:
                perform(self, &task)
            gram.add(stop - start)
        return gram.result()

    def _direction(self, gradient):
        return solve(self.curvature(), gradient, self.engine.threads)

    def _duals(self):
        return self.b

    def _mean(self, W):
        return float(self.row_sum @ W) / self.size if self.spread > 0 else 0.0

    def _publish(self):
        ProximalNewton._publish(self)
        self.engine.settle()

    def _respond(self, W):
        self._measure(W, self.margins)
        return self._evaluate(W)

    def _again(self):
        return self._evaluate(self.W)

    def _evaluate(self, W):
        """F at W, whose margins are at hand. Sets the duals, U, and the values of the problem at W and these duals."""
        cdef Py_ssize_t i
        cdef const pieces_t* phi
        cdef double g, c, gamma, loss = 0, gap = 0, move = 0, spread = 0
        self.v = self._mean(W)
        with nogil:
            for i in range(self.rows.m):
                phi, c, g = <const pieces_t*> &self.tables[self.which[i], 0], self.c[i], self.margin[i]
                gamma = self.g * self.soft[self.which[i]] / (2 * c)
                self.own[i] = step_to(phi, c, g - gamma * self.centre[i], gamma, &self.weight[i])
                loss += c * loss_at(phi, g)
                gap += gap_of(phi, c, g, self.own[i])
                move += gamma * (self.own[i] - self.centre[i]) * (self.own[i] - self.centre[i])
                spread += c * (g - self.v) * (g - self.v)
                self.dual[i] = self.own[i] - 2 * self.spread * c * (g - self.v)
        self.U = self.engine.weights_of(self.engine.duals)
        gradient = W - self.U
        self.e, self.G = gap, 0.5 * float(gradient @ gradient)
        self.primal = self.objective = 0.5 * float(W @ W) + loss + self.spread * spread
        self.bound = self.primal - self.e - self.G
        return self.primal - gap - 0.5 * move

    def _measure(self, W, out):
        """out = the margins of all rows."""
        cdef Py_ssize_t start
        cdef const double[::1] w = W
        cdef double[::1] into = out
        cdef task_t task
        task.what, task.w, task.out = MARGINS, &w[0], &into[0]
        for start in range(0, self.rows.m, self.slice_rows):
            task.start, task.stop = start, min(self.rows.m, start + self.slice_rows)
            with nogil:
                perform(self, &task)
            PyErr_CheckSignals()

    def _search(self, direction, fall):
        """W moves by -t `direction` to where F hardly falls any more; returns t.

        Along a line F' is increasing and linear between the knots: Newton's method in one variable, in a bracket.
        """
        import numpy as np

        cdef double t = 1, low = 0, high = math.inf, slope, curvature
        turns = np.empty(self.rows.m)
        self._measure(direction, turns)
        mean = self._mean(direction)
        for _ in range(TRIALS):
            slope, curvature = self._slope(t, turns, mean)
            slope += float((t * direction - self.W) @ direction)
            curvature += float(direction @ direction)
            if abs(slope) <= FLAT * fall:
                break
            if slope < 0:
                low = t
            else:
                high = t
            t -= slope / curvature
            if not low < t < high:
                # By orders of magnitude at first: where few rows curve F, its minimum may be at a tiny t.
                t = (low + high) / 2 if high < 8 * low else sqrt(high * max(low, 1e-6 * high))
        self.W = self.W - t * direction
        turns *= t
        if np.abs(turns).max() > NEAR:
            self.value = self._respond(self.W)
        else:
            self.margins -= turns
            self.value = self._evaluate(self.W)
        return t

    def _slope(self, double t, turns, double mean):
        """The losses' part of (F', F'') at W - t direction, `turns` being the margins of the direction."""
        cdef Py_ssize_t i
        cdef const double[::1] turn = turns
        cdef const pieces_t* phi
        cdef double g, c, gamma, b, h, off, slope = 0, curvature = 0
        with nogil:
            for i in range(self.rows.m):
                phi, c, g = <const pieces_t*> &self.tables[self.which[i], 0], self.c[i], self.margin[i] - t * turn[i]
                gamma = self.g * self.soft[self.which[i]] / (2 * c)
                b = step_to(phi, c, g - gamma * self.centre[i], gamma, &h)
                off = turn[i] - mean
                slope += b * turn[i] - 2 * self.spread * c * (g - self.v + t * mean) * off
                curvature += h * turn[i] * turn[i] + 2 * self.spread * c * off * off
        return slope, curvature


def softness_of(tables):
    """1/(the largest jump of phi') of each table, 0 where there is none: float64 array."""
    import numpy as np

    cdef const double[:, ::1] view = tables
    cdef const pieces_t* phi
    cdef double jump
    out = np.zeros(len(tables))
    for at in range(len(tables)):
        phi = <const pieces_t*> &view[at, 0]
        jump = max(jump_at(phi, 0), jump_at(phi, 1))
        out[at] = 1 / jump if jump > 0 else 0.0
    return out


cdef void perform(MarginNewton self, const task_t* task) noexcept nogil:
    """The one place where the storage of the rows is looked at."""
    if self.rows.storage == CSR64:
        perform_on(self, &self.rows.csr64, task)
    elif self.rows.storage == CSR32:
        perform_on(self, &self.rows.csr32, task)
    elif self.rows.storage == NARROW64:
        perform_on(self, &self.rows.narrow64, task)
    elif self.rows.storage == NARROW32:
        perform_on(self, &self.rows.narrow32, task)
    elif self.rows.storage == DENSE64:
        perform_on(self, &self.rows.dense64, task)
    elif self.rows.storage == DENSE32:
        perform_on(self, &self.rows.dense32, task)


cdef inline void perform_on(MarginNewton self, const data_t* X, const task_t* task) noexcept nogil:
    if task.what == MARGINS:
        measure(self, X, task)
    else:
        gather(X, task, self.gram)


cdef void measure(MarginNewton self, const data_t* X, const task_t* task) noexcept nogil:
    cdef Py_ssize_t i
    cdef double s
    for i in range(task.start, task.stop):
        s = row_dot(X, i, task.w)
        task.out[i] = s if self.positive[i] else -s


cdef void gather(const data_t* X, const task_t* task, Gram gram) noexcept nogil:
    cdef Py_ssize_t at, j
    for at in range(task.start, task.stop):
        for j in range(X.d):
            task.out[j] = 0
        row_axpy(X, task.who[at], task.root[at], task.out)
        gram.pack(at - task.start, task.out)
