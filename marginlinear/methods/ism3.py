"""Logistic losses with the regulariser of M3SVM: ISM3 (Nie, Hao and Wang, AAAI 2024, appendix).

    P(W, b) = sum_i C_i loss(t_i) + lambda sum_{j<l} ||w_j - w_l||^p + eps (||W||_F^2 + ||b||^2)
    t_il = (w_{y_i} - w_l).x_i + b_{y_i} - b_l

    logistic    loss(t) = sum_{l != y} log(1 + exp(-t_l))
    softmax     loss(t) = log(1 + sum_{l != y} exp(-t_l))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear.algorithms import pairwise
from marginlinear.methods.m3svm import METHOD as M3SVM
from marginlinear.params import LOSS
from marginlinear.registry import Method, Paper

if TYPE_CHECKING:
    from marginlinear._typing import Parameters
    from marginlinear.problem import Problem, Run, Solution


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    return pairwise.fit_pairs(problem, params, run, params["loss"])


METHOD = Method(
    name="ism3",
    summary="logistic losses with the regulariser of m3svm",
    objective="sum_i loss(t_i) + lambda sum_{j<l} ||w_j - w_l||^p + eps (||W||_F^2 + ||b||^2), "
              "t_il = (w_{y_i} - w_l).x_i + b_{y_i} - b_l, lambda = 1/(2 C k)",
    reference=f"{M3SVM.reference}, appendix",
    params=(*pairwise.PARAMS, LOSS),
    fit=fit,
    joint=True,
    kernels=False,
    smooth=True,
    routes=("auto",),
    defaults=M3SVM.defaults,
    paper=Paper("its Table 4 has p = 4, and does not say which lambda"),
)
