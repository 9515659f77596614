"""Regression and one-class machines over kernels: certificates in NumPy, LIBSVM's optimum, its programs and files."""

import shutil
import subprocess

import numpy as np
import oracles
import pytest

import marginlinear as ml
from marginlinear.algorithms import pairs
from marginlinear.cli import train as margin_train

libsvm = pytest.mark.skipif(shutil.which("svm-train") is None, reason="needs `apt-get install libsvm-tools`")
GAMMA = 0.2
POWER = {"l1svr": 1, "l2svr": 2}


def problem(m=250):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(m, 5))
    X[1] = X[0]
    return X, 3 * np.sin(X[:, 0]) + X[:, 1] + 5 + 0.3 * rng.normal(size=m)


def coefficients(model, m):
    b = np.zeros(m)
    b[model.support_indices] = model.dual_coef[:, 0]
    return b


@pytest.mark.parametrize("free_bias", [False, True])
@pytest.mark.parametrize("solver", POWER)
@pytest.mark.parametrize("C", [0.1, 3.0, 100.0])
def test_certificates_are_those_of_the_model(solver, C, free_bias):
    X, z = problem()
    weights = np.where(np.arange(len(z)) % 3, 1.0, 2.0)
    model = ml.train(X, z, solver=solver, kernel="rbf", gamma=GAMMA, C=C, epsilon=0.2, free_bias=free_bias,
                     sample_weight=weights, tol=1e-7)
    info, K, b = model.info, oracles.rbf(X, X, GAMMA), coefficients(model, len(z))
    assert info.converged
    assert info.algorithm == "pairs"
    f = K @ b + model.intercept[0]
    assert np.allclose(model.predict(X), f, rtol=1e-12)
    losses = np.maximum(0, abs(f - z) - 0.2) ** POWER[solver]
    assert info.objective == pytest.approx(0.5 * b @ K @ b + C * weights @ losses, rel=1e-11)
    curved = 0.0 if solver == "l1svr" else (b * b / weights).sum() / (4 * C)
    assert info.bound == pytest.approx(b @ z - 0.2 * abs(b).sum() - curved - 0.5 * b @ K @ b, rel=1e-8)
    if solver == "l1svr":
        assert (abs(b) <= C * weights * (1 + 1e-12)).all()
    if free_bias:
        assert abs(b.sum()) <= 1e-11 * abs(b).sum()
    by_sweeps = ml.train(K, z, solver=solver, kernel="precomputed", C=C, epsilon=0.2, sample_weight=weights, tol=1e-6,
                         algorithm="cd").info
    assert by_sweeps.converged
    if not free_bias:
        assert by_sweeps.bound <= info.objective
        assert info.bound <= by_sweeps.objective


def test_a_start_of_another_cost_helps():
    X, z = problem(600)
    given = {"solver": "l1svr", "kernel": "rbf", "gamma": GAMMA, "free_bias": True, "tol": 1e-5}
    first = ml.train(X, z, C=1.0, **given)
    cold, warm = ml.train(X, z, C=1.05, **given), ml.train(X, z, C=1.05, start=first, **given)
    assert warm.info.converged
    assert warm.info.n_iter <= cold.info.n_iter
    assert ml.train(X, z, C=1.0, start=first, **given).info.n_iter <= 2


@libsvm
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
def test_libsvm_agrees_on_regressions(tmp_path, kernel):
    X, z = problem()
    X[1] += 0.1
    ml.dump_libsvm(X, z, tmp_path / "d")
    own = {"linear": ["-t", "0"], "poly": ["-t", "1", "-g", "0.2"], "rbf": ["-t", "2", "-g", "0.2"]}[kernel]
    options = [*own, "-c", "2", "-p", "0.2"]
    subprocess.run(["svm-train", "-q", "-s", "3", "-e", "1e-6", *options, "d", "theirs"], cwd=tmp_path, check=True)
    assert margin_train.main(["-s", "l1svr", "-R", *options, "-e", "1e-7", "-q", str(tmp_path / "d"),
                              str(tmp_path / "ours")]) == 0
    ours, theirs = ml.load_model(tmp_path / "ours"), ml.load_model(tmp_path / "theirs")
    assert isinstance(ours, ml.KernelModel)
    assert ours.classes is theirs.classes is None
    scale = max(1.0, abs(ours.info.objective))
    b = theirs.dual_coef[:, 0]
    S = theirs.support.toarray()
    K = oracles.rbf(S, S, 0.2) if kernel == "rbf" else S @ S.T if kernel == "linear" else (0.2 * S @ S.T) ** 3
    # The file has eight digits of them.
    rows = np.linalg.norm(S[:, None] - X, axis=2).argmin(axis=1)
    dual = b @ z[rows] - 0.2 * abs(b).sum() - 0.5 * b @ K @ b
    assert ours.info.bound - 1e-4 * scale <= dual <= ours.info.objective + 1e-7 * scale
    for name in ("ours", "theirs"):
        subprocess.run(["svm-predict", "-q", "d", name, "out"], cwd=tmp_path, check=True)
        predicted = np.loadtxt(tmp_path / "out")
        # svm-predict prints six digits.
        assert np.allclose(ml.load_model(tmp_path / name).predict(X), predicted, rtol=1e-5)


