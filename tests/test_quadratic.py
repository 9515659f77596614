"""Models whose curvature is a matrix: their least values by SciPy."""

import numpy as np
import pytest
from scipy import optimize

from marginlinear._core.quadratic import extrapolated, least, on_signs


def model(n, rank, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(rank, n)) * 10.0 ** rng.uniform(-1, 1, n)
    kinks = np.where(np.arange(n) == n - 1, 0.0, rng.uniform(0.1, 3.0, n))
    return A.T @ A + 1e-9 * np.eye(n), A.T @ rng.normal(size=rank), rng.normal(size=n) * (rng.random(n) < 0.5), kinks


def value(H, slope, w, kinks, v):
    return slope @ v + 0.5 * v @ H @ v + kinks @ abs(w + v)


@pytest.mark.parametrize("n, rank", [(1, 3), (6, 20), (40, 60), (40, 15)])
def test_least(n, rank):
    """Also of matrices that are nearly singular. SciPy has u = a - b with a, b >= 0."""
    for seed in range(5):
        H, slope, w, kinks = model(n, rank, seed)
        v, _ = least(H, slope, w, kinks, 1e-9)
        residual, new = slope + H @ v, w + v
        off = np.where(new == 0, np.maximum(0, abs(residual) - kinks), abs(residual + kinks * np.sign(new)))
        assert off.sum() <= 1e-8

        def parts(x, H=H, slope=slope, w=w, kinks=kinks):
            new = x[:n] - x[n:]
            r = slope + H @ (new - w)
            return (slope @ (new - w) + 0.5 * (new - w) @ H @ (new - w) + np.r_[kinks, kinks] @ x,
                    np.r_[r + kinks, kinks - r])

        found = optimize.minimize(parts, np.r_[np.maximum(w, 0), np.maximum(-w, 0)], jac=True, method="L-BFGS-B",
                                  bounds=[(0, None)] * (2 * n), options={"maxiter": 20000, "maxfun": 50000}).fun
        assert value(H, slope, w, kinks, v) <= found + 1e-7 * max(1.0, abs(found))


def test_weights_keep_their_signs_or_come_to_0():
    H, slope, w, kinks = model(30, 40, 3)
    change, residual = on_signs(H, slope, w, kinks, np.zeros(30))
    assert value(H, slope, w, kinks, change) < value(H, slope, w, kinks, np.zeros(30))
    assert np.allclose(residual, slope + H @ change, rtol=1e-10, atol=1e-10)
    costly = kinks > 0
    assert ((w + change)[costly] * w[costly] >= 0).all() and ((w + change)[w == 0] == 0).all()


def test_extrapolation_of_a_linear_iteration_is_its_limit():
    rng = np.random.default_rng(0)
    step, target = 0.9 * np.linalg.qr(rng.normal(size=(3, 3)))[0], rng.normal(size=3)
    trail = [(np.zeros(3), np.zeros(3))]
    for _ in range(5):
        x = target + step @ (trail[-1][0] - target)
        trail.append((x, 2 * x))
    best = extrapolated(trail, lambda v, image: ((v - target) ** 2).sum())
    assert np.allclose(best[0], target, atol=1e-4) and np.allclose(best[1], 2 * best[0])
    assert extrapolated(trail, lambda v, image: 0.0) is trail[-1]
