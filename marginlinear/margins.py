"""The margins of a model on labelled data: their distribution, and what goes with it.

    g_i     = s_{y_i}(x_i) - max_{l != y_i} s_l(x_i)            one column of scores a class
    g_i     = y_i f(x_i), y_i = +1 or -1                         one column of scores
    g_i     = votes for y_i - votes for the best other class     a model with codes

A normalised margin is g_i / ||w||, the distance of row i from where f is 0, and with a column a class
g_i / max_{j<l} ||w_j - w_l||, at most the distance of a row that is predicted right from its nearest other class. The
norms leave the bias feature out. With a kernel they are those of its feature space. Votes have no norm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear import params as P
from marginlinear.data.arrays import held, is_stored, row_blocks, select_rows
from marginlinear.data.checks import labels_and_weights, require_unmasked
from marginlinear.errors import renumber_rows
from marginlinear.model import NO_CLASSES, NO_PLACES, Model
from marginlinear.problem import Summary, finite
from marginlinear.selection.metrics import ClassAgreement, mean_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from marginlinear._typing import AnyArray, ArrayLike, FloatArray, IntArray, Integer, MatrixLike

__all__ = ["Feature", "LowRow", "MarginReport", "MarginStatistics", "TopFeatures", "margin_report"]

BLOCK = 1 << 21  # scores held at a time
INNER = 1 << 22  # inner products of columns held at a time
LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


class MarginStatistics(NamedTuple):
    """Moments and quantiles of margins g_i under the rows' weights.

    Attributes
    ----------
    mean : float
    variance : float
        mean of (g_i - mean)^2.
    semi_variance : float
        mean of (mean - g_i)_+^2, over all rows: the part of the variance that comes from margins below the mean. What
        MSVMAv pursues is this over mean^2 (Qian, Ai, Zhang and Gao, IJCAI 2022).
    minimum, maximum : float
    quantiles : dict
        Level -> the smallest margin that has at least this share of the rows at or below it.
    """

    mean: float
    variance: float
    semi_variance: float
    minimum: float
    maximum: float
    quantiles: dict[float, float]

    @classmethod
    def of(cls, margins: FloatArray, weights: FloatArray | None = None) -> MarginStatistics:
        """Statistics of float64 arrays of shape (m,), m > 0; `weights` are positive, by default 1."""
        weights = np.ones(len(margins)) if weights is None else weights
        order = np.argsort(margins, kind="stable")
        ordered, heaped = margins[order], np.cumsum(weights[order])
        below = np.minimum(np.searchsorted(heaped, np.multiply(LEVELS, heaped[-1])), len(ordered) - 1)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is inf or NaN, and shown so
            mean = np.average(margins, weights=weights)
            moments = [mean, *(np.average(values**2, weights=weights)
                               for values in (margins - mean, np.maximum(mean - margins, 0)))]
        return cls._make((*map(float, moments), float(ordered[0]), float(ordered[-1]),
                          dict(zip(LEVELS, ordered[below].tolist(), strict=True))))

    @property
    def told(self) -> str:
        """The moments and three quantiles, in a line."""
        quantiles = ", ".join(f"{100 * level:g}% {self.quantiles[level]:.3g}" for level in (0.05, 0.5, 0.95))
        return f"mean {self.mean:.4g}, variance {self.variance:.4g}; {quantiles}"

    def divided_by(self, norm: float) -> MarginStatistics:
        """Statistics of g_i / norm."""
        return MarginStatistics(self.mean / norm, self.variance / norm**2, self.semi_variance / norm**2,
                                self.minimum / norm, self.maximum / norm,
                                {level: value / norm for level, value in self.quantiles.items()})


class Feature(NamedTuple):
    """A feature (its column in X, from 0), its name where there are names, and its weight."""

    number: int
    name: str | None
    weight: float


class TopFeatures(NamedTuple):
    """What speaks loudest in one column of scores.

    Attributes
    ----------
    positive, negative : list
        The labels that the column's positive scores speak for and against. With a column a class the latter are
        empty: all others.
    intercept : float
        Weight of the bias feature times its value.
    largest, smallest : list of Feature
        The largest positive weights and the smallest negative ones, the strongest first. Equal weights stand in the
        order of their features.
    """

    positive: list[Any]
    negative: list[Any]
    intercept: float
    largest: list[Feature]
    smallest: list[Feature]


class LowRow(NamedTuple):
    """A row (its number in X, from 0), its label, the predicted one, and its margin."""

    row: int
    label: Any
    predicted: Any
    margin: float


class MarginReport(NamedTuple):
    """What `margin_report` finds. Rows of weight 0 have no part in it; all counts are sums of the rows' weights.

    Attributes
    ----------
    classes : array of shape (n_classes,)
        As in the model; arrays by class are in this order.
    n_rows : int
    unit : {"score", "votes"}
        What margins are differences of.
    margin : MarginStatistics or None
        Of the rows whose label the model knows; None where it knows none, or has one class only.
    norm : float or None
        ||w||, or the largest ||w_j - w_l||; None where there is no such number, or it is 0: votes, a precomputed
        kernel, one that is not positive semidefinite.
    normalised_margin : MarginStatistics or None
        Those of g_i / norm.
    accuracy : float
        Share of rows predicted right. A label that the model does not know counts as predicted wrong.
    auc : float
        Area under the ROC curve, of several classes the mean of each against the rest; NaN unless it was asked for, and
        where all rows are of one class.
    log_loss, brier : float
        Of the probabilities, over the rows whose label the model knows; NaN for a model without calibration.
    precision, recall, f1 : float64 arrays of shape (n_classes,)
        NaN where they are 0/0: a class that is never predicted, or has no row.
    support : array of shape (n_classes,)
        Rows of each class.
    unknown_labels : dict
        Label that the model does not know -> its rows.
    confused : list of (label, predicted, count)
        The entries of the confusion matrix that are not 0, by place in `classes`; of known labels only.
    top_features : list of TopFeatures
        One a column of weights; empty for a kernel model.
    lowest_rows : list of LowRow
        Those of lowest margin, the lowest first. Their labels are likely to be wrong.
    """

    classes: AnyArray
    n_rows: int
    unit: str
    margin: MarginStatistics | None
    norm: float | None
    normalised_margin: MarginStatistics | None
    accuracy: float
    auc: float
    log_loss: float
    brier: float
    precision: FloatArray
    recall: FloatArray
    f1: FloatArray
    support: AnyArray
    unknown_labels: dict[Any, Any]
    confused: list[tuple[Any, Any, Any]]
    top_features: list[TopFeatures]
    lowest_rows: list[LowRow]

    __repr__, _repr_html_ = Summary.__repr__, Summary._repr_html_  # type: ignore[misc]  # methods, no fields

    @property
    def confusion(self) -> AnyArray:
        """Counts of (label, predicted), array of shape (n_classes, n_classes)."""
        k = len(self.classes)
        matrix = np.zeros((k, k), dtype=self.support.dtype)
        places = {label: at for at, label in enumerate(self.classes.tolist())}
        for label, predicted, count in self.confused:
            matrix[places[label], places[predicted]] = count
        return matrix

    @property
    def macro(self) -> dict[str, float]:
        """Unweighted means of precision, recall and f1 over the classes where they are defined, a dict.

        The mean of the recalls is called balanced accuracy.
        """
        return {name: mean_of(getattr(self, name)) for name in ("precision", "recall", "f1")}

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        macro = self.macro
        lines = [("accuracy", f"{self.accuracy:.4g}, balanced {macro['recall']:.4g}, macro F1 {macro['f1']:.4g}")]
        for name, found in ("margin", self.margin), ("normalised", self.normalised_margin):
            lines += [] if found is None else [(name, found.told)]
        lowest = ", ".join(f"row {row.row} ({row.label} as {row.predicted})" for row in self.lowest_rows[:3])
        lines += [("lowest", lowest)] * bool(lowest)
        return f"MarginReport: {self.n_rows:g} rows, {len(self.classes)} classes", lines

    def to_dict(self) -> dict[str, Any]:
        """The same in lists, dicts, numbers and strings, with None for what is no finite number: ready for JSON."""
        names = "label", "precision", "recall", "f1", "support"
        columns = zip(*(values.tolist() for values in (
            self.classes, self.precision, self.recall, self.f1, self.support)), strict=True)
        found: dict[str, Any] = finite({
            "n_rows": self.n_rows,
            "accuracy": self.accuracy,
            "auc": self.auc,
            "log_loss": self.log_loss,
            "brier": self.brier,
            "macro": self.macro,
            "unit": self.unit,
            "margin": self.margin and statistics_dict(self.margin),
            "norm": self.norm,
            "normalised_margin": self.normalised_margin and statistics_dict(self.normalised_margin),
            "classes": [dict(zip(names, values, strict=True)) for values in columns],
            "confused": [{"label": label, "predicted": predicted, "count": count}
                         for label, predicted, count in self.confused],
            "unknown_labels": [{"label": label, "count": count} for label, count in self.unknown_labels.items()],
            "top_features": [{**top._asdict(), **{name: [feature._asdict() for feature in getattr(top, name)]
                                                  for name in ("largest", "smallest")}}
                             for top in self.top_features],
            "lowest_rows": [row._asdict() for row in self.lowest_rows],
        })
        return found


def margin_report(model: Model, X: MatrixLike, y: ArrayLike, *, sample_weight: ArrayLike | None = None,
                  feature_names: Sequence[str] | None = None, n_top: Integer = 10, n_lowest: Integer = 10,
                  auc: bool = False, threads: int | None = None) -> MarginReport:
    """Margins, errors and strongest features of a model on labelled rows.

    Scores are computed for a block of rows at a time; what is kept is a few numbers a row, and with `auc` the scores.

    Parameters
    ----------
    model : Model
        Linear or kernel.
    X : array, sparse array or Store of shape (m, n)
        As in `Model.decision_function`; also what `libsvm.read_libsvm` returns. Of a Store a chunk is in memory at a
        time.
    y : array of shape (m,)
        Labels. Those that the model does not know are told, and counted as predicted wrong.
    sample_weight : array of shape (m,), optional
        Weight of each row, finite and >= 0. A weight of 2 is a row given twice, one of 0 a row left out.
    feature_names : sequence of str, optional
        One for each of the model's features. Default: those that it keeps, if it does.
    n_top : int
        Positive, and negative, weights told of each column, default 10.
    n_lowest : int
        Rows of lowest margin told, default 10.
    auc : bool
        Keep the scores of all rows, and measure the area under the ROC curve. Default False.
    threads : int, optional
        Default: all cores. The result does not depend on it.

    Returns
    -------
    MarginReport

    Raises
    ------
    ValueError
        For X, y or weights that `train` would refuse too; an X of another number of features, unless it is a file's;
        labels that are words where the model's are numbers; feature_names of another number than the model's features,
        or for a kernel model.
    TypeError
        For a model that is none, or a multi-label one, or names that are none.
    """
    if not isinstance(model, Model):
        raise P.refusal("model", model, "a Model, as train returns it")
    if model.multilabel or model.classes is None:
        raise TypeError(NO_PLACES if model.multilabel else NO_CLASSES)
    for name, value in (("n_top", n_top), ("n_lowest", n_lowest)):
        check_count(name, value)
    auc = P.check_flag("auc", auc)
    linear = getattr(model, "kernel", None) is None
    feature_names = checked_names(model, feature_names)
    model.require_features(X)
    require_unmasked(X, y)
    X = X if is_stored(X) else held(X)
    y, weights, kept = labels_and_weights(X, y, sample_weight)
    if kept is not None:
        y, weights = y[kept], weights[kept]
    k = len(model.classes)
    agreement = ClassAgreement(k, keep_scores=auc)
    places, predicted, margins = evaluate(model, X, y, threads, kept, agreement,
                                          None if sample_weight is None else weights)
    known = places >= 0
    strangers, which = np.unique(y[~known], return_inverse=True)
    # Without weights counts are integers.
    strange = np.bincount(which, None if sample_weight is None else weights[~known], minlength=len(strangers))
    labels = model.classes.tolist()
    # With one class there is no other score.
    with_margin = known & (k > 1)
    statistics = MarginStatistics.of(margins[with_margin], weights[with_margin]) if with_margin.any() else None
    norm = margin_norm(model, threads)
    low = np.flatnonzero(with_margin)[smallest(margins[with_margin], n_lowest)]
    numbers = low if kept is None else kept[low]
    return MarginReport(
        classes=model.classes,
        n_rows=len(y),
        unit="votes" if model.voted else "score",
        margin=statistics,
        norm=norm,
        normalised_margin=statistics.divided_by(norm) if statistics and norm else None,
        accuracy=agreement.accuracy,
        auc=agreement.auc,
        log_loss=agreement.log_loss,
        brier=agreement.brier,
        precision=agreement.precision,
        recall=agreement.recall,
        f1=agreement.f1,
        support=agreement.support,
        unknown_labels=dict(zip(strangers.tolist(), strange.tolist(), strict=True)),
        confused=[(labels[at], labels[there], count) for at, there, count in agreement.confused],
        top_features=top_features(model, n_top, feature_names) if linear else [],
        lowest_rows=[LowRow(number, labels[places[at]], labels[predicted[at]], float(margins[at]))
                     for at, number in zip(low.tolist(), numbers.tolist(), strict=True)],
    )


def evaluate(model: Model, X: Any, y: AnyArray, threads: int | None = None,
             kept: IntArray | None = None, agreement: ClassAgreement | None = None,
             weights: FloatArray | None = None) -> tuple[IntArray, IntArray, FloatArray]:
    """(places of y in model.classes, -1 for unknown; predicted places; margins, NaN for unknown): a number a row.

    Of the rows `kept` of X, rising numbers, which are those that y has labels of; None: all. An `agreement` takes them
    into account, with the `weights` that they have, or none.
    """
    places = model.places_in_classes(y)
    predicted, margins = np.empty(len(places), dtype=np.intp), np.empty(len(places))
    for lo, hi, block in row_blocks(X, max(1, BLOCK // max(len(model.classes), model.columns))):
        numbers: Any = range(lo, hi)
        if kept is not None:
            first = lo
            lo, hi = np.searchsorted(kept, (lo, hi))
            numbers = kept[lo:hi]
            if lo == hi:
                continue
            block = select_rows(block, numbers - first)
        with renumber_rows(numbers):
            scores = model.decide(block, threads=threads)
        predicted[lo:hi] = model.places_of(scores)
        margins[lo:hi] = model.margins_of(scores, np.maximum(places[lo:hi], 0))
        if agreement is not None:
            agreement.add_scored(model, scores, places[lo:hi], predicted[lo:hi],
                                 None if weights is None else weights[lo:hi])
    margins[places < 0] = np.nan
    return places, predicted, margins


@np.errstate(over="ignore", invalid="ignore")
def margin_norm(model: Any, threads: int | None = None) -> float | None:
    """What margins are divided by to be normalised, float; None where there is no such number."""
    kernel = getattr(model, "kernel", None)
    if model.voted or (kernel is not None and kernel.kind == "precomputed"):
        return None
    left = right = model.coef if kernel is None else model.dual_coef.T
    if kernel is not None:
        from marginlinear.data.kernels import kernel_scores

        # <w_j, w_l> = a_j' K a_l.
        right = kernel_scores(kernel, model.support_rows, model.support_rows, model.dual_coef, threads=threads).T
    squares = np.einsum("ij,ij->i", left, right)
    if not model.joint:
        return _root(squares[0])
    largest, step = 0.0, max(1, INNER // len(left))
    for lo in range(0, len(left), step):
        inner = left[lo : lo + step] @ right.T
        largest = max(largest, float((squares[lo : lo + step, None] + squares - 2 * inner).max()))
    return _root(largest)


def top_features(model: Model, count: Integer, names: Sequence[str] | None = None) -> list[TopFeatures]:
    """TopFeatures of each column of a linear model's weights, a list."""
    labels = np.asarray(model.classes)
    if model.codes is not None:
        sides = [(labels[code > 0].tolist(), labels[code < 0].tolist()) for code in model.codes.T]
    elif model.joint:
        sides = [([label], []) for label in labels.tolist()]
    else:
        sides = [(labels[1:].tolist(), labels[:1].tolist())]

    return [TopFeatures(positive, negative, intercept, *strongest(weights, count, names))
            for (positive, negative), weights, intercept in zip(
                sides, model.coef, model.intercept.tolist(), strict=True)]


