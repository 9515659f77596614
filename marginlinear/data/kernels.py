"""Kernels, and the rows of their Gram matrices.

    linear    <x, z>
    poly      (gamma <x, z> + coef0)^degree
    rbf       exp(-gamma ||x - z||^2)
    sigmoid   tanh(gamma <x, z> + coef0)             LIBSVM's definitions

A bias feature of value B is a constant feature in feature space: it adds B^2 to every kernel.

A value has the same bits whatever is made with it (_core/kernel_rows.pyx), in a full matrix and in a cache.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from marginlinear._core import kernel_rows
from marginlinear._core.kernel_rows import FULL, KernelPoints, kernel_values
from marginlinear._core.rows import FETCH, ROOM, Rows, value_bytes
from marginlinear._typing import AnyArray, FloatArray, IntArray, RealArray
from marginlinear.data import one_against_one
from marginlinear.data.arrays import CSR, HeldRows, as_rows, held, row_count, select_rows, shape_of
from marginlinear.errors import RowError
from marginlinear.memory import memory
from marginlinear.threads import default_threads, ranges, run_chunks

KINDS = (*kernel_rows.KINDS, "precomputed")
# Rows that are looked at together, and support vectors.
COLUMNS, SUPPORT = 1024, 256
# Multiplications that are worth another thread.
SHARE = 1e6
# Of the bytes for kernel rows, what the inner products of all rows may take: beside them fits the matrix of any part.
OF_PRODUCTS = 0.5
# Of the bytes for kernel rows, what is left to a part that does not stay.
BESIDE = 0.25
# Values of a row from which on its inner products take longer to make than to read.
DEAR = 16
# Kernels whose values are finite whatever the rows are.
BOUNDED = ("rbf", "sigmoid")
# A matrix that differs from its transpose by more than this part of its largest value is not symmetric.
SYMMETRY = 1e-8


class Kernel:
    """A kernel function and its parameters.

    Parameters
    ----------
    kind : {"linear", "poly", "rbf", "sigmoid", "precomputed"} or callable
        A callable gets two arrays of rows, X and Z, of the type that was trained on, and returns the kernel's values:
        an array or sparse array of shape (len(X), len(Z)).
    gamma : float, optional
        Of poly, rbf and sigmoid. Default: 1/features, set by `resolved`.
    degree : int
        Of poly.
    coef0 : float
        Of poly and sigmoid.
    """

    def __init__(self, kind: str | Callable[..., Any], *, gamma: float | None = None, degree: int = 3,
                 coef0: float = 0.0) -> None:
        if not callable(kind) and kind not in KINDS:
            raise ValueError(f"kernel = {kind!r} is not allowed: give {' | '.join(KINDS)}, or a callable")
        self.kind: Any = kind
        self.gamma, self.degree, self.coef0 = gamma, degree, coef0

    def __repr__(self) -> str:
        return f"Kernel({self.kind!r}, gamma={self.gamma!r}, degree={self.degree!r}, coef0={self.coef0!r})"

    @property
    def given(self) -> bool:
        """True where values come from the user: a callable or a matrix."""
        return callable(self.kind) or self.kind == "precomputed"

    def resolved(self, n_features: int) -> Kernel:
        """The same with gamma set."""
        gamma = 1.0 / max(1, n_features) if self.gamma is None else self.gamma
        return Kernel(self.kind, gamma=gamma, degree=self.degree, coef0=self.coef0)

    def diagonal(self, sqnorms: FloatArray) -> FloatArray:
        """Kernel values of rows with themselves, from their squared norms."""
        if self.kind == "rbf":
            return np.ones_like(sqnorms)
        if self.kind == "linear":
            return sqnorms.copy()
        # A value beyond all numbers is refused by who asks.
        with np.errstate(over="ignore", invalid="ignore"):
            z = cast(float, self.gamma) * sqnorms + self.coef0
            found: FloatArray = np.tanh(z) if self.kind == "sigmoid" else z**self.degree
        return found


def points_of(X: Any) -> KernelPoints:
    """KernelPoints of a user's arrays: where most values are 0, of sparse ones."""
    rows = as_rows(X, -1.0)
    if not isinstance(rows.arrays, tuple) and rows.nonzeros() < FULL * rows.m * rows.n:
        from scipy.sparse import csr_array

        rows = as_rows(csr_array(rows.arrays), -1.0)
    return KernelPoints(rows)


def room_of(cache: float | None) -> int:
    """Bytes for float32 rows of a kernel, by the parameter."""
    return ROOM if cache is None else int(cache * 2**20)


