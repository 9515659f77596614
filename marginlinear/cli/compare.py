"""margin-compare: methods compared on data files, with the tests that such a comparison needs."""

from __future__ import annotations

import os
import sys
import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from marginlinear import options, params, registry
from marginlinear.atomic import check_writable, replacing
from marginlinear.cli import cluster
from marginlinear.cli.command import command
from marginlinear.cli.data import is_parquet, names_given, names_in
from marginlinear.cli.files import require_apart
from marginlinear.cli.output import DONE, Failure, StatusLine, opening, settle_blas, span, tell, warn
from marginlinear.compare import parameters
from marginlinear.compare.parameters import (
    BIAS,
    FOLDS,
    LABEL_NOISE,
    LEVEL,
    OUTER_FOLDS,
    RARE,
    REPEATS,
    ROPE,
    SEED,
    SPLITS,
    TEST_SIZE,
    THREADS,
    TRAIN_SIZE,
)
from marginlinear.compare.protocols import get
from marginlinear.compare.specs import SKLEARN, parse_spec
from marginlinear.data.reading import PACKED, SEPARATORS, separator_of
from marginlinear.options import CommandLine, UsageError
from marginlinear.params import Param

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from marginlinear.compare import Comparison, Forecast

PROGRAM = "margin-compare"
METHODS = Param("solver", str, None, "methods, with commas between, as in l2svc,odm; or one with values of its own, as "
                "in 'odm;C=0.1,1,10;mu=0': may be given several times. The others are compared with the first",
                letter="s", metavar="METHODS", brief="methods, as l2svc,odm; the first is the reference")
GRID = Param("grid", str, None, "values to choose from for one method, as in odm:C=1,10,mu=0,0.5; others keep theirs",
             metavar="METHOD:GRID", brief="values to try, as odm:C=1,10,mu=0,0.5")
GIVEN = Param("given_test", bool, False, "where there is a file NAME.t it is the test part of NAME, in place of "
              "splits; the interval is one of resamples of its rows", brief="NAME.t is the test part of NAME")
GROUPS = Param("groups", str, None, "a word for each row, one a line, or of CSV a column: rows of one group are in one "
               "part, and in one fold", metavar="FILE")
METRIC = Param("metric", str, None, "what is measured on the test parts, with commas between: accuracy (the default), "
               "balanced, f1_macro, auc, top3, top5, top10, log_loss, brier, aurc; of numbers mse (the default), mae, "
               "r2", metavar="NAMES", brief="accuracy, f1_macro, auc, log_loss, ...")
SELECT = Param("select", str, None, "the metric by which parameters are chosen (default: the first that needs no "
               "probabilities)", metavar="NAME")
KEEP = Param("keep_uncertified", bool, False, "let fits without a certificate within their tolerance count in means "
             "and tests; else they are left out, and how many there are is told")
MARGINS = Param("margins", bool, False, "keep quantiles of the margins of the test rows, which margin-plot compared "
                "draws")
OUTPUT = Param("output", str, None, "write the result, by the name's end as .md, .tex, .csv (a line for each trial) or "
               ".json (all there is): may be given several times", letter="o", metavar="FILE",
               brief="write the result as .md, .tex, .csv or .json")
JSON = Param("json", bool, False, "on standard output all there is, as -o NAME.json writes it, in place of the report")
JOURNAL = Param("journal", str, None, "write each trial down as it ends: what --resume goes on from", metavar="FILE",
                brief="write each trial down as it ends")
RESUME = Param("resume", str, None, "go on with the comparison of this --journal; sets, methods and splits may be "
               "added", metavar="FILE")
DRY_RUN = Param("dry_run", bool, False, "only print how many fits there are of each set and method, and about how many "
                "seconds they take on one thread; nothing is written")
VERBOSE = Param("verbose", bool, False, "tell of every trial, on stderr")

PROTOCOL = Param("protocol", str, None, "make a table of a paper again, beside the paper's figures: ldm2014-linear, "
                 "mcodm2017, ...; list: what there is. -s and --sets then name some of its methods and sets, --splits "
                 "or --repeats how often, --grid other values", metavar="NAME")
