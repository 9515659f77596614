"""MSVMAv: the rounds against direct inverses, the forms of step A with each other, cycles, kernels."""

import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from oracles import features_of, msvmav_rounds, msvmav_score, random_binary, rbf
from scipy import sparse

import marginlinear as ml
from marginlinear.algorithms.certificate import Budget
from marginlinear.api import as_rows
from marginlinear.methods import msvmav
from marginlinear.problem import Problem, Run
from marginlinear.threads import Cancelled

FORMS = msvmav.Primal, msvmav.Dual, msvmav.Iterative


@pytest.fixture(autouse=True)
def a_cap_may_be_the_end():
    warnings.simplefilter("ignore", ml.ConvergenceWarning)


def fit(X, y, form=None, instance=None, factor=None, *, bias=-1.0, start=None, max_iter=100, tol=1e-8, **params):
    """A fit with one form of step A."""
    ones = np.ones(len(y))
    problem = Problem(as_rows(X, bias), y.astype(np.int32), 2, ones if instance is None else instance,
                      ones if factor is None else factor)
    run = Run(tol=tol, algorithm="auto", max_iter=max_iter, time_limit=None, seed=0, threads=1, start=start)
    return msvmav.MSVMAvFit(problem, {"alpha": None, "beta": None, **params}, run, form)


def w_of(X, y, rounds, **params):
    return ml.train(X, y, solver="msvmav", max_iter=rounds, tol=1e-300, **{"bias": -1, **params}).weights[:, 0]


def clouds(m=60, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d)) + 0.5
    y = (X @ rng.standard_normal(d) + rng.standard_normal(m) > 0).astype(int)
    return X, y


def has_a_mean(X, sign, weight):
    return abs(X.T @ (weight * sign)).max() > 1e-9


