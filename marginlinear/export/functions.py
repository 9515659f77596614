"""What the formats share: a model's scores as a function of the features, its labels by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear.data.arrays import CSR
from marginlinear.data.labels import require_words
from marginlinear.params import refusal

if TYPE_CHECKING:
    from marginlinear._typing import AnyArray, FloatArray
    from marginlinear.model import KernelModel, Model

# NumPy's kinds of labels, and the type that all of a kind fit into.
LABELS = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64, "U": np.str_}


class LinearFunction(NamedTuple):
    """Scores weights.T @ x + intercept of a row x, or of x/||x|| where `unit` is True.

    Attributes
    ----------
    weights : float64 array of shape (n_features, columns)
    intercept : float64 array of shape (columns,)
    unit : bool
    """

    weights: FloatArray
    intercept: FloatArray
    unit: bool


def checked_model(model: Any) -> Any:
    """The model; TypeError for anything else, ValueError for one that is multi-label, and for numbers that are
    not finite."""
    if not hasattr(model, "weights") or not hasattr(model, "classes"):
        raise refusal("model", model, "a Model, as train returns it; of an estimator its model_")
    if model.multilabel:
        raise ValueError("the model is not exported: it is multi-label, a row may have several of its labels: train a "
                         "model of two classes for each label, and export these")
    if not (np.isfinite(model.weights).all() and np.isfinite(model.intercept).all()):
        raise ValueError("the model is not exported: it holds a weight that is not finite")
    return model


def as_linear(model: Any) -> LinearFunction | None:
    """The LinearFunction of a linear model, or of one with a linear kernel; None for other kernels."""
    kernel = getattr(model, "kernel", None)
    if kernel is not None and kernel.kind != "linear":
        return None
    weights = model.coef.T if kernel is None else support_of(model).T @ model.dual_coef
    intercept, scaling = model.intercept, model.scaling
    if scaling is not None and scaling.linear:
        folded, _ = scaling.folded(np.vstack([weights, intercept]), 1.0)
        weights, intercept = folded[:-1], folded[-1]
    return LinearFunction(weights, intercept, scaling is not None and not scaling.linear)


def require_linear(model: Any, name: str) -> LinearFunction:
    """`as_linear`; ValueError for a model that is not linear: `name` is the function that was called."""
    found = as_linear(checked_model(model))
    if found is None:
        kind = "a function" if callable(model.kernel.kind) else repr(model.kernel.kind)
        raise ValueError(f"{name} takes linear models, kernel is {kind}: give a model without a kernel, or take "
                         "to_onnx")
    return found


def support_of(model: KernelModel) -> FloatArray:
    """The support vectors of a kernel model with features, float64 array of shape (n_support, n_features)."""
    rows = model.support_rows
    rows = rows.to_scipy().toarray() if isinstance(rows, CSR) else rows
    found = np.zeros((model.n_support, model.n_features))
    found[:, : rows.shape[1]] = rows
    return found


def labels_of_kind(model: Model) -> AnyArray:
    """The classes as an array of bool, int64, float64 or str; ValueError for a label that no text holds."""
    kind = model.classes.dtype.kind
    if kind not in LABELS:
        raise TypeError(f"the model is not exported: its labels are {model.classes.dtype}, not bools, numbers or text")
    if kind == "f" and not np.isfinite(model.classes).all():
        raise ValueError("the model is not exported: it has a label that is not finite")
    require_words(model.classes.tolist(), "the model is not exported")
    return model.classes if kind == "U" else model.classes.astype(LABELS[kind])
