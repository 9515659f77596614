"""scikit-learn's SVC, SVR, NuSVC, NuSVR and OneClassSVM."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from marginlinear._typing import (
    AnyArray,
    ClassWeight,
    Flag,
    FloatArray,
    GammaChoice,
    Integer,
    IntpArray,
    KernelChoice,
    MatrixLike,
    Number,
    RandomState,
)
from marginlinear.calibration import SIGMOID
from marginlinear.data import one_against_one
from marginlinear.sklearn.base import MarginOutliers, MarginRegressor, documented, gamma_of, keep
from marginlinear.sklearn.dropins import (
    COST,
    EPSILON,
    KERNELS,
    LARGEST,
    NU,
    PAIRS,
    DropIn,
    DropInClassifier,
    as_configured,
    words,
)
from marginlinear.status import fell_short

KERNEL_WORDS = MappingProxyType({
    **words(kernel="rbf", shrinking=True, cache_size=200, verbose=False),
    "max_iter": ("int, default=-1", "Cap on the rounds of steps, many of LIBSVM's iterations each; -1: none."),
    "tol": ("float in (0, inf), default=0.001", "Stop when the certificate is <= tol/100 max(1, |objective|)."),
})
COST_WORDS = {"C": ("float in (0, inf], default=1.0", "Cost of a unit of loss, next to 1/2 ||w||^2. inf is 1e8.")}
CLASS_WORDS = words(class_weight=None, random_state=None, probability="deprecated", decision_function_shape="ovr",
                    break_ties=False)
KERNEL_ATTRIBUTES = """\
dual_coef_ : float64 array of shape ({rows}, n_support)
    Coefficients of the support vectors; a sparse matrix where rows were sparse.{places}
fit_status_ : int
    0; 1 where a limit came first.
n_support_ : int32 array of shape ({counts},)
shape_fit_ : tuple
    Shape of X in `fit`.
support_ : int32 array of shape (n_support,)
    Row numbers of the support vectors.
support_vectors_ : array of shape (n_support, n_features)
    Sparse where rows were; empty with kernel="precomputed" or a callable."""
ONE_COLUMN = """\
coef_ : float64 array of shape (1, n_features)
    With kernel="linear". It may not be changed.
intercept_ : float64 array of shape (1,)"""
PAIRS_OF_CLASSES = """\
classes_ : array of shape (n_classes,)
class_weight_ : float64 array of shape (n_classes,)
    Factors of C.
coef_ : float64 array of shape (n_pairs, n_features)
    With kernel="linear", n_pairs = n_classes (n_classes - 1)/2. It may not be changed; sparse where rows were.
