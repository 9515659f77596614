"""Rounds over groups of rows: the dual never falls, certificates hold, bits do not depend on threads."""

import random
import time

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear._core.block_cd import BlockCD
from marginlinear._core.margin_cd import MarginCD, table_of
from marginlinear._core.rows import Rows
from marginlinear.algorithms.partitions import groups, rounds
from marginlinear.algorithms.partitions.groups import Groups, frequent, products_with_direction
from marginlinear.algorithms.partitions.rounds import Rounds, rounds_on
from marginlinear.threads import MANY

LOSSES = {
    "hinge": ((1,), ((0, -1, 1), (0, 0, 0))),
    "squared": ((1,), ((2, -2, 1), (0, 0, 0))),
    "least squares": ((), ((2, -2, 1),)),
    "three pieces": ((0.5, 1.5), ((2, -1, 0.25), (0, 0, 0), (1, -1.5, 1.125))),
    "a kink and a curve": ((1,), ((0.5, -3, 2.75), (0.5, -0.5, 0.25))),
}
CONVERGING = [("l1svc", {}), ("l2svc", {}), ("odm", {}), ("lssvm", {}), ("mamc", {}), ("ldm", {}),
              ("ldm", {"lambda1": 0}), ("cs", {}), ("mcodm", {"mu": 0}), ("mcodm", {"mu": 0.5}),
              ("mcodm", {"mu": 0.5, "outer": "paper"}), ("lpmcsvm", {})]


