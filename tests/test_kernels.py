"""Kernels against NumPy; Gram rows, whole and from a cache; every method over them against its linear form."""

import math
import os
import signal
import threading
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import sparse

from marginlinear import registry
from marginlinear._core.kernel_rows import KernelPoints, choose_width, kernel_values
from marginlinear._core.rows import FETCH, Rows
from marginlinear.data import kernels
from marginlinear.data.arrays import CSR, as_rows
from marginlinear.data.kernels import Kernel, kernel_scores, take_support
from marginlinear.problem import Problem, Run
from marginlinear.status import allowance

KERNELS = {
    "linear": Kernel("linear"),
    "poly": Kernel("poly", gamma=0.3, coef0=1.0, degree=5),
    "poly 0": Kernel("poly", gamma=0.3, coef0=0.0, degree=0),
    "rbf": Kernel("rbf", gamma=0.4),
    "sigmoid": Kernel("sigmoid", gamma=0.1, coef0=0.2),
}
N = 7


def gram_rows(*given, **options):
    """Where the cache holds them, all rows, made."""
    rows = kernels.gram_rows(*given, **options)
    rows.complete()
    return rows


def points(m, seed=0):
    """float64 values that float32 holds, with an empty row and repeated ones."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, N)).astype(np.float32).astype(np.float64)
    X[rng.random((m, N)) < 0.4] = 0
    X[3] = 0
    X[5:8] = X[4]
    return X


def values(kernel, X, Z):
    """The definitions, one pair after the other."""
    products = np.array([[x @ z for z in Z] for x in X])
    if kernel.kind == "linear":
        return products
    if kernel.kind == "poly":
        return (kernel.gamma * products + kernel.coef0) ** kernel.degree
    if kernel.kind == "rbf":
        return np.array([[np.exp(-kernel.gamma * ((x - z) ** 2).sum()) for z in Z] for x in X])
    return np.tanh(kernel.gamma * products + kernel.coef0)


def own_csr(X):
    A = sparse.csr_array(X)
    return CSR(A.data, A.indices.astype(np.int32), A.indptr.astype(np.int64), X.shape[1])


STORED = {"csr": own_csr, "scipy": sparse.csr_array, "csc": sparse.csc_array, "dense": np.array,
          "float32": lambda X: X.astype(np.float32), "csr float32": lambda X: sparse.csr_array(X.astype(np.float32)),
          "fortran": np.asfortranarray}


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("name", KERNELS)
def test_values(name, stored):
    kernel, X, Z = KERNELS[name], points(40), points(9, seed=1)
    A = STORED[stored](X)
    rows = gram_rows(kernel, A, N, offset=0.25)
    K = values(kernel, X, X) + 0.25
    assert rows.is_gram
    assert np.allclose(rows.arrays, K, rtol=1e-12, atol=1e-12)
    assert np.array_equal(rows.sqnorms(), np.diagonal(rows.arrays))
    if name == "rbf":
        assert (np.asarray(rows.sqnorms()) == 1.25).all()
    which, C = np.array([3, 30, 8, 9]), np.random.default_rng(2).standard_normal((4, 3))
    support = take_support(kernel, A, which)
    for other in STORED.values():
        scores = kernel_scores(kernel, other(Z), support, C, offset=0.25)
        assert np.allclose(scores, (values(kernel, Z, X[which]) + 0.25) @ C, rtol=1e-12, atol=1e-12)


def test_gamma_is_one_over_the_features():
    X = points(10)
    assert np.array_equal(gram_rows(Kernel("rbf"), X, N).arrays, gram_rows(Kernel("rbf", gamma=1 / N), X, N).arrays)


@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_features_that_one_side_lacks_are_zeros(name):
    kernel, X = KERNELS[name], points(12)
    wide = np.hstack([X, np.ones((12, 2))])
    C = np.random.default_rng(0).standard_normal((5, 2))
    for store in (np.array, sparse.csr_array):
        for left, right in ((X, wide), (wide, X)):
            support = take_support(kernel, store(right), np.arange(5))
            padded = [np.hstack([A, np.zeros((12, 9 - A.shape[1]))]) for A in (left, right)]
            assert np.allclose(kernel_scores(kernel, store(left), support, C),
                               values(kernel, padded[0], padded[1][:5]) @ C)


@pytest.mark.parametrize("stored", ["csr", "dense", "float32"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_row_has_the_same_bits_in_any_company(name, stored, monkeypatch):
    monkeypatch.setattr(kernels, "COLUMNS", 128)
    X = STORED[stored](points(301))
    source = kernels.KernelRows(KERNELS[name], X, 0.0, None, 2)
    whole = source.matrix()
    rng = np.random.default_rng(0)
    for count in (1, 2, 17, FETCH):
        which = rng.permutation(301)[:count]
        made = np.empty((count, 301))
        source.fill(which, made)
        assert np.array_equal(made, whole[which])
    threads = kernels.KernelRows(KERNELS[name], X, 0.0, None, 1)
    assert np.array_equal(threads.matrix(), whole)
    assert np.array_equal(whole, whole.T)
    single = np.empty((9, 301), np.float32)
    source.fill(np.arange(9), single)
    assert np.allclose(single, whole[:9], rtol=1e-7, atol=0)
    for width in (2, 4):
        choose_width(width)
        assert np.array_equal(kernels.KernelRows(KERNELS[name], X, 0.0, None, 1).matrix(), whole)
    choose_width()
    C = rng.standard_normal((20, 2))
    support = take_support(KERNELS[name], X, np.arange(20))
    assert np.array_equal(kernel_scores(KERNELS[name], X, support, C, threads=1),
                          kernel_scores(KERNELS[name], X, support, C, threads=3))


@pytest.mark.parametrize("stored", ["csr", "dense", "float32"])
@pytest.mark.parametrize("name", KERNELS)
def test_values_of_known_products_have_the_same_bits(name, stored, monkeypatch):
    monkeypatch.setattr(kernels, "DEAR", 0)
    kernel, X = KERNELS[name], STORED[stored](points(301))
    known = kernels.shared_points(X, np.arange(301) % 4, None, 2)
    plain = kernels.points_of(X)
    assert np.array_equal(known.sqnorms, plain.sqnorms)
    rng = np.random.default_rng(1)
    left, right, which = rng.permutation(301)[:70], rng.permutation(301)[:133], rng.permutation(70)[:19]
    for dtype in (np.float32, np.float64):
        wanted, found = np.empty((19, 69), dtype), np.empty((19, 69), dtype)
        kernels.kernel_values(kernel, 0.25, plain.select(left), which, plain.select(right), 64, 133, wanted)
        kernels.kernel_values(kernel, 0.25, known.select(left), which, known.select(right), 64, 133, found)
        assert found.tobytes() == wanted.tobytes()
    C = rng.standard_normal((70, 2))
    assert np.array_equal(kernels.known_scores(kernel, known.select(right), known.select(left), C),
                          kernel_scores(kernel, kernels.select_rows(X, right), take_support(kernel, X, left), C))


def test_points_of_other_products_are_refused():
    plain = kernels.points_of(points(20))
    known = plain.known(np.zeros((20, 20)))
    with pytest.raises(ValueError, match="kernel_values: points of other products"):
        kernels.kernel_values(KERNELS["rbf"], 0.0, plain, np.arange(3), known, 0, 20, np.empty((3, 20)))
    with pytest.raises(ValueError, match=r"products of shape \(20, 19\) for 20 points"):
        plain.known(np.zeros((20, 19)))


def test_exponentials_are_within_1_1_ulp():
    roots = np.sort(np.random.default_rng(0).uniform(0, 27, 4000))
    left, right = (KernelPoints(as_rows(X, -1.0)) for X in (np.zeros((1, 1)), roots[:, None].copy()))
    found = np.empty((1, len(roots)))
    kernel_values(Kernel("rbf", gamma=1.0), 0.0, left, np.array([0]), right, 0, len(roots), found)
    with localcontext(prec=40):
        for value, x in zip(found[0], roots * roots, strict=True):
            exact = (-Decimal(x)).exp()
            assert x > 708 or abs(Decimal(value) - exact) <= Decimal(1.1 * np.spacing(float(exact)))
    assert (found[0][roots * roots > 708] == 0).all()


@pytest.mark.parametrize("returned", [lambda K: K.toarray(), lambda K: K, sparse.coo_array, sparse.csc_matrix],
                         ids=["dense", "csr", "coo", "csc_matrix"])
def test_callables_get_the_users_own_arrays(returned):
    X = sparse.csr_array(points(150))
    seen = set()

    def kernel(A, B):
        seen.add((type(A), type(B)))
        return returned(A @ B.T)

    rows = gram_rows(Kernel(kernel), X, N, offset=1.0)
    assert seen == {(sparse.csr_array, sparse.csr_array)}
    wanted = gram_rows(Kernel("linear"), X, N, offset=1.0)
    assert np.allclose(rows.arrays, wanted.arrays)
    support, C = take_support(Kernel(kernel), X, np.arange(7)), np.ones((7, 1))
    assert np.allclose(kernel_scores(Kernel(kernel), X, support, C, offset=1.0), rows.arrays[:, :7] @ C)


@pytest.mark.parametrize("wrong, words", [
    (lambda A, B: A @ B.T @ np.ones((len(B), 1)), "shape .* are needed"),
    (lambda A, B: np.full((len(A), len(B)), "a"), "numbers of shape"),
    (lambda A, B: np.full((len(A), len(B)), np.nan), "not finite"),
    (lambda A, B: -(A @ B.T), "below 0: it is not positive semidefinite"),
    (lambda A, B: sparse.csr_array((2, 2)), r"of shape \(2, 2\) .* are needed"),
], ids=["shape", "type", "nan", "negative", "sparse"])
def test_callables_are_checked(wrong, words):
    with pytest.raises(ValueError, match=words):
        gram_rows(Kernel(wrong), points(20), N)


def test_precomputed():
    X = points(30)
    K = X @ X.T
    assert np.shares_memory(gram_rows(Kernel("precomputed"), K, 30).arrays, K)
    for given in (K.astype(np.float32), sparse.csr_array(K), K.tolist()):
        assert np.allclose(gram_rows(Kernel("precomputed"), given, 30, offset=4.0).arrays, K + 4.0, atol=1e-5)
    kernel, C = Kernel("precomputed"), np.random.default_rng(0).standard_normal((3, 2))
    support = take_support(kernel, K, [2, 9, 4])
    assert support.tolist() == [2, 9, 4]
    assert np.allclose(kernel_scores(kernel, K[:5], support, C, offset=1.0), (K[:5, [2, 9, 4]] + 1.0) @ C)
    assert np.allclose(kernel_scores(kernel, sparse.csr_array(K[:5]), support, C), K[:5, [2, 9, 4]] @ C)
    with pytest.raises(ValueError, match="X has 9 columns"):
        kernel_scores(kernel, K[:5, :9], support, C)


@pytest.mark.parametrize("change, words", [
    (lambda K: K[:, :-1], "needs a square matrix"),
    (lambda K: K + np.eye(len(K), k=1), "not symmetric: the kernel of rows 0 and 1"),
    (lambda K: np.where(np.eye(len(K)), np.nan, K), "nan: values must be finite"),
    (lambda K: K - 1e3 * np.eye(len(K)), "row 0 with itself .* not positive semidefinite"),
], ids=["shape", "asymmetric", "nan", "indefinite"])
def test_wrong_matrices_are_refused(change, words):
    X = points(10)
    with pytest.raises(ValueError, match=words):
        gram_rows(Kernel("precomputed"), change(X @ X.T), 10)


def test_refusals():
    with pytest.raises(ValueError, match="kernel = 'cubic' is not allowed: give linear"):
        Kernel("cubic")
    with pytest.raises(ValueError, match=r"kernel of row 0 with itself is -0\.9\d*, below 0"):
        gram_rows(Kernel("sigmoid", gamma=0.1, coef0=-3.0), points(10), N)
    with pytest.raises(ValueError, match="not finite: scale the features"):
        gram_rows(Kernel("poly", gamma=1e3, degree=900), points(10), N)
    with pytest.raises(MemoryError, match=r"kernel rows of .* GiB, the machine has .*smaller cache \(-m\)"):
        gram_rows(Kernel("linear"), sparse.csr_array((400_000, 1)), 1, cache=1e9)


def problem_of(rows, y, k=2, weights=None):
    m = rows.m
    return Problem(rows, y.astype(np.int32), k, np.ones(m) if weights is None else weights, np.ones(m))


def run_of(**given):
    return Run(**{"tol": 1e-3, "algorithm": "auto", "max_iter": 20_000, "time_limit": None, "seed": 0, "threads": 1,
                  **given})


def fitted(name, rows, y, k=2, given=(), **run):
    method = registry.get(name)
    params = {p.name: p.default for p in method.params} | dict(given)
    solution = method.fit(problem_of(rows, y, k), params, run_of(**run))
    return solution._replace(weights=np.asarray(solution.weights))


BINARY = [name for name, method in registry.methods().items()
          if method.kernels and not method.joint and not method.one_class and "cd" in method.routes]
JOINT = [(name, given) for name, given in (("mcodm", {}), ("mcodm", {"mu": 0.0}), ("mcodm", {"outer": "paper"}),
                                           ("cs", {}))]


def dense_rows(X, bias):
    return Rows.from_dense(X, bias)


@pytest.mark.parametrize("algorithm", ["cd", "accelerated"])
@pytest.mark.parametrize("name", BINARY)
def test_binary_methods_give_their_linear_scores(name, algorithm):
    """With duplicates, an empty row and a singular K; the bias feature as a constant in the kernel."""
    X = points(80)
    y = (X[:, 0] + 0.3 * X[:, 1] > 0.2).astype(np.int32)
    y[6] = 1 - y[5]
    given = {"C": 2.0} | ({"lambda1": 4.0, "lambda2": 2.0} if name == "ldm" else {})
    # The accelerated ldm, linear too, comes no nearer than 3e-11.
    tol = 1e-10 if (name, algorithm) == ("ldm", "accelerated") else 1e-12
    Z = np.hstack([X, np.full((80, 1), 0.5)])
    norms = np.linalg.norm(Z, axis=1)
    K = Z @ Z.T
    linear = fitted(name, dense_rows(X, 0.5), y, given=given, tol=tol, algorithm=algorithm)
    for rows in (gram_rows(Kernel("linear"), X, N, offset=0.25), gram_rows(Kernel("precomputed"), K, 80)):
        gram = fitted(name, rows, y, given=given, tol=tol, algorithm=algorithm)
        assert gram.weights.shape == (80, 1)
        assert gram.info.status == linear.info.status == "converged"
        # ||w - w*||^2 <= 2 gap, for both.
        near = norms * sum(math.sqrt(2 * max(fit.info.certificate, 0.0)) for fit in (linear, gram)) + 1e-7
        assert (np.abs(K @ gram.weights - Z @ linear.weights)[:, 0] <= near).all()
        assert gram.info.objective == pytest.approx(linear.info.objective, rel=1e-9)
        assert gram.info.certificate >= -1e-12 * abs(gram.info.objective)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name, given", JOINT, ids=str)
def test_joint_methods_give_their_linear_scores(name, given, k):
    X = points(80)
    y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [0.2, 0.9][:k - 1]).astype(np.int32)
    # The fixed-point iteration of outer=paper ends at the cap of its outer iterations, wherever it is: by sweeps, which
    # are the same over both.
    way = "accelerated" if "outer" in given else "auto"
    # ||W - W*||^2 <= 2 gap: the linear cs comes no nearer than this gap makes it.
    tol, near = (1e-6, 1e-3) if "outer" in given else (1e-13 if name == "cs" else 1e-12, 1e-6)
    linear = fitted(name, dense_rows(X, -1.0), y, k, given=given, tol=tol, algorithm=way)
    rows = gram_rows(Kernel("linear"), X, N)
    gram = fitted(name, rows, y, k, given=given, tol=tol, algorithm=way)
    assert gram.weights.shape == (80, k)
    assert gram.info.objective == pytest.approx(linear.info.objective, rel=1e-2 * near)
    # Each is within sqrt(2 certificate) of the optimum, which for a convex problem is one.
    if "outer" not in given:
        apart = sum(np.sqrt(2 * max(0, side.info.certificate)) for side in (linear, gram))
        near = max(near, apart * np.linalg.norm(X, axis=1).max())
        assert near < 1e-4
    assert np.allclose(rows.arrays @ gram.weights, X @ linear.weights, atol=near)


@pytest.mark.parametrize("C", [1.0, 1e3])
def test_hinge_objective_by_its_formula(C):
    """1/2 c'Kc and a sum of losses; the certificate of the duals, c_i y_i in [0, C]; only support vectors stay."""
    X = points(150)
    y = ((X**2).sum(axis=1) > 4).astype(np.int32)
    rows = gram_rows(KERNELS["rbf"], X, N)
    K, sign = rows.arrays, np.where(y == 1, 1.0, -1.0)
    for algorithm in ("cd", "accelerated"):
        found = fitted("l1svc", rows, y, given={"C": C}, tol=1e-6, algorithm=algorithm)
        c = found.weights[:, 0]
        norm, hinge = c @ K @ c, np.maximum(0, 1 - sign * (K @ c)).sum()
        info = found.info
        assert info.status == "converged"
        assert info.objective == pytest.approx(norm / 2 + C * hinge, rel=1e-10)
        duals = np.asarray(found.state["duals"])
        assert (duals >= 0).all()
        assert (duals <= C).all()
        u = sign * duals
        assert info.bound == pytest.approx(duals.sum() - u @ K @ u / 2, rel=1e-10)
        assert info.certificate <= allowance(1e-6, info.objective)
        assert info.n_support == (duals != 0).sum()
        assert np.array_equal(c, u)
        assert (c != 0).sum() == info.n_support < 150


