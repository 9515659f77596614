"""Output codes: which classes are positive, and which negative, in each of several binary problems.

ovr     one column a class, +1 for it and -1 for all others
ovo     one a pair of classes, 0 for the others
ecoc    error-correcting output codes (Dietterich and Bakiri 1995): up to 7 classes all 2^(k-1) - 1 columns, above
        ceil(10 log2 k) random ones (dense codes of Allwein, Schapire and Singer 2000)
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from marginlinear._typing import FloatArray, Int8Array

# Up to so many classes ecoc takes every column there is.
EXHAUSTIVE = 7
# Random codes that are drawn, and the work (products) that they may cost.
DRAWS, DRAWING = 1000, 2e9


def column_count(how: str, k: int) -> int:
    """Columns that k classes have."""
    if how == "ovr":
        return k
    if how == "ovo":
        return k * (k - 1) // 2
    return 2 ** (k - 1) - 1 if k <= EXHAUSTIVE else math.ceil(10 * math.log2(k))


def one_versus_rest(k: int) -> Int8Array:
    """int8 array of shape (k, k): +1 on the diagonal."""
    return 2 * np.eye(k, dtype=np.int8) - 1


def codes_of(how: str, k: int, seed: int) -> Int8Array:
    """int8 array of shape (k, columns): the sign of each class in each binary problem, 0 where it has no part."""
    if how == "ovr":
        return one_versus_rest(k)
    if how == "ovo":
        first, second = np.triu_indices(k, 1)
        codes = np.zeros((k, len(first)), dtype=np.int8)
        at = np.arange(len(first))
        codes[first, at], codes[second, at] = 1, -1
        return codes
    if k <= EXHAUSTIVE:
        # Class 0 has +1 throughout; the signs of the others count in binary from all -1 up.
        number = np.arange(column_count(how, k))
        words = np.vstack([np.ones_like(number), *(number >> (k - 1 - label) & 1 for label in range(1, k))])
        return (2 * words - 1).astype(np.int8)
    return random_codes(k, seed)


def random_codes(k: int, seed: int) -> Int8Array:
    """Of many random codes the one whose two nearest classes are furthest apart.

    No column is constant, and none is another one or its negative. The bits are PCG64's own, which NumPy keeps.
    """
    columns = column_count("ecoc", k)
    generator = np.random.PCG64(seed)
    best: FloatArray | None = None
    far = 0.0
    for draw in range(DRAWS):
        codes = random_columns(generator, k, columns)
        # The Hamming distance of two words is (columns - <word, word>)/2.
        nearest = 0
        for lo in range(0, k, 1024):
            alike = codes[lo:lo + 1024] @ codes.T
            alike[np.arange(len(alike)), np.arange(lo, lo + len(alike))] = -columns
            nearest = max(nearest, alike.max())
        if (columns - nearest) / 2 > far:
            best, far = codes, (columns - nearest) / 2
        if best is not None and (draw + 1) * k * k * columns > DRAWING:
            break
    assert best is not None
    return best.astype(np.int8, order="C")


def random_columns(generator: np.random.PCG64, k: int, columns: int) -> FloatArray:
    """float64 array of shape (k, columns) of +1 and -1: different columns, not constant, class 0 with +1 throughout."""
    found: dict[bytes, npt.NDArray[np.uint8]] = {}
    while len(found) < columns:
        bits = np.unpackbits(generator.random_raw(k * columns // 64 + 1).astype("<u8").view(np.uint8))
        drawn = bits[:k * columns].reshape(columns, k)
        drawn ^= 1 - drawn[:, :1]
        found.update((row.tobytes(), row) for row in drawn if not row.all())
    return 2.0 * np.array(list(found.values())[:columns], np.float64).T - 1
