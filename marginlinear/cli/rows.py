"""Files that say something of each row of the data, one value a line: its group, its fold, or its weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from marginlinear.cli.output import opening
from marginlinear.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")


class RowFiles(NamedTuple):
    """Paths of --fold-file, --groups and --weights, None where they are not given."""

    folds: str | None
    groups: str | None
    weights: str | None

    def read(self, m: int) -> tuple[list[int] | None, list[str] | None]:
        """What they say of m rows."""
        return (None if self.folds is None else read_folds(self.folds, m),
                None if self.groups is None else read_groups(self.groups, m))


def read_groups(path: str, m: int) -> list[str]:
    """The groups of m rows: words, as they stand there."""
    return _lines(path, m, "group", lambda text: text.decode("utf-8", "surrogateescape"),
                  "an empty line is no group: give one word or number a line")


def read_folds(path: str, m: int) -> list[int]:
    """The folds of m rows: integers from 0 or from 1, without gaps."""
    folds = _lines(path, m, "fold", _whole, "is not the number of a fold: give an integer of 0 or more a line")
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


def _lines(path: str, m: int, what: str, parse: Callable[[bytes], Value], fault: str) -> list[Value]:
    """What each of m lines says."""
    found = []
    with opening(f"open {what} file", path), open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            text = line.strip()
            try:
                if not text:
                    raise ValueError
                found.append(parse(text))
            except ValueError:
                shown = ascii(text[:40].decode("ascii", "backslashreplace"))
                column = len(line) - len(line.lstrip()) + 1 if text else 1
                raise DataError(path, number, column,
                                fault if fault.startswith("an ") else f"{shown} {fault}") from None
    if len(found) != m:
        raise DataError(path, len(found) + 1, 1, f"{len(found)} {what}s for {m} rows: give one a row")
    return found
