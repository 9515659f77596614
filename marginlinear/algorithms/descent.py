"""Dual coordinate descent to a certificate, plain or accelerated (math.md 9), over any engine with this face:

    iterates                    W and its companions (iterates.pyx)
    n_iter                      sweeps so far
    kinked                      whether the derivative of a loss jumps, as the hinge's
    stable                      whether sweeps without a centre cannot diverge: each raises D, or duals have bounds
    flat                        whether no loss has curvature: duals sit at the ends of their range, without a gap, and
                                the others are noise that averages need as it is
    adapt()                     the problem of the sweeps follows the weights, where it is another than that of `primal`
    excess                      what the certificate then has beyond e + G
    sweep()                     one visit of every row; sets sums over the rows as they were met: `gap` of the blocks,
                                `loss`, and `slack`, the part of it that better references would save
    primal(averaged)            (P, objective, stale) at W, or at W_avg: of the problem of the sweeps and of the method
    dual(), averaged_dual()     values of D
    average(weight, A, a)       duals and weights into their averages; returns Iterates.average
    adopt()                     duals and weights become their averages
    neglect(gap)                rows are left as they are where that adds up to no more than this gap
    keep_duals(averaged)        the duals, or their averages, are those of the best bound so far
    rounding                    what rounding may take from D beside a part of its value
    lines                       whether it has margins_of(weights) and
    approach(weights, margins, averaged, enough)
                                weights move to the least P on a line towards W, or W_avg; returns P, after `primal`
    refresh()                   weights summed afresh from duals and rows
    start_over(), loss_at_zero()  duals and weights of 0, and P there

Plain sweeps come first. Where their rate promises a long run, the sweeps go on around a moving centre V:
P(W) + kappa/2 ||W - V||^2 is solved roughly, V is extrapolated, and so on: the accelerated hybrid proximal
extragradient method (Monteiro and Svaiter 2013) for a strongly convex P. The certificate splits exactly,

    P(W) - D(duals) = e + G,    e = sum of the blocks' gaps,    G = 1/2 ||W - U||^2 = kappa^2/2 ||W - V||^2,

a small kappa makes G small and e large, a large kappa the reverse: kappa is steered to keep the two in balance, or
stays small where that is seen to be faster, as it is with kinked losses.

Where the weights are few, Newton steps (block_newton.pyx, margin_newton.pyx) may take over: they hardly feel the
features' scale or C.
"""

import math
import time
from collections import namedtuple

from marginlinear._core.vector import assign, copied
from marginlinear.status import MAX_ITER, STALLED, TIME_LIMIT, allowance
from marginlinear.threads import Cancelled

# The accelerator starts when plain sweeps at their rate would need more than this many to the tolerance.
PATIENCE = 12
FIRST_KAPPA = 10.0
# All that rows may keep of their gaps without being moved, as a part of what is allowed; less by this with each stall.
NEGLECT = 0.1
# The same as a part of what the sweep before has met: it is too little to tell in what this sweep leaves. Where the gap
# goes on stalling, what is left adds up, and this is lowered too.
TRIFLE = 0.02
# Wanted ratio e/G at the end of an outer step.
BALANCE = 0.3
# Sweeps between scheduled checks: the first number at least, and a STRIDEth of those made; estimates ask for more. Of
# the first sweeps, without a centre, these are good enough to do alone.
FIRST_CHECK, STRIDE, EARLY = 4, 5, 20
# A search for a better anchor ends where it can gain no more than this part of what is allowed.
CLOSE = 0.03
# A gap of which this part is left after a stride is stalled; so many stalls in a row call for another way.
STALL, PATIENT_STALLS = 0.8, 3
# Care within outer steps has this limit: a smaller share of G for e drives kappa up without end.
LEAST_FRACTION = 0.1
# A kappa that leaves e far above G. With separable rows and the hinge, G is noise of the inner errors, about kappa e:
# steering, which takes it for progress of the centres, then settles at a kappa ten times too large.
SLACK_KAPPA = 3.0
# A way to set kappa is judged after so many sweeps at least, and a TRIALth of those made. Its pace, what a sweep takes
# off the logarithm of the gap, is not less than LEAST_PACE.
MIN_TRIAL, TRIAL, LEAST_PACE = 10, 8, 1e-4
# Blocks that together are this many times what W = 0 may be from the optimum from their solution: sweeps have run away.
# Then kappa is FIRMER times as large, for as many times as RUNAWAYS; above FIRMEST a centre moves by rounding alone.
RUNAWAY, FIRMER, RUNAWAYS, FIRMEST = 1e6, 100.0, 3, 1e15
# The range in which kappa is steered.
LEAST_KAPPA, MOST_KAPPA = 1e-3, 1e7
# Newton steps start from the duals of this many sweeps.
WARM_UP = 10
# Over many sets, accelerated sweeps to 1e-3 are about EACH sqrt(mean c_i ||x_i||^2), Newton steps are the STEPS of
# their class. Where sweeps were promised too early, Newton takes over after as many as ENOUGH steps cost, and before
# this part of the sweeps that are allowed: of few rows a step costs thousands.
EACH, ENOUGH, LATEST = 7.0, 40, 0.25
# Turns without a gain that end a loop: in one alone, that before may have done more than was asked.
IDLE = 2


