"""What every reader of a file holds to: others wrote the file, and by mistake or on purpose anything may stand in it.

    memory     At most MEMORY bytes for each byte of the file and SPARE beside, to read it and to have what was read. A
               count or an index is believed once as many bytes are left as the shortest text of so much; what grows
               faster than the text, as a square of the classes or a place for each index up to the largest one,
               keeps the form that the file has, and is expanded for a part at a time.
    time       In proportion to the size: no pattern that can match one text in two ways.
    numbers    Finite, integers within 64 bits, each in the domain that its declaration gives. What loads can be saved.
    faults     A DataError that says where, by line and column, what is there, and what to do.

`tests/test_reading.py` has the list of readers and gives each of them the same kinds of hostile files.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any, NoReturn

MEMORY = 128
SPARE = 1 << 24
# Lists and objects inside each other: our formats have 4.
NESTED = 20
NATURAL = re.compile(rb"[0-9]{1,20}")
INTEGER = re.compile(rb"[+-]?[0-9]{1,20}")
NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
SHOWN = 80
# Endings of names of tables of text, and what separates their cells; and of names of packed files.
SEPARATORS = {".csv": ",", ".tsv": "\t"}
PACKED = (".gz", ".bz2", ".xz", ".zst")


def separator_of(path: str) -> str | None:
    """What stands between the cells of a file, by the end of its name; None where that is no table of text."""
    name = path.lower()
    for ending in PACKED:
        name = name.removesuffix(ending)
    return SEPARATORS.get(os.path.splitext(name)[1])


class JSONFault(ValueError):
    """What is wrong with a text that should be JSON, and where: line and column, both from 1, in bytes."""

    def __init__(self, reason: str, data: bytes, at: int) -> None:
        super().__init__(reason)
        self.line, self.column = place_of(data, at)


def place_of(data: bytes, at: int) -> tuple[int, int]:
    """(line, column), from 1, of the byte `at` of a text."""
    return data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at)


def json_of(data: bytes) -> Any:
    """The value of JSON in UTF-8, of type bytes; JSONFault for anything else.

    Numbers are finite, integers within 64 bits, and a key stands once in an object.
    """
    import json

    def place(word: str) -> int:
        return max(0, data.rfind(word.encode("ascii")))

    def integer(word: str) -> int:
        value = int(word) if len(word) <= 20 else None
        if value is None or not -(1 << 63) <= value < 1 << 64:
            raise JSONFault(f"{shown(word)} is beyond 64 bits", data, place(word))
        return value

    def real(word: str) -> float:
        value = float(word)
        if not math.isfinite(value):
            raise JSONFault(f"{shown(word)} is not finite", data, place(word))
        return value

    def constant(word: str) -> NoReturn:
        raise JSONFault(f"{word} is not JSON", data, place(word))

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise JSONFault(f"{shown(key)} stands twice in an object", data, place(json.dumps(key)))
                seen.add(key)
        return found

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JSONFault("it is not UTF-8", data, error.start) from None
    deep = JSONFault("it is nested too deeply", data, 0)
    try:
        found = json.loads(text, object_pairs_hook=once, parse_int=integer, parse_float=real, parse_constant=constant)
    except RecursionError:
        raise deep from None
    except json.JSONDecodeError as error:
        raise JSONFault(error.msg, data, len(text[:error.pos].encode())) from None
    level = [found]
    for _ in range(NESTED):
        level = [item for value in level if isinstance(value, (list, dict))
                 for item in (value.values() if isinstance(value, dict) else value) if isinstance(item, (list, dict))]
    if level:
        raise deep
    return found


def as_written(text: str) -> str:
    """A cell or a name of a table for a message: as it stands there, but shortened, and escaped what is not
    printable."""
    text = text if len(text) <= SHOWN else text[:SHOWN] + "..."
    return f"'{''.join(char if char.isprintable() else ascii(char)[1:-1] for char in text)}'"


def shown(value: object) -> str:
    """`value` for a message: printable, and short whatever it is."""
    text = value.decode("ascii", "backslashreplace") if isinstance(value, bytes) else str(value)
    return ascii(text if len(text) <= SHOWN else text[:SHOWN] + "...")
