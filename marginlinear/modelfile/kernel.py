"""A kernel model's file up to the trailer: LIBSVM's text.

    svm_type c_svc
    kernel_type rbf
    gamma 0.5                   degree, gamma and coef0 where the kernel has them
    nr_class 2
    total_sv 3
    rho 0.25                    what is subtracted: -intercept, one value a column of scores
    label 1 -1
    nr_sv 2 1                   support vectors of each class
    SV
    0.5 1:0.25 7:-1             coefficients, then the features; of a precomputed kernel 0:number of the row, from 1
    ...

Where a calibration is made of sigmoids, before nr_sv stand `probA` and `probB`, one value a pair, whose first class has
1/(1 + exp(A f + B)): svm-predict -b 1 serves that. Of a file with a trailer the calibration there is what counts.

A regression is `svm_type epsilon_svr`, with nr_class 2 and neither labels nor nr_sv; so is `one_class`, whose score
above 0 is that of 1. What svm-train -b 1 adds to these, `probA` or `prob_density_marks`, is not kept.

Such a file holds a column of scores for each pair of classes i < j, positive for the first of them in the order of
the labels. A support vector of class i has the coefficient for the pair with j in place j - 1 or, where j < i, in
place j: one value for two classes, k - 1 for k. Where two columns say one thing twice, for two classes, the second one
is written, and the trailer says `columns` 2.

A line `scaling maxabs`, which LIBSVM refuses, tells that rows are scaled before they are scored; the trailer has how.
Other models have `svm_type marginlinear`, which LIBSVM refuses, a coefficient a column in each line, and the lines
`codes`, or `multilabel`, of `linear` if they have some. A multi-label model has one number as nr_sv.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import numpy as np

from marginlinear._core.decimal import ROWS_LONG_LINE, ROWS_SHORT_LINE, format_rows, parse_rows
from marginlinear.calibration import PAIRWISE, SIGMOID, Calibration
from marginlinear.data.arrays import CSR
from marginlinear.data.kernels import Kernel
from marginlinear.data.reading import NATURAL, NUMBER, shown
from marginlinear.errors import DataError
from marginlinear.libsvm import read_libsvm
from marginlinear.libsvm.writer import compressed, rows_text
from marginlinear.model import ONE_AGAINST_ONE, KernelModel, KernelMultiLabelModel, KernelRegressionModel
from marginlinear.modelfile.text import (
    NO_LABELS,
    WORD_ONLY,
    Body,
    Fields,
    code_line,
    is_one_class,
    label_lines,
    multilabel_line,
    scaling_line,
)
from marginlinear.threads import ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from marginlinear._typing import AnyArray, FloatArray
    from marginlinear.modelfile.text import Source

KEYS = ("svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho", "label", "classes",
        "codes", "multilabel", "scaling", "probA", "probB", "prob_density_marks", "nr_sv")
SIGMOIDS, MARKS = ("probA", "probB"), "prob_density_marks"
PAIRS, OWN = "c_svc", "marginlinear"
REGRESSION, ONE_CLASS = ("epsilon_svr", "nu_svr"), "one_class"
FOREIGN = (PAIRS, "nu_svc", *REGRESSION, ONE_CLASS)
# LIBSVM's names of the kernels, and what each has beside its name.
KERNELS = {"linear": "linear", "poly": "polynomial", "rbf": "rbf", "sigmoid": "sigmoid", "precomputed": "precomputed"}
PARAMETERS = {"poly": ("degree", "gamma", "coef0"), "rbf": ("gamma",), "sigmoid": ("gamma", "coef0")}
READ_AT_ONCE = 1 << 20  # bytes of support vectors
WRITTEN_AT_ONCE = 256  # support vectors


def write(model: KernelModel, put: Callable[[bytes], object], threads: int) -> dict[str, Any]:
    """Give `put` the text, some of it at a time; returns what the trailer of a kernel model has of its own."""
    kernel = model.kernel
    if callable(kernel.kind):
        raise ValueError("the model is not saved: its kernel is a Python function, which a file cannot hold")
    if not (np.isfinite(model.weights).all() and np.isfinite(model.intercept).all()):
        raise ValueError("the model is not saved: it holds a coefficient that is not finite")
    unlabelled = REGRESSION[0] if model.classes is None else ONE_CLASS if is_one_class(model) else None
    k = 2 if unlabelled else len(model.classes)  # pyright: ignore[reportArgumentType]  # they are there
    flip = -1 if k == 2 else 1
    coefficients = model.weights if unlabelled else pairwise(model)
    kind = unlabelled or (OWN if coefficients is None else PAIRS)
    intercept = model.intercept[-1:] if kind == PAIRS and k == 2 else model.intercept
    coefficients = model.weights if coefficients is None else coefficients
    header = [f"svm_type {kind}", f"kernel_type {KERNELS[kernel.kind]}"]
    header += [f"{name} {getattr(kernel, name):.17g}" for name in PARAMETERS.get(kernel.kind, ())]
    counts = " ".join(map(str, model.support_counts[::flip].tolist()))
    rho = " ".join(f"{value:.17g}" for value in (0.0 - intercept).tolist())
    nr_class, *labels = NO_LABELS.splitlines() if unlabelled else label_lines(model).splitlines()
    header += [nr_class, f"total_sv {model.n_support}", f"rho {rho}", *labels]
    if not unlabelled:
        header += [*(sigmoid_lines(model.calibration) if kind == PAIRS else ()), f"nr_sv {counts}"]
    codes = code_line(model) + multilabel_line(model) if kind == OWN else ""
    put(("\n".join(header) + "\n" + codes + scaling_line(model) + "SV\n").encode("ascii"))
    for low, high in ranges(model.n_support, WRITTEN_AT_ONCE):
        words = [line.rstrip() for line in format_rows(np.ascontiguousarray(coefficients[low:high])).splitlines()]
        if kernel.kind == "precomputed":
            put(b"".join(b"%b 0:%d\n" % (word, row + 1)
                         for word, row in zip(words, model.support_rows[low:high].tolist(), strict=True)))
        else:
            # A float32 value is a float64 too, with its own digits: it must come back as the same number.
            indptr, indices, values = compressed(model.support_rows, low, high)
            put(rows_text(indptr, indices, values.astype(np.float64), words, 1))
    return {"bias": model.bias, "columns": model.columns, "nr_feature": model.n_features}


def sigmoid_lines(calibration: Calibration | None) -> list[str]:
    """probA and probB, where a calibration is made of sigmoids."""
    if calibration is None or calibration.kind not in (SIGMOID, PAIRWISE):
        return []
    return [f"{key} " + " ".join(f"{0.0 - value:.17g}" for value in np.ravel(values).tolist())
            for key, values in zip(SIGMOIDS, (calibration.slope, calibration.offset), strict=True)]


def pairwise(model: KernelModel) -> FloatArray | None:
    """The coefficients in LIBSVM's places, an array of shape (n_support, k - 1); None if the model has no such form."""
    weights, k = model.weights, len(model.classes)
    if model.multilabel:
        return None
    if k == 2 and not model.voted:
        opposite = weights.shape[1] == 1 or (np.array_equal(weights[:, 0], -weights[:, 1])
                                             and model.intercept[0] == -model.intercept[1])
        return weights[:, -1:] if opposite else None
    return weights if weights.shape[1] != model.columns else None


