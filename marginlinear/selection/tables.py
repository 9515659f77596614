"""Files of runs and of searches: what margin-train wrote by --log and --table."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from typing import TYPE_CHECKING

import numpy as np

from marginlinear.data.reading import JSONFault, json_of, place_of, shown
from marginlinear.errors import DataError
from marginlinear.problem import Info

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TypeGuard

    from marginlinear._typing import PathLike

# Keys of every line of a log.
CHECK = {"n_iter", "seconds", "objective", "certificate", "residual"}
# The files that margin-train makes of runs and searches, and what draws them.
KINDS = {
    "run": "the log of a run: `margin-plot convergence` draws it",
    "search": "the log of a search: `margin-plot search` draws the search's table, which the same margin-train -C with "
              "--resume LOG --table FILE.csv writes",
    "table": "the table of a search: `margin-plot search` draws it",
}


def read_log(path: PathLike) -> list[tuple[list[dict[str, Any]], float | None, dict[str, Any]]]:
    """Runs in a file of `margin-train --log`: list of (history, limit or None, what tells it from the others).

    The last is a dict, such as {"fold": 1}; runs with folds come after the others, in their order. A run that was
    interrupted has no result, and no limit.
    """
    runs: list[dict[str, Any]] = []
    current: dict[str, dict[str, Any]] = {}
    with open(path, "rb") as stream:
        data = stream.read()
    _require_kind("run", path, data)
    for number, entry in _json_lines(path, data):
        if not isinstance(entry, dict) or not entry.keys() >= CHECK:
            raise DataError(path, number, 1, f"not a line of margin-train --log, with {', '.join(sorted(CHECK))}")
        wrong = next((key for key in CHECK if not (entry[key] is None or is_number(entry[key]))), None)
        if wrong:
            raise DataError(path, number, 1, f"{wrong}: {shown(entry[wrong])} is not a number")
        place = {key: value for key, value in entry.items() if key not in (*Info._fields, "columns", "folds")}
        run = current.get(str(place))
        if run is None:
            run = current[str(place)] = {"history": [], "limit": None, "place": place}
            runs.append(run)
        if "status" in entry:
            # The result repeats the last check; what follows is another run.
            if not is_number(entry.get("tol")):
                raise DataError(path, number, 1, f"tol: {shown(entry.get('tol'))} is not a number")
            if entry["objective"] is not None:
                values: dict[str, Any] = {name: entry.get(name) for name in Info._fields}
                run["limit"] = Info(**values).criterion[2]
            del current[str(place)]
        else:
            run["history"].append(entry)
    # Folds are trained side by side.
    runs.sort(key=lambda run: fold if is_number(fold := run["place"].get("fold")) else 0)
    found = [(run["history"], run["limit"], run["place"]) for run in runs if run["history"]]
    if not found:
        raise DataError(path, 0, 0, "no check of a run: give a file of margin-train --log")
    return found


def read_table(path: PathLike) -> list[dict[str, Any]]:
    """Rows of a search's table: from a CSV file with a head, a JSON list of objects, or JSON lines; a list of dict.

    Columns fold_1, fold_2, ... of a CSV file, as `margin-train --table` writes them, become a list fold_scores, and
    fold_1_auc, fold_2_auc, ... a list fold_auc.
    """
    with open(path, "rb") as stream:
        data = stream.read().removeprefix(b"\xef\xbb\xbf")
    _require_kind("table", path, data)
    rows: list[dict[str, Any]]
    if data.startswith(b"["):
        rows = _json(path, data)
    elif data.startswith(b"{"):
        rows = [row for _, row in _json_lines(path, data)]
    else:
        rows = list(_csv_rows(path, data))
    wrong = next((at for at, row in enumerate(rows, 1) if not isinstance(row, dict)), None)
    if wrong:
        raise DataError(path, 0, 0, f"entry {wrong} of the list is not an object of columns and values")
    if not rows:
        raise DataError(path, 0, 0, "the table has no rows")
    return rows


def _require_kind(wanted: str, path: PathLike, data: bytes) -> None:
    """DataError where a file is not of the wanted one of KINDS, but of another."""
    kind = _kind(data.partition(b"\n")[0])
    if kind not in (wanted, None):
        raise DataError(path, 1, 1, KINDS[kind])


def _kind(line: bytes) -> str | None:
    """Which of KINDS the file with this first line is; None where that is not known, as of foreign JSON lines."""
    if line.startswith(b"["):
        return "table"
    if not line.startswith(b"{"):
        return "table" if b"score" in line.split(b",") else None
    try:
        entry = json_of(line)
    except JSONFault:
        return None
    if isinstance(entry.get("search"), dict):
        return "search"
    return "run" if entry.keys() >= CHECK else None


def _csv_rows(path: PathLike, data: bytes) -> Iterator[dict[str, Any]]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(path, *place_of(data, error.start), "not UTF-8: give a CSV or JSON file") from None
    reader: csv.DictReader[str] = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise DataError(path, reader.line_num, 1,
                                f"{len(reader.fieldnames or ())} cells are needed, as in the first line")
            row = {key.strip(): _cell(text) for key, text in row.items()}
            folds: dict[str, list[Any]] = {}
            for key in list(row):
                if found := re.fullmatch(r"fold_\d+(?:_(\w+))?", key):
                    folds.setdefault(f"fold_{found[1] or 'scores'}", []).append(row.pop(key))
            yield {**row, **folds}
    except csv.Error as error:
        raise DataError(path, reader.line_num + 1, 1, f"not CSV: {error}") from None


def _json_lines(path: PathLike, data: bytes) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(io.BytesIO(data), 1):
        if line.strip():
            yield number, _json(path, line, number)


def _json(path: PathLike, data: bytes, first: int = 1) -> Any:
    """The value of JSON that begins in line `first`."""
    try:
        return json_of(data)
    except JSONFault as fault:
        raise DataError(path, first + fault.line - 1, fault.column, f"not JSON: {fault}") from None


def _cell(text: str) -> int | float | str:
    # What is longer is no 64-bit integer.
    for kind in (int, float) if len(text) <= 20 else (float,):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    if isinstance(value, (float, np.floating)):
        return math.isfinite(value)
    return (isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            and abs(int(value)) <= sys.float_info.max)
