"""Blocks of whole lines in LIBSVM format, parsed without the GIL."""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memchr, memcpy, memset

from marginlinear._core.check cimport check
from marginlinear._core.decimal cimport (
    GUARD, NOT_A_NUMBER, NOT_FINITE, PARSED, ROUNDS_ONCE, TOO_LARGE, eight_digits, is_blank, is_digit, load_digits,
    other_bytes, parse_double, parse_float, text_t, zeros_below,
)

ctypedef fused real:
    float
    double


cdef enum:
    FINE
    END_OF_ROW
    LABEL_TEXT
    LABEL_MISSING
    LABEL_NUMBER
    LABEL_EMPTY
    LABEL_UNINDENTED
    LABEL_SEVERAL
    LABEL_OF_TABLE
    LABEL_INFINITE
    LABEL_LARGE
    LABEL_CONTROL
    LABEL_COMMENT
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
    LABEL_MISSING: "the row has no label before {token}; if rows may have none, or several, say --multilabel "
                   "(multilabel=True)",
    LABEL_NUMBER: "label {token} is a number, and the first label of the file a word; to read all as words, say "
                  "--text-labels (text_labels=True)",
    LABEL_EMPTY: "a label is missing beside a comma before {token}",
    LABEL_UNINDENTED: "the row has no label before {token}; a row of a multi-label file that has none begins with a "
                      "blank",
    LABEL_SEVERAL: "several labels {token}; if rows may have several, say --multilabel (multilabel=True), if commas "
                   "are parts of words, --text-labels (text_labels=True)",
    LABEL_OF_TABLE: "{token}: commas and no index:value, as in CSV; the commands read that from a file whose name "
                    "ends in .csv, with a header; or convert it, as by Python's table = numpy.loadtxt('old', delimiter="
                    "','); marginlinear.dump_libsvm(table[:, 1:], table[:, 0], 'new') where labels come first",
    LABEL_INFINITE: "label {token} is not finite",
    LABEL_LARGE: "label {token} is not below 2^53, where float64 begins to skip whole numbers; to read "
                 "labels as text, say --text-labels (text_labels=True)",
    LABEL_CONTROL: "label {token} holds a control character",
    LABEL_COMMENT: "label {token} ends at '#', which begins a comment; write a blank before a comment, and another "
                   "sign in a label",
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


# Where rows are told to have one label each.
ONE_LABEL = {
    LABEL_MISSING: "the row has no label before {token}",
    LABEL_SEVERAL: "several labels {token}: here each row is to have one",
}


