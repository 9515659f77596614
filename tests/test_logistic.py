"""logistic against Newton's method in NumPy, its functions against 60 digits, and LIBLINEAR's -s 0 and -s 7."""

import shutil
import subprocess
from decimal import Decimal as Exact

import numpy as np
import oracles
import pytest
from scipy import special

import marginlinear as ml
from marginlinear import registry
from marginlinear._core.margin_cd import MarginCD, table_of
from marginlinear._core.rows import Rows

ROUTES = ("auto", "cd", "accelerated", "newton")
TABLE = table_of((), "softplus")
liblinear = pytest.mark.skipif(shutil.which("liblinear-train") is None,
                               reason="needs `apt-get install liblinear-tools`")


def exact_share(g):
    """1/(1 + exp(g))"""
    return 1 / (1 + Exact(g).exp())


def exact_entropy(c, a):
    """c phi*(-a/c)"""
    share = Exact(a) / Exact(c)
    return Exact(c) * sum((p * p.ln() for p in (share, 1 - share) if p), Exact(0))


def exact_loss(g):
    return (1 + (-Exact(g)).exp()).ln()


@pytest.mark.parametrize("g", [-800.0, -40.0, -3.0, -1e-3, 0.0, 0.7, 5.0, 36.0, 300.0, 800.0])
def test_functions(kernels, g):
    """Loss, dual, gap and the dual's term, to the last digits at both ends of the range of the duals."""
    c = 0.37
    assert kernels.piece_loss(TABLE, g) == pytest.approx(float(exact_loss(g)), rel=1e-14)
    dual = kernels.piece_dual(TABLE, c, g)
    assert dual == pytest.approx(float(Exact(c) * exact_share(g)), rel=1e-14)
    shares = [0.0, 1e-300, 1e-9, 0.3, 0.999, 1 - 1e-12, 1.0]
    for a in [*(c * share for share in shares), dual, dual * (1 - 1e-6), min(c, dual * 1.01)]:
        term = kernels.piece_dual_term(TABLE, c, a)
        assert term == pytest.approx(float(-exact_entropy(c, a)), rel=1e-12, abs=1e-17)
        gap = Exact(c) * exact_loss(g) + exact_entropy(c, a) + Exact(a) * Exact(g)
        # What is lost where a is near c is beside a loss of c |g|.
        assert kernels.piece_gap(TABLE, c, g, a) == pytest.approx(float(gap), rel=1e-7, abs=1e-16 * c * (1 + abs(g)))
        assert kernels.piece_gap(TABLE, c, g, a) >= -1e-16 * c * (1 + abs(g))
    assert kernels.piece_dual_term(TABLE, c, 1.1 * c) == kernels.piece_dual_term(TABLE, c, -0.1) == -np.inf


@pytest.mark.parametrize("seed", range(40))
def test_the_step_is_the_minimum(kernels, seed):
    rng = np.random.default_rng(seed)
    c, A = 10.0 ** rng.uniform(-6, 6, 2)
    base, start = 10.0 ** rng.uniform(-2, 4) * rng.choice([-1, 1]), rng.normal() * 10.0 ** rng.uniform(-2, 3)
    assert_least(kernels, c, A, base, start)


@pytest.mark.parametrize(("c", "A", "base", "start"), [(0.75, 29.0, -3.13, -11.2), (40.0, 6.0, -2.66, -13.0),
                                                       (0.01, 2.3e5, -2.79, 2225.0), (590.0, 5.1, -2.8, -2.8)])
def test_steps_to_and_fro_come_to_an_end(kernels, c, A, base, start):
    """Where Newton's steps leap from one bend of the loss to the other and back."""
    assert_least(kernels, c, A, base, start)


def assert_least(kernels, c, A, base, start):
    a, curvature = kernels.piece_step(TABLE, c, base, A, start)
    assert 0 <= a <= c
    # The derivative's zero, by bisection on the margin.
    low, high = base, base + A * c
    for _ in range(200):
        g = low + (high - low) / 2
        low, high = (g, high) if g < base + A * c * special.expit(-g) else (low, g)
    assert a == pytest.approx(c * special.expit(-g), rel=2e-4, abs=1e-14 * c + 1e-14 * abs(base) / A)
    slope = c * special.expit(-g) * special.expit(g)
    assert curvature == pytest.approx(slope / (1 + A * slope), rel=0.06, abs=1e-300)


@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_certified_against_newton(seed):
    X, y, sign, C = oracles.random_binary(seed)
    cost = C * np.random.default_rng(seed).uniform(0.2, 3, len(y))
    Z = sign[:, None] * X
    best = oracles.minimal_logistic(X, sign, cost)
    least = oracles.logistic_objective(best, Z, cost)
    for algorithm in ROUTES:
        model = ml.train(X, y, solver="logistic", sample_weight=cost, algorithm=algorithm, tol=1e-11, max_iter=10**6)
        w, info = model.coef[0], model.info
        assert info.converged
        assert info.objective == pytest.approx(oracles.logistic_objective(w, Z, cost), rel=1e-12)
        assert info.objective == pytest.approx(least, rel=1e-9)
        assert info.bound <= least * (1 + 1e-13)
        assert ((w - best) ** 2).sum() <= 2 * info.certificate + 1e-12 * max(1, best @ best)


