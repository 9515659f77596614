"""An estimator for each paper, and for the machines that they are compared with."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from marginlinear import registry
from marginlinear._typing import (
    ClassesPenalty,
    ClassWeight,
    Flag,
    GammaChoice,
    HingeLoss,
    Integer,
    KernelChoice,
    MatrixLike,
    Multiclass,
    Number,
    Penalty,
    RandomState,
    ResidualLoss,
    Route,
)
from marginlinear.params import EPOCHS
from marginlinear.registry import Method
from marginlinear.sklearn.base import (
    PENALTY_WORDS,
    MarginClassifier,
    MarginEstimator,
    MarginOutliers,
    MarginRegressor,
    documented,
    has_sparse_weights,
    keep,
    one_of,
)
from marginlinear.sklearn.parts import LearnsInParts


@documented
class MCODMClassifier(LearnsInParts, MarginClassifier):
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
class LDMClassifier(LearnsInParts, MarginClassifier):
    """Large margin distribution machine (LDM).

    The support vector machine with the mean of the margins raised and their variance lowered. A binary method: see
    multiclass.
    """

    method_name = "ldm"
    own_words = MappingProxyType({
        "stochastic": ("bool, default=False", "Whether the objective is approached in a few epochs of averaged "
                       "stochastic gradient descent, without a tolerance: dual_gap_ says how far its least value can "
                       "be. Without kernels."),
        "epochs": (f"int, default={EPOCHS.default}", "Of stochastic=True: passes over the rows."),
        "eta0": ("float in (0, 1), default=None", "Of stochastic=True: first step size. None: searched for on a "
                 "sample.")})

    def __init__(self, *, C: Number = 1.0, lambda1: Number | str = 0.25, lambda2: Number | str = 0.25, stochastic: Flag
                 = False, epochs: Integer = 5, eta0: Number | None = None, multiclass: Multiclass = "ovr", kernel:
                 KernelChoice | None = None, gamma: GammaChoice = "scale", degree: Integer = 3, coef0: Number = 0.0,
                 cache: Number | None = None, fit_intercept: Flag = True, intercept_scaling: Number = 1.0, class_weight:
                 ClassWeight | None = None, tol: Number = 0.0001, algorithm: Route = "auto", max_iter: Integer = 20_000,
                 time_limit: Number | None = None, probability: Flag = False, random_state: RandomState | None = 0,
                 n_jobs: Integer | None = None, warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())

    @property
    def _method(self) -> Method:
        if self.stochastic and self.kernel is not None:
            raise ValueError("stochastic = True is for weights of features: it does not go with a kernel")
        return registry.get("ldm-asgd" if self.stochastic else "ldm")


@documented
class ODMClassifier(LearnsInParts, MarginClassifier):
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
class RMMClassifier(LearnsInParts, MarginClassifier):
    """Relative margin machine (RMM).

    The support vector machine whose margins cost above margin_bound, too. A binary method: see multiclass.
    """

    method_name = "rmm"

    def __init__(self, *, C: Number = 1.0, margin_bound: Number = 2.0, bound_cost: Number | None = None, multiclass:
                 Multiclass = "ovr", kernel: KernelChoice | None = None, gamma: GammaChoice = "scale", degree: Integer =
                 3, coef0: Number = 0.0, cache: Number | None = None, free_bias: Flag = False, fit_intercept: Flag =
                 True, intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None, tol: Number = 0.0001,
                 algorithm: Route = "auto", max_iter: Integer = 20_000, time_limit: Number | None = None, probability:
                 Flag = False, random_state: RandomState | None = 0, n_jobs: Integer | None = None, warm_start: Flag =
                 False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class MAMCClassifier(LearnsInParts, MarginClassifier):
    """Maximal average margin classifier (MAMC).

    The direction in which the mean of the margins is largest: a baseline that costs one pass over the rows. Factors of
    classes are a matter of sample_weight: a class is not predicted more often for it. A binary method: see multiclass.
    """

    method_name = "mamc"

    def __init__(self, *, C: Number = 1.0, multiclass: Multiclass = "ovr", kernel: KernelChoice | None = None, gamma:
                 GammaChoice = "scale", degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None,
                 fit_intercept: Flag = True, intercept_scaling: Number = 1.0, tol: Number = 0.0001, algorithm: Route =
                 "auto", max_iter: Integer = 20_000, time_limit: Number | None = None, probability: Flag = False,
                 random_state: RandomState | None = 0, n_jobs: Integer | None = None, warm_start: Flag = False, verbose:
                 Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class MSVClassifier(LearnsInParts, MarginClassifier):
    """Least semi-variance of the margins, in units of their mean (MSV).

    What MSVMAvClassifier pursues by turns, as one convex problem with a certificate. A binary method: see multiclass.
    """

    method_name = "msv"

    def __init__(self, *, C: Number = 1.0, multiclass: Multiclass = "ovr", kernel: KernelChoice | None = None, gamma:
                 GammaChoice = "scale", degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None,
                 fit_intercept: Flag = True, intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None,
                 tol: Number = 0.0001, algorithm: Route = "auto", max_iter: Integer = 20_000, time_limit: Number | None
                 = None, probability: Flag = False, random_state: RandomState | None = 0, n_jobs: Integer | None = None,
                 warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
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
class LogisticClassifier(LearnsInParts, MarginClassifier):
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
class M3SVMClassifier(LearnsInParts, MarginClassifier):
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
class ISM3Classifier(LearnsInParts, MarginClassifier):
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
class LpMCSVMClassifier(LearnsInParts, MarginClassifier):
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
class CrammerSingerClassifier(LearnsInParts, MarginClassifier):
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
class WestonWatkinsClassifier(LearnsInParts, MarginClassifier):
    """Multi-class support vector machine of Weston and Watkins.

    All classes are trained at once, each other class with a hinge of its own.
    """

    method_name = "ww"

    def __init__(self, *, C: Number = 1.0, kernel: KernelChoice | None = None, gamma: GammaChoice = "scale", degree:
                 Integer = 3, coef0: Number = 0.0, cache: Number | None = None, fit_intercept: Flag = True,
                 intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None, tol: Number = 0.0001,
                 algorithm: Route = "auto", max_iter: Integer = 20_000, time_limit: Number | None = None, probability:
                 Flag = False, random_state: RandomState | None = 0, n_jobs: Integer | None = None, warm_start: Flag =
                 False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class TopKClassifier(LearnsInParts, MarginClassifier):
    """Top-k multi-class support vector machine.

    All classes are trained at once, for a label among the K highest scores: the mean of a row's K largest violations
    counts.
    """

    method_name = "topk"

    def __init__(self, *, C: Number = 1.0, K: Integer | None = None, kernel: KernelChoice | None = None, gamma:
                 GammaChoice = "scale", degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None,
                 fit_intercept: Flag = True, intercept_scaling: Number = 1.0, class_weight: ClassWeight | None = None,
                 tol: Number = 0.0001, algorithm: Route = "auto", max_iter: Integer = 20_000, time_limit: Number | None
                 = None, probability: Flag = False, random_state: RandomState | None = 0, n_jobs: Integer | None = None,
                 warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class SoftmaxClassifier(LearnsInParts, MarginClassifier):
    """Multinomial logistic regression.

    All classes are trained at once. It has probabilities whatever probability says. With penalty="l1" most weights are
    0, with penalty="group" those of all classes together for most features.
    """

    method_name = "softmax"
    own_words = MappingProxyType({"penalty": (
        '{"l2", "l1", "group"}, default="l2"', "What is added to the losses: half the squared weights; with \"l1\" the "
        "sum of their absolute values, which leaves most of them 0; with \"group\" that of the lengths of the "
        "features' weights, of all classes, which are 0 together."),
        "l1_ratio": ("float in (0, 1], default=1.0", 'Of penalty="l1" and "group": r of r times that and (1 - r)/2 '
                     "||W||^2, the elastic net.")})

    def __init__(self, *, C: Number = 1.0, penalty: ClassesPenalty = "l2", l1_ratio: Number = 1.0,
                 free_bias: Flag = False, fit_intercept: Flag = True, intercept_scaling: Number = 1.0,
                 class_weight: ClassWeight | None = None, tol: Number = 0.0001, max_iter: Integer = 20_000,
                 time_limit: Number | None = None, probability: Flag = False, random_state: RandomState | None = 0,
                 n_jobs: Integer | None = None, warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())

    @property
    def _method(self) -> Method:
        return registry.get("smlr" if has_sparse_weights(self, "group") else "softmax")


@documented
class SVMClassifier(LearnsInParts, MarginClassifier):
    """Support vector machine with the hinge loss, its square, or least squares.

    The objective of LinearSVC, trained to a certificate. With loss="squared_hinge" the terms of its sum are squared,
    and penalty="l1" leaves most weights 0; with loss="squared_error" they are (1 - g_i)^2. A binary method: see
    multiclass.
    """

    method_name = "l1svc"
    own_words = MappingProxyType({
        "loss": ('{"hinge", "squared_hinge", "squared_error"}, default="hinge"',
                 "The loss of a margin g: (1 - g)_+, (1 - g)_+^2 or (1 - g)^2."), **PENALTY_WORDS})

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
        by_loss = {"hinge": "l1svc", "squared_hinge": "l2svc", "squared_error": "lssvm"}
        name = one_of(by_loss, "loss", self.loss)
        if has_sparse_weights(self):
            if self.loss != "squared_hinge":
                raise ValueError('penalty = "l1" goes with loss = "squared_hinge"')
            name = "l1l2svc"
        return registry.get(name)


@documented
class NuSVMClassifier(LearnsInParts, MarginClassifier):
    """Support vector machine with nu in place of C.

    nu is an upper bound of the part of rows with a margin error, and a lower one of that of support vectors. Its
    intercept costs nothing. With a kernel the objective of NuSVC, whose nu=0.5 needs a quarter of the rows in the
    smaller class: nu is at most twice its part of them. A binary method: see multiclass.
    """

    method_name = "nusvc"

    def __init__(self, *, nu: Number = 0.2, multiclass: Multiclass = "ovo", kernel: KernelChoice | None = None, gamma:
                 GammaChoice = "scale", degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None, tol:
                 Number = 0.0001, max_iter: Integer = 20_000, time_limit: Number | None = None, probability: Flag =
                 False, random_state: RandomState | None = 0, n_jobs: Integer | None = None, warm_start: Flag = False,
                 verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class SVMRegressor(LearnsInParts, MarginRegressor):
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


@documented
class NuSVMRegressor(LearnsInParts, MarginRegressor):
    """Support vector regression with nu in place of epsilon.

    epsilon is found such that a part nu of the residuals at most is above it. Its intercept costs nothing. With a
    kernel the objective of NuSVR.
    """

    method_name = "nusvr"

    def __init__(self, *, nu: Number = 0.5, C: Number = 1.0, kernel: KernelChoice | None = None, gamma: GammaChoice =
                 "scale", degree: Integer = 3, coef0: Number = 0.0, cache: Number | None = None, tol: Number = 0.0001,
                 max_iter: Integer = 20_000, time_limit: Number | None = None, random_state: RandomState | None = 0,
                 n_jobs: Integer | None = None, warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())


@documented
class OneClassDetector(MarginOutliers):
    """One-class support vector machine.

    Where the rows are, without labels: 1 there, -1 for a part nu of them at most, and for what is unlike them.
    """

    method_name = "oneclass"

    def __init__(self, *, nu: Number = 0.5, kernel: KernelChoice | None = None, gamma: GammaChoice = "scale", degree:
                 Integer = 3, coef0: Number = 0.0, cache: Number | None = None, tol: Number = 0.0001, algorithm: Route =
                 "auto", max_iter: Integer = 20_000, time_limit: Number | None = None, random_state: RandomState | None
                 = 0, n_jobs: Integer | None = None, warm_start: Flag = False, verbose: Integer | Flag = False) -> None:
        keep(self, locals())

    def predict(self, X: MatrixLike) -> Any:
        """1 where rows are, -1 elsewhere, a score of 0 being there: int array of shape (n_samples,)."""
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def _describe(self, model: Any, **told: Any) -> None:
        super()._describe(model, **told)
        # The duals to begin with take a pass.
        self.n_iter_ = max(1, self.n_iter_)


# Methods that are an estimator's with other values of its parameters.
OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "smlr": (SoftmaxClassifier, {"penalty": "l1"}),
    "ldm-asgd": (LDMClassifier, {"stochastic": True}),
    "l2svc": (SVMClassifier, {"loss": "squared_hinge"}),
    "l1l2svc": (SVMClassifier, {"loss": "squared_hinge", "penalty": "l1"}),
    "lssvm": (SVMClassifier, {"loss": "squared_error"}),
    "l1lr": (LogisticClassifier, {"penalty": "l1"}),
    "l2svr": (SVMRegressor, {"loss": "squared_epsilon_insensitive"}),
}
OF_METHOD: dict[str, tuple[Any, dict[str, Any]]] = {thing.method_name: (thing, {}) for thing in list(vars().values())
             if isinstance(thing, type) and issubclass(thing, MarginEstimator) and thing.method_name} | OTHERS


def of_method(name: str) -> MarginEstimator:
    """The estimator of the method called `name`, as `train` takes it; ValueError lists what there is."""
    estimator, given = OF_METHOD[registry.get(name).name]
    made: MarginEstimator = estimator(**given)
    return made