cdef class Block:
    """Some whole lines, and the rows they hold once parsed.

    Attributes
    ----------
    text : bytearray
        The lines are `size` bytes of it from `start` on, behind which there is room for a newline and GUARD bytes.
    dtype : {"float64", "float32"}
        Of the values.
    base : int
        The first index of the file: 0 or 1.
    limit : int
        The last index that is allowed.
    text_labels, multilabel : bool or None
        Whether labels are words, and whether rows may have any number of them; None: as the first label tells, once
        `learn_kind` has seen it. Then the others are to be of its kind.
    data, indices, row_ends, labels : arrays
        What was parsed: `features` values and their indices, counted from 0; `rows` ends of rows, and `label_count`
        labels. There is room for all that `text` may hold.
    names : uint8 array
        Labels as text, a newline after each: `names_size` bytes.
    label_ends : int64 array
        Ends of the rows' labels, where `multilabel`.
    lines : int
        Those parsed, without that of an error.
    code : int
        The first error; 0 if there is none.
    place : int
        Where in `text` it is.
    largest, largest_line, largest_column : int
        The largest index as the file counts, base - 1 if there is none; where its feature begins, counted from 0.
    """

    cdef public Py_ssize_t start, size
    cdef public bint parsed
    cdef readonly bytearray text
    cdef readonly object dtype, data, indices, row_ends, labels, names, label_ends, text_labels, multilabel
    cdef readonly int32_t base
    cdef readonly int64_t limit, largest
    cdef readonly Py_ssize_t rows, features, names_size, label_count, lines, largest_line, largest_column
    cdef readonly int code
    cdef bint words, several, guessed
    cdef readonly Py_ssize_t place
    # The beginning of the error's line, and the index before it.
    cdef Py_ssize_t line_start
    cdef int64_t last

    def __init__(self, Py_ssize_t capacity, dtype, text_labels, multilabel, int base, int64_t limit):
        self.dtype, self.base, self.limit = dtype, base, limit
        self.text_labels, self.multilabel = text_labels, multilabel
        self.words, self.several = bool(text_labels), bool(multilabel)
        self.text = bytearray()
        self.grow(capacity)

    def grow(self, Py_ssize_t capacity):
        """Room for `capacity` bytes of lines and whatever they may hold; the text so far is kept.

        The least feature is ` 1:1`, the least row `1` and a newline. What is never written costs no memory.
        """
        features, rows = capacity // 4 + 1, capacity // 2 + 1
        if len(self.text) >= capacity + 1 + GUARD:
            return
        text = bytearray(capacity + 1 + GUARD)
        text[:len(self.text)] = self.text
        self.text = text
        self.data, self.indices = np.empty(features, self.dtype), np.empty(features, np.int32)
        self.row_ends, self.labels = np.empty(rows, np.int64), np.empty(rows)
        self._make_room(capacity)

    def _make_room(self, Py_ssize_t capacity):
        self.names = np.empty(capacity + 1 if self.words else 1, np.uint8)
        self.label_ends = np.empty(capacity // 2 + 1 if self.several else 1, np.int64)

    def learn_kind(self):
        """Parse, and take from the first label, where there is one, what was not told of labels.

        Commas in it are between several labels, where the line has features; a letter begins a word. Whatever else is
        no number is left to be an error.
        """
        self.parse()
        while self.label_count == 0 and self.code:
            if self.code == LABEL_SEVERAL and self.multilabel is None:
                self.several = True
            elif self.code == LABEL_TEXT and self.text_labels is None and begins_word(self.text[self.place]):
                self.words = self.guessed = True
            else:
                break
            if self.code == LABEL_TEXT:
                self.text_labels = True
            else:
                self.multilabel = True
            self._make_room(len(self.text) - 1 - GUARD)
            self.parse()

    def follow(self, Block first):
        """Take the labels to be what `first`, which has learned the kind, found."""
        self.text_labels, self.multilabel = first.text_labels, first.multilabel
        self.words, self.several, self.guessed = first.words, first.several, first.guessed
        self._make_room(len(self.text) - 1 - GUARD)

    def parse(self):
        if self.dtype == "float32":
            parse_into[float](self, self.data)
        else:
            parse_into[double](self, self.data)
        self.parsed = True

    def fault(self, n_features):
        """(column, counted from 1; reason) of the error, whose `code` is not 0."""
        token = first_word(self.text[self.place:self.size])
        reasons = REASONS if self.multilabel is not False else {**REASONS, **ONE_LABEL}
        reason = reasons[self.code].format(token=token, last=self.last, base=self.base, limit=self.limit,
                                           n_features=n_features, dtype=self.dtype)
        return self.place - self.line_start + 1, reason


def equal_values(Block b):
    """The value of each row, 0 for an empty one, as a float64 array; None where a row's values differ in a bit."""
    found = np.empty(b.rows)
    if b.dtype == "float32":
        return found if rows_equal[float](b, b.data, found) else None
    return found if rows_equal[double](b, b.data, found) else None


cdef bint rows_equal(Block b, const real[::1] data, double[::1] found):
    cdef const int64_t[::1] row_ends = b.row_ends
    cdef Py_ssize_t i, p, start = 0
    cdef uint64_t differ
    with nogil:
        for i in range(b.rows):
            differ = 0
            for p in range(start + 1, row_ends[i]):
                differ |= bits_of(data[p]) ^ bits_of(data[start])
            if differ:
                return False
            found[i] = data[start] if start < row_ends[i] else 0.0
            start = row_ends[i]
    return True


cdef inline uint64_t bits_of(real x) noexcept nogil:
    cdef uint64_t bits = 0
    memcpy(&bits, &x, sizeof(x))
    return bits


def begins_word(int byte):
    return chr(byte).isalpha() or byte == ord("_") or byte >= 128


def first_word(text):
    """The first word of bytes as a message shows it."""
    words = text[:1000].replace(b"#", b" ").split(maxsplit=1)
    word = (words[0] if words else b"").decode(errors="backslashreplace")
    word = "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in word])
    return f"'{word}'" if len(word) <= 40 else f"'{word[:39]}...'"


cdef parse_into(Block b, real[::1] data):
    cdef unsigned char[::1] text = b.text
    cdef unsigned char[::1] names = b.names
    cdef int32_t[::1] indices = b.indices
    cdef int64_t[::1] row_ends = b.row_ends
    cdef int64_t[::1] label_ends = b.label_ends
    cdef double[::1] labels = b.labels
    text[b.size] = c'\n'
    with nogil:
        memset(&text[b.size] + 1, 0, GUARD)
        parse_lines(b, &text[0], &data[0], &indices[0], &row_ends[0], &labels[0], &names[0], &label_ends[0])


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


cdef inline bint ends_label(Block b, unsigned char c) noexcept nogil:
    return ends_token(c) or (b.several and c == c',')


cdef inline bint begins_feature(text_t p) noexcept nogil:
    """Is this an index and a colon?"""
    cdef text_t start = p
    while is_digit(p[0]):
        p += 1
    return p > start and p[0] == c':'


cdef int commas(text_t p) noexcept nogil:
    """What a comma at p[0], where none may be, is wrong with: several labels of a row with features, or a table."""
    while p[0] != c'\n' and p[0] != c'#':
        if p[0] == c':':
            return LABEL_SEVERAL
        p += 1
    return LABEL_OF_TABLE


cdef int read_word(Block b, text_t* at, unsigned char* names) noexcept nogil:
    """The label at at[0], which is moved behind it, as text behind the names so far."""
    cdef text_t start = at[0]
    cdef text_t end = start
    cdef double number
    while not ends_label(b, end[0]):
        if end[0] < 32:
            return LABEL_CONTROL
        if b.guessed and end[0] == c',':
            return commas(end)
        end += 1
    if end == start:
        return LABEL_EMPTY
    if begins_feature(start):
        return LABEL_MISSING
    if end[0] == c'#':
        return LABEL_COMMENT
    if b.guessed and parse_double(start, at, &number) == PARSED and at[0] == end:
        at[0] = start
        return LABEL_NUMBER
    memcpy(names + b.names_size, start, end - start)
    b.names_size += end - start + 1
    names[b.names_size - 1] = c'\n'
    at[0] = end
    return FINE


cdef bint names_no_number(text_t p, text_t end) noexcept nogil:
    """Of what begins with nan or inf: is it that, or infinity, and no longer word?"""
    cdef const char* rest = b"inity"
    cdef int at = 0
    p += 3 + (p[0] == c'-' or p[0] == c'+')
    while p < end and at < 5 and p[0] | 32 == rest[at]:
        p += 1
        at += 1
    return p == end and (at == 0 or at == 5)


cdef int read_number(Block b, text_t* at, double* label) noexcept nogil:
    """The label at at[0], which is moved behind it."""
    cdef text_t start = at[0]
    cdef text_t end = start
    cdef text_t p = start
    cdef int code = parse_double(start, &end, label)
    if code == PARSED and ends_label(b, end[0]):
        if not -9007199254740992.0 < label[0] < 9007199254740992.0:
            return LABEL_LARGE  # 2^53 may be 2^53 + 1, rounded
        at[0] = end
        return FINE
    if code == TOO_LARGE:
        return LABEL_LARGE
    while not (ends_token(p[0]) or p[0] == c',' or p[0] == c':'):
        p += 1
    if code == NOT_FINITE and names_no_number(start, p):
        return LABEL_INFINITE
    if p[0] == c',' and not b.several:
        return commas(p)
    if p[0] == c':':
        return LABEL_MISSING
    return LABEL_EMPTY if p == start else LABEL_TEXT


cdef int read_label(Block b, text_t* at, double* labels, unsigned char* names) noexcept nogil:
    cdef int code
    check(b.label_count, b.size // 2 + 1)
    code = read_word(b, at, names) if b.words else read_number(b, at, labels + b.label_count)
    b.label_count += code == FINE
    return code


cdef int read_labels(Block b, text_t line, text_t* at, double* labels, unsigned char* names) noexcept nogil:
    """Those at at[0], which is moved behind them, with commas between; none where a blank begins the `line`."""
    cdef int code
    if begins_feature(at[0]):
        if at[0] == line:
            return LABEL_UNINDENTED
        at[0] -= 1
        return FINE
    while True:
        code = read_label(b, at, labels, names)
        if code != FINE or at[0][0] != c',':
            return code
        at[0] += 1


cdef int read_feature(Block b, text_t* at, int64_t* index, real* value) noexcept nogil:
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


cdef void parse_lines(Block b, text_t text, real* data, int32_t* indices, int64_t* row_ends, double* labels,
                      unsigned char* names, int64_t* label_ends) noexcept nogil:
    """Rows of the block's lines, up to the first error."""
    cdef text_t p = text + b.start
    cdef text_t stop = text + b.size
    cdef text_t line = text
    cdef text_t first = p
    cdef text_t q
    cdef Py_ssize_t k = 0
    cdef int64_t last, index
    cdef uint64_t x, others, whole
    cdef double number
    cdef bint negative
    cdef int code = FINE
    b.rows = b.names_size = b.label_count = b.lines = 0
    b.largest = b.base - 1
    while p < stop:
        while is_blank(p[0]):
            p += 1
        if p[0] != c'\n' and p[0] != c'#':
            last = b.base - 1
            code = (read_labels(b, first, &p, labels, names) if b.several else
                    read_label(b, &p, labels, names))
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
            row_ends[b.rows] = k
            if b.several:
                label_ends[b.rows] = b.label_count
            b.rows += 1
            if last > b.largest:
                b.largest = last
                b.largest_line = b.lines
                b.largest_column = last_token(line, p) - line
        if p[0] == c'#':
            p = <text_t> memchr(p, c'\n', stop - p + 1)
        p += 1
        line = first = p
        b.lines += 1
        code = FINE
    b.features = k
    b.code = code
    b.place = p - text
    b.line_start = line - text
    b.last = last if code else 0
