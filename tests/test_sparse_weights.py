"""l1l2svc and l1lr against SciPy, LIBLINEAR, and their certificates in NumPy."""

import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, sparse, special

import marginlinear as ml
from marginlinear._core.feature_cd import FeatureCD
from marginlinear._core.margin_cd import table_of
from marginlinear.algorithms import sparse_newton
from marginlinear.algorithms.sparse_newton import Point
from marginlinear.data.arrays import as_rows

liblinear = pytest.mark.skipif(shutil.which("liblinear-train") is None,
                               reason="needs `apt-get install liblinear-tools`")
DATA = Path(__file__).parent.parent / "data"
METHODS = ("l1l2svc", "l1lr")


def loss(solver, g):
    """(phi, phi')"""
    if solver == "l1lr":
        return np.logaddexp(0, -g), -special.expit(-g)
    return np.maximum(0, 1 - g) ** 2, -2 * np.maximum(0, 1 - g)


def objective(solver, w, Z, cost, ratio=1.0):
    return ratio * abs(w).sum() + (1 - ratio) / 2 * w @ w + cost @ loss(solver, Z @ w)[0]


def conjugate_sum(solver, a, cost):
    """sum_i c_i phi*(-a_i/c_i)"""
    if solver == "l1lr":
        share = a / cost
        return (cost * (special.xlogy(share, share) + special.xlogy(1 - share, 1 - share))).sum()
    return (a * a / (4 * cost) - a).sum()


def least(solver, Z, cost, ratio):
    """P*, of w = u - v with u, v >= 0, by L-BFGS-B, polished by SciPy's trust region on the weights that are not 0."""
    d = Z.shape[1]

    def value(z):
        w = z[:d] - z[d:]
        phi, slope = loss(solver, Z @ w)
        gradient = Z.T @ (cost * slope) + (1 - ratio) * w
        return (ratio * z.sum() + (1 - ratio) / 2 * w @ w + cost @ phi,
                np.concatenate((gradient + ratio, ratio - gradient)))

    z = np.zeros(2 * d)
    for _ in range(6):
        found = optimize.minimize(value, z, jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * d),
                                  options={"maxiter": 20_000, "maxfun": 10**6, "ftol": 0, "gtol": 1e-12, "maxcor": 30})
        z = found.x
    return found.fun


def problem(seed):
    rng = np.random.default_rng(seed)
    m, d = int(rng.integers(30, 80)), int(rng.integers(4, 12))
    X = rng.standard_normal((m, d)) * (rng.random((m, d)) < 0.7)
    y = np.where(X @ rng.standard_normal(d) + rng.standard_normal(m) > 0, 1, -1)
    X[3], X[:, 2] = 0, 0
    X[5], y[5] = X[4], -y[4]
    X[:, 1] = X[:, 0]
    return X, y, 10.0 ** rng.uniform(-1.5, 2) * rng.uniform(0.5, 2, m)


@pytest.mark.parametrize("solver", METHODS)
@pytest.mark.parametrize("seed", range(10))
def test_certified_against_scipy(solver, seed):
    X, y, cost = problem(seed)
    ratio, Z = (1.0, 1.0, 0.6, 0.05)[seed % 4], y[:, np.newaxis] * X
    best = least(solver, Z, cost, ratio)
    model = ml.train(sparse.csr_array(X) if seed % 2 else X, y, solver=solver, sample_weight=cost, l1_ratio=ratio,
                     tol=1e-10)
    info, w = model.info, model.coef[0]
    assert info.converged
    assert info.objective == pytest.approx(objective(solver, w, Z, cost, ratio), rel=1e-12)
    assert info.objective == pytest.approx(best, rel=1e-9)
    assert info.bound <= best * (1 + 1e-11)
    assert w[2] == 0


