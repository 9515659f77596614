"""Rows of one place, and what they answer to a fit that is driven from elsewhere.

A message is answered from the partition, which nothing changes, and from the state of its rows before it: duals, their
averages, which rows rest. The answer is sums over the rows, and the state after. Who asks again with the same state
gets the same bits: a state that was lost with its machine is made anew from an older one.

Operations of a message are done in their order. What they add up over all partitions (communicator.py) is a tuple of
arrays, or None:

    begin()                     rows, values that are not 0, P(0), sum of the rows' conditions
    visit(W, theta, extra)      duals are proposed, by coordinate steps, each row once: sums_t, the norms of what W
                                would move by, and that. The duals stay as they are
    accept(t)                   they go the part t of the way to those proposed last
    losses(W)                   loss, tight, moment, stale of sums_t
    terms(which)                what D adds up over the rows, at the duals, their averages, or those kept
    weights(which)              U
    support(which)              rows with a dual that is not 0
    mean_row()                  sum_i c_i y_i x_i
    direction(b, more)          <x_i, b> is kept; if more, of a few rows, sum_i <x_i, b> x_i
    average(weight), adopt(), keep(averaged), zero()      as DualEngine has them
    into_range()                every dual goes to the nearest place where D is finite
    wake()                      no row rests
    begin_newton(W, mean)       Newton steps start from the duals
    respond(W, g, mean)         their duals at W: sums over the rows, and U
    curvature(what)             of these duals: the Hessian's part; for what of it, see newton.py
    slopes(W, ...)              of the losses along a line
    move_centre()               of the proximal term, to the duals
    active(W), take(duals)      finish.py: the rows that matter at W and the duals kept; their duals beside others kept
    rivals(W), name(W, kappa)   mcODM: the best rivals at W are kept; they are named, and W would move by that
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear._core.scores import add_rows, scores_of
from marginlinear.algorithms.dual import joint_engine, margin_engine
from marginlinear.algorithms.partitions.communicator import SPARSE, Few
from marginlinear.algorithms.partitions.finish import Collected, active, as_csr
from marginlinear.algorithms.partitions.groups import NEIGHBOURS, RUNS
from marginlinear.data.arrays import as_rows, is_compressed, is_stored
from marginlinear.problem import Problem
from marginlinear.store.paging import paged
from marginlinear.threads import ranges, run_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from marginlinear._core.rows import Rows
    from marginlinear._typing import AnyArray, FloatArray, Int8Array, Int32Array, IntArray, IntpArray, Parameters, State
    from marginlinear.algorithms.dual import Terms
    from marginlinear.algorithms.partitions.communicator import AnyRecipe, Operation, Replies, Vector
    from marginlinear.data.arrays import CSR
    from marginlinear.data.scaling import Scaling
    from marginlinear.store import Store

# Column numbers that are looked at together.
AT_ONCE = 1 << 22
# What a state has of BlockCD beside its duals.
REFERENCES = "rival", "fixed", "upper", "named"


class Recipe(NamedTuple):
    """How a partition makes its engine: what a fit sends once.

    Attributes
    ----------
    joint : bool
    terms : callable
        Both as of a Method.
    params : dict
    signs : int8 array of shape (k,) or None
        Of a binary method with several classes: those of one column, data/codes.py.
    seed, threads : int
    size : float or None
        Sum of the instance weights of the column's rows in all partitions; None: of all rows.
    """

    joint: bool
    terms: Terms | None
    params: Parameters
    signs: Int8Array | None
    seed: int
    threads: int
    size: float | None = None

    def visit(self, partition: Partition, state: State | None, about: About) -> Visit:
        return Visit(partition, self, state, about)


class About(NamedTuple):
    """What all operations of a message speak of.

    Attributes
    ----------
    number : int
        Of the message.
    kappa, mean : float
        The strength of the centre; v of MarginCD.
    factors : float64 array of shape (k,) or None
    skip_tolerance : float
        The gap of a row at which it is left as it is.
    """

    number: int
    kappa: float
    mean: float | None
    factors: FloatArray | None
    skip_tolerance: float


def few(features: IntArray | None, vector: FloatArray, k: int) -> Vector:
    """A vector of k numbers a feature, which is 0 but for those `features` that the rows have: as Few, where these are
    few."""
    if features is None:
        return vector
    places = (features[:, np.newaxis] * k + np.arange(k)).ravel()
    if len(vector) <= np.iinfo(np.int32).max:
        places = places.astype(np.int32)
    return Few(places, vector[places], len(vector))


class Partition:
    """Checked rows of one place.

    Parameters
    ----------
    X : CSR, dense array or Store
    y : int32 array of shape (m,)
        Classes 0 to n_classes - 1; of a regression 1, of two.
    n_classes : int
    instance, factor : float64 arrays of shape (m,)
        As of a Problem.
    whole : float
        The sum of `instance` over all partitions.
    bias : float
    number : int
        Its place among the partitions.
    room : (int, int), optional
        For a Store: bytes that the process may hold, and how many partitions are visited there at the same time.
    scaling : Scaling, optional
        Of a Store's rows. Others are scaled.
    targets : float64 array of shape (m,), optional
        Of a regression.
    """

    X: Any
    _rows: Rows | None
    _chosen: tuple[bytes, IntpArray, Rows] | None
    _held: tuple[Any, Any] | None

    def __init__(self, X: CSR | AnyArray | Store, y: Int32Array, n_classes: int, instance: FloatArray,
                 factor: FloatArray, whole: float, bias: float, number: int, room: tuple[int | None, int] = (None, 1),
                 scaling: Scaling | None = None, targets: FloatArray | None = None) -> None:
        self.X, self.y, self.n_classes, self.instance, self.factor = X, y, n_classes, instance, factor
        self.whole, self.bias, self.number, self.room, self.scaling = whole, bias, number, room, scaling
        self.targets = targets
        self._rows = self._chosen = self._held = None
        self.features = self._features()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None, "_chosen": None, "_held": None}

    def _features(self) -> IntArray | None:
        """Columns of W that these rows have, ascending, where they are few: int64 array; else None."""
        if is_stored(self.X) or not is_compressed(self.X):
            return None
        there = np.zeros(self.X.n_features + (self.bias >= 0), dtype=bool)
        for lo, hi in ranges(int(self.X.indptr[-1]), AT_ONCE):
            there[self.X.indices[lo:hi]] = True
        if self.bias >= 0:
            there[-1] = True
        found = np.flatnonzero(there)
        return found if len(found) <= SPARSE * len(there) else None

    @property
    def rows(self) -> Rows:
        if self._rows is None:
            X, (memory, sharers) = self.X, self.room
            if is_stored(X):
                X = paged(X, memory, sharers=sharers)
                X = X if self.scaling is None else X.changed(self.scaling.apply)
            self._rows = as_rows(X, self.bias)
        return self._rows

    def problem(self, signs: Int8Array | None, size: float | None = None) -> Problem:
        """Problem of the rows, or of one column's classes, whose rows in all partitions have this size."""
        if signs is None:
            return Problem(self.rows, self.y, self.n_classes, self.instance, self.factor, self.whole, self.targets)
        if signs.all():
            return Problem(self.rows, (signs[self.y] > 0).astype(np.int32), 2, self.instance, self.factor, self.whole,
                           self.targets)
        # The rows of a pair of classes are copies: those of the last pair are kept.
        chosen = self._chosen
        if chosen is None or chosen[0] != signs.tobytes():
            which = np.flatnonzero(signs[self.y])
            # At once: other tasks may be at these rows, for another pair.
            chosen = self._chosen = signs.tobytes(), which, self.rows.select(which)
        _, which, rows = chosen
        return Problem(rows, (signs[self.y[which]] > 0).astype(np.int32), 2, self.instance[which], self.factor[which],
                       self.whole if size is None else size)

    def held(self, recipe: Any, made: Callable[[Partition, Any], Any]) -> Any:
        """made(self, recipe), which is kept until there is another recipe."""
        if self._held is None or self._held[0] != recipe:
            self._held = recipe, made(self, recipe)
        return self._held[1]

    def answer(self, recipe: AnyRecipe, state: State | None, about: About,
               operations: Sequence[Operation]) -> tuple[State, Replies]:
        """(state after, [arrays or None of each operation])

        Parameters
        ----------
        recipe : Recipe or smooth.Recipe
        state : dict or None
            None: duals of 0.
        about : About
        operations : list of (str, tuple)
        """
        with np.errstate(over="ignore", invalid="ignore"):
            visit = recipe.visit(self, state, about)
            sums = [getattr(visit, name)(*arguments) for name, arguments in operations]
            return visit.state(), sums


