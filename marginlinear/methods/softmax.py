"""Multinomial logistic regression.

    P(W) = 1/2 ||W||^2 + sum_i C_i log(1 + sum_{l != y_i} exp(w_l.x_i - w_{y_i}.x_i))

With ||W||^2 = (1/k) sum_{j<l} ||w_j - w_l||^2 where the columns add up to 0, as they do at the optimum, this is ISM3
with p = 2 and lambda = 1/(2 k). For two classes w_2 - w_1 is the logistic regression of LIBLINEAR's -s 0 at 2 C. With
`free_bias` the weights of the bias feature have no part in ||W||^2: algorithms/free_biases.py has the certificate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear.algorithms import pairwise
from marginlinear.params import FREE_BIAS, C
from marginlinear.registry import Method

if TYPE_CHECKING:
    from marginlinear._typing import Parameters
    from marginlinear.problem import Problem, Run, Solution


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    if not params["free_bias"]:
        return pairwise.fit_ridge(problem, params, run, "softmax")
    import numpy as np

    from marginlinear.algorithms import free_biases

    # Values that overflow are refused where they are compared.
    with np.errstate(over="ignore", invalid="ignore"):
        return free_biases.fit(problem, run, problem.costs(params["C"]))


METHOD = Method(
    name="softmax",
    summary="multinomial logistic regression",
    objective="1/2 ||W||^2 + C sum_i log(1 + sum_{l != y_i} exp(w_l.x_i - w_{y_i}.x_i))",
    reference="B. Krishnapuram, L. Carin, M. A. T. Figueiredo and A. J. Hartemink, Sparse Multinomial Logistic "
              "Regression, PAMI 2005",
    params=(C, FREE_BIAS),
    fit=fit,
    joint=True,
    kernels=False,
    smooth=True,
    routes=("auto",),
    probabilities="softmax",
)
