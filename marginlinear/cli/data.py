"""Reading data files for the commands."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from marginlinear import params
from marginlinear.cli.output import Failure, opening, warn
from marginlinear.data.reading import separator_of
from marginlinear.errors import DataError
from marginlinear.options import ZERO_BASED, UsageError
from marginlinear.params import COLUMNS, Param
from marginlinear.threads import default_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from marginlinear.cli.output import StatusLine
    from marginlinear.data.columns import TableRule, Unknown
    from marginlinear.model import Model
    from marginlinear.options import CommandLine
    from marginlinear.store import Store

LIKE = Param("like", str, None, "of Parquet: a store that was made of Parquet, as that of the training set, by whose "
             "rule the columns become features", metavar="STORE")
# What the commands that predict take of tables.
OF_TABLES = (LIKE._replace(help=f"{LIKE.help} (default: by that which the model keeps)"),
             params.LABEL._replace(default=None, help=f"{params.LABEL.help} (default: that of the training set)"))
OF_NAMES = "it is for a file whose name ends in .csv, .tsv or .parquet, or a folder of Parquet"
LISTED = 20  # labels that a line names at most
BLOCK = 1 << 20  # bytes of a file that are worked on at once: what NumPy's calls cost is little beside them


def read_data(path: str, status: StatusLine, *, narrow: bool = False, categories: Sequence[str] = (),
              leave_out: Sequence[str] = (), keep: Sequence[str] = (), categorical: str | None = None,
              hash_bits: int | None = None, model: Model | None = None, like: str | None = None,
              label: str | None = None, unlabelled: bool = False, **options: Any) -> Any:
    """What `read_libsvm` returns for `path`, with progress on the status line; of a store, the Store.

    Of a table what columns become is said by its values of params, `like` a store, or as `model` keeps it; columns to
    `keep` are no features, and their cells are in `left_out` of what is returned; `unlabelled` is whether it may be
    without the column of the labels, which are None then.
    """
    progress = progress_of(f"reading {path}", status)
    if is_store(path):
        return store_for(path, model, options)
    if not is_table(path):
        from marginlinear.libsvm import read_libsvm

        with read_as_text(model), opening("open input file", path):
            return read_libsvm(path, progress=progress, narrow=narrow, **options)
    from marginlinear.data.columns import TableData, TableRule, table_rows

    rule = None if model is None and like is None else rule_for(path, model, like)
    require_one_label(path, options)
    leave_out = (*leave_out, *(name for name in keep if name not in leave_out))
    label, dtype = label_for(label, rule), options.get("dtype", "float64")
    unknown: Unknown = {}
    found: Any
    with opening("open input file", path):
        if not is_parquet(path):
            found = table_rows(path, label, categories, leave_out, rule, text_labels=options.get("text_labels"),
                               dtype=dtype, narrow=narrow, progress=progress, unknown=unknown, unlabelled=unlabelled)
        else:
            from marginlinear.store.arrow import cells_in, encoded

            columns = {"label": label, "categorical": categorical, "hash_bits": hash_bits}
            pairs, meta = encoded(path, columns, rule, dtype, options.get("threads") or default_threads(), progress,
                                  categories=categories, leave_out=leave_out, unknown=unknown,
                                  unlabelled=unlabelled)
            if meta["features"] is None:
                raise Failure(f"{path}: its words are too many for a feature each: give {params.CATEGORICAL.flag} hash")
            found = TableData.of(list(pairs), path, rule or TableRule.of_meta(meta), narrow)
            require_numbers(path, label, found.labels, model)
            found.left_out = {name: cells_in(path, name) for name in keep}
    warn_of_words(unknown)
    return found


def is_store(path: str) -> bool:
    return os.path.isfile(os.path.join(path, "meta.json"))


def store_for(path: str, model: Model | None, options: Mapping[str, Any]) -> Store:
    """The Store of a path, of which the model can predict all that is there."""
    from marginlinear.store import Store

    found = Store(path)
    if model is not None:
        require_one_label(path, options)
        require_numbers(path, None, found.y, model)
        try:
            model.require_table(found.table)
        except ValueError as error:
            raise Failure(f"{path}: {error}") from None
    return found


def is_parquet(path: str) -> bool:
    """Whether a path is Parquet, a file by its name or a folder by one in it."""
    if is_store(path):
        return False
    return path.endswith(".parquet") or (
        os.path.isdir(path) and any(name.endswith(".parquet") for name in os.listdir(path)))


def is_table(path: str) -> bool:
    """Whether a path is CSV, TSV or Parquet: what has columns with names."""
    return not is_store(path) and (separator_of(path) is not None or is_parquet(path))


def names_of_columns(path: str) -> list[str]:
    """Of a table."""
    if not is_parquet(path):
        from marginlinear.data.columns import columns_of

        return columns_of(path, ())
    from marginlinear.store.arrow import Columns

    return list(Columns(path, 1).kinds)


def names_in(text: str | None) -> tuple[str, ...]:
    """Names with commas between, in double quotes where they have some."""
    import csv

    rows = csv.reader([] if text is None else [text], skipinitialspace=True)
    return tuple(name.strip() for row in rows for name in row if name.strip())


def names_given(line: CommandLine, param: Param) -> tuple[str, ...]:
    """Those of all times that an option is given."""
    return tuple(name for text in line.values(param) for name in names_in(text))


def table_options(line: CommandLine, path: str) -> dict[str, Any]:
    """What is given of OF_TABLES for a data file that is predicted; UsageError where they are for another kind."""
    given = {param.name: line.value(param) for param in OF_TABLES if line.given(param)}
    if is_table(path):
        refuse_with_tables(line, path, (ZERO_BASED,))
    elif given:
        flag = next(param.flag for param in OF_TABLES if param.name in given)
        raise UsageError(f"{flag} is of no use with {path}: {OF_NAMES}")
    if separator_of(path) and LIKE.name in given:
        raise UsageError(f"{LIKE.flag} is of no use with {path}: it is for Parquet")
    return given


def refuse_with_tables(line: CommandLine, path: str, options: Iterable[Param]) -> None:
    """UsageError where an option is given that is for LIBSVM's text."""
    for param in options:
        if line.given(param):
            raise UsageError(f"{param.flag} is for LIBSVM's text: the columns of {path} have names, leave it out")


