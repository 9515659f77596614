"""The rows that a sweep visits, and their order."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from marginlinear._core.rng cimport rng_below


cdef inline void shuffle(Py_ssize_t* order, Py_ssize_t n, uint64_t* rng) noexcept nogil:
    """A uniform permutation of order[0:n], n < 2^32 (Fisher-Yates)."""
    cdef Py_ssize_t i, j
    for i in range(n - 1, 0, -1):
        j = <Py_ssize_t>rng_below(rng, <uint32_t>(i + 1))
        order[i], order[j] = order[j], order[i]


cdef inline Py_ssize_t active_rows(const double* sqnorms, uint8_t* skip, Py_ssize_t n,
                                   Py_ssize_t* order) noexcept nogil:
    """order = the i in [0, n) with sqnorms[i] > 0 that are not skipped; the others are for one sweep less. Returns how
    many."""
    cdef Py_ssize_t i, count = 0
    for i in range(n):
        if skip[i]:
            skip[i] -= 1
        elif sqnorms[i] > 0:
            order[count] = i
            count += 1
    return count


cdef inline void note_visit(uint8_t* skip, uint8_t* idle, bint moved, uint8_t most) noexcept nogil:
    """A visit that moved no dual after `idle` such visits: the row is skipped for as many sweeps, `most` at most."""
    if moved:
        idle[0] = 0
    else:
        skip[0] = idle[0]
        idle[0] += idle[0] < most
