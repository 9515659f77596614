"""Proximal semismooth Newton steps on the problem of a BlockCD, for few weights (proximal.pyx, math.md 1.6).

The losses have kinks where rivals tie, and optima sit there. With p_l = -alpha_il for l != y,

    loss_i = max_p <p, u> - h(p) + c mu eps^2,   u_l = low + s_l - s_y,   eps = (s_y - ref - high)_+
    hinge    h = 0,              p >= 0, sum p <= c
    squared  h = (sum p)^2/(4c), p >= 0

    p_l = (u_l + gamma q_l - nu)_+/gamma,  nu by `level`,   beta = 2 c mu eps

The curvature of F is I + sum_i B_i kron x_i x_i', B_i a Laplacian over the classes, n of them with p > 0, weights
on pairs

    {l, l'}   1/(gamma (n + g))   squared;   1/(gamma n)   hinge, sum p = c;   0         hinge, sum p < c
    {l, y}    2c/(n + g)                     0                                 1/gamma
    {y, r}    2 c mu where eps > 0           ({y} alone for a fixed reference)

With factors b_l of the classes, W and U here are r_l W_l and r_l U_l, r_l^2 = b_l: the norm of a problem without
factors, where class l sees the rows r_l x_i. Its blocks of the curvature are multiplied by r_l r_l'.

The curvature is summed pair by pair as Z'Z, the rows of Z being x_i times the root of its weight.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fmax, sqrt
from libc.stdint cimport int32_t

from marginlinear._core.proximal cimport ProximalNewton, dot
from marginlinear._core.rows cimport (
    CSR32,
    CSR64,
    DENSE32,
    DENSE64,
    NARROW32,
    NARROW64,
    data_t,
    row_axpy,
    row_scores,
    row_update,
)
from marginlinear._core.block_problem cimport level
from marginlinear._core.cholesky cimport NormalMatrix

from marginlinear._core.vector import Buffer, copied, zeros
from marginlinear._core.proximal import solve

# Work of one slice between looks at the signals: about 20 ms.
cdef double SLICE = 2e7


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


cdef class Newton(ProximalNewton):
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
    cdef bint squared, upper, named
    cdef double low, high, mu
    cdef object duals
    cdef double[:, ::1] alpha, centre
    cdef double[::1] r, beta, scratch
    cdef int32_t[::1] which
    cdef bint uneven
    cdef const double[::1] cost, fixed, factors
    cdef const int32_t[::1] y, rival

    def __init__(self, engine):
        super().__init__(engine)
        self.k = engine.n_classes
        self.squared, self.low, self.high, self.mu = engine.squared, engine.low, engine.high, engine.mu
        self.duals, self.beta, self.y, self.cost, self.rival, self.fixed, self.factors = engine.working_arrays()
        self.alpha = self.duals
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * self.rows.m / (1.0 + <double>self.rows.nnz * self.k)))
        self.uneven = engine.norm < 2
        self.r = Buffer("d", self.k)
        self.scratch, self.which = Buffer("d", max(4 * self.k, self.rows.d)), Buffer("i", self.k)
        if self.uneven:
            self._take_roots()
            self.engine.iterates.scale(self.W, 0.5)
        self.gram = NormalMatrix(self.rows.d, self.rows.m, engine.threads)
        self.q = copied(self.duals)
        self.centre = self.q
        self.restart()

    def restart(self):
        """The engine's problem has changed: W stays, the duals follow."""
        self.upper, self.named = self.engine.upper, self.engine.named
        if self._invariant():
            # A common shift of all w_l costs norm and changes no loss.
            centre_classes(self.W, self.k)
        ProximalNewton.restart(self)

    def curvature(self):
        """A generalised Hessian of F at the last W: float64 array of shape (d k, d k), ordered as W is."""
        import numpy as np

        d, k = self.rows.d, self.k
        H = np.asarray(self._curvature(k)).reshape(k, d, k, d)
        return H.transpose(1, 0, 3, 2).reshape(d * k, d * k) + np.eye(d * k)

    def _invariant(self):
        """Whether the losses know differences of scores only."""
        return not self.uneven and (self.named or not self.upper)

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
        W, U = copied(self.W), copied(self.U)
        self.engine.iterates.scale(W, -0.5)
        self.engine.iterates.scale(U, -0.5)
        self.engine.iterates.resume(W, U, 1.0)
        self.objective = self.primal = self.engine.half_norm() + self.loss
        self.bound = self.engine.dual()

    def _duals(self):
        return self.duals

    cdef _take_roots(self):
        cdef Py_ssize_t l
        for l in range(self.k):
            self.r[l] = sqrt(self.factors[l])

    def _respond(self, const double[::1] W):
        """F(W). Sets the duals, U, and the values of the problem at W and these duals."""
        cdef Py_ssize_t start
        cdef double half = 0.5 * dot(W, W)
        cdef sums_t sums
        cdef task_t task
        self.U[:] = 0
        sums.smooth = sums.loss = sums.tight = sums.gap = 0
        sums.stale = 0
        task.what, task.W, task.U, task.sums = RESPOND, &W[0], &self.U[0], &sums
        task.scratch, task.which = &self.scratch[0], &self.which[0]
        for start in range(0, self.rows.m, self.slice_rows):
            task.start, task.stop = start, min(self.rows.m, start + self.slice_rows)
            with nogil:
                perform(self, &task)
            PyErr_CheckSignals()
        self.e, self.G = sums.gap, 0.5 * self._subtract(W)
        self.primal, self.objective, self.stale = half + sums.loss, half + sums.tight, sums.stale
        self.bound = self.primal - self.e - self.G
        self.loss = sums.loss
        return half + sums.smooth

    def _direction(self, const double[::1] gradient):
        """curvature^-1 gradient.

        Where a common shift of the classes changes no loss, W and the gradient sum to zero over them. The
        last class is then held at zero, ||.||^2 is that of differences from the mean, taken out at the end.
        """
        cdef Py_ssize_t a, b, j, d = self.rows.d, k = self.k, free = k - 1 if self._invariant() else k
        cdef double shared = 1.0 / k if free < k else 0.0
        cdef double[:, ::1] H = self._curvature(free)
        cdef double[::1] wanted = Buffer("d", free * d), direction
        cdef const double[::1] found
        for a in range(free):
            for b in range(free):
                for j in range(d):
                    H[a * d + j, b * d + j] += (a == b) - shared
            for j in range(d):
                wanted[a * d + j] = gradient[j * k + a]
        found = solve(H, wanted, self.engine.threads)
        out = zeros("d", d * k)
        direction = out
        for a in range(free):
            for j in range(d):
                direction[j * k + a] = found[a * d + j]
        if free < k:
            centre_classes(direction, k)
        return out

    cdef double[:, ::1] _curvature(self, Py_ssize_t free):
        """sum_i B_i kron x_i x_i' of the first `free` classes, feature j of class a at a d + j."""
        cdef Py_ssize_t pair, a, b, i, j, start, stop, d = self.rows.d, k = self.k
        # begins[pair + 1] is where the next row of the pair goes, at last where those of the next pair begin.
        cdef Py_ssize_t[::1] begins = zeros("q", k * k + 2)
        with nogil:
            weigh(self, &begins[2], NULL, NULL)
        for pair in range(k * k):
            begins[pair + 2] += begins[pair + 1]
        cdef int32_t[::1] who = Buffer("i", begins[k * k + 1] + 1)
        cdef double[::1] root = Buffer("d", begins[k * k + 1] + 1)
        with nogil:
            weigh(self, &begins[1], &who[0], &root[0])
        cdef NormalMatrix gram = self.gram
        cdef task_t task
        cdef double[:, ::1] H = zeros("d", free * d, free * d), total
        task.what, task.who, task.root, task.scratch = GATHER, &who[0], &root[0], &self.scratch[0]
        for pair in range(k * k):
            if begins[pair] == begins[pair + 1]:
                continue
            a, b = pair // k, pair % k
            gram.clear()
            for start in range(begins[pair], begins[pair + 1], gram.room):
                stop = min(begins[pair + 1], start + gram.room)
                task.start, task.stop = start, stop
                with nogil:
                    perform(self, &task)
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
        return H


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


