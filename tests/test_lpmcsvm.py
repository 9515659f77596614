"""lpmcsvm against SciPy over QPs, against cs and the L1-loss SVC, and against its own identities (math.md 6)."""

import shutil
import subprocess
import warnings
from itertools import pairwise

import numpy as np
import oracles
import pytest

import marginlinear as ml
from marginlinear._core.block_cd import BlockCD, norm_of
from marginlinear._core.rows import Rows
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.descent import Descent

SEEDS = range(20)
NORMS = [1.0, 1.1, 1.5, 2.0]
# Duals are compared row by row.
pytestmark = pytest.mark.usefixtures("rows_as_given")


def data(seed, classes=None):
    X, y, k, _ = oracles.random_problem(seed)
    if classes:
        y, k = y % classes, classes
    return X, y, k, 10.0 ** np.random.default_rng(seed).uniform(-2, 1)


def fit(X, y, p, **params):
    model = ml.train(X, y, solver="lpmcsvm", norm=p, **params)
    return model, model.coef.T


def assert_feasible(alpha, y, C):
    own = alpha[np.arange(len(y)), y]
    others = alpha.copy()
    others[np.arange(len(y)), y] = 0
    assert (others <= 0).all() and (own <= C * (1 + 1e-12)).all()
    assert (abs(alpha.sum(axis=1)) <= 1e-12 * own).all()


def assert_certified(model, W, X, y, C, p):
    """Objective, bound and certificate are those of the final weights and duals, in plain NumPy."""
    info = model.info
    alpha = oracles.split(model._state.state["duals"], len(y))[0]
    assert_feasible(alpha, y, C)
    slack = 1e-9 * max(1, info.objective)
    assert info.objective == pytest.approx(oracles.lp_objective(W, X, y, np.full(len(y), C), p), rel=1e-9)
    assert info.bound == pytest.approx(oracles.lp_dual(alpha, X, y, p), rel=1e-9, abs=slack)
    assert info.certificate == info.objective - info.bound
    assert info.status == "converged" and -slack <= info.certificate <= info.tol * max(1, info.objective)


@pytest.mark.filterwarnings("ignore::marginlinear.ConvergenceWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_duals_are_feasible_however_sharp_the_steps(seed):
    """Their sums were off by 5e-8: steps with little smoothing divide the rounding of scores by it."""
    X, y, _, C = data(seed)
    model, _ = fit(X, y, 1.0, C=C, tol=1e-10)
    assert_feasible(oracles.split(model._state.state["duals"], len(y))[0], y, C)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("seed", SEEDS[:8])
def test_against_scipy(seed, p):
    X, y, k, C = data(seed)
    if seed % 6 == 5:
        y[y == 1] = 0
        y[-1] = 1  # a class of one row
    cost = np.full(len(y), C)
    best = oracles.minimal_hinge(X, y, k, cost).value if p == 2 else oracles.minimal_lp(X, y, k, cost, p)[1]
    model, W = fit(X, y, p, C=C, tol=3e-7 * min(1, best))
    assert_certified(model, W, X, y, C, p)
    assert model.info.objective == pytest.approx(best, rel=1e-6)
    assert model.info.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_p_two_is_crammer_singer(seed):
    X, y, _, C = data(seed)
    model, W = fit(X, y, 2, C=C)
    other = ml.train(X, y, solver="cs", C=C)
    assert W.tobytes() == other.coef.T.tobytes()
    assert (model.info.bound, model.info.n_iter, model.info.n_outer) == (other.info.bound, other.info.n_iter, 0)


@pytest.mark.skipif(shutil.which("liblinear-train") is None, reason="LIBLINEAR is not installed")
def test_p_two_has_liblinears_objective(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 6))
    y = (X @ rng.standard_normal((6, 4)) + rng.standard_normal((80, 4))).argmax(axis=1)
    y[:4] = range(4)
    rows = (" ".join(f"{j + 1}:{v:.17g}" for j, v in enumerate(x)) for x in X)
    (tmp_path / "data").write_text("".join(f"{label} {row}\n" for label, row in zip(y, rows, strict=True)))
    subprocess.run(["liblinear-train", "-s", "4", "-e", "1e-8", "-q", tmp_path / "data", tmp_path / "model"],
                   check=True)
    theirs = ml.load_model(tmp_path / "model")
    theirs = theirs.coef.T[:, np.argsort(theirs.classes)]
    model, _ = fit(X, y, 2, tol=1e-9)
    assert model.info.objective == pytest.approx(oracles.hinge_objective(theirs, X, y, np.ones(80)), rel=1e-7)


