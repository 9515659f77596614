"""Messages to partitions on the workers of a Dask cluster.

A message is a handful of plain tasks, without sockets, actors or state of ours on the workers:

    answer g    (group g of partitions, answer g of the message before, message)  ->  (states, sums of replies)
    sums g      (answer g)
    sum         of all, by parts where groups are many; the driver gets it

A group is neighbouring partitions in one task, as many as the cluster has threads: tasks cost more than messages do.

When a worker is lost, Dask makes what it held anew: the partitions from their source, the states from the messages
before, whose bits are the same, wherever and however often they are answered. So that this does not go back to the
first message, states are copied to the driver from time to time, and what was before is released. What Dask cannot make
anew, as the copies that the driver sent back, is sent again, and the messages since.

All that the driver does depends on the sums alone. With a journal (journal.py) these are kept on disk, beside the last
copies: a fit whose driver was lost goes through the same motions, without a cluster, up to where it was.
"""

from __future__ import annotations

import asyncio
import copy
import math
import queue
import time
import uuid
from concurrent.futures import CancelledError
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from distributed import get_worker, wait
from distributed.comm.core import CommClosedError

from marginlinear import registry
from marginlinear.algorithms.partitions.communicator import FAN_IN, merged
from marginlinear.algorithms.partitions.fit import fit_alone
from marginlinear.dask.collections import RETRIES
from marginlinear.dask.pace import Pace
from marginlinear.errors import noted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distributed import Client, Future, Worker

    from marginlinear._typing import Parameters, State
    from marginlinear.algorithms.partitions.communicator import AnyRecipe, Nodes, Operation, Replies
    from marginlinear.algorithms.partitions.partition import About, Partition
    from marginlinear.dask.journal import Journal
    from marginlinear.problem import Run, Solution

# Seconds between looks at the signals, and at the cluster, while workers answer.
TURN = 0.2
# Seconds that a worker may take to be there for a copy.
PATIENCE = 5
# What Dask says of a future that it cannot make anew, and how often a message is sent again.
LOST, ATTEMPTS = (CancelledError, asyncio.CancelledError, CommClosedError), 10
# Numbers that are sent with each task, not once for all.
LITTLE = 1 << 17
# Fits of columns that go on at once: one waits for sums while others are at work.
COLUMNS = 4
# Copies of the states take no more than this part of the time.
SHARE = 0.05


# (worker, seconds) of each task.
Times: TypeAlias = list[tuple[str, float]]


class Message:
    """Several things as one, that Dask does not look into."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    @property
    def size(self) -> int:
        """Numbers in the vectors of its operations."""
        return sum(np.size(one) for _, arguments in self.parts[2] for one in arguments)


def kept(operations: Sequence[Operation]) -> list[Operation]:
    """The operations with vectors of their own: the caller's go on to change."""
    return [(name, tuple(one.copy() if isinstance(one, np.ndarray) else one for one in arguments))
            for name, arguments in operations]


def group_of(*partitions: Partition) -> tuple[Partition, ...]:
    return partitions


def sent(message: Message) -> Message:
    return message


def answered(group: tuple[Partition, ...], before: Any, message: Message,
             count: int) -> tuple[list[State], tuple[Nodes, Times]]:
    """(states, (nodes of the tree over `count` partitions, [(worker, seconds)])); `before` is what the message before
    has left, or None."""
    started, worker = time.perf_counter(), get_worker().address
    recipe, about, operations = message.parts
    states, nodes = [], {}
    for at, partition in enumerate(group):
        with noted(f"in partition {partition.number}, on worker {worker}"):
            state, nodes[0, partition.number] = partition.answer(recipe, None if before is None else before[0][at],
                                                                 about, operations)
        states.append(state)
    return states, (merged(nodes, count), [(worker, time.perf_counter() - started)])


def states_of(answer: Any) -> Any:
    return answer[0]


def sums_of(answer: Any) -> Any:
    return answer[1]


def joined(count: int, *parts: Any) -> tuple[Nodes, Times]:
    nodes = {place: node for nodes, _ in parts for place, node in nodes.items()}
    return merged(nodes, count), [time for _, times in parts for time in times]


