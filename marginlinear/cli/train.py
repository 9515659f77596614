"""margin-train: from a LIBSVM file to a model file."""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from marginlinear import options, params, registry
from marginlinear.atomic import check_writable, replacing
from marginlinear.cli import cluster, output
from marginlinear.cli.command import command
from marginlinear.cli.data import (
    LIKE,
    OF_NAMES,
    is_parquet,
    is_store,
    is_table,
    located,
    names_given,
    read_data,
    read_store,
    refuse_with_tables,
)
from marginlinear.cli.files import require_apart, require_model
from marginlinear.cli.manual import Section
from marginlinear.cli.output import (
    DONE,
    NOT_CONVERGED,
    Failure,
    Results,
    StatusLine,
    Trend,
    opening,
    settle_blas,
    tell,
    warn,
)
from marginlinear.cli.report import (
    JSON,
    Report,
    data_part,
    model_part,
    of_validation,
    selection_part,
    training_part,
)
from marginlinear.cli.rows import RowFiles
from marginlinear.errors import ConvergenceWarning, DataError, Interrupted
from marginlinear.memory import bytes_of
from marginlinear.options import CommandLine, UsageError, flags_with
from marginlinear.params import Param
from marginlinear.problem import finite
from marginlinear.selection import grid as grids
from marginlinear.status import INTERRUPTED, allowance, fell_short, option, remedies, shortfall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, TextIO

    from marginlinear.model import Model
    from marginlinear.problem import Info
    from marginlinear.registry import Method

PROGRAM = "margin-train"
WEIGHTS = Param("weights", str, None, "factors of C, one a line for each row of the data; or the name of a column of a "
                "table, which is no feature then", metavar="FILE|COLUMN", brief="factors of C, one a line for each row")
GRID = Param("grid", str, None, "values to search: 'C=log2:-5:2:15,mu=0.2:0.2:0.8' or 'C=1,4,16,outer=ccp,paper'; a "
             "range is start:step:stop, of the exponent after log2: and log10:; a further --grid adds its names; "
             "paper: what the method's paper chose from", metavar="NAME=VALUES,...",
             brief="values to search, as C=1,4,16,mu=0,0.5")
REFIT = Param("refit", bool, False, "after the search train with the best parameters, and write the model",
              brief="then train with the best, and write the model")
TABLE = Param("table", str, None, "write the search's results as a table, by the name's end as .csv or .json",
              metavar="FILE")
CHECKPOINT = Param("checkpoint", str, None, "keep the fit in this file, every minute and at its end, or of a cluster "
                   "in this folder; --resume goes on with it", metavar="FILE")
RESUME = Param("resume", str, None, "go on with the fit in this --checkpoint, and keep it there, or with the "
               "interrupted search, or cross-validation, that wrote this --log", metavar="FILE")
FLOAT32 = Param("float32", bool, False, "hold the values of the data in single precision, in half the memory; where "
                "that is exact for all of them it is done anyway")
VERBOSE = Param("verbose", bool, False, "tell the data's size and every check of the certificate, on stderr",
                brief="tell of every check, on stderr")
LOG = Param("log", str, None, "write one JSON object for each check, and one for the result; of cross-validation and "
            "search one for each fit", metavar="FILE", brief="write each check as a line of JSON")
STORE = Param("store", str, None, "make a store of the data, LIBSVM's text or Parquet, in this folder, or use the one "
              "that is there, and go over its rows on disk: for data larger than memory, with --memory", metavar="DIR",
              brief="go over rows on disk, of data beyond memory")
NO_ADVICE = Param("no_advice", bool, False, "no notes on which of the defaults mattered: features that are not scaled, "
                  "classes that are unbalanced or look like amounts, a regression without a bias, LIBSVM's numbers of "
                  "methods, a best C at the edge of the grid")
STRICT = Param("strict", bool, False, "exit with status 3 when training did not converge")
GROUPS = Param("groups", str, None, "of cross-validation: the group of each row, one a line; rows of one group, such "
               "as those of one patient, are in one fold; or the name of a column of a table, which is no feature then",
               metavar="FILE|COLUMN", brief="the group of each row: rows of one group are in one fold")
FOLD_FILE = Param("fold_file", str, None, "cross-validation by these folds in place of -v: the number of each row's, "
                  "one a line, from 0 or 1 without gaps", metavar="FILE")
COLUMNS = (params.LABEL, params.CATEGORIES, params.LEAVE_OUT, params.CATEGORICAL, params.HASH_BITS, LIKE)

# Metrics as the results call them.
METRICS = {"accuracy": "accuracy", "balanced": "balanced accuracy", "f1_macro": "macro F1", "auc": "AUC",
           "micro_f1": "micro F1", "macro_f1": "macro F1", "lrap": "ranking precision",
           "top3": "top-3 accuracy", "top5": "top-5 accuracy", "top10": "top-10 accuracy",
           "log_loss": "log loss", "brier": "Brier score", "mse": "MSE", "mae": "MAE", "r2": "R2"}
