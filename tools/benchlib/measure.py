"""Runs of whole processes and of library calls, side by side."""

import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
BENCH = Path(__file__).resolve().parent.parent / "bench.py"


class BenchError(Exception):
    """Nothing can be measured; the text says why and what to do."""


class Skip(Exception):
    """One comparison or one contestant cannot be measured; the text says why."""


# ru_maxrss of a process starts at the size of the one that forked it, so a small interpreter does that.
LAUNCHER = """
import os, sys, time
from resource import RUSAGE_SELF, getrusage
result, command = int(sys.argv[1]), sys.argv[2:]
start = time.perf_counter()
pid = os.posix_spawn(command[0], command, os.environ)
_, status, used = os.wait4(pid, 0)
seconds = time.perf_counter() - start
try:
    with open("/proc/self/status") as file:
        floor = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
except FileNotFoundError:
    floor = getrusage(RUSAGE_SELF).ru_maxrss  # includes the size of the process that started this one
numbers = seconds, used.ru_utime, used.ru_stime, used.ru_maxrss, status, floor
os.write(result, " ".join(map(repr, numbers)).encode())
"""


def run(command, limit):
    """A whole process: {seconds, user, cpu, peak, floor, status, over, stdout, stderr}.

    floor is the smallest peak that can be seen.
    """
    program = shutil.which(command[0])
    if not program:
        raise Skip(f"{command[0]} cannot be run")
    with (tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err,
          tempfile.TemporaryFile() as numbers):
        result = numbers.fileno()
        launch = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(result), program, *map(str, command[1:])]
        # A session of its own, so that the launcher and the command can be killed together.
        process = subprocess.Popen(launch, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   pass_fds=[result], start_new_session=True)
        over = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            over = True
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        texts = []
        for file in (numbers, out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if over:
        return {"over": True, "stdout": texts[1], "stderr": texts[2]}
    if process.returncode:
        raise BenchError(f"the launcher of {program} failed: {texts[2].strip()}")
    seconds, user, system, peak, status, floor = map(float, texts[0].split())
    return {"seconds": seconds, "user": user, "system": system, "cpu": user + system, "peak": peak * MAXRSS_UNIT,
            "floor": floor * MAXRSS_UNIT, "status": os.waitstatus_to_exitcode(int(status)), "over": False,
            "stdout": texts[1], "stderr": texts[2]}


def checked(command, limit, status=0):
    result = run(command, limit)
    if result["over"]:
        raise Skip(f"stopped after {limit:g} s: {shlex.join(map(str, command))}")
    if result["status"] != status:
        lines = (result["stderr"].strip() or result["stdout"].strip() or "no message").splitlines()
        raise Skip(f"exit status {result['status']}: {lines[-1]} ({shlex.join(map(str, command))})")
    return result


def in_child(python, name, *args, limit=7200.0):
    """Calls CHILDREN[name](*args) in a fresh interpreter."""
    result = checked([python, str(BENCH), "_child", name, json.dumps(args)], limit)
    return json.loads(result["stdout"].splitlines()[-1])


def interleave(contestants, repeat, progress, long=None, earlier=()):
    """{name: results of all rounds}, and {name: why it dropped out}.

    A contestant whose first run took more than `long` seconds is not repeated, whether that was in the first round or
    among the `earlier` results, {name: result}.
    """
    def is_long(result):
        return long is not None and result["seconds"] > long

    results, failed = {name: [] for name in contestants}, {}
    for name in results:
        if name in earlier and is_long(earlier[name]):
            results[name].append(earlier[name])
    for number in range(repeat):
        order = list(contestants) if number % 2 == 0 else list(contestants)[::-1]
        for name in order:
            if name in failed or (results[name] and is_long(results[name][0])):
                continue
            progress(f"round {number + 1}/{repeat}: {name}")
            try:
                results[name].append(contestants[name]())
            except Skip as error:
                failed[name] = str(error)
    return {name: got for name, got in results.items() if name not in failed}, failed


def median(results, key):
    values = [r[key] for r in results if r.get(key) is not None]
    return statistics.median(values) if values else None


def survey(path):
    """Brings a file into the page cache; returns its numbers of colons and lines."""
    colons = lines = 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            colons += piece.count(b":")
            lines += piece.count(b"\n")
    return colons, lines


class Comparison:
    """Contestants that were measured together, and the ratios between them.

    The `place` of a ratio is the cell of the page's table where it stands: {line, data, method, C, threads}.
    """

    def __init__(self, title):
        self.title = self.name = title
        self.rows, self.ratios, self.notes = [], [], []

    def add(self, name, command, results, **more):
        rounds = [{key: r.get(key) for key in ("seconds", "cpu", "user", "system", "peak", "floor")} for r in results]
        self.rows.append({"name": name, "command": command, "seconds": median(results, "seconds"),
                          "cpu": median(results, "cpu"), "peak": median(results, "peak"), **more,
                          "rounds": rounds})

    def ratio(self, label, above, below, sense=None, goal=None, key="seconds", place=None):
        """Median over median of wall time or of `key`, with the extremes over the rounds; the same of CPU time.

        A side with fewer rounds stands with its median against each round of the other.
        """
        top, bottom = median(above, key), median(below, key)
        if len(above) == len(below):
            pairs = [a[key] / b[key] for a, b in zip(above, below, strict=True)]
        else:
            pairs = [a[key] / bottom for a in above] + [top / b[key] for b in below]
        cpu = median(above, "cpu") / median(below, "cpu") if key == "seconds" else None
        self.value(label, top / bottom, sense, goal, min(pairs), max(pairs), cpu, place)

    def value(self, label, value, sense=None, goal=None, low=None, high=None, cpu=None, place=None):
        met = None if goal is None else value <= goal if sense == "at most" else value >= goal
        self.ratios.append({"label": label, "value": value, "low": low, "high": high, "cpu": cpu,
                            "sense": sense, "goal": goal, "met": met, "place": place})

    def missing(self, label, sense, goal, why, place=None):
        self.ratios.append({"label": label, "value": None, "low": None, "high": None, "cpu": None,
                            "sense": sense, "goal": goal, "met": None, "why": why, "place": place})
