"""Model and what surrounds `train`; what every method must do is in test_registry.py."""

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear.api import Model
from marginlinear.arrays import CSR


def joint(**options):
    """Three features, four classes, a bias feature of 2."""
    weights = np.arange(16.0).reshape(4, 4) % 7 - 3
    return Model(weights, np.array([2, 3, 5, 7]), bias=2.0, **options)


def binary():
    return Model(np.array([[1.0], [-2.0], [0.5]]), np.array([-1, 4]))


def data(m=30, n=3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, n))
    X[rng.random((m, n)) < 0.4] = 0
    return X


def test_scores_of_several_columns():
    model, X = joint(), data()
    scores = X @ model.weights[:3] + 2.0 * model.weights[3]
    assert model.joint and model.n_features == 3
    assert model.coef.shape == (4, 3)
    assert np.allclose(model.intercept, 2.0 * model.weights[3])
    assert np.allclose(model.decision_function(X), scores)
    assert (model.predict(X) == model.classes[scores.argmax(axis=1)]).all()


def test_scores_of_one_column():
    model, X = binary(), data()
    scores = X @ model.weights[:, 0]
    assert not model.joint and model.n_features == 3
    assert model.coef.shape == (1, 3)
    assert model.intercept.tolist() == [0.0]
    assert model.decision_function(X).shape == (30,)
    assert np.allclose(model.decision_function(X), scores)
    assert (model.predict(X) == np.where(scores > 0, 4, -1)).all()


def test_ties_go_to_the_first_class():
    X = np.zeros((2, 3))
    assert Model(np.zeros((3, 4)), [7, 5, 3, 2]).predict(X).tolist() == [7, 7]
    assert binary().predict(X).tolist() == [-1, -1]


def test_margins():
    model, X = joint(), data()
    y = model.classes[np.arange(30) % 4]
    scores = model.decision_function(X)
    own = scores[np.arange(30), np.arange(30) % 4].copy()
    scores[np.arange(30), np.arange(30) % 4] = -np.inf
    assert np.allclose(model.margins(X, y), own - scores.max(axis=1))
    assert np.allclose(model.margins(X, y.tolist()), own - scores.max(axis=1))
    assert ((model.margins(X, model.predict(X))) >= 0).all()
    signs = np.where(np.arange(30) % 2, 4, -1)
    expected = np.where(np.arange(30) % 2, 1, -1) * (X @ binary().weights[:, 0])
    assert np.allclose(binary().margins(X, signs), expected)


def test_margins_of_classes_in_any_order():
    X = data()
    ascending = Model(np.eye(3), np.array(["a", "b", "c"]))
    other = Model(np.eye(3)[:, [2, 0, 1]], np.array(["c", "a", "b"]))
    y = np.array(["b", "c", "a"] * 10)
    assert np.allclose(ascending.margins(X, y), other.margins(X, y))


@pytest.mark.parametrize("y, words", [
    (np.full(30, 4), "label 4 is not among the classes"),
    (np.full(30, 99), "label 99 is not among"),
    (np.full(29, 2), "29 labels for 30 rows"),
])
def test_margins_refuse(y, words):
    with pytest.raises(ValueError, match=words):
        joint().margins(data(), y)


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array, sparse.csc_array, sparse.coo_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_features_that_are_missing_or_new(kind, dtype):
    """Missing features are zeros, those above n_features are left out; the bias stays the bias."""
    model, X = joint(), data().astype(dtype)
    scores = model.decision_function(X)
    narrow = X.copy()
    narrow[:, 1:] = 0
    wide = np.hstack([X, np.ones((30, 5), dtype=dtype)])
    assert np.allclose(model.decision_function(kind(X[:, :1])), model.decision_function(narrow))
    assert np.allclose(model.decision_function(kind(wide)), scores)


def test_rows_of_nothing():
    assert joint().predict(np.zeros((0, 3))).shape == (0,)
    assert joint().decision_function(sparse.csr_array((0, 3))).shape == (0, 4)
    assert np.allclose(joint().decision_function(np.zeros((5, 0))), joint().intercept)


