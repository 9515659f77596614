"""Sparse multinomial logistic regression (Krishnapuram et al., PAMI 2005), all classes penalised.

    P(W) = sum_l ||w_l||_1 + sum_i C_i log(1 + sum_{l != y_i} exp(w_l.x_i - w_{y_i}.x_i))

    D(p) = sum_i C_i H(p_i),      p_i in the simplex,  |sum_i C_i ([l = y_i] - p_il) x_ij| <= 1 for all l and j

With `penalty` group the k weights v_j of a feature are 0 together (Vincent and Hansen, CSDA 2014):

    P(W) = sum_j ||v_j||_2 + the same losses,      ||sum_i C_i (e_{y_i} - p_i) x_ij||_2 <= 1 for all j

With `l1_ratio` r, r times the penalty and (1 - r)/2 ||W||^2. The paper fixes the weights of one class at 0; here none
is special.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import Parameters
    from marginlinear.problem import Problem, Run, Solution


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    import numpy as np

    from marginlinear.algorithms.sparse_classes import SparseClassesFit

    ratio = params["l1_ratio"]
    # Values that overflow are refused where they are compared.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return SparseClassesFit(problem, run, problem.costs(params["C"]), params["penalty"], ratio,
                                1 - ratio, params["free_bias"]).convex()


METHOD = Method(
    name="smlr",
    summary="multinomial logistic regression, sparse weights",
    objective="sum_l ||w_l||_1 + C sum_i log(1 + sum_{l != y_i} exp(w_l.x_i - w_{y_i}.x_i))",
    reference="B. Krishnapuram, L. Carin, M. A. T. Figueiredo and A. J. Hartemink, Sparse Multinomial Logistic "
              "Regression, PAMI 2005",
    params=(P.C, P.PENALTY, P.L1_RATIO, P.FREE_BIAS),
    fit=fit,
    joint=True,
    kernels=False,
    routes=("auto",),
    stores=False,
    probabilities="softmax",
)
