"""Decimal text <-> binary floating point: correctly rounded in, shortest that reads back out.

All functions are GIL-free, know no locale, and read eight digits at a time. So text to be parsed must have
GUARD readable bytes after its last number, and the first of them must not continue a number.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #ifndef ML_DECIMAL
    #define ML_DECIMAL
    #include <float.h>
    #include <stdint.h>
    #include <string.h>
    #if defined(_MSC_VER)
    #include <intrin.h>
    #endif

    static inline uint64_t ml_multiply(uint64_t a, uint64_t b, uint64_t *high) {
    #if defined(__SIZEOF_INT128__)
        unsigned __int128 product = (unsigned __int128)a * b;
        *high = (uint64_t)(product >> 64);
        return (uint64_t)product;
    #elif defined(_MSC_VER) && defined(_M_X64)
        return _umul128(a, b, high);
    #elif defined(_MSC_VER) && defined(_M_ARM64)
        *high = __umulh(a, b);
        return a * b;
    #else
        uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
        uint64_t low = a0 * b0, cross = a1 * b0 + (low >> 32), other = a0 * b1 + (uint32_t)cross;
        *high = a1 * b1 + (cross >> 32) + (other >> 32);
        return (other << 32) | (uint32_t)low;
    #endif
    }

    /* Zero bits above the highest, and below the lowest, set bit of x != 0. */
    static inline int ml_zeros_above(uint64_t x) {
    #if defined(_MSC_VER) && !defined(__clang__)
        unsigned long i;
        if (_BitScanReverse(&i, (unsigned long)(x >> 32))) return 31 - (int)i;
        _BitScanReverse(&i, (unsigned long)x);
        return 63 - (int)i;
    #else
        return __builtin_clzll(x);
    #endif
    }

    static inline int ml_zeros_below(uint64_t x) {
    #if defined(_MSC_VER) && !defined(__clang__)
        unsigned long i;
        if (_BitScanForward(&i, (unsigned long)x)) return (int)i;
        _BitScanForward(&i, (unsigned long)(x >> 32));
        return 32 + (int)i;
    #else
        return __builtin_ctzll(x);
    #endif
    }

    /* Eight bytes, the first one lowest, on any machine. */
    static inline uint64_t ml_load(const unsigned char *p) {
        uint64_t x;
        memcpy(&x, p, 8);
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        x = __builtin_bswap64(x);
    #endif
        return x;
    }

    static inline void ml_store(unsigned char *p, uint64_t x) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        x = __builtin_bswap64(x);
    #endif
        memcpy(p, &x, 8);
    }

    /* Where the machine keeps more than 53 bits (x87), a quotient of two exact doubles is rounded twice. */
    #if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
    #define ML_ROUNDS_ONCE 0
    #else
    #define ML_ROUNDS_ONCE 1
    #endif
    #endif
    """
    uint64_t multiply "ml_multiply"(uint64_t a, uint64_t b, uint64_t* high) noexcept nogil
    int zeros_above "ml_zeros_above"(uint64_t x) noexcept nogil
    int zeros_below "ml_zeros_below"(uint64_t x) noexcept nogil
    uint64_t load "ml_load"(const unsigned char* p) noexcept nogil
    void store "ml_store"(unsigned char* p, uint64_t x) noexcept nogil
    const bint ROUNDS_ONCE "ML_ROUNDS_ONCE"

ctypedef const unsigned char* text_t

cdef enum:
    GUARD = 16
    DOUBLE_WIDTH = 24  # -1.7976931348623157e+308, the longest that write_double makes

cdef enum:  # what parse_double and parse_float return
    PARSED = 0
    NOT_A_NUMBER = 1
    NOT_FINITE = 2  # nan, inf, infinity
    TOO_LARGE = 3  # rounds to infinity


cdef inline bint is_digit(unsigned char c) noexcept nogil:
    return <unsigned char> (c - 48) < 10


cdef inline bint is_blank(unsigned char c) noexcept nogil:
    """White space inside a line; of a line that ends in CR LF, the CR."""
    return c == c' ' or c == c'\t' or c == c'\r'


cdef inline uint64_t load_digits(text_t p) noexcept nogil:
    """Eight characters, each digit as its value 0..9 and anything else as more than 9."""
    return load(p) ^ <uint64_t> 0x3030303030303030


cdef inline uint64_t other_bytes(uint64_t x) noexcept nogil:
    """Of load_digits: the lowest bit set is bit 7 of the first byte that is no digit; 0 for eight digits."""
    return ((x + <uint64_t> 0x7676767676767676) | x) & <uint64_t> 0x8080808080808080


cdef inline uint64_t eight_digits(uint64_t x) noexcept nogil:
    """sum_i x_i 10^(7-i) of bytes x_0 (lowest) to x_7, each 0..9."""
    x = x * 10 + (x >> 8)
    return (((x & <uint64_t> 0x000000FF000000FF) * <uint64_t> 0x000F424000000064)
            + (((x >> 16) & <uint64_t> 0x000000FF000000FF) * <uint64_t> 0x0000271000000001)) >> 32


cdef int parse_double(text_t p, text_t* end, double* value) noexcept nogil
cdef int parse_float(text_t p, text_t* end, float* value) noexcept nogil
cdef unsigned char* write_double(unsigned char* out, double value) noexcept nogil
cdef unsigned char* write_float(unsigned char* out, float value) noexcept nogil
cdef unsigned char* write_integer(unsigned char* out, uint64_t value) noexcept nogil