def data(m=60, d=9, k=2, seed=0, copies=1):
    """Rows with much in common, some of them empty: float64 X of shape (m copies, d), int32 y."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((m, d)) + 0.7
    X[::11] = 0
    y = (X[:, :k] + generator.standard_normal((m, k))).argmax(axis=1).astype(np.int32)
    return np.tile(X, (copies, 1)), np.tile(y, copies)


def binary(loss, C=1.0, seed=0, **of):
    X, y = data(seed=seed, **of)
    return MarginCD(Rows.from_dense(X), y, np.full(len(y), C), [table_of(*LOSSES[loss])], seed=seed)


def joint(squared, mu=0.0, norm=2.0, seed=0, **of):
    X, y = data(k=3, seed=seed, **of)
    engine = BlockCD(Rows.from_dense(X), y, 3, np.ones(len(y)), loss="squared" if squared else "hinge",
                     low=0.8 if squared else 1.0, high=1.2, mu=mu, norm=norm, seed=seed)
    if mu > 0:
        engine.sweep()
        engine.name_rivals(engine.best_rivals()[0])
    return engine


ENGINES = {**{name: lambda name=name, **of: binary(name, **of) for name in LOSSES},
           "joint hinge": lambda **of: joint(False, **of), "joint squares": lambda **of: joint(True, **of),
           "two-sided": lambda **of: joint(True, 0.5, **of), "norm 1.5": lambda **of: joint(False, norm=1.5, **of)}


def value(engine, W):
    """The dual that rounds raise, but for a constant: h - (1 + kappa)/2 ||W||^2."""
    h = engine.recomputed_dual(False, np.zeros_like(W))
    return h - (1 + engine.iterates.kappa) / 2 * engine.iterates.sqnorm_of(W)


def descend(made, sigma_of, turns=25):
    """Values of the dual before each round and after the last, sigma and firm of each by sigma_of(groups)."""
    found = []
    for _ in range(turns):
        made.sigma, made.firm = sigma_of(made.groups.count)
        found.append(value(made.engine, made.engine.iterates.W))
        made.sweep()
    return np.array([*found, value(made.engine, made.engine.iterates.W)])


@pytest.mark.parametrize("name", ENGINES)
def test_one_group_makes_the_sweeps_of_the_engine(name):
    plain, engine = ENGINES[name](), ENGINES[name]()
    made = Rounds(engine, Groups(engine, 1, 1, 1))
    for kappa in (0.0, 3.0):
        for one in (plain, engine):
            if kappa > 0:
                one.iterates.start(kappa)
        for _ in range(3):
            plain.sweep()
            made.sweep()
    assert np.asarray(plain.duals).tobytes() == np.asarray(engine.duals).tobytes()
    assert plain.iterates.W.tobytes() == engine.iterates.W.tobytes()
    assert (plain.gap, plain.loss, plain.n_iter, plain.visits) == (engine.gap, engine.loss, engine.n_iter,
                                                                   engine.visits)


@pytest.mark.parametrize("kappa", [0.0, 2.5])
@pytest.mark.parametrize("copies", [1, 8])
@pytest.mark.parametrize("name", ENGINES)
def test_the_dual_never_falls(name, copies, kappa):
    """Whatever sigma is: too small, at random; and where rows are there many times."""
    generator = random.Random(1)
    for sigma_of in (lambda count: (1.0, 1.0), lambda count: [generator.uniform(1, count) for _ in range(2)]):
        engine = ENGINES[name](copies=copies)
        engine.sweep()
        if kappa > 0:
            engine.iterates.start(kappa)
        made = Rounds(engine, Groups(engine, 4, 2, 1))
        values = descend(made, sigma_of)
        assert (np.diff(values) >= -1e-12 * abs(values).max()).all()
        assert values[-1] > values[0] or np.diff(values).max() < 1e-12 * abs(values).max()


def every(n):
    """Places of W of every third feature."""
    return np.flatnonzero(np.arange(n) % 3 == 0)


@pytest.mark.parametrize("kappa", [0.0, 2.5])
@pytest.mark.parametrize("name", ENGINES)
def test_the_dual_never_falls_where_frequent_features_are_exchanged(monkeypatch, name, kappa):
    """However far a section goes."""
    generator = random.Random(1)
    for far in (1.0, 1.5, np.inf):
        monkeypatch.setattr(groups, "TOO_FAR", far)
        for sigma_of in (lambda count: (1.0, 1.0), lambda count: [generator.uniform(1, count) for _ in range(2)]):
            engine = ENGINES[name]()
            engine.sweep()
            if kappa > 0:
                engine.iterates.start(kappa)
            made = Rounds(engine, Groups(engine, 4, 3, 1, often=every(len(engine.iterates.W))))
            values = descend(made, sigma_of)
            assert (np.diff(values) >= -1e-12 * abs(values).max()).all()
            assert values[-1] > values[0] or np.diff(values).max() < 1e-12 * abs(values).max()
            W = engine.iterates.W.copy()
            engine.iterates.plain()
            assert np.allclose(engine.iterates.W, engine.weights_of(engine.duals), rtol=1e-9, atol=1e-12)
            assert np.isfinite(W).all()


@pytest.mark.parametrize("name", ["hinge", "least squares", "joint hinge"])
@pytest.mark.parametrize("sections", [False, True])
def test_the_part_of_the_way_is_the_best_one(monkeypatch, name, sections):
    """Where each conjugate is one line, or one parabola, the bound is the dual itself."""
    engine = ENGINES[name]()
    engine.sweep()
    monkeypatch.setattr(groups, "TOO_FAR", np.inf)
    often = every(len(engine.iterates.W)) if sections else None
    made = Rounds(engine, Groups(engine, 4, 3 if sections else 1, 1, often=often))
    shorter = []
    for _ in range(4):
        made.sigma = made.firm = 1.0
        before, W = np.array(engine.duals), engine.iterates.W.copy()
        parts = []
        part = Rounds._part
        made._part = lambda *given, part=part, parts=parts: parts.append(part(made, *given)) or parts[-1]
        made.sweep()
        duals, t = np.array(engine.duals), parts[0]
        if t == 1:
            continue

        shorter.append(t)
        values = []
        for part in (1.0, 0.9, min(1.1, 1 / t)):
            np.asarray(engine.duals)[:] = before + part * (duals - before)
            values.append(value(engine, W + part * (engine.iterates.W - W)))
        np.asarray(engine.duals)[:] = duals
        assert values[0] == max(values)
    assert shorter


@pytest.fixture
def everywhere(monkeypatch):
    """Rounds wherever they are possible."""
    monkeypatch.setattr(rounds, "LEAST", 200)
    monkeypatch.setattr(rounds, "WORTH", 0)


@pytest.mark.parametrize(("name", "values"), CONVERGING)
def test_every_method_that_sweeps_ends_at_the_same_optimum(everywhere, name, values):
    X, y = data(120, k=3 if name in ("cs", "mcodm", "lpmcsvm") else 2)
    plain, made = (ml.train(X, y, solver=name, tol=1e-3, threads=threads, algorithm="accelerated", **values)
                   for threads in (1, 4))
    assert made.info.status == "converged"
    assert made.info.objective == pytest.approx(plain.info.objective, rel=2e-3)
    # mamc is solved by the first sweep, which takes its duals into their range.
    assert name == "mamc" or made.weights.tobytes() != plain.weights.tobytes()


@pytest.mark.parametrize("name", ["l1svc", "cs"])
def test_bits_depend_neither_on_threads_nor_on_who_ends_first(everywhere, monkeypatch, name):
    X, y = data(300, k=3 if name == "cs" else 2)
    models = [ml.train(X, y, solver=name, tol=1e-3, threads=threads) for threads in (4, 5, 8)]

    class Late:
        """A team of which any may be the last."""

        def __init__(self, threads):
            self.random = random.Random(threads)

        def run(self, work, n):
            results = {}
            for at in self.random.sample(range(n), n):
                time.sleep(self.random.random() * 1e-5)
                results[at] = work(at)
            return [results[at] for at in range(n)]

    monkeypatch.setattr("marginlinear.algorithms.partitions.groups.Team", Late)
    models.append(ml.train(X, y, solver=name, tol=1e-3, threads=4))
    assert len({model.weights.tobytes() for model in models}) == 1
    assert len({model.info.n_iter for model in models}) == 1


def test_rows_on_disk_are_dealt_window_by_window(everywhere, tmp_path):
    X, y = data(300)
    ml.Store.write([(X, y)], tmp_path / "s")
    plain, *made = [ml.train(ml.Store(tmp_path / "s"), solver="l1svc", threads=threads, memory=100_000)
                    for threads in (1, 4, 8)]
    assert made[0].info.status == "converged"
    assert made[0].info.objective == pytest.approx(plain.info.objective, rel=2e-3)
    assert made[0].weights.tobytes() == made[1].weights.tobytes() != plain.weights.tobytes()


def test_rounds_are_made_where_they_pay():
    X, y = data(3000, 40)
    engine = MarginCD(Rows.from_dense(np.tile(X, (4, 1))), np.tile(y, 4), np.ones(12000), [table_of(*LOSSES["hinge"])])
    few = MarginCD(Rows.from_dense(X), y, np.ones(3000), [table_of(*LOSSES["hinge"])])
    gram = MarginCD(Rows.from_gram(np.eye(1000)), y[:1000], np.ones(1000), [table_of(*LOSSES["hinge"])])
    assert rounds_on(engine, 8).groups.rounds == rounds_on(engine, 64).groups.rounds == 1
    assert rounds_on(few, 8) is None
    assert rounds_on(gram, 8) is None


def test_few_threads_and_the_default_make_sweeps(everywhere):
    X, y = data()
    assert len({ml.train(X, y, solver="l1svc", threads=threads).weights.tobytes() for threads in (None, 1, 2, 3)}) == 1
    assert MANY == 4


def test_the_direction_is_what_rows_share():
    X, _ = data(2000, 30)
    along = products_with_direction(Rows.from_dense(X), 1)
    first = np.linalg.svd(X, full_matrices=False)[2][0]
    assert abs(np.corrcoef(along, X @ first)[0, 1]) > 0.9
    assert np.sum(along**2) > 0.8 * np.sum((X @ first) ** 2)
    assert not products_with_direction(Rows.from_dense(np.zeros((5, 3))), 1).any()


def test_frequent_features_are_those_of_many_rows():
    X = np.zeros((40, 9))
    X[:, 4], X[::2, 7], X[0, :3] = 1, -1, 1
    for rows in (Rows.from_dense(X), Rows.from_dense(X, 1.0)):
        bias = [9] if rows.d > 9 else []
        assert frequent(rows, 20, 1, 2).tolist() == [4, 7, *bias]
        assert frequent(rows, 21, 2, 2).tolist() == [8, 9, *(place for at in bias for place in (2 * at, 2 * at + 1))]
        assert frequent(rows, 1, 1, 2) is None


def test_bits_of_sections_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(rounds, "LEAST", 200)
    monkeypatch.setattr(rounds, "WORTH", 0)
    X, y = data(300)
    X = np.hstack((X, np.eye(300)))
    rows = sparse.csr_matrix(X)
    models = [ml.train(rows, y, solver="l1svc", tol=1e-3, threads=threads) for threads in (4, 5, 8)]
    plain = ml.train(rows, y, solver="l1svc", tol=1e-3, threads=1)
    assert len({model.weights.tobytes() for model in models}) == 1
    assert models[0].info.objective == pytest.approx(plain.info.objective, rel=2e-3)
    assert models[0].weights.tobytes() != plain.weights.tobytes()


@pytest.mark.parametrize(("scale", "norm", "C"), [(1e-2, 1.0, 1e-3), (1e-3, 1.5, 1e-3), (1e-5, 1.5, 1.0)])
def test_moves_within_rounding(scale, norm, C):
    """The copies of the weights do not change where duals do."""
    rng = np.random.default_rng(0)
    X = scale * rng.normal(size=(20000, 20))
    y = (X @ rng.normal(size=(20, 2))).argmax(axis=1)
    one, four = (ml.train(X, y, solver="lpmcsvm", norm=norm, C=C, threads=threads).info for threads in (1, 4))
    assert four.converged and four.objective == pytest.approx(one.objective, rel=2e-3)
