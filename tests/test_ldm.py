"""ldm against a generic QP, the bound of math.md 3, its special cases, and its published algorithm."""

import io
import itertools
import warnings

import numpy as np
import oracles
import pytest
from scipy import sparse

import marginlinear as ml

SEEDS = range(30)


def parameters(seed):
    """(lambda1, lambda2): 0, the paper's, and such that the variance rules."""
    rng = np.random.default_rng(100 + seed)
    return [(0.0, 0.0), (0.25, 0.25), (2.0**-8, 0.125), (10.0 ** rng.uniform(0, 3), 1.0), (30.0, 0.0)][seed % 5]


def weights_of_rows(seed, m):
    rng = np.random.default_rng(200 + seed)
    return rng.integers(1, 4, m).astype(float) if seed % 4 == 3 else np.ones(m)


@pytest.mark.parametrize("seed", SEEDS)
def test_certified_against_a_qp(seed):
    X, y, sign, C = oracles.random_binary(seed)
    lambda1, lambda2 = parameters(seed)
    instance = weights_of_rows(seed, len(y))
    factors = {0: 1.0, 1: 2.5} if seed % 2 else {0: 1.0, 1: 1.0}
    problem = X, sign, instance, np.array([factors[label] for label in y]), C, lambda1, lambda2
    best = oracles.minimal_ldm(*problem)
    least = oracles.ldm_objective(best, *problem)
    for algorithm in ("auto", "cd", "accelerated", "newton", "paper"):
        model = ml.train(X, y, solver="ldm", C=C, lambda1=lambda1, lambda2=lambda2, algorithm=algorithm,
                         sample_weight=instance, class_weight=factors, tol=1e-8, max_iter=10**6)
        w, info = model.coef[0], model.info
        value = oracles.ldm_objective(w, *problem)
        slack = 1e-9 * max(1, abs(value))
        assert info.converged
        assert info.objective == pytest.approx(value, rel=1e-9, abs=1e-9)
        assert value - least <= 1e-6 * max(1, abs(least))
        assert info.bound <= least + slack
        assert value - least <= info.certificate + slack
        assert ((w - best) ** 2).sum() <= 2 * info.certificate + 1e-7 * max(1, best @ best)


@pytest.mark.parametrize("algorithm", ["auto", "accelerated", "paper"])
@pytest.mark.parametrize("seed", SEEDS)
def test_kernel_against_a_qp(seed, algorithm):
    X, y, sign, C = oracles.random_binary(seed)
    lambda1, lambda2 = parameters(seed)
    ones = np.ones(len(y))
    Phi = oracles.features_of(oracles.rbf(X, X, 0.5))
    best = oracles.minimal_ldm(Phi, sign, ones, ones, C, lambda1, lambda2)
    least = oracles.ldm_objective(best, Phi, sign, ones, ones, C, lambda1, lambda2)
    model = ml.train(X, y, solver="ldm", C=C, lambda1=lambda1, lambda2=lambda2, algorithm=algorithm, kernel="rbf",
                     gamma=0.5, tol=1e-8, max_iter=10**6)
    info = model.info
    assert info.converged
    assert info.objective - least <= 1e-6 * max(1, abs(least))
    assert info.bound <= least + 1e-8 * max(1, abs(least))
    # f(x_i) = phi_i.w, and |phi_i| = 1: as far apart as the weights are.
    apart = np.sqrt(max(0, 2 * info.certificate)) + 1e-6 * max(1, np.linalg.norm(best))
    assert np.allclose(model.decision_function(X), Phi @ best, rtol=0, atol=apart)


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_the_bound_of_the_paper_s_dual(seed):
    """Any w with any beta in [0, C]: never below the distance to the optimum."""
    X, y, sign, C = oracles.random_binary(seed)
    problem = X, sign, np.ones(len(y)), np.ones(len(y)), C, *parameters(seed)
    model = ml.train(X, y, solver="ldm", C=C, lambda1=problem[5], lambda2=problem[6], tol=1e-9, max_iter=10**6)
    least = oracles.ldm_objective(model.coef[0], *problem)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        w, beta = model.coef[0] + rng.standard_normal(X.shape[1]), rng.uniform(0, C, len(y))
        assert oracles.ldm_objective(w, *problem) - least <= oracles.ldm_certificate(w, beta, *problem) + 1e-9


@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_without_margin_terms_it_is_the_l1_svc(kernel):
    X, y, _, _ = oracles.random_binary(3)
    ours = ml.train(X, y, solver="ldm", C=2.0, lambda1=0, lambda2=0, tol=1e-9, kernel=kernel, max_iter=10**6)
    svc = ml.train(X, y, solver="l1svc", C=2.0, tol=1e-9, kernel=kernel, max_iter=10**6)
    assert ours.info.objective == pytest.approx(svc.info.objective, rel=1e-8)
    assert np.allclose(ours.decision_function(X), svc.decision_function(X), atol=1e-4)


def test_class_weights_multiply_the_cost_alone():
    """An instance weight is a row more, also in the mean and the variance; a class weight is not."""
    X, y, _, _ = oracles.random_binary(4)
    options = {"solver": "ldm", "C": 0.5, "lambda1": 20.0, "lambda2": 5.0, "tol": 1e-8}
    by_class = ml.train(X, y, class_weight={1: 3.0}, **options)
    by_row = ml.train(X, y, sample_weight=np.where(y == 1, 3.0, 1.0), **options)
    assert abs(by_class.info.objective - by_row.info.objective) > 1e-3


