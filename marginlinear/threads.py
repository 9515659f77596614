"""The pool: GIL-free work over ranges of rows, and whole jobs, on a few threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import threading

    from marginlinear._typing import AnyArray

Result = TypeVar("Result")

# Seconds between looks at the signals while the caller's thread waits, and what ends it gives the workers to stop.
TURN, GRACE = 0.05, 0.1
# Items of a range, unless there is a reason for others.
CHUNK = 4096
# Numbers, in all arguments of a call that no signal ends, with which it takes milliseconds: a matrix of 200 x 200.
FEW = 40_000
# With fewer threads, rounds that they share take longer than sweeps on one.
MANY = 4
# Seconds of a fit that are worth threads: of shorter ones most is Python's, and two threads that hand the GIL to each
# other at every sweep take twice as long as one.
WORTH = 0.005


class Cancelled(BaseException):
    """Raised in a worker that was told to stop; never seen by the caller."""


def default_threads() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ranges(n: int, size: int) -> list[tuple[int, int]]:
    """[0, n) cut into ranges of `size`; the cuts do not depend on the number of threads."""
    return [(lo, min(n, lo + size)) for lo in range(0, n, size)]


def started(work: Callable[[], object], count: int) -> Iterator[threading.Thread]:
    """Yield up to `count` threads that run work(), each as it starts: fewer where the system allows no more.

    A limit on processes (`ulimit -u`), or on the memory of their stacks, makes a run slower, not impossible: who calls
    this does all of the work with the threads that there are, if need be with none but its own.
    """
    # Imported where there is work for several: many runs have none.
    import threading

    for _ in range(count):
        thread = threading.Thread(target=work, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # can't start new thread
            return
        yield thread


def run_chunks(work: Callable[[int, int], Result], n: int, threads: int | None = None,
               size: int = CHUNK) -> list[Result]:
    """Call work(lo, hi) for all ranges of [0, n), on `threads` threads (default: all cores).

    Returns the results in the order of the ranges, so that a sum over them is the same for any number of threads.
    The first exception stops the others and is raised here; so does KeyboardInterrupt, which is seen between two ranges
    and where `work` looks at the signals: one that reads rows cuts its ranges by `Rows.slice`, or takes it for `size`.
    """
    if 0 < n <= size:
        return [work(0, n)]
    cuts = ranges(n, size)
    count = min(threads or default_threads(), len(cuts))
    results: list[Any] = [None] * len(cuts)
    if count <= 1:
        for at, (lo, hi) in enumerate(cuts):
            results[at] = work(lo, hi)
        return results
    import threading

    todo = iter(range(len(cuts)))
    lock = threading.Lock()
    failures: list[BaseException] = []

    def worker() -> None:
        while not failures:
            with lock:
                at = next(todo, None)
            if at is None:
                return
            try:
                results[at] = work(*cuts[at])
            except BaseException as failure:
                failures.append(failure)

    try:
        helpers = list(started(worker, count - 1))
        worker()
        for helper in helpers:
            helper.join()
    except BaseException as failure:
        failures.append(failure)
        raise
    if failures:
        raise failures[0]
    return results


class Team:
    """Threads that wait for work, for one caller who has little of it, often: waking them takes less than a start.

    They end with the last reference to the team.
    """

    def __init__(self, threads: int) -> None:
        import threading
        import weakref

        self._shared: dict[str, Any] = {"lock": threading.Lock(), "todo": (), "failures": []}
        shared = self._shared
        self._done = threading.Semaphore(0)
        self._wake: list[threading.Semaphore] = []

        def serve(wake: threading.Semaphore, done: threading.Semaphore) -> None:
            while wake.acquire() and shared["todo"] is not None:
                take_part(shared)
                done.release()

        for _ in range(threads - 1):
            wake = threading.Semaphore(0)
            if not list(started(partial(serve, wake, self._done), 1)):
                break
            self._wake.append(wake)
        weakref.finalize(self, dismiss, shared, self._wake)

    def run(self, work: Callable[[int], Result], n: int) -> list[Result]:
        """[work(0), ..., work(n - 1)]: each on one of the threads, or the caller's. The first failure is raised here,
        once no thread is at work any more."""
        shared = self._shared
        results: list[Any] = [None] * n
        shared["results"] = results
        shared["work"], shared["todo"], shared["failures"] = work, iter(range(n)), []
        helpers = self._wake[:n - 1]
        for wake in helpers:
            wake.release()
        take_part(shared)
        for _ in helpers:
            self._done.acquire()
        if shared["failures"]:
            raise shared["failures"][0]
        return results


def take_part(shared: dict[str, Any]) -> None:
    """Work of a team's until none is left."""
    while not shared["failures"]:
        with shared["lock"]:
            at = next(shared["todo"], None)
        if at is None:
            return
        try:
            shared["results"][at] = shared["work"](at)
        except BaseException as failure:
            shared["failures"].append(failure)


