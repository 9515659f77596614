"""Sparse weights over rows on disk and elsewhere: the optimum of rows in memory, certificates in NumPy, and what is
held."""

import functools
import itertools

import numpy as np
import pytest
from scipy import special
from scipy.sparse import csr_array, random_array

import marginlinear as ml
from marginlinear import registry
from marginlinear._core.feature_rows import combine, dual_sum, forces_of, pick
from marginlinear._core.margin_cd import table_of
from marginlinear._core.rows import Rows
from marginlinear.algorithms import surveys
from marginlinear.algorithms.partitions import fit as partitioned
from marginlinear.algorithms.partitions.communicator import InProcess
from marginlinear.algorithms.partitions.partition import Partition
from marginlinear.data.arrays import held
from marginlinear.fitting import resolved
from marginlinear.methods.l1l2svc import SQUARED_HINGE
from marginlinear.problem import Run
from marginlinear.store import layout, paging


@pytest.fixture
def windows(monkeypatch):
    """So small that no store is one."""
    monkeypatch.setattr(layout, "CHUNK", 2000)
    monkeypatch.setattr(paging, "WINDOW", 1e-4)


def text(m=600, d=4000, k=2, seed=0):
    """Sparse rows, some empty, some words in most of them."""
    generator = np.random.default_rng(seed)
    X = csr_array(random_array((m, d), density=0.004, random_state=generator))
    common = csr_array((generator.random(6 * m), generator.integers(0, 40, 6 * m), 6 * np.arange(m + 1)), shape=(m, d))
    X = csr_array(X + common)
    X.data[X.indptr[5]:X.indptr[6]] = 0
    signs = generator.standard_normal((d, k)) * (generator.random((d, 1)) < 0.05)
    return X, (X @ signs + 0.3 * generator.standard_normal((m, k))).argmax(axis=1)


def gap(name, X, y, W, C, norm=np.abs):
    """(P, D) of weights of shape (d, columns), D by the forces scaled to be feasible; `norm` of features' weights."""
    if name == "smlr":
        scores = X @ W
        own = np.eye(scores.shape[1])[y]
        p = special.softmax(scores, axis=1)
        U = C * X.T @ (own - p)
        share = min(1.0, 1 / norm(U).max())
        mixed = own + share * (p - own)
        return (norm(W).sum() + C * (special.logsumexp(scores, axis=1) - scores[own > 0]).sum(),
                C * special.entr(mixed).sum())
    signs = np.where(y == 1, 1.0, -1.0)
    g = signs * (X @ W[:, 0])
    if name == "l1lr":
        loss, a = np.logaddexp(0, -g), C * special.expit(-g)
        U = X.T @ (signs * a)
        a *= min(1.0, 1 / abs(U).max())
        return abs(W).sum() + C * loss.sum(), C * (special.entr(a / C) + special.entr(1 - a / C)).sum()
    loss, a = np.maximum(0, 1 - g)**2, 2 * C * np.maximum(0, 1 - g)
    a *= min(1.0, 1 / abs(X.T @ (signs * a)).max())
    return abs(W).sum() + C * loss.sum(), (a - a * a / (4 * C)).sum()


@pytest.mark.parametrize(("name", "k", "penalty", "norm"), [
    ("l1lr", 2, {}, np.abs), ("l1l2svc", 2, {}, np.abs), ("smlr", 3, {}, np.abs),
    *(("smlr", k, {"penalty": "group"}, functools.partial(np.linalg.norm, axis=1)) for k in (2, 3))])
def test_a_store_has_the_optimum_of_memory(tmp_path, windows, name, k, penalty, norm):
    X, y = text(k=k)
    given = {"solver": name, "C": 5.0, "tol": 1e-3, **penalty}
    here = ml.train(X, y, **given, threads=1)
    store = ml.Store.write([(X, y)], tmp_path / "s")
    told = []
    there = ml.train(store, **given, memory="1G", threads=1, callback=told.append)
    info = there.info
    assert info.converged and len(told) == len(info.history)
    assert there.weights.any() and info.bound <= here.info.objective and here.info.bound <= info.objective
    P, D = gap(name, X, y, there.weights, 5.0, norm)
    assert info.objective == pytest.approx(P, rel=1e-12)
    # The bound is the best of all surveys, and of a share that is no less than that which only makes it feasible.
    assert D - 1e-9 * P <= info.bound <= P
    # A survey a check, a count, and the gatherings.
    assert len(info.history) + 2 <= info.passes <= 12
    again = ml.train(store, **given, memory="1G", threads=2)
    assert again.weights.tobytes() == there.weights.tobytes()
    # From another C's weights, few are to be found anew.
    start = ml.train(store, **{**given, "C": 4.5}, memory="1G", threads=1)
    gone_on = ml.train(store, **given, memory="1G", threads=1, start=start)
    assert gone_on.info.converged and gone_on.info.n_iter < info.n_iter