@pytest.mark.parametrize("solver", ["ldm", "ldm-asgd"])
@pytest.mark.parametrize("k", [2, 3])
def test_weights_relative_to_rows_and_cost(solver, k, tmp_path):
    """The model's parameters are numbers, with which the same model is trained again."""
    rng = np.random.default_rng(1)
    X, y, weight = rng.standard_normal((60, 4)), rng.integers(0, k, 60), rng.integers(1, 3, 60).astype(float)
    model = ml.train(X, y, solver=solver, C=2, lambda1="0.25mC", lambda2="1e-2mC", sample_weight=weight)
    size = weight.sum()
    assert model.params["lambda1"] == 0.25 * 2 * size and model.params["lambda2"] == 0.01 * size * 2
    again = ml.train(X, y, solver=solver, sample_weight=weight, C=2,
                     **{name: model.params[name] for name in ("lambda1", "lambda2")})
    assert again.weights.tobytes() == model.weights.tobytes()
    ml.save_model(model, tmp_path / "model")
    assert ml.load_model(tmp_path / "model").params["lambda1"] == model.params["lambda1"]
    model.params["lambda1"] = "0.25mC"
    ml.save_model(model, tmp_path / "words")
    with pytest.raises(ml.DataError, match="lambda1"):
        ml.load_model(tmp_path / "words")


def test_each_fold_of_a_search_has_its_own_rows():
    X, y, _, _ = oracles.random_binary(4)
    grid = {"lambda1": ["1mC", "0.1mC", 0.25]}
    found = ml.search(X, y, solver="ldm", C=1.0, grid=grid, folds=3)
    assert [entry["lambda1"] for entry in found.table] == [0.25, "0.1mC", "1mC"]
    best = found.best_params["lambda1"]
    again = ml.train(X, y, solver="ldm", C=1.0, lambda1=best)
    assert found.model.params["lambda1"] == again.params["lambda1"]


def test_a_large_variance_weight_makes_margins_alike():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 5)) + 1, rng.integers(0, 2, 200)
    X[y == 1] += 1
    spreads = []
    for lambda1 in (0.0, 20.0, 200.0, 2000.0):
        model = ml.train(X, y, solver="ldm", lambda1=lambda1, lambda2=0.0, tol=1e-6, max_iter=10**6)
        spreads.append(model.margins(X, y).var())
    assert spreads == sorted(spreads, reverse=True) and spreads[-1] < 0.5 * spreads[0]


def test_paper_s_route_says_what_it_cannot_do():
    with pytest.raises(ValueError, match="algorithm = 'paper' is not a route of odm: give auto"):
        ml.train(np.eye(4), [0, 1, 0, 1], solver="odm", algorithm="paper")
    X, y, _, _ = oracles.random_binary(1)
    cold = ml.train(X, y, solver="ldm", algorithm="paper", tol=1e-6)
    assert cold.info.algorithm == "paper"
    for route in ("paper", "auto"):
        warm = ml.train(X, y, solver="ldm", algorithm=route, tol=1e-5, start=cold)
        assert warm.info.converged and warm.info.n_iter == 0


HOSTILE = """
0 2:-62.99275206291038 3:-0.009006490332251847 4:49911.68295913096 5:0.1599850315106716
1 5:0.1599850315106716
1 1:0.0024714901713134914 2:75.1662126193293 4:-67377.59331725078 5:0.1599850315106716
0
0 1:-0.0011145656766830686 2:123.49361746616248 3:-0.027844962280154192 4:-2202.1053237353985 5:0.1599850315106716
1 1:-0.0003858498121365661 2:175.01138123771713 5:0.1599850315106716
"""


@pytest.mark.parametrize("canonical", [True, False])
def test_raw_scales_converge_in_every_storage_by_one_route(canonical, request):
    """Where the variance rules, sweeps that wait for the mean diverge: by 10^180 in 1,000 of them."""
    if not canonical:
        request.getfixturevalue("rows_as_given")
    X, y = ml.load_libsvm(io.BytesIO(HOSTILE.strip().encode()))
    dense = X.toarray()
    zeros = sparse.csr_array((dense.ravel(), np.tile(np.arange(5), 6), np.arange(0, 31, 5)), shape=(6, 5))
    ends = {"solver": "ldm", "C": 0.00012377, "lambda1": 0.0599355, "lambda2": 0.379667, "tol": 0.000194}
    found = [ml.train(rows, y, **ends).info for rows in (X, dense, zeros, sparse.csc_array(X))]
    assert {(info.status, info.algorithm, info.n_iter) for info in found} == {("converged", "newton", found[0].n_iter)}
    for algorithm in ("cd", "accelerated", "newton"):
        info = ml.train(X, y, algorithm=algorithm, **ends).info
        assert info.converged
        assert abs(info.objective - found[0].objective) <= info.tol


@pytest.mark.parametrize("seed", range(12))
def test_hostile_scales_end_finite(seed):
    """Features of 1e-8 to 1e8, rows of as many lengths, terms of any weight: converged, or short and honest."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((8, 4)) * 10 ** rng.uniform(-8, 8, 4) * 10 ** rng.uniform(-3, 3, (8, 1))
    y = np.arange(8) % 2
    ends = {"solver": "ldm", "C": 10 ** rng.uniform(-6, 6), "max_iter": 300, **dict(
        zip(("lambda1", "lambda2"), 10 ** rng.uniform(-8, 5, 2), strict=True))}
    for rows, algorithm in itertools.product((X, sparse.csr_array(X)), ("auto", "cd", "accelerated")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ml.ConvergenceWarning)
            model = ml.train(rows, y, algorithm=algorithm, **ends)
        assert np.isfinite(model.weights).all()
        assert model.info.status in ("converged", "max_iter", "stalled")
        assert model.info.objective <= 10 * 8 * ends["C"]