# 20 problems that have a mean.
DRAWN = ((seed, random_binary(seed)) for seed in range(60))
SEEDS = [seed for seed, (X, y, sign, _) in DRAWN if has_a_mean(X, sign, np.ones(len(y)))][:20]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_rounds_are_those_of_direct_inverses(seed, form):
    """Iterate by iterate, with weights of rows and of classes."""
    X, y, sign, _ = random_binary(seed)
    rng = np.random.default_rng(seed)
    instance, factor = rng.uniform(0.5, 2, len(y)), np.where(y == 1, 1.7, 0.6)
    alpha, beta = 10.0 ** rng.uniform(-1, 2), 10.0 ** rng.uniform(-1, 1)
    expected = msvmav_rounds(X, sign, instance * factor, alpha, beta, 8)
    run = fit(X, y, form, instance, factor, alpha=alpha, beta=beta)
    run.go_to(run.start())
    for w in expected[1:]:
        run.go_to(run.round(1e-12)[1])
        assert np.allclose(run.w, w, rtol=0, atol=1e-8)
        assert run.score() == pytest.approx(msvmav_score(w, X, sign, instance * factor), rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_train_makes_the_same_rounds(seed):
    X, y, sign, _ = random_binary(seed)
    expected = msvmav_rounds(X, sign, np.ones(len(y)), 2.0, 3.0, 6)
    for rounds in (1, 2, 6):
        for data in (X, sparse.csr_array(X)):
            assert np.allclose(w_of(data, y, rounds, alpha=2.0, beta=3.0), expected[rounds], rtol=0, atol=1e-8)


@pytest.mark.parametrize("shape", [(60, 5), (12, 40)])
@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_forms_end_at_the_same_weights(shape, kind, dtype):
    X, y = clouds(*shape, seed=2)
    X = kind(X.astype(dtype))
    ends = [fit(X, y, form, bias=0.5, alpha=5.0, beta=0.2 * shape[1], max_iter=5000).solution() for form in FORMS]
    assert {end.info.algorithm for end in ends} == {"cholesky", "dual", "cg"}
    for end in ends:
        assert end.info.converged
        assert np.allclose(end.weights, ends[0].weights, rtol=0, atol=1e-6)


def test_sums_that_are_kept_are_those_made_afresh():
    """Rows that come and go are added and subtracted."""
    X, y = clouds(400, 6)
    run = fit(X, y, msvmav.Primal)
    rng = np.random.default_rng(0)
    below = rng.random(400) < 0.5
    for _ in range(200):
        below = below ^ (rng.random(400) < 0.02)
        run.form.step(below, np.where(below, 1.0, 0.0), 0.0)
        Z = X[below]
        assert np.allclose(run.form.sum, Z.T @ Z / 400, rtol=1e-11, atol=1e-13)
    assert run.form.moved <= 400


def factorisations(form):
    """A list that grows with each factorisation."""
    made, factorise = [], form._factorise
    form._factorise = lambda below: made.append(1) or factorise(below)
    return made


@pytest.mark.parametrize("beta", [10.0, 1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("kind", ["plain", "alone", "scaled"])
def test_the_boost_is_the_direct_solve(kind, beta):
    """Rows enter, leave and come back; `alone`: among them those that have a feature to themselves."""
    rng = np.random.default_rng(0)
    m, d, rounds = 600, 200, 40
    X = rng.standard_normal((m, d))
    if kind == "alone":
        X[20:, 150:] = 0
    elif kind == "scaled":
        X *= 10.0 ** rng.uniform(-3, 3, d)
    p = rng.uniform(0.5, 2, m) / m
    form = msvmav.Primal(msvmav.Passes(as_rows(X, -1.0), 1), p, beta, None)
    made = factorisations(form)
    below = rng.random(m) < 0.4
    for at in range(rounds):
        lack = np.where(below, rng.standard_normal(m), 0.0)
        found, right = form.step(below, lack, 0.0), X.T @ (p * lack)
        M = (X[below].T * p[below]) @ X[below] + beta * np.eye(d)
        expected, size = np.linalg.solve(M, right), np.linalg.norm(M)
        # What rounding does to any solution.
        rounding = max(1e-8, 1e-15 * np.linalg.cond(M))
        assert np.linalg.norm(found - expected) <= rounding * np.linalg.norm(expected)
        assert np.linalg.norm(M @ found - right) <= 1e-14 * size * np.linalg.norm(found)
        below = below.copy()
        below[rng.choice(30 if at % 2 else m, rng.integers(0, 5))] ^= True
    assert len(made) < 0.7 * rounds


def test_the_boost_of_few_rows_is_taken():
    """One factorisation serves rounds of few changes; a round of many, or of few features, makes one."""
    rng = np.random.default_rng(0)
    for d, changes, least, most in ((300, 1, 1, 5), (300, 150, 20, 20), (40, 1, 20, 20)):
        X = rng.standard_normal((900, d))
        form = msvmav.Primal(msvmav.Passes(as_rows(X, -1.0), 1), np.full(900, 1 / 900), 1.0, None)
        made = factorisations(form)
        below = rng.random(900) < 0.5
        for _ in range(20):
            form.step(below, np.where(below, 1.0, 0.0), 0.0)
            below = below.copy()
            below[rng.choice(900, changes, replace=False)] ^= True
        assert least <= len(made) <= most
        form.step(form.inside, np.ones(900), 0.0)
        assert len(made) <= most


def test_the_rounds_with_the_boost_are_those_of_direct_inverses():
    X, y = clouds(700, 200)
    expected = msvmav_rounds(X, 2.0 * y - 1, np.ones(700), 1.0, 1.0, 40)
    run = fit(X, y, msvmav.Primal, alpha=1.0, beta=1.0)
    made = factorisations(run.form)
    run.go_to(run.start())
    for w in expected[1:]:
        run.go_to(run.round(0.0)[1])
        assert np.allclose(run.w, w, rtol=0, atol=1e-10)
    assert len(made) <= 30


def test_a_fixed_point():
    """z + g0/(2 alpha) = c w with c = <w, z> + rho/(2 alpha); the score and ||w|| = 1."""
    X, y = clouds()
    alpha, beta, sign = 3.0, 0.5, 2.0 * y - 1
    solution = fit(X, y, alpha=alpha, beta=beta, tol=1e-13, max_iter=10**5).solution()
    w, info = solution.weights[:, 0], solution.info
    assert info.converged
    g0 = X.T @ sign / len(y)
    rho = g0 @ w
    inside = sign * (X @ w) < rho
    XI = X[inside]
    z = np.linalg.solve(XI.T @ XI / len(y) + beta * np.eye(5), beta * w + rho * XI.T @ sign[inside] / len(y))
    assert np.allclose(z + g0 / (2 * alpha), (w @ z + rho / (2 * alpha)) * w, atol=1e-11)
    assert np.linalg.norm(w) == pytest.approx(1, rel=1e-14)
    assert info.objective == pytest.approx(msvmav_score(w, X, sign, np.ones(60)), rel=1e-12)
    assert info.objective == pytest.approx(msvmav_score(7 * w, X, sign, np.ones(60)), rel=1e-12)
    assert info.n_support == inside.sum()
    again = fit(X, y, alpha=alpha, beta=beta, start=solution.state).solution()
    assert again.info.n_iter == 0 and again.info.converged
    assert again.weights.tobytes() == solution.weights.tobytes()


def test_a_cycle_is_said_so():
    """Period 2: found by search. A set that stays the same while w moves is none."""
    X = np.array([[3.0, 4.0], [-2.0, -3.0], [1.0, 2.0], [2.0, 1.0]])
    y = np.array([0, 0, 0, 1])
    rounds = msvmav_rounds(X, 2.0 * y - 1, np.ones(4), 1.0, 0.01, 200)
    assert np.allclose(rounds[-1], rounds[-3], atol=1e-12)
    assert not np.allclose(rounds[-1], rounds[-2], atol=1e-2)
    with pytest.warns(ml.ConvergenceWarning, match=r"msvmav did not converge \(cycle\): .* another alpha or beta"):
        model = ml.train(X, y, solver="msvmav", alpha=1.0, beta=0.01, bias=-1, max_iter=1000)
    assert model.info.status == "cycle"
    assert model.info.residual > 1e-2
    assert model.info.n_iter < 100
    assert min(np.linalg.norm(model.weights[:, 0] - w) for w in rounds[-2:]) < 1e-3
    slow = ml.train(X, y, solver="msvmav", alpha=1e6, beta=1e5, bias=-1)
    assert slow.info.status == "finished"


def test_rounds_that_are_at_rest_are_finished_and_others_warn():
    X, y = ml.load_libsvm(Path(__file__).parent.parent / "data" / "dna")
    given = {"solver": "msvmav", "bias": 1}
    y = np.where(y == 3, 1, -1)
    enough = ml.train(X, y, **given)
    scores = [entry["objective"] for entry in enough.info.history]
    assert enough.info.status == "finished"
    assert max(scores[-11:]) - min(scores[-11:]) <= 0.01 * scores[-1]
    with pytest.warns(ml.ConvergenceWarning, match=r"\(max_iter\)"):
        assert ml.train(X, y, **given, max_iter=5).info.status == "max_iter"


@pytest.mark.parametrize("seed", [seed for seed in range(12) if len(np.unique(clouds(15, 2, seed)[1])) == 2])
def test_a_cycle_is_none_where_the_rounds_settle(seed):
    X, y = clouds(15, 2, seed)
    sign = 2.0 * y - 1
    model = ml.train(X, y, solver="msvmav", alpha=1.0, beta=0.05, bias=-1, max_iter=3000)
    last = msvmav_rounds(X, sign, np.ones(15), 1.0, 0.05, 3000)[-2:]
    settled = np.linalg.norm(last[1] - last[0]) < 1e-7
    assert model.info.status == ("converged" if settled else "cycle")


@pytest.mark.parametrize(("m", "d"), [(40, 4), (12, 30)])
@pytest.mark.parametrize("bias", [-1.0, 2.0])
def test_kernels_are_the_linear_method_on_their_features(m, d, bias):
    """Also with a singular matrix: few features, rows given twice, an empty row."""
    X, y = clouds(m, d)
    X[1], X[m // 2] = X[0], 0
    ends = {"alpha": 2.0, "beta": 1.0, "solver": "msvmav", "bias": bias, "max_iter": 30, "tol": 1e-300}
    linear = ml.train(X, y, **ends)
    for model, Z in ((ml.train(X, y, kernel="linear", **ends), X),
                     (ml.train(X @ X.T, y, kernel="precomputed", **ends), X @ X.T)):
        assert np.allclose(model.decision_function(Z), linear.decision_function(X), atol=1e-8)
        assert model.info.objective == pytest.approx(linear.info.objective, rel=1e-7)
    K = rbf(X, X, 0.3) + max(bias, 0) ** 2 * (bias >= 0)
    by_kernel = ml.train(X, y, kernel="rbf", gamma=0.3, **ends).decision_function(X)
    phi = features_of(K)
    w = msvmav_rounds(phi, 2.0 * y - 1, np.ones(m), 2.0, 1.0, 30)[-1]
    assert np.allclose(by_kernel, phi @ w, atol=1e-7)


def test_a_kernel_fit_starts_from_its_end():
    X, y = clouds()
    first = ml.train(X, y, solver="msvmav", kernel="rbf", alpha=1.0, beta=3.0, max_iter=5000)
    assert first.info.converged
    again = ml.train(X, y, solver="msvmav", kernel="rbf", alpha=1.0, beta=3.0, start=first)
    assert again.info.n_iter == 0
    assert again.decision_function(X).tobytes() == first.decision_function(X).tobytes()


def test_an_indefinite_kernel_is_refused():
    for K in (np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]]), np.array([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]])):
        with pytest.raises(ValueError, match="not positive semidefinite"):
            ml.train(K, np.array([0, 1, 1]), solver="msvmav", kernel="precomputed", bias=-1)


