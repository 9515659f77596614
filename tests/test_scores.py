"""Scores and places of rows, and the arrays without NumPy that they go to."""

import numpy as np
import pytest

from marginlinear._core.rows import Rows, cut_features
from marginlinear._core.scores import count_hits, lines_of, places_of, require_numbers, row_places, scores_of
from marginlinear._core.vector import Buffer, columns_of
from marginlinear.errors import RowError


def csr(X, bias=-1.0, index=np.int32):
    indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(X, axis=1))))
    return Rows.from_csr(X[X != 0], np.nonzero(X)[1].astype(index), indptr, X.shape[1], bias)


@pytest.mark.parametrize("shape", [(3,), (0,), (2, 3), (0, 3), (3, 0)])
@pytest.mark.parametrize("kind, dtype", [("d", np.float64), ("i", np.int32)])
def test_a_buffer_is_an_array(shape, kind, dtype):
    buffer = Buffer(kind, *shape)
    array = np.asarray(buffer)
    assert (array.shape, array.dtype, array.flags.c_contiguous) == (shape, dtype, True)
    array[:] = np.arange(array.size).reshape(shape)
    assert memoryview(buffer).tolist() == array.tolist()
    assert np.asarray(memoryview(buffer)[1:]).tolist() == array[1:].tolist()


def test_a_buffer_too_large_is_a_memory_error():
    with pytest.raises(MemoryError, match="GiB"):
        Buffer("d", 1 << 58, 1)
    for rows, columns in ((1 << 60, 1 << 60), (-1, 2)):
        with pytest.raises(ValueError, match="shape"):
            Buffer("d", rows, columns)


def test_columns():
    table = np.arange(6.0).reshape(3, 2)
    assert np.asarray(columns_of(table, 1, -1, 2)).tolist() == table[:, ::-1].tolist()
    assert np.asarray(columns_of(table, 0, 1, 1)).tolist() == table[:, :1].tolist()
    assert np.asarray(columns_of(table[:0], 0, 1, 1)).shape == (0, 1)
    with pytest.raises(ValueError, match="columns"):
        columns_of(table, 0, 2, 2)


def test_places_are_those_of_the_first_largest_score():
    nan, inf = np.nan, np.inf
    scores = np.array([[1, 2, 2], [3, 3, 1], [nan, 1, nan], [1, nan, inf], [-inf, -inf, -inf], [-0.0, 0.0, -1]])
    out = np.empty(len(scores), np.int32)
    places_of(scores, False, out)
    assert out.tolist() == np.argmax(scores, axis=1).tolist()
    places_of(np.array([[0.0], [-0.0], [1e-300], [-1.0], [nan], [inf]]), True, out)
    assert out.tolist() == [0, 0, 1, 0, 0, 1]
    for wrong in (scores[:2], np.empty((6, 0))):
        with pytest.raises(ValueError, match="places_of"):
            places_of(wrong, False, out)


@pytest.mark.parametrize("bias", [-1.0, 2.0])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_places_of_rows_are_those_of_their_scores(k, bias):
    rng = np.random.default_rng(k)
    X = rng.integers(-2, 3, (40, 6)).astype(np.float64)
    W = rng.integers(-1, 2, (6 + (bias >= 0), k)).astype(np.float64)
    single = X.astype(np.float32)
    for rows in (csr(X, bias), csr(single, bias), csr(X, bias, np.uint16), csr(single, bias, np.uint16),
                 Rows.from_dense(X, bias), Rows.from_dense(single, bias)):
        scores, places, out = np.empty((40, k)), np.empty(40, np.int32), np.full(40, -1, np.int32)
        scores_of(rows, W, scores, 0, 40)
        places_of(scores, k == 1, places)
        row_places(rows, W, k == 1, out, 3, 30)
        assert out[3:30].tolist() == places[3:30].tolist() and set(out[:3]) | set(out[30:]) == {-1}
    for shape, end in (((len(W) + 1, k), 40), ((len(W), 0), 40), ((len(W), k), 41)):
        with pytest.raises(ValueError, match="row_places"):
            row_places(rows, np.zeros(shape), k == 1, out, 0, end)


def test_places_without_features():
    out = np.full(2, -1, np.int32)
    row_places(csr(np.empty((2, 0))), np.empty((0, 3)), False, out, 0, 2)
    assert out.tolist() == [0, 0]


def test_a_gram_matrix_has_no_places():
    with pytest.raises(ValueError, match="Gram"):
        row_places(Rows.from_gram(np.eye(2)), np.zeros((4, 2)), False, np.empty(2, np.int32), 0, 2)


def test_hits_and_lines():
    places, classes = np.array([0, 2, 1, 2], np.int32), np.array([-1.0, 1.5, 3.0])
    assert count_hits(places, classes, np.array([-1.0, 3.0, 1.5, 1.5])) == 3
    assert count_hits(places, classes, np.array([-1, 7, 1, 3])) == 2
    assert lines_of(places, [b"-1\n", b"1.5\n", b"3\n"]) == b"-1\n3\n1.5\n3\n"
    assert lines_of(places[:0], []) == b""
    with pytest.raises(ValueError, match="count_hits"):
        count_hits(places, classes, np.array([1.0]))


@pytest.mark.parametrize("n", [0, 2, 4, 9])
def test_features_are_cut_in_place(n):
    X = np.array([[1.0, 0, 2, 3, 0], [0, 0, 0, 0, 0], [0, 0, 0, 4, 5], [6, 7, 0, 0, 8]])
    rows = csr(X)
    data, indices, indptr = rows.arrays
    assert cut_features(data, indices, indptr, n) == np.count_nonzero(X[:, n:])
    kept = csr(X[:, :n])
    for found, expected in zip((data, indices, indptr), kept.arrays, strict=True):
        assert found[: len(expected)].tolist() == expected.tolist()
    assert indptr[-1] == kept.nnz


def test_a_score_that_is_no_number_is_an_error():
    X = np.array([[1.0, 0.0], [1e200, 0.0], [1e200, 1e200], [1e200, 1e200]])
    for W in (np.array([[1e200], [-1e200]]), np.array([[0.0, 1e200, 1.0], [0.0, -1e200, 1.0]])):
        out = np.empty(4, np.int32)
        scores = np.empty((4, W.shape[1]))
        scores_of(csr(X), W, scores, 0, 4)
        for first, row in ((0, 2), (3, 3)):
            with pytest.raises(RowError, match=f"a score of row {row} is NaN") as error:
                row_places(csr(X), W, W.shape[1] == 1, out, first, 4)
            assert error.value.row == row
        with pytest.raises(RowError, match="a score of row 2 is NaN"):
            require_numbers(scores)
        require_numbers(scores[:2])
        row_places(csr(X), W, W.shape[1] == 1, out, 0, 2)
