"""Methods of the registry in a comparison: fits go on from each other along C, on shared kernel rows."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from marginlinear import params as P
from marginlinear import registry
from marginlinear.api import fit_model
from marginlinear.compare.contestants import Fitted, Tried, chosen_by, described
from marginlinear.compare.grids import grid_of
from marginlinear.margins import margin_norm
from marginlinear.selection import grid as G
from marginlinear.selection.cross_validation import Fits, Folds, judged
from marginlinear.selection.metrics import pooled
from marginlinear.status import fell_short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from marginlinear._typing import AnyArray, FloatArray, IntArray
    from marginlinear.compare.contestants import Task
    from marginlinear.compare.specs import Spec
    from marginlinear.model import Model
    from marginlinear.registry import Method


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
    lacking : sequence of str
        What was asked of all methods, and this one does not have: it does not fit.
    """

    def __init__(self, method: Method, fixed: Mapping[str, Any], grid: G.Grid, label: str,
                 lacking: Sequence[str] = ()) -> None:
        self.method, self.fixed, self.grid, self.label, self.lacking = method, dict(fixed), grid, label, lacking

    def __reduce__(self) -> tuple[Any, ...]:
        # A Method is of functions that only its own module can make.
        return _remade, (self.method.name, self.fixed, self.grid, self.label, self.lacking)

    @property
    def key(self) -> dict[str, Any]:
        return {"method": self.method.name, "fixed": _plain(self.fixed), "grid": self.grid}

    @property
    def described(self) -> str:
        return described(self.method.name, self.fixed, self.grid)

    @property
    def regression(self) -> bool:
        return self.method.regression

    @property
    def power(self) -> float:
        return 2.0 if P.KERNEL.name in {**self.fixed, **self.grid} else 1.0

    def unfit(self, task: Task) -> str | None:
        if self.lacking:
            return f"{self.method.name} has no {', '.join(self.lacking)}"
        return None

    def points(self, task: Task) -> list[dict[str, Any]]:
        return G.points_of(self.grid, self.method, self.fixed)

    def chains(self, points: list[dict[str, Any]]) -> list[list[int]]:
        return G.chains_of(points, _axis(points, self.method))

    def search(self, task: Task, points: list[dict[str, Any]]) -> list[Tried]:
        try:
            return self._searched(task, points)
        except ValueError as error:
            # As of nu, of which a part of the values is none for these rows: what can be tried is.
            tried = [self._alone(task, point) for point in points]
            if all(math.isnan(one.score) for one in tried):
                raise error from None
            return tried

    def _alone(self, task: Task, point: dict[str, Any]) -> Tried:
        """A point by itself: one that the method refuses has no score."""
        try:
            return self._searched(task, [point])[0]
        except ValueError:
            return Tried(point, math.nan, 0)

    def _searched(self, task: Task, points: list[dict[str, Any]]) -> list[Tried]:
        params = {**self.fixed, P.SEED.name: task.seed, P.THREADS.name: task.threads}
        folds = Folds(task.X, task.y, task.folds, task.seed, None, None, False, self.method, task.fold_of)
        fits = Fits(self.method, folds, params, points, _axis(points, self.method), cancel=task.cancel)
        at_work = task.at_work
        scores, short = np.full((len(points), len(at_work)), math.nan), [0] * len(points)
        for chain in fits.run([(fold, chain) for fold, chain in fits.missing(()) if fold in at_work]):
            for p, fold, found in chain:
                scores[p, fold] = chosen_by(task.metric, folds.places[found.rows], found.places, found.scores)
                short[p] += fell_short(found.info.status)
        task.go_on()
        sizes = folds.sizes[:len(at_work)]
        return [Tried(point, pooled(task.metric, scores[p], sizes), short[p]) for p, point in enumerate(points)]

    def fit(self, task: Task, point: Mapping[str, Any], probability: bool) -> Fitted:
        model = fit_model(task.X, task.y, solver=self.method.name, cancel=task.cancel, probability=probability,
                          **{**self.fixed, **point, P.SEED.name: task.seed, P.THREADS.name: 1})
        codes = None if task.classes is None else np.arange(len(task.classes))
        info = model.info

        def predict(X: Any) -> tuple[AnyArray, FloatArray | None]:
            return judged(model, model.decide(X, threads=1), codes)

        _, value, allowed = info.criterion
        return Fitted(predict, info.status, value, allowed, info.objective, info.n_iter,
                      None if codes is None or model.voted else partial(margins_of, model),
                      partial(probabilities_of, model, codes) if probability and codes is not None else None)


def probabilities_of(model: Model, codes: IntArray, X: Any) -> FloatArray:
    """Those of all classes, which are numbered, of which the model may know some."""
    found = model.proba_of(model.decide(X, threads=1))
    of_all = np.zeros((len(found), len(codes)))
    of_all[:, model.classes] = found
    return of_all


def margins_of(model: Model, X: Any, y: AnyArray) -> FloatArray | None:
    """Margins of rows and their places among all classes, by the norm of the weights, of the rows whose class the model
    knows; None without a norm."""
    norm = margin_norm(model, 1)
    places = model.places_in_classes(y)
    if not norm or not (places >= 0).any():
        return None
    found: FloatArray = model.margins_of(model.decide(X, threads=1), np.maximum(places, 0))[places >= 0] / norm
    return found


def _remade(name: str, *rest: Any) -> Registered:
    return Registered(registry.get(name), *rest)


def _axis(points: Sequence[Mapping[str, Any]], method: Method) -> str | None:
    """Along which fits go on from each other, of points that need not be all combinations."""
    grid: dict[str, list[Any]] = {}
    for point in points:
        for name, value in point.items():
            if value not in grid.setdefault(name, []):
                grid[name].append(value)
    return G.chain_axis(grid, method)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values for JSON: a kernel's function by its name."""
    return {name: value if isinstance(value, (bool, int, float, str, type(None))) else
            f"{value.__module__}.{value.__qualname__}" for name, value in sorted(values.items())}


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
    if spec.paper:
        grid, fixed = _of_paper(method, grid, fixed)
    if override is not None:
        grid |= G.parse_grid(override, method)
    # Single values do not vary, so that what depends on them is known.
    fixed |= {name: values[0] for name, values in grid.items() if len(values) == 1}
    grid = {name: values for name, values in grid.items() if len(values) > 1}
    if fixed.get(P.KERNEL.name, common.get(P.KERNEL.name)) == "precomputed":
        raise ValueError("kernel = 'precomputed' has no rows to be split: give the rows, and a function as the kernel")
    lacking = []
    for name, value in common.items():
        if name in fixed or name in grid:
            continue
        if name in run:
            fixed[name] = run[name].check(value)
        elif name == P.KERNEL.name:
            lacking.append("kernel")
    if not (spec.defaults or spec.paper):
        grid = {**grid_of(method, {**fixed, **grid}), **grid}
    made = Registered(method, fixed, grid, spec.label or method.name, lacking)
    if not lacking:
        G.points_of(grid, method, fixed)
    return made


def _of_paper(method: Method, grid: G.Grid, fixed: dict[str, Any]) -> tuple[G.Grid, dict[str, Any]]:
    """(grid, fixed) with what the method's paper has of all else: its grid, or else its values."""
    paper = method.paper
    tried = G.parse_grid(paper.grid, method) if paper is not None and paper.grid else {}
    tried = method.others(tried, [*grid, *fixed])
    if paper is None or not (paper.grid or paper.values):
        method.with_paper({})  # which says why there is nothing
    else:
        fixed = {**method.others(paper.values, [*tried, *grid, *fixed]), **fixed}
    return {**tried, **grid}, fixed


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
