"""What X may be, and the one door by which it comes in.

Loops without the GIL go where an index leads, and look at none of them. So nothing that was not made here is read
before it has come through `held` or `as_rows`, which promise for as long as it is used:

    indices and indptr are this package's own: a copy, unless their memory cannot be written to. Stale flags, a
    callback, another thread or whoever else has the arrays cannot change what was checked. A copy is 2 bytes a stored
    value where features are few, else 4; memory maps opened for reading, and what has come through the door before,
    need none.
    Lengths, order and range of the copies are checked, and values are finite.
    SciPy's own loops, which convert from other formats and sort, get checked copies too.

Values are not copied: who changes them meanwhile gets wrong numbers. Hence no address or count may come from a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from marginlinear._core.rows import OrderError, Rows, narrowed
from marginlinear._typing import AnyArray, FloatArray, IntArray, RealArray
from marginlinear.errors import RowError

# Features that uint16 numbers hold.
NARROW = 2**16
# What `held` returns: a dense array, a CSR, or a Pager, whose rows are on disk.
HeldRows: TypeAlias = Any


class CSR:
    """The arrays of a CSR matrix: a file's, and those that have come through the door.

    Parameters
    ----------
    data : float64 or float32 array of shape (stored values,)
    indices : int32 or, which SciPy does not have, uint16 array of the same shape
    indptr : int64 array of shape (m + 1,)
    n_features : int
    container : class, optional
        SciPy's class of what was given, for functions of the user's. Default csr_array.
    equal : float64 array of shape (m,), optional
        In place of data: the one value that all stored values of each row have. Who asks for data gets them spread,
        and the rows are stored so from there on.
    in_order : bool
        Whether they were found in order, and numbers finite: they are not looked through again.
    """

    def __init__(self, data: RealArray | None, indices: IntArray, indptr: IntArray, n_features: int,
                 container: Any = None, equal: FloatArray | None = None) -> None:
        self._data: Any = data
        self.indices, self.indptr, self.n_features = indices, indptr, n_features
        self.container, self.equal, self.in_order = container, equal, False

    @property
    def data(self) -> Any:
        if self.equal is not None:
            self._data, self.equal = spread(self.equal, self.indptr), None
        return self._data

    @data.setter
    def data(self, values: RealArray) -> None:
        self._data, self.equal, self.in_order = values, None, False

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.n_features

    def to_scipy(self) -> Any:
        """The same as SciPy's array, whose indices and indptr are its own."""
        from scipy.sparse import csr_array

        container = self.container or csr_array
        return container((self.data, np.array(self.indices), np.array(self.indptr)), shape=self.shape)


def as_singles(values: RealArray) -> npt.NDArray[np.float32] | None:
    """The same numbers as float32; None where one is none."""
    with np.errstate(over="ignore"):
        singles = values.astype(np.float32, copy=False)
    return singles if (singles == values).all() else None


def spread(each: FloatArray, indptr: IntArray) -> RealArray:
    """The value `each` of a row for all its stored values; float32 where these are the same numbers."""
    singles = as_singles(each)
    found: Any = np.repeat(each if singles is None else singles, np.diff(indptr))
    return cast(RealArray, found)


def held(X: Any, given: bool = False, finite: bool = True, spare: bool = False) -> HeldRows:
    """X as a dense array or a CSR that nobody else can change the structure of.

    Parameters
    ----------
    X : SciPy sparse array or matrix of any format, dense array, CSR or LibsvmData
        The numbers of a dense array are not looked at here.
    given : bool
        Whether nobody else has X any more: its arrays are used as they are.
    finite : bool
        Whether those of a data frame are, so that a column of it is named.
    spare : bool
        Whether nobody else will have the result: its indices can be written to where they are a copy, its values never.

    Raises
    ------
    ValueError
        Names X, and what is wrong with it.
    """
    if is_paged(X):
        return X
    return sparse_rows(X, -1.0, given, spare=spare)[0] if is_sparse(X) else dense_table(X, finite)


def checked(X: Any) -> Any:
    """X for who goes on with it as it is, and trusts it as SciPy does: of a sparse X an array that is in order."""
    return held(X).to_scipy() if is_sparse(X) else X


