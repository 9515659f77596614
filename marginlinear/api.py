"""train: from arrays to a model."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from marginlinear import calibration, fitting, registry
from marginlinear import params as P
from marginlinear.data.arrays import as_rows, is_paged, select_columns, select_rows, select_square, shape_of
from marginlinear.data.canonical import canonical, merged
from marginlinear.data.checks import class_factors, labels_with, training_data
from marginlinear.data.columns import rule_of
from marginlinear.data.folds import stratified_folds
from marginlinear.data.kernels import GramCache
from marginlinear.data.label_sets import LabelSets, are_label_sets, label_sets_of
from marginlinear.data.labels import classes_of
from marginlinear.errors import ConvergenceWarning, Interrupted, Stopped, renumber_rows
from marginlinear.fitting import require_label_sets, require_memory, resolved
from marginlinear.model import Model, MultiLabelModel, RegressionModel, among, kernel_model
from marginlinear.modelfile.checkpoint import Checkpoint, read_checkpoint
from marginlinear.problem import Problem, Progress
from marginlinear.status import INTERRUPTED, STOPPED, fell_short, keyword, shortfall
from marginlinear.store.paging import paged
from marginlinear.threads import in_order, worth_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from typing_extensions import Unpack

    from marginlinear._typing import (
        AnyArray,
        ArrayLike,
        BoolArray,
        ClassWeight,
        FitParameters,
        FloatArray,
        HistoryEntry,
        IntArray,
        Integer,
        MatrixLike,
        PathLike,
        Scale,
        TargetsLike,
    )
    from marginlinear.data.columns import TableRule
    from marginlinear.data.scaling import Scaling
    from marginlinear.problem import Info
    from marginlinear.registry import Method

Made = TypeVar("Made")
ON_INTERRUPT = P.Param("on_interrupt", str, "raise", "", choices=("raise", "keep"))
CHECKPOINT_SECONDS = P.Param("checkpoint_seconds", float, 60.0, "seconds between two writings of the checkpoint",
                             "[0, inf)")
NO_PROBABILITIES = "the fit was ended before its probabilities were made"


def train(X: MatrixLike, y: TargetsLike | None = None, *, solver: str | int | None = None,
          classes: ArrayLike | None = None, class_weight: ClassWeight | None = None,
          sample_weight: ArrayLike | None = None, start: Model | None = None,
          callback: Callable[[Progress], object] | None = None, on_interrupt: Literal["raise", "keep"] = "raise",
          checkpoint: PathLike | None = None, checkpoint_seconds: float = CHECKPOINT_SECONDS.default,
          resume_from: PathLike | None = None, probability: bool = False, scale: Scale | None = None,
          memory: int | str | None = None, sweeps_per_load: Integer | None = None, paper: bool = False,
          **params: Unpack[FitParameters]) -> Model:
    """Train a linear or a kernel classifier, or a linear regression.

    Parameters
    ----------
    X : array, sparse array or data frame of shape (m, n)
        The values of float64 and float32 CSR and of C-ordered dense arrays are used as they are, read-only memory maps
        included; other types and layouts are converted. Indices and indptr of a CSR are copied, 4 and 8 bytes each,
        unless their memory is read-only, so that nobody can change them during the fit. Of a data frame, of pandas,
        polars or pyarrow, the columns are numbers or bools, and the model keeps their names. Also what
        `libsvm.read_libsvm` returns. With
        kernel="precomputed" the symmetric matrix of the kernel's values, of shape (m, m). Or a `Store`, whose rows
        stay on disk.
    y : array of shape (m,), optional with a Store
        Labels: bools, integers, other numbers, or strings of one word; at least two different ones. Others are refused,
        as neither a model file nor one of predictions could hold them. Of a regression finite numbers. `oneclass` does
        not look at it. For a binary method also any number of labels a row: sets, tuples or lists of labels, LabelSets,
        or an indicator, an array, dense or sparse, of 0 and 1 of shape (m, n_labels) with at least two columns.
    solver : str
        Name of a method, or LIBLINEAR's number for it. Default "mcodm".
    classes : array of shape (n_classes,), optional
        The labels that the model is to know; those of y must be among them, and at least two must have rows. Others are
        never predicted, and change nothing for those that have rows: their score is the mean of the other columns less
        1, or with `codes` they get no vote. By default the labels of the rows that are not left out. With an indicator
        as y the names of its columns, 0 to n_labels - 1 by default.
    class_weight : dict or "balanced", optional
        Label -> positive factor of C. "balanced": sum of all rows' weights/(classes times that of the class's rows),
        as scikit-learn's LinearSVC has it.
    sample_weight : array of shape (m,), optional
        Factor of C of each row, finite and >= 0; a row of weight 0 is left out, and its label too where no other row
        has it.
    start : Model, optional
        A model that `train` made of the same rows, with the same method and kernel: training goes on from it. Of a
        binary loss of the margin without a kernel, such as logistic, l2svc and l2svr, also a linear model of the same
        features and classes from a file, a pickle or other rows of which only the weights are known; not with scale,
        and of several classes with ovr alone.
    callback : callable, optional
        Called with a `Progress` at every check: n_iter, seconds, objective, bound, certificate, residual (None where
        the method has none), and `model()`, which makes the model so far. Where it returns True the fit ends, with that
        model and the status "stopped". In the fits of `probability` there are the number of the fold and how many
        there are (fold, folds) too; with several threads they call from theirs, one at a time.
    on_interrupt : {"raise", "keep"}
        What Ctrl-C does: "raise" raises `Interrupted`, a KeyboardInterrupt whose `partial` is the model so far; "keep"
        returns that model, with the status "interrupted". Its certificate is its own in both cases. Before there is
        anything to keep, a KeyboardInterrupt is raised.
    checkpoint : str or path, optional
        A file in which the fit is kept: written every `checkpoint_seconds`, and at its end, however it ends.
    checkpoint_seconds : float, default=60
        Seconds between two writings of the checkpoint, at least.
    resume_from : str or path, optional
        A checkpoint to go on from: of the same rows, method, kernel and classes. The certificate is that of this fit.
        May be the file that `checkpoint` names.
    probability : bool
        Whether to fit a calibration (`predict_proba`) on the scores of stratified 5-fold cross-validation: 5 more
        fits, on threads. The weights are the same without it. Two classes need two different rows each; of more, those
        with one row are learned from in all folds and not scored. Votes are what is calibrated where they decide, with
        multiclass="ovo" and "ecoc". Softmax needs no fits: its scores are log-probabilities.
    scale : {"range", "maxabs", "unit"}, optional
        How to scale the rows, here and in predictions. "range" takes each feature's least and largest value to 0
        and 1, and leaves out constant ones; "maxabs" divides by its largest absolute value, so that zeros stay zeros;
        "unit" divides each row by its Euclidean length. The first two become part of a linear model's weights, and of
        its bias; what `bias` says is then the value of the bias feature beside the scaled ones. Sparse rows stay
        sparse, but for the features whose least value in "range" is not 0; where those are half of all, or more, rows
        become dense.
    memory : int or str, optional
        With a Store, bytes that the process may hold, as 2**32 or "4G". Default: half of the machine's memory. The
        sweeps' order depends on it, but where all rows fit a quarter of it: then it is that of rows in memory.
    sweeps_per_load : int, optional
        With a Store, sweeps over a part of the rows each time it is read: fewer passes over a slow disk. Default: 1.
    paper : bool
        Whether what is not given has the values of the method's paper, or of its authors' program, in place of the
        defaults. A method without such values refuses, and says why.
    **params
        The method's parameters and those of every run, as `margin-train --help` lists them: C, tol, bias, seed,
        threads, max_iter, time_limit, algorithm, ... Two of them take more than there:

        multiclass : {"ovr", "ovo", "ecoc"}
            How a binary method learns more than two classes; see `Model.codes` for how the last two decide.
        kernel : {"linear", "poly", "rbf", "sigmoid", "precomputed"}, 0 to 3 for the first four, or callable
            With gamma (default 1/n), degree and coef0 as in LIBSVM; one that the kernel does not use is an error. A
            callable gets two blocks of rows, of the type of X, and returns the kernel's values for each pair, dense or
            sparse. `bias` adds its square to the kernel.

    Returns
    -------
    Model
        A `KernelModel` with a kernel, a `RegressionModel` of a regression, a `MultiLabelModel` of several labels a row.

    Raises
    ------
    ValueError
        Names the parameter, its value and its domain, or what is wrong with X, y or the weights.
    TypeError
        For a parameter that the method does not have, and for a callback, or class_weight, of another type.
    Interrupted
        After Ctrl-C: see `on_interrupt`.
    DataError
        For a file that is no checkpoint, or a damaged one.
    MemoryError
        For weights, or a cache of kernel rows, that are larger than the machine, and zeros that would take a quarter
        of it in "range": before they are asked for.

    Warns
    -----
    ConvergenceWarning
        When the certificate, or the residual of a method without one, did not reach the tolerance.

    Notes
    -----
    Where rows times (features + 2) are at most 131,072, and without a kernel, equal rows of one class become one row of
    their summed weight, in an order that their content gives: the model, bit for bit, does not depend on the order of
    the rows, nor on whether a row is repeated or has a weight. `Info.n_support` then counts such rows once. The folds
    of `probability` are made of such rows too, with a kernel as well.

    A binary method takes a copy of a sparse X of more than 131,072 features, as large as X at most, for the time of the
    fit: frequent features side by side, those that occur in one row only as one. X itself is never changed.
    """
    return fit_model(X, y, ConvergenceWarning, solver=solver, classes=classes, class_weight=class_weight,
                     sample_weight=sample_weight, start=start, callback=callback, on_interrupt=on_interrupt,
                     checkpoint=checkpoint, checkpoint_seconds=checkpoint_seconds, resume_from=resume_from,
                     probability=probability, scale=scale, memory=memory, sweeps_per_load=sweeps_per_load, paper=paper,
                     **params)


def fit_model(X: Any, y: Any = None, warning: type[Warning] | None = None, *, solver: Any = None,
              classes: ArrayLike | None = None, class_weight: ClassWeight | None = None,
              sample_weight: ArrayLike | None = None, start: Any = None,
              callback: Callable[[Progress], object] | None = None, on_interrupt: str = "raise",
              checkpoint: PathLike | None = None, checkpoint_seconds: float | None = None,
              resume_from: PathLike | None = None, cancel: Event | None = None, shared: Shared | None = None,
              overwrite_rows: bool = False, probability: bool = False, scale: str | None = None,
              memory: int | str | None = None, sweeps_per_load: Any = None, paper: bool = False,
              **params: Any) -> Model:
    """`train`, with a category for the warning that a fit did not converge; None: no warning.

    `cancel` as in Run, for fits on one thread. overwrite_rows: X may be overwritten, as nothing else reads it any more.
    """
    method = registry.get(registry.DEFAULT if solver is None else solver)
    if P.PAPER.check(paper):
        params = method.with_paper(params)
    values, run_values = resolved(method, params)
    watched: dict[str, Any] = {"on_interrupt": on_interrupt, "checkpoint_seconds": checkpoint_seconds}
    watched = P.resolve((ON_INTERRUPT, CHECKPOINT_SECONDS), watched)
    P.check_function("callback", callback)
    if resume_from is not None:
        if start is not None:
            raise ValueError("start and resume_from are both given: a fit begins at one of them")
        start = read_checkpoint(P.check_path("resume_from", resume_from))
    table = rule_of(X)
    X, read = paged(X, memory, sweeps_per_load), 0
    if is_paged(X):
        fitting.require_stores(method, values.get("kernel"))
        y, read = X.y if y is None else y, X.pages.bytes_read
    elif y is None and not method.one_class:
        raise TypeError("y is missing: the labels, which a Store alone has with it")
    around = P.resolve(P.AROUND, {"probability": probability, "scale": scale})
    given = values.get("kernel") == "precomputed"
    if given and around["scale"]:
        raise ValueError(f"scale = {scale!r} is for features: a precomputed kernel has none")
    if not method.classifies:
        require_no_classes(method, classes=classes, class_weight=class_weight or None,
                           probability=around["probability"] or None)
    if method.classifies and are_label_sets(y):
        if class_weight:
            raise ValueError(f"class_weight = {class_weight!r} is for one label a row: leave it out")
        require_label_sets(method, params)
    width = shape_of(X)[1]
    # A model of a kernel has rows.
    spare = shared is None and values.get("kernel") is None
    sample, labels, found, sets = once(shared, "data", lambda: checked_data(
        method, X, y, classes, class_weight, sample_weight, given, overwrite_rows, spare))
    fitting.require_features(width, values, run_values)
    table = None if given or table is None or table.n_features != width else table
    fit = ModelFit(labels, table, method, values, run_values, found, width, around["scale"], sets)
    own = folded = None
    if method.classifies:
        own = (calibration.of_scores(method, values, len(found), len(labels)) if sets is None
               else calibration.of_labels(method, len(labels)))
    if around["probability"] and own is None:
        folded = sample if given else sample.merged()
        if sets is None:
            require_pairs(found, folded.y)
        elif len(folded.y) < 2:
            raise ValueError("probability needs at least 2 different rows")
    watch: Any = fitting.Watch([])
    if callback is not None:
        watch.observers.append(lambda entry: callback(Progress(
            **entry, model=None if "fold" in entry else lambda: watch.model(STOPPED))))
    saved = None
    if checkpoint is not None:
        saved = Checkpoint(P.check_path("checkpoint", checkpoint), watched["checkpoint_seconds"], watch.start)
        watch.observers.append(saved)
    raises = watched["on_interrupt"] == ON_INTERRUPT.choices[0]
    model, whole = watched_model(fit, sample, watch, saved, raises, start=start, cancel=cancel, shared=shared,
                                 overwrite_rows=(overwrite_rows or spare) and folded is None)
    model.calibration = own
    if folded is not None and whole:
        try:
            model.calibration = fit.calibration(folded, watch.tell, cancel)
        except (KeyboardInterrupt, Stopped) as end:
            if raises and isinstance(end, KeyboardInterrupt):
                raise Interrupted(lambda: model) from None
            model.info = model.info._replace(notes=(*model.info.notes, NO_PROBABILITIES))
    if is_paged(X):
        read = X.pages.bytes_read - read
        model.info = model.info._replace(passes=read / max(1, X.whole), bytes_read=read)
    if warning is not None:
        warn_unless_converged(method, model.info, values.get("kernel"), warning)
    return model


class Shared:
    """What fits on the same data share, where they differ in parameters of the method alone: `made` has what was
    checked and arranged once, `gram` the rows in a kernel's feature space."""

    def __init__(self, gram: GramCache) -> None:
        self.gram = gram
        self.made: dict[str, Any] = {}


