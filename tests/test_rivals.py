"""The rivals of the papers that are evidence only: each against a slow oracle, and its certificate."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

import marginlinear as ml
from marginlinear.compare import compare

pytest.importorskip("sklearn")

import oracles

from tools.rivals import fmm, kmomd, msvm, xu2017


def two(seed, m=30, shift=1.0):
    rng = np.random.default_rng(seed)
    y = np.repeat([-1, 1], [m // 2 + 3, m - m // 2 - 3])
    return rng.standard_normal((m, 3)) + shift * y[:, np.newaxis], y


@pytest.mark.parametrize("lam", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_kmomd_is_the_least_of_a_qp(lam, kernel):
    X, y = two(0)
    found = kmomd.KMOMD(lam=lam, kernel=kernel, gamma=0.4, tol=1e-8).fit(X, y)
    K = X @ X.T if kernel == "linear" else np.exp(-0.4 * ((X[:, None] - X) ** 2).sum(axis=2))
    Q = (1 - lam) * K * np.outer(y, y) + lam * np.eye(len(y))
    start = np.where(y > 0, 1 / (y > 0).sum(), 1 / (y < 0).sum())
    sums = [{"type": "eq", "fun": lambda g, s=s: g[y == s].sum() - 1} for s in (-1, 1)]
    least = minimize(lambda g: g @ Q @ g, start, jac=lambda g: 2 * Q @ g, bounds=[(0, None)] * len(y),
                     constraints=sums, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500})
    assert found.certificate_ <= 1e-8 * found.objective_ and found.n_iter_ < found.max_iter
    assert found.objective_ == pytest.approx(least.fun, rel=1e-5)
    assert found.objective_ - found.certificate_ <= least.fun + 1e-12
    g = found.coef_ * y
    assert g.min() >= 0 and g[y > 0].sum() == pytest.approx(1) and g[y < 0].sum() == pytest.approx(1)
    # The offset is half-way between the nearest points.
    ends = [found.decision_function(X) @ np.where(y == s, g, 0) for s in (-1, 1)]
    assert sum(ends) == pytest.approx(0, abs=1e-10) and ends[1] > 0
    assert (kmomd.KMOMD(lam=lam, kernel=kernel, gamma=0.4).fit(sparse.csr_matrix(X), y).predict(X) == y).mean() > 0.9


def test_kmomd_of_means():
    """lam = 1: the difference of the means of the classes."""
    X, y = two(1)
    found = kmomd.KMOMD(lam=1.0).fit(X, y)
    assert np.allclose(X.T @ found.coef_, X[y > 0].mean(axis=0) - X[y < 0].mean(axis=0))


@pytest.mark.parametrize("steps", [10, 100, 3000])
def test_fmm_has_the_margin_of_its_theorem(steps):
    X, y = two(2, shift=2.5)
    hard = ml.train(X, y, solver="l1svc", C=1e4, tol=1e-8, max_iter=10**6)
    w = hard.weights[:, 0]
    largest = (y * (X @ w)).min() / np.linalg.norm(w)
    assert largest > 0.5
    found = fmm.FMM(steps=steps, fit_intercept=False).fit(X, y)
    longest = np.sqrt((X**2).sum(axis=1).max())
    slack = 4 * (1 + np.log(len(y))) * (1 + 2 * np.log(steps + 1)) / (largest / longest * (steps + 1) ** 2) * longest
    assert largest - slack <= found.margin_ <= largest + 1e-4 and found.bound_ >= largest - 1e-4
    assert found.margin_ == pytest.approx((y * (X @ found.coef_)).min())
    if steps == 3000:
        assert found.bound_ - found.margin_ < 0.01 * largest


def test_fmm_with_a_constant_and_sparse_rows():
    X, y = two(3, shift=1.0)
    X[:, 0] += 3
    y[0] = 1
    found = fmm.FMM(steps=300).fit(sparse.csr_matrix(X), y)
    same = fmm.FMM(steps=300).fit(X, y)
    assert np.allclose(found.coef_, same.coef_) and found.intercept_ == pytest.approx(same.intercept_)
    assert found.coef_ @ found.coef_ + found.intercept_**2 == pytest.approx(1)
    assert (found.predict(X) == y).mean() > 0.8 and found.margin_ < 0


@pytest.mark.parametrize("constant", [False, True])
def test_fmm_with_a_kernel_is_that_of_its_coordinates(constant):
    X, y = two(7, shift=0.5)
    K = np.exp(-0.4 * ((X[:, None] - X) ** 2).sum(axis=2))
    Z = np.linalg.cholesky(K + 1e-13 * np.eye(len(y)))
    found = fmm.FMM(steps=200, fit_intercept=constant, kernel="rbf", gamma=0.4).fit(X, y)
    same = fmm.FMM(steps=200, fit_intercept=constant).fit(Z, y)
    assert found.margin_ == pytest.approx(same.margin_) and found.bound_ == pytest.approx(same.bound_)
    assert 0 < found.margin_ < found.bound_
    assert found.decision_function(X) == pytest.approx(same.decision_function(Z))
    assert found.margin_ == pytest.approx((y * found.decision_function(X)).min())
    a = found.coef_
    assert a @ (K + constant) @ a == pytest.approx(1) and found.intercept_ == pytest.approx(constant * a.sum())
    assert (found.predict(sparse.csr_matrix(X)) == y).all()


def classes(seed, k, m=24):
    rng = np.random.default_rng(seed)
    y = np.arange(m) % k
    return rng.standard_normal((m, 2)) + 1.5 * np.array([[1, 0], [-1, 1], [0, -1]])[y], y


def least_of(X, y, k, weight, own):
    """min weight sum_{j<l} ||w_j - w_l||^2 + own sum ||w_l||^2 + sum of hinges, over W and b.

    What may be added to all classes alike is taken from the last: its b and, where own = 0, its w are 0.
    """
    m, d = X.shape
    others = [(i, r) for i in range(m) for r in range(k) if r != y[i]]
    A = np.zeros((len(others), k * d + k))
    for n, (i, r) in enumerate(others):
        for sign, c in ((1, y[i]), (-1, r)):
            A[n, c * d : c * d + d] += sign * X[i]
            A[n, k * d + c] += sign
    H = np.zeros((k * d + k, k * d + k))
    H[: k * d, : k * d] = 2 * np.kron((weight * k + own) * np.eye(k) - weight * np.ones((k, k)), np.eye(d))
    free = np.delete(np.arange(k * d + k), [*(range(k * d - d, k * d) if own == 0 else ()), -1])
    hinges = A[:, free], np.ones(len(A)), np.ones(len(A)), np.zeros(len(A))
    return oracles.minimal_program(H[np.ix_(free, free)], np.zeros(len(free)), hinges)[1]


@pytest.mark.parametrize("k", [2, 3])
def test_machines_of_pairs_of_classes(k):
    X, y = classes(4, k)
    C = 0.5
    found = msvm.MSVM(C=C, tol=1e-7).fit(X, y)
    least = C * least_of(X, y, k, 1 / (2 * C), 1 / (2 * C))
    assert least - 1e-9 <= found.objective_ <= least + found.certificate_ + 1e-9
    assert found.certificate_ < 0.01 * least
    assert np.abs(found.coef_.sum(axis=0)).max() < 1e-5
    same = xu2017.Xu2017(lam=(k + 1) / (2 * k * C), tol=1e-7).fit(X, y)
    assert np.allclose(same.coef_, found.coef_, atol=1e-6)
    other = least_of(X, y, k, same.lam, 0)
    assert other - 1e-9 <= same.objective_ <= other + same.certificate_ + 1e-9
    assert (found.predict(X) == y).mean() > 0.7


def test_what_is_refused():
    X, y = classes(5, 3)
    for rival in (kmomd.KMOMD(), fmm.FMM()):
        with pytest.raises(ValueError, match="3 classes"):
            rival.fit(X, y)
    # scikit-learn has kernels whose parameters these do not pass on.
    for rival in (kmomd.KMOMD(kernel="poly"), fmm.FMM(kernel="precomputed")):
        with pytest.raises(ValueError, match=r"kernel = .* is not allowed: give 'linear' or 'rbf'"):
            rival.fit(*two(0))
    with pytest.raises(ValueError, match="lam = 0 is not allowed"):
        kmomd.KMOMD(lam=0).fit(*two(0))


def test_a_comparison_takes_them_by_name():
    X, y = two(6)
    methods = ["sklearn:tools.rivals.fmm.FMM;steps=10,20", "sklearn:tools.rivals.kmomd.KMOMD;lam=0.1,0.5",
               "sklearn:tools.rivals.msvm.MSVM;C=1", "sklearn:tools.rivals.xu2017.Xu2017;lam=0.1"]
    found = compare({"two": (X, y)}, methods, splits=1, folds=2)
    assert [trial["reason"] for trial in found.trials] == [None] * 4
    assert all(trial["scores"]["accuracy"] > 0.7 for trial in found.trials)
