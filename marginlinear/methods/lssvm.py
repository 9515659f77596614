"""Least squares support vector machine (Suykens and Vandewalle, Neural Processing Letters 1999), without its bias.

    P(w) = 1/2 ||w||^2 + sum_i C_i (1 - g_i)^2,      g_i = y_i w.x_i

Since y_i^2 = 1 this is ridge regression on the labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.algorithms.dual import fit_of
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, Table
    from marginlinear.problem import Problem

SQUARE = (), ((2, -2, 1),)


def loss(problem: Problem, params: Parameters) -> tuple[FloatArray, Table]:
    return problem.costs(params["C"]), SQUARE


METHOD = Method(
    name="lssvm",
    summary="least squares support vector machine",
    objective="1/2 ||w||^2 + C sum_i (1 - g_i)^2",
    reference="J. A. K. Suykens and J. Vandewalle, Least Squares Support Vector Machine Classifiers, Neural "
              "Processing Letters 1999",
    params=(P.C, P.FREE_BIAS),
    fit=fit_of(loss),
    loss=loss,
    joint=False,
)
