"""Fits over features whose bias costs nothing: certificates recomputed in NumPy, SciPy and LIBLINEAR's -R."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize

import marginlinear as ml
from marginlinear.algorithms.free_bias import bracket

DATA = Path(__file__).resolve().parent.parent / "data"
LOSSES = {
    "logistic": lambda g: np.logaddexp(0, -g),
    "l1svc": lambda g: np.maximum(0, 1 - g),
    "l2svc": lambda g: np.maximum(0, 1 - g) ** 2,
    "odm": lambda g: (np.maximum(0, 0.8 - g) ** 2 + 0.8 * np.maximum(0, g - 1.2) ** 2) / 0.8**2,
    "rmm": lambda g: np.maximum(0, 1 - g) + np.maximum(0, g - 2),
    "lssvm": lambda g: (1 - g) ** 2,
    "l1svr": lambda r: np.maximum(0, abs(r) - 0.1),
    "l2svr": lambda r: np.maximum(0, abs(r) - 0.1) ** 2,
}
REGRESSIONS = "l1svr", "l2svr"


def problem(solver, m=80, d=5):
    """Rows far from 0, so that the bias is large beside the weights."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(m, d)) + 2.0
    scores = X @ rng.normal(size=d) + rng.normal(size=m)
    return X, scores + 30 if solver in REGRESSIONS else np.where(scores > np.quantile(scores, 0.7), 1, -1)


def objective(solver, X, y, C, v):
    f = X @ v[:-1] + v[-1]
    margins = f - y if solver in REGRESSIONS else y * f
    return 0.5 * v[:-1] @ v[:-1] + C * LOSSES[solver](margins).sum()


@pytest.mark.parametrize("solver", LOSSES)
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_the_optimum_is_between_bound_and_objective(solver, C):
    X, y = problem(solver)
    model = ml.train(X, y, solver=solver, C=C, free_bias=True, tol=1e-9)
    info = model.info
    assert info.converged
    v = np.append(np.ravel(model.coef), model.intercept)
    scale = max(1.0, info.objective)
    assert info.objective == pytest.approx(objective(solver, X, y, C, v), rel=1e-12)
    assert info.bound <= info.objective + 1e-12 * scale
    found = min(optimize.minimize(lambda v: objective(solver, X, y, C, v), v + moved, method="Powell",
                                  options={"ftol": 1e-14, "xtol": 1e-12, "maxiter": 2000}).fun
                for moved in (0.0, 0.01))
    assert info.bound <= found + 1e-12 * scale
    assert info.objective <= found + 1e-9 * scale
    # And a bias that costs has a higher optimum.
    assert info.bound <= ml.train(X, y, solver=solver, C=C, bias=1.0, tol=1e-9).info.objective


@pytest.mark.parametrize(("solver", "number"), [("logistic", 0), ("l2svc", 2), ("l2svr", 11)])
def test_liblinear_ends_within_the_certificate(solver, number):
    liblinear = pytest.importorskip("liblinear.liblinearutil")
    X, y = problem(solver, 300, 12)
    info = ml.train(X, y, solver=solver, free_bias=True, tol=1e-6).info
    rows = [{j + 1: float(value) for j, value in enumerate(row)} for row in X]
    theirs = liblinear.train(y.tolist(), rows, f"-s {number} -R -B 1 -e 1e-8 -q")
    v = np.array(theirs.w[:13]) * (-1 if number != 11 and theirs.label[0] == -1 else 1)
    value = objective(solver, X, y, 1.0, v)
    assert info.bound <= value <= info.objective + 1e-9 * value


def test_several_classes_weights_and_rows_on_disk(tmp_path):
    X, y = ml.load_libsvm(DATA / "dna")
    given = {"solver": "logistic", "free_bias": True, "class_weight": {1: 2.0}, "tol": 1e-5}
    model = ml.train(X, y, **given)
    assert model.info.converged
    assert model.bias == 1.0
    signs = [np.where(y == label, 1, -1) for label in model.classes]
    value = sum(0.5 * w @ w + np.where(y == model.classes[0], 2.0, 1.0) @ np.logaddexp(0, -s * (X @ w + b))
                for w, b, s in zip(model.coef, model.intercept, signs, strict=True))
    assert model.info.objective == pytest.approx(value, rel=1e-12)
    warm = ml.train(X, y, start=model, **given)
    assert warm.info.converged
    assert warm.info.n_iter < model.info.n_iter
    paged = ml.train(ml.Store.write([(X, y)], tmp_path / "rows"), **given).info
    assert paged.converged
    assert paged.bound <= model.info.objective
    assert model.info.bound <= paged.objective


def test_newton_steps_find_it_in_one_fit():
    """Whatever the value of the feature that was asked for; so does what goes on from there."""
    X, y = problem("l1svc", 2000)
    X *= [1e3, 1, 30, 1e-2, 1]
    for bias in (1.0, 7.0):
        model = ml.train(X, y, solver="l1svc", C=10.0, free_bias=True, bias=bias)
        assert model.info.n_outer == 1 and model.bias == bias
        again = ml.train(X, y, solver="l1svc", C=10.0, free_bias=True, bias=bias, start=model)
        assert again.info.n_iter == 0
        assert again.info.objective == pytest.approx(model.info.objective, rel=1e-12)


def test_what_does_not_go_with_it():
    X, y = problem("logistic")
    with pytest.raises(ValueError, match="free_bias = True does not go with a kernel here: give l1svc"):
        ml.train(X, y, solver="logistic", kernel="rbf", free_bias=True)


def test_the_bracket_of_a_step_and_of_what_never_changes_its_sign():
    low, high = bracket(lambda b: -1.0 if b < 0.3 else 2.0, 0.0, 1e-3, 0.0)
    assert low < 0.3 <= high
    assert high == math.nextafter(low, 1.0)
    assert bracket(lambda b: -1.0, 0.0, 1.0, 0.0)[1] == math.inf


@pytest.mark.parametrize(("solver", "number", "power"), [("l1lr", 6, None), ("l1l2svc", 5, 2)])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
def test_sparse_weights(solver, number, power, l1_ratio):
    X, y = problem(solver, 300, 12)
    loss = LOSSES["l2svc" if power else "logistic"]

    def value(w, b):
        return (l1_ratio * abs(w).sum() + (1 - l1_ratio) / 2 * w @ w + 0.1 * loss(y * (X @ w + b)).sum())

    model = ml.train(X, y, solver=solver, C=0.1, l1_ratio=l1_ratio, free_bias=True, tol=1e-9)
    info = model.info
    assert info.converged
    assert info.objective == pytest.approx(value(np.ravel(model.coef), model.intercept[0]), rel=1e-12)

    def split(v):
        return value(v[:12] - v[12:24], v[24])

    found = optimize.minimize(split, np.r_[np.full(24, 0.1), 0.0], bounds=[(0, None)] * 24 + [(None, None)],
                              method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000}).fun
    assert info.bound <= found + 1e-12 * found
    assert info.objective <= found + 1e-9 * found
    if l1_ratio == 1.0:
        liblinear = pytest.importorskip("liblinear.liblinearutil")
        rows = [{j + 1: float(x) for j, x in enumerate(row)} for row in X]
        theirs = liblinear.train(y.tolist(), rows, f"-s {number} -R -B 1 -c 0.1 -e 1e-6 -q")
        v = np.array(theirs.w[:13]) * (1 if theirs.label[0] == 1 else -1)
        assert info.bound <= value(v[:12], v[12]) + 1e-9
