"""Dual coordinate descent to a certificate, plain or accelerated (math.md 9), over any engine with this face:

    iterates                    W and its companions (iterates.pyx)
    n_iter                      sweeps so far
    sweep()                     one visit of every row; sets `gap`, the sum of the blocks' gaps before their updates
    primal()                    (P, objective, stale) at W: of the convex problem of the sweeps and of the method
    dual(), averaged_dual()     values of D
    recomputed_dual(averaged)   the same with the weights summed afresh
    average(weight, A, a)       duals into their average; returns Iterates.average

Plain sweeps come first. Where their rate promises a long run, the sweeps go on around a moving centre V:
P(W) + kappa/2 ||W - V||^2 is solved roughly, V is extrapolated, and so on: the accelerated hybrid proximal
extragradient method (Monteiro and Svaiter 2013) for a strongly convex P. The certificate splits exactly,

    P(W) - D(duals) = e + G,    e = sum of the blocks' gaps,    G = 1/2 ||W - U||^2 = kappa^2/2 ||W - V||^2,

a small kappa makes G small and e large, a large kappa the reverse: kappa is steered to keep the two in balance.

Where the weights are few, Newton steps (newton.pyx) may take over: they hardly feel the features' scale or C.
"""

import math
import time
from dataclasses import dataclass

from marginlinear._core.stop import allowance
from marginlinear.problem import MAX_ITER, TIME_LIMIT

# The accelerator starts when plain sweeps at their rate would need more than this many to the tolerance.
PATIENCE = 12
FIRST_KAPPA = 10.0
# Wanted ratio e/G at the end of an outer step.
BALANCE = 0.3
# Newton steps start from the duals of this many sweeps.
WARM_UP = 10
# Over many sets, accelerated sweeps to 1e-3 are about EACH sqrt(mean c_i ||x_i||^2), Newton steps are STEPS.
# Where sweeps were promised too early, Newton takes over after as many as ENOUGH steps cost.
EACH, STEPS, ENOUGH = 7.0, 15, 40
# A step dearer than this many sweeps comes with so many features that the steps may be many too.
DEAR = 25


@dataclass
class Check:
    """Exact values at one moment.

    `primal` and `bound` belong to the convex problem of the sweeps, `objective` to the method; `averaged` says whether
    the bound is that of the averaged duals; `stale` is the engine's word for what keeps primal above objective.
    """

    primal: float
    objective: float
    stale: int
    bound: float
    averaged: bool

    @property
    def gap(self):
        return self.primal - self.bound


class Budget:
    """Sweeps and seconds that are left, and the record of the checks, shared by all stages of a fit."""

    def __init__(self, max_iter, time_limit, progress=None):
        self.started = time.perf_counter()
        self.max_iter = math.inf if max_iter is None else max_iter
        self.time_limit = math.inf if time_limit is None else time_limit
        self.progress = progress
        self.history = []

    @property
    def seconds(self):
        return time.perf_counter() - self.started

    def exhausted(self, n_iter):
        """None, or the status that says what ran out."""
        if n_iter >= self.max_iter:
            return MAX_ITER
        return TIME_LIMIT if self.seconds >= self.time_limit else None

    def record(self, n_iter, objective, bound, certificate):
        entry = {"n_iter": n_iter, "seconds": self.seconds, "objective": objective, "bound": bound,
                 "certificate": certificate}
        self.history.append(entry)
        if self.progress is not None:
            self.progress(entry)


