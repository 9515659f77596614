"""--suite speed: the lines of goals against LIBLINEAR, each with its data sets, for 1 and for 2 threads."""

import os
import re
import shlex
from typing import NamedTuple

from . import solvers
from .children import PEERS, TOLERANCES
from .measure import Comparison, Skip, checked, in_child, median, survey
from .text import accuracy, grep

EXCESS = 0.001  # by how much our objective may be above LIBLINEAR's
PEER_TOL = 0.1  # LIBLINEAR's default
THREADS = (1, 2)


class Line(NamedTuple):
    title: str
    goals: tuple = (None, None)  # ratios to LIBLINEAR, for each of THREADS
    bound: str = ""  # what bounds a row whose goal is missed


START = "The interpreter, NumPy (0.08 s) and the package take 0.13 s before the first byte is read"
PRIMAL = ("LIBLINEAR's Newton method is done with a table in 0.01 to 0.03 s. After steps on an eighth of the rows ours "
          "takes one or two on all, each X'D X and two products X w, and the certificate is two more.")
SPARSE = ("The certificate comes after the objective: while one feature is outside its bound by half, all duals are "
          "scaled down by it, so that a fit goes on when its objective is already as good. On imdb at C = 16 l1lr "
          "takes 61 cycles over the 2.4 million values of 5,900 weights, LIBLINEAR 37. On a9a at C = 16 five Newton "
          "steps on all rows remain after those on an eighth of them, and most of a step is the solving of systems of "
          "collinear columns. Averages and extrapolations of the last duals, those of a step's model, and curvatures "
          "of margins nearer to 0 were tried, and are no better.")