def summed(count: int, *parts: Any) -> tuple[Replies, Times]:
    nodes, times = joined(count, *parts)
    whole, = nodes.values()
    return whole, times


def solved(found: Any, work: Message) -> tuple[Any, Times]:
    (sums, times), (solve, arguments) = found, work.parts
    return solve(sums, *arguments), times


class Unwanted:
    """Whether the task at hand was cancelled, as an Event has it: Dask does not end one that has begun."""

    def __init__(self, worker: Worker) -> None:
        self.tasks, self.key = worker.state.tasks, worker.get_current_task()

    def is_set(self) -> bool:
        task = self.tasks.get(self.key)
        return task is None or task.state == "cancelled"


def fitted_alone(group: tuple[Partition], topic: str | None, name: str, params: Parameters, run: Run,
                 how: str | None) -> Solution:
    worker = get_worker()
    run = run._replace(cancel=Unwanted(worker))  # type: ignore[arg-type]  # of an Event `is_set` is asked
    if topic is not None:
        run = run._replace(progress=lambda check: worker.log_event(topic, check))
    with noted(f"on worker {worker.address}"):
        return fit_alone(registry.get(name), *group, params, run, how)


def places_of(groups: Sequence[Sequence[str]], threads: Mapping[str, int],
              holders: Mapping[str, Any]) -> list[str | None]:
    """A worker for each group of keys: no more groups than it has threads, and one that has many of the keys.

    Parameters
    ----------
    groups : list of lists of keys
    threads : dict
        Threads of each worker.
    holders : dict
        The workers that have each key.
    """
    free, places = dict(threads), []
    for keys in groups:
        there = [worker for worker, left in free.items() if left > 0]
        best = max(there, key=lambda worker: sum(worker in holders.get(key, ()) for key in keys), default=None)
        if best is not None:
            free[best] -= 1
        places.append(best)
    return places


def drop(client: Client, futures: list[Future[Any]]) -> None:
    """Nobody wants these any more: what was not begun is not, whoever else, as a traceback, still holds them."""
    pending = {future.key: future for future in futures if future.status == "pending"}
    if pending:
        client.cancel(list(pending.values()))
    for future in futures:
        future.release()
    futures.clear()


def require_worker(client: Client, seconds: float) -> None:
    """Wait for one; TimeoutError where there is none within so many seconds."""
    last = time.monotonic() + seconds
    while not client.nthreads():
        if time.monotonic() > last:
            raise TimeoutError(f"the cluster has had no worker for {seconds:g} seconds: start some, and train again, "
                               "with resume=True where there is a checkpoint")
        time.sleep(TURN)


