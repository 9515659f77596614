#!/usr/bin/env python3
"""Prints what rounds over groups of rows take beside the sweeps that they replace, in sweeps and in work.

    tools/rounds.py imdb.train                           # l2svc: 2, 8 and 32 partitions, and groups that are dealt
    tools/rounds.py imdb.train -s l1svc -c 100 -e 1e-2
    tools/make_synthetic.py --shape rcv1 --rows 100000 -o rcv1like && tools/rounds.py rcv1like

Partitions keep their rows, ranges of the file, as workers of a cluster would; `dealt` are the groups of --threads 4 and
more, `sweeps` what one thread makes. A sweep is a round of all partitions. `-` is a fit that --max-iter has ended; a
star stands where Newton steps, which are counted too, made the end.

Work is millions of numbers that are read one after another on the longest way, not seconds. One thread reads each row
that it visits twice, for its margin and for its step, all rows for each check, once more where there are averages, and
once at the end; vectors as long as W once a sweep, and VECTORS times an outer step. Threads share visits as there are
groups, checks by rows, copies of W and their sums, and two passes before the first round, but not the vectors of outer
steps.
"""

import argparse

from marginlinear import train
from marginlinear.algorithms import dual
from marginlinear.algorithms.partitions import rounds
from marginlinear.algorithms.partitions.groups import Groups
from marginlinear.libsvm import load_libsvm

PARTITIONS, THREADS = (2, 8, 32), 8
# The distance from the centre, the averages and the next centre.
VECTORS = 8
MAKE = rounds.rounds_on


class Fit(dual.DualFit):
    """The last fit that was begun."""

    begin, last = dual.DualFit.__init__, None

    def watched(self, *given, **named):
        Fit.begin(self, *given, **named)
        Fit.last = self


def partitions(count):
    """What makes the rounds of an engine, of `count` partitions."""
    def make(engine, threads):
        m = engine.rows.m
        own = [(m * part // count, m * (part + 1) // count) for part in range(count)]
        return rounds.Rounds(engine, Groups(engine, count, 1, 1, own))

    return make


def row(X, y, options, tol, make, threads):
    """(sweeps, work) of one fit, as text; None where no rounds are made."""
    rounds.rounds_on = make
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
        ways = {"sweeps, 1 thread": (MAKE, 1), f"dealt, {THREADS} threads": (MAKE, THREADS),
                **{f"{count} partitions": (partitions(count), THREADS) for count in PARTITIONS}}
        for name, (make, threads) in ways.items():
            sweeps, work = row(X, y, options, tol, make, threads) or ("as one", "thread")
            print(f"{name:18} {tol:6g} {sweeps:>7} {work:>8}")


if __name__ == "__main__":
    main()
