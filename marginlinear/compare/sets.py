"""The sets of a comparison: where they come from, and as what their rows go to the methods."""

from __future__ import annotations

import hashlib
import os
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear.data.arrays import CSR, held, is_compressed, select_rows, shape_of
from marginlinear.data.columns import columns_of, no_labels, read_csv
from marginlinear.data.labels import labels_of, targets_of
from marginlinear.data.reading import PACKED, SEPARATORS, place_of, separator_of
from marginlinear.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from marginlinear._typing import AnyArray, IntArray

# Rows of which at least this part is stored are dense for who asks for arrays.
DENSE = 0.5
# What a result says of a set.
TOLD = ("rows", "features", "classes", "test_rows", "sha256")


class Dataset(NamedTuple):
    """Rows with what is to be predicted of them.

    Attributes
    ----------
    name : str
    X : what `data.arrays.held` returns
    y : int array of shape (m,), places in `classes`; of a regression float64, the targets
    classes : array of shape (k,), or None of a regression
    given : (X, y) or None
        The test part that came with it.
    groups : array of shape (m,) or None
    """

    name: str
    X: Any
    y: AnyArray
    classes: AnyArray | None
    given: tuple[Any, AnyArray] | None = None
    groups: AnyArray | None = None

    @property
    def dense(self) -> bool:
        """Whether who asks for arrays gets arrays: of a set, so that all its parts are of one kind."""
        m, n = shape_of(self.X)
        return not is_compressed(self.X) or len(self.X.data) >= DENSE * m * n

    def rows(self, which: IntArray) -> tuple[Any, AnyArray]:
        return select_rows(self.X, which), self.y[which]

    def told(self) -> dict[str, Any]:
        """What a result says of it, for JSON."""
        m, n = shape_of(self.X)
        given = None if self.given is None else len(self.given[1])
        classes = None if self.classes is None else len(self.classes)
        return dict(zip(TOLD, (m, n, classes, given, self.digest()), strict=True))

    def digest(self) -> str:
        """SHA-256 of all of it but the name."""
        digest = hashlib.sha256()
        parts = [(self.X, self.y)] + ([self.given] if self.given is not None else [])
        arrays = [array for X, y in parts for array in (
            *([X.indptr, X.indices, X.data] if is_compressed(X) else [X]), y)]
        arrays += [] if self.classes is None else [self.classes]
        arrays += [] if self.groups is None else [self.groups]
        for array in arrays:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


class Arrays(NamedTuple):
    """A set that is in memory: `load()` checks it."""

    name: str
    X: Any
    y: Any
    test: tuple[Any, Any] | None = None
    groups: Any = None
    path: str | None = None

    @property
    def given(self) -> bool:
        return self.test is not None

    def load(self, regression: bool) -> Dataset:
        return dataset(self.name, self.X, self.y, regression, self.test, self.groups)


class File(NamedTuple):
    """A set in a file: LIBSVM's text, or CSV or TSV where the name ends in .csv or .tsv, packed or not.

    Attributes
    ----------
    path : str
    test : str or None
        The file of the given test part.
    label : str
        Of CSV: the column of the labels.
    categories : tuple of str
        Of CSV: columns of words, that become a feature for each word.
    leave_out : tuple of str
        Of CSV: columns that are no features.
    groups : str or None
        The file of the rows' groups, a word a line; of CSV a column of this name, if there is one, which then is no
        feature.
    zero_based : bool
    """

    path: str
    test: str | None = None
    label: str = "label"
    categories: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    groups: str | None = None
    zero_based: bool = False

    @property
    def name(self) -> str:
        return name_of(self.path)

    @property
    def given(self) -> bool:
        return self.test is not None

    def load(self, regression: bool) -> Dataset:
        X, y = self._read(self.path, regression, None)
        test = None if self.test is None else self._read(self.test, regression, X)
        groups = None if self.groups is None else getattr(X, "left_out", {}).get(self.groups)
        if groups is None and self.groups is not None:
            groups = read_groups(self.groups)
        return dataset(self.name, X, y, regression, test, groups)

    def peek(self) -> None:
        """Raise DataError or OSError now, where the beginning of the file is not that of a set."""
        if separator_of(self.path):
            header = columns_of(self.path, (*self.categories, *self.leave_out))
            if self.label not in header:
                raise no_labels(self.path, header, self.label)
            return
        from marginlinear.libsvm import libsvm_blocks

        blocks: Any = libsvm_blocks(self.path, zero_based=self.zero_based, threads=1)
        with closing(blocks):
            next(blocks, None)

    def _read(self, path: str, regression: bool, first: Any) -> tuple[Any, Any]:
        if separator_of(path):
            left_out = self.leave_out
            if self.groups in columns_of(path, ()):
                if os.path.exists(self.groups):
                    raise DataError(path, 1, 0, f"{self.groups} is a column, and there is such a file: for groups give "
                                    f"{os.path.join(os.curdir, self.groups)} for the file, or rename one")
                left_out = tuple(dict.fromkeys((*left_out, self.groups)))
            table = read_csv(path, self.label, self.categories, None if first is None else first.rule, left_out)
            return table, table.y
        from marginlinear.libsvm import read_libsvm

        found = read_libsvm(path, zero_based=self.zero_based, text_labels=False if regression else None)
        if hasattr(found.labels, "patterns"):
            raise DataError(path, 0, 0, "rows have several labels: methods are compared on one label a row")
        return found, found.labels


