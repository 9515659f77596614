"""An estimator for each paper, and for the machines that they are compared with."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from marginlinear import registry
from marginlinear._typing import (
    ClassWeight,
    Flag,
    GammaChoice,
    HingeLoss,
    Integer,
    KernelChoice,
    Multiclass,
    Number,
    Penalty,
    RandomState,
    ResidualLoss,
    Route,
)
from marginlinear.registry import Method
from marginlinear.sklearn.base import (
    PENALTY_WORDS,
    MarginClassifier,
    MarginRegressor,
    documented,
    has_sparse_weights,
    keep,
    one_of,
)


@documented
class MCODMClassifier(MarginClassifier):
    """Multi-class optimal margin distribution machine (mcODM).

    All classes are trained at once. Margins are drawn to 1 from both sides, those within theta of it cost nothing: a
    good first choice for more than two classes.
    """

    method_name = "mcodm"

    def __init__(self, *, C: Number = 1.0, lambda_: Number | None = None, mu: Number = 0.8, theta: Number = 0.2,
                 outer: Literal["ccp", "paper"] = "ccp", max_outer: Integer | None = None, restarts: Integer = 1,
                 kernel: KernelChoice | None = None, gamma: GammaChoice = "scale", degree: Integer = 3,
                 coef0: Number = 0.0, cache: Number | None = None, fit_intercept: Flag = True,
                 intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None, tol: Number = 0.0001,
                 algorithm: Route = "auto", max_iter: Integer = 20_000, time_limit: Number | None = None,
                 probability: Flag = False, random_state: RandomState | None = 0, n_jobs: Integer | None = None,
                 warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class LDMClassifier(MarginClassifier):
    """Large margin distribution machine (LDM).

    The support vector machine with the mean of the margins raised and their variance lowered. A binary method: see
    multiclass.
    """

    method_name = "ldm"

    def __init__(self, *, C: Number = 1.0, lambda1: Number = 0.25, lambda2: Number = 0.25,
                 multiclass: Multiclass = "ovr", kernel: KernelChoice | None = None, gamma: GammaChoice = "scale",
                 degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None, fit_intercept: Flag = True,
                 intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None, tol: Number = 0.0001,
                 algorithm: Route = "auto", max_iter: Integer = 20_000, time_limit: Number | None = None,
                 probability: Flag = False, random_state: RandomState | None = 0, n_jobs: Integer | None = None,
                 warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class ODMClassifier(MarginClassifier):
    """Optimal margin distribution machine (ODM).

    Margins are drawn to 1 from both sides, those within theta of it cost nothing. A binary method: see multiclass.
    """

    method_name = "odm"

    def __init__(self, *, C: Number = 1.0, lambda_: Number | None = None, mu: Number = 0.8, theta: Number = 0.2,
                 multiclass: Multiclass = "ovr", kernel: KernelChoice | None = None, gamma: GammaChoice = "scale",
                 degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None, free_bias: Flag = False,
                 fit_intercept: Flag = True, intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None,
                 tol: Number = 0.0001, algorithm: Route = "auto", max_iter: Integer = 20_000,
                 time_limit: Number | None = None, probability: Flag = False, random_state: RandomState | None = 0,
                 n_jobs: Integer | None = None, warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class MSVMAvClassifier(MarginClassifier):
    """Least semi-variance and largest average of the margins, by turns (MSVMAv).

    It minimises no one objective: dual_gap_ is None, and a fit may end by max_iter, with a ConvergenceWarning. Class
    weights are weights of rows. A binary method: see multiclass.
    """

    method_name = "msvmav"

    def __init__(self, *, alpha: Number | None = None, beta: Number | None = None, multiclass: Multiclass = "ovr",
                 kernel: KernelChoice | None = None, gamma: GammaChoice = "scale", degree: Integer = 3,
                 coef0: Number = 0.0, cache: Number | None = None, fit_intercept: Flag = True,
                 intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None, tol: Number = 1e-08,
                 max_iter: Integer = 100, time_limit: Number | None = None, probability: Flag = False,
                 random_state: RandomState | None = 0, n_jobs: Integer | None = None, warm_start: Flag = False,
                 verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class LogisticClassifier(MarginClassifier):
    """Logistic regression.

    The objective of LogisticRegression, trained to a certificate. It has probabilities whatever probability says, but
    for multiclass="ovo" and "ecoc". With penalty="l1" most weights are 0. A binary method: see multiclass.
    """

    method_name = "logistic"
    own_words = MappingProxyType(PENALTY_WORDS)

    def __init__(self, *, C: Number = 1.0, penalty: Penalty = "l2", l1_ratio: Number = 1.0,
                 multiclass: Multiclass = "ovr", kernel: KernelChoice | None = None, gamma: GammaChoice = "scale",
                 degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None, free_bias: Flag = False,
                 fit_intercept: Flag = True, intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None,
                 tol: Number = 0.0001, algorithm: Route = "auto", max_iter: Integer = 20_000,
                 time_limit: Number | None = None, probability: Flag = False, random_state: RandomState | None = 0,
                 n_jobs: Integer | None = None, warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())

    @property
    def _method(self) -> Method:
        return registry.get("l1lr" if has_sparse_weights(self) else "logistic")


@documented
class M3SVMClassifier(MarginClassifier):
    """Multi-class support vector machine with maximised minimum margins (M3SVM).

    All classes are trained at once; the regulariser is of the distances between their weights, so that the narrowest
    margin between two classes counts most.
    """

    method_name = "m3svm"

    def __init__(self, *, C: Number | None = None, lambda_: Number | None = None, norm: Number = 4.0,
                 eps: Number = 1e-06, delta: Number = 0.001, fit_intercept: Flag = True,
                 intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None, tol: Number = 0.0001,
                 max_iter: Integer = 20_000, time_limit: Number | None = None, probability: Flag = False,
                 random_state: RandomState | None = 0, n_jobs: Integer | None = None, warm_start: Flag = False,
                 verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class ISM3Classifier(MarginClassifier):
    """Logistic losses with the regulariser of M3SVM (ISM3).

    As M3SVMClassifier, for a smooth loss.
    """

    method_name = "ism3"

    def __init__(self, *, C: Number | None = None, lambda_: Number | None = None, norm: Number = 4.0,
                 eps: Number = 1e-06, loss: Literal["logistic", "softmax"] = "logistic", fit_intercept: Flag = True,
                 intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None, tol: Number = 0.0001,
                 max_iter: Integer = 20_000, time_limit: Number | None = None, probability: Flag = False,
                 random_state: RandomState | None = 0, n_jobs: Integer | None = None, warm_start: Flag = False,
                 verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class LpMCSVMClassifier(MarginClassifier):
    """lp-norm multi-class support vector machine.

    All classes are trained at once. norm=2 is the machine of Crammer and Singer; the nearer norm is to 1, the fewer
    classes have large weights.
    """

    method_name = "lpmcsvm"

    def __init__(self, *, C: Number = 1.0, norm: Number = 1.5, kernel: KernelChoice | None = None,
                 gamma: GammaChoice = "scale", degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None,
                 fit_intercept: Flag = True, intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None,
                 tol: Number = 0.0001, algorithm: Route = "auto", max_iter: Integer = 20_000,
                 time_limit: Number | None = None, probability: Flag = False, random_state: RandomState | None = 0,
                 n_jobs: Integer | None = None, warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class CrammerSingerClassifier(MarginClassifier):
    """Multi-class support vector machine of Crammer and Singer.

    All classes are trained at once, as by LinearSVC(multi_class="crammer_singer").
    """

    method_name = "cs"

    def __init__(self, *, C: Number = 1.0, kernel: KernelChoice | None = None, gamma: GammaChoice = "scale",
                 degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None, fit_intercept: Flag = True,
                 intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None, tol: Number = 0.0001,
                 algorithm: Route = "auto", max_iter: Integer = 20_000, time_limit: Number | None = None,
                 probability: Flag = False, random_state: RandomState | None = 0, n_jobs: Integer | None = None,
                 warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class SVMClassifier(MarginClassifier):
    """Support vector machine with the hinge loss or its square.

    The objective of LinearSVC, trained to a certificate. With loss="squared_hinge" the terms of its sum are squared,
    and penalty="l1" leaves most weights 0. A binary method: see multiclass.
    """

    method_name = "l1svc"
    own_words = MappingProxyType({"loss": ('{"hinge", "squared_hinge"}, default="hinge"', "The loss of a margin g: "
                                           "(1 - g)_+ or (1 - g)_+^2."), **PENALTY_WORDS})

    def __init__(self, *, loss: HingeLoss = "hinge", C: Number = 1.0, penalty: Penalty = "l2", l1_ratio: Number = 1.0,
                 multiclass: Multiclass = "ovr", kernel: KernelChoice | None = None, gamma: GammaChoice = "scale",
                 degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None, free_bias: Flag = False,
                 fit_intercept: Flag = True, intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None,
                 tol: Number = 0.0001, algorithm: Route = "auto", max_iter: Integer = 20_000,
                 time_limit: Number | None = None, probability: Flag = False, random_state: RandomState | None = 0,
                 n_jobs: Integer | None = None, warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())

    @property
    def _method(self) -> Method:
        by_loss = {"hinge": "l1svc", "squared_hinge": "l2svc"}
        name = one_of(by_loss, "loss", self.loss)
        if has_sparse_weights(self):
            if self.loss == "hinge":
                raise ValueError('penalty = "l1" goes with loss = "squared_hinge"')
            name = "l1l2svc"
        return registry.get(name)


@documented
class SVMRegressor(MarginRegressor):
    """Support vector regression.

    The objective of LinearSVR, and with free_bias=True and a kernel that of SVR, trained to a certificate. Residuals
    within epsilon cost nothing; with loss="squared_epsilon_insensitive" the terms of its sum are squared.
    """

    method_name = "l1svr"
    own_words = MappingProxyType({"loss": (
        '{"epsilon_insensitive", "squared_epsilon_insensitive"}, default="epsilon_insensitive"',
        "The loss of a residual r: (|r| - epsilon)_+ or its square.")})

    def __init__(self, *, loss: ResidualLoss = "epsilon_insensitive", epsilon: Number = 0.1, C: Number = 1.0,
                 kernel: KernelChoice | None = None, gamma: GammaChoice = "scale", degree: Integer = 3,
                 coef0: Number = 0.0, cache: Number | None = None, free_bias: Flag = False, fit_intercept: Flag = True,
                 intercept_scaling: Number = 1.0, tol: Number = 0.0001, algorithm: Route = "auto",
                 max_iter: Integer = 20_000, time_limit: Number | None = None, random_state: RandomState | None = 0,
                 n_jobs: Integer | None = None, warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())

    @property
    def _method(self) -> Method:
        by_loss = {"epsilon_insensitive": "l1svr", "squared_epsilon_insensitive": "l2svr"}
        return registry.get(one_of(by_loss, "loss", self.loss))
