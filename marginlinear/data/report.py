"""check: what is in data, what is wrong with them, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear import params as P
from marginlinear.data.arrays import CSR, held, is_compressed, is_stored, row_blocks
from marginlinear.data.columns import TextTable, csr_of, rule_of
from marginlinear.data.label_sets import LabelSets, are_label_sets, label_sets_of
from marginlinear.data.labels import labels_of
from marginlinear.data.reading import separator_of, shown
from marginlinear.data.scaling import MAXABS, Extremes, advised
from marginlinear.errors import DataError
from marginlinear.libsvm.reader import good_blocks
from marginlinear.problem import Summary, counted
from marginlinear.threads import default_threads

if TYPE_CHECKING:
    from marginlinear._typing import AnyArray, ArrayLike, FloatArray, Int64Array, MatrixLike, PathLike
    from marginlinear.libsvm.reader import Progress

MAX_ERRORS = P.Param("max_errors", int, 5, "lines that are wrong shown at most of each kind; the others are counted",
                     "[0, inf)")
# Rows and features that a finding names; rows of arrays that are looked at together.
NAMED, ROWS = 5, 1 << 14
# Whole numbers are classes, or a target too where there are more of them.
CLASSES = 20
# The multipliers of splitmix64.
GOLDEN, FIRST, SECOND = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Finding(NamedTuple):
    """What was found.

    Attributes
    ----------
    name : str
        `zero_based`, `one_label`, `single_rows`, `empty_rows`, `duplicates`, `conflicts`, `unused`, `constant`,
        `single_values`, `unscaled` or `zeros`.
    number : int
        Of rows, features or values of which it is true.
    text, advice : str
        What it is, and what to do.
    examples : list
        Lines of a file, else rows from 1, or features, as they are named or, from 1, numbered: the first few.
    is_error : bool
        Whether training refuses the data for it.
    """

    name: str
    number: int
    text: str
    advice: str
    examples: list[Any]
    is_error: bool = False


class DataReport(Summary):
    """What `check` has found.

    Attributes
    ----------
    source : str
    rows, n_features, values : int
        Without rows that are wrong; values are those that are not 0.
    density : float
        Values among all places of the table.
    first_index, last_index : int or None
        The smallest feature of LIBSVM's text that has a value, and the largest one, as it counts; else None.
    labels : dict
        Label -> how many rows have it, in ascending order; empty where they are not whole numbers, nor words.
    target : (least, largest, mean, count) or None
        Of labels that are numbers, and how many different ones there are.
    multilabel : bool
        Whether rows have several labels.
    errors : list of DataError
        Lines that are wrong, max_errors at most of each kind: of those with one `fix`.
    n_errors : int
        All of them.
    fixes : dict
        Fix -> how many lines ask for it, in the order of `errors`.
    findings : list of Finding
    """

    def __init__(self, **values: Any) -> None:
        self.source: str = values["source"]
        self.rows: int = values["rows"]
        self.n_features: int = values["n_features"]
        self.values: int = values["values"]
        self.density: float = values["density"]
        self.first_index: int | None = values["first_index"]
        self.last_index: int | None = values["last_index"]
        self.labels: dict[Any, int] = values["labels"]
        self.target: tuple[float, float, float, int] | None = values["target"]
        self.multilabel: bool = values["multilabel"]
        self.errors: list[DataError] = values["errors"]
        self.n_errors: int = values["n_errors"]
        self.fixes: dict[str, int] = values["fixes"]
        self.findings: list[Finding] = values["findings"]

    @property
    def ok(self) -> bool:
        """Whether nothing was found that training refuses."""
        return not (self.n_errors or any(finding.is_error for finding in self.findings))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**self.__dict__, "labels": [[label, count] for label, count in self.labels.items()],
                "errors": [{"line": error.line, "column": error.column, "reason": error.reason}
                           for error in self.errors],
                "findings": [finding._asdict() for finding in self.findings], "ok": self.ok}

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        lines = [("labels", self.label_text(5))] if self.rows else []
        lines += [("error", str(error)) for error in self.errors]
        if self.n_errors > len(self.errors):
            lines.append(("error", f"and {self.n_errors - len(self.errors):,} others"))
        lines += [(finding.name, f"{finding.text}: {finding.advice}") for finding in self.findings]
        return self.title(), lines or [("", "no rows")]

    def title(self) -> str:
        """Its sizes, in a line."""
        index = "" if self.first_index is None else f", numbered {self.first_index} to {self.last_index}"
        return (f"{self.source}: {counted(self.rows, 'row')}, {counted(self.n_features, 'feature')}{index}, "
                f"{counted(self.values, 'value')} ({100 * self.density:.3g}% of the table)")

    def label_text(self, most: int) -> str:
        """What labels there are, at most so many of them."""
        target = ""
        if self.target is not None:
            least, largest, mean, count = self.target
            target = f"{count:,} numbers from {least:g} to {largest:g}, mean {mean:g}"
        if not self.labels:
            return target
        some = ", ".join(f"{label} ({count:,})" for label, count in list(self.labels.items())[:most])
        more = f" and {len(self.labels) - most:,} others" if len(self.labels) > most else ""
        what = f"{len(self.labels):,} {'labels, any number a row' if self.multilabel else 'classes'}"
        return f"{target}; as classes: {some}{more}" if target else f"{what}: {some}{more}"


def check(source: PathLike | MatrixLike, y: ArrayLike | Any = None, *, zero_based: bool = False,
          text_labels: bool | None = None, multilabel: bool | None = None, label: str | None = None,
          categories: Sequence[str] = (), leave_out: Sequence[str] = (), max_errors: int = MAX_ERRORS.default,
          progress: Progress | None = None) -> DataReport:
    """Look through data: what they hold, what is wrong, and what would make a model worse.

    A file is read a part at a time, and on after lines that are wrong, each of which is told. What is held grows by
    some 70 bytes a row, among them a hash of 64 bits by which equal rows are found, and 24 bytes a feature.

    Parameters
    ----------
    source : str, path, or array, sparse array, data frame of shape (m, n)
        A file as the commands take it: LIBSVM's text (`-` is standard input), CSV or TSV, Parquet, or a store.
    y : array of shape (m,), or sets of labels, optional
        Labels of an array.
    zero_based : bool, default=False
        That features of LIBSVM's text count from 0 is no error.
    text_labels, multilabel : bool, optional
        As of `load_libsvm`.
    label : str, default="label"
        Of tables: the column of the labels.
    categories, leave_out : sequence of str
        Of tables: columns of words, and columns that are no features.
    max_errors : int, default=20
        Lines that are wrong in `errors`, of each kind.
    progress : callable, optional
        As of `read_libsvm`.

    Returns
    -------
    DataReport

    Raises
    ------
    OSError
        The file cannot be read.
    DataError
        There is no row, nor a line that is wrong, or features are more than there is memory for.
    ValueError, TypeError
        A parameter is outside its domain; X or y are none.

    Examples
    --------
    >>> import marginlinear as ml
    >>> report = ml.check([[1.0, 2], [1, 2], [3, 4]], ["a", "b", "a"])
    >>> report.labels, [finding.name for finding in report.findings]
    ({'a': 2, 'b': 1}, ['conflicts', 'single_rows'])
    """
    P.check_flag("zero_based", zero_based)
    errors = Errors(MAX_ERRORS.check(max_errors))
    if not isinstance(source, (str, bytes, os.PathLike)):
        if y is None:
            raise TypeError("y is missing: the labels of X")
        found, name = Survey("row", rule_of(source)), "X"
        for X, labels in parts_of(source, y):
            found.add(X, labels)
        return found.report(name, errors, None)
    if y is not None:
        raise TypeError("y is for an array: a file has its labels")
    path = os.fsdecode(source)
    base = None
    if path != "-" and (separator_of(path) or path.endswith(".parquet") or os.path.isdir(path)):
        found = Survey("line" if separator_of(path) else "row")
        try:
            found.add_table(path, P.LABEL.default if label is None else label, categories, leave_out, errors, progress)
        except DataError as error:
            errors.add(error)
    else:
        found, base = Survey("line"), 0 if zero_based else 1
        for rows, lines in good_blocks(path, errors.add, text_labels=text_labels, multilabel=multilabel,
                                       progress=progress):
            try:
                found.add(rows, rows.labels, lines)
            except MemoryError as error:
                raise DataError(*rows.largest, f"this index makes {rows.n_features - 1} features: {error}") from error
    if not found.rows and not errors.count:
        raise DataError(path, 0, 0, "the file has no rows")
    return found.report("<stdin>" if path == "-" else path, errors, base)


class Errors:
    """The first few of what is wrong, by the fix that they have in common, and how many there are."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: dict[str, list[DataError]] = {}
        self.fixes: dict[str, int] = {}

    @property
    def shown(self) -> list[DataError]:
        return [error for kept in self.kept.values() for error in kept]

    @property
    def count(self) -> int:
        return sum(self.fixes.values())

    def add(self, error: DataError) -> None:
        self.fixes[error.fix] = self.fixes.get(error.fix, 0) + 1
        kept = self.kept.setdefault(error.fix, [])
        if len(kept) < self.most:
            kept.append(error)


