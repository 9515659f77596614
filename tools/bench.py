#!/usr/bin/env python3
"""marginlinear against LIBLINEAR and scikit-learn, side by side on the same files in one run.

    tools/bench.py read news20bydate imdb --data DIR           # the reader
    tools/bench.py train sector --data DIR -s mcodm --tol 1e-3 --peer-tol 1e-2
    tools/bench.py train letter --data DIR --scale01 -c 64     # features scaled to [0,1] first
    tools/bench.py train data/news20.train -s cs --library     # a file instead of a set; library calls too
    tools/bench.py train imdb --data DIR -s l1svc              # against LIBLINEAR -s 3
    tools/bench.py kernel ijcnn1 --data DIR -s l1svc -g 1      # RBF kernel, against LIBSVM
    tools/bench.py fit a9a --data DIR -s msvmav --options "--beta 10"   # any method, beside LIBLINEAR -s 4
    tools/bench.py pass sector --data DIR                      # m3svm's objective against SciPy's products
    tools/bench.py norms sector --data DIR                     # lpmcsvm against cs
    tools/bench.py search news20bydate --data DIR -s l2svc     # -C: warm against cold, and LIBLINEAR's
    tools/bench.py predict imdb --data DIR
    tools/bench.py write sector --data DIR
    tools/bench.py help
    tools/bench.py --suite joint --data DIR --json out.json    # every comparison with a goal: met or missed
    tools/bench.py --suite binary --data DIR                   # those of the binary and the kernel methods
    tools/bench.py --suite kernels --data DIR                  # RBF kernels, beside LIBSVM and sklearnex
    tools/bench.py --suite kernels --data DIR --only 'l1svr|oneclass'     # of regression and one class alone
    tools/bench.py --suite papers --data DIR                   # msvmav, lpmcsvm, m3svm, ism3 on real sets
    tools/bench.py --suite speed --data DIR --write docs/benchmarks.md    # the page of ratios to LIBLINEAR
    tools/bench.py --scaling --write docs/cost.md              # how time and memory grow, and the machine's rates
    tools/bench.py --roofline --data DIR --write docs/cost.md  # what sweeps and fits cost, in products X w

How it measures. All contestants of a comparison take turns (forth in one round, back in the next),
--repeat rounds, 5 by default; what counts is the median, as a ratio. Beside it stand the smallest and the
largest ratio of a round, and the ratio by CPU time, which a busy machine disturbs less. Whole processes
are timed from start to end, with CPU time and peak memory (ru_maxrss) from wait4. Library calls run in a
fresh interpreter each, which times the call alone: no import, no reading for training. Peak memory of a
library call is the peak resident size during it less the resident size before it (VmHWM, reset through
/proc/self/clear_refs). ru_maxrss cannot fall below the size of the small interpreter that starts the
process; such values are marked with "<=".

read     our read_libsvm with 1 and 2 threads, scikit-learn's load_svmlight_file, and LIBLINEAR's two
         readers: svm_read_problem(return_scipy=True) of its Python package, and its C program as
         `liblinear-train -s 4 -c -1 FILE`, which reads the whole file, then refuses C and ends. Its
         start-up, the same on a file of one row, is subtracted from the time. Its memory is that of the
         whole process over 16 bytes a nonzero (and row) and 16 bytes a row.
train    `margin-train -s NAME -e TOL -c C` against `liblinear-train -s N -e PEER_TOL -c C`, N being 4 for a
         joint method, 3 for l1svc and ldm, 1 for l2svc and odm (with mu = 0 and C (1-theta)^2 its objective
         is l2svc's at a scaled w). For the last model of each: the objective of NAME, and for a joint
         method both the Crammer-Singer objective and mcODM's J(W), computed by this tool from the model
         file and the data with NumPy alone; with several classes that of a binary method is the sum over
         its problems. Then the certificate that margin-train printed, and the accuracy on SET.t where
         there is one.
kernel   `margin-train -s NAME -t 2 -g G -c C` against `svm-train -t 2 -g G -c C`, both at -e TOL (ours: the
         relative certificate; LIBSVM's: the violation of optimality), accuracy by each side's predict.
         LIBSVM has a bias that costs nothing, so the objectives are not the same.
fit      `margin-train -s NAME OPTIONS` and `liblinear-train -s 4 -c C`, each at its own tolerance: time, memory,
         how our run ended, and the accuracy that each side's predict prints on SET.t; where there is none, on a
         fifth of the rows, drawn with a fixed seed and left out of the training. The objectives differ.
pass     one value and gradient of m3svm's objective (p = 4, with a bias) at random weights, against SciPy's X W and
         X'(X W), CSR times a dense array; in a fresh interpreter, one thread, the fastest of a few calls.
norms    `margin-train -s lpmcsvm -p P` against `margin-train -s cs`, both at -e TOL.
search   ml.search over C = 2^-5, 2^-3, ..., 2^9 with 5 folds at tol = TOL, one thread, along C and each C by
         itself: sweeps and time. For l2svc also `margin-train -C -s l2svc -e TOL` against `liblinear-train -C -s 2`
         with its own tolerance, whole processes: 5 folds too, but LIBLINEAR chooses its values of C itself.
predict  margin-predict against liblinear-predict, same model, same file; the labels are compared.
write    save_model of both libraries, same model; the weights in the files are compared.

speed    1 and 2 threads of ours beside one LIBLINEAR, which the methods of one number share, in the same rounds:
         the times as above, and of the largest file the memory. Ours runs at the loosest tolerance whose objective
         is at most 0.1 % above LIBLINEAR's, which a run beforehand finds; mcodm at a certificate of 1e-2; ldm, and
         all at C = 100, at 1e-3. A contestant whose first run took more than --long seconds is not repeated.
         --write keeps all measurements in a JSON file beside the page, so that a run with --only refreshes its own
         comparisons; the page says when each was measured.
--scaling  whole processes on synthetic data that grow in one way at a time, less the time of a file of two rows;
         one run where one takes more than 2 s. benchlib/scaling.py has the sizes.

Data. SET is looked for in the --data folders as SET, SET.xz, SET.bz2 or SET.gz; compressed ones are
decompressed into the cache folder; sets named -shape, where they are missing, are made there by
make_synthetic.py. --scale01 writes SET scaled to [0,1] there: each feature's minimum and
maximum over all rows of the training part (an entry that is left out is 0), x -> (x - min) / (max - min),
a feature that is constant -> 0, six significant digits, zeros left out; the test part with the numbers of
the training part, so it may leave [0,1].

Peers are not installed by this tool. What is missing is named, with the command that gets it, and its line
skipped:
    apt-get install liblinear-tools; pip install liblinear-official scikit-learn
--peer-python names an interpreter that has the Python packages; default: the one that runs this.
Exit status: 0 measured, 1 error (with --strict also: a goal missed or a comparison skipped), 2 usage, 130
interrupted.
"""

import argparse
import bz2
import datetime
import gzip
import json
import lzma
import os
import platform
import re
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from benchlib import page, roofline, scaling, solvers, speed
from benchlib.children import CHILDREN, PEERS, TOLERANCES
from benchlib.measure import BenchError, Comparison, Skip, checked, in_child, interleave, median, run, survey
from benchlib.text import accuracy, grep, render, render_summary

