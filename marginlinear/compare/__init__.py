"""Comparisons of methods: nested selection on repeated splits, and tests that know what splits share.

Names are imported when first used: a command line is read without NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marginlinear.compare.api import compare, forecast
    from marginlinear.compare.foresight import Forecast
    from marginlinear.compare.result import Comparison

_HOME = {"compare": "marginlinear.compare.api", "forecast": "marginlinear.compare.api",
         "Comparison": "marginlinear.compare.result", "Forecast": "marginlinear.compare.foresight"}
__all__ = ["Comparison", "Forecast", "compare", "forecast"]


# To a type checker it would stand for any name.
if not TYPE_CHECKING:
    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module 'marginlinear.compare' has no attribute '{name}'")
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
