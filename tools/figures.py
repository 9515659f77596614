#!/usr/bin/env python3
"""Pictures of a comparison, from the .json that margin-compare wrote.

    tools/figures.py classes RESULT.json OUT.svg     accuracy, and with --margins the margins of test rows, against the
                                                     number of classes, of sets whose names end in -2, -3, ...
    tools/figures.py seconds RESULT.json OUT.svg     seconds of a fit on all of a training part, by set and method

of parts of the study, from the .csv.xz that tools/study.py wrote,

    tools/figures.py ranks PART.csv.xz ... OUT.svg   mean ranks and critical differences, a row of diagrams
                                                     for each part: those of --metric that it has

or from a data file in LIBSVM's format,

    tools/figures.py curves DATA OUT.svg             accuracy of 5-fold cross-validation along lambda1, lambda2 and C of
                                                     ldm, p of lpmcsvm, p and lambda of m3svm; the other parameters are
                                                     the best of the paper's grid, features go to [0, 1]

Other pictures are margin-plot's: `compared` draws cumulative margins, `ranks` the critical difference, and `search`
accuracy along one parameter, from a table of margin-train -C --grid.
"""

import argparse
import csv
import lzma
import math
import sys
from pathlib import Path

import numpy as np

from marginlinear import load_libsvm, registry, search
from marginlinear.compare import Comparison
from marginlinear.compare.measures import ERRORS, TITLES
from marginlinear.compare.statistics import friedman, to_digits
from marginlinear.plotting import CriticalDifferenceDisplay, style
from marginlinear.selection.grid import check_grid

# Quantiles that the curves of margins are of, as parts of the test rows.
LOW, MIDDLE = 0.1, 0.5
# What the papers draw accuracy along.
CURVES = {"ldm": ("lambda1", "lambda2", "C"), "lpmcsvm": ("norm",), "m3svm": ("norm", "lambda_")}


def classes(found, pyplot):
    """A figure of accuracy and margins against the number of classes."""
    counts = {name: name.rpartition("-")[2] for name in found.sets}
    wrong = next((name for name, count in counts.items() if not count.isdecimal()), None)
    if wrong is not None:
        raise ValueError(f"the set {wrong} does not end in its number of classes, as segment-3 does")
    names = sorted(counts, key=lambda name: int(counts[name]))
    x = [int(counts[name]) for name in names]
    with_margins = any(trial.get("margins") for trial in found.trials)
    figure, axes = pyplot.subplots(1, 1 + with_margins, figsize=(5.0 * (1 + with_margins), 3.8), squeeze=False)
    metric = found.metrics[0]
    for method in found.methods:
        values = [list(found.scores(metric, name, method).values()) for name in names]
        line, = axes[0, 0].plot(x, [np.mean(one) if one else np.nan for one in values], marker="o", markersize=4,
                                label=method)
        kept = [[trial["margins"] for trial in found.of(name, method) if trial.get("margins")] for name in names]
        if all(kept):
            # Those that vote have none.
            for part, dash in ((MIDDLE, "-"), (LOW, "--")):
                y = [np.mean([np.interp(part, np.linspace(0, 1, len(one)), one) for one in some]) for some in kept]
                axes[0, 1].plot(x, y, marker="o", markersize=4, color=line.get_color(), linestyle=dash,
                                label=f"{method}, {part:.0%} of the rows below")
    axes[0, 0].set(xlabel="classes", ylabel=metric)
    axes[0, 0].legend(fontsize="small")
    if with_margins:
        axes[0, 1].axhline(0, color="0.45", linewidth=0.8)
        axes[0, 1].set(xlabel="classes", ylabel="margin / norm of the weights")
        axes[0, 1].legend(fontsize="x-small")
    return figure


def seconds(found, pyplot):
    """A figure of the median seconds of a fit."""
    figure, axes = pyplot.subplots(figsize=(1.5 + 0.6 * len(found.sets), 3.8))
    x = np.arange(len(found.sets))
    for method in found.methods:
        y = [np.median([trial["seconds"]["fit"] for trial in found.of(name, method) if trial["reason"] is None] or
                       [np.nan]) for name in found.sets]
        axes.plot(x, y, marker="o", markersize=5, linestyle="none", label=method)
    axes.set(yscale="log", ylabel="seconds of a fit, median")
    axes.set_xticks(x, list(found.sets), rotation=45, ha="right")
    axes.legend(fontsize="small")
    return figure


