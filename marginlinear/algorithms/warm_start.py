"""Where a fit begins that goes on from the duals of one at other costs, and, along a path, from those before that.

Scaled by the costs, duals keep -a_i/c_i = phi_i'(g_i). That is right where the loss is a straight line, as the hinge's
below its knot: there a dual is at its bound. Elsewhere, where the loss has little left to say, as at large C, duals
hardly grow with c: scaled, their weights would be too long by far. Nor do all go the same way. Hence, beside the duals
at their bounds, which stay there, the combination of the others,

    the duals;  those extrapolated, a (a/a_before)^e, e = log(c_new/c)/log(c/c_before);  those before

that has the best D, which is quadratic as long as no dual leaves its piece of the loss: with weights U_0 of the duals
at their bounds,

    D(t) = <t, l> - 1/2 ||U_0 + sum_j t_j U_j||^2 - 1/2 sum_i h_i (sum_j t_j a_ij)^2

It is cut off where it leaves the range of the duals; then the best point between it and all old duals, at their own
best scale, is taken.
"""

import numpy as np

# Directions that are the sums of others, but for rounding, are left out.
DEPENDENT = 1e-10


def extrapolated(duals, cost, before, new):
    """duals (duals/before)^e, at most new/cost times as large; where the signs differ, or `before` is 0, duals.

    `cost` and `new` have the shape of duals, or one that goes with it; `before` is a pair of duals and their costs.
    """
    earlier, first = before
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = duals / earlier
        exponent = np.log(new / cost) / np.log(cost / first)
        factor = np.clip(ratio**exponent, 0.0, np.maximum(1.0, new / cost))
    return np.where((ratio > 0) & np.isfinite(ratio) & np.isfinite(factor), factor, 1.0) * duals


def best_step(here, there, sqnorm_of, linear, curved):
    """s in [0, 1] for the best D between duals with the weights `here` and those `there`. `linear` are their <l, a>,
    `curved` the matrix of sum_i h_i a_ij a_il. Between duals that are feasible all are."""
    change = there - here
    # D(here + s (there - here)) = D(here) + s slope - s^2/2 bend
    bend = sqnorm_of(change) + curved[0, 0] - 2 * curved[0, 1] + curved[1, 1]
    along = (sqnorm_of(there) - sqnorm_of(here) - sqnorm_of(change)) / 2
    slope = linear[1] - linear[0] - along - curved[0, 1] + curved[0, 0]
    if slope >= bend:
        return 1.0
    # Both may be 0 but for rounding.
    return max(0.0, slope / bend) if bend > 0 else 0.0


def best_mix(images, sqnorm_of, linear, curved, held=None):
    """t that maximises D(t): `images` are the U_j, `linear` is l, `curved` the matrix of sum_i h_i a_ij a_il, `held`
    is U_0, or None where that is 0."""
    H, linear = np.array(curved, dtype=np.float64), np.array(linear, dtype=np.float64)
    squares = [sqnorm_of(image) for image in images]
    fixed = 0.0 if held is None else sqnorm_of(held)
    for i, image in enumerate(images):
        H[i, i] += squares[i]
        for j in range(i):
            product = (sqnorm_of(image + images[j]) - squares[i] - squares[j]) / 2
            H[i, j] += product
            H[j, i] += product
        if held is not None:
            linear[i] -= (sqnorm_of(image + held) - squares[i] - fixed) / 2
    size = np.sqrt(np.diagonal(H))
    size[size == 0] = 1.0
    return np.linalg.lstsq(H / np.outer(size, size), linear / size, rcond=DEPENDENT)[0] / size
