#!/usr/bin/env python3
"""marginlinear on a store beside what one would do instead on the same rows, as a table in Markdown.

    tools/make_synthetic.py --shape rcv1 --rows 1410000 -o t1m && margin-train --store . -s l2svc t1m
    tools/rivals_on_disk.py t1m.store --text t1m --work measured
    tools/rivals_on_disk.py t1m.store --text t1m --work measured --only ours,sgd-l1svc,vw --vw 'python -m vowpalwabbit'
    tools/rivals_on_disk.py t1m.store --work measured --disk       # the disk's rate, and that of a fit's passes

Two classes, no bias, C = 1, one thread each (readers that read ahead beside it). A contestant is a whole process, with
its reading; of one that goes over the data in passes, each pass is a row of the table. What it has after the pass, its
weights w, is judged by this script in a pass over the store:

    objective    1/2 ||w||^2 + C sum_i loss(y_i <w, x_i>), the hinge or the squared hinge
    accuracy     on the rows of the store, those that were trained on

ours         margin-train --memory (default 1G) -e 0.01 on the store
sgd          scikit-learn's SGDClassifier.partial_fit over the store's blocks, alpha = 1/(C m): with its default steps,
             these averaged, and with a step that was looked for
vw           Vowpal Wabbit --passes with its cache, --l2 1/(C m), from --text through sed, where `--vw` runs: hinge
liblinear    liblinear-train -s 3 and -s 1 on --text, in memory, at each of --eps

Measurements are kept in the folder --work, and one that is there is not repeated: remove the file to do so.
"""

import argparse
import json
import os
import resource
import shlex
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from benchlib.measure import Skip, checked
from benchlib.text import table

import marginlinear as ml

# margin-train of the package that is imported here.
OURS = [sys.executable, "-m", "marginlinear.cli.train"]
LOSSES = {"l1svc": "hinge", "l2svc": "squared_hinge"}
# Of SGDClassifier; the last did best on synthetic text of rcv1's shape, of constant steps of 0.05, 0.5 and 1 and of
# falling ones from 0.3 and 1.
STEPS = {"default": ("default steps", {}), "averaged": ("default steps, averaged", {"average": True}),
         "constant": ("steps of 0.5, averaged", {"learning_rate": "constant", "eta0": 0.5, "average": True})}
LIBLINEAR = {"l1svc": "3", "l2svc": "1"}
# Bytes of a read, and of a block that the system counts.
READ, BLOCK = 1 << 20, 512


