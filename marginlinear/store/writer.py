"""From a source to a store, in bounded memory."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from marginlinear import params
from marginlinear._core.rows import Rows
from marginlinear._typing import AnyArray, IntArray, RealArray
from marginlinear.atomic import lock
from marginlinear.data.arrays import CSR, held, is_compressed
from marginlinear.data.columns import TableRule
from marginlinear.data.labels import labels_of, require_words
from marginlinear.errors import DataError, RowError
from marginlinear.libsvm import libsvm_blocks
from marginlinear.libsvm.reader import N_FEATURES, Progress, checked
from marginlinear.store import layout
from marginlinear.threads import run_chunks

if TYPE_CHECKING:
    from marginlinear.store.opened import Store

# Bytes of text that are parsed at once, and numbers that are converted at once.
BLOCK, NUMBERS = 1 << 20, 1 << 20
# Columns that uint16 holds.
NARROW = 1 << 16
# Integers up to here are floats, too.
EXACT = 1 << 53
# What a conversion holds in its folder for as long as it lasts.
LOCK = "lock"


def write(source: Any, path: str, n_features: int | None, zero_based: bool, dtype: npt.DTypeLike,
          text_labels: bool | None, overwrite: bool, threads: int | None, progress: Progress | None, like: Store | None,
          columns: dict[str, Any]) -> str:
    """`Store.write`, with a dict of its params.COLUMNS; returns the path."""
    layout.require_little_endian()
    dtype, threads = checked(dtype, threads, zero_based, text_labels, False, progress)
    n_features = None if n_features is None else N_FEATURES.check(n_features)
    meta: dict[str, Any] = {}
    parts: Iterable[tuple[Any, AnyArray]]
    file = isinstance(source, (str, os.PathLike)) and os.fspath(source) != "-" and (
        os.path.isfile(source) or os.path.isdir(source))
    made_of = layout.source_of(os.fspath(source), zero_based, dtype, text_labels) if file else None
    with folder_that_becomes(path, overwrite) as folder, closing(Writer(folder)) as writer:
        if is_table(source):
            if zero_based or text_labels:
                raise ValueError("zero_based and text_labels are for LIBSVM's text: the columns of a table have names "
                                 "and types, leave them out")
            from marginlinear.store.arrow import encoded

            parts, meta = encoded(source, columns, None if like is None else rule_in(like), dtype, threads, progress)
        elif like is not None or any(value is not None for value in columns.values()):
            raise ValueError(f"{', '.join(columns)} and like are for Parquet and Arrow: leave them out")
        elif isinstance(source, (str, os.PathLike)) or hasattr(source, "read"):
            blocks = libsvm_blocks(source, zero_based=zero_based, dtype=dtype, text_labels=text_labels,
                                   multilabel=False, threads=threads, progress=progress, _block_size=BLOCK)
            parts = ((part, part.labels) for part in blocks)
        else:
            if zero_based or text_labels or dtype != "float64":
                raise ValueError("zero_based, text_labels and dtype say how a file is read: leave them out for pairs")
            parts = checked_parts(source)
        for X, y in parts:
            writer.append(X, y)
        if file and layout.source_of(os.fspath(source), zero_based, dtype, text_labels) != made_of:
            raise DataError(os.fspath(source), 0, 0, "the file was changed while it was read: read it again")
        writer.finish(n_features, made_of, threads, meta)
    return path


def is_table(source: object) -> bool:
    """Whether a source is Parquet, by its name, a folder, or pyarrow's."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source).endswith(".parquet") or os.path.isdir(source)
    return type(source).__module__.partition(".")[0] == "pyarrow"


def rule_in(like: Store) -> TableRule:
    """That of a store of Parquet or Arrow, by which another one is to be encoded."""
    meta = getattr(like, "meta", None)
    if not isinstance(meta, dict):
        raise params.refusal("like", like, "a Store")
    if "label" not in meta:
        raise DataError(like.path, 0, 0, "this store, given as like, was not made of Parquet or Arrow: there are no "
                        "columns to go by")
    if meta["features"] is None:
        raise DataError(like.path, 0, 0, "this store, given as like, has too many features for their names to be kept: "
                        "write it again with categorical = 'hash'")
    return TableRule.of_meta(meta)