def shared_points(X: Any, classes: AnyArray, cache: float | None, threads: int | None) -> KernelPoints | None:
    """KernelPoints of the rows of X that know their inner products, for fits on parts of them with any kernel; None
    where these do not fit OF_PRODUCTS of the `cache`, or are made as quickly as they are read.

    `classes`, an int array: products of the rows of one class stand together, as a problem of few classes reads them.
    """
    m, order = row_count(X), np.argsort(classes, kind="stable")
    if 8 * m * m > OF_PRODUCTS * room_of(cache):
        return None
    points = points_of(select_rows(held(X), order))
    if points.rows.nnz < DEAR * m:
        return None
    # Memory of small pages: see `untouched` in _core/row_cache.pyx.
    linear, products = Kernel("linear"), np.frombuffer(mmap.mmap(-1, 8 * m * m)).reshape(m, m)

    def work(lo: int, hi: int) -> None:
        kernel_values(linear, 0.0, points, np.arange(lo, hi), points, lo, m, products[lo:hi, lo:])
        products[hi:, lo:hi] = products[lo:hi, hi:].T

    run_chunks(work, m, threads, FETCH)
    return points.known(products).select(np.argsort(order, kind="stable"))


def dense(rows: Rows, lo: int, hi: int) -> FloatArray:
    """Rows lo to hi as a float64 array."""
    part = rows.select(np.arange(lo, hi))
    if isinstance(part.arrays, tuple):
        table: AnyArray = CSR(part.stored(), *part.arrays[1:], rows.n).to_scipy().toarray()
    else:
        table = part.arrays
    return table.astype(np.float64, copy=False)


class KernelRows:
    """The rows of a Gram matrix, made when they are asked for; a source of Rows.from_source.

    Parameters
    ----------
    kernel, X, offset, cache, threads
        As of `gram_rows`.
    points : KernelPoints, optional
        The rows of X, where they are made.
    room : int, optional
        Bytes for float32 rows of several fits, one after the other: parts that were selected stay for the next one.
        Default: those of the cache, for one fit.

    Attributes
    ----------
    diagonal : float64 array of shape (m,)
    """

    def __init__(self, kernel: Kernel, X: Any, offset: float, cache: float | None, threads: int | None,
                 points: KernelPoints | None = None, room: int | None = None) -> None:
        self.kernel, self.offset, self.cache, self.threads = kernel, offset, cache, threads
        self.room = room_of(cache) if room is None else room
        self.parts: dict[bytes, Rows] | None = None if room is None else {}
        if callable(kernel.kind):
            self.X, m = held(X), row_count(X)
            self.diagonal = np.empty(m)
            for lo, hi in ranges(m, FETCH):
                part = select_rows(self.X, np.arange(lo, hi))
                values = call(kernel.kind, part, part)
                require_symmetry(values, values, abs(values).max(), "kernel", lo, lo)
                self.diagonal[lo:hi] = np.diagonal(values)
        else:
            self.points = points_of(X) if points is None else points
            self.diagonal = kernel.diagonal(self.points.sqnorms)
        self.diagonal += offset
        if not np.isfinite(self.diagonal).all():
            raise RowError(np.flatnonzero(~np.isfinite(self.diagonal))[0], "kernel of row {row} with itself is not "
                           "finite: scale the features, or take a smaller gamma or degree")
        negative = np.flatnonzero(self.diagonal < 0)
        if len(negative):
            i = negative[0]
            raise RowError(i, f"kernel of row {{row}} with itself is {self.diagonal[i]:.6g}, below 0: it is not "
                           "positive semidefinite on these rows, and nothing can be certified; try a larger coef0 or "
                           "another kernel")

    @property
    def known(self) -> bool:
        """Whether rows are made of inner products that are known."""
        return not callable(self.kernel.kind) and self.points.products is not None

    def fill(self, which: IntArray, out: RealArray) -> None:
        """out = the rows `which`: float64 or float32 array of shape (len(which), m)."""
        kernel, m = self.kernel, len(self.diagonal)
        if callable(kernel.kind):
            # Users' functions get one shape always: what is missing is filled up with rows that are there.
            for lo, hi in ranges(len(which), FETCH):
                left = select_rows(self.X, np.resize(which[lo:hi], FETCH))
                for first, last in ranges(m, COLUMNS):
                    values = call(kernel.kind, left, select_rows(self.X, np.arange(first, last)))
                    out[lo:hi, first:last] = values[:hi - lo]
            out += self.offset
        else:
            fill_values(kernel, self.offset, self.points, which, self.points, self.threads, out)
        if kernel.kind not in BOUNDED and not np.isfinite(out).all():
            i, j = np.argwhere(~np.isfinite(out))[0]
            raise ValueError(f"kernel of rows {which[i]} and {j} is not finite: scale the features, or take a smaller "
                             "gamma or degree")
        out[np.arange(len(which)), which] = self.diagonal[which]

    @property
    def definite(self) -> bool:
        """Whether the kernel is positive semidefinite on any rows."""
        kernel = self.kernel
        return kernel.kind in ("linear", "rbf") or (
            kernel.kind == "poly" and cast(float, kernel.gamma) >= 0 and kernel.coef0 >= 0)

    def at(self, columns: IntArray) -> KernelColumns:
        """A source of the rows' values at these columns alone: an int array, rising."""
        return KernelColumns(self, columns)

    def matrix(self, dtype: npt.DTypeLike = np.float64) -> AnyArray:
        """All rows."""
        m = len(self.diagonal)
        out = np.empty((m, m), dtype)
        for lo, hi in ranges(m, FETCH):
            self.fill(np.arange(lo, hi), out[lo:hi])
        return out

    def select(self, which: IntArray) -> Rows:
        """Rows of these rows, an int array, over the same cache."""
        if self.parts is None:
            return self._part(which, None)
        key = which.tobytes()
        if key not in self.parts:
            left = self.room - sum(part.held_bytes for part in self.parts.values())
            part = self._part(which, max(0, left))
            if left - 4 * len(which)**2 < BESIDE * self.room:
                return part
            self.parts[key] = part
        return self.parts[key]

    def _part(self, which: IntArray, room: int | None) -> Rows:
        given = callable(self.kernel.kind)
        return rows_of(KernelRows(self.kernel, select_rows(self.X, which) if given else None, self.offset, self.cache,
                                  self.threads, None if given else self.points.select(which), room))