@pytest.mark.parametrize("solver", METHODS)
def test_the_bound_in_numpy(solver, monkeypatch):
    """Of forces far from the optimum, too: by the best share of them that is feasible."""
    from marginlinear.algorithms.working_sets import SparseFit

    X, y, cost = problem(1)
    Z, seen = y[:, np.newaxis] * X, []
    original = SparseFit.bound

    def bound(self):
        seen.append((np.array(self.engine.W), original(self)))
        return seen[-1][1]

    monkeypatch.setattr(SparseFit, "bound", bound)
    ml.train(X, y, solver=solver, sample_weight=cost, tol=1e-9)
    assert len(seen) > 2
    for w, (found, _) in seen:
        a = -cost * loss(solver, Z @ w)[1]
        most = min(1.0, 1 / abs(Z.T @ a).max())
        shares = np.linspace(0, most, 2001)
        dual = max(-conjugate_sum(solver, share * a, cost) for share in shares)
        assert dual - 1e-12 * abs(dual) <= found <= dual + 1e-6 * cost.sum()


@pytest.mark.parametrize("solver", METHODS)
def test_the_least_C_with_a_weight(solver):
    """C ||sum_i l_i y_i x_i||_inf = 1, l_i = 1/2 or 2."""
    X, y, _ = problem(2)
    C = 1 / ({"l1lr": 0.5, "l1l2svc": 2.0}[solver] * abs(y @ X).max())
    below, above = (ml.train(X, y, solver=solver, C=factor * C, tol=1e-12) for factor in (0.999, 1.01))
    assert below.info.converged and not below.coef.any()
    assert np.count_nonzero(above.coef) >= 1