@pytest.mark.parametrize("p", [1.0, 1.3, 1.5, 2.0])
@pytest.mark.parametrize("seed", SEEDS[::2])
def test_two_classes_are_the_l1_svc(seed, p):
    """w_2 - w_1 is the L1-loss SVC at 2^{2 - 2/p} C, and w_1 = -w_2."""
    X, y, _, C = data(seed, classes=2)
    model, W = fit(X, y, p, C=C, tol=1e-9)
    svc = ml.train(X, y, solver="l1svc", C=2 ** (2 - 2 / p) * C, tol=1e-9)
    # P is 2^{2/p - 2} times the SVC's objective, which is 1-strongly convex.
    factor = 2 ** (2 / p - 2)
    assert model.info.objective == pytest.approx(factor * svc.info.objective, rel=1e-8, abs=1e-8)
    allowed = 4 * (model.info.certificate / factor + svc.info.certificate) + 1e-9
    assert ((W[:, 1] - W[:, 0] - svc.coef[0]) ** 2).sum() <= allowed
    assert np.allclose(W[:, 0], -W[:, 1], rtol=1e-9, atol=1e-12)


def weighted_half(W, b):
    return 0.5 * ((W**2).sum(axis=0) / b).sum()


@pytest.mark.parametrize("p", [1.0, 1.1, 1.5, 1.9])
def test_factors_of_now_are_the_best(p):
    """Eq. 8 at the b of Eq. 14, as `adapt` takes it, is (P); any other feasible b gives at least as much."""
    X, y, k, C = data(4)
    engine = engine_of(X, y, k, C, p)
    for _ in range(3):
        engine.sweep()
    W = np.asarray(engine.weights_at(engine.iterates.W)).reshape(-1, k).copy()
    engine.adapt()
    b, q = engine.factors.copy(), p / (2 - p)
    best = 0.5 * oracles.group_norm(W, p) ** 2
    assert (b**q).sum() == pytest.approx(1, rel=1e-7)
    assert weighted_half(W, b) == pytest.approx(best, rel=1e-7)
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = b * np.exp(rng.standard_normal(k))
        other /= (other**q).sum() ** (1 / q)
        assert weighted_half(W, other) >= best * (1 - 1e-9)


def engine_of(X, y, k, C, p):
    return BlockCD(Rows.from_dense(X), y.astype(np.int32), k, np.full(len(y), C), loss="hinge", norm=p)


@pytest.mark.parametrize("p", [1.0, 1.1, 1.5])
@pytest.mark.parametrize("seed", [1, 4, 8])
def test_alternation_never_raises_the_objective(seed, p):
    """The paper's Algorithm 1 on the engine: many sweeps at each b; P falls, and every D is below every P."""
    X, y, k, C = data(seed)
    engine = engine_of(X, y, k, C, p)
    values, bounds = [], []
    for _ in range(12):
        for _ in range(300):
            engine.sweep()
        values.append(engine.primal()[0])
        bounds.append(engine.dual())
        engine.adapt()
    slack = 1e-5 * max(1, values[0])
    assert all(b <= a + slack for a, b in pairwise(values))
    assert max(bounds) <= min(values) + 1e-9
    assert engine.n_adapt == 12


