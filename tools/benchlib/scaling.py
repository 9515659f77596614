"""--scaling: time and memory over rows, features, nonzeros, classes and threads, and the rates of the machine."""

import json
import math
import re
import statistics
import sys
from importlib.util import find_spec
from itertools import pairwise
from typing import NamedTuple

from .children import PEERS
from .measure import BENCH, BenchError, checked, in_child, interleave, median
from .roofline import section
from .text import GREY, portable, table, where

TOL, PEER_TOL = 0.01, 0.1
SHORT = 2.0  # seconds; what takes longer is measured once
ROUNDS = 3
BASE = {"rows": 50_000, "features": 50_000, "nonzeros": 50}
BINARY, JOINT, MANY = ("l1svc", "l2svc", "ldm"), ("mcodm", "cs"), ("l2svc", "mcodm", "cs")
TABLE_BYTES = tuple(2**n for n in (17, 19, 21, 23, 25, 27))  # of the table that is gathered from


class Axis(NamedTuple):
    name: str
    title: str
    points: tuple
    groups: tuple  # (classes or None where these are what grows, methods)
    base: dict = BASE


TWO_TEN = ((2, BINARY), (10, JOINT))
AXES = (
    Axis("rows", "rows", (10_000, 20_000, 40_000, 80_000, 160_000, 320_000), TWO_TEN),
    Axis("features", "features", (3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000), TWO_TEN),
    Axis("nonzeros", "nonzeros a row", (5, 10, 20, 40, 80, 160), TWO_TEN),
    Axis("classes", "classes", (2, 4, 8, 16, 32, 64), ((None, MANY),), BASE | {"rows": 20_000}),
    Axis("threads", "threads", (1, 2, 3, 4, 8), ((2, BINARY), (10, MANY))),
)


def peer_name(method):
    return f"LIBLINEAR -s {PEERS[method][0]}"


def measure(bench):
    """All axes that --only fits; the page with its picture where --write says, or else the page to the terminal."""
    if not find_spec("matplotlib"):
        raise BenchError("--scaling draws with matplotlib: pip install matplotlib")
    bench.need(bench.train and bench.peer_train, "margin-train and liblinear-train")
    axes = [axis for axis in AXES if re.search(bench.args.only, axis.name)]
    if not axes:
        raise BenchError(f"--only {bench.args.only!r} fits none of: {', '.join(axis.name for axis in AXES)}")
    bench.progress("rates of the machine")
    rates = in_child(bench.args.python, "rates", TABLE_BYTES, 0.3)
    startup = {point["contestant"]: point for classes, methods in ((2, BINARY), (10, JOINT))
               for point in at(bench, small(bench, classes), methods, 1, {})}
    points = []
    for axis in axes:
        for classes, methods in axis.groups:
            for i, x in enumerate(axis.points):
                if axis.name != "threads" or i == 0:
                    path = synthetic(bench, axis, x, classes)
                threads = x if axis.name == "threads" else 1
                own = {"axis": axis.name, "x": x, "classes": classes or x}
                new = at(bench, path, methods, threads, own, peers=axis.name != "threads")
                points += new
                bench.progress("")
                seconds = ", ".join(f"{point['contestant']} {point['seconds']:.3g} s" for point in new)
                print(f"{axis.title} {x}, {classes or x} classes: {seconds}", flush=True)
            path.unlink()
    record = {"about": bench.about, "rates": rates, "startup": startup, "points": points}
    page = bench.args.write
    if not page:
        print(rendered(record, ""), end="")
        return
    write(page, record)
    draw(record, page.with_suffix(".svg"))


def write(page, record):
    """The page, and beside it what it is made of: this, and what is there of the other options' record."""
    kept = page.with_suffix(".json")
    record = (json.loads(kept.read_text("utf-8")) if kept.exists() else {}) | record
    page.with_suffix(".json").write_text(portable(dumped(record)), "utf-8")
    page.write_text(portable(rendered(record, page.with_suffix(".svg").name)), "utf-8")


