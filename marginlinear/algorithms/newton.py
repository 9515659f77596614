"""What Newton steps cost, and where they are possible; the modules that make them are imported when a first is made.

Which route is taken is a function of the numbers in the rows, in whatever storage: what a sweep costs counts those that
are not 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from marginlinear._core.block_cd import BlockCD
    from marginlinear._core.block_newton import BlockNewton
    from marginlinear._core.margin_cd import MarginCD
    from marginlinear._core.margin_newton import MarginNewton
    from marginlinear._core.rows import Rows
    from marginlinear._typing import FloatArray, IntpArray
    from marginlinear.algorithms.certificate import Budget
    from marginlinear.algorithms.factored_newton import FactoredNewton
    from marginlinear.algorithms.gram_newton import GramNewton

# Unknowns of the linear system: beyond, one solution takes seconds and hundreds of megabytes.
LIMIT = 3000
# A joint step whose algebra is dearer than this many sweeps comes with so many features that the steps may be many too.
DEAR = 25
# A step by conjugate gradients over Gram rows, in sweeps: each iteration reads half of the matrix, once.
ITERATED = 0.5
# Mean of c_i K_ii, or c_i ||x_i||^2: beyond, what rounding leaves of the scores of a Newton step over products of rows
# is too much for a certificate.
SHARPEST = 1e9
# Steps that share the cost of a factor.
FACTORED = 20
# Of the rows, one in so many for the first steps, while they are so many for each feature; those end when they promise
# to gain no more than this part of the objective.
EVERY, EACH, ROUGH, ROUGH_STEPS, GOLDEN = 8, 16, 0.02, 20, (math.sqrt(5) - 1) / 2
SHARP = (f"algorithm = 'newton' over a kernel needs a mean of cost times K(x, x) of at most {SHARPEST:g}: here "
         "{:.3g}; take a smaller C, scale the kernel, or take 'auto'")
JOINT = (f"algorithm = 'newton' over a kernel takes at most {LIMIT} rows, the norm 2, and no loss of the top: take "
         "'auto'")
FLAT = (f"algorithm = 'newton' over a kernel takes at most {LIMIT} rows of a loss with a flat piece or a kink: here "
        "{}; take 'auto'")
NOT_HELD = "algorithm = 'newton' needs all kernel rows, {:.0f} MB: give a larger cache (-m), or take 'auto'"


class NewtonSteps(Protocol):
    """What a Descent takes steps of; `primal`, `objective` and `bound` are those after the last one. `afresh`: whether
    the primal was summed from the rows."""

    @property
    def primal(self) -> float: ...

    @property
    def objective(self) -> float: ...

    @property
    def bound(self) -> float: ...

    @property
    def afresh(self) -> bool: ...

    def step(self) -> None: ...

    def restart(self) -> None: ...


class NewtonCost(Protocol):
    """What a Descent asks before it takes them."""

    NAME: str

    def steps(self, engine: Any, /) -> float: ...

    def first_step(self, engine: Any, /) -> int | None: ...

    def sweeps_of_a_step(self, engine: Any, /) -> float: ...

    def require(self, engine: Any, /) -> None: ...

    def begin(self, engine: Any, budget: Budget, /) -> NewtonSteps: ...


def smooth(engine: MarginCD) -> bool:
    """Whether a MarginCD has losses with curvature, no kinks, and nothing that couples the rows."""
    return engine.curved and not engine.nonsmooth and engine.spread == 0


def flat_nowhere(engine: MarginCD) -> bool:
    """Whether all pieces of a MarginCD's losses have curvature."""
    least: float = min(min(table[2:5]) for table in engine.tables)
    return least > 0


def few_rows(engine: MarginCD) -> bool:
    """Whether steps over features are those over a factor of the products of the rows: where these are fewer, in
    memory, and not so long that rounding in their products counts."""
    rows = engine.rows
    return not rows.is_gram and rows.pager is None and rows.m < rows.n and engine.condition() <= SHARPEST


