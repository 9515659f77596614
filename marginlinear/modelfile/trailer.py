"""The trailer of model files, read and written: its first line, its JSON, and the digest that seals the file."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

import numpy as np

from marginlinear import params as P
from marginlinear._version import version
from marginlinear.calibration import Calibration
from marginlinear.data.columns import TableRule
from marginlinear.data.reading import shown
from marginlinear.data.scaling import KINDS, UNIT, Scaling
from marginlinear.modelfile.text import WORD, check_keys, label_kind, parse_json, plain
from marginlinear.problem import Info
from marginlinear.status import CAPS, STATUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from marginlinear.model import Model
    from marginlinear.modelfile.text import Digest, Source

FIRST = b"marginlinear 1"
SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"\}\n\Z')
NUMBER = (int, float)
PLAIN = (str, *NUMBER, type(None))  # and bool, an int
# Of Info, what two equal runs share, and its types.
KEPT = {"status": str, "algorithm": str, "n_iter": int, "n_outer": int, "objective": float,
        "bound": (float, type(None)), "certificate": (float, type(None)), "n_support": int, "tol": float,
        "residual": (float, type(None)), "reason": (str, type(None))}
NOT_FINITE = ("nan", "inf", "-inf")  # JSON has none of them: they are written as words


def write_trailer(model: Model, own: Mapping[str, Any], put: Callable[[bytes], object], digest: Digest) -> None:
    """`own` is what the trailers of this kind of model have of their own; `digest` is that of all that was put."""
    info = None
    if model.info is not None:
        info = {name: plain(getattr(model.info, name)) for name in KEPT}
        info = {name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in info.items()}
    text = json.dumps({
        **own,
        **({} if model.calibration is None else {"calibration": _sorted(model.calibration._asdict())}),
        "info": info,
        "labels": label_kind(model),
        "params": _sorted(model.params),
        **({} if model.scaling is None else {"scaling": model.scaling.to_dict()}),
        "solver": model.solver,
        **({} if model.table is None else {"table": model.table.to_dict()}),
        "version": version,
    }, allow_nan=False)
    put(FIRST + b"\n" + text[:-1].encode("ascii") + b', "sha256": "')
    put(digest.hexdigest().encode("ascii") + b'"}\n')


def _sorted(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in sorted(values.items())}


def read_trailer(source: Source, own: Mapping[str, Any]) -> dict[str, Any] | None:
    """The checked trailer as a dict; None where the file ends without one.

    `own` are the keys that the trailers of this kind of model have of their own, and their types. What is in
    `calibration`, `scaling` and `table` is still to be checked.
    """
    first = source.stream.readline(4 * WORD)
    if not first:
        return None
    source.line += 1
    if first != FIRST + b"\n":
        if FIRST.startswith(first):
            raise source.cut("in its trailer")
        if re.fullmatch(rb"marginlinear [0-9]+\n", first):
            raise source.error(f"marginlinear {version} does not know the trailer's version: use a newer one")
        raise source.damaged(f"{shown(first)} after the last row")
    source.digest.update(first)
    line = source.stream.readline()
    source.line += 1
    if not line.endswith(b"\n"):
        raise source.cut("in its trailer")
    seal = SEAL.search(line)
    if not seal:
        raise source.damaged("the line does not end with its sha256")
    source.digest.update(line[: seal.start(1)])
    if source.digest.hexdigest().encode() != seal[1]:
        # To use an edited file on purpose, cut its last two lines: it is read as LIBLINEAR's or LIBSVM's then.
        raise source.damaged("sha256 does not match, the file was changed", seal.start(1) + 1)
    if source.stream.read(1):
        source.line += 1
        raise source.damaged("text after the trailer")
    trailer: dict[str, Any] = parse_json(source, line, source.line, 1)
    optional: dict[str, Any] = {key: dict for key in ("calibration", "scaling", "table") if key in trailer}
    check_keys(source, "trailer", trailer, {
        **own, **optional, "info": (dict, type(None)), "labels": str, "params": dict, "solver": str, "version": str,
        "sha256": str})
    _check_params(source, trailer["params"])
    trailer["info"] = _info(source, trailer["info"])
    return trailer


def _check_params(source: Source, values: dict[str, Any]) -> None:
    """DataError for a value outside its parameter's domain; None is one that was not given."""
    check_keys(source, "params", values, dict.fromkeys(values, PLAIN))
    known = {p.name: p for p in (*P.OWN, *P.RUN, *P.AROUND)}
    for name, value in values.items():
        if name in known and value is not None:
            _check(source, "params", known[name]._replace(relative=False), value)


