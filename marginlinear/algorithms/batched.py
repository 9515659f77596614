"""Plain sweeps of binary problems over the same rows, together: what they certify is done, the rest goes on by itself.

Problems of text end after a few sweeps, and a sweep of many together costs a fraction of theirs one by one. What
promises a long run, or has met a limit, is handed to a descent of its own, from the duals it has.
"""

import math

import numpy as np

from marginlinear.problem import Info
from marginlinear.status import CONVERGED, MAX_ITER, allowance, status_of

# A check that the schedule has not asked for is made where this part of the problems promises to end.
ENOUGH = 0.25
# So few problems that are left are quicker one by one.
FEW = 2


def groups(count):
    """(first, stop) of the columns that are swept together, of even sizes."""
    from marginlinear._core.batch_cd import WIDTH

    number = -(-count // WIDTH)
    return [(count * at // number, count * (at + 1) // number) for at in range(number)]


class Together:
    """One group: problems of `codes` (classes x columns of +1 and -1) with the costs and the table of `loss`.

    The weights of those that are solved go to `weights`, an array with as many columns.
    """

    def __init__(self, problem, codes, loss, run, budget, weights, threads):
        from marginlinear._core.batch_cd import ColumnsCD
        from marginlinear._core.margin_cd import table_of

        self.cost, (knots, parts) = loss
        self.run, self.budget, self.weights = run, budget, weights
        self.engine = ColumnsCD(problem.rows, problem.y, codes, self.cost, table_of(knots, parts), seed=run.seed,
                                threads=threads, cancel=budget.cancel)
        self.few = min(FEW, self.engine.k - 1)
        # Of problems that have ended: objective, infinite where it is not certified, sweeps, and last gaps.
        self.ends = [None] * self.engine.k

    def fit(self):
        """Of each problem (info, state); info is None where it goes on by itself, from this state."""
        from marginlinear.algorithms.descent import FIRST_CHECK, NEGLECT, STRIDE

        engine, next_check = self.engine, FIRST_CHECK
        gaps, tried = [], [math.inf] * engine.k
        while len(engine.active) > self.few and not self.budget.exhausted(engine.n_iter):
            engine.sweep()
            # The sum was taken before the updates: the last sweep's rate tells what they left.
            estimates = [gap * min(1.0, gap / before) if before > 0 else gap
                         for gap, before in zip(engine.gap, gaps[-1] if gaps else [0.0] * engine.k, strict=True)]
            gaps.append(engine.gap)
            promising = [at for at in engine.active if estimates[at] <= 0.8 * tried[at]
                         and estimates[at] <= self.run.tol * max(1.0, engine.met[at])]
            if engine.n_iter < next_check and len(promising) < ENOUGH * len(engine.active):
                continue
            next_check = engine.n_iter + max(FIRST_CHECK, engine.n_iter // STRIDE)
            for at in promising:
                tried[at] = estimates[at]
            self._check(gaps[-3:], NEGLECT)
        for at in engine.active:
            self.ends[at] = math.inf, engine.n_iter, [gap[at] for gap in gaps[-3:]]
        engine.write(self.weights)
        engine.refresh()
        return [self._outcome(*self.ends[at], bound, engine.duals_of(at), self.weights[:, at])
                for at, bound in enumerate(engine.dual())]

    def _check(self, gaps, neglected):
        """Exact values, by a pass over the rows: what is certified ends here, and what promises a long run."""
        from marginlinear.algorithms.descent import slow

        engine, ended = self.engine, []
        primal, bound = engine.primal(), engine.dual()
        allowed = [allowance(self.run.tol, value) for value in primal]
        for at in engine.active:
            own = [gap[at] for gap in gaps]
            certified = primal[at] - bound[at] <= allowed[at]
            if certified or not math.isfinite(primal[at]) or (len(own) == 3 and slow(own, allowed[at])):
                self.ends[at] = primal[at] if certified else math.inf, engine.n_iter, own
                ended.append(at)
        engine.neglect([neglected * value for value in allowed])
        engine.retire(ended)

    def _outcome(self, objective, n_iter, gaps, bound, duals, weights):
        state = {"duals": duals, "cost": self.cost, "W": weights, "kappa": 0.0, "before": None}
        certificate = objective - bound
        status = status_of(certificate, objective, self.run.tol, MAX_ITER)
        if status != CONVERGED:
            # Plain sweeps go on where these ended; what W differs by from the weights of the duals is rounding.
            return None, {**state, "W": None, "n_iter": n_iter, "gaps": gaps}
        return Info(status=status, algorithm="cd", n_iter=n_iter, n_outer=0, objective=objective, bound=bound,
                    certificate=certificate, n_support=int(np.count_nonzero(duals)), seconds=self.budget.seconds,
                    tol=self.run.tol), state
