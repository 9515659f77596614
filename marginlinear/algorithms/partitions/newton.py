"""Newton steps over rows elsewhere: what these add up is asked for, the rest is that of one machine.

A step takes two messages: the slopes at several lengths of the direction, and, at the weights that are chosen, duals,
values and the Hessian. The number of steps does not depend on the partitions, and hardly on the scale of the features
or on C.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from marginlinear._core.block_newton import BlockNewton
from marginlinear._core.margin_newton import MarginNewton
from marginlinear._core.proximal import MOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._core.dual_engine import DualEngine
    from marginlinear._typing import FloatArray, Floats
    from marginlinear.algorithms.certificate import Budget
    from marginlinear.algorithms.newton import NewtonSteps
    from marginlinear.algorithms.partitions.places import Blocks, Margins

# Unknowns of the linear system.
LIMIT = 4000
# What a step costs, in rounds. A descent counts by sweeps: there are two to five times as many rounds.
ROUNDS = 0.5
# Lengths of a step that are tried at once.
LENGTHS = 2.0 ** np.arange(-10, 2)
# A full step is taken where the slope is down to this part of that at its start.
FLAT = 0.1
# Where values do not fall but by rounding.
ROUNDING = 1e-13


class SummedCost:
    """What newton.MarginNewtonCost says of one machine, for steps of `kind`."""

    NAME: str = "newton"

    def __init__(self, kind: Callable[[Any], NewtonSteps], steps: float) -> None:
        self.kind, self.count = kind, steps

    def begin(self, engine: DualEngine, budget: Budget) -> NewtonSteps:
        return self.kind(engine)

    def steps(self, engine: DualEngine) -> float:
        return self.count

    @staticmethod
    def first_step(engine: DualEngine) -> None:
        return None

    @staticmethod
    def unknowns(engine: DualEngine) -> int:
        return engine.rows.d * max(1, engine.n_classes - 1)

    def sweeps_of_a_step(self, engine: Any) -> float:
        """As `newton.BlockNewtonCost` has it: infinite where steps are not possible."""
        possible = self.unknowns(engine) <= LIMIT and (engine.n_classes == 1 or engine.laplacian)
        return ROUNDS if possible else math.inf

    def require(self, engine: DualEngine) -> None:
        """ValueError where steps are not possible."""
        if self.unknowns(engine) > LIMIT:
            raise ValueError(f"algorithm = 'newton' solves for {self.unknowns(engine)} weights, over partitions at "
                             f"most {LIMIT}: take 'auto'")


class SummedMarginNewton(MarginNewton):
    """MarginNewton on the engine places.Margins."""

    if TYPE_CHECKING:
        @property
        def engine(self) -> Margins: ...

    START = MOST

    def __init__(self, engine: Margins) -> None:
        self.places = engine.places
        # No round follows.
        engine.swept = False
        super().__init__(engine)

    def sum_of_rows(self) -> FloatArray:
        self.whole, = self.places.ask("mean_row")
        whole: FloatArray = self.whole
        return whole

    def begin_rows(self, W: Floats, mean: float) -> None:
        self.places.tell("begin_newton", np.array(W), mean)

    def move_centre(self) -> None:
        self.places.tell("move_centre")

    def gram_of(self, curvatures: bool) -> Any:
        return self.hessian if curvatures else self.places.ask("curvature", False)[0]

    def respond_rows(self, W: Floats, mean: float, measured: bool = False) -> tuple[Any, FloatArray]:
        self.engine.at_hand = {}
        (sums, U), (self.hessian,) = self.places.ask_all(("respond", (np.array(W), self.g, mean)),
                                                         ("curvature", (True,)))
        return tuple(sums.tolist()), U

    def _search(self, direction: Floats, fall: float) -> float:
        """W moves by -t `direction`; returns t. Along the line F' rises and is linear between knots."""
        direction, W = np.asarray(direction), np.asarray(self.W)
        mean = self.whole @ direction / self.size if self.spread > 0 else 0.0
        slopes = self.places.ask("slopes", np.array(W), direction, self.g, self.v, mean, LENGTHS)[0]
        slopes = slopes + LENGTHS * (direction @ direction) - W @ direction
        if abs(slopes[-2]) <= FLAT * fall:
            t = 1.0
        else:
            at = int(np.searchsorted(slopes >= 0, True))
            low, before = (LENGTHS[at - 1], slopes[at - 1]) if at else (0.0, -fall)
            t = low if at == len(LENGTHS) else low - before * (LENGTHS[at] - low) / (slopes[at] - before)
        start, value = W.copy(), self.value
        while True:
            W[:] = start - t * direction
            self.value = self._respond(W)
            if self.value <= value + ROUNDING * abs(value) or t < LENGTHS[0] / 1024:
                return t
            t /= 4


class SummedBlockNewton(BlockNewton):
    """BlockNewton on the engine places.Blocks."""

    if TYPE_CHECKING:
        @property
        def engine(self) -> Blocks: ...

    START = MOST

    def __init__(self, engine: Blocks) -> None:
        self.places = engine.places
        self.places.tell("begin_newton")
        super().__init__(engine)

    def move_centre(self) -> None:
        self.places.tell("move_centre")

    def respond_rows(self, W: Floats) -> tuple[Any, FloatArray]:
        self.engine.at_hand = {}
        free = self.engine.n_classes - 1 if self._invariant() else self.engine.n_classes
        (sums, U), (self.curvature_of_now,) = self.places.ask_all(("respond", (np.array(W), self.g)),
                                                                  ("curvature", (free,)))
        return tuple(sums.tolist()), U

    def curvature_of_rows(self, free: SupportsIndex) -> FloatArray:
        found: FloatArray = self.curvature_of_now
        return found


MARGINS, BLOCKS = SummedCost(SummedMarginNewton, 8), SummedCost(SummedBlockNewton, 15)
