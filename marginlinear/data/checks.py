"""What Python hands over, checked: X, y, weights of rows and classes."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from marginlinear import params as P
from marginlinear._typing import AnyArray, FloatArray, IntpArray
from marginlinear.data.arrays import (
    HeldRows,
    held,
    is_frame,
    require_finite,
    select_rows,
    select_square,
    shape_of,
)
from marginlinear.data.labels import labels_of, require_words, targets_of
from marginlinear.errors import renumber_rows

BALANCED = "balanced"


def class_factors(class_weight: Any, classes: AnyArray, sizes: FloatArray) -> FloatArray:
    """Factor of C of each class, float64 array of shape (k,); `sizes` are the sums of their rows' weights."""
    if isinstance(class_weight, str) and class_weight == BALANCED:
        balanced: FloatArray = sizes.sum() / (len(classes) * sizes)
        return balanced
    factors = np.ones(len(classes))
    places = {label: place for place, label in enumerate(classes.tolist())}
    for label, factor in check_class_weight(class_weight).items():
        number = isinstance(factor, (int, float, np.integer, np.floating)) and not isinstance(factor, bool)
        if not (number and np.isfinite(factor) and factor > 0):
            raise ValueError(f"class_weight[{label!r}] = {factor!r} is not allowed: give a number in (0, inf)")
        if label in places:
            factors[places[label]] = factor
        else:
            warnings.warn(f"class label {label} specified in weight is not found", UserWarning, stacklevel=4)
    return factors


def check_class_weight(class_weight: Any) -> Any:
    """The dict, "balanced" or None that was given; TypeError or ValueError for anything else."""
    if class_weight is None or isinstance(class_weight, dict):
        return class_weight
    wrong = ValueError if isinstance(class_weight, str) else TypeError
    if wrong is ValueError and class_weight == BALANCED:
        return class_weight
    raise P.refusal("class_weight", class_weight, 'a dict of labels and factors, or "balanced"', wrong)


def places_in(classes: AnyArray, y: AnyArray) -> IntpArray:
    """Places in `classes`, in any order, of the labels y, int array of shape (m,), -1 for one that is not there."""
    places = np.searchsorted(classes, y, sorter=(order := np.argsort(classes)))
    places = order[np.minimum(places, len(order) - 1)]
    return np.where(classes[places] == y, places, -1)


def training_data(
    X: Any, y: Any, sample_weight: Any, square: bool = False, overwrite_rows: bool = False, regression: bool = False,
    spare: bool = False,
) -> tuple[HeldRows, AnyArray, FloatArray, IntpArray | None]:
    """(X as `held` has it, y, instance weights, numbers of the rows kept): checked, without the rows of weight 0.

    Numbers None: all rows are kept. In a `square` X, a Gram matrix, the columns stand for the rows too. overwrite_rows:
    X may be overwritten, as nothing else reads it any more. regression: y are targets. spare: as of `held`.
    """
    require_unmasked(X, y)
    frame = X if is_frame(X) else None
    # Rows of weight 0 are not there, whatever is in them.
    X = held(X, overwrite_rows, finite=False, spare=spare and not overwrite_rows)
    y, factors, kept = labels_and_weights(X, y, sample_weight, regression)
    m, n = shape_of(X)
    if square and n != m:
        raise ValueError(f"X has {m} rows and {n} columns: a precomputed kernel is the square matrix of "
                         "the rows' inner products")
    if kept is not None:
        X, y, factors = select_square(X, kept) if square else select_rows(X, kept), y[kept], factors[kept]
    if frame is not None and not square:
        with renumber_rows(kept):
            require_finite(frame, X)
    return X, y, factors, kept


def labels_and_weights(X: HeldRows, y: Any, sample_weight: Any,
                       regression: bool = False) -> tuple[AnyArray, FloatArray, IntpArray | None]:
    """(y, instance weights, numbers of the rows of weight > 0 or None for all) of the rows of X, checked."""
    y = targets_of(y) if regression else y if hasattr(y, "patterns") else labels_of(y)
    m = shape_of(X)[0]
    if len(y) != m:
        raise ValueError(f"X has {m} rows, y has {len(y)} {'targets' if regression else 'labels'}")
    if m == 0:
        raise ValueError("X has no rows")
    if sample_weight is None:
        return y, np.broadcast_to(1.0, m), None
    factors = row_weights(sample_weight, m)
    kept = np.flatnonzero(factors > 0)
    if len(kept) == m:
        return y, factors, None
    if not len(kept):
        raise ValueError("sample_weight is zero for all rows")
    return y, factors, kept


def require_unmasked(X: object, y: object) -> None:
    # Where numpy.ma, which takes its time to import, is not there yet, nothing is masked.
    if "numpy.ma" in sys.modules and (np.ma.isMaskedArray(X) or np.ma.isMaskedArray(y)):
        raise ValueError("X and y must not be masked arrays: the mask would be lost; fill or drop what is masked")


def row_weights(sample_weight: Any, m: int) -> FloatArray:
    """The weights of m rows as a float64 array of their own; ValueError unless they are finite and >= 0."""
    try:
        factors = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight: numbers are needed: {error}") from None
    if factors.shape != (m,):
        raise ValueError(f"sample_weight has shape {factors.shape}, X has {m} rows")
    wrong = ~(np.isfinite(factors) & (factors >= 0))
    if wrong.any():
        i = np.flatnonzero(wrong)[0]
        raise ValueError(f"sample_weight[{i}] = {factors[i]} is not allowed: give a number in [0, inf)")
    return factors


def labels_with(found: AnyArray, classes: Any) -> AnyArray:
    """`classes`, ascending; ValueError unless the labels `found` are among them."""
    labels = np.unique(labels_of(classes, "classes"))
    require_words(labels.tolist(), "classes")
    if np.any(other := ~np.isin(found, labels)):
        raise ValueError(f"classes: label {found[other].tolist()[0]!r} of y is not among them")
    return labels
