"""Dual block coordinate descent for joint multi-class losses (joint_loss.pxd): a block of k dual variables a row.

    P(W) = 1/2 sum_l ||w_l||^2 + sum_i loss_i(s_i),   s_il = <w_l, x_i>,   y = y_i

    hinge     loss_i = c_i xi_i                            xi_i  = max_l (1 - [l = y] + s_il) - s_iy
    top       loss_i = c_i (mean of the K largest of all 1 - [l = y] + s_il - s_iy)_+
    sum       loss_i = c_i sum_{l != y} (1 + s_il - s_iy)_+
    squared   loss_i = c_i (xi_i^2 + mu eps_i^2)           xi_i  = (low - s_iy + max_{l != y} s_il)_+
                                                           eps_i = (s_iy - ref_i - high)_+

    where ref_i is s_{i, r_i}, the score of a class named in `rival`, or a number given in `fixed`, or absent (no eps).

    D = -1/2 sum_l ||u_l||^2 + sum_i [alpha_iy]                                          (hinge, top, sum)
    D = -1/2 sum_l ||u_l||^2 + sum_i [low alpha_iy - alpha_iy^2/(4 c_i)
                                      - (high + fixed_i) beta_i - beta_i^2/(4 c_i mu)]   (squared)
    u_l = sum_i (alpha_il - [l = y_i] beta_i + [l = r_i] beta_i) x_i
    alpha_il <= 0 for l != y, sum_l alpha_il = 0, beta_i >= 0;  hinge: alpha_iy <= c_i;  sum: -alpha_il <= c_i;
    top: alpha_iy <= c_i and -alpha_il <= min(c_i/K, alpha_iy/(K - 1))

In place of ||W||^2 = sum_l ||w_l||^2 there may be the square of another norm of the classes' norms, 1 <= p < 2 (hinge):

    ||W||_p^2 = (sum_l ||w_l||^p)^{2/p} = min_b sum_l ||w_l||^2/b_l,   b >= 0, ||b||_{p/(2-p)} <= 1
    D         = -1/2 ||U||_{p*}^2 + sum_i [alpha_iy],   p* = p/(p - 1)

The sweeps then work at some b, with w_l = b_l W_l: scores are multiplied by b_l, and block i has the curvature
b_l ||x_i||^2 in class l. `adapt` takes the minimising b at the weights of now. P and D know no b, so that any pair of
them is a certificate, with any b and after any change of it.
"""

import math

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport pow
from libc.stdint cimport int32_t
from libc.string cimport memset

