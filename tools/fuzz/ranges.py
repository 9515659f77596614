"""Range files of margin-scale and svm-scale: refused in words, or ranges that scale rows to finite numbers and that are
the same once written and read again. The first byte of an input says whether features count from 0."""

import os
import tempfile

import numpy as np

from marginlinear.arrays import CSR
from marginlinear.cli.scale import ranges_lines, read_ranges
from marginlinear.problem import DataError
from tools.fuzz import text

WORDS = [b"x", b"y", b"1 0 1", b"-1 1", b"0 1", b"1 -1e308 1e308", b"3 5e-324 1e-323", b"2 1 1"]
TEXTS = [b"x\n-1 1\n1 0 1\n3 -2.5 2.5\n", b"y\n0 1\n1 3\nx\n-1 1\n2 0 1e5\n", b"x\n0 1\n0 0 1\n1 1 2\n7 -1e-3 1e300\n",
         b"x\r\n-1 1\r\n1 0 17\r\n"]
ROWS = CSR(np.array([0.5, -1.0, 2.0, 1e300]), np.array([0, 2, 1, 6], dtype=np.int32), np.array([0, 2, 4]), 7)


def seeds():
    return [bytes([base]) + sample for base in (0, 1) for sample in TEXTS]


def mutate(rng, data, other):
    return bytes([rng.randrange(2)]) + text.mutate(rng, data[1:], other[1:], WORDS)


def check(data):
    base = data[0] % 2 if data else 0
    path = os.path.join(tempfile.gettempdir(), f"ranges-{os.getpid()}")
    try:
        scaling, labels, listed = read(path, data[1:], base)
    except DataError as error:
        return text.shape_of(error.reason)
    except MemoryError:
        return "memory"
    lines = "".join(ranges_lines(scaling, labels, base))
    again, again_labels, _ = read(path, lines.encode(), base)
    kept = np.flatnonzero(scaling.least < scaling.most)
    for ends in ("least", "most"):
        assert getattr(again, ends)[kept].tolist() == getattr(scaling, ends)[kept].tolist(), ends
    assert (again.lower, again.upper) == (scaling.lower, scaling.upper)
    assert (labels is None) == (again_labels is None)
    if len(listed) < 100:
        for part in scaling.parts(ROWS):
            values = part.data if isinstance(part, CSR) else part
            inside = values[np.abs(values) < 1e290]
            assert np.isfinite(inside).all()
    return len(kept) > 2, labels is None, len(listed) < 100


def read(path, content, base):
    with open(path, "wb") as stream:
        stream.write(content)
    return read_ranges(path, base)
