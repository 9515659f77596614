"""What goes into a solver (Problem, Run), and what comes out (Solution, Info)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from marginlinear._typing import FloatArray, HistoryEntry, Int8Array, Int32Array
from marginlinear.status import CONVERGED

if TYPE_CHECKING:
    from threading import Event

    from marginlinear._core.rows import Rows
    from marginlinear.algorithms.partitions.places import Places
    from marginlinear.model import Model


class Summary:
    """What prints itself in a few lines, as text and in a notebook: `_summary()` is a title and (name, text) pairs."""

    __slots__ = ()

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        raise NotImplementedError

    def __repr__(self) -> str:
        title, lines = self._summary()
        width = max(len(name) for name, _ in lines)
        return "\n".join([title, *(f"  {name:<{width}}  {text}" for name, text in lines)])

    def _repr_html_(self) -> str:
        title, lines = self._summary()
        rows = "".join(f'<tr><th style="text-align: left">{escape(name)}</th><td style="text-align: left">'
                       f"{escape(text)}</td></tr>" for name, text in lines)
        return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def listed(values: dict[str, Any]) -> str:
    """A dict of parameters as text; those of None, which were not given, are left out."""
    return ", ".join(f"{name.rstrip('_')} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
                     for name, value in values.items() if value is not None)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def finite(value: Any) -> Any:
    """Dicts, lists and numbers with None for each that is not finite, as JSON wants it."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Problem(NamedTuple):
    """Training data as an engine reads it.

    Attributes
    ----------
    rows : marginlinear._core.rows.Rows
        m rows of d features, the bias feature included.
    y : int32 array of shape (m,)
        Classes as 0..k-1.
    n_classes : int
        k; a class may have no row. A binary method gets problems with k = 2 only, and class 1 is positive.
    instance : float64 array of shape (m,)
        Positive weights of the rows. A weight of 2 is a row given twice. Where all are 1 it may be one 1, broadcast.
    factor : float64 array of shape (m,)
        Positive factor of C for each row: the weight of its class. Means over the rows do not know it. Broadcast too.
    whole : float or None
        Where the rows are a part of those of the problem: the sum of `instance` over all of them.
    targets : float64 array of shape (m,) or None
        Of a regression, whose rows are all of class 1 of two: what is to be predicted.
    """

    rows: Rows
    y: Int32Array
    n_classes: int
    instance: FloatArray
    factor: FloatArray
    whole: float | None = None
    targets: FloatArray | None = None

    @property
    def weights(self) -> FloatArray:
        """What C is multiplied by for each row: float64 array of shape (m,)."""
        return self.instance * self.factor

    def costs(self, C: float) -> FloatArray:
        """C times `weights`: float64 array of shape (m,). ValueError where they, or their sum, overflow."""
        import numpy as np

        with np.errstate(over="ignore"):
            costs = self.weights
            costs *= C
            if not np.isfinite(costs.sum()):
                raise ValueError("C times the weights of rows and classes overflows: give smaller ones")
        return costs

    @property
    def size(self) -> float:
        """Sum of the instance weights: what a mean over the rows is divided by."""
        from marginlinear._core.vector import total

        return total(self.instance) if self.whole is None else self.whole


# Not a subclass of a named tuple, of which skops makes a plain one.
class Info(NamedTuple):
    """How a run ended.

    Attributes
    ----------
    status : {"converged", "max_iter", "time_limit", "stalled", "cycle", "finished", "stopped", "interrupted", "failed"}
        `converged` means certificate <= tol * max(1, abs(objective)), recomputed from the final weights; for a method
        without a certificate residual <= tol.
    algorithm : str
        The route taken: "cd", "accelerated", "newton", or a method's own.
    n_iter, n_outer : int
        Sweeps over the rows (Newton steps included), and outer iterations of a method that has them.
    objective : float
        Value of the method's objective at the final weights.
    bound, certificate : float or None
        A lower bound, and the certificate of the method; None for a method that minimises no one objective.
    n_support : int
        Rows with a non-zero dual variable.
    seconds : float
        Wall clock time of the solver.
    tol : float
    history : sequence of dict
        One entry a check: n_iter, seconds, objective, bound, certificate, residual. With several binary problems one
        entry a problem, of the sums over the problems solved so far, and `columns`, how many these are.
    residual : float or None
        Change of the last outer iteration, for methods that stop on one.
    reason : {"sweeps", "outer iterations"} or None
        Which cap came first, where the status is max_iter: that on n_iter, or that on n_outer.
    passes : float or None
        Of rows on disk, how many times all of them were read: in sweeps, checks, and to verify them.
    bytes_read : int or None
        The same in bytes.
    cluster : dict or None
        Of a fit over partitions: `rows` of each, `messages`, `collections` of rows, `bytes` of the vectors that
        each partition was sent and of the sums that came back, `restarts`, `seconds_waiting` for the workers, and the
        `seconds` that each worker, by its address, was at work.
    notes : sequence of str
        What `margin-train --verbose` tells beside, such as why a start was left.
    """

    status: str
    algorithm: str
    n_iter: int
    n_outer: int
    objective: float
    bound: float | None
    certificate: float | None
    n_support: int
    seconds: float
    tol: float
    history: Sequence[HistoryEntry] = ()
    residual: float | None = None
    reason: str | None = None
    passes: float | None = None
    bytes_read: int | None = None
    cluster: dict[str, Any] | None = None
    notes: Sequence[str] = ()

    __repr__, _repr_html_ = Summary.__repr__, Summary._repr_html_  # type: ignore[misc]  # methods, no fields

    @property
    def converged(self) -> bool:
        return self.status == CONVERGED

    @property
    def criterion(self) -> tuple[str, Any, float]:
        """(name, value, limit): what `converged` is judged by."""
        if self.certificate is None:
            return "residual", self.residual, self.tol
        return "certificate", self.certificate, self.tol * max(1.0, abs(self.objective))

    def to_dict(self) -> dict[str, Any]:
        """The attributes as a dict, `history` included."""
        return self._asdict()

    @property
    def verdict(self) -> str:
        """The status and what it is judged by, in a line."""
        criterion, value, limit = self.criterion
        found = f"{criterion} {value:.3g}, tolerance {limit:.3g}"
        return f"{self.status}{f' by {self.reason}' if self.reason else ''}: {found}"

    @property
    def effort(self) -> str:
        """Sweeps, route and seconds, in a line."""
        outer = f", {counted(self.n_outer, 'outer iteration')}" if self.n_outer else ""
        # A model file does not hold the seconds, in which equal runs differ.
        seconds = "" if math.isnan(self.seconds) else f", {self.seconds:.3g} s"
        return f"{counted(self.n_iter, 'sweep')}{outer} by {self.algorithm}{seconds}"

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        bound = "" if self.bound is None else f", bound {self.bound:.6g}"
        lines = [("objective", f"{self.objective:.6g}{bound}"), ("effort", self.effort),
                 ("support", f"{counted(self.n_support, 'row')} with a dual variable"),
                 ("history", counted(len(self.history), "check"))]
        return f"Info: {self.verdict}", lines + [("note", note) for note in self.notes]


