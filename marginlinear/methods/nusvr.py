"""Support vector regression with nu in place of epsilon, LIBSVM's -s 4 (Scholkopf, Smola, Williamson and Bartlett,
Neural Computation 2000).

    P(w, b, epsilon) = 1/2 ||w||^2 + sum_i C_i (nu epsilon + (|z_i - w.x_i - b| - epsilon)_+),      epsilon >= 0

    D(a, a') = -1/2 ||w||^2 + sum_i z_i (a_i - a'_i),      w = sum_i (a_i - a'_i) x_i,  0 <= a_i, a'_i <= C_i,
               sum_i a_i = sum_i a'_i = nu/2 sum_i C_i
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import Parameters
    from marginlinear.problem import Problem, Run, Solution


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    from marginlinear.algorithms.nu import NuResidualFit

    cost = problem.costs(params["C"])
    if problem.rows.is_gram:
        from marginlinear.algorithms.factored import convex
        from marginlinear.algorithms.fixed_sums import NuResidualPairs

        return convex(NuResidualPairs(problem, run, cost, params["nu"]),
                      partial(NuResidualFit, cost=cost, nu=params["nu"]))
    return NuResidualFit(problem, run, cost, params["nu"]).solution()


METHOD = Method(
    name="nusvr",
    summary="support vector regression, nu in place of epsilon",
    objective="1/2 ||w||^2 + C sum_i (nu epsilon + (|z_i - w.x_i - b| - epsilon)_+)",
    reference="B. Scholkopf, A. J. Smola, R. C. Williamson and P. L. Bartlett, New Support Vector Algorithms, Neural "
              "Computation 2000",
    params=(P.C, P.NU),
    fit=fit,
    joint=False,
    routes=("auto",),
    regression=True,
    offset=True,
)
