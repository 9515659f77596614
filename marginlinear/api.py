"""train, Model, save_model, load_model: the library's face."""

import sys
import threading
import warnings
from typing import Any, NamedTuple

import numpy as np

from marginlinear import calibration, fitting, oneagainstone, registry
from marginlinear import params as P
from marginlinear._core.scores import margins_of, places_of, require_numbers, scores_of
from marginlinear.arrays import (
    CSR,
    as_rows,
    held,
    is_compressed,
    row_blocks,
    row_count,
    select_columns,
    select_rows,
    select_square,
    shape_of,
)
from marginlinear.canonical import merged
from marginlinear.fitting import require_memory, resolved
from marginlinear.folds import stratified_folds
from marginlinear.labels import labels_of, require_words
from marginlinear.problem import ConvergenceWarning, Problem, numbered
from marginlinear.shortfall import fell_short, keyword, shortfall
from marginlinear.threads import default_threads, in_order, run_chunks

ONE_AGAINST_ONE = "ovo"  # in place of codes
SCORES = 1 << 22  # numbers that labels are made of at a time
BALANCED = "balanced"


class Model(fitting.Linear):
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
    scaling : marginlinear.scaling.Scaling or None
        What is done to rows before they are scored. None for a linear model with params["scale"] = "range" or
        "maxabs": there it is part of the weights and of the bias.
    calibration : marginlinear.calibration.Calibration or None
        How scores become probabilities.
    """

    def __init__(self, weights, classes, *, bias=-1.0, codes=None, solver="", params=None, info=None, state=None,
                 scaling=None, calibration=None):
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        self.classes = np.asarray(classes)
        self.bias = float(bias)
        self.solver = solver
        self.params = dict(params or {})
        self.info = info
        self.scaling = scaling
        self.calibration = calibration
        self._state = state
        self._codes = self._checked_codes(codes)

    def __getstate__(self):
        return {**self.__dict__, "_state": None}

    def _checked_codes(self, codes):
        """The codes that are kept: ONE_AGAINST_ONE, which may be given too, in place of such."""
        columns, k = self.columns, len(self.classes)
        if codes is None:
            if columns != k and not (columns == 1 and k == 2):
                raise ValueError(f"weights have {columns} columns for {k} classes")
            return None
        if isinstance(codes, str):
            if codes != ONE_AGAINST_ONE or columns != oneagainstone.column_count(k):
                raise ValueError(f"codes = {codes!r} are not those of {columns} columns for {k} classes")
            return codes
        codes = np.ascontiguousarray(codes, dtype=np.int8)
        if codes.shape != (k, columns) or not np.isin(codes, (-1, 0, 1)).all():
            raise ValueError(f"codes must be -1, 0 or 1, in the shape ({k}, {columns})")
        return ONE_AGAINST_ONE if oneagainstone.are_codes(codes) else codes

    @property
    def codes(self):
        if not self._one_against_one:
            return self._codes
        from marginlinear.methods.multiclass import codes_of

        return codes_of("ovo", len(self.classes), 0)

    @property
    def voted(self):
        return self._codes is not None

    @property
    def _one_against_one(self):
        return isinstance(self._codes, str)

    @property
    def coef(self):
        return self.weights[: self.n_features].T

    @property
    def intercept(self):
        if self.bias < 0:
            return np.zeros(self.columns)
        return self.bias * self.weights[-1]

    def decision_function(self, X, *, threads=None):
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

    def decide(self, X, *, threads=None):
        """`decision_function` for an X of any width: missing features count as zero.

        A linear model has no weight for features above n_features, and leaves them out; to a kernel they are part of a
        distance.
        """
        threads = P.THREADS.check(threads) if threads is not None else None
        if self.scaling is None:
            scores = self._scores(X, threads)
        else:
            parts = [self._scores(part, threads) for part in self.scaling.parts(X)]
            scores = np.concatenate(parts) if parts else np.empty((0, self.columns))
        require_numbers(scores)
        return scores[:, 0] if scores.shape[1] == 1 and not self.joint else scores

    def predict(self, X, *, threads=None):
        """Labels of the rows of X; equal scores or votes go to the class that stands first, a score of 0 to classes[0].
        """
        # The scores of many pairs of classes take far more than the rows.
        size = max(1, SCORES // self.columns)
        if not self.voted or row_count(X) <= size:
            return self.labels_of(self.decision_function(X, threads=threads))
        self.require_features(X)
        found = []
        for low, high, block in row_blocks(held(X), size):
            with numbered(range(low, high)):
                found.append(self.labels_of(self.decide(block, threads=threads)))
        return np.concatenate(found)

    def labels_of(self, scores):
        """Labels for scores as `decision_function` returns them."""
        return self.classes[self.places_of(scores)]

    def places_of(self, scores):
        """Places in `classes`, int array of shape (m,), for scores as `decision_function` returns them."""
        ranks = np.ascontiguousarray(self._ranks(scores), dtype=np.float64)
        places = np.empty(len(ranks), dtype=np.int32)
        # By one rule with margin-predict, which has no array of scores.
        places_of(ranks if ranks.ndim == 2 else ranks[:, np.newaxis], not self.voted and not self.joint, places)
        return places

    def predict_proba(self, X, *, threads=None):
        """Probabilities of the classes for the rows of X, float64 array of shape (m, n_classes).

        Columns in the order of `classes`; the largest of a row is that of the class that `predict` gives.

        Raises ValueError for a model without calibration: train(..., probability=True) makes one.
        """
        self._require_calibration()
        return self.proba_of(self.decision_function(X, threads=threads))

    def proba_of(self, scores):
        """Probabilities for scores as `decision_function` returns them."""
        self._require_calibration()
        pairs = self.calibration.kind == calibration.PAIRWISE
        return self.calibration.probabilities(scores if pairs else self._ranks(scores), self.places_of(scores))

    def _require_calibration(self):
        if self.calibration is None:
            raise ValueError("the model has no calibration, which probabilities need: train it with probability=True")

    def margins(self, X, y, *, threads=None):
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

    def places_in_classes(self, y):
        """Places in `classes` of the labels y, int array of shape (m,), -1 for one that is not there.

        Raises ValueError for words where the classes are numbers, and for numbers where they are words.
        """
        y = labels_of(y)
        if (y.dtype.kind == "U") != (self.classes.dtype.kind == "U"):
            words = "words", "numbers"
            ours, theirs = words if y.dtype.kind == "U" else words[::-1]
            raise ValueError(f"y holds {ours}, the model's classes are {theirs}")
        return places_in(self.classes, y)

    def margins_of(self, scores, places):
        """Margins for scores as `decision_function` returns them and the places of the labels in `classes`."""
        if not self.voted and not self.joint:
            return np.where(places == 1, scores, -scores)
        return margins_of(self._ranks(scores), places.astype(np.int32))

    def _ranks(self, scores):
        """What is compared between the classes: their scores, or the votes for them."""
        if not self.voted:
            return scores
        if self._one_against_one:
            return oneagainstone.votes(scores, len(self.classes))
        up = (scores.reshape(len(scores), -1) > 0).astype(np.float64)
        return up @ (self.codes.T > 0).astype(np.float64) + (1 - up) @ (self.codes.T < 0).astype(np.float64)

    def require_features(self, X):
        """ValueError unless X has n_features features. The rows of files are let pass: see `decision_function`."""
        if not is_compressed(X) and (width := shape_of(X)[1]) != self.n_features:
            raise ValueError(f"X has {width} features, the model {self.n_features}: give the columns that it was "
                             "trained on; a file's are load_libsvm(path, n_features=model.n_features)")

    def _scores(self, X, threads):
        rows = as_rows(X, self.bias, self.n_features)
        out = np.empty((rows.m, self.columns))
        run_chunks(lambda lo, hi: scores_of(rows, self.weights, out, lo, hi), rows.m, threads, rows.slice(self.columns))
        return out


class KernelModel(Model):
    """A classifier f(x) = sum_i dual_coef_i K(s_i, x) + intercept over support vectors s_i, a column a score.

    Beside the attributes of `Model`:

    Attributes
    ----------
    kernel : marginlinear.kernels.Kernel
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
        LIBSVM's places (see `marginlinear.oneagainstone`); the others are zeros.
    intercept : float64 array of shape (columns,)
        bias^2 times the sum of dual_coef where `train` made the model: a constant feature of that value adds bias^2
        to the kernel.
    """

    def __init__(self, kernel, support, dual_coef, classes, *, support_counts, intercept, n_features,
                 support_indices=None, **rest):
        self._intercept = np.asarray(intercept, dtype=np.float64)
        super().__init__(dual_coef, classes, **rest)
        self.support_indices = support_indices
        self.kernel = kernel
        self.support_rows = support
        self.support_counts = np.asarray(support_counts, dtype=np.int64)
        self._n_features = int(n_features)
        rows = len(support) if isinstance(support, np.ndarray) else shape_of(support)[0]
        if rows != len(self.weights) or self.support_counts.sum() != rows:
            raise ValueError(f"dual_coef has {len(self.weights)} rows, support_counts a sum of "
                             f"{self.support_counts.sum()} for {rows} support vectors")
        if self._one_against_one and not self._packed:
            packed = oneagainstone.packed(self.weights, self.support_counts)
            self.weights = self.weights if packed is None else packed
        if not self._packed and self.weights.shape[1] != self.columns:
            raise ValueError(f"dual_coef has {self.weights.shape[1]} columns for {self.columns} intercepts")

    @property
    def columns(self):
        return len(self._intercept)

    @property
    def _packed(self):
        """Whether the weights are those of one against one without their zeros."""
        return self._one_against_one and self.weights.shape[1] == len(self.classes) - 1

    @property
    def n_features(self):
        return self._n_features

    @property
    def support(self):
        return self.support_rows.to_scipy() if isinstance(self.support_rows, CSR) else self.support_rows

    @property
    def n_support(self):
        """Number of support vectors."""
        return len(self.weights)

    @property
    def dual_coef(self):
        return oneagainstone.unpacked(self.weights, self.support_counts) if self._packed else self.weights

    @property
    def coef(self):
        raise AttributeError("a kernel model has no weights of features: its dual_coef are those of its support "
                             "vectors")

    @property
    def intercept(self):
        return self._intercept

    def require_features(self, X):
        # LIBSVM's files do not tell: there n_features is the last feature of a support vector, or none.
        if self.info is not None:
            super().require_features(X)

    def _scores(self, X, threads):
        from marginlinear.kernels import kernel_scores

        return kernel_scores(self.kernel, X, self.support_rows, self.weights, offset=0.0,
                             threads=threads or default_threads(),
                             pairs_of=self.support_counts if self._packed else None) + self._intercept


def train(X, y, *, solver=None, classes=None, class_weight=None, sample_weight=None, start=None, progress=None,
          probability=False, scale=None, **params):
    """Train a linear or a kernel classifier.

    Parameters
    ----------
    X : array or sparse array of shape (m, n)
        The values of float64 and float32 CSR and of C-ordered dense arrays are used as they are, read-only memory maps
        included; other types and layouts are converted. Indices and indptr of a CSR are copied, 4 and 8 bytes each,
        unless their memory is read-only, so that nobody can change them during the fit. Also what `libsvm.read_libsvm`
        returns. With kernel="precomputed" the symmetric matrix of the kernel's values, of shape (m, m).
    y : array of shape (m,)
        Labels: bools, integers, other numbers, or strings of one word; at least two different ones. Others are refused,
        as neither a model file nor one of predictions could hold them.
    solver : str
        Name of a method, or LIBLINEAR's number for it. Default "mcodm".
    classes : array of shape (n_classes,), optional
        The labels that the model is to know; those of y must be among them, and at least two must have rows. Others are
        never predicted, and change nothing for those that have rows: their score is the mean of the other columns less
        1, or with `codes` they get no vote. By default the labels of the rows that are not left out.
    class_weight : dict or "balanced", optional
        Label -> positive factor of C. "balanced": sum of all rows' weights/(classes times that of the class's rows),
        as scikit-learn's LinearSVC has it.
    sample_weight : array of shape (m,), optional
        Factor of C of each row, finite and >= 0; a row of weight 0 is left out, and its label too where no other row
        has it.
    start : Model, optional
        A model that `train` made of the same rows, with the same method and kernel: training goes on from it.
    progress : callable, optional
        Called with a dict (n_iter, seconds, objective, bound, certificate, residual) at every check; what the method
        does not have is None there. In the fits of `probability` the dict also has the number of the fold and
        how many there are (fold, folds); with several threads they call from theirs, one at a time.
    probability : bool
        Whether to fit a calibration (`predict_proba`) on the scores of stratified 5-fold cross-validation: 5 more
        fits, on threads. The weights are the same without it. Two classes need two different rows each; of more, those
        with one row are learned from in all folds and not scored. Votes are what is calibrated where they decide, with
        multiclass="ovo" and "ecoc". Softmax needs no fits: its scores are log-probabilities.
    scale : {"range", "maxabs", "unit"}, optional
        How to scale the rows, here and in predictions. "range" takes each feature's least and largest value to 0
        and 1, and leaves out constant ones; "maxabs" divides by its largest absolute value, so that zeros stay zeros;
        "unit" divides each row by its Euclidean length. The first two become part of a linear model's weights, and of
        its bias; what `bias` says is then the value of the bias feature beside the scaled ones. Sparse rows stay
        sparse, but for the features whose least value in "range" is not 0; where those are half of all, or more, rows
        become dense.
    **params
        The method's parameters and those of every run, as `margin-train --help` lists them: C, tol, bias, seed,
        threads, max_iter, time_limit, algorithm, ... Two of them take more than there:

        multiclass : {"ovr", "ovo", "ecoc"}
            How a binary method learns more than two classes; see `Model.codes` for how the last two decide.
        kernel : {"linear", "poly", "rbf", "sigmoid", "precomputed"}, 0 to 3 for the first four, or callable
            With gamma (default 1/n), degree and coef0 as in LIBSVM; one that the kernel does not use is an error. A
            callable gets two blocks of rows, of the type of X, and returns the kernel's values for each pair, dense or
            sparse. `bias` adds its square to the kernel.

    Returns
    -------
    Model
        A `KernelModel` with a kernel.

    Raises
    ------
    ValueError
        Names the parameter, its value and its domain, or what is wrong with X, y or the weights.
    TypeError
        For a parameter that the method does not have, and for a progress, or class_weight, of another type.
    MemoryError
        For weights, or a cache of kernel rows, that are larger than the machine, and zeros that would take a quarter
        of it in "range": before they are asked for.

    Warns
    -----
    ConvergenceWarning
        When the certificate, or the residual of a method without one, did not reach the tolerance.

    Notes
    -----
    Where rows times (features + 2) are at most 131,072, and without a kernel, equal rows of one class become one row of
    their summed weight, in an order that their content gives: the model, bit for bit, does not depend on the order of
    the rows, nor on whether a row is repeated or has a weight. `Info.n_support` then counts such rows once. The folds
    of `probability` are made of such rows too, with a kernel as well.

    A binary method takes a copy of a sparse X of more than 65,536 features, as large as X at most, for the time of the
    fit: frequent features side by side, those that occur in one row only as one. X itself is never changed.
    """
    return fit_model(X, y, ConvergenceWarning, solver=solver, classes=classes, class_weight=class_weight,
                     sample_weight=sample_weight, start=start, progress=progress, probability=probability, scale=scale,
                     **params)


def fit_model(X, y, warning=None, *, solver=None, classes=None, class_weight=None, sample_weight=None, start=None,
              progress=None, cancel=None, gram=None, spend=False, probability=False, scale=None, **params):
    """`train`, with a category for the warning that a fit did not converge; None: no warning.

    `cancel` as in Run, for fits on one thread. `gram` is a LastGram that several fits on the same X share. spend: X may
    be overwritten, as nothing else reads it any more.
    """
    method = registry.get(registry.DEFAULT if solver is None else solver)
    values, run_values = resolved(method, params)
    P.check_function("progress", progress)
    around = P.resolve(P.AROUND, {"probability": probability, "scale": scale})
    given = values.get("kernel") == "precomputed"
    if given and around["scale"]:
        raise ValueError(f"scale = {scale!r} is for features: a precomputed kernel has none")
    data, y, factors, kept = training_data(X, y, sample_weight, square=given, spend=spend)
    width = shape_of(X)[1]
    fitting.require_features(width, values, run_values)
    found, codes = np.unique(y, return_inverse=True)
    fitting.require_classes(method, found, "y" if kept is None else "y, its rows of weight 0 left out,")
    labels = found if classes is None else labels_with(found, classes)
    codes = codes.astype(np.int32)
    factor = (np.broadcast_to(1.0, len(codes)) if class_weight is None
              else class_factors(class_weight, found, np.bincount(codes, factors))[codes])
    sample = Sample(data, codes, factors, factor, kept)
    fit = Fit(labels, method, values, run_values, found, width, around["scale"])
    folded = None
    if around["probability"] and not method.probabilistic:
        folded = sample if given else sample.merged()
        require_pairs(found, folded.y)
    model = fit.model(sample, start, progress, cancel, gram=gram, spend=spend and folded is None)
    if folded is not None:
        model.calibration = fit.calibration(folded, progress, cancel)
    elif around["probability"]:
        model.calibration = calibration.of_softmax(len(labels))
    if warning is not None:
        warn_unless_converged(method, model.info, values.get("kernel"), warning)
    return model


class Sample(NamedTuple):
    """Checked rows: X, classes 0..k-1, instance weights, factors of C, and their numbers in the caller's data, or None.
    """

    X: Any
    y: Any
    instance: Any
    factor: Any
    kept: Any

    def select(self, which, square):
        X = select_square(self.X, which) if square else select_rows(self.X, which)
        return Sample(X, self.y[which], self.instance[which], self.factor[which], None)

    def merged(self):
        """The same with equal rows of a class as one of their summed weight, where they are few; see `canonical`."""
        found = merged(as_rows(self.X, -1.0), self.y, self.instance)
        if found is None:
            return self
        which, instance = map(np.asarray, found)
        return self.select(which, square=False)._replace(instance=instance)


class Fit(fitting.Fit):
    """A fit that makes a Model of a Sample; the model knows all `labels`, of which the fit's classes are some."""

    def __init__(self, labels, *fit):
        super().__init__(*fit)
        self.labels = labels

    def model(self, sample, start=None, progress=None, cancel=None, threads=None, gram=None, spend=False):
        X, bias, kernel = sample.X, self.bias, self.kernel
        scaling = None
        if self.scale is not None:
            from marginlinear.scaling import learned

            scaling = learned(self.scale, X)
            X = scaling.apply(X)
        with numbered(sample.kept):
            if kernel is None:
                rows = as_rows(X, bias, given=spend)
                self.check(rows)
            else:
                require_memory(self.columns, len(sample.y), "rows")
                rows = (gram or LastGram()).rows(kernel, X, bias, self.values["cache"],
                                                 threads or self.run_values["threads"])
        problem = Problem(rows, sample.y, len(self.classes), sample.instance, sample.factor)
        fitted = self.fitted(problem, start, progress, cancel, threads, spend)
        if kernel is not None:
            return kernel_model(kernel, X, fitted, self.labels, sample.kept, n_features=self.width, scaling=scaling)
        fitted, lowered = among(self.labels, fitted)
        if scaling is not None and scaling.linear:
            weights, bias = scaling.folded(np.asarray(fitted.weights), bias)
            fitted, scaling = fitted._replace(weights=weights, bias=bias), None
        model = Model(**fitted._asdict(), scaling=scaling)
        if np.any(lowered):
            model.weights, model.bias = np.vstack([model.coef.T, model.intercept - lowered]), 1.0
        return model

    def calibration(self, sample, progress, cancel=None):
        """The Calibration by models of all folds but one and their scores of that one: folds run on threads."""
        square = self.values.get("kernel") == "precomputed"
        scored = np.flatnonzero(in_pairs(sample.y)[sample.y])
        folds = min(calibration.FOLDS, len(scored))
        fold_of = np.full(len(sample.y), -1)
        fold_of[scored] = stratified_folds(sample.y[scored], folds, self.run_values["seed"])
        threads = min(folds, self.run_values["threads"])
        # A lone thread is the caller's, which looks at the signals itself.
        cancel = threading.Event() if cancel is None and threads > 1 else cancel
        lock = threading.Lock()

        def work(fold):
            """(rows, what is compared between the classes there) of a fold."""
            inside, outside = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)

            def tell(check):
                with lock:
                    progress({"fold": fold + 1, "folds": folds, **check})

            try:
                model = self.model(sample.select(inside, square), progress=progress and tell, cancel=cancel,
                                   threads=1 if threads > 1 else None)
            except ValueError as error:
                raise ValueError(f"{error} (in fold {fold + 1} of {folds} of the calibration)") from error
            X = select_rows(sample.X, outside)
            return outside, model._ranks(model.decide(select_columns(X, inside) if square else X, threads=1))

        ranks = None
        for outside, found in in_order(work, folds, threads, cancel):
            if ranks is None:
                ranks = np.empty((len(sample.y), *found.shape[1:]))
            ranks[outside] = found
        places = np.searchsorted(self.labels, self.classes)
        return calibration.fit(ranks[scored], places[sample.y[scored]], sample.instance[scored], len(self.labels))


