"""Faults while files are written: each call that changes a file fails, is cut short, or is the process's last.

Whatever happens, a model, a table, predictions, ranges, data and pictures are the old file or the whole new one, a log
is the beginning of what it would be, and but for SIGKILL no temporary file is left. A run that could not write what it
was asked for ends with status 1 and a message; one with status 0 has written all.

An input is a JSON object: the number of a scenario, and which of its calls meets which fault.
"""

import ctypes
import errno
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from marginlinear.cli import export, inspect, plot, predict, scale, train
from marginlinear.libsvm import dump_libsvm

KILL_BEFORE, KILL_AFTER, SHORT = -1, -2, -3
FAULTS = {"kill before": KILL_BEFORE, "kill after": KILL_AFTER, "short": SHORT, "ENOSPC": errno.ENOSPC,
          "EIO": errno.EIO, "EINTR": errno.EINTR, "EACCES": errno.EACCES, "EDQUOT": errno.EDQUOT}
NUMBER = re.compile(rb"[-+.\deE]*\d[-+.\deE]*")
DATA = b"1 1:0.5 2:1\n2 1:-1 3:2\n1 2:3\n2 3:1\n1 1:1\n2 1:-2 2:-1\n"
SEARCH = ["-q", "-s", "odm", "--threads", "1", "-C", "--grid", "C=1,2", "-v", "2"]


def dumped(path):
    dump_libsvm(np.array([[1.0, 2], [3, 4]]), np.array([1, 2]), path)
    return 0


# What is done, which files appear whole, which grow; "stdout" is where standard output goes.
SCENARIOS = (
    (lambda: train.main(["-q", "d", "m"]), ["m"], []),
    (lambda: train.main(["-q", "-s", "odm", "--log", "log", "d", "m"]), ["m"], ["log"]),
    (lambda: train.main(["d", "-"]), [], ["stdout"]),
    (lambda: train.main([*SEARCH, "--table", "t.csv", "--log", "s", "d"]), ["t.csv"], ["s", "stdout"]),
    (lambda: train.main([*SEARCH, "--table", "t.json", "--refit", "d", "m"]), ["t.json", "m"], ["stdout"]),
    (lambda: train.main([*SEARCH, "--resume", "half", "d"]), [], ["half", "stdout"]),
    (lambda: predict.main(["d", "model", "out"]), ["out"], ["stdout"]),
    (lambda: predict.main(["--scores", "d", "model"]), [], ["stdout"]),
    (lambda: scale.main(["-s", "ranges", "-o", "out", "d"]), ["ranges", "out"], []),
    (lambda: inspect.main(["model", "d"]), [], ["stdout"]),
    (lambda: export.main(["model", "x.c"]), ["x.c"], []),
    (lambda: dumped("x.gz"), ["x.gz"], []),
    *([(lambda: plot.main(["search", "-o", "p.svg", "--score", "score", "table.csv"]), ["p.svg"], [])]
      if find_spec("matplotlib") else []),
)
LIBRARY = ctypes.PyDLL(None)  # faults.c stands before the C library


