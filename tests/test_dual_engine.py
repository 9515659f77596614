"""The contract of the dual engines, which descents, warm starts, Newton steps and ADMM rely on."""

import numpy as np
import pytest

from marginlinear._core.block_cd import BlockCD
from marginlinear._core.dual_engine import DualEngine
from marginlinear._core.margin_cd import MarginCD, table_of
from marginlinear._core.rows import Rows

X = np.array([[1.0, 2.0], [0.0, 0.0], [-1.0, 0.5], [0.3, -2.0]])
Y = np.array([0, 1, 1, 0], dtype=np.int32)
# What only a loss can say, and how it is asked.
ABSTRACT = {"set_empty_duals": (), "primal": (), "dual": (), "averaged_dual": (), "recomputed_dual": (False,),
            "loss_at_zero": (), "condition": (), "count_support": (False,), "coefficients": (np.zeros(4), 0, 4),
            "sweep": ()}


def engines():
    rows, cost = Rows.from_dense(X), np.ones(4)
    return [BlockCD(rows, Y, 2, cost, loss="hinge"), BlockCD(rows, Y, 2, cost, loss="squared", mu=0.5),
            BlockCD(rows, Y, 2, cost, loss="hinge", norm=1.5),
            MarginCD(rows, Y, cost, [table_of((1,), ((0, -1, 1), (0, 0, 0)))]),
            MarginCD(rows, Y, cost, [table_of((), ((2, -2, 1),))], spread=0.3)]


@pytest.mark.parametrize("name", ABSTRACT)
def test_a_base_without_a_loss_refuses(name):
    engine = DualEngine(Rows.from_dense(X), np.ones(4), 1, 4, None, 0, 1)
    with pytest.raises(NotImplementedError):
        getattr(engine, name)(*ABSTRACT[name])


@pytest.mark.parametrize("which", range(5))
def test_every_engine_answers_all_that_is_asked(which):
    engine = engines()[which]
    engine.sweep()
    engine.iterates.start(2.0)
    engine.sweep()
    engine.average(1.0, 0.0, 1.0)
    engine.adapt()
    values = [getattr(engine, name)(*given) for name, given in ABSTRACT.items() if name != "coefficients"]
    assert all(value is None or np.isfinite(value).all() for value in values)
    assert engine.coefficients(engine.duals, 1, 4).shape == (3 * engine.n_classes,)
    for name in ("nonsmooth", "piecewise_linear", "stable", "lines"):
        assert getattr(engine, name) in (0, 1)
    for name in ("gap", "loss", "reference_gap", "norm_gap", "rounding", "skip_tolerance"):
        assert isinstance(getattr(engine, name), float)
    assert (engine.n_iter, engine.visits) == (3, 9)
    if engine.lines:
        weights = np.array(engine.iterates.vector(False))
        margins = engine.margins_of(weights)
        engine.primal()
        assert np.isfinite(engine.line_search(weights, margins, False, 1e-3))


@pytest.mark.parametrize("which", range(5))
def test_kept_duals_are_those_of_that_moment(which):
    engine = engines()[which]
    engine.sweep()
    engine.keep_duals(False)
    kept, bound = np.array(engine.duals), engine.recomputed_dual(False)
    engine.start_over()
    assert (engine.state(False)["duals"] == kept).all()
    assert not engine.iterates.W.any()
    if engine.stable:
        assert engine.recomputed_dual(False) == bound
