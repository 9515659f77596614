from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Any

from marginlinear._typing import (
    AnyArray,
    ArrayLike,
    FloatArray,
    Int64Array,
    MatrixLike,
    PathLike,
    RealArray,
    TargetsLike,
)
from marginlinear.data.arrays import CSR

LARGEST_INDEX: int
ROWS_AT_ONCE: int

def dump_libsvm(
    X: MatrixLike,
    y: TargetsLike,
    target: PathLike | IO[bytes],
    *,
    zero_based: bool = False,
    comment: str | None = None,
) -> None: ...
def rows_of(X: MatrixLike) -> CSR | AnyArray: ...
def compressed(X: CSR | AnyArray, start: int, stop: int) -> tuple[Int64Array, Int64Array, RealArray]: ...
def numbers_or_words(y: ArrayLike, rows: int) -> FloatArray | list[bytes]: ...
def several_words(y: TargetsLike, rows: int) -> list[bytes]: ...
def seen(words: list[bytes], indptr: Int64Array, values: RealArray, base: int) -> list[bytes]: ...
def rows_text(
    indptr: Int64Array, indices: Int64Array, values: RealArray, labels: FloatArray | list[bytes], base: int
) -> bytes: ...
def created(target: PathLike | IO[bytes]) -> AbstractContextManager[Callable[[bytes], object]]: ...
def compressor(path: str, file: IO[bytes]) -> AbstractContextManager[Any]: ...
