"""The folds of a cross-validation."""

from __future__ import annotations

import numpy as np

from marginlinear._typing import AnyArray, IntpArray


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
