"""--roofline: what a sweep and a fit of each engine cost, in products X w on the same data, and what peers need."""

import re
from typing import NamedTuple

from .children import PEERS
from .measure import BenchError, checked, in_child
from .text import GREY, table, where

TOLS = (1e-2, 1e-3)
# Its -e, until the objective is within the last of TOLS of the optimum.
PEER_TOLS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0001)
BINARY, JOINT, SMOOTH = ("l1svc", "l2svc", "odm", "ldm"), ("cs", "mcodm"), ("softmax", "m3svm")
# Sets, methods.
CASES = ((("imdb", "news20bin", "a9a", "ijcnn1"), BINARY), (("news20bydate", "letter", "usps"), JOINT + SMOOTH))
COSTS = (1.0, 100.0)
# LIBLINEAR has them.
SAME = ("l1svc", "l2svc", "cs")


class Row(NamedTuple):
    """`sweeps`, `seconds`: to each of TOLS. `product`: nanoseconds of X w for a nonzero, and class. `peer`: LIBLINEAR's
    iterations to an objective that is no more than each of TOLS above the optimum, None where it does not get there, or
    has no such method."""

    data: str
    solver: str
    C: float
    route: str
    values: int
    sweeps: list
    seconds: list
    product: float
    peer: list

    @property
    def sweep(self):
        """Nanoseconds of a sweep, all that goes with it included, for a nonzero and class."""
        return 1e9 * self.seconds[-1] / (self.sweeps[-1] * self.values)

    @property
    def products(self):
        """X w's in the time of the fit to the last of TOLS."""
        return 1e9 * self.seconds[-1] / (self.values * self.product)


def measure(bench):
    """The record of those cases that --only fits, each told as it is done."""
    bench.need(bench.peer_train, "liblinear-train")
    cases = [(name, solver, C) for names, solvers in CASES for name in names for solver in solvers for C in COSTS
             if re.search(bench.args.only, f"{name} {solver} C={C:g}")]
    if not cases:
        raise BenchError(f"--only {bench.args.only!r} fits none of the cases")
    rows = []
    for case in cases:
        rows.append(row_of(bench, *case))
        print(" | ".join(cells(rows[-1])), flush=True)
    return {"about": bench.about, "rows": [row._asdict() for row in rows]}


def row_of(bench, name, solver, C):
    train = bench.files(name)[0]
    bench.progress(f"{name} {solver} C={C:g}")
    got = in_child(bench.args.python, "sweeps", str(train), solver, C, TOLS, limit=bench.limit)
    return Row(name, solver, C, got["route"], got["values"], got["sweeps"], got["seconds"], got["product"],
               iterations(bench, train, solver, C, got["objective"]))


def iterations(bench, train, solver, C, least):
    """Those of LIBLINEAR's solver of the same objective."""
    found, model = [None] * len(TOLS), bench.scratch / "roofline.model"
    if solver not in SAME:
        return found
    for tol in PEER_TOLS:
        said = checked(bench.peer_train_command(solver, C, tol, train, model), bench.limit)["stdout"]
        reached = bench.reached(model, train, None, C)[PEERS[solver][1]]
        for at, wanted in enumerate(TOLS):
            if found[at] is None and reached <= (1 + wanted) * least:
                found[at] = int(re.search(r"#iter = (\d+)", said)[1])
        if None not in found:
            break
    return found


def cells(row):
    peer = ["" if n is None else f"{n:,}" for n in row.peer]
    return [row.data, f"`{row.solver}`", f"{row.C:g}", row.route, f"{row.product:.2f}", f"{row.sweep:.2f}",
            f"{row.sweep / row.product:.1f}", *(f"{n:,}" for n in row.sweeps), *peer, f"{row.products:,.0f}"]


