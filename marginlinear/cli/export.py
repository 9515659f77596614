"""margin-export: a model for a program without marginlinear."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from marginlinear.atomic import check_writable, replacing
from marginlinear.cli.command import command
from marginlinear.cli.files import require_apart
from marginlinear.cli.output import DONE, Failure, opening, settle_blas
from marginlinear.options import CommandLine, UsageError
from marginlinear.params import Param

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "margin-export"
FLOAT32 = Param("float32", bool, False, "ONNX: the input is float32, in place of float64")
NO_PROBABILITY = Param("no_probability", bool, False, "ONNX: no probabilities, though the model has them")
NAME = Param("name", str, "margin", "C, SQL: what names begin with", metavar="WORD")
TABLE = Param("from_table", str, "rows", "SQL: the table of the rows", metavar="WORD")
LONG = Param("long", str, None, "SQL: the table has a row for each value; its columns of the row, the feature and the "
             "value", metavar="ROW,FEATURE,VALUE")
NAMES = Param("names", str, None, "SQL: names of the features, one a line, as many as the model has features",
              metavar="FILE")
# Ending of the file -> the options of its format.
FORMATS = {".onnx": (FLOAT32, NO_PROBABILITY), ".c": (NAME,), ".sql": (TABLE, NAMES, LONG, NAME)}
OPTIONS = (FLOAT32, NO_PROBABILITY, NAME, TABLE, NAMES, LONG)

USAGE = """\
usage: margin-export [options] model_file output_file

Write a model for a program without marginlinear: by the end of the output_file's name .onnx (needs the package onnx),
.c (C99) or .sql (a SELECT).

The model_file is of margin-train, of LIBLINEAR's train or LIBSVM's svm-train; for C and SQL its model is a linear one.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return command(PROGRAM, argv, OPTIONS, USAGE, work)


def work(line: CommandLine) -> int:
    if len(line.files) != 2:
        raise UsageError("a model_file and an output_file are needed" +
                         (f", not {' '.join(line.files)}" if line.files else ""))
    model_path, output = line.files
    ending = next((ending for ending in FORMATS if output.endswith(ending)), None)
    if ending is None:
        raise UsageError(f"{output}: the name of the output_file ends in {', '.join(FORMATS)}")
    for param in OPTIONS:
        if line.given(param) and param not in FORMATS[ending]:
            raise UsageError(f"{line.flag(param)} is not for a file that ends in {ending}")
    names_path, long = line.value(NAMES), line.value(LONG)
    long = None if long is None else long.split(",")
    if long is not None and len(long) != 3:
        raise UsageError(f"{LONG.flag} {','.join(long)}: give 3 names, with commas between")
    require_apart([("model_file", model_path), (NAMES.flag, names_path)], [("output_file", output)])
    settle_blas()
    with opening("open output file", output):
        check_writable(output)
    from marginlinear import export
    from marginlinear.cli.data import read_names
    from marginlinear.modelfile import load_model

    with opening("open model file", model_path):
        model = load_model(model_path)
    try:
        if ending == ".onnx":
            made = export.to_onnx(model, dtype="float32" if line.value(FLOAT32) else "float64",
                                  probability=not line.value(NO_PROBABILITY)).SerializeToString()
        elif ending == ".c":
            made = export.to_c(model, name=line.value(NAME)).encode("utf-8")
        else:
            names = None if names_path is None else read_names(names_path, model.n_features)
            made = export.to_sql(model, line.value(TABLE), feature_names=names, long=long, name=line.value(NAME))
            made = f"{made};\n".encode()
    except ModuleNotFoundError as error:
        raise Failure(str(error)) from None
    with opening("write", output), replacing(output) as stream:
        stream.write(made)
    return DONE


if __name__ == "__main__":
    sys.exit(main())
