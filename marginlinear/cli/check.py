"""margin-check: what is in a data file, what is wrong with it, and what to do about it."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import TYPE_CHECKING

from marginlinear import params
from marginlinear.atomic import replacing
from marginlinear.cli.command import command
from marginlinear.cli.data import (
    LISTED,
    OF_NAMES,
    is_parquet,
    is_store,
    is_table,
    names_given,
    progress_of,
    refuse_with_tables,
)
from marginlinear.cli.output import DONE, FAILURE, StatusLine, opening, settle_blas
from marginlinear.options import MULTILABEL, QUIET, TEXT_LABELS, ZERO_BASED, CommandLine, UsageError
from marginlinear.params import Param

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from marginlinear.data.report import DataReport

PROGRAM = "margin-check"
JSON = Param("json", bool, False, "one JSON object in place of the text")
ERRORS = Param("errors", int, 5, "lines that are wrong shown at most of each kind; the others are counted", "[0, inf)")
TABLE = (params.LABEL, params.CATEGORIES, params.LEAVE_OUT)
OF_TEXT = (ZERO_BASED, TEXT_LABELS, MULTILABEL)
OPTIONS = (ERRORS, JSON, *OF_TEXT, *TABLE, QUIET._replace(help="no progress"))
WIDTH = 110

USAGE = """\
usage: margin-check [options] data_file

Show what is in a data file, what is wrong with it, and what to do about it.

That is rows, features, values, labels; each line that is wrong, as training would refuse it, with what is wrong first;
rows that are equal, or empty, features that are of no use or of other scales; and what to do about each.

The data_file is LIBSVM text ('-': standard input), a table (.csv, .tsv, .parquet), packed or not (.gz, .bz2, .xz), or a
store. A file is read a part at a time; what is held grows with the number of rows, by some 70 bytes each, and of
features.
"""
STATUSES = ("Exit status: 0 nothing is wrong, 1 training would refuse the file, or it cannot be read, 2 bad usage, 130 "
            "interrupted.")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return command(PROGRAM, argv, OPTIONS, USAGE, work, statuses=STATUSES)


def work(line: CommandLine) -> int:
    if len(line.files) != 1:
        raise UsageError("one data_file is needed" + (f", not {' '.join(line.files)}" if line.files else ""))
    path = line.files[0]
    if is_table(path):
        refuse_with_tables(line, path, (ZERO_BASED, MULTILABEL, *((TEXT_LABELS,) if is_parquet(path) else ())))
    useless = dict.fromkeys(() if is_table(path) else TABLE, OF_NAMES)
    if is_store(path):
        useless |= dict.fromkeys(OF_TEXT, "it is for LIBSVM's text")
    for param, reason in useless.items():
        if line.given(param):
            raise UsageError(f"{param.flag} is of no use with {path}: {reason}")
    most, as_json, quiet = line.value(ERRORS), line.value(JSON), line.value(QUIET)
    given = {"zero_based": line.value(ZERO_BASED), "text_labels": line.value(TEXT_LABELS) or None,
             "multilabel": line.value(MULTILABEL) or None, "label": line.value(params.LABEL),
             "categories": names_given(line, params.CATEGORIES), "leave_out": names_given(line, params.LEAVE_OUT)}
    settle_blas()
    from marginlinear.data.report import check

    with StatusLine(quiet) as status, opening("open input file", path):
        report = check(path, max_errors=most, progress=progress_of(f"reading {path}", status), **given)
    text = json.dumps(report.to_dict(), allow_nan=False) if as_json else "\n".join(lines_of(report))
    with replacing("-") as stream:
        stream.write(f"{text}\n".encode(errors="backslashreplace"))
    return DONE if report.ok else FAILURE


def lines_of(report: DataReport) -> Iterator[str]:
    """The text of a report."""
    from marginlinear.problem import counted

    yield report.title()
    if report.rows:
        yield f"labels: {report.label_text(LISTED)}"
    if report.n_errors:
        yield f"\n{counted(report.n_errors, 'line')} with an error, which training would refuse:"
    for fix, count in report.fixes.items():
        faults = [error.fault for error in report.errors if error.fix == fix]
        yield from (f"  {fault}" for fault in faults)
        if count > len(faults):
            yield f"  and {counted(count - len(faults), 'other')}; {ERRORS.flag} N shows more"
        if fix:
            # It may hold a command, which is copied whole.
            yield f"    {fix if count == 1 else f'{count:,} lines: {fix}'}"
    if report.findings:
        yield ""
    for finding in report.findings:
        yield from textwrap.wrap(f"{'ERROR: ' if finding.is_error else ''}{finding.text}", WIDTH,
                                 subsequent_indent="    ", break_on_hyphens=False)
        yield from textwrap.wrap(finding.advice, WIDTH, initial_indent="    ", subsequent_indent="    ",
                                 break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(main())
