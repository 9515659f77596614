"""Fits of LIBLINEAR's other solvers beside ours, of --suite speed: library calls on loaded arrays, one thread, CPU
seconds.

LIBLINEAR runs with the loosest of its tolerances whose objective is within 0.1 % of the optimum, which a fit of ours to
1e-5 knows, and with the quicker of its solvers where it has several; ours with the loosest tolerance whose objective is
at most 0.1 % above LIBLINEAR's. ww, which minimises something else than -s 4, goes to a certificate of 1e-2, and -s 4
has its default. What softmax minimises is scikit-learn's, whose lbfgs goes by the same rules.

celer and skglm, where they are installed, stand beside l1lr by these rules, too. What skglm compiles is compiled by a
fit to some of the rows beforehand, and neither's conversion to columns is timed. Neither has the squared hinge with the
sum of the weights' absolute values.
"""

import os
import shlex
from typing import NamedTuple

from .measure import Comparison, Skip

EXCESS, SURE = 0.001, 1e-5
THEIRS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
OURS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 2e-4, 1e-4)
# Packages that minimise the same as a method, and how they are called.
PACKAGES = {"l1lr": {
    "celer": "celer.LogisticRegression(C={C:g}, tol={tol:g}).fit(X, y)",
    "skglm": "skglm.SparseLogisticRegression(alpha=1/({C:g} m), tol={tol:g}, fit_intercept=False).fit(X, y)"}}
PATIENCE = 60.0  # seconds of a fit after which no smaller tolerance of LIBLINEAR's is tried


class Fit(NamedTuple):
    """A method on one set, and LIBLINEAR's numbers of it; none: the peer is scikit-learn."""

    line: str
    name: str
    method: str
    numbers: tuple
    C: float = 1.0

    @property
    def title(self):
        return f"{self.line} {self.name} {self.method} C={self.C:g}"

    @property
    def peer(self):
        return "LIBLINEAR" if self.numbers else "scikit-learn"


def processes():
    for name in ("news20bin", "imdb", "amazon-reviews"):
        for C in (1, 100):
            yield Fit("logistic-process", name, "logistic", (7,), C)
    for name in ("imdb", "news20bin", "a9a"):
        yield Fit("oneclass-process", name, "oneclass", (21,))


def fits():
    for name in ("news20bin", "imdb", "amazon-reviews"):
        for C in (1, 100):
            yield Fit("logistic-text", name, "logistic", (7,), C)
    for name in ("a9a", "ijcnn1"):
        yield Fit("logistic-tables", name, "logistic", (0,))
    for name in ("news20bydate", "sector", "mnist"):
        yield Fit("logistic-ovr", name, "logistic", (0, 7))
    for name in ("news20bin", "imdb", "farm-ads", "a9a"):
        for C in (1, 16):
            yield Fit("l1lr", name, "l1lr", (6,), C)
            yield Fit("l1l2svc" if C == 1 else "l1l2svc-16", name, "l1l2svc", (5,), C)
    for name in ("a9a", "ijcnn1", "magic"):
        yield Fit("l1svr-tables", name, "l1svr", (13,))
        yield Fit("l2svr", name, "l2svr", (11, 12))
    for name in ("imdb", "news20bin"):
        yield Fit("l1svr-text", name, "l1svr", (13,))
        yield Fit("l2svr", name, "l2svr", (11, 12))
    for name in ("imdb", "news20bin", "a9a"):
        yield Fit("oneclass", name, "oneclass", (21,))
    for name in ("news20bydate", "sector"):
        yield Fit("ww-text", name, "ww", (4,))
    for name in ("letter", "vehicle", "segment", "dna", "satimage"):
        yield Fit("ww-tables", name, "ww", (4,))
    for name in ("sector", "news20bydate"):
        for C in (1, 100):
            yield Fit("softmax", name, "softmax", (), C)


def above(objective):
    return objective + EXCESS * abs(objective)


class Sides:
    """Both sides' library calls on one set. `weights`: the file for what a fit has found."""

    def __init__(self, bench, case):
        self.bench, self.case = bench, case
        self.train = str(bench.files(case.name)[0])
        bench.need(bench.versions["marginlinear"], f"marginlinear in {bench.args.python}")
        package = "liblinear-official" if case.numbers else "scikit-learn"
        self.peer = bench.peers(package, f"pip install {package}")
        self.who = "liblinear" if case.numbers else "sklearn"
        self.weights = str(bench.scratch / "weights.npy")

    def ours(self, tol):
        return self._solver(self.bench.args.python, "ours", None, tol, os.devnull)

    def theirs(self, number, tol, weights=os.devnull, who=None):
        return self._solver(self.peer, who or self.who, number, tol, weights)

    def _solver(self, python, who, number, tol, weights):
        return self.bench.library(python, "solver", who, self.train, self.case.method, number, self.case.C, tol,
                                  weights)

    def reached(self, number, best, who=None):
        """{tol, seconds, objective} of theirs: the loosest tolerance that is near enough to the optimum, or the last
        one."""
        for tol in THEIRS:
            seconds = self.theirs(number, tol, self.weights, who)()["seconds"]
            value = self.bench.library(self.bench.args.python, "objective", self.train, self.case.method, self.case.C,
                                       self.weights)()
            if value <= above(best) or seconds > PATIENCE:
                break
        return {"tol": tol, "seconds": seconds, "objective": value}

    def tolerances(self, out):
        """(LIBLINEAR's number, its tolerance, ours, the optimum), by the rules above."""
        case = self.case
        if case.method == "ww":
            return 4, 0.1, 1e-2, None
        self.bench.progress(f"{case.title}: optimum")
        best = self.ours(SURE)()["objective"]
        found = {number: self.reached(number, best) for number in case.numbers or (None,)}
        number = min(found, key=lambda n: (found[n]["objective"] > above(best), found[n]["seconds"]))
        limit = above(max(best, found[number]["objective"]))
        if found[number]["objective"] > above(best):
            excess = abs(found[number]["objective"] / best - 1)
            out.notes.append(f"{case.title}: {case.peer} ended {excess:.2g} above the optimum.")
        tol = next((e for e in OURS if self.ours(e)()["objective"] <= limit), SURE)
        return number, found[number]["tol"], tol, best


