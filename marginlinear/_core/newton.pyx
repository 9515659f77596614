"""Proximal semismooth Newton steps on the problem of a BlockCD (math.md 1.6): for few weights, d k up to a few thousand.

The losses have kinks where rivals tie, and optima sit on them. In their dual form, p_l = -alpha_il for l != y,

    loss_i = max_{p in dom} <p, u> - h(p) + c mu eps^2,   u_l = low + s_l - s_y,  eps = (s_y - ref - high)_+
    hinge: h = 0, dom = {p >= 0, sum p <= c}     squared: h = (sum p)^2/(4c), dom = {p >= 0}

a proximal term around the duals q of before makes them differentiable, and exact where p = q:

    smooth_i = max_{p in dom} <p, u> - h(p) - gamma/2 ||p - q||^2 + c mu eps^2,   gamma = g/(2c)
    p_l = (u_l + gamma q_l - nu)_+/gamma,   nu by `level`;   beta = 2 c mu eps

F(W) = 1/2 ||W||^2 + sum_i smooth_i has the gradient W - U, U the weights of these duals, and the curvature
I + sum_i B_i kron x_i x_i'. B_i is a Laplacian of the classes: a positive weight on each pair of them,

    {l, l'} of the n classes with p > 0:  1/(gamma (n + g)) (squared),  1/(gamma n) (hinge, sum p = c),  0 (hinge else)
    {l, y}:                               2c/(n + g)        (squared),  0           (hinge, sum p = c),  1/gamma
    {y, r}:                               2 c mu where eps > 0

so it is summed pair by pair as Z'Z, the rows of Z being x_i times the root of its weight.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport fmax, sqrt
from libc.stdint cimport int32_t

from marginlinear._core.rows cimport (
    CSR32,
    CSR64,
    DENSE32,
    DENSE64,
    Rows,
    csr32_t,
    csr64_t,
    dense32_t,
    dense64_t,
    row_axpy,
    row_scores,
    row_update,
)
from marginlinear._core.simplex cimport level

ctypedef fused data_t:
    csr64_t
    csr32_t
    dense64_t
    dense32_t

# Work between looks at the signals: about 20 ms.
cdef double SLICE = 2e7
# Numbers in Z.
cdef Py_ssize_t BUFFER = 1 << 18
# g falls by FALL from solve to solve.
FIRST, FALL, LAST = 0.3, 0.3, 1e-3
# A solve ends when 1/2 ||grad||^2 is this share of what its proximal term costs.
SHARE = 0.3


cdef struct sums_t:
    double smooth
    double loss
    double tight
    double gap
    Py_ssize_t stale


cdef class Newton:
    """Steps on the state of an engine: its W, alpha, beta, with its rivals and references as they are.

    Attributes
    ----------
    primal, objective : float
    stale : int
        As BlockCD.primal returns them, at W.
    bound : float
        D at alpha and beta.
    """

    cdef object engine, W, U, q, value, gradient
    cdef Rows rows
    cdef readonly double primal, objective, bound
    cdef readonly Py_ssize_t stale
    cdef Py_ssize_t k, slice_rows
    cdef bint squared, upper, named
    cdef double g, low, high, mu, excess, slope
    cdef double[:, ::1] alpha, q_view
    cdef double[::1] beta
    cdef const double[::1] cost, fixed
    cdef const int32_t[::1] y, rival

    def __init__(self, engine):
        self.engine, self.rows, self.k = engine, engine.rows, engine.n_classes
        self.squared, self.low, self.high, self.mu = engine.squared, engine.low, engine.high, engine.mu
        self.alpha, self.beta, self.cost, self.y = engine.alpha, engine.beta, engine.cost, engine.y
        self.rival, self.fixed = engine.rival, engine.fixed
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * self.rows.m / (1.0 + <double>self.rows.nnz * self.k)))
        self.W, self.U = engine.iterates.W.copy(), np.empty_like(engine.iterates.W)
        self.q = np.empty_like(engine.alpha)
        self.q_view = self.q
        self.g = FIRST
        self.restart()

    def restart(self):
        """The engine's problem has changed: W stays, the duals are taken anew."""
        self.upper, self.named = self.engine.upper, self.engine.named
        self.recentre()

    def recentre(self):
        self.q[:] = self.engine.alpha
        self.value = self.evaluate(self.W)

    def step(self):
        """One Newton step with backtracking; before it the centre moves to the duals if its problem is solved."""
        if 0.5 * self.slope <= SHARE * self.excess:
            self.g = max(LAST, FALL * self.g)
            self.recentre()
        gradient = self.W - self.U
        direction = self.solve(gradient)
        fall = float(gradient @ direction)
        start, value, t = self.W, self.value, 1.0
        while True:
            trial = start - t * direction
            now = self.evaluate(trial)
            if now <= value - 1e-4 * t * fall or t < 1e-6:
                break
            t /= 2
        self.W, self.value = trial, now
        self.engine.iterates.resume(self.W, self.U, 1.0)
        self.engine.n_iter += 1

    def evaluate(self, W):
        """F(W). Sets alpha, beta, U, and the values of the problem at W and these duals."""
        cdef Py_ssize_t start
        cdef sums_t sums
        cdef double[::1] weights = W, scratch = np.empty(4 * self.k), U
        cdef int32_t[::1] which = np.empty(self.k, dtype=np.int32)
        self.U[:] = 0
        U = self.U
        sums.smooth = sums.loss = sums.tight = sums.gap = 0
        sums.stale = 0
        for start in range(0, self.rows.m, self.slice_rows):
            stop = min(self.rows.m, start + self.slice_rows)
            respond_to(self, start, stop, &weights[0], &scratch[0], &which[0], &U[0], &sums)
            PyErr_CheckSignals()
        half = 0.5 * float(W @ W)
        gradient = W - self.U
        self.slope, self.excess = float(gradient @ gradient), sums.gap
        self.primal, self.objective, self.stale = half + sums.loss, half + sums.tight, sums.stale
        self.bound = self.primal - sums.gap - 0.5 * self.slope
        return half + sums.smooth

    def solve(self, gradient):
        """The Newton direction: curvature^-1 gradient."""
        d, k = self.rows.d, self.k
        H = self.curvature().reshape(d * k, d * k)
        return np.ascontiguousarray(
            np.linalg.solve(H, gradient.reshape(d, k).T.ravel()).reshape(k, d).T).ravel()

    def curvature(self):
        """I + sum_i B_i kron x_i x_i': float64 array of shape (k, d, k, d)."""
        d, k = self.rows.d, self.k
        counts = np.zeros(k * k + 1, dtype=np.intp)
        cdef Py_ssize_t[::1] ends = counts
        weigh(self, &ends[1], NULL, NULL)
        np.cumsum(counts, out=counts)
        offsets = counts.copy()
        who, weight = np.empty(counts[-1], dtype=np.int32), np.empty(counts[-1])
        cdef Py_ssize_t[::1] at = offsets
        cdef int32_t[::1] rows = who
        cdef double[::1] roots = weight
        if counts[-1]:
            weigh(self, &at[0], &rows[0], &roots[0])
        room = max(1, BUFFER // d)
        buffer = np.empty((room, d))
        cdef double[:, ::1] Z = buffer
        H = np.zeros((k, d, k, d))
        for pair in np.flatnonzero(np.diff(counts)):
            a, b = divmod(int(pair), k)
            total = 0.0
            for start in range(counts[pair], counts[pair + 1], room):
                stop = min(counts[pair + 1], start + room)
                fill(self, start, stop, &rows[0], &roots[0], &Z[0, 0])
                part = buffer[:stop - start]
                total = total + part.T @ part
                PyErr_CheckSignals()
            H[a, :, a, :] += total
            if a != b:
                H[b, :, b, :] += total
                H[a, :, b, :] -= total
                H[b, :, a, :] -= total
        H.reshape(d * k, d * k).flat[::d * k + 1] += 1
        return H


cdef respond_to(Newton self, Py_ssize_t start, Py_ssize_t stop, const double* W, double* scratch, int32_t* which,
                double* U, sums_t* sums):
    with nogil:
        if self.rows.storage == CSR64:
            respond(self, &self.rows.csr64, start, stop, W, scratch, which, U, sums)
        elif self.rows.storage == CSR32:
            respond(self, &self.rows.csr32, start, stop, W, scratch, which, U, sums)
        elif self.rows.storage == DENSE64:
            respond(self, &self.rows.dense64, start, stop, W, scratch, which, U, sums)
        elif self.rows.storage == DENSE32:
            respond(self, &self.rows.dense32, start, stop, W, scratch, which, U, sums)


cdef void respond(Newton self, const data_t* X, Py_ssize_t start, Py_ssize_t stop, const double* W, double* s,
                  int32_t* which, double* U, sums_t* sums) noexcept nogil:
    """The duals that W calls for, their weights and sums over the rows."""
    cdef Py_ssize_t i, l, n, count, y, k = self.k
    cdef double gamma, c, nu, total, inner, move, rival, xi, eps, best, reference, conjugate, loss
    cdef double* B = s + k
    cdef double* heap = B + k
    cdef double* delta = heap + k
    for i in range(start, stop):
        row_scores(X, i, W, k, s)
        y, c = self.y[i], self.cost[i]
        gamma = self.g / (2 * c)
        rival = -1e308
        n = 0
        for l in range(k):
            if l != y:
                rival = fmax(rival, s[l])
                B[l] = self.low + s[l] - s[y] - gamma * self.q_view[i, l]
                if B[l] > 0:
                    heap[n] = B[l]
                    n += 1
        nu = 0
        if n:
            nu = level(heap, n, 0, self.g) if self.squared else fmax(0.0, level(heap, n, -gamma * c, 0))
        total = inner = move = 0
        count = 0
        for l in range(k):
            delta[l] = 0
            if l != y:
                if B[l] > nu:
                    delta[l] = -(B[l] - nu) / gamma
                    total -= delta[l]
                    inner -= delta[l] * (self.low + s[l] - s[y])
                    which[count] = <int32_t>l
                    count += 1
                move += (delta[l] - self.q_view[i, l]) * (delta[l] - self.q_view[i, l])
                self.alpha[i, l] = delta[l]
        if not self.squared and nu > 0:
            total = c
        self.alpha[i, y] = delta[y] = total
        xi = fmax(0.0, self.low + rival - s[y])
        conjugate = total * total / (4 * c) if self.squared else 0
        loss = c * xi * xi if self.squared else c * xi
        sums.smooth += inner - conjugate - 0.5 * gamma * move
        sums.gap += loss - inner + conjugate
        sums.loss += loss
        sums.tight += loss
        if self.upper:
            reference = s[self.rival[i]] if self.named else self.fixed[i]
            eps = fmax(0.0, s[y] - reference - self.high)
            best = fmax(0.0, s[y] - rival - self.high)
            self.beta[i] = 2 * c * self.mu * eps
            sums.smooth += c * self.mu * eps * eps
            sums.loss += c * self.mu * eps * eps
            sums.tight += c * self.mu * best * best
            if self.named:
                sums.stale += reference < rival
            if eps > 0:
                delta[y] -= self.beta[i]
                if self.named:
                    if delta[self.rival[i]] == 0:
                        which[count] = self.rival[i]
                        count += 1
                    delta[self.rival[i]] += self.beta[i]
        if delta[y] != 0:
            which[count] = <int32_t>y
            row_update(X, i, delta, which, count + 1, U, k)


cdef void put(Py_ssize_t a, Py_ssize_t b, Py_ssize_t k, Py_ssize_t i, double weight, Py_ssize_t* at, int32_t* who,
              double* root) noexcept nogil:
    """Count, or with `who` file, row i under the pair {a, b}."""
    cdef Py_ssize_t pair = a * k + b if a < b else b * k + a
    if who != NULL:
        who[at[pair]] = <int32_t>i
        root[at[pair]] = sqrt(weight)
    at[pair] += 1


cdef void weigh(Newton self, Py_ssize_t* at, int32_t* who, double* root) noexcept nogil:
    """All weights of B_i by pairs of classes."""
    cdef Py_ssize_t i, l, o, n, y, k = self.k
    cdef double c, gamma, between, own
    for i in range(self.rows.m):
        y, c = self.y[i], self.cost[i]
        gamma = self.g / (2 * c)
        n = 0
        for l in range(k):
            n += self.alpha[i, l] < 0
        if self.squared:
            between, own = 1 / (gamma * (n + self.g)), 2 * c / (n + self.g)
        elif self.alpha[i, y] >= c:
            between, own = 1 / (gamma * n), 0
        else:
            between, own = 0, 1 / gamma
        for l in range(k):
            if self.alpha[i, l] < 0:
                if own > 0:
                    put(l, y, k, i, own, at, who, root)
                if n > 1 and between > 0:
                    for o in range(l):
                        if self.alpha[i, o] < 0:
                            put(o, l, k, i, between, at, who, root)
        if self.upper and self.beta[i] > 0:
            put(y, self.rival[i] if self.named else y, k, i, 2 * c * self.mu, at, who, root)


cdef fill(Newton self, Py_ssize_t start, Py_ssize_t stop, const int32_t* who, const double* root, double* Z):
    with nogil:
        if self.rows.storage == CSR64:
            gather(&self.rows.csr64, start, stop, who, root, Z)
        elif self.rows.storage == CSR32:
            gather(&self.rows.csr32, start, stop, who, root, Z)
        elif self.rows.storage == DENSE64:
            gather(&self.rows.dense64, start, stop, who, root, Z)
        elif self.rows.storage == DENSE32:
            gather(&self.rows.dense32, start, stop, who, root, Z)


cdef void gather(const data_t* X, Py_ssize_t start, Py_ssize_t stop, const int32_t* who, const double* root,
                 double* Z) noexcept nogil:
    """Z = the rows `who` times their roots."""
    cdef Py_ssize_t at, j
    cdef double* z = Z
    for at in range(start, stop):
        for j in range(X.d):
            z[j] = 0
        row_axpy(X, who[at], root[at], z)
        z += X.d
