"""margin-scale: the features of a LIBSVM file to a range, or its rows to length 1; svm-scale's options and files."""

from __future__ import annotations

import math
import os
import re
import stat
import sys
from array import array
from typing import TYPE_CHECKING

from marginlinear.atomic import check_writable, replacing
from marginlinear.cli.command import command
from marginlinear.cli.files import require_apart
from marginlinear.cli.output import DONE, Failure, StatusLine, opening, settle_blas, warn
from marginlinear.data.reading import NATURAL, NUMBER, shown
from marginlinear.errors import DataError
from marginlinear.options import MULTILABEL, QUIET, THREADS, ZERO_BASED, CommandLine, UsageError
from marginlinear.params import Param

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, BinaryIO

    from marginlinear._typing import IntArray
    from marginlinear.data.arrays import CSR
    from marginlinear.data.scaling import Scaling

PROGRAM = "margin-scale"
LOWER = Param("lower", float, -1.0, "what the least value of each feature becomes", "(-inf, inf)", letter="l")
UPPER = Param("upper", float, 1.0, "what the largest value of each feature becomes", "(-inf, inf)", letter="u")
LABELS = Param("labels", str, None, "scale the labels too, to a range of their own (default: they stay the words "
               "that they are)", letter="y", metavar="LOWER UPPER")
SAVE = Param("save", str, None, "write the ranges to FILE, as svm-scale does", letter="s", metavar="FILE")
RESTORE = Param("restore", str, None, "take the ranges from FILE, which -s or svm-scale wrote: test data must be "
                "scaled like the training data", letter="r", metavar="FILE")
MAXABS = Param("maxabs", bool, False, "divide each feature by its largest absolute value: zeros stay zeros. What -s "
               "writes is the range from minus that value to it, to -1 and 1")
UNIT = Param("unit", bool, False, "divide each row by its length, in place of scaling features")
OUTPUT = Param("output", str, None, "write the data to FILE (default: to standard output)", letter="o", metavar="FILE")
OPTIONS = (LOWER, UPPER, LABELS, SAVE, RESTORE, MAXABS, UNIT, OUTPUT, ZERO_BASED, MULTILABEL,
           THREADS, QUIET)

USAGE = """\
usage: margin-scale [options] data_file

Scale the features of a LIBSVM text file to a range, or its rows to length 1.

The data_file ('-': standard input; .gz, .bz2 and .xz are unpacked) is read twice, unless -r or --unit tell how to
scale, and held a part at a time. The numbers written are exact: they read back as the same, where svm-scale rounds to
6 digits. A feature with one value, or not in the ranges of -r, is left out.
"""
LAST = 2**31 - 1  # the largest number of a feature
FIX = "give a file that margin-scale -s or svm-scale -s wrote"


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return command(PROGRAM, argv, OPTIONS, USAGE, work)


def work(line: CommandLine) -> int:
    Work(line).run()
    return DONE


