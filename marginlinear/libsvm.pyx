"""Files in LIBSVM format.

    file    := [byte order mark] line*
    line    := [blanks] [label (blanks index ':' value)* [blanks]] ['#' comment] newline
    blanks  := (space | tab | carriage return)+

The last newline may be missing. Indices rise along a row; a line without label is no row.

A stream of bytes is cut into blocks of whole lines, each block is parsed without the GIL into buffers of its
own, by any thread, and the blocks are appended to the result in the order of the file. So the arrays, and the
error that is reported, do not depend on the number of threads.
"""

import errno
import io
import os
import stat
import sys
import time
from array import array
from collections import deque
from contextlib import closing, contextmanager, nullcontext

from cpython.buffer cimport PyBuffer_FillInfo, PyBUF_WRITE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint16_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy, memset

from marginlinear._core.check cimport check
from marginlinear._core.decimal cimport (
    DOUBLE_WIDTH, GUARD, NOT_A_NUMBER, NOT_FINITE, PARSED, ROUNDS_ONCE, TOO_LARGE, eight_digits, is_blank,
    is_digit, load_digits, other_bytes, parse_double, parse_float, text_t, write_double, write_float,
    write_integer, zeros_below,
)
from marginlinear._core.pages cimport LARGE, advise_huge

from marginlinear._core.vector import Buffer
from marginlinear.atomic import replacing
from marginlinear.params import THREADS, Param, check_flag, check_function, check_path, refusal
from marginlinear.errors import DataError
from marginlinear.threads import default_threads, started

ctypedef fused real:
    float
    double

ctypedef fused label_t:
    int64_t
    double

ctypedef fused narrow_t:
    uint16_t
    float

# Text and arrays of a block stay in the second-level cache; Python's share of the work is below 1 %.
BLOCK_SIZE = 1 << 18
LARGEST_INDEX = 2**31 - 1
N_FEATURES = Param("n_features", int, None, "number of columns", f"[1, {LARGEST_INDEX}]")
cdef int64_t LARGEST_SHORT = 2**16 - 1
FLOATS = "float64", "float32"
INT64 = "l" if sizeof(long) == sizeof(int64_t) else "q"  # as NumPy calls it


cdef enum:
    FINE
    END_OF_ROW
    LABEL_TEXT
    LABEL_MISSING
    LABEL_SEVERAL
    LABEL_OF_TABLE
    LABEL_INFINITE
    LABEL_LARGE
    LABEL_CONTROL
    QUERY
    FEATURE_BAD
    INDEX_MISSING
    INDEX_NEGATIVE
    INDEX_ZERO
    INDEX_LARGE
    INDEX_ABOVE
    INDEX_FALLING
    VALUE_MISSING
    VALUE_BAD
    VALUE_INFINITE
    VALUE_LARGE

# {token} is the offending text, {last} the index before it.
REASONS = {
    LABEL_TEXT: "label {token} is not a number; to read labels as text, say --text-labels (text_labels=True)",
    LABEL_MISSING: "the row has no label before {token}",
    LABEL_SEVERAL: "several labels {token}: multi-label data are not supported",
    LABEL_OF_TABLE: "{token}: commas and no index:value, as in a CSV file, which is not read here; convert it, as by "
                    "Python's table = numpy.loadtxt('old', delimiter=','); "
                    "marginlinear.dump_libsvm(table[:, 1:], table[:, 0], 'new') where labels come first",
    LABEL_INFINITE: "label {token} is not finite",
    LABEL_LARGE: "label {token} is not below 2^53, where float64 begins to skip whole numbers; to read "
                 "labels as text, say --text-labels (text_labels=True)",
    LABEL_CONTROL: "label {token} holds a control character",
    QUERY: "{token}: ranking data with qid are not supported; remove the field",
    FEATURE_BAD: "{token} is not of the form index:value",
    INDEX_MISSING: "{token} has no index; no blank may stand before the colon",
    INDEX_NEGATIVE: "{token} has a negative index; indices count from {base}",
    INDEX_ZERO: "index 0 in {token}, but indices count from 1; if those of this file count from 0, say "
                "--zero-based (zero_based=True)",
    INDEX_LARGE: "{token} has an index above {limit}, the largest possible",
    INDEX_ABOVE: "{token} has an index above {limit}, the last of the {n_features} features expected",
    INDEX_FALLING: "{token} comes after index {last}; indices must rise along a row",
    VALUE_MISSING: "{token} has no value; no blank may stand after the colon",
    VALUE_BAD: "value {token} is not a number",
    VALUE_INFINITE: "value {token} is not finite",
    VALUE_LARGE: "value {token} is too large for {dtype}",
}


cdef struct block_t:
    # in: whole lines, then a newline and GUARD bytes more
    const unsigned char* text
    Py_ssize_t start, size
    bint text_labels
    int32_t base  # the first index: 0 or 1
    int64_t limit  # the last index that is allowed
    # out: room for size/4 + 1 features and size/2 + 1 rows
    void* data
    int32_t* indices  # counted from 0
    int64_t* row_ends
    double* labels
    unsigned char* names  # text labels, a newline after each
    Py_ssize_t rows, features, names_size, lines
    int64_t largest  # index as the file counts, base - 1 if there is none
    Py_ssize_t largest_line, largest_column  # where its feature begins, counted from 0
    # the first error, if any
    int code
    Py_ssize_t at, line_start
    int64_t last


cdef inline bint ends_token(unsigned char c) noexcept nogil:
    return is_blank(c) or c == c'\n' or c == c'#'


cdef inline int parse_real(text_t p, text_t* end, real* value) noexcept nogil:
    if real is float:
        return parse_float(p, end, value)
    else:
        return parse_double(p, end, value)


cdef inline bint rounds_twice(double x) noexcept nogil:
    """Does x lie halfway between two float32, so that the decimal it came from may lie on either side?"""
    cdef uint64_t bits
    memcpy(&bits, &x, sizeof(bits))
    return bits & 0x1FFFFFFF == 0x10000000