intercept_ : float64 array of shape (n_pairs,)
probA_, probB_ : float64 array of shape (1,)
    Of two classes and with probability=True, P(classes_[1]) = 1/(1 + exp(A f - B))."""
# Parameters of each kernel.
OF_KERNEL = {"poly": ("gamma", "degree", "coef0"), "rbf": ("gamma",), "sigmoid": ("gamma", "coef0")}


class KernelDropIn(DropIn):
    """What all share: a kernel, an offset that costs nothing, support vectors."""

    own_attributes, kernel_attributes = ONE_COLUMN, KERNEL_ATTRIBUTES.format(rows=1, counts=1, places="")
    iterations = "n_iter_ : int\n    Rounds of steps."
    # Parameters of the method's own.
    own: tuple[str, ...] = ()
    dual_coef_: Any
    fit_status_: int
    shape_fit_: tuple[int, ...]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kernel != "precomputed"
        return tags

    @property
    def _certificate(self) -> float:
        """With the default of 1e-3 what LIBSVM leaves, or less."""
        return 0.01 * self.tol

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """With a callable the rows may be anything: what is trained on are its values."""
        given, self._sparse = X, sparse.issparse(X) and not callable(self.kernel)
        if self._sparse and self.kernel == "precomputed":
            raise TypeError("Sparse precomputed kernels are not supported: give X.toarray()")
        if callable(self.kernel):
            check_consistent_length(X, y)
            self._rows, X = X, self._values(X, X)
        X, y, sample_weight = super()._checked(X, y, sample_weight)
        self.shape_fit_ = given.shape if hasattr(given, "shape") else X.shape
        return X, y, sample_weight

    def _checked_rows(self, X: Any) -> Any:
        return super()._checked_rows(self._values(X, self._rows) if callable(self.kernel) else X)

    def _values(self, X: Any, Z: Any) -> FloatArray:
        """The callable's values, a dense array."""
        values = self.kernel(X, Z)
        return np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)

    def _given(self, X: Any) -> dict[str, Any]:
        kernel = "precomputed" if callable(self.kernel) else self.kernel
        given = {name: getattr(self, name) for name in (*self.own, *OF_KERNEL.get(kernel, ()))}
        if "gamma" in given:
            given["gamma"] = gamma_of(self.gamma, X)
        if given.get("C") == math.inf:
            given["C"] = LARGEST
        if kernel != "precomputed":
            given["cache"] = self.cache_size
        return {**given, "kernel": kernel, **self._run()}

    def _describe(self, model: Any, **told: Any) -> None:
        super()._describe(model, **told)
        self.fit_status_ = int(fell_short(model.info.status))
        self.n_support_, self.support_ = (a.astype(np.int32) for a in (self.n_support_, self.support_))
        self.intercept_ = np.array(self.intercept_, ndmin=1)
        if model.kernel.kind == "precomputed":
            self.support_vectors_ = np.empty((0, 0))
        if self._sparse:
            self.support_vectors_ = as_configured(sparse.csr_array(self.support_vectors_))
            self.dual_coef_ = as_configured(sparse.csr_array(self.dual_coef_))

    @property
    def coef_(self) -> Any:  # type: ignore[override]  # read-only, as scikit-learn has it
        """Weights of the features, of kernel="linear", a row for each column of scores; they may not be changed."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is only available when using a linear kernel")
        if not hasattr(self, "dual_coef_"):
            raise AttributeError(f"{type(self).__name__} is not fitted: it has no coef_ yet")
        coef = self._columns() @ self.support_vectors_
        (coef.data if sparse.issparse(coef) else coef).flags.writeable = False
        return coef

    def _columns(self) -> Any:
        """Coefficients of the support vectors, a row for each column of scores."""
        return self.dual_coef_


class PairsOfClasses(KernelDropIn, DropInClassifier):
    """A classifier by pairs of classes."""

    own_attributes = PAIRS_OF_CLASSES
    class_weight_: FloatArray
    kernel_attributes = KERNEL_ATTRIBUTES.format(rows="n_classes - 1", counts="n_classes", places=(
        " Of several\n    classes, those of a class have one for each of the others."))
    iterations = "n_iter_ : int32 array of shape (n_pairs,)\n    Rounds of steps."

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        if self.probability != "deprecated":
            warnings.warn("The `probability` parameter was deprecated in scikit-learn 1.9, which leaves it out in "
                          f"1.11: give CalibratedClassifierCV({type(self).__name__}(), ensemble=False)", FutureWarning,
                          stacklevel=3)
        return super()._checked(X, y, sample_weight)

    def _told(self, y: Any, sample_weight: Any) -> tuple[Any, dict[str, Any]]:
        """Each class needs rows, as there is a column for each pair."""
        y, told = super()._told(y, sample_weight)
        there = np.unique(y if sample_weight is None else y[sample_weight > 0])
        if len(self.classes_) > 1 and len(there) == 1:
            raise ValueError("sample_weight: all samples with positive weights belong to the same class, and two are "
                             "needed")
        if len(there) < len(told["classes"]):
            missing = self.classes_[~np.isin(told["classes"], there)].tolist()[0]
            raise ValueError(f"sample_weight: all samples of class {missing!r} have zero or negative weights: leave "
                             "them out")
        return y, told

    def _class_weights(self, y: Any, sample_weight: Any) -> dict[Any, float]:
        """By label; "balanced" counts rows, whatever they weigh."""
        classes = np.unique(y)
        self.class_weight_ = compute_class_weight(self.class_weight, classes=classes, y=y)
        return dict(zip(classes.tolist(), self.class_weight_.tolist(), strict=True))

    def _given(self, X: Any) -> dict[str, Any]:
        return {**super()._given(X), "multiclass": "ovo", "probability": self._has_probability}

    @property
    def _has_probability(self) -> bool:
        return self.probability != "deprecated" and bool(self.probability)

    def _describe(self, model: Any, **told: Any) -> None:
        super()._describe(model, **told)
        counts = model.info.n_iter if len(self.classes_) == 2 else model._state.state["n_iter"]
        self.n_iter_ = np.array(counts, ndmin=1, dtype=np.int32)

    def _describe_support(self, model: Any, order: slice | IntpArray = slice(None)) -> None:
        """Of several classes with coefficients in LIBSVM's places, one for each other class."""
        super()._describe_support(model, order)
        if len(self.classes_) > 2:
            packed: Any = one_against_one.packed(model.dual_coef, model.support_counts)
            self.dual_coef_ = packed.T

    def _columns(self) -> Any:
        if len(self.classes_) == 2:
            return self.dual_coef_
        packed = self.dual_coef_.toarray() if self._sparse else self.dual_coef_
        columns = one_against_one.unpacked(packed.T, self.n_support_).T
        return as_configured(sparse.csr_array(columns)) if self._sparse else columns

    def decision_function(self, X: MatrixLike) -> FloatArray:
        """Scores of the rows of X.

        Returns
        -------
        float64 array of shape (n_samples,), (n_samples, n_classes) or (n_samples, n_classes (n_classes - 1)/2)
            For two classes one score, above 0 for classes_[1]. With decision_function_shape="ovo" a score for each
            pair of classes, above 0 for the first of the two; with "ovr" the votes of these for each class, and a
            number in (-1/3, 1/3) that grows with their sum.
        """
        if len(getattr(self, "classes_", ())) == 2:
            return super().decision_function(X)
        model, scores = self._scored(X)
        if self.decision_function_shape == "ovo":
            return scores
        return model._votes_with_sums(scores)

    def predict(self, X: MatrixLike) -> AnyArray:
        """Labels of the rows of X, array of shape (n_samples,): see break_ties."""
        check_is_fitted(self)
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        if self.break_ties and len(self.classes_) > 2:
            labels: AnyArray = self.classes_[self.decision_function(X).argmax(axis=1)]
            return labels
        return super().predict(X)

    @property
    def probA_(self) -> FloatArray:
        """Of two classes, A in P(classes_[1]) = 1/(1 + exp(A f - B)), array of shape (1,)."""
        return self._of_sigmoid("probA_", lambda calibration: -calibration.slope)

    @property
    def probB_(self) -> FloatArray:
        """Of two classes, B in P(classes_[1]) = 1/(1 + exp(A f - B)), array of shape (1,)."""
        return self._of_sigmoid("probB_", lambda calibration: calibration.offset)

    def _of_sigmoid(self, name: str, of: Callable[[Any], Any]) -> FloatArray:
        """An array of what a sigmoid's Calibration says; empty without probabilities."""
        if "_trained" not in vars(self):
            raise AttributeError(f"{type(self).__name__} is not fitted: it has no {name} yet")
        warnings.warn(f"Attribute `{name}` was deprecated in scikit-learn 1.9, which leaves it out in 1.11",
                      FutureWarning, stacklevel=3)
        calibration = self._trained.calibration
        if calibration is not None and calibration.kind != SIGMOID:
            raise AttributeError(f"{name} is for two classes: of more, votes have one temperature, "
                                 "model_.calibration.slope, in place of a sigmoid for each pair")
        return np.empty(0) if calibration is None else np.array([of(calibration)])


