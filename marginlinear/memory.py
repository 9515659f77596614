"""The machine's memory, and sizes of memory in words."""

from __future__ import annotations

import math
import os
import re

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def memory() -> float:
    """Bytes of the machine's memory, or infinity where it does not say."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return math.inf


def bytes_of(size: object, name: str) -> int:
    """Bytes that a size such as 500_000_000, "500M" or "4G" stands for; ValueError names the parameter."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", str(size).upper())
    count = float(found[1]) * UNITS[found[2]] if found and not isinstance(size, bool) else 0.0
    if not 1 <= count < math.inf:
        raise ValueError(f"{name} = {size!r} is not allowed: give bytes, or a number with K, M, G or T, as in 4G")
    return int(count)