@pytest.mark.parametrize("solver", METHODS)
def test_many_features_and_starts(solver):
    """More columns than the matrix of a model is made of, and a way over C from weights to weights."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((600, 3000), density=0.02, random_state=rng, format="csr")
    y = np.where(X @ rng.standard_normal(3000) + 0.1 * rng.standard_normal(600) > 0, 1, -1)
    Z = sparse.diags_array(y.astype(float)) @ X
    start = None
    for C in (3.0, 30.0):
        start = ml.train(X, y, solver=solver, C=C, tol=1e-7, start=start)
        w = start.coef[0]
        assert start.info.converged
        assert start.info.objective == pytest.approx(objective(solver, w, Z, np.full(600, C)), rel=1e-12)
        # Subgradients: |U_j| <= 1, and = 1 with the sign of w_j where it is not 0.
        U = -Z.T @ (C * loss(solver, Z @ w)[1])
        assert abs(U).max() <= 1 + 1e-2
        assert np.allclose(U[w != 0], np.sign(w[w != 0]), atol=1e-2)


@pytest.mark.parametrize("free_bias", [False, True])
@pytest.mark.parametrize("solver", METHODS)
def test_the_features_that_scale_duals_down(solver, free_bias, monkeypatch):
    """They are solved for alone where the bound is what lacks; the certificate is that of the weights then."""
    from marginlinear.algorithms.working_sets import FEW, SparseFit

    rng = np.random.default_rng(1)
    X = sparse.random_array((1500, 1000), density=0.02, rng=rng, format="csr")
    y = np.where(X @ rng.standard_normal(1000) + 0.3 * rng.standard_normal(1500) > 0, 1, -1)
    calls, original = [], SparseFit.solve_worst

    def solve_worst(self):
        before = self.violations()
        original(self)
        calls.append((before, self.budget.history[-1]["objective"], self.survey()))

    monkeypatch.setattr(SparseFit, "solve_worst", solve_worst)
    model = ml.train(X, y, solver=solver, C=30.0, tol=3e-2, bias=1 if free_bias else -1, free_bias=free_bias)
    assert model.info.converged
    assert np.count_nonzero(model.coef[0]) > FEW
    assert len(calls) > 0
    for before, objective, after in calls:
        assert before.max() > 0
        assert after <= objective * (1 + 1e-12)


@pytest.mark.parametrize("free_bias", [False, True])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.7])
@pytest.mark.parametrize("solver", METHODS)
def test_features_that_a_gap_screens(solver, l1_ratio, free_bias, monkeypatch):
    """As many as a sphere about the duals tells in NumPy; none of them has a weight at the optimum; the model is the
    same without."""
    from marginlinear.algorithms.working_sets import SparseFit

    rng = np.random.default_rng(3)
    X = sparse.random_array((400, 300), density=0.05, rng=rng, format="csr")
    y = np.where(X @ rng.standard_normal(300) + 0.1 * rng.standard_normal(400) > 0, 1, -1)
    given = {"solver": solver, "C": 2.0, "l1_ratio": l1_ratio, "bias": 1 if free_bias else -1, "free_bias": free_bias}
    fits, original = [], SparseFit.convex
    monkeypatch.setattr(SparseFit, "convex", lambda self: fits.append(self) or original(self))
    model = ml.train(X, y, **given, tol=1e-5)
    fit, = fits
    engine = fit.engine
    dual, share = fit.bound()
    gap = max(model.info.objective - dual, 1e-14 * model.info.objective)
    A = np.hstack([X.toarray(), np.ones((400, 1))]) if free_bias else X.toarray()
    outer = (lambda v: v) if fit.to_outer is None else fit.to_outer
    bend = 0.25 if solver == "l1lr" else 2.0
    reach = abs(share * outer(np.array(engine.U))) + np.sqrt(2 * gap * bend * 2.0 * (A**2).sum(axis=0))
    screened = reach < l1_ratio
    if free_bias:
        screened[-1] = False
    zero = outer(fit.zero.astype(float)) > 0
    assert zero[screened].all() and screened.sum() > 50
    exact = ml.train(X, y, **given, tol=1e-12)
    assert not exact.weights[zero].any()
    assert f"{zero.sum()} are 0 at the optimum" in model.info.notes[1]
    monkeypatch.setattr(SparseFit, "screen", lambda self, share, gap, objective: None)
    assert ml.train(X, y, **given, tol=1e-12).info.objective == pytest.approx(exact.info.objective, rel=1e-11)


@liblinear
@pytest.mark.parametrize(("number", "solver"), [(5, "l1l2svc"), (6, "l1lr")])
def test_liblinears_objective_and_file(tmp_path, number, solver):
    X, y, _ = problem(4)
    text = "".join(f"{label} " + " ".join(f"{j + 1}:{v:.17g}" for j, v in enumerate(x) if v) + "\n"
                   for label, x in zip(y, X, strict=True))
    (tmp_path / "train").write_text(text)
    subprocess.run(["liblinear-train", "-q", "-s", str(number), "-e", "1e-8", "train", "model"], cwd=tmp_path,
                   check=True, capture_output=True)
    theirs = ml.load_model(tmp_path / "model")
    w = theirs.coef[0] * (1 if theirs.classes[1] == 1 else -1)
    value = objective(solver, w, y[:, np.newaxis] * X, np.ones(len(y)))
    model = ml.train(X, y, solver=number, tol=1e-9)
    assert model.solver == solver
    assert model.info.bound <= value * (1 + 1e-12)
    assert model.info.objective == pytest.approx(value, rel=2e-9)
    ml.save_model(model, tmp_path / "ours")
    subprocess.run(["liblinear-predict", "train", "ours", "out"], cwd=tmp_path, check=True, capture_output=True)
    assert [int(line) for line in (tmp_path / "out").read_text().split()] == model.predict(X).tolist()


def test_columns_of_several_classes_and_probabilities():
    X, y = ml.load_libsvm(DATA / "vehicle")
    model = ml.train(X, y, solver="l1lr", C=0.5, bias=1.0, tol=1e-8)
    assert model.coef.shape == (4, 18)
    odds = special.expit(model.decision_function(X))
    assert np.allclose(model.predict_proba(X), odds / odds.sum(axis=1, keepdims=True))


def test_what_is_refused():
    X, y, _ = problem(0)
    with pytest.raises(ValueError, match=r"l1_ratio = 0 is not allowed: give number in \(0, 1\]"):
        ml.train(X, y, solver="l1lr", l1_ratio=0)


@pytest.mark.parametrize("solver", METHODS)
@pytest.mark.parametrize("kind", ["table", "float32", "sparse"])
def test_many_rows_for_each_feature(solver, kind, monkeypatch):
    """Steps on an eighth of the rows come first, which have the costs of all, but not where there is a start."""
    from marginlinear._core.feature_cd import FeatureCD
    from marginlinear.algorithms import newton

    rng = np.random.default_rng(5)
    X = rng.standard_normal((2000, 4)) * (rng.random((2000, 4)) < 0.8)
    y = np.where(X[:, 0] + rng.standard_normal(2000) > 1, 1, -1)
    X = X.astype(np.float32 if kind == "float32" else float)
    cost, parts = 3 * rng.uniform(0.5, 2, 2000), []

    class Noted(FeatureCD):
        def of_rows(self, which):
            parts.append((self, super().of_rows(which)))
            return parts[-1][1]

    monkeypatch.setattr("marginlinear._core.feature_cd.FeatureCD", Noted)
    rows = sparse.csr_array(X) if kind == "sparse" else X
    model = ml.train(rows, y, solver=solver, sample_weight=cost, free_bias=True, bias=1, tol=1e-9)
    (whole, part), = parts
    assert part.rows.m == whole.rows.m // newton.EVERY
    assert part.free == whole.free == 4
    W = np.array(model.weights)[:, 0]
    Z = y[:, np.newaxis] * np.column_stack((X.astype(float), np.ones(2000)))
    a = -cost * loss(solver, Z @ W)[1]
    U = Z.T @ a
    assert model.info.converged
    assert model.info.objective == pytest.approx(abs(W[:4]).sum() + cost @ loss(solver, Z @ W)[0], rel=1e-11)
    # The least subgradients.
    assert abs(U[4]) < 1e-6 * a.sum()
    assert np.all(np.where(W[:4] == 0, abs(U[:4]) - 1, abs(U[:4] - np.sign(W[:4]))) < 0.1)
    # By the standard error of so many rows.
    assert np.allclose(part.W, W, atol=0.5)
    assert part.survey() == pytest.approx(whole.survey(), rel=0.2)
    again = ml.train(rows, y, solver=solver, sample_weight=cost, free_bias=True, bias=1, tol=1e-9, start=model)
    assert len(parts) == 1
    assert again.info.objective <= model.info.objective * (1 + 1e-9)


@pytest.mark.parametrize("solver", METHODS)
def test_rows_longer_than_a_block(solver):
    """Columns of rows whose values are looked at in several blocks, the bias beside them."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((60, 700)) * (rng.random((60, 700)) < 0.9)
    y = np.where(X[:, 600] + X[:, 3] > 0, 1, -1)
    model = ml.train(sparse.csr_array(X), y, solver=solver, C=0.2, bias=0.5, tol=1e-9)
    Z = y[:, np.newaxis] * np.column_stack((X, np.full(60, 0.5)))
    W = np.array(model.weights)[:, 0]
    U = -0.2 * Z.T @ loss(solver, Z @ W)[1]
    held = W != 0
    assert model.info.converged
    assert held[600]
    assert np.allclose(U[held], np.sign(W[held]), atol=1e-3)
    assert abs(U).max() <= 1 + 1e-3