@pytest.mark.parametrize("p", [1.0, 1.2, 1.7])
@pytest.mark.parametrize("seed", range(3))
def test_every_dual_value_is_below_the_optimum(seed, p):
    """Whatever factors the sweeps have, and around a centre with averages."""
    X, y, k, C = data(seed)
    best = oracles.minimal_lp(X, y, k, np.full(len(y), C), p)[1]
    engine = engine_of(X, y, k, C, p)
    rng = np.random.default_rng(seed)
    for step in range(30):
        if step == 10:
            engine.iterates.start(3.0)
        engine.scale_classes(rng.uniform(0.1, 1, k))
        engine.sweep()
        assert engine.dual() <= best * (1 + 1e-7) and engine.primal()[0] >= best * (1 - 1e-6)
        W, alpha = np.asarray(engine.weights_at(engine.iterates.W)).reshape(-1, k), np.asarray(engine.alpha)
        assert engine.primal()[0] == pytest.approx(oracles.lp_objective(W, X, y, np.asarray(engine.cost), p), rel=1e-10)
        assert engine.dual() == pytest.approx(oracles.lp_dual(alpha, X, y, p), rel=1e-9, abs=1e-9)
        if step >= 10:
            engine.average(0.3 if step > 10 else 1.0, 1.0, 1.0)
            assert engine.averaged_dual() <= best * (1 + 1e-7)
            alpha = engine.split(engine.mean_duals)[0]
            assert engine.averaged_dual() == pytest.approx(oracles.lp_dual(alpha, X, y, p), abs=1e-9)


@pytest.mark.parametrize("p", [1.0, 1.5])
def test_norm_gap_closes_the_sum_of_the_gaps(p):
    """P - D = gap at b + norm_gap, at W = U: the sum of the blocks' gaps is that of the weighted problem."""
    X, y, k, C = data(4)
    engine = engine_of(X, y, k, C, p)
    for _ in range(4):
        engine.sweep()
    engine.adapt()
    b, W = engine.factors, engine.iterates.W.reshape(-1, k)
    weighted = ((b * W) ** 2 / b).sum()
    loss = engine.primal()[0] - engine.half_norm()
    gap = weighted + loss - np.asarray(engine.alpha)[np.arange(len(y)), y].sum()
    assert engine.primal()[0] - engine.dual() == pytest.approx(gap + engine.norm_gap, rel=1e-10)


@pytest.mark.parametrize("p", [1.0, 1.1, 1.5])
@pytest.mark.parametrize("algorithm", ["cd", "accelerated", "newton"])
def test_routes_agree(algorithm, p):
    rng = np.random.default_rng(1)
    X = rng.random((120, 8)) + 0.5
    y = ((X - 1) @ rng.standard_normal((8, 5)) + 0.3 * rng.standard_normal((120, 5))).argmax(axis=1)
    info = fit(X, y, p, tol=1e-3, max_iter=10**5, algorithm=algorithm)[0].info
    other = fit(X, y, p, tol=1e-6, max_iter=10**5)[0].info
    assert info.converged and other.converged and info.algorithm == algorithm
    assert info.objective >= other.bound - 1e-9 and info.bound <= other.objective + 1e-9


@pytest.mark.parametrize("p", [1.0, 1.1, 1.5])
def test_linear_kernel_is_linear(p):
    X, y, _, C = data(7)
    model, W = fit(X, y, p, C=C, tol=1e-7)
    kernel = ml.train(X, y, solver="lpmcsvm", norm=p, C=C, tol=1e-7, kernel="linear")
    assert kernel.info.converged
    assert kernel.info.objective == pytest.approx(model.info.objective, rel=3e-7)
    assert np.allclose(kernel.decision_function(X), X @ W, atol=2e-3 * abs(X @ W).max())


