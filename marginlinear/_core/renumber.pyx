"""Sparse rows as a fit of one column of weights is quickest on: fewer features, the frequent ones side by side.

In text few features make up most values, and most features occur once. Their weights, spread over more memory than the
caches hold, are what a sweep waits for. Hence, on a copy of the rows, or in place of them:

    features that occur in several rows are numbered by falling frequency, so that the frequent ones share cache lines;
    those of row i that occur in no other row become one, of the value r_i = (sum_j x_ij^2)^(1/2);
    those that never occur have no weight.

The second is a rotation of the features: w = sum_i a_i x_i has w_j = w'_i x_ij/r_i there, and neither a margin nor
||w|| changes. Other norms of w do: a fit that has one of these asks for no rotation. In each row frequent features
stand first: what has to be waited for is asked for together.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t, uint16_t

from marginlinear._core.check cimport check
from marginlinear._core.rows cimport (
    CSR32, CSR64, DENSE32, DENSE64, EQUAL64, GRAM, NARROW32, NARROW64, Rows, csr32_t, csr64_t, equal64_t, prefetch,
    value,
)
from marginlinear.threads import run_chunks

# Of so few features all weights stay near a core, whatever their order.
FEW = 131072
# Features whose weights are in a core's own cache most of the time.
NEAR = 32768
cdef enum:
    OFTEN = 65535       # features that occur more often count as this
    DISTANCE = 24       # values between the request for a feature's number and its turn
    BLOCK = 4194304     # values, or features, between looks at the signals

ctypedef fused csr_t:
    csr64_t
    csr32_t
    equal64_t

ctypedef fused values_t:
    double
    float


cdef class RenumberedRows:
    """The rows made of `given`, and the way of weights between the two. Made by `renumber`.

    Attributes
    ----------
    rows : Rows
        The features in order: those of several rows, those of one, the bias feature.
    rotated : bool
        Whether features of one row alone are one.
    """

    cdef readonly Rows rows
    cdef readonly bint rotated
    # Arrays: the caller's numbers of the shared features; those of the others, row by row, and x_ij/r_i, which rows of
    # equal values have once; where each row begins that has such.
    cdef object shared, own, parts, begin
    cdef Py_ssize_t n

    def __init__(self, Rows given, int threads, bint in_place, bint rotated):
        cdef Rows rows = Rows.__new__(Rows)
        cdef Py_ssize_t lo, n = given.n, m = given.m, step = max(1, <Py_ssize_t>(<double>BLOCK * m / (1.0 + given.nnz)))
        cdef const int32_t[::1] indices = given.arrays[1]
        cdef const int64_t[::1] indptr = given.arrays[2]
        cdef uint16_t[::1] counts = np.zeros(n, dtype=np.uint16)
        # How many features have each count; then the place of the first of them. Larger counts come first.
        cdef Py_ssize_t most = min(OFTEN, m)
        cdef int64_t[::1] at = np.zeros(most + 1, dtype=np.int64)
        # Rounded to float32, r_i would no longer be the length of what it stands for.
        cdef int least = 2 if rotated and given.storage != CSR32 else 1
        for lo in range(0, m, step):
            with nogil:
                count_features(&indices[0], indptr[lo], indptr[min(m, lo + step)], &counts[0], n)
            PyErr_CheckSignals()
        for lo in range(0, n, BLOCK):
            with nogil:
                count_counts(&counts[0], lo, min(n, lo + BLOCK), &at[0])
            PyErr_CheckSignals()
        cdef int64_t after = n
        for lo in range(most + 1):
            after -= at[lo]
            at[lo] = after
        cdef Py_ssize_t shared = at[least - 1]
        self.n, self.rotated, self.shared = n, rotated, np.empty(shared, dtype=np.int32)
        cdef int32_t[::1] places = np.empty(n, dtype=np.int32), names = self.shared
        for lo in range(0, n, BLOCK):
            with nogil:
                place_features(&counts[0], lo, min(n, lo + BLOCK), least, &at[0], &places[0],
                               &names[0] if shared else NULL, shared)
            PyErr_CheckSignals()
        self._fill(given, rows, places, shared, threads, step, in_place)
        self.rows = rows

    cdef _fill(self, Rows given, Rows rows, int32_t[::1] places, Py_ssize_t shared, int threads, Py_ssize_t step,
               bint in_place):
        cdef const int32_t[::1] indices = given.arrays[1]
        cdef const int64_t[::1] indptr = given.arrays[2]
        cdef Py_ssize_t i, m = given.m, longest = 0, owners = 0
        cdef int64_t[::1] lengths = np.empty(m, dtype=np.int64)

        def measure(Py_ssize_t lo, Py_ssize_t hi):
            with nogil:
                shared_lengths(&indices[0], &indptr[0], lo, hi, &places[0], &lengths[0])
            PyErr_CheckSignals()

        run_chunks(measure, m, threads, step)
        indptrs = np.empty(m + 1, dtype=np.int64)
        # The shared values, and those of the copy, before each row.
        cdef int64_t[::1] before = np.empty(m + 1, dtype=np.int64), begin = indptrs
        before[0] = begin[0] = 0
        for i in range(m):
            single = lengths[i] < indptr[i + 1] - indptr[i]
            before[i + 1] = before[i] + lengths[i]
            begin[i + 1] = begin[i] + lengths[i] + single
            longest = max(longest, lengths[i])
            owners += single
        cdef Py_ssize_t total = begin[m], singles = given.nnz - before[m]
        values, features, _ = given.arrays
        if given.storage == EQUAL64:
            data = values.copy()
        else:
            data = values[:total] if in_place and values.flags.writeable else np.empty(total, dtype=values.dtype)
        in_place = in_place and features.flags.writeable
        features = features[:total] if in_place else np.empty(total, dtype=np.int32)
        rows.arrays = data, features, indptrs
        rows.m, rows.n, rows.nnz, rows.bias = m, shared + owners, total, given.bias
        rows.d = rows.n + (given.bias >= 0)
        rows.storage = given.storage
        rows._sqnorms = given.sqnorms()
        self.own, self.parts = np.empty(singles, dtype=np.int32), np.empty(owners if given.equal else singles)
        self.begin = np.empty(owners, dtype=np.int64)
        cdef int32_t[::1] numbers = features, own = self.own
        cdef double[::1] parts = self.parts
        cdef int64_t[::1] own_begin = self.begin
        owners = 0
        for i in range(m):
            if lengths[i] < indptr[i + 1] - indptr[i]:
                own_begin[owners] = indptr[i] - before[i]
                owners += 1
        cdef Py_ssize_t near = NEAR
        cdef int32_t* own_at = &own[0] if singles else NULL
        cdef double* parts_at = &parts[0] if singles else NULL
        cdef double[::1] v64
        cdef float[::1] v32
        if given.storage == CSR64:
            v64 = data
            rows.csr64 = csr64_t(m, rows.n, rows.d, rows.bias, &v64[0], &numbers[0], &begin[0])
        elif given.storage == EQUAL64:
            v64 = data.ravel()
            rows.equal64 = equal64_t(m, rows.n, rows.d, rows.bias, &v64[0], &numbers[0], &begin[0])
        else:
            v32 = data
            rows.csr32 = csr32_t(m, rows.n, rows.d, rows.bias, &v32[0], &numbers[0], &begin[0])

        def fill(Py_ssize_t lo, Py_ssize_t hi):
            # One more than a row has: what is not far is written there too.
            cdef double[::1] far = np.empty(longest + 1)
            cdef int32_t[::1] far_numbers = np.empty(longest + 1, dtype=np.int32)
            with nogil:
                if given.storage == CSR64:
                    fill_rows(&given.csr64, lo, hi, &places[0], shared, near, &before[0], &begin[0], &v64[0],
                              &numbers[0], own_at, parts_at, &far[0], &far_numbers[0])
                elif given.storage == EQUAL64:
                    fill_rows(&given.equal64, lo, hi, &places[0], shared, near, &before[0], &begin[0], &v64[0],
                              &numbers[0], own_at, parts_at, &far[0], &far_numbers[0])
                else:
                    fill_rows(&given.csr32, lo, hi, &places[0], shared, near, &before[0], &begin[0], &v32[0],
                              &numbers[0], own_at, parts_at, &far[0], &far_numbers[0])
            PyErr_CheckSignals()

        # In place no row is longer than it was: one after the other, what is written was read before.
        alone = in_place or np.may_share_memory(data, values)
        run_chunks(fill, m, 1 if alone else threads, step)

    def with_bias(self, double bias):
        """Those of the given rows with another value of the bias feature."""
        cdef RenumberedRows made = RenumberedRows.__new__(RenumberedRows)
        made.rows, made.rotated, made.n = self.rows.with_bias(bias), self.rotated, self.n
        made.shared, made.own, made.parts, made.begin = self.shared, self.own, self.parts, self.begin
        return made

    def to_inner(self, weights):
        """The caller's weights as those of `rows`: float64 arrays of shape (d,)."""
        split, out = len(self.shared), np.empty(self.rows.d)
        out[:split] = weights[self.shared]
        if len(self.begin):
            out[split:self.rows.n] = np.add.reduceat(weights[self.own] * self._parts(), self.begin)
        out[self.rows.n:] = weights[self.n:]
        return out

    def _parts(self):
        """x_ij/r_i of each feature that one row has."""
        if len(self.parts) == len(self.own):
            return self.parts
        return np.repeat(self.parts, np.diff(self.begin, append=len(self.own)))

    def to_outer(self, const double[::1] weights):
        """The reverse."""
        cdef const int32_t[::1] shared = self.shared
        cdef const int32_t[::1] own = self.own
        cdef const double[::1] parts = self.parts
        cdef const int64_t[::1] begin = self.begin
        cdef Py_ssize_t split = shared.shape[0], owners = begin.shape[0], j, row, p, stop
        cdef bint each = parts.shape[0] < own.shape[0]
        found = np.zeros(self.n + self.rows.d - self.rows.n)
        cdef double[::1] out = found
        with nogil:
            for j in range(split):
                prefetch(&out[shared[min(j + DISTANCE, split - 1)]])
                out[shared[j]] = weights[j]
            for row in range(owners):
                stop = begin[row + 1] if row + 1 < owners else own.shape[0]
                for p in range(begin[row], stop):
                    out[own[p]] = weights[split + row] * parts[row if each else p]
            for j in range(self.n, out.shape[0]):
                out[j] = weights[split + owners + j - self.n]
        return found