@documented
class SVC(PairsOfClasses):
    """scikit-learn's SVC, with a certificate.

    The support vector machine with the hinge loss, a kernel and an offset that costs nothing; more than two classes one
    against one.
    """

    method_name = "l1svc"
    own = ("C",)
    own_words = MappingProxyType({**KERNEL_WORDS, **CLASS_WORDS, **COST_WORDS})
    _parameter_constraints = MappingProxyType({**KERNELS, **COST, **PAIRS})

    def __init__(self, *, C: Number = 1.0, kernel: KernelChoice = "rbf", degree: Integer = 3,
                 gamma: GammaChoice = "scale", coef0: Number = 0.0, shrinking: Flag = True,
                 probability: Flag | Literal["deprecated"] = "deprecated", tol: Number = 0.001,
                 cache_size: Number = 200, class_weight: ClassWeight | None = None, verbose: Integer | Flag = False,
                 max_iter: Integer = -1, decision_function_shape: Literal["ovr", "ovo"] = "ovr",
                 break_ties: Flag = False, random_state: RandomState | None = None) -> None:
        keep(self, locals())

    def _given(self, X: Any) -> dict[str, Any]:
        return {**super()._given(X), "free_bias": True}


@documented
class NuSVC(PairsOfClasses):
    """scikit-learn's NuSVC, with a certificate.

    As SVC, nu in place of C. class_weight counts, which LIBSVM leaves aside here.
    """

    method_name = "nusvc"
    own = ("nu",)
    own_words = MappingProxyType({**KERNEL_WORDS, **CLASS_WORDS})
    _parameter_constraints = MappingProxyType({**KERNELS, **NU, **PAIRS})

    def __init__(self, *, nu: Number = 0.5, kernel: KernelChoice = "rbf", degree: Integer = 3,
                 gamma: GammaChoice = "scale", coef0: Number = 0.0, shrinking: Flag = True,
                 probability: Flag | Literal["deprecated"] = "deprecated", tol: Number = 0.001,
                 cache_size: Number = 200, class_weight: ClassWeight | None = None, verbose: Integer | Flag = False,
                 max_iter: Integer = -1, decision_function_shape: Literal["ovr", "ovo"] = "ovr",
                 break_ties: Flag = False, random_state: RandomState | None = None) -> None:
        keep(self, locals())