@pytest.mark.parametrize("name, k", [("l1svc", 2), ("cs", 3)])
@pytest.mark.parametrize("C", [0.3, 30.0])
def test_support_vectors_are_the_rows_with_a_dual(name, k, C):
    """At the tolerance that users have, where weights around a centre have more coefficients."""
    X = points(400)
    y = np.digitize((X**2).sum(axis=1), [3.5] if k == 2 else [2, 5]).astype(np.int32)
    for algorithm in ("cd", "accelerated", "auto", *["newton"] * (name == "cs")):
        found = fitted(name, gram_rows(KERNELS["rbf"], X, N), y, k, given={"C": C}, algorithm=algorithm)
        assert found.info.status == "converged"
        assert found.weights.any(axis=1).sum() == found.info.n_support < 400


def test_crammer_singer_objective_by_its_formula():
    X = points(120)
    y = np.digitize((X**2).sum(axis=1), [2, 5]).astype(np.int32)
    rows = gram_rows(KERNELS["rbf"], X, N)
    found = fitted("cs", rows, y, 3, given={"C": 3.0}, tol=1e-7)
    K, C = rows.arrays, found.weights
    scores = K @ C
    own = scores[np.arange(120), y]
    rival = np.where(np.arange(3) == y[:, np.newaxis], -np.inf, scores).max(axis=1)
    wanted = (C * (K @ C)).sum() / 2 + 3.0 * np.maximum(0, 1 - own + rival).sum()
    assert found.info.objective == pytest.approx(wanted, rel=1e-10)
    assert found.info.status == "converged"