def ranks(paths, metrics, pyplot):
    """A figure of critical differences: parts below each other, metrics side by side."""
    figure, axes = pyplot.subplots(len(paths), len(metrics), figsize=(6.4 * len(metrics), 3.2 * len(paths)),
                                   squeeze=False, layout="constrained")
    for path, row in zip(paths, axes, strict=True):
        with lzma.open(path, "rt", encoding="utf-8", newline="") as stream:
            trials = list(csv.DictReader(stream))
        for metric, ax in zip(metrics, row, strict=True):
            if metric not in trials[0]:
                ax.set_axis_off()
                continue
            methods, means = means_of(trials, metric)
            found = friedman((-1 if metric in ERRORS else 1) * means)
            part = Path(path).name.partition(".")[0]
            title = f"{part}: {TITLES[metric]}, {found.sets} sets, Friedman p = {found.p:.2g}"
            CriticalDifferenceDisplay(methods, found.ranks, found.critical, title=title).plot(ax)
    return figure


def means_of(trials, metric):
    """(methods, their means on each set that all have): over the splits on which all of them count."""
    methods, scores = list(dict.fromkeys(trial["method"] for trial in trials)), {}
    for trial in trials:
        if trial["certified"] == "True" and trial[metric]:
            splits = scores.setdefault(trial["set"], {})
            splits.setdefault(trial["split"], {})[trial["method"]] = float(trial[metric])
    shared = [[list(map(of.get, methods)) for of in splits.values() if len(of) == len(methods)]
              for splits in scores.values()]
    # Exact sums to so many digits, as those of a Comparison: means that are the same tie.
    return methods, np.array([[to_digits(math.fsum(column) / len(some)) for column in zip(*some, strict=True)]
                              for some in shared if some])


def curves(path, pyplot, grids=None):
    """A figure of accuracy along each parameter of the papers' grids; `grids`: method -> a grid in place of these."""
    X, y = load_libsvm(path)
    panels = [(method, name) for method, names in CURVES.items() for name in names]
    figure, axes = pyplot.subplots(2, (len(panels) + 1) // 2, figsize=(10, 6), sharey=True, squeeze=False)
    found = {}
    for ax, (method, name) in zip(axes.flat, panels, strict=True):
        if method not in found:
            grid = check_grid((grids or {}).get(method, "paper"), registry.get(method))
            found[method] = search(X, y, solver=method, grid=grid, scale="range", refit=False)
        best = found[method].best_params
        along = [entry for entry in found[method].table
                 if all(entry[other] == value for other, value in best.items() if other != name)]
        ax.plot([entry[name] for entry in along], [entry["score"] for entry in along], marker="o", markersize=4)
        others = ", ".join(f"{word(other)} = {value:.4g}" for other, value in best.items() if other != name)
        ax.set_title(f"{method}, {others}", fontsize="small")
        ax.set(xlabel=word(name), xscale="linear" if name == "norm" else "log")
    for row in axes:
        row[0].set_ylabel("accuracy, 5 folds")
    return figure


def word(name):
    """A parameter as the papers call it."""
    return "p" if name == "norm" else name.rstrip("_")


def main(argv=None):
    p = argparse.ArgumentParser(prog="figures.py", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=("classes", "seconds", "ranks", "curves"))
    p.add_argument("results", nargs="+", metavar="RESULT.json, PART.csv.xz or DATA")
    p.add_argument("out")
    p.add_argument("--metric", default="accuracy", help="of ranks: metrics, with commas between (default: accuracy)")
    args = p.parse_args(argv)
    if args.kind != "ranks" and len(args.results) > 1:
        p.error(f"{args.kind} draws one result")
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    try:
        with style():
            if args.kind == "ranks":
                figure = ranks(args.results, args.metric.split(","), pyplot)
            elif args.kind == "curves":
                figure = curves(args.results[0], pyplot)
            else:
                draw = {"classes": classes, "seconds": seconds}[args.kind]
                figure = draw(Comparison.from_json(args.results[0]), pyplot)
            figure.savefig(args.out, metadata={"Date": None} if args.out.endswith(".svg") else None)
    except (OSError, ValueError) as error:
        print(f"figures: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
