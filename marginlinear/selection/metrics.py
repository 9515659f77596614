"""What cross-validation measures: functions of the labels y and the predictions of one fold's rows, both as places in
the classes, and of the rows' scores; of regression of the targets and the predictions; of rows with several labels of
bool arrays of shape (m, n_labels) and the scores of that shape."""

from __future__ import annotations

import math
import sys
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from marginlinear.params import ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from marginlinear._typing import AnyArray, BoolArray, FloatArray, IntArray


def accuracy(y: AnyArray, predicted: AnyArray, scores: object) -> float:
    """Part of the rows that are predicted right."""
    return float(np.mean(y == predicted))


def balanced(y: AnyArray, predicted: AnyArray, scores: object) -> float:
    """Mean, over the classes that y has, of the part of their rows that is predicted right."""
    return float(np.mean([np.mean(predicted[y == label] == label) for label in np.unique(y)]))


def f1_macro(y: AnyArray, predicted: AnyArray, scores: object) -> float:
    """Mean, over the classes of y and of the predictions, of 2 right/(rows + predictions)."""
    return float(np.mean([2 * np.count_nonzero((y == label) & (predicted == label))
                          / (np.count_nonzero(y == label) + np.count_nonzero(predicted == label))
                          for label in np.union1d(y, predicted)]))


def auc(y: AnyArray, predicted: AnyArray, scores: FloatArray) -> float:
    """Area under the ROC curve: the part of the pairs of a positive and a negative row that stand in order by their
    scores, ties as half. With several columns the mean over the classes, each against the rest; NaN for one class."""
    labels = np.unique(y)
    if len(labels) < 2:
        return math.nan
    if scores.ndim == 1:
        return _area(y == 1, scores)
    if scores.shape[1] == 2:
        with np.errstate(invalid="ignore"):
            return _area(y == 1, scores[:, 1] - scores[:, 0])
    return float(np.mean([_area(y == label, scores[:, label]) for label in labels]))


def among_best(k: int, y: AnyArray, predicted: AnyArray, scores: FloatArray) -> float:
    """Part of the rows whose class is among the k of highest scores, ties in its favour."""
    if scores.ndim == 1 or scores.shape[1] <= k:
        return 1.0
    return float(np.mean((scores > scores[np.arange(len(y)), y][:, np.newaxis]).sum(axis=1) < k))


def _area(positive: BoolArray, scores: FloatArray) -> float:
    """(sum of the positive rows' ranks - p (p + 1)/2)/(p n), ranks of equal scores averaged."""
    place, counts = np.unique(scores, return_inverse=True, return_counts=True)[1:]
    ranks = np.cumsum(counts) - (counts - 1) / 2
    p = np.count_nonzero(positive)
    return float((ranks[place][positive].sum() - p * (p + 1) / 2) / (p * (len(scores) - p)))


def mse(y: AnyArray, predicted: AnyArray, scores: object = None) -> float:
    """Mean squared error."""
    return float(np.mean((y - predicted) ** 2))


def mae(y: AnyArray, predicted: AnyArray, scores: object) -> float:
    """Mean absolute error."""
    return float(np.mean(np.abs(y - predicted)))


def r2(y: AnyArray, predicted: AnyArray, scores: object) -> float:
    """1 less the squared errors over those of the mean of y; NaN where y does not vary."""
    varies = float(np.sum((y - y.mean()) ** 2))
    return 1 - float(np.sum((y - predicted) ** 2)) / varies if varies > 0 else math.nan


class Agreement:
    """How targets and predictions agree, of which some come at a time.

    Attributes
    ----------
    mse : float
        Mean squared error.
    squared_correlation : float
        NaN where targets or predictions do not vary.
    """

    def __init__(self) -> None:
        self.n, self.mse, self.means, self.products = 0, 0.0, np.zeros(2), np.zeros((2, 2))

    def add(self, y: AnyArray, predicted: AnyArray) -> Agreement:
        n, both = len(y), np.array([y, predicted], dtype=np.float64)
        means = both.mean(axis=1)
        apart, shift, both = mse(both[0], both[1], None), means - self.means, both - means[:, None]
        self.products += both @ both.T + np.outer(shift, shift) * (self.n * n / (self.n + n))
        self.n += n
        self.means += shift * (n / self.n)
        self.mse += (apart - self.mse) * (n / self.n)
        return self

    @property
    def squared_correlation(self) -> float:
        below = float(self.products[0, 0] * self.products[1, 1])
        return float(self.products[0, 1]) ** 2 / below if below > 0 else math.nan


