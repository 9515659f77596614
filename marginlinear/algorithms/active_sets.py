"""Over a kernel: rounds over active sets of rows, in place of sweeps over all.

A round takes the rows whose duals are free and those with the largest gaps, moves them until little of their gaps is
left, and then adds what has changed to the scores of all rows. Kernel rows are float32 numbers; the certificate of a
fit is recomputed in float64, and where it falls short, the rounds go on from the scores it has found.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from marginlinear._core.active_blocks import ActiveBlocks
from marginlinear._core.rows import OF_ROWS
from marginlinear.algorithms.descent import Pace
from marginlinear.status import allowance

if TYPE_CHECKING:
    from marginlinear._core.block_cd import BlockCD
    from marginlinear._core.row_cache import RowCache
    from marginlinear._typing import FloatArray, Int32Array
    from marginlinear.problem import Run

# Rows of an active set, at least: so many, this part of all, and this multiple of the free ones; at most so many: of
# these the columns that are gathered fit into what ROOM has for them, and rounds over more are no fewer by much.
LEAST, PART, FREE, MOST = 512, 1 / 16, 1.25, 3500
# More free rows than this multiple of MOST are moved to and fro, from set to set: unless the rate of so many rounds
# promises no more than so many.
DENSE, LAST, PROMISED = 2.5, 6, 30
# A round ends where its rows have this part of their gaps left, or of what is allowed, or after so many passes.
INNER, ENOUGH, PASSES = 0.1, 0.3, 200
# So many rounds that fell short are a crawl.
CRAWL = 4
# A bound that is this part of P(0) above it is not one: float32 numbers are not as wrong.
ABOVE = 1e-3


class Crawl(Exception):
    """Blocks one after another come near too slowly: sweeps around a centre, over all rows, do so sooner."""


class ActiveSets:
    """Sweeps of a BlockCD over Gram rows, as `Descent` asks for them.

    Parameters
    ----------
    engine : BlockCD
        Without a centre.
    cache : RowCache
        Of the same rows.
    """

    pace = Pace(1, 0, 10.0, 10)

    def __init__(self, engine: BlockCD, cache: RowCache, run: Run) -> None:
        self.engine, self.tol = engine, run.tol
        rows = engine.rows
        self.blocks = ActiveBlocks(engine, cache, room=int((1 - OF_ROWS) * rows.room) // rows.takers, seed=run.seed)
        self.at_zero = engine.loss_at_zero()
        self.random, self.short = np.random.default_rng(run.seed), 0
        # What there was to go, as a multiple of what is allowed, before each round.
        self.left: list[float] = []

    def start_over(self) -> None:
        """Duals and weights of 0."""
        self.engine.start_over()

    def sweep(self) -> None:
        """One round."""
        engine = self.engine
        gaps, loss, tight = engine.gaps()
        allowed = allowance(self.tol, loss + engine.half_norm())
        # More than before is to go to other references.
        if self.left and gaps.sum() > 2 * allowed * self.left[-1]:
            self.left.clear()
        self.left.append(float(gaps.sum()) / allowed)
        active, enough = self._active(gaps), ENOUGH * allowed
        moved, change, done = self.blocks.round(active, INNER, enough, PASSES)
        scores, coefficients = np.split(engine.iterates.W.reshape(-1, engine.n_classes), 2)
        self.blocks.cache.add(moved, change, scores)
        coefficients[moved] += change
        gaps, loss, tight = engine.gaps()
        engine.end_sweep(float(gaps.sum()), loss, tight)
        self.short += not done
        if engine.dual() > (1 + ABOVE) * self.at_zero:
            # The kernel is not positive semidefinite: the dual may rise for ever.
            engine.start_over()
            raise Crawl
        if self.short > CRAWL:
            raise Crawl

    def _promised(self) -> float:
        """The rounds that are ahead, at the rate of the last ones."""
        if self.left[-1] <= 1 or len(self.left) <= LAST:
            return 0
        if self.left[-1] >= self.left[-1 - LAST]:
            return math.inf
        return LAST * math.log(self.left[-1]) / math.log(self.left[-1 - LAST] / self.left[-1])

    def _active(self, gaps: FloatArray) -> Int32Array:
        """Numbers of the rows of the next round, rising."""
        engine, m = self.engine, len(gaps)
        own = np.asarray(engine.alpha)[np.arange(m), np.asarray(engine.y)]
        free = (own > 0) | (np.asarray(engine.beta) > 0)
        if engine.piecewise_linear:
            # At a corner all of c_i is against one rival.
            free &= (own < engine.cost) | (np.count_nonzero(engine.alpha, axis=1) > 2)
        if free.sum() > DENSE * MOST and self._promised() > PROMISED:
            raise Crawl
        there = engine.rows.sqnorms() > 0
        size = min(MOST, max(LEAST, int(PART * m), int(FREE * free.sum())))
        if size >= np.count_nonzero(there):
            return np.flatnonzero(there).astype(np.int32)
        # Many are equal at first, in whatever order they stand.
        rank = np.where(there, gaps * (1 + 1e-6 * self.random.random(m)), -1.0)
        worst = np.argpartition(-rank, size // 2)[:size // 2]
        rank[free] += gaps.max()
        rank[worst] = math.inf
        return np.sort(np.argpartition(-rank, size - 1)[:size]).astype(np.int32)
