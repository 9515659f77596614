"""Dual coordinate descent to a certificate, plain or accelerated (math.md 9), on any `_core.dual_engine.DualEngine`.

Plain sweeps come first. Where their rate promises a long run, the sweeps go on around a moving centre (accelerated.py).
Where the weights are few, Newton steps (block_newton.pyx, margin_newton.pyx) may take over: they hardly feel the
features' scale or C.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

from marginlinear.algorithms.accelerated import Accelerator
from marginlinear.algorithms.certificate import FIRST_CHECK, Check, Incumbent, SkipTolerance, scheduled_after
from marginlinear.status import STALLED, allowance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from marginlinear._core.dual_engine import DualEngine
    from marginlinear.algorithms.certificate import Budget
    from marginlinear.algorithms.newton import NewtonCost, NewtonSteps


class Pace(NamedTuple):
    """What depends on how the sweeps are made.

    Attributes
    ----------
    least_sweeps : int
        Sweeps of an outer step, at least.
    patience : int
        The accelerator starts when plain sweeps at their rate would need more than this many to the tolerance; 0: after
        the first.
    first_kappa : float
        Its kappa then.
    warm_up : int
        Newton steps start from the duals of this many sweeps.
    """

    least_sweeps: int
    patience: int
    first_kappa: float
    warm_up: int


class Sweeps(Protocol):
    """What makes sweeps: an engine, or something in its place."""

    def sweep(self) -> None: ...

    def start_over(self) -> None: ...


class Sweeper(Sweeps, Protocol):
    """What stands in an engine's place."""

    @property
    def pace(self) -> Pace: ...


# Of sweeps one row after another.
PLAIN = Pace(3, 12, 10.0, 10)
# A pass over the weights tells ||W||^2: none where an estimate promises no end even if ||W||^2 is this many times
# what the last one told.
GROWTH = 4.0
# Of the first sweeps, without a centre, estimates are good enough to ask for checks alone.
EARLY = 20
# Blocks that together are this many times what W = 0 may be from the optimum from their solution: sweeps have run away.
# Then kappa is FIRMER times as large, for as many times as RUNAWAYS; above FIRMEST a centre moves by rounding alone.
RUNAWAY, FIRMER, RUNAWAYS, FIRMEST = 1e6, 100.0, 3, 1e15
# Over many sets, accelerated sweeps to 1e-3 are about EACH sqrt(mean c_i ||x_i||^2), Newton steps are the `steps` of
# their class. Where sweeps were promised too early, Newton takes over after as many as ENOUGH steps cost, and before
# this part of the sweeps that are allowed: of few rows a step costs thousands. Sweeps over features that were
# asked for by name have all of this part: where features differ in size by much they would come to no end.
EACH, ENOUGH, LATEST = 7.0, 40, 0.25
# Newton steps that have brought next to nothing so many times in a row, where the certificate is so small a part of the
# objective, have met rounding.
IDLE, ROUNDED = 100, 1e-4


def slow(gaps: Sequence[float], target: float, patience: float = PLAIN.patience) -> bool:
    """Whether the rate of the last three of sweeps' gaps promises more than `patience` sweeps to `target`."""
    if gaps[-1] <= target:
        return False
    if not (gaps[-3] > 0 and math.isfinite(gaps[-1])):
        return True
    rate = math.sqrt(gaps[-1] / gaps[-3])
    return rate >= 1 or math.log(target / gaps[-1]) / math.log(rate) > patience


