"""Steps of two variables over a kernel: against SciPy, LIBSVM and the sweeps; the cache of kernel rows."""

import shutil
import subprocess

import numpy as np
import oracles
import pytest
from scipy.optimize import minimize

import marginlinear as ml
from marginlinear._core.margin_cd import table_of
from marginlinear._core.pair_cd import PairCD, best_shift, choose_width, values_of
from marginlinear._core.row_cache import RowCache, add_rows
from marginlinear.algorithms import pairs
from marginlinear.algorithms.pairs import dual_of
from marginlinear.cli import predict, train
from marginlinear.methods import l1svc

libsvm = pytest.mark.skipif(shutil.which("svm-train") is None, reason="needs `apt-get install libsvm-tools`")
GAMMA = 0.4
LOSSES = {"l1svc": lambda g: np.maximum(0, 1 - g), "l2svc": lambda g: np.maximum(0, 1 - g) ** 2}


class Source:
    """A Gram matrix as RowCache asks for it, which counts."""

    known = False

    def __init__(self, K):
        self.K, self.asked = K, []

    def fill(self, which, out):
        self.asked += list(which)
        out[:] = self.K[which]


def problem(m=260, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, 4))
    X[5] = X[6]
    y = (X[:, 0] * X[:, 1] + 0.7 * rng.standard_normal(m) > 0).astype(int)
    return X, y


def test_cache_keeps_the_rows_used_last():
    K = np.random.default_rng(0).standard_normal((9, 9))
    source = Source(K)
    cache = RowCache(source, 9, 3)
    cache.require(np.array([4, 1]))
    cache.require(np.array([1, 7]))
    assert source.asked == [1, 4, 7]
    cache.require(np.array([4]))
    cache.require(np.array([8]))
    # 1 was used before 7 and 4.
    assert cache.present(np.arange(9)).nonzero()[0].tolist() == [4, 7, 8]
    assert cache.made == 4
    with pytest.raises(ValueError, match="require: 4 rows, there is room for 3"):
        cache.require(np.arange(4))
    with pytest.raises(ValueError, match="capacity = 0"):
        RowCache(source, 9, 0)


@pytest.mark.parametrize("capacity", [1, 4, 50])
@pytest.mark.parametrize("k", [1, 3])
def test_sums_of_rows_do_not_depend_on_what_is_kept(capacity, k):
    rng = np.random.default_rng(1)
    K, C = rng.standard_normal((50, 50)), rng.standard_normal((37, k))
    which = rng.permutation(50)[:37]
    sums, wanted = np.ones((50, k)), np.ones((50, k))
    RowCache(Source(K), 50, capacity).add(which, C, sums)
    RowCache(Source(K), 50, 50).add(which, C, wanted)
    assert np.array_equal(sums, wanted)
    assert np.allclose(sums, 1 + K.astype(np.float32)[which].T.astype(float) @ C)


@pytest.mark.parametrize("k", [1, 2])
def test_add_rows_in_float64(k):
    rng, which = np.random.default_rng(2), np.array([5, 0, 3, 1, 4, 2])
    K, c, sums = rng.standard_normal((6, 8)), rng.standard_normal((6, k)), np.zeros((8, k))
    add_rows(K, which, c, sums)
    one_by_one = np.zeros((8, k))
    for i, own in zip(which, c, strict=True):
        one_by_one += K[i][:, np.newaxis] * own
    assert np.array_equal(sums, one_by_one)


@pytest.mark.parametrize(("loss", "wanted"), [
    (l1svc.HINGE, (1.0, 0.0, 1.0)),
    (((0.0, 1.0), ((0, -1, 0.5), (1, -1, 0.5), (0, 0, 0))), (1.0, 1.0, 1.0)),  # a hinge with a smooth corner
    (((1.0,), ((2, -2, 1), (0, 0, 0))), (1.0, 0.5, np.inf)),
    (((1.0,), ((0, -3, 3), (0, 0, 0))), (1.0, 0.0, 3.0)),
    (((0.5,), ((0, -1, 1), (0, 0, 0.5))), None),
    (((0.8, 1.2), ((2, -1.6, 0.64), (0, 0, 0), (1, -1.2, 0.72))), None),
    (((), ((2, -2, 1),)), None),
])
def test_duals_of_losses(loss, wanted):
    assert dual_of(*loss) == wanted


