"""Grids of parameters: the values that a search tries, by name. No NumPy here: the command line is read with it.

As text, NAME=VALUES,NAME=VALUES,... where VALUES are separated by commas, each a word, a number or a range:

    C=log2:-5:2:9        2^-5, 2^-3, ..., 2^9
    C=log10:-2:1:2       0.01, 0.1, ..., 100
    mu=0.2:0.2:0.8       0.2, 0.4, 0.6, 0.8: start, step, stop
    loss=logistic,softmax
    lambda1=log10:-3:1:0mC     0.001, 0.01, 0.1 and 1 times rows and C

The word `paper` stands for what the experiments of the method's paper chose from.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.errors import did_you_mean
from marginlinear.liblinear import SEARCHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from decimal import Decimal
    from typing import Any, TypeAlias

    from marginlinear.params import Param
    from marginlinear.registry import Method

    Grid: TypeAlias = dict[str, list[Any]]

BASES = {"log2": 2, "log10": 10}
# The grid of a method's paper.
PAPER = "paper"
# Points of a search at most: each is several fits.
MOST = 100_000


def default_grid(method: Method) -> str:
    """The `grid` that the parameters of a method declare, as text: that of C alone where it has C."""
    axes = [p for p in method.params if p.grid]
    if not axes:
        raise ValueError(f"{method.name} has no C, and no other grid by default: name what to search, such as "
                         f"{method.params[0].name}=0.1,0.2,0.5")
    cost = [p for p in axes if p.name == P.C.name]
    return ",".join(f"{p.name}={p.grid}" for p in cost or axes)


def doubles(method: Method, params: Mapping[str, Any]) -> bool:
    """Whether a search without a grid tries what LIBLINEAR's -C does (`doubling`), in place of `default_grid`: of its
    solvers, and of others from a C that is given."""
    has_cost = P.C.name in {p.name for p in method.params}
    return has_cost and (params.get(P.C.name) is not None or own_range(method, params))


def own_range(method: Method, params: Mapping[str, Any]) -> bool:
    """Whether LIBLINEAR's -C has a range of its own for this problem."""
    return method.liblinear in SEARCHED and params.get(P.KERNEL.name) is None


def parse_grid(text: str, method: Method) -> Grid:
    """{name: values} of a grid as text; ValueError names the part that is wrong, and the fix."""
    if text.strip() == PAPER:
        text = paper_grid(method)
    parts: list[tuple[str, list[str]]] = []
    for piece in text.split(","):
        name, equals, values = piece.partition("=")
        if equals:
            parts.append((name.strip(), [values]))
        elif parts:
            parts[-1][1].append(piece)
        else:
            raise ValueError(f"grid {text!r}: {piece!r} has no name: give NAME=VALUES, such as C=log2:-5:2:9")
    grid: Grid = {}
    for name, pieces in parts:
        param = _axis(name, method)
        if param.name in grid:
            raise ValueError(f"grid {text!r}: {name} stands there twice")
        words = [word for piece in pieces for word in _words(name, piece.strip(), param.relative)]
        try:
            grid[param.name] = _distinct(param, [param.parse(word) for word in words])
        except ValueError as error:
            raise ValueError(f"grid {text!r}: {error}") from None
    return grid


def paper_grid(method: Method) -> str:
    """The `grid` of the method's paper; ValueError where none is known."""
    if method.paper is None or not method.paper.grid:
        raise ValueError(f"grid {PAPER!r}: what the paper of {method.name} chose from is not known: give NAME=VALUES, "
                         "such as C=log2:-5:2:9")
    return method.paper.grid


def parse_grids(texts: Iterable[str], method: Method) -> Grid:
    """`parse_grid` of several texts together, each with names of its own."""
    grid: Grid = {}
    for text in texts:
        found = parse_grid(text, method)
        twice = next((name for name in found if name in grid), None)
        if twice is not None:
            raise ValueError(f"grid {text!r}: another grid names {twice.rstrip('_')} too: give all its values in one")
        grid |= found
    return grid


def check_grid(grid: Mapping[str, Iterable[Any]] | str, method: Method) -> Grid:
    """{name: values} with every value checked; `grid` is text, or a dict of a name and its values."""
    if isinstance(grid, str):
        return parse_grid(grid, method)
    if not isinstance(grid, dict):
        raise P.refusal("grid", grid, "a dict of names and lists of values, or the text of --grid")
    checked = {}
    for name, values in grid.items():
        param = _axis(name, method)
        if isinstance(values, str) or not hasattr(values, "__iter__"):
            raise ValueError(f"grid: {name} = {values!r} is no list of values")
        checked[param.name] = _distinct(param, [param.check(value) for value in values])
    return checked


