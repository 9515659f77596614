"""Sparse weights over rows that are not in memory: those on disk, or in partitions elsewhere.

    P(W) = l1 ||W||_1 + l2/2 ||W||^2 + L(X W),      D = [dual of L at the forces times a share] - [of the penalty, at U]

A survey is one pass over all rows: their scores X W, and U = X' F of the forces F = -L'(X W). It certifies the weights
as working_sets.py and sparse_classes.py do, and tells which features violate optimality. Those with a weight, and those
others that violate it most, are solved for by the same methods in memory: of them alone the rows are gathered, in one
more pass, which is little as most features have no weight. What is left to the next survey is whether others should.

A source of rows has

    m, d, bias      as of Rows; y and cost, of all rows
    room            bytes for the gathered rows and what a fit makes of them
    counts          of each stored feature, its values that are not 0
    survey(W)       (scores, U), float64 arrays of shapes (m, k) and (d, k)
    gathered(features)
                    Rows of these stored features, and of the bias
    need(size)      MemoryError: so many bytes are more than there is room for
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from marginlinear._core.feature_rows import combine, dual_sum, forces_of, pick
from marginlinear._core.margin_cd import table_of
from marginlinear._core.rows import Rows
from marginlinear._core.scores import count_rows, scores_of
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.sparse_classes import SparseClassesFit, entropy, shares
from marginlinear.algorithms.working_sets import SparseFit, best_share
from marginlinear.problem import Info, Problem, Solution
from marginlinear.status import STALLED, allowance, status_of
from marginlinear.threads import ranges, run_chunks

if TYPE_CHECKING:
    from marginlinear._typing import AnyArray, FloatArray, Int32Array, IntArray, State, Table
    from marginlinear.problem import Run

# Features without a weight that are gathered at once, at least, and as a part of those with one.
FIRST, MORE = 4000, 2.0
# The gap that a fit of the gathered features may leave, as a part of that of all, and of what is allowed.
PART, OF_ALLOWED = 0.1, 0.3
# Rows are surveyed in so many groups, each on a thread and with a U of its own, where that has few numbers.
GROUPS, SMALL = 4, 1 << 20
# Features that uint16 holds.
NARROW = 1 << 16
# Bytes that a gathered value takes with all that is made of it, and a score.
VALUE, CLASSES_VALUE, SCORE = 24, 48, 80


class MarginForces:
    """A loss of the margin of two classes, as margin_cd.table_of has it: its forces, and its part of P and D."""

    columns, value_bytes = 1, VALUE

    def __init__(self, y: Int32Array, cost: FloatArray, loss: Table) -> None:
        self.y, self.cost, self.loss, self.table = y, cost, loss, table_of(*loss)

    def forces(self, scores: FloatArray, lo: int, hi: int) -> FloatArray:
        """Those of rows lo to hi, of their scores, float64 arrays of shape (hi - lo, k)."""
        out = np.empty((hi - lo, 1))
        forces_of(self.table, self.cost[lo:hi], self.y[lo:hi], scores.reshape(-1), out.reshape(-1))
        return out

    def settle(self, scores: FloatArray) -> float:
        """L; `dual` and `support` speak of these scores from here on."""
        self.at = np.empty(len(scores))
        return forces_of(self.table, self.cost, self.y, scores.reshape(-1), self.at)

    def dual(self, share: float) -> float:
        """The dual of L at the forces times the share."""
        return dual_sum(self.table, self.cost, self.y, self.at, share)

    def support(self) -> int:
        return int(np.count_nonzero(self.at))

    def state(self, W: FloatArray) -> State:
        """That of SparseFit."""
        return {"W": W[:, 0], "duals": np.where(self.y > 0, self.at, -self.at)}

    def fit(self, problem: Problem, run: Run, W: FloatArray, *penalty: Any) -> Solution:
        """Solution over rows in memory, from weights W of shape (d, k)."""
        return SparseFit(problem, run._replace(start={"W": W[:, 0]}), self.cost, self.loss, *penalty).convex()


class ClassForces:
    """The same of multinomial logistic regression over k classes."""

    value_bytes = CLASSES_VALUE

    def __init__(self, y: Int32Array, cost: FloatArray, k: int) -> None:
        self.y, self.cost, self.columns = y, cost, k

    def forces(self, scores: FloatArray, lo: int, hi: int) -> FloatArray:
        return shares(scores, np.logaddexp.reduce(scores, axis=1), self.y[lo:hi], self.cost[lo:hi])[0]

    def settle(self, scores: FloatArray) -> float:
        loss = 0.0
        self.of_others, self.off = np.empty((2, len(scores)))
        for lo, hi in ranges(len(scores), max(1, SMALL // self.columns)):
            some, cost = scores[lo:hi], self.cost[lo:hi]
            _, self.of_others[lo:hi], self.off[lo:hi], losses = shares(some, np.logaddexp.reduce(some, axis=1),
                                                                       self.y[lo:hi], cost)
            loss += float(cost @ losses)
        return loss

    def dual(self, share: float) -> float:
        return entropy(self.cost, self.of_others, self.off, share) if share > 0 else 0.0

    def support(self) -> int:
        return int(np.count_nonzero(self.off))

    def state(self, W: FloatArray) -> State:
        return {"W": W}

    def fit(self, problem: Problem, run: Run, W: FloatArray, *penalty: Any) -> Solution:
        return SparseClassesFit(problem, run._replace(start={"W": W}), self.cost, *penalty).convex()


class Source(Protocol):
    """See above."""

    m: int
    d: int
    bias: float
    y: Any
    cost: Any
    room: float
    counts: FloatArray

    def survey(self, W: FloatArray) -> tuple[FloatArray, FloatArray]: ...

    def gathered(self, features: IntArray) -> Rows: ...

    def need(self, size: float) -> NoReturn: ...


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
    rows.require()

    def group(first: int, stop: int) -> FloatArray:
        U = np.zeros((rows.d, k))
        for lo in range(first, stop, step):
            hi = min(stop, lo + step)
            scores_of(rows, W, scores, lo, hi)
            combine(rows, forces.forces(scores[lo:hi], lo, hi), U, lo, hi)
        return U

    groups = GROUPS if rows.d * k <= SMALL else 1
    first, *others = run_chunks(group, rows.m, threads, max(1, -(-rows.m // groups)))
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
        # Columns of several classes are fitted at the same time.
        self.room = rows.pager.memory / 2 / max(1, rows.takers) - SCORE * self.m * forces.columns

    def survey(self, W: FloatArray) -> tuple[FloatArray, FloatArray]:
        return surveyed(self.rows, self.forces, W, self.threads)

    def gathered(self, features: IntArray) -> Rows:
        arrays = picked(self.rows, features, int(self.counts[features].sum()))
        return Rows.from_csr(*arrays, len(features), self.bias, in_order=True)

    def need(self, size: float) -> NoReturn:
        takers = max(1, self.rows.takers)
        least = math.ceil(2 * takers * (size + SCORE * self.m * self.forces.columns))
        fewer = f", or threads = 1: {takers} classes are fitted at once" if takers > 1 else ""
        raise MemoryError(f"the scores of {self.m} rows, and the values of the features with a weight, are more than "
                          f"half of memory = {self.rows.pager.memory:,}: give at least {least:,}, or a smaller C"
                          f"{fewer}")


class SurveyedFit:
    """A fit of sparse weights over a source.

    Parameters
    ----------
    source : Source
    run : Run
    forces : MarginForces or ClassForces
        Of all rows.
    l1, l2 : float
    free_bias : bool
        Whether the weights of the bias cost nothing: they are the best ones for the others wherever there is a survey.
    """

    def __init__(self, source: Source, run: Run, forces: Any, l1: float, l2: float, free_bias: bool) -> None:
        self.source, self.run, self.forces, self.l1, self.l2, self.free = source, run, forces, l1, l2, free_bias
        self.W = np.zeros((source.d, forces.columns))
        if run.start is not None:
            self.W[:] = np.reshape(run.start["W"], self.W.shape)
        if source.room <= 0:
            source.need(0)
        self.features, self.rows, self.gatherings, self.n_iter = np.empty(0, dtype=np.intp), None, 0, 0
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        run.enlist(self)

    def convex(self) -> Solution:
        run, bound, stopped = self.run, -math.inf, None
        if self.free:
            self.solve(self.held(), PART)
        while True:
            objective = self.survey()
            bound = max(bound, best_share(self.dual, self.largest(), self.l1, self.l2))
            certificate = objective - bound
            self.budget.record(self.n_iter, objective, bound, certificate)
            if certificate <= allowance(run.tol, objective):
                break
            stopped = self.budget.spent(self.n_iter, objective, bound)
            if stopped:
                break
            self.solve(self.wanted(), max(OF_ALLOWED * run.tol, PART * certificate / max(1.0, abs(objective))))
        status, reason = status_of(certificate, objective, run.tol, stopped or STALLED)
        info = Info(status=status, reason=reason, algorithm="cd", n_iter=self.n_iter, n_outer=0, objective=objective,
                    bound=bound, certificate=certificate, n_support=self.forces.support(), seconds=self.budget.seconds,
                    tol=run.tol, history=self.budget.history,
                    notes=(f"{np.count_nonzero(self.W)} of {self.W.size} weights are not 0",
                           f"{len(self.budget.history)} surveys of all rows, {self.gatherings} gatherings of features"))
        return Solution(self.W, info, self.state())

    def state(self) -> State:
        """The weights as they are: see Run.fits."""
        state: State = self.forces.state(self.W.copy())
        return state

    def survey(self) -> float:
        """P at W; U and what D is made of follow."""
        scores, self.U = self.source.survey(self.W)
        loss = self.forces.settle(scores)
        W = self.W[:-1] if self.free else self.W
        if self.free:
            # Rounding.
            self.U[-1] = 0.0
        return float(self.l1 * np.abs(W).sum() + 0.5 * self.l2 * np.vdot(W, W)) + loss

    def largest(self) -> float:
        return float(max(self.U.max(initial=0.0), -self.U.min(initial=0.0)))

    def dual(self, share: float) -> float:
        """D at the forces times the share; -inf where that is not feasible."""
        penalty = 0.0
        if self.l2 == 0 and share * self.largest() > (1 + 1e-15) * self.l1:
            return -math.inf
        if self.l2 > 0:
            over = np.maximum(0.0, share * np.abs(self.U) - self.l1)
            penalty = float(np.vdot(over, over)) / (2 * self.l2)
        return float(self.forces.dual(share)) - penalty

    def held(self) -> IntArray:
        """The stored features with a weight."""
        return np.flatnonzero(self.W[:len(self.source.counts)].any(axis=1))

    def wanted(self) -> IntArray:
        """The stored features with a weight, and those others that violate optimality most, as far as there is room."""
        counts, held = self.source.counts, self.held()
        n = len(counts)
        most = np.abs(self.U[:n]).max(axis=1, initial=0.0)
        most[held] = 0.0
        others = np.flatnonzero(most > self.l1)
        count = int(max(FIRST, MORE * len(held)))
        if len(others) > count:
            others = others[np.argpartition(-most[others], count)[:count]]
        others = others[np.argsort(-most[others], kind="stable")]
        size, value = float(counts[held].sum()), self.forces.value_bytes
        fits = value * (size + np.cumsum(counts[others])) <= self.source.room
        if not fits.all():
            others = others[:np.argmin(fits)]
        if value * size > self.source.room or not (fits.all() or fits.any()):
            self.source.need(value * (size + counts[most > self.l1].max(initial=0.0)))
        return np.sort(np.concatenate((held, others)))

    def solve(self, features: IntArray, tol: float) -> None:
        """The weights of these stored features, and of the bias, are the best ones up to a tolerance."""
        source, run = self.source, self.run
        if self.rows is None or len(np.setdiff1d(features, self.features, assume_unique=True)):
            both = np.union1d(features, self.features)
            if self.forces.value_bytes * source.counts[both].sum() > source.room:
                both = features
            self.features, self.rows = both, None
            self.rows = source.gathered(both)
            self.gatherings += 1
        whole = self.features
        if source.bias >= 0:
            whole = np.append(whole, source.d - 1)
        ones = np.broadcast_to(1.0, source.m)
        problem = Problem(self.rows, source.y, max(2, self.forces.columns), ones, ones)
        seconds = self.budget.seconds
        left = None if run.time_limit is None else max(0.0, run.time_limit - seconds)
        # The rows are not read but by these fits, which put them in an order of their own.
        near = run._replace(tol=tol, progress=None, fits=None, places=None, overwrite_rows=True, time_limit=left,
                            max_iter=None if run.max_iter is None else max(0, run.max_iter - self.n_iter))
        found = self.forces.fit(problem, near, self.W[whole], self.l1, self.l2, self.free)
        self.n_iter += found.info.n_iter
        self.W[whole] = found.weights


def fit(problem: Problem, run: Run, made: Any, cost: FloatArray, l1: float, l2: float, free_bias: bool) -> Solution:
    """Solution of a Problem whose rows are on disk, or elsewhere; made(y, cost) are its forces."""
    if run.places is not None:
        raise NotImplementedError
    forces = made(problem.y, cost)
    return SurveyedFit(RowsOnDisk(problem, forces, run.threads), run, forces, l1, l2, free_bias).convex()
