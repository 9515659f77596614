"""Pictures of margins, residuals, convergence, searches and probabilities (extra `[plot]`).

Displays in scikit-learn's manner: `from_...` computes and draws, the constructor takes what was computed, and
`plot(ax=...)` draws again. scikit-learn is not needed, and matplotlib is imported when something is drawn.

The legend of a figure with a layout engine, as of those that are made here, stands above the Axes: a title is then one
of the figure, `display.figure_.suptitle("...")`.
"""

from __future__ import annotations

import math
import os
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from marginlinear._core.scores import margins_of
from marginlinear.compare.measures import TITLES
from marginlinear.data.checks import places_in
from marginlinear.errors import needed
from marginlinear.margins import MarginStatistics, evaluate, margin_norm
from marginlinear.model import Model
from marginlinear.params import ERRORS, METRICS, RELATIVE, amount, is_relative
from marginlinear.problem import counted
from marginlinear.selection.tables import is_number, read_log, read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from marginlinear._typing import AnyArray, ArrayLike, FloatArray, IntArray, MatrixLike, PathLike
    from marginlinear.compare import Comparison

__all__ = ["ConvergenceDisplay", "CriticalDifferenceDisplay", "MarginDistributionDisplay", "ReliabilityDisplay",
           "ResidualDistributionDisplay", "SearchDisplay", "read_log", "read_table", "style"]

