"""Ctrl-C, SIGTERM, and what a terminal shows."""

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from running import HARD, has_text, until

import marginlinear
from marginlinear.cli.output import StatusLine, Trend, run, span

ROOT = str(Path(marginlinear.__file__).parents[1])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ROOT)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2000, 20)) * 10.0 ** rng.integers(-3, 3, 20)
    rows = (" ".join(f"{j + 1}:{v:.6g}" for j, v in enumerate(row)) for row in values)
    (tmp_path / "d").write_text("".join(f"{i % 5} {row}\n" for i, row in enumerate(rows)))
    (tmp_path / "m").write_text("svm_type of the old model")
    return tmp_path


def start(*arguments, program="train", ignored=(), **options):
    def ignore():
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    return subprocess.Popen([sys.executable, "-m", f"marginlinear.cli.{program}", *arguments], **options,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=ignore)


@pytest.mark.parametrize("number, status, message", [
    (signal.SIGTERM, 143, b""), (signal.SIGHUP, 129, b""),
])
def test_while_training(folder, number, status, message):
    with start(*HARD, "--log", "log", "d", "m") as process:
        until(lambda: has_text(folder / "log"))
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(30) == status
        # 0.2 s on an idle machine; the end of the interpreter and a busy machine come on top.
        assert time.monotonic() - began < 3
        assert process.stderr.read() == message
        assert process.stdout.read() == b""
    assert (folder / "m").read_text() == "svm_type of the old model"
    assert sorted(os.listdir()) == ["d", "log", "m"]


def test_while_reading(folder):
    with start("-", "m", stdin=subprocess.PIPE) as process:
        # More than a pipe holds: when the call returns, reading has begun.
        process.stdin.write(b"1 1:1\n2 2:1\n" * 200_000)
        process.stdin.flush()
        time.sleep(0.5)  # until it waits for more
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b"margin-train: interrupted\n"
        process.stdin.close()
    assert (folder / "m").read_text() == "svm_type of the old model"
    assert sorted(os.listdir()) == ["d", "m"]


@pytest.mark.parametrize("numbers, ignored, status", [
    ([signal.SIGINT], [], 130), ([signal.SIGTERM], [], 143), ([signal.SIGHUP], [], 129),
    # As a session ends, and as one does under nohup.
    ([signal.SIGHUP, signal.SIGTERM, signal.SIGHUP], [], None), ([signal.SIGHUP], [signal.SIGHUP], 0),
    ([signal.SIGTERM], [signal.SIGTERM], 0),
])
def test_a_temporary_file_goes_away(folder, numbers, ignored, status):
    (folder / "d").write_text("1 1:1\n2 2:1\n" * 10)
    assert subprocess.run([sys.executable, "-m", "marginlinear.cli.train", "-q", "d", "m"]).returncode == 0
    (folder / "out").write_text("old")
    with start("-q", "-", "m", "out", program="predict", ignored=ignored, stdin=subprocess.PIPE) as process:
        process.stdin.write((folder / "d").read_bytes())
        process.stdin.flush()
        until(lambda: any(name.endswith(".tmp") for name in os.listdir()))
        for _ in range(10):
            for number in numbers:
                process.send_signal(number)
            if status == 0:
                process.stdin.close()
            # One that came just before the process waits for more is seen when there is more, or with the next.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3)
                break
        # The second signal may come when all is done.
        assert process.returncode in ([129, 143, -1, -15] if status is None else [status]), process.stderr.read()
    assert ((folder / "out").read_text() == "old") == (status != 0)
    assert sorted(os.listdir()) == ["d", "m", "out"]


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_during_an_import_is_not_lost(folder, monkeypatch, number, status):
    """As when a module of Cython registers its types: its import drops all exceptions."""
    code = f"import os\ntry:\n    os.kill(os.getpid(), {int(number)})\nexcept:\n    pass\n"
    (folder / "dropping.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "dropping", raising=False)
    ended = []

    def work(argv):
        import dropping  # noqa: F401

        try:
            until(lambda: False)
        finally:
            ended.append(True)

    try:
        found = run("program", work, [])
    except SystemExit as leaving:
        found = leaving.code
    assert (found, ended) == (status, [True])
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def on_terminal(*arguments, width=100, **environment):
    """What a terminal gets on standard error from a command that succeeds."""
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, width))
    done = subprocess.run([sys.executable, "-m", *arguments], stderr=theirs, stdout=subprocess.DEVNULL, timeout=60,
                          env={**os.environ, "TQDM_MININTERVAL": "0", "TERM": "xterm", **environment})
    os.close(theirs)
    text = b""
    while chunk := read(ours):
        text += chunk
    os.close(ours)
    assert done.returncode == 0
    return text.decode()


