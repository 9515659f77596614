"""What test parts are measured by: the metrics of cross-validation, and what asks for more than a class or a number.

    aurc        area under the risk-coverage curve: rows in falling order of the lead of their best class, the mean of
                the parts of errors among the first 1, 2, ..., m of them, rows of equal lead being mixed
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marginlinear import params as P
from marginlinear.selection.metrics import score_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from marginlinear._typing import AnyArray, FloatArray, IntArray

OF_CONFIDENCE = ("aurc",)
NEED_SCORES = ("auc", "top3", "top5", "top10", *OF_CONFIDENCE)
# Of classes and of numbers, what a comparison measures.
KNOWN = {False: (*P.OF_CLASSES, *P.OF_PROBABILITIES, *OF_CONFIDENCE), True: P.OF_NUMBERS}
# Those of which the least is the best.
ERRORS = (*P.ERRORS, *OF_CONFIDENCE)
TITLES = {"accuracy": "accuracy", "balanced": "balanced accuracy", "f1_macro": "macro F1", "auc": "AUC",
          "top3": "top-3 accuracy", "top5": "top-5 accuracy", "top10": "top-10 accuracy", "mse": "MSE", "mae": "MAE",
          "r2": "R2", "log_loss": "log loss", "brier": "Brier score", "aurc": "risk-coverage area"}


class Predictions(NamedTuple):
    """What a method says of rows, and what they are.

    Attributes
    ----------
    y, places : arrays of shape (m,)
        Places in the classes, of the rows and as predicted; or targets and predictions.
    scores : float64 array of shape (m,) or (m, k), or None
    probabilities : float64 array of shape (m, k) or None
    """

    y: AnyArray
    places: AnyArray
    scores: FloatArray | None
    probabilities: FloatArray | None

    def at(self, rows: IntArray) -> Predictions:
        return Predictions(self.y[rows], self.places[rows], None if self.scores is None else self.scores[rows],
                           None if self.probabilities is None else self.probabilities[rows])


def metrics_of(names: Sequence[str], regression: bool) -> tuple[str, ...]:
    """The names, checked; the first of the kind where there are none."""
    known = KNOWN[regression]
    for name in names:
        if name not in known:
            raise ValueError(f"metric = {name!r} does not measure {'numbers' if regression else 'classes'}: give "
                             f"{' | '.join(known)}")
    return P.once_each(names) or known[:1]


def measure(metric: str, found: Predictions) -> float | None:
    """The metric's value; None where the method has no scores, or no probabilities, to be measured."""
    if metric in P.OF_PROBABILITIES and found.probabilities is None:
        return None
    if metric in NEED_SCORES and found.scores is None:
        return None
    if metric in OF_CONFIDENCE:
        assert found.scores is not None
        return risk_coverage(found.y != found.places, lead(found.scores))
    scores = np.zeros(len(found.y)) if found.scores is None else found.scores
    return score_of(metric, found.y, found.places, scores, found.probabilities)


def lead(scores: FloatArray) -> FloatArray:
    """How far the best score is before the second best: with one column its absolute value."""
    if scores.ndim == 1:
        return np.abs(scores)
    two = np.partition(scores, scores.shape[1] - 2, axis=1)[:, -2:]
    return two[:, 1] - two[:, 0]


def risk_coverage(wrong: AnyArray, confidence: FloatArray) -> float:
    order = np.argsort(-confidence, kind="stable")
    sorted_, errors = confidence[order], wrong[order].astype(np.float64)
    # Rows of equal confidence have the mean of their errors.
    starts = np.flatnonzero(np.concatenate(([True], sorted_[1:] != sorted_[:-1])))
    counts = np.diff(np.append(starts, len(errors)))
    errors = np.repeat(np.add.reduceat(errors, starts) / counts, counts)
    return float((np.cumsum(errors) / np.arange(1, len(errors) + 1)).mean()) if len(errors) else math.nan
