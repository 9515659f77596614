"""The pool: order of results, failures, interruption."""

import gc
import io
import math
import signal
import threading
import time

import numpy as np
import pytest

from marginlinear.libsvm import read_libsvm
from marginlinear.threads import FEW, Team, aside, default_threads, in_order, ranges, run_chunks


@pytest.mark.parametrize("n, size", [(0, 4), (1, 4), (4, 4), (5, 4), (100, 7)])
def test_ranges_cover_once(n, size):
    cuts = ranges(n, size)
    assert [i for lo, hi in cuts for i in range(lo, hi)] == list(range(n))
    assert all(0 < hi - lo <= size for lo, hi in cuts)


@pytest.mark.parametrize("threads", [None, 1, 2, 8, 64])
def test_results_come_in_the_order_of_the_ranges(threads):
    assert run_chunks(lambda lo, hi: (lo, hi), 103, threads, size=10) == ranges(103, 10)
    assert run_chunks(lambda lo, hi: 1, 0, threads) == []


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_team_works_again_and_again_and_ends_with_its_last_reference(threads):
    before, team = threading.active_count(), Team(threads)
    for n in (0, 1, 3, 100):
        assert team.run(lambda at: at * at, n) == [at * at for at in range(n)]

    def work(at):
        if at == 20:
            raise RuntimeError("part 20")

    with pytest.raises(RuntimeError, match="part 20"):
        team.run(work, 1000)
    assert team.run(str, 3) == ["0", "1", "2"]
    assert threading.active_count() == before + threads - 1
    waiting = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    del team
    # Without a GIL, what a thread has raised goes only now: it sleeps, and would have to be awake to let go of it.
    gc.collect()
    for thread in waiting[-(threads - 1):] if threads > 1 else []:
        thread.join(5)
    assert threading.active_count() <= before


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_first_failure_is_raised_and_ends_the_work(threads):
    started = []

    def work(lo, hi):
        started.append(lo)
        if lo == 20:
            raise RuntimeError("row 20")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="row 20"):
        run_chunks(work, 10_000_000, threads, size=10)
    assert len(started) < 1_000_000
    assert threading.active_count() <= before


def test_interruption_in_the_caller_ends_the_helpers():
    caller = threading.get_ident()
    begun = threading.Event()

    def work(lo, hi):
        if threading.get_ident() == caller:
            begun.wait(5)
            raise KeyboardInterrupt
        begun.set()

    with pytest.raises(KeyboardInterrupt):
        run_chunks(work, 100_000, 2, size=1)


def test_work_that_is_not_worth_threads_is_done_by_one():
    def on_threads(seconds, worth):
        def work(at):
            time.sleep(seconds[at])
            return at, threading.get_ident()

        found = list(in_order(work, len(seconds), 4, threading.Event(), lambda: worth))
        assert [at for at, _ in found] == list(range(len(seconds)))
        return len({ident for _, ident in found})

    # A new wait begins with each result.
    assert on_threads([0.05] * 8, 0.3) == on_threads([0.1] * 4, math.inf) == 1
    assert on_threads([0.0, 0.0, 0.15, 0.15, 0.15, 0.15], 0.06) > 1
    assert on_threads([0.1] * 4, 0.0) > 1


@pytest.mark.parametrize("allowed", range(4))
def test_fewer_threads_than_asked_for_do_all_the_work(monkeypatch, allowed):
    start, left = threading.Thread.start, []

    def limited(thread):
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    before = threading.active_count()
    text = b"".join(b"%d %d:1\n" % (row, row + 1) for row in range(1000))
    for of_use, work, wanted in [
        (3, lambda: run_chunks(lambda lo, hi: (lo, hi), 103, 4, size=10), ranges(103, 10)),
        (4, lambda: list(in_order(lambda at: -at, 20, 4, threading.Event())), list(range(0, -20, -1))),
        (1, lambda: aside(lambda values: len(values), np.zeros(FEW + 1)), FEW + 1),
        (3, lambda: read_libsvm(io.BytesIO(text), threads=4, _block_size=64).indices.tolist(), list(range(1000))),
    ]:
        left[:] = [None] * allowed
        assert work() == wanted
        assert len(left) == max(0, allowed - of_use)
    assert threading.active_count() <= before


@pytest.mark.parametrize("size", [1, FEW + 1])
def test_aside_returns_and_raises_what_the_call_does(size):
    array = np.arange(size)
    assert aside(lambda values: values, array) is array
    with pytest.raises(ZeroDivisionError):
        aside(lambda values: 1 // 0, array)


def test_aside_needs_no_thread(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert aside(len, np.zeros(FEW + 1)) == FEW + 1


def test_a_signal_does_not_wait_for_what_is_aside():
    def stop(number, frame):
        raise KeyboardInterrupt

    begun, ended = threading.Event(), threading.Event()
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            aside(lambda _: (begun.set(), ended.wait(30)), np.zeros(FEW + 1))
        assert begun.is_set() and not ended.is_set()
    finally:
        signal.signal(signal.SIGALRM, before)
        ended.set()


def test_default_is_what_the_process_may_use():
    assert default_threads() >= 1
