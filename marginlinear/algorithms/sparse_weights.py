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
        cost, table = loss(problem, params)
        ratio = params["l1_ratio"]
        l1, l2, free_bias = ratio, 1 - ratio, params["free_bias"]
        if in_memory(problem, run):
            from marginlinear.algorithms.working_sets import SparseFit

            return SparseFit(problem, run, cost, table, l1, l2, free_bias).convex()
        from marginlinear.algorithms import surveys

        return surveys.fit(problem, run, table, cost, "l1", l1, l2, free_bias)

    return fit


def fit_classes(problem: Problem, params: Parameters, run: Run) -> Solution:
    """The same of multinomial logistic regression, all classes at once; also with the parameters `C` and
    `penalty`."""
    import numpy as np

    cost, ratio = problem.costs(params["C"]), params["l1_ratio"]
    penalty = params["penalty"], ratio, 1 - ratio, params["free_bias"]
    # Values that overflow are refused where they are compared.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if in_memory(problem, run):
            from marginlinear.algorithms.sparse_classes import fitted

            return fitted(problem, run, cost, *penalty)
        from marginlinear.algorithms import surveys

        return surveys.fit(problem, run, None, cost, *penalty)


def in_memory(problem: Problem, run: Run) -> bool:
    """Whether the rows are, or are a store that may be: as much as a window."""
    return run.places is None and (problem.rows.pager is None or len(problem.rows.chunks) == 2)
