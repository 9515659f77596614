"""The search along a path of C, by cross-validation as scikit-learn has it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from sklearn.base import (
    BaseEstimator,
    MetaEstimatorMixin,  # pyright: ignore[reportAttributeAccessIssue]
    clone,  # pyright: ignore[reportAttributeAccessIssue]
    is_classifier,  # pyright: ignore[reportAttributeAccessIssue]
)
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from marginlinear import params as P
from marginlinear.data.arrays import checked
from marginlinear.selection import grid as G
from marginlinear.sklearn.base import MarginEstimator, available_if, keep
from marginlinear.sklearn.estimators import of_method

if TYPE_CHECKING:
    from typing import Self

    from marginlinear._typing import ArrayLike, Integer, MatrixLike


def has(name: str) -> Callable[[Any], bool]:
    """Whether what is searched for has a method of this name."""
    return lambda search: getattr(search._template(), name) is not None


class LinearMarginCV(MetaEstimatorMixin, BaseEstimator):  # pyright: ignore[reportGeneralTypeIssues]
    """Search for the best C of a method, and for other parameters of its own, by cross-validation.

    Along C each fit goes on from the last one's model. The best point is the one with the largest mean score, of equal
    ones the first, whose C is least; the estimator with it is trained on all rows.

    Parameters
    ----------
    estimator : estimator of marginlinear.sklearn or str, default="mcodm"
        What is searched for, or the name of a method. Its warm_start is of no account.
    grid : dict or str, default=None
        Names of the method's parameters and lists of values, or the text of `margin-train --grid`, as in
        "C=log2:-5:2:9,mu=0.2:0.2:0.8". None: what its parameters declare, for most C=log2:-5:2:9.
    cv : int, splitter of scikit-learn or iterable of (train, test), default=None
        The folds. An int or None, for 5: stratified for classifiers.
    scoring : str or callable, default=None
        As scikit-learn's searches take one; None: the estimator's `score`.
    n_jobs : int, default=None
        Folds at once, on threads; -1: all cores, None: 1 unless joblib says otherwise. The result does not depend on
        it.

    Attributes
    ----------
    best_params_ : dict
    C_ : float
        Of best_params_, where the grid has C.
    best_score_ : float
        Mean score of best_params_ over the folds.
    points_ : list of dict of length n_points
        The points of the grid.
    scores_ : float64 array of shape (n_folds, n_points)
    n_iter_path_ : int array of shape (n_folds, n_points)
        Sweeps of each fit.
    best_estimator_ : estimator
        Trained on all rows: coef_, intercept_, classes_, n_iter_, converged_, dual_gap_, model_ and the like are its
        own, and attributes here too.
    n_features_in_ : int
    feature_names_in_ : array of shape (n_features_in_,)
        Where X has column names that are all strings.
    """

    def __init__(self, estimator: MarginEstimator | str = "mcodm", *, grid: Any = None, cv: Any = None,
                 scoring: Any = None, n_jobs: Integer | None = None) -> None:
        keep(self, locals())

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: ArrayLike | None = None) -> Self:
        """Search, and train on all rows of X.

        Parameters
        ----------
        X, y, sample_weight
            As the estimator takes them. sample_weight counts in the scores too, where the scorer takes it.
        groups : array of shape (n_samples,), default=None
            What the splitter is told, such as GroupKFold.

        Returns
        -------
        self
        """
        estimator = self._template()
        known = {} if y is None else {"y": y, "y_numeric": not is_classifier(estimator)}
        found = validate_data(self, checked(X), accept_sparse="csr", dtype=[np.float64, np.float32], order="C", **known)
        X, y = (found, None) if y is None else found
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        method = estimator._method
        grid = G.check_grid(G.default_grid(method) if self.grid is None else self.grid, method)
        own = estimator.get_params(deep=False)
        if strange := [name for name in grid if name not in own]:
            raise ValueError(f"grid: {strange[0]!r} is not a parameter of {type(estimator).__name__}")
        # What depends on a kernel is of use beside the estimator's own.
        fixed = {P.KERNEL.name: kernel} if (kernel := own.get(P.KERNEL.name)) and P.KERNEL.name not in grid else {}
        points = G.points_of(grid, method, fixed)
        chains = G.chains_of(points, G.chain_axis(grid, method))
        scorer = check_scoring(estimator, scoring=self.scoring)
        weighted = sample_weight is not None and "sample_weight" in inspect.signature(
            getattr(scorer, "_score_func", estimator.score if self.scoring is None else scorer)).parameters
        folds = list(check_cv(self.cv, y, classifier=is_classifier(estimator)).split(X, y, groups))

        def work(train: Any, test: Any, chain: list[int]) -> list[tuple[float, int]]:
            """(score, sweeps) of the points of a chain, in its order."""
            machine = clone(estimator)
            if "warm_start" in own:
                machine.set_params(warm_start=True)
            rows, labels = _safe_split(estimator, X, y, train)
            held_out, truth = _safe_split(estimator, X, y, test, train)
            weights = None if sample_weight is None else sample_weight[train]
            given = {"sample_weight": sample_weight[test]} if weighted and sample_weight is not None else {}
            done = []
            for p in chain:
                machine.set_params(**points[p]).fit(rows, labels, sample_weight=weights)
                done.append((scorer(machine, held_out, truth, **given), int(np.max(machine.n_iter_))))
            return done

        jobs = [(fold, chain) for fold in range(len(folds)) for chain in chains]
        found = joblib.Parallel(n_jobs=self.n_jobs, prefer="threads")(
            joblib.delayed(work)(*folds[fold], chain) for fold, chain in jobs)
        self.points_ = points
        self.scores_ = np.empty((len(folds), len(points)))
        self.n_iter_path_ = np.empty(self.scores_.shape, dtype=np.intp)
        for (fold, chain), done in zip(jobs, found, strict=True):
            self.scores_[fold, chain], self.n_iter_path_[fold, chain] = np.transpose(done)
        means = self.scores_.mean(axis=0)
        if not np.isfinite(means).any():
            raise ValueError(f"scoring = {self.scoring!r}: no point of the grid has a score that is a number")
        best = int(np.nanargmax(means))
        self.best_params_, self.best_score_, self.scorer_ = points[best], float(means[best]), scorer
        if "C" in grid:
            self.C_ = self.best_params_["C"]
        self.best_estimator_ = clone(estimator).set_params(**self.best_params_).fit(X, y, sample_weight=sample_weight)
        return self

    def predict(self, X: MatrixLike) -> Any:
        """Labels, or predictions, of the rows of X by the best estimator, array of shape (n_samples,)."""
        return self._best("predict", X)

    @available_if(has("decision_function"))
    def decision_function(self, X: MatrixLike) -> Any:
        """Scores of the rows of X by the best estimator, float64 array as it has them."""
        return self._best("decision_function", X)

    @available_if(has("predict_proba"))
    def predict_proba(self, X: MatrixLike) -> Any:
        """Probabilities by the best estimator, float64 array of shape (n_samples, n_classes)."""
        return self._best("predict_proba", X)

    @available_if(has("predict_log_proba"))
    def predict_log_proba(self, X: MatrixLike) -> Any:
        """Logarithms of `predict_proba`."""
        return self._best("predict_log_proba", X)

    def score(self, X: MatrixLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """The score that was searched for, of the best estimator: float."""
        X = self._rows(X)
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(self.scorer_(self.best_estimator_, X, y, **given))

    def __getattr__(self, name: str) -> Any:
        """What the best estimator has learned."""
        if name.endswith("_") and not name.startswith("_") and "best_estimator_" in vars(self):
            return getattr(self.best_estimator_, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _best(self, method: str, X: Any) -> Any:
        """What a method of the best estimator says of the rows of X."""
        rows = self._rows(X)
        return getattr(self.best_estimator_, method)(rows)

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, checked(X), accept_sparse="csr", dtype=[np.float64, np.float32], order="C",
                             reset=False)

    def _template(self) -> MarginEstimator:
        """The estimator that is searched for, without a grid's values."""
        if isinstance(self.estimator, MarginEstimator):
            return self.estimator
        if isinstance(self.estimator, str):
            return of_method(self.estimator)
        raise TypeError(f"estimator = {self.estimator!r} is not allowed: give an estimator of marginlinear.sklearn, or "
                        "the name of a method")

    def __sklearn_is_fitted__(self) -> bool:
        return "best_estimator_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self._template())
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "target_tags", "input_tags"):
            setattr(tags, name, copy.deepcopy(getattr(own, name)))
        return tags
