"""Charts and tables of measurements, in HTML that follows the page's colours: `<!-- make: chart NAME -->` in a page."""

import json
import math
import statistics
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent))

from tools.benchlib.page import LINES, goal_rows  # noqa: E402


def ratios():
    """Bars of the times and memory that benchmarks.json holds: of each kind of work, on one thread."""
    found = goal_rows(json.loads((DOCS / "benchmarks.json").read_text("utf-8")))
    rows = []
    for line, (title, *_) in LINES.items():
        own = [row[1]["value"] for key, row in found.items() if key[0] == line and 1 in row]
        values = sorted(value for value in own if value)  # None: not measured
        if values:
            middle = statistics.median(values)
            rows.append((title, values[0], middle, values[-1], f"{middle:.2g}"))
    return bars(rows, lambda ratio: 25 * (math.log10(ratio) + 3), [(0.01, "1/100"), (0.1, "1/10"), (1, "1")])


def linearsvc():
    """LinearSVC beside its own problem here, as benchmarks.json has them."""
    found = json.loads((DOCS / "benchmarks.json").read_text("utf-8"))
    lines = ["| 20 newsgroups, squared hinge loss: the call | seconds | MB beside the data |", "| --- | ---: | ---: |"]
    lines += [f"| {row['name']} | {row['seconds']:.2f} | {row['peak'] / 1e6:.0f} |"
              for row in found["comparisons"]["library news20bydate l2svc"]["rows"]]
    return "\n".join([*lines, "", "[How that was measured](benchmarks.md), and what else was."])


def compared(path=DOCS / "compared.json"):
    """Accuracies, times and memory of compared.json, where there is one.

    It is a list of {data, method, accuracy, low, high, seconds, megabytes}: a method tuned on a set, its accuracy with
    the ends of an interval, and what the certified fit took. Rows of one set stand together.
    """
    if not path.exists():
        return ""
    rows = json.loads(path.read_text("utf-8"))
    least = min(row["low"] for row in rows)
    chart = bars([(f"{row['data']}, {row['method']}", row["low"], row["accuracy"], row["high"],
                   f"{row['accuracy']:.1%}") for row in rows],
                 lambda accuracy: 100 * (accuracy - least) / (1 - least), [(least, f"{least:.0%}"), (1, "100%")])
    lines = ["| data | method | accuracy | interval | seconds | MB |", "| --- | --- | ---: | --- | ---: | ---: |"]
    lines += [f"| {row['data']} | {row['method']} | {row['accuracy']:.1%} | {row['low']:.1%} to {row['high']:.1%} "
              f"| {row['seconds']:.3g} | {row['megabytes']:.0f} |" for row in rows]
    return "\n".join([chart, "", *lines])


def bars(rows, place, ticks):
    """A chart of (name, least, middle, most, text), `place` being the per cent of the axis where a value is."""
    marks = "".join(f'<span style="left: {place(value):.1f}%">{text}</span>' for value, text in ticks)
    rules = "".join(f'<u style="left: {place(value):.1f}%"></u>' for value, _ in ticks)
    lines = [f"<tr><td>{name}</td><td><div>{rules}"
             f'<i style="left: {place(least):.1f}%; right: {100 - place(most):.1f}%"></i>'
             f'<b style="left: {place(middle):.1f}%"></b></div></td><td>{text}</td></tr>'
             for name, least, middle, most, text in rows]
    return f'<table class="bars"><tr><td></td><td><div>{marks}</div></td><td></td></tr>{"".join(lines)}</table>'
