"""An engine whose rows are elsewhere: the face that a descent sees, over partitions that are asked by messages.

What is one vector, W and what goes with it, is here; what rows have is where they are. W and U are those of all rows,
objective and bound are sums over the partitions, so that the certificate is that of one machine. In place of sweeps
there are rounds (rounds.py), of which a group is a partition.

What needs no answer waits for the next message that does.
"""

from functools import partial

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

# Rounds before Newton steps.
WARM_UP = 4
# Steps of the power method for the direction that rows share the most.
STEPS = 3


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

    def __init__(self, communicator, recipe, count, run):
        self.communicator, self.recipe, self.count, self.run = communicator, recipe, count, run
        self.engine, self.waiting, self.table = None, [], None
        self.messages = self.numbers_sent = self.collections = 0
        self.joint_engine = partial(joint_engine, kind=partial(Blocks, self))

    def margin_engine(self, problem, cost, seed, threads, tables, **others):
        """Margins, as dual.margin_engine makes a MarginCD."""
        self.table = tables[0]
        return margin_engine(problem, cost, seed, threads, tables, kind=partial(Margins, self), **others)

    @property
    def newton_fit(self):
        """NewtonFit of smooth losses over these rows."""
        from marginlinear.algorithms.partitions.smooth import SummedNewtonFit

        return SummedNewtonFit

    def margin_newton(self, engine):
        """What follows rounds, as DualFit takes it: few weights are found by Newton steps; many, of a loss with kinks,
        on the rows that matter."""
        return newton.MARGINS if newton.MARGINS.unknowns(engine) <= newton.LIMIT else finish.FinishCost

    def sweeper(self, engine):
        """Rounds for this engine; of one partition they are sweeps."""
        made = Rounds(engine, self)
        made.pace = PLAIN if self.count == 1 else made.pace._replace(warm_up=WARM_UP)
        return made

    @property
    def weights(self):
        """The best that a check of a dual method has seen: float64 array of shape (d, columns); None before."""
        best = None if self.engine is None else self.engine.best
        return None if best is None else np.array(self.engine.weights_at(best)).reshape(self.engine.rows.d, -1)

    def tell(self, operation, *arguments):
        """To be done before what is asked next."""
        self.waiting.append((operation, arguments))

    def ask(self, operation, *arguments):
        """The sums of the operation's arrays, over all partitions."""
        return self.ask_all((operation, arguments))[0]

    def ask_all(self, *operations):
        """The same of several (operation, arguments), by one message."""
        about = About(self.messages, *(self.engine.about() if self.engine is not None else (0.0, None, None, -np.inf)))
        before, self.waiting = self.waiting, []
        sums = self.communicator.run(self.recipe, about, [*before, *operations])[len(before):]
        self.messages += 1
        self.numbers_sent += sum(np.size(one) for _, arguments in (*before, *operations) for one in arguments)
        self.numbers_sent += sum(numbers_of(array) for arrays in sums for array in arrays)
        return [[dense(array) for array in arrays] for arrays in sums]

    def collect(self, operation, solve, *arguments):
        """What `solve` makes of what an operation collects, with these arguments."""
        before, self.waiting = self.waiting, []
        about = About(self.messages, *self.engine.about())
        self.messages += 1
        return self.communicator.collect(self.recipe, about, [*before, operation], solve, *arguments)

    def deal(self):
        yield None, True

    def propose(self, _, theta, extra):
        """Proposal of steps with theta, and theta + extra along the direction."""
        iterates = self.engine.iterates
        numbers, pull, self.moves = self.ask("visit", iterates.W, theta, extra)
        *sums, each, each_along = numbers.tolist()
        weight = 1.0 if iterates.factors is None else iterates.factors
        whole = iterates.sqnorm_of(self.moves) / theta**2
        return Proposal(*sums, whole, each / theta**2, whole,
                        float((weight * pull * pull).sum()), each_along)

    def accept(self, _, t, share):
        iterates = self.engine.iterates
        iterates.mix(iterates.W, 1.0, self.moves, share)
        self.tell("accept", t)

    def find_direction(self, d):
        """The direction b that rows share the most goes to the partitions: two steps of the power method from the mean
        of a few rows."""
        b = None
        for _ in range(STEPS):
            whole, = self.ask("direction", b)
            length = np.linalg.norm(whole)
            if not 0 < length < np.inf:
                return
            b = whole / length
        self.tell("direction", b)