def once(shared: Shared | None, name: str, make: Callable[[], Made]) -> Made:
    """`make()`, of fits that share it the first time alone."""
    if shared is None:
        return make()
    if name not in shared.made:
        shared.made[name] = make()
    found: Made = shared.made[name]
    return found


def checked_data(method: Method, X: Any, y: Any, classes: Any, class_weight: Any, sample_weight: Any, square: bool,
                 overwrite_rows: bool, spare: bool) -> tuple[Sample, Any, Any, LabelSets | None]:
    """(Sample, the labels that the model is to know, those among them that rows have, LabelSets of several labels a
    row); None where there are none. `spare`: as of `held`."""
    if method.one_class and not is_paged(X):
        y = np.ones(shape_of(X)[0])
    elif method.classifies and are_label_sets(y):
        y = label_sets_of(y, classes)
    data, y, factors, kept = training_data(X, y, sample_weight, square=square, overwrite_rows=overwrite_rows,
                                           regression=method.regression, spare=spare)
    ones = np.broadcast_to(1.0, len(y))
    if not method.classifies:
        sample = Sample(data, y if method.regression else np.ones(len(y), dtype=np.int32), factors, ones, kept)
        labels = None if method.regression else np.array([-1, 1])
        return sample, labels, labels, None
    if isinstance(y, LabelSets):
        sets, codes = y.patterns()
        return Sample(data, codes, factors, ones, kept), y.classes, y.classes, sets
    found, codes = classes_of(y)
    fitting.require_classes(method, found, "y" if kept is None else "y, its rows of weight 0 left out,")
    if class_weight is not None:
        ones = class_factors(class_weight, found, np.bincount(codes, factors))[codes]  # type: ignore[arg-type]  # float64
    labels = found if classes is None else labels_with(found, classes)
    return Sample(data, codes, factors, ones, kept), labels, found, None


