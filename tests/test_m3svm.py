"""m3svm, ism3, softmax and ww against SciPy on plain NumPy objectives, a QP, and the identities of their theory."""

import shutil
import subprocess
import warnings

import numpy as np
import oracles
import pytest
from scipy.sparse import csr_array

import marginlinear as ml
from marginlinear._core.rows import Rows
from marginlinear._core.smooth import SmoothLoss
from marginlinear.algorithms.pairwise import active, newton, passes, sweeps
from marginlinear.algorithms.pairwise import regulariser as regularisers

LOSSES = {"m3svm": "hinge", "ism3-logistic": "logistic", "ism3-softmax": "softmax"}
NORMS = (1.5, 2.0, 4.0, 8.0)


def data(seed, m=24, d=4, k=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d))
    y = (X @ rng.standard_normal((d, k)) + rng.standard_normal((m, k))).argmax(axis=1)
    y[:k] = np.arange(k)
    return X, y, k


def train(name, X, y, **options):
    solver, _, loss = name.partition("-")
    if loss:
        options["loss"] = loss
    return ml.train(X, y, solver=solver, **options)


def objective(model, X, y, name, k, lam, p, eps=1e-6, delta=1e-3, weights=None):
    weights = np.ones(len(y)) if weights is None else weights
    return oracles.pairs_objective(model.coef.T, model.intercept, X, y, weights, LOSSES[name], lam, p, eps, delta)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", LOSSES)
def test_optimum(name, seed):
    """Within 1e-8 of what SciPy finds, by a certificate that holds; the columns add up to 0."""
    k = 2 + seed % 3
    X, y, k = data(seed, k=k)
    p, lam = NORMS[seed % 4], (0.02, 0.3, 1e-3)[seed % 3]
    weights = np.random.default_rng(seed).integers(1, 4, len(y)).astype(float)
    delta, eps = 0.1, 1e-3
    more = {"delta": delta} if name == "m3svm" else {}
    model = train(name, X, y, lambda_=lam, norm=p, eps=eps, tol=1e-9, sample_weight=weights, **more)
    info = model.info
    value = objective(model, X, y, name, k, lam, p, eps, delta, weights)
    best = oracles.minimal_pairs(X, y, k, weights, LOSSES[name], lam, p, eps, delta)
    assert info.converged
    assert info.objective == pytest.approx(value, rel=1e-11)
    assert value - best <= info.certificate + 1e-10 * max(1, value)
    assert abs(value - best) <= 1e-8 * max(1, best)
    assert abs(model.coef.sum(axis=0)).max() <= 1e-12 * abs(model.coef).max()
    assert abs(model.intercept.sum()) <= 1e-12 * max(1, abs(model.intercept).max())


def regulariser(p, k, lam=0.3, eps=1e-3, bias=2.0, tau=0.0):
    if p == 2:
        return regularisers.Quadratic(lam * k + eps, lam, eps, bias)
    found = regularisers.Pairwise(p, lam, eps, bias)
    found.tau = tau
    return found


@pytest.mark.parametrize("p", [1.0, *NORMS, 16.0])
def test_derivatives_of_the_regulariser(p):
    """Gradient and Hessian by central differences."""
    rng = np.random.default_rng(3)
    W, V = rng.standard_normal((2, 6, 4))
    V[:, -1] = 0.0
    terms = regulariser(p, 4, tau=0.1 if p < 2 else 0.0)

    def value(U):
        return sum(terms.evaluate(U))

    def gradient(U):
        terms.evaluate(U)
        out = np.zeros_like(U)
        terms.add_gradient(U, out)
        return out

    h = 1e-6
    slope = (value(W + h * V) - value(W - h * V)) / (2 * h)
    assert (gradient(W) * V).sum() == pytest.approx(slope, rel=1e-7)
    terms.evaluate(W)
    terms.factorise(4)
    curvature = regularisers.laplacian(passes.gram(V, V) ** 2)
    curvatures = terms.align(curvature)
    assert np.allclose(terms.basis.T @ curvature @ terms.basis, np.diag(curvatures), atol=1e-9 * curvatures.max())
    U = V @ terms.basis.T
    size = abs(U).max()
    turn = (gradient(W + h / size * U) - gradient(W - h / size * U)) / (2 * h) @ terms.basis
    terms.evaluate(W)
    product = np.zeros_like(W)
    terms.add_product(W, V / size, product)
    assert np.allclose(product, turn, rtol=1e-6, atol=1e-6 * abs(turn).max())


