"""What scikit-learn's own classes need to be replaced: their parameters, checked as they check them, and what they do
with labels and weights."""

from numbers import Integral, Real
from types import MappingProxyType

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.utils._param_validation import Hidden, Interval, StrOptions

from marginlinear.data.labels import word_fault
from marginlinear.sklearn.base import MarginClassifier, quoted, seed_of
from marginlinear.status import ROUNDING, STALLED, allowance

UNCAPPED = 2**31 - 1
# The least tolerance of a certificate.
LEAST = 1e-12
# C in place of inf: where an optimum of C=inf exists, this C leaves no other, but for rounding, and certificates can
# still tell.
LARGEST = 1e8

LINEAR = {
    "C": [Interval(Real, 0, None, closed="neither")],
    "dual": ["boolean", StrOptions({"auto"})],
    "fit_intercept": ["boolean"],
    "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
    "max_iter": [Interval(Integral, 0, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="neither")],
    "verbose": ["verbose"],
}
KERNELS = {
    "cache_size": [Interval(Real, 0, None, closed="neither")],
    "coef0": [Interval(Real, None, None, closed="neither")],
    "degree": [Interval(Integral, 0, None, closed="left")],
    "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="left")],
    "kernel": [StrOptions({"linear", "poly", "rbf", "sigmoid", "precomputed"}), callable],
    "max_iter": [Interval(Integral, -1, None, closed="left")],
    "shrinking": ["boolean"],
    "tol": [Interval(Real, 0, None, closed="neither")],
    "verbose": ["verbose"],
}
COST = {"C": [Interval(Real, 0, None, closed="right")]}
EPSILON = {"epsilon": [Interval(Real, 0, None, closed="left")]}
NU = {"nu": [Interval(Real, 0, 1, closed="right")]}
CLASSES = {"class_weight": [StrOptions({"balanced"}), dict, None], "random_state": ["random_state"]}
PAIRS = {
    **CLASSES,
    "break_ties": ["boolean"],
    "decision_function_shape": [StrOptions({"ovr", "ovo"})],
    "probability": ["boolean", Hidden(StrOptions({"deprecated"}))],
}

WORDS = {
    "break_ties": ("bool", "Whether `predict` gives the class of the largest score, of decision_function_shape="
                   '"ovr"; otherwise that of most votes, the first of equal ones.'),
    "cache_size": ("float in (0, inf)", "Megabytes for rows of the kernel's Gram matrix."),
    "class_weight": ('dict or "balanced"', 'Factors of C by label; "balanced": inversely proportional to the number of '
                     "rows of a class."),
    "decision_function_shape": ('{"ovr", "ovo"}', 'Of more than two classes "ovr" has a score a class, "ovo" a score a '
                                "pair of classes."),
    "dual": ('"auto" or bool', "No effect on the optimum. What scikit-learn does not combine with it is refused."),
    "epsilon": ("float in [0, inf)", "Half-width of the band of residuals that cost nothing."),
    "fit_intercept": ("bool", "Whether a constant feature is added to every row. Its weight is one like others, and "
                      "regularised."),
    "intercept_scaling": ("float in (0, inf)", "Value of the constant feature: the larger, the less its weight is "
                          "regularised."),
    "kernel": ('{"linear", "poly", "rbf", "sigmoid", "precomputed"} or callable', "A callable is given X and the rows "
               "that were trained on, and returns the kernel's values. gamma, degree and coef0 are left aside by "
               "kernels that do not use them."),
    "max_iter": ("int", "Cap on the sweeps over the rows, Newton steps included."),
    "probability": ("bool", "Whether there is `predict_proba`, by five more fits. True or False warns, as "
                    "scikit-learn 1.11 leaves it out."),
    "random_state": ("int, RandomState instance or None", "Seed of the order of the rows. None is 0: equal calls give "
                     "equal models."),
    "shrinking": ("bool", "No effect on the optimum."),
    "tol": ("float in (0, inf)", "Stop when the certificate is <= tol max(1, |objective|)."),
    "verbose": ("int or bool", "Whether each check of the certificate is printed."),
}


def words(**defaults):
    """Those of WORDS for parameters of these defaults."""
    return MappingProxyType({name: (f"{WORDS[name][0]}, default={quoted(default)}", WORDS[name][1])
                             for name, default in defaults.items()})


class DropIn:
    """What goes before MarginEstimator: a class in the place of one of scikit-learn's."""

    def _checked(self, X, y, sample_weight):
        self._validate_params()
        X, y, sample_weight = super()._checked(X, y, sample_weight)
        return X, y, without_negative(sample_weight) if self._leaves_out_negative else sample_weight

    @property
    def _leaves_out_negative(self):
        """Whether weights of rows below 0 are as 0; they are refused otherwise."""
        return True

    @property
    def _certificate(self):
        """What the certificate has to reach, as a part of the objective."""
        return self.tol

    @property
    def _certificate_to_accept(self):
        """What is no reason for a warning, where a limit came first."""
        return self._certificate

    def _run(self):
        """Keywords of `train` that all have."""
        random_state = getattr(self, "random_state", None)
        return {"tol": max(LEAST, self._certificate),
                "max_iter": UNCAPPED if self.max_iter == -1 else max(1, self.max_iter),
                "seed": 0 if random_state is None else seed_of(random_state), "threads": self._threads}

    def _describe(self, model, **told):
        """Where no step helps beyond rounding, a tol that asks for more has no part in converged_."""
        super()._describe(model, **told)
        info = model.info
        enough = max(self._certificate_to_accept, ROUNDING if info.status == STALLED else 0.0)
        self.converged_ = info.converged or 0 <= info.certificate <= allowance(enough, info.objective)


class DropInClassifier(DropIn, MarginClassifier):
    """One that has labels of any kind: those that no model's file could hold are numbers, 0 to k - 1, in `model_`."""

    def _checked(self, X, y, sample_weight):
        """A class whose weight is 0 is left out, as rows of weight 0 are."""
        X, y, sample_weight = super()._checked(X, y, sample_weight)
        if isinstance(self.class_weight, dict):
            without = [label for label, factor in self.class_weight.items() if factor == 0]
            if without:
                sample_weight = np.where(np.isin(y, without), 0.0, 1.0 if sample_weight is None else sample_weight)
        return X, y, sample_weight

    def _told(self, y, sample_weight):
        y, told = super()._told(y, sample_weight)
        self.classes_ = labels = told["classes"]
        if labels.dtype.kind not in "biuf" and not all(isinstance(one, str) and not word_fault(one) for one in labels):
            places = {label: place for place, label in enumerate(labels.tolist())}
            y, told["classes"] = np.searchsorted(labels, y), np.arange(len(labels))
            if isinstance(told["class_weight"], dict):
                told["class_weight"] = {places[label]: factor for label, factor in told["class_weight"].items()}
        return y, told

    def _describe(self, model, **told):
        labels = self.classes_
        super()._describe(model, **told)
        self.classes_ = labels


def without_negative(sample_weight):
    """Weights of rows, those below 0 as 0: LIBLINEAR and LIBSVM leave out such rows."""
    if sample_weight is not None and not (sample_weight > 0).any():
        raise ValueError("sample_weight: all samples have zero or negative weights, so that no row is left")
    return None if sample_weight is None else np.maximum(sample_weight, 0.0)


def as_configured(X):
    """A sparse array, or the sparse matrix of it, as scikit-learn's configuration says: matrices unless told."""
    if get_config().get("sparse_interface", "spmatrix") == "sparray":
        return X
    return sparse.csr_matrix(X)
