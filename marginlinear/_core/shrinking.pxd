"""The rows that a sweep visits, and their order."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from marginlinear._core.rng cimport rng_below
from marginlinear._core.rows cimport Rows


cdef inline void shuffle(Py_ssize_t* order, Py_ssize_t n, uint64_t* rng) noexcept nogil:
    """A uniform permutation of order[0:n], n < 2^32 (Fisher-Yates)."""
    cdef Py_ssize_t i, j
    for i in range(n - 1, 0, -1):
        j = <Py_ssize_t>rng_below(rng, <uint32_t>(i + 1))
        order[i], order[j] = order[j], order[i]


cdef inline Py_ssize_t active_rows(const double* sqnorms, uint8_t* skip, Py_ssize_t lo, Py_ssize_t hi,
                                   Py_ssize_t* order) noexcept nogil:
    """order = the i in [lo, hi) with sqnorms[i] > 0 that are not skipped; the others are for one sweep less. Returns
    how many."""
    cdef Py_ssize_t i, count = 0
    for i in range(lo, hi):
        if skip[i]:
            skip[i] -= 1
        elif sqnorms[i] > 0:
            order[count] = i
            count += 1
    return count


cdef inline list drawn_chunks(Rows rows, uint8_t* skip, uint64_t* rng):
    """Numbers of the chunks of rows in a new random order, but for those of which all rows are skipped: these are for
    one sweep less. Rows in memory are one chunk."""
    cdef Py_ssize_t number, at, i, lo, hi, count = len(rows.chunks) - 1
    if count == 1:
        return [0]
    cdef list numbers = list(range(count)), found = []
    for at in range(count - 1, 0, -1):
        i = rng_below(rng, <uint32_t>(at + 1))
        numbers[at], numbers[i] = numbers[i], numbers[at]
    for number in numbers:
        lo, hi = rows.chunks[number], rows.chunks[number + 1]
        i = lo
        while i < hi and skip[i]:
            i += 1
        if i < hi:
            found.append(number)
        else:
            for i in range(lo, hi):
                skip[i] -= 1
    return found


cdef inline void note_visit(uint8_t* skip, uint8_t* idle, bint moved, uint8_t most) noexcept nogil:
    """A visit that moved no dual after `idle` such visits: the row is skipped for as many sweeps, `most` at most."""
    if moved:
        idle[0] = 0
    else:
        skip[0] = idle[0]
        idle[0] += idle[0] < most
