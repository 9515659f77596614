"""The trials of a comparison: on each split of each set each method chooses its parameters inside the training part,
is trained on all of it, and is measured on the test part.

What a trial finds follows from the rows, the split and the method: not from threads, from the order of trials, or from
what was resumed.
"""

from __future__ import annotations

import math
import os
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear import params as P
from marginlinear.compare.contestants import Task, best_of
from marginlinear.compare.design import bootstrap_rows
from marginlinear.compare.measures import Predictions, measure
from marginlinear.data.arrays import select_rows
from marginlinear.data.scaling import learned
from marginlinear.threads import default_threads, in_order, worth_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor
    from typing import TypeAlias

    from marginlinear.compare.contestants import Contestant
    from marginlinear.compare.design import Design
    from marginlinear.compare.journal import Journal
    from marginlinear.compare.sets import Arrays, Dataset, File

    Source: TypeAlias = Arrays | File
    Trial: TypeAlias = dict[str, Any]

# Of the margins of test rows: from the least to the largest, a hundredth of the rows apart.
QUANTILES = np.linspace(0, 1, 101)
# Resamples of a given test part.
DRAWS = 1000


class Plan(NamedTuple):
    """What all trials have in common.

    Attributes
    ----------
    design : Design
    metrics : tuple of str
    select : str
        The metric that chooses parameters.
    scale : str or None
        Learned on the training part.
    regression : bool
    margins : bool
        Whether quantiles of the margins of the test rows are kept.
    """

    design: Design
    metrics: tuple[str, ...]
    select: str
    scale: str | None
    regression: bool
    margins: bool = False

    def header(self) -> dict[str, Any]:
        """What a journal's trials depend on, but sets, methods and the number of splits."""
        from marginlinear._version import version

        design = {name: value for name, value in self.design._asdict().items() if name not in ("splits", "repeats")}
        return {"marginlinear": version, "design": design, "metrics": list(self.metrics), "select": self.select,
                "scale": self.scale, "regression": self.regression,
                **({"margins": True} if self.margins else {})}


class Job(NamedTuple):
    """A trial to be made, by numbers."""

    source: int
    method: int
    split: int


def jobs_of(plan: Plan, sources: Sequence[Source], methods: Sequence[Contestant]) -> list[Job]:
    return [Job(s, m, split) for s, source in enumerate(sources) for split in range(plan.design.count(source.given))
            for m in range(len(methods))]


class Found(NamedTuple):
    """All trials in the order of sets, splits and methods, and what is told of each set."""

    trials: list[Trial]
    sets: dict[str, dict[str, Any]]


def run(plan: Plan, sources: Sequence[Source], methods: Sequence[Contestant], known: dict[tuple[str, str, int], Trial],
        threads: int | None, journal: Journal | None, executor: Executor | None,
        report: Callable[[Trial, int, int], object] | None) -> Found:
    """All trials, those that are `known` as they are.

    report(trial, done, total) is called after each trial that was made, by one thread at a time.
    """
    jobs = jobs_of(plan, sources, methods)
    found: dict[Job, Trial] = {}
    for job in jobs:
        trial = known.get((sources[job.source].name, methods[job.method].label, job.split))
        if trial is not None:
            found[job] = trial
    todo = [job for job in jobs if job not in found]
    loaded = Loaded(plan, sources, todo, journal)
    if journal is not None:
        for method in methods:
            journal.introduce("method", method.label, method.key)
    # What cannot be read is told of now, not after hours.
    for at in range(len(sources)):
        loaded.verify(at)
    lock = threading.Lock()

    def ended(job: Job, trial: Trial) -> None:
        with lock:
            found[job] = trial
            if journal is not None:
                journal.add(trial)
            if report is not None:
                report(trial, len(found), len(jobs))

    with blas_on_one_thread():
        if executor is not None:
            _elsewhere(plan, sources, methods, todo, executor, ended)
        else:
            _here(plan, methods, todo, loaded, threads or default_threads(), ended)
    return Found([found[job] for job in jobs], loaded.told)


