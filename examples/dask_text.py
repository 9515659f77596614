#!/usr/bin/env python3
"""Training on files over a Dask cluster: synthetic text is cut into files, workers read them, and the fit is certified
over all rows, as on one machine.

    python examples/dask_text.py [--rows 40000] [--files 8] [--partitions 2] [--scheduler-file F] [--folder DIR]

Rows are of the shape of rcv1: 47,236 features, 71 nonzeros a row, two classes. The cluster is one of two processes that
is started here, or the one of --scheduler-file; its workers then need --folder under the same name. Printed: the fit on
the cluster, what was sent for it, the fit on one machine, and whether each bound is below the other's objective; the
accuracy on new rows.
"""

import argparse
import contextlib
import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
from dask.distributed import Client, LocalCluster
from scipy.sparse import vstack

import marginlinear as ml
import marginlinear.dask as mld

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
from make_synthetic import SHAPES, Generator

NEW = 5000
FIT = {"solver": "l2svc", "C": 1, "tol": 1e-2}


def made(rows):
    """Rows and labels."""
    shape = SHAPES["rcv1"]
    generator = Generator(rows, shape["features"], shape["nonzeros"], zipf=1.0, classes=2, values="tfidf", digits=6,
                          noise=0.2, spread=0.5, seed=1)
    blocks = [generator.chunk(number) for number in range(len(generator))]
    return vstack([X for X, _ in blocks], format="csr"), np.concatenate([y for _, y in blocks])


def told(model):
    info = model.info
    return f"{info.status} in {info.seconds:.1f} s, objective {info.objective:.6g}, certificate {info.certificate:.3g}"


def run(client, args, folder):
    X, y = made(args.rows + NEW)
    paths, cuts = [], [args.rows * at // args.files for at in range(args.files + 1)]
    for number, (lo, hi) in enumerate(itertools.pairwise(cuts)):
        paths.append(Path(folder) / f"part-{number}.svm")
        ml.dump_libsvm(X[lo:hi], y[lo:hi], paths[-1])
    print(f"{args.rows:,} rows in {len(paths)} files, {X[:args.rows].nnz:,} nonzeros")

    there = mld.train(paths, client=client, partitions=args.partitions, **FIT)
    sent = there.info.cluster
    print(f"cluster: {told(there)}")
    print(f"{len(sent['rows'])} partitions of {min(sent['rows']):,} to {max(sent['rows']):,} rows, {there.info.n_iter} "
          f"rounds, {sent['messages']} messages, {sent['bytes'] / 1e6:.0f} MB a partition")

    here = ml.train(X[:args.rows], y[:args.rows], **FIT)
    print(f"here:    {told(here)}")
    agree = here.info.bound <= there.info.objective and there.info.bound <= here.info.objective
    print(f"each bound is below the other's objective: {agree}")
    # A model of a cluster is one like any other.
    right = [np.mean(model.predict(X[args.rows:]) == y[args.rows:]) for model in (there, here)]
    print(f"accuracy on new rows {right[0]:.2%} and {right[1]:.2%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--partitions", type=int, help="of the rows (default: one a worker)")
    parser.add_argument("--scheduler-file", help="of a cluster that runs (default: two processes are started)")
    parser.add_argument("--folder", help="for the files, which stay there (default: a temporary one)")
    args = parser.parse_args()
    if not 0 < args.files <= args.rows:
        parser.error(f"--files {args.files}: give 1 to --rows, {args.rows}")
    with contextlib.ExitStack() as stack:
        if args.scheduler_file:
            client = Client(scheduler_file=args.scheduler_file)
        else:
            cluster = stack.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0"))
            client = Client(cluster)
        stack.enter_context(client)
        run(client, args, args.folder or stack.enter_context(tempfile.TemporaryDirectory()))


if __name__ == "__main__":
    main()