def rule_for(path: str, model: Model | None, like: str | None) -> TableRule:
    """The rule by which the columns of a table become the features of a model, or of the store `like`."""
    if like is not None:
        from marginlinear.store import Store
        from marginlinear.store.writer import rule_in

        return rule_in(Store(like))
    rule = None if model is None else model.table
    if rule is None:
        raise Failure(f"{path}: the model does not know columns by their names: it is one of LIBSVM's text, or of "
                      f"arrays. Train it on a table, or give LIBSVM's text, or of Parquet {LIKE.flag} STORE")
    return rule


def require_one_label(path: str, options: Mapping[str, Any]) -> None:
    if options.get("multilabel"):
        what = "store" if is_store(path) else "table"
        raise Failure(f"{path}: a {what} has one label a row, and the model is multi-label: give LIBSVM's text")


def require_numbers(path: str, label: str | None, labels: Any, model: Model | None) -> None:
    """DataError for words where a regression is to be measured; label: the column that they are of, None of a store."""
    if model is not None and model.classes is None and labels is not None and labels.dtype.kind == "U":
        raise DataError(path, 0, 0, "its labels are words, and the model is a regression: give a store of numbers"
                        if label is None else f"column {label!r} holds words, and the model is a regression: name a "
                        "column of numbers by --label")


def label_for(label: str | None, rule: TableRule | None) -> str:
    """The column of the labels: that which is given, or that of the training set."""
    of_rule = None if rule is None else rule.label
    found: str = label or of_rule or params.LABEL.default
    return found


def warn_of_words(unknown: Unknown) -> None:
    """Say what words are new, and so are no features."""
    from marginlinear.data.reading import as_written
    from marginlinear.problem import counted

    for column, (count, word) in unknown.items():
        warn(f"{counted(count, 'cell')} of column {as_written(column)}: words that the training set did not have "
             f"({as_written(str(word))} is the first) are no features")


def read_store(path: str, folder: str | None, status: StatusLine, like: str | None = None, **options: Any) -> Store:
    """The Store `path`, or that of the file `path` in `folder`, which is made unless it is there; of Parquet `like` the
    store of this path."""
    from marginlinear.store import Store

    with opening("open input file", path):
        if folder is None:
            return Store(path)
        if path == "-":
            raise Failure("standard input: a store has the name of its file: give one, or --store no folder")
        place = os.path.join(folder, os.path.basename(os.path.normpath(path)) + ".store")
        other = None if like is None else Store(like)
        if os.path.exists(place):
            found = Store(place)
            found.require_source(path, **{name: options[name] for name in ("zero_based", "dtype", "text_labels")})
            if is_parquet(path):
                found.require_columns({p.name: options.get(p.name) for p in COLUMNS}, other)
            return found
        os.makedirs(folder, exist_ok=True)
        return Store.write(path, place, progress=progress_of(f"writing {place}", status), like=other, **options)


