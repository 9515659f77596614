"""What a label may be: what a model file carries, and a file of predictions, one label a line, gives back.

    bool            0 and 1 in files; the model knows that they are bools
    int64           and all integers within it
    float64         finite; and all floats that it holds
    str             one word: what the reader of data takes for one label, in any line, and nothing takes for two

Other labels are refused before a fit. The targets of a regression are finite numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from marginlinear._typing import AnyArray, FloatArray, Int32Array
from marginlinear.threads import ranges

INT64 = 1 << 63
NONE = ("None", "nan", "<NA>", "NaT")
TO_WORDS = "make words of them, as y.astype('U') does, or number the classes"


def word_fault(label: str) -> str:
    """Why a str is no label, in words; "" for one that is."""
    start, colon, _ = label.partition(":")
    if not label:
        return "is empty"
    if "#" in label or label[0] == "\ufeff" or any(c.isspace() or c < " " for c in label):
        return "holds white space, '#', a control character or a byte order mark"
    if colon and start.isascii() and start.isdigit():
        return "would read back as a feature"
    if not label.isprintable() and any("\ud800" <= c <= "\udfff" for c in label):
        return "is not UTF-8 text"
    return ""


def require_words(labels: Iterable[object], name: str = "y") -> None:
    """ValueError where a label is a str that is no word; others are left to their types."""
    for label in labels:
        fault = word_fault(label) if isinstance(label, str) else ""
        if fault:
            raise ValueError(f"{name}: label {str(label)!r} {fault}: a label is one word, as of a file; replace it, or "
                             "number the classes")


def labels_of(y: Any, name: str = "y") -> AnyArray:
    """y as an array of bool, integers, floats or str of shape (m,); ValueError says what it holds, and the fix."""
    if hasattr(y, "patterns"):
        raise ValueError(f"{name} has several labels a row: one is needed")
    try:
        # A list goes through objects: NumPy would make words of all of ["a", 1].
        found = np.asarray(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
        given = found.tolist() if found.ndim == 1 and found.dtype.kind in "OT" else None
        found = found if given is None else np.array(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: {error}") from error
    kind, size = found.dtype.kind, found.dtype.itemsize
    if given is not None and (kind == "O" or (kind != "f" and found.tolist() != given)):
        none = next((at for at, label in enumerate(given) if not isinstance(label, str) and str(label) in NONE), None)
        if none is not None:
            raise ValueError(f"{name}: row {none} has no label, but {given[none]}: give it one, or leave the row out")
    if found.ndim != 1:
        raise ValueError(f"{name} has {found.ndim} dimensions: one label a row is needed")
    if kind not in "biufU" or (kind == "f" and size > 8):
        raise ValueError(f"{name} holds {found.dtype}: labels must be all numbers or all strings; {TO_WORDS}")
    if kind == "f" and not np.isfinite(found).all():
        raise ValueError(f"{name}: label {found[~np.isfinite(found)][0]} is not finite")
    if given is not None and found.tolist() != given:
        # NumPy finds a type for everything: for words and numbers words, for large integers floats.
        raise ValueError(f"{name}: labels must be all numbers or all strings, and within 64 bits; {TO_WORDS}")
    if kind == "u" and size == 8:
        if len(found) and found.max() >= INT64:
            raise ValueError(f"{name}: label {found.max()} is beyond 64-bit integers; {TO_WORDS}")
        found = found.astype(np.int64)
    return found


def targets_of(y: Any, name: str = "y") -> FloatArray:
    """y as a float64 array of shape (m,); ValueError unless it is one finite number a row."""
    try:
        found = np.asarray(y)
        numbers = found.astype(np.float64) if found.dtype.kind in "biufO" else None
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: a regression needs numbers: {error}") from None
    if found.ndim != 1:
        raise ValueError(f"{name} has {found.ndim} dimensions: one number a row is needed")
    if numbers is None:
        raise ValueError(f"{name} holds {found.dtype}: a regression needs numbers")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name}: target {numbers[~np.isfinite(numbers)][0]} is not finite: drop such rows")
    return numbers


def classes_of(y: AnyArray, size: int = 1 << 22) -> tuple[AnyArray, Int32Array]:
    """(the different labels, ascending; the place of each row's among them, an int32 array): some rows at a time, since
    what sorting them takes is many times as large. Of two numbers none is looked for."""
    if len(y) and y.dtype.kind in "biuf":
        low, high = y.min(), y.max()
        upper = y == high
        if (upper | (y == low)).all():
            return np.unique(np.array([low, high], y.dtype)), (upper & (y != low)).astype(np.int32)
    parts = ranges(len(y), size)
    classes = np.unique(np.concatenate([np.unique(y[lo:hi]) for lo, hi in parts]))
    codes = np.empty(len(y), dtype=np.int32)
    for lo, hi in parts:
        codes[lo:hi] = np.searchsorted(classes, y[lo:hi])
    return classes, codes