LINES = {
    "read": Line(
        "Reading LIBSVM text", (0.07, 0.04), (
            "The parser takes 110 instructions a value, 7 a character (imdb, by callgrind), at 0.7 to 1 GB a second.")),
    "memory": Line(
        "Peak memory of the training process", (0.6, 0.6), (
            "Above 65,536 features a float64 value and its index are 12 of LIBLINEAR's 16 bytes, float32 ones "
            "8, below 10 and 6; beside them stand the interpreter and NumPy (28 MB) and the weights. With "
            "16-bit indices for most values 10 bytes would remain.")),
    "memory-equal": Line(
        "Peak memory of the training process, the values of a row all equal", (0.35, 0.35), (
            "4 bytes a value and 24 a row. With 5 values a feature (news20bin) or 1.5 (kdd-shape) weights, in "
            "the file's order of features and in that of the sweeps, are most of the rest, and of "
            "LIBLINEAR's.")),
    "memory32": Line("Peak memory of the training process, --float32", (0.45, None)),
    "binary": Line("Binary text above 100 MB: l1svc, l2svc, ldm", (0.35, 0.25)),
    "ovr": Line("Text, one against the rest: l2svc", (0.5, 0.28)),
    "joint": Line("Text, all classes together: mcodm, cs", (0.6, 0.5)),
    "classes": Line(
        "Text of many small classes: mcodm", (0.4, 0.4), (
            f"{START}, which is a third of it.")),
    "minima": Line(
        "mcodm at large C", (0.5, 0.5), (
            "Sweeps to a certificate of 1e-2 after alternating directions that look for a lower critical "
            "point (0.8 to 1.3 s of it): where the blocks of many rows are nearly parallel they are many, and "
            "Newton steps on 2,304 weights are no sooner. See [mcodm](methods/mcodm.md#critical-points).")),
    "tables": Line(
        "Tables: mcodm, l1svc, l2svc", (0.3, 0.2), (
            f"{START}; LIBLINEAR is done with the smaller files in 0.12 to 0.4 s. Fits are a third of ours "
            "there, or less.")),
    "images": Line(
        "Digits: mcodm, cs", (0.4, 0.4), (
            "mcodm on usps: alternating directions look for a lower critical point, two thirds of a fit at C "
            "= 1, all of it at C = 16; see [mcodm](methods/mcodm.md#critical-points). At C = 1/16 a process "
            f"of LIBLINEAR's is done in 0.24 s. {START}.")),
    "hard": Line(
        "C = 100 to certificate 1e-3: l1svc, l2svc, ldm", (0.3, 0.3), (
            f"{START}, which is more than LIBLINEAR's whole run on german-numer. farm-ads: as text below.")),
    "hard-text": Line(
        "Text at C = 100 to certificate 1e-3: l1svc, ldm", (0.35, 0.35), (
            "As many sweeps as LIBLINEAR takes iterations to the same objective (imdb to 1e-2: 84 and 62), at "
            "1.4 products X w each: see [the limit](cost.md#how-far-to-the-limit). LIBLINEAR ends at its cap "
            "on farm-ads, at four times the objective.")),
    "predict": Line(
        "Predicting", (0.25, 0.15), (
            f"{START}, of 0.2 to 0.4 s; reading is most of the rest.")),
    "model": Line("Loading and writing a model of 5.8 million weights", (0.25, 0.25)),
    "logistic-text": Line(
        "Logistic regression, text, to -s 7", (0.4, None), (
            "At C = 1 LIBLINEAR is done after a few passes: what is left are the checked copy of the indices, first "
            "touches of memory, and two passes for the certificate.")),
    "logistic-process": Line(
        "Logistic regression, text, whole processes, to -s 7", (0.2, None), (
            f"{START}; reading is the larger part of the rest.")),
    "logistic-tables": Line("Logistic regression, tables, to -s 0", (0.4, None), PRIMAL),
    "logistic-ovr": Line(
        "Logistic regression, one against the rest, to the quicker of -s 0 and -s 7", (0.35, None), (
            "The values of mnist go to 255, as if C were 65,025 on values to 1 (at C = 1 on these ours takes 1.2 s, "
            "-s 0 10 to 21 s): 13 to 14 Newton steps a class on all rows, each X'DX of 780 features, 6 of which come "
            "when the objective is good and the bound is not. A start on an eighth of the rows and conjugate gradients "
            "preconditioned by the curvature of sampled rows, took more steps, 20 and 70.")),
    "l1lr": Line("Sparse weights: l1lr, to -s 6", (0.6, None), SPARSE),
    "packages": Line("Sparse weights: l1lr, to celer and to skglm"),
    "l1l2svc": Line("Sparse weights: l1l2svc, to -s 5", (0.5, None), SPARSE),
    "l1l2svc-16": Line("Sparse weights: l1l2svc at C = 16, to -s 5", (0.3, None), SPARSE),
    "l1svr-tables": Line("Regression: l1svr, tables, to -s 13", (0.2, None)),
    "l1svr-text": Line(
        "Regression: l1svr, text, to -s 13", (0.4, None), (
            "Nearly every residual costs something, or is at the border: no row is left out of a sweep, and there "
            "are 16 to 22 of them.")),
    "l2svr": Line("Regression: l2svr, to the quicker of -s 11 and -s 12", (0.5, None), PRIMAL),
    "oneclass": Line(
        "oneclass, to -s 21", (0.6, None), (
            "On a9a -s 21 takes less than 10 ms. Ours looks over the arrays, begins with a pass over a sample and one "
            "over all rows, and certifies with one more before and after the pairs.")),
    "oneclass-process": Line(
        "oneclass, whole processes, to -s 21 of LIBLINEAR's Python package, its programs having none", (0.2, None), (
            f"{START}.")),
    "ww-text": Line(
        "ww, text, to -s 4", (0.8, None), (
            "A row of sector has 104 rivals, of which 8 to 16 have a dual; a sweep's step changes 12 to 22, and "
            "scores of all and updates of these take two fifths of its instructions each. On sector a sweep reads 0.9 "
            "GB of weights, which are 46 MB, for the scores: 15 of its 26 ms; there are 27.")),
    "ww-tables": Line("ww, tables, to -s 4", (1.2, None)),
    "softmax": Line("softmax, text, to scikit-learn's lbfgs", (0.5, None)),
    "library": Line("Library calls"),
    "kernel": Line("RBF kernel"),
    "more": Line("More sets"),
}