@pytest.mark.parametrize("solver", METHODS)
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 0.6, 0.05])
def test_proximal_points(solver, free, ratio, monkeypatch):
    """From the first step on, they come to the optimum."""
    from marginlinear.algorithms import working_sets

    points = []
    for seed in range(20, 24):
        X, y, cost = problem(seed)
        rows, models = sparse.csr_array(X) if seed % 2 else X, []
        for ahead in (math.inf, 0):
            monkeypatch.setattr(working_sets, "AHEAD", ahead)
            models.append(ml.train(rows, y, solver=solver, sample_weight=cost, l1_ratio=ratio, tol=1e-9, free_bias=free,
                                   bias=1 if free else -1))
        other, model = (model.info for model in models)
        assert other.converged
        assert model.converged
        assert model.objective == pytest.approx(other.objective, rel=2e-9)
        assert max(model.bound, other.bound) <= min(model.objective, other.objective) * (1 + 1e-11)
        assert other.algorithm == "cd"
        points.append(model.algorithm == "newton")
    assert sum(points) >= 2


def test_as_many_weights_as_rows_at_work():
    """Steps over features alone take tens of thousands of cycles; proximal points begin by themselves."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((80, 500))
    y = np.where(X[:, :40].sum(axis=1) > 0, 1, -1)
    model = ml.train(X, y, solver="l1l2svc", C=300.0, tol=1e-8, max_iter=5000)
    w = model.coef[0]
    U = (y[:, np.newaxis] * X).T @ (600 * np.maximum(0, 1 - y * (X @ w)))
    assert model.info.converged
    assert model.info.algorithm == "newton"
    assert np.allclose(U[w != 0], np.sign(w[w != 0]), atol=1e-2)
    assert abs(U).max() <= 1 + 1e-2


@pytest.mark.parametrize("density", [0.1, 0.9])
def test_curvature_of_columns(density):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((700, 30)) * (rng.random((700, 30)) < density)
    h = rng.random(700) * (rng.random(700) < 0.7)
    engine = FeatureCD(as_rows(sparse.csr_array(X), 0.5), np.ones(700, dtype=np.int32), np.ones(700),
                       table_of((1,), ((2, -2, 1), (0, 0, 0))), 1.0, 0.25, 1, 30)
    columns = engine.gather(np.array([30, 4, 7, 29, 0])).astype(np.intp)
    engine.bend_rows(h)
    Z = np.column_stack((X, np.full(700, 0.5)))[:, [30, 4, 7, 29, 0]]
    expected = Z.T @ (h[:, np.newaxis] * Z) + np.diag([0, 0.25, 0.25, 0.25, 0.25])
    assert np.allclose(engine.curvature(columns), expected, rtol=1e-12, atol=1e-9)


def test_duals_next_to_nothing():
    """A share that is too small for a number is 0, whose entropy is 0."""
    engine = FeatureCD(as_rows(np.ones((2, 1)), -1.0), np.array([0, 1], dtype=np.int32), np.full(2, 1e6),
                       table_of((), "softplus"), 1.0, 0.0, 1)
    assert engine.dual_of(np.array([1e-320, 1e6])) == 0.0


def test_steps_fall_where_the_loss_has_no_curvature():
    """Rows far from their margins: a model that knows the curvature of there alone promises too much."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 600)) * (rng.random((300, 600)) < 0.1), rng.integers(0, 2, 300, dtype=np.int32)
    engine = FeatureCD(as_rows(sparse.csr_array(X), -1.0), y, np.full(300, 100.0), table_of((), "softplus"), 1.0, 0.0,
                       0)
    np.asarray(engine.W)[:] = 100 * rng.standard_normal(600)
    before, columns = engine.survey(), engine.gather(np.arange(600)).astype(np.intp)
    falls = [engine.step(columns, 0.3, 1)[1] for _ in range(20)]
    assert falls.count(0.0) <= 1 and min(falls) >= 0
    assert engine.survey() == pytest.approx(before - sum(falls), rel=1e-9)
    assert engine.survey() < 0.1 * before


