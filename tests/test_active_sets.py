"""Rounds over active sets of a kernel's rows: against the definition, and against sweeps over all rows."""

import numpy as np
import oracles
import pytest

import marginlinear as ml
from marginlinear._core import rows as core_rows
from marginlinear._core.block_cd import BlockCD
from marginlinear._core.row_cache import RowCache
from marginlinear._core.rows import Rows
from marginlinear.algorithms import active_sets

GAMMA = 0.3


def problem(m=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, 4))
    X[5] = X[6]
    y = (X[:, 0] + 0.7 * rng.standard_normal(m) > 0).astype(np.int32) + (X[:, 1] * X[:, 2] > 0.3)
    return X, y


def trained(X, y, solver, **params):
    return ml.train(X, y, **{"solver": solver, "kernel": "rbf", "gamma": GAMMA, "tol": 1e-6, **params})


def coefficients(model, m):
    A = np.zeros((m, 3))
    A[model.support_indices] = model.dual_coef
    return A


@pytest.fixture(autouse=True)
def sets_smaller_than_the_problem(monkeypatch):
    monkeypatch.setattr(core_rows, "SMALL", 50)
    monkeypatch.setattr(active_sets, "LEAST", 40)
    monkeypatch.setattr(active_sets, "MOST", 220)


@pytest.mark.parametrize("C", [0.1, 3.0, 10.0])
def test_hinge_has_the_objective_of_its_model_and_the_optimum_of_sweeps(C):
    X, y = problem()
    model = trained(X, y, "cs", C=C)
    assert model.info.converged
    assert model.info.algorithm == "cd"
    A, K, rows = coefficients(model, len(y)), oracles.rbf(X, X, GAMMA), np.arange(len(y))
    own = A[rows, y]
    assert (own <= C * (1 + 1e-12)).all()
    assert (np.delete(A.ravel(), rows * 3 + y) <= 1e-12).all()
    assert np.allclose(A.sum(axis=1), 0, atol=1e-9)
    scores = K @ A
    rivals = np.where(np.eye(3, dtype=bool)[y], -np.inf, scores).max(axis=1)
    half = 0.5 * (A * scores).sum()
    objective = half + C * np.maximum(0, 1 - scores[rows, y] + rivals).sum()
    assert model.info.objective == pytest.approx(objective, rel=1e-10)
    assert objective - (own.sum() - half) <= 1.001e-6 * max(1, objective)
    swept = trained(X, y, "cs", C=C, algorithm="cd")
    assert model.info.objective == pytest.approx(swept.info.objective, rel=2e-6)


@pytest.mark.parametrize("C", [0.3, 10.0])
@pytest.mark.parametrize("norm", [1.0, 1.3])
def test_other_norms_have_the_certificate_of_their_definition(norm, C):
    X, y = problem()
    model = trained(X, y, "lpmcsvm", norm=norm, C=C)
    assert model.info.converged
    assert model.info.algorithm == "cd"
    A, K, rows = coefficients(model, len(y)), oracles.rbf(X, X, GAMMA), np.arange(len(y))
    scores = K @ A
    norms = np.sqrt((A * scores).sum(axis=0))
    rivals = np.where(np.eye(3, dtype=bool)[y], -np.inf, scores).max(axis=1)
    objective = 0.5 * np.linalg.norm(norms, norm) ** 2 + C * np.maximum(0, 1 - scores[rows, y] + rivals).sum()
    assert model.info.objective == pytest.approx(objective, rel=1e-9)
    assert model.info.certificate <= 1.001e-6 * max(1, objective)
    swept = trained(X, y, "lpmcsvm", norm=norm, C=C, algorithm="cd")
    assert model.info.objective == pytest.approx(swept.info.objective, rel=2e-6)


@pytest.mark.parametrize("C", [0.1, 3.0])
@pytest.mark.parametrize("mu", [0.0, 0.8])
def test_squared_losses_have_the_objective_of_their_model(C, mu):
    X, y = problem()
    model = trained(X, y, "mcodm", C=C, mu=mu, theta=0.2)
    assert model.info.converged
    A, K, rows = coefficients(model, len(y)), oracles.rbf(X, X, GAMMA), np.arange(len(y))
    scores = K @ A
    margins = scores[rows, y] - np.where(np.eye(3, dtype=bool)[y], -np.inf, scores).max(axis=1)
    loss = np.maximum(0, 0.8 - margins) ** 2 + mu * np.maximum(0, margins - 1.2) ** 2
    assert model.info.objective == pytest.approx(0.5 * (A * scores).sum() + C / 0.64 * loss.sum(), rel=1e-9)
    if mu == 0:
        alpha = A[rows, y]
        bound = (0.8 * alpha - 0.64 * alpha**2 / (4 * C)).sum() - 0.5 * (A * scores).sum()
        assert model.info.objective - bound <= 1.001e-6 * max(1, model.info.objective)
        swept = trained(X, y, "mcodm", C=C, mu=mu, theta=0.2, algorithm="cd")
        assert model.info.objective == pytest.approx(swept.info.objective, rel=2e-6)


