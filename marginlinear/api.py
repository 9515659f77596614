"""train, Model, save_model, load_model: the library's face."""

import os
import warnings

import numpy as np

from marginlinear import params as P
from marginlinear import registry
from marginlinear._core.rows import Rows
from marginlinear._core.scores import margins_of, scores_of
from marginlinear.methods import multiclass
from marginlinear.problem import CONVERGED, FAILED, FINISHED, ConvergenceWarning, Problem, Run
from marginlinear.threads import default_threads, run_chunks


class Model:
    """A linear classifier: weights, classes and how they were found.

    Attributes
    ----------
    classes : array of shape (n_classes,)
        int64, float64 or str, ascending where `train` made the model; predictions are taken from here.
    coef : float64 array of shape (n_classes, n_features), or (1, n_features)
        One row a class; a single row where the sign decides, with classes[1] positive. A view of `weights`.
    intercept : float64 array of shape (n_classes,) or (1,)
        Weight of the bias feature times its value; zeros without one.
    weights : float64 array of shape (n_features + 1 or n_features, n_classes or 1)
        As in a model file: one row a feature, the bias feature last.
    bias : float
        Value of the bias feature, negative for none.
    solver : str
        Name of the method.
    params : dict
        The method's parameters, with those of the run that change the result.
    info : Info or None
        None for a model that another program trained.
    """

    def __init__(self, weights, classes, *, bias=-1.0, solver="", params=None, info=None, state=None):
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        self.classes = np.asarray(classes)
        self.bias = float(bias)
        self.solver = solver
        self.params = dict(params or {})
        self.info = info
        self._state = state
        columns = self.weights.shape[1]
        if columns != len(self.classes) and not (columns == 1 and len(self.classes) == 2):
            raise ValueError(f"weights have {columns} columns for {len(self.classes)} classes")

    def __getstate__(self):
        return {**self.__dict__, "_state": None}

    @property
    def joint(self):
        """True where the largest of several columns of scores wins, False where the sign of one decides."""
        return self.weights.shape[1] == len(self.classes)

    @property
    def n_features(self):
        return self.weights.shape[0] - (self.bias >= 0)

    @property
    def coef(self):
        return self.weights[: self.n_features].T

    @property
    def intercept(self):
        if self.bias < 0:
            return np.zeros(self.weights.shape[1])
        return self.bias * self.weights[-1]

    def decision_function(self, X, *, threads=None):
        """Scores of the rows of X.

        Parameters
        ----------
        X : array or sparse array of shape (m, n)
            Features above n_features have no weight and are left out; missing ones count as zero.
        threads : int, optional
            Default: all cores. The result does not depend on it.

        Returns
        -------
        float64 array of shape (m, n_classes), or (m,) where one column's sign decides.
        """
        scores = self._scores(as_rows(X, self.bias, self.n_features), threads)
        return scores if self.joint else scores[:, 0]

    def predict(self, X, *, threads=None):
        """Labels of the rows of X; equal scores go to the class that stands first, a score of 0 to classes[0]."""
        return self.labels_of(self.decision_function(X, threads=threads))

    def labels_of(self, scores):
        """Labels for scores as `decision_function` returns them."""
        if self.joint:
            return self.classes[np.argmax(scores, axis=1)]
        return self.classes[(scores > 0).astype(np.intp)]

    def margins(self, X, y, *, threads=None):
        """Margins of the rows of X: the score of the label less the largest other score, or y f(x) with one column.

        Raises ValueError for a label that the model does not know.
        """
        codes = np.searchsorted(self.classes, y, sorter=(order := np.argsort(self.classes)))
        codes = order[np.minimum(codes, len(order) - 1)].astype(np.int32)
        unknown = self.classes[codes] != y
        if np.any(unknown):
            raise ValueError(f"y: label {np.asarray(y)[unknown].tolist()[0]!r} is not among the classes of the model")
        scores = self._scores(as_rows(X, self.bias, self.n_features), threads)
        if len(codes) != len(scores):
            raise ValueError(f"y has {len(codes)} labels for {len(scores)} rows")
        if not self.joint:
            return np.where(codes == 1, 1.0, -1.0) * scores[:, 0]
        return margins_of(scores, codes)

    def _scores(self, rows, threads):
        out = np.empty((rows.m, self.weights.shape[1]))
        run_chunks(lambda lo, hi: scores_of(rows, self.weights, out, lo, hi), rows.m, threads)
        return out