GET_OURS = "pip install . in the root of marginlinear, or --ours FOLDER"
GET_PROGRAMS = "apt-get install liblinear-tools"
GET_LIBSVM = "apt-get install libsvm-tools"
GET_LIBLINEAR = "pip install liblinear-official scipy"
GET_SKLEARN = "pip install scikit-learn"
DECOMPRESS = {".xz": lzma.open, ".bz2": bz2.open, ".gz": gzip.open}
CASES = ("read", "train", "fit", "pass", "norms", "kernel", "search", "predict", "write", "help")
SUITES = ("joint", "binary", "kernels", "papers", "speed")
# After the name of a set: its even labels against the odd ones.
PARITY = "-parity"
# Rows, whether features are standardised, gamma, and the goal, of the sets that a kernel's methods are compared on.
KERNEL_SETS = {"a9a": (10_000, False, 0.05, 0.35), "ijcnn1": (10_000, False, 0.7, 0.35),
               "magic": (None, True, 0.1, 0.35), "cod-rna30k": (None, True, 0.125, 0.35),
               "splice": (None, False, 0.0166, 0.35), "svmguide1": (None, False, 3.0, 0.35),
               "connect-4": (8_000, False, 0.1, None),
               "phishing": (None, False, 0.1, None), "usps": (None, False, 0.02, 0.3),
               "letter": (None, True, 0.0625, 0.3), "satimage": (None, False, 1.0, 0.3),
               f"mnist{PARITY}": (10_000, False, 0.02 / 255**2, 0.35), "mnist": (10_000, False, 0.02 / 255**2, 0.3),
               "segment": (None, True, 0.1, None)}
# Rows of the sets that regression and one class are compared on.
KERNEL_MACHINE_SETS = {"a9a": 4_000, "ijcnn1": 6_000, "magic": 6_000, "cod-rna30k": 8_000, "svmguide1": None}
# Words of train, scikit-learn's class, its words, and those of svm-train.
MACHINES = {"l1svr": ({"free_bias": True, "epsilon": 0.1, "C": 1}, "SVR", {"epsilon": 0.1, "C": 1},
                      ["-s", "3", "-p", "0.1", "-c", "1"]),
            "oneclass": ({"nu": 0.5}, "OneClassSVM", {"nu": 0.5}, ["-s", "2", "-n", "0.5"])}
SEVERAL = ("usps", "letter", "satimage", "mnist", "segment", "connect-4")
# LIBLINEAR's number for the methods whose objective its -C searches.
SEARCHED = {"l2svc": 2}
# Sets that tools/make_synthetic.py makes where no folder has them.
SYNTHETIC = {"rcv1-shape": ["--shape", "rcv1"], "kdd-shape": ["--shape", "kdd2010", "--rows", "1000000"],
             "wide-shape": ["--shape", "rcv1", "--rows", "300000", "--features", "1000000"],
             "news52-shape": ["--rows", "6500", "--features", "16000", "--nonzeros", "45", "--classes", "52"],
             "words-shape": ["--rows", "1080", "--features", "856", "--nonzeros", "7", "--classes", "9", "--values",
                             "binary"]}
ROOT = Path(__file__).resolve().parent.parent


