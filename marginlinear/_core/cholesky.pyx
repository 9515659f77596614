"""Products and solutions with symmetric matrices, for Newton steps.

BLAS would take all cores of a user's process, whatever `threads` says, and is many times slower where they are busy.

Matrices are cut into panels of 8 columns, stored row by row; all work is that of 8 x 8 tiles (tile.h). The lower tiles
are computed, each by one thread, in an order that does not depend on their number.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport sqrt
from libc.stdint cimport int32_t
from libc.string cimport memset

from marginlinear._core.rows cimport SLICE
from marginlinear.threads import run_chunks

cdef extern from "tile.h" nogil:
    enum:
        PANEL "ML_PANEL"
    void tile "ml_tile"(const double* a, const double* b, Py_ssize_t n, double* out)

cdef enum:
    # Rows of a panel that a tile takes at once: two such panels stay in the nearest cache.
    DEPTH = 128
    # Columns of the factor that are found together.
    WIDTH = 64
    # Numbers of a part of the rows of Z, at least DEPTH of them: it stays in a core's own cache.
    ROOM = 32768
# Multiplications that are worth another thread.
cdef double SHARE = 2e6


cdef Py_ssize_t panels_of(Py_ssize_t n) noexcept nogil:
    return (n + PANEL - 1) // PANEL


def panels(Py_ssize_t columns, Py_ssize_t rows):
    """Zeros: float64 array of shape (panels, rows, PANEL)."""
    return np.zeros((panels_of(columns), rows, PANEL))


cdef class NormalMatrix:
    """The sum of Z'Z over parts of the rows of Z.

    Parameters
    ----------
    d : int
        Columns of Z.
    rows : int
        Of Z; a part has `room` rows at most.
    threads : int
    """

    def __init__(self, Py_ssize_t d, Py_ssize_t rows, int threads):
        self.d, self.room, self.threads = d, max(1, min(rows, max(DEPTH, ROOM // d))), threads
        self.z, self.total = panels(d, self.room), np.empty((d, d))

    cdef clear(self):
        """Begin another sum."""
        self.total[:, :] = 0

    cdef void pack(self, Py_ssize_t at, const double* row) noexcept nogil:
        """Row `at` of the part."""
        cdef Py_ssize_t j
        for j in range(self.d):
            self.z[j // PANEL, at, j % PANEL] = row[j]

    cdef void fill(self, Py_ssize_t at, const int32_t* columns, const double* values, Py_ssize_t n,
                   double share) noexcept nogil:
        """Row `at` of the part, of n values of these columns times a share."""
        cdef Py_ssize_t j
        for j in range(self.z.shape[0]):
            memset(&self.z[j, at, 0], 0, PANEL * sizeof(double))
        for j in range(n):
            self.z[columns[j] // PANEL, at, columns[j] % PANEL] = share * values[j]

    cdef add(self, Py_ssize_t n):
        """Add the Z'Z of the first n rows of the part."""
        add_product(self.total, 0, self.z, n, 1.0, self.threads)

    cdef double[:, ::1] result(self):
        """The sum, of shape (d, d), until it is cleared."""
        mirror(self.total, True)
        return self.total


cdef mirror(double[:, ::1] H, bint lower):
    """Copy what is below the diagonal to above it, or the other way."""
    cdef Py_ssize_t i, j
    with nogil:
        for i in range(H.shape[0]):
            for j in range(i):
                if lower:
                    H[j, i] = H[i, j]
                else:
                    H[i, j] = H[j, i]


