"""What a user's Dask data become: checked partitions on the workers where they are.

    dask Arrays, dense or of sparse blocks; DataFrames and Series; lists of delayed or of futures, of rows and labels or
    of pairs of both; stores, and paths of stores and of LIBSVM files, that all workers can read

No row goes through the driver: it learns how many there are, and of which labels.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import warnings
import zlib
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed, delayed
from distributed import Future, get_worker

from marginlinear.algorithms.partitions.partition import Partition
from marginlinear.data.arrays import (
    CSR,
    as_rows,
    held,
    is_frame,
    is_sparse,
    is_stored,
    of_width,
    real_values,
    require_finite,
    select_rows,
    shape_of,
)
from marginlinear.data.checks import require_unmasked, row_weights
from marginlinear.data.columns import one_rule, rule_of
from marginlinear.data.labels import labels_of, targets_of
from marginlinear.data.scaling import MAXABS, RANGE, UNIT, Scaling, extremes, maxabs, table
from marginlinear.errors import DataError, PartitionWarning, renumber_rows
from marginlinear.libsvm import read_libsvm
from marginlinear.libsvm.reader import decompressed, first_bytes, opened
from marginlinear.memory import memory
from marginlinear.store import Store
from marginlinear.store.paging import paged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distributed import Client, Worker

    from marginlinear._typing import AnyArray, FloatArray, IntArray
    from marginlinear.data.columns import TableRule

# Total variation distance of a partition's classes from the whole's, from which on rows are shuffled.
SORTED = 0.1
# The part of a worker's memory above which stores stay on disk.
IN_MEMORY = 0.3
# How often a task is done again that has failed: its third exception ends the fit.
RETRIES = 2
# A LIBSVM file is cut into pieces of about this, or of its part of a partition where that is less.
PIECE = 64 << 20
TAKEN = ("give a dask Array or DataFrame, or a list of delayed, of futures, or of stores and paths of stores and "
         "LIBSVM files")


class Chunk(NamedTuple):
    """Delayed rows. y is None where X is a pair of rows and labels; weights may be None. Errors begin with the name."""

    name: str
    X: Any
    y: Any
    weights: Any


class Part(NamedTuple):
    """Checked rows of a partition: X as `held` has it, or a Store; labels, or targets; instance weights, above 0; how
    columns became the features, of frames and stores."""

    X: Any
    y: AnyArray
    weights: FloatArray
    table: TableRule | None = None


class Room(NamedTuple):
    """What the workers have for stores.

    Attributes
    ----------
    memory : int
        Bytes that one may hold, at least: what Dask lets it have, and its part of the machine's.
    threads : int
        Of one, at most.
    workers : int
    """

    memory: int
    threads: int
    workers: int

    @property
    def of_a_partition(self) -> tuple[int, int]:
        """As a Partition takes it. Fixed for the whole fit: the sweeps' order depends on it."""
        return self.memory // 2, self.threads


class Description(NamedTuple):
    """What the driver is told of a Part.

    Attributes
    ----------
    rows, columns : int
    labels, counts, weights : arrays
        The labels, ascending, their rows, and the sums of these rows' weights; of targets as of one label, 1.
    table : TableRule or None
        As of the Part.
    """

    rows: int
    columns: int
    labels: AnyArray
    counts: IntArray
    weights: AnyArray
    table: TableRule | None


# On the driver: from collections to partitions, without their rows.


