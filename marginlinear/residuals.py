"""The residuals of a regression on rows with targets: what margins are to a classifier.

    r_i = z_i - f(x_i)

A small mean of r_i says that predictions are not shifted, its quantiles how far they are off and to which side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear import params as P
from marginlinear.data.arrays import held, is_stored, row_blocks
from marginlinear.data.checks import labels_and_weights, require_unmasked
from marginlinear.errors import renumber_rows
from marginlinear.margins import (
    BLOCK,
    Feature,
    MarginStatistics,
    check_count,
    checked_names,
    smallest,
    statistics_dict,
    strongest,
)
from marginlinear.model import Regression
from marginlinear.problem import Summary, finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from marginlinear._typing import ArrayLike, FloatArray, Integer, MatrixLike
    from marginlinear.model import Model

__all__ = ["LargeRow", "ResidualReport", "residual_report", "residuals"]


class LargeRow(NamedTuple):
    """A row (its number in X, from 0), its target, its prediction, and target less prediction."""

    row: int
    target: float
    predicted: float
    residual: float


class ResidualReport(NamedTuple):
    """What `residual_report` finds. Rows of weight 0 have no part in it; means are weighted.

    Attributes
    ----------
    n_rows : int
    mse, mae : float
        Mean squared, and mean absolute, residual.
    r2 : float
        1 less the squared residuals over those of the mean target; NaN where targets do not vary.
    squared_correlation : float
        Of targets and predictions; NaN where one of them does not vary.
    residual, absolute : MarginStatistics
        Of the residuals, and of their sizes.
    intercept : float
    largest, smallest : list of Feature
        The largest positive weights and the smallest negative ones, the strongest first; empty for a kernel model.
    largest_rows : list of LargeRow
        Those of largest residual on either side, the largest first: outliers, or wrong targets.
    """

    n_rows: int
    mse: float
    mae: float
    r2: float
    squared_correlation: float
    residual: MarginStatistics
    absolute: MarginStatistics
    intercept: float
    largest: list[Feature]
    smallest: list[Feature]
    largest_rows: list[LargeRow]

    __repr__, _repr_html_ = Summary.__repr__, Summary._repr_html_  # type: ignore[misc]  # methods, no fields

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        errors = f"squared {self.mse:.4g}, absolute {self.mae:.4g} on average; R2 {self.r2:.4g}"
        rows = ", ".join(f"row {row.row} ({row.residual:.4g})" for row in self.largest_rows[:3])
        return f"ResidualReport: {self.n_rows:g} rows", [
            ("errors", errors), ("residual", self.residual.told), *[("largest", rows)] * bool(rows)]

    def to_dict(self) -> dict[str, Any]:
        """The same in lists, dicts, numbers and strings, with None for what is no finite number: ready for JSON."""
        found: dict[str, Any] = finite({
            **self._asdict(),
            "residual": statistics_dict(self.residual, "residual"),
            "absolute": statistics_dict(self.absolute, "residual"),
            "largest": [feature._asdict() for feature in self.largest],
            "smallest": [feature._asdict() for feature in self.smallest],
            "largest_rows": [row._asdict() for row in self.largest_rows],
        })
        return found


def residual_report(model: Model, X: MatrixLike, y: ArrayLike, *, sample_weight: ArrayLike | None = None,
                    feature_names: Sequence[str] | None = None, n_top: Integer = 10, n_largest: Integer = 10,
                    threads: int | None = None) -> ResidualReport:
    """Errors, their distribution, and the strongest features of a regression on rows with targets.

    Parameters
    ----------
    model : RegressionModel or KernelRegressionModel
    X : array, sparse array or Store of shape (m, n)
        As in `Model.decision_function`; also what `libsvm.read_libsvm` returns. Of a Store a chunk is in memory at a
        time.
    y : array of shape (m,)
        Targets.
    sample_weight : array of shape (m,), optional
        Weight of each row, finite and >= 0. A weight of 2 is a row given twice, one of 0 a row left out.
    feature_names : sequence of str, optional
        One for each of the model's features.
    n_top : int
        Positive, and negative, weights told, default 10.
    n_largest : int
        Rows of largest residual told, default 10.
    threads : int, optional
        Default: all cores. The result does not depend on it.

    Returns
    -------
    ResidualReport

    Raises
    ------
    ValueError
        For X, y, weights or names that do not go with the model, and for sizes that are none.
    TypeError
        For a model that is no regression.
    """
    if not isinstance(model, Regression):
        raise P.refusal("model", model, "a RegressionModel, as train returns it of l1svr, l2svr or nusvr", TypeError)
    for name, value in (("n_top", n_top), ("n_largest", n_largest)):
        check_count(name, value)
    feature_names = checked_names(model, feature_names)
    model.require_features(X)
    require_unmasked(X, y)
    X = X if is_stored(X) else held(X)
    y, weights, kept = labels_and_weights(X, y, sample_weight, regression=True)
    kept = np.arange(len(y)) if kept is None else kept
    r = residuals(model, X, y, threads)[kept]
    y, weights = y[kept], weights[kept]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mse = float(np.average(r**2, weights=weights))
        varies = float(np.average((y - np.average(y, weights=weights))**2, weights=weights))
        r2 = 1 - mse / varies if varies > 0 else np.nan
        together, apart = (_covariance(a, b, weights) for a, b in ((y, y - r), (y - r, y - r)))
        squared = together**2 / (varies * apart) if varies * apart > 0 else np.nan
        absolute = MarginStatistics.of(abs(r), weights)
    linear = getattr(model, "kernel", None) is None
    up, down = strongest(model.coef[0], n_top, feature_names) if linear else ([], [])
    far = smallest(-abs(r), n_largest)
    return ResidualReport(
        n_rows=len(y), mse=mse, mae=absolute.mean, r2=r2, squared_correlation=squared,
        residual=MarginStatistics.of(r, weights), absolute=absolute, intercept=float(model.intercept[0]),
        largest=up, smallest=down,
        largest_rows=[LargeRow(int(kept[at]), float(y[at]), float(y[at] - r[at]), float(r[at]))
                      for at in far.tolist()])


def _covariance(a: FloatArray, b: FloatArray, weights: FloatArray) -> float:
    centred = (values - np.average(values, weights=weights) for values in (a, b))
    return float(np.average(np.multiply(*centred), weights=weights))


def residuals(model: Model, X: Any, y: FloatArray,
              threads: int | None = None) -> FloatArray:
    """y less the predictions for the rows of X, float64 array of shape (m,), made for a block of rows at a time."""
    found = np.empty(len(y))
    for lo, hi, block in row_blocks(X, BLOCK):
        with renumber_rows(range(lo, hi)):
            found[lo:hi] = y[lo:hi] - model.predict(block, threads=threads)
    return found
