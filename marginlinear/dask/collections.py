"""What a user's Dask data become: checked partitions on the workers where they are.

    dask Arrays, dense or of sparse blocks; DataFrames and Series; lists of delayed or of futures, of rows and labels or
    of pairs of both; paths of stores and of LIBSVM files, that all workers can read

No row goes through the driver: it learns how many there are, and of which labels.
"""

import io
import itertools
import math
import os
import warnings
from collections import namedtuple
from contextlib import contextmanager

import numpy as np
from dask import delayed
from dask.base import is_dask_collection
from dask.delayed import Delayed
from distributed import Future, get_worker

from marginlinear.algorithms.partitions.partition import Partition
from marginlinear.data.arrays import CSR, held, is_sparse, is_stored, select_rows, shape_of
from marginlinear.data.checks import row_weights
from marginlinear.data.labels import labels_of
from marginlinear.errors import DataError, PartitionWarning

# Total variation distance of a partition's classes from the whole's, from which on rows are shuffled.
SORTED = 0.1
# The part of a worker's memory above which a store stays on disk.
IN_MEMORY = 0.3
# A LIBSVM file is cut into pieces of no less than this.
PIECE = 64 << 20


class Part(namedtuple("Part", "X y weights")):
    """Checked rows of a partition: X as `held` has it, labels, instance weights or None."""

    __slots__ = ()


class Description(namedtuple("Description", "rows columns labels counts weights kind")):
    """What the driver is told of a Part.

    Attributes
    ----------
    rows, columns : int
    labels, counts, weights : arrays
        The labels, ascending, their rows, and the sums of these rows' weights.
    kind : str
        "words" or "numbers".
    """

    __slots__ = ()


