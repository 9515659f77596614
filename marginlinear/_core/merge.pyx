"""Equal rows of one class, and an order of rows that only their content gives (canonical.py)."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp, memcpy

from marginlinear._core.rows cimport (
    CSR32,
    CSR64,
    DENSE64,
    GRAM,
    NARROW32,
    NARROW64,
    Rows,
    data_t,
    feature,
    row_begin,
    row_end,
)

from marginlinear._core.buffer import Buffer, zeros


def merged_rows(Rows rows, const int32_t[:] y, const double[:] instance):
    """(numbers of the different rows, sorted by the bytes of their content, their summed weights): int64 and float64
    arrays. In memory for rows x (features + 2) numbers.
    """
    cdef Py_ssize_t at, i, m = rows.m, width = rows.n + 2, count = 0
    if rows.storage == GRAM:
        raise ValueError("rows of a Gram matrix have no features to be compared by")
    if y.shape[0] != m or instance.shape[0] != m:
        raise ValueError(f"{m} rows, {y.shape[0]} classes and {instance.shape[0]} weights")
    # A row a row: features, class and weight.
    cdef double[:, ::1] table = zeros("d", m, width)
    order, which, summed = Buffer("q", m), Buffer("q", m), Buffer("d", m)
    cdef int64_t[::1] sorted_rows = order, first = which
    cdef double[::1] weights = summed
    if m == 0:
        return which, summed
    with nogil:
        if rows.storage == CSR64:
            fill(&rows.csr64, table)
        elif rows.storage == CSR32:
            fill(&rows.csr32, table)
        elif rows.storage == NARROW64:
            fill(&rows.narrow64, table)
        elif rows.storage == NARROW32:
            fill(&rows.narrow32, table)
        elif rows.storage == DENSE64:
            fill(&rows.dense64, table)
        else:
            fill(&rows.dense32, table)
        for i in range(m):
            table[i, width - 2], table[i, width - 1] = y[i], instance[i] + 0.0
            sorted_rows[i] = i
        sort_rows(table, &sorted_rows[0], &first[0])
        for at in range(m):
            i = sorted_rows[at]
            if count and memcmp(&table[first[count - 1], 0], &table[i, 0], (width - 1) * sizeof(double)) == 0:
                weights[count - 1] += instance[i]
            else:
                first[count], weights[count] = i, instance[i]
                count += 1
    return memoryview(which)[:count], memoryview(summed)[:count]


cdef void fill(const data_t* X, double[:, ::1] table) noexcept nogil:
    """The values of row i in table[i]; -0 becomes 0."""
    cdef Py_ssize_t i, p
    for i in range(X.m):
        for p in range(row_begin(X, i), row_end(X, i)):
            table[i, feature(X, i, p)] = X.data[p] + 0.0


cdef void sort_rows(const double[:, ::1] table, int64_t* order, int64_t* scratch) noexcept nogil:
    """order[:] by the bytes of the rows: runs of 1, 2, 4, ... are merged; of equal rows the first stays first."""
    cdef Py_ssize_t m = table.shape[0], size = table.shape[1] * sizeof(double), run = 1, start, middle, stop, a, b, at
    while run < m:
        start = 0
        while start < m:
            middle, stop = min(m, start + run), min(m, start + 2 * run)
            a, b = start, middle
            for at in range(start, stop):
                if b == stop or (a < middle and memcmp(&table[order[a], 0], &table[order[b], 0], size) <= 0):
                    scratch[at] = order[a]
                    a += 1
                else:
                    scratch[at] = order[b]
                    b += 1
            start = stop
        memcpy(order, scratch, m * sizeof(int64_t))
        run *= 2
