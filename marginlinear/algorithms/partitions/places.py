"""An engine whose rows are elsewhere: the face that a descent sees, over partitions that are asked by messages.

What is one vector, W and what goes with it, is here; what rows have is where they are. W and U are those of all rows,
objective and bound are sums over the partitions, so that the certificate is that of one machine. In place of sweeps
there are rounds (rounds.py), of which a group is a partition.

What needs no answer waits for the next message that does. A check takes the next round's visits with it, where these
can be foreseen.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from marginlinear._core.block_cd import BlockCD
from marginlinear._core.margin_cd import MarginCD
from marginlinear.algorithms.descent import PLAIN
from marginlinear.algorithms.dual import joint_engine, margin_engine
from marginlinear.algorithms.partitions import finish, newton
from marginlinear.algorithms.partitions.communicator import dense, numbers_of
from marginlinear.algorithms.partitions.groups import Proposal
from marginlinear.algorithms.partitions.partition import About
from marginlinear.algorithms.partitions.rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from marginlinear._core.dual_engine import DualEngine
    from marginlinear._core.rows import Rows
    from marginlinear._typing import FloatArray, Floats, Int32s, State, Table
    from marginlinear.algorithms.newton import NewtonCost
    from marginlinear.algorithms.pairwise.newton import NewtonFit
    from marginlinear.algorithms.partitions.communicator import AnyRecipe, Communicator, Operation
    from marginlinear.algorithms.partitions.features import RowsElsewhere
    from marginlinear.problem import Problem, Run

# Rounds before Newton steps: more of them leave no better duals, as counted over a9a, ijcnn1 and letter.
WARM_UP = 1
# Steps of the power method for the direction that rows share the most.
STEPS = 2
# What a fit's end asks of the duals kept.
OF_KEPT = {"weights": ("weights", ("kept",)), "kept": ("terms", ("kept",)), "support": ("support", ("kept",))}


class Places:
    """Where the rows of one fit are, as `rounds.Rounds` asks for them (groups.py).

    Parameters
    ----------
    communicator : InProcess or another Communicator
    recipe : Recipe
    count : int
        Partitions.
    run : Run

    Attributes
    ----------
    messages, collections, numbers_sent : int
        So far; numbers in the vectors that a partition was sent, and in the sums that came back.
    """

    rounds = 1
    block_newton = newton.BLOCKS

    def __init__(self, communicator: Communicator, recipe: AnyRecipe, count: int, run: Run) -> None:
        self.communicator, self.recipe, self.count, self.run = communicator, recipe, count, run
        self.engine: Any = None
        self.waiting: list[Operation] = []
        self.table: Table | None = None
        # The Rounds, and a direction that rows share, until it has gone to them.
        self.rounds_made: Any = None
        self.shared: FloatArray | None = None
        self.messages = self.numbers_sent = self.collections = 0
        self.joint_engine = partial(joint_engine, kind=partial(Blocks, self))

    def margin_engine(self, problem: Problem, cost: FloatArray, seed: int, threads: int, tables: Sequence[Table],
                      **others: Any) -> MarginCD:
        """Margins, as dual.margin_engine makes a MarginCD."""
        self.table = tables[0]
        return margin_engine(problem, cost, seed, threads, tables, kind=partial(Margins, self), **others)

    @property
    def newton_fit(self) -> type[NewtonFit]:
        """NewtonFit of smooth losses over these rows."""
        from marginlinear.algorithms.partitions.smooth import SummedNewtonFit

        return SummedNewtonFit

    @property
    def features(self) -> Callable[..., RowsElsewhere]:
        """The source of algorithms/surveys.py: a function of what RowsElsewhere takes beside these."""
        from marginlinear.algorithms.partitions.features import RowsElsewhere

        return partial(RowsElsewhere, self)

    def margin_newton(self, engine: DualEngine) -> NewtonCost:
        """What follows rounds, as DualFit takes it: few weights are found by Newton steps; many, of a loss with kinks,
        on the rows that matter."""
        return newton.MARGINS if newton.MARGINS.unknowns(engine) <= newton.LIMIT else finish.FinishCost

    def sweeper(self, engine: Any) -> Rounds:
        """Rounds for this engine; of one partition they are sweeps."""
        self.rounds_made = made = Rounds(engine, self)
        made.pace = PLAIN if self.count == 1 else made.pace._replace(warm_up=WARM_UP)
        return made

    @property
    def weights(self) -> FloatArray | None:
        """The best that a check of a dual method has seen: float64 array of shape (d, columns); None before."""
        engine = self.engine
        if engine is None or engine.best is None:
            return None
        return np.array(engine.weights_at(engine.best)).reshape(engine.rows.d, -1)

    def tell(self, operation: str, *arguments: Any) -> None:
        """To be done before what is asked next."""
        self.waiting.append((operation, arguments))

    def ask(self, operation: str, *arguments: Any) -> list[Any]:
        """The sums of the operation's arrays, over all partitions."""
        sums: list[Any] = self.ask_all((operation, arguments))[0]
        return sums

    def ask_all(self, *operations: Operation) -> list[Any]:
        """The same of several (operation, arguments), by one message."""
        spoken: Any = self.engine.about() if self.engine is not None else (0.0, None, None, -np.inf)
        about = About(self.messages, *spoken)
        before, self.waiting = self.waiting, []
        sums = self.communicator.run(self.recipe, about, [*before, *operations])[len(before):]
        self.messages += 1
        self.numbers_sent += sum(np.size(one) for _, arguments in (*before, *operations) for one in arguments)
        self.numbers_sent += sum(numbers_of(array) for arrays in sums if arrays is not None for array in arrays)
        return [None if arrays is None else [dense(array) for array in arrays] for arrays in sums]

    def collect(self, operations: Sequence[Operation], solve: Callable[..., Any], *arguments: Any) -> Any:
        """solve(sums, *arguments), whose last sums are those of these operations."""
        before, self.waiting = self.waiting, []
        about = About(self.messages, *self.engine.about())
        self.messages += 1
        return self.communicator.collect(self.recipe, about, [*before, *operations], solve, *arguments)

    def deal(self) -> Iterator[tuple[None, bool]]:
        yield None, True

    def ask_ahead(self, W: FloatArray, kappa: float, *operations: Operation) -> list[Any]:
        """ask_all, with the visits of the next round, which `propose` finds, from these weights around a centre of this
        strength."""
        steps = self.rounds_made.lengths(kappa)
        *sums, found = self.ask_all(*operations, ("visit", (W, *steps)))
        self.engine.at_hand["visits"] = W, steps, found
        return sums

    def propose(self, _: None, theta: float, extra: float) -> Proposal:
        """Proposal of steps with theta, and theta + extra along the direction."""
        iterates = self.engine.iterates
        W, steps, found = self.engine.at_hand.pop("visits", (None, None, None))
        if steps != (theta, extra) or not np.array_equal(W, iterates.W):
            along = self.along()
            *shared, found = self.ask_all(*along, ("visit", (iterates.W, theta, extra)))
            if along and shared[0] is not None:
                (self.shared,), = shared
        numbers, pull, self.moves = found
        *sums, each, each_along = numbers.tolist()
        weight = 1.0 if iterates.factors is None else iterates.factors
        whole = iterates.sqnorm_of(self.moves) / theta**2
        return Proposal._make((*sums, whole, each / theta**2, whole, float((weight * pull * pull).sum()), each_along))

    def accept(self, _: None, t: float, share: float) -> None:
        iterates = self.engine.iterates
        iterates.mix(iterates.W, 1.0, self.moves, share)
        self.tell("accept", t)

    def along(self) -> list[Operation]:
        """What the next round has to ask before it for the direction b that rows share the most, by the power method
        from the sum of a few rows: a step goes with each of the first rounds, which have the direction so far."""
        whole, self.shared = self.shared, None
        length = 0.0 if whole is None else float(np.linalg.norm(whole))
        if whole is None or not 0 < length < np.inf:
            return []
        return [("direction", (whole / length, self.engine.n_iter < STEPS))]


