"""The losses of the margin that engines know: pieces (piecewise.pxd), or log(1 + exp(-g)) (softplus.pxd).

What each function asks of a loss is said there, under the same name. Of softplus `pieces` is the parabola that touches
it at 0, whose curvature is its largest.
"""

from marginlinear._core cimport piecewise
from marginlinear._core.piecewise cimport piece_at, pieces_t
from marginlinear._core.softplus cimport (
    softplus,
    softplus_conjugate_at,
    softplus_dual_term,
    softplus_gap,
    softplus_response,
    softplus_share,
    softplus_step,
    softplus_visit,
)


cdef struct loss_t:
    pieces_t pieces
    double soft


cdef inline double loss_at(const loss_t* phi, double g) noexcept nogil:
    return softplus(g) if phi.soft else piecewise.loss_at(&phi.pieces, g)


cdef inline double slope_at(const loss_t* phi, double g) noexcept nogil:
    cdef double rest
    return -softplus_share(g, &rest) if phi.soft else piecewise.slope_at(&phi.pieces, g)


cdef inline double curvature_at(const loss_t* phi, double g) noexcept nogil:
    """phi''(g), at a knot that from above"""
    cdef double rest
    return softplus_share(g, &rest) * rest if phi.soft else phi.pieces.quad[piece_at(&phi.pieces, g)]


cdef inline double jump_at(const loss_t* phi, int j) noexcept nogil:
    return piecewise.jump_at(&phi.pieces, j)


cdef inline double jump_middle(const loss_t* phi, int j) noexcept nogil:
    return (piecewise.slope_left(&phi.pieces, j) + piecewise.slope_right(&phi.pieces, j)) / 2


cdef inline double dual_at(const loss_t* phi, double c, double g) noexcept nogil:
    cdef double rest
    return c * softplus_share(g, &rest) if phi.soft else piecewise.dual_at(&phi.pieces, c, g)


cdef inline double in_range(const loss_t* phi, double c, double a) noexcept nogil:
    """The nearest dual where D is finite."""
    if phi.soft:
        return min(max(a, 0.0), c)
    if phi.pieces.quad[0] == 0:
        a = min(a, -c * phi.pieces.slope[0])
    return max(a, -c * phi.pieces.slope[2]) if phi.pieces.quad[2] == 0 else a


cdef inline double coordinate_step(const loss_t* phi, double c, double base, double A, double start,
                                   double* curvature) noexcept nogil:
    """Where the margin is not of closed form it is searched for from `start`."""
    if phi.soft:
        return softplus_step(c, base, A, start, curvature)
    return piecewise.coordinate_step(&phi.pieces, c, base, A, curvature)


cdef inline double response(const loss_t* phi, double c, double g, double* curvature, double* loss) noexcept nogil:
    """The dual that is best at a margin, of a loss without kinks: -c phi'(g); c phi''(g) and c phi(g) beside it."""
    cdef int j
    if phi.soft:
        return softplus_response(c, g, curvature, loss)
    j = piece_at(&phi.pieces, g)
    curvature[0] = c * phi.pieces.quad[j]
    loss[0] = c * ((0.5 * phi.pieces.quad[j] * g + phi.pieces.slope[j]) * g + phi.pieces.level[j])
    return -c * (phi.pieces.quad[j] * g + phi.pieces.slope[j])


cdef inline double visit(const loss_t* phi, double c, double A, double g, double a, double tolerance, double* gap,
                         double* loss) noexcept nogil:
    """The dual after a coordinate step from a, whose margin is g; a where the gap is within the tolerance.

    `gap` and `loss` become c phi(g) + c phi*(-a/c) + a g and c phi(g).
    """
    cdef double curvature
    if phi.soft:
        return softplus_visit(c, A, g, a, tolerance, gap, loss)
    gap[0], loss[0] = piecewise.fenchel_gap(&phi.pieces, c, g, a), c * piecewise.loss_at(&phi.pieces, g)
    return a if gap[0] <= tolerance else piecewise.coordinate_step(&phi.pieces, c, g - A * a, A, &curvature)


cdef inline double conjugate_at(const loss_t* phi, double u) noexcept nogil:
    return softplus_conjugate_at(u) if phi.soft else piecewise.conjugate_at(&phi.pieces, u)


cdef inline double fenchel_gap(const loss_t* phi, double c, double g, double a) noexcept nogil:
    return softplus_gap(c, g, a) if phi.soft else piecewise.fenchel_gap(&phi.pieces, c, g, a)


cdef inline double least_curvature(const loss_t* phi, double c) noexcept nogil:
    return piecewise.least_curvature(&phi.pieces, c)


cdef inline double dual_term(const loss_t* phi, double c, double a) noexcept nogil:
    return softplus_dual_term(c, a) if phi.soft else piecewise.dual_term(&phi.pieces, c, a)