CACHED = [("l1svc", {"C": 10.0}, 2), ("l2svc", {}, 2), ("ldm", {"lambda1": 10.0}, 2), ("cs", {}, 3), ("mcodm", {}, 3),
          ("mcodm", {"outer": "paper"}, 3)]


@pytest.mark.parametrize("algorithm", ["cd", "accelerated"])
@pytest.mark.parametrize("name, given, k", CACHED, ids=str)
def test_a_cache_changes_no_bit(name, given, k, algorithm):
    X = points(400)
    y = np.digitize((X**2).sum(axis=1), [3.5] if k == 2 else [2, 5]).astype(np.int32)
    whole = gram_rows(KERNELS["rbf"], X, N)
    cached = gram_rows(KERNELS["rbf"], X, N, cache=0.3)
    assert whole.shared
    assert not cached.shared
    left, right = (fitted(name, rows, y, k, given=given, algorithm=algorithm, max_iter=60) for rows in (whole, cached))
    assert np.array_equal(left.weights, right.weights)
    left, right = (side._replace(info=side.info._replace(seconds=0, history=())) for side in (left, right))
    assert left.info == right.info


def test_select_makes_rows_of_a_part():
    X, which = points(300), np.array([5, 299, 4, 17, 80])
    wanted = values(KERNELS["rbf"], X[which], X[which])
    cached = gram_rows(KERNELS["rbf"], X, N, cache=0.2)
    for rows in (gram_rows(KERNELS["rbf"], X, N), cached):
        part = rows.select(which)
        part.complete()
        assert np.allclose(part.arrays, wanted, rtol=1e-12, atol=1e-12)
    assert not cached.select(np.arange(250)).shared


