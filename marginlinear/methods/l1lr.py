"""Logistic regression with sparse weights, LIBLINEAR's -s 6 (Yuan, Ho and Lin, JMLR 2012).

    P(w) = ||w||_1 + sum_i C_i log(1 + exp(-g_i)),      g_i = y_i w.x_i

    D(a) = -sum_i [a_i log(a_i/C_i) + (C_i - a_i) log(1 - a_i/C_i)],      |sum_i a_i y_i x_ij| <= 1 for all j

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

SOFTPLUS: Table = (), "softplus"


def loss(problem: Problem, params: Parameters) -> tuple[FloatArray, Table]:
    return problem.costs(params["C"]), SOFTPLUS


METHOD = Method(
    name="l1lr",
    summary="logistic regression, sparse weights",
    objective="||w||_1 + C sum_i log(1 + exp(-g_i))",
    reference="G.-X. Yuan, C.-H. Ho and C.-J. Lin, An Improved GLMNET for L1-regularized Logistic Regression, JMLR "
              "2012",
    params=(P.C, P.L1_RATIO, P.FREE_BIAS),
    fit=sparse_fit_of(loss),
    joint=False,
    liblinear=6,
    kernels=False,
    routes=("auto",),
    sparse=True,
    probabilities="logistic",
)
