"""A comparison as text: Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

from marginlinear.compare import statistics as S
from marginlinear.compare.measures import ERRORS, TITLES
from marginlinear.compare.statistics import deviation_of, mean_of
from marginlinear.problem import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from marginlinear.compare.result import Comparison

BETTER, WORSE = "●", "○"
DASH = "-"
# What LaTeX reads as something else.
TEX = str.maketrans({**{sign: f"\\{sign}" for sign in "&%$#_{}"}, "\\": r"\textbackslash{}", "^": r"\textasciicircum{}",
                     "~": r"\textasciitilde{}", "|": r"\textbar{}"})
# Different values of a parameter that are told one by one; a grid of the registry has fewer.
SHOWN = 20


def markdown(found: Comparison) -> str:
    return "\n".join(_markdown(found)) + "\n"


def _markdown(found: Comparison) -> Iterator[str]:
    yield f"# {', '.join(found.methods)}"
    yield ""
    yield f"{_upper(found.designed)}. Parameters chosen by {TITLES[found.plan.select]}" + (
        f"; rows scaled by {found.plan.scale}, learned on the training part." if found.plan.scale else ".")
    yield ""
    for entrant in found.entrants:
        text = entrant.described
        yield f"- {text}" if text.startswith(f"{entrant.label}:") else f"- {entrant.label} is {text}"
    for metric in found.metrics:
        yield ""
        yield f"## {_upper(TITLES[metric])}"
        yield ""
        yield from markdown_table([["set", *found.methods], *rows_of(found, metric, "**{}**")])
        yield ""
        yield _legend(found, metric)
        lines = list(sentences(found, metric))
        if lines:
            yield ""
            yield from (f"- {line}" for line in lines)
    yield from choices(found)
    yield from _cost(found)
    yield from _missing(found)


def rows_of(found: Comparison, metric: str, bold: str) -> Iterator[list[str]]:
    """Cells of the table of a metric: a row a set, then what is said of all sets."""
    better = min if metric in ERRORS else max
    for name in found.sets:
        cells, means, splits = [], [], []
        for method in found.methods:
            values = list(found.scores(metric, name, method).values())
            means.append(mean_of(values) if values else None)
            splits.append(len(values))
            text = DASH if not values else f"{values[0]:.4f}" if len(values) == 1 else (
                f"{mean_of(values):.4f} ± {deviation_of(values):.4f}")
            cells.append(text)
        # A mean over fewer splits is one over other rows.
        most = max(splits)
        best = better((mean for mean, n in zip(means, splits, strict=True) if mean is not None and n == most),
                      default=None)
        for at, method in enumerate(found.methods):
            if means[at] is not None and means[at] == best and splits[at] == most and len(found.methods) > 1:
                cells[at] = bold.format(cells[at])
            if at and means[at] is not None:
                cells[at] += mark(found.difference(metric, name, method).verdict, metric)
            short = found.uncertified(name, method)
            if short:
                cells[at] += f" ({short} uncertified)"
        yield [name, *cells]
    if len(found.sets) > 1:
        of_sets = [[mean_of(list(of.values())) for name in found.sets if (of := found.scores(metric, name, method))]
                   for method in found.methods]
        most = max(map(len, of_sets))
        yield ["mean", *(_cell(mean_of(of)) + (f" ({counted(len(of), 'set')})" if 0 < len(of) < most else "")
                         for of in of_sets)]
    ranking = found.ranking(metric)
    if ranking is not None:
        yield ["mean rank", *(f"{rank:.3f}" for rank in ranking.ranks)]
    for naive in (False, True) if len(found.methods) > 1 else ():
        if naive and found.given == len(found.sets):
            continue
        counts = [found.counts(metric, method, naive) for method in found.methods[1:]]
        yield [f"win/tie/loss{', naive t' if naive else ''}", "",
               *(f"{one.win}/{one.tie}/{one.loss}" for one in counts)]


def mark(verdict: str, metric: str) -> str:
    better, worse = (S.SMALLER, S.LARGER) if metric in ERRORS else (S.LARGER, S.SMALLER)
    return {better: f" {BETTER}", worse: f" {WORSE}"}.get(verdict, "")


def _legend(found: Comparison, metric: str) -> str:
    of_splits, of_given = "the corrected resampled t test", "the bootstrap of the test rows"
    some = found.given < len(found.sets)
    tests = f"{of_splits}, of a test part that came with a set {of_given}" if found.given and some else (
        of_splits if some else of_given)
    lines = ["Mean and standard deviation over the splits."] if some else []
    if len(found.methods) > 1:
        lines.insert(0, f"{BETTER} better, {WORSE} worse than {found.methods[0]} at {found.level:g} by {tests}.")
    if metric in ERRORS:
        lines.append("The least is the best.")
    short = sum(trial["reason"] is None and not trial["certified"] for trial in found.trials)
    if short:
        what = "left out of means and tests" if found.certified_only else "counted as the others"
        lines.append(f"Fits without a certificate within their tolerance: {short}, {what}."
                     f"{'' if found.plan.scale else ' Rows of a common scale help: --scale range.'}")
    if some and len(found.methods) > 1:
        lines.append("The naive paired t takes splits for independent, and finds differences that are none.")
    return " ".join(lines)


def sentences(found: Comparison, metric: str) -> Iterator[str]:
    """What the tests say: set by set for few, over the sets."""
    if len(found.sets) <= 3:
        for name in found.sets:
            for method in found.methods[1:]:
                yield f"{name}: {found.difference(metric, name, method).sentence(method, found.methods[0])}"
                posterior = found.posterior(metric, name, method)
                if posterior is not None:
                    yield f"{name}: {posterior.sentence(method, found.methods[0])}"
    ranking = found.ranking(metric)
    if ranking is not None and len(found.methods) > 2:
        yield ranking.sentence(found.methods)
    tested = found.over_sets(metric)
    for over in tested:
        holm = f" Adjusted by Holm for {len(tested)} methods p = {over.holm:.3g}." if len(tested) > 1 else ""
        yield over.wilcoxon.sentence(over.method, found.methods[0]) + holm
        yield over.bayesian.sentence(over.method, found.methods[0])


def choices(found: Comparison) -> Iterator[str]:
    rows = []
    for method, params in found.choices().items():
        for name, counts in params.items():
            rows.append([method, name, str(sum(counts.values())), _counted(counts)])
    if rows:
        yield ""
        yield "## What was chosen"
        yield ""
        yield from markdown_table([["method", "parameter", "trials", "value: times"], *rows])
        lines = [f"- {one.method}: {one.param} = {_value(one.value)} is the {'least' if one.least else 'largest'} that "
                 f"was tried, and most trials chose it on {', '.join(one.sets)}: what is best there may lie beyond."
                 for one in found.at_ends()]
        if lines:
            yield ""
            yield from lines


def _counted(counts: Mapping[Any, int]) -> str:
    """Values, and how often each was chosen; of ever other ones, as widths that follow from the rows, their range."""
    values = sorted(counts, key=lambda value: (0, value) if isinstance(value, (int, float)) else (1, str(value)))
    if len(values) <= SHOWN:
        return ", ".join(f"{_value(value)}: {counts[value]}" for value in values)
    each = [value for value in values for _ in range(counts[value])]
    return f"{_value(values[0])} to {_value(values[-1])}, median {_value(each[len(each) // 2])}"


def _cost(found: Comparison) -> Iterator[str]:
    yield ""
    yield "## Cost"
    yield ""
    rows = []
    for method in found.methods:
        trials = [trial for trial in found.trials if trial["method"] == method]
        made = [trial for trial in trials if trial["reason"] is None]
        rows.append([method, str(len(made)), str(sum(not trial["certified"] for trial in made)),
                     str(sum(trial["fits"] for trial in made)), str(sum(trial["uncertified"] for trial in made)),
                     *(f"{math.fsum(trial['seconds'][step] for trial in made):.3g}"
                       for step in ("select", "fit", "predict"))])
    yield from markdown_table([["method", "trials", "not certified", "fits to choose", "not certified",
                                "seconds to choose", "to train", "to predict"], *rows])


def _missing(found: Comparison) -> Iterator[str]:
    reasons = list(found.reasons())
    if reasons:
        yield ""
        yield "## What could not be tried"
        yield ""
        rows = [[name, method, str(count), reason.replace("\n", " ")] for name, method, reason, count in reasons]
        yield from markdown_table([["set", "method", "trials", "reason"], *rows])


def latex(found: Comparison) -> str:
    lines: list[str] = []
    for metric in found.metrics:
        columns = "l" + "r" * len(found.methods)
        lines += [f"% {TITLES[metric]}; {found.designed}",
                  f"\\begin{{tabular}}{{{columns}}}", "\\hline",
                  " & ".join(map(_tex, ["set", *found.methods])) + r" \\", "\\hline"]
        for row in rows_of(found, metric, "\\textbf{{{}}}"):
            cells = [cell if cell.startswith("\\textbf") else _tex(cell) for cell in row]
            lines.append(" & ".join(cells).replace("±", r"$\pm$").replace(BETTER, r"$\bullet$").replace(
                WORSE, r"$\circ$") + r" \\")
        lines += ["\\hline", "\\end{tabular}", ""]
    return "\n".join(lines)


def csv_text(found: Comparison) -> str:
    """A line a trial: what it was, what was chosen, its scores, certificate and seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    params = list(dict.fromkeys(name for trial in found.trials for name in trial["params"]))
    steps = ("select", "fit", "predict")
    writer.writerow(["set", "method", "split", "train", "test", *found.metrics,
                     *(f"param_{name.rstrip('_')}" for name in params), "inner", "status", "certificate", "allowed",
                     "objective", "n_iter", "certified", "fits", "uncertified_fits",
                     *(f"seconds_{step}" for step in steps), "reason"])
    for trial in found.trials:
        writer.writerow([trial["set"], trial["method"], trial["split"], trial["train"], trial["test"],
                         *(trial["scores"].get(metric) for metric in found.metrics),
                         *(trial["params"].get(name) for name in params),
                         *(trial[name] for name in ("inner", "status", "certificate", "allowed", "objective", "n_iter",
                                                    "certified", "fits", "uncertified")),
                         *(trial["seconds"][step] for step in steps), trial["reason"]])
    return text.getvalue()


def markdown_table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    rows = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for at, row in enumerate(rows):
        yield "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) + " |"
        if at == 0:
            yield "| " + " | ".join("-" * width for width in widths) + " |"


def _tex(text: str) -> str:
    return text.translate(TEX)


def _cell(value: float) -> str:
    return DASH if math.isnan(value) else f"{value:.4f}"


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