@pytest.mark.parametrize("sum_is_fixed", [False, True])
def test_rounds_reach_the_optimum_at_any_width(sum_is_fixed):
    """Against SciPy's bounded minimiser; b has the same bits at any width of the vectors."""
    X, y = problem(60)
    K, signs = oracles.rbf(X, X, GAMMA), 2.0 * y - 1
    upper = np.random.default_rng(3).uniform(0.5, 4, 60)
    add = np.where(np.arange(60) % 3, 0.0, 0.2)
    bounds = np.where(signs > 0, 0.0, -upper), np.where(signs > 0, upper, 0.0)

    def run(width):
        choose_width(width)
        engine = PairCD(RowCache(Source(K), 60, 7), np.ones(60), np.arange(60, dtype=np.int32), signs, add, *bounds,
                        sum_is_fixed=sum_is_fixed, room=2**20)
        for _ in range(30):
            engine.round(np.sort(np.random.default_rng(1).permutation(60)[:45]), 1e-3, 10**5)
            engine.round(np.arange(60), 1e-9, 10**5)
        choose_width()
        return engine

    engine = run(2)
    b = np.asarray(engine.b)

    def minus_dual(b):
        return 0.5 * b @ K @ b + 0.5 * add @ b**2 - signs @ b

    equality = {"type": "eq", "fun": np.sum, "jac": lambda b: np.ones(60)}
    found = minimize(minus_dual, np.zeros(60), jac=lambda b: K @ b + add * b - signs, bounds=np.transpose(bounds),
                     method="SLSQP", constraints=[equality] if sum_is_fixed else [], options={"ftol": 1e-12,
                                                                                             "maxiter": 1000})
    assert minus_dual(b) <= found.fun + 1e-6 * abs(found.fun)
    assert ((bounds[0] <= b) & (b <= bounds[1])).all()
    assert abs(b.sum()) < 1e-9 or not sum_is_fixed
    assert np.allclose(engine.scores, K @ b, atol=1e-4)
    assert np.array_equal(b, run(4).b) and np.array_equal(b, run(8).b)


@pytest.mark.parametrize("free_bias", [False, True])
@pytest.mark.parametrize("solver", LOSSES)
@pytest.mark.parametrize("C", [0.1, 3.0, 200.0])
def test_certificates_are_those_of_the_model(solver, C, free_bias):
    """P from the saved coefficients, and D from the duals, in NumPy."""
    X, y = problem()
    signs = 2.0 * y - 1
    model = ml.train(X, y, solver=solver, kernel="rbf", gamma=GAMMA, C=C, free_bias=free_bias, tol=1e-6)
    info = model.info
    assert info.converged
    assert info.algorithm == "pairs"
    b, K = np.zeros(len(y)), oracles.rbf(X, X, GAMMA)
    b[model.support_indices] = model.dual_coef[:, 0]
    f = K @ b
    assert info.objective == pytest.approx(0.5 * b @ f + C * LOSSES[solver](signs * (f + model.intercept[0])).sum(),
                                           rel=1e-12)
    a = signs * b
    curved = 0.0 if solver == "l1svc" else (a @ a) / (4 * C)
    assert info.bound == pytest.approx(a.sum() - curved - 0.5 * b @ f, rel=1e-9)
    assert info.bound <= info.objective
    assert model.n_support == np.count_nonzero(a)
    if free_bias:
        assert abs(b.sum()) <= 1e-12 * abs(b).sum()


@pytest.mark.parametrize("kernel", ["rbf", "sigmoid"])
@pytest.mark.parametrize("C", [1.0, 1e4])
def test_scores_that_no_certificate_asks_for_stay_as_they_are(monkeypatch, kernel, C):
    """Most rows are far from the margin: their scores are not made in float64, and P is that of the coefficients."""
    X, y = problem(2000)
    X[:, 0] += np.where(y, 3, -3)
    asked = []
    recompute = pairs.PairFit._recompute
    monkeypatch.setattr(pairs.PairFit, "_recompute", lambda fit, columns: asked.append(len(columns)) or
                        recompute(fit, columns))
    model = ml.train(X, y, solver="l1svc", kernel=kernel, gamma=0.02, C=C, free_bias=True, tol=1e-3)
    K = oracles.rbf(X, X, 0.02) if kernel == "rbf" else np.tanh(0.02 * X @ X.T)
    b = np.zeros(2000)
    b[[int(np.flatnonzero((row == X).all(axis=1))[0]) for row in model.support]] = model.dual_coef[:, 0]
    margins = (2 * y - 1) * model.decision_function(X).ravel()
    assert model.info.objective == pytest.approx(0.5 * b @ K @ b + C * np.maximum(0, 1 - margins).sum(), rel=1e-11)
    assert max(asked) < 100 if kernel == "rbf" else set(asked) == {2000}