def dismiss(shared: dict[str, Any], wake: list[threading.Semaphore]) -> None:
    shared["todo"] = None
    for one in wake:
        one.release()


def aside(call: Callable[..., Result], *arrays: AnyArray) -> Result:
    """call(*arrays), for work on whole matrices of NumPy's that no signal ends, as LAPACK's: where these are large, on
    a thread of its own, while the caller's waits, in short turns, so that Ctrl-C is seen.

    What was interrupted goes on to its end, unheard. The work has to release the GIL: SciPy's LAPACK does not.
    """
    if sum(array.size for array in arrays) <= FEW:
        return call(*arrays)
    ended: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            ended.append((call(*arrays), None))
        except BaseException as failure:
            ended.append((None, failure))

    helpers = list(started(work, 1))
    if not helpers:
        return call(*arrays)
    while helpers[0].is_alive():
        helpers[0].join(TURN)
    result: Result
    result, failure = ended[0]
    if failure is not None:
        raise failure
    return result


def worth_of(fits: int, k: int = 2) -> float:
    """Seconds that so many fits have to take to be worth threads; one of k classes, more than two, is one of each."""
    return WORTH * fits * (k if k > 2 else 1)


def in_order(work: Callable[[int], Result], n: int, threads: int, cancel: threading.Event,
             worth: Callable[[], float] | None = None) -> Iterator[Result]:
    """Yield work(0), ..., work(n - 1), which run on `threads` threads of their own; with one, or if none can be had, on
    the caller's. Until a result has been waited for worth() seconds, they run on a single one.

    The caller's thread only waits, in short turns, so that Ctrl-C is seen. The first failure of `work` is raised here.
    Whatever ends the loop early sets the threading.Event `cancel`, which long work has to look at, to raise Cancelled.
    """
    import queue
    import threading

    todo = iter(range(n))
    ended: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
    lock = threading.Lock()

    def worker() -> None:
        while not cancel.is_set():
            with lock:
                at = next(todo, None)
            if at is None:
                return
            try:
                ended.put((at, work(at), None))
            except BaseException as failure:
                ended.put((at, None, failure))
                # After it, so that what the others are ended by is not taken for the first failure.
                cancel.set()

    count = min(threads, n)
    helpers = list(started(worker, count if worth is None else 1)) if count > 1 else []
    if not helpers:
        yield from map(work, range(n))
        return
    held: dict[int, Result] = {}
    try:
        for at in range(n):
            since = time.monotonic()
            while at not in held:
                left = TURN if worth is None else since + worth() - time.monotonic()
                try:
                    found, result, failure = ended.get(timeout=max(0.0, min(TURN, left)))
                except queue.Empty:
                    if worth is not None and left <= TURN:
                        helpers += started(worker, count - 1)
                        worth = None
                    continue
                if failure is not None:
                    raise failure
                held[found] = result
            yield held.pop(at)
    finally:
        cancel.set()
        last = time.monotonic() + GRACE
        for helper in helpers:
            helper.join(max(0.0, last - time.monotonic()))
