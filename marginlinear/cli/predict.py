"""margin-predict: labels, scores and margins for the rows of a LIBSVM file."""

from __future__ import annotations

import sys
from collections import Counter, namedtuple
from contextlib import nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING

from marginlinear import params
from marginlinear.atomic import check_writable, replacing
from marginlinear.cli.command import command
from marginlinear.cli.data import OF_TABLES, is_store, is_table, table_options
from marginlinear.cli.files import require_apart, require_order
from marginlinear.cli.output import DONE, Failure, StatusLine, opening, settle_blas, tell, warn
from marginlinear.cli.report import JSON, data_part, model_part, of_agreement, of_labels, of_numbers, text_of
from marginlinear.errors import renumber_rows
from marginlinear.options import QUIET, THREADS, ZERO_BASED, CommandLine, UsageError
from marginlinear.params import Param

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from marginlinear.model import Model

PROGRAM = "margin-predict"
SCORES = Param("scores", bool, False, "after each label its row's scores: one a class in the order of "
               "their labels; a single one, positive for the first label of the model file; or one for each "
               "problem of --multiclass ovo and ecoc")
MARGINS = Param("margins", bool, False, "at the end of each line the margin: the score of the test file's "
                "label less the largest other, y f(x) with one column, votes in place of scores with ovo and ecoc; "
                "nan if the model lacks the label")
AS_JSON = JSON._replace(help=f"{JSON.help}; without an output_file no predictions are written. It holds the scores of "
                        "all rows, for the area under the ROC curve")
OPTIONS = (SCORES, MARGINS, AS_JSON, ZERO_BASED, *OF_TABLES, THREADS, params.PREDICTED_PROBABILITY, QUIET)
BLOCK = 1 << 21  # scores held at a time

