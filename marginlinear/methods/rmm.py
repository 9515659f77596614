"""Relative margin machine, one-sided and relaxed (after Shivaswamy and Jebara, JMLR 2010).

    P(w) = 1/2 ||w||^2 + sum_i [C_i (1 - g_i)_+ + D_i (g_i - B)_+],      g_i = y_i w.x_i,   B >= 1

C_i and D_i are C and D times the row's weight. There |w.x_i| <= B is a constraint, or costs D times its excess, of
either sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.algorithms.dual import fit_of
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, Table
    from marginlinear.problem import Problem


def loss(problem: Problem, params: Parameters) -> tuple[FloatArray, Table]:
    bound, ratio = params["margin_bound"], (params["bound_cost"] or params["C"]) / params["C"]
    return problem.costs(params["C"]), ((1, bound), ((0, -1, 1), (0, 0, 0), (0, ratio, -ratio * bound)))


METHOD = Method(
    name="rmm",
    summary="relative margin machine, margins bounded above too",
    objective="1/2 ||w||^2 + C sum_i (1 - g_i)_+ + D sum_i (g_i - B)_+",
    reference="P. K. Shivaswamy and T. Jebara, Maximum Relative Margin and Data-Dependent Regularization, JMLR 2010",
    params=(P.C, P.MARGIN_BOUND, P.BOUND_COST, P.FREE_BIAS),
    fit=fit_of(loss),
    loss=loss,
    joint=False,
)
