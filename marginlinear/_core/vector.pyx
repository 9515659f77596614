"""Sums over vectors in one order: the same bits whatever BLAS is installed, and however many threads it takes."""

cdef enum:
    CHUNK = 1024    # numbers that a sum adds up by themselves


def total(const double[:] array):
    """The sum of a float64 array of one dimension, by parts: rounding grows with the number of parts alone."""
    cdef Py_ssize_t i, part, n = array.shape[0]
    cdef double whole = 0, s
    with nogil:
        for part in range((n + CHUNK - 1) // CHUNK):
            s = 0
            for i in range(part * CHUNK, min(n, (part + 1) * CHUNK)):
                s += array[i]
            whole += s
    return whole


def dot(const double[:] x, const double[:] y):
    """The sum of x_j y_j over the numbers of x, of which y may have more; by parts, as `total`."""
    cdef Py_ssize_t i, part, n = x.shape[0]
    cdef double whole = 0, s
    if y.shape[0] < n:
        raise ValueError(f"dot: {n} and {y.shape[0]} numbers")
    with nogil:
        for part in range((n + CHUNK - 1) // CHUNK):
            s = 0
            for i in range(part * CHUNK, min(n, (part + 1) * CHUNK)):
                s += x[i] * y[i]
            whole += s
    return whole
