"""Fast margin maximization (Ji, Srebro and Telgarsky, Fast Margin Maximization via Dual Acceleration, ICML 2021).

The largest least margin, max over ||w|| = 1 of min_i y_i w.x_i, is the least ||sum_i q_i y_i x_i|| over the simplex of
q. Nesterov's acceleration on that dual, with the entropy as the distance, is gradient descent with momentum on the
logarithm of the mean of exp(-y_i w.x_i):

    d = -sum_i q_i y_i x_i,  g = t/(t + 1) (g + d),  w = w - rate (g + d),  q_i in proportion to exp(-y_i w.x_i).

For rows of length at most 1 and rate 1 the paper's Theorem 3.1 has, with M the largest least margin of m rows,

    min_i y_i w.x_i/||w|| >= M - 4 (1 + ln m)(1 + 2 ln(t + 1))/(M (t + 1)^2)    after t steps.

Here rows are divided by the length of the longest, which the rate could do as well. Any q bounds M from above by
||sum_i q_i y_i x_i||: what that is above the least margin is the certificate. Of rows that no hyperplane parts M is 0,
and the number of steps is the only regularisation: the method is then one that stops early.
"""

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data


class FMM(ClassifierMixin, BaseEstimator):
    """FMM, of two classes.

    Parameters
    ----------
    rate : float
    steps : int
    fit_intercept : bool
        Whether a constant 1 is appended to each row.

    Attributes
    ----------
    coef_ : array of shape (n_features,);  intercept_ : float
        Of length 1 together.
    margin_, bound_ : float
        The least margin, and what no other weights exceed.
    """

    def __init__(self, *, rate=1.0, steps=1000, fit_intercept=True):
        self.rate, self.steps, self.fit_intercept = rate, steps, fit_intercept

    def fit(self, X, y):
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            raise ValueError(f"y has {len(self.classes_)} classes: FMM is for two")
        sign = 2.0 * codes - 1
        constant = float(self.fit_intercept)
        square = np.asarray(X.multiply(X).sum(axis=1)).ravel() if hasattr(X, "multiply") else (X * X).sum(axis=1)
        longest = np.sqrt(square.max() + constant**2) or 1.0

        def margins(w):
            return sign * (safe_sparse_dot(X, w[:-1]) + constant * w[-1]) / longest

        def mean(q):
            return np.append(safe_sparse_dot(X.T, q * sign), constant * (q @ sign)) / longest

        w = g = np.zeros(X.shape[1] + 1)
        q, bound = np.full(len(sign), 1 / len(sign)), np.inf
        for t in range(self.steps):
            d = -mean(q)
            bound = min(bound, np.linalg.norm(d))
            g = t / (t + 1) * (g + d)
            w = w - self.rate * (g + d)
            found = margins(w)
            q = softmax(-found)
        length = np.linalg.norm(w) or 1.0
        self.coef_, self.intercept_ = w[:-1] / length, constant * w[-1] / length
        self.margin_ = longest * float(margins(w).min() / length)
        self.bound_ = longest * float(min(bound, np.linalg.norm(mean(q))))
        return self

    def decision_function(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return safe_sparse_dot(X, self.coef_) + self.intercept_

    def predict(self, X):
        return self.classes_[(self.decision_function(X) > 0).astype(int)]
