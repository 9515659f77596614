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

All that is done with w, g and d is to add them and to take products with rows: with a kernel they are sums of the
images of rows, held as the coefficients a and the products K a.
"""

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from tools.rivals.gram import gram


class FMM(ClassifierMixin, BaseEstimator):
    """FMM, of two classes.

    Parameters
    ----------
    rate : float
    steps : int
    fit_intercept : bool
        Whether a constant 1 is appended to each row, or added to the kernel.
    kernel : {"linear", "rbf"}
    gamma : float, default=None
        exp(-gamma ||x - z||^2); None: 1/features.

    Attributes
    ----------
    coef_ : array of shape (n_features,), with a kernel (n_rows,);  intercept_ : float
        Of weights of length 1 together.
    margin_, bound_ : float
        The least margin, and what no other weights exceed.
    """

    def __init__(self, *, rate=1.0, steps=1000, fit_intercept=True, kernel="linear", gamma=None):
        self.rate, self.steps, self.fit_intercept, self.kernel, self.gamma = rate, steps, fit_intercept, kernel, gamma

    def fit(self, X, y):
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            raise ValueError(f"y has {len(self.classes_)} classes: FMM is for two")
        sign = 2.0 * codes - 1
        constant = float(self.fit_intercept)
        if self.kernel == "linear":
            rows = Features(X, constant)
        else:
            self.X_ = X
            rows = Images(gram(X, X, self.kernel, self.gamma), constant)
        w = g = rows.zero
        q, bound = np.full(len(sign), 1 / len(sign)), np.inf
        for t in range(self.steps):
            d = -rows.combined(q * sign)
            bound = min(bound, rows.length(d))
            g = t / (t + 1) * (g + d)
            w = w - self.rate * (g + d)
            q = softmax(-sign * rows.scores(w))
        length = rows.length(w) or 1.0
        self.coef_, self.intercept_ = rows.weights(w / length)
        self.margin_ = rows.longest * float((sign * rows.scores(w)).min() / length)
        self.bound_ = rows.longest * float(min(bound, rows.length(rows.combined(q * sign))))
        return self

    def decision_function(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        rows = X if self.kernel == "linear" else gram(X, self.X_, self.kernel, self.gamma)
        return safe_sparse_dot(rows, self.coef_) + self.intercept_

    def predict(self, X):
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


class Features:
    """Rows over the length of the longest; vectors have a value for each feature, and one for the constant."""

    def __init__(self, X, constant):
        self.X, self.constant = X, constant
        square = np.asarray(X.multiply(X).sum(axis=1)).ravel() if hasattr(X, "multiply") else (X * X).sum(axis=1)
        self.longest = np.sqrt(square.max() + constant**2) or 1.0
        self.zero, self.one = np.zeros(X.shape[1] + 1), np.ones(X.shape[0])

    def combined(self, a):
        return np.append(safe_sparse_dot(self.X.T, a), self.constant * (a @ self.one)) / self.longest

    def scores(self, w):
        return (safe_sparse_dot(self.X, w[:-1]) + self.constant * w[-1]) / self.longest

    def length(self, w):
        return np.linalg.norm(w)

    def weights(self, w):
        return w[:-1], self.constant * w[-1]


class Images:
    """The same of rows of which K has the products; vectors are the two rows (a, K a)."""

    def __init__(self, K, constant):
        self.constant = constant
        self.longest = np.sqrt(np.diagonal(K).max() + constant**2) or 1.0
        self.K = (K + constant**2) / self.longest**2
        self.zero = np.zeros((2, len(K)))

    def combined(self, a):
        return np.stack([a, self.K @ a])

    def scores(self, w):
        return w[1]

    def length(self, w):
        return np.sqrt(max(0.0, w[0] @ w[1]))

    def weights(self, w):
        a = w[0] / self.longest
        return a, self.constant**2 * a.sum()
