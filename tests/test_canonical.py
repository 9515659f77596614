"""Small problems in their own order."""

import pickle
from itertools import groupby

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear.data.arrays import as_rows
from marginlinear.data.canonical import SMALL, canonical, merged
from marginlinear.errors import RowError
from marginlinear.problem import Problem


def made(X, y, instance=None, bias=1.0):
    m = len(y)
    instance = np.ones(m) if instance is None else np.asarray(instance, dtype=np.float64)
    return Problem(as_rows(X, bias), np.asarray(y, dtype=np.int32), 2, instance, np.where(np.asarray(y) == 1, 3.0, 1.0))


def test_equal_rows_of_one_class_are_one():
    X = np.array([[1.0, 0.0], [2.0, 5.0], [1.0, -0.0], [1.0, 0.0], [2.0, 5.0]])
    found = canonical(made(X, [0, 1, 0, 1, 1], [1, 2, 3, 4, 0.5]))
    rows = {(*row, label, weight, factor) for row, label, weight, factor in zip(
        found.rows.arrays.tolist(), found.y.tolist(), found.instance.tolist(), found.factor.tolist(), strict=True)}
    assert rows == {(1, 0, 0, 4, 1), (1, 0, 1, 4, 3), (2, 5, 1, 2.5, 3)}
    assert found.rows.bias == 1.0 and found.rows.d == 3


@pytest.mark.parametrize("make", [np.float32, sparse.csr_array, lambda X: sparse.csr_array(X.astype(np.float32))])
def test_one_order_for_all_storages(make):
    rng = np.random.default_rng(0)
    X, y = rng.integers(-2, 3, (50, 3)).astype(float), rng.integers(0, 2, 50)
    plain, other = canonical(made(X, y)), canonical(made(make(X), y))
    order = rng.permutation(50)
    shuffled = canonical(made(X[order], y[order]))
    for found in (other, shuffled):
        assert (found.y == plain.y).all() and found.instance.tobytes() == plain.instance.tobytes()
        assert np.array_equal(found.rows.sqnorms(), plain.rows.sqnorms())
    assert shuffled.rows.arrays.tobytes() == plain.rows.arrays.tobytes()
    assert len(plain.y) < 50 and plain.instance.sum() == 50


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_the_order_is_that_of_the_bytes(make):
    """Of features, class and weight; of rows that differ in their weights alone the first stands for all."""
    rng = np.random.default_rng(1)
    X, y = rng.integers(-3, 4, (200, 2)) / 3, rng.integers(0, 3, 200).astype(np.int32)
    weights = rng.integers(1, 9, 200) / 8
    which, summed = (np.asarray(found) for found in merged(as_rows(make(X), -1.0), y, weights))
    table = np.column_stack([X, y, weights]) + 0.0
    order = sorted(range(200), key=lambda i: table[i].tobytes())
    groups = [list(group) for _, group in groupby(order, key=lambda i: table[i, :3].tobytes())]
    assert which.tolist() == [group[0] for group in groups] and len(groups) < 150
    assert summed.tolist() == [weights[group].sum() for group in groups]


def test_explicit_zeros_are_zeros():
    stored = sparse.csr_array((np.array([1.0, 0.0, 1.0]), np.array([0, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    assert canonical(made(stored, [0, 0])).instance.tolist() == [2.0]


def test_large_problems_and_gram_rows_stay_as_they_are():
    large = made(np.ones((SMALL // 4 + 1, 2)), np.zeros(SMALL // 4 + 1))
    assert canonical(large) is large
    X, y = np.repeat(np.eye(4), 3, axis=0), np.arange(12) % 2
    model = ml.train(X, y, solver="l1svc", kernel="rbf")
    assert len(model.support_indices) == model.n_support == 12


def test_support_indices_are_those_of_the_callers_rows():
    rng = np.random.default_rng(0)
    X, y, weights = rng.standard_normal((30, 2)), np.arange(30) % 3, (np.arange(30) % 4 > 0).astype(float)
    model = ml.train(X, y, solver="cs", kernel="rbf", sample_weight=weights)
    assert (model.support == X[model.support_indices]).all()
    assert weights[model.support_indices].all()


def test_without_features():
    assert canonical(made(np.empty((5, 0)), [0, 1, 0, 0, 1])).instance.tolist() == [3.0, 2.0]


@pytest.mark.parametrize("value, text", [(1e200, "the squares of row 31's values overflow"),
                                         (np.nan, "row 31, feature 2")])
@pytest.mark.parametrize("dense", [True, False])
def test_a_bad_row_has_the_callers_number(value, text, dense):
    """Also where rows are sorted, left out for a weight of 0, or belong to a fold."""
    rng = np.random.default_rng(0)
    X, y, weight = rng.standard_normal((40, 3)), np.arange(40) % 2, np.ones(40)
    X[31, 2] = value
    weight[:7] = 0
    data = X if dense else sparse.csr_array(X)
    for given in ({}, {"sample_weight": weight}):
        with pytest.raises(ValueError, match=f"^X: {text}"):
            ml.train(data, y, solver="l2svc", **given)
    # What is not finite in sparse rows is seen before there are folds.
    with pytest.raises(ValueError, match=rf"^X: {text}.*(\(fold [12] of 2\)|values must be finite)$"):
        ml.cross_validate(data, y, folds=2, solver="l2svc", threads=1)


def test_row_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(RowError(3, "row {row} is bad")))
    assert (str(error), error.row, error.text) == ("row 3 is bad", 3, "row {row} is bad")
