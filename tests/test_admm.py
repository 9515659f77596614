"""ADMM: rough weights that sweeps or Newton steps go on from."""

import numpy as np
import pytest

import marginlinear as ml
from marginlinear import threads
from marginlinear._core import admm
from marginlinear._core.admm import ADMM, PERIOD, SCHEDULES, SPREAD
from marginlinear._core.block_cd import BlockCD
from marginlinear._core.rows import Rows
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.dual import JointFit


def problem(m=300, d=12, k=4, seed=0):
    """Overlapping classes, features that go together, and one empty row."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=m)
    X = 2 + rng.normal(size=(m, d)) + rng.normal(size=(k, d))[y]
    X[3] = 0
    return X, y


def engine_of(X, y, mu, threads=1):
    cost = np.random.default_rng(1).uniform(0.5, 2, len(y))
    return BlockCD(Rows.from_dense(X), y.astype(np.int32), int(y.max()) + 1, cost, loss="squared", low=0.8, high=1.2,
                   mu=mu, threads=threads)


def run(engine, n, **budget):
    return ADMM(engine).run(n, Budget(budget.get("max_iter"), None))


def test_first_weights_are_those_of_least_squares():
    X, y = problem()
    engine = engine_of(X, y, 0.7)
    assert np.isfinite(run(engine, 1))
    rho = SCHEDULES[0][0] * np.asarray(engine.cost)[:, np.newaxis]
    scores = np.eye(4)[y] + admm.spread(np.empty(4 * len(y)), 0).reshape(-1, 4)
    wanted = np.linalg.solve(np.eye(X.shape[1]) + X.T @ (rho * X), X.T @ (rho * scores))
    np.testing.assert_allclose(engine.iterates.W, wanted.ravel(), rtol=1e-9, atol=1e-12)


def test_it_goes_to_the_minimum_where_that_is_one():
    X, y = problem()
    engine, other = engine_of(X, y, 0.0), engine_of(X, y, 0.0)
    assert run(engine, 200) == engine.primal()[1]
    for _ in range(3000):
        other.sweep()
    assert other.primal()[0] - other.dual() <= 1e-3 * other.primal()[0]
    assert engine.primal()[0] <= 1.01 * other.primal()[0]


def test_it_leaves_a_start_that_is_feasible_and_consistent():
    X, y = problem()
    engine = engine_of(X, y, 0.7)
    assert run(engine, 60) < 0.5 * engine.loss_at_zero()
    others = np.arange(4) != y[:, np.newaxis]
    alpha = np.asarray(engine.alpha)
    assert alpha[others].max() <= 0
    assert np.min(engine.beta) >= 0
    np.testing.assert_allclose(alpha.sum(axis=1), 0, atol=1e-9 * alpha.max())
    assert engine.named
    assert engine.dual() == pytest.approx(engine.recomputed_dual(False), rel=1e-9)
    assert engine.dual() <= engine.primal()[0]


def test_any_number_of_threads_gives_the_same_bits():
    X, y = problem(m=8000, d=60)
    found = []
    for count in 1, 2, 5:
        engine = engine_of(X, y, 0.7, count)
        run(engine, 15)
        found.append(engine.iterates.W.tobytes() + np.asarray(engine.alpha).tobytes())
    assert found[0] == found[1] == found[2]


def test_threads_start_where_an_iteration_is_worth_it(monkeypatch):
    helpers = []
    started = threads.started
    monkeypatch.setattr(threads, "started", lambda work, count: helpers.append(count) or started(work, count))
    run(engine_of(*problem(), 0.7, threads=2), 15)
    assert not helpers
    run(engine_of(*problem(m=8000, d=60), 0.7, threads=2), 15)
    assert len(helpers) >= 15


def test_a_budget_ends_it():
    X, y = problem()
    engine = engine_of(X, y, 0.7)
    run(engine, 60, max_iter=7)
    assert engine.n_iter == 7


def test_a_system_that_is_singular_to_rounding_leaves_the_engine_at_zero(monkeypatch):
    X, y = problem()
    turns = iter(range(100))
    inner = admm.factor
    monkeypatch.setattr(admm, "factor", lambda *given: next(turns) < 2 and inner(*given))
    engine = engine_of(X, y, 0.7)
    assert run(engine, 60) == np.inf
    assert engine.n_iter > PERIOD
    assert not engine.iterates.W.any()
    assert not engine.named
    assert np.isfinite(engine.alpha).all()


@pytest.mark.parametrize("mu", [0.0, 0.8])
def test_a_fit_that_begins_so_is_certified_and_no_worse(mu, monkeypatch):
    X, y = problem(m=600, d=40, k=6)
    runs = []
    inner = ADMM.run
    monkeypatch.setattr("marginlinear.algorithms.dual.WORTH", 100.0)
    monkeypatch.setattr("marginlinear._core.admm.ADMM",
                        type("Counted", (ADMM,), {"run": lambda *given: runs.append(1) or inner(*given)}))
    model = ml.train(X, y, solver="mcodm", C=10, mu=mu, tol=1e-3)
    other = ml.train(X, y, solver="mcodm", C=10, mu=mu, tol=1e-3, algorithm="accelerated")
    assert len(runs) == (len(SCHEDULES) if mu > 0 else 0)
    assert model.info.converged
    assert other.info.converged
    assert model.info.objective <= 1.03 * other.info.objective


def test_it_tells_its_progress():
    X, y = problem()
    engine, seen = engine_of(X, y, 0.7), []
    ADMM(engine).run(60, Budget(None, None, seen.append))
    assert [entry["n_iter"] for entry in seen] == [10, 20, 30, 40, 50, 60]
    assert all(entry["bound"] == 0 < entry["certificate"] == entry["objective"] for entry in seen)


def test_a_start_at_another_cost_gives_way_to_it(monkeypatch):
    """One at the same costs is gone on from."""
    monkeypatch.setattr("marginlinear.algorithms.dual.WORTH", 100.0)
    X, y = problem(m=600, d=40, k=6)
    first, cold = (ml.train(X, y, solver="mcodm", C=C, tol=1e-3) for C in (5, 10))
    warm = ml.train(X, y, solver="mcodm", C=10, tol=1e-3, start=first)
    assert warm.weights.tobytes() == cold.weights.tobytes()
    assert warm.info.n_iter == cold.info.n_iter > 30
    again = ml.train(X, y, solver="mcodm", C=10, tol=1e-3, start=cold)
    assert again.info.n_iter < 10


def test_a_start_of_lower_objective_is_gone_on_from(monkeypatch):
    X, y = problem(m=600, d=40, k=6)
    near, far = (ml.train(X, y, solver="mcodm", C=C, tol=1e-4) for C in (9.999, 0.01))
    begun, inner = [], JointFit.until
    monkeypatch.setattr(JointFit, "until",
                        lambda fit, *given: begun.append(fit.engine.primal()[1]) or inner(fit, *given))
    warm = ml.train(X, y, solver="mcodm", C=10, tol=1e-4, start=near)
    assert begun[0] == pytest.approx(near.info.objective, rel=1e-2)
    assert not warm.info.notes
    left = ml.train(X, y, solver="mcodm", C=10, tol=1e-4, start=far)
    assert left.info.notes[0].startswith("start left: its objective is ")


def test_the_noise_of_a_start():
    noise = admm.spread(np.empty(100_000), 5)
    assert noise.mean() == pytest.approx(0, abs=0.01 * SPREAD)
    assert noise.std() == pytest.approx(SPREAD, rel=0.01)
    assert abs(noise).max() <= np.sqrt(3) * SPREAD


def test_seeds_have_starts_of_their_own():
    X, y = problem()
    engines = [engine_of(X, y, 0.7) for _ in range(3)]
    for engine, seed in zip(engines, (3, 3, 4), strict=True):
        ADMM(engine).run(1, Budget(None, None), seed)
    a, b, c = (np.array(engine.iterates.W) for engine in engines)
    assert (a == b).all()
    assert (a != c).any()


def test_rows_that_no_weights_fit_end_it_early():
    """J near P(0): what is left of the iterations would change little."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), rng.integers(3, size=300)
    engine = engine_of(X, y, 0.7)
    assert run(engine, 60) > 0.25 * engine.loss_at_zero()
    assert engine.n_iter == PERIOD


def test_a_start_without_upper_loss_is_judged_by_the_whole_objective():
    X, y = problem(m=600, d=40, k=6)
    lower = ml.train(X, y, solver="mcodm", C=9.999, mu=0, tol=1e-4)
    note, = ml.train(X, y, solver="mcodm", C=10, mu=1.0, tol=1e-4, start=lower).info.notes
    told = float(note.split(" is ")[1].split(",")[0])
    assert told > 1.2 * lower.info.objective
