"""scikit-learn's LinearSVC, LinearSVR and LogisticRegression."""

import math
import warnings
from numbers import Integral, Real
from types import MappingProxyType

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Hidden, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from marginlinear import registry
from marginlinear.sklearn.base import MarginRegressor, documented, keep
from marginlinear.sklearn.dropins import CLASSES, LARGEST, LINEAR, DropIn, DropInClassifier, as_configured, words

OF_CLASSES = """\
classes_ : array of shape (n_classes,)
    The labels of y, ascending. One whose rows all have weight 0 is never predicted, and changes nothing for the others.
coef_ : {type} array of shape (1, n_features) or (n_classes, n_features)
    One row for two classes. May be changed, assigned or made sparse, and intercept_ assigned: decisions are made of
    them.
intercept_ : {type} array of shape (1,) or (n_classes,){none}"""
LINEAR_WORDS = words(dual="auto", fit_intercept=True, intercept_scaling=1, max_iter=1000, random_state=None,
                     tol=1e-4, verbose=0)
# The method of a loss and a penalty, and the values of dual that scikit-learn combines with them.
OF_LINEAR_SVC = {
    ("hinge", "l2"): ("l1svc", (True,)),
    ("squared_hinge", "l2"): ("l2svc", (True, False)),
    ("squared_hinge", "l1"): ("l1l2svc", (False,)),
}
OF_LINEAR_SVR = {
    "epsilon_insensitive": ("l1svr", (True,)),
    "squared_epsilon_insensitive": ("l2svr", (True, False)),
}


class Linear(DropIn):
    """What those have in common whose constant feature is regularised."""

    def _given(self, X):
        return {"C": self.C, "bias": float(self.intercept_scaling) if self.fit_intercept else -1.0, **self._run()}

    def _describe(self, model, **told):
        super()._describe(model, **told)
        self.intercept_ = np.atleast_1d(self.intercept_) if self.fit_intercept else 0.0


class SparseCoefficients:
    """coef_ that may be kept sparse."""

    def sparsify(self):
        """Make coef_ a sparse CSR matrix, or array where scikit-learn is configured so. Returns self."""
        check_is_fitted(self)
        self.coef_ = as_configured(sparse.csr_array(self.coef_))
        return self

    def densify(self):
        """Make coef_ a dense array again. Returns self."""
        check_is_fitted(self)
        if sparse.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self


@documented
class LinearSVC(SparseCoefficients, Linear, DropInClassifier):
    """scikit-learn's LinearSVC, with a certificate.

    Support vector machines of one class against the others, or of Crammer and Singer.
    """

    method_name = "l2svc"
    own_attributes = OF_CLASSES.format(type="float64", none="\n    With fit_intercept=False the number 0.")
    own_words = MappingProxyType({
        **LINEAR_WORDS, **words(class_weight=None),
        "penalty": ('{"l2", "l1"}, default="l2"', "What is added to the losses: half the squared weights, or the sum "
                    'of their absolute values, of loss="squared_hinge" and dual=False or "auto".'),
        "loss": ('{"squared_hinge", "hinge"}, default="squared_hinge"', "The loss of a margin g: (1 - g)_+^2 or "
                 "(1 - g)_+."),
        "multi_class": ('{"ovr", "crammer_singer"}, default="ovr"', '"crammer_singer" leaves penalty, loss and dual '
                        "aside."),
    })
    _parameter_constraints = MappingProxyType({
        **LINEAR, **CLASSES, "penalty": [StrOptions({"l1", "l2"})], "loss": [StrOptions({"hinge", "squared_hinge"})],
        "multi_class": [StrOptions({"ovr", "crammer_singer"})]})

    def __init__(self, penalty="l2", loss="squared_hinge", *, dual="auto", tol=0.0001, C=1.0, multi_class="ovr",
                 fit_intercept=True, intercept_scaling=1, class_weight=None, verbose=0, random_state=None,
                 max_iter=1000):
        keep(self, locals())

    @property
    def _method(self):
        if self.multi_class == "crammer_singer":
            return registry.get("cs")
        name, duals = OF_LINEAR_SVC.get((self.loss, self.penalty), (None, ()))
        require_combination(self, name, duals, "penalty", "loss")
        return registry.get(name)


