"""Grids of a Gaussian kernel's width that follow from the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from marginlinear.data.arrays import is_compressed, select_rows, shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from marginlinear.compare.contestants import Contestant, Fitted, Task, Tried

# Distances are averaged over the pairs of so many rows at most.
SAMPLE = 1000


class OfWidths:
    """A contestant with a Gaussian kernel, whose gamma is 1/(2 width^2), width being a factor times the mean distance
    between the rows of the training part."""

    def __init__(self, inner: Contestant, factors: Sequence[float], gamma: str = "gamma") -> None:
        self.inner, self.factors, self.gamma, self.label = inner, tuple(factors), gamma, inner.label

    @property
    def key(self) -> dict[str, Any]:
        return {**self.inner.key, "widths": list(self.factors)}

    @property
    def described(self) -> str:
        factors = ", ".join(f"{factor:g}" for factor in self.factors)
        return f"{self.inner.described}; width in {{{factors}}} times the mean distance of the training rows"

    @property
    def regression(self) -> bool | None:
        return self.inner.regression

    @property
    def power(self) -> float:
        return self.inner.power

    def unfit(self, task: Task) -> str | None:
        return self.inner.unfit(task)

    def points(self, task: Task) -> list[dict[str, Any]]:
        distance = mean_distance(task.X, task.seed)
        gammas = [1 / (2 * (factor * distance) ** 2) for factor in self.factors]
        return [{**point, self.gamma: gamma} for gamma in gammas for point in self.inner.points(task)]

    def chains(self, points: list[dict[str, Any]]) -> list[list[int]]:
        return self.inner.chains(points)

    def search(self, task: Task, points: list[dict[str, Any]]) -> list[Tried]:
        return self.inner.search(task, points)

    def fit(self, task: Task, point: Mapping[str, Any], probability: bool) -> Fitted:
        return self.inner.fit(task, point, probability)


def mean_distance(X: Any, seed: int) -> float:
    """Over the pairs of different rows, of a sample where there are more than SAMPLE."""
    m = shape_of(X)[0]
    if m > SAMPLE:
        X = select_rows(X, np.sort(np.random.default_rng(seed).permutation(m)[:SAMPLE]))
        m = SAMPLE
    rows = X.to_scipy() if is_compressed(X) else np.asarray(X, dtype=np.float64)
    products: Any = rows @ rows.T
    products = products.toarray() if hasattr(products, "toarray") else products
    squares = np.diagonal(products)
    distances = np.sqrt(np.maximum(0, squares[:, np.newaxis] + squares - 2 * products))
    return float(distances.sum() / (m * (m - 1)))
