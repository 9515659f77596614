"""margin-subset: some rows of a text file, each class by its share, in a file of their own."""

from __future__ import annotations

import io
import os
import stat
import sys
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from marginlinear import params
from marginlinear.atomic import check_writable, replacing
from marginlinear.cli.command import command
from marginlinear.cli.data import few, is_parquet, is_store, progress_of
from marginlinear.cli.files import require_apart
from marginlinear.cli.output import DONE, Failure, StatusLine, opening, settle_blas, tell
from marginlinear.data.reading import PACKED, separator_of
from marginlinear.errors import DataError
from marginlinear.options import MULTILABEL, QUIET, TEXT_LABELS, ZERO_BASED, CommandLine, UsageError
from marginlinear.params import Param

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO, Any

    from marginlinear._typing import AnyArray, BoolArray, Int64Array

PROGRAM = "margin-subset"
RANDOM = Param("random", bool, False, "any rows, whatever their labels are (default where labels are numbers that are "
               "not all whole)")
OPTIONS = (RANDOM, params.SEED, ZERO_BASED, TEXT_LABELS, MULTILABEL,
           params.LABEL._replace(help="of CSV and TSV: the column of the labels"), QUIET)
ROWS = Param("rows", int, None, "", "[1, inf)")
BUFFER = 1 << 18  # bytes read at once
SHARE = Param("rows", float, None, "", "(0, 1)")

