"""A fit that is not done, in a file: from what it goes on from there.

The file is a zip archive, not compressed, whose CRC-32 of each member is checked:

    header.json     the format's number, marginlinear's version, what the fit belongs to (its `origin`), a check of its
                    rows, and the tree of its state, with {"array": number} in the place of each array
    0, 1, ...       the arrays' bytes, in C order and in this machine's byte order; the header has types and shapes
"""

from __future__ import annotations

import errno
import json
import math
import os
import struct
import time
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING

import numpy as np

from marginlinear._version import version
from marginlinear.atomic import check_writable, replacing
from marginlinear.data.reading import json_of, shown
from marginlinear.errors import DataError
from marginlinear.fitting import Start

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from marginlinear._typing import AnyArray

FORMAT = 1
HEADER = "header.json"
TYPES = ("float64", "float32", "int64", "int32", "int8", "uint8", "bool")
NOT_ONE = "this is no checkpoint of marginlinear, or it is damaged ({}): begin the fit anew, without it"


class Checkpoint:
    """What a fit writes on its way, at intervals.

    Parameters
    ----------
    path : str
    seconds : float
        Between two writings, at least.
    start : callable
        Returns the Start of what there is so far.
    """

    def __init__(self, path: str, seconds: float, start: Callable[[], Start]) -> None:
        if path == "-":
            raise ValueError("checkpoint = '-' is not allowed: give a file, which is written anew each time")
        check_writable(path)
        self.path, self.seconds, self.start = path, seconds, start
        self.written = time.monotonic()

    def __call__(self, entry: object) -> None:
        if time.monotonic() - self.written >= self.seconds:
            self.write(self.start())

    def write(self, start: Start) -> None:
        """A disk that is full, for now, must not end a fit of hours: it is told as a warning."""
        try:
            write_checkpoint(start, self.path)
        except OSError as error:
            warnings.warn(f"the checkpoint cannot be written, and the fit goes on: {error}", RuntimeWarning,
                          stacklevel=2)
        self.written = time.monotonic()


def write_checkpoint(start: Start, path: str) -> None:
    """Write a Start; the file appears whole or not at all."""
    arrays: list[AnyArray] = []
    tree = encoded({"y": start.y, "state": start.state, "origin": start.origin}, arrays)
    header = {"format": FORMAT, "version": version, "rows": start.rows, "tree": tree,
              "arrays": [(array.dtype.name, array.shape) for array in arrays]}
    with replacing(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr(HEADER, json.dumps(header))
        for number, array in enumerate(arrays):
            with archive.open(str(number), "w", force_zip64=True) as member:
                member.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b"")


def encoded(value: Any, arrays: list[AnyArray]) -> Any:
    """`value` as JSON has it; arrays are added to the list."""
    if isinstance(value, dict):
        return {"dict": {name: encoded(item, arrays) for name, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [encoded(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    arrays.append(np.asarray(value))
    return {"array": len(arrays) - 1}


# What zipfile and the header's checks find wrong with a file's bytes.
DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, KeyError, IndexError, ValueError, TypeError, AttributeError,
          NotImplementedError, RuntimeError, EOFError)


def read_checkpoint(path: str) -> Start:
    """The Start in a file that `write_checkpoint` has written.

    Raises DataError for other files, OSError where it cannot be read.
    """
    with open(path, "rb") as stream:
        try:
            size = os.fstat(stream.fileno()).st_size
            with zipfile.ZipFile(stream) as archive:
                header = json_of(member(archive, HEADER, size))
                if header["format"] != FORMAT:
                    raise ValueError(f"format {header['format']}, of version {header['version']}; this is {version}")
                arrays = [array_of(member(archive, str(number), size), *kind)
                          for number, kind in enumerate(header["arrays"])]
            found = decoded(header["tree"], arrays)
            return Start(found["origin"], found["y"], found["state"], header["rows"])
        except DAMAGE as error:
            raise DataError(path, 0, 0, NOT_ONE.format(shown(error))) from error
        except OSError as error:
            # A damaged archive names places that the file does not have.
            if error.errno != errno.EINVAL:
                raise
            raise DataError(path, 0, 0, NOT_ONE.format("it is too short")) from error


def member(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
    """The bytes of a member; no more are believed to be there than the file has, which is of this size."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
        raise ValueError(f"member {name} is not stored as it is")
    return archive.read(info)


def array_of(data: bytes, name: str, shape: Any) -> AnyArray:
    if name not in TYPES:
        raise ValueError(f"an array of type {name}")
    return np.frombuffer(data, dtype=name).reshape(shape).copy()


def decoded(tree: Any, arrays: list[AnyArray]) -> Any:
    """What `encoded` has made a tree of."""
    if not isinstance(tree, dict):
        return tree
    (kind, value), = tree.items()
    if kind == "dict":
        return {name: decoded(item, arrays) for name, item in value.items()}
    if kind == "array":
        return arrays[value]
    return float(value) if kind == "float" else {"list": list, "tuple": tuple}[kind](
        decoded(item, arrays) for item in value)
