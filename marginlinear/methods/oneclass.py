"""One-class support vector machine, LIBLINEAR's -s 21 (Scholkopf et al., Neural Computation 2001; Chou, Lin and Lin,
SDM 2020): a half-space with most rows, as far from the origin as can be.

    P(w, rho) = 1/2 ||w||^2 - nu n rho + sum_i c_i (rho - w.x_i)_+,      n = sum_i c_i

    D(a) = -1/2 ||sum_i a_i x_i||^2,      0 <= a_i <= c_i,  sum_i a_i = nu n

c_i being the instance weights. P is taken at the best rho for w, a quantile of the scores, and the best length of both:
-h^2/(2 ||w||^2), h = nu n rho - sum_i c_i (rho - w.x_i)_+; where no h is above 0 the optimum is 0. Pairs of duals are
moved (algorithms/row_pairs.py).

Where that is slow, as where features differ much in size or all rows lie about the origin, it is left for another way:
for one rho the rest is rho^2 times the sum of hinge losses

    min_v 1/2 ||v||^2 + sum_i c_i/rho (1 - v.x_i)_+,      w = rho v,

whose sum of duals, times rho, rises with rho: the rho where that is nu n is found by the secant. Its D is that of the
duals with those between their bounds, or all, moved until they have the sum. `n_outer` counts the values of rho.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from marginlinear import params as P
from marginlinear.algorithms.secant import Secant
from marginlinear.problem import Info, Solution
from marginlinear.registry import Method
from marginlinear.status import STALLED, allowance, status_of

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, State, Table
    from marginlinear.algorithms.dual import MarginFit
    from marginlinear.algorithms.row_pairs import RowPairs
    from marginlinear.problem import Problem, Run

# The first solution's tolerance; later ones have this part of what the certificate lacks, or at least of its tolerance.
FIRST, PART, LEAST = 0.1, 0.1, 0.3
# What rho becomes a part of where the secant leads below 0.
NEARER = 8.0
# So many solutions in a row that bring neither a lower P nor a higher D are the end: what is left is rounding.
IDLE = 8


class Candidate(NamedTuple):
    """Weights at their best length, with their rho."""

    objective: float
    weights: FloatArray | None
    rho: float


def hinge(rho: float) -> Table:
    """(1 - g)_+/rho"""
    return (1,), ((0, -1 / rho, 1 / rho), (0, 0, 0))


class OneClassFit:
    """One fit."""

    # Each from its own route on.
    pairs: RowPairs
    solver: MarginFit
    rho: float
    duals: FloatArray

    def __init__(self, problem: Problem, params: Parameters, run: Run) -> None:
        import numpy as np

        from marginlinear.algorithms.certificate import Budget

        self.problem, self.run = problem, run
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        self.cost = np.array(problem.instance)
        self.sum = params["nu"] * float(self.cost.sum())
        # The best weights of the start and of the secant, and the duals of its best bound.
        self.lowest = Candidate(0.0, None, 0.0)
        self.feasible = np.zeros(len(self.cost))
        self.n_iter, self.pairs, self.solver = 0, None, None  # type: ignore[assignment]  # as above
        # (rho, duals) to begin with.
        self.known = None if run.start is None else (run.start["rho"], np.asarray(run.start["duals"]))

    def solution(self) -> Solution:
        """By pairs, unless another route is asked for; where they are slow, by the secant."""
        if self.run.start is not None:
            self._offer(self.run.start["W"])
        return (self._by_pairs() if self.run.algorithm == "auto" else None) or self._by_secant()

    def _offer(self, W: FloatArray) -> None:
        """Weights that may be better than those of their duals, as of a secant that was stopped."""
        from marginlinear.algorithms.row_pairs import RowPairs

        best = RowPairs(self.problem.rows, self.cost, self.sum, self.run.threads).best_at(W)
        self.lowest = Candidate(best.objective, best.length * W.reshape(-1, 1), best.length * best.rho)

    def _by_pairs(self) -> Solution | None:
        """The Solution; None where pairs are slow."""
        import numpy as np

        from marginlinear.algorithms.fixed_sums import moved_to
        from marginlinear.algorithms.row_pairs import RowPairs

        run, budget = self.run, self.budget
        self.pairs = pairs = RowPairs(self.problem.rows, self.cost, self.sum, run.threads)
        if self.known is None:
            pairs.begin()
        else:
            pairs.take(next(moved_to(self.sum, self.known[1], self.cost)))
        run.enlist(self)
        ended = pairs.until(run.tol, budget)
        best, self.n_iter = pairs.best, pairs.n_iter
        rho = best.length * best.rho
        if not ended:
            self.known = (rho, pairs.duals) if rho > 0 else self.known
            return None
        found = Candidate(best.objective, best.length * pairs.weights.reshape(-1, 1), rho)
        objective, weights, rho = min(found, self.lowest, key=lambda one: one.objective)
        assert weights is not None
        certificate = objective - pairs.bound
        status, reason = status_of(certificate, objective, run.tol, ended)
        info = Info(
            status=status, reason=reason, algorithm="pairs", n_iter=pairs.n_iter, n_outer=0, objective=objective,
            bound=pairs.bound, certificate=certificate, n_support=int(np.count_nonzero(pairs.duals)),
            seconds=budget.seconds, tol=run.tol, history=budget.history)
        return Solution(weights, info, self.state(), offset=np.array([-rho]))

    def state(self) -> State:
        """The duals so far, and the rho where the secant would begin: see Run.fits."""
        if self.solver is not None:
            state = self.solver.state()
            if self.lowest.weights is None:
                return {**state, "duals": self.rho * state["duals"], "rho": self.rho}
            return {**state, "W": self.lowest.weights[:, 0], "duals": self.feasible, "rho": self.rho}
        pairs, best = self.pairs, self.pairs.best
        rho = 0.0 if best is None else best.length * best.rho
        return {"duals": pairs.duals, "cost": self.cost, "W": pairs.weights, "kappa": 0.0, "before": None,
                "rho": rho if rho > 0 else 1.0}

    def _by_secant(self) -> Solution:
        import numpy as np

        from marginlinear._core.margin_cd import table_of
        from marginlinear.algorithms.fixed_sums import moved_to

        self._begin_secant()
        solver, engine, n_outer = self.solver, self.solver.engine, 0
        bound, tol, idle = -math.inf, self.run.tol, 0
        search = Secant(self.sum / self.rho)
        found = self.duals
        while True:
            engine.take_losses([table_of(*hinge(self.rho))])
            engine.resume({"duals": found / self.rho, "W": None, "kappa": 0.0})
            inner = solver.convex()
            n_outer, idle, found = n_outer + 1, idle + 1, self.rho * inner.state["duals"]
            candidate = self._candidate(inner)
            if candidate.objective < self.lowest.objective or self.lowest.weights is None:
                self.lowest, idle = candidate, 0
            lowest = self.lowest
            for moved in moved_to(self.sum, found, self.cost):
                half = engine.iterates.sqnorm_of(engine.weights_of(moved)) / 2
                if -half > bound:
                    bound, self.feasible, idle = -half, moved, 0
            certificate = lowest.objective - bound
            self.budget.record(engine.n_iter, lowest.objective, bound, certificate)
            stopped = solver.budget.exhausted(engine.n_iter) or (STALLED if idle >= IDLE else None)
            if stopped or certificate <= allowance(tol, lowest.objective):
                break
            lacking: float = inner.info.certificate  # type: ignore[assignment]  # a dual fit has one
            # f is known to within rho^2 times the certificate, and its slope so far.
            error = self.rho * math.sqrt(2 * search.slope * max(0.0, lacking))
            rho = search.after(self.rho, float(found.sum()) - self.sum, error)
            part = max(PART * certificate, LEAST * allowance(tol, lowest.objective))
            part = min(part / self.rho / self.rho / max(1.0, abs(inner.info.objective)), FIRST)
            if rho == self.rho:
                part = min(part, PART * solver.run.tol)
            self.rho = rho if rho > 0 else self.rho / NEARER
            solver.renew(part)
        status, reason = status_of(certificate, lowest.objective, tol, stopped or STALLED)
        info = inner.info._replace(
            status=status, reason=reason, n_iter=engine.n_iter, n_outer=n_outer, objective=lowest.objective,
            bound=bound, certificate=certificate, tol=tol, seconds=self.budget.seconds, history=self.budget.history,
            n_support=int(np.count_nonzero(self.feasible)))
        assert lowest.weights is not None
        state = {**inner.state, "W": lowest.weights[:, 0], "duals": found, "rho": self.rho}
        return Solution(lowest.weights, info, state, offset=np.array([-lowest.rho]))

    def _begin_secant(self) -> None:
        import numpy as np

        from marginlinear.algorithms.dual import MarginFit
        from marginlinear.algorithms.fixed_sums import threshold

        run, limit = self.run, self.run.time_limit
        left = None if limit is None else max(0.0, limit - self.budget.seconds)
        # Who goes on from a stop begins with pairs of the rows as they are.
        run = run._replace(tol=max(run.tol, FIRST), time_limit=left, progress=None, start=None, fits=None,
                           overwrite_rows=False)
        self.solver = MarginFit(self.problem, run, self.cost, [hinge(1.0)])
        engine = self.solver.engine
        engine.n_iter = self.n_iter
        self.rho = 1.0
        self.run.enlist(self)
        if self.known is not None:
            self.rho, self.duals = self.known
            return
        # The weights of equal duals are the best ones where all rows lie alike; rows below the best rho for them have
        # duals.
        W = engine.weights_of(self.sum / float(self.cost.sum()) * self.cost)
        scores = engine.margins_of(W)
        rho, h = threshold(scores, self.cost, self.sum)
        square = engine.iterates.sqnorm_of(W)
        self.rho = rho * (h / square) if h > 0 and rho > 0 and square > 0 else 1.0
        self.duals = np.where(scores < rho, self.cost, 0.0)

    def _candidate(self, inner: Solution) -> Candidate:
        """The Candidate of the direction of these weights."""
        import numpy as np

        from marginlinear.algorithms.row_pairs import best_of

        engine = self.solver.engine
        W = np.array(engine.iterates.vector(False))
        best = best_of(engine.margins_of(W), self.cost, self.sum, engine.iterates.sqnorm_of(W))
        return Candidate(best.objective, best.length * inner.weights, best.length * best.rho)


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    import numpy as np

    def steps(problem: Problem, run: Run) -> OneClassFit:
        """Without a bias: the offset is -rho."""
        return OneClassFit(problem._replace(rows=problem.rows.with_bias(-1.0)), params, run)

    # Values that overflow are refused where they are compared.
    with np.errstate(over="ignore", invalid="ignore"):
        if not problem.rows.is_gram:
            return OneClassFit(problem, params, run).solution()
        from marginlinear.algorithms.factored import convex
        from marginlinear.algorithms.fixed_sums import HalfSpacePairs

        if run.algorithm != "auto":
            raise ValueError(f"algorithm = {run.algorithm!r} does not go with a kernel and without labels: give 'auto'")
        cost = np.array(problem.instance)
        return convex(HalfSpacePairs(problem, run, cost, params["nu"] * float(cost.sum())), steps)


METHOD = Method(
    name="oneclass",
    summary="one-class support vector machine",
    objective="1/2 ||w||^2 - nu m rho + sum_i (rho - w.x_i)_+",
    reference="H.-Y. Chou, P.-Y. Lin and C.-J. Lin, Dual Coordinate-Descent Methods for Linear One-Class SVM and SVDD, "
              "SDM 2020",
    params=(P.NU,),
    fit=fit,
    joint=False,
    liblinear=21,
    stores=False,
    one_class=True,
)
