"""Smooth multi-class losses against their formulas in plain NumPy, and the derivatives by differences."""

import time

import numpy as np
import pytest
from scipy import sparse

from marginlinear._core.rows import Rows
from marginlinear._core.smooth import SmoothLoss

LOSSES = ["hinge", "logistic", "softmax"]


def problem(m=60, d=7, k=4, seed=0, bias=-1.0, scale=1.0):
    """X with zeros, empty rows and repeated rows, the last class empty when k > 2; costs with zeros; W."""
    rng = np.random.default_rng(seed)
    X = scale * rng.normal(size=(m, d)) * (rng.random((m, d)) < 0.6)
    X[1 % m] = 0
    X[-1] = X[0]
    X = X.astype(np.float32).astype(float)
    y = rng.integers(max(2, k - 1), size=m).astype(np.int32)
    cost = rng.uniform(0, 3, m)
    cost[m // 2 :: 7] = 0
    return X, y, cost, rng.normal(size=(d + (bias >= 0)) * k)


def rows_of(X, storage="csr", bias=-1.0):
    if "32" in storage:
        X = X.astype(np.float32)
    if storage.startswith("dense"):
        return Rows.from_dense(X, bias)
    A = sparse.csr_array(X)
    return Rows.from_csr(A.data, A.indices.astype(np.int32), A.indptr.astype(np.int64), X.shape[1], bias)


def with_bias(X, bias):
    return np.hstack([X, np.full((len(X), 1), bias)]) if bias >= 0 else X


def plain(X, y, k, cost, loss, width, W):
    """(F, gradient, sum of unrounded hinges, mass) by dense arrays."""
    m = len(y)
    scores = X @ W.reshape(-1, k)
    own = np.arange(k) == y[:, np.newaxis]
    x = scores - scores[np.arange(m), y][:, np.newaxis]
    if loss == "hinge":
        x = np.where(own, -np.inf, 1 + x)
        root = np.sqrt(x**2 + width**2)
        with np.errstate(invalid="ignore"):
            g = np.where(x > 0, (x + root) / 2, width**2 / 2 / (root + np.abs(x)))
            rho = np.where(own, 0, g / root)
        losses = g.sum(axis=1)
    elif loss == "logistic":
        losses = np.where(own, 0, np.logaddexp(0, x)).sum(axis=1)
        rho = np.where(own, 0, np.exp(-np.logaddexp(0, -x)))
    else:
        losses = np.logaddexp.reduce(x, axis=1)
        rho = np.where(own, 0, np.exp(x - losses[:, np.newaxis]))
    hinge = (cost * np.maximum(0, x).sum(axis=1)).sum()
    mass = (cost * rho.sum(axis=1)).sum()
    rho[own] = -rho.sum(axis=1)
    return (cost * losses).sum(), (X.T @ (cost[:, np.newaxis] * rho)).ravel(), hinge, mass


def run(f, W):
    out = np.full(len(W), np.nan)
    return f.value_and_gradient(W, out), out


def times(f, V):
    out = np.full(len(V), np.nan)
    f.product(V, out)
    return out


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("storage", ["csr", "csr32", "dense", "dense32"])
@pytest.mark.parametrize("bias", [-1.0, 0.0, 2.0])
@pytest.mark.parametrize("k", [2, 3, 7, 40])
def test_formulas(loss, storage, bias, k):
    X, y, cost, W = problem(k=k, bias=bias)
    for width in (1e-6, 1e-2, 1.0, 10.0):
        f = SmoothLoss(rows_of(X, storage, bias), y, k, cost, loss=loss, width=width)
        value, gradient = run(f, W)
        expected, slope, hinge, mass = plain(with_bias(X, bias), y, k, cost, loss, width, W)
        assert value == pytest.approx(expected, rel=1e-13)
        assert f.value(W) == value
        np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-13 * np.abs(slope).max())
        if loss == "hinge":
            assert f.hinge == pytest.approx(hinge, rel=1e-13)
            assert f.mass == pytest.approx(mass, rel=1e-13)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("k", [2, 3, 7, 40])
