"""From checked rows to what a linear model is made of; `api` adds the caller's arrays, kernels and scaling."""

from __future__ import annotations

import math
import time
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear import params as P
from marginlinear._core.rows import finite
from marginlinear.data.labels import require_words
from marginlinear.errors import Stopped
from marginlinear.memory import memory
from marginlinear.options import did_you_mean
from marginlinear.problem import Run
from marginlinear.threads import MANY, default_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from threading import Event

    from marginlinear._core.rows import Rows
    from marginlinear._typing import (
        AnyArray,
        BoolArray,
        FloatArray,
        HistoryEntry,
        Int8Array,
        IntArray,
        Observer,
        Parameters,
        State,
        Stateful,
    )
    from marginlinear.data.kernels import Kernel
    from marginlinear.data.label_sets import LabelSets
    from marginlinear.problem import Info, Problem, Solution
    from marginlinear.registry import Method

# Keywords of `train`, and of what else trains, that are no parameters of a method.
OTHERS = (P.SOLVER.name, "class_weight", "sample_weight", *(param.name for param in P.AROUND))
# Arrays of weights that any fit holds at once: where it is, the best weights so far, and those of its duals.
HELD = 3


class Linear:
    """What the weights, their columns' codes and the bias of a linear model tell."""

    __slots__ = ()

    if TYPE_CHECKING:
        weights: FloatArray
        classes: AnyArray | None
        bias: float

        @property
        def codes(self) -> Int8Array | None: ...

    @property
    def columns(self) -> int:
        """Columns of scores."""
        count: int = self.weights.shape[1]
        return count

    @property
    def voted(self) -> bool:
        """True where columns with codes vote for the classes."""
        return self.codes is not None

    @property
    def joint(self) -> bool:
        """True where the largest of several columns of scores wins: one column a class."""
        return self.classes is not None and not self.voted and self.columns == len(self.classes)

    @property
    def n_features(self) -> int:
        count: int = self.weights.shape[0] - (self.bias >= 0)
        return count


class _Fitted(NamedTuple):
    weights: FloatArray
    classes: AnyArray | None
    bias: float
    codes: Int8Array | None
    solver: str
    params: dict[str, Any]
    info: Info
    state: Start | None


class Fitted(_Fitted, Linear):  # pyright: ignore[reportIncompatibleVariableOverride]  # a field reads like a property
    """A model as a fit leaves it: the arguments of `Model`, and what `save_model` writes.

    Attributes
    ----------
    weights : float64 array of shape (d, columns)
        As in a Solution.
    classes : array or None
        The labels, ascending; None of a regression.
    bias, codes, solver, params, info
        As of a Model.
    state : Start
    """

    __slots__ = ()
    scaling = calibration = None


class Start:
    """The state of a Solution, and what it belongs to: a dict of what must be the same, the classes of the rows, or
    their targets, and where the two may be of different processes a check of the rows."""

    def __init__(self, origin: dict[str, Any], y: AnyArray, state: State | None, rows: int | None = None) -> None:
        self.origin, self.y, self.state, self.rows = origin, y, state, rows


