"""Probabilities fitted on scores of cross-validation come true as often as they say; scores taken for log odds do not.

`probability=True` fits a sigmoid on scores that the rows' own models have not seen. The weights stay what they are.
"""

import matplotlib.pyplot as plt
import numpy as np

import marginlinear as ml
from marginlinear.plotting import ReliabilityDisplay, style

# The first feature decides, the noise being large.
generator = np.random.default_rng(0)
X = generator.standard_normal((6000, 50))
y = np.where(X[:, 0] + 0.7 * generator.standard_normal(6000) > 0, 1, -1)
X, Xt, y, yt = X[:1000], X[1000:], y[:1000], y[1000:]

model = ml.train(X, y, solver="odm", C=10, probability=True)
plain = 1 / (1 + np.exp(-model.decision_function(Xt).ravel() * np.where(model.classes[1] == 1, 1, -1)))

with style():
    figure, ax = plt.subplots(layout="constrained")
    fitted = ReliabilityDisplay.from_estimator(model, Xt, yt, name="probability=True", ax=ax)
    taken = ReliabilityDisplay.from_predictions(yt, plain, name="scores as log odds", ax=ax)
    figure.savefig("calibration.svg")

print(f"expected calibration error {fitted.error:.3f}, of scores as log odds {taken.error:.3f}")
assert fitted.error < 0.5 * taken.error
