"""Sparse weights of several classes at once: the features that violate optimality most are solved for.

    P(W) = sum_j penalty(w_j) + sum_i c_i log sum_l exp(s_il - s_iy),      s_i = sum_j x_ij w_j,   y the row's class

`feature_blocks` has steps over some features, the weights w_j of all classes together; Newton steps on what is not 0
follow. A survey of the rows has p_il, the classes' shares of exp(s_il), and

    U_jl = sum_i c_i ([l = y_i] - p_il) x_ij,      D = sum_i c_i H(e_y + share (p_i - e_y)),   H the entropy,

of a share that makes N*(U_j) <= l1 for all features j (with l2 > 0 any share, and what penalty.pxd says less).

With biases that cost nothing they are the best ones for the other weights wherever p is made: their U_j is 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from marginlinear.algorithms.free_biases import best_biases
from marginlinear.algorithms.working_sets import MODEL, PART, SparseFit, best_share, features_to_solve
from marginlinear.problem import Info, Solution
from marginlinear.status import STALLED, allowance, status_of

if TYPE_CHECKING:
    from marginlinear._core.penalty import Penalty
    from marginlinear._typing import FloatArray, IntArray, IntpArray, State
    from marginlinear.problem import Problem, Run

# Of two classes, the weights of each for weights w of their difference that are 1.
HALVES = np.array([[-0.5, 0.5]])
# Steps on a set of features, and the cycles of one, at most; the cycles on P itself, at first and where a model is not
# true.
STEPS, CYCLES, DIRECT = 5, 8, 8
# Where the objective falls by less than this part of it, a Newton step on what is not 0 follows a set. Products with
# the Hessian and halvings of one by conjugate gradients, at most, and the part of the slope that it leaves.
NEAR, PRODUCTS, HALVINGS, LEFT = 1e-3, 50, 20, 0.2
# By the Hessian's matrix for at most MATRIX weights, already where the objective falls by less than the part SLOW; a
# proximal one, which l1 has, for LARGE at the end.
LARGE, MATRIX, SLOW = 3000, 500, 0.1
# What rounding may take from the objective, a part of it.
ROUNDING = 1e-14


def shares(scores: FloatArray, total: FloatArray, y: IntArray,
           cost: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Of rows whose scores have these logarithmic sums: the forces c_i (e_y - p_i), of shape (m, k); the part of the
    entropy of p_i that is of other classes, and their share; the losses."""
    own = np.arange(len(y)), y
    p = np.exp(scores - total[:, np.newaxis])
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * (total[:, np.newaxis] - scores), 0.0)
    terms[own] = p[own] = 0.0
    of_others, off = terms.sum(axis=1), p.sum(axis=1)
    p *= -cost[:, np.newaxis]
    p[own] = cost * off
    return p, of_others, off, total - scores[own]


def entropy(cost: FloatArray, of_others: FloatArray, off: FloatArray, share: float) -> float:
    """sum_i c_i H(e_y + share (p_i - e_y)), by what `shares` has of p_i; 0 <= share <= 1."""
    if share == 0:
        return 0.0
    rest = share * off
    entropies = share * (of_others - off * math.log(share)) - (1 - rest) * np.log1p(-rest, where=rest < 1,
                                                                                  out=np.zeros_like(rest))
    return float(cost @ entropies)


def fitted(problem: Problem, run: Run, *given: Any) -> Solution:
    """Solution of a TwoClassesFit or a SparseClassesFit, as there are two classes or more, of these arguments."""
    return (TwoClassesFit if problem.n_classes == 2 else SparseClassesFit)(problem, run, *given).convex()