class Work:
    """One run of the command; what can be wrong with the command line is found before any file is read."""

    def __init__(self, line: CommandLine) -> None:
        self.labels = _label_range(line)
        if len(line.files) != 1:
            raise UsageError("one data_file is needed" + (f", not {' '.join(line.files)}" if line.files else ""))
        self.path = line.files[0]
        self.lower, self.upper = line.value(LOWER), line.value(UPPER)
        if not self.lower < self.upper:
            raise UsageError(f"inconsistent lower/upper specification: {self.lower:g} is not below {self.upper:g}")
        self.save, self.restore = line.value(SAVE), line.value(RESTORE)
        self.maxabs, self.unit = line.value(MAXABS), line.value(UNIT)
        for option in (LOWER, UPPER, LABELS, SAVE, RESTORE, MAXABS):
            others = {LOWER: (MAXABS, UNIT), UPPER: (MAXABS, UNIT), LABELS: (UNIT,), SAVE: (RESTORE, UNIT),
                      RESTORE: (MAXABS, UNIT), MAXABS: (UNIT,)}[option]
            for other in others:
                if line.given(option) and line.given(other):
                    raise UsageError(f"cannot use {line.flag(option)} and {line.flag(other)} simultaneously")
        self.ignored = [line.flag(option) for option in (LOWER, UPPER, LABELS)
                        if self.restore and line.given(option)]
        self.twice = not (self.restore or self.unit)
        if self.twice and self.path == "-":
            raise UsageError("standard input can be read once only, which -r FILE or --unit can do with: give the "
                             "name of a file")
        self.multilabel = line.value(MULTILABEL)
        if self.multilabel and self.labels:
            raise UsageError(f"cannot use {line.flag(LABELS)} and {MULTILABEL.flag} simultaneously: several labels are "
                             "no numbers to be scaled")
        self.output = line.value(OUTPUT)
        require_apart([("data_file", self.path), (RESTORE.flag, self.restore)],
                      [(OUTPUT.flag, self.output or "-"), (SAVE.flag, self.save)])
        self.base = 0 if line.value(ZERO_BASED) else 1
        self.threads = line.value(THREADS)
        self.quiet = line.value(QUIET)
        self.status = StatusLine(self.quiet)

    def run(self) -> None:
        settle_blas()
        for path in (self.output, self.save):
            if path:
                with opening("open output file", path):
                    check_writable(path)
        if self.ignored:
            warn(f"{' '.join(self.ignored)} are left out: the ranges are those of {self.restore}")
        with self.status:
            scaling, label_scaling, features = self._scaling()
            if self.save:
                with opening("save ranges to file", self.save), replacing(self.save) as stream:
                    stream.writelines(line.encode("ascii") for line in ranges_lines(scaling, label_scaling, self.base))
            with replacing(self.output or "-") as stream:
                self._write(scaling, label_scaling, features, stream.write)

    def _scaling(self) -> tuple[Scaling, Scaling | None, IntArray | None]:
        """(Scaling of the features, that of the labels or None, the features that it is of; None: all of the data)."""
        from marginlinear.cli.data import is_store, is_table, located
        from marginlinear.data.scaling import RANGE, Extremes, Scaling, maxabs
        from marginlinear.data.scaling import UNIT as ROWS

        if is_table(self.path):
            raise Failure(f"{self.path}: a table is scaled as it is trained on, and names stay in the model: give "
                          "margin-train --scale")
        if is_store(self.path):
            raise Failure(f"{self.path}: a store is scaled as it is trained on: give margin-train --scale, or the file "
                          "that the store was made of")
        if self.unit:
            return Scaling(ROWS), None, None
        if self.restore:
            return read_ranges(self.restore, self.base)
        with opening("open input file", self.path):
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise Failure(f"{self.path}: it is no plain file and can be read once only, which -r FILE or --unit "
                              "can do with: give the name of a file")
        extremes, low, high = Extremes(), math.inf, -math.inf
        for rows in self._blocks("learning ranges", text_labels=not self.labels):
            with located(rows):
                extremes.add(_csr(rows))
            if self.labels:
                low, high = min(low, float(rows.labels.min())), max(high, float(rows.labels.max()))
        # Features are numbered as in the file.
        try:
            least, most = extremes.found()
            numbers = range(self.base, self.base + len(least))
            scaling = (maxabs(least, most, numbers) if self.maxabs else
                       Scaling(RANGE, least, most, self.lower, self.upper, numbers))
        except ValueError as error:
            raise Failure(f"{self.path}: {error}") from None
        return scaling, self.labels and _label_scaling(low, high, *self.labels, self.path), None

    def _write(self, scaling: Scaling, label_scaling: Scaling | None, features: IntArray | None,
               write: Callable[[bytes], object]) -> None:
        import numpy as np

        from marginlinear.libsvm.writer import compressed, rows_text, seen, several_words

        before = after = left_out = 0
        first: float = math.inf
        for rows in self._blocks("scaling", text_labels=label_scaling is None):
            labels: Any
            if label_scaling is None:
                labels = several_words(rows.labels, len(rows.labels)) if self.multilabel else [
                    label.encode() for label in rows.labels.tolist()]
            else:
                labels = label_scaling.image(rows.labels.astype(np.float64), np.zeros(len(rows.labels), dtype=int))
            before += int(np.count_nonzero(rows.data))
            rows = _csr(rows)
            if features is not None:
                rows, others = among(features, rows)
                left_out += len(others)
                if len(others):
                    first = min(first, int(others.min()) + self.base)
            low = 0
            for part in scaling.parts(rows):
                indptr, indices, values = compressed(part, 0, part.shape[0])
                numbers: Any = indices if features is None else features[indices]
                after += int(np.count_nonzero(values))
                words = labels[low : low + part.shape[0]]
                words = seen(words, indptr, values, self.base) if self.multilabel else words
                write(rows_text(indptr, numbers, values, words, self.base))
                low += part.shape[0]
        self.status.wipe()
        if left_out:
            warn(f"{left_out} values of features that {self.restore} does not list, feature {first} the first of them, "
                 "are left out")
        if after > before:
            warn(f"original #nonzeros {before}, new #nonzeros {after}: zeros do not stay zeros; use --maxabs, or -l 0 "
                 "where no value is negative")

    def _blocks(self, what: str, text_labels: bool) -> Iterator[Any]:
        from marginlinear.cli.data import read_blocks

        return read_blocks(self.path, what, self.status, zero_based=self.base == 0, text_labels=text_labels,
                           multilabel=self.multilabel, threads=self.threads)


