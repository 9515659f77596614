"""The penalty of a feature's weights, and what descent over features and certificates ask of it.

    penalty(w) = l1 N(w) + l2/2 ||w||^2,      w in R^k: of k classes at once, or one alone

    ABSOLUTE  N(w) = sum_l |w_l|,   N*(u) = max_l |u_l|
    GROUP     N(w) = ||w||_2,       N*(u) = ||u||_2

N* is the dual norm. A weight is 0 at the optimum where N* of the slope of the rest is at most l1. Duals whose sums over
the rows are U_j are feasible where N*(U_j) <= l1 for all features j; with l2 > 0 all are, and each feature costs the
squared distance of U_j from there over 2 l2. One feature may be free of cost, that of the bias: l1 = l2 = 0.

Another norm is a new branch in this file alone, here and in what Newton steps ask of `penalty.pyx`. Of one weight all
norms are |w|, and the functions of numbers are for all.
"""

from libc.math cimport INFINITY, fabs, fmax, fmin, sqrt

cdef enum:
    ROOTS = 60    # steps of Newton's method for the length of a group, at most


cdef enum Norm:
    ABSOLUTE
    GROUP


cdef struct penalty_t:
    Norm norm
    double l1
    double l2
    Py_ssize_t free    # the feature that costs nothing; -1 for none


cdef inline double l1_of(const penalty_t* penalty, Py_ssize_t j) noexcept nogil:
    return 0.0 if j == penalty.free else penalty.l1


cdef inline double l2_of(const penalty_t* penalty, Py_ssize_t j) noexcept nogil:
    return 0.0 if j == penalty.free else penalty.l2


cdef inline double penalty_at(const penalty_t* penalty, Py_ssize_t j, double w) noexcept nogil:
    """Of one weight."""
    return l1_of(penalty, j) * fabs(w) + 0.5 * l2_of(penalty, j) * w * w


cdef inline double over_of(double l1, double u) noexcept nogil:
    """How far u is beyond |u| <= l1."""
    cdef double over = fabs(u) - l1
    return over if over > 0 else 0.0


cdef inline double violation_of(double l1, double w, double G) noexcept nogil:
    """The size of the least subgradient, G being the slope of all but l1 |w|."""
    if w == 0:
        return fmax(0.0, fabs(G) - l1)
    return fabs(G + l1) if w > 0 else fabs(G - l1)


cdef inline double best_move(double l1, double w, double G, double bend) noexcept nogil:
    """The d at which G d + bend/2 d^2 + l1 |w + d| is least; -w itself where the weight becomes 0."""
    if G + l1 < bend * w:
        return -(G + l1) / bend
    if G - l1 > bend * w:
        return -(G - l1) / bend
    return -w


cdef inline double ascent(double l1, double l2, double w, double slope, double v) noexcept nogil:
    """slope v + l1 |w + v| - l1 |w| + l2 v^2/2, where w keeps its sign of the small sum of both slopes."""
    if w * (w + v) > 0:
        return (slope + l1 if w > 0 else slope - l1) * v + 0.5 * l2 * v * v
    return slope * v + l1 * (fabs(w + v) - fabs(w)) + 0.5 * l2 * v * v


cdef inline double square(const double* w, Py_ssize_t k) noexcept nogil:
    """||w||^2"""
    cdef Py_ssize_t l
    cdef double total = 0
    for l in range(k):
        total += w[l] * w[l]
    return total


cdef inline double norm_of(Norm norm, const double* w, Py_ssize_t k) noexcept nogil:
    """N(w)"""
    cdef Py_ssize_t l
    cdef double total = 0
    if norm == GROUP:
        return sqrt(square(w, k))
    for l in range(k):
        total += fabs(w[l])
    return total


cdef inline double dual_norm_of(Norm norm, const double* u, Py_ssize_t k) noexcept nogil:
    """N*(u)"""
    cdef Py_ssize_t l
    cdef double most = 0
    if norm == GROUP:
        return sqrt(square(u, k))
    for l in range(k):
        most = fmax(most, fabs(u[l]))
    return most


