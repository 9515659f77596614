#!/usr/bin/env python3
"""Training on more rows than memory holds: synthetic text is written to a store, and a fit goes over it on disk.

    python examples/larger_than_memory.py [--rows 20000] [--memory 100M] [--folder DIR]

Rows are of the shape of rcv1: 47,236 features, 71 nonzeros a row, two classes. They are made and written some at a
time; 14,100,000 rows are a store of 10 GB. The process holds at most about --memory, and 35 MB are its own: with less
beside it than the rows take, they are read from disk in each sweep. Printed: the store; how often the fit went over
it, objective, certificate and peak memory; the accuracy on the store's rows and on new ones.
"""

import argparse
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

import marginlinear as ml

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
from make_synthetic import SHAPES, Generator

# Of Linux in KiB, of macOS in bytes.
MAXRSS = 1 if sys.platform == "darwin" else 1024


def generator(rows):
    shape = SHAPES["rcv1"]
    return Generator(rows, shape["features"], shape["nonzeros"], zipf=1.0, classes=2, values="tfidf", digits=6,
                     noise=0.2, spread=0.5, seed=1)


def accuracy(model, blocks):
    right = rows = 0
    for X, y in blocks:
        right += np.count_nonzero(model.predict(X) == y)
        rows += len(y)
    return right / rows


def run(made, memory, folder):
    last = len(made) - 1
    # Pairs of a csr_array and its labels, some rows at a time; the last ones are for the test.
    store = ml.Store.write(map(made.chunk, range(last)), Path(folder) / "text.store")
    size = sum(path.stat().st_size for path in Path(store.path).iterdir())
    print(f"{store.m:,} rows, {store.nnz:,} nonzeros, {size / 1e6:,.0f} MB on disk")

    model = ml.train(store, solver="l2svc", C=1, tol=1e-2, memory=memory, threads=1)
    info = model.info
    print(f"{info.status} after {info.n_iter} sweeps, {info.passes:.0f} passes over the store, {info.seconds:.1f} s")
    print(f"objective {info.objective:.6g}, certificate {info.certificate:.3g}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS / 1e6:.0f} MB")

    print(f"accuracy {accuracy(model, store.X_blocks()):.2%} on the rows of the store, "
          f"{accuracy(model, [made.chunk(last)]):.2%} on new ones")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--memory", default="100M", help="as in 500M or 4G (default 100M)")
    parser.add_argument("--folder", help="for the store, which stays there (default: a temporary one)")
    args = parser.parse_args()
    made = generator(max(1, args.rows))
    if len(made) < 2:
        parser.error(f"--rows {args.rows}: rows are made in blocks, and the last is for the test: give 10,000 or more")
    if args.folder:
        run(made, args.memory, args.folder)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(made, args.memory, folder)


if __name__ == "__main__":
    main()
