"""Model files: the text of LIBLINEAR or LIBSVM, then a trailer of our own.

    solver_type MCSVM_CS        or svm_type c_svc: see `linear` and `kernel`
    ...
    marginlinear 1
    {"info": {...}, "labels": "int64", "params": {...}, "solver": "mcodm", "version": "...", "sha256": "..."}

A calibration, and a scaling of rows before they are scored, are two more keys of the trailer where a model has them:

    "calibration": {"kind": "sigmoid", "offset": 0.1, "slope": 2.5}, for "pairwise" with lists of numbers
    "scaling": {"kind": "range", "least": [0, ...], "lower": 0, "most": [1, ...], "upper": 1}, or {"kind": "unit"}

Both programs stop reading before the trailer, so they serve such a file unchanged. With two classes the file has
classes[1] first: a score above 0 is its first label, one of 0 the second. Bools are 0 and 1. Labels that they would
mistake (text, fractions, integers beyond a C int) stand as a JSON list after `classes` in place of `label`, and they
refuse the file.
The digest is that of all bytes before its own first digit: `head -c -67 FILE | sha256sum`. Nothing that differs
between two equal runs is written: equal models are equal files.

A file without a trailer is LIBLINEAR's or LIBSVM's own and is loaded for prediction. That includes a file of ours cut
exactly there, which cannot be told from one; its weights and labels are whole.
"""

import io
import math
import os
import re
import stat
import sys

from marginlinear import params as P
from marginlinear._version import version
from marginlinear.data.reading import shown
from marginlinear.modelfile.text import WORD, Source, check_keys, check_labels, header_line, parse_json
from marginlinear.modelfile.writer import KEPT, TRAILER
from marginlinear.params import check_path
from marginlinear.problem import Info
from marginlinear.status import CAPS, STATUSES

SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"\}\n\Z')
PLAIN = (str, int, float, type(None))  # and bool, an int
CONVERTED = {"bool": bool, "float64": float}  # labels that a file may have as integers
NOT_FINITE = ("nan", "inf", "-inf")


def load_model(path):
    """Read a model file of marginlinear, of LIBLINEAR's classifiers (solver types 0 to 7) or LIBSVM's (c_svc, nu_svc).

    Parameters
    ----------
    path : str, path-like or binary file
        `-` for standard input.

    Returns
    -------
    Model
        A linear model predicts bit for bit as the saved one; a kernel model has the same numbers, its support vectors
        as CSR whatever they were. `info` has neither times nor history, and is None for a model that LIBLINEAR or
        LIBSVM trained; `solver` is then their name.

    Raises
    ------
    DataError
        The file is damaged, or not a model that can be used here.
    """
    return read_file(path).model()


def read_file(path):
    """The ModelFile that `load_model` makes its model of."""
    if isinstance(path, str) and path == "-":
        return _read_whole(sys.stdin.buffer, "<stdin>")
    if hasattr(path, "read"):
        return _read_whole(path, getattr(path, "name", "<file>"))
    with open(check_path("path", path), "rb") as stream:
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode):
            return ModelFile(Source(stream, os.fspath(path), status.st_size))
        return _read_whole(stream, os.fspath(path))


def _layout(of_kernels):
    """The module of what stands before the trailer, imported when it is needed: most models are linear."""
    if of_kernels:
        from marginlinear.modelfile import kernel

        return kernel
    from marginlinear.modelfile import linear

    return linear


def _read_whole(stream, name):
    """Where the size is not known beforehand, all is read before any of it is believed."""
    data = stream.read()
    return ModelFile(Source(io.BytesIO(data), name, len(data)))


class ModelFile:
    """What a file says of a model, checked but for a scaling. Of a linear model it is here without NumPy.

    Attributes
    ----------
    body : Body
        Of `linear` or `kernel`.
    classes : list
        The labels as Python's bools, numbers or text, in the order of a Model's.
    kind : {"bool", "int64", "float64", "str"}
        Their type.
    """

    def __init__(self, source):
        first = header_line(source)
        layout = _layout(first.startswith(b"svm_type "))
        self.source, self.body = source, layout.Body(source, first)
        labels = self.body.labels
        self._trailer = _read_trailer(source, self.body, layout.BEYOND)
        if self._trailer is None:
            if not self.body.foreign:
                raise source.cut("after its last row")
            self.kind, self._found = "int64", {"solver": self.body.kind}
            check_labels(source, labels, self.kind)
        else:
            self.kind = self._trailer["labels"]
            check_labels(source, labels, self.kind)
            self._found = {key: self._trailer[key] for key in ("solver", "params", "info")}
            self._found["calibration"] = _calibration(source, self._trailer.get("calibration"), len(labels))
            kind = self._trailer.get("scaling", {}).get("kind")
            if kind != self.body.scaling:
                raise source.damaged(f"scaling is {shown(kind)} in the trailer, {shown(self.body.scaling)} above it")
        self.classes = labels[::-1] if len(labels) == 2 else labels
        if self.kind in CONVERTED:
            self.classes = list(map(CONVERTED[self.kind], self.classes))

    def weights(self):
        """Those of a plain body, columns in the order of a Model's."""
        return memoryview(self.body.weights(self._trailer))

    def model(self):
        """The Model."""
        import numpy as np

        model = self.body.model(np.array(self.classes, dtype=self.kind), self._trailer, **self._found)
        if self.body.scaling is not None:
            model.scaling = _scaling(self.source, self._trailer["scaling"], model.n_features)
        return model


