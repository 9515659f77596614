"""A slow reader of LIBSVM text by regular expressions, with which tests and fuzzer compare the library's."""

import math
import re

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
TOKEN = re.compile(rb"[^ \t\r]+")


class Wrong(Exception):
    """line and column, both from 1."""

    def __init__(self, line, column):
        super().__init__(line, column)
        self.place = line, column


def number(token, place):
    if not NUMBER.match(token) or not math.isfinite(float(token)):
        raise Wrong(*place)
    return float(token)


def read(data, zero_based=False, text_labels=False):
    """labels, [[(column, value), ...], ...]; Wrong with the place of the first error, (0, 0) for no rows."""
    labels, rows = [], []
    for line_number, line in enumerate(data.split(b"\n"), 1):
        offset = 0
        if line_number == 1 and line.startswith(b"\xef\xbb\xbf"):
            line, offset = line[3:], 3
        matches = TOKEN.finditer(line.split(b"#")[0])
        tokens = [(match.group(), match.start() + 1 + offset) for match in matches]
        if not tokens:
            continue
        (token, column), features = tokens[0], tokens[1:]
        if text_labels:
            if re.match(rb"\d+:", token) or min(token) < 32:
                raise Wrong(line_number, column)
            try:
                labels.append(token.decode())
            except UnicodeDecodeError:
                raise Wrong(line_number, column) from None
        else:
            labels.append(number(token, (line_number, column)))
            if abs(labels[-1]) >= 2**53:
                raise Wrong(line_number, column)
        row, last = [], -1
        for token, column in features:
            match = re.match(rb"(\d+):(.*)\Z", token, re.DOTALL)
            if not match:
                raise Wrong(line_number, column)
            index = int(match.group(1)) - (not zero_based)
            if index < 0 or index > 2**31 - 2 or index <= last or not match.group(2):
                raise Wrong(line_number, column)
            row.append((index, number(match.group(2), (line_number, column + match.start(2)))))
            last = index
        rows.append(row)
    if not rows:
        raise Wrong(0, 0)
    return labels, rows
