"""The end of rounds for losses with kinks: the rows that matter, brought to one place.

After some rounds most duals stand at an end of their range, and stay there. The others' rows A are solved together, the
duals of the rest R fixed:

    max over a_A of  -1/2 ||U_R + U_A||^2 + h_A(a_A) + h_R  =  min over W of  1/2 ||W||^2 + L_A(W) - <U_R, W> + h_R

That is an ordinary problem with one more row: U_R, of the loss h_R - g, whose dual is always 1. Its dual value is one
of the whole problem, since no other dual moves; whether the rows R have stayed where they were is what the next check
of all partitions says. If not, they are among the next A.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias

import numpy as np

from marginlinear.algorithms.partitions.communicator import dense
from marginlinear.algorithms.partitions.newton import LIMIT
from marginlinear.problem import Problem, Run

if TYPE_CHECKING:
    from marginlinear._core.margin_cd import MarginCD
    from marginlinear._core.rows import Rows
    from marginlinear._typing import FloatArray, Int32Array, IntArray, Table
    from marginlinear.algorithms.certificate import Budget
    from marginlinear.algorithms.partitions.communicator import Replies
    from marginlinear.algorithms.partitions.places import Margins

# Bytes of a stored value and its index, and those that the collected rows may take.
VALUE, ROOM = 12, 2 << 30
# How far from a knot a margin may be, for its row to be asked for, where its dual stands at an end.
NEAR = 0.05
# Rounds before the first time: without curvature, and of losses that curve on one side alone.
ROUNDS, ROUNDS_CURVED = 9, 12
# The part of what is allowed that the collected rows may leave.
PART = 0.2


CollectedPart: TypeAlias = "tuple[int, Any, Int32Array, FloatArray, FloatArray, FloatArray]"


class Collected:
    """Rows of some partitions, in the order of the partitions: what replies add up to.

    Attributes
    ----------
    parts : list of (partition's number, rows as CSR with the bias in it, y, targets or zeros, cost, duals)
    """

    def __init__(self, parts: list[CollectedPart]) -> None:
        self.parts = parts

    def copy(self) -> Collected:
        return Collected(list(self.parts))

    def __iadd__(self, other: Collected) -> Collected:
        self.parts += other.parts
        return self


def active(engine: MarginCD, table: FloatArray, W: FloatArray, duals: FloatArray) -> IntArray:
    """Numbers of the rows whose duals may move: those within their range, or with a margin near a knot, or beyond, but
    for those that are well within a middle piece which is a line, and have its dual."""
    knots, quads, slopes = table[:2], table[2:5], table[5:8]
    margins, cost = np.zeros(engine.rows.m), np.asarray(engine.cost)
    engine.loss_sums(W, margins)
    low = -cost * slopes[2] if quads[2] == 0 else -np.inf
    high = -cost * slopes[0] if quads[0] == 0 else np.inf
    settled = (margins > knots[0] + NEAR) & (margins < knots[1] - NEAR) & (duals == -cost * slopes[1])
    return np.flatnonzero(((duals > low) | (margins < knots[1] + NEAR))
                          & ((duals < high) | (margins > knots[0] - NEAR)) & ~(settled & (quads[1] == 0)))


def as_csr(rows: Rows) -> Any:
    """SciPy's CSR of some Rows in memory, the bias feature included."""
    from scipy.sparse import csr_array, hstack

    if isinstance(rows.arrays, tuple):
        _, indices, indptr = rows.arrays
        X = csr_array((rows.stored(), indices[:rows.nnz].astype(np.int32), indptr), shape=(rows.m, rows.n))
    else:
        X = csr_array(rows.arrays)
    if rows.bias < 0:
        return X
    return csr_array(hstack([X, np.full((rows.m, 1), rows.bias)], format="csr"))


def solved(sums: Replies, table: Table, run: Run) -> tuple[FloatArray, FloatArray, dict[int, FloatArray]]:
    """Solve the problem of the collected rows.

    Parameters
    ----------
    sums : list
        The last ones are the weights U of all duals, what these add to D beside -1/2 ||U||^2, and Collected.
    table : (knots, parts)
        The loss.
    run : Run
        Its tolerance, seed, threads, and what is left of sweeps and time.

    Returns
    -------
    W, U : float64 arrays of shape (d,)
        The weights, and those of the duals.
    duals : dict
        Those of the rows of each partition, by its number.
    """
    from scipy.sparse import csr_array, vstack

    from marginlinear.algorithms.dual import MarginFit, margin_engine
    from marginlinear.data.arrays import as_rows

    *_, (U,), (terms,), (collected,) = sums
    U, h = dense(U), float(terms[0])
    targets: Any
    _, Xs, ys, targets, costs, starts = zip(*collected.parts, strict=True)
    X = csr_array(vstack(Xs, format="csr"))
    y, targets, cost, duals = (np.concatenate(some) for some in (ys, targets, costs, starts))
    ones = np.ones(len(y) + 1)
    rest = Problem(as_rows(X, -1.0), y, 2, ones[1:], ones[1:], targets=targets)
    engine = margin_engine(rest, cost, run.seed, run.threads, [table])
    rest_of_U = U - engine.weights_of(duals)
    level = h - engine.dual_sums(duals)[0]
    X = csr_array(vstack([X, csr_array(rest_of_U[np.newaxis])], format="csr"))
    problem = Problem(as_rows(X, -1.0), np.append(y, 1).astype(np.int32), 2, ones, ones,
                      targets=np.append(targets, 0.0))
    group = np.zeros(len(ones), np.int32)
    group[-1] = 1
    cost, duals = np.append(cost, 1.0), np.append(duals, 1.0)
    start = {"duals": duals, "cost": cost, "W": None, "kappa": 0.0, "before": None}
    solution = MarginFit(problem, run._replace(start=start), cost, [table, ((), ((0, -1, level),))],
                         group=group).convex()
    duals = np.asarray(solution.state["duals"])[:-1]
    ends = np.cumsum([X.shape[0] for X in Xs])
    by_number = dict(zip([number for number, *_ in collected.parts], np.split(duals, ends[:-1]), strict=True))
    return solution.weights[:, 0], rest_of_U + engine.weights_of(duals), by_number


class Finish:
    """Steps of collecting and solving, as a Descent takes Newton steps.

    Parameters
    ----------
    engine : places.Margins
        Of a loss without curvature.

    Attributes
    ----------
    primal, objective, bound : float
        Of the last step.
    """

    afresh = False

    def __init__(self, engine: Margins) -> None:
        self.engine, self.places = engine, engine.places

    def restart(self) -> None:
        """The engine's problem has changed: nothing is kept of it."""

    def step(self) -> None:
        engine, places = self.engine, self.places
        iterates = engine.iterates
        W = iterates.averaged if engine.averaging else iterates.W
        run = places.run
        W, U, duals = places.collect([("weights", ("kept",)), ("terms", ("kept",)), ("active", (np.array(W),))], solved,
                                     places.table,
                                     Run(tol=PART * run.tol, algorithm="auto", max_iter=run.max_iter,
                                         time_limit=run.time_limit, seed=run.seed, threads=run.threads))
        places.tell("take", duals)
        iterates.resume(W, U, 1.0)
        engine.at_hand, engine.averaging = {}, False
        self.primal, self.objective, _ = engine.primal()
        self.bound = engine.dual()
        places.collections += 1
        engine.n_iter += 1


class FinishCost:
    """What a Descent asks of a way to go on (newton.MarginNewtonCost)."""

    NAME: ClassVar[str] = "collected"

    @staticmethod
    def steps(engine: Margins) -> float:
        """So many that it never comes first."""
        return 1e9

    @staticmethod
    def sweeps_of_a_step(engine: Margins) -> float:
        from marginlinear.algorithms.descent import ENOUGH

        _, _, *quads = np.asarray(engine.tables)[0, :5]
        if engine.spread > 0 or (quads[0] > 0 and quads[2] > 0) or VALUE * engine.nonzeros > ROOM:
            return np.inf
        return (ROUNDS if engine.piecewise_linear else ROUNDS_CURVED) / ENOUGH

    @staticmethod
    def require(engine: Margins) -> NoReturn:
        """ValueError: this is asked where algorithm = 'newton' was."""
        raise ValueError(f"algorithm = 'newton' solves for {engine.rows.d} weights, over partitions at most {LIMIT}: "
                         "take 'auto'")

    @staticmethod
    def first_step(engine: Margins) -> None:
        return None

    @staticmethod
    def begin(engine: Margins, budget: Budget) -> Finish:
        return Finish(engine)
