"""Cross-validation, and the search for parameters by it.

Rows go to stratified folds, those of a regression to random ones. A fold's training rows are picked once and serve all
fits of the fold. Along one axis of the grid, C where it has one, a fit goes on from the last one's model: such chains
run on threads, each fit on one. What they find does not depend on the number of threads.

Of a kernel, the inner products of all rows are made once where there is room for them: all fits, and the scores of the
rows held out, read them there, and are what they are without them, bit for bit.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
import warnings
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear import calibration, registry
from marginlinear import params as P
from marginlinear._version import version
from marginlinear.api import Shared, fit_model, require_no_classes, train
from marginlinear.data import kernels
from marginlinear.data.arrays import is_paged, select_columns, select_rows, shape_of
from marginlinear.data.checks import check_class_weight, row_weights, training_data
from marginlinear.data.folds import folds_of, own_folds
from marginlinear.data.label_sets import LabelSets, are_label_sets, label_sets_of
from marginlinear.data.labels import labels_of
from marginlinear.errors import ConvergenceWarning, renumber_rows
from marginlinear.fitting import require_label_sets, require_stores, resolved
from marginlinear.problem import Summary, counted, listed
from marginlinear.selection import grid as G
from marginlinear.selection.doubling import doubling_grid
from marginlinear.selection.journal import Entries, Journal
from marginlinear.selection.metrics import pooled, score_of
from marginlinear.status import fell_short, keyword, remedies
from marginlinear.store.paging import paged
from marginlinear.threads import default_threads, in_order, worth_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from typing_extensions import Unpack

    from marginlinear._typing import (
        AnyArray,
        ArrayLike,
        ClassWeight,
        FloatArray,
        IntArray,
        Integer,
        MatrixLike,
        Metric,
        PathLike,
        SearchParameters,
        TargetsLike,
    )
    from marginlinear.model import Model
    from marginlinear.problem import Info
    from marginlinear.registry import Method

    # Called with a point's number, a fold's, and what was found there.
    Report: TypeAlias = Callable[[int, int, "Fold"], object]
    # What `Folds.take` returns.
    Picked: TypeAlias = tuple[AnyArray, Any, AnyArray, dict[str, Any], AnyArray, Any]

LOO = "# folds > # data. Will use # folds = # data instead (i.e., leave-one-out cross validation)"


class Measured(NamedTuple):
    """What a metric has found: its score, and a float64 array of shape (folds,) of those of the folds."""

    score: float
    fold_scores: FloatArray


class _CrossValidation(NamedTuple):
    score: float
    fold_scores: FloatArray
    predictions: AnyArray
    scores: FloatArray
    fold_of: IntArray
    infos: list[Info]
    seconds: float
    probabilities: FloatArray | None
    metrics: dict[str, Measured]


class CrossValidation(Summary, _CrossValidation):
    """What `cross_validate` found.

    Attributes
    ----------
    score : float
        Accuracy, mse, mae, log loss or Brier score of all rows together; of the other metrics the mean over the folds
        that have a value. Of several metrics that of the first.
    fold_scores : float64 array of shape (folds,)
        NaN where a fold has no value: auc of rows of one class, r2 of one target.
    predictions : array of shape (m,)
        The label, or the number, that the fold's model, which has not seen the row, gives it; of several labels a row
        an int8 array of shape (m, n_labels), as `MultiLabelModel.predict` has it.
    scores : float64 array of shape (m,) or (m, n_classes)
        Its scores, as `out_of_fold` has them.
    fold_of : int array of shape (m,)
        The fold, 0 to folds - 1, of each row.
    infos : list of Info
        One a fold.
    seconds : float
    probabilities : float64 array of shape (m, n_classes) or None
        Those of the fold's model; None where it has none.
    metrics : dict
        Name -> (score, fold_scores) of each metric, in the order in which they were given.
    """

    __slots__ = ()

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        low, high = np.nanmin(self.fold_scores), np.nanmax(self.fold_scores)
        short = sum(fell_short(info.status) for info in self.infos)
        sweeps = sum(info.n_iter for info in self.infos)
        others = [(name, f"{found.score:.6g}") for name, found in self.metrics.items()][1:]
        return f"CrossValidation: score {self.score:.6g}", [
            *others,
            ("folds", f"{len(self.infos)}, scores {low:.4g} to {high:.4g}, "
                      f"deviation {np.nanstd(self.fold_scores):.2g}"),
            ("rows", f"{len(self.fold_of):,}, each predicted by a model that has not seen it"),
            ("fits", f"{sweeps:,} sweeps, {self.seconds:.3g} s, {short} not converged")]


class _Search(NamedTuple):
    best_params: dict[str, Any]
    best_score: float
    table: list[dict[str, Any]]
    model: Model | None
    predictions: FloatArray | None
    validation: CrossValidation | None = None


class Search(Summary, _Search):
    """What `search` found.

    Attributes
    ----------
    best_params : dict
        The point of the grid with the best score; of equal ones the first, whose numbers are smallest.
    best_score : float
    table : list of dict
        One entry a point: its parameters, `score`, `metric` (its name), `fold_scores` (list), `n_iter` (sweeps of all
        its folds), `seconds` (of all its fits), `unconverged` (how many of its fits). Of several metrics `score` and
        `fold_scores` are those of the first, and each of the others has its score by its name, as `auc`, and
        `fold_auc`, a list.
    model : Model or None
        Trained on all rows with the best parameters; None without refit.
    predictions : float64 array of shape (m,) or None
        Of a regression over a single point, not resumed: as of CrossValidation.
    validation : CrossValidation or None
        Of a single point, not resumed, where `keep` is given: what `cross_validate` returns.
    """

    __slots__ = ()

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        ranked = sorted((entry["score"] for entry in self.table if math.isfinite(entry["score"])), reverse=True)
        best = listed(self.best_params)
        short, seconds = (sum(entry[name] for entry in self.table) for name in ("unconverged", "seconds"))
        return f"Search: best {best or 'of one point'}, score {self.best_score:.6g}", [
            ("table", f"{counted(len(self.table), 'point')}, scores {ranked[-1]:.4g} to {ranked[0]:.4g}"),
            ("fits", f"{sum(len(entry['fold_scores']) for entry in self.table):,}, {seconds:.3g} s, "
                     f"{short} not converged"),
            ("model", "none: refit=False" if self.model is None else self.model.info.verdict)]


class Fold(NamedTuple):
    """One fold of `out_of_fold`.

    Attributes
    ----------
    rows : int array
        The rows that were held out, ascending.
    places : int array
        Their predictions, as places in the sorted classes of all rows; of a regression float64, the predictions; of
        several labels a row a bool array of shape (rows, n_labels).
    scores : float64 array
    info : Info
    probabilities : float64 array of shape (rows, k) or None
        0 for a class that the model does not know; None where it has none, or nobody asks for them.
    """

    rows: IntArray
    places: AnyArray
    scores: FloatArray
    info: Info
    probabilities: FloatArray | None = None


class Folds:
    """The data, and the training rows of the folds that are at work.

    Attributes
    ----------
    classes : array of shape (k,);  places : int array of shape (m,)
        The classes of all rows, and each row's place among them; of a regression None, and the targets. Of several
        labels a row all labels, and a bool array of shape (m, n_labels).
    fold_of : int array of shape (m,)
        Where it is given, 0 to n - 1, it is taken as it is. n may be the fold of each row too, as a caller numbers
        them, and `groups` are rows that go to one fold together.
    """

    def __init__(self, X: Any, y: Any, n: Any, seed: Any, sample_weight: ArrayLike | None,
                 class_weight: ClassWeight | None, square: bool, method: Method,
                 fold_of: IntArray | None = None, groups: ArrayLike | None = None) -> None:
        given = n if np.ndim(n) else None
        n, seed = None if given is not None else P.FOLDS.check(n), P.SEED.check(seed)
        if given is not None and groups is not None:
            raise ValueError("groups and the folds of the rows are both given: folds say already which rows are "
                             "together")
        if method.regression:
            require_no_classes(method, class_weight=class_weight or None)
        X, y, _, _ = training_data(X, y, None, square, regression=method.regression)
        weights = None if sample_weight is None else row_weights(sample_weight, len(y))
        if given is not None:
            fold_of = own_folds(given, len(y))
            n = int(fold_of.max()) + 1
        if n > len(y):
            warnings.warn(LOO, UserWarning, stacklevel=4)
            n = len(y)
        self.X, self.y, self.weights, self.class_weight = X, y, weights, check_class_weight(class_weight)
        self.n, self.square, self.places = n, square, y
        self.classes: Any = None  # of a regression
        self.factors: Mapping[Any, Any] = {}
        self.multilabel = isinstance(y, LabelSets)
        # What rows that a kernel's problem reads together have in common.
        self.groups = self.places
        strata = np.zeros(len(y))
        if self.multilabel:
            self.classes, self.places = y.classes, y.indicator()
            sets, self.groups = y.patterns()
            strata = sets.rarest(self.groups)
        elif not method.regression:
            self._by_class()
            strata = y
        # Of a seed alone they are not told in a log.
        self.chosen = given is not None or groups is not None
        if groups is not None:
            groups = labels_of(groups, "groups")
            if len(groups) != len(y):
                raise ValueError(f"groups has {len(groups)} entries, X has {len(y)} rows: give the group of each row")
        self.fold_of: IntArray = folds_of(strata, n, seed, groups) if fold_of is None else fold_of
        self.sizes = np.bincount(self.fold_of, minlength=n)
        self._lock = threading.Lock()
        self._held: dict[int, Picked] = {}
        self._users: Counter[int] = Counter()

    def _by_class(self) -> None:
        y = self.y
        # By label; "balanced" is counted in each fold.
        self.factors = self.class_weight if isinstance(self.class_weight, dict) else {}
        self.classes, self.places = np.unique(y, return_inverse=True)
        self.groups = self.places
        unknown = [label for label in self.factors if label not in self.classes]
        for label in unknown:
            warnings.warn(f"class label {label} specified in weight is not found", UserWarning, stacklevel=5)
        if len(self.classes) < 2:
            raise ValueError(f"cross-validation needs at least 2 classes, y has {len(self.classes)} "
                             f"(label {self.classes[0]})")

    def expect(self, fold: int, users: int) -> None:
        """So many chains will `take` the fold, and `leave` it."""
        self._users[fold] = users

    def take(self, fold: int) -> Picked:
        """(training rows' numbers, they, their labels, keywords of `train`, held-out rows' numbers, they) of a fold."""
        with self._lock:
            if fold not in self._held:
                self._held[fold] = self._picked(fold)
            return self._held[fold]

    def leave(self, fold: int) -> None:
        with self._lock:
            self._users[fold] -= 1
            if self._users[fold] == 0:
                del self._held[fold]

    def _picked(self, fold: int) -> Picked:
        inside, outside = np.flatnonzero(self.fold_of != fold), np.flatnonzero(self.fold_of == fold)
        labels = self.y[inside]
        others: dict[str, Any] = {"sample_weight": None if self.weights is None else self.weights[inside]}
        if self.multilabel:
            others["class_weight"] = self.class_weight
        elif self.classes is not None:
            there = self.classes[np.unique(self.places[inside])]
            if len(there) < 2:
                cure = "other folds or groups" if self.chosen else "fewer folds, or more rows of the other classes"
                raise ValueError(f"fold {fold + 1} of {self.n} leaves label {there[0]} alone in its training rows: "
                                 f"give {cure}")
            others["class_weight"] = self.class_weight if not self.factors else {
                label: factor for label, factor in self.factors.items() if label in there}
        rows, held_out = select_rows(self.X, inside), select_rows(self.X, outside)
        if self.square:
            rows, held_out = select_columns(rows, inside), select_columns(held_out, inside)
        return inside, rows, labels, others, outside, held_out

    def judged(self, model: Model, scores: FloatArray) -> tuple[AnyArray, FloatArray]:
        """(places, scores) of held-out rows, of their scores by a model, among the classes of all rows."""
        return judged(model, scores, self.classes)

    def score(self, metric: str, found: Fold) -> float:
        """The value of a metric in a fold."""
        return score_of(metric, self.places[found.rows], found.places, found.scores, found.probabilities)

    def probabilities(self, model: Model, scores: FloatArray) -> FloatArray | None:
        """Those of held-out rows, of their scores by a model, among the classes of all rows; None without."""
        if model.calibration is None or self.multilabel:
            return None
        found = np.zeros((len(scores), len(self.classes)))
        found[:, np.searchsorted(self.classes, model.classes)] = model.proba_of(scores)
        return found

    def digest(self) -> str:
        """SHA-256 of rows, labels and weights, and of folds that do not follow from these and a seed."""
        digest = hashlib.sha256()
        arrays = [self.X.indptr, self.X.indices, self.X.data] if hasattr(self.X, "indptr") else [np.asarray(self.X)]
        if self.weights is not None:
            arrays.append(self.weights)
        if self.chosen:
            arrays.append(self.fold_of)
        labels = [self.y.classes, self.y.indptr, self.y.indices] if self.multilabel else [self.y]
        for array in (*arrays, *labels):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
        digest.update(repr(shape_of(self.X)).encode())
        words = sorted((str(label), str(f)) for label, f in self.factors.items()) or self.class_weight
        digest.update(repr(words).encode())
        return digest.hexdigest()


def judged(model: Model, scores: FloatArray, classes: AnyArray | None) -> tuple[AnyArray, FloatArray]:
    """(places, scores) of rows, of their scores by a model, among the sorted classes, of which it may lack some: there
    a column is -inf. Of a regression, whose classes are None, the scores twice."""
    if classes is None:
        return scores, scores
    if model.multilabel:
        return model.places_of(scores), scores
    columns = np.searchsorted(classes, model.classes)
    places = columns[model.places_of(scores)]
    if not model.voted and not model.joint:
        if len(classes) == 2:
            return places, scores
        # A class is missing, and the other two were told apart by one column.
        ranks = np.column_stack([-scores, scores])
    else:
        ranks = model.ordered_ranks(scores)
    of_all = np.full((len(scores), len(classes)), -math.inf)
    of_all[:, columns] = ranks
    return places, of_all


class Fits:
    """Fits of points of a grid on folds, on threads.

    A chain is one fold with points that differ on one axis, in ascending order; each fit starts from the one before.
    A `cancel` of the caller's, who has several searches at once, ends what is on one thread. `probable`: tell
    probabilities, where a model has such.
    """

    def __init__(self, method: Method, folds: Folds, params: Mapping[str, Any], points: list[dict[Any, Any]],
                 axis: str | None, report: Report | None = None, cancel: threading.Event | None = None,
                 probable: bool = False) -> None:
        self.probable = probable
        self.method, self.folds, self.points, self.report = method, folds, points, report
        self.params = {name: value for name, value in params.items() if name != P.THREADS.name}
        values, run_values = resolved(method, _inner(params))
        self.threads, self.cache = run_values["threads"] or default_threads(), values.get(P.CACHE.name)
        # Each fold's training rows are scaled in their own way.
        self.shares = values.get("kernel") in P.KERNEL.choices and params.get(P.SCALE.name) is None
        self.chains = G.chains_of(points, axis)
        self._outer = cancel
        self._cancel, self._report_lock = cancel or threading.Event(), threading.Lock()

    def missing(self, done: Collection[tuple[int, int]]) -> list[tuple[int, list[int]]]:
        """Pairs (fold, chain), those of fold 0 first, of the chains that have a point whose (point, fold) is not among
        `done`: whole ones, since what a fit finds depends, within its tolerance, on where it starts."""
        return [(fold, chain) for fold in range(self.folds.n) for chain in self.chains
                if any((p, fold) not in done for p in chain)]

    def run(self, todo: Sequence[tuple[int, list[int]]]) -> Iterator[list[tuple[int, int, Fold]]]:
        """Yield lists of (point, fold, Fold), one for each of the (fold, chain) `todo`, in their order.

        `report(point, fold, Fold)` is called as soon as a fit has ended, by one thread at a time.
        """
        for fold, users in Counter(fold for fold, _ in todo).items():
            self.folds.expect(fold, users)
        # Of rows on disk a fold is a store of its own: there is one at a time.
        threads = 1 if is_paged(self.folds.X) else self.threads
        several = min(threads, len(todo)) > 1 or self._outer is not None
        points, room = self._shared(max(1, min(threads, len(todo))))

        def work(job: int) -> list[tuple[int, int, Fold]]:
            fold, chain = todo[job]
            inside, rows, labels, others, outside, held_out = self.folds.take(fold)
            done: list[tuple[int, int, Fold]] = []
            model: Any = None
            shared = Shared(kernels.GramCache(None if points is None else points.select(inside), room))
            for p in chain:
                if self._cancel.is_set():
                    break
                try:
                    with renumber_rows(inside):
                        model = fit_model(rows, labels, solver=self.method.name, **others, start=model,
                                          cancel=self._cancel if several else None, shared=shared,
                                          threads=1, **{**self.params, **self.points[p]})
                except ValueError as error:
                    place = f"{G.shown(self.points[p])}, " if self.points[p] else ""
                    raise ValueError(f"{error} ({place}fold {fold + 1} of {self.folds.n})") from error
                if points is None:
                    scores = model.decision_function(held_out, threads=1)
                else:
                    scores = model.decide_among(points, inside, outside)
                probabilities = self.folds.probabilities(model, scores) if self.probable else None
                places, scores = self.folds.judged(model, scores)
                done.append((p, fold, Fold(outside, places, scores, model.info, probabilities)))
                if self.report is not None:
                    with self._report_lock:
                        self.report(*done[-1])
            self.folds.leave(fold)
            return done

        longest = max((len(chain) for _, chain in todo), default=0)
        k = 1 if self.method.joint or self.folds.classes is None else len(self.folds.classes)
        yield from in_order(work, len(todo), threads, self._cancel, lambda: worth_of(longest, k))

    def _shared(self, takers: int) -> tuple[Any, int]:
        """(KernelPoints of all rows that know their products, or None; bytes for the kernel rows of a chain, of which
        so many run at once)."""
        room = kernels.room_of(self.cache)
        points: Any = None
        if self.shares:
            points = kernels.shared_points(self.folds.X, self.folds.groups, self.cache, self.threads)
        if points is not None:
            room = (room - points.products.nbytes) // takers
        return points, room


def out_of_fold(X: MatrixLike, y: TargetsLike | None = None, *, solver: str | int | None = None,
                folds: Integer | ArrayLike = 5, groups: ArrayLike | None = None, seed: Integer = 0,
                threads: Integer | None = None, sample_weight: ArrayLike | None = None,
                class_weight: ClassWeight | None = None,
                **params: Unpack[SearchParameters]) -> tuple[AnyArray, Iterator[Fold]]:
    """Scores of rows by models that have not seen them.

    Parameters are those of `cross_validate`.

    Returns
    -------
    (classes, iterator of Fold)
        The sorted classes of y, array of shape (k,), and the folds in their order, as they are done. A Fold's `scores`
        have shape (rows,) where one column's sign decides, positive for classes[1]; else (rows, k), a column a class:
        the scores of a joint method and of ovr, `Model.ordered_ranks` of ovo and ecoc. A class that the fold's training
        rows lack has -inf there. Of several labels a row the scores have a column a label.
    """
    method, data, fixed = _prepared(X, y, solver, folds, groups, seed, threads, sample_weight, class_weight, params)
    fits = Fits(method, data, fixed, [{}], None)
    return data.classes, (fold for chain in fits.run(fits.missing(())) for _, _, fold in chain)


def cross_validate(X: MatrixLike, y: TargetsLike | None = None, *, solver: str | int | None = None,
                   folds: Integer | ArrayLike = 5, groups: ArrayLike | None = None,
                   metric: Metric | Sequence[Metric] | None = None, seed: Integer = 0, threads: Integer | None = None,
                   sample_weight: ArrayLike | None = None, class_weight: ClassWeight | None = None,
                   **params: Unpack[SearchParameters]) -> CrossValidation:
    """Cross-validation, stratified by class.

    Parameters
    ----------
    X, y, solver, sample_weight, class_weight, **params
        As `train` takes them. Weights act on training; a metric counts every row once.
    folds : int, or int array of shape (m,)
        How many, at least 2; more than rows mean one row a fold, with a warning. Or the fold of each row, from 0 or
        1 without gaps.
    groups : array of shape (m,), optional
        Numbers or words: rows of one group, such as those of one patient, are in one fold. The folds have about equally
        many rows; classes are then not spread evenly.
    metric : str, or list of str
        Of classes {"accuracy", "balanced", "f1_macro", "auc", "top3", "top5", "top10", "log_loss", "brier"}: part of
        the rows predicted right, the default; mean recall of the classes; mean F1 of the classes; area under the ROC
        curve, for more than two classes the mean of each against the rest; part of the rows whose class is among so
        many of highest scores; mean of -log of the probability of a row's class, none being below 1e-15; mean of the
        sum of the squares of what probabilities are off by. Of a regression {"mse", "mae", "r2"}: mean squared error,
        the default; mean absolute error; 1 less the part of the variance that is left. Of several labels a row
        {"micro_f1", "macro_f1", "lrap", "accuracy"}: F1 of all labels together, the default; mean F1 of the labels that
        a row has or is given; label ranking average precision; part of the rows whose labels are all right. Of several
        the first is the score, and selects; the others are measured in the same folds.
    seed : int
        Of the folds and of the fits.
    threads : int, optional
        Fits at once. Default: all cores. The result does not depend on it.

    Returns
    -------
    CrossValidation

    Raises
    ------
    ValueError, TypeError
        As `train`; for folds, groups and metric; where a fold's training rows have one class only; for log_loss and
        brier of a method without probabilities, unless probability=True, by which each fold's model is calibrated.

    Warns
    -----
    ConvergenceWarning
        Once, when fits did not converge.
    """
    began = time.perf_counter()
    method, data, fixed = _prepared(X, y, solver, folds, groups, seed, threads, sample_weight, class_weight, params,
                                    metric)
    measures = P.metrics_of(method, metric, data.multilabel)
    fits = Fits(method, data, fixed, [{}], None, probable=True)
    done = [fold for chain in fits.run(fits.missing(())) for _, _, fold in chain]
    _warn(method, [fold.info.status for fold in done])
    return _validation(method, data, measures, done, time.perf_counter() - began)


def _validation(method: Method, data: Folds, measures: Sequence[str], done: Sequence[Fold],
                seconds: float) -> CrossValidation:
    places, scores, probabilities = (_together(data, [getattr(fold, name) for fold in done], done)
                                     for name in ("places", "scores", "probabilities"))
    found = {}
    for name in measures:
        values = np.array([data.score(name, fold) for fold in done])
        found[name] = Measured(pooled(name, values, data.sizes), values)
    first = found[measures[0]]
    predictions = (places if method.regression else places.astype(np.int8) if data.multilabel
                   else data.classes[places])
    return CrossValidation(first.score, first.fold_scores, predictions, scores, data.fold_of,
                           [fold.info for fold in done], seconds, probabilities, found)


def _together(data: Folds, parts: Sequence[Any], done: Sequence[Fold]) -> Any:
    """One array, for all rows, of those of the folds; None where they are None."""
    if parts[0] is None:
        return None
    found = np.empty((len(data.y), *parts[0].shape[1:]), dtype=parts[0].dtype)
    for fold, part in zip(done, parts, strict=True):
        found[fold.rows] = part
    return found


def search(X: MatrixLike, y: TargetsLike | None = None, *, solver: str | int | None = None,
           grid: Mapping[str, Iterable[Any]] | str | None = None, refit: bool = True,
           folds: Integer | ArrayLike = 5, groups: ArrayLike | None = None,
           metric: Metric | Sequence[Metric] | None = None, seed: Integer = 0, threads: Integer | None = None,
           sample_weight: ArrayLike | None = None, class_weight: ClassWeight | None = None, log: PathLike | None = None,
           resume: PathLike | None = None, progress: Callable[[dict[str, Any]], object] | None = None,
           keep: bool = False, **params: Unpack[SearchParameters]) -> Search:
    """Search a grid of parameters for the best score of cross-validation.

    Parameters
    ----------
    X, y, solver, folds, groups, metric, seed, threads, sample_weight, class_weight, **params
        As `cross_validate` takes them; params are those that stay fixed. Of several metrics the first selects.
    grid : dict or str, optional
        Names of parameters and lists of values, or the text of `margin-train --grid`, as in
        "C=log2:-5:2:9,mu=0.2:0.2:0.8". Default: what the method's parameters declare, C=log2:-5:2:9 where it has C; of
        logistic, l2svc, l1svr and l2svr without a kernel the values of LIBLINEAR's -C: C doubles from one that follows
        from the rows up to 2^10, of a regression 2^20, and epsilon goes from 19/20 of the largest target, or from a
        given epsilon, down to 0 by twentieths. Of every method C doubles from a given C.
    refit : bool
        Train on all rows with the best parameters.
    log : path, optional
        A file that gets one line of JSON for the search, and one for each fit as it ends.
    resume : path, optional
        A log that an earlier search of the same data, method, fixed parameters, folds and metric wrote. What is new is
        added to it. A fold's fits along C (or the axis that takes its place) that are all there are not made again;
        where one is missing they all are, each from the last: the table, but for the seconds, is that of a search that
        was not interrupted.
    progress : callable, optional
        Called after each fit with a dict: done, total, params, fold, score, status, n_iter, seconds; of several metrics
        `metrics` too, {name: value} of all but the first.
    keep : bool
        Of a single point: keep predictions and scores of the rows, as `validation`. Default False.

    Returns
    -------
    Search

    Raises
    ------
    ValueError, TypeError
        As `cross_validate`; for a grid with unknown names or values, and a log of another search.
    OSError
        For a log that cannot be read or written.

    Warns
    -----
    ConvergenceWarning
        Once, when fits did not converge.
    """
    method = registry.get(registry.DEFAULT if solver is None else solver)
    if are_label_sets(y) and method.classifies:
        y = label_sets_of(y)
    measures = P.metrics_of(method, metric, isinstance(y, LabelSets))
    fixed: dict[str, Any] = {**params}
    if grid is None and G.doubles(method, fixed):
        grid = doubling_grid(method, X, y, fixed, sample_weight)
        fixed = {name: value for name, value in fixed.items() if name not in grid}
    values = G.check_grid(G.default_grid(method) if grid is None else grid, method)
    points = G.points_of(values, method, fixed)
    refit, keep = P.check_flag("refit", refit), P.check_flag("keep", keep)
    progress = P.check_function("progress", progress)
    for name, path in (("log", log), ("resume", resume)):
        if path is not None:
            P.check_path(name, path)
    if log is not None and resume is not None:
        raise ValueError("log and resume are both given: resume goes on writing its own file")
    began = time.perf_counter()
    probability = fixed.get(P.PROBABILITY.name, False)
    method, data, fixed = _prepared(X, y, solver, folds, groups, seed, threads, sample_weight, class_weight, fixed,
                                    measures)
    axis = G.chain_axis(values, method)
    entries = Entries(points, data.n)
    journal = None
    written = log if resume is None else resume
    if written is not None:
        journal = Journal(written, _header(method, data, fixed, values, ",".join(measures)))
        if resume is not None:
            journal.read_into(entries)

    def report(p: int, fold: int, held_out: Fold) -> None:
        score, *others = (data.score(name, held_out) for name in measures)
        entry = entries[p, fold] = {"fold": fold + 1, "score": score, "status": held_out.info.status,
                                    "n_iter": held_out.info.n_iter, "seconds": held_out.info.seconds}
        if others:
            entry["metrics"] = dict(zip(measures[1:], others, strict=True))
        if journal is not None:
            journal.write({"params": points[p], **entry})
        if progress is not None:
            progress({"done": len(entries), "total": len(points) * data.n, "params": points[p], **entry})

    fits = Fits(method, data, fixed, points, axis, report,
                probable=keep or any(name in P.OF_PROBABILITIES for name in measures))
    todo = fits.missing(entries)
    for fold, places in todo:
        for p in places:
            entries.pop((p, fold), None)
    keep = keep and len(points) == 1 and not entries
    held: list[Fold] = []
    with nullcontext() if journal is None else journal.opened():
        predictions = np.empty(len(data.y)) if method.regression and len(points) == 1 and not entries else None
        for done in fits.run(todo):
            if predictions is not None:
                for _, _, held_out in done:
                    predictions[held_out.rows] = held_out.places
            if keep:
                held += [held_out for _, _, held_out in done]
    table = entries.table(measures, data.sizes)
    _warn(method, [entry["status"] for entry in entries.values()])
    better = -1 if measures[0] in P.ERRORS else 1
    best = max(range(len(points)), key=lambda p: (better * table[p]["score"], -p))
    model = None
    if refit:
        model = train(data.X if is_paged(data.X) else X, y, solver=method.name, sample_weight=sample_weight,
                      class_weight=class_weight, **{**fixed, **points[best], P.PROBABILITY.name: probability})
    kept = _validation(method, data, measures, held, time.perf_counter() - began) if keep else None
    return Search(points[best], table[best]["score"], table, model, predictions, kept)


def _prepared(X: Any, y: Any, solver: str | int | None, folds: Integer | ArrayLike, groups: ArrayLike | None,
              seed: Integer, threads: Integer | None, sample_weight: ArrayLike | None, class_weight: ClassWeight | None,
              params: Mapping[str, Any],
              metric: str | Sequence[str] | None = None) -> tuple[Method, Folds, dict[str, Any]]:
    """(method, Folds, parameters of every fit)"""
    method = registry.get(registry.DEFAULT if solver is None else solver)
    # Calibrations are fitted where a metric asks for them alone.
    asked = [name for name in P.metrics_of(method, metric, are_label_sets(y)) if name in P.OF_PROBABILITIES]
    probability = P.PROBABILITY.check(params.get(P.PROBABILITY.name, False)) and bool(asked)
    params = {**params, P.SEED.name: seed, P.THREADS.name: threads, P.PROBABILITY.name: probability}
    values = resolved(method, _inner(params))[0]
    X = paged(X, *(params.pop(param.name, None) for param in (P.MEMORY, P.SWEEPS_PER_LOAD)))
    if is_paged(X):
        require_stores(method, values.get("kernel"))
        y = X.y if y is None else y
    square = values.get("kernel") == "precomputed"
    if are_label_sets(y) and method.classifies:
        require_label_sets(method, params)
        y = label_sets_of(y)
    data = Folds(X, y, folds, seed, sample_weight, class_weight, square, method, groups=groups)
    if method.one_class and not set(data.classes.tolist()) <= {-1, 1}:
        raise ValueError(f"y has the label {next(label for label in data.classes.tolist() if label not in (-1, 1))!r}: "
                         f"{method.name} predicts 1 and -1: give these as the labels that it is measured by")
    k = 0 if data.classes is None else len(data.classes)
    if asked and not probability and calibration.of_scores(method, values, k, k) is None:
        raise ValueError(f"metric = {asked[0]!r} asks for probabilities, and the scores of {method.name} are none: "
                         "give --probability (probability=True), which calibrates the model of each fold by 5 more "
                         "fits, or another metric or method")
    return method, data, params


def _inner(params: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the method and of its run."""
    around = {p.name for p in P.AROUND}
    return {name: value for name, value in params.items() if name not in around}


def _warn(method: Method, statuses: Sequence[str]) -> None:
    short = [status for status in statuses if fell_short(status)]
    if short:
        counts = ", ".join(f"{n} {status}" for status, n in Counter(short).items())
        warnings.warn(f"{method.name}: {len(short)} of {len(statuses)} fits did not converge ({counts}): "
                      f"{remedies(method, keyword)}", ConvergenceWarning, stacklevel=3)


def _header(method: Method, data: Folds, params: Mapping[str, Any], grid: Mapping[str, list[Any]],
            metric: str) -> dict[str, Any]:
    """What must be the same for a log's entries to be of use."""
    values, run = resolved(method, _inner(params))
    fixed = {name: value if isinstance(value, (int, float, str, type(None))) else str(value)
             for name, value in {**values, **run, P.SCALE.name: params.get(P.SCALE.name)}.items()
             if name not in (*grid, P.THREADS.name, P.CACHE.name)}
    return {"marginlinear": version, "solver": method.name, "metric": metric, "folds": data.n, "data": data.digest(),
            "grid": sorted(grid), "fixed": fixed}