cdef int read_label(block_t* b, text_t* at) noexcept nogil:
    """The label at at[0], which is moved behind it."""
    cdef text_t start = at[0]
    cdef text_t end = start
    cdef text_t p = start
    cdef double* label = b.labels + b.rows
    cdef int code
    if b.text_labels:
        while not ends_token(end[0]):
            if end[0] < 32:
                return LABEL_CONTROL
            end += 1
        while is_digit(p[0]):
            p += 1
        if p > start and p[0] == c':':
            return LABEL_MISSING
        memcpy(b.names + b.names_size, start, end - start)
        b.names_size += end - start + 1
        b.names[b.names_size - 1] = c'\n'
        at[0] = end
        return FINE
    code = parse_double(start, &end, label)
    if code == PARSED and ends_token(end[0]):
        if not -9007199254740992.0 < label[0] < 9007199254740992.0:
            return LABEL_LARGE  # 2^53 may be 2^53 + 1, rounded
        at[0] = end
        return FINE
    if code == NOT_FINITE:
        return LABEL_INFINITE
    if code == TOO_LARGE:
        return LABEL_LARGE
    while not (ends_token(p[0]) or p[0] == c',' or p[0] == c':'):
        p += 1
    if p[0] == c',':
        while p[0] != c'\n' and p[0] != c'#':
            if p[0] == c':':
                return LABEL_SEVERAL
            p += 1
        return LABEL_OF_TABLE
    if p[0] == c':':
        return LABEL_MISSING
    return LABEL_TEXT


cdef int read_feature(block_t* b, text_t* at, int64_t* index, real* value) noexcept nogil:
    """The next feature of any shape, or the end of the row. index[0] is the one before.

    at[0] is moved behind the feature, to the end of the row, or to what is wrong.
    """
    cdef text_t p = at[0]
    cdef text_t start
    cdef int64_t number = 0
    cdef int code
    while is_blank(p[0]):
        p += 1
    at[0] = p
    if p[0] == c'\n' or p[0] == c'#':
        return END_OF_ROW
    start = p
    while is_digit(p[0]):
        if number <= 2147483647:
            number = number * 10 + (p[0] - 48)
        p += 1
    if p[0] != c':' or p == start:
        if p[0] == c':':
            return INDEX_MISSING
        if p[0] == c'-' and is_digit(p[1]):
            return INDEX_NEGATIVE
        if p[0] == c'q' and p[1] == c'i' and p[2] == c'd' and p[3] == c':':
            return QUERY
        return FEATURE_BAD
    if number < b.base:
        return INDEX_ZERO
    if number > b.limit:
        return INDEX_LARGE if b.limit == 2147483646 + b.base else INDEX_ABOVE
    if number <= index[0]:
        return INDEX_FALLING
    p += 1
    if ends_token(p[0]):
        return VALUE_MISSING
    at[0] = p
    code = parse_real(p, &p, value)
    if code == NOT_FINITE:
        return VALUE_INFINITE
    if code == TOO_LARGE:
        return VALUE_LARGE
    if code == NOT_A_NUMBER or not ends_token(p[0]):
        return VALUE_BAD
    index[0] = number
    at[0] = p
    return FINE


cdef inline text_t last_token(text_t start, text_t end) noexcept nogil:
    """Where the last token between `start` and `end` begins."""
    while end > start and is_blank((end - 1)[0]):
        end -= 1
    while end > start and not is_blank((end - 1)[0]):
        end -= 1
    return end


