"""Campaigns against marginlinear; README.md beside this file tells how to run them."""

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.fuzz import build, text, worker

TARGETS = ("reader", "models", "ranges", "logs", "arrays", "stores", "commands", "writes", "threads", "fits")
FINDINGS = build.BUILDS / "findings"
PATIENCE = 20, 180  # seconds of its own time, and by the clock, that one input may take
# Where fsync costs nothing.
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
NO_RANDOMIZE, DIE_WITH_PARENT = 0x0040000, 1


def parser():
    made = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    made.add_argument("target", choices=(*TARGETS, "all"), help="all: each in turn, for its share of the time")
    made.add_argument("files", nargs="*", help="inputs to check once each, such as those of findings")
    made.add_argument("--seconds", type=float, default=60.0, help="how long in all (default %(default)g)")
    made.add_argument("--inputs", type=int, default=1 << 62, help="how many inputs a target, at most")
    made.add_argument("--sanitize", choices=tuple(build.FLAGS), help="run a build with ASan and UBSan, or with TSan")
    made.add_argument("--seed", type=int, default=0, help="same seed, same inputs (default %(default)s)")
    made.add_argument("--jobs", type=int, default=1, help="processes at once (default %(default)s)")
    made.add_argument("--corpus", help="folder where inputs that reach something new are kept, and taken from")
    made.add_argument("--findings", default=FINDINGS, help="folder for inputs that found something (%(default)s)")
    return made


class Runner:
    """A job, started again where an input ended its process; given files are tried by one process."""

    def __init__(self, args, target, number, seconds, environment, folder):
        self.end, self.number, self.environment = time.monotonic() + seconds, number, environment
        self.folder, self.starts, self.findings, self.kept = Path(folder), 0, {}, 0
        self.order = {
            "target": target, "inputs": 0 if args.files else args.inputs // args.jobs, "done": 0,
            "sanitize": args.sanitize, "given": [os.path.abspath(path) for path in args.files],
            "corpus": args.corpus and os.path.abspath(args.corpus),
            "findings": os.path.abspath(args.findings),
            "watch": args.sanitize == "address"}
        self.seed = args.seed
        self.count = None  # of all inputs, once there is nothing left to do
        self.start()

    def start(self):
        self.starts += 1
        self.order |= {"seed": f"{self.order['target']} {self.seed} {self.number} {self.starts}",
                       "seconds": self.end - time.monotonic()}
        self.state, self.log = self.folder / f"state-{self.number}", self.folder / f"log-{self.number}"
        self.state.write_bytes(b"")
        self.shared = worker.State(self.state)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "tools.fuzz.worker", self.state, json.dumps(self.order)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=self.environment,
                cwd=self.folder, preexec_fn=same_addresses)
        self.seen = 0, 0.0, time.monotonic()

    def poll(self):
        """Whether there is anything left to do."""
        if self.count is None and self.process.poll() is not None:
            if self.close():
                self.count = self.shared.get()[0]
            else:
                self.mourn(f"ended with {self.process.returncode}")
        elif self.count is None:
            self.watch_for_hangs()
        return self.count is None

    def watch_for_hangs(self):
        count, own, clock = self.shared.get()[0], own_seconds(self.process.pid), time.monotonic()
        if count != self.seen[0]:
            self.seen = count, own, clock
        elif (count and own - self.seen[1] > PATIENCE[0]) or clock - self.seen[2] > PATIENCE[1]:
            self.process.send_signal(signal.SIGABRT)  # faulthandler tells where it was
            self.close()
            self.mourn(f"took more than {PATIENCE[0]} s")

    def mourn(self, what):
        """Keep the input that ended the process, and start anew with other ones."""
        count, data = self.shared.get()
        report = self.log.read_text("utf-8", "backslashreplace")
        if count == 0:
            self.count = 0
            raise SystemExit(f"the worker {what} before its first input:\n{report}")
        told = [line for line in report.splitlines() if line.startswith("SUMMARY: ") or "runtime error: " in line]
        where = [line.strip() for line in report.splitlines() if line.startswith("  File ") and "marginlinear" in line]
        kind = f"{what}: {text.shape_of(told[0]) if told else ''} {where[0] if where else ''}"
        self.findings[kind] = str(worker.save(self.order["findings"], self.order["target"], kind, data, report))
        self.order["done"] = count
        if (time.monotonic() < self.end and count < self.order["inputs"] and len(self.findings) < worker.MANY
                and self.starts < 10 * worker.MANY):
            self.start()
        else:
            self.count = count

    def close(self):
        """End the process, and take what it has told; whether it came to its end."""
        if self.process.poll() is None:
            self.process.kill()
        with self.process as process:
            told = [json.loads(line) for line in process.stdout]
        for line in told:
            self.findings |= line.get("findings", {})
            self.kept += line.get("kept", 0)
        return any("kept" in line for line in told)


def same_addresses():
    """The same places of code in each run, as coverage is told by them and TSan knows no others; no job outlives us."""
    library = ctypes.CDLL(None)
    library.personality(NO_RANDOMIZE)
    library.prctl(DIE_WITH_PARENT, signal.SIGKILL)


def own_seconds(pid):
    """Processor time of a process and of its children that have ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, words[11:15])) / 100


def campaign(args, target, seconds):
    """Run one target; (its findings, kind -> file, whether it was interrupted)."""
    names = [name for name, wanted in (("watch", args.sanitize == "address"), ("faults", target == "writes")) if wanted]
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="marginlinear-fuzz-", dir=MEMORY) as folder:
        environment = build.environment(args.sanitize, [build.library(name, folder) for name in names])
        environment["TMPDIR"] = folder
        runners, began = [], time.monotonic()
        try:
            for number in range(args.jobs):
                runners.append(Runner(args, target, number, seconds, environment, folder))
            while sum([runner.poll() for runner in runners]):
                time.sleep(0.02)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            for runner in runners:
                if runner.count is None:
                    runner.close()
                    runner.count = runner.shared.get()[0]
    took, findings = time.monotonic() - began, {}
    for runner in runners:
        findings |= runner.findings
    count, kept = sum(runner.count for runner in runners), sum(runner.kept for runner in runners)
    for kind, path in findings.items():
        print(f"{target}: {kind}\n    python -m tools.fuzz {target} {path}")
    print(f"{target}: {count} inputs in {took:.1f} s ({count / took:.0f}/s), {kept} kept, {len(findings)} findings"
          + (", interrupted" if interrupted else ""), flush=True)
    return findings, interrupted


def main(argv=None):
    args = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    targets = TARGETS if args.target == "all" else (args.target,)
    if args.files:
        args.jobs = 1
    status = 0
    for target in targets:
        findings, interrupted = campaign(args, target, args.seconds / len(targets))
        status = 1 if findings else status
        if interrupted:
            return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