def read_blocks(path: str, what: str, status: StatusLine, *, model: Model | None = None, like: str | None = None,
                label: str | None = None, **options: Any) -> Iterator[Any]:
    """What `libsvm_blocks` yields for `path`, with progress on the status line: `what` is done. The same of a store,
    and of a table by the rule of `model`, or of the store `like`: its labels are None where the column that the
    training set had for them is missing."""
    progress = progress_of(what, status)
    if is_store(path):
        yield from store_for(path, model, options).parts()
        return
    if not is_table(path):
        from marginlinear.libsvm import libsvm_blocks

        with read_as_text(model), opening("open input file", path):
            yield from libsvm_blocks(path, progress=progress, _block_size=BLOCK, **options)
        return
    from marginlinear.data.columns import TableData, Unknown, table_blocks

    rule, unknown = rule_for(path, model, like), Unknown()
    require_one_label(path, options)
    unlabelled = label is None
    label = label_for(label, rule)
    with opening("open input file", path):
        if not is_parquet(path):
            yield from table_blocks(path, label, rule, text_labels=bool(options.get("text_labels")), progress=progress,
                                    unknown=unknown, unlabelled=unlabelled)
        else:
            from marginlinear.store.arrow import encoded

            pairs, _ = encoded(path, {"label": label}, rule, "float64", options.get("threads") or default_threads(),
                               progress, unknown=unknown, unlabelled=unlabelled)
            for pair in pairs:
                require_numbers(path, label, pair[1], model)
                yield TableData.of([pair], path, rule)
    warn_of_words(unknown)


@contextmanager
def read_as_text(model: Model | None) -> Iterator[None]:
    """An error of LIBSVM's text says how a table would have been known, where the model is of one."""
    try:
        yield
    except DataError as error:
        if model is None or model.table is None:
            raise
        raise DataError(error.path, error.line, error.column, error.reason, "the model is of a table, and this was "
                        "read as LIBSVM's text: a table's file has a name that ends in .csv, .tsv or "
                        ".parquet") from None


@contextmanager
def located(data: Any) -> Iterator[None]:
    """A MemoryError of the block as a DataError where the largest index of `data` stands, if that asks for the most.

    It does where there are more features than values: arrays with an entry a feature are then larger than the data.
    """
    try:
        yield
    except MemoryError as error:
        if data.n_features <= len(data.indices) or not hasattr(data, "largest"):
            raise
        reason = f"this index makes {data.n_features} features, more than there is memory for: {error}"
        path, line, column = data.largest
        raise DataError(path, line, column, reason) from error


def progress_of(what: str, status: StatusLine) -> Callable[[int, int | None, int], None]:
    def progress(done: int, total: int | None, rows: int) -> None:
        status.show(what, done, total, "B", f"{rows:,} rows")

    return progress


def read_model(path: str, multilabel: bool = False) -> Model:
    """The model of a file; Failure for one that the rows of a data file cannot be given to, and for a multi-label one
    unless `multilabel`."""
    from marginlinear.modelfile import load_model

    with opening("open model file", path):
        model = load_model(path)
    kernel = getattr(model, "kernel", None)
    if kernel is not None and kernel.kind == "precomputed":
        raise Failure(f"{path}: the kernel is precomputed, a data file has no features for it: use the model in Python")
    if model.multilabel and not multilabel:
        raise Failure(f"{path}: the model is multi-label, rows have no one class and no margin: margin-predict tells "
                      "how well it predicts")
    return model


def count_extra(data: Any, model: Model) -> int:
    """Values that a linear model leaves out; to a kernel all features matter, as they are part of a distance."""
    from marginlinear.data.arrays import is_stored

    n = model.n_features
    if getattr(model, "kernel", None) is not None or data.n_features <= n:
        return 0
    return sum(int((part.indices >= n).sum()) for part in (data.parts() if is_stored(data) else [data]))


def warn_of_extra(extra: int, n_features: int) -> None:
    """Say that `extra` values of features above the model's n_features are left out."""
    if extra:
        warn(f"{extra} values of features above {n_features}, the model's last, are left out")


def warn_of_unknown(labels: Iterable[Any], count: float, what: str) -> None:
    """Say that `count` rows have `labels` that the model does not know, and `what` becomes of them."""
    warn(f"{number(count)} rows have a label that the model does not know ({few(labels)}): {what}")


def few(labels: Iterable[Any]) -> str:
    """The labels as in a LIBSVM file; of many, the first."""
    from marginlinear.modelfile.text import label_text

    words = [label_text(label) for label in labels]
    return ", ".join(words[:LISTED]) + (f" and {len(words) - LISTED} others" if len(words) > LISTED else "")


def number(count: float) -> str:
    """A count of rows, or a sum of their weights, as text."""
    return str(count) if isinstance(count, int) else f"{count:.6g}"


def read_names(path: str, n_features: int) -> list[str]:
    """The names of n_features features: UTF-8, one a line."""
    names = []
    with opening("open names file", path), open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                name = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise DataError(path, number, error.start + 1, "not UTF-8: convert the file, as with iconv") from None
            if not name:
                raise DataError(path, number, 1, "an empty line is no name: give one name a feature")
            names.append(name)
    if len(names) != n_features:
        raise DataError(path, min(len(names), n_features) + 1, 1,
                        f"{len(names)} names for the model's {n_features} features: give one a line")
    return names