# The colours that M. Okabe and K. Ito chose for all kinds of colour vision; dashes tell curves apart without colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)), (0, (8, 2, 1, 2)))
# What is not a curve: means, bounds, tolerances.
GREY = "0.45"
STYLE: dict[str, Any] = {
    "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlesize": "medium", "figure.figsize": (6.4, 4.2), "figure.constrained_layout.use": True,
    "font.size": 10, "grid.alpha": 0.3, "grid.linewidth": 0.6, "lines.linewidth": 1.6, "svg.hashsalt": "marginlinear",
}
LINE, WRAP = 96, 76  # characters of a line of the legend, and of a text in it
NORMALISED = "margin / norm of the weights"
STEPS = 2000  # points of a cumulative curve at most


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's settings of this module's pictures, within the block."""
    matplotlib = _matplotlib()
    # When the colours are used up each comes again with another dash.
    n = len(COLOURS)
    cycler = matplotlib.cycler(color=COLOURS * n, linestyle=[DASHES[(i + i // n) % n] for i in range(n * n)])
    with matplotlib.rc_context({**STYLE, "axes.prop_cycle": cycler}):
        yield


class DistributionDisplay:
    """What margins and residuals have in common: `values`, one a row, their `weights`, and how both are drawn."""

    what: str | None = None

    def __init__(self, values: ArrayLike, *, weights: ArrayLike | None = None, name: str | None = None,
                 xlabel: str | None = None) -> None:
        self.values = np.asarray(values, dtype=np.float64)
        if self.values.ndim != 1 or not len(self.values) or not np.isfinite(self.values).all():
            raise ValueError(f"{self.what}s must be finite numbers, one a row; their shape is {self.values.shape}")
        self.weights = np.ones(len(self.values)) if weights is None else np.asarray(weights, dtype=np.float64)
        if self.weights.shape != self.values.shape or not (self.weights >= 0).all() or not (
                0 < self.weights.sum() < math.inf):
            raise ValueError(f"weights must be finite numbers >= 0, one a {self.what}, not all 0")
        self.name, self.xlabel = name, xlabel or self.what
        self.mean, self.variance = MarginStatistics.of(self.values, self.weights)[:2]

    def plot(self, ax: Any = None, *, kind: Literal["cumulative", "histogram"] = "cumulative", name: str | None = None,
             bins: int | ArrayLike | None = None, **kwargs: Any) -> Self:
        """Draw onto `ax`, or a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"cumulative", "histogram"}
            Share of the rows with at most this value, or in each of `bins` intervals.
        name : str, optional
            For the legend, in place of that of the constructor.
        bins : int or array, optional
            As in numpy.histogram; for a histogram only. Default: 40, or one for each vote where margins are votes.
        **kwargs
            For the curve: what matplotlib's Line2D takes.

        Returns
        -------
        DistributionDisplay
            Itself.
        """
        if kind not in ("cumulative", "histogram"):
            raise ValueError(f"kind = {kind!r} is not allowed: give 'cumulative' or 'histogram'")
        self.ax_, self.figure_ = _axes(ax)
        name = name if name is not None else self.name
        moments = f"mean {self.mean:.3g}, variance {self.variance:.2g}"
        label = literal(f"{name}: {moments}" if name else moments)
        deviation = math.sqrt(self.variance)
        if kind == "cumulative":
            x, shares = cumulative(self.values, self.weights)
            self.line_, = self.ax_.plot(x, shares, **{"label": label, "drawstyle": "steps-post", **kwargs})
            at = float(np.average(self.values <= self.mean, weights=self.weights))
            self.mean_ = self.ax_.errorbar(self.mean, at, xerr=deviation, fmt="o", color=self.line_.get_color(),
                                           markersize=5, capsize=3, linewidth=1.2, zorder=3)
            self.band_: Any = None
            marks = "point and bar"
            self.ax_.set(ylabel=f"share of rows with at most this {self.what}", ylim=(0, 1.02))
        else:
            counts, edges = np.histogram(self.values, histogram_edges(self.values, bins), weights=self.weights)
            shares = counts / self.weights.sum()
            self.line_, = self.ax_.step(np.append(edges, edges[-1]), [0, *shares, 0],
                                        **{"label": label, "where": "pre", **kwargs})
            colour = self.line_.get_color()
            self.ax_.stairs(shares, edges, fill=True, color=colour, alpha=0.25)
            self.mean_ = self.ax_.axvline(self.mean, color=colour, linestyle="--", linewidth=1.2)
            self.band_ = self.ax_.axvspan(self.mean - deviation, self.mean + deviation, color=colour, alpha=0.1,
                                          linewidth=0)
            marks = "dashed line and band"
            self.ax_.set_ylabel("share of rows")
            self.ax_.set_ylim(bottom=0, auto=True)
        self.ax_.set_xlabel(f"{self.xlabel}\n({marks}: mean \u00b1 standard deviation)")
        if not any(line.get_gid() == "zero" for line in self.ax_.lines):
            # Rows with margins to its left are predicted wrong, those with residuals there too high.
            self.ax_.axvline(0, color=GREY, linewidth=0.8, linestyle="-", zorder=1, gid="zero")
        _legend(self.ax_)
        return self


class MarginDistributionDisplay(DistributionDisplay):
    """The distribution of margins, one a row: cumulative, as Figure 1 of LDM, or a histogram, as Figure 2 of mcODM.

    Parameters
    ----------
    margins : array of shape (m,)
        Finite.
    weights : array of shape (m,), optional
        Weights of the rows, by default 1.
    name : str, optional
        For the legend.
    xlabel : str, optional
        What the margins are.

    Attributes
    ----------
    mean, variance : float
    line_ : matplotlib Line2D
        The cumulative curve or the histogram's outline.
    mean_ : matplotlib artist
        The mean and, to both sides, the standard deviation: an ErrorbarContainer on the curve, or a vertical Line2D.
    band_ : matplotlib artist or None
        The histogram's band from mean - sd to mean + sd.
    ax_, figure_ : matplotlib Axes, Figure
    """

    what = "margin"

    def __init__(self, margins: ArrayLike, *, weights: ArrayLike | None = None, name: str | None = None,
                 xlabel: str = "margin") -> None:
        super().__init__(margins, weights=weights, name=name, xlabel=xlabel)

    @property
    def margins(self) -> FloatArray:
        return self.values

    @classmethod
    def from_estimator(cls, estimator: Any, X: MatrixLike, y: ArrayLike, *, sample_weight: ArrayLike | None = None,
                       normalise: bool = True, threads: int | None = None, name: str | None = None,
                       kind: Literal["cumulative", "histogram"] = "cumulative", ax: Any = None, **kwargs: Any) -> Self:
        """Draw the margins of a classifier on labelled rows.

        Parameters
        ----------
        estimator : Model or classifier
            Of marginlinear, or one in scikit-learn's manner: with `decision_function`, `classes_` and, for
            normalise=True, `coef_`. Its scores are one a class, or a single one that is positive for classes_[1]. Of
            a pipeline, or a search, the weights are those of the last step, or of the best estimator.
        X, y : arrays of shape (m, n) and (m,)
            Labels that the classifier does not know are an error.
        sample_weight : array of shape (m,), optional
        normalise : bool
            Divide by ||w||, with several columns of weights by the largest ||w_j - w_l||; see marginlinear.margins.
            Margins of different models are comparable then.
        threads : int, optional
            For a Model; default: all cores.
        name : str, optional
            Default: the method's name or the class's.
        kind, ax, **kwargs
            As in `plot`.

        Raises
        ------
        ValueError
            For unknown labels, or normalise=True where there is no norm: votes of several binary problems, or a kernel
            classifier that is not of marginlinear.
        """
        name = name or _name(estimator)
        margins, norm, unit = estimator_margins(estimator, X, y, normalise, threads)
        if not normalise:
            xlabel = f"margin ({unit})"
        elif norm is None:
            raise ValueError(f"{name}: these margins have no norm to be divided by: give normalise=False")
        else:
            margins, xlabel = margins / norm, NORMALISED
        display = cls(margins, weights=sample_weight, name=name, xlabel=xlabel)
        return display.plot(ax, kind=kind, **kwargs)

    @classmethod
    def from_predictions(cls, y_true: ArrayLike, y_score: ArrayLike, *, classes: ArrayLike | None = None,
                         sample_weight: ArrayLike | None = None, name: str | None = None,
                         kind: Literal["cumulative", "histogram"] = "cumulative", ax: Any = None,
                         **kwargs: Any) -> Self:
        """Draw the margins that scores give to labels.

        Parameters
        ----------
        y_true : array of shape (m,)
        y_score : array of shape (m,) or (m, n_classes)
            As a `decision_function` returns them: positive for classes[1], or one a class.
        classes : array of shape (n_classes,), optional
            The classes of the columns; default: the different labels, ascending.
        sample_weight, name, kind, ax, **kwargs
            As in `from_estimator`.
        """
        classes = np.unique(y_true) if classes is None else np.asarray(classes)
        margins = score_margins(y_score, y_true, classes)
        display = cls(margins, weights=sample_weight, name=name, xlabel="margin (score)")
        return display.plot(ax, kind=kind, **kwargs)


class ResidualDistributionDisplay(DistributionDisplay):
    """The distribution of residuals, target less prediction, one a row: cumulative, or a histogram.

    Parameters and attributes are those of MarginDistributionDisplay, with `residuals` in place of `margins`.
    """

    what = "residual"

    def __init__(self, residuals: ArrayLike, *, weights: ArrayLike | None = None, name: str | None = None,
                 xlabel: str = "residual (target less prediction)") -> None:
        super().__init__(residuals, weights=weights, name=name, xlabel=xlabel)

    @property
    def residuals(self) -> FloatArray:
        return self.values

    @classmethod
    def from_estimator(cls, estimator: Any, X: MatrixLike, y: ArrayLike, *, sample_weight: ArrayLike | None = None,
                       name: str | None = None, kind: Literal["cumulative", "histogram"] = "cumulative", ax: Any = None,
                       **kwargs: Any) -> Self:
        """Draw the residuals of a regression, a Model or one in scikit-learn's manner, on rows with targets."""
        return cls.from_predictions(y, estimator.predict(X), sample_weight=sample_weight,
                                    name=name or _name(estimator), kind=kind, ax=ax, **kwargs)

    @classmethod
    def from_predictions(cls, y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: ArrayLike | None = None,
                         name: str | None = None, kind: Literal["cumulative", "histogram"] = "cumulative",
                         ax: Any = None, **kwargs: Any) -> Self:
        """Draw targets less predictions, arrays of shape (m,)."""
        difference = np.asarray(y_true, dtype=np.float64) - np.asarray(y_pred, dtype=np.float64)
        return cls(difference, weights=sample_weight, name=name).plot(ax, kind=kind, **kwargs)