def small(bench, classes):
    path = bench.scratch / f"start-{classes}"
    path.write_text("".join(f"{c % classes} {c + 1}:1\n" for c in range(classes)))
    return path


def synthetic(bench, axis, x, classes):
    sizes = dict(axis.base)
    if axis.name in sizes:
        sizes[axis.name] = x
    path = bench.scratch / "scaling"
    options = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    bench.progress(f"making {axis.name} {x}")
    made = checked([sys.executable, str(BENCH.with_name("make_synthetic.py")), *options, "--classes",
                    str(classes or x), "-o", str(path)], 600)
    # Its nonzeros are random too, and beside it.
    count = re.search(r"([\d,]+) nonzeros", made["stderr"])
    path.with_suffix(".nonzeros").write_text(count[1].replace(",", ""))
    return path


def at(bench, path, methods, threads, own, peers=True):
    """A point for each method and, once, for each of LIBLINEAR's numbers that they stand beside."""
    log, model, count = bench.scratch / "scaling.log", bench.scratch / "scaling.model", path.with_suffix(".nonzeros")
    nonzeros = int(count.read_text()) if count.exists() else 0
    contestants, ends = {}, {}

    def ours(method):
        command = bench.our_train_command(method, 1, TOL, path, model, threads)

        def call():
            got = checked([*command[:-2], "--log", str(log), *command[-2:]], bench.limit)
            ends[method] = json.loads(log.read_text().splitlines()[-1])
            return got

        return call

    for method in methods:
        if peers:
            contestants[peer_name(method)] = bench.whole(bench.peer_train_command(method, 1, PEER_TOL, path, model))
        contestants[method] = ours(method)
    results, failed = interleave(contestants, min(ROUNDS, bench.args.repeat),
                                 lambda text: bench.progress(f"{own or 'start-up'}: {text}"), long=SHORT)
    if failed:
        raise BenchError("; ".join(failed.values()))
    points = []
    for name, got in results.items():
        end = ends.get(name, {})
        points.append({**own, "contestant": name, "nonzeros": nonzeros, "seconds": median(got, "seconds"),
                       "peak": median(got, "peak"), "sweeps": end.get("n_iter"), "training": end.get("seconds")})
    return points


def dumped(record):
    lines = ",\n".join(json.dumps(point) for point in record["points"])
    head = {key: value for key, value in record.items() if key != "points"}
    return f'{json.dumps(head)[:-1]},\n"points": [\n{lines}\n]}}\n'


def slope(xs, ys):
    """b of the least squares line a + b x."""
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)


def exponent(xs, ys):
    """(b, least b, largest b) of y ~ x^b by least squares in logs; the range is that of leaving one point out."""
    points = [(math.log(x), math.log(y)) for x, y in zip(xs, ys, strict=True) if y > 0]
    if len(points) < 3:
        return None
    without = [slope(*zip(*points[:i], *points[i + 1:], strict=True)) for i in range(len(points))]
    return slope(*zip(*points, strict=True)), min(without), max(without)


def curves(record, axis, key):
    """{contestant: (x, value less that of the start-up)}."""
    found = {}
    for point in record["points"]:
        if point["axis"] == axis:
            name = point["contestant"]
            xs, ys = found.setdefault(name, ([], []))
            xs.append(point["x"])
            ys.append(point[key] - record["startup"][name][key])
    return found


def measured(record):
    names = {point["axis"] for point in record["points"]}
    return [axis for axis in AXES if axis.name in names]


def exponents(record, key):
    axes = [axis for axis in measured(record) if axis.name != "threads"]
    names = dict.fromkeys(p["contestant"] for p in record["points"])
    lines = []
    for name in names:
        cells = [name]
        for axis in axes:
            got = curves(record, axis.name, key).get(name)
            fitted = exponent(*got) if got else None
            cells.append("" if fitted is None else "{:.2f} ({:.2f}..{:.2f})".format(*fitted))
        lines.append(cells)
    return table(["", *(axis.title for axis in axes)], lines)


