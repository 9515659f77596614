"""From a source to arrays: streams, decompression, blocks parsed on threads, and the table that they make."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from marginlinear._typing import AnyArray, FloatArray, Int64Array, IntArray, PathLike, RealArray
from marginlinear.data.arrays import CSR, as_singles, spread
from marginlinear.data.label_sets import LabelSets
from marginlinear.data.reading import MEMORY, SPARE
from marginlinear.errors import DataError
from marginlinear.libsvm.parser import Block, equal_values, first_word
from marginlinear.params import THREADS, Param, check_flag, check_function, refusal
from marginlinear.threads import default_threads, started

if TYPE_CHECKING:
    from threading import Thread

Source: TypeAlias = "PathLike | IO[bytes]"
# Reads into a writable buffer, as io.RawIOBase.readinto.
ReadInto: TypeAlias = Callable[[memoryview], "int | None"]
# progress(bytes_done, bytes_total, rows)
Progress: TypeAlias = Callable[[int, "int | None", int], object]
# Text and arrays of a block stay in the second-level cache; Python's share of the work is below 1 %.
BLOCK_SIZE = 1 << 18
# Packed bytes that are unpacked at once: of zstd, whose blocks of 128 KB take 4 bytes or more, 16 MB come out at most.
PACKED_SIZE = 1 << 9
LARGEST_INDEX = 2**31 - 1
N_FEATURES = Param("n_features", int, None, "number of columns", f"[1, {LARGEST_INDEX}]")
FLOATS = "float64", "float32"
# What is read of a source of unknown size is thought to be this part of it: room for the rest is not all used.
KNOWN = 0.8
# Rows that have so many values on average take less memory with two numbers a row than with one float32 a value.
WORTH = 4


class LibsvmData(CSR):
    """Rows of a file in compressed sparse row form.

    Attributes
    ----------
    data : float64 or float32 array of shape (nonzeros,)
    indices : int32 or, where they are narrow, uint16 array of shape (nonzeros,)
        Columns, from 0, rising along a row.
    indptr : int64 array of shape (rows + 1,)
    labels : int64, float64 or str array of shape (rows,), or LabelSets
    n_features : int
    largest : (str, int, int)
        Where the largest index stands: the file, line and column as of a DataError.
    table : TableRule or None
        Of rows that were columns of a table: how these became the features.
    """

    table: Any = None

    def __init__(self, data: RealArray | None, indices: IntArray, indptr: IntArray, labels: AnyArray | Any,
                 n_features: int, largest: tuple[str, int, int], equal: FloatArray | None = None) -> None:
        super().__init__(data, indices, indptr, n_features, equal=equal)
        # Or Any: who may meet LabelSets asks for them.
        self.labels: AnyArray | Any = labels
        self.largest = largest


def read_libsvm(source: Source, *, n_features: int | None = None, zero_based: bool = False,
                dtype: npt.DTypeLike = "float64", narrow: bool = False, text_labels: bool | None = None,
                multilabel: bool | None = None, threads: int | None = None, progress: Progress | None = None,
                _block_size: int = BLOCK_SIZE) -> LibsvmData:
    """Read a file in LIBSVM format, in one pass.

    Parameters
    ----------
    source, n_features, zero_based, dtype, text_labels, multilabel, threads
        As `load_libsvm` has them, and with its errors; a small file takes one thread.
    narrow : bool, default=False
        Hold indices as uint16 where there are at most 2^16 features, and float64 values as float32 where these are
        the same numbers: all of them, as in a table of counts; with more features, one value a row where all that a
        row has are equal, as in words present or absent (`CSR.equal`). Nothing is lost.
    progress : callable, default=None
        Called as progress(bytes_done, bytes_total, rows) at most ten times a second and at the end, in the calling
        thread. bytes_total is None where it is not known; of compressed files, what came out is counted.

    Returns
    -------
    LibsvmData
        Zeros that the file states are kept. Labels are int64 if each is a whole number, else float64, and str
        if they are words.
    """
    dtype, threads = checked(dtype, threads, zero_based, text_labels, multilabel, progress)
    n_features = None if n_features is None else N_FEATURES.check(n_features)
    table: Any = None
    with closing(parsed_blocks(source, zero_based, n_features, dtype, text_labels, multilabel, threads, progress,
                               _block_size)) as blocks:
        for path, total, block in blocks:
            if table is None:
                table = Table(path, block, n_features, total, narrow)
            table.append(block)
    found: LibsvmData = table.finish()
    return found


def libsvm_blocks(source: Source, *, zero_based: bool = False, dtype: npt.DTypeLike = "float64",
                  text_labels: bool | None = None, multilabel: bool | None = None, threads: int | None = None,
                  progress: Progress | None = None, _block_size: int = BLOCK_SIZE) -> Iterator[LibsvmData]:
    """Yield the rows of a file in LIBSVM format some at a time, in memory that does not grow with the file.

    Parameters are those of `read_libsvm`. Each LibsvmData has the rows of some lines, and as n_features its own largest
    index. DataError comes after the blocks before it; a file without rows is one too.
    """
    lines, some = 0, False
    table: Any = None
    dtype, threads = checked(dtype, threads, zero_based, text_labels, multilabel, progress)
    with closing(parsed_blocks(source, zero_based, None, dtype, text_labels, multilabel, threads, progress,
                               _block_size)) as blocks:
        for path, _, block in blocks:
            table = Table(path, block, lines=lines)
            table.append(block)
            lines = table.lines
            if table.rows:
                yield table.finish()
                some = True
    if not some:
        table.finish()


def good_blocks(source: Source, refuse: Callable[[DataError], object], *, text_labels: bool | None = None,
                multilabel: bool | None = None, progress: Progress | None = None,
                _block_size: int = 1 << 20) -> Iterator[tuple[LibsvmData, Int64Array]]:
    """Yield the rows of a file some at a time, without those that have something wrong, and their lines, from 1.

    The DataError of each line that is wrong goes to `refuse`, for the first thing in it. Features are numbered as in
    the file: an index of 0 is one, too. Parameters are those of `read_libsvm`.
    """
    checked("float64", 1, False, text_labels, multilabel, progress)
    block = Block(_block_size, "float64", text_labels, multilabel, 0, LARGEST_INDEX - 1)
    done, rows, more, learned, next_call = 0, 0, True, False, 0.0
    with opened(source) as (path, readinto, size):
        head = first_bytes(readinto)
        readinto, rest = decompressed(path, head, readinto)
        lines = Lines(readinto, rest, _block_size)
        total = size if rest is head else None
        while more:
            more = lines.fill(block)
            begin = 0
            while True:
                block.parse() if learned else block.learn_kind()
                learned = learned or block.label_count > 0
                table = Table(path, block, lines=done)
                numbers = row_lines(block) + done + 1
                rows += block.rows
                table.append_good(block, refuse)
                if table.rows:
                    yield table.finish(), numbers
                done += block.lines
                if not block.code:
                    break
                column, reason, fix = fault_of(block, None)
                refuse(DataError(path, done + 1, column - (begin if block.lines == 0 else 0), reason, fix))
                done += 1
                end = block.text.find(b"\n", block.place, block.size) + 1
                if not end:
                    break
                block.start = begin = end
            if progress is not None and time.monotonic() >= next_call:
                progress(lines.done, total, rows)
                next_call = time.monotonic() + 0.1
        if progress is not None:
            progress(lines.done, total, rows)


def fault_of(block: Block, n_features: int | None) -> tuple[int, str, str]:
    """(column, counted from 1; what is wrong; the fix) of a block that has an error."""
    column, reason = block.fault(n_features)
    # Behind the first of these, as a word of the file has no blank.
    what, _, fix = reason.partition("; ")
    return column, what, fix


def row_lines(block: Block) -> Int64Array:
    """The line of each row of a block, from 0; comments and blank lines are none."""
    if block.rows == block.lines:
        return np.arange(block.rows)
    lines = bytes(block.text[block.start:block.size]).split(b"\n", block.lines)[:block.lines]
    return np.array([number for number, line in enumerate(lines) if line.lstrip(b" \t\r")[:1] not in (b"", b"#")],
                    dtype=np.int64)


def checked(dtype: npt.DTypeLike, threads: int | None, zero_based: bool, text_labels: bool | None,
            multilabel: bool | None, progress: Progress | None) -> tuple[str, int]:
    """The type's name and the number of threads; TypeError or ValueError for what is none of what `read_libsvm` takes.
    """
    try:
        dtype = str(np.dtype(dtype))
    except (TypeError, ValueError):
        raise refusal("dtype", dtype, "float64 or float32") from None
    if dtype not in FLOATS:
        raise refusal("dtype", dtype, "float64 or float32", ValueError)
    check_flag("zero_based", zero_based)
    for name, value in (("text_labels", text_labels), ("multilabel", multilabel)):
        if value is not None:
            check_flag(name, value)
    check_function("progress", progress)
    return dtype, default_threads() if threads is None else THREADS.check(threads)


def load_libsvm(source: Source, *, dtype: npt.DTypeLike = "float64", n_features: int | None = None,
                zero_based: bool = False, text_labels: bool | None = None, multilabel: bool | None = None,
                threads: int | None = None) -> tuple[Any, AnyArray | Any]:
    """Read a file in LIBSVM format into a sparse matrix and its labels.

    Parameters
    ----------
    source : str, path, or binary file object
        `-` is standard input. Pipes will do; gzip, bzip2, xz and zstd data are known by their first bytes.
    dtype : {float64, float32}, default=float64
        Values are rounded once, from the decimal to this type.
    n_features : int, default=None
        Number of columns; an index above it is an error. None takes the largest index of the file.
    zero_based : bool, default=False
        Indices of the file count from 0, not from 1. It is never guessed.
    text_labels : bool, default=None
        Keep labels as the text in the file. None: where the first one begins with a letter; then none may be a number,
        nor have a comma.
    multilabel : bool, default=None
        Rows have any number of labels, with commas between; one that has none begins with a blank. None: where there
        is a comma in the first label, and text_labels was not given.
    threads : int, default=None
        Threads at work, the calling one included; None: one for each core this process may use. The
        result is the same for any number, and several calls may run at once.

    Returns
    -------
    X : scipy.sparse.csr_array of shape (rows, n_features)
        Indices are int32 unless there are 2^31 nonzeros or more. Zeros that the file states are kept.
    y : int64, float64 or str array of shape (rows,), or LabelSets of so many rows
        int64 if each label is a whole number, else float64; str if they are words. LabelSets of a multi-label file.

    Raises
    ------
    DataError
        With line and column of the first thing in the file that is wrong.
    OSError
        The file cannot be read.
    ValueError, TypeError
        A parameter is outside its domain, or of another type.
    """
    from scipy.sparse import csr_array

    read = read_libsvm(source, n_features=n_features, zero_based=zero_based, dtype=dtype,
                       text_labels=text_labels, multilabel=multilabel, threads=threads)
    indptr = read.indptr if len(read.data) > LARGEST_INDEX else read.indptr.astype(np.int32)
    X = csr_array((read.data, read.indices, indptr), shape=(len(read.labels), read.n_features))
    X.has_canonical_format = True  # the parser has seen that indices rise
    return X, read.labels


class Column:
    """An array that grows: memory that it does not use is not touched."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.room: AnyArray = np.empty(0, dtype)
        self.size = 0

    def append(self, values: AnyArray | list[int], share: float) -> None:
        """Values at the end, which make it about `share` of all there will be: a good guess saves moves."""
        size = self.size + len(values)
        if size > len(self.room):
            room = max(int(1.05 * size / share), 1 << 13)
            if self.size:
                self.room.resize(room, refcheck=False)
            else:
                self.room = np.empty(room, self.room.dtype)
        self.room[self.size:size] = values
        self.size = size

    def widen(self, dtype: npt.DTypeLike) -> None:
        """The same numbers in a wider type."""
        narrow = self.room
        self.room = np.empty(len(narrow), dtype)
        self.room[:self.size] = narrow[:self.size]

    def take(self, values: AnyArray) -> None:
        """These in place of all others: an array that nobody else has."""
        self.room, self.size = values, len(values)

    def array(self) -> AnyArray:
        self.room.resize(self.size, refcheck=False)
        return self.room