class Watch:
    """One fit as those see it who look on: in place of the `progress` of its Run.

    Attributes
    ----------
    observers : sequence of callable
        Called with each entry of the history; where one returns True the fit ends by Stopped.
    fits : list
        As of Run.
    history : list of dict
        The entries so far.
    made : callable
        The Model of a Fitted.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers
        self.fits: list[Stateful] = []
        self.history: list[HistoryEntry] = []
        self.began = time.perf_counter()
        # From `follow` on, until `close`.
        self._start: Any = None
        self._fitted: Any = None
        self.made: Any = None

    def __call__(self, entry: HistoryEntry) -> None:
        self.history.append(entry)
        self.tell(entry)

    def tell(self, entry: HistoryEntry) -> None:
        # All of them hear of it, whatever the first one says.
        answers = [observer(entry) for observer in self.observers]
        if any(isinstance(answer, (bool, np.bool_)) and answer for answer in answers):
            raise Stopped

    def follow(self, start: Callable[[State], Start], fitted: Callable[[State], Fitted]) -> None:
        """`start(state)` is a Start, `fitted(state)` what a fit makes of the state that has no time left."""
        self._start, self._fitted = start, fitted

    def close(self) -> None:
        """Let go of the fit, which knows its Watch: the rows are not to wait for the garbage collector."""
        self.fits.clear()
        self._start = self._fitted = self.made = None

    def model(self, status: str) -> Any:
        return self.made(self.fitted(status))

    @property
    def knows(self) -> bool:
        """Whether there is something so far: weights, or columns of them, that are not all 0."""
        states = [fit.state() for fit in self.fits[-1:]]
        return any(column is not None and np.any(column.get("W", True))
                   for state in states for column in state.get("columns", [state]))

    def start(self) -> Start:
        """The Start of what there is so far."""
        start: Start = self._start(self.fits[-1].state())
        return start

    def fitted(self, status: str) -> Fitted:
        """The Fitted of what there is so far: unless it has converged it has ended by `status`."""
        found: Fitted = self._fitted(self.fits[-1].state())
        info, n_iter = found.info, max((entry["n_iter"] for entry in self.history), default=0)
        return found._replace(info=info._replace(
            status=info.status if info.converged else status, reason=None, n_iter=max(n_iter, info.n_iter),
            seconds=time.perf_counter() - self.began, history=[*self.history, *info.history]))


class Fit:
    """A method with all its parameters: what makes Fitted of rows that have all `classes`, None for a regression.

    `width` is the number of the caller's features, before any scaling. `sets` are the LabelSets of a multi-label fit,
    whose problems have them as classes, and `classes` as labels: a column each.
    """

    def __init__(self, method: Method, values: dict[str, Any], run_values: dict[str, Any], classes: AnyArray | None,
                 width: int, scale: str | None = None, sets: LabelSets | None = None) -> None:
        self.sets = sets
        self.method, self.values, self.scale, self.classes, self.width = method, values, scale, classes, width
        self.run_values = dict(run_values)
        self.bias = self.run_values.pop("bias")
        self.kernel = kernel_of(values, width)
        if values.get(P.FREE_BIAS.name) or method.offset:
            self._free_bias()
        if method.one_class and self.bias >= 0:
            raise ValueError(f"bias = {self.bias!r} is ignored by one-class machines, whose rho is in its place: leave "
                             "it out")
        k = 2 if method.regression or classes is None else len(classes)
        self.how = "ovr" if sets is not None else None if method.joint or k == 2 else values["multiclass"]
        self.columns = k if method.joint else 1
        if self.how is not None:
            from marginlinear.data.codes import column_count

            self.columns = column_count(self.how, k)

    def _free_bias(self) -> None:
        """With a kernel there is an offset in place of the bias feature."""
        if self.kernel is None:
            self.bias = free_bias_of(self.bias)
        elif self.bias >= 0 if not self.method.offset else self.bias == 0:
            raise ValueError(f"bias = {self.bias!r} does not go with free_bias = True, whose offset takes its place: "
                             "give one of them")

    def check(self, rows: Rows) -> None:
        """Refuse rows that the machine cannot hold the weights for, or whose squares overflow.

        Before rows are selected and merged: a RowError is to name them as they are.
        """
        require_memory(self.columns, rows.n, "features", rows.pager)
        rows.sqnorms()

    def fitted(self, problem: Problem, start: Any = None, progress: Observer | None = None, cancel: Event | None = None,
               threads: int | None = None, overwrite_rows: bool = False, watch: Watch | None = None) -> Fitted:
        """Fitted of a Problem; with a kernel, the weights are the coefficients of the rows.

        Parameters are those of Run; `start` is a Model or a Start, `threads` in place of the fit's own, not `shared`. A
        Watch takes the place of `progress`. ValueError where weights or their objective are not finite: no such model
        is made.
        """
        method, how, kernel = self.method, self.how, self.kernel
        values = P.absolute(method.params, self.values, problem.size)
        run_values = {**self.run_values, "threads": threads or self.run_values["threads"],
                      "shared": threads is None and self.run_values["shared"]}
        origin = {"method": method.name, "rows": problem.rows.m, "features": self.width,
                  "bias feature": self.bias >= 0, "classes": problem.n_classes,
                  "kernel": kernel and (kernel.kind, kernel.gamma, kernel.degree, kernel.coef0),
                  "multiclass": how if self.sets is None else "multilabel", "scale": self.scale}
        told = problem.y if problem.targets is None else problem.targets
        codes = varying = None
        if self.sets is not None:
            varying, codes = self.label_codes(problem.y)
        started = start_state(start, origin, told, problem.rows, self)
        if varying is not None and started is not None and "codes" not in started:
            # Of a file's model the weights of all labels.
            started = {"columns": [column for column, there in zip(started["columns"], varying, strict=True) if there]}
        # Several binary problems share the rows.
        run = Run(start=started, progress=watch or progress, cancel=cancel,
                  overwrite_rows=overwrite_rows and how is None, fits=None if watch is None else watch.fits,
                  **run_values)
        method_values = {p.name: values[p.name] for p in method.params}

        def solve(run: Run) -> Solution:
            with named(self.columns, problem.rows.m if kernel else problem.rows.n, "rows" if kernel else "features"):
                if how is None:
                    return method.fit(problem, method_values, run)
                from marginlinear.algorithms import multiclass

                return multiclass.fit(method, problem, method_values, run, how, codes)

        def made(solution: Solution) -> Fitted:
            require_finite(solution, problem.rows, method)
            weights, bias = solution.weights, self.bias
            if solution.offset is not None:
                weights, bias = np.vstack((weights, solution.offset)), 1.0
            if varying is not None and weights.shape[1] < len(varying):
                weights = np.zeros((len(weights), len(varying)))
                weights[:, varying] = solution.weights
            return Fitted(weights, self.classes, bias, solution.codes, method.name,
                          effective(method, {**values, "multiclass": None if self.sets is not None else how,
                                             "scale": self.scale}, run_values),
                          solution.info, Start(origin, told, solution.state))

        if watch is not None:
            last = run._replace(time_limit=0.0, progress=None, cancel=None, overwrite_rows=False, fits=None)
            watch.follow(lambda state: Start(origin, told, state, check_of(problem.rows)),
                         lambda state: made(solve(last._replace(start=state))))
        return made(solve(run))

    def constants(self, y: IntArray) -> FloatArray:
        """float64 array of shape (k,): 1 for a label that all rows y, places in `sets`, have, -1 for one that none has,
        else 0."""
        assert self.sets is not None
        there = self.sets[np.unique(y)]
        counts = np.bincount(there.indices, minlength=len(there.classes))
        found: FloatArray = (counts == len(there)).astype(np.float64) - (counts == 0)
        return found

    def label_codes(self, y: IntArray) -> tuple[BoolArray, Int8Array]:
        """(labels that some of the rows have, and some not, a bool array, int8 codes of the sets, a column for each)"""
        assert self.sets is not None
        varying = self.constants(y) == 0
        if not varying.any():
            raise ValueError("y: each label is in all rows or in none: there is nothing to tell apart")
        return varying, 2 * self.sets.indicator()[:, varying].astype(np.int8) - 1


def free_bias_of(bias: float) -> float:
    """The value of the bias feature whose weight costs nothing; ValueError for 0."""
    if bias == 0:
        raise ValueError(f"bias = {bias!r} does not go with free_bias = True, which needs one: give 1")
    return 1.0 if bias < 0 else bias


def resolved(method: Method, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(values of the method's parameters, of the run's): checked, with their defaults."""
    known = {p.name: p for p in (*method.run, *method.takes)}
    for name in params:
        if name not in known:
            raise TypeError(f"{method.name} has no parameter {name!r}{_meant(name, known)}: "
                            f"it takes {', '.join(known)}")
    run_values = P.resolve(method.run, params)
    if run_values["algorithm"] not in method.routes:
        raise ValueError(f"algorithm = {run_values['algorithm']!r} is not a route of {method.name}: give "
                         f"{' | '.join(method.routes)}")
    run_values["shared"] = (run_values["threads"] or 1) >= MANY
    run_values["threads"] = run_values["threads"] or default_threads()
    return P.resolve(method.takes, params), run_values


