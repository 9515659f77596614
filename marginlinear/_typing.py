"""Names of types that many files need. They stand for text at run time: `--help` must not import NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Arrays of one type of number, for what is handed to engines and comes from them.
FloatArray: TypeAlias = "npt.NDArray[np.float64]"
SingleArray: TypeAlias = "npt.NDArray[np.float32]"
RealArray: TypeAlias = "npt.NDArray[np.float64] | npt.NDArray[np.float32]"
BoolArray: TypeAlias = "npt.NDArray[np.bool_]"
Int8Array: TypeAlias = "npt.NDArray[np.int8]"
Int32Array: TypeAlias = "npt.NDArray[np.int32]"
Int64Array: TypeAlias = "npt.NDArray[np.int64]"
IntArray: TypeAlias = "npt.NDArray[np.integer[Any]]"
# Labels, or whatever a caller has.
AnyArray: TypeAlias = "npt.NDArray[Any]"

# What functions that a person calls make arrays of; data frames and tensors have `__array__`.
ArrayLike: TypeAlias = "npt.ArrayLike"
PathLike: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"


class SparseLike(Protocol):
    """A sparse array or matrix of SciPy's, of any format, or what can become one."""

    @property
    def shape(self) -> Any: ...

    def tocsr(self) -> Any: ...


class CompressedLike(Protocol):
    """The arrays of CSR: `LibsvmData`, or rows that have come through the door."""

    @property
    def indices(self) -> Any: ...

    @property
    def indptr(self) -> Any: ...

    @property
    def data(self) -> Any: ...

    @property
    def n_features(self) -> int: ...


class StoreLike(Protocol):
    """Rows on disk that can be had in memory: a Store."""

    @property
    def n_features(self) -> int: ...

    def in_memory(self) -> Any: ...


# X: dense, sparse, a data frame, a file's rows, or those of a store.
MatrixLike: TypeAlias = "ArrayLike | SparseLike | CompressedLike | StoreLike"

# {parameter's name: value}.
Parameters: TypeAlias = dict[str, Any]
# An entry of `Info.history`.
HistoryEntry: TypeAlias = dict[str, Any]
# From rows X (m, d) and Z (s, d) to the values of the kernel, (m, s).
KernelFunction: TypeAlias = Callable[[Any, Any], Any]
