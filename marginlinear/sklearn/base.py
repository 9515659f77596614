"""What the estimators share: parameters as the registry declares them, fit, scores, attributes."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from marginlinear import errors, registry
from marginlinear import params as P
from marginlinear._typing import AnyArray, ArrayLike, FloatArray, GammaChoice, IntArray, IntpArray, MatrixLike, Number
from marginlinear.api import fit_model, warn_unless_converged
from marginlinear.data.arrays import checked
from marginlinear.data.columns import TableRule
from marginlinear.model import KernelModel, Model
from marginlinear.params import Param
from marginlinear.problem import Info, Progress
from marginlinear.registry import Method
from marginlinear.sklearn.callbacks import CallbackSupportMixin, Tasks, with_callbacks

try:
    import joblib
    from scipy import sparse
    from sklearn import exceptions  # pyright: ignore[reportAttributeAccessIssue]
    from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.class_weight import compute_class_weight
    if TYPE_CHECKING:
        # scikit-learn's says nothing of what it decorates.
        def available_if(check: Callable[[Any], bool]) -> Callable[[Function], Function]: ...
    else:
        from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted, validate_data
except ImportError as error:
    # validate_data came with 1.6.
    raise ImportError(f"{errors.needed('marginlinear.sklearn needs scikit-learn 1.6 or newer', 'sklearn')} ({error})",
                      name="sklearn") from error

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")
Estimator = TypeVar("Estimator", bound="MarginEstimator")

# What scikit-learn has its own words for, in place of what the registry declares: the type and default, the meaning.
OWN_WORDS = {
    "fit_intercept": (
        "bool, default=True",
        "Whether a constant feature is added to every row. Its weight is one like others, and regularised. With a "
        "kernel the square of its value is added to the kernel."),
    "intercept_scaling": (
        "float in (0, inf), default=1.0",
        "Value of the constant feature: the larger, the less its weight is regularised."),
    "class_weight": (
        'dict or "balanced", default=None',
        'Factors of C by label; "balanced": inversely proportional to the number of rows of a class, counted by their '
        "sample weights."),
    "gamma": (
        '{"scale", "auto"} or float in (0, inf), default="scale"',
        'Coefficient of poly, rbf and sigmoid. "scale": 1 / (n_features * X.var()), "auto": 1 / n_features.'),
    "random_state": (
        "int, RandomState instance or None, default=0",
        "Seed of the order of the rows. An int gives the same model every time, None a new seed for each fit."),
    "n_jobs": (
        "int, default=None",
        "Threads; -1: all cores, None: 1 unless joblib says otherwise. The result is the same for 1 to 3, and for 4 "
        "and more, which share the sweeps of large fits."),
    "warm_start": (
        "bool, default=False",
        "Whether `fit` goes on from the model of the last one. It does where rows, labels, kernel, intercept and "
        "multiclass are the same: C, tol, weights above 0 and the like may change. Otherwise, and in a copy from a "
        "pickle, it starts anew."),
    "verbose": (
        "bool, default=False",
        "Whether each check of the certificate is printed."),
}
# The other parameters of a run that estimators have, as declared. Their tol is smaller than that of `train`, 1e-4 for
# 1e-3: coefficients are looked at here, and selected by. docs/sklearn.md has the measurement.
RUN_WORDS = "tol", "algorithm", "max_iter", "time_limit", "probability"
PENALTY_WORDS = {
    "penalty": ('{"l2", "l1"}, default="l2"', "What is added to the losses: half the squared weights, or with \"l1\" "
                "the sum of their absolute values, which leaves most of them 0; without kernels."),
    "l1_ratio": ("float in (0, 1], default=1.0", 'Of penalty="l1": r of r ||w||_1 + (1 - r)/2 ||w||^2, the elastic '
                 "net."),
}
KERNEL_WORDS = {p.name: p for p in (*P.KERNELS, P.FREE_BIAS)}
KERNEL_NOTE = (' None: a linear model with weights of features. "precomputed": X is the matrix of kernel values. A '
               "callable gets two blocks of rows and returns the kernel's values for each pair, dense or sparse. "
               "gamma, degree, coef0 and cache are left aside by kernels that do not use them.")

CLASSIFIER_ATTRIBUTES = """\
classes_ : array of shape (n_classes,)
    The labels of y, ascending. One whose rows all have weight 0 is never predicted, and changes nothing for the others.
