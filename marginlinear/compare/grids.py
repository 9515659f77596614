"""The values that a comparison tries of each parameter, with the reason: as the text of `margin-train --grid`.

A method's grid has an axis for each of its parameters that is listed here, and one for gamma where the kernel has it.
What is not listed, or is given a single value, does not vary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marginlinear import params as P
from marginlinear.selection.grid import parse_grids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from marginlinear.registry import Method

AXES: dict[str, tuple[str, str]] = {
    P.C.name: (P.C.grid, "what margin-train -C tries, by factors of 4; smaller values are chosen at times, and change "
               "little on the mean (docs/evidence.md)"),
    P.MU.name: ("0,0.2,0.5,0.8", "0 is the convex end; 0.8 is the default"),
    P.THETA.name: ("0,0.2,0.5", "no band, the default, and one of half the margin"),
    P.LAMBDA1.name: ("0,0.01mC,0.1mC,1mC", "none, which the default is within noise, and in units of rows and C from "
                     "where it hardly acts to where margins are alike"),
    P.LAMBDA2.name: ("0,0.1mC,0.5mC", "none, and a pull on every row of a tenth and half of the hinge's"),
    P.NU.name: ("0.05,0.1,0.2,0.3,0.5", "parts of the rows: noise of 5 % to the default"),
    P.MARGIN_BOUND.name: ("1.5,2,4", "the default, half as far above a margin of 1, and three times"),
    P.EPSILON.name: ("0.01,0.1,0.5", "the default, and next to none and far more of it"),
    P.NORM.name: ("1,1.25,1.5,2", "the ends of the domain of lpmcsvm and two between; m3svm and ism3 keep their 4"),
    P.ALPHA.name: (P.ALPHA.grid, "what margin-train -C tries"),
    P.BETA.name: (P.BETA.grid, "what margin-train -C tries"),
}
GAMMA = ("log2:-9:2:1", "of the rows as --scale makes them: from nearly linear to nearly alone, by factors of 4")


def grid_of(method: Method, fixed: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The method's axes, without the names that are `fixed`."""
    texts = []
    for param in method.takes:
        if param.name in fixed or (param.replaces and param.replaces in fixed):
            continue
        if param.name == P.GAMMA.name:
            if fixed.get(P.KERNEL.name) in P.GAMMA.needs[1]:
                texts.append(f"{param.name}={GAMMA[0]}")
        elif param.name in AXES and _within(param, AXES[param.name][0]) and not _replaced(param, method, fixed):
            texts.append(f"{param.name}={AXES[param.name][0]}")
    return parse_grids(texts, method)


def _within(param: P.Param, text: str) -> bool:
    """Of norm, which two kinds of methods have: whether it is the one whose domain ends."""
    return param.name != P.NORM.name or not param.domain.endswith("inf)")


def _replaced(param: P.Param, method: Method, fixed: Mapping[str, Any]) -> bool:
    """Whether another name of the same thing is fixed, as lambda of C."""
    return any(other.replaces == param.name and other.name in fixed for other in method.takes)