def train(X, y, *, solver=None, class_weight=None, sample_weight=None, start=None, progress=None, **params):
    """Train a linear classifier.

    Parameters
    ----------
    X : array or sparse array of shape (m, n)
        float64 and float32 CSR and C-ordered dense arrays are used as they are, read-only memory maps included;
        other types and layouts are converted. Also what `libsvm.read_libsvm` returns.
    y : array of shape (m,)
        Labels: integers, other numbers, or strings; at least two different ones.
    solver : str
        Name of a method, or LIBLINEAR's number for it. Default "mcodm".
    class_weight : dict, optional
        Label -> positive factor of C.
    sample_weight : array of shape (m,), optional
        Factor of C of each row, finite and >= 0; a row of weight 0 is left out.
    start : Model, optional
        A model that `train` made of the same rows, with the same method: training goes on from it.
    progress : callable, optional
        Called with a dict (n_iter, seconds, objective, bound, certificate) at every check.
    **params
        The method's parameters and those of every run, as `margin-train --help` lists them: C, tol, bias, seed,
        threads, max_iter, time_limit, algorithm, ...

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        Names the parameter, its value and its domain, or what is wrong with X, y or the weights.
    TypeError
        For a parameter that the method does not have.

    Warns
    -----
    ConvergenceWarning
        When the certificate did not reach the tolerance.
    """
    method = registry.get(solver if solver is not None else next(iter(registry.methods())))
    known = {p.name: p for p in (*P.RUN, *method.takes)}
    for name in params:
        if name not in known:
            raise TypeError(f"{method.name} has no parameter {name!r}: it takes {', '.join(known)}")
    run_values = P.resolve(P.RUN, params)
    values = P.resolve(method.takes, params)
    method_values = {p.name: values[p.name] for p in method.params}
    if run_values["algorithm"] not in method.routes:
        raise ValueError(f"algorithm = {run_values['algorithm']!r} is not a route of {method.name}: give "
                         f"{' | '.join(method.routes)}")
    bias = run_values.pop("bias")
    rows, y, factors = training_rows(X, y, sample_weight, bias)
    if rows.d == 0:
        raise ValueError("X has 0 features, and there is no bias feature: nothing can be learned")
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        have = f"{len(classes)} (label {classes[0]})" if len(classes) else "none"
        raise ValueError(f"{method.name} needs at least 2 classes, y has {have}")
    problem = Problem(rows, codes.astype(np.int32), len(classes), factors,
                      class_factors(class_weight, classes)[codes])
    require_memory(rows.d * columns_of(method, len(classes), values), rows.n)
    run = Run(start=start_state(start, method, problem), progress=progress,
              **{**run_values, "threads": run_values["threads"] or default_threads()})
    if method.joint or len(classes) == 2:
        solution = method.fit(problem, method_values, run)
    else:
        solution = multiclass.fit(method, problem, method_values, run, values["multiclass"])
    model = Model(solution.weights, classes, bias=bias, solver=method.name,
                  params={**values, **{k: run_values[k] for k in ("tol", "algorithm", "seed")}},
                  info=solution.info, state=Start(method.name, problem, solution.state))
    warn_unless_converged(method.name, solution.info)
    return model


def columns_of(method, k, values):
    """Columns of weights for k classes."""
    if method.joint:
        return k
    return 1 if k == 2 else multiclass.count_columns(values["multiclass"], k)


def warn_unless_converged(name, info):
    if info.status in (CONVERGED, FINISHED):
        return
    if info.status == FAILED:
        advice = "a bound above the objective is a defect of marginlinear: please report it with the data"
    else:
        advice = ("scale the features to a common range such as [0, 1], or take a smaller C, a larger tol, or more "
                  "max_iter or time_limit")
    warnings.warn(
        f"{name} did not converge ({info.status}): certificate {info.certificate:.3g} of objective "
        f"{info.objective:.6g}, tolerance {info.tol:g}, after {info.n_iter} sweeps; {advice}",
        ConvergenceWarning, stacklevel=3)


class Start:
    """The state of a Solution, and what it belongs to."""

    def __init__(self, solver, problem, state):
        self.kind = solver, problem.rows.m, problem.rows.d, problem.n_classes
        self.y, self.state = problem.y, state

    @property
    def words(self):
        return "{} on {} rows, {} features, {} classes".format(*self.kind)


def start_state(start, method, problem):
    """The state to go on from; ValueError where the model does not fit the problem."""
    if start is None:
        return None
    found = getattr(start, "_state", None)
    if found is None:
        raise ValueError("start: the model holds no dual variables: only a model that train returned in this process "
                         "can be gone on from, not one from a file or a pickle")
    wanted = Start(method.name, problem, None)
    if found.kind != wanted.kind:
        raise ValueError(f"start: a model of {found.words}, this fit is of {wanted.words}")
    if not np.array_equal(found.y, problem.y):
        # A dual's sign belongs to its row's label: under another the bound would be none.
        raise ValueError(f"start: a model of other labels, the first at row {(found.y != problem.y).argmax()}")
    return found.state


