"""The sub-problems of a row against slow oracles, and the generator against its published numbers."""

from fractions import Fraction

import numpy as np
import oracles
import pytest


def spread(rng, low=-6, high=6):
    return 10.0 ** rng.uniform(low, high)


def block(seed):
    """(B, y, A): k = 2..7, sizes of 1e-6 to 1e6, with ties and zeros."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 8))
    B = rng.standard_normal(k) * spread(rng)
    if seed % 3 == 0:
        B = np.round(B / abs(B).max() * 2) * spread(rng)  # ties
    if seed % 4 == 1:
        B[rng.random(k) < 0.5] = 0
    if seed % 11 == 0:
        B[:] = 0
    A = 1e-12 if seed % 5 == 4 else spread(rng)
    return rng, B, int(rng.integers(k)), A


def assert_feasible(a, y, cap=np.inf):
    assert np.isfinite(a).all()
    assert (np.delete(a, y) <= 0).all()
    assert 0 <= a[y] <= cap
    assert abs(a.sum()) <= 1e-14 * len(a) * a[y]


@pytest.mark.parametrize("low, high", [(-6, 6), (-1, 1)])
def test_threshold(kernels, low, high):
    for seed in range(200):
        rng = np.random.default_rng(seed)
        values = rng.standard_normal(int(rng.integers(1, 9))) * spread(rng, low, high)
        if seed % 3 == 0:
            values[:] = values[0]
        Q = 0.0 if seed % 4 == 0 else spread(rng, low, high)
        P = -spread(rng, low, high) if Q == 0 else rng.standard_normal() * spread(rng, low, high)
        nu = kernels.threshold(values, P, Q)
        excess = np.maximum(0, values - nu).sum()
        size = abs(Q * nu) + abs(P) + abs(values).sum() + len(values) * abs(nu)
        assert abs(Q * nu - P - excess) <= 1e-14 * size


def rounding(B, A):
    """What the oracles' 60 digits leave where the best value is 0."""
    return Fraction(float(abs(B).max())) ** 2 / Fraction(float(A)) / 10**40


def check_squared(kernels, B, y, A, q, upper, r, F):
    a, b = kernels.solve_squared_block(B, y, A, q, upper, r, F)
    assert_feasible(a, y)
    assert b >= 0 and np.isfinite(b)
    best_a, best_b = oracles.least_squared_block(B, y, A, q, upper, r, F)
    value, _ = oracles.squared_block_value(a, b, B, y, A, q, upper, r, F)
    best, size = oracles.squared_block_value(best_a, best_b, B, y, A, q, upper, r, F)
    assert value - best <= 1e-12 * size + rounding(B, A), (float(value), float(best))
    return b


def test_squared_block_without_upper_loss(kernels):
    for seed in range(150):
        rng, B, y, A = block(seed)
        check_squared(kernels, B, y, A, spread(rng) if seed % 6 else 1e-12, -1.0, -1, 0.0)


@pytest.mark.parametrize("named", [True, False], ids=["named rival", "fixed reference"])
def test_squared_block_with_upper_loss(kernels, named):
    active = 0
    for seed in range(200):
        rng, B, y, A = block(seed)
        q = spread(rng) if seed % 6 else 1e-12  # a huge c
        upper = q * (1e12 if seed % 7 == 3 else spread(rng, 0, 3))  # mu -> 0, or 1 down to 1e-3
        r = int(rng.choice(np.delete(np.arange(len(B)), y))) if named else -1
        if named:
            # F - (B_r - B_y) is the width of the band of margins without loss.
            F = B[r] - B[y] + seed % 3 * spread(rng)
        else:
            F = rng.standard_normal() * (spread(rng) if seed % 2 else max(abs(B).max(), 1e-6))
        active += check_squared(kernels, B, y, A, q, upper, r, F) > 0
    assert active > 50


