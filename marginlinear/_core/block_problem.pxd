"""The sub-problems of one row in multi-class dual block coordinate descent (math.md 1.2, 1.4, 6).

Each asks for a threshold nu at which a sum over the classes above it meets a linear function of nu. Newton's method
finds it in a few passes over the classes that have no branches; most branches of a sort would be guessed wrong.
"""

from libc.math cimport INFINITY, fmax, fmin


cdef inline double dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil:
    """<x, y> with four running sums."""
    cdef Py_ssize_t l = 0
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    while l + 4 <= n:
        s0 += x[l] * y[l]
        s1 += x[l + 1] * y[l + 1]
        s2 += x[l + 2] * y[l + 2]
        s3 += x[l + 3] * y[l + 3]
        l += 4
    while l < n:
        s0 += x[l] * y[l]
        l += 1
    return (s0 + s1) + (s2 + s3)


cdef inline double sum_of(const double* x, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t l = 0
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    while l + 4 <= n:
        s0 += x[l]
        s1 += x[l + 1]
        s2 += x[l + 2]
        s3 += x[l + 3]
        l += 4
    while l < n:
        s0 += x[l]
        l += 1
    return (s0 + s1) + (s2 + s3)


cdef inline double larger(double x, double y) noexcept nogil:
    """One instruction, as fmax is not."""
    return x if x > y else y


cdef inline double top_of(const double* values, Py_ssize_t n) noexcept nogil:
    """-INFINITY of none."""
    cdef Py_ssize_t l = 0
    cdef double t0 = -INFINITY, t1 = -INFINITY, t2 = -INFINITY, t3 = -INFINITY
    while l + 4 <= n:
        t0 = larger(values[l], t0)
        t1 = larger(values[l + 1], t1)
        t2 = larger(values[l + 2], t2)
        t3 = larger(values[l + 3], t3)
        l += 4
    while l < n:
        t0 = larger(values[l], t0)
        l += 1
    return larger(larger(t0, t1), larger(t2, t3))


cdef inline double smaller(double x, double y) noexcept nogil:
    return x if x < y else y


cdef inline double max_other(const double* values, Py_ssize_t n, Py_ssize_t y) noexcept nogil:
    """The largest of values_l, l != y, without loops whose length depends on y: the second largest where y has the
    largest."""
    cdef Py_ssize_t l = 0
    cdef double t0 = -INFINITY, t1 = -INFINITY, u0 = -INFINITY, u1 = -INFINITY, top
    while l + 2 <= n:
        u0 = larger(smaller(values[l], t0), u0)
        u1 = larger(smaller(values[l + 1], t1), u1)
        t0 = larger(values[l], t0)
        t1 = larger(values[l + 1], t1)
        l += 2
    if l < n:
        u0 = larger(smaller(values[l], t0), u0)
        t0 = larger(values[l], t0)
    top = larger(t0, t1)
    return top if values[y] < top else larger(smaller(t0, t1), larger(u0, u1))


cdef inline double threshold_from(const double* values, Py_ssize_t n, double P, double Q, double nu) noexcept nogil:
    """nu with Q nu = P + sum_l (values_l - nu)_+, from a lower bound of it with a value above.

    The difference of both sides is concave in nu, so that Newton's steps raise nu until no value leaves the sum.
    """
    cdef Py_ssize_t l
    cdef double last = INFINITY, s0, s1, s2, s3, n0, n1, n2, n3
    while True:
        s0 = s1 = s2 = s3 = n0 = n1 = n2 = n3 = 0
        l = 0
        while l + 4 <= n:
            s0 += values[l] if values[l] > nu else 0.0
            s1 += values[l + 1] if values[l + 1] > nu else 0.0
            s2 += values[l + 2] if values[l + 2] > nu else 0.0
            s3 += values[l + 3] if values[l + 3] > nu else 0.0
            n0 += 1.0 if values[l] > nu else 0.0
            n1 += 1.0 if values[l + 1] > nu else 0.0
            n2 += 1.0 if values[l + 2] > nu else 0.0
            n3 += 1.0 if values[l + 3] > nu else 0.0
            l += 4
        while l < n:
            s0 += values[l] if values[l] > nu else 0.0
            n0 += 1.0 if values[l] > nu else 0.0
            l += 1
        n0 += n1 + n2 + n3
        if n0 == 0 or n0 >= last:
            return nu
        last = n0
        nu = (P + ((s0 + s1) + (s2 + s3))) / (Q + n0)


cdef inline double threshold(const double* values, Py_ssize_t n, double P, double Q) noexcept nogil:
    """nu with Q nu = P + sum_l (values_l - nu)_+; with Q = 0, P is negative and n positive."""
    cdef double top = top_of(values, n)
    if Q * top <= P:
        return P / Q
    # As if the largest value were the only one.
    return threshold_from(values, n, P, Q, (P + top) / (Q + 1))


cdef inline void differences(const double* B, Py_ssize_t k, Py_ssize_t y, double* v) noexcept nogil:
    """v_l = B_l - B_y, -INFINITY for y itself.

    A block's answer depends on the differences alone. Taken first, they lose no digits to what the B_l share.
    """
    cdef Py_ssize_t l
    for l in range(k):
        v[l] = B[l] - B[y]
    v[y] = -INFINITY


cdef inline void fill_block(double* a, const double* v, Py_ssize_t k, Py_ssize_t y, double nu, double A,
                            double total) noexcept nogil:
    """a_l = min(0, nu - v_l)/A for l != y, scaled to the sum -total; a_y = total.

    total < 0: whatever the sum is. Else the scale is taken from the sum, which stays exact where A is tiny.
    """
    cdef Py_ssize_t l, top = -1
    cdef double whole, scale
    for l in range(k):
        a[l] = nu - v[l] if v[l] > nu else 0.0
    whole = -sum_of(a, k)
    if total < 0:
        total = whole / A
    scale = total / whole if whole > 0 else 0.0
    for l in range(k):
        a[l] *= scale
    if total > 0 and whole <= 0:
        for l in range(k):
            if v[l] > -INFINITY and (top < 0 or v[l] > v[top]):
                top = l
        if top < 0:
            return
        a[top] = -total
    if total > 0:
        a[y] = total


cdef inline double solve_squared_block(const double* B, Py_ssize_t k, Py_ssize_t y, double A, double q, double upper,
                                       Py_ssize_t r, double F, double* a, double* v) noexcept nogil:
    """Squared losses below and above a band of margins (math.md 1.2, 1.4). Returns b, writes a; v: k numbers.

    min over a, b: A/2 sum_{l != y} a_l^2 + sum_l B_l a_l + D/2 a_y^2 - A (a_y - a_r) b + E/2 b^2 + F b
    s.t.           sum_l a_l = 0,  a_l <= 0 for l != y,  b >= 0
    with           D = A + q,  q = 1/(2c);  E = A + upper, upper = 1/(2 c mu), and r absent (r < 0: fixed reference),
                   or E = 2A + upper and F >= B_r - B_y (a band of some width);  upper < 0: no upper loss, b = 0
    answer:        a_l = min(0, (B_y + nu - B_l)/A),  nu by `threshold`;  a_r b = 0 by the condition on F
    """
    cdef double D = A + q, E, den, nu, b
    differences(B, k, y, v)
    nu = threshold(v, k, 0, A / D)
    # A a_y - A a_r <= F: b = 0.
    if upper < 0 or A * (nu / D) + (larger(v[r] - nu, 0.0) if r >= 0 else 0.0) <= F:
        fill_block(a, v, k, y, nu, A, nu / D)
        return 0
    # D E - A^2 without the cancellation, which would cost all digits where c A is large.
    if r >= 0:
        E = 2 * A + upper
        den = A * (A + upper + 2 * q) + q * upper
        v[r] = -INFINITY
    else:
        E = A + upper
        den = A * (upper + q) + q * upper
    nu = threshold(v, k, A * A * F / den, A * E / den)
    # a_y by the smaller of two divisors' rounding.
    fill_block(a, v, k, y, nu, A, larger((E * nu - A * F) / den, 0.0) if A * E <= den else -1)
    b = (A * a[y] - F) / E
    return b if b > 0 else 0


cdef inline void solve_hinge_block(const double* B, Py_ssize_t k, Py_ssize_t y, double A, double cap, double* a,
                                   double* v) noexcept nogil:
    """Crammer-Singer's hinge with cost `cap` (math.md 6, Eq. 13). v: k numbers.

    min over a: A/2 sum_l a_l^2 + sum_l B_l a_l   s.t.  sum_l a_l = 0,  a_l <= cap [l = y]
    answer:     a_l = min(cap [l = y], (B_y + nu - B_l)/A),  nu = A a_y where a_y < cap, and nu >= A cap else
    """
    cdef double nu, least = A * cap
    differences(B, k, y, v)
    nu = threshold(v, k, 0, 1)
    if nu >= least:
        fill_block(a, v, k, y, threshold_from(v, k, -least, 0, nu), A, cap)
    else:
        fill_block(a, v, k, y, nu, A, nu / A)


cdef inline void to_front(double* values, Py_ssize_t n, Py_ssize_t at) noexcept nogil:
    """The largest of values[at:n] goes to values[at]."""
    cdef Py_ssize_t l, top = at
    cdef double value
    for l in range(at + 1, n):
        if values[l] > values[top]:
            top = l
    value, values[top] = values[top], values[at]
    values[at] = value


cdef inline double mean_of_top(double* values, Py_ssize_t n, Py_ssize_t K) noexcept nogil:
    """The mean of the K largest of n values, whose order changes."""
    cdef Py_ssize_t l
    cdef double total = 0
    for l in range(K):
        to_front(values, n, l)
        total += values[l]
    return total / K


cdef inline void fill_capped_block(double* a, double* v, Py_ssize_t k, Py_ssize_t y, double tau, double A, double u,
                                   double total) noexcept nogil:
    """a_l = -min(u, (v_l - tau)_+/A) for l != y, scaled where they are less than u to the sum -total; a_y = total.

    Where A is tiny rounding leaves little of v_l - tau: what is missing then goes to the largest v_l. v is lost.
    """
    cdef Py_ssize_t l, top
    cdef double missing = total, free = 0, scale, part
    for l in range(k):
        a[l] = smaller(u, larger(0.0, v[l] - tau) / A)
        if a[l] < u:
            free += a[l]
        else:
            missing -= a[l]
    scale = larger(missing, 0.0) / free if free > 0 else 0.0
    missing = total
    for l in range(k):
        a[l] = -(smaller(u, a[l] * scale) if a[l] < u else a[l])
        missing += a[l]
    while missing > 1e-15 * total:
        top = 0
        for l in range(1, k):
            if v[l] > v[top]:
                top = l
        if v[top] == -INFINITY:
            break
        v[top] = -INFINITY
        part = smaller(missing, u + a[top])
        a[top] -= part
        missing -= part
    scale = total / (total - missing) if missing < 0 else 1.0
    a[y] = 0
    for l in range(k):
        a[l] *= scale
    a[y] = -sum_of(a, k)


cdef inline void solve_top_block(const double* B, Py_ssize_t k, Py_ssize_t y, double A, double E, double cap,
                                 Py_ssize_t K, double* a, double* v) noexcept nogil:
    """The mean of the K largest (Lapin, Hein and Schiele, NIPS 2015); for K = 1 the hinge. v: k numbers.

    min over x: A/2 sum_{l != y} x_l^2 + E/2 S^2 - sum_{l != y} (B_l - B_y) x_l,   S = sum_{l != y} x_l
    s.t.        0 <= x_l <= u,  S <= cap,   u = min(cap/K, S/(K - 1))
    answer:     a_l = -x_l,  x_l = min(u, (B_l - B_y - tau)_+/A),  a_y = S

    Where u = S/(K - 1), and U of the x_l are u, V being the sum of their B_l - B_y, the derivative along S is 0 for

        (K - 1 - U) tau = u (E (K - 1)^2 + U A) - V

    which makes (K - 1 - U) u = sum of the other x_l an equation for `threshold`. U is the first number whose next x_l
    is no more than u. Where that u is too large, it is cap/K, and S is where the derivative changes its sign: tau = E S
    within (cap (K - 1)/K, cap), or one of its ends.
    """
    cdef Py_ssize_t l, n = 0, U = 0
    cdef double tau = 0, u = 0, S = 0, V = 0, p, r
    differences(B, k, y, v)
    for l in range(k):
        if l != y:
            a[n] = v[l]
            n += 1
    if K == 1:
        u = INFINITY
    else:
        while True:
            if U < n:
                to_front(a, n, U)
            p, r = K - 1 - U, E * (K - 1) * (K - 1) + U * A
            if U == K - 1:
                u, tau = V / ((K - 1) * (A + (K - 1) * E)), 0
                tau = a[U - 1] - A * u
                break
            if r == 0:
                tau = 0
                for l in range(n):
                    u += larger(0.0, a[l]) / (A * (K - 1))
            else:
                tau = threshold(a + U, n - U, -A * p * V / r, A * p * p / r)
                u = (p * tau + V) / r
            if U == n or a[U] - tau <= A * u:
                break
            V += a[U]
            U += 1
            u = 0
        u = larger(u, 0.0)
        S = (K - 1) * u
    if K * u > cap:
        u, U = cap / K, 0
        while True:
            if U < n:
                to_front(a, n, U)
            tau = threshold(a + U, n - U, A * U * u, A / E) if E > 0 and U < n else E * U * u
            if U == n or U == K or a[U] - tau <= A * u:
                break
            U += 1
        S = U * u
        for l in range(U, n):
            S += larger(0.0, a[l] - tau) / A
        if not cap * (K - 1) / K <= S <= cap:
            S = larger(cap * (K - 1) / K, smaller(S, cap))
            U = 0
            while U < n and U * u < S:
                tau = threshold(a + U, n - U, -A * (S - U * u), 0)
                if a[U] - tau <= A * u:
                    break
                U += 1
                if U < n:
                    to_front(a, n, U)
            if U * u >= S:
                U, tau = K if S >= cap else K - 1, INFINITY
                tau = a[U - 1] - A * u
    fill_capped_block(a, v, k, y, tau, A, u, S)


cdef inline void solve_sum_block(const double* B, Py_ssize_t k, Py_ssize_t y, double A, double E, double cap, double* a,
                                 double* v) noexcept nogil:
    """A hinge for each rival. v: k numbers.

    min over x: A/2 sum_{l != y} x_l^2 + E/2 S^2 - sum_{l != y} (B_l - B_y) x_l,  S = sum_{l != y} x_l,  0 <= x_l <= cap
    answer:     a_l = -min(cap, (B_l - B_y - tau)_+/A),  a_y = S,  tau = E S

    What is missing to A S in tau A/E falls with tau; without the caps `threshold` has its zero, with them Newton's
    steps go down from there, in an interval.
    """
    cdef Py_ssize_t l, _
    cdef double tau = 0, low = 0, high, Q, missing, n, part, S = 0
    differences(B, k, y, v)
    if E > 0:
        Q = A / E
        tau = high = threshold(v, k, 0, Q)
        for _ in range(200):
            missing, n = -Q * tau, Q
            for l in range(k):
                part = larger(0.0, v[l] - tau)
                n += 1.0 if 0 < part < A * cap else 0.0
                missing += smaller(A * cap, part)
            if missing >= 0:
                low = tau
            else:
                high = tau
            part = tau + missing / n
            if part == tau or not low < high:
                break
            tau = part if low < part < high else low + (high - low) / 2
    for l in range(k):
        a[l] = -smaller(cap, larger(0.0, v[l] - tau) / A)
        S -= a[l]
    a[y] = S


cdef inline double threshold_by_class(const double* B, Py_ssize_t k, Py_ssize_t y, const double* A, double P,
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


cdef inline void solve_hinge_block_by_class(const double* B, Py_ssize_t k, Py_ssize_t y, const double* A, double cap,
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
        nu = threshold_by_class(B, k, y, A, -cap, 0)
    else:
        nu = threshold_by_class(B, k, y, A, 0, 1 / A[y])
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
