import numpy as np
import pytest

from marginlinear._core.cholesky import add_product, factor, substitute, substitute_columns


def panels(Z):
    """The columns of Z in panels of 8."""
    n, d = Z.shape
    padded = np.zeros((n, -(-d // 8) * 8))
    padded[:, :d] = Z
    return np.ascontiguousarray(padded.reshape(n, -1, 8).transpose(1, 0, 2))


@pytest.mark.parametrize("d", [1, 7, 8, 65, 150])
@pytest.mark.parametrize("n", [1, 3, 128, 300])
def test_product_is_that_of_numpy(d, n):
    Z = np.random.default_rng(d).normal(size=(n, d))
    total = np.zeros((d + 2, d + 2))
    add_product(total, 2, panels(Z), n, -1.0, 1)
    np.testing.assert_allclose(np.tril(total[2:, 2:]), -np.tril(Z.T @ Z), rtol=1e-12, atol=1e-12)
    assert not total[:2].any()
    assert not total[:, :2].any()


@pytest.mark.parametrize("d", [1, 8, 63, 64, 65, 200])
def test_solution_is_that_of_numpy(d):
    rng = np.random.default_rng(d)
    Z, b = rng.normal(size=(2 * d, d)), rng.normal(size=d)
    H = Z.T @ Z + np.eye(d)
    L = H.copy()
    assert factor(L, 1)
    np.testing.assert_allclose(np.tril(L) @ np.tril(L).T, H, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(substitute(L, b), np.linalg.solve(H, b), rtol=1e-8, atol=1e-12)
    columns = rng.normal(size=(d, 3))
    wanted = np.linalg.solve(H, columns)
    substitute_columns(L, columns)
    np.testing.assert_allclose(columns, wanted, rtol=1e-8, atol=1e-12)


def test_any_number_of_threads_gives_the_same_bits():
    Z = np.random.default_rng(0).normal(size=(400, 300))
    found = []
    for threads in 1, 2, 5:
        H = np.zeros((300, 300))
        add_product(H, 0, panels(Z), 400, 1.0, threads)
        H.flat[::301] += 1
        assert factor(H, threads)
        found.append(H)
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


@pytest.mark.parametrize("bad", [0, 100])
@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan])
def test_what_is_not_positive_definite_comes_back_but_for_its_diagonal(bad, value):
    Z = np.random.default_rng(0).normal(size=(200, 150))
    H = Z.T @ Z
    H[bad] = H[:, bad] = 0
    H[bad, bad] = value
    given = H.copy()
    assert not factor(H, 1)
    np.fill_diagonal(H, np.diag(given))
    np.testing.assert_array_equal(H, given)
