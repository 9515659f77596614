"""Rows that have any number of labels each: the targets of a multi-label fit.

Given as sets, tuples or lists of labels, one a row, or as an indicator: an array, dense or sparse, of 0 and 1 with a
column a label.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from marginlinear.data.checks import places_in
from marginlinear.data.labels import classes_of, labels_of, require_words

if TYPE_CHECKING:
    from marginlinear._typing import AnyArray, ArrayLike, BoolArray, Int32Array, IntArray

ROWS = (Set, tuple, list)


class LabelSets(Sequence[tuple[Any, ...]]):
    """Sets of labels, one a row; of an index a tuple of labels, of a slice or an array of rows their LabelSets.

    Attributes
    ----------
    classes : array of shape (k,)
        All labels, which need not all occur: ascending, or of an indicator in the order of its columns.
    indptr : int64 array of shape (m + 1,)
    indices : int32 array
        Places in `classes` of the labels of row i, rising: indices[indptr[i]:indptr[i + 1]].
    """

    def __init__(self, classes: AnyArray, indptr: IntArray, indices: IntArray) -> None:
        self.classes, self.indptr, self.indices = classes, indptr, indices

    @classmethod
    def of_flat(cls, labels: AnyArray, ends: IntArray) -> LabelSets:
        """Of an array of the labels of all rows, one row after the other, and where each row's end."""
        classes, places = classes_of(labels) if len(labels) else (labels, np.empty(0, dtype=np.int32))
        indptr = np.concatenate(([0], ends)).astype(np.int64)
        rows = np.repeat(np.arange(len(ends)), np.diff(indptr))
        order = np.lexsort((places, rows))
        rows, places = rows[order], places[order]
        # A set has a label once.
        first = np.ones(len(places), dtype=bool)
        first[1:] = (rows[1:] != rows[:-1]) | (places[1:] != places[:-1])
        counts = np.bincount(rows[first], minlength=len(ends))
        return cls(classes, np.concatenate(([0], np.cumsum(counts))), places[first])

    @classmethod
    def of_indicator(cls, indicator: BoolArray, classes: AnyArray) -> LabelSets:
        """Of a bool array of shape (m, k)."""
        counts = np.count_nonzero(indicator, axis=1)
        return cls(classes, np.concatenate(([0], np.cumsum(counts))), np.nonzero(indicator)[1].astype(np.int32))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @overload
    def __getitem__(self, rows: int, /) -> tuple[Any, ...]: ...

    @overload
    def __getitem__(self, rows: slice | AnyArray | list[int], /) -> LabelSets: ...

    def __getitem__(self, rows: Any, /) -> Any:
        if isinstance(rows, (int, np.integer)):
            low, high = self.indptr[range(len(self))[rows]:][:2]
            return tuple(self.classes[self.indices[low:high]].tolist())
        numbers = np.arange(len(self))[rows]
        counts = np.diff(self.indptr)[numbers]
        indptr = np.concatenate(([0], np.cumsum(counts)))
        places = np.arange(indptr[-1]) + np.repeat(self.indptr[numbers] - indptr[:-1], counts)
        return LabelSets(self.classes, indptr, self.indices[places])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSets) and self.tolist() == other.tolist()

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return f"LabelSets of {len(self)} rows and {len(self.classes)} labels"

    def tolist(self) -> list[tuple[Any, ...]]:
        """A list of tuples of labels."""
        labels = self.classes[self.indices].tolist()
        ends = self.indptr.tolist()
        return [tuple(labels[low:high]) for low, high in pairwise(ends)]

    def indicator(self) -> BoolArray:
        """bool array of shape (m, k)."""
        found = np.zeros((len(self), len(self.classes)), dtype=bool)
        found[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices] = True
        return found

    def among(self, classes: AnyArray) -> tuple[BoolArray, IntArray]:
        """(bool array of shape (m, len(classes)), int array of shape (m,): how many labels of each row are not there).
        """
        found, rows = np.zeros((len(self), len(classes)), dtype=bool), np.repeat(np.arange(len(self)),
                                                                                 np.diff(self.indptr))
        if not len(self.indices):
            return found, np.zeros(len(self), dtype=np.int64)
        if (self.classes.dtype.kind == "U") != (classes.dtype.kind == "U"):
            words = "words", "numbers"
            ours, theirs = words if self.classes.dtype.kind == "U" else words[::-1]
            raise ValueError(f"y holds {ours}, the labels to be known are {theirs}")
        places = places_in(classes, self.classes)[self.indices]
        known = places >= 0
        found[rows[known], places[known]] = True
        return found, np.bincount(rows[~known], minlength=len(self))

    def rarest(self, rows: IntArray) -> IntArray:
        """The stratum of each of the `rows`, an int array of places in here: the label of its that is the rarest of
        them, by its place; -1 where there is none."""
        counts = np.bincount(self[rows].indices, minlength=len(self.classes))
        order = np.lexsort((counts[self.indices], np.repeat(np.arange(len(self)), np.diff(self.indptr))))
        found = np.full(len(self), -1)
        some = np.diff(self.indptr) > 0
        found[some] = self.indices[order][self.indptr[:-1][some]]
        return found[rows]

    def patterns(self) -> tuple[LabelSets, Int32Array]:
        """(LabelSets of the different sets, an int32 array of shape (m,) of each row's place among them).

        The order of the sets depends on these alone.
        """
        lengths = np.diff(self.indptr)
        codes: Int32Array = np.empty(len(self), dtype=np.int32)
        kept: list[IntArray] = []
        count = 0
        first: IntArray
        which: IntArray
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            if length == 0:
                first, which = rows[:1], np.zeros(len(rows), dtype=np.int32)
            else:
                table = np.ascontiguousarray(self.indices[self.indptr[rows][:, None] + np.arange(length)], dtype=">i4")
                _, at, which = np.unique(table.view(f"V{4 * length}")[:, 0], return_index=True, return_inverse=True)
                first = rows[at]
            codes[rows] = count + which
            kept.append(first)
            count += len(first)
        return self[np.concatenate(kept)] if kept else self, codes


