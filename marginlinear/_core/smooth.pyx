"""Sums of smooth multi-class losses over rows: value, gradient, and products with the Hessian.

    F(W) = sum_i c_i loss(x_i),     t_l = s_y - s_l,  s = W x_i,  y the row's class

    hinge      sum_{l != y} g(1 - t_l),   g(x) = (x + sqrt(x^2 + width^2))/2
    logistic   sum_{l != y} log(1 + exp(-t_l))
    softmax    log(1 + sum_{l != y} exp(-t_l))

With rho_l = -d loss/d t_l, row i's derivative in its scores, the residual, is

    r_l = c_i rho_l for l != y,   r_y = -sum_{l != y} r_l,        gradient of F in w_l = sum_i r_il x_i.

In the direction V, z = V x_i, the residuals move by

    4 c q^(3/2)/width (z_l - z_y) (hinge),   c q (z_l - z_y) (logistic),   q = rho_l (1 - rho_l),
    c rho_l (z_l - z_y - sum_{j != y} rho_j (z_j - z_y)) (softmax)   for l != y,   minus the sum of these for y,

so that the residuals are all that is to be known of W. They are kept from the gradient's pass, unless they are many
and W is smaller: then a copy of W is kept, and the product's pass makes them again.

A pass goes by blocks of rows: their scores, their residuals R, then X' R by columns of X, for which a sparse block is
held a second time, transposed. A weight is then written once a block, in the order of the features, the residuals stay
in cache, and threads share nothing: every number is summed in one order, however many there are. Products with dense
rows are BLAS's.
"""

import numpy as np

from scipy.sparse import csr_array

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport fabs, log1p, sqrt
from libc.stdint cimport int32_t

from marginlinear._core.check cimport check
from marginlinear._core.rows cimport GRAM, SLICE, Rows, data_t, fixed_t, row_scores, scores_t
from marginlinear.threads import ranges, run_chunks

# Residuals of a block: what stays in a second-level cache. A sparse block has more where it would have fewer than so
# many values a feature, so that what is written of the gradient is little beside what is read; but no more than a
# share of what may be kept.
cdef Py_ssize_t BLOCK = 1 << 16
cdef Py_ssize_t DENSITY = 8
cdef Py_ssize_t SHARE = 8
# Residuals that are kept whatever the size of W: 128 MB.
cdef Py_ssize_t KEPT = 1 << 24
# Fewest dense rows in a block, most of their values at once, and most weights of theirs.
cdef Py_ssize_t DENSE = 64
cdef Py_ssize_t VALUES = 1 << 22
cdef Py_ssize_t WEIGHTS = 1 << 18
# Terms of losses that are worked at once: what stays in a second-level cache.
cdef Py_ssize_t TERMS = 1 << 16
# A product of so many factors 1 + e <= 2 is finite.
cdef Py_ssize_t FACTORS = 512


cdef enum Loss:
    HINGE
    LOGISTIC
    SOFTMAX

cdef struct task_t:
    Py_ssize_t first, start, stop, k    # rows first + start to first + stop
    const double* W
    double* out
    double* one                         # room for the scores of a row, where they are added to `out`; else NULL

LOSSES = {"hinge": HINGE, "logistic": LOGISTIC, "softmax": SOFTMAX}