def checked_parts(source: Any) -> Iterator[tuple[CSR, AnyArray]]:
    """(CSR, labels) of pairs of anything; ValueError with the number of the pair."""
    if not isinstance(source, Iterable) or isinstance(source, (bytes, bytearray, np.ndarray)):
        raise TypeError(f"source is {type(source).__name__}: give a path, a binary file or pairs (X, y) of some rows "
                        "and their labels")
    for number, pair in enumerate(source):
        try:
            X, y = pair
            y = labels_of(y)
            require_words(np.unique(y).tolist())
            X = held(X)
            if not is_compressed(X):
                from scipy.sparse import csr_array

                X = held(csr_array(X))
            if X.shape[0] != len(y):
                raise ValueError(f"X has {X.shape[0]} rows, y has {len(y)} labels")
        except (TypeError, ValueError) as error:
            raise ValueError(f"pair {number} of the source: {error}") from error
        yield X, y


@contextmanager
def folder_that_becomes(path: str, overwrite: bool) -> Iterator[str]:
    """A new folder, which is `path` when the block ends well, and gone when it does not."""
    if os.path.lexists(path):
        if not overwrite:
            raise FileExistsError(errno.EEXIST, "it is there already: remove it, or name another folder", path)
        layout.read_meta(path)
    # A symbolic link goes on pointing where it did.
    target = os.path.realpath(path)
    parent, name = os.path.split(target)
    remove_left_over(parent, name)
    folder = os.path.join(parent, f".{name}.{os.urandom(8).hex()}.part")
    try:
        os.mkdir(folder)
        with locked(folder):
            yield folder
        if overwrite and os.path.lexists(target):
            # Killed from here on, the old store and the new one are there, under these names.
            os.rename(target, f"{folder}.old")
        os.rename(folder, target)
        shutil.rmtree(f"{folder}.old", ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.filename in (None, folder):
            raise OSError(error.errno, error.strerror, path) from error
        raise


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold a lock on a folder, which ends with the process, and which other machines and containers see, too."""
    with open(os.path.join(folder, LOCK), "xb") as stream:
        with suppress(OSError):  # a file system without locks: `is_left_over` is never true there
            lock(stream)
        yield
    os.unlink(stream.name)


def is_left_over(folder: str) -> bool:
    """Whether the lock of a folder is there, and nobody has it."""
    try:
        with open(os.path.join(folder, LOCK), "r+b") as stream:
            lock(stream)
    except OSError:
        return False
    return True


def remove_left_over(parent: str, name: str) -> None:
    """Of conversions to the same name that were killed."""
    with suppress(FileNotFoundError):
        for found in os.listdir(parent):
            folder = os.path.join(parent, found)
            if re.fullmatch(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}\.part", found) and is_left_over(folder):
                shutil.rmtree(folder, ignore_errors=True)


class Column:
    """An array on disk that grows, and whose type may become a wider one."""

    def __init__(self, folder: str, name: str, dtype: npt.DTypeLike) -> None:
        self.path, self.size = layout.place(folder, name), 0
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.stream = open(self.path, "xb")  # noqa: SIM115  closed with its Writer
        self.stream.write(bytes(layout.HEADER))

    def append(self, values: AnyArray | list[int]) -> None:
        self.stream.write(np.ascontiguousarray(values, self.dtype).view(np.uint8).data if len(values) else b"")
        self.size += len(values)

    def widen(self, dtype: npt.DTypeLike) -> None:
        """The same numbers in a wider type."""
        self.stream.close()
        old, was, size = f"{self.path}.narrow", self.dtype, self.size
        os.rename(self.path, old)
        self.dtype, self.size = np.dtype(dtype), 0
        self.stream = open(self.path, "xb")  # noqa: SIM115
        self.stream.write(bytes(layout.HEADER))
        with open(old, "rb") as stream:
            stream.seek(layout.HEADER)
            while self.size < size:
                self.append(np.fromfile(stream, was, NUMBERS))
        os.unlink(old)

    def finish(self, shape: tuple[int, ...] | None = None) -> None:
        self.stream.seek(0)
        self.stream.write(layout.header_of(self.dtype, shape or (self.size,)))
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()


class Writer:
    """The arrays of a store, as their rows come."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.columns: dict[str, Column] = {}
        for name, dtype in (("values", np.float32), ("indices", np.uint16), ("indptr", np.int64),
                            ("sqnorms", np.float64)):
            self.columns[name] = Column(folder, name, dtype)
        self.columns["indptr"].append([0])
        self.width, self.nonzeros = 0, 0
        self.counts: dict[Any, int] = {}
        # The first rows of chunks, and the places of their first values.
        self.chunks, self.begins = [0], [0]

    def close(self) -> None:
        for column in self.columns.values():
            column.stream.close()

    def append(self, X: CSR, y: AnyArray) -> None:
        """Rows of a CSR whose indices rise, and their labels."""
        stop = X.indptr[-1]
        data, indices = X.data[:stop], X.indices[:stop]
        try:
            sqnorms = Rows.from_csr(data, indices, X.indptr, X.n_features).sqnorms()
        except RowError as error:
            raise RowError(self.columns["sqnorms"].size + error.row, error.text) from None
        self._append_labels(y)
        self.width = max(self.width, X.n_features)
        if self.columns["indices"].dtype == np.uint16 and len(indices) and indices.max() >= NARROW:
            self.columns["indices"].widen(np.int32)
        ends = X.indptr[1:] + self.columns["values"].size
        self._cut(ends)
        self.columns["indptr"].append(ends)
        self.columns["values"].append(data if self.columns["values"].dtype == data.dtype else self._narrowed(data))
        self.columns["indices"].append(indices)
        self.columns["sqnorms"].append(sqnorms)
        self.nonzeros += int(np.count_nonzero(data))

    def _cut(self, ends: IntArray) -> None:
        """Chunks begin in front of rows that do not fit the last one; `ends` are the places behind rows' values."""
        done = self.columns["sqnorms"].size
        while True:
            fit = min(int(np.searchsorted(ends, self.begins[-1] + layout.CHUNK, side="right")),
                      self.chunks[-1] + layout.CHUNK - done)
            if fit >= len(ends):
                return
            # A row that fits none is one.
            fit = max(fit, self.chunks[-1] + 1 - done)
            self.chunks.append(done + fit)
            self.begins.append(int(ends[fit - 1]) if fit else self.columns["values"].size)

    def _narrowed(self, data: RealArray) -> RealArray:
        """The values in single precision, where that is exact; else the column becomes a wider one."""
        with np.errstate(over="ignore"):
            singles = data.astype(np.float32)
        if (singles == data).all():
            return singles
        self.columns["values"].widen(np.float64)
        return data

    def _append_labels(self, y: AnyArray) -> None:
        kind = np.int64 if y.dtype.kind in "iu" else np.float64 if y.dtype.kind == "f" else y.dtype
        if "labels" not in self.columns:
            self.columns["labels"] = Column(self.folder, "labels", kind)
        column = self.columns["labels"]
        if (y.dtype.kind == "U") != (column.dtype.kind == "U"):
            raise ValueError("labels must be all numbers or all strings")
        for label, count in zip(*map(np.ndarray.tolist, np.unique(y, return_counts=True)), strict=True):
            self.counts[label] = self.counts.get(label, 0) + count
        wider = np.promote_types(column.dtype, kind)
        if column.dtype != kind and wider == np.float64:
            large = [label for label in self.counts if isinstance(label, int) and abs(label) > EXACT]
            if large:
                raise ValueError(f"labels must be all integers, or all within {EXACT}: {large[0]} is not")
        if wider != column.dtype:
            column.widen(wider)
        column.append(y)

    def finish(self, n_features: int | None, source: dict[str, Any] | None, threads: int,
               meta: dict[str, Any]) -> None:
        """Close the files and describe them, by `meta` too."""
        columns = self.columns
        m, nnz = columns["sqnorms"].size, columns["values"].size
        if m == 0:
            raise ValueError("the source has no rows")
        if n_features is not None and n_features < self.width:
            raise ValueError(f"n_features = {n_features}, and the source has column {self.width - 1}")
        for column in columns.values():
            column.finish()
        if self.chunks[-1] < m:
            self.chunks.append(m)
            self.begins.append(nnz)
        for name, array in (("chunks", np.array(self.chunks)), ("crc", self._sums(np.array(self.begins), threads))):
            columns[name] = Column(self.folder, name, array.dtype)
            columns[name].append(array.ravel())
            columns[name].finish(array.shape)
        classes = sorted(self.counts)
        layout.write_meta(self.folder, {
            "format": layout.FORMAT, "m": m, "n_features": max(1, self.width) if n_features is None else n_features,
            "nnz": nnz, "nonzeros": self.nonzeros, "chunks": len(self.chunks) - 1, "classes": classes,
            "class_counts": [self.counts[label] for label in classes], "source": source,
            "types": {name: column.dtype.str for name, column in columns.items()},
            "crc": {name: layout.crc_of(layout.place(self.folder, name)) for name in layout.SMALL},
            **meta})

    def _sums(self, begins: IntArray, threads: int) -> AnyArray:
        """CRC-32 of the chunks that begin with these values, of the bytes as they are in the files."""
        def part(chunk: int, _: int) -> list[int]:
            return [layout.crc_of(layout.place(self.folder, name), *(
                layout.HEADER + self.columns[name].dtype.itemsize * begins[chunk:chunk + 2]).tolist())
                for name in layout.LARGE]

        return np.array(run_chunks(part, len(begins) - 1, threads, size=1), np.uint32)