@pytest.mark.parametrize("name", ["l1lr", "smlr"])
def test_features_without_room_take_turns(tmp_path, windows, name):
    X, y = text(m=300, d=600, k=3 if name == "smlr" else 2)
    given = {"solver": name, "C": 5.0, "tol": 1e-3, "free_bias": True, "threads": 1}
    best = ml.train(X, y, **given).info
    store = ml.Store.write([(X, y)], tmp_path / "s")
    with pytest.raises(MemoryError, match=r"scores of 300 rows, .* give at least [0-9,]+$") as caught:
        ml.train(store, **given, memory=120_000)
    least = int(str(caught.value).rpartition(" ")[2].replace(",", ""))
    model = ml.train(store, **given, memory=least + 15_000)
    assert model.info.converged and "for turns" in model.info.notes[2]
    assert "together need more than 0.6 of memory" in model.info.notes[3]
    assert best.bound <= model.info.objective and model.info.bound <= best.objective
    with pytest.warns(ml.ConvergenceWarning):
        info = ml.train(store, **given, memory=least, max_iter=1).info
    assert info.status == "max_iter" and "for turns" in info.notes[2]


@pytest.mark.parametrize("name", ["l1lr", "smlr"])
def test_biases_that_cost_nothing_go_on_from_any_start(tmp_path, windows, name):
    """The bound is one from the first check on, whose biases are those of the start."""
    X, y = text(k=3 if name == "smlr" else 2)
    store = ml.Store.write([(X, y)], tmp_path / "s")
    given = {"solver": name, "free_bias": True, "threads": 1, "memory": "1G"}
    best = ml.train(X, y, solver=name, free_bias=True, C=3.0, tol=1e-6).info
    start = ml.train(store, **given, C=20.0, tol=0.1)
    model = ml.train(store, **given, C=3.0, tol=1e-4, start=start)
    assert model.info.converged and best.bound <= model.info.objective
    assert all(check["bound"] <= best.objective for check in model.info.history)
    with pytest.warns(ml.ConvergenceWarning):
        ended = ml.train(store, **given, C=3.0, start=start, time_limit=1e-9).info
    assert ended.status == "time_limit" and ended.bound <= best.objective <= ended.objective


