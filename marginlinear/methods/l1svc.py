"""Support vector classifier with the hinge loss, LIBLINEAR's -s 3 (Hsieh et al., ICML 2008).

    P(w) = 1/2 ||w||^2 + sum_i C_i (1 - g_i)_+,      g_i = y_i w.x_i
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.algorithms.dual import margin_fit_of
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, Table
    from marginlinear.problem import Problem

HINGE = (1,), ((0, -1, 1), (0, 0, 0))


def loss(problem: Problem, params: Parameters) -> tuple[FloatArray, Table]:
    return problem.costs(params["C"]), HINGE


METHOD = Method(
    name="l1svc",
    summary="support vector classifier, hinge loss",
    objective="1/2 ||w||^2 + C sum_i (1 - g_i)_+",
    reference="C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. S. Keerthi and S. Sundararajan, A Dual Coordinate Descent "
              "Method for Large-scale Linear SVM, ICML 2008",
    params=(P.C, P.FREE_BIAS),
    fit=margin_fit_of(loss),
    loss=loss,
    joint=False,
    liblinear=3,
)
