"""The page of --suite speed, and the JSON file beside it that holds all measurements."""

import json
import os
import re
import shlex
from pathlib import Path

from .speed import LINES, THREADS
from .text import portable, table, where

INTRO = """\
# Benchmarks

Time and memory as ratios to LIBLINEAR, on one thread: less than 1 is less than LIBLINEAR takes. A bar goes from the
least to the largest ratio of a kind of work, over its data sets; its mark and the number are the median.

<!-- make: chart ratios -->

The tables below have each of them. Written by

```console
$ tools/bench.py --suite speed --data DIR --write docs/benchmarks.md
```

LIBLINEAR runs with its default tolerance and its default cap on the iterations. Ours runs with the loosest tolerance of
0.1, 0.05, 0.02, 0.01, ... whose objective is at most 0.1 % above LIBLINEAR's, which takes runs beforehand that are not
timed; mcodm, which minimises something else, to a certificate of 1e-2; ldm to 1e-3 and an objective that is as good as
that of LIBLINEAR's hinge problem; and everything at C = 100 to 1e-3. Whole processes are timed, from start to end,
reading and writing included; library calls without the loading of the data. Of *reading*, LIBLINEAR's C program is what
is compared, less its start-up. All contestants of a comparison take turns, 5 rounds by default; a ratio is one of
medians, in brackets are its smallest and its largest value of a round. A contestant whose first run took very long is
not repeated. celer and skglm stand beside l1lr, each at the loosest of its tolerances whose objective is within 0.1 %
of the optimum, after a first fit of some rows, which compiles; neither has l1l2svc's loss. Measured apart are [how cost
grows](cost.md), [kernels](kernels.md#beside-libsvm) beside LIBSVM and sklearnex, [threads](threads.md), and [a billion
nonzeros](scale.md) on disk and on clusters.
"""


def number(value):
    return "" if value is None else f"{value:.3g}"


def compact(comparison, date, load):
    """A comparison as the JSON file keeps it: numbers of four digits, rounds as lists."""
    def short(value):
        return float(f"{value:.4g}") if isinstance(value, float) else value

    rows = [{**{key: value for key, value in row.items() if key not in ("rounds", "arrays") and value is not None},
             "rounds": {key: [short(r[key]) for r in row["rounds"] if r[key] is not None]
                        for key in ("seconds", "cpu", "peak")}} for row in comparison.rows]
    for row in rows:
        row["command"] = short_command(row["command"])
    rounding = {"seconds", "cpu", "peak", "user", "rate", "over_arrays", "load", "save"}
    return {"title": comparison.title, "date": date, "load": load, "notes": comparison.notes,
            "rows": [{key: short(value) if key in rounding else value for key, value in row.items()} for row in rows],
            "ratios": [{key: short(value) if key != "goal" else value for key, value in ratio.items()}
                       for ratio in comparison.ratios if ratio["place"]]}


def merged(record, about, comparisons, order):
    """`record` with new comparisons in place of the old; what the suite no longer has is dropped.

    A record is {runs: {date: machine, versions, ...}, comparisons: {name: what compact returns}}.
    """
    found = record["comparisons"] | comparisons
    found = {name: found[name] for name in order if name in found}
    runs = record["runs"] | {about["date"]: about}
    used = {comparison["date"] for comparison in found.values()}
    return {"runs": {date: run for date, run in sorted(runs.items()) if date in used}, "comparisons": found,
            "missing": [name for name in order if name not in found]}


def dumped(record):
    """JSON with a line for each run and each comparison."""
    parts = []
    for key in ("runs", "comparisons"):
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in record[key].items()]
        parts.append(f'"{key}": {{\n' + ",\n".join(lines) + "\n}")
    parts.append(f'"missing": {json.dumps(record["missing"])}')
    return "{" + ",\n".join(parts) + "}\n"


def update(page, about, comparisons, order):
    """Puts comparisons into the record beside the page, and renders the page from it."""
    store = page.with_suffix(".json")
    record = json.loads(store.read_text("utf-8")) if store.exists() else {"runs": {}, "comparisons": {}}
    load = round(os.getloadavg()[0], 2)
    new = {comparison.name: compact(comparison, about["date"], load) for comparison in comparisons}
    record = merged(record, about, new, order)
    for path, text in ((store, dumped(record)), (page, rendered(record))):
        part = path.with_name(path.name + ".part")
        part.write_text(portable(text), "utf-8")
        os.replace(part, path)


def goal_rows(record):
    """{(line, data, method, C): {threads: ratio}}, in the order of LINES; each ratio with its comparison's date."""
    found = {}
    for comparison in record["comparisons"].values():
        for ratio in comparison["ratios"]:
            place = ratio["place"]
            key = tuple(place[name] for name in ("line", "data", "method", "C"))
            found.setdefault(key, {})[place["threads"]] = ratio | {"date": comparison["date"]}
    order = list(LINES)
    return dict(sorted(found.items(), key=lambda item: order.index(item[0][0])))


def verdict(ratio):
    if ratio["goal"] is None:
        return ""
    return "not measured" if ratio["value"] is None else "met" if ratio["met"] else "**missed**"


