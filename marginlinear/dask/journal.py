"""What a fit's driver has been told, on disk: a folder that a lost driver's successor goes on from.

    header.json     what the fit is: method, parameters, rows and labels of the partitions
    messages        a record a message: fit, number, and the sums of its replies
    states          the last copies of the rows' states, and the fit and number of the message that they follow

Records are a length, a CRC-32 and that many bytes, a pickle: like any pickle, only for who made it. `states` is written
beside and renamed; a record of `messages` that is not whole, as the last one of a driver that was killed, is left out.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import zlib
from typing import IO, TYPE_CHECKING, Any

from marginlinear.atomic import replacing
from marginlinear.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator



HEAD = struct.Struct("<QI")


class Journal:
    """A folder.

    Parameters
    ----------
    folder : str or path
        Made where it is not there.
    header : dict
        What the fit is, as JSON has it.
    resume : bool
        Whether to go on from what is there: ValueError where it is of another fit, or nothing is. Otherwise it is
        ValueError where there is something.
    """

    def __init__(self, folder: str | os.PathLike[str], header: dict[str, Any], resume: bool) -> None:
        self.folder = os.fspath(folder)
        os.makedirs(self.folder, exist_ok=True)
        path = self._place("header.json")
        there = os.path.exists(path)
        if resume and not there:
            raise ValueError(f"checkpoint = {self.folder!r} has nothing to resume: leave resume away")
        if there and not resume:
            raise ValueError(f"checkpoint = {self.folder!r} has a fit in it: give resume, or another folder, or remove "
                             "it")
        header = json.loads(json.dumps(header))
        if there:
            self._require(header, path)
        else:
            with replacing(path) as stream:
                stream.write(json.dumps(header, indent=1).encode("utf-8"))
        self.copies = self._read_copies() if there else None
        self.records: Iterator[Any] = self._read_records() if there else iter(())
        self.stream: IO[bytes] | None = None

    def _place(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _require(self, header: dict[str, Any], path: str) -> None:
        try:
            with open(path, encoding="utf-8") as stream:
                was = json.load(stream)
        except ValueError as error:
            raise DataError(path, 0, 0, f"{error}: it was damaged; remove the folder, and train anew") from None
        for name, value in header.items():
            if was.get(name) != value:
                raise ValueError(f"checkpoint = {self.folder!r} is of a fit with {name} = {was.get(name)!r}, this one "
                                 f"has {value!r}: give the same, or another folder")

    def _read_records(self) -> Iterator[Any]:
        """Yield (fit, number, result), up to the first that is not whole; the file ends there from then on."""
        path, end = self._place("messages"), 0
        with open(path, "a+b") as stream:
            stream.seek(0)
            while True:
                found = read_record(stream)
                if found is None:
                    break
                end = stream.tell()
                yield found
            stream.truncate(end)

    def _read_copies(self) -> Any:
        if not os.path.exists(self._place("states")):
            return None
        with open(self._place("states"), "rb") as stream:
            found = read_record(stream)
        if found is None:
            raise DataError(self._place("states"), 0, 0, "its CRC-32 is another one, the file was changed: remove the "
                            "folder, and train anew")
        return found

    def known(self, fit: int, number: int) -> tuple[Any, Any] | None:
        """(result, copies of the states after it or None) of a message that was answered before; None for a new one."""
        if self.stream is not None:
            return None
        found = next(self.records, None)
        if found is None:
            return None
        *place, result = found
        if place != [fit, number]:
            raise ValueError(f"checkpoint = {self.folder!r} has message {place[1]} of fit {place[0]}, where this fit "
                             f"sends {number} of {fit}: it was another version's; train anew, in another folder")
        copies = self.copies
        return result, copies[2] if copies is not None and list(copies[:2]) == place else None

    def note(self, fit: int, number: int, result: Any) -> None:
        if self.stream is None:
            self.stream = open(self._place("messages"), "ab")  # noqa: SIM115  `close` closes it
        write_record(self.stream, (fit, number, result))
        self.stream.flush()

    def keep(self, fit: int, number: int, copies: Any) -> None:
        with replacing(self._place("states")) as stream:
            write_record(stream, (fit, number, copies))

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()


def write_record(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, protocol=5)
    stream.write(HEAD.pack(len(data), zlib.crc32(data)))
    stream.write(data)


def read_record(stream: IO[bytes]) -> Any:
    """The next value; None at the end, and for one that is not whole."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    size, crc = HEAD.unpack(head)
    data = stream.read(size)
    return pickle.loads(data) if len(data) == size and zlib.crc32(data) == crc else None
