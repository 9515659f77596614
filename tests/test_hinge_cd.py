"""Dual coordinate descent for rounded hinges of all pairs: against NumPy in any metric, over every storage."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from marginlinear._core.hinge_cd import HingeCD
from marginlinear._core.rows import Rows


def csr_rows(X, bias, dtype=np.float64, kind=np.int32):
    S = csr_array(X.astype(dtype))
    return Rows.from_csr(S.data, S.indices.astype(kind), S.indptr.astype(np.int64), S.shape[1], bias)


def equal_rows(X, bias):
    """One value a row."""
    S = csr_array(X)
    return Rows.from_equal(X.max(axis=1), S.indices.astype(np.int32), S.indptr.astype(np.int64), S.shape[1], bias)


STORAGES = {
    "dense64": Rows.from_dense,
    "dense32": lambda X, bias: Rows.from_dense(X.astype(np.float32), bias),
    "csr64": csr_rows,
    "csr32": lambda X, bias: csr_rows(X, bias, np.float32),
    "narrow64": lambda X, bias: csr_rows(X, bias, np.float64, np.uint16),
    "narrow32": lambda X, bias: csr_rows(X, bias, np.float32, np.uint16),
    "equal64": equal_rows,
}


def problem(seed, storage="dense64", m=30, n=12, k=4, bias=-1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.5)
    X[3] = 0.0
    # The last class has no row.
    y = rng.integers(0, k - 1, m).astype(np.int32)
    if storage == "equal64":
        X = (X != 0) * rng.uniform(0.5, 1.0, (m, 1))
    X = X.astype(np.float32).astype(np.float64)
    rows = STORAGES[storage](X, bias)
    square = rng.standard_normal((k, k))
    metric = square @ square.T / k + 0.1 * np.eye(k)
    return rows, X, y, k, rng.uniform(0.5, 2.0, m), metric


def coefficients(a, y):
    """u_i"""
    u = -np.array(a)
    u[np.arange(len(y)), y] = np.asarray(a).sum(axis=1)
    return u


@pytest.mark.parametrize("lift", [0.0, 0.7])
@pytest.mark.parametrize("storage", STORAGES)
def test_optimum(storage, lift):
    """a = c g'(x) for all rows and classes, at the weights that the duals make; P - D there is nothing."""
    bias, width = 2.0, 0.05
    rows, X, y, k, c, metric = problem(1, storage, bias=bias)
    engine, W = HingeCD(rows, y, k, c, width=width, seed=1), np.zeros((rows.d, k))
    for _ in range(400):
        engine.sweep(W, metric, lift, 0.0)
    u = coefficients(engine.duals, y)
    assert np.allclose(engine.balance, u.sum(axis=0), atol=1e-11)
    assert np.allclose(W[:-1], X.T @ u @ metric, atol=1e-9)
    own = lift / bias * u.sum(axis=0) if lift else bias * u.sum(axis=0) @ metric
    assert np.allclose(W[-1], own, atol=1e-9)
    scores = X @ W[:-1] + bias * W[-1]
    x = 1 - scores[np.arange(len(y)), y][:, None] + scores
    best = c[:, None] * (1 + x / np.hypot(x, width)) / 2
    best[np.arange(len(y)), y] = 0.0
    assert np.allclose(engine.duals, best, atol=1e-7)
    assert engine.gap <= 1e-9


def test_sums_of_a_sweep_and_rows_that_it_leaves():
    """Loss and gap at duals of 0 are those of NumPy; with room for the gap no row moves."""
    rows, _, y, k, c, metric = problem(2)
    width = 0.1
    engine, W = HingeCD(rows, y, k, c, width=width, seed=0), np.zeros((rows.d, k))
    engine.sweep(W, metric, 0.0, 1e6)
    loss = c.sum() * (k - 1) * (1 + np.hypot(1, width)) / 2
    assert engine.loss == pytest.approx(loss, rel=1e-12) and engine.gap == pytest.approx(loss, rel=1e-12)
    assert not W.any() and not np.asarray(engine.duals).any()


@pytest.mark.parametrize("width", [1e-12, 1e-3, 1e6])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_every_step_raises_the_dual(width, scale):
    """Whatever the rounding and the size of the rows."""
    rows, X, y, k, c, metric = problem(3)
    rows = Rows.from_dense(scale * X, -1.0)
    engine, W = HingeCD(rows, y, k, c, width=width, seed=0), np.zeros((rows.d, k))
    before = 0.0
    for _ in range(5):
        engine.sweep(W, metric, 0.0, 0.0)
        a = np.asarray(engine.duals)
        U = scale * X.T @ coefficients(a, y)
        assert (a >= 0).all() and (a <= c[:, None]).all()
        value = (a + width * np.sqrt(a * (c[:, None] - a))).sum() - np.trace(U @ metric @ U.T) / 2
        assert value >= before - 1e-9 * max(1, abs(before))
        before = value


def test_goes_on_from_duals():
    rows, _, y, k, c, metric = problem(4)
    first, W = HingeCD(rows, y, k, c, width=0.05, seed=0), np.zeros((rows.d, k))
    for _ in range(20):
        first.sweep(W, metric, 0.0, 0.0)
    second = HingeCD(rows, y, k, c, width=0.05, seed=0)
    # What stands at a row's own class is not one of its duals.
    given = np.array(first.duals)
    given[np.arange(len(y)), y] = 7.0
    second.resume(given)
    assert np.array_equal(second.duals, first.duals)
    assert np.allclose(second.balance, first.balance, atol=1e-12)
    second.sweep(W, metric, 0.0, 0.0)
    assert second.gap <= first.gap


def test_what_does_not_fit_is_refused():
    rows, _, y, k, c, metric = problem(5)
    with pytest.raises(ValueError, match="width = 0 is not allowed"):
        HingeCD(rows, y, k, c, width=0.0, seed=0)
    for labels, count, costs in ((y[1:], k, c), (y, k, c[1:]), (y, 2, c), (y - 1, k, c), (y, 1, c)):
        with pytest.raises(ValueError, match="HingeCD: 30 rows"):
            HingeCD(rows, labels, count, costs, width=0.1, seed=0)
    with pytest.raises(ValueError, match="Gram matrix"):
        HingeCD(Rows.from_gram(np.eye(30)), y, k, c, width=0.1, seed=0)
    engine = HingeCD(rows, y, k, c, width=0.1, seed=0)
    for W, Q in ((np.zeros((rows.d + 1, k)), metric), (np.zeros((rows.d, k + 1)), metric),
                 (np.zeros((rows.d, k)), np.eye(k + 1))):
        with pytest.raises(ValueError, match="shapes do not fit"):
            engine.sweep(W, Q, 0.0, 0.0)
    with pytest.raises(ValueError, match="shapes do not fit"):
        engine.resume(np.zeros((rows.m, k + 1)))