class ConvergenceDisplay:
    """Certificate and objective of a run against time or sweeps.

    Parameters
    ----------
    history : sequence of dict
        One entry a check, as in `Info.history`: n_iter, seconds, objective, bound, certificate, residual; with several
        binary problems one entry a problem, the sums over those that are solved, `columns` of them: they rise, and are
        those of the model at the end.
    limit : float, optional
        What the certificate, or the residual of a method without one, is to come down to.
    name : str, optional
        For the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The certificate, or the residual.
    objective_ : matplotlib Line2D
    axes_ : array of two matplotlib Axes
        Certificate above, objective below.
    figure_ : matplotlib Figure
    """

    def __init__(self, history: Iterable[Mapping[str, Any]], *, limit: float | None = None,
                 name: str | None = None) -> None:
        self.history = list(history)
        if not self.history:
            raise ValueError("the run has no history: it made no check")
        self.limit, self.name = limit, name

    @classmethod
    def from_estimator(cls, estimator: Any, *, name: str | None = None, x: Literal["seconds", "n_iter"] = "seconds",
                       axes: Any = None, **kwargs: Any) -> Self:
        """Draw the run of a Model, of an Info, or of a fitted estimator of marginlinear.sklearn."""
        info = getattr(estimator, "info", None) or getattr(estimator, "info_", None) or estimator
        if not hasattr(info, "history"):
            raise ValueError(f"{type(estimator).__name__} has no info of a run by marginlinear")
        name = name or _name(estimator)
        return cls(info.history, limit=info.criterion[2], name=name).plot(axes, x=x, **kwargs)

    @classmethod
    def from_log(cls, path: str, *, name: str | None = None, x: Literal["seconds", "n_iter"] = "seconds",
                 axes: Any = None, **kwargs: Any) -> Self:
        """Draw the one run in a file that `margin-train --log` wrote; `read_log` reads files of several."""
        runs = read_log(path)
        if len(runs) > 1:
            raise ValueError(f"{path}: {len(runs)} runs: read_log gives the history of each")
        history, limit, _ = runs[0]
        stem = os.path.splitext(os.path.basename(path))[0]
        return cls(history, limit=limit, name=name or stem).plot(axes, x=x, **kwargs)

    def plot(self, axes: Any = None, *, x: Literal["seconds", "n_iter"] = "seconds", log_x: bool = False,
             name: str | None = None, **kwargs: Any) -> Self:
        """Draw onto two Axes, or a new figure.

        Parameters
        ----------
        axes : pair of matplotlib Axes, optional
            For the certificate and for the objective.
        x : {"seconds", "n_iter"}
            Time of the solver, or sweeps over the rows, Newton steps included.
        log_x : bool
            A logarithmic axis, for runs of very different length.
        name : str, optional
            For the legend, in place of that of the constructor.
        **kwargs
            For the curves: what matplotlib's Line2D takes.
        """
        words = {"seconds": "time [s]", "n_iter": "sweeps over the rows, or Newton steps"}
        if x not in words:
            raise ValueError(f"x = {x!r} is not allowed: give 'seconds' or 'n_iter'")
        self.axes_ = np.asarray(_subplots((6.4, 5.6), 2) if axes is None else axes)
        self.figure_ = self.axes_[0].figure
        upper, lower = self.axes_
        at = self._column(x)
        certificate = self._column("certificate")
        criterion = "residual" if np.isnan(certificate).all() else "certificate"
        values = certificate if criterion == "certificate" else self._column("residual")
        # What is 0 or below, by rounding, has no place on a logarithmic axis.
        values = np.where(values > 0, values, np.nan)
        name = name if name is not None else self.name
        notes = ["residual"] if criterion == "residual" else []
        if "columns" in self.history[0]:
            notes.append("sum over the binary problems solved so far")
        if notes:
            name = f"{name or 'run'} ({', '.join(notes)})"
        marked = {"marker": "o", "markersize": 3.5, "label": name and literal(name), **kwargs}
        self.line_, = upper.plot(at, values, **marked)
        colour = self.line_.get_color()
        if self.limit is not None:
            upper.axhline(self.limit, color=colour, linewidth=0.9, linestyle=":")
        drawn = {criterion, *(word for word in ("certificate", "residual") if word in upper.get_ylabel())}
        dotted = " (dotted: tolerance)" if self.limit is not None or "dotted" in upper.get_ylabel() else ""
        upper.set(yscale="log", ylabel=" or ".join(sorted(drawn)) + dotted)
        self.objective_, = lower.plot(at, self._column("objective"), **marked)
        lower.set(xlabel=words[x], ylabel="objective", yscale=_scale([line.get_ydata() for line in lower.lines]))
        if log_x:
            lower.set_xscale("log")
        elif lower.get_xscale() == "linear":
            lower.set_xlim(left=0, auto=True)
        if any(not text.startswith("_") for text in upper.get_legend_handles_labels()[1]):
            _legend(upper)
        return self

    def _column(self, key: str) -> FloatArray:
        return np.array([math.nan if entry.get(key) is None else entry[key] for entry in self.history], dtype=float)


