"""Large margin distribution machine (Zhang and Zhou, KDD 2014).

    P(w) = 1/2 ||w||^2 + lambda1 ghat - lambda2 gbar + sum_i C_i (1 - g_i)_+,      g_i = y_i w.x_i

gbar is the mean of the margins and ghat = (1/m^2) sum_{i,j} (g_i - g_j)^2 twice their variance, so that

    lambda1 ghat = (2 lambda1/m) min_v sum_i (g_i - v)^2

and coordinate descent with the mean as a variable solves it exactly.
"""

from marginlinear import params as P
from marginlinear.methods.dual import MarginFit
from marginlinear.registry import Method


def fit(problem, params, run):
    import numpy as np

    slope = params["lambda2"] / problem.size
    factors, group = np.unique(problem.factor, return_inverse=True)
    costs = (params["C"] * factors).tolist()
    tables = [((1,), ((0, -C - slope, C), (0, -slope, 0))) for C in costs]
    return MarginFit(problem, run, problem.instance, tables, group=group.astype(np.int32),
                     spread=2 * params["lambda1"] / problem.size).convex()


METHOD = Method(
    name="ldm",
    summary="large margin distribution machine",
    objective="1/2 ||w||^2 + lambda1 ghat - lambda2 gbar + C sum_i (1 - g_i)_+",
    reference="T. Zhang and Z.-H. Zhou, Large Margin Distribution Machine, KDD 2014, Eq. 5",
    params=(P.C, P.LAMBDA1, P.LAMBDA2),
    fit=fit,
    joint=False,
)
