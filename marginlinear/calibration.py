"""Probabilities of the classes from scores.

    sigmoid      P(classes[1] | f) = 1/(1 + exp(-(slope f + offset)))       two classes (Platt 1999)
    temperature  P(class l | s) = exp(slope s_l) / sum_j exp(slope s_j)     more classes; the temperature is 1/slope
    logistic     P(class l | s) = r_l / sum_j r_j,  r_l = 1/(1 + exp(-s_l))  LIBLINEAR's, for its logistic regression
    pairwise     a sigmoid for each pair of classes, coupled (see `coupled`)   LIBSVM's, for svm-train -b 1

f is the score of one column, or the difference of two; s are what is compared between the classes, scores or votes.

`fit` maximises the likelihood of scores of rows that the model was not trained on. In place of 1 and 0 the targets are

    (n + 1)/(n + 2) for the class y of the row,    an equal part of the rest for each of the others

so that the optimum is finite, for separable scores too. For two classes n is the number of rows of y: Platt's targets.
One temperature is fitted to all rows: n is the number of all, as with that of a class many small ones blur the
probabilities (on sector, 105 classes of 61 rows, a log loss of 0.30 in place of 0.28). The slope is never negative.

The class of the largest probability is always the predicted one, which neither Platt's offset nor coupling gives by
itself. Where they say otherwise, and where rounding makes a tie, the probabilities are the nearest ones that agree:
see `_decided`.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from marginlinear._typing import BoolArray, FloatArray, IntArray
    from marginlinear.registry import Method

SIGMOID, TEMPERATURE, LOGISTIC, PAIRWISE = "sigmoid", "temperature", "logistic", "pairwise"
FOLDS = 5
# Newton steps and halvings that no fit comes near: each one makes its objective smaller.
STEPS = 200
# LIBSVM keeps the probabilities of pairs so far from 0 and 1.
LEAST = 1e-7
# Numbers of the linear systems of `coupled` that are held at a time.
BLOCK = 1 << 21


class Calibration(NamedTuple):
    """How scores become probabilities; see the module's text for the formulas.

    Attributes
    ----------
    kind : {"sigmoid", "temperature", "logistic", "pairwise"}
        The first for two classes, and for each label of rows that have several; the next two for more.
    slope : float, or tuple of float
        Not negative; 1 for logistic. Pairwise: one for each of the k (k - 1)/2 pairs, of either sign. Of several labels
        a row: one for each label.
    offset : float, or tuple of float
        0 unless sigmoid; one for each of the pairs, or labels.
    """

    kind: str
    slope: float | tuple[float, ...] = 1.0
    offset: float | tuple[float, ...] = 0.0

    def check(self, n_classes: int, multilabel: bool = False) -> Calibration:
        """The same; ValueError where a value is outside its domain, or the kind is not one for so many classes."""
        kinds = (SIGMOID,) if multilabel else (
            SIGMOID, PAIRWISE) if n_classes == 2 else (TEMPERATURE, LOGISTIC, PAIRWISE)
        if self.kind not in kinds:
            raise ValueError(f"kind is {self.kind!r}: for {n_classes} classes it is {' or '.join(kinds)}")
        shape = (n_classes,) if multilabel else (n_classes * (n_classes - 1) // 2,) if self.kind == PAIRWISE else ()
        for name in ("slope", "offset"):
            values = np.asarray(getattr(self, name))
            if values.shape != shape:
                raise ValueError(f"{name} has shape {values.shape}: {shape} is needed")
            if not np.isfinite(values).all():
                raise ValueError(f"{name} is {getattr(self, name)}: finite numbers are needed")
        if self.kind == PAIRWISE:
            return self
        if np.min(self.slope, initial=0) < 0 or (self.kind == LOGISTIC and self.slope != 1):
            raise ValueError(f"slope is {self.slope}: " + ("1" if self.kind == LOGISTIC else "a number in [0, inf)")
                             + " is needed")
        if self.kind != SIGMOID and self.offset != 0:
            raise ValueError(f"offset is {self.offset}: 0 is needed")
        return self

    def probabilities(self, ranks: FloatArray, places: IntArray) -> FloatArray:
        """float64 array of shape (m, k).

        Parameters
        ----------
        ranks : float64 array of shape (m,) or (m, k)
            Scores of one column, or what is compared between the classes. Pairwise: scores of shape (m,) for two
            classes, positive for classes[1], and (m, k (k - 1)/2) for more, positive for the first of each pair i < j.
        places : int array of shape (m,)
            The predicted classes, 0..k-1.
        """
        with np.errstate(over="ignore", under="ignore"):
            if self.kind == PAIRWISE:
                return _decided(self._coupled(ranks), places)
            if self.kind == SIGMOID:
                t = _times(self.slope, difference(ranks)) + self.offset
                logs = np.column_stack([np.minimum(-t, 0), np.minimum(t, 0)])
            elif self.kind == TEMPERATURE:
                logs = _times(self.slope, ranks - ranks.max(axis=1, keepdims=True))
            else:
                logs = np.minimum(ranks, 0) - np.log1p(np.exp(-np.abs(ranks)))
            found = np.exp(logs - logs.max(axis=1, keepdims=True))
        found /= found.sum(axis=1, keepdims=True)
        return _decided(found, places)

    def of_each(self, scores: FloatArray) -> FloatArray:
        """Probabilities of labels of which a row may have several, each with a sigmoid of its own: shape (m, k).

        Above 1/2 where the score is above 0, and the label predicted.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            t = np.where(np.asarray(self.slope) > 0, scores * self.slope, 0.0) + self.offset
            return np.where(scores > 0, np.maximum(_sigmoid(t), np.nextafter(0.5, 1.0)), np.minimum(_sigmoid(t), 0.5))

    def _coupled(self, scores: FloatArray) -> FloatArray:
        columns = scores[:, np.newaxis] if scores.ndim == 1 else scores
        r = np.clip(_sigmoid(columns * self.slope + self.offset), LEAST, 1 - LEAST)
        return np.hstack([1 - r, r]) if r.shape[1] == 1 else coupled(r)