def _label_range(line: CommandLine) -> tuple[float, float] | None:
    """(lower, upper) of -y, or None."""
    text = line.value(LABELS)
    if text is None:
        return None
    flag, words = line.flag(LABELS), text.split()
    try:
        lower, upper = map(LOWER.parse, words)
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {error}") from None
    if not lower < upper:
        raise UsageError(f"inconsistent {flag} specification: {lower:g} is not below {upper:g}")
    return lower, upper


def _label_scaling(least: float, most: float, lower: float, upper: float, path: str) -> Scaling:
    """The Scaling of labels, as that of one feature."""
    import numpy as np

    from marginlinear.data.scaling import RANGE, Scaling

    if least == most:
        raise Failure(f"{path}: all labels are {least:g}, there is no range of them to be scaled")
    try:
        return Scaling(RANGE, np.array([least]), np.array([most]), lower, upper)
    except ValueError:
        raise Failure(f"{path}: labels from {least:g} to {most:g} cannot be scaled in float64") from None


def _csr(rows: Any) -> CSR:
    from marginlinear.data.arrays import CSR

    return CSR(rows.data, rows.indices, rows.indptr, rows.n_features)


def among(features: IntArray, rows: CSR) -> tuple[CSR, IntArray]:
    """(CSR of the values of `features`, ascending, numbered by their places there; the others of values not 0)."""
    import numpy as np

    from marginlinear.data.arrays import CSR

    places = np.searchsorted(features, rows.indices)
    known = np.append(features, -1)[places] == rows.indices
    ends = np.concatenate(([0], np.cumsum(known)))
    found = CSR(rows.data[known], places[known].astype(np.int32), ends[rows.indptr], len(features))
    return found, rows.indices[~known & (rows.data != 0)]


def ranges_lines(scaling: Any, label_scaling: Any, base: int) -> Iterator[str]:
    """Yield the lines of svm-scale's file of ranges: features whose values differ, %.17g.

    y                   if labels are scaled
    lower upper
    least most
    x
    lower upper
    index least most    a line a feature
    """
    if label_scaling is not None:
        yield (f"y\n{label_scaling.lower:.17g} {label_scaling.upper:.17g}\n"
               f"{label_scaling.least[0]:.17g} {label_scaling.most[0]:.17g}\n")
    yield f"x\n{scaling.lower:.17g} {scaling.upper:.17g}\n"
    for feature in (scaling.least < scaling.most).nonzero()[0]:
        # + 0.0: svm-scale knows no -0.
        yield f"{feature + base} {scaling.least[feature] + 0.0:.17g} {scaling.most[feature] + 0.0:.17g}\n"


