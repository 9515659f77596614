"""Values of a kernel function between rows of data, made for eight rows at a time (gram.h).

What is read often stands in panels where that is faster: dense rows, and sparse rows that are half full.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from marginlinear._core.check cimport check
from marginlinear._core.rows cimport Rows, csr_t, data_t, equal64_t, feature, row_begin, row_end, storage_of, value

cdef extern from "gram.h":
    enum:
        LANES "ML_LANES"
        BLOCK "ML_BLOCK"
    ctypedef struct kernel_t "ml_kernel_t":
        int kind
        int degree
        double gamma
        double coef0
        double offset
    ctypedef void (*sparse_f "ml_sparse_f")(const void* data, const void* index, const int64_t* begin, Py_ssize_t count,
                                            const double* lanes, double* products) noexcept nogil
    ctypedef void (*dense_f "ml_dense_f")(const double* panels, Py_ssize_t n, Py_ssize_t count, const double* lanes,
                                          double* products) noexcept nogil
    ctypedef void (*values_f "ml_values_f")(const kernel_t* kernel, const double* products, double left,
                                            const double* right, Py_ssize_t count, void* out) noexcept nogil
    ctypedef struct gram_f "ml_gram_t":
        int width
        sparse_f sparse[4]
        dense_f dense
        values_f values[2]
    const gram_f* gram_of "ml_gram_of"(int width) noexcept nogil

ctypedef fused number_t:
    float
    double

# Numbers of a feature of the rows at hand, and of them as many as stay in the caches at once.
cdef enum:
    NEAR = 32768
    BATCHES = 4
# As gram.h numbers them.
KINDS = ("linear", "poly", "rbf", "sigmoid")
# Sparse rows with at least this part of all values are quicker as dense ones.
FULL = 0.5

cdef enum Work:
    SCATTER    # lane l of `lanes` = the values of row who[l]
    CLEAR      # and back to 0
    PACK       # panels = the rows
    MULTIPLY   # products of the lanes and the rows start to stop

cdef struct task_t:
    Work what
    const Py_ssize_t* who
    Py_ssize_t start
    Py_ssize_t stop
    Py_ssize_t n       # features that the lanes have
    double* lanes
    double* products

cdef const gram_f* gram


def choose_width(int width=8):
    """Take vectors of up to `width` numbers from here on; returns how many they have. For tests."""
    global gram
    gram = gram_of(width)
    return gram.width


choose_width()


def aligned(Py_ssize_t count):
    """float64 zeros, one at least, from a line of the cache on."""
    made = np.zeros(count + LANES)
    cdef double[::1] numbers = made
    return made[-(<size_t> &numbers[0] // sizeof(double)) % LANES:]


cdef class KernelPoints:
    """Rows of data as arguments of a kernel function.

    Parameters
    ----------
    rows : Rows
        Of data, without a bias feature.

    Attributes
    ----------
    m : int
    sqnorms : float64 array of shape (m,)
    products : float64 array or None
        Of `known` points: inner products, which take the place of the rows. Of these are the points `numbers`.
    work : int
        Steps of one row with all points.
    """

    cdef readonly Py_ssize_t m
    cdef readonly Rows rows
    cdef readonly object products
    cdef object panels
    cdef double[::1] norms
    cdef const Py_ssize_t[::1] numbers

    def __init__(self, Rows rows):
        if rows.equal:
            rows = Rows.from_csr(rows.stored(), *rows.arrays[1:], rows.n, rows.bias)
        self.rows, self.m = rows, rows.m
        self._measure(rows.sqnorms())
        if not isinstance(rows.arrays, tuple) or rows.nnz >= FULL * rows.m * rows.n:
            self._pack()

    def _measure(self, sqnorms):
        norms = np.zeros((self.m + BLOCK - 1) // BLOCK * BLOCK)
        norms[:self.m] = sqnorms
        self.norms = norms

    @property
    def sqnorms(self):
        return np.asarray(self.norms)[:self.m]

    @property
    def work(self):
        return self.rows.nnz if self.products is None else self.m

    def known(self, products):
        """The same points by their inner products, a float64 array of shape (m, m): what is selected of these is read
        there by every kernel, with the bits that it has without them."""
        if products.shape != (self.m, self.m):
            raise ValueError(f"known: products of shape {products.shape} for {self.m} points")
        return self._among(products, np.arange(self.m, dtype=np.intp), self.sqnorms)

    def select(self, which):
        """The points of these numbers, an int array, in their order."""
        if self.products is None:
            return KernelPoints(self.rows.select(which))
        return self._among(self.products, np.asarray(self.numbers)[which], self.sqnorms[which])

    def _among(self, products, numbers, sqnorms):
        cdef KernelPoints points = KernelPoints.__new__(KernelPoints)
        points.products, points.numbers, points.m = products, numbers, len(numbers)
        points._measure(sqnorms)
        return points

    def _pack(self):
        cdef double[::1] panels
        cdef task_t task
        made = aligned((self.rows.m + LANES - 1) // LANES * LANES * self.rows.n)
        panels = made
        task.who = NULL
        task.what, task.start, task.stop, task.n, task.lanes = PACK, 0, self.rows.m, self.rows.n, &panels[0]
        with nogil:
            perform(self, self.rows, &task)
        self.panels = made


ctypedef fused engine_t:
    KernelPoints

include "on_features.pxi"


cdef void perform_on(KernelPoints self, const data_t* X, task_t* task) noexcept nogil:
    cdef Py_ssize_t i, p, j, lane
    cdef double* panel
    if task.what == MULTIPLY:
        if data_t in csr_t and data_t is not equal64_t:
            gram.sparse[storage_of(X)](X.data, X.indices, X.indptr + task.start, task.stop - task.start, task.lanes,
                                       task.products)
        return
    for lane in range(task.start, task.stop):
        i = lane if task.who == NULL else task.who[lane]
        check(i, X.m)
        panel = task.lanes + lane // LANES * LANES * task.n + lane % LANES
        for p in range(row_begin(X, i), row_end(X, i)):
            j = feature(X, i, p)
            if j < task.n:
                panel[LANES * j] = 0.0 if task.what == CLEAR else value(X, i, p)


def kernel_values(kernel, double offset, KernelPoints left, which, KernelPoints right, Py_ssize_t start,
                  Py_ssize_t stop, number_t[:, :] out):
    """out = kernel values of the left rows `which`, in any order, and the right rows start to stop.

    Parameters
    ----------
    kernel : marginlinear.data.kernels.Kernel
        One of KINDS, its gamma set.
    offset : float
        Added to every value.
    which : intp array
    start, stop : int
        The first is a multiple of BLOCK.
    out : float64 or float32 array of shape (len(which), stop - start), C order
    """
    cdef const Py_ssize_t[::1] who = np.ascontiguousarray(which, dtype=np.intp)
    cdef Py_ssize_t n, count = who.shape[0], lo, hi, most
    cdef const double[:, ::1] products
    cdef kernel_t wanted = kernel_t(KINDS.index(kernel.kind), kernel.degree, kernel.gamma or 0.0, kernel.coef0, offset)
    cdef double[::1] lanes
    cdef const double[::1] panels = right.panels
    cdef const double* packed = NULL
    cdef task_t task
    if start % BLOCK or not 0 <= start <= stop <= right.m or out.shape[0] != count or (
            out.shape[1] != stop - start or (out.size and out.strides[1] != sizeof(number_t))):
        raise ValueError(f"kernel_values: rows {start} to {stop} of {right.m}, {count} others, and an array of "
                         f"shape {out.shape[0]} x {out.shape[1]}")
    if left.products is not right.products:
        raise ValueError("kernel_values: points of other products")
    if right.products is not None:
        products = right.products
        for lo in range(0, count, LANES):
            hi = min(count, lo + LANES)
            with nogil:
                look_up(&wanted, left, &who[lo], hi - lo, right, products, start, stop, lo, out)
            PyErr_CheckSignals()
        return
    n = right.rows.n
    if panels is not None:
        packed = &panels[0]
    most = max(1, min(BATCHES, NEAR // max(1, n * LANES), (count + LANES - 1) // LANES))
    lanes = aligned(most * LANES * n)
    task.n, task.lanes = n, &lanes[0]
    for lo in range(0, count, most * LANES):
        hi = min(count, lo + most * LANES)
        task.who, task.start, task.stop = &who[lo], 0, hi - lo
        with nogil:
            task.what = SCATTER
            perform(left, left.rows, &task)
            multiply(&wanted, left, &who[lo], hi - lo, right, packed, &lanes[0], start,
                     stop, lo, out)
            task.what = CLEAR
            perform(left, left.rows, &task)
        PyErr_CheckSignals()


cdef void multiply(const kernel_t* kernel, KernelPoints left, const Py_ssize_t* who, Py_ssize_t count,
                   KernelPoints right, const double* panels, const double* lanes, Py_ssize_t start, Py_ssize_t stop,
                   Py_ssize_t first, number_t[:, :] out) noexcept nogil:
    """Rows first to first + count of `out`: those in the lanes."""
    cdef Py_ssize_t at, lo, hi, lane, n = right.rows.n
    cdef double products[LANES * BLOCK]
    cdef number_t values[BLOCK]
    cdef task_t task
    memset(products, 0, sizeof(products))
    task.what, task.products = MULTIPLY, products
    lo = start
    while lo < stop:
        hi, at = min(stop, lo + BLOCK), 0
        while at < count:
            task.lanes, task.start, task.stop = <double*> lanes + at * n, lo, hi
            if panels == NULL:
                perform(right, right.rows, &task)
            else:
                gram.dense(panels + lo * n, n, hi - lo, task.lanes, products)
            for lane in range(min(<Py_ssize_t>LANES, count - at)):
                gram.values[number_t is float](kernel, products + lane * BLOCK, left.norms[who[at + lane]],
                                               &right.norms[lo], hi - lo, values)
                memcpy(&out[first + at + lane, lo - start], values, (hi - lo) * sizeof(number_t))
            at += LANES
        lo = hi


cdef void look_up(const kernel_t* kernel, KernelPoints left, const Py_ssize_t* who, Py_ssize_t count,
                  KernelPoints right, const double[:, ::1] known, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t first,
                  number_t[:, :] out) noexcept nogil:
    """Rows first to first + count of `out`: those of `who`, whose products are known."""
    cdef Py_ssize_t at, lo, j, some
    cdef const double* row
    cdef const Py_ssize_t* numbers
    cdef double products[BLOCK]
    cdef number_t values[BLOCK]
    memset(products, 0, sizeof(products))
    for at in range(count):
        check(who[at], left.m)
        row, lo = &known[left.numbers[who[at]], 0], start
        while lo < stop:
            numbers, some = &right.numbers[lo], min(<Py_ssize_t>BLOCK, stop - lo)
            for j in range(some):
                check(numbers[j], known.shape[1])
                products[j] = row[numbers[j]]
            gram.values[number_t is float](kernel, products, left.norms[who[at]], &right.norms[lo], some, values)
            memcpy(&out[first + at, lo - start], values, some * sizeof(number_t))
            lo += BLOCK
