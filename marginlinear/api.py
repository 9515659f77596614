"""train, Model, save_model, load_model: the library's face."""

import os
import warnings

import numpy as np

from marginlinear import params as P
from marginlinear import registry
from marginlinear._core.rows import Rows
from marginlinear._core.scores import margins_of, scores_of
from marginlinear.problem import CONVERGED, FAILED, ConvergenceWarning, Info, Problem, Run
from marginlinear.threads import default_threads, run_chunks


class Model:
    """A linear classifier: weights, classes and how they were found.

    Attributes
    ----------
    classes : array of shape (n_classes,)
        int64, float64 or str, ascending where `train` made the model; predictions are taken from here.
    coef : float64 array of shape (n_classes, n_features), or (1, n_features)
        One row a class; a single row where the sign decides, with classes[1] positive. A view of `weights`.
    intercept : float64 array of shape (n_classes,) or (1,)
        Weight of the bias feature times its value; zeros without one.
    weights : float64 array of shape (n_features + 1 or n_features, n_classes or 1)
        As in a model file: one row a feature, the bias feature last.
    bias : float
        Value of the bias feature, negative for none.
    solver : str
        Name of the method.
    params : dict
        The method's parameters, with those of the run that change the result.
    info : Info or None
        None for a model that another program trained.
    """

    def __init__(self, weights, classes, *, bias=-1.0, solver="", params=None, info=None, state=None):
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        self.classes = np.asarray(classes)
        self.bias = float(bias)
        self.solver = solver
        self.params = dict(params or {})
        self.info = info
        self._state = state
        columns = self.weights.shape[1]
        if columns != len(self.classes) and not (columns == 1 and len(self.classes) == 2):
            raise ValueError(f"weights have {columns} columns for {len(self.classes)} classes")

    def __getstate__(self):
        return {**self.__dict__, "_state": None}

    @property
    def joint(self):
        """True where the largest of several columns of scores wins, False where the sign of one decides."""
        return self.weights.shape[1] == len(self.classes)

    @property
    def n_features(self):
        return self.weights.shape[0] - (self.bias >= 0)

    @property
    def coef(self):
        return self.weights[: self.n_features].T

    @property
    def intercept(self):
        if self.bias < 0:
            return np.zeros(self.weights.shape[1])
        return self.bias * self.weights[-1]

    def decision_function(self, X, *, threads=None):
        """Scores of the rows of X.

        Parameters
        ----------
        X : array or sparse array of shape (m, n)
            Features above n_features have no weight and are left out; missing ones count as zero.
        threads : int, optional
            Default: all cores. The result does not depend on it.

        Returns
        -------
        float64 array of shape (m, n_classes), or (m,) where one column's sign decides.
        """
        scores = self._scores(as_rows(X, self.bias, self.n_features), threads)
        return scores if self.joint else scores[:, 0]

    def predict(self, X, *, threads=None):
        """Labels of the rows of X; equal scores go to the class that stands first, a score of 0 to classes[0]."""
        return self.labels_of(self.decision_function(X, threads=threads))

    def labels_of(self, scores):
        """Labels for scores as `decision_function` returns them."""
        if self.joint:
            return self.classes[np.argmax(scores, axis=1)]
        return self.classes[(scores > 0).astype(np.intp)]

    def margins(self, X, y, *, threads=None):
        """Margins of the rows of X: the score of the label less the largest other score, or y f(x) with one column.

        Raises ValueError for a label that the model does not know.
        """
        codes = np.searchsorted(self.classes, y, sorter=(order := np.argsort(self.classes)))
        codes = order[np.minimum(codes, len(order) - 1)].astype(np.int32)
        unknown = self.classes[codes] != y
        if np.any(unknown):
            raise ValueError(f"y: label {np.asarray(y)[unknown][0]!r} is not among the classes of the model")
        scores = self._scores(as_rows(X, self.bias, self.n_features), threads)
        if len(codes) != len(scores):
            raise ValueError(f"y has {len(codes)} labels for {len(scores)} rows")
        if not self.joint:
            return np.where(codes == 1, 1.0, -1.0) * scores[:, 0]
        return margins_of(scores, codes)

    def _scores(self, rows, threads):
        out = np.empty((rows.m, self.weights.shape[1]))
        run_chunks(lambda lo, hi: scores_of(rows, self.weights, out, lo, hi), rows.m, threads)
        return out
