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
    from marginlinear.model import Model


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


def auc(y: AnyArray, predicted: object, scores: FloatArray, weights: FloatArray | None = None) -> float:
    """Area under the ROC curve: the part of the pairs of a positive and a negative row that stand in order by their
    scores, ties as half. With several columns the mean over the classes, each against the rest; NaN for one class."""
    labels = np.unique(y)
    if len(labels) < 2:
        return math.nan
    if scores.ndim == 1:
        return _area(y == 1, scores, weights)
    if scores.shape[1] == 2:
        with np.errstate(invalid="ignore"):
            return _area(y == 1, scores[:, 1] - scores[:, 0], weights)
    return float(np.mean([_area(y == label, scores[:, label], weights) for label in labels]))


def among_best(k: int, y: AnyArray, predicted: AnyArray, scores: FloatArray) -> float:
    """Part of the rows whose class is among the k of highest scores, ties in its favour."""
    if scores.ndim == 1 or scores.shape[1] <= k:
        return 1.0
    return float(np.mean((scores > scores[np.arange(len(y)), y][:, np.newaxis]).sum(axis=1) < k))


def _area(positive: BoolArray, scores: FloatArray, weights: FloatArray | None) -> float:
    """sum over the distinct scores s of p_s (n_{<s} + n_s/2), over p n: weights of positive and of negative rows."""
    place = np.unique(scores, return_inverse=True)[1]
    weights = np.ones(len(scores)) if weights is None else weights
    p, n = (np.bincount(place, weights * side) for side in (positive, ~positive))
    return float(p @ (np.cumsum(n) - n / 2) / (p.sum() * n.sum()))


def log_loss(y: AnyArray, probabilities: FloatArray) -> float:
    """Mean of -log of the probability of a row's class, none being below LEAST."""
    return float(_losses(y, probabilities)[0].mean())


def brier(y: AnyArray, probabilities: FloatArray) -> float:
    """Mean over the rows of sum_l (p_l - [l is the row's class])^2."""
    return float(_losses(y, probabilities)[1].mean())