def test_the_choice_of_a_round():
    """All free variables, and of the others those that gain most on each side."""
    rng = np.random.default_rng(5)
    m = 300
    signs, add = np.where(rng.random(m) < 0.7, 1.0, -1.0), np.where(rng.random(m) < 0.5, 0.0, 0.3)
    lower, upper = np.where(signs > 0, 0.0, -1.0), np.where(signs > 0, 1.0, 0.0)
    engine = PairCD(RowCache(Source(np.eye(m)), m, 9), np.ones(m), np.arange(m, dtype=np.int32), signs, add, lower,
                    upper, sum_is_fixed=True, room=2**20)
    engine.shift = 0.1
    engine.b[:] = np.where(rng.random(m) < 0.1, 0.5 * signs, np.where(rng.random(m) < 0.3, signs, 0.0))
    engine.scores[:] = rng.standard_normal(m)
    slopes, b = engine.slopes() - 0.1, np.asarray(engine.b)
    step = np.clip(slopes / np.asarray(engine.curvature), lower - b, upper - b)
    gain = step * (slopes - 0.5 * np.asarray(engine.curvature) * step)
    free = np.flatnonzero((lower < b) & (b < upper))
    chosen = engine.choose(80, 1.25)
    assert len(chosen) == 80
    assert (np.diff(chosen) > 0).all()
    worst = [where[np.argsort(-gain[where])[:20]] for where in (np.flatnonzero(step > 0), np.flatnonzero(step < 0))]
    assert set(free) | set(np.concatenate(worst)) <= set(chosen)
    assert len(engine.choose(10, 2.0)) == 2 * len(free)
    assert np.array_equal(engine.choose(m + 5, 1.0), np.arange(m))
    # Where free ones leave no room for all, those that gain most are in.
    others = np.setdiff1d(np.arange(m), free)
    most = others[np.argsort(-gain[others])]
    assert set(free) | set(most[:5]) == set(engine.choose(len(free) + 5, 1.0))