def unknowns(engine: MarginCD) -> int:
    """Those of a step's system over features."""
    return engine.rows.m if few_rows(engine) else engine.rows.d


class MarginNewtonCost:
    """Of steps on the engine MarginCD."""

    NAME: ClassVar[str] = "newton"

    @staticmethod
    def steps(engine: MarginCD) -> float:
        """To 1e-3, roughly, those on a part of the rows counted in; infinite where sweeps come first, as over rows that
        are fewer than their features, and so nearly orthogonal that sweeps may be few whatever their condition."""
        if few_rows(engine):
            return math.inf
        if engine.rows.is_gram:
            return 8 if smooth(engine) else 25
        levels = levels_of(engine.rows)
        if engine.nonsmooth:
            return 4.5 if levels > 1 else 12
        return 2.5 if levels > 0 else 5

    @staticmethod
    def first_step(engine: MarginCD) -> int | None:
        """The sweeps before it; None: until they are slow. A loss with kinks needs duals to begin with."""
        return int(engine.nonsmooth and levels_of(engine.rows) == 0)

    @staticmethod
    def sweeps_of_a_step(engine: MarginCD) -> float:
        """What a step costs, in sweeps, roughly; infinite where steps are not possible."""
        rows = engine.rows
        if rows.is_gram:
            if not (rows.shared and engine.condition() <= SHARPEST):
                return math.inf
            if not smooth(engine):
                return 1 + rows.m / 4 if rows.m <= LIMIT else math.inf
            return 1 + rows.m / 60 if rows.m <= LIMIT else ITERATED if flat_nowhere(engine) else math.inf
        n = unknowns(engine)
        if n > LIMIT:
            return math.inf
        # A multiplication costs 100 times what it does in a product of tiles, 8 times what it does where only values
        # that are not 0 are multiplied, 60 times what it does in a solution; the calls of a step cost 100,000. Of a
        # loss without curvature about a third of the rows is at a knot. Exponentials and logarithms of a row cost 33 in
        # a sweep, 16 in a step.
        values = 1.0 + rows.nonzeros()
        product, others = min(n**2 / 100, (values / rows.m)**2 / 8), 1.5 * values
        if few_rows(engine):
            # Over the rows of a factor, which is made once.
            product, others = n**2 / 100, 3 * values + n**2 + (n * values + n**3 / 30) / FACTORED
        products = rows.m / (1 if engine.curved else 3) * product
        soft = rows.m if any(table[-1] for table in engine.tables) else 0
        return (others + 16 * soft + products + n**3 / 60 + 1e5) / (values + 33 * soft)

    @staticmethod
    def require(engine: MarginCD) -> None:
        """ValueError where steps are not possible."""
        rows = engine.rows
        if rows.is_gram and not rows.shared:
            raise ValueError(NOT_HELD.format((4 if rows.single else 8) * rows.m * rows.m / 1e6))
        if rows.is_gram and not engine.condition() <= SHARPEST:
            raise ValueError(SHARP.format(engine.condition()))
        if rows.is_gram and rows.m > LIMIT and not (smooth(engine) and flat_nowhere(engine)):
            raise ValueError(FLAT.format(rows.m))
        if unknowns(engine) > LIMIT and not rows.is_gram:
            raise ValueError(f"algorithm = 'newton' solves for one weight a feature or, of fewer rows, a row, at most "
                             f"{LIMIT}: here {unknowns(engine)}; take 'auto'")

    @staticmethod
    def begin(engine: MarginCD, budget: Budget) -> FactoredNewton | GramNewton | MarginNewton:
        if few_rows(engine) or (engine.rows.is_gram and not smooth(engine)):
            from marginlinear.algorithms.factored_newton import FactoredNewton

            return FactoredNewton(engine)
        if engine.rows.is_gram:
            from marginlinear.algorithms.gram_newton import GramNewton

            return GramNewton(engine, LIMIT)
        from marginlinear._core.margin_newton import MarginNewton

        return MarginNewton(engine, rough_newton(engine, budget))


