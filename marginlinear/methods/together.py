"""Plain sweeps of binary problems over the same rows, together: what they certify is done, the rest goes on by itself.

Problems of text end after a few sweeps, and a sweep of many together costs a fraction of theirs one by one. What
promises a long run, or has met a limit, is handed to a descent of its own, from the duals it has.
"""

from marginlinear._core.stop import status_of
from marginlinear.problem import CONVERGED, MAX_ITER, Info
from marginlinear.threads import Cancelled

# A check that the schedule has not asked for is made where this part of the problems promises to end.
ENOUGH = 0.25


def groups(count):
    """Ranges of columns that are swept together, of even sizes."""
    from marginlinear._core.columns_cd import WIDTH

    number = -(-count // WIDTH)
    return [slice(count * at // number, count * (at + 1) // number) for at in range(number)]


class Together:
    """One group: problems of `codes` (classes x columns of +1 and -1) with the costs and the table of `loss`.

    The weights of those that are solved go to `weights`, a view with as many columns.
    """

    def __init__(self, problem, codes, loss, run, budget, weights, threads):
        from marginlinear._core.columns_cd import ColumnsCD
        from marginlinear._core.margin_cd import table_of

        self.cost, (knots, parts) = loss
        self.run, self.budget, self.weights = run, budget, weights
        self.engine = ColumnsCD(problem.rows, problem.y, codes, self.cost, table_of(knots, parts), seed=run.seed,
                                threads=threads, look=self._look)

    def _look(self):
        if self.budget.cancel is not None and self.budget.cancel.is_set():
            raise Cancelled

    def fit(self):
        """Of each problem (info, state); info is None where it goes on by itself, from this state."""
        import numpy as np

        from marginlinear._core.descent import FIRST_CHECK, NEGLECT, STRIDE

        engine, tol, next_check = self.engine, self.run.tol, FIRST_CHECK
        gaps, tried, objective, n_iter = [], np.inf, np.full(engine.k, np.inf), np.zeros(engine.k, dtype=int)
        while len(engine.active) and not self.budget.exhausted(engine.n_iter):
            engine.sweep()
            n_iter[engine.active] = engine.n_iter
            gaps = [*gaps[-2:], engine.gap]
            # The sums were taken before the updates: the last sweep's rate tells what they left.
            estimate = engine.gap * (rate_of(gaps[-2], engine.gap) if len(gaps) > 1 else 1.0)
            promising = (estimate <= tol * np.maximum(1.0, engine.met)) & (estimate <= 0.8 * tried)
            if engine.n_iter < next_check and promising[engine.active].sum() < ENOUGH * len(engine.active):
                continue
            next_check = engine.n_iter + max(FIRST_CHECK, engine.n_iter // STRIDE)
            tried = np.where(promising, estimate, tried)
            primal, bound = engine.primal(), engine.dual()
            allowed = tol * np.maximum(1.0, primal)
            done = primal - bound <= allowed
            ended = engine.active[(done | slow_by(gaps, allowed))[engine.active]]
            objective[ended] = np.where(done, primal, np.inf)[ended]
            engine.neglect(NEGLECT * allowed)
            engine.retire(ended)
        self.weights[:] = engine.W
        engine.refresh()
        bounds, duals = engine.dual(), engine.duals.T.copy()
        return [self._outcome(float(objective[at]), float(bounds[at]), int(n_iter[at]), duals[at], self.weights[:, at],
                              [float(gap[at]) for gap in gaps]) for at in range(engine.k)]

    def _outcome(self, objective, bound, n_iter, duals, weights, gaps):
        import numpy as np

        state = {"duals": duals, "cost": self.cost, "W": weights, "kappa": 0.0, "before": None}
        certificate = objective - bound
        status = status_of(certificate, objective, self.run.tol, MAX_ITER)
        if status != CONVERGED:
            # Plain sweeps go on where these ended; what W differs by from the weights of the duals is rounding.
            return None, {**state, "W": None, "n_iter": n_iter, "gaps": gaps}
        return Info(status=status, algorithm="cd", n_iter=n_iter, n_outer=0, objective=objective, bound=bound,
                    certificate=certificate, n_support=int(np.count_nonzero(duals)), seconds=self.budget.seconds,
                    tol=self.run.tol), state


def rate_of(before, now):
    """Of the sums of two sweeps, at most 1."""
    import numpy as np

    return np.where(before > now, now / np.where(before > now, before, 1.0), 1.0)


def slow_by(gaps, allowed):
    """Which problems promise, by the rate of the last sweeps, more than PATIENCE sweeps to `allowed`."""
    import numpy as np

    from marginlinear._core.descent import PATIENCE

    if len(gaps) < 3:
        return np.zeros(len(allowed), dtype=bool)
    before, now = gaps[0], gaps[-1]
    finite = (now <= before) & (before > 0) & (now > allowed)
    rate = np.where(finite, np.sqrt(now / np.where(finite, before, 1.0)), 1.0)
    steps = np.log(allowed / np.where(finite, now, 1.0)) / np.minimum(-1e-300, np.log(rate))
    return (now > allowed) & (~finite | (steps > PATIENCE))
