"""A linear model's file up to the trailer: LIBLINEAR's text.

    solver_type MCSVM_CS        see below
    nr_class 3
    label 1 2 3
    nr_feature 4
    bias -1                     not negative: one more row of weights
    w
    0.1 -0.2 0.1                one row a feature, a blank after each value, numbers that read back exactly
    ...

The solver_type is LIBLINEAR's name for l2svc (L2R_L2LOSS_SVC_DUAL), l1svc (L2R_L1LOSS_SVC_DUAL) and cs (MCSVM_CS); for
the others MCSVM_CS where k columns are compared, L2R_L2LOSS_SVC_DUAL where the sign of one decides.

Of two classes LIBLINEAR looks only at the first column, even with MCSVM_CS: so their columns stand in the order of the
labels, classes[1] first. Columns with codes have a solver_type that LIBLINEAR refuses, and before nr_feature

    codes ++0 -0+ 0--           a word a class: what the class is in each column, + positive, - negative, 0 neither

A multi-label model has that solver_type too, and in place of the codes

    multilabel 1                a column a label, in their order: a row has those with a score above 0

A regression has LIBLINEAR's name too (L2R_L2LOSS_SVR for l2svr, L2R_L1LOSS_SVR_DUAL for l1svr), nr_class 2, no labels.
So has a one-class model, ONECLASS_SVM, and after the line of the bias, which it has none of, one of `rho`: scores are
w.x - rho.

A line `scaling unit`, which LIBLINEAR refuses too, tells that rows are scaled before they are scored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from marginlinear import liblinear, registry
from marginlinear._core.decimal import ROWS_LONG_LINE, ROWS_SHORT_LINE, format_rows, parse_rows
from marginlinear.calibration import of_logistic
from marginlinear.data.reading import NATURAL, shown
from marginlinear.model import Model, MultiLabelModel, RegressionModel
from marginlinear.modelfile.text import (
    NO_LABELS,
    WORD,
    WORD_ONLY,
    Body,
    Fields,
    code_line,
    is_one_class,
    label_lines,
    multilabel_line,
    scaling_line,
)
from marginlinear.threads import ranges, run_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from marginlinear._typing import AnyArray, FloatArray
    from marginlinear.errors import DataError
    from marginlinear.modelfile.text import Source

KEYS = ("solver_type", "nr_class", "label", "classes", "codes", "multilabel", "scaling", "nr_feature", "bias", "rho")
READ_AT_ONCE = 1 << 20  # bytes of text
WRITTEN_AT_ONCE = 1 << 18  # bytes of weights
AHEAD = 4  # blocks for each thread whose text is held


def write(model: Model, put: Callable[[bytes], object], threads: int) -> dict[str, Any]:
    """Give `put` the text, some of it at a time; returns what the trailer of a linear model has of its own: nothing."""
    number = registry.liblinear_number(model.solver)
    bias, weights, rho = model.bias, model.weights, ""
    if is_one_class(model):
        kind, bias, weights = liblinear.ONE_CLASS[21], -1.0, model.coef.T
        rho = f"rho {-model.intercept[0]:.17g}\n"
    elif model.classes is None:
        kind = model.solver if model.solver in liblinear.REGRESSORS.values() else liblinear.REGRESSORS[number or 11]
    else:
        coded = model.voted or model.multilabel
        kind = liblinear.CODED if coded else liblinear.solver_type(number, len(model.classes), model.columns)
    rows, columns = weights.shape
    labels = NO_LABELS if rho else label_lines(model)
    put((f"solver_type {kind}\n{labels}{code_line(model)}{multilabel_line(model)}{scaling_line(model)}"
         f"nr_feature {model.n_features}\nbias {bias:.17g}\n{rho}w\n").encode("ascii"))
    flipped = model.joint and columns == 2
    blocks = ranges(rows, max(1, WRITTEN_AT_ONCE // (8 * columns)))
    made: list[bytes] = []
    for first, last in ranges(len(blocks), AHEAD * threads):
        def work(number: int, _: int, first: int = first, made: list[bytes] = made) -> bytes:
            # While one thread puts what was made before, the others make what comes next.
            if number == 0:
                for text in made:
                    put(text)
                return b""
            low, high = blocks[first + number - 1]
            part = weights[low:high]
            try:
                return format_rows(np.ascontiguousarray(part[:, ::-1]) if flipped else part)
            except ValueError:
                raise ValueError("the model is not saved: it holds a weight that is not finite") from None

        made = run_chunks(work, 1 + last - first, threads, 1)
    for text in made:
        put(text)
    return {}


class LinearBody(Body):

    def __init__(self, source: Source, first: bytes) -> None:
        fields = Fields(source, first, KEYS, "w", "its weights")
        self.kind = read_solver_type(source, fields)
        self.trailer_keys = {}
        one_class = self.kind in liblinear.ONE_CLASS.values()
        unlabelled = one_class or self.kind in liblinear.REGRESSORS.values()
        self.labels, listed = (fields.no_labels(), False) if unlabelled else fields.labels()
        if one_class:
            self.labels = [-1, 1]
        nr_feature = fields.value("nr_feature", NATURAL, int, "the number of features")
        self.bias = fields.number("bias")
        self.codes: Any = None
        k = 2 if unlabelled else len(self.labels)
        self.multilabel = fields.multilabel(self.kind, liblinear.CODED)
        columns = k
        if self.kind == liblinear.CODED and not self.multilabel:
            self.codes = fields.codes(k)
            columns = self.codes.shape[1]
        elif "codes" in fields:
            raise source.damaged(f"codes do not go with {self.kind}", 1, fields.lines["codes"])
        self.scaling = fields.scaling()
        self.foreign = not listed and self.kind != liblinear.CODED and self.scaling is None
        if self.kind != liblinear.CODED:
            columns = liblinear.columns_of(self.kind, k)
        if "rho" in fields and not one_class:
            raise source.error("unknown text in model file: [rho]", 1, fields.lines["rho"])
        rho = fields.number("rho") if one_class else 0.0
        if one_class and self.bias >= 0:
            raise source.damaged("a one-class model has a rho in place of a bias", *fields.place("bias"))
        self.weights = read_weights(source, nr_feature + (self.bias >= 0), columns)
        if one_class:
            self.weights, self.bias = np.vstack((self.weights, [[-rho]])), 1.0

    def model(self, classes: AnyArray | None, trailer: Mapping[str, Any] | None, **rest: Any) -> Model:
        """The Model; `rest` are arguments of it."""
        weights = self.weights
        if classes is None:
            return RegressionModel(weights, bias=self.bias, **rest)
        if len(classes) == weights.shape[1] == 2 and self.codes is None:
            # LIBLINEAR's own model decides by its first column, and so does it here.
            weights = weights[:, :1] if trailer is None else weights[:, ::-1]
        if trailer is None and self.kind in liblinear.LOGISTIC:
            rest["calibration"] = of_logistic(len(classes))
        made = MultiLabelModel if self.multilabel else Model
        return made(weights, classes, bias=self.bias, codes=self.codes, **rest)


def read_solver_type(source: Source, fields: Fields) -> str:
    name = fields.value("solver_type", WORD_ONLY, bytes.decode, "a solver's name")
    if name not in (liblinear.CODED, *liblinear.SOLVERS.values()):
        known = ", ".join(liblinear.SOLVERS.values())
        raise source.error(f"unknown solver type. {name[:WORD]} is none of {known}", *fields.place("solver_type"))
    return name


def read_weights(source: Source, rows: int, columns: int) -> FloatArray:
    """The table of weights, a block of whole lines at a time."""
    if rows * columns * 2 > source.left():
        # A digit and a blank is the least that a weight takes: refused before memory is asked for.
        raise source.damaged(f"{rows} rows of {columns} weights do not fit into {source.left()} bytes")
    weights = np.empty((rows, columns))
    stream, done = source.stream, 0
    while done < rows:
        start = stream.tell()
        block = stream.read(READ_AT_ONCE)
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
            raise bad_weights(source, block, position, code, columns)
        source.digest.update(memoryview(block)[:position])
        source.line += count
        done += count
        stream.seek(start + position)
    return weights


def bad_weights(source: Source, block: bytes, position: int, code: int, columns: int) -> DataError:
    """The error for the place where parse_rows stopped."""
    source.line += block.count(b"\n", 0, position) + 1
    column = position - block.rfind(b"\n", 0, position)
    if code == ROWS_SHORT_LINE:
        return source.damaged(f"fewer than {columns} weights in the row", column)
    if code == ROWS_LONG_LINE:
        return source.damaged(f"more than {columns} weights in the row", column)
    word = block[position : position + 2 * WORD].split(maxsplit=1)[0]
    return source.damaged(f"{shown(word)} is not a finite number", column)
