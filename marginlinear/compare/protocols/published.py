"""The figures that the papers print: one file a table, with the columns dataset, method, mean, std, unit and mark."""

from __future__ import annotations

import csv
import os
from typing import TYPE_CHECKING, NamedTuple

from marginlinear.errors import DataError

if TYPE_CHECKING:
    from marginlinear._typing import PathLike

COLUMNS = ("dataset", "method", "mean", "std", "unit", "mark")
UNITS = {"fraction": 1.0, "percent": 100.0}
BETTER, WORSE = "●", "○"


class Figure(NamedTuple):
    """A cell of a table, as a fraction of the test rows.

    Attributes
    ----------
    mean : float
    deviation : float or None
    rounding : float
        Half a unit of the last printed place of the mean.
    mark : str
        What it means follows from the paper.
    """

    mean: float
    deviation: float | None
    rounding: float
    mark: str


def read_published(path: PathLike) -> dict[tuple[str, str], Figure]:
    """(set, method) -> Figure, without the cells that the paper leaves empty; DataError for a file of another kind."""
    found = {}
    name = os.fsdecode(path)
    with open(path, encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise DataError(name, 1, 1, f"not the figures of a table: its columns are to be {', '.join(COLUMNS)}")
        for row in reader:
            if row["mean"] == "N/A":
                continue
            try:
                unit = UNITS[row["unit"]]
                places = len(row["mean"].partition(".")[2])
                deviation = float(row["std"]) / unit if row["std"] else None
                figure = Figure(float(row["mean"]) / unit, deviation, 0.5 * 10.0**-places / unit, row["mark"])
            except (KeyError, ValueError):
                raise DataError(name, reader.line_num, 1, f"no figure of a table: {', '.join(map(str, row.values()))}"
                                ) from None
            found[row["dataset"], row["method"]] = figure
    return found