def require_pairs(classes, codes):
    """ValueError unless both of two classes, or one of more, can be scored."""
    found = in_pairs(codes)
    if not (found.all() if len(classes) == 2 else found.any()):
        which = "each" if len(classes) == 2 else "a"
        raise ValueError(f"probability needs at least 2 different rows of {which} class: label "
                         f"{classes[np.argmin(found)]} has 1")


def in_pairs(codes):
    """Whether a class has two rows, one to learn from, the other to be scored: bool array of shape (k,)."""
    return np.bincount(codes) > 1


class LastGram:
    """Rows in a kernel's feature space, kept for the next fit on the same X; of another kernel they are made anew."""

    def __init__(self):
        self._kept = self._rows = None

    def rows(self, kernel, X, bias, cache, threads):
        """Rows of X: a constant feature, the bias, adds its square to all inner products."""
        from marginlinear.kernels import gram_rows

        wanted = kernel.kind, kernel.gamma, kernel.degree, kernel.coef0, constant_of(bias), cache
        if wanted != self._kept:
            # The old ones go before there are others: both may not fit into memory.
            self._kept = self._rows = None
            self._rows = gram_rows(kernel, X, shape_of(X)[1], offset=constant_of(bias), cache=cache, threads=threads)
            self._kept = wanted
        return self._rows


