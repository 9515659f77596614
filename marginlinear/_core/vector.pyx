"""Sums over vectors in one order: the same bits whatever BLAS is installed, and however many threads it takes."""

from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_F_CONTIGUOUS,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.math cimport fabs, fmax
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from marginlinear._core.pages cimport LARGE, advise_huge

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX

cdef enum:
    CHUNK = 1024    # numbers that a sum adds up by themselves


def total(const double[:] array):
    """The sum of a float64 array of one dimension, by parts: rounding grows with the number of parts alone."""
    cdef Py_ssize_t i, part, n = array.shape[0]
    cdef double whole = 0, s
    with nogil:
        for part in range((n + CHUNK - 1) // CHUNK):
            s = 0
            for i in range(part * CHUNK, min(n, (part + 1) * CHUNK)):
                s += array[i]
            whole += s
    return whole


def dot(const double[:] x, const double[:] y):
    """The sum of x_j y_j over the numbers of x, of which y may have more; by parts, as `total`."""
    cdef Py_ssize_t i, part, n = x.shape[0]
    cdef double whole = 0, s
    if y.shape[0] < n:
        raise ValueError(f"dot: {n} and {y.shape[0]} numbers")
    with nogil:
        for part in range((n + CHUNK - 1) // CHUNK):
            s = 0
            for i in range(part * CHUNK, min(n, (part + 1) * CHUNK)):
                s += x[i] * y[i]
            whole += s
    return whole


def largest_change(const double[:] x, const double[:] y):
    """max_i |x_i - y_i| of float64 arrays of one dimension; NaN where one is."""
    cdef Py_ssize_t i
    cdef double change, found = 0
    with nogil:
        for i in range(x.shape[0]):
            change = fabs(x[i] - y[i])
            if change != change:
                found = change
                break
            found = fmax(found, change)
    return found


SIZES = {"d": sizeof(double), "f": sizeof(float), "i": sizeof(int32_t), "q": sizeof(int64_t), "H": sizeof(uint16_t),
         "B": sizeof(uint8_t), "b": sizeof(int8_t)}


cdef class Buffer:
    """An array in C order.

    Parameters
    ----------
    kind : {"d", "f", "i", "q", "H", "B", "b"}
        float64, float32, int32, int64, which row numbers have too, uint16, uint8 or int8.
    rows : int
    columns : int, optional
        Without, there is one dimension.
    zero : bool
        Whether the values are 0; else they are not set.

    Attributes
    ----------
    kind, rows, columns
    """

    cdef void* start
    cdef bytes format
    cdef Py_ssize_t itemsize
    cdef int dimensions
    cdef bint constant
    cdef bint view       # of the memory of `owner`
    cdef Buffer owner
    cdef Py_ssize_t shape[2]
    cdef Py_ssize_t strides[2]

    def __cinit__(self, str kind, Py_ssize_t rows, columns=None, bint zero=False):
        cdef Py_ssize_t size, width = 1 if columns is None else columns
        if rows < 0 or width < 0 or (width and rows > PY_SSIZE_T_MAX // 8 // width):
            raise ValueError(f"Buffer: shape ({rows}, {width})")
        self.format = kind.encode()
        self.itemsize = SIZES[kind]
        self.dimensions = 1 if columns is None else 2
        self.shape[0], self.shape[1] = rows, width
        self.strides[0], self.strides[1] = self.itemsize * self.shape[1], self.itemsize
        size = self.strides[0] * rows
        # Zeros that nothing touches take no memory.
        self.start = calloc(max(size, 1), 1) if zero else malloc(max(size, 1))
        if self.start == NULL:
            raise MemoryError(f"no room for an array of {size / 2**30:.1f} GiB")
        if size >= LARGE:
            advise_huge(self.start, size)

    def __dealloc__(self):
        if not self.view:
            free(self.start)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self.constant and flags & PyBUF_WRITABLE:
            raise BufferError("one value for all rows must not be written to")
        if not self._contiguous() and asks_contiguous(flags):
            raise BufferError("the numbers do not stand side by side")
        buffer.obj = self
        buffer.buf = self.start
        buffer.len = self.itemsize * self.shape[0] * self.shape[1]
        buffer.itemsize = self.itemsize
        buffer.readonly = self.constant
        buffer.format = <char*> self.format if flags & PyBUF_FORMAT else NULL
        buffer.ndim = self.dimensions
        buffer.shape = self.shape
        buffer.strides = self.strides
        buffer.suboffsets = NULL
        buffer.internal = NULL

    def __len__(self):
        return self.shape[0]

    def __reduce__(self):
        return restored, (self.kind, self.rows, self.columns, memoryview(self).tobytes())

    def copy(self):
        """The same numbers in a Buffer of its own."""
        return copied(self)

    cdef bint _contiguous(self):
        cdef Py_ssize_t step = self.itemsize * self.shape[1]
        return self.shape[0] < 2 or (self.strides[0] == step and self.strides[1] == self.itemsize)

    cdef Buffer _seen_as(self, Py_ssize_t first, Py_ssize_t rows, columns):
        """The same memory from column `first` on, of this shape."""
        cdef Buffer found = Buffer(self.kind, 0, columns)
        free(found.start)
        found.start, found.view, found.owner = <char*> self.start + first * self.itemsize, True, self
        found.shape[0] = rows
        return found

    def table(self, Py_ssize_t rows):
        """The same memory as a Buffer of so many rows, of two dimensions."""
        cdef Py_ssize_t size = self.shape[0] * self.shape[1]
        if not self._contiguous() or rows < 1 or size % rows:
            raise ValueError(f"Buffer: {size} numbers for {rows} rows")
        return self._seen_as(0, rows, size // rows)

    @property
    def kind(self):
        return self.format.decode()

    @property
    def rows(self):
        return self.shape[0]

    @property
    def columns(self):
        return None if self.dimensions == 1 else self.shape[1]


cdef bint asks_contiguous(int flags):
    """Whether who asks for a buffer takes it without gaps only."""
    if flags & PyBUF_STRIDES != PyBUF_STRIDES:
        return True
    return any([flags & kind == kind for kind in (PyBUF_C_CONTIGUOUS, PyBUF_F_CONTIGUOUS, PyBUF_ANY_CONTIGUOUS)])


def zeros(kind, rows, columns=None):
    """A Buffer of zeros."""
    return Buffer(kind, rows, columns, zero=True)


def seen(array):
    """An array as NumPy's, without a copy; None where there is none."""
    import numpy as np

    return None if array is None else np.asarray(array)


def restored(kind, rows, columns, numbers):
    """A Buffer of these bytes, as pickle has it."""
    found = Buffer(kind, rows, columns)
    assign(found, numbers)
    return found


cdef kind_of(view):
    """A memoryview's format as a Buffer's kind: int64 has two names."""
    return "q" if view.format == "l" else view.format


def copied(array):
    """A Buffer with the numbers of any array in C order, of one dimension or two, or of strided float64 of one."""
    view = memoryview(array)
    if not view.c_contiguous:
        return scaled(array, 1.0)
    found = Buffer(kind_of(view), *view.shape)
    assign(found, array)
    return found


def assign(target, source):
    """target[:] = source, both in C order, of one kind and size."""
    cdef Py_buffer given, out
    PyObject_GetBuffer(source, &given, PyBUF_C_CONTIGUOUS)
    try:
        PyObject_GetBuffer(target, &out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        try:
            if out.len != given.len:
                raise ValueError(f"assign: {given.len} bytes for {out.len}")
            with nogil:
                memcpy(out.buf, given.buf, out.len)
        finally:
            PyBuffer_Release(&out)
    finally:
        PyBuffer_Release(&given)


def clear(target):
    """target[:] = 0, in C order."""
    cdef Py_buffer out
    PyObject_GetBuffer(target, &out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
    with nogil:
        memset(out.buf, 0, out.len)
    PyBuffer_Release(&out)


def scaled(const double[:] array, double factor):
    """factor times a float64 array of one dimension, as a Buffer."""
    cdef Py_ssize_t i, n = array.shape[0]
    found = Buffer("d", n)
    cdef double[::1] out = found
    with nogil:
        for i in range(n):
            out[i] = factor * array[i]
    return found


def product(const double[:] x, const double[:] y):
    """x times y, number by number: float64 arrays of one dimension; a Buffer."""
    cdef Py_ssize_t i, n = x.shape[0]
    if y.shape[0] != n:
        raise ValueError(f"product: {n} and {y.shape[0]} numbers")
    found = Buffer("d", n)
    cdef double[::1] out = found
    with nogil:
        for i in range(n):
            out[i] = x[i] * y[i]
    return found


def count_nonzero(const double[:] array):
    """How many numbers of a float64 array of one dimension are not 0."""
    cdef Py_ssize_t i, count = 0
    with nogil:
        for i in range(array.shape[0]):
            count += array[i] != 0
    return count


def columns_of(const double[:, ::1] table, Py_ssize_t first, Py_ssize_t step, Py_ssize_t count):
    """The `count` columns first, first + step, ... of a table, as a Buffer."""
    cdef double[:, ::1] out
    cdef Py_ssize_t i, j
    if not (0 <= first < table.shape[1] and 0 <= first + step * (count - 1) < table.shape[1]):
        raise ValueError(f"columns_of: not all of the columns are among {table.shape[1]}")
    found = Buffer("d", table.shape[0], count)
    out = found
    with nogil:
        for i in range(table.shape[0]):
            for j in range(count):
                out[i, j] = table[i, first + j * step]
    return found