class SearchDisplay:
    """Score against C, or another parameter, from the table of a search.

    Parameters
    ----------
    table : sequence of dict
        One row a point of the grid: a column for each parameter, and one for the score. Rows without a score
        (None or NaN) are left out.
    param : str
        The parameter on the horizontal axis.
    score : str, optional
        The column of scores; default: the first of `SCORES` that the table has.
    std : str, optional
        Column of the scores' standard deviation over the folds; default: `std` or `std_<score>` where there, else
        it is computed from a column `fold_scores` of lists, as `selection.search` has it.
    params : sequence of str, optional
        The other columns that are parameters: a curve for each combination of their values. Default: all columns of
        the table that are not known to be results (`RESULTS`).

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        One for each combination of the other parameters.
    best_ : matplotlib Line2D
        The point of the best score, the first of equal ones: the least where the column's name, or the table's
        `metric`, is that of an error, such as mse.
    best : dict
        Its row.
    ax_, figure_ : matplotlib Axes, Figure
    """

    SCORES = ("score", "mean_score", "mean_test_score", "accuracy", "balanced", "f1_macro", "auc")
    RESULTS = ("std", "std_score", "std_test_score", "fold_scores", "seconds", "n_iter", "status", "unconverged",
               "rank", "metric")

    def __init__(self, table: Iterable[Mapping[str, Any]], *, param: str = "C", score: str | None = None,
                 std: str | None = None, params: Sequence[str] | None = None) -> None:
        rows = [dict(row) for row in table]
        if not rows:
            raise ValueError("the table of the search has no rows")
        columns = list(dict.fromkeys(key for row in rows for key in row))
        self.param = param
        self.score: Any = score or next((name for name in self.SCORES if name in columns), None)
        if self.score is None:
            raise ValueError(f"the table has no column of scores: name one of {', '.join(columns)}")
        for name in (self.param, self.score, *([std] if std else []), *(params or ())):
            if name not in columns:
                raise ValueError(f"the table has no column {name!r}: it has {', '.join(columns)}")
        usual = ("std", f"std_{self.score}", "std_test_score")
        self.std: Any = std or next((name for name in usual if name in columns), None)
        if self.std is None and all(isinstance(row.get("fold_scores"), (list, tuple)) for row in rows):
            self.std = "std"
            for row in rows:
                row["std"] = _deviation(row["fold_scores"])
        results = {*self.RESULTS, *self.SCORES, *METRICS, *(f"fold_{name}" for name in METRICS), self.score, self.std}
        self.params = [name for name in (columns if params is None else params)
                       if name != param and (params is not None or name not in results)]
        self.table = [row for row in rows if is_number(row.get(self.score))]
        # In units of m C: a parameter of all rows, or of none.
        self.unit = f" ({RELATIVE})" if self.table and all(is_relative(row.get(param)) for row in self.table) else ""
        if self.unit:
            self.table = [{**row, param: amount(row[param])} for row in self.table]
        wrong = next((row for row in self.table if not is_number(row.get(param))), None)
        if wrong is not None:
            raise ValueError(f"{param} = {wrong.get(param)!r} in the table is not a number")
        if not self.table:
            raise ValueError(f"no row of the table has a number in its column {self.score!r}")
        metric = self.score if self.score in METRICS else self.table[0].get("metric")
        self.best = (min if metric in ERRORS else max)(self.table, key=lambda row: row[self.score])

    @classmethod
    def from_estimator(cls, search: Any, *, ax: Any = None, param: str = "C", params: Sequence[str] | None = None,
                       metric: str = "score", **kwargs: Any) -> Self:
        """Draw what `selection.search` returned, or a fitted GridSearchCV of scikit-learn.

        Of the latter `metric` names one of several metrics, and `param` may leave out the steps of a pipeline:
        C for svc__C.
        """
        if hasattr(search, "cv_results_"):
            results = search.cv_results_
            metrics = [name.removeprefix("mean_test_") for name in results if name.startswith("mean_test_")]
            if metric not in metrics:
                raise ValueError(f"metric = {metric!r} is not allowed: give {' | '.join(metrics)}")
            columns = [results[f"{of}_test_{metric}"].tolist() for of in ("mean", "std")]
            table = [{**point, "score": score, "std": std}
                     for point, score, std in zip(results["params"], *columns, strict=True)]
            inner = [name for name in table[0] if name.endswith(f"__{param}")]
            param = inner[0] if param not in table[0] and len(inner) == 1 else param
        elif hasattr(search, "table"):
            table = search.table
        else:
            raise ValueError(f"{type(search).__name__} is no finished search")
        return cls.from_table(table, param=param, params=params, ax=ax, **kwargs)

    @classmethod
    def from_table(cls, table: Iterable[Mapping[str, Any]], *, param: str = "C", score: str | None = None,
                   std: str | None = None, params: Sequence[str] | None = None, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the table of a search; the parameters are those of the class and of `plot`."""
        return cls(table, param=param, score=score, std=std, params=params).plot(ax, **kwargs)

    @classmethod
    def from_file(cls, path: PathLike, *, ax: Any = None, param: str = "C", score: str | None = None,
                  std: str | None = None, params: Sequence[str] | None = None, **kwargs: Any) -> Self:
        """Draw a table from a CSV file with a head, a JSON list of objects, or JSON lines."""
        return cls.from_table(read_table(path), param=param, score=score, std=std, params=params, ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw onto `ax`, or a new figure; **kwargs are for the curves: what matplotlib's Line2D takes."""
        self.ax_, self.figure_ = _axes(ax)
        groups: dict[str, list[dict[str, Any]]] = {}
        varying = [name for name in self.params if len({_shown(row.get(name)) for row in self.table}) > 1]
        for row in self.table:
            place = ", ".join(f"{name} = {_shown(row.get(name))}" for name in varying)
            groups.setdefault(place, []).append(row)
        self.lines_: list[Any] = []
        for place, rows in groups.items():
            rows = sorted(rows, key=lambda row: row[self.param])
            y: Any
            x, y = ([row[name] for row in rows] for name in (self.param, self.score))
            line, = self.ax_.plot(x, y, **{"marker": "o", "markersize": 4, "label": literal(place) or "_", **kwargs})
            # Bands of many curves hide one another: only the best one keeps its own.
            clear = len(groups) <= 3 or any(row is self.best for row in rows)
            if self.std and clear and all(is_number(row.get(self.std)) for row in rows):
                y, std = np.array(y), np.array([row[self.std] for row in rows])
                self.ax_.fill_between(x, y - std, y + std, color=line.get_color(), alpha=0.15, linewidth=0)
            self.lines_.append(line)
        place, value = self.best[self.param], self.best[self.score]
        where = ", ".join(f"{name} = {_shown(self.best.get(name))}" for name in (self.param, *varying))
        self.best_, = self.ax_.plot([place], [value], marker="o", markersize=11, markerfacecolor="none",
                                    color="black", markeredgewidth=1.3, linestyle="none",
                                    label=literal(f"best: {where}: {value:.4g}"))
        at = [row[self.param] for row in self.table]
        if _scale([at], ratio=8) == "log":
            powers = np.log2(at)
            self.ax_.set_xscale("log", base=2 if np.allclose(powers, powers.round()) else 10)
        band = f" (band: \u00b1 {self.std})" if self.std else ""
        self.ax_.set(xlabel=literal(self.param + self.unit), ylabel=literal(self.score.replace("_", " ") + band))
        _legend(self.ax_)
        return self


class ReliabilityDisplay:
    """Reliability curve: how often what is predicted with probability p is so.

    Rows are put into bins by their probability; a bin's point is (mean probability, share of rows where it came true),
    with the 95 % score interval (Wilson 1927) of that share. The expected calibration error is the mean of the
    points' distances from the diagonal, by their rows.

    Parameters
    ----------
    predicted, observed : arrays of shape (bins,)
        Mean probability and share of rows of each bin that has a row.
    counts : array of shape (bins,)
        Its rows.
    name : str, optional
        For the legend.
    xlabel, ylabel : str, optional

    Attributes
    ----------
    error : float
        The expected calibration error.
    line_ : matplotlib Line2D
    interval_ : matplotlib LineCollection
    diagonal_ : matplotlib Line2D or None
        None where the Axes had one.
    ax_, figure_ : matplotlib Axes, Figure
    """

    def __init__(self, predicted: ArrayLike, observed: ArrayLike, counts: ArrayLike, *, name: str | None = None,
                 xlabel: str = "predicted probability", ylabel: str = "observed share of rows") -> None:
        self.predicted, self.observed = np.asarray(predicted, dtype=float), np.asarray(observed, dtype=float)
        self.counts = np.asarray(counts)
        self.name, self.xlabel, self.ylabel = name, xlabel, ylabel
        self.error = float(np.average(abs(self.predicted - self.observed), weights=self.counts))

    @classmethod
    def from_estimator(cls, estimator: Any, X: MatrixLike, y: ArrayLike, *, n_bins: int = 10,
                       strategy: Literal["uniform", "quantile"] = "uniform", pos_label: Any = None,
                       name: str | None = None, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the reliability of a classifier's probabilities on labelled rows.

        Parameters
        ----------
        estimator : Model or classifier
            With `predict_proba`, and `classes` or `classes_`.
        X, y : arrays of shape (m, n) and (m,)
        n_bins, strategy, pos_label, name, ax, **kwargs
            As in `from_predictions`.
        """
        if not hasattr(estimator, "predict_proba"):
            raise ValueError(f"{type(estimator).__name__} has no predict_proba: train it with probability=True")
        name = name or _name(estimator)
        return cls.from_predictions(y, estimator.predict_proba(X), classes=_classes(estimator), n_bins=n_bins,
                                    strategy=strategy, pos_label=pos_label, name=name, ax=ax, **kwargs)

    @classmethod
    def from_predictions(cls, y_true: ArrayLike, y_prob: ArrayLike, *, classes: ArrayLike | None = None,
                         n_bins: int = 10, strategy: Literal["uniform", "quantile"] = "uniform", pos_label: Any = None,
                         name: str | None = None, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the reliability of probabilities, by scikit-learn's `calibration_curve`.

        Parameters
        ----------
        y_true : array of shape (m,)
            Labels.
        y_prob : array of shape (m,) or (m, n_classes)
            Probability of classes[1], or of each class.
        classes : array of shape (n_classes,), optional
            Default: the different labels, ascending.
        n_bins : int
        strategy : {"uniform", "quantile"}
            Bins of equal width, or of about equally many rows.
        pos_label : label, optional
            The class whose probability is drawn. Default: classes[1]; with more than two classes the probability of
            the predicted class is held against whether it is the label.
        name, ax, **kwargs
            For the legend, and as in `plot`.

        Raises
        ------
        ValueError
            For probabilities outside [0, 1], unknown labels, shapes that do not fit, or other words.
        """
        y, p = np.asarray(y_true), np.asarray(y_prob, dtype=np.float64)
        classes = np.unique(y) if classes is None else np.asarray(classes)
        _check_scores("y_prob", p, y, classes)
        _require_known(np.where(np.isin(y, classes), 0, -1), y)
        if not ((p >= 0) & (p <= 1)).all():
            raise ValueError(f"y_prob: {p[~((p >= 0) & (p <= 1))][0]} is not a probability")
        if p.ndim == 1:
            p = np.column_stack((1 - p, p))
        if pos_label is None and len(classes) > 2:
            true, p = classes[p.argmax(axis=1)] == y, p.max(axis=1)
            labels = {"xlabel": "probability of the predicted class", "ylabel": "share of rows predicted right"}
        else:
            place = 1 if pos_label is None else np.flatnonzero(classes == pos_label)
            if not np.size(place):
                raise ValueError(f"pos_label = {pos_label!r} is not among the classes")
            label = classes[place].item()
            true, p = y == label, p[:, place].ravel()
            labels = {"xlabel": f"predicted probability of class {label}", "ylabel": f"share of rows of class {label}"}
        counts, predicted, observed = reliability(true, p, n_bins, strategy)
        return cls(predicted, observed, counts, name=name, **labels).plot(ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw onto `ax`, or a new figure; **kwargs are for the curve: what matplotlib's Line2D takes."""
        self.ax_, self.figure_ = _axes(ax, (5.0, 5.0))
        self.diagonal_: Any = None
        if not any(line.get_gid() == "diagonal" for line in self.ax_.lines):
            # Outside the cycle of colours.
            self.diagonal_, = self.ax_.plot([0, 1], [0, 1], color=GREY, linewidth=0.9, linestyle="-", gid="diagonal",
                                            label="perfectly calibrated")
        name = name if name is not None else self.name
        error = f"calibration error {self.error:.3f}"
        label = literal(f"{name}: {error}" if name else error)
        self.line_, = self.ax_.plot(self.predicted, self.observed,
                                    **{"marker": "o", "markersize": 5, "label": label, **kwargs})
        low, high = wilson(self.observed, self.counts)
        self.interval_ = self.ax_.vlines(self.predicted, low, high, color=self.line_.get_color(), linewidth=1,
                                         alpha=0.6)
        self.ax_.set(xlabel=literal(self.xlabel), ylabel=literal(f"{self.ylabel} (bars: 95 % interval)"),
                     aspect="equal", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        _legend(self.ax_)
        return self


class CriticalDifferenceDisplay:
    """Mean ranks of methods over sets, and which of them Nemenyi's test does not tell apart (Demsar 2006).

    Parameters
    ----------
    methods : sequence of str
    ranks : array of shape (methods,)
        1 is the best.
    critical : float
        Nemenyi's critical difference: mean ranks that are at most this far apart are joined by a bar.
    title : str, optional

    Attributes
    ----------
    groups : list of tuple of int
        Places in the order of the ranks, first and last, of the methods under each bar.
    bars_ : list of matplotlib Line2D
    labels_ : list of matplotlib Text
        In the order of the ranks.
    ax_, figure_ : matplotlib Axes, Figure
    """

    def __init__(self, methods: Sequence[str], ranks: ArrayLike, critical: float, *, title: str | None = None) -> None:
        self.ranks = np.asarray(ranks, dtype=np.float64)
        if len(methods) < 2 or self.ranks.shape != (len(methods),) or not np.isfinite(self.ranks).all():
            raise ValueError(f"ranks of shape {self.ranks.shape} for {len(methods)} methods: give a finite one each, "
                             "of two methods at least")
        self.methods, self.critical, self.title = list(methods), float(critical), title
        self.order = np.argsort(self.ranks, kind="stable")
        self.groups = _groups(self.ranks[self.order], self.critical)

    @classmethod
    def from_comparison(cls, found: Comparison, *, metric: str | None = None, ax: Any = None) -> Self:
        """Draw the mean ranks of a `marginlinear.compare.Comparison`, by its first metric or another one."""
        metric = found.metrics[0] if metric is None else metric
        if metric not in found.metrics:
            raise ValueError(f"metric = {metric!r} was not measured: give {' | '.join(found.metrics)}")
        ranking = found.ranking(metric)
        if ranking is None:
            shared = counted(len(found.shared_means(metric, found.methods)), "set")
            raise ValueError(f"{shared} with {metric} of all methods: mean ranks need more of them, and two methods")
        verdict = "they differ" if ranking.differs else "no difference is found"
        title = f"{TITLES[metric]} over {ranking.sets} sets; Friedman p = {ranking.p:.2g}: {verdict}"
        return cls(found.methods, ranking.ranks, ranking.critical, title=title).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw onto `ax`, or a new figure."""
        self.ax_, self.figure_ = _axes(ax)
        k, half = len(self.methods), (len(self.methods) + 1) // 2
        low, high = math.floor(self.ranks.min()), math.ceil(self.ranks.max())
        high = max(high, low + 1, math.ceil(low + self.critical) if low + self.critical <= k else 0)
        wide = (high - low) * 0.04
        self.ax_.set(xlim=(low, high), ylim=(-(0.6 + 0.32 * len(self.groups) + 0.5 * half), 0.9))
        self.ax_.xaxis.set_ticks_position("top")
        self.ax_.xaxis.set_label_position("top")
        self.ax_.spines[["left", "right", "bottom"]].set_visible(False)
        self.ax_.spines["top"].set(visible=True, position=("data", 0))
        self.ax_.set_yticks([])
        self.ax_.grid(False)
        self.ax_.set_xticks(range(low, high + 1))
        if self.critical <= high - low:
            self.ax_.plot([low, low + self.critical], [0.7, 0.7], color="black", linestyle="-", marker="|")
        self.ax_.text(low, 0.78, f"critical difference {self.critical:.3g}", ha="left", va="bottom", fontsize="small")
        self.bars_ = [self.ax_.plot([self.ranks[self.order[first]], self.ranks[self.order[last]]],
                                    [-0.25 - 0.32 * at] * 2, color=COLOURS[0], linestyle="-", linewidth=3.5,
                                    solid_capstyle="butt")[0] for at, (first, last) in enumerate(self.groups)]
        self.labels_: list[Any] = []
        for place, at in enumerate(self.order):
            left = place < half
            depth = place if left else k - 1 - place
            y, end = -(0.5 + 0.32 * len(self.groups) + 0.5 * depth), low - wide if left else high + wide
            self.ax_.plot([self.ranks[at], self.ranks[at], end], [0, y, y], color=GREY, linestyle="-", linewidth=1,
                          clip_on=False, zorder=1)
            label = f"{literal(self.methods[at])}  {self.ranks[at]:.2f} " if left else (
                f" {self.ranks[at]:.2f}  {literal(self.methods[at])}")
            self.labels_.append(self.ax_.text(end, y, label, ha="right" if left else "left", va="center",
                                              clip_on=False))
        if self.title:
            self.ax_.set_title(literal(self.title))
        return self


def _groups(ranks: FloatArray, critical: float) -> list[tuple[int, int]]:
    """(first, last) of the longest runs of ascending ranks of which the ends are at most `critical` apart."""
    found: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = int(np.searchsorted(ranks, ranks[first] + critical, side="right")) - 1
        if last > first and not (found and found[-1][1] >= last):
            found.append((first, last))
    return found


def estimator_margins(estimator: Any, X: MatrixLike, y: Any, normalise: bool = True,
                      threads: int | None = None) -> tuple[FloatArray, float | None, Literal["score", "votes"]]:
    """(margins of shape (m,), what normalises them or None, "score" or "votes") of a Model or a classifier.

    The norm is looked for only if `normalise`.
    """
    estimator, X = _last_step(estimator, X)
    model = getattr(estimator, "model_", estimator)  # what an estimator of marginlinear.sklearn holds
    if isinstance(model, Model):
        model.require_features(X)
        places, _, margins = evaluate(model, X, y, threads)
        _require_known(places, y)
        norm = margin_norm(model, threads) if normalise else None
        return margins, norm, "votes" if model.voted else "score"
    classes = _classes(estimator)
    if getattr(estimator, "decision_function_shape", None) == "ovo" and len(classes) > 2:
        raise ValueError(f"{type(estimator).__name__} has scores of pairs of classes: set "
                         "decision_function_shape='ovr'")
    margins = score_margins(estimator.decision_function(X), y, classes)
    # The rows of SVC's coef_ are pairs of classes, its scores their votes.
    of_pairs = hasattr(estimator, "decision_function_shape") and len(classes) > 2
    coef = getattr(estimator, "coef_", None) if normalise and not of_pairs else None
    return margins, None if coef is None else _coef_norm(coef, classes), "score"


def score_margins(scores: ArrayLike, y: ArrayLike, classes: AnyArray) -> FloatArray:
    """Margins of the labels y, float64 array of shape (m,), under scores of shape (m,) or (m, n_classes)."""
    scores, y = np.asarray(scores, dtype=np.float64), np.asarray(y)
    _check_scores("y_score", scores, y, classes)
    places = places_in(classes, y)
    _require_known(places, y)
    if scores.ndim == 1:
        return np.where(places == 1, scores, -scores)
    return margins_of(np.ascontiguousarray(scores), places.astype(np.int32))


def cumulative(margins: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(margins in rising order, share of the rows up to each), of many rows only STEPS points."""
    order = np.argsort(margins, kind="stable")
    x, shares = margins[order], np.cumsum(weights[order])
    shares /= shares[-1]
    if len(x) > STEPS:
        kept = np.unique(np.linspace(0, len(x) - 1, STEPS).round().astype(np.intp))
        x, shares = x[kept], shares[kept]
    return np.concatenate((x[:1], x)), np.concatenate(([0.0], shares))


def histogram_edges(margins: FloatArray, bins: int | ArrayLike | None = None) -> FloatArray:
    """The edges of numpy.histogram; by default of 40 intervals, or of one for each vote where margins are integers."""
    low, high = margins.min(), margins.max()
    if bins is None and low > -100 and high < 100 and (margins == np.round(margins)).all():
        return np.arange(low, high + 2) - 0.5
    if low == high:
        half = abs(low) / 2 or 0.5
        return np.histogram_bin_edges(margins, 40 if bins is None else bins, (low - half, high + half))
    return np.histogram_bin_edges(margins, 40 if bins is None else bins)


def reliability(true: AnyArray, p: FloatArray, n_bins: int = 10,
                strategy: Literal["uniform", "quantile"] = "uniform") -> tuple[IntArray, FloatArray, FloatArray]:
    """(rows, mean p, share of true rows) of each bin of p that has a row."""
    if not isinstance(n_bins, (int, np.integer)) or n_bins < 1:
        raise ValueError(f"n_bins = {n_bins!r} is not allowed: give an integer in [1, inf)")
    if strategy not in ("uniform", "quantile"):
        raise ValueError(f"strategy = {strategy!r} is not allowed: give 'uniform' or 'quantile'")
    levels = np.linspace(0, 1, n_bins + 1)[1:-1]
    inner = levels if strategy == "uniform" else np.quantile(p, levels)
    which = np.searchsorted(inner, p)
    counts = np.bincount(which, minlength=n_bins)
    there = counts > 0
    sums, hits = np.bincount(which, p, minlength=n_bins), np.bincount(which, true, minlength=n_bins)
    return counts[there], sums[there] / counts[there], hits[there] / counts[there]


def wilson(share: FloatArray, count: AnyArray, z: float = 1.959964) -> tuple[FloatArray, FloatArray]:
    """Ends of the score interval of a share of `count` trials, at 95 % unless z says otherwise."""
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count**2)) / (1 + z * z / count)
    return centre - half, centre + half


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _deviation(scores: Iterable[Any]) -> float:
    """Standard deviation of the numbers among the scores, NaN for none."""
    scores = [score for score in scores if is_number(score)]
    return float(np.std(scores)) if scores else math.nan


def _name(estimator: Any) -> str:
    return estimator.solver if isinstance(estimator, Model) and estimator.solver else type(estimator).__name__


def _classes(estimator: Any) -> AnyArray:
    for name in ("classes_", "classes"):
        if hasattr(estimator, name):
            return np.asarray(getattr(estimator, name))
    raise ValueError(f"{type(estimator).__name__} has no classes_: it is not a fitted classifier")


def _last_step(estimator: Any, X: MatrixLike) -> tuple[Any, Any]:
    """What holds the weights, and the rows that it is given: the best of a search, the last step of a pipeline."""
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
            estimator = estimator.steps[-1][1]
        else:
            return estimator, X


def _coef_norm(coef: Any, classes: AnyArray) -> float | None:
    coef = coef.toarray() if hasattr(coef, "toarray") else np.asarray(coef)
    if len(coef) not in (1, len(classes)):
        return None
    return margin_norm(Model(coef.T, classes))


def _check_scores(name: str, scores: AnyArray, y: Any, classes: AnyArray) -> None:
    wanted = (len(y),) if scores.ndim == 1 else (len(y), len(classes))
    if scores.shape != wanted or (scores.ndim == 1 and len(classes) != 2):
        raise ValueError(f"{name} has shape {scores.shape} for {len(y)} labels and {len(classes)} classes")


def _require_known(places: IntArray, y: ArrayLike) -> None:
    if (places < 0).any():
        label = np.asarray(y)[places < 0][0]
        raise ValueError(f"y: label {label} is not among the classes of the model: leave its rows out")


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ImportError(needed("matplotlib is needed", "plot")) from None
    return matplotlib


def _scale(values: Any, ratio: float = 10) -> str:
    """The scale on which all of some sequences of numbers can be told apart: "log" or "linear"."""
    values = np.concatenate([np.asarray(part, dtype=float) for part in values])
    values = values[np.isfinite(values)]
    return "log" if len(values) and values.min() > 0 and values.max() >= ratio * values.min() else "linear"


def literal(text: object) -> str:
    """Text as it stands, wrapped: `$` starts no formula, and a leading `_` does not keep it out of the legend."""
    text = textwrap.fill(str(text), WRAP).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _legend(ax: Any) -> None:
    """The legend: above the Axes, where it hides nothing, if the figure makes room for it; else inside."""
    if ax.figure.get_layout_engine() is None:
        ax.legend(loc="best", fontsize="small")
        return
    texts = ax.get_legend_handles_labels()[1]

    def width(columns: int) -> int:
        # Beside its longest text a column has the line and the gaps.
        return sum(10 + max(map(len, part)) for part in np.array_split(texts, columns))

    columns = max(n for n in range(1, len(texts) + 1) if n == 1 or width(n) <= LINE) if len(texts) > 3 else 1
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=columns, handlelength=3,
              fontsize="small", frameon=False)


def _axes(ax: Any, size: tuple[float, float] = STYLE["figure.figsize"]) -> tuple[Any, Any]:
    """(Axes, Figure): those given, or new ones."""
    ax = _subplots(size) if ax is None else ax
    return ax, ax.figure


def _subplots(size: tuple[float, float], rows: int = 1) -> Any:
    """Axes of a figure of pyplot's, which notebooks show, in the style of this module."""
    with style():
        from matplotlib import pyplot

        return pyplot.subplots(rows, 1, sharex=True, figsize=size)[1]
