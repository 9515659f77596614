"""Plain sweeps of a batch of binary problems over the same rows. What they do not certify goes on by itself.

Problems of text end after a few sweeps, and a sweep of a batch costs a fraction of those one by one. What promises a
long run, or has met a limit, is handed to a descent of its own, from the duals it has.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from marginlinear._core.batch_cd import WIDTH, BatchMarginCD
from marginlinear._core.margin_cd import table_of
from marginlinear.algorithms.certificate import OF_ALLOWED, scheduled_after
from marginlinear.algorithms.descent import slow
from marginlinear.problem import Info
from marginlinear.status import CONVERGED, allowance, status_of

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Int8Array, State, Table
    from marginlinear.algorithms.certificate import Budget
    from marginlinear.problem import Problem, Run

# A check that the schedule has not asked for is made where this part of the problems promises to end.
ENOUGH = 0.25
# So few problems that are left are quicker one by one.
FEW = 2


def groups(count: int) -> list[tuple[int, int]]:
    """(first, stop) of each batch of columns, of even sizes."""
    number = -(-count // WIDTH)
    return [(count * batch // number, count * (batch + 1) // number) for batch in range(number)]


class Batch:
    """One batch: problems of `codes` (classes x columns of +1 and -1) with the costs and the table of `loss`.

    The weights of those that are solved go to `weights`, an array with as many columns.
    """

    def __init__(self, problem: Problem, codes: Int8Array, loss: tuple[FloatArray, Table], run: Run, budget: Budget,
                 weights: FloatArray, threads: int) -> None:
        self.cost, (knots, parts) = loss
        self.run, self.budget, self.weights = run, budget, weights
        self.engine = BatchMarginCD(problem.rows, problem.y, codes, self.cost, table_of(knots, parts), seed=run.seed,
                                threads=threads, cancel=budget.cancel)
        self.few = min(FEW, self.engine.k - 1)
        # Of problems that have ended: objective, infinite where it is not certified, sweeps, and last gaps.
        self.ends: list[tuple[float, int, list[float]]] = [None] * self.engine.k  # type: ignore[list-item]  # as yet

    def fit(self) -> list[tuple[Info | None, State]]:
        """Of each problem (info, state); info is None where it goes on by itself, from this state."""
        engine, next_check = self.engine, scheduled_after(0)
        gaps: list[list[float]] = []
        tried = [math.inf] * engine.k
        while len(engine.active) > self.few and not self.budget.exhausted(engine.n_iter):
            engine.sweep()
            # The sum was taken before the updates: the last sweep's rate tells what they left.
            estimates = [gap * min(1.0, gap / before) if before > 0 else gap
                         for gap, before in zip(engine.gap, gaps[-1] if gaps else [0.0] * engine.k, strict=True)]
            gaps.append(engine.gap)
            promising = [j for j in engine.active if estimates[j] <= 0.8 * tried[j]
                         and estimates[j] <= self.run.tol * max(1.0, engine.objective_seen[j])]
            if engine.n_iter < next_check and len(promising) < ENOUGH * len(engine.active):
                continue
            next_check = scheduled_after(engine.n_iter)
            for j in promising:
                tried[j] = estimates[j]
            self._check(gaps[-3:])
        for j in engine.active:
            self.ends[j] = math.inf, engine.n_iter, [gap[j] for gap in gaps[-3:]]
        engine.write(self.weights)
        engine.refresh()
        return [self._outcome(*self.ends[j], bound, engine.duals_of(j), self.weights[:, j])
                for j, bound in enumerate(engine.dual())]

    def _check(self, gaps: list[list[float]]) -> None:
        """Exact values, by a pass over the rows: what is certified ends here, and what promises a long run."""
        engine, ended = self.engine, []
        primal, bound = engine.primal(), engine.dual()
        allowed = [allowance(self.run.tol, value) for value in primal]
        for j in engine.active:
            own = [gap[j] for gap in gaps]
            certified = primal[j] - bound[j] <= allowed[j]
            if certified or not math.isfinite(primal[j]) or (len(own) == 3 and slow(own, allowed[j])):
                self.ends[j] = primal[j] if certified else math.inf, engine.n_iter, own
                ended.append(j)
        engine.set_skip_tolerance([OF_ALLOWED * value for value in allowed])
        engine.retire(ended)

    def _outcome(self, objective: float, n_iter: int, gaps: list[float], bound: float, duals: FloatArray,
                 weights: FloatArray) -> tuple[Info | None, State]:
        state = {"duals": duals, "cost": self.cost, "W": weights, "kappa": 0.0, "before": None}
        certificate = objective - bound
        if status_of(certificate, objective, self.run.tol) != (CONVERGED, None):
            # Plain sweeps go on where these ended; what W differs by from the weights of the duals is rounding.
            return None, {**state, "W": None, "n_iter": n_iter, "gaps": gaps}
        return Info(status=CONVERGED, algorithm="cd", n_iter=n_iter, n_outer=0, objective=objective, bound=bound,
                    certificate=certificate, n_support=int(np.count_nonzero(duals)), seconds=self.budget.seconds,
                    tol=self.run.tol), state
