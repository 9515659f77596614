"""Where a fit begins that goes on from the duals of one at other costs, and, along a path, from those before that.

Scaled by the costs, duals keep -a_i/c_i = phi_i'(g_i). That is right where the loss is a straight line, as the hinge's
below its knot: there a dual is at its bound. Elsewhere, where the loss has little left to say, as at large C, duals
hardly grow with c: scaled, their weights would be too long by far. Nor do all go the same way. Hence, beside the duals
at their bounds, which stay there, the combination of the others,

    the duals;  those extrapolated, a (a/a_before)^e, e = log(c_new/c)/log(c/c_before);  those before

that has the best D, which is quadratic, or nearly so, as long as no dual leaves its piece of the loss: with weights U_0
of the duals at their bounds,

    D(t) = <t, l> - 1/2 ||U_0 + sum_j t_j U_j||^2 - 1/2 sum_i h_i (sum_j t_j a_ij)^2

It is cut off where it leaves the range of the duals; then the best point between it and all old duals, at their own
best scale, is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from marginlinear._core.block_cd import BlockCD
    from marginlinear._core.margin_cd import MarginCD
    from marginlinear._typing import FloatArray, State

# Directions that are the sums of others, but for rounding, are left out.
DEPENDENT = 1e-10
# A dual that has this part of its bound is there but for rounding.
AT_BOUND = 1 - 1e-12
# The place in a table of what tells softplus from pieces.
SOFT = -1


def resume(engine: Any, state: State, stay: bool = False) -> None:
    """Go on from the `state()` of an engine on the same rows; where a row's cost changed, from the best mix of duals,
    or, to `stay` at the weights, from these duals: not of a loss with kinks, many of which are to be at their bounds.

    Of a loss with named rivals, which is not convex, what counts is J, which at the weights of now is at most so many
    times what it was as the costs are: a fit with a centre goes on from them, and from these duals.

    With a spread of margins, whose duals are those of all rows together, from scaled duals. Of weights alone, W, from
    what their margins say that the duals are, -c phi'(g), at the scale of the best D.
    """
    if "duals" not in state:
        duals, cost = -engine.slopes_at(engine.margins_of(state["W"]), 0.0), np.asarray(engine.cost)
        engine.restart_from(*best_start(MarginMix(engine, duals, cost, None)), None)
        return
    duals, cost = np.asarray(state["duals"]), np.asarray(state["cost"])
    changed = not np.array_equal(engine.cost, cost)
    mix: type[MarginMix | BlockMix]
    if engine.n_classes > 1:
        mix = BlockMix
    else:
        mix, changed = MarginMix, changed and engine.spread == 0
    if changed:
        engine.take_references(state)
        if mix is BlockMix and engine.named and state["kappa"] > 0:
            engine.resume(state)
            return
        before = {"duals": duals, "cost": cost}
        if stay and mix is MarginMix and not engine.nonsmooth:
            duals = MarginMix.within(engine, duals)
            engine.restart_from(duals, engine.weights_of(duals), before)
        else:
            engine.restart_from(*best_start(mix(engine, duals, cost, state.get("before"))), before)
    else:
        engine.resume({**state, "duals": mix.scaled(engine, duals, cost)})


def best_start(mix: MarginMix | BlockMix) -> tuple[FloatArray, FloatArray]:
    """(duals, U): the best mix of the duals of another cost, and of those before, with its weights."""
    engine, duals, parts, held = mix.engine, mix.duals, mix.parts, mix.held
    sqnorm_of = engine.iterates.sqnorm_of

    def inside(duals: FloatArray, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Cut off, with the weights that go with it: a pass over the rows that are cut."""
        cut = mix.cut(duals)
        return cut, U + engine.weights_of(cut - duals)

    images = [engine.weights_of(part) for part in parts]
    fixed = engine.weights_of(held) if held.any() else None
    U = images[0] if len(parts) and np.array_equal(parts[0], duals) else engine.weights_of(duals)
    scale = best_mix([U], sqnorm_of, *mix.values(duals[np.newaxis]))
    old, here = inside(scale * duals, scale * U)
    shares = best_mix(images, sqnorm_of, *mix.values(parts), fixed) if len(parts) else np.zeros(0)
    mixed = sum((t * image for t, image in zip(shares, images, strict=True)),
                np.zeros_like(U) if fixed is None else fixed)
    new, there = inside(mix.combined(shares), mixed)
    step = best_step(here, there, sqnorm_of, *mix.values(np.array([old, new])))
    return mix.cut(old + step * (new - old)), here + step * (there - here)


