"""One against one without its zeros: a column for each pair of classes i < j, (0, 1), (0, 2), ..., (1, 2), ...

A column has the code +1 for i, -1 for j and 0 for the others, and coefficients for support vectors of i and j alone. As
arrays, codes and coefficients of k classes grow with k^3, nearly all of it zeros. Here the codes are not kept, and the
coefficients as LIBSVM's files have them: a support vector of class i has k - 1, for the pair with j in place j - 1 or,
where j < i, in place j.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from marginlinear._typing import FloatArray, Int8Array, IntArray, IntpArray

# Rows of each class.
Counts: TypeAlias = "Sequence[int] | IntArray"


def column_count(k: int) -> int:
    return k * (k - 1) // 2


def first_column(i: Any, k: int) -> Any:
    """The column of the pair (i, i + 1); those of (i, i + 2), ... follow it."""
    return i * (2 * k - i - 1) // 2


def columns_of(i: int, k: int) -> IntpArray:
    """The columns of the pairs of class i, int array of shape (k - 1,): in the order of their places."""
    below = np.arange(i)
    return np.concatenate((first_column(below, k) + i - 1 - below, first_column(i, k) + np.arange(k - 1 - i)))


def are_codes(codes: Int8Array) -> bool:
    """Whether the codes, int8 array of shape (k, columns), are those of one against one for more than two classes."""
    k, columns = codes.shape
    if k < 3 or columns != column_count(k) or np.count_nonzero(codes) != k * (k - 1):
        return False
    return all((codes[i, columns_of(i, k)] == np.where(np.arange(k - 1) < i, -1, 1)).all() for i in range(k))


def votes(scores: FloatArray, k: int) -> FloatArray:
    """Votes for each class, float64 array of shape (m, k): a score above 0 is one for i, another for j."""
    found = np.zeros((len(scores), k))
    for i in range(k - 1):
        first = first_column(i, k)
        won = scores[:, first:first + k - 1 - i] > 0
        found[:, i] += np.count_nonzero(won, axis=1)
        found[:, i + 1:] += ~won
    return found


def packed(coefficients: FloatArray, counts: Counts) -> FloatArray | None:
    """Coefficients of shape (n, columns) in their places: shape (n, k - 1), or None where one has no place.

    The rows are grouped by class; `counts` says how many each class has.
    """
    k = len(counts)
    out = np.empty((len(coefficients), k - 1))
    for i, rows in _groups(counts):
        out[rows] = coefficients[rows][:, columns_of(i, k)]
    return out if np.count_nonzero(out) == np.count_nonzero(coefficients) else None


def unpacked(places: FloatArray, counts: Counts) -> FloatArray:
    """What `packed` was given."""
    k = len(counts)
    out = np.zeros((len(places), column_count(k)))
    for i, rows in _groups(counts):
        out[rows, columns_of(i, k)] = places[rows]
    return out


def add_scores(scores: FloatArray, values: FloatArray, places: FloatArray, counts: Counts, low: int,
               high: int) -> None:
    """scores += values @ unpacked(places, counts)[low:high], by classes: each costs k - 1 products a row.

    Parameters
    ----------
    scores : float64 array of shape (m, columns)
    values : float64 array of shape (m, high - low)
        Kernel values of the support vectors low to high.
    """
    k = len(counts)
    for i, rows in _groups(counts):
        part = slice(max(rows.start, low), min(rows.stop, high))
        if part.start < part.stop:
            found = values[:, part.start - low:part.stop - low] @ places[part]
            # The pairs that i is the first of stand side by side.
            first = first_column(i, k)
            scores[:, columns_of(i, k)[:i]] += found[:, :i]
            scores[:, first:first + k - 1 - i] += found[:, i:]


def _groups(counts: Counts) -> Iterator[tuple[int, slice]]:
    """(class, slice of its rows) of each class."""
    ends = np.concatenate(([0], np.cumsum(counts))).tolist()
    return ((i, slice(ends[i], ends[i + 1])) for i in range(len(counts)))
