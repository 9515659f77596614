"""Over a kernel, where pairs leave a fit with an offset to Newton steps: over the rows of a factor, K = L L'.

Scores are L w + b, and w = L' a for the coefficients a of the duals: the problem is that of the same machine over
features, one for each column of L, and a bias feature. Where w is not of the duals, w = L'(a + c), c is 0 but on the
rows of which L is triangular.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from marginlinear.algorithms.factored_newton import factor_of, is_factor
from marginlinear.data.arrays import as_rows
from marginlinear.threads import aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._typing import FloatArray
    from marginlinear.algorithms.pairs import PairFit
    from marginlinear.problem import Problem, Run, Solution

# Of what the certificate is allowed, the steps' own part: beside it there is rounding.
PART = 0.9


class Steps(Protocol):
    """A fit over features; `feasible` are the duals of the best bound, at its end."""

    feasible: FloatArray

    def solution(self) -> Solution: ...


def convex(pairs: PairFit, steps: Callable[[Problem, Run], Steps]) -> Solution:
    """What these pairs come to, or, where they leave the fit to them, the steps."""
    solution = pairs.convex()
    if solution is not None:
        return solution
    problem, rows = pairs.problem, pairs.problem.rows
    rows.complete()
    K = np.asarray(rows.arrays)
    L, pivots = factor_of(K)
    if not is_factor(L, K):
        # The kernel is not positive semidefinite: pairs go on.
        pairs.crawl, pairs.run = math.inf, pairs.run._replace(start=pairs.state())
        return convex(pairs, steps)
    start = pairs.start_of_steps()
    if start is not None:
        start["W"] = np.append(aside(np.matmul, pairs.signs * start["duals"], L), 0.0)
    run = pairs.budget.left(pairs.run, pairs.n_iter)._replace(
        tol=PART * pairs.run.tol, algorithm="newton", start=start, fits=None)
    fit = steps(problem._replace(rows=as_rows(L, 1.0)), run)
    solution = fit.solution()
    signed = pairs.signs * fit.feasible

    def coefficients() -> FloatArray:
        apart = solution.weights[:L.shape[1], 0] - aside(np.matmul, signed, L)
        a = signed.copy()
        a[pivots] += solve_triangular(L[pivots], apart, trans=1, lower=True, check_finite=False)
        return a

    return pairs.told(solution, fit.feasible, coefficients)
