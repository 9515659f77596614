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
    """LinearSVC, its problem here and mcodm as compared.json has them, which tools/first_page.py writes."""
    if not path.exists():
        return ""
    by_set = {}
    for row in json.loads(path.read_text("utf-8"))["rows"]:
        by_set.setdefault(row["data"], {})[row["method"]] = row
    shown = "LinearSVC", "mcodm"
    pairs = [(data, name, rows[name]) for data, rows in by_set.items() for name in shown]
    least = min(row["low"] for *_, row in pairs)
    chart = bars([(f"{data}, {name}", row["low"], row["accuracy"], row["high"], f"{row['accuracy']:.1%}")
                  for data, name, row in pairs],
                 lambda accuracy: 100 * (accuracy - least) / (1 - least), [(least, f"{least:.0%}"), (1, "100%")])
    lines = ["| data | `LinearSVC` | CPU s, MB | `l2svc`: CPU s, MB | `mcodm` | CPU s, MB |", "| --- " * 6 + "|"]
    for data, rows in by_set.items():
        theirs, ours = (f"{row['accuracy']:.1%} ({row['low']:.1%} to {row['high']:.1%})"
                        for row in map(rows.get, shown))
        cost = {name: f"{row['seconds']:.2g}, {row['megabytes']:.0f}" for name, row in rows.items()}
        lines.append(f"| {data} | {theirs} | {cost['LinearSVC']} | {cost['l2svc']} | {ours} | {cost['mcodm']} |")
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
