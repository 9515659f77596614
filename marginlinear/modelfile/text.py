"""What the texts of model files share, read and written: lines of key and value, labels, codes, JSON.

`data.reading` says what holds for all that is read.
"""

from __future__ import annotations

import json
import math
import re
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from marginlinear import liblinear
from marginlinear.data.labels import require_words
from marginlinear.data.reading import INTEGER, NATURAL, NUMBER, JSONFault, json_of, shown
from marginlinear.errors import DataError

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, BinaryIO, TypeAlias, TypeVar

    from marginlinear._typing import Int8Array
    from marginlinear.model import Model

    Digest: TypeAlias = hashlib._Hash
    T = TypeVar("T")
    N = TypeVar("N", int, float)

I64 = 1 << 63
C_INT = 1 << 31
# A word has at most 80 bytes in LIBLINEAR's own reader.
WORD = 80
WRITERS = "give a file that margin-train, LIBLINEAR's train or LIBSVM's svm-train wrote"
WORD_ONLY = re.compile(rb"[!-~]+")
LISTS = (b"label", b"classes", b"codes", b"rho", b"probA", b"probB", b"nr_sv")  # keys with a value a class or more
LABELS = {"b": "bool", "i": "int64", "u": "int64", "f": "float64", "U": "str"}  # by NumPy's kind
NO_LABELS = "nr_class 2\n"  # LIBLINEAR's lines of a model without classes
NUMBERS = "numbers"  # in place of such a kind, of a regression
# LIBLINEAR's and LIBSVM's names of the method, too.
ONE_CLASS = ("oneclass", *liblinear.ONE_CLASS.values(), "one_class")
ONE = re.compile(rb"1")
SIGNS = "0+-"  # a code of 0, 1, -1


class Source:
    """The bytes of a model file, with what bounds, messages and the digest need.

    Attributes
    ----------
    stream : binary file that can seek
    size : int
        Bytes in all; what is allocated is checked against it.
    line : int
        Number of the last line taken.
    digest : hash of all bytes taken
    """

    def __init__(self, stream: BinaryIO, name: str | bytes, size: int) -> None:
        self.stream = stream
        self.name = name
        self.size = size
        self.line = 0
        self.digest = sha256()

    def left(self) -> int:
        return self.size - self.stream.tell()

    def error(self, reason: str, column: int = 1, line: int | None = None) -> DataError:
        return DataError(self.name, line or self.line, column, reason)

    def damaged(self, reason: str, column: int = 1, line: int | None = None) -> DataError:
        return self.error(f"{reason}: copy the file again or train again", column, line)

    def cut(self, where: str) -> DataError:
        return DataError(self.name, 0, 0, f"the file ends {where}: copy it again or train again")


class Body:
    """What stands above the trailer, read.

    Attributes
    ----------
    kind : str
        LIBLINEAR's name of the solver, or LIBSVM's svm_type.
    labels : list
        In the order of a Model's classes.
    foreign : bool
        Whether LIBLINEAR or LIBSVM could have written it.
    scaling : str or None
        The kind of scaling of rows before they are scored.
    multilabel : bool
        Whether a row may have several of the labels.
    trailer_keys : dict
        What the trailer has beside what every model's has, and its types.
    """

    kind: str
    labels: Any
    foreign: bool
    scaling: str | None
    trailer_keys: dict[str, Any]


