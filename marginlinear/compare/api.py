"""compare: sets and methods in, a Comparison out."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from marginlinear import params as P
from marginlinear.compare import parameters as D
from marginlinear.compare.design import Design
from marginlinear.compare.foresight import Forecast, forecast_of
from marginlinear.compare.journal import Journal
from marginlinear.compare.measures import metrics_of
from marginlinear.compare.methods import contestants_of, regression_of
from marginlinear.compare.result import Comparison, Entrant
from marginlinear.compare.sets import require_distinct, sources_of
from marginlinear.compare.study import Plan, run
from marginlinear.threads import default_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from marginlinear._typing import Integer, PathLike, Scale
    from marginlinear.compare.contestants import Contestant
    from marginlinear.compare.study import Source, Trial


def compare(sets: Any, methods: Iterable[Any], *, splits: Integer = D.SPLITS.default,
            train_size: float = D.TRAIN_SIZE.default, test_size: float | None = None,
            outer_folds: Integer | None = None, repeats: Integer = D.REPEATS.default, folds: Integer = D.FOLDS.default,
            metric: str | Sequence[str] | None = None, select: str | None = None, scale: Scale | None = None,
            label_noise: float = D.LABEL_NOISE.default, rare: float | None = D.RARE.default,
            seed: Integer = D.SEED.default, threads: Integer | None = None, level: float = D.LEVEL.default,
            rope: float = D.ROPE.default, certified_only: bool = True, margins: bool = False,
            journal: PathLike | None = None, resume: PathLike | None = None,
            executor: Executor | None = None, progress: Callable[[Trial, int, int], object] | None = None,
            grids: Mapping[str, str] | None = None, **common: Any) -> Comparison:
    """Compare methods on sets: on repeated splits, with parameters chosen inside each training part, by tests that know
    that splits share rows.

    Parameters
    ----------
    sets : dict, path, list of paths, or (X, y)
        Name -> (X, y), or (X, y, X_test, y_test) of a test part that is given, or the path of a LIBSVM or CSV file.
    methods : sequence
        Names, texts as in "odm;mu=0,0.5;theta=0.2" (see marginlinear.compare.specs), estimators of scikit-learn's kind,
        or (estimator, grid), where grid is a dict of names and lists of values; with a label of its own, which else is
        its class's name, (label, estimator) or (label, estimator, grid). The first is what the others are compared
        with.
    splits : int
        Random splits of each set.
    train_size, test_size : float
        Parts of the rows below 1, else counts. Default: half for training, all others for tests.
    outer_folds, repeats : int, optional
        In place of random splits: each of so many folds is the test part once, and that so many times.
    folds : int
        Of the selection inside a training part.
    metric : str or sequence of str, optional
        As `cross_validate` has them, and log_loss, brier and aurc. Default: accuracy, of numbers mse.
    select : str, optional
        What parameters are chosen by. Default: the first metric, if it needs no probabilities.
    scale : {"range", "maxabs", "unit"}, optional
        Learned on each training part.
    label_noise : float
        Part of each training part's rows, in [0, 1), that get another class's label at random. Test rows keep theirs.
    rare : float, optional
        Part of each training part's rows, in (0, 1), that may be of its rarest class: others of that class, at random,
        are left out. Test rows stay. Default: all rows.
    seed, threads : int
        The result does not depend on threads.
    level, rope : float
        See Comparison.
    certified_only : bool
        Whether fits without a certificate within their tolerance are left out of means and tests.
    margins : bool
        Whether quantiles of the margins of the test rows, by the norm of the weights, are kept in the trials, for
        pictures.
    journal, resume : path, optional
        A file that gets one line for each trial as it ends, and one to go on from.
    executor : concurrent.futures.Executor, optional
        Where trials run: of processes, or a Dask client's `get_executor()`.
    progress : callable, optional
        Called as progress(trial, done, total) after each trial.
    grids : dict, optional
        Label of a method -> a grid as text, beside what its own text names.
    **common
        Parameters of marginlinear's methods that have them: bias (here 1 by default), tol, kernel, gamma, max_iter,
        time_limit, multiclass, ...

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError, TypeError
        For an unknown method, parameter or metric, and for sets that cannot be read as such. What a method refuses on a
        split is no error, but a trial with its `reason`.
    DataError
        For a file that is wrong, and the journal of another comparison.
    """
    level, rope = D.LEVEL.check(level), D.ROPE.check(rope)
    P.check_flag("certified_only", certified_only)
    given = _prepared(sets, methods, {
        "splits": splits, "train_size": train_size, "test_size": test_size, "outer_folds": outer_folds,
        "repeats": repeats, "folds": folds, "seed": seed, "label_noise": label_noise, "rare": rare}, metric,
        select, scale, margins, journal, resume, threads, grids, common)
    plan, sources, contestants, kept, threads = given
    with nullcontext() if kept is None else kept.opened():
        found = run(plan, sources, contestants, given.known, threads, kept, executor,
                    P.check_function("progress", progress))
    entrants = [Entrant(one.label, one.described, one.key) for one in contestants]
    told = {source.name: found.sets[source.name] for source in sources}
    return Comparison(plan, entrants, told, found.trials, level=level, rope=rope, certified_only=certified_only)


def forecast(sets: Any, methods: Iterable[Any], *, metric: str | Sequence[str] | None = None,
             select: str | None = None, scale: Scale | None = None, margins: bool = False,
             journal: PathLike | None = None, resume: PathLike | None = None, threads: Integer | None = None,
             grids: Mapping[str, str] | None = None, **others: Any) -> Forecast:
    """What `compare` would have to do, and about how long that would take. Nothing is written.

    A trial of each set and method is timed on ever more of the rows, with a part of the grid in one inner fold, until
    that has taken some hundredths of all its trials.

    Parameters
    ----------
    sets, methods, metric, select, scale, margins, journal, resume, threads, grids, **others
        As of `compare`. Trials that are in `resume` are not to be made again, and those of the same set and method
        take what they took.

    Returns
    -------
    Forecast
        `print` it for a table: a line a set and method.

    Raises
    ------
    ValueError, TypeError, DataError
        As `compare`.
    """
    design = {param.name: others.pop(param.name, None) for param in D.DESIGN}
    common = {name: value for name, value in others.items() if name not in NOT_OF_TRIALS}
    given = _prepared(sets, methods, design, metric, select, scale, margins, journal, resume, threads, grids, common)
    return forecast_of(given.plan, given.sources, given.contestants, given.known, given.threads or default_threads())


# What `compare` takes that no trial depends on.
NOT_OF_TRIALS = ("level", "rope", "certified_only", "executor", "progress")


class _Prepared(NamedTuple):
    plan: Plan
    sources: list[Source]
    contestants: list[Contestant]
    kept: Journal | None
    threads: int | None

    @property
    def known(self) -> dict[tuple[str, str, int], Trial]:
        return {} if self.kept is None else self.kept.known


def _prepared(sets: Any, methods: Iterable[Any], design: Mapping[str, Any], metric: str | Sequence[str] | None,
              select: str | None, scale: Scale | None, margins: bool, journal: PathLike | None,
              resume: PathLike | None, threads: Integer | None, grids: Mapping[str, str] | None,
              common: Mapping[str, Any]) -> _Prepared:
    """All that can be wrong with the arguments is found here."""
    contestants = contestants_of(methods, {D.BIAS.name: D.BIAS.default, **common}, grids)
    plan = plan_of(contestants, Design(**P.resolve(D.DESIGN, design)), metric, select, scale,
                   P.check_flag("margins", margins))
    sources = sources_of(sets)
    require_distinct(sources)
    if not sources:
        raise ValueError("sets: there is none: give paths, or a dict of a name and (X, y)")
    if journal is not None and resume is not None:
        raise ValueError("journal and resume are both given: resume goes on writing its own file")
    written = journal if resume is None else resume
    kept = None if written is None else Journal(P.check_path("journal", written), plan.header())
    if kept is not None and resume is not None:
        kept.read()
    elif kept is not None:
        kept.require_new()
    return _Prepared(plan, sources, contestants, kept, None if threads is None else P.THREADS.check(threads))


def plan_of(contestants: Sequence[Contestant], design: Design, metric: str | Sequence[str] | None, select: str | None,
            scale: str | None, margins: bool = False) -> Plan:
    """The Plan; ValueError for metrics of another kind than the methods."""
    regression = regression_of(contestants)
    if margins and regression:
        raise ValueError("margins = True is for classes: numbers have none")
    for param, given in ((D.LABEL_NOISE, design.label_noise or None), (D.RARE, design.rare)):
        if regression and given is not None:
            raise ValueError(f"{param.name} = {given:g} is for classes, these methods learn numbers: leave it out")
    names = metrics_of(() if metric is None else (metric,) if isinstance(metric, str) else tuple(metric), regression)
    return Plan(design, names, select_of(select, names, regression), None if scale is None else P.SCALE.check(scale),
                regression, margins)


def select_of(select: str | None, metrics: Sequence[str], regression: bool) -> str:
    """The metric that chooses; ValueError for one that needs probabilities, which inner folds do not have."""
    if select is None:
        usual = metrics_of((), regression)[0]
        return next((metric for metric in metrics if metric not in P.OF_PROBABILITIES), usual)
    if select in P.OF_PROBABILITIES:
        raise ValueError(f"select = {select!r} needs probabilities, which fits in inner folds do not have: choose by "
                         "another metric")
    return metrics_of((select,), regression)[0]
