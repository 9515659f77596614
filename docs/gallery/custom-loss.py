"""A loss of your own is a table of quadratic pieces, and is trained with a certificate like any other.

This file is a method: the hinge with its corner rounded over 1 - h to 1 + h. It is known to this process alone; for
good it is a file of `marginlinear/methods` and a line of the registry, as [Adding a method](../adding.md) has it. The
rounded loss is at most h/4 a row above the hinge, and so are the objectives.
"""

import sys
from unittest.mock import patch

import matplotlib.pyplot as plt
import numpy as np

import marginlinear as ml
from marginlinear import params, registry
from marginlinear.algorithms.dual import MarginFit
from marginlinear.plotting import style

WIDTH = params.Param("width", float, 0.5, "half-width of the rounded corner of the hinge", "(0, 1]")


def pieces(h):
    """Knots, and for each piece (a, b, c) of a/2 g^2 + b g + c."""
    return (1 - h, 1 + h), ((0, -1, 1), (1 / (2 * h), -(1 + h) / (2 * h), (1 + h) ** 2 / (4 * h)), (0, 0, 0))


def fit(problem, values, run):
    return MarginFit(problem, run, problem.costs(values["C"]), [pieces(values["width"])]).convex()


METHOD = registry.Method(
    name="rounded", summary="support vector classifier, rounded hinge loss", objective="1/2 ||w||^2 + C sum_i phi(g_i)",
    reference="O. Chapelle, Training a Support Vector Machine in the Primal, Neural Computation 2007",
    params=(params.C, WIDTH), fit=fit, joint=False)

X, y = ml.load_libsvm("data/dna")
y = np.where(y == 3, 1, -1)
here = {"marginlinear.methods.rounded": sys.modules[__name__]}
with patch.dict(registry.MODULES, rounded="rounded"), patch.dict(sys.modules, here):
    rounded = {h: ml.train(X, y, solver="rounded", C=0.1, width=h, tol=1e-6) for h in (0.1, 0.5, 1.0)}
hinge = ml.train(X, y, solver="l1svc", C=0.1, tol=1e-6)

for h, model in rounded.items():
    above = model.info.objective - hinge.info.objective
    print(f"h = {h}: {above / len(y):.4f} a row above the hinge, {model.info.status}")
    assert -hinge.info.certificate <= above <= 0.1 * len(y) * h / 4 + model.info.certificate

g = np.linspace(-0.5, 2.5, 200)
with style():
    figure, ax = plt.subplots(layout="constrained")
    ax.plot(g, np.maximum(0, 1 - g), label="hinge")
    for h in rounded:
        knots, table = pieces(h)
        a, b, c = np.array(table)[np.searchsorted(knots, g)].T
        ax.plot(g, a / 2 * g**2 + b * g + c, label=f"rounded, h = {h}")
    ax.set(xlabel="margin", ylabel="loss")
    ax.legend()
    figure.savefig("custom-loss.svg")
