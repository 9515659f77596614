"""margin-plot: pictures of models, runs and searches."""

from __future__ import annotations

import os
import sys
from io import BytesIO
from itertools import zip_longest
from typing import TYPE_CHECKING

from marginlinear.atomic import check_writable, replacing
from marginlinear.cli.command import command
from marginlinear.cli.data import OF_TABLES, table_options
from marginlinear.cli.files import require_apart, require_order
from marginlinear.cli.manual import Section
from marginlinear.cli.output import DONE, Failure, StatusLine, opening, settle_blas
from marginlinear.errors import needed
from marginlinear.options import QUIET, THREADS, ZERO_BASED, CommandLine, UsageError, did_you_mean
from marginlinear.params import Param

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from marginlinear._typing import IntArray
    from marginlinear.model import Model

PROGRAM = "margin-plot"
OUTPUT = Param("output", str, None, "the picture: a name that ends in .png, .svg or .pdf", letter="o", metavar="FILE")
LABELS = Param("labels", str, None, "names for the legend, in the order of the models or logs, with commas between "
               "(default: the files' names)", metavar="A,B,...")
TITLE = Param("title", str, None, "a title above the picture", metavar="TEXT")
DPI = Param("dpi", int, 150, "pixels per inch of a PNG", "[10, 1200]")
RAW = Param("raw", bool, False, "margins as they are, not divided by the norm of the weights; ovo and ecoc have no "
            "other")
BINS = Param("bins", int, None, "intervals (default: 40 of a histogram, 10 of a reliability curve)", "[1, 1000]")
X = Param("x", str, "time", "horizontal axis", choices=("time", "sweeps"))
LOG_X = Param("log_x", bool, False, "a logarithmic horizontal axis, for runs of very different length")
PARAM = Param("param", str, "C", "the column on the horizontal axis", metavar="NAME")
SCORE = Param("score", str, None, "the column of scores (default: score, or another usual name)", metavar="NAME")
METRIC = Param("metric", str, None, "the metric (default: the comparison's first)", metavar="NAME")
SET = Param("set", str, None, "the set (default: the comparison's first)", metavar="NAME")
QUANTILE = Param("quantile", bool, False, "bins of about equally many rows, in place of equal width")
GENERAL = (OUTPUT, TITLE, DPI, QUIET._replace(help="no progress; warnings stay"))
DATA = (LABELS, ZERO_BASED, *OF_TABLES, THREADS)
# Word -> what it draws, its files, its options.
KINDS = {
    "margins": ("cumulative distribution of margins, or of residuals, of models", "data_file model_file ...",
                (RAW, *DATA)),
    "histogram": ("histogram of these, one below the other", "data_file model_file ...", (RAW, BINS, *DATA)),
    "convergence": ("certificate and objective of runs, of margin-train --log", "log_file ...", (X, LOG_X, LABELS)),
    "search": ("score against C, or another parameter, of a search's table", "table_file",
               (PARAM, SCORE)),
    "ranks": ("mean ranks of methods over sets, of margin-compare -o .json",
              "result_file", (METRIC,)),
    "compared": ("margins of test rows, of margin-compare --margins -o .json", "result_file",
                 (SET,)),
    "reliability": ("reliability curve of the probabilities of models", "data_file model_file ...",
                    (BINS, QUANTILE, *DATA)),
}
OWN = {param.name: param for _, _, options in KINDS.values() for param in options}
# What tells a format's pictures apart that the same command made: a date, a version.
METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None},
            "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}