def sizes(record, axis):
    """Time and memory of every point of an axis, and the speed-up over one thread."""
    text = []
    for classes, _ in axis.groups:
        own = [p for p in record["points"] if p["axis"] == axis.name and (classes is None or p["classes"] == classes)]
        names = list(dict.fromkeys(p["contestant"] for p in own))
        at_x = {(p["x"], p["contestant"]): p for p in own}
        lines = []
        for x in axis.points:
            cells = [f"{x:,}"]
            for name in names:
                point, first = at_x[x, name], at_x[axis.points[0], name]
                ratio = f", {first['seconds'] / point['seconds']:.2f}x" if axis.name == "threads" else ""
                cells.append(f"{point['seconds']:.3g} s, {point['peak'] / 1e6:.0f} MB{ratio}")
            lines.append(cells)
        of = "" if classes is None else f" ({classes} classes)"
        text += [table([axis.title + of, *names], lines), ""]
    return "\n".join(text)


def sweep_cost(point, classes):
    """Nanoseconds for each nonzero, and class, of a sweep."""
    return 1e9 * point["training"] / (point["sweeps"] * point["nonzeros"] * classes)


def gathered(rates, size):
    """ns of a gathered read from a table of `size` bytes, between the sizes measured on a logarithmic scale."""
    known = [(math.log(n), ns) for n, ns in rates["gather"]]
    at = min(max(math.log(size), known[0][0]), known[-1][0])
    for (low, a), (high, b) in pairwise(known):
        if at <= high:
            return a + (b - a) * (at - low) / (high - low)
    return known[-1][1]


def rates_of(record):
    rates = record["rates"]
    own = {(p["x"], p["contestant"]): p for p in record["points"] if p["axis"] == "features" and p["sweeps"]}
    lines = []
    for x in dict.fromkeys(x for x, _ in own):
        one, joint = ([f"{sweep_cost(own[x, name], classes):.2f}" for name in methods]
                      for classes, methods in ((1, BINARY[:2]), (10, JOINT)))
        lines.append([f"{x:,}", f"{8 * x / 1e6:.3g} MB", *one, f"{gathered(rates, 8 * x):.2f}",
                      f"{80 * x / 1e6:.3g} MB", *joint])
    gather = ", ".join(f"{ns:.2f} ns a nonzero for {size / 2**20:g} MiB" for size, ns in rates["gather"])
    text = [f"Memory bandwidth, one thread, NumPy's copy of 128 MiB: {rates['copy'] / 1e9:.1f} GB/s, read and written, "
            f"so that\nthe 12 bytes of a nonzero (index and value) come in {12e9 / rates['copy']:.2f} ns. Gather rate, "
            f"SciPy's X w by the size of w:\n{gather}.", ""]
    if lines:
        text += [table(["features", "weights, 2 classes", "l1svc ns", "l2svc ns", "X w ns, same table",
                        "weights, 10 classes", "mcodm ns", "cs ns"], lines), ""]
    return "\n".join(text)


INTRO = """\
# How cost grows

Time and memory of whole processes on synthetic text: word frequencies by Zipf's law, values tf-idf, rows of length 1.
One size grows, the others stay: 50,000 rows, 50,000 features, 50 nonzeros a row, two classes for l1svc, l2svc and ldm
and ten for mcodm and cs; 20,000 rows where the classes grow. One thread where threads do not grow, C = 1, ours to a
relative certificate of 1e-2, LIBLINEAR with its default tolerance: slopes can be compared, heights are compared in
[Benchmarks](benchmarks.md). Medians of three runs, or one run of what takes more than two seconds and where the
command at the end says `--repeat 1`. Written by

```console
$ tools/bench.py --scaling --write docs/cost.md
```
"""

