"""A store's rows as engines see them: mapped files, of which a fit holds so many bytes at once as it is given.

Sweeps visit rows in random order. Of rows on disk they visit windows: chunks from all over the store, drawn afresh in
each sweep, whose rows are visited in random order while the next window is read ahead. Sweeps need no more passes so
than in memory, whatever the order of the rows in the store and the number of windows (fixed blocks do: Yu, Hsieh,
Chang and Lin, KDD 2010, read them in turn).

All arrays here are pages of files, the store's and scratch ones for what a fit has for each row. Pages can be let go of
at any time, and a thread does so whenever the process holds more than it may: the results do not depend on it.
"""

from __future__ import annotations

import mmap
import os
import shutil
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from marginlinear import memory as memories
from marginlinear._core.rows import Rows
from marginlinear._typing import AnyArray, IntArray
from marginlinear.data.arrays import CSR, HeldRows, shape_of
from marginlinear.params import MEMORY, SWEEPS_PER_LOAD
from marginlinear.store import layout
from marginlinear.store.opened import Store
from marginlinear.threads import ranges, run_chunks

# A window's part of the memory; another is for arrays of rows, the rest for weights and the process itself.
WINDOW = 1 / 4
# Arrays of rows below so many bytes stay in memory.
LITTLE = 1 << 20
# Seconds between looks at what the process holds, and the part of the memory at which pages are let go of.
LOOK, FULL = 0.004, 0.85
WATCH = "marginlinear pages"
# Bytes that are copied at once.
PART = 1 << 24
# Threads that read ahead: one alone leaves the disk idle between two chunks.
READERS = 4
# Windows that they are ahead of the one that is visited.
AHEAD = 2


def paged(X: Any, memory: int | str | None = None, sweeps_per_load: int | None = None,
          sharers: int = 1) -> Any:
    """The Pager of a Store, within `memory`, a size or None; X where it is none."""
    if isinstance(X, Store):
        return Pager(X, memories.memory() // 2 if memory is None else memories.bytes_of(memory, MEMORY.name),
                     turns=1 if sweeps_per_load is None else SWEEPS_PER_LOAD.check(sweeps_per_load), sharers=sharers)
    for param, value in ((MEMORY, memory), (SWEEPS_PER_LOAD, sweeps_per_load)):
        if value is not None:
            raise ValueError(f"{param.name} = {value!r} is for a Store: other rows are in memory")
    return X


