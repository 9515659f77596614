"""Optima: one problem by two ways, which are routes, storages, orders of rows and features, a linear kernel, copies of
rows in place of weights, a warm start. The bound of each is not above the objective of the other, and what is called
converged is. A problem without extremes has to be certified.

An input is a JSON object, a recipe.
"""

import json
import math
import warnings

import numpy as np

from marginlinear import params as P
from marginlinear import train
from marginlinear.registry import methods
from marginlinear.status import allowance
from tools.fuzz import text

METHODS = methods()
WAYS = "route", "storage", "order", "kernel", "copies", "start"
# Values of a method's own parameters.
VALUES = {"C": (1e-3, 0.1, 1.0, 30.0, 1e3), "mu": (0.0, 0.2, 0.8, 1.0), "theta": (0.0, 0.2, 0.9),
          "lambda1": (0.0, 0.25, 10.0), "lambda2": (0.0, 0.25, 10.0), "norm": (1.0, 1.1, 1.5, 2.0, 3.0, 4.0),
          "delta": (1e-6, 1e-3, 0.5), "epsilon": (0.0, 0.1, 1.0), "nu": (0.01, 0.2, 0.5), "l1_ratio": (0.1, 0.5, 1.0),
          "penalty": ("l1", "group"), "K": (1, 2, 3), "margin_bound": (1.0, 1.5, 5.0), "bound_cost": (0.1, 10.0),
          "loss": ("logistic", "softmax")}
# Parameters of methods that promise no certificate, and of one whose fits at large costs crawl.
OPEN = {"epochs", "beta", "K"}
CHOICES = {"solver": tuple(METHODS), "way": WAYS, "rows": (6, 20, 60, 150, 400), "columns": (1, 3, 10, 40, 200),
           "classes": (2, 2, 3, 5), "shift": (0.0, 2.0), "range": (0.0, 0.0, 1.0, 2.0), "filled": (1.0, 0.5, 0.1),
           "noise": (0.0, 0.5, 5.0), "ties": (False, False, True), "bias": (-1.0, 1.0, 10.0), "free": (False, True),
           "multiclass": ("ovr", "ovo"), "kernel": (None, None, "rbf", "poly"), "tol": (1e-2, 1e-3, 1e-6),
           "weights": (False, True), "seed": range(10**6)}
TIME = 5.0  # seconds of one fit


def seeds():
    start = {**{name: values[0] for name, values in CHOICES.items()}, "rows": 60, "columns": 10, "noise": 0.5,
             "tol": 1e-3, "params": {}}
    return [json.dumps({**start, "solver": solver, "way": way}).encode()
            for solver, way in zip(METHODS, WAYS * len(METHODS), strict=False)]


def mutate(rng, data, other):
    recipe = json.loads(data)
    for name in rng.sample(list(CHOICES), 4):
        recipe[name] = rng.choice(CHOICES[name])
    own = [p.name for p in METHODS[recipe["solver"]].params if p.name in VALUES]
    recipe["params"] = {name: rng.choice(VALUES[name]) for name in own if rng.random() < 0.7}
    recipe["seed"] = rng.choice(CHOICES["seed"])
    return json.dumps(recipe).encode()


def check(data):
    recipe = json.loads(data)
    rng = np.random.default_rng(recipe["seed"])
    method = METHODS[recipe["solver"]]
    X, y, weights = made(rng, recipe, method)
    given = {"bias": recipe["bias"], "tol": recipe["tol"], "time_limit": TIME, **recipe["params"]}
    if len(set(y)) > 2 and not method.joint and not method.regression and not method.one_class:
        given["multiclass"] = recipe["multiclass"]
    if recipe["kernel"] and method.kernels:
        given |= {"kernel": recipe["kernel"], "gamma": 1 / max(1.0, (X * X).sum(axis=1).mean())}
    if recipe["free"] and recipe["bias"] > 0:
        given["free_bias"] = True
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            models = [train(*rows, solver=method.name, **how)
                      for rows, how in ways(rng, recipe, method, X, y, weights, given)]
        except (TypeError, ValueError) as error:
            return method.name, text.shape_of(str(error))
    infos = [model.info for model in models]
    # A Gram matrix of features on many scales has lost digits.
    lost = 1e-9 if recipe["range"] == 0 else 1e-7
    for model, info in zip(models, infos, strict=True):
        assert np.isfinite(model.weights).all() and math.isfinite(info.objective), "not finite"
        assert info.status != "failed", f"{info}"
        if info.bound is None:
            continue
        slack = lost * max(1.0, abs(info.objective))
        assert info.bound <= info.objective + slack, "a bound above its objective"
        # Of several columns each has its own.
        assert not info.converged or model.weights.shape[1] > 1 or (
            info.objective - info.bound <= allowance(recipe["tol"], info.objective) + slack), "what is called converged"
        tame = (recipe["range"] == 0 and recipe["tol"] >= 1e-3 and OPEN.isdisjoint(p.name for p in method.params)
                and (recipe["way"] != "route" or model is models[0]))
        assert info.converged or info.status == "time_limit" or not tame, f"{info}"
    if convex(method, recipe, y):
        for one, other in (infos, infos[::-1]):
            if one.bound is not None and other.bound is not None:
                slack = lost * max(1.0, abs(one.objective))
                assert one.bound <= other.objective + slack, (
                    f"the bound of one way, {one.bound!r}, is above the objective of another, {other.objective!r}")
    return method.name, recipe["way"], *(info.status for info in infos)


def convex(method, recipe, y):
    return not (method.relaxation and recipe["params"].get("mu", P.MU.default) and len(set(y)) > 2)


def made(rng, recipe, method):
    """(X, y, weights)"""
    m, d, k = recipe["rows"], recipe["columns"], recipe["classes"]
    X = (rng.normal(size=(m, d)) + recipe["shift"]) * 10.0 ** rng.uniform(-recipe["range"], recipe["range"], d)
    X[rng.random((m, d)) > recipe["filled"]] = 0
    if recipe["ties"]:
        X = np.round(X)
        X[m // 2:] = X[: m - m // 2]
    scores = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9) @ rng.normal(size=(d, k)) / math.sqrt(d)
    scores += recipe["noise"] * rng.normal(size=(m, k))
    y = scores[:, 0] if method.regression else scores.argmax(axis=1)
    if not method.regression:
        y[:k] = np.arange(k)
    return X, y, rng.integers(1, 4, m).astype(float) if recipe["weights"] else np.ones(m)


def ways(rng, recipe, method, X, y, weights, given):
    """Two ((X, y), keywords) of `train` of one problem."""
    from scipy import sparse

    given = {**given, "sample_weight": weights}
    plain, way = ((X, y), given), recipe["way"]
    yield plain
    if way == "route":
        yield (X, y), {**given, "algorithm": str(rng.choice(method.routes))}
    elif way == "storage":
        yield (sparse.csr_array(X), y), given
    elif way == "order":
        rows, features = rng.permutation(len(y)), rng.permutation(X.shape[1])
        yield (X[rows][:, features], y[rows]), {**given, "sample_weight": weights[rows], "seed": 1}
    elif way == "kernel":
        yield plain if "kernel" in given else ((X, y), {**given, "kernel": "linear"})
    elif way == "copies":
        times = weights.astype(int)
        yield (np.repeat(X, times, axis=0), np.repeat(y, times)), {**given, "sample_weight": None}
    else:
        yield (X, y), {**given, "start": train(X, y, solver=method.name, **{**given, "max_iter": 3})}
