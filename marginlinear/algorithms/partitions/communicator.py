"""Messages to all partitions, and the sums of what they answer.

A Communicator has a number of fits that may go on at once, `at_once`, and four methods:

    run(recipe, about, operations)      [the sums of each operation's arrays, or None], in partition.py's words
    collect(recipe, about, operations, solve, *arguments)
                                        solve(these sums, *arguments), where there is room for them
    forget()                            the states of the rows are not needed any more
    beside()                            a Communicator for another fit over the same rows; with at_once = 1 itself

Sums are made by a tree over the numbers of the partitions, of which each node has FAN_IN below it: the same bits
wherever partitions are, whichever are together, and whichever answers first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from marginlinear._typing import AnyArray, FloatArray, IntArray, State
    from marginlinear.algorithms.partitions.partition import About, Partition

# Sums that a node of the tree takes together.
FAN_IN = 8
# Of a vector that is 0 but in this part of its places, at most, these are sent.
SPARSE = 0.5


# A name of partition.py's operations, and its arguments; the arrays of each operation, or None.
Operation: TypeAlias = tuple[str, tuple[Any, ...]]
Replies: TypeAlias = list[Any]
# (level, number at the level) -> sum.
Nodes: TypeAlias = dict[tuple[int, int], Replies]


class AnyRecipe(Protocol):
    """How a partition makes what answers: partition.Recipe, or smooth.Recipe."""

    def visit(self, partition: Partition, state: State | None, about: About, /) -> Any: ...


class Communicator(Protocol):
    """See above."""

    @property
    def at_once(self) -> int: ...

    def run(self, recipe: AnyRecipe, about: About, operations: Sequence[Operation]) -> Replies: ...

    def collect(self, recipe: AnyRecipe, about: About, operations: Sequence[Operation], solve: Callable[..., Any],
                *arguments: Any) -> Any: ...

    def forget(self) -> None: ...

    def beside(self) -> Communicator: ...


class Few:
    """A vector that is 0 in most places, as replies send it.

    Parameters
    ----------
    places : int32 array, ascending; int64 where int32 does not do
    values : float64 array
    size : int
    """

    def __init__(self, places: IntArray, values: AnyArray, size: int) -> None:
        self.places, self.values, self.size = places, values, size

    def copy(self) -> Few:
        return Few(self.places, self.values.copy(), self.size)

    def __iadd__(self, other: Vector) -> Vector:
        if not isinstance(other, Few):
            return self.dense() + other
        places, where = np.unique(np.concatenate([self.places, other.places]), return_inverse=True)
        if len(places) > SPARSE * self.size:
            whole = self.dense()
            whole[other.places] += other.values
            return whole
        # Of two numbers the first is added to 0 first.
        return Few(places, np.bincount(where, np.concatenate([self.values, other.values])), self.size)

    def dense(self) -> FloatArray:
        whole = np.zeros(self.size)
        whole[self.places] = self.values
        return whole


Vector: TypeAlias = "FloatArray | Few"


def plus(whole: Any, more: Any) -> Any:
    """whole + more, which may be whole itself; of arrays, and of Few."""
    if isinstance(more, Few) and not isinstance(whole, Few):
        whole[more.places] += more.values
        return whole
    whole += more
    return whole


def dense(vector: Vector) -> FloatArray:
    return vector.dense() if isinstance(vector, Few) else vector


def numbers_of(vector: Vector) -> int:
    """Numbers that it takes to send it: a place is half of one."""
    return len(vector.places) * 3 // 2 if isinstance(vector, Few) else vector.size


def added(replies: Sequence[Replies]) -> Replies:
    """The sum of some replies, in their order."""
    first, *others = replies
    sums: Replies = []
    for at, arrays in enumerate(first):
        if arrays is None:
            sums.append(None)
            continue
        whole = [array.copy() for array in arrays]
        for reply in others:
            whole = [plus(array, more) for array, more in zip(whole, reply[at], strict=True)]
        sums.append(whole)
    return sums


def merged(nodes: Nodes, count: int) -> Nodes:
    """The nodes of the tree over `count` partitions that can be made of these.

    Parameters
    ----------
    nodes : dict
        (level, number at the level) -> sum; the reply of partition p is (0, p).

    Returns
    -------
    dict
        The same of the highest nodes: {(top, 0): the sum of all} where all partitions are in `nodes`.
    """
    nodes, level = dict(nodes), 0
    while count > 1:
        for number in range(-(-count // FAN_IN)):
            below = [(level, at) for at in range(FAN_IN * number, min(count, FAN_IN * (number + 1)))]
            if all(node in nodes for node in below):
                nodes[level + 1, number] = added([nodes.pop(node) for node in below])
        count, level = -(-count // FAN_IN), level + 1
    return nodes


class InProcess:
    """Partitions in this process, one after the other.

    Parameters
    ----------
    partitions : list of Partition
    """

    at_once = 1

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.partitions = partitions
        self.forget()

    def beside(self) -> InProcess:
        return self

    def forget(self) -> None:
        self.states: list[State | None] = [None] * len(self.partitions)

    def collect(self, recipe: AnyRecipe, about: About, operations: Sequence[Operation], solve: Callable[..., Any],
                *arguments: Any) -> Any:
        return solve(self.run(recipe, about, operations), *arguments)

    def run(self, recipe: AnyRecipe, about: About, operations: Sequence[Operation]) -> Replies:
        answers = [partition.answer(recipe, state, about, operations)
                   for partition, state in zip(self.partitions, self.states, strict=True)]
        self.states = [state for state, _ in answers]
        whole, = merged({(0, at): reply for at, (_, reply) in enumerate(answers)}, len(answers)).values()
        return whole