USAGE = f"""\
usage: margin-plot KIND [options] -o picture file ...

Draw a picture of models, runs, searches or comparisons (needs matplotlib).

The same command makes the same bytes. A data file may be '-', standard input. KIND is one of

{chr(10).join(f"    {kind:<12} {summary}" for kind, (summary, _, _) in KINDS.items())}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return command(PROGRAM, argv, GENERAL, USAGE, work, also=OWN.values(), sections=sections, topic="KIND",
                   words={"KIND": KINDS})


def work(line: CommandLine) -> int:
    picture = Picture(line)
    settle_blas()
    return picture.draw()


def sections() -> dict[str, Section]:
    """The kinds of pictures."""
    return {kind: Section(f"margin-plot {kind} [options] -o picture {files}", f"Draws the {summary}.", options)
            for kind, (summary, files, options) in KINDS.items()}


class Picture:
    """One run of the command. All that can be wrong with the command line is found before any file is read."""

    def __init__(self, line: CommandLine) -> None:
        if not line.files or line.files[0] not in KINDS:
            reason = "the kind of picture is missing"
            if line.files:
                reason = f"{line.files[0]} is no kind of picture{did_you_mean(line.files[0], KINDS)}"
            raise UsageError(f"{reason}: give {' | '.join(KINDS)}")
        self.kind, *self.files = line.files
        takes = {param.name for param in KINDS[self.kind][2]}
        for name, param in OWN.items():
            if line.given(param) and name not in takes:
                owners = ", ".join(kind for kind, (_, _, options) in KINDS.items() if param in options)
                raise UsageError(f"{line.flag(param)} is not an option of {self.kind}, but of {owners}")
        self.values = {param.name: line.value(param) for param in (*GENERAL, *OWN.values())}
        self.output = self.values["output"]
        if self.output is None:
            raise UsageError("-o: the name of the picture is missing")
        self.format = os.path.splitext(self.output)[1].lower().removeprefix(".")
        if self.format not in METADATA:
            what = "a picture does not go to standard output" if self.output == "-" else (
                f".{self.format} is not known" if self.format else "without an ending the format is not known")
            raise UsageError(f"-o {self.output}: {what}: give a name that ends in .png, .svg or .pdf")
        self._check_files()
        wanted = KINDS[self.kind][1].split()
        self.columns = table_options(line, self.files[0]) if wanted[0] == "data_file" else {}
        typed = self.values["labels"]
        drawn = self.files if self.kind == "convergence" else self.files[1:]
        self.labels = [_stem(path) for path in drawn] if typed is None else typed.split(",")
        if typed is not None and len(self.labels) != len(drawn):
            raise UsageError(f"{line.flag(LABELS)} {typed}: {len(self.labels)} names for {len(drawn)} files")

    def _check_files(self) -> None:
        wanted = KINDS[self.kind][1].split()
        least = 2 if wanted[0] == "data_file" else 1
        if len(self.files) < least:
            raise UsageError(f"{self.kind}: give {' '.join(wanted)}")
        if wanted[-1] != "..." and len(self.files) > least:
            raise UsageError(f"too many files: {' '.join(self.files)}")
        if "-" in self.files[0 if least == 1 else 1:]:
            raise UsageError("only a data_file can be standard input")
        read = list(zip_longest(wanted[:least], self.files, fillvalue=wanted[least - 1]))
        require_apart(read, [(OUTPUT.flag, self.output)])

    def draw(self) -> int:
        with opening("open output file", self.output):
            check_writable(self.output)
        try:
            import matplotlib
        except ImportError:
            raise Failure(needed("matplotlib is needed", "plot")) from None
        from marginlinear.plotting import literal, style

        # What a user has set elsewhere, or for a screen, is not part of the command.
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            with style():
                figure = getattr(self, "_" + self.kind)()
                if self.values["title"]:
                    figure.suptitle(literal(self.values["title"]), fontsize="large")
                _grow(figure)
                stream = BytesIO()
                figure.savefig(stream, format=self.format, dpi=self.values["dpi"], metadata=METADATA[self.format])
        if self.format == "png":
            stream = _small(stream)
        with opening("write", self.output), replacing(self.output) as out:
            out.write(stream.getvalue())
        return DONE

    def _figure(self, width: float, height: float, rows: int = 1) -> tuple[Any, Any]:
        from matplotlib.figure import Figure

        figure = Figure((width, height))
        return figure, figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]

    def _margins(self) -> Any:
        figure, (ax,) = self._figure(6.4, 3.8)
        for display in self._distributions():
            display.plot(ax)
        return figure

    def _histogram(self) -> Any:
        from itertools import cycle

        import numpy as np

        from marginlinear.plotting import COLOURS, histogram_edges

        displays = self._distributions()
        figure, axes = self._figure(6.4, 0.8 + (2.4 if len(displays) == 1 else 1.5) * len(displays), len(displays))
        bins = histogram_edges(np.concatenate([display.values for display in displays]), self.values["bins"])
        for display, ax, colour in zip(displays, axes, cycle(COLOURS)):
            display.plot(ax, kind="histogram", bins=bins, color=colour, linestyle="-")
            ax.label_outer()
        top = max(ax.get_ylim()[1] for ax in axes)
        for ax in axes:
            ax.set_ylim(0, top)
        return figure

    def _distributions(self) -> list[Any]:
        """A MarginDistributionDisplay, not drawn yet, of each model."""
        from marginlinear.margins import evaluate, margin_norm
        from marginlinear.plotting import NORMALISED, MarginDistributionDisplay, ResidualDistributionDisplay
        from marginlinear.residuals import residuals

        raw, votes = self.values["raw"], set()
        found: list[Any] = []
        for path, name, model, data, kept in self._models():
            if model.classes is None:
                found.append(ResidualDistributionDisplay(
                    residuals(model, data, data.labels, self.values["threads"]), name=name))
                continue
            if len(model.classes) < 2:
                raise Failure(f"{path}: the model has one class, and so no margins")
            norm = None if raw else margin_norm(model, self.values["threads"])
            if not raw and norm is None:
                raise Failure(f"{path}: its margins have no norm to be divided by: give --raw")
            votes.add(model.voted)
            if len(votes) > 1:
                raise Failure(f"{path}: the margins of some models are votes, of others scores: draw them apart")
            margins = evaluate(model, data, data.labels[kept], self.values["threads"], kept)[2]
            xlabel = f"margin ({'votes' if model.voted else 'score'})" if raw else NORMALISED
            found.append(MarginDistributionDisplay(margins / (norm or 1), name=name, xlabel=xlabel))
        return found

    def _models(self) -> Iterator[tuple[str, str, Model, Any, IntArray]]:
        """Yield (path, name for the legend, model, data, numbers of the rows whose label it knows) of each model."""
        import numpy as np

        from marginlinear.cli.data import (
            count_extra,
            is_table,
            read_data,
            read_model,
            warn_of_extra,
            warn_of_unknown,
        )

        path, *model_paths = self.files
        for model_path in model_paths:
            require_order(path, model_path)
        models = [read_model(model_path) for model_path in model_paths]
        if len({model.classes is None for model in models}) > 1:
            raise Failure(f"{', '.join(model_paths)}: some are regressions, some have classes: draw them apart")
        if is_table(path) and any(model.table != models[0].table for model in models):
            raise Failure(f"{', '.join(model_paths)}: their features are of different columns: draw them apart")
        words = {model.classes is not None and model.classes.dtype.kind == "U" for model in models}
        if len(words) > 1:
            raise Failure(f"{', '.join(model_paths)}: some have words as labels, some numbers")
        with StatusLine(self.values["quiet"]) as status:
            data = read_data(path, status, model=models[0], **self.columns, zero_based=self.values["zero_based"],
                             threads=self.values["threads"], text_labels=words.pop(), multilabel=False)
        for model_path, name, model in zip(model_paths, self.labels, models, strict=True):
            warn_of_extra(count_extra(data, model), model.n_features)
            if model.classes is None:
                yield model_path, name, model, data, np.arange(len(data.labels))
                continue
            places = model.places_in_classes(data.labels)
            if (places < 0).any():
                unknown = data.labels[places < 0]
                warn_of_unknown(sorted(set(unknown.tolist())), len(unknown), "they are left out")
                if len(unknown) == len(places):
                    raise Failure(f"{model_path}: {path} has no row with a label that the model knows")
            yield model_path, name, model, data, np.flatnonzero(places >= 0)

    def _convergence(self) -> Any:
        from marginlinear.plotting import ConvergenceDisplay
        from marginlinear.selection.tables import read_log

        figure, axes = self._figure(6.4, 5.2, 2)
        x: Any = {"time": "seconds", "sweeps": "n_iter"}[self.values["x"]]
        for path, name in zip(self.files, self.labels, strict=True):
            with opening("open log file", path):
                runs = read_log(path)
            for history, limit, place in runs:
                label = ", ".join([name, *(f"{key} {value}" for key, value in place.items())])
                ConvergenceDisplay(history, limit=limit, name=label).plot(axes, x=x, log_x=self.values["log_x"])
        return figure

    def _search(self) -> Any:
        from marginlinear.plotting import SearchDisplay
        from marginlinear.selection.tables import read_table

        figure, (ax,) = self._figure(6.4, 3.8)
        (path,) = self.files
        with opening("open table file", path):
            table = read_table(path)
        try:
            SearchDisplay(table, param=self.values["param"], score=self.values["score"]).plot(ax)
        except ValueError as error:
            raise Failure(f"{path}: {error}") from None
        return figure

    def _comparison(self) -> Any:
        from marginlinear.compare import Comparison

        (path,) = self.files
        with opening("open result file", path):
            return Comparison.from_json(path)

    def _ranks(self) -> Any:
        from marginlinear.plotting import CriticalDifferenceDisplay

        found = self._comparison()
        figure, (ax,) = self._figure(7.2, 1.6 + 0.22 * len(found.methods))
        try:
            CriticalDifferenceDisplay.from_comparison(found, metric=self.values["metric"], ax=ax)
        except ValueError as error:
            raise Failure(f"{self.files[0]}: {error}") from None
        return figure

    def _compared(self) -> Any:
        import numpy as np

        from marginlinear.plotting import NORMALISED, MarginDistributionDisplay

        found = self._comparison()
        name = self.values["set"] or next(iter(found.sets))
        if name not in found.sets:
            raise Failure(f"{self.files[0]}: there is no set {name}: give one of {', '.join(found.sets)}")
        margins = {method: found.margins(name, method) for method in found.methods}
        kept = {method: values for method, values in margins.items() if values is not None}
        if not kept:
            raise Failure(f"{self.files[0]}: no margins were kept: give margin-compare --margins")
        figure, (ax,) = self._figure(6.4, 3.8)
        for method, values in kept.items():
            MarginDistributionDisplay(np.array(values), name=method, xlabel=NORMALISED).plot(ax)
        return figure

    def _reliability(self) -> Any:
        from marginlinear.plotting import ReliabilityDisplay

        figure, (ax,) = self._figure(5.0, 5.0)
        for path, name, model, data, kept in self._models():
            if getattr(model, "calibration", None) is None:
                raise Failure(f"{path}: the model has no probabilities: train it with margin-train --probability")
            try:
                ReliabilityDisplay.from_predictions(
                    data.labels[kept], model.predict_proba(data)[kept], classes=model.classes,
                    n_bins=self.values["bins"] or 10, name=name, ax=ax,
                    strategy="quantile" if self.values["quantile"] else "uniform")
            except ValueError as error:
                raise Failure(f"{path} on {self.files[0]}: {error}") from None
        return figure


def _grow(figure: Any) -> None:
    """Make the figure higher by its legends, which stand above the Axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    legends = [ax.get_legend() for ax in figure.axes if ax.get_legend()]
    height = sum(legend.get_window_extent(renderer).height for legend in legends) / figure.dpi
    figure.set_figheight(figure.get_figheight() + height)


def _small(stream: BytesIO) -> BytesIO:
    """A PNG with a palette of 256 colours, more than these pictures need: a third of the size."""
    from PIL import Image  # matplotlib's own writer of PNG

    smaller = BytesIO()
    with Image.open(stream) as image:
        image.convert("RGB").quantize(256).save(smaller, "png", optimize=True, dpi=image.info["dpi"])
    return smaller


def _stem(path: str) -> str:
    name = os.path.basename(path)
    for ending in (".model", ".jsonl", ".log"):
        name = name.removesuffix(ending)
    return name


if __name__ == "__main__":
    sys.exit(main())
