"""Model files: the text of LIBLINEAR or LIBSVM, then a trailer of our own.

    solver_type MCSVM_CS        or svm_type c_svc: see `linear` and `kernel`
    ...
    marginlinear 1
    {"info": {...}, "labels": "int64", "params": {...}, "solver": "mcodm", "version": "...", "sha256": "..."}

A calibration, a scaling of rows before they are scored, and the columns of a table, with their names and words, are
further keys of the trailer where a model has them:

    "calibration": {"kind": "sigmoid", "offset": 0.1, "slope": 2.5}, for "pairwise" and several labels lists of numbers
    "scaling": {"kind": "range", "least": [0, ...], "lower": 0, "most": [1, ...], "upper": 1}, or {"kind": "unit"}
    "table": {"features": ["age", "town=Rom"], "label": "kind", "onehot": [["town", 1]]}: the last features are those of
        the columns of `onehot`, each with so many words; or in its place "hash": {"bits": 20, "columns": ["town"],
        "first": 1}, the number of `features`

Both programs stop reading before the trailer, so they serve such a file unchanged. With two classes the file has
classes[1] first: a score above 0 is its first label, one of 0 the second. Bools are 0 and 1. Labels that they would
mistake (text, fractions, integers beyond a C int) stand as a JSON list after `classes` in place of `label`, and they
refuse the file.
The digest is that of all bytes before its own first digit: `head -c -67 FILE | sha256sum`. Nothing that differs
between two equal runs is written: equal models are equal files.

A file without a trailer is LIBLINEAR's or LIBSVM's own and is loaded for prediction. That includes a file of ours cut
exactly there, which cannot be told from one; its weights and labels are whole.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from marginlinear.atomic import replacing
from marginlinear.data.reading import shown
from marginlinear.modelfile import kernel, linear
from marginlinear.modelfile.text import NUMBERS, Source, check_labels, header_line
from marginlinear.modelfile.trailer import calibration_of, read_trailer, scaling_of, table_of, write_trailer
from marginlinear.params import THREADS, check_path, refusal
from marginlinear.threads import default_threads

if TYPE_CHECKING:
    from typing import Any, BinaryIO

    from marginlinear._typing import Integer, PathLike
    from marginlinear.model import Model


def save_model(model: Model, path: PathLike, *, threads: Integer | None = None) -> None:
    """Write `model` to the file `path`, `-` for standard output.

    The file appears whole or not at all: an interrupt, a crash or a full disk leaves the old one.

    Parameters
    ----------
    model : Model
    path : str or path-like
    threads : int, optional
        Default: all cores. The file does not depend on it.

    Raises
    ------
    OSError
        The file cannot be written.
    ValueError
        A weight is not finite, a label is no word, or the kernel is a Python function.
    TypeError
        Arguments of another kind.
    """
    if not hasattr(model, "weights") or not hasattr(model, "classes"):
        raise refusal("model", model, "a Model, as train returns it")
    threads = default_threads() if threads is None else THREADS.check(threads)
    with replacing(check_path("path", path)) as stream:
        digest = sha256()

        def put(data: bytes) -> None:
            digest.update(data)
            stream.write(data)

        if not np.isfinite(model.bias):
            raise ValueError(f"the model is not saved: bias = {model.bias} is not finite")
        body: Any = kernel if hasattr(model, "kernel") else linear
        own = body.write(model, put, threads)
        write_trailer(model, own, put, digest)


def load_model(path: PathLike | BinaryIO) -> Model:
    """Read a model file of marginlinear, of LIBLINEAR's or LIBSVM's (c_svc, nu_svc).

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
    if isinstance(path, str) and path == "-":
        return _model_of_stream(sys.stdin.buffer, "<stdin>")
    if hasattr(path, "read"):
        return _model_of_stream(path, getattr(path, "name", "<file>"))
    name: Any = path
    with open(check_path("path", path), "rb") as stream:
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode):
            return _model_of(Source(stream, os.fspath(name), status.st_size))
        return _model_of_stream(stream, os.fspath(name))


def _model_of_stream(stream: Any, name: str | bytes) -> Model:
    """Where the size is not known beforehand, all is read before any of it is believed."""
    data = stream.read()
    return _model_of(Source(io.BytesIO(data), name, len(data)))


def _model_of(source: Source) -> Model:
    first = header_line(source)
    body = (kernel.KernelBody if first.startswith(b"svm_type ") else linear.LinearBody)(source, first)
    trailer = read_trailer(source, body.trailer_keys)
    about: dict[str, Any]
    if trailer is None:
        if not body.foreign:
            raise source.cut("after its last row")
        dtype, about = "int64" if body.labels is not None else NUMBERS, {"solver": body.kind}
        check_labels(source, body.labels, dtype)
    else:
        dtype, about = trailer["labels"], {key: trailer[key] for key in ("solver", "params", "info")}
        check_labels(source, body.labels, dtype)
        if body.labels is not None:
            about["calibration"] = calibration_of(source, trailer.get("calibration"), len(body.labels), body.multilabel)
        elif "calibration" in trailer:
            raise source.damaged("a regression has no calibration")
        kind = trailer.get("scaling", {}).get("kind")
        if kind != body.scaling:
            raise source.damaged(f"scaling is {shown(kind)} in the trailer, {shown(body.scaling)} above it")
    classes = None if body.labels is None else np.array(body.labels, dtype=dtype)
    model = body.model(classes, trailer, **about)
    if trailer is not None and "table" in trailer:
        model.table = table_of(source, trailer["table"], model.n_features)
    if body.scaling is not None and trailer is not None:
        model.scaling = scaling_of(source, trailer["scaling"], model.n_features)
    return model