# What the scores of logistic regression are, by the number of classes: no fit is needed.
def of_logistic(n_classes: int) -> Calibration:
    """Of LIBLINEAR's logistic regression, one class against the rest."""
    return Calibration(SIGMOID if n_classes == 2 else LOGISTIC)


def of_softmax(n_classes: int) -> Calibration:
    """Of multinomial logistic regression."""
    return Calibration(SIGMOID if n_classes == 2 else TEMPERATURE)


def of_scores(method: Method, values: Mapping[str, Any], n_fitted: int, n_classes: int) -> Calibration | None:
    """That of a method whose scores are probabilities as they are, by its `values` for n_fitted of n_classes classes;
    None where a calibration is a fit of its own."""
    if method.probabilities is None or not (method.joint or n_fitted == 2 or values["multiclass"] == "ovr"):
        return None
    return (of_softmax if method.probabilities == "softmax" else of_logistic)(n_classes)


def of_labels(method: Method, n_labels: int) -> Calibration | None:
    """That of each label of rows that have several; None where a calibration is a fit of its own."""
    return Calibration(SIGMOID, (1.0,) * n_labels, (0.0,) * n_labels) if method.probabilities == "logistic" else None


def fit(ranks: FloatArray, y: IntArray, weights: FloatArray, n_classes: int) -> Calibration:
    """The Calibration that is most likely for rows that the scores' model has not seen.

    Parameters
    ----------
    ranks : float64 array of shape (m,) or (m, k)
    y : int array of shape (m,)
        Classes, 0..k-1.
    weights : float64 array of shape (m,)
        Positive weights of the rows; 2 is a row given twice.
    n_classes : int
        k.
    """
    if n_classes == 2:
        return Calibration(SIGMOID, *fit_sigmoid(difference(ranks), y == 1, weights))
    return Calibration(TEMPERATURE, fit_temperature(ranks, y, weights))


def fit_labels(scores: FloatArray, indicator: BoolArray, weights: FloatArray) -> Calibration:
    """A sigmoid for each label, of scores and a bool array, both of shape (m, n_labels)."""
    found = [fit_sigmoid(f, positive, weights) for f, positive in zip(scores.T, indicator.T, strict=True)]
    return Calibration(SIGMOID, *zip(*found, strict=True))


def difference(ranks: FloatArray) -> FloatArray:
    """The score of classes[1] against classes[0]."""
    return ranks if ranks.ndim == 1 else ranks[:, 1] - ranks[:, 0]