class Elsewhere:
    """The part of a DualEngine that is about rows, by messages. Before MarginCD or BlockCD, over one row in place of
    all."""

    lines = False

    def __init__(self, places, rows, *arguments, **keywords):
        self.places, self.averaging, self.at_hand, self.best, self.least = places, False, {}, None, np.inf
        self.m, self.nonzeros, self.at_zero, self.conditions = places.ask("begin")[0].tolist()
        places.find_direction(rows.d)
        super().__init__(rows, *arguments, **keywords)
        places.engine = self

    def about(self):
        """What About has beside the number."""
        factors = self.iterates.factors
        return (self.iterates.kappa, self.present_mean(), None if factors is None else np.array(factors),
                self.skip_tolerance)

    def present_mean(self):
        return None

    def loss_at_zero(self):
        return self.at_zero

    def condition(self):
        return self.conditions / self.m

    def set_skip_tolerance(self, gap):
        # Of one row.
        super().set_skip_tolerance(gap / self.m)

    def loss_sums(self, weights, margins=None):
        """As DualEngine has it. What else a check asks for comes with it: the duals' part of D, and both at the
        averages."""
        found = self.at_hand.pop("losses", None) if weights is self.iterates.averaged else None
        if found is not None:
            return found
        operations = [("losses", (weights,)), ("terms", ("duals",))]
        if self.averaging and weights is self.iterates.W:
            operations += [("losses", (self.iterates.averaged,)), ("terms", ("mean",))]
        sums = [arrays[0].tolist() for arrays in self.places.ask_all(*operations)]
        self.at_hand = dict(zip(("duals", "losses", "mean"), sums[1:], strict=False))
        return sums[0]

    def terms(self, which):
        """`dual_sums` of these duals: "duals", their averages "mean", or those "kept"."""
        found = self.at_hand.pop(which, None)
        return self.places.ask("terms", which)[0].tolist() if found is None else found

    def weights_of(self, which):
        """U, summed afresh."""
        return self.places.ask("weights", which)[0]

    def note(self, value, weights):
        """A check has seen P at these weights."""
        if value < self.least:
            self.least, self.best = value, np.array(weights)

    def dual_weights(self, averaged):
        return self.weights_of("kept")

    def count_support(self, averaged):
        return int(self.places.ask("support", "kept")[0][0])

    def refresh(self):
        self.iterates.refresh(self.weights_of("duals"))
        self.set_empty_duals()

    def sweep(self):
        """The sweep of a single partition; of several, at first, a round of K times too short steps, whose sum raises D
        whatever they are (CoCoA+), from duals that are brought into their range."""
        count = self.places.count
        if count > 1:
            self._tell("into_range")
            self.refresh()
        found = self.places.propose(None, count / (1 + self.iterates.kappa), 0.0)
        self.places.accept(None, 1.0, 1 / count)
        self.end_sweep(found.gap, found.loss, found.tight)

    def end_sweep(self, gap, loss, tight):
        self.at_hand = {}
        super().end_sweep(gap, loss, tight)

    def start_over(self):
        self._tell("zero")
        super().start_over()

    def average(self, weight, A, a):
        self.averaging = weight < 1
        self._tell("average", weight)
        return self.iterates.average(weight, A, a)

    def adopt(self):
        self._tell("adopt")
        self.iterates.adopt()
        self.set_empty_duals()

    def keep_duals(self, averaged):
        self._tell("keep", averaged)

    def state(self, averaged):
        # Nothing to start another fit from: the duals are where the rows are.
        return {}

    def _tell(self, operation, *arguments):
        if operation != "keep":
            self.at_hand = {}
        self.places.tell(operation, *arguments)


class Margins(Elsewhere, MarginCD):
    """MarginCD over rows elsewhere."""

    def present_mean(self):
        return self.mean if self.spread > 0 else None

    def mean_of_rows(self):
        whole, = self.places.ask("mean_row")
        whole /= self.size
        return whole, self.iterates.sqnorm_of(whole)

    def primal(self, averaged=False):
        weights = self.iterates.vector(averaged)
        loss, _, moment, _ = self.loss_sums(weights)
        # The sum was taken about v: about the mean of these margins it is least.
        value = self.iterates.sqnorm_of(weights) / 2 + loss - self.spread * moment * moment / self.size
        self.note(value, weights)
        return value, value, 0

    def dual(self):
        iterates = self.iterates
        return self.bound_of(*self.terms("duals"), iterates.dual_sqnorm(), iterates.dual_dot)

    def averaged_dual(self):
        iterates = self.iterates
        return self.bound_of(*self.terms("mean"), iterates.averaged_sqnorm(), iterates.averaged_dot)

    def recomputed_dual(self, averaged, weights=None):
        weights = self.weights_of("kept") if weights is None else weights
        return self.bound_of(*self.terms("kept"), self.iterates.sqnorm_of(weights), lambda row: row @ weights)


class Blocks(Elsewhere, BlockCD):
    """BlockCD over rows elsewhere."""

    def primal(self, averaged=False):
        found = super().primal(averaged)
        self.note(found[0], self.iterates.vector(averaged))
        return found

    def dual(self):
        iterates = self.iterates
        return self.terms("duals")[0] - self._dual_half(iterates.dual_sqnorm, iterates.dual_class_sqnorms)

    def averaged_dual(self):
        iterates = self.iterates
        return self.terms("mean")[0] - self._dual_half(iterates.averaged_sqnorm, iterates.averaged_class_sqnorms)

    def recomputed_dual(self, averaged, weights=None):
        weights = self.weights_of("kept") if weights is None else weights
        half = self._dual_half(self.iterates.sqnorm_of, self.iterates.class_sqnorms_of, weights)
        return self.terms("kept")[0] - half

    def adapt(self):
        if self.iterates.kappa > 0:
            self.places.tell("wake")
        super().adapt()

    def best_rivals(self, averaged=False):
        """They stay with their rows: `name_rivals` names them."""
        self.places.tell("rivals", np.array(self.iterates.vector(averaged)))
        return None, None

    def name_rivals(self, rival):
        iterates = self.iterates
        moved, = self.places.ask("name", iterates.W)
        iterates.mix(iterates.W, 1.0, moved, 1.0)
        self.at_hand = {}
        super().name_rivals(np.zeros(self.rows.m, dtype=np.int32))
