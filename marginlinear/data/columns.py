"""Columns of a table: what each becomes, the rule that says so, and the rows of CSV and TSV by it.

    numbers    a feature each, in the order of the columns
    words      after them a feature for each word of a column, in the order of first appearance, column after column: 1
               where a row has it

Stores, models, and `store.arrow` for Parquet, have the same rule; in theirs words may be hashed, too.
"""

from __future__ import annotations

import csv
import io
import math
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from marginlinear.data.arrays import CSR, as_singles, column_names, is_frame
from marginlinear.data.reading import as_written, separator_of, shown
from marginlinear.errors import DataError, did_you_mean
from marginlinear.libsvm.reader import LibsvmData, Replayed, decompressed, first_bytes, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from marginlinear._typing import AnyArray, FloatArray, Int32Array, RealArray
    from marginlinear.libsvm.reader import Progress

# {column: (cells with words that the rule does not know, the first such word)}
Unknown: TypeAlias = dict[str, tuple[int, str]]
# Cells of a block, and bytes of text that are read at once.
CELLS, TEXT = 1 << 18, 1 << 18
EMPTY, MEND = "the cell is empty", "mend it, or leave the row out"
# Whole numbers below it are int64 and float64 alike.
EXACT = 1 << 53
COUNT, NARROW = 1 << 31, 1 << 16
# What programs put between cells, and the ending of the names of such files, where there is one.
SIGNS = {",": ".csv", "\t": ".tsv", ";": None, "|": None}


