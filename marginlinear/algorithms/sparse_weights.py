"""The fits of methods with sparse weights; it imports their engine when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marginlinear._typing import Parameters
    from marginlinear.algorithms.dual import FitFunction, Loss
    from marginlinear.problem import Problem, Run, Solution


def sparse_fit_of(loss: Loss) -> FitFunction:
    """The `fit` of a binary method with sparse weights: of a smooth `loss`, as Method has it, with the parameters
    `l1_ratio` and `free_bias`."""
    def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
        from marginlinear.algorithms.working_sets import SparseFit

        ratio = params["l1_ratio"]
        return SparseFit(problem, run, *loss(problem, params), ratio, 1 - ratio, params["free_bias"]).convex()

    return fit
