"""Sweeps around a moving centre V: P(W) + kappa/2 ||W - V||^2 is solved roughly, V is extrapolated, and so on.

This is the accelerated hybrid proximal extragradient method (Monteiro and Svaiter 2013) for a strongly convex P. The
certificate splits exactly,

    P(W) - D(duals) = e + G,    e = sum of the blocks' gaps,    G = 1/2 ||W - U||^2 = kappa^2/2 ||W - V||^2,

a small kappa makes G small and e large, a large kappa the reverse: kappa is steered to keep the two in balance, or
stays small where that is seen to be faster, as it is with nonsmooth losses.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._core.dual_engine import DualEngine
    from marginlinear.algorithms.certificate import Budget, Incumbent, SkipTolerance

# Wanted ratio e/G at the end of an outer step.
BALANCE = 0.3
# A gap of which this part is left after a stride is stalled; so many stalls in a row call for another way.
STALL, PATIENT_STALLS = 0.8, 3
# Care within outer steps has this limit: a smaller share of G for e drives kappa up without end.
LEAST_FRACTION = 0.1
# A kappa that leaves e far above G. With separable rows and the hinge, G is noise of the inner errors, about kappa e:
# steering, which takes it for progress of the centres, then settles at a kappa ten times too large.
SLACK_KAPPA = 3.0
# The range in which kappa is steered.
LEAST_KAPPA, MOST_KAPPA = 1e-3, 1e7
# A way to set kappa is judged after so many sweeps at least, and a TRIALth of those made. Its pace, what a sweep takes
# off the logarithm of the gap, is not less than LEAST_PACE.
MIN_TRIAL, TRIAL, LEAST_PACE = 10, 8, 1e-4


def pace_of(before: float, gap: float, sweeps: int) -> float:
    """What a sweep takes off the logarithm of a gap that was `before`."""
    return max(LEAST_PACE, math.log(before / gap) / sweeps) if gap < math.inf else LEAST_PACE


def sweeps_left(gap: float, wanted: float, pace: float) -> float:
    return math.log(gap / wanted) / pace if gap < math.inf and 0 < wanted < math.inf else math.inf


class Accelerator:
    """Outer steps on one engine.

    Attributes
    ----------
    least_sweeps : int
        The least that min_sweeps may be.
    averages : int
        Outer steps in W_avg and the averaged duals.
    A, a : float
        Their weights: the sum of those so far, and that of the next.
    min_sweeps, fraction, rho : int, float, float
        nm, ft and rho of math.md 9.2, kept over restarts: the least number of sweeps of an outer step, the share of G
        that e is to fall to, and the rate of the sweeps.
    steered : bool
        Whether kappa follows e/G.
    """

    pending: tuple[float, bool] | None
    trial: tuple[int, float, float] | None
    best_cycle: float
    cycle: float
    cycle_steps: int

    def __init__(self, engine: DualEngine, incumbent: Incumbent, least_sweeps: int) -> None:
        self.engine, self.incumbent, self.least_sweeps = engine, incumbent, least_sweeps
        self.min_sweeps, self.fraction, self.rho, self.steered = least_sweeps, 1.0, 0.3, True
        # Those of the other way to set kappa: kappa, min_sweeps, fraction.
        self.other = SLACK_KAPPA, least_sweeps, 1.0
        self.least_kappa = LEAST_KAPPA
        self.stop()
        self.forget_pace()

    def stop(self) -> None:
        """No centre any more."""
        self.averages, self.pending = 0, None

    def forget_pace(self) -> None:
        """The gaps so far are those of another problem."""
        self.judged, self.stalls = math.inf, 0
        self.trial, self.pace = None, {True: math.inf, False: math.inf}

    def begin(self, kappa: float) -> None:
        """No momentum, no averages, nothing known of cycles."""
        self.stop()
        self.A, self.a = 0.0, 1 / kappa
        self.best_cycle, self.switching = math.inf, False
        self._begin_cycle()

    def hold(self, kappa: float) -> None:
        """The centre is to be as firm as this."""
        self.steered = True
        if not self.engine.stable:
            # Steered down, the centre would let go once more, and nothing is surer than a firm one.
            self.least_kappa = kappa

    def outer_step(self, sweep: Callable[[], bool], budget: Budget) -> float | None:
        """Sweeps around one centre, until e is down to its share of G; then averages and, at the next call, the next
        centre: until then W is what was checked. Returns e + G, or None where a `sweep` returned False."""
        if self.pending is not None:
            self._recentre(*self.pending)
            self.pending = None
        engine, iterates = self.engine, self.engine.iterates
        engine.adapt()
        kappa, e, n, factor = iterates.kappa, 0.0, 0, 1.0
        while True:
            before = engine.gap
            if not sweep():
                return None
            n += 1
            ratio = self.rho
            if n > 1:
                ratio = min(1.0, engine.gap / before) if before > 0 else 0.0
                self.rho = min(0.9, max(0.02, (self.rho + ratio) / 2))
            # engine.gap was summed before the updates: this is what is left after them. Rounding may leave less than 0.
            e = max(0.0, engine.gap * ratio)
            ended = budget.exhausted(engine.n_iter)
            if n < self.min_sweeps and not ended:
                continue
            G = kappa * kappa / 2 * iterates.sqdistance()
            if n == self.min_sweeps:
                factor = min(1.5, max(0.7, (e / (BALANCE * self.fraction * G)) ** 0.25)) if G > 0 else 1.5
            if e <= self.fraction * G or n >= 8 or ended:
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
        steered = min(max(MOST_KAPPA, self.least_kappa), max(self.least_kappa, kappa * factor))
        self.pending = steered if self.steered else kappa, restart
        engine.foresee(*self._next_centre(*self.pending))
        return merit

    def _begin_cycle(self) -> None:
        self.cycle, self.cycle_steps = math.inf, 0

    def _end_cycle(self) -> bool:
        """Judge the cycle. A bad one, True, asks for a restart and for more care within outer steps."""
        bad = self.cycle > 0.8 * self.best_cycle
        self.best_cycle = min(self.best_cycle, self.cycle)
        if bad:
            self._care()
        else:
            self.min_sweeps = max(self.least_sweeps, self.min_sweeps - 1)
            self.fraction = min(1.0, 1.2 * self.fraction)
        self._begin_cycle()
        return bad

    def _care(self) -> None:
        self.min_sweeps = min(16, self.min_sweeps + 1)
        self.fraction = max(LEAST_FRACTION, 0.7 * self.fraction)

    def _recentre(self, kappa: float, restart: bool) -> None:
        if self.switching:
            self._switch(kappa)
            return
        _, self.A, self.a, _ = centre = self._next_centre(kappa, restart)
        self.engine.iterates.recentre(*centre)

    def _next_centre(self, kappa: float, restart: bool) -> tuple[float, float, float, bool]:
        """What Iterates.recentre is told: kappa, A, a, restart."""
        A = 0.0 if restart else self.A
        grown = 1 + A
        return kappa, A, (grown + math.sqrt(grown * grown + 4 * kappa * A * grown)) / (2 * kappa), restart

    def _switch(self, kappa: float) -> None:
        """From steered kappa to slack or back, from the averages where they are better."""
        if self.incumbent.from_average:
            self.engine.adopt()
        used = kappa, self.min_sweeps, self.fraction
        (kappa, self.min_sweeps, self.fraction), self.other = self.other, used
        self.steered, self.trial = not self.steered, None
        kappa = max(kappa, self.least_kappa)
        self.engine.iterates.recentre(kappa, 0.0, 1.0, True)
        self.begin(kappa)

    def judge(self, skip: SkipTolerance, wanted: float) -> None:
        """Where the gap stalls from one scheduled check to the next, ask for more care within outer steps.

        Where its pace promises more sweeps to `wanted` than were made, go over to the other way to set kappa, steered
        or slack, unless that was slower: what is known of it fades, by a factor of 2 a trial. A loss without kinks asks
        for slack only where steering has stalled.
        """
        last = self.incumbent.last
        assert last is not None
        left, own = self.incumbent.best_primal - self.incumbent.bound, last.gap
        n_iter = self.engine.n_iter
        if left > STALL * self.judged:
            self._care()
            self.stalls += 1
            skip.tighten(of_gap=self.stalls >= PATIENT_STALLS)
        else:
            self.stalls = 0
        self.judged = left
        if self.trial is None:
            self.trial = n_iter, left, own
        since, before, own_before = self.trial
        if 0 < left < math.inf and before > 0 and n_iter - since >= max(MIN_TRIAL, n_iter // TRIAL):
            self.trial = n_iter, left, own
            pace = pace_of(before, left, n_iter - since)
            other = self.pace[not self.steered]
            self.pace = {self.steered: pace, not self.steered: 2 * other}
            willing = self.engine.nonsmooth or not self.steered or self.stalls >= PATIENT_STALLS
            # A way that began with a gap far above the best one may be about to end, and have brought nothing so far.
            slow = min(sweeps_left(left, wanted, pace),
                       sweeps_left(own, wanted, pace_of(own_before, own, n_iter - since))) > n_iter
            self.switching = willing and slow and other > pace
