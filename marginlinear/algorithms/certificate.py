"""What is known of a fit, and when it is enough.

The incumbent W0 is the best weights so far, P(W0) an upper bound of the least P*. Each check has a lower one, the dual
value D of its duals, and the best of them serves whichever weights are the incumbent:

    0 <= P(W0) - P* <= P(W0) - max D,       certified: P(W0) - max D <= tol max(1, |P(W0)|)

`status` has what a fit is told to have ended by, from a certificate recomputed at its end.
"""

from __future__ import annotations

import copy
import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear.status import STALLED, SWEEPS, TIME_LIMIT, allowance
from marginlinear.threads import Cancelled

if TYPE_CHECKING:
    from threading import Event

    from marginlinear._core.dual_engine import DualEngine
    from marginlinear._typing import FloatArray, HistoryEntry, Observer
    from marginlinear.problem import Run, Solution

# Turns without a gain that end a loop: in one alone, that before may have done more than was asked.
IDLE = 2
# A certificate that becomes less by a smaller part of it has not moved.
LESS = 0.01
# Sweeps between scheduled checks: the first number at least, and a STRIDEth of those made; estimates ask for more.
FIRST_CHECK, STRIDE = 4, 5


def scheduled_after(n_iter: int) -> int:
    """The sweep of the next scheduled check."""
    return n_iter + max(FIRST_CHECK, n_iter // STRIDE)


class Budget:
    """Sweeps and seconds that are left, and the record of the checks, shared by all stages of a fit.

    A loop whose end depends on the data asks it at every turn: one whose turns are sweeps, or parts of a step that take
    as long, `exhausted`; one whose turns may leave all as it is, as a fit within a fit may, or a step, `spent`.
    """

    def __init__(self, max_iter: float | None, time_limit: float | None, progress: Observer | None = None,
                 cancel: Event | None = None) -> None:
        self.started = time.perf_counter()
        self.max_iter = math.inf if max_iter is None else max_iter
        self.time_limit = math.inf if time_limit is None else time_limit
        self.progress, self.cancel = progress, cancel
        self.history: list[HistoryEntry] = []
        # Of the turns that `spent` was told of: the best values, and how many in a row brought no better one.
        self.best, self.idle = (math.inf, -math.inf), 0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def capped(self, max_iter: float) -> Budget:
        """The same budget, with the same record, for a stage that is given up after so many sweeps."""
        capped = copy.copy(self)
        capped.max_iter = min(self.max_iter, max_iter)
        return capped

    def exhausted(self, n_iter: int) -> str | None:
        """None, or what ran out: SWEEPS or TIME_LIMIT."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled
        if n_iter >= self.max_iter:
            return SWEEPS
        return TIME_LIMIT if self.seconds >= self.time_limit else None

    def spent(self, n_iter: int, objective: float, bound: float) -> str | None:
        """`exhausted`, after a turn that ended with these values; STALLED, too, where IDLE turns in a row have brought
        neither a lower objective nor a higher bound: what is left is rounding."""
        before, self.best = self.best, (min(self.best[0], objective), max(self.best[1], bound))
        self.idle = self.idle + 1 if self.best == before else 0
        return self.exhausted(n_iter) or (STALLED if self.idle >= IDLE else None)

    def record(self, n_iter: int, objective: float, bound: float | None = None, certificate: float | None = None,
               residual: float | None = None) -> None:
        entry = {"n_iter": n_iter, "seconds": self.seconds, "objective": objective, "bound": bound,
                 "certificate": certificate, "residual": residual}
        self.history.append(entry)
        if self.progress is not None:
            self.progress(entry)

    def relay(self, entry: HistoryEntry, before: int = 0) -> None:
        """Record what another fit tells, which goes on in place of this one, after so many sweeps `before` its own."""
        self.record(entry["n_iter"] + before, entry["objective"], entry["bound"], entry["certificate"],
                    entry["residual"])

    def left(self, run: Run, before: int = 0) -> Run:
        """The run of that fit."""
        limit = None if run.time_limit is None else max(0.0, run.time_limit - self.seconds)
        return run._replace(max_iter=run.max_iter - before, time_limit=limit,
                            progress=partial(self.relay, before=before))

    def whole(self, solution: Solution) -> Solution:
        """That fit's, with the seconds and the record of both."""
        return solution._replace(info=solution.info._replace(seconds=self.seconds, history=self.history))


class Check(NamedTuple):
    """Exact values at one moment.

    `primal` and `bound` belong to the convex problem of the sweeps, `objective` to the method. `at_average`: primal and
    objective are those of W_avg, which was better than W; `from_average`: the bound is that of the averaged duals.
    """

    primal: float
    objective: float
    at_average: bool
    bound: float
    from_average: bool

    @property
    def gap(self) -> float:
        return self.primal - self.bound


# A line search for a better incumbent ends where it can gain no more than this part of what is allowed.
CLOSE = 0.03


def placed(vector: FloatArray, room: FloatArray | None) -> FloatArray:
    """A copy of the vector, in `room` where there is some."""
    if room is None:
        return np.array(vector)
    room[:] = vector
    return room


class Incumbent:
    """The best weights so far, and the best bound that they are compared with.

    Attributes
    ----------
    weights : float64 array, flat, or None before the first check
    objective : float
        Theirs: the upper bound.
    bound : float
        The best lower bound of any check; the engine keeps its duals.
    best_primal : float
        The least P of any check or line search.
    follows_best : bool
        Whether a check with a lower P takes the incumbent's place. Otherwise this stays where `set` put it, at the
        weights that the problem was made at: the bounds speak of them alone.
    lowest, lowest_weights : float; float64 array, flat, or None
        Where sweeps take losses against references: the least objective of the method so far, and the weights there.
        They are what a fit that comes to no end of its own has to show.
    margins : float64 array or None
        Those of weights that a line search has made; None for weights that were checked.
    last : Check or None
    idle : int
        Checks since the certificate has last become less by a part LESS of it.
    """

    weights: FloatArray | None
    lowest_weights: FloatArray | None
    margins: FloatArray | None
    last: Check | None

    def __init__(self, engine: DualEngine) -> None:
        self.engine = engine
        self.weights, self.objective, self.margins = None, math.inf, None
        self.lowest, self.lowest_weights = math.inf, None
        self.follows_best, self.last = True, None
        self.forget_bounds()

    def forget_bounds(self) -> None:
        """Of the checks so far."""
        self.best_primal, self.bound = math.inf, -math.inf
        self.least, self.idle = math.inf, 0

    def set(self, objective: float, averaged: bool = False) -> None:
        """Compare the bounds from here on with the weights W, or W_avg, and their objective."""
        self.weights = placed(self.engine.iterates.vector(averaged), self.weights)
        self.engine.iterates.scale(self.weights, 1.0)
        self.objective, self.margins = objective, None

    def offer(self, objective: float, weights: FloatArray) -> None:
        """Weights, as a vector of the engine has them, and the method's objective there: kept where it is the least."""
        if objective < self.lowest:
            self.lowest, self.lowest_weights = objective, placed(weights, self.lowest_weights)
            self.engine.iterates.scale(self.lowest_weights, 1.0)

    def note(self, check: Check) -> None:
        """Keep what a check found."""
        self.last = check
        self.best_primal = min(self.best_primal, check.primal)
        self.raise_bound(check.bound, check.from_average)
        if self.follows_best and check.primal < self.objective:
            self.set(check.primal, check.at_average)
        if self.engine.has_references:
            self.offer(check.objective, self.engine.iterates.vector(check.at_average))
        self.idle += 1
        if self.certificate <= (1 - LESS) * self.least:
            self.least, self.idle = self.certificate, 0

    def raise_bound(self, bound: float, from_average: bool = False) -> None:
        if bound > self.bound:
            self.bound = bound
            self.engine.keep_duals(from_average)

    def line_search(self, primal: float, averaged: bool, tol: float) -> None:
        """Around a centre W swings about the optimum: the incumbent is what lines through its places and 0 have of P.
        Of hinges at a large cost a scale is worth most: where many margins are short of 1 by little, it makes them 1.

        `primal` is P at W, or W_avg, which a check has just found.
        """
        if self.weights is None:
            self.set(primal, averaged)
        assert self.weights is not None
        # Engines with `lines` have both.
        engine: Any = self.engine
        if self.margins is None:
            self.margins = engine.margins_of(self.weights)
        enough = CLOSE * allowance(tol, self.objective)
        self.objective = engine.line_search(self.weights, self.margins, averaged, enough)
        self.best_primal = min(self.best_primal, self.objective)

    @property
    def from_average(self) -> bool:
        """Whether the last check's bound was that of the averaged duals."""
        return self.last is not None and self.last.from_average

    @property
    def certificate(self) -> float:
        return self.objective - self.bound

    def certified(self, tol: float) -> bool:
        return self.certificate <= allowance(tol, self.objective)

    @property
    def level(self) -> float:
        """The best P; before the first check what bound and gap make of it, which is not finite where one of them is
        not."""
        return self.best_primal if self.best_primal < math.inf else self.bound + self.engine.gap


# All that skipped rows may keep of their gaps, as a part of what is allowed.
OF_ALLOWED = 0.1
# The same as a part of what the sweep before has met: it is too little to tell in what this sweep skips. Where the gap
# goes on stalling, what is skipped adds up, and this is lowered too.
OF_GAP = 0.02
# Both are less by this with a stall.
TIGHTER = 0.1


class SkipTolerance:
    """The gaps that a sweep may leave: rows whose gaps add up to no more are skipped."""

    def __init__(self) -> None:
        self.of_allowed, self.of_gap = OF_ALLOWED, OF_GAP
        self.forget()

    def forget(self) -> None:
        """Nothing is skipped before a bound is known."""
        self.value = -math.inf

    def update(self, tol: float, level: float, fraction: float) -> None:
        """For an objective of about `level`. Around a centre, e is to fall to a `fraction` of G, which may be small:
        what is skipped is a part of that."""
        self.value = self.of_allowed * fraction * allowance(tol, level) if math.isfinite(level) else -math.inf

    def of_sweep(self, engine: DualEngine) -> float:
        """That of the next sweep. At first every row is visited in full: duals may still be out of their range."""
        if not engine.piecewise_linear and self.value > -math.inf and engine.gap < math.inf:
            return max(self.value, self.of_gap * engine.gap)
        return self.value

    def tighten(self, of_gap: bool) -> None:
        """After a stall; `of_gap`: after one of many."""
        self.of_allowed *= TIGHTER
        if of_gap:
            self.of_gap *= TIGHTER