class SparseClassesFit:
    """A joint fit: `cost` is c_i, the penalty l1 N(w_j) + l2/2 ||w_j||^2 of each feature, N by the name `norm`, as
    penalty.pyx has it. free_bias: the weights of the last feature, that of the bias, cost nothing."""

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, norm: str, l1: float, l2: float,
                 free_bias: bool = False) -> None:
        from marginlinear._core.feature_blocks import FeatureBlocks
        from marginlinear._core.penalty import Penalty
        from marginlinear._core.smooth import SmoothLoss
        from marginlinear.algorithms.certificate import Budget

        k = problem.n_classes
        self.run, self.y, self.cost = run, np.asarray(problem.y), np.array(cost)
        self.loss = SmoothLoss(problem.rows, problem.y, k, self.cost, loss="softmax", threads=run.threads)
        self.free, self.bias = problem.rows.d - 1 if free_bias else -1, problem.rows.bias
        self.penalty = Penalty(norm, l1, l2, self.free)
        self.engine = FeatureBlocks(problem.rows, problem.y, k, self.cost, self.penalty)
        self.W = np.zeros((problem.rows.d, k))
        if run.start is not None:
            self.W[:] = run.start["W"]
        self.U = np.empty(self.W.shape)
        self.direct, self.cycles = DIRECT, 1
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        run.enlist(self)

    def convex(self) -> Solution:
        bound, stopped, before = -math.inf, None, math.inf
        while True:
            objective = self.survey()
            bound = max(bound, self.bound())
            certificate = objective - bound
            self.budget.record(self.engine.cycles, objective, bound, certificate)
            if certificate <= allowance(self.run.tol, objective):
                break
            stopped = self.budget.spent(self.engine.cycles, objective, bound)
            if stopped:
                break
            self.solve()
            slow, near = (before - objective <= part * objective for part in (SLOW, NEAR))
            if slow and not self.budget.exhausted(self.engine.cycles) and not self.leap(LARGE if near else MATRIX):
                self.newton(near)
            before = objective
            self.penalty.centre(self.W)
        status, reason = status_of(certificate, objective, self.run.tol, stopped or STALLED)
        weights = self.W.copy()
        info = Info(status=status, reason=reason, algorithm="cd", n_iter=self.engine.cycles, n_outer=0,
                    objective=objective, bound=bound, certificate=certificate,
                    n_support=int(np.count_nonzero(self.off)), seconds=self.budget.seconds, tol=self.run.tol,
                    history=self.budget.history,
                    notes=(f"{np.count_nonzero(weights)} of {weights.size} weights are not 0",))
        return Solution(weights, info, {"W": weights})

    def state(self) -> State:
        """The weights as they are: see Run.fits."""
        return {"W": self.W.copy()}

    def survey(self) -> float:
        """P at W; scores, their logarithmic sums, U and what D is made of follow."""
        self.scores = self.loss.scores(self.W.reshape(-1))
        if self.free >= 0:
            shift = best_biases(self.scores, self.y, self.cost)
            self.W[self.free] += shift / self.bias
            self.scores += shift
        total = np.logaddexp.reduce(self.scores, axis=1)
        forces, self.of_others, self.off, losses = shares(self.scores, total, self.y, self.cost)
        self.loss.combine(forces, self.U.reshape(-1))
        if self.free >= 0:
            # Rounding.
            self.U[self.free] = 0.0
        return self.penalty.value(self.W) + float(self.cost @ losses)

    def bound(self) -> float:
        """The best D."""
        return best_share(self._dual, self.penalty.dual_norm(self.U), self.penalty.l1, self.penalty.l2)[0]

    def _dual(self, share: float) -> float:
        return entropy(self.cost, self.of_others, self.off, share) - self.penalty.conjugate(self.U, share)

    def _columns(self, wanted: IntArray) -> IntpArray:
        """Those of these features, gathered, and of the biases where these are free."""
        if self.free >= 0:
            wanted = np.union1d(wanted, [self.free])
        self.engine.turn_to(self.W, self.scores)
        return self.engine.gather(wanted).astype(np.intp)

    def solve(self) -> None:
        """Steps on the features with weights, and those that violate optimality most; cycles on P itself at first, and
        after a step whose model was not true."""
        engine, violations = self.engine, self.penalty.violations(self.W, self.U)
        self.set = features_to_solve(np.abs(self.W).max(axis=1), violations)
        columns = self._columns(self.set)
        enough = PART * violations.sum()
        for _ in range(STEPS):
            if self.direct > 0:
                violation, fall = engine.descend(columns)
                self.direct -= 1
            else:
                violation, fall, part = engine.step(columns, MODEL, self.cycles)
                self.cycles = min(CYCLES, 2 * self.cycles) if part == 1 else 1
                self.direct = 0 if part == 1 else DIRECT
            if violation <= enough or fall == 0 or self.budget.exhausted(engine.cycles):
                return

    def leap(self, most: int) -> bool:
        """A proximal Newton step on the features of the last set, its model's curvature being a matrix; whether there
        is one, the norm being l1 and the weights no more than `most`."""
        return self.penalty.norm == "l1" and self.engine.leap(self._columns(self.set), most)

    def newton(self, near: bool) -> None:
        """A Newton step on the weights in which the penalty is smooth; those that would cross 0 end there. Where they
        are few it is a whole one by the Hessian's matrix or, where this does not lower P, a part of one by conjugate
        gradients; where they are more the latter, if the end is near."""
        features = np.flatnonzero(self.penalty.smooth(self.W).any(axis=1))
        penalty, w = self.penalty.among(features), self.W[features]
        free = np.flatnonzero(penalty.smooth(w))
        few = w.size <= MATRIX
        if len(free) == 0 or not (few or near):
            return
        columns = self._columns(features)
        slope = self.engine.slopes(columns)
        penalty.add_slope(w, slope)

        def value() -> float:
            return float(self.loss.value(self.W.reshape(-1))) + self.penalty.value(self.W)

        before = value()
        for way, halvings in ((self.solved, 1), (self.iterated, HALVINGS))[not few:]:
            direction, part = np.zeros(w.shape), 1.0
            direction.reshape(-1)[free] = way(penalty, w, columns, free, -slope.reshape(-1)[free])
            for _ in range(halvings):
                new = w + part * direction
                penalty.stop_at_zero(w, new)
                self.W[features] = new
                if value() <= before + ROUNDING * abs(before):
                    return
                part /= 2
        self.W[features] = w

    def solved(self, penalty: Penalty, w: FloatArray, columns: IntpArray, free: IntpArray,
               right: FloatArray) -> FloatArray:
        """H^-1 right, H the Hessian of P in the weights `free` of these columns', which are w."""
        from marginlinear._core.proximal import solve

        n, k = w.shape
        H, each = self.engine.curvature(columns), np.arange(n)
        blocks = H.reshape(n, k, n, k)
        # The penalty's Hessian is a block for each feature.
        for l in range(k):
            unit, bend = np.zeros(w.shape), np.zeros(w.shape)
            unit[:, l] = 1
            penalty.add_bend(w, unit, bend)
            blocks[each, :, each, l] += bend
        return solve(H[np.ix_(free, free)], right, self.run.threads)

    def iterated(self, penalty: Penalty, w: FloatArray, columns: IntpArray, free: IntpArray,
                 right: FloatArray) -> FloatArray:
        """As `solved`, by conjugate gradients."""
        from scipy.sparse.linalg import LinearOperator, cg

        direction, image = np.zeros(w.shape), np.empty(w.shape)

        def product(v: FloatArray) -> FloatArray:
            direction.reshape(-1)[free] = v
            self.engine.product(columns, direction, image)
            penalty.add_bend(w, direction, image)
            return image.reshape(-1)[free]

        H = LinearOperator((len(free), len(free)), matvec=product, dtype=float)
        found: FloatArray = cg(H, right, rtol=LEFT, maxiter=PRODUCTS)[0]
        return found


class TwoClassesFit(SparseFit):
    """The same of two classes: at the optimum w_j is (-v_j, v_j)/2, so that v has the logistic loss, and the penalty
    l1 N((-1, 1)/2) |v_j| + l2/4 v_j^2."""

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, norm: str, l1: float, l2: float,
                 free_bias: bool = False) -> None:
        from marginlinear._core.penalty import Penalty

        if run.start is not None:
            run = run._replace(start={"W": run.start["W"][:, 1] - run.start["W"][:, 0]})
        super().__init__(problem, run, cost, ((), "softplus"), Penalty(norm, l1, 0.0).value(HALVES), l2 / 2, free_bias)

    def weights(self) -> FloatArray:
        """Of shape (d, 2)"""
        both: FloatArray = super().weights()[:, np.newaxis] * HALVES
        return both
