"""What cross-validation measures: functions of the labels y and the predictions of one fold's rows, both as places in
the classes, and of the rows' scores."""

import math
from functools import partial

import numpy as np


def accuracy(y, predicted, scores):
    """Part of the rows that are predicted right."""
    return float(np.mean(y == predicted))


def balanced(y, predicted, scores):
    """Mean, over the classes that y has, of the part of their rows that is predicted right."""
    return float(np.mean([np.mean(predicted[y == label] == label) for label in np.unique(y)]))


def f1_macro(y, predicted, scores):
    """Mean, over the classes of y and of the predictions, of 2 right/(rows + predictions)."""
    return float(np.mean([2 * np.count_nonzero((y == label) & (predicted == label))
                          / (np.count_nonzero(y == label) + np.count_nonzero(predicted == label))
                          for label in np.union1d(y, predicted)]))


def auc(y, predicted, scores):
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


def among_best(k, y, predicted, scores):
    """Part of the rows whose class is among the k of highest scores, ties in its favour."""
    if scores.ndim == 1 or scores.shape[1] <= k:
        return 1.0
    return float(np.mean((scores > scores[np.arange(len(y)), y][:, np.newaxis]).sum(axis=1) < k))


def _area(positive, scores):
    """(sum of the positive rows' ranks - p (p + 1)/2)/(p n), ranks of equal scores averaged."""
    place, counts = np.unique(scores, return_inverse=True, return_counts=True)[1:]
    ranks = np.cumsum(counts) - (counts - 1) / 2
    p = np.count_nonzero(positive)
    return float((ranks[place][positive].sum() - p * (p + 1) / 2) / (p * (len(scores) - p)))


METRICS = {"accuracy": accuracy, "balanced": balanced, "f1_macro": f1_macro, "auc": auc,
           **{f"top{k}": partial(among_best, k) for k in (3, 5, 10)}}
# Those that rows of one class have no value of.
PARTIAL = ("auc",)


def is_score(metric, value):
    """Whether rows can have this value of the metric; None is none."""
    if value is None:
        return metric in PARTIAL
    return type(value) in (int, float) and 0 <= value <= 1


def pooled(metric, fold_scores, sizes):
    """One score of those of the folds: over all rows for accuracy, else the mean of the folds that have a value."""
    values = np.asarray(fold_scores, dtype=np.float64)
    if metric == "accuracy":
        return sum(round(float(v) * int(n)) for v, n in zip(values, sizes, strict=True)) / int(sum(sizes))
    if np.isnan(values).all():
        raise ValueError(f"{metric}: no fold has rows of two classes: give fewer folds, or another metric")
    return float(np.nanmean(values))
