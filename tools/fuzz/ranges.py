"""Range files of margin-scale and svm-scale: refused in words, or ranges of features that are the same once written and
read again. The first byte of an input says whether features count from 0."""

import os
import tempfile

import numpy as np

from marginlinear.cli.output import Failure
from marginlinear.cli.scale import ranges_lines, read_ranges
from marginlinear.errors import DataError
from tools.fuzz import text

WORDS = [b"x", b"y", b"1 0 1", b"-1 1", b"0 1", b"1 -1e308 1e308", b"3 5e-324 1e-323", b"2 1 1"]
TEXTS = [b"x\n-1 1\n1 0 1\n3 -2.5 2.5\n", b"y\n0 1\n1 3\nx\n-1 1\n2 0 1e5\n", b"x\n0 1\n0 0 1\n1 1 2\n7 -1e-3 1e300\n",
         b"x\r\n-1 1\r\n1 0 17\r\n"]


def seeds():
    return [bytes([base]) + sample for base in (0, 1) for sample in TEXTS]


def mutate(rng, data, other):
    return bytes([rng.randrange(2)]) + text.mutate(rng, data[1:], other[1:], WORDS)


def check(data):
    base = data[0] % 2 if data else 0
    path = os.path.join(tempfile.gettempdir(), f"ranges-{os.getpid()}")
    try:
        scaling, labels, features = read(path, data[1:], base)
    except DataError as error:
        return text.shape_of(error.reason)
    except Failure as error:  # which the command tells, as it does the others
        return text.shape_of(str(error))
    kept = np.flatnonzero(scaling.least < scaling.most)
    assert (scaling.image(scaling.least, np.arange(len(features)))[kept] == scaling.lower).all()
    # What is written counts the features by their places.
    again, again_labels, places = read(path, "".join(ranges_lines(scaling, labels, base)).encode(), base)
    assert places.tolist() == kept.tolist()
    for ends in ("least", "most"):
        assert getattr(again, ends).tolist() == getattr(scaling, ends)[kept].tolist(), ends
    assert (again.lower, again.upper) == (scaling.lower, scaling.upper)
    assert (labels is None) == (again_labels is None)
    return min(len(kept), 3), labels is None


def read(path, content, base):
    with open(path, "wb") as stream:
        stream.write(content)
    return read_ranges(path, base)
