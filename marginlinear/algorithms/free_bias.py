"""Over features: a bias that costs nothing, for any loss of the margin.

    P(w, b) = 1/2 ||w||^2 + sum_i c_i phi(g_i),      g_i = y_i (w.x_i + b) - z_i

    D(a) of the loss, with sum_i y_i a_i = 0

The proximal point method on b: fits with a bias feature of value B, whose weight v is penalised, around a b that the
targets z_i hold,

    min 1/2 ||w||^2 + 1/2 v^2 + sum_i c_i phi(y_i (w.x_i + b + B v) - z_i),

each from the duals of the one before. B v falls with b, and with a slope of -1 where the loss bends far more along b
than 1/2 v^2 does: the b where it is 0 is found by the secant. P is taken at the best b for w; D at duals moved to the
sum of 0, or at those of the slopes of the loss at w and b, which for a smooth loss have it. `n_outer` counts the fits.

The larger B, the less v costs, and the sooner it is 0. Sweeps become the slower, and B is about as large as rows are;
Newton steps do not feel it, and where they are taken from the first B is so large that one fit does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from marginlinear._core.renumber import renumber
from marginlinear._core.vector import dot
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.secant import Secant
from marginlinear.problem import Solution
from marginlinear.status import STALLED, allowance, status_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._typing import FloatArray, State
    from marginlinear.algorithms.dual import MarginFit
    from marginlinear.problem import Problem, Run

# Of what the certificate is allowed, a fit's own part at first; it becomes less by TIGHTER where that part is most of
# what lacks.
PART, TIGHTER = 0.5, 4.0
# First stride of a search for a bracket, beside the mean square of the rows' values, and what it grows by.
STRIDE, WIDER = 1e-3, 8.0
# How near the duals that are moved stay, in units of the largest ||x_i||^2: less does Jacobi steps beside.
NEAR = 30.0
# A sum of so many parts of what is summed is 0.
ROUNDING = 1e-14
# B beside the root of the rows' mean square: for Newton steps, where v then costs a 10^4th part of what weights cost
# that make scores as large; for sweeps, which a larger one makes slower.
LARGE, SMALL = 100.0, 0.5
# So many fits in a row that bring neither a lower P nor a higher D are the end: what is left is rounding.
IDLE = 8


def bracket(f: Callable[[float], float], guess: float, stride: float, enough: float) -> tuple[float, float]:
    """(low, high), neighbours among numbers or equal, with f(low) <= 0 <= f(high) of a rising f, to within `enough`; an
    end where f does not change its sign is infinite."""
    low, high, at = -math.inf, math.inf, guess
    f_low = f_high = math.nan
    kept = 0
    while True:
        value = f(at)
        if abs(value) <= enough:
            return at, at
        kept = (min(kept, 0) - 1) if value < 0 else (max(kept, 0) + 1)
        if value < 0:
            low, f_low = at, value
        else:
            high, f_high = at, value
        if math.isinf(high - low):
            at = at + stride if value < 0 else at - stride
            stride *= WIDER
            if not math.isfinite(at):
                return low, high
            continue
        middle = low + (high - low) / 2
        if not low < middle < high:
            return low, high
        # The secant, but where it has left the same end twice a half.
        at = low - f_low * (high - low) / (f_high - f_low) if abs(kept) < 3 else middle
        at = at if low < at < high else middle


class FreeBiasFit:
    """One fit of a problem whose last feature is the bias feature; `made(problem, run)` is a MarginFit. Newton steps
    come first, too, where those of a fit cost no more than so many `sweeps`.

    Attributes
    ----------
    solver : MarginFit
    scores : array of shape (m,)
        At the end those of the best weights, without a bias.
    feasible : array of shape (m,)
        At the end the duals of the best D.
    """

    scores: FloatArray
    feasible: FloatArray

    def __init__(self, problem: Problem, run: Run, made: Callable[[Problem, Run], MarginFit],
                 sweeps: float = 0.0) -> None:
        rows = problem.rows
        self.run, self.told = run, Budget(None, None, run.progress)
        # Once for all values of the bias: rows that may be overwritten are not there for a second time.
        renumber(rows, run.threads, run.overwrite_rows)
        self.given = np.zeros(rows.m) if problem.targets is None else np.asarray(problem.targets)
        self.signs = np.where(problem.y > 0, 1.0, -1.0)
        self.value = self.told_value = float(rows.bias)
        self.targets = self.given.copy()
        sqnorms = rows.sqnorms()
        self.largest = float(np.max(sqnorms, initial=0.0))
        problem = problem._replace(targets=self.targets)
        run = run._replace(tol=PART * run.tol, progress=None, shared=False, fits=None)
        size = math.sqrt(max(0.0, float(np.mean(sqnorms)) - self.value**2)) or self.value

        def solver(value: float, algorithm: str) -> MarginFit:
            self.value = value
            start = None if run.start is None else self._with_value(run.start, self.told_value, value)
            return made(problem._replace(rows=rows.with_bias(value)), run._replace(start=start, algorithm=algorithm))

        self.solver = solver(SMALL * size, run.algorithm)
        descent = self.solver.descent
        if descent.newton_first or descent.steps <= sweeps:
            self.solver = solver(LARGE * size, run.algorithm if descent.newton_first else "newton")
        if self.run.start is None:
            self._centre(self._best(np.zeros(problem.rows.m), 0.0)[0])
        else:
            self._centre(self.run.start.get("centre", self.told_value * float(self.run.start["W"][-1])))
        self.run.enlist(self)

    @staticmethod
    def _with_value(state: State, old: float, new: float) -> State:
        """The state of a bias feature of another value."""
        W = state["W"]
        return state if W is None else {**state, "W": np.append(W[:-1], W[-1] * (old / new))}

    def _centre(self, b: float) -> None:
        """Go round this b."""
        self.centre = b
        np.subtract(self.given, self.signs * b, out=self.targets)

    def _best(self, scores: FloatArray, guess: float) -> tuple[float, FloatArray]:
        """(b, slopes) that are best for scores without a bias: y.slopes is 0 but for rounding."""
        engine, signs = self.solver.engine, self.signs
        margins = signs * scores - self.given
        low, high = bracket(lambda b: dot(signs, engine.slopes_at(margins, b)), guess,
                            STRIDE * (1.0 + float(np.abs(margins).max(initial=0.0))),
                            ROUNDING * float(np.abs(engine.slopes_at(margins, guess)).sum()))
        if math.isinf(low) or math.isinf(high):
            # All rows are of one class, and any b further on is as good.
            b = high if math.isinf(low) else low
            return b, engine.slopes_at(margins, b)
        slopes = [engine.slopes_at(margins, b) for b in (low, high)]
        below, above = (dot(signs, slope) for slope in slopes)
        part = below / (below - above) if below < above else 0.0
        return low, (1 - part) * slopes[0] + part * slopes[1]

    def _moved(self, duals: FloatArray, margins: FloatArray) -> FloatArray:
        """Duals with y.duals = 0, each no further from these than it need be."""
        engine, signs, A = self.solver.engine, self.signs, NEAR * self.largest

        def moved(shift: float) -> FloatArray:
            return engine.duals_near(duals, margins, A, shift)

        low, high = bracket(lambda b: -dot(signs, moved(b)), 0.0, STRIDE, ROUNDING * float(np.abs(duals).sum()))
        return moved(high if math.isinf(low) else low)

    def _bound(self, duals: FloatArray) -> float:
        """D; what rounding left of the sum counts as the bias feature's part of ||U||^2."""
        engine = self.solver.engine
        bound = engine.bound_of(*engine.dual_sums(duals), engine.iterates.sqnorm_of(engine.weights_of(duals)), None)
        return bound if bound < math.inf else -math.inf

    def solution(self) -> Solution:
        solver, engine, n_outer, idle = self.solver, self.solver.engine, 0, 0
        tol, objective, bound, best, search = self.run.tol, math.inf, -math.inf, None, Secant(1.0)
        while True:
            inner = solver.convex()
            n_outer, idle = n_outer + 1, idle + 1
            v = float(inner.weights[-1, 0])
            W = np.array(engine.iterates.vector(False))
            margins = engine.margins_of(W)
            scores = self._scores(margins, v)
            b, slopes = self._best(scores, self.centre + self.value * v)
            value = self._primal(inner.weights, scores, b)
            if value < objective or best is None:
                objective, idle, best, self.scores = value, 0, (inner.weights.copy(), b), scores
            duals = np.asarray(inner.state["duals"])
            for feasible in (-slopes, self._moved(duals, margins)):
                found = self._bound(feasible)
                if found > bound:
                    bound, idle, self.feasible = found, 0, feasible
            certificate = objective - bound
            self.told.record(engine.n_iter, objective, bound, certificate)
            stopped = solver.budget.exhausted(engine.n_iter) or (STALLED if idle >= IDLE else None)
            if stopped or certificate <= allowance(tol, objective):
                break
            lacking: float = inner.info.certificate  # type: ignore[assignment]  # a dual fit has one
            # What v may be off by, as P bends with 1/2 v^2 at least.
            error = self.value * math.sqrt(2 * max(0.0, lacking))
            centre = search.after(self.centre, -self.value * v, error)
            tighter = lacking > certificate / TIGHTER or centre == self.centre
            self._centre(centre)
            engine.resume({"duals": duals, "W": None, "kappa": 0.0})
            solver.renew(solver.run.tol / (TIGHTER if tighter else 1))
        weights, b = best
        weights[-1] = b / self.told_value
        status, reason = status_of(certificate, objective, tol, stopped or STALLED)
        info = inner.info._replace(
            status=status, reason=reason, n_iter=engine.n_iter, n_outer=n_outer, objective=objective, bound=bound,
            certificate=certificate, tol=tol, seconds=self.told.seconds, history=self.told.history)
        return Solution(weights, info, self._told(inner.state))

    def renew(self, tol: float) -> None:
        """Go on to this tolerance, on what has become another problem, from the duals and weights of now."""
        self.run = self.run._replace(tol=tol)
        self.solver.renew(PART * tol)

    def scores_of(self, W: FloatArray) -> FloatArray:
        """Those of the engine's W, without a bias."""
        return self._scores(self.solver.engine.margins_of(W), float(W[-1]))

    def _scores(self, margins: FloatArray, v: float) -> FloatArray:
        return self.signs * (margins + self.targets) - self.value * v

    def state(self) -> State:
        return self._told(self.solver.state())

    def _told(self, state: State) -> State:
        """The state of the bias feature that was given."""
        return {**self._with_value(state, self.value, self.told_value), "centre": self.centre}

    def _primal(self, weights: FloatArray, scores: FloatArray, b: float) -> float:
        """P at the weights without the bias feature's, and b."""
        engine = self.solver.engine
        return 0.5 * float(weights[:-1, 0] @ weights[:-1, 0]) + engine.loss_of(self.signs * (scores + b) - self.given)
