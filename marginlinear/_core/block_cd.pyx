"""Dual block coordinate descent for joint multi-class losses: one block of k dual variables a row.

    P(W) = 1/2 sum_l ||w_l||^2 + sum_i loss_i(s_i),   s_il = <w_l, x_i>,   y = y_i

    hinge     loss_i = c_i xi_i                            xi_i  = max_l (1 - [l = y] + s_il) - s_iy
    squared   loss_i = c_i (xi_i^2 + mu eps_i^2)           xi_i  = (low - s_iy + max_{l != y} s_il)_+
                                                           eps_i = (s_iy - ref_i - high)_+

    where ref_i is s_{i, r_i}, the score of a class named in `rival`, or a number given in `fixed`, or absent (no eps).

    D = -1/2 sum_l ||u_l||^2 + sum_i [alpha_iy]                                          (hinge)
    D = -1/2 sum_l ||u_l||^2 + sum_i [low alpha_iy - alpha_iy^2/(4 c_i)
                                      - (high + fixed_i) beta_i - beta_i^2/(4 c_i mu)]   (squared)
    u_l = sum_i (alpha_il - [l = y_i] beta_i + [l = r_i] beta_i) x_i
    alpha_il <= 0 for l != y, sum_l alpha_il = 0, beta_i >= 0;  hinge: alpha_iy <= c_i

In place of ||W||^2 = sum_l ||w_l||^2 there may be the square of another norm of the classes' norms, 1 <= p < 2 (hinge):

    ||W||_p^2 = (sum_l ||w_l||^p)^{2/p} = min_b sum_l ||w_l||^2/b_l,   b >= 0, ||b||_{p/(2-p)} <= 1
    D         = -1/2 ||U||_{p*}^2 + sum_i [alpha_iy],   p* = p/(p - 1)

The sweeps then work at some b, with w_l = b_l W_l: scores are multiplied by b_l, and block i has the curvature
b_l ||x_i||^2 in class l. `adapt` takes the minimising b at the weights of now. P and D know no b, so that any pair of
them is a certificate, with any b and after any change of it.

The sweeps run around a centre (iterates.pyx): block i is solved with A = ||x_i||^2/(1 + kappa), and W moves by
1/(1 + kappa) times the change of the duals.

A block that a visit leaves where it is has no gap, and most of those stay there. Such a row rests for as many sweeps as
it had calm visits in a row before. No row is left out for good, and values of P and D see all rows.
"""

import math

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, pow
from libc.stdint cimport int32_t, uint8_t, uint64_t

from marginlinear._core.shrinking cimport keep_awake, shuffle
from marginlinear._core.iterates cimport Iterates
from marginlinear._core.rows cimport (
    FETCH,
    Rows,
    place_prefetch,
    prefetch,
    row_prefetch,
    row_present,
    row_scores,
    row_turn,
    row_update,
    rows_t,
    weights_prefetch,
)
from marginlinear._core.block_problem cimport dot, hinge_block, hinge_block_by_class, larger, squared_block, top_beside
from marginlinear._core.vector import Buffer, assign, clear, copied, product, seen, total, zeros
from marginlinear.threads import run_chunks

cdef enum Loss:
    HINGE
    SQUARED

# The least b_l, as a part of the largest.
FLOOR = 1e-9
# Parts of the largest norm below which one may be called smaller: that of a class to drop, tried in turn.
NEAR = 0.99, 0.9, 0.5
# A dual that has this part of its bound is there but for rounding.
AT_BOUND = 1 - 1e-12
# A block whose gap is this part of c_i was moved by rounding, at most.
cdef double CALM = 1e-12
# Work of one slice between looks at the signals: about 20 ms.
cdef double SLICE = 2e7
# Rows between the request for a row's values and its turn.
cdef enum:
    AHEAD = 3
    LONGEST_REST = 6    # sweeps


cdef struct sums_t:
    double gap       # sum_i [loss_i(s_i) + loss_i*(dual_i) - <s_i, dual_i>], each before its own update
    double loss      # sum_i loss_i(s_i)
    double tight     # sum_i loss_i(s_i) with the upper slack taken against the best rival
    Py_ssize_t stale  # rows whose named rival is not the best


cdef enum Work:
    VISIT    # coordinate steps at the rows order[start:stop]; start becomes the first that was not made
    SEEK     # found[:count]: rows of order[start:stop] that are absent, and whose step is not 0; nothing changed
    LOSSES   # their sums at rows start to stop, nothing changed
    RIVALS   # to, value: each row's best other class and its score
    ADD      # W += sum_i dual_i x_i; start becomes the first that was not added


cdef struct task_t:
    Work what
    Py_ssize_t start
    Py_ssize_t stop
    double* scratch     # VISIT, SEEK: 5 k numbers; LOSSES, RIVALS: k
    sums_t* sums
    int32_t* to
    double* value
    const double* dual
    double* W
    Py_ssize_t* found
    Py_ssize_t count


