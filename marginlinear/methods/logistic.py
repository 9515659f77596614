"""Logistic regression, LIBLINEAR's -s 0 and -s 7 (Yu, Huang and Lin, Machine Learning 2011).

    P(w) = 1/2 ||w||^2 + sum_i C_i log(1 + exp(-g_i)),      g_i = y_i w.x_i

    D(a) = -1/2 ||sum_i a_i y_i x_i||^2 - sum_i [a_i log(a_i/C_i) + (C_i - a_i) log(1 - a_i/C_i)],      0 <= a_i <= C_i
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.algorithms.dual import fit_of
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, Table
    from marginlinear.problem import Problem

SOFTPLUS: Table = (), "softplus"


def loss(problem: Problem, params: Parameters) -> tuple[FloatArray, Table]:
    return problem.costs(params["C"]), SOFTPLUS


METHOD = Method(
    name="logistic",
    summary="logistic regression",
    objective="1/2 ||w||^2 + C sum_i log(1 + exp(-g_i))",
    reference="H.-F. Yu, F.-L. Huang and C.-J. Lin, Dual Coordinate Descent Methods for Logistic Regression and "
              "Maximum Entropy Models, Machine Learning 2011",
    params=(P.C, P.FREE_BIAS),
    fit=fit_of(loss),
    loss=loss,
    joint=False,
    liblinear=0,
    probabilities="logistic",
)
