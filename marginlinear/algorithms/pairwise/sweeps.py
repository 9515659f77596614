"""The rounded hinge by dual coordinate descent, for many features.

At given S_jl = ||w_j - w_l||^{p-2}, R(W) + eps ||W||^2 has the same curvature M (__init__) everywhere, and hinge_cd.pyx
finds the duals of the optimum, W = U M^-1. S follows the weights from sweep to sweep. Where log S is x away from its
end, it would go to -(p - 2) x if the duals stayed, as w_j - w_l is then in proportion to 1/S_jl, and to its end if the
margins stayed. It goes a part 2/p of the way, which leaves it 1 - 2/p of x away, on either side; for p < 2 the whole
way, which leaves it (2 - p) x away or not at all, as more would overshoot where the margins stay.

The sum of b's duals is 2 eps b, next to 0. In the sweeps b has the curvature of a feature, around b as it was at the
end of the sweep before: the method of multipliers for that sum.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from marginlinear._core.hinge_cd import HingeCD
from marginlinear.algorithms.certificate import scheduled_after
from marginlinear.algorithms.pairwise.passes import multiply
from marginlinear.algorithms.pairwise.regulariser import laplacian
from marginlinear.status import allowance

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._typing import FloatArray, State
    from marginlinear.algorithms.certificate import Budget
    from marginlinear.algorithms.pairwise.regulariser import Quadratic
    from marginlinear.problem import Problem, Run

# The first check. The certificate is to halve with every doubling of the sweeps as soon as it is no more than this part
# of the objective, where Newton steps are few.
FIRST, NEAR = 8, 0.01
# Rows are left as they are whose gaps add up to this part of what is allowed; by a factor less, where the gaps of all
# are as small as that and the certificate, which knows the sum of b's duals, is not.
SKIPPED, LESS = 0.03, 10.0
# Curvature of b in the sweeps: that of a feature of this part of the rows' mean square, or, where features count for
# nothing, one by which all duals together move b by 1.
BIAS = 0.05


class DualSweeps:
    """Sweeps from duals of 0, or from a start, until they are certified, or crawl.

    Parameters
    ----------
    problem : Problem
    run : Run
    cost : float64 array of shape (m,)
    regulariser : Quadratic or Pairwise
    width : float
        Of the hinge's rounded corner.
    square : float
        The rows' mean square, without the bias.
    W : float64 array of shape (d, k)
        The weights, at the end too.
    check : callable
        check(sigma) gives (objective, bound) at W and the duals (1 + sigma)/2.
    budget : Budget
    patience : int
        Sweeps from which on the certificate is to halve with every doubling, near the optimum or not.
    """

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, regulariser: Quadratic, width: float,
                 square: float, W: FloatArray, check: Callable[[FloatArray], tuple[float, float]],
                 budget: Budget, patience: int) -> None:
        self.engine = HingeCD(problem.rows, problem.y, problem.n_classes, cost, width=width, seed=run.seed)
        self.cost, self.regulariser, self.square, self.W = cost[:, np.newaxis], regulariser, square, W
        self.check, self.budget, self.patience = check, budget, patience
        self.tol, self.threads, self.n_iter = run.tol, run.threads, 0

    @property
    def sigma(self) -> FloatArray:
        """The duals as newton.py has them."""
        sigma: FloatArray = 2 * np.asarray(self.engine.duals)
        sigma /= self.cost
        sigma -= 1
        return sigma

    def state(self) -> State:
        """See Run.fits."""
        return {"W": self.W, "width": self.engine.width, "tau": self.regulariser.tau, "duals": self.sigma}

    def run(self, starts: list[FloatArray], gradient: Callable[[FloatArray], FloatArray]) -> float:
        """From duals of 0, or from W and the best sigma; returns the certificate at the end. `gradient(rho)` is the
        losses'."""
        engine, regulariser, W = self.engine, self.regulariser, self.W
        strength = self._begin(starts, gradient)
        best, skipped, share, due, early = math.inf, 0.0, SKIPPED, FIRST, 0
        while True:
            M = self._metric(strength)
            Q = inverse_of(M)
            lift = self._lift(Q)
            engine.sweep(W, Q, lift, skipped)
            self.n_iter += 1
            allowed = allowance(self.tol, engine.loss + regulariser.evaluate(W)[0])
            skipped = share * allowed / engine.rows.m
            ended = self.budget.exhausted(self.n_iter)
            if ended or self.n_iter >= due or (self.n_iter >= early and engine.gap <= allowed):
                objective, bound = self.check(self.sigma)
                gap = objective - bound
                if ended or gap <= allowance(self.tol, objective):
                    return gap
                if self.n_iter >= due:
                    late = self.n_iter >= self.patience or gap <= NEAR * abs(objective)
                    if late and not gap <= best / 2:
                        return gap
                    best, due = gap, 2 * due
                self.budget.record(self.n_iter, objective, bound, gap)
                early = scheduled_after(self.n_iter)
                if engine.gap <= allowed:
                    share /= LESS
            if regulariser.bias:
                W[-1] *= 1 - 2 * regulariser.leak * lift
                W[-1] += lift / regulariser.bias * np.asarray(engine.balance)
            before, strength = strength, regulariser.strength(strength, min(1.0, 2 / regulariser.p))
            if strength is not before:
                multiply(W[regulariser.features], M @ inverse_of(self._metric(strength)), W[regulariser.features],
                         self.threads)

    def _begin(self, starts: list[FloatArray], gradient: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """W of the duals, of those with the best certificate; returns the strengths of the pairs."""
        W, regulariser, features = self.W, self.regulariser, self.regulariser.features

        def pull(rho: FloatArray) -> FloatArray:
            return -gradient(rho)[features]

        size = 1 / math.sqrt(self.square) if 0 < self.square < math.inf else 1.0
        rho = (1 + starts[0]) / 2 if starts else np.full(self.engine.duals.shape, 0.5)
        strength = regulariser.first_strength(pull(rho), size)
        if not starts:
            W[:] = 0
            return strength
        regulariser.evaluate(W)
        strength = regulariser.strength(strength, 1.0)
        inverse = inverse_of(self._metric(strength))

        def certificate_of(sigma: FloatArray) -> float:
            rho = (1 + sigma) / 2
            self.engine.resume(rho * self.cost)
            multiply(pull(rho), inverse, W[features], self.threads)
            objective, bound = self.check(sigma)
            return objective - bound

        certificate_of(min(starts, key=certificate_of))
        return strength

    def _metric(self, strength: FloatArray) -> FloatArray:
        """M from the strengths of the pairs."""
        return 2 * self.regulariser.square * np.eye(len(strength)) + laplacian(strength)

    def _lift(self, Q: FloatArray) -> float:
        """What a unit of its duals adds to b: with the curvature of eps alone it is 1/(2 eps)."""
        if not self.regulariser.bias:
            return 0.0
        lift = BIAS * self.square * float(np.trace(Q)) / (len(Q) - 1)
        return min(max(lift, 1 / float(self.cost.sum())), 0.5 / self.regulariser.leak)


def inverse_of(M: FloatArray) -> FloatArray:
    """M^-1 on the directions whose parts add up to 0, which differences of scores have; 0 on the other one."""
    k = len(M)
    scale = float(np.trace(M)) / k
    inverse = np.linalg.inv(M + (scale - M.sum() / k) / k)
    found: FloatArray = (inverse + inverse.T) / 2 - 1 / (scale * k)
    return found
