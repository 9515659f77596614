"""Where the rows are: in groups, in the memory of this process, on its threads.

What `rounds.Rounds` asks of the place is three methods, of which the numbers that come back are sums:

    deal()                       yields what one round is to visit, until all rows had their turn
    propose(places, ...)         every group visits its rows from the W of now; the duals become those proposed
    accept(places, t, share)     the duals go the part t of their way, and W moves by `share` times the groups' moves

They do not know of sigma, nor of why a part of the way is enough. Sums are taken in the order of the groups, so that
bits do not depend on how many threads there are, nor on which ends first.
"""

from collections import namedtuple

import numpy as np

from marginlinear._core.scores import add_rows, scores_of
from marginlinear.threads import Team, ranges, run_chunks

# Rows that the direction is taken from: so many runs of so many neighbours.
RUNS, NEIGHBOURS = 16, 32
# Numbers of W that are summed at once.
PART = 16384


class Proposal(namedtuple("Proposal", "gap loss tight gain curvature whole each whole_along each_along")):
    """What a round's visits have found; dU_g being the change of U by group g, and T the sum of them.

    Attributes
    ----------
    gap, loss, tight, gain, curvature : float
        Sums over the rows: dual_engine.sums_t.
    whole, each : float
        ||T||^2 and sum_g ||dU_g||^2.
    whole_along, each_along : float
        The part of both along the direction b.
    """

    __slots__ = ()


class Groups:
    """Rows dealt to `count` groups afresh, in `rounds` rounds a sweep.

    Parameters
    ----------
    engine : DualEngine
        On features.
    count, rounds, threads : int
    own : list of pairs of ints, optional
        The rows of each group, (first, after the last), which it keeps: together all rows, in their order.

    Attributes
    ----------
    passes : int
        Over the rows, for the direction.
    """

    def __init__(self, engine, count, rounds, threads, own=None):
        self.engine, self.count, self.rounds, self.own = engine, count, rounds, own
        if own is not None:
            bounds = [0, *(end for pair in own for end in pair), engine.rows.m]
            if len(own) != count or bounds != sorted(bounds) or bounds[::2] != bounds[1::2]:
                raise ValueError(f"own = {own}: give the ranges of {count} groups, which are rows 0 to {engine.rows.m}")
        self.team = Team(min(threads, count))
        W = engine.iterates.W
        self.copies, self.moves = np.zeros((count, len(W))), np.zeros(len(W))
        self.pulls = np.zeros((count, engine.n_classes))
        self.before = engine.rows.zeros(len(engine.duals))
        self.along = products_with_direction(engine.rows, threads)

    def deal(self):
        """Yield the places in the engine's order at which groups begin, and the end of the last; and whether it is the
        last visit of these rows in this sweep, whose sums count."""
        engine, count = self.engine, self.count
        if self.own is not None:
            places = [0]
            for rows in self.own:
                places.append(engine.draw([rows], places[-1]))
            yield places, True
            return
        for window in engine.windows():
            share = sum(end - first for first, end in window) / engine.rows.m
            for turn in range(engine.rows.turns):
                drawn, parts = engine.draw(window), count * max(1, round(self.rounds * share))
                places = [drawn * part // parts for part in range(parts + 1)]
                for first in range(0, parts, count):
                    yield places[first:first + count + 1], turn == engine.rows.turns - 1

    def propose(self, places, theta, extra):
        """Proposal of steps with theta, and theta + extra along the direction."""
        engine, iterates = self.engine, self.engine.iterates
        weight = 1.0 if iterates.factors is None else iterates.factors

        def visit(group):
            copy, pull = self.copies[group], self.pulls[group]
            copy[:], pull[:] = iterates.W, 0
            return engine.visit(places[group], places[group + 1], copy, theta, self.along, extra, pull, self.before)

        visits = self.team.run(visit, self.count)
        norms = self._over_weights(lambda lo, hi: iterates.add_up(self.copies, self.moves, lo, hi))
        whole, each = (sum(part) / theta**2 for part in zip(*norms, strict=True))
        return Proposal(*(sum(part) for part in zip(*visits, strict=True)), whole, each,
                        float((weight * self.pulls.sum(axis=0) ** 2).sum()), float((weight * self.pulls**2).sum()))

    def accept(self, places, t, share):
        iterates, W, moves = self.engine.iterates, self.engine.iterates.W, self.moves
        self._over_weights(lambda lo, hi: iterates.mix(W[lo:hi], 1.0, moves[lo:hi], share))
        if t < 1:
            self.engine.shorten(places[0], places[-1], self.before, t)

    def _over_weights(self, work):
        columns = self.engine.n_classes
        parts = ranges(len(self.moves), max(1, PART // columns) * columns)
        return self.team.run(lambda part: work(*parts[part]), len(parts))


def products_with_direction(rows, threads):
    """<x_i, b>: float64 array of shape (m,), b being of unit length, and the one direction that rows share the most.

    Two steps of the power method from the mean of a few rows: what rows have in common pulls the groups alike, however
    few rows each has.
    """
    along = rows.zeros(rows.m).reshape(-1, 1)
    share = np.ones(rows.m)
    rows.require()
    step = max(1, rows.m // RUNS)
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