@pytest.mark.parametrize("solver", ["cs", "mcodm"])
def test_bits_do_not_depend_on_threads_or_on_the_cache(solver):
    X, y = problem()
    fits = [trained(X, y, solver, C=3.0, threads=threads, cache=cache)
            for threads, cache in ((1, None), (2, 200), (1, 20), (2, 1), (1, 0.003))]
    assert all(fit.info.algorithm == "cd" for fit in fits)
    assert len({fit.dual_coef.tobytes() for fit in fits}) == 1


def test_a_crawl_is_left_to_sweeps_over_all_rows(monkeypatch):
    monkeypatch.setattr(active_sets, "PASSES", 1)
    monkeypatch.setattr(active_sets, "CRAWL", 2)
    X, y = problem()
    for solver in ("cs", "mcodm"):
        model = trained(X, y, solver, C=10.0)
        assert model.info.converged
        assert model.info.algorithm in ("accelerated", "newton")
        assert model.info.n_iter > 2
        told = [(check["n_iter"], check["seconds"]) for check in model.info.history]
        assert told == sorted(told) and told[-1][1] <= model.info.seconds
    swept = trained(X, y, "cs", C=10.0, algorithm="cd")
    assert trained(X, y, "cs", C=10.0).info.objective == pytest.approx(swept.info.objective, rel=2e-6)


def test_most_rows_free_are_left_to_sweeps_over_all_rows(monkeypatch):
    monkeypatch.setattr(active_sets, "MOST", 60)
    X, y = problem()
    fits = [trained(X, y, "mcodm", C=3.0, mu=0.0, cache=cache) for cache in (0.5, 1)]
    assert all(fit.info.converged and fit.info.algorithm == "accelerated" for fit in fits)
    swept = trained(X, y, "mcodm", C=3.0, mu=0.0, algorithm="cd")
    assert fits[0].info.objective == pytest.approx(swept.info.objective, rel=2e-6)
    assert np.array_equal(fits[0].dual_coef, fits[1].dual_coef)


def test_few_rows_are_swept_from_the_start():
    X, y = problem(17)
    for C in (1.0, 10.0, 100.0):
        assert trained(X, y, "cs", C=C, tol=1e-9).info.converged


def test_ends_by_the_budget_with_its_certificate():
    X, y = problem()
    with pytest.warns(ml.ConvergenceWarning, match="max_iter"):
        info = trained(X, y, "cs", C=3.0, max_iter=1).info
    assert not info.converged
    assert info.n_iter == 1
    assert info.certificate >= info.objective - trained(X, y, "cs", C=3.0).info.objective - 1e-4


def test_gaps_add_up_to_that_of_the_problem():
    X, y = problem(60)
    engine = BlockCD(Rows.from_gram(oracles.rbf(X, X, GAMMA)), y, 3, np.full(60, 2.0), loss="hinge")
    for _ in range(3):
        engine.sweep()
    gaps, loss, _ = engine.gaps()
    assert (gaps >= -1e-12).all()
    assert gaps.sum() == pytest.approx(engine.primal()[0] - engine.dual())
    assert loss == pytest.approx(engine.primal()[0] - engine.half_norm())


@pytest.mark.parametrize("capacity", [1, 3, 200])
@pytest.mark.parametrize("k", [2, 70])
def test_sums_of_several_columns(capacity, k):
    rng = np.random.default_rng(k)
    K = rng.standard_normal((1100, 1100)).astype(np.float32)

    class Source:
        known = False

        def fill(self, which, out):
            out[:] = K[which]

    which, C, sums = np.arange(7, 400, 3), rng.standard_normal((131, k)), rng.standard_normal((1100, k))
    C[rng.random(C.shape) < 0.5] = 0
    wanted = sums.copy()
    for row, c in zip(which, C, strict=True):
        wanted += K[row].astype(np.float64)[:, np.newaxis] * c
    RowCache(Source(), 1100, capacity).add(which, C, sums)
    assert np.array_equal(sums, wanted)
