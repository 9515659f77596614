"""Multi-class SVM of Crammer and Singer (JMLR 2001), LIBLINEAR's -s 4.

    P(W) = 1/2 sum_l ||w_l||^2 + sum_i C_i (1 - g_i)_+,      g_i = w_{y_i}.x_i - max_{l != y_i} w_l.x_i
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marginlinear import params as P
from marginlinear.algorithms.dual import joint_fit_of
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters
    from marginlinear.problem import Problem


def dual(problem: Problem, params: Parameters) -> tuple[FloatArray, dict[str, Any]]:
    return problem.costs(params["C"]), {"loss": "hinge"}


METHOD = Method(
    name="cs",
    summary="multi-class SVM of Crammer and Singer",
    objective="1/2 sum_l ||w_l||^2 + C sum_i (1 - g_i)_+",
    reference="K. Crammer and Y. Singer, On the Algorithmic Implementation of Multiclass Kernel-based Vector "
              "Machines, JMLR 2001",
    params=(P.C,),
    fit=joint_fit_of(dual, lambda solver, params: solver.convex()),
    dual=dual,
    joint=True,
    liblinear=4,
)