class KernelColumns:
    """Some columns of the rows of a KernelRows, whose kernel is not the user's."""

    def __init__(self, whole: KernelRows, columns: IntArray) -> None:
        self.whole, self.columns = whole, columns
        self.points = whole.points.select(columns)

    def fill(self, which: IntArray, out: FloatArray) -> None:
        """out = the rows `which`: float64 array of shape (len(which), len(columns))."""
        whole = self.whole
        fill_values(whole.kernel, whole.offset, whole.points, which, self.points, whole.threads, out)
        there = np.searchsorted(self.columns, which)
        own = np.flatnonzero(self.columns[np.minimum(there, len(self.columns) - 1)] == which)
        out[own, there[own]] = whole.diagonal[which[own]]


def fill_values(kernel: Kernel, offset: float, left: KernelPoints, which: IntArray, right: KernelPoints,
                threads: int | None, out: RealArray) -> None:
    """out = the kernel's values of the left points `which` and all right ones."""
    m = right.m

    def work(lo: int, hi: int) -> None:
        kernel_values(kernel, offset, left, which, right, lo, hi, out[:, lo:hi])

    threads = min(threads or default_threads(), int(len(which) * right.work / SHARE))
    run_chunks(work, m, threads, COLUMNS if threads > 1 else max(1, m))


def call(function: Callable[..., Any], X: HeldRows, Z: HeldRows) -> FloatArray:
    """Values of a user's kernel, checked for their shape."""
    values = function(*(side.to_scipy() if isinstance(side, CSR) else side for side in (X, Z)))
    values = np.asarray(values.toarray() if hasattr(values, "toarray") else values)
    shape = row_count(X), row_count(Z)
    if values.shape != shape or values.dtype.kind not in "biuf":
        raise ValueError(f"kernel returned {values.dtype} of shape {values.shape} for {shape[0]} and {shape[1]} rows: "
                         f"numbers of shape {shape} are needed")
    return values.astype(np.float64, copy=False)


def require_symmetry(values: FloatArray, turned: FloatArray, largest: float, name: str, row: int,
                     column: int) -> None:
    """ValueError where kernel values, from `row` and `column` on, differ from those the other way round."""
    unequal = abs(values - turned.T) > SYMMETRY * largest
    if unequal.any():
        i, j = np.argwhere(unequal)[0]
        raise ValueError(f"{name} is not symmetric: the kernel of rows {row + i} and {column + j} is {values[i, j]}, "
                         f"the other way round {turned[j, i]}")


def rows_of(source: KernelRows) -> Rows:
    """Rows over a KernelRows; sweeps make the whole matrix where the cache holds it."""
    m = len(source.diagonal)
    there = memory()
    held = there / 4 if source.cache is None else source.cache * 2**20
    if math.isinf(held):
        held = 2**30
    size = value_bytes(source) * max(1, m)
    capacity = min(m, max(FETCH, int(held / size)))
    needed = size * capacity
    if needed > there:
        raise MemoryError(f"{capacity} kernel rows of {m} values need {needed / 2**30:.1f} GiB, the machine has "
                          f"{there / 2**30:.1f}: give a smaller cache (-m)")
    rows = Rows.from_source(source, max(FETCH, capacity))
    rows.room = source.room
    return rows