def add_product(double[:, ::1] H, Py_ssize_t first, const double[:, :, ::1] Z, Py_ssize_t n, double sign, int threads):
    """H[first:, first:] += sign Z'Z on and below the diagonal, Z being the first n rows of the panels."""
    cdef Py_ssize_t count = panels_of(H.shape[0] - first)
    cdef double work = 0.5 * <double>n * <double>(H.shape[0] - first) ** 2
    # The last rows of tiles are the longest: the first go to the last chunks.
    run_chunks(lambda lo, hi: add_tiles(H, first, Z, n, sign, count - hi, count - lo), count,
               threads if work > SHARE else 1, max(1, min(count // 8, <Py_ssize_t>(SLICE * count / (1 + work)))))


cdef add_tiles(double[:, ::1] H, Py_ssize_t first, const double[:, :, ::1] Z, Py_ssize_t n, double sign,
               Py_ssize_t low, Py_ssize_t high):
    """The rows of tiles from `low` to `high`."""
    cdef double[PANEL * PANEL] out
    cdef Py_ssize_t row, column, part, start, depth, i, j, top, left, d = H.shape[0]
    with nogil:
        for part in range((n + DEPTH - 1) // DEPTH):
            start = part * DEPTH
            depth = min(DEPTH, n - start)
            for row in range(low, high):
                top = first + row * PANEL
                for column in range(row + 1):
                    left = first + column * PANEL
                    tile(&Z[row, start, 0], &Z[column, start, 0], depth, out)
                    for i in range(min(PANEL, d - top)):
                        for j in range(min(PANEL, top + i - left + 1)):
                            H[top + i, left + j] += sign * out[i * PANEL + j]
    PyErr_CheckSignals()


def factor(double[:, ::1] H, int threads):
    """H = L L', L on and below the diagonal in its place; False, with the matrix as it was but for its diagonal, where
    it is not positive definite.
    """
    cdef double[:, :, ::1] packed
    cdef Py_ssize_t first, end, width, d = H.shape[0]
    cdef bint positive
    for first in range(0, d, WIDTH):
        width = min(WIDTH, d - first)
        end = first + width
        with nogil:
            positive = factor_corner(H, first, width)
        if not positive:
            mirror(H, False)
            return False
        if end < d:
            packed = panels(d - end, width)
            divide_below(H, first, width, packed)
            add_product(H, end, packed, width, -1.0, threads)
    return True


cdef bint factor_corner(double[:, ::1] H, Py_ssize_t first, Py_ssize_t width) noexcept nogil:
    cdef Py_ssize_t i, j, t
    cdef double s
    for j in range(first, first + width):
        for i in range(j, first + width):
            s = H[i, j]
            for t in range(first, j):
                s -= H[i, t] * H[j, t]
            if i == j:
                if not s > 0:
                    return False
                H[j, j] = sqrt(s)
            else:
                H[i, j] = s / H[j, j]
    return True


cdef divide_below(double[:, ::1] H, Py_ssize_t first, Py_ssize_t width, double[:, :, ::1] packed):
    """The rows below a corner L become those of H L'^-1, and are packed: 8 rows of H are a panel."""
    cdef Py_ssize_t panel, i, j, t, top, count
    cdef double pull
    cdef double* x
    with nogil:
        for panel in range(packed.shape[0]):
            top = first + width + panel * PANEL
            count = min(PANEL, H.shape[0] - top)
            x = &packed[panel, 0, 0]
            for j in range(width):
                for i in range(count):
                    x[j * PANEL + i] = H[top + i, first + j]
                for t in range(j):
                    pull = H[first + j, first + t]
                    for i in range(PANEL):
                        x[j * PANEL + i] -= pull * x[t * PANEL + i]
                for i in range(PANEL):
                    x[j * PANEL + i] /= H[first + j, first + j]
                for i in range(count):
                    H[top + i, first + j] = x[j * PANEL + i]
    PyErr_CheckSignals()


def substitute(const double[:, ::1] L, const double[::1] wanted):
    """(L L')^-1 wanted, L as `factor` leaves it."""
    cdef Py_ssize_t i, j, d = L.shape[0]
    cdef double s
    found = np.array(wanted)
    cdef double[::1] x = found
    with nogil:
        for i in range(d):
            s = x[i]
            for j in range(i):
                s -= L[i, j] * x[j]
            x[i] = s / L[i, i]
        for i in range(d - 1, -1, -1):
            x[i] /= L[i, i]
            for j in range(i):
                x[j] -= L[i, j] * x[i]
    return found


def substitute_columns(const double[:, ::1] L, double[:, ::1] x):
    """x = (L L')^-1 x in place, L as `factor` leaves it; x: (d, k)."""
    cdef Py_ssize_t start, i, j, d = L.shape[0], k = x.shape[1]
    cdef Py_ssize_t step = max(1, <Py_ssize_t>(SLICE / (1 + <double>d * k)))
    for start in range(0, d, step):
        with nogil:
            for i in range(start, min(d, start + step)):
                for j in range(i):
                    take(&x[i, 0], L[i, j], &x[j, 0], k)
                divide(&x[i, 0], L[i, i], k)
        PyErr_CheckSignals()
    for start in range(0, d, step):
        with nogil:
            for i in range(d - 1 - start, d - 1 - min(d, start + step), -1):
                divide(&x[i, 0], L[i, i], k)
                for j in range(i):
                    take(&x[j, 0], L[i, j], &x[i, 0], k)
        PyErr_CheckSignals()


cdef inline void take(double* x, double t, const double* y, Py_ssize_t k) noexcept nogil:
    """x -= t y"""
    cdef Py_ssize_t l
    for l in range(k):
        x[l] -= t * y[l]


cdef inline void divide(double* x, double t, Py_ssize_t k) noexcept nogil:
    cdef Py_ssize_t l
    for l in range(k):
        x[l] /= t
