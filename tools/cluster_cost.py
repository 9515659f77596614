#!/usr/bin/env python3
"""Measures the terms of a cost model of fits on a cluster, on two local processes: docs/scale.md.

    tools/cluster_cost.py messages        # seconds of a message with 100 features, of 4 and 32 partitions
    tools/cluster_cost.py numbers         # and with 10^4 to 10^7 features, of few rows
    tools/cluster_cost.py sweeps          # and of 100,000 and 400,000 rows of text in rcv1's shape
    tools/cluster_cost.py alone           # one partition on one worker, beside `train`

A line is a fit: rounds and messages, seconds that the driver waited for a message on average, bytes of the vectors that
one partition was sent and answered with in a message, and the load average before and after it.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
from dask import delayed
from distributed import Client, LocalCluster
from scipy.sparse import csr_array, vstack

import marginlinear as ml
import marginlinear.dask as mld

sys.path.append(str(Path(__file__).resolve().parent))
from make_synthetic import SHAPES, Generator

# No fit ends by its tolerance.
LONG = {"solver": "l2svc", "algorithm": "accelerated", "tol": 1e-12}


def fitted(name, X, y, client, partitions, **given):
    before = os.getloadavg()[0]
    info = mld.train(X, y, client=client, partitions=partitions, **{**LONG, **given}).info
    sent = info.cluster
    print(f"{name}, {partitions} partitions: {info.n_iter} rounds, {sent['messages']} messages, "
          f"{1e3 * sent['seconds_waiting'] / sent['messages']:.1f} ms a message, "
          f"{sent['bytes'] / sent['messages']:,.0f} bytes, {info.seconds:.2f} s, load {before:.1f} to "
          f"{os.getloadavg()[0]:.1f}", flush=True)


def messages(client):
    generator = np.random.default_rng(0)
    X = generator.standard_normal((3200, 100))
    y = (X[:, 0] + generator.standard_normal(3200) > 0).astype(int)
    for _ in range(3):
        for count in (4, 32):
            size = 3200 // count
            fitted("100 features", da.from_array(X, chunks=(size, -1)), da.from_array(y, chunks=size), client, count,
                   max_iter=100)


def numbers(client):
    """Rows of 30 ones, each feature as likely as another."""
    generator = np.random.default_rng(0)
    rows, each = 2000, 30
    for features in (10**4, 10**5, 10**6, 10**7):
        X = csr_array((np.ones(rows * each), generator.integers(features, size=rows * each),
                       np.arange(0, rows * each + 1, each)), shape=(rows, features))
        X.sum_duplicates()
        y = generator.integers(2, size=rows)
        parts = [delayed((X[lo:lo + rows // 2], y[lo:lo + rows // 2])) for lo in (0, rows // 2)]
        fitted(f"{features:,} features", parts, None, client, 2, max_iter=20)


def text(rows):
    shape = SHAPES["rcv1"]
    made = Generator(rows, shape["features"], shape["nonzeros"], zipf=1.0, classes=2, values="tfidf", digits=6,
                     noise=0.2, spread=0.5, seed=1)
    blocks = [made.chunk(number) for number in range(len(made))]
    return vstack([X for X, _ in blocks], format="csr"), np.concatenate([y for _, y in blocks])


def sweeps(client):
    """The part of a round that grows with the rows is between two sizes."""
    X, y = text(400_000)
    for rows in (100_000, 400_000):
        half = rows // 2
        print(f"{X[:rows].nnz:,} values")
        parts = client.scatter([(X[lo:lo + half], y[lo:lo + half]) for lo in (0, half)])
        for _ in range(3):
            fitted(f"text, {rows:,} rows", parts, None, client, 2, max_iter=20)
    for _ in range(2):
        seconds = [ml.train(X, y, threads=1, max_iter=limit, **LONG).info.seconds for limit in (5, 15)]
        sweep = (seconds[1] - seconds[0]) / 10
        print(f"in one process, on one thread: {sweep / X.nnz * 1e9:.2f} ns a value of a sweep")


def alone(client):
    X, y = text(200_000)
    part = client.scatter([(X, y)])
    for _ in range(3):
        started = time.perf_counter()
        there = mld.train(part, solver="l2svc", client=client, partitions=1)
        between = time.perf_counter()
        here = ml.train(X, y, solver="l2svc", threads=1)
        print(f"one partition {between - started:.2f} s, train {time.perf_counter() - between:.2f} s, same weights: "
              f"{there.weights.tobytes() == here.weights.tobytes()}", flush=True)


def main():
    ways = {way.__name__: way for way in (messages, numbers, sweeps, alone)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=ways)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with (LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=60) as cluster,
          Client(cluster) as client):
        ways[args.what](client)


if __name__ == "__main__":
    main()