coef_ : float64 array of shape (1, n_features) or (n_classes, n_features)
    One row for two classes. With multiclass="ovo" or "ecoc" a row for each binary problem. Not with a kernel. May be
    changed or assigned, as may intercept_: decisions are made of them.
intercept_ : float64 array of shape (1,) or (n_classes,)"""

REGRESSOR_ATTRIBUTES = """\
coef_ : float64 array of shape (n_features,)
    May be changed or assigned, as may intercept_: predictions are made of them.
intercept_ : float"""

OUTLIER_ATTRIBUTES = """\
coef_ : float64 array of shape (n_features,)
    Not with a kernel.
intercept_ : float64 array of shape (1,)
offset_ : float64 array of shape (1,)
    -intercept_."""

ITERATIONS = """\
n_iter_ : int
    Sweeps over the rows, Newton steps included."""

ATTRIBUTES = """\
converged_ : bool
objective_ : float
    Value of the objective.
dual_gap_ : float or None
    The certificate: what the objective may be above its least value. None for a method without one.
info_ : marginlinear.Info
    Status, bound, history, seconds and more.
model_ : marginlinear.Model
    To be saved by `marginlinear.save_model`: of coef_ and intercept_ as they are. Where they are not those that were
    trained its info is None, as the certificate is not theirs.
n_features_in_ : int
feature_names_in_ : array of shape (n_features_in_,)
    Where X has column names that are all strings."""

KERNEL_ATTRIBUTES = """\
support_ : int array of shape (n_support,)
    With a kernel: row numbers of the support vectors, class by class.
n_support_ : int array of shape (n_classes,)
    With a kernel: support vectors of each class.
support_vectors_ : array of shape (n_support, n_features)
    With a kernel, unless it is precomputed.
dual_coef_ : float64 array of shape (1, n_support) or (n_classes, n_support)
    With a kernel: coefficients of the support vectors."""


class ConvergenceWarning(exceptions.ConvergenceWarning, errors.ConvergenceWarning):
    """A fit stopped before its certificate reached the tolerance: scikit-learn's warning and marginlinear's at once."""


def one_of_two(columns: FloatArray) -> FloatArray:
    """What speaks for the second of two classes; a row a column of scores, as `coef` has them."""
    return columns[1:] - columns[:1] if len(columns) == 2 else columns


def coef_and_intercept(model: Model) -> tuple[FloatArray, FloatArray]:
    """Those of a linear Model as scikit-learn has them: one row for two classes."""
    coef, intercept = model.coef, model.intercept
    two = model.classes is not None and len(model.classes) == 2
    return (one_of_two(coef), one_of_two(intercept)) if two else (coef, intercept)


def gamma_of(gamma: GammaChoice, X: Any) -> Number:
    """gamma as a number; the words are those of scikit-learn's SVC."""
    if isinstance(gamma, str) and gamma in ("scale", "auto"):
        n_features: int = X.shape[1]
        if gamma == "auto":
            return 1 / n_features
        spread = X.var() if isinstance(X, np.ndarray) else X.multiply(X).mean() - X.mean() ** 2
        return 1 / (n_features * float(spread)) if spread > 0 else 1.0
    if isinstance(gamma, str):
        raise ValueError(f'gamma = {gamma!r} is not allowed: give "scale", "auto" or a number in (0, inf)')
    return gamma


def has_probabilities(estimator: Any) -> bool:
    """Whether its models have probabilities: where they are asked for, and where scores are probabilities anyway."""
    return getattr(estimator, "probability", False) not in (False, "deprecated") or (
        estimator._method.probabilities is not None and getattr(estimator, "multiclass", "ovr") == "ovr")


def one_of(known: Mapping[str, Value], name: str, value: Any) -> Value:
    """known[value]; ValueError for another value of the parameter `name`."""
    if value not in known:
        raise ValueError(f"{name} = {value!r} is not allowed: give {' | '.join(known)}")
    return known[value]


def has_sparse_weights(estimator: Any, *others: str) -> bool:
    """Whether the penalty is "l1", or one of the others that this estimator has; ValueError for what does not go with
    it."""
    known = {"l2": False, "l1": True, **dict.fromkeys(others, True)}
    sparse_weights = one_of(known, "penalty", estimator.penalty)
    if sparse_weights and getattr(estimator, "kernel", None) is not None:
        raise ValueError('penalty = "l1" is for weights of features: it does not go with a kernel')
    return sparse_weights