def pace_of(before, gap, sweeps):
    """What a sweep takes off the logarithm of a gap that was `before`."""
    return max(LEAST_PACE, math.log(before / gap) / sweeps) if gap < math.inf else LEAST_PACE


def slow(gaps, target):
    """Whether the rate of the last three of sweeps' gaps promises more than PATIENCE sweeps to `target`."""
    if gaps[-1] <= target:
        return False
    if not (gaps[-3] > 0 and math.isfinite(gaps[-1])):
        return True
    rate = math.sqrt(gaps[-1] / gaps[-3])
    return rate >= 1 or math.log(target / gaps[-1]) / math.log(rate) > PATIENCE


class Check(namedtuple("Check", "primal objective at_average bound from_average")):
    """Exact values at one moment.

    `primal` and `bound` belong to the convex problem of the sweeps, `objective` to the method. `at_average`: primal and
    objective are those of W_avg, which was better than W; `from_average`: the bound is that of the averaged duals.
    """

    __slots__ = ()

    @property
    def gap(self):
        return self.primal - self.bound


class Budget:
    """Sweeps and seconds that are left, and the record of the checks, shared by all stages of a fit.

    A loop whose end depends on the data asks it at every turn: one whose turns are sweeps, or parts of a step that take
    as long, `exhausted`; one whose turns may leave all as it is, as a fit within a fit may, or a step, `spent`.
    """

    def __init__(self, max_iter, time_limit, progress=None, cancel=None):
        self.started = time.perf_counter()
        self.max_iter = math.inf if max_iter is None else max_iter
        self.time_limit = math.inf if time_limit is None else time_limit
        self.progress, self.cancel = progress, cancel
        self.history = []
        # Of the turns that `spent` was told of: the best values, and how many in a row brought no better one.
        self.best, self.idle = (math.inf, -math.inf), 0

    @property
    def seconds(self):
        return time.perf_counter() - self.started

    def exhausted(self, n_iter):
        """None, or the status that says what ran out."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled
        if n_iter >= self.max_iter:
            return MAX_ITER
        return TIME_LIMIT if self.seconds >= self.time_limit else None

    def spent(self, n_iter, objective, bound):
        """`exhausted`, after a turn that ended with these values; STALLED, too, where IDLE turns in a row have brought
        neither a lower objective nor a higher bound: what is left is rounding."""
        before, self.best = self.best, (min(self.best[0], objective), max(self.best[1], bound))
        self.idle = self.idle + 1 if self.best == before else 0
        return self.exhausted(n_iter) or (STALLED if self.idle >= IDLE else None)

    def record(self, n_iter, objective, bound=None, certificate=None, residual=None):
        entry = {"n_iter": n_iter, "seconds": self.seconds, "objective": objective, "bound": bound,
                 "certificate": certificate, "residual": residual}
        self.history.append(entry)
        if self.progress is not None:
            self.progress(entry)


class Descent:
    """Sweeps on one engine, from one call of `until` to the next."""

    def __init__(self, engine, budget, tol, algorithm, newton=None, keep=False):
        """`newton`: MarginSteps, BlockSteps or None. keep: the engine has `keep_duals`, and what is certified is
        the anchor by the best bound, of whichever check; otherwise by the bound of the last check."""
        self.keep = keep
        self.engine, self.budget, self.tol, self.algorithm = engine, budget, tol, algorithm
        self.stopped = None
        self.route = "cd"
        self.last = None
        self.next_check = FIRST_CHECK
        self.goal, self.renewal = tol, 0.0
        # Weights W0 whose objective, the ceiling, is compared with every bound from here on.
        self.anchor, self.ceiling, self.convex = None, math.inf, True
        # Of the anchor, where it is no W that was checked.
        self.margins = None
        self.gaps = []
        self.checked_estimate = math.inf
        self.averages = 0
        # The accelerator's own knobs, kept over restarts (math.md 9.2): nm, ft, rho; whether kappa follows e/G.
        self.min_sweeps, self.fraction, self.rho, self.steered = 3, 1.0, 0.3, True
        # Those of the other way to set kappa: kappa, nm, ft.
        self.other = SLACK_KAPPA, 3, 1.0
        self.pending, self.runaways, self.least_kappa = None, 0, LEAST_KAPPA
        self.share, self.trifle = NEGLECT, TRIFLE
        self.forget_bounds()
        self.newton = None
        self.newton_steps = newton
        self.at_zero = engine.loss_at_zero()
        if algorithm == "newton":
            newton.require(engine)
        # Of one Newton step and, as a whole, of those that a problem may take, in sweeps.
        cost = newton.sweeps_of_a_step(engine) if newton is not None else math.inf
        self.enough = min(ENOUGH * cost, LATEST * budget.max_iter) if cost < math.inf else math.inf
        self.steps = newton.STEPS * cost if cost < math.inf else math.inf
        self.newton_first = algorithm == "newton" or (
            algorithm == "auto" and self.steps < math.inf and self.steps <= self.sweeps)
        self.go_on()

    @property
    def sweeps(self):
        """How many accelerated sweeps the problem may take."""
        return EACH * math.sqrt(self.engine.stiffness())

    def reset(self, convex=True):
        """The engine's problem has changed: forget rates and momentum, keep the weights or their averages.

        convex: the anchor follows the best weights seen. Otherwise it stays where `drop_anchor` put it, at the weights
        that the problem was made at: its bounds speak of them alone.
        """
        self.gaps = []
        self.checked_estimate = math.inf
        self.convex = convex
        self.forget_bounds()
        iterates = self.engine.iterates
        if self.route == "newton":
            if self.newton is not None:
                self.newton.restart()
        elif iterates.kappa > 0:
            iterates.recentre(iterates.kappa, 0.0, 1.0, True)
            self._begin(iterates.kappa)

    def go_on(self):
        """From weights beside duals, where there is a centre."""
        if self.engine.iterates.kappa > 0:
            if self.newton_first:
                self.route = "newton"
            else:
                self._begin(self.engine.iterates.kappa)

    def give_up_centre(self):
        """Plain sweeps from here on: W = U."""
        self.engine.iterates.plain()
        self.route, self.averages = "cd", 0

    def refresh(self, ceiling):
        """A bound that held by rounding alone was taken for one: sum the weights afresh, forget the bounds. `ceiling`
        is the anchor's objective, recomputed."""
        self.ceiling, self.margins = ceiling, None
        self.forget_bounds()
        if self.route != "newton":
            self.engine.refresh()
            if self.engine.iterates.kappa > 0:
                self._begin(self.engine.iterates.kappa)

    def forget_bounds(self):
        """Of the checks so far."""
        self.best_primal, self.best_bound, self.judged, self.stalls = math.inf, -math.inf, math.inf, 0
        self.left_out = -math.inf
        self.trial, self.pace = None, {True: math.inf, False: math.inf}

    def adopt(self):
        """Go on from the averages where they have the better bound. To be called at a check."""
        if self.last.from_average:
            self.engine.adopt()
            self.pending = None
            self._begin(self.engine.iterates.kappa)

    def drop_anchor(self, objective, at_average=False):
        """Compare the bounds from here on with these weights and their objective."""
        weights = self.engine.iterates.vector(at_average)
        if self.anchor is None:
            self.anchor = copied(weights)
        else:
            assign(self.anchor, weights)
        self.engine.iterates.scale(self.anchor, 1.0)
        self.ceiling, self.margins = objective, None

    def until(self, tol, renewal=0.0):
        """Sweep until the anchor is certified, ceiling - bound <= tol max(1, ceiling), or until
        gap <= renewal (ceiling - bound), at a check; returns the check.

        Where the budget ends before, or no way is left, `stopped` says so.
        """
        self.goal, self.renewal = tol, renewal
        if self.best_bound > -math.inf:
            self._neglect()
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
            if check is not None and (self.stopped or self.certified(check) or self.spent(check)):
                return check

    def certified(self, check):
        bound = self.best_bound if self.keep else check.bound
        return self.ceiling - bound <= allowance(self.goal, self.ceiling)

    def spent(self, check):
        """Whether other references promise more than these: the objective is below the anchor's, and the gap that is
        left is small beside what they would save, or is within the tolerance and small beside what was gained."""
        left = max(self.renewal * (check.primal - check.objective),
                   min(self.renewal * (self.ceiling - check.bound), allowance(self.goal, self.ceiling)))
        return self.renewal > 0 and check.objective < self.ceiling and check.gap <= left

    def check(self):
        """Exact values, by one pass over the rows, or two where there are averages."""
        engine = self.engine
        primal, objective, _ = engine.primal()
        bound, at_average, from_average = engine.dual(), False, False
        if self.averages > 1:
            mean_primal, mean_objective, _ = engine.primal(averaged=True)
            if mean_primal < primal:
                primal, objective, at_average = mean_primal, mean_objective, True
            mean_bound = engine.averaged_dual()
            if mean_bound > bound:
                bound, from_average = mean_bound, True
        self._schedule()
        swings = self.convex and self.averages > 1 and engine.n_iter > EARLY and primal < math.inf
        if self.keep and engine.lines and swings:
            self._approach(primal, at_average)
        return self._note(Check(primal, objective, at_average, bound, from_average))

    def _approach(self, primal, at_average):
        """Around a centre W swings about the optimum: the anchor is what lines through its places and 0 have of P. Of
        hinges at a large cost a scale is worth most: where many margins are short of 1 by little, it makes them 1."""
        if self.anchor is None:
            self.drop_anchor(primal, at_average)
        if self.margins is None:
            self.margins = self.engine.margins_of(self.anchor)
        enough = CLOSE * allowance(self.goal, self.ceiling)
        self.ceiling = self.engine.approach(self.anchor, self.margins, at_average, enough)
        self.best_primal = min(self.best_primal, self.ceiling)

    def _schedule(self):
        self.next_check = self.engine.n_iter + max(FIRST_CHECK, self.engine.n_iter // STRIDE)

    def _note(self, check):
        """Keep what a check found."""
        self.last = check
        self.best_primal = min(self.best_primal, check.primal)
        self._raise_bound(check.bound, check.from_average)
        self._neglect()
        if self.convex and check.primal < self.ceiling:
            self.drop_anchor(check.primal, check.at_average)
        self.budget.record(self.engine.n_iter, check.objective, check.bound,
                           self.ceiling - (self.best_bound if self.keep else check.bound))
        return check

    def _raise_bound(self, bound, from_average):
        if bound > self.best_bound:
            self.best_bound = bound
            if self.keep:
                self.engine.keep_duals(from_average)

    def _level(self):
        """The best P; before the first check what bound and gap make of it, which is not finite where one of them is
        not."""
        return self.best_primal if self.best_primal < math.inf else self.best_bound + self.engine.gap

    def _neglect(self):
        """Around a centre, e is to fall to its part of G, which may be small: what is neglected is a part of that."""
        part, level = self.fraction if self.engine.iterates.kappa > 0 else 1.0, self._level()
        self.left_out = self.share * part * allowance(self.goal, level) if math.isfinite(level) else -math.inf

    def _sweep(self):
        engine, trifle = self.engine, self.left_out
        # At first every row is visited in full: duals may still be out of their range.
        if not engine.flat and self.left_out > -math.inf and engine.gap < math.inf:
            trifle = max(trifle, self.trifle * engine.gap)
        engine.neglect(trifle)
        engine.sweep()

    def _check_if_due(self, estimate):
        """A check costs a pass: made when the schedule says so, or when the estimated gap is small enough to end.
        The bound alone costs none: early on, the schedule asks for no more."""
        engine = self.engine
        estimate += engine.excess
        scheduled = engine.n_iter >= self.next_check
        if scheduled and self.route == "cd" and engine.n_iter < EARLY:
            self._raise_bound(engine.dual(), False)
            self._neglect()
            self._schedule()
            scheduled = False
        primal = max(engine.loss + 0.5 * engine.iterates.sqnorm(), self.best_bound)
        left = min(self.ceiling, primal) - (primal - estimate)
        promising = (left <= allowance(self.goal, primal)
                     or estimate <= self.renewal * engine.slack) and estimate <= 0.8 * self.checked_estimate
        if not (promising or scheduled):
            return None
        self.checked_estimate = min(self.checked_estimate, estimate)
        check = self.check()
        if scheduled and self.route == "accelerated":
            self._judge()
        return check

    def _judge(self):
        """Where the gap stalls from one scheduled check to the next, ask for more care within outer steps.

        Where its pace promises more sweeps than were made, go over to the other way to set kappa, steered or slack,
        unless that was slower: what is known of it fades, by a factor of 2 a trial. A loss without kinks asks for
        slack only where steering has stalled.
        """
        left, own, n_iter = self.best_primal - self.best_bound, self.last.gap, self.engine.n_iter
        if left > STALL * self.judged:
            self._care()
            self.share *= NEGLECT
            self.stalls += 1
            if self.stalls >= PATIENT_STALLS:
                self.trifle *= NEGLECT
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
            willing = self.engine.kinked or not self.steered or self.stalls >= PATIENT_STALLS
            # A way that began with a gap far above the best one may be about to end, and have brought nothing so far.
            slow = min(self._sweeps_left(left, pace),
                       self._sweeps_left(own, pace_of(own_before, own, n_iter - since))) > n_iter
            self.switching = willing and slow and other > pace

    def _sweeps_left(self, gap, pace):
        """Sweeps from this gap to one that ends `until`: around an anchor that stays, what is within the tolerance need
        not."""
        wanted = allowance(self.goal, self.ceiling) * (1.0 if self.convex else self.renewal)
        return math.log(gap / wanted) / pace if gap < math.inf and 0 < wanted < math.inf else math.inf

    def _care(self):
        self.min_sweeps = min(16, self.min_sweeps + 1)
        self.fraction = max(LEAST_FRACTION, 0.7 * self.fraction)

    def _plain_sweep(self):
        self.engine.adapt()
        self._sweep()
        if self._ran_away():
            return self._start_over()
        self.gaps.append(self.engine.gap)
        # The sum was taken before the updates: the last sweep's rate tells what they left.
        rate = min(1.0, self.gaps[-1] / self.gaps[-2]) if len(self.gaps) > 1 and self.gaps[-2] > 0 else 1.0
        check = self._check_if_due(self.gaps[-1] * rate)
        if self.route == "cd" and self.algorithm != "cd":
            if self.newton_first:
                if self.engine.n_iter >= WARM_UP and (self.algorithm == "newton" or self._slow()):
                    self.route = "newton"
            elif self.algorithm == "accelerated" or self._slow():
                self._accelerate(FIRST_KAPPA)
        return check

    def _newton_step(self):
        if self.newton is None:
            self.averages = 0
            self.newton = self.newton_steps.begin(self.engine)
        newton = self.newton
        newton.step()
        if not math.isfinite(newton.primal):
            return self._start_over()
        return self._note(Check(newton.primal, newton.objective, False, newton.bound, False))

    def _slow(self):
        """Whether plain sweeps promise a long run to the tolerance."""
        if len(self.gaps) < 4 or not math.isfinite(self._level()):
            return False
        return slow(self.gaps, allowance(self.tol, self._level()))

    def _accelerate(self, kappa):
        self.route = "accelerated"
        self.engine.iterates.start(kappa)
        self._begin(kappa)

    def _begin(self, kappa):
        """No momentum, no averages, nothing known of cycles."""
        self.route = "accelerated"
        self.averages = 0
        self.A, self.a = 0.0, 1 / kappa
        self.best_cycle = math.inf
        self.pending, self.switching = None, False
        self._begin_cycle()

    def _begin_cycle(self):
        self.cycle, self.cycle_steps = math.inf, 0

    def _outer_step(self):
        """Sweeps around one centre, until e is down to its share of G; then averages and, at the next call, the next
        centre: until then W is what was checked."""
        if self.pending is not None:
            self._recentre(*self.pending)
            self.pending = None
        engine, iterates = self.engine, self.engine.iterates
        engine.adapt()
        kappa, e, n, factor = iterates.kappa, 0.0, 0, 1.0
        while True:
            before = engine.gap
            self._sweep()
            n += 1
            ratio = self.rho
            if self._ran_away():
                return self._start_over()
            if n > 1:
                ratio = min(1.0, engine.gap / before) if before > 0 else 0.0
                self.rho = min(0.9, max(0.02, (self.rho + ratio) / 2))
            # engine.gap was summed before the updates: this is what is left after them.
            e = engine.gap * ratio
            ended = self.budget.exhausted(engine.n_iter)
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
        return self._check_if_due(merit)

    def _ran_away(self):
        """Whether the last sweep was one of a divergence. P(0) - P* is at most P(0) - D."""
        engine = self.engine
        if not math.isfinite(engine.gap):
            return True
        if engine.stable and engine.iterates.kappa == 0:
            return False
        return engine.gap > RUNAWAY * (self.at_zero - min(0.0, self.best_bound))

    def _start_over(self):
        """From 0, by a way that is surer to stay finite. Few sweeps a step can diverge where rows are long and C is
        large; so can plain sweeps that are not stable, and anything where sums overflow.

        Newton steps do not feel it, nor does a centre that holds W firmly enough; stable sweeps need none in the end.
        Where no way is left the fit ends, with the best weights so far.
        """
        engine, kappa = self.engine, self.engine.iterates.kappa
        engine.start_over()
        self.averages, self.pending, self.gaps = 0, None, []
        self.forget_bounds()
        self.runaways += 1
        if self.route == "newton":
            self.newton, self.steps, self.enough, kappa = None, math.inf, math.inf, 0.0
        elif self.algorithm == "newton" or (self.algorithm == "auto" and self.steps < math.inf and not engine.stable):
            self.route = "newton"
            return None
        firmer = FIRMER * kappa if kappa > 0 else FIRST_KAPPA * FIRMER**self.runaways
        if self.algorithm == "newton" or firmer > FIRMEST:
            self.stopped = STALLED
            return self.check()
        if self.runaways > RUNAWAYS and engine.stable and kappa > 0:
            self.route = self.algorithm = "cd"
            return None
        self.steered = True
        if not engine.stable:
            # Steered down, the centre would let go once more, and nothing is surer than a firm one.
            self.least_kappa = firmer
        self._accelerate(firmer)
        return None

    def _end_cycle(self):
        """Judge the cycle. A bad one, True, asks for a restart and for more care within outer steps."""
        bad = self.cycle > 0.8 * self.best_cycle
        self.best_cycle = min(self.best_cycle, self.cycle)
        if bad:
            self._care()
        else:
            self.min_sweeps = max(3, self.min_sweeps - 1)
            self.fraction = min(1.0, 1.2 * self.fraction)
        self._begin_cycle()
        return bad

    def _recentre(self, kappa, restart):
        if self.switching:
            self._switch(kappa)
            return
        if restart:
            self.A = 0.0
        grown = 1 + self.A
        self.a = (grown + math.sqrt(grown * grown + 4 * kappa * self.A * grown)) / (2 * kappa)
        self.engine.iterates.recentre(kappa, self.A, self.a, restart)

    def _switch(self, kappa):
        """From steered kappa to slack or back, from the averages where they are better."""
        if self.last.from_average:
            self.engine.adopt()
        used = kappa, self.min_sweeps, self.fraction
        (kappa, self.min_sweeps, self.fraction), self.other = self.other, used
        self.steered, self.trial = not self.steered, None
        kappa = max(kappa, self.least_kappa)
        self.engine.iterates.recentre(kappa, 0.0, 1.0, True)
        self._begin(kappa)
