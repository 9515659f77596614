"""The generator of every engine: SplitMix64 (Steele, Lea, Flood 2014), 64 bits of state, the caller's own."""

from libc.stdint cimport uint32_t, uint64_t


cdef inline uint64_t rng_next(uint64_t* state) noexcept nogil:
    cdef uint64_t z
    state[0] += <uint64_t>0x9E3779B97F4A7C15
    z = state[0]
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)


cdef inline uint32_t rng_below(uint64_t* state, uint32_t n) noexcept nogil:
    """Uniform on [0, n), n > 0, without bias (Lemire 2019): the high half of a 32 x 32 bit product."""
    cdef uint64_t product = (rng_next(state) >> 32) * n
    cdef uint32_t reject = 0
    if <uint32_t>product < n:
        reject = (<uint32_t>0 - n) % n
        while <uint32_t>product < reject:
            product = (rng_next(state) >> 32) * n
    return <uint32_t>(product >> 32)