def renumber(Rows rows, int threads=1, bint in_place=False, bint rotated=True):
    """The RenumberedRows of these rows, made once; None where the weights are few, and the values are not fewer,
    or the rows are on disk.

    in_place: those of their arrays that can be written to are used for it, and `rows` are not to be read any more.
    rotated: features of one row alone become one, for a fit to which the norm is all that counts of their weights.
    """
    if rows.storage in (GRAM, DENSE64, DENSE32) or rows.nnz == 0 or rows.pager is not None:
        return None
    # Of fewer values than features most weights are none that a row has, and all are summed up in each check.
    if rows.n <= FEW and rows.nnz >= rows.n:
        return None
    if rows.equal and (rows.arrays[0][:, 0] != rows.arrays[0][:, 1]).any():
        # Rows that were renumbered: the feature of the last value must stay the last.
        return None
    if rows.renumbered is None or rows.renumbered.rotated != rotated:
        rows.renumbered = RenumberedRows(with_equal_values(wide(rows)), threads, in_place, rotated)
    return rows.renumbered


cdef Rows wide(Rows rows):
    """The same rows with features as int32."""
    cdef Rows made
    if rows.storage not in (NARROW64, NARROW32):
        return rows
    data, indices, indptr = rows.arrays
    made = Rows.from_csr(data, indices.astype(np.int32), indptr, rows.n, rows.bias, in_order=True)
    made._sqnorms = rows.sqnorms()
    return made