def _check(source: Source, what: str, param: P.Param, value: Any) -> None:
    try:
        param.check(value)
    except ValueError:
        raise source.damaged(f"{what}: {param.name} is {shown(value)}, outside {param.allowed}") from None


def _info(source: Source, entries: Any) -> Info | None:
    if entries is None:
        return None
    # Older files have none.
    entries.setdefault("reason", None)
    check_keys(source, "info", entries, dict.fromkeys(KEPT, PLAIN))
    values = {}
    kind: Any
    for name, kind in KEPT.items():
        value = entries[name]
        if kind is not str and value in NOT_FINITE:
            value = float(value)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise source.damaged(f"info: {name} is {shown(value)}")
        if kind is int and value < 0:
            raise source.damaged(f"info: {name} is {value}, below 0")
        values[name] = value
    _check(source, "info", P.TOL, values["tol"])
    if values["status"] not in STATUSES:
        raise source.damaged(f"info: status is {shown(values['status'])}")
    if values["reason"] not in (None, *CAPS):
        raise source.damaged(f"info: reason is {shown(values['reason'])}")
    return Info(**values, seconds=math.nan)


def calibration_of(source: Source, entries: Any, n_classes: int, multilabel: bool = False) -> Calibration | None:
    """The Calibration that the trailer holds; None where `entries` are."""
    if entries is None:
        return None
    check_keys(source, "calibration", entries, {"kind": str, "offset": (*NUMBER, list), "slope": (*NUMBER, list)})
    slope, offset = (tuple(map(float, _numbers(source, "calibration", entries, name)))
                     if isinstance(entries[name], list) else float(entries[name]) for name in ("slope", "offset"))
    try:
        return Calibration(entries["kind"], slope, offset).check(n_classes, multilabel)
    except ValueError as error:
        raise source.damaged(f"calibration: {error}") from None


def table_of(source: Source, entries: Any, n_features: int) -> TableRule:
    """The rule of columns that the trailer holds."""
    try:
        rule = TableRule.of(entries)
    except ValueError as error:
        raise source.damaged(f"table: {error}") from None
    if rule.n_features != n_features:
        raise source.damaged(f"table: {rule.n_features} features, of a model of {n_features}")
    return rule


def scaling_of(source: Source, entries: Any, n_features: int) -> Scaling:
    """The Scaling that the trailer holds."""
    kind = entries["kind"]
    if kind not in KINDS:
        raise source.error(f"scaling: {shown(kind)} is not known: use a newer marginlinear")
    if kind == UNIT:
        check_keys(source, "scaling", entries, {"kind": str})
        return Scaling(UNIT)
    check_keys(source, "scaling", entries, {"kind": str, "least": list, "lower": NUMBER, "most": list, "upper": NUMBER})
    least, most, ends = (np.array(numbers, dtype=np.float64) for numbers in (
        _numbers(source, "scaling", entries, "least"), _numbers(source, "scaling", entries, "most"),
        [entries["lower"], entries["upper"]]))
    # All are finite, as the numbers of JSON are.
    if not (len(least) == len(most) == n_features and ends[0] < ends[1] and (least <= most).all()):
        raise source.damaged(f"scaling: the {n_features} ranges do not fit each other")
    try:
        return Scaling(kind, least, most, *ends.tolist())
    except ValueError as error:
        raise source.damaged(f"scaling: {error}") from None


def _numbers(source: Source, what: str, entries: Any, name: str) -> list[Any]:
    """The list of numbers, none of which is a bool."""
    if not all(type(value) in NUMBER for value in entries[name]):
        raise source.damaged(f"{what}: {name} is not a list of numbers")
    found: list[Any] = entries[name]
    return found