@pytest.mark.parametrize("storage", ["csr", "dense"])
def test_derivatives_by_differences(loss, k, storage):
    X, y, cost, W = problem(k=k, bias=1.0)
    rng = np.random.default_rng(1)
    f = SmoothLoss(rows_of(X, storage, 1.0), y, k, cost, loss=loss, width=0.3)
    other = SmoothLoss(rows_of(X, storage, 1.0), y, k, cost, loss=loss, width=0.3)
    _, gradient = run(f, W)
    h = 1e-5
    for _ in range(5):
        V = rng.normal(size=len(W))
        above, slope_above = run(other, W + h * V)
        below, slope_below = run(other, W - h * V)
        assert (above - below) / (2 * h) == pytest.approx(gradient @ V, rel=1e-7, abs=1e-6)
        product = times(f, V)
        np.testing.assert_allclose((slope_above - slope_below) / (2 * h), product, rtol=1e-5,
                                   atol=1e-7 * np.abs(product).max())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("width", [1e-6, 1e-3, 1.0, 10.0])
def test_hessian_is_symmetric_and_positive_semidefinite(loss, width):
    k = 3
    X, y, cost, W = problem(k=k)
    f = SmoothLoss(rows_of(X), y, k, cost, loss=loss, width=width)
    run(f, W)
    H = np.array([times(f, V) for V in np.eye(len(W))])
    size = np.abs(H).max()
    assert size > 0
    np.testing.assert_allclose(H, H.T, rtol=0, atol=1e-13 * size)
    assert np.linalg.eigvalsh(H).min() > -1e-13 * size
    # A common vector added to all classes is in its null space.
    common = np.repeat(np.random.default_rng(0).normal(size=X.shape[1]), k)
    assert np.abs(times(f, common)).max() <= 1e-13 * size * np.abs(common).max() * len(W)


@pytest.mark.parametrize("loss, storage", [("hinge", "csr"), ("softmax", "dense")])
def test_many_blocks_and_residuals_that_are_not_kept(loss, storage):
    """m k above 2^24 and m > d: blocks, a copy of W, and the product by a second pass."""
    m, d, k = 9000, 4, 2000
    X, y, cost, W = problem(m, d, k)
    f = SmoothLoss(rows_of(X, storage), y, k, cost, loss=loss, width=0.5)
    W0 = W.copy()
    value, gradient = run(f, W)
    some = np.random.default_rng(0).permutation(m)[:100]
    expected, slope = 0.0, np.zeros(d * k)
    for part in np.array_split(np.arange(m), 9):
        F, G, _, _ = plain(X[part], y[part], k, cost[part], loss, 0.5, W)
        expected, slope = expected + F, slope + G
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-12 * np.abs(slope).max())
    # The product is at the W and the width of the gradient's call, whatever becomes of both.
    small = SmoothLoss(rows_of(X[some], storage), y[some], k, cost[some], loss=loss, width=0.5)
    cost[np.setdiff1d(np.arange(m), some)] = 0
    run(f, W)
    run(small, W)
    W[:] = 7
    f.width = small.width = 3.0
    assert f.value(W) == pytest.approx(small.value(W), rel=1e-12)
    V = np.random.default_rng(2).normal(size=len(W))
    product = times(f, V)
    np.testing.assert_allclose(product, times(small, V), rtol=1e-9, atol=1e-12 * np.abs(product).max())
    f.width = 0.5
    run(f, W0)
    np.testing.assert_array_equal(product, times(f, V))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("storage", ["csr", "csr32", "dense"])
@pytest.mark.parametrize(("m", "d", "k"), [(3000, 30, 40), (1, 5, 3), (500, 2000, 17)])
def test_same_bits_for_any_number_of_threads(loss, storage, m, d, k):
    X, y, cost, W = problem(m, d, k, bias=1.0)
    V = np.random.default_rng(3).normal(size=len(W))
    results = []
    for threads in (1, 2, 8):
        f = SmoothLoss(rows_of(X, storage, 1.0), y, k, cost, loss=loss, width=0.1, threads=threads)
        value, gradient = run(f, W)
        results.append((value, f.value(W), f.hinge, f.mass, gradient.tobytes(), times(f, V).tobytes()))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("width", [1e-6, 1.0, 10.0])