class Bench:
    def __init__(self, args):
        self.args = args
        self.limit = args.time_limit
        self.terminal = sys.stderr.isatty()
        self.cache = args.cache
        self.cache.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(tempfile.mkdtemp(prefix="run-", dir=self.cache))
        self.comparisons, self.skipped = [], []
        programs = args.case != "read"  # which needs the library alone
        self.train = self.find_ours("margin-train") if programs else None
        self.predict = self.find_ours("margin-predict") if programs else None
        self.peer_train = shutil.which(args.liblinear_train)
        self.peer_predict = shutil.which(args.liblinear_predict)
        self.svm_train, self.svm_predict = shutil.which("svm-train"), shutil.which("svm-predict")
        self.versions = in_child(args.python, "versions")
        one = args.peer_python == args.python
        self.peer_versions = self.versions if one else in_child(args.peer_python, "versions")
        self.about = self.describe()

    def find_ours(self, name):
        if self.args.peers_only:
            return None
        places = [self.args.ours] if self.args.ours else [Path(self.args.python).parent, None]
        for place in places:
            found = shutil.which(name, path=str(place) if place else None)
            if found:
                return found
        searched = " nor in ".join(str(place or "PATH") for place in places)
        raise BenchError(f"{name} is not in {searched}: {GET_OURS}")

    def close(self):
        shutil.rmtree(self.scratch)

    def progress(self, text):
        if self.terminal:
            sys.stderr.write(f"\r{text[:100]}\x1b[K" if text else "\r\x1b[K")
            sys.stderr.flush()

    def skip(self, what, why):
        self.skipped.append({"what": what, "why": why})
        self.progress("")
        print(f"SKIPPED {what}: {why}\n", flush=True)

    # -- data --

    def file(self, name, wanted=True):
        """Path of a set as plain text, in the cache where it came compressed; None: missing, not wanted."""
        if "/" in name and Path(name).is_file():
            return Path(name)
        for folder in self.args.data:
            if (folder / name).is_file():
                return folder / name
            for suffix, opened in DECOMPRESS.items():
                source = folder / (name + suffix)
                if source.is_file():
                    return self.decompressed(source, self.cache / name, opened)
        if name in SYNTHETIC:
            return self.synthetic(self.cache / name, SYNTHETIC[name])
        if wanted:
            folders = ", ".join(map(str, self.args.data)) or "no folder (give --data)"
            raise Skip(f"set {name} is missing: looked for {name}, {name}.xz, .bz2, .gz in {folders}")
        return None

    def synthetic(self, target, options):
        if not target.exists():
            self.progress(f"making {target}")
            checked([sys.executable, str(ROOT / "tools" / "make_synthetic.py"), "-o", str(target), *options], 3600)
        return target

    def decompressed(self, source, target, opened):
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            self.progress(f"decompressing {source}")
            part = target.with_name(target.name + ".part")
            with opened(source, "rb") as packed, open(part, "wb") as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)
            os.replace(part, target)
        return target

    def files(self, name, scaled=False):
        """(training file, test file or None)."""
        train = self.file(name)
        test_name = re.sub(r"\.train$", ".test", name) if name.endswith(".train") else name + ".t"
        test = self.file(test_name, wanted=False)
        if not scaled:
            return train, test
        stem = Path(name).name
        train_out, test_out = self.cache / f"{stem}.scale01", self.cache / f"{stem}.scale01.t"
        fresh = [(train, train_out)] + ([(test, test_out)] if test else [])
        if any(not out.exists() or out.stat().st_mtime < source.stat().st_mtime for source, out in fresh):
            self.progress(f"scaling {name} to [0,1]")
            in_child(sys.executable, "scale01", str(train), str(test) if test else None, str(train_out),
                     str(test_out))
        return train_out, test_out if test else None

    # -- contestants --

    def whole(self, command, status=0):
        return lambda: checked(command, self.limit, status)

    def library(self, python, name, *args):
        return lambda: in_child(python, name, *args, limit=self.limit)

    def need(self, thing, how):
        if not thing:
            raise Skip(f"missing: {how}")
        return thing

    def peers(self, package, get):
        self.need(self.peer_versions[package], f"{package} in {self.args.peer_python}: {get}")
        return self.args.peer_python

    def our_train_command(self, solver, C, tol, path, model, threads=None):
        args, threads = self.args, threads or self.args.threads
        command = [self.train, "-s", solver, "-c", f"{C:g}", "-e", f"{tol:g}"]
        command += ["-B", f"{args.bias:g}"] if args.bias >= 0 else []
        command += ["--threads", str(threads)] if threads else []
        if solver in ("mcodm", "odm") and (args.mu, args.theta) != (0.8, 0.2):
            command += ["--mu", f"{args.mu:g}", "--theta", f"{args.theta:g}"]
        return [*command, str(path), str(model)]

    def peer_train_command(self, solver, C, tol, path, model):
        bias = ["-B", f"{self.args.bias:g}"] if self.args.bias >= 0 else []
        number, *_ = PEERS[solver]
        return [self.peer_train, "-s", str(number), "-c", f"{C:g}", "-e", f"{tol:g}", *bias, str(path), str(model)]

    def reached(self, model, train, test, C):
        self.progress(f"objective of {model}")
        return self.all_reached([model], train, test, C)[0]

    def all_reached(self, models, train, test, C):
        return in_child(sys.executable, "evaluate_all", [str(model) for model in models], str(train),
                        str(test) if test else None, C, self.args.mu, self.args.theta)

    def rounds(self, title, contestants, **rules):
        return interleave(contestants, self.args.repeat, lambda text: self.progress(f"{title}: {text}"), **rules)

    def finish(self, comparison):
        self.progress("")
        self.comparisons.append(comparison)
        print(render(comparison), flush=True)

    # -- comparisons --

    def read(self, name, goals):
        out, results, absent = self.readers(name)
        self.compare_readers(name, goals, out, results, absent)

    def readers(self, name, python=True):
        """(comparison, {reader: results}, {reader: why it is missing}), LIBLINEAR's start-up subtracted.

        Without `python` neither scikit-learn nor LIBLINEAR's package.
        """
        path, _ = self.files(name, self.args.scale01)
        size = path.stat().st_size
        colons, rows = survey(path)
        out = Comparison(f"read {name}: {size / 1e6:.1f} MB")
        one_row = self.scratch / "one-row"
        one_row.write_text("1 1:1\n")
        contestants, commands, absent = {}, {}, {}
        args = self.args

        def enter(label, make):
            try:
                contestants[label], commands[label] = make()
            except Skip as error:
                absent[label] = str(error)

        def ours(threads):
            self.need(not args.peers_only, "--peers-only")
            self.need(self.versions["marginlinear"], f"marginlinear in {args.python}: {GET_OURS}")
            return (self.library(args.python, "read", "ours", str(path), threads),
                    f"marginlinear.libsvm.read_libsvm({str(path)!r}, threads={threads})")

        def program(file):
            command = [self.need(self.peer_train, GET_PROGRAMS), "-s", "4", "-c", "-1", str(file), os.devnull]
            return self.whole(command, status=1), shlex.join(command)

        enter("marginlinear, 1 thread", lambda: ours(1))
        enter("marginlinear, 2 threads", lambda: ours(2))
        enter("LIBLINEAR, C program", lambda: program(path))
        enter("LIBLINEAR, start-up", lambda: program(one_row))
        if python:
            enter("scikit-learn", lambda: (
                self.library(self.peers("scikit-learn", GET_SKLEARN), "read", "sklearn", str(path), 1),
                f"sklearn.datasets.load_svmlight_file({str(path)!r})"))
            enter("LIBLINEAR, Python", lambda: (
                self.library(self.peers("liblinear-official", GET_LIBLINEAR), "read", "liblinear", str(path), 1),
                f"liblinear.liblinearutil.svm_read_problem({str(path)!r}, return_scipy=True)"))
        results, failed = self.rounds(f"read {name}", contestants, long=args.long)
        absent |= failed
        startup = results.pop("LIBLINEAR, start-up", None)
        if "LIBLINEAR, C program" in results and startup:
            start = median(startup, "seconds")
            wrong = [r for r in results["LIBLINEAR, C program"] if "C <= 0" not in r["stderr"]]
            if wrong:
                del results["LIBLINEAR, C program"]
                absent["LIBLINEAR, C program"] = f"did not refuse C: {wrong[0]['stderr'].strip()}"
            elif min(r["seconds"] for r in results["LIBLINEAR, C program"]) <= start:
                del results["LIBLINEAR, C program"]
                absent["LIBLINEAR, C program"] = f"reading {name} takes no longer than its start-up"
            else:
                out.notes.append(f"LIBLINEAR's start-up of {start * 1000:.1f} ms is subtracted.")
                for r in results["LIBLINEAR, C program"]:
                    r["seconds"] -= start
        for label, got in results.items():
            seconds, arrays = median(got, "seconds"), median(got, "arrays")
            if label == "LIBLINEAR, C program":
                # A feature_node is 16 bytes and each row ends with one; a pointer and a label a row.
                arrays = 16 * (colons + rows) + 16 * rows
            peak = median(got, "peak")
            out.add(label, commands[label], got, rate=size / 1e6 / seconds, arrays=arrays,
                    over_arrays=peak / arrays if peak is not None else None)
        counts = {label: (got[0]["rows"], got[0]["nonzeros"])
                  for label, got in results.items() if "rows" in got[0]}
        if len(set(counts.values())) > 1:
            out.notes.append(f"WARNING: the readers disagree on (rows, nonzeros): {counts}")
        for label, why in absent.items():
            if not (args.peers_only and label.startswith("marginlinear")):
                self.skip(f"read {name}, {label}", why)
        return out, results, absent

    def compare_readers(self, name, goals, out, results, absent):
        def compare(label, above, below, sense=None, goal=None):
            why = absent.get(above) or absent.get(below)
            if why:
                out.missing(label, sense, goal, why)
            else:
                out.ratio(label, results[above], results[below], sense, goal)

        mine = "marginlinear, 1 thread"
        if not self.args.peers_only:
            compare("rate, 1 thread / scikit-learn's", "scikit-learn", mine, "at least", goals.get("sklearn"))
            compare("rate, 1 thread / LIBLINEAR's C program", "LIBLINEAR, C program", mine, "at least",
                    goals.get("liblinear"))
            compare("rate, 1 thread / LIBLINEAR's Python package", "LIBLINEAR, Python", mine, "at least")
            two = "marginlinear, 2 threads"
            compare("rate, 2 threads / 1 thread", mine, two, "at least", goals.get("threads"))
            for label in (mine, two):
                what = f"peak memory / arrays, {label.split(', ')[1]}"
                got = [row["over_arrays"] for row in out.rows if row["name"] == label]
                if got and got[0] is not None:
                    out.value(what, got[0], "at most", goals.get("memory"))
                else:
                    why = absent.get(label, "measured on Linux only")
                    out.missing(what, "at most", goals.get("memory"), why)
        self.finish(out)

    def train_case(self, name, solver, C, tol, peer_tol, scaled, goal=None, excess_goal=None, library=False):
        """With excess_goal our tolerance is the loosest of TOLERANCES that keeps within it."""
        train, test = self.files(name, scaled)
        survey(train)
        title = f"train {name}{' scaled to [0,1]' if scaled else ''}, {solver}, -c {C:g}"
        mine, theirs = self.scratch / "ours.model", self.scratch / "peer.model"
        notes = []
        if excess_goal is not None:
            tol = TOLERANCES[-1]
        if excess_goal is not None and self.train and self.peer_train:
            checked(self.peer_train_command(solver, C, peer_tol, train, theirs), self.limit)
            target = self.reached(theirs, train, None, C)[PEERS[solver][1]] * (1 + excess_goal)
            for loosest in TOLERANCES:
                tol = loosest
                checked(self.our_train_command(solver, C, tol, train, mine), self.limit)
                if self.reached(mine, train, None, C)[PEERS[solver][1]] <= target:
                    break
            notes.append(f"-e {tol:g} is the loosest of {TOLERANCES} whose objective is at most "
                         f"{excess_goal:.1%} above LIBLINEAR's; found beforehand, untimed.")
        contestants, commands = {}, {}
        if self.train:
            command = self.our_train_command(solver, C, tol, train, mine)
            contestants["marginlinear"], commands["marginlinear"] = self.whole(command), shlex.join(command)
        if self.peer_train:
            command = self.peer_train_command(solver, C, peer_tol, train, theirs)
            contestants["LIBLINEAR"], commands["LIBLINEAR"] = self.whole(command), shlex.join(command)
        else:
            self.skip(f"{title}, LIBLINEAR", f"missing: {GET_PROGRAMS}")
        models = {"marginlinear": mine, "LIBLINEAR": theirs}
        out = Comparison(title + ": whole processes")
        out.notes += notes
        self.compare_training(out, contestants, commands, models, train, test, C, solver, goal, excess_goal)
        if library:
            self.train_library(title, solver, C, tol, peer_tol, train, test, models)

    def train_library(self, title, solver, C, tol, peer_tol, train, test, models):
        contestants, commands = {}, {}
        if not self.args.peers_only and self.versions["marginlinear"]:
            contestants["marginlinear"] = self.library(
                self.args.python, "train", "ours", str(train), str(models["marginlinear"]), solver, C, tol,
                self.args.bias)
            bias = f", bias={self.args.bias:g}" if self.args.bias >= 0 else ""
            options = f"solver={solver!r}, C={C:g}, tol={tol:g}{bias}"
            commands["marginlinear"] = f"marginlinear.train(X, y, {options})"
        elif not self.args.peers_only:
            self.skip(f"{title}, library call of marginlinear", f"not in {self.args.python}: {GET_OURS}")
        try:
            python = self.peers("liblinear-official", GET_LIBLINEAR)
            contestants["LIBLINEAR"] = self.library(
                python, "train", "liblinear", str(train), str(models["LIBLINEAR"]), solver, C, peer_tol,
                self.args.bias)
            options = f"-s {PEERS[solver][0]} -c {C:g} -e {peer_tol:g} -B {self.args.bias:g} -q"
            commands["LIBLINEAR"] = f"liblinear.liblinearutil.train(problem, {options!r})"
        except Skip as error:
            self.skip(f"{title}, library call of LIBLINEAR", str(error))
        out = Comparison(title + ": library calls, data loaded")
        self.compare_training(out, contestants, commands, models, train, test, C, solver, None, None)

    def compare_training(self, out, contestants, commands, models, train, test, C, solver, goal, excess_goal):
        mine, theirs = "marginlinear", "LIBLINEAR"
        results, failed = self.rounds(out.title, contestants)
        for label, got in results.items():
            reached = self.reached(models[label], train, test, C)
            more = {}
            if label == mine:
                printed = got[-1].get("stdout", "")
                more["certificate"] = got[-1].get("certificate", grep(printed, "certificate"))
                said = got[-1].get("objective", grep(printed, "Objective value"))
                here = reached.get(solver)
                # Printed with six significant digits or more.
                if said is not None and here is not None and abs(said - here) > 1e-5 * max(1, abs(here)):
                    out.notes.append(f"WARNING: margin-train says objective {said:.9g}, NumPy {here:.9g}")
            shown = ("cs", "mcodm", "accuracy") if PEERS[solver][1] == "cs" else (PEERS[solver][1], "accuracy")
            out.add(label, commands[label], got, **{key: reached[key] for key in shown if key in reached}, **more)
        for label, why in failed.items():
            self.skip(f"{out.title}, {label}", why)
        both = mine in results and theirs in results
        if both:
            out.ratio("time, marginlinear / LIBLINEAR", results[mine], results[theirs], "at most", goal)
            if solver != "mcodm":
                objective = {row["name"]: row[PEERS[solver][1]] for row in out.rows}
                most = None if excess_goal is None else 1 + excess_goal
                out.value("objective, marginlinear / LIBLINEAR", objective[mine] / objective[theirs],
                          "at most", most)
        elif goal is not None and not self.args.peers_only:
            why = "; ".join(failed.values()) or f"missing: {GET_PROGRAMS}"
            out.missing("time, marginlinear / LIBLINEAR", "at most", goal, why)
        self.finish(out)

    def some_model(self, train, C):
        """A model that both sides can read; made by us where we are here. Returns it with the command."""
        model = self.scratch / "shared.model"
        if self.train:
            command = self.our_train_command("mcodm", C, 0.01, train, model)
        else:
            command = self.peer_train_command("mcodm", C, 0.1, train, model) if self.peer_train else None
        self.need(command, GET_PROGRAMS)
        self.progress(f"training a model on {train}")
        checked(command, self.limit)
        return model, shlex.join(command)

    def predict_case(self, name, goal=None):
        train, test = self.files(name, self.args.scale01)
        if test is None:
            raise Skip(f"{name} has no test part")
        model, made = self.some_model(train, self.args.cost)
        survey(test)
        sizes = [path.stat().st_size / 1e6 for path in (test, model)]
        out = Comparison(f"predict {name}: {sizes[0]:.1f} MB, model {sizes[1]:.1f} MB")
        out.notes.append(f"The model: {made}")
        contestants, commands, outputs = {}, {}, {}
        for label, program in (("marginlinear", self.predict), ("LIBLINEAR", self.peer_predict)):
            if program:
                outputs[label] = self.scratch / f"{label}.out"
                command = [program, str(test), str(model), str(outputs[label])]
                contestants[label], commands[label] = self.whole(command), shlex.join(command)
        if not self.peer_predict:
            self.skip(f"predict {name}, LIBLINEAR", f"missing: {GET_PROGRAMS}")
        results, failed = self.rounds(out.title, contestants)
        for label, got in results.items():
            out.add(label, commands[label], got, accuracy=accuracy(got[-1]["stdout"] + got[-1]["stderr"]))
        for label, why in failed.items():
            self.skip(f"predict {name}, {label}", why)
        if len(results) == 2:
            out.ratio("time, marginlinear / LIBLINEAR", results["marginlinear"], results["LIBLINEAR"],
                      "at most", goal)
            a, b = (path.read_text().splitlines() for path in outputs.values())
            different = sum(x != y for x, y in zip(a, b, strict=False)) + abs(len(a) - len(b))
            warning = "WARNING: " if different else ""
            out.notes.append(f"{warning}{different} of {len(b)} predicted labels differ.")
        elif goal is not None and not self.args.peers_only:
            why = "; ".join(failed.values()) or f"missing: {GET_PROGRAMS}"
            out.missing("time, marginlinear / LIBLINEAR", "at most", goal, why)
        self.finish(out)

    def write_case(self, name, goal=None):
        train, _ = self.files(name, self.args.scale01)
        model, made = self.some_model(train, self.args.cost)
        out = Comparison(f"write a model of {name}: {model.stat().st_size / 1e6:.1f} MB")
        out.notes.append(f"The model: {made}")
        contestants, commands, targets = {}, {}, {}
        absent = {}
        if not self.args.peers_only:
            if self.versions["marginlinear"]:
                targets["marginlinear"] = self.scratch / "written-ours"
                contestants["marginlinear"] = self.library(self.args.python, "write", "ours", str(model),
                                                           str(targets["marginlinear"]))
                commands["marginlinear"] = "marginlinear.save_model(model, path)"
            else:
                absent["marginlinear"] = f"not in {self.args.python}: {GET_OURS}"
        try:
            python = self.peers("liblinear-official", GET_LIBLINEAR)
            targets["LIBLINEAR"] = self.scratch / "written-peer"
            contestants["LIBLINEAR"] = self.library(python, "write", "liblinear", str(model),
                                                    str(targets["LIBLINEAR"]))
            commands["LIBLINEAR"] = "liblinear.liblinearutil.save_model(path, model)"
        except Skip as error:
            absent["LIBLINEAR"] = str(error)
        results, failed = self.rounds(out.title, contestants)
        absent |= failed
        for label, got in results.items():
            out.add(label, commands[label], got, bytes=targets[label].stat().st_size)
        for label, why in absent.items():
            self.skip(f"write {name}, {label}", why)
        if len(results) == 2:
            out.ratio("time, marginlinear / LIBLINEAR", results["marginlinear"], results["LIBLINEAR"],
                      "at most", goal)
            same = in_child(sys.executable, "same_weights", *map(str, targets.values()))
            out.notes.append("The weights in both files are equal." if same else
                             "WARNING: the weights in the two files differ.")
        elif goal is not None and not self.args.peers_only:
            out.missing("time, marginlinear / LIBLINEAR", "at most", goal, "; ".join(absent.values()))
        self.finish(out)

    def help_case(self, goal=None):
        if not self.train:
            raise Skip("--peers-only")
        out = Comparison("help")
        command = [self.train, "--help"]
        results, failed = self.rounds("help", {"marginlinear": self.whole(command)})
        for label, got in results.items():
            out.add(label, shlex.join(command), got, user=median(got, "user"))
            out.value("user time of --help, s", median(got, "user"), "at most", goal)
        for label, why in failed.items():
            self.skip(f"help, {label}", why)
            out.missing("user time of --help, s", "at most", goal, why)
        self.finish(out)

    def kernel_case(self, name, solver, C, gamma, tol, goal=None, place=None):
        """An RBF kernel, whole processes, and what each side's own model predicts."""
        train, test = self.files(name, self.args.scale01)
        survey(train)
        out = Comparison(f"kernel {name}, {solver}, -t 2 -g {gamma:g} -c {C:g}: whole processes")
        kernel = ["-t", "2", "-g", f"{gamma:g}", "-c", f"{C:g}", "-e", f"{tol:g}"]
        sides = {}
        if self.train:
            sides["marginlinear"] = [self.train, "-s", solver], self.predict
        if self.svm_train and self.svm_predict:
            sides["LIBSVM"] = [self.svm_train, "-m", "1000"], self.svm_predict
        else:
            self.skip(f"{out.title}, LIBSVM", f"missing: {GET_LIBSVM}")
        models = {label: self.scratch / f"{label}.kernel" for label in sides}
        commands = {label: [*side, *kernel, str(train), str(models[label])] for label, (side, _) in sides.items()}
        contestants = {label: self.whole(command) for label, command in commands.items()}
        results, failed = self.rounds(out.title, contestants, long=self.args.long)
        for label, why in failed.items():
            self.skip(f"{out.title}, {label}", why)
        for label, got in results.items():
            support = re.search(r"^total_sv (\d+)", models[label].read_text(), re.MULTILINE)
            more = {"support": int(support[1])} if support else {}
            if test:
                said = checked([sides[label][1], str(test), str(models[label]), str(self.scratch / "labels")],
                               self.limit)
                more["accuracy"] = accuracy(said["stdout"] + said["stderr"])
            out.add(label, shlex.join(commands[label]), got, **more)
        if len(results) == 2:
            out.ratio("time, marginlinear / LIBSVM", results["marginlinear"], results["LIBSVM"], "at most", goal,
                      place=place)
        elif goal is not None and not self.args.peers_only:
            out.missing("time, marginlinear / LIBSVM", "at most", goal, "; ".join(failed.values()) or GET_LIBSVM)
        self.finish(out)

    def svc_case(self, name, C, options, goal=None):
        """l1svc with an RBF kernel and LIBSVM's offset, by the library, beside C-SVC: the same problem, to 1e-3."""
        count, standard, gamma, _ = KERNEL_SETS[name]
        source, parity, _ = name.partition(PARITY)
        train = self.cache / f"{name}.drawn"
        if not train.exists():
            in_child(self.args.python, "draw", str(self.file(source)), str(train), count, standard, bool(parity))
        words = " ".join(f"{key}={value}" for key, value in options.items())
        out = Comparison(f"{name}, C = {C:g}, gamma = {gamma:g} {words}")
        contestants = {
            "marginlinear": self.library(self.args.python, "svc", "ours", str(train), "l1svc",
                                         {"free_bias": True, "cache": 200, "C": C, "gamma": gamma, **options}, 1e-3),
            "sklearnex": self.library(self.args.peer_python, "svc", "sklearnex", str(train), "SVC",
                                      {"C": C, "gamma": gamma}, None)}
        commands = {"marginlinear": f"train(solver='l1svc', kernel='rbf', free_bias=True, cache=200 {words})",
                    "sklearnex": "sklearnex.svm.SVC(cache_size=200).fit"}
        if self.svm_train:
            command = [self.svm_train, "-q", "-m", "200", "-c", f"{C:g}", "-g", f"{gamma:g}", str(train),
                       str(self.scratch / "svm")]
            contestants["svm-train"], commands["svm-train"] = self.whole(command), shlex.join(command)
        self.compare_kernels(out, contestants, commands, goal)

    def machine_case(self, name, solver, goal=None):
        """l1svr with LIBSVM's offset, or oneclass, with an RBF kernel, by the library, at the loosest tolerance whose
        objective is at most 0.1 % above the optimum, which a fit of ours to 1e-5 knows."""
        count, (_, standard, gamma, _) = KERNEL_MACHINE_SETS[name], KERNEL_SETS[name]
        train = self.cache / f"{name}.{solver}.drawn"
        if not train.exists():
            in_child(self.args.python, "draw", str(self.file(name)), str(train), count, standard, False, solver)
        own, machine, theirs, words = MACHINES[solver]
        out = Comparison(f"{name}, {solver}, gamma = {gamma:g}")

        def ours(tol):
            return self.library(self.args.python, "svc", "ours", str(train), solver,
                                {"cache": 200, "gamma": gamma, **own}, tol)

        self.progress(f"{out.title}: optimum")
        best = ours(solvers.SURE)()["objective"]
        tol = next((e for e in solvers.OURS if ours(e)()["objective"] <= solvers.above(best)), solvers.SURE)
        who = "sklearnex" if self.peer_versions["scikit-learn-intelex"] and solver != "oneclass" else "scikit-learn"
        module = "sklearnex" if who == "sklearnex" else "sklearn"
        options = ", ".join(f"{key}={value!r}" for key, value in own.items())
        contestants = {"marginlinear": ours(tol),
                       who: self.library(self.args.peer_python, "svc", module, str(train), machine,
                                         {"gamma": gamma, **theirs}, None)}
        commands = {"marginlinear": f"train(solver={solver!r}, kernel='rbf', cache=200, tol={tol:g}, {options})",
                    who: f"{module}.svm.{machine}(cache_size=200).fit"}
        if self.svm_train:
            command = [self.svm_train, "-q", "-m", "200", *words, "-g", f"{gamma:g}", str(train),
                       str(self.scratch / "svm")]
            contestants["svm-train"], commands["svm-train"] = self.whole(command), shlex.join(command)
        self.compare_kernels(out, contestants, commands, goal)

    def compare_kernels(self, out, contestants, commands, goal):
        """CPU time and memory of ours beside those of each peer."""
        results, failed = self.rounds(out.title, contestants, long=self.args.long)
        for label, why in failed.items():
            self.skip(f"{out.title}, {label}", why)
        for label, got in results.items():
            out.add(label, commands[label], got, user=median(got, "user"), system=median(got, "system"),
                    **{key: got[-1][key] for key in ("certificate", "support") if key in got[-1]})
        for peer in ("svm-train", "sklearnex", "scikit-learn"):
            if peer in results and "marginlinear" in results:
                out.ratio(f"CPU, marginlinear / {peer}", results["marginlinear"], results[peer], "at most", goal,
                          key="cpu")
                out.ratio(f"memory, marginlinear / {peer}", results["marginlinear"], results[peer], key="peak")
        self.finish(out)

    def kernels_suite(self):
        """C-SVC, epsilon-SVR and one class with an RBF kernel, beside LIBSVM and sklearnex."""
        cases = []
        for name, (*_, goal) in KERNEL_SETS.items():
            several = name in SEVERAL
            for how in ("ovo", "ovr") if several else (None,):
                for C in (1, 16, 100):
                    options = {} if how is None else {"multiclass": how}
                    cases.append((f"kernel {name} {how or ''} C={C}".replace("  ", " "),
                                  lambda name=name, C=C, options=options, goal=1.0 if how == "ovr" else goal:
                                  self.svc_case(name, C, options, goal)))
        for solver in MACHINES:
            for name in KERNEL_MACHINE_SETS:
                cases.append((f"kernel {name} {solver}",
                              lambda name=name, solver=solver: self.machine_case(name, solver, 0.4)))
        return cases

    def fit_case(self, name, solver, options, C):
        """A method that has no peer, beside LIBLINEAR -s 4: whole processes."""
        train, test = self.files(name, self.args.scale01)
        if test is None:
            source, stem = train, Path(train).name
            train, test = self.cache / f"{stem}.fifths", self.cache / f"{stem}.fifths.t"
            if not test.exists() or test.stat().st_mtime < source.stat().st_mtime:
                in_child(sys.executable, "leave_fifth", str(source), str(train), str(test))
        out = Comparison(" ".join(["fit", name, solver, *options]))
        threads = ["--threads", str(self.args.threads)] if self.args.threads else []
        sides = {}
        if self.train:
            sides["marginlinear"] = [self.train, "-s", solver, *options, *threads], self.predict
        if self.peer_train and self.peer_predict:
            sides["LIBLINEAR -s 4"] = [self.peer_train, "-s", "4", "-c", f"{C:g}"], self.peer_predict
        else:
            self.skip(f"{out.title}, LIBLINEAR", f"missing: {GET_PROGRAMS}")
        models = {label: self.scratch / f"{label.split()[0]}.fit" for label in sides}
        commands = {label: [*side, str(train), str(models[label])] for label, (side, _) in sides.items()}
        results, failed = self.rounds(out.title, {label: self.whole(command) for label, command in commands.items()})
        for label, why in failed.items():
            self.skip(f"{out.title}, {label}", why)
        for label, got in results.items():
            said = checked([sides[label][1], str(test), str(models[label]), str(self.scratch / "labels")], self.limit)
            more = {"accuracy": accuracy(said["stdout"] + said["stderr"])}
            printed = got[-1]["stdout"]
            if label == "marginlinear":
                ended = re.search(r"^(?:certificate|residual) = .* \((\w+);", printed, re.MULTILINE)
                more |= {"iterations": grep(printed, "optimization finished, #iter"),
                         "objective": grep(printed, "Objective value"), "status": ended and ended[1],
                         **{name: grep(printed, name) for name in ("certificate", "residual")}}
            out.add(label, shlex.join(commands[label]), got, **more)
        self.finish(out)

    def pass_case(self, name, goal=None):
        path, _ = self.files(name, self.args.scale01)
        self.need(not self.args.peers_only and self.versions["marginlinear"], GET_OURS)
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        out = Comparison(f"pass {name}: value and gradient of m3svm, one thread")
        sides = {"marginlinear": "ours", "SciPy": "scipy"}
        contestants = {label: self.library(self.args.python, "pass", who, str(path)) for label, who in sides.items()}
        self.compare(out, contestants, dict.fromkeys(sides, "see pass above"), "SciPy", goal)

    def search_case(self, name, solver, tol, goal=None):
        path, _ = self.files(name, self.args.scale01)
        self.need(not self.args.peers_only and self.versions["marginlinear"], GET_OURS)
        out = Comparison(f"search {name} -s {solver}: 8 values of C, 5 folds, one thread")
        contestants = {who: self.library(self.args.python, "search", who, str(path), solver, tol)
                       for who in ("warm", "cold")}
        results, failed = self.rounds(out.title, contestants)
        for who, got in results.items():
            out.add(who, f"marginlinear.search of {path}, {'along C' if who == 'warm' else 'each C by itself'}", got,
                    iterations=got[-1]["sweeps"], unconverged=got[-1]["unconverged"])
        if failed:
            out.missing("sweeps, warm / cold", "at most", goal, "; ".join(failed.values()))
        else:
            warm, cold = results["warm"], results["cold"]
            out.value("sweeps, warm / cold", warm[-1]["sweeps"] / cold[-1]["sweeps"], "at most", goal)
            out.ratio("time, warm / cold", warm, cold)
        self.finish(out)
        if solver in SEARCHED:
            self.need(self.train and self.peer_train, f"{GET_OURS}; {GET_PROGRAMS}")
            commands = {
                "marginlinear": [self.train, "-C", "-s", solver, "-e", f"{tol:g}", "--threads", "1", str(path)],
                "LIBLINEAR": [self.peer_train, "-C", "-s", str(SEARCHED[solver]), str(path)]}
            self.compare(Comparison(f"search {name} -s {solver}: margin-train -C and LIBLINEAR's, whole processes"),
                         {label: self.whole(command) for label, command in commands.items()},
                         {label: shlex.join(command) for label, command in commands.items()}, "LIBLINEAR", None)

    def norms_case(self, name, p, tol, goal=None):
        path, _ = self.files(name, self.args.scale01)
        self.need(self.train, GET_OURS)
        out = Comparison(f"norms {name}, lpmcsvm -p {p:g} against cs, -c {self.args.cost:g}: whole processes")
        ends = ["-c", f"{self.args.cost:g}", "-e", f"{tol:g}", "--threads", "1", str(path), str(self.scratch / "norms")]
        solvers = {"lpmcsvm": ["-s", "lpmcsvm", "-p", f"{p:g}"], "cs": ["-s", "cs"]}
        commands = {label: [self.train, *solver, *ends] for label, solver in solvers.items()}
        self.compare(out, {label: self.whole(command) for label, command in commands.items()},
                     {label: shlex.join(command) for label, command in commands.items()}, "cs", goal)

    def compare(self, out, contestants, commands, below, goal):
        """Two contestants by their time alone."""
        results, failed = self.rounds(out.title, contestants)
        for label, got in results.items():
            out.add(label, commands[label], got)
        for label, why in failed.items():
            self.skip(f"{out.title}, {label}", why)
        above = next(label for label in contestants if label != below)
        label = f"time, {above} / {below}"
        if failed:
            out.missing(label, "at most", goal, "; ".join(failed.values()))
        else:
            out.ratio(label, results[above], results[below], "at most", goal)
        self.finish(out)

    def suite(self):
        """The comparisons that have a goal, or a table."""
        suites = {"joint": self.joint_suite, "binary": self.binary_suite, "papers": self.papers_suite,
                  "kernels": self.kernels_suite,
                  "speed": lambda: speed.cases(self)}
        return suites[self.args.suite]()

    def papers_suite(self):
        """Methods without a peer, at their defaults or the exponents of their paper."""
        cases = []

        def fit(name, solver, *options):
            cases.append((" ".join(["fit", name, solver, *options]),
                          lambda: self.fit_case(name, solver, options, self.args.cost)))

        for name in ("imdb", "a9a", "phishing", "magic", "news20bin"):
            fit(name, "msvmav")
        for name in ("sector", "news20", "news20bydate"):
            for p in ("1.1", "1.5", "2"):
                fit(name, "lpmcsvm", "-p", p)
        for name in ("cornell", "isolet1560", "usps", "vehicle", "glass", "sector", "news20bydate"):
            for solver in ("m3svm", "ism3"):
                fit(name, solver)
        cases.append(("pass sector", lambda: self.pass_case("sector", 3)))
        cases.append(("norms sector", lambda: self.norms_case("sector", 1.5, 1e-3, 4)))
        return cases

    def binary_suite(self):
        """One thread, LIBLINEAR at its default tolerance, ours at the loosest that is as good; odm at mu = 0."""
        cases = []

        def train(name, solver, C, goal, threads):
            def call():
                self.args.threads, (mu, theta) = threads, (self.args.mu, self.args.theta)
                if solver == "odm":
                    self.args.mu, self.args.theta = 0, 0
                self.train_case(name, solver, C, None, 0.1, False, goal, 0.001, self.args.library)
                self.args.mu, self.args.theta = mu, theta

            cases.append((f"train {name} {solver}", call))

        for name, goal in (("news20bin", 0.6), ("amazon-reviews", 0.6), ("farm-ads", 0.6), ("imdb", 0.7)):
            for solver in ("l1svc", "l2svc", "ldm"):
                train(name, solver, 1, goal, 1)
        for name in ("news20bydate", "sector"):
            train(name, "l2svc", 1, 0.4, 2)
        for name in ("imdb", "a9a"):
            train(name, "odm", 1, None, 1)
        for name, C, gamma in (("ijcnn1", 16, 1), ("a9a", 1, 0.01), ("letter", 16, 0.1)):
            cases.append((f"kernel {name} l1svc", lambda name=name, C=C, gamma=gamma: self.kernel_case(
                name, "l1svc", C, gamma, 1e-3)))
        return cases

    def joint_suite(self):
        """mcodm and cs, the reader, the model files, start-up."""
        text = ("news20bydate", "imdb", "sector")
        cases = []
        reading = {"sklearn": 12, "liblinear": 6, "threads": 1.3, "memory": 1.3}
        for name in text:
            cases.append((f"read {name}", lambda name=name: self.read(name, reading)))

        def train(name, solver, C, tol, peer_tol, scaled, goal, excess=None):
            what = f"train {name} {solver} -e {'matched' if excess else format(tol, 'g')}"
            cases.append((what, lambda: self.train_case(name, solver, C, tol, peer_tol, scaled, goal, excess,
                                                        self.args.library)))

        for name, goal in (("news20bydate", 0.5), ("imdb", 0.5), ("sector", 0.7)):
            train(name, "mcodm", 1, 0.001, 0.01, False, goal)
        for name in text:
            train(name, "mcodm", 1, 0.01, 0.1, False, 0.9)
        for name, C in (("letter", 64), ("satimage", 64), ("connect-4", 1), ("mnist", 1)):
            train(name, "mcodm", C, 0.01, 0.1, True, 0.4)
        for name in ("news20bydate", "sector"):
            train(name, "cs", 1, None, 0.1, False, 0.9, 0.001)
        cases.append(("predict imdb", lambda: self.predict_case("imdb", 0.5)))
        cases.append(("write sector", lambda: self.write_case("sector", 0.4)))
        cases.append(("help", lambda: self.help_case(0.1)))
        return cases

    def single(self):
        args = self.args
        made = {"read": lambda name: self.read(name, {}),
                "train": lambda name: self.train_case(name, args.solver, args.cost, args.tol, args.peer_tol,
                                                      args.scale01, library=args.library),
                "kernel": lambda name: self.kernel_case(name, args.solver, args.cost, args.gamma, args.tol),
                "pass": self.pass_case, "norms": lambda name: self.norms_case(name, args.norm, args.tol),
                "fit": lambda name: self.fit_case(name, args.solver, shlex.split(args.options), args.cost),
                "search": lambda name: self.search_case(name, args.solver, args.tol),
                "predict": self.predict_case, "write": self.write_case}
        if args.case == "help":
            return [("help", self.help_case)]
        return [(f"{args.case} {name}", lambda name=name: made[args.case](name)) for name in args.sets]

    def everything(self):
        cases = self.suite() if self.args.suite else self.single()
        chosen = [(what, call) for what, call in cases if re.search(self.args.only, what)]
        if not chosen:
            names = ", ".join(what for what, _ in cases)
            raise BenchError(f"--only {self.args.only!r} fits none of: {names}")
        for what, call in chosen:
            done = len(self.comparisons)
            try:
                call()
            except Skip as error:
                self.skip(what, str(error))
            for comparison in self.comparisons[done:]:
                comparison.name = what
            if self.args.write and len(self.comparisons) > done:
                page.update(self.args.write, self.about, self.comparisons[done:], [what for what, _ in cases])

    def describe(self):
        model = platform.processor() or platform.machine()
        if Path("/proc/cpuinfo").exists():
            names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
            model = names[0] if names else model
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        debian = ""
        if self.peer_train and shutil.which("dpkg-query"):
            got = run(["dpkg-query", "-W", "-f", "${Version}", "liblinear-tools"], 60)
            debian = got["stdout"] if got["status"] == 0 else ""
        machine = f"{model}, {os.cpu_count()} processors, {memory / 2**30:.0f} GiB, {platform.platform()}"
        git = run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], 60) if shutil.which("git") else None
        return {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "machine": machine,
                "load": list(os.getloadavg()), "versions": self.versions, "peer_versions": self.peer_versions,
                "liblinear_tools": debian, "liblinear_train": self.peer_train, "margin_train": self.train,
                "commit": git["stdout"].strip() if git and git["status"] == 0 else "",
                "argv": sys.argv[1:], "repeat": self.args.repeat}