USAGE = """\
usage: margin-subset [options] data_file rows [subset_file [rest_file]]

Write so many rows of a data file to subset_file, and the others to rest_file.

The data_file is LIBSVM text, or a table (.csv, .tsv); .gz, .bz2 and .xz are unpacked. It is read twice, and not held.
rows is a number, or a share of the rows such as 0.1. Without a subset_file it is standard output.

Of each class there are as many as its share of the rows, and at least one where that can be; of rows of several labels
the rarest one counts. Lines are copied as they are, in their order, without comments and blank lines; both files of a
table have its header.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return command(PROGRAM, argv, OPTIONS, USAGE, work)


def work(line: CommandLine) -> int:
    Work(line).run()
    return DONE


class Work:
    """One run of the command; what can be wrong with the command line is found before any file is read."""

    def __init__(self, line: CommandLine) -> None:
        if not 2 <= len(line.files) <= 4:
            raise UsageError("the data_file or the number of rows is missing" if len(line.files) < 2 else
                             f"too many files: {' '.join(line.files)}")
        self.path, rows, *outputs = line.files
        try:
            self.rows: int | float = SHARE.parse(rows) if "." in rows or "e" in rows else ROWS.parse(rows)
        except ValueError:
            raise UsageError(f"rows {rows}: give a number of rows, or a share of them such as 0.1") from None
        if self.path == "-":
            raise UsageError("standard input can be read once only: give the name of a file")
        self.subset = outputs[0] if outputs else "-"
        self.rest = outputs[1] if len(outputs) == 2 else None
        for name, path in (("subset_file", self.subset), ("rest_file", self.rest)):
            if path is not None and path.endswith(PACKED):
                raise UsageError(f"{name} {path}: what is written is not packed: give a name that does not say so")
        require_apart([("data_file", self.path)], [("subset_file", self.subset), ("rest_file", self.rest)])
        self.table = separator_of(self.path) is not None
        for param in (ZERO_BASED, TEXT_LABELS, MULTILABEL) if self.table else (params.LABEL,):
            if line.given(param):
                kind = "LIBSVM's text" if self.table else "a file whose name ends in .csv or .tsv"
                raise UsageError(f"{param.flag} is of no use with {self.path}: it is for {kind}")
        self.reading: dict[str, Any] = {param.name: line.value(param) or None for param in (TEXT_LABELS, MULTILABEL)}
        self.zero_based, self.label = line.value(ZERO_BASED), line.value(params.LABEL)
        self.random, self.seed, self.quiet = line.value(RANDOM), line.value(params.SEED), line.value(QUIET)

    def run(self) -> None:
        settle_blas()
        for path in filter(None, (self.subset, self.rest)):
            with opening("open output file", path):
                check_writable(path)
        if is_store(self.path) or is_parquet(self.path):
            raise Failure(f"{self.path}: lines of text are copied: give the file that it was made of")
        with opening("open input file", self.path):
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise Failure(f"{self.path}: it is no plain file and can be read once only: give the name of a file")
        with StatusLine(self.quiet) as status, opening("open input file", self.path):
            before = self._state()
            begins, strata = (self._rows_of_table if self.table else self._rows_of_text)(status)
            kept = self._chosen(strata)
            status.wipe()
        with opening("write", " or ".join(filter(None, (self.subset, self.rest)))), ExitStack() as stack:
            files = [None if path is None else stack.enter_context(replacing(path))
                     for path in (self.rest, self.subset)]
            self._copy(begins.tolist(), kept.tolist(), files)
            if self._state() != before:
                raise DataError(self.path, 0, 0, "the file was changed while it was read: read it again")
        if not self.quiet:
            (tell if self.subset == "-" else print)(f"{kept.sum():,} of {len(kept):,} rows{self._told(strata, kept)}")

    def _state(self) -> tuple[int, int]:
        """What tells the file from what it becomes when it is changed."""
        status = os.stat(self.path)
        return status.st_size, status.st_mtime_ns

    def _rows_of_text(self, status: StatusLine) -> tuple[Int64Array, AnyArray]:
        """(The line of each row of LIBSVM's text, what is to be spread evenly)."""
        import numpy as np

        from marginlinear.data.columns import raised
        from marginlinear.libsvm.reader import good_blocks

        lines, labels = [], []
        for rows, numbers in good_blocks(self.path, raised, progress=progress_of(f"reading {self.path}", status),
                                         **self.reading):
            if not self.zero_based and len(rows.indices) and rows.indices.min() == 0:
                row = int(np.searchsorted(rows.indptr, np.flatnonzero(rows.indices == 0)[0], side="right")) - 1
                raise DataError(self.path, int(numbers[row]), 1, "index 0, but indices count from 1; if those of this "
                                "file count from 0, say --zero-based")
            lines.append(numbers)
            labels.append(rows.labels)
        if not lines:
            raise DataError(self.path, 0, 0, "the file has no rows")
        begins = np.concatenate(lines)
        if self.reading["multilabel"] or hasattr(labels[0], "patterns"):
            from marginlinear.data.label_sets import label_sets_of
            from marginlinear.modelfile.text import label_text

            # Sets: tuples of one length might be the rows of a table.
            sets, codes = label_sets_of([set(one) for part in labels for one in part.tolist()]).patterns()
            # The rarest one of a row, -1 where it has none.
            return begins, np.array([*map(label_text, sets.classes.tolist()), "none"])[sets.rarest(codes)]
        return begins, np.concatenate(labels)

    def _rows_of_table(self, status: StatusLine) -> tuple[Int64Array, AnyArray]:
        """The same of a table, where a row begins, whose header is no row."""
        import numpy as np

        from marginlinear.data.columns import checked_header, rows_of, uneven
        from marginlinear.libsvm.reader import opened

        begins, labels = [], []
        with opened(self.path) as (_, readinto, size), closing(
                rows_of(self.path, readinto, size, progress_of(f"reading {self.path}", status))) as lines:
            header = checked_header(self.path, next(lines, (0, []))[1], () if self.random else (self.label,),
                                    f"name that of the labels by {params.LABEL.flag}, or give {RANDOM.flag}")
            at = 0 if self.random else header.index(self.label)
            for number, row in lines:
                if len(row) != len(header):
                    raise uneven(self.path, number, row, header)
                begins.append(number)
                labels.append(row[at].strip())
        if not begins:
            raise DataError(self.path, 2, 1, "there are no rows below the header")
        words = np.array(labels)
        try:
            numbers = words.astype(np.float64)
            return np.array(begins), words if (numbers == np.trunc(numbers)).all() else numbers
        except ValueError:
            return np.array(begins), words

    def _chosen(self, strata: AnyArray) -> BoolArray:
        """Which rows go to the subset."""
        import numpy as np

        from marginlinear.data.folds import chosen

        m = len(strata)
        count = self.rows if isinstance(self.rows, int) else max(1, round(self.rows * m))
        if count > m:
            raise Failure(f"{self.path}: it has {m} rows, and {count} are to be taken: give a number up to that")
        return chosen(strata if self._by_class(strata) else np.zeros(m), count, self.seed)

    def _by_class(self, strata: AnyArray) -> bool:
        return not self.random and strata.dtype.kind != "f"

    def _told(self, strata: AnyArray, kept: BoolArray) -> str:
        """How many rows of each class are in the subset."""
        import numpy as np

        if not self._by_class(strata):
            return ""
        labels, counts = np.unique(strata[kept], return_counts=True)
        return f": {few(f'{label} ({count:,})' for label, count in zip(labels.tolist(), counts.tolist(), strict=True))}"

    def _copy(self, begins: list[int], kept: list[bool], files: list[IO[bytes] | None]) -> None:
        """Each row to the file of those that are kept, or of the others; what stands before the first row to both."""
        at = -1
        for number, text in enumerate(self._lines(), 1):
            new = at + 1 < len(begins) and begins[at + 1] == number
            at += new
            if not (new or self.table):
                continue  # a comment, or a blank line
            for file in files if at < 0 else [files[kept[at]]]:
                if file is not None:
                    file.write(text)

    def _lines(self) -> Iterator[bytes]:
        """The lines of the file, as the passes before have counted them."""
        from marginlinear.libsvm.reader import Replayed, decompressed, first_bytes, opened

        with opened(self.path) as (_, readinto, _size):
            readinto, rest = decompressed(self.path, first_bytes(readinto), readinto)
            raw: Any = io.BufferedReader(Replayed(rest, readinto), BUFFER)
            if not self.table:
                yield from raw
                return
            # Cells may end their lines otherwise than by a newline.
            for text in io.TextIOWrapper(raw, encoding="utf-8", newline=""):
                yield text.encode()


if __name__ == "__main__":
    sys.exit(main())
