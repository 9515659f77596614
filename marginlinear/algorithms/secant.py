"""Searches along one number, for functions that are known with some error."""

from __future__ import annotations

import math
from typing import NamedTuple

# A slope within the errors of the values changes the one before by no more than this factor.
WARY = 4.0
# What a number becomes that many times, while where the minimum lies is known from one side only.
STRIDE = 8.0
# A slope tells the side where its line leaves the function's error within this part of the bracket.
CLEAR = 0.1


class Secant:
    """Where a rising function that is known with some error is 0."""

    last: tuple[float, float, float] | None

    def __init__(self, slope: float) -> None:
        """`slope` is that of the function, roughly."""
        self.slope, self.low, self.high = slope, -math.inf, math.inf
        self.last = None

    def after(self, x: float, value: float, error: float) -> float:
        """The next place, when the function was found to have this value at x."""
        if value < -error:
            self.low = max(self.low, x)
        elif value > error:
            self.high = min(self.high, x)
        else:
            return x
        if self.last is not None and x != self.last[0]:
            x0, value0, error0 = self.last
            found, trusted = (value - value0) / (x - x0), abs(value - value0) > error + error0
            self.slope = found if trusted and found > 0 else min(max(found, self.slope / WARY), self.slope * WARY)
        self.last = x, value, error
        new = x - value / self.slope if self.slope > 0 else x
        if self.low < new < self.high:
            return float(new)
        return (self.low + self.high) / 2 if self.low < self.high and math.isfinite(self.low + self.high) else x


class Tangent(NamedTuple):
    """The line value + slope (x' - x) through a value at x."""

    x: float
    value: float
    slope: float


class Valley:
    """Where a convex function of a number above 0 is least, of which lines are known that are above it at their x by no
    more than an error, and less the error below it everywhere."""

    low: Tangent | None
    high: Tangent | None

    def __init__(self) -> None:
        self.low, self.high, self.crossed = None, None, False

    def after(self, x: float, value: float, slope: float, error: float) -> float:
        """The next place, when this line was found at x; x itself where the error is too large to go by it."""
        low, high = self.low, self.high
        known = low is not None and high is not None
        width = (x if high is None else high.x) - (0.0 if low is None else low.x)
        if abs(slope) * CLEAR * width <= error:
            return x
        # Where the line is above its value at x by the error: the minimum is on this side of it.
        end = Tangent(max(0.0, x + error / slope), value + error, slope)
        if slope < 0:
            self.low = low = end
        else:
            self.high = high = end
        if low is None or high is None:
            return x * STRIDE if slope < 0 else x / STRIDE
        # A bracket that the others leave large is halved.
        if known and 2 * (high.x - low.x) > width:
            return low.x + (high.x - low.x) / 2
        # Where the slope would be 0 if it rose evenly, and where the lines cross, by turns: one finds the minimum of a
        # parabola, the other a kink.
        self.crossed = not self.crossed
        rise = high.slope - low.slope
        if self.crossed:
            at = low.x + (high.slope * (high.x - low.x) - (high.value - low.value)) / rise
        else:
            at = low.x - low.slope * (high.x - low.x) / rise
        return at if low.x < at < high.x else low.x + (high.x - low.x) / 2
