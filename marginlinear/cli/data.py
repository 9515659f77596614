"""Reading data files for the commands."""

import math

from marginlinear.cli.output import opening
from marginlinear.problem import DataError


def read_data(path, status, **options):
    """What `read_libsvm` returns for `path`, with progress on the status line."""
    from marginlinear.libsvm import read_libsvm

    def progress(done, total):
        share = f" of {total / 1e6:.0f} MB ({done / total:.0%})" if total else " MB"
        status.show(f"reading {path}: {done / 1e6:.0f}{share}")

    with opening("open input file", path):
        return read_libsvm(path, progress=progress, **options)


def read_weights(path, m):
    """The m instance weights of a file: one finite number >= 0 a line."""
    weights = []
    with opening("open weight file", path), open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            text = line.strip()
            try:
                weight = math.nan if b"_" in text else float(text)
            except ValueError:
                weight = math.nan
            if not 0 <= weight < math.inf:
                shown = ascii(text[:40].decode("ascii", "backslashreplace"))
                column = len(line) - len(line.lstrip()) + 1
                reason = f"{shown} is not a weight: give one number in [0, inf) a line"
                raise DataError(path, number, column, reason)
            weights.append(weight)
    if len(weights) != m:
        raise DataError(path, len(weights) + 1, 1, f"{len(weights)} weights for {m} rows: give one a row")
    return weights
