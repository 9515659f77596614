"""Gram matrices of float32 values: the sweeps' own, while certificates are of float64."""

import numpy as np
import oracles
import pytest

import marginlinear as ml
from marginlinear._core import rows as rows_module
from marginlinear.data.kernels import Kernel, gram_rows

METHODS = {"l1svc": {"algorithm": "cd"}, "l2svc": {"algorithm": "accelerated"}, "odm": {}, "ldm": {}, "lssvm": {},
           "cs": {}, "mcodm": {"mu": 0.0}, "lpmcsvm": {}}


@pytest.fixture
def large(monkeypatch):
    """Any matrix is a large one."""
    monkeypatch.setattr(rows_module, "EXACT", 0)


def problem(m=300, classes=2):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, 5))
    return X, np.argmax(X[:, :classes] + 0.8 * rng.standard_normal((m, classes)), axis=1)


@pytest.mark.parametrize(("solver", "options"), METHODS.items())
@pytest.mark.parametrize("C", [1.0, 30.0])
def test_the_same_optimum(monkeypatch, solver, options, C):
    """To 1e-9, which float32 numbers alone do not give."""
    X, y = problem(classes=3 if solver in ("cs", "mcodm", "lpmcsvm") else 2)
    words = {"solver": solver, "kernel": "rbf", "gamma": 0.3, "C": C, "tol": 1e-9, "max_iter": 200_000, **options}
    wanted = ml.train(X, y, **words).info
    monkeypatch.setattr(rows_module, "EXACT", 0)
    model = ml.train(X, y, **words)
    assert model.info.converged
    assert wanted.converged
    assert model.info.objective == pytest.approx(wanted.objective, rel=3e-9)
    assert model.info.bound <= wanted.objective * (1 + 1e-12)


@pytest.mark.parametrize("solver", ["l1svc", "odm"])
def test_the_certificate_is_of_the_model(large, solver):
    X, y = problem()
    model = ml.train(X, y, solver=solver, kernel="rbf", gamma=0.3, C=10, algorithm="cd", tol=1e-4)
    K = oracles.rbf(X, X, 0.3)
    b = np.zeros(len(X))
    b[[int(np.flatnonzero((row == X).all(axis=1))[0]) for row in model.support]] = model.dual_coef[:, 0]
    margins = (2 * y - 1) * (K @ b)
    if solver == "l1svc":
        loss = 10 * np.maximum(0, 1 - margins).sum()
        assert model.info.objective == pytest.approx(0.5 * b @ K @ b + loss, rel=1e-12)
    assert np.allclose(model.decision_function(X).ravel(), K @ b, rtol=1e-12, atol=1e-12)


def test_rows_in_turn_have_the_bits_of_all_at_once(large):
    """A cache for some rows, or for all: the same model."""
    X, y = problem(400)
    models = [ml.train(X, y, solver="odm", kernel="rbf", gamma=0.3, C=10, cache=cache, threads=threads)
              for cache, threads in ((0.2, 1), (100, 1), (100, 2))]
    assert all(np.array_equal(models[0].dual_coef, model.dual_coef) for model in models[1:])


def test_which_matrices_are_float32(large):
    X = np.random.default_rng(1).standard_normal((90, 3))
    assert gram_rows(Kernel("rbf"), X, 3).single
    assert not gram_rows(Kernel("sigmoid"), X, 3).single
    assert not gram_rows(Kernel("linear"), 1e-20 * X, 3).single
    assert not gram_rows(Kernel("precomputed"), np.eye(5), 5).single
    assert not gram_rows(Kernel(lambda A, B: np.asarray(A) @ np.asarray(B).T), X, 3).single


@pytest.mark.parametrize("columns", [None, np.array([0, 4, 5, 80])])
def test_exact_sums(large, columns):
    X = np.random.default_rng(1).standard_normal((90, 3))
    rows = gram_rows(Kernel("rbf", gamma=0.5), X, 3)
    rows.complete()
    K, which, c = oracles.rbf(X, X, 0.5), np.array([3, 4, 88]), np.array([[1.0, 2], [0, -3], [1e5, 1]])
    sums = np.ones((90 if columns is None else 4, 2))
    rows.add(which, c, sums, columns)
    assert np.allclose(sums - 1, K[:, which][slice(None) if columns is None else columns] @ c, rtol=1e-13, atol=1e-9)
    assert np.allclose(rows.products(), K, rtol=1e-13)
    assert rows.arrays.dtype == np.float32
