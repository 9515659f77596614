"""What a store is: a folder of arrays in NumPy's format, which `np.load` reads too, and a description of them.

    values.npy     float32 where that is exact for all values, else float64, row after row
    indices.npy    their columns, rising along a row: uint16 up to 65,536 features, else int32
    indptr.npy     int64, m + 1: where each row begins
    labels.npy     int64, float64 or text, m
    sqnorms.npy    float64, m: squared norms of the rows, summed in the order of the features
    chunks.npy     int64: the first row of each chunk of at most CHUNK values and rows, or one row, and m
    crc.npy        uint32: CRC-32 of each chunk's values and indices
    meta.json      the sizes, types, classes, source, CRC-32 of each small file, and a digest of all that
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from marginlinear._typing import AnyArray
from marginlinear.data.reading import json_of, shown
from marginlinear.errors import DataError

FORMAT = 1
# Values of a chunk: with their columns 3 to 6 MB.
CHUNK = 1 << 19
META = "meta.json"
LARGE = "values", "indices"
SMALL = "indptr", "labels", "sqnorms", "chunks", "crc"
# A header of NumPy's has room for any length; bytes that are read at once.
HEADER, PART = 128, 1 << 20
# Of a source, bytes at each end that tell it from another one.
END = 1 << 20
TYPES = {"values": "<f4|<f8", "indices": "<u2|<i4", "indptr": "<i8", "labels": r"\|b1|<i8|<f8|<U[1-9][0-9]{0,7}",
         "sqnorms": "<f8", "chunks": "<i8", "crc": "<u4"}
# What a class may be, by the kind of the labels' type: of floats some were integers in the source, or bools.
CLASSES = {"b": (bool,), "i": (int, bool), "f": (int, float, bool), "U": (str,)}
# The least and the largest that these may be.
COUNTS = {"m": (1, 1 << 62), "n_features": (1, (1 << 31) - 1), "nnz": (0, 1 << 62), "nonzeros": (0, 1 << 62),
          "chunks": (1, 1 << 62)}
AGAIN = "write the store again from its source"


def place(folder: str, name: str) -> str:
    return os.path.join(folder, f"{name}.npy")


def require_little_endian() -> None:
    if sys.byteorder != "little":
        raise OSError(errno.ENOTSUP, "a store needs a little-endian machine")


def header_of(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> bytes:
    """The HEADER bytes before an array of NumPy's format 1.0."""
    words = f"{{'descr': {np.dtype(dtype).str!r}, 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + words.ljust(HEADER - 11).encode() + b"\n"