def _read_trailer(source, body, beyond):
    """The checked trailer as a dict; None where the file ends without one; `beyond` are keys of the layout.

    What is in `calibration` and `scaling` is still to be checked.
    """
    first = source.stream.readline(4 * WORD)
    if not first:
        return None
    source.line += 1
    if first != TRAILER + b"\n":
        if TRAILER.startswith(first):
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
    trailer = parse_json(source, line, source.line, 1)
    optional = {key: dict for key in ("calibration", "scaling") if key in trailer}
    check_keys(source, "trailer", trailer, {
        **beyond, **optional, "info": (dict, type(None)), "labels": str, "params": dict, "solver": str,
        "version": str, "sha256": str})
    _check_params(source, trailer["params"])
    trailer["info"] = _info(source, trailer["info"])
    return trailer


def _check_params(source, found):
    """DataError for a value outside its parameter's domain; None is one that was not given."""
    check_keys(source, "params", found, dict.fromkeys(found, PLAIN))
    known = {p.name: p for p in (*P.OWN, *P.RUN, *P.AROUND)}
    for name, value in found.items():
        if name in known and value is not None:
            _checked(source, "params", known[name], value)


def _checked(source, what, param, value):
    try:
        param.check(value)
    except ValueError:
        raise source.damaged(f"{what}: {param.name} is {shown(value)}, outside {param.allowed}") from None


def _calibration(source, found, n_classes):
    if found is None:
        return None
    from marginlinear.calibration import Calibration

    number = (int, float)
    check_keys(source, "calibration", found, {"kind": str, "offset": (*number, list), "slope": (*number, list)})

    def numbers(name):
        if not isinstance(found[name], list):
            return float(found[name])
        if not all(type(value) in number for value in found[name]):
            raise source.damaged(f"calibration: {name} is not a list of numbers")
        return tuple(map(float, found[name]))

    try:
        return Calibration(found["kind"], numbers("slope"), numbers("offset")).check(n_classes)
    except (OverflowError, ValueError) as error:
        raise source.damaged(f"calibration: {error}") from None


def _scaling(source, found, n_features):
    """The Scaling that the trailer holds."""
    import numpy as np

    from marginlinear.data.scaling import KINDS, UNIT, Scaling

    kind = found["kind"]
    if kind not in KINDS:
        raise source.error(f"scaling: {shown(kind)} is not known: use a newer marginlinear")
    if kind == UNIT:
        check_keys(source, "scaling", found, {"kind": str})
        return Scaling(UNIT)
    number = (int, float)
    check_keys(source, "scaling", found, {"kind": str, "least": list, "lower": number, "most": list, "upper": number})
    for name in ("least", "most"):
        if not all(type(value) in number for value in found[name]):
            raise source.damaged(f"scaling: {name} is not a list of numbers")
    try:
        least, most = (np.array(found[name], dtype=np.float64) for name in ("least", "most"))
        ends = np.array([found["lower"], found["upper"]], dtype=np.float64)
        if not (len(least) == len(most) == n_features and ends[0] < ends[1] and np.isfinite(ends).all()
                and np.isfinite(least).all() and np.isfinite(most).all() and (least <= most).all()):
            raise ValueError(f"the {n_features} ranges do not fit each other")
        return Scaling(kind, least, most, *ends.tolist())
    except (OverflowError, ValueError) as error:
        raise source.damaged(f"scaling: {error}") from None


def _info(source, found):
    if found is None:
        return None
    found.setdefault("reason", None)
    check_keys(source, "info", found, dict.fromkeys(KEPT, PLAIN))
    values = {}
    for name, kind in KEPT.items():
        value = found[name]
        if value in NOT_FINITE and kind is not str:
            value = float(value)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise source.damaged(f"info: {name} is {shown(value)}")
        if kind is int and value < 0:
            raise source.damaged(f"info: {name} is {value}, below 0")
        values[name] = value
    _checked(source, "info", P.TOL, values["tol"])
    if values["status"] not in STATUSES:
        raise source.damaged(f"info: status is {shown(values['status'])}")
    if values["reason"] not in (None, *CAPS):
        raise source.damaged(f"info: reason is {shown(values['reason'])}")
    return Info(**values, seconds=math.nan)


