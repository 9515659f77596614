"""How rows become training and test parts, the same ones for all methods.

A split follows from the seed, the name of the set and the number of the split alone: not from other sets or splits,
from threads, or from what was done before.

    splits   a part of each class at random for training, the rest, or a part of it, for tests; so many times
    folds    each of K parts once for tests, and that R times
    given    one split, which came with the data
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marginlinear.compare import parameters as D
from marginlinear.data.folds import folds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from marginlinear._typing import AnyArray, IntArray, IntpArray


class Split(NamedTuple):
    """The numbers of a split's rows, ascending."""

    train: IntpArray
    test: IntpArray


class Design(NamedTuple):
    """How sets are split.

    Attributes
    ----------
    splits : int
    train_size, test_size : float
        Below 1 a part of the rows, else a count; a test_size of None means all others.
    outer_folds : int or None
        In place of these: folds, cut `repeats` times.
    repeats : int
    folds : int
        Of the selection inside a training part.
    seed : int
    label_noise : float
        The part of the training rows that get the label of another class.
    rare : float or None
        The part of the training rows that may be of their rarest class.
    """

    splits: int = D.SPLITS.default
    train_size: float = D.TRAIN_SIZE.default
    test_size: float | None = None
    outer_folds: int | None = None
    repeats: int = D.REPEATS.default
    folds: int = D.FOLDS.default
    seed: int = D.SEED.default
    label_noise: float = D.LABEL_NOISE.default
    rare: float | None = D.RARE.default

    def count(self, given: bool) -> int:
        """Splits of a set; `given`: it came with a test part."""
        if given:
            return 1
        return self.splits if self.outer_folds is None else self.outer_folds * self.repeats

    def sentence(self, given: int = 0, sets: int = 1) -> str:
        """How rows are split, in words; so many of the sets came with a test part."""
        if given == sets:
            how = "the test part that came with each set"
        elif self.outer_folds is not None:
            how = f"{self.outer_folds} outer folds"
            how = how if self.repeats == 1 else f"{self.repeats} times {how}"
        else:
            test = "the others" if self.test_size is None else _size(self.test_size)
            how = f"{self.splits} random splits, {_size(self.train_size)} for training and {test} for tests"
        if 0 < given < sets:
            how += f", but {given} sets came with a test part"
        if self.label_noise > 0:
            how += f", {self.label_noise:g} of the training labels replaced by another class's"
        if self.rare is not None:
            how += f", the rarest class thinned to {self.rare:g} of the training rows"
        return f"{how}; parameters by {self.folds}-fold cross-validation inside each training part; seed {self.seed}"

    def split(self, name: str, y: AnyArray, number: int, groups: AnyArray | None = None,
              stratify: bool = True) -> Split:
        """Split `number`, from 0, of a set that came without a test part.

        Parameters
        ----------
        name : str
        y : array of shape (m,)
            Classes, or targets where not `stratify`.
        groups : array of shape (m,), optional
            Rows of one group are in one part; the classes are then not spread evenly.

        Raises
        ------
        ValueError
            Where rows, classes or groups are too few.
        """
        m = len(y)
        if self.outer_folds is not None:
            repeat, fold = divmod(number, self.outer_folds)
            fold_of = folds_of(y if stratify else np.zeros(m), self.outer_folds, self._seed(name, repeat), groups)
            return Split(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold))
        rng = np.random.default_rng(self._seed(name, number))
        order = spread(y if stratify else np.zeros(m), rng) if groups is None else None
        train = _rows(self.train_size, m, "train_size")
        test = m - train if self.test_size is None else _rows(self.test_size, m, "test_size")
        if train + test > m:
            raise ValueError(f"train_size = {self.train_size:g} and test_size = {self.test_size:g} are {train} and "
                             f"{test} rows, there are {m}: give less")
        if order is not None:
            return Split(np.sort(order[:train]), np.sort(order[m - test:]))
        assert groups is not None
        return _split_groups(groups, rng, train, test)

    def inner(self, name: str, y: AnyArray, number: int, groups: AnyArray | None = None,
              stratify: bool = True) -> IntpArray:
        """The fold, 0 to folds - 1, of each of the training rows of a split, whose classes or targets are y."""
        if len(y) < 2:
            raise ValueError("a training part of one row leaves nothing to choose by: give a larger train_size")
        folds = min(self.folds, len(y))
        return folds_of(y if stratify else np.zeros(len(y)), folds, [*self._seed(name, number), 1], groups)

    def noisy(self, name: str, y: IntArray, number: int, k: int) -> IntArray:
        """The classes of the training rows of a split, 0 to k - 1, with noise: which rows, and which of the other
        classes they get, follows from the seed, the set's name and the split."""
        rng = np.random.default_rng([*self._seed(name, number), 3])
        wrong = rng.permutation(len(y))[:round(self.label_noise * len(y))]
        found = y.copy()
        found[wrong] = (y[wrong] + rng.integers(1, k, len(wrong))) % k
        return found

    def thinned(self, name: str, y: IntArray, number: int) -> IntpArray:
        """The rows that stay of the training rows of a split, whose classes are y, where the rarest class has its
        part of `rare`."""
        counts = np.bincount(y)
        rarest = int(np.where(counts > 0, counts, len(y)).argmin())
        of_class, others = np.flatnonzero(y == rarest), np.flatnonzero(y != rarest)
        assert self.rare is not None
        if not len(others):
            return of_class
        # r/(r + others) = rare; a class of which no row is left would be another problem.
        stay = max(1, round(self.rare * len(others) / (1 - self.rare)))
        rng = np.random.default_rng([*self._seed(name, number), 4])
        return np.sort(np.append(others, rng.permutation(of_class)[:stay]))

    def _seed(self, name: str, number: int) -> list[int]:
        return [self.seed, zlib.crc32(name.encode()), number]


