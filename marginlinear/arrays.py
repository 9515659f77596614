"""What X may be: SciPy sparse arrays, dense arrays, and the arrays of a CSR matrix."""

import numpy as np

from marginlinear._core.rows import Rows


class CSR:
    """The arrays of a CSR matrix where SciPy is not wanted: the commands, and rows picked from them.

    Indices may be uint16 too, which SciPy does not have.
    """

    def __init__(self, data, indices, indptr, n_features):
        self.data, self.indices, self.indptr, self.n_features = data, indices, indptr, n_features

    @property
    def shape(self):
        return len(self.indptr) - 1, self.n_features

    def to_scipy(self):
        """The same as a scipy.sparse.csr_array."""
        from scipy.sparse import csr_array

        return csr_array((self.data, self.indices, self.indptr), shape=self.shape)


def shape_of(X):
    """(rows, features); ValueError for anything but a table."""
    if hasattr(X, "indptr") and hasattr(X, "n_features"):
        return len(X.indptr) - 1, X.n_features
    shape = np.shape(X)
    if len(shape) != 2:
        raise ValueError(f"X has shape {shape}: two dimensions are needed, one row an instance")
    return shape


def row_count(X):
    return shape_of(X)[0]


def select_rows(X, which):
    """X without the other rows."""
    if hasattr(X, "indptr") and hasattr(X, "n_features"):
        lengths = np.diff(X.indptr)[which]
        indptr = np.concatenate(([0], np.cumsum(lengths)))
        positions = np.repeat(X.indptr[which] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return CSR(X.data[positions], X.indices[positions], indptr, X.n_features)
    if hasattr(X, "tocsr"):
        return X.tocsr()[which]
    return np.asarray(X)[which]


def row_blocks(X, size):
    """Yield (lo, hi, rows lo to hi of X) for ranges of `size` rows, without a copy where the storage allows it."""
    m = row_count(X)
    if hasattr(X, "indptr") and hasattr(X, "n_features"):
        def part(lo, hi):
            start, stop = X.indptr[lo], X.indptr[hi]
            return CSR(X.data[start:stop], X.indices[start:stop], X.indptr[lo : hi + 1] - start, X.n_features)
    else:
        whole = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X)

        def part(lo, hi):
            return whole[lo:hi]
    for lo in range(0, m, size):
        yield lo, min(lo + size, m), part(lo, min(lo + size, m))


def select_square(X, which):
    """The rows and columns `which` of a square X."""
    return select_columns(select_rows(X, which), which)


def select_columns(X, which):
    """X without the other columns."""
    if hasattr(X, "indptr") and hasattr(X, "n_features"):
        from scipy.sparse import csr_array

        X = csr_array((X.data, X.indices, X.indptr), shape=shape_of(X))
    return X[:, which]


def as_rows(X, bias, n_features=None):
    """Rows over X: without a copy where type and layout allow it.

    With n_features, X may be narrower or wider: missing features are zeros, others are left out.
    """
    if hasattr(X, "indptr") and hasattr(X, "n_features"):
        return csr_rows(X.data, X.indices, X.indptr, X.n_features, bias, n_features)
    if hasattr(X, "tocsr"):
        if X.ndim != 2:
            raise ValueError(f"X has shape {X.shape}: two dimensions are needed, one row an instance")
        csr = X.tocsr()
        if not csr.has_canonical_format:
            csr = csr.copy() if csr is X else csr
            csr.sum_duplicates()
        return csr_rows(csr.data, csr.indices, csr.indptr, csr.shape[1], bias, n_features)
    dense = np.asarray(X)
    if dense.ndim != 2:
        raise ValueError(f"X has shape {dense.shape}: two dimensions are needed, one row an instance")
    dense = np.ascontiguousarray(real_values(dense))
    if n_features is not None and dense.shape[1] != n_features:
        fitted = np.zeros((dense.shape[0], n_features), dtype=dense.dtype)
        width = min(n_features, dense.shape[1])
        fitted[:, :width] = dense[:, :width]
        dense = fitted
    return Rows.from_dense(dense, bias)


def real_values(values):
    """float64 or float32 values, converted only from other types."""
    if values.dtype in (np.float64, np.float32):
        return values
    if values.dtype.kind not in "biuf":
        raise ValueError(f"X holds {values.dtype}: numbers are needed")
    return values.astype(np.float64)


def csr_rows(data, indices, indptr, width, bias, n_features):
    if width > np.iinfo(np.int32).max:
        raise ValueError(f"X has {width} features: at most {np.iinfo(np.int32).max} are possible")
    data = np.ascontiguousarray(real_values(data))
    held = indices.dtype in (np.int32, np.uint16)
    if not held and len(indices) and not (indices.min() >= 0 and indices.max() < width):
        # Before the conversion, which would fold a wrong index into a right one.
        raise ValueError(f"X has feature numbers from {indices.min()} to {indices.max()}, outside 0 to {width - 1}")
    indices = np.ascontiguousarray(indices) if held else indices.astype(np.int32)
    indptr = np.ascontiguousarray(indptr).astype(np.int64, copy=False)
    if n_features is None or width == n_features:
        return Rows.from_csr(data, indices, indptr, width, bias)
    if width > n_features and len(indices) and indices.max() >= n_features:
        kept = indices < n_features
        counts = np.concatenate(([0], np.cumsum(kept)))
        data, indices, indptr = data[kept], indices[kept], counts[indptr]
    return Rows.from_csr(data, indices, indptr, n_features, bias)