cdef Rows with_equal_values(Rows rows):
    """The same rows, with one value a row where each has no other, as of words that are there or not."""
    cdef Py_ssize_t lo, step = rows.slice()
    cdef Rows equal
    if rows.storage != CSR64:
        return rows
    each = np.zeros(rows.m)
    cdef double[::1] values = each
    for lo in range(0, rows.m, step):
        if not find_values(&rows.csr64, lo, min(rows.m, lo + step), &values[0]):
            return rows
        PyErr_CheckSignals()
    _, indices, indptr = rows.arrays
    equal = Rows.from_equal(each, indices[:rows.nnz], indptr, rows.n, rows.bias, in_order=True)
    equal._sqnorms = rows.sqnorms()
    return equal


cdef bint find_values(const csr64_t* X, Py_ssize_t lo, Py_ssize_t hi, double* values) noexcept nogil:
    """Whether each of the rows lo to hi has but one value, which `values` becomes."""
    cdef Py_ssize_t i, p
    for i in range(lo, hi):
        for p in range(X.indptr[i], X.indptr[i + 1]):
            if X.data[p] != X.data[X.indptr[i]]:
                return False
        if X.indptr[i] < X.indptr[i + 1]:
            values[i] = X.data[X.indptr[i]]
    return True


cdef void count_features(const int32_t* indices, Py_ssize_t start, Py_ssize_t stop, uint16_t* counts,
                         Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t p
    cdef int32_t j
    for p in range(start, stop):
        prefetch(&counts[indices[min(p + DISTANCE, stop - 1)]])
        j = indices[p]
        check(j, n)
        counts[j] += counts[j] < OFTEN


cdef void count_counts(const uint16_t* counts, Py_ssize_t start, Py_ssize_t stop, int64_t* held) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(start, stop):
        held[counts[j]] += 1


cdef void place_features(const uint16_t* counts, Py_ssize_t start, Py_ssize_t stop, int least, int64_t* at,
                         int32_t* places, int32_t* names, Py_ssize_t shared) noexcept nogil:
    """The place of each feature that occurs `least` times, -1 of the others; at[c] is the next for a count of c."""
    cdef Py_ssize_t j
    for j in range(start, stop):
        if counts[j] >= least:
            check(at[counts[j]], shared)
            places[j] = <int32_t>at[counts[j]]
            names[places[j]] = <int32_t>j
            at[counts[j]] += 1
        else:
            places[j] = -1


cdef void shared_lengths(const int32_t* indices, const int64_t* indptr, Py_ssize_t lo, Py_ssize_t hi,
                         const int32_t* places, int64_t* lengths) noexcept nogil:
    cdef Py_ssize_t i, p, stop = indptr[hi], count
    for i in range(lo, hi):
        count = 0
        for p in range(indptr[i], indptr[i + 1]):
            prefetch(&places[indices[min(p + DISTANCE, stop - 1)]])
            count += places[indices[p]] >= 0
        lengths[i] = count


cdef void fill_rows(const csr_t* X, Py_ssize_t lo, Py_ssize_t hi, const int32_t* places, Py_ssize_t shared,
                    Py_ssize_t near, const int64_t* before, const int64_t* begin, values_t* data, int32_t* numbers,
                    int32_t* own, double* parts, double* far, int32_t* far_numbers) noexcept nogil:
    """Rows lo to hi; before[i] shared values stand in the rows before i, begin[i] values of the copy. `far` and
    far_numbers are scratch as long as a row."""
    cdef Py_ssize_t i, p, at, first, single, count, stop = X.indptr[hi]
    cdef int32_t place
    cdef double length, v
    for i in range(lo, hi):
        at = begin[i]
        first = single = X.indptr[i] - before[i]
        length = 0
        count = 0
        for p in range(X.indptr[i], X.indptr[i + 1]):
            prefetch(&places[X.indices[min(p + DISTANCE, stop - 1)]])
            place, v = places[X.indices[p]], value(X, i, p)
            if place >= 0:
                # To both places: a jump that is mispredicted would cost more.
                if csr_t is not equal64_t:
                    data[at] = <values_t>v
                numbers[at] = place
                far[count] = v
                far_numbers[count] = place
                at += place < near
                count += place >= near
            else:
                own[single] = X.indices[p]
                if csr_t is not equal64_t:
                    parts[single] = v
                single += 1
                length += v * v
        for p in range(count):
            if csr_t is not equal64_t:
                data[at + p] = <values_t>far[p]
            numbers[at + p] = far_numbers[p]
        at += count
        if at < begin[i + 1]:
            length = sqrt(length)
            if csr_t is equal64_t:
                data[2 * i + 1] = <values_t>length
            else:
                data[at] = <values_t>length
            numbers[at] = <int32_t>(shared + begin[i] - before[i])
            if csr_t is equal64_t:
                parts[begin[i] - before[i]] = X.data[2 * i] / length if length > 0 else 0.0
            else:
                for p in range(first, single):
                    parts[p] = parts[p] / length if length > 0 else 0.0