def spread(y: AnyArray, rng: np.random.Generator) -> IntpArray:
    """The rows in a random order of which each beginning, and each end, has its part of each class.

    Of a class with c rows the i-th stands at (i + u)/c, u random in [0, 1) and the same for the class.
    """
    codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
    order = np.lexsort((rng.random(len(y)), codes))
    first = np.cumsum(counts) - counts
    place = (np.arange(len(y)) - np.repeat(first, counts) + np.repeat(rng.random(len(counts)), counts))
    return order[np.argsort(place / np.repeat(counts, counts), kind="stable")]


def _split_groups(groups: AnyArray, rng: np.random.Generator, train: int, test: int) -> Split:
    """Groups in random order, to the training part until it has its rows, to the test part from the other end."""
    names, of = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise ValueError("all rows are of one group: there is nothing to test on")
    order = rng.permutation(len(names))
    sizes = np.bincount(of)[order]
    # Those whose middle lies inside; each part has one at least.
    middle = np.cumsum(sizes) - sizes / 2
    inside = min(max(1, int(np.count_nonzero(middle <= train))), len(names) - 1)
    outside = max(1, int(np.count_nonzero(middle[inside:] > len(of) - test)))
    in_train, in_test = np.isin(of, order[:inside]), np.isin(of, order[len(names) - outside:])
    return Split(np.flatnonzero(in_train), np.flatnonzero(in_test))


def _rows(size: float, m: int, name: str) -> int:
    rows = int(size) if size >= 1 else round(size * m)
    if not 0 < rows < m:
        raise ValueError(f"{name} = {size:g} is {rows} of {m} rows: both parts need some")
    return rows


def _size(size: float) -> str:
    return f"{size:g} of the rows" if size < 1 else f"{int(size)} rows"


def bootstrap_rows(seed: int, name: str, m: int, draws: int) -> Iterator[IntpArray]:
    """Yield resamples of the m rows of a given test part, m numbers each: the same for all methods."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), 2])
    for _ in range(draws):
        yield rng.integers(0, m, m)


def ratio(splits: list[tuple[int, int]]) -> float:
    """Rows of test to rows of training, over splits: n2/n1 of the corrected tests."""
    return sum(test for _, test in splits) / max(1, sum(train for train, _ in splits)) if splits else math.nan
