"""Estimators for scikit-learn (extra `[sklearn]`, scikit-learn 1.6 or newer).

    from marginlinear.sklearn import MCODMClassifier

    MCODMClassifier(C=10).fit(X, y).score(X_test, y_test)

SVC, SVR, NuSVC, NuSVR, OneClassSVM, LinearSVC, LinearSVR and LogisticRegression are scikit-learn's, to be imported from
here in their places: the same parameters, attributes and optimum.

They train by `marginlinear.train`: with the same tol, and fit_intercept=False or bias=1 there, both give the same model
bit for bit, and so does `margin-train`. Linear decisions are made of `coef_` and `intercept_`, as everywhere in
scikit-learn: who changes them changes scores, predictions, margins and what is saved. `model_` is the model that they
are.
"""

from marginlinear.sklearn.base import ConvergenceWarning
from marginlinear.sklearn.estimators import (
    CrammerSingerClassifier,
    ISM3Classifier,
    LDMClassifier,
    LogisticClassifier,
    LpMCSVMClassifier,
    M3SVMClassifier,
    MAMCClassifier,
    MCODMClassifier,
    MSVClassifier,
    MSVMAvClassifier,
    NuSVMClassifier,
    NuSVMRegressor,
    ODMClassifier,
    OneClassDetector,
    RMMClassifier,
    SoftmaxClassifier,
    SVMClassifier,
    SVMRegressor,
    TopKClassifier,
    WestonWatkinsClassifier,
)
from marginlinear.sklearn.libsvm import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from marginlinear.sklearn.linear import LinearSVC, LinearSVR, LogisticRegression
from marginlinear.sklearn.path import LinearMarginCV

__all__ = [
    "SVC",
    "SVR",
    "ConvergenceWarning",
    "CrammerSingerClassifier",
    "ISM3Classifier",
    "LDMClassifier",
    "LinearMarginCV",
    "LinearSVC",
    "LinearSVR",
    "LogisticClassifier",
    "LogisticRegression",
    "LpMCSVMClassifier",
    "M3SVMClassifier",
    "MAMCClassifier",
    "MCODMClassifier",
    "MSVClassifier",
    "MSVMAvClassifier",
    "NuSVC",
    "NuSVMClassifier",
    "NuSVMRegressor",
    "NuSVR",
    "ODMClassifier",
    "OneClassDetector",
    "OneClassSVM",
    "RMMClassifier",
    "SVMClassifier",
    "SVMRegressor",
    "SoftmaxClassifier",
    "TopKClassifier",
    "WestonWatkinsClassifier",
]