class Descent:
    """Sweeps on one engine, from one call of `until` to the next."""

    def __init__(self, engine, budget, tol, algorithm, newton=None):
        """`newton` is the class of the Newton steps that fit the engine."""
        self.engine, self.budget, self.tol, self.algorithm = engine, budget, tol, algorithm
        self.stopped = None
        self.route = "cd"
        self.last = None
        self.next_check, self.stride = 2, 2.0
        self.gaps = []
        self.checked_estimate = math.inf
        self.averages = 0
        # The accelerator's own knobs, kept over restarts (math.md 9.2): nm, ft, wait, rho.
        self.min_sweeps, self.fraction, self.wait, self.rho = 3, 1.0, 1, 0.3
        self.plain_until = 0
        self.pending = None
        self.newton = None
        self.newton_class = newton
        if algorithm == "newton":
            newton.require(engine)
        cost = newton.sweeps_of_a_step(engine) if newton is not None else math.inf
        if cost > DEAR:
            cost = math.inf
        self.enough = ENOUGH * cost
        self.newton_first = algorithm == "newton" or (
            algorithm == "auto" and STEPS * cost <= EACH * math.sqrt(engine.stiffness()))
        if engine.iterates.kappa > 0:
            if self.newton_first:
                self.route = "newton"
            else:
                self._begin(engine.iterates.kappa)

    def reset(self):
        """The engine's problem has changed: forget rates, momentum and averages, keep the weights."""
        self.gaps = []
        self.checked_estimate = math.inf
        iterates = self.engine.iterates
        if self.route == "newton":
            if self.newton is not None:
                self.newton.restart()
        elif iterates.kappa > 0:
            iterates.recentre(iterates.kappa, 0.0, 1.0, True)
            self._begin(iterates.kappa)

    def until(self, enough):
        """Sweep until enough(check) holds at a check, or the budget ends: `stopped` then says which. Returns the check.
        """
        while True:
            self.stopped = self.budget.exhausted(self.engine.n_iter)
            if self.stopped:
                return self.check()
            if self.algorithm == "auto" and self.route == "accelerated" and self.engine.n_iter > self.enough:
                self.route = "newton"
            if self.route == "newton":
                check = self._newton_step()
            else:
                check = self._outer_step() if self.engine.iterates.kappa > 0 else self._plain_sweep()
            if check is not None and enough(check):
                return check

    def check(self):
        """Exact values, by one pass over the rows."""
        engine = self.engine
        primal, objective, stale = engine.primal()
        bound, averaged = engine.dual(), False
        if self.averages:
            mean = engine.averaged_dual()
            if mean > bound:
                bound, averaged = mean, True
        self.last = Check(primal, objective, stale, bound, averaged)
        self.budget.record(engine.n_iter, objective, bound, self.last.gap)
        self.stride *= 1.15
        self.next_check = engine.n_iter + max(2, int(self.stride))
        return self.last

    def _check_if_due(self, estimate):
        """A check costs a pass: made when the schedule says so, or when the estimated gap is small enough to end."""
        scheduled = self.engine.n_iter >= self.next_check
        promising = (self.last is not None and estimate <= allowance(self.tol, self.last.primal)
                     and estimate <= 0.7 * self.checked_estimate)
        if not (scheduled or promising):
            return None
        self.checked_estimate = min(self.checked_estimate, estimate)
        return self.check()

    def _plain_sweep(self):
        self.engine.sweep()
        self.gaps.append(self.engine.gap)
        check = self._check_if_due(self.engine.gap)
        if self.algorithm != "cd":
            if self.route == "cd":
                if self.newton_first:
                    if self.engine.n_iter >= WARM_UP and (self.algorithm == "newton" or self._slow()):
                        self.route = "newton"
                elif self._slow():
                    self._accelerate(FIRST_KAPPA)
            elif check is not None and self.engine.n_iter >= self.plain_until:
                self._judge_plain(check)
        return check

    def _newton_step(self):
        if self.newton is None:
            self.averages = 0
            self.newton = self.newton_class(self.engine)
        newton = self.newton
        newton.step()
        self.last = Check(newton.primal, newton.objective, newton.stale, newton.bound, False)
        self.budget.record(self.engine.n_iter, newton.objective, newton.bound, self.last.gap)
        return self.last

    def _slow(self):
        """Whether the rate of the last sweeps promises more than PATIENCE sweeps to the tolerance."""
        if len(self.gaps) < 4 or self.last is None:
            return False
        target = allowance(self.tol, self.last.primal)
        if self.gaps[-1] <= target:
            return False
        rate = math.sqrt(self.gaps[-1] / self.gaps[-3])
        return rate >= 1 or math.log(target / self.gaps[-1]) / math.log(rate) > PATIENCE

    def _accelerate(self, kappa):
        self.route = "accelerated"
        self.engine.iterates.start(kappa)
        self._begin(kappa)

    def _begin(self, kappa):
        """No momentum, no averages, nothing known of cycles."""
        self.route = "accelerated"
        self.averages = 0
        self.A, self.a = 0.0, 1 / kappa
        self.best_cycle, self.bad_cycles = math.inf, 0
        self.pending = None
        self._begin_cycle()

    def _begin_cycle(self):
        self.cycle, self.cycle_steps, self.cycle_began = math.inf, 0, self.engine.n_iter

    def _outer_step(self):
        """Sweeps around one centre, until e is down to its share of G; then averages and, at the next call, the next
        centre: until then W is what was checked."""
        if self.pending is not None:
            self._recentre(*self.pending)
            self.pending = None
            if self.engine.iterates.kappa == 0:
                return self._plain_sweep()
        engine, iterates = self.engine, self.engine.iterates
        kappa, e, n, factor = iterates.kappa, 0.0, 0, 1.0
        while True:
            before = engine.gap
            engine.sweep()
            n += 1
            ratio = self.rho
            if n > 1:
                ratio = min(1.0, engine.gap / before) if before > 0 else 0.0
                self.rho = min(0.9, max(0.02, (self.rho + ratio) / 2))
            # engine.gap was summed before the updates: this is what is left after them.
            e = engine.gap * ratio
            G = kappa * kappa / 2 * iterates.sqdistance()
            if n == self.min_sweeps:
                factor = min(1.5, max(0.7, (e / (BALANCE * self.fraction * G)) ** 0.25)) if G > 0 else 1.5
            if n >= self.min_sweeps and (e <= self.fraction * G or n >= 8):
                break
            if self.budget.exhausted(engine.n_iter):
                break
        turn = engine.average(self.a / (self.A + self.a) if self.averages else 1.0, self.A, self.a)
        self.averages += 1
        self.A = min(1e15, self.A + self.a)
        merit = e + G
        self.cycle = min(self.cycle, merit)
        self.cycle_steps += 1
        restart = turn > 0 or merit > 5 * self.cycle
        if restart or self.cycle_steps >= 2 * math.sqrt(1 + kappa) + 2:
            restart = self._end_cycle() or restart
        self.pending = (min(1e7, max(1e-3, kappa * factor)), restart)
        return self._check_if_due(merit)

    def _end_cycle(self):
        """Judge the cycle. A bad one, True, asks for a restart and for more care within outer steps."""
        bad = self.cycle > 0.8 * self.best_cycle
        self.best_cycle = min(self.best_cycle, self.cycle)
        if bad:
            self.min_sweeps = min(16, self.min_sweeps + 1)
            self.fraction = max(1e-3, 0.7 * self.fraction)
            self.bad_cycles += 1
        else:
            self.min_sweeps = max(3, self.min_sweeps - 1)
            self.fraction = min(1.0, 1.2 * self.fraction)
        self.cycle_length = self.engine.n_iter - self.cycle_began
        self._begin_cycle()
        return bad

    def _recentre(self, kappa, restart):
        if restart:
            self.A = 0.0
        grown = 1 + self.A
        self.a = (grown + math.sqrt(grown * grown + 4 * kappa * self.A * grown)) / (2 * kappa)
        self.engine.iterates.recentre(kappa, self.A, self.a, restart)
        if self.bad_cycles >= self.wait:
            self.plain_kappa = kappa
            self.plain_gap = self.last.gap if self.last is not None else math.inf
            self.plain_length = max(8, self.cycle_length)
            self.plain_until = self.engine.n_iter + self.plain_length
            self.engine.iterates.plain()

    def _judge_plain(self, check):
        """After a spell of plain sweeps: another, twice as long, if the gap fell by a fifth, else back."""
        if check.gap <= 0.8 * self.plain_gap:
            self.plain_length *= 2
            self.plain_until = self.engine.n_iter + self.plain_length
            self.plain_gap = check.gap
        else:
            self.wait *= 2
            self.fraction = 1.0
            self._accelerate(max(1.0, 0.1 * self.plain_kappa))