class Training(NamedTuple):
    """Methods that share one LIBLINEAR solver, on one set."""

    line: str
    name: str
    methods: tuple
    C: float = 1.0
    scaled: bool = False
    memory: str = ""  # the line that peak memory is on

    def tolerance(self, method):
        """The tolerance that is asked for; None: the loosest that reaches LIBLINEAR's objective."""
        # For ldm LIBLINEAR solves the hinge problem: being as good as that is not enough.
        return 1e-3 if self.line.startswith("hard") or method == "ldm" else 1e-2 if method == "mcodm" else None


def trainings():
    hinge, joint = ("l1svc", "ldm"), ("mcodm", "cs")
    for name in ("news20bin", "rcv1-shape", "kdd-shape"):
        yield Training("binary", name, hinge)
        yield Training("binary", name, ("l2svc",), memory="memory" if name == "rcv1-shape" else "memory-equal")
    yield Training("more", "wide-shape", ("l2svc",), memory="memory")
    for name in ("news20bydate", "sector"):
        yield Training("ovr", name, ("l2svc",))
        yield Training("joint", name, joint)
    yield Training("classes", "news52-shape", ("mcodm",))
    for name, C in (("usps", 64), ("usps", 128), ("words-shape", 100)):
        yield Training("minima", name, ("mcodm",), C)
    for name in ("letter", "satimage", "connect-4"):
        for C in (1, 16, 64):
            yield Training("tables", name, ("mcodm",), C, scaled=True)
    for name in ("a9a", "ijcnn1", "connect-4"):
        for method in ("l1svc", "l2svc"):
            yield Training("tables", name, (method,), scaled=name == "connect-4")
    for name in ("usps", "mnist"):
        for C in (2**-4, 1, 16):
            yield Training("images", name, joint, C, scaled=True)
    for name in ("farm-ads", "a9a", "magic", "german-numer"):
        yield Training("hard", name, hinge, 100)
        yield Training("hard", name, ("l2svc",), 100)
    for name in ("imdb", "news20bin", "farm-ads"):
        yield Training("hard-text", name, hinge, 100)
    yield Training("more", "news20", ("l2svc",))
    yield Training("more", "news20", joint)
    for name in ("imdb", "amazon-reviews", "farm-ads"):
        yield Training("more", name, hinge)
        yield Training("more", name, ("l2svc",))


def cases(bench):
    """[(name, call)] of all comparisons."""
    found = [(f"read {name}", lambda name=name: reading(bench, name)) for name in ("imdb", "news20bin", "rcv1-shape")]
    for training in trainings():
        what = f"{training.line} {training.name} {','.join(training.methods)} C={training.C:g}"
        found.append((what, lambda training=training: train(bench, training)))
    for name, method in (("imdb", "l2svc"), ("news20bydate", "mcodm"), ("rcv1-shape", "l2svc")):
        found.append((f"predict {name} {method}", lambda name=name, method=method: predict(bench, name, method)))
    found.append(("model sector", lambda: model_file(bench, "sector")))
    for name, method in (("news20bydate", "l2svc"), ("news20bydate", "cs"), ("imdb", "l1svc"), ("a9a", "l2svc")):
        found.append((f"library {name} {method}", lambda name=name, method=method: library(bench, name, method)))
    for case in solvers.fits():
        found.append((case.title, lambda case=case: solvers.fit(bench, case, LINES[case.line].goals[0])))
    for case in solvers.processes():
        found.append((case.title, lambda case=case: solvers.process(bench, case, LINES[case.line].goals[0])))
    for name, C, gamma in (("ijcnn1", 16, 1), ("letter", 16, 0.1)):
        place = {"line": "kernel", "data": name, "method": "l1svc, to LIBSVM", "C": C, "threads": 2}
        found.append((f"kernel {name} l1svc", lambda name=name, C=C, gamma=gamma, place=place: bench.kernel_case(
            name, "l1svc", C, gamma, 1e-3, place=place)))
    return found


