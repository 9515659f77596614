"""Rows of data behind one accessor, so that every engine is written once.

    scores      s_l  = <w_l, x_i>            for all classes l
    update      w_l += delta_l x_i           for the classes that changed
    dot, axpy   the same with one column;    sqnorm  <x_i, x_i>

The storages are CSR and dense (float64, float32) with the weights W as state, W[j*k + l] being feature j of class l,
and a Gram matrix K of m rows. There the weights are known by their coefficients, w_l = sum_j C[j,l] x_j, and the state
is 2m rows: the scores S = K C, then C; a row's update adds to both, and <w, v> = sum of scores of w times coefficients
of v. State is float64 throughout. A row of CSR or dense data may end with a constant bias feature that is not stored.

A row of a Gram matrix may be absent: it is needed for its own updates alone, the diagonal and the scores do for all
else. An engine asks `row_present` before an update, and Rows.fetch for what is absent.
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
    # Arrays that overlap with no other: lets the compiler use vectors.
    ctypedef double* scores_t "double * ML_RESTRICT"
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
    Py_ssize_t d         # 2m: scores, then coefficients
    double bias          # negative: a kernel carries its own
    const double** at    # m rows of m values; NULL for a row that is absent
    const double* diagonal
    int64_t* used        # the clock at each row's last update; NULL where no row is ever absent
    int64_t* clock

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
    cdef readonly object arrays
    cdef Storage storage
    cdef csr64_t csr64
    cdef csr32_t csr32
    cdef dense64_t dense64
    cdef dense32_t dense32
    cdef gram_t gram
    cdef object _sqnorms, _source, _pointers, _diagonal, _used, _held, _store
    cdef int64_t clock


cpdef enum:
    FETCH = 64  # rows of a Gram matrix that are made at once

cdef enum:
    MANY = 8    # classes, from which row_scores reads whole streams of weights


cdef inline Py_ssize_t row_begin(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """Row i's stored values are data[row_begin:row_end] (CSR, dense)."""
    if rows_t is csr64_t or rows_t is csr32_t:
        return X.indptr[i]
    else:
        return i * X.n


cdef inline Py_ssize_t row_end(const rows_t* X, Py_ssize_t i) noexcept nogil:
    if rows_t is csr64_t or rows_t is csr32_t:
        return X.indptr[i + 1]
    else:
        return (i + 1) * X.n


cdef inline Py_ssize_t feature(const rows_t* X, Py_ssize_t i, Py_ssize_t p) noexcept nogil:
    """Of the value data[p] of row i."""
    cdef Py_ssize_t j
    if rows_t is csr64_t or rows_t is csr32_t:
        j = X.indices[p]
    elif rows_t is gram_t:
        j = p
    else:
        j = p - i * X.n
    check(j, X.n)
    return j


cdef inline double value(const rows_t* X, Py_ssize_t i, Py_ssize_t p) noexcept nogil:
    """Of feature(X, i, p) in row i."""
    if rows_t is gram_t:
        return X.at[i][p]
    else:
        return X.data[p]