def of_gram_rows(engine: BlockCD) -> bool:
    """Whether a BlockCD over Gram rows may take Newton steps."""
    return engine.laplacian and engine.norm == 2 and engine.rows.m <= LIMIT and not engine.rows.single


def levels_of(rows: Rows) -> int:
    """How often a part of the rows is taken, and of that a part, before the steps on all."""
    return max(0, math.floor(math.log(rows.m / (EACH * rows.d)) / math.log(EVERY))) if rows.m else 0


def part_of_rows(m: int) -> IntpArray:
    """One of each EVERY rows, in step with no period of them."""
    import numpy as np

    at = np.arange(m // EVERY)
    return (EVERY * (at + at * GOLDEN % 1)).astype(np.intp)


def rough_newton(engine: MarginCD, budget: Budget) -> tuple[FloatArray, float] | None:
    """The weights, and g, of MarginNewton after its steps on a part of the rows, from which those on all go on; None
    where rows are few for the features, or the engine's weights and duals are there to go on from."""
    import numpy as np

    from marginlinear._core.margin_newton import MarginNewton

    rows = engine.rows
    if not engine.untouched():
        return None
    if levels_of(rows) == 0:
        if engine.nonsmooth:
            engine.sweep()
        return None
    part = engine.of_rows(part_of_rows(rows.m))
    newton = MarginNewton(part, rough_newton(part, budget), bounds=False)
    for _ in range(ROUGH_STEPS):
        newton.step()
        if newton.fall + newton.e <= ROUGH * newton.primal or budget.exhausted(0):
            break
    return np.asarray(newton.W), newton.g


class BlockNewtonCost:
    """Of steps on the engine BlockCD."""

    NAME: ClassVar[str] = "newton"

    @staticmethod
    def steps(engine: BlockCD) -> float:
        """To 1e-3, roughly, from the duals of a sweep."""
        return 15

    @staticmethod
    def sweeps_of_a_step(engine: BlockCD) -> float:
        """What a step costs, in sweeps, roughly; infinite where steps are not possible."""
        rows, k = engine.rows, engine.n_classes
        if rows.is_gram:
            # About as many duals as rows are within their ranges.
            possible = rows.shared and of_gram_rows(engine) and engine.condition() <= SHARPEST
            return 3 + rows.m / (60 * k) if possible else math.inf
        unknowns = (k - 1) * rows.d
        if unknowns > LIMIT or not engine.laplacian:
            return math.inf
        # A multiplication costs 60 times what it does in a tile; a pair of classes costs 10,000 in calls.
        sweep = 1.0 + rows.nonzeros() * k
        algebra = (rows.m * rows.d * rows.d + unknowns**3) / 60 / sweep
        return math.inf if algebra > DEAR else 1.5 + algebra + 5000.0 * k * (k - 1) / sweep

    @staticmethod
    def require(engine: BlockCD) -> None:
        """ValueError where steps are not possible."""
        rows, k = engine.rows, engine.n_classes
        if rows.is_gram:
            if not of_gram_rows(engine):
                raise ValueError(JOINT)
            if not rows.shared:
                raise ValueError(NOT_HELD.format(8 * rows.m * rows.m / 1e6))
            if not engine.condition() <= SHARPEST:
                raise ValueError(SHARP.format(engine.condition()))
            return
        unknowns = (k - 1) * rows.d
        if unknowns > LIMIT:
            raise ValueError(f"algorithm = 'newton' solves for (classes - 1) x features weights, at most {LIMIT}: here "
                             f"{k - 1} x {rows.d} = {unknowns}; take 'auto'")

    @staticmethod
    def first_step(engine: BlockCD) -> None:
        return None

    @staticmethod
    def begin(engine: BlockCD, budget: Budget) -> BlockNewton:
        from marginlinear._core.block_newton import BlockNewton, GramBlockNewton

        return (GramBlockNewton if engine.rows.is_gram else BlockNewton)(engine)
