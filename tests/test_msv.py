"""msv against its definition, minimised by SciPy, and what becomes of it at small and large C."""

from pathlib import Path

import numpy as np
import oracles
import pytest
from scipy.optimize import minimize

import marginlinear as ml
from marginlinear.methods.msv import Secant

DATA = Path(__file__).parent.parent / "data"
SEEDS = range(12)


def objective(w, X, sign, instance, factor, C):
    """(P, its gradient) as the method's file has them."""
    size = instance.sum()
    margins, r = sign * (X @ w), X.T @ (instance * sign) / size
    short = np.maximum(0, r @ w - margins)
    force = 2 * C * instance * factor * short
    value = w @ w / 2 - size * (r @ w) + force @ short / 2
    return value, w - size * r + force.sum() * r - X.T @ (sign * force)


def least(X, sign, instance, factor, C):
    """(P*, w) by BFGS from the best multiple of r, polished until the gradient's bound of P - P* is nothing."""
    w, problem = X.T @ (instance * sign), (X, sign, instance, factor, C)
    for _ in range(20):
        w = minimize(objective, w, problem, method="BFGS", jac=True, options={"gtol": 1e-13, "maxiter": 10_000}).x
    value, gradient = objective(w, *problem)
    # P is strongly convex: P - P* <= ||grad||^2/2.
    assert gradient @ gradient / 2 <= 1e-10 * abs(value)
    return value, w


def some(seed):
    rng = np.random.default_rng(seed)
    m, d = int(rng.integers(20, 80)), int(rng.integers(2, 7))
    y = rng.integers(0, 2, m)
    X = rng.standard_normal((m, d)) + 0.8 * y[:, None] * rng.standard_normal(d)
    instance = rng.integers(1, 4, m).astype(float) if seed % 3 == 1 else np.ones(m)
    classes = {0: 1.0, 1: 2.5} if seed % 2 else {0: 1.0, 1: 1.0}
    return X, y, 2.0 * y - 1, instance, classes, float(10.0 ** rng.uniform(-3, 2.5))


@pytest.mark.parametrize("seed", SEEDS)
def test_certified_against_its_definition(seed):
    X, y, sign, instance, classes, C = some(seed)
    problem = X, sign, instance, np.array([classes[label] for label in y]), C
    best, w_best = least(*problem)
    for algorithm in ("auto", "cd", "accelerated", "newton"):
        model = ml.train(X, y, solver="msv", C=C, sample_weight=instance, class_weight=classes, algorithm=algorithm,
                         tol=1e-9, bias=-1, max_iter=10**6)
        info, w = model.info, model.coef[0]
        slack = 1e-9 * max(1, abs(best))
        assert info.converged
        assert info.objective == pytest.approx(objective(w, *problem)[0], rel=1e-10, abs=1e-10)
        assert info.objective - best <= slack
        assert info.bound <= best + slack
        assert np.allclose(w, w_best, atol=np.sqrt(2 * max(0, info.certificate)) + 1e-5 * np.linalg.norm(w_best))


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_the_bound_holds_wherever_it_stops(seed):
    X, y, sign, instance, classes, C = some(seed)
    best, _ = least(X, sign, instance, np.array([classes[label] for label in y]), C)
    with pytest.warns(ml.ConvergenceWarning):
        for sweeps in (1, 2, 5):
            info = ml.train(X, y, solver="msv", C=C, sample_weight=instance, class_weight=classes, tol=1e-13, bias=-1,
                            max_iter=sweeps).info
            assert info.bound <= best + 1e-9 * abs(best)
            assert info.objective >= best - 1e-9 * abs(best)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_kernel_is_linear_with_its_features(kernel, C):
    X, y, _, _, _, _ = some(5)
    K = oracles.rbf(X, X, 0.5) if kernel == "rbf" else X @ X.T
    linear = ml.train(oracles.features_of(K), y, solver="msv", C=C, tol=1e-8, bias=-1, max_iter=10**6)
    by_kernel = ml.train(X, y, solver="msv", C=C, tol=1e-8, bias=-1, kernel=kernel,
                         **({"gamma": 0.5} if kernel == "rbf" else {}), max_iter=10**6)
    assert by_kernel.info.converged
    assert by_kernel.info.objective == pytest.approx(linear.info.objective, rel=1e-7)
    scores = linear.decision_function(oracles.features_of(K))
    assert np.allclose(by_kernel.decision_function(X), scores, atol=2e-3 * abs(scores).max())