cdef inline void row_scores(const rows_t* X, Py_ssize_t i, const double* W, Py_ssize_t k, double* s) noexcept nogil:
    """s_l = <w_l, x_i>, each summed in the order of the features.

    Few classes are taken 8, 2 and 1 at a time, so that the sums stay in registers. Many classes are taken together,
    four features at a time: a feature's weights are then read as one stream.
    """
    cdef Py_ssize_t p, l = 0, start, stop
    cdef double v, v1, v2, v3, s0, s1, s2, s3, s4, s5, s6, s7
    cdef const double* w
    cdef fixed_t f0
    cdef fixed_t f1
    cdef fixed_t f2
    cdef fixed_t f3
    cdef scores_t sums
    check(i, X.m)
    if rows_t is gram_t:
        for l in range(k):
            s[l] = W[i * k + l]
    else:
        start, stop = row_begin(X, i), row_end(X, i)
        if k > MANY:
            sums = s
            for l in range(k):
                sums[l] = 0
            p = start
            while p + 4 <= stop:
                v, v1, v2, v3 = X.data[p], X.data[p + 1], X.data[p + 2], X.data[p + 3]
                f0, f1 = W + feature(X, i, p) * k, W + feature(X, i, p + 1) * k
                f2, f3 = W + feature(X, i, p + 2) * k, W + feature(X, i, p + 3) * k
                for l in range(k):
                    sums[l] = (((sums[l] + v * f0[l]) + v1 * f1[l]) + v2 * f2[l]) + v3 * f3[l]
                p += 4
            while p < stop:
                v = X.data[p]
                f0 = W + feature(X, i, p) * k
                for l in range(k):
                    sums[l] += v * f0[l]
                p += 1
            l = k
        while l + 8 <= k:
            s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0
            for p in range(start, stop):
                v = X.data[p]
                w = W + feature(X, i, p) * k + l
                s0 += v * w[0]
                s1 += v * w[1]
                s2 += v * w[2]
                s3 += v * w[3]
                s4 += v * w[4]
                s5 += v * w[5]
                s6 += v * w[6]
                s7 += v * w[7]
            s[l], s[l + 1], s[l + 2], s[l + 3] = s0, s1, s2, s3
            s[l + 4], s[l + 5], s[l + 6], s[l + 7] = s4, s5, s6, s7
            l += 8
        while l + 2 <= k:
            s0 = s1 = 0
            for p in range(start, stop):
                v = X.data[p]
                w = W + feature(X, i, p) * k + l
                s0 += v * w[0]
                s1 += v * w[1]
            s[l], s[l + 1] = s0, s1
            l += 2
        if l < k:
            s0 = 0
            for p in range(start, stop):
                s0 += X.data[p] * W[feature(X, i, p) * k + l]
            s[l] = s0
        if X.bias >= 0:
            for l in range(k):
                s[l] += X.bias * W[X.n * k + l]


cdef inline void add_scaled(double* W, double v, const double* delta, const int32_t* which, Py_ssize_t count,
                            Py_ssize_t k) noexcept nogil:
    """w_l += v delta_l for one feature: all classes when count = k, else those of `which`."""
    cdef Py_ssize_t l
    cdef scores_t w = W
    cdef fixed_t d = delta
    if count == k:
        for l in range(k):
            w[l] += v * d[l]
    else:
        for l in range(count):
            check(which[l], k)
            w[which[l]] += v * d[which[l]]