def constant_of(bias):
    """What the bias feature adds to the kernel."""
    return bias * bias if bias >= 0 else 0.0


def labels_with(found, classes):
    """`classes`, ascending; ValueError unless the labels `found` are among them."""
    labels = np.unique(labels_of(classes, "classes"))
    require_words(labels.tolist(), "classes")
    if np.any(other := ~np.isin(found, labels)):
        raise ValueError(f"classes: label {found[other].tolist()[0]!r} of y is not among them")
    return labels


def among(labels, fitted):
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


def kernel_model(kernel, X, fitted, labels, kept, **rest):
    """KernelModel of the rows of X that have a coefficient; `kept` are their numbers in the caller's data."""
    from marginlinear.kernels import take_support

    y = np.searchsorted(labels, fitted.classes)[fitted.state.y]
    fitted, lowered = among(labels, fitted)
    coefficients, k = np.asarray(fitted.weights), len(labels)
    if coefficients.shape[1] == k == 2:
        # Two columns say one thing twice. LIBSVM's file has it once: here too they agree to the last bit.
        half = (coefficients[:, 1:] - coefficients[:, :1]) / 2
        coefficients = np.hstack([-half, half])
    which = np.flatnonzero(coefficients.any(axis=1))
    which = which[np.argsort(-y[which] if k == 2 else y[which], kind="stable")]
    dual_coef = coefficients[which]
    indices = which if kept is None else kept[which]
    support = indices if kernel.kind == "precomputed" else take_support(kernel, X, which)
    found = fitted._asdict()
    del found["weights"]
    return KernelModel(kernel, support, dual_coef, support_counts=np.bincount(y[which], minlength=k),
                       support_indices=indices,
                       intercept=constant_of(fitted.bias) * dual_coef.sum(axis=0) + 0.0 - lowered, **found, **rest)


