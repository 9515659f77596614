from libc.stdint cimport int32_t

from marginlinear._core.dual_engine cimport DualEngine
from marginlinear._core.joint_loss cimport joint_t


cdef class BlockCD(DualEngine):
    cdef joint_t phi
    cdef readonly bint named
    cdef readonly double norm
    cdef readonly Py_ssize_t n_adapt
    cdef readonly const int32_t[::1] y
    # Views of `duals`.
    cdef readonly double[:, ::1] alpha
    cdef readonly double[::1] beta
    cdef readonly int32_t[::1] rival
    cdef readonly double[::1] fixed
    cdef double[::1] factor
    cdef bint uneven
    # The rivals that name_rivals was given, while it solves blocks.
    cdef const int32_t[::1] next_rival
    cdef bint naming