TEXT = """\
What a fit takes, in the unit that no solver gets below: X w, SciPy's product of the rows with one vector (for joint
methods with one a class), which reads each nonzero once. Single fits by `train(threads=1)` in a fresh process, CPU
time, to the certificate given; a sweep's nanoseconds are the fit's to 1e-3 over sweeps, nonzeros and classes, so that
checks, and what comes before the first sweep, are in them. Of `newton` a step stands in for the sweep: it has many
products in it. LIBLINEAR's iterations are those to an *objective* so much above the optimum, which asks for less than a
certificate does. The last column is the distance to the limit.

- A sweep reads a row twice where it moves: 2 is the least while all do. Below 2, most rows are skipped. Above 2 it is
  what a row costs beside its values (loss, gap, step, the wait for the row before), which counts where rows are short:
  a9a has 14 values a row, ijcnn1 13, and of the losses odm's has three pieces.
- A Newton step of few features multiplies them with each other, row by row.
- Far from the limit is what takes many sweeps: joint losses on dense rows at a large C, where the blocks of many rows
  are nearly parallel, and hinges on text at C = 100, which take as many sweeps as LIBLINEAR takes iterations.
- Steps of the smooth losses are products with the Hessian by conjugate gradients, 5 to 50 a step, each of two X w's and
  more.
"""


def section(record, picture):
    rows = [Row(**row) for row in record["rows"]]
    head = ["data", "method", "C", "route", "X w, ns", "sweep, ns", "over X w", *(f"sweeps to {tol:g}" for tol in TOLS),
            *(f"LIBLINEAR's to {tol:g}" for tol in TOLS), "X w's in a fit"]
    shown = [f"![Sweeps, and what one costs]({picture})\n"] if picture else []
    return "\n".join(["## How far to the limit\n", TEXT, *shown, table(head, [cells(row) for row in rows]), "",
                      f"{where(record['about'])}.", ""])


def draw(record, path):
    """Sweeps across, the cost of one upwards: what lies on one falling line takes the same time."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib.figure import Figure

    rows = [Row(**row) for row in record["rows"] if row["solver"] not in SMOOTH]
    colours = dict(zip(dict.fromkeys(row.solver for row in rows), [f"C{i}" for i in range(10)], strict=False))
    with matplotlib.rc_context({"svg.hashsalt": "roofline", "svg.fonttype": "none", "font.size": 8, "text.color": GREY,
                                "axes.edgecolor": GREY, "axes.labelcolor": GREY, "xtick.color": GREY,
                                "ytick.color": GREY}):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        panel = figure.subplots()
        for solver, colour in colours.items():
            own = [row for row in rows if row.solver == solver]
            panel.scatter([row.sweeps[-1] for row in own], [row.sweep / row.product for row in own], color=colour,
                          s=[12 if row.C <= 1 else 40 for row in own], alpha=0.8, label=solver)
            for row in own:
                panel.annotate(row.data, (row.sweeps[-1], row.sweep / row.product), fontsize=5, xytext=(3, 3),
                               textcoords="offset points", color=GREY)
        low, high = min(row.sweeps[-1] for row in rows), max(row.sweeps[-1] for row in rows)
        for count in (10, 100, 1000, 10_000):
            panel.plot([low, high], [count / low, count / high], color=GREY, linewidth=0.5, linestyle=":")
            panel.annotate(f"{count:,} X w", (high, count / high), fontsize=6, color=GREY)
        panel.set(xscale="log", yscale="log", xlabel=f"sweeps to a certificate of {TOLS[-1]:g}",
                  ylabel="time of a sweep over that of X w",
                  ylim=(min(row.sweep / row.product for row in rows) / 1.5,
                        max(row.sweep / row.product for row in rows) * 1.5))
        panel.axhline(1, color=GREY, linewidth=0.8)
        panel.axhline(2, color=GREY, linewidth=0.8, linestyle="--")
        figure.legend(loc="outside lower center", ncols=6, frameon=False)
        panel.patch.set_alpha(0)
        figure.patch.set_alpha(0)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
