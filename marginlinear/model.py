"""Models: what a fit has found, and what it says of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from marginlinear import calibration, fitting
from marginlinear import params as P
from marginlinear._core.scores import margins_of, scores_of
from marginlinear.data import one_against_one
from marginlinear.data.arrays import (
    CSR,
    as_rows,
    held,
    is_compressed,
    is_frame,
    is_stored,
    row_blocks,
    row_count,
    shape_of,
)
from marginlinear.data.checks import places_in
from marginlinear.data.columns import rule_of
from marginlinear.data.kernels import constant_of
from marginlinear.data.label_sets import LabelSets
from marginlinear.data.labels import labels_of
from marginlinear.errors import RowError, renumber_rows
from marginlinear.problem import Summary, counted, listed
from marginlinear.threads import default_threads, run_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    from marginlinear._core.kernel_rows import KernelPoints
    from marginlinear._typing import (
        AnyArray,
        ArrayLike,
        FloatArray,
        Int8Array,
        Int64Array,
        IntArray,
        Integer,
        MatrixLike,
    )
    from marginlinear.calibration import Calibration
    from marginlinear.data.columns import TableRule
    from marginlinear.data.kernels import Kernel
    from marginlinear.data.scaling import Scaling
    from marginlinear.problem import Info

ONE_AGAINST_ONE = "ovo"  # in place of codes
SHOWN = 5  # labels of a model that prints itself
SCORES = 1 << 22  # numbers that labels are made of at a time
NO_CLASSES = "the model is a regression: it has no classes, nor margins; residual_report tells of its residuals"
NO_PLACES = ("the model is multi-label: a row has no one class, nor a margin; cross_validate and margin-predict "
             "measure F1 and label ranking")
NOT_A_NUMBER = ("a score of row {row} is NaN: its values times the model's weights, or its kernel's values, are too "
                "large to be summed; scale the features, in training and here")


class Model(Summary, fitting.Linear):
    """A linear classifier: columns of weights, what they say about the classes, and how they were found.

    Attributes
    ----------
    classes : array of shape (n_classes,)
        bool, integers, floats or str, ascending where `train` made the model; predictions are taken from here.
    codes : int8 array of shape (n_classes, columns) or None
        None: with a column a class the largest score wins; with a single one its sign decides, classes[1] being
        positive. Else each column tells the classes that have +1 there from those that have -1, and has no opinion
        on those with 0: a score above 0 is a vote for each of the former, another score for each of the latter, and
        the class with most votes wins. With one column for each pair of classes this is LIBSVM's voting; such codes of
        more than two classes are not kept, and made anew at each access: `voted` tells whether there are codes.
    coef : float64 array of shape (columns, n_features)
        One row a column of scores. A view of `weights`.
    intercept : float64 array of shape (columns,)
        Weight of the bias feature times its value; zeros without one.
    weights : float64 array of shape (n_features + 1 or n_features, columns)
        As in a model file: one row a feature, the bias feature last.
    bias : float
        Value of the bias feature, negative for none.
    n_features : int
        Features of the training data.
    solver : str
        Name of the method.
    params : dict
        The method's parameters, with those of the run that change the result.
    info : Info or None
        None for a model that another program trained. With scaling its values are those of the scaled rows.
    scaling : marginlinear.data.scaling.Scaling or None
        What is done to rows before they are scored. None for a linear model with params["scale"] = "range" or
        "maxabs": there it is part of the weights and of the bias.
    calibration : marginlinear.calibration.Calibration or None
        How scores become probabilities.
    table : marginlinear.data.columns.TableRule or None
        How columns of a table, whose names and words it keeps, became the features: of a data frame, CSV, TSV, Parquet
        or a store of such. None of other data.
    feature_names : list of str or None
        Their names: of a column, or `column=word`. None without, and where words are hashed.
    multilabel : bool
        Whether a row may have any number of the classes: True of a `MultiLabelModel`.
    """

    multilabel: bool = False

    def __init__(self, weights: ArrayLike, classes: ArrayLike | None, *, bias: float = -1.0,
                 codes: ArrayLike | str | None = None, solver: str = "", params: Mapping[str, Any] | None = None,
                 info: Info | None = None, state: object = None, scaling: Scaling | None = None,
                 calibration: Calibration | None = None, table: TableRule | None = None) -> None:
        self.weights: FloatArray = np.ascontiguousarray(weights, dtype=np.float64)
        # Or Any: who uses labels, or how the fit went, knows that they are there.
        self.classes: AnyArray | Any = None if classes is None else np.asarray(classes)
        self.bias: float = float(bias)
        self.solver = solver
        self.params: dict[str, Any] = dict(params or {})
        self.info: Info | Any = info
        self.scaling: Scaling | None = scaling
        self.calibration: Calibration | Any = calibration
        self.table: TableRule | None = table
        self._state = state
        self._codes: Any = self._checked_codes(codes)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": None}

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        k = 0 if self.classes is None else len(self.classes)
        some = ", ".join(str(label) for label in ([] if self.classes is None else self.classes[:SHOWN].tolist()))
        what = "labels" if self.multilabel else "classes"
        learned = f"{k:,} {what} ({some}{', ...' if k > SHOWN else ''})" if k else "numbers"
        made = f"{type(self).__name__} of {self.solver or 'another program'}"
        lines = [("parameters", listed(self.params))] if self.params else []
        if self.info is not None:
            lines += [("fit", self.info.verdict), ("objective", f"{self.info.objective:.6g}, {self.info.effort}")]
        return f"{made}: {learned} from {counted(self.n_features, 'feature')}", [*lines, ("model", self._size())]

    def _size(self) -> str:
        """What it holds, in a line."""
        parts = [f"{counted(self.columns, 'column')} of weights, {np.count_nonzero(self.weights):,} not 0"]
        return ", ".join(parts + self._extras())

    def _extras(self) -> list[str]:
        extras = [f"bias feature {self.bias:g}"] if self.bias >= 0 else []
        extras += [f"rows scaled by {self.scaling.kind}"] if self.scaling is not None else []
        return extras + ([f"probabilities by {self.calibration.kind}"] if self.calibration is not None else [])

    def _checked_codes(self, codes: Any) -> AnyArray | str | None:
        """The codes that are kept: ONE_AGAINST_ONE, which may be given too, in place of such."""
        columns, k = self.columns, len(self.classes)
        if codes is None:
            if columns != k and not (columns == 1 and k == 2):
                raise ValueError(f"weights have {columns} columns for {k} classes")
            return None
        if isinstance(codes, str):
            if codes != ONE_AGAINST_ONE or columns != one_against_one.column_count(k):
                raise ValueError(f"codes = {codes!r} are not those of {columns} columns for {k} classes")
            return codes
        codes = np.ascontiguousarray(codes, dtype=np.int8)
        if codes.shape != (k, columns) or not np.isin(codes, (-1, 0, 1)).all():
            raise ValueError(f"codes must be -1, 0 or 1, in the shape ({k}, {columns})")
        return ONE_AGAINST_ONE if one_against_one.are_codes(codes) else codes

    @property
    def codes(self) -> Int8Array | None:
        if not self._one_against_one:
            kept: Int8Array | None = self._codes
            return kept
        from marginlinear.data.codes import codes_of

        return codes_of("ovo", len(self.classes), 0)

    @property
    def voted(self) -> bool:
        return self._codes is not None

    @property
    def _one_against_one(self) -> bool:
        return isinstance(self._codes, str)

    @property
    def feature_names(self) -> list[str] | None:
        return None if self.table is None or self.table.hashed is not None else list(self.table.features)

    @property
    def coef(self) -> FloatArray:
        return self.weights[: self.n_features].T

    @property
    def intercept(self) -> FloatArray:
        if self.bias < 0:
            return np.zeros(self.columns)
        constant: FloatArray = self.bias * self.weights[-1]
        return constant

    def decision_function(self, X: MatrixLike, *, threads: Integer | None = None) -> FloatArray:
        """Scores of the rows of X.

        Parameters
        ----------
        X : array or sparse array of shape (m, n_features)
            Or what `libsvm.read_libsvm` returns: the last features of a file need not occur in it, so that it may have
            any number. See `decide`.
        threads : int, optional
            Default: all cores. The result does not depend on it.

        Returns
        -------
        float64 array of shape (m, columns), or (m,) where there is one column
            A column a class, or with `codes` one for each of the binary problems, positive for the classes of +1.

        Raises
        ------
        ValueError
            For an X of another number of features, or what is wrong with it otherwise; names the row of a score that is
            NaN.
        """
        self.require_features(X)
        return self.decide(X, threads=threads)

    def decide(self, X: Any, *, threads: Integer | None = None) -> FloatArray:
        """`decision_function` for an X of any width: missing features count as zero.

        A linear model has no weight for features above n_features, and leaves them out; to a kernel they are part of a
        distance.
        """
        threads = P.THREADS.check(threads) if threads is not None else None
        if is_stored(X):
            return self._by_blocks(X, X.m, lambda block: self.decide(block, threads=threads))
        if self.scaling is None:
            scores = self._scores(X, threads)
        else:
            parts = [self._scores(part, threads) for part in self.scaling.parts(X)]
            scores = np.concatenate(parts) if parts else np.empty((0, self.columns))
        return self._decided(scores)

    def _decided(self, scores: FloatArray) -> FloatArray:
        """The scores as `decision_function` returns them."""
        require_numbers(scores)
        return scores[:, 0] if scores.shape[1] == 1 and not self.joint else scores

    def predict(self, X: MatrixLike, *, threads: Integer | None = None) -> AnyArray:
        """Labels of the rows of X; equal scores or votes go to the class that stands first, a score of 0 to classes[0].
        """
        # The scores of many pairs of classes take far more than the rows.
        size = max(1, SCORES // self.columns)
        if not self.voted or row_count(X) <= size:
            return self.labels_of(self.decision_function(X, threads=threads))
        self.require_features(X)
        return self._by_blocks(X if is_stored(X) else held(X), size,
                               lambda block: self.labels_of(self.decide(block, threads=threads)))

    def labels_of(self, scores: FloatArray) -> AnyArray:
        """Labels for scores as `decision_function` returns them."""
        return self.classes[self.places_of(scores)]

    def places_of(self, scores: FloatArray) -> IntArray:
        """Places in `classes`, int array of shape (m,), for scores as `decision_function` returns them."""
        ranks = self._ranks(scores)
        return ranks.argmax(axis=1) if self.voted or self.joint else (ranks > 0).astype(np.intp)

    def predict_proba(self, X: MatrixLike, *, threads: Integer | None = None) -> FloatArray:
        """Probabilities of the classes for the rows of X, float64 array of shape (m, n_classes).

        Columns in the order of `classes`; the largest of a row is that of the class that `predict` gives.

        Raises ValueError for a model without calibration: train(..., probability=True) makes one.
        """
        self._require_calibration()
        return self.proba_of(self.decision_function(X, threads=threads))

    def proba_of(self, scores: FloatArray) -> FloatArray:
        """Probabilities for scores as `decision_function` returns them."""
        self._require_calibration()
        pairs = self.calibration.kind == calibration.PAIRWISE
        return self.calibration.probabilities(scores if pairs else self._ranks(scores), self.places_of(scores))

    def _require_calibration(self) -> None:
        if self.calibration is None:
            raise ValueError("the model has no calibration, which probabilities need: train it with probability=True")

    def margins(self, X: MatrixLike, y: ArrayLike, *, threads: Integer | None = None) -> FloatArray:
        """Margins of the rows of X, float64 array of shape (m,).

        With a column a class: the score of the label less the largest other score. With one column: y f(x). With
        `codes`: the votes for the label less those for the best other class.

        Raises ValueError for a label that the model does not know, and an X as `decision_function`.
        """
        y = labels_of(y)
        places = self.places_in_classes(y)
        if np.any(unknown := places < 0):
            raise ValueError(f"y: label {y[unknown].tolist()[0]!r} is not among the classes of the model")
        scores = self.decision_function(X, threads=threads)
        if len(places) != len(scores):
            raise ValueError(f"y has {len(places)} labels for {len(scores)} rows")
        return self.margins_of(scores, places)

    def places_in_classes(self, y: ArrayLike) -> IntArray:
        """Places in `classes` of the labels y, int array of shape (m,), -1 for one that is not there.

        Raises ValueError for words where the classes are numbers, and for numbers where they are words.
        """
        y = labels_of(y)
        if (y.dtype.kind == "U") != (self.classes.dtype.kind == "U"):
            words = "words", "numbers"
            ours, theirs = words if y.dtype.kind == "U" else words[::-1]
            raise ValueError(f"y holds {ours}, the model's classes are {theirs}")
        return places_in(self.classes, y)

    def margins_of(self, scores: FloatArray, places: IntArray) -> FloatArray:
        """Margins for scores as `decision_function` returns them and the places of the labels in `classes`."""
        if not self.voted and not self.joint:
            return np.where(places == 1, scores, -scores)
        return margins_of(self._ranks(scores), places.astype(np.int32))

    def _ranks(self, scores: FloatArray) -> FloatArray:
        """What is compared between the classes: their scores, or the votes for them."""
        if not self.voted:
            return scores
        if self._one_against_one:
            return one_against_one.votes(scores, len(self.classes))
        codes: Any = self.codes
        up = (scores.reshape(len(scores), self.columns) > 0).astype(np.float64)
        found: FloatArray = up @ (codes.T > 0).astype(np.float64) + (1 - up) @ (codes.T < 0).astype(np.float64)
        return found

    def ordered_ranks(self, scores: FloatArray) -> FloatArray:
        """What is compared between the classes, for scores as `decision_function` returns them: with `codes` the votes,
        and between equal ones the sums of the scores that gave them, shape (m, n_classes).

            votes_l + s_l / (3 (|s_l| + 1)),    s_l = sum_c codes_lc scores_c

        as scikit-learn's SVC has it: what is added stays within (-1/3, 1/3). Equal votes go to the class that stands
        first, as in `predict`: where the sums say otherwise, its score is raised to just above the largest.
        """
        if not self.voted:
            return scores
        found = self._votes_with_sums(scores)
        predicted, largest = self.places_of(scores), found.max(axis=1)
        lower = np.flatnonzero(found[np.arange(len(found)), predicted] < largest)
        found[lower, predicted[lower]] = np.nextafter(largest[lower], np.inf)
        return found

    def _votes_with_sums(self, scores: FloatArray) -> FloatArray:
        codes: Any = self.codes
        sums = scores @ codes.T.astype(np.float64)
        found: FloatArray = self._ranks(scores) + sums / (3 * (np.abs(sums) + 1))
        return found

    def require_features(self, X: MatrixLike) -> None:
        """ValueError unless X has n_features features. The rows of files are let pass: see `decision_function`."""
        rule = rule_of(X) if is_stored(X) or is_frame(X) else None
        if rule is not None and is_frame(X):
            self.require_columns(rule.features)
        else:
            self.require_table(rule)
        if not is_compressed(X) and (width := shape_of(X)[1]) != self.n_features:
            raise ValueError(f"X has {width} features, the model {self.n_features}: give the columns that it was "
                             "trained on; a file's are load_libsvm(path, n_features=model.n_features)")

    def require_columns(self, names: Sequence[str]) -> None:
        """ValueError unless columns of these names are the features, where the model knows names."""
        known = self.feature_names
        if known is None or list(names) == known:
            return
        there = set(names)
        lacking = next((name for name in known if name not in there), None)
        if lacking is not None:
            raise ValueError(f"X has no column {lacking!r}, which the model was trained on: add it, as "
                             "X.reindex(columns=model.feature_names, fill_value=0) does for words that no row has")
        raise ValueError("X: its columns are not those that the model was trained on, or in another order: give "
                         "X[model.feature_names], or an array of numbers")

    def require_table(self, rule: TableRule | None) -> None:
        """ValueError where a store's columns became other features than those of the model, as far as both know."""
        if rule is not None and self.table is not None and not rule.same_features(self.table):
            raise ValueError("the columns of the store became other features than those that the model was trained on: "
                             "predict the table itself, or make its store by the rule of the training set's, as "
                             "Store.write(source, path, like=store) does")

    def _by_blocks(self, X: Any, size: int, function: Callable[[Any], AnyArray]) -> AnyArray:
        """function(block) of at most `size` rows at a time, one after the other."""
        found = []
        for low, high, block in row_blocks(X, size):
            with renumber_rows(range(low, high)):
                found.append(function(block))
        return np.concatenate(found)

    def _scores(self, X: Any, threads: Any) -> FloatArray:
        rows = as_rows(X, self.bias, self.n_features, threads=threads)
        out = np.empty((rows.m, self.columns))
        rows.require()
        run_chunks(lambda lo, hi: scores_of(rows, self.weights, out, lo, hi), rows.m, threads, rows.share(self.columns))
        return out