class Cluster:
    """A Communicator.

    Parameters
    ----------
    client : distributed.Client
    partitions : list of futures of Partition
    every : int
        Messages from one copy of the states to the next, at least.
    wait_timeout : float
        Seconds that the cluster may be without any worker.
    journal : journal.Journal or None
    fit : int
        Of the fits in the journal before.

    Attributes
    ----------
    messages, restarts : int
        Messages so far; how often some were sent again.
    waiting : float
        Seconds that the driver has waited for sums.
    pace : Pace
    """

    others: list[Cluster]
    copies: list[Any] | None
    answers: Any
    since: list[Message]

    def __init__(self, client: Client, partitions: Sequence[Future[Any]], every: int = 10, wait_timeout: float = 300.0,
                 journal: Journal | None = None, fit: int = 0) -> None:
        self.client, self.every, self.wait_timeout, self.journal = client, every, wait_timeout, journal
        self.fit = fit
        self.name, self.count = f"marginlinear-{uuid.uuid4().hex}", len(partitions)
        threads = client.nthreads()
        groups = max(1, min(self.count, sum(threads.values())))
        cuts = [self.count * at // groups for at in range(groups + 1)]
        self.ranges = list(pairwise(cuts))
        places = places_of([[partition.key for partition in partitions[lo:hi]] for lo, hi in self.ranges], threads,
                           client.who_has(partitions))
        self.groups = [client.submit(group_of, *partitions[lo:hi], key=f"group-{self.name}-{lo}", pure=False,
                                     workers=place, allow_other_workers=True)
                       for (lo, hi), place in zip(self.ranges, places, strict=True)]
        wait(self.groups)
        self.others, self.pace = [], Pace()
        self._begin_counts()

    @property
    def at_once(self) -> int:
        return COLUMNS if self.journal is None else 1

    def beside(self) -> Cluster:
        if self.journal is not None:
            return self
        other = copy.copy(self)
        other.name, other.others = f"marginlinear-{uuid.uuid4().hex}", []
        other._begin_counts()
        self.others.append(other)
        return other

    def over(self, partitions: Sequence[Future[Any]]) -> Cluster:
        """A Cluster of other partitions, whose fits follow those of this one."""
        return Cluster(self.client, partitions, self.every, self.wait_timeout, self.journal, self.fit)

    def total(self, name: str) -> Any:
        """`messages`, `restarts` or `waiting`, with those beside."""
        return getattr(self, name) + sum(getattr(other, name) for other in self.others)

    def _begin_counts(self) -> None:
        self.tasks = self.messages = self.restarts = 0
        self.waiting = 0.0
        self._begin()

    def _begin(self) -> None:
        self.copies, self.answers, self.since, self.spent = None, None, [], 0.0

    def forget(self) -> None:
        self.fit += 1
        self._begin()

    def run(self, recipe: AnyRecipe, about: About, operations: Sequence[Operation]) -> Replies:
        sums: Replies = self._run(Message(recipe, about, kept(operations)))
        return sums

    def collect(self, recipe: AnyRecipe, about: About, operations: Sequence[Operation], solve: Callable[..., Any],
                *arguments: Any) -> Any:
        return self._run(Message(recipe, about, kept(operations)), Message(solve, arguments))

    def alone(self, name: str, params: Parameters, run: Run, how: str | None) -> Solution:
        """Solution of fit.fit_alone over the one partition that there is. Its checks come as events of the worker's,
        and run.progress is called here."""
        progress, told = run.progress, 0
        checks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        topic: str | None = None
        if progress is not None:
            topic = f"progress-{self.name}"
            self.client.subscribe_topic(topic, lambda event: checks.put(event[1]))

        def tell() -> None:
            nonlocal told
            while not checks.empty():
                told += 1
                progress(checks.get())  # type: ignore[misc]  # there are none without it

        future = self.client.submit(fitted_alone, self.groups[0], topic, name, params, run._replace(progress=None), how,
                                    pure=False, retries=RETRIES)
        try:
            solution: Solution = self._result(future, tell)
        finally:
            drop(self.client, [future])
            if topic is not None:
                self.client.unsubscribe_topic(topic)
        if progress is not None:
            # Those that were on their way.
            for check in solution.info.history[told:]:
                progress(check)
        return solution

    def _run(self, message: Message, work: Message | None = None) -> Any:
        self.since.append(message)
        self.messages += 1
        if self.journal is not None:
            known = self.journal.known(self.fit, self.messages)
            if known is not None:
                result, copies = known
                if copies is not None:
                    self.copies, self.since = copies, []
                return result
        result, times, started = None, [], time.perf_counter()
        for attempt in range(ATTEMPTS):
            started = time.perf_counter()
            try:
                self.restarts += attempt > 0
                if self.answers is None:
                    self._again()
                wanted = [self._submit(message, work)]
                try:
                    result, times = self._result(wanted[0])
                finally:
                    # Now, not when whoever holds the traceback lets go of it.
                    drop(self.client, wanted)
                break
            except LOST:
                self.answers = None
                if any(group.cancelled() for group in self.groups):
                    break
        if result is None:
            raise RuntimeError("rows were lost with their workers, and cannot be made anew: give data that Dask can "
                               "load again (files, or collections that are not scattered), and train anew")
        waited = time.perf_counter() - started
        self.spent += waited
        self.waiting += waited
        self.pace.note(times, waited)
        if self.journal is not None:
            self.journal.note(self.fit, self.messages, result)
        if len(self.since) >= self.every:
            self._copy()
        return result

    def _submit(self, message: Message, work: Message | None = None, wanted: bool = True) -> Any:
        """The answers to a message take the place of those before; returns the future of what is made of the sum of
        their replies."""
        self.tasks += 1
        name, before, count = f"{self.name}-{self.tasks}", self.answers, self.count
        keys = [f"answer-{name}-{g}" for g in range(len(self.groups))]
        graph: dict[str, Any] = {}
        asked: Any = message
        if message.size * len(keys) > LITTLE:
            asked = f"message-{name}"
            graph[asked] = (sent, message)
        for g, key in enumerate(keys):
            graph[key] = (answered, self.groups[g], None if before is None else before[g], asked, count)
        if not wanted:
            self.answers = self.client.get(graph, keys, sync=False, retries=RETRIES)
            return None
        sums = [f"sums-{key}" for key in keys]
        graph.update({some: (sums_of, key) for some, key in zip(sums, keys, strict=True)})
        # No task holds the vectors of all groups.
        while len(sums) > FAN_IN:
            parts = {f"part-{name}-{len(graph)}-{lo}": (joined, count, *sums[lo:lo + FAN_IN])
                     for lo in range(0, len(sums), FAN_IN)}
            graph.update(parts)
            sums = list(parts)
        root = f"sum-{name}"
        graph[root] = (summed, count, *sums)
        if work is not None:
            graph[f"solved-{name}"] = (solved, root, work)
            root = f"solved-{name}"
        *self.answers, result = self.client.get(graph, [*keys, root], sync=False, retries=RETRIES)
        return result

    def results(self, futures: Sequence[Future[Any]]) -> list[Any]:
        """Their values."""
        return [self._result(future) for future in futures]

    def _result(self, future: Future[Any], meanwhile: Callable[[], None] | None = None) -> Any:
        """Its value; TimeoutError where the cluster has no worker for too long. meanwhile() is called in turns."""
        while True:
            try:
                wait(future, timeout=TURN)
                return future.result()
            except TimeoutError:
                if future.status == "error":
                    # The task's own.
                    raise
                if future.status == "pending":
                    require_worker(self.client, self.wait_timeout)
            if meanwhile is not None:
                meanwhile()

    def _copy(self) -> None:
        """Copies of the states; the messages up to here are not needed any more."""
        started = time.perf_counter()
        keys = [f"state-{answer.key}" for answer in self.answers]
        states = self.client.get({key: (states_of, answer) for key, answer in zip(keys, self.answers, strict=True)},
                                 keys, sync=False)
        try:
            copies = [state for some in states for state in self._result(some)]
        except LOST:
            # The next message meets it too.
            return
        finally:
            drop(self.client, states)
        if self.journal is not None:
            self.journal.keep(self.fit, self.messages, copies)
        self.copies, count, self.since, self.answers = copies, len(self.since), [], None
        took = time.perf_counter() - started
        self.every = max(self.every, math.ceil(took * count / (SHARE * self.spent)))
        self.spent = 0.0

    def _place_copies(self) -> None:
        """The copies go back to the workers of their groups, as answers that no message has led to."""
        holders = self.client.who_has(self.groups)
        try:
            copies: Any = self.copies
            self.answers = [self.client.scatter([(copies[lo:hi], None)], hash=False, timeout=PATIENCE,
                                                workers=list(holders.get(group.key, ())) or None)[0]
                            for group, (lo, hi) in zip(self.groups, self.ranges, strict=True)]
        except (TimeoutError, KeyError) as error:
            # What a scheduler says that has no worker, and one that has lost this one.
            raise CommClosedError(f"no worker takes the copies: {error}") from error

    def _again(self) -> None:
        """Answers to all messages since the copies but for the last one, or those of the copies."""
        require_worker(self.client, self.wait_timeout)
        if self.copies is not None:
            self._place_copies()
        for message in self.since[:-1]:
            self._submit(message, wanted=False)

    def close(self) -> None:
        """Nothing of these fits is wanted any more."""
        for one in (*self.others, self):
            drop(self.client, one.answers or [])
            one._begin()
        drop(self.client, self.groups)
