"""Sums in one order against NumPy."""

import numpy as np
import pytest

from marginlinear._core.vector import dot, total


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 5000])
@pytest.mark.parametrize("step", [1, 2])
def test_sums(size, step):
    rng = np.random.default_rng(size)
    x, y = rng.normal(size=(2, size * step))[:, ::step]
    assert total(x) == pytest.approx(x.sum(), rel=1e-12, abs=1e-12)
    assert dot(x, y) == dot(x, np.append(y, 1.0)) == pytest.approx(x @ y, rel=1e-12, abs=1e-12)
    with pytest.raises(ValueError, match=f"dot: {size + 1} and {size} numbers"):
        dot(np.append(x, 1.0), y)


def test_parts_are_added_one_by_one():
    """The order decides the bits of models."""
    x, y = np.random.default_rng(0).normal(size=(2, 5000))
    for found, terms in ((total(x), x), (dot(x, y), x * y)):
        whole = 0.0
        for start in range(0, 5000, 1024):
            part = 0.0
            for term in terms[start:start + 1024].tolist():
                part += term
            whole += part
        assert found == whole
    assert total(np.broadcast_to(2.5, 4)) == 10