from marginlinear._core.block_problem cimport dot, solve_hinge_block_by_class
from marginlinear._core.dual_engine cimport (
    FIND_RIVALS,
    ROWS_TO_FETCH,
    SUM_LOSSES,
    UPDATE_ROWS,
    DualEngine,
    sums_t,
    task_t,
)
from marginlinear._core.joint_loss cimport (
    HINGE,
    SQUARED,
    SUM,
    TOP,
    add_loss,
    curvature_along,
    dual_scale,
    dual_term,
    duals_at_zero,
    fenchel_gap,
    joint_t,
    largest_dual,
    loss_at_zero,
    nearest_duals,
    rival_of,
    solve_block,
)
from marginlinear._core.rows cimport (
    AHEAD,
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
from marginlinear._core.shrinking cimport note_visit

from marginlinear._core import vector
from marginlinear.threads import CHUNK, ranges, run_chunks

# The least b_l, as a part of the largest.
FLOOR = 1e-9
# Parts of the largest norm below which one may be called smaller: that of a class to drop, tried in turn.
NEAR = 0.99, 0.9, 0.5
KINDS = {"hinge": HINGE, "squared": SQUARED, "top": TOP, "sum": SUM}
# A block whose gap is this part of c_i was moved by rounding, at most.
cdef double IDLE = 1e-12
cdef enum:
    MAX_SKIP = 6    # sweeps


cdef class BlockCD(DualEngine):
    """State and sweeps of one problem.

    Parameters
    ----------
    rows : Rows
    y : int32 array of shape (m,)
    n_classes : int
    cost : contiguous float64 array of shape (m,)
        c_i > 0.
    loss : str
        hinge, squared, top or sum.
    low, high, mu : float
        Of the squared loss.
    top : int
        K <= n_classes, of the loss `top`.
    norm : float
        p on [1, 2]; below 2 with the hinge only.
    seed : int
    threads : int
        For passes that only read; sweeps use one.

    Attributes
    ----------
    alpha : float64 array of shape (m, k);  beta : float64 array of shape (m,), zeros while there is no upper loss
        `duals`, cut in two.
    rival : int32 array of shape (m,);  fixed : float64 array of shape (m,);  named : bool
        Whether `rival` or `fixed` is the reference of the upper loss.
    factors : float64 array of shape (k,) or None
        b; None with p = 2.
    n_adapt : int
        How often b was taken anew.
    """

    def __init__(self, Rows rows, y, Py_ssize_t n_classes, cost, *, loss, double low=1.0, double high=1.0,
                 double mu=0.0, Py_ssize_t top=1, double norm=2.0, seed=0, int threads=1):
        if norm < 2 and loss != "hinge":
            raise ValueError(f"norm = {norm}: the loss {loss} has the norm 2 only")
        if not 1 <= top <= n_classes:
            raise ValueError(f"top = {top} is not allowed: give 1 to the number of classes, {n_classes}")
        cdef Py_ssize_t m = rows.m, k = n_classes
        self.norm, self.uneven = norm, norm < 2
        factors = np.empty(k)
        self.factor = factors
        self._level_factors()
        DualEngine.__init__(self, rows, cost, k, m * (k + 1), factors if self.uneven else None, seed, threads)
        upper_weight = mu if loss == "squared" else 0.0
        self.phi = joint_t(kind=KINDS[loss], top=top, upper=False, low=low, high=high, mu=upper_weight)
        self.nonsmooth = self.piecewise_linear = loss != "squared"
        self.y, self.rival, self.fixed = y, rows.zeros(m, np.int32), rows.zeros(m)
        self.alpha, self.beta = self.split(self.duals)
        # Weights within a core's own cache need no prefetch.
        self.far = 8.0 * rows.d * k > 512 * 1024
        self.set_empty_duals()

    cdef int perform(self, task_t* task) except -1 nogil:
        perform(self, self.rows, task)
        return 0

    def split(self, duals):
        """(alpha, beta) of flat duals, in the same memory."""
        flat = np.asarray(duals)
        return flat[:-self.rows.m].reshape(self.rows.m, self.n_classes), flat[-self.rows.m:]

    def set_empty_duals(self):
        cdef Py_ssize_t i
        for i in range(self.rows.m):
            if self.sqnorms[i] == 0:
                duals_at_zero(&self.phi, self.cost[i], self.n_classes, self.y[i], &self.alpha[i, 0])

    def nearest(self, duals):
        """Duals of losses whose range alone says something of every class, top and sum: the nearest to `duals`."""
        out = np.array(duals)
        cdef double[:, ::1] alpha = self.split(out)[0]
        cdef double[::1] scratch = np.empty(2 * self.n_classes)
        cdef Py_ssize_t i
        if self.ranged:
            with nogil:
                for i in range(self.rows.m):
                    nearest_duals(&self.phi, self.cost[i], self.n_classes, self.y[i], &alpha[i, 0], &scratch[0],
                                  &scratch[self.n_classes])
        return out

    @property
    def has_references(self):
        return self.phi.mu > 0

    @property
    def ranged(self):
        """Whether the range of a row's duals is not that of their sum alone."""
        return self.phi.kind == TOP or self.phi.kind == SUM

    @property
    def laplacian(self):
        """Whether the curvature of the smoothed loss is one, as Newton steps need it."""
        return self.phi.kind != TOP

    def shorten(self, Py_ssize_t start, Py_ssize_t stop, const double[::1] before, double t):
        cdef Py_ssize_t at, i, l, first, k = self.n_classes
        with nogil:
            for at in range(start, stop):
                i, first = self.order[at], at * (k + 1)
                for l in range(k):
                    self.alpha[i, l] = before[first + l] + t * (self.alpha[i, l] - before[first + l])
                self.beta[i] = before[first + k] + t * (self.beta[i] - before[first + k])

    @property
    def factors(self):
        return self.iterates.factors

    def state(self, bint averaged):
        return {**DualEngine.state(self, averaged), "rival": np.asarray(self.rival), "fixed": np.asarray(self.fixed),
                "upper": self.phi.upper, "named": self.named, "factors": self.factors}

    def take_references(self, state):
        """And the factors, with p < 2."""
        if self.phi.mu > 0:
            self.phi.upper, self.named = state["upper"], state["named"]
        np.asarray(self.rival)[:] = state["rival"]
        np.asarray(self.fixed)[:] = state["fixed"]
        if self.uneven and state["factors"] is not None:
            self.factors[:] = np.maximum(state["factors"], FLOOR * state["factors"].max())

    def resume(self, state):
        if self.phi.mu == 0:
            duals = np.array(state["duals"])
            duals[-self.rows.m:] = 0
            state = {**state, "duals": duals}
        if self.uneven and state["factors"] is not None and not state["factors"].all():
            W = np.array(state["W"])
            W.reshape(-1, self.n_classes)[:, state["factors"] == 0] = 0
            state = {**state, "W": W}
        DualEngine.resume(self, state)

    def stand_beside(self, W, double kappa):
        """Go on, around a centre, from these weights beside the duals as they are. The upper loss has the rivals that
        are in `rival`."""
        self.skip[:] = 0
        self.phi.upper = self.named = self.phi.mu > 0
        self.iterates.resume(W, self.weights_of(self.duals), kappa)

    def dual_pieces(self, const double[::1] cost):
        """(low, bounds, scales, high, scales of beta) at these costs: D's terms are

        low a - a^2/(2 scale_i) of a = alpha_iy <= bound_i,  and  -high_i b - b^2/(2 scale_i) of b = beta_i.
        """
        cdef Py_ssize_t i
        bounds, scales = np.empty((2, self.rows.m))
        cdef double[::1] bound = bounds, scale = scales
        for i in range(self.rows.m):
            bound[i] = largest_dual(&self.phi, cost[i], self.n_classes)
            scale[i] = dual_scale(&self.phi, cost[i])
        high = self.phi.high + (np.zeros(self.rows.m) if self.named else np.asarray(self.fixed))
        return self.phi.low, bounds, scales, high, 2 * np.asarray(cost) * self.phi.mu

    def name_rivals(self, rival):
        """Take the upper slack against the score of these classes.

        A beta_i > 0 goes with its class: where that is another one now, row i gets its block's solution. Many beta_i
        that go as they are move the weights all in the same direction, far off.
        """
        cdef sums_t sums
        cdef Py_ssize_t i
        self.next_rival, self.naming, self.visited = rival, True, 0
        for i in range(self.rows.m):
            if self.beta[i] > 0 and not (self.named and self.rival[i] == self.next_rival[i]):
                self.order[self.visited] = i
                self.visited += 1
        memset(&sums, 0, sizeof(sums_t))
        try:
            self._update_rows(&sums)
        finally:
            self.naming = False
        self.skip[:] = 0
        self.phi.upper = self.named = True
        np.asarray(self.rival)[:] = rival

    def fix_references(self, fixed):
        """Take the upper slack against these numbers. A beta_i > 0 leaves the class that it was with."""
        self.skip[:] = 0
        if self.named:
            change = np.zeros((self.rows.m, self.n_classes))
            change[np.arange(self.rows.m), self.rival] = -np.asarray(self.beta) / (1 + self.iterates.kappa)
            self._add(change.ravel(), self.iterates.vector(False))
        self.phi.upper, self.named = True, False
        np.asarray(self.fixed)[:] = fixed

    def primal(self, bint averaged=False):
        weights = self.iterates.vector(averaged)
        loss, tight, _, stale = self.loss_sums(weights)
        half = self._half(weights)
        return half + loss, half + tight, stale

    def gaps(self):
        """(gaps, loss, tight) at the scores of W, over Gram rows: those of each row, and the sums of `sums_t`."""
        cdef Py_ssize_t i
        cdef sums_t sums
        cdef double[::1] W = self.iterates.vector(False), s = np.empty(2 * self.n_classes)
        out = np.empty(self.rows.m)
        cdef double[::1] gap = out
        memset(&sums, 0, sizeof(sums_t))
        with nogil:
            for i in range(self.rows.m):
                row_scores(&self.rows.gram, i, &W[0], self.n_classes, &s[0])
                scale_scores(self, &s[0])
                sums.gap = 0
                add_row(self, i, &s[0], &s[self.n_classes], &sums)
                gap[i] = sums.gap
        return out, sums.loss, sums.tight

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

    def adapt(self):
        """With p < 2: b_l = ||w_l||^{2-p} ||W||_p^{p-2} at the present W, and `norm_gap` there.

        Around a new centre any row may have a gap: none is skipped.
        """
        if self.iterates.kappa > 0:
            self.skip[:] = 0
        if not self.uneven:
            return
        # Norms that overflow are met by the descent.
        with np.errstate(over="ignore", invalid="ignore"):
            norms = self.factors * roots(self.iterates.class_sqnorms())
            if norms.max() > 0:
                self.scale_classes(best_factors(norms, self.norm))
            squares = self.iterates.class_sqnorms()
            duals = self.iterates.dual_class_sqnorms()
            self.norm_gap = 0.5 * (norm_of(self.factors * roots(squares), self.norm) ** 2 - self.factors @ squares
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
        self.factor[:] = pow(self.factor.shape[0], (self.norm - 2) / self.norm)

    def weights_at(self, W):
        """w_l = b_l W_l, flat, a copy with p < 2."""
        if not self.uneven:
            return W
        weights = np.array(W)
        self.iterates.scale(weights, 1.0)
        return weights

    def best_rivals(self, bint averaged=False):
        """(rival, score): the class l != y_i of the largest score at W or W_avg, and that score.

        A class named before stays where it is as good as any.
        """
        rival, score = self.rows.zeros(self.rows.m, np.int32), self.rows.zeros(self.rows.m)
        self.rows.require()
        weights = self.iterates.vector(averaged)
        run_chunks(lambda lo, hi: self._find_rivals(lo, hi, weights, rival, score), self.rows.m, self.threads,
                   self.rows.slice(self.n_classes))
        return rival, score

    def _find_rivals(self, Py_ssize_t lo, Py_ssize_t hi, double[::1] W, int32_t[::1] rival, double[::1] score):
        cdef task_t task
        cdef double[::1] s = np.empty(self.n_classes)
        task.what, task.start, task.stop, task.scratch = FIND_RIVALS, lo, hi, &s[0]
        task.W, task.rivals, task.values = &W[0], &rival[0], &score[0]
        with nogil:
            self.perform(&task)
        PyErr_CheckSignals()

    def dual(self):
        iterates = self.iterates
        return self.dual_sums(self.duals)[0] - self._dual_half(iterates.dual_sqnorm, iterates.dual_class_sqnorms)

    def averaged_dual(self):
        iterates = self.iterates
        half = self._dual_half(iterates.averaged_sqnorm, iterates.averaged_class_sqnorms)
        return self.dual_sums(self.mean_duals)[0] - half

    def recomputed_dual(self, bint averaged, weights=None, rival=None, fixed=None):
        """With `rival` or `fixed`: as if these were the references of the upper slack; the state is left as it is."""
        cdef int32_t[::1] own_rival = self.rival
        cdef double[::1] own_fixed = self.fixed
        duals = self._duals(averaged)
        if rival is not None:
            self.rival = rival
        if fixed is not None:
            self.fixed = fixed
        if weights is None:
            weights = self.weights_of(duals)
        half = self._dual_half(self.iterates.sqnorm_of, self.iterates.class_sqnorms_of, weights)
        bound = self.dual_sums(duals)[0] - half
        self.rival, self.fixed = own_rival, own_fixed
        return bound

    def count_of(self, duals):
        alpha, beta = self.split(duals)
        y, count = np.asarray(self.y), 0
        for lo, hi in ranges(self.rows.m, CHUNK):
            count += int(np.count_nonzero((alpha[np.arange(lo, hi), y[lo:hi]] != 0) | (beta[lo:hi] != 0)))
        return count

    def dual_sums(self, const double[::1] duals):
        """(h, 0): the part of D that does not depend on the rows."""
        cdef Py_ssize_t i, m = self.rows.m, k = self.n_classes
        cdef double[::1] terms = self.rows.zeros(m)
        with nogil:
            for i in range(m):
                terms[i] = dual_term(&self.phi, self.cost[i], duals[i * k + self.y[i]], duals[m * k + i],
                                     0.0 if self.named else self.fixed[i])
        return vector.total(terms), 0.0

    def loss_at_zero(self):
        return vector.total(self.cost) * loss_at_zero(&self.phi, 1.0, self.n_classes)

    def start_over(self):
        DualEngine.start_over(self)
        if self.uneven:
            self._level_factors()

    def condition(self):
        return vector.dot(self.cost, self.sqnorms) / self.rows.m

    def coefficients(self, duals, Py_ssize_t lo, Py_ssize_t hi):
        """alpha_il - [l = y_i] beta_i + [l = r_i] beta_i"""
        alpha, betas = self.split(duals)
        out = np.array(alpha[lo:hi])
        cdef double[:, ::1] coefficient = out
        cdef const double[::1] beta = betas
        cdef Py_ssize_t i
        if self.phi.upper:
            with nogil:
                for i in range(lo, hi):
                    coefficient[i - lo, self.y[i]] -= beta[i]
                    if self.named:
                        coefficient[i - lo, self.rival[i]] += beta[i]
        return out.ravel()


def roots(squares):
    """Norms of classes, whose squares rounding may take below 0 over a Gram matrix."""
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
    factors = (norms / norm_of(norms, p)) ** (2 - p)
    return np.maximum(factors, FLOOR * factors.max())


cdef inline void scale_scores(BlockCD self, double* s) noexcept nogil:
    cdef Py_ssize_t l
    if self.uneven:
        for l in range(self.n_classes):
            s[l] *= self.factor[l]


cdef inline double block_gap(BlockCD self, Py_ssize_t i, const double* s, double rival, double reference,
                             const double* a, double b) noexcept nogil:
    """That of the duals (a, b) at the scores s."""
    cdef Py_ssize_t y = self.y[i]
    return fenchel_gap(&self.phi, self.cost[i], s[y], rival, reference, a[y], b, dot(a, s, self.n_classes))


cdef inline void add_row(BlockCD self, Py_ssize_t i, const double* s, double* scratch, sums_t* sums) noexcept nogil:
    """Add row i's loss and its block's gap. scratch: k numbers."""
    cdef Py_ssize_t k = self.n_classes, y = self.y[i]
    cdef double c = self.cost[i], rival = rival_of(&self.phi, s, k, y, scratch), reference = 0, gap
    if self.phi.upper:
        reference = s[self.rival[i]] if self.named else self.fixed[i]
        sums.stale += self.named and reference < rival
    gap = block_gap(self, i, s, rival, reference, &self.alpha[i, 0], self.beta[i])
    add_loss(&self.phi, c, s[y], rival, reference, &sums.loss, &sums.tight)
    sums.gap += gap


ctypedef fused engine_t:
    BlockCD

include "on_rows.pxi"


cdef inline void perform_on(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    if task.what == UPDATE_ROWS:
        update_rows(self, X, task)
    elif task.what == ROWS_TO_FETCH:
        rows_to_fetch(self, X, task)
    elif task.what == SUM_LOSSES:
        sum_losses(self, X, task)
    elif task.what == FIND_RIVALS:
        find_rivals(self, X, task)
    else:
        add_rows(self, X, task)


cdef inline double strength(BlockCD self, Py_ssize_t i, const task_t* task) noexcept nogil:
    """A of row i's step."""
    cdef double A = self.sqnorms[i] * task.theta
    if task.before != NULL:
        A += task.extra * task.along[i] * task.along[i]
    return A


cdef inline Py_ssize_t block_step(BlockCD self, const rows_t* X, Py_ssize_t i, const task_t* task, double* s,
                                  double* a, double* b, sums_t* own) noexcept nogil:
    """Row i's scores s[:k], the exact solution (a, b) of its block, and the change of the weights in s[k:2k].

    Returns how many classes change, these being task.changed: none where the block's gap is negligible. `own` becomes
    the row's part of the sums. While rivals are named, (a, b) is a step from the class that b_i was with to its next.

    The block (block_problem.pxd) at the scores without the row's own part, in class l with A_l = A b_l:

        B_l = s_l - A_l alpha_l + A beta ([l = y] - [l = r before]) + low [l != y]
        F   = high - B_y + (B_r - low),  or  high - B_y + fixed
        w_l += theta ((a_l - alpha_l) - (b - beta) ([l = y] - [l = r])) x_i
    """
    cdef Py_ssize_t l, count = 0, k = self.n_classes, y = self.y[i], before = self.rival[i] if self.named else -1
    cdef Py_ssize_t r = self.next_rival[i] if self.naming else before
    cdef double theta = task.theta, A = strength(self, i, task), c = self.cost[i], F = 0
    cdef double* B = s + k
    cdef double* v = B + k
    cdef double* curvature = s + 4 * k
    cdef const double* old = &self.alpha[i, 0]
    row_scores(X, i, task.W, k, s)
    if task.before != NULL:
        for l in range(k):
            s[l] += task.extra * task.along[i] * task.pull[l]
    scale_scores(self, s)
    own.gap = own.loss = own.tight = 0
    own.stale = 0
    add_row(self, i, s, B, own)
    if own.gap <= self.skip_tolerance and not self.naming:
        return 0
    if self.uneven:
        for l in range(k):
            curvature[l] = A * self.factor[l]
            B[l] = s[l] - curvature[l] * old[l] + self.phi.low
    else:
        for l in range(k):
            B[l] = s[l] - A * old[l] + self.phi.low
    B[y] -= self.phi.low
    b[0] = 0
    if self.uneven:
        solve_hinge_block_by_class(B, k, y, curvature, c, a)
    else:
        if self.phi.upper:
            B[y] += A * self.beta[i]
            if before >= 0:
                B[before] -= A * self.beta[i]
            if r >= 0:
                F = self.phi.high - (B[y] - (B[r] - self.phi.low))
            else:
                F = self.phi.high + self.fixed[i] - B[y]
        b[0] = solve_block(&self.phi, B, k, y, A, c, r, F, a, v)
    for l in range(k):
        B[l] = (a[l] - old[l]) * theta
    if self.phi.upper:
        B[y] -= (b[0] - self.beta[i]) * theta
        if r != before:
            B[r] += b[0] * theta
            if before >= 0:
                B[before] -= self.beta[i] * theta
        elif r >= 0:
            B[r] += (b[0] - self.beta[i]) * theta
    for l in range(k):
        task.changed[count] = <int32_t>l
        count += B[l] != 0
    return count


cdef inline void own_prefetch(BlockCD self, Py_ssize_t i) noexcept nogil:
    """Ask for row i's duals and constants ahead of its turn."""
    cdef Py_ssize_t l
    for l in range(0, self.n_classes, 8):
        prefetch(&self.alpha[i, l])
    prefetch(&self.alpha[i, self.n_classes - 1])
    prefetch(&self.beta[i])
    prefetch(&self.cost[i])
    prefetch(&self.sqnorms[i])
    prefetch(&self.y[i])
    prefetch(&self.rival[i])


cdef inline void note_step(BlockCD self, Py_ssize_t i, double* s, double gap, const double* a, double b,
                           task_t* task) noexcept nogil:
    """The step from row i's duals to (a, b), at the scores s[:k], where they had this gap. s[k:2k] is theta times the
    change of the coefficients; s[2k:3k] is free."""
    cdef Py_ssize_t l, k = self.n_classes, y = self.y[i]
    cdef double reference = 0, square = 0, change
    if self.phi.upper:
        reference = s[self.rival[i]] if self.named else self.fixed[i]
    for l in range(k):
        change = s[k + l] / task.theta
        square += change * change * (self.factor[l] if self.uneven else 1.0)
        task.pull[l] += change * task.along[i]
    task.sums.gain += (gap - block_gap(self, i, s, rival_of(&self.phi, s, k, y, s + 2 * k), reference, a, b)
                       - strength(self, i, task) / 2 * square)
    task.sums.curvature += curvature_along(&self.phi, self.cost[i], a[y] - self.alpha[i, y], b - self.beta[i])


cdef void update_rows(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    """Coordinate steps: scores, exact solution of the block, update of the weights."""
    cdef Py_ssize_t at, i, l, count, k = self.n_classes
    cdef double b = 0
    cdef double* W = task.W
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
        count = block_step(self, X, i, task, s, a, &b, &own)
        row_turn(X, i)
        if count and not row_present(X, i):
            task.start = at
            return
        task.sums.gap += own.gap
        task.sums.loss += own.loss
        task.sums.tight += own.tight
        task.sums.stale += own.stale
        note_visit(&self.skip[i], &self.idle[i], not (count == 0 or own.gap <= IDLE * self.cost[i]), MAX_SKIP)
        if task.before != NULL:
            for l in range(k):
                task.before[at * (k + 1) + l] = self.alpha[i, l]
            task.before[at * (k + 1) + k] = self.beta[i]
            if count:
                note_step(self, i, s, own.gap, a, b, task)
        if count == 0 and not self.naming:
            continue
        for l in range(k):
            self.alpha[i, l] = a[l]
        if self.phi.upper:
            self.beta[i] = b
        # All classes in vectors are quicker than many one by one.
        if 3 * count > k:
            count = k
        row_update(X, i, s + k, task.changed, count, W, k)
    task.start = task.stop


cdef void rows_to_fetch(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t at, i
    cdef double b = 0
    cdef sums_t own
    for at in range(task.start, task.stop):
        i = self.order[at]
        if not row_present(X, i) and block_step(self, X, i, task, task.scratch,
                                                task.scratch + 3 * self.n_classes, &b, &own):
            task.found[task.count] = i
            task.count += 1
            if task.count == FETCH:
                return


cdef void sum_losses(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(task.start, task.stop):
        row_scores(X, i, task.W, self.n_classes, task.scratch)
        scale_scores(self, task.scratch)
        add_row(self, i, task.scratch, task.scratch + self.n_classes, task.sums)


cdef void find_rivals(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, l, y, best
    cdef double* s = task.scratch
    for i in range(task.start, task.stop):
        row_scores(X, i, task.W, self.n_classes, s)
        scale_scores(self, s)
        y = self.y[i]
        best = self.rival[i] if self.named else (1 if y == 0 else 0)
        for l in range(self.n_classes):
            if l != y and s[l] > s[best]:
                best = l
        task.rivals[i], task.values[i] = <int32_t>best, s[best]


cdef void add_rows(BlockCD self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, l, count, k = self.n_classes
    cdef int32_t* changed = task.changed
    for i in range(task.start, task.stop):
        count = 0
        for l in range(k):
            if task.coefficients[i * k + l] != 0:
                changed[count] = <int32_t>l
                count += 1
        if count and not row_present(X, i):
            task.start = i
            return
        if count:
            row_update(X, i, task.coefficients + i * k, changed, count, task.W, k)
    task.start = task.stop
