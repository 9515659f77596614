"""nusvc and nusvr: their certificates in NumPy, LIBSVM's optimum, what nu promises, and what it cannot be."""

import itertools
import math
import shutil
import subprocess

import numpy as np
import oracles
import pytest
from scipy import optimize, sparse
from test_kernel_regression import GAMMA, coefficients, problem

import marginlinear as ml
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.pairs import BETWEEN
from marginlinear.algorithms.secant import Valley
from marginlinear.cli import train as margin_train
from marginlinear.data.kernels import KernelRows

libsvm = pytest.mark.skipif(shutil.which("svm-train") is None, reason="needs `apt-get install libsvm-tools`")
RBF = {"kernel": "rbf", "gamma": GAMMA, "tol": 1e-8}


def classes(m=250):
    X, z = problem(m)
    return X, np.where(z > np.median(z) + 0.5, 1, -1)


@pytest.mark.parametrize("nu", [0.1, 0.3, 0.7])
def test_certificate_of_nusvc(nu):
    """At the rho that the weights, in units of it, have: that of the optimum."""
    X, y = classes()
    weights = np.where(np.arange(len(y)) % 3, 1.0, 1.5)
    model = ml.train(X, y, solver="nusvc", nu=nu, sample_weight=weights, **RBF)
    info, K, total = model.info, oracles.rbf(X, X, GAMMA), nu * weights.sum()
    assert info.converged
    margins = y * (K @ coefficients(model, len(y)) + model.intercept[0])
    assert np.allclose(model.decision_function(X) * y, margins, rtol=1e-9)
    b = coefficients(model, len(y))
    least = optimize.minimize_scalar(lambda rho: 0.5 * rho**2 * (b @ K @ b) - total * rho + rho * (
        weights @ np.maximum(0, 1 - margins)), bounds=(0, 1e4), method="bounded", options={"xatol": 1e-10}).fun
    assert info.objective == pytest.approx(least, rel=1e-7)
    assert info.bound == pytest.approx(-0.5 * (b @ K @ b) * rho_of(b, y, total) ** 2, rel=1e-5)
    # At most a part nu of the weights is within the margin, and at least that part has duals.
    assert weights[margins < 1 - 1e-4].sum() <= total <= weights[b != 0].sum() + 1e-9


def rho_of(b, y, total):
    """What the duals were divided by: they add up to `total`."""
    return total / (y @ b)


def test_nusvc_is_csvc_with_the_cost_that_nu_means():
    X, y = classes()
    model = ml.train(X, y, solver="nusvc", nu=0.4, **RBF)
    C = 1 / rho_of(coefficients(model, len(y)), y, 0.4 * len(y))
    same = ml.train(X, y, solver="l1svc", C=C, free_bias=True, **RBF)
    assert np.allclose(model.decision_function(X), same.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("kernel", ["linear", None])
@pytest.mark.parametrize(("solver", "given"), [("nusvc", {"nu": 0.3}), ("nusvr", {"nu": 0.3, "C": 3.0})])
def test_few_features_to_the_last_digits(solver, given, kernel):
    """A kernel of a rank below its rows, which is indefinite in float32: there its dual rises for ever."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(24, 4))
    y = np.where(X @ rng.normal(size=4) + rng.normal(size=24) > 0, 1.0, -1.0)
    info = ml.train(X, y, solver=solver, tol=1e-8, kernel=kernel, **given).info
    assert info.converged and info.n_iter < 200


@pytest.mark.parametrize("nu", [0.1, 0.35, 0.5])
@pytest.mark.parametrize("solver", ["nusvc", "nusvr"])
def test_features_that_differ_in_size(solver, nu):
    """Products of such rows had no digits left for the small ones: bounds above the objective, or no end."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 5)) * [1e3, 1, 1e-2, 30, 1] + [1e4, 0, 1, 0, -5]
    z = X @ [1e-3, 0.5, 20, 0, 0.1] + rng.normal(size=400)
    C, weights = 50.0, np.where(np.arange(400) % 3, 1.0, 2.0)
    y, given = (z, {"C": C}) if solver == "nusvr" else (np.where(z > np.median(z), 1.0, -1.0), {})
    info = (model := ml.train(X, y, solver=solver, nu=nu, sample_weight=weights, tol=1e-6, **given)).info
    assert info.converged and info.n_iter < 2000 and info.n_outer < 60
    w, f, total = np.ravel(model.coef), model.decision_function(X), nu * weights.sum()
    if solver == "nusvr":
        epsilon = float(info.notes[0].removeprefix("epsilon is "))
        value = 0.5 * w @ w + C * (total * epsilon + weights @ np.maximum(0, abs(z - f) - epsilon))
    else:
        # In units of rho; of the rho that is best for this direction.
        height = total - weights @ np.maximum(0, 1 - y * f)
        value = -0.5 * height**2 / (w @ w) if w.any() else 0.0
    assert info.objective == pytest.approx(value, rel=1e-5)


def test_a_start_whose_band_has_no_width():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    z = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=200)
    first = ml.train(X, z, solver="nusvr", nu=1.0, tol=1e-9)
    assert first.info.converged and float(first.info.notes[0].removeprefix("epsilon is ")) < 1e-8
    assert ml.train(X, z, solver="nusvr", nu=1.0, tol=1e-9, start=first).info.n_iter == 0
    fresh, again = (ml.train(X, z, solver="nusvr", nu=0.2, tol=1e-6, start=start).info for start in (None, first))
    assert again.converged and again.objective == pytest.approx(fresh.objective, rel=1e-5)