def class_factors(class_weight, classes):
    """Factor of C of each class, float64 array of shape (k,)."""
    factors = np.ones(len(classes))
    for label, factor in (class_weight or {}).items():
        number = isinstance(factor, (int, float, np.integer, np.floating))
        if not (number and np.isfinite(factor) and factor > 0):
            raise ValueError(f"class_weight[{label!r}] = {factor!r} is not allowed: give a number in (0, inf)")
        at = np.flatnonzero(classes == label)
        if len(at) == 0:
            warnings.warn(f"class label {label} specified in weight is not found", UserWarning, stacklevel=3)
        factors[at] = factor
    return factors


def training_rows(X, y, sample_weight, bias):
    """(rows, y, instance weights): checked, without the rows of weight 0."""
    if np.ma.isMaskedArray(X) or np.ma.isMaskedArray(y):
        raise ValueError("X and y must not be masked arrays: the mask would be lost; fill or drop what is masked")
    # A list goes through objects: NumPy would make words of all of ["a", 1].
    y = np.asarray(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"y has {y.ndim} dimensions: one label a row is needed")
    if y.dtype.kind == "O":
        words = sum(isinstance(label, str) for label in y)
        y = np.array(y.tolist())
        if y.dtype.kind not in "biufU" or y.ndim != 1 or words not in (0, len(y)):
            raise ValueError("y: labels must be all numbers or all strings")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"y: label {y[~np.isfinite(y)][0]} is not finite")
    m = row_count(X)
    if len(y) != m:
        raise ValueError(f"X has {m} rows, y has {len(y)} labels")
    if m == 0:
        raise ValueError("X has no rows")
    if sample_weight is None:
        return as_rows(X, bias), y, np.ones(m)
    try:
        factors = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight: numbers are needed: {error}") from None
    if factors.shape != (m,):
        raise ValueError(f"sample_weight has shape {factors.shape}, X has {m} rows")
    wrong = ~(np.isfinite(factors) & (factors >= 0))
    if wrong.any():
        i = np.flatnonzero(wrong)[0]
        raise ValueError(f"sample_weight[{i}] = {factors[i]} is not allowed: give a number in [0, inf)")
    kept = factors > 0
    if kept.all():
        return as_rows(X, bias), y, factors
    if not kept.any():
        raise ValueError("sample_weight is 0 for all rows")
    return as_rows(select_rows(X, np.flatnonzero(kept)), bias), y[kept], factors[kept]


class CSR:
    """The arrays of a CSR matrix where SciPy is not wanted: the commands, and rows picked from them."""

    def __init__(self, data, indices, indptr, n_features):
        self.data, self.indices, self.indptr, self.n_features = data, indices, indptr, n_features

    @property
    def shape(self):
        return len(self.indptr) - 1, self.n_features


def row_count(X):
    if hasattr(X, "indptr"):
        return len(X.indptr) - 1 if not hasattr(X, "shape") else X.shape[0]
    shape = np.shape(X)
    if len(shape) != 2:
        raise ValueError(f"X has shape {shape}: two dimensions are needed, one row an instance")
    return shape[0]


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
    if indices.dtype != np.int32 and len(indices) and not (indices.min() >= 0 and indices.max() < width):
        # Before the conversion, which would fold a wrong index into a right one.
        raise ValueError(f"X has feature numbers from {indices.min()} to {indices.max()}, outside 0 to {width - 1}")
    indices = np.ascontiguousarray(indices).astype(np.int32, copy=False)
    indptr = np.ascontiguousarray(indptr).astype(np.int64, copy=False)
    if n_features is None or width == n_features:
        return Rows.from_csr(data, indices, indptr, width, bias)
    if width > n_features and len(indices) and indices.max() >= n_features:
        kept = indices < n_features
        counts = np.concatenate(([0], np.cumsum(kept)))
        data, indices, indptr = data[kept], indices[kept], counts[indptr]
    return Rows.from_csr(data, indices, indptr, n_features, bias)


def require_memory(weights, n_features):
    """Refuse, before it is tried, an array of weights that the machine cannot hold."""
    needed = 8 * weights
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > there:
            raise MemoryError(f"{n_features} features need {needed / 2**30:.1f} GiB for the weights alone, the machine "
                              f"has {there / 2**30:.1f}: is the largest feature number right?")