class Table:
    """The rows of a file, block by block. `total` is the number of bytes that will come; None if that is not known."""

    def __init__(self, path: str, block: Block, n_features: int | None = None, total: int | None = None,
                 narrow: bool = False, lines: int = 0) -> None:
        self.path, self.n_features, self.total, self.lines = path, n_features, total, lines
        self.base, self.largest, self.place = block.base, block.base - 1, (path, 0, 0)
        self.data = Column(np.float32 if narrow else block.dtype)
        # The value of each row, while no row has several.
        self.equal = Column(np.float64) if narrow else None
        self.indices = Column(np.uint16 if narrow else np.int32)
        self.indptr, self.labels = Column(np.int64), Column(np.float64)
        self.indptr.append([0], 1)
        # Of words, and of several labels a row; of what kind labels are the first one may tell.
        self.names: list[str] | None = None
        self.label_ends: Column | None = None
        self.label_count = self.text = 0  # labels and bytes so far

    @property
    def rows(self) -> int:
        return self.indptr.size - 1

    def append(self, block: Block) -> None:
        """Add the rows of a parsed block; DataError if it has an error."""
        if block.text_labels:
            self.names = self.names or []
            self._append_names(block, self.names)
        if block.code:
            column, reason, fix = fault_of(block, self.n_features)
            raise DataError(self.path, self.lines + block.lines + 1, column, reason, fix)
        self._append_rows(block, block.label_count)

    def append_good(self, block: Block, refuse: Callable[[DataError], object]) -> None:
        """Add the rows before an error; the DataError of a label that is no text goes to `refuse`."""
        count = block.rows if not block.multilabel else int(block.label_ends[block.rows - 1]) if block.rows else 0
        if block.text_labels:
            self.names = []
            try:
                self._append_names(block, self.names)
            except DataError as error:
                refuse(error)
                self.names = block.names[:block.names_size].tobytes().decode(errors="backslashreplace").split("\n")
            del self.names[count:]
        self._append_rows(block, count)

    def _append_rows(self, block: Block, label_count: int) -> None:
        if block.multilabel and self.label_ends is None:
            self.label_ends = Column(np.int64)
        if block.rows:
            self.text += block.size
            share = min(1.0, self.text / self.total) if self.total else KNOWN
            self._append_features(block, share)
            if self.label_ends is not None:
                self.label_ends.append(block.label_ends[:block.rows] + self.label_count, share)
            if self.names is None:
                self.labels.append(block.labels[:label_count], share)
            self.label_count += label_count
        if block.largest > self.largest:
            self.largest = block.largest
            self.place = self.path, self.lines + block.largest_line + 1, block.largest_column + 1
        self.lines += block.lines

    def _append_features(self, block: Block, share: float) -> None:
        # Behind the last row there may be a part of one that is wrong.
        features = block.row_ends[block.rows - 1]
        indices, values = block.indices[:features], block.data[:features]
        if self.indices.room.dtype == np.uint16 and block.largest - block.base >= 1 << 16:
            self.indices.widen(np.int32)
        equal = None if self.equal is None else equal_values(block)
        if self.equal is not None and equal is not None:
            self.equal.append(equal, share)
        else:
            self._spread()
            if self.data.room.dtype != values.dtype:
                singles = as_singles(values)
                if singles is None:
                    self.data.widen(np.float64)
                else:
                    values = singles
            self.data.append(values, share)
        self.indptr.append(block.row_ends[:block.rows] + self.indices.size, share)
        self.indices.append(indices, share)

    def _spread(self) -> None:
        """From here on each value has a place."""
        if self.equal is None:
            return
        each, self.equal = self.equal.array(), None
        if self.indices.size:
            self.data.take(spread(each, self.indptr.room[:self.indptr.size]))

    def _append_names(self, block: Block, known: list[str]) -> None:
        names = block.names[:block.names_size].tobytes()
        try:
            known += names.decode().split("\n")[:-1]
        except UnicodeDecodeError as wrong:
            row = names.count(b"\n", 0, wrong.start)
            if block.multilabel:
                row = int(np.searchsorted(block.label_ends[:block.rows], row, side="right"))
            for number, line in enumerate(block.text[block.start:block.size].split(b"\n"), 1):
                token = line.lstrip(b" \t\r")
                row -= bytes(token[:1]) not in (b"", b"#")
                if row < 0:
                    column = len(line) - len(token) + 1 + (block.start if number == 1 else 0)
                    reason = f"label {first_word(token)} is not UTF-8 text"
                    raise DataError(self.path, self.lines + number, column, reason) from None

    def finish(self) -> LibsvmData:
        """LibsvmData of all rows; labels become int64 if each is a whole number."""
        if self.rows == 0:
            only = "only comments or blank lines" if self.lines else "it is empty"
            raise DataError(self.path, 0, 0, f"the file has no rows: {only}")
        labels: AnyArray | Any
        if self.names is None:
            labels = self.labels.array()
            labels = labels.astype(np.int64) if (labels == np.trunc(labels)).all() else labels
        else:
            longest = max(map(len, self.names), default=0)
            # An array of text gives every label the room of the longest.
            if 4 * longest * len(self.names) > MEMORY * self.text + SPARE:
                raise DataError(self.path, 0, 0, f"a label of {longest} characters is too long beside {self.rows} rows")
            labels = np.array(self.names, dtype=np.str_)
        if self.label_ends is not None:
            labels = LabelSets.of_flat(labels, self.label_ends.array())
        n_features = self.largest - self.base + 1 if self.n_features is None else self.n_features
        # Where numbers of features are not narrow, a value for each would be the most of what is held.
        if self.indices.room.dtype == np.uint16 or WORTH * self.rows > self.indices.size:
            self._spread()
        equal = None if self.equal is None else self.equal.array()
        data = None if self.equal is not None else self.data.array()
        return LibsvmData(data, self.indices.array(), self.indptr.array(), labels, n_features, self.place, equal)


