"""Rows on disk, for data larger than memory: a folder of NumPy's arrays, that a fit maps."""

from marginlinear.store.opened import Store

__all__ = ["Store"]
