"""ADMM for the problems of a BlockCD: rough weights that its sweeps start from, for few features.

The scores S become unknowns of their own, with the multipliers T of S = X W (alternating direction method of
multipliers, Boyd et al. 2011). With
rho_i = `ratio` c_i an iteration is

    W   = (I + X' diag(rho) X)^-1 X' (T + diag(rho) S)
    v_i = H_i - T_i/rho_i,   H = relax X W + (1 - relax) S
    T_i = the duals of min loss_i(s) + rho_i/2 ||s - v_i||^2: the solution of a block at v_i with A = 1/rho_i
    S_i = v_i + T_i/rho_i

The system is one for all classes, and both products with X are one pass, on all threads: an iteration costs about as
much as a sweep, and features that go together do not slow it down. The upper slack is taken against the best rival at
each W, so that J itself falls, not P at one choice of rivals.

With mu > 0 J is not convex, and `ratio` is a temperature: a small one lets the scores S stand far from X W, so that
rows still change their rivals, a large one holds both where they are. As in graduated non-convexity mu rises from 0 to
its value over the first iterations, at a small ratio; then the ratio rises to its last value, a step each PERIOD. The
weights of the duals at the end are far from W, and certify nothing yet: sweeps or Newton steps go on from both.
"""

import math

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport sqrt
from libc.stdint cimport int32_t, uint64_t

from marginlinear._core.block_cd cimport BlockCD
from marginlinear._core.cholesky cimport NormalMatrix
from marginlinear._core.joint_loss cimport SQUARED, add_loss, joint_t, solve_block
from marginlinear._core.rng cimport rng_next
from marginlinear._core.rows cimport GRAM, SLICE, Rows, data_t, row_axpy, row_scores, row_update

from marginlinear._core.cholesky import factor, substitute_columns
from marginlinear.threads import run_chunks

# Over-relaxation.
cdef double RELAX = 1.9
# Schedules: the ratio until mu has risen, the part of the iterations in which mu rises, and as which power of these.
# Which one ends lower, by how much, is up to the data; of more than SMALL multiplications there is one run, not one for
# each. LAST is the ratio at last, which rises each PERIOD.
SCHEDULES = (0.03, 0.2, 1), (0.07, 0.2, 2)
SMALL, LAST, PERIOD = 2e8, 0.6, 10
# Of the scores at first: their standard deviation about 1 for the own class, 0 for others. Each seed has its own.
SPREAD = 0.1
# At most EACH sqrt(mean c_i ||x_i||^2) iterations, as sweeps are, and MOST; fewer than FEWEST do not pay. They change
# all classes of a row, sweeps few: k classes cost 1/(1 + FEW/k) of a sweep.
EACH, MOST, FEWEST, FEW = 8.0, 300, 20, 6.0
# Where after PERIOD of them J is above this part of P(0), most rows have a margin below the band whatever W is, and
# critical points differ by little: sweeps from 0 end at one as low, and of large data they go on from there.
BENIGN = 0.25
# The centre of the sweeps that follow has this part of mean c_i ||x_i||^2.
FIRMNESS = 0.3
# Features, beyond which the d x d system takes too long.
LIMIT = 2000
# Of fewer rows a feature W fits almost all: J is little but the norm, critical points are alike, and sweeps soon skip
# most rows.
SCARCE = 4
# Sums over the rows have so many parts at most, whatever the number of threads.
cdef Py_ssize_t PARTS = 16


cdef enum Work:
    GATHER     # rows start to stop times the roots of their costs, packed by `gram`
    ALTERNATE  # scores, blocks, and the right-hand side of the next system


cdef struct task_t:
    Work what
    Py_ssize_t start
    Py_ssize_t stop
    double* scratch    # GATHER: d numbers, ALTERNATE: 4 k
    double* total      # d k numbers
    double loss        # sum_i loss_i(x_i W), the upper slack against the best rival
    double risen       # the same with the mu of now
    double ratio
    double following