class Regression:
    """What models have in common whose one column of scores are predictions, and that have no classes."""

    if TYPE_CHECKING:
        @property
        def columns(self) -> int: ...

        def decision_function(self, X: MatrixLike, *, threads: Integer | None = None) -> FloatArray: ...

    def _checked_codes(self, codes: object) -> None:
        if self.columns != 1 or codes is not None:
            raise ValueError(f"weights have {self.columns} columns: a regression has 1, without codes")
        return None

    def predict(self, X: MatrixLike, *, threads: Integer | None = None) -> FloatArray:
        """Predictions for the rows of X, float64 array of shape (m,): their scores."""
        return self.decision_function(X, threads=threads)

    def places_of(self, scores: object) -> NoReturn:
        raise TypeError(NO_CLASSES)

    def places_in_classes(self, y: object) -> NoReturn:
        raise TypeError(NO_CLASSES)


class RegressionModel(Regression, Model):
    """A linear function of the features, whose values are the predictions: one column of weights, and no classes.

    The attributes are those of `Model`; `classes`, `codes` and `calibration` are None.
    """

    def __init__(self, weights: ArrayLike, classes: ArrayLike | None = None, **rest: Any) -> None:
        if classes is not None:
            raise ValueError(f"classes = {classes!r}: a regression has none")
        super().__init__(weights, None, **rest)


