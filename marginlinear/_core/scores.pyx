"""Scores, sums and margins of rows under a linear model, by ranges of rows, without the GIL."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from marginlinear._core.rows cimport (
    CSR32,
    CSR64,
    DENSE32,
    DENSE64,
    NARROW32,
    NARROW64,
    Rows,
    data_t,
    row_axpy,
    row_dot,
    row_scores,
)

from marginlinear.errors import RowError

NOT_A_NUMBER = ("a score of row {row} is NaN: its values times the model's weights, or its kernel's values, are too "
                "large to be summed; scale the features, in training and here")

ctypedef fused number:
    int64_t
    double


cdef void fill(const data_t* X, const double[:, ::1] W, double[:, ::1] out, Py_ssize_t lo,
               Py_ssize_t hi) noexcept nogil:
    cdef Py_ssize_t i, k = W.shape[1]
    if X.d == 0:
        out[lo:hi] = 0
        return
    for i in range(lo, hi):
        if k == 1:
            out[i, 0] = row_dot(X, i, &W[0, 0])
        else:
            row_scores(X, i, &W[0, 0], k, &out[i, 0])


def scores_of(Rows rows, const double[:, ::1] W, double[:, ::1] out, Py_ssize_t lo, Py_ssize_t hi):
    """out[lo:hi] = X[lo:hi] @ W, the bias feature included.

    Parameters
    ----------
    rows : Rows
        CSR or dense, d features.
    W : float64 array of shape (d, k)
    out : float64 array of shape (m, k)
    lo, hi : int
    """
    if W.shape[0] != rows.d or out.shape[0] != rows.m or out.shape[1] != W.shape[1]:
        raise ValueError("scores_of: shapes do not fit")
    if not 0 <= lo <= hi <= rows.m:
        raise ValueError("scores_of: rows out of range")
    with nogil:
        if rows.storage == CSR64:
            fill(&rows.csr64, W, out, lo, hi)
        elif rows.storage == CSR32:
            fill(&rows.csr32, W, out, lo, hi)
        elif rows.storage == NARROW64:
            fill(&rows.narrow64, W, out, lo, hi)
        elif rows.storage == NARROW32:
            fill(&rows.narrow32, W, out, lo, hi)
        elif rows.storage == DENSE64:
            fill(&rows.dense64, W, out, lo, hi)
        elif rows.storage == DENSE32:
            fill(&rows.dense32, W, out, lo, hi)
        else:
            with gil:
                raise ValueError("scores_of: a Gram matrix holds no features")


def require_numbers(const double[:, :] scores):
    """RowError for a row one of whose scores is NaN: it decides for no class."""
    cdef Py_ssize_t i, l
    with nogil:
        for i in range(scores.shape[0]):
            for l in range(scores.shape[1]):
                if isnan(scores[i, l]):
                    with gil:
                        raise RowError(i, NOT_A_NUMBER)


cdef inline int32_t largest(const double* s, Py_ssize_t k) noexcept nogil:
    """The place of the first largest score, as NumPy's argmax has it: nan is larger than any number."""
    cdef Py_ssize_t l
    cdef int32_t at = 0
    for l in range(1, k):
        if not s[l] <= s[at] and s[at] == s[at]:
            at = <int32_t> l
    return at


def places_of(const double[:, ::1] scores, bint sign, int32_t[::1] out):
    """out_i = place of the class that row i's scores decide for.

    Parameters
    ----------
    scores : float64 array of shape (m, k)
    sign : bool
        True: place 1 where the only score is above 0, else 0. False: the place of the first largest score.
    out : int32 array of shape (m,)
    """
    cdef Py_ssize_t i, k = scores.shape[1]
    if out.shape[0] != scores.shape[0] or k == 0:
        raise ValueError("places_of: shapes do not fit")
    with nogil:
        for i in range(scores.shape[0]):
            out[i] = scores[i, 0] > 0 if sign else largest(&scores[i, 0], k)


cdef void decide(const data_t* X, const double[:, ::1] W, bint sign, double* s, int32_t* out, Py_ssize_t lo,
                 Py_ssize_t hi) noexcept nogil:
    cdef Py_ssize_t i, l, k = W.shape[1]
    for i in range(lo, hi):
        if X.d == 0:
            out[i] = 0
            continue
        if sign:
            s[0] = row_dot(X, i, &W[0, 0])
            out[i] = s[0] > 0
        else:
            row_scores(X, i, &W[0, 0], k, s)
            out[i] = largest(s, k)
        for l in range(k):
            if isnan(s[l]):
                out[i] = -1


