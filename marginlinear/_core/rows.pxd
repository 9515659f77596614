"""Rows of data behind one accessor, so that every engine is written once.

    scores      s_l  = <w_l, x_i>            for all classes l
    update      w_l += delta_l x_i           for the classes that changed
    dot, axpy   the same with one column;    sqnorm  <x_i, x_i>

The storages are CSR and dense (float64, float32) with the weights W as state, W[j*k + l] being feature j of class l,
and a Gram matrix, where the state is the scores themselves, S[j*k + l] being row j's score of class l.
State is float64 throughout. A row of CSR or dense data may end with a constant bias feature that is not stored.
"""

from libc.stdint cimport int32_t, int64_t

from marginlinear._core.check cimport check

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define ML_PREFETCH(p) __builtin_prefetch((const void *)(p), 0, 3)
    #define ML_RESTRICT __restrict__
    #else
    #define ML_PREFETCH(p) ((void)0)
    #define ML_RESTRICT
    #endif
    """
    void prefetch "ML_PREFETCH"(const void* p) noexcept nogil
    # Distinct arrays by contract: lets the compiler use vectors over the classes.
    ctypedef double* state_t "double * ML_RESTRICT"
    ctypedef const double* fixed_t "const double * ML_RESTRICT"

ctypedef struct csr64_t:
    Py_ssize_t m
    Py_ssize_t n         # stored features; the bias feature, if any, is number n
    Py_ssize_t d         # n, or n + 1 with a bias feature
    double bias
    const double* data
    const int32_t* indices
    const int64_t* indptr

ctypedef struct csr32_t:
    Py_ssize_t m
    Py_ssize_t n
    Py_ssize_t d
    double bias
    const float* data
    const int32_t* indices
    const int64_t* indptr

ctypedef struct dense64_t:
    Py_ssize_t m
    Py_ssize_t n
    Py_ssize_t d
    double bias
    const double* data   # m x n, C order

ctypedef struct dense32_t:
    Py_ssize_t m
    Py_ssize_t n
    Py_ssize_t d
    double bias
    const float* data

ctypedef struct gram_t:
    Py_ssize_t m
    Py_ssize_t n
    Py_ssize_t d         # m: the state has one row an instance
    double bias          # negative: a kernel carries its own
    const double* data   # m x m, symmetric

ctypedef fused rows_t:
    csr64_t
    csr32_t
    dense64_t
    dense32_t
    gram_t

cdef enum Storage:
    CSR64
    CSR32
    DENSE64
    DENSE32
    GRAM


cdef class Rows:
    cdef readonly Py_ssize_t m, n, d
    cdef readonly double bias
    cdef readonly Py_ssize_t nnz
    cdef Storage storage
    cdef csr64_t csr64
    cdef csr32_t csr32
    cdef dense64_t dense64
    cdef dense32_t dense32
    cdef gram_t gram
    cdef object _arrays


cdef inline void row_scores(const rows_t* X, Py_ssize_t i, const double* W, Py_ssize_t k, double* scores) noexcept nogil:
    """s_l = <w_l, x_i>, features in their order and classes side by side: the bits do not depend on k."""
    cdef Py_ssize_t p, stop, j, l
    cdef double v
    cdef state_t s = scores
    cdef fixed_t w
    check(i, X.m)
    for l in range(k):
        s[l] = 0
    if rows_t is gram_t:
        w = W + i * k
        for l in range(k):
            s[l] = w[l]
    else:
        if rows_t is csr64_t or rows_t is csr32_t:
            stop = X.indptr[i + 1]
            for p in range(X.indptr[i], stop):
                j = X.indices[p]
                check(j, X.n)
                v = X.data[p]
                w = W + j * k
                for l in range(k):
                    s[l] += v * w[l]
        else:
            for j in range(X.n):
                v = X.data[i * X.n + j]
                if v != 0:
                    w = W + j * k
                    for l in range(k):
                        s[l] += v * w[l]
        if X.bias >= 0:
            w = W + X.n * k
            for l in range(k):
                s[l] += X.bias * w[l]


cdef inline void add_scaled(double* W, double v, const double* delta, const int32_t* which, Py_ssize_t count,
                            Py_ssize_t k) noexcept nogil:
    """w_l += v delta_l for one feature; all classes when count = k, else those named in `which`."""
    cdef Py_ssize_t l
    cdef state_t w = W
    cdef fixed_t a = delta
    if count == k:
        for l in range(k):
            w[l] += v * a[l]
    else:
        for l in range(count):
            check(which[l], k)
            w[which[l]] += v * a[which[l]]


cdef inline void row_update(const rows_t* X, Py_ssize_t i, const double* delta, const int32_t* which,
                            Py_ssize_t count, double* W, Py_ssize_t k) noexcept nogil:
    """w_l += delta_l x_i for the `count` classes of `which` (count = k: all)."""
    cdef Py_ssize_t p, stop, j
    check(i, X.m)
    if rows_t is csr64_t or rows_t is csr32_t:
        stop = X.indptr[i + 1]
        for p in range(X.indptr[i], stop):
            j = X.indices[p]
            check(j, X.n)
            add_scaled(W + j * k, X.data[p], delta, which, count, k)
    elif rows_t is gram_t:
        for j in range(X.m):
            add_scaled(W + j * k, X.data[i * X.m + j], delta, which, count, k)
    else:
        for j in range(X.n):
            if X.data[i * X.n + j] != 0:
                add_scaled(W + j * k, X.data[i * X.n + j], delta, which, count, k)
    if not (rows_t is gram_t):
        if X.bias >= 0:
            add_scaled(W + X.n * k, X.bias, delta, which, count, k)


cdef inline double row_dot(const rows_t* X, Py_ssize_t i, const double* w) noexcept nogil:
    """<w, x_i> with four running sums: one alone would wait for each addition."""
    cdef Py_ssize_t p, stop, start
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    check(i, X.m)
    if rows_t is gram_t:
        return w[i]
    else:
        if rows_t is csr64_t or rows_t is csr32_t:
            start, stop = X.indptr[i], X.indptr[i + 1]
            p = start
            while p + 4 <= stop:
                s0 += X.data[p] * w[X.indices[p]]
                s1 += X.data[p + 1] * w[X.indices[p + 1]]
                s2 += X.data[p + 2] * w[X.indices[p + 2]]
                s3 += X.data[p + 3] * w[X.indices[p + 3]]
                p += 4
            while p < stop:
                s0 += X.data[p] * w[X.indices[p]]
                p += 1
        else:
            start, stop = i * X.n, X.n
            p = 0
            while p + 4 <= stop:
                s0 += X.data[start + p] * w[p]
                s1 += X.data[start + p + 1] * w[p + 1]
                s2 += X.data[start + p + 2] * w[p + 2]
                s3 += X.data[start + p + 3] * w[p + 3]
                p += 4
            while p < stop:
                s0 += X.data[start + p] * w[p]
                p += 1
        if X.bias >= 0:
            s0 += X.bias * w[X.n]
        return (s0 + s1) + (s2 + s3)


cdef inline void row_axpy(const rows_t* X, Py_ssize_t i, double a, double* w) noexcept nogil:
    """w += a x_i"""
    cdef Py_ssize_t p, j
    check(i, X.m)
    if rows_t is csr64_t or rows_t is csr32_t:
        for p in range(X.indptr[i], X.indptr[i + 1]):
            w[X.indices[p]] += a * X.data[p]
    elif rows_t is gram_t:
        for j in range(X.m):
            w[j] += a * X.data[i * X.m + j]
    else:
        for j in range(X.n):
            w[j] += a * X.data[i * X.n + j]
    if not (rows_t is gram_t):
        if X.bias >= 0:
            w[X.n] += a * X.bias


cdef inline double row_sqnorm(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """<x_i, x_i>, the bias feature included"""
    cdef Py_ssize_t p
    cdef double s = 0, v
    check(i, X.m)
    if rows_t is gram_t:
        return X.data[i * X.m + i]
    else:
        if rows_t is csr64_t or rows_t is csr32_t:
            for p in range(X.indptr[i], X.indptr[i + 1]):
                v = X.data[p]
                s += v * v
        else:
            for p in range(i * X.n, (i + 1) * X.n):
                v = X.data[p]
                s += v * v
        if X.bias >= 0:
            s += X.bias * X.bias
        return s


cdef inline void row_prefetch(const rows_t* X, Py_ssize_t i, const double* W, Py_ssize_t k) noexcept nogil:
    """Ask for row i's weights ahead of its turn: in a shuffled order each would otherwise be waited for."""
    cdef Py_ssize_t p, j, line
    if rows_t is csr64_t or rows_t is csr32_t:
        for p in range(X.indptr[i], X.indptr[i + 1]):
            j = X.indices[p]
            line = 0
            while line < k:
                prefetch(W + j * k + line)
                line += 8
    elif rows_t is gram_t:
        prefetch(W + i * k)
