"""l1svc, l2svc, lssvm and mamc against independent answers, LIBLINEAR and LIBSVM."""

import shutil
import subprocess

import numpy as np
import oracles
import pytest

import marginlinear as ml

SEEDS = range(24)
ROUTES = ("auto", "cd", "accelerated", "newton")
liblinear = pytest.mark.skipif(shutil.which("liblinear-train") is None,
                               reason="needs `apt-get install liblinear-tools`")
libsvm = pytest.mark.skipif(shutil.which("svm-train") is None, reason="needs `apt-get install libsvm-tools`")


@pytest.mark.parametrize("seed", SEEDS)
def test_l1svc_against_a_qp(seed):
    X, y, sign, C = oracles.random_binary(seed)
    cost = C * np.random.default_rng(seed).uniform(0.2, 3, len(y))
    best = oracles.minimal_svc(X, sign, cost)
    for algorithm in ROUTES:
        model = ml.train(X, y, solver="l1svc", sample_weight=cost, algorithm=algorithm, tol=1e-9, max_iter=10**6)
        w, info = model.coef[0], model.info
        assert info.converged
        assert info.objective == pytest.approx(0.5 * w @ w + cost @ np.maximum(0, 1 - sign * (X @ w)), rel=1e-10)
        assert ((w - best) ** 2).sum() <= 2 * info.certificate + 1e-8 * max(1, best @ best)


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_l2svc_against_newton(seed):
    X, y, sign, C = oracles.random_binary(seed)
    best = oracles.minimal_odm(X, sign, np.full(len(y), C), 0.0, 0.0)
    for algorithm in ROUTES:
        model = ml.train(X, y, solver="l2svc", C=C, algorithm=algorithm, tol=1e-10, max_iter=10**6)
        assert model.info.converged
        assert ((model.coef[0] - best) ** 2).sum() <= 2 * model.info.certificate + 1e-9 * max(1, best @ best)


@pytest.mark.parametrize("algorithm", ROUTES)
def test_mamc_in_closed_form(algorithm):
    X, y, sign, C = oracles.random_binary(5)
    model = ml.train(X, y, solver="mamc", C=C, algorithm=algorithm)
    w = C * X.T @ sign
    assert model.info.converged
    assert np.allclose(model.coef[0], w)
    assert model.info.objective == pytest.approx(-0.5 * w @ w)


@pytest.mark.parametrize(("solver", "phi"), [("l1svc", lambda g: np.maximum(0, 1 - g)),
                                             ("l2svc", lambda g: np.maximum(0, 1 - g) ** 2),
                                             ("lssvm", lambda g: (1 - g) ** 2)])
@pytest.mark.parametrize("kernel", ["poly", "rbf", "sigmoid"])
def test_kernel_objective_in_numpy(solver, phi, kernel):
    """1/2 c'Kc + C sum phi(g) from the support vectors and their coefficients alone."""
    X, y, sign, _ = oracles.random_binary(9)
    options = {"poly": {"gamma": 0.5, "coef0": 1.0, "degree": 2}, "rbf": {"gamma": 0.5},
               "sigmoid": {"gamma": 0.01, "coef0": 0.0}}[kernel]
    model = ml.train(X, y, solver=solver, C=0.7, kernel=kernel, tol=1e-7, bias=0.5, max_iter=10**6, **options)
    Z = model.support
    dot = {"poly": lambda A, B: (0.5 * A @ B.T + 1) ** 2, "rbf": lambda A, B: oracles.rbf(A, B, 0.5),
           "sigmoid": lambda A, B: np.tanh(0.01 * A @ B.T)}[kernel]
    c = model.dual_coef[:, 0]
    scores = (dot(X, Z) + 0.25) @ c
    assert np.allclose(model.decision_function(X), scores)
    value = 0.5 * c @ (dot(Z, Z) + 0.25) @ c + 0.7 * phi(sign * scores).sum()
    assert model.info.objective == pytest.approx(value, rel=1e-9)
    assert model.info.converged