class Progress(NamedTuple):
    """What a `callback` is told at a check.

    Attributes
    ----------
    n_iter, seconds, objective, bound, certificate, residual
        As of an entry of `Info.history`.
    columns : int or None
        With several binary problems: how many have been solved so far.
    fold, folds : int or None
        In the fits of `probability`: the number of the fold, and how many there are.
    model : callable or None
        `model()` is the Model of the best weights so far: made when it is called, which takes a pass over the rows or a
        few, and the memory of another fit. None in the fits of `probability`.
    """

    n_iter: int
    seconds: float
    objective: float
    bound: float | None
    certificate: float | None
    residual: float | None
    columns: int | None = None
    fold: int | None = None
    folds: int | None = None
    model: Callable[[], Model] | None = None

    def entry(self) -> HistoryEntry:
        """The same as an entry of `Info.history`."""
        return {name: value for name, value in self._asdict().items()
                if name != "model" and (name not in ("columns", "fold", "folds") or value is not None)}


class Run(NamedTuple):
    """What a fit is told beside its method's parameters: the values of `params.RUN`, a start, an observer.

    Attributes
    ----------
    tol, algorithm, max_iter, time_limit, seed, threads
        As declared in `params`.
    start : object or None
        The `state` of an earlier Solution on the same rows.
    progress : callable or None
        Called as progress(dict) with the keys of a history entry, a few times a second at most.
    cancel : threading.Event or None
        Once set, by another thread, the fit ends with threads.Cancelled at its next look.
    overwrite_rows : bool
        Whether the arrays of the rows may be written to: nothing else reads them any more.
    shared : bool
        Whether rounds that threads share take the place of sweeps (algorithms/partitions/rounds.py): other bits, which
        do not depend on `threads`.
    places : algorithms.partitions.places.Places or None
        Where the rows are, if not in the Problem, which then has one in place of all.
    fits : list or None
        Where what does the fit puts itself: `state()` of the last one is, at a check and after an exception, the
        `state` of a Solution so far, from which the fit can go on.
    """

    tol: float
    algorithm: str
    max_iter: int
    time_limit: float | None
    seed: int
    threads: int
    start: Any = None
    progress: Callable[[HistoryEntry], object] | None = None
    cancel: Event | None = None
    overwrite_rows: bool = False
    shared: bool = False
    places: Places | None = None
    fits: list[Any] | None = None

    def enlist(self, fit: object) -> None:
        """`fit` is what does the fit from here on, and has its state."""
        if self.fits is not None:
            self.fits.append(fit)


class Solution(NamedTuple):
    """What a method's `fit` returns.

    Attributes
    ----------
    weights : float64 array of shape (d, columns), in C order
        One row a feature (the bias feature last); over Gram rows one row an instance, its coefficients, and last, where
        it is not that of a constant feature, the offset of the scores. A joint method has a column for each class, a
        binary one a single column.
    info : Info
    state : object or None
        Dual variables for a warm start; kept in memory only, never written to a file.
    codes : int8 array of shape (k, columns) or None
        For several binary problems: +1 or -1 where the class is a positive or negative one of the column's problem,
        0 where it has no part. None: the largest score wins, or the sign of a single one.
    offset : float64 array of shape (columns,) or None
        Of a fit over features without a bias: what is added to the scores.
    """

    weights: FloatArray
    info: Info
    state: Any = None
    codes: Int8Array | None = None
    offset: FloatArray | None = None
