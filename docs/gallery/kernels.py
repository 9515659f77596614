"""Where no plane divides two rings, an RBF kernel does, with a certificate like that of a plane.

The model holds the support vectors alone, which are ringed.
"""

import matplotlib.pyplot as plt
import numpy as np

import marginlinear as ml
from marginlinear.plotting import style

generator = np.random.default_rng(0)
angle, inner = generator.uniform(0, 2 * np.pi, 400), np.arange(400) % 2 == 0
X = np.where(inner, 0.5, 1.0)[:, None] * np.c_[np.cos(angle), np.sin(angle)] + generator.normal(0, 0.1, (400, 2))
y = np.where(inner, 1, -1)
X, Xt, y, yt = X[:200], X[200:], y[:200], y[200:]

plane = ml.train(X, y, solver="l1svc", bias=1)
curve = ml.train(X, y, solver="l1svc", bias=1, kernel="rbf", gamma=2, C=10)
accuracy = {"linear": np.mean(plane.predict(Xt) == yt), "rbf": np.mean(curve.predict(Xt) == yt)}
print(f"accuracy {accuracy['linear']:.2f} by a plane, {accuracy['rbf']:.2f} by the kernel; "
      f"certificate {curve.info.certificate:.2g} of {curve.info.objective:.4g}, {curve.info.status}")
assert accuracy["rbf"] > accuracy["linear"] + 0.3

line = np.linspace(-1.5, 1.5, 80)
points = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
with style():
    figure, axes = plt.subplots(1, 2, figsize=(8, 4), sharey=True, layout="constrained")
    for ax, model, name in zip(axes, (plane, curve), accuracy, strict=True):
        scores = model.decision_function(points).reshape(80, 80)
        ax.contourf(line, line, scores > 0, alpha=0.2, cmap="coolwarm")
        ax.scatter(*X.T, c=y, s=9, cmap="coolwarm")
        ax.set_title(f"{name}: accuracy {accuracy[name]:.2f}")
        ax.set_aspect("equal")
    near = abs(curve.decision_function(X).ravel()) <= 1
    axes[1].scatter(*X[near].T, s=50, facecolors="none", edgecolors="k", linewidths=0.7)
    figure.savefig("kernels.svg")