def parts_of(X: Any, y: Any) -> Iterator[tuple[CSR, Any]]:
    """Yield (CSR, labels) of some rows of an array, or of a Store."""
    labels = label_sets_of(y, None) if are_label_sets(y) else labels_of(y)
    X = X if is_stored(X) else held(X)
    for lo, hi, block in row_blocks(X, ROWS):
        if not is_compressed(block):
            numbers = np.asarray(block, dtype=np.float64)
            wrong = np.argwhere(~np.isfinite(numbers))
            if len(wrong):
                raise ValueError(f"X: row {lo + wrong[0][0]}, column {wrong[0][1]} is {numbers[tuple(wrong[0])]}: "
                                 "numbers must be finite")
            block = csr_of(numbers, np.empty((len(numbers), 0), np.int32), numbers.shape[1])
        yield block, labels[lo:hi]


class Survey:
    """Counts of rows that come in parts. `unit` is what tells where a row is: its line, or its number."""

    def __init__(self, unit: str, rule: Any = None) -> None:
        self.unit, self.rows, self.empty, self.zeros = unit, 0, 0, 0
        self.names: list[str] | None = None if rule is None else list(rule.features)
        self.extremes, self.n_features = Extremes(), 0
        self.places: list[Int64Array] = []
        self.hashes: list[AnyArray] = []
        self.labels = Labels()
        self.empties: list[int] = []
        self.from_zero: list[int] = []
        self.n_from_zero = 0

    def add(self, X: Any, labels: Any, places: Int64Array | None = None) -> None:
        """Take rows into account, which stand at these places: of an array, one after the other."""
        m = len(X.indptr) - 1
        places = np.arange(self.rows + 1, self.rows + m + 1) if places is None else places
        data = X.data.astype(np.float64, copy=False)
        there, indices, indptr = data != 0, X.indices, X.indptr
        if not there.all():
            self.zeros += int(np.count_nonzero(~there))
            indptr = np.append(0, np.cumsum(there))[indptr]
            data, indices = data[there], indices[there]
        lengths = np.diff(indptr)
        self.extremes.add(CSR(data, indices, indptr, X.n_features))
        self.n_features = max(self.n_features, X.n_features)
        self.hashes.append(row_hashes(data, indices, indptr))
        self.places.append(places)
        self.labels.add(labels)
        self.empty += self._note(lengths == 0, places, self.empties)
        first = X.indices[X.indptr[:-1][np.diff(X.indptr) > 0]] == 0
        self.n_from_zero += self._note(first, places[np.diff(X.indptr) > 0], self.from_zero)
        self.rows += m

    def _note(self, which: AnyArray, places: Int64Array, examples: list[int]) -> int:
        examples += places[which][:NAMED - len(examples)].tolist() if len(examples) < NAMED else []
        return int(np.count_nonzero(which))

    def add_table(self, path: str, label: str, categories: Sequence[str], leave_out: Sequence[str], errors: Errors,
                  progress: Progress | None) -> None:
        """The rows of CSV, TSV, Parquet or of a store."""
        if separator_of(path):
            self._add_text(TextTable(path, label, categories, leave_out, refuse=errors.add), progress)
            return
        from marginlinear.store import Store
        from marginlinear.store.layout import META

        if os.path.isfile(os.path.join(path, META)):
            store = Store(path)
            rule = store.table
            self.names = None if rule is None else list(rule.features)
            for rows in store.parts():
                self.add(rows, rows.labels)
            return
        from marginlinear.store.arrow import encoded

        pairs, meta = encoded(path, {"label": label}, None, "float64", default_threads(), progress,
                              categories=categories, leave_out=leave_out)
        self.names = meta["features"]
        for part, labels in pairs:
            self.add(part, labels)

    def _add_text(self, table: TextTable, progress: Progress | None) -> None:
        """Words of all columns are numbered as they come."""
        self.names = []
        numbers: dict[str, list[int]] = {}
        for cells in table.blocks(progress):
            self.names = self.names or list(table.numeric)
            words = np.empty_like(cells.words)
            for j, (column, known) in enumerate(table.words.items()):
                of_column = numbers.setdefault(column, [])
                for word in list(known)[len(of_column):]:
                    of_column.append(len(self.names))
                    self.names.append(f"{column}={word}")
                words[:, j] = np.array(of_column, dtype=np.int32)[cells.words[:, j]]
            labels = table.labels_of(table.labels, table.lines, None)
            self.add(csr_of(cells.numbers, words, len(self.names)), labels, np.array(table.lines, dtype=np.int64))
            table.forget()

    def report(self, source: str, errors: Errors, base: int | None) -> DataReport:
        """`base` is the number of the first feature in LIBSVM's text, as training takes it; None of other data."""
        counts = self.extremes.counts
        used = np.flatnonzero(counts)
        first, last = 0 if self.n_from_zero else int(used[0]) if len(used) else None, self.n_features - 1
        from_zero = base is not None and (base == 0 or self.n_from_zero > 0)
        start = 0 if base is None or from_zero else 1
        n_features = max(0, self.n_features - start)
        values = int(counts.sum())
        labels, target = self.labels.counted()
        findings: list[Finding] = []
        if self.rows:
            findings += self._of_rows(base)
            findings += self.labels.findings(labels)
            findings += self._of_features(start, values, n_features)
        return DataReport(source=source, rows=self.rows, n_features=n_features, values=values,
                          density=values / max(1, self.rows * n_features),
                          first_index=None if base is None else first,
                          last_index=None if base is None or first is None else last, labels=labels, target=target,
                          multilabel=self.labels.multilabel, errors=errors.shown, n_errors=errors.count,
                          fixes=errors.fixes, findings=findings)

    def _of_rows(self, base: int | None) -> Iterator[Finding]:
        if base == 1 and self.n_from_zero:
            yield Finding("zero_based", self.n_from_zero, f"{counted(self.n_from_zero, 'row')} with a feature 0 "
                          f"({self._at(self.from_zero, self.n_from_zero)})",
                          "features count from 1 unless every command is told --zero-based (zero_based=True)",
                          self.from_zero, True)
        if self.empty:
            yield Finding("empty_rows", self.empty, f"{counted(self.empty, 'row')} without values "
                          f"({self._at(self.empties, self.empty)})",
                          "all get the same score, that of the bias: leave them out unless that is meant", self.empties)
        hashes, places = np.concatenate(self.hashes), np.concatenate(self.places)
        self.hashes, self.places = [], []
        codes = self.labels.codes
        order = np.argsort(hashes, kind="stable")
        order = order[hashes[order] != 0]  # rows without values have been told of
        same = np.append(False, hashes[order][1:] == hashes[order][:-1])[:len(order)]
        del hashes
        group = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
        differ = codes[order] != codes[order[group]]
        for name, which, what, advice in (
                ("duplicates", same & ~differ, "equal to an earlier one, label and all",
                 "a row that is in training and test part makes a test say too much: keep one of each, with --weights "
                 "for how often, or make sure that parts share none"),
                ("conflicts", differ, "equal to an earlier one but for the label",
                 "no model can tell them apart: mend the labels, or add features that do")):
            count = int(np.count_nonzero(which))
            if count:
                later = order[which]
                some = np.sort(places[later])[:NAMED].tolist()
                at = later[np.argmin(places[later])]
                earlier = places[order[group[which][np.argmin(places[later])]]]
                yield Finding(name, count, f"{counted(count, 'row')} {what} ({self.unit} {places[at]} as {earlier}"
                              f"{', ...' if count > 1 else ''})", advice, some)

    def _at(self, places: list[int], count: int) -> str:
        words = ", ".join(map(str, places))
        return f"{self.unit}{'s' if count > 1 else ''} {words}{', ...' if count > len(places) else ''}"

    def _of_features(self, start: int, values: int, n_features: int) -> Iterator[Finding]:
        counts = self.extremes.counts[start:]
        least, most = (found[start:] for found in self.extremes.found())
        largest = np.maximum(np.abs(least), np.abs(most))
        if self.zeros:
            yield Finding("zeros", self.zeros, f"{counted(self.zeros, 'value')} 0 written out",
                          "they change nothing and take room: leave them out", [])
        for name, which, what, advice in (
                ("unused", counts == 0, "that no row has, or that are 0 in all", "their weights are 0: of no harm"),
                ("constant", (counts == self.rows) & (least == most), "of one value in all rows",
                 "each is a bias of its own: leave them out, and give -B 1 if a bias is wanted"),
                ("single_values", (counts == 1) & (self.rows > 1), "of one row alone",
                 "what is seen once is learned by heart: leave them out, or let -s l1lr choose")):
            found = np.flatnonzero(which[:n_features])
            if len(found):
                some = [self._feature(at + start) for at in found[:NAMED].tolist()]
                yield Finding(name, len(found), f"{counted(len(found), 'feature')} {what} "
                              f"({', '.join(map(str, some))}{', ...' if len(found) > NAMED else ''})", advice, some)
        used = np.flatnonzero(counts)
        if len(used):
            small, large = used[largest[used].argmin()], used[largest[used].argmax()]
            kind = advised(float(largest[small]), float(largest[large]), values / max(1, self.rows * n_features))
            if kind is not None:
                pair = [self._feature(int(at) + start) for at in (small, large)]
                orders = np.log10(largest[large]) - np.log10(largest[small])
                apart = f", {orders:.1f} orders of magnitude" if orders >= 1 else ""
                yield Finding("unscaled", len(used), f"largest values of features go from {largest[small]:g} "
                              f"({pair[0]}) to {largest[large]:g} ({pair[1]}){apart}" if orders else
                              f"largest values of features are all {largest[large]:g}",
                              f"a penalty weighs all features alike: give margin-train --scale {kind}"
                              f"{', which keeps zeros' if kind == MAXABS else ''}", pair)

    def _feature(self, place: int) -> Any:
        """A feature as the user knows it: by its name, or by its number from 1, or as the file counts."""
        if self.names is not None and place < len(self.names):
            return self.names[place]
        return place + 1 if self.unit == "row" else place