def _meant(name: str, known: Mapping[str, P.Param]) -> str:
    """A hint at the keyword that was meant, which a letter of the command line may stand for."""
    letters = {param.letter: param.name for param in (*known.values(), P.SOLVER) if param.letter}
    if name in letters:
        return f" (did you mean {letters[name]}?)"
    # A letter is near to much: it is meant in the other case alone.
    return did_you_mean(name, [own for own in (*known, *OTHERS) if len(own) > 1 or own == name.upper()])


def effective(method: Method, values: dict[str, Any], run_values: dict[str, Any]) -> dict[str, Any]:
    """The parameters that the result depends on: those of a kernel, and of several classes, only where there are."""
    idle = [P.CACHE.name, *(p.name for p in (P.KERNEL, P.MULTICLASS) if values.get(p.name) is None)]
    scaled = {} if values["scale"] is None else {"scale": values["scale"]}
    return {**{p.name: values[p.name] for p in method.takes if p.name not in idle and P.is_used(p, values)},
            **{name: run_values[name] for name in ("tol", "algorithm", "seed")}, **scaled}


def kernel_of(values: dict[str, Any], n_features: int) -> Kernel | None:
    """The Kernel that the parameters' `values` name, with the default of gamma put into them; None for none."""
    if values.get("kernel") is None:
        return None
    from marginlinear.data.kernels import Kernel

    if values["gamma"] is None and P.is_used(P.GAMMA, values) and n_features:
        values["gamma"] = 1 / n_features
    return Kernel(values["kernel"], **{p.name: values[p.name] for p in (P.GAMMA, P.DEGREE, P.COEF0)
                                       if P.is_used(p, values)})


