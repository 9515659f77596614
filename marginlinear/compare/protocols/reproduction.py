"""reproduce: a Protocol and a folder in, the table beside the paper's out."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from marginlinear.compare.api import compare
from marginlinear.compare.protocols import get
from marginlinear.compare.protocols.published import BETTER, WORSE, read_published
from marginlinear.compare.report import choices, markdown_table
from marginlinear.compare.statistics import deviation_of, mean_of
from marginlinear.problem import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from marginlinear._typing import PathLike
    from marginlinear.compare.protocols.preset import PaperSet, Protocol
    from marginlinear.compare.protocols.published import Figure
    from marginlinear.compare.result import Comparison
    from marginlinear.compare.study import Trial

PUBLISHED = "docs/evidence/papers"
METRIC = "accuracy"
LEVEL = 0.05


class Cell(NamedTuple):
    """A mean of ours beside the paper's.

    Attributes
    ----------
    set, method : str
    mean : float;  deviation : float
        Ours, over `splits` splits; the deviation is NaN for one.
    splits, uncertified : int
    figure : Figure or None
        The paper's.
    low, high : float
        The 95 % interval of the difference between the two means, by Welch's t; NaN where one of them has no deviation.
        Both means are of random splits of one set: the interval is of these, not of other rows of the kind.
    """

    set: str
    method: str
    mean: float
    deviation: float
    splits: int
    uncertified: int
    figure: Figure | None
    low: float
    high: float

    @property
    def difference(self) -> float:
        return math.nan if self.figure is None else self.mean - self.figure.mean

    @property
    def agrees(self) -> bool | None:
        """Whether no difference lies in the interval; None for no interval."""
        return None if math.isnan(self.low) else self.low <= 0 <= self.high


def reproduce(protocol: Protocol | str, data: PathLike | None, *, published: PathLike = PUBLISHED,
              repetitions: int | None = None, sets: Sequence[str] | None = None,
              methods: Sequence[str] | None = None, grids: Mapping[str, str] | None = None, margins: bool = False,
              threads: int | None = None, journal: PathLike | None = None, resume: PathLike | None = None,
              executor: Executor | None = None, progress: Callable[[Trial, int, int], object] | None = None,
              ) -> Reproduction:
    """Make a paper's table again, as far as its sets are at hand.

    Parameters
    ----------
    protocol : Protocol or str
        Or the name of one.
    data : path or None
        The folder of the sets, in LIBSVM's text, packed or not. Sets that come with scikit-learn are there without it.
    published : path
        The folder of the papers' figures.
    repetitions : int, optional
        Random splits, or times that rows are cut into folds. Default: the paper's.
    sets, methods : sequence of str, optional
        Those of the table. Default: all that are at hand. The paper's own method is always there.
    grids : dict, optional
        Method -> a grid as text, in place of the paper's.
    margins, threads, journal, resume, executor, progress
        As of `compare`.

    Returns
    -------
    Reproduction

    Raises
    ------
    ValueError
        For an unknown protocol, set or method, and where no set is at hand.
    OSError, DataError
        For figures that cannot be read, and as `compare`.
    """
    arguments, made = prepared(get(protocol) if isinstance(protocol, str) else protocol, data, published=published,
                               repetitions=repetitions, sets=sets, methods=methods, grids=grids, margins=margins)
    return made(compare(**arguments, threads=threads, journal=journal, resume=resume, executor=executor,
                        progress=progress))


def prepared(preset: Protocol, data: PathLike | None, *, published: PathLike, repetitions: int | None,
             sets: Sequence[str] | None, methods: Sequence[str] | None, grids: Mapping[str, str] | None, margins: bool,
             ) -> tuple[dict[str, Any], Callable[[Comparison], Reproduction]]:
    """(arguments of `compare`, what makes a Reproduction of the Comparison); all that can be wrong is found."""
    figures = read_published(os.path.join(os.fsdecode(published), preset.published)) if preset.published else {}
    for name in sets or ():
        preset.set_of(name)
    folder = None if data is None else os.fsdecode(data)
    at_hand = preset.at_hand(folder)
    there = {name: source for name, source in at_hand.items() if sets is None or name in sets}
    if not there:
        raise ValueError(f"{preset.name}: none of its sets is in {folder}: give the folder that has some of "
                         f"{', '.join(one.files[0] for one in preset.sets if one.files)}")
    contestants, lacking = preset.contestants(methods, grids)
    design = preset.design
    if repetitions is not None:
        design = design._replace(**{"splits" if design.outer_folds is None else "repeats": repetitions})
    told = design._asdict()
    if design.outer_folds is not None:
        told = {name: told[name] for name in ("outer_folds", "repeats", "folds", "seed")}
    left = [name for name in at_hand if name not in there]

    arguments = {"sets": there, "methods": contestants, **told, "metric": METRIC, "scale": preset.scale,
                 "level": LEVEL, "certified_only": False, "margins": margins}
    return arguments, lambda found: Reproduction(preset, found, figures, lacking, dict(grids or {}), left)


class Reproduction:
    """What `reproduce` found.

    Attributes
    ----------
    protocol : Protocol
    comparison : Comparison
    figures : dict
        (set, method) -> Figure.
    lacking : dict
        Method -> why it is not there.
    grids : dict
        Method -> the grid in place of the paper's.
    left : list of str
        Sets that are at hand and were not asked for.
    """

    def __init__(self, protocol: Protocol, comparison: Comparison, figures: dict[tuple[str, str], Figure],
                 lacking: dict[str, str], grids: dict[str, str], left: list[str]) -> None:
        self.protocol, self.comparison, self.figures = protocol, comparison, figures
        self.lacking, self.grids, self.left = lacking, grids, left

    @property
    def trials(self) -> list[Trial]:
        """As of the comparison."""
        return self.comparison.trials

    def cells(self) -> list[Cell]:
        """Those of all sets and methods."""
        found = []
        for name in self.comparison.sets:
            for method in self.comparison.methods:
                values = list(self.comparison.scores(METRIC, name, method).values())
                if values:
                    found.append(self._cell(name, method, values))
        return found

    def _cell(self, name: str, method: str, values: list[float]) -> Cell:
        figure = self.figures.get((name, method))
        mean, deviation, low, high = mean_of(values), deviation_of(values), math.nan, math.nan
        if figure is not None and figure.deviation is not None and len(values) > 1:
            low, high = welch(mean, deviation, len(values), figure, self.repetitions, self.protocol.one_test_part)
        return Cell(name, method, mean, deviation, len(values), self.comparison.uncertified(name, method), figure, low,
                    high)

    @property
    def repetitions(self) -> int:
        """Of the paper."""
        design = self.protocol.design
        return design.splits if design.outer_folds is None else design.repeats

    def printed_counts(self, method: str) -> tuple[int, int, int] | None:
        """(win, tie, loss) of the paper's own method against another one on the sets that are here, by the paper's
        marks; None where these do not tell."""
        own = self.comparison.methods[0]
        # A mark on a rival's figure is the own method's win.
        of = {"rivals": method, method: own}.get(self.protocol.marks)
        cells = [(self.figures.get((name, own)), self.figures.get((name, method))) for name in self.comparison.sets]
        if of is None or any(None in pair for pair in cells):
            return None
        shown = [self.figures[name, of].mark for name in self.comparison.sets]
        return shown.count(BETTER), len(shown) - shown.count(BETTER) - shown.count(WORSE), shown.count(WORSE)

    def to_latex(self) -> str:
        """As of its comparison."""
        return self.comparison.to_latex()

    def to_csv(self) -> str:
        """As of its comparison."""
        return self.comparison.to_csv()

    def to_json(self) -> str:
        """As of its comparison."""
        return self.comparison.to_json()

    def to_markdown(self) -> str:
        """The tables. Seconds are not in it: two runs give the same bytes."""
        return "\n".join(self._markdown()) + "\n"

    def _markdown(self) -> Iterator[str]:
        protocol, comparison = self.protocol, self.comparison
        yield f"# {protocol.name}: {protocol.table}"
        yield ""
        yield f"{protocol.paper}. {len(comparison.sets)} of its {len(protocol.sets)} sets are here."
        sentence = comparison.plan.design.sentence()
        yield (f"{sentence[:1].upper()}{sentence[1:]}; " + (
            "features go to [0, 1] by the training rows." if protocol.scale == "range" else "features as they come."))
        shorter = self._shorter()
        if shorter:
            yield ""
            yield f"Shorter than the paper's: {'; '.join(shorter)}."
        yield ""
        yield "Accuracy, mean and standard deviation over the splits:"
        yield ""
        yield from markdown_table(list(self._rows()))
        yield ""
        yield ("The interval is that of the difference of the two means at 95 %, by Welch's t over the splits of both, "
               "widened by the rounding of the printed mean" + (
                   ", and by what our test parts differ by, since the paper's repetitions seem to share one"
                   if protocol.one_test_part else "") + ". A star: the rows are not prepared as the paper's.")
        yield ""
        yield from self._agreement()
        yield ""
        yield from markdown_table(list(self._versus()))
        yield ""
        yield (f"Sets won/tied/lost by {comparison.methods[0]}: by the paired t that takes splits for independent, as "
               "the papers do, and by the corrected resampled t.")
        yield ""
        yield "## Methods"
        yield ""
        yield from (f"- {entrant.label}: {entrant.described}" for entrant in comparison.entrants)
        yield from (f"- {name} is not here: {why}" for name, why in self.lacking.items())
        yield ""
        yield "## Readings"
        yield ""
        yield from (f"- {reading}" for reading in protocol.readings)
        yield ("- Of the points of a grid those come first whose fits are all certified, or of a method without a "
               "certificate at rest; of all that is measured nothing is left out.")
        yield from self._about_sets()
        yield from choices(self.comparison)

    def _shorter(self) -> list[str]:
        design, paper = self.comparison.plan.design, self.protocol.design
        found = []
        if design.count(False) != paper.count(False):
            found.append(f"{counted(design.count(False), 'split')} in place of {paper.count(False)}")
        found += [f"{name} has {grid}" for name, grid in self.grids.items()]
        here = {*self.comparison.methods, *self.lacking}
        left = [one.name for one in self.protocol.methods if one.name not in here]
        if left:
            found.append(f"without {', '.join(left)}")
        if self.left:
            found.append(f"without the sets {', '.join(self.left)}")
        return found

    def _rows(self) -> Iterator[list[str]]:
        yield ["set", "method", "ours", "the paper's", "difference", "interval", "agrees"]
        for cell in self.cells():
            figure, star = cell.figure, "*" if self.protocol.set_of(cell.set).differs else ""
            ours = f"{cell.mean:.4f}" + ("" if math.isnan(cell.deviation) else f" ± {cell.deviation:.4f}")
            if cell.uncertified:
                ours += f" ({cell.uncertified} uncertified)"
            theirs = "-" if figure is None else f"{figure.mean:.4f}" + (
                "" if figure.deviation is None else f" ± {figure.deviation:.4f}")
            interval = "-" if cell.agrees is None else f"{cell.low:+.4f} to {cell.high:+.4f}"
            yield [cell.set + star, cell.method, ours, theirs,
                   "-" if figure is None else f"{cell.difference:+.4f}", interval,
                   {None: "-", True: "yes", False: "no"}[cell.agrees]]

    def _agreement(self) -> Iterator[str]:
        for words, differs in (("sets as the paper has them", False), ("sets prepared otherwise", True)):
            cells = [cell for cell in self.cells() if cell.agrees is not None
                     and bool(self.protocol.set_of(cell.set).differs) == differs]
            if cells:
                agree = sum(cell.agrees is True for cell in cells)
                absolute = mean_of([abs(cell.difference) for cell in cells])
                yield (f"- {words}: {agree} of {len(cells)} means agree; the mean absolute difference is "
                       f"{absolute:.4f}")

    def _versus(self) -> Iterator[list[str]]:
        comparison = self.comparison
        yield ["against", "naive t", "corrected t", "the paper on these sets", "mean over the sets", "the paper's mean"]
        for method in comparison.methods:
            both = [cell for cell in self.cells() if cell.method == method and cell.figure is not None]
            means = ["-", "-"] if not both else [f"{mean_of(values):.4f}" for values in (
                [cell.mean for cell in both], [cell.figure.mean for cell in both if cell.figure is not None])]
            if method == comparison.methods[0]:
                yield [f"({method})", "", "", "", *means]
                continue
            counts = [comparison.counts(METRIC, method, naive) for naive in (True, False)]
            printed = self.printed_counts(method)
            # Those of the method against ours, turned.
            yield [method, *(f"{one.loss}/{one.tie}/{one.win}" for one in counts),
                   "-" if printed is None else "/".join(map(str, printed)), *means]

    def _about_sets(self) -> Iterator[str]:
        differing = [one for one in self.protocol.sets if one.name in self.comparison.sets and one.differs]
        away = [one for one in self.protocol.sets if one.name not in {*self.comparison.sets, *self.left}]
        yield ""
        yield "## Sets"
        yield ""
        yield from (f"- {one.name}*: {one.differs}" for one in differing)
        if away:
            yield f"- not here: {'; '.join(map(whence, away))}"


def welch(mean: float, deviation: float, n: int, figure: Figure, repetitions: int, one_test_part: bool = False,
          ) -> tuple[float, float]:
    """The interval of a mean less that of a Figure, of so many repetitions each, at LEVEL; `one_test_part`: a Figure's
    repetitions share their test rows, so that its mean lacks what ours says that a test part differs by."""
    from scipy.special import stdtrit

    assert figure.deviation is not None
    parts = deviation**2 * (1 / n + one_test_part), figure.deviation**2 / repetitions
    half, variance = figure.rounding, sum(parts)
    if variance > 0:
        freedom = variance**2 / (parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (repetitions - 1))
        half += float(stdtrit(freedom, 1 - LEVEL / 2)) * math.sqrt(variance)
    difference = mean - figure.mean
    return difference - half, difference + half


def whence(one: PaperSet) -> str:
    return f"{one.name} ({one.rows:,} x {one.features:,}, {one.origin})"


def listed(folder: PathLike | None) -> str:
    """Lines: each protocol's name, its table, how many of its sets are in the folder."""
    from marginlinear.compare.protocols import protocols

    where = None if folder is None else os.fsdecode(folder)
    return "\n".join(markdown_table([["protocol", "table", "sets at hand"], *(
        [one.name, f"{one.paper.split(',')[-1].strip()}: {one.table}", f"{len(one.at_hand(where))} of {len(one.sets)}"]
        for one in protocols().values())]))
