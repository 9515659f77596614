"""Optimal margin distribution machine (Zhang and Zhou, TKDE 2020).

    P(w) = 1/2 ||w||^2 + sum_i c_i [(1 - theta - g_i)_+^2 + mu (g_i - 1 - theta)_+^2],      g_i = y_i w.x_i,
    c_i = C_i/(1 - theta)^2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.algorithms.dual import fit_of
from marginlinear.registry import Method, Paper

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, Table
    from marginlinear.problem import Problem


def loss(problem: Problem, params: Parameters) -> tuple[FloatArray, Table]:
    C = params["C"] if params["lambda_"] is None else params["lambda_"] / problem.size
    low, high, mu = 1 - params["theta"], 1 + params["theta"], params["mu"]
    band = (low, high), ((2, -2 * low, low * low), (0, 0, 0), (2 * mu, -2 * mu * high, mu * high * high))
    return problem.costs(C / (low * low)), band


METHOD = Method(
    name="odm",
    summary="optimal margin distribution machine",
    objective="1/2 ||w||^2 + C/(1-theta)^2 sum_i [(1-theta-g_i)_+^2 + mu (g_i-1-theta)_+^2]",
    reference="T. Zhang and Z.-H. Zhou, Optimal Margin Distribution Machine, TKDE 2020",
    params=(P.C, P.LAMBDA, P.MU, P.THETA, P.FREE_BIAS),
    fit=fit_of(loss),
    loss=loss,
    joint=False,
    paper=Paper("its text is not at hand"),
)
