from libc.stdint cimport int32_t, uint8_t, uint64_t

from marginlinear._core.iterates cimport Iterates
from marginlinear._core.rows cimport Rows


cdef enum Work:
    UPDATE_ROWS      # coordinate steps at the rows order[start:stop]; start becomes the first that was not made
    ROWS_TO_FETCH    # found[:count]: rows of order[start:stop] that are absent, and whose step is not 0
    SUM_LOSSES       # sums at the rows start to stop, and their margins
    FIND_RIVALS      # rivals, values: each row's best other class and its score
    ADD_ROWS         # W += sum_i coefficients_i x_i; start becomes the first that was not added


cdef struct sums_t:
    double gap        # sum_i of the rows' gaps, each before its own update
    double loss       # sum_i loss_i
    double tight      # the same with the best references, where a loss has some
    double moment     # sum_i c_i (g_i - v)
    Py_ssize_t stale  # rows whose named rival is not the best
    double gain       # what the steps raise D by, each at the weights that its row has met
    double curvature  # sum_i of the least curvature of loss_i* times the square of the change of row i's duals


cdef struct task_t:
    Work what
    Py_ssize_t start
    Py_ssize_t stop
    sums_t* sums
    double* scratch                # UPDATE_ROWS, ROWS_TO_FETCH: 5 numbers a class; else 2
    int32_t* changed               # UPDATE_ROWS, ROWS_TO_FETCH, ADD_ROWS: room for the numbers of all classes
    const double* coefficients
    double* W
    double theta                   # UPDATE_ROWS, ROWS_TO_FETCH: W moves by theta times the change of the coefficients
    const double* along            # UPDATE_ROWS: <x_i, b> of a unit vector b along which theta is larger by `extra`
    double extra
    double* pull                   # sums of the changes of the coefficients times `along`, one a class
    double* before                 # UPDATE_ROWS: room for the duals in the order; NULL: the sequential sweep
    double* values                 # SUM_LOSSES: margins, NULL where they are not wanted
    int32_t* rivals
    Py_ssize_t* found
    Py_ssize_t count


cdef class DualEngine:
    cdef readonly Rows rows
    cdef readonly Iterates iterates
    cdef readonly Py_ssize_t n_classes, visits
    cdef public Py_ssize_t n_iter, parts
    cdef readonly int threads
    cdef public double skip_tolerance
    cdef readonly double gap, loss, reference_gap, norm_gap
    cdef readonly bint nonsmooth, piecewise_linear
    cdef readonly object before
    cdef readonly const double[::1] cost
    cdef readonly double[::1] duals, mean_duals, kept_duals
    cdef const double[::1] sqnorms
    # Sweeps that a row is skipped for yet, and visits in a row before that left its duals as they were.
    cdef uint8_t[::1] skip, idle
    cdef Py_ssize_t[::1] order
    cdef Py_ssize_t visited, slice_rows
    cdef double[::1] scratch
    cdef int32_t[::1] changed
    cdef uint64_t rng
    # Whether weights are so many that they are asked for ahead of a row's turn.
    cdef bint far

    cdef int perform(self, task_t* task) except -1 nogil
    cdef _visit(self, Py_ssize_t start, Py_ssize_t stop, task_t* task)
    cdef _update_rows(self, sums_t* sums)
    cdef _run(self, task_t* task)
    cdef _absent_rows(self, const task_t* stopped)
    cdef _add(self, const double[::1] coefficients, double[::1] W, Py_ssize_t first=*)