def parsed_blocks(source: Source, zero_based: bool, n_features: int | None, dtype: str, text_labels: bool | None,
                  multilabel: bool | None, threads: int, progress: Progress | None,
                  block_size: int) -> Generator[tuple[str, int | None, Block], None, None]:
    """Yield (name of the source, bytes in all or None, Block) in the order of the file.

    The caller must be done with one block when it asks for the next.
    """
    base = 0 if zero_based else 1
    limit = base - 1 + (LARGEST_INDEX if n_features is None else n_features)
    next_call, rows = 0.0, 0

    def make() -> Block:
        return Block(block_size, dtype, text_labels, multilabel, base, limit)

    with opened(source) as (path, readinto, size):
        head = first_bytes(readinto)
        readinto, rest = decompressed(path, head, readinto)
        lines = Lines(readinto, rest, block_size)
        total = size if rest is head else None
        with closing(parse_on_threads(lines, make, threads)) as blocks:
            for block in blocks:
                rows += block.rows
                yield path, total, block
                if progress is not None and time.monotonic() >= next_call:
                    progress(lines.done, total, rows)
                    next_call = time.monotonic() + 0.1
        if progress is not None:
            progress(lines.done, total, rows)


def parse_on_threads(lines: Lines, make: Callable[[], Block], threads: int) -> Generator[Block, None, None]:
    """Blocks in the order of the file, parsed; the caller must be done with one when it asks for the next.

    The blocks up to the first label, which tells of what kind all are, come one by one. Then this thread reads, so
    that a signal interrupts a slow pipe, and parses while it has to wait; threads - 1 others parse, or as many as can
    be had. What goes wrong in reading is raised after the blocks read before, so that an earlier error of theirs comes
    first.
    """
    block, more = make(), True
    while more and not block.label_count:
        more = lines.fill(block)
        block.learn_kind()
        yield block
    if threads == 1:
        while more:
            more = lines.fill(block)
            block.parse()
            yield block
    if not more:
        return

    from queue import Empty, SimpleQueue

    jobs: SimpleQueue[Block | None] = SimpleQueue()
    done: SimpleQueue[Exception | None] = SimpleQueue()
    waiting: deque[Block] = deque()
    workers: list[Thread] = []
    spare = [block]
    failure: Exception | None = None
    for other in (make() for _ in range(threads + 1)):
        other.follow(block)
        spare.append(other)

    def work() -> None:
        while (block := jobs.get()) is not None:
            wrong: Exception | None = None
            try:
                block.parse()
            except Exception as error:
                wrong = error
            done.put(wrong)

    try:
        workers.extend(started(work, threads - 1))
        while waiting or more:
            while waiting and waiting[0].parsed:
                yield waiting[0]
                spare.append(waiting.popleft())
            if more and spare:
                block = spare.pop()
                try:
                    more = lines.fill(block)
                except Exception as wrong:
                    failure, more = wrong, False
                    continue
                waiting.append(block)
                jobs.put(block)
            elif waiting and not waiting[0].parsed:
                try:
                    cast(Block, jobs.get_nowait()).parse()
                except Empty:
                    if (lost := done.get()) is not None:
                        raise lost from None
        if failure is not None:
            raise failure
    finally:
        # For all: one whose start was interrupted is not among the workers.
        for _ in range(threads - 1):
            jobs.put(None)
        for worker in workers:
            worker.join()


