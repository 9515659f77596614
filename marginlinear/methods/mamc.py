"""Maximal average margin classifier (Pelckmans, Suykens and De Moor, NIPS 2007).

    P(w) = 1/2 ||w||^2 - sum_i C_i g_i,      g_i = y_i w.x_i

Its optimum is sum_i C_i y_i x_i: the direction in which the mean of the margins is largest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.algorithms.dual import fit_of
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, Table
    from marginlinear.problem import Problem

LINEAR = (), ((0, -1, 0),)


def loss(problem: Problem, params: Parameters) -> tuple[FloatArray, Table]:
    return problem.costs(params["C"]), LINEAR


METHOD = Method(
    name="mamc",
    summary="maximal average margin classifier",
    objective="1/2 ||w||^2 - C sum_i g_i",
    reference="K. Pelckmans, J. Suykens and B. De Moor, A Risk Minimization Principle for a Class of Parzen "
              "Estimators, NIPS 2007",
    params=(P.C,),
    fit=fit_of(loss),
    loss=loss,
    joint=False,
)
