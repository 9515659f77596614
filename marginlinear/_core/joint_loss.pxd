"""A convex loss of the k scores of a row of class y, and what sweeps, Newton steps and ADMM ask of it.

    HINGE     loss(s) = c xi
    SQUARED   loss(s) = c (xi^2 + mu eps^2)
    TOP       loss(s) = c (mean of the `top` largest of all v_l)_+,   v_l = low + s_l - s_y for l != y,  v_y = 0
    SUM       loss(s) = c sum_{l != y} (v_l)_+

    xi  = (low - s_y + max_{l != y} s_l)_+
    eps = (s_y - ref - high)_+,  ref the score of a class r != y, or a fixed number;  no eps where not `upper`

Its duals are alpha_l <= 0 for l != y, alpha_y = -sum_{l != y} alpha_l, and beta >= 0:

    -loss*(alpha, beta) = low alpha_y - h(alpha) - (high + fixed) beta - beta^2/(4 c mu)

    HINGE     h = 0 for alpha_y <= c, infinite above
    SQUARED   h = alpha_y^2/(4c)
    TOP       h = 0 for alpha_y <= c and -alpha_l <= min(c/top, alpha_y/(top - 1)), infinite elsewhere
    SUM       h = 0 for -alpha_l <= c, infinite elsewhere

A loss that asks another question than these few is a new branch in this file alone.
"""

from libc.math cimport INFINITY, fmax

from marginlinear._core.block_problem cimport (
    larger,
    max_other,
    mean_of_top,
    solve_hinge_block,
    solve_squared_block,
    solve_sum_block,
    solve_top_block,
    threshold,
)


cdef enum Kind:
    HINGE
    SQUARED
    TOP
    SUM


cdef struct joint_t:
    Kind kind
    Py_ssize_t top
    bint upper
    double low     # 1 unless SQUARED
    double high
    double mu


cdef inline double rival_of(const joint_t* phi, const double* s, Py_ssize_t k, Py_ssize_t y,
                            double* scratch) noexcept nogil:
    """The score that one rival alone would need for the same loss: max_{l != y} s_l of HINGE and SQUARED. scratch: k
    numbers."""
    cdef Py_ssize_t l
    cdef double total = 0
    if phi.kind == TOP:
        for l in range(k):
            scratch[l] = s[l]
        scratch[y] = s[y] - phi.low
        return mean_of_top(scratch, k, phi.top)
    if phi.kind == SUM:
        for l in range(k):
            total += larger(0.0, phi.low + s[l] - s[y]) if l != y else 0.0
        return s[y] - phi.low + total
    return max_other(s, k, y)


cdef inline double lower_loss(const joint_t* phi, double c, double own, double rival) noexcept nogil:
    """c xi or c xi^2, own = s_y and rival that of `rival_of`."""
    cdef double xi = larger(0.0, phi.low + rival - own)
    return c * xi * xi if phi.kind == SQUARED else c * xi


cdef inline double upper_loss(const joint_t* phi, double c, double own, double reference) noexcept nogil:
    """c mu eps^2"""
    cdef double eps = larger(0.0, own - reference - phi.high)
    return c * phi.mu * eps * eps


cdef inline double upper_curvature(const joint_t* phi, double c) noexcept nogil:
    """Of c mu eps^2, where eps > 0."""
    return 2 * c * phi.mu


cdef inline double upper_dual(const joint_t* phi, double c, double own, double reference) noexcept nogil:
    """The beta of c mu eps^2."""
    return upper_curvature(phi, c) * larger(0.0, own - reference - phi.high)


cdef inline void add_loss(const joint_t* phi, double c, double own, double rival, double reference, double* loss,
                          double* tight) noexcept nogil:
    """loss += the loss;  tight += the loss with the best rival's score as reference, whether or not `upper` is set"""
    cdef double lower = lower_loss(phi, c, own, rival), best = 0, upper = 0
    if phi.mu > 0:
        best = upper_loss(phi, c, own, rival)
    if phi.upper:
        upper = upper_loss(phi, c, own, reference)
    tight[0] = tight[0] + lower + best
    loss[0] += lower + upper


cdef inline double fenchel_gap(const joint_t* phi, double c, double own, double rival, double reference, double alpha,
                               double beta, double inner) noexcept nogil:
    """loss(s) + loss*(alpha, beta) - <s, alpha, beta> >= 0, with alpha = alpha_y and inner = <s, alpha>."""
    cdef double gap, loss = lower_loss(phi, c, own, rival)
    if phi.kind != SQUARED:
        return loss + inner - alpha
    gap = inner + (loss + alpha * (alpha / (4 * c) - phi.low))
    if phi.upper:
        gap += beta * (phi.high - own + reference)
        gap += beta * beta / (4 * c * phi.mu)
        gap += upper_loss(phi, c, own, reference)
    return gap


cdef inline double dual_term(const joint_t* phi, double c, double alpha, double beta, double fixed) noexcept nogil:
    """-loss*, a row's part of D; alpha = alpha_y, and fixed = 0 where the reference is the score of a class."""
    cdef double term
    if phi.kind != SQUARED:
        return alpha
    term = phi.low * alpha - alpha * alpha / (4 * c)
    if phi.upper:
        term -= (phi.high + fixed) * beta + beta * beta / (4 * c * phi.mu)
    return term