@pytest.mark.parametrize("threads", [1, 2])
def test_what_ends_a_survey_ends_all_of_it(tmp_path, windows, monkeypatch, threads):
    """Within a group of rows; there are weights to go on from."""
    X, y = text()
    store = ml.Store.write([(X, y)], tmp_path / "s")
    seen, forces = [], surveys.MarginForces.forces

    def interrupted(self, scores, lo, hi):
        seen.append(lo)
        if len(seen) > 6:
            raise KeyboardInterrupt
        return forces(self, scores, lo, hi)

    monkeypatch.setattr(surveys.MarginForces, "forces", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ml.train(store, solver="l1lr", memory="1G", threads=threads)
    assert len(seen) <= 6 + threads


def test_searches_go_over_a_store(tmp_path, windows):
    X, y = text()
    store = ml.Store.write([(X, y)], tmp_path / "s")
    given = {"solver": "l1lr", "grid": {"C": [1.0, 10.0]}, "folds": 3, "tol": 1e-4, "seed": 1}
    here, there = ml.search(X, y, **given), ml.search(store, **given, memory="1G")
    assert here.best_params == there.best_params and here.best_score == pytest.approx(there.best_score, abs=0.01)


@pytest.mark.parametrize("how", ["ovr", "ovo"])
def test_columns_over_partitions_are_those_of_one_machine(how):
    X, y = text(k=3)
    method = registry.get("l1lr")
    values, run = resolved(method, {"C": 5.0, "tol": 1e-6, "multiclass": how})
    bias, cuts = run.pop("bias"), (0, 100, 350, 350, 600)
    weights = np.linspace(0.5, 2.0, 600)
    parts = [Partition(held(X[lo:hi]), y[lo:hi].astype(np.int32), 3, weights[lo:hi], np.ones(hi - lo),
                       float(weights.sum()), bias, number) for number, (lo, hi) in enumerate(itertools.pairwise(cuts))]
    sizes = tuple(np.bincount(y, weights).tolist())
    solution = partitioned.fit(method, partitioned.Whole(X.shape[1], 3, sizes, bias, 4),
                               {p.name: values[p.name] for p in method.params}, Run(**{**run, "shared": False}), how,
                               InProcess(parts))
    model = ml.train(X, y, solver="l1lr", C=5.0, tol=1e-6, multiclass=how, sample_weight=weights)
    assert solution.info.status == "converged"
    assert solution.info.objective == pytest.approx(model.info.objective, rel=3e-6)
    np.testing.assert_allclose(X @ solution.weights, X @ model.weights, atol=0.05)
    assert solution.state["numbers_sent"] > 0


@pytest.mark.parametrize("bias", [-1.0, 2.0])
@pytest.mark.parametrize("kind", ["csr64", "csr32", "narrow64", "equal64", "dense64", "dense32"])
def test_kernels_of_every_storage(kind, bias):
    generator = np.random.default_rng(0)
    A = generator.integers(0, 3, (30, 12)) * (1.0 if kind == "equal64" else 0.5)
    A[A > 0] = 1.5 if kind == "equal64" else A[A > 0]
    A[4] = 0
    X = csr_array(A)
    dtype = np.float32 if kind.endswith("32") else np.float64
    if kind.startswith("dense"):
        rows = Rows.from_dense(np.ascontiguousarray(A, dtype), bias)
    elif kind == "equal64":
        rows = Rows.from_equal(np.full(30, 1.5), X.indices.astype(np.int32), X.indptr.astype(np.int64), 12, bias)
    else:
        rows = Rows.from_csr(X.data.astype(dtype), X.indices.astype(np.uint16 if kind == "narrow64" else np.int32),
                             X.indptr.astype(np.int64), 12, bias)
    whole = A if bias < 0 else np.hstack((A, np.full((30, 1), bias)))
    forces = generator.standard_normal((20, 3))
    for k in (1, 3):
        sums = np.ones((rows.d, k))
        combine(rows, np.ascontiguousarray(forces[:, :k]), sums, 5, 25)
        np.testing.assert_allclose(sums, 1 + whole[5:25].T @ forces[:, :k], atol=1e-12)
    features = np.array([1, 4, 5, 11])
    np.testing.assert_array_equal(surveys.counts_of(rows), (A != 0).sum(axis=0))
    found = csr_array(surveys.picked(rows, features, np.count_nonzero(A[:, features])), shape=(30, 4))
    np.testing.assert_array_equal(found.toarray(), A[:, features])
    with pytest.raises(ValueError, match="shapes do not fit"):
        combine(rows, forces, np.ones((rows.d, 2)), 5, 25)
    with pytest.raises(ValueError, match="shapes do not fit"):
        pick(rows, np.zeros(3, np.int32), np.zeros(31, np.int64), np.zeros(1), np.zeros(1, np.int32), 0, 30)


@pytest.mark.parametrize("loss", [((), "softplus"), SQUARED_HINGE])
def test_forces_and_their_duals(loss):
    generator = np.random.default_rng(0)
    y, cost, scores = generator.integers(0, 2, 50).astype(np.int32), generator.random(50), generator.standard_normal(50)
    signs, out = 2.0 * y - 1, np.empty(50)
    total = forces_of(table_of(*loss), cost, y, scores, out)
    g = signs * scores
    values, slopes = ((np.logaddexp(0, -g), special.expit(-g)) if loss[1] == "softplus" else
                      (np.maximum(0, 1 - g)**2, 2 * np.maximum(0, 1 - g)))
    assert total == pytest.approx(cost @ values)
    np.testing.assert_allclose(out, signs * cost * slopes, atol=1e-14)
    # Fenchel's equality.
    assert dual_sum(table_of(*loss), cost, y, out, 1.0) == pytest.approx(total + out @ scores)
