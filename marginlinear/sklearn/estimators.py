"""An estimator for each paper, and for the machines that they are compared with."""

from types import MappingProxyType

from marginlinear import registry
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

    def __init__(self, *, C=1.0, lambda_=None, mu=0.8, theta=0.2, outer="ccp", max_outer=None, restarts=1,
                 kernel=None, gamma="scale", degree=3, coef0=0.0, cache=None, fit_intercept=True,
                 intercept_scaling=1.0, class_weight=None, tol=0.0001, algorithm="auto", max_iter=20_000,
                 time_limit=None, probability=False, random_state=0, n_jobs=None, warm_start=False, verbose=False):
        keep(self, locals())


@documented
class LDMClassifier(MarginClassifier):
    """Large margin distribution machine (LDM).

    The support vector machine with the mean of the margins raised and their variance lowered. A binary method: see
    multiclass.
    """

    method_name = "ldm"

    def __init__(self, *, C=1.0, lambda1=0.25, lambda2=0.25, multiclass="ovr", kernel=None, gamma="scale", degree=3,
                 coef0=0.0, cache=None, fit_intercept=True, intercept_scaling=1.0, class_weight=None, tol=0.0001,
                 algorithm="auto", max_iter=20_000, time_limit=None, probability=False, random_state=0, n_jobs=None,
                 warm_start=False, verbose=False):
        keep(self, locals())


@documented
class ODMClassifier(MarginClassifier):
    """Optimal margin distribution machine (ODM).

    Margins are drawn to 1 from both sides, those within theta of it cost nothing. A binary method: see multiclass.
    """

    method_name = "odm"

    def __init__(self, *, C=1.0, lambda_=None, mu=0.8, theta=0.2, multiclass="ovr", kernel=None, gamma="scale",
                 degree=3, coef0=0.0, cache=None, free_bias=False, fit_intercept=True, intercept_scaling=1.0,
                 class_weight=None, tol=0.0001, algorithm="auto", max_iter=20_000, time_limit=None, probability=False,
                 random_state=0, n_jobs=None, warm_start=False, verbose=False):
        keep(self, locals())


@documented
class MSVMAvClassifier(MarginClassifier):
    """Least semi-variance and largest average of the margins, by turns (MSVMAv).

    It minimises no one objective: dual_gap_ is None, and a fit may end by max_iter, with a ConvergenceWarning. Class
    weights are weights of rows. A binary method: see multiclass.
    """

    method_name = "msvmav"

    def __init__(self, *, alpha=None, beta=None, multiclass="ovr", kernel=None, gamma="scale", degree=3, coef0=0.0,
                 cache=None, fit_intercept=True, intercept_scaling=1.0, class_weight=None, tol=1e-08, max_iter=100,
                 time_limit=None, probability=False, random_state=0, n_jobs=None, warm_start=False, verbose=False):
        keep(self, locals())


@documented
class LogisticClassifier(MarginClassifier):
    """Logistic regression.

    The objective of LogisticRegression, trained to a certificate. It has probabilities whatever probability says, but
    for multiclass="ovo" and "ecoc". With penalty="l1" most weights are 0. A binary method: see multiclass.
    """

    method_name = "logistic"
    own_words = MappingProxyType(PENALTY_WORDS)

    def __init__(self, *, C=1.0, penalty="l2", l1_ratio=1.0, multiclass="ovr", kernel=None, gamma="scale", degree=3,
                 coef0=0.0, cache=None, free_bias=False, fit_intercept=True, intercept_scaling=1.0, class_weight=None,
                 tol=0.0001, algorithm="auto", max_iter=20_000, time_limit=None, probability=False, random_state=0,
                 n_jobs=None, warm_start=False, verbose=False):
        keep(self, locals())

    @property
    def _method(self):
        return registry.get("l1lr" if has_sparse_weights(self) else "logistic")


@documented
class M3SVMClassifier(MarginClassifier):
    """Multi-class support vector machine with maximised minimum margins (M3SVM).

    All classes are trained at once; the regulariser is of the distances between their weights, so that the narrowest
    margin between two classes counts most.
    """

    method_name = "m3svm"

    def __init__(self, *, C=None, lambda_=None, norm=4.0, eps=1e-06, delta=0.001, fit_intercept=True,
                 intercept_scaling=1.0, class_weight=None, tol=0.0001, max_iter=20_000, time_limit=None,
                 probability=False, random_state=0, n_jobs=None, warm_start=False, verbose=False):
        keep(self, locals())


@documented
class ISM3Classifier(MarginClassifier):
    """Logistic losses with the regulariser of M3SVM (ISM3).

    As M3SVMClassifier, for a smooth loss.
    """

    method_name = "ism3"

    def __init__(self, *, C=None, lambda_=None, norm=4.0, eps=1e-06, loss="logistic", fit_intercept=True,
                 intercept_scaling=1.0, class_weight=None, tol=0.0001, max_iter=20_000, time_limit=None,
                 probability=False, random_state=0, n_jobs=None, warm_start=False, verbose=False):
        keep(self, locals())


@documented
class LpMCSVMClassifier(MarginClassifier):
    """lp-norm multi-class support vector machine.

    All classes are trained at once. norm=2 is the machine of Crammer and Singer; the nearer norm is to 1, the fewer
    classes have large weights.
    """

    method_name = "lpmcsvm"

    def __init__(self, *, C=1.0, norm=1.5, kernel=None, gamma="scale", degree=3, coef0=0.0, cache=None,
                 fit_intercept=True, intercept_scaling=1.0, class_weight=None, tol=0.0001, algorithm="auto",
                 max_iter=20_000, time_limit=None, probability=False, random_state=0, n_jobs=None, warm_start=False,
                 verbose=False):
        keep(self, locals())


@documented
class CrammerSingerClassifier(MarginClassifier):
    """Multi-class support vector machine of Crammer and Singer.

    All classes are trained at once, as by LinearSVC(multi_class="crammer_singer").
    """

    method_name = "cs"

    def __init__(self, *, C=1.0, kernel=None, gamma="scale", degree=3, coef0=0.0, cache=None, fit_intercept=True,
                 intercept_scaling=1.0, class_weight=None, tol=0.0001, algorithm="auto", max_iter=20_000,
                 time_limit=None, probability=False, random_state=0, n_jobs=None, warm_start=False, verbose=False):
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

    def __init__(self, *, loss="hinge", C=1.0, penalty="l2", l1_ratio=1.0, multiclass="ovr", kernel=None,
                 gamma="scale", degree=3, coef0=0.0, cache=None, free_bias=False, fit_intercept=True,
                 intercept_scaling=1.0, class_weight=None, tol=0.0001, algorithm="auto", max_iter=20_000,
                 time_limit=None, probability=False, random_state=0, n_jobs=None, warm_start=False, verbose=False):
        keep(self, locals())

    @property
    def _method(self):
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

    def __init__(self, *, loss="epsilon_insensitive", epsilon=0.1, C=1.0, kernel=None, gamma="scale", degree=3,
                 coef0=0.0, cache=None, free_bias=False, fit_intercept=True, intercept_scaling=1.0, tol=0.0001,
                 algorithm="auto", max_iter=20_000, time_limit=None, random_state=0, n_jobs=None, warm_start=False,
                 verbose=False):
        keep(self, locals())

    @property
    def _method(self):
        by_loss = {"epsilon_insensitive": "l1svr", "squared_epsilon_insensitive": "l2svr"}
        return registry.get(one_of(by_loss, "loss", self.loss))