def room_of(client: Client) -> Room:
    """The Room that stores have on each worker."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    memories = client.run(memories_there)
    hosts = Counter(worker["host"] for worker in workers.values())
    least = min((min(limit, machine / hosts[workers[address]["host"]])
                 for address, (limit, machine) in memories.items() if address in workers), default=memory())
    # A size for store.paging.
    return Room(int(min(least, sys.maxsize)), max((worker["nthreads"] for worker in workers.values()), default=1),
                max(1, len(workers)))


def parts_of(X: Any, y: Any, sample_weight: Any, client: Client, partitions: int | Literal["chunks"] | None,
             regression: bool = False) -> list[Future[Any]]:
    """Futures of Parts, one a partition, in the order of the rows. One without rows may be among them.

    Parameters
    ----------
    X, y, sample_weight
        As `marginlinear.dask.train` takes them.
    client : distributed.Client
    partitions : int, "chunks" or None
        None: one a worker, or one a chunk where there are fewer.
    """
    workers = len(client.scheduler_info(n_workers=-1)["workers"])
    wanted = max(1, workers) if partitions is None else partitions
    chunks = chunks_of(X, y, sample_weight, client, wanted)
    count = len(chunks) if wanted == "chunks" else wanted
    if count > len(chunks):
        if partitions is not None:
            raise ValueError(f"partitions = {partitions}: X has {len(chunks)} chunks, and a partition is made of whole "
                             "ones: give fewer, or smaller chunks")
        count = len(chunks)
    cuts = [len(chunks) * at // count for at in range(count + 1)]
    parts: list[Future[Any]] = client.compute([delayed(part_of)([tuple(chunk) for chunk in chunks[lo:hi]], regression)
                                               for lo, hi in pairwise(cuts)], retries=RETRIES)
    return parts


def chunks_of(X: Any, y: Any, sample_weight: Any, client: Client, wanted: int | Literal["chunks"]) -> list[Chunk]:
    """Chunks in the order of the rows; `wanted`: files are cut so that there are so many at least, or "chunks"."""
    blocks = blocks_of(X, "X")
    if not blocks:
        raise ValueError(f"X is an empty list: {TAKEN}")
    paths = [block.path if isinstance(block, Store) else block for block in blocks]
    if all(isinstance(path, (str, os.PathLike)) for path in paths):
        if y is not None or sample_weight is not None:
            raise ValueError("y and sample_weight are not taken beside stores and files: these have the labels")
        return pieces_of([os.fspath(path) for path in paths], client, wanted)
    require_delayed(blocks, "X", TAKEN)
    if y is None and isinstance(X, (Delayed, list, tuple)):
        labels = [None] * len(blocks)
    elif y is None:
        raise TypeError("y is missing: the labels of the rows, in chunks as X has them")
    else:
        labels = beside(blocks, y, "y")
    weights = [None] * len(blocks) if sample_weight is None else beside(blocks, sample_weight, "sample_weight")
    return [Chunk(f"chunk {at}", *some) for at, some in enumerate(zip(blocks, labels, weights, strict=True))]


def beside(blocks: Sequence[Any], collection: Any, name: str) -> list[Any]:
    """Delayed numbers of the rows of `blocks`."""
    found = blocks_of(collection, name)
    require_delayed(found, name, "give a dask Array or Series, or a list of delayed or of futures, in chunks as X has "
                                 "them")
    if len(found) != len(blocks):
        raise ValueError(f"X has {len(blocks)} chunks, {name} has {len(found)}: rechunk one like the other")
    return found


def blocks_of(collection: Any, name: str) -> list[Any]:
    """The blocks of a collection, each with all columns; what is no collection of blocks is one."""
    if isinstance(collection, (list, tuple)):
        return list(collection)
    if isinstance(collection, Delayed) or not (is_dask_collection(collection) and hasattr(collection, "to_delayed")):
        return [collection]
    blocks = np.asarray(collection.to_delayed(), dtype=object)
    if blocks.ndim > 1 and blocks.size > len(blocks):
        raise ValueError(f"{name} has {blocks.size // len(blocks)} chunks of columns: rechunk it to one, as by "
                         f"{name}.rechunk({{1: -1}})")
    return list(blocks.ravel())


def require_delayed(blocks: Sequence[Any], name: str, taken: str) -> None:
    for at, block in enumerate(blocks):
        if not isinstance(block, (Delayed, Future)):
            raise TypeError(f"{name}: block {at} is {type(block).__name__}: {taken}")


def pieces_of(paths: Sequence[str], client: Client, wanted: int | Literal["chunks"]) -> list[Chunk]:
    """Chunks of stores and of LIBSVM files."""
    if "-" in paths:
        raise ValueError("X: '-' is no file that workers can read: name one")
    looks = client.run(look_at, paths)
    first, *others = looks
    for other in others:
        for path, here, there in zip(paths, looks[first], looks[other], strict=True):
            if here != there:
                raise ValueError(f"{path} on worker {other} is another file than on worker {first}: all workers need "
                                 "the same under this name")
    whole = max(1, sum(size for _, size in looks[first] if size is not None))
    stores, chunks = sum(stored for stored, _ in looks[first]), []
    most = 0.0
    if stores:
        room = room_of(client)
        most = IN_MEMORY * room.memory / -(-stores // room.workers)
    for path, (stored, size) in zip(paths, looks[first], strict=True):
        if stored:
            chunks.append(Chunk(path, delayed(read_store)(path, most), None, None))
            continue
        count = 1
        if size:
            count = max(-(-size // PIECE), 1 if wanted == "chunks" else -(-wanted * size // whole))
        chunks += [Chunk(path, delayed(read_piece)(path, at, count), None, None) for at in range(count)]
    return chunks


def labels_of_all(descriptions: Sequence[Description]) -> AnyArray:
    """The labels of all partitions, ascending; ValueError where they are of different kinds."""
    names = [f"partition {number}" for number in range(len(descriptions))]
    return np.unique(joined_labels([one.labels for one in descriptions], names))


def scaling_of(kind: str, parts: Sequence[Future[Any]], width: int, client: Client) -> Scaling:
    """The Scaling of the given kind for the rows of all Parts, of which some may have fewer features than others."""
    if kind == UNIT:
        return Scaling(UNIT)
    bounds = np.zeros((2, width))
    for at, future in enumerate([client.submit(extremes_of, part, pure=False, retries=RETRIES) for part in parts]):
        found = np.zeros((2, width))
        for row, values in zip(found, future.result(), strict=True):
            row[:len(values)] = values
        bounds = found if at == 0 else np.array([np.minimum(bounds[0], found[0]), np.maximum(bounds[1], found[1])])
    lower, upper = bounds
    return maxabs(lower, upper) if kind == MAXABS else Scaling(RANGE, lower, upper)


def evened(parts: list[Future[Any]], descriptions: Sequence[Description], labels: AnyArray,
           shuffle: bool | Literal["auto"], seed: int, client: Client) -> list[Future[Any]]:
    """`parts`, or futures of others of the same rows where rounds over these would not converge, or where `shuffle` is
    True.

    Parameters
    ----------
    parts : list of futures of Parts
        Each with rows.
    descriptions : list of Description
        Theirs.
    labels : array of shape (k,)
        Of all partitions, ascending.
    shuffle : "auto" or bool
    seed : int
    client : distributed.Client

    Raises
    ------
    ValueError
        A partition would have to be shuffled, lacks a label, and `shuffle` is False.

    Warns
    -----
    PartitionWarning
        A partition differs in its labels from the whole.
    """
    counts = np.zeros((len(parts), len(labels)))
    for row, one in zip(counts, descriptions, strict=True):
        row[np.searchsorted(labels, one.labels)] = one.counts
    apart, chance = distances(counts)
    worst = np.argmax(apart - chance)
    if apart[worst] <= SORTED + chance[worst]:
        return shuffled(parts, seed, client) if shuffle is True and len(parts) > 1 else parts
    what = (f"rows are sorted by class: the labels' shares in partition {worst} are {apart[worst]:.2f} from those of "
            "all rows (total variation)")
    if shuffle is False:
        lacking = np.argwhere(counts == 0)
        if len(lacking):
            number, at = lacking[0]
            raise ValueError(f"{what}, and partition {number} has no row of label {labels.tolist()[at]!r}: give "
                             "shuffle = 'auto', or rows in random order")
        what += ": rounds will be slow, or not converge; give shuffle = 'auto'"
    warnings.warn(what if shuffle is False else f"{what}: they are dealt anew", PartitionWarning, stacklevel=6)
    return parts if shuffle is False else shuffled(parts, seed, client)


def distances(counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(total variation distances of the rows of `counts`, as shares, from their sum's; what of them chance would make)
    """
    share = counts.sum(axis=0) / counts.sum()
    sizes = counts.sum(axis=1, keepdims=True)
    chance = np.sqrt(share * (1 - share) / sizes).sum(axis=1)
    return abs(counts / sizes - share).sum(axis=1) / 2, chance


