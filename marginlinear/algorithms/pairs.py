"""Over a kernel: greedy steps of two variables, within an active set that holds all free ones.

The variables of the dual are coefficients of the rows. A loss that is flat above a knot, and below it a line, a
parabola, or first a parabola and then a line, gives each row one, whose dual is a parabola between bounds; one that is
flat within a band, and such beyond it on both sides, gives each row two, of either sign. Kernel rows
are float32 numbers, and the certificate of a fit is recomputed in float64: where that falls short, the rounds go on
from the scores it has found, so that the error is that of what changes alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from marginlinear._core.margin_cd import table_of
from marginlinear._core.pair_cd import UNIT, PairCD, best_shift, values_of
from marginlinear._core.rows import OF_ROWS
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.factored_newton import factor_of, is_factor
from marginlinear.algorithms.newton import LIMIT, SHARPEST
from marginlinear.problem import Info, Solution
from marginlinear.status import CONVERGED, STALLED, allowance, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from marginlinear._core.row_cache import RowCache
    from marginlinear._typing import FloatArray, Int8Array, Int32Array, IntArray, State, Table
    from marginlinear.problem import Problem, Run

# Rows, targets, curvatures, and lower and upper bounds of the variables.
Variables: TypeAlias = "tuple[Int32Array, FloatArray, FloatArray, FloatArray, FloatArray]"

# Variables of an active set, at least: so many, this part of all, and this multiple of the free ones.
LEAST, PART, FREE = 256, 1 / 16, 1.375
# A round ends where a step gains less than this part of the first one, a smaller one where no row waits outside, or
# after so many steps a variable.
INNER, WHOLE, STEPS = 0.1, 1e-3, 5
# Where a loss has curvature most duals may be free: rows that were made this many times are too many.
AGAIN = 2.5
# Rounds, at least, before Newton steps take their place.
CRAWL = 32
# Newton steps over as many columns as rows are this part of the work where a loss has curvature, and steps over a
# part of the columns SQUARE times the square of it: columns are counted from the first of these parts on.
CURVED, SQUARE = 1 / 32, 2.0
# Of a gap at scores of float64, what rounds with float32 numbers can tell.
STALE = 1e-5
# Rounds in which a gap is to halve: float32 numbers may have no certificate to be found, and go on for ever.
HALVES = 32
# Rows whose margins are that far in the flat part of their loss have none after a refresh either.
MARGIN = 0.01
# A bound that is this part of the objective above the least one, both at scores of float64, is not one.
ABOVE = 1e-3
# A sum of coefficients is 0 where it is within this part of theirs.
ROUNDING = 1e-12
# Rows of a start that are made between looks at the clock.
BETWEEN = 128


def dual_of(knots: Sequence[float], parts: Sequence[Any]) -> tuple[float, float, float] | None:
    """(target, add, upper) of the dual target a - add a^2/(2 c), 0 <= a <= upper c, of a loss that is flat above a
    knot; None for others. The loss is given as `margin_cd.table_of` takes it."""
    quads, slopes = ([float(part[at]) for part in parts] for at in (0, 1))
    if len(parts) < 2 or quads[-1] or slopes[-1] or any(parts[-1]):
        return None
    quad, slope = quads[-2], slopes[-2]
    if quad == 0:
        return (knots[-1], 0.0, -slope) if len(parts) == 2 else None
    if abs(quad * knots[-1] + slope) > 1e-12 * abs(slope):
        return None
    if len(parts) == 2:
        return -slope / quad, 1 / quad, math.inf
    smooth = len(parts) == 3 and quads[0] == 0 and abs(quad * knots[0] + slope - slopes[0]) <= 1e-12 * abs(slopes[0])
    return (-slope / quad, 1 / quad, -slopes[0]) if smooth else None


class PairFit:
    """A binary fit over Gram rows.

    Parameters
    ----------
    problem : Problem
    run : Run
    cost : float64 array of shape (m,)
    loss : tuple
        (knots, parts) of which `dual_of` makes something.
    free_bias : bool
        Whether scores have an offset that costs nothing. Then the sum of the coefficients is 0, and the objective is
        that at the best offset for the weights.
    """

    # What the coefficients add up to, where the bias is free.
    sum = 0.0
    # Steps of two variables times variables, as a multiple of m^3, after which Newton steps over a factor had been less
    # work, even of as many columns as rows.
    crawl = 1.6
    # 0 or 1 for each variable, where two sums are fixed.
    group: Int8Array | None = None

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, loss: Table, free_bias: bool = False) -> None:
        self.problem, self.run, self.cost, self.table = problem, run, cost, table_of(*loss)
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        self.signs = np.where(problem.y > 0, 1.0, -1.0)
        self.target, self.add, self.upper = self._dual_of(*loss)  # type: ignore[misc]  # which makes something of it
        self.flat = float(loss[0][-1])
        # Whether Newton steps are those over a factor, and the part of their work at which they are thought of next.
        self.factored, self.due = free_bias or self.add == 0, CURVED
        self.free_bias, self.offset, self.crawled = free_bias, 0.0, False
        # What ran out before the variables of a start, and their scores, were there.
        self.unfit: str | None = None
        # The least objective of a round, and its variables; those of the last round, where they made way for them.
        self.lowest: tuple[float, FloatArray] | None = None
        self.last: FloatArray | None = None
        self.random, self.n_iter = np.random.default_rng(run.seed), 0

    _dual_of = staticmethod(dual_of)

    def _variables(self) -> Variables:
        """The row of each variable, its target, what it adds to the curvature, and its bounds."""
        signs, bound = self.signs, self.upper * self.cost
        return (np.arange(len(signs), dtype=np.int32), self.target * signs, self.add / self.cost,
                np.where(signs > 0, 0.0, -bound), np.where(signs > 0, bound, 0.0))

    def _coefficients(self, variables: FloatArray | None = None) -> FloatArray:
        """Of the rows, for these variables or those of now: float64 array of shape (m,)"""
        return np.asarray(self.engine.b if variables is None else variables)

    def _variables_at(self, duals: FloatArray) -> FloatArray:
        """Those of these duals."""
        found: FloatArray = self.signs * duals
        return found

    def _begin(self) -> None:
        """The variables before the first round, where they cannot all be 0."""

    def _take(self, b: FloatArray, exactly: bool = False) -> None:
        """Let the variables be b, and the scores follow, in float64 if `exactly`; where time runs out before they do,
        all stay 0: a row of the kernel is made for each coefficient."""
        engine, scores = self.engine, np.asarray(self.engine.scores)
        engine.b[:] = b
        coefficients = self._coefficients()
        which = np.flatnonzero(coefficients)
        for lo in range(0, len(which), BETWEEN):
            # Without any time the coefficients are asked for as they are: see Watch.follow.
            self.unfit = self.budget.exhausted(0) if self.budget.time_limit else None
            if self.unfit:
                engine.b[:], scores[:], engine.drift = 0.0, 0.0, 0.0
                return
            some = which[lo:lo + BETWEEN]
            if exactly:
                self.problem.rows.add(some, coefficients[some, np.newaxis], scores[:, np.newaxis])
            else:
                engine.update(some, coefficients[some, np.newaxis])

    def convex(self) -> Solution | None:
        """The Solution; None where most duals are free, or these steps crawl or meet the rounding of float32 numbers:
        that is for methods that move all of them."""
        with self.problem.rows.cache() as cache:
            return self._fit(cache)

    def _fit(self, cache: RowCache) -> Solution | None:
        rows, made = self.problem.rows, cache.made
        self.engine = engine = PairCD(cache, rows.sqnorms(), *self._variables(), sum_is_fixed=self.free_bias,
                                      group=self.group, room=int((1 - OF_ROWS) * rows.room) // rows.takers)
        stopped, least, fresh, noted = None, math.inf, 0.0, -1
        half, due = math.inf, 0
        if self.run.start is None:
            self._begin()
        else:
            self._resume(self.run.start)
            asked = self.run.start.get("lowest")
            if not self.budget.time_limit and asked is not None:
                self.lowest = -math.inf, asked
        self.run.enlist(self)
        if self.unfit:
            # The variables may not have the sum that they must have: they bound nothing.
            return self._solution(self._values()[0], -math.inf, self.unfit)
        exact = not np.any(engine.b)
        while True:
            objective, bound = self._values()
            if exact:
                least = min(least, objective)
            if self.lowest is None or objective < self.lowest[0] or (exact and noted == self.n_iter):
                self.lowest, noted = (objective, np.array(engine.b)), self.n_iter
            self.budget.record(self.n_iter, objective, bound, objective - bound)
            if not bound - min(least, objective) <= max(ABOVE, self.run.tol) * max(1.0, abs(objective)):
                if not exact:
                    self._refresh()
                    exact = True
                    continue
                # The kernel is not positive semidefinite: the dual may rise for ever.
                engine.b[:] = 0
                self._refresh()
                return self._solution(self._values()[0], math.inf if math.isnan(bound) else bound, STALLED)
            certified = objective - bound <= allowance(self.run.tol, objective)
            if exact and (certified or stopped):
                break
            fresh = objective - bound if exact else fresh
            if exact or objective - bound <= half:
                half, due = 0.5 * (objective - bound), self.n_iter + HALVES
            # Rounds from exact scores that change nothing any more have met rounding.
            ended = self.budget.spent(self.n_iter, objective, bound) if exact else self.budget.exhausted(self.n_iter)
            stopped = stopped or ended
            if self.dense(cache.made - made) and not stopped:
                return None
            if ((not stopped and self.crawls(objective - bound, allowance(self.run.tol, objective)))
                    or ended == STALLED) and self.left_to_steps():
                return None
            stale = not exact and (objective - bound <= STALE * fresh or self.n_iter >= due)
            if certified or stopped or stale:
                self._refresh()
                exact = True
                continue
            active = self._active()
            risen = engine.round(active, INNER if len(active) < len(engine.b) else WHOLE, STEPS * len(active))
            self.n_iter += 1
            if risen > 0:
                exact = False
            elif exact:
                if self.left_to_steps():
                    return None
                stopped = STALLED
            else:
                self._refresh()
                exact = True
        if not certified and self.lowest is not None and self.lowest[0] < objective:
            # D rises with the rounds, P need not fall.
            self.last = np.array(engine.b)
            engine.b[:] = self.lowest[1]
            self._recompute(np.arange(len(self.cost)))
            objective = self._values()[0]
        return self._solution(objective, bound, stopped)

    def _resume(self, start: State) -> None:
        """From the best multiple of the duals of another fit, of those that these costs allow: where no dual is at its
        bound, larger costs change nothing."""
        engine, b = self.engine, self._variables_at(start["duals"])
        if self.free_bias and abs(np.sum(b)) > ROUNDING * np.abs(b).sum():
            # Of a fit without an offset.
            return
        self._take(b)
        if self.unfit or not self.budget.time_limit:
            return
        # D(t b) = t sum_v target_v b_v - t^2/2 sum_v (F_v + add_v b_v) b_v
        scores, most = np.asarray(engine.scores), float(np.min(self.cost / start["cost"]))
        target, add = np.asarray(engine.target), np.asarray(engine.add)
        rise, bend = float((b * target).sum()), float((b * (scores + add * b)).sum())
        part = min(rise / bend, most) if bend > 0 else most
        engine.b[:] = np.clip(part * b, engine.lower, engine.upper)
        scores *= part
        engine.drift *= part

    def _refresh(self) -> None:
        """The scores afresh, in float64: those of rows that have a coefficient or, perhaps, a loss."""
        self._balance()
        if self.problem.rows.definite:
            asked = (self._coefficients() != 0) | (self._clear() <= MARGIN)
            self._recompute(np.flatnonzero(asked))
            self._values()
            if (asked | (self._clear() > 0)).all():
                return
        self._recompute(np.arange(len(self.cost)))

    def _balance(self) -> None:
        """Give the variables the sum that they must have."""
        engine, b = self.engine, np.asarray(self.engine.b)
        if self.free_bias:
            # What rounding has left of the sum goes to the variable that has the most room on both sides.
            room = np.minimum(b - engine.lower, engine.upper - b)
            b[np.argmax(room)] -= math.fsum(b) - self.sum

    def _clear(self) -> FloatArray:
        """How far each margin is above the knot from which its loss is flat, whatever float32 numbers did to it."""
        engine = self.engine
        margins = self.signs * (np.asarray(engine.scores) + self.offset)
        return margins - self.flat - UNIT * engine.drift * np.asarray(engine.root)

    def _recompute(self, columns: IntArray) -> None:
        """The scores of these rows in float64."""
        engine, rows, b, sums = self.engine, self.problem.rows, self._coefficients(), np.zeros((len(columns), 1))
        which = np.flatnonzero(b)
        everyone = len(columns) == rows.m
        rows.add(which, b[which, np.newaxis], sums, None if everyone else columns)
        np.asarray(engine.scores)[columns] = sums[:, 0]
        if everyone:
            engine.drift = 0.0

    def _values(self) -> tuple[float, float]:
        """(objective, bound)"""
        square = float(np.sum(self._coefficients() * np.asarray(self.engine.scores)))
        return self._values_at(square, square)

    def _values_at(self, square: float, square_of_duals: float) -> tuple[float, float]:
        """(objective, bound) at the scores of weights of this square, and the variables, of which weights have that."""
        engine, b, scores = self.engine, self._coefficients(), self._beside_targets()
        if self.free_bias:
            slopes = engine.slopes()
            self.offset = engine.shift = best_shift(self.table, self.cost, self.signs, scores, slopes.min(),
                                                    slopes.max(), self.offset)
        loss, dual = values_of(self.table, self.cost, self.signs, scores, b, self.offset)
        return 0.5 * square + loss, dual + self._of_targets(b) - 0.5 * square_of_duals

    def _beside_targets(self) -> FloatArray:
        return np.asarray(self.engine.scores)

    def _of_targets(self, b: FloatArray) -> float:
        """What D has of them."""
        return 0.0

    def _active(self) -> Int32Array:
        """Numbers of the variables of the next round, rising."""
        n = len(self.engine.b)
        jitter = 1 + 1e-6 * self.random.random(n) if self.n_iter == 0 else None
        return self.engine.choose(max(LEAST, int(PART * n)), FREE, jitter)

    def dense(self, made: int) -> bool:
        """Whether so many rows were made that it had been less work to make all of them once, and hold them."""
        rows = self.problem.rows
        return made > AGAIN * rows.m and self.add > 0 and not self.free_bias and rows.shared

    def crawls(self, gap: float, allowed: float) -> bool:
        """Whether Newton steps had been less work, and as many rounds again, at the rate of the later half, are not the
        end."""
        work = self.engine.steps * len(self.engine.b) / self.problem.rows.m**3 / self.crawl
        if self.n_iter < CRAWL or work < self.due or gap <= 0:
            return False
        halfway: float = self.budget.history[len(self.budget.history) // 2]["certificate"]
        if 2 * math.log(max(1.0, halfway / gap)) >= math.log(gap / allowed):
            return False
        if work >= 1 or not self.factored:
            return True
        self.due = 2 * work
        return self.has_steps() and self.has_columns(int(math.sqrt(work / SQUARE) * self.problem.rows.m))

    def has_columns(self, most: int) -> bool:
        """Whether a factor of the Gram matrix has no more than that."""
        self.problem.rows.complete()
        K = np.asarray(self.problem.rows.arrays)
        return is_factor(factor_of(K, most)[0], K)

    def has_steps(self) -> bool:
        """Whether Newton steps are possible."""
        rows = self.problem.rows
        # An offset is one more unknown.
        return (self.crawl < math.inf and rows.shared and rows.m + self.free_bias <= LIMIT
                and float(self.cost @ rows.sqnorms()) <= SHARPEST * rows.m)

    def left_to_steps(self) -> bool:
        """`has_steps`, and `crawled` from here on."""
        self.crawled = self.has_steps()
        return self.crawled

    def state(self) -> State:
        """Of the coefficients of the last round: see Run.fits. `lowest` is for a fit that only asks what there was."""
        b = np.array(self._coefficients(self.last))
        return {"duals": self.signs * b, "cost": self.cost, "W": np.concatenate((self.engine.scores, b)), "kappa": 0.0,
                "before": None, "lowest": None if self.lowest is None else self.lowest[1]}

    def start_of_steps(self) -> State | None:
        """What steps for a fit with an offset begin with, but for W."""
        return {**self.state(), "centre": self.offset}

    def told(self, solution: Solution, duals: FloatArray, coefficients: Callable[[], FloatArray]) -> Solution:
        """A solution by other means, of these duals and the weights with these coefficients, its values recomputed in
        float64; where time or sweeps ran out before it was any better, what the rounds had found."""
        own = [np.array(self.engine.b), *([] if self.lowest is None else [self.lowest[1]])]
        self.lowest = self.last = None
        # (objective, coefficients) and (bound, variables)
        weights: list[tuple[float, FloatArray]] = []
        bounds: list[tuple[float, FloatArray]] = []

        def short() -> bool:
            least = min(objective for objective, _ in weights)
            return bool(least - max(bound for bound, _ in bounds) > allowance(self.run.tol, least))

        def look_at(variables: FloatArray) -> None:
            objective, bound = self._exactly(variables)
            weights.append((objective, np.array(self._coefficients())))
            bounds.append((bound, np.array(self.engine.b)))

        look_at(self._variables_at(duals))
        if short():
            found = coefficients()
            weights.append((self._exactly(bounds[0][1], found)[0], found))
        if short():
            for variables in own:
                look_at(variables)
        found = min(weights, key=lambda pair: pair[0])[1]
        objective, bound = self._exactly(max(bounds, key=lambda pair: pair[0])[1], found)
        self.budget.record(self.n_iter + solution.info.n_iter, objective, bound, objective - bound)
        info = solution.info
        ended = info.reason or (STALLED if info.status == CONVERGED else info.status)
        told = self._solution(objective, bound, ended, found)
        return told._replace(info=told.info._replace(
            algorithm=info.algorithm, n_iter=self.n_iter + info.n_iter, n_outer=info.n_outer))

    def _exactly(self, variables: FloatArray, coefficients: FloatArray | None = None) -> tuple[float, float]:
        """(objective, bound) in float64 of these variables, which the engine takes, and of their weights, or of those
        with these coefficients."""
        engine, rows = self.engine, self.problem.rows
        np.asarray(engine.b)[:] = np.clip(variables, engine.lower, engine.upper)
        self._balance()
        self._recompute(np.arange(rows.m))
        scores = np.array(engine.scores)
        square = own = float((self._coefficients() * scores).sum())
        if coefficients is not None:
            engine.scores[:] = 0.0
            rows.add(np.arange(rows.m), coefficients[:, np.newaxis], np.asarray(engine.scores)[:, np.newaxis])
            own = float((coefficients * np.asarray(engine.scores)).sum())
        values = self._values_at(own, square)
        engine.scores[:] = scores
        return values

    def _solution(self, objective: float, bound: float, stopped: str | None,
                  coefficients: FloatArray | None = None) -> Solution:
        run, b = self.run, np.array(self._coefficients()) if coefficients is None else coefficients
        certificate = objective - bound
        status, reason = status_of(certificate, objective, run.tol, stopped or STALLED)
        info = Info(status=status, reason=reason, algorithm="pairs", n_iter=self.n_iter, n_outer=0, objective=objective,
                    bound=bound, certificate=certificate, n_support=int(np.count_nonzero(b)),
                    seconds=self.budget.seconds, tol=run.tol, history=self.budget.history)
        weights = np.append(b, self.offset) if self.free_bias else b
        return Solution(weights.reshape(-1, 1), info, {**self.state(), "lowest": None})


class ResidualPairs(PairFit):
    """A regression over Gram rows: PairFit of a loss of f(x_i) - z_i that is the same on both sides of its band."""

    @staticmethod
    def _dual_of(knots: Sequence[float], parts: Sequence[Any]) -> tuple[float, float, float] | None:
        """That of the side below the band."""
        return dual_of(knots[:1], parts[:2])

    def _variables(self) -> Variables:
        z, bound, none = np.asarray(self.problem.targets), self.upper * self.cost, np.zeros(len(self.cost))
        rows, add = np.arange(len(z), dtype=np.int32), self.add / self.cost
        return (np.tile(rows, 2), np.concatenate((z + self.target, z - self.target)), np.tile(add, 2),
                np.concatenate((none, -bound)), np.concatenate((bound, none)))

    def _coefficients(self, variables: FloatArray | None = None) -> FloatArray:
        found: FloatArray = super()._coefficients(variables).reshape(2, -1).sum(axis=0)
        return found

    def _variables_at(self, duals: FloatArray) -> FloatArray:
        return np.concatenate((np.maximum(duals, 0.0), np.minimum(duals, 0.0)))

    def _resume(self, start: State) -> None:
        """From the duals of another fit, within the bounds of this one's."""
        b = np.asarray(start["duals"])
        if self.free_bias and abs(np.sum(b)) > ROUNDING * np.abs(b).sum():
            return
        part = min(1.0, float(np.min(self.cost / start["cost"])))
        self._take(part * self._variables_at(b))

    def _clear(self) -> FloatArray:
        """How far within the band each residual is."""
        engine = self.engine
        residuals = np.asarray(engine.scores) + self.offset - np.asarray(self.problem.targets)
        clear: FloatArray = self.flat - np.abs(residuals) - UNIT * engine.drift * np.asarray(engine.root)
        return clear

    def _beside_targets(self) -> FloatArray:
        found: FloatArray = np.asarray(self.engine.scores) - np.asarray(self.problem.targets)
        return found

    def _of_targets(self, b: FloatArray) -> float:
        return float(b @ np.asarray(self.problem.targets))