@pytest.mark.parametrize("p", [1.0, 1.1, 1.5])
def test_rbf_kernel_is_certified(p):
    """The kernel's fit is the linear one on features whose products are the kernel."""
    X, y, k, C = data(5)
    model = ml.train(X, y, solver="lpmcsvm", norm=p, C=C, tol=1e-6, kernel="rbf", gamma=0.5)
    features = oracles.features_of(oracles.rbf(X, X, 0.5))
    assert model.info.converged
    best = oracles.minimal_lp(features, y, k, np.full(len(y), C), p)[1]
    assert model.info.objective == pytest.approx(best, rel=2e-6)


@pytest.mark.parametrize("p", [0.99, 2.01, 0, -1, float("inf"), float("nan")])
def test_norm_outside_its_domain(p):
    X, y, _, _ = data(4)
    with pytest.raises(ValueError, match=r"norm = .*\[1, 2\]"):
        ml.train(X, y, solver="lpmcsvm", norm=p)


def test_squared_loss_has_one_norm():
    with pytest.raises(ValueError, match=r"norm = 1.5.*squared"):
        BlockCD(Rows.from_dense(np.eye(2)), np.arange(2, dtype=np.int32), 2, np.ones(2), loss="squared", norm=1.5)


def test_p_one_has_exactly_zero_classes():
    """Where the norm of v_l is not the largest, w_l = 0."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 30)
    # Classes 2 and 3 are nearly told apart by what the others' weights say.
    X = np.array([[3.0, 0, 0], [0, 3.0, 0], [0, 0, 0.3], [0, 0, -0.3]])[y] + 0.3 * rng.standard_normal((120, 3))
    model, W = fit(X, y, 1, C=0.02, tol=1e-6)
    alpha = oracles.split(model._state.state["duals"], len(y))[0]
    norms = np.sqrt(((X.T @ alpha) ** 2).sum(axis=0))
    small = norms < 0.9 * norms.max()
    assert small.any() and not small.all()
    assert (W[:, small] == 0).all()
    assert_certified(model, W, X, y, 0.02, 1)


def test_norms_near_one_do_not_overflow():
    X, y, _, _ = data(4)
    scale = 1e-50
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model, _ = fit(scale * X, y, 1.02, C=scale**-2, tol=1e-3)
    assert model.info.objective * scale**2 == pytest.approx(fit(X, y, 1.02, tol=1e-3)[0].info.objective, rel=2e-3)
    for q in (51.0, 1e6, np.inf):
        for size in (1e-150, 1e150):
            assert norm_of(size * np.array([0.5, 1.0, 1.0]), q) == pytest.approx(size * 2 ** (1 / q), rel=1e-12)
    assert norm_of(np.zeros(3), 51.0) == 0


@pytest.mark.parametrize("p", [1.0, 1.1, 1.5])
def test_start_from_another_norm(p):
    """Duals are feasible for every norm."""
    X, y, _, _ = data(4)
    first, _ = fit(X, y, 2.0 if p == 1.5 else 1.5, tol=1e-5)
    model, _ = fit(X, y, p, tol=1e-5, start=first)
    cold, _ = fit(X, y, p, tol=1e-5)
    back, _ = fit(X, y, 2.0, tol=1e-5, start=model)
    assert model.info.objective == pytest.approx(cold.info.objective, rel=2e-5)
    assert back.info.converged


def test_the_incumbent_keeps_its_weights():
    """These are weights, not W at factors that have changed since."""
    X, y, k, C = data(4)
    engine = engine_of(X, y, k, C, 1.2)
    descent = Descent(engine, Budget(400, 20.0), 1e-4, "accelerated")
    descent.until(1e-4)
    incumbent = descent.incumbent
    W = incumbent.weights.reshape(-1, k)
    assert incumbent.objective == pytest.approx(oracles.lp_objective(W, X, y, np.asarray(engine.cost), 1.2), rel=1e-10)
    engine.iterates.exchange(incumbent.weights)
    assert engine.primal()[0] == pytest.approx(incumbent.objective, rel=1e-10)