def shuffled(parts: Sequence[Future[Any]], seed: int, client: Client) -> list[Future[Any]]:
    """Futures of Parts of the same rows: each is cut into as many random parts, of which part j goes to partition j.

    The same seed, the same bits. There are K^2 tasks.
    """
    count = len(parts)
    cut = [client.submit(cut_at_random, part, count, seed, number, pure=False) for number, part in enumerate(parts)]
    return [client.submit(together, [client.submit(piece_of, some, number, pure=False) for some in cut], pure=False)
            for number in range(count)]


# On the workers.


def look_at(paths: Sequence[str], dask_worker: Worker) -> list[tuple[bool, int | None]]:
    """[(whether it is a store, the size of a file that can be cut at newlines, or None)] of each path.

    `dask_worker` is what Client.run gives.
    """
    found: list[tuple[bool, int | None]] = []
    for path in paths:
        with named_worker(path, dask_worker):
            if os.path.isdir(path):
                Store(path)
                found.append((True, None))
                continue
            with opened(path) as (name, readinto, size):
                head = first_bytes(readinto)
                found.append((False, size if decompressed(name, head, readinto)[1] is head else None))
    return found


@contextmanager
def named_worker(path: str, worker: Worker | None = None) -> Iterator[None]:
    """An OSError within it names the worker and the path."""
    try:
        yield
    except OSError as error:
        address = (worker or get_worker()).address
        raise OSError(f"worker {address} cannot read {path}: {error}: all workers need the file under this name"
                      ) from error


