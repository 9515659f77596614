"""What the machines have in common that weigh the squared distances of the classes' weights, with free offsets:

    weight sum_{j<l} ||w_j - w_l||^2 + sum_i sum_{l != y_i} (1 - t_il)_+,

the least value of which m3svm finds with p = 2, but for its corner and its eps."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

import marginlinear as ml


class PairwiseHinge(ClassifierMixin, BaseEstimator):
    """A subclass has delta, tol and max_iter as parameters, weight(k), and the `unit` of its objective."""

    def fit(self, X, y):
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        k = len(np.unique(y))
        model = ml.train(X, y, solver="m3svm", norm=2, lambda_=self.weight(k), delta=self.delta, tol=self.tol,
                         max_iter=self.max_iter, bias=1)
        self.classes_, self.n_iter_ = model.classes, model.info.n_iter
        self.coef_, self.intercept_ = model.coef, model.intercept
        self.objective_ = self.unit * self._objective(X, np.searchsorted(self.classes_, y))
        self.certificate_ = self.unit * (model.info.certificate + X.shape[0] * (k - 1) * self.delta / 2)
        return self

    def _objective(self, X, codes):
        scores = X @ self.coef_.T + self.intercept_
        ahead = scores[np.arange(len(codes)), codes][:, np.newaxis] - scores
        losses = np.maximum(0, 1 - ahead)
        losses[np.arange(len(codes)), codes] = 0
        k = len(self.coef_)
        total = self.coef_.sum(axis=0)
        return self.weight(k) * (k * (self.coef_**2).sum() - total @ total) + losses.sum()

    def decision_function(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores = X @ self.coef_.T + self.intercept_
        return scores if len(self.classes_) > 2 else scores[:, 1] - scores[:, 0]

    def predict(self, X):
        scores = self.decision_function(X)
        return self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)]
