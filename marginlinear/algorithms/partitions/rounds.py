"""Rounds in place of sweeps: groups of rows are visited at the same time, each on its own copy of W.

Group g sees W and its own steps, not those of the others, and takes each of its own sigma times:

    v_g = W + theta dU_g,    theta = sigma/(1 + kappa),    a row's step has A = theta ||x_i||^2

where dU_g is the change of U by the group's steps, and kappa the strength of the centre (iterates.pyx). Together they
want T = sum_g dU_g, and duals a' in place of a. A part t of that is done: a + t (a' - a), W + t T/(1 + kappa).

The part. h being the concave -sum_i loss_i*, the dual of the problem at hand is, but for a constant,

    D(t) = h(a + t (a' - a)) - (1 + kappa)/2 ||W + t T/(1 + kappa)||^2

With q = sum_i (the least curvature of loss_i*) times (a_i' - a_i)^2, h is at least (1 - t) h(a) + t h(a')
+ t (1 - t) q/2 there, and is that where each loss_i* is one parabola or one line. Step by step the groups have raised
h - <v, .> by `gain`:

    h(a') - h(a) = gain + <W, T> + theta/2 sum_g ||dU_g||^2
    D(t) - D(0) >= t (gain + theta/2 sum_g ||dU_g||^2 + q/2) - t^2/2 (q + ||T||^2/(1 + kappa))

Every sum is of numbers >= 0 that the visits have at hand. t, at most 1, makes the bound the largest, and D never falls,
whatever sigma is. Where ||T||^2 <= sigma sum_g ||dU_g||^2 the whole way, t = 1, raises D by `gain` at least, and is
taken: so much the steps would bring if the groups did not meet.

Sigma is how far the groups pull alike, ||T||^2/sum_g ||dU_g||^2 of the rounds before: 1 where they do not meet, their
number where they want the same. There is one direction b that all rows share, as text shares its frequent words: along
it even groups of a few rows pull alike, and elsewhere these hardly do. Hence b has a sigma of its own, `firm`: the
metric of v_g is sigma (I - b b') + firm b b', and (firm - sigma)/(1 + kappa) <b, dU_g>^2 stands beside
theta ||dU_g||^2 in what is above.

Several rounds a sweep, of a part of the rows each, leave less to do before the groups hear of one another. Where most
features are rare, as in text, groups meet at the frequent ones alone, and a round has sections: after each the groups
hear of what all have done at the frequent features F, as if the whole way was taken, and of the others after the last.
With T_r and dU_gr of section r, W and dU_g of a step at F are those of its section, and step by step

    h(a') - h(a) = gain + <W, T> + theta/2 each + (||T||^2 - whole)/(2 + 2 kappa)
    each = sum_g ||dU_g||^2 off F + sum_r sum_g ||dU_gr||^2 on F,    whole = ||T||^2 off F + sum_r ||T_r||^2 on F

Nothing else changes: the whole way raises D by `gain` at least where `whole` is at most sigma each, and the bound has
t (||T||^2 - whole)/(2 + 2 kappa) more. A round ends with the section that goes too far.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from marginlinear.algorithms.descent import Pace
from marginlinear.algorithms.partitions.groups import Groups, frequent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from marginlinear._core.dual_engine import DualEngine
    from marginlinear.algorithms.partitions.groups import Proposal

# Groups, of which each is one thread's at a time: with fewer threads some wait, and the result is the same.
GROUPS = 8
# Sections of a sweep where frequent features are exchanged; else rounds, and no more than the copies of W fit into the
# values of the rows.
MOST_SECTIONS, MOST_ROUNDS = 16, 8
# Multiplications of a round: with less, threads cost more than they bring.
LEAST = 400_000
# Values that are not 0, for a number in the copies of W: with less, a round is copies and their sums.
WORTH = 4
# A round of all rows leaves more of the gap than a sweep, and a new centre does as much against it as another round.
AT_ONCE, BY_PARTS = Pace(1, 0, 30.0, 10), Pace(2, 12, 10.0, 10)


class Place(Protocol):
    """Where the rows are: Groups, or Places."""

    @property
    def count(self) -> int: ...

    @property
    def rounds(self) -> int: ...

    def deal(self) -> Iterator[tuple[Any, bool]]: ...

    def propose(self, places: Any, theta: float, extra: float, /) -> Proposal: ...

    def accept(self, places: Any, t: float, share: float, /) -> None: ...


def rounds_on(engine: DualEngine, threads: int) -> Rounds | None:
    """Rounds for a fit of this engine, or None where plain sweeps cost less: the same for any number of threads."""
    rows = engine.rows
    if rows.is_gram:
        return None
    values = rows.nonzeros()
    ratio, work = values / (1.0 + GROUPS * rows.d), values * engine.n_classes
    if work < LEAST or ratio < WORTH:
        return None
    rounds = min(MOST_SECTIONS, work // LEAST)
    often = frequent(rows, GROUPS * rounds, engine.n_classes, threads) if rounds > 1 else None
    if often is None:
        rounds = max(1, min(MOST_ROUNDS, rounds, int(ratio)))
    # Rows on disk are read in one place at a time.
    engine.parts = GROUPS if rows.pager is None else 1
    return Rounds(engine, Groups(engine, GROUPS, rounds, threads, often=often))


class Rounds:
    """Sweeps of a DualEngine, as `Descent` asks for them, in rounds.

    Parameters
    ----------
    engine : DualEngine
    groups : groups.Groups

    Attributes
    ----------
    sigma, firm : float
        Of the next round.
    pace : Pace
    """

    def __init__(self, engine: DualEngine, groups: Place) -> None:
        self.engine, self.groups = engine, groups
        self.sigma, self.firm = max(1.0, groups.count / 4), float(groups.count)
        self.pace = AT_ONCE if groups.rounds == 1 else BY_PARTS
        self._bounded = False

    def start_over(self) -> None:
        """Duals and weights of 0."""
        self.engine.start_over()
        self._bounded = False

    def sweep(self) -> None:
        """Visit every row once, but those that are skipped."""
        engine = self.engine
        # From duals that are out of their range a part of the way is out of it, too.
        self._bounded = self._bounded or engine.dual() > -math.inf
        if not self._bounded or self.groups.count == 1:
            engine.sweep()
            return
        gap = loss = tight = 0.0
        for places, last in self.groups.deal():
            found = self._round(places)
            if last:
                gap, loss, tight = gap + found.gap, loss + found.loss, tight + found.tight
        engine.end_sweep(gap, loss, tight)

    def lengths(self, kappa: float) -> tuple[float, float]:
        """(theta, extra) of the next round."""
        return self.sigma / (1 + kappa), (self.firm - self.sigma) / (1 + kappa)

    def _round(self, places: Any) -> Proposal:
        kappa = self.engine.iterates.kappa
        beside, (theta, extra) = 1 + kappa, self.lengths(kappa)
        found = self.groups.propose(places, theta, extra)
        t = self._part(found, theta, extra, beside)
        self.groups.accept(places, t, t / self.sigma)
        self.sigma = self._followed(self.sigma, found.whole - found.whole_along, found.each - found.each_along)
        self.firm = self._followed(self.firm, found.whole_along, found.each_along)
        return found

    def _part(self, found: Proposal, theta: float, extra: float, beside: float) -> float:
        """t"""
        # Moves within rounding leave pulls along b, and none of the copies of W.
        own = max(0.0, theta * found.each + extra * found.each_along)
        if found.whole <= beside * own or not found.moved:
            return 1.0
        exchanged = (found.moved - found.whole) / beside
        return min(1.0, (found.gain + (own + found.curvature + exchanged) / 2)
                   / (found.curvature + found.moved / beside))

    def _followed(self, sigma: float, whole: float, each: float) -> float:
        """The geometric mean of what was taken and what was seen."""
        return math.sqrt(sigma * min(max(whole / each, 1.0), self.groups.count)) if each > 0 else sigma