# Those that are no part of the rows.
PLAIN = (*params.OF_NUMBERS, *params.OF_PROBABILITIES)

SOLVER = params.SOLVER._replace(metavar="METHOD", help=f"the method, by its name or LIBLINEAR's number: "
                               f"{', '.join(registry.MODULES)} (default {registry.DEFAULT})",
                               brief=f"method, or LIBLINEAR's number (default {registry.DEFAULT})")
OPTIONS = {
    "method": (SOLVER, params.MULTICLASS, *params.KERNELS, params.ALGORITHM),
    "what is optimised": (params.C, params.PAPER, options.CLASS_WEIGHT, params.CLASS_WEIGHTS, WEIGHTS,
                          params.BIAS, params.FREE_BIAS, params.TOL, params.MAX_ITER, params.TIME_LIMIT, params.SEED),
    "selection": (params.CROSS_VALIDATION, params.SEARCH, GRID, GROUPS, FOLD_FILE, params.METRIC, REFIT, TABLE),
    "data": (options.ZERO_BASED, options.TEXT_LABELS, options.MULTILABEL, params.SCALE, FLOAT32, STORE, params.MEMORY,
             params.SWEEPS_PER_LOAD, *COLUMNS),
    "cluster": cluster.OPTIONS,
    "output": (params.PROBABILITY, CHECKPOINT, RESUME, JSON, LOG, VERBOSE, options.QUIET, NO_ADVICE, STRICT,
               params.THREADS),
}
COMMON = (SOLVER, params.MULTICLASS, params.KERNEL, params.C, options.CLASS_WEIGHT, params.BIAS, params.TOL,
          params.CROSS_VALIDATION, params.SEARCH, GRID, params.METRIC, REFIT, options.ZERO_BASED, params.SCALE,
          params.LABEL, params.CATEGORIES, STORE, params.PROBABILITY, LOG, options.QUIET, params.THREADS)
DECLARED = tuple(param for group in OPTIONS.values() for param in group)

USAGE = """\
usage: margin-train [options] training_set_file [model_file]

Train a linear or kernel model on LIBSVM's text or, with --label, a CSV file.

The model is of classes, or a linear one of numbers. The training_set_file may be '-', standard input, or a table whose
columns have names (.csv, .tsv, .parquet); .gz, .bz2 and .xz are unpacked. The model_file is one that margin-predict and
LIBLINEAR's predict or LIBSVM's svm-predict read. Unless named ('-': standard output) it is called
<training_set_file>.model, in the current folder.
"""
FIRST = """\
margin-train: give a LIBSVM text file, or with --label a table such as a CSV file, to learn a classifier, or a
regression, from. What most people want, with data/ of the repository:

  margin-train data/dna dna.model                      train, and write the model
  margin-predict data/dna.t dna.model dna.out          predict the rows of another file, and tell how many are right
  margin-train -C --refit data/vehicle vehicle.model   search for the best C by cross-validation, and train with it

'margin-train --help' has all options and methods."""
STATUSES = ("Exit status: 0 done, 1 bad data or a failure while running, 2 bad usage, 3 not converged (--strict), "
            "130 interrupted.")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    words = sys.argv[1:] if argv is None else argv
    if not words:
        # As of other programs that cannot do anything without arguments: help, and the status of bad usage.
        return output.run(PROGRAM, _first, argv)
    return command(PROGRAM, argv, OPTIONS, USAGE, lambda line: Training(line).run(), common=COMMON, also=params.OWN,
                   sections=sections, topic="METHOD", statuses=STATUSES,
                   words={SOLVER.name: registry.MODULES, params.METRIC.name: params.METRICS})


def _first(words: Sequence[str]) -> int:
    tell(FIRST)
    return output.USAGE


def sections() -> dict[str, Section]:
    """What the registry knows of each method, by its name and LIBLINEAR's numbers."""
    found: dict[str, Section] = {}
    for method in registry.methods().values():
        numbers = "".join(f", -s {number}" for number in method.numbers)
        others = flags_with(method.defaults, (*params.RUN, params.MULTICLASS))
        shared = [params.MULTICLASS.flag] * (method.classifies and not method.joint) + ["kernels"] * method.kernels
        text = [f"It minimises {method.objective}.", *([f"By default {', '.join(others)}."] if others else []),
                *([f"It takes {' and '.join(shared)} too."] if shared else [])]
        section = Section(f"-s {method.name}{numbers}: {method.summary}", "\n\n".join(text), method.params)
        found |= dict.fromkeys((method.name, *map(str, method.numbers)), section)
    return found