def memories_there(dask_worker: Worker) -> tuple[float, float]:
    """(bytes that Dask lets the worker have, bytes of its machine). `dask_worker` is what Client.run gives."""
    return dask_worker.memory_manager.memory_limit or math.inf, memory()


def read_store(path: str, most: float) -> tuple[Any, AnyArray | None]:
    """(rows, labels): the Store, which is read in windows, where its rows would take more than so many bytes."""
    with named_worker(path):
        store = Store(path)
        if store.data.nbytes + store.indices.nbytes > most:
            return store, np.array(store.y)
        rows = store.in_memory()
    return rows, rows.labels


def read_piece(path: str, at: int, count: int) -> tuple[Any, AnyArray | None]:
    """(rows, labels) of the lines of a file that begin in its part number `at` of `count`; Nones without rows."""
    with named_worker(path):
        if count == 1:
            rows = read_libsvm(path, text_labels=False, multilabel=False, threads=1)
            return rows, rows.labels
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            lo, hi = (line_at(file, size * end // count) for end in (at, at + 1))
            file.seek(lo)
            text = file.read(hi - lo)
        # A byte order mark is no row.
        lines = io.BytesIO(text if lo else text.removeprefix(b"\xef\xbb\xbf"))
        if not any(line.lstrip(b" \t\r")[:1] not in (b"", b"\n", b"#") for line in lines):
            return None, None
        try:
            rows = read_libsvm(io.BytesIO(text), text_labels=False, multilabel=False, threads=1)
        except DataError as error:
            line = error.line and error.line + lines_before(path, lo)
            raise DataError(path, line, error.column, error.reason) from None
    return rows, rows.labels


def line_at(file: BinaryIO, at: int) -> int:
    """Where the first line begins that does so at `at` or after it."""
    if at == 0:
        return 0
    file.seek(at - 1)
    file.readline()
    return file.tell()


def lines_before(path: str, end: int) -> int:
    """Lines of a file before a place."""
    count = 0
    with open(path, "rb") as file:
        while end > 0:
            block = file.read(min(end, PIECE))
            count, end = count + block.count(b"\n"), end - len(block)
    return count


def part_of(chunks: Sequence[tuple[str, Any, Any, Any]], regression: bool) -> Part:
    """The Part of the rows of some chunks, each a Chunk's fields."""
    return together([checked(*chunk, regression) for chunk in chunks], [chunk[0] for chunk in chunks])


def checked(name: str, X: Any, y: Any, weights: Any, regression: bool) -> Part:
    """The Part of one chunk. ValueError begins with the name, and names the row in the chunk."""
    try:
        if y is None:
            if not (isinstance(X, (list, tuple)) and len(X) == 2):
                raise ValueError(f"X is {type(X).__name__}, not a pair of rows and labels, and there is no y")
            X, y = X
            if X is None:
                return Part(None, np.empty(0), np.empty(0))
        require_unmasked(X, y)
        frame, rule = X if is_frame(X) else None, rule_of(X)
        X, y = X if is_stored(X) else held(X, finite=False), (targets_of if regression else labels_of)(y)
        m = shape_of(X)[0]
        if len(y) != m:
            raise ValueError(f"X has {m} rows, y has {len(y)} {'targets' if regression else 'labels'}")
        weights = np.ones(m) if weights is None else row_weights(weights, m)
        kept = np.flatnonzero(weights > 0)
        if len(kept) < m:
            X, y, weights = select_rows(X, kept), y[kept], weights[kept]
        if not (is_sparse(X) or is_stored(X)):
            X = np.ascontiguousarray(real_values(X))
            with renumber_rows(kept):
                if frame is not None:
                    require_finite(frame, X)
                as_rows(X, -1.0)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return Part(X, y, weights, rule)


def together(parts: Sequence[Part], names: Sequence[str] | None = None) -> Part:
    """Some Parts as one, in their order."""
    full = [number for number, part in enumerate(parts) if len(part.y)]
    if not full:
        return parts[0]
    names = [names[number] if names else "" for number in full]
    parts = [parts[number] for number in full]
    if len(parts) == 1:
        return parts[0]
    for name, part in zip(names, parts, strict=True):
        if is_stored(part.X):
            raise ValueError(f"{name} takes more than {IN_MEMORY:.0%} of its worker's memory, and is to be a partition "
                             "of its own: give partitions = 'chunks'")
    return Part(stacked([part.X for part in parts], names), joined_labels([part.y for part in parts], names),
                np.concatenate([part.weights for part in parts]), one_rule([part.table for part in parts], names))


def stacked(blocks: Sequence[Any], names: Sequence[str]) -> Any:
    """Blocks of rows as one: sparse where one is, and as wide as the widest."""
    width = max(shape_of(block)[1] for block in blocks)
    blocks = [widened(block, width, name) for block, name in zip(blocks, names, strict=True)]
    if not any(map(is_sparse, blocks)):
        return np.concatenate(blocks)
    from scipy.sparse import csr_array

    blocks = [block if is_sparse(block) else held(csr_array(block), given=True) for block in blocks]
    starts = np.cumsum([0, *(block.indptr[-1] for block in blocks)])
    indices = np.concatenate([block.indices for block in blocks])
    indptr = np.concatenate([[0], *(block.indptr[1:] + start for block, start in zip(blocks, starts, strict=False))])
    return held(CSR(np.concatenate([block.data for block in blocks]), indices, indptr.astype(np.int64), width,
                    blocks[0].container), given=True)


def widened(X: Any, width: int, name: str) -> Any:
    """Rows with this many features, no fewer than they have; ValueError for a table or a Store with fewer."""
    if shape_of(X)[1] == width:
        return X
    if is_sparse(X) and not is_stored(X):
        return of_width(X, width)
    what = "the store" if is_stored(X) else "X"
    fix = f"write it with n_features = {width}" if is_stored(X) else "only sparse rows may be narrower than others"
    raise ValueError(f"{name}: {what} has {shape_of(X)[1]} features, others have {width}: {fix}")


def joined_labels(found: Sequence[AnyArray], names: Sequence[str]) -> AnyArray:
    """Labels of several places as one array; ValueError where it would change some."""
    words = [labels.dtype.kind == "U" for labels in found]
    if any(words) and not all(words):
        raise ValueError(f"y: {names[words.index(True)]} has words as labels, {names[words.index(False)]} has numbers: "
                         "labels must be all numbers or all strings")
    labels = np.concatenate(found)
    for name, some in zip(names, found, strict=True):
        if labels.dtype.kind == "f" != some.dtype.kind:
            wrong = [label for label in np.unique(some).tolist() if label != float(label)]
            if wrong:
                raise ValueError(f"y: label {wrong[0]} of {name} is no float64, as labels elsewhere are: make "
                                 "integers, or words, of all")
    return labels


def described(part: Part, regression: bool = False) -> Description:
    """The Description of a Part."""
    labels, places = np.unique(np.ones(len(part.y)) if regression else part.y, return_inverse=True)
    columns = 0 if part.X is None else shape_of(part.X)[1]
    return Description(len(part.y), columns, labels, np.bincount(places, minlength=len(labels)),
                       np.bincount(places, part.weights, minlength=len(labels)), part.table)


def number_of_rows(part: Part) -> int:
    return len(part.y)


def extremes_of(part: Part) -> tuple[FloatArray, FloatArray]:
    """(least, most) values of the features of a Part."""
    return extremes(table(paged(part.X) if is_stored(part.X) else part.X))


def cut_at_random(part: Part, count: int, seed: int, number: int) -> list[Part]:
    """[Part]: the rows of partition `number` for each of `count` partitions."""
    if is_stored(part.X):
        raise ValueError(f"{part.X.path} takes more than {IN_MEMORY:.0%} of its worker's memory: its rows are not "
                         "dealt to other partitions; give shuffle = False, or stores of rows in random order")
    order = np.random.Generator(np.random.PCG64([seed, number])).permutation(len(part.y))
    cuts = [len(order) * at // count for at in range(count + 1)]
    pieces = [np.sort(order[lo:hi]) for lo, hi in pairwise(cuts)]
    # Rounding is not to favour the same partitions every time.
    turn = number % count
    return [Part(select_rows(part.X, which), part.y[which], part.weights[which])
            for which in pieces[turn:] + pieces[:turn]]


def fingerprint(partition: Partition) -> tuple[int, tuple[int | None, int] | None]:
    """(CRC-32 of the rows, labels and weights, what a Store is read in or None): a checkpoint is of these. Of a store
    its description speaks for the rows."""
    X, room = partition.X, None
    if is_stored(X):
        room = partition.room
        arrays = [np.frombuffer(json.dumps(X.meta, sort_keys=True).encode(), np.uint8)]
    else:
        arrays = [X.data, X.indices, X.indptr] if is_sparse(X) else [X]
    found = 0
    told = partition.y if partition.targets is None else partition.targets
    for array in (*arrays, told, partition.instance, partition.factor):
        found = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, found)
    return found, room


def piece_of(pieces: Sequence[Part], number: int) -> Part:
    return pieces[number]


def partition_of(part: Part, number: int, classes: AnyArray | None, n_features: int, factors: FloatArray, whole: float,
                 bias: float, room: tuple[int | None, int] = (None, 1), scaling: Scaling | None = None) -> Partition:
    """The Partition of a Part, with its rows scaled.

    Parameters
    ----------
    part : Part
    number : int
        Its place.
    classes : array of shape (k,) or None
        The labels, ascending; None for a regression.
    n_features : int
    factors : float64 array of shape (k,)
        Factors of C.
    whole : float
        Sum of the weights of all partitions.
    bias : float
    room : (int, int)
        Of a Store, as a Partition takes it.
    scaling : Scaling or None
    """
    codes = np.ones(len(part.y), np.int32) if classes is None else np.searchsorted(classes, part.y).astype(np.int32)
    X = widened(part.X, n_features, f"partition {number}")
    if scaling is not None and not is_stored(X):
        X = scaling.apply(X)
    weights = np.ascontiguousarray(part.weights)
    if classes is None:
        return Partition(X, codes, 2, weights, np.ones(len(codes)), whole, bias, number, room, scaling, part.y)
    return Partition(X, codes, len(classes), weights, factors[codes], whole, bias, number, room, scaling)