cdef void parse_lines(block_t* b, real* data) noexcept nogil:
    """Rows of the block's lines, up to the first error."""
    cdef text_t p = b.text + b.start
    cdef text_t stop = b.text + b.size
    cdef text_t line = b.text
    cdef text_t q
    cdef int32_t* indices = b.indices
    cdef Py_ssize_t k = 0
    cdef int64_t last, index
    cdef uint64_t x, others, whole
    cdef double number
    cdef bint negative
    cdef int code = FINE
    b.rows = b.names_size = b.lines = 0
    b.largest = b.base - 1
    while p < stop:
        while is_blank(p[0]):
            p += 1
        if p[0] != c'\n' and p[0] != c'#':
            last = b.base - 1
            code = read_label(b, &p)
            while code == FINE:
                # The usual shapes in few steps: a space, up to 7 digits, a colon, [-] up to 7 digits [. up to
                # 8 digits]. With v the digits and 8 places of fraction, v < 2^53, so v / 10^8 rounds once.
                # Whatever does not fit is left to read_feature, errors too.
                while ROUNDS_ONCE and p[0] == c' ':
                    x = load_digits(p + 1)
                    others = other_bytes(x)
                    if others == 0 or others & 0x80:
                        break
                    q = p + 1 + (zeros_below(others) >> 3)
                    if q[0] != c':':
                        break
                    index = eight_digits(x << (64 - (zeros_below(others) & 56)))
                    if index <= last or index > b.limit:
                        break
                    q += 1
                    negative = q[0] == c'-'
                    if negative:
                        q += 1
                    if is_digit(q[0]) and not is_digit(q[1]):
                        whole = q[0] - 48
                        q += 1
                    else:
                        x = load_digits(q)
                        others = other_bytes(x)
                        if others == 0 or others & 0x80:
                            break
                        whole = eight_digits(x << (64 - (zeros_below(others) & 56)))
                        q += zeros_below(others) >> 3
                    if q[0] == c'.':
                        x = load_digits(q + 1)
                        others = other_bytes(x)
                        number = <double> <int64_t> (
                            whole * 100000000 + eight_digits(x & (((others & (0 - others)) >> 7) - 1))
                        ) / 1e8
                        q += 1 + (zeros_below(others) >> 3 if others else 8)
                    else:
                        number = <double> <int64_t> whole
                    if q[0] != c' ' and q[0] != c'\n':
                        break
                    if real is float:
                        if rounds_twice(number):
                            break
                    check(k, b.size // 4 + 1)
                    data[k] = <real> (-number if negative else number)
                    indices[k] = <int32_t> (index - b.base)
                    k += 1
                    last = index
                    p = q
                check(k, b.size // 4 + 1)
                code = read_feature(b, &p, &last, data + k)
                if code == FINE:
                    indices[k] = <int32_t> (last - b.base)
                    k += 1
            if code != END_OF_ROW:
                break
            check(b.rows, b.size // 2 + 1)
            b.row_ends[b.rows] = k
            b.rows += 1
            if last > b.largest:
                b.largest = last
                b.largest_line = b.lines
                b.largest_column = last_token(line, p) - line
        if p[0] == c'#':
            p = <text_t> memchr(p, c'\n', stop - p + 1)
        p += 1
        line = p
        b.lines += 1
        code = FINE
    b.features = k
    b.code = code
    b.at = p - b.text
    b.line_start = line - b.text
    b.last = last if code else 0


cdef class Block:
    """Some whole lines, and the rows they hold once parsed."""

    cdef block_t b
    cdef unsigned char* text
    cdef Py_ssize_t capacity
    cdef bint single
    cdef readonly bint parsed

    def __cinit__(self, Py_ssize_t capacity, bint single, bint text_labels, int base, int64_t limit):
        self.single = single
        self.b.text_labels = text_labels
        self.b.base = base
        self.b.limit = limit
        self.grow(capacity)

    def __dealloc__(self):
        self.release()
        free(self.text)

    cdef void release(self) noexcept:
        free(self.b.data)
        free(self.b.indices)
        free(self.b.row_ends)
        free(self.b.labels)
        free(self.b.names)
        self.b.data = NULL
        self.b.indices = NULL
        self.b.row_ends = NULL
        self.b.labels = NULL
        self.b.names = NULL

    cdef int grow(self, Py_ssize_t capacity) except -1:
        """Room for text of `capacity` bytes and whatever it may hold; text so far is kept.

        The least feature is ` 1:1`, the least row `1` and a newline. What is never written costs no memory.
        """
        cdef Py_ssize_t features = capacity // 4 + 1, rows = capacity // 2 + 1
        cdef unsigned char* text = <unsigned char*> realloc(self.text, capacity + 1 + GUARD)
        if text == NULL:
            raise MemoryError()
        self.text = text
        self.capacity = capacity
        self.release()
        self.b.text = text
        self.b.data = malloc(features * (sizeof(float) if self.single else sizeof(double)))
        self.b.indices = <int32_t*> malloc(features * sizeof(int32_t))
        self.b.row_ends = <int64_t*> malloc(rows * sizeof(int64_t))
        self.b.labels = <double*> malloc(rows * sizeof(double))
        self.b.names = <unsigned char*> malloc(capacity + 1 if self.b.text_labels else 1)
        if (self.b.data == NULL or self.b.indices == NULL or self.b.row_ends == NULL or self.b.labels == NULL
                or self.b.names == NULL):
            raise MemoryError()
        return 0

    def parse(self):
        with nogil:
            self.text[self.b.size] = c'\n'
            memset(self.text + self.b.size + 1, 0, GUARD)
            if self.single:
                parse_lines[float](&self.b, <float*> self.b.data)
            else:
                parse_lines[double](&self.b, <double*> self.b.data)
        self.parsed = True


def read_some(readinto, room):
    """Bytes read into `room`; 0 at the end of the stream."""
    n = readinto(room)
    if n is None:
        raise BlockingIOError(errno.EAGAIN, "the source is in non-blocking mode and has no data yet")
    return n


cdef class Lines:
    """Cuts a stream into blocks of whole lines; the rest of a block begins the next one.

    Each is cut at `block_size` bytes, or where its only line ends, whatever room other lines have made in it before: so
    the cuts, and what has been parsed when the stream fails, are the same for any number of blocks in use.
    """

    cdef object readinto, rest
    cdef Py_ssize_t block_size
    cdef bint begun
    cdef readonly Py_ssize_t done  # bytes read

    def __init__(self, readinto, head, Py_ssize_t block_size):
        self.readinto = readinto
        self.block_size = block_size
        self.rest = head
        self.done = len(head)

    def fill(self, Block block):
        """Fill `block`; False at the end of the stream. A line longer than the block makes it grow."""
        cdef Py_ssize_t size = 0, searched = 0, cut, wanted = self.block_size
        cdef unsigned char* text
        cdef bint ended = False
        block.parsed = False
        while wanted <= len(self.rest):
            wanted *= 2
        if block.capacity < wanted:
            block.grow(wanted)
        size = len(self.rest)
        memcpy(block.text, <const unsigned char*> self.rest, size)
        while True:
            while size < wanted and not ended:
                PyErr_CheckSignals()  # compiled code is not interrupted by itself
                with PyMemoryView_FromMemory(<char*> block.text + size, wanted - size,
                                             PyBUF_WRITE) as room:
                    n = read_some(self.readinto, room)
                ended = n == 0
                size += n
                self.done += n
            text = block.text
            cut = size
            while cut > searched and text[cut - 1] != c'\n':
                cut -= 1
            if ended or cut > searched:
                break
            searched = size
            wanted *= 2
            if block.capacity < wanted:
                block.grow(wanted)
        if ended:
            cut = size
        self.rest = PyBytes_FromStringAndSize(<char*> text + cut, size - cut)
        block.b.start = 0
        if not self.begun:
            self.begun = True
            if cut >= 3 and text[0] == 0xEF and text[1] == 0xBB and text[2] == 0xBF:
                block.b.start = 3
        block.b.size = cut
        return not ended


cdef void spread(unsigned char* start, Py_ssize_t n, narrow_t one) noexcept nogil:
    """n numbers become wider where they stand, from the last: by bytes, since no two types may share memory."""
    cdef Py_ssize_t i
    cdef int32_t index
    cdef double value
    for i in range(n - 1, -1, -1):
        memcpy(&one, start + i * sizeof(one), sizeof(one))
        if narrow_t is float:
            value = one
            memcpy(start + i * sizeof(value), &value, sizeof(value))
        else:
            index = one
            memcpy(start + i * sizeof(index), &index, sizeof(index))


cdef bint are_floats(const double* values, Py_ssize_t n) noexcept nogil:
    """Does float32 hold each of them?"""
    cdef Py_ssize_t i, others = 0
    for i in range(n):
        others += <double> <float> values[i] != values[i]
    return others == 0


cdef class Column:
    """A growing array, handed on without a copy."""

    cdef unsigned char* start
    cdef Py_ssize_t size, capacity

    def __dealloc__(self):
        free(self.start)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.start, self.size, 0, flags)

    cdef void* extend(self, Py_ssize_t count, double share) except NULL:
        """Where `count` bytes more are to be written; they and those before are about `share` of all there will be.

        Room is made for a little more than all: a good guess saves moves, and what it has too much is never touched.
        """
        cdef Py_ssize_t size = self.size + count
        if self.start == NULL or size > self.capacity:
            self.resize(max(<Py_ssize_t> (1.05 * size / share), 1 << 16))
        self.size = size
        return self.start + size - count

    cdef int resize(self, Py_ssize_t capacity) except -1:
        cdef unsigned char* start = <unsigned char*> realloc(self.start, max(capacity, 1))
        if start == NULL:
            raise MemoryError()
        if capacity >= LARGE:
            # A row's pages are then in the cache of translations when its turn comes: reading takes less, sweeps too.
            advise_huge(start, capacity)
        self.start = start
        self.capacity = capacity
        return 0

    cdef int widen(self, narrow_t kind) except -1:
        """The numbers so far, all of this kind, at twice the bytes each: uint16 becomes int32, float double."""
        self.resize(2 * self.capacity)
        with nogil:
            spread(self.start, self.size // <Py_ssize_t> sizeof(kind), kind)
        self.size *= 2
        return 0

    cdef object view(self, kind):
        self.resize(self.size)
        return memoryview(self).cast(kind)


class LibsvmData:
    """Rows of a file in compressed sparse row form.

    Attributes
    ----------
    data : float64 or float32 array of shape (nonzeros,)
    indices : int32 or, where they are compact, uint16 array of shape (nonzeros,)
        Columns, from 0, rising along a row.
    indptr : int64 array of shape (rows + 1,)
    labels : int64, float64 or str array of shape (rows,)
    n_features : int
    largest : (str, int, int)
        Where the largest index stands: the file, line and column as of a DataError.

    From read_views and libsvm_blocks they are memoryviews of these types, text labels a list: `arrays` makes arrays of
    them.
    """

    __slots__ = ("data", "indices", "indptr", "labels", "n_features", "largest")

    def __init__(self, data, indices, indptr, labels, n_features, largest):
        self.data, self.indices, self.indptr = data, indices, indptr
        self.labels, self.n_features, self.largest = labels, n_features, largest

    def arrays(self):
        """The same as NumPy's arrays, numbers without a copy."""
        import numpy as np

        return LibsvmData(np.asarray(self.data), np.asarray(self.indices), np.asarray(self.indptr),
                          np.asarray(self.labels), self.n_features, self.largest)


def classes_of(labels):
    """(the different labels in ascending order, a list; the place of each row's label there, an int32 Buffer).

    Parameters
    ----------
    labels : int64 or float64 array or memoryview, none of them nan, or list of str
    """
    cdef int32_t[::1] codes
    cdef Py_ssize_t i
    words = isinstance(labels, list)
    classes = sorted(set(labels if words else labels.tolist()))
    found = Buffer("i", len(labels))
    codes = found
    if words:
        places = {label: place for place, label in enumerate(classes)}
        for i in range(codes.shape[0]):
            codes[i] = places[labels[i]]
    # Chosen here: Cython's own choice for a function that Python calls imports NumPy.
    elif memoryview(labels).format == "d":
        search[double](labels, array("d", classes), codes)
    else:
        search[int64_t](labels, array("q", classes), codes)
    return classes, found


cdef void search(const label_t[::1] labels, const label_t[::1] classes, int32_t[::1] codes) noexcept:
    """codes_i = place of labels_i in the ascending classes, where it is."""
    cdef Py_ssize_t i
    cdef int32_t low, high, middle
    with nogil:
        for i in range(labels.shape[0]):
            low, high = 0, <int32_t> classes.shape[0] - 1
            while low < high:
                middle = low + (high - low) // 2
                if classes[middle] < labels[i]:
                    low = middle + 1
                else:
                    high = middle
            codes[i] = low


cdef class Rows:
    """The result as it grows."""

    cdef Column data, indices, indptr, labels
    cdef list names
    cdef object path, dtype, n_features, place
    cdef int base
    cdef bint short, single  # indices are uint16 so far, values float
    cdef int64_t largest
    cdef Py_ssize_t features, lines, text, total

    def __init__(self, path, dtype, int base, n_features, total, compact=False):
        """`total` is the number of bytes that will come; None if that is not known."""
        self.data, self.indices, self.indptr, self.labels = Column(), Column(), Column(), Column()
        self.names = []
        self.path, self.dtype, self.base, self.n_features = path, dtype, base, n_features
        self.largest, self.place = base - 1, (path, 0, 0)
        self.short, self.single = compact, compact or dtype == "float32"
        self.text, self.total = 0, total or 0
        (<int64_t*> self.indptr.extend(sizeof(int64_t), 1))[0] = 0

    def append(self, Block block):
        """Add the rows of a parsed block; DataError if it has an error."""
        cdef block_t* b = &block.b
        cdef int64_t before = self.features
        cdef int64_t* row_ends
        cdef void* data
        cdef void* indices
        cdef void* labels = NULL
        cdef Py_ssize_t i
        cdef double share
        if b.text_labels:
            self.append_names(block)
        if b.code:
            raise self.error(block)
        if b.rows == 0:
            self.lines += b.lines
            return
        if self.short and b.largest - b.base > LARGEST_SHORT:
            self.indices.widen[uint16_t](0)
            self.short = False
        if self.single and not block.single and not are_floats(<double*> b.data, b.features):
            self.data.widen[float](0)
            self.single = False
        self.text += b.size
        share = min(1.0, <double> self.text / self.total) if self.total else 0.5
        data = self.data.extend(b.features * (sizeof(float) if self.single else sizeof(double)), share)
        indices = self.indices.extend(b.features * (sizeof(uint16_t) if self.short else sizeof(int32_t)), share)
        row_ends = <int64_t*> self.indptr.extend(b.rows * sizeof(int64_t), share)
        if not b.text_labels:
            labels = self.labels.extend(b.rows * sizeof(double), share)
        with nogil:
            if self.single and not block.single:
                for i in range(b.features):
                    (<float*> data)[i] = <float> (<double*> b.data)[i]
            else:
                memcpy(data, b.data, b.features * (sizeof(float) if self.single else sizeof(double)))
            if self.short:
                for i in range(b.features):
                    (<uint16_t*> indices)[i] = <uint16_t> b.indices[i]
            else:
                memcpy(indices, b.indices, b.features * sizeof(int32_t))
            for i in range(b.rows):
                row_ends[i] = before + b.row_ends[i]
            if labels != NULL:
                memcpy(labels, b.labels, b.rows * sizeof(double))
        self.features += b.features
        if b.largest > self.largest:
            self.largest = b.largest
            self.place = self.path, self.lines + b.largest_line + 1, b.largest_column + 1
        self.lines += b.lines

    cdef object append_names(self, Block block):
        names = PyBytes_FromStringAndSize(<char*> block.b.names, block.b.names_size)
        try:
            self.names += names.decode().split("\n")
            self.names.pop()  # behind the last newline
        except UnicodeDecodeError as wrong:
            row = names.count(b"\n", 0, wrong.start)
            text = PyBytes_FromStringAndSize(<char*> block.text, block.b.size)
            for number, line in enumerate(text[block.b.start:].split(b"\n"), 1):
                token = line.lstrip(b" \t\r")
                row -= token[:1] not in (b"", b"#")
                if row < 0:
                    column = len(line) - len(token) + 1 + (block.b.start if number == 1 else 0)
                    reason = f"label {quoted(token)} is not UTF-8 text"
                    raise DataError(self.path, self.lines + number, column, reason) from None

    cdef object error(self, Block block):
        cdef block_t* b = &block.b
        token = PyBytes_FromStringAndSize(<char*> block.text + b.at, b.size - b.at)
        reason = REASONS[b.code].format(
            token=quoted(token), last=b.last, base=b.base, limit=b.limit, n_features=self.n_features,
            dtype=self.dtype,
        )
        return DataError(self.path, self.lines + b.lines + 1, b.at - b.line_start + 1, reason)

    def finish(self):
        """LibsvmData of all rows; labels become int64 if each is a whole number."""
        cdef Py_ssize_t i, rows = self.indptr.size // sizeof(int64_t) - 1
        cdef double* numbers = <double*> self.labels.start
        cdef int64_t* integers = <int64_t*> self.labels.start
        cdef bint whole = True
        if rows == 0:
            only = "only comments or blank lines" if self.lines else "it is empty"
            raise DataError(self.path, 0, 0, f"the file has no rows: {only}")
        labels = self.names
        if not labels:
            for i in range(rows):
                whole = whole and numbers[i] == <double> <int64_t> numbers[i]
            if whole:
                for i in range(rows):
                    integers[i] = <int64_t> numbers[i]
            labels = self.labels.view(INT64 if whole else "d")
        n_features = self.largest - self.base + 1 if self.n_features is None else self.n_features
        return LibsvmData(self.data.view("f" if self.single else "d"), self.indices.view("H" if self.short else "i"),
                          self.indptr.view(INT64), labels, n_features, self.place)


def quoted(text):
    """The first word of bytes as a message shows it."""
    words = text[:1000].replace(b"#", b" ").split(maxsplit=1)
    word = (words[0] if words else b"").decode(errors="backslashreplace")
    word = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in word)
    return f"'{word}'" if len(word) <= 40 else f"'{word[:39]}...'"


class Joined(io.RawIOBase):
    """The bytes that were read to look at them, then the rest of the stream."""

    def __init__(self, head, readinto):
        self.head, self.rest = head, readinto

    def readable(self):
        return True

    def readinto(self, room):
        if not self.head:
            return self.rest(room)
        n = min(len(self.head), len(room))
        room[:n] = self.head[:n]
        self.head = self.head[n:]
        return n


class Checked:
    """readinto of a decompressor, whose complaints become a DataError; a failing disk stays an OSError."""

    def __init__(self, path, readinto, complaints):
        self.path, self.inner, self.complaints = path, readinto, complaints

    def __call__(self, room):
        try:
            return self.inner(room)
        except self.complaints as wrong:
            if isinstance(wrong, OSError) and wrong.errno is not None:
                raise
            reason = f"the compressed data are damaged or cut short: {wrong}"
            raise DataError(self.path, 0, 0, reason) from wrong


def decompressed(path, head, readinto):
    """readinto and first bytes of the stream that begins with `head`, decompressed if these say so."""
    if head[:3] == b"\x1f\x8b\x08":
        import gzip
        import zlib

        opener, complaints = gzip.open, (EOFError, OSError, zlib.error)
    elif head[:3] == b"BZh" and head[4:] in (b"1AY&SY", b"\x17rE8P\x90"):
        import bz2

        opener, complaints = bz2.open, (EOFError, OSError)
    elif head[:6] == b"\xfd7zXZ\x00":
        import lzma

        opener, complaints = lzma.open, (EOFError, lzma.LZMAError)
    elif head[:4] == b"\x28\xb5\x2f\xfd":
        opener, complaints = zstd(path)
    else:
        return readinto, head
    stream = opener(io.BufferedReader(Joined(head, readinto), BLOCK_SIZE), "rb")
    return Checked(path, stream.readinto, complaints), b""


def zstd(path):
    try:
        from compression import zstd
    except ImportError:
        try:
            import zstandard
        except ImportError:
            raise DataError(path, 0, 0, "zstd data need Python 3.14 or the package zstandard "
                                        "(pip install zstandard)") from None
        return zstandard.open, (EOFError, zstandard.ZstdError)
    return zstd.open, (EOFError, zstd.ZstdError)


def by_copy(read):
    """readinto of a file object that has only read."""
    def readinto(room):
        text = read(len(room))
        if text is None:
            return None
        if not isinstance(text, (bytes, bytearray, memoryview)):
            kind = type(text).__name__
            raise TypeError(f"source.read() gave {kind}, not bytes: open the file in binary mode")
        room[:len(text)] = text
        return len(text)

    return readinto


@contextmanager
def opened(source):
    """(name, readinto, size) of a source; size is None unless it is a plain file given by its path."""
    if isinstance(source, (str, bytes, os.PathLike)):
        path = os.fsdecode(source)
        if path == "-":
            if sys.stdin is None:
                raise OSError(errno.EBADF, "there is no standard input")
            yield "<stdin>", sys.stdin.buffer.readinto, None
            return
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            yield path, file.readinto, status.st_size if stat.S_ISREG(status.st_mode) else None
    elif isinstance(source, io.TextIOBase):
        raise TypeError("source is a text file: open it in binary mode")
    elif hasattr(source, "read"):
        name = getattr(source, "name", None)
        readinto = source.readinto if hasattr(source, "readinto") else by_copy(source.read)
        yield name if isinstance(name, str) else "<file object>", readinto, None
    else:
        raise TypeError(f"source is a {type(source).__name__}; a path, '-' or a binary file object is needed")


def read_libsvm(source, *, n_features=None, zero_based=False, dtype="float64", compact=False,
                text_labels=False, threads=None, progress=None, _block_size=BLOCK_SIZE):
    """Read a file in LIBSVM format, in one pass.

    Parameters
    ----------
    source : str, path, or binary file object
        `-` is standard input. Pipes will do; gzip, bzip2, xz and zstd data are known by their first bytes.
    n_features : int, default=None
        Number of columns; an index above it is an error. None takes the largest index of the file.
    zero_based : bool, default=False
        Indices of the file count from 0, not from 1. It is never guessed.
    dtype : {"float64", "float32"}, default="float64"
        Values are rounded once, from the decimal to this type.
    compact : bool, default=False
        Hold indices as uint16 where there are at most 2^16 features, and float64 values as float32 where these are
        the same numbers: all of them, as in a table of counts. Nothing is lost.
    text_labels : bool, default=False
        Keep labels as the text in the file.
    threads : int, default=None
        Threads at work, the calling one included; a small file takes one. None: one for each core this
        process may use. The result is the same for any number.
    progress : callable, default=None
        Called as progress(bytes_done, bytes_total) at most ten times a second and at the end, in the calling
        thread. bytes_total is None where it is not known; of compressed files, what came out is counted.

    Returns
    -------
    LibsvmData
        Zeros that the file states are kept. Labels are int64 if each is a whole number, else float64, and str
        if `text_labels`.

    Raises
    ------
    DataError
        With line and column of the first thing in the file that is wrong.
    OSError
        The file cannot be read.
    ValueError, TypeError
        A parameter is outside its domain, or of another type.
    """
    return read_views(source, n_features=n_features, zero_based=zero_based, dtype=dtype, compact=compact,
                      text_labels=text_labels, threads=threads, progress=progress, _block_size=_block_size).arrays()


def read_views(source, *, n_features=None, zero_based=False, dtype="float64", compact=False, text_labels=False,
               threads=None, progress=None, _block_size=BLOCK_SIZE):
    """`read_libsvm`, with memoryviews in place of arrays, and a list of text labels: without NumPy."""
    if not isinstance(dtype, str) or dtype not in FLOATS:
        import numpy as np

        try:
            dtype = str(np.dtype(dtype))
        except (TypeError, ValueError):
            raise refusal("dtype", dtype, "float64 or float32") from None
        if dtype not in FLOATS:
            raise refusal("dtype", dtype, "float64 or float32", ValueError)
    n_features = None if n_features is None else N_FEATURES.check(n_features)
    threads = default_threads() if threads is None else THREADS.check(threads)
    zero_based, text_labels = check_flag("zero_based", zero_based), check_flag("text_labels", text_labels)
    check_function("progress", progress)
    rows = None
    with closing(each_block(source, zero_based, n_features, dtype, text_labels, threads, progress,
                            _block_size)) as blocks:
        for path, total, block in blocks:
            if rows is None:
                rows = Rows(path, dtype, 0 if zero_based else 1, n_features, total, compact)
            rows.append(block)
    return rows.finish()


def libsvm_blocks(source, *, zero_based=False, text_labels=False, threads=None, progress=None,
                  _block_size=BLOCK_SIZE):
    """Yield the rows of a file in LIBSVM format some at a time, in memory that does not grow with the file.

    Parameters are those of `read_libsvm`. Each LibsvmData has the rows of some lines, as memoryviews, and as n_features
    its own largest index. DataError comes after the blocks before it; a file without rows is one too.
    """
    cdef Rows rows
    cdef Py_ssize_t lines = 0
    some = False
    if threads is None:
        threads = default_threads()
    dtype = "float64"
    with closing(each_block(source, zero_based, None, dtype, text_labels, threads, progress, _block_size)) as blocks:
        for path, _, block in blocks:
            rows = Rows(path, dtype, 0 if zero_based else 1, None, None)
            rows.lines = lines
            rows.append(block)
            lines = rows.lines
            if rows.indptr.size > <Py_ssize_t> sizeof(int64_t):
                yield rows.finish()
                some = True
    if not some:
        rows.finish()


def each_block(source, zero_based, n_features, dtype, text_labels, threads, progress, block_size):
    """Yield (name of the source, bytes in all or None, Block) in the order of the file.

    The caller must be done with one block when it asks for the next.
    """
    base = 0 if zero_based else 1
    limit = base - 1 + (LARGEST_INDEX if n_features is None else n_features)
    next_call = 0.0

    def make():
        return Block(block_size, dtype == "float32", text_labels, base, limit)

    with opened(source) as (path, readinto, size):
        head = beginning(readinto)
        readinto, rest = decompressed(path, head, readinto)
        lines = Lines(readinto, rest, block_size)
        total = size if rest is head else None
        with closing(parsed(lines, make, threads)) as blocks:
            for block in blocks:
                yield path, total, block
                if progress is not None and time.monotonic() >= next_call:
                    progress(lines.done, total)
                    next_call = time.monotonic() + 0.1
        if progress is not None:
            progress(lines.done, total)


def beginning(readinto):
    """The first 10 bytes, which tell how a stream is compressed; fewer if it is shorter."""
    head = bytearray(10)
    size = 0
    while size < len(head):
        with memoryview(head)[size:] as room:
            n = read_some(readinto, room)
        if n == 0:
            break
        size += n
    return bytes(head[:size])


def parsed(lines, make, threads):
    """Blocks in the order of the file, parsed; the caller must be done with one when it asks for the next.

    This thread reads, so that a signal interrupts a slow pipe, and parses while it has to wait; threads - 1
    others parse, or as many as can be had. What goes wrong in reading is raised after the blocks read before,
    so that an earlier error of theirs comes first.
    """
    block = make()
    more = lines.fill(block)
    if threads == 1 or not more:
        while True:
            block.parse()
            yield block
            if not more:
                return
            more = lines.fill(block)

    from queue import Empty, SimpleQueue

    jobs, done, waiting, spare, failure = SimpleQueue(), SimpleQueue(), deque(), [block], None
    workers = []
    try:
        workers.extend(started(lambda: work(jobs, done), threads - 1))
        jobs.put(block)
        waiting.append(spare.pop())
        spare += [make() for _ in range(threads + 1)]
        while waiting:
            while waiting and waiting[0].parsed:
                yield waiting[0]
                spare.append(waiting.popleft())
            if more and spare:
                block = spare.pop()
                try:
                    more = lines.fill(block)
                except Exception as wrong:
                    failure, more = wrong, False
                    continue
                waiting.append(block)
                jobs.put(block)
            elif waiting and not waiting[0].parsed:
                try:
                    jobs.get_nowait().parse()
                except Empty:
                    done.get()
        if failure is not None:
            raise failure
    finally:
        for _ in workers:
            jobs.put(None)
        for worker in workers:
            worker.join()


def work(jobs, done):
    while (block := jobs.get()) is not None:
        block.parse()
        done.put(None)


def load_libsvm(source, *, dtype="float64", n_features=None, zero_based=False, text_labels=False,
                threads=None):
    """Read a file in LIBSVM format into a sparse matrix and its labels.

    Parameters
    ----------
    source : str, path, or binary file object
        `-` is standard input. Pipes will do; gzip, bzip2, xz and zstd data are known by their first bytes.
    dtype : {float64, float32}, default=float64
        Values are rounded once, from the decimal to this type.
    n_features : int, default=None
        Number of columns; an index above it is an error. None takes the largest index of the file.
    zero_based : bool, default=False
        Indices of the file count from 0, not from 1. It is never guessed.
    text_labels : bool, default=False
        Keep labels as the text in the file.
    threads : int, default=None
        Threads at work; None: one for each core this process may use. The result is the same for any
        number, and several calls may run at once.

    Returns
    -------
    X : scipy.sparse.csr_array of shape (rows, n_features)
        Indices are int32 unless there are 2^31 nonzeros or more. Zeros that the file states are kept.
    y : int64, float64 or str array of shape (rows,)
        int64 if each label is a whole number, else float64; str if `text_labels`.

    Raises
    ------
    DataError
        With line and column of the first thing in the file that is wrong.
    OSError
        The file cannot be read.
    ValueError, TypeError
        A parameter is outside its domain, or of another type.
    """
    import numpy as np
    from scipy.sparse import csr_array

    read = read_libsvm(source, n_features=n_features, zero_based=zero_based, dtype=dtype,
                       text_labels=text_labels, threads=threads)
    indptr = read.indptr if len(read.data) > LARGEST_INDEX else read.indptr.astype(np.int32)
    X = csr_array((read.data, read.indices, indptr), shape=(len(read.labels), read.n_features))
    X.has_canonical_format = True  # the parser has seen that indices rise
    return X, read.labels


ROWS_AT_ONCE = 4096


def dump_libsvm(X, y, target, *, zero_based=False, comment=None):
    """Write rows and labels in LIBSVM format, so that reading them gives the same numbers.

    Parameters
    ----------
    X : array or sparse array of shape (rows, columns)
        Zeros are left out, entries at the same place added, rows sorted; X itself is not changed. float32
        values are written with the digits that tell them from other float32.
    y : array of shape (rows,)
        Bools, which become 0 and 1, integers, other numbers, or text of one word: see `marginlinear.data.labels`.
    target : str, path, or binary file object
        `-` is standard output. A path that ends in .gz, .bz2 or .xz is compressed. A file appears under its
        name when it is complete: a failure leaves what was there.
    zero_based : bool, default=False
        Count indices from 0, not from 1.
    comment : str, default=None
        Written at the top, each line after `# `.

    Raises
    ------
    ValueError, TypeError
        A value is not finite, or would not read back as the same number; X does not hold together; an argument is of
        another kind. Nothing is written.
    OSError
        The file cannot be written.
    """
    if not hasattr(target, "write"):
        check_path("target", target)
    if not isinstance(comment, (str, type(None))):
        raise refusal("comment", comment, "text, or None")
    zero_based = check_flag("zero_based", zero_based)
    X = rows_of(X)
    labels = labels_of(y, X.shape[0])
    base = 0 if zero_based else 1
    head = "".join(f"# {line}\n" for line in comment.splitlines()) if comment else ""
    with created(target) as write:
        write(head.encode())
        for start in range(0, X.shape[0], ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, X.shape[0])
            write(rows_text(*compressed(X, start, stop), labels[start:stop], base))


def rows_of(X):
    """X as `held` has it, of at least one row of finite numbers that float64 holds."""
    import numpy as np

    from marginlinear.data.arrays import CSR, held

    table = held(X)
    if table.shape[0] == 0:
        raise ValueError(f"X has shape {table.shape}; at least one row is needed")
    # The door makes float64 of a sparse array's values, and sees that they are finite.
    values = table.data if isinstance(table, CSR) else table
    dtype = getattr(X, "dtype", values.dtype) if isinstance(table, CSR) else values.dtype
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"X has dtype {dtype}; real numbers that float64 holds are needed")
    if dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("X holds nan or infinity")
    if dtype.kind in "iu" and dtype.itemsize == 8 and values.size:
        largest = max(int(values.max()), -int(values.min()))
        if largest >= 2**53:
            raise ValueError(f"X holds a number of the size of {largest}, not below 2^53, where float64 begins to skip "
                             "whole numbers")
    return table


def compressed(X, start, stop):
    """Row ends, indices and values of rows start to stop, as float32 if X is that, else float64."""
    import numpy as np

    if hasattr(X, "indptr"):
        indptr = X.indptr[start:stop + 1].astype(np.int64)
        part = slice(indptr[0], indptr[stop - start])
        indices, values = X.indices[part], X.data[part]
        indptr -= indptr[0]
    else:
        rows, indices = np.nonzero(X[start:stop])
        values = np.asarray(X[start:stop])[rows, indices]
        indptr = np.searchsorted(rows, np.arange(stop - start + 1))
    dtype = np.float32 if values.dtype == np.float32 else np.float64
    return indptr.astype(np.int64), indices.astype(np.int64), np.ascontiguousarray(values, dtype)


def labels_of(y, rows):
    """A float64 array, or a list of bytes; ValueError if a label would read back differently."""
    import numpy as np

    from marginlinear.data.labels import labels_of, require_words

    y = labels_of(y)
    if y.shape != (rows,):
        raise ValueError(f"y has shape {y.shape}, X has {rows} rows")
    if y.dtype.kind == "U":
        require_words(set(y.tolist()))
        return [label.encode() for label in y.tolist()]
    if int(y.min()) <= -(2**53) or int(y.max()) >= 2**53:
        raise ValueError("y holds a number not below 2^53, which would not read back; make it text")
    return y.astype(np.float64)


def rows_text(const int64_t[::1] indptr, const int64_t[::1] indices, const real[::1] values, labels,
              int base):
    """The lines of some rows; ValueError for arrays that do not fit each other, as whoever has them can change them."""
    cdef Py_ssize_t rows = indptr.shape[0] - 1, i, k, room
    cdef int64_t beyond = LARGEST_INDEX
    cdef const double[::1] numbers = None
    cdef const unsigned char[::1] names = None
    cdef const int64_t[::1] ends = None
    cdef Py_ssize_t begin = 0
    cdef unsigned char* text
    cdef unsigned char* out
    if rows < 0 or len(labels) != rows or values.shape[0] != indices.shape[0]:
        raise ValueError(f"{len(labels)} labels, {rows} rows, {indices.shape[0]} indices, {values.shape[0]} values")
    for i in range(rows):
        if not 0 <= indptr[i] <= indptr[i + 1] <= indices.shape[0]:
            raise ValueError(f"indptr of row {i} does not fit: {indptr[i]} to {indptr[i + 1]}")
    for k in range(indices.shape[0]):
        if not 0 <= indices[k] < beyond:
            raise ValueError(f"column {indices[k]} is outside those that can be read, 0 to {beyond - 1}")
    room = rows * (DOUBLE_WIDTH + 1) + indices.shape[0] * (DOUBLE_WIDTH + 12) + 2 * GUARD
    if isinstance(labels, list):
        import numpy as np

        names = b"".join(labels) + b"\n"
        ends = np.cumsum([len(label) for label in labels], dtype=np.int64)
        room += names.shape[0]
    else:
        numbers = labels
    text = <unsigned char*> malloc(room)
    if text == NULL:
        raise MemoryError()
    try:
        with nogil:
            out = text
            for i in range(rows):
                if numbers is not None:
                    # + 0.0: a label -0 is 0
                    out = write_double(out, numbers[i] + 0.0)
                else:
                    memcpy(out, &names[begin], ends[i] - begin)
                    out += ends[i] - begin
                    begin = ends[i]
                for k in range(indptr[i], indptr[i + 1]):
                    if values[k] == 0:
                        continue
                    out[0] = c' '
                    out = write_integer(out + 1, indices[k] + base)
                    out[0] = c':'
                    if real is float:
                        out = write_float(out + 1, values[k])
                    else:
                        out = write_double(out + 1, values[k])
                    check(out - text, room - GUARD)
                out[0] = c'\n'
                out += 1
        return PyBytes_FromStringAndSize(<char*> text, out - text)
    finally:
        free(text)


@contextmanager
def created(target):
    """The write function of a target; a path is replaced at the end, or not at all."""
    if hasattr(target, "write"):
        if isinstance(target, io.TextIOBase):
            raise TypeError("target is a text file: open it in binary mode")
        yield target.write
        return
    path = os.fsdecode(target)
    with replacing(path) as file, compressor(path, file) as stream:
        yield stream.write


def compressor(path, file):
    """A context manager: what is written to it goes to `file`, compressed as the name of the path says."""
    if path.endswith(".gz"):
        import gzip

        return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
    if path.endswith(".bz2"):
        import bz2

        return bz2.open(file, "wb")
    if path.endswith(".xz"):
        import lzma

        return lzma.open(file, "wb")
    return nullcontext(file)
