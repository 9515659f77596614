"""More than two classes by binary problems: one column of weights for each.

    ovr     class j against all others, k columns; the largest score wins
    ovo     class i against class j, their rows only, k (k - 1)/2 columns
    ecoc    error-correcting output codes (Dietterich and Bakiri 1995): each class has a word of +1 and -1, a column is
            the problem to tell the classes with +1 from those with -1. Up to 7 classes all 2^(k-1) - 1 columns, above
            ceil(10 log2 k) random ones (dense codes of Allwein, Schapire and Singer 2000)

Rows with several labels have their different sets of labels as classes, and codes of their own: a column a label, +1
for the sets that it is in.

Columns run on threads, each on one. What they find does not depend on how many run at once.
"""

from __future__ import annotations

import operator
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from marginlinear.algorithms.batched import Batch, groups
from marginlinear.algorithms.certificate import Budget
from marginlinear.data.codes import codes_of, one_versus_rest
from marginlinear.problem import Problem, Solution
from marginlinear.status import STATUSES
from marginlinear.threads import in_order, worth_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from marginlinear._typing import HistoryEntry, Int8Array, Parameters, State
    from marginlinear.problem import Info, Run
    from marginlinear.registry import Method


def fit(method: Method, problem: Problem, params: Parameters, run: Run, how: str,
        codes: Int8Array | None = None) -> Solution:
    """Solution of the binary `method` for a problem of k > 2 classes; `how` is ovr, ovo or ecoc.

    With `codes`, an int8 array of shape (k, columns), these are the columns, whatever k is, and nothing is decoded.

    Its info is that of all columns: the worst status and residual, the most sweeps, and sums of objectives and bounds;
    the latter and the certificate are None where the method has none. The history
    has an entry for each column, of the `columns` up to it, in their order; `run.progress` gets these entries, in the
    thread that calls. `run.time_limit` is for all columns together, `run.max_iter` for each.
    """
    return Columns(method, problem, params, run, how, codes).fit()