cdef void perform(Newton self, const task_t* task) noexcept nogil:
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


cdef inline void perform_on(Newton self, const data_t* X, const task_t* task) noexcept nogil:
    if task.what == RESPOND:
        respond(self, X, task)
    else:
        gather(X, task, self.gram)


cdef void respond(Newton self, const data_t* X, const task_t* task) noexcept nogil:
    """Row by row: scores, p and beta, sums, and the row's part of U."""
    cdef Py_ssize_t i, l, n, count, y, r, k = self.k
    cdef double gamma, c, nu, total, inner, move, rival, xi, eps, best, reference, loss
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
        gamma = self.g / (2 * c)
        rival = -INFINITY
        n = 0
        for l in range(k):
            if l != y:
                rival = fmax(rival, s[l])
                B[l] = self.low + s[l] - s[y] - gamma * self.centre[i, l]
                if B[l] > 0:
                    heap[n] = B[l]
                    n += 1
        nu = 0
        if n:
            # gamma sum p = sum (B - nu)_+ is g nu (squared), and with the hinge at most gamma c.
            nu = level(heap, n, 0, self.g) if self.squared else fmax(0.0, level(heap, n, -gamma * c, 0))
        total = inner = move = 0
        count = 0
        for l in range(k):
            dual[l] = 0
            if l != y:
                if B[l] > nu:
                    dual[l] = -(B[l] - nu) / gamma
                    total -= dual[l]
                    inner -= dual[l] * (self.low + s[l] - s[y])
                    task.which[count] = <int32_t>l
                    count += 1
                move += (dual[l] - self.centre[i, l]) * (dual[l] - self.centre[i, l])
                self.alpha[i, l] = dual[l]
        if not self.squared and nu > 0:
            total = c
        self.alpha[i, y] = dual[y] = total
        xi = fmax(0.0, self.low + rival - s[y])
        if self.squared:
            loss = c * xi * xi
            inner -= total * total / (4 * c)
        else:
            loss = c * xi
        sums.smooth += inner - 0.5 * gamma * move
        sums.gap += loss - inner
        sums.tight += loss
        if self.upper:
            r = self.rival[i]
            reference = s[r] if self.named else self.fixed[i]
            eps = fmax(0.0, s[y] - reference - self.high)
            best = fmax(0.0, s[y] - rival - self.high)
            self.beta[i] = 2 * c * self.mu * eps
            loss += c * self.mu * eps * eps
            sums.smooth += c * self.mu * eps * eps
            sums.tight += c * self.mu * best * best
            if self.named:
                sums.stale += reference < rival
                if eps > 0:
                    if dual[r] == 0:
                        task.which[count] = <int32_t>r
                        count += 1
                    dual[r] += self.beta[i]
            dual[y] -= self.beta[i]
        sums.loss += loss
        if self.uneven:
            for l in range(k):
                dual[l] *= self.r[l]
        if dual[y] != 0 or count:
            task.which[count] = <int32_t>y
            row_update(X, i, dual, task.which, count + 1, task.U, k)