USAGE = """\
usage: margin-predict [options] test_file model_file [output_file]

Predict the labels of rows with a model, and show its accuracy, where they have labels.

One line a row: the label, or the number that a regression predicts, then what options add, with blanks between:
probabilities, scores, the margin. The labels of a multi-label model have commas between. Without an output_file the
lines go to standard output, and the accuracy to standard error.

The model_file is of margin-train, of LIBLINEAR's train or LIBSVM's svm-train; the test_file is LIBSVM text ('-':
standard input), whose rows begin with a label, any one where it is not known, a table whose columns have the names that
the model keeps (.csv, .tsv, .parquet), with or without that of the labels, packed or not (.gz, .bz2, .xz), or a store.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return command(PROGRAM, argv, OPTIONS, USAGE, work)


def work(line: CommandLine) -> int:
    added = Added(line.value(params.PREDICTED_PROBABILITY), line.value(SCORES), line.value(MARGINS))
    test, model_path, output = _files(line.files)
    threads = line.value(THREADS)
    columns = table_options(line, test)
    as_json = line.value(AS_JSON)
    quiet = line.value(QUIET) or as_json
    settle_blas()
    if output:
        with opening("open output file", output):
            check_writable(output)
    from marginlinear.cli.data import few, label_for, located, read_blocks, read_data, read_model, warn_of_extra
    from marginlinear.data.reading import as_written
    from marginlinear.problem import counted

    model = read_model(model_path, multilabel=True)
    if added.probabilities and model.calibration is None:
        raise Failure(f"{model_path}: the model has no calibration, which probabilities need: train it with "
                      "margin-train --probability, or svm-train -b 1 (for models of LIBLINEAR probability output is "
                      "only supported for logistic regression); --scores gives the scores")
    regression = model.classes is None
    if regression and (added.scores or added.margins):
        raise Failure(f"{model_path}: the model is a regression: its lines are its scores, and it has no margins: "
                      f"leave out {(SCORES if added.scores else MARGINS).flag}")
    if model.multilabel and added.margins:
        raise Failure(f"{model_path}: the model is multi-label: a row has no one margin: leave out {MARGINS.flag}")
    how = {"model": model, "zero_based": line.value(ZERO_BASED), "threads": threads,
           "text_labels": not regression and model.classes.dtype.kind == "U",
           "multilabel": model.multilabel, **columns}
    m = n_values = n_features = 0
    labelled, what = True, ""
    # On a terminal the lines themselves are the progress.
    silent = quiet or (not output and sys.stdout.isatty())
    with nullcontext() if as_json and not output else replacing(output or "-") as stream, StatusLine(silent) as status:
        # A kernel's support vectors meet all rows at once: what is done to them is done once. A store may not fit.
        whole = getattr(model, "kernel", None) is not None and not (
            is_store(test) or is_table(test))
        parts = [read_data(test, status, **how)] if whole else read_blocks(test, f"predicting {test}", status, **how)
        kind = NumberPredictor if regression else LabelSetPredictor if model.multilabel else Predictor
        predictor: Any = kind(model, threads, added, _nowhere if stream is None else stream.write, as_json)
        for data in parts:
            labelled, rows = data.labels is not None, len(data.indptr) - 1
            if not labelled:
                what = f"{test} has no column {as_written(label_for(None, data.table))} of labels"
                if added.margins:
                    raise Failure(f"{what}, of which margins are: leave out {MARGINS.flag}")
            with located(data), renumber_rows(range(m, m + rows)):
                predictor.write(data)
            m += rows
            n_values, n_features = n_values + len(data.indices), max(n_features, data.n_features)
    warn_of_extra(predictor.extra, predictor.n_features)
    if model.multilabel and predictor.agreement.missed:
        warn(f"{predictor.agreement.missed} labels of the rows are none that the model knows: they count as missed")
    if not quiet and not (regression or model.multilabel) and predictor.n_strange:
        warn(f"{counted(predictor.n_strange, 'row')} with a label that the model does not know "
             f"({few([predictor.first])} is the first): counted as predicted wrong")
    if as_json:
        about = data_part(test, n_rows=m, n_features=n_features, n_values=n_values, extra_values=predictor.extra,
                          unknown=predictor.unknown if labelled else None)
        scores = predictor.parts() if labelled else {}
        print(text_of(PROGRAM, model=model_part(model, model_path), data=about, **scores))
    if not quiet:
        for text in predictor.results(m) if labelled else [f"{what}: {counted(m, 'row')} predicted, nothing measured"]:
            (print if output else tell)(text)
    return DONE


def _nowhere(text: bytes) -> None:
    """In place of the writer of a file."""


# What stands after the label in a line, in this order: bools.
Added = namedtuple("Added", "probabilities scores margins")


class Predictor:
    """Writes a line for each row.

    Attributes
    ----------
    extra : int
        Values left out, of features that the model, with its n_features, does not know.
    unknown : dict or None
        Label that the model does not know -> its rows, where they are `measured`; None where that is not told.
    n_strange, first
        How many rows have a label that the model does not know, and the first such label.
    """

    def __init__(self, model: Model, threads: int | None, added: Added, write: Callable[[bytes], object],
                 measured: bool) -> None:
        from marginlinear.modelfile.text import label_text
        from marginlinear.selection.metrics import ClassAgreement

        self.agreement = ClassAgreement(len(model.classes), keep_scores=True) if measured else None
        self.unknown: Counter[Any] = Counter()
        self.model, self.threads, self.added, self._write = model, threads, added, write
        self.extra, self.n_features, self.correct = 0, model.n_features, 0
        self.n_strange, self.first = 0, None
        self.names = [label_text(label).encode("utf-8", "surrogateescape") for label in model.classes.tolist()]
        # As in the model file: of two classes classes[1] comes first.
        self.order = slice(None, None, -1 if len(self.names) == 2 else 1)
        if added.probabilities:
            write(b" ".join([b"labels", *self.names[self.order]]) + b"\n")

    def write(self, data: Any) -> None:
        """The lines of some rows."""
        import numpy as np

        from marginlinear._core.decimal import format_rows
        from marginlinear.cli.data import count_extra
        from marginlinear.data.arrays import CSR, row_blocks, sealed

        model, added, names = self.model, self.added, self.names
        # Nobody else has these arrays: they need not be copied. The model's last features need not occur in them.
        X = CSR(data.data, sealed(data.indices), sealed(data.indptr), max(data.n_features, self.n_features))
        self.extra += count_extra(X, model)
        labels = data.labels
        truth = None if labels is None else model.places_in_classes(labels)
        for low, high, block in row_blocks(X, max(1, BLOCK // max(len(names), model.columns))):
            with renumber_rows(range(low, high)):
                scores = model.decide(block, threads=self.threads)
            codes = model.places_of(scores)
            known = None if truth is None else truth[low:high]
            if labels is not None and known is not None:
                self.correct += int(np.count_nonzero(codes == known))
                strange = data.labels[low:high][known < 0]
                if len(strange) and not self.n_strange:
                    self.first = strange[0]
                self.n_strange += len(strange)
                if self.agreement is not None:
                    self.agreement.add_scored(model, scores, known, codes)
                    self.unknown.update(strange.tolist())
            lines = [names[code] for code in codes.tolist()]
            tables = []
            if added.probabilities:
                tables.append(np.ascontiguousarray(model.proba_of(scores)[:, self.order]))
            if added.scores:
                tables.append(scores.reshape(len(codes), -1))
            for table in tables:
                rows = format_rows(table).splitlines()
                lines = [line + b" " + row.rstrip() for line, row in zip(lines, rows, strict=True)]
            if added.margins and known is not None:
                margins = format_rows(model.margins_of(scores, np.maximum(known, 0))[:, None]).split()
                lines = [line + b" " + (margin if code >= 0 else b"nan")
                         for line, margin, code in zip(lines, margins, known.tolist(), strict=True)]
            self._write(b"\n".join(lines) + b"\n")

    def results(self, m: int) -> list[str]:
        """What m rows have come to."""
        return [f"Accuracy = {100 * self.correct / m:g}% ({self.correct}/{m})"]

    def parts(self) -> dict[str, Any]:
        """The same, and more, for --json."""
        return of_agreement(self.agreement, self.model.classes.tolist())


class LabelSetPredictor:
    """The same for a multi-label model: the labels of a row have commas between."""

    unknown = None

    def __init__(self, model: Model, threads: int | None, added: Added, write: Callable[[bytes], object],
                 measured: bool) -> None:
        from marginlinear.modelfile.text import label_text
        from marginlinear.selection.metrics import LabelAgreement

        self.model, self.threads, self.added, self._write = model, threads, added, write
        self.extra, self.n_features, self.agreement = 0, model.n_features, LabelAgreement()
        self.names = [label_text(label).encode("utf-8", "surrogateescape") for label in model.classes.tolist()]
        if added.probabilities:
            write(b" ".join([b"labels", *self.names]) + b"\n")

    def write(self, data: Any) -> None:
        import numpy as np

        from marginlinear._core.decimal import format_rows
        from marginlinear.cli.data import count_extra
        from marginlinear.data.arrays import row_blocks

        model, names = self.model, self.names
        self.extra += count_extra(data, model)
        truth, unknown = data.labels.among(model.classes)
        for low, high, block in row_blocks(data, max(1, BLOCK // model.columns)):
            with renumber_rows(range(low, high)):
                scores = model.decide(block, threads=self.threads)
            found: Any = model.labels_of(scores)
            predicted: Any = model.places_of(scores)
            self.agreement.add(truth[low:high], predicted, scores, unknown[low:high])
            ends, places = found.indptr.tolist(), found.indices.tolist()
            lines = [b",".join([names[at] for at in places[first:end]])
                     for first, end in pairwise(ends)]
            tables = [model.proba_of(scores)] if self.added.probabilities else []
            for table in tables + [scores] * self.added.scores:
                rows = format_rows(np.ascontiguousarray(table)).splitlines()
                lines = [line + b" " + row.rstrip() for line, row in zip(lines, rows, strict=True)]
            self._write(b"\n".join(lines) + b"\n")

    def results(self, m: int) -> list[str]:
        found = self.agreement
        return [f"Micro F1 = {found.micro_f1:g}", f"Macro F1 = {found.macro_f1:g}",
                f"Label ranking average precision = {found.lrap:g}",
                f"Exact match = {100 * found.accuracy:g}% ({found.exact}/{m})"]

    def parts(self) -> dict[str, Any]:
        return of_labels(self.agreement, self.model.classes.tolist())


class NumberPredictor:
    """The same for a regression."""

    unknown = None

    def __init__(self, model: Model, threads: int | None, added: Added, write: Callable[[bytes], object],
                 measured: bool) -> None:
        self.model, self.threads, self._write = model, threads, write
        from marginlinear.selection.metrics import Agreement

        self.extra, self.n_features, self.agreement = 0, model.n_features, Agreement()

    def write(self, data: Any) -> None:
        from marginlinear._core.decimal import format_rows
        from marginlinear.cli.data import count_extra
        from marginlinear.data.arrays import row_blocks

        self.extra += count_extra(data, self.model)
        for low, high, block in row_blocks(data, BLOCK):
            with renumber_rows(range(low, high)):
                scores = self.model.decide(block, threads=self.threads)
            if data.labels is not None:
                self.agreement.add(data.labels[low:high], scores)
            self._write(format_rows(scores[:, None]).replace(b" \n", b"\n"))

    def results(self, m: int) -> list[str]:
        return [f"Mean squared error = {self.agreement.mse:g} (regression)",
                f"Squared correlation coefficient = {self.agreement.squared_correlation:g} (regression)"]

    def parts(self) -> dict[str, Any]:
        return of_numbers(self.agreement)


def _files(files: list[str]) -> tuple[str, str, str | None]:
    if len(files) < 2:
        raise UsageError("the test_file or the model_file is missing")
    if len(files) > 3:
        raise UsageError(f"too many files: {' '.join(files)}")
    test, model = files[:2]
    output = files[2] if len(files) == 3 else None
    if test == model == "-":
        raise UsageError("only one of test_file and model_file can be standard input")
    require_apart([("test_file", test), ("model_file", model)], [("output_file", output or "-")])
    require_order(test, model)
    if output == "-":
        output = None
    return test, model, output


if __name__ == "__main__":
    sys.exit(main())
