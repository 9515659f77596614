"""The row kernels against NumPy, for every storage, with and without a bias feature."""

import numpy as np
import pytest
from scipy import sparse

from marginlinear._core.rows import FETCH, LEAST, Rows, choose_kernels

M, N = 9, 13


def values():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((M, N)).astype(np.float32).astype(np.float64)
    X[rng.random((M, N)) < 0.5] = 0
    X[4] = 0
    return X


def equal_values():
    """The same with one value in each row."""
    return np.where(values() != 0, np.random.default_rng(8).standard_normal((M, 1)), 0)


def equal_rows(X, bias):
    csr = sparse.csr_array(X)
    each = X[np.arange(M), abs(X).argmax(axis=1)]
    return Rows.from_equal(each, csr.indices.astype(np.int32), csr.indptr.astype(np.int64), X.shape[1], bias)


def csr_rows(X, bias, dtype, width=np.int32):
    csr = sparse.csr_array(X.astype(dtype))
    indices, indptr = csr.indices.astype(width), csr.indptr.astype(np.int64)
    return Rows.from_csr(csr.data, indices, indptr, X.shape[1], bias)


MAKERS = {
    "csr64": lambda X, bias: csr_rows(X, bias, np.float64),
    "csr32": lambda X, bias: csr_rows(X, bias, np.float32),
    "narrow64": lambda X, bias: csr_rows(X, bias, np.float64, np.uint16),
    "narrow32": lambda X, bias: csr_rows(X, bias, np.float32, np.uint16),
    "equal64": equal_rows,
    "dense64": lambda X, bias: Rows.from_dense(X, bias),
    "dense32": lambda X, bias: Rows.from_dense(X.astype(np.float32), bias),
}


@pytest.fixture(params=[(name, bias) for name in MAKERS for bias in (-1.0, 0.0, 2.5)], ids=str)
def stored(request):
    """(Rows, the same numbers with the bias feature as last column)."""
    name, bias = request.param
    X = equal_values() if name == "equal64" else values()
    return MAKERS[name](X, bias), np.hstack([X, np.full((M, 1), bias)]) if bias >= 0 else X


def close(left, right):
    return np.allclose(left, right, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 8, 9, 17, 40])