class Sandbox:
    """A folder with inputs and old outputs, the same before each scenario, and what each writes without a fault."""

    def __init__(self):
        self.path = Path(tempfile.gettempdir()) / f"writes-{os.getpid()}"
        self.whole = self.path.with_suffix(".whole")
        self.whole.mkdir()
        os.chdir(self.whole)
        Path("d").write_bytes(DATA)
        Path("table.csv").write_text("C,score\n1,0.5\n2,0.75\n")
        assert train.main(["-q", "d", "model"]) == 0
        assert train.main([*SEARCH, "-q", "--log", "half", "d"]) == 0
        lines = Path("half").read_bytes().splitlines(keepends=True)
        Path("half").write_bytes(b"".join(lines[:3]) + lines[3][:7])
        self.inputs = {path.name: path.read_bytes() for path in self.whole.iterdir()}
        for _, whole, growing in SCENARIOS:
            for name in (*whole, *growing):
                if name not in self.inputs:
                    Path(name).write_bytes(b"svm_type of the old file\n")
        self.known = set(os.listdir())
        self.new, self.calls = [], []
        for scenario in range(len(SCENARIOS)):
            status, told, calls = self.run(scenario, [])
            assert status == 0, (scenario, told)
            self.new.append({name: (self.path / name).read_bytes() for name in self.known})
            self.calls.append(calls)

    def run(self, scenario, faults):
        """(exit status, what was told, number of calls) of a scenario in a process of its own."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.whole, self.path)
        told, reading, writing = self.path.with_suffix(".err"), *os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self.child(SCENARIOS[scenario][0], faults, told, writing)
            finally:
                os._exit(99)
        os.close(writing)
        _, status = os.waitpid(pid, 0)
        calls = int.from_bytes(os.read(reading, 4), "little")
        os.close(reading)
        return os.waitstatus_to_exitcode(status), told.read_text("utf-8", "backslashreplace"), calls

    def child(self, act, faults, told, writing):
        signal.alarm(60)
        os.chdir(self.path)
        for number, path in ((1, "stdout"), (2, told)):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(fd, number)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        LIBRARY.faults_watch(1)
        for at, fault in faults:
            LIBRARY.faults_plan(at, FAULTS[fault])
        LIBRARY.faults_begin(os.fsencode(self.path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                status = act()
            except OSError as error:  # of the library; the commands tell it themselves
                print(error, file=sys.stderr)
                status = 1
            except BaseException:
                import traceback

                traceback.print_exc()
                status = 98
        os.write(writing, LIBRARY.faults_count().to_bytes(4, "little"))
        os._exit(status)


SANDBOX = None


def sandbox():
    global SANDBOX
    SANDBOX = SANDBOX or Sandbox()
    return SANDBOX


def seeds():
    """Each fault at each call of each scenario."""
    return [as_input(scenario, [(at, fault)]) for scenario, calls in enumerate(sandbox().calls)
            for at in range(1, calls + 1) for fault in FAULTS]


def as_input(scenario, faults):
    return json.dumps({"scenario": scenario, "faults": faults}).encode()


def mutate(rng, data, other):
    """Two faults."""
    scenario = rng.randrange(len(SCENARIOS))
    calls = sandbox().calls[scenario]
    return as_input(scenario, [(rng.randint(1, calls + 2), rng.choice(list(FAULTS))) for _ in range(2)])


def check(data):
    box, found = sandbox(), json.loads(data)
    scenario = found["scenario"]
    _, whole, growing = SCENARIOS[scenario]
    faults = [(at, fault) for at, fault in found["faults"] if at <= box.calls[scenario]]
    status, told, _ = box.run(scenario, faults)
    os.chdir(box.whole)
    new = box.new[scenario]
    kinds = {FAULTS[fault] for _, fault in faults}
    killed = status == -signal.SIGKILL
    assert status in (0, 1) or (killed and kinds & {KILL_BEFORE, KILL_AFTER}), f"status {status}: {told}"
    assert status != 1 or (told.strip() and "Traceback" not in told), f"status 1: {told!r}"
    for name in box.known:
        content = (box.path / name).read_bytes()
        if name in growing:
            assert shape(new[name]).startswith(shape(content)) or content == b"svm_type of the old file\n" or \
                content == box.inputs.get(name), f"{name} is {content!r}"
            complete = shape(content) == shape(new[name])
        else:
            complete = name not in whole or shape(content) == shape(new[name])
            assert complete or content == b"svm_type of the old file\n", f"{name} is neither old nor new: {content!r}"
        assert status or complete, f"status 0, and {name} is {content!r}"
    left = set(os.listdir(box.path)) - box.known
    assert killed or not left, f"left behind: {left}"
    return scenario, status, len(left)


def shape(content):
    """Without what differs between equal runs: their times."""
    return NUMBER.sub(b"0", content) if content[:2] != b"\x1f\x8b" else content