def ratios(out, results, line, data, peer, contestants, method="", C=None, key="seconds", absent=None):
    """A ratio for each of THREADS: contestants are the names of ours, one a thread count or None."""
    for threads, goal, mine in zip(THREADS, LINES[line].goals, contestants, strict=True):
        if mine is None:
            continue
        place = {"line": line, "data": data, "method": method, "C": C, "threads": threads}
        what = "time" if key == "seconds" else "peak memory"
        label = f"{what}, {mine} / {peer}"
        missing = [name for name in (mine, peer) if name not in results]
        if missing:
            out.missing(label, "at most", goal, "; ".join(absent[name] for name in missing), place)
        else:
            out.ratio(label, results[mine], results[peer], "at most", goal, key, place)


def per_thread(method):
    return [f"{method}, {threads} thread{'s' * (threads > 1)}" for threads in THREADS]


def reading(bench, name):
    # The goals are those against the C program; the packages of Python take a minute for the largest file.
    python = name != "rcv1-shape"
    out, results, absent = bench.readers(name, python)
    for peer in ("LIBLINEAR, C program", *(("LIBLINEAR, Python", "scikit-learn") if python else ())):
        line = "read" if peer == "LIBLINEAR, C program" else "library"
        method = "" if line == "read" else f"reading, to {peer}"
        ratios(out, results, line, name, peer, per_thread("marginlinear"), method, absent=absent)
    bench.finish(out)


def train(bench, training):
    _, name, methods, C, scaled, memory = training
    train, _ = bench.files(name, scaled)
    survey(train)
    bench.need(bench.train and bench.peer_train, "margin-train and liblinear-train")
    peer_model = bench.scratch / "LIBLINEAR.model"
    peer = bench.peer_train_command(methods[0], C, PEER_TOL, train, peer_model)
    out = Comparison(f"{name}{' scaled to [0,1]' if scaled else ''}, C = {C:g}: {', '.join(methods)}")
    bench.progress(f"{out.title}: {shlex.join(peer)}")
    first = checked(peer, bench.limit)
    found = loosest(bench, training, train, peer_model)
    contestants, commands, earlier = {"LIBLINEAR": bench.whole(peer)}, {"LIBLINEAR": peer}, {"LIBLINEAR": first}
    told = {"LIBLINEAR": {"objective": None, "iterations": iterations(first["stdout"])}}

    def enter(label, method, threads, *more):
        tol, run, reached = found[method]
        model = bench.scratch / f"{method}.model"
        command = bench.our_train_command(method, C, tol, train, model, threads)
        commands[label] = [*command[:-2], *more, *command[-2:]]
        contestants[label] = bench.whole(commands[label])
        earlier[label] = run
        ours, theirs = (one[PEERS[method][1]] for one in reached)
        told[label] = {"tolerance": tol, "iterations": iterations(run["stdout"]), "objective": ours,
                       "certificate": grep(run["stdout"], "certificate")} if not more else {}
        if method != "mcodm" and not more:
            # What mcodm minimises is not LIBLINEAR's objective.
            told[label]["above"] = ours / theirs

    for method in methods:
        for label, threads in zip(per_thread(method), THREADS, strict=True):
            enter(label, method, threads)
        _, run, (ours, _) = found[method]
        said, here = grep(run["stdout"], "Objective value"), ours[method]
        if abs(said - here) > 1e-5 * max(1, abs(here)):
            out.notes.append(f"WARNING: {method}: margin-train says objective {said:.9g}, NumPy {here:.9g}")
        if "(converged" not in run["stdout"]:
            out.notes.append(f"WARNING: {method} did not converge")
        if method != "mcodm" and told[label]["above"] > 1 + EXCESS:
            out.notes.append(f"WARNING: {method}'s objective is {told[label]['above'] - 1:.3%} above LIBLINEAR's")
    single = f"{methods[0]}, 1 thread, --float32"
    if memory:
        enter(single, methods[0], 1, "--float32")
        earlier.pop(single)
    results, failed = bench.rounds(out.title, contestants, long=bench.args.long, earlier=earlier)
    for label, why in failed.items():
        bench.skip(f"{out.title}, {label}", why)
    for label, got in results.items():
        if label in earlier and grep(got[-1]["stdout"], "Objective value") != grep(earlier[label]["stdout"],
                                                                                  "Objective value"):
            out.notes.append(f"WARNING: {label}: not every run ends at the same objective")
        out.add(label, shlex.join(commands[label]), got, **told[label])
    if "reaching max number of iterations" in first["stdout"] + first["stderr"]:
        out.notes.append("LIBLINEAR stopped at its cap on the iterations.")
    for method in methods:
        ratios(out, results, training.line, name, "LIBLINEAR", per_thread(method), method, C, absent=failed)
    if memory:
        ratios(out, results, memory, name, "LIBLINEAR", per_thread(methods[0]), methods[0], C, "peak", failed)
        ratios(out, results, "memory32", name, "LIBLINEAR", (single, None), methods[0], C, "peak", failed)
    bench.finish(out)


