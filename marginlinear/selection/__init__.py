"""Cross-validation, and the search for parameters by it.

Names are imported when first used: a command line is read with `grid` alone, without NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marginlinear.selection.cross_validation import (
        CrossValidation,
        Fold,
        Search,
        cross_validate,
        out_of_fold,
        search,
    )

__all__ = ["CrossValidation", "Fold", "Search", "cross_validate", "out_of_fold", "search"]


# To a type checker it would stand for any name.
if not TYPE_CHECKING:
    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'marginlinear.selection' has no attribute '{name}'")
        from marginlinear.selection import cross_validation

        return getattr(cross_validation, name)
