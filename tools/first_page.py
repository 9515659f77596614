#!/usr/bin/env python3
"""What the first page of the documentation says beside LinearSVC: eight sets, tuned alike, and the chosen fits' costs.

    python -m tools.first_page --data DIR --write docs/compared.json [--journal FILE]

Each method chooses its C by 3-fold cross-validation inside the training part, and is measured on the test part that the
set comes with; intervals are of 2.5 to 97.5 % of the bootstrap's resamples of its rows. CPU seconds and memory
beside the data are those of the chosen fit, on one thread of a fresh process, the medians of `--repeat` runs that take
turns.
"""

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

import marginlinear as ml
from marginlinear.compare import compare
from tools.benchlib.measure import in_child, interleave, median

SETS = ("imdb", "a9a", "ijcnn1", "webkb4", "news20bydate", "sector", "usps", "letter")
GRID = "C=0.03125,0.125,0.5,2,8,32"
METHODS = {"LinearSVC": f"LinearSVC=sklearn:sklearn.svm.LinearSVC;{GRID}", "l2svc": f"l2svc;{GRID}",
           "mcodm": f"mcodm;{GRID}"}


def loaded(folder, name):
    """(X, y, X_test, y_test) of a set and its test part."""
    X, y = ml.load_libsvm(folder / name)
    return (X, y, *ml.load_libsvm(folder / f"{name}.t", n_features=X.shape[1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="where the sets are")
    parser.add_argument("--write", type=Path, required=True, metavar="FILE", help="where the numbers go")
    parser.add_argument("--journal", type=Path, help="go on from this file, and keep trials there")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each chosen fit (default 3)")
    args = parser.parse_args()
    kept = {} if args.journal is None else {"resume" if args.journal.exists() else "journal": args.journal}
    found = compare({name: loaded(args.data, name) for name in SETS}, METHODS.values(), folds=3, scale="maxabs",
                    threads=1, progress=lambda trial, done, total: print(
                        f"{done}/{total} {trial['set']} {trial['method']}", file=sys.stderr), **kept)
    rows = []
    for name in SETS:
        trials = {method: found.of(name, method)[0] for method in METHODS}
        costs, failed = interleave(
            {method: partial(in_child, sys.executable, "chosen", method, str(args.data / name), trial["params"]["C"])
             for method, trial in trials.items()},
            args.repeat, lambda text, name=name: print(f"{name}, {text}", file=sys.stderr), long=60)
        if failed:
            raise SystemExit(f"{name}: {failed}")
        for method, trial in trials.items():
            low, high = np.quantile(trial["replicates"]["accuracy"], [0.025, 0.975])
            rows.append({"data": name, "method": method, "accuracy": trial["scores"]["accuracy"], "low": low,
                         "high": high, "C": trial["params"]["C"], "certified": trial["certified"],
                         "status": trial["status"], "seconds": median(costs[method], "cpu"),
                         "megabytes": median(costs[method], "peak") / 1e6})
    args.write.write_text(json.dumps({"measured": time.strftime("%Y-%m-%d"), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