class LabelAgreement:
    """How the labels of rows that may have several agree with the predicted ones: some rows come at a time.

    With t_l rows that have label l, p_l that are given it, and r_l both:

    Attributes
    ----------
    micro_f1 : float
        2 sum_l r_l / sum_l (t_l + p_l); NaN where there are no labels.
    macro_f1 : float
        The mean of 2 r_l / (t_l + p_l) over the labels that a row has or is given; NaN where there are none.
    lrap : float
        Label ranking average precision, the mean over the rows of that over a row's labels l of

            (its labels with a score of at least that of l) / (all labels with such a score)

        which is 1 of a row without labels.
    accuracy : float
        Part of the rows whose labels are all right, and no other.
    """

    def __init__(self) -> None:
        self.n = self.exact = self.missed = 0
        # By label.
        self.right: Any = 0
        self.counts: Any = 0
        self.ranking = 0.0

    def add(self, y: BoolArray, predicted: BoolArray, scores: FloatArray,
            unknown: IntArray | int = 0) -> LabelAgreement:
        """`unknown`, an int array of shape (m,): labels that the rows have beside, and that cannot be predicted."""
        self.n += len(y)
        self.exact += int(np.count_nonzero((y == predicted).all(axis=1) & (np.asarray(unknown) == 0)))
        self.right = self.right + np.count_nonzero(y & predicted, axis=0)
        self.counts = self.counts + np.count_nonzero(y, axis=0) + np.count_nonzero(predicted, axis=0)
        self.missed += int(np.sum(unknown))
        self.ranking += float(ranking_precision(y, scores).sum())
        return self

    @property
    def micro_f1(self) -> float:
        below = int(np.sum(self.counts)) + self.missed
        return 2 * int(np.sum(self.right)) / below if below else math.nan

    @property
    def macro_f1(self) -> float:
        some = self.counts > 0
        return float(np.mean(2 * self.right[some] / self.counts[some])) if some.any() else math.nan

    @property
    def lrap(self) -> float:
        return self.ranking / self.n

    @property
    def accuracy(self) -> float:
        return self.exact / self.n


def ranking_precision(y: BoolArray, scores: FloatArray) -> FloatArray:
    """Of each row its part of `LabelAgreement.lrap`, float64 array of shape (m,)."""
    order = np.argsort(-scores, axis=1, kind="stable")
    falling, own = np.take_along_axis(scores, order, axis=1), np.take_along_axis(y, order, axis=1)
    # Of equal scores the last place counts for all.
    k = scores.shape[1]
    ends = np.where(np.diff(falling, axis=1, append=np.nan) == 0, k, np.arange(k))
    ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    among = np.take_along_axis(np.cumsum(own, axis=1), ends, axis=1) / (ends + 1)
    count = own.sum(axis=1)
    return np.where(count, (among * own).sum(axis=1) / np.maximum(count, 1), 1.0)


def score_of(metric: str, y: AnyArray, predicted: AnyArray, scores: FloatArray) -> float:
    """The value of the metric of this name."""
    if y.ndim == 2:
        found: float = getattr(LabelAgreement().add(y, predicted, scores), metric)
        return found
    return METRICS[metric](y, predicted, scores)


METRICS: dict[str, Callable[[AnyArray, AnyArray, FloatArray], float]] = {
    "accuracy": accuracy, "balanced": balanced, "f1_macro": f1_macro, "auc": auc,
    **{f"top{k}": partial(among_best, k) for k in (3, 5, 10)}, "mse": mse, "mae": mae, "r2": r2}
LARGEST = sys.float_info.max
# Those that rows of one class, of one target, or without labels, have no value of.
PARTIAL = ("auc", "r2", "micro_f1", "macro_f1")


def is_score(metric: str, value: Any) -> bool:
    """Whether rows can have this value of the metric; None is none."""
    if value is None:
        return metric in PARTIAL
    low, high = (0, LARGEST) if metric in ERRORS else (-LARGEST if metric == "r2" else 0, 1)
    return type(value) in (int, float) and low <= value <= high


def pooled(metric: str, fold_scores: FloatArray | Sequence[float], sizes: IntArray) -> float:
    """One score of those of the folds: over all rows for accuracy and errors, else the mean of the folds that have a
    value."""
    values = np.asarray(fold_scores, dtype=np.float64)
    if metric == "accuracy":
        return sum(round(float(v) * int(n)) for v, n in zip(values, sizes, strict=True)) / int(sum(sizes))
    if metric in ERRORS:
        return float(values @ sizes / np.sum(sizes))
    if np.isnan(values).all():
        what = {"r2": "two targets", "auc": "two classes"}.get(metric, "any label")
        raise ValueError(f"{metric}: no fold has rows of {what}: give fewer folds, or another metric")
    return float(np.nanmean(values))