def test_each_group_has_variables_that_rise_and_fall():
    """Where all that fall in one group gain more than all that rise there, too."""
    m = 400
    group = np.repeat([0, 1], m // 2).astype(np.int8)
    up = np.arange(m) % 2 == 0
    engine = PairCD(RowCache(Source(np.eye(m)), m, 9), np.ones(m), np.arange(m, dtype=np.int32), np.zeros(m),
                    np.zeros(m), np.zeros(m), np.ones(m), sum_is_fixed=True, group=group, room=2**20)
    engine.b[:] = np.where(up, 0.0, 1.0)
    size = np.where(up == (group == 0), 0.1, 0.5) + np.linspace(0, 0.01, m)
    engine.scores[:] = np.where(up, -size, size)
    chosen = engine.choose(80, 1.25)
    for of_group in (0, 1):
        for way in (True, False):
            which = np.flatnonzero((group == of_group) & (up == way))
            assert set(which[-10:]) <= set(chosen)


@pytest.mark.parametrize(("solver", "options"), [
    ("l1svc", {"C": 100.0, "free_bias": True}), ("nusvr", {"C": 0.03, "nu": 0.45})])
def test_few_rounds_of_copies_and_of_small_costs(solver, options):
    """The active set has what gains most: rounds over others went on until sweeps took their place."""
    rng = np.random.default_rng(2)
    X = np.repeat(rng.standard_normal((250, 5)), 8, axis=0)
    z = X[:, 0] + np.sin(3 * X[:, 1]) + 2 * rng.standard_normal(len(X))
    model = ml.train(X, 10 * z if solver == "nusvr" else z > 0, solver=solver, kernel="rbf", gamma=0.3, **options)
    assert (model.info.algorithm, model.info.status) == ("pairs", "converged")
    assert model.info.n_iter < 80


@pytest.mark.parametrize("solver", LOSSES)
def test_the_optimum_of_the_sweeps(solver):
    X, y = problem()
    options = {"solver": solver, "kernel": "rbf", "gamma": GAMMA, "C": 7.0, "bias": 1.0}
    ours = ml.train(X, y, tol=1e-7, **options)
    sweeps = ml.train(X, y, tol=1e-7, algorithm="accelerated", max_iter=10**6, **options)
    assert ours.info.bound <= sweeps.info.objective
    assert sweeps.info.bound <= ours.info.objective


@pytest.mark.parametrize("kind", ["poly", "sigmoid", "precomputed"])
def test_other_kernels(kind):
    X, y = problem(120)
    K = oracles.rbf(X, X, GAMMA)
    options = {"poly": {"gamma": 0.5, "coef0": 1.0, "degree": 2}, "sigmoid": {"gamma": 0.01}, "precomputed": {}}[kind]
    model = ml.train(K if kind == "precomputed" else X, y, solver="l1svc", kernel=kind, C=2.0, free_bias=True, tol=1e-6,
                     **options)
    assert model.info.converged
    assert model.info.algorithm == "pairs"


def test_an_objective_without_a_minimum_is_told_as_one():
    """Lengths are no reason, where the kernel is not positive semidefinite."""
    X = np.random.default_rng(31).standard_normal((60, 2))
    with pytest.raises(ValueError, match="not positive semidefinite on the rows, the objective may have no minimum"):
        ml.train(np.tanh(2 * X @ X.T + 1), X[:, 0] > 0, solver="l2svc", kernel="precomputed", C=1000.0)


def test_bits_do_not_depend_on_threads_or_on_the_cache():
    X, y = problem(900)
    y[:200] = 2
    y[200:350] = 3
    seen = []
    for how in ("ovr", "ovo"):
        for threads, cache in ((1, None), (2, 1), (4, 20), (1, 0.004)):
            model = ml.train(X, y, solver="l1svc", kernel="rbf", gamma=GAMMA, C=5.0, multiclass=how, threads=threads,
                             cache=cache)
            seen.append((how, model.dual_coef.tobytes(), model.info.certificate))
    assert len(set(seen)) == 2


def test_active_sets_smaller_than_the_problem(monkeypatch):
    monkeypatch.setattr(pairs, "LEAST", 40)
    X, y = problem(700)
    model = ml.train(X, y, solver="l1svc", kernel="rbf", gamma=GAMMA, C=20.0, tol=1e-8, cache=0.2)
    assert model.info.converged
    again = ml.train(X, y, solver="l1svc", kernel="rbf", gamma=GAMMA, C=25.0, tol=1e-8, start=model)
    assert again.info.converged
    assert again.info.n_iter < model.info.n_iter


def test_a_tolerance_below_float32_is_reached():
    X, y = problem()
    for C in (1.0, 1e4):
        assert ml.train(X, y, solver="l1svc", kernel="rbf", gamma=GAMMA, C=C, tol=1e-10).info.converged


def test_rows_of_zeros_and_one_sided_costs():
    X, y = problem(80)
    X[:10] = 0
    for bias in (-1.0, 1.0):
        model = ml.train(X, y, solver="l1svc", kernel="linear", C=1.0, bias=bias, tol=1e-8)
        linear = ml.train(X, y, solver="l1svc", C=1.0, bias=bias, tol=1e-8)
        assert model.info.converged
        assert model.info.objective == pytest.approx(linear.info.objective, rel=1e-7)


def test_many_free_duals_are_left_to_sweeps(monkeypatch):
    monkeypatch.setattr(pairs, "AGAIN", 0.1)
    X, y = problem(1200)
    model = ml.train(X, y, solver="l2svc", kernel="rbf", gamma=5.0, C=1.0, cache=12, tol=1e-6)
    assert model.info.converged
    assert model.info.algorithm != "pairs"


@pytest.mark.parametrize(("options", "words"), [
    ({"free_bias": True, "bias": 0.0}, "bias = 0.0 does not go with free_bias = True, which needs one: give 1"),
    ({"free_bias": True, "kernel": "rbf", "bias": 1.0}, "bias = 1.0 does not go with free_bias = True"),
    ({"free_bias": True, "kernel": "rbf", "algorithm": "cd"}, "free_bias = True does not go with algorithm = 'cd'"),
])
def test_free_bias_refuses(options, words):
    X, y = problem(40)
    with pytest.raises(ValueError, match=words):
        ml.train(X, y, solver="l1svc", **options)
    if "kernel" in options:
        with pytest.raises(ValueError, match="free_bias = True: the kernel's values are too large"):
            ml.train(1e20 * X, y, solver="l1svc", kernel="linear", free_bias=True)


def test_an_offset_at_the_corner_of_a_row_that_costs_much():
    """Found by hand: a shift of 1e-13 too little cost 0.2 at weights of 1e12, and no fit could be certified."""
    X, y = problem(60)
    y[:3] = 1
    weights = np.where(np.arange(60) < 3, 1e12, 1e-12)
    assert ml.train(X, y, solver="l1svc", kernel="rbf", free_bias=True, sample_weight=weights).info.converged


def test_rows_of_zeros_have_an_offset():
    model = ml.train(np.zeros((20, 2)), np.arange(20) % 4 == 0, solver="l1svc", kernel="linear", free_bias=True)
    assert model.info.converged
    assert (model.predict(np.zeros((2, 2))) == [False, False]).all()


def test_given_values_beyond_float32_are_no_certificate():
    K = np.where(np.eye(30) > 0, 1.0, 1e39)
    with pytest.warns(ml.ConvergenceWarning, match="not positive semidefinite"):
        ml.train(K, np.arange(30) % 2, solver="l1svc", kernel="precomputed")


@pytest.mark.parametrize("guess", [-20.0, 0.0, 0.3, 9.0])
def test_least_loss_of_a_shift(guess):
    rng = np.random.default_rng(4)
    scores, signs, cost = rng.standard_normal(50), np.sign(rng.standard_normal(50)), rng.uniform(0.1, 2, 50)
    table = table_of(*l1svc.HINGE)
    shift = best_shift(table, cost, signs, scores, -9.0, 9.0, guess)

    def loss(s):
        return values_of(table, cost, signs, scores, np.zeros(50), s)[0]

    assert loss(0.3) == pytest.approx(cost @ np.maximum(0, 1 - signs * (scores + 0.3)))
    assert all(loss(shift) <= loss(s) + 1e-12 for s in np.linspace(-9, 9, 4001))


@pytest.mark.parametrize("guess", [-9.0, 0.1, 9.0])
def test_the_middle_of_best_shifts(guess):
    """Between the last corner of one class and the first of the other the loss is flat, but for rounding."""
    scores, signs, cost = np.array([0.3, 0.1, -0.2, -0.4]), np.array([1.0, 1.0, -1.0, -1.0]), np.full(4, 0.1)
    shift = best_shift(table_of(*l1svc.HINGE), cost, signs, scores, -9.0, 9.0, guess)
    # Corners at 1 - s for the first two, -1 - s for the others.
    assert shift == pytest.approx((-0.6 + 0.7) / 2, abs=1e-12)


@libsvm
@pytest.mark.parametrize("C", [1.0, 50.0])
def test_libsvm_s_own_problem_and_files(tmp_path, monkeypatch, C):
    """svm-train's optimum is within our certificate; svm-predict serves our file, we serve theirs, and say the same."""
    X, y = problem(300)
    text = "".join(f"{2 * label - 1} " + " ".join(f"{j + 1}:{v:.17g}" for j, v in enumerate(x)) + "\n"
                   for label, x in zip(y, X, strict=True))
    (tmp_path / "train").write_text(text)
    monkeypatch.chdir(tmp_path)
    options = ["-q", "-g", str(GAMMA), "-c", str(C), "-e", "1e-6", "train"]
    subprocess.run(["svm-train", *options, "theirs"], check=True)
    assert train.main(["-s", "l1svc", "-t", "rbf", "-R", *options, "ours"]) == 0
    theirs, ours = ml.load_model(tmp_path / "theirs"), ml.load_model(tmp_path / "ours")
    b, K = theirs.dual_coef[:, 0], oracles.rbf(theirs.support.toarray(), theirs.support.toarray(), GAMMA)
    dual = abs(b).sum() - 0.5 * b @ K @ b
    assert ours.info.bound - 1e-6 * dual <= dual <= ours.info.objective
    said = []
    for model in ("ours", "theirs"):
        subprocess.run(["svm-predict", "train", model, "libsvm.out"], check=True, capture_output=True)
        assert predict.main(["train", model, "our.out"]) == 0
        said.append((tmp_path / "libsvm.out").read_text().split())
        assert said[-1] == (tmp_path / "our.out").read_text().split()
    assert np.mean(np.array(said[0]) != np.array(said[1])) < 0.01
    assert np.allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("free_bias", [False, True])
@pytest.mark.parametrize("solver", ["l1svc", "l2svc"])
def test_a_start_is_the_best_multiple_of_the_duals(solver, free_bias):
    """Of rows that a kernel tells apart no dual of the hinge loss is at its bound: larger costs change nothing."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((80, 3)), np.arange(80) % 2
    given = {"solver": solver, "kernel": "rbf", "gamma": 2.0, "free_bias": free_bias}
    first = ml.train(X, y, C=1e3, tol=1e-7, **given)
    for C in (1e2, 4e3):
        again = ml.train(X, y, C=C, tol=1e-3, start=first, **given)
        cold = ml.train(X, y, C=C, tol=1e-7, **given)
        assert again.info.converged
        assert again.info.bound <= cold.info.objective * (1 + 1e-9)
        assert again.info.objective >= cold.info.bound * (1 - 1e-9)
    assert again.info.n_iter == 0 or solver == "l2svc"