cdef class ADMM:
    """Iterations on the duals of an engine with the squared loss; its weights stay until the end.

    Attributes
    ----------
    W : float64 array of shape (d, k)
    """

    cdef BlockCD engine
    cdef Rows rows
    cdef Py_ssize_t k, slice_rows
    cdef int threads
    cdef double ratio
    # With the mu of now, and of the engine's problem.
    cdef joint_t phi, whole
    cdef readonly double[:, ::1] W
    cdef double[:, ::1] alpha, scores, curvature, lower, wanted
    cdef double[::1] beta
    cdef const double[::1] cost, sqnorms
    cdef const int32_t[::1] y
    cdef int32_t[::1] rival
    cdef NormalMatrix gram

    def __init__(self, BlockCD engine):
        cdef Rows rows = engine.rows
        self.engine, self.rows, self.k, self.threads = engine, rows, engine.n_classes, engine.threads
        self.phi = self.whole = engine.phi
        self.alpha, self.beta, self.y, self.cost = engine.alpha, engine.beta, engine.y, engine.cost
        self.rival, self.sqnorms = engine.rival, engine.sqnorms
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * rows.m / (1.0 + <double>rows.nnz * self.k)))
        self.W = np.zeros((rows.d, self.k))
        self.lower = np.empty((rows.d, rows.d))
        self.ratio = 0
        self.curvature = self._sum_curvature()

    cdef double[:, ::1] _sum_curvature(self):
        """X' diag(c) X"""
        cdef Py_ssize_t start
        cdef task_t task
        cdef double[::1] scratch = np.empty(self.rows.d)
        self.gram = NormalMatrix(self.rows.d, self.rows.m, self.threads)
        self.gram.clear()
        task.what, task.scratch = GATHER, &scratch[0]
        self.rows.require()
        for start in range(0, self.rows.m, self.gram.room):
            task.start, task.stop = start, min(self.rows.m, start + self.gram.room)
            with nogil:
                perform(self, self.rows, &task)
            self.gram.add(task.stop - task.start)
        return self.gram.result()

    @staticmethod
    def iterations(BlockCD engine, worth):
        """How many a run may have for what `worth` sweeps cost, roughly; 0 where they are not possible or too few."""
        cdef Rows rows = engine.rows
        if rows.storage == GRAM or rows.d > LIMIT or rows.m < SCARCE * rows.d or engine.phi.kind != SQUARED:
            return 0
        # A multiplication costs 60 times what it does in a tile.
        square = <double>rows.d * rows.d
        sweep = 1.0 + <double>rows.nonzeros() * <double>engine.n_classes
        # A sweep multiplies twice: for scores and for weights.
        cost = 1 / (1 + FEW / engine.n_classes) + 0.5 * square * engine.n_classes / sweep
        n = min(MOST, EACH * math.sqrt(engine.condition()), (worth - square * rows.m / 60 / sweep) / cost)
        return math.ceil(n) if n >= FEWEST else 0

    def schedules(self, n):
        """Those that runs of n iterations are worth, one after the other."""
        return SCHEDULES if self.engine.phi.mu > 0 and self._is_small(n) else SCHEDULES[:1]

    def _is_small(self, n):
        return n * self.k * (2.0 * self.rows.nonzeros() + <double>self.rows.d * self.rows.d) <= SMALL

    def run(self, n, budget, seed=0, schedule=SCHEDULES[0], offer=None):
        """n iterations at most, from duals of 0 and margins of about 1. The last W and the duals become those of the
        engine, around a centre. Returns J(W), or infinity, with all at 0, where that is left to sweeps.

        `offer(J(W), W)` is called before the budget records J(W), and before what is left to sweeps.
        """
        cdef BlockCD engine = self.engine
        cdef double mu = self.whole.mu, objective, risen
        before = engine.phi.upper, engine.named
        first, rise, power = schedule
        ratio = first
        own = np.arange(self.rows.m), np.asarray(self.y)
        scores = spread(self.rows.zeros(self.rows.m * self.k), seed).reshape(-1, self.k)
        scores[own] += 1.0
        wanted = np.zeros((self.rows.d, self.k))
        engine._add((ratio * np.asarray(self.cost)[:, np.newaxis] * scores).ravel(), wanted.ravel())
        self.scores, self.wanted = scores, wanted
        engine.start_over()
        # The duals go with `rival` from the first iteration on.
        engine.phi.upper = engine.named = mu > 0
        for at in range(n):
            if budget.exhausted(engine.n_iter):
                break
            self.phi.mu = mu * min(1.0, at / (rise * n)) ** power
            self.phi.upper = self.phi.mu > 0
            following = ratio
            if (at + 1) % PERIOD == 0 and at + 1 < n:
                following = first * (LAST / first) ** max(0.0, ((at + 1) / n - rise) / (1 - rise))
            objective, risen = self._respond(ratio, following) if self._solve(ratio) else (math.inf, math.inf)
            engine.n_iter += 1
            benign = at + 1 == PERIOD and risen > BENIGN * engine.loss_at_zero()
            if offer is not None and objective < math.inf and (benign or engine.n_iter % PERIOD == 0):
                offer(objective, np.asarray(self.W).ravel())
            if not objective < math.inf or (benign and self._is_small(n)):
                engine.start_over()
                engine.phi.upper, engine.named = before
                return math.inf
            if benign:
                break
            ratio = following
            if engine.n_iter % PERIOD == 0:
                # All that is known of the least J is that no loss is below 0.
                budget.record(engine.n_iter, objective, 0.0, objective)
        engine.stand_beside(np.asarray(self.W).ravel(), FIRMNESS * engine.condition())
        return engine.primal()[1]

    def _solve(self, double ratio):
        """W of the right-hand side; whether the system is positive definite to working precision."""
        cdef Py_ssize_t i, j
        if ratio != self.ratio:
            with nogil:
                for i in range(self.rows.d):
                    for j in range(self.rows.d):
                        self.lower[i, j] = ratio * self.curvature[i, j]
                    self.lower[i, i] += 1
            if not factor(self.lower, self.threads):
                return False
            self.ratio = ratio
        self.W[:, :] = self.wanted
        substitute_columns(self.lower, self.W)
        return True

    def _respond(self, double ratio, double following):
        """J(W), and the same with the mu of now; sets T, S and the right-hand side of the next system."""
        # A part's sum of d k numbers is not to cost more than its rows, nor a thread's start.
        size = max(self.rows.d, self.rows.share(self.k), (self.rows.m + PARTS - 1) // PARTS)
        self.rows.require()
        parts = run_chunks(lambda lo, hi: self._pass(lo, hi, ratio, following), self.rows.m, self.threads, size)
        wanted = np.asarray(self.wanted)
        wanted[:] = 0
        for _, _, part in parts:
            wanted += part
        half = 0.5 * self.engine.iterates.sqnorm_of(np.asarray(self.W).ravel())
        return half + sum(loss for loss, _, _ in parts), half + sum(risen for _, risen, _ in parts)

    def _pass(self, Py_ssize_t lo, Py_ssize_t hi, double ratio, double following):
        cdef Py_ssize_t start
        cdef task_t task
        total = np.zeros((self.rows.d, self.k))
        cdef double[:, ::1] sums = total
        cdef double[::1] scratch = np.empty(4 * self.k)
        task.what, task.scratch, task.total, task.loss, task.risen = ALTERNATE, &scratch[0], &sums[0, 0], 0, 0
        task.ratio, task.following = ratio, following
        for start in range(lo, hi, self.slice_rows):
            task.start, task.stop = start, min(hi, start + self.slice_rows)
            with nogil:
                perform(self, self.rows, &task)
            PyErr_CheckSignals()
        return task.loss, task.risen, total


def spread(double[::1] values, uint64_t seed):
    """The array of `values`, which become uniform random numbers of mean 0 and standard deviation SPREAD."""
    cdef Py_ssize_t i
    cdef double width = sqrt(12) * SPREAD
    for i in range(values.shape[0]):
        values[i] = width * (0.5 - (rng_next(&seed) >> 11) * 2.0 ** -53)
    return np.asarray(values)


ctypedef fused engine_t:
    ADMM

include "on_features.pxi"


cdef inline void perform_on(ADMM self, const data_t* X, task_t* task) noexcept nogil:
    if task.what == GATHER:
        gather(self, X, task)
    else:
        alternate(self, X, task)


cdef void gather(ADMM self, const data_t* X, const task_t* task) noexcept nogil:
    cdef Py_ssize_t i, j
    for i in range(task.start, task.stop):
        for j in range(X.d):
            task.scratch[j] = 0
        row_axpy(X, i, sqrt(self.cost[i]), task.scratch)
        self.gram.pack(i - task.start, task.scratch)


cdef void alternate(ADMM self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, l, y, r, k = self.k
    cdef double c, A, rho, F, next_rho, unused = 0
    cdef double* s = task.scratch
    cdef double* B = s + k
    cdef double* a = B + k
    cdef double* v = a + k
    for i in range(task.start, task.stop):
        y, c = self.y[i], self.cost[i]
        row_scores(X, i, &self.W[0, 0], k, s)
        rho = task.ratio * c
        A = 1 / rho
        next_rho = task.following * c
        # T_i/rho with the rival of before.
        for l in range(k):
            B[l] = RELAX * s[l] + (1 - RELAX) * self.scores[i, l] - A * self.alpha[i, l]
        B[y] += A * self.beta[i]
        B[self.rival[i]] -= A * self.beta[i]
        r = 0 if y else 1
        for l in range(k):
            if l != y and s[l] > s[r]:
                r = l
        add_loss(&self.whole, c, s[y], s[r], s[r], &unused, &task.loss)
        add_loss(&self.phi, c, s[y], s[r], s[r], &task.risen, &unused)
        self.rival[i] = <int32_t>r
        if not self.phi.upper:
            r = -1
        if self.sqnorms[i] == 0:
            continue
        F = self.phi.high - (B[y] - B[r]) if r >= 0 else 0
        for l in range(k):
            s[l] = B[l]
            B[l] += self.phi.low
        B[y] -= self.phi.low
        self.beta[i] = solve_block(&self.phi, B, k, y, A, c, r, F, a, v)
        for l in range(k):
            self.alpha[i, l] = v[l] = a[l]
        if r >= 0:
            v[y] -= self.beta[i]
            v[r] += self.beta[i]
        for l in range(k):
            self.scores[i, l] = s[l] + A * v[l]
            v[l] += next_rho * self.scores[i, l]
        row_update(X, i, v, NULL, k, task.total, k)