if TYPE_CHECKING:
    # What it finds beside it.
    Base = DualEngine
else:
    Base = object


class Elsewhere(Base):
    """The part of a DualEngine that is about rows, by messages. Before MarginCD or BlockCD, over one row in place of
    all."""

    lines = False
    centre: tuple[float, float, float, bool] | None
    best: FloatArray | None
    m: float

    def __init__(self, places: Places, rows: Rows, *arguments: Any, **keywords: Any) -> None:
        self.places, self.averaging, self.best, self.least = places, False, None, np.inf
        # What came with an answer, until the duals change; whether a sweep was the last that they did, and what its
        # next centre is.
        self.at_hand, self.swept, self.centre = {}, False, None
        (numbers,), (places.shared,), (terms,) = places.ask_all(("begin", ()), ("direction", (None,)),
                                                                ("terms", ("duals",)))
        self.m, self.nonzeros, self.at_zero, self.conditions = numbers.tolist()
        super().__init__(rows, *arguments, **keywords)
        places.engine = self
        if self.steady:
            self.at_hand["duals"] = terms

    def about(self) -> tuple[float, float | None, FloatArray | None, float]:
        """What About has beside the number."""
        factors = self.iterates.factors
        return (self.iterates.kappa, self.present_mean(), None if factors is None else np.array(factors),
                self.skip_tolerance)

    def present_mean(self) -> float | None:
        return None

    @property
    def steady(self) -> bool:
        """Whether rows need W alone: no mean of the margins, and no factors, that change with it."""
        return self.present_mean() is None and self.iterates.factors is None

    def loss_at_zero(self) -> float:
        found: float = self.at_zero
        return found

    def condition(self) -> float:
        found: float = self.conditions / self.m
        return found

    def set_skip_tolerance(self, gap: float) -> None:
        # Of one row.
        super().set_skip_tolerance(gap / self.m)

    def loss_sums(self, weights: Floats, margins: Floats | None = None) -> list[float]:
        """As DualEngine has it. What else a check asks for comes with it: the duals' part of D, and both at the
        averages; after a sweep the visits of the next; and where nothing is told but the duals to keep, as at the end
        of a fit, what speaks of these."""
        found = self.at_hand.pop("losses", None) if weights is self.iterates.averaged else None
        values: list[float]
        if found is not None:
            values = found.tolist()
            return values
        now, places = weights is self.iterates.W, self.places
        names, operations = ["duals"], [("losses", (weights,)), ("terms", ("duals",))]
        if self.averaging and now:
            names += ["losses", "mean"]
            operations += [("losses", (self.iterates.averaged,)), ("terms", ("mean",))]
        if now and self.swept and self.steady:
            W, kappa = self.iterates.W.copy(), self.iterates.kappa
            if self.centre is not None:
                W, kappa = self.iterates.recentred(*self.centre), self.centre[0]
            sums = places.ask_ahead(W, kappa, *operations)
        elif now and all(name == "keep" for name, _ in places.waiting):
            names += OF_KEPT
            sums = places.ask_all(*operations, *OF_KEPT.values())
        else:
            sums = places.ask_all(*operations)
        self.swept = False
        sums = [arrays[0] for arrays in sums]
        self.at_hand.update(zip(names, sums[1:], strict=True))
        values = sums[0].tolist()
        return values

    def terms(self, which: str) -> tuple[float, float]:
        """`dual_sums` of these duals: "duals", their averages "mean", or those "kept"."""
        found = self.at_hand.pop(which, None)
        h, slope = (self.places.ask("terms", which)[0] if found is None else found).tolist()
        return h, slope

    def weights_of(self, duals: Any) -> FloatArray:
        """U, summed afresh, of the duals of this name."""
        U: FloatArray = self.places.ask("weights", duals)[0]
        return U

    def of_kept(self, name: str) -> FloatArray:
        """What OF_KEPT names, of the duals kept: all of it by one message."""
        if name not in self.at_hand:
            self.at_hand.update(zip(OF_KEPT, [found for found, in self.places.ask_all(*OF_KEPT.values())],
                                    strict=True))
        found: FloatArray = self.at_hand.pop(name)
        return found

    def note(self, value: float, weights: FloatArray) -> None:
        """A check has seen P at these weights."""
        if value < self.least:
            self.least, self.best = value, np.array(weights)

    def dual_weights(self, averaged: bool) -> FloatArray:
        return self.of_kept("weights")

    def count_support(self, averaged: bool) -> int:
        return int(self.of_kept("support")[0])

    def refresh(self) -> None:
        self.iterates.refresh(self.weights_of("duals"))
        self.set_empty_duals()

    def sweep(self) -> None:
        """The sweep of a single partition; of several, at first, a round of K times too short steps, whose sum raises D
        whatever they are (CoCoA+), from duals that are brought into their range."""
        count = self.places.count
        if count > 1:
            self._tell("into_range")
            self.refresh()
        found = self.places.propose(None, count / (1 + self.iterates.kappa), 0.0)
        self.places.accept(None, 1.0, 1 / count)
        self.end_sweep(found.gap, found.loss, found.tight)

    def end_sweep(self, gap: float, loss: float, tight: float) -> None:
        self.at_hand, self.swept, self.centre = {}, True, None
        super().end_sweep(gap, loss, tight)

    def foresee(self, kappa: float, A: float, a: float, restart: bool) -> None:
        self.centre = kappa, A, a, restart

    def start_over(self) -> None:
        self._tell("zero")
        super().start_over()

    def average(self, weight: float, A: float, a: float) -> float:
        self.averaging = self.averaging or weight < 1
        self._tell("average", weight)
        return self.iterates.average(weight, A, a)

    def adopt(self) -> None:
        self._tell("adopt")
        self.iterates.adopt()
        self.set_empty_duals()

    def keep_duals(self, averaged: bool) -> None:
        self._tell("keep", averaged)

    def state(self, averaged: bool) -> State:
        # Nothing to start another fit from: the duals are where the rows are.
        return {}

    def _tell(self, operation: str, *arguments: Any) -> None:
        if operation == "keep":
            for name in OF_KEPT:
                self.at_hand.pop(name, None)
        else:
            self.at_hand = {}
        self.places.tell(operation, *arguments)


