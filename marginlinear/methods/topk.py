"""Top-k multi-class SVM (Lapin, Hein and Schiele, NIPS 2015, the loss alpha of Eq. 8).

    P(W) = 1/2 sum_l ||w_l||^2 + sum_i C_i (mean of the K largest, over all l, of [l != y_i] - t_il)_+,
    t_il = (w_{y_i} - w_l).x_i,  t_iy = 0

    D(a) = -1/2 ||U||^2 + sum_i sum_{l != y_i} a_il,  U = sum_i sum_{l != y_i} a_il (e_{y_i} - e_l) x_i',
    0 <= a_il <= min(C_i/K, S_i/(K - 1)),  S_i = sum_{l != y_i} a_il <= C_i
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
    K = min(5, problem.n_classes - 1) if params["K"] is None else params["K"]
    if problem.n_classes < K:
        raise P.refusal("K", K, f"1 to the number of classes, {problem.n_classes}", ValueError)
    # The largest alone is the hinge's, whose engine has more ways.
    return problem.costs(params["C"]), {"loss": "hinge"} if K == 1 else {"loss": "top", "top": K}


METHOD = Method(
    name="topk",
    summary="top-k multi-class SVM",
    objective="1/2 sum_l ||w_l||^2 + C sum_i (mean of the K largest of [l != y_i] - t_il, 0 for l = y_i)_+",
    reference="M. Lapin, M. Hein and B. Schiele, Top-k Multiclass SVM, NIPS 2015",
    params=(P.C, P.K),
    fit=convex_fit(JointFit, dual),
    dual=dual,
    joint=True,
    routes=("auto", "cd", "accelerated"),
)
