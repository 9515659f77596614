"""The smooth loss of the margin phi(g) = log(1 + exp(-g)), and what a dual method asks of it, as piecewise.pxd has it.

    -phi'(g) = s = 1/(1 + exp(g)),    phi''(g) = s r,    r = 1 - s
    0 <= a <= c,    c phi*(-a/c) = a log(a/c) + (c - a) log(1 - a/c),    0 log 0 = 0

The duals a alone are kept. c - a is exact where a is near c, and what rounding takes from it costs c times the unit of
rounding in D, beside a loss of at least c log 2: no row's gap is lost at either end.
"""

from libc.math cimport INFINITY, copysign, exp, fabs, log

cdef extern from *:
    """
    /* A Newton step that moves the margin by no more than this leaves an error of about its third power. */
    #define ML_SMALL 0.05
    #define ML_NEARBY 0.25
    /* Beyond, exp(-g) may be 0 beside a dual that is not. */
    #define ML_LARGE 700.0
    #define ML_TINY 1e-300
    /* Where the series is better than the logarithm. */
    #define ML_NEAR 0.02
    """
    const double SMALL "ML_SMALL", NEARBY "ML_NEARBY", LARGE "ML_LARGE", TINY "ML_TINY", NEAR "ML_NEAR"

cdef enum:
    STEPS = 200    # of Newton's method in a bracket, at most: halving alone comes to an end before


cdef inline double log_of_1_and(double x) noexcept nogil:
    """log(1 + x), with what the sum rounds away; finite at x = -1, where 0 is what it is multiplied by"""
    cdef double u = 1 + x, v = u if u > TINY else TINY
    return log(v) + (x - (u - 1)) / v


cdef inline double softplus(double g) noexcept nogil:
    """phi(g)"""
    return log_of_1_and(exp(-fabs(g))) + 0.5 * (fabs(g) - g)


cdef inline double softplus_share(double g, double* rest) noexcept nogil:
    """s; `rest` becomes r"""
    cdef double e = exp(-fabs(g)), more = 1 / (1 + e), less = e * more
    rest[0] = more if g > 0 else less
    return less if g > 0 else more


cdef inline double softplus_response(double c, double g, double* curvature, double* loss) noexcept nogil:
    """As margin_loss.response, with one exponential."""
    cdef double e = exp(-fabs(g)), more = 1 / (1 + e), less = e * more
    curvature[0] = c * less * more
    loss[0] = c * (log_of_1_and(e) + 0.5 * (fabs(g) - g))
    return c * (less if g > 0 else more)


cdef inline double softplus_step(double c, double base, double A, double g, double* curvature) noexcept nogil:
    """The dual a with a = c s(base + A a), by Newton's method from the margin g; `curvature` becomes -da/dbase.

    The margin is the zero of f(g) = g - base - A c s(g), which increases; it is between base and base + A c. Where a
    step is no less than half of the last one, as where Newton's go to and fro, the bracket is halved.
    """
    cdef double low = base, high = base + A * c, K = A * c, s, r, f, bend, move, last = INFINITY
    cdef int _
    g = low if g < low else high if g > high else g
    s = softplus_share(g, &r)
    for _ in range(STEPS):
        f, bend = g - base - K * s, K * s * r
        move = -f / (1 + bend)
        if fabs(move) <= SMALL:
            break
        if f > 0:
            high = g
        else:
            low = g
        if fabs(move) > 0.5 * last or not low < g + move < high:
            move = low + (high - low) / 2 - g
        g, last = g + move, fabs(move)
        s = softplus_share(g, &r)
    # Halley's step, and s there to second order.
    move = -f / (1 + bend * (1 - 0.5 * (r - s) * move))
    curvature[0] = c * s * r / (1 + bend)
    return c * s * (1 - r * move * (1 - 0.5 * (r - s) * move))


cdef inline double relative_entropy(double x) noexcept nogil:
    """(1 + x) log(1 + x) - x, x >= -1"""
    if fabs(x) > NEAR:
        return (1 + x) * log(1 + x) - x if x > -1 else 1.0
    # sum_n (-x)^n/(n (n - 1)), from n = 2 on
    return x * x * (1 / 2. - x * (1 / 6. - x * (1 / 12. - x * (1 / 20. - x * (1 / 30. - x * (
        1 / 42. - x * (1 / 56. - x / 72.)))))))


cdef inline double softplus_gap(double c, double g, double a) noexcept nogil:
    """c phi(g) + c phi*(-a/c) + a g: c times the relative entropy of (a/c, 1 - a/c) and (s, r)."""
    cdef double s, r, off
    a = 0.0 if a < 0 else c if a > c else a
    if fabs(g) > LARGE:
        return c * softplus(g) - softplus_dual_term(c, a) + a * g
    s = softplus_share(g, &r)
    s, r = c * s, c * r
    off = a - s if g > 0 else r - (c - a)
    return s * relative_entropy(off / s) + r * relative_entropy(-off / r)


cdef inline double softplus_visit(double c, double A, double g, double a, double tolerance, double* gap,
                                  double* loss) noexcept nogil:
    """As margin_loss.visit, with one exponential for all three, and without branches where few are as good.

    With -g for g, c - a is the dual: that is how a margin below 0 is met, and s is the lesser share.
    """
    cdef double t = fabs(g), sign = copysign(1.0, g), b = 0.5 * c * (1 - sign) + sign * a
    cdef double e, r, s, change, bend, off, curvature
    if t > LARGE:
        gap[0], loss[0] = softplus_gap(c, g, a), c * softplus(g)
        return a if gap[0] <= tolerance else softplus_step(c, g - A * a, A, g, &curvature)
    e = exp(-t)
    r = 1 / (1 + e)
    s, change = e * r, c * e * r - b
    loss[0] = c * (log(1 + e) + 0.5 * (t - g))
    off = -change * (1 + e) / c
    gap[0] = b * log_of_1_and(off / e) + (c - b) * log_of_1_and(-off)
    if gap[0] <= tolerance:
        return a
    bend = 1 + A * c * s * r
    if fabs(A * change) > NEARBY * bend:
        return softplus_step(c, g - A * a, A, g + sign * A * change / bend, &curvature)
    # Halley's step, its two fractions as one.
    return a + sign * change * bend / (bend * bend - 0.5 * (bend - 1) * (r - s) * A * change)


cdef inline double softplus_dual_term(double c, double a) noexcept nogil:
    """-c phi*(-a/c): -inf where a is out of its range by more than rounding."""
    cdef double less = a if a < c - a else c - a, share = less / c
    if share <= 0:
        return 0.0 if share >= -1e-12 else -INFINITY
    return -less * log(share) - (c - less) * log_of_1_and(-share)


cdef inline double softplus_conjugate_at(double u) noexcept nogil:
    """The margin with phi' = u, -1 < u < 0"""
    return log((1 + u) / -u)