cdef class BlockCD:
    """State and sweeps of one problem.

    Parameters
    ----------
    rows : Rows
    y : int32 array of shape (m,)
    n_classes : int
    cost : contiguous float64 array of shape (m,)
        c_i > 0.
    squared : bool
        False: hinge.
    low, high, mu : float
        Of the squared loss.
    norm : float
        p on [1, 2]; below 2 with the hinge only.
    seed : int
    threads : int
        For passes that only read; sweeps use one.

    Attributes
    ----------
    iterates : Iterates
        W, flat: feature j of class l at j*k + l.
    alpha : float64 array of shape (m, k);  beta : float64 array of shape (m,), zeros while there is no upper loss
    mean_alpha, mean_beta : the same of their averages
    negligible : float
        A row whose block's gap is not above it is left as it is.
    rival : int32 array of shape (m,);  fixed : float64 array of shape (m,)
    kinked : bool
        Whether the derivative of the loss jumps.
    flat : bool
        Whether the loss has no curvature.
    factors : float64 array of shape (k,) or None
        b; None with p = 2.
    visits : int
        Of rows, by all sweeps.
    n_adapt : int
        How often b was taken anew.
    excess : float
        What P - D, at W and the duals, has beyond the same difference at this b.
    """

    lines = False
    stable = True
    rounding = 0.0

    cdef readonly Rows rows
    cdef readonly Iterates iterates
    cdef readonly object y
    cdef object _cost, _alpha, _beta, _rival, _fixed, _mean_alpha, _mean_beta, kept, before
    cdef readonly Py_ssize_t n_classes
    cdef public Py_ssize_t n_iter, n_adapt
    cdef readonly double negligible
    cdef readonly bint upper, named, kinked, flat
    cdef bint far
    cdef readonly double gap, loss, slack, norm, excess
    cdef Loss kind
    cdef readonly bint squared
    cdef readonly double low, high, mu
    cdef readonly int threads
    cdef uint64_t rng
    cdef readonly Py_ssize_t visits
    cdef Py_ssize_t visited, slice_rows
    cdef uint8_t[::1] rest, calm
    cdef double[:, ::1] a
    cdef double[::1] b, scratch
    cdef const double[::1] c, sq, m_fixed
    cdef const int32_t[::1] labels
    cdef const int32_t[::1] r, to
    cdef bint naming
    cdef Py_ssize_t[::1] order
    cdef double[::1] factor
    cdef bint uneven
    cdef int32_t[::1] which

    def __init__(self, Rows rows, y, Py_ssize_t n_classes, cost, *, bint squared, double low=1.0, double high=1.0,
                 double mu=0.0, double norm=2.0, seed=0, int threads=1):
        if norm < 2 and squared:
            raise ValueError(f"norm = {norm}: the squared loss has the norm 2 only")
        cdef Py_ssize_t m = rows.m, k = n_classes
        self.rows, self.y, self._cost, self.n_classes = rows, y, cost, k
        self.kind, self.squared, self.kinked = SQUARED if squared else HINGE, squared, not squared
        self.flat = not squared
        self.low, self.high, self.mu = low, high, mu
        self.threads = threads
        self.rng = seed
        self.negligible = -INFINITY
        self.norm, self.uneven = norm, norm < 2
        self.factor = Buffer("d", k)
        if self.uneven:
            self._level_factors()
        self.iterates = Iterates(rows.d * k, rows.is_gram, self.factors)
        self._alpha, self._beta = zeros("d", m, k), zeros("d", m)
        self._rival, self._fixed = zeros("i", m), zeros("d", m)
        self.labels, self.c, self.sq = y, cost, rows.sqnorms()
        self.a, self.b, self.r, self.m_fixed = self._alpha, self._beta, self._rival, self._fixed
        self.order, self.which, self.scratch = Buffer("q", m), Buffer("i", k), Buffer("d", 5 * k)
        self.rest, self.calm = zeros("B", m), zeros("B", m)
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * m / (1.0 + <double>rows.nnz * k)))
        # Weights within a core's own cache need no prefetch.
        self.far = 8.0 * rows.d * k > 512 * 1024
        self.settle_empty_rows()

    def settle_empty_rows(self):
        """A row with x_i = 0 has s_i = 0 for any W: its duals are set once so that its block has no gap."""
        cdef Py_ssize_t i, y, k = self.n_classes
        for i in range(self.rows.m):
            if self.sq[i] == 0:
                y = self.labels[i]
                self.a[i, :] = 0
                self.a[i, y] = 2 * self.c[i] * self.low if self.kind == SQUARED else self.c[i]
                self.a[i, (y + 1) % k] = -self.a[i, y]

    @property
    def cost(self):
        return seen(self._cost)

    @property
    def alpha(self):
        return seen(self._alpha)

    @property
    def beta(self):
        return seen(self._beta)

    @property
    def mean_alpha(self):
        return seen(self._mean_alpha)

    @property
    def mean_beta(self):
        return seen(self._mean_beta)

    @property
    def rival(self):
        return seen(self._rival)

    @property
    def fixed(self):
        return seen(self._fixed)

    @property
    def factors(self):
        return seen(self.factor) if self.uneven else None

    def resume(self, state):
        """Go on from the `state()` of an engine on the same rows, where a row's cost changed from the mix of warm_start.py.
        """
        import numpy as np

        self.rest[:] = 0
        if self.mu > 0:
            self.upper, self.named = state["upper"], state["named"]
        assign(self._rival, state["rival"])
        assign(self._fixed, state["fixed"])
        alpha, beta = state["alpha"], state["beta"] if self.mu > 0 else zeros("d", self.rows.m)
        W, factors, cost = state["W"], state["factors"], np.asarray(state["cost"])
        if self.uneven and factors is not None:
            dropped = factors == 0
            self.factors[:] = np.maximum(factors, FLOOR * factors.max())
            if dropped.any():
                W = np.array(W)
                W.reshape(-1, self.n_classes)[:, dropped] = 0
        if (self.cost != cost).any():
            self.before = {name: state[name] for name in ("alpha", "beta", "cost")}
            self.alpha[:], self.beta[:], U = self._mixed(np.asarray(alpha), np.asarray(beta), cost, state["before"])
            # Without a part in the weights.
            self.settle_empty_rows()
            self.iterates.resume(U, U, 0.0)
        else:
            self.before = state["before"]
            assign(self._alpha, alpha)
            assign(self._beta, beta)
            self.iterates.resume(W, self.summed(alpha, beta), state["kappa"])

    def stand_beside(self, const double[::1] W, double kappa):
        """Go on, around a centre, from these weights beside the duals that `working_arrays` were given. The upper loss
        has the rivals that were named there."""
        self.rest[:] = 0
        self.upper = self.named = self.mu > 0
        self.iterates.resume(W, self.summed(self._alpha, self._beta), kappa)

    def _mixed(self, alpha, beta, cost, before):
        """(alpha, beta, U): the best mix of the duals of another cost, and of those before, with its weights."""
        import numpy as np

        from marginlinear.algorithms.warm_start import best_mix, best_step, extrapolated

        every, y = np.arange(self.rows.m), np.asarray(self.y)
        none, flat = np.zeros_like(self.alpha), np.zeros_like(self.beta)
        parts = [(alpha, flat), (none, beta)]
        if before is not None:
            first, first_beta, first_cost = (np.asarray(before[name]) for name in ("alpha", "beta", "cost"))
            further = extrapolated(alpha, cost[:, np.newaxis], (first, first_cost[:, np.newaxis]),
                                   self.cost[:, np.newaxis])
            parts += [(further, flat), (first, flat)]
            if self.mu > 0:
                parts += [(none, extrapolated(beta, cost, (first_beta, first_cost), self.cost)), (none, first_beta)]
        held = none
        if self.kind == HINGE:
            bound = (alpha[every, y] >= AT_BOUND * cost)[:, np.newaxis]
            held = np.where(bound, alpha * (self.cost / cost)[:, np.newaxis], 0.0)
            parts = [(np.where(bound, 0.0, a), b) for a, b in parts]
        parts = [(self._balanced(a), b) for a, b in parts if a.any() or b.any()]
        sqnorm_of = self.iterates.sqnorm_of

        def values(parts):
            left, right = np.array([a[every, y] for a, _ in parts]), np.array([b for _, b in parts])
            linear, curved = self.low * left.sum(axis=1), np.zeros((len(parts), len(parts)))
            if self.kind == SQUARED:
                curved += (left / (2 * self.cost)) @ left.T
            if self.mu > 0:
                linear -= right @ (self.high + (np.zeros_like(self.fixed) if self.named else self.fixed))
                curved += (right / (2 * self.cost * self.mu)) @ right.T
            return linear, curved

        def inside(alpha, beta, U):
            """Cut off, with the weights that go with it: a pass over the rows that are cut."""
            a, b = self._feasible(alpha, beta)
            return a, b, U + self.weights_of(a - alpha, b - beta)

        images = [self.weights_of(*part) for part in parts]
        fixed = self.weights_of(held, flat) if held.any() else None
        U = self.weights_of(alpha, beta)
        scale = best_mix([U], sqnorm_of, *values([(alpha, beta)]))
        *old, here = inside(scale * alpha, scale * beta, scale * U)
        shares = best_mix(images, sqnorm_of, *values(parts), fixed) if parts else []
        mixed = sum((t * image for t, image in zip(shares, images, strict=True)),
                    np.zeros_like(U) if fixed is None else fixed)
        *new, there = inside(sum((t * a for t, (a, _) in zip(shares, parts, strict=True)), held),
                             sum((t * b for t, (_, b) in zip(shares, parts, strict=True)), flat),
                             mixed)
        step = best_step(here, there, sqnorm_of, *values([old, new]))
        alpha, beta = self._feasible(*(a + step * (b - a) for a, b in zip(old, new, strict=True)))
        return alpha, beta, here + step * (there - here)

    def _feasible(self, alpha, beta):
        """(alpha, beta) cut off at the ends of their range."""
        import numpy as np

        alpha = self._balanced(np.minimum(alpha, 0))
        if self.kind == HINGE:
            top = alpha[np.arange(self.rows.m), np.asarray(self.y)]
            alpha *= np.where(top > self.cost, self.cost / np.maximum(top, self.cost), 1.0)[:, np.newaxis]
        return alpha, np.maximum(beta, 0)

    def _balanced(self, alpha):
        """alpha with alpha_iy = -sum of the others."""
        import numpy as np

        own = np.arange(len(alpha)), np.asarray(self.y)
        alpha = alpha.copy()
        alpha[own] = 0
        alpha[own] = -alpha.sum(axis=1)
        return alpha

    def state(self, bint averaged):
        """What `resume` needs: the duals (or their averages) and the weights."""
        alpha, beta = self._duals(averaged)
        return {"alpha": alpha, "beta": beta, "cost": self._cost, "rival": self._rival, "fixed": self._fixed,
                "upper": self.upper, "named": self.named, "W": self.iterates.vector(False),
                "kappa": self.iterates.kappa, "factors": self.factors, "before": self.before}

    def working_arrays(self):
        """(alpha, beta, y, cost, rival, fixed, factors), for steps of another kind, which change the duals."""
        return self._alpha, self._beta, self.y, self._cost, self._rival, self._fixed, self.factor

    def keep_duals(self, bint averaged):
        """From here on `state`, `recomputed_dual` and `count_support` speak of these duals as they are now."""
        alpha, beta = (self._mean_alpha, self._mean_beta) if averaged else (self._alpha, self._beta)
        if self.kept is None:
            self.kept = copied(alpha), copied(beta)
        else:
            assign(self.kept[0], alpha)
            assign(self.kept[1], beta)

    def _duals(self, bint averaged):
        if self.kept is not None:
            return self.kept
        return (self._mean_alpha, self._mean_beta) if averaged else (self._alpha, self._beta)

    def name_rivals(self, rival):
        """Take the upper slack against the score of these classes.

        A beta_i > 0 goes with its class: where that is another one now, row i gets its block's solution. Many beta_i
        that go as they are move the weights all in the same direction, far off.
        """
        cdef sums_t sums
        cdef Py_ssize_t i
        self.to, self.naming, self.visited = rival, True, 0
        for i in range(self.rows.m):
            if self.b[i] > 0 and not (self.named and self.r[i] == self.to[i]):
                self.order[self.visited] = i
                self.visited += 1
        try:
            self._visit(&sums)
        finally:
            self.naming = False
        self.rest[:] = 0
        self.upper = self.named = True
        assign(self._rival, rival)

    def fix_references(self, fixed):
        """Take the upper slack against these numbers. A beta_i > 0 leaves the class that it was with."""
        cdef double[:, ::1] delta
        cdef Py_ssize_t i
        self.rest[:] = 0
        if self.named:
            delta = zeros("d", self.rows.m, self.n_classes)
            for i in range(self.rows.m):
                delta[i, self.r[i]] = -self.b[i] / (1 + self.iterates.kappa)
            self._add(delta, self.iterates.w)
        self.upper, self.named = True, False
        assign(self._fixed, fixed)

    def _add(self, const double[:, ::1] coefficients, double[::1] W):
        """W += sum_i coefficients_i x_i"""
        cdef task_t task
        cdef Py_ssize_t start, m = self.rows.m
        self.rows.begin_pass()
        task.what, task.dual, task.W = ADD, &coefficients[0, 0], &W[0]
        for start in range(0, m, self.slice_rows):
            task.start, task.stop = start, min(m, start + self.slice_rows)
            self._perform(&task)

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
                moving = np.asarray(<const double[:self.rows.m, :self.n_classes]> task.dual)[task.start:]
                self.rows.fetch(task.start + np.flatnonzero(moving.any(axis=1)))
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

    def neglect(self, double gap):
        """Leave rows as they are whose blocks' gaps add up to no more than `gap`, each an equal share of it."""
        self.negligible = gap / max(1, self.rows.m)

    def sweep(self):
        """Visit every row once in a new random order, but those that rest. Sets sums over the rows as they were met:
        `gap` of the blocks, `loss`, and `slack`, what the loss would lose with the best rivals named."""
        cdef sums_t sums
        with nogil:
            self.visited = keep_awake(&self.sq[0], &self.rest[0], self.rows.m, &self.order[0])
            shuffle(&self.order[0], self.visited, &self.rng)
        self.visits += self.visited
        self._visit(&sums)
        self.gap, self.loss, self.slack = sums.gap, sums.loss, sums.loss - sums.tight
        self.n_iter += 1

    cdef _visit(self, sums_t* sums):
        """Coordinate steps at the rows order[:visited]."""
        cdef Py_ssize_t start
        cdef task_t task
        sums.gap = sums.loss = sums.tight = 0
        sums.stale = 0
        task.what, task.scratch, task.sums = VISIT, &self.scratch[0], sums
        self.rows.begin_pass()
        for start in range(0, self.visited, self.slice_rows):
            task.start, task.stop = start, min(self.visited, start + self.slice_rows)
            self._perform(&task)

    def primal(self, bint averaged=False):
        """(P, tight, stale) at W, or at W_avg, exactly, by one pass over the rows.

        tight is P with the upper slack taken against the best rival; stale counts rows whose named rival is not it.
        """
        weights = self.iterates.vector(averaged)
        parts = run_chunks(lambda lo, hi: self._primal_part(lo, hi, weights), self.rows.m, self.threads)
        half = self._half(weights)
        return half + sum(p[0] for p in parts), half + sum(p[1] for p in parts), sum(p[2] for p in parts)

    def half_norm(self):
        """1/2 ||W||_p^2 at the present W."""
        return self._half(self.iterates.vector(False))

    def _half(self, weights):
        """1/2 ||W||_p^2"""
        if not self.uneven:
            return 0.5 * self.iterates.sqnorm_of(weights)
        return 0.5 * norm_of(self.factors * roots(self.iterates.class_sqnorms_of(weights)), self.norm) ** 2

    def _dual_half(self, whole, by_class, *given):
        """1/2 ||U||_{p*}^2, these functions of `iterates` being ||U||^2 and ||U_l||^2."""
        if not self.uneven:
            return 0.5 * whole(*given)
        return 0.5 * norm_of(roots(by_class(*given)), conjugate(self.norm)) ** 2

    def _primal_part(self, Py_ssize_t lo, Py_ssize_t hi, double[::1] W):
        cdef Py_ssize_t start
        cdef sums_t sums
        cdef task_t task
        cdef double[::1] s = Buffer("d", self.n_classes)
        sums.gap = sums.loss = sums.tight = 0
        sums.stale = 0
        task.what, task.scratch, task.sums, task.W = LOSSES, &s[0], &sums, &W[0]
        for start in range(lo, hi, self.slice_rows):
            task.start, task.stop = start, min(hi, start + self.slice_rows)
            with nogil:
                perform(self, self.rows, &task)
            PyErr_CheckSignals()
        return sums.loss, sums.tight, sums.stale

    def adapt(self):
        """With p < 2: b_l = ||w_l||^{2-p} ||W||_p^{p-2} at the present W, and `excess` there.

        Around a new centre any row may have a gap: all are awake.
        """
        if self.iterates.kappa > 0:
            self.rest[:] = 0
        if not self.uneven:
            return
        import numpy as np

        # Norms that overflow are met by the descent.
        with np.errstate(over="ignore", invalid="ignore"):
            norms = self.factors * roots(self.iterates.class_sqnorms())
            if norms.max() > 0:
                self.scale_classes(best_factors(norms, self.norm))
            squares = self.iterates.class_sqnorms()
            duals = self.iterates.dual_class_sqnorms()
            self.excess = 0.5 * (norm_of(self.factors * roots(squares), self.norm) ** 2 - self.factors @ squares
                                 + norm_of(roots(duals), conjugate(self.norm)) ** 2 - self.factors @ duals)

    def scale_classes(self, factors):
        """Work at this b, with p < 2. The duals stay, and so does U."""
        self.iterates.change_factors(factors)
        self.n_adapt += 1

    def drop_classes(self, bint averaged):
        """With p = 1: b_l = 0 where that lowers P at W. At the optimum w_l = 0 unless ||U_l|| is the largest.

        To be called at the end, for the duals or their averages: no sweep brings such a class back.
        """
        if self.norm > 1:
            return
        norms = roots(self.iterates.class_sqnorms_of(self.dual_weights(averaged)))
        before, given = self.primal()[0], self.factors.copy()
        for part in NEAR:
            self.factors[norms < part * norms.max()] = 0
            if self.primal()[0] <= before:
                return
            self.factors[:] = given

    def _level_factors(self):
        self.factor[:] = pow(self.n_classes, (self.norm - 2) / self.norm)

    def weights_at(self, state):
        """The weights of a vector such as W: w_l = b_l W_l, flat, a copy with p < 2."""
        if not self.uneven:
            return state
        weights = copied(state)
        self.iterates.scale(weights, 1.0)
        return weights

    def best_rivals(self, bint averaged=False):
        """(rival, score): the class l != y_i of the largest score at W or W_avg, and that score, as Buffers.

        A class named before stays where it is as good as any.
        """
        rival, score = Buffer("i", self.rows.m), Buffer("d", self.rows.m)
        weights = self.iterates.vector(averaged)
        run_chunks(lambda lo, hi: self._rivals_part(lo, hi, weights, rival, score), self.rows.m, self.threads,
                   self.rows.slice(self.n_classes))
        return rival, score

    def _rivals_part(self, Py_ssize_t lo, Py_ssize_t hi, double[::1] W, int32_t[::1] to, double[::1] value):
        cdef task_t task
        cdef double[::1] s = Buffer("d", self.n_classes)
        task.what, task.start, task.stop, task.scratch = RIVALS, lo, hi, &s[0]
        task.W, task.to, task.value = &W[0], &to[0], &value[0]
        with nogil:
            perform(self, self.rows, &task)
        PyErr_CheckSignals()

    def dual(self):
        """D at the duals of the sweeps."""
        iterates = self.iterates
        half = self._dual_half(iterates.dual_sqnorm, iterates.dual_class_sqnorms)
        return self._dual_terms(self._alpha, self._beta) - half

    def averaged_dual(self):
        """D at the averaged duals."""
        iterates = self.iterates
        half = self._dual_half(iterates.averaged_sqnorm, iterates.averaged_class_sqnorms)
        return self._dual_terms(self._mean_alpha, self._mean_beta) - half

    def dual_weights(self, bint averaged):
        """U of the duals, or of their averages, summed afresh from the rows."""
        return self.summed(*self._duals(averaged))

    def recompute_scores(self):
        """Over Gram rows: the scores of W, summed afresh from its coefficients."""
        coefficients = self.iterates.W.reshape(-1, self.n_classes)[self.rows.m:].copy()
        self.iterates.w[:] = 0
        self._add(coefficients, self.iterates.w)

    def refresh(self):
        """The weights summed afresh from the rows: what many small changes have rounded away comes back."""
        if self.rows.is_gram:
            self.recompute_scores()
        self.iterates.refresh(self.summed(self._alpha, self._beta))

    def recomputed_dual(self, bint averaged, weights=None, rival=None, fixed=None):
        """D at the duals, or at their averages, with their `dual_weights`, recomputed unless they are given.

        With `rival` or `fixed`: as if these were the references of the upper slack; the state is left as it is.
        """
        alpha, beta = self._duals(averaged)
        kept = copied(self._rival), copied(self._fixed)
        if rival is not None:
            assign(self._rival, rival)
        if fixed is not None:
            assign(self._fixed, fixed)
        if weights is None:
            weights = self.summed(alpha, beta)
        half = self._dual_half(self.iterates.sqnorm_of, self.iterates.class_sqnorms_of, weights)
        bound = self._dual_terms(alpha, beta) - half
        assign(self._rival, kept[0])
        assign(self._fixed, kept[1])
        return bound

    def count_support(self, bint averaged):
        """Rows with a non-zero dual."""
        cdef const double[:, ::1] alpha
        cdef const double[::1] beta
        cdef Py_ssize_t i, count = 0
        alpha, beta = self._duals(averaged)
        for i in range(self.rows.m):
            count += alpha[i, self.labels[i]] != 0 or beta[i] != 0
        return count

    def _dual_terms(self, const double[:, ::1] alpha, const double[::1] beta):
        """The part of D that does not depend on the rows."""
        cdef Py_ssize_t i
        cdef double own
        found = Buffer("d", self.rows.m)
        cdef double[::1] terms = found
        with nogil:
            for i in range(self.rows.m):
                own = alpha[i, self.labels[i]]
                terms[i] = own
                if self.kind == SQUARED:
                    terms[i] = self.low * own - own * own / (4 * self.c[i])
                    if self.upper:
                        terms[i] -= ((self.high + (0.0 if self.named else self.m_fixed[i])) * beta[i]
                                     + beta[i] * beta[i] / (4 * self.c[i] * self.mu))
        return total(found)

    def average(self, double weight, double A, double a):
        """Add the duals to their average with this weight; returns what Iterates.average does."""
        cdef Py_ssize_t i, l
        cdef double[:, ::1] mean
        cdef double[::1] mean_b
        if self._mean_alpha is None:
            self._mean_alpha, self._mean_beta = zeros("d", self.rows.m, self.n_classes), zeros("d", self.rows.m)
        if weight == 1:
            assign(self._mean_alpha, self._alpha)
            assign(self._mean_beta, self._beta)
        else:
            mean, mean_b = self._mean_alpha, self._mean_beta
            with nogil:
                for i in range(self.a.shape[0]):
                    for l in range(self.n_classes):
                        mean[i, l] += weight * (self.a[i, l] - mean[i, l])
                    mean_b[i] += weight * (self.b[i] - mean_b[i])
        return self.iterates.average(weight, A, a)

    def loss_at_zero(self):
        """sum_i loss_i at W = 0, which is P(0)."""
        return total(self.c) * (self.low * self.low if self.kind == SQUARED else 1.0)

    def start_over(self):
        """Duals and weights of 0, plain sweeps."""
        self.rest[:] = 0
        clear(self._alpha)
        clear(self._beta)
        self.settle_empty_rows()
        self.iterates.plain()
        self.iterates.w[:] = 0
        if self.uneven:
            self._level_factors()

    def adopt(self):
        """Go on from the averaged duals and weights."""
        self.rest[:] = 0
        assign(self._alpha, self._mean_alpha)
        assign(self._beta, self._mean_beta)
        self.iterates.adopt()

    def stiffness(self):
        """Mean of c_i ||x_i||^2: how far a row's own loss outweighs the norm of W."""
        return total(product(self.c, self.sq)) / self.rows.m

    def weights_of(self, alpha, beta):
        """U of these duals, summed afresh: flat float64 array of shape (d k,)."""
        return seen(self.summed(alpha, beta))

    def summed(self, alpha, const double[::1] beta):
        """`weights_of`, as a Buffer."""
        cdef double[:, ::1] coefficients = copied(alpha)
        cdef Py_ssize_t i
        if self.upper:
            with nogil:
                for i in range(self.rows.m):
                    coefficients[i, self.labels[i]] -= beta[i]
                    if self.named:
                        coefficients[i, self.r[i]] += beta[i]
        flat = zeros("d", self.rows.d * self.n_classes)
        self._add(coefficients, flat)
        return flat


