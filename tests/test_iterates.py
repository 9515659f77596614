"""The vectors of the accelerator against their formulas in NumPy."""

import numpy as np
import pytest

from marginlinear._core.iterates import Iterates


class Plain:
    """math.md 9.1 and 9.2, with X stored."""

    def __init__(self, W, kappa):
        self.V, self.z, self.X, self.W = W.copy(), W.copy(), W.copy(), W.copy()
        self.U = W.copy()
        self.mean, self.mean_W = np.zeros_like(W), np.zeros_like(W)
        self.kappa = kappa

    def move(self, change):
        """The duals change U by `change`."""
        self.U = self.U + change
        self.W = (self.kappa * self.V + self.U) / (1 + self.kappa)

    def average(self, weight, A, a):
        self.mean += weight * (self.U - self.mean)
        self.mean_W += weight * (self.W - self.mean_W)
        self.z = ((1 + A) * self.z + a * self.U) / (1 + A + a)
        return (self.V - self.W) @ (self.W - self.X)

    def recentre(self, kappa, A, a, restart):
        if restart:
            self.z = self.W.copy()
        self.X = self.W.copy()
        self.V = (A * self.W + a * self.z) / (A + a)
        self.kappa = kappa
        self.W = (kappa * self.V + self.U) / (1 + kappa)


@pytest.mark.parametrize("size", [1, 6, 7])
def test_outer_steps(size):
    rng = np.random.default_rng(size)
    ours = Iterates(size)
    ours.W[:] = rng.standard_normal(size)
    kappa, A, a = 4.0, 0.0, 0.25
    theirs = Plain(ours.W, kappa)
    ours.start(kappa)
    for step in range(12):
        change = rng.standard_normal(size)
        ours.W[:] += change / (1 + kappa)
        theirs.move(change)
        assert np.allclose(ours.W, theirs.W)
        assert ours.sqnorm() == pytest.approx(theirs.W @ theirs.W)
        assert ours.dual_sqnorm() == pytest.approx(theirs.U @ theirs.U)
        assert ours.sqdistance() == pytest.approx(((theirs.W - theirs.V) ** 2).sum())
        weight = a / (A + a) if step else 1.0
        turn, true_turn = ours.average(weight, A, a), theirs.average(weight, A, a)
        assert abs(true_turn) < 1e-9 or (turn > 0) == (true_turn > 0)
        assert np.allclose(ours.averaged, theirs.mean_W)
        assert ours.averaged_sqnorm() == pytest.approx(theirs.mean @ theirs.mean)
        A += a
        restart = step % 5 == 4
        kappa *= 1.3 if step % 2 else 0.8
        if restart:
            A = 0.0
        a = ((1 + A) + np.sqrt((1 + A) ** 2 + 4 * kappa * A * (1 + A))) / (2 * kappa)
        ahead, before = ours.recentred(kappa, A, a, restart), ours.W.copy()
        assert ours.W.tobytes() == before.tobytes()
        ours.recentre(kappa, A, a, restart)
        assert ours.W.tobytes() == ahead.tobytes()
        theirs.recentre(kappa, A, a, restart)
        assert np.allclose(ours.W, theirs.W)
        assert ours.kappa == kappa
    ours.plain()
    assert ours.kappa == 0
    assert np.allclose(ours.W, theirs.U)
    assert ours.dual_sqnorm() == pytest.approx(theirs.U @ theirs.U)
    assert ours.sqdistance() == 0


@pytest.mark.parametrize("kappa", [0.0, 3.0])
def test_resume(kappa):
    """W beside duals whose weights are U: the centre is where W = (kappa V + U)/(1 + kappa)."""
    rng = np.random.default_rng(8)
    W, U = rng.standard_normal(5), rng.standard_normal(5)
    ours = Iterates(5)
    ours.resume(W, U, kappa)
    assert np.allclose(ours.W, W)
    assert ours.dual_sqnorm() == pytest.approx(U @ U)
    ours.plain()
    assert np.allclose(ours.W, U)


def test_resume_of_plain_sweeps_needs_no_centre():
    W = np.arange(4.0)
    ours = Iterates(4)
    ours.resume(W, W, 0.0)
    assert ours.kappa == 0
    assert np.array_equal(ours.W, W)


def test_adopt():
    """U = U_avg about the centre W_avg."""
    rng = np.random.default_rng(3)
    ours = Iterates(5)
    ours.W[:] = rng.standard_normal(5)
    ours.start(2.0)
    U, W = [], []
    for step in range(3):
        ours.W[:] += rng.standard_normal(5)
        V = ours.W.copy()
        ours.plain()
        U.append(ours.W.copy())
        ours.resume(V, U[-1], 2.0)
        W.append(V)
        ours.average(1 / (step + 1), 0.0, 1.0)
    ours.adopt()
    assert np.allclose(ours.averaged, np.mean(W, axis=0))
    assert np.allclose(ours.W, (2 * np.mean(W, axis=0) + np.mean(U, axis=0)) / 3)
    ours.plain()
    assert np.allclose(ours.W, np.mean(U, axis=0))


@pytest.mark.parametrize("paired", [False, True])
def test_factors(paired):
    """Products with b; a change of b leaves U, and the weights of the centre and of the averages."""
    rng = np.random.default_rng(0)
    n, k, b, other = 4, 3, np.array([0.5, 2.0, 1.0]), np.array([1.5, 1e-9, 0.25])
    ours = Iterates((2 if paired else 1) * n * k, paired, b.copy())

    def squares(x):
        table = x.reshape(-1, k)
        return (table[:n] * table[-n:]).sum(axis=0)

    W = rng.standard_normal(ours.W.shape)
    ours.W[:] = W
    assert np.allclose(ours.class_sqnorms(), squares(W))
    assert ours.sqnorm() == pytest.approx(b @ squares(W))
    ours.start(3.0)
    step = rng.standard_normal(W.shape)
    ours.W[:] += step / 4
    U, V, now = W + step, W, W + step / 4
    assert np.allclose(ours.dual_class_sqnorms(), squares(U))
    assert ours.sqdistance() == pytest.approx(b @ squares(now - V))
    # X = V at A = 0.
    assert ours.average(1.0, 0.0, 1 / 3) == pytest.approx(b @ squares(V - now) * -1)
    averaged = ours.averaged.copy()
    ours.change_factors(other)
    ratio = np.tile(b / other, len(W) // k)
    assert np.allclose(ours.W, (3 * ratio * V + U) / 4)
    assert np.allclose(ours.dual_class_sqnorms(), squares(U))
    assert np.allclose(ours.averaged, ratio * averaged)
    assert np.allclose(ours.averaged_class_sqnorms(), squares(U))
    weights = rng.standard_normal(W.shape)
    kept, now = weights.copy(), ours.W.copy()
    ours.exchange(weights)
    assert np.allclose(weights, now * np.tile(other, len(W) // k))
    assert np.allclose(ours.W * np.tile(other, len(W) // k), kept)