class Descent:
    """Sweeps on one engine, from one call of `until` to the next.

    Attributes
    ----------
    incumbent : Incumbent
    route : {"cd", "accelerated", "newton"}
    stopped : str or None
        What ended it before a certificate, as `status.status_of` takes it.
    """

    stopped: str | None
    gaps: list[float]
    newton: NewtonSteps | None
    newton_cost: NewtonCost | None

    def __init__(self, engine: DualEngine, budget: Budget, tol: float, algorithm: str, newton: NewtonCost | None = None,
                 sweeper: Sweeper | None = None) -> None:
        """`newton`: MarginNewtonCost, BlockNewtonCost or None. `sweeper`: what makes the sweeps, the engine unless
        given: it has `sweep()` and `start_over()` in place of the engine's, and a `pace`."""
        self.engine, self.budget, self.tol, self.algorithm = engine, budget, tol, algorithm
        self.sweeper = engine if sweeper is None else sweeper
        self.incumbent, self.skip = Incumbent(engine), SkipTolerance()
        self.pace = PLAIN if sweeper is None else sweeper.pace
        self.accelerator = Accelerator(engine, self.incumbent, self.pace.least_sweeps)
        self.stopped, self.route, self.runaways = None, "cd", 0
        self.goal, self.renewal = tol, 0.0
        self.next_check, self.checked_estimate, self.gaps = FIRST_CHECK, math.inf, []
        self.at_zero = engine.loss_at_zero()
        self.newton, self.newton_cost = None, newton
        if algorithm == "newton" and newton is not None:
            newton.require(engine)
        # Of one Newton step and, as a whole, of those that a problem may take, in sweeps.
        cost = newton.sweeps_of_a_step(engine) if newton is not None else math.inf
        self.enough = LATEST * budget.max_iter if cost < math.inf else math.inf
        if algorithm == "auto":
            self.enough = min(ENOUGH * cost, self.enough)
        elif engine.rows.is_gram:
            self.enough = math.inf
        self.steps = newton.steps(engine) * cost if newton is not None and cost < math.inf else math.inf
        self.newton_first = algorithm == "newton" or (
            algorithm == "auto" and self.steps < math.inf and self.steps <= self.sweeps)
        self.first_step = newton.first_step(engine) if newton is not None and self.newton_first else None
        if self.first_step == 0:
            self.route = "newton"
        self.go_on()

    @property
    def sweeps(self) -> float:
        """How many accelerated sweeps the problem may take."""
        return EACH * math.sqrt(self.engine.condition())

    def until(self, tol: float, renewal: float = 0.0) -> Check:
        """Sweep until the incumbent is certified to `tol`, or until gap <= renewal (objective - bound), at a check;
        returns the check.

        Where the budget ends before, or no way is left, `stopped` says so.
        """
        self.goal, self.renewal = tol, renewal
        if self.incumbent.bound > -math.inf:
            self._update_skip()
        while True:
            self.stopped = self.budget.exhausted(self.engine.n_iter)
            if self.stopped:
                return self.check()
            if (self.route == "accelerated" or self.algorithm == "cd") and self.engine.n_iter > self.enough:
                self.route = "newton"
            if self.route == "newton":
                check = self.newton_step()
            else:
                check = self._outer_step() if self.engine.iterates.kappa > 0 else self._plain_sweep()
            if check is not None and (self.stopped or self.certified() or self.outdated(check)):
                return check

    @property
    def way(self) -> str:
        """The route, by the name that a user is told."""
        return self.newton_cost.NAME if self.newton_cost is not None and self.route == "newton" else self.route

    def certified(self) -> bool:
        return self.incumbent.certified(self.goal)

    def outdated(self, check: Check) -> bool:
        """Whether other references promise more than these: the objective is below the incumbent's, and the gap that is
        left is small beside what they would save, or is within the tolerance and small beside what was gained."""
        objective = self.incumbent.objective
        left = max(self.renewal * (check.primal - check.objective),
                   min(self.renewal * (objective - check.bound), allowance(self.goal, objective)))
        return self.renewal > 0 and check.objective < objective and check.gap <= left

    def _plain_sweep(self) -> Check | None:
        self.engine.adapt()
        if not self._sweep():
            return self._start_over()
        self.gaps.append(self.engine.gap)
        # The sum was taken before the updates: the last sweep's rate tells what they left.
        rate = min(1.0, self.gaps[-1] / self.gaps[-2]) if len(self.gaps) > 1 and self.gaps[-2] > 0 else 1.0
        check = self._check_if_due(self.gaps[-1] * rate)
        if self.route == "cd" and self.algorithm != "cd":
            if self.newton_first:
                warm = self.engine.n_iter >= self.pace.warm_up and (self.algorithm == "newton" or self._slow())
                if warm or self.first_step is not None:
                    self.route = "newton"
            elif self.algorithm == "accelerated" or self._slow():
                self._accelerate(self.pace.first_kappa)
        return check

    def _slow(self) -> bool:
        """Whether plain sweeps promise a long run to the tolerance."""
        if self.pace.patience == 0:
            return True
        if len(self.gaps) < 4 or not math.isfinite(self.incumbent.level):
            return False
        return slow(self.gaps, allowance(self.tol, self.incumbent.level), self.pace.patience)

    def _outer_step(self) -> Check | None:
        merit = self.accelerator.outer_step(self._sweep, self.budget)
        return self._start_over() if merit is None else self._check_if_due(merit)

    def newton_step(self) -> Check | None:
        """One step and its check; None where it diverged, and `route` is another one."""
        if self.newton is None:
            self.accelerator.stop()
            assert self.newton_cost is not None
            self.newton = self.newton_cost.begin(self.engine, self.budget)
        newton = self.newton
        newton.step()
        if not math.isfinite(newton.primal):
            return self._start_over()
        check = self._note(Check(newton.primal, newton.objective, False, newton.bound, False))
        if self.incumbent.idle >= IDLE and self.incumbent.certified(ROUNDED):
            self.stopped = STALLED
        return check

    def _sweep(self) -> bool:
        """One sweep; False where it diverges: the blocks are further from their solution than W = 0 may be from the
        optimum, P(0) - P* <= P(0) - D, many times over."""
        engine = self.engine
        engine.set_skip_tolerance(self.skip.of_sweep(engine))
        self.sweeper.sweep()
        if not math.isfinite(engine.gap):
            return False
        if engine.stable and engine.iterates.kappa == 0:
            return True
        return not engine.gap > RUNAWAY * (self.at_zero - min(0.0, self.incumbent.bound))

    def _check_if_due(self, estimate: float) -> Check | None:
        """A check costs a pass: made when the schedule says so, or when the estimated gap is small enough to end.
        The bound alone costs none: early on, the schedule asks for no more."""
        engine, incumbent = self.engine, self.incumbent
        estimate += engine.norm_gap
        scheduled = engine.n_iter >= self.next_check
        if not scheduled and not self._promising(estimate, GROWTH * engine.iterates.last_sqnorm):
            return None
        sqnorm = engine.iterates.sqnorm()
        if scheduled and self.route == "cd" and engine.n_iter < EARLY:
            incumbent.raise_bound(engine.dual())
            self._update_skip()
            self.next_check = scheduled_after(engine.n_iter)
            scheduled = False
        if not scheduled and not self._promising(estimate, sqnorm):
            return None
        self.checked_estimate = min(self.checked_estimate, estimate)
        check = self.check()
        if scheduled and self.route == "accelerated":
            self.accelerator.judge(self.skip, self.wanted)
        return check

    def _promising(self, estimate: float, sqnorm: float) -> bool:
        """Whether an estimated gap is small enough to end where ||W||^2 is `sqnorm`: the larger, the sooner."""
        primal = max(self.engine.loss + 0.5 * sqnorm, self.incumbent.bound)
        left = estimate - max(0.0, primal - self.incumbent.objective)
        small = left <= allowance(self.goal, primal) or estimate <= self.renewal * self.engine.reference_gap
        return small and estimate <= 0.8 * self.checked_estimate

    @property
    def wanted(self) -> float:
        """A gap that ends `until`: around an incumbent that stays, what is within the tolerance need not."""
        part = 1.0 if self.incumbent.follows_best else self.renewal
        return allowance(self.goal, self.incumbent.objective) * part

    def check(self) -> Check:
        """Exact values, by one pass over the rows, or two where there are averages."""
        engine, averages = self.engine, self.accelerator.averages
        primal, objective, _ = engine.primal()
        bound, at_average, from_average = engine.dual(), False, False
        if averages > 1:
            mean_primal, mean_objective, _ = engine.primal(averaged=True)
            if mean_primal < primal:
                primal, objective, at_average = mean_primal, mean_objective, True
            mean_bound = engine.averaged_dual()
            if mean_bound > bound:
                bound, from_average = mean_bound, True
        self.next_check = scheduled_after(engine.n_iter)
        swings = self.incumbent.follows_best and averages > 1 and engine.n_iter > EARLY and primal < math.inf
        if engine.lines and swings:
            self.incumbent.line_search(primal, at_average, self.goal)
        return self._note(Check(primal, objective, at_average, bound, from_average))

    def _note(self, check: Check) -> Check:
        self.incumbent.note(check)
        self._update_skip()
        self.budget.record(self.engine.n_iter, check.objective, check.bound, self.incumbent.certificate)
        return check

    def _update_skip(self) -> None:
        fraction = self.accelerator.fraction if self.engine.iterates.kappa > 0 else 1.0
        self.skip.update(self.goal, self.incumbent.level, fraction)

    def _accelerate(self, kappa: float) -> None:
        """Around a centre, at W, from here on."""
        self.engine.iterates.start(kappa)
        self._begin(kappa)

    def _begin(self, kappa: float) -> None:
        """Around the engine's centre."""
        self.route = "accelerated"
        self.accelerator.begin(kappa)

    def go_on(self) -> None:
        """From weights beside those of the duals, where there is a centre."""
        if self.engine.iterates.kappa > 0:
            if self.newton_first:
                self.route = "newton"
            else:
                self._begin(self.engine.iterates.kappa)

    def adopt(self) -> None:
        """Go on from the averages where they have the better bound. To be called at a check."""
        if self.incumbent.from_average:
            self.engine.adopt()
            self._begin(self.engine.iterates.kappa)

    def give_up_centre(self) -> None:
        """Plain sweeps from here on: W = U."""
        self.engine.iterates.plain()
        self.route = "cd"
        self.accelerator.stop()

    def reset(self, follow_best: bool = True) -> None:
        """The engine's problem has changed: forget rates and momentum, keep the weights or their averages.
        `follow_best`: see Incumbent."""
        self.gaps, self.checked_estimate = [], math.inf
        self.incumbent.follows_best = follow_best
        self._forget_bounds()
        iterates = self.engine.iterates
        if self.route == "newton":
            if self.newton is not None:
                self.newton.restart()
        elif iterates.kappa > 0:
            iterates.recentre(iterates.kappa, 0.0, 1.0, True)
            self._begin(iterates.kappa)

    def refresh(self, objective: float) -> None:
        """A bound that held by rounding alone was taken for one: sum the weights afresh, forget the bounds. `objective`
        is the incumbent's, recomputed."""
        self.incumbent.objective, self.incumbent.margins = objective, None
        self._forget_bounds()
        if self.route != "newton":
            self.engine.refresh()
            if self.engine.iterates.kappa > 0:
                self._begin(self.engine.iterates.kappa)
        elif self.newton is not None and self.engine.rows.is_gram:
            self.newton.restart()

    def _forget_bounds(self) -> None:
        self.incumbent.forget_bounds()
        self.skip.forget()
        self.accelerator.forget_pace()

    def _start_over(self) -> Check | None:
        """From 0, by a way that is surer to stay finite. Few sweeps a step can diverge where rows are long and C is
        large; so can plain sweeps that are not stable, and anything where sums overflow.

        Newton steps do not feel it, nor does a centre that holds W firmly enough; stable sweeps need none in the end.
        Where no way is left the fit ends, with the best weights so far.
        """
        engine, kappa = self.engine, self.engine.iterates.kappa
        self.sweeper.start_over()
        self.gaps = []
        self.accelerator.stop()
        self._forget_bounds()
        self.runaways += 1
        if self.route == "newton":
            self.newton, self.steps, self.enough, kappa = None, math.inf, math.inf, 0.0
        elif self.algorithm == "newton" or (self.algorithm == "auto" and self.steps < math.inf and not engine.stable):
            self.route = "newton"
            return None
        firmer = FIRMER * kappa if kappa > 0 else self.pace.first_kappa * FIRMER**self.runaways
        if self.algorithm == "newton" or firmer > FIRMEST:
            self.stopped = STALLED
            return self.check()
        if self.runaways > RUNAWAYS and engine.stable and kappa > 0:
            self.route = self.algorithm = "cd"
            return None
        self.accelerator.hold(firmer)
        self._accelerate(firmer)
        return None
