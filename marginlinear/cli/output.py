"""What the commands share: exit statuses, messages, and what shows progress. No NumPy here."""

from __future__ import annotations

import io
import math
import os
import signal
import sys
import time
import warnings
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING

from marginlinear.options import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType
    from typing import Any

DONE, FAILURE, USAGE, NOT_CONVERGED, INTERRUPTED = 0, 1, 2, 3, 130
# As a shell reports programs that a signal ended: this and the signal's number.
SIGNALLED = 128
BROKEN_PIPE = SIGNALLED + 13
# What ends a run from outside. Windows has no SIGHUP, and no timer.
ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
ALARM = getattr(signal, "SIGALRM", None)
# Seconds within which several signals are one, and after which one that came during an import is looked at again.
TOGETHER, IMPORT = 1.0, 0.01
# How a closed standard stream is opened: to read from the first or write to the second is an error, and what is told on
# the third is dropped.
CLOSED = {"stdin": (os.O_WRONLY, "r"), "stdout": (os.O_RDONLY, "w"), "stderr": (os.O_WRONLY, "w")}
# Of tqdm's bar where how much time is left is ours to tell.
BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}{postfix}]"


class Failure(Exception):
    """The run cannot go on, for the reason in the message: exit status 1."""


def settle_blas() -> None:
    """To be called before NumPy is imported: its OpenBLAS works on one thread, unless the environment says otherwise.

    Threads are ours, over rows, classes, folds. Those of OpenBLAS wait busily for work, on the cores that ours need:
    training took twice as long where both were at work.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def run(program: str, work: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """Exit status of work(argv), with one message on stderr for each foreseen failure.

    Without argv the words are those of the process, and it ends here: taking down an interpreter that holds NumPy,
    piece by piece, would take 15 ms more.
    """
    if argv is None:
        _open_closed_streams()
        # Messages show what their encoding lacks as those on stderr do; data are written as bytes.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        # Where a warning comes from is for who calls from Python.
        warnings.showwarning = lambda message, *_, **__: warn(message)
        os._exit(_status(program, work, sys.argv[1:]))
    return _status(program, work, argv)


def _open_closed_streams() -> None:
    """A standard stream that was closed by the caller (`>&-`) is opened on the null device.

    Its number, the lowest that is free, would go to the next file that is opened, such as a model, and whatever writes
    to the stream would write into that.
    """
    for name, (flags, mode) in CLOSED.items():
        if getattr(sys, name) is None:
            stream = os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8", errors="backslashreplace")
            setattr(sys, name, stream)


def _status(program: str, work: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Any exception but the foreseen ones is a defect of ours and keeps its traceback."""
    try:
        try:
            with _ended_by_signals():
                return work(argv)
        finally:
            sys.stdout.flush()
    except UsageError as error:
        tell(f"{program}: {error}\nTry '{program} --help'.")
        return USAGE
    except KeyboardInterrupt:
        tell(f"{program}: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has enough. What Python still holds must go somewhere when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except MemoryError as error:
        tell(f"{program}: out of memory: {error or 'the data needs more than there is'}")
        return FAILURE
    except OSError as error:
        tell(f"{program}: {error.filename or 'standard output'}: {error.strerror or error}")
        return FAILURE
    except (Failure, ValueError) as error:
        tell(f"{program}: {error}")
        return FAILURE


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A signal of ENDING ends the block by an exception, which removes temporary files on its way out.

    One that is ignored, as under nohup, stays so. Sessions end by several at once: a second one would end the tidying
    up, and is taken for the first. Compiled modules drop what is raised while they are imported: a signal waits for
    the end of that.
    """
    last, waiting = -math.inf, None

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal last, waiting
        waiting = None
        if time.monotonic() < last + TOGETHER:
            return
        if _importing(frame) and ALARM is not None:
            waiting = number
            signal.signal(ALARM, lambda _, later: leave(number, later))
            signal.setitimer(signal.ITIMER_REAL, IMPORT)
            return
        last = time.monotonic()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(SIGNALLED + number)

    taken = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    old = {number: signal.signal(number, leave) for number in taken}
    if ALARM is not None:
        old[ALARM] = signal.getsignal(ALARM)
    try:
        yield
        if waiting is not None:
            leave(waiting, None)
    finally:
        if waiting is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in old.items():
            signal.signal(number, handler)


def _importing(frame: FrameType | None) -> bool:
    """Is this a frame of an import that the command has begun?"""
    while frame is not None and frame.f_code is not _status.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def opening(what: str, path: str | None) -> Iterator[None]:
    """OSErrors of the block as LIBLINEAR words them: can't <what> <path>."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"can't {what} {path}: {error.strerror or error}") from error


def tell(text: object, end: str = "\n") -> None:
    """Write to standard error. What cannot be written there is dropped: that it is closed, full, or a terminal that is
    gone must not change what the run makes, nor its exit status."""
    with suppress(OSError):
        print(text, end=end, file=sys.stderr, flush=True)


def warn(text: object) -> None:
    tell(f"WARNING: {text}")


class Results:
    """Lines of results, on standard output or, `aside`, where that is taken by a file, on standard error.

    A line that cannot be written does not end the block, which has a model to make: that failure, an OSError, is
    raised when the block has ended well.
    """

    def __init__(self, aside: bool) -> None:
        self._aside = aside
        self._failure: OSError | None = None

    def __enter__(self) -> Results:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._failure is not None:
            raise self._failure

    def say(self, text: str) -> None:
        if self._aside:
            tell(text)
        elif self._failure is None:
            try:
                print(text, flush=True)
            except OSError as failure:
                self._failure = failure


class StatusLine:
    """What a terminal is told while work goes on: a bar of tqdm, wiped at the end; without tqdm a line now and then."""

    SECONDS = 10.0  # between lines

    def __init__(self, quiet: bool) -> None:
        self._live = not quiet and sys.stderr.isatty()
        self._next = time.monotonic() + self.SECONDS
        self._kind: tuple[object, ...] = ()
        self._bar: Any = None

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *failure: object) -> None:
        self.wipe()

    def show(self, what: str = "", done: float = 0, total: float | None = None, unit: str = "", note: str = "",
             left: float | None = None) -> None:
        """`done` of `total` units, which may not be known; without a unit `what` alone.

        `left`: seconds to come, where more is known of them than the pace so far.
        """
        if not self._live:
            return
        if left is not None:
            note = f"about {span(left)} left, {note}"
        if self._kind != (what, total, unit):
            self.wipe()
            self._kind = what, total, unit
            form = "{desc}" if not unit else BAR if total and left is not None else None
            self._bar = _bar(what, done, total, unit, note, form)
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - self._bar.n)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self.SECONDS
            count = f"{done:,}{f' of {total:,}' if total else ''} {unit}" if unit else ""
            tell(", ".join(filter(None, (what, count, note))))

    def wipe(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._kind, self._bar = (), None


def _bar(what: str, done: float, total: float | None, unit: str, note: str, form: str | None) -> Any:
    """A bar of tqdm, which knows the terminal and how often to draw; None without tqdm."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    # One process draws, when it has something new: a thread that looks after bars, and a lock that processes share, are
    # of no use.
    tqdm.monitor_interval = 0
    tqdm.set_lock(RLock())
    return tqdm(desc=what or None, initial=done, total=total, unit=unit if unit == "B" else f" {unit}",
                unit_scale=unit == "B", postfix=note, bar_format=form, leave=False, dynamic_ncols=True, miniters=0)


class Trend:
    """The time until a gap is small enough, if its logarithm goes on falling as it did at the last checks."""

    CHECKS = 10
    LONGEST = 1e6  # seconds; what would take longer is no forecast

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []

    def left(self, seconds: float, gap: float, allowed: float) -> float | None:
        """Seconds from `seconds` on, when the gap was found, by least squares; None where it does not fall."""
        if not 0 < gap < math.inf or (self._points and seconds < self._points[-1][0]):
            # Another fit begins.
            self._points = []
        if not 0 < gap < math.inf:
            return None
        self._points = [*self._points, (seconds, math.log(gap))][-self.CHECKS:]
        m = len(self._points)
        time_mean, mean = (sum(values) / m for values in zip(*self._points, strict=True))
        slope = sum((time - time_mean) * (value - mean) for time, value in self._points)
        spread = sum((time - time_mean) ** 2 for time, _ in self._points)
        if m < 3 or slope >= 0:
            return None
        slope /= spread
        left = (math.log(allowed) - mean) / slope - (seconds - time_mean)
        return max(left, 0.0) if left < self.LONGEST else None


def span(seconds: float) -> str:
    """A time to wait in one or two units."""
    if seconds < 100:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
