"""lp-norm multi-class SVM (Lei, Dogan, Binder and Kloft, NIPS 2015), Problems (P) and (D).

    P(W)     = 1/2 (sum_l ||w_l||^p)^{2/p} + sum_i C_i (1 - g_i)_+,   g_i = w_{y_i}.x_i - max_{l != y_i} w_l.x_i
    D(alpha) = -1/2 (sum_l ||v_l||^{p*})^{2/p*} + sum_i alpha_{i y_i},  v_l = sum_i alpha_il x_i,  1/p + 1/p* = 1

over sum_l alpha_il = 0, alpha_il <= C_i [l = y_i]. p = 2 is Crammer and Singer's machine; the nearer p is to 1, the
fewer classes have weights of any size, and at p = 1 only those whose ||v_l|| is the largest have any.

The paper's Algorithm 1 alternates between class weights b (Eq. 14) and solving the problem with sum_l ||w_l||^2/b_l in
place of the norm. Here b follows the weights from one sweep to the next. P and D know no b: the certificate
P(W) - D(alpha) is one of (P) at any time. `n_outer` counts the updates of b.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marginlinear import params as P
from marginlinear.algorithms.dual import joint_fit_of
from marginlinear.registry import Method, Paper

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters
    from marginlinear.algorithms.dual import JointFit
    from marginlinear.problem import Problem, Solution


def dual(problem: Problem, params: Parameters) -> tuple[FloatArray, dict[str, Any]]:
    return problem.costs(params["C"]), {"loss": "hinge", "norm": params["norm"]}


def solve(fit: JointFit, params: Parameters) -> Solution:
    solution = fit.convex()
    return solution._replace(info=solution.info._replace(n_outer=fit.engine.n_adapt))


METHOD = Method(
    name="lpmcsvm",
    summary="lp-norm multi-class SVM",
    objective="1/2 (sum_l ||w_l||^p)^(2/p) + C sum_i (1 - g_i)_+",
    reference="Y. Lei, U. Dogan, A. Binder and M. Kloft, Multi-class SVMs: From Tighter Data-Dependent Generalization "
              "Bounds to Novel Algorithms, NIPS 2015",
    params=(P.C, P.NORM._replace(default=1.5, domain="[1, 2]")),
    fit=joint_fit_of(dual, solve),
    dual=dual,
    joint=True,
    paper=Paper("its experiments choose C and p by 5-fold cross-validation",
                grid="C=log2:-12:1:12,norm=1.1:0.1:2"),
)