def test_a_kernel_matrix_that_cannot_be_had(monkeypatch):
    import marginlinear.data.kernels

    X, y = clouds()
    monkeypatch.setattr(marginlinear.memory, "memory", lambda: 50_000.0)
    with pytest.raises(MemoryError, match="msvmav factorises the kernel matrix: 60 rows"):
        ml.train(X, y, solver="msvmav", kernel="rbf")


def test_repeats_flips_and_scales():
    X, y = clouds()
    times = np.random.default_rng(1).integers(1, 4, len(y))
    given = {"solver": "msvmav", "max_iter": 10, "tol": 1e-300, "bias": -1}
    plain = ml.train(X, y, sample_weight=times, **given).weights
    assert np.allclose(ml.train(np.repeat(X, times, axis=0), np.repeat(y, times), **given).weights, plain, atol=1e-9)
    assert np.allclose(ml.train(X, 1 - y, sample_weight=times, **given).weights, -plain, atol=1e-12)
    assert np.allclose(ml.train(-X, y, sample_weight=times, **given).weights, -plain, atol=1e-12)
    # The defaults go with the scale of X.
    assert np.allclose(ml.train(1e3 * X, y, sample_weight=times, **given).weights, plain, atol=1e-9)
    # Class weights are row weights.
    by_class = ml.train(X, y, class_weight={1: 3.0}, **given).weights
    assert np.allclose(ml.train(X, y, sample_weight=np.where(y == 1, 3.0, 1.0), **given).weights, by_class, atol=1e-12)