BOUNDS = """\
A sweep takes each row's inner product with the weights and, where its dual variable moves, adds a multiple of the row
to them: it visits the nonzeros twice, finding them in the cache the second time. The nanoseconds below are the time in
training, the checks of the certificate included, over sweeps times nonzeros, for the joint methods times classes too.
Beside them stands X w, which visits each nonzero once, writes nothing and waits for nothing.

- Nonzeros come in order and are prefetched, so that the memory's bandwidth is far from being the bound.
- Weights are gathered, and scattered back. While they fit the second level cache, the bound is the latency of what a
  row must do one after the other: the last additions of its inner product, the step, and the weights that the next row
  reads. Beyond it the latency of the reads comes on top, of which the processor keeps several in flight within a
  row but few across rows. X w reads uniformly random weights; in text the frequent words, which are most of the
  nonzeros, stay in the cache.
- Joint methods keep the weights of all classes of a feature side by side, and look up one address for all of them.
- Rows that are settled are left out of sweeps, or only looked at: then a sweep costs less.
- Threads read the file, evaluate certificates and predict, and of several classes, one against the rest, they share the
  problems. Within one coordinate descent there is one thread.
"""


def rendered(record, picture):
    parts = [INTRO]
    if picture:
        parts.append(f"![Seconds and megabytes over each size]({picture})\n")
    parts += ["## Exponents\n",
              "Time ~ size^b, by least squares in logarithms, of the time less that of the start-up; in brackets the "
              "range of b\nwhen one point is left out.\n", exponents(record, "seconds") + "\n",
              "The same of the peak memory less that of the start-up.\n", exponents(record, "peak") + "\n",
              "## Nanoseconds per nonzero per sweep\n", BOUNDS, rates_of(record)]
    if record.get("roofline"):
        parts.append(section(record["roofline"], "roofline.svg" if picture else ""))
    for axis in measured(record):
        parts += [f"## {axis.title[0].upper()}{axis.title[1:]}\n", sizes(record, axis)]
    start = ", ".join(f"{name} {p['seconds']:.3f} s and {p['peak'] / 1e6:.0f} MB"
                      for name, p in record["startup"].items())
    parts += ["## Machine\n", f"{where(record['about'])}. Start-up: {start}."]
    return "\n".join(parts).rstrip("\n") + "\n"


COLOURS = {"l1svc": "#2b8cbe", "l2svc": "#e6842a", "ldm": "#3aa655", "mcodm": "#d6453d", "cs": "#9467bd",
           "LIBLINEAR -s 3": "#2b8cbe", "LIBLINEAR -s 1": "#e6842a", "LIBLINEAR -s 4": "#9467bd"}


def draw(record, path):
    """Seconds above, megabytes below, a column for each axis; the same numbers give the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib.figure import Figure

    axes = [axis for axis in measured(record) if axis.name != "threads"] or measured(record)
    style = {"svg.hashsalt": "cost", "svg.fonttype": "none", "font.size": 8, "text.color": GREY,
             "axes.edgecolor": GREY, "axes.labelcolor": GREY, "xtick.color": GREY, "ytick.color": GREY}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(2.4 * len(axes) + 0.4, 5), layout="constrained")
        panels = figure.subplots(2, len(axes), squeeze=False, sharex="col", sharey="row")
        for row, (key, unit, label) in enumerate((("seconds", 1, "seconds"), ("peak", 1e6, "MB"))):
            # Where nothing takes longer than the start-up there is nothing to show, which a logarithm cannot.
            scale = "linear"
            for panel, axis in zip(panels[row], axes, strict=True):
                for name, (xs, ys) in curves(record, axis.name, key).items():
                    shown = [y / unit if y > 0 else math.nan for y in ys]
                    scale = "log" if any(y > 0 for y in ys) else scale
                    panel.plot(xs, shown, label=name, color=COLOURS[name], marker=".", linewidth=1.2,
                               linestyle="--" if name.startswith("LIBLINEAR") else "-")
                panel.set_xscale("log")
                panel.grid(color=GREY, alpha=0.25, linewidth=0.5)
                panel.patch.set_alpha(0)
                if row:
                    panel.set_xlabel(axis.title)
            panels[row][0].set(yscale=scale, ylabel=f"{label}, less the start-up")
            for panel in panels[row]:
                panel.minorticks_off()
        handles = {label: handle for panel in panels.flat
                   for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False)
        figure.patch.set_alpha(0)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
