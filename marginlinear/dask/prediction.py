"""Predictions, scores and probabilities of rows on a cluster: lazy, in partitions as the rows have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dask.base import is_dask_collection
from dask.delayed import delayed

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._typing import AnyArray
    from marginlinear.model import Model


def predict(model: Model, X: Any) -> Any:
    """Labels, or a regression's predictions, of the rows of X.

    Parameters
    ----------
    model : Model
    X : dask Array or DataFrame
        One chunk of columns.

    Returns
    -------
    dask Array of shape (m,), or, for a DataFrame, a dask Series with its index
    """
    dtype = np.dtype(np.float64) if model.classes is None else model.classes.dtype
    return mapped(X, labels_of_block, model, dtype, None)


def decision_function(model: Model, X: Any) -> Any:
    """Scores of the rows of X, as `Model.decision_function` has them.

    Parameters are those of `predict`.

    Returns
    -------
    dask Array of float64, of shape (m,) or (m, columns)
    """
    columns = None if model.columns == 1 and not model.joint else model.columns
    return mapped(X, scores_of_block, model, np.dtype(np.float64), columns)


def predict_proba(model: Model, X: Any) -> Any:
    """Probabilities of the classes, as `Model.predict_proba` has them.

    Parameters are those of `predict`.

    Returns
    -------
    dask Array of float64, of shape (m, n_classes)

    Raises
    ------
    ValueError
        The model has no calibration.
    """
    model._require_calibration()
    return mapped(X, probabilities_of_block, model, np.dtype(np.float64), len(model.classes))


def labels_of_block(block: Any, model: Model) -> AnyArray:
    return model.predict(numbers_of(block), threads=1)


def scores_of_block(block: Any, model: Model) -> AnyArray:
    return model.decision_function(numbers_of(block), threads=1)


def probabilities_of_block(block: Any, model: Model) -> AnyArray:
    return model.predict_proba(numbers_of(block), threads=1)


def numbers_of(block: Any) -> Any:
    return block.to_numpy() if hasattr(block, "to_numpy") else block


def mapped(X: Any, function: Callable[[Any, Any], Any], model: Model, dtype: np.dtype[Any], columns: int | None) -> Any:
    """function(block, model) of all blocks of rows."""
    if not is_dask_collection(X) or not hasattr(X, "to_delayed"):
        raise TypeError(f"X is {type(X).__name__}: give a dask Array or DataFrame; a model predicts other rows itself")
    if model.multilabel:
        raise ValueError("the model is multi-label, its predictions are a table: give it the rows of each part itself")
    shared = delayed(model)
    if hasattr(X, "columns"):
        model.require_columns(list(X.columns))
    if hasattr(X, "map_partitions"):
        if columns is None and function is labels_of_block:
            return X.map_partitions(series_of_block, model, meta=(None, dtype))
        X = X.to_dask_array(lengths=True)
    if X.ndim != 2 or X.numblocks[1] > 1:
        raise ValueError(f"X has {X.numblocks[1:]} chunks of columns: rechunk it to one, as by X.rechunk({{1: -1}})")
    from dask.array import concatenate, from_delayed

    blocks = X.to_delayed()[:, 0]
    return concatenate([
        from_delayed(delayed(function)(block, shared), (m,) if columns is None else (m, columns), dtype=dtype)
        for block, m in zip(blocks, X.chunks[0], strict=True)])


def series_of_block(block: Any, model: Model) -> Any:
    import pandas

    return pandas.Series(labels_of_block(block, model), index=block.index)
