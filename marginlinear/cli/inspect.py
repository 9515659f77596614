"""margin-inspect: what a model does on labelled rows, and why."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

from marginlinear.atomic import replacing
from marginlinear.cli.command import command
from marginlinear.cli.data import OF_TABLES, is_store, table_options
from marginlinear.cli.files import require_apart, require_order
from marginlinear.cli.output import DONE, Failure, StatusLine, settle_blas
from marginlinear.cli.report import JSON, data_part, model_part, of_margins, of_residuals, text_of
from marginlinear.options import QUIET, THREADS, ZERO_BASED, CommandLine, UsageError
from marginlinear.params import Param

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from marginlinear._typing import AnyArray
    from marginlinear.margins import Feature, MarginReport, MarginStatistics, TopFeatures
    from marginlinear.model import Model
    from marginlinear.residuals import ResidualReport

PROGRAM = "margin-inspect"
NAMES = Param("names", str, None, "names of the features, one a line, as many as the model has features (default: "
              "those that it keeps)", metavar="FILE")
TOP = Param("top", int, 10, "positive, and negative, weights shown of each class", "[0, inf)")
ROWS = Param("rows", int, 10, "rows of lowest margin, or of largest residual, shown", "[0, inf)")
CLASSES = Param("classes", int, 30, "classes shown, with their features; of more those of the lowest F1", "[0, inf)")
WEIGHTS = Param("weights", str, None, "weights of the rows, one a line", metavar="FILE")
OPTIONS = (JSON, NAMES, TOP, ROWS, CLASSES, WEIGHTS, ZERO_BASED, *OF_TABLES, THREADS,
           QUIET._replace(help="no progress; warnings stay"))
WIDTH = 100
# Characters up to which a line of the confusion matrix is shown; where it is longer, only so many of the errors.
MATRIX, ERRORS = 120, 20

USAGE = """\
usage: margin-inspect [options] model_file data_file
       margin-inspect [--json] store

Show what a model does on labelled rows, and why.

Of classes: accuracy, the distribution of the margins, precision and recall of each class, the confusion matrix, the
features with the largest weights, and the rows of lowest margin, whose labels are likely to be wrong. Of a regression:
its errors, the distribution of the residuals, the features, and the rows of largest residual. Of a store alone: what is
in it, once all of it has been compared with what was written.

