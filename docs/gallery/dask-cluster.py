"""Rows that stay on the workers of a Dask cluster give the model that rows in one place give.

The cluster of this example is threads of this process; one of several machines is used alike. The objectives agree
within the tolerance, and the model needs no Dask to predict.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

import marginlinear as ml
import marginlinear.dask as mld
from marginlinear.plotting import style

generator = np.random.default_rng(0)
X = generator.standard_normal((8000, 40))
y = np.where(X @ generator.standard_normal(40) + 3 * generator.standard_normal(8000) > 0, "yes", "no")

chunks = da.from_array(X, chunks=(1000, -1)), da.from_array(y, chunks=1000)
with (LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
      Client(cluster) as client):
    apart = mld.train(*chunks, solver="l2svc", C=1, tol=1e-6, client=client)
whole = ml.train(X, y, solver="l2svc", C=1, tol=1e-6)

print(f"{apart.info.cluster['rows']} rows on the workers: objective {apart.info.objective:.8g}")
print(f"in one place: {whole.info.objective:.8g}")
assert abs(apart.info.objective - whole.info.objective) <= 1e-6 * whole.info.objective
assert np.mean(apart.predict(X) == whole.predict(X)) > 0.999

with style():
    figure, ax = plt.subplots(layout="constrained")
    ax.plot(whole.coef[0], apart.coef[0], "o")
    ax.axline((0, 0), slope=1, color="0.45", linewidth=0.8)
    ax.set(xlabel="weights, rows in one place", ylabel="weights, rows on two workers")
    figure.savefig("dask-cluster.svg")