class MultiLabel:
    """What models have in common that tell each label from the rest: a row may have any number of labels."""

    multilabel: bool = True

    if TYPE_CHECKING:
        classes: Any
        calibration: Any

        @property
        def columns(self) -> int: ...

        def decision_function(self, X: MatrixLike, *, threads: Integer | None = None) -> FloatArray: ...

        def decide(self, X: Any, *, threads: Integer | None = None) -> FloatArray: ...

        def require_features(self, X: MatrixLike) -> None: ...

        def _by_blocks(self, X: Any, size: int, function: Callable[[Any], AnyArray]) -> AnyArray: ...

        def _require_calibration(self) -> None: ...

    def _checked_codes(self, codes: object) -> None:
        if self.columns != len(self.classes) or codes is not None:
            raise ValueError(f"weights have {self.columns} columns for {len(self.classes)} labels, without codes")
        return None

    def predict(self, X: MatrixLike, *, threads: Integer | None = None) -> AnyArray:
        """Which labels the rows of X have, int8 array of shape (m, n_labels): 1 where the score is above 0.

        Columns in the order of `classes`.
        """
        size = max(1, SCORES // self.columns)
        if row_count(X) <= size:
            found: AnyArray = self.places_of(self.decision_function(X, threads=threads)).astype(np.int8)
            return found
        self.require_features(X)
        return self._by_blocks(X if is_stored(X) else held(X), size,
                               lambda block: self.places_of(self.decide(block, threads=threads)).astype(np.int8))

    def predict_labels(self, X: MatrixLike, *, threads: Integer | None = None) -> LabelSets:
        """The labels of the rows of X, LabelSets of m rows; `tolist()` makes a list of tuples of them."""
        return LabelSets.of_indicator(self.predict(X, threads=threads) > 0, self.classes)

    def places_of(self, scores: FloatArray) -> Any:
        """bool array of shape (m, n_labels), for scores as `decision_function` returns them."""
        return scores > 0

    def labels_of(self, scores: FloatArray) -> Any:
        """LabelSets for scores as `decision_function` returns them."""
        return LabelSets.of_indicator(self.places_of(scores), self.classes)

    def proba_of(self, scores: FloatArray) -> FloatArray:
        """Probabilities for scores as `decision_function` returns them: of each label by itself."""
        self._require_calibration()
        found: FloatArray = self.calibration.of_each(scores)
        return found

    def places_in_classes(self, y: object) -> NoReturn:
        raise TypeError(NO_PLACES)

    def margins(self, X: object, y: object, *, threads: object = None) -> NoReturn:
        raise TypeError(NO_PLACES)


class MultiLabelModel(MultiLabel, Model):
    """A linear model of rows that have any number of labels: a column of weights each, whose sign decides.

    The attributes are those of `Model`: `classes` are the labels, in the order of y's columns where it was an
    indicator, else ascending; `codes` is None. A label that no training row had has the score -1 for every row, one
    that all had 1.
    """


class KernelModel(Model):
    """A classifier f(x) = sum_i dual_coef_i K(s_i, x) + intercept over support vectors s_i, a column a score.

    Beside the attributes of `Model`:

    Attributes
    ----------
    kernel : marginlinear.data.kernels.Kernel
    support : csr_array or array of shape (n_support, n_features), or int64 array of shape (n_support,)
        The support vectors; for a precomputed kernel their row numbers in the training data. They are grouped by
        class, in the order of `classes`, but with two classes classes[1] first, as in LIBSVM's files. `support_rows`
        are the same, a CSR where they are sparse.
    support_counts : int64 array of shape (n_classes,)
        Support vectors of each class.
    support_indices : int64 array of shape (n_support,) or None
        Their row numbers in the training data; None for a model from a file.
    dual_coef : float64 array of shape (n_support, columns)
        May be given as `weights` are kept; where those are not the same, made anew at each access.
    weights : float64 array of shape (n_support, columns), or (n_support, n_classes - 1) of one against one
        As in a model file: of one against one a support vector's coefficients for the pairs of its own class, in
        LIBSVM's places (see `marginlinear.data.one_against_one`); the others are zeros.
    intercept : float64 array of shape (columns,)
        bias^2 times the sum of dual_coef where `train` made the model: a constant feature of that value adds bias^2
        to the kernel.
    """

    def __init__(self, kernel: Kernel, support: Any, dual_coef: ArrayLike, classes: ArrayLike | None, *,
                 support_counts: ArrayLike, intercept: ArrayLike, n_features: int,
                 support_indices: IntArray | None = None, **rest: Any) -> None:
        self._intercept = np.asarray(intercept, dtype=np.float64)
        super().__init__(dual_coef, classes, **rest)
        self.support_indices = support_indices
        self.kernel: Kernel = kernel
        self.support_rows = support
        self.support_counts: Int64Array = np.asarray(support_counts, dtype=np.int64)
        self._n_features = int(n_features)
        rows = len(support) if isinstance(support, np.ndarray) else shape_of(support)[0]
        if rows != len(self.weights) or self.support_counts.sum() != rows:
            raise ValueError(f"dual_coef has {len(self.weights)} rows, support_counts a sum of "
                             f"{self.support_counts.sum()} for {rows} support vectors")
        if self._one_against_one and not self._packed:
            packed = one_against_one.packed(self.weights, self.support_counts)
            self.weights = self.weights if packed is None else packed
        if not self._packed and self.weights.shape[1] != self.columns:
            raise ValueError(f"dual_coef has {self.weights.shape[1]} columns for {self.columns} intercepts")

    @property
    def columns(self) -> int:
        return len(self._intercept)

    @property
    def _packed(self) -> bool:
        """Whether the weights are those of one against one without their zeros."""
        return self._one_against_one and self.weights.shape[1] == len(self.classes) - 1

    @property
    def n_features(self) -> int:
        return self._n_features

    @property
    def support(self) -> Any:
        return self.support_rows.to_scipy() if isinstance(self.support_rows, CSR) else self.support_rows

    @property
    def n_support(self) -> int:
        """Number of support vectors."""
        return len(self.weights)

    @property
    def dual_coef(self) -> FloatArray:
        return one_against_one.unpacked(self.weights, self.support_counts) if self._packed else self.weights

    @property
    def coef(self) -> NoReturn:
        raise AttributeError("a kernel model has no weights of features: its dual_coef are those of its support "
                             "vectors")

    @property
    def intercept(self) -> FloatArray:
        return self._intercept

    def _size(self) -> str:
        return ", ".join([counted(self.n_support, "support vector"), *self._extras()])

    def require_features(self, X: MatrixLike) -> None:
        # LIBSVM's files do not tell: there n_features is the last feature of a support vector, or none.
        if self.info is not None:
            super().require_features(X)

    def _scores(self, X: Any, threads: Any) -> FloatArray:
        from marginlinear.data.kernels import kernel_scores

        return kernel_scores(self.kernel, X, self.support_rows, self.weights, offset=0.0,
                             threads=threads or default_threads(),
                             pairs_of=self.support_counts if self._packed else None) + self._intercept

    def decide_among(self, points: KernelPoints, trained: IntArray, rows: IntArray) -> FloatArray:
        """`decide` for the `rows` of KernelPoints that know their products: the model is one of those `trained`."""
        from marginlinear.data.kernels import known_scores

        scores = known_scores(self.kernel, points.select(rows), points.select(trained[self.support_indices]),
                              self.weights, pairs_of=self.support_counts if self._packed else None)
        return self._decided(scores + self._intercept)


class KernelRegressionModel(Regression, KernelModel):
    """A function f(x) = sum_i dual_coef_i K(s_i, x) + intercept, whose values are the predictions.

    The attributes are those of `KernelModel`; `classes`, `codes` and `calibration` are None, and `support_counts` has
    one number.
    """


class KernelMultiLabelModel(MultiLabel, KernelModel):
    """The same as a `MultiLabelModel` over a kernel; `support_counts` has one number."""


def require_numbers(scores: FloatArray) -> None:
    """RowError for a row one of whose scores is NaN: it decides for no class."""
    if np.isnan(scores).any():
        raise RowError(int(np.isnan(scores).any(axis=1).argmax()), NOT_A_NUMBER)


def among(labels: AnyArray, fitted: Any) -> tuple[Any, FloatArray | float]:
    """(Fitted of all `labels`, what is to be taken off the intercept of each column).

    A label without rows never wins, and leaves the scores of the others as they are. With codes it has no part in any
    column. Else its column is the mean of the others, and 1 is to be taken off: so it is below the largest of them.
    """
    places = np.searchsorted(labels, fitted.classes)
    if len(places) == len(labels):
        return fitted, 0.0
    if fitted.codes is not None:
        codes = np.zeros((len(labels), fitted.codes.shape[1]), dtype=np.int8)
        codes[places] = fitted.codes
        return fitted._replace(classes=labels, codes=codes), 0.0
    columns = np.asarray(fitted.weights)
    if not fitted.joint:
        columns = np.hstack([-columns, columns]) / 2
    weights = np.repeat(columns.mean(axis=1, keepdims=True), len(labels), axis=1)
    weights[:, places] = columns
    lowered = np.ones(len(labels))
    lowered[places] = 0
    return fitted._replace(classes=labels, weights=weights), lowered


def kernel_model(kernel: Kernel, X: Any, fitted: Any, labels: AnyArray | None, kept: IntArray | None,
                 known: FloatArray | None = None, **rest: Any) -> KernelModel:
    """KernelModel of the rows of X that have a coefficient; `kept` are their numbers in the caller's data. Of a
    regression `labels` are None. `known`, of several labels a row: what is added to the score of each."""
    from marginlinear.data.kernels import take_support

    m = len(fitted.state.y)
    lowered: FloatArray | float = 0.0
    if labels is None or known is not None:
        y, k = np.zeros(m, dtype=np.intp), 1
        lowered = 0.0 if known is None else -known
    else:
        y, k = np.searchsorted(labels, fitted.classes)[fitted.state.y], len(labels)
        fitted, lowered = among(labels, fitted)
    weights = np.asarray(fitted.weights)
    coefficients, offset = weights[:m], weights[m:].sum(axis=0)
    if coefficients.shape[1] == k == 2:
        # Two columns say one thing twice. LIBSVM's file has it once: here too they agree to the last bit.
        half = (coefficients[:, 1:] - coefficients[:, :1]) / 2
        coefficients = np.hstack([-half, half])
    which = np.flatnonzero(coefficients.any(axis=1))
    which = which[np.argsort(-y[which] if k == 2 else y[which], kind="stable")]
    dual_coef = coefficients[which]
    intercept = constant_of(fitted.bias) * dual_coef.sum(axis=0) + offset - lowered
    indices = which if kept is None else kept[which]
    support = indices if kernel.kind == "precomputed" else take_support(kernel, X, which)
    found = fitted._asdict()
    del found["weights"]
    made = KernelRegressionModel if labels is None else KernelModel if known is None else KernelMultiLabelModel
    return made(kernel, support, dual_coef, support_counts=np.bincount(y[which], minlength=k),
                       support_indices=indices,
                       intercept=intercept, **found, **rest)