def resident() -> int | None:
    """Bytes of memory that this process holds, pages of files among them; None where the system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    with open("/proc/self/statm", "rb") as stream:
        return int(stream.read().split()[1]) * mmap.PAGESIZE


class Pages:
    """Maps of files, a process's own: of how many pages it holds at once.

    Parameters
    ----------
    memory : int
        Bytes that the process may hold.

    Attributes
    ----------
    bytes_read : int
        Of the stores.
    """

    def __init__(self, memory: float) -> None:
        self.memory, self.bytes_read = memory, 0
        self._maps: list[weakref.ref[mmap.mmap]] = []
        self._lock = threading.Lock()
        if hasattr(mmap, "MADV_DONTNEED") and resident() is not None:
            threading.Thread(target=watch, args=(weakref.ref(self),), name=WATCH, daemon=True).start()

    def add(self, pages: mmap.mmap) -> None:
        """Take a map into account, for as long as somebody has it."""
        with self._lock:
            self._maps = [there for there in self._maps if there() is not None] + [weakref.ref(pages)]

    def let_go(self) -> None:
        """Of all pages: files have them, and what is asked for again is read from there."""
        with self._lock:
            maps = [there() for there in self._maps]
        for pages in maps:
            if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)


def watch(reference: weakref.ref[Pages]) -> None:
    """For as long as there are the Pages: let go of them when the process holds too many."""
    while (pages := reference()) is not None:
        if (resident() or 0) > FULL * pages.memory:
            pages.let_go()
        del pages
        time.sleep(LOOK)


class Pager:
    """What `Rows.from_pages` asks of the rows of a store.

    Parameters
    ----------
    store : Store
    memory : int
        Bytes that the process may hold.
    scratch : str or path, optional
        Folder for files that have no name. Default: the store's own, or that for temporary files.
    pages : Pages, optional
        Of another Pager within the same memory.
    turns : int
        Sweeps over a window each time it is read.
    sharers : int
        Pagers that are read at the same time within the same memory.

    Attributes
    ----------
    data, indices, indptr, n_features, y
        The store's.
    chunks : int64 array
        The first row of each chunk, and m: a single one where all rows fit a window.
    """

    def __init__(self, store: Store, memory: float, scratch: str | os.PathLike[str] | None = None,
                 pages: Pages | None = None, turns: int = 1, sharers: int = 1) -> None:
        self.store, self.memory, self.turns, self.sharers = store, memory, turns, sharers
        self.window = int(WINDOW * memory / sharers)
        self.sizes = np.diff(store.indptr[store.chunks]) * (store.data.itemsize + store.indices.itemsize)
        self.whole = int(self.sizes.sum())
        self.chunks = np.array([0, store.m]) if self.whole <= self.window else store.chunks
        self.scratch = scratch or (store.path if os.access(store.path, os.W_OK) else None)
        self.compared = False
        self.pages = Pages(memory) if pages is None else pages
        maps: list[Any] = [array for array in (store.data, store.indices, store.indptr, store.y, store.sqnorms)
                           if isinstance(array, np.memmap)]
        for array in maps:
            self.pages.add(array._mmap)
            if hasattr(mmap, "MADV_SEQUENTIAL"):
                # Passes go forwards; what windows visit at random was read before.
                array._mmap.madvise(mmap.MADV_SEQUENTIAL)
        self.data, self.indices, self.indptr = store.data, store.indices, store.indptr
        self.n_features, self.y = store.n_features, store.y

    def rows(self, bias: float) -> Rows:
        """All rows of the store, with a bias feature unless `bias` is negative."""
        store = self.store
        return Rows.from_pages(store.data, store.indices, store.indptr, store.n_features, bias, store.sqnorms, self)

    @property
    def nonzeros(self) -> int:
        return self.store.nonzeros

    def zeros(self, n: int, dtype: npt.DTypeLike = np.float64) -> AnyArray:
        """An array of n zeros, on disk unless it is small.

        Raises OSError where the disk has no room for it.
        """
        size = n * np.dtype(dtype).itemsize
        if size < LITTLE:
            return np.zeros(n, dtype)
        with tempfile.TemporaryFile(dir=self.scratch) as stream:
            # Room is asked for here: a page that finds none later would end the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(stream.fileno(), 0, size)
            else:
                stream.truncate(size)
            pages = mmap.mmap(stream.fileno(), size)
        self.pages.add(pages)
        return np.frombuffer(pages, dtype)

    def fits(self, which: IntArray) -> bool:
        """Whether rows of these numbers have a place in memory."""
        return bool(float(np.diff(self.indptr)[which].sum()) * (self.whole / max(1, self.indptr[-1])) <= self.window)

    def selected(self, which: IntArray) -> Pager:
        """A Pager of these row numbers, in a store of its own that ends with it."""
        self.verify()
        step = max(1, int(min(PART, self.window) * self.store.m / max(1, self.whole)))
        rows = Rows.from_pages(self.data, self.indices, self.indptr, self.n_features, -1.0, self.store.sqnorms, None)

        def part(lo: int, hi: int) -> CSR:
            data, indices, indptr = rows.select(which[lo:hi]).arrays
            return CSR(data, indices, indptr, self.n_features)

        return self._stored(part(lo, hi) for lo, hi in ranges(len(which), step))

    def changed(self, change: Callable[[CSR], HeldRows]) -> Pager:
        """A Pager of what change(X) makes of the rows, some at a time, in a store of its own that ends with it."""
        return self._stored(change(CSR(part.data, part.indices, part.indptr, part.n_features))
                            for part in self.store.parts())

    def _stored(self, parts: Iterable[HeldRows]) -> Pager:
        folder = tempfile.mkdtemp(dir=self.scratch, prefix="rows-")
        unlabelled = ((part, np.zeros(shape_of(part)[0])) for part in parts)
        try:
            store = Store.write(unlabelled, os.path.join(folder, "rows.store"), n_features=self.n_features)
        except BaseException:
            shutil.rmtree(folder)
            raise
        weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
        self.pages.bytes_read += self.whole
        return Pager(store, self.memory, self.scratch, self.pages, self.turns, self.sharers)

    def require(self) -> None:
        """All rows are about to be read in their order: those that nobody has verified are."""
        self.pages.bytes_read += self.whole
        self.verify()

    def verify(self) -> None:
        """Compare the chunks that nobody has verified with what was written, on threads."""
        if not self.compared:
            run_chunks(lambda chunk, _: self.store.verify(chunk), len(self.sizes), size=1)
            self.compared = True

    def windows(self, numbers: Iterable[int]) -> Iterator[list[tuple[int, int]]]:
        """Yield ranges of rows of the chunks `numbers`, a window at a time; the next one is read ahead meanwhile."""
        if len(self.chunks) == 2:
            self.require()
            yield [(0, self.store.m)]
            return
        pool = ThreadPoolExecutor(READERS)
        try:
            found = self._cut(numbers)
            reading = [[pool.submit(self._read, chunk) for chunk in window] for window in found[:AHEAD]]
            for at, window in enumerate(found):
                for chunk in reading.pop(0):
                    chunk.result()
                reading += [[pool.submit(self._read, chunk) for chunk in later]
                            for later in found[at + AHEAD:at + AHEAD + 1]]
                self.pages.bytes_read += int(self.sizes[window].sum())
                yield merged([(int(self.chunks[chunk]), int(self.chunks[chunk + 1])) for chunk in window])
                self._let_go_of_rows()
        finally:
            pool.shutdown(cancel_futures=True)

    def _cut(self, numbers: Iterable[int]) -> list[list[int]]:
        """Lists of chunks that fit a window each, sorted, so that the disk goes forwards."""
        found: list[list[int]] = []
        held = 0
        for chunk in numbers:
            if not found or held + self.sizes[chunk] > self.window:
                found.append([])
                held = 0
            found[-1].append(chunk)
            held += self.sizes[chunk]
        return [sorted(window) for window in found]

    def _read(self, chunk: int) -> None:
        """Bring a chunk to the system's memory; one that nobody has verified yet is verified."""
        maps: list[Any] = [self.store.indices, self.store.data]
        for array in maps:
            ends = self.store.indptr[self.chunks[chunk:chunk + 2]] * array.itemsize + array.offset
            layout.read_ahead(array.filename, *ends.tolist())
        self.store.verify(chunk)

    def _let_go_of_rows(self) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            maps: list[Any] = [self.store.data, self.store.indices]
            for array in maps:
                array._mmap.madvise(mmap.MADV_DONTNEED)


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Rising ranges, those that touch as one."""
    found: list[tuple[int, int]] = []
    for lo, hi in ranges:
        if found and found[-1][1] == lo:
            lo = found.pop()[0]
        found.append((lo, hi))
    return found