def summary(rows):
    """For each line of goals how many are met, and the ratios' range."""
    lines = []
    for line, (title, goals, _) in LINES.items():
        cells = [title]
        for threads, goal in zip(THREADS, goals, strict=True):
            got = [row[threads] for key, row in rows.items() if key[0] == line and threads in row]
            if goal is None or not got:
                cells += ["" if goal is None else f"{goal:g}", "", ""]
                continue
            values = [ratio["value"] for ratio in got if ratio["value"] is not None]
            span = f"{number(min(values))} to {number(max(values))}" if values else ""
            met = sum(ratio["met"] is True for ratio in got)
            cells += [f"{goal:g}", span, f"{met} of {len(got)}" if met == len(got) else f"**{met} of {len(got)}**"]
        if goals != (None, None):
            lines.append(cells)
    return table(["work", "goal, 1 thread", "ratios", "met", "goal, 2 threads", "ratios", "met"], lines)


def cell(ratio):
    if ratio is None:
        return ""
    if ratio["value"] is None:
        return "not measured"
    span = "" if ratio["low"] == ratio["high"] else f" ({number(ratio['low'])}..{number(ratio['high'])})"
    return number(ratio["value"]) + span


def goals(rows, marks):
    """The table of all ratios; marks: {date: the number of the run}."""
    header = ["data", "method", "C", "1 thread", "", "2 threads", "", "run"]
    text = []
    for line, (title, wanted, _) in LINES.items():
        own = {key: row for key, row in rows.items() if key[0] == line}
        if not own:
            continue
        aims = [f"{goal:g} for {threads} thread{'s' * (threads > 1)}"
                for threads, goal in zip(THREADS, wanted, strict=True) if goal is not None]
        lines = []
        for (_, data, method, C), row in own.items():
            cells = [data, method, number(C)]
            for threads in THREADS:
                ratio = row.get(threads)
                cells += [cell(ratio), verdict(ratio) if ratio else ""]
            lines.append([*cells, ", ".join(sorted({marks[ratio["date"]] for ratio in row.values()}))])
        text += [f"### {title}", "", f"Goals: {', '.join(aims)}.\n" if aims else "No goals.\n",
                 table(header, lines), ""]
        if LINES[line].bound and any("missed" in cell for row in lines for cell in row):
            text += [f"What bounds it: {LINES[line].bound}", ""]
    return "\n".join(text)


def short_command(command):
    """Programs and files by their names alone, without the model or the output, which comes last."""
    if "(" in command:
        return re.sub(r"'/[^']*/", "'", command)
    words = [Path(word).name if word.startswith("/") else word for word in shlex.split(command)]
    if words[0] in ("margin-train", "liblinear-train", "margin-predict", "liblinear-predict"):
        words = words[:-1]
    return " ".join(words)


def details(record):
    """Every contestant, a table for each line of goals: what ran, its times, its memory, what it reached."""
    lines, notes = {line: [] for line in LINES}, {line: [] for line in LINES}
    for comparison in record["comparisons"].values():
        line = comparison["ratios"][0]["place"]["line"]
        for row in comparison["rows"]:
            seconds, peak = row["rounds"]["seconds"], row.get("peak")
            above = row.get("above")
            lines[line].append([
                f"`{row['command']}`", number(row["seconds"]),
                f"{number(min(seconds))}..{number(max(seconds))}" if len(seconds) > 1 else "one round",
                number(row.get("cpu")), "" if peak is None else f"{peak / 1e6:.0f}", str(row.get("iterations") or ""),
                "" if above is None else f"{above:.5f}", number(row.get("certificate"))])
        notes[line] += [f"- {comparison['title']}: {note}" for note in comparison["notes"]
                        if not note.startswith("The model: ")]
    header = ["contestant", "seconds", "range", "CPU", "MB", "sweeps", "objective ratio", "certificate"]
    return "\n".join(text for line, (title, _, _) in LINES.items() if lines[line]
                     for text in (f"### Contestants: {title}\n", table(header, lines[line]), "", *notes[line], ""))


def runs(record, marks):
    """Where and when the parts of the page were measured."""
    text = []
    for date, about in record["runs"].items():
        loads = [c["load"] for c in record["comparisons"].values() if c["date"] == date]
        text.append(f"- Run {marks[date]}: {where(about)}, during it {min(loads):.2f} to {max(loads):.2f}, the "
                    f"contestants' own included; up to {about['repeat']} rounds")
    return "\n".join(text) + "\n"


def rendered(record):
    rows = goal_rows(record)
    marks = {date: str(i) for i, date in enumerate(record["runs"], 1)}
    several = "" if len(marks) == 1 else "The page was put together from several runs.\n\n"
    missing = "".join(f"- {name}\n" for name in record["missing"])
    parts = [INTRO, "## Goals\n", summary(rows) + "\n", goals(rows, marks),
             "## Machine and versions\n", several + runs(record, marks)]
    if missing:
        parts += ["## Not measured yet\n", missing]
    parts += ["## Contestants\n", "Median seconds of whole processes, or of library calls. "
              "*Objective ratio*: of the models' objectives by NumPy, ours to LIBLINEAR's. *Certificate*: as "
              "margin-train prints it.\n", details(record)]
    return "\n".join(parts).rstrip("\n") + "\n"
