"""The sub-problems of one row in multi-class dual coordinate descent, solved by sorting (math.md 1.2, 1.4, 6).

Each asks for a level nu at which a sum over the classes above it meets a linear function of nu. Classes are taken
from the largest down; a heap yields them, since few are needed.
"""

from libc.math cimport INFINITY, fmax, fmin


cdef inline void sift(double* heap, Py_ssize_t n, Py_ssize_t at) noexcept nogil:
    """Restore the order of a max-heap below `at`."""
    cdef double value = heap[at]
    cdef Py_ssize_t child = 2 * at + 1
    while child < n:
        if child + 1 < n and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = value


cdef inline double level(double* values, Py_ssize_t n, double P, double Q) noexcept nogil:
    """nu with Q nu = P + sum_l (values_l - nu)_+.  Destroys `values`.

    1. heap of the values  2. while the largest left is above nu = (P + sum taken)/(Q + number taken), take it
    With Q = 0 the first value is always taken, so n must be positive.
    """
    cdef Py_ssize_t at, left = n
    cdef double nu = P / Q if Q > 0 else -INFINITY
    for at in range(n // 2 - 1, -1, -1):
        sift(values, n, at)
    while left > 0 and nu < values[0]:
        P += values[0]
        Q += 1
        nu = P / Q
        left -= 1
        values[0] = values[left]
        sift(values, left, 0)
    return nu


cdef inline void share(double* a, const double* B, Py_ssize_t k, Py_ssize_t y, Py_ssize_t skip, double nu, double A,
                       double total) noexcept nogil:
    """a_l = min(0, nu - (B_l - B_y))/A for l != y, skip, scaled to the sum -total; a_y = total.

    total < 0: whatever the sum is. Else the scale is taken from the sum, which stays exact where A is tiny.
    """
    cdef Py_ssize_t l, top = -1
    cdef double whole = 0, scale
    for l in range(k):
        a[l] = 0
        if l != y and l != skip:
            a[l] = fmin(0.0, nu - (B[l] - B[y]))
            whole -= a[l]
            if top < 0 or B[l] > B[top]:
                top = l
    if total < 0:
        total = whole / A
    a[y] = total
    if total <= 0 or top < 0:
        for l in range(k):
            a[l] = 0
    elif whole > 0:
        scale = total / whole
        for l in range(k):
            if l != y:
                a[l] *= scale
    else:
        a[top] = -total


cdef inline Py_ssize_t above(const double* B, Py_ssize_t k, Py_ssize_t y, Py_ssize_t skip, double floor,
                             double* out) noexcept nogil:
    """out = {B_l - B_y > floor : l != y, skip}; returns how many. Others play no part: floor is nu's lower bound.

    A block's answer depends on the differences alone. Taken first, they lose no digits to what the B_l share.
    """
    cdef Py_ssize_t l, n = 0
    for l in range(k):
        if B[l] - B[y] > floor and l != y and l != skip:
            out[n] = B[l] - B[y]
            n += 1
    return n


cdef inline double squared_block(const double* B, Py_ssize_t k, Py_ssize_t y, double A, double q, double upper,
                                 Py_ssize_t r, double F, double* a, double* scratch) noexcept nogil:
    """Squared losses below and above a band of margins (math.md 1.2, 1.4). Returns b, writes a.

    min over a, b: A/2 sum_{l != y} a_l^2 + sum_l B_l a_l + D/2 a_y^2 - A (a_y - a_r) b + E/2 b^2 + F b
    s.t.           sum_l a_l = 0,  a_l <= 0 for l != y,  b >= 0
    with           D = A + q,  q = 1/(2c);  E = A + upper, upper = 1/(2 c mu), and r absent (r < 0: fixed reference),
                   or E = 2A + upper and F >= B_r - B_y (a band of some width);  upper < 0: no upper loss, b = 0
    answer:        a_l = min(0, (B_y + nu - B_l)/A),  nu by `level`;  a_r b = 0 by the condition on F
    """
    cdef double D = A + q, E, den, nu, b, a_r
    cdef Py_ssize_t n = above(B, k, y, -1, 0, scratch)
    nu = level(scratch, n, 0, A / D) if n else 0
    share(a, B, k, y, -1, nu, A, nu / D)
    if upper < 0:
        return 0
    a_r = a[r] if r >= 0 else 0
    if A * (a[y] - a_r) <= F:
        return 0
    # D E - A^2 without the cancellation, which would cost all digits where c A is large.
    if r >= 0:
        E = 2 * A + upper
        den = A * (A + upper + 2 * q) + q * upper
    else:
        E = A + upper
        den = A * (upper + q) + q * upper
    n = above(B, k, y, r, A * F / E, scratch)
    nu = level(scratch, n, A * A * F / den, A * E / den) if n else A * F / E
    # a_y by the smaller of two divisors' rounding.
    share(a, B, k, y, r, nu, A, fmax(0.0, (E * nu - A * F) / den) if n == 0 or A * E <= den else -1)
    b = (A * a[y] - F) / E
    return b if b > 0 else 0


cdef inline void hinge_block(const double* B, Py_ssize_t k, Py_ssize_t y, double A, double cap, double* a,
                             double* scratch) noexcept nogil:
    """Crammer-Singer's hinge with cost `cap` (math.md 6, Eq. 13).

    min over a: A/2 sum_l a_l^2 + sum_l B_l a_l   s.t.  sum_l a_l = 0,  a_l <= cap [l = y]
    answer:     a_l = min(cap [l = y], (B_y + nu - B_l)/A),  nu = A a_y where a_y < cap
    """
    cdef Py_ssize_t l, n
    cdef double nu, whole = 0, largest = -INFINITY, least = A * cap
    for l in range(k):
        if l != y:
            largest = fmax(largest, B[l] - B[y])
            whole += fmax(0.0, B[l] - B[y] - least)
    if whole >= least:
        n = above(B, k, y, -1, largest - least, scratch)
        nu = level(scratch, n, -least, 0) if n else largest
        share(a, B, k, y, -1, nu, A, cap)
    else:
        n = above(B, k, y, -1, 0, scratch)
        nu = level(scratch, n, 0, 1) if n else 0
        share(a, B, k, y, -1, nu, A, fmin(cap, nu / A))


cdef inline double level_by_class(const double* B, Py_ssize_t k, Py_ssize_t y, const double* A, double P,
                                  double Q) noexcept nogil:
    """nu with Q nu = P + sum_{l != y} (B_l - B_y - nu)_+/A_l, nu >= 0 where P = 0.

    Newton's method: the difference of both sides is concave in nu, so that nu rises from the first step on, until no
    class leaves the sum. With Q = 0 the largest class stays in it by P < 0.
    """
    cdef Py_ssize_t l, n, last = k
    cdef double nu = -INFINITY, top = -INFINITY, sum_q, sum_qv, value
    for l in range(k):
        if l != y:
            top = fmax(top, B[l] - B[y])
    if P >= 0:
        nu = 0
    while True:
        n, sum_q, sum_qv = 0, Q, P
        for l in range(k):
            if l != y:
                value = B[l] - B[y]
                if value > nu:
                    n += 1
                    sum_q += 1 / A[l]
                    sum_qv += value / A[l]
        if n == 0 or n >= last:
            return nu
        last = n
        nu = fmin(top, sum_qv / sum_q)


cdef inline void hinge_block_by_class(const double* B, Py_ssize_t k, Py_ssize_t y, const double* A, double cap,
                                      double* a) noexcept nogil:
    """The hinge with a curvature for each class (math.md 6, Eq. 13).

    min over a: 1/2 sum_l A_l a_l^2 + sum_l B_l a_l   s.t.  sum_l a_l = 0,  a_l <= cap [l = y]
    answer:     a_l = min(cap [l = y], (B_y + nu - B_l)/A_l),  nu = A_y a_y where a_y < cap, and nu >= A_y cap else
    """
    cdef Py_ssize_t l, top = -1
    cdef double nu, whole = 0, total = cap, least = A[y] * cap
    for l in range(k):
        if l != y:
            whole += fmax(0.0, B[l] - B[y] - least) / A[l]
    if whole >= cap:
        nu = level_by_class(B, k, y, A, -cap, 0)
    else:
        nu = level_by_class(B, k, y, A, 0, 1 / A[y])
        total = fmin(cap, nu / A[y])
    whole = 0
    for l in range(k):
        a[l] = 0
        if l != y:
            a[l] = fmin(0.0, nu - (B[l] - B[y])) / A[l]
            whole -= a[l]
            if top < 0 or B[l] > B[top]:
                top = l
    # The scale is taken from the sum, which stays exact where an A_l is tiny.
    a[y] = total
    for l in range(k):
        if l != y:
            a[l] = a[l] * (total / whole) if whole > 0 else 0
    if not whole > 0:
        a[top] = -total
