"""Codes and coefficients of one against one without their zeros, against the arrays that they stand for."""

import copy
import pickle

import numpy as np
import pytest

from marginlinear import model as model_module
from marginlinear.api import train
from marginlinear.data import one_against_one
from marginlinear.data.codes import codes_of
from marginlinear.data.kernels import Kernel
from marginlinear.model import KernelModel, Model


@pytest.mark.parametrize("k", [2, 3, 4, 7])
def test_columns(k):
    codes = codes_of("ovo", k, 0)
    assert codes.shape[1] == one_against_one.column_count(k)
    for i in range(k):
        columns = one_against_one.columns_of(i, k)
        assert sorted(columns) == np.flatnonzero(codes[i]).tolist()
        # In place j - 1 or j is the pair with j.
        others = [j for j in range(k) if j != i]
        assert [np.flatnonzero(codes[:, column]).tolist() for column in columns] == [sorted((i, j)) for j in others]
    assert one_against_one.are_codes(codes) == (k > 2)


@pytest.mark.parametrize("change", [lambda codes: -codes, lambda codes: codes[::-1], lambda codes: codes[:, ::-1],
                                    lambda codes: np.abs(codes), lambda codes: codes + (codes == 0),
                                    lambda codes: codes[:, :-1], lambda codes: codes_of("ecoc", 4, 0)])
def test_other_codes(change):
    assert not one_against_one.are_codes(change(codes_of("ovo", 4, 0)))


@pytest.mark.parametrize("k", [3, 4, 7])
def test_votes_and_scores(k):
    rng = np.random.default_rng(k)
    codes, counts = codes_of("ovo", k, 0), rng.integers(0, 4, k)
    columns, n = codes.shape[1], counts.sum()
    dense = rng.standard_normal((n, columns)) * (np.repeat(codes, counts, axis=0) != 0)
    places = one_against_one.packed(dense, counts)
    assert places.shape == (n, k - 1) and (one_against_one.unpacked(places, counts) == dense).all()
    values = rng.standard_normal((5, n))
    scores = np.ones((5, columns))
    for low in range(0, n, 3):
        high = min(n, low + 3)
        one_against_one.add_scores(scores, values[:, low:high], places, counts, low, high)
    assert np.allclose(scores, 1 + values @ dense)
    up = scores > 0
    expected = up @ (codes.T > 0).astype(float) + ~up @ (codes.T < 0).astype(float)
    assert (one_against_one.votes(scores, k) == expected).all()
    if n:
        dense[0, np.flatnonzero(codes[np.repeat(np.arange(k), counts)[0]] == 0)[0]] = 1
        assert one_against_one.packed(dense, counts) is None


@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_models(kernel, monkeypatch):
    """A model keeps no codes, also as a copy, and says what one with kept codes says."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4
    X = rng.standard_normal((40, 3)) + y[:, None]
    model = train(X, y, solver="l2svc", multiclass="ovo", kernel=kernel)
    codes = codes_of("ovo", 4, 0)
    assert model.voted and not model.joint and (model.codes == codes).all() and model.codes.dtype == np.int8
    scores, labels, margins = model.decision_function(X), model.predict(X), model.margins(X, y)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not any(isinstance(value, np.ndarray) and value.shape == codes.shape and value.dtype == np.int8
                       for value in vars(other).values())
        assert (other.decision_function(X) == scores).all() and (other.predict(X) == labels).all()
    # Labels are made of some rows at a time.
    monkeypatch.setattr(model_module, "SCORES", 6 * 7)
    assert (model.predict(X) == labels).all()
    monkeypatch.setattr(one_against_one, "are_codes", lambda codes: False)
    if kernel is None:
        kept = Model(model.weights, model.classes, codes=codes)
    else:
        assert model.weights.shape == (model.n_support, 3) and model.dual_coef.shape == (model.n_support, 6)
        kept = KernelModel(model.kernel, model.support, model.dual_coef, model.classes, codes=codes,
                           support_counts=model.support_counts, intercept=model.intercept, n_features=3)
    assert np.allclose(kept.decision_function(X), scores)
    assert (kept.predict(X) == labels).all() and (kept.margins(X, y) == margins).all()


def test_a_coefficient_without_a_place_is_kept():
    """Codes of one against one do not say whose coefficients are 0."""
    model = KernelModel(Kernel("linear"), np.eye(3), np.ones((3, 3)), [1, 2, 3], codes=codes_of("ovo", 3, 0),
                        support_counts=[1, 1, 1], intercept=np.zeros(3), n_features=3)
    assert (model.dual_coef == 1).all() and (model.decision_function(np.eye(3)) == 1).all()


def test_wrong_shapes():
    given = {"support_counts": [1, 1, 1], "intercept": np.zeros(3), "n_features": 3}
    for columns, codes, message in [(4, "ovo", "dual_coef has 4 columns"), (3, "ecoc", "codes = 'ecoc'")]:
        with pytest.raises(ValueError, match=message):
            KernelModel(Kernel("linear"), np.eye(3), np.ones((3, columns)), [1, 2, 3], codes=codes, **given)