def row_places(Rows rows, const double[:, ::1] W, bint sign, int32_t[::1] out, Py_ssize_t lo, Py_ssize_t hi):
    """out[lo:hi] as `places_of` has it for the scores X[lo:hi] @ W, which are not kept.

    Parameters
    ----------
    rows : Rows
        CSR or dense, d features.
    W : float64 array of shape (d, k)
    sign : bool
        As in `places_of`, for k = 1.
    out : int32 array of shape (m,)
    lo, hi : int

    Raises
    ------
    RowError
        As `require_numbers`.
    """
    cdef double* s
    cdef Py_ssize_t i
    if W.shape[0] != rows.d or W.shape[1] == 0 or out.shape[0] != rows.m:
        raise ValueError("row_places: shapes do not fit")
    if not 0 <= lo <= hi <= rows.m:
        raise ValueError("row_places: rows out of range")
    if rows.is_gram:
        raise ValueError("row_places: a Gram matrix holds no features")
    s = <double*> malloc(W.shape[1] * sizeof(double))
    if s == NULL:
        raise MemoryError()
    with nogil:
        if lo < hi:
            if rows.storage == CSR64:
                decide(&rows.csr64, W, sign, s, &out[0], lo, hi)
            elif rows.storage == CSR32:
                decide(&rows.csr32, W, sign, s, &out[0], lo, hi)
            elif rows.storage == NARROW64:
                decide(&rows.narrow64, W, sign, s, &out[0], lo, hi)
            elif rows.storage == NARROW32:
                decide(&rows.narrow32, W, sign, s, &out[0], lo, hi)
            elif rows.storage == DENSE64:
                decide(&rows.dense64, W, sign, s, &out[0], lo, hi)
            elif rows.storage == DENSE32:
                decide(&rows.dense32, W, sign, s, &out[0], lo, hi)
        free(s)
    for i in range(lo, hi):
        if out[i] < 0:
            raise RowError(i, NOT_A_NUMBER)


cdef Py_ssize_t hits(const int32_t[::1] places, const double[::1] classes, const number[::1] labels) except -1:
    cdef Py_ssize_t i, found = 0
    if places.shape[0] != labels.shape[0]:
        raise ValueError("count_hits: shapes do not fit")
    for i in range(places.shape[0]):
        found += classes[places[i]] == <double> labels[i]
    return found


def count_hits(const int32_t[::1] places, const double[::1] classes, labels):
    """How many rows have the label classes[places_i]; the labels are int64 or float64."""
    # Chosen here: Cython's own choice for a function that Python calls imports NumPy.
    if memoryview(labels).format == "d":
        return hits[double](places, classes, labels)
    return hits[int64_t](places, classes, labels)


def lines_of(const int32_t[::1] places, list names):
    """names[places_i] for each row, one after the other."""
    cdef Py_ssize_t i, size = 0
    cdef bytes name
    cdef char* out
    for i in range(places.shape[0]):
        name = names[places[i]]
        size += PyBytes_GET_SIZE(name)
    text = PyBytes_FromStringAndSize(NULL, size)
    out = PyBytes_AS_STRING(text)
    for i in range(places.shape[0]):
        name = names[places[i]]
        memcpy(out, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        out += PyBytes_GET_SIZE(name)
    return text


cdef void add(const data_t* X, const double* a, double* out, Py_ssize_t lo, Py_ssize_t hi) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(lo, hi):
        if a[i] != 0:
            row_axpy(X, i, a[i], out)


def add_rows(Rows rows, const double[::1] a, double[::1] out, Py_ssize_t lo, Py_ssize_t hi):
    """out += sum_{lo <= i < hi} a_i x_i, the bias feature included; a row with a_i = 0 is not read.

    Parameters
    ----------
    rows : Rows
        CSR or dense, d features.
    a : float64 array of shape (m,)
    out : float64 array of shape (d,)
    lo, hi : int
    """
    if a.shape[0] != rows.m or out.shape[0] != rows.d:
        raise ValueError("add_rows: shapes do not fit")
    if not 0 <= lo <= hi <= rows.m:
        raise ValueError("add_rows: rows out of range")
    if lo == hi or rows.d == 0:
        return
    with nogil:
        if rows.storage == CSR64:
            add(&rows.csr64, &a[0], &out[0], lo, hi)
        elif rows.storage == CSR32:
            add(&rows.csr32, &a[0], &out[0], lo, hi)
        elif rows.storage == NARROW64:
            add(&rows.narrow64, &a[0], &out[0], lo, hi)
        elif rows.storage == NARROW32:
            add(&rows.narrow32, &a[0], &out[0], lo, hi)
        elif rows.storage == DENSE64:
            add(&rows.dense64, &a[0], &out[0], lo, hi)
        elif rows.storage == DENSE32:
            add(&rows.dense32, &a[0], &out[0], lo, hi)
        else:
            with gil:
                raise ValueError("add_rows: a Gram matrix holds no features")


def margins_of(const double[:, ::1] scores, const int32_t[::1] y):
    """g_i = s_{i, y_i} - max_{l != y_i} s_{il}: float64 array of shape (m,).

    ValueError for y of another length, or with classes that have no score.
    """
    import numpy as np

    cdef Py_ssize_t i, l, m = scores.shape[0], k = scores.shape[1]
    cdef double rival
    result = np.empty(m)
    cdef double[::1] out = result
    if y.shape[0] != m:
        raise ValueError(f"margins_of: {y.shape[0]} classes for {m} rows")
    for i in range(m):
        if not 0 <= y[i] < k:
            raise ValueError(f"margins_of: class {y[i]} of row {i} is outside 0 to {k - 1}")
    with nogil:
        for i in range(m):
            rival = -1e308 * 10
            for l in range(k):
                if l != y[i] and scores[i, l] > rival:
                    rival = scores[i, l]
            out[i] = scores[i, y[i]] - rival
    return result