def are_label_sets(y: object) -> bool:
    """Whether y is of several labels a row: LabelSets, an indicator of two columns or more, or a list of sets, tuples
    or lists."""
    if isinstance(y, LabelSets):
        return True
    shape = getattr(y, "shape", None)
    if shape is not None and len(shape) == 2:
        return bool(shape[1] != 1)
    if isinstance(y, (list, tuple)):
        return len(y) > 0 and isinstance(y[0], ROWS)
    if getattr(getattr(y, "dtype", None), "kind", "") == "O" and shape is not None and len(shape) == 1 and shape[0]:
        return isinstance(np.asarray(y)[0], ROWS)
    return False


def label_sets_of(y: Any, classes: ArrayLike | None = None) -> LabelSets:
    """y as LabelSets.

    Parameters
    ----------
    y : LabelSets, sequence of sets, tuples or lists, or array or sparse array of shape (m, k)
    classes : array, optional
        Of an indicator the names of its columns; by default those of a table, or 0 to k - 1. Else all labels that there
        may be; by default those of y.

    Raises ValueError for what is neither.
    """
    if isinstance(y, LabelSets) or not hasattr(y, "shape") or len(y.shape) == 1:
        sets = y if isinstance(y, LabelSets) else _of_rows(y)
        return sets if classes is None else _with(sets, classes)
    found: LabelSets | None
    names: Any = classes
    if names is None:
        names = list(y.columns) if hasattr(y, "columns") else np.arange(y.shape[1])
    names = labels_of(names, "classes")
    if len(names) != y.shape[1] or len(np.unique(names)) < len(names):
        raise ValueError(f"classes are {len(np.unique(names))} different labels: the indicator y has {y.shape[1]} "
                         "columns")
    require_words(names.tolist(), "classes")
    if hasattr(y, "tocsr"):
        table = y.tocsr()
        table.sum_duplicates()
        values, columns = table.data, table.indices[table.data != 0]
        counts = np.add.reduceat(np.append(values != 0, False), table.indptr[:-1]) * (np.diff(table.indptr) > 0)
        found = LabelSets(names, np.concatenate(([0], np.cumsum(counts))), columns.astype(np.int32))
    else:
        values = np.asarray(y)
        found = None if values.dtype.kind not in "biuf" else LabelSets.of_indicator(values != 0, names)
    if found is None or not np.isin(values, (0, 1)).all():
        raise ValueError(f"y has {len(y.shape)} dimensions, and holds other values than 0 and 1: one label a row is "
                         "needed, or for several an indicator, 1 where the row has the column's label, or a list of "
                         "sets")
    return found


def _of_rows(y: Any) -> LabelSets:
    rows = list(y)
    for number, row in enumerate(rows):
        if not isinstance(row, ROWS):
            raise ValueError(f"y: row {number} is {row!r}, where others are sets of labels: give a set for each row")
    flat = [label for row in rows for label in row]
    table = not any(isinstance(row, Set) for row in rows) and len({len(row) for row in rows}) == 1
    if table and (len(rows[0]) == 1 or (rows[0] and set(flat) <= {0, 1})):
        raise ValueError("y has 2 dimensions, as lists of one length: give sets where they are a row's labels, "
                         "numpy.array(y) for an indicator of 0 and 1, and one label a row without lists")
    labels = labels_of(flat) if flat else np.empty(0, dtype=np.int64)
    require_words(set(flat) if labels.dtype.kind == "U" else ())
    return LabelSets.of_flat(labels, np.cumsum([len(row) for row in rows], dtype=np.int64))


def _with(found: LabelSets, classes: ArrayLike) -> LabelSets:
    labels = np.unique(labels_of(classes, "classes"))
    require_words(labels.tolist(), "classes")
    indicator, missing = found.among(labels)
    if missing.any():
        row = int(missing.argmax())
        raise ValueError(f"classes: a label of row {row} of y, one of {found[row]}, is not among them")
    return LabelSets.of_indicator(indicator, labels)