class Lines:
    """Cuts a stream into blocks of whole lines; the rest of a block begins the next one.

    Each is cut at `block_size` bytes, or where its only line ends, whatever room other lines have made in it before: so
    the cuts, and what has been parsed when the stream fails, are the same for any number of blocks in use.
    """

    def __init__(self, readinto: ReadInto, head: bytes, block_size: int) -> None:
        self.readinto, self.block_size = readinto, block_size
        self.rest: bytes | bytearray = head
        self.done = len(head)  # bytes read
        self.begun = False

    def fill(self, block: Block) -> bool:
        """Fill `block`; False at the end of the stream. A line longer than the block makes it grow."""
        block.parsed = ended = False
        size, searched, wanted = len(self.rest), 0, self.block_size
        while wanted <= size:
            wanted *= 2
        block.grow(wanted)
        block.text[:size] = self.rest
        while True:
            while size < wanted and not ended:
                with memoryview(block.text)[size:wanted] as room:
                    n = read_some(self.readinto, room)
                ended = n == 0
                size += n
                self.done += n
            cut = size if ended else block.text.rfind(b"\n", searched, size) + 1
            if ended or cut:
                break
            searched = size
            wanted *= 2
            block.grow(wanted)
        self.rest = block.text[cut:size]
        block.start = 0 if self.begun or not block.text.startswith(b"\xef\xbb\xbf", 0, cut) else 3
        self.begun = True
        block.size = cut
        return not ended


