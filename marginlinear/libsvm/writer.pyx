"""Rows and labels as lines in LIBSVM format."""

import io
import os
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import numpy as np

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from marginlinear._core.check cimport check
from marginlinear._core.decimal cimport DOUBLE_WIDTH, GUARD, write_double, write_float, write_integer

from marginlinear.atomic import replacing
from marginlinear.data.arrays import CSR, held
from marginlinear.data.label_sets import are_label_sets, label_sets_of
from marginlinear.data.labels import labels_of, require_words
from marginlinear.libsvm.reader import LARGEST_INDEX
from marginlinear.params import check_flag, check_path, refusal

ctypedef fused real:
    float
    double

ROWS_AT_ONCE = 4096


def dump_libsvm(X, y, target, *, zero_based=False, comment=None):
    """Write rows and labels in LIBSVM format, so that reading them gives the same numbers.

    Parameters
    ----------
    X : array or sparse array of shape (rows, columns)
        Zeros are left out, entries at the same place added, rows sorted; X itself is not changed. float32
        values are written with the digits that tell them from other float32.
    y : array of shape (rows,)
        Bools, which become 0 and 1, integers, other numbers, or text of one word: see `marginlinear.data.labels`. Or
        any number of labels a row, as `train` takes them, words without commas: a row without labels begins with a
        blank, and has a feature of value 0 where it has no other.
    target : str, path, or binary file object
        `-` is standard output. A path that ends in .gz, .bz2 or .xz is compressed. A file appears under its
        name when it is complete: a failure leaves what was there.
    zero_based : bool, default=False
        Count indices from 0, not from 1.
    comment : str, default=None
        Written at the top, each line after `# `.

    Raises
    ------
    ValueError, TypeError
        A value is not finite, or would not read back as the same number; X does not hold together; an argument is of
        another kind. Nothing is written.
    OSError
        The file cannot be written.
    """
    if not hasattr(target, "write"):
        check_path("target", target)
    if not isinstance(comment, (str, type(None))):
        raise refusal("comment", comment, "text, or None")
    zero_based = check_flag("zero_based", zero_based)
    X = rows_of(X)
    several = are_label_sets(y)
    labels = (several_words if several else numbers_or_words)(y, X.shape[0])
    base = 0 if zero_based else 1
    head = "".join(f"# {line}\n" for line in comment.splitlines()) if comment else ""
    with created(target) as write:
        write(head.encode())
        for start in range(0, X.shape[0], ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, X.shape[0])
            indptr, indices, values = compressed(X, start, stop)
            words = labels[start:stop]
            write(rows_text(indptr, indices, values, seen(words, indptr, values, base) if several else words, base))


def rows_of(X):
    """X as `held` has it, of at least one row of finite numbers that float64 holds."""
    table = held(X)
    if table.shape[0] == 0:
        raise ValueError(f"X has shape {table.shape}; at least one row is needed")
    # The door makes float64 of a sparse array's values, and sees that they are finite.
    values = table.data if isinstance(table, CSR) else table
    dtype = getattr(X, "dtype", values.dtype) if isinstance(table, CSR) else values.dtype
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"X has dtype {dtype}; real numbers that float64 holds are needed")
    if dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("X holds nan or infinity")
    if dtype.kind in "iu" and dtype.itemsize == 8 and values.size:
        largest = max(int(values.max()), -int(values.min()))
        if largest >= 2**53:
            raise ValueError(f"X holds a number of the size of {largest}, not below 2^53, where float64 begins to skip "
                             "whole numbers")
    return table


def compressed(X, start, stop):
    """Row ends, indices and values of rows start to stop, as float32 if X is that, else float64."""
    if hasattr(X, "indptr"):
        indptr = X.indptr[start:stop + 1].astype(np.int64)
        part = slice(indptr[0], indptr[stop - start])
        indices, values = X.indices[part], X.data[part]
        indptr -= indptr[0]
    else:
        rows, indices = np.nonzero(X[start:stop])
        values = np.asarray(X[start:stop])[rows, indices]
        indptr = np.searchsorted(rows, np.arange(stop - start + 1))
    dtype = np.float32 if values.dtype == np.float32 else np.float64
    return indptr.astype(np.int64), indices.astype(np.int64), np.ascontiguousarray(values, dtype)


def numbers_or_words(y, rows):
    """A float64 array, or a list of bytes; ValueError if a label would read back differently."""
    y = labels_of(y)
    if y.shape != (rows,):
        raise ValueError(f"y has shape {y.shape}, X has {rows} rows")
    if y.dtype.kind == "U":
        require_words(set(y.tolist()))
        return [label.encode() for label in y.tolist()]
    if int(y.min()) <= -(2**53) or int(y.max()) >= 2**53:
        raise ValueError("y holds a number not below 2^53, which would not read back; make it text")
    return y.astype(np.float64)