class Columns:
    """One fit: the columns' problems, and what becomes of their solutions."""

    def __init__(self, method: Method, problem: Problem, params: Parameters, run: Run, how: str,
                 codes: Int8Array | None = None) -> None:
        self.method, self.problem, self.params, self.run = method, problem, params, run
        self.started = time.perf_counter()
        self.states: list[State] = []
        self.iterations: list[int] = []
        self.given = codes is not None
        self.decoded: Int8Array | None = None
        if codes is None and how != "ovr":
            codes = self.decoded = codes_of(how, problem.n_classes, run.seed)
        self.codes = one_versus_rest(problem.n_classes) if codes is None else codes
        if run.start is not None and not np.array_equal(run.start.get("codes", self.codes), self.codes):
            raise ValueError("start: a model of other binary problems (multiclass, the seed of ecoc, or the labels "
                             "were others)")
        # An event of another's is never set here: fits that have one run on one thread.
        self.cancel = threading.Event() if run.cancel is None else run.cancel
        # In a Model's own layout: no other copy of all columns is made.
        offset = method.offset or params.get("free_bias", False)
        length = problem.rows.m + offset if problem.rows.is_gram else problem.rows.d
        self.weights = np.zeros((length, self.codes.shape[1]))
        self.supports = np.zeros(problem.rows.m, dtype=bool)
        run.enlist(self)

    def fit(self) -> Solution:
        whole: Info | None = None
        history: list[HistoryEntry] = []
        algorithms: set[str] = set()
        for info, state in self._outcomes():
            whole = info if whole is None else combined(whole, info)
            self.states.append(state)
            self.iterations.append(info.n_iter)
            algorithms.add(info.algorithm)
            history.append({"n_iter": whole.n_iter, "seconds": self.seconds, "objective": whole.objective,
                            "bound": whole.bound, "certificate": whole.certificate, "residual": whole.residual,
                            "columns": len(self.states)})
            if self.run.progress is not None:
                self.run.progress(history[-1])
        assert whole is not None
        info = whole._replace(algorithm=", ".join(sorted(algorithms)), n_support=int(np.count_nonzero(self.supports)),
                              seconds=self.seconds, tol=self.run.tol, history=history)
        return Solution(self.weights, info, self.state(), self.decoded)

    def state(self) -> State:
        """That of the columns: None of those that are not there yet."""
        missing = self.codes.shape[1] - len(self.states)
        return {"codes": self.codes, "columns": [*self.states, *[None] * missing], "n_iter": self.iterations}

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def _outcomes(self) -> Iterator[tuple[Info, State]]:
        """(info, state) of the columns, in their order, as they are known."""
        threads = self.run.threads if self.problem.rows.shared else 1
        self.problem.rows.takers = max(1, min(threads, self.codes.shape[1]))
        # (info or None, state)
        found: list[tuple[Any, Any]] = []
        told = 0
        if self._alike:
            parts = groups(self.codes.shape[1])
            for outcomes in in_order(lambda at: self._group(*parts[at], threads // len(parts)), len(parts), threads,
                                     self.cancel):
                found += outcomes
                while told < len(found) and found[told][0] is not None:
                    yield found[told]
                    told += 1
            if self.run.cancel is None:
                # What ended the groups' workers is not to end those of the columns.
                self.cancel = threading.Event()

        def column(at: int) -> tuple[Info, State]:
            info, state = found[at] if found else (None, None)
            return self._column(at, state) if info is None else found[at]

        yield from in_order(lambda at: column(told + at), self.codes.shape[1] - told, threads, self.cancel,
                            lambda: worth_of(1))

    @property
    def _alike(self) -> bool:
        """Whether all columns are problems over all rows that differ in the signs of the classes alone."""
        run = self.run
        return (self.method.loss is not None and run.algorithm == "auto" and run.start is None
                and not self.params.get("free_bias") and not self.problem.rows.is_gram and bool(self.codes.all()))

    def _group(self, first: int, stop: int, threads: int) -> list[tuple[Info | None, State]]:
        """[(info, state)] of the columns `first` to `stop`, as Batch has them."""
        budget = Budget(self.run.max_iter, self._time_left(), cancel=self.cancel)
        assert self.method.loss is not None
        outcomes = Batch(self.problem, self.codes[:, first:stop], self.method.loss(self.problem, self.params),
                         self.run, budget, self.weights[:, first:stop], max(1, threads)).fit()
        for info, state in outcomes:
            if info is not None:
                self.supports[np.flatnonzero(state["duals"])] = True
        return outcomes

    def _time_left(self) -> float | None:
        # 0 alone asks for the columns as they are.
        return self.run.time_limit and max(1e-9, self.run.time_limit - self.seconds)

    def _column(self, at: int, start: State | None) -> tuple[Info, State]:
        """(info, state) of one binary problem, from `start` if not None; its weights go to their place."""
        run, problem, signs = self.run, self.problem, self.codes[:, at]
        rows, y, instance, factor = problem.rows, problem.y, problem.instance, problem.factor
        which = None if signs.all() else np.flatnonzero(signs[y])
        if which is not None:
            rows, y, instance, factor = rows.select(which), y[which], instance[which], factor[which]
            if rows.pager is not None:
                rows.takers = problem.rows.takers
        binary = Problem(rows, (signs[y] > 0).astype(np.int32), 2, instance, factor)
        if run.start is not None:
            start = run.start["columns"][at]
            start = None if start is None else {**start, "W": np.array(start["W"])}
        try:
            solution = self.method.fit(binary, self.params, run._replace(
                threads=1, shared=False, time_limit=self._time_left(), start=start, progress=None, cancel=self.cancel,
                fits=None))
        except ValueError as error:
            positive, negative = (_listed([code == sign for code in signs]) for sign in (1, -1))
            where = "" if self.given else f": class number {positive} against {negative}, in the order of the labels"
            raise ValueError(f"{error} (in binary problem {at + 1} of {self.codes.shape[1]}{where})") from error
        state, column = solution.state, self.weights[:, at]
        if which is None:
            column[:] = solution.weights[:, 0]
        elif not self.problem.rows.is_gram:
            # Of text few rows have few of the features, and the values of a column lie far apart.
            there = np.flatnonzero(solution.weights[:, 0])
            column[there] = solution.weights[there, 0]
        else:
            column[which] = solution.weights[:len(which), 0]
            column[self.problem.rows.m:] = solution.weights[len(which):, 0]
        if len(state["W"]) == len(solution.weights) and np.may_share_memory(state["W"], solution.weights):
            state = {**state, "W": column}
        support = np.flatnonzero(state["duals"])
        # Other columns' threads write here too: True alone.
        self.supports[support if which is None else which[support]] = True
        return solution.info, state


def combined(whole: Info, info: Info) -> Info:
    """The Info `whole` of the columns before, with this one's: sums are taken on, as columns may be thousands."""
    objective, bound = whole.objective + info.objective, _both(operator.add, whole.bound, info.bound)
    worst = max(whole, info, key=lambda one: STATUSES.index(one.status))
    return whole._replace(
        status=worst.status,
        reason=worst.reason,
        n_iter=max(whole.n_iter, info.n_iter),
        n_outer=max(whole.n_outer, info.n_outer),
        objective=objective,
        bound=bound,
        certificate=None if bound is None else objective - bound,
        residual=_both(max, whole.residual, info.residual),
    )


def _both(of: Callable[[float, float], float], first: float | None, second: float | None) -> float | None:
    """`of` the two values; None where one has none."""
    return None if first is None or second is None else of(first, second)


def _listed(chosen: Sequence[bool], most: int = 5) -> str:
    """Numbers, from 1, of the chosen classes."""
    numbers = [str(at + 1) for at, there in enumerate(chosen) if there]
    return ", ".join(numbers[:most] + ["..."] * (len(numbers) > most))