cdef inline bint row_present(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """Whether row i can be added to a state."""
    check(i, X.m)
    if rows_t is gram_t:
        return X.at[i] != NULL
    else:
        return True


cdef inline void touch(const gram_t* X, Py_ssize_t i) noexcept nogil:
    """Note that row i is used now."""
    if X.used != NULL:
        X.clock[0] += 1
        X.used[i] = X.clock[0]


cdef inline void row_update(const rows_t* X, Py_ssize_t i, const double* delta, const int32_t* which,
                            Py_ssize_t count, double* W, Py_ssize_t k) noexcept nogil:
    """w_l += delta_l x_i for the `count` classes of `which` (count = k: all)."""
    cdef Py_ssize_t p, l, start, stop
    cdef double v, d0, d1, d2, d3
    cdef double* w
    check(i, X.m)
    if rows_t is gram_t:
        touch(X, i)
        add_scaled(W + (X.m + i) * k, 1.0, delta, which, count, k)
        start, stop = 0, X.m
    else:
        start, stop = row_begin(X, i), row_end(X, i)
    if count < k or k > MANY:
        for p in range(start, stop):
            v = value(X, i, p)
            w = W + feature(X, i, p) * k
            add_scaled(w, v, delta, which, count, k)
        if not (rows_t is gram_t):
            if X.bias >= 0:
                add_scaled(W + X.n * k, X.bias, delta, which, count, k)
        return
    l = 0
    while l + 4 <= k:
        d0, d1, d2, d3 = delta[l], delta[l + 1], delta[l + 2], delta[l + 3]
        for p in range(start, stop):
            v = value(X, i, p)
            w = W + feature(X, i, p) * k + l
            w[0] += v * d0
            w[1] += v * d1
            w[2] += v * d2
            w[3] += v * d3
        l += 4
    while l < k:
        d0 = delta[l]
        for p in range(start, stop):
            W[feature(X, i, p) * k + l] += value(X, i, p) * d0
        l += 1
    if not (rows_t is gram_t):
        if X.bias >= 0:
            for l in range(k):
                W[X.n * k + l] += X.bias * delta[l]


cdef inline double row_dot(const rows_t* X, Py_ssize_t i, const double* w) noexcept nogil:
    """<w, x_i> with four running sums: one alone would wait for each addition."""
    cdef Py_ssize_t p, stop
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    check(i, X.m)
    if rows_t is gram_t:
        return w[i]
    else:
        p, stop = row_begin(X, i), row_end(X, i)
        while p + 4 <= stop:
            s0 += X.data[p] * w[feature(X, i, p)]
            s1 += X.data[p + 1] * w[feature(X, i, p + 1)]
            s2 += X.data[p + 2] * w[feature(X, i, p + 2)]
            s3 += X.data[p + 3] * w[feature(X, i, p + 3)]
            p += 4
        while p < stop:
            s0 += X.data[p] * w[feature(X, i, p)]
            p += 1
        if X.bias >= 0:
            s0 += X.bias * w[X.n]
        return (s0 + s1) + (s2 + s3)


cdef inline void row_axpy(const rows_t* X, Py_ssize_t i, double a, double* w) noexcept nogil:
    """w += a x_i"""
    cdef Py_ssize_t p
    cdef scores_t state = w
    cdef fixed_t data
    check(i, X.m)
    if rows_t is gram_t:
        touch(X, i)
        data = X.at[i]
        for p in range(X.m):
            state[p] += a * data[p]
        w[X.m + i] += a
    else:
        for p in range(row_begin(X, i), row_end(X, i)):
            w[feature(X, i, p)] += a * X.data[p]
        if X.bias >= 0:
            w[X.n] += a * X.bias


cdef inline double row_sqnorm(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """<x_i, x_i>, the bias feature included"""
    cdef Py_ssize_t p
    cdef double s = 0, v
    check(i, X.m)
    if rows_t is gram_t:
        return X.diagonal[i]
    else:
        for p in range(row_begin(X, i), row_end(X, i)):
            v = X.data[p]
            s += v * v
        if X.bias >= 0:
            s += X.bias * X.bias
        return s


cdef inline void row_prefetch(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """Ask for row i's values ahead of its turn: in a shuffled order they would otherwise be waited for.

    The first 2 KB of a row; from there on the hardware has seen the pattern. A row of a Gram matrix is long, and most
    rows are met without an update.
    """
    cdef Py_ssize_t p, start, stop
    if rows_t is gram_t:
        return
    else:
        start, stop = row_begin(X, i), row_end(X, i)
        if stop > start + 256:
            stop = start + 256
        p = start
        while p < stop:
            prefetch(X.data + p)
            p += 8
        if rows_t is csr64_t or rows_t is csr32_t:
            p = start
            while p < stop:
                prefetch(X.indices + p)
                p += 16


cdef inline void weights_prefetch(const rows_t* X, Py_ssize_t i, const double* W, Py_ssize_t k) noexcept nogil:
    """Ask for the weights of row i's features."""
    cdef Py_ssize_t p, line
    if rows_t is csr64_t or rows_t is csr32_t:
        for p in range(X.indptr[i], X.indptr[i + 1]):
            line = 0
            while line < k:
                prefetch(W + X.indices[p] * k + line)
                line += 8
    elif rows_t is gram_t:
        prefetch(W + i * k)
