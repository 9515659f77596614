"""train and cross_validate, where the rows are on the workers of a cluster."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from distributed import default_client, wait

from marginlinear import calibration, fitting, registry
from marginlinear import params as P
from marginlinear._version import version
from marginlinear.algorithms.partitions import fit as partitioned
from marginlinear.api import require_no_classes, require_pairs, warn_unless_converged
from marginlinear.dask import collections
from marginlinear.dask.communicator import Cluster, drop, require_worker
from marginlinear.dask.folds import Cuts, folds_of
from marginlinear.dask.journal import Journal
from marginlinear.data.checks import class_factors, labels_with
from marginlinear.data.columns import one_rule
from marginlinear.data.labels import require_words
from marginlinear.errors import ConvergenceWarning
from marginlinear.model import Model, RegressionModel, among
from marginlinear.problem import Run
from marginlinear.status import fell_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    from distributed import Client, Future
    from typing_extensions import Unpack

    from marginlinear._typing import (
        ArrayLike,
        ClassWeight,
        FitParameters,
        HistoryEntry,
        IntArray,
        Integer,
        Observer,
        Scale,
    )
    from marginlinear.algorithms.partitions.fit import Whole
    from marginlinear.calibration import Calibration
    from marginlinear.dask.folds import Fold
    from marginlinear.data.columns import TableRule
    from marginlinear.data.scaling import Scaling
    from marginlinear.fitting import Fitted
    from marginlinear.registry import Method
    from marginlinear.selection.cross_validation import CrossValidation

# What `marginlinear.train` takes, and partitions do not.
HERE = "start", "memory", "sweeps_per_load"
# Messages from one copy of the states to the next, at least; seconds without any worker that end a fit.
CHECKPOINT_EVERY = P.Param("checkpoint_every", int, 10, "", "[1, inf)")
WAIT_TIMEOUT = P.Param("wait_timeout", float, 300.0, "", "(0, inf)")


def train(X: Any, y: Any = None, *, solver: str | int | None = None, classes: ArrayLike | None = None,
          class_weight: ClassWeight | None = None, sample_weight: Any = None, client: Client | None = None,
          partitions: Integer | Literal["chunks"] | None = None, shuffle: bool | Literal["auto"] = "auto",
          checkpoint: str | PathLike[str] | None = None, checkpoint_every: Integer = CHECKPOINT_EVERY.default,
          resume: bool = False, wait_timeout: float = WAIT_TIMEOUT.default, progress: Observer | None = None,
          probability: bool = False, scale: Scale | None = None, **params: Unpack[FitParameters]) -> Model:
    """Train a linear classifier, or regression, on rows that are spread over the workers of a Dask cluster.

    Parameters
    ----------
    X : dask Array, dask DataFrame, or list
        One chunk of columns; the blocks of an Array may be sparse (SciPy's CSR). Or a list of delayed or of futures of
        arrays, dense or sparse; or, without y, of pairs of rows and labels; or of paths of stores and LIBSVM files,
        which every worker can read under this name.
    y : dask Array or Series, or list, optional
        Labels, or a regression's targets, in chunks as X has them.
    solver, classes, class_weight, progress, scale
        As of `marginlinear.train`. The range of a feature is that of all rows.
    probability : bool
        As of `marginlinear.train`, by 5 more fits, one after the other. Folds are cut inside the partitions, whose rows
        have to be in memory; scores of all rows come to the driver, 8 bytes a row and column, with 20 for the row.
    sample_weight : dask Array or Series, or list, optional
        Weights of the rows, >= 0, in chunks as X has them.
    client : distributed.Client, optional
        Default: the one that was made last.
    partitions : int or "chunks", optional
        Partitions, of neighbouring chunks. What is found depends on their boundaries, in its bits, not on the number of
        workers. Default: as many as workers. Few and large ones need fewer rounds.
    shuffle : "auto" or bool, default="auto"
        Whether rows are dealt anew to the partitions: "auto" where these differ in their classes so that rounds would
        not converge, as where rows are sorted by class; a PartitionWarning says so. False: only the warning, and an
        error where a partition then lacks a class.
    checkpoint : str or path, optional
        A folder of the driver's in which a fit is kept: see `resume`.
    checkpoint_every : int, default=10
        Messages between two copies of the rows' states on the driver, at least: more where copies would take more than
        a twentieth of the time.
    resume : bool, default=False
        Go on with the fit in `checkpoint`, whose driver was lost: with the same data, partitions and parameters the
        result has the same bits as if it had not been.
    wait_timeout : float, default=300
        Seconds that the cluster may be without any worker.
    **params
        The method's parameters and those of every run; `threads` are those of a task of a worker's, by default 1.

    Returns
    -------
    Model
        As of `marginlinear.train`, but that no other fit can start from it; `info.cluster` says what was sent.

    Raises
    ------
    ValueError, TypeError
        As of `marginlinear.train`, with the number of the chunk; for a method that does not go over partitions, and
        for workers without marginlinear, or with another version.
    Exception
        The third one of a task; its `__notes__` name the partition and the worker.
    OSError
        A worker cannot read a file.
    TimeoutError
        The cluster has had no worker for `wait_timeout` seconds. `partial` is a Model of the best weights so far,
        without a certificate, where one column was being fitted by rounds; else None.

    Warns
    -----
    ConvergenceWarning
    PartitionWarning
        Rows were dealt anew, or rounds will be slow; or a worker is at least twice as slow as the others.

    Notes
    -----
    Partitions visit their rows at the same time; after each round the sum of what they want is gone as far as the dual
    rises (algorithms/partitions/rounds.py). The certificate is the sum over all rows, as on one machine. Few weights
    are found by Newton steps of summed matrices; of losses with kinks or a flat side the rows that still matter are
    brought to one worker in the end, where they fit it.

    A single partition is fitted by one task, as on one machine.
    """
    given = {"solver": solver, "classes": classes, "class_weight": class_weight, "sample_weight": sample_weight,
             "client": client, "partitions": partitions, "shuffle": shuffle, "checkpoint": checkpoint,
             "checkpoint_every": checkpoint_every, "resume": resume, "wait_timeout": wait_timeout, "progress": progress,
             "scale": scale, "probability": probability, **params}
    P.resolve((P.PROBABILITY,), {"probability": probability})
    with prepared(X, y, **given) as fit:
        model = fit.model(fit.fitted(fit.communicator, fit.whole, fit.rows), folded=True)
        model.calibration = None if fit.method.regression else fit.own_calibration()
        if probability and model.calibration is None:
            fit.best = model
            model.calibration = fit.calibration()
    warn_unless_converged(fit.method, model.info, None, ConvergenceWarning)
    return model


def cross_validate(X: Any, y: Any = None, *, folds: int = P.FOLDS.default, metric: str | None = None,
                   seed: int = P.SEED.default, **given: Any) -> CrossValidation:
    """Cross-validation, stratified of classes, of rows that are spread over the workers of a Dask cluster.

    Parameters
    ----------
    X, y, **given
        As `train` takes them, but `probability`.
    folds : int
        At least 2. They are cut inside the partitions, whose rows have to be in memory.
    metric, seed
        As of `marginlinear.cross_validate`, but one metric, and none of probabilities.

    Returns
    -------
    CrossValidation
        As of `marginlinear.cross_validate`, but that predictions, scores, fold_of and probabilities are None.

    Raises
    ------
    ValueError, TypeError, OSError, TimeoutError
        As `train`; ValueError for folds and metric, and where a label has rows in one fold alone.

    Warns
    -----
    ConvergenceWarning, PartitionWarning

    Notes
    -----
    The fits of the folds follow one another, each on all workers. Scores of one fold at a time come to the driver.
    """
    from marginlinear.selection.cross_validation import CrossValidation, Measured
    from marginlinear.selection.metrics import METRICS, pooled

    if "probability" in given:
        raise ValueError("probability is part of a model, and none is made: leave it out")
    folds, began = P.FOLDS.check(folds), time.perf_counter()
    values, sizes, infos = [], [], []
    with prepared(X, y, seed=seed, **given) as fit:
        metrics = P.metrics_of(fit.method, metric)
        if len(metrics) > 1 or metrics[0] in P.OF_PROBABILITIES:
            raise ValueError(f"metric = {metric!r}: over partitions one metric is measured, and none of probabilities")
        metric = metrics[0]
        for fold in fit.folds(Cuts(folds, fit.run_values["seed"], ()), fit.model):
            told = fold.y if fit.method.regression else fit.places[fold.y]
            values.append(METRICS[metric](told, fold.places, fold.scores))
            sizes.append(len(fold.y))
            infos.append(fold.fitted.info)
    for info in infos:
        if fell_short(info.status):
            warn_unless_converged(fit.method, info, None, ConvergenceWarning)
            break
    # These stay where the rows are.
    elsewhere: Any = None
    found = Measured(pooled(metric, np.array(values), np.array(sizes)), np.array(values))
    return CrossValidation(*found, elsewhere, elsewhere, elsewhere, infos, time.perf_counter() - began, elsewhere,
                           {metric: found})


@contextmanager
def prepared(X: Any, y: Any, *, solver: str | int | None = None, classes: ArrayLike | None = None,
             class_weight: Any = None, sample_weight: Any = None, client: Client | None = None,
             partitions: int | Literal["chunks"] | None = None, shuffle: bool | Literal["auto"] = "auto",
             checkpoint: str | PathLike[str] | None = None, checkpoint_every: int = CHECKPOINT_EVERY.default,
             resume: bool = False, wait_timeout: float = WAIT_TIMEOUT.default, progress: Observer | None = None,
             scale: str | None = None, probability: bool = False, **params: Any) -> Iterator[DaskFit]:
    """The DaskFit of what `train` takes, for as long as its rows are on the workers."""
    method = registry.get(registry.DEFAULT if solver is None else solver)
    for name in HERE:
        if name in params:
            raise ValueError(f"{name} works on rows that are here: leave it out over partitions")
    values, run_values = fitting.resolved(method, params)
    if method.regression:
        require_no_classes(method, classes=classes, class_weight=class_weight, probability=probability or None)
    fitting.require_partitions(method, values, run_values["algorithm"])
    if values.get("kernel") is not None:
        raise ValueError(f"kernel = {values['kernel']!r} does not go over partitions: give no kernel")
    P.check_function("progress", progress)
    scale = P.resolve((P.SCALE,), {"scale": scale})["scale"]
    check_words(partitions, shuffle, checkpoint, resume)
    check_numbers(checkpoint_every, wait_timeout)
    client = default_client() if client is None else client
    fit = DaskFit(client, method, values, run_values, params.get("threads"), progress, scale)
    try:
        # Those of a cluster that is being started come one after the other.
        require_worker(client, wait_timeout)
        require_workers(client)
        parts = collections.parts_of(X, y, sample_weight, client, partitions, method.regression)
        fit.prepare(parts, class_weight, shuffle)
        fit.labels = fit.classes if classes is None else labels_with(fit.classes, classes)
        fit.communicator = Cluster(client, fit.partitions, checkpoint_every, wait_timeout)
        if checkpoint is not None:
            fit.communicator.journal = Journal(checkpoint, fit.header(), resume)
        yield fit
    except TimeoutError as error:
        error.partial = fit.partial(error)  # type: ignore[attr-defined]  # for who catches it
        raise
    finally:
        fit.close()


def check_words(partitions: int | Literal["chunks"] | None, shuffle: bool | Literal["auto"],
                checkpoint: str | PathLike[str] | None, resume: bool) -> None:
    whole = isinstance(partitions, (int, np.integer)) and not isinstance(partitions, bool) and partitions > 0
    if not (partitions is None or partitions == "chunks" or whole):
        raise P.refusal("partitions", partitions, 'a number above 0, "chunks" or None', ValueError)
    if shuffle not in ("auto", True, False):
        raise P.refusal("shuffle", shuffle, '"auto", True or False', ValueError)
    if resume and checkpoint is None:
        raise ValueError("resume = True is for a checkpoint: give its folder")


def check_numbers(checkpoint_every: int, wait_timeout: float) -> None:
    for param, value in ((CHECKPOINT_EVERY, checkpoint_every), (WAIT_TIMEOUT, wait_timeout)):
        param.check(value)


def require_workers(client: Client) -> None:
    """ValueError that names a worker without marginlinear, or with another version of it."""
    def version_there() -> str:
        # Not by reference: a worker may be without this module.
        import marginlinear

        return marginlinear.__version__

    for worker, found in client.run(version_there, on_error="return").items():
        if isinstance(found, BaseException):
            raise ValueError(f"worker {worker} cannot import marginlinear ({found}): install version {version} there")
        if found != version:
            raise ValueError(f"worker {worker} has marginlinear {found}, here it is {version}: install the same")


class DaskFit:
    """One call of `train`, or of `cross_validate`.

    Attributes
    ----------
    classes, labels : arrays or None
        Those of the rows, ascending; and those that a model is to know. None of a regression.
    whole : Whole
    rows : list of int
        Of each partition.
    best : Model or None
        What there is where the cluster is lost in later fits.
    """

    classes: Any
    labels: Any
    counts: Any
    whole: Whole
    rows: list[int]
    width: int
    futures: list[Future[Any]]
    partitions: list[Future[Any]]
    communicator: Cluster
    scaling: Scaling | None
    table: TableRule | None
    best: Model | None

    def __init__(self, client: Client, method: Method, values: dict[str, Any], run_values: dict[str, Any],
                 threads: int | None, progress: Observer | None, scale: str | None) -> None:
        self.client, self.method, self.values, self.progress, self.scale = client, method, values, progress, scale
        self.run_values = dict(run_values)
        self.bias = self.run_values.pop("bias")
        if values.get(P.FREE_BIAS.name):
            self.bias = fitting.free_bias_of(self.bias)
        self.run_values["shared"] = False
        if not threads:
            # A worker's threads are for its tasks.
            self.run_values["threads"] = 1
        self.futures, self.partitions, self.scaling, self.best = [], [], None, None
        self.communicator = None  # type: ignore[assignment]  # until the rows are there

    def prepare(self, parts: list[Future[Any]], class_weight: Any, shuffle: bool | Literal["auto"]) -> None:
        """The partitions are made, on the workers."""
        client = self.client
        self.futures += parts
        regression = self.method.regression
        told = [client.submit(collections.described, part, regression, pure=False) for part in parts]
        descriptions = client.gather(told)
        there = [at for at, one in enumerate(descriptions) if one.rows]
        parts, descriptions = [parts[at] for at in there], [descriptions[at] for at in there]
        if not parts:
            raise ValueError("X has no rows, or sample_weight is zero for all of them")
        self.table = one_rule([one.table for one in descriptions], [f"partition {number}" for number in there])
        labels = collections.labels_of_all(descriptions)
        if not regression:
            require_words(labels.tolist())
            fitting.require_classes(self.method, labels)
        weights: Any = sum(np.bincount(np.searchsorted(labels, one.labels), one.weights, len(labels))
                      for one in descriptions)
        factors = np.ones(len(labels)) if class_weight is None else class_factors(class_weight, labels, weights)
        before, parts = parts, collections.evened(parts, descriptions, labels, shuffle, self.run_values["seed"], client)
        if parts is not before:
            self.futures += parts
        self.width = max(one.columns for one in descriptions)
        fitting.require_features(self.width, self.values, {"bias": self.bias})
        size, room = float(weights.sum()), collections.room_of(client).of_a_partition
        if self.scale is not None:
            self.scaling = collections.scaling_of(self.scale, parts, self.width, client)
        common = None if regression else labels, self.width, factors, size, self.bias, room, self.scaling
        self.partitions = [
            client.submit(collections.partition_of, part, number, *common, pure=False, retries=collections.RETRIES)
            for number, part in enumerate(parts)]
        wait(self.partitions)
        self.rows = [one.rows for one in descriptions]
        if parts is not before:
            self.rows = client.gather([client.submit(collections.number_of_rows, part, pure=False) for part in parts])
        self.counts = sum(np.bincount(np.searchsorted(labels, one.labels), one.counts, len(labels))
                          for one in descriptions)
        self.classes, n_classes = (None, 2) if regression else (labels, len(labels))
        self.whole = partitioned.Whole(self.width, n_classes, tuple(weights.tolist()), self.bias, len(parts))

    def header(self) -> dict[str, Any]:
        """What a journal knows the fit by."""
        prints, rooms = zip(*self.client.gather([self.client.submit(collections.fingerprint, partition, pure=False)
                                                 for partition in self.partitions]), strict=True)
        return {"version": version, "solver": self.method.name, "params": self.effective(self.whole),
                "rows": self.rows, "features": self.width, "bias": self.bias, "data": prints, "memory": rooms}

    @property
    def how(self) -> str | None:
        return None if self.method.joint or self.whole.n_classes == 2 else self.values["multiclass"]

    @property
    def places(self) -> IntArray:
        """Of the classes among the labels."""
        found: IntArray = np.searchsorted(self.labels, self.classes)
        return found

    def absolute(self, whole: Whole) -> dict[str, Any]:
        """The parameters' values for the rows of the whole."""
        return P.absolute(self.method.params, self.values, whole.size)

    def effective(self, whole: Whole) -> dict[str, Any]:
        return fitting.effective(self.method, {**self.absolute(whole), "multiclass": self.how, "scale": self.scale},
                                 self.run_values)

    def fitted(self, communicator: Cluster, whole: Whole, rows: list[int], progress: Observer | None = None) -> Fitted:
        """Fitted of the scaled rows of the communicator's partitions."""
        method, values, how = self.method, self.absolute(whole), self.how
        own = {p.name: values[p.name] for p in method.params}
        run = Run(progress=progress or self.progress, **self.run_values)
        with fitting.named(self.whole.n_classes, self.width, "features"):
            if whole.count == 1 and communicator.journal is None:
                solution = communicator.alone(method.name, own, run, how)
            else:
                solution = partitioned.fit(method, whole, own, run, how, communicator)
        places = solution.state
        info = solution.info._replace(cluster={
            "rows": rows, "messages": communicator.total("messages"), "collections": places["collections"],
            "bytes": 8 * places["numbers_sent"], "restarts": communicator.total("restarts"),
            "seconds_waiting": communicator.total("waiting"), "seconds": communicator.pace.seconds})
        fitting.require_finite(solution, None, method)
        return fitting.Fitted(solution.weights, self.classes, self.bias, solution.codes, method.name,
                              self.effective(whole), info, None)

    def model(self, fitted: Fitted, folded: bool = False) -> Model:
        """Model of all labels; folded: of the rows as they are given, else of the scaled ones."""
        fitted, lowered = (fitted, 0.0) if self.labels is None else among(self.labels, fitted)
        scaling = self.scaling if folded else None
        if scaling is not None and scaling.linear:
            weights, bias = scaling.folded(np.asarray(fitted.weights), fitted.bias)
            fitted, scaling = fitted._replace(weights=weights, bias=bias), None
        kind = RegressionModel if self.labels is None else Model
        model = kind(**fitted._asdict(), scaling=scaling, table=self.table)
        if np.any(lowered):
            model.weights, model.bias = np.vstack([model.coef.T, model.intercept - lowered]), 1.0
        return model

    def folds(self, cuts: Cuts, model: Callable[[Fitted], Model]) -> Iterator[Fold]:
        """Yield the Folds, with `model` of their Fitted."""
        def fitted(partitions: Sequence[Future[Any]], whole: Whole, rows: list[int], fold: int) -> Fitted:
            def tell(check: HistoryEntry) -> None:
                assert self.progress is not None
                self.progress({"fold": fold + 1, "folds": cuts.folds, **check})

            before = self.communicator
            cluster = before.over(partitions)
            try:
                return self.fitted(cluster, whole, rows, self.progress and tell)
            finally:
                before.fit = cluster.fit
                cluster.close()

        yield from folds_of(self.communicator, self.partitions, self.whole, cuts, self.classes, fitted, model)

    def own_calibration(self) -> Calibration | None:
        """`calibration.of_scores`"""
        return calibration.of_scores(self.method, self.values, len(self.classes), len(self.labels))

    def calibration(self) -> Calibration:
        """The Calibration of the method's scores by those of models that have not seen the rows."""
        # Of each class at most two rows: it has none, one, or a pair.
        require_pairs(self.classes, np.repeat(np.arange(len(self.counts)), np.minimum(self.counts, 2).astype(int)))
        cuts = Cuts(int(min(calibration.FOLDS, self.counts[self.counts > 1].sum())), self.run_values["seed"],
                    np.flatnonzero(self.counts == 1))
        _, y, instance, _, scores = zip(*self.folds(cuts, self.model), strict=True)
        return calibration.fit(np.concatenate(scores), self.places[np.concatenate(y)], np.concatenate(instance),
                               len(self.labels))

    def partial(self, error: TimeoutError) -> Model | None:
        """Model of the weights that a fit had when the cluster was lost; None without any."""
        weights = getattr(error, "weights", None)
        if self.best is not None or weights is None:
            return self.best
        columns = self.whole.n_classes if self.method.joint else 3 - self.whole.n_classes
        if weights.shape[1] != columns:
            return None
        info: Any = None
        return self.model(fitting.Fitted(weights, self.classes, self.bias, None, self.method.name,
                                         self.effective(self.whole), info, None), folded=True)

    def close(self) -> None:
        """Leave nothing on the cluster."""
        if self.communicator is not None:
            if self.communicator.journal is not None:
                self.communicator.journal.close()
            self.communicator.close()
        drop(self.client, self.futures)
        drop(self.client, self.partitions)