def warn_unless_converged(method, info, kernel, category=ConvergenceWarning):
    """A warning where it is due."""
    if fell_short(info.status):
        warnings.warn(f"{method.name} did not converge {shortfall(info, method, keyword, kernel)}", category,
                      stacklevel=4)


def class_factors(class_weight, classes, sizes):
    """Factor of C of each class, float64 array of shape (k,); `sizes` are the sums of their rows' weights."""
    if isinstance(class_weight, str) and class_weight == BALANCED:
        return sizes.sum() / (len(classes) * sizes)
    factors = np.ones(len(classes))
    for label, factor in check_class_weight(class_weight).items():
        number = isinstance(factor, (int, float, np.integer, np.floating)) and not isinstance(factor, bool)
        if not (number and np.isfinite(factor) and factor > 0):
            raise ValueError(f"class_weight[{label!r}] = {factor!r} is not allowed: give a number in (0, inf)")
        # Label by label: NumPy would compare a tuple with all of them.
        at = [place for place, known in enumerate(classes.tolist()) if known == label]
        if not at:
            warnings.warn(f"class label {label} specified in weight is not found", UserWarning, stacklevel=4)
        factors[at] = factor
    return factors


def check_class_weight(class_weight):
    """The dict, "balanced" or None that was given; TypeError or ValueError for anything else."""
    if class_weight is None or isinstance(class_weight, dict):
        return class_weight
    wrong = ValueError if isinstance(class_weight, str) else TypeError
    if wrong is ValueError and class_weight == BALANCED:
        return class_weight
    raise P.refusal("class_weight", class_weight, 'a dict of labels and factors, or "balanced"', wrong)