class Margins(Elsewhere, MarginCD):
    """MarginCD over rows elsewhere."""

    def present_mean(self) -> float | None:
        return self.mean if self.spread > 0 else None

    def mean_of_rows(self) -> tuple[FloatArray, float]:
        whole, = self.places.ask("mean_row")
        whole /= self.size
        return whole, self.iterates.sqnorm_of(whole)

    def primal(self, averaged: bool = False) -> tuple[float, float, int]:
        weights = self.iterates.vector(averaged)
        loss, _, moment, _ = self.loss_sums(weights)
        # The sum was taken about v: about the mean of these margins it is least.
        value = self.iterates.sqnorm_of(weights) / 2 + loss - self.spread * moment * moment / self.size
        self.note(value, weights)
        return value, value, 0

    def dual(self) -> float:
        iterates = self.iterates
        return self.bound_of(*self.terms("duals"), iterates.dual_sqnorm(), iterates.dual_dot)

    def averaged_dual(self) -> float:
        iterates = self.iterates
        return self.bound_of(*self.terms("mean"), iterates.averaged_sqnorm(), iterates.averaged_dot)

    def recomputed_dual(self, averaged: bool, weights: Floats | None = None) -> float:
        weights = self.of_kept("weights") if weights is None else weights
        h, slope = self.of_kept("kept").tolist()
        return self.bound_of(h, slope, self.iterates.sqnorm_of(weights), lambda row: float(row @ np.asarray(weights)))