FOLDER = Param("data", str, None, "of --protocol: the folder of the sets, as LIBSVM text, packed or not", metavar="DIR")
SETS = Param("sets", str, None, "of --protocol: some of its sets, with commas between", metavar="NAMES")
FIGURES = Param("published", str, "docs/evidence/papers", "of --protocol: the folder of the papers' figures",
                metavar="DIR")

PAPERS = (PROTOCOL, FOLDER, SETS, FIGURES)
DESIGN = (SPLITS, TRAIN_SIZE, TEST_SIZE, OUTER_FOLDS, REPEATS, GIVEN, GROUPS, LABEL_NOISE, RARE, FOLDS, SEED)
JUDGING = (METRIC, SELECT, LEVEL, ROPE, KEEP, MARGINS)
TABLE = (params.LABEL._replace(help="of CSV and TSV: the column of the labels"),
         params.CATEGORIES._replace(help="of CSV and TSV: columns of words, with commas between; each becomes a "
                                    "feature for each of its words"),
         params.LEAVE_OUT._replace(help="of CSV and TSV: columns that are no features, with commas between"))
DATA = (params.SCALE._replace(help="scale the rows, as the training part says how: range, maxabs or unit, as in "
                              "margin-train", brief="scale the rows"), *TABLE, options.ZERO_BASED)
CLUSTER = cluster.CLUSTER._replace(help="run trials on this Dask cluster, as in tcp://host:8786; local:N starts N "
                                   "processes here. The files have to be there for all workers under their names")
SCHEDULER_FILE = cluster.SCHEDULER_FILE._replace(help=cluster.SCHEDULER_FILE.help.replace("train", "run trials"))
WORK = (OUTPUT, JSON, JOURNAL, RESUME, DRY_RUN, THREADS, CLUSTER, SCHEDULER_FILE, options.QUIET, VERBOSE)
# Of all methods that have them, unless a method's own text says otherwise.
RUN = tuple(BIAS if param is params.BIAS else param for param in params.RUN
            if param not in (params.SEED, params.THREADS))
OPTIONS = {"methods": (METHODS, GRID), "splits": DESIGN, "measures and tests": JUDGING, "data": DATA,
           "of all methods that have them":
           (*RUN, params.FREE_BIAS, params.MULTICLASS, *params.KERNELS),
           "tables of papers": PAPERS, "work and output": WORK}
COMMON = (METHODS, GRID, SPLITS, TEST_SIZE, OUTER_FOLDS, GIVEN, METRIC, DATA[0], TABLE[0], OUTPUT, JOURNAL, RESUME,
          THREADS, options.QUIET)
LIST = "list"
WRITERS = {".md": "to_markdown", ".tex": "to_latex", ".csv": "to_csv", ".json": "to_json"}

