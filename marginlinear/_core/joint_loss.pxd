"""A convex loss of the k scores of a row of class y, and what sweeps, Newton steps and ADMM ask of it.

    hinge     loss(s) = c xi
    squared   loss(s) = c (xi^2 + mu eps^2)

    xi  = (low - s_y + max_{l != y} s_l)_+
    eps = (s_y - ref - high)_+,  ref the score of a class r != y, or a fixed number;  no eps where not `upper`

Its duals are alpha_l <= 0 for l != y, alpha_y = -sum_{l != y} alpha_l, and beta >= 0:

    -loss*(alpha, beta) = low alpha_y - h(alpha_y) - (high + fixed) beta - beta^2/(4 c mu)

    hinge     h(t) = 0 for t <= c, infinite above
    squared   h(t) = t^2/(4c)

A loss that asks another question than these few is a new branch in this file alone.
"""

from libc.math cimport INFINITY, fmax

from marginlinear._core.block_problem cimport larger, solve_hinge_block, solve_squared_block, threshold


cdef struct joint_t:
    bint squared
    bint upper
    double low     # 1 of the hinge
    double high
    double mu


cdef inline double lower_loss(const joint_t* phi, double c, double own, double rival) noexcept nogil:
    """c xi or c xi^2, own = s_y and rival = max_{l != y} s_l."""
    cdef double xi = larger(0.0, phi.low + rival - own)
    return c * xi * xi if phi.squared else c * xi


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
    """loss += the loss;  tight += the loss with the best rival's score as reference"""
    cdef double lower = lower_loss(phi, c, own, rival), best = 0, upper = 0
    if phi.upper:
        best, upper = upper_loss(phi, c, own, rival), upper_loss(phi, c, own, reference)
    tight[0] = tight[0] + lower + best
    loss[0] += lower + upper


cdef inline double fenchel_gap(const joint_t* phi, double c, double own, double rival, double reference, double alpha,
                               double beta, double inner) noexcept nogil:
    """loss(s) + loss*(alpha, beta) - <s, alpha, beta> >= 0, with alpha = alpha_y and inner = <s, alpha>."""
    cdef double gap, loss = lower_loss(phi, c, own, rival)
    if not phi.squared:
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
    if not phi.squared:
        return alpha
    term = phi.low * alpha - alpha * alpha / (4 * c)
    if phi.upper:
        term -= (phi.high + fixed) * beta + beta * beta / (4 * c * phi.mu)
    return term


cdef inline double curvature_along(const joint_t* phi, double c, double alpha, double beta) noexcept nogil:
    """Of loss* times the square of a change of alpha_y and beta by these."""
    cdef double sum = 0
    if phi.squared:
        sum = alpha * alpha / (2 * c)
        if phi.upper:
            sum += beta * beta / (2 * c * phi.mu)
    return sum


cdef inline double largest_dual(const joint_t* phi, double c) noexcept nogil:
    """The end of alpha_y's range."""
    return INFINITY if phi.squared else c


cdef inline double dual_scale(const joint_t* phi, double c) noexcept nogil:
    """S in h(t) = t^2/(2 S)."""
    return 2 * c if phi.squared else INFINITY


cdef inline double dual_at_zero(const joint_t* phi, double c) noexcept nogil:
    """An alpha_y without a gap at s = 0."""
    return 2 * c * phi.low if phi.squared else c


cdef inline double solve_block(const joint_t* phi, const double* B, Py_ssize_t k, Py_ssize_t y, double A, double c,
                               Py_ssize_t r, double F, double* a, double* v) noexcept nogil:
    """The duals (a, b) of min over s of loss(s) + 1/(2A) ||s - v||^2, B_l = v_l + low [l != y] (block_problem.pxd).
    Returns b; r < 0: no class is the reference."""
    if not phi.squared:
        solve_hinge_block(B, k, y, A, c, a, v)
        return 0
    return solve_squared_block(B, k, y, A, 1 / (2 * c), 1 / (2 * c * phi.mu) if phi.upper else -1, r, F, a, v)


cdef inline double smooth_threshold(const joint_t* phi, const double* B, Py_ssize_t n, double gamma, double g,
                                    double c) noexcept nogil:
    """nu of p_l = (B_l - nu)_+/gamma, which maximises <p, B> - h(sum p) - gamma/2 ||p||^2, gamma = g/(2c), all B_l > 0:
    gamma sum p = g nu (squared), and gamma sum p <= gamma c (hinge)."""
    if n == 0:
        return 0
    return threshold(B, n, 0, g) if phi.squared else fmax(0.0, threshold(B, n, -gamma * c, 0))


cdef inline double dual_sum(const joint_t* phi, double c, double nu, double total) noexcept nogil:
    """sum p of `smooth_threshold`, which is c exactly where the hinge's bound holds."""
    return total if phi.squared or nu <= 0 else c


cdef inline double smooth_cost(const joint_t* phi, double c, double total) noexcept nogil:
    """h(sum p)"""
    return total * total / (4 * c) if phi.squared else 0.0


cdef inline void pair_weights(const joint_t* phi, double c, Py_ssize_t n, double g, double alpha, double* between,
                              double* own) noexcept nogil:
    """Curvature of the smoothed loss with n classes of p > 0, as a Laplacian: its weights between two of them, and
    between one and y. alpha = alpha_y."""
    cdef double gamma = g / (2 * c)
    if phi.squared:
        between[0], own[0] = 1 / (gamma * (n + g)), 2 * c / (n + g)
    elif n and alpha >= c:
        between[0], own[0] = 1 / (gamma * n), 0
    else:
        between[0], own[0] = 0, 1 / gamma
