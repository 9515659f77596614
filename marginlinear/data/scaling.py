"""Scaling of features or rows.

    range   x_j -> lower + (upper - lower) (x_j - least_j)/(most_j - least_j)
    unit    x   -> x/||x||                                                     a row of zeros stays one

Constant features of a range, and those that were not there when it was learned, become 0. Where least_j = -most_j and
lower = -upper this is x_j -> upper x_j/most_j, and zeros stay zeros: with all features so it is the maxabs scaling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from marginlinear._typing import AnyArray, FloatArray, Int64Array, IntArray
from marginlinear.data.arrays import CSR, HeldRows, as_rows, held, is_paged, like, real_values, select_rows, shape_of

RANGE, MAXABS, UNIT = "range", "maxabs", "unit"
KINDS = (RANGE, MAXABS, UNIT)
# The part of the machine's memory that the zeros of sparse rows may take once they are none.
DENSE = 1 / 4
# Values of a part of the rows that predictions are made of.
PART = 1 << 22
# What asks for a scaling: largest absolute values of features above or below, or this far from each other.
LARGE, SMALL, RATIO = 10.0, 0.01, 100.0
# The part of the values that are not 0, from which features are all in about as many rows.
OFTEN = 0.1


def advised(smallest: float, largest: float, share: float) -> str | None:
    """The scaling that features ask for whose largest absolute values, where these are not 0, go from `smallest` to
    `largest`, and of whose values a `share` is not 0; None where they need none."""
    often = share > OFTEN
    if SMALL <= largest <= LARGE and not (often and largest > RATIO * smallest):
        return None
    return RANGE if often else MAXABS


class Scaling:
    """A scaling that was learned.

    Parameters
    ----------
    kind : {"range", "maxabs", "unit"}
    least, most : float64 arrays of shape (n,), optional
        Of each feature, least <= most; none for unit.
    lower, upper : float
        What `least` and `most` become.
    numbers : sequence of int, optional
        The features' numbers in messages; default: from 0.

    Attributes
    ----------
    shift : float64 array of shape (n,)
        What a zero of each feature becomes.
    filled : int array
        The features whose zeros do not stay zeros.
    factor : float64 array of shape (n,)
        A feature's value becomes shift + factor x.
    """

    def __init__(self, kind: str, least: Any = None, most: Any = None,
                 lower: float = 0.0, upper: float = 1.0, numbers: Sequence[int] | None = None) -> None:
        self.kind, self.lower, self.upper = kind, float(lower), float(upper)
        self.least: FloatArray = least
        self.most: FloatArray = most
        if kind == UNIT:
            self.filled = np.empty(0, dtype=np.intp)
            return
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            self.factor = np.where(least < most, (self.upper - self.lower) / (most - least), 0.0)
            wrong = np.flatnonzero(~np.isfinite(self.factor) | ~np.isfinite(most - least))
        if len(wrong):
            j = wrong[0]
            feature = j if numbers is None else numbers[j]
            raise ValueError(f"feature {feature} has values from {least[j]} to {most[j]}, too far from each other or "
                             "too near to be scaled")
        self.symmetric = (least == -most) & (self.lower == -self.upper)
        self.shift = self.image(np.zeros(len(least)), np.arange(len(least)))
        self.filled = np.flatnonzero(self.shift)

    @property
    def linear(self) -> bool:
        """Whether a linear model of scaled rows is one of the rows themselves."""
        return self.kind != UNIT

    @property
    def width(self) -> int:
        """Values of a row that zeros may become: all, in a dense one, where they are many."""
        n = len(self.least)
        return n if 2 * len(self.filled) >= n else len(self.filled)

    def to_dict(self) -> dict[str, Any]:
        """What a model file has of it, for JSON."""
        if self.kind == UNIT:
            return {"kind": UNIT}
        return {"kind": self.kind, "least": self.least.tolist(), "lower": self.lower, "most": self.most.tolist(),
                "upper": self.upper}

    def image(self, values: AnyArray, features: IntArray) -> FloatArray:
        """What `values` of the numbered features become; float64 array of their shape."""
        least, most = self.least[features], self.most[features]
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.where(self.symmetric[features], self.upper * (values / most),
                              self.lower + (self.upper - self.lower) * (values - least) / (most - least))
        scaled = np.where(values == least, self.lower, np.where(values == most, self.upper, scaled))
        return np.where(least < most, scaled, 0.0)

    def apply(self, X: Any) -> Any:
        """The rows of X scaled, as a new array of its type (float32 or float64): dense, csr_array or CSR.

        Sparse rows become a dense array where the zeros of half of the features, or more, do not stay zeros.

        Raises
        ------
        ValueError
            For an X that is no table of finite numbers.
        MemoryError
            Where what becomes of zeros would take more than a quarter of the machine's memory.
        """
        rows = table(X)
        found = self._applied_csr(rows) if isinstance(rows, CSR) else self._applied_dense(rows)
        # For a kernel that is the user's own function.
        return found.to_scipy() if isinstance(found, CSR) and hasattr(X, "tocsr") else found

    def parts(self, X: Any) -> Iterator[Any]:
        """The rows of X scaled: some at a time where they are on disk, or zeros do not stay zeros."""
        for rows in X.store.parts() if is_paged(X) else [table(X)]:
            m = shape_of(rows)[0]
            step = max(1, PART // self.width if len(self.filled) else m)
            for low in range(0, m, step):
                yield self.apply(select_rows(rows, slice(low, min(m, low + step))))

    def folded(self, weights: FloatArray, bias: float) -> tuple[FloatArray, float]:
        """(weights, bias) that give rows as they are the scores that `weights` give the scaled ones.

            <w, shift + factor x> + bias w_b = <factor w, x> + (<shift, w> + bias w_b)

        Parameters
        ----------
        weights : float64 array of shape (n or n + 1, columns)
        bias : float
            Value of the bias feature, whose weights are the last; negative for none. Where a shift needs one that
            is not there, the new one has the value 1.
        """
        n = len(self.least)
        features = weights[:n] * self.factor[:, np.newaxis]
        if not len(self.filled):
            return np.vstack([features, weights[n:]]), bias
        # Row by row, the same for each column: those of two classes stay opposite to the last bit.
        constant = (self.shift[:, np.newaxis] * weights[:n]).sum(axis=0)
        if bias >= 0:
            constant = constant + bias * weights[n]
        value = bias if bias > 0 else 1.0
        return np.vstack([features, constant / value]), value

    def _applied_dense(self, X: AnyArray) -> AnyArray:
        if self.kind == UNIT:
            largest = np.abs(X).max(axis=1, initial=0.0, keepdims=True)
            parts = X / np.where(largest > 0, largest, 1)
            lengths = np.sqrt(np.square(parts, dtype=np.float64).sum(axis=1, keepdims=True))
            return (parts / np.where(lengths > 0, lengths, 1)).astype(X.dtype, copy=False)
        n, width = len(self.least), X.shape[1]
        out = np.empty((len(X), n), dtype=X.dtype)
        out[:] = self.shift
        shared = np.arange(min(n, width))
        out[:, : len(shared)] = self.image(X[:, : len(shared)], shared)
        return out

    def _applied_csr(self, X: CSR) -> CSR | AnyArray:
        m, n = shape_of(X)
        rows = np.repeat(np.arange(m), np.diff(X.indptr))
        if self.kind == UNIT:
            largest = np.zeros(m, dtype=X.data.dtype)
            there = np.diff(X.indptr) > 0
            if there.any():
                largest[there] = np.maximum.reduceat(np.abs(X.data), X.indptr[:-1][there])
            parts = X.data / np.where(largest > 0, largest, 1)[rows]
            lengths = np.sqrt(np.bincount(rows, np.square(parts, dtype=np.float64), m))
            data = parts / np.where(lengths > 0, lengths, 1)[rows]
            return CSR(data.astype(X.data.dtype, copy=False), X.indices, X.indptr, n, X.container)
        indices, data, indptr = X.indices, X.data, X.indptr
        if n > len(self.least):
            kept = indices < len(self.least)
            ends = np.concatenate(([0], np.cumsum(kept)))
            rows, indices, data, indptr = rows[kept], indices[kept], data[kept], ends[indptr]
        n = len(self.least)
        scaled = self.image(data, indices).astype(data.dtype, copy=False)
        if not len(self.filled):
            return like(X, scaled, indices, indptr, n)
        require_filled(m, self.width, data.dtype.itemsize)
        if self.width == n:
            out = np.empty((m, n), dtype=data.dtype)
            out[:] = self.shift
            out[rows, indices] = scaled
            return out
        # A row's values are its own and those of a small dense table: of the features that are in all rows.
        inside = self.shift[indices] != 0
        always = np.empty((m, len(self.filled)), dtype=data.dtype)
        always[:] = self.shift[self.filled]
        always[rows[inside], np.searchsorted(self.filled, indices[inside])] = scaled[inside]
        rows = np.concatenate((rows[~inside], np.repeat(np.arange(m), len(self.filled))))
        indices = np.concatenate((indices[~inside], np.tile(self.filled.astype(indices.dtype), m)))
        order = np.lexsort((indices, rows))
        indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=m))))
        return like(X, np.concatenate((scaled[~inside], always.ravel()))[order], indices[order], indptr, n)


def learned(kind: str, X: Any) -> Scaling:
    """The Scaling of the given kind for the rows of X; ranges are [0, 1], and [-1, 1] for maxabs.

    Raises ValueError for an X that is no table of finite numbers, and for features whose values are too far from
    each other, or too near, for float64.
    """
    if kind == UNIT:
        return Scaling(UNIT)
    least, most = extremes(table(X))
    if kind == MAXABS:
        return maxabs(least, most)
    return Scaling(RANGE, least, most)


def maxabs(least: FloatArray, most: FloatArray, numbers: Sequence[int] | None = None) -> Scaling:
    """The Scaling by the largest absolute values of features with these extremes."""
    largest = np.maximum(np.abs(least), np.abs(most))
    return Scaling(MAXABS, -largest, largest, -1.0, 1.0, numbers)


def extremes(X: HeldRows) -> tuple[FloatArray, FloatArray]:
    """(least, most) value of each feature of what `table` returns: float64 arrays of shape (n,), zeros counted."""
    if isinstance(X, np.ndarray):
        return X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    found = Extremes()
    for part in X.store.parts() if is_paged(X) else [X]:
        found.add(part)
    return found.found()


class Extremes:
    """Least and largest value of each feature of sparse rows that come in parts, zeros counted."""

    def __init__(self) -> None:
        self.rows = self.n = 0
        # Of the values that are there, and how many there are; with room for more features.
        self._least, self._most, self._counts = np.empty(0), np.empty(0), np.empty(0, dtype=np.int64)

    def add(self, X: CSR) -> None:
        """Take the rows of a CSR into account, in time that does not grow with the features of others."""
        m, n = shape_of(X)
        room = len(self._counts)
        if n > room:
            require_extremes(n)
            new = max(n, 2 * room) - room
            self._least = np.append(self._least, np.full(new, np.inf))
            self._most = np.append(self._most, np.full(new, -np.inf))
            self._counts = np.append(self._counts, np.zeros(new, dtype=np.int64))
        self.n, self.rows = max(self.n, n), self.rows + m
        values = X.data.astype(np.float64, copy=False)
        np.minimum.at(self._least, X.indices, values)
        np.maximum.at(self._most, X.indices, values)
        np.add.at(self._counts, X.indices, 1)

    @property
    def counts(self) -> Int64Array:
        """How many values each feature has."""
        return self._counts[: self.n]

    def found(self) -> tuple[FloatArray, FloatArray]:
        """(least, most): float64 arrays of shape (n,)."""
        zeros = self._counts[: self.n] < self.rows
        least, most = self._least[: self.n], self._most[: self.n]
        return np.where(zeros, np.minimum(least, 0.0), least), np.where(zeros, np.maximum(most, 0.0), most)


def table(X: Any) -> HeldRows:
    """X as `held` has it, with float32 or float64 values that are finite, without a copy where it is such."""
    found = held(X)
    if isinstance(found, CSR) or is_paged(found):
        return found
    as_rows(found, -1.0)
    return real_values(found)


def require_extremes(n: int) -> None:
    """MemoryError where the machine cannot hold the extremes of n features."""
    from marginlinear.memory import memory

    # Both with the counts, and as they grow their copies.
    needed = 6 * 8 * n
    if needed > memory():
        raise MemoryError(f"{n} features need {needed / 2**30:.1f} GiB for their least and largest values, the "
                          f"machine has {memory() / 2**30:.1f}: is the largest feature number right?")


def require_filled(m: int, width: int, itemsize: int) -> None:
    """MemoryError where m rows of `width` values that zeros become take more of the memory than DENSE."""
    from marginlinear.memory import memory

    there, needed = memory(), m * width * itemsize
    if needed > DENSE * there:
        raise MemoryError(f"scale = range fills {width} values in each of {m} sparse rows, as the least value of a "
                          f"feature is not 0: they need {needed / 2**30:.1f} GiB, the machine has "
                          f"{there / 2**30:.1f}; maxabs keeps zeros")