def test_small_c_is_the_mean_and_large_c_the_least_semi_variance():
    X, y, sign, _, _, _ = some(0)

    def semi_variance(w):
        margins = sign * (X @ w)
        return (np.maximum(0, 1 - margins / margins.mean()) ** 2).mean()

    found = {C: ml.train(X, y, solver="msv", C=C, bias=-1, tol=1e-12).coef[0] for C in (1e-7, 1.0, 1e5)}
    mamc = ml.train(X, y, solver="mamc", bias=-1).coef[0]
    assert np.allclose(found[1e-7] / np.linalg.norm(found[1e-7]), mamc / np.linalg.norm(mamc), atol=1e-4)
    values = [semi_variance(w) for w in found.values()]
    assert values == sorted(values, reverse=True)
    polished = minimize(semi_variance, found[1e5], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    assert values[-1] <= polished.fun * (1 + 1e-4)


def test_weights_are_rows_and_the_scale_of_the_data_is_known():
    X, y, _, _, _, _ = some(1)
    twice = ml.train(np.vstack([X, X[:10]]), np.append(y, y[:10]), solver="msv", C=3.0, tol=1e-9)
    weighted = ml.train(X, y, solver="msv", C=3.0, tol=1e-9, sample_weight=1.0 + (np.arange(len(y)) < 10))
    assert weighted.info.objective == pytest.approx(twice.info.objective, rel=1e-8)
    # C for rows a times as long is C/a^2: margins are quadratic in them.
    plain, longer = (ml.train(a * X, y, solver="msv", C=3.0 / a**2, tol=1e-9, bias=-1) for a in (1.0, 1e4))
    assert longer.info.objective == pytest.approx(1e8 * plain.info.objective, rel=1e-7)


def test_a_start_saves_work_and_changes_nothing():
    X, y, _, _, _, _ = some(2)
    cold = ml.train(X, y, solver="msv", C=10.0, tol=1e-7, algorithm="cd", max_iter=10**6)
    again = ml.train(X, y, solver="msv", C=10.0, tol=1e-7, algorithm="cd", start=cold, max_iter=10**6)
    near = ml.train(X, y, solver="msv", C=11.0, tol=1e-7, algorithm="cd", start=cold, max_iter=10**6)
    alone = ml.train(X, y, solver="msv", C=11.0, tol=1e-7, algorithm="cd", max_iter=10**6)
    assert again.info.n_iter < cold.info.n_iter
    assert again.info.objective == pytest.approx(cold.info.objective, rel=2e-7)
    assert near.info.objective == pytest.approx(alone.info.objective, rel=2e-7)


@pytest.mark.parametrize("other", [{"C": 1e-3}, {"C": 1e3}, {"C": 1.0, "class_weight": {0: 0.01, 1: 5.0}}])
def test_a_start_at_other_costs_does_not_stall(other):
    """The price of the mean margin is another one there."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 5)) * 10.0 ** rng.uniform(-1, 1, 5) + 2.0
    y = (X @ rng.normal(size=5) > 0).astype(int)
    start = ml.train(X, y, solver="msv", C=1.0, tol=1e-4)
    cold, found = (ml.train(X, y, solver="msv", tol=1e-4, start=one, **other) for one in (None, start))
    assert found.info.converged and found.info.objective == pytest.approx(cold.info.objective, rel=2e-4)


def test_several_classes_and_a_file(tmp_path):
    X, y = ml.load_libsvm(DATA / "vehicle")
    model = ml.train(X, y, solver="msv", bias=1)
    assert model.info.converged and model.predict(X[:5]).shape == (5,)
    ml.save_model(model, tmp_path / "model")
    assert np.array_equal(ml.load_model(tmp_path / "model").predict(X), model.predict(X))


def test_without_a_mean_there_is_no_margin_to_raise():
    X = np.array([[1.0, 2.0], [1.0, 2.0], [-3.0, 0.5], [-3.0, 0.5]])
    for kernel in (None, "linear"):
        with pytest.raises(ValueError, match=r"msv: the mean of y_i x_i over the rows is 0"):
            ml.train(X, [0, 1, 0, 1], solver="msv", bias=-1, kernel=kernel)


def test_a_step_within_the_errors_stays():
    search = Secant(2.0)
    assert search.after(1.0, 0.5, 0.6) == 1.0
    assert search.after(1.0, 0.5, 0.1) == 0.75
    assert 0.75 > search.after(0.75, 0.2, 0.01) > 0.5
    assert 0.5 < search.after(0.5, -0.1, 0.01) < 0.75


def test_a_kink_beside_the_root_is_not_crept_up_to():
    """One row amid the others: from one side lines came hardly nearer, the value on the other being large."""
    X = np.random.default_rng(29).normal(size=(400, 1)) + 2
    assert ml.train(X, np.arange(400) == 2, solver="msv", C=1000, bias=10).info.converged


def test_an_end_whose_error_was_thought_too_small_is_dropped():
    search = Secant(1.0, 2.0)
    assert search.after(1.0, -0.5, 0.1) == 1.5
    # With a slope of at most 2 the value at 1 is at least 0: the root is at 1, or before.
    assert search.after(1.1, 0.2, 0.1) == pytest.approx(1.0)
