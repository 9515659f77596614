"""Support vector regression with the epsilon-insensitive loss, LIBLINEAR's -s 13 (Ho and Lin, JMLR 2012).

    P(w) = 1/2 ||w||^2 + sum_i C_i (|z_i - w.x_i| - epsilon)_+

    D(b) = -1/2 ||sum_i b_i x_i||^2 + sum_i (z_i b_i - epsilon |b_i|),      -C_i <= b_i <= C_i

z_i is the target of row i. The engine's margin is w.x_i - z_i, and its dual of that is b_i.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.algorithms.dual import margin_fit_of
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, Table
    from marginlinear.problem import Problem


def loss(problem: Problem, params: Parameters) -> tuple[FloatArray, Table]:
    e = params["epsilon"]
    return problem.costs(params["C"]), ((-e, e), ((0, -1, -e), (0, 0, 0), (0, 1, -e)))


METHOD = Method(
    name="l1svr",
    summary="support vector regression, epsilon-insensitive loss",
    objective="1/2 ||w||^2 + C sum_i (|z_i - w.x_i| - epsilon)_+",
    reference="C.-H. Ho and C.-J. Lin, Large-scale Linear Support Vector Regression, JMLR 2012",
    params=(P.C, P.EPSILON, P.FREE_BIAS),
    fit=margin_fit_of(loss),
    loss=loss,
    joint=False,
    liblinear=13,
    regression=True,
)
