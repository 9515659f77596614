"""Scores, sums and margins of rows against NumPy, for every storage."""

import numpy as np
import pytest

from marginlinear._core.rows import Rows
from marginlinear._core.scores import add_rows, margins_of, scores_of
from marginlinear.errors import RowError
from marginlinear.model import require_numbers


def csr(X, bias=-1.0, index=np.int32):
    indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(X, axis=1))))
    return Rows.from_csr(X[X != 0], np.nonzero(X)[1].astype(index), indptr, X.shape[1], bias)


@pytest.mark.parametrize("bias", [-1.0, 2.0])
@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_a_range_of_rows(k, bias):
    rng = np.random.default_rng(k)
    X = rng.integers(-2, 3, (40, 6)).astype(np.float64)
    whole = np.hstack([X, np.full((40, 1), bias)]) if bias >= 0 else X
    W, a = rng.integers(-9, 9, (whole.shape[1], k)).astype(np.float64), rng.integers(-1, 2, 40).astype(np.float64)
    single = X.astype(np.float32)
    for rows in (csr(X, bias), csr(single, bias), csr(X, bias, np.uint16), csr(single, bias, np.uint16),
                 Rows.from_dense(X, bias), Rows.from_dense(single, bias)):
        scores, summed = np.full((40, k), 0.5), np.ones(rows.d)
        scores_of(rows, W, scores, 3, 30)
        assert (scores[3:30] == whole[3:30] @ W).all() and (scores[:3] == 0.5).all() and (scores[30:] == 0.5).all()
        add_rows(rows, a, summed, 3, 30)
        assert (summed == 1 + a[3:30] @ whole[3:30]).all()


def test_without_features_or_rows():
    rows, scores = csr(np.empty((2, 0))), np.ones((2, 3))
    scores_of(rows, np.empty((0, 3)), scores, 0, 1)
    add_rows(rows, np.ones(2), np.empty(0), 0, 2)
    assert scores.tolist() == [[0] * 3, [1] * 3]
    scores_of(csr(np.empty((0, 2))), np.ones((2, 3)), np.empty((0, 3)), 0, 0)


def test_what_does_not_fit_is_refused():
    X = np.eye(4)
    rows, W, out = csr(X), np.ones((4, 2)), np.empty((4, 2))
    for arguments in ((W[:3], out), (W, out[:3]), (W[:, :1].copy(), out)):
        with pytest.raises(ValueError, match="scores_of: shapes"):
            scores_of(rows, *arguments, 0, 4)
    with pytest.raises(ValueError, match="add_rows: shapes"):
        add_rows(rows, np.ones(3), np.ones(4), 0, 3)
    for lo, hi in ((-1, 2), (3, 2), (0, 5)):
        with pytest.raises(ValueError, match="scores_of: rows out of range"):
            scores_of(rows, W, out, lo, hi)
        with pytest.raises(ValueError, match="add_rows: rows out of range"):
            add_rows(rows, np.ones(4), np.ones(4), lo, hi)
    gram = Rows.from_gram(X)
    with pytest.raises(ValueError, match="scores_of: a Gram matrix"):
        scores_of(gram, np.ones((8, 2)), out, 0, 4)
    with pytest.raises(ValueError, match="add_rows: a Gram matrix"):
        add_rows(gram, np.ones(4), np.ones(8), 0, 4)


def test_margins():
    scores = np.array([[1.0, 2, 2], [3, -1, 0], [0, 0, 5]])
    assert margins_of(scores, np.array([0, 0, 2], np.int32)).tolist() == [-1, 3, 5]
    assert margins_of(scores[:, :1].copy(), np.zeros(3, np.int32)).tolist() == [np.inf] * 3
    with pytest.raises(ValueError, match="2 classes for 3 rows"):
        margins_of(scores, np.zeros(2, np.int32))
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=f"class {wrong} of row 1 is outside 0 to 2"):
            margins_of(scores, np.array([0, wrong, 0], np.int32))


def test_a_score_that_is_no_number_is_an_error():
    X = np.array([[1.0, 0.0], [1e200, 0.0], [1e200, 1e200], [1e200, 1e200]])
    for W in (np.array([[1e200], [-1e200]]), np.array([[0.0, 1e200, 1.0], [0.0, -1e200, 1.0]])):
        scores = np.empty((4, W.shape[1]))
        scores_of(csr(X), W, scores, 0, 4)
        with pytest.raises(RowError, match="a score of row 2 is NaN") as error:
            require_numbers(scores)
        assert error.value.row == 2
        require_numbers(scores[:2])