def blas_on_one_thread() -> AbstractContextManager[object]:
    """Where threadpoolctl is installed, BLAS works on one thread within it: trials have the cores, and on small
    matrices its own threads take many times longer than one."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    found: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return found


def _here(plan: Plan, methods: Sequence[Contestant], todo: list[Job], loaded: Loaded, threads: int,
          ended: Callable[[Job, Trial], None]) -> None:
    # Where there are fewer trials than threads, they go side by side inside of them.
    several = threads > 1 and len(todo) >= threads
    cancel = threading.Event()
    worth = math.inf

    def work(at: int) -> None:
        nonlocal worth
        job = todo[at]
        data = loaded.take(job.source)

        def begun(fits: int) -> None:
            nonlocal worth
            worth = worth_of(fits, 1 if data.classes is None else len(data.classes))

        worth = math.inf
        ended(job, trial_of(plan, data, methods[job.method], job.split, 1 if several else threads,
                            cancel if several else None, begun))
        loaded.leave(job.source)

    for _ in in_order(work, len(todo), threads if several else 1, cancel, lambda: worth):
        pass


def _elsewhere(plan: Plan, sources: Sequence[Source], methods: Sequence[Contestant], todo: list[Job],
               executor: Executor, ended: Callable[[Job, Trial], None]) -> None:
    """On the workers of an Executor, as of processes or of a Dask cluster's client."""
    from concurrent.futures import as_completed

    futures = {executor.submit(trial_there, plan, sources[job.source], methods[job.method], job.split): job
               for job in todo}
    try:
        for future in as_completed(futures):
            ended(futures[future], future.result())
    finally:
        for future in futures:
            future.cancel()


def trial_there(plan: Plan, source: Source, method: Contestant, split: int) -> Trial:
    """What a worker runs."""
    data = source.load(plan.regression) if source.path is None else _read(source, plan.regression, _stamp(source.path))
    with blas_on_one_thread():
        return trial_of(plan, data, method, split, 1, None)


@lru_cache(maxsize=1)
def _read(source: Source, regression: bool, stamp: float) -> Dataset:
    """A worker's file, read once for many trials, unless it has changed."""
    return source.load(regression)


def _stamp(path: str) -> float:
    return os.stat(path).st_mtime


class Loaded:
    """The sets, each in memory while there are trials of it."""

    def __init__(self, plan: Plan, sources: Sequence[Source], todo: Sequence[Job], journal: Journal | None) -> None:
        self.plan, self.sources, self.journal = plan, sources, journal
        self._users = [sum(job.source == at for job in todo) for at in range(len(sources))]
        self._held: dict[int, Dataset] = {}
        self.told: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def take(self, at: int) -> Dataset:
        with self._lock:
            if at not in self._held:
                data = self._held[at] = self.sources[at].load(self.plan.regression)
                if data.name not in self.told:
                    self.told[data.name] = data.told()
                    if self.journal is not None:
                        self.journal.introduce("set", data.name, self.told[data.name])
            return self._held[at]

    def leave(self, at: int) -> None:
        with self._lock:
            self._users[at] -= 1
            if self._users[at] <= 0:
                self._held.pop(at, None)

    def verify(self, at: int) -> None:
        """Read it once; DataError where that fails, and where a journal knows other rows by the name."""
        self.take(at)
        with self._lock:
            del self._held[at]


def parts_of(plan: Plan, data: Dataset, split: int) -> tuple[Any, Any, Any, Any, Any]:
    """(training rows, their classes or targets, test rows, theirs, groups of the training rows) of a split."""
    if data.given is not None:
        return data.X, data.y, *data.given, data.groups
    found = plan.design.split(data.name, data.y, split, data.groups, not plan.regression)
    groups = None if data.groups is None else data.groups[found.train]
    return *data.rows(found.train), *data.rows(found.test), groups