def test_upper_loss_fades_with_mu(kernels):
    """mu -> 0: b -> 0, and a -> the answer without an upper loss."""
    for seed in range(20):
        rng, B, y, A = block(seed)
        r = int(rng.choice(np.delete(np.arange(len(B)), y)))
        without, _ = kernels.solve_squared_block(B, y, A, 0.5)
        F = B[r] - B[y] + 1e-3
        a, b = kernels.solve_squared_block(B, y, A, 0.5, 1e30, r, F)
        assert b <= (abs(F) + 2 * A * abs(without).max()) / 1e30 * (1 + 1e-9)
        assert abs(a - without).max() <= 1e-9 * abs(without).max()


def test_rival_and_upper_dual_are_never_both_used(kernels):
    for seed in range(100):
        rng, B, y, A = block(seed)
        r = int(rng.choice(np.delete(np.arange(len(B)), y)))
        a, b = kernels.solve_squared_block(B, y, A, 0.3, 0.4, r, B[r] - B[y] + 0.01)
        assert b == 0 or a[r] == 0


def test_hinge_block(kernels):
    capped = 0
    for seed in range(300):
        rng, B, y, A = block(seed)
        cap = 1e12 if seed % 9 == 5 else spread(rng)
        a = kernels.solve_hinge_block(B, y, A, cap)
        assert_feasible(a, y, cap)
        best, size = oracles.hinge_block_value(oracles.least_hinge_block(B, y, A, cap), B, A)
        value, _ = oracles.hinge_block_value(a, B, A)
        assert value - best <= 1e-12 * size + rounding(B, A), (seed, float(value), float(best))
        capped += a[y] == cap
    assert 50 < capped < 250


def assert_least(a, y, v, A, E, G, h):
    """a has the least A/2 ||x||^2 + E/2 (sum x)^2 - v.x, x = -a without a_y, among x >= 0, G x <= h."""
    x, n = -np.delete(a, y), len(v)
    assert np.isfinite(a).all() and (x >= 0).all()
    assert abs(a.sum()) <= 1e-14 * n * a[y]
    # In units of the caps and of the values, in which the oracle has all its digits.
    size = h.max()
    assert (G @ x - h).max() <= 1e-13 * size
    H = (A * np.eye(n) + E) * size**2
    scale = abs(H).max() + abs(v * size).max()
    best, _ = oracles.convex_qp(H / scale, -v * size / scale, np.vstack([G, -np.eye(n)]),
                                np.append(h / size, np.zeros(n)))

    def value(z):
        return 0.5 * z @ H @ z - size * v @ z

    assert value(x / size) - value(best) <= 1e-9 * scale


def block_for_caps(seed):
    rng, B, y, A = block(seed)
    B = B / max(abs(B).max(), 1e-300)
    A, cap = spread(rng, -3, 3), spread(rng, -3, 3)
    return rng, B, y, A, cap, 0.0 if seed % 3 == 1 else A


def test_top_block(kernels):
    ends = set()
    for seed in range(400):
        rng, B, y, A, cap, E = block_for_caps(seed)
        n = len(B) - 1
        v, K = np.delete(B, y) - B[y], int(rng.integers(1, n + 2))
        a = kernels.solve_top_block(B, y, A, E, cap, K)
        within = (K - 1) * np.eye(n) - 1
        G = np.vstack([K * np.eye(n), np.ones(n), *([within] if K > 1 else [])])
        assert_least(a, y, v, A, E, G, np.concatenate([np.full(n + 1, cap), np.zeros(n if K > 1 else 0)]))
        if K == 1:
            assert np.allclose(a, kernels.solve_hinge_block(B, y, A, cap), rtol=1e-9, atol=1e-9 * cap) or E == 0
        share = a[y] / cap
        ends.add("none" if share == 0 else "all" if share == 1 else "kink" if abs(share * K - K + 1) < 1e-12 else
                 "low" if share * K < K - 1 else "high")
    assert ends == {"none", "all", "kink", "low", "high"}