# -s 21 is in no program of Debian's, and PyPI's package has none: its users write such a script.
SCRIPT = ("import sys; from liblinear.liblinearutil import problem, save_model, svm_read_problem, train; "
          "y, X = svm_read_problem(sys.argv[1], return_scipy=True); "
          "save_model(sys.argv[2], train(problem(y, X), sys.argv[3]))")


def process(bench, case, goal):
    """Whole processes, from file to model, at the tolerances of the fits."""
    sides, out = Sides(bench, case), Comparison(case.title)
    number, theirs_tol, tol, _ = sides.tolerances(out)
    bench.need(bench.train and bench.peer_train, "margin-train and liblinear-train")
    models = [str(bench.scratch / f"{name}.model") for name in ("theirs", "ours")]
    cost = ["-c", f"{case.C:g}"] if number != 21 else []
    options = ["-s", str(number), "-e", f"{theirs_tol:g}", *cost, "-q"]
    theirs = [bench.peer_train, *options, sides.train, models[0]]
    if number == 21:
        theirs = [sides.peer, "-c", SCRIPT, sides.train, models[0], " ".join(options)]
    ours = [bench.train, "-q", "-s", case.method, "-e", f"{tol:g}", *cost, "--threads", "1", sides.train, models[1]]
    commands = {case.peer: theirs, "marginlinear": ours}
    results, failed = bench.rounds(out.title, {name: bench.whole(command) for name, command in commands.items()},
                                   long=bench.args.long)
    if failed:
        raise Skip("; ".join(failed.values()))
    for label, got in results.items():
        out.add(label, shlex.join(commands[label]), got)
    place = {"line": case.line, "data": case.name, "method": case.method, "C": case.C, "threads": 1}
    out.ratio(f"time, marginlinear / {case.peer}", results["marginlinear"], results[case.peer], "at most", goal,
              "seconds", place)
    bench.finish(out)


def fit(bench, case, goal):
    sides, out = Sides(bench, case), Comparison(case.title)
    number, theirs_tol, tol, best = sides.tolerances(out)
    contestants = {case.peer: sides.theirs(number, theirs_tol), "marginlinear": sides.ours(tol)}
    commands = {case.peer: f"train(problem, '-s {number} -c {case.C:g} -e {theirs_tol:g}')" if case.numbers else
                f"LogisticRegression(C={case.C:g}, tol={theirs_tol:g}, fit_intercept=False).fit(X, y)",
                "marginlinear": f"marginlinear.train(X, y, solver={case.method!r}, C={case.C:g}, tol={tol:g})"}
    packages = PACKAGES.get(case.method, {})
    for name, command in packages.items():
        bench.progress(f"{case.title}: {name}")
        try:
            bench.peers(name, f"pip install {name}")
            reached = sides.reached(None, best, name)
        except Skip as error:
            bench.skip(f"{case.title}, {name}", str(error))
            continue
        if reached["objective"] > above(best):
            excess = abs(reached["objective"] / best - 1)
            out.notes.append(f"{case.title}: {name} ended {excess:.2g} above the optimum.")
        contestants[name] = sides.theirs(None, reached["tol"], who=name)
        commands[name] = command.format(C=case.C, tol=reached["tol"])
    results, failed = bench.rounds(out.title, contestants, long=bench.args.long)
    for name in failed.keys() & packages.keys():
        bench.skip(f"{case.title}, {name}", failed.pop(name))
    if failed:
        raise Skip("; ".join(failed.values()))
    for label, got in results.items():
        out.add(label, f"{commands[label]}  # {case.name}", got, certificate=got[-1].get("certificate"))
    place = {"line": case.line, "data": case.name, "method": case.method, "C": case.C, "threads": 1}
    both = results["marginlinear"], results[case.peer]
    out.ratio(f"CPU time, marginlinear / {case.peer}", *both, "at most", goal, "cpu", place)
    out.ratio(f"memory, marginlinear / {case.peer}", *both, key="peak")
    for name in packages:
        if name in results:
            out.ratio(f"CPU time, marginlinear / {name}", results["marginlinear"], results[name], key="cpu",
                      place={**place, "line": "packages", "method": f"{case.method}, to {name}"})
    bench.finish(out)
