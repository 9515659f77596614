"""The pool: GIL-free work over ranges of rows on a few threads."""

import os
import threading


def default_threads():
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ranges(n, size):
    """[0, n) cut into ranges of `size`; the cuts do not depend on the number of threads."""
    return [(lo, min(n, lo + size)) for lo in range(0, n, size)]


def run_chunks(work, n, threads=None, size=4096):
    """Call work(lo, hi) for all ranges of [0, n), on `threads` threads (default: all cores).

    Returns the results in the order of the ranges, so that a sum over them is the same for any number of threads.
    The first exception stops the others and is raised here; so does KeyboardInterrupt.
    """
    cuts = ranges(n, size)
    count = min(threads or default_threads(), len(cuts))
    results = [None] * len(cuts)
    if count <= 1:
        for at, (lo, hi) in enumerate(cuts):
            results[at] = work(lo, hi)
        return results
    todo = iter(range(len(cuts)))
    lock = threading.Lock()
    failures = []

    def worker():
        while not failures:
            with lock:
                at = next(todo, None)
            if at is None:
                return
            try:
                results[at] = work(*cuts[at])
            except BaseException as failure:
                failures.append(failure)

    helpers = [threading.Thread(target=worker, daemon=True) for _ in range(count - 1)]
    for helper in helpers:
        helper.start()
    try:
        worker()
        for helper in helpers:
            helper.join()
    except BaseException as failure:
        failures.append(failure)
        raise
    if failures:
        raise failures[0]
    return results