def test_parts_stay_where_there_is_room():
    X, first, second = points(300), np.arange(100), np.arange(50, 150)
    rows = kernels.gram_rows(KERNELS["rbf"], X, N, room=4 * 100 * 200)
    part = rows.select(first)
    assert rows.select(first) is part
    with part.cache() as cache:
        assert cache.capacity == 100
    assert part.held_bytes == 4 * 100 * 100
    # A quarter is left for those that go.
    assert rows.select(second) is not rows.select(second)
    assert rows.select(second).room == 4 * 100 * 100
    once = kernels.gram_rows(KERNELS["rbf"], X, N)
    assert once.select(first) is not once.select(first)


@pytest.mark.parametrize("name, k", [("l1svc", 2), ("cs", 3)])
def test_interrupted_while_rows_are_made(name, k):
    X = points(300)
    y = np.digitize(X[:, 0], [0.0, 1.0][:k - 1]).astype(np.int32)
    asked = []

    def slow(A, B):
        asked.append(len(A))
        if len(asked) == 40:
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
        if len(asked) >= 40:
            threading.Event().wait(0.03)
        return A @ B.T

    rows = gram_rows(Kernel(slow), X, N, cache=0.2)
    assert not rows.shared
    with pytest.raises(KeyboardInterrupt):
        fitted(name, rows, y, k, tol=1e-9)
    assert 40 <= len(asked) < 50


def test_a_function_that_is_not_symmetric_is_refused():
    """Found by hand: it was trained on, and called converged."""
    X = points(90)
    with pytest.raises(ValueError, match=r"^kernel is not symmetric: the kernel of rows 0 and 1 is .* other way round"):
        gram_rows(Kernel(lambda A, B: (A @ B.T) * np.arange(1, len(B) + 1)), X, N)
    with pytest.raises(ValueError, match=r"^kernel of row 0 with itself is not finite"):
        gram_rows(Kernel(lambda A, B: np.full((len(A), len(B)), np.nan)), X, N)