@pytest.mark.parametrize("bias", [-1.0, 0.5])
@pytest.mark.parametrize(("made", "value"), [(np.asarray, None), (sparse.csr_array, None), (sparse.csr_array, 2.0)])
def test_a_step_over_rows_is_that_over_weights(monkeypatch, made, value, bias):
    """Woodbury; of dense rows, of sparse ones as such and as dense ones, and of rows of equal values."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((12, 60)) * (rng.random((12, 60)) < 0.4)
    rows = as_rows(made(np.where(X == 0, 0.0, value or X)), bias)
    y = rng.random(12) < 0.5
    engine = FeatureCD(rows, y, np.full(12, 20.0), table_of((1.0,), ((1, -2, 1), (0, 0, 0))), 0.9, 0.1, 0)
    point = Point(engine, 0.1 * rng.standard_normal(rows.d), np.full(rows.d, 0.3), None, 1)
    some, at_work = np.flatnonzero(point.w), np.flatnonzero(point.h > 0)
    assert 0 < len(at_work) < len(some)
    wanted = point._over_weights(some, at_work)
    for few in (0.0, 1.0):
        monkeypatch.setattr(sparse_newton, "SPARSE", few)
        assert np.allclose(point._over_rows(some, at_work), wanted, rtol=1e-8, atol=1e-10 * abs(wanted).max())


def test_many_features_of_few_rows(tmp_path):
    """More weights than a system may have: no step was made, and cycles went on for minutes, in memory and on disk."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 6000))
    y = X[:, :4].sum(axis=1) > 0
    info = ml.train(X, y, solver="l1l2svc", C=660.0).info
    assert (info.status, info.algorithm) == ("converged", "newton")
    assert info.n_iter < 1000
    stored = ml.train(ml.Store.write([(X, y)], tmp_path / "store"), solver="l1l2svc", C=660.0).info
    assert (stored.status, stored.objective, stored.n_iter) == ("converged", info.objective, info.n_iter)
