"""How long a comparison takes, told before it begins.

Of each set and method one trial is timed on some of the rows, with some of the chains of its grid, in one inner fold.
The rows become four times as many while that costs little beside the trials to come; in the end all of a trial is made,
if that is cheap. From where it ends the seconds are a constant and a part that grows with the rows, or grow by a power
of them. Where the first trial is all that may be timed, one on a quarter of its rows tells that constant.
"""

from __future__ import annotations

import math
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear.compare.design import spread
from marginlinear.compare.report import markdown_table
from marginlinear.compare.study import blas_on_one_thread, jobs_of, trial_of
from marginlinear.data.arrays import select_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from marginlinear._typing import AnyArray, IntpArray
    from marginlinear.compare.contestants import Contestant, Fitted, Task, Tried
    from marginlinear.compare.design import Design
    from marginlinear.compare.sets import Dataset
    from marginlinear.compare.study import Plan, Source, Trial

# What the timing of a set and a method may take: a part of all its trials, but between so many seconds.
SHARE, LEAST, MOST = 0.05, 0.25, 30.0
# Rows of a first trial, at least; by what they grow from each to the next; chains of the grid in each.
ROWS, FACTOR, CHAINS = 100, 4, 4


class Expected(NamedTuple):
    """What is to be done of a set and a method.

    Attributes
    ----------
    set, method : str
    trials : int
        Those to be made.
    fits : int
        Of a trial: inner folds times points of the grid, and one on all of the training part; 0 where the method does
        not fit the set.
    seconds : float
        Of a trial, on one thread.
    """

    set: str
    method: str
    trials: int
    fits: int
    seconds: float


class Forecast(NamedTuple):
    """What a comparison has to do, and about how long that takes.

    Attributes
    ----------
    parts : list of Expected
        One a set and method, in the order of both.
    threads : int
        On which trials are to run side by side.
    """

    parts: list[Expected]
    threads: int

    @property
    def trials(self) -> int:
        return sum(part.trials for part in self.parts)

    @property
    def fits(self) -> int:
        return sum(part.trials * part.fits for part in self.parts)

    @property
    def seconds(self) -> float:
        """Of all trials one after the other, on one thread of this machine."""
        return sum(part.trials * part.seconds for part in self.parts)

    @property
    def wait(self) -> float:
        """Seconds of wall clock, on all of the threads."""
        return max([self.seconds / self.threads, *(part.seconds for part in self.parts if part.trials)])

    def of_trial(self, name: str, method: str) -> float:
        """Seconds of a trial of the set called `name` and the method."""
        return next(part.seconds for part in self.parts if (part.set, part.method) == (name, method))

    def to_markdown(self) -> str:
        """A table: a line a set and method, with its trials, their fits, and their seconds on one thread."""
        rows = [[part.set, part.method, f"{part.trials:,}", f"{part.trials * part.fits:,}",
                 f"{part.trials * part.seconds:.3g}"] for part in self.parts]
        total = ["all", "", f"{self.trials:,}", f"{self.fits:,}", f"{self.seconds:.3g}"]
        return "\n".join(markdown_table([["set", "method", "trials", "fits", "seconds"], *rows, total])) + "\n"

    def __str__(self) -> str:
        return self.to_markdown()


def forecast_of(plan: Plan, sources: Sequence[Source], methods: Sequence[Contestant],
                known: Mapping[tuple[str, str, int], Trial], threads: int) -> Forecast:
    """The Forecast of a comparison; trials that are `known` are not made again, and their seconds stand for those of
    the others of their set and method."""
    parts = []
    warm: set[str] = set()
    for at, source in enumerate(sources):
        splits = [job.split for job in jobs_of(plan, sources[at:at + 1], methods[:1])]
        missing = {method.label: [split for split in splits if (source.name, method.label, split) not in known]
                   for method in methods}
        data = source.load(plan.regression)
        for method in methods:
            label, trials = method.label, len(missing[method.label])
            told = [known[source.name, label, split] for split in splits if split not in missing[label]]
            if told:
                seconds = float(np.mean([sum(trial["seconds"].values()) for trial in told]))
                fits = max(0 if trial["status"] is None else trial["fits"] + 1 for trial in told)
            else:
                fits, seconds, began = 0, 0.0, time.perf_counter()
                for split in missing[label]:
                    with blas_on_one_thread():
                        fits, seconds = _timed(plan, data, method, split, trials, label not in warm)
                    warm.add(label)
                    # The training part of one split may lack a class that the others' have.
                    if fits or time.perf_counter() - began > MOST:
                        break
            parts.append(Expected(source.name, label, trials, fits, seconds))
    return Forecast(parts, threads)