def places_in(classes, y):
    """Places in `classes`, in any order, of the labels y, int array of shape (m,), -1 for one that is not there."""
    places = np.searchsorted(classes, y, sorter=(order := np.argsort(classes)))
    places = order[np.minimum(places, len(order) - 1)]
    return np.where(classes[places] == y, places, -1)


def training_data(X, y, sample_weight, square=False, spend=False):
    """(X as `held` has it, y, instance weights, numbers of the rows kept): checked, without the rows of weight 0.

    Numbers None: all rows are kept. In a `square` X, a Gram matrix, the columns stand for the rows too. spend: X may be
    overwritten, as nothing else reads it any more.
    """
    # Where numpy.ma, which takes its time to import, is not there yet, nothing is masked.
    if "numpy.ma" in sys.modules and (np.ma.isMaskedArray(X) or np.ma.isMaskedArray(y)):
        raise ValueError("X and y must not be masked arrays: the mask would be lost; fill or drop what is masked")
    X, y = held(X, spend), labels_of(y)
    m, n = shape_of(X)
    if len(y) != m:
        raise ValueError(f"X has {m} rows, y has {len(y)} labels")
    if m == 0:
        raise ValueError("X has no rows")
    if square and n != m:
        raise ValueError(f"X has {m} rows and {n} columns: a precomputed kernel is the square matrix of "
                         "the rows' inner products")
    if sample_weight is None:
        return X, y, np.broadcast_to(1.0, m), None
    factors = row_weights(sample_weight, m)
    kept = np.flatnonzero(factors > 0)
    if len(kept) == m:
        return X, y, factors, None
    if not len(kept):
        raise ValueError("sample_weight is zero for all rows")
    return select_square(X, kept) if square else select_rows(X, kept), y[kept], factors[kept], kept


def row_weights(sample_weight, m):
    """The weights of m rows as a float64 array of their own; ValueError unless they are finite and >= 0."""
    try:
        factors = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight: numbers are needed: {error}") from None
    if factors.shape != (m,):
        raise ValueError(f"sample_weight has shape {factors.shape}, X has {m} rows")
    wrong = ~(np.isfinite(factors) & (factors >= 0))
    if wrong.any():
        i = np.flatnonzero(wrong)[0]
        raise ValueError(f"sample_weight[{i}] = {factors[i]} is not allowed: give a number in [0, inf)")
    return factors
