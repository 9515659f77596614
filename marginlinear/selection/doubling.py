"""The values that LIBLINEAR's -C tries, where it has that search: they depend on the rows.

    C        doubles, from where the best weights are still next to 0, up to 2^10, of a regression 2^20
    epsilon  i/20 times the largest absolute target, i = 0, ..., 19

What is given of the two says where they begin: C goes up from there, epsilon down. Of other methods C doubles from a
given one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from marginlinear import params as P
from marginlinear.data.arrays import as_rows, is_paged
from marginlinear.data.checks import training_data
from marginlinear.selection.grid import own_range
from marginlinear.store.paging import paged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from marginlinear._typing import AnyArray, ArrayLike, FloatArray
    from marginlinear.registry import Method

# The largest C, of classes and of numbers.
LARGEST = {False: 2.0**10, True: 2.0**20}
STEPS = 20


def doubling_grid(method: Method, X: Any, y: Any, params: Mapping[str, Any],
                  sample_weight: ArrayLike | None = None) -> dict[str, list[float]]:
    """{name: values} for `search`, without whose names the `params` are those that stay fixed.

    Parameters
    ----------
    method : Method
        One of which `grid.doubles` is true.
    X, y, sample_weight
        As `search` takes them.
    params : dict
        C and epsilon in it are where the values begin.

    Raises ValueError and TypeError for rows, targets or weights that no fit takes.
    """
    if not own_range(method, params):
        return {P.C.name: _doubles(P.C.check(params[P.C.name]), method)}
    X = paged(X, params.get(P.MEMORY.name), params.get(P.SWEEPS_PER_LOAD.name))
    y = X.y if y is None and is_paged(X) else y
    X, y, weights, _ = training_data(X, y, sample_weight, regression=method.regression)
    C = params.get(P.C.name)
    grid = {P.C.name: _doubles(_first(method, X, y, weights, params) if C is None else P.C.check(C), method)}
    if method.regression:
        most = float(np.abs(y).max())
        values = [most * i / STEPS for i in range(STEPS)]
        epsilon = params.get(P.EPSILON.name)
        if epsilon is not None:
            P.EPSILON.check(epsilon)
            values = [value for value in values if value <= epsilon * (1 + 1e-9)]
        grid[P.EPSILON.name] = list(dict.fromkeys(values))
    return grid


def _doubles(start: float, method: Method) -> list[float]:
    return [start * 2.0**i for i in range(max(1, math.floor(math.log2(LARGEST[method.regression] / start)) + 1))]


def _first(method: Method, X: Any, y: AnyArray, weights: FloatArray, params: Mapping[str, Any]) -> float:
    """A power of two: the C at which LIBLINEAR begins, of a regression at epsilon 0."""
    if params.get(P.SCALE.name) is not None:
        from marginlinear.data.scaling import learned

        scaling = learned(params[P.SCALE.name], X)
        X = X.changed(scaling.apply) if is_paged(X) else scaling.apply(X)
    bias = params.get(P.BIAS.name, P.BIAS.default)
    if params.get(P.FREE_BIAS.name) and bias < 0:
        bias = 1.0
    longest = float(as_rows(X, bias).sqnorms().max())
    if method.regression:
        size = np.abs(y)
        above, below = 0.01 * float(weights @ size**2), 8 * float(weights @ size) ** 2
    else:
        # The squared hinge at 0 has twice the slope of its argument.
        above, below = 1.0, float(weights.sum()) * (2 if method.probabilities is None else 1)
    if not longest or not above:
        return 1.0  # w = 0 is the best for every C
    return 2.0 ** math.floor(math.log2(above / below / longest))