def test_no_mean_is_an_error():
    X, words = np.array([[1.0, 2], [3, 4]]), "mean of y_i x_i over the rows is 0"
    twice, y = np.vstack([X, X]), np.array([0, 0, 1, 1])
    for bias in (-1, 1):
        with pytest.raises(ValueError, match=words):
            ml.train(twice, y, solver="msvmav", bias=bias)
        with pytest.raises(ValueError, match=words):
            ml.train(twice, y, solver="msvmav", bias=bias, kernel="rbf")
    # A third class that is the mean of both others, once against all.
    three = np.array([[3.0, 1], [1, 1], [4, 2]])
    with pytest.raises(ValueError, match=f"{words}.*in binary problem 3 of 3: class number 3 against 1, 2"):
        ml.train(three, np.array(["a", "b", "c"]), solver="msvmav", bias=-1, threads=1)


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_parameters(name):
    X, y = clouds()
    for value in (0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match=rf"{name} = .* is not allowed: give number in \(0, inf\)"):
            ml.train(X, y, solver="msvmav", **{name: value})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-9, 1e6, 1e150])
def test_far_scales(form, scale):
    X, y = clouds(30, 4)
    X = X * np.array([1, 30, 1e-3, 1])
    found = fit(X * scale, y, form).solution()
    assert np.isfinite(found.weights).all()
    assert np.linalg.norm(found.weights) == pytest.approx(1, rel=1e-12)
    assert np.isfinite([found.info.objective, found.info.residual]).all()


def test_squares_that_overflow():
    X, y = clouds()
    for scale in (1e160, 1e155):
        with pytest.raises(ValueError, match="overflow when summed: scale"):
            ml.train(X * scale, y, solver="msvmav")


@pytest.mark.parametrize(("alpha", "beta"), [(1e-300, 1.0), (1e308, 1.0), (1.0, 1e308), (1e308, 1e308), (1e-300, 1e-5)])
def test_far_parameters(alpha, beta):
    X, y = clouds()
    for form in FORMS:
        found = fit(X, y, form, alpha=alpha, beta=beta).solution()
        assert np.isfinite(found.weights).all()


def test_a_beta_that_is_lost_in_rounding_is_said_so():
    X, y = clouds(60, 3)
    with pytest.raises(ValueError, match=r"beta = 1e-300 is lost in rounding .*larger beta"):
        ml.train(np.hstack([X, X]), y, solver="msvmav", beta=1e-300)