def _losses(y: AnyArray, probabilities: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Those two of each row: sum_l (p_l - [l = y])^2 = sum_l p_l^2 - p_y^2 + (1 - p_y)^2."""
    own = probabilities[np.arange(len(y)), y]
    apart = probabilities.copy()
    apart[np.arange(len(y)), y] -= 1
    return -np.log(np.maximum(own, LEAST)), (apart**2).sum(axis=1)


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


class Counts:
    """What follows from how many rows are of each class, are predicted to be, and both: arrays of shape (k,)."""

    support: Any
    claims: Any
    hits: Any

    @property
    def precision(self) -> FloatArray:
        """Of each class, NaN for one that is never predicted."""
        return _ratio(self.hits, self.claims)

    @property
    def recall(self) -> FloatArray:
        """Of each class, NaN for one without rows."""
        return _ratio(self.hits, self.support)

    @property
    def f1(self) -> FloatArray:
        """Of each class, NaN for one without rows that is never predicted."""
        return _ratio(2 * self.hits, self.claims + self.support)


def _ratio(above: AnyArray, below: AnyArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        found: FloatArray = np.divide(above, below)
    return found


class ClassAgreement(Counts):
    """How classes and predictions agree, of rows of which some come at a time; all counts are sums of their weights.

    Parameters
    ----------
    k : int
        Classes.
    keep_scores : bool
        Keep the scores that rows come with, which the area under the ROC curve is made of: the rest takes memory for
        the classes, and the kinds of errors, alone.

    Attributes
    ----------
    n, missed : number
        All rows, and those of a class that is none of the k.
    support, claims, hits : arrays of shape (k,)
        Rows of each class, rows that are predicted to be of it, and rows of which both is true. Integers without
        weights, else float64.
    """

    def __init__(self, k: int, keep_scores: bool = False) -> None:
        self.k, self.keep_scores = k, keep_scores
        self.n: Any = 0
        self.missed: Any = 0
        self.support, self.claims, self.hits = (np.zeros(k, dtype=np.int64) for _ in range(3))
        # The entries of the confusion matrix that are not 0: places y k + predicted, ascending, and counts.
        self._codes, self._counts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        self._kept: list[tuple[IntArray, FloatArray, FloatArray | None]] = []
        self._losses, self._judged = np.zeros(2), 0.0

    def add(self, y: IntArray, predicted: IntArray, *, weights: FloatArray | None = None,
            scores: FloatArray | None = None, probabilities: FloatArray | None = None) -> ClassAgreement:
        """Take rows into account.

        Parameters
        ----------
        y : int array of shape (m,)
            Places in the classes, -1 for one that is none of them: such a row is predicted wrong, and has no part in
            the area, the log loss and the Brier score.
        predicted : int array of shape (m,)
        weights : float64 array of shape (m,), optional
            Of all rows, or of none.
        scores : float64 array of shape (m,) or (m, k), optional
        probabilities : float64 array of shape (m, k), optional
        """
        known = y >= 0
        places, found = y[known], predicted[known]
        own = None if weights is None else weights[known]

        def counts(of: IntArray, by: FloatArray | None) -> AnyArray:
            return np.bincount(of, by, minlength=self.k)

        self.support = self.support + counts(places, own)
        self.claims = self.claims + counts(predicted, weights)
        right = places == found
        self.hits = self.hits + counts(places[right], None if own is None else own[right])
        self.n += len(y) if weights is None else float(weights.sum())
        self.missed += int(np.count_nonzero(~known)) if weights is None else float(weights[~known].sum())
        codes, place = np.unique(np.concatenate((self._codes, places * self.k + found)), return_inverse=True)
        ones = np.ones(len(places), dtype=np.int64) if own is None else own
        heaped = np.zeros(len(codes), dtype=np.result_type(self._counts, ones))
        np.add.at(heaped, place, np.concatenate((self._counts, ones)))
        self._codes, self._counts = codes, heaped
        if scores is not None and self.keep_scores:
            self._kept.append((places, scores[known], own))
        if probabilities is not None:
            losses = _losses(places, probabilities[known])
            self._losses += [float(each.sum() if own is None else each @ own) for each in losses]
            self._judged += len(places) if own is None else float(own.sum())
        return self

    def add_scored(self, model: Model, scores: FloatArray, y: IntArray, predicted: IntArray,
                   weights: FloatArray | None = None) -> ClassAgreement:
        """`add` for the scores of a model, as its `decide` returns them, and what follows from them."""
        return self.add(y, predicted, weights=weights, scores=model._ranks(scores) if self.keep_scores else None,
                        probabilities=None if model.calibration is None else model.proba_of(scores))

    @property
    def accuracy(self) -> float:
        return float(self.hits.sum() / self.n)

    @property
    def confused(self) -> list[tuple[int, int, Any]]:
        """(place, predicted place, rows) of the entries of the confusion matrix that are not 0."""
        return [(code // self.k, code % self.k, count)
                for code, count in zip(self._codes.tolist(), self._counts.tolist(), strict=True)]

    @property
    def auc(self) -> float:
        """As the metric; NaN where there is none, or scores were not kept."""
        if not self._kept:
            return math.nan
        places, scores, weights = zip(*self._kept, strict=True)
        return auc(np.concatenate(places), None, np.concatenate(scores),
                   None if weights[0] is None else np.concatenate(weights))

    @property
    def log_loss(self) -> float:
        """As the metric; NaN without probabilities."""
        return float(self._losses[0] / self._judged) if self._judged else math.nan

    @property
    def brier(self) -> float:
        """As the metric; NaN without probabilities."""
        return float(self._losses[1] / self._judged) if self._judged else math.nan


def mean_of(values: FloatArray) -> float:
    """The mean of those that are not NaN; NaN of none."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else math.nan


class Agreement:
    """How targets and predictions agree, of which some come at a time.

    Attributes
    ----------
    mse, mae : float
        Mean squared, and mean absolute, error.
    r2 : float
        1 less the squared errors over those of the mean target; NaN where targets do not vary.
    squared_correlation : float
        NaN where targets or predictions do not vary.
    """

    def __init__(self) -> None:
        self.n, self.mse, self.mae = 0, 0.0, 0.0
        self.means, self.products = np.zeros(2), np.zeros((2, 2))

    def add(self, y: AnyArray, predicted: AnyArray) -> Agreement:
        n, both = len(y), np.array([y, predicted], dtype=np.float64)
        means = both.mean(axis=1)
        apart, shift, both = mse(both[0], both[1], None), means - self.means, both - means[:, None]
        self.products += both @ both.T + np.outer(shift, shift) * (self.n * n / (self.n + n))
        self.n += n
        self.means += shift * (n / self.n)
        self.mse += (apart - self.mse) * (n / self.n)
        self.mae += (mae(y, predicted, None) - self.mae) * (n / self.n)
        return self

    @property
    def r2(self) -> float:
        varies = float(self.products[0, 0])
        return 1 - self.n * self.mse / varies if varies > 0 else math.nan

    @property
    def squared_correlation(self) -> float:
        below = float(self.products[0, 0] * self.products[1, 1])
        return float(self.products[0, 1]) ** 2 / below if below > 0 else math.nan


class LabelAgreement(Counts):
    """How the labels of rows that may have several agree with the predicted ones: some rows come at a time.

    With t_l rows that have label l, p_l that are given it, and r_l both:

    Attributes
    ----------
    micro_f1 : float
        2 sum_l r_l / sum_l (t_l + p_l); NaN where there are no labels.
    macro_f1 : float
        The mean of 2 r_l / (t_l + p_l) over the labels that a row has or is given; NaN where there are none.
    support, claims, hits : arrays of shape (n_labels,)
        The t_l, p_l and r_l.
    lrap : float
        Label ranking average precision, the mean over the rows of that over a row's labels l of

            (its labels with a score of at least that of l) / (all labels with such a score)

        which is 1 of a row without labels.
    accuracy : float
        Part of the rows whose labels are all right, and no other.
    """

    def __init__(self) -> None:
        self.n = self.exact = self.missed = 0
        self.support = self.claims = self.hits = 0
        self.ranking = 0.0

    def add(self, y: BoolArray, predicted: BoolArray, scores: FloatArray,
            unknown: IntArray | int = 0) -> LabelAgreement:
        """`unknown`, an int array of shape (m,): labels that the rows have beside, and that cannot be predicted."""
        self.n += len(y)
        self.exact += int(np.count_nonzero((y == predicted).all(axis=1) & (np.asarray(unknown) == 0)))
        self.support = self.support + np.count_nonzero(y, axis=0)
        self.claims = self.claims + np.count_nonzero(predicted, axis=0)
        self.hits = self.hits + np.count_nonzero(y & predicted, axis=0)
        self.missed += int(np.sum(unknown))
        self.ranking += float(ranking_precision(y, scores).sum())
        return self

    @property
    def micro_f1(self) -> float:
        below = int(np.sum(self.support + self.claims)) + self.missed
        return 2 * int(np.sum(self.hits)) / below if below else math.nan

    @property
    def macro_f1(self) -> float:
        return mean_of(self.f1)

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


def score_of(metric: str, y: AnyArray, predicted: AnyArray, scores: FloatArray,
             probabilities: FloatArray | None = None) -> float:
    """The value of the metric of this name."""
    if metric in PROBABILISTIC:
        assert probabilities is not None
        return PROBABILISTIC[metric](y, probabilities)
    if y.ndim == 2:
        found: float = getattr(LabelAgreement().add(y, predicted, scores), metric)
        return found
    return METRICS[metric](y, predicted, scores)


METRICS: dict[str, Callable[[AnyArray, AnyArray, FloatArray], float]] = {
    "accuracy": accuracy, "balanced": balanced, "f1_macro": f1_macro, "auc": auc,
    **{f"top{k}": partial(among_best, k) for k in (3, 5, 10)}, "mse": mse, "mae": mae, "r2": r2}
PROBABILISTIC = {"log_loss": log_loss, "brier": brier}
LARGEST = sys.float_info.max
# Probabilities that are smaller count as this.
LEAST = 1e-15
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
