"""Proximal semismooth Newton steps on the problem of a BlockCD, for few weights (proximal.pyx, math.md 1.6).

The losses have kinks where rivals tie, and optima sit there. With p_l = -alpha_il for l != y,

    loss_i = max_p <p, u> - h(p) + c mu eps^2,   u_l = low + s_l - s_y,   eps = (s_y - ref - high)_+
    hinge    h = 0,              p >= 0, sum p <= c
    squared  h = (sum p)^2/(4c), p >= 0
    sum      h = 0,              0 <= p <= c

    p_l = min(end of its range, (u_l + gamma q_l - nu)_+/gamma),  nu by `smooth_threshold`,   beta = 2 c mu eps

The curvature of F is I + sum_i B_i kron x_i x_i', B_i a Laplacian over the classes, n of them with p > 0 (sum: < c),
weights on pairs

    {l, l'}   1/(gamma (n + g))   squared;   1/(gamma n)   hinge, sum p = c;   0         hinge, sum p < c; sum
    {l, y}    2c/(n + g)                     0                                 1/gamma
    {y, r}    2 c mu where eps > 0           ({y} alone for a fixed reference)

With factors b_l of the classes, W and U here are r_l W_l and r_l U_l, r_l^2 = b_l: the norm of a problem without
factors, where class l sees the rows r_l x_i. Its blocks of the curvature are multiplied by r_l r_l'.

The curvature is summed pair by pair as Z'Z, the rows of Z being x_i times the root of its weight.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport fmin, sqrt
from libc.stdint cimport int32_t

from marginlinear._core.block_cd cimport BlockCD
from marginlinear._core.block_problem cimport dot
from marginlinear._core.cholesky cimport NormalMatrix
from marginlinear._core.joint_loss cimport (
    add_loss,
    dual_sum,
    joint_t,
    lower_loss,
    most_of_one,
    pair_weights,
    rival_of,
    smooth_cost,
    smooth_threshold,
    upper_curvature,
    upper_dual,
    upper_loss,
)
from marginlinear._core.proximal cimport ProximalNewton
from marginlinear._core.rows cimport SLICE, Rows, row_axpy, row_scores, row_update, rows_t, value

from marginlinear._core.proximal import solve
from marginlinear._core.scores import scores_of
from marginlinear.threads import run_chunks

# Conjugate gradients reduce the squared norm of the residual to this part.
cdef double REDUCED = 1e-6


cdef enum:
    TILE = 64    # rows of the matrix of a step over Gram rows between looks at signals
    DIRECT = 3000    # of its rows: beyond, conjugate gradients
    ITERATIONS = 60    # of those at most


cdef enum Work:
    RESPOND    # the duals of `self` at W, their weights U, and sums over the rows
    GATHER     # the rows who[start:stop] times their roots, packed by `gram`


cdef struct sums_t:
    double smooth     # sum_i smooth_i
    double loss       # sum_i loss_i
    double tight      # the same with eps taken against the best rival
    double gap        # e
    Py_ssize_t stale  # rows whose named rival is not the best


cdef struct task_t:
    Work what
    Py_ssize_t start
    Py_ssize_t stop
    const double* W
    double* U
    double* scratch   # RESPOND: 4 k numbers, GATHER: d
    int32_t* which    # k numbers
    sums_t* sums
    const int32_t* who
    const double* root


cdef class BlockNewton(ProximalNewton):
    """Steps with the engine's rivals and references as they are.

    Attributes
    ----------
    stale : int
        As BlockCD.primal returns it, at W.
    """

    cdef readonly Py_ssize_t stale
    cdef readonly double loss
    cdef Py_ssize_t k, slice_rows
    cdef NormalMatrix gram
    cdef joint_t phi
    cdef bint named
    cdef double[:, ::1] alpha, centre
    cdef double[::1] r, beta, scratch
    cdef int32_t[::1] which
    cdef bint uneven
    cdef const double[::1] cost, fixed, factors
    cdef const int32_t[::1] y, rival

    def __init__(self, BlockCD engine, bint part=False):
        super().__init__(engine)
        self.k, self.alpha, self.beta, self.y = engine.n_classes, engine.alpha, engine.beta, engine.y
        self.cost, self.rival, self.fixed, self.factors = engine.cost, engine.rival, engine.fixed, engine.factor
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * self.rows.m / (1.0 + <double>self.rows.nnz * self.k)))
        self.uneven = engine.norm < 2
        self.r = np.empty(self.k)
        self.scratch, self.which = np.empty(max(4 * self.k, self.rows.d)), np.empty(self.k, dtype=np.int32)
        if self.uneven:
            self._take_roots()
            self.engine.iterates.scale(self.W, 0.5)
        self.gram = None if self.rows.is_gram else NormalMatrix(self.rows.d, self.rows.m, engine.threads)
        self.q = np.array(self.alpha)
        self.centre = self.q
        if part:
            self.phi, self.named = engine.phi, engine.named
        else:
            self.restart()

    def centre_on(self, centre):
        """q"""
        np.asarray(self.q)[:] = centre

    def duals_of_rows(self):
        """alpha: float64 array of shape (m, k)"""
        return np.asarray(self.alpha)

    def restart(self):
        """The engine's problem has changed: W stays, the duals follow."""
        cdef BlockCD engine = self.engine
        self.phi, self.named = engine.phi, engine.named
        if self._invariant():
            # A common shift of all w_l costs norm and changes no loss.
            centre_classes(self.W, self.k)
        ProximalNewton.restart(self)

    def curvature(self):
        """A generalised Hessian of F at the last W: float64 array of shape (d k, d k), ordered as W is."""
        d, k = self.rows.d, self.k
        H = np.asarray(self.curvature_of_rows(k)).reshape(k, d, k, d)
        return H.transpose(1, 0, 3, 2).reshape(d * k, d * k) + np.eye(d * k)

    def _invariant(self):
        """Whether the losses know differences of scores only."""
        return not self.uneven and (self.named or not self.phi.upper)

    def step(self):
        """A step at the factors of now; their change leaves the weights as they are."""
        if self.uneven:
            self.engine.iterates.scale(self.W, 0.5)
            self.engine.adapt()
            self.engine.iterates.scale(self.W, -0.5)
            self._take_roots()
            self.value = self._again()
        ProximalNewton.step(self)

    def _publish(self):
        if not self.uneven:
            ProximalNewton._publish(self)
            return
        W, U = np.array(self.W), np.array(self.U)
        self.engine.iterates.scale(W, -0.5)
        self.engine.iterates.scale(U, -0.5)
        self.engine.iterates.resume(W, U, 1.0)
        self.objective = self.primal = self.engine.half_norm() + self.loss
        self.bound = self.engine.dual()

    def _duals(self):
        return np.asarray(self.alpha)

    cdef _take_roots(self):
        cdef Py_ssize_t l
        for l in range(self.k):
            self.r[l] = sqrt(self.factors[l])

    def _respond(self, const double[::1] W):
        """F(W). Sets the duals, U, and the values of the problem at W and these duals."""
        cdef double half = 0.5 * self._product(W, W), smooth, tight, gap
        (smooth, self.loss, tight, gap, stale), self.U = self.respond_rows(W)
        self.e, self.G = gap, 0.5 * self._subtract(W)
        self.primal, self.objective, self.stale = half + self.loss, half + tight, int(stale)
        self.bound = self.primal - self.e - self.G
        return half + smooth

    def respond_rows(self, const double[::1] W):
        """The duals at W. Returns ((smooth, loss, tight, gap, stale) of sums_t, U)."""
        cdef Py_ssize_t start
        cdef sums_t sums
        cdef task_t task
        cdef double[::1] U = np.zeros(W.shape[0])
        sums.smooth = sums.loss = sums.tight = sums.gap = 0
        sums.stale = 0
        task.what, task.W, task.U, task.sums = RESPOND, &W[0], &U[0], &sums
        task.scratch, task.which = &self.scratch[0], &self.which[0]
        self.rows.require()
        for start in range(0, self.rows.m, self.slice_rows):
            task.start, task.stop = start, min(self.rows.m, start + self.slice_rows)
            with nogil:
                perform(self, self.rows, &task)
            PyErr_CheckSignals()
        return (sums.smooth, sums.loss, sums.tight, sums.gap, sums.stale), U

    def _direction(self, const double[::1] gradient):
        """curvature^-1 gradient.

        Where a common shift of the classes changes no loss, W and the gradient sum to zero over them. The
        last class is then held at zero, ||.||^2 is that of differences from the mean, taken out at the end.
        """
        cdef Py_ssize_t a, b, j, d = self.rows.d, k = self.k, free = k - 1 if self._invariant() else k
        cdef double shared = 1.0 / k if free < k else 0.0
        cdef double[:, ::1] H = self.curvature_of_rows(free)
        cdef double[::1] wanted = np.empty(free * d), direction
        cdef const double[::1] found
        for a in range(free):
            for b in range(free):
                for j in range(d):
                    H[a * d + j, b * d + j] += (a == b) - shared
            for j in range(d):
                wanted[a * d + j] = gradient[j * k + a]
        found = solve(H, wanted, self.engine.threads)
        out = np.zeros(d * k)
        direction = out
        for a in range(free):
            for j in range(d):
                direction[j * k + a] = found[a * d + j]
        if free < k:
            centre_classes(direction, k)
        return out

    def curvature_of_rows(self, Py_ssize_t free):
        """sum_i B_i kron x_i x_i' of the first `free` classes, feature j of class a at a d + j."""
        cdef Py_ssize_t pair, a, b, i, j, start, stop, d = self.rows.d, k = self.k
        # begins[pair + 1] is where the next row of the pair goes, at last where those of the next pair begin.
        cdef Py_ssize_t[::1] begins = np.zeros(k * k + 2, dtype=np.intp)
        with nogil:
            weigh(self, &begins[2], NULL, NULL)
        for pair in range(k * k):
            begins[pair + 2] += begins[pair + 1]
        cdef int32_t[::1] who = self.rows.zeros(begins[k * k + 1] + 1, np.int32)
        cdef double[::1] root = self.rows.zeros(begins[k * k + 1] + 1)
        with nogil:
            weigh(self, &begins[1], &who[0], &root[0])
        cdef NormalMatrix gram = self.gram
        cdef task_t task
        cdef double[:, ::1] H = np.zeros((free * d, free * d)), total
        task.what, task.who, task.root, task.scratch = GATHER, &who[0], &root[0], &self.scratch[0]
        self.rows.require()
        for pair in range(k * k):
            if begins[pair] == begins[pair + 1]:
                continue
            a, b = pair // k, pair % k
            gram.clear()
            for start in range(begins[pair], begins[pair + 1], gram.room):
                stop = min(begins[pair + 1], start + gram.room)
                task.start, task.stop = start, stop
                with nogil:
                    perform(self, self.rows, &task)
                gram.add(stop - start)
            total = gram.result()
            with nogil:
                add_block(H, total, a, a, 1.0)
                if a != b and b < free:
                    add_block(H, total, b, b, 1.0)
                    add_block(H, total, a, b, -1.0)
                    add_block(H, total, b, a, -1.0)
        if self.uneven:
            for i in range(free * d):
                for j in range(free * d):
                    H[i, j] *= self.r[i // d] * self.r[j // d]
        return np.asarray(H)


cdef class GramBlockNewton(BlockNewton):
    """Steps over Gram rows, all of which are there, with the norm 2.

    There are more weights than duals within their ranges, by which the curvature is taken: with B_i = Q_i'Q_i, and Z of
    the rows x_i kron q, q a row of Q_i,

        (I + Z'Z)^-1 = I - Z' (I + Z Z')^-1 Z,      (Z Z')_{(i, q), (j, r)} = K_ij <q, r>

    Where Z has many rows, as far from the optimum, conjugate gradients go some of the way to (I + Z'Z)^-1.
    """

    cdef Rows matrix
    cdef bint stiff

    def __init__(self, BlockCD engine):
        self.matrix = Rows.from_dense(engine.rows.arrays)
        super().__init__(engine)

    def restart(self):
        """As that of BlockNewton, without what steps have left of rounding in the scores."""
        self._take_scores(self.W)
        BlockNewton.restart(self)

    def _take_scores(self, vector):
        """The scores of a vector become those of its coefficients."""
        scores, coefficients = np.reshape(vector, (2, self.rows.m, self.k))
        run_chunks(lambda lo, hi: scores_of(self.matrix, coefficients, scores, lo, hi), self.rows.m,
                   self.engine.threads, self.matrix.share(self.k))

    def _direction(self, const double[::1] gradient):
        cdef Py_ssize_t n
        with nogil:
            n = spread(self, NULL, NULL)
        if n == 0:
            return np.array(gradient)
        cdef double iterations = ITERATIONS * <double>self.rows.m * self.rows.m * self.k
        cdef int32_t[::1] who = np.empty(n, dtype=np.int32)
        cdef double[:, ::1] Q = np.zeros((n, self.k))
        with nogil:
            spread(self, &who[0], &Q[0, 0])
        # A solution costs n^3/6 multiplications. Where once iterations were too few, they are as g falls.
        if n > DIRECT or (<double>n * n * n / 6 > iterations and not self.stiff):
            direction, near = self._iterated(gradient, who, Q)
            self.stiff = not near
            if near or n > DIRECT:
                return direction
        return self._solved(gradient, who, Q)

    def _solved(self, const double[::1] gradient, const int32_t[::1] who, const double[:, ::1] Q):
        """curvature^-1 gradient, by Cholesky."""
        cdef Py_ssize_t p, start, stop, l, n = Q.shape[0], k = self.k
        out = np.array(gradient)
        cdef double[:, ::1] H = np.empty((n, n))
        cdef double[::1] wanted = np.empty(n), direction = out, change = np.zeros(k)
        cdef const double[::1] found
        for start in range(0, n, TILE):
            stop = min(n, start + TILE)
            with nogil:
                for p in range(start, stop):
                    wanted[p] = dot(&Q[p, 0], &gradient[who[p] * k], k)
                    for l in range(p + 1):
                        H[p, l] = H[l, p] = value(&self.rows.gram, who[p], who[l]) * dot(&Q[p, 0], &Q[l, 0], k)
                    H[p, p] += 1
            PyErr_CheckSignals()
        found = solve(H, wanted, self.engine.threads)
        for p in range(n):
            for l in range(k):
                change[l] -= found[p] * Q[p, l]
            if p + 1 == n or who[p + 1] != who[p]:
                row_update(&self.rows.gram, who[p], &change[0], NULL, k, &direction[0], k)
                change[:] = 0
        return out

    def _iterated(self, gradient, who, Q):
        """Some of the way to curvature^-1 gradient, by conjugate gradients, and whether that is near; not finite where
        the kernel is not positive semidefinite. <x, y> are scores times coefficients."""
        m, k = self.rows.m, self.k
        who, Q = np.asarray(who), np.asarray(Q)
        first = np.flatnonzero(np.diff(who, prepend=-1))
        direction, ahead, residual = np.zeros(2 * m * k), np.zeros(2 * m * k), np.array(gradient)
        coefficients, p, size = ahead.reshape(2, m, k)[1], residual.copy(), self._product(residual, residual)
        target = REDUCED * size
        for _ in range(ITERATIONS):
            if not size > target:
                break
            parts = np.einsum("pl,pl->p", Q, p.reshape(2, m, k)[0, who])
            coefficients[who[first]] = np.add.reduceat(parts[:, np.newaxis] * Q, first)
            self._take_scores(ahead)
            curvature = self._product(p, p) + self._product(p, ahead)
            if not curvature > 0:
                size = np.nan
                break
            t = size / curvature
            direction += t * p
            residual -= t * (p + ahead)
            before, size = size, self._product(residual, residual)
            p = residual + size / before * p
        if not size >= -target:
            direction[:] = np.nan
        return direction, not size > target


cdef void centre_classes(double[::1] W, Py_ssize_t k) noexcept nogil:
    """Take out what the k classes share."""
    cdef Py_ssize_t j, l
    cdef double shared
    for j in range(W.shape[0] // k):
        shared = 0
        for l in range(k):
            shared += W[j * k + l]
        shared /= k
        for l in range(k):
            W[j * k + l] -= shared


cdef void add_block(double[:, ::1] H, const double[:, ::1] total, Py_ssize_t a, Py_ssize_t b,
                    double sign) noexcept nogil:
    """Add to the block of the classes a and b."""
    cdef Py_ssize_t i, j, d = total.shape[0]
    for i in range(d):
        for j in range(d):
            H[a * d + i, b * d + j] += sign * total[i, j]


ctypedef fused engine_t:
    BlockNewton

include "on_rows.pxi"


cdef inline void perform_on(BlockNewton self, const rows_t* X, task_t* task) noexcept nogil:
    if task.what == RESPOND:
        respond(self, X, task)
    else:
        gather(X, task, self.gram)


cdef void respond(BlockNewton self, const rows_t* X, const task_t* task) noexcept nogil:
    """Row by row: scores, p and beta, sums, and the row's part of U."""
    cdef Py_ssize_t i, l, n, count, y, r, k = self.k
    cdef double gamma, c, nu, most, total, found, inner, move, rival, reference
    cdef double* s = task.scratch
    cdef double* B = s + k
    cdef double* heap = B + k
    cdef double* dual = heap + k
    cdef sums_t* sums = task.sums
    for i in range(task.start, task.stop):
        row_scores(X, i, task.W, k, s)
        if self.uneven:
            for l in range(k):
                s[l] *= self.r[l]
        y, c = self.y[i], self.cost[i]
        gamma, most = self.g / (2 * c), most_of_one(&self.phi, c)
        rival = rival_of(&self.phi, s, k, y, heap)
        n = 0
        for l in range(k):
            if l != y:
                B[l] = self.phi.low + s[l] - s[y] - gamma * self.centre[i, l]
                if B[l] > 0:
                    heap[n] = B[l]
                    n += 1
        nu = smooth_threshold(&self.phi, heap, n, gamma, self.g, c)
        total = inner = move = 0
        count = 0
        for l in range(k):
            dual[l] = 0
            if l != y:
                if B[l] > nu:
                    dual[l] = -fmin(most, (B[l] - nu) / gamma)
                    total -= dual[l]
                    inner -= dual[l] * (self.phi.low + s[l] - s[y])
                    task.which[count] = <int32_t>l
                    count += 1
                move += (dual[l] - self.centre[i, l]) * (dual[l] - self.centre[i, l])
                self.alpha[i, l] = dual[l]
        found = total
        total = dual_sum(&self.phi, c, nu, found)
        if found > 0 and found != total:
            # By the rounding of B_l - nu, which gamma divides.
            inner *= total / found
            for n in range(count):
                l = task.which[n]
                self.alpha[i, l] = dual[l] = dual[l] * (total / found)
        self.alpha[i, y] = dual[y] = total
        inner -= smooth_cost(&self.phi, c, total)
        sums.smooth += inner - 0.5 * gamma * move
        sums.gap += lower_loss(&self.phi, c, s[y], rival) - inner
        r = self.rival[i]
        reference = s[r] if self.named else self.fixed[i]
        add_loss(&self.phi, c, s[y], rival, reference, &sums.loss, &sums.tight)
        if self.phi.upper:
            self.beta[i] = upper_dual(&self.phi, c, s[y], reference)
            sums.smooth += upper_loss(&self.phi, c, s[y], reference)
            if self.named:
                sums.stale += reference < rival
                if self.beta[i] > 0:
                    if dual[r] == 0:
                        task.which[count] = <int32_t>r
                        count += 1
                    dual[r] += self.beta[i]
            dual[y] -= self.beta[i]
        if self.uneven:
            for l in range(k):
                dual[l] *= self.r[l]
        if dual[y] != 0 or count:
            task.which[count] = <int32_t>y
            row_update(X, i, dual, task.which, count + 1, task.U, k)


cdef inline Py_ssize_t free_duals(BlockNewton self, Py_ssize_t i, double* least, double* between,
                                  double* own) noexcept nogil:
    """How many p of row i are within their range, -alpha below -`least`, and the `pair_weights` then."""
    cdef Py_ssize_t l, n = 0, y = self.y[i]
    least[0] = -most_of_one(&self.phi, self.cost[i])
    for l in range(self.k):
        n += l != y and least[0] < self.alpha[i, l] < 0
    pair_weights(&self.phi, self.cost[i], n, self.g, self.alpha[i, y], between, own)
    return n


cdef inline void put(Py_ssize_t a, Py_ssize_t b, Py_ssize_t k, Py_ssize_t i, double weight, Py_ssize_t* at,
                     int32_t* who, double* root) noexcept nogil:
    """File row i under the pair {a, b}, at[a k + b], a <= b; without `who` only count it."""
    cdef Py_ssize_t pair = a * k + b if a < b else b * k + a
    if who != NULL:
        who[at[pair]] = <int32_t>i
        root[at[pair]] = sqrt(weight)
    at[pair] += 1


cdef void weigh(BlockNewton self, Py_ssize_t* at, int32_t* who, double* root) noexcept nogil:
    """All weights of all B_i by pairs of classes."""
    cdef Py_ssize_t i, l, o, n, y, k = self.k
    cdef double c, least = 0, between = 0, own = 0
    for i in range(self.rows.m):
        y, c = self.y[i], self.cost[i]
        n = free_duals(self, i, &least, &between, &own)
        if n:
            for l in range(k):
                if l != y and least < self.alpha[i, l] < 0:
                    if own > 0:
                        put(l, y, k, i, own, at, who, root)
                    if n > 1 and between > 0:
                        for o in range(l):
                            if o != y and self.alpha[i, o] < 0:
                                put(o, l, k, i, between, at, who, root)
        if self.phi.upper and self.beta[i] > 0:
            put(y, self.rival[i] if self.named else y, k, i, upper_curvature(&self.phi, c), at, who, root)


cdef Py_ssize_t spread(BlockNewton self, int32_t* who, double* Q) noexcept nogil:
    """The rows q of all Q_i, k numbers each that are 0 before, and their i. Returns how many there are; without `who`
    only that.

    Q_i = (a (I - J) + b J) times (e_l - e_y) of the n classes of p within its range, J = 1/n everywhere: a^2 = own + n
    between, b^2 = own of `pair_weights`. The upper loss has a row of its own.
    """
    cdef Py_ssize_t i, l, o, n, y, at = 0, k = self.k
    cdef double c, least = 0, a, b, between = 0, own = 0
    cdef double* q
    for i in range(self.rows.m):
        y, c = self.y[i], self.cost[i]
        n = free_duals(self, i, &least, &between, &own)
        if n > 1 or own > 0:
            a, b = sqrt(own + n * between), sqrt(own)
            for l in range(k):
                if l == y or not least < self.alpha[i, l] < 0:
                    continue
                if who != NULL:
                    who[at], q = <int32_t>i, Q + at * k
                    for o in range(k):
                        if o != y and least < self.alpha[i, o] < 0:
                            q[o] = (b - a) / n
                    q[l] += a
                    q[y] = -b
                at += 1
        if self.phi.upper and self.beta[i] > 0:
            if who != NULL:
                who[at], q = <int32_t>i, Q + at * k
                q[y] = sqrt(upper_curvature(&self.phi, c))
                if self.named:
                    q[self.rival[i]] = -q[y]
            at += 1
    return at


cdef void gather(const rows_t* X, const task_t* task, NormalMatrix gram) noexcept nogil:
    cdef Py_ssize_t at, j
    for at in range(task.start, task.stop):
        for j in range(X.d):
            task.scratch[j] = 0
        row_axpy(X, task.who[at], task.root[at], task.scratch)
        gram.pack(at - task.start, task.scratch)