def several_words(y, rows):
    """A list of bytes, the labels of each row with commas between; ValueError if they would read back differently."""
    y = label_sets_of(y)
    if len(y) != rows:
        raise ValueError(f"y has labels of {len(y)} rows, X has {rows} rows")
    kind = y.classes.dtype.kind
    for label in y.classes.tolist():
        if "," in label if kind == "U" else abs(label) >= 2**53:
            raise ValueError(f"y: label {label!r} would not read back: give words without commas, or numbers below "
                             "2^53")
    words = [word.encode() if kind == "U" else repr(word).removesuffix(".0").encode()
             for word in (y.classes.astype(np.int64) if kind == "b" else y.classes).tolist()]
    places = y.indices.tolist()
    return [b",".join([words[at] for at in places[low:high]]) for low, high in pairwise(y.indptr.tolist())]


def seen(words, indptr, values, base):
    """The words, where a row that would be a blank line has a feature of value 0."""
    full = np.zeros(len(words), dtype=bool)
    full[np.repeat(np.arange(len(words)), np.diff(indptr))[values != 0]] = True
    return [word or (b"" if there else b" %d:0" % base) for word, there in zip(words, full.tolist(), strict=True)]


def rows_text(const int64_t[::1] indptr, const int64_t[::1] indices, const real[::1] values, labels,
              int base):
    """The lines of some rows; ValueError for arrays that do not fit each other, as whoever has them can change them."""
    cdef Py_ssize_t rows = indptr.shape[0] - 1, i, k, room
    cdef int64_t beyond = LARGEST_INDEX
    cdef const double[::1] numbers = None
    cdef const unsigned char[::1] names = None
    cdef const int64_t[::1] ends = None
    cdef Py_ssize_t begin = 0
    cdef unsigned char* text
    cdef unsigned char* out
    if rows < 0 or len(labels) != rows or values.shape[0] != indices.shape[0]:
        raise ValueError(f"{len(labels)} labels, {rows} rows, {indices.shape[0]} indices, {values.shape[0]} values")
    for i in range(rows):
        if not 0 <= indptr[i] <= indptr[i + 1] <= indices.shape[0]:
            raise ValueError(f"indptr of row {i} does not fit: {indptr[i]} to {indptr[i + 1]}")
    for k in range(indices.shape[0]):
        if not 0 <= indices[k] < beyond:
            raise ValueError(f"column {indices[k]} is outside those that can be read, 0 to {beyond - 1}")
    room = rows * (DOUBLE_WIDTH + 1) + indices.shape[0] * (DOUBLE_WIDTH + 12) + 2 * GUARD
    if isinstance(labels, list):
        names = b"".join(labels) + b"\n"
        ends = np.cumsum([len(label) for label in labels], dtype=np.int64)
        room += names.shape[0]
    else:
        numbers = labels
    text = <unsigned char*> malloc(room)
    if text == NULL:
        raise MemoryError()
    try:
        with nogil:
            out = text
            for i in range(rows):
                if numbers is not None:
                    # + 0.0: a label -0 is 0
                    out = write_double(out, numbers[i] + 0.0)
                else:
                    memcpy(out, &names[begin], ends[i] - begin)
                    out += ends[i] - begin
                    begin = ends[i]
                for k in range(indptr[i], indptr[i + 1]):
                    if values[k] == 0:
                        continue
                    out[0] = c' '
                    out = write_integer(out + 1, indices[k] + base)
                    out[0] = c':'
                    if real is float:
                        out = write_float(out + 1, values[k])
                    else:
                        out = write_double(out + 1, values[k])
                    check(out - text, room - GUARD)
                out[0] = c'\n'
                out += 1
        return PyBytes_FromStringAndSize(<char*> text, out - text)
    finally:
        free(text)


@contextmanager
def created(target):
    """The write function of a target; a path is replaced at the end, or not at all."""
    if hasattr(target, "write"):
        if isinstance(target, io.TextIOBase):
            raise TypeError("target is a text file: open it in binary mode")
        yield target.write
        return
    path = os.fsdecode(target)
    with replacing(path) as file, compressor(path, file) as stream:
        yield stream.write


def compressor(path, file):
    """A context manager: what is written to it goes to `file`, compressed as the name of the path says."""
    if path.endswith(".gz"):
        import gzip

        return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
    if path.endswith(".bz2"):
        import bz2

        return bz2.open(file, "wb")
    if path.endswith(".xz"):
        import lzma

        return lzma.open(file, "wb")
    return nullcontext(file)