class TableRule(NamedTuple):
    """How the columns of a table become the features.

    Attributes
    ----------
    label : str or None
        The column of the labels.
    features : tuple of str
        Names of features that are of one column or word: numeric columns first, then `column=word` of each word.
    onehot : tuple of (str, int)
        Columns of words, and how many each has, which are the last of `features`.
    hashed : dict or None
        In place of `onehot`: `columns` whose words are hashed to 2^`bits` features from `first` on.
    """

    label: str | None
    features: tuple[str, ...]
    onehot: tuple[tuple[str, int], ...] = ()
    hashed: dict[str, Any] | None = None

    @classmethod
    def of(cls, entries: Any) -> TableRule:
        """The rule that `to_dict` has written; ValueError for anything else."""
        words = {"onehot", "hash"} & entries.keys()
        if entries.keys() != {"label", "features", *words} or len(words) != 1:
            raise ValueError("it has label, features, and either onehot or hash")
        label, features = entries["label"], entries["features"]
        if not (label is None or isinstance(label, str)) or not _are_names(features):
            raise ValueError("label is a name or null, features are a list of names")
        if "hash" in entries:
            hashed = entries["hash"]
            if not (isinstance(hashed, dict) and hashed.keys() == {"bits", "columns", "first"}
                    and type(hashed["bits"]) is int and 1 <= hashed["bits"] <= 30 and _are_names(hashed["columns"])
                    and hashed["first"] == len(features)):
                raise ValueError("hash has bits, from 1 to 30, columns, and the number of features as first")
            return cls(label, tuple(features), hashed=hashed)
        onehot = entries["onehot"]
        if not (isinstance(onehot, list) and all(
                isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str) and type(pair[1]) is int
                and pair[1] >= 0 for pair in onehot)) or sum(count for _, count in onehot) > len(features):
            raise ValueError("onehot is a list of columns and of how many words each has")
        rule = cls(label, tuple(features), tuple((column, count) for column, count in onehot))
        found = rule.words()
        if len(set(rule.numeric)) < len(rule.numeric) or [len(known) for known in found.values()] != [
                count for _, count in onehot] or not all(
                name.startswith(f"{column}=") for column, names in rule._names_of_words() for name in names):
            raise ValueError("names of features stand twice, or are not those of their columns")
        return rule

    @classmethod
    def of_meta(cls, meta: Mapping[str, Any]) -> TableRule:
        """That of a store, in its meta.json."""
        return cls.of({name: meta[name] for name in ("label", "features", "onehot", "hash") if name in meta})

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, in models and in meta.json of stores."""
        words = {"onehot": [list(pair) for pair in self.onehot]} if self.hashed is None else {"hash": self.hashed}
        return {"features": list(self.features), "label": self.label, **words}

    def same_features(self, other: TableRule) -> bool:
        """Whether columns become the same features; the column of the labels may have another name."""
        return self._replace(label=None) == other._replace(label=None)

    @property
    def numeric(self) -> list[str]:
        """The columns of numbers."""
        return list(self.features[:len(self.features) - sum(count for _, count in self.onehot)])

    @property
    def n_features(self) -> int:
        hashed = self.hashed
        return len(self.features) + (1 << hashed["bits"] if hashed is not None and hashed["columns"] else 0)

    def words(self) -> dict[str, dict[Any, int]]:
        """{column: {word: place among the column's}} of `onehot`."""
        return {column: {name[len(column) + 1:]: place for place, name in enumerate(names)}
                for column, names in self._names_of_words()}

    def _names_of_words(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        at = len(self.numeric)
        for column, count in self.onehot:
            yield column, self.features[at:at + count]
            at += count


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def rule_of(X: Any) -> TableRule | None:
    """How columns became the features of X: a file's rows, a store, or a data frame whose columns have names."""
    if not is_frame(X):
        return getattr(X, "table", None)
    names = column_names(X)
    named = all(type(name) is str for name in names) and len(set(names)) == len(names)
    return TableRule(None, tuple(names)) if named else None


def one_rule(rules: Sequence[TableRule | None], names: Sequence[str]) -> TableRule | None:
    """The rule of rows of several places, where all have one; ValueError where two have other features."""
    found = None
    for rule, name in zip(rules, names, strict=True):
        if rule is None:
            return None
        found = found or (rule, name)
        if not rule.same_features(found[0]):
            raise ValueError(f"{name}: its columns are other features than those of {found[1]}: give frames of the "
                             "same columns, and stores of one rule, as Store.write(source, path, like=store) makes")
    return found and found[0]


def csr_of(numbers: RealArray, words: Int32Array, n_features: int) -> CSR:
    """Rows of numbers, the features 0 to n - 1, and of features of words, an array of shape (m, columns), -1 where a
    cell has none; where those of a row meet, 1s add up."""
    m, n = numbers.shape
    values: Any = np.empty((m, n + words.shape[1]), numbers.dtype)
    columns = np.empty(values.shape, np.int32)
    values[:, :n], columns[:, :n] = numbers, np.arange(n)
    columns[:, n:], values[:, n:] = counted(words)
    kept = values != 0
    return CSR(values[kept], columns[kept], np.append(0, kept.sum(axis=1).cumsum()), n_features)


def counted(features: Int32Array) -> tuple[Int32Array, FloatArray]:
    """The features of each row, rising, and at the first of equal ones how many they are; 0 at others, and at -1."""
    features = np.sort(features, axis=1)
    there = features >= 0
    first = there.copy()
    first[:, 1:] &= features[:, 1:] != features[:, :-1]
    counts = np.zeros(features.shape)
    # Along all rows: a row's first feature is a first one.
    counts[first] = np.diff(np.flatnonzero(first[there]), append=np.count_nonzero(there))
    return features, counts


class TableData(LibsvmData):
    """The rows of a table as those of a file.

    Attributes
    ----------
    table : TableRule
        Further ones than of LibsvmData, whose labels may be None here: how columns became features.
    left_out : dict
        Name of a column that is no feature -> its cells, as they are.
    lines, places : sequence of int, dict
        Where they are: the line of each row, and name -> number of a column from 0; empty where that is not known.
    """

    def __init__(self, parts: list[CSR], labels: AnyArray | None, path: str, table: TableRule,
                 left_out: dict[str, tuple[str, ...]] | None = None, narrow: bool = False, lines: Sequence[int] = (),
                 places: Mapping[str, int] | None = None) -> None:
        data = np.concatenate([part.data for part in parts])
        indices = np.concatenate([part.indices for part in parts])
        ends = np.concatenate([[0], *(np.diff(part.indptr) for part in parts)]).cumsum()
        if narrow:
            singles = as_singles(data)
            data = data if singles is None else singles
            indices = indices.astype(np.uint16) if table.n_features <= NARROW else indices
        super().__init__(data, indices, ends, labels, table.n_features, (path, 0, 0))
        self.table, self.left_out = table, left_out or {}
        self.lines, self.places = lines, places or {}

    @classmethod
    def of(cls, pairs: list[tuple[CSR, AnyArray | None]], path: str, table: TableRule,
           narrow: bool = False) -> TableData:
        """The rows of pairs of CSR and labels, which all have, or none."""
        if not pairs:
            raise DataError(path, 0, 0, "there are no rows")
        labels = [labels for _, labels in pairs if labels is not None]
        return cls([part for part, _ in pairs], np.concatenate(labels) if labels else None, path, table, narrow=narrow)


class Table(NamedTuple):
    """What a file holds, for who wants arrays.

    Attributes
    ----------
    X : float64 array of shape (m, n)
    y : int64, float64 or str array of shape (m,)
    rule : TableRule
        What makes a further file's features those of this one.
    left_out : dict
        Name of a column that is no feature -> its cells, as they are.
    """

    X: FloatArray
    y: AnyArray
    rule: TableRule
    left_out: dict[str, tuple[str, ...]]


def read_csv(path: str, label: str, categories: Sequence[str] = (), like: TableRule | None = None,
             leave_out: Sequence[str] = ()) -> Table:
    """`table_rows` as a Table."""
    found = table_rows(path, label, categories, leave_out, like)
    return Table(found.to_scipy().toarray(), found.labels, found.table, found.left_out)


def table_rows(path: str, label: str, categories: Sequence[str] = (), leave_out: Sequence[str] = (),
               like: TableRule | None = None, *, text_labels: bool | None = None, dtype: str = "float64",
               narrow: bool = False, progress: Progress | None = None, unknown: Unknown | None = None,
               unlabelled: bool = False) -> TableData:
    """Read a CSV or TSV file with a header, cells in double quotes where they hold what separates them.

    Parameters
    ----------
    path : str
        Names that end in .csv, .tsv, or either and .gz, .bz2, .xz or .zst: it is unpacked if its first bytes say so.
    label : str
        The column of the labels.
    categories : sequence of str
        Columns that become a feature for each of their words, 1 where a row has it. Other cells must be numbers.
    leave_out : sequence of str
        Columns that are no features.
    like : TableRule, optional
        The rule of another file, whose features this one gets: a word that is not there has none, and columns that it
        does not know are left out.
    text_labels : bool, default=None
        Whether labels are words; None: unless all of them are numbers.
    dtype : {"float64", "float32"}
    narrow, progress
        As of `read_libsvm`.
    unknown : dict, optional
        Where cells are noted whose words `like` does not know.
    unlabelled
        As of TextTable; without the column labels are None.

    Raises
    ------
    DataError
        Names file, line, and the cell that is wrong.
    OSError
        The file cannot be read.
    """
    table = TextTable(path, label, categories, leave_out, like, unlabelled=unlabelled)
    table.unknown = table.unknown if unknown is None else unknown
    blocks = list(table.blocks(progress))
    rule = table.rule
    parts = []
    while blocks:
        parts.append(table.csr(blocks.pop(0), rule.n_features, dtype))
    left_out = {name: tuple(cells) for name, cells in table.left_out.items()}
    labels = table.labels_of(table.labels, table.lines, text_labels) if table.labelled else None
    return TableData(parts, labels, path, rule, left_out, narrow, table.lines if left_out else (), table.places)


def table_blocks(path: str, label: str, like: TableRule, *, text_labels: bool, progress: Progress | None = None,
                 unknown: Unknown | None = None, unlabelled: bool = False) -> Iterator[TableData]:
    """Yield the rows of a table `like` another one some at a time, in memory that does not grow with the file; what
    cells have words that are not there is noted in `unknown`. `unlabelled` as of TextTable."""
    table = TextTable(path, label, like=like, unlabelled=unlabelled)
    table.unknown = table.unknown if unknown is None else unknown
    with closing(table.blocks(progress)) as blocks:
        for cells in blocks:
            labels = table.labels_of(table.labels, table.lines, text_labels) if table.labelled else None
            table.forget()
            yield TableData([table.csr(cells, like.n_features, "float64")], labels, path, like)


class Cells(NamedTuple):
    """Some rows: float64 array of numbers, and for the columns of words the places of words, -1 of unknown ones."""

    numbers: FloatArray
    words: Int32Array


class TextTable:
    """A CSV or TSV file, whose blocks of rows tell its columns.

    Parameters
    ----------
    refuse : callable, optional
        What is done with a DataError of one row, which is then left out; by default it is raised.
    unlabelled : bool, default=False
        Whether the column of the labels may be missing.

    Attributes
    ----------
    labels, lines : lists
        Of the rows so far, or since `forget`: the words that are their labels, and their lines in the file.
    left_out : dict
        Cells of the columns that are left out, so far.
    unknown : Unknown
    labelled : bool
        Whether the header has a column of labels, once it has been read.
    """

    def __init__(self, path: str, label: str, categories: Sequence[str] = (), leave_out: Sequence[str] = (),
                 like: TableRule | None = None, refuse: Callable[[DataError], object] | None = None,
                 unlabelled: bool = False) -> None:
        if like is not None and like.hashed is not None:
            raise DataError(path, 0, 0, "the words of the columns are hashed, which is for Parquet: convert the file")
        self.path, self.label, self.categories, self.like = path, label, tuple(categories), like
        self.refuse: Callable[[DataError], object] = raised if refuse is None else refuse
        self.labels: list[str] = []
        self.lines: list[int] = []
        self.left_out: dict[str, list[str]] = {name: [] for name in leave_out}
        self.numeric: list[str] = [] if like is None else like.numeric
        self.words: dict[str, dict[str, int]] = {} if like is None else like.words()
        self.unknown: Unknown = {}
        self.places: dict[str, int] = {}
        self.unlabelled, self.labelled = unlabelled, True

    @property
    def rule(self) -> TableRule:
        """The rule, by all rows so far."""
        names = [*self.numeric, *(f"{column}={word}" for column, known in self.words.items() for word in known)]
        onehot = tuple((column, len(known)) for column, known in self.words.items())
        return self.like or TableRule(self.label, tuple(names), onehot)

    def forget(self) -> None:
        self.labels, self.lines = [], []

    def blocks(self, progress: Progress | None = None) -> Generator[Cells, None, None]:
        """Yield Cells; a file without rows is an error."""
        some = False
        with opened(self.path) as (_, readinto, size):
            lines = rows_of(self.path, readinto, size, progress)
            header = self._header(next(lines, (0, []))[1])
            self.places = {name: at for at, name in enumerate(header)}
            block = max(1, CELLS // len(header))
            rows: list[list[str]] = []
            numbers: list[int] = []
            for number, row in lines:
                if len(row) != len(header):
                    self.refuse(uneven(self.path, number, row, header))
                    some = True
                    continue
                rows.append(row)
                numbers.append(number)
                if len(rows) == block:
                    yield self._cells(rows, numbers)
                    rows, numbers, some = [], [], True
            if rows:
                yield self._cells(rows, numbers)
            elif not some:
                raise DataError(self.path, 2, 1, "there are no rows below the header")

    def csr(self, cells: Cells, n_features: int, dtype: str) -> CSR:
        """The rows of Cells; `n_features` are those of the rule in the end."""
        words, at = cells.words, len(self.numeric)
        for j, known in enumerate(self.words.values()):
            words[:, j] += (words[:, j] >= 0) * np.int32(at)
            at += len(known)
        if n_features >= COUNT:
            raise DataError(self.path, 0, 0, f"{n_features} features are too many: state fewer columns as categories")
        with np.errstate(over="ignore"):
            numbers = cells.numbers.astype(dtype, copy=False)
        wrong = np.argwhere(~np.isfinite(numbers))
        if len(wrong):
            row, column = wrong[0].tolist()
            raise DataError(self.path, 0, 0, f"column {as_written(self.numeric[column])}: "
                            f"{cells.numbers[row, column]:g} is too large for {dtype}")
        return csr_of(numbers, words, n_features)

    def labels_of(self, texts: Sequence[str], lines: Sequence[int], text_labels: bool | None) -> AnyArray:
        """Labels of rows by their words: int64 if each is a whole number, else float64, or str."""
        found = None if text_labels or any("_" in text for text in texts) else numbers_of(texts)
        if found is None and text_labels is not False:
            return np.array(texts, dtype=np.str_)
        if found is None or not np.isfinite(found).all():
            at = next(at for at, text in enumerate(texts) if finite(text) is None)
            what = "is not a number, as labels are to be here" if found is None else "stands among numbers"
            raise self._fault(lines[at], self.label, f"{as_written(texts[at])} {what}", MEND)
        if found.dtype.kind == "i":
            return found
        large = np.flatnonzero(np.abs(found) >= EXACT)
        if len(large):
            at = int(large[0])
            raise self._fault(lines[at], self.label, f"{as_written(texts[at])} is not below 2^53, where float64 begins "
                              "to skip whole numbers, and not all labels are 64-bit integers", MEND if text_labels is
                              False else "to read labels as text, say --text-labels (text_labels=True)")
        return found.astype(np.int64) if (found == np.trunc(found)).all() else found

    def _fault(self, line: int, column: str, what: str, fix: str) -> DataError:
        return DataError(self.path, line, self.places[column] + 1, f"column {as_written(column)}: {what}", fix)

    def _no_number(self, text: str) -> tuple[str, str]:
        """What is wrong with the text of a cell, and the fix."""
        if not text.strip():
            return EMPTY, "write a number for what is missing, or leave the row out" + (
                "" if self.like is not None else ", or the column by --leave-out")
        fix = "as the training set has numbers there" if self.like is not None else (
            "or state the column among those of words, --categories, or leave it out, --leave-out")
        return f"{as_written(text)} is no finite number", f"mend it, {fix}"

    def _header(self, cells: list[str]) -> list[str]:
        self.labelled = self.label in checked_header(self.path, cells, ())
        if not (self.labelled or self.unlabelled):
            raise no_labels(self.path, cells, self.label)
        header = checked_header(self.path, cells, (*self.categories, *self.left_out))
        named = (self.label, *self.categories, *self.left_out)
        # A file of genes has tens of thousands of columns: they are looked up in sets.
        known, taken, words = set(header), set(named), set(self.categories)
        twice = next((name for name in named if named.count(name) > 1), None) if len(taken) < len(named) else None
        if twice is not None:
            raise DataError(self.path, 1, 1, f"{as_written(twice)} is named twice: a column is that of the labels, a "
                            "category, or left out")
        if self.like is None:
            self.numeric = [name for name in header if name not in taken]
            self.words = {name: {} for name in header if name in words}
        for name in (*self.numeric, *self.words):
            if name not in known:
                raise missing(self.path, header, name, ", which the training set has")
            if name == self.label:
                raise DataError(self.path, 1, 1, f"column {as_written(name)} is a feature in the training set: name "
                                "another one as that of the labels")
        return header

    def _cells(self, rows: list[list[str]], lines: list[int]) -> Cells:
        """The rows that have nothing wrong."""
        places = self.places
        cells: list[tuple[str, ...]] = list(zip(*rows, strict=True))
        wrong: dict[int, DataError] = {}
        numbers = np.zeros((len(rows), len(self.numeric)))
        for j, name in enumerate(self.numeric):
            texts = cells[places[name]]
            values = finite_numbers(texts)
            if values is None:
                values = np.zeros(len(rows))
                for at, text in enumerate(texts):
                    value = finite(text)
                    if value is None:
                        wrong.setdefault(at, self._fault(lines[at], name, *self._no_number(text)))
                    else:
                        values[at] = value
            numbers[:, j] = values
        texts_of = {name: list(map(str.strip, cells[places[name]]))
                    for name in (*[self.label][:self.labelled], *self.words)}
        for name, found in texts_of.items():
            if "" in found:
                for at in (at for at, text in enumerate(found) if not text):
                    wrong.setdefault(at, self._fault(lines[at], name, EMPTY, "write a word for what is missing, or "
                                                     "leave the row out"))
        for at in sorted(wrong):
            self.refuse(wrong[at])
        kept = [at for at in range(len(rows)) if at not in wrong] if wrong else range(len(rows))
        if wrong:
            numbers = numbers[list(kept)]
            texts_of = {name: [found[at] for at in kept] for name, found in texts_of.items()}
        self.labels += texts_of.pop(self.label, [])
        self.lines += [lines[at] for at in kept]
        for name, so_far in self.left_out.items():
            column = cells[places[name]]
            so_far += [column[at] for at in kept]
        words = np.empty((len(kept), len(self.words)), np.int32)
        for j, (name, found) in enumerate(texts_of.items()):
            words[:, j] = self._places(name, found)
        return Cells(numbers, words)

    def _places(self, column: str, found: list[str]) -> list[int]:
        """Places of the words of a column among its words, which grow unless another file's are given."""
        known = self.words[column]
        if self.like is None:
            return [known.setdefault(word, len(known)) for word in found]
        places = [known.get(word, -1) for word in found]
        if count := places.count(-1):
            note_unknown(self.unknown, column, count, found[places.index(-1)])
        return places


def note_unknown(unknown: Unknown, column: str, count: int, word: str) -> None:
    before, first = unknown.get(column, (0, word))
    unknown[column] = before + count, first


def numbers_of(texts: Sequence[str]) -> AnyArray | None:
    """int64 or float64 array; None where a text is no number."""
    try:
        found = np.array(list(map(int, texts)))
        if found.dtype.kind == "i":
            return found
    except ValueError:
        pass
    try:
        return np.array(list(map(float, texts)))
    except ValueError:
        return None


def raised(error: DataError) -> None:
    raise error


def finite_numbers(texts: Sequence[str]) -> FloatArray | None:
    """float64 array of the numbers; None where a text is none, or not finite."""
    if "_" in "".join(texts):
        return None
    try:
        values = np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None


def finite(text: str) -> float | None:
    """The number; None for what is none, or not finite."""
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def columns_of(path: str, names: Sequence[str]) -> list[str]:
    """The names of the columns of a file; DataError or OSError where it has no header with these `names`."""
    with opened(path) as (_, readinto, size), closing(rows_of(path, readinto, size)) as lines:
        return checked_header(path, next(lines, (0, []))[1], names)


def header_text(cells: Sequence[str]) -> str:
    """A header for a message."""
    return as_written(", ".join(map(str.strip, cells)))[1:-1]


def uneven(path: str, line: int, row: Sequence[str], header: Sequence[str]) -> DataError:
    """The error of a row that is not as long as the header, where it ends, or should."""
    return DataError(path, line, min(len(row), len(header)) + 1, f"{len(row)} cells: {len(header)} are needed, as in "
                     "the header", "mend the row: a cell in which a separator stands is put in double quotes")


def missing(path: str, header: Sequence[str], name: str, which: str = "", fix: str = "", line: int = 1) -> DataError:
    """The error of a column that is not in the header; a `line` of 0 where that has no line."""
    what = f"there is no column {as_written(name)}{which}"
    sign = next((sign for sign in SIGNS if sign in header[0]), None) if len(header) == 1 else None
    if sign is not None:
        if SIGNS[sign]:
            fix = f"give the file a name that ends in {SIGNS[sign]}"
        else:
            fix = ("write it with commas, as python -c \"import csv, sys; csv.writer(sys.stdout).writerows(csv.reader("
                   f"sys.stdin, delimiter='{sign}'))\" < {path} > new.csv does")
        return DataError(path, line, line, f"{what}: the header is one cell with {as_written(sign)} in it, "
                         f"{header_text(header)}", fix)
    near = did_you_mean(name.lower(), {known.strip().lower(): as_written(known.strip()) for known in header})
    return DataError(path, line, line, f"{what}{near}: the columns are {header_text(header)}", fix)


def no_labels(path: str, header: Sequence[str], label: str) -> DataError:
    """The error where the column of labels is not in the header."""
    return missing(path, header, label, " of labels", "name one by --label")


def checked_header(path: str, cells: Sequence[str], names: Sequence[str], fix: str = "") -> list[str]:
    """The names of columns; DataError where two are one, or one of `names` is not there, with the fix of that."""
    header = [name.strip() for name in cells]
    if not header:
        raise DataError(path, 1, 1, "the file is empty: a header with the names of the columns is needed")
    twice = next((name for name in header if header.count(name) > 1), None) if len(set(header)) < len(header) else None
    if twice is not None:
        again = header.index(twice, header.index(twice) + 1)
        raise DataError(path, 1, again + 1, f"two columns are called {as_written(twice)}: rename one")
    known = set(header)
    for name in names:
        if name not in known:
            raise missing(path, header, name, fix=fix)
    return header


def rows_of(path: str, readinto: Any, size: int | None,
            progress: Progress | None = None) -> Generator[tuple[int, list[str]], None, None]:
    """Yield (the line in which it begins, cells) of the header and of each row; blank lines are none."""
    head = first_bytes(readinto)
    readinto, rest = decompressed(path, head, readinto)
    total, done, begin = size if rest is head else None, 0, 1
    rows = -1  # the header is none

    def lines() -> Iterator[str]:
        nonlocal done
        raw: Any = io.BufferedReader(Replayed(rest, readinto), TEXT)
        stream = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
        for number, line in enumerate(stream, 1):
            if not line.isascii():
                require_text(path, number, line)
            done += len(line)
            if progress is not None and not number & 0xFFFF:
                progress(done, total, max(rows, 0))
            yield line

    reader = csv.reader(lines(), delimiter=separator_of(path) or ",", strict=True)
    try:
        for row in reader:
            if row:
                yield begin, row
                rows += 1
            begin = reader.line_num + 1
    except csv.Error as error:
        raise DataError(path, begin, 1, f"not CSV: {shown(error)[1:-1]}") from None
    if progress is not None:
        progress(done, total, rows)


def require_text(path: str, number: int, line: str) -> None:
    """DataError where a line holds bytes that are not UTF-8."""
    try:
        line.encode()
    except UnicodeEncodeError as error:
        column = len(line[:error.start].encode()) + 1
        raise DataError(path, number, column, "not UTF-8: convert the file, as with iconv") from None
