"""The journal of a comparison, from which it can be resumed: JSON, a line for what it is, one for each set and method
as they come, and one for each trial as it ends.

    {"comparison": {"marginlinear": "1.0", "design": {...}, "metrics": ["accuracy"], ...}}
    {"set": "vehicle", "data": "5f3a..."}
    {"method": "odm", "is": {"method": "odm", "fixed": {...}, "grid": {...}}}
    {"trial": {"set": "vehicle", "method": "odm", "split": 0, "scores": {"accuracy": 0.8}, ...}}

Sets, methods and splits may be added: what is there is not done again.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from marginlinear.atomic import continuing
from marginlinear.data.reading import JSONFault, json_of, shown
from marginlinear.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from marginlinear._typing import PathLike

# What a trial has, and the types of its values.
FIELDS: dict[str, tuple[type, ...]] = {
    "set": (str,), "method": (str,), "split": (int,), "train": (int,), "test": (int,), "params": (dict,),
    "inner": (float, int, type(None)), "scores": (dict,), "status": (str, type(None)),
    "certificate": (float, int, type(None)), "allowed": (float, int, type(None)),
    "objective": (float, int, type(None)), "n_iter": (int, type(None)), "certified": (bool,), "fits": (int,),
    "uncertified": (int,), "seconds": (dict,), "reason": (str, type(None)), "replicates": (dict,),
}
# What it may have, beside.
MARGINS = "margins"


STEPS = ("select", "fit", "predict")


def trial_fault(trial: Any) -> str | None:
    """What is wrong with a trial that was read; None for nothing."""
    if not isinstance(trial, dict) or trial.keys() - {MARGINS} != FIELDS.keys():
        return f"not a trial: {', '.join(FIELDS)} are needed"
    for name, kinds in FIELDS.items():
        if type(trial[name]) not in kinds:
            return f"{name} is {shown(trial[name])}"
    if any(not isinstance(value, (str, int, float, type(None))) for value in trial["params"].values()):
        return f"params are {shown(trial['params'])}"
    lists = [*trial["replicates"].values(), trial.get(MARGINS, [])]
    if not all(isinstance(values, list) for values in lists):
        return "replicates and margins are lists of numbers"
    for value in (*trial["scores"].values(), *(value for values in lists for value in values)):
        if type(value) not in (int, float, type(None)):
            return f"{shown(value)} is not a number"
    seconds = trial["seconds"]
    if seconds.keys() != set(STEPS) or not all(type(value) in (int, float) for value in seconds.values()):
        return f"seconds are {shown(seconds)}: {', '.join(STEPS)} are needed"
    return None


class Journal:
    """The file; `known` holds what it says of trials, by (set, method, split).

    Parameters
    ----------
    path : path
    header : dict
        What must be the same for its trials to be of use.
    """

    def __init__(self, path: PathLike, header: dict[str, Any]) -> None:
        self.path, self.header = os.fsdecode(path), json.loads(json.dumps(header))
        self.known: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._is: dict[tuple[str, str], Any] = {}
        self._whole = 0
        self._size: int | None = None  # where it was read
        self._lock = threading.Lock()
        self._stream: TextIO  # while it is `opened`

    def read(self) -> None:
        """Read what is there; DataError where it is of another comparison. A last line cut short by the end of its
        writer is dropped."""
        with open(self.path, "rb") as stream:
            data = stream.read()
        lines = data.split(b"\n")
        self._whole, self._size = len(data) - len(lines.pop()), len(data)
        if not lines:
            raise DataError(self.path, 1, 1, "not the journal of a comparison: it has no whole line")
        header = self._object(1, lines[0]).get("comparison")
        if not isinstance(header, dict):
            raise DataError(self.path, 1, 1, "not the journal of a comparison: give one that --journal wrote")
        self._require(header, self.header, "")
        for number, line in enumerate(lines[1:], 2):
            entry = self._object(number, line)
            if entry.keys() == {"set", "data"}:
                self._is["set", entry["set"]] = entry["data"]
            elif entry.keys() == {"method", "is"}:
                self._is["method", entry["method"]] = entry["is"]
            else:
                if entry.keys() != {"trial"}:
                    raise self._error(number, "neither a set, nor a method, nor a trial")
                trial = entry["trial"]
                fault = trial_fault(trial)
                if fault is not None:
                    raise self._error(number, fault)
                self.known[trial["set"], trial["method"], trial["split"]] = trial

    def require_new(self) -> None:
        """ValueError for a file with something in it, but for a journal without a trial: what took hours is not written
        over."""
        if not os.path.isfile(self.path):
            return
        with open(self.path, "rb") as stream:
            data = stream.read()
        if data and (not data.startswith(b'{"comparison"') or b'\n{"trial"' in data):
            raise ValueError(f"{self.path} is there: go on with it by --resume (resume= in Python), or give --journal "
                             "another name")

    def introduce(self, kind: str, name: str, what: Any) -> None:
        """Say what a set or a method is; DataError where the journal has another one by the name."""
        what = json.loads(json.dumps(what, default=str))
        with self._lock:
            if (kind, name) not in self._is:
                self._is[kind, name] = what
                self._write({kind: name, {"set": "data", "method": "is"}[kind]: what})
            elif self._is[kind, name] != what:
                raise DataError(self.path, 0, 0, f"its {kind} {name} is another one: {shown(self._is[kind, name])}, "
                                f"here {shown(what)}; give it another name, or start a new journal with --journal")

    @contextmanager
    def opened(self) -> Iterator[None]:
        with continuing(self.path, self._whole, self._size) as self._stream:
            if not self._whole:
                self._write({"comparison": self.header})
            yield

    def add(self, trial: dict[str, Any]) -> None:
        with self._lock:
            self._write({"trial": trial})

    def _write(self, entry: dict[str, Any]) -> None:
        # Line by line: what an interrupted comparison did is there.
        self._stream.write(json.dumps(entry, allow_nan=False) + "\n")
        self._stream.flush()

    def _require(self, theirs: dict[str, Any], ours: dict[str, Any], place: str) -> None:
        for name in sorted({*theirs, *ours}):
            here, there = ours.get(name), theirs.get(name)
            if isinstance(here, dict) and isinstance(there, dict):
                self._require(there, here, f"{name} ")
            elif here != there:
                raise self._error(1, f"the journal of another comparison: its {place}{name} is {there!r}, here it is "
                                  f"{here!r}")

    def _object(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            entry = json_of(line)
        except JSONFault as fault:
            raise self._error(number, f"not a line of a journal: {fault}", fault.column) from None
        if not isinstance(entry, dict):
            raise self._error(number, "not a line of a journal")
        return entry

    def _error(self, number: int, reason: str, column: int = 1) -> DataError:
        return DataError(self.path, number, column, f"{reason}; start a new one with --journal")