def watched_model(fit: ModelFit, sample: Sample, watch: Any, saved: Checkpoint | None, raises: bool,
                  **given: Any) -> tuple[Model, bool]:
    """(`fit.model` with its Watch and a checkpoint at its end, whether it came to that end): else what there was when
    Ctrl-C or a callback ended it, and of Ctrl-C `raises` says whether Interrupted brings it."""
    try:
        model, whole = fit.model(sample, watch=watch, **given), True
    except (KeyboardInterrupt, Stopped) as end:
        status = STOPPED if isinstance(end, Stopped) else INTERRUPTED
        if status == INTERRUPTED and not watch.knows:
            raise
        if saved is not None:
            saved.write(watch.start())
        if raises and status == INTERRUPTED:
            raise Interrupted(lambda: watch.model(status)) from None
        model, whole = watch.model(status), False
    else:
        if saved is not None:
            saved.write(watch.start())
    watch.close()
    return model, whole


def require_no_classes(method: Method, **given: object) -> None:
    """ValueError for arguments that speak of classes, where they are not None."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} = {value!r} is for classes, which {method.name} does not have: leave it out")


class Sample(NamedTuple):
    """Checked rows: X, classes 0..k-1 or targets, instance weights, factors of C, and their numbers in the caller's
    data, or None.
    """

    X: Any
    y: Any
    instance: Any
    factor: Any
    kept: Any

    def select(self, which: IntArray, square: bool) -> Sample:
        X = select_square(self.X, which) if square else select_rows(self.X, which)
        return Sample(X, self.y[which], self.instance[which], self.factor[which], None)

    def merged(self) -> Sample:
        """The same with equal rows of a class as one of their summed weight, where they are few; see `canonical`."""
        found = merged(as_rows(self.X, -1.0), self.y, self.instance)
        if found is None:
            return self
        which, instance = found
        return self.select(which, square=False)._replace(instance=instance)


class ModelFit(fitting.Fit):
    """A fit that makes a Model of a Sample; the model knows all `labels`, of which the fit's classes are some. Both are
    None for a regression."""

    labels: Any
    classes: Any

    def __init__(self, labels: AnyArray | None, table: TableRule | None, *fit: Any) -> None:
        super().__init__(*fit)
        self.labels, self.table = labels, table

    def model(self, sample: Sample, start: Any = None, progress: Any = None, cancel: Event | None = None,
              threads: int | None = None, shared: Shared | None = None, overwrite_rows: bool = False,
              watch: Any = None) -> Model:
        kernel = self.kernel
        X, scaling, problem, known = once(shared, "problem", lambda: self.problem(
            sample, threads, GramCache() if shared is None else shared.gram, overwrite_rows))

        def made(fitted: fitting.Fitted) -> Model:
            if kernel is not None:
                return kernel_model(kernel, X, fitted, self.labels, sample.kept, known, n_features=self.width,
                                    scaling=scaling, table=self.table)
            lowered: FloatArray | float = 0.0
            rest = scaling
            if known is not None:
                lowered = -known
            elif self.labels is not None:
                fitted, lowered = among(self.labels, fitted)
            if scaling is not None and scaling.linear:
                weights, bias = scaling.folded(np.asarray(fitted.weights), fitted.bias)
                fitted, rest = fitted._replace(weights=weights, bias=bias), None
            kind = RegressionModel if self.labels is None else Model if known is None else MultiLabelModel
            model = kind(**fitted._asdict(), scaling=rest, table=self.table)
            if np.any(lowered):
                model.weights, model.bias = np.vstack([model.coef.T, model.intercept - lowered]), 1.0
            return model

        if watch is not None:
            watch.made = made
        return made(self.fitted(problem, start, progress, cancel, threads, overwrite_rows, watch))

    def problem(self, sample: Sample, threads: int | None, gram: GramCache,
                overwrite_rows: bool) -> tuple[Any, Scaling | None, Problem, FloatArray | None]:
        """(the sample's X, scaled, its Scaling or None, the Problem, in canonical order, `constants` of several labels
        a row or None)"""
        X, scaling, known = sample.X, None, None
        if self.scale is not None:
            from marginlinear.data.scaling import learned

            scaling = learned(self.scale, X)
            X = X.changed(scaling.apply) if is_paged(X) else scaling.apply(X)
        with renumber_rows(sample.kept):
            if self.kernel is None:
                rows = as_rows(X, self.bias, given=overwrite_rows)
                self.check(rows)
            else:
                require_memory(self.columns, len(sample.y), "rows")
                rows = gram.rows(self.kernel, X, self.bias, self.values["cache"],
                                 threads or self.run_values["threads"], sample.kept)
        if self.method.regression:
            ones = np.ones(len(sample.y), dtype=np.int32)
            problem = Problem(rows, ones, 2, sample.instance, sample.factor, targets=sample.y)
        else:
            k = len(self.classes if self.sets is None else self.sets)
            problem = Problem(rows, sample.y, k, sample.instance, sample.factor)
            known = None if self.sets is None else self.constants(sample.y)
        return X, scaling, canonical(problem), known

    def calibration(self, sample: Sample, progress: Callable[[HistoryEntry], object] | Any,
                    cancel: Event | Any = None) -> calibration.Calibration:
        """The Calibration by models of all folds but one and their scores of that one: folds run on threads."""
        square = self.values.get("kernel") == "precomputed"
        strata = sample.y if self.sets is None else self.sets.rarest(sample.y)
        scored = np.flatnonzero(in_pairs(sample.y)[sample.y]) if self.sets is None else np.arange(len(sample.y))
        folds = min(calibration.FOLDS, len(scored))
        fold_of = np.full(len(sample.y), -1)
        fold_of[scored] = stratified_folds(strata[scored], folds, self.run_values["seed"])
        threads = min(folds, self.run_values["threads"])
        # A lone thread is the caller's, which looks at the signals itself.
        cancel = threading.Event() if cancel is None and threads > 1 else cancel
        lock = threading.Lock()

        def work(fold: int) -> tuple[IntArray, FloatArray]:
            """(rows, what is compared between the classes there) of a fold."""
            inside, outside = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)

            def tell(check: HistoryEntry) -> None:
                with lock:
                    progress({"fold": fold + 1, "folds": folds, **check})

            try:
                model = self.model(sample.select(inside, square), progress=progress and tell, cancel=cancel,
                                   threads=1 if threads > 1 else None)
            except ValueError as error:
                raise ValueError(f"{error} (in fold {fold + 1} of {folds} of the calibration)") from error
            X = select_rows(sample.X, outside)
            return outside, model._ranks(model.decide(select_columns(X, inside) if square else X, threads=1))

        ranks: Any = None
        for outside, found in in_order(work, folds, threads, cancel, lambda: worth_of(1, len(self.labels))):
            if ranks is None:
                ranks = np.empty((len(sample.y), *found.shape[1:]))
            ranks[outside] = found
        if self.sets is not None:
            return calibration.fit_labels(ranks, self.sets.indicator()[sample.y], sample.instance)
        places = np.searchsorted(self.labels, self.classes)
        return calibration.fit(ranks[scored], places[sample.y[scored]], sample.instance[scored], len(self.labels))


def require_pairs(classes: AnyArray, codes: IntArray) -> None:
    """ValueError unless both of two classes, or one of more, can be scored."""
    found = in_pairs(codes)
    if not (found.all() if len(classes) == 2 else found.any()):
        which = "each" if len(classes) == 2 else "a"
        raise ValueError(f"probability needs at least 2 different rows of {which} class: label "
                         f"{classes[np.argmin(found)]} has 1")


def in_pairs(codes: IntArray) -> BoolArray:
    """Whether a class has two rows, one to learn from, the other to be scored: bool array of shape (k,)."""
    return np.bincount(codes) > 1


def warn_unless_converged(method: Method, info: Info, kernel: Any,
                          category: type[Warning] = ConvergenceWarning) -> None:
    """A warning where it is due."""
    if fell_short(info.status):
        warnings.warn(f"{method.name} did not converge {shortfall(info, method, keyword, kernel)}", category,
                      stacklevel=4)