def as_rows(X: Any, bias: float, n_features: int | None = None, given: bool = False,
            threads: int | None = 1) -> Rows:
    """Rows over X, which comes through the door for it; values without a copy where type and layout allow it.

    With n_features, X may be narrower or wider: missing features are zeros, others are left out. `given` as in `held`.
    A sparse X is checked on `threads` threads.
    """
    if is_paged(X):
        return cast(Rows, X.rows(bias))
    if is_sparse(X):
        csr, rows = sparse_rows(X, bias, given, threads)
        if n_features in (None, csr.n_features):
            return rows
        return sparse_rows(of_width(csr, n_features), bias, given=True, threads=threads)[1]
    dense = np.ascontiguousarray(real_values(dense_table(X)))
    if n_features is not None and dense.shape[1] != n_features:
        fitted = np.zeros((dense.shape[0], n_features), dtype=dense.dtype)
        width = min(n_features, dense.shape[1])
        fitted[:, :width] = dense[:, :width]
        dense = fitted
    return Rows.from_dense(dense, bias)


# Types are asked, as a data frame has an attribute for each column.


def is_sparse(X: object) -> bool:
    return is_compressed(X) or hasattr(type(X), "tocsr")


def is_paged(X: object) -> bool:
    """Whether X is a Pager, whose rows are on disk: they were checked before they were written there."""
    return hasattr(type(X), "windows")


def is_stored(X: object) -> bool:
    """Whether X is a Store, whose rows are verified and read by its `parts`."""
    return hasattr(type(X), "verify") and hasattr(X, "verified")


def is_compressed(X: object) -> bool:
    """Whether X is a CSR, or a file's rows."""
    return not is_frame(X) and hasattr(X, "indptr") and hasattr(X, "n_features")


def is_frame(X: object) -> bool:
    """Whether X is a table of columns with names and types, in memory: of pandas, polars or pyarrow."""
    kind = type(X)
    return hasattr(kind, "columns") and hasattr(kind, "__array__") and not hasattr(kind, "__dask_graph__")


def dense_table(X: Any, finite: bool = True) -> AnyArray:
    """X as a dense array of two dimensions, whose shape and type stay whatever becomes of the caller's; `finite` as in
    `held`."""
    framed = is_frame(X)
    dense = (of_columns(X) if framed else array_of(X, "X")).view()
    require_table(dense.shape)
    if framed and finite:
        require_finite(X, dense)
    return dense


def require_finite(frame: Any, dense: AnyArray) -> None:
    """RowError names the column of a data frame where a number of its rows is not finite."""
    if dense.dtype.kind != "f":
        return
    with np.errstate(invalid="ignore", over="ignore"):
        # The sum is not finite where a number is not, and seldom elsewhere.
        if np.isfinite(dense.sum()):
            return
    wrong = np.argwhere(~np.isfinite(dense))
    if len(wrong):
        row, j = wrong[0].tolist()
        name = repr(column_names(frame)[j]).replace("{", "{{").replace("}", "}}")
        raise RowError(row, f"X: row {{row}}, column {name} is {dense[row, j]}: values must be finite: fill in what is "
                       "missing, or leave the row or the column out")


def column_names(X: Any) -> list[Any]:
    """Those of a data frame of pandas or polars, or of pyarrow's table."""
    return list(X.columns if hasattr(type(X), "iloc") or hasattr(type(X), "get_columns") else X.schema.names)


def of_columns(X: Any) -> AnyArray:
    """A data frame as an array; ValueError names a column that does not hold numbers."""
    if hasattr(type(X), "iloc"):
        if len(types := set(X.dtypes)) == 1 and isinstance(kind := types.pop(), np.dtype) and kind.kind in "biuf":
            # pandas has columns of one of NumPy's types as one array.
            return array_of(X, "X")
        columns = [(name, X.iloc[:, j]) for j, name in enumerate(column_names(X))]
    elif hasattr(type(X), "get_columns"):
        columns = [(column.name, column) for column in X.get_columns()]
    else:
        columns = list(zip(column_names(X), X.columns, strict=True))
    arrays = [numbers_of(name, column) for name, column in columns]
    types = {array.dtype for array in arrays}
    dense = np.empty((len(X), len(arrays)), dtype=types.pop() if len(types) == 1 else np.float64)
    for j, array in enumerate(arrays):
        dense[:, j] = array
    return dense


