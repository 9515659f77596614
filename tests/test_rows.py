"""The row kernels against NumPy, for every storage, with and without a bias feature."""

import numpy as np
import pytest
from scipy import sparse

from marginlinear._core import testing
from marginlinear._core.rows import Rows

M, N = 9, 13


def values():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((M, N)).astype(np.float32).astype(np.float64)
    X[rng.random((M, N)) < 0.5] = 0
    X[4] = 0
    return X


def csr_rows(X, bias, dtype):
    csr = sparse.csr_array(X.astype(dtype))
    indices, indptr = csr.indices.astype(np.int32), csr.indptr.astype(np.int64)
    return Rows.from_csr(csr.data, indices, indptr, X.shape[1], bias)


MAKERS = {
    "csr64": lambda X, bias: csr_rows(X, bias, np.float64),
    "csr32": lambda X, bias: csr_rows(X, bias, np.float32),
    "dense64": lambda X, bias: Rows.from_dense(X, bias),
    "dense32": lambda X, bias: Rows.from_dense(X.astype(np.float32), bias),
}


@pytest.fixture(params=[(name, bias) for name in MAKERS for bias in (-1.0, 0.0, 2.5)], ids=str)
def stored(request):
    """(Rows, the same numbers with the bias feature as last column)."""
    name, bias = request.param
    X = values()
    return MAKERS[name](X, bias), np.hstack([X, np.full((M, 1), bias)]) if bias >= 0 else X


def close(left, right):
    return np.allclose(left, right, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 8, 9, 17, 40])
def test_scores_and_updates(stored, k):
    rows, X = stored
    rng = np.random.default_rng(k)
    W = rng.standard_normal((rows.d, k))
    assert (rows.m, rows.d) == X.shape
    for i in range(M):
        assert close(testing.row_scores(rows, i, W), X[i] @ W)
        for which in (np.arange(k), np.sort(rng.permutation(k)[: (k + 1) // 2])):
            delta, moved = rng.standard_normal(k), W.copy()
            testing.row_update(rows, i, delta, which.astype(np.int32), moved)
            used = np.where(np.isin(np.arange(k), which), delta, 0)
            assert close(moved, W + np.outer(X[i], used))


def test_one_column(stored):
    rows, X = stored
    w = np.random.default_rng(1).standard_normal(rows.d)
    for i in range(M):
        moved = w.copy()
        testing.row_axpy(rows, i, -0.7, moved)
        assert close(moved, w - 0.7 * X[i])
        assert close(testing.row_dot(rows, i, w), X[i] @ w)
        assert close(testing.row_sqnorm(rows, i), X[i] @ X[i])
    assert close(rows.sqnorms(), (X**2).sum(axis=1))


@pytest.mark.parametrize("k", [1, 3, 12])
def test_gram_is_the_scores_of_the_weights(k):
    """On a Gram matrix the state is S = X W: every kernel moves S as it would have moved W."""
    X = values()
    rows = Rows.from_gram(X @ X.T)
    rng = np.random.default_rng(k)
    W = rng.standard_normal((N, k))
    S = X @ W
    for i in range(M):
        assert close(testing.row_scores(rows, i, S), X[i] @ W)
        assert close(testing.row_sqnorm(rows, i), X[i] @ X[i])
        for which in (np.arange(k), np.arange(0, k, 2)):
            delta, moved = rng.standard_normal(k), S.copy()
            testing.row_update(rows, i, delta, which.astype(np.int32), moved)
            used = np.where(np.isin(np.arange(k), which), delta, 0)
            assert close(moved, X @ (W + np.outer(X[i], used)))
        column = S[:, 0].copy()
        assert close(testing.row_dot(rows, i, column), X[i] @ W[:, 0])
        testing.row_axpy(rows, i, 0.3, column)
        assert close(column, X @ (W[:, 0] + 0.3 * X[i]))


def test_storages_give_the_same_bits():
    """Zeros that are stored or not, and float32 values, change no sum."""
    X = values()
    W = np.random.default_rng(2).standard_normal((N, 11))
    made = [maker(X, -1.0) for maker in MAKERS.values()]
    for i in range(M):
        first, *others = [testing.row_scores(rows, i, W) for rows in made]
        assert all((other == first).all() for other in others)


@pytest.mark.parametrize("change, words", [
    (lambda d, j, p: j.__setitem__(2, 13), "outside 0 to 12"),
    (lambda d, j, p: j.__setitem__(0, -1), "feature -1"),
    (lambda d, j, p: j.__setitem__(1, j[0]), "repeated or falling"),
    (lambda d, j, p: d.__setitem__(0, np.nan), "row 0, feature .* is nan"),
    (lambda d, j, p: d.__setitem__(0, np.inf), "row 0, feature .* is inf"),
    (lambda d, j, p: p.__setitem__(1, -3), "indptr"),
    (lambda d, j, p: p.__setitem__(0, 1), "indptr"),
    (lambda d, j, p: p.__setitem__(3, 10**15), "indptr"),
    (lambda d, j, p: p.__setitem__(-1, p[-1] + 1), "indptr"),
], ids=["wide", "negative", "repeated", "nan", "inf", "falling indptr", "late indptr", "huge indptr",
        "long indptr"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_hostile_arrays_are_refused(change, words, dtype):
    csr = sparse.csr_array(values().astype(dtype))
    arrays = csr.data, csr.indices.astype(np.int32), csr.indptr.astype(np.int64)
    change(*arrays)
    with pytest.raises(ValueError, match=words):
        Rows.from_csr(*arrays, N)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dense_values_must_be_finite(value, dtype):
    X = values().astype(dtype)
    X[2, 5] = value
    with pytest.raises(ValueError, match="row 2, feature 5 is"):
        Rows.from_dense(X)


def test_gram_must_be_square_and_finite():
    with pytest.raises(ValueError, match="not square"):
        Rows.from_gram(np.ones((2, 3)))
    with pytest.raises(ValueError, match="finite"):
        Rows.from_gram(np.array([[1.0, np.nan], [np.nan, 1.0]]))