class KernelBody(Body):

    def __init__(self, source: Source, first: bytes) -> None:
        fields = Fields(source, first, KEYS, "SV", "its support vectors")
        self.source = source
        self.trailer_keys = {"bias": (int, float), "columns": int, "nr_feature": int}
        self.kind = read_svm_type(source, fields)
        self.kernel = read_kernel(source, fields)
        unlabelled = self.kind == ONE_CLASS or self.kind in REGRESSION
        self.labels, listed = (fields.no_labels(), False) if unlabelled else fields.labels()
        if self.kind == ONE_CLASS:
            self.labels = [-1, 1]
        self.scaling = fields.scaling()
        self.foreign = self.kind in FOREIGN and not listed and self.scaling is None
        k = 2 if unlabelled else len(self.labels)
        self.multilabel = fields.multilabel(self.kind, OWN)
        if k < 2 and not self.multilabel:
            raise source.error(f"nr_class is {k}: a model of one class decides nothing", *fields.place("nr_class"))
        pairs = k * (k - 1) // 2
        self.rho = fields.several("rho", NUMBER, float, "a finite number", None if self.kind == OWN else pairs)
        total = fields.value("total_sv", NATURAL, int, "the number of support vectors")
        self.counts = [total] if self.kind in REGRESSION else [total, 0] if unlabelled else fields.several(
            "nr_sv", NATURAL, int, "a number of support vectors", 1 if self.multilabel else k)
        if sum(self.counts) != total:
            raise source.damaged(f"nr_sv has a sum of {sum(self.counts)}, total_sv is {total}", *fields.place("nr_sv"))
        self.codes = fields.codes(k) if "codes" in fields else None
        if self.codes is not None and (self.kind != OWN or self.codes.shape[1] != len(self.rho)):
            raise source.damaged(f"codes do not go with {len(self.rho)} values of rho and svm_type {self.kind}", 1,
                                 fields.lines["codes"])
        self.calibration = None
        if self.kind in REGRESSION:
            # The scale of the residuals' distribution, which svm-train -b 1 adds: no prediction depends on it.
            if SIGMOIDS[0] in fields:
                fields.number(SIGMOIDS[0])
        elif fields.lines.keys() & SIGMOIDS:
            if self.kind in (OWN, ONE_CLASS):
                key = min(fields.lines.keys() & SIGMOIDS)
                raise source.damaged(f"{key} does not go with svm_type {self.kind}", 1, fields.lines[key])
            a, b = (fields.several(key, NUMBER, float, "a finite number", pairs) for key in SIGMOIDS)
            self.calibration = Calibration(PAIRWISE, tuple(0.0 - v for v in a), tuple(0.0 - v for v in b))
        if MARKS in fields:
            if self.kind != ONE_CLASS:
                raise source.damaged(f"{MARKS} does not go with svm_type {self.kind}", 1, fields.lines[MARKS])
            # What svm-train -b 1 adds, by which it makes a probability of a score: no label depends on it.
            fields.several(MARKS, NUMBER, float, "a finite number")
        columns = len(self.rho) if self.kind == OWN else k - 1
        self.coefficients, self.support = read_support(source, total, columns, self.kernel.kind == "precomputed")

    def model(self, classes: AnyArray | None, trailer: Mapping[str, Any] | None, **rest: Any) -> KernelModel:
        """The KernelModel; `rest` are arguments of it."""
        k = 2 if classes is None else len(classes)
        weights, intercept = self.coefficients, 0.0 - np.array(self.rho)
        codes: Any = self.codes
        if self.kind != OWN and k > 2:
            codes = ONE_AGAINST_ONE
        elif self.kind != OWN and trailer is not None and trailer["columns"] == 2:
            weights, intercept = np.hstack([-weights, weights]), np.hstack([-intercept, intercept])
        support = self.support
        least = support.n_features if isinstance(support, CSR) else int(support.max(initial=-1)) + 1
        if trailer is None:
            bias, n_features, rest["calibration"] = -1.0, least, self.calibration
        else:
            bias, n_features = float(trailer["bias"]), trailer["nr_feature"]
            if not least <= n_features < 1 << 31:
                raise self.source.damaged(f"nr_feature is {n_features}, and the support vectors reach {least}")
            if trailer["columns"] != len(intercept):
                raise self.source.damaged(f"the trailer has {trailer['columns']} columns, rho has {len(intercept)} "
                                          "values")
        if codes is None and len(intercept) != k and ((len(intercept), k) != (1, 2) or self.multilabel):
            raise self.source.damaged(f"rho has {len(intercept)} values for {k} classes")
        if isinstance(support, CSR):
            support.n_features = n_features
        made = (KernelRegressionModel if classes is None else KernelMultiLabelModel if self.multilabel
                else KernelModel)
        return made(self.kernel, support, weights, classes, codes=codes, intercept=intercept, bias=bias,
                    support_counts=self.counts[::-1] if k == 2 else self.counts, n_features=n_features, **rest)