def seed_of(random_state: Any) -> int:
    """A seed for `train`: an int as it is."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def keep(estimator: Any, given: Mapping[str, Any]) -> None:
    """scikit-learn's rule for __init__: every parameter under its name, as it was given."""
    vars(estimator).update((name, value) for name, value in given.items() if name != "self")


def documented(cls: type[Estimator]) -> type[Estimator]:
    """The class, with its parameters as they are declared in its docstring."""
    if not cls.__doc__:  # python -OO
        return cls
    method = registry.get(cls.method_name)
    declared = {p.name: p for p in (*method.takes, *method.run, P.PROBABILITY)}
    lines = [inspect.cleandoc(cls.__doc__), "", *textwrap.wrap(f"Objective: {method.objective}.", 116), "",
             "Parameters", "----------"]
    for name, parameter in inspect.signature(cls).parameters.items():
        own = cls.own_words.get(name) or OWN_WORDS.get(name)
        kind, words = own or entry(declared[name], parameter.default, method)
        lines += [f"{name} : {kind}", *textwrap.wrap(words, 112, initial_indent="    ", subsequent_indent="    ")]
    lines += ["", "Attributes", "----------", cls.own_attributes, cls.iterations, ATTRIBUTES]
    if "kernel" in inspect.signature(cls).parameters:
        lines.append(cls.kernel_attributes)
    cls.__doc__ = "\n".join([*lines, "", "References", "----------", *textwrap.wrap(method.reference, 112), ""])
    return cls


def entry(param: Param, default: Any, method: Method) -> tuple[str, str]:
    """(type and default, meaning) of a declared parameter, with the default that the signature has."""
    if param.choices:
        choices = method.routes if param.name == P.ALGORITHM.name else (*param.choices, *param.python)
        words = ", ".join(f'"{word}"' for word in choices if word is not callable)
        kind = f"{{{words}}}" + (" or callable" if callable in param.python else "")
    else:
        kind = param.type.__name__ + (f" in {param.domain}" if param.domain else "")
    note = KERNEL_NOTE if param.name == P.KERNEL.name else ""
    return f"{kind}, default={quoted(default)}", f"{sentence(param.help)}.{note}"


def quoted(default: Any) -> Any:
    return f'"{default}"' if isinstance(default, str) else default


def sentence(words: str) -> str:
    """With a capital, unless a symbol comes first."""
    first = words.split()[0]
    return words if len(first) == 1 or not first.isalpha() else words[0].upper() + words[1:]


