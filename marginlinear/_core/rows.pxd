"""Rows of data behind one accessor, so that every engine is written once.

    scores      s_l  = <w_l, x_i>            for all classes l
    update      w_l += delta_l x_i           for the classes that changed
    dot, axpy   the same with one column;    sqnorm  <x_i, x_i>

The storages are CSR (features as int32, or narrow: as uint16) and dense, of float64 or float32, CSR of equal values
(a row has one float64 for all its values but the last, and one for the last, which renumber.pyx makes differ), with the
weights W as state, W[j*k + l] being feature j of class l, and a Gram matrix K of m rows. There these are known by their
coefficients, w_l = sum_j C[j,l] x_j, and the state is 2m rows: the scores S = K C, then C; a row's update adds to both,
and <w, v> = sum of scores of w times coefficients of v. State is float64 throughout. A row of CSR or dense data may end
with a constant bias feature that is not stored.

A row of a Gram matrix may be absent: it is needed for its own updates alone, the diagonal and the scores do for all
else. An engine asks `row_present` before an update, and Rows.fetch for what is absent. Values of a large matrix are
float32; what is to be exact asks Rows.add for them in float64.
"""

from libc.stdint cimport int32_t, int64_t, uint16_t

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

ctypedef struct narrow64_t:
    Py_ssize_t m
    Py_ssize_t n
    Py_ssize_t d
    double bias
    const double* data
    const uint16_t* indices
    const int64_t* indptr

ctypedef struct narrow32_t:
    Py_ssize_t m
    Py_ssize_t n
    Py_ssize_t d
    double bias
    const float* data
    const uint16_t* indices
    const int64_t* indptr

ctypedef struct equal64_t:
    Py_ssize_t m
    Py_ssize_t n
    Py_ssize_t d
    double bias
    const double* data   # m x 2: each value of the row but the last, and the last
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
    const void** at      # m rows of m values; NULL for a row that is absent
    bint single          # values are float32
    const double* diagonal
    int64_t* met         # the last pass that each row was met in; NULL where no row is ever absent
    int64_t* used        # the last pass that it was added in
    const int64_t* now   # the number of this pass

ctypedef fused csr_t:
    csr64_t
    csr32_t
    narrow64_t
    narrow32_t
    equal64_t

ctypedef fused data_t:
    csr64_t
    csr32_t
    narrow64_t
    narrow32_t
    equal64_t
    dense64_t
    dense32_t

ctypedef fused rows_t:
    csr64_t
    csr32_t
    narrow64_t
    narrow32_t
    equal64_t
    dense64_t
    dense32_t
    gram_t

cdef enum:
    LINE = 64           # bytes of a line of the cache
    SLICE = 20000000    # multiplications between looks at the signals: about 20 ms
    AHEAD = 3           # rows between the request for a row's values and its turn

cdef enum Storage:
    CSR64
    CSR32
    NARROW64
    NARROW32
    EQUAL64
    DENSE64
    DENSE32
    GRAM


cdef class Rows:
    cdef readonly Py_ssize_t m, n, d
    cdef readonly double bias
    cdef readonly Py_ssize_t nnz
    cdef readonly object arrays, pager
    cdef Storage storage
    cdef csr64_t csr64
    cdef csr32_t csr32
    cdef narrow64_t narrow64
    cdef narrow32_t narrow32
    cdef equal64_t equal64
    cdef dense64_t dense64
    cdef dense32_t dense32
    cdef gram_t gram
    cdef object _sqnorms, _source, _exact, _pointers, _diagonal, _met, _used, _held, _store, _last, _caches, _lock
    cdef public Py_ssize_t room, takers    # bytes for RowCaches, and how many of them at once
    cdef object renumbered    # renumber.pyx: made once, for all fits on these rows
    cdef int64_t now
    cdef Py_ssize_t ahead


cpdef enum:
    FETCH = 64  # rows of a Gram matrix that are made at once


cdef extern from "simd_table.h":
    ctypedef void (*scores_f)(const void* data, const void* features, Py_ssize_t n, const double* W, Py_ssize_t k,
                              double* s) noexcept nogil
    ctypedef void (*update_f)(const void* data, const void* features, Py_ssize_t n, const double* delta, double* W,
                              Py_ssize_t k) noexcept nogil
    ctypedef void (*axpy_f)(const void* row, Py_ssize_t n, double a, double* w) noexcept nogil
    ctypedef struct kernels_t:
        int width
        scores_f scores[7]
        update_f update[7]
        axpy_f axpy[2]

cdef const kernels_t* kernels