def gram_rows(kernel: Kernel, X: Any, n_features: int, *, offset: float = 0.0, cache: float | None = None,
              threads: int | None = None, points: KernelPoints | None = None, room: int | None = None) -> Rows:
    """Rows in the feature space of a kernel.

    Parameters
    ----------
    kernel : Kernel
        One without gamma gets 1/n_features.
    X : array, sparse array or CSR of shape (m, n)
        As `train` takes it; for "precomputed" the matrix of the kernel's values, of shape (m, m).
    n_features : int
    offset : float
        Added to every value: the square of the bias feature.
    cache : float, optional
        MB for kernel rows; default: a quarter of the machine's memory. Where it holds the whole matrix, that is made at
        once. Otherwise rows are made when they are needed, and those used last are kept, at least FETCH: such Rows are
        not for two threads at once (`Rows.shared`). The rows have the same bits in both cases.
    threads : int, optional
        Default: all cores. The values do not depend on it.
    points : KernelPoints, optional
        The rows of X, for a kernel that is not given by values, where they are made.
    room : int, optional
        Bytes for float32 rows, where the cache is shared. Default: all of it. The values do not depend on it.

    Raises
    ------
    ValueError
        For a matrix that is not symmetric, values that are not finite, or a kernel that is negative on its diagonal.
    MemoryError
        Where the cache is larger than the machine.
    """
    if kernel.kind == "precomputed":
        return Rows.from_gram(precomputed(X, offset))
    return rows_of(KernelRows(kernel.resolved(n_features), X, offset, cache, threads, points, room))


class GramCache:
    """Rows in a kernel's feature space, kept for the next fit on the same X; of another kernel they are made anew.

    Parameters
    ----------
    points, room
        As of `gram_rows`, for every kernel.
    """

    def __init__(self, points: KernelPoints | None = None, room: int | None = None) -> None:
        self._points, self._room = points, room
        self._kept: tuple[Any, ...] | None = None
        self._rows: Rows | None = None

    def rows(self, kernel: Kernel, X: Any, bias: float, cache: float | None, threads: int | None,
             kept: IntArray | None = None) -> Rows:
        """Rows of X, which are those `kept` of the points: a constant feature, the bias, adds its square to all inner
        products."""
        wanted = kernel.kind, kernel.gamma, kernel.degree, kernel.coef0, constant_of(bias), cache
        if self._rows is None or wanted != self._kept:
            # The old ones go before there are others: both may not fit into memory.
            self._kept = self._rows = None
            points = self._points if self._points is None or kept is None else self._points.select(kept)
            self._rows = gram_rows(kernel, X, shape_of(X)[1], offset=constant_of(bias), cache=cache, threads=threads,
                                   points=points, room=self._room)
            self._kept = wanted
        return self._rows


def constant_of(bias: float) -> float:
    """What the bias feature adds to the kernel."""
    return bias * bias if bias >= 0 else 0.0


def precomputed(X: Any, offset: float) -> FloatArray:
    """A Gram matrix that the user gave, checked: float64 array of shape (m, m)."""
    rows = as_rows(X, -1.0)
    if rows.m != rows.n:
        raise ValueError(f"X has shape ({rows.m}, {rows.n}): a precomputed kernel needs a square matrix, its values "
                         "for each pair of rows")
    if isinstance(rows.arrays, tuple) or rows.arrays.dtype != np.float64:
        K = np.empty((rows.m, rows.n))
        for lo, hi in ranges(rows.m, COLUMNS):
            K[lo:hi] = dense(rows, lo, hi)
    else:
        K = rows.arrays
    largest = max((abs(K[lo:hi]).max() for lo, hi in ranges(rows.m, COLUMNS)), default=0.0)
    for lo, hi in ranges(rows.m, COLUMNS):
        require_symmetry(K[lo:hi], K[:, lo:hi], largest, "X", lo, 0)
    if (np.diagonal(K) + offset < 0).any():
        i = np.flatnonzero(np.diagonal(K) + offset < 0)[0]
        raise RowError(i, f"kernel of row {{row}} with itself is {K[i, i]}, below 0: the matrix is not positive "
                       "semidefinite")
    return K + offset if offset else K