def read_svm_type(source: Source, fields: Fields) -> str:
    name = fields.value("svm_type", WORD_ONLY, bytes.decode, "a kind of model")
    if name not in (*FOREIGN, OWN):
        raise source.error(f"unknown svm type. {shown(name)} is none of {', '.join(FOREIGN)}",
                           *fields.place("svm_type"))
    return name


def read_kernel(source: Source, fields: Fields) -> Kernel:
    name = fields.value("kernel_type", WORD_ONLY, bytes.decode, "a kernel's name")
    kinds = {theirs: ours for ours, theirs in KERNELS.items()}
    if name not in kinds:
        raise source.error(f"unknown kernel function. {shown(name)} is none of {', '.join(kinds)}",
                           *fields.place("kernel_type"))
    kind = kinds[name]
    values: dict[str, Any] = {key: fields.value("degree", NATURAL, int, "a degree of 0 or more") if key == "degree"
              else fields.number(key) for key in PARAMETERS.get(kind, ())}
    for key in ("degree", "gamma", "coef0"):
        if key in fields and key not in values:
            raise source.damaged(f"{key} does not go with kernel_type {name}", 1, fields.lines[key])
    if values.get("gamma", 0.0) < 0 or values.get("degree", 0) >= 1 << 31:
        key = "gamma" if values["gamma"] < 0 else "degree"
        raise source.error(f"{key} is {values[key]}: out of range", *fields.place(key))
    return Kernel(kind, **values)


