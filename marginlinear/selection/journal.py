"""What a search has found: its entries, one for each fit, its table, and the log that it can be resumed from.

The log is JSON, a line for the search, then one for each fit:

    {"search": {"solver": "cs", "folds": 5, ...}}
    {"params": {"C": 0.5}, "fold": 1, "score": 0.96, "status": "converged", "n_iter": 12, "seconds": 0.1}

Of several metrics the score is that of the first, and "metrics" has the others: {"auc": 0.99}.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from marginlinear.atomic import continuing
from marginlinear.data.reading import JSONFault, json_of, shown
from marginlinear.errors import DataError
from marginlinear.problem import finite
from marginlinear.selection.metrics import is_score, pooled
from marginlinear.status import STATUSES, fell_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

    from marginlinear._typing import IntArray


class Entries(dict[tuple[int, int], dict[str, Any]]):
    """The entry of each fit, by (number of its point, fold)."""

    def __init__(self, points: list[dict[str, Any]], n: int) -> None:
        super().__init__()
        self.points, self.n = points, n

    def table(self, metrics: Sequence[str], sizes: IntArray) -> list[dict[str, Any]]:
        """`Search.table`: the first of the metrics is the score."""
        first, *others = metrics
        rows = []
        for p, point in enumerate(self.points):
            entries = [self[p, fold] for fold in range(self.n)]
            values = _numbers(entry["score"] for entry in entries)
            beside = {name: _numbers(entry["metrics"][name] for entry in entries) for name in others}
            rows.append({**point, "score": pooled(first, values, sizes), "metric": first, "fold_scores": values,
                         "n_iter": sum(entry["n_iter"] for entry in entries),
                         "seconds": sum(entry["seconds"] for entry in entries),
                         "unconverged": sum(fell_short(entry["status"]) for entry in entries),
                         **{name: pooled(name, found, sizes) for name, found in beside.items()},
                         **{f"fold_{name}": found for name, found in beside.items()}})
        return rows


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _key(point: Mapping[str, Any]) -> str:
    return json.dumps(point, sort_keys=True, default=str)


class Journal:
    """The log of a search: a line for what it is, then one for each fit."""

    def __init__(self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes], header: dict[str, Any]) -> None:
        self.path, self.header = os.fspath(path), header
        self.stream: TextIO  # while it is `opened`
        self.whole = 0
        self._size: int | None = None  # where it was read

    def read_into(self, entries: Entries) -> None:
        """Enter the fits that the file has; DataError where it is another search's. A last line cut short by the
        end of its writer is dropped."""
        with open(self.path, "rb") as stream:
            data = stream.read()
        lines = data.split(b"\n")
        self.whole, self._size = len(data) - len(lines.pop()), len(data)
        if not lines:
            raise DataError(self.path, 1, 1, "not the log of a search: it has no whole line")
        header = self._object(1, lines[0]).get("search")
        if not isinstance(header, dict):
            raise DataError(self.path, 1, 1, "not the log of a search: give one that --log wrote")
        for name, value in self.header.items():
            if name == "fixed":
                fixed = header.get(name)
                fixed = fixed if isinstance(fixed, dict) else {}
                for key in sorted({*value, *fixed}):
                    if fixed.get(key) != value.get(key):
                        raise self._other(key.rstrip("_"), fixed.get(key), value.get(key))
            elif header.get(name) != value:
                raise self._other(name, header.get(name), value)
        numbers = {_key(point): p for p, point in enumerate(entries.points)}
        for number, line in enumerate(lines[1:], 2):
            entry = self._fit(number, line, entries.n)
            p = numbers.get(_key(entry.pop("params")))
            if p is not None:
                entries[p, entry["fold"] - 1] = entry

    def _fit(self, number: int, line: bytes, folds: int) -> dict[str, Any]:
        """The checked entry of a line."""
        entry = self._object(number, line)
        first, *others = self.header["metric"].split(",")
        allowed: dict[str, tuple[str, Callable[[Any], bool]]] = {
            "params": ("an object of values", lambda value: isinstance(value, dict) and not any(
                isinstance(item, (list, dict)) for item in value.values())),
            "fold": (f"an integer from 1 to {folds}", lambda value: type(value) is int and 1 <= value <= folds),
            "score": (f"a score by {first}", lambda value: is_score(first, value)),
            "status": (" | ".join(STATUSES), lambda value: value in STATUSES),
            "n_iter": ("an integer of 0 or more", lambda value: type(value) is int and value >= 0),
            "seconds": ("a number of 0 or more", lambda value: type(value) in (int, float) and value >= 0),
        }
        if others:
            allowed["metrics"] = (f"an object of scores by {', '.join(others)}", lambda value: (
                isinstance(value, dict) and value.keys() == {*others}
                and all(is_score(name, value[name]) for name in others)))
        if entry.keys() != allowed.keys():
            raise self._error(number, f"not a fit of this search: {', '.join(allowed)} are needed")
        for key, (what, is_one) in allowed.items():
            if not is_one(entry[key]):
                raise self._error(number, f"{key} is {shown(entry[key])}: {what} is needed",
                                  line.find(b'"%b"' % key.encode()) + 1)
        return entry

    def _object(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            entry = json_of(line)
        except JSONFault as fault:
            raise self._error(number, f"not a line of a search's log: {fault}", fault.column) from None
        if not isinstance(entry, dict):
            raise self._error(number, "not a line of a search's log")
        return entry

    def _error(self, number: int, reason: str, column: int = 1) -> DataError:
        return DataError(self.path, number, column, f"{reason}; start a new one with --log")

    def _other(self, name: str, value: object, wanted: object) -> DataError:
        value = repr(value) if isinstance(value, (int, float)) else shown(value)
        return self._error(1, f"the log of another search: its {name} is {value}, here it is {wanted!r}")

    @contextmanager
    def opened(self) -> Iterator[None]:
        with continuing(self.path, self.whole, self._size) as self.stream:
            if not self.whole:
                self.write({"search": self.header})
            yield

    def write(self, entry: Mapping[str, Any]) -> None:
        # Line by line: what an interrupted search did is there.
        self.stream.write(json.dumps(finite(entry), default=str) + "\n")
        self.stream.flush()