def take_support(kernel: Kernel, X: HeldRows, which: IntArray) -> Any:
    """The rows `which` of X, for kernel_scores and to be saved.

    Returns
    -------
    The rows: a CSR for sparse X, else a dense array; for a callable of X's own type; for "precomputed" the row numbers.
    """
    which = np.asarray(which, dtype=np.intp)
    if kernel.kind == "precomputed":
        return which
    if callable(kernel.kind):
        return select_rows(X, which)
    rows = as_rows(X, -1.0).select(which)
    if not isinstance(rows.arrays, tuple):
        return rows.arrays
    data, indices, indptr = map(np.asarray, rows.arrays)
    return CSR(data, indices, indptr, rows.n)


def kernel_scores(kernel: Kernel, X: Any, support: Any, coefficients: AnyArray, *, offset: float = 0.0,
                  threads: int | None = None, pairs_of: IntArray | None = None) -> FloatArray:
    """Scores sum_j (kernel(x, z_j) + offset) coefficients_j of the rows x of X.

    Parameters
    ----------
    kernel : Kernel
        With its gamma set.
    X : array, sparse array or CSR of shape (m, n)
        For "precomputed" the kernel's values of its rows and of all rows that were trained on. Features that one of X
        and the support vectors does not have are zeros there.
    support : as `take_support` returns it
        Support vectors z_j.
    coefficients : float64 array of shape (support vectors, columns)
    offset : float
    threads : int, optional
        Default: all cores. The result does not depend on it. A callable is called on one thread.
    pairs_of : int array of shape (classes,), optional
        Support vectors of each class: coefficients are of one against one, of shape (support vectors, classes - 1), as
        `one_against_one.packed` makes them.

    Returns
    -------
    float64 array of shape (m, columns)
    """
    X = held(X)
    m = row_count(X)
    out = Scores(m, coefficients, pairs_of)
    if callable(kernel.kind):
        for lo, hi in ranges(m, COLUMNS):
            values = call(kernel.kind, select_rows(X, np.arange(lo, hi)), support)
            out.add(lo, hi, values + offset)
    elif kernel.kind == "precomputed":
        rows = as_rows(X, -1.0)
        if len(support) and support.max() >= rows.n:
            raise ValueError(f"X has {rows.n} columns: a precomputed kernel needs its values for each row that was "
                             f"trained on, {support.max() + 1} at least")
        for lo, hi in ranges(m, COLUMNS):
            out.add(lo, hi, dense(rows, lo, hi)[:, support] + offset)
    else:
        known = points_of(support)

        def work(lo: int, hi: int) -> None:
            out.add_points(lo, hi, kernel, offset, known, points_of(select_rows(X, np.arange(lo, hi))))

        run_chunks(work, m, threads, COLUMNS)
    return out.scores


def known_scores(kernel: Kernel, points: KernelPoints, support: KernelPoints, coefficients: AnyArray, *,
                 pairs_of: IntArray | None = None) -> FloatArray:
    """`kernel_scores` of KernelPoints with support vectors that are KernelPoints too, of the same products."""
    out = Scores(points.m, coefficients, pairs_of)
    for lo, hi in ranges(points.m, COLUMNS):
        out.add_points(lo, hi, kernel, 0.0, support, points.select(np.arange(lo, hi)))
    return out.scores


class Scores:
    """Sums of kernel values times coefficients, `scores`, float64 array of shape (m, columns): see `kernel_scores`."""

    def __init__(self, m: int, coefficients: AnyArray, pairs_of: IntArray | None) -> None:
        self.coefficients, self.pairs_of = np.ascontiguousarray(coefficients, dtype=np.float64), pairs_of
        self.scores = np.zeros((m, self.coefficients.shape[1] if pairs_of is None
                                else one_against_one.column_count(len(pairs_of))))

    def add(self, lo: int, hi: int, values: FloatArray, low: int = 0, high: int | None = None) -> None:
        """Add to the scores lo to hi what the support vectors low to high give."""
        high = len(self.coefficients) if high is None else high
        if self.pairs_of is None:
            self.scores[lo:hi] += values @ self.coefficients[low:high]
        else:
            one_against_one.add_scores(self.scores[lo:hi], values, self.coefficients, self.pairs_of, low, high)

    def add_points(self, lo: int, hi: int, kernel: Kernel, offset: float, support: KernelPoints,
                   points: KernelPoints) -> None:
        """Add to the scores lo to hi, of these points, what all support vectors give."""
        values = np.empty((SUPPORT, hi - lo))
        for first, last in ranges(support.m, SUPPORT):
            part = values[:last - first]
            kernel_values(kernel, offset, support, np.arange(first, last), points, 0, hi - lo, part)
            self.add(lo, hi, part.T, first, last)
