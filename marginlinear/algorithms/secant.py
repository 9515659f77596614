"""The secant for functions that are known with some error."""

from __future__ import annotations

import math

# A slope within the errors of the values changes the one before by no more than this factor.
WARY = 4.0


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
