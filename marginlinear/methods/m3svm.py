"""Multi-class SVM with maximised minimum margins (Nie, Hao and Wang, AAAI 2024).

    P(W, b) = sum_i C_i sum_{l != y_i} g(1 - t_il) + lambda sum_{j<l} ||w_j - w_l||^p + eps (||W||_F^2 + ||b||^2)
    t_il = (w_{y_i} - w_l).x_i + b_{y_i} - b_l,      g(x) = (x + sqrt(x^2 + delta^2))/2

2/||w_j - w_l|| is the width of the margin between two classes: a large p cares for the smallest one most. C_i are the
weights of rows and classes; C itself is another name of lambda = 1/(2 C k).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear.algorithms import pairwise
from marginlinear.params import BIAS, DELTA
from marginlinear.registry import Method, Paper

if TYPE_CHECKING:
    from marginlinear._typing import Parameters
    from marginlinear.problem import Problem, Run, Solution


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    return pairwise.fit_pairs(problem, params, run, "hinge", params["delta"])


METHOD = Method(
    name="m3svm",
    summary="multi-class SVM with maximised minimum margins",
    objective="sum_i sum_{l != y_i} g(1 - t_il) + lambda sum_{j<l} ||w_j - w_l||^p + eps (||W||_F^2 + ||b||^2), "
              "t_il = (w_{y_i} - w_l).x_i + b_{y_i} - b_l, g(x) = (x + sqrt(x^2 + delta^2))/2, lambda = 1/(2 C k)",
    reference="F. Nie, Z. Hao and R. Wang, Multi-class Support Vector Machine with Maximizing Minimum Margin, "
              "AAAI 2024",
    params=(*pairwise.PARAMS, DELTA),
    fit=fit,
    joint=True,
    kernels=False,
    smooth=True,
    routes=("auto",),
    defaults={BIAS.name: 1.0},
    paper=Paper("eps with its objective, p and lambda in the text on its Figures 3 and 4; it gives no delta",
                {"lambda_": 1e-3, "norm": 4.0, "eps": 1e-6},
                grid="lambda=0.0001:0.0111:0.1,norm=1:1:8"),
)