@pytest.mark.parametrize("p", [1.0, 1.2, *NORMS, 16.0])
@pytest.mark.parametrize("loss", ["hinge", "logistic", "softmax"])
def test_bounds_hold_everywhere(p, loss):
    """D <= P* at random weights and at rounded optima of other problems, far and near."""
    X, y, k = data(5, k=4)
    eps, lam, delta = 1e-2, 0.1, 0.05
    cost = np.ones(len(y))
    best = oracles.minimal_pairs(X, y, k, cost, loss, lam, p, eps, delta)
    rows = Rows.from_dense(X, 1.0)
    engine = SmoothLoss(rows, y.astype(np.int32), k, cost, loss=loss, width=delta)
    rng = np.random.default_rng(1)
    near = ml.train(X, y, **({"solver": "m3svm", "delta": delta} if loss == "hinge" else
                             {"solver": "ism3", "loss": loss}), lambda_=lam, norm=p, eps=eps, tol=1e-5)
    scratch, gradient = np.zeros((2, rows.d, k))
    for scale in (0.0, 1e-6, 1e-4, 1e-2, 0.1, 1.0, 10.0):
        for centre in (0.0, near.weights):
            for tau in (0.0, 1e-2) if p < 2 else (0.0,):
                W = centre + scale * rng.standard_normal(near.weights.shape)
                W -= W.mean(axis=1, keepdims=True)
                terms = regulariser(p, k, lam, eps, 1.0, tau)
                lost = engine.value_and_gradient(W.reshape(-1), gradient.reshape(-1))
                gained = lost - (W * gradient).sum()
                value = lost + terms.evaluate(W)[0]
                terms.add_gradient(W, gradient)
                terms.factorise(k)
                bound = newton.maximum(gained, *terms.conjugate(W, gradient, scratch))
                assert value >= best - 1e-9
                assert bound <= best + 1e-9 * max(1, best), (scale, tau)


@pytest.mark.parametrize("name, other", [("m3svm", "ww"), ("ism3-softmax", "softmax")])
def test_p_2_is_a_ridge(name, other):
    """At p = 2 the coefficient of ||W||^2 is lambda k + eps; lambda = 1/(2 C k) makes that 1/2 for C = 1."""
    X, y, _ = data(8)
    more = {"delta": 1e-7} if name == "m3svm" else {}
    mine = train(name, X, y, C=1.0, norm=2, eps=1e-12, bias=-1, tol=1e-6, **more)
    theirs = ml.train(X, y, solver=other, C=1.0, tol=1e-6)
    assert mine.info.objective == pytest.approx(theirs.info.objective, rel=3e-6)
    assert np.allclose(mine.coef, theirs.coef, atol=1e-2)


@pytest.mark.parametrize("bias", [-1, 0, 2.0])
@pytest.mark.parametrize("p", [1, 1.5, 2, 4])
def test_the_inverse_of_the_hessian(monkeypatch, p, bias):
    """With all pairs of rows and classes it undoes the product, at every step of a fit, of dense and sparse rows."""
    seen = []

    def undone(fit):
        W, H = fit.W, fit.duals.H
        # Those without curvature, as of the rows' own classes, change nothing.
        sharp = active.ActivePairs(fit.problem.rows, fit.problem.y, H, np.arange(H.size), fit.regulariser, W)
        V, product = np.random.default_rng(0).standard_normal(W.shape), np.zeros_like(W)
        V[:, -1] = 0.0
        if bias == 0:
            V[-1] = 0.0
        fit._product(V, product)
        whole = fit._whole()
        for inverse in (sharp, whole):
            found = inverse(product, 0, len(W))
            assert np.allclose(found, V, atol=1e-6 * abs(V).max())
            assert np.array_equal(inverse(product, 1, 3), found[1:3])
        seen.append(len(W))
        return None, np.inf

    monkeypatch.setattr(newton, "TRIED", 1)
    monkeypatch.setattr(newton.NewtonFit, "_sharp", undone)
    X, y, _ = data(6, m=20, d=5, k=4)
    X[abs(X) < 0.3] = 0.0
    for rows in (X, X.astype(np.float32), csr_array(X)):
        train("m3svm", rows, y, lambda_=0.1, norm=p, eps=1e-2, bias=bias, delta=0.1)
    assert len(seen) >= 9 and set(seen) == {5 if bias < 0 else 6}