class Contest:
    """What is measured on one store, and the folder that keeps it."""

    def __init__(self, args):
        self.args, self.store = args, ml.Store(args.store)
        self.work = Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)

    def measured(self, name, measure):
        """Rows of the table: kept ones, or those of measure() with what the weights are worth."""
        kept = self.work / f"{name}.json"
        if kept.exists():
            return json.loads(kept.read_text())
        load = os.getloadavg()[0]
        try:
            rows, weights = measure()
        except Skip as reason:
            return [{"who": name, "skipped": str(reason)}]
        for row, found in zip(rows, self.judged(weights), strict=True):
            row.update(found, load=load)
        kept.write_text(json.dumps(rows, indent=1))
        return rows

    def judged(self, weights):
        """Objectives and accuracy of each w."""
        W = np.column_stack(weights)
        losses = {name: np.zeros(W.shape[1]) for name in LOSSES}
        right = np.zeros(W.shape[1])
        for X, y in self.store.X_blocks():
            margins = np.where(y == self.store.classes[1], 1.0, -1.0)[:, None] * (X @ W)
            below = np.maximum(0, 1 - margins)
            losses["l1svc"] += below.sum(axis=0)
            losses["l2svc"] += (below * below).sum(axis=0)
            right += (margins > 0).sum(axis=0)
        squares = (W * W).sum(axis=0) / 2
        return [{"l1svc": squares[i] + losses["l1svc"][i], "l2svc": squares[i] + losses["l2svc"][i],
                 "accuracy": right[i] / self.store.m} for i in range(W.shape[1])]

    def from_model(self, command, path, **row):
        """Rows and weights of a command that writes a model file."""
        used = checked([*command, path], self.args.limit)
        weights = ml.load_model(path).weights[:, 0]
        weights = np.append(weights, np.zeros(self.store.n_features - len(weights)))
        return [row | used_by(used)], [weights]

    def ours(self, solver):
        path, log = self.work / f"ours-{solver}.model", self.work / f"ours-{solver}.jsonl"
        log.unlink(missing_ok=True)
        command = [*OURS, "-s", solver, "-e", "0.01", "-q", "--memory", self.args.memory, "--threads", "1",
                   "--log", log, self.args.store]
        rows, weights = self.from_model(command, path, who=f"`margin-train -s {solver} -e 0.01`", solver=solver)
        info = json.loads(log.read_text().splitlines()[-1])
        rows[0] |= {"passes": info["passes"], "sweeps": info["n_iter"]}
        return rows, weights

    def sgd(self, solver, how):
        out = self.work / f"sgd-{solver}.npz"
        used = checked([sys.executable, __file__, "_sgd", self.args.store, solver, how, str(self.args.passes), out],
                       self.args.limit)
        found = np.load(out)
        who = f"SGDClassifier, {LOSSES[solver].replace('_', ' ')}, {STEPS[how][0]}"
        rows = [used_by(used) | {"who": who, "solver": solver, "passes": number, "seconds": seconds, "cpu": cpu}
                for number, (seconds, cpu) in enumerate(found["seconds"].tolist(), 1)]
        return rows, list(found["weights"])

    def vw(self):
        model, cache = self.work / "vw.model", self.work / "vw.cache"
        words = [*shlex.split(self.args.vw), "--loss_function", "hinge", "--noconstant", "-b",
                 str(max(18, self.store.n_features.bit_length())), "--l2", f"{1 / self.store.m:g}", "--passes",
                 str(self.args.passes), "--holdout_off", "-k", "--cache_file", cache, "--save_per_pass", "--quiet",
                 "-f", model, "-d", "/dev/stdin"]
        text = f"sed 's/ / | /' {shlex.quote(self.args.text)} | {shlex.join(map(str, words))}"
        begun = time.time()
        used = checked(["bash", "-c", text], self.args.limit)
        size = cache.stat().st_size
        rows, weights = [], []
        for number in range(1, self.args.passes + 1):
            of_pass, readable = Path(f"{model}.{number}"), self.work / "vw.txt"
            checked([*shlex.split(self.args.vw), "-i", of_pass, "-t", "--quiet", "--readable_model", readable,
                     "-d", "/dev/null"], self.args.limit)
            rows.append(used_by(used) | {"who": "Vowpal Wabbit, hinge", "solver": "l1svc", "passes": number,
                                         "seconds": of_pass.stat().st_mtime - begun, "cache": size,
                                         "cpu": used["cpu"] if number == self.args.passes else None})
            weights.append(readable_weights(readable, self.store.n_features))
        cache.unlink()
        return rows, weights

    def liblinear(self, solver, eps):
        command = ["liblinear-train", "-s", LIBLINEAR[solver], "-e", eps, "-q", self.args.text]
        who = f"`liblinear-train -s {LIBLINEAR[solver]} -e {eps}`, all in memory"
        return self.from_model(command, self.work / "liblinear.model", who=who, solver=solver)

    def contestants(self):
        """(name, what measures it), one loss after the other."""
        for solver in LOSSES:
            yield f"ours-{solver}", partial(self.ours, solver)
            for how in STEPS:
                yield f"sgd-{solver}-{how}", partial(self.sgd, solver, how)
            if self.args.text and solver == "l1svc":
                yield "vw", self.vw
            if self.args.text:
                for eps in self.args.eps.split(","):
                    yield f"liblinear-{solver}-{eps}", partial(self.liblinear, solver, eps)

    def rows(self):
        only = tuple(self.args.only.split(","))
        return [row for name, measure in self.contestants() if name.startswith(only)
                for row in self.measured(name, measure)]


def used_by(used):
    return {"seconds": used["seconds"], "cpu": used["cpu"], "peak": used["peak"]}


def readable_weights(path, n_features):
    """Of Vowpal Wabbit's text: a line `index:weight` for each feature that has one, after the line `:1` or `:0`."""
    weights = np.zeros(n_features)
    lines = path.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line in (":0", ":1"))
    for line in lines[first + 1:]:
        index, colon, weight = line.partition(":")
        if colon and index.isdigit():
            weights[int(index) - 1] = float(weight.split()[0])
    return weights


