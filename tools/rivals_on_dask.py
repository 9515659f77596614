"""Logistic regression on a local Dask cluster: marginlinear.dask and dask-ml.

    tools/rivals_on_dask.py --workers 2 --rows 1000000

All get the same dask Array in the same partitions: dense rows made here, or a LIBSVM file's (`--file`). Each is asked
for the least of

    P(w) = 1/2 ||w||^2 + C sum_i log(1 + exp(-y_i <w, x_i>)),     the last feature is 1

and what it has found is valued by NumPy over all rows. Needs dask-ml, which nothing else does. (XGBoost 3.2 has a
linear booster, but refuses it on Dask: "booster `gblinear` is not supported for distributed training".)
"""

import argparse
import time
import warnings

import numpy as np


def rows_of(args):
    """(X, y): dense rows, whose last column is 1, and labels 0 and 1."""
    if args.file:
        import marginlinear as ml

        X, labels = ml.load_libsvm(args.file)
        X, y = X.toarray(), (labels > labels.min()).astype(np.int64)
    else:
        generator = np.random.default_rng(0)
        X = generator.standard_normal((args.rows, args.features))
        X += 0.5 * generator.standard_normal((args.rows, 1))
        truth = generator.standard_normal(args.features) / np.sqrt(args.features)
        y = (X @ truth + generator.logistic(size=args.rows) > 0).astype(np.int64)
    return np.column_stack([X, np.ones(len(X))]), y


def value(X, y, w, C):
    """P(w)"""
    g = np.where(y == 1, 1.0, -1.0) * (X @ w)
    return w @ w / 2 + C * np.logaddexp(0, -g).sum()


def ours(X, y, C, client, tol):
    import marginlinear.dask as mld

    # The difference of both columns is the weight of logistic regression at twice the C.
    model = mld.train(X, y, solver="softmax", C=C / 2, tol=tol, client=client, partitions="chunks")
    return model.weights[:, 1] - model.weights[:, 0]


def dask_ml(X, y, C, solver):
    from dask_ml.linear_model import LogisticRegression

    # dask-glm adds lamduh/2 ||w||^2 to the sum of the losses, and dask-ml calls lamduh C.
    return LogisticRegression(C=1 / C, solver=solver, fit_intercept=False, max_iter=500,
                              tol=1e-6).fit(X, y).coef_.ravel()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--file")
    parser.add_argument("-c", type=float, default=1.0)
    parser.add_argument("--solvers", default="lbfgs,newton,gradient_descent", help="dask-ml's; admm takes minutes")
    args = parser.parse_args()
    import dask.array as da
    from distributed import Client, LocalCluster

    warnings.simplefilter("ignore")
    X, y = rows_of(args)
    size = -(-len(y) // args.partitions)
    print(f"{len(y)} rows, {X.shape[1]} features, {args.partitions} partitions, {args.workers} workers, C = {args.c:g}")
    with (LocalCluster(n_workers=args.workers, threads_per_worker=1, dashboard_address=":0", silence_logs=60) as made,
          Client(made) as client):
        there = client.persist([da.from_array(X, chunks=(size, -1)), da.from_array(y, chunks=size)])
        client.gather([part.sum() for part in there])
        ways = {f"marginlinear.dask tol {tol:g}": lambda a, b, tol=tol: ours(a, b, args.c, client, tol)
                for tol in (1e-3, 1e-6)}
        for solver in args.solvers.split(","):
            ways[f"dask-ml {solver}"] = lambda a, b, solver=solver: dask_ml(a, b, args.c, solver)
        for name, way in ways.items():
            seconds = []
            # The first run imports what it needs on the workers.
            for _ in range(2):
                started = time.perf_counter()
                w = way(*there)
                seconds.append(time.perf_counter() - started)
            print(f"{name:34} {seconds[0]:8.2f} {seconds[1]:8.2f} s   P = {value(X, y, w, args.c):.4f}", flush=True)


if __name__ == "__main__":
    main()