def centred(const double[::1] weights, Py_ssize_t k):
    """(flat weights of k classes without their mean over these, that mean), as Buffers."""
    cdef Py_ssize_t j, l, n = weights.shape[0] // k
    cdef double[::1] out, mean
    found = Buffer("d", n * k), zeros("d", n)
    out, mean = found
    with nogil:
        for j in range(n):
            for l in range(k):
                mean[j] += weights[j * k + l]
            mean[j] /= k
            for l in range(k):
                out[j * k + l] = weights[j * k + l] - mean[j]
    return found


def roots(squares):
    """Norms of classes, whose squares rounding may take below 0 over a Gram matrix."""
    import numpy as np

    return np.sqrt(np.maximum(squares, 0.0))


def conjugate(p):
    """p* = p/(p - 1)"""
    return p / (p - 1) if p > 1 else math.inf


def norm_of(norms, q):
    """(sum_l norms_l^q)^{1/q}, without overflow for any q."""
    largest = norms.max()
    if q == math.inf or not 0 < largest < math.inf:
        return float(largest)
    return float(largest * ((norms / largest) ** q).sum() ** (1 / q))


def best_factors(norms, p):
    """argmin over b of sum_l norms_l^2/b_l, ||b||_{p/(2-p)} <= 1, floored: a class of factor 0 would keep it."""
    import numpy as np

    factors = (norms / norm_of(norms, p)) ** (2 - p)
    return np.maximum(factors, FLOOR * factors.max())


