"""Sparse weights over rows elsewhere: surveys are sums over partitions, and rows of some of the features come from all
of them to where the fit is driven (algorithms/surveys.py).

The driver has the scores of all rows, their classes and costs; partitions keep no state. Weights that are 0 are not
sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear._core.rows import Rows
from marginlinear.algorithms.partitions.finish import ROOM
from marginlinear.algorithms.partitions.partition import few
from marginlinear.algorithms.surveys import counts_of, forces_for, picked, surveyed

if TYPE_CHECKING:
    from marginlinear._typing import AnyArray, FloatArray, IntArray, State, Table
    from marginlinear.algorithms.partitions.communicator import Vector
    from marginlinear.algorithms.partitions.partition import About, Partition
    from marginlinear.algorithms.partitions.places import Places


class Recipe(NamedTuple):
    """How a partition makes its forces.

    Attributes
    ----------
    loss : (knots, parts) or None
        Of the margin, as margin_cd.table_of takes it; None: of multinomial logistic regression.
    C : float
        c_i is C times the row's weights.
    signs : tuple of int or None
        Of a column's classes, data/codes.py.
    threads : int
    """

    loss: Table | None
    C: float
    signs: tuple[int, ...] | None
    threads: int

    def visit(self, partition: Partition, state: State | None, about: About) -> Visit:
        return Visit(partition, self)


class Joined:
    """An array of what rows have, of some partitions in their order: what replies add up to."""

    def __init__(self, parts: list[AnyArray]) -> None:
        self.parts = parts

    def copy(self) -> Joined:
        return Joined(list(self.parts))

    def __iadd__(self, other: Joined) -> Joined:
        self.parts += other.parts
        return self

    @property
    def size(self) -> int:
        """Numbers that it takes to send it."""
        return sum(part.nbytes for part in self.parts) // 8

    def whole(self) -> AnyArray:
        return np.concatenate(self.parts)


class Held:
    """What a partition has of a recipe."""

    def __init__(self, partition: Partition, recipe: Recipe) -> None:
        self.problem = problem = partition.problem(None if recipe.signs is None else np.array(recipe.signs, np.int8))
        cost = problem.costs(recipe.C)
        self.forces = forces_for(recipe.loss, problem.y, cost, problem.n_classes)
        self.counts = counts_of(problem.rows)


class Visit:
    """One message at one partition. The methods are the operations, and `state`."""

    def __init__(self, partition: Partition, recipe: Recipe) -> None:
        held = partition.held(recipe, Held)
        self.rows, self.forces, self.counts = held.problem.rows, held.forces, held.counts
        self.features, self.threads = partition.features, recipe.threads

    def state(self) -> State:
        return {}

    def begin(self) -> tuple[Vector, Joined, Joined]:
        """Values of each feature that are not 0; the rows' classes and costs."""
        counts = np.zeros(self.rows.d)
        counts[:self.rows.n] = self.counts
        return few(self.features, counts, 1), Joined([self.forces.y]), Joined([self.forces.cost])

    def survey(self, features: IntArray, weights: FloatArray) -> tuple[Joined, Vector]:
        """Scores, and U, at weights that are 0 but of these features."""
        W = np.zeros((self.rows.d, self.forces.columns))
        W[features] = weights
        scores, U = surveyed(self.rows, self.forces, W, self.threads)
        return Joined([scores]), few(self.features, U.reshape(-1), self.forces.columns)

    def pick(self, features: IntArray) -> tuple[Joined, Joined, Joined]:
        """The rows of these features: data, indices, and how many each row has."""
        data, indices, indptr = picked(self.rows, features, int(self.counts[features].sum()))
        return Joined([data]), Joined([indices]), Joined([np.diff(indptr)])


class RowsElsewhere:
    """A source: rows in partitions.

    Parameters
    ----------
    places : Places
    loss, C, threads
        As of Recipe.
    n_features : int
    bias : float
    """

    itemsize = 8

    def __init__(self, places: Places, loss: Table | None, C: float, n_features: int, bias: float,
                 threads: int) -> None:
        # Those of fit.py's recipe, whose place is taken.
        recipe: Any = places.recipe
        signs = None if recipe.signs is None else tuple(recipe.signs.tolist())
        self.places = places
        places.recipe = Recipe(loss, C, signs, threads)
        counts, y, cost = places.ask("begin")
        self.counts, self.y, self.cost = counts[:n_features], y.whole(), cost.whole()
        self.m, self.d, self.bias = len(self.y), n_features + (bias >= 0), bias
        # Several columns are fitted at the same time.
        self.memory = ROOM / (places.communicator.at_once if signs is not None and len(signs) > 2 else 1)

    def survey(self, W: FloatArray) -> tuple[FloatArray, FloatArray]:
        features = np.flatnonzero(W.any(axis=1))
        scores, U = self.places.ask("survey", features, W[features])
        return scores.whole(), U.reshape(W.shape)

    def gathered(self, features: IntArray) -> Rows:
        data, indices, lengths = self.places.ask("pick", features)
        indptr = np.zeros(self.m + 1, dtype=np.int64)
        np.cumsum(lengths.whole(), out=indptr[1:])
        return Rows.from_csr(data.whole(), indices.whole(), indptr, len(features), self.bias, in_order=True)

    def shortage(self, needed: float) -> str:
        return (f"{needed:,.0f} bytes, and the driver takes {self.memory:,.0f}: train on a store, whose memory may be "
                "given")