def numbers_of(name: object, column: Any) -> AnyArray:
    """A column of numbers as an array, NaN where there is none."""
    dtype = getattr(column, "dtype", None)
    if getattr(dtype, "kind", "O") in "biuf" and not isinstance(dtype, np.dtype):
        # Of a type of pandas' own, which may become objects.
        column = column.to_numpy(dtype=np.float64, na_value=np.nan)
    found = array_of(column, f"X: column {name!r}")
    if found.dtype.kind not in "biuf":
        raise ValueError(f"X: column {name!r} holds {dtype or found.dtype}: numbers are needed: convert it, words to a "
                         "column of 0 and 1 each, as pandas.get_dummies does, or leave it out")
    return found


def sparse_rows(X: Any, bias: float, given: bool, threads: int | None = 1, spare: bool = False) -> tuple[CSR, Rows]:
    """(CSR, Rows) of a sparse X: see `held`. Of a Store, who does not go over its parts gets all rows, verified."""
    csr = compressed(X.in_memory(), True) if is_stored(X) else compressed(X, given, spare)
    try:
        rows = rows_of(csr, bias, threads)
    except OrderError:
        csr = summed(csr)
        rows = rows_of(csr, bias, threads)
    # Behind the last row SciPy may have entries that are no part of the matrix.
    stop = csr.indptr[-1]
    csr.indices = csr.indices[:stop]
    if csr.equal is None:
        csr.data = csr.data[:stop]
    csr.in_order = True
    return csr, rows


def rows_of(csr: CSR, bias: float, threads: int | None) -> Rows:
    """Rows over the arrays of a CSR, which are checked unless they were."""
    structure = csr.indices, csr.indptr, csr.n_features, bias, threads, csr.in_order
    if csr.equal is not None:
        return Rows.from_equal(csr.equal, *structure)
    return Rows.from_csr(csr.data, *structure)


def compressed(X: Any, given: bool, spare: bool = False) -> CSR:
    """A CSR of arrays that are not checked against each other yet, but for the number of rows."""
    m, container = None, getattr(X, "container", None)
    if not is_compressed(X):
        from scipy.sparse import csr_array, csr_matrix, issparse, spmatrix

        X = X if issparse(X) else X.tocsr()
        m, n = require_table(X.shape)
        container = csr_matrix if isinstance(X, spmatrix) else csr_array
        if X.format != "csr":
            X, given = rebuilt(X).tocsr(), True
    else:
        n = X.n_features
    if not isinstance(n, (int, np.integer)) or not 0 <= n <= np.iinfo(np.int32).max:
        raise ValueError(f"X has {n} features: at most {np.iinfo(np.int32).max} are possible")
    indptr, indices = integers(X.indptr, "indptr"), integers(X.indices, "indices")
    if len(indptr) != (max(1, len(indptr)) if m is None else m + 1):
        raise ValueError(f"X: indptr has {len(indptr)} entries for {m or 0} rows: one more than rows is needed")
    wide = indices.dtype not in (np.int32, np.uint16)
    if wide and len(indices) and not (indices.min() >= 0 and indices.max() < n):
        # Before the conversion, which would fold a wrong index into a right one.
        raise ValueError(f"X has feature numbers from {indices.min()} to {indices.max()}, outside 0 to {n - 1}")
    equal = getattr(X, "equal", None) if given else None
    if equal is not None:
        csr = CSR(None, own(indices, np.int32, given), own(indptr, np.int64, given), int(n), container, equal)
    else:
        data = array_of(X.data, "X: data").view()
        if data.ndim != 1:
            raise ValueError(f"X: data has shape {data.shape}: one dimension is needed")
        values = np.ascontiguousarray(real_values(data))
        if spare:
            values.flags.writeable = False
        csr = CSR(values, own_features(indices, int(n), given, spare), own(indptr, np.int64, given), int(n), container)
    csr.in_order = getattr(X, "in_order", False)
    return csr


