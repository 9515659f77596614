"""Rows: checked data of a fit or a prediction in one of the storages of rows.pxd."""

import threading
from contextlib import contextmanager

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
from libc.string cimport memcpy

from marginlinear._core.rows cimport (
    CSR32,
    CSR64,
    DENSE32,
    DENSE64,
    EQUAL64,
    FETCH,
    GRAM,
    NARROW32,
    NARROW64,
    SLICE,
    Rows,
    csr32_t,
    csr64_t,
    csr_t,
    equal64_t,
    kernels_t,
    narrow64_t,
    row_axpy,
    row_dot,
    row_sqnorm,
    rows_t,
    value,
)
from marginlinear._core.row_cache import RowCache, add_rows
from marginlinear.errors import RowError
from marginlinear.threads import CHUNK, ranges, run_chunks

cdef extern from "simd.h":
    const kernels_t* kernels_of(int width) noexcept nogil


# Numbers that are looked at at once, and that are compared, or multiplied, before they are added up.
PART, COMPARED = 2**22, 2**15
# Bytes for the float32 rows of a Gram matrix that are kept, unless others are given.
ROOM = 200 * 2**20
# Of these, whole rows; the others are for what is gathered of them.
OF_ROWS = 0.75
# So few rows are made at once.
SMALL = 1024
# Gram matrices of so many rows have float64 values.
EXACT = 4096
# Kernels of rows with themselves that float32 numbers hold with room to spare, the largest of them.
SINGLE = 1e-30, 1e30
# Rows that are asked for at once, where many of them are asked for in vain.
LEAST = 8
EMPTY = -1
# Multiplications that are worth another thread: about half a millisecond.
cdef double SHARE = 5e5

cdef enum Task:
    SQNORMS
    PRODUCTS
    COPY

cdef struct task_t:
    Task what
    Py_ssize_t start, stop
    double* out
    double* one                # PRODUCTS: room for row `start`
    const Py_ssize_t* chosen   # COPY: the numbers of the rows, and where each begins in `values` and `features`
    const int64_t* begin
    uint8_t* values
    uint8_t* features

ctypedef fused engine_t:
    Rows

include "on_rows.pxi"


def choose_kernels(int width=8):
    """Work with vectors of `width` doubles, or the widest that this processor has below that; returns their width."""
    global kernels
    kernels = kernels_of(width)
    return kernels.width


choose_kernels()


