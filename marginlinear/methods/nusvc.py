"""Support vector classifier with nu in place of C, LIBSVM's -s 1 (Scholkopf, Smola, Williamson and Bartlett, Neural
Computation 2000).

    P(w, b, rho) = 1/2 ||w||^2 - nu n rho + sum_i c_i (rho - y_i (w.x_i + b))_+,      n = sum_i c_i

    D(a) = -1/2 ||sum_i a_i y_i x_i||^2,      0 <= a_i <= c_i,  sum_i a_i = nu n,  sum_i a_i y_i = 0

c_i being the weights. The weights of the model are w/rho, so that margins are in units of rho: those of C-SVC with C =
1/rho.
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
    from marginlinear.algorithms.nu import NuClassFit

    cost = problem.costs(1.0)
    if problem.rows.is_gram:
        from marginlinear.algorithms.factored import convex
        from marginlinear.algorithms.fixed_sums import NuPairs

        return convex(NuPairs(problem, run, cost, params["nu"]), partial(NuClassFit, cost=cost, nu=params["nu"]))
    return NuClassFit(problem, run, cost, params["nu"]).solution()


METHOD = Method(
    name="nusvc",
    summary="support vector classifier, nu in place of C",
    objective="1/2 ||w||^2 - nu m rho + sum_i (rho - y_i (w.x_i + b))_+",
    reference="B. Scholkopf, A. J. Smola, R. C. Williamson and P. L. Bartlett, New Support Vector Algorithms, Neural "
              "Computation 2000",
    params=(P.NU,),
    fit=fit,
    joint=False,
    routes=("auto",),
    defaults={P.MULTICLASS.name: "ovo"},
    offset=True,
)