def test_conjugate_gradients_look_at_the_clock_and_at_cancel():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 700)) * 10.0 ** rng.uniform(-4, 4, 700)
    y = (rng.random(900) < 0.5).astype(int)
    rows = as_rows(X, -1.0)
    problem = Problem(rows, y.astype(np.int32), 2, np.ones(900), np.ones(900))
    run = Run(tol=1e-8, algorithm="auto", max_iter=10, time_limit=0.2, seed=0, threads=1)
    values = {"alpha": 1e3, "beta": 1e-12}
    found = msvmav.MSVMAvFit(problem, values, run, msvmav.Iterative).solution()
    assert found.info.status == "time_limit"
    assert found.info.seconds < 2
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        msvmav.MSVMAvFit(problem, values, run._replace(cancel=cancel), msvmav.Iterative).solution()


# Products by rows alone, the rows added in parts; sums by columns; both products by columns, those added in parts.
SHAPES = pytest.mark.parametrize(("m", "d", "density"), [(3000, 600, 0.1), (9000, 3000, 0.003), (700, 20_000, 0.02)])


@SHAPES
def test_the_same_bits_for_any_threads(m, d, density, monkeypatch):
    monkeypatch.setattr(msvmav, "CHUNK", 2**12)
    rng = np.random.default_rng(0)
    X = sparse.random_array((m, d), density=density, random_state=rng, format="csr")
    y = (X @ rng.standard_normal(d) > 0).astype(int)
    first, *others = [ml.train(X, y, solver="msvmav", max_iter=5, threads=threads) for threads in (1, 2, 8)]
    assert first.info.algorithm == "cg"
    for other in others:
        assert other.weights.tobytes() == first.weights.tobytes()
        assert other.info.objective == first.info.objective


@SHAPES
@pytest.mark.parametrize("bias", [-1.0, 0.5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products(m, d, density, bias, dtype, monkeypatch):
    monkeypatch.setattr(msvmav, "CHUNK", 2**12)
    rng = np.random.default_rng(0)
    X = sparse.random_array((m, d), density=density, random_state=rng, format="csr", dtype=dtype)
    full = X.toarray().astype(float)
    if bias >= 0:
        full = np.hstack([full, np.full((m, 1), bias)])
    w, a = rng.standard_normal(full.shape[1]), rng.standard_normal(m) * (rng.random(m) < 0.5)
    expected = full @ w, a @ full
    by_columns, found = set(), []
    for data in (X, X.toarray()):
        for threads in (1, 2, 8):
            passes = msvmav.Passes(as_rows(data, bias), threads)
            passes.keep_columns()
            found.append((passes.scores(w), passes.sum(a)))
            by_columns.add(passes.columns is not None)
            assert np.allclose(found[-1][0], expected[0], rtol=0, atol=1e-11)
            assert np.allclose(found[-1][1], expected[1], rtol=0, atol=1e-11)
    assert by_columns == ({False} if d == 600 else {False, True})
    for first, *others in (found[:3], found[3:]):
        assert all((x == y).all() for other in others for x, y in zip(first, other, strict=True))


@pytest.mark.parametrize(("m", "rank"), [(1, 1), (5, 3), (64, 64), (65, 65), (200, 130), (200, 2), (30, 0)])
def test_pivoted_cholesky(m, rank):
    A = np.random.default_rng(m).standard_normal((m, rank))
    K = A @ A.T
    L, order, found = msvmav.pivoted_cholesky(K.copy(), Budget(None, None))
    assert found == rank
    assert np.allclose(L[:, :found] @ L[:, :found].T, K[np.ix_(order, order)], atol=1e-13 * m)
    assert (np.diff(np.diagonal(L)[:found]) <= 1e-9).all()
    cancel = threading.Event()
    cancel.set()
    if rank > 65:
        with pytest.raises(Cancelled):
            msvmav.pivoted_cholesky(K, Budget(None, None, cancel=cancel))


def test_the_form_goes_by_shape_and_beta():
    def form(m, d, nnz, spread=100.0):
        return msvmav.form_of(type("Shape", (), {"m": m, "d": d, "nnz": nnz}), spread)

    assert form(32561, 124, 451592) is msvmav.Primal
    assert form(300, 50_000, 30_000) is msvmav.Dual
    assert form(18_846, 1_664_476, 7_720_225) is msvmav.Iterative
    assert form(60_000, 781, 8_971_260) is msvmav.Primal
    # The smaller beta, the more steps of conjugate gradients; the more rows, the longer their sum takes.
    assert form(1245, 1245, 1245**2, 1) is msvmav.Iterative
    assert form(1245, 1245, 1245**2, 1000) is msvmav.Primal
    assert form(20_000, 1000, 1_000_000, 1000) is msvmav.Iterative