def integers(array: Any, name: str) -> IntArray:
    """One of the arrays that say where values stand."""
    found = array_of(array, f"X: {name}")
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ValueError(f"X: {name} has shape {found.shape} and holds {found.dtype}: integers of one dimension are "
                         "needed")
    return found


def own(array: AnyArray, dtype: npt.DTypeLike, given: bool = False, spare: bool = False) -> AnyArray:
    """The same numbers in C order where nobody else can write: a copy, unless `given`, or the memory is read-only. A
    `spare` copy can be written to."""
    found = np.ascontiguousarray(array, dtype=dtype)
    if given or (np.may_share_memory(found, array) and read_only(array)):
        return found
    found = found.copy() if np.may_share_memory(found, array) else found
    return found if spare else sealed(found)


def own_features(indices: IntArray, n: int, given: bool, spare: bool) -> IntArray:
    """`own` of the numbers of n features: what is copied, as uint16 numbers where these hold them."""
    if indices.dtype == np.int32 and n <= NARROW and not (given or read_only(indices)):
        found = narrowed(np.ascontiguousarray(indices, dtype=np.int32))
        if found is not None:
            return found if spare else sealed(found)
    return own(indices, indices.dtype if indices.dtype == np.uint16 else np.int32, given, spare)


def sealed(array: AnyArray) -> AnyArray:
    """An array that nobody else has, as a view that cannot be made writable: it tells the next door so."""
    return np.asarray(array.data.toreadonly())


def read_only(array: AnyArray) -> bool:
    """Whether nobody can write to the memory of an array: its owner says so, as there may be other views."""
    owner: Any = array.base
    while isinstance(owner, np.ndarray):
        owner = owner.base
    try:
        return memoryview(owner).readonly
    except TypeError:  # NumPy's own memory, or an owner that does not say
        return False


def rebuilt(X: Any) -> Any:
    """A SciPy array not in CSR as another one of the same numbers, that SciPy's conversions can trust."""
    try:
        if X.format == "lil":
            return from_lists([list(row) for row in X.rows], [list(values) for values in X.data], X)
        if X.format == "dok":
            X = X.tocoo()
        # Before sums of repeated entries, which are made in the type of the values.
        kind, data = type(X), real_values(np.asarray(X.data))
        if X.format == "dia":
            return kind((data, copied(X.offsets, "offsets")), shape=X.shape)
        if X.format == "coo":
            return kind((data, (copied(X.row, "row"), copied(X.col, "col"))), shape=X.shape)
        indptr = copied(X.indptr, "indptr").astype(np.int64)
        require_rising(indptr, "row" if X.format == "bsr" else "column")
        found = kind((data, copied(X.indices, "indices"), indptr), shape=X.shape)
        found.check_format(full_check=True)
        return found
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        words = str(error).removeprefix("X: ")
        raise ValueError(f"X: the arrays of this {X.format} array do not fit each other: {words}") from error


def copied(array: Any, name: str) -> IntArray:
    return integers(array, name).copy()


def from_lists(rows: Sequence[list[Any]], values: Sequence[list[Any]], X: Any) -> Any:
    """A coo_array of the lists of a LIL array."""
    from scipy.sparse import coo_array

    lengths = [len(row) for row in rows]
    if lengths != [len(row) for row in values] or len(lengths) != X.shape[0]:
        raise ValueError("rows and data have lists of different lengths")
    columns = np.array(list(chain(*rows)), dtype=None if any(lengths) else np.int64)
    numbers = real_values(np.array(list(chain(*values)), dtype=X.dtype))
    return coo_array((numbers, (np.repeat(np.arange(len(rows)), lengths), integers(columns, "rows"))), shape=X.shape)


def summed(csr: CSR) -> CSR:
    """A CSR whose indices repeat or fall somewhere, in order: values at one place are added."""
    from scipy.sparse import csr_array

    require_rising(csr.indptr, "row")
    found = csr_array((csr.data.copy(), csr.indices.copy(), csr.indptr.copy()), shape=csr.shape)
    found.sum_duplicates()
    return like(csr, found.data, found.indices.astype(np.int32), found.indptr, csr.n_features)