cdef class Rows:
    """Read-only rows that keep their arrays alive. Made by from_csr, from_dense, from_gram, from_source.

    Attributes
    ----------
    m, n : int
        Rows and stored features.
    d : int
        Length of a state: n, or n + 1 with a bias feature; 2m for a Gram matrix.
    bias : float
        Value of the bias feature, negative for none.
    nnz : int
        Stored values.
    arrays : tuple or array
        What the rows were made of.
    """

    @staticmethod
    def from_csr(data, indices, indptr, Py_ssize_t n, double bias=-1.0, threads=1, bint in_order=False):
        """CSR rows without a copy of the values.

        Parameters
        ----------
        data : float64 or float32 array or memoryview of shape (nnz,)
        indices : int32 or uint16 array or memoryview of shape (nnz,)
        indptr : int64 array or memoryview of shape (m + 1,)
        n : int
            Number of features.
        bias : float
        threads : int
            That check the arrays.
        in_order : bool
            Whether they were checked before.

        Raises
        ------
        ValueError
            For arrays that do not fit each other, an index outside [0, n), a repeated or falling index in a row,
            or a value that is not finite.
        """
        cdef Rows rows = Rows.__new__(Rows)
        rows._csr(data, indices, indptr, n, bias)
        for where in run_chunks(rows._csr_fault, rows.m, threads, rows.share()) if not in_order else ():
            if where >= 0:
                raise csr_error(data, indices, indptr, n, where)
        return rows

    @staticmethod
    def from_equal(each, indices, indptr, Py_ssize_t n, double bias=-1.0, threads=1, bint in_order=False):
        """CSR rows of which each has one value only: `each`, a float64 array of shape (m,). The rest as of `from_csr`,
        indices int32; errors too."""
        if len(each) != len(indptr) - 1:
            raise ValueError(f"X: {len(each)} values for {len(indptr) - 1} rows: one a row is needed")
        cdef Rows rows = Rows.__new__(Rows)
        rows._sizes(len(indices), len(indices), indptr, n, bias)
        rows._equal(np.repeat(each, 2).reshape(-1, 2), indices, indptr)
        for where in run_chunks(rows._csr_fault, rows.m, threads, rows.share()) if not in_order else ():
            if where >= 0:
                raise csr_error(np.broadcast_to(each[where], len(indices)), indices, indptr, n, where)
        return rows

    def _csr_fault(self, Py_ssize_t lo, Py_ssize_t hi):
        cdef Py_ssize_t where
        with nogil:
            if self.storage == NARROW32:
                where = csr_fault(&self.narrow32, self.nnz, lo, hi)
            elif self.storage == NARROW64:
                where = csr_fault(&self.narrow64, self.nnz, lo, hi)
            elif self.storage == CSR32:
                where = csr_fault(&self.csr32, self.nnz, lo, hi)
            elif self.storage == EQUAL64:
                where = csr_fault(&self.equal64, self.nnz, lo, hi)
            else:
                where = csr_fault(&self.csr64, self.nnz, lo, hi)
        return where

    @staticmethod
    def from_pages(data, indices, indptr, Py_ssize_t n, double bias, sqnorms, pager):
        """CSR rows on disk, mapped: who wrote them has seen that they are in order.

        Parameters
        ----------
        data, indices, indptr, n, bias
            As of `from_csr`.
        sqnorms : float64 array of shape (m,)
            Of the stored values, summed in the order of the features.
        pager : object
            pager.turns: int, sweeps over a window before the next one. pager.chunks: int array, the first row of each
            chunk, and m. pager.windows(numbers): yields lists of ranges of rows, which are at hand until the next is
            asked for; together they are those of the chunks of these numbers. pager.require(): from here on all rows
            are read in their order. pager.fits(which): whether these rows have a place in memory;
            pager.selected(which): else a pager of theirs. pager.nonzeros: stored values that are not 0.
            pager.zeros(n, dtype): an array for rows.
        """
        cdef Rows rows = Rows.__new__(Rows)
        rows._csr(data, indices, indptr, n, bias)
        rows.pager = pager
        # In the order of row_sqnorm, which adds the bias feature last.
        rows._sqnorms = sqnorms + bias * bias if bias >= 0 else sqnorms
        return rows

    def _csr(self, data, indices, indptr, Py_ssize_t n, double bias):
        """Sizes and addresses of these arrays."""
        cdef const int64_t[::1] ptr = indptr
        cdef const double[::1] v64
        cdef const float[::1] v32
        cdef const int32_t[::1] wide
        cdef const uint16_t[::1] narrow
        cdef const void* values = NULL
        cdef const void* features = NULL
        cdef bint single = memoryview(data).itemsize == sizeof(float)
        cdef bint short = memoryview(indices).itemsize == sizeof(uint16_t)
        self.arrays = tuple(map(np.asarray, (data, indices, indptr)))
        self._sizes(len(data), len(indices), ptr, n, bias)
        if single:
            v32 = data
            values = &v32[0] if self.nnz else NULL
        else:
            v64 = data
            values = &v64[0] if self.nnz else NULL
        if short:
            narrow = indices
            features = &narrow[0] if self.nnz else NULL
        else:
            wide = indices
            features = &wide[0] if self.nnz else NULL
        if short and single:
            self.storage = NARROW32
            place(self, &self.narrow32, values, features, &ptr[0])
        elif short:
            self.storage = NARROW64
            place(self, &self.narrow64, values, features, &ptr[0])
        elif single:
            self.storage = CSR32
            place(self, &self.csr32, values, features, &ptr[0])
        else:
            self.storage = CSR64
            place(self, &self.csr64, values, features, &ptr[0])

    def _sizes(self, Py_ssize_t values, Py_ssize_t features, const int64_t[::1] ptr, Py_ssize_t n, double bias):
        self.m = ptr.shape[0] - 1
        self.n = n
        self.d = n + (bias >= 0)
        self.bias = bias
        if n < 0:
            raise ValueError(f"X has {n} features")
        if self.m < 0 or ptr[0] != 0 or ptr[self.m] > min(values, features):
            raise ValueError(f"X: indptr does not fit {values} data and {features} indices: it goes from "
                             f"{ptr[0] if self.m >= 0 else None} to {ptr[self.m] if self.m >= 0 else None}")
        self.nnz = ptr[self.m]

    def _equal(self, pairs, indices, indptr):
        """Addresses of rows whose values but the last are equal: `pairs` is a float64 array of shape (m, 2)."""
        cdef const double[:, ::1] values = pairs
        cdef const int32_t[::1] features = indices
        cdef const int64_t[::1] ptr = indptr
        self.storage = EQUAL64
        self.arrays = tuple(map(np.asarray, (pairs, indices, indptr)))
        place(self, &self.equal64, &values[0, 0] if self.m else NULL, &features[0] if self.nnz else NULL, &ptr[0])

    @staticmethod
    def from_dense(data, double bias=-1.0):
        """Rows of a C-ordered float64 or float32 array of shape (m, n), without a copy."""
        cdef Rows rows = Rows.__new__(Rows)
        cdef const double[:, ::1] v64
        cdef const float[:, ::1] v32
        rows.arrays = data
        rows.m, rows.n = data.shape
        rows.d = rows.n + (bias >= 0)
        rows.bias = bias
        rows.nnz = rows.m * rows.n
        if not finite(data):
            i, j = np.argwhere(~np.isfinite(data))[0]
            raise RowError(i, f"X: row {{row}}, feature {j} is {data[i, j]}: values must be finite")
        if data.dtype == np.float64:
            v64 = data
            rows.storage = DENSE64
            rows.dense64.m, rows.dense64.n, rows.dense64.d, rows.dense64.bias = rows.m, rows.n, rows.d, bias
            rows.dense64.data = &v64[0, 0] if rows.nnz else NULL
        else:
            v32 = data
            rows.storage = DENSE32
            rows.dense32.m, rows.dense32.n, rows.dense32.d, rows.dense32.bias = rows.m, rows.n, rows.d, bias
            rows.dense32.data = &v32[0, 0] if rows.nnz else NULL
        return rows

    @staticmethod
    def from_gram(gram):
        """Rows in feature space, given by their inner products: a symmetric float64 array of shape (m, m)."""
        cdef const double[:, ::1] K = gram
        if K.shape[0] != K.shape[1]:
            raise ValueError(f"Gram matrix: shape {gram.shape} is not square")
        if not finite(gram):
            raise ValueError("Gram matrix: values must be finite")
        cdef Rows rows = Rows.__new__(Rows)
        rows.arrays = gram
        rows._gram(K.shape[0], np.diagonal(gram).copy())
        rows._point_at(gram)
        return rows

    def _point_at(self, gram):
        """All rows are those of this array."""
        self._pointers[:] = gram.ctypes.data + gram.itemsize * self.m * np.arange(self.m, dtype=np.uintp)

    @staticmethod
    def from_source(source, Py_ssize_t capacity):
        """Rows of a Gram matrix that are made when they are needed; `capacity` of them are kept.

        Parameters
        ----------
        source : object
            source.diagonal: float64 array of shape (m,). source.fill(which, out): the rows of an int array, of at most
            FETCH numbers, into a float64 or float32 array; source.matrix(dtype): all of them. source.select(which):
            Rows of these rows. source.definite: whether no value is larger than the diagonal allows;
            source.at(columns): a source of the rows there alone. source.known: as RowCache asks.
        capacity : int
            At least FETCH; m or more: `complete` may make all.
        """
        cdef Rows rows = Rows.__new__(Rows)
        if capacity < FETCH:
            raise ValueError(f"capacity = {capacity} is not allowed: give at least {FETCH}")
        rows._source = source
        rows._gram(len(source.diagonal), source.diagonal)
        rows._held = np.full(min(capacity, rows.m), EMPTY, dtype=np.intp)
        rows._met, rows._used = np.zeros(rows.m, dtype=np.int64), np.zeros(rows.m, dtype=np.int64)
        cdef int64_t[::1] met = rows._met, used = rows._used
        rows.gram.met, rows.gram.used, rows.gram.now = &met[0], &used[0], &rows.now
        rows.gram.single = value_bytes(source) == 4
        rows._last, rows.ahead = rows._held[:0], FETCH
        return rows

    def _gram(self, Py_ssize_t m, diagonal):
        """Sizes and diagonal of a Gram matrix, every row absent."""
        cdef size_t[::1] pointers
        cdef const double[::1] values
        self.m = self.n = m
        self.d = 2 * m
        self.bias = -1.0
        self.nnz = m * m
        self.storage = GRAM
        self.gram = gram_t(m, m, 2 * m, -1.0, NULL, False, NULL, NULL, NULL, NULL)
        self._pointers, self._diagonal = np.zeros(m, dtype=np.uintp), diagonal
        self._caches, self._lock, self.room, self.takers = [], threading.Lock(), ROOM, 1
        pointers, values = self._pointers, diagonal
        if m:
            self.gram.at, self.gram.diagonal = <const void**> &pointers[0], &values[0]

    @property
    def equal(self):
        """True where all values of a row but the last are stored as one."""
        return self.storage == EQUAL64

    def stored(self, Py_ssize_t lo=0, hi=None):
        """The stored values of sparse rows lo to hi, by default all, one a feature: float64 or float32 array."""
        values, _, indptr = self.arrays
        hi = self.m if hi is None else hi
        if self.storage != EQUAL64:
            return values[indptr[lo]:indptr[hi]]
        lengths = np.diff(indptr[lo:hi + 1])
        found = np.repeat(values[lo:hi, 0], lengths)
        last = np.cumsum(lengths)[lengths > 0] - 1
        found[last] = values[lo:hi, 1][lengths > 0]
        return found

    @property
    def is_gram(self):
        """True where the rows are known by their inner products alone."""
        return self.storage == GRAM

    @property
    def shared(self):
        """True where several threads may fit on these rows at once: not where sweeps fetch rows in turn."""
        return self._source is None or len(self._held) == self.m

    def complete(self):
        """To be called before all rows of a Gram matrix are visited: they are made now, where all may be held."""
        with self._lock:
            if self._source is not None and len(self._held) == self.m:
                self.arrays = self._source.matrix(self._dtype)
                self._point_at(self.arrays)
                self.gram.met = self.gram.used = NULL
                self._exact, self._source = self._source if self.gram.single else None, None

    @property
    def single(self):
        """Whether the values of a Gram matrix that engines see are float32 numbers, and `add` has others."""
        return bool(self.gram.single)

    @property
    def _dtype(self):
        return np.float32 if self.gram.single else np.float64

    def streamed(self):
        """The same Gram matrix, of which FETCH rows are held at a time, unless all are there."""
        if self._source is None:
            return self
        cdef Rows rows = Rows.from_source(self._source, FETCH)
        rows.room, rows.takers = self.room, self.takers
        return rows

    @property
    def definite(self):
        """Whether a Gram matrix is known to have no value beyond the roots of two on its diagonal."""
        source = self._source or self._exact
        return source is not None and source.definite

    def add(self, which, coefficients, sums, columns=None):
        """sums += sum_i row_i' coefficients_i over the rows `which` of a Gram matrix, in their order.

        Parameters
        ----------
        which : int array
        coefficients : float64 array of shape (len(which), k)
        sums : float64 array of shape (m, k)
        columns : int array, optional
            Where the matrix is `definite`: of these values of each row alone; `sums` has a row for each.
        """
        source = self._source or self._exact
        if source is None:
            add_rows(self.arrays, which, coefficients, sums)
            return
        if columns is not None:
            source = source.at(columns)
        step = max(LEAST, min(FETCH, PART // (4 * max(1, len(sums)))))
        values = np.empty((step, len(sums)))
        for lo, hi in ranges(len(which), step):
            source.fill(which[lo:hi], values[:hi - lo])
            add_rows(values, np.arange(hi - lo), coefficients[lo:hi], sums)

    @contextmanager
    def cache(self):
        """A RowCache of a Gram matrix for one fit at a time; it is kept, for the next."""
        try:
            cache = self._caches.pop()
        except IndexError:
            cache = RowCache(self._source or self._exact or Held(self.arrays), self.m,
                             max(1, int(OF_ROWS * self.room) // self.takers // (4 * max(1, self.m))))
            if cache.capacity == self.m <= SMALL:
                cache.fill()
        try:
            yield cache
        finally:
            self._caches.append(cache)

    @property
    def held_bytes(self):
        """What rows of a Gram matrix that were made take, and may."""
        made = [array.nbytes for array in (self.arrays, self._store) if array is not None]
        return sum(made) + sum(4 * cache.capacity * cache.m for cache in self._caches)

    def slice(self, Py_ssize_t columns=1):
        """How many rows may be multiplied with so many columns of weights between two looks at the signals: 1 to CHUNK.
        """
        cdef double rows = SLICE * self.m / (1.0 + <double>self.nnz * columns)
        return max(1, min(CHUNK, <Py_ssize_t>rows))

    def share(self, Py_ssize_t columns=1):
        """How many rows, with so many columns of weights, are worth a thread's while."""
        cdef double rows = SHARE * self.m / (1.0 + <double>self.nnz * columns)
        return max(1, <Py_ssize_t>min(rows, self.m))

    def absent(self, which):
        """Those of the row numbers `which`, an int array, that must be fetched before an update."""
        return which[self._pointers[which] == 0] if self._source is not None else which[:0]

    @property
    def chunks(self):
        """Rows that are read together: the first of each, and m."""
        return (0, self.m) if self.pager is None else self.pager.chunks

    @property
    def turns(self):
        """Sweeps over a window before the next one."""
        return 1 if self.pager is None else self.pager.turns

    def windows(self, numbers):
        """Yield lists of ranges of rows, that are at hand together, of the `chunks` of these numbers, in their order.
        """
        if self.pager is None:
            yield [(0, self.m)]
        else:
            yield from self.pager.windows(numbers)

    def require(self):
        """To be called before rows are read in their order: those on disk are compared with what was written."""
        if self.pager is not None:
            self.pager.require()

    def zeros(self, Py_ssize_t n, dtype=np.float64):
        """An array of what rows have: where these are on disk, so is it."""
        return np.zeros(n, dtype) if self.pager is None else self.pager.zeros(n, dtype)

    def at_once(self, Py_ssize_t columns):
        """Rows of which something with so many columns is held at once: it stays near, where rows are not known by
        passes over all of them."""
        return max(1, self.m if self.storage == GRAM else COMPARED // columns)

    def kept(self, array):
        """The same numbers where `zeros` would put them."""
        if self.pager is None:
            return array
        found = self.pager.zeros(array.size, array.dtype)
        found[:] = array
        return found

    def begin_pass(self):
        """From here on every row has one more turn, in whatever order."""
        self.now += 1

    def fetch(self, which):
        """Make absent rows among `which`, in the order of their turns, present: at least the first, at most FETCH.

        In place of rows that were not used for the most turns; of those that were used at their last one, rows that
        wait for their turn in this pass stay longest.
        """
        # Where less than half of what was fetched was used, not as much is asked for ahead.
        used = (self._used[self._last] == self.now).sum()
        self.ahead = min(FETCH, 2 * self.ahead) if 2 * used >= len(self._last) else max(LEAST, self.ahead // 2)
        which = self.absent(which)[:self.ahead]
        self._last = which
        if len(which) == 0:
            return
        if self._store is None:
            self._store = np.empty((len(self._held), self.m), self._dtype)
        made = np.empty((len(which), self.m), self._dtype)
        self._source.fill(which, made)
        waiting = self._met[self._held] != self.now
        idle = self.now - self._used[self._held] - waiting + np.where(waiting, 0, 0.5)
        idle[self._held == EMPTY] = np.inf
        slots = np.argsort(-idle, kind="stable")[:len(which)]
        gone = self._held[slots]
        self._pointers[gone[gone != EMPTY]] = 0
        self._store[slots] = made
        self._held[slots] = which
        self._pointers[which] = self._store.ctypes.data + self._store.itemsize * self.m * slots.astype(np.uintp)
        # As if used in the last pass.
        self._used[which] = self.now - 1

    def select(self, which):
        """Rows of these row numbers, in their order: copies of their values."""
        cdef const Py_ssize_t[::1] chosen
        cdef const int64_t[::1] begin
        cdef uint8_t[::1] to_values, to_features
        cdef task_t task
        which = np.ascontiguousarray(which, dtype=np.intp)
        source = self._source or self._exact
        if source is not None:
            return source.select(which)
        if self.pager is not None and not self.pager.fits(which):
            return self.pager.selected(which).rows(self.bias)
        self.require()
        if self.storage == GRAM:
            part = Rows.from_gram(np.ascontiguousarray(self.arrays[which[:, np.newaxis], which]))
            part.room = self.room
            return part
        if self.storage in (DENSE64, DENSE32):
            return Rows.from_dense(self.arrays[which], self.bias)
        if len(which) and not 0 <= which.min() <= which.max() < self.m:
            raise IndexError(f"rows {which.min()} to {which.max()} are not all among {self.m}")
        data, indices, indptr = self.arrays
        starts = np.zeros(len(which) + 1, dtype=np.int64)
        np.cumsum(np.diff(indptr)[which], out=starts[1:])
        features = np.empty(starts[len(which)], indices.dtype)
        values = np.empty((len(which), 2) if self.equal else features.shape, data.dtype)
        if len(features):
            chosen, begin = which, starts
            to_values, to_features = values.ravel().view(np.uint8), features.view(np.uint8)
            task.what, task.start, task.stop = COPY, 0, len(which)
            task.chosen, task.begin, task.values, task.features = (
                &chosen[0], &begin[0], &to_values[0], &to_features[0])
            with nogil:
                perform(self, self, &task)
        return self._like(values, features, starts, self.bias)

    def with_bias(self, double bias):
        """These rows, of the same arrays, with another value of the bias feature. Not of a Gram matrix."""
        cdef Rows rows
        if self.pager is not None:
            return self.pager.rows(bias)
        if self.storage in (DENSE64, DENSE32):
            return Rows.from_dense(self.arrays, bias)
        rows = self._like(*self.arrays, bias)
        rows.renumbered = self.renumbered and self.renumbered.with_bias(bias)
        return rows

    def _like(self, values, features, indptr, double bias):
        """Rows of other arrays of this storage, in order."""
        cdef Rows rows = Rows.__new__(Rows)
        if self.storage != EQUAL64:
            rows._csr(values, features, indptr, self.n, bias)
        else:
            rows._sizes(len(features), len(features), indptr, self.n, bias)
            rows._equal(values, features, indptr)
        return rows

    def products(self):
        """Inner products of all rows, the bias feature included: float64 array of shape (m, m), not to be changed.

        Raises ValueError for rows on disk.
        """
        cdef Py_ssize_t i
        cdef double[:, ::1] out
        cdef double[::1] one
        cdef task_t task
        source = self._source or self._exact
        if self.storage == GRAM and source is None:
            return self.arrays
        if self.pager is not None:
            raise ValueError(f"the inner products of {self.m} rows on disk are not made: take algorithm = 'auto'")
        K = np.empty((self.m, self.m))
        if self.storage == GRAM:
            for i in range(0, self.m, FETCH):
                source.fill(np.arange(i, min(self.m, i + FETCH)), K[i:i + FETCH])
            return K
        out, one = K, np.empty(max(1, self.d))
        task.what, task.one = PRODUCTS, &one[0]
        for i in range(self.m):
            task.start, task.out = i, &out[0, 0]
            one[:] = 0
            with nogil:
                perform(self, self, &task)
            PyErr_CheckSignals()
        return K

    def nonzeros(self):
        """How many stored values are not 0: the same for every storage of the same numbers, as nnz is not."""
        if self.pager is not None:
            return self.pager.nonzeros
        values = self.stored() if isinstance(self.arrays, tuple) else self.arrays.reshape(-1)
        # Twice as fast as a count of numbers; by parts, as what is compared takes memory.
        return sum(int(np.count_nonzero(values[lo:hi] != 0)) for lo, hi in ranges(len(values), COMPARED))

    def sqnorms(self):
        """Squared norms of the rows, bias feature included: float64 array of shape (m,), not to be changed.

        Raises RowError where one is not finite.
        """
        cdef double[::1] norms
        cdef Py_ssize_t lo, step = self.slice()
        cdef task_t task
        if self._sqnorms is not None:
            return self._sqnorms
        out = np.empty(self.m)
        norms = out
        for lo in range(0, self.m, step):
            task.what, task.start, task.stop, task.out = SQNORMS, lo, min(self.m, lo + step), &norms[0]
            with nogil:
                perform(self, self, &task)
            PyErr_CheckSignals()
        if not np.isfinite(out).all():
            raise RowError(int(np.argmin(np.isfinite(out))),
                           "X: the squares of row {row}'s values overflow when summed: scale the features")
        self._sqnorms = out
        return out


cdef void perform_on(engine_t self, const rows_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, at, first, count
    if task.what == SQNORMS:
        for i in range(task.start, task.stop):
            task.out[i] = row_sqnorm(X, i)
    elif task.what == PRODUCTS:
        # Row and column `start` of K, from the diagonal on.
        i = task.start
        row_axpy(X, i, 1.0, task.one)
        for at in range(i, X.m):
            task.out[at * X.m + i] = task.out[i * X.m + at] = row_dot(X, at, task.one)
    elif rows_t in csr_t:
        for at in range(task.start, task.stop):
            first, count = X.indptr[task.chosen[at]], task.begin[at + 1] - task.begin[at]
            if rows_t is equal64_t:
                memcpy(task.values + 2 * at * sizeof(double), X.data + 2 * task.chosen[at], 2 * sizeof(double))
            else:
                memcpy(task.values + task.begin[at] * sizeof(X.data[0]), X.data + first, count * sizeof(X.data[0]))
            memcpy(task.features + task.begin[at] * sizeof(X.indices[0]), X.indices + first,
                   count * sizeof(X.indices[0]))


def value_bytes(source):
    """Of a value of the Gram matrix of a source, as engines see it: float32 numbers where that saves much and loses
    nothing but last digits."""
    largest = np.max(source.diagonal, initial=0.0)
    return 4 if len(source.diagonal) > EXACT and source.definite and SINGLE[0] <= largest <= SINGLE[1] else 8


class Held:
    """A Gram matrix as a source of its rows."""

    known = False

    def __init__(self, gram):
        self.gram = gram

    def fill(self, which, out):
        # A value beyond float32 on no diagonal is one of a matrix that is not positive semidefinite: fits look at that.
        with np.errstate(over="ignore"):
            out[:] = self.gram[which]


def narrowed(const int32_t[::1] numbers):
    """The same numbers as a uint16 array; None where one is outside its range."""
    cdef Py_ssize_t i
    cdef int32_t number, every = 0
    found = np.empty(numbers.shape[0], np.uint16)
    cdef uint16_t[::1] out = found
    with nogil:
        for i in range(numbers.shape[0]):
            number = numbers[i]
            every |= number
            out[i] = <uint16_t> number
    return found if every >> 16 == 0 else None


def finite(array):
    """Whether all values are, in parts."""
    step = max(1, PART * len(array) // (1 + array.size))
    return all(np.isfinite(array[lo:hi]).all() for lo, hi in ranges(len(array), step))


cdef void place(Rows rows, csr_t* X, const void* data, const void* indices, const int64_t* indptr) noexcept nogil:
    """Let X be the rows of these arrays."""
    X.m, X.n, X.d, X.bias, X.indptr = rows.m, rows.n, rows.d, rows.bias, indptr
    if csr_t is csr64_t or csr_t is narrow64_t or csr_t is equal64_t:
        X.data = <const double*> data
    else:
        X.data = <const float*> data
    if csr_t is csr64_t or csr_t is csr32_t or csr_t is equal64_t:
        X.indices = <const int32_t*> indices
    else:
        X.indices = <const uint16_t*> indices


cdef Py_ssize_t csr_fault(const csr_t* X, Py_ssize_t nnz, Py_ssize_t lo, Py_ssize_t hi) noexcept nogil:
    """The first row from lo to hi that must not be read, or -1."""
    cdef Py_ssize_t i, p, start, stop
    cdef bint fault
    for i in range(lo, hi):
        if not 0 <= X.indptr[i] <= X.indptr[i + 1] <= nnz:
            return i
        start, stop = X.indptr[i], X.indptr[i + 1]
        if start == stop:
            continue
        fault = X.indices[start] < 0 or X.indices[stop - 1] >= X.n
        # Without a branch for each value.
        for p in range(start + 1, stop):
            fault |= X.indices[p] <= X.indices[p - 1]
        for p in range(start, stop):
            fault |= not isfinite(value(X, i, p))
        if fault:
            return i
    return -1


class OrderError(RowError):
    """Feature numbers of a row repeat or fall; those of the rows after it were not looked at."""


def csr_error(data, indices, indptr, n, i):
    """Why row i was refused."""
    data, indices, indptr = memoryview(data), memoryview(indices), memoryview(indptr)
    lo, hi = indptr[i], indptr[i + 1]
    if not 0 <= lo <= hi <= min(len(data), len(indices)):
        return RowError(i, f"X: indptr of row {{row}} does not fit: {lo} to {hi}")
    columns, values = indices[lo:hi], data[lo:hi]
    for at, (column, value) in enumerate(zip(columns, values)):
        if not 0 <= column < n:
            return RowError(i, f"X: row {{row}} has feature {column}, outside 0 to {n - 1}")
        if not isfinite(value):
            return RowError(i, f"X: row {{row}}, feature {column} is {value}: values must be finite")
        if at and column <= columns[at - 1]:
            break
    return OrderError(i, "X: row {row} has repeated or falling feature numbers: call sum_duplicates() or "
                      "sort_indices()")