def read_groups(path: str) -> AnyArray:
    """The group of each row: what stands in its line."""
    with open(path, "rb") as stream:
        data = stream.read()
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(path, *place_of(data, error.start), "not UTF-8: convert the file, as with iconv") from None
    return np.array([line.strip() for line in lines])


def name_of(path: str) -> str:
    """A set's name: that of its file, without what says how it is packed."""
    name = os.path.basename(os.path.normpath(path))
    for ending in (*PACKED, *SEPARATORS):
        name = name.removesuffix(ending)
    return name


def dataset(name: str, X: Any, y: Any, regression: bool, test: Any = None, groups: Any = None) -> Dataset:
    """The Dataset of arrays; ValueError names the set and what is wrong."""
    try:
        return _dataset(name, X, y, regression, test, groups)
    except DataError:
        raise
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _dataset(name: str, X: Any, y: Any, regression: bool, test: Any, groups: Any) -> Dataset:
    parts = [(X, y)] if test is None else [(X, y), tuple(test)]
    rows = [held(getattr(part, "X", part)) for part, _ in parts]
    width = max(shape_of(part)[1] for part in rows)
    rows = [_widened(part, width) for part in rows]
    targets: list[Any] = [targets_of(of) if regression else labels_of(of) for _, of in parts]
    for part, of in zip(rows, targets, strict=True):
        if shape_of(part)[0] != len(of):
            raise ValueError(f"X has {shape_of(part)[0]} rows, y has {len(of)} labels")
        if not len(of):
            raise ValueError("there are no rows")
    classes = None
    if not regression:
        classes, codes = np.unique(np.concatenate(targets), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"all rows have the label {classes[0]}: at least 2 classes are needed")
        targets = [codes[:len(targets[0])], codes[len(targets[0]):]][:len(targets)]
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != (len(targets[0]),):
            raise ValueError(f"groups have shape {groups.shape} for {len(targets[0])} rows: give one a row")
    return Dataset(name, rows[0], targets[0], classes, (rows[1], targets[1]) if test is not None else None, groups)


def _widened(X: Any, width: int) -> Any:
    """X with so many features: those that it lacks are 0 in sparse rows."""
    if shape_of(X)[1] == width:
        return X
    if not is_compressed(X):
        raise ValueError(f"the parts have {shape_of(X)[1]} and {width} features: give the same columns")
    return CSR(X.data, X.indices, X.indptr, width, getattr(X, "container", None))


def sources_of(sets: Any) -> list[Arrays | File]:
    """What Python's `compare` takes for `sets`, as a list of Arrays and Files."""
    if isinstance(sets, (str, os.PathLike)):
        sets = [sets]
    if isinstance(sets, dict):
        return [_source(str(name), value) for name, value in sets.items()]
    if isinstance(sets, tuple) and len(sets) in (2, 4) and not isinstance(sets[0], (str, os.PathLike)):
        return [_source("data", sets)]
    return [one if isinstance(one, (Arrays, File)) else _source(None, one) for one in sets]


def _source(name: str | None, value: Any) -> Arrays | File:
    if hasattr(value, "load"):
        found: Arrays | File = value
        return found
    if isinstance(value, (str, os.PathLike)):
        return File(os.fspath(value))
    if name is None or not isinstance(value, (tuple, list)) or len(value) not in (2, 4):
        raise ValueError("sets: give paths of files, or a dict of a name and (X, y), or (X, y, X_test, y_test)")
    return Arrays(name, value[0], value[1], None if len(value) == 2 else (value[2], value[3]))


def require_distinct(sources: Sequence[Arrays | File] | Mapping[str, Any]) -> None:
    """ValueError where two sets have one name: splits follow from it."""
    names = [source.name for source in sources]  # type: ignore[union-attr]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two sets are called {name}: splits follow from the names; rename one of the files")
