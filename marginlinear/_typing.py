"""Names of types that many files need. They stand for text at run time: `--help` must not import NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict

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
IntpArray: TypeAlias = "npt.NDArray[np.intp]"
Int64Array: TypeAlias = "npt.NDArray[np.int64]"
IntArray: TypeAlias = "npt.NDArray[np.integer[Any]]"
# Labels, or whatever a caller has.
AnyArray: TypeAlias = "npt.NDArray[Any]"

# What functions that a person calls make arrays of; data frames and tensors have `__array__`.
ArrayLike: TypeAlias = "npt.ArrayLike"
PathLike: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"


class MemoryView(Protocol):
    """Memory of a compiled class as Cython shows it: np.asarray makes an array of it, without a copy."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def size(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def copy(self) -> MemoryView: ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __setitem__(self, key: Any, value: Any, /) -> None: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...


# What an engine takes for an array of a type of number.
Floats: TypeAlias = "FloatArray | MemoryView"
Int32s: TypeAlias = "Int32Array | MemoryView"
Intps: TypeAlias = "IntpArray | MemoryView"


class SparseLike(Protocol):
    """A sparse array or matrix of SciPy's, of any format, or what can become one."""

    @property
    def shape(self) -> Any: ...

    def tocsr(self) -> Any: ...


class SparseMatrixLike(Protocol):
    """A sparse matrix of SciPy's whose format is not known, as scipy.sparse.random gives: its stubs have no tocsr."""

    def get_shape(self) -> Any: ...


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
MatrixLike: TypeAlias = "ArrayLike | SparseLike | SparseMatrixLike | CompressedLike | StoreLike"

# y: labels or numbers; of several labels a row an indicator, dense or sparse, or a set or tuple of each row's.
TargetsLike: TypeAlias = "ArrayLike | SparseLike | SparseMatrixLike | Sequence[Set[Any]]"

# {parameter's name: value}.
Parameters: TypeAlias = dict[str, Any]
# An entry of `Info.history`.
HistoryEntry: TypeAlias = dict[str, Any]
# From rows X (m, d) and Z (s, d) to the values of the kernel, (m, s).
KernelFunction: TypeAlias = Callable[[Any, Any], Any]
# Duals, weights and whatever else a fit goes on from, by name.
State: TypeAlias = dict[str, Any]
# (knots, parts) of a loss of the margin, as `margin_cd.table_of` takes them.
Table: TypeAlias = "tuple[Sequence[float], Sequence[Sequence[float]] | Literal['softplus']]"
# What hears of each check.
Observer: TypeAlias = Callable[[HistoryEntry], object]


class Stateful(Protocol):
    """What does a fit: see `Run.fits`."""

    def state(self) -> State: ...


# Numbers of Python's and of NumPy's.
Integer: TypeAlias = "int | np.integer[Any]"
Number: TypeAlias = "float | np.floating[Any] | np.integer[Any]"
Flag: TypeAlias = "bool | np.bool_"
Metric: TypeAlias = Literal["accuracy", "balanced", "f1_macro", "auc", "top3", "top5", "top10", "log_loss", "brier",
                            "micro_f1", "macro_f1", "lrap", "mse", "mae", "r2"]
Scale: TypeAlias = Literal["range", "maxabs", "unit"]
# Factors of C by label.
ClassWeight: TypeAlias = 'Mapping[Any, Number] | Literal["balanced"]'


class MethodParameters(TypedDict, total=False):
    """`**params` of what trains: `params.OWN` and, but for those that are named in every signature, `params.RUN`. None
    stands for the default; which of them a method takes is known at run time."""

    C: Number | None
    lambda_: Number | None
    mu: Number | None
    theta: Number | None
    margin_bound: Number | None
    bound_cost: Number | None
    K: Integer | None
    penalty: Literal["l1", "group"] | None
    l1_ratio: Number | None
    outer: Literal["ccp", "paper"] | None
    max_outer: Integer | None
    restarts: Integer | None
    lambda1: Number | str | None
    lambda2: Number | str | None
    norm: Number | None
    eps: Number | None
    delta: Number | None
    loss: Literal["logistic", "softmax"] | None
    epsilon: Number | None
    nu: Number | None
    alpha: Number | None
    beta: Number | None
    epochs: Integer | None
    eta0: Number | None
    free_bias: Flag | None
    multiclass: Literal["ovr", "ovo", "ecoc"] | None
    kernel: Literal["linear", "poly", "rbf", "sigmoid", "precomputed", 0, 1, 2, 3] | KernelFunction | None
    gamma: Number | None
    degree: Integer | None
    coef0: Number | None
    cache: Number | None
    tol: Number | None
    bias: Number | None
    algorithm: Literal["auto", "cd", "accelerated", "newton", "paper"] | None
    max_iter: Integer | None
    time_limit: Number | None


class FitParameters(MethodParameters, total=False):
    """`**params` of `train`."""

    seed: Integer | None
    threads: Integer | None


class SearchParameters(MethodParameters, total=False):
    """`**params` of cross-validation and search: what `train` takes beside."""

    probability: Flag | None
    scale: Scale | None
    memory: int | str | None
    sweeps_per_load: Integer | None


# Parameters of estimators, for scikit-learn.
KernelName: TypeAlias = Literal["linear", "poly", "rbf", "sigmoid", "precomputed"]
KernelChoice: TypeAlias = KernelName | KernelFunction
GammaChoice: TypeAlias = 'Literal["scale", "auto"] | Number'
RandomState: TypeAlias = "Integer | np.random.RandomState"
Multiclass: TypeAlias = Literal["ovr", "ovo", "ecoc"]
Route: TypeAlias = Literal["auto", "cd", "accelerated", "newton", "paper"]
Penalty: TypeAlias = Literal["l2", "l1"]
ClassesPenalty: TypeAlias = Literal["l2", "l1", "group"]
HingeLoss: TypeAlias = Literal["hinge", "squared_hinge", "squared_error"]
ResidualLoss: TypeAlias = Literal["epsilon_insensitive", "squared_epsilon_insensitive"]
