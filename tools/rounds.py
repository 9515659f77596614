#!/usr/bin/env python3
"""Prints what rounds over groups of rows take beside the sweeps that they replace, in sweeps and in work.

    tools/rounds.py imdb.train                           # l2svc: 2, 8 and 32 partitions, and groups that are dealt
    tools/rounds.py imdb.train -s l1svc -c 100 -e 1e-2
    tools/make_synthetic.py --shape rcv1 --rows 100000 -o rcv1like && tools/rounds.py rcv1like

Partitions keep their rows, ranges of the file, as workers of a cluster do (algorithms/partitions/places.py), here one
after the other in one process; `dealt` are the groups of --threads 4 and more, `sweeps` what one thread makes. A sweep
is a round of all partitions. `-` is a fit that --max-iter has ended; a star stands where Newton steps, which are
counted too, made the end, a plus where rows were collected, as often as there are; of partitions the messages follow.

Work is millions of numbers that are read one after another on the longest way, not seconds. One thread reads each row
that it visits twice, for its margin and for its step, all rows for each check, once more where there are averages, and
once at the end; vectors as long as W once a sweep, and VECTORS times an outer step. Threads share visits as there are
groups, checks by rows, copies of W and their sums, and two passes before the first round, but not the vectors of outer
steps.
"""

import argparse
from itertools import pairwise

import numpy as np

from marginlinear import registry, train
from marginlinear.algorithms import dual
from marginlinear.algorithms.partitions import fit as partitioned
from marginlinear.algorithms.partitions.communicator import InProcess
from marginlinear.algorithms.partitions.partition import Partition
from marginlinear.data.arrays import held
from marginlinear.fitting import resolved
from marginlinear.libsvm import load_libsvm
from marginlinear.problem import Run

PARTITIONS, THREADS = (2, 8, 32), 8
# The distance from the centre, the averages and the next centre.
VECTORS = 8


class Fit(dual.DualFit):
    """The last fit that was begun."""

    begin, last = dual.DualFit.__init__, None

    def watched(self, *given, **named):
        Fit.begin(self, *given, **named)
        Fit.last = self


class Counted(InProcess):
    """How many messages there were."""

    messages = 0

    def run(self, *message):
        self.messages += 1
        return super().run(*message)


def over_partitions(X, y, options, tol, count):
    """(rounds, messages) of one fit over so many partitions, as text."""
    method = registry.get(options.solver)
    values, run = resolved(method, {"C": options.C, "tol": tol, "max_iter": options.max_iter, "bias": options.bias})
    bias, classes = run.pop("bias"), np.unique(y)
    codes, m, k = np.searchsorted(classes, y).astype(np.int32), len(y), len(classes)
    cuts = [m * part // count for part in range(count + 1)]
    communicator = Counted([
        Partition(held(X[lo:hi]), codes[lo:hi], k, np.ones(hi - lo), np.ones(hi - lo), float(m), bias, number)
        for number, (lo, hi) in enumerate(pairwise(cuts))])
    how = None if method.joint or k == 2 else values["multiclass"]
    sizes = tuple(np.bincount(codes).tolist())
    solution = partitioned.fit(method, partitioned.Whole(X.shape[1], k, sizes, bias, count),
                               {p.name: values[p.name] for p in method.params}, Run(**{**run, "shared": False}), how,
                               communicator)
    info, signs = solution.info, {"newton": "*", "collected": "+" * solution.state["collections"]}
    end = "-" if info.status != "converged" else f"{info.n_iter}{signs.get(info.algorithm, '')}"
    return end, f"{communicator.messages}"


def row(X, y, options, tol, threads):
    """(sweeps, work) of one fit, as text; None where no rounds are made."""
    info = train(X, y, solver=options.solver, C=options.C, tol=tol, threads=threads,
                 max_iter=options.max_iter, bias=options.bias).info
    engine, sweeper = Fit.last.engine, Fit.last.descent.sweeper
    values, d = engine.rows.nnz * engine.n_classes, len(engine.iterates.W)
    outer = info.n_iter / Fit.last.descent.pace.least_sweeps if info.algorithm == "accelerated" else 0
    shares, copies = 1, 0
    if sweeper is not engine:
        groups = sweeper.groups
        shares = min(groups.count, threads)
        copies = groups.copied / shares
    elif threads > 1:
        return None
    passes = (1 if outer == 0 else 2) * len(info.history) / threads + 1 / shares
    # The direction and the counts of features take a pass.
    passes += 2 * (shares > 1) / threads
    work = ((2 * engine.visits / engine.rows.m / shares + passes) * values + copies
            + d * (info.n_iter + VECTORS * outer))
    end = "-" if info.status != "converged" else f"{info.n_iter}{'*' * (info.algorithm == 'newton')}"
    return end, f"{work / 1e6:.0f}" if info.algorithm != "newton" else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("-s", "--solver", default="l2svc")
    parser.add_argument("-c", "--C", type=float, default=1.0)
    parser.add_argument("-e", "--tol", type=float, action="append")
    parser.add_argument("-B", "--bias", type=float, default=-1.0)
    parser.add_argument("--max-iter", type=int, default=300)
    options = parser.parse_args()
    X, y = load_libsvm(options.file)[:2]
    dual.DualFit.__init__ = Fit.watched
    print(f"{'':18} {'tol':>6} {'sweeps':>7} {'work':>8}")
    for tol in options.tol or (1e-2, 1e-3):
        for name, threads in (("sweeps, 1 thread", 1), (f"dealt, {THREADS} threads", THREADS)):
            sweeps, work = row(X, y, options, tol, threads) or ("as one", "thread")
            print(f"{name:18} {tol:6g} {sweeps:>7} {work:>8}")
        for count in PARTITIONS:
            found, messages = over_partitions(X, y, options, tol, count)
            print(f"{f'{count} partitions':18} {tol:6g} {found:>7} {messages:>8}")


if __name__ == "__main__":
    main()