cdef inline Py_ssize_t row_begin(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """Row i's stored values are numbers row_begin to row_end (CSR, dense)."""
    if rows_t in csr_t:
        return X.indptr[i]
    else:
        return i * X.n


cdef inline Py_ssize_t row_end(const rows_t* X, Py_ssize_t i) noexcept nogil:
    if rows_t in csr_t:
        return X.indptr[i + 1]
    else:
        return (i + 1) * X.n


cdef inline Py_ssize_t feature(const rows_t* X, Py_ssize_t i, Py_ssize_t p) noexcept nogil:
    """Of stored value p, which row i has."""
    cdef Py_ssize_t j
    if rows_t in csr_t:
        j = X.indices[p]
    elif rows_t is gram_t:
        j = p
    else:
        j = p - i * X.n
    check(j, X.n)
    return j


cdef inline void check_features(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """Those of row i, before a kernel that has no checks."""
    cdef Py_ssize_t p
    for p in range(row_begin(X, i), row_end(X, i)):
        feature(X, i, p)


cdef inline double value(const rows_t* X, Py_ssize_t i, Py_ssize_t p) noexcept nogil:
    """Of feature(X, i, p) in row i."""
    if rows_t is gram_t:
        return (<const float*> X.at[i])[p] if X.single else (<const double*> X.at[i])[p]
    elif rows_t is equal64_t:
        return X.data[2 * i + (p + 1 == X.indptr[i + 1])]
    else:
        return X.data[p]


cdef inline const void* values(const data_t* X, Py_ssize_t i) noexcept nogil:
    """Where those of row i begin."""
    if data_t is equal64_t:
        return X.data + 2 * i
    else:
        return X.data + row_begin(X, i)


cdef inline int storage_of(const rows_t* X) noexcept nogil:
    if rows_t is csr64_t:
        return CSR64
    elif rows_t is csr32_t:
        return CSR32
    elif rows_t is narrow64_t:
        return NARROW64
    elif rows_t is narrow32_t:
        return NARROW32
    elif rows_t is equal64_t:
        return EQUAL64
    elif rows_t is dense64_t:
        return DENSE64
    elif rows_t is dense32_t:
        return DENSE32
    else:
        return GRAM


cdef inline const void* features(const rows_t* X, Py_ssize_t p) noexcept nogil:
    """Of the stored values from number p on; NULL where they are all features in turn."""
    if rows_t in csr_t:
        return X.indices + p
    else:
        return NULL


cdef inline void row_scores(const rows_t* X, Py_ssize_t i, const double* W, Py_ssize_t k, double* s) noexcept nogil:
    """s_l = <w_l, x_i>, each summed in the order of the features."""
    cdef Py_ssize_t l, start, stop
    check(i, X.m)
    if rows_t is gram_t:
        for l in range(k):
            s[l] = W[i * k + l]
    else:
        start, stop = row_begin(X, i), row_end(X, i)
        check_features(X, i)
        kernels.scores[storage_of(X)](values(X, i), features(X, start), stop - start, W, k, s)
        if X.bias >= 0:
            for l in range(k):
                s[l] += X.bias * W[X.n * k + l]


cdef inline void add_some(const rows_t* X, Py_ssize_t i, const double* delta, const int32_t* which, Py_ssize_t count,
                          double* W, Py_ssize_t k) noexcept nogil:
    """w_l += delta_l x_i for the classes of `which`, four, two and one at a time."""
    cdef Py_ssize_t p, j, at = 0, start = 0, stop = X.m
    cdef double v, d0, d1, d2, d3
    cdef double* w0
    cdef double* w1
    cdef double* w2
    cdef double* w3
    if not (rows_t is gram_t):
        start, stop = row_begin(X, i), row_end(X, i)
    for p in range(count):
        check(which[p], k)
    while at + 4 <= count:
        w0, w1, w2, w3 = W + which[at], W + which[at + 1], W + which[at + 2], W + which[at + 3]
        d0, d1, d2, d3 = delta[which[at]], delta[which[at + 1]], delta[which[at + 2]], delta[which[at + 3]]
        for p in range(start, stop):
            v, j = value(X, i, p), feature(X, i, p) * k
            w0[j] += v * d0
            w1[j] += v * d1
            w2[j] += v * d2
            w3[j] += v * d3
        at += 4
    while at + 2 <= count:
        w0, w1 = W + which[at], W + which[at + 1]
        d0, d1 = delta[which[at]], delta[which[at + 1]]
        for p in range(start, stop):
            v, j = value(X, i, p), feature(X, i, p) * k
            w0[j] += v * d0
            w1[j] += v * d1
        at += 2
    if at < count:
        w0, d0 = W + which[at], delta[which[at]]
        for p in range(start, stop):
            w0[feature(X, i, p) * k] += value(X, i, p) * d0


cdef inline bint row_present(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """Whether row i can be added to a state."""
    check(i, X.m)
    if rows_t is gram_t:
        return X.at[i] != NULL
    else:
        return True


cdef inline void row_turn(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """Note that row i has its turn in this pass."""
    if rows_t is gram_t:
        if X.met != NULL:
            X.met[i] = X.now[0]


cdef inline void row_used(const gram_t* X, Py_ssize_t i) noexcept nogil:
    """Note that row i is added in this pass."""
    if X.used != NULL:
        X.used[i] = X.now[0]


cdef inline void row_update(const rows_t* X, Py_ssize_t i, const double* delta, const int32_t* which,
                            Py_ssize_t count, double* W, Py_ssize_t k) noexcept nogil:
    """w_l += delta_l x_i for the `count` classes of `which` (count = k: all)."""
    cdef Py_ssize_t l, start
    cdef double* own
    check(i, X.m)
    if rows_t is gram_t:
        row_used(X, i)
    if count < k:
        add_some(X, i, delta, which, count, W, k)
    elif rows_t is gram_t:
        kernels.update[<int>(DENSE32 if X.single else DENSE64)](X.at[i], NULL, X.m, delta, W, k)
    else:
        check_features(X, i)
        start = row_begin(X, i)
        kernels.update[storage_of(X)](values(X, i), features(X, start), row_end(X, i) - start, delta, W, k)
    if rows_t is gram_t:
        own = W + (X.m + i) * k
        for l in range(count):
            own[which[l] if count < k else l] += delta[which[l] if count < k else l]
    elif X.bias >= 0:
        own = W + X.n * k
        for l in range(count):
            own[which[l] if count < k else l] += X.bias * delta[which[l] if count < k else l]


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
            s0 += value(X, i, p) * w[feature(X, i, p)]
            s1 += value(X, i, p + 1) * w[feature(X, i, p + 1)]
            s2 += value(X, i, p + 2) * w[feature(X, i, p + 2)]
            s3 += value(X, i, p + 3) * w[feature(X, i, p + 3)]
            p += 4
        while p < stop:
            s0 += value(X, i, p) * w[feature(X, i, p)]
            p += 1
        if X.bias >= 0:
            s0 += X.bias * w[X.n]
        return (s0 + s1) + (s2 + s3)


cdef inline void row_axpy(const rows_t* X, Py_ssize_t i, double a, double* w) noexcept nogil:
    """w += a x_i"""
    cdef Py_ssize_t p
    check(i, X.m)
    if rows_t is gram_t:
        row_used(X, i)
        kernels.axpy[X.single](X.at[i], X.m, a, w)
        w[X.m + i] += a
    else:
        for p in range(row_begin(X, i), row_end(X, i)):
            w[feature(X, i, p)] += a * value(X, i, p)
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
            v = value(X, i, p)
            s += v * v
        if X.bias >= 0:
            s += X.bias * X.bias
        return s


cdef inline void place_prefetch(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """Ask for where row i's values are, which row_prefetch looks up."""
    if rows_t in csr_t:
        prefetch(X.indptr + i)


cdef inline void row_prefetch(const rows_t* X, Py_ssize_t i) noexcept nogil:
    """Ask for row i's values ahead of its turn: in a shuffled order they would otherwise be waited for.

    The first 256 of a row; from there on the hardware has seen the pattern. A row of a Gram matrix is long, and most
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
        if rows_t is equal64_t:
            prefetch(X.data + 2 * i)
        else:
            while p < stop:
                prefetch(X.data + p)
                p += LINE // sizeof(X.data[0])
        if rows_t in csr_t:
            p = start
            while p < stop:
                prefetch(X.indices + p)
                p += LINE // sizeof(X.indices[0])


cdef inline void weights_prefetch(const rows_t* X, Py_ssize_t i, const double* W, Py_ssize_t k) noexcept nogil:
    """Ask for the weights of row i's features."""
    cdef Py_ssize_t p, line
    if rows_t in csr_t:
        for p in range(X.indptr[i], X.indptr[i + 1]):
            line = 0
            while line < k:
                prefetch(W + X.indices[p] * k + line)
                line += 8
    elif rows_t is gram_t:
        prefetch(W + i * k)
