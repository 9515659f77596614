"""The folds of a cross-validation."""

from __future__ import annotations

import numpy as np

from marginlinear._typing import AnyArray, ArrayLike, BoolArray, IntpArray


def stratified_folds(labels: AnyArray, n: int, seed: int | list[int]) -> IntpArray:
    """The fold, 0..n-1, of each row: each class, and the whole, is spread as evenly as can be."""
    codes = np.unique(labels, return_inverse=True)[1]
    order = np.lexsort((np.random.default_rng(seed).random(len(codes)), codes))
    folds = np.empty(len(codes), dtype=np.intp)
    folds[order] = np.arange(len(codes)) % n
    return folds


def folds_of(y: AnyArray, n: int, seed: int | list[int], groups: AnyArray | None = None) -> IntpArray:
    """The fold of each row: classes spread evenly, or groups whole and folds of about equally many rows."""
    if groups is None:
        return stratified_folds(y, n, seed)
    names, of = np.unique(groups, return_inverse=True)
    if len(names) < n:
        raise ValueError(f"{len(names)} groups for {n} folds: give fewer folds")
    sizes = np.bincount(of)
    rng = np.random.default_rng(seed)
    held, fold_of = np.zeros(n, dtype=np.int64), np.empty(len(names), dtype=np.intp)
    # The largest first, each to the fold that has least; equal ones in random order.
    for group in np.lexsort((rng.random(len(names)), -sizes)):
        fold_of[group] = held.argmin()
        held[fold_of[group]] += sizes[group]
    return fold_of[of]


def own_folds(folds: ArrayLike, m: int) -> IntpArray:
    """The fold, 0..n-1, of each of m rows, of a caller's numbers, which count from 0 or 1; ValueError for others."""
    numbers = np.asarray(folds)
    if numbers.shape != (m,):
        raise ValueError(f"folds has shape {numbers.shape}, X has {m} rows: give a number of folds, or the fold of "
                         "each row")
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"folds holds {numbers.dtype}: give the fold of each row as an integer")
    names, fold_of = np.unique(numbers, return_inverse=True)
    counted = np.arange(len(names)) + (0 if names[0] == 0 else 1)
    wrong = np.flatnonzero(names != counted)
    if len(wrong):
        raise ValueError(f"folds: {names[wrong[0]]} stands where {counted[wrong[0]]} should come next: number the "
                         "folds from 0 or from 1, without gaps")
    if len(names) < 2:
        raise ValueError("folds: all rows are in one fold: give 2 folds or more")
    return fold_of


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
