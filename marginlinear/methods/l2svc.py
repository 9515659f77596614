"""Support vector classifier with the squared hinge loss, LIBLINEAR's -s 1 and -s 2 (Hsieh et al., ICML 2008).

    P(w) = 1/2 ||w||^2 + sum_i C_i (1 - g_i)_+^2,      g_i = y_i w.x_i
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.algorithms.dual import margin_fit_of
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, Table
    from marginlinear.problem import Problem

SQUARED_HINGE = (1,), ((2, -2, 1), (0, 0, 0))


def loss(problem: Problem, params: Parameters) -> tuple[FloatArray, Table]:
    return problem.costs(params["C"]), SQUARED_HINGE


METHOD = Method(
    name="l2svc",
    summary="support vector classifier, squared hinge loss",
    objective="1/2 ||w||^2 + C sum_i (1 - g_i)_+^2",
    reference="C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. S. Keerthi and S. Sundararajan, A Dual Coordinate Descent "
              "Method for Large-scale Linear SVM, ICML 2008",
    params=(P.C, P.FREE_BIAS),
    fit=margin_fit_of(loss),
    loss=loss,
    joint=False,
    liblinear=1,
)