class Training:
    """One run of the command.

    All that can be wrong with the command line is found here, before any file is read.
    """

    def __init__(self, line: CommandLine) -> None:
        self.method, self.typed = _method(line), line.value(params.SOLVER)
        taken = {p.name for p in self.method.takes}
        for param in params.OWN:
            if param.name not in taken and line.meant(param, self.method.takes):
                flag = line.flag(param)
                owners = (m.name for m in registry.methods().values()
                          if any(flag in (p.flag, f"-{p.letter}") for p in m.takes))
                raise UsageError(f"{flag} is not a parameter of -s {self.method.name}, "
                                 f"but of {', '.join(owners)}")
        self.params = {p.name: line.value(p) for p in (*params.RUN, *params.AROUND, *self.method.takes)
                       if line.given(p)}
        try:
            if line.given(params.PAPER):
                self.params = self.method.with_paper(self.params)
            self.kernel = params.resolve(self.method.takes, self.params).get("kernel")
            if "memory" in self.params:
                bytes_of(self.params["memory"], params.MEMORY.name)
        except ValueError as error:
            raise UsageError(error) from None
        algorithm = self.params.get("algorithm", params.ALGORITHM.default)
        if algorithm not in self.method.routes:
            raise UsageError(f"{line.flag(params.ALGORITHM)} {algorithm} is not a route of -s {self.method.name}: "
                             f"give {' | '.join(self.method.routes)}")
        self.class_weights = [(text, _factor(text, factor)) for text, factor in line.class_weights]
        self.class_weight: Any = line.value(params.CLASS_WEIGHTS) or {}
        if self.class_weight and self.class_weights:
            raise UsageError(f"-w{self.class_weights[0][0]} and {params.CLASS_WEIGHTS.flag}: give one of them")
        if not self.method.classifies:
            self._no_classes(line)
        self.folds: Any = _folds(line)  # None without, and where a file has them
        self.row_files = RowFiles(line.value(FOLD_FILE), line.value(GROUPS), line.value(WEIGHTS))
        self.resume, self.checkpoint = line.value(RESUME), line.value(CHECKPOINT)
        if self.resume and self.checkpoint:
            raise UsageError(f"{RESUME.flag} goes on writing its own file: leave out {CHECKPOINT.flag}")
        self.cluster: cluster.OnCluster | Any = cluster.on_cluster(
            line, DECLARED, self.checkpoint, self.resume)
        self._selection(line)
        self.log_path = line.value(LOG)
        self.store = line.value(STORE)
        self.reading = {"zero_based": line.value(options.ZERO_BASED), **self._labels(line),
                        "dtype": "float32" if line.value(FLOAT32) else "float64",
                        "threads": self.params.get("threads")}
        self.quiet, self.verbose = line.value(options.QUIET), line.value(VERBOSE)
        self.strict = line.value(STRICT)
        as_json = line.value(JSON)
        self.model_path: Any  # None where none is written
        self.path, self.model_path = _files(line.files, self.validates and not self.refit)
        if len(line.files) == 2 and not self.model_path:
            warn(f"model_file {line.files[1]} is not written: cross-validation and search leave no model, but a search "
                 f"with {REFIT.flag}")
        require_apart([("training_set_file", self.path), (WEIGHTS.flag, self.row_files.weights),
                       (GROUPS.flag, self.row_files.groups), (FOLD_FILE.flag, self.row_files.folds)],
                      [("model_file", self.model_path), (LOG.flag, self.log_path), (TABLE.flag, self.table_path),
                       (RESUME.flag, self.resume), (CHECKPOINT.flag, self.checkpoint)])
        require_model(self.model_path)
        self.reading |= self._columns(line)
        if as_json and self.model_path == "-":
            raise UsageError(f"{JSON.flag} writes to standard output: name a model_file")
        self.status = StatusLine(self.quiet or self.verbose or as_json)
        self.log: TextIO | None = None
        # A model on standard output leaves no room there for results.
        self.report = Report(Results(aside=self.model_path == "-"), as_json,
                             not (self.quiet or line.value(NO_ADVICE)))

    def _labels(self, line: CommandLine) -> dict[str, Any]:
        """How labels are read: of what kind they are the file may tell, but where they are numbers to be predicted."""
        if self.store or self.cluster:
            if line.given(options.MULTILABEL):
                raise UsageError(f"{options.MULTILABEL.flag} is for a file that is read into memory: leave it out with "
                                 f"{STORE.flag if self.store else cluster.CLUSTER.flag}")
            return {"text_labels": line.value(options.TEXT_LABELS) or None}
        if not self.method.classifies:
            return {"text_labels": False, "multilabel": False}
        return {param.name: line.value(param) or None for param in (options.TEXT_LABELS, options.MULTILABEL)}

    def _no_classes(self, line: CommandLine) -> None:
        """UsageError for what speaks of classes."""
        words = [f"-w{text}" for text, _ in self.class_weights]
        others = params.CLASS_WEIGHTS, options.TEXT_LABELS, options.MULTILABEL, params.PROBABILITY
        words += [line.flag(p) for p in others if line.given(p)]
        if words:
            raise UsageError(f"{words[0]} is for classes, which -s {self.method.name} does not learn")
        words = [line.flag(p) for p in (params.CROSS_VALIDATION, params.SEARCH) if line.given(p)]
        if words and self.method.one_class:
            raise UsageError(f"{words[0]}: nothing is measured without classes: -s {self.method.name} learns where the "
                             "rows are; train on a part of them, and let margin-predict count the others that are 1")

    def _columns(self, line: CommandLine) -> dict[str, Any]:
        """What is given of COLUMNS; UsageError for what is of no use with the file."""
        given = {p.name: line.value(p) for p in COLUMNS if line.given(p)}
        kind = "LIBSVM's text" if not is_table(self.path) else "Parquet" if is_parquet(self.path) else "a table of text"
        if kind == "LIBSVM's text":
            if given:
                flag = next(p.flag for p in COLUMNS if p.name in given)
                raise UsageError(f"{flag} is of no use with {_shown(self.path)}: {OF_NAMES}")
            return given
        if self.cluster:
            raise UsageError(f"{self.path}: a cluster reads LIBSVM's text: convert the file, or train here")
        refuse_with_tables(line, self.path, (options.ZERO_BASED, options.MULTILABEL))
        if kind == "Parquet":
            refuse_with_tables(line, self.path, (options.TEXT_LABELS,))
        elif self.store:
            raise UsageError(f"{self.path}: a store is made of LIBSVM's text or of Parquet: leave out {STORE.flag}, or "
                             "convert the file")
        useless = ({p: "a store takes all columns by their types" for p in COLUMNS[1:3] if self.store} if kind ==
                   "Parquet" else {p: "it is for Parquet" for p in COLUMNS[3:]})
        if LIKE.name in given:
            useless |= dict.fromkeys(COLUMNS[1:5], f"the store of {LIKE.flag} has a rule for columns")
        for param, reason in useless.items():
            if param.name in given:
                raise UsageError(f"{param.flag} is of no use with {self.path}: {reason}")
        try:
            params.resolve(params.COLUMNS, {p.name: given.get(p.name) for p in params.COLUMNS})
        except ValueError as error:
            raise UsageError(error) from None
        if self.method.one_class and params.LABEL.name not in given and not self.store:
            given["unlabelled"] = True
        return given | {p.name: names_given(line, p) for p in COLUMNS[1:3] if p.name in given}

    def run(self) -> int:
        settle_blas()
        if self.model_path:
            with opening("save model to file", self.model_path):
                check_writable(self.model_path)
        if self.table_path:
            with opening("write table", self.table_path):
                check_writable(self.table_path)
        if not (self.cluster or self.validates):
            if self.resume:
                with opening("open checkpoint", self.resume), open(self.resume, "rb"):
                    pass
            if written := self.resume or self.checkpoint:
                with opening("write checkpoint", written):
                    check_writable(written)
        with self.report.results, self.status, self._opened_log() as self.log:
            if self.cluster:
                if self.class_weights:
                    self.class_weight = {_number(text): factor for text, factor in self.class_weights}
                self.report.parts["data"] = data_part(self.path)
                found = self._train(None)
            else:
                data = self._read()
                with located(data):
                    found = self._select(data) if self.validates else self._train(data)
            self.report.close(PROGRAM)
            return found

    def _advise(self, data: Any) -> None:
        """Notes on the data, which a fit may overwrite."""
        from marginlinear.selection import advising

        if self.kernel:
            self.report.notes += advising.of_number(self.typed, self.method.name)
        one_label = self.method.classifies and not hasattr(data.labels, "patterns")
        if amounts := one_label and advising.of_amounts(data.labels, option):
            self.report.notes += amounts
            # A fit of so many classes may take long.
            self.report.tell_notes()
        if self.params.get(params.SCALE.name) is None:
            self.report.notes += advising.of_features(data, option)
        alike = {"balanced", "f1_macro", "auc"} & {*self.metrics}
        if one_label and not (amounts or self.class_weight or alike):
            self.report.notes += advising.of_classes(data.labels, option)
        # A regression without this parameter has a bias of its own.
        given = self.params.get(params.BIAS.name, -1.0) > 0 or self.params.get(params.FREE_BIAS.name)
        tried = {params.BIAS.name, params.FREE_BIAS.name} & {*(self.grid or ())}
        # Words as targets are the fit's to refuse.
        if (self.method.regression and params.FREE_BIAS in self.method.params and not (given or tried)
                and data.labels.dtype.kind != "U"):
            self.report.notes += advising.of_targets(data.labels, option)

    @property
    def validates(self) -> bool:
        """Whether there is cross-validation, of a search or of one point."""
        return bool(self.folds or self.row_files.folds)

    def _train(self, data: Any) -> int:
        from marginlinear.modelfile import save_model

        model: Any = self._fit(data)
        self._write_log({name: value for name, value in model.info.to_dict().items() if name != "history"})
        self.status.wipe()
        with opening("save model to file", self.model_path):
            save_model(model, self.model_path, threads=self.params.get("threads"))
        info = model.info
        self.report.parts |= {"model": model_part(model, self.model_path), "training": training_part(info)}
        if self.verbose and info.status != INTERRUPTED:
            self._tell_beyond(data, model)
        if not self.quiet:
            criterion, value, allowed = info.criterion
            # LIBSVM's word for the support vectors that the model holds.
            total = f"Total nSV = {model.n_support}\n" if self.kernel else ""
            self.report.say(f"optimization finished, #iter = {info.n_iter}\n"
                            f"Objective value = {info.objective:.10g}\n"
                            f"nSV = {info.n_support}\n{total}"
                            f"{criterion} = {value:.4g} ({info.status}; tolerance {allowed:.4g})")
        return self._judge(info)

    def _tell_beyond(self, data: Any, model: Model) -> None:
        """What the fit has noted; where critical points are many, what all weights are bounded by."""
        for note in model.info.notes:
            tell(note)
        relaxation: Any = self.method.relaxation
        local = relaxation and len(model.classes) > 2 and any(
            model.params[name] != value for name, value in relaxation.items())
        if not local or data is None:
            return
        values = ", ".join(f"{name} = {value:g}" for name, value in relaxation.items())
        convex = self._fit(data, relaxation).info
        tell(f"the certificate is one of a critical point; by {values} no weights have an objective below "
             f"{convex.bound:.6g} ({convex.seconds:.1f} s)")

    def _selection(self, line: CommandLine) -> None:
        """-v, -C, and what goes with them. Without --grid cross-validation is a search over one point."""
        self.searches = line.given(params.SEARCH) or line.given(GRID)
        self.refit = line.value(REFIT)
        given = line.value(params.METRIC)
        try:
            # The labels say later whether rows have several, and then which metric is the default.
            self.metrics: Any = ()
            if given is not None:
                of_sets = any(name.strip() in params.OF_LABEL_SETS[:-1] for name in given.split(","))
                self.metrics = params.metrics_of(self.method, given, of_sets)
        except ValueError as error:
            raise UsageError(f"{params.METRIC.flag} {given}: {error}") from None
        self.table_path = line.value(TABLE)
        if self.row_files.folds:
            for param in (params.CROSS_VALIDATION, GROUPS):
                if line.given(param):
                    raise UsageError(f"{FOLD_FILE.flag} has the folds: leave out {line.flag(param)}")
        if not (self.searches or self.validates):
            for param in (params.METRIC, GROUPS):
                if line.given(param):
                    raise UsageError(f"{param.flag} is for cross-validation: give -v or -C too")
        elif self.checkpoint:
            raise UsageError(f"{CHECKPOINT.flag} is for a single fit: what a search has done is in its {LOG.flag}")
        if not self.searches:
            for param in (REFIT, TABLE):
                if line.given(param):
                    raise UsageError(f"{param.flag} is for a search: give -C too")
        if self.resume and (self.searches or self.validates) and line.given(LOG):
            raise UsageError(f"{RESUME.flag} goes on writing its own file: leave out {LOG.flag}")
        if self.table_path and not self.table_path.endswith((".csv", ".json")):
            raise UsageError(f"{TABLE.flag} {self.table_path}: give a name that ends in .csv or .json")
        try:
            self.grid: grids.Grid | None = {}
            if self.searches and not line.given(GRID) and grids.doubles(self.method, self.params):
                self.grid = None  # it depends on the rows
            else:
                if self.searches:
                    self.grid = grids.parse_grids(line.values(GRID) or [grids.default_grid(self.method)], self.method)
                self.points = grids.points_of(self.grid, self.method, self.params)
        except ValueError as error:
            raise UsageError(error) from None
        if self.searches and not self.row_files.folds:
            self.folds = self.folds or params.FOLDS.default
        asked = any(name in params.OF_PROBABILITIES for name in self.metrics)
        if self.validates and not self.refit and not asked and self.params.get("probability"):
            warn(f"{params.PROBABILITY.flag} is left out: it is part of a model, and none is written")

    def _select(self, data: Any) -> int:
        import warnings

        from marginlinear.selection import search

        try:
            self.metrics = params.metrics_of(self.method, self.metrics or None, hasattr(data.labels, "patterns"))
        except ValueError as error:
            raise Failure(f"{_shown(self.path)}: {error}") from None
        first = self.metrics[0]
        metric = METRICS[first]
        m = len(data.labels)
        fold_of, groups = self.row_files.read(data)
        folds = min(self.folds, m) if fold_of is None else len(set(fold_of))
        doubled = self.grid is None
        if doubled:
            self._doubling(data)
        total = len(self.points) * folds
        if self.searches and not self.quiet:
            self.report.say(f"{len(self.points)} points, {folds} folds: {total} fits")
        best: tuple[float, str] | None = None
        sign = -1 if first in params.ERRORS else 1

        def progress(fit: Mapping[str, Any]) -> None:
            nonlocal best
            done, total, score = fit["done"], fit["total"], fit["score"] or 0.0
            if best is None or sign * score >= sign * best[0]:
                best = score, grids.shown(fit["params"])
            if self.verbose:
                tell(f"{grids.shown(fit['params'])} fold {fit['fold']}: {metric} {_score(first, fit['score'] or 0)}, "
                     f"{fit['n_iter']} sweeps, {fit['status']}, {fit['seconds']:.1f} s")
            self.status.show("", done, total, "fits", f"best of a fold {_score(first, best[0], '.4g')} {best[1]}")

        fixed = {name: value for name, value in self.params.items() if name not in ("seed", "threads")}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with opening("use log file", self.resume or self.log_path):
                    found = search(data, data.labels, solver=self.method.name, grid=self.grid, refit=False,
                                   folds=self.folds if fold_of is None else fold_of, groups=groups,
                                   metric=self.metrics, seed=self.params.get("seed", 0),
                                   threads=self.params.get("threads"), sample_weight=self.sample_weight,
                                   class_weight=self.class_weight, log=self.log_path, resume=self.resume,
                                   progress=progress, keep=self.report.as_json and not self.searches, **fixed)
            except KeyboardInterrupt:
                self.status.wipe()
                kept = self.resume or self.log_path
                tell(f"what is done is in {kept}: the same command with {RESUME.flag} {kept} goes on" if kept else
                     f"nothing was kept: with {LOG.flag} FILE a search can be gone on with")
                raise
            except DataError:
                # Of the log, whose name it says.
                raise
            except ValueError as error:
                raise Failure(f"{_shown(self.path)}: {error}") from error
        self.status.wipe()
        for warning in caught:
            if not issubclass(warning.category, ConvergenceWarning):
                warn(warning.message)
        short = sum(entry["unconverged"] for entry in found.table)
        if short:
            warn(f"not converged: {short} of {total} fits; {remedies(self.method, option)}")
        if self.table_path:
            self._write_table(found.table)
        if self.report.advised:
            from marginlinear.selection import advising

            self.report.notes += advising.of_search(found.table, found.best_params, option)
        self.report.parts["selection"] = selection_part(found, self.metrics, folds, groups, self.params.get("seed", 0))
        if found.validation is not None:
            self.report.parts |= of_validation(found.validation, data.labels, self.method.regression)
        if self.searches:
            if not self.quiet:
                self.report.say("\n".join(_text_table(found.table, self.metrics)))
            shown = grids.shown(found.best_params)
            if doubled:
                shown = shown.replace(params.EPSILON.name, "Best p")  # LIBLINEAR's words
            self.report.say(f"Best {shown}  CV {metric} = {_score(first, found.best_score)}")
        else:
            for name in self.metrics:
                title = METRICS[name]
                what = "Mean squared error" if name == "mse" else f"{title[0].upper()}{title[1:]}"
                value = found.table[0]["score" if name == first else name]
                self.report.say(f"Cross Validation {what} = {_score(name, value)}")
            if found.predictions is not None:
                from marginlinear.selection.metrics import Agreement

                agreement = Agreement().add(data.labels, found.predictions)
                self.report.say("Cross Validation Squared correlation coefficient = "
                                 f"{agreement.squared_correlation:g}")
        if not self.refit:
            return NOT_CONVERGED if short and self.strict else DONE
        self.params.update(found.best_params)
        self.log_path = None
        return max(self._train(data), NOT_CONVERGED if short and self.strict else DONE)

    def _doubling(self, data: Any) -> None:
        from marginlinear.selection.doubling import doubling_grid

        try:
            self.grid = doubling_grid(self.method, data, data.labels, self.params, self.sample_weight)
        except ValueError as error:
            raise Failure(f"{_shown(self.path)}: {error}") from error
        self.params = {name: value for name, value in self.params.items() if name not in self.grid}
        self.points = grids.points_of(self.grid, self.method, self.params)

    def _write_table(self, table: list[dict[str, Any]]) -> None:
        import json

        with opening("write table", self.table_path), replacing(self.table_path) as stream:
            if self.table_path.endswith(".json"):
                text = json.dumps(finite(table), indent=1)
                text += "\n"
            else:
                text = _csv(table)
            stream.write(text.encode())

    def _fit(self, data: Any, relaxation: Mapping[str, Any] | None = None) -> Model:
        """A model of the data, which it may overwrite where no other is to come. `relaxation`: parameters in place of
        those given, of a fit beside."""
        from marginlinear.api import fit_model

        if self.cluster:
            return self._fit_there()
        if self.kernel:
            self.status.show(f"{len(data.labels)} rows of the Gram matrix")
        last = relaxation is not None or not (self.verbose and self.method.relaxation)
        watched = {}
        if relaxation is None:
            # A search has used up what it resumes.
            resume = None if self.validates else self.resume
            tell_check = self._teller()
            watched = {"callback": lambda check: tell_check(check.entry()), "checkpoint": resume or self.checkpoint,
                       "resume_from": resume}
        try:
            return fit_model(data, data.labels, solver=self.method.name, class_weight=self.class_weight,
                             sample_weight=self.sample_weight, overwrite_rows=last, **watched,
                             **{**self.params, **(relaxation or {})})
        except Interrupted as interrupted:
            self.status.wipe()
            tell("interrupted: the model so far will be written; Ctrl-C again gives it up")
            return interrupted.partial
        except KeyboardInterrupt:
            self.status.wipe()
            tell("nothing has been found yet: no model is written")
            raise
        except DataError:
            # Of the checkpoint, which it names.
            raise
        except ValueError as error:
            raise Failure(f"{_shown(self.path)}: {error}") from error

    def _fit_there(self) -> Model:
        self.status.show(f"{self.path} to the cluster")
        try:
            return self.cluster.fit(self.path, solver=self.method.name, class_weight=self.class_weight or None,
                                    progress=self._teller(), **self.params)
        except ValueError as error:
            raise Failure("; ".join([f"{self.path}: {error}", *getattr(error, "__notes__", ())])) from error

    def _teller(self) -> Callable[[Mapping[str, Any]], None]:
        """What is called with each check of a fit."""
        run = params.resolve(self.method.run, self.params)
        checks = Checks(self.status, self.verbose, run["tol"], run["time_limit"] or math.inf)

        def tell_check(check: Mapping[str, Any]) -> None:
            self._write_log(check)
            checks.tell(check)

        return tell_check

    def _judge(self, info: Info) -> int:
        if not fell_short(info.status):
            return DONE
        warn(f"not converged {shortfall(info, self.method, option, self.kernel)}")
        if info.status == INTERRUPTED:
            return output.INTERRUPTED
        return NOT_CONVERGED if self.strict else DONE

    def _read(self) -> Any:
        import numpy as np

        began = time.perf_counter()
        if self.store or is_store(self.path):
            data: Any = read_store(self.path, self.store, self.status, **self.reading)
        else:
            # Scaled values have the type of those that they are made of.
            keep = self.row_files.columns(self.path) if is_table(self.path) else ()
            data = read_data(self.path, self.status, narrow=not self.params.get("scale"), keep=keep, **self.reading)
        seconds = time.perf_counter() - began
        self.status.wipe()
        if data.labels is None:  # of a table, for a method that does not look at them
            data.labels = np.zeros(len(data.indptr) - 1)
        m = len(data.labels)
        if self.verbose:
            tell(f"{_shown(self.path)}: {m} rows, {data.n_features} features, {len(data.indices)} values, "
                 f"read in {seconds:.2f} s")
        if self.class_weights:
            found: Any = data.labels
            classes = found.classes if hasattr(found, "patterns") else np.unique(found)
            self.class_weight = self._known_classes(classes.tolist())
        self.sample_weight = self.row_files.read_weights(data)
        self.report.parts["data"] = data_part(self.path, n_rows=m, n_features=data.n_features,
                                              n_values=len(data.indices))
        if self.report.advised:
            self._advise(data)
        return data

    def _known_classes(self, classes: Sequence[Any]) -> dict[Any, float]:
        """Label -> factor, for the labels that the data has."""
        found = {}
        words = any(isinstance(label, str) for label in classes)
        for text, factor in self.class_weights:
            label = text if words else _number(text)
            if label in classes:
                found[label] = factor
            else:
                warn(f"class label {text} specified in weight is not found")
        return found

    @contextmanager
    def _opened_log(self) -> Iterator[TextIO | None]:
        if not self.log_path or self.validates:
            yield None
            return
        with opening("open log file", self.log_path):
            log = open(self.log_path, "w", encoding="ascii")  # noqa: SIM115  closed below
        try:
            yield log
        finally:
            # What could not be written is tried once more here.
            with opening("write log file", self.log_path):
                log.close()

    def _write_log(self, values: Mapping[str, Any]) -> None:
        if self.log:
            import json

            # Line by line, so that a long run can be watched, and what an interrupted one did is there.
            with opening("write log file", self.log_path):
                self.log.write(json.dumps(finite(dict(values))) + "\n")
                self.log.flush()


