"""Decimal text <-> binary floating point, exact in both directions.

Text to binary, x = m 10^q with m the first 19 digits:

1. m <= 2^53 and |q| <= 22: both are exact doubles, so one product or quotient rounds once (Clinger).
2. m times a 128-bit lower bound of 10^q encloses x in an interval of some units of the product's last place.
   It is decided unless a halfway point of the binary format lies inside (Eisel, Lemire).
3. Else all digits are compared with that halfway point in whole numbers.

Binary to text: the shortest decimal inside the rounding interval, the nearest of them (Giulietti's
Schubfach), from the same table of powers.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport Py_DECREF, PyObject
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

cdef extern from "Python.h":
    PyObject* PyBytes_FromStringAndSize(const char* text, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject** text, Py_ssize_t size) except -1


cdef enum:
    LEAST_POWER = -342  # 10^19 * 10^-343 is below half of the least double
    MOST_POWER = 324  # the writer's need: 10^324 * 2^-1074 is a whole digit
    EXACT_POWER = 55  # 5^55 < 2^128

# 10^q = (high 2^64 + low + d) 2^(floor(log2(10^q)) - 127), 0 <= d < 1, and d = 0 just for 0 <= q <= 55
cdef uint64_t power_high[MOST_POWER - LEAST_POWER + 1]
cdef uint64_t power_low[MOST_POWER - LEAST_POWER + 1]
cdef double exact_power[23]
cdef unsigned char digit_pairs[200]


cdef int fill_tables() except -1:
    cdef int q
    five = 1
    for q in range(MOST_POWER + 1):
        bits = five.bit_length()
        store_power(q, five << (128 - bits) if bits <= 128 else five >> (bits - 128))
        if q < 23:
            exact_power[q] = 10 ** q
        five *= 5
    five = 5
    for q in range(1, -LEAST_POWER + 1):
        # 2^(b + 127) / 5^q with 2^(b-1) <= 5^q < 2^b lies in (2^127, 2^128)
        store_power(-q, (1 << (five.bit_length() + 127)) // five)
        five *= 5
    for q in range(100):
        digit_pairs[2 * q] = 48 + q // 10
        digit_pairs[2 * q + 1] = 48 + q % 10
    return 0


cdef int store_power(int q, object bits) except -1:
    power_high[q - LEAST_POWER] = bits >> 64
    power_low[q - LEAST_POWER] = bits & 0xFFFFFFFFFFFFFFFF
    return 0


fill_tables()


cdef inline int log2_power(int q) noexcept nogil:
    """floor(log2(10^q)) for |q| <= 400"""
    return (q * 217706) >> 16


cdef struct format_t:
    int digits  # of the significand in base 2, the hidden one included
    int least  # exponent of the last digit of a subnormal
    uint64_t infinity  # bits of

cdef format_t DOUBLE = [53, -1074, <uint64_t> 0x7FF << 52]
cdef format_t FLOAT = [24, -149, <uint64_t> 0xFF << 23]

cdef struct decimal_t:
    uint64_t mantissa  # the first 19 significant digits
    int64_t exponent  # x = mantissa 10^exponent, or a little more if digits were cut
    bint negative
    bint cut  # a digit other than 0 follows the 19
    text_t first  # significant digit
    text_t last  # end of the digits


cdef inline text_t read_digits(text_t p, uint64_t* mantissa) noexcept nogil:
    """mantissa = mantissa 10^n + the n digits at p, modulo 2^64; the end of the digits."""
    cdef uint64_t x = load_digits(p)
    while other_bytes(x) == 0:
        mantissa[0] = mantissa[0] * 100000000 + eight_digits(x)
        p += 8
        x = load_digits(p)
    while is_digit(p[0]):
        mantissa[0] = mantissa[0] * 10 + (p[0] - 48)
        p += 1
    return p


cdef bint starts_with(text_t p, const char* word) noexcept nogil:
    """word in lower case; p in any."""
    while word[0]:
        if (p[0] | 32) != word[0]:
            return False
        p += 1
        word += 1
    return True


cdef inline int read_decimal(text_t p, text_t* end, decimal_t* x) noexcept nogil:
    """number := [+-] (digits [. digits] | . digits) [(e|E) [+-] digits]"""
    cdef text_t whole, point, start
    cdef int64_t power = 0
    cdef bint negative
    x.negative = p[0] == c'-'
    if x.negative or p[0] == c'+':
        p += 1
    whole = p
    x.mantissa = 0
    p = read_digits(p, &x.mantissa)
    point = p
    x.exponent = 0
    if p[0] == c'.':
        p = read_digits(p + 1, &x.mantissa)
        x.exponent = point + 1 - p
    if p - whole == (p != point):
        end[0] = p
        return NOT_FINITE if starts_with(p, b"nan") or starts_with(p, b"inf") else NOT_A_NUMBER
    x.last = p
    x.cut = False
    if p - whole > 19:
        keep_nineteen(x, whole, point)
    if p[0] == c'e' or p[0] == c'E':
        p += 1
        negative = p[0] == c'-'
        if negative or p[0] == c'+':
            p += 1
        start = p
        while is_digit(p[0]):
            if power < 100000000:
                power = power * 10 + (p[0] - 48)
            p += 1
        if p == start:
            return NOT_A_NUMBER
        x.exponent += -power if negative else power
    end[0] = p
    return PARSED


cdef void keep_nineteen(decimal_t* x, text_t p, text_t point) noexcept nogil:
    """Read the digits from p to x.last again, unless their number fits the 64 bits after all."""
    cdef int n = 0
    while p < x.last and (p[0] == c'0' or p[0] == c'.'):
        p += 1
    x.first = p
    if x.last - p - (p <= point < x.last) <= 19:
        return
    x.mantissa = 0
    x.exponent = point + 1 - p if p > point else 0  # zeros skipped behind the point
    while p < x.last:
        if p[0] != c'.':
            if n < 19:
                x.mantissa = x.mantissa * 10 + (p[0] - 48)
                n += 1
                x.exponent -= p > point
            else:
                x.cut |= p[0] != c'0'
                x.exponent += p < point
        p += 1


cdef int round_to(const format_t* f, const decimal_t* x, uint64_t* bits) noexcept nogil:
    """The bits of the number of format f that is nearest to x, ties to even; mantissa not 0."""
    cdef uint64_t w, high, mid, low, carry, rest, half, wide, excess
    cdef int q, shift, top, last, drop, order
    cdef bint exact
    if x.exponent < LEAST_POWER:
        bits[0] = 0
        return PARSED
    if x.exponent > 308:
        return TOO_LARGE
    q = <int> x.exponent
    shift = zeros_above(x.mantissa)
    w = x.mantissa << shift
    # high:mid:low = w 10^q up to a power of two, 2^190 <= high:mid:low < 2^192
    mid = multiply(w, power_high[q - LEAST_POWER], &high)
    low = multiply(w, power_low[q - LEAST_POWER], &carry)
    mid += carry
    high += mid < carry
    top = 64 + log2_power(q) - shift
    if high >> 63 == 0:
        high = (high << 1) | (mid >> 63)
        mid = (mid << 1) | (low >> 63)
        low <<= 1
        top -= 1
    # x = high.mid.low 2^(top - 63) + less than 4 units of mid, and less than 2^(shift + 2) of high if cut
    last = max(top - f.digits + 1, f.least)
    drop = last - top + 63
    if drop > 64:
        bits[0] = 0
        return PARSED
    half = <uint64_t> 1 << (drop - 1)
    rest = high if drop == 64 else high & ((half << 1) - 1)
    wide = 0 if drop == 64 else high >> drop
    exact = 0 <= q <= EXACT_POWER and not x.cut
    if exact:
        if rest != half or mid != 0 or low != 0:
            order = 1 if rest >= half else -1
        else:
            order = 0
    elif rest >= half:
        order = 1
    else:
        excess = half - rest  # halfway - x in units of high, rounded up
        if excess > (<uint64_t> 1 << (shift + 2) if x.cut else 1) or (not x.cut and mid < <uint64_t> -4):
            order = -1
        else:
            order = compare_halfway(x, wide, last)
    wide += order > 0 or (order == 0 and wide & 1 == 1)
    bits[0] = (<uint64_t> (last - f.least) << (f.digits - 1)) + wide
    return TOO_LARGE if bits[0] >= f.infinity else PARSED


# Whole numbers of up to 3,200 bits. compare_halfway needs 2,700: 801 digits, or 54 bits times 5^1143.
cdef struct whole_t:
    int n
    uint32_t limbs[100]  # lowest first, limbs[n-1] != 0


cdef void set_whole(whole_t* a, uint64_t value) noexcept nogil:
    a.limbs[0] = <uint32_t> value
    a.limbs[1] = <uint32_t> (value >> 32)
    a.n = 2 if a.limbs[1] else 1


cdef void times_plus(whole_t* a, uint32_t factor, uint32_t term) noexcept nogil:
    """a = a factor + term"""
    cdef uint64_t carry = term
    cdef int i
    for i in range(a.n):
        carry += <uint64_t> a.limbs[i] * factor
        a.limbs[i] = <uint32_t> carry
        carry >>= 32
    if carry:
        a.limbs[a.n] = <uint32_t> carry
        a.n += 1


cdef void times_power(whole_t* a, uint32_t base, int64_t count) noexcept nogil:
    """a = a base^count"""
    while count > 0:
        times_plus(a, base, 0)
        count -= 1


cdef void shift_left(whole_t* a, int64_t count) noexcept nogil:
    """a = a 2^count"""
    times_power(a, 2, count & 31)
    cdef int limbs = <int> (count >> 5)
    memmove(a.limbs + limbs, a.limbs, a.n * sizeof(uint32_t))
    memset(a.limbs, 0, limbs * sizeof(uint32_t))
    a.n += limbs


cdef int compare_halfway(const decimal_t* x, uint64_t wide, int last) noexcept nogil:
    """Sign of |x| - (2 wide + 1) 2^(last-1)"""
    cdef whole_t left, right
    cdef int64_t exponent = x.exponent, shift
    cdef int count = 19, i
    cdef text_t p = x.first
    # left 10^exponent = x. Of more than 800 digits it matters only whether the rest is zero: a halfway point
    # has at most 767 digits.
    left.n = 0
    if x.cut:
        exponent += 19
        count = 0
        while p < x.last and count < 800:
            if p[0] != c'.':
                times_plus(&left, 10, p[0] - 48)
                count += 1
                exponent -= 1
            p += 1
        if p < x.last:
            times_plus(&left, 10, 1)
            exponent -= 1
    else:
        set_whole(&left, x.mantissa)
    set_whole(&right, 2 * wide + 1)
    times_power(&left if exponent > 0 else &right, 5, exponent if exponent > 0 else -exponent)
    shift = exponent - (last - 1)
    shift_left(&left if shift > 0 else &right, shift if shift > 0 else -shift)
    if left.n != right.n:
        return 1 if left.n > right.n else -1
    for i in range(left.n - 1, -1, -1):
        if left.limbs[i] != right.limbs[i]:
            return 1 if left.limbs[i] > right.limbs[i] else -1
    return 0


cdef int parse_double(text_t p, text_t* end, double* value) noexcept nogil:
    """The number at p, correctly rounded, and where it ends; else a code."""
    cdef decimal_t x
    cdef uint64_t bits = 0
    cdef int code = read_decimal(p, end, &x)
    if code:
        return code
    if ROUNDS_ONCE and not x.cut and x.mantissa <= (<uint64_t> 1 << 53) and -22 <= x.exponent <= 22:
        if x.exponent < 0:
            value[0] = <double> <int64_t> x.mantissa / exact_power[-x.exponent]
        else:
            value[0] = <double> <int64_t> x.mantissa * exact_power[x.exponent]
        if x.negative:
            value[0] = -value[0]
        return PARSED
    if x.mantissa:
        code = round_to(&DOUBLE, &x, &bits)
    bits |= <uint64_t> x.negative << 63
    memcpy(value, &bits, sizeof(bits))
    return code


cdef int parse_float(text_t p, text_t* end, float* value) noexcept nogil:
    """As parse_double, rounded once to float32 (rounding to float64 between the two would differ)."""
    cdef decimal_t x
    cdef uint64_t bits = 0
    cdef uint32_t short_bits
    cdef int code = read_decimal(p, end, &x)
    if code:
        return code
    if x.mantissa:
        code = round_to(&FLOAT, &x, &bits)
    short_bits = <uint32_t> (bits | (<uint64_t> x.negative << 31))
    memcpy(value, &short_bits, sizeof(short_bits))
    return code


cdef inline uint64_t to_odd(uint64_t high, uint64_t low, uint64_t c) noexcept nogil:
    """floor(c 2^-127 (high 2^64 + low) / 2), its last bit set if that is not exact"""
    cdef uint64_t top, mid, carry
    mid = multiply(c, high, &top)
    multiply(c, low, &carry)
    mid += carry
    top += mid < carry
    return top | (mid > 1)


cdef uint64_t shortest(uint64_t c, int q, bint even_gap, int* exponent) noexcept nogil:
    """Digits s and exponent k: s 10^k is the shortest decimal that rounds to c 2^q, and of those the nearest.

    All decimals that round to c 2^q lie within half a gap, (c - 1/2) 2^q to (c + 1/2) 2^q; below a power of
    two the gap is half as wide. k is chosen so that 10^k fits into the interval but 10^(k+1) at most once:
    then the candidates are the multiple of 10^(k+1) in it, or the two multiples of 10^k around c 2^q.
    Everything is compared in units of 10^k / 4, rounded to odd, which keeps each comparison exact.
    """
    cdef bint odd = c & 1, down_fits, up_fits
    cdef int k = (q * 1262611 - (0 if even_gap else 524031)) >> 22  # floor(log10(2^q)), or of 3/4 2^q
    cdef int shift = q + log2_power(-k) + 1
    cdef uint64_t high = power_high[-k - LEAST_POWER], low = power_low[-k - LEAST_POWER]
    cdef uint64_t here, lower, upper, s, tens
    if not 0 <= -k <= EXACT_POWER:
        low += 1  # an upper bound of the power; no power has a low half of 2^64 - 1
    here = to_odd(high, low, (4 * c) << shift)
    lower = to_odd(high, low, (4 * c - (2 if even_gap else 1)) << shift) + odd
    upper = to_odd(high, low, (4 * c + 2) << shift) - odd
    s = here >> 2
    exponent[0] = k
    if s >= 10:
        tens = s // 10
        down_fits = lower <= 40 * tens
        up_fits = 40 * tens + 40 <= upper
        if down_fits != up_fits:
            exponent[0] = k + 1
            return tens + up_fits
    down_fits = lower <= 4 * s
    up_fits = 4 * s + 4 <= upper
    if down_fits != up_fits:
        return s + up_fits
    return s + (here > 4 * s + 2 or (here == 4 * s + 2 and s & 1 == 1))


cdef inline void write_eight(unsigned char* out, uint64_t value) noexcept nogil:
    """Eight digits, leading zeros included."""
    cdef uint64_t x = (value // 10000) | ((value % 10000) << 32), q
    q = ((x * 10486) >> 20) & <uint64_t> 0x0000007F0000007F  # / 100
    x = q | ((x - 100 * q) << 16)
    q = ((x * 103) >> 10) & <uint64_t> 0x000F000F000F000F  # / 10
    x = q | ((x - 10 * q) << 8)
    store(out, x | <uint64_t> 0x3030303030303030)


cdef unsigned char* write_integer(unsigned char* out, uint64_t value) noexcept nogil:
    """Decimal digits of value < 10^18; the end. Up to 24 bytes at out are overwritten."""
    cdef unsigned char digits[24]
    cdef uint64_t rest
    cdef int first = 23, length
    if value < 100000000:
        write_eight(digits + 16, value)
        first = 16
    else:
        rest = value // 100000000
        write_eight(digits + 16, value % 100000000)
        write_eight(digits + 8, rest % 100000000)
        first = 8
        if rest >= 100000000:
            memcpy(digits + 6, digit_pairs + 2 * (rest // 100000000), 2)
            first = 6
    # the first byte of which the digit is not 0
    while digits[first] == c'0' and first < 23:
        first += 1
    length = 24 - first
    memcpy(out, digits + first, length)
    return out + length


cdef unsigned char* write_decimal(unsigned char* out, uint64_t digits, int exponent) noexcept nogil:
    """digits 10^exponent as %.17g writes it, without trailing zeros; digits in 1 .. 10^18 - 1"""
    cdef unsigned char text[24]
    cdef int length, top
    while digits % 10 == 0:
        digits //= 10
        exponent += 1
    length = <int> (write_integer(text, digits) - text)
    top = length - 1 + exponent
    if 0 <= top < 17:
        if exponent >= 0:
            memcpy(out, text, 24)
            memset(out + length, c'0', exponent)
            return out + top + 1
        memcpy(out, text, 17)
        out[top + 1] = c'.'
        memcpy(out + top + 2, text + top + 1, length - top - 1)
        return out + length + 1
    if -5 < top < 0:
        memcpy(out, b"0.000", 5)
        memcpy(out + 1 - top, text, 18)
        return out + 1 - top + length
    out[0] = text[0]
    if length > 1:
        out[1] = c'.'
        memcpy(out + 2, text + 1, length - 1)
        out += 1
    out += length
    out[0] = c'e'
    out[1] = c'-' if top < 0 else c'+'
    out += 2
    if top < 0:
        top = -top
    if top >= 100:
        out[0] = 48 + top // 100
        top %= 100
        out += 1
    memcpy(out, digit_pairs + 2 * top, 2)
    return out + 2


cdef unsigned char* write_double(unsigned char* out, double value) noexcept nogil:
    """Shortest text of a finite value that reads back as the same bits; the end.

    Needs DOUBLE_WIDTH bytes, and may scribble over GUARD more.
    """
    cdef uint64_t bits, c
    cdef int q, exponent
    memcpy(&bits, &value, sizeof(bits))
    if bits >> 63:
        out[0] = c'-'
        out += 1
    c = bits & ((<uint64_t> 1 << 52) - 1)
    q = <int> ((bits >> 52) & 0x7FF)
    if q == 0 and c == 0:
        out[0] = c'0'
        return out + 1
    if q == 0:
        c = shortest(c, -1074, True, &exponent)
    elif 1075 - 53 < q <= 1075 and zeros_below(c | (<uint64_t> 1 << 52)) >= 1075 - q:
        c = (c | (<uint64_t> 1 << 52)) >> (1075 - q)  # a whole number
        exponent = 0
    else:
        c = shortest(c | (<uint64_t> 1 << 52), q - 1075, c != 0 or q == 1, &exponent)
    return write_decimal(out, c, exponent)


cdef unsigned char* write_float(unsigned char* out, float value) noexcept nogil:
    """As write_double, for the same bits of a float32."""
    cdef uint32_t bits, c
    cdef uint64_t digits
    cdef int q, exponent
    memcpy(&bits, &value, sizeof(bits))
    c = bits & ((<uint32_t> 1 << 23) - 1)
    q = <int> ((bits >> 23) & 0xFF)
    if q == 0 and c == 0:
        return write_double(out, value)
    if bits >> 31:
        out[0] = c'-'
        out += 1
    if q == 0:
        digits = shortest(c, -149, True, &exponent)
    else:
        digits = shortest(c | (<uint32_t> 1 << 23), q - 150, c != 0 or q == 1, &exponent)
    return write_decimal(out, digits, exponent)


cdef enum:  # parse_rows goes on where parse_double's codes end
    SHORT = 4
    LONG = 5
    ENDED = 6

ROWS_READ, ROWS_NOT_A_NUMBER, ROWS_NOT_FINITE = PARSED, NOT_A_NUMBER, NOT_FINITE
ROWS_SHORT_LINE, ROWS_LONG_LINE, ROWS_END_OF_DATA = SHORT, LONG, ENDED


cdef object owned_bytes(PyObject* raw, Py_ssize_t size):
    """The new bytes object `raw`, cut to `size` without a copy."""
    _PyBytes_Resize(&raw, size)
    text = <object> raw
    Py_DECREF(text)
    return text


def format_rows(const double[:, ::1] W):
    """Each row of W on a line, each value followed by one blank, as LIBLINEAR writes weights.

    Parameters
    ----------
    W : float64 array of shape (rows, columns)
        Finite values, C-contiguous.

    Returns
    -------
    bytes
        The shortest text that reads back bit for bit.

    Raises
    ------
    ValueError
        W holds nan or an infinity.
    """
    cdef Py_ssize_t rows = W.shape[0], columns = W.shape[1], i, j
    cdef unsigned char* out
    cdef unsigned char* start
    cdef uint64_t bits
    cdef bint finite = True
    cdef PyObject* raw = PyBytes_FromStringAndSize(NULL, rows * (columns * (DOUBLE_WIDTH + 1) + 1) + GUARD)
    start = <unsigned char*> PyBytes_AS_STRING(<object> raw)
    with nogil:
        out = start
        for i in range(rows):
            for j in range(columns):
                memcpy(&bits, &W[i, j], sizeof(bits))
                if bits & DOUBLE.infinity == DOUBLE.infinity:
                    finite = False
                    break
                out = write_double(out, W[i, j])
                out[0] = c' '
                out += 1
            if not finite:
                break
            out[0] = c'\n'
            out += 1
    if not finite:
        Py_DECREF(<object> raw)
        raise ValueError(f"W[{i}, {j}] is {W[i, j]}; only finite numbers can be written")
    return owned_bytes(raw, out - start)


cdef struct place_t:  # the next number of parse_rows
    Py_ssize_t row
    Py_ssize_t column


cdef int fill_rows(text_t* at, text_t stop, place_t* place, double* out, Py_ssize_t rows,
                   Py_ssize_t columns) noexcept nogil:
    """Numbers of at[0] .. stop into out from place on; PARSED when the rows are full or the text ends."""
    cdef text_t p = at[0]
    cdef text_t end = p
    cdef int code
    while place.row < rows:
        while p < stop and is_blank(p[0]):
            p += 1
        at[0] = p
        if p >= stop:
            return PARSED
        if p[0] == c'\n':
            if place.column < columns:
                return SHORT
            place.row += 1
            place.column = 0
            p += 1
            continue
        if place.column == columns:
            return LONG
        code = parse_double(p, &end, out + place.row * columns + place.column)
        if code == PARSED and not (is_blank(end[0]) or end[0] == c'\n' or end == stop):
            code = NOT_A_NUMBER
        if code:
            return NOT_FINITE if code == TOO_LARGE else code
        place.column += 1
        p = end
    at[0] = p
    return PARSED


def parse_rows(const unsigned char[::1] text, Py_ssize_t start, double[:, ::1] out):
    """Fill `out` with the numbers of `text` from `start` on, one line a row, white space between.

    Parameters
    ----------
    text : bytes-like
    start : int
    out : float64 array of shape (rows, columns)
        Filled in place; what was read before an error stays in it.

    Returns
    -------
    position : int
        Just after the last row's newline, or where the error is.
    code : int
        ROWS_READ (0), or ROWS_NOT_A_NUMBER, ROWS_NOT_FINITE (nan, inf, or beyond float64), ROWS_SHORT_LINE
        (position of the newline), ROWS_LONG_LINE (position of the first number too many), ROWS_END_OF_DATA.

    Raises
    ------
    ValueError
        start lies outside the text.
    """
    cdef Py_ssize_t size = text.shape[0], rows = out.shape[0], columns = out.shape[1], cut = size - GUARD
    cdef Py_ssize_t position = start
    cdef place_t place = [0, 0]
    cdef double* numbers
    cdef text_t begin
    cdef text_t at
    cdef unsigned char* tail = NULL
    cdef int code = PARSED
    if not 0 <= start <= size:
        raise ValueError(f"start is {start}, the text has {size} bytes")
    if rows == 0:
        return start, ROWS_READ
    numbers = &out[0, 0] if columns else NULL
    # The last numbers are read from a copy that has the guard bytes.
    while cut > start and not (is_blank(text[cut - 1]) or text[cut - 1] == c'\n'):
        cut -= 1
    cut = max(cut, start)
    tail = <unsigned char*> malloc(size - cut + GUARD)
    if tail == NULL:
        raise MemoryError()
    with nogil:
        if cut > start:
            begin = &text[0]
            at = begin + start
            code = fill_rows(&at, begin + cut, &place, numbers, rows, columns)
            position = at - begin
        if code == PARSED and place.row < rows:
            if size > cut:
                memcpy(tail, &text[cut], size - cut)
            memset(tail + (size - cut), 0, GUARD)
            at = tail
            code = fill_rows(&at, tail + (size - cut), &place, numbers, rows, columns)
            position = cut + (at - tail)
            if code == PARSED and place.row < rows:
                # the last line may lack its newline
                if place.row < rows - 1 or place.column < columns:
                    code = ENDED
        free(tail)
    return position, code
