"""The rows that a sweep visits, and their order."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from marginlinear._core.rng cimport rng_below


cdef inline void shuffle(Py_ssize_t* order, Py_ssize_t n, uint64_t* rng) noexcept nogil:
    """A uniform permutation of order[0:n], n < 2^32 (Fisher-Yates)."""
    cdef Py_ssize_t i, j
    for i in range(n - 1, 0, -1):
        j = <Py_ssize_t>rng_below(rng, <uint32_t>(i + 1))
        order[i], order[j] = order[j], order[i]


cdef inline Py_ssize_t keep_awake(const double* values, uint8_t* rest, Py_ssize_t n, Py_ssize_t* order) noexcept nogil:
    """order = the i in [0, n) with values[i] > 0 and no rest left; the others have one sweep less of it. Returns how
    many."""
    cdef Py_ssize_t i, count = 0
    for i in range(n):
        if rest[i]:
            rest[i] -= 1
        elif values[i] > 0:
            order[count] = i
            count += 1
    return count