def read_some(readinto: ReadInto, room: memoryview) -> int:
    """Bytes read into `room`; 0 at the end of the stream."""
    n = readinto(room)
    if n is None:
        raise BlockingIOError(errno.EAGAIN, "the source is in non-blocking mode and has no data yet")
    return n


def first_bytes(readinto: ReadInto) -> bytes:
    """The first 10 bytes, which tell how a stream is compressed; fewer if it is shorter."""
    head, size = bytearray(10), 0
    while size < len(head):
        with memoryview(head)[size:] as room:
            n = read_some(readinto, room)
        if n == 0:
            break
        size += n
    return bytes(head[:size])


@contextmanager
def opened(source: Source) -> Iterator[tuple[str, ReadInto, int | None]]:
    """(name, readinto, size) of a source; size is None unless it is a plain file given by its path."""
    stream: Any
    if isinstance(source, (str, bytes, os.PathLike)):
        path = os.fsdecode(source)
        if path == "-":
            if sys.stdin is None:
                raise OSError(errno.EBADF, "there is no standard input")
            stream = sys.stdin.buffer
            yield "<stdin>", readinto_of(stream), None
            return
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            yield path, file.readinto, status.st_size if stat.S_ISREG(status.st_mode) else None
    elif isinstance(source, io.TextIOBase):
        raise TypeError("source is a text file: open it in binary mode")
    elif hasattr(source, "read"):
        name = getattr(source, "name", None)
        yield name if isinstance(name, str) else "<file object>", readinto_of(source), None
    else:
        raise TypeError(f"source is a {type(source).__name__}; a path, '-' or a binary file object is needed")