class Fields:
    """The lines `key text` that stand before `body`, in any order: up to the one that says only `last`.

    Attributes
    ----------
    texts, lines : dict
        Text and line number of each key.
    """

    def __init__(self, source: Source, first: bytes, known: Sequence[str], last: str, body: str) -> None:
        """Read on from `first`, a line already taken; of the keys `known` those in LISTS may have a long line."""
        self.body = body
        self.source = source
        self.texts: dict[str, bytes] = {}
        self.lines: dict[str, int] = {}
        line = first
        while True:
            word, _, text = line.rstrip(b"\r\n").partition(b" ")
            key = word.decode("ascii", "backslashreplace")
            if key == last and not text.strip():
                return
            if key not in known:
                raise source.error(f"unknown text in model file: [{key[:WORD]}]; {WRITERS}")
            if key in self.texts:
                raise source.damaged(f"{key} stands in line {self.lines[key]} already")
            self.texts[key], self.lines[key] = text, source.line
            line = header_line(source, body)

    def __contains__(self, key: object) -> bool:
        return key in self.texts

    def require(self, *keys: str) -> None:
        for key in keys:
            if key not in self.texts:
                raise self.source.damaged(f"{key} is missing before {self.body}")

    def place(self, key: str) -> tuple[int, int]:
        """Column and line of the value of `key`."""
        return len(key) + 2, self.lines[key]

    def value(self, key: str, pattern: re.Pattern[bytes], convert: Callable[[bytes], T], allowed: str) -> T:
        self.require(key)
        text = self.texts[key].strip()
        if not pattern.fullmatch(text):
            raise self.source.error(f"{key} is {shown(text)}: give {allowed}", *self.place(key))
        return convert(text)

    def number(self, key: str) -> float:
        number = self.value(key, NUMBER, float, "a finite number")
        if not math.isfinite(number):
            raise self.source.error(f"{key} is {number}: give a finite number", *self.place(key))
        return number

    def several(self, key: str, pattern: re.Pattern[bytes], convert: Callable[[bytes], N], allowed: str,
                count: int | None = None) -> list[N]:
        """The values of a list; `count` is how many there must be."""
        self.require(key)
        words = self.texts[key].split()
        for i, word in enumerate(words):
            value = convert(word) if pattern.fullmatch(word) else math.nan
            if not (math.isfinite(value) if convert is float else -I64 <= value < I64):
                column = len(key) + 2 + sum(len(other) + 1 for other in words[:i])
                raise self.source.error(f"{key} is {shown(word)}: give {allowed}", column, self.lines[key])
        if count not in (None, len(words)):
            raise self.source.damaged(f"{key} has {len(words)} values in place of {count}", *self.place(key))
        return [convert(word) for word in words]

    def labels(self) -> tuple[list[Any], bool]:
        """(labels in the order of a Model's classes, whether they stand as a JSON list after `classes`)."""
        listed = "classes" in self
        self.require("nr_class", *(() if listed else ("label",)))
        if listed and "label" in self:
            raise self.source.damaged("label and classes exclude each other", line=self.lines["label"])
        key = "classes" if listed else "label"
        nr_class = self.value("nr_class", NATURAL, int, "the number of classes")
        if listed:
            labels = parse_json(self.source, self.texts[key], self.lines[key], len(key) + 2)
            if not isinstance(labels, list) or not all(type(label) in (int, float, str) for label in labels):
                raise self.source.damaged("classes is not a list of numbers or of text", *self.place(key))
        else:
            labels = self.several(key, INTEGER, int, "an integer")
        if nr_class != len(labels) or not labels:
            reason = f"nr_class is {nr_class}, and {key} has {len(labels)}"
            raise self.source.damaged(reason, *self.place("nr_class"))
        if len(set(labels)) < len(labels):
            twice = next(label for i, label in enumerate(labels) if label in labels[:i])
            raise self.source.damaged(f"label {shown(twice)} stands twice", 1, self.lines[key])
        return labels[::-1] if nr_class == 2 else labels, listed

    def no_labels(self) -> Any:
        """DataError for classes other than the two that LIBLINEAR gives a model without any, and for labels."""
        self.require("nr_class")
        given = next((key for key in ("label", "classes", "codes") if key in self), None)
        if given is not None:
            raise self.source.damaged(f"{given} does not go with a model without classes", 1, self.lines[given])
        if self.value("nr_class", NATURAL, int, "the number of classes") != 2:
            raise self.source.damaged("nr_class of a model without classes is 2", *self.place("nr_class"))

    def scaling(self) -> str | None:
        """The word after `scaling`; None without."""
        return self.value("scaling", WORD_ONLY, bytes.decode, "a kind of scaling") if "scaling" in self else None

    def multilabel(self, kind: str, own: str) -> bool:
        """Whether there is a line `multilabel 1`, which goes with the `kind` that is our `own`."""
        if "multilabel" not in self:
            return False
        if kind != own or "codes" in self:
            reason = f"multilabel does not go with {kind if kind != own else 'codes'}"
            raise self.source.damaged(reason, 1, self.lines["multilabel"])
        return self.value("multilabel", ONE, int, "1") == 1

    def codes(self, classes: int) -> Int8Array:
        """The int8 array of shape (classes, columns) that stands after `codes`."""
        self.require("codes")
        words = self.texts["codes"].split()
        width = len(words[0]) if words else 0
        if len(words) != classes or not width or any(len(w) != width or w.strip(SIGNS.encode()) for w in words):
            raise self.source.damaged(f"codes is not {classes} words of +, - and 0, of one length",
                                      *self.place("codes"))
        signs = np.frombuffer(b"".join(words), dtype=np.uint8).reshape(classes, width)
        codes: Int8Array = (signs == ord("+")).astype(np.int8) - (signs == ord("-"))
        return codes[::-1] if classes == 2 else codes


