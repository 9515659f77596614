"""Comparisons as Markdown, and the numbers that programs print."""

import re
import shlex

GREY = "#808080"  # of pictures: seen on white and on black


def grep(text, name):
    """The number of a line `name = number`, or None."""
    match = re.search(rf"^{name} = ([-+.\deE]+)", text, re.MULTILINE)
    return float(match[1]) if match else None


def portable(text):
    """Absolute paths as the last part of each: what is kept speaks of no one machine's folders."""
    return re.sub(r"""(?<=[\s"'`=(])/(?:[^\s"'`/,)]+/)+(?=[^\s"'`/,)])""", "", text)


def accuracy(text):
    match = re.search(r"^Accuracy = ([\d.]+)%", text, re.MULTILINE)
    return float(match[1]) / 100 if match else None


def where(about):
    """When, on what and with what a run measured, as Bench.describe has it."""
    ours = {name: version for name, version in about["versions"].items() if version}
    versions = {name: version for name, version in (about["peer_versions"] | ours).items() if version}
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (f"{about['date']}, {about['machine']}; {found}, commit {about['commit'] or 'unknown'}, LIBLINEAR's "
            f"programs {about['liblinear_tools'] or 'unknown'}; `bench.py {shlex.join(about['argv'])}`; load "
            f"average before {about['load'][0]:.2f}")


COLUMNS = [("rate", "MB/s", "{:.0f}"), ("over_arrays", "peak / arrays", "{:.2f}"),
           ("bytes", "bytes written", "{:,}"), ("user", "user s", "{:.3f}"), ("system", "system s", "{:.3f}"),
           ("cs", "CS objective", "{:.6g}"), ("mcodm", "mcODM objective", "{:.6g}"),
           *((name, f"{name} objective", "{:.6g}") for name in ("l1svc", "l2svc", "ldm", "odm")),
           ("support", "support vectors", "{:.0f}"), ("iterations", "iterations", "{:.0f}"),
           ("unconverged", "unconverged", "{:.0f}"),
           ("tolerance", "-e", "{:g}"), ("objective", "objective", "{:.6g}"),
           ("above", "objective / LIBLINEAR's", "{:.5f}"), ("load", "load s", "{:.3f}"), ("save", "save s", "{:.3f}"),
           ("status", "status", "{}"), ("residual", "residual", "{:.3g}"),
           ("certificate", "certificate", "{:.3g}"), ("accuracy", "test accuracy", "{:.2%}")]


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def verdict(ratio):
    if ratio["goal"] is None:
        return ""
    if ratio["value"] is None:
        return f"goal {ratio['sense']} {ratio['goal']:g}: NOT MEASURED"
    return f"goal {ratio['sense']} {ratio['goal']:g}: {'met' if ratio['met'] else 'MISSED'}"


def render(comparison):
    """A comparison as Markdown."""
    shown = [c for c in COLUMNS if any(row.get(c[0]) is not None for row in comparison.rows)]
    header = ["", "wall s", "min..max", "CPU s", "peak MB", *(c[1] for c in shown)]
    rows = []
    for row in comparison.rows:
        seconds = [r["seconds"] for r in row["rounds"]]
        peak = row["peak"]
        floor = row["rounds"][0]["floor"]
        low = peak is not None and floor is not None and peak <= 1.02 * floor
        rows.append([row["name"], f"{row['seconds']:.3f}", f"{min(seconds):.3f}..{max(seconds):.3f}",
                     f"{row['cpu']:.3f}", "" if peak is None else f"{'<= ' if low else ''}{peak / 1e6:.1f}",
                     *("" if row.get(key) is None else form.format(row[key]) for key, _, form in shown)])
    text = [f"### {comparison.title}", ""] + ([table(header, rows), ""] if rows else [])
    for ratio in comparison.ratios:
        if ratio["value"] is None:
            text.append(f"- {ratio['label']}: not measured ({ratio['why']}) {verdict(ratio)}".rstrip())
            continue
        span = "" if ratio["low"] is None else f" ({ratio['low']:.3g}..{ratio['high']:.3g})"
        span += "" if ratio["cpu"] is None else f", by CPU time {ratio['cpu']:.3g}"
        text.append(f"- {ratio['label']}: {ratio['value']:.4g}{span}  {verdict(ratio)}".rstrip())
    text += [f"- {note}" for note in comparison.notes]
    text += [f"- {row['name']}: `{row['command']}`" for row in comparison.rows]
    return "\n".join(text) + "\n"


def render_summary(comparisons, skipped):
    rows = [[c.title, r["label"], f"{r['sense']} {r['goal']:g}",
             "" if r["value"] is None else f"{r['value']:.4g}",
             "NOT MEASURED" if r["met"] is None else "met" if r["met"] else "MISSED"]
            for c in comparisons for r in c.ratios if r["goal"] is not None]
    header = ["comparison", "what", "goal", "value", "verdict"]
    text = ["## Goals", "", table(header, rows), ""] if rows else []
    if skipped:
        text += ["## Skipped", "", *(f"- {s['what']}: {s['why']}" for s in skipped), ""]
    return "\n".join(text)
