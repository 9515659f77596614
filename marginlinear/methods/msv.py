"""Margin semi-variance: the margins below their mean brought to it, the aim of `msvmav` as a convex problem.

    P(w) = 1/2 ||w||^2 - lambda gbar + sum_i C_i (gbar - g_i)_+^2,      g_i = y_i w.x_i,  gbar = sum_i p_i g_i

p_i being the instance weights over their sum, and lambda that sum. With r = sum_i p_i y_i x_i, gbar = <r, w>, and the
dual is

    D(a) = -1/2 ||u||^2 - sum_i a_i^2/(4 C_i),   u = sum_i a_i y_i x_i + (lambda - sum_i a_i) r,   a_i >= 0

lambda only sets the length of w: P is homogeneous in (w, sqrt lambda). At the best length of w, and of a with T in
place of lambda,

    P = -lambda^2 gbar^2/(4 Q),   Q = 1/2 ||w||^2 + sum_i C_i (gbar - g_i)_+^2
    D = -lambda^2 (1/2 ||u||^2 + sum_i a_i^2/(4 C_i))/T^2

so that w is as long as it gets where Q is least among the w with gbar = 1. With a number nu for that constraint,

    min_w 1/2 ||w||^2 + sum_i C_i (1 - g_i)_+^2 - nu lambda gbar

is a sum of losses of the margin; gbar at its solution rises with nu, and the nu where it is 1 is found by the secant.
C -> 0 gives the direction in which the mean margin is largest (`mamc`), C -> infinity the least semi-variance over the
squared mean, which is what `msvmav` pursues. `n_outer` counts the values of nu.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from marginlinear import params as P
from marginlinear.algorithms.dual import MarginFit
from marginlinear.algorithms.secant import Secant
from marginlinear.problem import Solution
from marginlinear.registry import Method
from marginlinear.status import STALLED, allowance, status_of

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters, State, Table
    from marginlinear.problem import Info, Problem, Run

# ||r|| that is no more than this part of the root mean square of the rows' norms is 0.
NOTHING = 1e-14
# The first solution's tolerance; later ones have this part of what the certificate lacks, or at least of its tolerance.
FIRST, PART, LEAST = 0.1, 0.1, 0.3
# The first step of nu is by a slope that is so many times its lower bound.
NEARER = 10.0
# So many solutions in a row that bring neither a lower P nor a higher D are the end: what is left is rounding.
IDLE = 8


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    import numpy as np

    # Values that overflow are refused where they are compared.
    with np.errstate(over="ignore", invalid="ignore"):
        return SemiVarianceFit(problem, params, run).solution()


class Best(NamedTuple):
    """The best weights so far, at their best length; W before it."""

    objective: float
    weights: FloatArray
    W: FloatArray
    info: Info


class SemiVarianceFit:
    """One fit.

    Attributes
    ----------
    nu : float
    solver : MarginFit
        Of the sum of losses at this nu.
    """

    def __init__(self, problem: Problem, params: Parameters, run: Run) -> None:
        import numpy as np

        from marginlinear.algorithms.certificate import Budget

        problem.costs(params["C"])
        factors, group = np.unique(problem.factor, return_inverse=True)
        self.costs = params["C"] * factors
        self.instance, self.size = np.array(problem.instance), problem.size
        self.cost = self.instance * self.costs[group]
        # At other costs nu may be far away, and the search come from there in steps that bring nothing.
        if run.start is not None and not np.array_equal(run.start.get("costs"), self.cost):
            run = run._replace(start=None)
        self.nu = 0.0 if run.start is None else run.start["nu"]
        self.run, self.told = run, Budget(None, None, run.progress)
        run = run._replace(tol=max(run.tol, FIRST), progress=None, fits=None)
        self.solver = MarginFit(problem, run, self.instance, self._losses(), group=group.astype(np.int32))
        engine = self.solver.engine
        # <r, y_i x_i>, and ||r||^2
        self.along = engine.margins_of(engine.weights_of(self.instance / self.size))
        self.square = float(self.instance @ self.along) / self.size
        whole = float(self.instance @ engine.rows.sqnorms()) / self.size
        if whole > 0 and not self.square > NOTHING * NOTHING * whole:
            raise ValueError("msv: the mean of y_i x_i over the rows is 0, so there is no margin to raise: both "
                             "classes have the same mean; give a bias (bias=1, -B 1), or other features")
        self.best: Best | None = None
        self.run.enlist(self)

    def _losses(self) -> list[Table]:
        """C_i (1 - g)_+^2 - nu p_i g, over the instance weight, of each class weight: the two pieces' slopes at 1 are
        the same number, as there is no kink."""
        slopes = [(C, -2 * C - self.nu) for C in self.costs.tolist()]
        return [((1,), ((2 * C, slope, C), (0, 2 * C + slope, 0))) for C, slope in slopes]

    def solution(self) -> Solution:
        import numpy as np

        from marginlinear._core.margin_cd import table_of

        solver, engine, search, n_outer = self.solver, self.solver.engine, None, 0
        # At first D(0).
        excess: Any = 0.0
        bound = -self.size * self.size * self.square / 2
        inner = solver.convex() if self.run.start is None else solver.solution_of_incumbent()
        tol, idle = self.run.tol, 0
        while True:
            n_outer += 1
            objective, length, mean, whole = self._primal()
            found = np.maximum(0.0, inner.state["duals"] - self.nu * self.instance)
            higher, idle = self._bound(found), idle + 1
            if higher > bound:
                bound, excess, idle = higher, found, 0
            if self.best is None or objective < self.best.objective:
                self.best, idle = Best(objective, length * inner.weights, np.array(inner.state["W"]), inner.info), 0
            best = self.best
            certificate = best.objective - bound
            self.told.record(engine.n_iter, best.objective, bound, certificate)
            stopped = solver.descent.stopped or (STALLED if idle >= IDLE else None)
            if stopped or certificate <= allowance(tol, best.objective):
                break
            if search is None:
                search = Secant(self._slope(), self.size * self.square)
            lacking: float = inner.info.certificate  # type: ignore[assignment]  # a dual fit has one
            # Two w whose P differ by no more have means of the margins that differ by less.
            error = math.sqrt(2 * search.slope / self.size * max(0.0, lacking))
            nu = search.after(self.nu, mean - 1, error)
            part = max(PART * certificate, LEAST * allowance(tol, best.objective)) / max(1.0, -best.objective)
            # Of Q, and then of the objective of the sum of losses.
            part = min(part, FIRST) * whole / max(1.0, abs(inner.info.objective))
            if nu == self.nu:
                part = min(part, PART * solver.run.tol)
            self.nu = nu
            engine.take_losses([table_of(*loss) for loss in self._losses()])
            engine.resume({"duals": found + nu * self.instance, "W": engine.iterates.vector(False).copy(),
                           "kappa": engine.iterates.kappa})
            solver.renew(part)
            inner = solver.convex()
        status, reason = status_of(certificate, best.objective, tol, stopped or STALLED)
        info = best.info._replace(
            status=status, reason=reason, n_iter=engine.n_iter, n_outer=n_outer, objective=best.objective, bound=bound,
            certificate=certificate, tol=tol, seconds=self.told.seconds, history=self.told.history)
        state = {**inner.state, "W": best.W, "duals": excess + self.nu * self.instance, "nu": self.nu,
                 "costs": self.cost}
        return Solution(best.weights, info, state)

    def state(self) -> State:
        """That of the fit at the nu of now, with the best weights so far: see Run.fits."""
        state = {**self.solver.state(), "nu": self.nu, "costs": self.cost}
        return state if self.best is None else {**state, "W": self.best.W}

    def _slope(self) -> float:
        """That of gbar over nu, roughly: of r'H^-1 r, H = 1 + 2 sum C_i x_i x_i' over the margins below 1, for which
        (r'r)^2/(r'H r) is a lower bound."""
        below = self._margins() < 1
        bent = self.square + 2 * float(self.cost[below] @ (self.along[below] * self.along[below]))
        return NEARER * self.size * self.square * (self.square / bent)

    def _margins(self) -> FloatArray:
        return self.solver.engine.margins_of(self.solver.engine.iterates.vector(False))

    def _primal(self) -> tuple[float, float, float, float]:
        """(P, length, gbar, Q): P at the best length of the engine's weights, that length, and the mean margin and Q
        before it."""
        import numpy as np

        iterates, margins = self.solver.engine.iterates, self._margins()
        mean = float(self.instance @ margins) / self.size
        below = np.maximum(0.0, mean - margins)
        whole = iterates.sqnorm_of(iterates.vector(False)) / 2 + float(self.cost @ (below * below))
        if not (mean > 0 and whole > 0):
            return 0.0, 0.0, mean, whole
        length = self.size * mean / (2 * whole)
        return -length * self.size * mean / 2, length, mean, whole

    def _bound(self, excess: FloatArray) -> float:
        """D at the best length of these a and the nu of now."""
        engine, total = self.solver.engine, float(excess.sum()) + self.nu * self.size
        if not total > 0:
            return -math.inf
        half = engine.iterates.sqnorm_of(engine.weights_of(excess + self.nu * self.instance)) / 2
        half += float((excess * excess / self.cost).sum()) / 4
        return -half * (self.size / total) * (self.size / total)


METHOD = Method(
    name="msv",
    summary="margin semi-variance, average margin",
    objective="1/2 ||w||^2 - m gbar + C sum_i (gbar - g_i)_+^2",
    reference="what M.-Z. Qian, Z. Ai, T. Zhang and W. Gao, On the Optimization of Margin Distribution, IJCAI 2022, "
              "pursue, as a convex problem",
    params=(P.C,),
    fit=fit,
    joint=False,
)