def positive(kind):
    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text} is not positive")
        return value

    return convert


def parser():
    p = argparse.ArgumentParser(prog="bench.py", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("case", nargs="?", choices=CASES)
    p.add_argument("sets", nargs="*", metavar="SET", help="a name in the --data folders, or a path with a /")
    p.add_argument("--suite", choices=SUITES,
                   help="every comparison that has a goal; papers: a table of methods without a peer")
    p.add_argument("--scaling", action="store_true", help="how time and memory grow on synthetic data")
    p.add_argument("--roofline", action="store_true", help="what sweeps cost and how many it takes, on real sets")
    p.add_argument("--write", type=Path, metavar="PAGE", help="of --suite speed, --scaling and --roofline, as Markdown")
    p.add_argument("--long", type=positive(float), default=60.0, metavar="S",
                   help="speed, read, kernel: one round of what takes longer (default %(default)g)")
    p.add_argument("--only", default="", metavar="REGEX", help="those comparisons whose name it fits")
    p.add_argument("--data", type=Path, action="append", default=[], metavar="DIR", help="may be repeated")
    caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    p.add_argument("--cache", type=Path, metavar="DIR", default=caches / "marginlinear-bench",
                   help="for decompressed and scaled sets (default %(default)s)")
    p.add_argument("--repeat", type=positive(int), default=5, metavar="N")
    p.add_argument("--time-limit", type=positive(float), default=3600.0, metavar="S", help="for one run")
    p.add_argument("--json", type=Path, metavar="FILE", help="all measurements")
    p.add_argument("--strict", action="store_true", help="exit 1 on a missed goal or a skipped comparison")
    p.add_argument("-s", "--solver", default="mcodm")
    p.add_argument("-c", "--cost", type=positive(float), default=1.0)
    p.add_argument("-e", "--tol", type=positive(float), default=1e-3, help="ours, relative certificate")
    p.add_argument("--peer-tol", type=positive(float), default=0.1, help="LIBLINEAR's -e (default 0.1)")
    p.add_argument("-B", "--bias", type=float, default=-1.0)
    p.add_argument("--mu", type=float, default=0.8)
    p.add_argument("--theta", type=float, default=0.2)
    p.add_argument("--options", default="", help="fit: more options of margin-train, in quotes")
    p.add_argument("-p", "--norm", type=positive(float), default=1.5, help="norms: P")
    p.add_argument("-g", "--gamma", type=positive(float), default=1.0, help="kernel: of the RBF kernel")
    p.add_argument("--threads", type=positive(int), help="passed on to margin-train")
    p.add_argument("--scale01", action="store_true", help="scale features to [0,1] first")
    p.add_argument("--library", action="store_true", help="train: library calls too")
    p.add_argument("--ours", type=Path, metavar="DIR",
                   help="folder of margin-train and margin-predict; default: beside --python, then PATH")
    p.add_argument("--python", default=sys.executable, help="interpreter that has marginlinear")
    p.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peers")
    p.add_argument("--liblinear-train", default="liblinear-train", metavar="PROGRAM")
    p.add_argument("--liblinear-predict", default="liblinear-predict", metavar="PROGRAM")
    p.add_argument("--peers-only", action="store_true", help="measure the peers without marginlinear")
    return p


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["_child"]:
        try:
            print(json.dumps(CHILDREN[argv[1]](*json.loads(argv[2]))))
        except BenchError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    p = parser()
    args = p.parse_args(argv)
    if bool(args.suite) + bool(args.case) + args.scaling + args.roofline != 1:
        p.error(f"give one of: a case ({', '.join(CASES)}), --suite, --scaling, --roofline")
    if args.write and args.suite != "speed" and not (args.scaling or args.roofline):
        p.error("--write is for --suite speed, --scaling and --roofline")
    if args.case not in (None, "help") and not args.sets:
        p.error(f"{args.case}: name at least one data set")
    bench = None
    try:
        bench = Bench(args)
        about = bench.about
        print(f"machine: {about['machine']}; load {about['load'][0]:.2f}\nversions: {about['versions']}\n"
              f"peers: {about['peer_versions']}, liblinear-tools {about['liblinear_tools'] or 'unknown'} at "
              f"{about['liblinear_train']}\n{args.repeat} interleaved rounds, medians\n", flush=True)
        if args.scaling:
            scaling.measure(bench)
            return 0
        if args.roofline:
            record = roofline.measure(bench)
            if args.write:
                scaling.write(args.write, {"roofline": record})
                roofline.draw(record, args.write.with_name("roofline.svg"))
            return 0
        bench.everything()
        about["load_after"] = list(os.getloadavg())
        print(render_summary(bench.comparisons, bench.skipped), end="")
        if args.json:
            report = {**about, "comparisons": [vars(c) for c in bench.comparisons], "skipped": bench.skipped}
            args.json.write_text(json.dumps(report, indent=1) + "\n")
        goals = [r for c in bench.comparisons for r in c.ratios if r["goal"] is not None]
        return int(args.strict and (bool(bench.skipped) or not all(r["met"] for r in goals)))
    except KeyboardInterrupt:
        return 130
    except (BenchError, Skip, OSError) as error:
        print(f"bench: error: {error}", file=sys.stderr)
        return 1
    finally:
        if bench:
            bench.close()


if __name__ == "__main__":
    # `timeout` ends a run with it: the processes that were started must end too, and the scratch folder goes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
