"""Renumbered rows: the same problem with fewer features, and the way of weights there and back."""

import numpy as np
import pytest
from scipy import sparse

import marginlinear
from marginlinear._core import renumber as module
from marginlinear._core.renumber import renumber
from marginlinear._core.rows import Rows
from marginlinear.api import Shared, fit_model
from marginlinear.data import arrays as door
from marginlinear.data.arrays import CSR, held
from marginlinear.data.kernels import GramCache

SEEDS = range(6)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Small rows are copied and renumbered as large ones are."""
    monkeypatch.setattr(door, "NARROW", 0)
    monkeypatch.setattr(module, "FEW", 0)


def words(seed, m=40, n=120, dtype=np.float64):
    """(X, y) as of text: most features occur once or never; empty rows, explicit zeros."""
    rng = np.random.default_rng(seed)
    chance = 2.0 / (1 + np.arange(n))
    X = np.where(rng.random((m, n)) < chance, rng.normal(size=(m, n)), 0)[:, rng.permutation(n)]
    X[rng.integers(m)] = 0
    X = sparse.csr_array(X.astype(dtype))
    X.data[rng.random(X.nnz) < 0.05] = 0
    return X, rng.integers(0, 2, m)


def rows_of(X, bias=-1.0):
    return Rows.from_csr(X.data, X.indices, X.indptr.astype(np.int64), X.shape[1], bias)


def dense_of(rows):
    data, indices, indptr = map(np.asarray, rows.arrays)
    return sparse.csr_array((data, indices, indptr), shape=(rows.m, rows.n)).toarray()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inner_products_stay(seed, dtype):
    X, _ = words(seed, dtype=dtype)
    given = rows_of(X)
    made = renumber(given).rows
    occurring = (np.bincount(X.indices, minlength=X.shape[1]) > 0).sum()
    assert made.n <= occurring and (made.nnz <= X.nnz)
    small, large = dense_of(made).astype(np.float64), X.toarray().astype(np.float64)
    np.testing.assert_allclose(small @ small.T, large @ large.T, rtol=1e-13, atol=1e-13)
    assert made.sqnorms() is given.sqnorms()


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_equal_values_have_one_each(seed):
    X, _ = words(seed)
    X.data[:] = np.repeat(np.random.default_rng(seed).uniform(0.1, 1, X.shape[0]), np.diff(X.indptr))
    made = renumber(rows_of(X))
    assert made.rows.equal
    dense = sparse.csr_array((made.rows.stored(), *made.rows.arrays[1:]), shape=(made.rows.m, made.rows.n)).toarray()
    np.testing.assert_allclose(dense @ dense.T, (X @ X.T).toarray(), rtol=1e-13, atol=1e-13)
    weights = np.random.default_rng(seed).normal(size=X.shape[1])
    np.testing.assert_allclose(dense @ made.to_inner(weights), X @ weights, rtol=1e-12, atol=1e-12)
    one = X.copy()
    one.data[-1] *= 2
    alone = X.indptr[-1] - X.indptr[-2] == 1
    assert alone or not renumber(rows_of(one)).rows.equal


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("near", [0, 5, 10**6])
def test_features_by_frequency(seed, near, monkeypatch):
    monkeypatch.setattr(module, "NEAR", near)
    X, _ = words(seed)
    made = renumber(rows_of(X)).rows
    counts = np.bincount(X.indices, minlength=X.shape[1])
    order = np.argsort(-counts, kind="stable")[:(counts > 1).sum()]
    places = {j: at for at, j in enumerate(order.tolist())}
    _, indices, indptr = map(np.asarray, made.arrays)
    for i in range(X.shape[0]):
        expected = [places[j] for j in X.indices[X.indptr[i]:X.indptr[i + 1]].tolist() if j in places]
        expected.sort(key=lambda place: place >= near)
        found = indices[indptr[i]:indptr[i + 1]].tolist()
        assert found[:len(expected)] == expected and all(j >= len(order) for j in found[len(expected):])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bias", [-1.0, 0.5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weights_there_and_back(seed, bias, dtype):
    X, _ = words(seed, dtype=dtype)
    found = renumber(rows_of(X, bias))
    made = found.rows
    here = np.random.default_rng(seed).normal(size=made.d)
    there = np.asarray(found.to_outer(here))
    assert there.shape == (X.shape[1] + (bias >= 0),)
    absent = np.bincount(X.indices, minlength=X.shape[1]) == 0
    assert not there[:X.shape[1]][absent].any()
    np.testing.assert_allclose(X @ there[:X.shape[1]], dense_of(made) @ here[:made.n], rtol=1e-5, atol=1e-12)
    # A private feature whose values are all explicit zeros has no weight to come back.
    known = np.append((dense_of(made) != 0).any(axis=0), np.ones(made.d - made.n, dtype=bool))
    np.testing.assert_allclose(found.to_inner(there)[known], here[known], rtol=1e-13)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_and_place_change_nothing(threads, monkeypatch):
    X, _ = words(1, m=300, n=900)
    wanted = [np.array(array) for array in renumber(rows_of(X)).rows.arrays]
    kept = X.copy()
    found = renumber(rows_of(X), threads)
    assert np.array_equal(X.data, kept.data) and np.array_equal(X.indices, kept.indices)
    own = rows_of(X.copy())
    in_place = renumber(own, threads, True)
    assert np.shares_memory(in_place.rows.arrays[0], own.arrays[0])
    for arrays in (found.rows.arrays, in_place.rows.arrays):
        assert all(np.array_equal(a, b) for a, b in zip(arrays, wanted, strict=True))
    w = np.arange(float(found.rows.d))
    assert np.array_equal(found.to_outer(w), in_place.to_outer(w))


def equal_words(seed):
    """(Rows of float64 values, the same with one value a row, y): no empty column of values, one value in a row."""
    X, y = words(seed, m=60, n=300)
    each = np.random.default_rng(seed).normal(size=60)
    X.data[:] = np.repeat(each, np.diff(X.indptr))
    indptr = X.indptr.astype(np.int64)
    return X, CSR(None, X.indices.copy(), indptr, X.shape[1], equal=each), y


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("in_place", [False, True])
def test_rows_of_equal_values(seed, in_place):
    """What stands for the features of one row alone is a last value of its own."""
    X, given, _ = equal_words(seed)
    plain = renumber(rows_of(X.copy()))
    rows = Rows.from_equal(given.equal, given.indices, given.indptr, X.shape[1])
    found = renumber(rows, 1, in_place)
    assert found.rows.equal and np.shares_memory(found.rows.arrays[1], given.indices) == in_place
    assert found.rows.stored().tobytes() == plain.rows.stored().tobytes()
    for a, b in zip(found.rows.arrays[1:], plain.rows.arrays[1:], strict=True):
        assert np.array_equal(a, b)
    w = np.random.default_rng(seed).normal(size=found.rows.d)
    there = np.asarray(found.to_outer(w))
    assert there.tobytes() == np.asarray(plain.to_outer(w)).tobytes()
    assert found.to_inner(there).tobytes() == plain.to_inner(there).tobytes()
    assert renumber(found.rows) is None


@pytest.mark.parametrize("solver", ["l1svc", "l2svc", "ldm", "odm"])
def test_fits_on_rows_of_equal_values_have_the_same_bits(solver, rows_as_given):
    X, given, y = equal_words(3)
    plain = marginlinear.train(X, y, solver=solver)
    assert fit_model(given, y, solver=solver, overwrite_rows=True).weights.tobytes() == plain.weights.tobytes()


def test_arrays_that_cannot_be_written_to_are_copied():
    X, _ = words(2)
    X.data.flags.writeable = False
    rows = rows_of(X)
    assert not np.shares_memory(renumber(rows, 1, True).rows.arrays[0], X.data)


def test_made_once_and_only_of_many_sparse_features(monkeypatch):
    X, _ = words(3)
    rows = rows_of(X)
    assert renumber(rows) is renumber(rows)
    assert renumber(Rows.from_dense(X.toarray())) is None
    assert renumber(Rows.from_gram((X @ X.T).toarray())) is None
    monkeypatch.setattr(module, "FEW", X.shape[1])
    assert renumber(rows_of(X)) is None
    # Fewer values than features.
    assert renumber(rows_of(X[:2])) is not None


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_narrow_features_give_the_same_rows(dtype):
    X, _ = words(3, dtype=dtype)
    wide = rows_of(X)
    narrow = Rows.from_csr(X.data, X.indices.astype(np.uint16), X.indptr.astype(np.int64), X.shape[1])
    for a, b in zip(renumber(narrow).rows.arrays, renumber(wide).rows.arrays, strict=True):
        assert np.array_equal(a, b)
    assert renumber(narrow).rows.sqnorms() is narrow.sqnorms()


@pytest.mark.parametrize("solver", ["l1svc", "l2svc", "ldm", "odm", "l1lr", "l1l2svc", "smlr"])
@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_fits_reach_the_same_optimum(solver, bias, monkeypatch, rows_as_given):
    X, y = words(4, m=60, n=300)
    found = marginlinear.train(X, y, solver=solver, tol=1e-9, bias=bias)
    monkeypatch.setattr(module, "FEW", X.shape[1])
    plain = marginlinear.train(X, y, solver=solver, tol=1e-9, bias=bias)
    assert found.info.converged and found.weights.shape == plain.weights.shape
    assert found.info.objective == pytest.approx(plain.info.objective, rel=2e-9)
    np.testing.assert_allclose(found.decision_function(X), plain.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("solver", ["l1lr", "l1l2svc"])
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_the_objective_of_sparse_weights_is_that_of_the_given_features(solver, C, rows_as_given):
    """What one row alone has may not be rotated: 1-norms of weights change."""
    X, y = words(6, m=60, n=300)
    X = sparse.hstack([X, sparse.csr_array((60, 1000))], format="csr")
    model = marginlinear.train(X, y, solver=solver, C=C, tol=1e-9)
    margins = np.where(y > 0, 1, -1) * (X @ model.weights[:, 0])
    losses = np.logaddexp(0, -margins) if solver == "l1lr" else np.maximum(0, 1 - margins)**2
    assert model.info.objective == pytest.approx(np.abs(model.weights).sum() + C * losses.sum(), rel=1e-9)
    found, zero = (int(note.split()[0]) for note in model.info.notes)
    assert found == np.count_nonzero(model.weights) and 1000 <= zero <= 1300 - found
    # A fit to which the norm is all that counts may come before on the same rows.
    rows = rows_of(X)
    assert renumber(rows).rows.n < renumber(rows, rotated=False).rows.n == len(np.unique(X.indices))


@pytest.mark.parametrize("solver", ["l1svc", "logistic", "l1svr", "nusvc"])
@pytest.mark.parametrize("algorithm", ["cd", "newton"])
def test_a_free_bias_is_fitted_several_times_to_rows_that_are_spent_once(solver, algorithm, monkeypatch):
    X, y = words(7, m=60, n=300)
    params = {"nu": 0.3} if solver == "nusvc" else {"free_bias": True, "algorithm": algorithm}
    given = CSR(X.data.copy(), X.indices.copy(), X.indptr.astype(np.int64), X.shape[1])
    kept = []
    found = fit_model(given, y, solver=solver, tol=1e-9, overwrite_rows=True,
                      callback=lambda progress: kept.append(progress.model()), **params)
    monkeypatch.setattr(module, "FEW", X.shape[1])
    plain = marginlinear.train(X, y, solver=solver, tol=1e-9, **params)
    assert found.info.converged and found.info.objective == pytest.approx(plain.info.objective, rel=2e-9)
    np.testing.assert_allclose(found.decision_function(X), plain.decision_function(X), atol=1e-3)
    for model in kept:
        assert model.info.bound <= found.info.objective + 1e-9 * abs(found.info.objective) <= (
            model.info.objective + 2e-9 * abs(found.info.objective))


@pytest.mark.parametrize("solver", ["l1svc", "ldm", "msv", "odm"])
def test_newton_steps_know_the_curvature(solver, monkeypatch, rows_as_given):
    """Few features of few values a row: the sum of their products is made one by one, wherever they stand."""
    rng = np.random.default_rng(8)
    few = sparse.random_array((400, 60), density=0.05, rng=rng, data_sampler=rng.normal, format="csr")
    X = sparse.csr_array((few.data, 7 * few.indices, few.indptr), shape=(400, 1000))
    y = (few @ rng.normal(size=60) + 0.3 * rng.normal(size=400) > 0).astype(int)
    found = marginlinear.train(X, y, solver=solver, algorithm="newton", tol=1e-8, C=10.0, bias=1.0)
    monkeypatch.setattr(module, "FEW", X.shape[1])
    plain = marginlinear.train(few, y, solver=solver, algorithm="newton", tol=1e-8, C=10.0, bias=1.0)
    assert found.info.converged and found.info.objective == pytest.approx(plain.info.objective, rel=2e-8)
    assert found.info.n_iter <= 1.5 * plain.info.n_iter + 5


def test_the_paper_s_algorithm_asks_for_rows_again():
    X, y = words(9, m=60, n=300)
    given = CSR(X.data.copy(), X.indices.copy(), X.indptr.astype(np.int64), X.shape[1])
    found = fit_model(given, y, solver="ldm", algorithm="paper", tol=1e-4, overwrite_rows=True)
    assert found.info.converged
    assert found.info.objective == pytest.approx(marginlinear.train(X, y, solver="ldm", tol=1e-4).info.objective,
                                                 rel=2e-4)


def test_goes_on_from_its_own_model(rows_as_given):
    X, y = words(5, m=60, n=300)
    first = marginlinear.train(X, y, solver="l1svc", tol=1e-6)
    again = marginlinear.train(X, y, solver="l1svc", tol=1e-6, start=first)
    assert again.info.n_iter == 0 and again.info.objective == pytest.approx(first.info.objective, rel=1e-12)
    tighter = marginlinear.train(X, y, solver="l1svc", tol=1e-8, C=2, start=first)
    assert tighter.info.converged


def test_several_columns_share_the_rows(rows_as_given):
    X, _ = words(0, m=60, n=300)
    y = np.arange(60) % 4
    kept = X.copy()
    threads = [marginlinear.train(X, y, solver="l1svc", algorithm="accelerated", tol=1e-6, threads=count)
               for count in (1, 3)]
    assert all(model.info.converged for model in threads)
    assert np.array_equal(threads[0].weights, threads[1].weights)
    assert np.array_equal(X.data, kept.data) and np.array_equal(X.indices, kept.indices)


def test_rows_are_spent_only_where_that_is_allowed(rows_as_given):
    X, y = words(1, m=60, n=300)
    given = CSR(X.data.copy(), X.indices.copy(), X.indptr.astype(np.int64), X.shape[1])
    kept = marginlinear.train(given, y, solver="l1svc")
    assert np.array_equal(given.indices, X.indices) and np.array_equal(given.data, X.data)
    spent = fit_model(given, y, solver="l1svc", overwrite_rows=True)
    assert not np.array_equal(given.indices, X.indices)
    assert np.array_equal(kept.weights, spent.weights)


def test_a_copy_of_the_indices_is_spent_and_the_callers_arrays_are_not(rows_as_given):
    X, y = words(1, m=60, n=300)
    kept = X.copy()
    csr = held(X, spare=True)
    rows = rows_of(csr)
    found = renumber(rows, 1, True).rows
    assert np.shares_memory(found.arrays[1], csr.indices) and not np.shares_memory(found.arrays[1], X.indices)
    assert not np.shares_memory(found.arrays[0], X.data)
    assert np.array_equal(marginlinear.train(X, y, solver="l1svc").weights,
                          fit_model(kept.copy(), y, solver="l1svc", shared=Shared(GramCache())).weights)
    assert np.array_equal(X.data, kept.data) and np.array_equal(X.indices, kept.indices) and X.data.flags.writeable