def test_large_and_small_scores(loss, scale, width):
    X, y, cost, W = problem(k=5)
    W *= scale
    f = SmoothLoss(rows_of(X), y, 5, cost, loss=loss, width=width)
    with np.errstate(all="raise", under="ignore"):
        value, gradient = run(f, W)
        product = times(f, W)
    expected, slope, _, _ = plain(X, y, 5, cost, loss, width, W)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-12 * np.abs(slope).max())
    assert np.isfinite(product).all()


@pytest.mark.parametrize("storage", ["dense", "dense32"])
@pytest.mark.parametrize("k", [2, 3000])
def test_dense_rows_with_many_features(storage, k):
    """More than are multiplied at once."""
    X, y, cost, W = problem(40 if k > 2 else 40000, 150, k, bias=1.0)
    f = SmoothLoss(rows_of(X, storage, 1.0), y, k, cost, loss="softmax")
    value, gradient = run(f, W)
    expected, slope, _, _ = plain(with_bias(X, 1.0), y, k, cost, "softmax", 1, W)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-12 * np.abs(slope).max())


@pytest.mark.parametrize("loss", LOSSES)
def test_small_losses_keep_their_digits(loss):
    """Rows far on the right side: their losses are sums of tiny terms."""
    k = 4
    for own in (20.0, 200.0):
        W = np.array([own, 0.0, -1.0, -2.0])
        f = SmoothLoss(rows_of(np.ones((1, 1))), np.zeros(1, np.int32), k, np.ones(1), loss=loss, width=1e-3)
        value, gradient = run(f, W)
        x = W[1:] - own
        if loss == "hinge":
            # g(x) = width^2/(4 |x|) and rho = width^2/(4 x^2) to the first order.
            assert value == pytest.approx((0.25e-6 / -(1 + x)).sum(), rel=1e-6)
            np.testing.assert_allclose(gradient[1:], 0.25e-6 / (1 + x) ** 2, rtol=1e-6)
        else:
            assert value == pytest.approx(np.exp(x).sum(), rel=1e-8)
            np.testing.assert_allclose(gradient[1:], np.exp(x), rtol=1e-8)
        assert gradient[0] == pytest.approx(-gradient[1:].sum(), rel=1e-15)


@pytest.mark.parametrize("loss", LOSSES)
def test_facts(loss):
    """math.md 5: gradients sum to 0 over the classes, a common vector changes nothing, bounds of the rounding."""
    k = 6
    X, y, cost, W = problem(k=k, bias=1.0)
    rows, rng = rows_of(X, bias=1.0), np.random.default_rng(4)
    common = np.repeat(rng.normal(size=X.shape[1] + 1), k)
    for width in (1e-3, 0.1, 5.0):
        f = SmoothLoss(rows, y, k, cost, loss=loss, width=width)
        value, gradient = run(f, W)
        hinge, mass = f.hinge, f.mass
        size = np.abs(gradient).max()
        assert np.abs(gradient.reshape(-1, k).sum(axis=1)).max() < 1e-13 * size
        assert f.value(W + common) == pytest.approx(value, rel=1e-13)
        if loss == "hinge":
            assert 0 <= value - hinge <= width / 2 * (k - 1) * cost.sum()
            assert 0 <= mass <= (k - 1) * cost.sum()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("storage", ["csr", "dense"])
