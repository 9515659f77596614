"""What is compared: a method with the values that are tried of its parameters, of a text of `specs`."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from marginlinear import params as P
from marginlinear import registry
from marginlinear.api import fit_model
from marginlinear.compare.grids import grid_of
from marginlinear.compare.measures import ERRORS, Predictions, measure
from marginlinear.compare.specs import SKLEARN, parse_spec
from marginlinear.selection import grid as G
from marginlinear.selection.cross_validation import Fits, Folds, judged
from marginlinear.selection.metrics import pooled
from marginlinear.status import fell_short
from marginlinear.threads import Cancelled

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from marginlinear._typing import AnyArray, FloatArray, IntArray
    from marginlinear.compare.specs import Spec
    from marginlinear.registry import Method

    # (places in the classes or predictions, scores or None) of rows.
    Predict = Callable[[Any], "tuple[AnyArray, FloatArray | None]"]

NOT_STATED = "not stated"


class Task(NamedTuple):
    """A training part, and how parameters are chosen in it.

    Attributes
    ----------
    X, y : rows, and their places in `classes`, or targets
    classes : array of shape (k,), or None of a regression
        The labels of the whole set.
    fold_of : int array of shape (m,)
        The inner fold of each row.
    metric : str
        What chooses.
    seed, threads : int
    cancel : threading.Event or None
        Once set, what is at work ends with Cancelled; threads is then 1.
    """

    X: Any
    y: AnyArray
    classes: AnyArray | None
    fold_of: IntArray
    metric: str
    seed: int
    threads: int
    cancel: threading.Event | None

    @property
    def folds(self) -> int:
        return int(self.fold_of.max()) + 1

    def go_on(self) -> None:
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled


class Tried(NamedTuple):
    """A point of the grid: its score in the inner folds, NaN for none, and how many of its fits fell short."""

    params: dict[str, Any]
    score: float
    short: int


class Fitted(NamedTuple):
    """A method with its parameters, trained on all of a training part.

    Attributes
    ----------
    predict : callable
        (places in the classes of the set, or predictions; scores, or None) of rows.
    status : str
        As of an Info, or "not stated" by a method that does not say how it ended.
    certificate, allowed, objective : float or None
    n_iter : int or None
    margins : callable or None
        Margins of rows, divided by the norm of the weights: margins(X, y).
    probabilities : callable or None
        Probabilities of the classes of the set, of rows.
    """

    predict: Predict
    status: str
    certificate: float | None = None
    allowed: float | None = None
    objective: float | None = None
    n_iter: int | None = None
    margins: Callable[[Any, AnyArray], FloatArray] | None = None
    probabilities: Callable[[Any], FloatArray] | None = None

    @property
    def certified(self) -> bool:
        """Whether the fit is what the method says that it is, as far as anything is known of it."""
        return not fell_short(self.status) or self.status == NOT_STATED


class Contestant(Protocol):
    """One of the methods of a comparison."""

    label: str

    @property
    def key(self) -> dict[str, Any]:
        """All that its results depend on, but the rows: as JSON has it."""

    @property
    def described(self) -> str:
        """What it is, and what is tried, in a line."""

    @property
    def regression(self) -> bool | None:
        """Whether it learns numbers; None: what it is given."""

    def unfit(self, task: Task) -> str | None:
        """Why it does not fit the rows; None where it does."""

    def points(self, task: Task) -> list[dict[str, Any]]:
        """The points of its grid for these rows, the first of equally good ones being taken."""

    def search(self, task: Task, points: list[dict[str, Any]]) -> list[Tried]:
        """What the inner folds say of each of the points."""

    def fit(self, task: Task, point: Mapping[str, Any], probability: bool) -> Fitted:
        """Trained on all rows; `probability`: with probabilities."""


class Registered:
    """A method of the registry.

    Parameters
    ----------
    method : Method
    fixed : dict
        Values that do not vary.
    grid : dict
        Names and lists of values.
    label : str
    """

    def __init__(self, method: Method, fixed: Mapping[str, Any], grid: G.Grid, label: str,
                 lacking: Sequence[str] = ()) -> None:
        self.method, self.fixed, self.grid, self.label, self.lacking = method, dict(fixed), grid, label, lacking

    @property
    def key(self) -> dict[str, Any]:
        return {"method": self.method.name, "fixed": _plain(self.fixed), "grid": self.grid}

    @property
    def described(self) -> str:
        return described(self.method.name, self.fixed, self.grid)

    @property
    def regression(self) -> bool:
        return self.method.regression

    def unfit(self, task: Task) -> str | None:
        if self.lacking:
            return f"{self.method.name} has no {', '.join(self.lacking)}"
        return None

    def points(self, task: Task) -> list[dict[str, Any]]:
        return G.points_of(self.grid, self.method, self.fixed)

    def search(self, task: Task, points: list[dict[str, Any]]) -> list[Tried]:
        params = {**self.fixed, P.SEED.name: task.seed, P.THREADS.name: task.threads}
        folds = Folds(task.X, task.y, task.folds, task.seed, None, None, False, self.method, task.fold_of)
        fits = Fits(self.method, folds, params, points, _axis(points, self.method), cancel=task.cancel)
        scores, short = np.full((len(points), folds.n), math.nan), [0] * len(points)
        for chain in fits.run(fits.missing(())):
            for p, fold, found in chain:
                scores[p, fold] = chosen_by(task.metric, folds.places[found.rows], found.places, found.scores)
                short[p] += fell_short(found.info.status)
        task.go_on()
        return [Tried(point, pooled(task.metric, scores[p], folds.sizes), short[p]) for p, point in enumerate(points)]

    def fit(self, task: Task, point: Mapping[str, Any], probability: bool) -> Fitted:
        model = fit_model(task.X, task.y, solver=self.method.name, cancel=task.cancel, probability=probability,
                          **{**self.fixed, **point, P.SEED.name: task.seed, P.THREADS.name: 1})
        codes = None if task.classes is None else np.arange(len(task.classes))
        info = model.info

        def predict(X: Any) -> tuple[AnyArray, FloatArray | None]:
            return judged(model, model.decide(X, threads=1), codes)

        def probabilities(X: Any) -> FloatArray:
            assert codes is not None
            of_all = np.zeros((len(X) if isinstance(X, np.ndarray) else X.shape[0], len(codes)))
            of_all[:, model.classes] = model.proba_of(model.decide(X, threads=1))
            return of_all

        _, value, allowed = info.criterion
        return Fitted(predict, info.status, value, allowed, info.objective, info.n_iter,
                      probabilities=probabilities if probability else None)


def _axis(points: Sequence[Mapping[str, Any]], method: Method) -> str | None:
    """Along which fits go on from each other, of points that need not be all combinations."""
    grid: dict[str, list[Any]] = {}
    for point in points:
        for name, value in point.items():
            if value not in grid.setdefault(name, []):
                grid[name].append(value)
    return G.chain_axis(grid, method)


def chosen_by(metric: str, y: AnyArray, places: AnyArray, scores: FloatArray | None) -> float:
    """The value of a metric that chooses; ValueError where the method lacks what it asks for."""
    value = measure(metric, Predictions(y, places, scores, None))
    if value is None:
        raise ValueError(f"{metric} asks for scores of the classes, which the method does not give: choose by another")
    return value


def best_of(tried: Sequence[Tried], metric: str) -> Tried:
    """The best point: among those all of whose fits are certified, where there are such; of equal ones the first."""
    some = [one for one in tried if not math.isnan(one.score)]
    if not some:
        raise ValueError(f"{metric} has no value in any inner fold")
    certified = [one for one in some if not one.short] or some
    better = -1 if metric in ERRORS else 1
    return max(certified, key=lambda one: better * one.score)


def described(name: str, fixed: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]) -> str:
    """A contestant in a line."""
    parts = [f"{key.rstrip('_')} = {_word(value)}" for key, value in fixed.items()]
    parts += [f"{key.rstrip('_')} in {_words(values)}" for key, values in grid.items()]
    return f"{name}: {'; '.join(parts)}" if parts else f"{name}: its defaults"


def _words(values: Sequence[Any]) -> str:
    return f"{{{', '.join(map(_word, values))}}}"


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
            for name, value in sorted(values.items())}


def contestant_of(text: str, common: Mapping[str, Any] | None = None, overrides: Mapping[str, str] | None = None,
                  ) -> Contestant:
    """The Contestant of a text.

    Parameters
    ----------
    text : str
    common : dict
        Values for all methods of marginlinear that have these parameters, where their texts do not name them.
    overrides : dict
        Label -> a grid as text, as of margin-compare --grid: it adds to, and takes the place of, what the text names.

    Raises
    ------
    ValueError
        Names the text, and what is wrong with it.
    """
    spec = parse_spec(text)
    try:
        if spec.external:
            from marginlinear.compare.external import liblinear_of, sklearn_of

            if (spec.label or spec.name) in (overrides or {}):
                raise ValueError("a grid beside it is for methods of marginlinear: give the values in its text")
            made: Contestant = (sklearn_of if spec.name.startswith(SKLEARN) else liblinear_of)(spec)
            return made
        return registered_of(spec, common or {}, (overrides or {}).get(spec.label or spec.name))
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from error


def registered_of(spec: Spec, common: Mapping[str, Any], override: str | None = None) -> Registered:
    """The Registered of a text."""
    method = registry.get(spec.name)
    if method.one_class:
        raise ValueError(f"{method.name} learns where the rows are, without labels: there is nothing to compare")
    run = {p.name: p for p in (*method.run, *method.takes)}
    grid: G.Grid = {}
    fixed: dict[str, Any] = {}
    for key, text in spec.values:
        param = _param(key, run)
        if param is not None:
            fixed[param.name] = param.parse(text)
        else:
            grid |= _once(G.parse_grid(f"{key}={text}", method), grid)
    if override is not None:
        grid |= G.parse_grid(override, method)
    # Single values do not vary, so that what depends on them is known.
    fixed |= {name: values[0] for name, values in grid.items() if len(values) == 1}
    grid = {name: values for name, values in grid.items() if len(values) > 1}
    lacking = []
    for name, value in common.items():
        if name in fixed or name in grid:
            continue
        if name in run:
            fixed[name] = run[name].check(value)
        elif name == P.KERNEL.name:
            lacking.append("kernel")
    if not spec.defaults:
        grid = {**grid_of(method, {**fixed, **grid}), **grid}
    made = Registered(method, fixed, grid, spec.label or method.name, lacking)
    if not lacking:
        G.points_of(grid, method, fixed)
    return made


def _param(key: str, run: Mapping[str, P.Param]) -> P.Param | None:
    """The parameter of every run that is called so: it may be fixed, not searched. None for those of the grid."""
    searched = P.BIAS.name
    return next((p for p in run.values() if key in (p.name, p.name.rstrip("_"), p.flag.removeprefix("--"))
                 and p in P.RUN and p.name != searched), None)


def _once(found: G.Grid, grid: G.Grid) -> G.Grid:
    twice = next((name for name in found if name in grid), None)
    if twice is not None:
        raise ValueError(f"{twice.rstrip('_')} stands there twice")
    return found


def key_text(contestant: Contestant) -> str:
    return json.dumps(contestant.key, sort_keys=True, default=str)

