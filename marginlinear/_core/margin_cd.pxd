from libc.stdint cimport int32_t

from marginlinear._core.dual_engine cimport DualEngine
from marginlinear._core.margin_loss cimport loss_t


cdef class MarginCD(DualEngine):
    cdef readonly double spread, mean, size
    cdef readonly bint curved, stable
    cdef readonly const int32_t[::1] positive, group
    cdef readonly const double[::1] targets
    # The first of the targets, NULL where there are none.
    cdef const double* target
    # The losses, and the same with spread (g - v)^2, which `phi` points to.
    cdef readonly double[:, ::1] tables
    cdef double[:, ::1] shifted
    cdef const loss_t* phi
    cdef list empty, margins
    cdef const double[::1] mean_row
    cdef double mean_row_sqnorm

    cdef _need_mean_row(self)
    cdef double _objective(self, weights, const double[::1] margins) except? -1
    cdef double _search(self, margins, turns, double along, double far, double t, double enough) except? -1
    cdef double _slope(self, const double[::1] margins, const double[::1] turns, double t) except? -1
