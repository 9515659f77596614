"""Newton steps on smooth losses over rows elsewhere (algorithms/pairwise): value, gradient, curvature and products with
the Hessian are sums, and each is a message.

A partition's loss knows the residuals at the weights that it met last. An answer does not depend on that: where an
operation speaks of other weights, they are met again.
"""

from __future__ import annotations

import hashlib
import math
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear._core.smooth import SmoothLoss
from marginlinear.algorithms.pairwise.loss import HingeDuals, balancing
from marginlinear.algorithms.pairwise.newton import WHOLE, NewtonFit, column_squares, mean_square
from marginlinear.algorithms.pairwise.passes import dot

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._typing import AnyArray, FloatArray, State
    from marginlinear.algorithms.partitions.partition import About, Partition
    from marginlinear.algorithms.partitions.places import Places


class Recipe(NamedTuple):
    """How a partition makes its loss.

    Attributes
    ----------
    loss : {"hinge", "logistic", "softmax"}
    C : float
        c_i is C times the row's weights.
    threads : int
    """

    loss: str
    C: float
    threads: int

    def visit(self, partition: Partition, state: State | None, about: About) -> Visit:
        return Visit(partition, self, state)


class Held:
    """A partition's SmoothLoss, and the weights that it met last."""

    at: tuple[float, bytes] | None

    def __init__(self, partition: Partition, recipe: Recipe) -> None:
        problem = partition.problem(None)
        # Rows whose squares overflow are refused by name.
        problem.rows.sqnorms()
        self.lock, self.at = threading.Lock(), None
        self.loss = SmoothLoss(problem.rows, problem.y, problem.n_classes, recipe.C * problem.weights,
                               loss=recipe.loss, threads=recipe.threads)

    def meet(self, W: FloatArray, width: float) -> tuple[FloatArray, FloatArray] | None:
        """(values, gradient), or None where these weights were met last."""
        at = width, hashlib.blake2b(W.data).digest()
        if at == self.at:
            return None
        out, self.loss.width, self.at = np.zeros(W.size), width, None
        value = self.loss.value_and_gradient(W, out)
        self.at = at
        return np.array([value, self.loss.hinge, self.loss.mass]), out


class Visit:
    """One message at one partition. The methods are the operations, and `state`."""

    def __init__(self, partition: Partition, recipe: Recipe, state: State | None) -> None:
        self.kept = {} if state is None else dict(state)
        self.held = partition.held(recipe, Held)
        self.loss = self.held.loss
        self.y, self.cost = self.loss.y, self.loss.cost

    def state(self) -> State:
        return self.kept

    def begin(self) -> tuple[AnyArray]:
        return (np.array([self.loss.rows.m]),)

    def value(self, W: FloatArray, width: float) -> tuple[FloatArray, FloatArray] | None:
        with self.held.lock:
            self.held.at = None
            found: tuple[FloatArray, FloatArray] | None = self.held.meet(W, width)
        return found

    def curvature(self, W: FloatArray, width: float,
                  correlated: bool) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """The sum of the rows' Hessians in their scores; that of their traces; squares of the features by these."""
        rows = self.loss.rows
        with self.held.lock:
            self.held.meet(W, width)
            C, traces = self.loss.curvature(self.kept.get("H"))
        squares = mean_square(rows, traces, None) if correlated else column_squares(rows, traces)
        return C, np.array([traces.sum()]), squares

    def product(self, W: FloatArray, width: float, V: FloatArray, basis: FloatArray) -> tuple[AnyArray]:
        out = np.zeros(W.size)
        with self.held.lock:
            self.held.meet(W, width)
            self.loss.product(V, out, basis)
        return (out,)

    def weighted_product(self, V: FloatArray, basis: FloatArray) -> tuple[AnyArray]:
        out = np.zeros(V.size)
        with self.held.lock:
            self.loss.weighted_product(self.kept["H"], V, out, basis)
        return (out,)

    def _duals(self, width: float) -> Any:
        duals: Any = HingeDuals(self.loss, self.y, self.cost)
        duals.x, duals.sigma = self.kept.get("x"), self.kept.get("sigma")
        self.loss.width = width
        return duals

    def move(self, W: FloatArray, t: float, width: float) -> None:
        with self.held.lock:
            duals = self._duals(width)
            duals.sigma = None if duals.sigma is None else duals.sigma.copy()
            duals.move(W, t)
            self.held.at = None
        self.kept["x"], self.kept["sigma"] = duals.x, duals.sigma

    def bend(self, width: float) -> None:
        with self.held.lock:
            duals = self._duals(width)
            duals.bend()
            self.held.at = None
        self.kept["H"] = duals.H

    def flows(self, width: float) -> tuple[AnyArray]:
        with self.held.lock:
            duals = self._duals(width)
            self.held.at = None
            return (duals.flows(duals.rho(False)),)

    def of_duals(self, width: float, u: FloatArray | None, v: FloatArray | None,
                 own: float) -> tuple[FloatArray, FloatArray]:
        """The gradient that the duals make, scaled by u and v, and -loss* with the width `own`."""
        with self.held.lock:
            duals = self._duals(width)
            self.held.at = None
            rho = duals.rho(False)
            if u is not None:
                duals.scaled(rho, u, v)
            out = np.zeros(rho.shape[1] * self.loss.rows.d)
            duals.gradient(rho, out)
        return out, np.array([duals.gained(rho, own)])

    def support(self, W: FloatArray, width: float) -> tuple[AnyArray]:
        scores = self.loss.scores(W)
        own = scores[np.arange(len(scores)), self.y].copy()
        scores[np.arange(len(scores)), self.y] = -np.inf
        return (np.array([np.count_nonzero(own - scores.max(axis=1) < 1 + 5 * width)]),)