def strongest(weights: FloatArray, count: Integer,
              names: Sequence[str] | None = None) -> tuple[list[Feature], list[Feature]]:
    """(Features of the `count` largest positive weights, of the smallest negative ones), the strongest first."""
    def features(which: IntArray) -> list[Feature]:
        numbers: list[int] = which.tolist()
        return [Feature(at, None if names is None else names[at], float(weights[at])) for at in numbers]

    up, down = np.flatnonzero(weights > 0), np.flatnonzero(weights < 0)
    return features(up[smallest(-weights[up], count)]), features(down[smallest(weights[down], count)])


def smallest(values: FloatArray, count: Integer) -> IntArray:
    """Places of the `count` smallest values, the smallest first, equal ones in their order, NaN last."""
    if count >= len(values):
        return np.argsort(values, kind="stable")
    if count == 0:
        return np.empty(0, dtype=np.intp)
    bound = np.partition(values, count - 1)[count - 1]
    candidates = np.flatnonzero(~(values > bound))
    return candidates[np.argsort(values[candidates], kind="stable")[:count]]


def check_count(name: str, value: object) -> None:
    """ValueError for what is no number of things to tell."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} = {value!r} is not allowed: give an integer in [0, inf)")


def checked_names(model: Model, names: Any) -> Any:
    """The feature names that are given, or those that a linear model keeps; ValueError where it has no use for them."""
    if names is None:
        return model.feature_names if getattr(model, "kernel", None) is None else None
    if getattr(model, "kernel", None) is not None:
        raise ValueError("feature_names: a kernel model has no weights of features to be named")
    if isinstance(names, (str, bytes)) or not hasattr(names, "__len__") or not all(isinstance(n, str) for n in names):
        raise P.refusal("feature_names", names, "a list of str, one for each feature")
    if len(names) != model.n_features:
        raise ValueError(f"feature_names has {len(names)} names, the model {model.n_features} features")
    return names


def _root(square: float) -> float | None:
    return math.sqrt(square) if 0 < square < math.inf else None


def statistics_dict(statistics: MarginStatistics, what: str = "margin") -> dict[str, Any]:
    """MarginStatistics as a dict, its quantiles as a list of levels and of `what` they are of."""
    quantiles = [{"level": level, what: value} for level, value in statistics.quantiles.items()]
    return {**statistics._asdict(), "quantiles": quantiles}
