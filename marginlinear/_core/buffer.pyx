"""Arrays where NumPy is not wanted: memory with a type and a shape, behind the buffer protocol.

Typed memoryviews take one as it is, memoryview() cuts it by rows, and numpy.asarray has it without a copy.
"""

from cpython.buffer cimport PyBUF_FORMAT
from libc.stdlib cimport free, malloc

from marginlinear._core.pages cimport LARGE, advise_huge

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX


cdef class Buffer:
    """An array in C order, its values not set.

    Parameters
    ----------
    kind : {"d", "i"}
        float64 or int32.
    rows : int
    columns : int, optional
        Without, there is one dimension.
    """

    cdef void* start
    cdef bytes kind
    cdef Py_ssize_t itemsize
    cdef int dimensions
    cdef Py_ssize_t shape[2]
    cdef Py_ssize_t strides[2]

    def __cinit__(self, str kind, Py_ssize_t rows, columns=None):
        cdef Py_ssize_t size, width = 1 if columns is None else columns
        if rows < 0 or width < 0 or (width and rows > PY_SSIZE_T_MAX // 8 // width):
            raise ValueError(f"Buffer: shape ({rows}, {width})")
        self.kind = kind.encode()
        self.itemsize = {"d": sizeof(double), "i": sizeof(int)}[kind]
        self.dimensions = 1 if columns is None else 2
        self.shape[0], self.shape[1] = rows, width
        self.strides[0], self.strides[1] = self.itemsize * self.shape[1], self.itemsize
        size = self.strides[0] * rows
        self.start = malloc(max(size, 1))
        if self.start == NULL:
            raise MemoryError(f"no room for an array of {size / 2**30:.1f} GiB")
        if size >= LARGE:
            advise_huge(self.start, size)

    def __dealloc__(self):
        free(self.start)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        buffer.obj = self
        buffer.buf = self.start
        buffer.len = self.strides[0] * self.shape[0]
        buffer.itemsize = self.itemsize
        buffer.readonly = False
        buffer.format = <char*> self.kind if flags & PyBUF_FORMAT else NULL
        buffer.ndim = self.dimensions
        buffer.shape = self.shape
        buffer.strides = self.strides
        buffer.suboffsets = NULL
        buffer.internal = NULL


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