class MarginEstimator(CallbackSupportMixin, BaseEstimator):  # pyright: ignore[reportGeneralTypeIssues]
    """What all estimators share. A subclass names its method and declares its parameters."""

    method_name = own_attributes = ""
    iterations, kernel_attributes = ITERATIONS, KERNEL_ATTRIBUTES
    # Words for parameters that the registry does not have: name -> (type and default, meaning).
    own_words: Mapping[str, tuple[str, str]] = MappingProxyType({})
    # Whether there is no axis of classes.
    _flat: bool

    # What `fit` finds: see ATTRIBUTES, and those of each kind.
    info_: Info
    # int, or an array in classes that have scikit-learn's name.
    n_iter_: Any
    converged_: bool
    objective_: float
    dual_gap_: float | None
    n_features_in_: int
    feature_names_in_: AnyArray
    coef_: FloatArray
    intercept_: Any
    support_: IntArray
    n_support_: IntArray
    support_vectors_: Any
    dual_coef_: FloatArray
    _trained: Model

    if TYPE_CHECKING:
        # The parameters of a subclass: `keep` makes them attributes.
        def __getattr__(self, name: str) -> Any: ...

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...

        def set_params(self, **params: Any) -> Self: ...

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = getattr(self, "kernel", None) == "precomputed"
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        # The trailing _ of lambda_ would say so before.
        return "_trained" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        # What a warm start needs is in memory only.
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_ground"}

    @property
    def _method(self) -> Method:
        return registry.get(self.method_name)

    @property
    def _threads(self) -> int:
        threads: int = joblib.effective_n_jobs(getattr(self, "n_jobs", None))
        return threads

    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X : array or sparse array of shape (n_samples, n_features)
            float64 or float32; the values of CSR and C-ordered dense arrays are not copied. With kernel="precomputed"
            the kernel's values, of shape (n_samples, n_samples).
        y : array of shape (n_samples,)
            Labels, or the targets of a regression.
        sample_weight : array of shape (n_samples,), default=None
            Factors of C of the rows: a weight of 2 is a row given twice, one of 0 a row left out.

        Returns
        -------
        self
        """
        model, params = self._fit(X, y, sample_weight)
        if not self.converged_:
            self._warn(model.info, params)
        return self

    @with_callbacks
    def _fit(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, dict[str, Any]]:
        """(the Model that this becomes, what `train` was given)"""
        X, y, sample_weight = self._checked(X, y, sample_weight)
        y, told = self._told(y, sample_weight)
        method, params = self._method, self._given(X)
        ground = self._ground_of(X, y, sample_weight, params) if getattr(self, "warm_start", False) else None
        start = self._trained if ground is not None and ground == getattr(self, "_ground", None) else None
        tasks = Tasks(self, X, y, sample_weight, told) if hasattr(self, "_skl_callbacks") else None
        observers = [observer for observer in (self._tell if self.verbose else None, tasks) if observer is not None]
        model = fit_model(X, y, solver=method.name, sample_weight=sample_weight, start=start,
                          callback=(lambda check: any([observer(check) for observer in observers])) if observers
                          else None, **told, **params)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and getattr(self, "kernel", None) != "precomputed":
            model.table = TableRule(None, tuple(names.tolist()))
        self._take(model, ground, told)
        if tasks is not None:
            tasks.end(model)
        return model, params

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """What `fit` was given, as `train` takes it."""
        X, y = validate_data(self, checked(X), y, accept_sparse="csr", dtype=[np.float64, np.float32], order="C",
                             y_numeric=isinstance(self, RegressorMixin))
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        return X, y, sample_weight

    @property
    def model_(self) -> Model:
        check_is_fitted(self)
        trained = self._trained
        if isinstance(trained, KernelModel):
            return trained
        coef, intercept = found = self._coef_and_intercept()
        # They may have been rounded to another type.
        of_trained = (values.astype(getattr(own, "dtype", np.float64))
                      for own, values in zip((self.coef_, self.intercept_), coef_and_intercept(trained), strict=True))
        if all(map(np.array_equal, found, of_trained)):
            return trained
        return type(trained)(np.vstack([coef.T, intercept]), trained.classes, bias=1.0, codes=trained.codes,
                             solver=trained.solver, params=trained.params, calibration=trained.calibration,
                             table=trained.table)

    def _scored(self, X: MatrixLike) -> tuple[Model, FloatArray]:
        """(Model that turns scores into predictions and probabilities, scores of the rows of X as it takes them)."""
        check_is_fitted(self)
        X = self._checked_rows(X)
        intercept: float | FloatArray
        model, intercept, threads = self._trained, 0.0, self._threads
        if not isinstance(model, KernelModel):
            coef, intercept = self._coef_and_intercept()
            model = type(model)(coef.T, model.classes, codes=model.codes, calibration=model.calibration)
        return model, model.decision_function(X, threads=threads) + intercept

    def _checked_rows(self, X: Any) -> Any:
        """Rows to be scored, as the model takes them."""
        return validate_data(self, checked(X), accept_sparse="csr", dtype=[np.float64, np.float32], order="C",
                             reset=False)

    def _coef_and_intercept(self) -> tuple[FloatArray, FloatArray]:
        """coef_ and intercept_ as they are, in float64 and with a row a column of scores: whoever has changed them has
        to have kept their shapes."""
        given: Any = self.coef_
        coef = given.toarray() if sparse.issparse(given) else given
        coef, intercept = (np.asarray(values, dtype=np.float64) for values in (coef, self.intercept_))
        columns = len(coef_and_intercept(self._trained)[0])
        shape = (columns, self._trained.n_features)[self._flat:]
        if coef.shape != shape or intercept.shape not in ((), (columns,)):
            raise ValueError(f"coef_ has shape {coef.shape}, intercept_ {intercept.shape}: {shape} and ({columns},) "
                             "are needed")
        return coef.reshape(columns, -1), np.broadcast_to(intercept, columns)

    def _given(self, X: Any) -> dict[str, Any]:
        """Keywords of `train`, but for those that `fit` makes itself."""
        own = {p.name: p for p in self._method.takes}
        given = {name: value for name in (*own, *RUN_WORDS) if (value := getattr(self, name, None)) is not None}
        for p in own.values():
            # Where one parameter stands in place of another, the default of that one is left aside.
            if p.replaces and p.name in given and given.get(p.replaces) == own[p.replaces].default:
                given.pop(p.replaces, None)
        kernel = given.get("kernel")
        if kernel is not None:
            kernel = P.KERNEL.check(kernel)
        given = {p: value for p, value in given.items()
                 if p not in KERNEL_WORDS or P.is_used(KERNEL_WORDS[p], {"kernel": kernel})}
        if "gamma" in given:
            given["gamma"] = gamma_of(given["gamma"], X)
        scaling = getattr(self, "intercept_scaling", 1.0)
        if not (isinstance(scaling, (int, float, np.number)) and 0 < scaling < np.inf):
            raise ValueError(f"intercept_scaling = {scaling!r} is not allowed: give a number in (0, inf)")
        # Machines with an offset of their own have no such feature, and not this parameter.
        fit_intercept = getattr(self, "fit_intercept", False)
        free = given.pop("free_bias", False) and fit_intercept
        bias = float(scaling) if fit_intercept and not free else -1.0
        return {**given, **({"free_bias": True} if free else {}), "bias": bias, "seed": seed_of(self.random_state),
                "threads": self._threads}

    def _ground_of(self, X: Any, y: Any, sample_weight: Any, params: Mapping[str, Any]) -> tuple[Any, ...]:
        """What must be the same for a warm start."""
        kept = None if sample_weight is None or (sample_weight > 0).all() else sample_weight > 0
        space = {name: params.get(name) for name in ("bias", "free_bias", "kernel", "gamma", "degree", "coef0",
                                                      "multiclass")}
        if space["multiclass"] == "ecoc":
            space["seed"] = params["seed"]
        return joblib.hash((X, y, kept)), self._method.name, space

    def _take(self, model: Any, ground: Any, told: Any) -> None:
        """Become what a fit has found."""
        self._trained, self._ground = model, ground
        self._describe(model, **told)

    def _describe(self, model: Any, **told: Any) -> None:
        """scikit-learn's attributes of a model that was told so of y."""
        info = model.info
        self.info_, self.n_iter_, self.converged_ = info, info.n_iter, info.converged
        self.objective_, self.dual_gap_ = info.objective, info.certificate
        for name in ("coef_", "support_", "n_support_", "support_vectors_", "dual_coef_"):
            self.__dict__.pop(name, None)
        if not isinstance(model, KernelModel):
            # Copies: a warm start goes on from the model as it was trained.
            self.coef_, self.intercept_ = map(np.array, coef_and_intercept(model))

    def _describe_support(self, model: Any, order: slice | IntpArray = slice(None)) -> None:
        """Those of a kernel model, its support vectors in this order."""
        self.n_support_, self.support_ = model.support_counts, model.support_indices[order]
        self.dual_coef_, self.intercept_ = model.dual_coef[order].T, model.intercept
        if model.kernel.kind != "precomputed":
            self.support_vectors_ = model.support[order]

    def _warn(self, info: Info, params: Mapping[str, Any]) -> None:
        """Where `fit` was called: how it ended, if that is due."""
        warn_unless_converged(self._method, info, params.get("kernel"), ConvergenceWarning)

    def _tell(self, check: Progress) -> None:
        criterion = "residual" if check.certificate is None else "certificate"
        print(f"{type(self).__name__}: {check.n_iter} sweeps, objective {check.objective:.6g}, "
              f"{criterion} {getattr(check, criterion):.3g}, {check.seconds:.1f} s")