def points_of(grid: Grid, method: Method, fixed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations, a list of dicts, the last name's values changing first.

    ValueError for a name that is among the `fixed` parameters too, and for values that do not go together.
    """
    for name in grid:
        if fixed.get(name) is not None:
            raise ValueError(f"{name.rstrip('_')} is given as {fixed[name]!r} and by the grid: give it once")
    count = math.prod(map(len, grid.values()))
    if count > MOST:
        raise ValueError(f"grid: {count} points, more than {MOST}: give fewer values")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    for point in points:
        P.resolve(method.takes, {**fixed, **point})
    return points


def chain_axis(grid: Grid, method: Method) -> str | None:
    """The name along which each fit goes on from the last one: C or lambda, else the first real number; or None.

    None too for a method whose answer depends on where it starts.
    """
    if not method.path:
        return None
    axes = [p.name for p in method.params if p.type is float and len(grid.get(p.name, ())) > 1]
    return next((name for name in axes if name in (P.C.name, P.LAMBDA.name)), axes[0] if axes else None)


def chains_of(points: Sequence[Mapping[str, Any]], axis: str | None) -> list[list[int]]:
    """Lists of the numbers of points that differ on one axis alone, in its ascending order."""
    chains: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    for p, point in enumerate(points):
        chains.setdefault(tuple((n, v) for n, v in point.items() if n != axis), []).append(p)

    def rank(p: int) -> tuple[bool, float]:
        return _rank(0 if axis is None else points[p].get(axis, 0))

    return [sorted(chain, key=rank) for chain in chains.values()]


def shown(point: Mapping[str, Any]) -> str:
    """A point as `C = 16 mu = 0.4`."""
    return " ".join(f"{name.rstrip('_')} = {value:.6g}" if isinstance(value, float) else
                    f"{name.rstrip('_')} = {value}" for name, value in point.items())


def _axis(name: str, method: Method) -> Param:
    axes: tuple[Param, ...] = (*method.takes, P.BIAS)
    for param in axes:
        if name in (param.name, param.name.rstrip("_"), param.flag):
            return param
    known = [p.name.rstrip("_") for p in axes]
    letters = {p.letter: own for p, own in zip(axes, known, strict=True) if p.letter}
    near = did_you_mean(letters.get(name, name).lower(), {own.lower(): own for own in known})
    raise ValueError(f"grid: {name!r} is not a parameter of {method.name}{near}: give one of {', '.join(known)}")


def _rank(value: float | str) -> tuple[bool, float]:
    return isinstance(value, str), P.amount(value)


def _distinct(param: Param, values: list[Any]) -> list[Any]:
    """The values without repetitions, numbers in ascending order: of equal scores the first one wins."""
    if not values:
        raise ValueError(f"grid: {param.name} has no values")
    values = list(dict.fromkeys(values))
    return values if param.type is str else sorted(values, key=_rank)


def _words(name: str, piece: str, relative: bool = False) -> list[str]:
    """The values, as text, that one piece of a grid stands for; `relative`: it may have a unit."""
    from decimal import Decimal, InvalidOperation

    if ":" not in piece:
        return [piece]
    unit = P.RELATIVE if relative and P.is_relative(piece) else ""
    ends = piece.removesuffix(unit).split(":")
    base = ends.pop(0) if piece.startswith("log") else None
    try:
        start, step, stop = (Decimal(end) for end in ends)
    except (InvalidOperation, ValueError):
        start = step = stop = Decimal("nan")
    finite = start.is_finite() and step.is_finite() and stop.is_finite()
    if not finite or base not in (None, *BASES) or step == 0 or (stop - start) / step < 0:
        raise ValueError(f"grid: {name} = {piece!r} is no range: give start:step:stop, log2:start:step:stop or "
                         "log10:start:step:stop, such as log2:-5:2:9")
    count = math.floor((stop - start) / step) + 1
    if count > MOST:
        raise ValueError(f"grid: {name} = {piece!r} has {count} values, more than {MOST}: give a larger step")
    numbers = (start + i * step for i in range(count))
    return [(_plain(number) if base is None else _power(BASES[base], number)) + unit for number in numbers]


def _plain(number: Decimal) -> str:
    return str(int(number)) if number == number.to_integral_value() else str(number)


def _power(base: int, exponent: Decimal) -> str:
    # Through text 10^-2 is the double nearest to 0.01, which a power need not be.
    try:
        value = float(f"1e{_plain(exponent)}") if base == 10 and exponent == int(exponent) else base ** float(exponent)
    except OverflowError:
        value = math.inf
    return str(int(value)) if value.is_integer() else repr(value)