cdef inline void scale_scores(BlockCD self, double* s) noexcept nogil:
    cdef Py_ssize_t l
    if self.uneven:
        for l in range(self.n_classes):
            s[l] *= self.factor[l]


cdef inline void add_block(BlockCD self, Py_ssize_t i, const double* s, const double* alpha, double beta,
                           sums_t* sums) noexcept nogil:
    """Add row i's loss and its block's gap, loss_i(s) + loss_i*(dual) - <s, dual>."""
    cdef Py_ssize_t k = self.n_classes, y = self.labels[i]
    cdef double c = self.c[i], rival = top_beside(s, k, y), xi, eps, best, loss
    cdef double inner = dot(alpha, s, k)
    xi = larger(0.0, self.low + rival - s[y])
    if self.kind == HINGE:
        sums.loss += c * xi
        sums.tight += c * xi
        sums.gap += c * xi + inner - alpha[y]
        return
    loss = c * xi * xi
    sums.tight += loss
    inner += loss + alpha[y] * (alpha[y] / (4 * c) - self.low)
    if self.upper:
        eps = s[y] - (s[self.r[i]] if self.named else self.m_fixed[i])
        inner += beta * (self.high - s[y] + (s[self.r[i]] if self.named else self.m_fixed[i]))
        inner += beta * beta / (4 * c * self.mu)
        eps = larger(0.0, eps - self.high)
        best = larger(0.0, s[y] - rival - self.high)
        sums.tight += c * self.mu * best * best
        loss += c * self.mu * eps * eps
        inner += c * self.mu * eps * eps
        if self.named:
            sums.stale += s[self.r[i]] < rival
    sums.loss += loss
    sums.gap += inner


