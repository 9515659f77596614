"""Passes over weights of shape (d, k) and tables of shape (m, k), on threads: signals wait for no pass over all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.blas import daxpy

from marginlinear.threads import run_chunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._typing import FloatArray

# Multiplications of one BLAS call: signals wait for its end.
AT_ONCE = 2e8
# Numbers of a vector that are worked at once: they stay in a cache, and are too few for threads of the BLAS's own
# (OpenBLAS: from 10,000 on), which would wait for each other at every call.
CACHED = 1 << 13
# Columns of one chunk of a product W'V.
COLUMNS = 64


def block_size(k: int) -> int:
    return max(64, int(AT_ONCE / (k * k)))


def blocks(n: int, k: int) -> list[slice]:
    return [slice(lo, min(n, lo + block_size(k))) for lo in range(0, n, block_size(k))]


def by_rows(work: Callable[[int, int], object], A: FloatArray, threads: int = 1) -> None:
    """work(lo, hi) for all rows of A, a few at a time: signals wait for no pass over all, and caches are used."""
    run_chunks(work, len(A), threads, max(1, CACHED // A.shape[1]))


def sqnorm(a: FloatArray) -> float:
    flat = a.reshape(-1)
    return float(np.dot(flat, flat))


def dot(a: FloatArray, b: FloatArray) -> float:
    return float(np.dot(a.reshape(-1), b.reshape(-1)))


def add(out: FloatArray, factor: float, a: FloatArray) -> None:
    """out += factor a"""
    daxpy(a.reshape(-1), out.reshape(-1), a=factor)


def gram(W: FloatArray, V: FloatArray, threads: int = 1) -> FloatArray:
    """W'V; for V = W by half the work, on one thread."""
    total = np.zeros((W.shape[1], V.shape[1]))

    def some(lo: int, hi: int) -> None:
        for part in blocks(*W.shape):
            total[:, lo:hi] += W[part].T @ V[part, lo:hi]

    run_chunks(some, V.shape[1], threads, max(1, V.shape[1]) if V is W else COLUMNS)
    return total


def add_product(A: FloatArray, B: FloatArray, out: FloatArray, threads: int = 1) -> None:
    """out += A @ B"""
    def some(lo: int, hi: int) -> None:
        out[lo:hi] += A[lo:hi] @ B

    run_chunks(some, len(out), threads, block_size(len(B)))


def multiply(A: FloatArray, B: FloatArray, out: FloatArray, threads: int = 1) -> None:
    """out = A @ B, which may be A."""
    def some(lo: int, hi: int) -> None:
        out[lo:hi] = A[lo:hi] @ B

    run_chunks(some, len(out), threads, block_size(len(B)))


def maximum(a: float, A: float, q: float, B: float) -> float:
    """max over theta in [0, 1] of a theta - A theta^q - B theta^2; for q = inf A theta <= 1 in place of the middle."""
    if not (math.isfinite(A) and math.isfinite(B)):
        return 0.0
    low, high = 0.0, 1.0
    if q == math.inf:
        high, A, q = (1 / A if A > 1 else 1.0), 0.0, 2.0
    if a - q * A * high ** (q - 1) - 2 * B * high < 0:
        for _ in range(60):
            theta = (low + high) / 2
            if a - q * A * theta ** (q - 1) - 2 * B * theta > 0:
                low = theta
            else:
                high = theta
    return float(a * high - A * high**q - B * high * high)
