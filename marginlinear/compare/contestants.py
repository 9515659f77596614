"""What is compared: a method with the values that are tried of its parameters, of a text of `specs`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from marginlinear.compare.measures import ERRORS, Predictions, measure
from marginlinear.status import fell_short
from marginlinear.threads import Cancelled

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from marginlinear._typing import AnyArray, FloatArray, IntArray

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
    tried : int or None
        So many of the inner folds alone are tried, the first ones; None: all.
    dense : bool
        Whether methods of other programs get arrays, and else sparse rows.
    """

    X: Any
    y: AnyArray
    classes: AnyArray | None
    fold_of: IntArray
    metric: str
    seed: int
    threads: int
    cancel: threading.Event | None
    tried: int | None = None
    dense: bool = False

    @property
    def folds(self) -> int:
        return int(self.fold_of.max()) + 1

    @property
    def at_work(self) -> range:
        """The folds that are tried."""
        return range(self.folds if self.tried is None else min(self.tried, self.folds))

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
        margins(X, y): margins of rows and their places, divided by the norm of the weights, of the rows whose class the
        model knows; None where there is no such norm.
    probabilities : callable or None
        Probabilities of the classes of the set, of rows.
    """

    predict: Predict
    status: str
    certificate: float | None = None
    allowed: float | None = None
    objective: float | None = None
    n_iter: int | None = None
    margins: Callable[[Any, AnyArray], FloatArray | None] | None = None
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
        ...

    @property
    def described(self) -> str:
        """What it is, and what is tried, in a line."""
        ...

    @property
    def regression(self) -> bool | None:
        """Whether it learns numbers; None: what it is given."""
        ...

    @property
    def power(self) -> float:
        """The power of the rows by which its seconds grow, at most: 1 of a linear model, 2 of products of all rows."""
        ...

    def unfit(self, task: Task) -> str | None:
        """Why it does not fit the rows; None where it does."""
        ...

    def points(self, task: Task) -> list[dict[str, Any]]:
        """The points of its grid for these rows, the first of equally good ones being taken."""
        ...

    def chains(self, points: list[dict[str, Any]]) -> list[list[int]]:
        """Numbers of the points, those together that are tried one after the other, each from the last one's fit."""
        ...

    def search(self, task: Task, points: list[dict[str, Any]]) -> list[Tried]:
        """What the inner folds say of each of the points."""
        ...

    def fit(self, task: Task, point: Mapping[str, Any], probability: bool) -> Fitted:
        """Trained on all rows; `probability`: with probabilities."""
        ...


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
