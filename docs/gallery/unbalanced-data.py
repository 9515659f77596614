"""Of a class of 3 % of the rows, weights that make the classes equal find most rows that a plain fit misses.

`class_weight="balanced"` multiplies the cost of a row by what its class has too few of. Recall of the rare class is
paid for by precision, which the picture shows for the weights in between.
"""

import matplotlib.pyplot as plt
import numpy as np

import marginlinear as ml
from marginlinear.plotting import style

generator = np.random.default_rng(0)
rare = generator.random(8000) < 0.03
X = generator.standard_normal((8000, 10))
X[rare, :3] += 1.0
y = np.where(rare, "rare", "common")
X, Xt, y, yt = X[:4000], X[4000:], y[:4000], y[4000:]


def recall_and_precision(weight):
    """On rows that the fit has not seen."""
    found = ml.train(X, y, solver="l2svc", bias=1, class_weight=weight).predict(Xt) == "rare"
    right = np.count_nonzero(found & (yt == "rare"))
    return right / np.count_nonzero(yt == "rare"), right / max(1, np.count_nonzero(found))


plain, balanced = recall_and_precision(None), recall_and_precision("balanced")
print(f"recall of the rare class: plain {plain[0]:.2f}, balanced {balanced[0]:.2f}")
assert balanced[0] > plain[0] + 0.5

weights = [1, 2, 4, 8, 16, 32]
recall, precision = zip(*(recall_and_precision({"rare": weight, "common": 1}) for weight in weights), strict=True)
with style():
    figure, ax = plt.subplots(layout="constrained")
    ax.plot(weights, recall, marker="o", label="recall")
    ax.plot(weights, precision, marker="s", label="precision")
    ax.set(xscale="log", xlabel="weight of the rare class", ylabel="on other rows", ylim=(0, 1))
    ax.set_xticks(weights, [str(weight) for weight in weights])
    ax.legend()
    figure.savefig("unbalanced-data.svg")
