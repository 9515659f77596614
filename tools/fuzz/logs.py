"""Logs of runs (margin-plot convergence), tables of searches (margin-plot search) and logs of searches (--resume):
each is refused in words, or used. The first letter of an input says as which of the three it is taken."""

import io
import os
import tempfile
import warnings
from contextlib import redirect_stderr
from importlib.util import find_spec
from zlib import crc32

import numpy as np

from marginlinear.errors import DataError
from marginlinear.selection import search, tables
from tools.fuzz import text

WORDS = [b"n_iter", b"seconds", b"objective", b"certificate", b"residual", b"status", b"tol", b"fold", b"score",
         b"params", b"search", b"fixed", b"grid", b"null", b"true", b"NaN", b"Infinity", b"-Infinity", b"{}", b"[]",
         b'"converged"', b'"max_iter"', b'"x"', b"1e400", b"5", b"fold_1", b"C", b"mu"]
DRAWN = 64  # one in so many, of those that can be read, becomes a picture
X, Y = np.array([[1.0, 0], [2, 0], [0, 1], [0, 2], [1, 0.5], [0.5, 1]]), np.array([1, 1, 2, 2, 1, 2])


def seeds():
    """A log of this version: others are refused by their first line."""
    path = path_of("seed")
    searched(log=path)
    with open(path, "rb") as stream:
        return [b"s" + stream.read()]


def mutate(rng, data, other):
    kind = data[:1] if rng.random() < 0.98 else rng.choice([b"l", b"t", b"s"])
    return kind + text.mutate(rng, data[1:], other[1:], WORDS)


def check(data):
    path = path_of("log.csv")
    with open(path, "wb") as stream:
        stream.write(data[1:])
    kind = data[:1]
    try:
        if kind == b"s":
            found = searched(resume=path)
            for row in found.table:
                scores = [row["score"], *row["fold_scores"]]
                assert all(np.isnan(score) or 0 <= score <= 1 for score in scores), f"scores {scores}"
            return "resumed", len(found.table)
        outcome = len(tables.read_log(path)) if kind == b"l" else min(len(tables.read_table(path)[0]), 8)
    except DataError as error:
        return text.shape_of(error.reason)
    if crc32(data) % DRAWN == 0 and find_spec("matplotlib"):
        draw("convergence" if kind == b"l" else "search", path)
    return kind, outcome


def searched(**how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return search(X, Y, solver="l2svc", grid={"C": [0.5, 1]}, folds=2, refit=False, threads=1, **how)


def draw(kind, path):
    from marginlinear.cli import plot

    told = io.StringIO()
    with redirect_stderr(told), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = plot.main([kind, "--dpi", "20", "-o", path_of("picture.png"), path])
    assert status in (0, 1) and (status == 0 or path in told.getvalue()), f"status {status}: {told.getvalue()}"


def path_of(name):
    return os.path.join(tempfile.gettempdir(), f"{os.getpid()}-{name}")