class Visit:
    """One message at one partition. The methods are the operations, and `state`."""

    # A MarginCD or a BlockCD, and steps on it.
    engine: Any
    newton: Any

    def __init__(self, partition: Partition, recipe: Recipe, state: State | None, about: About) -> None:
        self.recipe, self.about, self.number, self.features = recipe, about, partition.number, partition.features
        self.problem = partition.problem(recipe.signs, recipe.size)
        if not self.problem.rows.m:
            raise ValueError(f"partition {self.number} has no row of two of the classes, and multiclass = 'ovo' needs "
                             "some of each pair in all: give fewer partitions, or multiclass = 'ovr'")
        assert recipe.terms is not None
        cost, keywords = recipe.terms(self.problem, recipe.params)
        # Rows are visited in an order of their own each time, and everywhere.
        seed = np.random.SeedSequence([recipe.seed, about.number, partition.number]).generate_state(1, np.uint64)[0]
        make: Callable[..., Any] = joint_engine if recipe.joint else margin_engine
        self.engine = engine = make(self.problem, cost, int(seed), recipe.threads, **keywords)
        self.kept = {} if state is None else dict(state)
        if state is not None:
            engine.take_references(state)
            np.asarray(engine.duals)[:] = state["duals"]
            for array, before in zip(engine.resting(), (state["skip"], state["idle"]), strict=True):
                array[:] = before
        if about.factors is not None:
            engine.factors[:] = about.factors
        self._set_empty_duals()
        engine.skip_tolerance = about.skip_tolerance

    def state(self) -> State:
        engine = self.engine
        skip, idle = engine.resting()
        references = engine.state(False)
        return {**self.kept, "duals": np.asarray(engine.duals), "skip": skip, "idle": idle,
                **{name: references[name] for name in (*REFERENCES, "factors") if name in references}}

    def _set_empty_duals(self) -> None:
        if self.about.mean is None:
            self.engine.set_empty_duals()
        else:
            self.engine.set_mean(self.about.mean)

    def begin(self) -> tuple[FloatArray]:
        engine, rows = self.engine, self.engine.rows
        return (np.array([rows.m, rows.nonzeros(), engine.loss_at_zero(), engine.condition() * rows.m]),)

    def visit(self, W: FloatArray, theta: float, extra: float) -> tuple[FloatArray, FloatArray, Vector]:
        engine = self.engine
        copy, pull, before = W.copy(), np.zeros(engine.n_classes), np.empty(len(engine.duals))
        duals = np.asarray(engine.duals)
        now = duals.copy()
        sums = np.zeros(5)
        along = self.kept.get("along")
        if along is None:
            along = np.zeros(engine.rows.m)
        for window in engine.windows():
            for _ in range(engine.rows.turns):
                sums += engine.visit(0, engine.draw(window), copy, theta, along, extra, pull, before)
        self.kept["proposed"] = duals.copy()
        duals[:] = now
        moved = copy - W
        each = engine.iterates.sqnorm_of(moved)
        weight = 1.0 if self.about.factors is None else self.about.factors
        return np.array([*sums, each, (weight * pull * pull).sum()]), pull, self.few(moved)

    def few(self, vector: FloatArray) -> Vector:
        return few(self.features, vector, self.engine.n_classes)

    def accept(self, t: float) -> None:
        duals, proposed = np.asarray(self.engine.duals), self.kept.pop("proposed")
        if t < 1:
            proposed = duals + t * (proposed - duals)
        duals[:] = proposed

    def losses(self, W: FloatArray) -> tuple[FloatArray]:
        return (np.array(self.engine.loss_sums(W)),)

    def terms(self, which: str) -> tuple[FloatArray]:
        return (np.array(self.engine.dual_sums(self._duals(which))),)

    def weights(self, which: str) -> tuple[Vector]:
        return (self.few(self.engine.weights_of(self._duals(which))),)

    def support(self, which: str) -> tuple[FloatArray]:
        return (np.array([self.engine.count_of(self._duals(which))]),)

    def mean_row(self) -> tuple[FloatArray]:
        return (self.engine.weights_of(np.asarray(self.engine.cost)),)

    def direction(self, b: FloatArray | None, more: bool = True) -> tuple[FloatArray] | None:
        rows, m = self.engine.rows, self.engine.rows.m
        share, whole = np.ones(m), np.zeros(rows.d)
        if b is not None:
            b, along = b.reshape(-1, 1), np.zeros((m, 1))
            run_chunks(lambda lo, hi: scores_of(rows, b, along, lo, hi), m, self.recipe.threads, rows.slice())
            self.kept["along"] = share = along.ravel()
        if not more:
            return None
        step = max(1, m // RUNS)
        for lo in range(0, m, step):
            add_rows(rows, share, whole, lo, min(m, lo + min(step, NEIGHBOURS)))
        return (whole,)

    def average(self, weight: float) -> None:
        duals = np.asarray(self.engine.duals)
        mean = self.kept.get("mean")
        self.kept["mean"] = np.array(duals) if weight == 1 else mean + weight * (duals - mean)

    def adopt(self) -> None:
        for array in self.engine.resting():
            array[:] = 0
        np.asarray(self.engine.duals)[:] = self.kept["mean"]
        self._set_empty_duals()

    def keep(self, averaged: bool) -> None:
        self.kept["kept"] = np.array(self._duals("mean" if averaged else "duals"))

    def zero(self) -> None:
        for array in self.engine.resting():
            array[:] = 0
        np.asarray(self.engine.duals)[:] = 0
        self._set_empty_duals()

    def into_range(self) -> None:
        self.engine.into_range()

    def wake(self) -> None:
        for array in self.engine.resting():
            array[:] = 0

    def _newton(self, g: float = 1.0) -> Any:
        Newton: Any
        if self.recipe.joint:
            from marginlinear._core.block_newton import BlockNewton as Newton
        else:
            from marginlinear._core.margin_newton import MarginNewton as Newton
        newton = Newton(self.engine, part=True)
        newton.g = g
        if "centre" in self.kept:
            newton.centre_on(self.kept["centre"])
        return newton

    def begin_newton(self, W: FloatArray | None = None, mean: float = 0.0) -> None:
        newton = self._newton()
        if not self.recipe.joint:
            newton.begin_rows(W, mean)
        self.kept["own"] = np.array(newton.duals_of_rows())

    def move_centre(self) -> None:
        self.kept["centre"] = self.kept["own"]

    def respond(self, W: FloatArray, g: float, *mean: float) -> tuple[FloatArray, FloatArray]:
        self.newton = self._newton(g)
        sums, U = self.newton.respond_rows(W, *mean)
        self.kept["own"] = np.array(self.newton.duals_of_rows())
        return np.array(sums, dtype=float), np.asarray(U)

    def curvature(self, what: int) -> tuple[FloatArray]:
        if self.recipe.joint:
            return (np.array(self.newton.curvature_of_rows(what)),)
        newton = self.newton if what else self._newton()
        return (np.array(newton.gram_of(what)),)

    def slopes(self, W: FloatArray, direction: FloatArray, g: float, v: float, mean: float,
               lengths: FloatArray) -> tuple[FloatArray]:
        return (self._newton(g).slopes(W, direction, v, mean, lengths),)

    def active(self, W: FloatArray) -> tuple[Collected]:
        engine, duals = self.engine, self._duals("kept")
        which = active(engine, np.asarray(engine.tables)[0], W, duals)
        self.kept["active"] = which
        targets = self.problem.targets
        return (Collected([(self.number, as_csr(engine.rows.select(which)), self.problem.y[which],
                            np.zeros(len(which)) if targets is None else targets[which],
                            np.asarray(engine.cost)[which], duals[which])]),)

    def take(self, duals: dict[int, FloatArray]) -> None:
        mine = np.asarray(self.engine.duals)
        mine[:] = self._duals("kept")
        mine[self.kept.pop("active")] = duals[self.number]
        for array in self.engine.resting():
            array[:] = 0

    def rivals(self, W: FloatArray) -> None:
        self.engine.iterates.vector(False)[:] = W
        self.kept["rivals"] = self.engine.best_rivals()[0]

    def name(self, W: FloatArray) -> tuple[FloatArray]:
        engine = self.engine
        if self.about.kappa > 0:
            engine.iterates.start(self.about.kappa)
        engine.iterates.vector(False)[:] = W
        engine.name_rivals(self.kept.pop("rivals"))
        moved = engine.iterates.vector(False)
        moved -= W
        return (moved,)

    def _duals(self, which: str) -> FloatArray:
        # Before a check has found a bound, none are kept.
        own = np.asarray(self.engine.duals)
        return own if which == "duals" else self.kept.get(which, own)