class Blocks(Elsewhere, BlockCD):
    """BlockCD over rows elsewhere."""

    def primal(self, averaged: bool = False) -> tuple[float, float, int]:
        found = super().primal(averaged)
        self.note(found[0], self.iterates.vector(averaged))
        return found

    def dual(self) -> float:
        iterates = self.iterates
        return self.terms("duals")[0] - self._dual_half(iterates.dual_sqnorm, iterates.dual_class_sqnorms)

    def averaged_dual(self) -> float:
        iterates = self.iterates
        return self.terms("mean")[0] - self._dual_half(iterates.averaged_sqnorm, iterates.averaged_class_sqnorms)

    def recomputed_dual(self, averaged: bool, weights: Floats | None = None, rival: Int32s | None = None,
                        fixed: Floats | None = None) -> float:
        weights = self.of_kept("weights") if weights is None else weights
        half = self._dual_half(self.iterates.sqnorm_of, self.iterates.class_sqnorms_of, weights)
        h: float = self.of_kept("kept")[0]
        return h - half

    def adapt(self) -> None:
        if self.iterates.kappa > 0:
            self.places.tell("wake")
        super().adapt()

    def best_rivals(self, averaged: bool = False) -> tuple[Any, Any]:
        """They stay with their rows: `name_rivals` names them."""
        self.places.tell("rivals", np.array(self.iterates.vector(averaged)))
        return None, None

    def name_rivals(self, rival: Any) -> None:
        iterates = self.iterates
        moved, = self.places.ask("name", iterates.W)
        iterates.mix(iterates.W, 1.0, moved, 1.0)
        self.at_hand = {}
        super().name_rivals(np.zeros(self.rows.m, dtype=np.int32))