class Checks:
    """What is told of a fit at each check of its certificate: a line for each, or one with the time that is left."""

    def __init__(self, status: StatusLine, verbose: bool, tol: float, time_limit: float) -> None:
        self.status, self.verbose, self.tol, self.time_limit = status, verbose, tol, time_limit
        self.trend = Trend()

    def tell(self, check: Mapping[str, Any]) -> None:
        name, gap, allowed = ("residual", check["residual"], self.tol) if check["certificate"] is None else (
            "certificate", check["certificate"], allowance(self.tol, check["objective"]))
        objective, seconds = f"objective {check['objective']:.6g}", check["seconds"]
        part = f"probabilities, fold {check['fold']} of {check['folds']}" if "fold" in check else ""
        if self.verbose:
            tell(f"{part and part + ': '}{check['n_iter']} sweeps, {objective}, {name} {gap:.3g}, {seconds:.1f} s")
        left = self.trend.left(seconds, gap, allowed)
        if left is not None:
            left = max(min(left, self.time_limit - seconds), 0.0)
        self.status.show(part, check["n_iter"], None, "sweeps",
                         f"{name} {gap:.3g} (ends at {allowed:.2g}), {objective}", left)


def _method(line: CommandLine) -> Method:
    if not line.given(params.SOLVER):
        return registry.get(registry.DEFAULT)
    name = line.value(params.SOLVER)
    try:
        return registry.get(name)
    except ValueError as error:
        raise UsageError(f"{line.flag(params.SOLVER)} {name}: {error}") from None