def require_label_sets(method: Method, params: Mapping[str, Any]) -> None:
    """ValueError for what learns one label a row: the method, or what is given of its parameters."""
    if method.joint:
        raise ValueError(f"solver = {method.name!r} learns one label a row, and y has several labels a row: give a "
                         "binary method, such as solver = 'l2svc' or 'odm'")
    if params.get("multiclass") not in (None, "ovr"):
        raise ValueError(f"multiclass = {params['multiclass']!r} is for one label a row: with several each label is "
                         "told from the rest, ovr")


def require_stores(method: Method, kernel: str | None) -> None:
    """ValueError for what works on all rows at once: these would have to be in memory."""
    where = "needs all rows in memory: it does not go over a Store; give the arrays of a sample"
    if not method.stores:
        other = f", or solver = {'mcodm' if method.joint else 'odm'!r}" if method.classifies else ""
        raise ValueError(f"solver = {method.name!r} {where}{other}")
    if kernel is not None:
        raise ValueError(f"kernel = {kernel!r} {where}, or no kernel")


def require_partitions(method: Method, params: Parameters, algorithm: str) -> None:
    """ValueError for a method whose objective does not split over rows, or that is not built to."""
    if method.terms is None and not (method.smooth or method.sparse):
        other = "mcodm or cs" if method.joint else "l1svr or l2svr" if method.regression else "odm, l2svc or ldm"
        instead = "" if method.one_class else f"give {other}, or "
        raise ValueError(f"solver = {method.name!r} does not go over partitions: {instead}train where all rows are")
    if algorithm == "paper":
        raise ValueError("algorithm = 'paper' does not go over partitions, as it needs the rows' products: give 'auto'")
    if params.get("free_bias") and not method.sparse:
        raise ValueError("free_bias = True does not go over partitions, which would all be asked for each bias that is "
                         "tried: give bias = 1, or train where all rows are")
    if params.get("outer") == "paper":
        raise ValueError("outer = 'paper' does not go over partitions: give 'ccp'")


def require_features(n_features: int, values: dict[str, Any], run_values: dict[str, Any]) -> None:
    """ValueError where there is nothing to learn from."""
    if n_features == 0 and values.get("kernel") is not None:
        raise ValueError("X has 0 features: a kernel needs some")
    if n_features == 0 and run_values["bias"] < 0:
        raise ValueError("X has 0 features, and there is no bias feature: nothing can be learned")


def require_classes(method: Method, classes: Sequence[Any] | AnyArray, where: str = "y") -> None:
    """ValueError for fewer than two, `where` they were looked for, and for words that files could not hold."""
    require_words(classes)
    if len(classes) < 2:
        have = f"{len(classes)} class (label {classes[0]})" if len(classes) else "none"
        raise ValueError(f"{method.name} needs at least 2 classes, {where} has {have}")