def pieces(path: str, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
    """Yield the bytes start to stop of a file, at most PART at a time, in memory that the next ones take."""
    room = np.empty(PART, np.uint8).data
    with open(path, "rb", buffering=0) as stream:
        stream.seek(start)
        while stop is None or start < stop:
            count = stream.readinto(room if stop is None else room[:stop - start])
            if not count:
                return
            yield room[:count]
            start += count


def read_ahead(path: str, start: int, stop: int) -> None:
    """Bring the bytes start to stop of a file to the system's memory, and no more: others have no turn yet."""
    if start < stop and hasattr(os, "posix_fadvise"):
        # No copy is made of them: when the last one can be read, the others are there, or on their way.
        with open(path, "rb", buffering=0) as stream:
            os.posix_fadvise(stream.fileno(), start, stop - start, os.POSIX_FADV_WILLNEED)
        start = stop - 1
    for _ in pieces(path, start, stop):
        pass


def crc_of(path: str, start: int = 0, stop: int | None = None) -> int:
    """CRC-32 of the bytes start to stop of a file."""
    found = 0
    for piece in pieces(path, start, stop):
        found = zlib.crc32(piece, found)
    return found


def digest_of(meta: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def write_meta(folder: str, meta: dict[str, Any]) -> None:
    with open(os.path.join(folder, META), "w", encoding="ascii") as stream:
        json.dump({**meta, "sha256": digest_of(meta)}, stream, indent=1, sort_keys=True)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_meta(folder: str) -> dict[str, Any]:
    """The description of a store; DataError for what is none."""
    path = os.path.join(folder, META)
    try:
        with open(path, "rb") as stream:
            meta = json_of(stream.read())
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(folder, 0, 0, f"this is no store: it has no {META}") from None
    except ValueError as error:
        raise DataError(path, 0, 0, f"{error}: {AGAIN}") from error
    if not isinstance(meta, dict) or not isinstance(meta.get("format"), int):
        raise DataError(path, 0, 0, f"it does not describe a store: {AGAIN}")
    if meta["format"] != FORMAT:
        raise DataError(path, 0, 0, f"a store of format {shown(meta['format'])}, and this marginlinear knows format "
                        f"{FORMAT}: use a newer one, or {AGAIN}")
    digest = meta.pop("sha256", None)
    if digest != digest_of(meta):
        raise DataError(path, 0, 0, f"sha256 does not match, the file was changed: {AGAIN}")
    fault = next(faults(meta), None)
    if fault:
        raise DataError(path, 0, 0, f"its {fault} is {shown(meta.get(fault))}, which no store has: {AGAIN}")
    return meta


def faults(meta: dict[str, Any]) -> Iterator[str]:
    """Yield the names whose values are not what a Writer describes; those that follow rely on those before."""
    for name, (least, largest) in COUNTS.items():
        if not is_count(meta.get(name), least, largest):
            yield name
    if meta["nonzeros"] > meta["nnz"]:
        yield "nonzeros"
    described: list[Any] = [meta.get(name) for name in ("types", "crc", "classes", "class_counts")]
    types, sums, classes, counts = described
    if not isinstance(types, dict) or not all(
            isinstance(types.get(name), str) and re.fullmatch(known, types[name]) for name, known in TYPES.items()):
        yield "types"
    if not isinstance(sums, dict) or not all(is_count(sums.get(name), 0, (1 << 32) - 1) for name in SMALL):
        yield "crc"
    kinds = CLASSES[types["labels"][1]]
    if not isinstance(classes, list) or not all(
            type(label) in kinds and (not isinstance(label, int) or -1 << 63 <= label < 1 << 63) for label in classes):
        yield "classes"
    if not isinstance(counts, list) or len(counts) != len(classes) or not all(
            is_count(count, 1, meta["m"]) for count in counts) or sum(counts) != meta["m"]:
        yield "class_counts"
    source = meta.get("source")
    if source is not None and not (isinstance(source, dict) and isinstance(source.get("name"), str)
                                   and is_count(source.get("size"), 0, 1 << 62)):
        yield "source"


def is_count(value: object, least: int, largest: int) -> bool:
    # type(): True is an int.
    return type(value) is int and least <= value <= largest


def mapped(folder: str, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> AnyArray:
    """A read-only map of an array; DataError where the file is not that array."""
    path = place(folder, name)
    try:
        size = os.path.getsize(path)
    except FileNotFoundError:
        raise DataError(path, 0, 0, f"the file is missing: {AGAIN}") from None
    wanted = HEADER + np.dtype(dtype).itemsize * math.prod(shape)
    with open(path, "rb") as stream:
        header = stream.read(HEADER)
    if size != wanted:
        raise DataError(path, 0, 0, f"{size} bytes where {wanted} are to be: {AGAIN}")
    if header != header_of(dtype, shape):
        raise DataError(path, 0, 0, f"its header is of another array: {AGAIN}")
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", HEADER, shape)


def files_in(path: str) -> list[str]:
    """The file `path`, or the Parquet files of a folder, by name; what begins with . or _ is others' bookkeeping."""
    if not os.path.isdir(path):
        return [path]
    files = [os.path.join(path, name) for name in sorted(os.listdir(path)) if not name.startswith((".", "_"))]
    for file in files:
        if os.path.isdir(file):
            raise DataError(file, 0, 0, "a folder within a folder: give pyarrow.dataset.dataset(folder, "
                            "partitioning='hive'), or what else tells what its name means")
        if not file.endswith(".parquet"):
            raise DataError(file, 0, 0, "its name does not end in .parquet, as those of all files in the folder must")
    if not files:
        raise DataError(path, 0, 0, "there is no Parquet file in this folder")
    return files


def source_of(path: str, zero_based: bool, dtype: npt.DTypeLike, text_labels: bool | None) -> dict[str, Any]:
    """What tells a file from another one: name, size, time of its last change, digests of its ends; and how it is read.

    Of a folder the sum of its files' sizes, each one's name, size and time, and digests of all beginnings and all ends.
    """
    files = files_in(path)
    head, tail = hashlib.sha256(), hashlib.sha256()
    found = []
    for file in files:
        status = os.stat(file)
        found.append([os.path.basename(file), status.st_size, status.st_mtime_ns])
        with open(file, "rb") as stream:
            head.update(stream.read(END))
            stream.seek(max(0, status.st_size - END))
            tail.update(stream.read(END))
    when = {"mtime_ns": found[0][2]} if files == [path] else {"files": found}
    return {"name": os.path.basename(os.path.normpath(path)), "size": sum(size for _, size, _ in found), **when,
            "head": head.hexdigest(), "tail": tail.hexdigest(), "zero_based": bool(zero_based),
            "dtype": np.dtype(dtype).name, "text_labels": bool(text_labels)}
