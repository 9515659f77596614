"""What a search has found: its entries, one for each fit, its table, and the log that it can be resumed from."""

import json
import math
import os
from contextlib import contextmanager

from marginlinear.metrics import pooled
from marginlinear.problem import DataError
from marginlinear.shortfall import fell_short


class Book:
    """Entries of (point, fold)."""

    def __init__(self, points, n):
        self.points, self.n, self.entries = points, n, {}

    def enter(self, at, fold, entry):
        self.entries[at, fold] = entry

    def forget(self, points, fold):
        for at in points:
            self.entries.pop((at, fold), None)

    def table(self, metric, sizes):
        rows = []
        for at, point in enumerate(self.points):
            entries = [self.entries[at, fold] for fold in range(self.n)]
            values = [math.nan if entry["score"] is None else entry["score"] for entry in entries]
            rows.append({**point, "score": pooled(metric, values, sizes), "fold_scores": values,
                         "n_iter": sum(entry["n_iter"] for entry in entries),
                         "seconds": sum(entry["seconds"] for entry in entries),
                         "unconverged": sum(fell_short(entry["status"]) for entry in entries)})
        return rows


def _key(point):
    return json.dumps(point, sort_keys=True, default=str)


class Journal:
    """The log of a search: a line for what it is, then one for each fit."""

    def __init__(self, path, header):
        self.path, self.header, self.stream = os.fspath(path), header, None
        self.whole = 0

    def read_into(self, book):
        """Enter the fits that the file has; DataError where it is another search's. A last line cut short by the
        end of its writer is dropped."""
        with open(self.path, "rb") as stream:
            lines = stream.read().split(b"\n")
        lines.pop()
        self.whole = sum(len(line) + 1 for line in lines)
        if not lines:
            raise DataError(self.path, 1, 1, "not the log of a search: it has no whole line")
        entries = [self._object(number, line) for number, line in enumerate(lines, 1)]
        found = entries[0].get("search")
        if not isinstance(found, dict):
            raise DataError(self.path, 1, 1, "not the log of a search: give one that --log wrote")
        for name, value in self.header.items():
            if name == "fixed":
                given = found.get(name)
                given = given if isinstance(given, dict) else {}
                for key in sorted({*value, *given}):
                    if given.get(key) != value.get(key):
                        raise self._other(key.rstrip("_"), given.get(key), value.get(key))
            elif found.get(name) != value:
                raise self._other(name, found.get(name), value)
        places = {_key(point): at for at, point in enumerate(book.points)}
        for number, entry in enumerate(entries[1:], 2):
            at = places.get(_key(entry.get("params")))
            fold = entry.pop("fold", None)
            if not (isinstance(fold, int) and 1 <= fold <= book.n
                    and {"score", "status", "n_iter", "seconds"} <= entry.keys()):
                raise DataError(self.path, number, 1, "not a fit of this search")
            if at is not None:
                del entry["params"]
                book.enter(at, fold - 1, {"fold": fold, **entry})

    def _object(self, number, line):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise DataError(self.path, number, 1, "not a line of a search's log")
        return entry

    def _other(self, name, found, wanted):
        return DataError(self.path, 1, 1, f"the log of another search: its {name} is {found!r}, here it is {wanted!r}; "
                         "start a new one with --log")

    @contextmanager
    def opened(self, fresh):
        with open(self.path, "w" if fresh else "r+", encoding="ascii") as self.stream:
            if fresh:
                self.write({"search": self.header})
            else:
                self.stream.truncate(self.whole)
                self.stream.seek(self.whole)
            yield

    def write(self, entry):
        plain = {name: None if isinstance(value, float) and not math.isfinite(value) else value
                 for name, value in entry.items()}
        # Line by line: what an interrupted search did is there.
        self.stream.write(json.dumps(plain, default=str) + "\n")
        self.stream.flush()