ctypedef fused engine_t:
    BlockCD

include "on_rows.pxi"


cdef inline void perform_on(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    if task.what == VISIT:
        visit(self, X, task)
    elif task.what == SEEK:
        seek(self, X, task)
    elif task.what == LOSSES:
        losses(self, X, task)
    elif task.what == RIVALS:
        rivals(self, X, task)
    else:
        accumulate(self, X, task)


cdef inline Py_ssize_t step_of(BlockCD self, const rows_t* X, Py_ssize_t i, double shrink, double* s, double* a,
                               double* b, sums_t* own) noexcept nogil:
    """Row i's scores s[:k], the exact solution (a, b) of its block, and the change of the weights in s[k:2k].

    Returns how many classes change, these being self.which: none where the block's gap is negligible. `own` becomes
    the row's part of the sums. While rivals are named, (a, b) is a step from the class that b_i was with to its next.
    """
    cdef Py_ssize_t l, count = 0, k = self.n_classes, y = self.labels[i], before = self.r[i] if self.named else -1
    cdef Py_ssize_t r = self.to[i] if self.naming else before
    cdef double A = self.sq[i] * shrink, c = self.c[i], upper = -1, F = 0
    cdef double* B = s + k
    cdef double* v = B + k
    cdef double* curvature = s + 4 * k
    cdef const double* old = &self.a[i, 0]
    row_scores(X, i, &self.iterates.w[0], k, s)
    scale_scores(self, s)
    own.gap = own.loss = own.tight = 0
    own.stale = 0
    add_block(self, i, s, old, self.b[i], own)
    if own.gap <= self.negligible and not self.naming:
        return 0
    if self.uneven:
        for l in range(k):
            curvature[l] = A * self.factor[l]
            B[l] = s[l] - curvature[l] * old[l] + self.low
    else:
        for l in range(k):
            B[l] = s[l] - A * old[l] + self.low
    B[y] -= self.low
    b[0] = 0
    if self.uneven:
        hinge_block_by_class(B, k, y, curvature, c, a)
    elif self.kind == HINGE:
        hinge_block(B, k, y, A, c, a, v)
    else:
        if self.upper:
            upper = 1 / (2 * c * self.mu)
            B[y] += A * self.b[i]
            if before >= 0:
                B[before] -= A * self.b[i]
            if r >= 0:
                F = self.high - (B[y] - (B[r] - self.low))
            else:
                F = self.high + self.m_fixed[i] - B[y]
        b[0] = squared_block(B, k, y, A, 1 / (2 * c), upper, r, F, a, v)
    for l in range(k):
        B[l] = (a[l] - old[l]) * shrink
    if self.upper:
        B[y] -= (b[0] - self.b[i]) * shrink
        if r != before:
            B[r] += b[0] * shrink
            if before >= 0:
                B[before] -= self.b[i] * shrink
        elif r >= 0:
            B[r] += (b[0] - self.b[i]) * shrink
    for l in range(k):
        self.which[count] = <int32_t>l
        count += B[l] != 0
    return count


cdef inline void own_prefetch(BlockCD self, Py_ssize_t i) noexcept nogil:
    """Ask for row i's duals and constants ahead of its turn."""
    cdef Py_ssize_t l
    for l in range(0, self.n_classes, 8):
        prefetch(&self.a[i, l])
    prefetch(&self.a[i, self.n_classes - 1])
    prefetch(&self.b[i])
    prefetch(&self.c[i])
    prefetch(&self.sq[i])
    prefetch(&self.labels[i])
    prefetch(&self.r[i])


cdef void visit(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    """Coordinate steps: scores, exact solution of the block, update of the weights."""
    cdef Py_ssize_t at, i, l, count, k = self.n_classes
    cdef double shrink = 1 / (1 + self.iterates.kappa), b = 0
    cdef double* W = &self.iterates.w[0]
    cdef double* s = task.scratch
    cdef double* a = s + 3 * k
    cdef sums_t own
    for at in range(task.start, task.stop):
        i = self.order[at]
        if at + 2 * AHEAD < task.stop:
            place_prefetch(X, self.order[at + 2 * AHEAD])
        if at + AHEAD < task.stop:
            row_prefetch(X, self.order[at + AHEAD])
            own_prefetch(self, self.order[at + AHEAD])
        if self.far and at + 1 < task.stop:
            weights_prefetch(X, self.order[at + 1], W, k)
        count = step_of(self, X, i, shrink, s, a, &b, &own)
        row_turn(X, i)
        if count and not row_present(X, i):
            task.start = at
            return
        task.sums.gap += own.gap
        task.sums.loss += own.loss
        task.sums.tight += own.tight
        task.sums.stale += own.stale
        if count == 0 or own.gap <= CALM * self.c[i]:
            self.rest[i] = self.calm[i]
            self.calm[i] += self.calm[i] < LONGEST_REST
        else:
            self.calm[i] = 0
        if count == 0 and not self.naming:
            continue
        for l in range(k):
            self.a[i, l] = a[l]
        if self.upper:
            self.b[i] = b
        # All classes in vectors are quicker than many one by one.
        if 3 * count > k:
            count = k
        row_update(X, i, s + k, &self.which[0], count, W, k)
    task.start = task.stop


cdef void seek(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t at, i
    cdef double shrink = 1 / (1 + self.iterates.kappa), b = 0
    cdef sums_t own
    for at in range(task.start, task.stop):
        i = self.order[at]
        if not row_present(X, i) and step_of(self, X, i, shrink, task.scratch,
                                             task.scratch + 3 * self.n_classes, &b, &own):
            task.found[task.count] = i
            task.count += 1
            if task.count == FETCH:
                return


cdef void losses(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(task.start, task.stop):
        row_scores(X, i, task.W, self.n_classes, task.scratch)
        scale_scores(self, task.scratch)
        add_block(self, i, task.scratch, &self.a[i, 0], self.b[i], task.sums)


cdef void rivals(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, l, y, best
    cdef double* s = task.scratch
    for i in range(task.start, task.stop):
        row_scores(X, i, task.W, self.n_classes, s)
        scale_scores(self, s)
        y = self.labels[i]
        best = self.r[i] if self.named else (1 if y == 0 else 0)
        for l in range(self.n_classes):
            if l != y and s[l] > s[best]:
                best = l
        task.to[i], task.value[i] = <int32_t>best, s[best]


cdef void accumulate(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, l, count, k = self.n_classes
    cdef int32_t* which = &self.which[0]
    for i in range(task.start, task.stop):
        count = 0
        for l in range(k):
            if task.dual[i * k + l] != 0:
                which[count] = <int32_t>l
                count += 1
        if count and not row_present(X, i):
            task.start = i
            return
        if count:
            row_update(X, i, task.dual + i * k, which, count, task.W, k)
    task.start = task.stop
