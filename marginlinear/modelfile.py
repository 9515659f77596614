"""Model files: LIBLINEAR's text, then a trailer of our own.

    solver_type MCSVM_CS        k columns are compared; L2R_L2LOSS_SVC_DUAL: the sign of one decides
    nr_class 3
    label 1 2 3
    nr_feature 4
    bias -1                     not negative: one more row of weights
    w
    0.1 -0.2 0.1                one row a feature, a blank after each value, numbers that read back exactly
    ...
    marginlinear 1
    {"info": {...}, "labels": "int64", "params": {...}, "solver": "mcodm", "version": "...", "sha256": "..."}

LIBLINEAR stops reading after the weights, so it serves such a file unchanged. Of two classes it looks only at
the first column, even with MCSVM_CS: a score above 0 is the first label, one of 0 the second. So with two
classes the file has classes[1] first, and their columns in that order. Labels that it would mistake
(text, fractions, integers beyond a C int) stand as a JSON list after `classes` in place of `label`, and
LIBLINEAR refuses the file. The digest is that of all bytes before its own first digit:
`head -c -67 FILE | sha256sum`. Nothing that differs between two equal runs is written: equal models are equal
files.

A file that ends with its weights is LIBLINEAR's own and is loaded for prediction. That includes a file of
ours cut exactly there, which cannot be told from one; its weights and labels are whole.
"""

import hashlib
import io
import json
import math
import os
import re
import stat
import sys
from dataclasses import dataclass, fields

import numpy as np

from marginlinear import liblinear
from marginlinear._core.decimal import ROWS_LONG_LINE, ROWS_SHORT_LINE, format_rows, parse_rows
from marginlinear._version import version
from marginlinear.atomic import replacing
from marginlinear.problem import CONVERGED, FAILED, MAX_ITER, TIME_LIMIT, DataError, Info

WRITERS = "give a file that margin-train or LIBLINEAR's train wrote"
TRAILER = b"marginlinear 1"
BLOCK = 1 << 20  # bytes of weights, of text when reading and of float64 when writing
C_INT = 1 << 31
I64 = 1 << 63
KEYS = ("solver_type", "nr_class", "label", "classes", "nr_feature", "bias")
# Longest lines of a file that is not hostile: a word has at most 80 bytes in LIBLINEAR's own reader.
WORD = 80
LONG_LINE = 1 << 24
WORD_ONLY = re.compile(rb"[!-~]+")
NATURAL = re.compile(rb"[0-9]{1,20}")
INTEGER = re.compile(rb"[+-]?[0-9]{1,20}")
NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"\}\n\Z')
PLAIN = (str, int, float, type(None))  # and bool, an int
NOT_FINITE = ("nan", "inf", "-inf")
LABELS = {"i": "int64", "u": "int64", "f": "float64", "U": "str"}  # by NumPy's kind
# Of Info, what two equal runs share.
KEPT = tuple(field for field in fields(Info) if field.name not in ("seconds", "history"))


def save_model(model, path):
    """Write `model` to the file `path`, `-` for standard output.

    The file appears whole or not at all: an interrupt, a crash or a full disk leaves the old one.

    Parameters
    ----------
    model : Model
    path : str or path-like

    Raises
    ------
    OSError
        The file cannot be written.
    ValueError
        A weight is not finite.
    """
    with replacing(path) as stream:
        _write(model, stream)


def load_model(path):
    """Read a model file of marginlinear, or of LIBLINEAR's classifiers (solver types 0 to 7).

    Parameters
    ----------
    path : str, path-like or binary file
        `-` for standard input.

    Returns
    -------
    Model
        Predicts bit for bit as the saved one. `info` has neither times nor history, and is None for a model
        that LIBLINEAR trained; `solver` is then LIBLINEAR's name.

    Raises
    ------
    DataError
        The file is damaged, or not a model that can be used here.
    """
    if path == "-":
        return _read_whole(sys.stdin.buffer, "<stdin>")
    if hasattr(path, "read"):
        return _read_whole(path, getattr(path, "name", "<file>"))
    with open(path, "rb") as stream:
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode):
            return _read(_Source(stream, os.fspath(path), status.st_size))
        return _read_whole(stream, os.fspath(path))


def label_text(label):
    """A label as in a LIBSVM file: an integer without a point, another number in its shortest form."""
    if isinstance(label, str):
        return label
    text = repr(float(label)) if isinstance(label, (float, np.floating)) else str(int(label))
    return text.removesuffix(".0")


