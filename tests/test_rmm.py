"""rmm against a quadratic program, the limits in which it is the support vector machine, and what B does."""

from pathlib import Path

import numpy as np
import oracles
import pytest

import marginlinear as ml

DATA = Path(__file__).parent.parent / "data"


def objective(w, Z, cost, upper, bound):
    g = Z @ w
    return 0.5 * w @ w + cost @ np.maximum(0, 1 - g) + upper @ np.maximum(0, g - bound)


def least(Z, cost, upper, bound):
    d = Z.shape[1]
    return oracles.minimal_program(np.eye(d), np.zeros(d), (Z, 1.0, cost, 0 * cost),
                                   (-Z, -bound, upper, 0 * upper))[1]


@pytest.mark.parametrize("seed", range(12))
def test_certified_against_a_qp(seed):
    X, y, sign, C = oracles.random_binary(seed)
    rng = np.random.default_rng(seed)
    weight, bound, D = rng.uniform(0.2, 3, len(y)), 1 + seed % 3 * rng.random(), C * 10.0 ** rng.uniform(-1, 1)
    problem = sign[:, None] * X, C * weight, D * weight, bound
    best = least(*problem)
    for algorithm in ("auto", "cd", "accelerated", "newton"):
        model = ml.train(X, y, solver="rmm", C=C, bound_cost=D, margin_bound=bound, sample_weight=weight,
                         algorithm=algorithm, tol=1e-10, max_iter=10**6)
        info = model.info
        assert info.converged
        assert info.objective == pytest.approx(objective(model.coef[0], *problem), rel=1e-10)
        assert info.objective == pytest.approx(best, rel=1e-9)
        assert info.bound <= best * (1 + 1e-11)


def test_without_an_upper_cost_it_is_the_support_vector_machine():
    X, y = ml.load_libsvm(DATA / "vehicle")
    svm, free, far = (ml.train(X, y, tol=1e-6, bias=1, **given) for given in (
        {"solver": "l1svc"}, {"solver": "rmm", "bound_cost": 1e-12}, {"solver": "rmm", "margin_bound": 1e6}))
    assert free.info.objective == pytest.approx(svm.info.objective, rel=1e-5)
    assert far.info.objective == pytest.approx(svm.info.objective, rel=1e-5)


def test_the_bound_draws_margins_in():
    X, y = ml.load_libsvm(DATA / "dna")
    y = np.where(y == 3, 1, -1)
    above = [(y * ml.train(X, y, solver="rmm", bound_cost=D, margin_bound=1.5).decision_function(X)).max()
             for D in (1e-6, 0.1, 100.0)]
    assert above[0] > above[1] > above[2] > 1
    assert above[2] < 1.6
    # D is C unless given.
    assert (ml.train(X, y, solver="rmm", C=3).weights == ml.train(X, y, solver="rmm", C=3, bound_cost=3).weights).all()


def test_what_is_refused():
    X, y = np.eye(4), [0, 1, 0, 1]
    with pytest.raises(ValueError, match=r"margin_bound = 0.5 is not allowed: give number in \[1, inf\)"):
        ml.train(X, y, solver="rmm", margin_bound=0.5)
