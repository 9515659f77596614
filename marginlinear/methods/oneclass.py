"""One-class support vector machine, LIBLINEAR's -s 21 (Scholkopf et al., Neural Computation 2001; Chou, Lin and Lin,
SDM 2020): a half-space with most rows, as far from the origin as can be.

    P(w, rho) = 1/2 ||w||^2 - nu n rho + sum_i c_i (rho - w.x_i)_+,      n = sum_i c_i

    D(a) = -1/2 ||sum_i a_i x_i||^2,      0 <= a_i <= c_i,  sum_i a_i = nu n

c_i being the instance weights. For one rho the rest is rho^2 times the sum of hinge losses

    min_v 1/2 ||v||^2 + sum_i c_i/rho (1 - v.x_i)_+,      w = rho v,

whose sum of duals, times rho, rises with rho: the rho where that is nu n is found by the secant. P is taken at the best
rho for w, a quantile of the scores, and the best length of both: -h^2/(2 ||w||^2), h = nu n rho - sum_i c_i (rho -
w.x_i)_+; where no h is above 0 the optimum is 0. D is that of the duals with those between their bounds, or all, moved
until they have the sum. `n_outer` counts the values of rho.
"""

import math
from collections import namedtuple

from marginlinear import params as P
from marginlinear.algorithms.dual import MarginFit
from marginlinear.algorithms.secant import Secant
from marginlinear.problem import Solution
from marginlinear.registry import Method
from marginlinear.status import STALLED, allowance, status_of

# The first solution's tolerance; later ones have this part of what the certificate lacks, or at least of its tolerance.
FIRST, PART, LEAST = 0.1, 0.1, 0.3
# What rho becomes a part of where the secant leads below 0.
NEARER = 8.0
# So many solutions in a row that bring neither a lower P nor a higher D are the end: what is left is rounding.
IDLE = 8

Best = namedtuple("Best", "objective weights rho W")


def hinge(rho):
    """(1 - g)_+/rho"""
    return (1,), ((0, -1 / rho, 1 / rho), (0, 0, 0))


class OneClassFit:
    """One fit."""

    def __init__(self, problem, params, run):
        import numpy as np

        from marginlinear.algorithms.certificate import Budget
        from marginlinear.algorithms.fixed_sums import threshold

        self.run, self.told = run, Budget(None, None, run.progress)
        self.cost = np.array(problem.instance)
        self.sum = params["nu"] * float(self.cost.sum())
        run = run._replace(tol=max(run.tol, FIRST), progress=None)
        self.rho = 1.0
        self.solver = MarginFit(problem, run, self.cost, [hinge(self.rho)])
        engine = self.solver.engine
        if run.start is None:
            # The weights of equal duals are the best ones where all rows lie alike; rows below the best rho for them
            # have duals.
            W = engine.weights_of(params["nu"] * self.cost)
            scores = engine.margins_of(W)
            rho, h = threshold(scores, self.cost, self.sum)
            square = engine.iterates.sqnorm_of(W)
            self.rho = rho * (h / square) if h > 0 and rho > 0 and square > 0 else 1.0
            self.duals = np.where(scores < rho, self.cost, 0.0)
        else:
            self.rho, self.duals = run.start["rho"], np.asarray(run.start["duals"])

    def solution(self):
        import numpy as np

        from marginlinear._core.margin_cd import table_of

        solver, engine, n_outer = self.solver, self.solver.engine, 0
        best, bound, duals, tol, idle = Best(0.0, None, 0.0, None), -math.inf, None, self.run.tol, 0
        search = Secant(self.sum / self.rho)
        found = self.duals
        while True:
            engine.take_losses([table_of(*hinge(self.rho))])
            engine.resume({"duals": found / self.rho, "W": None, "kappa": 0.0})
            inner = solver.convex()
            n_outer, idle, found = n_outer + 1, idle + 1, self.rho * inner.state["duals"]
            candidate = self._primal(inner)
            if candidate.objective < best.objective or best.weights is None:
                best, idle = candidate, 0
            for moved in self._feasible(found):
                half = engine.iterates.sqnorm_of(engine.weights_of(moved)) / 2
                if -half > bound:
                    bound, duals, idle = -half, moved, 0
            certificate = best.objective - bound
            self.told.record(engine.n_iter, best.objective, bound, certificate)
            stopped = solver.budget.exhausted(engine.n_iter) or (STALLED if idle >= IDLE else None)
            if stopped or certificate <= allowance(tol, best.objective):
                break
            # f is known to within rho^2 times the certificate, and its slope so far.
            error = self.rho * math.sqrt(2 * search.slope * max(0.0, inner.info.certificate))
            rho = search.after(self.rho, float(found.sum()) - self.sum, error)
            part = max(PART * certificate, LEAST * allowance(tol, best.objective))
            part = min(part / self.rho / self.rho / max(1.0, abs(inner.info.objective)), FIRST)
            if rho == self.rho:
                part = min(part, PART * solver.run.tol)
            self.rho = rho if rho > 0 else self.rho / NEARER
            solver.renew(part)
        status, reason = status_of(certificate, best.objective, tol, stopped or STALLED)
        info = inner.info._replace(
            status=status, reason=reason, n_iter=engine.n_iter, n_outer=n_outer, objective=best.objective, bound=bound,
            certificate=certificate, tol=tol, seconds=self.told.seconds, history=self.told.history,
            n_support=int(np.count_nonzero(duals)))
        state = {**inner.state, "W": best.W, "duals": found, "rho": self.rho}
        return Solution(best.weights, info, state, offset=np.array([-best.rho]))

    def _primal(self, inner):
        """The Best of the direction of these weights."""
        import numpy as np

        from marginlinear.algorithms.fixed_sums import threshold

        engine = self.solver.engine
        W = np.array(engine.iterates.vector(False))
        square = engine.iterates.sqnorm_of(W)
        rho, h = threshold(engine.margins_of(W), self.cost, self.sum)
        length = h / square if h > 0 and square > 0 else 0.0
        return Best(-0.5 * length * length * square, length * inner.weights, length * rho, W)

    def _feasible(self, duals):
        """The duals with the sum that they must have: once those between their bounds moved as far as that goes, which
        changes D least, and then all; once all, which leaves weights of 0 where they are. Each goes the same part of
        its way to a bound."""
        import numpy as np

        cost, everyone = self.cost, np.ones(len(duals), dtype=bool)
        duals = np.clip(duals, 0.0, cost)
        for groups in (((duals > 0) & (duals < cost), everyone), (everyone,)):
            moved = duals
            for which in groups:
                missing = self.sum - math.fsum(moved)
                way = (cost - moved if missing > 0 else moved) * which
                room = float(way.sum())
                if room > 0:
                    moved = moved + way * (math.copysign(1.0, missing) * min(1.0, abs(missing) / room))
            yield moved


def fit(problem, params, run):
    import numpy as np

    # Values that overflow are refused where they are compared.
    with np.errstate(over="ignore", invalid="ignore"):
        if not problem.rows.is_gram:
            return OneClassFit(problem, params, run).solution()
        from marginlinear.algorithms.fixed_sums import HalfSpacePairs

        if run.algorithm != "auto":
            raise ValueError(f"algorithm = {run.algorithm!r} does not go with a kernel and without labels: give 'auto'")
        cost = np.array(problem.instance)
        return HalfSpacePairs(problem, run, cost, params["nu"] * float(cost.sum())).convex()


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