The model_file is of margin-train, of LIBLINEAR's train or LIBSVM's svm-train; the data_file is LIBSVM text ('-':
standard input), a table whose columns have the names that the model keeps (.csv, .tsv, .parquet), packed or not (.gz,
.bz2, .xz), or a store. Rows are counted from 1; blank lines, comments and headers are none.
"""
MARGINS = {"score": "score of the label less the largest other", "sign": "y f(x), y = +1 for {}, -1 for {}",
           "votes": "votes for the label less those for the best other class"}


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return command(PROGRAM, argv, OPTIONS, USAGE, work)


def work(line: CommandLine) -> int:
    if len(line.files) == 1 and is_store(line.files[0]):
        return inspect_store(line.files[0], line.value(JSON))
    model_path, data_path = _files(line.files)
    names_path, weights_path = line.value(NAMES), line.value(WEIGHTS)
    columns = table_options(line, data_path)
    top, rows, classes, threads = (line.value(param) for param in (TOP, ROWS, CLASSES, THREADS))
    require_apart([("model_file", model_path), ("data_file", data_path), (NAMES.flag, names_path),
                   (WEIGHTS.flag, weights_path)], [("report", "-")])
    require_order(data_path, model_path)
    zero_based, as_json = line.value(ZERO_BASED), line.value(JSON)
    settle_blas()
    from marginlinear.cli.data import (
        count_extra,
        located,
        read_data,
        read_model,
        read_names,
        warn_of_extra,
        warn_of_unknown,
    )
    from marginlinear.cli.rows import read_weights
    from marginlinear.margins import margin_report
    from marginlinear.residuals import residual_report

    model = read_model(model_path)
    names = None
    if names_path is not None:
        if getattr(model, "kernel", None) is not None:
            raise Failure(f"--names {names_path}: a kernel model has no weights of features to be named")
        names = read_names(names_path, model.n_features)
    with StatusLine(line.value(QUIET)) as status:
        data = read_data(data_path, status, model=model, zero_based=zero_based, threads=threads, multilabel=False,
                         text_labels=model.classes is not None and model.classes.dtype.kind == "U", **columns)
        weights = read_weights(weights_path, len(data.labels)) if weights_path is not None else None
        extra = count_extra(data, model)
        warn_of_extra(extra, model.n_features)
        status.show(f"{len(data.labels)} rows of scores")
        with located(data):
            given: dict[str, Any] = {"sample_weight": weights, "feature_names": names, "n_top": top, "threads": threads}
            report: Any
            if model.classes is None:
                report = residual_report(model, data, data.labels, n_largest=rows, **given)
            else:
                report = margin_report(model, data, data.labels, n_lowest=rows, auc=as_json, **given)
    base = 0 if zero_based else 1
    if model.classes is None:
        report = report._replace(largest_rows=[row._replace(row=row.row + 1) for row in report.largest_rows],
                                 largest=_features_from(base, report.largest),
                                 smallest=_features_from(base, report.smallest))
    else:
        if report.unknown_labels:
            warn_of_unknown(report.unknown_labels, sum(report.unknown_labels.values()),
                            "they count as predicted wrong, and have no margin")
        report = _counted_as_in_files(report, base)
    described = {"model": model_path, "solver": model.solver, "kernel": _kernel(model), "n_features": model.n_features,
                 "data": data_path}
    if as_json:
        unknown = None if model.classes is None else report.unknown_labels
        about = data_part(data_path, n_rows=report.n_rows, n_features=data.n_features, n_values=len(data.indices),
                          extra_values=extra, unknown=unknown)
        parts = of_residuals(report, described["kernel"] is None) if model.classes is None else of_margins(report)
        text = text_of(PROGRAM, model=model_part(model, model_path), data=about, **parts) + "\n"
    else:
        lines = _of_numbers(report) if model.classes is None else _of_classes(model, report, classes)
        text = "\n".join([*_heading(described, model, report), *lines]) + "\n"
    with replacing("-") as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))
    return DONE


def inspect_store(path: str, as_json: bool) -> int:
    """Verify a store and tell what is in it."""
    from marginlinear.store import Store

    store = Store(path)
    for chunk in range(len(store.verified)):
        store.verify(chunk)
    meta = store.meta
    if as_json:
        about = data_part(path, n_rows=store.m, n_features=store.n_features, n_values=store.nnz)
        print(text_of(PROGRAM, data=about, store=meta))
        return DONE
    classes = [f"{label} ({count:,})" for label, count in zip(store.classes, store.class_counts, strict=True)]
    source = meta["source"]
    print(f"{store.m:,} rows, {store.n_features:,} features, {store.nnz:,} values, {store.nonzeros:,} of them not 0\n"
          f"values {store.data.dtype}, columns {store.indices.dtype}, labels {store.y.dtype}\n"
          f"classes: {', '.join(classes[:ERRORS])}{', ...' if len(classes) > ERRORS else ''}\n"
          + (f"made of {source['name']}, {source['size']:,} bytes\n" if source else "made of arrays\n")
          + f"{meta['chunks']:,} chunks, all as they were written")
    return DONE


def _counted_as_in_files(report: MarginReport, base: int) -> MarginReport:
    """The report with rows counted from 1, and features from `base`."""
    return report._replace(
        lowest_rows=[row._replace(row=row.row + 1) for row in report.lowest_rows],
        top_features=[top._replace(largest=_features_from(base, top.largest),
                                   smallest=_features_from(base, top.smallest)) for top in report.top_features])


def _features_from(base: int, found: Sequence[Feature]) -> list[Feature]:
    return [feature._replace(number=feature.number + base) for feature in found]


def _heading(described: Mapping[str, Any], model: Any, report: Any) -> Iterator[str]:
    kind = f"kernel {described['kernel']}, {model.n_support} support vectors" if described["kernel"] else "linear"
    what = "regression" if model.classes is None else f"{len(model.classes)} classes"
    used = described["n_features"] if described["kernel"] else int(model.coef.any(axis=0).sum())
    few = f", {used} of them with weights" * (used < described["n_features"])
    yield (f"{described['model']}: {described['solver'] or 'of another program'}, {kind}, {what}, "
           f"{described['n_features']} features{few}")
    yield f"{described['data']}: {report.n_rows} rows"
    yield ""


def _of_numbers(report: ResidualReport) -> Iterator[str]:
    """The lines of a regression."""
    yield f"Mean squared error = {report.mse:g}"
    yield f"Mean absolute error = {report.mae:g}"
    yield f"R2 = {report.r2:g}"
    yield ""
    yield "residual: target less prediction"
    yield from _distribution({"residual": report.residual, "absolute": report.absolute})
    if report.largest or report.smallest:
        yield ""
        bias = f", intercept {report.intercept:.6g}" if report.intercept else ""
        yield f"strongest features{bias}:"
        yield from _weights(report.largest, report.smallest)
    if report.largest_rows:
        yield ""
        yield "rows of largest residual:"
        yield from _table([["row", "target", "predicted", "residual"],
                           *([str(row.row), *(f"{value:.6g}" for value in row[1:])] for row in report.largest_rows)])


def _of_classes(model: Model, report: MarginReport, most: int) -> Iterator[str]:
    """The lines of a classifier, on at most so many classes."""
    from marginlinear.cli.data import number
    from marginlinear.modelfile.text import label_text

    labels = [label_text(label) for label in model.classes.tolist()]
    known = report.support.sum().item()
    total = known + sum(report.unknown_labels.values())
    hits = sum(count for label, predicted, count in report.confused if label == predicted)
    yield f"Accuracy = {100 * report.accuracy:g}% ({number(hits)}/{number(total)})"
    yield f"Balanced accuracy = {100 * report.macro['recall']:.6g}%"
    yield f"Macro F1 = {100 * report.macro['f1']:.6g}%"
    yield ""
    yield from _margins(model, report, labels)
    yield ""
    shown = _lowest(report.f1, most)
    columns = [values.tolist() for values in (report.precision, report.recall, report.f1)]
    table = [[labels[at], *(f"{column[at]:.4f}" for column in columns), number(report.support[at].item())]
             for at in shown]
    table.append(["mean", *(f"{report.macro[name]:.4f}" for name in ("precision", "recall", "f1")),
                  number(known)])
    if len(shown) < len(labels):
        yield f"the {len(shown)} classes of lowest F1 of {len(labels)}; --classes shows more, --json all"
    yield from _table([["class", "precision", "recall", "F1", "rows"], *table])
    yield ""
    yield from _confusion(report, labels)
    tops = [report.top_features[at] for at in shown] if model.joint and report.top_features else (
        report.top_features[:most])
    for top in tops:
        if top.largest or top.smallest:
            yield ""
            yield from _features(top)
    if len(tops) < len(report.top_features):
        yield f"\nfeatures of {len(tops)} of {len(report.top_features)} columns of weights; --classes shows more"
    if report.lowest_rows:
        yield ""
        yield "rows of lowest margin:"
        yield from _table([["row", "label", "predicted", "margin"],
                           *([str(row.row), label_text(row.label), label_text(row.predicted), f"{row.margin:.6g}"]
                             for row in report.lowest_rows)])


def _lowest(f1: AnyArray, most: int) -> list[int]:
    """Places of all classes; where there are more than `most`, of those of lowest F1, the lowest first, NaN last."""
    from marginlinear.margins import smallest

    places = range(len(f1)) if len(f1) <= most else smallest(f1, most).tolist()
    return list(places)


def _margins(model: Model, report: MarginReport, labels: list[str]) -> Iterator[str]:
    single = not model.voted and not model.joint
    what = MARGINS["sign"].format(*labels[::-1]) if single else MARGINS[report.unit]
    yield f"margin: {what}"
    if report.margin is None:
        yield ("  no row has a label that the model knows" if len(labels) > 1 else
               "  none: the model has one class, and no other score")
        return
    columns = {"margin": report.margin}
    if report.normalised_margin:
        norm = "||w||" if single else "the largest ||w_j - w_l||"
        yield f"normalised: divided by {report.norm:.6g}, {norm}"
        columns["normalised"] = report.normalised_margin
    yield from _distribution(columns)


def _distribution(columns: Mapping[str, MarginStatistics]) -> Iterator[str]:
    """Lines of a dict of MarginStatistics."""
    first, *_ = columns.values()
    table = [[name.replace("_", "-"), *(f"{getattr(column, name):.6g}" for column in columns.values())]
             for name in ("mean", "variance", "semi_variance", "minimum")]
    table += [[f"{100 * level:g}%", *(f"{column.quantiles[level]:.6g}" for column in columns.values())]
              for level in first.quantiles]
    table.append(["maximum", *(f"{column.maximum:.6g}" for column in columns.values())])
    yield from _table([["", *columns], *table])


def _confusion(report: MarginReport, labels: list[str]) -> Iterator[str]:
    from marginlinear.cli.data import number
    from marginlinear.modelfile.text import label_text

    # A count takes two blanks and a digit at least.
    if 3 * len(labels) <= MATRIX:
        lines = list(_table([["", *labels], *([label, *map(number, counts)] for label, counts
                                              in zip(labels, report.confusion.tolist(), strict=True))]))
        if max(map(len, lines)) <= MATRIX:
            yield "confusion: a line a label, a column a prediction"
            yield from lines
            return
    wrong = sorted((entry for entry in report.confused if entry[0] != entry[1]), key=lambda entry: -entry[2])
    yield f"confusion: the {min(ERRORS, len(wrong))} most frequent of {len(wrong)} kinds of errors"
    yield from _table([["label", "predicted", "rows"],
                       *([label_text(label), label_text(predicted), number(count)]
                         for label, predicted, count in wrong[:ERRORS])])


def _features(top: TopFeatures) -> Iterator[str]:
    from marginlinear.cli.data import few

    against = f" against {few(top.negative)}" if top.negative else ""
    bias = f", intercept {top.intercept:.6g}" if top.intercept else ""
    yield f"strongest features for {few(top.positive)}{against}{bias}:"
    yield from _weights(top.largest, top.smallest)


def _weights(*found: Sequence[Feature]) -> Iterator[str]:
    for features in found:
        words = "  ".join(f"{feature.name or feature.number}\xa0{feature.weight:+.4g}" for feature in features)
        yield from (line.replace("\xa0", " ") for line in textwrap.wrap(
            words, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False,
            break_on_hyphens=False))


def _table(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of words, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines:
        cells = "  ".join(f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield f"  {first:<{widths[0]}}  {cells}".rstrip()


def _kernel(model: Model) -> Any:
    kernel = getattr(model, "kernel", None)
    return kernel and kernel.kind


def _files(files: list[str]) -> list[str]:
    if len(files) < 2:
        raise UsageError("the model_file or the data_file is missing")
    if len(files) > 2:
        raise UsageError(f"too many files: {' '.join(files)}")
    if files == ["-", "-"]:
        raise UsageError("only one of model_file and data_file can be standard input")
    return files


if __name__ == "__main__":
    sys.exit(main())