def trial_of(plan: Plan, data: Dataset, method: Contestant, split: int, threads: int,
             cancel: threading.Event | None, begun: Callable[[int], object] | None = None) -> Trial:
    """One trial, as the journal has it. begun(fits) is called before the first of so many."""
    trial: Trial = {"set": data.name, "method": method.label, "split": split, "train": 0, "test": 0, "params": {},
                    "inner": None, "scores": {}, "status": None, "certificate": None, "allowed": None,
                    "objective": None, "n_iter": None, "certified": False, "fits": 0, "uncertified": 0,
                    "seconds": {"select": 0.0, "fit": 0.0, "predict": 0.0}, "reason": None, "replicates": {}}
    try:
        X, y, X_test, y_test, groups = parts_of(plan, data, split)
        if plan.design.rare is not None:
            stay = plan.design.thinned(data.name, y, split)
            X, y, groups = select_rows(X, stay), y[stay], None if groups is None else groups[stay]
        if plan.design.label_noise > 0:
            assert data.classes is not None
            y = plan.design.noisy(data.name, y, split, len(data.classes))
        trial |= {"train": len(y), "test": len(y_test)}
        if plan.scale is not None:
            scaling = learned(plan.scale, X)
            X, X_test = scaling.apply(X), scaling.apply(X_test)
        fold_of = plan.design.inner(data.name, y, split, groups, not plan.regression)
        task = Task(X, y, data.classes, fold_of, plan.select, plan.design.seed, threads, cancel, dense=data.dense)
        trial["reason"] = method.unfit(task)
        if trial["reason"] is None:
            points = method.points(task)
            if begun is not None:
                begun(1 + task.folds * len(points))
            _made(plan, task, method, points, X_test, y_test, trial, data)
    # What a method or a split refuses is a row with its reason.
    except (ValueError, MemoryError) as error:
        trial["reason"] = str(error) or type(error).__name__
    return trial


def _made(plan: Plan, task: Task, method: Contestant, points: list[dict[str, Any]], X_test: Any, y_test: Any,
          trial: Trial, data: Dataset) -> None:
    chosen: dict[str, Any] = points[0]
    if len(points) > 1:
        began = time.perf_counter()
        tried = method.search(task, points)
        trial["seconds"]["select"] = time.perf_counter() - began
        best = best_of(tried, plan.select)
        chosen, trial["inner"] = best.params, best.score
        trial["fits"] = task.folds * len(points)
        trial["uncertified"] = sum(one.short for one in tried)
    trial["params"] = {name: _plain(value) for name, value in chosen.items()}
    began = time.perf_counter()
    fitted = method.fit(task, chosen, any(metric in P.OF_PROBABILITIES for metric in plan.metrics))
    trial["seconds"]["fit"] = time.perf_counter() - began
    trial |= {"status": fitted.status, "certificate": _number(fitted.certificate), "allowed": _number(fitted.allowed),
              "objective": _number(fitted.objective), "n_iter": fitted.n_iter, "certified": fitted.certified}
    began = time.perf_counter()
    places, scores = fitted.predict(X_test)
    trial["seconds"]["predict"] = time.perf_counter() - began
    chances = fitted.probabilities(X_test) if fitted.probabilities is not None else None
    found = Predictions(y_test, places, scores, chances)
    trial["scores"] = {metric: _number(measure(metric, found)) for metric in plan.metrics}
    if plan.margins and fitted.margins is not None:
        found_margins = fitted.margins(X_test, y_test)
        if found_margins is not None:
            trial["margins"] = np.quantile(found_margins, QUANTILES).tolist()
    if data.given is not None:
        trial["replicates"] = {metric: [] for metric, value in trial["scores"].items() if value is not None}
        for rows in bootstrap_rows(plan.design.seed, data.name, len(y_test), DRAWS):
            resample = found.at(rows)
            for metric, values in trial["replicates"].items():
                values.append(_number(measure(metric, resample)))


def _plain(value: Any) -> Any:
    """A parameter's value as JSON has it."""
    value = value.item() if isinstance(value, np.generic) else value
    plain = isinstance(value, (bool, int, str, type(None))) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else repr(value)


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)