@documented
class SVR(KernelDropIn, MarginRegressor):
    """scikit-learn's SVR, with a certificate.

    Support vector regression with a kernel and an offset that costs nothing.
    """

    method_name = "l1svr"
    own = ("C", "epsilon")
    own_words = MappingProxyType({**KERNEL_WORDS, **COST_WORDS, **words(epsilon=0.1)})
    _parameter_constraints = MappingProxyType({**KERNELS, **COST, **EPSILON})

    def __init__(self, *, kernel: KernelChoice = "rbf", degree: Integer = 3, gamma: GammaChoice = "scale",
                 coef0: Number = 0.0, tol: Number = 0.001, C: Number = 1.0, epsilon: Number = 0.1,
                 shrinking: Flag = True, cache_size: Number = 200, verbose: Integer | Flag = False,
                 max_iter: Integer = -1) -> None:
        keep(self, locals())

    def _given(self, X: Any) -> dict[str, Any]:
        return {**super()._given(X), "free_bias": True}


@documented
class NuSVR(KernelDropIn, MarginRegressor):
    """scikit-learn's NuSVR, with a certificate.

    As SVR, nu in place of epsilon.
    """

    method_name = "nusvr"
    own = ("C", "nu")
    own_words = MappingProxyType({**KERNEL_WORDS, **COST_WORDS})
    _parameter_constraints = MappingProxyType({**KERNELS, **COST, **NU})

    def __init__(self, *, nu: Number = 0.5, C: Number = 1.0, kernel: KernelChoice = "rbf", degree: Integer = 3,
                 gamma: GammaChoice = "scale", coef0: Number = 0.0, shrinking: Flag = True, tol: Number = 0.001,
                 cache_size: Number = 200, verbose: Integer | Flag = False, max_iter: Integer = -1) -> None:
        keep(self, locals())


@documented
class OneClassSVM(KernelDropIn, MarginOutliers):
    """scikit-learn's OneClassSVM, with a certificate.

    Where the rows are, without labels: 1 there, -1 elsewhere.
    """

    own_attributes = f"{ONE_COLUMN}\noffset_ : float64 array of shape (1,)\n    -intercept_."
    method_name = "oneclass"
    own = ("nu",)
    own_words = KERNEL_WORDS
    _parameter_constraints = MappingProxyType({**KERNELS, **NU})

    def __init__(self, *, kernel: KernelChoice = "rbf", degree: Integer = 3, gamma: GammaChoice = "scale",
                 coef0: Number = 0.0, tol: Number = 0.001, nu: Number = 0.5, shrinking: Flag = True,
                 cache_size: Number = 200, verbose: Integer | Flag = False, max_iter: Integer = -1) -> None:
        keep(self, locals())