@pytest.mark.parametrize("C", [1e-4, 1.0, 1e5])
@pytest.mark.parametrize("kappa", [0.0, 3.0])
def test_sweeps_and_their_values(C, kappa):
    """P and D in NumPy after each sweep; a sweep of plain steps raises D by what they promise at least."""
    X, y, sign, _ = oracles.random_binary(6)
    Z, cost, before = sign[:, None] * X, np.full(len(y), C), -np.inf
    engine = MarginCD(Rows.from_dense(X), y.astype(np.int32), cost, [TABLE])
    if kappa:
        engine.iterates.start(kappa)
    for _ in range(6):
        engine.sweep()
        W, a = np.asarray(engine.iterates.W), np.asarray(engine.duals)
        bound = oracles.logistic_dual(a, Z, cost)
        assert engine.primal()[0] == pytest.approx(oracles.logistic_objective(W, Z, cost), rel=1e-13)
        assert engine.dual() == pytest.approx(bound, rel=1e-10)
        assert kappa or bound >= before
        before = bound
        share = a / cost
        gaps = cost * (np.logaddexp(0, -Z @ W) + special.xlogy(share, share) + special.xlogy(1 - share, 1 - share))
        apart = W - Z.T @ a
        assert engine.primal()[0] - bound == pytest.approx((gaps + a * (Z @ W)).sum() + 0.5 * apart @ apart, rel=1e-7)


def text_of(X, y):
    return "".join(f"{label} " + " ".join(f"{j + 1}:{v:.17g}" for j, v in enumerate(x) if v) + "\n"
                   for label, x in zip(y, X, strict=True))


def overlapping(m, d, k=2):
    rng = np.random.default_rng(d)
    X = rng.random((m, d)) * (rng.random((m, d)) < 0.6)
    return X, ((X - 0.5) @ rng.standard_normal((d, k)) + 0.3 * rng.standard_normal((m, k))).argmax(axis=1)


@liblinear
@pytest.mark.parametrize(("number", "C"), [(0, 8.0), (7, 0.1), (7, 8.0)])
def test_liblinears_objective(tmp_path, number, C):
    X, y = overlapping(300, 10)
    (tmp_path / "train").write_text(text_of(X, y))
    subprocess.run(["liblinear-train", "-q", "-s", str(number), "-c", str(C), "-e", "1e-8", "train", "model"],
                   cwd=tmp_path, check=True, capture_output=True)
    theirs = ml.load_model(tmp_path / "model")
    Z = np.where(y == theirs.classes[1], 1.0, -1.0)[:, None] * X
    objective = oracles.logistic_objective(theirs.coef[0], Z, np.full(len(y), C))
    model = ml.train(X, y, solver=number, C=C, tol=1e-9)
    assert model.solver == "logistic"
    assert model.info.bound <= objective * (1 + 1e-12)
    assert model.info.objective == pytest.approx(objective, rel=2e-9)


@liblinear
@pytest.mark.parametrize("k", [2, 4])
def test_probabilities_are_those_of_liblinear(tmp_path, k):
    """Without folds, from the scores of one class against the rest: its own predict -b 1 reads them of our file."""
    X, y = overlapping(200, 8, k)
    model = ml.train(X, y, solver="logistic", bias=1.0)
    ml.save_model(model, tmp_path / "m")
    (tmp_path / "d").write_text(text_of(X, y))
    subprocess.run(["liblinear-predict", "-b", "1", "d", "m", "out"], cwd=tmp_path, check=True, capture_output=True)
    head, *lines = (tmp_path / "out").read_text().splitlines()
    order = np.argsort([int(label) for label in head.split()[1:]])
    theirs = np.array([line.split()[1:] for line in lines], dtype=float)[:, order]
    proba = model.predict_proba(X)
    assert np.allclose(proba, theirs, rtol=1e-5)
    assert (ml.load_model(tmp_path / "m").predict_proba(X) == proba).all()
    odds = special.expit(model.decision_function(X))
    assert np.allclose(proba, np.column_stack([1 - odds, odds]) if k == 2 else odds / odds.sum(axis=1, keepdims=True))


def test_votes_are_no_probabilities():
    X, y = overlapping(200, 8, 4)
    model = ml.train(X, y, solver="logistic", multiclass="ovo")
    with pytest.raises(ValueError, match="no calibration"):
        model.predict_proba(X)
    assert ml.train(X, y, solver="logistic", multiclass="ovo", probability=True).predict_proba(X).shape == (200, 4)


@pytest.mark.parametrize(("number", "name"), [(0, "logistic"), (7, "logistic"), ("7", "logistic"), (2, "l2svc")])
def test_liblinears_numbers_of_one_optimum(number, name):
    assert registry.get(number).name == name


@pytest.mark.parametrize("C", [0.5, 1e4])
def test_kernel_objective_in_numpy(C):
    X, y, sign, _ = oracles.random_binary(9)
    K = oracles.rbf(X, X, 0.5)
    for algorithm in ROUTES:
        model = ml.train(X, y, solver="logistic", C=C, kernel="rbf", gamma=0.5, algorithm=algorithm, tol=1e-9,
                         max_iter=10**6)
        state = model._state.state
        b, a = state["W"][len(y):], state["duals"]
        value = 0.5 * b @ K @ b + C * np.logaddexp(0, -sign * (K @ b)).sum()
        assert model.info.converged
        assert model.info.objective == pytest.approx(value, rel=1e-9)
        share = a / C
        bound = -C * (special.xlogy(share, share) + special.xlogy(1 - share, 1 - share)).sum()
        bound -= 0.5 * (sign * a) @ K @ (sign * a)
        assert bound == pytest.approx(model.info.bound, rel=1e-9)


def test_a_start_at_other_costs_saves_sweeps():
    X, y, _, _ = oracles.random_binary(4)
    known = {"solver": "logistic", "algorithm": "cd", "tol": 1e-6}
    near = ml.train(X, y, C=10.0, **known)
    cold, warm = ml.train(X, y, C=12.0, **known), ml.train(X, y, C=12.0, start=near, **known)
    assert warm.info.converged
    assert warm.info.objective == pytest.approx(cold.info.objective, rel=2e-6)
    assert warm.info.n_iter < cold.info.n_iter