@pytest.mark.parametrize("nu", [0.05, 0.4, 1.0])
def test_one_class_certificates_are_those_of_the_model(nu):
    X, _ = problem()
    model = ml.train(X, solver="oneclass", kernel="rbf", gamma=GAMMA, nu=nu, tol=1e-7)
    info, K, b, rho = model.info, oracles.rbf(X, X, GAMMA), coefficients(model, len(X)), -model.intercept[0]
    assert info.converged
    f = K @ b
    assert info.objective == pytest.approx(0.5 * b @ f - nu * len(X) * rho + np.maximum(0, rho - f).sum(), rel=1e-10)
    again = ml.train(X, solver="oneclass", kernel="rbf", gamma=GAMMA, nu=nu, tol=1e-7, start=model).info
    assert again.converged
    assert again.n_iter <= 1


@pytest.mark.parametrize("solver", ["l1svr", "oneclass"])
def test_scores_that_no_certificate_asks_for_stay_as_they_are(monkeypatch, solver):
    """Most residuals are within the band, and most scores above rho: these are not made in float64."""
    X, z = problem(1500)
    asked, recompute = [], pairs.PairFit._recompute
    monkeypatch.setattr(pairs.PairFit, "_recompute", lambda fit, columns: asked.append(len(columns)) or
                        recompute(fit, columns))
    own = {"C": 1.0, "epsilon": 1.5, "free_bias": True} if solver == "l1svr" else {"nu": 0.05}
    model = ml.train(X, z, solver=solver, kernel="rbf", gamma=0.02, tol=1e-3, **own)
    K, b, offset = oracles.rbf(X, X, 0.02), coefficients(model, len(z)), model.intercept[0]
    f = K @ b
    loss = np.maximum(0, abs(f + offset - z) - 1.5).sum() if solver == "l1svr" else (
        0.05 * len(z) * offset + np.maximum(0, -offset - f).sum())
    assert model.info.objective == pytest.approx(0.5 * b @ f + loss, rel=1e-11)
    assert max(asked) < len(z) / 2


@libsvm
def test_libsvm_agrees_on_one_class(tmp_path):
    X, z = problem()
    ml.dump_libsvm(X, np.ones(len(z)), tmp_path / "d")
    subprocess.run(["svm-train", "-q", "-s", "2", "-n", "0.2", "-g", "0.2", "-e", "1e-6", "d", "theirs"], cwd=tmp_path,
                   check=True)
    assert margin_train.main(["-s", "oneclass", "-t", "2", "-n", "0.2", "-g", "0.2", "-e", "1e-7", "-q",
                              str(tmp_path / "d"), str(tmp_path / "ours")]) == 0
    ours, theirs = ml.load_model(tmp_path / "ours"), ml.load_model(tmp_path / "theirs")
    b, S = theirs.dual_coef[:, 0], theirs.support.toarray()
    dual = -0.5 * b @ oracles.rbf(S, S, 0.2) @ b
    assert ours.info.bound - 1e-4 <= dual <= ours.info.objective + 1e-9
    assert theirs.intercept == pytest.approx(ours.intercept, rel=1e-4)
    for name, model in (("ours", ours), ("theirs", theirs)):
        subprocess.run(["svm-predict", "-q", "d", name, "out"], cwd=tmp_path, check=True)
        # The scores of support vectors between their bounds are 0 but for rounding.
        clear = np.abs(model.decision_function(X)) > 1e-6
        assert np.array_equal(model.predict(X)[clear], np.loadtxt(tmp_path / "out")[clear]) and clear.sum() > 200


def test_what_does_not_go_with_kernels():
    X, z = problem(30)
    with pytest.raises(ValueError, match="algorithm = 'cd' does not go with a kernel and without labels"):
        ml.train(X, solver="oneclass", kernel="rbf", algorithm="cd")
    with pytest.raises(TypeError, match="a regression: it has no classes"):
        ml.train(X, z, solver="l1svr", kernel="rbf").margins(X, z)