def iterations(printed):
    """The largest of all problems'."""
    found = re.findall(r"#iter = (\d+)", printed)
    return max(map(int, found)) if found else None


def loosest(bench, training, train, peer_model):
    """{method: (tolerance, its run, [what our model reached, what LIBLINEAR's did])}, untimed.

    Reading the data to evaluate models is the slow part: all methods are evaluated at once, and what is run
    again after that is judged by the objective that it prints, and evaluated at the end.
    """
    methods, C, models, found = training.methods, training.C, {}, {}
    tolerances = {method: [training.tolerance(method)] for method in methods}
    for method in methods:
        if tolerances[method] == [None]:
            tolerances[method] = list(TOLERANCES)
        models[method] = bench.scratch / f"{method}.loosest"

    def attempt(method):
        tol = tolerances[method].pop(0)
        command = bench.our_train_command(method, C, tol, train, models[method], max(THREADS))
        bench.progress(shlex.join(command))
        found[method] = [tol, checked(command, bench.limit)]

    for method in methods:
        attempt(method)
    bench.progress(f"objectives on {train}")
    peer, *reached = bench.all_reached([peer_model, *models.values()], train, None, C)
    again = []
    for method, ours in zip(methods, reached, strict=True):
        found[method].append([ours, peer])
        objective, target = ours[PEERS[method][1]], peer[PEERS[method][1]] * (1 + EXCESS)
        while objective > target and tolerances[method]:
            again = [*again, method] if method not in again else again
            attempt(method)
            objective = grep(found[method][1]["stdout"], "Objective value")
    if again:
        reached = bench.all_reached([models[method] for method in again], train, None, C)
        for method, ours in zip(again, reached, strict=True):
            found[method].append([ours, peer])
    return found


def predict(bench, name, method):
    train, test = bench.files(name)
    test = test or train
    bench.need(bench.predict and bench.peer_predict, "margin-predict and liblinear-predict")
    model = bench.scratch / "shared.model"
    made = bench.our_train_command(method, 1, 0.1 if method == "l2svc" else 0.01, train, model)
    bench.progress(shlex.join(made))
    checked(made, bench.limit)
    survey(test)
    sizes = [path.stat().st_size / 1e6 for path in (test, model)]
    out = Comparison(f"predict {test.name}: {sizes[0]:.1f} MB, model {sizes[1]:.1f} MB")
    out.notes.append(f"The model: {shlex.join(made)}")
    outputs = {label: bench.scratch / f"{label}.out" for label in ("LIBLINEAR", *per_thread("marginlinear"))}
    commands = {"LIBLINEAR": [bench.peer_predict, str(test), str(model), str(outputs["LIBLINEAR"])]}
    for label, threads in zip(per_thread("marginlinear"), THREADS, strict=True):
        commands[label] = [bench.predict, "--threads", str(threads), str(test), str(model), str(outputs[label])]
    results, failed = bench.rounds(out.title, {label: bench.whole(command) for label, command in commands.items()},
                                   long=bench.args.long)
    for label, why in failed.items():
        bench.skip(f"{out.title}, {label}", why)
    for label, got in results.items():
        out.add(label, shlex.join(commands[label]), got, accuracy=accuracy(got[-1]["stdout"] + got[-1]["stderr"]))
    ratios(out, results, "predict", name, "LIBLINEAR", per_thread("marginlinear"), method, absent=failed)
    labels = [outputs[label].read_text().splitlines() for label in results]
    different = [sum(a != b for a, b in zip(labels[0], other, strict=True)) for other in labels[1:]]
    if any(different):
        out.notes.append(f"WARNING: {max(different)} of {len(labels[0])} predicted labels differ.")
    bench.finish(out)