@documented
class LinearSVR(Linear, MarginRegressor):
    """scikit-learn's LinearSVR, with a certificate."""

    method_name = "l1svr"
    own_attributes = ("coef_ : float64 array of shape (n_features,)\nintercept_ : float64 array of shape (1,)\n"
                      "    With fit_intercept=False the number 0.")
    own_words = MappingProxyType({
        **LINEAR_WORDS, **words(epsilon=0.0, intercept_scaling=1.0),
        "loss": ('{"epsilon_insensitive", "squared_epsilon_insensitive"}, default="epsilon_insensitive"',
                 "The loss of a residual r: (|r| - epsilon)_+ or its square."),
    })
    _parameter_constraints = MappingProxyType({
        **LINEAR, "epsilon": [Real], "loss": [StrOptions(set(OF_LINEAR_SVR))], "random_state": ["random_state"]})

    def __init__(self, *, epsilon=0.0, tol=0.0001, C=1.0, loss="epsilon_insensitive", fit_intercept=True,
                 intercept_scaling=1.0, dual="auto", verbose=0, random_state=None, max_iter=1000):
        keep(self, locals())

    @property
    def _method(self):
        name, duals = OF_LINEAR_SVR[self.loss]
        require_combination(self, name, duals, "loss")
        return registry.get(name)

    def _given(self, X):
        return {**super()._given(X), "epsilon": self.epsilon}


def require_combination(estimator, name, duals, *parameters):
    """ValueError for what scikit-learn does not combine: no method of this name, or a dual not among `duals`."""
    if name is None or estimator.dual not in (*duals, "auto"):
        given = ", ".join(f"{p}={getattr(estimator, p)!r}" for p in (*parameters, "dual"))
        dual = " or ".join(map(str, duals))
        raise ValueError(f"Unsupported set of arguments: {given}: "
                         + ("give loss='squared_hinge'" if name is None else f"give dual={dual} or 'auto'"))


