"""A fit from disk, which holds a part of the rows at a time, comes to the optimum of the rows in memory.

A store is made of rows as they come, some at a time. `memory=` says what the fit may hold of it. The objectives agree
within the certificates.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse

import marginlinear as ml
from marginlinear.plotting import style

generator = np.random.default_rng(0)
weights = generator.standard_normal(2000)


def rows():
    """Eight blocks of 4,000 rows and their labels: larger data would come from files."""
    for _ in range(8):
        X = sparse.random_array((4000, 2000), density=0.02, rng=generator, format="csr")
        yield X, np.where(X @ weights + generator.standard_normal(4000) > 0, 1, -1)


with tempfile.TemporaryDirectory() as folder:
    store = ml.Store.write(rows(), f"{folder}/rows.store")
    disk = ml.train(store, solver="l2svc", C=0.1, memory="6M", tol=1e-3, threads=1)
    blocks = list(store.X_blocks())
    X, y = sparse.vstack([X for X, _ in blocks]), np.concatenate([y for _, y in blocks])
whole = ml.train(X, y, solver="l2svc", C=0.1, tol=1e-3, threads=1)

print(f"{store.nnz:,} values on disk, read {disk.info.passes:.0f} times: objective {disk.info.objective:.6g}")
print(f"in memory: {whole.info.objective:.6g}")
assert abs(disk.info.objective - whole.info.objective) <= disk.info.certificate + whole.info.certificate

with style():
    figure, ax = plt.subplots(layout="constrained")
    for model, name in (disk, "from disk"), (whole, "in memory"):
        history = model.info.history
        ax.plot([h["n_iter"] for h in history], [h["certificate"] / h["objective"] for h in history], label=name)
    ax.axhline(1e-3, color="0.45", linewidth=0.8)
    ax.set(yscale="log", xlabel="sweeps", ylabel="certificate / objective")
    ax.legend()
    figure.savefig("larger-than-memory.svg")
