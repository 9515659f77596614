"""Where a fit begins that goes on from the duals of one at other costs, and, along a path, from those before that.

Scaled by the costs, duals keep -a_i/c_i = phi_i'(g_i), but where the loss has little left to say, as at large C, they
hardly grow with c: their weights would be too long by far. Nor do all duals go the same way. Hence the combination of

    the duals;  those extrapolated, a (a/a_before)^e, e = log(c_new/c)/log(c/c_before);  those before

that has the best D, which is quadratic as long as no dual leaves its piece of the loss:

    D(t) = <t, l> - 1/2 ||sum_j t_j U_j||^2 - 1/2 sum_i h_i (sum_j t_j a_ij)^2

It is cut off where its sign is wrong; then the best point between it and the old duals, at their own best scale, is
taken. Not for hinges: what is at its bound would leave it, and fits took longer.
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
    return np.where((ratio > 0) & np.isfinite(factor), factor, 1.0) * duals


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


def best_mix(images, sqnorm_of, linear, curved):
    """t that maximises D(t): `images` are the U_j, `linear` is l, `curved` the matrix of sum_i h_i a_ij a_il."""
    H = np.array(curved, dtype=np.float64)
    squares = [sqnorm_of(image) for image in images]
    for i, image in enumerate(images):
        H[i, i] += squares[i]
        for j in range(i):
            product = (sqnorm_of(image + images[j]) - squares[i] - squares[j]) / 2
            H[i, j] += product
            H[j, i] += product
    size = np.sqrt(np.diagonal(H))
    size[size == 0] = 1.0
    return np.linalg.lstsq(H / np.outer(size, size), np.asarray(linear) / size, rcond=DEPENDENT)[0] / size
