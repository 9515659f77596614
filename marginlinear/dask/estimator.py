"""Estimators in scikit-learn's manner, whose rows are on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marginlinear.dask.prediction import decision_function, predict, predict_proba
from marginlinear.dask.training import train

if TYPE_CHECKING:
    from typing import Self

    from distributed import Client

    from marginlinear.model import Model

try:
    # Without its types a checker takes them for those below.
    from sklearn.base import (
        BaseEstimator,  # pyright: ignore[reportAssignmentType]
        ClassifierMixin,  # pyright: ignore[reportAssignmentType]
        RegressorMixin,  # pyright: ignore[reportAssignmentType]
    )
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    # get_params and clone are scikit-learn's; fit and predict need it not.
    class BaseEstimator:  # type: ignore[no-redef]  # in its place
        pass

    class ClassifierMixin:  # type: ignore[no-redef]  # in its place
        pass

    class RegressorMixin:  # type: ignore[no-redef]  # in its place
        pass

    def check_is_fitted(estimator: Any) -> None:
        if not hasattr(estimator, "model_"):
            raise AttributeError(f"{type(estimator).__name__} is not fitted yet: call fit")


class DaskEstimator(BaseEstimator):
    """What both have in common."""

    solver: str
    C: float | None
    params: dict[str, Any] | None
    client: Client | None
    if TYPE_CHECKING:
        def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def __sklearn_clone__(self) -> Self:
        # The client is no parameter to be copied: a copy works on the same cluster.
        return type(self)(**self.get_params(deep=False))

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train; X, y and sample_weight as of `train`."""
        given = dict(self.params or {})
        if self.C is not None:
            given["C"] = self.C
        self.model_ = train(X, y, solver=self.solver, sample_weight=sample_weight, client=self.client, **given)
        self.info_ = self.model_.info
        self.coef_, self.intercept_ = self.model_.coef, self.model_.intercept
        self.n_features_in_, self.n_iter_ = self.model_.n_features, self.info_.n_iter
        return self

    def predict(self, X: Any) -> Any:
        """Labels, or a regression's predictions, lazy: `marginlinear.dask.predict`."""
        check_is_fitted(self)
        return predict(self.model_, X)

    def to_local(self) -> Model:
        """The Model, which predicts without a cluster."""
        check_is_fitted(self)
        return self.model_


class DaskMarginClassifier(ClassifierMixin, DaskEstimator):
    """A classifier on dask collections.

    Parameters
    ----------
    solver : str, default="mcodm"
        Name of a method.
    C : float, optional
        Of the method; default: its own.
    params : dict, optional
        Other parameters of `marginlinear.dask.train`, by name: those of the method and of every run, class_weight,
        partitions, shuffle, checkpoint, ...
    client : distributed.Client, optional
        Default: the one that was made last.

    Attributes
    ----------
    model_ : Model
    classes_ : array of shape (n_classes,)
    coef_, intercept_ : arrays
        As of the Model.
    n_features_in_, n_iter_ : int
    info_ : Info
    """

    def __init__(self, solver: str = "mcodm", C: float | None = None, params: dict[str, Any] | None = None,
                 client: Client | None = None) -> None:
        self.solver, self.C, self.params, self.client = solver, C, params, client

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train; X, y and sample_weight as of `train`."""
        super().fit(X, y, sample_weight)
        self.classes_ = self.model_.classes
        return self

    def decision_function(self, X: Any) -> Any:
        """Scores, lazy: `marginlinear.dask.decision_function`."""
        check_is_fitted(self)
        return decision_function(self.model_, X)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities, lazy: `marginlinear.dask.predict_proba`, with params={"probability": True}."""
        check_is_fitted(self)
        return predict_proba(self.model_, X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy, computed."""
        check_is_fitted(self)
        right = self.predict(X) == y
        if sample_weight is None:
            return float(right.mean().compute())
        return float(((right * sample_weight).sum() / sample_weight.sum()).compute())


class DaskMarginRegressor(RegressorMixin, DaskEstimator):
    """A regression on dask collections.

    Parameters
    ----------
    solver : str, default="l1svr"
        Name of a method.
    C, params, client
        As of DaskMarginClassifier.

    Attributes
    ----------
    model_ : RegressionModel
    coef_, intercept_ : arrays
        As of the model.
    n_features_in_, n_iter_ : int
    info_ : Info
    """

    def __init__(self, solver: str = "l1svr", C: float | None = None, params: dict[str, Any] | None = None,
                 client: Client | None = None) -> None:
        self.solver, self.C, self.params, self.client = solver, C, params, client

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2, computed."""
        check_is_fitted(self)
        weights = 1.0 if sample_weight is None else sample_weight
        total = (y * 0 + weights).sum()
        mean = (y * weights).sum() / total
        errors, varies = (((y - other) ** 2 * weights).sum() for other in (self.predict(X), mean))
        return float(1 - (errors / varies).compute())