def model_file(bench, name):
    """Of two library calls, loading and saving; ours has no threads here, so that both goals see one number."""
    train, _ = bench.files(name)
    bench.need(bench.versions["marginlinear"], f"marginlinear in {bench.args.python}")
    python = bench.peers("liblinear-official", "pip install liblinear-official")
    model, made = bench.some_model(train, 1)
    out = Comparison(f"load and save a model of {name}: {model.stat().st_size / 1e6:.1f} MB")
    out.notes.append(f"The model: {made}")
    sides = {"LIBLINEAR": (python, "liblinear"), "marginlinear": (bench.args.python, "ours")}
    targets = {label: bench.scratch / f"{label}.written" for label in sides}
    results, failed = bench.rounds(out.title, {
        label: bench.library(interpreter, "model_file", who, str(model), str(targets[label]))
        for label, (interpreter, who) in sides.items()}, long=bench.args.long)
    for label, why in failed.items():
        bench.skip(f"{out.title}, {label}", why)
    for label, got in results.items():
        package = "marginlinear" if label == "marginlinear" else "liblinear.liblinearutil"
        out.add(label, f"{package}: load_model and save_model", got, bytes=targets[label].stat().st_size,
                **{key: median(got, key) for key in ("load", "save")})
    ratios(out, results, "model", name, "LIBLINEAR", ("marginlinear", "marginlinear"), absent=failed)
    if not failed and not in_child(bench.args.python, "same_weights", *map(str, targets.values())):
        out.notes.append("WARNING: the weights in the two files differ.")
    bench.finish(out)


def library(bench, name, method):
    """Training on data that are loaded: ours at the loosest tolerance that is as good as LIBLINEAR's program."""
    train, _ = bench.files(name)
    bench.need(bench.versions["marginlinear"], f"marginlinear in {bench.args.python}")
    peer_model = bench.scratch / "LIBLINEAR.model"
    checked(bench.peer_train_command(method, 1, PEER_TOL, train, peer_model), bench.limit)
    tol = loosest(bench, Training("library", name, (method,)), train, peer_model)[method][0]
    out = Comparison(f"library calls, {name} {method}, C = 1")
    contestants, commands, absent = {}, {}, {}
    for label, package, who, command in (
            ("liblinear-official", "liblinear-official", "liblinear", f"train(problem, '-s {PEERS[method][0]} -q')"),
            ("scikit-learn", "scikit-learn", "sklearn",
             f"LinearSVC(tol={PEER_TOL:g}, dual=True, fit_intercept=False, ...).fit(X, y)")):
        try:
            contestants[label] = bench.library(bench.peers(package, f"pip install {package}"), "train", who,
                                               str(train), os.devnull, method, 1, PEER_TOL, -1)
            commands[label] = command
        except Skip as error:
            absent[label] = str(error)
    for label, threads in zip(per_thread("marginlinear"), THREADS, strict=True):
        contestants[label] = bench.library(bench.args.python, "train", "ours", str(train),
                                           str(bench.scratch / "library.model"), method, 1, tol, -1, threads)
        commands[label] = f"marginlinear.train(X, y, solver={method!r}, tol={tol:g}, threads={threads})"
    results, failed = bench.rounds(out.title, contestants, long=bench.args.long)
    absent |= failed
    for label, why in absent.items():
        bench.skip(f"{out.title}, {label}", why)
    for label, got in results.items():
        out.add(label, f"{commands[label]}  # {name}", got, certificate=got[-1].get("certificate"))
    for peer in ("liblinear-official", "scikit-learn"):
        ratios(out, results, "library", name, peer, per_thread("marginlinear"), f"{method}, to {peer}", 1,
               absent=absent)
    bench.finish(out)
