"""Kernel method for the optimization of the margin distribution (Aiolli, Da San Martino and Sperduti, ICANN 2008).

With K the Gram matrix and Y the diagonal matrix of the signs,

    min  (1 - lam) g'YKYg + lam ||g||^2    over g >= 0 whose positive rows sum to 1, and whose negative rows do,

as the authors and Donini restate it (EasyMKL, Neurocomputing 2015): the points of the two hulls that are nearest to
each other, lam = 1 being the means of the classes. f(x) = sum_i g_i y_i k(x_i, x) - b, with b half-way between the two
points.

A quadratic program over two simplices, solved by accelerated projected steps that restart where they turn. With h the
gradient at g, the least of h'(v - g) over the simplices' corners bounds how far g is from the optimum: the certificate.
"""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tools.rivals.gram import gram


class KMOMD(ClassifierMixin, BaseEstimator):
    """KM-OMD, of two classes.

    Parameters
    ----------
    lam : float in (0, 1]
    kernel : {"linear", "rbf"}
    gamma : float, default=None
        exp(-gamma ||x - z||^2); None: 1/features.
    tol : float
        The certificate is to be below tol times the objective.
    max_iter : int

    Attributes
    ----------
    objective_, certificate_ : float
    n_iter_ : int
    """

    def __init__(self, *, lam=0.1, kernel="linear", gamma=None, tol=1e-4, max_iter=50_000):
        self.lam, self.kernel, self.gamma, self.tol, self.max_iter = lam, kernel, gamma, tol, max_iter

    def fit(self, X, y):
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        if not 0 < self.lam <= 1:
            raise ValueError(f"lam = {self.lam!r} is not allowed: give a number in (0, 1]")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            raise ValueError(f"y has {len(self.classes_)} classes: KMOMD is for two")
        sign = 2.0 * codes - 1
        K = gram(X, X, self.kernel, self.gamma)
        Q = (1 - self.lam) * K * np.outer(sign, sign)
        Q.flat[:: len(Q) + 1] += self.lam
        g, self.n_iter_, self.objective_, self.certificate_ = nearest(Q, codes, self.tol, self.max_iter)
        self.X_, self.coef_ = X, g * sign
        self.offset_ = float(g @ K @ self.coef_) / 2
        return self

    def decision_function(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return gram(X, self.X_, self.kernel, self.gamma) @ self.coef_ - self.offset_

    def predict(self, X):
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


def nearest(Q, codes, tol, max_iter):
    """(g, steps, objective, certificate) of the least g'Qg over one simplex for each of the codes."""
    parts = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    g = np.zeros(len(Q))
    for part in parts:
        g[part] = 1 / len(part)
    rate = 0.5 / np.linalg.eigvalsh(Q)[-1]
    z, t, last = g, 1.0, g
    for step in range(1, max_iter + 1):
        g = z - rate * 2 * (Q @ z)
        for part in parts:
            g[part] = on_simplex(g[part])
        turned = (z - g) @ (g - last) > 0
        t, before = (1.0 if turned else (1 + np.sqrt(1 + 4 * t * t)) / 2), t
        z = g if turned else g + (before - 1) / t * (g - last)
        last = g
        if step % 10 == 0 or step == max_iter:
            h = Q @ g
            objective = g @ h
            certificate = 2 * (objective - sum(h[part].min() for part in parts))
            if certificate <= tol * objective:
                break
    return g, step, float(objective), float(certificate)


def on_simplex(v):
    """The point of the simplex that is nearest to v."""
    falling = np.sort(v)[::-1]
    lead = (np.cumsum(falling) - 1) / np.arange(1, len(v) + 1)
    return np.maximum(v - lead[np.flatnonzero(falling > lead)[-1]], 0)