def test_scores_and_updates(kernels, stored, k):
    rows, X = stored
    rng = np.random.default_rng(k)
    W = rng.standard_normal((rows.d, k))
    assert (rows.m, rows.d) == X.shape
    for i in range(M):
        assert close(kernels.row_scores(rows, i, W), X[i] @ W)
        for which in (np.arange(k), np.sort(rng.permutation(k)[: (k + 1) // 2])):
            delta, moved = rng.standard_normal(k), W.copy()
            kernels.row_update(rows, i, delta, which.astype(np.int32), moved)
            used = np.where(np.isin(np.arange(k), which), delta, 0)
            assert close(moved, W + np.outer(X[i], used))


def test_one_column(kernels, stored):
    rows, X = stored
    w = np.random.default_rng(1).standard_normal(rows.d)
    for i in range(M):
        moved = w.copy()
        kernels.row_axpy(rows, i, -0.7, moved)
        assert close(moved, w - 0.7 * X[i])
        assert close(kernels.row_dot(rows, i, w), X[i] @ w)
        assert close(kernels.row_sqnorm(rows, i), X[i] @ X[i])
    assert close(rows.sqnorms(), (X**2).sum(axis=1))


@pytest.mark.parametrize("k", [1, 3, 12])
def test_gram_is_scores_and_coefficients(kernels, k):
    """On a Gram matrix the state is S = X W above C, W = X' C: an update moves both as it would have moved W."""
    X = values()
    rows = Rows.from_gram(X @ X.T)
    rng = np.random.default_rng(k)
    C = rng.standard_normal((M, k))
    W = X.T @ C
    state = np.vstack([X @ W, C])
    assert (rows.m, rows.d) == (M, 2 * M)
    assert close(rows.sqnorms(), (X**2).sum(axis=1))
    for i in range(M):
        assert close(kernels.row_scores(rows, i, state), X[i] @ W)
        assert close(kernels.row_sqnorm(rows, i), X[i] @ X[i])
        for which in (np.arange(k), np.arange(0, k, 2)):
            delta, moved = rng.standard_normal(k), state.copy()
            kernels.row_update(rows, i, delta, which.astype(np.int32), moved)
            used = np.where(np.isin(np.arange(k), which), delta, 0)
            assert close(moved[:M], X @ (W + np.outer(X[i], used)))
            assert close(moved[:M], X @ X.T @ moved[M:])
        column = state[:, 0].copy()
        assert close(kernels.row_dot(rows, i, column), X[i] @ W[:, 0])
        kernels.row_axpy(rows, i, 0.3, column)
        assert close(column[:M], X @ (W[:, 0] + 0.3 * X[i]))
        assert close(column[:M], X @ X.T @ column[M:])


class Source:
    """Rows of a Gram matrix as Rows.from_source asks for them; `made` lists what it was asked for."""

    known = False

    def __init__(self, K):
        self.K, self.diagonal, self.made = K, np.diagonal(K).copy(), []

    definite = True

    def fill(self, which, out):
        self.made.append(which.tolist())
        out[:] = self.K[which]

    def matrix(self, dtype):
        return self.K.astype(dtype)

    def select(self, which):
        return Rows.from_gram(np.ascontiguousarray(self.K[np.ix_(which, which)]))


def test_rows_made_when_needed(kernels):
    """A row that is fetched stays until FETCH others or more were used after it."""
    X = np.random.default_rng(0).standard_normal((200, 5))
    source = Source(X @ X.T)
    rows = Rows.from_source(source, 100)
    assert rows.is_gram
    assert not rows.shared
    assert close(rows.sqnorms(), source.diagonal)
    every = np.arange(200)
    assert np.array_equal(rows.absent(every), every)
    rows.fetch(every)
    assert np.array_equal(rows.absent(every), every[FETCH:])
    rows.fetch(every[:40])
    rows.fetch(np.array([3, 100, 5, 101]))
    assert source.made == [list(range(64)), [100, 101]]
    state = np.zeros(400)
    for i in (0, 1, 2, 101):
        kernels.row_axpy(rows, i, 2.0, state)
    assert close(state[:200], source.K @ state[200:])
    # 34 are free; of the others those that were not used go first.
    rows.fetch(np.arange(110, 174))
    gone = rows.absent(np.append(every[:64], [100, 101]))
    assert len(gone) == 30
    assert not np.isin(gone, [0, 1, 2, 101, 100]).any()
    rows.fetch(gone)
    for i in every[:3]:
        kernels.row_axpy(rows, i, -2.0, state)
    kernels.row_axpy(rows, 101, -2.0, state)
    assert not state[200:].any()
    assert abs(state).max() < 1e-12


def test_a_cache_holds_what_is_fetched_at_once():
    K = np.eye(200)
    with pytest.raises(ValueError, match="capacity = 63 is not allowed"):
        Rows.from_source(Source(K), FETCH - 1)
    rows = Rows.from_source(Source(K), FETCH)
    for which in (np.arange(100), np.arange(150, 200), np.arange(0, 200, 3)):
        absent = rows.absent(which)
        rows.fetch(which)
        assert len(rows.absent(absent[:LEAST])) == 0
    small = Rows.from_source(Source(K[:5, :5]), FETCH)
    small.fetch(np.arange(5))
    assert len(small.absent(np.arange(5))) == 0


def test_select(kernels, stored):
    rows, _ = stored
    which = np.array([4, 0, 8, 8, 1])
    chosen = rows.select(which)
    assert (chosen.m, chosen.n, chosen.d, chosen.bias) == (5, rows.n, rows.d, rows.bias)
    W = np.random.default_rng(0).standard_normal((rows.d, 3))
    for at, i in enumerate(which):
        assert np.array_equal(kernels.row_scores(chosen, at, W), kernels.row_scores(rows, i, W))
    assert rows.select(which[:0]).m == 0
    for wrong in (rows.m, -1 - rows.m):
        with pytest.raises(IndexError):
            rows.select([0, wrong])


def test_another_bias(kernels, stored):
    rows, X = stored
    other, X = rows.with_bias(0.5), np.column_stack((X[:, :N], np.full(M, 0.5)))
    W = np.random.default_rng(0).standard_normal((N + 1, 2))
    assert (other.m, other.n, other.d, other.bias) == (M, N, N + 1, 0.5)
    assert all(close(kernels.row_scores(other, i, W), X[i] @ W) for i in range(M))
    assert close(other.sqnorms(), (X**2).sum(axis=1))
    for array, same in zip(other.arrays, rows.arrays, strict=True):
        assert np.shares_memory(array, same)


@pytest.mark.parametrize("single", [False, True])
def test_select_keeps_what_rows_are_stored_as(single):
    X = sparse.csr_array(values().astype(np.float32 if single else np.float64))
    for kind in (np.int32, np.uint16):
        rows = Rows.from_csr(X.data, X.indices.astype(kind), X.indptr.astype(np.int64), X.shape[1])
        found = [np.asarray(array) for array in rows.select([6, 2, 2]).arrays]
        wanted = X[[6, 2, 2]]
        assert [array.dtype for array in found] == [X.dtype, kind, np.int64]
        for array, same in zip(found, (wanted.data, wanted.indices, wanted.indptr), strict=True):
            assert np.array_equal(array, same)


def test_select_of_a_gram_matrix():
    X = values()
    rows = Rows.from_gram(X @ X.T)
    which = np.array([7, 2, 2])
    assert np.array_equal(rows.select(which).arrays, (X @ X.T)[np.ix_(which, which)])


def test_storages_give_the_same_bits(kernels):
    """Zeros that are stored or not, float32 values, and one value for all of a row, change no sum."""
    W = np.random.default_rng(2).standard_normal((N, 11))
    wide = equal_values()
    made = [maker(values(), -1.0) for name, maker in MAKERS.items() if name != "equal64"]
    equal = [maker(wide, -1.0) for name, maker in MAKERS.items() if name in ("csr64", "narrow64", "equal64")]
    for i in range(M):
        first, *others = [(*kernels.row_scores(rows, i, W), kernels.row_dot(rows, i, W[:, 0].copy()),
                           kernels.row_sqnorm(rows, i)) for rows in equal]
        assert all(other == first for other in others)
        first, *others = [kernels.row_scores(rows, i, W) for rows in made]
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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_hostile_narrow_features_are_refused(dtype):
    data, indptr = np.ones(2, dtype=dtype), np.array([0, 2])
    rows = Rows.from_csr(data, np.array([0, 65535], dtype=np.uint16), indptr, 65536)
    assert np.asarray(rows.sqnorms()).tolist() == [2.0]
    for features, words in (([0, 65535], "feature 65535, outside 0 to 65534"), ([7, 7], "repeated or falling")):
        with pytest.raises(ValueError, match=words):
            Rows.from_csr(data, np.array(features, dtype=np.uint16), indptr, 65535)


def test_stored_values():
    X = equal_values()
    csr, rows = csr_rows(X, -1.0, np.float64), equal_rows(X, -1.0)
    for part in ((), (2,), (3, 7), (4, 5), (5, 5)):
        assert np.array_equal(rows.stored(*part), csr.stored(*part))
    assert rows.nonzeros() == csr.nonzeros()
    chosen = rows.select([6, 2, 4, 2])
    assert chosen.equal and np.array_equal(chosen.stored(), csr.select([6, 2, 4, 2]).stored())


@pytest.mark.parametrize("change, words", [
    (lambda v, j, p: j.__setitem__(2, 13), "outside 0 to 12"),
    (lambda v, j, p: j.__setitem__(1, j[0]), "repeated or falling"),
    (lambda v, j, p: v.__setitem__(1, np.nan), "row 1, feature .* is nan"),
    (lambda v, j, p: p.__setitem__(1, -3), "indptr of row 0 does not fit"),
    (lambda v, j, p: p.__setitem__(-1, p[-1] + 1), "indptr does not fit"),
], ids=["wide", "repeated", "nan", "falling indptr", "long indptr"])
def test_hostile_rows_of_equal_values_are_refused(change, words):
    csr = sparse.csr_array(equal_values())
    arrays = np.ones(M), csr.indices.astype(np.int32), csr.indptr.astype(np.int64)
    change(*arrays)
    with pytest.raises(ValueError, match=words) as refused:
        Rows.from_equal(*arrays, N)
    assert "{row}" not in str(refused.value)
    with pytest.raises(ValueError, match="8 values for 9 rows: one a row is needed"):
        Rows.from_equal(arrays[0][:8], *arrays[1:], N)


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


def test_products_are_all_inner_products(stored):
    rows, X = stored
    assert close(rows.products(), X @ X.T)
    gram = Rows.from_gram(X @ X.T)
    assert (gram.products() == X @ X.T).all()


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 7, 15, 16, 17, 31, 32, 33, 70])
def test_kernels_of_any_width_give_the_same_bits(kernels, stored, k):
    rows, _ = stored
    rng = np.random.default_rng(k)
    W, delta, every = rng.standard_normal((rows.d, k)), rng.standard_normal(k), np.arange(k, dtype=np.int32)
    found = []
    try:
        for width in (1, 2, 4, 8):
            assert choose_kernels(width) <= max(2, width)
            moved = W.copy()
            scores = np.array([kernels.row_scores(rows, i, W) for i in range(M)])
            for i in range(M):
                kernels.row_update(rows, i, delta, every, moved)
            found.append((scores, moved))
    finally:
        choose_kernels()
    assert all(np.array_equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_what_is_not_zero_is_counted_alike(stored):
    rows, X = stored
    assert rows.nonzeros() == np.count_nonzero(X[:, :N])
    assert Rows.from_dense(np.zeros((3, 0)), 1.0).nonzeros() == 0


def test_zeros_that_are_stored_do_not_count():
    X = values()
    indptr = np.arange(0, M * N + 1, N)
    full = Rows.from_csr(X.ravel(), np.tile(np.arange(N, dtype=np.int32), M), indptr, N)
    assert full.nonzeros() == np.count_nonzero(X) < full.nnz
