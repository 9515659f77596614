"""What the commands share: exit statuses, messages, and the line that shows progress. No NumPy here."""

import os
import signal
import sys
import time
from contextlib import contextmanager

from marginlinear.cli.options import UsageError

DONE, FAILURE, USAGE, NOT_CONVERGED, INTERRUPTED = 0, 1, 2, 3, 130
# As a shell reports programs that these signals ended.
BROKEN_PIPE, TERMINATED = 128 + 13, 128 + 15


class Failure(Exception):
    """The run cannot go on, for the reason in the message: exit status 1."""


def settle_blas():
    """To be called before NumPy is imported: its OpenBLAS works on one thread, unless the environment says otherwise.

    Threads are ours, over rows, classes, folds. Those of OpenBLAS wait busily for work, on the cores that ours need:
    training took twice as long where both were at work.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def run(program, work, argv):
    """Exit status of work(argv), with one message on stderr for each foreseen failure.

    Without argv the words are those of the process, and it ends here: taking down an interpreter that holds NumPy,
    piece by piece, would take 15 ms more.
    """
    if argv is None:
        status = _status(program, work, sys.argv[1:])
        sys.stderr.flush()
        os._exit(status)
    return _status(program, work, argv)


def _status(program, work, argv):
    """Any exception but the foreseen ones is a defect of ours and keeps its traceback."""
    try:
        try:
            with _ended_by_sigterm():
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
def _ended_by_sigterm():
    # As an exception, SIGTERM removes temporary files on its way out.
    def leave(number, frame):
        raise SystemExit(TERMINATED)

    old = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


@contextmanager
def opening(what, path):
    """OSErrors of the block as LIBLINEAR words them: can't <what> <path>."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"can't {what} {path}: {error.strerror or error}") from error


def tell(text):
    print(text, file=sys.stderr, flush=True)


def warn(text):
    tell(f"WARNING: {text}")


class StatusLine:
    """One line on the terminal, written over and over, wiped at the end; nothing without a terminal."""

    WIDTH = 79
    SECONDS = 0.1

    def __init__(self, quiet):
        self._live = not quiet and sys.stderr.isatty()
        self._next = 0.0
        self._shown = False

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.wipe()

    def show(self, text):
        now = time.monotonic()
        if self._live and now >= self._next:
            self._next = now + self.SECONDS
            self._shown = True
            print("\r" + text[: self.WIDTH], end="\x1b[K", file=sys.stderr, flush=True)

    def wipe(self):
        if self._shown:
            self._shown, self._next = False, 0.0
            print("\r", end="\x1b[K", file=sys.stderr, flush=True)