class MarginClassifier(ClassifierMixin, MarginEstimator):  # pyright: ignore[reportGeneralTypeIssues]
    """What the classifiers share."""

    own_attributes = CLASSIFIER_ATTRIBUTES
    classes_: AnyArray
    intercept_: FloatArray
    _flat = False

    def decision_function(self, X: MatrixLike) -> FloatArray:
        """Scores of the rows of X.

        Parameters
        ----------
        X : array or sparse array of shape (n_samples, n_features)
            With kernel="precomputed" the kernel's values of its rows and of all rows that were trained on.

        Returns
        -------
        float64 array of shape (n_samples,) or (n_samples, n_classes)
            For two classes one score, above 0 for classes_[1]; otherwise a column a class, the largest wins. With
            multiclass="ovo" or "ecoc" these are the votes of the binary problems, and a number in (-1/3, 1/3) that
            grows with the sum of the scores for the class.
        """
        model, scores = self._scored(X)
        if len(self.classes_) == 2:
            return one_of_two(scores.T)[0] if scores.ndim == 2 else scores
        return model.ordered_ranks(scores)

    def predict(self, X: MatrixLike) -> AnyArray:
        """Labels of the rows of X, array of shape (n_samples,)."""
        model, scores = self._scored(X)
        return self.classes_[model.places_of(scores)]

    @available_if(has_probabilities)
    def predict_proba(self, X: MatrixLike) -> FloatArray:
        """Probabilities of the classes: float64 array of shape (n_samples, n_classes).

        With probability=True, or of a method whose scores are probabilities. Columns in the order of classes_; the
        largest is that of the class that `predict` gives. NotFittedError where probability was False in `fit`.
        """
        model, scores = self._scored(X)
        if model.calibration is None:
            raise exceptions.NotFittedError("predict_proba is not available when fitted with probability=False: fit "
                                            "again")
        return model.proba_of(scores)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: MatrixLike) -> FloatArray:
        """Logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def _told(self, y: Any, sample_weight: Any) -> tuple[Any, dict[str, Any]]:
        """(y, what `train` is told of it beside)"""
        check_classification_targets(y)
        return y, {"classes": np.unique(y), "class_weight": self._class_weights(y, sample_weight)}

    def _class_weights(self, y: Any, sample_weight: Any) -> Any:
        """class_weight as `train` takes it: a dict has the labels that weigh something."""
        class_weight = getattr(self, "class_weight", None)
        if class_weight is None or isinstance(class_weight, str):
            return class_weight
        classes, codes = np.unique(y, return_inverse=True)
        factors = compute_class_weight(self.class_weight, classes=classes, y=y)
        there = np.bincount(codes, weights=sample_weight) > 0
        return dict(zip(classes[there].tolist(), factors[there].tolist(), strict=True))

    def _describe(self, model: Any, **told: Any) -> None:
        super()._describe(model)
        self.classes_ = told["classes"]
        if not isinstance(model, KernelModel):
            return
        two = len(self.classes_) == 2
        # LIBSVM's files begin with classes_[1] of two.
        self._describe_support(model, np.roll(np.arange(model.n_support), model.support_counts[0]) if two
                               else slice(None))
        if two:
            self.dual_coef_, self.intercept_ = one_of_two(self.dual_coef_), one_of_two(self.intercept_)


class MarginRegressor(RegressorMixin, MarginEstimator):  # pyright: ignore[reportGeneralTypeIssues]
    """What the regressions share."""

    own_attributes = REGRESSOR_ATTRIBUTES
    _flat = True

    def predict(self, X: MatrixLike) -> FloatArray:
        """Predictions for the rows of X, float64 array of shape (n_samples,)."""
        return self._scored(X)[1]

    def _told(self, y: Any, sample_weight: Any) -> tuple[Any, dict[str, Any]]:
        return y, {}

    def _describe(self, model: Any, **told: Any) -> None:
        super()._describe(model)
        if isinstance(model, KernelModel):
            self._describe_support(model)
        else:
            self.coef_ = self.coef_[0]
        self.intercept_ = float(self.intercept_[0])


class MarginOutliers(OutlierMixin, MarginEstimator):  # pyright: ignore[reportGeneralTypeIssues]
    """What those share that learn where the rows are, without labels."""

    own_attributes = OUTLIER_ATTRIBUTES
    intercept_: FloatArray
    offset_: FloatArray
    _flat = True

    def fit(self, X: MatrixLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train on the rows of X, as others have it; y is not looked at. Returns self."""
        return super().fit(X, y, sample_weight)

    def decision_function(self, X: MatrixLike) -> FloatArray:
        """Scores of the rows of X, float64 array of shape (n_samples,): above 0 where rows are."""
        return self._scored(X)[1]

    def score_samples(self, X: MatrixLike) -> FloatArray:
        """`decision_function` without its offset."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: MatrixLike) -> IntpArray:
        """1 where rows are, -1 elsewhere: int array of shape (n_samples,)."""
        return np.where(self._scored(X)[1] > 0, 1, -1).astype(np.intp)

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        return super()._checked(X, np.ones(_num_samples(X)), sample_weight)

    def _told(self, y: Any, sample_weight: Any) -> tuple[Any, dict[str, Any]]:
        return y, {}

    def _describe(self, model: Any, **told: Any) -> None:
        super()._describe(model)
        if isinstance(model, KernelModel):
            self._describe_support(model)
            self.n_support_ = self.n_support_.sum(keepdims=True)
        else:
            self.coef_ = self.coef_[0]
        self.offset_ = -self.intercept_
