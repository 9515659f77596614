"""From Parquet and Arrow to rows: what each column becomes. The one place that knows pyarrow.

    numbers, bools    a feature each, in the order of the columns; null is 0
    words, "onehot"   after them a feature for each value of a column, in the order of first appearance, column after
                      column; null is none
    words, "hash"     after them feature FNV-1a(b"column=value") mod 2^bits, of 64 bits; where values of a row meet, 1s
                      add up; null is none

In meta.json stand `label`, the column of the labels; `features`, the names of features that one column or value has
alone, null above NAMES of them; and `onehot`, [[column, number of values], ...], or `hash`, {"bits", "columns",
"first": the first of its features}; and `like`, whether another store's rule was gone by.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from marginlinear import params
from marginlinear._typing import AnyArray, Int64Array
from marginlinear.data.arrays import CSR
from marginlinear.data.columns import TableRule, Unknown, csr_of, missing, note_unknown
from marginlinear.data.labels import labels_of, require_words
from marginlinear.errors import DataError, needed
from marginlinear.libsvm.reader import Progress
from marginlinear.store import layout

try:
    import pyarrow as pa
    from pyarrow import dataset, parquet
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise ModuleNotFoundError(needed("Parquet and Arrow need pyarrow", "arrow"), name="pyarrow") from None

# Cells of a batch: some 50 MB with what is made of them.
CELLS = 1 << 20
# Bytes of a column of a file that are read at once.
BUFFER = 1 << 16
# Names of features that a description holds at most.
NAMES = 1_000_000
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
NUMBERS, WORDS = "numbers", "words"


def encoded(source: Any, given: dict[str, Any], like: TableRule | None, dtype: str, threads: int,
            progress: Progress | None, *, categories: Sequence[str] = (), leave_out: Sequence[str] = (),
            unknown: Unknown | None = None, unlabelled: bool = False,
            ) -> tuple[Iterator[tuple[CSR, Any]], dict[str, Any]]:
    """(pairs of CSR and labels, what meta.json says of the columns).

    Parameters
    ----------
    source : path, Table, RecordBatchReader or Dataset
    given : dict
        Values of params.COLUMNS, None where not given.
    like : TableRule or None
        That of the store, or model, by whose rule columns are encoded.
    dtype : "float32" or "float64"
    threads, progress
        As of `Store.write`.
    categories, leave_out : sequences of str
        Columns whose values are words, whatever their type, and columns that are no features.
    unknown : dict, optional
        Where cells are noted whose words `like` does not know.
    unlabelled : bool, default=False
        Whether the column of the labels may be missing; labels are None then.
    """
    values = params.resolve(params.COLUMNS, given)
    label = values["label"]
    table = Columns(source, threads)
    labelled = not unlabelled or label in table.kinds
    table.require([*[label][:labelled], *categories, *leave_out])
    table.state(label, categories, leave_out)
    if like is not None:
        for name in ("categorical", "hash_bits"):
            if given.get(name) is not None:
                raise ValueError(f"{name} = {given[name]!r} is of no use with like, a store that has a rule: leave it "
                                 "out")
        numeric, rule = rule_like(like, table, label)
    else:
        numeric, rule = rule_of(table, label, values["categorical"], values["hash_bits"])
    names = [*numeric, *rule.names()] if len(numeric) + rule.named <= NAMES else None
    return (pairs(table, label if labelled else None, numeric, rule, np.dtype(dtype), progress, unknown),
            {"label": label, "features": names, "like": like is not None, **rule.meta()})


def rule_of(table: Columns, label: str, categorical: str, bits: int) -> tuple[list[str], Rule]:
    """(numeric columns, OneHot or Hash) of all columns but that of the labels."""
    kinds = {column: kind for column, kind in table.kinds.items() if column != label}
    for column, kind in kinds.items():
        if kind is None:
            raise table.fault(column, f"holds {table.type_of(column)}: cast it to numbers or strings, or leave it out")
    numeric, words = ([column for column, kind in kinds.items() if kind == wanted] for wanted in (NUMBERS, WORDS))
    if categorical == "hash":
        return numeric, Hash(len(numeric), words, bits)
    if words and table.once:
        raise table.fault(words[0], "holds words, and categorical = 'onehot' goes over the rows twice: give a file, "
                          "Table or Dataset in place of what can be read once, or categorical = 'hash'")
    values: dict[str, dict[Any, int]] = {column: {} for column in words}
    for batch in table.batches(words) if words else ():
        for column, known in values.items():
            with table.naming(column):
                for value in words_of(batch.column(column)).dictionary.to_pylist():
                    known.setdefault(value, len(known))
    return numeric, OneHot(len(numeric), values, whole=True)


def rule_like(like: TableRule, table: Columns, label: str) -> tuple[list[str], Rule]:
    """(numeric columns, OneHot or Hash) of a TableRule, for the columns of another table."""
    numeric = like.numeric
    rule: Rule
    if like.hashed is not None:
        rule = Hash(like.hashed["first"], like.hashed["columns"], like.hashed["bits"])
    else:
        rule = OneHot(len(numeric), like.words(), whole=False)
    table.require([*numeric, *rule.columns])
    for column in rule.columns:
        # A column of whole numbers or bools may have been stated to be one of words, as it is of any file of text.
        if table.kinds[column] == NUMBERS and not pa.types.is_floating(table.type_of(column)):
            table.kinds[column] = WORDS
    for wanted, columns in ((NUMBERS, numeric), (WORDS, rule.columns)):
        for column in columns:
            if column == label:
                raise table.fault(column, "is a feature in the store that this one is to be like: give another label")
            if table.kinds[column] != wanted:
                raise table.fault(column, f"holds {table.type_of(column)}, and {wanted} in the store that this one is "
                                  "to be like: cast it")
    return numeric, rule


class OneHot:
    """A feature for each value of a column.

    Parameters
    ----------
    first : int
        Its first feature.
    values : dict of dicts
        {column: {value: place among the column's features}}
    whole : bool
        Whether these are all values that there are: another one is an error, else no feature.
    """

    def __init__(self, first: int, values: dict[str, dict[Any, int]], whole: bool) -> None:
        self.values, self.columns, self.whole = values, list(values), whole
        self.starts: dict[str, int] = {}
        self.named = 0
        for column, known in values.items():
            self.starts[column] = first + self.named
            self.named += len(known)
        self.n_features = first + self.named

    def features(self, column: str, words: Any) -> Int64Array:
        """The features of distinct words, -1 of unknown ones."""
        known = self.values[column]
        found = np.array([known.get(word, -1) for word in words.to_pylist()], np.int64)
        if self.whole and found.min(initial=0) < 0:
            raise ValueError(f"column {column!r} has other values than when it was read for them: the source was "
                             "changed meanwhile, write the store again")
        return np.where(found < 0, -1, found + self.starts[column])

    def names(self) -> list[str]:
        return [f"{column}={value}" for column, known in self.values.items() for value in known]

    def meta(self) -> dict[str, Any]:
        return {"onehot": [[column, len(known)] for column, known in self.values.items()]}


class Hash:
    """2^bits features, from `first` on, which the values of all columns share."""

    named = 0

    def __init__(self, first: int, columns: list[str], bits: int) -> None:
        self.first, self.columns, self.bits = first, columns, bits
        self.n_features = first + (1 << bits if columns else 0)

    def features(self, column: str, words: Any) -> Int64Array:
        """The features of distinct words."""
        return (fnv1a(f"{column}=".encode(), words) & np.uint64((1 << self.bits) - 1)).astype(np.int64) + self.first

    def names(self) -> list[str]:
        return []

    def meta(self) -> dict[str, Any]:
        return {"hash": {"bits": self.bits, "columns": self.columns, "first": self.first}}


Rule: TypeAlias = "OneHot | Hash"


def fnv1a(start: bytes, words: Any) -> npt.NDArray[np.uint64]:
    """FNV-1a of 64 bits of each of `words`, a large_string array, after the bytes `start`: for each byte b

        h = (h ^ b) * prime mod 2^64
    """
    state = FNV_OFFSET
    for byte in start:
        state = (state ^ byte) * FNV_PRIME % (1 << 64)
    _, ends, text = words.buffers()
    ends = np.frombuffer(ends, np.int64, len(words) + 1, 8 * words.offset)
    text = np.frombuffer(text or b"", np.uint8)
    # Byte j of all words that have one: those are the first, where long words come first.
    order = np.argsort(ends[:-1] - ends[1:], kind="stable")
    begins, lengths = ends[:-1][order], np.diff(ends)[order]
    hashes = np.full(len(words), state, np.uint64)
    for j in range(lengths.max(initial=0)):
        n = np.searchsorted(-lengths, -j)
        hashes[:n] = (hashes[:n] ^ text[begins[:n] + j]) * np.uint64(FNV_PRIME)
    found = np.empty_like(hashes)
    found[order] = hashes
    return found


class Columns:
    """The columns of a source, and its rows in batches of at most CELLS cells.

    Attributes
    ----------
    name : str
        The source's, in errors.
    kinds : dict
        {column: NUMBERS, WORDS, or None for what is neither}
    once : bool
        Whether its rows can be read once only.
    """

    def __init__(self, source: Any, threads: int) -> None:
        self.threads = threads
        self.table: Any = None
        self.files: list[str]
        self.once = isinstance(source, pa.RecordBatchReader)
        if isinstance(source, (str, os.PathLike)):
            self.name = os.fspath(source)
            self.files, self.schema = files_of(self.name)
        else:
            self.name = f"the {type(source).__name__}"
            if not isinstance(source, (pa.Table, pa.RecordBatchReader, dataset.Dataset)):
                raise params.refusal("source", self.name, "a Table, RecordBatchReader or Dataset of pyarrow's")
            self.table, self.schema = source, source.schema
        self.kinds: dict[str, str | None] = {}
        for field in self.schema:
            if field.name in self.kinds:
                raise self.fault(field.name, "stands there twice: rename one")
            self.kinds[field.name] = kind_of(field.type)

    def type_of(self, column: str) -> Any:
        return self.schema.field(column).type

    def fault(self, column: str, words: str) -> DataError:
        return DataError(self.name, 0, 0, f"column {column!r} {words}")

    @contextmanager
    def naming(self, column: str) -> Iterator[None]:
        """What pyarrow finds wrong within it is wrong with a column."""
        try:
            yield
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise self.fault(column, f"of {self.type_of(column)}: {error}") from error

    def require(self, columns: Iterable[str]) -> None:
        for column in columns:
            if column not in self.kinds:
                raise missing(self.name, list(self.kinds), column, line=0)

    def state(self, label: str, categories: Sequence[str], leave_out: Sequence[str]) -> None:
        """Take whole numbers of some columns for words, and leave others out."""
        named = (label, *categories, *leave_out)
        for column in named:
            if named.count(column) > 1:
                raise self.fault(column, "is named twice: a column is that of the labels, a category, or left out")
        for column in categories:
            if self.kinds[column] == NUMBERS and not pa.types.is_floating(self.type_of(column)):
                self.kinds[column] = WORDS
            elif self.kinds[column] == NUMBERS:
                raise self.fault(column, f"holds {self.type_of(column)}: cast it to integers or strings, as words of "
                                 "floats are many")
        for column in leave_out:
            del self.kinds[column]

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches of some columns, in the order of the rows."""
        size = max(1, CELLS // max(1, len(columns)))
        with reading(self.name):
            for batch in self._read(columns, size):
                for start in range(0, batch.num_rows, size):
                    yield batch.slice(start, size)

    def _read(self, columns: Sequence[str], size: int) -> Iterator[Any]:
        """Record batches as they come, with little read ahead: that is held in memory."""
        use_threads = self.threads != 1
        if self.table is None:
            for path in self.files:
                with parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
                    yield from file.iter_batches(size, columns=columns, use_threads=use_threads)
        elif self.once:
            yield from (batch.select(columns) for batch in self.table)
        elif isinstance(self.table, pa.Table):
            yield from self.table.select(columns).to_batches()
        else:
            yield from self.table.to_batches(columns=columns, batch_size=size, batch_readahead=1, fragment_readahead=1,
                                             use_threads=use_threads)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """What pyarrow finds wrong within it is wrong with a source: of what is damaged it says OSError too."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise DataError(name, 0, 0, f"it cannot be read as Parquet or Arrow: {error}") from error


def files_of(path: str) -> tuple[list[str], Any]:
    """The Parquet files of a path and their schema; DataError unless they have one."""
    files = layout.files_in(path)
    schemas: list[Any] = []
    for file in files:
        os.stat(file)
        with reading(file):
            schemas.append(parquet.read_schema(file))
        # By the first file's names columns would be missed that it does not have.
        if not schemas[-1].equals(schemas[0]):
            raise DataError(file, 0, 0, f"its columns, or their types, are not those of {files[0]}: write the files "
                            "with one schema")
    return files, schemas[0]


def cells_in(path: str, column: str) -> tuple[str, ...]:
    """The cells of a column of a file, or a folder of Parquet, as text; null is none."""
    with reading(path):
        cells = [cell for file in files_of(path)[0]
                 for cell in parquet.read_table(file, columns=[column]).column(column).to_pylist()]
    return tuple("" if cell is None else str(cell) for cell in cells)


def kind_of(dtype: Any) -> str | None:
    """NUMBERS, WORDS, or None for what is neither."""
    types = pa.types
    if types.is_integer(dtype) or types.is_floating(dtype) or types.is_boolean(dtype):
        return NUMBERS
    value = dtype.value_type if types.is_dictionary(dtype) else dtype
    if types.is_string(value) or types.is_large_string(value):
        return WORDS
    return WORDS if value is not dtype and (types.is_integer(value) or types.is_boolean(value)) else None


def pairs(table: Columns, label: str | None, numeric: list[str], rule: Rule, dtype: np.dtype[Any],
          progress: Progress | None, unknown: Unknown | None) -> Iterator[tuple[CSR, AnyArray | None]]:
    """Yield (CSR, labels, or None without a column of them) of each batch; progress is told the bytes in memory that
    are done."""
    row = done = 0
    next_call = 0.0
    for batch in table.batches([*([] if label is None else [label]), *numeric, *rule.columns]):
        X = features_of(batch, table, numeric, rule, dtype, row, unknown)
        yield X, None if label is None else labels_in(batch.column(label), table, label, row)
        row, done = row + batch.num_rows, done + batch.nbytes
        if progress is not None and time.monotonic() >= next_call:
            progress(done, None, row)
            next_call = time.monotonic() + 0.1
    if progress is not None:
        progress(done, None, row)


def features_of(batch: Any, table: Columns, numeric: list[str], rule: Rule, dtype: np.dtype[Any], row: int,
                unknown: Unknown | None) -> CSR:
    """The CSR of a batch whose first row has the number `row`."""
    m = batch.num_rows
    values, places = np.empty((m, len(numeric)), dtype), np.empty((m, len(rule.columns)), np.int32)
    for j, column in enumerate(numeric):
        with table.naming(column), np.errstate(over="ignore"):
            values[:, j] = batch.column(column).cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(~np.isfinite(values[:, j]))
        if len(wrong):
            raise table.fault(column, f"row {row + wrong[0]} is {values[wrong[0], j]}: numbers must be finite; null is "
                              "0")
    for j, column in enumerate(rule.columns):
        with table.naming(column):
            words = words_of(batch.column(column))
            # A null's index is -1: the last of the features.
            features = np.append(rule.features(column, words.dictionary), -1)
        found = words.indices.fill_null(-1).to_numpy()
        places[:, j] = features[found]
        if unknown is not None and (new := features[:-1] < 0).any():
            count, first = int(new[found[found >= 0]].sum()), int(new.argmax())
            note_unknown(unknown, column, count, words.dictionary[first].as_py())
    return csr_of(values, places, rule.n_features)


def words_of(column: Any) -> Any:
    """A column of words by its distinct ones: a DictionaryArray of large_string, in the order of first appearance."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_string()).dictionary_encode()


def labels_in(column: Any, table: Columns, label: str, row: int) -> AnyArray:
    """The labels of a batch."""
    if column.null_count:
        raise table.fault(label, f"row {row + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))} is null:"
                          " each row needs a label")
    if table.kinds[label] is None:
        raise table.fault(label, f"holds {table.type_of(label)}: labels must be all numbers or all strings")
    with table.naming(label):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        words = table.kinds[label] == WORDS and column.to_pylist()
        found = labels_of(words or column.to_numpy(zero_copy_only=False), f"column {label!r}")
        require_words(np.unique(found).tolist(), f"column {label!r}")
    return found