class Labels:
    """The labels of rows that come in parts: numbers as they are, words and sets of labels by numbers of their own."""

    def __init__(self) -> None:
        self.parts: list[FloatArray] = []
        self.known: dict[Any, int] | None = None
        self.multilabel = False
        self.codes: FloatArray = np.empty(0)

    def add(self, labels: Any) -> None:
        if isinstance(labels, LabelSets):
            self.multilabel = True
            self._add_known(labels.tolist())
        elif labels.dtype.kind == "U":
            self._add_known(labels.tolist())
        elif self.known is not None:
            self._add_known(map(_text, labels.tolist()))
        else:
            self.parts.append(labels.astype(np.float64))

    def _add_known(self, labels: Iterable[Any]) -> None:
        if self.known is None:
            before, self.known = self.parts, {}
            self.parts = [self._places(map(_text, part.tolist())) for part in before]
        self.parts.append(self._places(labels))

    def _places(self, labels: Iterable[Any]) -> FloatArray:
        known: Any = self.known
        return np.array([known.setdefault(label, len(known)) for label in labels], dtype=np.float64)

    def counted(self) -> tuple[dict[Any, int], tuple[float, float, float, int] | None]:
        """(label -> rows, (least, largest, mean, different) of numbers that may be a target)."""
        self.codes, self.parts = np.concatenate([*self.parts, np.empty(0)]), []
        found, counts = np.unique(self.codes, return_counts=True)
        if self.known is not None:
            names = list(self.known)
            counted: dict[Any, int] = {}
            for code, count in zip(found.astype(int).tolist(), counts.tolist(), strict=True):
                for label in names[code] if self.multilabel else [names[code]]:
                    counted[label] = counted.get(label, 0) + count
            return dict(sorted(counted.items())), None
        if not len(found):
            return {}, None
        whole = bool((found == np.trunc(found)).all())
        target = (float(found[0]), float(found[-1]), float(self.codes.mean()), len(found))
        labels = dict(zip(found.astype(np.int64).tolist(), counts.tolist(), strict=True)) if whole else {}
        return labels, target if not whole or len(found) > CLASSES else None

    def findings(self, labels: dict[Any, int]) -> Iterator[Finding]:
        if self.multilabel:
            return
        if len(labels) == 1:
            yield Finding("one_label", 1, f"all rows have the label {next(iter(labels))}",
                          "a classifier needs two; -s oneclass learns where the rows are", list(labels), True)
        single = [label for label, count in labels.items() if count == 1]
        if single and len(labels) > 1 and 2 * len(single) < len(self.codes):
            yield Finding("single_rows", len(single), f"{counted(len(single), 'label')} of one row "
                          f"({', '.join(map(str, single[:NAMED]))}{', ...' if len(single) > NAMED else ''})",
                          "cross-validation cannot learn and test them: add rows, or merge classes", single[:NAMED])


def _text(label: float) -> str:
    return shown(int(label))[1:-1] if label == int(label) else repr(label)


def row_hashes(data: FloatArray, indices: AnyArray, indptr: AnyArray) -> AnyArray:
    """A uint64 of each row: the sum over its values of splitmix64 of value and feature; 0 without values."""
    with np.errstate(over="ignore"):
        z = data.view(np.uint64) ^ (indices.astype(np.uint64) + np.uint64(1)) * GOLDEN
        z = (z ^ (z >> np.uint64(30))) * FIRST
        z = (z ^ (z >> np.uint64(27))) * SECOND
        z ^= z >> np.uint64(31)
        sums = np.append(np.uint64(0), np.cumsum(z, dtype=np.uint64))
        return sums[indptr[1:]] - sums[indptr[:-1]]