def read_support(source: Source, total: int, columns: int, numbered: bool) -> tuple[FloatArray, Any]:
    """(coefficients of shape (total, columns), support vectors): CSR, or row numbers if they are `numbered`."""
    if total * max(1, columns * 2) > source.left():
        # A digit and a blank is the least that a coefficient takes: refused before memory is asked for.
        raise source.damaged(f"{total} support vectors of {columns} coefficients do not fit into {source.left()} bytes")
    lines: Any = SupportLines(source, np.empty((total, columns)))
    if not total:
        none = CSR(np.zeros(0), np.zeros(0, np.int32), np.zeros(1, np.int64), 0)
        return lines.coefficients, np.zeros(0, np.int64) if numbered else none
    try:
        read = read_libsvm(lines, zero_based=numbered, text_labels=False, multilabel=False)
    except DataError as error:
        if error.path != SupportLines.name:
            raise
        raise lines.place(error) from None
    if not numbered:
        return lines.coefficients, CSR(read.data, read.indices, read.indptr, read.n_features)
    rows = read.data
    wrong = (np.diff(read.indptr) != 1).nonzero()[0]
    if not len(wrong):
        wrong = ((read.indices != 0) | (rows < 1) | (rows != np.floor(rows)) | (rows > 1 << 31)).nonzero()[0]
    if len(wrong):
        raise source.damaged("not a row number of a precomputed kernel, 0:1 or more", 1, lines.first + int(wrong[0]))
    return lines.coefficients, rows.astype(np.int64) - 1


class SupportLines(io.RawIOBase):
    """The lines of support vectors as lines of data for the LIBSVM reader, whose label is always 0.

    The coefficients that stand in place of a label go into `coefficients`.
    """

    name = "<support vectors>"

    def __init__(self, source: Source, coefficients: FloatArray) -> None:
        self.source, self.coefficients = source, coefficients
        self.start, self.first = source.stream.tell(), source.line + 1
        self.done, self.rest = 0, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        if not self.rest and self.done < len(self.coefficients):
            self.rest = memoryview(self.convert())
        n = min(len(room), len(self.rest))
        room[:n] = self.rest[:n]
        self.rest = self.rest[n:]
        return n

    def convert(self) -> bytes:
        """The next block of whole lines."""
        source, total, columns = self.source, *self.coefficients.shape
        stream = source.stream
        start = stream.tell()
        block = stream.read(READ_AT_ONCE)
        if not block.endswith(b"\n"):
            block += stream.readline()
        lines = block.split(b"\n")[:-1][: total - self.done]
        if not lines:
            raise source.cut(f"in support vector {self.done + 1} of {total}")
        block = block[: sum(map(len, lines)) + len(lines)]
        if b"#" in block:
            line = block.count(b"\n", 0, block.index(b"#"))
            raise source.damaged("'#' in a support vector", lines[line].index(b"#") + 1, source.line + line + 1)
        words = [line.split(None, columns) for line in lines]
        numbers = b"\n".join([b" ".join(word[:columns]) for word in words]) + b"\n"
        position, code = parse_rows(numbers, 0, self.coefficients[self.done : self.done + len(lines)])
        if code:
            raise self.bad_coefficient(lines, numbers, position, code)
        source.digest.update(block)
        source.line += len(lines)
        self.done += len(lines)
        stream.seek(start + len(block))
        return b"".join([b"0 " + word[columns] + b"\n" if len(word) > columns else b"0\n" for word in words])

    def bad_coefficient(self, lines: list[bytes], numbers: bytes, position: int, code: int) -> DataError:
        """The error for the place where parse_rows stopped."""
        row = numbers.count(b"\n", 0, position)
        line = self.source.line + row + 1
        columns = self.coefficients.shape[1]
        if code in (ROWS_SHORT_LINE, ROWS_LONG_LINE):
            return self.source.damaged(f"fewer than {columns} coefficients", 1, line)
        before = numbers[numbers.rfind(b"\n", 0, position) + 1 : position]
        word = list(re.finditer(rb"\S+", lines[row]))[len(before.split())]
        return self.source.damaged(f"{shown(word[0])} is not a finite number", word.start() + 1, line)

    def place(self, error: DataError) -> DataError:
        """A DataError of the reader as one of the model file."""
        stream = self.source.stream
        stream.seek(self.start)
        line = b""
        for _ in range(error.line):
            line = stream.readline()
        skipped = line.split(None, self.coefficients.shape[1])
        features = skipped[-1] if len(skipped) > self.coefficients.shape[1] else b""
        column = line.rindex(features) + 1 + error.column - len("0 ") - 1
        number = self.first + error.line - 1
        if error.reason.startswith("index 0 "):
            return self.source.error("index 0 in a support vector: number the features of the data from 1 and train "
                                     "again", column, number)
        return self.source.damaged(error.reason, max(1, column), number)