def test_top_block_of_a_tiny_row(kernels):
    """Rounding leaves nothing of the differences: the duals still add up to the cap, each within its own."""
    for seed in range(50):
        _, B, y, _ = block(seed)
        for K in range(1, len(B)):
            a = kernels.solve_top_block(np.round(B / max(abs(B).max(), 1.0)) + (np.arange(len(B)) != y) * 3, y, 1e-30,
                                        1e-30, 0.7, K)
            assert a[y] == pytest.approx(0.7, rel=1e-14)
            assert (-np.delete(a, y)).max() <= 0.7 / K * (1 + 1e-14)


def test_sum_block(kernels):
    for seed in range(200):
        _, B, y, A, cap, E = block_for_caps(seed)
        n = len(B) - 1
        a = kernels.solve_sum_block(B, y, A, E, cap)
        assert_least(a, y, np.delete(B, y) - B[y], A, E, np.eye(n), np.full(n, cap))


def test_hinge_block_by_class(kernels):
    """Curvatures that differ by up to 1e9, as the floor of BlockCD's class factors lets them."""
    capped = 0
    for seed in range(400):
        rng, B, y, A = block(seed)
        A = A * 10.0 ** rng.uniform(-9 if seed % 2 else -1, 0, len(B))
        cap = 1e12 if seed % 9 == 5 else spread(rng)
        a = kernels.solve_hinge_block_by_class(B, y, A, cap)
        assert_feasible(a, y, cap)
        best, size = oracles.hinge_block_value(oracles.least_hinge_block_by_class(B, y, A, cap), B, A)
        value, _ = oracles.hinge_block_value(a, B, A)
        assert value - best <= 1e-12 * size + rounding(B, A.min()), (seed, float(value), float(best))
        capped += a[y] == cap
    assert 50 < capped < 350


def test_hinge_block_by_class_with_one_curvature(kernels):
    for seed in range(300):
        rng, B, y, A = block(seed)
        cap = spread(rng)
        a = kernels.solve_hinge_block_by_class(B, y, np.full(len(B), A), cap)
        assert np.allclose(a, kernels.solve_hinge_block(B, y, A, cap), rtol=1e-9, atol=1e-9 * cap)


def test_thresholds_that_rounding_moves_back_end(kernels):
    """Newton's steps for the threshold must end where it falls again in its last digit."""
    for seed in range(3000):
        rng = np.random.default_rng(seed)
        k = int(rng.integers(3, 12))
        B = rng.integers(-2, 3, k) + rng.standard_normal(k) * 1e-15
        kernels.solve_hinge_block_by_class(B, int(rng.integers(k)), 10.0 ** rng.uniform(-9, 0, k), 1.0)


def test_generator_is_splitmix64(kernels):
    """The numbers that the published C code of SplitMix64 prints for the seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
                16408922859458223821]
    assert kernels.rng_stream(1234567, 5).tolist() == expected


def test_below_is_uniform(kernels):
    for n in (1, 2, 3, 7, 1000, 2**31 + 1, 2**32 - 1):
        drawn = kernels.rng_below(n, n, 4000)
        assert drawn.max() < n
        # 4000 draws fall into eight parts of [0, n): five standard deviations of a binomial count.
        parts = min(n, 8)
        counts = np.bincount((drawn.astype(np.float64) * parts / n).astype(int), minlength=parts)
        share = np.diff(np.ceil(np.arange(parts + 1) * n / parts)) / n * 4000
        assert (abs(counts - share) <= 5 * np.sqrt(share) + 1e-9).all()


def test_shuffle_gives_each_permutation_its_turn(kernels):
    seen = {}
    for seed in range(2400):
        order = tuple(kernels.shuffled(np.arange(4), seed).tolist())
        assert sorted(order) == [0, 1, 2, 3]
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert all(50 <= count <= 150 for count in seen.values())
    assert kernels.shuffled(np.arange(100), 5).tolist() == kernels.shuffled(np.arange(100), 5).tolist()