def fit_sigmoid(f: FloatArray, positive: BoolArray, weights: FloatArray) -> tuple[float, float]:
    """(slope, offset) of Platt's sigmoid by damped Newton steps, as in Lin, Lin and Weng, Machine Learning 2007.

    The objective, sum_i weights_i (log(1 + exp(t_i)) - target_i t_i) with t_i = a z_i + b, is convex and grows in all
    directions, so that a step that is halved often enough makes it smaller until rounding hides it.
    """
    negatives, positives = np.bincount(positive, weights, 2)
    targets = np.where(positive, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    scale = np.abs(f).max() or 1.0
    z = f / scale

    def value_at(ab: FloatArray) -> float:
        t = ab[0] * z + ab[1]
        value: float = weights @ (np.maximum(t, 0) + np.log1p(np.exp(-np.abs(t))) - targets * t)
        return value

    prior = np.log(weights @ targets / (weights @ (1 - targets)))
    ab = np.array([0.0, prior])
    value = value_at(ab)
    for _ in range(STEPS):
        p = _sigmoid(ab[0] * z + ab[1])
        excess, curvature = weights * (p - targets), weights * p * (1 - p)
        gradient = np.array([excess @ z, excess.sum()])
        mixed = curvature @ z
        hessian = np.array([[curvature @ (z * z), mixed], [mixed, curvature.sum()]])
        # Scores that are all equal leave one direction without curvature.
        hessian += 1e-12 * np.trace(hessian) * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while size > 1e-10:
            there = value_at(ab - size * step)
            if there < value - 1e-4 * size * (gradient @ step):
                break
            size /= 2
        else:
            break
        ab, value = ab - size * step, there
    if ab[0] <= 0:
        # The slope's bound holds it at 0: without scores the best is the mean of the targets.
        return 0.0, float(prior)
    return min(float(ab[0] / scale), sys.float_info.max), float(ab[1])


def fit_temperature(scores: FloatArray, y: IntArray, weights: FloatArray) -> float:
    """1/T of temperature scaling (Guo et al., ICML 2017) by Newton steps inside a bracket.

    The derivative of the negative log-likelihood by it is sum_i weights_i sum_l (p_il - target_il) s_il, and rises.
    """
    z = scores - scores.max(axis=1, keepdims=True)
    scale = -z.min() or 1.0
    z /= scale
    n = weights.sum()
    own, other = (n + 1) / (n + 2), 1 / ((n + 2) * (z.shape[1] - 1))
    # sum_i weights_i sum_l target_il z_il
    aimed = float(weights @ (other * z.sum(axis=1) + (own - other) * z[np.arange(len(y)), y]))

    def derivatives_at(slope: float) -> tuple[float, float]:
        p = np.exp(slope * z)
        p /= p.sum(axis=1, keepdims=True)
        mean = (p * z).sum(axis=1)
        return float(weights @ mean) - aimed, float(weights @ ((p * z * z).sum(axis=1) - mean * mean))

    if derivatives_at(0.0)[0] >= 0:
        return 0.0
    low, high = 0.0, 1.0
    while derivatives_at(high)[0] < 0:
        low, high = high, 2 * high
    slope = high
    for _ in range(STEPS):
        first, second = derivatives_at(slope)
        low, high = (low, slope) if first > 0 else (slope, high)
        before = slope
        slope = slope - first / second if second > 0 else low
        if not low < slope < high:
            slope = (low + high) / 2
        if abs(slope - before) <= 1e-12 * before:
            break
    return min(slope / float(scale), sys.float_info.max)


def _sigmoid(t: FloatArray) -> FloatArray:
    small = np.exp(-np.abs(t))
    p: FloatArray = np.where(t >= 0, 1.0, small) / (1 + small)
    return p


def coupled(r: FloatArray) -> FloatArray:
    """Probabilities p of k classes, shape (m, k), from those of pairs, r of shape (m, k (k - 1)/2): r_ij, that a row of
    class i or j is of class i, for i < j; r_ji = 1 - r_ij.

        min over p: sum_i sum_{j != i} (r_ji p_i - r_ij p_j)^2    s.t.  sum_i p_i = 1

    (Wu, Lin and Weng, JMLR 2004, the second approach.) No p_i < 0 would be better, so that the optimum is that of

        [Q 1; 1' 0] [p; b] = [0; 1],    Q_ii = sum_{j != i} r_ji^2,    Q_ij = -r_ij r_ji

    LIBSVM iterates towards it until the residual is 0.005/k.
    """
    k = (1 + math.isqrt(1 + 8 * r.shape[1])) // 2
    first, second = np.triu_indices(k, 1)
    classes = np.arange(k)
    found: FloatArray = np.empty((len(r), k))
    step = max(1, BLOCK // (k + 1) ** 2)
    for low in range(0, len(r), step):
        part = r[low : low + step]
        system = np.zeros((len(part), k + 1, k + 1))
        system[:, first, second] = system[:, second, first] = -part * (1 - part)
        system[:, classes, classes] = (1 - part) ** 2 @ np.eye(k)[first] + part**2 @ np.eye(k)[second]
        system[:, :k, k] = system[:, k, :k] = 1
        right = np.zeros((len(part), k + 1, 1))
        right[:, k] = 1
        found[low : low + step] = np.maximum(np.linalg.solve(system, right)[:, :k, 0], 0)
    p: FloatArray = found / found.sum(axis=1, keepdims=True)
    return p


def _times(slope: Any, values: FloatArray) -> FloatArray:
    """slope * values, where differences of huge scores may be infinite."""
    return slope * values if slope else np.zeros_like(values)


def _decided(found: FloatArray, places: IntArray) -> FloatArray:
    """`found`, where that of the predicted class is the largest, by more than any other; else the nearest such row.

        min over q: ||q - p||^2    s.t.  q_y >= q_l for all l,  sum_l q_l = sum_l p_l

    lowers those above a level t to it and raises q_y to t, the mean of p_y and of those: of p_y and the r largest
    others, the r with the largest mean. One step of rounding more makes y the only largest.
    """
    rows = np.arange(len(found))
    own = found[rows, places]
    others = found.copy()
    others[rows, places] = 0
    wrong = np.flatnonzero(own <= others.max(axis=1, initial=0))
    if not len(wrong):
        return found
    falling = np.column_stack([own[wrong], -np.sort(-others[wrong], axis=1)])
    level = (np.cumsum(falling, axis=1) / np.arange(1, falling.shape[1] + 1)).max(axis=1)
    found[wrong] = np.minimum(others[wrong], level[:, np.newaxis])
    found[wrong, places[wrong]] = np.nextafter(level, 1.0)
    return found