cdef inline void put(Py_ssize_t a, Py_ssize_t b, Py_ssize_t k, Py_ssize_t i, double weight, Py_ssize_t* at,
                     int32_t* who, double* root) noexcept nogil:
    """File row i under the pair {a, b}, at[a k + b], a <= b; without `who` only count it."""
    cdef Py_ssize_t pair = a * k + b if a < b else b * k + a
    if who != NULL:
        who[at[pair]] = <int32_t>i
        root[at[pair]] = sqrt(weight)
    at[pair] += 1


cdef void weigh(Newton self, Py_ssize_t* at, int32_t* who, double* root) noexcept nogil:
    """All weights of all B_i by pairs of classes."""
    cdef Py_ssize_t i, l, o, n, y, k = self.k
    cdef double c, gamma, between, own
    for i in range(self.rows.m):
        y, c = self.y[i], self.cost[i]
        gamma = self.g / (2 * c)
        n = 0
        for l in range(k):
            n += l != y and self.alpha[i, l] < 0
        if self.squared:
            between, own = 1 / (gamma * (n + self.g)), 2 * c / (n + self.g)
        elif n and self.alpha[i, y] >= c:
            between, own = 1 / (gamma * n), 0
        else:
            between, own = 0, 1 / gamma
        if n:
            for l in range(k):
                if l != y and self.alpha[i, l] < 0:
                    if own > 0:
                        put(l, y, k, i, own, at, who, root)
                    if n > 1 and between > 0:
                        for o in range(l):
                            if o != y and self.alpha[i, o] < 0:
                                put(o, l, k, i, between, at, who, root)
        if self.upper and self.beta[i] > 0:
            put(y, self.rival[i] if self.named else y, k, i, 2 * c * self.mu, at, who, root)


cdef void gather(const data_t* X, const task_t* task, NormalMatrix gram) noexcept nogil:
    cdef Py_ssize_t at, j
    for at in range(task.start, task.stop):
        for j in range(X.d):
            task.scratch[j] = 0
        row_axpy(X, task.who[at], task.root[at], task.scratch)
        gram.pack(at - task.start, task.scratch)