@pytest.mark.parametrize("p, bias", [(1, -1), (1, 2.0), (1.3, 0), (1.7, 2.0), (2, -1), (2, 2.0), (3, 0), (4, 2.0),
                                     (8, -1), (30, 0), (30, 2.0)])
def test_many_features_in_sweeps(p, bias):
    """More features than rows: certified by sweeps, or by steps from where these stall; rows dense and sparse, of
    different weights, one of them without values."""
    X, y, k = data(9, m=40, d=60, k=4)
    X[abs(X) < 0.7] = 0.0
    X[5] = 0.0
    weights = np.random.default_rng(1).uniform(0.5, 3.0, len(y))
    lam, eps, delta = 0.05, 1e-3, 0.05
    options = {"lambda_": lam, "norm": p, "eps": eps, "delta": delta, "bias": bias, "sample_weight": weights}
    best = None
    for tol, algorithms in ((1e-2, {"cd"}), (1e-9, {"cd", "newton"})):
        for rows in (X, csr_array(X)):
            model = train("m3svm", rows, y, tol=tol, **options)
            info = model.info
            intercept = model.intercept if bias > 0 else np.zeros(k)
            value = objective(model, X, y, "m3svm", k, lam, p, eps, delta, weights)
            assert info.converged and info.algorithm in algorithms
            assert info.objective == pytest.approx(value, rel=1e-11) and abs(intercept.sum()) <= 1e-9
            if best is None:
                best = oracles.minimal_pairs(X, y, k, weights, "hinge", lam, p, eps, delta, bias=bias > 0)
            assert info.bound <= best * (1 + 1e-9) and value - best <= tol * value + 1e-9 * best
            assert abs(model.coef.sum(axis=0)).max() <= 1e-12 * abs(model.coef).max()


@pytest.mark.parametrize("bias", [1.0, 1e8])
def test_sweeps_where_the_bias_alone_counts(bias):
    """Features of next to nothing, whatever the bias's own value: b is found by sweeps, too."""
    X, y, _ = data(9, m=40, d=60, k=4)
    info = train("m3svm", 1e-100 * X, y, bias=bias).info
    assert info.converged and info.algorithm == "cd" and info.n_iter <= 20


@pytest.mark.parametrize("near", [0.0, 1e9])
def test_sweeps_that_crawl_leave_the_rest_to_steps(monkeypatch, near):
    """From their weights where these are near, else from where the fit began; to the same optimum."""
    X, y, k = data(9, m=20, d=60, k=4)
    # Twins with other labels, whose duals grow by little with every sweep.
    X, y = np.vstack([X, X]), np.r_[y, (y + 1) % k]
    options = {"C": 1e3, "norm": 2, "tol": 1e-6}
    swept = train("m3svm", X, y, **options)
    monkeypatch.setattr(sweeps, "FIRST", 1)
    monkeypatch.setattr(newton, "CRAWLING", 2)
    monkeypatch.setattr(newton, "NEAR", near)
    begun, evaluate = [], newton.NewtonFit._evaluate
    monkeypatch.setattr(newton.NewtonFit, "_evaluate", lambda fit, W, out: begun.append((fit.loss.width, W.any())) or
                        evaluate(fit, W, out))
    stepped = train("m3svm", X, y, **options)
    assert swept.info.n_iter > 2 * stepped.info.n_iter and stepped.info.algorithm == "newton"
    assert swept.info.converged and stepped.info.converged
    assert stepped.info.objective == pytest.approx(swept.info.objective, rel=2e-6)
    # Steps from W = 0 begin with a rounder corner.
    assert ((1.0, False) in begun) == (near == 0.0)