cdef inline double excess_of(Norm norm, double l1, const double* u, Py_ssize_t k) noexcept nogil:
    """The squared distance of u from where N* <= l1."""
    cdef Py_ssize_t l
    cdef double over, total = 0
    if norm == GROUP:
        over = over_of(l1, sqrt(square(u, k)))
        return over * over
    for l in range(k):
        over = over_of(l1, u[l])
        total += over * over
    return total


cdef inline double violations_of(Norm norm, double l1, const double* w, const double* G, Py_ssize_t k) noexcept nogil:
    """The length of the least subgradient of G.w + l1 N(w)."""
    cdef Py_ssize_t l
    cdef double length, off, total = 0
    if norm == GROUP:
        length = sqrt(square(w, k))
        if length == 0:
            return fmax(0.0, sqrt(square(G, k)) - l1)
        for l in range(k):
            off = G[l] + l1 * w[l] / length
            total += off * off
        return sqrt(total)
    for l in range(k):
        off = violation_of(l1, w[l], G[l])
        total += off * off
    return sqrt(total)


cdef inline void minimise(Norm norm, double l1, const double* z, const double* bend, double* w,
                          Py_ssize_t k) noexcept nogil:
    """w becomes where sum_l (bend_l/2 w_l^2 - z_l w_l) + l1 N(w) is least.

    Of a group w_l = z_l t/(bend_l t + l1), t = ||w||, the zero of f(t) = ||(z_l/(bend_l t + l1))_l||^-1 - 1, which is
    concave where it increases: Newton's steps from 0 on never pass it.
    """
    cdef Py_ssize_t l, _
    cdef double t = 0, part, sums, slope, move
    if norm != GROUP or l1 == 0:
        for l in range(k):
            w[l] = (z[l] - l1 if z[l] > l1 else z[l] + l1 if z[l] < -l1 else 0.0) / bend[l]
        return
    if square(z, k) > l1 * l1:
        for _ in range(ROOTS):
            sums = slope = 0
            for l in range(k):
                part = z[l] / (bend[l] * t + l1)
                sums += part * part
                slope += part * part * bend[l] / (bend[l] * t + l1)
            move = sums * (sqrt(sums) - 1) / slope
            t += move
            if not move > 1e-15 * t:
                break
    for l in range(k):
        w[l] = z[l] * t / (bend[l] * t + l1) if t > 0 else 0.0


cdef inline void centre_of(Norm norm, double l1, double l2, double* w, Py_ssize_t k) noexcept nogil:
    """Add to all k weights what makes them cost least, which changes no difference of scores: of what does equally, the
    number nearest to 0, or of two weights the one that makes them opposites."""
    cdef Py_ssize_t l
    cdef double shift = 0, total = 0
    for l in range(k):
        total += w[l]
    shift = total / k if norm == GROUP or k == 2 else middle_of(l1, l2, w, total, k)
    if shift != 0:
        for l in range(k):
            w[l] -= shift


cdef inline double middle_of(double l1, double l2, const double* w, double total, Py_ssize_t k) noexcept nogil:
    """The t nearest to 0 at which l1 sum_l |w_l - t| + l2/2 sum_l (w_l - t)^2 is least, `total` being the sum of w: a
    median, or on the way from there to the mean. It goes from one weight to the next."""
    cdef Py_ssize_t l, below, above
    cdef double t = 0, left, right, slope, low, high, least
    while True:
        below, above, low, high = 0, 0, -INFINITY, INFINITY
        for l in range(k):
            if w[l] > t:
                above += 1
                high = fmin(high, w[l])
            elif w[l] < t:
                below += 1
                low = fmax(low, w[l])
        left = l1 * (2 * below - k) + l2 * (k * t - total)
        right = l1 * (k - 2 * above) + l2 * (k * t - total)
        if left <= 0 <= right:
            return t
        slope = right if right < 0 else left
        least = t - slope / (l2 * k) if l2 > 0 else INFINITY if slope < 0 else -INFINITY
        if low < least < high:
            return least
        t = high if slope < 0 else low


cdef class Penalty:
    cdef penalty_t of