def readinto_of(stream: Any) -> ReadInto:
    """The readinto of a file object, made of its read if it has only that."""
    if isinstance(stream, io.BufferedReader):
        # One read of the raw stream at a time, in between which Python hears a signal: a loop in C would carry one into
        # the next read, which may wait for ever.
        return stream.readinto1
    if hasattr(stream, "readinto"):
        return cast(ReadInto, stream.readinto)
    read = stream.read

    def readinto(room: memoryview) -> int | None:
        text = read(len(room))
        if text is None:
            return None
        if not isinstance(text, (bytes, bytearray, memoryview)):
            kind = type(text).__name__
            raise TypeError(f"source.read() gave {kind}, not bytes: open the file in binary mode")
        room[:len(text)] = text
        return len(text)

    return readinto


def decompressed(path: str, head: bytes, readinto: ReadInto) -> tuple[ReadInto, bytes]:
    """readinto and first bytes of the stream that begins with `head`, decompressed if these say so."""
    opener: Callable[..., Any]
    errors: tuple[type[Exception], ...]
    if head[:3] == b"\x1f\x8b\x08":
        import gzip
        import zlib

        opener, errors = gzip.open, (EOFError, OSError, zlib.error)
    elif head[:3] == b"BZh" and head[4:] in (b"1AY&SY", b"\x17rE8P\x90"):
        import bz2

        opener, errors = bz2.open, (EOFError, OSError)
    elif head[:6] == b"\xfd7zXZ\x00":
        import lzma

        opener, errors = lzma.open, (EOFError, lzma.LZMAError)
    elif head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5f):
        # The second is a frame to be skipped, which may stand before those of data.
        opener, errors = zstd(path)
    else:
        return readinto, head
    stream = opener(io.BufferedReader(Replayed(head, readinto), BLOCK_SIZE))

    def decompress(room: memoryview) -> int | None:
        try:
            return stream.readinto(room)
        except errors as wrong:
            # A failing disk stays an OSError.
            if isinstance(wrong, OSError) and wrong.errno is not None:
                raise
            raise DataError(path, 0, 0, f"the compressed data are damaged or cut short: {wrong}") from wrong

    return decompress, b""


