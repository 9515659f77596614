"""Sparse weights over rows that are not in memory: those on disk, or in partitions elsewhere.

    P(W) = sum_j [l1 N(w_j) + l2/2 ||w_j||^2] + L(X W),
    D    = [dual of L at the forces times a share] - [of the penalty, at U]

A survey is one pass over all rows: their scores X W, and U = X' F of the forces F = -L'(X W). It certifies the weights
as working_sets.py and sparse_classes.py do, and tells which features violate optimality. Those with a weight, and those
others that violate it most, are solved for by the same methods in memory: of them alone the rows are gathered, in one
more pass, which is little as most features have no weight. What is left to the next survey is whether others should.
Where they are too many for the memory they are solved for in turns, a part of them after another, from the scores that
all have together.

A source of rows has

    m, d, bias      as of Rows; y and cost, of all rows
    memory          bytes for scores and weights, for the gathered rows, and for what a fit makes of all these
    itemsize        bytes of a gathered value
    counts          of each stored feature, its values that are not 0
    survey(W)       (scores, U), float64 arrays of shapes (m, k) and (d, k)
    gathered(features)
                    Rows of these stored features, and of the bias
    shortage(needed)
                    words for an error, where so many bytes are more than memory
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from marginlinear._core.feature_cd import FeatureCD
from marginlinear._core.feature_rows import combine, dual_sum, forces_of, pick
from marginlinear._core.margin_cd import table_of
from marginlinear._core.penalty import Penalty
from marginlinear._core.quadratic import MEMORY, extrapolated
from marginlinear._core.rows import Rows
from marginlinear._core.scores import count_rows, scores_of
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.free_bias import ROUNDING, bracket
from marginlinear.algorithms.free_biases import best_biases
from marginlinear.algorithms.sparse_classes import SparseClassesFit, entropy, fitted, shares
from marginlinear.algorithms.working_sets import CYCLES, MODEL, STEPS, SparseFit, best_share
from marginlinear.problem import Info, Problem, Solution
from marginlinear.status import STALLED, allowance, status_of
from marginlinear.threads import Cancelled, ranges, run_chunks

if TYPE_CHECKING:
    from marginlinear._typing import AnyArray, FloatArray, Int32Array, IntArray, State, Table
    from marginlinear.problem import Run

# Features without a weight that are gathered at once, at least, and as a part of those with one.
FIRST, MORE = 4000, 2.0
# The gap that a fit of the gathered features may leave, as a part of that of all, and of what is allowed.
PART, OF_ALLOWED = 0.1, 0.3
# Rows are surveyed in so many groups, each on a thread and with a U of its own, where that has few numbers.
GROUPS, SMALL = 4, 1 << 20
# In a round so many turns are taken that the features in them have this part of the violations.
TURNS = 0.5
# Forces whose sum is a smaller part than this of the costs add up to 0.
LOST = 1e-12
# Features that uint16 holds.
NARROW = 1 << 16
# Bytes of a value's place in a gathered row, and of what a fit makes of it: its column, and of several classes a second
# copy of the rows, transposed. Bytes of a row's score, and of what goes with it, as scores of the turns before; the
# same of a weight.
PLACE, COLUMN, CLASSES, SCORE, WEIGHT = 4, 12, 36, 128, 64
# The part of a store's memory for all these. The rest is for pages of the store, and the process itself.
OWN = 0.6
# Features are solved for together where beside those with a weight there is room for others that have this part of the
# violations.
MOST = 0.5


class MarginForces:
    """A loss of the margin of two classes, as margin_cd.table_of has it: its forces, and its part of P and D."""

    columns, value = 1, COLUMN

    def __init__(self, y: Int32Array, cost: FloatArray, loss: Table) -> None:
        self.y, self.cost, self.loss, self.table = y, cost, loss, table_of(*loss)
        # The forces of the last survey.
        self.at = np.zeros(len(y))

    def forces(self, scores: FloatArray, lo: int, hi: int) -> FloatArray:
        """Those of rows lo to hi, of their scores, float64 arrays of shape (hi - lo, k)."""
        out = np.empty((hi - lo, 1))
        forces_of(self.table, self.cost[lo:hi], self.y[lo:hi], scores.reshape(-1), out.reshape(-1))
        return out

    def loss_at(self, scores: FloatArray) -> float:
        """L; `dual` and `support` speak of these scores from here on."""
        return forces_of(self.table, self.cost, self.y, scores.reshape(-1), self.at)

    def dual(self, share: float) -> float:
        """The dual of L at the forces times the share."""
        return dual_sum(self.table, self.cost, self.y, self.at, share)

    def support(self) -> int:
        return int(np.count_nonzero(self.at))

    def state(self, W: FloatArray) -> State:
        """That of SparseFit."""
        return {"W": W[:, 0], "duals": np.where(self.y > 0, self.at, -self.at)}

    def fit(self, problem: Problem, run: Run, W: FloatArray, penalty: Penalty, free: bool) -> Solution:
        """Solution over rows in memory, from weights W of shape (d, k); `free`: the biases cost nothing."""
        return SparseFit(problem, run._replace(start={"W": W[:, 0]}), self.cost, self.loss, penalty.l1, penalty.l2,
                         free).convex()

    def turn(self, problem: Problem, run: Run, W: FloatArray, scores: FloatArray, U: FloatArray, penalty: Penalty,
             free: bool) -> int:
        """Steps on the weights of these rows' features, by scores that others have their parts in; both go with them.
        Returns the cycles."""
        rows = problem.rows
        engine = FeatureCD(rows, self.y, self.cost, self.table, penalty.l1, penalty.l2, run.seed,
                           rows.d - 1 if free else -1)
        signs = np.where(self.y > 0, 1.0, -1.0)
        margins = signs * scores[:, 0]
        engine.turn_to(np.ascontiguousarray(W[:, 0]), self.y, margins)
        columns = engine.gather(np.arange(rows.d)).astype(np.intp)
        budget, enough = Budget(run.max_iter, run.time_limit, cancel=run.cancel), math.inf
        for at in range(STEPS):
            violation, fall, _ = engine.step(columns, MODEL, CYCLES)
            enough = PART * violation if at == 0 else enough
            if violation <= enough or fall == 0 or budget.exhausted(engine.cycles):
                break
        W[:, 0] = engine.W
        scores[:, 0] = signs * margins
        return engine.cycles

    def best_biases(self, scores: FloatArray) -> FloatArray:
        """What is best added to the scores: float64 array of shape (k,)."""
        out, scores = np.empty(len(scores)), scores.reshape(-1)

        def slope(shift: float) -> float:
            forces_of(self.table, self.cost, self.y, scores + shift, out)
            return -float(out.sum())

        low, high = bracket(slope, 0.0, 1e-3, ROUNDING * float(self.cost.sum()))
        return np.array([high if math.isinf(low) else low])


class ClassForces:
    """The same of multinomial logistic regression over k classes."""

    value = CLASSES

    def __init__(self, y: Int32Array, cost: FloatArray, k: int) -> None:
        self.y, self.cost, self.columns = y, cost, k

    def forces(self, scores: FloatArray, lo: int, hi: int) -> FloatArray:
        return shares(scores, np.logaddexp.reduce(scores, axis=1), self.y[lo:hi], self.cost[lo:hi])[0]

    def loss_at(self, scores: FloatArray) -> float:
        loss = 0.0
        self.of_others, self.off = np.empty((2, len(scores)))
        for lo, hi in ranges(len(scores), max(1, SMALL // self.columns)):
            some, cost = scores[lo:hi], self.cost[lo:hi]
            _, self.of_others[lo:hi], self.off[lo:hi], losses = shares(some, np.logaddexp.reduce(some, axis=1),
                                                                       self.y[lo:hi], cost)
            loss += float(cost @ losses)
        return loss

    def dual(self, share: float) -> float:
        return entropy(self.cost, self.of_others, self.off, share)

    def support(self) -> int:
        return int(np.count_nonzero(self.off))

    def state(self, W: FloatArray) -> State:
        return {"W": W}

    def fit(self, problem: Problem, run: Run, W: FloatArray, penalty: Penalty, free: bool) -> Solution:
        return fitted(problem, *self._given(run, W, penalty, free))

    def turn(self, problem: Problem, run: Run, W: FloatArray, scores: FloatArray, U: FloatArray, penalty: Penalty,
             free: bool) -> int:
        made = SparseClassesFit(problem, *self._given(run, W, penalty, free))
        made.scores, made.U = scores, U
        made.solve()
        W[:] = made.W
        return made.engine.cycles

    def _given(self, run: Run, W: FloatArray, penalty: Penalty,
               free: bool) -> tuple[Run, FloatArray, str, float, float, bool]:
        return run._replace(start={"W": W}), self.cost, penalty.norm, penalty.l1, penalty.l2, free

    def best_biases(self, scores: FloatArray) -> FloatArray:
        return best_biases(scores, self.y, self.cost)


class Source(Protocol):
    """See above."""

    m: int
    d: int
    bias: float
    y: Any
    cost: Any
    memory: float
    itemsize: int
    counts: FloatArray

    def survey(self, W: FloatArray) -> tuple[FloatArray, FloatArray]: ...

    def gathered(self, features: IntArray) -> Rows: ...

    def shortage(self, needed: float) -> str: ...


def counts_of(rows: Rows) -> FloatArray:
    """Of each stored feature, its values that are not 0, in one pass."""
    counts = np.zeros(rows.d)
    rows.require()
    for lo, hi in ranges(rows.m, rows.slice()):
        count_rows(rows, counts, lo, hi)
    return counts[:rows.n]


def surveyed(rows: Rows, forces: Any, W: FloatArray, threads: int) -> tuple[FloatArray, FloatArray]:
    """(scores, U) of all rows, in one pass; not other bits for other threads."""
    k = W.shape[1]
    scores, step = np.empty((rows.m, k)), rows.slice(k)
    # Groups are long: what ends one ends all.
    ended = threading.Event()
    rows.require()

    def group(first: int, stop: int) -> FloatArray:
        U = np.zeros((rows.d, k))
        for lo in range(first, stop, step):
            if ended.is_set():
                raise Cancelled
            hi = min(stop, lo + step)
            try:
                scores_of(rows, W, scores, lo, hi)
                combine(rows, forces.forces(scores[lo:hi], lo, hi), U, lo, hi)
            except BaseException:
                ended.set()
                raise
        return U

    groups = GROUPS if rows.d * k <= SMALL else 1
    try:
        found = run_chunks(group, rows.m, threads, max(1, -(-rows.m // groups)))
    except BaseException:
        ended.set()
        raise
    first, *others = found or [np.zeros((rows.d, k))]
    for other in others:
        first += other
    return scores, first


def picked(rows: Rows, features: IntArray, size: int) -> tuple[AnyArray, AnyArray, AnyArray]:
    """(data, indices, indptr) of the `size` values of these stored features, ascending, in one pass."""
    place = np.full(rows.n, -1, dtype=np.int32)
    place[features] = np.arange(len(features), dtype=np.int32)
    stored = rows.arrays[0] if isinstance(rows.arrays, tuple) else rows.arrays
    data = np.empty(size, stored.dtype)
    indices = np.empty(size, np.uint16 if len(features) <= NARROW else np.int32)
    indptr = np.zeros(rows.m + 1, dtype=np.int64)
    rows.require()
    for lo, hi in ranges(rows.m, rows.slice()):
        pick(rows, place, indptr, data, indices, lo, hi)
    return data, indices, indptr


class RowsOnDisk:
    """A source: the rows of a Problem that are in a store.

    Parameters
    ----------
    problem : Problem
    forces : MarginForces or ClassForces
    threads : int
    """

    def __init__(self, problem: Problem, forces: Any, threads: int) -> None:
        rows = self.rows = problem.rows
        self.forces, self.threads = forces, threads
        self.m, self.d, self.bias, self.y, self.cost = rows.m, rows.d, rows.bias, problem.y, forces.cost
        self.counts = counts_of(rows)
        self.itemsize = rows.arrays[0].itemsize
        # Columns of several classes are fitted at the same time.
        self.takers = max(1, rows.takers)
        assert rows.pager is not None
        self.given = rows.pager.memory
        self.memory = OWN * self.given / self.takers

    def survey(self, W: FloatArray) -> tuple[FloatArray, FloatArray]:
        return surveyed(self.rows, self.forces, W, self.threads)

    def gathered(self, features: IntArray) -> Rows:
        arrays = picked(self.rows, features, int(self.counts[features].sum()))
        return Rows.from_csr(*arrays, len(features), self.bias, in_order=True)

    def shortage(self, needed: float) -> str:
        least = math.ceil(self.takers * needed / OWN)
        fewer = f", or threads = 1, as {self.takers} classes are fitted at once" if self.takers > 1 else ""
        return f"more than {OWN} of memory = {self.given:,}: give at least {least:,}{fewer}"


class SurveyedFit:
    """A fit of sparse weights over a source.

    Parameters
    ----------
    source : Source
    run : Run
    forces : MarginForces or ClassForces
        Of all rows.
    norm, l1, l2 : str, float, float
        As of a Penalty.
    free_bias : bool
        Whether the weights of the bias cost nothing: they are the best ones for the others wherever there is a survey.
    """

    def __init__(self, source: Source, run: Run, forces: Any, norm: str, l1: float, l2: float,
                 free_bias: bool) -> None:
        self.source, self.run, self.forces, self.free = source, run, forces, free_bias
        self.penalty = Penalty(norm, l1, l2, source.d - 1 if free_bias else -1)
        self.W = np.zeros((source.d, forces.columns))
        if run.start is not None:
            self.W[:] = np.reshape(run.start["W"], self.W.shape)
        # For gathered rows, and how much a value takes of it.
        self.room = source.memory - (SCORE * source.m + WEIGHT * source.d) * forces.columns
        self.value = source.itemsize + PLACE + forces.value
        longest = self.value * source.counts.max(initial=0.0)
        if longest > self.room:
            raise MemoryError(f"the scores of {source.m} rows, {self.W.size} weights, and the values of the feature "
                              f"that most rows have, need {source.shortage(source.memory - self.room + longest)}")
        # Those that were gathered, ascending, and their rows.
        self.features: IntArray = np.empty(0, dtype=np.intp)
        self.rows: Rows | None = None
        self.gatherings = self.turns = self.n_iter = 0
        self.trail: list[tuple[IntArray, FloatArray, FloatArray]] = []
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        run.enlist(self)

    def convex(self) -> Solution:
        run, bound, stopped = self.run, -math.inf, None
        while True:
            objective = self.survey()
            dual, _ = best_share(self.dual, self.penalty.dual_norm(self.U), self.penalty.l1, self.penalty.l2)
            bound = max(bound, dual)
            certificate = objective - bound
            self.budget.record(self.n_iter, objective, bound, certificate)
            if certificate <= allowance(run.tol, objective):
                break
            stopped = self.budget.spent(self.n_iter, objective, bound)
            if stopped:
                break
            self.solve(max(OF_ALLOWED * run.tol, PART * certificate / max(1.0, abs(objective))))
        status, reason = status_of(certificate, objective, run.tol, stopped or STALLED)
        info = Info(status=status, reason=reason, algorithm="cd", n_iter=self.n_iter, n_outer=0, objective=objective,
                    bound=bound, certificate=certificate, n_support=self.forces.support(), seconds=self.budget.seconds,
                    tol=run.tol, history=self.budget.history,
                    notes=self.notes())
        return Solution(self.W, info, self.state())

    def notes(self) -> tuple[str, ...]:
        """Info's: what was read, and what would have been less of it."""
        source = self.source
        found = [f"{np.count_nonzero(self.W)} of {self.W.size} weights are not 0",
                 f"{len(self.budget.history)} surveys of all rows, {self.gatherings} gatherings of features"]
        if self.turns:
            found.append(f"{self.turns} gatherings for turns, as there was no room for all that were wanted")
        needed = source.memory - self.room + self.value * source.counts[self.held()].sum()
        if needed > source.memory:
            found.append(f"all features with a weight together need {source.shortage(needed)}")
        return tuple(found)

    def state(self) -> State:
        """The weights as they are: see Run.fits."""
        state: State = self.forces.state(self.W.copy())
        return state

    def survey(self) -> float:
        """P at W; U and what D is made of follow."""
        source, forces = self.source, self.forces
        self.scores, self.U = source.survey(self.W)
        if self.free and np.abs(self.U[-1]).max() > LOST * source.bias * forces.cost.sum():
            # A fit of all that has a weight leaves the best biases.
            self.W[-1] += forces.best_biases(self.scores) / source.bias
            self.scores, self.U = source.survey(self.W)
        loss = forces.loss_at(self.scores)
        if self.free:
            # Rounding.
            self.U[-1] = 0.0
        return self.penalty.value(self.W) + float(loss)

    def dual(self, share: float) -> float:
        """D at the forces times the share; -inf where that is not feasible."""
        return float(self.forces.dual(share)) - self.penalty.conjugate(self.U, share)

    def held(self) -> IntArray:
        """The stored features with a weight."""
        return np.flatnonzero(self.W[:len(self.source.counts)].any(axis=1))

    def solve(self, tol: float) -> None:
        """The features with a weight, and those others that violate optimality most, are solved for."""
        source = self.source
        counts, held, violations = source.counts, self.held(), self.violations()
        others = np.flatnonzero(violations)
        others = others[~self.W[others].any(axis=1)]
        count = int(max(FIRST, MORE * len(held)))
        if len(others) > count:
            others = others[np.argpartition(-violations[others], count)[:count]]
        others = others[np.argsort(-violations[others], kind="stable")]
        room = self.room / self.value
        inside = counts[held].sum() + np.cumsum(counts[others]) <= room
        if counts[held].sum() <= room and violations[others[inside]].sum() >= MOST * violations[others].sum():
            self.fit(np.sort(np.concatenate((held, others[inside]))), tol)
            return
        wanted = np.concatenate((held, others))
        wanted = wanted[np.argsort(-violations[wanted], kind="stable")]
        left = TURNS * violations[wanted].sum()
        while True:
            # The first one is always inside.
            inside = np.cumsum(counts[wanted]) <= room
            left -= violations[wanted[inside]].sum()
            self.turn(np.sort(wanted[inside]))
            wanted = wanted[~inside]
            if left <= 0 or len(wanted) == 0:
                break
        # There is to be room for what follows.
        self.features, self.rows = self.features[:0], None
        self.extrapolate()

    def extrapolate(self) -> None:
        """After some rounds of turns the weights and their scores go on to where those before lead, if P is less."""
        def value(weights: FloatArray, scores: FloatArray) -> float:
            return penalty.value(weights.reshape(-1, k)) + float(self.forces.loss_at(scores.reshape(-1, k)))

        k = self.W.shape[1]
        features = np.flatnonzero(self.W.any(axis=1))
        self.trail.append((features, self.W[features], self.scores.copy()))
        if len(self.trail) <= MEMORY:
            return
        features = np.unique(np.concatenate([some for some, _, _ in self.trail]))
        penalty, trail = self.penalty.among(features), []
        for some, weights, scores in self.trail:
            whole = np.zeros((len(features), k))
            whole[np.searchsorted(features, some)] = weights
            trail.append((whole.reshape(-1), scores.reshape(-1)))
        weights, scores = extrapolated(trail, value)
        self.W[features] = weights.reshape(-1, k)
        self.scores = scores.reshape(-1, k)
        self.trail = [(features, self.W[features], self.scores)]

    def violations(self) -> FloatArray:
        """Of each stored feature, the length of its least subgradient at the last survey."""
        return self.penalty.violations(self.W, self.U)[:len(self.source.counts)]

    def _gather(self, features: IntArray) -> IntArray:
        """Their rows are at hand, beside those of what was, where there is room; the features of these, and the bias.
        """
        source = self.source
        if self.rows is None or len(np.setdiff1d(features, self.features, assume_unique=True)):
            both = np.union1d(features, self.features)
            if self.value * source.counts[both].sum() > self.room:
                both = features
            # Not both at once.
            self.rows = None
            self.features, self.rows = both, source.gathered(both)
            self.gatherings += 1
        return np.append(self.features, source.d - 1) if source.bias >= 0 else self.features

    def _near(self) -> tuple[Problem, Run]:
        """Problem of the gathered rows, and a Run of what is left."""
        source, run = self.source, self.run
        assert self.rows is not None
        ones = np.broadcast_to(1.0, source.m)
        left = None if run.time_limit is None else max(0.0, run.time_limit - self.budget.seconds)
        # The rows are read by these fits alone, which put them in an order of their own.
        return Problem(self.rows, source.y, max(2, self.forces.columns), ones, ones), run._replace(
            progress=None, fits=None, places=None, start=None, overwrite_rows=True, time_limit=left,
            max_iter=None if run.max_iter is None else max(0, run.max_iter - self.n_iter))

    def fit(self, features: IntArray, tol: float) -> None:
        """The weights of these stored features, and of the bias, are the best ones up to a tolerance."""
        whole = self._gather(features)
        problem, run = self._near()
        found = self.forces.fit(problem, run._replace(tol=tol), self.W[whole], self.penalty, self.free)
        self.n_iter += found.info.n_iter
        self.W[whole] = found.weights

    def turn(self, features: IntArray) -> None:
        """Steps on the weights of these stored features, and of the bias, the others as they are."""
        # Those beside them have had their turn.
        self.features, self.rows = self.features[:0], None
        whole = self._gather(features)
        W = self.W[whole]
        self.n_iter += self.forces.turn(*self._near(), W, self.scores, np.ascontiguousarray(self.U[whole]),
                                        self.penalty, self.free)
        self.W[whole] = W
        if self.free:
            shift = self.forces.best_biases(self.scores)
            self.W[-1] += shift / self.source.bias
            self.scores += shift
        self.turns += 1


def forces_for(loss: Table | None, y: Int32Array, cost: FloatArray, k: int) -> MarginForces | ClassForces:
    """Those of a loss of the margin, or of multinomial logistic regression of k classes."""
    return ClassForces(y, cost, k) if loss is None else MarginForces(y, cost, loss)


def fit(problem: Problem, run: Run, loss: Table | None, cost: FloatArray, norm: str, l1: float, l2: float,
        free_bias: bool) -> Solution:
    """Solution of a Problem whose rows are on disk, or in run.places; `loss` as `forces_for` takes it, the penalty as a
    Penalty does."""
    rows, k = problem.rows, problem.n_classes
    source: Source
    if run.places is None:
        forces = forces_for(loss, problem.y, cost, k)
        source = RowsOnDisk(problem, forces, run.threads)
    else:
        source = run.places.features(loss, float(cost[0]) / problem.size, rows.n, rows.bias, run.threads)
        forces = forces_for(loss, source.y, source.cost, k)
    return SurveyedFit(source, run, forces, norm, l1, l2, free_bias).convex()