def parts_of(X, y, sample_weight, client, partitions):
    """Futures of Parts, one a partition, in the order of the rows.

    Parameters
    ----------
    X, y, sample_weight
        As `marginlinear.dask.train` takes them.
    client : distributed.Client
    partitions : int, "chunks" or None
        None: one a worker.
    """
    chunks = chunks_of(X, y, sample_weight)
    if not chunks:
        raise ValueError("X has no chunks")
    if partitions == "chunks":
        count = len(chunks)
    else:
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        count = workers if partitions is None else partitions
        count = max(1, min(count, len(chunks)))
    cuts = [len(chunks) * at // count for at in range(count + 1)]
    joined = [delayed(part_of)(lo, *chunks[lo:hi]) for lo, hi in itertools.pairwise(cuts)]
    return client.compute(joined, optimize_graph=True)


def chunks_of(X, y, sample_weight):
    """Delayed (X, y, weights) of the chunks."""
    if is_dask_collection(X) and not isinstance(X, Delayed):
        blocks = blocks_of(X, "X")
        if y is None:
            raise TypeError("y is missing: the labels of the rows")
    elif isinstance(X, (list, tuple)):
        blocks = list(X)
    else:
        blocks = [X]
    if all(isinstance(block, (str, os.PathLike)) for block in blocks):
        if y is not None or sample_weight is not None:
            raise ValueError("y and sample_weight are not taken beside files: these have the labels")
        return [piece for path in blocks for piece in pieces_of(os.fspath(path))]
    for at, block in enumerate(blocks):
        if not isinstance(block, (Delayed, Future)):
            raise TypeError(f"X[{at}] is {type(block).__name__}: give a dask Array or DataFrame, or a list of delayed, "
                            "of futures, or of paths of stores and LIBSVM files")
    if y is None:
        pairs = [delayed(tuple)(block) for block in blocks]
        return [delayed(chunk)(pair[0], pair[1], None) for pair in pairs]
    labels = blocks_of(y, "y") if is_dask_collection(y) and not isinstance(y, Delayed) else list(y)
    weights = [None] * len(blocks)
    if sample_weight is not None:
        weights = (blocks_of(sample_weight, "sample_weight") if is_dask_collection(sample_weight)
                   else list(sample_weight))
    for name, some in (("y", labels), ("sample_weight", weights)):
        if len(some) != len(blocks):
            raise ValueError(f"X has {len(blocks)} chunks, {name} has {len(some)}: rechunk one like the other")
    return [delayed(chunk)(*some) for some in zip(blocks, labels, weights, strict=True)]


def blocks_of(collection, name):
    """Delayed blocks of a collection, each with all columns."""
    if hasattr(collection, "to_delayed"):
        blocks = np.asarray(collection.to_delayed(), dtype=object)
        if blocks.ndim == 2 and blocks.shape[1] > 1:
            raise ValueError(f"{name} has {blocks.shape[1]} chunks of columns: rechunk it to one, as by "
                             f"{name}.rechunk({{1: -1}})")
        return list(blocks.ravel())
    raise TypeError(f"{name} is {type(collection).__name__}: give a dask Array, DataFrame or Series")


def chunk(X, y, weights):
    """One chunk as NumPy and SciPy have it."""
    if hasattr(X, "dtypes") and hasattr(X, "to_numpy"):
        for column, dtype in X.dtypes.items():
            if dtype.kind not in "biuf":
                raise ValueError(f"X: column {column!r} holds {dtype}: numbers are needed; encode it first")
        X = X.to_numpy()
    return X, np.asarray(y), None if weights is None else np.asarray(weights)


def pieces_of(path):
    """Delayed (X, y, None) of a store or a LIBSVM file."""
    if os.path.isdir(path):
        return [delayed(read_store)(path)]
    size = os.path.getsize(path) if os.path.exists(path) else 0
    count = 1 if path.endswith((".gz", ".bz2", ".xz")) else max(1, size // PIECE)
    return [delayed(read_piece)(path, at, count) for at in range(count)]


def read_store(path):
    """All rows, or, where they would take more than a part of the worker's memory, the Store, which is read in windows.
    """
    from marginlinear.store import Store

    with named_worker(path):
        store = Store(path)
        limit = get_worker().memory_manager.memory_limit or math.inf
        if store.data.nbytes + store.indices.nbytes > IN_MEMORY * limit:
            return store, np.array(store.y), None
        rows = store.in_memory()
    return rows, rows.labels, None


def read_piece(path, at, count):
    """Lines of a file that begin in its part number `at` of `count`."""
    from marginlinear.libsvm import read_libsvm

    with named_worker(path):
        if count == 1:
            rows = read_libsvm(path, threads=1)
            return rows, rows.labels, None
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            lo, hi = (seek_line(file, size * end // count) for end in (at, at + 1))
            file.seek(lo)
            text = io.BytesIO(file.read(hi - lo))
        try:
            rows = read_libsvm(text, threads=1)
        except DataError as error:
            raise DataError(path, error.line + lines_before(path, lo), error.column, error.reason) from None
    return rows, rows.labels, None


def lines_before(path, end):
    """Lines of a file before a place."""
    count = 0
    with open(path, "rb") as file:
        while end > 0:
            block = file.read(min(end, PIECE))
            count, end = count + block.count(b"\n"), end - len(block)
    return count


def seek_line(file, at):
    """Where the first line begins that does so at `at` or after it."""
    if at == 0:
        return 0
    file.seek(at - 1)
    file.readline()
    return file.tell()


@contextmanager
def named_worker(path):
    """An OSError within it names the worker too."""
    try:
        yield
    except OSError as error:
        raise OSError(f"worker {get_worker().address} cannot read {path}: {error}: all workers need the file under "
                      "this name") from error


def part_of(first, *chunks):
    """Part of some chunks, whose first has this number."""
    Xs, ys, ws = [], [], []
    for number, (X, y, weights) in enumerate(chunks, first):
        try:
            X, y = X if is_stored(X) else held(X), labels_of(y)
            if shape_of(X)[0] != len(y):
                raise ValueError(f"X has {shape_of(X)[0]} rows, y has {len(y)} labels")
            weights = np.ones(len(y)) if weights is None else row_weights(weights, len(y))
        except ValueError as error:
            raise ValueError(f"chunk {number}: {error}") from error
        kept = np.flatnonzero(weights > 0)
        if is_stored(X) and len(chunks) > 1:
            raise ValueError(f"{X.path} is larger than its worker's memory, and a partition of its own: give "
                             "partitions = 'chunks'")
        if len(kept) < len(y):
            X, y, weights = select_rows(X, kept), y[kept], weights[kept]
        if len(y):
            Xs.append(X)
            ys.append(y)
            ws.append(weights)
    if not ys:
        return Part(None, np.empty(0), np.empty(0))
    return Part(stacked(Xs), np.concatenate(ys), np.concatenate(ws))


def stacked(Xs):
    """Blocks of rows as one: sparse where one is, and as wide as the widest."""
    if len(Xs) == 1:
        return Xs[0]
    if not any(map(is_sparse, Xs)):
        return np.concatenate(Xs)
    from scipy.sparse import csr_array

    blocks = [X if is_sparse(X) else held(csr_array(X)) for X in Xs]
    ends = np.cumsum([block.indptr[-1] for block in blocks])
    single = all(block.data.dtype == np.float32 for block in blocks)
    return CSR(np.concatenate([np.asarray(block.data)[:block.indptr[-1]] for block in blocks],
                              dtype=np.float32 if single else np.float64),
               np.concatenate([np.asarray(block.indices)[:block.indptr[-1]].astype(np.int32) for block in blocks]),
               np.concatenate([np.zeros(1, np.int64), *(np.asarray(block.indptr)[1:] + (end - block.indptr[-1])
                                                       for block, end in zip(blocks, ends, strict=True))]),
               max(block.n_features for block in blocks))


def described(part):
    labels, places = np.unique(part.y, return_inverse=True)
    counts = np.bincount(places, minlength=len(labels))
    weights = np.bincount(places, part.weights, minlength=len(labels))
    columns = 0 if part.X is None else shape_of(part.X)[1]
    kind = "words" if part.y.dtype.kind == "U" else "numbers"
    return Description(len(part.y), columns, labels, counts, weights, kind)


def sorted_by_class(descriptions, classes):
    """Whether rows stand so that rounds would not converge: the total variation distance of a partition's classes from
    the whole's is above SORTED."""
    counts = np.zeros((len(descriptions), len(classes)))
    for row, one in zip(counts, descriptions, strict=True):
        row[np.searchsorted(classes, one.labels)] = one.weights
    share = counts.sum(axis=0) / counts.sum()
    sizes = counts.sum(axis=1, keepdims=True)
    # Small partitions differ from the whole by chance.
    chance = np.sqrt(share.clip(0, 1) * (1 - share).clip(0, 1) / np.maximum(sizes, 1)).sum(axis=1)
    return bool((abs(counts / sizes - share).sum(axis=1) / 2 > SORTED + chance).any())


def shuffled(parts, seed, client):
    """Futures of Parts of the same rows: each is cut into as many random parts, of which part j goes to partition j."""
    count = len(parts)
    cut = [client.submit(cut_at_random, part, count, seed, number, pure=False) for number, part in enumerate(parts)]
    return [client.submit(together, [client.submit(piece_of, some, number, pure=False) for some in cut], pure=False)
            for number in range(count)]


def cut_at_random(part, count, seed, number):
    generator = np.random.Generator(np.random.PCG64([seed, number]))
    order = generator.permutation(len(part.y))
    cuts = [len(order) * at // count for at in range(count + 1)]
    # Rounding is not to favour the same partitions every time.
    turn = number % count
    pieces = [np.sort(order[lo:hi]) for lo, hi in itertools.pairwise(cuts)]
    return [Part(select_rows(part.X, which), part.y[which], part.weights[which])
            for which in pieces[turn:] + pieces[:turn]]


def piece_of(pieces, number):
    return pieces[number]


def together(parts):
    parts = [part for part in parts if len(part.y)]
    return Part(stacked([part.X for part in parts]), np.concatenate([part.y for part in parts]),
                np.concatenate([part.weights for part in parts]))


def warn_sorted(stacklevel):
    warnings.warn("rows are sorted by class: rounds over these partitions converge slowly, or not at all",
                  PartitionWarning, stacklevel=stacklevel)


def partition_of(part, number, classes, n_features, factors, whole, bias):
    """Partition of a Part, for classes, ascending, with these factors of C."""
    codes = np.searchsorted(classes, part.y).astype(np.int32)
    X = part.X
    if is_sparse(X):
        X = CSR(X.data, X.indices, X.indptr, n_features)
    elif X.shape[1] < n_features:
        X = np.hstack([X, np.zeros((len(X), n_features - X.shape[1]))])
    return Partition(X, codes, len(classes), np.ascontiguousarray(part.weights), factors[codes], whole, bias, number)
