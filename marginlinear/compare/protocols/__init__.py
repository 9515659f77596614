"""The tables of the papers, each as a preset: sets, splits, scaling, grids, rivals, and the published figures.

A paper a file; `margin-compare --protocol NAME --data DIR` makes the table, as far as its sets are in the folder.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marginlinear.compare.protocols.preset import Protocol

MODULES = ("ldm2014", "mcodm2017", "msvmav2022", "m3svm2024", "lpmcsvm2015")


def protocols() -> dict[str, Protocol]:
    """All of them by name, in the order of the papers."""
    found: dict[str, Protocol] = {}
    for name in MODULES:
        found |= {one.name: one for one in import_module(f"{__name__}.{name}").PROTOCOLS}
    return found


def get(name: str) -> Protocol:
    """The Protocol called so; ValueError lists what there is."""
    known = protocols()
    if name not in known:
        raise ValueError(f"protocol = {name!r} is not known: give {', '.join(known)}")
    return known[name]
