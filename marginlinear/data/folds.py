"""The folds of a cross-validation."""

from __future__ import annotations

import numpy as np

from marginlinear._typing import AnyArray, BoolArray, IntpArray


def random_folds(m: int, n: int, seed: int) -> IntpArray:
    """The fold, 0..n-1, of each of m rows, whatever they are: as many in each as can be."""
    return stratified_folds(np.zeros(m), n, seed)


def stratified_folds(labels: AnyArray, n: int, seed: int | list[int]) -> IntpArray:
    """The fold, 0..n-1, of each row: each class, and the whole, is spread as evenly as can be."""
    codes = np.unique(labels, return_inverse=True)[1]
    order = np.lexsort((np.random.default_rng(seed).random(len(codes)), codes))
    folds = np.empty(len(codes), dtype=np.intp)
    folds[order] = np.arange(len(codes)) % n
    return folds


def chosen(strata: AnyArray, rows: int, seed: int) -> BoolArray:
    """Which rows are in a random subset of so many, bool array of shape (m,).

    Each of the strata has its share of the rows, rounded, and at least one where there are as many rows as strata.
    """
    _, codes, counts = np.unique(strata, return_inverse=True, return_counts=True)
    quota = counts * (rows / len(codes))
    sizes = np.floor(quota).astype(np.int64)
    if rows >= len(counts):
        sizes = np.maximum(sizes, 1)
    while missing := rows - int(sizes.sum()):
        # Those that are the furthest from their share; none has more than there are, nor gives its last row away.
        step = 1 if missing > 0 else -1
        possible = np.flatnonzero(sizes < counts if missing > 0 else sizes > 1)
        furthest = possible[np.argsort(step * (sizes - quota)[possible], kind="stable")]
        sizes[furthest[:abs(missing)]] += step
    rng = np.random.default_rng(seed)
    found = np.zeros(len(codes), dtype=bool)
    order = np.argsort(codes, kind="stable")
    for of_stratum, size in zip(np.split(order, np.cumsum(counts)[:-1]), sizes.tolist(), strict=True):
        found[rng.choice(of_stratum, size, replace=False)] = True
    return found