def _write(model, stream):
    digest = hashlib.sha256()

    def put(data):
        digest.update(data)
        stream.write(data)

    rows, columns = model.weights.shape
    put(_header(model))
    step = max(1, BLOCK // (8 * columns))
    for low in range(0, rows, step):
        weights = model.weights[low : low + step]
        if not np.isfinite(weights).all():
            raise ValueError("the model is not saved: it holds a weight that is not finite")
        put(format_rows(np.ascontiguousarray(weights[:, ::-1]) if columns == 2 else weights))
    put(TRAILER + b"\n")
    put(_trailer(model)[:-1].encode("ascii") + b', "sha256": "')
    stream.write(digest.hexdigest().encode("ascii") + b'"}\n')


def _header(model):
    kind = model.classes.dtype.kind
    if kind not in LABELS:
        raise TypeError(f"the model is not saved: its labels are {model.classes.dtype}, not numbers or text")
    classes = (model.classes[::-1] if len(model.classes) == 2 else model.classes).tolist()
    if kind == "f" and not np.isfinite(model.classes).all():
        raise ValueError("the model is not saved: it has a label that is not finite")
    if kind != "U" and all(c == int(c) and -C_INT <= c < C_INT for c in classes):
        labels = "label " + " ".join(str(int(c)) for c in classes)
    else:
        labels = "classes " + json.dumps(classes)
    if not math.isfinite(model.bias):
        raise ValueError(f"the model is not saved: bias = {model.bias} is not finite")
    return (
        f"solver_type {liblinear.JOINT if model.joint else liblinear.SIGN}\n"
        f"nr_class {len(classes)}\n{labels}\n"
        f"nr_feature {model.n_features}\nbias {model.bias:.17g}\nw\n"
    ).encode("ascii")


def _trailer(model):
    info = None
    if model.info is not None:
        info = {field.name: _json_number(getattr(model.info, field.name)) for field in KEPT}
    return json.dumps({
        "info": info,
        "labels": LABELS[model.classes.dtype.kind],
        "params": {name: _plain(value) for name, value in sorted(model.params.items())},
        "solver": model.solver,
        "version": version,
    }, allow_nan=False)


def _plain(value):
    return value.item() if isinstance(value, np.generic) else value


def _json_number(value):
    """JSON has no infinity: a bound of -inf is written as its name."""
    value = _plain(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class _Source:
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

    def __init__(self, stream, name, size):
        self.stream = stream
        self.name = name
        self.size = size
        self.line = 0
        self.digest = hashlib.sha256()

    def left(self):
        return self.size - self.stream.tell()

    def error(self, reason, column=1, line=None):
        return DataError(self.name, line or self.line, column, reason)

    def damaged(self, reason, column=1, line=None):
        return self.error(f"{reason}: copy the file again or train again", column, line)

    def cut(self, where):
        return DataError(self.name, 0, 0, f"the file ends {where}: copy it again or train again")


@dataclass
class _Header:
    """What stands before the weights.

    Attributes
    ----------
    solver_type : str
    labels : list
        In the file's order.
    listed : bool
        The labels stand as a JSON list after `classes`, which LIBLINEAR never writes.
    nr_feature : int
    bias : float
    """

    solver_type: str
    labels: list
    listed: bool
    nr_feature: int
    bias: float

    @property
    def shape(self):
        one = len(self.labels) == 2 and self.solver_type != liblinear.JOINT
        return self.nr_feature + (self.bias >= 0), 1 if one else len(self.labels)


def _read_whole(stream, name):
    """Where the size is not known beforehand, all is read before any of it is believed."""
    data = stream.read()
    return _read(_Source(io.BytesIO(data), name, len(data)))


def _read(source):
    header = _read_header(source)
    weights = _read_weights(source, *header.shape)
    trailer = _read_trailer(source)
    own = trailer is not None
    if not own:
        if header.listed:
            raise source.cut("after its weights")
        trailer = {"solver": header.solver_type, "params": {}, "info": None, "labels": "int64"}
    labels = _typed(source, header.labels, trailer["labels"])
    if len(labels) == 2:
        labels = labels[::-1]
        # LIBLINEAR's own model decides by its first column, and so does it here.
        weights = weights[:, ::-1] if own else weights[:, :1]
    from marginlinear.api import Model  # api imports this module

    return Model(weights, labels, bias=header.bias, solver=trailer["solver"], params=trailer["params"],
                 info=trailer["info"])


def _read_header(source):
    texts, lines = {}, {}
    while True:
        line = _header_line(source)
        key, _, text = line.rstrip(b"\r\n").partition(b" ")
        key = key.decode("ascii", "backslashreplace")
        if key == "w" and not text.strip():
            break
        if key == "svm_type":
            raise source.error("this is a LIBSVM model, not a linear one: use svm-predict")
        if key not in KEYS:
            raise source.error(f"unknown text in model file: [{key[:WORD]}]; {WRITERS}")
        if key in texts:
            raise source.damaged(f"{key} stands in line {lines[key]} already")
        texts[key], lines[key] = text, source.line
    listed = "classes" in texts
    if listed and "label" in texts:
        raise source.damaged("label and classes exclude each other", line=lines["label"])
    labels_key = "classes" if listed else "label"

    def field(key, pattern, convert, allowed):
        text = texts[key].strip()
        if not pattern.fullmatch(text):
            raise source.error(f"{key} is {_shown(text)}: give {allowed}", len(key) + 2, lines[key])
        return convert(text)

    if "solver_type" in texts:
        place = len("solver_type ") + 1, lines["solver_type"]
        solver_type = field("solver_type", WORD_ONLY, bytes.decode, "a solver's name")
        if solver_type in liblinear.OTHERS.values():
            raise source.error(f"{solver_type} does not classify: use LIBLINEAR's predict", *place)
        if solver_type not in liblinear.CLASSIFIERS.values():
            known = ", ".join(liblinear.CLASSIFIERS.values())
            raise source.error(f"unknown solver type. {solver_type[:WORD]} is none of {known}", *place)
    for key in ("solver_type", "nr_class", labels_key, "nr_feature", "bias"):
        if key not in texts:
            raise source.damaged(f"{key} is missing before the weights")
    nr_class = field("nr_class", NATURAL, int, "the number of classes")
    nr_feature = field("nr_feature", NATURAL, int, "the number of features")
    bias = field("bias", NUMBER, float, "a finite number")
    if not math.isfinite(bias):
        raise source.error(f"bias is {bias}: give a finite number", 6, lines["bias"])
    read_labels = _listed_labels if listed else _plain_labels
    labels = read_labels(source, texts[labels_key], lines[labels_key])
    if nr_class != len(labels) or not labels:
        reason = f"nr_class is {nr_class}, and {labels_key} has {len(labels)}"
        raise source.damaged(reason, len("nr_class ") + 1, lines["nr_class"])
    if len(set(labels)) < len(labels):
        seen = set()
        twice = next(label for label in labels if label in seen or seen.add(label))
        raise source.damaged(f"label {_shown(twice)} stands twice", 1, lines[labels_key])
    return _Header(solver_type, labels, listed, nr_feature, bias)


def _header_line(source):
    line = source.stream.readline(4 * WORD)
    source.line += 1
    if len(line) == 4 * WORD and not line.endswith(b"\n"):
        if line.startswith((b"label ", b"classes ")):
            line += source.stream.readline(LONG_LINE)
        if not line.endswith(b"\n") and source.left():
            raise source.error(f"the line is too long for a model file; {WRITERS}")
    if not line.endswith(b"\n"):
        raise source.cut("before its weights")
    source.digest.update(line)
    return line


def _plain_labels(source, text, line):
    labels = text.split()
    for at, label in enumerate(labels):
        if not INTEGER.fullmatch(label) or not -I64 <= int(label) < I64:
            column = len("label ") + 1 + sum(len(word) + 1 for word in labels[:at])
            raise source.error(f"label is {_shown(label)}: give an integer", column, line)
    return [int(label) for label in labels]


def _listed_labels(source, text, line):
    labels = _json(source, text, line, len("classes ") + 1)
    if not isinstance(labels, list) or not all(type(label) in (int, float, str) for label in labels):
        raise source.damaged("classes is not a list of numbers or of text", len("classes ") + 1, line)
    return labels


def _typed(source, labels, kind):
    """The labels as an array of the type that the trailer names."""
    allowed = {"int64": int, "float64": (int, float), "str": str}.get(kind)
    if allowed is None or not all(isinstance(label, allowed) for label in labels):
        raise source.damaged(f"the trailer calls the labels {_shown(kind)}, and they are not")
    if kind != "str" and not all(-I64 <= label < I64 if type(label) is int else math.isfinite(label)
                                 for label in labels):
        raise source.damaged("a label is beyond 64 bits")
    return np.array(labels, dtype=kind)


def _read_weights(source, rows, columns):
    """The table of weights, a block of whole lines at a time."""
    if rows * columns * 2 > source.left():
        # A digit and a blank is the least that a weight takes: refused before memory is asked for.
        raise source.damaged(f"{rows} rows of {columns} weights do not fit into {source.left()} bytes")
    weights = np.empty((rows, columns))
    stream, done = source.stream, 0
    while done < rows:
        start = stream.tell()
        block = stream.read(BLOCK)
        if not block.endswith(b"\n"):
            block += stream.readline(columns * (WORD + 1) + 2)
        count = min(rows - done, block.count(b"\n"))
        if not count and source.left():
            source.line += 1
            raise source.damaged(f"the line is too long for {columns} weights")
        if not count:
            raise source.cut(f"in weight row {done + 1} of {rows}")
        part = weights[done : done + count]
        position, code = parse_rows(block, 0, part)
        if code:
            raise _bad_weights(source, block, position, code, columns)
        source.digest.update(memoryview(block)[:position])
        source.line += count
        done += count
        stream.seek(start + position)
    return weights


def _bad_weights(source, block, position, code, columns):
    """The error for the place where parse_rows stopped."""
    source.line += block.count(b"\n", 0, position) + 1
    column = position - block.rfind(b"\n", 0, position)
    if code == ROWS_SHORT_LINE:
        return source.damaged(f"fewer than {columns} weights in the row", column)
    if code == ROWS_LONG_LINE:
        return source.damaged(f"more than {columns} weights in the row", column)
    word = block[position : position + 2 * WORD].split(maxsplit=1)[0]
    return source.damaged(f"{_shown(word)} is not a finite number", column)


def _read_trailer(source):
    """The checked trailer as a dict; None where the file ends with its weights."""
    first = source.stream.readline(4 * WORD)
    if not first:
        return None
    source.line += 1
    if first != TRAILER + b"\n":
        if TRAILER.startswith(first):
            raise source.cut("in its trailer")
        if re.fullmatch(rb"marginlinear [0-9]+\n", first):
            raise source.error(f"marginlinear {version} does not know the trailer's version: use a newer one")
        raise source.damaged(f"{_shown(first)} after the last weight")
    source.digest.update(first)
    line = source.stream.readline(LONG_LINE)
    source.line += 1
    if not line.endswith(b"\n"):
        raise source.cut("in its trailer")
    seal = SEAL.search(line)
    if not seal:
        raise source.damaged("the line does not end with its sha256")
    source.digest.update(line[: seal.start(1)])
    if source.digest.hexdigest().encode() != seal[1]:
        # To use an edited file on purpose, cut its last two lines: it is read as LIBLINEAR's then.
        raise source.damaged("sha256 does not match, the file was changed", seal.start(1) + 1)
    if source.stream.read(1):
        source.line += 1
        raise source.damaged("text after the trailer")
    trailer = _json(source, line, source.line, 1)
    _check_keys(source, "trailer", trailer, {"info": (dict, type(None)), "labels": str, "params": dict,
                                             "solver": str, "version": str, "sha256": str})
    _check_keys(source, "params", trailer["params"], dict.fromkeys(trailer["params"], PLAIN))
    trailer["info"] = _info(source, trailer["info"])
    return trailer


def _info(source, found):
    if found is None:
        return None
    _check_keys(source, "info", found, {field.name: PLAIN for field in KEPT})
    values = {}
    for field in KEPT:
        value = found[field.name]
        if value in NOT_FINITE and field.type is not str:
            value = float(value)
        if not isinstance(value, field.type) or isinstance(value, bool):
            raise source.damaged(f"info: {field.name} is {_shown(value)}")
        values[field.name] = value
    if values["status"] not in (CONVERGED, MAX_ITER, TIME_LIMIT, FAILED):
        raise source.damaged(f"info: status is {_shown(values['status'])}")
    return Info(**values, seconds=math.nan)


def _check_keys(source, what, found, wanted):
    if not isinstance(found, dict):
        raise source.damaged(f"the {what} is not a JSON object")
    for key in (*found, *wanted):
        if key not in wanted:
            raise source.error(f"{what}: {_shown(key)} is not known: use a newer marginlinear")
        if key not in found:
            raise source.damaged(f"{what}: {key} is missing")
        if not isinstance(found[key], wanted[key]):
            raise source.damaged(f"{what}: {_shown(key)} is {_shown(found[key])}")


def _json(source, text, line, column):
    def once(pairs):
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key stands twice")
        return found

    def refuse(name):
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=once, parse_constant=refuse)
    except RecursionError:
        raise source.damaged("JSON is nested too deeply", column, line) from None
    except ValueError as error:
        raise source.damaged(f"JSON cannot be read ({error})", column, line) from None


def _shown(value):
    """`value` for a message: printable, and short whatever it is."""
    text = value.decode("ascii", "backslashreplace") if isinstance(value, bytes) else str(value)
    return ascii(text if len(text) <= WORD else text[:WORD] + "...")
