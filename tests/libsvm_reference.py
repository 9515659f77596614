"""A slow reader of LIBSVM text by regular expressions, with which tests and fuzzer compare the library's."""

import math
import re
from fractions import Fraction

import numpy as np

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
TOKEN = re.compile(rb"[^ \t\r]+")
LARGEST = np.finfo(np.float32).max


class Wrong(Exception):
    """line and column, both from 1."""

    def __init__(self, line, column):
        super().__init__(line, column)
        self.place = line, column


def number(token, place):
    if not NUMBER.match(token) or not math.isfinite(float(token)):
        raise Wrong(*place)
    return float(token)


def single_number(token, place):
    """The float32 next to the decimal, which is not always the one next to the float64 next to it."""
    value = number(token, place)
    if abs(value) >= 2.0**129:
        raise Wrong(*place)
    with np.errstate(over="ignore"):
        near = min(max(np.float32(value), -LARGEST), LARGEST)
        ends = [np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf)]
    # Where float32 ends, the next number counts as if it went on: what is rounded to that is too large.
    there = [near, *(math.copysign(2.0**128, end) if np.isinf(end) else end for end in ends)]
    found = float(near)
    if value in [(float(near) + float(end)) / 2 for end in there[1:]] or abs(value) > LARGEST:
        exact = Fraction(token.decode())
        found = float(min(there, key=lambda x: (abs(exact - Fraction(float(x))), is_odd(x))))
    if abs(found) >= 2.0**128:
        raise Wrong(*place)
    return math.copysign(found, value)


def is_odd(x):
    return isinstance(x, np.float32) and bool(x.view(np.uint32) & 1)


def label_of(token, place, words, column):
    """`column`, where the row's labels begin, is named for one that is no UTF-8."""
    if words:
        if re.match(rb"\d+:", token) or min(token, default=0) < 32:
            raise Wrong(*place)
        try:
            return token.decode()
        except UnicodeDecodeError:
            raise Wrong(place[0], column) from None
    label = number(token, place)
    if abs(label) >= 2**53:
        raise Wrong(*place)
    return label


def told_by(label, line, several):
    """(whether labels are words, whether rows have several, unless that is known) of the first label and its line."""
    if several is None:
        several = b"," in label and b":" in line.split(b"#")[0]
    first = label.split(b",")[0] if several else label
    letter = re.match(rb"[A-Za-z_\x80-\xff]", first)
    return bool(letter) and first.lower() not in (b"nan", b"inf", b"infinity") and b":" not in first, several


def read(data, zero_based=False, text_labels=None, multilabel=None, single=False):
    """labels, [[(column, value), ...], ...]; Wrong with the place of the first error, (0, 0) for no rows.

    With `single`, values are those of float32. Labels of several a row are sorted tuples.
    """
    value_of = single_number if single else number
    words, several, guessed = text_labels, multilabel, False
    labels, rows = [], []
    for line_number, line in enumerate(data.split(b"\n"), 1):
        offset = 0
        if line_number == 1 and line.startswith(b"\xef\xbb\xbf"):
            line, offset = line[3:], 3
        text, comment, _ = line.partition(b"#")
        matches = [*TOKEN.finditer(text)]
        tokens = [(match.group(), match.start() + 1 + offset) for match in matches]
        if not tokens:
            continue
        (token, column), features = tokens[0], tokens[1:]
        found = []
        cut = comment and matches[0].end() == len(text)
        if several and re.match(rb"\d+:", token):
            if column == 1 + offset:
                raise Wrong(line_number, column)
            features = tokens
        else:
            if words is None or several is None:
                by_word, several = told_by(token, line, False if words and several is None else several)
                if words is None:
                    words = guessed = by_word
            first = column
            parts = token.split(b",") if several else [token]
            for number_of_part, part in enumerate(parts, 1):
                # A word would lose what stands behind the sign, and the row its features.
                if words and cut and number_of_part == len(parts):
                    raise Wrong(line_number, column)
                if guessed and (b"," in part or (NUMBER.match(part) and math.isfinite(float(part)))):
                    raise Wrong(line_number, column)
                found.append(label_of(part, (line_number, column), words, first))
                column += len(part) + 1
        labels.append(tuple(sorted(set(found))) if several else found[0])
        row, last = [], -1
        for token, column in features:
            match = re.match(rb"(\d+):(.*)\Z", token, re.DOTALL)
            if not match:
                raise Wrong(line_number, column)
            index = int(match.group(1)) - (not zero_based)
            if index < 0 or index > 2**31 - 2 or index <= last or not match.group(2):
                raise Wrong(line_number, column)
            row.append((index, value_of(match.group(2), (line_number, column + match.start(2)))))
            last = index
        rows.append(row)
    if not rows:
        raise Wrong(0, 0)
    return labels, rows