@pytest.mark.parametrize("X, words", [
    (np.array([[1.0, np.nan, 0.0]]), "row 0, feature 1 is nan"),
    (np.zeros(3), "two dimensions"),
    (np.zeros((2, 3, 1)), "two dimensions"),
    (np.array([["a", "b", "c"]]), "numbers are needed"),
])
def test_prediction_refuses(X, words):
    with pytest.raises(ValueError, match=words):
        joint().predict(X)


def test_prediction_does_not_depend_on_threads():
    model, X = joint(), data(20_000)
    expected = model.decision_function(X, threads=1)
    for threads in (2, 8, None):
        assert model.decision_function(X, threads=threads).tobytes() == expected.tobytes()


def test_prediction_leaves_x_alone():
    X = sparse.csr_array(data())
    X.sort_indices()
    X.data.flags.writeable = X.indices.flags.writeable = X.indptr.flags.writeable = False
    joint().predict(X)
    dense = data()
    dense.flags.writeable = False
    joint().predict(dense)


def test_shapes_must_fit():
    with pytest.raises(ValueError, match="3 columns for 4 classes"):
        Model(np.zeros((2, 3)), [1, 2, 3, 4])
    with pytest.raises(ValueError, match="1 columns for 3 classes"):
        Model(np.zeros((2, 1)), [1, 2, 3])


@pytest.mark.parametrize("weights", [None, np.arange(30) % 3])
@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_the_readers_arrays_need_no_scipy(weights, bias):
    """arrays.CSR, what the commands pass on, is a CSR matrix like any other."""
    X, y = sparse.csr_array(data()), np.arange(30) % 4
    own = CSR(X.data, X.indices, X.indptr, 3)
    ours = ml.train(own, y, sample_weight=weights, bias=bias)
    theirs = ml.train(X, y, sample_weight=weights, bias=bias)
    assert ours.weights.tobytes() == theirs.weights.tobytes()
    assert ours.decision_function(own).tobytes() == theirs.decision_function(X).tobytes()
    assert own.shape == X.shape


def test_two_names_of_the_cost():
    with pytest.raises(ValueError, match="C and lambda are two names"):
        ml.train(data(), np.arange(30) % 2, C=1.0, lambda_=3.0)


def test_the_first_method_is_the_default():
    assert ml.train(data(), np.arange(30) % 2).solver == "mcodm"


def test_features_beyond_the_machine():
    """2000 classes: 32 TiB of weights, refused before they are asked for."""
    columns = np.full(2000, 2**31 - 2)
    wide = sparse.csr_array((np.ones(2000), columns, np.arange(2001)), shape=(2000, 2**31 - 1))
    with pytest.raises(MemoryError, match=r"2147483647 features need \d+\.\d GiB"):
        ml.train(wide, np.arange(2000))


def test_features_beyond_int32():
    wide = sparse.csr_array((np.ones(2), np.array([0, 2**31]), np.array([0, 1, 2])), shape=(2, 2**31 + 1))
    with pytest.raises(ValueError, match=r"2147483649 features: at most 2147483647"):
        ml.train(wide, [0, 1])


def test_public_names():
    assert set(ml.__all__) <= set(dir(ml))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ml.nonsense


@pytest.mark.parametrize("wrong", [2**32 + 1, -(2**32) + 1, 3])
def test_wide_indices_are_not_folded(wrong):
    """int64 index 2^32 + 1 would be 1 as an int32."""
    X = sparse.csr_array(np.eye(3))
    X.indices = X.indices.astype(np.int64)
    X.indices[1] = wrong
    X.has_canonical_format = True
    with pytest.raises(ValueError, match="feature numbers"):
        ml.train(X, [0, 1, 1])


def test_weights_must_be_numbers():
    with pytest.raises(ValueError, match="sample_weight"):
        ml.train(np.eye(3), [0, 1, 1], sample_weight=["a", "b", "c"])


def test_a_list_of_words_and_numbers_is_refused():
    with pytest.raises(ValueError, match="all numbers or all strings"):
        ml.train(np.eye(3), ["a", 1, "a"])


def test_masks_are_not_dropped():
    masked = np.ma.masked_array(np.eye(3), mask=np.eye(3) > 0)
    with pytest.raises(ValueError, match="masked"):
        ml.train(masked, [0, 1, 1])