def test_costs_are_repeated_rows_and_classes_commute(loss, storage):
    k = 5
    X, y, _, W = problem(k=k)
    times_each = np.random.default_rng(5).integers(4, size=len(y))
    weighted = SmoothLoss(rows_of(X, storage), y, k, times_each.astype(float), loss=loss, width=0.1)
    repeated = np.repeat(np.arange(len(y)), times_each)
    plainly = SmoothLoss(rows_of(X[repeated], storage), y[repeated], k, np.ones(len(repeated)), loss=loss, width=0.1)
    order = np.random.default_rng(6).permutation(k)
    renamed = SmoothLoss(rows_of(X, storage), np.argsort(order)[y].astype(np.int32), k, times_each.astype(float),
                         loss=loss, width=0.1)
    value, gradient = run(weighted, W)
    twin, slope = run(plainly, W)
    third, turned = run(renamed, W.reshape(-1, k)[:, order].ravel())
    assert value == pytest.approx(twin, rel=1e-12) == pytest.approx(third, rel=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient.reshape(-1, k)[:, order].ravel(), turned, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(times(weighted, W), times(plainly, W), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("storage", ["csr", "csr32", "dense"])
def test_empty_data(storage):
    """No stored value, or no stored feature beside the bias: the loss of constant scores."""
    y = np.array([0, 2, 1], dtype=np.int32)
    for d in (0, 3):
        for bias in (-1.0, 2.0):
            W = np.arange(3.0 * (d + (bias >= 0)))
            f = SmoothLoss(rows_of(np.zeros((3, d)), storage, bias), y, 3, np.ones(3), loss="softmax")
            value, gradient = run(f, W)
            expected, slope, _, _ = plain(with_bias(np.zeros((3, d)), bias), y, 3, np.ones(3), "softmax", 1, W)
            assert value == pytest.approx(expected, rel=1e-14)
            np.testing.assert_allclose(gradient, slope, atol=1e-14)
            assert np.isfinite(times(f, W)).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_interrupt(threads, alarm_interrupts):
    rng = np.random.default_rng(0)
    m, d, k = 2000, 2000, 200
    rows = rows_of(rng.normal(size=(m, d)))
    f = SmoothLoss(rows, rng.integers(k, size=m).astype(np.int32), k, np.ones(m), loss="hinge", threads=threads)
    W, out = np.zeros(d * k), np.empty(d * k)
    alarm_interrupts(0.2)
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(100):
            f.value_and_gradient(W, out)
    assert time.perf_counter() - started < 0.7


def test_refused():
    rows, y, cost = rows_of(np.eye(3)), np.array([0, 1, 1], np.int32), np.ones(3)

    def refused(words, *args, **options):
        with pytest.raises(ValueError, match=words):
            SmoothLoss(*args, **{"loss": "hinge", **options})

    refused("Gram", Rows.from_gram(np.eye(3)), y, 2, cost)
    refused("loss = 'square'", rows, y, 2, cost, loss="square")
    refused("n_classes = 1 ", rows, y, 1, cost)
    refused("3 rows, 2 labels, 3 costs", rows, y[:2], 2, cost)
    refused("3 rows, 3 labels, 2 costs", rows, y, 2, cost[:2])
    refused("classes must be 0 to 1", rows, y + 1, 2, cost)
    refused("no rows", rows_of(np.zeros((0, 3))), y[:0], 2, cost[:0])
    for width in (0.0, -1.0, np.nan, np.inf, 1e-200):
        refused("width", rows, y, 2, cost, width=width)
    f = SmoothLoss(rows, y, 2, cost, loss="hinge")
    with pytest.raises(ValueError, match="width = 0"):
        f.width = 0
    with pytest.raises(RuntimeError, match="value_and_gradient first"):
        f.product(np.zeros(6), np.zeros(6))
    for W, out in ((np.zeros(5), np.zeros(6)), (np.zeros(6), np.zeros(7))):
        with pytest.raises(ValueError, match="shape"):
            f.value_and_gradient(W, out)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_curvature(loss, given):
    """Of one row with x = 1: the Hessian itself; in a basis, that between its columns."""
    rng = np.random.default_rng(0)
    k = 4
    y, cost = rng.integers(k, size=6).astype(np.int32), rng.uniform(0.5, 3, 6)
    engine = SmoothLoss(Rows.from_dense(np.ones((6, 1)), -1.0), y, k, cost, loss=loss)
    engine.value_and_gradient(rng.standard_normal(k), np.empty(k))
    H = rng.random((6, k)) * (np.arange(k) != y[:, np.newaxis]) if given else None
    basis = rng.standard_normal((k, k))

    def product(V, *basis):
        out = np.empty(k)
        if given:
            engine.weighted_product(H, V, out, *basis)
        else:
            engine.product(V, out, *basis)
        return out

    hessian = np.array([product(V) for V in np.eye(k)])
    curvature, traces = engine.curvature(H)
    assert np.allclose(curvature, hessian, rtol=1e-12)
    assert traces.sum() == pytest.approx(np.trace(hessian))
    assert np.allclose([product(V, basis) for V in np.eye(k)], basis.T @ hessian @ basis, rtol=1e-10)
