"""Multi-class SVM of Weston and Watkins (ESANN 1999).

    P(W) = 1/2 ||W||^2 + sum_i C_i sum_{l != y_i} (1 - t_il)_+,      t_il = (w_{y_i} - w_l).x_i

This is M3SVM without rounding, with p = 2 and lambda = 1/(2 k): ||W||^2 = (1/k) sum_{j<l} ||w_j - w_l||^2 where the
columns add up to 0, as they do at the optimum. It is minimised with a rounded hinge, but objective and certificate are
those of the hinge itself.
"""

from marginlinear.algorithms import pairwise
from marginlinear.params import C
from marginlinear.registry import Method


def fit(problem, params, run):
    return pairwise.fit_ridge(problem, params, run, "hinge")


METHOD = Method(
    name="ww",
    summary="multi-class SVM of Weston and Watkins",
    objective="1/2 ||W||^2 + C sum_i sum_{l != y_i} (1 - (w_{y_i} - w_l).x_i)_+",
    reference="J. Weston and C. Watkins, Support Vector Machines for Multi-Class Pattern Recognition, ESANN 1999",
    params=(C,),
    fit=fit,
    joint=True,
    kernels=False,
    smooth=True,
    routes=("auto",),
)
