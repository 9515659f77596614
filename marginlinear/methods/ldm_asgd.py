"""Large margin distribution machine by averaged stochastic gradient descent (Zhang and Zhou, KDD 2014, Algorithm 2).

The objective of ldm. A few epochs come near to its optimum where C is moderate, and can be far from it where C is
large: a learner that stops early. The certificate says how far it may be, from what the steps met of the subgradient.

The first step size, unless given: on a sample of the rows, as many epochs as the fit will have, at most 5, are run with
eta0 = 1/(4 E[h_i ||x_i||^2]), then with twice as much for as long as their objective on the sample falls, else with
half as much for as long as it falls. The sample is an eighth of the rows, but 10,000 if there are as many.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.methods import ldm
from marginlinear.problem import Info, Solution
from marginlinear.registry import Method
from marginlinear.status import FINISHED

if TYPE_CHECKING:
    from marginlinear._typing import Parameters, State
    from marginlinear.problem import Problem, Run

LEAST_SAMPLE, SAMPLED, TRIAL = 10_000, 8, 5
# A convergence test is made after this many epochs, then after each doubling, and at the end.
FIRST_CHECK = 4
# 1 - eta must stay positive.
LARGEST_STEP = 0.5


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    return ASGDFit(problem, params, run).solution()


class ASGDFit:
    """One fit. `max_iter` caps the epochs as `epochs` does, and says so; `time_limit` is looked at after each epoch,
    on the sample too. One epoch over all rows is made in any case.
    """

    def __init__(self, problem: Problem, params: Parameters, run: Run) -> None:
        import numpy as np

        from marginlinear._core.asgd import AveragedSGD
        from marginlinear.algorithms.certificate import Budget

        self.problem, self.params, self.run = problem, params, run
        problem = self.problem
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        self.problem.costs(params["C"] * problem.size)
        self.terms = {"hinge": params["C"] * problem.size * problem.factor, "pull": params["lambda2"],
                      "spread": 2 * params["lambda1"], "threads": run.threads}
        self.weight = np.ascontiguousarray(problem.instance)
        self.engine = AveragedSGD(problem.rows, problem.y, self.weight, seed=run.seed, **self.terms)
        self.bound = -math.inf

    def solution(self) -> Solution:
        import numpy as np

        # Values that overflow are refused where the solution is looked at.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._solution()

    def _solution(self) -> Solution:
        import numpy as np

        from marginlinear.status import allowance, status_of

        run, engine, epochs = self.run, self.engine, self.params["epochs"]
        done, next_check, ended, objective = 0, FIRST_CHECK, None, math.inf
        self.eta0 = self.params["eta0"]
        if run.start is not None:
            engine.resume(run.start)
            self.eta0 = self.eta0 or run.start["eta0"]
            objective = self._check(done)
            if objective - self.bound <= allowance(run.tol, objective):
                ended = FINISHED
        if not ended:
            self.eta0 = self.eta0 or self._search()
        # The first epoch is far from the end: its steps do not enter the average, unless there are no others.
        t0 = engine.draws // (1 if min(epochs, self.budget.max_iter) > 1 else 2)
        while not ended:
            engine.epoch(self.eta0, t0)
            done += 1
            ended = FINISHED if done == epochs else self.budget.exhausted(done)
            if ended or done == next_check:
                next_check = 2 * done
                objective = self._check(done)
                if objective - self.bound <= allowance(run.tol, objective):
                    break
        state = self.state()
        certificate = objective - self.bound
        status, reason = status_of(certificate, objective, run.tol, ended)
        info = Info(
            status=status,
            algorithm="asgd",
            n_iter=done,
            n_outer=0,
            objective=objective,
            bound=self.bound,
            certificate=certificate,
            n_support=int(np.count_nonzero(self.duals)),
            seconds=self.budget.seconds,
            tol=run.tol,
            history=self.budget.history,
            reason=reason,
        )
        return Solution(state["W"].reshape(-1, 1), info, state)

    def state(self) -> State:
        """The averages so far: see Run.fits."""
        return {**self.engine.state(), "duals": self.duals, "eta0": self.eta0}

    def _check(self, done: int) -> float:
        """P at the averaged weights, and a bound from what the visits in the average met of the hinge's subgradient."""
        import numpy as np

        engine = self.engine
        weights = engine.weights()
        margins = engine.margins(weights)
        objective = engine.objective(weights, margins)
        # A row that the average has not met: the subgradient here.
        active = np.where(engine.met > 0, engine.active / np.maximum(engine.met, 1), margins < 1)
        self.bound = max(self.bound, objective - engine.certificate(weights, margins, active))
        self.duals = self.params["C"] * np.asarray(self.problem.weights) * active
        self.run.enlist(self)
        self.budget.record(done, objective, self.bound, objective - self.bound)
        return objective

    def _search(self) -> float:
        """The first step size, from runs on a sample."""
        import numpy as np

        from marginlinear._core.asgd import AveragedSGD

        rows, y, weight = self.problem.rows, self.problem.y, self.weight
        sampled = max(LEAST_SAMPLE, rows.m // SAMPLED)
        if sampled < rows.m:
            weight = np.bincount(self.engine.draw(sampled), minlength=rows.m).astype(np.float64)
        trial = AveragedSGD(rows, y, weight, seed=self.run.seed, **self.terms)
        epochs = min(TRIAL, self.params["epochs"])

        def outcome(eta0: float) -> float:
            trial.start(self.run.seed)
            for _ in range(epochs):
                if self.budget.exhausted(0):
                    break
                trial.epoch(eta0, trial.draws if epochs > 1 else trial.draws // 2)
            weights = trial.weights()
            return trial.objective(weights, trial.margins(weights))

        slope = trial.mean(self.terms["hinge"] * np.asarray(rows.sqnorms()))
        eta0 = min(LARGEST_STEP, 1 / (4 * slope)) if slope > 0 else LARGEST_STEP
        least = outcome(eta0)
        for factor in (2.0, 0.5):
            found = eta0
            while eta0 * factor <= LARGEST_STEP and not self.budget.exhausted(0):
                value = outcome(eta0 * factor)
                if not value < least:
                    break
                eta0, least = eta0 * factor, value
            if eta0 != found:
                break
        return eta0


METHOD = Method(
    name="ldm-asgd",
    summary="large margin distribution machine, by a few epochs of averaged stochastic gradient descent",
    objective=ldm.METHOD.objective,
    reference="T. Zhang and Z.-H. Zhou, Large Margin Distribution Machine, KDD 2014, Algorithm 2",
    params=(P.C, P.LAMBDA1, P.LAMBDA2, P.EPOCHS, P.ETA0),
    fit=fit,
    joint=False,
    kernels=False,
    routes=("auto",),
    path=False,
    stores=False,
    paper=ldm.METHOD.paper,
)
