"""What goes into a solver (Problem, Run), and what comes out (Solution, Info)."""

from collections import namedtuple
from collections.abc import Sequence
from typing import NamedTuple

from marginlinear.status import CONVERGED


class Problem(namedtuple("Problem", "rows y n_classes instance factor whole targets",
                         defaults=(None, None))):
    """Training data as an engine reads it.

    Attributes
    ----------
    rows : marginlinear._core.rows.Rows
        m rows of d features, the bias feature included.
    y : int32 array of shape (m,)
        Classes as 0..k-1.
    n_classes : int
        k; a class may have no row. A binary method gets problems with k = 2 only, and class 1 is positive.
    instance : float64 array of shape (m,)
        Positive weights of the rows. A weight of 2 is a row given twice. Where all are 1 it may be one 1, broadcast.
    factor : float64 array of shape (m,)
        Positive factor of C for each row: the weight of its class. Means over the rows do not know it. Broadcast too.
    whole : float or None
        Where the rows are a part of those of the problem: the sum of `instance` over all of them.
    targets : float64 array of shape (m,) or None
        Of a regression, whose rows are all of class 1 of two: what is to be predicted.
    """

    __slots__ = ()

    @property
    def weights(self):
        """What C is multiplied by for each row: float64 array of shape (m,)."""
        return self.instance * self.factor

    def costs(self, C):
        """C times `weights`: float64 array of shape (m,). ValueError where they, or their sum, overflow."""
        import numpy as np

        with np.errstate(over="ignore"):
            costs = C * self.weights
            if not np.isfinite(costs.sum()):
                raise ValueError("C times the weights of rows and classes overflows: give smaller ones")
        return costs

    @property
    def size(self):
        """Sum of the instance weights: what a mean over the rows is divided by."""
        from marginlinear._core.vector import total

        return total(self.instance) if self.whole is None else self.whole


# Not a subclass of a named tuple, of which skops makes a plain one.
class Info(NamedTuple):
    """How a run ended.

    Attributes
    ----------
    status : {"converged", "max_iter", "time_limit", "stalled", "cycle", "finished", "failed"}
        `converged` means certificate <= tol * max(1, abs(objective)), recomputed from the final weights; for a method
        without a certificate residual <= tol.
    algorithm : str
        The route taken: "cd", "accelerated", "newton", or a method's own.
    n_iter, n_outer : int
        Sweeps over the rows (Newton steps included), and outer iterations of a method that has them.
    objective : float
        Value of the method's objective at the final weights.
    bound, certificate : float or None
        A lower bound, and the certificate of the method; None for a method that minimises no one objective.
    n_support : int
        Rows with a non-zero dual variable.
    seconds : float
        Wall clock time of the solver.
    tol : float
    history : sequence of dict
        One entry a check: n_iter, seconds, objective, bound, certificate, residual. With several binary problems one
        entry a problem, of the sums over the problems solved so far, and `columns`, how many these are.
    residual : float or None
        Change of the last outer iteration, for methods that stop on one.
    reason : {"sweeps", "outer iterations"} or None
        Which cap came first, where the status is max_iter: that on n_iter, or that on n_outer.
    passes : float or None
        Of rows on disk, how many times all of them were read: in sweeps, checks, and to verify them.
    bytes_read : int or None
        The same in bytes.
    cluster : dict or None
        Of a fit over partitions: `rows` of each, `messages`, `collections` of rows, `bytes` of the vectors that
        each partition was sent and of the sums that came back, `restarts`, `seconds_waiting` for the workers, and the
        `seconds` that each worker, by its address, was at work.
    notes : sequence of str
        What `margin-train --verbose` tells beside, such as why a start was left.
    """

    status: str
    algorithm: str
    n_iter: int
    n_outer: int
    objective: float
    bound: float | None
    certificate: float | None
    n_support: int
    seconds: float
    tol: float
    history: Sequence[dict] = ()
    residual: float | None = None
    reason: str | None = None
    passes: float | None = None
    bytes_read: int | None = None
    cluster: dict | None = None
    notes: Sequence[str] = ()

    @property
    def converged(self):
        return self.status == CONVERGED

    @property
    def criterion(self):
        """(name, value, limit): what `converged` is judged by."""
        if self.certificate is None:
            return "residual", self.residual, self.tol
        return "certificate", self.certificate, self.tol * max(1.0, abs(self.objective))

    def to_dict(self):
        """The attributes as a dict, `history` included."""
        return self._asdict()


class Run(namedtuple("Run", "tol algorithm max_iter time_limit seed threads start progress cancel overwrite_rows "
                     "shared places", defaults=(None, None, None, False, False, None))):
    """What a fit is told beside its method's parameters: the values of `params.RUN`, a start, an observer.

    Attributes
    ----------
    tol, algorithm, max_iter, time_limit, seed, threads
        As declared in `params`.
    start : object or None
        The `state` of an earlier Solution on the same rows.
    progress : callable or None
        Called as progress(dict) with the keys of a history entry, a few times a second at most.
    cancel : threading.Event or None
        Once set, by another thread, the fit ends with threads.Cancelled at its next look.
    overwrite_rows : bool
        Whether the arrays of the rows may be written to: nothing else reads them any more.
    shared : bool
        Whether rounds that threads share take the place of sweeps (algorithms/partitions/rounds.py): other bits, which
        do not depend on `threads`.
    places : algorithms.partitions.places.Places or None
        Where the rows are, if not in the Problem, which then has one in place of all.
    """

    __slots__ = ()


class Solution(namedtuple("Solution", "weights info state codes offset", defaults=(None, None, None))):
    """What a method's `fit` returns.

    Attributes
    ----------
    weights : float64 array of shape (d, columns), in C order
        One row a feature (the bias feature last); over Gram rows one row an instance, its coefficients, and last, where
        it is not that of a constant feature, the offset of the scores. A joint method has a column for each class, a
        binary one a single column.
    info : Info
    state : object or None
        Dual variables for a warm start; kept in memory only, never written to a file.
    codes : int8 array of shape (k, columns) or None
        For several binary problems: +1 or -1 where the class is a positive or negative one of the column's problem,
        0 where it has no part. None: the largest score wins, or the sign of a single one.
    offset : float64 array of shape (columns,) or None
        Of a fit over features without a bias: what is added to the scores.
    """

    __slots__ = ()