@pytest.mark.parametrize("p", [1, 1.5, 2, 4])
def test_sweeps_go_on_from_a_checkpoint(tmp_path, p):
    X, y, _ = data(9, m=40, d=60, k=4)
    options = {"C": 100.0, "norm": p}
    whole = train("m3svm", X, y, **options).info
    with pytest.warns(ml.ConvergenceWarning):
        part = train("m3svm", X, y, max_iter=whole.n_iter // 2, checkpoint=tmp_path / "c", **options).info
    rest = train("m3svm", X, y, resume_from=tmp_path / "c", **options).info
    assert whole.algorithm == part.algorithm == "cd" and part.n_iter == whole.n_iter // 2
    assert rest.converged and rest.n_iter < whole.n_iter
    assert part.bound <= rest.objective + 1e-12 and rest.objective <= part.objective


@pytest.mark.parametrize("p, d", [(1, 60), (1, 20), (1.5, 60), (2, 60), (4, 60), (4, 20)])
def test_a_grid_goes_on_from_duals_of_its_own_size(p, d):
    """Classes that are separable have the same weights at any small lambda, and duals in proportion to it: what the one
    before has found is certified at once, or next to that; sweeps over many features, steps over few. Where they are
    not, duals at their bounds stay."""
    X, y, _ = data(9, m=40, d=d, k=4)
    X[np.arange(40), y] += 6.0
    options = {"solver": "m3svm", "norm": p, "delta": 1e-6, "folds": 2, "refit": False, "tol": 1e-4}
    first, *others = ml.search(X, y, grid={"lambda_": [1e-3, 2e-3, 4e-3]}, **options).table
    assert all(not entry["unconverged"] and entry["n_iter"] <= first["n_iter"] / 4 for entry in others)
    mixed = ml.search(X, np.roll(y, 7), grid={"lambda_": [1e-3, 10.0]}, **options).table
    assert not any(entry["unconverged"] for entry in mixed)


@pytest.mark.parametrize("p", [1, 1.5])
@pytest.mark.parametrize("left", [0.0, -1e-12])
def test_a_certificate_that_is_nothing(monkeypatch, p, left):
    """What rounding leaves of sweeps' certificate, 0 or less, makes no norm sharp, and no number that is none."""
    X, y, _ = data(9, m=40, d=60, k=4)
    run, taus = sweeps.DualSweeps.run, []
    monkeypatch.setattr(sweeps.DualSweeps, "run", lambda *given: run(*given) and left)
    monkeypatch.setattr(newton.NewtonFit, "_support", lambda fit: taus.append(fit.regulariser.tau) or 0)
    assert train("m3svm", X, y, norm=p).info.converged
    assert len(taus) == 1 and 0 < taus[0] < 1


@pytest.mark.parametrize("p", [1, 1.5, 4])
def test_a_grid_goes_on_from_classes_that_are_one(p):
    """At the least C all w_l are next to 0; the next points are far, and certified."""
    X, y, _ = data(9, m=40, d=60, k=4)
    found = ml.search(X, y, solver="m3svm", norm=p, folds=2, refit=False, grid={"C": [1e-9, 1e-3, 1.0, 1e3]}).table
    assert not any(entry["unconverged"] for entry in found)
    assert all(entry["n_iter"] <= 3000 for entry in found)


def test_few_sharp_pairs_are_solved_for(monkeypatch):
    """It takes fewer products to the same optimum; more pairs than may be are left to the conjugate gradients."""
    X, y, _ = data(2, m=150, d=100, k=5)
    products, solution = [], newton.NewtonFit.solution

    def counted(fit):
        found = solution(fit)
        products.append(fit.products)
        return found

    monkeypatch.setattr(newton.NewtonFit, "solution", counted)
    monkeypatch.setattr(newton, "SWEPT", 1000)
    models = []
    for most in (newton.MOST, 10):
        monkeypatch.setattr(newton, "MOST", most)
        models.append(train("m3svm", X, y, lambda_=1e-2, norm=1, tol=1e-5))
    assert products[0] < products[1] / 2
    assert all(model.info.converged for model in models)
    assert models[0].info.objective == pytest.approx(models[1].info.objective, rel=2e-5)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_few_features_of_very_different_lengths(monkeypatch, p):
    """Their whole Hessian is solved for: the same optimum in fewer steps, and far fewer products."""
    X, y, _ = data(4, m=1000, d=8, k=5)
    found, products = [], []
    product = newton.NewtonFit._product

    def counted(fit, V, out):
        products[-1] += 1
        product(fit, V, out)

    monkeypatch.setattr(newton.NewtonFit, "_product", counted)
    # A few rows at once.
    monkeypatch.setattr(passes, "AT_ONCE", 1.0)
    for features in (newton.DIRECT, 0):
        monkeypatch.setattr(newton, "DIRECT", features)
        products.append(0)
        found.append(train("m3svm", np.exp(2 * X), y, norm=p).info)
    direct, iterated = found
    assert direct.converged
    assert direct.n_iter < iterated.n_iter
    assert 2 * products[0] < products[1]
    assert direct.objective == pytest.approx(iterated.objective, rel=2e-3)


def test_the_sharpest_leave_next_to_nothing():
    H = np.array([[0.0, 8.0, 1.9], [0.05, 4.0, 0.04]])
    assert active.sharpest(H, 6).tolist() == [1, 4, 2]
    assert active.sharpest(H, 3).tolist() == [1, 4, 2]
    for most in (2, 0):
        assert active.sharpest(H, most) is None
    assert active.sharpest(np.zeros((2, 2)), 4) is None
    # A quarter more is taken along.
    assert active.sharpest(np.r_[np.ones(8), np.full(8, 1e-3)].reshape(8, 2), 16).tolist() == list(range(10))


def test_pairs_of_distances():
    """sum_{j<l} ||w_j - w_l||^2 = k sum_l ||w_l - mean||^2; a common vector changes the eps-term alone."""
    rng = np.random.default_rng(2)
    W = rng.standard_normal((7, 5))
    spread = ((W - W.mean(axis=1, keepdims=True)) ** 2).sum()
    assert regularisers.distances(W).sum() / 2 == pytest.approx(5 * spread)
    terms = regulariser(4.0, 5, bias=None)
    shift = rng.standard_normal((7, 1))
    more = terms.eps_of(W + shift) - terms.eps_of(W) if hasattr(terms, "eps_of") else terms.square * (
        ((W + shift) ** 2).sum() - (W**2).sum())
    assert terms.evaluate(W + shift)[0] - terms.evaluate(W)[0] == pytest.approx(more, rel=1e-9)


def test_nearly_equal_classes_are_exact():
    rng = np.random.default_rng(2)
    base = rng.standard_normal((50, 1)) * 1e3
    offsets = rng.standard_normal((50, 4)) * 1e-7
    W = base + offsets
    exact = ((W[:, :, None] - W[:, None, :]) ** 2).sum(axis=0)
    assert np.allclose(regularisers.distances(W), exact, rtol=1e-12, atol=0)


@pytest.mark.parametrize("solver, loss", [("m3svm", None), ("ww", None)])
def test_two_classes_are_the_l1_svc(solver, loss):
    """k = 2, p = 2: w_2 - w_1 is the L1-loss SVC at 1/(2 lambda) = 2 C, as eps and delta go to 0."""
    X, y, _ = data(4, k=2)
    more = {"norm": 2, "eps": 1e-10, "delta": 1e-6, "bias": -1} if solver == "m3svm" else {}
    model = ml.train(X, y, solver=solver, C=0.7, tol=1e-7, **more)
    w = oracles.minimal_svc(X, 2.0 * y - 1, np.full(len(y), 1.4))
    assert np.allclose(model.coef[1] - model.coef[0], w, atol=3e-3)


@pytest.mark.parametrize("seed", range(10))
def test_ww_against_a_qp(seed):
    X, y, k = data(seed, k=2 + seed % 3)
    C = 10.0 ** np.random.default_rng(seed).uniform(-2, 1)
    _, best = oracles.minimal_ww(X, y, k, np.full(len(y), C))
    model = ml.train(X, y, solver="ww", C=C, tol=1e-9, max_iter=10**6)
    assert model.info.converged
    value = oracles.pairs_objective(model.coef.T, np.zeros(k), X, y, np.full(len(y), C), "hinge", 0, 2, 0.5, 0.0)
    assert model.info.objective == pytest.approx(value, rel=1e-12)
    assert abs(value - best) <= 1.1e-9 * max(1, value)
    assert model.info.bound <= best * (1 + 1e-11)


@pytest.mark.parametrize("seed", range(10))
def test_softmax_against_scipy(seed):
    X, y, k = data(seed, k=2 + seed % 3)
    model = ml.train(X, y, solver="softmax", C=2.0, tol=1e-9)
    best = oracles.minimal_pairs(X, y, k, np.full(len(y), 2.0), "softmax", 0, 2, 0.5, 0.0, bias=False)
    assert abs(model.info.objective - best) <= 1e-8 * best
    U = (oracles.shares(X @ model.coef.T) - np.eye(k)[y]).T @ X * -2.0
    assert model.info.certificate == pytest.approx(0.5 * ((model.coef - U) ** 2).sum(), rel=1e-3, abs=1e-12)


@pytest.mark.skipif(shutil.which("liblinear-train") is None, reason="LIBLINEAR is not installed")
def test_softmax_of_two_classes_is_liblinears_logistic_regression(tmp_path):
    """w_1 = -w_2 = -u/2 has 1/2 ||W||^2 = 1/4 ||u||^2: P is half of -s 0's objective at 2 C."""
    X, y, _ = data(6, m=60, k=2)
    rows = (" ".join(f"{j + 1}:{v:.17g}" for j, v in enumerate(x)) for x in X)
    (tmp_path / "data").write_text("".join(f"{label} {row}\n" for label, row in zip(y, rows, strict=True)))
    subprocess.run(["liblinear-train", "-s", "0", "-c", "1.4", "-e", "1e-10", "-q", tmp_path / "data",
                    tmp_path / "model"], check=True)
    theirs = ml.load_model(tmp_path / "model")
    w = theirs.coef[0] * (1 if theirs.classes[1] == 1 else -1)
    model = ml.train(X, y, solver="softmax", C=0.7, tol=1e-10)
    assert np.allclose(model.coef[1] - model.coef[0], w, atol=1e-4 * abs(w).max())
    value = 0.5 * w @ w + 1.4 * np.logaddexp(0, (1 - 2 * y) * (X @ w)).sum()
    assert model.info.objective == pytest.approx(value / 2, rel=1e-8)


@pytest.mark.parametrize("p", [1.0, 1.05, 1.5, 3.0, 16.0, 64.0])
@pytest.mark.parametrize("name", LOSSES)
def test_extreme_exponents(name, p):
    """No overflow, no nan, and a certificate; also where classes merge."""
    X, y, _ = data(11, m=40)
    y[y == 2] = np.arange((y == 2).sum()) % 2 + 2  # classes 2 and 3 are alike
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = train(name, X, y, lambda_=0.05, norm=p, tol=1e-4)
        large = train(name, 1e3 * X, y, lambda_=1e-3, norm=p, tol=1e-2)
        small = train(name, 1e-3 * X, y, lambda_=1e-3, norm=p, tol=1e-3)
    for found in (model, large, small):
        assert found.info.converged
        assert np.isfinite(found.weights).all()
        assert found.info.bound <= found.info.objective


def test_bad_parameters():
    X, y, _ = data(0)
    for name, value, words in (("norm", 0.9, r"norm = 0.9 is not allowed: give number in \[1, inf\)"),
                               ("eps", 0.0, r"eps = 0.0 .*\(0, inf\)"), ("lambda_", 0.0, r"lambda = 0.0 .*\(0, inf\)"),
                               ("delta", 1e-300, r"^delta = 1e-300 .*\[1e-12, 1e6\]")):
        with pytest.raises(ValueError, match=words):
            ml.train(X, y, solver="m3svm", **{name: value})
    with pytest.raises(ValueError, match="C and lambda are two names"):
        ml.train(X, y, solver="ism3", C=1.0, lambda_=1.0)


def test_a_thousand_classes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 12))
    model = ml.train(X, np.arange(2000) % 1000, solver="ism3", loss="softmax", lambda_=1.0, tol=0.1)
    assert model.info.converged and model.coef.shape == (1000, 12)


def test_defaults():
    X, y, k = data(0)
    model = ml.train(X, y, solver="m3svm")
    assert model.bias == 1.0 and ml.train(X, y, solver="ww").bias == -1.0
    assert model.weights.tobytes() == ml.train(X, y, solver="m3svm", lambda_=1e-3, norm=4).weights.tobytes()
    by_C = ml.train(X, y, solver="m3svm", C=5.0).info.objective
    assert by_C == pytest.approx(ml.train(X, y, solver="m3svm", lambda_=1 / (10 * k)).info.objective, rel=1e-12)


def test_no_cap_is_blamed_where_no_step_lowers_the_objective():
    """An eps that leaves the bias free beyond what rounding allows: the bound stays away, more steps would not help."""
    X, y, _ = data(0)
    with pytest.warns(ml.ConvergenceWarning, match=r"\(stalled\): .*no step lowers"):
        info = ml.train(X, y, solver="ism3", eps=1e-300).info
    assert info.status == "stalled" and info.certificate > info.tol * info.objective
