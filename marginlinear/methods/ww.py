"""Multi-class SVM of Weston and Watkins (ESANN 1999).

    P(W) = 1/2 ||W||^2 + sum_i C_i sum_{l != y_i} (1 - t_il)_+,      t_il = (w_{y_i} - w_l).x_i

    D(a) = -1/2 ||U||^2 + sum_i sum_{l != y_i} a_il,  U = sum_i sum_{l != y_i} a_il (e_{y_i} - e_l) x_i',
    0 <= a_il <= C_i
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marginlinear import params as P
from marginlinear.algorithms.dual import JointFit, convex_fit
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters
    from marginlinear.problem import Problem


def dual(problem: Problem, params: Parameters) -> tuple[FloatArray, dict[str, Any]]:
    return problem.costs(params["C"]), {"loss": "sum"}


METHOD = Method(
    name="ww",
    summary="multi-class SVM of Weston and Watkins",
    objective="1/2 ||W||^2 + C sum_i sum_{l != y_i} (1 - (w_{y_i} - w_l).x_i)_+",
    reference="J. Weston and C. Watkins, Support Vector Machines for Multi-Class Pattern Recognition, ESANN 1999",
    params=(P.C,),
    fit=convex_fit(JointFit, dual),
    dual=dual,
    joint=True,
)