def read_ranges(path: str, base: int) -> tuple[Scaling, Scaling | None, IntArray]:
    """(Scaling of the features listed, that of the labels or None, their numbers from 0) of a file of ranges.

    Its features are those of the file, one after the other: the numbers may be large, and are of no matter for the
    memory. DataError names the line and the column of what is wrong in it.
    """
    import numpy as np

    from marginlinear.data.scaling import RANGE, Scaling

    with opening("open range file", path), open(path, "rb") as stream:
        lines = Ranges(stream, path)
        labels = None
        if lines.word() == b"y":
            lines.advance()
            ends, (least, most) = lines.pair(), lines.pair()
            if not least < most:
                raise lines.error(f"labels from {least:g} to {most:g} are no range")
            labels = _label_scaling(least, most, *ends, path)
        if lines.word() != b"x":
            raise lines.error("a line that says x is missing")
        lines.advance()
        lower, upper = lines.pair()
        # A column each, as files may have millions of lines.
        numbers, low, high = array("q"), array("d"), array("d")
        for feature, least, most in lines.features(base):
            numbers.append(feature)
            low.append(least)
            high.append(most)
    features: Any = np.array(numbers, dtype=np.int64)
    try:
        return Scaling(RANGE, np.array(low), np.array(high), lower, upper, features + base), labels, features
    except ValueError as error:
        raise DataError(path, 0, 0, f"{error}: {FIX}") from None


class Ranges:
    """The lines of a file of ranges, one after the other."""

    LONGEST = 200

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self.stream, self.path, self.number = stream, path, 0
        self.advance()

    def advance(self) -> None:
        self.line = self.stream.readline(self.LONGEST)
        self.number += 1

    def error(self, reason: str, column: int = 1) -> DataError:
        return DataError(self.path, self.number, column, f"{reason}: {FIX}")

    def word(self) -> bytes:
        """The line, without blanks at its ends."""
        return self.line.strip()

    def numbers(self, count: int) -> list[Any]:
        """The `count` numbers of the line; the first of three is a whole one."""
        words = list(re.finditer(rb"\S+", self.line))
        if len(words) != count:
            raise self.error(f"{len(words)} words in the line, {count} are needed")
        found = []
        for at, word in enumerate(words):
            whole = count == 3 and at == 0
            value = float(word[0]) if (NATURAL if whole else NUMBER).fullmatch(word[0]) else math.nan
            if not math.isfinite(value) or (whole and value > LAST):
                what = "feature number" if whole else "finite number"
                raise self.error(f"{shown(word[0])} is not a {what}", word.start() + 1)
            found.append(int(value) if whole else value)
        self.advance()
        return found

    def pair(self) -> tuple[float, float]:
        low, high = self.numbers(2)
        if low > high:
            self.number -= 1
            raise self.error(f"{low:g} is above {high:g}")
        return low, high

    def features(self, base: int) -> Iterator[tuple[int, float, float]]:
        """(place from 0, least, most) of each line that is left."""
        last = base - 1
        while self.line:
            index, least, most = self.numbers(3)
            self.number -= 1
            if index == 0 and base:
                raise DataError(self.path, self.number, 1, "index 0, but indices count from 1; if those of these files "
                                "count from 0, say --zero-based")
            if index <= last:
                raise self.error(f"feature {index} comes after {last}")
            if least > most:
                raise self.error(f"{least:g} is above {most:g}")
            self.number += 1
            last = index
            yield index - base, least, most


if __name__ == "__main__":
    sys.exit(main())