def header_line(source: Source, body: str = "its weights") -> bytes:
    line = source.stream.readline(4 * WORD)
    source.line += 1
    if len(line) == 4 * WORD and not line.endswith(b"\n"):
        if line.split(b" ", 1)[0] in LISTS:
            line += source.stream.readline()
        if not line.endswith(b"\n") and source.left():
            raise source.error(f"the line is too long for a model file; {WRITERS}")
    if not line.endswith(b"\n"):
        raise source.cut(f"before {body}")
    source.digest.update(line)
    return line


def check_labels(source: Source, labels: Sequence[Any] | None, kind: str) -> None:
    """DataError unless the labels, None of a regression, are of the type that the trailer names."""
    if labels is None:
        if kind != NUMBERS:
            raise source.damaged(f"the trailer calls the labels {shown(kind)}, a regression has none")
        return
    kinds: dict[str, type | tuple[type, ...]] = {"bool": int, "int64": int, "float64": (int, float), "str": str}
    allowed = kinds.get(kind)
    if allowed is None or not all(isinstance(label, allowed) for label in labels):
        raise source.damaged(f"the trailer calls the labels {shown(kind)}, and they are not")
    if kind == "bool" and not all(label in (0, 1) for label in labels):
        raise source.damaged("the trailer calls the labels bools, which are 0 and 1, and they are not")
    try:
        require_words(labels, "classes")
    except ValueError as error:
        raise source.error(ascii(str(error))[1:-1]) from None
    if kind != "str" and not all(-I64 <= label < I64 if type(label) is int else math.isfinite(label)
                                 for label in labels):
        raise source.damaged("a label is beyond 64 bits")


def check_keys(source: Source, what: str, entries: object, types: Mapping[str, Any]) -> None:
    """DataError unless `entries` are a dict with the keys and types of `types`."""
    if not isinstance(entries, dict):
        raise source.damaged(f"the {what} is not a JSON object")
    for key in (*entries, *types):
        if key not in types:
            raise source.error(f"{what}: {shown(key)} is not known: use a newer marginlinear")
        if key not in entries:
            raise source.damaged(f"{what}: {key} is missing")
        if not isinstance(entries[key], types[key]):
            raise source.damaged(f"{what}: {shown(key)} is {shown(entries[key])}")


def parse_json(source: Source, text: bytes, line: int, column: int) -> Any:
    """The value of the JSON `text`, which begins in that line and column."""
    try:
        return json_of(text)
    except JSONFault as fault:
        raise source.damaged(f"JSON cannot be read ({fault})", column + fault.column - 1, line) from None


def is_one_class(model: Model) -> bool:
    return model.solver in ONE_CLASS and model.classes is not None


def label_kind(model: Model) -> str:
    """What the trailer calls the labels."""
    if model.classes is None:
        return NUMBERS
    kind = model.classes.dtype.kind
    if kind not in LABELS:
        raise TypeError(f"the model is not saved: its labels are {model.classes.dtype}, not bools, numbers or text")
    return LABELS[kind]


def label_text(label: Any) -> str:
    """A label as in a LIBSVM file: an integer without a point, another number in its shortest form."""
    if isinstance(label, str):
        return label
    label = plain(label)
    text = repr(label) if isinstance(label, float) else str(int(label))
    return text.removesuffix(".0")


def label_lines(model: Model) -> str:
    """The lines of the number of classes and of the labels; of two classes classes[1] comes first. Of a regression what
    LIBLINEAR writes: two classes without labels."""
    if model.classes is None:
        return NO_LABELS
    kind = label_kind(model)
    classes = model.classes.tolist()
    if len(classes) == 2:
        classes.reverse()
    require_words(classes, "the model is not saved")
    if kind == "float64" and not all(map(math.isfinite, classes)):
        raise ValueError("the model is not saved: it has a label that is not finite")
    if kind != "str" and all(c == int(c) and -C_INT <= c < C_INT for c in classes):
        labels = "label " + " ".join(str(int(c)) for c in classes)
    else:
        labels = "classes " + json.dumps(classes)
    return f"nr_class {len(classes)}\n{labels}\n"


def code_line(model: Model) -> str:
    """The line of the codes, of two classes that of classes[1] first; "" without."""
    if not model.voted:
        return ""
    codes: list[list[int]] = np.asarray(model.codes).tolist()
    if len(codes) == 2:
        codes.reverse()
    return "codes " + " ".join("".join(SIGNS[code] for code in word) for word in codes) + "\n"


def multilabel_line(model: Model) -> str:
    return "multilabel 1\n" if model.multilabel else ""


def scaling_line(model: Model) -> str:
    """The line of the scaling, which other programs do not know: they refuse the file; "" without."""
    return "" if model.scaling is None else f"scaling {model.scaling.kind}\n"


def plain(value: Any) -> Any:
    """A number of NumPy's as one of Python's."""
    return value.item() if hasattr(value, "item") else value
