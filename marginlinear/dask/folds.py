"""Folds of the rows in partitions: models of all rows but those of a fold, and what they say of these.

A partition cuts its own rows into folds, class by class: they are as even as partitions are large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear.algorithms.partitions.partition import Partition
from marginlinear.dask.collections import RETRIES
from marginlinear.dask.communicator import drop
from marginlinear.data.arrays import is_stored, select_rows
from marginlinear.data.folds import stratified_folds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Future

    from marginlinear._typing import AnyArray, FloatArray, IntArray
    from marginlinear.algorithms.partitions.fit import Whole
    from marginlinear.dask.communicator import Cluster
    from marginlinear.fitting import Fitted
    from marginlinear.model import Model


class Cuts(NamedTuple):
    """How rows are cut into folds.

    Attributes
    ----------
    folds, seed : int
    lonely : int array
        Classes of one row, which is in no fold: all models learn from it.
    """

    folds: int
    seed: int
    lonely: IntArray | tuple[()]

    def of(self, partition: Partition) -> IntArray:
        """The fold of each row, or -1: int array of shape (m,)."""
        found = stratified_folds(partition.y, self.folds, [self.seed, partition.number])
        # A partition's first row of a class is not to be in the first fold everywhere.
        found = (found + partition.number) % self.folds
        found[np.isin(partition.y, self.lonely)] = -1
        return found


class Fold(NamedTuple):
    """What a model says of rows that it has not seen.

    Attributes
    ----------
    fitted : Fitted
    y, places : arrays of shape (rows,)
        The classes that rows have, and those that the model gives them; of a regression targets and predictions.
    instance : float64 array of shape (rows,)
    scores : float64 array of shape (rows,) or (rows, columns)
        What is compared between the classes.
    """

    fitted: Fitted
    y: AnyArray
    instance: FloatArray
    places: AnyArray
    scores: FloatArray


def folds_of(cluster: Cluster, partitions: Sequence[Future[Any]], whole: Whole, cuts: Cuts, classes: AnyArray | None,
             fitted: Callable[[Sequence[Future[Any]], Whole, list[int], int], Fitted],
             model: Callable[[Fitted], Model]) -> Iterator[Fold]:
    """Yield the Folds, one after the other.

    Parameters
    ----------
    cluster : Cluster
    partitions : list of futures of Partition
    whole : Whole
    cuts : Cuts
    classes : array of shape (k,)
    fitted : callable
        fitted(partitions, whole, rows, fold) is a Fitted of these, of so many rows each,
    model : callable
        and model(fitted) the Model whose scores are wanted.

    Raises
    ------
    ValueError
        A class has no row outside of a fold, or a partition's rows are read from a disk.
    """
    def asked(work: Callable[..., Any], *arguments: Any) -> list[Any]:
        return cluster.results([cluster.client.submit(work, partition, *arguments, pure=False, retries=RETRIES)
                                for partition in partitions])

    sizes = asked(sizes_of, cuts)
    weights: Any = sum(weights for _, weights in sizes)
    counts: Any = sum(counts for counts, _ in sizes)
    lacking = np.argwhere((counts.sum(axis=0) > 0) & (counts.sum(axis=0) - counts[:cuts.folds] <= 0))
    if len(lacking):
        assert classes is not None
        fold, place = lacking[0]
        raise ValueError(f"label {classes.tolist()[place]!r} has rows in fold {fold} alone: folds are cut inside the "
                         "partitions; give more rows of it, or fewer partitions or folds")
    for fold in range(cuts.folds):
        there = [at for at, (counts, _) in enumerate(sizes) if counts.sum() > counts[fold].sum()]
        left = whole._replace(sizes=tuple((weights.sum(axis=0) - weights[fold]).tolist()))
        rows = [int(sizes[at][0].sum() - sizes[at][0][fold].sum()) for at in there]
        inside = [cluster.client.submit(without, partitions[at], cuts, fold, number, left.size, pure=False,
                                        retries=RETRIES) for number, at in enumerate(there)]
        try:
            found = fitted(inside, left._replace(count=len(inside)), rows, fold)
        finally:
            drop(cluster.client, inside)
        told = zip(*asked(scored, cuts, fold, model(found)), strict=True)
        yield Fold(found, *map(np.concatenate, told))


# On the workers.


def sizes_of(partition: Partition, cuts: Cuts) -> tuple[AnyArray, FloatArray]:
    """(rows of each fold and class, sums of their weights): the last are those of no fold."""
    if is_stored(partition.X):
        raise ValueError(f"folds are of rows in memory, {partition.X.path} takes more than a worker has for it: give "
                         "workers more memory, or smaller stores")
    found = cuts.of(partition)
    counts = np.zeros((cuts.folds + 1, partition.n_classes), dtype=np.int64)
    np.add.at(counts, (found, partition.y), 1)
    weights = np.zeros(counts.shape)
    np.add.at(weights, (found, partition.y), partition.instance)
    return counts, weights


def without(partition: Partition, cuts: Cuts, fold: int, number: int, whole: float) -> Partition:
    """The Partition of the rows of other folds."""
    which = np.flatnonzero(cuts.of(partition) != fold)
    targets = partition.targets
    return Partition(select_rows(partition.X, which), partition.y[which], partition.n_classes,
                     partition.instance[which], partition.factor[which], whole, partition.bias, number,
                     targets=None if targets is None else targets[which])


def scored(partition: Partition, cuts: Cuts, fold: int, model: Any) -> tuple[AnyArray, FloatArray, AnyArray, AnyArray]:
    """(classes, weights, predicted classes, what is compared between the classes) of the rows of a fold; of a
    regression targets and predictions."""
    which = np.flatnonzero(cuts.of(partition) == fold)
    scores = model.decide(select_rows(partition.X, which), threads=1)
    if partition.targets is not None:
        return partition.targets[which], partition.instance[which], scores, scores
    return partition.y[which], partition.instance[which], model.places_of(scores), model.ordered_ranks(scores)
