"""What says something of each row of the data: its group, its fold, or its weight. It is a file, one value a line, or,
of groups and weights, a column of the table that is read."""

from __future__ import annotations

import math
import os
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from marginlinear.cli.output import Failure, opening
from marginlinear.data.reading import as_written
from marginlinear.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Value = TypeVar("Value")
# Words of the data that a message shows.
SHOWN = 40


class RowFiles(NamedTuple):
    """What --fold-file, --groups and --weights name, None where they are not given."""

    folds: str | None
    groups: str | None
    weights: str | None

    def columns(self, path: str) -> tuple[str, ...]:
        """Those that are columns of the table `path`; Failure for what is a file too, or neither."""
        from marginlinear.cli.data import names_of_columns
        from marginlinear.data.columns import missing

        known: list[str] | None = None
        found = []
        for flag, name in (("--groups", self.groups), ("--weights", self.weights)):
            if name is None:
                continue
            with opening("open input file", path):
                known = names_of_columns(path) if known is None else known
            if name in known and os.path.exists(name):
                raise Failure(f"{flag} {name}: {path} has such a column, and there is such a file: give "
                              f"{os.path.join(os.curdir, name)} for the file, or rename one")
            if name in known:
                found.append(name)
            elif not os.path.exists(name):
                raise missing(path, known, name, f" for {flag}, nor such a file", line=0)
        return tuple(dict.fromkeys(found))

    def read(self, data: Any) -> tuple[list[int] | None, list[str] | None]:
        """The folds and the groups of the rows."""
        m = len(data.labels)
        return (None if self.folds is None else read_folds(self.folds, m),
                None if self.groups is None else groups_in(_cells_of(self.groups, data, "group"), m))

    def read_weights(self, data: Any) -> list[float] | None:
        return None if self.weights is None else weights_in(_cells_of(self.weights, data, "weight"), len(data.labels))


class Cells(NamedTuple):
    """The texts that are to be values, each with its line (0: it has none) and column."""

    path: str
    what: str
    texts: Iterable[tuple[int, int, bytes]]
    # Of a table.
    name: str | None = None

    @property
    def unit(self) -> str:
        """What holds a value."""
        return "line" if self.name is None else "row"


def read_weights(path: str, m: int) -> list[float]:
    """The m instance weights of a file: one finite number >= 0 a line."""
    return weights_in(_lines_of(path, "weight"), m)


def weights_in(cells: Cells, m: int) -> list[float]:
    return _values(cells, m, _weight, f"is not a weight: give one number in [0, inf) a {cells.unit}")


def groups_in(cells: Cells, m: int) -> list[str]:
    """The groups of m rows: words, as they stand there."""
    return _values(cells, m, lambda text: text.decode("utf-8", "surrogateescape"),
                   f"an empty {cells.unit} is no group: give one word or number a {cells.unit}")


def read_folds(path: str, m: int) -> list[int]:
    """The folds of m rows: integers from 0 or from 1, without gaps."""
    folds = _values(_lines_of(path, "fold"), m, _whole,
                    "is not the number of a fold: give an integer of 0 or more a line")
    found = sorted(set(folds))
    first = min(found[0], 1)
    lacking = next((at for at, fold in enumerate(found, first) if fold != at), None)
    if lacking is not None:
        after = next(fold for fold in found if fold > lacking)
        raise DataError(path, folds.index(after) + 1, 1, f"fold {after}, but no row is in fold {lacking}: number the "
                        "folds from 0 or from 1, without gaps")
    if len(found) < 2:
        raise DataError(path, m, 1, f"all rows are in fold {found[0]}: give 2 folds or more")
    return folds


def _whole(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise ValueError
    return int(text)


def _weight(text: bytes) -> float:
    value = math.nan if b"_" in text else float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value


def _lines_of(path: str, what: str) -> Cells:
    """The lines of a file."""
    with opening(f"open {what} file", path), open(path, "rb") as stream:
        lines = stream.readlines()
    # A byte order mark is part of no value.
    lines[:1] = [line.removeprefix(b"\xef\xbb\xbf") for line in lines[:1]]
    return Cells(path, what, ((at, len(line) - len(line.lstrip()) + 1 if line.strip() else 1, line.strip())
                              for at, line in enumerate(lines, 1)))


def _cells_of(name: str, data: Any, what: str) -> Cells:
    """The column `name` of a table, if it was left out for it, or the lines of the file."""
    if name not in getattr(data, "left_out", {}):
        return _lines_of(name, what)
    texts = (text.strip().encode("utf-8", "surrogateescape") for text in data.left_out[name])
    return Cells(data.largest[0], what, zip(data.lines or repeat(0), repeat(data.places.get(name, 0) + 1), texts), name)


def _values(cells: Cells, m: int, parse: Callable[[bytes], Value], fault: str) -> list[Value]:
    """What each of m texts says."""
    found = []
    for line, column, text in cells.texts:
        try:
            if not text:
                raise ValueError
            found.append(parse(text))
        except ValueError:
            shown = ascii(text[:SHOWN].decode("ascii", "backslashreplace"))
            reason = fault if fault.startswith("an ") else f"{shown} {fault}"
            if cells.name is not None:
                reason = f"column {as_written(cells.name)}{'' if line else f', row {len(found) + 1}'}: {reason}"
            raise DataError(cells.path, line, column, reason) from None
    if len(found) != m:
        raise DataError(cells.path, len(found) + 1, 1, f"{len(found)} {cells.what}s for {m} rows: give one a row")
    return found
