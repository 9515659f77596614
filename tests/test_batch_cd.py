"""The engine of binary problems over the same rows against that of one problem."""

import threading

import numpy as np
import pytest

from marginlinear._core.batch_cd import WIDTH, BatchMarginCD
from marginlinear._core.margin_cd import MarginCD, table_of
from marginlinear.data.arrays import as_rows
from marginlinear.methods.l1svc import HINGE
from marginlinear.methods.l2svc import SQUARED_HINGE
from marginlinear.threads import Cancelled

scipy_sparse = pytest.importorskip("scipy.sparse")


def engine(X, k=5, table=SQUARED_HINGE, classes=6, bias=-1.0, **others):
    rng = np.random.default_rng(3)
    rows = as_rows(X, bias)
    y = rng.integers(classes, size=rows.m).astype(np.int32)
    codes = rng.choice(np.array([-1, 1], dtype=np.int8), (classes, k))
    cost = rng.uniform(0.5, 2, rows.m)
    return BatchMarginCD(rows, y, codes, cost, table_of(*table), **others), rows, y, codes, cost


def data(m=300, n=40):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.3)
    X[7] = 0
    return X


@pytest.mark.parametrize("table", [HINGE, SQUARED_HINGE])
@pytest.mark.parametrize("k", [1, 3, WIDTH])
@pytest.mark.parametrize("form", ["dense64", "dense32", "csr64", "csr32"])
def test_values_are_those_of_single_problems(form, k, table):
    X = data().astype(np.float32 if form.endswith("32") else np.float64)
    X = scipy_sparse.csr_array(X) if form.startswith("csr") else X
    together, rows, y, codes, cost = engine(X, k, table, bias=0.5)
    for _ in range(3):
        together.sweep()
    primal, dual = together.primal(), together.dual()
    together.refresh()
    for at in range(k):
        single = MarginCD(rows, (codes[y, at] > 0).astype(np.int32), cost, [table_of(*table)])
        single.resume({"duals": together.duals[:, at].copy(), "cost": cost, "W": None, "kappa": 0.0})
        np.testing.assert_allclose(single.iterates.W, together.W[:, at], atol=1e-12)
        assert single.primal()[0] == pytest.approx(primal[at], rel=1e-12)
        assert single.dual() == pytest.approx(dual[at], rel=1e-12)
        assert dual[at] <= primal[at]


def test_the_first_sweep_is_exact_coordinate_steps():
    """Gaps and values as the rows were met: of one column they are those of the engine for one problem."""
    together, rows, y, codes, cost = engine(data(), 4)
    together.sweep()
    for at in range(4):
        single = MarginCD(rows, (codes[y, at] > 0).astype(np.int32), cost, [table_of(*SQUARED_HINGE)])
        single.sweep()
        assert np.asarray(single.duals) == pytest.approx(together.duals[:, at], abs=1e-12)
        assert single.gap == pytest.approx(together.gap[at])
        assert single.loss + single.iterates.sqnorm() / 2 == pytest.approx(together.objective_seen[at])


def test_retired_problems_stay():
    together, *_ = engine(data())
    together.sweep()
    W, duals = together.W.copy(), together.duals.copy()
    together.retire([1, 3])
    assert together.active == [0, 2, 4]
    together.sweep()
    same = np.array([False, True, False, True, False])
    assert ((together.W == W).all(axis=0) == same).all()
    assert ((together.duals == duals).all(axis=0) == same).all()


def test_a_bound_at_every_sweep():
    together, *_ = engine(data())
    best = np.full(5, -np.inf)
    for _ in range(100):
        together.sweep()
        bound = np.array(together.dual())
        assert (bound >= best - 1e-9).all()
        best = bound
        assert (best <= np.array(together.primal())).all()
    assert (np.array(together.primal()) - best < 1e-2 * best).all()


def test_cancel():
    cancel = threading.Event()
    together, *_ = engine(data(), cancel=cancel)
    together.sweep()
    cancel.set()
    with pytest.raises(Cancelled):
        together.sweep()