class MarginMix:
    """Duals a_i of one margin a row: those at the ends of their range are `held`, `parts` are of the others."""

    def __init__(self, engine: MarginCD, duals: FloatArray, cost: FloatArray, before: State | None) -> None:
        self.engine, self.duals, self.cost = engine, duals, np.asarray(engine.cost)
        force = duals / cost
        self._find_pieces(force)
        low, high = self.range_of(engine)
        self.bounds = self.cost * low, self.cost * high
        self.held = np.where((force <= low) | (force >= high), force * self.cost, 0.0)
        parts = [duals]
        if before is not None:
            pair = np.asarray(before["duals"]), np.asarray(before["cost"])
            parts += [extrapolated(duals, cost, pair, self.cost), pair[0]]
        parts = [np.where(self.held == 0, part, 0.0) for part in parts]
        self.parts = np.array([part for part in parts if part.any()]).reshape(-1, len(duals))

    @staticmethod
    def range_of(engine: MarginCD) -> tuple[FloatArray, FloatArray]:
        """The least and the largest -phi' of each row."""
        tables, group = np.asarray(engine.tables), np.asarray(engine.group)
        quad, slope, soft = tables[:, 2:5] + 2 * engine.spread, tables[:, 5:8], tables[:, SOFT] > 0
        low = np.where(soft, 0.0, np.where(quad[:, 2] == 0, -slope[:, 2], -np.inf))
        high = np.where(soft, 1.0, np.where(quad[:, 0] == 0, -slope[:, 0], np.inf))
        return low[group], high[group]

    @staticmethod
    def scaled(engine: MarginCD, duals: FloatArray, cost: FloatArray) -> FloatArray:
        """Duals of another cost, by its ratio, within their range."""
        return MarginMix.within(engine, duals * (np.asarray(engine.cost) / cost))

    @staticmethod
    def within(engine: MarginCD, duals: FloatArray) -> FloatArray:
        """Duals within the range of -c phi', which the loss of other parameters may not share."""
        (low, high), cost = MarginMix.range_of(engine), np.asarray(engine.cost)
        return np.clip(duals, cost * low, cost * high)

    def cut(self, duals: FloatArray) -> FloatArray:
        """`within`, of these costs."""
        found: FloatArray = np.clip(duals, *self.bounds)
        return found

    def combined(self, shares: FloatArray) -> FloatArray:
        found: FloatArray = self.held + shares @ self.parts
        return found

    def values(self, parts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(<l, a>, sum_i h_i a_ij a_il) of the duals `parts`."""
        return parts @ self.knot, (parts * (self.curvature / self.cost)) @ parts.T

    def _find_pieces(self, force: FloatArray) -> None:
        """(l, h) of D's terms l a - h a^2/(2 c) for rows where -phi' is `force`: at a knot h = 0; of softplus, whose D
        is not quadratic, those about the force."""
        self.knot, self.curvature = np.zeros(len(force)), np.zeros(len(force))
        for number, table in enumerate(np.asarray(self.engine.tables)):
            knots, quad, slope = table[:2], table[2:5], table[5:8]
            # phi' where each piece ends and the next begins.
            edges = [part[j] * knots[i] + slope[j] for i in range(2) for part, j in ((quad, i), (quad, i + 1))]
            rows = np.flatnonzero(np.asarray(self.engine.group) == number)
            if table[SOFT]:
                rows = rows[(force[rows] > 0) & (force[rows] < 1)]
                share = force[rows]
                self.curvature[rows] = 1 / (share * (1 - share))
                self.knot[rows] = np.log((1 - share) / share) + self.curvature[rows] * share
                continue
            place = np.searchsorted(edges, -force[rows], side="left")
            place[-force[rows] == edges[0]] = 1 if quad[0] == 0 else 0
            piece = place // 2
            inside = (place % 2 == 0) & (quad[piece] > 0)
            self.knot[rows] = np.where(inside, -slope[piece] / np.where(inside, quad[piece], 1.0),
                                       knots[np.minimum(piece, 1)])
            self.curvature[rows] = np.where(inside, 1 / np.where(inside, quad[piece], 1.0), 0.0)
        if self.engine.targets is not None:
            # A margin is less by the target.
            self.knot += np.asarray(self.engine.targets)


class BlockMix:
    """Duals (alpha, beta) of one block a row: alpha_i with alpha_iy at its bound are `held`; alpha, beta are parts."""

    def __init__(self, engine: BlockCD, duals: FloatArray, cost: FloatArray, before: State | None) -> None:
        self.engine, self.y, self.every = engine, np.asarray(engine.y), np.arange(engine.rows.m)
        self.cost, (alpha, beta) = np.asarray(engine.cost), engine.split(duals)
        self.low, self.bound, self.scale, self.high, self.beta_scale = engine.dual_pieces(engine.cost)
        none, flat = np.zeros_like(alpha), np.zeros_like(beta)
        upper = (self.beta_scale > 0).all()
        if not upper:
            beta = flat
        parts = [(alpha, flat), (none, beta)]
        if before is not None:
            (first, first_beta), first_cost = engine.split(before["duals"]), np.asarray(before["cost"])
            further = extrapolated(alpha, cost[:, np.newaxis], (first, first_cost[:, np.newaxis]),
                                   self.cost[:, np.newaxis])
            parts += [(further, flat), (first, flat)]
            if upper:
                parts += [(none, extrapolated(beta, cost, (first_beta, first_cost), self.cost)), (none, first_beta)]
        at_bound = (alpha[self.every, self.y] >= AT_BOUND * engine.dual_pieces(cost)[1])[:, np.newaxis]
        self.duals = joined(alpha, beta)
        self.held = joined(np.where(at_bound, alpha * (self.cost / cost)[:, np.newaxis], 0.0), flat)
        parts = [(np.where(at_bound, 0.0, a), b) for a, b in parts]
        self.parts = np.array([joined(self._balanced(a), b) for a, b in parts if a.any() or b.any()])

    @staticmethod
    def scaled(engine: BlockCD, duals: FloatArray, cost: FloatArray) -> FloatArray:
        """Duals of the same cost."""
        return duals

    def cut(self, duals: FloatArray) -> FloatArray:
        """Duals within their range."""
        alpha, beta = self.engine.split(self.engine.nearest(duals))
        alpha = self._balanced(np.minimum(alpha, 0))
        top = alpha[self.every, self.y]
        with np.errstate(invalid="ignore"):
            alpha *= np.where(top > self.bound, self.bound / np.maximum(top, self.bound), 1.0)[:, np.newaxis]
        return joined(alpha, np.maximum(beta, 0))

    def combined(self, shares: FloatArray) -> FloatArray:
        return sum((t * part for t, part in zip(shares, self.parts, strict=True)), self.held)

    def values(self, parts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(<l, a>, sum_i h_i a_ij a_il) of the duals `parts`."""
        split = [self.engine.split(part) for part in parts]
        left, right = np.array([alpha[self.every, self.y] for alpha, _ in split]), np.array([beta for _, beta in split])
        linear, curved = self.low * left.sum(axis=1), (left / self.scale) @ left.T
        if (self.beta_scale > 0).all():
            linear -= right @ self.high
            curved += (right / self.beta_scale) @ right.T
        return linear, curved

    def _balanced(self, alpha: FloatArray) -> FloatArray:
        """alpha with alpha_iy = -sum of the others."""
        alpha = alpha.copy()
        alpha[self.every, self.y] = 0
        alpha[self.every, self.y] = -alpha.sum(axis=1)
        return alpha


def joined(alpha: FloatArray, beta: FloatArray) -> FloatArray:
    """As an engine has them, flat."""
    return np.concatenate((alpha.ravel(), beta))


def extrapolated(duals: FloatArray, cost: FloatArray, before: tuple[FloatArray, FloatArray],
                 new: FloatArray) -> FloatArray:
    """duals (duals/before)^e, at most new/cost times as large; where the signs differ, or `before` is 0, duals.

    `cost` and `new` have the shape of duals, or one that goes with it; `before` is a pair of duals and their costs.
    """
    earlier, first = before
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = duals / earlier
        exponent = np.log(new / cost) / np.log(cost / first)
        factor = np.clip(ratio**exponent, 0.0, np.maximum(1.0, new / cost))
    return np.where((ratio > 0) & np.isfinite(ratio) & np.isfinite(factor), factor, 1.0) * duals


def best_step(here: FloatArray, there: FloatArray, sqnorm_of: Callable[[FloatArray], float], linear: FloatArray,
              curved: FloatArray) -> float:
    """s in [0, 1] for the best D between duals with the weights `here` and those `there`. `linear` are their <l, a>,
    `curved` the matrix of sum_i h_i a_ij a_il. Between duals that are feasible all are."""
    change = there - here
    # D(here + s (there - here)) = D(here) + s slope - s^2/2 bend
    bend = sqnorm_of(change) + curved[0, 0] - 2 * curved[0, 1] + curved[1, 1]
    along = (sqnorm_of(there) - sqnorm_of(here) - sqnorm_of(change)) / 2
    slope = linear[1] - linear[0] - along - curved[0, 1] + curved[0, 0]
    if slope >= bend:
        return 1.0
    # Both may be 0 but for rounding.
    return max(0.0, slope / bend) if bend > 0 else 0.0


def best_mix(images: Sequence[FloatArray], sqnorm_of: Callable[[FloatArray], float], linear: FloatArray,
             curved: FloatArray, held: FloatArray | None = None) -> FloatArray:
    """t that maximises D(t): `images` are the U_j, `linear` is l, `curved` the matrix of sum_i h_i a_ij a_il, `held`
    is U_0, or None where that is 0."""
    H, linear = np.array(curved, dtype=np.float64), np.array(linear, dtype=np.float64)
    squares = [sqnorm_of(image) for image in images]
    fixed = 0.0 if held is None else sqnorm_of(held)
    for i, image in enumerate(images):
        H[i, i] += squares[i]
        for j in range(i):
            product = (sqnorm_of(image + images[j]) - squares[i] - squares[j]) / 2
            H[i, j] += product
            H[j, i] += product
        if held is not None:
            linear[i] -= (sqnorm_of(image + held) - squares[i] - fixed) / 2
    size = np.sqrt(np.diagonal(H))
    size[size == 0] = 1.0
    t: FloatArray = np.linalg.lstsq(H / np.outer(size, size), linear / size, rcond=DEPENDENT)[0] / size
    return t
