"""Reading data files for the commands."""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from marginlinear.cli.output import Failure, opening, warn
from marginlinear.errors import DataError
from marginlinear.options import UsageError
from marginlinear.params import COLUMNS, LABEL, Param

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from marginlinear.cli.output import StatusLine
    from marginlinear.model import Model
    from marginlinear.options import CommandLine
    from marginlinear.store import Store

LIKE = Param("like", str, None, "of Parquet: a store that was made of Parquet, as that of the training set, by whose "
             "rule the columns become features", metavar="STORE")
LISTED = 20  # labels that a line names at most
BLOCK = 1 << 20  # bytes of a file that are worked on at once: what NumPy's calls cost is little beside them


def read_data(path: str, status: StatusLine, like: str | None = None, label: str | None = None, **options: Any) -> Any:
    """What `read_libsvm` returns for `path`, with progress on the status line; of a store, or of Parquet that becomes
    one `like` another, the Store."""
    from marginlinear.libsvm import read_libsvm

    if is_store(path):
        from marginlinear.store import Store

        return Store(path)
    if is_parquet(path):
        return temporary_store(path, status, like, label, options["zero_based"], options["threads"])
    with opening("open input file", path):
        return read_libsvm(path, progress=progress_of(f"reading {path}", status), **options)


def is_store(path: str) -> bool:
    return os.path.isfile(os.path.join(path, "meta.json"))


def is_parquet(path: str) -> bool:
    """Whether a path is Parquet, a file by its name or a folder by one in it."""
    if is_store(path):
        return False
    return path.endswith(".parquet") or (
        os.path.isdir(path) and any(name.endswith(".parquet") for name in os.listdir(path)))


def parquet_options(line: CommandLine, path: str) -> dict[str, str]:
    """What is given of LIKE and LABEL for a data file that is predicted; UsageError where they are for another kind, or
    where Parquet has no store to be like."""
    given = {param.name: line.value(param) for param in (LIKE, LABEL) if line.given(param)}
    if is_parquet(path) and "like" not in given:
        raise UsageError(f"{path}: Parquet becomes the features of the store that the model was trained on: give "
                         f"{LIKE.flag} STORE")
    if given and not is_parquet(path):
        flag = next(param.flag for param in (LIKE, LABEL) if param.name in given)
        raise UsageError(f"{flag} is of no use with {path}: it is for a file whose name ends in .parquet, or a folder "
                         "of such")
    return given


def temporary_store(path: str, status: StatusLine, like: str | None, label: str | None, zero_based: bool,
                    threads: int | None) -> Store:
    """A Store of Parquet, `like` another one, which is on disk for as long as somebody has it."""
    import shutil
    import tempfile
    import weakref

    from marginlinear.store import Store

    if like is None:
        raise Failure(f"{path}: Parquet is read by way of a store: give one, as margin-train --store makes it")
    folder = tempfile.mkdtemp(prefix="marginlinear-")
    try:
        with opening("open input file", path):
            found = Store.write(path, os.path.join(folder, "rows.store"), label=label, like=Store(like),
                                zero_based=zero_based, threads=threads, progress=progress_of(f"reading {path}", status))
    except BaseException:
        shutil.rmtree(folder)
        raise
    weakref.finalize(found, shutil.rmtree, folder)
    return found


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


def read_blocks(path: str, what: str, status: StatusLine, **options: Any) -> Iterator[Any]:
    """What `libsvm_blocks` yields for `path`, with progress on the status line: `what` is done. The same of what
    `read_data` has as a store."""
    from marginlinear.libsvm import libsvm_blocks

    if is_store(path) or is_parquet(path):
        yield from read_data(path, status, **options).parts()
        return
    with opening("open input file", path):
        yield from libsvm_blocks(path, progress=progress_of(what, status), _block_size=BLOCK, **options)


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
        share = f" of {total / 1e6:.1f} MB ({done / total:.0%})" if total else " MB"
        status.show(f"{what}: {rows:,} rows, {done / 1e6:.1f}{share}")

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


def read_weights(path: str, m: int) -> list[float]:
    """The m instance weights of a file: one finite number >= 0 a line."""
    weights = []
    with opening("open weight file", path), open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            text = line.strip()
            try:
                weight = math.nan if b"_" in text else float(text)
            except ValueError:
                weight = math.nan
            if not 0 <= weight < math.inf:
                shown = ascii(text[:40].decode("ascii", "backslashreplace"))
                column = len(line) - len(line.lstrip()) + 1
                reason = f"{shown} is not a weight: give one number in [0, inf) a line"
                raise DataError(path, number, column, reason)
            weights.append(weight)
    if len(weights) != m:
        raise DataError(path, len(weights) + 1, 1, f"{len(weights)} weights for {m} rows: give one a row")
    return weights