def _folds(line: CommandLine) -> Any:
    try:
        return line.value(params.CROSS_VALIDATION)
    except UsageError as error:
        raise UsageError(f"n-fold cross validation: n must >= 2 ({error})") from None


def _score(metric: str, value: float, form: str = "g") -> str:
    """A score as text: per cent of rows, or a number."""
    return format(value, form) if metric in PLAIN else f"{100 * value:{form}}%"


def _text_table(table: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> list[str]:
    """Lines: a column a parameter of the grid, the score, its deviation over the folds, other metrics, sweeps, seconds,
    and how many fits did not converge."""
    first, *others = metrics
    names = list(table[0])[:list(table[0]).index("score")]
    rows = [[*(name.rstrip("_") for name in names), f"CV {METRICS[first]}", "deviation",
             *(f"CV {METRICS[name]}" for name in others), "sweeps", "seconds", "unconverged"]]
    for entry in table:
        values = [value for value in entry["fold_scores"] if math.isfinite(value)]
        mean = sum(values) / len(values)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
        scores = [(first, entry["score"], 0), (first, deviation, 1), *((name, entry[name], 0) for name in others)]
        rows.append([*(f"{entry[name]:.6g}" if isinstance(entry[name], float) else str(entry[name])
                       for name in names),
                     *(_score(name, value, ((".4f", ".2f"), (".6g", ".3g"))[name in PLAIN][spread])
                       for name, value, spread in scores),
                     str(entry["n_iter"]), f"{entry['seconds']:.2f}", str(entry["unconverged"])])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{word:>{width}}" for word, width in zip(row, widths, strict=True)) for row in rows]


def _csv(table: Sequence[Mapping[str, Any]]) -> str:
    """A table as text: the folds' scores are a column each, fold_1 of the first metric, fold_1_auc of another."""
    import csv
    import io

    lists = [name for name, value in table[0].items() if isinstance(value, list)]
    names = [name for name in table[0] if name not in lists]
    head = [name.rstrip("_") for name in names]
    for name in lists:
        end = name.removeprefix("fold_").removeprefix("scores")
        head += [f"fold_{fold + 1}{end and '_' + end}" for fold in range(len(table[0][name]))]
    lines = [head, *([*(entry[name] for name in names), *(value for name in lists for value in entry[name])]
                     for entry in table)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _factor(label: str, text: str) -> Any:
    try:
        return params.FACTOR.parse(text)
    except ValueError:
        raise UsageError(f"-w{label} {text}: give a {params.FACTOR.allowed}") from None


def _number(text: str) -> int | float:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    raise UsageError(f"-w{text}: the label is not a number, as those of the data are")


def _files(files: Sequence[str], no_model: bool) -> tuple[str, str | None]:
    if not files:
        raise UsageError("the training_set_file is missing")
    if len(files) > 2:
        raise UsageError(f"too many files: {' '.join(files)}")
    path = files[0]
    if no_model:
        return path, None
    if len(files) == 1 and path == "-":
        raise UsageError("with standard input as the training set, a model_file must be named")
    return path, files[1] if len(files) == 2 else os.path.basename(os.path.normpath(path)) + ".model"


def _shown(path: str) -> str:
    return "<stdin>" if path == "-" else path


if __name__ == "__main__":
    sys.exit(main())