cdef inline double curvature_along(const joint_t* phi, double c, double alpha, double beta) noexcept nogil:
    """Of loss* times the square of a change of alpha_y and beta by these."""
    cdef double sum = 0
    if phi.kind == SQUARED:
        sum = alpha * alpha / (2 * c)
        if phi.upper:
            sum += beta * beta / (2 * c * phi.mu)
    return sum


cdef inline double largest_dual(const joint_t* phi, double c, Py_ssize_t k) noexcept nogil:
    """The end of alpha_y's range."""
    return INFINITY if phi.kind == SQUARED else c * (k - 1) if phi.kind == SUM else c


cdef inline double dual_scale(const joint_t* phi, double c) noexcept nogil:
    """S in h = alpha_y^2/(2 S)."""
    return 2 * c if phi.kind == SQUARED else INFINITY


cdef inline double loss_at_zero(const joint_t* phi, double c, Py_ssize_t k) noexcept nogil:
    """That of s = 0."""
    if phi.kind == TOP:
        return c * min(phi.top, k - 1) / phi.top
    return c * (k - 1) if phi.kind == SUM else c * phi.low * phi.low if phi.kind == SQUARED else c


cdef inline void duals_at_zero(const joint_t* phi, double c, Py_ssize_t k, Py_ssize_t y, double* a) noexcept nogil:
    """Duals a without a gap at s = 0."""
    cdef Py_ssize_t l, n = k - 1 if phi.kind == SUM else min(phi.top, k - 1) if phi.kind == TOP else 1
    cdef double own = 2 * c * phi.low if phi.kind == SQUARED else loss_at_zero(phi, c, k)
    for l in range(k):
        a[l] = 0
    for l in range(1, n + 1):
        a[(y + l) % k] = -own / n
    a[y] = own


cdef inline double solve_block(const joint_t* phi, const double* B, Py_ssize_t k, Py_ssize_t y, double A, double c,
                               Py_ssize_t r, double F, double* a, double* v) noexcept nogil:
    """The duals (a, b) of min over s of loss(s) + 1/(2A) ||s - v||^2, B_l = v_l + low [l != y] (block_problem.pxd).
    Returns b; r < 0: no class is the reference."""
    if phi.kind == HINGE:
        solve_hinge_block(B, k, y, A, c, a, v)
        return 0
    if phi.kind == TOP:
        solve_top_block(B, k, y, A, A, c, phi.top, a, v)
        return 0
    if phi.kind == SUM:
        solve_sum_block(B, k, y, A, A, c, a, v)
        return 0
    return solve_squared_block(B, k, y, A, 1 / (2 * c), 1 / (2 * c * phi.mu) if phi.upper else -1, r, F, a, v)


cdef inline void nearest_duals(const joint_t* phi, double c, Py_ssize_t k, Py_ssize_t y, double* a, double* B,
                               double* v) noexcept nogil:
    """a becomes the nearest duals of TOP or SUM, by the a_l of the rivals. B, v: k numbers."""
    cdef Py_ssize_t l
    for l in range(k):
        B[l] = -a[l]
    B[y] = 0
    if phi.kind == TOP:
        solve_top_block(B, k, y, 1, 0, c, phi.top, a, v)
    else:
        solve_sum_block(B, k, y, 1, 0, c, a, v)


cdef inline double smooth_threshold(const joint_t* phi, const double* B, Py_ssize_t n, double gamma, double g,
                                    double c) noexcept nogil:
    """nu of p_l = min(`most_of_one`, (B_l - nu)_+/gamma), which maximises <p, B> - h(p) - gamma/2 ||p||^2,
    gamma = g/(2c), all B_l > 0: gamma sum p = g nu (SQUARED), gamma sum p <= gamma c (HINGE), nu = 0 (SUM)."""
    if n == 0 or phi.kind == SUM:
        return 0
    return threshold(B, n, 0, g) if phi.kind == SQUARED else fmax(0.0, threshold(B, n, -gamma * c, 0))


cdef inline double most_of_one(const joint_t* phi, double c) noexcept nogil:
    """The end of p_l's range that `smooth_threshold` does not see to."""
    return c if phi.kind == SUM else INFINITY


cdef inline double dual_sum(const joint_t* phi, double c, double nu, double total) noexcept nogil:
    """sum p of `smooth_threshold`, which is c exactly where the hinge's bound holds."""
    return total if phi.kind != HINGE or nu <= 0 else c


cdef inline double smooth_cost(const joint_t* phi, double c, double total) noexcept nogil:
    """h, sum p being total"""
    return total * total / (4 * c) if phi.kind == SQUARED else 0.0


cdef inline void pair_weights(const joint_t* phi, double c, Py_ssize_t n, double g, double alpha, double* between,
                              double* own) noexcept nogil:
    """Curvature of the smoothed loss with n classes of p strictly within their ranges, as a Laplacian: its weights
    between two of them, and between one and y. alpha = alpha_y."""
    cdef double gamma = g / (2 * c)
    if phi.kind == SQUARED:
        between[0], own[0] = 1 / (gamma * (n + g)), 2 * c / (n + g)
    elif phi.kind == HINGE and n and alpha >= c:
        between[0], own[0] = 1 / (gamma * n), 0
    else:
        between[0], own[0] = 0, 1 / gamma