@documented
class LogisticRegression(SparseCoefficients, DropInClassifier):
    """scikit-learn's LogisticRegression, with a certificate.

    Of more than two classes the multinomial one. The intercept costs nothing, but with solver="liblinear".
    """

    method_name = "logistic"
    own_attributes = OF_CLASSES.format(type="float", none="\n    Like coef_ of the type of X, unless by \"liblinear\".")
    iterations = "n_iter_ : int32 array of shape (1,)\n    Sweeps over the rows, Newton steps included."
    own_words = MappingProxyType({
        **words(class_weight=None, intercept_scaling=1, max_iter=100, random_state=None, verbose=0),
        "C": ("float in (0, inf], default=1.0", "Cost of a unit of loss, next to the penalty. inf is 1e8."),
        "tol": ("float in [0, inf), default=0.0001", "Stop when the certificate is <= tol^2 max(1, |objective|), as "
                "what the objective lacks goes with the square of its gradient. Where max_iter comes first, more than "
                "tol max(1, |objective|) warns."),
        "penalty": ('{"l2", "l1", "elasticnet"} or None, default="deprecated"', "In place of l1_ratio and, None, of "
                    "C=inf; it warns, as scikit-learn 1.10 leaves it out."),
        "l1_ratio": ("float in [0, 1], default=0.0", "r of the penalty r ||w||_1 + (1-r)/2 ||w||^2; above 0 of "
                     'solver="saga", 1 of "liblinear" too.'),
        "dual": ("bool, default=False", 'No effect on the optimum; True only with solver="liblinear" and l1_ratio=0.'),
        "solver": ('{"lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga"}, default="lbfgs"',
                   'No effect on the way to the optimum. "liblinear": of two classes, the intercept is regularised.'),
        "fit_intercept": ("bool, default=True", 'Whether there is an intercept; with solver="liblinear" it is the '
                          "weight of a constant feature, and regularised."),
        "intercept_scaling": ("float in (0, inf), default=1", 'With solver="liblinear" the value of the constant '
                              "feature."),
    })
    _parameter_constraints = MappingProxyType({
        **LINEAR, **CLASSES,
        "penalty": [StrOptions({"l1", "l2", "elasticnet"}), None, Hidden(StrOptions({"deprecated"}))],
        "C": [Interval(Real, 0, None, closed="right")],
        "dual": ["boolean"],
        "l1_ratio": [Interval(Real, 0, 1, closed="both"), None],
        "n_jobs": [None, Integral],
        "solver": [StrOptions({"lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "warm_start": ["boolean"],
    })

    def __init__(self, penalty="deprecated", *, C=1.0, l1_ratio=0.0, dual=False, tol=0.0001, fit_intercept=True,
                 intercept_scaling=1, class_weight=None, random_state=None, solver="lbfgs", max_iter=100, verbose=0,
                 warm_start=False, n_jobs=None):
        keep(self, locals())

    def _checked(self, X, y, sample_weight):
        checked = super()._checked(X, y, sample_weight)
        self._warn_of_deprecated()
        self._dtype = checked[0].dtype
        penalty, _, _ = self._penalty
        if penalty not in ("l2", None) and self.solver not in ("liblinear", "saga"):
            raise ValueError(f"Solver {self.solver} supports only 'l2' or None penalties, got {penalty} penalty: give "
                             "solver='saga', or l1_ratio=0")
        if penalty == "elasticnet" and self.solver != "saga":
            raise ValueError(f"Only 'saga' solver supports elasticnet penalty, got solver={self.solver}: give "
                             "solver='saga', or l1_ratio=1 or 0")
        if self.dual and self.solver != "liblinear":
            raise ValueError(f"Solver {self.solver} supports only dual=False, got dual={self.dual}")
        if self.dual and penalty != "l2":
            raise ValueError(f"Unsupported set of arguments: penalty={penalty!r}, dual={self.dual}: give dual=False")
        if penalty == "elasticnet" and self.l1_ratio is None:
            raise ValueError("l1_ratio must be specified when penalty is elasticnet")
        if penalty is None and self.solver == "liblinear":
            raise ValueError("C=np.inf, or penalty=None is not supported for the liblinear solver: give another one")
        return checked

    def _told(self, y, sample_weight):
        y, told = super()._told(y, sample_weight)
        if self.solver == "liblinear" and len(self.classes_) > 2:
            raise ValueError("The 'liblinear' solver does not support multiclass classification (n_classes >= 3): give "
                             "another one, or OneVsRestClassifier(LogisticRegression(solver='liblinear'))")
        return y, told

    def _warn_of_deprecated(self):
        """As scikit-learn does of parameters that it will leave out."""
        if self.penalty != "deprecated":
            warnings.warn("'penalty' was deprecated in version 1.8 of scikit-learn, which leaves it out in 1.10: give "
                          "l1_ratio, and C=np.inf for penalty=None", FutureWarning, stacklevel=4)
            if self.penalty is None and self.C != 1:
                warnings.warn("Setting penalty=None will ignore the C and l1_ratio parameters", stacklevel=4)
            if self.penalty != "elasticnet" and 0 < (self.l1_ratio or 0) < 1:
                warnings.warn("l1_ratio parameter is only used when penalty is 'elasticnet'. Got (penalty="
                              f"{self.penalty})", stacklevel=4)
            if self.penalty in ("l1", "l2") and self.l1_ratio != (self.penalty == "l1"):
                warnings.warn(f"Inconsistent values: penalty={self.penalty} with l1_ratio={self.l1_ratio}, which is "
                              "left aside", stacklevel=4)
        elif self.l1_ratio is None:
            warnings.warn("'l1_ratio=None' was deprecated in version 1.8 of scikit-learn: give 0", FutureWarning,
                          stacklevel=4)
        if self.n_jobs is not None:
            warnings.warn("'n_jobs' has no effect in scikit-learn since 1.8, which leaves it out in 1.10; here it is "
                          "the number of threads", FutureWarning, stacklevel=4)

    @property
    def _penalty(self):
        """(its name, C, l1_ratio)"""
        penalty, C, ratio = self.penalty, self.C, self.l1_ratio or 0.0
        if penalty == "deprecated":
            penalty = "l2" if ratio == 0 else "l1" if ratio == 1 else "elasticnet"
        elif penalty != "elasticnet":
            ratio = float(penalty == "l1")
        return (None, math.inf, 0.0) if penalty is None or math.inf == C else (penalty, C, ratio)

    @property
    def _certificate(self):
        """A gradient of the size of tol is that far, but for a factor, from the least value."""
        return self.tol * self.tol

    @property
    def _certificate_to_accept(self):
        return self.tol

    @property
    def _leaves_out_negative(self):
        return self.solver == "liblinear"

    @property
    def _method(self):
        several, sparse_weights = len(getattr(self, "classes_", ())) > 2, self._penalty[2] > 0
        return registry.get(("smlr" if sparse_weights else "softmax") if several
                            else "l1lr" if sparse_weights else "logistic")

    def _given(self, X):
        _, C, ratio = self._penalty
        given = {"C": min(C, LARGEST), **self._run(), **({"l1_ratio": ratio} if ratio else {})}
        if self.solver == "liblinear":
            return {**given, "bias": float(self.intercept_scaling) if self.fit_intercept else -1.0}
        return {**given, "free_bias": self.fit_intercept}

    def _describe(self, model, **told):
        super()._describe(model, **told)
        self.n_iter_ = np.array([self.n_iter_], dtype=np.int32)
        if self.solver != "liblinear":
            self.coef_, self.intercept_ = (values.astype(self._dtype) for values in (self.coef_, self.intercept_))