def test_progress_is_one_line_that_goes_away(folder):
    pytest.importorskip("tqdm", minversion="4.66")  # older ones do not read TQDM_MININTERVAL
    words = ["marginlinear.cli.train", "--no-advice", "-e", "0.5", "d", "out"]
    text = on_terminal(*words)
    assert re.search(r"\rreading d: +\d+%.*\| +\d+k/518k \[.*B/s, [12],\d{3} rows\]", text)
    assert re.search(r"\r\d+ sweeps \[.* sweeps/s, certificate \S+ \(ends at \S+\), objective \S+\]", text)
    assert "\n" not in text and text.split("\r")[-2].strip() == text.split("\r")[-1] == ""
    assert max(map(len, on_terminal(*words, width=40).split("\r"))) == 39
    assert on_terminal(*words, "-q") == ""


def test_progress_without_tqdm_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    clock = iter([0.0, 9.9, 10.0, 10.0, 19.9, 20.0, 20.0])
    monkeypatch.setattr("marginlinear.cli.output.time.monotonic", lambda: next(clock))
    with StatusLine(False) as status:
        for done in (1000, 2000, 3000):
            status.show("reading d", done, 4000, "B", f"{done} rows")
        status.show("", 7, None, "sweeps", "certificate 0.5", 3)
    assert capsys.readouterr().err == ("reading d, 2,000 of 4,000 B, 2000 rows\n"
                                       "7 sweeps, about 3 s left, certificate 0.5\n")


def test_the_time_left_is_that_of_the_trend():
    """A gap that falls by a factor of e in 2 s is down from e^5 to 1 in 10 s, whatever was before."""
    trend = Trend()
    assert [trend.left(time, gap, 1.0) for time, gap in [(0, 3.0), (1, 2.0)]] == [None, None]
    assert [trend.left(time, 1e3, 1.0) for time in range(2, 14)] == [None] * 12  # where it does not fall
    left = [trend.left(14 + time, math.exp(15 - time / 2), 1.0) for time in range(21)]
    assert left[-1] == pytest.approx(10)
    assert trend.left(35, 1e-9, 1.0) == 0 and trend.left(36, 0.0, 1.0) is None and trend.left(37, 1.0, 1.0) is None
    # Another fit begins; one that takes more than some days has no forecast.
    assert [trend.left(time, 1e3 - time / 100, 1e-9) for time in range(5)] == [None] * 5
    assert [span(seconds) for seconds in (0.1, 99, 100, 6001)] == ["1 s", "99 s", "2 min", "1 h 41 min"]


def read(descriptor):
    """What is left in the terminal; Linux says EIO once the other end is closed."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no /dev/stdout")
def test_standard_output_by_its_device_name(folder):
    """/dev/stdout is a link to something that has no path of its own when it is a pipe."""
    done = subprocess.run([sys.executable, "-m", "marginlinear.cli.train", "-q", "-e", "0.5", "d", "/dev/stdout"],
                          stdout=subprocess.PIPE, timeout=60, check=True)
    assert done.stdout.startswith(b"solver_type MCSVM_CS\n")
