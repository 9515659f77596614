"""smlr against SciPy, l1lr and its certificate in NumPy."""

from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, sparse

import marginlinear as ml
from marginlinear._core.penalty import Penalty

DATA = Path(__file__).parent.parent / "data"


def problem(m=150, d=8, k=4):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(m, d))
    y = (X @ rng.normal(size=(d, k)) + rng.gumbel(size=(m, k))).argmax(axis=1)
    return X, y, rng.uniform(0.5, 2.0, m)


def objective(W, X, y, cost, ratio):
    S = X @ W
    losses = np.logaddexp.reduce(S, axis=1) - S[np.arange(len(y)), y]
    return ratio * abs(W).sum() + (1 - ratio) / 2 * (W * W).sum() + cost @ losses


def least(X, y, k, cost, ratio):
    """P*, of W = U - V with U, V >= 0."""
    d = X.shape[1]

    def value(v):
        W = v[:d * k].reshape(d, k) - v[d * k:].reshape(d, k)
        S = X @ W
        p = np.exp(S - np.logaddexp.reduce(S, axis=1)[:, None])
        p[np.arange(len(y)), y] -= 1
        slope = ((X.T * cost) @ p + (1 - ratio) * W).ravel()
        total = objective(W, X, y, cost, 0) - 0.5 * (W * W).sum() + (1 - ratio) / 2 * (W * W).sum() + ratio * v.sum()
        return total, np.concatenate((slope + ratio, ratio - slope))

    return optimize.minimize(value, np.full(2 * d * k, 0.01), jac=True, bounds=[(0, None)] * (2 * d * k),
                             method="L-BFGS-B", options={"maxiter": 20000, "maxfun": 100000, "ftol": 1e-15,
                                                         "gtol": 1e-9}).fun


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("C", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_the_optimum_is_between_bound_and_objective(k, C, ratio):
    X, y, weights = problem(k=k)
    model = ml.train(X, y, solver="smlr", C=C, l1_ratio=ratio, sample_weight=weights, tol=1e-9)
    info = model.info
    assert info.converged
    assert info.objective == pytest.approx(objective(model.weights, X, y, C * weights, ratio), rel=1e-12)
    optimum = least(X, y, k, C * weights, ratio)
    assert info.bound <= optimum + 1e-11 * optimum
    assert info.objective <= optimum + 1e-9 * max(1.0, optimum)
    # The bound is that of distributions over the classes, each feature within its bound.
    S = X @ model.weights
    p = np.exp(S - np.logaddexp.reduce(S, axis=1)[:, None])
    U = X.T @ (C * weights[:, None] * (np.eye(k)[y] - p))
    if ratio == 1:
        share = min(1.0, 1 / abs(U).max())
        q = share * p + (1 - share) * np.eye(k)[y]
        dual = (C * weights) @ -np.where(q > 0, q * np.log(np.maximum(q, 1e-300)), 0.0).sum(axis=1)
        assert dual <= info.bound + 1e-8 * optimum


def group_objective(W, X, y, cost, ratio, costly):
    S, paid = X @ W, costly * W
    losses = np.logaddexp.reduce(S, axis=1) - S[np.arange(len(y)), y]
    return ratio * np.linalg.norm(paid, axis=1).sum() + (1 - ratio) / 2 * (paid * paid).sum() + cost @ losses


def least_group(X, y, k, cost, ratio, costly):
    """P* by accelerated proximal gradients, which start anew where they turn back."""
    own, W = np.arange(len(y)), np.zeros((X.shape[1], k))
    L, V, t = np.linalg.norm(X.T * cost @ X, 2) / 2 + 1, W, 1.0
    for _ in range(4000):
        S = X @ V
        p = np.exp(S - np.logaddexp.reduce(S, axis=1)[:, None])
        p[own, y] -= 1
        new = V - ((X.T * cost) @ p + costly * (1 - ratio) * V) / L
        new *= np.maximum(0, 1 - costly * ratio / L / np.maximum(np.linalg.norm(new, axis=1, keepdims=True), 1e-300))
        last, t = (t, 1.0) if ((V - new) * (new - W)).sum() > 0 else (t, (1 + np.sqrt(1 + 4 * t * t)) / 2)
        V, W = new + (last - 1) / t * (new - W), new
    return group_objective(W, X, y, cost, ratio, costly)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("C", [0.05, 1.0])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("free", [False, True])
def test_groups_against_proximal_gradients(k, C, ratio, free):
    X, y, weights = problem(d=10, k=k)
    X[:, 3] = X[:, 2]
    cost = C * weights
    model = ml.train(X, y, solver="smlr", penalty="group", C=C, l1_ratio=ratio, sample_weight=weights, tol=1e-10,
                     bias=1.0, free_bias=free)
    info, W, Z = model.info, model.weights, np.column_stack((X, np.ones(len(y))))
    costly = np.ones((11, 1))
    costly[-1] = not free
    optimum = least_group(Z, y, k, cost, ratio, costly)
    assert info.converged
    assert info.objective == pytest.approx(group_objective(W, Z, y, cost, ratio, costly), rel=1e-12)
    assert info.objective == pytest.approx(optimum, rel=1e-9)
    assert info.bound <= optimum * (1 + 1e-12)
    # All classes together, and no shift of all scores that costs something.
    assert ((W != 0).all(axis=1) | (W == 0).all(axis=1)).all()
    assert np.allclose(W[:-1].sum(axis=1), 0, atol=1e-9)
    S = Z @ W
    p = np.exp(S - np.logaddexp.reduce(S, axis=1)[:, None])
    U = (Z.T @ (cost[:, None] * (np.eye(k)[y] - p)))
    lengths = np.linalg.norm(U, axis=1)[:10 if free else 11]
    share = min(1.0, 1 / lengths.max()) if ratio == 1 else 1.0
    q = share * p + (1 - share) * np.eye(k)[y]
    dual = cost @ -(q * np.log(np.maximum(q, 1e-300))).sum(axis=1)
    if ratio < 1:
        dual -= (np.maximum(0, share * lengths - ratio) ** 2).sum() / (2 * (1 - ratio))
    assert dual <= info.bound + 1e-9 * optimum


@pytest.mark.parametrize("k", [2, 3, 4, 7])
@pytest.mark.parametrize(("l1", "l2"), [(1.0, 0.0), (0.4, 0.6), (1e-3, 5.0)])
def test_centred_weights_cost_least(k, l1, l2):
    """Of all shifts of a feature's weights; of as good ones it takes none, where some weight is 0 already."""
    rng = np.random.default_rng(k)
    before = rng.normal(size=(200, k)) * 10.0 ** rng.integers(-3, 4, (200, 1)) + rng.normal(size=(200, 1))
    before[rng.random((200, k)) < 0.3] = 0
    after, penalty = before.copy(), Penalty("l1", l1, l2)
    penalty.centre(after)
    shift = (before - after)[:, 0]
    assert np.allclose(before - after, shift[:, np.newaxis], rtol=1e-12, atol=1e-12 * abs(before).max())
    for row, new in zip(before, after, strict=True):
        # Least at a weight, or between two where the penalty is a parabola.
        kinks = np.sort(row)
        slopes = l1 * (2.0 * np.arange(1, k) - k)
        ends = np.concatenate((row, np.clip(row.mean() - slopes / (l2 * k), kinks[:-1], kinks[1:]) if l2 else []))
        best = min(penalty.value((row - end)[np.newaxis]) for end in ends)
        assert penalty.value(new[np.newaxis]) == pytest.approx(best, rel=1e-12)
        if k > 2 and l2 == 0 and (row > 0).sum() <= k / 2 and (row < 0).sum() <= k / 2:
            assert (new == row).all()


@pytest.mark.parametrize("C", [100.0, 1e4])
def test_features_that_say_nearly_the_same(C):
    """Cycles over the columns of a table come to no certificate there, steps by the curvature's matrix do."""
    X, y = ml.load_libsvm(DATA / "glass")
    info = ml.train(X, y, solver="smlr", C=C, bias=1.0, scale="range").info
    assert info.converged and info.n_iter < 1000


@pytest.mark.parametrize("C", [100.0, 1e4])
def test_tables_far_from_0(C):
    """Where few weights are 0 all of a feature's drift together, by as much a step as the penalty alone tells."""
    X, y, _ = problem()
    info = ml.train(X + 2.0, y, solver="smlr", C=C, bias=1.0).info
    assert info.converged and info.n_iter < 1000


@pytest.mark.parametrize("free", [False, True])
def test_groups_of_features_on_different_scales_have_a_certificate(free):
    """Newton steps by conjugate gradients alone stalled before."""
    rng = np.random.default_rng(13)
    X = rng.normal(size=(361, 26)) * 10.0 ** rng.uniform(-1, 1, 26)
    y = (X @ rng.normal(size=(26, 5)) + 3 * rng.gumbel(size=(361, 5))).argmax(axis=1)
    info = ml.train(X, y, solver="smlr", penalty="group", C=100, free_bias=free, tol=1e-8).info
    assert info.converged and info.n_iter < 1000


@pytest.mark.parametrize("most", range(1, 12))
def test_the_cap_counts_proximal_steps(most):
    """One followed a set whose cycles had met the cap."""
    X, y = np.random.default_rng(0).normal(size=(120, 6)), np.arange(120) * 7 % 11 % 4
    with pytest.warns(ml.ConvergenceWarning, match="cap on sweeps"):
        info = ml.train(X, y, solver="smlr", C=100, tol=1e-12, max_iter=most).info
    assert info.n_iter <= most and info.bound <= info.objective


def test_groups_of_two_classes_are_l1lr():
    """||(w, -w)|| = sqrt(2) |w|, the scores' difference being 2 w: C of l1lr is sqrt(2) times as much."""
    X, y, _ = problem()
    both = ml.train(X, y > 1, solver="smlr", penalty="group", C=0.5, tol=1e-9).info
    one = ml.train(X, y > 1, solver="l1lr", C=0.5 * 2 ** 0.5, tol=1e-9).info
    assert both.objective == pytest.approx(one.objective / 2 ** 0.5, rel=1e-8)


def test_the_least_cost_with_a_group():
    X, y, _ = problem()
    C = 1 / np.linalg.norm(X.T @ (np.eye(4)[y] - 0.25), axis=1).max()
    below, above = (ml.train(X, y, solver="smlr", penalty="group", C=f * C, tol=1e-8) for f in (0.999, 1.01))
    assert below.info.converged and not below.coef.any()
    assert (above.coef != 0).all(axis=0).sum() == 1


def test_values_that_saturate_shares(tmp_path):
    """Steps by models of the loss alone would go where it has no curvature; and a model keeps its penalty."""
    rng = np.random.default_rng(3)
    X = sparse.random_array((500, 400), density=0.05, random_state=rng, format="csr")
    X.data = np.exp(4 * X.data)
    y = (X @ rng.standard_normal((400, 6)) + 10 * rng.gumbel(size=(500, 6))).argmax(axis=1)
    for penalty in ("l1", "group"):
        model = ml.train(X, y, solver="smlr", penalty=penalty, C=5.0)
        assert model.info.converged
        ml.save_model(model, tmp_path / "m")
        assert ml.load_model(tmp_path / "m").params["penalty"] == penalty


def test_a_cost_that_is_too_small_leaves_no_weight():
    X, y, _ = problem()
    least_cost = 1 / abs(X.T @ (np.eye(4)[y] - 0.25)).max()
    model = ml.train(X, y, solver="smlr", C=0.99 * least_cost)
    assert model.info.converged
    assert not model.coef.any()
    assert ml.train(X, y, solver="smlr", C=1.1 * least_cost, tol=1e-6).coef.any()


def test_of_two_classes_half_the_weights_of_l1lr():
    """w_2 = -w_1 costs as much as w_2 - w_1 does: |w| = |w/2| + |-w/2|."""
    X, y, _ = problem()
    both = ml.train(X, y > 1, solver="smlr", C=0.5, tol=1e-9).info
    one = ml.train(X, y > 1, solver="l1lr", C=0.5, tol=1e-9).info
    assert both.objective == pytest.approx(one.objective, rel=1e-8)


def test_files_and_probabilities(tmp_path):
    X, y = ml.load_libsvm(DATA / "dna")
    model = ml.train(X, y, solver="smlr", bias=1.0)
    assert model.info.converged
    ml.save_model(model, tmp_path / "m")
    loaded = ml.load_model(tmp_path / "m")
    assert np.array_equal(loaded.predict(X), model.predict(X))
    p = np.exp(model.decision_function(X))
    assert np.allclose(loaded.predict_proba(X), p / p.sum(axis=1, keepdims=True))
    warm = ml.train(X, y, solver="smlr", bias=1.0, C=1.1, start=model)
    assert warm.info.converged
    assert warm.info.objective <= model.info.objective * 1.1


def test_shares_that_vanished_come_back():
    """Word counts as they are: scores are hundreds apart, and exp of them is 0 until a later step."""
    from marginlinear.data.folds import stratified_folds

    X, y = ml.load_libsvm(DATA / "news20.train")
    part = stratified_folds(y, 3, 0) != 2
    info = ml.train(X[part], y[part], solver="smlr", C=8.0, threads=1).info
    assert info.converged and info.objective < 1e4
    assert all(check["objective"] <= info.history[0]["objective"] for check in info.history)
