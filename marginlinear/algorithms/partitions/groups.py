"""Where the rows are: in groups, in the memory of this process, on its threads.

What `rounds.Rounds` asks of the place is three methods, of which the numbers that come back are sums:

    deal()                       yields what one round is to visit, until all rows had their turn
    propose(places, ...)         every group visits its rows from the W of now; the duals become those proposed
    accept(places, t, share)     the duals go the part t of their way, and W moves by `share` times the groups' moves

They do not know of sigma, nor of why a part of the way is enough. Sums are taken in the order of the groups, so that
bits do not depend on how many threads there are, nor on which ends first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from marginlinear._core.scores import add_rows, count_rows, scores_of
from marginlinear.threads import Team, ranges, run_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from marginlinear._core.dual_engine import DualEngine
    from marginlinear._core.rows import Rows
    from marginlinear._typing import FloatArray, IntpArray

T = TypeVar("T")

# Rows that the direction is taken from: so many runs of so many neighbours.
RUNS, NEIGHBOURS = 16, 32
# Numbers of W that are summed at once.
PART = 16384
# Parts of the rows in which features are counted.
COUNTED = 8
# A section goes too far where its ||T||^2 is so many times what it may be for the whole way.
TOO_FAR = 1.5
# Features that are exchanged are no more than this part of all.
HALF = 0.5


class Proposal(NamedTuple):
    """What a round's visits have found; rounds.py has the formulas.

    Attributes
    ----------
    gap, loss, tight, gain, curvature : float
        Sums over the rows: dual_engine.sums_t.
    whole, each : float
        ||T||^2 and sum_g ||dU_g||^2, of features that are exchanged the sums of these over the sections.
    moved : float
        ||T||^2.
    whole_along, each_along : float
        The part of both along the direction b.
    """

    gap: float
    loss: float
    tight: float
    gain: float
    curvature: float
    whole: float
    each: float
    moved: float
    whole_along: float
    each_along: float


class Groups:
    """Rows dealt to `count` groups afresh, in `rounds` sections a sweep.

    Parameters
    ----------
    engine : DualEngine
        On features.
    count, rounds, threads : int
    often : intp array, optional
        Places in W of the features that are exchanged after a section; default: a section is a round.

    Attributes
    ----------
    taken : int
        Groups times sections of the last round.
    copied : int
        Numbers of copies, and of their sums, so far.
    """

    def __init__(self, engine: DualEngine, count: int, rounds: int, threads: int,
                 often: IntpArray | None = None) -> None:
        self.engine, self.count, self.rounds, self.often = engine, count, rounds, often
        self.team = Team(min(threads, count))
        W = engine.iterates.W
        self.copies, self.moves = np.zeros((count, len(W))), np.zeros(len(W))
        self.pulls = np.zeros((count, engine.n_classes))
        self.before = engine.rows.zeros(len(engine.duals))
        self.along = products_with_direction(engine.rows, threads)
        self.taken = self.copied = 0

    def deal(self) -> Iterator[tuple[list[int], bool]]:
        """Yield the places in the engine's order at which groups begin, section after section, and the end of the last;
        and whether it is the last visit of these rows in this sweep, whose sums count."""
        engine, count = self.engine, self.count
        for window in engine.windows():
            share = sum(end - first for first, end in window) / engine.rows.m
            for turn in range(engine.rows.turns):
                drawn, parts = engine.draw(window), count * max(1, round(self.rounds * share))
                places = [drawn * part // parts for part in range(parts + 1)]
                first = 0
                while first < parts:
                    yield places[first:first + count + 1 if self.often is None else None], turn == engine.rows.turns - 1
                    first += self.taken

    def propose(self, places: list[int], theta: float, extra: float) -> Proposal:
        """Proposal of steps with theta, and theta + extra along the direction, of as many sections as may be."""
        iterates, count = self.engine.iterates, self.count
        beside = 1 + iterates.kappa
        weight = 1.0 if iterates.factors is None else iterates.factors
        sums, whole, each, whole_along, each_along = np.zeros(5), 0.0, 0.0, 0.0, 0.0
        kept = None if self.often is None else iterates.W[self.often]
        for first in range(0, len(places) - 1, count):
            sums += self._visit(places[first:first + count + 1], theta, extra, first == 0)
            own = float((weight * self.pulls**2).sum())
            whole_along += float((weight * self.pulls.sum(axis=0) ** 2).sum())
            each_along += own
            self.taken = first + count
            if self.taken == len(places) - 1:
                break
            section, terms = self._exchange(1 / (beside * theta))
            whole, each = whole + section / theta**2, each + terms / theta**2
            if section / theta**2 > TOO_FAR * beside * (terms / theta + extra * own):
                break
        last = self._over_weights(lambda lo, hi: iterates.add_up(self.copies, self.moves, lo, hi))
        if self.often is not None:
            iterates.W[self.often] = kept
        last_whole, last_each, moved = (sum(part) / theta**2 for part in zip(*last, strict=True))
        return Proposal._make((*sums.tolist(), whole + last_whole, each + last_each, moved, whole_along, each_along))

    def _visit(self, places: list[int], theta: float, extra: float, first: bool) -> FloatArray:
        """Sums of the visits of one section, the first of a round from the W of now."""
        engine, W = self.engine, self.engine.iterates.W

        def visit(group: int) -> tuple[float, ...]:
            copy, pull = self.copies[group], self.pulls[group]
            pull[:] = 0
            if first:
                copy[:] = W
            return engine.visit(places[group], places[group + 1], copy, theta, self.along, extra, pull, self.before)

        if first:
            self.moves[:] = 0
            self.copied += (2 * self.count + 1) * len(W)
        sums: FloatArray = np.sum(self.team.run(visit, self.count), axis=0)
        return sums

    def _exchange(self, share: float) -> list[float]:
        iterates, often = self.engine.iterates, self.often
        assert often is not None
        self.copied += (2 * self.count + 1) * len(often)
        parts = ranges(len(often), max(1, PART // self.engine.n_classes) * self.engine.n_classes)
        found = self.team.run(lambda part: iterates.pool(self.copies, self.moves, often[slice(*parts[part])], share),
                              len(parts))
        sums: list[float] = np.sum(found, axis=0).tolist()
        return sums

    def accept(self, places: list[int], t: float, share: float) -> None:
        iterates, W, moves = self.engine.iterates, self.engine.iterates.W, self.moves
        self._over_weights(lambda lo, hi: iterates.mix(W[lo:hi], 1.0, moves[lo:hi], share))
        if t < 1:
            self.engine.shorten(places[0], places[self.taken], self.before, t)

    def _over_weights(self, work: Callable[[int, int], T]) -> list[T]:
        columns = self.engine.n_classes
        parts = ranges(len(self.moves), max(1, PART // columns) * columns)
        return self.team.run(lambda part: work(*parts[part]), len(parts))


def frequent(rows: Rows, least: int, columns: int, threads: int) -> IntpArray | None:
    """Places in W, of so many columns, of the features that at least `least` rows have: intp array. None where rows are
    on disk, or where that is nothing, or more than HALF of W."""
    if rows.pager is not None:
        return None

    def counts(first: int, stop: int) -> FloatArray:
        found = np.zeros(rows.d)
        for lo, hi in ranges(stop - first, rows.slice()):
            count_rows(rows, found, first + lo, first + hi)
        return found

    often = np.flatnonzero(sum(run_chunks(counts, rows.m, threads, -(-rows.m // COUNTED))) >= least)
    if not 0 < len(often) <= HALF * rows.d:
        return None
    return (often[:, None] * columns + np.arange(columns)).ravel()


def products_with_direction(rows: Rows, threads: int) -> FloatArray:
    """<x_i, b>: float64 array of shape (m,), b being of unit length, and the one direction that rows share the most.

    Two steps of the power method from the mean of a few rows: what rows have in common pulls the groups alike, however
    few rows each has.
    """
    along = rows.zeros(rows.m).reshape(-1, 1)
    share = np.ones(rows.m)
    rows.require()
    step = max(1, rows.m // RUNS)
    direction: FloatArray = np.zeros((rows.d, 1))
    some = [(lo, min(rows.m, lo + min(step, NEIGHBOURS))) for lo in range(0, rows.m, step)]
    for _ in range(3):
        direction = np.zeros(rows.d)
        for lo, hi in some:
            add_rows(rows, share, direction, lo, hi)
        length = np.linalg.norm(direction)
        if not 0 < length < np.inf:
            along[:] = 0
            return along.ravel()
        direction = (direction / length).reshape(-1, 1)
        for lo, hi in some:
            scores_of(rows, direction, along, lo, hi)
            share[lo:hi] = along[lo:hi, 0]
    run_chunks(lambda lo, hi: scores_of(rows, direction, along, lo, hi), rows.m, threads, rows.slice())
    return along.ravel()