class ElsewhereLoss:
    """SmoothLoss over rows elsewhere."""

    def __init__(self, places: Places, width: float) -> None:
        self.places, self.width = places, width
        self.m = int(places.ask("begin")[0][0])
        self.correlated, self.hinge, self.mass = False, 0.0, 0.0

    def value_and_gradient(self, W: FloatArray, out: FloatArray) -> float:
        (value, self.hinge, self.mass), out[:] = self.places.ask("value", W, self.width)
        self.at = np.array(W), self.width
        return float(value)

    def curvature(self, H: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        C, (total,), self.squares = self.places.ask("curvature", *self.at, self.correlated)
        return C, np.array([total])

    def product(self, V: FloatArray, out: FloatArray, basis: FloatArray) -> None:
        out[:] = self.places.ask("product", *self.at, V, basis)[0]

    def weighted_product(self, H: FloatArray | None, V: FloatArray, out: FloatArray, basis: FloatArray) -> None:
        out[:] = self.places.ask("weighted_product", V, basis)[0]


class ElsewhereDuals:
    """HingeDuals over rows elsewhere: their rho stand for the factors (u, v) that these are scaled by."""

    H = sigma = None
    own: float

    def __init__(self, loss: ElsewhereLoss) -> None:
        self.loss, self.places = loss, loss.places

    def move(self, W: FloatArray, t: float, sigma: FloatArray | None = None) -> None:
        self.places.tell("move", np.array(W).reshape(-1), t, self.loss.width)

    def bend(self) -> None:
        self.places.tell("bend", self.loss.width)

    def rho(self, balanced: bool) -> Any:
        return balancing(self.places.ask("flows", self.loss.width)[0]) if balanced else (None, None)

    def gradient(self, rho: Any, out: FloatArray) -> None:
        # What the next call asks for comes with it, by the width that the objective has.
        gradient, self.sums = self.places.ask("of_duals", self.loss.width, *rho, self.own)
        out.reshape(-1)[:] = gradient

    def gained(self, rho: Any, width: float) -> float:
        return float(self.sums[0])


class SummedNewtonFit(NewtonFit):
    """NewtonFit over the rows of run.places."""

    loss: Any
    duals: Any

    @property
    def _on_scores(self) -> bool:
        return False

    @property
    def _in_sweeps(self) -> bool:
        return False

    def _starts(self) -> list[FloatArray]:
        """Duals are where the rows are."""
        return []

    def _loss(self, name: str, width: float) -> Any:
        places = self.run.places
        assert places is not None
        places.recipe = Recipe(name, float(self.cost[0]) / self.problem.size, self.run.threads)
        loss = ElsewhereLoss(places, width)
        loss.correlated = self.problem.rows.d <= min(WHOLE, loss.m)
        return loss

    def _duals(self) -> Any:
        return ElsewhereDuals(self.loss)

    def _sharp(self) -> tuple[None, float]:
        """The curvature is where the rows are."""
        return None, math.inf

    @property
    def _correlated(self) -> bool:
        found: bool = self.loss.correlated
        return found

    def _mean_square(self, weights: FloatArray) -> FloatArray:
        whole: FloatArray = self.loss.squares / self.total
        return whole

    def _column_squares(self, weights: FloatArray) -> FloatArray:
        squares = self.loss.squares
        return (np.diagonal(squares) if squares.ndim > 1 else squares) / self.total

    def _preconditioner(self, curvatures: FloatArray,
                        weights: FloatArray) -> tuple[Callable[[FloatArray, int, int], FloatArray], int] | None:
        self.total = weights.sum() or 1.0
        return super()._preconditioner(curvatures, weights)

    def _newton_direction(self) -> float | None:
        """Between two classes every row's curvature is a multiple of one matrix: what is a preconditioner else, of all
        features' correlations, is the inverse of the Hessian, and no product is asked for."""
        exact = self._correlated and self.problem.n_classes == 2 and not self.hinge
        if not exact or self.regulariser.curvature_of_bias() is not None:
            return super()._newton_direction()
        curvature, weights = self.loss.curvature()
        precondition, size = self._preconditioner(  # type: ignore[misc]  # without products it is always there
            self.regulariser.align(curvature), weights)
        if size < len(self.step):
            return super()._newton_direction()
        basis = self.regulariser.basis
        r = -self.gradient @ basis
        step = precondition(r, 0, size)
        self.step[:] = step @ basis.T
        return dot(r, step) / 2

    def _certify(self) -> None:
        if self.hinge:
            self.duals.own = 0.0 if self._wide else self.width
        super()._certify()

    def _support(self) -> int:
        if not self.hinge:
            return int(self.loss.m)
        assert self.run.places is not None
        return int(self.run.places.ask("support", self.W.reshape(-1), self.loss.width)[0][0])
