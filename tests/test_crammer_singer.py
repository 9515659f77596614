"""cs against a generic QP, against the L1-loss SVC, and against LIBLINEAR -s 4 where it is installed."""

import shutil
import subprocess

import numpy as np
import oracles
import pytest

import marginlinear as ml

SEEDS = range(36)


def data(seed, classes=None):
    X, y, k, _ = oracles.random_problem(seed)
    if classes:
        y, k = y % classes, classes
    return X, y, k, 10.0 ** np.random.default_rng(seed).uniform(-2, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_certified_against_a_qp(seed):
    X, y, k, C = data(seed)
    cost = np.full(len(y), C)
    best = oracles.minimal_hinge(X, y, k, cost)
    model = ml.train(X, y, solver="cs", C=C, tol=3e-7 * min(1, best.value))
    W, info = model.coef.T, model.info
    value = oracles.hinge_objective(W, X, y, cost)
    slack = 1e-9 * max(1, value)
    assert value == pytest.approx(best.value, rel=1e-6)
    assert info.objective == pytest.approx(value, rel=1e-10)
    assert info.certificate == info.objective - info.bound
    assert info.bound <= best.value + slack
    assert value - best.value <= info.certificate + slack
    # 1-strongly convex, and the columns of the optimum sum to 0.
    assert ((W - best.W) ** 2).sum() <= 2 * info.certificate + 1e-8
    assert np.linalg.norm(W.sum(axis=1)) <= np.sqrt(2 * k * max(0, info.certificate)) + 1e-8


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_two_classes_are_the_l1_svc(seed):
    """k = 2: w_2 - w_1 is the L1-loss SVC at 2 C."""
    X, y, _, C = data(seed, classes=2)
    model = ml.train(X, y, solver="cs", C=C, tol=1e-8)
    W = model.coef.T
    w = oracles.minimal_svc(X, 2.0 * y - 1, np.full(len(y), 2 * C))
    assert ((W[:, 1] - W[:, 0] - w) ** 2).sum() <= 4 * model.info.certificate + 1e-8


@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("k", [2, 5])
def test_routes_agree(k, C):
    rng = np.random.default_rng(k)
    X = rng.random((120, 8)) + 0.5
    y = ((X - 1) @ rng.standard_normal((8, k)) + 0.3 * rng.standard_normal((120, k))).argmax(axis=1)
    routes = ("cd", "accelerated", "auto")
    infos = [ml.train(X, y, solver="cs", C=C, tol=1e-3, algorithm=route).info for route in routes]
    for info in infos:
        for other in infos:
            assert info.bound <= other.objective * (1 + 1e-9)
            assert info.objective - other.objective <= info.certificate + 1e-9
    assert infos[0].algorithm == "cd"
    # Sweeps may hand over to Newton steps before they end.
    assert C == 0.1 or infos[2].algorithm in ("accelerated", "newton")


def liblinear_weights(path):
    """(labels, W of shape (d, k)) of a LIBLINEAR model file."""
    lines = path.read_text().splitlines()
    head = dict(line.split(maxsplit=1) for line in lines[: lines.index("w")])
    labels = np.array(head["label"].split(), dtype=int)
    values = [line.split() for line in lines[lines.index("w") + 1:] if line.strip()]
    return labels, np.array(values, dtype=float)


@pytest.mark.skipif(shutil.which("liblinear-train") is None, reason="needs `apt-get install liblinear-tools`")
@pytest.mark.parametrize("C", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("k", [3, 7])
def test_never_above_liblinear(tmp_path, k, C):
    """LIBLINEAR may stop early: its objective is at least our bound, ours at most its own and 1e-4 more."""
    rng = np.random.default_rng(k)
    X = rng.random((300, 10))
    X[rng.random(X.shape) < 0.4] = 0
    y = ((X - 0.5) @ rng.standard_normal((10, k)) + 0.2 * rng.standard_normal((300, k))).argmax(axis=1)
    rows = (" ".join(f"{j + 1}:{v:.17g}" for j, v in enumerate(x) if v) for x in X)
    text = "".join(f"{label} {row}\n" for label, row in zip(y, rows, strict=True))
    (tmp_path / "train").write_text(text)
    subprocess.run(["liblinear-train", "-q", "-s", "4", "-c", str(C), "-e", "0.001", "train", "model"],
                   cwd=tmp_path, check=True, capture_output=True)
    labels, W = liblinear_weights(tmp_path / "model")
    codes = np.searchsorted(np.sort(labels), y)
    theirs = oracles.hinge_objective(W[:, np.argsort(labels)], X[:, : len(W)], codes, np.full(len(y), C))
    model = ml.train(X, y, solver=4, C=C, tol=1e-4)
    assert model.solver == "cs"
    assert model.info.bound <= theirs * (1 + 1e-9)
    assert model.info.objective <= theirs + 1e-4 * max(1, model.info.objective)