def _timed(plan: Plan, data: Dataset, method: Contestant, split: int, trials: int, first: bool) -> tuple[int, float]:
    """(fits, seconds) of a trial of this split; (0, 0) where it is refused, however many the rows."""
    m, folds = len(data.y), plan.design.folds
    found: list[tuple[int, float]] = []
    spent, fits = 0.0, 0
    for n, whole in [*((n, False) for n in _sizes(m)), (m, True)]:
        part = Part(method, whole)
        cost, trial = _measured(plan, data, part, split, n)
        if first and cost < MOST:
            # What is imported by a first fit takes as long as many of them.
            cost, trial = _measured(plan, data, part, split, n)
        first = False
        if trial["reason"] is not None:
            # Few rows may lack a class.
            continue
        spent += cost
        if whole:
            return fits, cost
        fits = part.count * folds + 1 if part.count > 1 else 1
        found.append((n, part.whole_trial(cost, trial, folds)))
        ahead = extrapolated(found, m, method.power)
        following = ahead if n == m else cost * min(FACTOR, m / n)
        if spent + following > min(max(LEAST, SHARE * trials * ahead), MOST):
            if len(found) == 1 and n < m:
                # How much of it grows with the rows, fewer of them tell: of many features next to nothing may.
                fewer = n // FACTOR
                cost, trial = _measured(plan, data, part, split, fewer)
                if trial["reason"] is None:
                    found.insert(0, (fewer, part.whole_trial(cost, trial, folds)))
            break
    return fits, extrapolated(found, m, method.power) if found else 0.0


def _measured(plan: Plan, data: Dataset, method: Contestant, split: int, n: int) -> tuple[float, Trial]:
    """The seconds of a trial on n of the rows, and the trial."""
    plan = plan._replace(design=_shrunk(plan.design, n / len(data.y)))
    data = sample(data, n, plan.design.seed)
    began = time.perf_counter()
    trial = trial_of(plan, data, method, split, 1, None)
    return time.perf_counter() - began, trial


def _shrunk(design: Design, part: float) -> Design:
    """The design for a part of the rows: sizes that are counts go with them."""
    sizes = {name: max(1.0, round(size * part)) for name in ("train_size", "test_size")
             if (size := getattr(design, name)) is not None and size >= 1}
    return design._replace(**sizes)


def _sizes(m: int) -> Iterator[int]:
    """Numbers of rows, ever more, up to m."""
    steps = math.floor(math.log(m / ROWS, FACTOR)) if m > ROWS else 0
    for power in range(steps, -1, -1):
        yield -(-m // FACTOR**power)


def extrapolated(found: Sequence[tuple[int, float]], m: int, most: float) -> float:
    """Seconds for m rows, of (rows, seconds) of ever more rows; they grow by the power `most` of the rows at most, as
    two short times may tell of more."""
    n, seconds = found[-1]
    if len(found) == 1:
        return seconds * m / n
    fewer, before = found[-2]
    growth = max(1.0, seconds / before)
    power = math.log(growth) / math.log(n / fewer)
    if power > 1:
        return float(seconds * (m / n) ** min(power, most))
    return seconds + max(0.0, seconds - before) / (n - fewer) * (m - n)


def sample(data: Dataset, n: int, seed: int) -> Dataset:
    """A part of the set: so many rows, spread over the classes, and as large a part of a given test part."""
    m = len(data.y)
    if n >= m:
        return data
    rng = np.random.default_rng([seed, zlib.crc32(data.name.encode()), 4])

    def rows_of(y: AnyArray, count: int) -> IntpArray:
        return np.sort(spread(y if data.classes is not None else np.zeros(len(y)), rng)[:count])

    rows = rows_of(data.y, n)
    given = data.given
    if given is not None:
        some = rows_of(given[1], max(1, len(given[1]) * n // m))
        given = select_rows(given[0], some), given[1][some]
    return data._replace(X=select_rows(data.X, rows), y=data.y[rows], given=given,
                         groups=None if data.groups is None else data.groups[rows])


class Part:
    """A contestant of whose grid some chains are tried, in the first inner fold, or `whole`.

    Attributes
    ----------
    count : int
        Points of the whole grid.
    share : float
        These, by those that are tried.
    """

    def __init__(self, inner: Contestant, whole: bool = False) -> None:
        self.inner, self.label, self.whole, self.count, self.share = inner, inner.label, whole, 1, 1.0

    @property
    def key(self) -> dict[str, Any]:
        return self.inner.key

    @property
    def described(self) -> str:
        return self.inner.described

    @property
    def regression(self) -> bool | None:
        return self.inner.regression

    @property
    def power(self) -> float:
        return self.inner.power

    def unfit(self, task: Task) -> str | None:
        return self.inner.unfit(task)

    def chains(self, points: list[dict[str, Any]]) -> list[list[int]]:
        return self.inner.chains(points)

    def points(self, task: Task) -> list[dict[str, Any]]:
        points = self.inner.points(task)
        chains = self.inner.chains(points)
        taken = range(len(chains)) if self.whole or len(chains) <= CHAINS else [
            math.floor((i + 0.5) * len(chains) / CHAINS) for i in range(CHAINS)]
        some = [points[p] for p in sorted(p for chain in taken for p in chains[chain])]
        self.count, self.share = len(points), len(points) / len(some)
        return some

    def whole_trial(self, seconds: float, trial: Trial, folds: int) -> float:
        """Seconds of all points in all folds, of what the trial took with some in one."""
        select: float = trial["seconds"]["select"]
        return seconds + select * (self.share * folds - 1)

    def search(self, task: Task, points: list[dict[str, Any]]) -> list[Tried]:
        return self.inner.search(task if self.whole else task._replace(tried=1), points)

    def fit(self, task: Task, point: Mapping[str, Any], probability: bool) -> Fitted:
        return self.inner.fit(task, point, probability)