def test_the_least_of_a_valley():
    """Of a parabola, a kink, and one at the left end, with lines that are too high by the error that they tell."""
    def found(value, slope, x, error):
        search, steps = Valley(), 0
        while error > 1e-13:
            new = search.after(x, value(x) + error * math.sin(9 * x)**2, slope(x), error)
            error, x, steps = error / 10 if new == x else error, new, steps + 1
        return x, steps

    for x in (0.1, 40.0):
        assert found(lambda x: (x - 3)**2, lambda x: 2 * (x - 3), x, 1.0)[0] == pytest.approx(3, abs=1e-5)
        at, steps = found(lambda x: max(3 - x, 4 * (x - 3)), lambda x: -1.0 if x < 3 else 4.0, x, 1.0)
        assert at == pytest.approx(3, abs=1e-11) and steps < 90
        assert found(lambda x: x, lambda x: 1.0, x, 1e-3)[0] < 1e-9


@pytest.mark.parametrize("nu", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("C", [0.5, 20.0])
def test_certificate_of_nusvr(nu, C):
    X, z = problem()
    weights = np.where(np.arange(len(z)) % 3, 1.0, 2.0)
    model = ml.train(X, z, solver="nusvr", nu=nu, C=C, sample_weight=weights, **RBF)
    info, K, b = model.info, oracles.rbf(X, X, GAMMA), coefficients(model, len(z))
    assert info.converged
    f = K @ b + model.intercept[0]
    assert np.allclose(model.predict(X), f)

    def value(epsilon):
        return 0.5 * b @ K @ b + C * weights @ (nu * epsilon + np.maximum(0, abs(z - f) - epsilon))

    candidates = np.append(abs(z - f), 0.0)
    assert info.objective == pytest.approx(min(map(value, candidates)), rel=1e-9)
    assert info.bound == pytest.approx(b @ z - 0.5 * b @ K @ b, rel=1e-6)
    assert (abs(b) <= C * weights * (1 + 1e-12)).all()
    assert abs(b.sum()) <= 1e-9 * abs(b).sum()
    assert abs(b).sum() <= nu * C * weights.sum() * (1 + 1e-12)
    epsilon = min(candidates, key=value)
    assert float(info.notes[0].removeprefix("epsilon is ")) == pytest.approx(epsilon, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("solver, given", [("nusvc", {}), ("nusvr", {"C": 2.0})])
def test_linear_is_the_linear_kernel(solver, given):
    """Weights of the features, and of the bias feature whatever its value, in any storage."""
    X, z = problem()
    y = z if solver == "nusvr" else np.where(z > np.median(z), 1, -1)
    by_kernel = ml.train(X, y, solver=solver, kernel="linear", tol=1e-9, **given)
    expected = by_kernel.predict(X) if solver == "nusvr" else by_kernel.decision_function(X)
    for rows, bias in ((X, -1), (sparse.csr_array(X), 1.0), (X, 7.0)):
        model = ml.train(rows, y, solver=solver, bias=bias, tol=1e-9, **given)
        assert model.info.objective == pytest.approx(by_kernel.info.objective, rel=1e-8)
        found = model.predict(rows) if solver == "nusvr" else model.decision_function(rows)
        assert np.allclose(found, expected, atol=1e-5 * abs(expected).max())


@pytest.mark.parametrize("solver, given", [("nusvc", {}), ("nusvr", {"C": 2.0})])
def test_a_start_helps(solver, given):
    X, z = problem(600)
    y = z if solver == "nusvr" else np.where(z > np.median(z), 1, -1)
    first = ml.train(X, y, solver=solver, nu=0.4, **given, **RBF)
    again = ml.train(X, y, solver=solver, nu=0.4, start=first, **given, **RBF)
    assert again.info.n_iter <= 1
    other = ml.train(X, y, solver=solver, nu=0.42, start=first, **given, **RBF)
    assert other.info.converged


@libsvm
@pytest.mark.parametrize("number, solver", [("1", "nusvc"), ("4", "nusvr")])
def test_libsvm_agrees(tmp_path, number, solver):
    X, z = problem()
    X[1] += 0.1
    y = z if solver == "nusvr" else np.digitize(z, np.quantile(z, [0.3, 0.7]))
    ml.dump_libsvm(X, y, tmp_path / "d")
    options = ["-t", "2", "-g", "0.2", "-n", "0.4", *(["-c", "2"] if solver == "nusvr" else [])]
    subprocess.run(["svm-train", "-q", "-s", number, "-e", "1e-6", *options, "d", "theirs"], cwd=tmp_path, check=True)
    assert margin_train.main(["-s", solver, *options, "-e", "1e-9", "-q", str(tmp_path / "d"),
                              str(tmp_path / "ours")]) == 0
    ours, theirs = ml.load_model(tmp_path / "ours"), ml.load_model(tmp_path / "theirs")
    # Pairs of classes stand in the order of the file's labels: LIBSVM's are those of its rows.
    scores = [m.predict(X) if solver == "nusvr" else np.sort(abs(m.decision_function(X))) for m in (ours, theirs)]
    assert np.allclose(*scores, atol=1e-3 * abs(scores[0]).max())
    for name in ("ours", "theirs"):
        subprocess.run(["svm-predict", "-q", "d", name, "out"], cwd=tmp_path, check=True)
        assert np.allclose(ml.load_model(tmp_path / name).predict(X), np.loadtxt(tmp_path / "out"), rtol=1e-5)


def test_more_than_a_class_has_is_refused():
    X, y = classes()
    y = np.where(np.arange(len(y)) < 25, 1, -1)
    with pytest.raises(ValueError, match="more than twice the part of the smaller class: give at most 0"):
        ml.train(X, y, solver="nusvc", **RBF)
    assert ml.train(X, y, solver="nusvc", nu=0.2, **RBF).info.converged


def test_classes_that_cannot_be_told_apart_are_said_so():
    X, y = np.repeat(classes(50)[0], 2, axis=0), np.tile([1, -1], 50)
    model = ml.train(X, y, solver="nusvc", **RBF)
    assert not model.coefficients.any() if hasattr(model, "coefficients") else not model.dual_coef.any()
    assert "give a larger nu" in model.info.notes[0]


def test_a_bias_of_no_value_is_refused():
    X, y = classes(40)
    with pytest.raises(ValueError, match=r"bias = 0\.0 does not go with"):
        ml.train(X, y, solver="nusvc", bias=0.0)


def test_a_search_must_say_of_what(tmp_path, capsys):
    X, y = classes(60)
    ml.dump_libsvm(X, y, tmp_path / "d")
    assert margin_train.main(["-s", "nusvc", "-C", str(tmp_path / "d")]) == 2
    assert "nusvc has no C, and no other grid by default: name what to search, such as nu=" in capsys.readouterr().err
    grid = ["--grid", "nu=0.1,0.3", "-v", "2", "-t", "rbf", "-q"]
    assert margin_train.main(["-s", "nusvc", "-C", *grid, str(tmp_path / "d")]) == 0


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_targets_of_few_values_in_any_order(kernel):
    """Found by estimators: with all slopes of the first round alike, no two variables of an active set made a pair."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    z = np.sign(X[:, 0] + 0.3 * rng.normal(size=1500))
    order = np.argsort(z)
    found = [ml.train(X[which], z[which], solver="nusvr", kernel=kernel, nu=0.5, tol=1e-3).info
             for which in (slice(None), order)]
    assert all(info.converged for info in found)
    assert found[0].objective == pytest.approx(found[1].objective, rel=2e-3)


@pytest.mark.parametrize("storage", [np.float64, np.float32])
@pytest.mark.parametrize("solver", ["nusvc", "nusvr"])
def test_dense_rows_far_from_the_origin(solver, storage):
    """Their products hold little of how they differ: a bound above the objective was found from them."""
    rng = np.random.default_rng(0)
    X = rng.integers(-9, 9, (100, 3)).astype(storage)
    y = rng.integers(0, 2, 100)
    near, far = (ml.train(rows, y, solver=solver, tol=1e-4) for rows in (X, X + 2**12))
    assert far.info.converged
    assert far.info.objective == pytest.approx(near.info.objective, abs=3e-4 * max(1, abs(near.info.objective)))
    np.testing.assert_allclose(far.decision_function(X + 2**12), near.decision_function(X), atol=2e-2)


@pytest.mark.parametrize("solver", ["nusvc", "oneclass"])
def test_the_clock_is_seen_while_a_start_is_made(solver, monkeypatch):
    """Most rows have a coefficient from the start on: a clock that goes on by 1 at each look ends it after some."""
    X, y = classes(3000)
    looks, made, fill = itertools.count(), [], KernelRows.fill

    def count(rows, which, out):
        made.extend(which)
        fill(rows, which, out)

    monkeypatch.setattr(Budget, "seconds", property(lambda self: float(next(looks))))
    monkeypatch.setattr(KernelRows, "fill", count)
    with pytest.warns(ml.ConvergenceWarning, match="time_limit"):
        model = ml.train(X, y, solver=solver, nu=0.6, kernel="rbf", time_limit=2.0, threads=1)
    assert 0 < len(made) <= 2 * BETWEEN and model.n_support == 0
    assert model.info.status == "time_limit" and (model.info.objective, model.info.bound) == (0.0, -np.inf)