def zstd(path: str) -> tuple[Callable[..., Any], tuple[type[Exception], ...]]:
    """The function that opens zstd data, and the errors of its streams."""
    try:
        from compression import zstd
    except ImportError:
        try:
            import zstandard
        except ImportError:
            raise DataError(path, 0, 0, "zstd data need Python 3.14 or the package zstandard "
                                        "(pip install zstandard)") from None
        # zstandard.open takes data that are cut short for a shorter file.
        return partial(Frames, zstandard.ZstdDecompressor().decompressobj), (EOFError, zstandard.ZstdError)
    return zstd.open, (EOFError, zstd.ZstdError)


class Frames(io.RawIOBase):
    """Compressed frames one after the other, unpacked; EOFError where the source ends within one.

    `make` makes what unpacks a frame, as `zlib.decompressobj` does.
    """

    def __init__(self, make: Callable[[], Any], source: io.BufferedReader) -> None:
        self.make, self.source = make, source
        self.frame: Any = None
        self.room = memoryview(bytearray(PACKED_SIZE))
        self.packed = self.unpacked = self.room[:0]

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        while not self.unpacked:
            packed = self.packed or self.room[:read_some(self.source.readinto, self.room)]
            if not packed and self.frame is not None:
                raise EOFError("they end within a frame")
            if not packed:
                return 0
            frame = self.frame or self.make()
            self.unpacked = memoryview(frame.decompress(packed))
            self.packed, self.frame = memoryview(frame.unused_data), None if frame.eof else frame
        n = min(len(room), len(self.unpacked))
        room[:n] = self.unpacked[:n]
        self.unpacked = self.unpacked[n:]
        return n


class Replayed(io.RawIOBase):
    """The bytes that were read to look at them, then the rest of the stream."""

    def __init__(self, head: bytes, readinto: ReadInto) -> None:
        self.head, self.rest = head, readinto

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int | None:
        if not self.head:
            return self.rest(room)
        n = min(len(self.head), len(room))
        room[:n] = self.head[:n]
        self.head = self.head[n:]
        return n