USAGE = """\
usage: margin-compare [options] -s METHODS data_file ...
       margin-compare [options] --protocol NAME --data DIR
       margin-compare [options] result.json ...

Compare methods on data files:

    margin-compare -s l2svc,odm,mcodm data/vehicle
    margin-compare -s odm -s 'sklearn:sklearn.svm.LinearSVC;C=0.1,1' iris.csv
    margin-compare -s 'liblinear:-s 2 -B 1' -s 'convex=mcodm;mu=0' data/*

METHODS are names of margin-train -s, sklearn:MODULE.CLASS of any scikit-learn estimator, and liblinear:OPTIONS of
LIBLINEAR's program.

Each method splits the rows again and again into a training and a test part, the same for all methods; it chooses its
parameters by cross-validation inside the training part, is trained on it, and is measured on the test part. The report
is Markdown, on standard output.

Every parameter of margin-train is taken, as --mu 0, and then does not vary.

Files are LIBSVM text, or CSV or TSV with a header where the name ends so; .gz, .bz2 and .xz are unpacked. Results that
-o has written as .json are reported again, those of several files together, by --level, --rope and --keep-uncertified.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return command(PROGRAM, argv, OPTIONS, USAGE, work, common=COMMON, also=params.OWN,
                   words={METHODS.name: registry.MODULES})


def work(line: CommandLine) -> int:
    if line.value(PROTOCOL) == LIST:
        from marginlinear.compare.protocols.reproduction import listed

        print(listed(line.value(FOLDER)))
        return DONE
    if line.given(PROTOCOL):
        return Reproducing(line).run()
    return (Comparing if line.given(METHODS) or not _results(line) else Reporting)(line).run()


def _results(line: CommandLine) -> bool:
    return bool(line.files) and all(path.endswith(".json") for path in line.files)


class Writing:
    """What is done with a result: the report on standard output, and what -o names."""

    def __init__(self, line: CommandLine) -> None:
        self.quiet, self.outputs = line.value(options.QUIET), line.values(OUTPUT)
        self.as_json = line.value(JSON)
        if self.as_json and line.value(DRY_RUN):
            raise UsageError(f"{JSON.flag} prints a result, and {DRY_RUN.flag} makes none: leave out one of them")
        for path in self.outputs:
            if os.path.splitext(path)[1] not in WRITERS:
                raise UsageError(f"-o {path}: give a name that ends in {', '.join(WRITERS)}")

    def check(self) -> None:
        for path in self.outputs:
            with opening("write result", path):
                check_writable(path)

    def write(self, found: Comparison) -> None:
        for path in self.outputs:
            with opening("write result", path), replacing(path) as stream:
                stream.write(getattr(found, WRITERS[os.path.splitext(path)[1]])().encode())
        if self.as_json:
            print(found.to_json(), end="")
        elif not self.quiet or not self.outputs:
            print(found.to_markdown(), end="")


class Reporting:
    """A report of results that are there."""

    def __init__(self, line: CommandLine) -> None:
        self.writing, self.files = Writing(line), line.files
        given = {param.name: line.value(param) for param in (LEVEL, ROPE) if line.given(param)}
        self.judging = {**given, **({"certified_only": False} if line.given(KEEP) else {})}
        for param in (GRID, *PAPERS, *DESIGN, *JUDGING, *DATA, *WORK, *RUN, *params.OWN):
            if line.given(param) and param not in (LEVEL, ROPE, KEEP, OUTPUT, JSON, options.QUIET):
                raise UsageError(f"{line.flag(param)} is for a comparison, of which {self.files[0]} is the result: "
                                 "leave it out, or give -s METHODS and data files")
        require_apart([("result", path) for path in self.files], [(OUTPUT.flag, path) for path in self.writing.outputs])

    def run(self) -> int:
        settle_blas()
        self.writing.check()
        from marginlinear.compare import Comparison

        parts = []
        for path in self.files:
            with opening("open result file", path):
                parts.append(Comparison.from_json(path))
        self.writing.write(Comparison.joined(parts, **self.judging))
        return DONE


class Comparing:
    """One comparison. All that can be wrong with the command line is found before any file is read."""

    def __init__(self, line: CommandLine) -> None:
        self.writing = Writing(line)
        self.specs = [spec for text in line.values(METHODS) for spec in _specs(text)]
        if not self.specs:
            raise UsageError(f"the methods are missing: give -s METHODS, such as -s {registry.DEFAULT},l2svc")
        self.common = self._common(line)
        self.grids = _grids(line.values(GRID))
        self.design = {param.name: line.value(param) for param in parameters.DESIGN}
        for param in (SPLITS, TRAIN_SIZE, TEST_SIZE):
            if line.given(param) and line.given(OUTER_FOLDS):
                raise UsageError(f"{param.flag} is of random splits: leave it out with {OUTER_FOLDS.flag}")
        if line.given(REPEATS) and not line.given(OUTER_FOLDS):
            raise UsageError(f"{REPEATS.flag} is of outer folds: give {OUTER_FOLDS.flag} too")
        self.judging = {"metric": names_in(line.value(METRIC)), "select": line.value(SELECT),
                        "level": line.value(LEVEL), "rope": line.value(ROPE), "certified_only": not line.value(KEEP),
                        "margins": line.value(MARGINS)}
        self.scale = line.value(params.SCALE)
        self.reading = {"label": line.value(params.LABEL), "categories": names_given(line, params.CATEGORIES),
                        "leave_out": names_given(line, params.LEAVE_OUT),
                        "zero_based": line.value(options.ZERO_BASED), "groups": line.value(GROUPS)}
        self.given = line.value(GIVEN)
        self.files = self._files(line.files)
        self._settle(line, [*(("data_file", path) for path in self.files), (GROUPS.flag, self.reading["groups"])])

    def _settle(self, line: CommandLine, read: list[tuple[str, str | None]]) -> None:
        """What is written, and where trials run; `read` names the files that are not to be written over."""
        self.threads = line.value(THREADS)
        self.journal, self.resume = line.value(JOURNAL), line.value(RESUME)
        if self.journal and self.resume:
            raise UsageError(f"{RESUME.flag} goes on writing its own file: leave out {JOURNAL.flag}")
        self.cluster, self.dry = cluster.place_of(line), line.value(DRY_RUN)
        require_apart(read, [*((OUTPUT.flag, path) for path in self.writing.outputs), (JOURNAL.flag, self.journal),
                             (RESUME.flag, self.resume)])
        self.status = StatusLine(self.writing.quiet or line.value(VERBOSE))
        self.verbose = line.value(VERBOSE)
        self.progress: Progress  # from when it is known how long all takes

    def _common(self, line: CommandLine) -> dict[str, Any]:
        """What is given for all methods; UsageError where none has it."""
        known: dict[str, Param] = {}
        for spec in self.specs:
            try:
                taken = parse_spec(spec)
                method = None if taken.external else registry.get(taken.name)
            except ValueError as error:
                raise UsageError(f"-s {error}") from None
            if method is not None:
                known |= {p.name: p for p in (*method.run, *method.takes)}
        common: dict[str, Any] = {BIAS.name: BIAS.default}
        for param in (*RUN, *params.OWN):
            if param.name in known and line.meant(param, known.values()):
                common[param.name] = line.value(param)
            elif line.given(param) and param.name not in known and line.meant(param, known.values()):
                raise UsageError(f"{line.flag(param)} is a parameter of none of the methods")
        return common

    def _files(self, files: Sequence[str]) -> list[str]:
        if not files:
            raise UsageError("the data files are missing")
        if "-" in files:
            raise UsageError("a set has the name of its file, and is read again: standard input is none")
        if self.reading["groups"] and len(files) > 1 and not all(map(separator_of, files)):
            raise UsageError(f"{GROUPS.flag} is of one data file, or a column of several CSV files: give one")
        if not self.given:
            return list(files)
        # A shell's pattern names the test parts too.
        tests = {test_of(path) for path in files}
        return [path for path in files if path not in tests]

    def run(self) -> int:
        settle_blas()
        if not self.dry:
            self.writing.check()
        with self.status:
            arguments, made = self._prepared()
            expected = self._expected(arguments)
            if self.dry:
                print(expected, end="")
                return DONE
            self.progress = Progress(self.status, self.verbose, expected)
            found = made(self._compared(arguments))
        self.writing.write(found)
        if all(trial["reason"] is not None for trial in found.trials):
            raise Failure(f"nothing could be tried: {found.trials[0]['reason']}")
        return DONE

    def _prepared(self) -> tuple[dict[str, Any], Callable[[Any], Any]]:
        """(Arguments of `compare`, what becomes of the Comparison)."""
        from marginlinear.compare.api import plan_of
        from marginlinear.compare.design import Design
        from marginlinear.compare.methods import contestants_of

        try:
            if any(SKLEARN in spec for spec in self.specs) and os.getcwd() not in sys.path:
                # A class of one's own is found here, as under `python -m`; at the end it hides no other module.
                sys.path.append(os.getcwd())
            methods = contestants_of(self.specs, self.common, self.grids)
            plan_of(methods, Design(**self.design), self.judging["metric"], self.judging["select"], self.scale,
                    self.judging["margins"])
        except ValueError as error:
            raise UsageError(error) from None
        return {"sets": self._sources(), "methods": methods, **self.design, **self.judging,
                "scale": self.scale}, lambda found: found

    def _expected(self, arguments: Mapping[str, Any]) -> Forecast | None:
        """How long it takes, which is told before it begins; None where nobody asks."""
        if self.writing.quiet and not self.dry:
            return None
        from marginlinear.compare import forecast
        from marginlinear.problem import counted

        self.status.show("timing some fits on a part of the rows")
        with warnings.catch_warnings(), opening("use journal", self.resume or self.journal):
            # Fits on few rows warn of what those on all of them do not.
            warnings.simplefilter("ignore")
            found = forecast(**arguments, threads=self.threads, journal=self.journal, resume=self.resume)
        self.status.wipe()
        if not self.dry:
            where = "one thread of this machine" if self.cluster else counted(found.threads, "thread")
            tell(f"{counted(found.trials, 'trial')}, {counted(found.fits, 'fit')}: about "
                 f"{span(found.seconds if self.cluster else found.wait)} on {where}")
        return found

    def _compared(self, arguments: Mapping[str, Any]) -> Comparison:
        from marginlinear.compare import compare

        try:
            with _warnings_told(), self.cluster.executor() if self.cluster else _nowhere() as executor, opening(
                    "use journal", self.resume or self.journal):
                return compare(**arguments, threads=self.threads, journal=self.journal, resume=self.resume,
                               executor=executor, progress=self.progress)
        except KeyboardInterrupt:
            self.status.wipe()
            if self.resume or self.journal:
                tell(f"{self.progress.done} of {self.progress.total} trials are in {self.resume or self.journal}: the "
                     f"same command with {RESUME.flag} {self.resume or self.journal} goes on")
            else:
                tell(f"nothing was kept: with {JOURNAL.flag} FILE a comparison can be gone on with")
            raise

    def _sources(self) -> list[Any]:
        from marginlinear.compare.sets import File
        from marginlinear.errors import DataError

        found = []
        for path in self.files:
            test = test_of(path) if self.given and os.path.exists(test_of(path)) else None
            if self.cluster:
                path, test = os.path.abspath(path), test and os.path.abspath(test)
            source = File(path, test, **self.reading)
            try:
                if is_parquet(path):
                    raise DataError(path, 0, 0, "Parquet is not compared on", "write a CSV file of it, as "
                                    "pandas.read_parquet(...).to_csv(..., index=False) does")
                with opening("open input file", path):
                    source.peek()
            except DataError as error:
                if len(self.files) == 1:
                    raise
                warn(f"{path} is left out: {error}")
                continue
            found.append(source)
        if not found:
            raise Failure("no data file is left")
        if self.given and not any(source.given for source in found):
            raise Failure(f"there is no {test_of(self.files[0])}: {GIVEN.flag} is for sets that came with a test part")
        return found


class Reproducing(Comparing):
    """One run with --protocol."""

    def __init__(self, line: CommandLine) -> None:
        self.writing = Writing(line)
        taken = (METHODS, GRID, *PAPERS, SPLITS, REPEATS, MARGINS, *WORK)
        for param in (*DESIGN, *JUDGING, *DATA, *RUN, *params.OWN):
            if param not in taken and line.meant(param, ()):
                raise UsageError(f"{line.flag(param)} is what the paper says: leave it out with {PROTOCOL.flag}")
        if line.files:
            raise UsageError(f"{line.files[0]}: the files of {PROTOCOL.flag} are found by their names in {FOLDER.flag}")
        try:
            self.protocol = get(line.value(PROTOCOL))
        except ValueError as error:
            raise UsageError(f"{PROTOCOL.flag}: {error}") from None
        of_folds = self.protocol.design.outer_folds is not None
        used, other = (REPEATS, SPLITS) if of_folds else (SPLITS, REPEATS)
        if line.given(other):
            raise UsageError(f"{other.flag} is of {'random splits' if of_folds else 'outer folds'}: the paper has "
                             f"others, give {used.flag}")
        self.asked = {
            "published": line.value(FIGURES), "repetitions": line.value(used) if line.given(used) else None,
            "sets": names_in(line.value(SETS)) or None,
            "methods": [name for text in line.values(METHODS) for name in names_in(text)] or None,
            "grids": _grids(line.values(GRID)), "margins": line.value(MARGINS)}
        self.folder = line.value(FOLDER)
        self._settle(line, [])

    def _prepared(self) -> tuple[dict[str, Any], Callable[[Any], Any]]:
        from marginlinear.compare.protocols.reproduction import prepared

        try:
            with opening(f"read the paper's figures (a clone has them: give {FIGURES.flag} its {FIGURES.default})",
                         self.asked["published"]):
                return prepared(self.protocol, self.folder, **self.asked)
        except ValueError as error:
            raise UsageError(error) from None


class Progress:
    """What is told of trials as they end.

    Parameters
    ----------
    status : StatusLine
    verbose : bool
    expected : Forecast or None
        Without it the time that is left is reckoned from the trials that are done alone.
    """

    # What was expected counts as if it had been measured on this part of the work.
    PRIOR = 0.02

    def __init__(self, status: StatusLine, verbose: bool, expected: Forecast | None) -> None:
        self.status, self.verbose, self.expected = status, verbose, expected
        self.done = self.total = 0
        # Seconds that were expected of the trials that are made.
        self.made = 0.0
        self.began = time.monotonic()

    def left(self, elapsed: float) -> float:
        """Seconds to come: what is expected of the trials that are left, by how the others have kept to it."""
        if self.expected is None or not self.expected.seconds:
            return 0.0
        whole = self.expected.seconds
        pace = (elapsed + self.PRIOR * self.expected.wait) / (self.made + self.PRIOR * whole)
        return pace * max(0.0, whole - self.made)

    def __call__(self, trial: Mapping[str, Any], done: int, total: int) -> None:
        self.done, self.total = done, total
        left = None
        if self.expected is not None:
            self.made += self.expected.of_trial(trial["set"], trial["method"])
            left = self.left(time.monotonic() - self.began)
        place = f"{trial['set']} split {trial['split'] + 1} {trial['method']}"
        if self.verbose:
            values = ", ".join(f"{metric} {_shown(value)}" for metric, value in trial["scores"].items())
            tell(f"{place}: {trial['reason'] or values}, {sum(trial['seconds'].values()):.2f} s, "
                 f"{trial['status'] or 'not tried'}")
        self.status.show("", done, total, "trials", place, left)


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Warnings of the block once each, at its end, but for those of fits that did not converge, which are counted."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    told = dict.fromkeys(str(found.message) for found in caught if found.category.__name__ != "ConvergenceWarning")
    for message in told:
        warn(message)


@contextmanager
def _nowhere() -> Iterator[None]:
    yield None


def test_of(path: str) -> str:
    """The file of the test part that came with a set: NAME.t of NAME, before what says of what kind it is."""
    kind = ""
    for ending in (*PACKED, *SEPARATORS):
        if path.endswith(ending):
            path, kind = path.removesuffix(ending), ending + kind
    return f"{path}.t{kind}"


def _specs(text: str) -> list[str]:
    """One method with values of its own, or names with commas between."""
    name, *values = text.split(";")
    if values and "," in name:
        raise UsageError(f"-s {text}: a method with values of its own stands alone: give it another -s, such as "
                         f"-s {name.rpartition(',')[0]} -s '{name.rpartition(',')[2]};{';'.join(values)}'")
    return [text] if values else [one.strip() for one in text.split(",") if one.strip()]


def _grids(texts: Sequence[str]) -> dict[str, str]:
    """The grid of each method that has one."""
    found: dict[str, str] = {}
    for text in texts:
        label, colon, grid = text.partition(":")
        if not colon or "=" not in grid or "=" in label:
            raise UsageError(f"{GRID.flag} {text}: give METHOD:NAME=VALUES, such as odm:C=1,10")
        label = label.strip()
        if label in found:
            raise UsageError(f"{GRID.flag} {text}: another one is of {label} too: give all its values in one, "
                             f"{label}:{found[label]},{grid}")
        found[label] = grid
    return found


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main())
