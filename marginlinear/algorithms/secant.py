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
# Where a line leaves more than this part of the bracket, and of the value, the bracket is halved.
NARROWER = 0.5


class Secant:
    """Where a rising function that is known with some error is 0."""

    last: tuple[float, float, float] | None

    def __init__(self, slope: float, steepest: float = math.inf) -> None:
        """`slope` is that of the function, roughly; nowhere is it more than `steepest`."""
        self.slope, self.steepest, self.last, self.slow = slope, steepest, None, 0
        # (x, value) on either side.
        self.low, self.high = (-math.inf, 0.0), (math.inf, 0.0)

    def after(self, x: float, value: float, error: float) -> float:
        """The next place, when the function was found to have this value at x; x itself where the error is too large
        to go by it."""
        width = self.high[0] - self.low[0]
        if value < -error:
            self.low = max(self.low, (x, value))
        elif value > error:
            self.high = min(self.high, (x, value))
        else:
            return x
        # No such function has both values: the one that was there had a larger error than was thought.
        if self.high[1] - self.low[1] > self.steepest * (self.high[0] - self.low[0]):
            if value > 0:
                self.low = -math.inf, 0.0
            else:
                self.high = math.inf, 0.0
        slow = 0
        if self.last is not None and x != self.last[0]:
            x0, value0, error0 = self.last
            found, trusted = (value - value0) / (x - x0), abs(value - value0) > error + error0
            self.slope = found if trusted and found > 0 else min(max(found, self.slope / WARY), self.slope * WARY)
            self.slope = min(self.slope, self.steepest)
            # At a kink lines come from one side only, and hardly nearer.
            if self.high[0] - self.low[0] > NARROWER * width and abs(value) > NARROWER * abs(value0):
                slow = self.slow + 1
        self.last, self.slow = (x, value, error), slow
        low, high, new = self.low[0], self.high[0], x - value / self.slope if self.slope > 0 else x
        if low < new < high and not (slow > 1 and math.isfinite(width)):
            return float(new)
        return (low + high) / 2 if low < high and math.isfinite(low + high) else x


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