def child_sgd(path, solver, how, passes, out):
    """partial_fit over the blocks of a store: the weights after each pass, and (seconds, CPU seconds) until then."""
    from sklearn.linear_model import SGDClassifier

    start = time.perf_counter()
    store = ml.Store(path)
    learner = SGDClassifier(loss=LOSSES[solver], alpha=1 / store.m, fit_intercept=False, random_state=0,
                            **STEPS[how][1])
    weights, seconds = [], []
    for _ in range(int(passes)):
        for X, y in store.X_blocks():
            learner.partial_fit(X, y, classes=store.classes)
        weights.append(learner.coef_[0].copy())
        seconds.append((time.perf_counter() - start, time.process_time()))
    np.savez(out, weights=weights, seconds=seconds)


def forget(folder):
    """Ask the system to drop what it holds of the files of a folder."""
    for path in Path(folder).iterdir():
        with open(path, "rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sequential(folder):
    """Bytes per second of reading all files of a folder in their order."""
    room, size, start = bytearray(READ), 0, time.perf_counter()
    for path in sorted(Path(folder).iterdir()):
        with open(path, "rb", buffering=0) as stream:
            while count := stream.readinto(room):
                size += count
    return size / (time.perf_counter() - start)


def disk(contest):
    """The store's files read in their order, and a fit of one sweep: when the system has just let go of them, and when
    it holds what it has room for."""
    folder, log = contest.args.store, contest.work / "disk.jsonl"
    command = [*OURS, "-s", "l2svc", "--max-iter", "1", "-q", "--memory", contest.args.memory, "--threads",
               "1", "--log", log, folder, contest.work / "disk.model"]
    lines = []
    for how, prepare in (("cold", forget), ("warm", sequential)):
        prepare(folder)
        in_order = sequential(folder)
        prepare(folder)
        log.unlink(missing_ok=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
        used = checked(command, contest.args.limit)
        blocks = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - before
        info = json.loads(log.read_text().splitlines()[-1])
        lines.append([how, f"{in_order / 1e9:.2f} GB/s", f"{info['passes']:.0f}", f"{info['seconds']:.1f}",
                      f"{used['cpu']:.1f}", f"{info['bytes_read'] / info['seconds'] / 1e9:.2f} GB/s",
                      f"{BLOCK * blocks / 1e9:.1f} GB", f"{os.getloadavg()[0]:.1f}"])
    return table(["", "read in order", "passes of a fit", "its seconds", "CPU seconds", "its passes", "from the disk",
                  "load average"], lines)


def shown(rows):
    """The table, one loss after the other."""
    lines = []
    for row in rows:
        if "skipped" in row:
            print(f"{row['who']}: {row['skipped']}", file=sys.stderr)
            continue
        passes = f"{row['passes']:.0f}" if "passes" in row else ""
        cpu = "" if row["cpu"] is None else f"{row['cpu']:.0f}"
        lines.append([row["who"], passes, f"{row['seconds']:.0f}", cpu, f"{row['peak'] / 1e6:,.0f}",
                      f"{row[row['solver']]:.6g}", f"{row['accuracy']:.2%}", f"{row['load']:.1f}"])
    return table(["", "passes", "seconds", "CPU seconds", "peak MB", "objective", "accuracy", "load average"], lines)


def main():
    if sys.argv[1:2] == ["_sgd"]:
        return child_sgd(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--text", help="the same rows as LIBSVM text, for the rivals that read it")
    parser.add_argument("--work", required=True, help="folder for measurements and models")
    parser.add_argument("--only", default="ours,sgd,vw,liblinear", help="beginnings of names (default %(default)s)")
    parser.add_argument("--memory", default="1G", help="ours may hold so much (default 1G)")
    parser.add_argument("--passes", type=int, default=5, help="of sgd and vw (default 5)")
    parser.add_argument("--eps", default="0.1", help="LIBLINEAR's -e, several by commas (default 0.1)")
    parser.add_argument("--vw", default="vw", help="command of Vowpal Wabbit, such as 'python -m vowpalwabbit'")
    parser.add_argument("--limit", type=float, default=900, help="seconds of one contestant (default 900)")
    parser.add_argument("--disk", action="store_true", help="measure the disk's rate and that of a fit instead")
    contest = Contest(parser.parse_args())
    if len(contest.store.classes) != 2:
        parser.error(f"{contest.args.store} has {len(contest.store.classes)} classes: give a store of two")
    print(disk(contest) if contest.args.disk else shown(contest.rows()))


if __name__ == "__main__":
    main()