cdef class SmoothLoss:
    """F of one problem.

    Parameters
    ----------
    rows : Rows
        Not a Gram matrix.
    y : int32 array of shape (m,)
        Classes 0 to n_classes - 1.
    n_classes : int
        k, at least 2.
    cost : float64 array of shape (m,)
        c_i >= 0.
    loss : {"hinge", "logistic", "softmax"}
    width : float
        Of the hinge's rounding, positive; 0 <= g(x) - max(x, 0) <= width/2.
    threads : int
        The results are the same for any number.

    Attributes
    ----------
    width : float
        May be changed between calls.
    hinge, mass : float
        Of loss "hinge", at the W of the last value_and_gradient: sum_i c_i sum_{l != y} max(0, 1 - t_il), and
        sum_i c_i sum_{l != y} rho_il.

    Raises
    ------
    ValueError
        For a Gram matrix, no rows, arrays of other shapes, an unknown loss or a width that is not allowed.
    """

    cdef readonly Rows rows
    cdef readonly object y, cost
    cdef readonly Py_ssize_t n_classes
    cdef readonly double hinge, mass
    cdef double delta, last
    cdef Loss loss
    cdef int threads
    cdef bint keeps
    cdef list blocks, slabs
    cdef object _residuals, _work, _losses, _hinges, _masses, _at  # _at: the last W, where residuals are not kept
    cdef const int32_t[::1] own
    cdef const double[::1] c

    def __init__(self, Rows rows, y, Py_ssize_t n_classes, cost, *, loss, width=1.0, int threads=1):
        if rows.storage == GRAM:
            raise ValueError("SmoothLoss: a Gram matrix holds no features")
        if loss not in LOSSES:
            raise ValueError(f"loss = {loss!r} is not allowed: one of {', '.join(LOSSES)}")
        if rows.m == 0:
            raise ValueError("SmoothLoss: no rows")
        if n_classes < 2:
            raise ValueError(f"n_classes = {n_classes} is not allowed: at least 2")
        if len(y) != rows.m or len(cost) != rows.m:
            raise ValueError(f"SmoothLoss: {rows.m} rows, {len(y)} labels, {len(cost)} costs")
        if not 0 <= y.min() <= y.max() < n_classes:
            raise ValueError(f"y: classes must be 0 to {n_classes - 1}")
        self.rows, self.y, self.cost, self.n_classes = rows, y, cost, n_classes
        self.own, self.c = y, cost
        self.loss, self.threads, self.width = LOSSES[loss], threads, width
        cdef Py_ssize_t most = max(rows.d, KEPT // n_classes), size = BLOCK // n_classes
        if self._is_sparse():
            size = max(size, min(most // SHARE, DENSITY * rows.n * rows.m // max(1, rows.nnz)))
        else:
            size = max(size, DENSE)
        size = max(1, min(rows.m, size))
        rows.require()
        self.blocks = [(lo, hi, self._transposed(lo, hi)) for lo, hi in ranges(rows.m, size)]
        self.keeps = rows.m <= most
        self._residuals = np.empty((rows.m if self.keeps else size, n_classes))
        self._work = np.empty((size, n_classes))
        self.slabs = ranges(rows.n, max(1, min(WEIGHTS // n_classes, VALUES // size)))
        self._losses, self._hinges, self._masses = (np.zeros(rows.m) for _ in range(3))

    @property
    def width(self):
        return self.delta

    @width.setter
    def width(self, double width):
        if not 1e-150 <= width <= 1e150:
            raise ValueError(f"width = {width} is not allowed: a positive number, 1e-150 to 1e150")
        self.delta = width

    def value(self, W):
        """F(W); W is a float64 array of shape (d k,), feature j of class l at j k + l."""
        W = self._checked(W)
        for lo, hi, _ in self._blocks():
            self._forward(W, lo, self._work[:hi - lo], self.delta)
        return float(self._losses.sum())

    def value_and_gradient(self, W, out):
        """F(W); its gradient is written to `out`, a float64 array of shape (d k,)."""
        W, out = self._checked(W), self._checked(out)
        self.last = self.delta
        self._at = None if self.keeps else W.copy()
        for lo, hi, columns in self._blocks():
            residuals = self._kept(lo, hi)
            self._forward(W, lo, residuals, self.delta)
            self._backward(residuals, lo, columns, out)
        self.hinge, self.mass = float(self._hinges.sum()), float(self._masses.sum())
        return float(self._losses.sum())

    def product(self, V, out, basis=None):
        """The Hessian of F at the W of the last value_and_gradient, times V, is written to `out`: shapes (d k,).

        With a basis T, of shape (k, k), V and the product are in its coordinates: of V T', and that times T.
        """
        V, out = self._checked(V), self._checked(out)
        if self.last == 0:
            raise RuntimeError("product: call value_and_gradient first")
        for lo, hi, columns in self._blocks():
            residuals, turns = self._kept(lo, hi), self._work[:hi - lo]
            if not self.keeps:
                self._forward(self._at, lo, residuals, self.last)
            self._move(lambda z, a, b, r=residuals, lo=lo: self._turn(r, z, lo, a, b), V, lo, turns, basis)
            self._backward(turns, lo, columns, out)

    def curvature(self, H=None):
        """The rows' Hessians in their scores: their sum, of shape (k, k), and the trace of each, of shape (m,).

        Of the loss where W was last, or with H as in `weighted_product`.
        """
        k, N, traces = self.n_classes, 0, np.empty(self.rows.m)
        for lo, hi, _ in self._blocks():
            c, own = self.cost[lo:hi, np.newaxis], (np.arange(hi - lo), self.y[lo:hi])
            of_class = csr_array((np.ones(hi - lo), own[::-1]), shape=(k, hi - lo))
            if H is not None:
                weights = H[lo:hi]
            else:
                rho = self._kept(lo, hi)
                if not self.keeps:
                    self._forward(self._at, lo, rho, self.last)
                rho = np.divide(rho, c, out=np.zeros_like(rho), where=c > 0)
                rho[own] = 1 + rho[own] if self.loss == SOFTMAX else 0
                weights = np.maximum(0, rho * (1 - rho))
                if self.loss == SOFTMAX:
                    traces[lo:hi] = (c * weights).sum(axis=1)
                    N = N + (c * rho).T @ rho / 2
                    continue
                weights = c * (4 / self.last * weights**1.5 if self.loss == HINGE else weights)
            traces[lo:hi] = 2 * weights.sum(axis=1)
            N = N + of_class @ weights
        N = N + N.T
        np.fill_diagonal(N, 0)
        return np.diag(N.sum(axis=1)) - N, traces

    def scores(self, W):
        """X W: float64 array of shape (m, k)."""
        W, out = self._checked(W), np.empty((self.rows.m, self.n_classes))
        for lo, hi, _ in self._blocks():
            self._scores(W, lo, out[lo:hi])
        return out

    def value_at(self, S):
        """F where the scores are S, a float64 array of shape (m, k), which becomes the residuals."""
        for lo, hi, _ in self._blocks():
            self._residuals_of(S[lo:hi], lo, self.delta)
        return float(self._losses.sum())

    def combine(self, R, out):
        """X' R is written to `out`, of shape (d k,); R is a float64 array of shape (m, k)."""
        out = self._checked(out)
        for lo, hi, columns in self._blocks():
            self._backward(R[lo:hi], lo, columns, out)

    def weighted_product(self, H, V, out, basis=None):
        """`product` with H[i, l] in place of row i's h_l; H, of shape (m, k), has 0 for the row's class."""
        V, out = self._checked(V), self._checked(out)
        for lo, hi, columns in self._blocks():
            turns = self._work[:hi - lo]
            self._move(lambda z, a, b, lo=lo: self._weigh(H, z, lo, a, b), V, lo, turns, basis)
            self._backward(turns, lo, columns, out)

    def _move(self, turn, V, lo, z, basis):
        """z = what `turn` makes of the scores of V, for the rows from lo, in the coordinates of the basis."""
        self._scores(V, lo, z)

        def some(a, b):
            if basis is None:
                turn(z[a:b], a, b)
            else:
                moved = z[a:b] @ basis.T
                turn(moved, a, b)
                np.matmul(moved, basis, out=z[a:b])

        self._by_chunks(some, len(z))

    def _is_sparse(self):
        return isinstance(self.rows.arrays, tuple)

    def _transposed(self, lo, hi):
        """The columns of rows lo to hi as Rows, None for dense rows."""
        if not self._is_sparse():
            return None
        _, indices, indptr = map(np.asarray, self.rows.arrays)
        part = slice(indptr[lo], indptr[hi])
        arrays = self.rows.stored(lo, hi), indices[part], indptr[lo:hi + 1] - indptr[lo]
        block = csr_array(arrays, shape=(hi - lo, self.rows.n))
        block = block.tocsc()
        PyErr_CheckSignals()
        arrays = block.data, block.indices.astype(np.int32, copy=False), block.indptr.astype(np.int64, copy=False)
        return Rows.from_csr(*map(self.rows.kept, arrays), hi - lo)

    def _blocks(self):
        """(lo, hi, columns) of all blocks of rows, for a pass."""
        self.rows.require()
        return self.blocks

    def _checked(self, array):
        if array.shape != (self.rows.d * self.n_classes,):
            raise ValueError(f"SmoothLoss: shape {array.shape} is not ({self.rows.d * self.n_classes},)")
        return array.reshape(self.rows.d, self.n_classes)

    def _kept(self, lo, hi):
        return self._residuals[lo:hi] if self.keeps else self._residuals[:hi - lo]

    def _forward(self, W, lo, out, double width):
        """out = the residuals of the rows from lo; their losses are noted."""
        self._scores(W, lo, out)
        self._residuals_of(out, lo, width)

    def _residuals_of(self, out, lo, double width):
        """out = the residuals of the rows from lo, whose scores it has; their losses are noted."""
        self._by_chunks(lambda a, b: self._respond(out, lo, a, b, width), len(out))

    def _by_chunks(self, work, n):
        run_chunks(work, n, self.threads, max(1, TERMS // self.n_classes))

    def _scores(self, W, lo, out):
        """out = X W for the rows from lo."""
        if self._is_sparse():
            self._gather(self.rows, lo, W, out, False)
        else:
            out[:] = 0
            for first, last in self.slabs:
                out += self._dense(lo, len(out), first, last) @ W[first:last]
                PyErr_CheckSignals()
            if self.rows.bias >= 0:
                out += self.rows.bias * W[self.rows.n]

    def _backward(self, residuals, lo, columns, out):
        """out += X' residuals for the rows from lo; out = for the first."""
        stored = out[:self.rows.n]
        if columns is not None:
            self._gather(columns, 0, residuals, stored, lo > 0)
        else:
            if lo == 0:
                stored[:] = 0
            for first, last in self.slabs:
                stored[first:last] += self._dense(lo, len(residuals), first, last).T @ residuals
                PyErr_CheckSignals()
        if self.rows.bias >= 0:
            constant = self.rows.bias * residuals.sum(axis=0)
            out[self.rows.n] = out[self.rows.n] + constant if lo > 0 else constant

    def _dense(self, lo, count, first, last):
        return self.rows.arrays[lo:lo + count, first:last].astype(np.float64, copy=False)

    def _gather(self, Rows rows, lo, W, out, add):
        """out = X W for the rows from lo, or += where `add`."""
        # For one thread, about 2 ms.
        size = <Py_ssize_t>(SLICE / 5.0 / self.n_classes * rows.m / (1.0 + <double>rows.nnz))
        run_chunks(lambda a, b: self._gather_some(rows, W, out, lo, a, b, add), len(out), self.threads, max(1, size))

    def _gather_some(self, Rows rows, const double[:, ::1] W, double[:, ::1] out, Py_ssize_t lo, Py_ssize_t a,
                     Py_ssize_t b, bint add):
        cdef double[::1] one = np.empty(self.n_classes)
        cdef task_t task
        if W.shape[0] == 0:
            out[a:b] = 0
            return
        task.first, task.start, task.stop, task.k = lo, a, b, self.n_classes
        task.W, task.out, task.one = &W[0, 0], &out[0, 0], &one[0] if add else NULL
        with nogil:
            perform(self, rows, &task)
        PyErr_CheckSignals()

    def _respond(self, double[:, ::1] s, Py_ssize_t lo, Py_ssize_t a, Py_ssize_t b, double width):
        """Scores become residuals."""
        cdef Py_ssize_t i, at, k = self.n_classes
        cdef double[::1] losses = self._losses, hinges = self._hinges, masses = self._masses
        cdef double* e
        terms = np.empty((b - a, k))
        cdef double[:, ::1] view = terms
        if self.loss != HINGE:
            with nogil:
                for at in range(a, b):
                    exponents(&s[at, 0], k, self.own[lo + at], self.loss, &view[at - a, 0])
            # NumPy's is vectorised.
            with np.errstate(under="ignore"):
                np.exp(terms, out=terms)
        with nogil:
            for at in range(a, b):
                i, e = lo + at, &view[at - a, 0]
                if self.loss == HINGE:
                    losses[i] = self.c[i] * hinge_row(&s[at, 0], k, self.own[i], width, e, &hinges[i], &masses[i])
                    hinges[i] *= self.c[i]
                    masses[i] *= self.c[i]
                elif self.loss == LOGISTIC:
                    losses[i] = self.c[i] * logistic_row(&s[at, 0], k, self.own[i], e)
                else:
                    losses[i] = self.c[i] * softmax_row(&s[at, 0], k, self.own[i], e)
                balance(&s[at, 0], k, self.own[i], self.c[i])

    def _turn(self, const double[:, ::1] r, double[:, ::1] z, Py_ssize_t lo, Py_ssize_t a, Py_ssize_t b):
        """The scores z of a direction, for the rows from lo + a, become the derivatives of the residuals r."""
        cdef Py_ssize_t i, at
        with nogil:
            for at in range(a, b):
                i = lo + at
                turn_row(&r[at, 0], &z[at - a, 0], self.n_classes, self.own[i], self.c[i], self.loss, self.last)
                balance(&z[at - a, 0], self.n_classes, self.own[i], 1.0)

    def _weigh(self, const double[:, ::1] H, double[:, ::1] z, Py_ssize_t lo, Py_ssize_t a, Py_ssize_t b):
        """The same by given h."""
        cdef Py_ssize_t l, at, y
        cdef double own
        with nogil:
            for at in range(a, b):
                y = self.own[lo + at]
                own = z[at - a, y]
                for l in range(self.n_classes):
                    z[at - a, l] = H[lo + at, l] * (z[at - a, l] - own)
                balance(&z[at - a, 0], self.n_classes, y, 1.0)


ctypedef fused engine_t:
    SmoothLoss

include "on_features.pxi"


cdef void perform_on(engine_t self, const data_t* X, task_t* task) noexcept nogil:
    """out = the scores of the rows, or += them."""
    cdef Py_ssize_t at, l, k = task.k
    for at in range(task.start, task.stop):
        if task.one == NULL:
            row_scores(X, task.first + at, task.W, k, task.out + at * k)
        else:
            row_scores(X, task.first + at, task.W, k, task.one)
            for l in range(k):
                task.out[at * k + l] += task.one[l]


cdef inline double total(const double* x, Py_ssize_t k) noexcept nogil:
    """sum x_l, in four running sums"""
    cdef Py_ssize_t l = 0
    cdef double a = 0, b = 0, c = 0, d = 0
    while l + 4 <= k:
        a += x[l]
        b += x[l + 1]
        c += x[l + 2]
        d += x[l + 3]
        l += 4
    while l < k:
        a += x[l]
        l += 1
    return (a + b) + (c + d)


cdef inline void balance(double* r, Py_ssize_t k, Py_ssize_t y, double c) noexcept nogil:
    """r *= c, r_y = -sum_{l != y} r_l"""
    cdef Py_ssize_t l
    check(y, k)
    r[y] = 0
    for l in range(k):
        r[l] *= c
    r[y] = -total(r, k)


cdef double hinge_row(double* s, Py_ssize_t k, Py_ssize_t y, double width, double* terms, double* hinge,
                      double* mass) noexcept nogil:
    """s = rho; returns the loss.

    g(x) is (|x| + r)/2 for x > 0, else width^2/(2 (|x| + r)), without cancellation; r = sqrt(x^2 + width^2).
    """
    cdef Py_ssize_t l
    cdef double own = s[y], square = width * width, x, r, high, inverse, loss
    cdef scores_t rho = s
    cdef scores_t g = terms
    for l in range(k):
        x = 1 - (own - rho[l])
        g[l] = x if x > 0 else 0
    g[y] = 0
    hinge[0] = total(terms, k)
    for l in range(k):
        x = 1 - (own - rho[l])
        r = sqrt(x * x + square)
        high = 0.5 * (fabs(x) + r)
        inverse = 1 / (r * high)
        g[l] = high if x > 0 else 0.25 * square * r * inverse
        rho[l] = g[l] * high * inverse
    g[y] = rho[y] = 0
    loss = total(terms, k)
    mass[0] = total(s, k)
    return loss


cdef inline Py_ssize_t largest(const double* s, Py_ssize_t k) noexcept nogil:
    cdef Py_ssize_t l, top = 0
    for l in range(1, k):
        if s[l] > s[top]:
            top = l
    return top


cdef void exponents(const double* s, Py_ssize_t k, Py_ssize_t y, Loss loss, double* exponent) noexcept nogil:
    """Of what the loss needs the exponentials: -|s_l - s_y| (logistic), s_l - max s (softmax)."""
    cdef Py_ssize_t l
    cdef fixed_t score = s
    cdef scores_t out = exponent
    cdef double at = s[y]
    if loss == LOGISTIC:
        for l in range(k):
            out[l] = -fabs(score[l] - at)
    else:
        at = s[largest(s, k)]
        for l in range(k):
            out[l] = score[l] - at


cdef double logistic_row(double* s, Py_ssize_t k, Py_ssize_t y, double* exponential) noexcept nogil:
    """s = rho; returns the loss.

    log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(-|x|); the logarithms' sum is log1p(q), 1 + q = prod (1 + e_l).
    """
    cdef Py_ssize_t l, stop, start = 0
    cdef double own = s[y], x, q, loss
    cdef scores_t rho = s
    cdef scores_t e = exponential
    e[y] = 0
    loss = excess(s, k, own)
    while start < k:
        q, stop = 0, min(k, start + FACTORS)
        for l in range(start, stop):
            q += e[l] + q * e[l]
        loss += log1p(q)
        start = stop
    for l in range(k):
        x = rho[l] - own
        rho[l] = (1 if x > 0 else e[l]) / (1 + e[l])
    return loss


cdef inline double excess(const double* s, Py_ssize_t k, double own) noexcept nogil:
    """sum_l max(s_l - own, 0), in two running sums"""
    cdef Py_ssize_t l
    cdef double a = 0, b = 0
    for l in range(0, k - 1, 2):
        a += max(s[l] - own, 0.0)
        b += max(s[l + 1] - own, 0.0)
    if k % 2:
        a += max(s[k - 1] - own, 0.0)
    return a + b


cdef double softmax_row(double* s, Py_ssize_t k, Py_ssize_t y, double* exponential) noexcept nogil:
    """s = the classes' shares exp(s_l)/sum; returns the loss.

    log(sum_l exp(s_l)) = s_top + log1p(sum_{l != top} exp(s_l - s_top))
    """
    cdef Py_ssize_t l, top = largest(s, k)
    cdef double loss = s[top] - s[y], rest
    cdef scores_t rho = s
    cdef scores_t e = exponential
    e[top] = 0
    rest = total(exponential, k)
    e[top] = 1
    for l in range(k):
        rho[l] = e[l] / (1 + rest)
    return loss + log1p(rest)


cdef void turn_row(const double* r, double* z, Py_ssize_t k, Py_ssize_t y, double c, Loss loss,
                   double width) noexcept nogil:
    """z = the derivatives of the residuals r in this direction, but for class y.

    r/c can be above 1 by rounding: its q is 0.
    """
    cdef Py_ssize_t l
    cdef double own = z[y], mean = 0, rho, q
    if c == 0:
        for l in range(k):
            z[l] = 0
    elif loss == SOFTMAX:
        for l in range(k):
            z[l] -= own
            if l != y:
                mean += r[l] / c * z[l]
        for l in range(k):
            z[l] = r[l] * (z[l] - mean)
    elif loss == LOGISTIC:
        for l in range(k):
            rho = r[l] / c
            q = rho * (1 - rho)
            z[l] = c * (q if q > 0 else 0) * (z[l] - own)
    else:
        for l in range(k):
            rho = r[l] / c
            q = rho * (1 - rho)
            q = q if q > 0 else 0
            z[l] = 4 * c / width * q * sqrt(q) * (z[l] - own)
