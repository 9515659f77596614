"""A convex, piecewise quadratic loss of the margin with at most three pieces, and what a dual method asks of it.

    phi(g) = quad_j/2 g^2 + slope_j g + level_j      on piece j, j = 0, 1, 2, cut at knot_0 <= knot_1

phi is continuous and its derivative does not fall; at a knot it may jump. c > 0 multiplies it; a is the dual variable
of the margin: at the optimum a is in -c d phi(g).

The coordinate step. Without its own part the row's margin is base; A > 0 being ||x||^2 (or the strength of any other
proximal term), the step minimises c phi(g) + (g - base)^2/(2A): the margin is the zero of an increasing function that
is linear on each piece, and a = (g - base)/A. The conjugate is found by the same walk over the pieces, by slopes.

Duals are bounded where an outermost piece is a straight line: beyond its slope phi* is infinite, and D bounds nothing.
0 is such a dual of a loss that nowhere is flat, until a first step has moved it.
"""

from libc.math cimport INFINITY, fabs, fmax, fmin


cdef struct pieces_t:
    double knot[2]
    double quad[3]
    double slope[3]
    double level[3]


cdef inline int piece_at(const pieces_t* phi, double g) noexcept nogil:
    """The piece of a margin, at a knot that above it"""
    return 2 - (g < phi.knot[0]) - (g < phi.knot[1])


cdef inline double loss_at(const pieces_t* phi, double g) noexcept nogil:
    """phi(g)"""
    cdef int j = piece_at(phi, g)
    return (0.5 * phi.quad[j] * g + phi.slope[j]) * g + phi.level[j]


cdef inline double slope_at(const pieces_t* phi, double g) noexcept nogil:
    """phi'(g), at a knot that from above"""
    cdef int j = piece_at(phi, g)
    return phi.quad[j] * g + phi.slope[j]


cdef inline double slope_left(const pieces_t* phi, int j) noexcept nogil:
    """phi' just below knot j"""
    return phi.quad[j] * phi.knot[j] + phi.slope[j]


cdef inline double slope_right(const pieces_t* phi, int j) noexcept nogil:
    """phi' just above knot j"""
    return phi.quad[j + 1] * phi.knot[j] + phi.slope[j + 1]


cdef inline double jump_at(const pieces_t* phi, int j) noexcept nogil:
    """The jump of phi' at knot j, 0 where it is within the rounding of the two slopes."""
    cdef double left = slope_left(phi, j), right = slope_right(phi, j)
    return right - left if right - left > 1e-12 * (fabs(left) + fabs(right)) else 0.0


cdef inline double dual_at(const pieces_t* phi, double c, double g) noexcept nogil:
    """The a of smallest size with a in -c d phi(g)."""
    cdef int below = (g > phi.knot[0]) + (g > phi.knot[1]), above = (g >= phi.knot[0]) + (g >= phi.knot[1])
    cdef double low = phi.quad[below] * g + phi.slope[below], high = phi.quad[above] * g + phi.slope[above]
    return -c * fmin(high, fmax(low, 0.0))


cdef inline double coordinate_step(const pieces_t* phi, double c, double base, double A,
                                   double* curvature) noexcept nogil:
    """The dual a after a coordinate step; `curvature` becomes -da/dbase: c quad/(1 + A c quad) within a piece, 1/A at
    a knot that holds the margin."""
    cdef int j
    cdef double g, quad
    for j in range(3):
        quad = c * phi.quad[j]
        g = (base - A * c * phi.slope[j]) / (1 + A * quad)
        if j and g < phi.knot[j - 1]:
            curvature[0] = 1 / A
            g = (phi.knot[j - 1] - base) / A
            return fmin(-c * slope_left(phi, j - 1), fmax(-c * slope_right(phi, j - 1), g))
        if j == 2 or g < phi.knot[j]:
            break
    curvature[0] = quad / (1 + A * quad)
    return -(quad * g + c * phi.slope[j])


cdef inline double conjugate_at(const pieces_t* phi, double u) noexcept nogil:
    """A z with u in d phi(z): there u z - phi(z) is greatest. For a u that rounding left out of range, the last knot
    on its side."""
    cdef int j = (u > slope_right(phi, 0)) + (u > slope_right(phi, 1))
    if j < 2 and u >= slope_left(phi, j):
        return phi.knot[j]
    return (u - phi.slope[j]) / phi.quad[j] if phi.quad[j] > 0 else phi.knot[j // 2]


cdef inline double fenchel_gap(const pieces_t* phi, double c, double g, double a) noexcept nogil:
    """c phi(g) + c phi*(-a/c) + a g >= 0, summed as c [phi(g) - phi(z) - u (g - z)] with u = -a/c in d phi(z)."""
    cdef double u = -a / c, z = conjugate_at(phi, u)
    return c * (loss_at(phi, g) - loss_at(phi, z) - u * (g - z))


cdef inline double least_curvature(const pieces_t* phi, double c) noexcept nogil:
    """Of (c phi)*: 0 where phi has a kink."""
    cdef double quad = fmax(phi.quad[0], fmax(phi.quad[1], phi.quad[2]))
    return 1 / (c * quad) if quad > 0 and jump_at(phi, 0) == 0 and jump_at(phi, 1) == 0 else 0.0


cdef inline double dual_term(const pieces_t* phi, double c, double a) noexcept nogil:
    """-c phi*(-a/c), the dual's part of D: -inf where a is out of its range by more than rounding."""
    cdef double u = -a / c, within = 1e-12 * (fabs(u) + fabs(phi.slope[0]) + fabs(phi.slope[2]))
    if (phi.quad[0] == 0 and u < phi.slope[0] - within) or (phi.quad[2] == 0 and u > phi.slope[2] + within):
        return -INFINITY
    return c * loss_at(phi, 0.0) - fenchel_gap(phi, c, 0.0, a)
