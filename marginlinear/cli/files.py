"""The files that a command line names. No NumPy here."""

from __future__ import annotations

import os
import stat
from itertools import combinations, product
from typing import TYPE_CHECKING

from marginlinear.options import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

# How LIBLINEAR's model files begin, and LIBSVM's.
MODEL = (b"solver_type ", b"svm_type ")


def require_apart(read: Sequence[tuple[str, str | None]], written: Sequence[tuple[str, str | None]]) -> None:
    """UsageError where a file that is written is also one that is read, or written under another name.

    Every command calls it with all files of its command line before it opens the first, so that no output takes the
    place of an input, however the two are linked, and no two outputs share a file. Devices and pipes may be shared.

    Parameters
    ----------
    read, written : list of (str, str or None)
        What the user calls the file, an option or the word of the usage line, and its path: None where it is not
        given, `-` for the standard stream, which may be redirected from or to a plain file. A file that the command
        reads and goes on writing, as of `--resume`, is one that is written.
    """
    outputs = [(name, path, _identity(path, 1)) for name, path in written]
    inputs = [(name, path, _identity(path, 0)) for name, path in read]
    for one, two in (*combinations(outputs, 2), *product(outputs, inputs)):
        if one[2] is not None and one[2] == two[2]:
            raise UsageError(f"{one[0]} {one[1]} and {two[0]} {two[1]} are one file: give {one[0]} another name")


def require_model(path: str | None) -> None:
    """UsageError where a model would take the place of a file that is none, such as test data that is named second."""
    if path is not None and is_model(path) is False:
        raise UsageError(f"model_file {path} is there, and is no model: give model_file another name, or remove it "
                         "first; margin-predict takes a test_file")


def require_order(data: str, model: str) -> None:
    """UsageError where the data file is a model and the model_file is none."""
    if is_model(data) and is_model(model) is False:
        raise UsageError(f"{data} is a model, and {model} is none: give them the other way round")


def is_model(path: str) -> bool | None:
    """Whether a plain file begins as a model; None where it is empty or cannot be read, which its reader tells."""
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as stream:
            first = stream.readline(len(MODEL[0]))
    except OSError:
        return None
    return first.startswith(MODEL) if first else None


def _identity(path: str | None, standard: int) -> tuple[int, int] | str | None:
    """What equals that of another path where the two are one plain file, existing or not; else None.

    `standard` is the descriptor that `-` stands for.
    """
    if path is None:
        return None
    try:
        status = os.fstat(standard) if path == "-" else os.stat(path)
    except OSError:
        # Not there yet, or behind a link that leads nowhere yet.
        return None if path == "-" else os.path.realpath(path)
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
