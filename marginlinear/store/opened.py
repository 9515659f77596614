"""A store that is there: what it holds, mapped, and whether it is what was written."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from marginlinear import params
from marginlinear._core.rows import Rows
from marginlinear._typing import AnyArray, ArrayLike, BoolArray, MatrixLike, PathLike
from marginlinear.data.arrays import CSR
from marginlinear.data.columns import TableRule
from marginlinear.errors import DataError, RowError
from marginlinear.libsvm import LibsvmData
from marginlinear.libsvm.reader import Progress
from marginlinear.problem import Summary
from marginlinear.store import layout
from marginlinear.threads import ranges

# Classes that a store which prints itself shows.
SHOWN = 5
# Rows of which something is looked at together.
ROWS = 1 << 20
# What is to be done where a store is there, and another one is wanted.
OTHER = "remove the store, or name another folder"
# What says in meta.json how columns of Parquet and Arrow became features.
RULE = "features", "onehot", "hash"


class ArrowLike(Protocol):
    """A Table, RecordBatchReader or Dataset of pyarrow's."""

    @property
    def schema(self) -> Any: ...


class Store(Summary):
    """Rows and labels on disk. A fit goes over them in the memory that it is given: `train(store, memory="4G")`.

    Parameters
    ----------
    path : str or path
        The folder that `Store.write` has made.

    Attributes
    ----------
    path : str
    m, n_features, nnz, nonzeros : int
        Rows, columns, stored values, and those that are not 0.
    data, indices, indptr : arrays
        As of a CSR: float32 or float64, uint16 or int32, int64. Maps of files, read-only, as all arrays here.
    y : int64, float64 or str array of shape (m,)
        The labels.
    sqnorms : float64 array of shape (m,)
        Squared norms of the rows.
    classes, class_counts : arrays of shape (k,)
        The labels that there are, ascending, and how many rows have each.
    chunks : int64 array
        The first row of each chunk, and m.
    verified : bool array
        The chunks that have been compared with what was written, in this process.
    meta : dict
        The description in meta.json.

    Raises
    ------
    DataError
        For a folder that is no store, or that was damaged, and for a store of a later version.
    OSError
        The folder cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        layout.require_little_endian()
        self.path = os.fspath(path)
        self.meta = meta = layout.read_meta(self.path)
        self.m: int
        self.n_features: int
        self.nnz: int
        self.nonzeros: int
        self.m, self.n_features, self.nnz, self.nonzeros = (
            meta[name] for name in ("m", "n_features", "nnz", "nonzeros"))
        count = meta["chunks"]
        shapes = {"values": (self.nnz,), "indices": (self.nnz,), "indptr": (self.m + 1,), "labels": (self.m,),
                  "sqnorms": (self.m,), "chunks": (count + 1,), "crc": (count, 2)}
        maps = {name: layout.mapped(self.path, name, meta["types"][name], shape) for name, shape in shapes.items()}
        for name in layout.SMALL:
            if layout.crc_of(layout.place(self.path, name)) != meta["crc"][name]:
                raise DataError(layout.place(self.path, name), 0, 0,
                                f"its CRC-32 is another one, the file was changed: {layout.AGAIN}")
        self.data, self.indices, self.indptr, self.y, self.sqnorms = (
            maps[name] for name in ("values", "indices", "indptr", "labels", "sqnorms"))
        self.chunks, self._crc = np.array(maps["chunks"]), np.array(maps["crc"])
        self.classes = np.array(meta["classes"], dtype=self.y.dtype)
        self.class_counts = np.array(meta["class_counts"])
        self._require_order()
        self.verified: BoolArray = np.zeros(count, dtype=bool)

    @staticmethod
    def write(source: PathLike | IO[bytes] | Iterable[tuple[MatrixLike, ArrayLike]] | ArrowLike,
              path: str | os.PathLike[str], *, n_features: int | None = None, zero_based: bool = False,
              dtype: npt.DTypeLike = "float64", text_labels: bool | None = None, overwrite: bool = False,
              threads: int | None = None, progress: Progress | None = None, label: str | None = None,
              categorical: str | None = None, hash_bits: int | None = None, like: Store | None = None) -> Store:
        """Make a store, in memory that does not grow with it. It appears whole or not at all.

        Parameters
        ----------
        source : str, path, binary file object, iterable of (X, y), or what pyarrow has read
            A file in LIBSVM format, as `load_libsvm` takes it: `-` is standard input, pipes and compressed files will
            do. Or pairs of some rows, sparse or dense, and their labels, as `train` takes both. Or, with the extra
            `[arrow]`, a name that ends in `.parquet`, a folder of such files, which have one schema, a pyarrow Table,
            RecordBatchReader or Dataset: see Notes.
        path : str or path
            The folder to be made.
        n_features : int, optional
            Number of columns; default: that of the largest index, or of the widest X.
        zero_based, dtype, text_labels, threads, progress
            As of `load_libsvm`, for a file of one label a row. `dtype` "float32" rounds values. Of Parquet and Arrow
            `zero_based` and `text_labels` are refused, `threads` = 1 reads without pyarrow's threads, and progress is
            told the bytes that columns have in memory, None, and rows.
        overwrite : bool
            Whether a store at `path` is replaced. Nothing else ever is.
        label : str, default="label"
            Of Parquet and Arrow: the column of the labels, numbers or words.
        categorical : "onehot" or "hash", default="onehot"
            Of Parquet and Arrow: what columns of words become.
        hash_bits : int in [1, 30], default=22
            Of `categorical` "hash": log2 of the number of its features.
        like : Store, optional
            A store of Parquet or Arrow, by whose rule the columns become features, as for a test set. Values that it
            does not know are no features, columns that it does not know are left out.

        Returns
        -------
        Store

        Raises
        ------
        DataError, ValueError
            For what is wrong in the source: file, line and column, the number of the pair and the row, or the name
            of the column and the row, counted from 0. For a file that changes while it is read.
        OSError
            The source cannot be read, the folder not be written, or the disk is full.
        ModuleNotFoundError
            Parquet or Arrow is given, and pyarrow is not installed.

        Notes
        -----
        Columns of integers, floats and bools are a feature each, in their order. Null is 0; nan and inf are refused, as
        are integers beyond 2^53.

        Columns of words, that is strings, and dictionaries of strings, integers or bools, become features after all
        those. "onehot": one for each value, in the order of first appearance, column after column; it goes over the
        rows twice, so a RecordBatchReader is refused, and holds the values in memory. "hash": the value is feature
        FNV-1a(b"column=value") mod 2^hash_bits, of 64 bits, counted from the first after the numbers; two values of a
        row with one feature make it 2. A feature has the value 1, null is none.

        Columns of other types (dates, decimals, lists, structs, bytes) are refused by name. `meta` has `label`, the
        names of the features as `features` ("column", "column=value", None above 10^6), and `hash`, with its bits,
        columns and first feature.
        """
        from marginlinear.store.writer import write

        columns = {"label": label, "categorical": categorical, "hash_bits": hash_bits}
        return Store(write(source, os.fspath(path), n_features, zero_based, dtype, text_labels, overwrite, threads,
                           progress, like, columns))

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        sizes = f"{self.m:,} rows, {self.n_features:,} features, {self.nnz:,} values"
        each = sum(array.itemsize for array in (self.data, self.indices))
        counts = ", ".join(f"{label}: {count:,}" for label, count in
                           zip(self.classes[:SHOWN].tolist(), self.class_counts[:SHOWN].tolist(), strict=True))
        more = ", ..." if len(self.classes) > SHOWN else ""
        return f"Store({self.path!r}): {sizes}", [
            ("values", f"{self.data.dtype}, {each} bytes each with their features, {each * self.nnz / 1e6:,.1f} MB"),
            ("classes", f"{len(self.classes):,} ({counts}{more})"),
            ("chunks", f"{len(self.verified):,}, {np.count_nonzero(self.verified):,} verified so far")]

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.path,)

    @property
    def shape(self) -> tuple[int, int]:
        return self.m, self.n_features

    @property
    def labels(self) -> AnyArray:
        return self.y

    @property
    def table(self) -> TableRule | None:
        """How columns of Parquet or Arrow became the features; None of other sources, and where their names are not
        kept."""
        from marginlinear.store.writer import rule_in

        return rule_in(self) if self.meta.get("features") is not None else None

    def verify(self, chunk: int) -> None:
        """DataError where the values or columns of a chunk are not those that were written, or are no rows."""
        if self.verified[chunk]:
            return
        lo, hi = self.chunks[chunk:chunk + 2].tolist()
        first, last = self.indptr[[lo, hi]].tolist()
        parts = data, indices = self._part("values", first, last), self._part("indices", first, last)
        for name, part, wanted in zip(layout.LARGE, parts, self._crc[chunk], strict=True):
            if zlib.crc32(part.data) != wanted:
                raise DataError(layout.place(self.path, name), 0, 0, f"chunk {chunk}, rows {lo} to {hi - 1}: its "
                                f"CRC-32 is another one, the file was changed: {layout.AGAIN}")
        # As before they were written: under the right CRC wrong columns would become addresses, too.
        indptr = self._part("indptr", lo, hi + 1) - first
        try:
            Rows.from_csr(data, indices, indptr, self.n_features).sqnorms()
        except RowError as error:
            fault = RowError(lo + error.row, error.text)
            raise DataError(self.path, 0, 0, f"chunk {chunk}, {fault}: {layout.AGAIN}") from error
        self.verified[chunk] = True

    def require_source(self, path: str, zero_based: bool = False, dtype: npt.DTypeLike = "float64",
                       text_labels: bool | None = None) -> None:
        """DataError unless the store was made of the file `path`, or the folder of Parquet, as it is now, read as these
        parameters of `write` say."""
        was = self.meta["source"]
        if was is None:
            raise DataError(self.path, 0, 0, f"the store was not made of a file, so not of {path}: name another folder")
        now = layout.source_of(path, zero_based, dtype, text_labels)
        other = [name for name in now if was.get(name) != now[name]]
        if other:
            words = {"mtime_ns": "time of the last change", "files": "names, sizes and times of its files",
                     "head": "beginning", "tail": "end"}
            names = ", ".join(words.get(name, name) for name in other)
            raise DataError(self.path, 0, 0, f"the store was made of another {path}, or otherwise ({names}): {OTHER}")

    def require_columns(self, given: Mapping[str, Any], like: Store | None = None) -> None:
        """DataError unless the store, of Parquet, has its features by these values of params.COLUMNS, or by the rule of
        the Store `like`."""
        if like is None and self.meta.get("like"):
            raise DataError(self.path, 0, 0, f"the store was made like another one, and none is given: {OTHER}")
        if like is not None and not (self.meta.get("like") and all(
                self.meta.get(name) == like.meta.get(name) for name in RULE)):
            raise DataError(self.path, 0, 0, f"the store was not made like {like.path}: {OTHER}")
        hashed = self.meta.get("hash")
        was = {"label": self.meta["label"]}
        if like is None:
            was |= {"categorical": "hash" if hashed else "onehot",
                    "hash_bits": hashed["bits"] if hashed else params.HASH_BITS.default}
        values = params.resolve(params.COLUMNS, given)
        for name in was:
            if values[name] != was[name]:
                raise DataError(self.path, 0, 0,
                                f"the store was made with {name} = {was[name]!r}, not {values[name]!r}: {OTHER}")

    def parts(self) -> Iterator[LibsvmData]:
        """Yield all rows as LibsvmData, a verified chunk at a time, in arrays of their own."""
        for chunk, (lo, hi) in enumerate(pairwise(self.chunks.tolist())):
            self.verify(chunk)
            indptr = self._part("indptr", lo, hi + 1)
            first, last = indptr[0], indptr[-1]
            yield LibsvmData(self._part("values", first, last), self._part("indices", first, last), indptr - first,
                             self._part("labels", lo, hi), self.n_features, (self.path, 0, 0))

    def in_memory(self) -> LibsvmData:
        """LibsvmData of all rows, verified."""
        for chunk in range(len(self.verified)):
            self.verify(chunk)
        found = LibsvmData(self._part("values", 0, self.nnz), self._part("indices", 0, self.nnz),
                           self._part("indptr", 0, self.m + 1), self._part("labels", 0, self.m), self.n_features,
                           (self.path, 0, 0))
        found.table = self.table
        return found

    def X_blocks(self) -> Iterator[tuple[Any, AnyArray]]:
        """Yield (csr_array, labels) of some rows at a time, in their order."""
        for part in self.parts():
            # Learners beside this one take 32 bits only.
            indices, indptr = part.indices.astype(np.int32), part.indptr.astype(np.int32)
            yield CSR(part.data, indices, indptr, part.n_features).to_scipy(), part.labels

    def _part(self, name: str, start: int, stop: int) -> AnyArray:
        """Numbers of a file, read into an array: of a map the process would hold them from then on."""
        dtype = np.dtype(self.meta["types"][name])
        return np.fromfile(layout.place(self.path, name), dtype, stop - start,
                           offset=layout.HEADER + dtype.itemsize * int(start))

    def _require_order(self) -> None:
        """DataError where rows do not follow each other."""
        ends = self.indptr[0] == 0 and self.indptr[self.m] == self.nnz
        rising = all((np.diff(self._part("indptr", lo, hi + 1)) >= 0).all() for lo, hi in ranges(self.m, ROWS))
        chunks = self.chunks[0] == 0 and self.chunks[-1] == self.m and (np.diff(self.chunks) > 0).all()
        if not (ends and rising and chunks):
            raise DataError(self.path, 0, 0, f"its rows do not follow each other: {layout.AGAIN}")
