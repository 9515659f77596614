"""Files in LIBSVM format.

    file    := [byte order mark] line*
    line    := [blanks] [label (blanks index ':' value)* [blanks]] ['#' comment] newline
    blanks  := (space | tab | carriage return)+

The last newline may be missing. Indices rise along a row; a line without label is no row.

A stream of bytes is cut into blocks of whole lines (`reader`), each block is parsed without the GIL into arrays of its
own (`parser`), by any thread, and the blocks are appended to the result in the order of the file. So the arrays, and
the error that is reported, do not depend on the number of threads.
"""

from marginlinear.libsvm.reader import LibsvmData, libsvm_blocks, load_libsvm, read_libsvm
from marginlinear.libsvm.writer import dump_libsvm

__all__ = ["LibsvmData", "dump_libsvm", "libsvm_blocks", "load_libsvm", "read_libsvm"]
