"""CSV: a header, then rows of numbers, of words in columns that are stated, and labels in the column that is named."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear.data.reading import shown
from marginlinear.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from marginlinear._typing import AnyArray, FloatArray

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


class Column(NamedTuple):
    """A column of the file: its features are one, or one for each of its `words`, ascending."""

    name: str
    words: tuple[str, ...] | None


class Table(NamedTuple):
    """What a file holds.

    Attributes
    ----------
    X : float64 array of shape (m, n)
    y : int64, float64 or str array of shape (m,)
    names : list of str
        Of the features: a column's name, or `name=word` for a word of a column of categories.
    columns : list of Column
        What makes a further file's features those of this one.
    left_out : dict
        Name of a column that is no feature -> its cells, as they are.
    """

    X: FloatArray
    y: AnyArray
    names: list[str]
    columns: list[Column]
    left_out: dict[str, tuple[str, ...]]


def read_csv(path: str, label: str, categories: Sequence[str] = (), like: Sequence[Column] | None = None,
             leave_out: Sequence[str] = ()) -> Table:
    """Read a CSV file with a header, commas between cells.

    Parameters
    ----------
    path : str
        One that ends in .gz, .bz2 or .xz is unpacked.
    label : str
        The column of the labels: words, unless all of them are numbers.
    categories : sequence of str
        Columns that become a feature for each of their words, 1 where a row has it. Other cells must be numbers.
    leave_out : sequence of str
        Columns that are no features.
    like : sequence of Column, optional
        The columns of another file, whose features this one gets: a word that is not there has none.

    Raises
    ------
    DataError
        Names file, line, and the cell that is wrong.
    OSError
        The file cannot be read.
    """
    lines = _rows(path)
    header = _header(path, lines, (label, *categories, *leave_out))
    for name in (*categories, *leave_out):
        if (label, *categories, *leave_out).count(name) > 1:
            raise DataError(path, 1, 1, f"{shown(name)} is named twice: a column is that of the labels, a category, or "
                            "left out")
    if like is not None and (missing := [column.name for column in like if column.name not in header]):
        raise DataError(path, 1, 1, f"there is no column {shown(missing[0])}, which the other file has")
    rows = [(number, row) for number, row in lines if row]
    for number, row in rows:
        if len(row) != len(header):
            raise DataError(path, number, 1, f"{len(row)} cells: {len(header)} are needed, as in the header")
    if not rows:
        raise DataError(path, 2, 1, "there are no rows below the header")
    cells = dict(zip(header, zip(*(row for _, row in rows), strict=True), strict=True))
    for name in (label, *categories):
        empty = next((at for at, text in enumerate(cells[name]) if not text.strip()), None)
        if empty is not None:
            raise DataError(path, rows[empty][0], 1, f"column {shown(name)}: the cell is empty: write a word for what "
                            "is missing, or leave the row out")
    columns = list(like) if like is not None else [
        Column(name, tuple(sorted(set(map(str.strip, cells[name])))) if name in categories else None)
        for name in header if name != label and name not in leave_out]
    features, names = [], []
    for column in columns:
        texts = cells[column.name]
        if column.words is None:
            features.append(_numbers(path, column.name, texts, rows))
            names.append(column.name)
        else:
            of_rows = np.array([text.strip() for text in texts])
            features += [(of_rows == word).astype(np.float64) for word in column.words]
            names += [f"{column.name}={word}" for word in column.words]
    y = _labels(cells[label])
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        at = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(path, rows[at][0], 1, f"column {shown(label)}: {shown(cells[label][at])} stands among numbers: "
                        "mend it, or leave the row out")
    return Table(np.column_stack(features) if features else np.empty((len(rows), 0)), y, names, columns,
                 {name: cells[name] for name in leave_out})


def columns_of(path: str, names: Sequence[str]) -> list[str]:
    """The names of the columns of a file; DataError or OSError where it has no header with these `names`."""
    return _header(path, _rows(path), names)


def _header(path: str, lines: Iterator[tuple[int, list[str]]], names: Sequence[str]) -> list[str]:
    header = [name.strip() for name in next(lines, (0, []))[1]]
    if not header:
        raise DataError(path, 1, 1, "the file is empty: a header with the names of the columns is needed")
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise DataError(path, 1, 1, f"two columns are called {shown(twice)}: rename one")
    for name in names:
        if name not in header:
            raise DataError(path, 1, 1, f"there is no column {shown(name)}: the header has {', '.join(header)}")
    return header


def _rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row."""
    opener = next((opener for ending, opener in OPENERS.items() if path.endswith(ending)), open)
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as stream:
            text = stream.read()
    except UnicodeDecodeError as error:
        raise DataError(path, 0, 0, f"not UTF-8: convert the file, as with iconv ({error.reason})") from None
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(path, 0, 0, f"damaged: {error}") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(path, reader.line_num + 1, 1, f"not CSV: {error}") from None


def _numbers(path: str, name: str, texts: Sequence[str], rows: Sequence[tuple[int, list[str]]]) -> FloatArray:
    values = np.empty(len(texts))
    for at, text in enumerate(texts):
        try:
            values[at] = math.nan if "_" in text else float(text)
        except ValueError:
            values[at] = math.nan
        if not math.isfinite(values[at]):
            what = f"{shown(text)} is no finite number" if text.strip() else "the cell is empty"
            raise DataError(path, rows[at][0], 1, f"column {shown(name)}: {what}: mend it, or state the column among "
                            "the categories")
    return values


def _labels(texts: Sequence[str]) -> AnyArray:
    words = [text.strip() for text in texts]
    for kind in (int, float):
        try:
            if not any("_" in word for word in words):
                return np.array([kind(word) for word in words])
        except (ValueError, OverflowError):
            continue
    return np.array(words)
