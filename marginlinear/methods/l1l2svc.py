"""Support vector classifier with the squared hinge loss and sparse weights, LIBLINEAR's -s 5 (Yuan, Chang, Hsieh and
Lin, JMLR 2010).

    P(w) = ||w||_1 + sum_i C_i (1 - g_i)_+^2,      g_i = y_i w.x_i

    D(a) = sum_i [a_i - a_i^2/(4 C_i)],      a_i >= 0,  |sum_i a_i y_i x_ij| <= 1 for all j

With `l1_ratio` r, r ||w||_1 + (1 - r)/2 ||w||^2 in place of ||w||_1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.algorithms.sparse_weights import sparse_fit_of
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, Table
    from marginlinear.problem import Problem

SQUARED_HINGE = (1,), ((2, -2, 1), (0, 0, 0))


def loss(problem: Problem, params: Parameters) -> tuple[FloatArray, Table]:
    return problem.costs(params["C"]), SQUARED_HINGE


METHOD = Method(
    name="l1l2svc",
    summary="support vector classifier, squared hinge loss, sparse weights",
    objective="||w||_1 + C sum_i (1 - g_i)_+^2",
    reference="G.-X. Yuan, K.-W. Chang, C.-J. Hsieh and C.-J. Lin, A Comparison of Optimization Methods and Software "
              "for Large-scale L1-regularized Linear Classification, JMLR 2010",
    params=(P.C, P.L1_RATIO, P.FREE_BIAS),
    fit=sparse_fit_of(loss),
    joint=False,
    liblinear=5,
    kernels=False,
    routes=("auto",),
    sparse=True,
)