def write_text(path, X, y):
    rows = (" ".join(f"{j + 1}:{v:.17g}" for j, v in enumerate(x) if v) for x in X)
    path.write_text("".join(f"{2 * label - 1} {row}\n" for label, row in zip(y, rows, strict=True)))


def overlapping(m=300, d=10):
    rng = np.random.default_rng(d)
    X = rng.random((m, d))
    X[rng.random(X.shape) < 0.4] = 0
    y = ((X - 0.5) @ rng.standard_normal(d) + 0.3 * rng.standard_normal(m) > 0).astype(int)
    return X, y


@liblinear
@pytest.mark.parametrize("C", [0.1, 1.0, 8.0])
@pytest.mark.parametrize(("number", "power"), [(3, 1), (1, 2)])
def test_liblinear_s_objective(tmp_path, number, power, C):
    X, y = overlapping()
    write_text(tmp_path / "train", X, y)
    subprocess.run(["liblinear-train", "-q", "-s", str(number), "-c", str(C), "-e", "1e-6", "train", "model"],
                   cwd=tmp_path, check=True, capture_output=True)
    lines = (tmp_path / "model").read_text().splitlines()
    w = np.array(lines[lines.index("w") + 1:], dtype=float) * (1 if "label 1 -1" in lines else -1)
    theirs = 0.5 * w @ w + C * (np.maximum(0, 1 - (2 * y - 1) * (X @ w)) ** power).sum()
    model = ml.train(X, y, solver=number, C=C, tol=1e-8)
    assert model.info.objective <= theirs * (1 + 1e-7)
    assert C > 1 or model.info.objective == pytest.approx(theirs, rel=1e-5)  # -s 3 stops at its cap for C = 8
    assert model.info.bound <= theirs * (1 + 1e-9)
    # Both within sqrt(2 (objective - optimum)) of the optimum.
    apart = np.sqrt(2 * (theirs - model.info.bound)) + np.sqrt(2 * model.info.certificate)
    assert np.linalg.norm(model.coef[0] - w) <= apart + 1e-6
    if number == 3:
        same = ml.train(X, y, solver="ldm", lambda1=0, lambda2=0, C=C, tol=1e-8)
        assert same.info.objective == pytest.approx(model.info.objective, rel=1e-7)


@libsvm
@pytest.mark.parametrize("C", [1.0, 10.0])
def test_libsvm_s_optimum_up_to_the_bias(tmp_path, C):
    """LIBSVM's bias costs nothing. Ours, a constant feature of value B, costs b^2/(2 B^2): as B grows the optima meet.

    Compared are the values of LIBSVM's own objective, 1/2 c'Kc + C sum (1 - y (f + b))_+, at both solutions.
    """
    X, y = overlapping(m=120, d=6)
    sign, B = 2 * y - 1, 10.0
    write_text(tmp_path / "train", X, y)
    subprocess.run(["svm-train", "-q", "-t", "2", "-g", "0.7", "-c", str(C), "-e", "1e-7", "train", "model"],
                   cwd=tmp_path, check=True, capture_output=True)
    theirs = ml.load_model(tmp_path / "model")
    ours = ml.train(X, y, solver="l1svc", kernel="rbf", gamma=0.7, C=C, bias=B, tol=1e-5, max_iter=10**6)

    def value(model):
        Z = model.support.toarray() if hasattr(model.support, "toarray") else model.support
        c = model.dual_coef[:, 0]
        f = model.decision_function(X)
        return 0.5 * c @ oracles.rbf(Z, Z, 0.7) @ c + C * np.maximum(0, 1 - sign * f).sum()

    b = ours.intercept[0]
    price = b * b / (2 * B * B)
    assert value(theirs) - 1e-6 <= value(ours) <= value(theirs) + price + ours.info.certificate
    assert ours.info.bound <= value(theirs) + theirs.intercept[0] ** 2 / (2 * B * B) + 1e-6
    assert price < 1e-2 * value(theirs)