def require_rising(indptr: IntArray, line: str) -> None:
    """ValueError where an int64 indptr falls: by its own numbers, since differences, as SciPy takes them, overflow."""
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        raise ValueError(f"X: indptr falls after {line} {np.flatnonzero(falls)[0]}")


def of_width(csr: CSR, n_features: int) -> CSR:
    """A checked CSR with n_features features: further ones are zeros, or left out."""
    if csr.n_features <= n_features:
        return CSR(csr.data, csr.indices, csr.indptr, n_features, csr.container)
    kept = csr.indices < n_features
    counts = np.concatenate(([0], np.cumsum(kept)))
    return like(csr, csr.data[kept], csr.indices[kept], counts[csr.indptr], n_features)


def array_of(values: Any, name: str) -> AnyArray:
    """`values` as an array of NumPy's; `name` is what they are."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be made an array: {error}") from error


def real_values(values: AnyArray) -> AnyArray:
    """float64 or float32 values, converted only from other types."""
    if values.dtype in (np.float64, np.float32):
        return values
    if values.dtype.kind not in "biuf":
        raise ValueError(f"X holds {values.dtype}: numbers are needed")
    return values.astype(np.float64)


def require_table(shape: tuple[int, ...]) -> tuple[int, int]:
    """The shape; ValueError for anything but two dimensions."""
    if len(shape) != 2:
        raise ValueError(f"X has shape {shape}: two dimensions are needed, one row an instance")
    return shape


def shape_of(X: Any) -> tuple[int, int]:
    """(rows, features); ValueError for anything but a table."""
    if is_compressed(X):
        return len(X.indptr) - 1, X.n_features
    return require_table(X.shape if is_sparse(X) or is_frame(X) else array_of(X, "X").shape)


def row_count(X: Any) -> int:
    return shape_of(X)[0]


# What follows takes what `held` returns, or a file's rows.


def select_rows(X: HeldRows, which: Any) -> HeldRows:
    """X without the other rows."""
    if is_paged(X):
        return X.selected(which)
    if not is_compressed(X):
        return X[which]
    lengths = np.diff(X.indptr)[which]
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    positions = np.repeat(X.indptr[:-1][which] - indptr[:-1], lengths) + np.arange(indptr[-1])
    found = like(X, X.data[positions], X.indices[positions], indptr, X.n_features)
    found.in_order = getattr(X, "in_order", False)
    return found


def row_blocks(X: Any, size: int) -> Iterator[tuple[int, int, HeldRows]]:
    """Yield (lo, hi, rows lo to hi of X) for ranges of at most `size` rows, without a copy but of a Store's rows."""
    if is_stored(X):
        first = 0
        for part in X.parts():
            for lo, hi, block in row_blocks(part, size):
                yield first + lo, first + hi, block
            first += row_count(part)
        return
    m = row_count(X)
    for lo in range(0, m, size):
        hi = min(lo + size, m)
        if hi - lo == m:
            yield lo, hi, X
        elif is_compressed(X):
            start, stop = X.indptr[lo], X.indptr[hi]
            yield lo, hi, CSR(X.data[start:stop], X.indices[start:stop], X.indptr[lo : hi + 1] - start, X.n_features,
                              getattr(X, "container", None))
        else:
            yield lo, hi, X[lo:hi]


def select_square(X: HeldRows, which: Any) -> HeldRows:
    """The rows and columns `which` of a square X."""
    return select_columns(select_rows(X, which), which)


def select_columns(X: HeldRows, which: Any) -> HeldRows:
    """X without the other columns."""
    if not is_compressed(X):
        return X[:, which]
    from scipy.sparse import csr_array

    found = csr_array((X.data, X.indices, X.indptr), shape=shape_of(X))[:, which]
    return like(X, found.data, found.indices, found.indptr, found.shape[1])


def like(X: object, data: AnyArray, indices: AnyArray, indptr: AnyArray, n_features: int) -> CSR:
    """A CSR of new arrays, which nobody else has, from those of X."""
    return CSR(data, sealed(indices), sealed(np.asarray(indptr, dtype=np.int64)), n_features,
               getattr(X, "container", None))