def require_finite(solution: Solution, rows: Rows | None, method: Method) -> None:
    """Every Solution passes here: a method that meets values too large to be summed ends with the best finite weights
    it met, or here. `rows` are None where they are elsewhere."""
    if not (finite(solution.weights) and math.isfinite(solution.info.objective)):
        smaller = "a smaller C, " if P.C in method.params else ""
        if rows is not None and rows.is_gram and not rows.definite:
            raise ValueError(f"{method.name}: weights or their objective are not finite: where a kernel is not "
                             "positive semidefinite on the rows, the objective may have no minimum: take other values "
                             f"of gamma and coef0, {smaller}or another kernel")
        longest = "" if rows is None else f"the longest row has the length {math.sqrt(rows.sqnorms().max()):.3g}, and "
        raise ValueError(f"{method.name}: sums overflow: {longest}weights or their objective are not finite: scale the "
                         f"features to a common range such as [0, 1], or take {smaller}smaller weights of rows and "
                         "classes")


def require_memory(columns: int, count: int, what: str, pager: Any = None) -> None:
    """Refuse, before it is tried, a fit whose arrays the machine cannot hold, or what rows on disk leave of the memory
    that they were given: HELD of them, with `columns` float64 numbers for each of `count` features or rows."""
    needed = HELD * 8 * count * columns
    if pager is not None and needed > pager.memory / 2:
        raise MemoryError(f"{count} {what} need {needed:,} bytes for {HELD} arrays of weights, more than half of "
                          f"memory = {pager.memory:,}: give at least {2 * needed:,}")
    if needed > memory():
        doubt = ": is the largest feature number right?" if what == "features" else ""
        raise MemoryError(f"{count} {what} need {needed / 2**30:.1f} GiB for {HELD} arrays of weights, the machine "
                          f"has {memory() / 2**30:.1f}{doubt}")


@contextmanager
def named(columns: int, count: int, what: str) -> Iterator[None]:
    """A MemoryError within it says for how many weights there was no room."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"a fit of {count} {what} with {columns} columns of weights: {error}") from error


def check_of(rows: Rows) -> int:
    """A number that rows of other lengths do not have."""
    return zlib.crc32(np.ascontiguousarray(rows.sqnorms()).data)


def start_state(start: Any, origin: dict[str, Any], y: AnyArray, rows: Rows, fit: Fit) -> State | None:
    """The state to go on from; ValueError where the model does not fit the problem.

    Of a model without duals, such as one from a file, the weights: a margin's loss has duals of its own for them.
    """
    if start is None:
        return None
    found = start if isinstance(start, Start) else getattr(start, "_state", None)
    if found is None:
        return weights_state(start, origin, fit)
    for name, value in origin.items():
        if found.origin[name] != value:
            raise ValueError(f"start: a model with {name} = {found.origin[name]}, this fit has {value}")
    if not np.array_equal(found.y, y) or found.rows not in (None, check_of(rows)):
        # A dual's sign belongs to its row's label: under another the bound would be none.
        raise ValueError("start: a model of other rows or labels")
    return found.state


def weights_state(start: Any, origin: dict[str, Any], fit: Fit) -> State:
    if fit.method.loss is None or fit.kernel is not None or hasattr(start, "kernel") or fit.how not in (None, "ovr"):
        raise ValueError("start: the model holds no dual variables: only a model that train returned in this process "
                         "can be gone on from, not one from a file or a pickle")
    shape = (fit.width + (fit.bias >= 0), fit.columns)
    classes = np.array_equal(start.classes, fit.classes) if fit.classes is not None else start.classes is None
    if start.weights.shape != shape or start.voted or not classes:
        raise ValueError(f"start: a model of weights of shape {start.weights.shape}, or of other classes: this fit has "
                         f"{shape}")
    if fit.scale is not None or start.scaling is not None or (fit.bias >= 0 and start.bias != fit.bias):
        raise ValueError("start: of a model from a file the weights alone are known: give scale = None, and its bias, "
                         f"{start.bias:g}")
    if fit.how is None:
        return {"W": start.weights[:, 0].copy()}
    return {"columns": [{"W": column.copy()} for column in start.weights.T]}
