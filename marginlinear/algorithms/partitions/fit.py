"""A method's own fit, over partitions that a Communicator asks."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marginlinear._core.rows import Rows
from marginlinear.algorithms import multiclass
from marginlinear.algorithms.partitions.partition import Recipe
from marginlinear.algorithms.partitions.places import Places
from marginlinear.data.codes import codes_of
from marginlinear.problem import Problem, Solution
from marginlinear.threads import in_order

if TYPE_CHECKING:
    from marginlinear._typing import HistoryEntry, Int8Array, Parameters
    from marginlinear.algorithms.partitions.communicator import Communicator
    from marginlinear.algorithms.partitions.partition import Partition
    from marginlinear.problem import Info, Run
    from marginlinear.registry import Method

# What Places count of a fit.
SENT = "collections", "numbers_sent"


class Whole(NamedTuple):
    """What all partitions together are.

    Attributes
    ----------
    n_features, n_classes : int
    sizes : tuple of float
        Sums of the instance weights of each class, ascending; of targets of all rows.
    bias : float
    count : int
        Partitions.
    """

    n_features: int
    n_classes: int
    sizes: tuple[float, ...]
    bias: float
    count: int  # type: ignore[assignment]  # a field, not tuple.count

    @property
    def size(self) -> float:
        """Sum of the instance weights."""
        return float(np.sum(self.sizes))

    def of_column(self, signs: Int8Array | None) -> Whole:
        """That of the rows that a column of signs is of: those of two classes, or all."""
        if signs is None or signs.all():
            return self
        return self._replace(sizes=tuple(size for size, sign in zip(self.sizes, signs, strict=True) if sign))

    def stand_in(self, n_classes: int) -> Problem:
        """A Problem of one empty row, in place of all."""
        rows = Rows.from_csr(np.empty(0), np.empty(0, np.int32), np.zeros(2, np.int64), self.n_features, self.bias)
        return Problem(rows, np.zeros(1, np.int32), n_classes, np.full(1, self.size), np.ones(1))


def fit_alone(method: Method, partition: Partition, params: Parameters, run: Run, how: str | None) -> Solution:
    """Solution of a method over one partition that has all rows: the bits of one machine. Its state stays there."""
    problem = partition.problem(None)
    solution = method.fit(problem, params, run) if how is None else multiclass.fit(method, problem, params, run, how)
    return solution._replace(state=dict.fromkeys(SENT, 0))


def fit(method: Method, whole: Whole, params: Parameters, run: Run, how: str | None,
        communicator: Communicator) -> Solution:
    """Solution of a method over the partitions of a Communicator; its state is a dict of what was sent.

    Parameters
    ----------
    method : Method
        One that `fitting.require_partitions` lets pass.
    whole : Whole
    params : dict
        The method's own.
    run : Run
    how : {"ovr", "ovo", "ecoc"} or None
        Columns of a binary method for more than two classes: as many at a time as the communicator lets be.
    communicator : Communicator

    Raises
    ------
    TimeoutError
        Of the communicator; its `weights` are those that the fit had then, or None.
    """
    def column(signs: Int8Array | None, n_classes: int, run: Run, communicator: Communicator) -> Solution:
        of_column = whole.of_column(signs)
        recipe = Recipe(method.joint, method.terms, params, signs, run.seed, run.threads, of_column.size)
        communicator.forget()
        places = Places(communicator, recipe, whole.count, run)
        try:
            # Sums that overflow are met by the descent.
            with np.errstate(over="ignore", invalid="ignore"):
                solution = method.fit(of_column.stand_in(n_classes), params, run._replace(places=places))
        except TimeoutError as error:
            error.weights = places.weights  # type: ignore[attr-defined]  # for who catches it
            raise
        return solution._replace(state={name: getattr(places, name) for name in SENT})

    if how is None:
        return column(None if method.joint else np.array([-1, 1], np.int8), whole.n_classes, run, communicator)
    started, cancel = time.perf_counter(), threading.Event()
    info: Info | None = None
    history: list[HistoryEntry] = []
    codes = codes_of(how, whole.n_classes, run.seed)
    weights, sent = np.zeros((whole.stand_in(2).rows.d, codes.shape[1])), dict.fromkeys(SENT, 0)

    def work(at: int) -> Solution:
        spent = time.perf_counter() - started
        left = None if run.time_limit is None else max(0.0, run.time_limit - spent)
        own = run._replace(time_limit=left, progress=None, cancel=cancel)
        return column(np.ascontiguousarray(codes[:, at]), 2, own, communicator.beside())

    for at, solution in enumerate(in_order(work, codes.shape[1], communicator.at_once, cancel)):
        info = solution.info if info is None else multiclass.combined(info, solution.info)
        weights[:, at] = solution.weights[:, 0]
        sent = {name: sent[name] + solution.state[name] for name in SENT}
        history.append({"n_iter": info.n_iter, "seconds": time.perf_counter() - started, "objective": info.objective,
                        "bound": info.bound, "certificate": info.certificate, "residual": None, "columns": at + 1})
        if run.progress is not None:
            run.progress(history[-1])
    assert info is not None
    info = info._replace(seconds=history[-1]["seconds"], tol=run.tol, history=history)
    return Solution(weights, info, sent, None if how == "ovr" else codes)
