"""Sparse weights of several classes at once: the blocks of a class each, in turn.

    P(W) = sum_l penalty(w_l) + sum_i c_i log sum_l exp(s_il - s_iy),      s_il = w_l.x_i,   y the row's class

As a function of w_l, the others held, row i's loss is the softplus of the margin s_il - r_i for its own class, and of
r_i - s_il for others, r_i = log sum_{j != l} exp(s_ij): the problem of two classes with an offset a row, for which
`feature_cd` has steps. A survey of the rows has p_il, the classes' shares of exp(s_il), and

    U_l = sum_i c_i ([l = y_i] - p_il) x_i,      D = sum_i c_i H(e_y + share (p_i - e_y)),   H the entropy,

of a share that makes |U_lj| <= l1 for all l and j (with l2 > 0 any share, and (|U_lj| - l1)_+^2/(2 l2) less).

With biases that cost nothing they are the best ones for the other weights wherever p is made: their U_l are 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from marginlinear.algorithms.free_biases import best_biases
from marginlinear.algorithms.working_sets import MODEL, PART, best_share, features_to_solve
from marginlinear.problem import Info, Solution
from marginlinear.status import STALLED, allowance, status_of

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, IntArray, State
    from marginlinear.problem import Problem, Run

# Steps on a class, of so many cycles at most, before the next one has its turn, which changes its problem.
STEPS, CYCLES = 3, 5
# A class whose violations are a smaller part than this of the mean of all has no turn.
IDLE = 0.01
# Newton steps on what is not 0, their products with the Hessian and their halvings, at most; one that gains a smaller
# part of what the certificate lacks is the last.
NEWTON, PRODUCTS, HALVINGS, ENOUGH = 10, 50, 20, 0.01
# The part of the slope that a step leaves.
LEFT = 0.2
# Of a share below this, the rest of exp(s_il) is not rounded away.
NOT_ALL = 0.9


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
    """sum_i c_i H(e_y + share (p_i - e_y)), by what `shares` has of p_i; 0 < share <= 1."""
    rest = share * off
    entropies = share * (of_others - off * math.log(share)) - (1 - rest) * np.log1p(-rest, where=rest < 1,
                                                                                  out=np.zeros_like(rest))
    return float(cost @ entropies)


class SparseClassesFit:
    """A joint fit: `cost` is c_i, the penalty l1 ||w||_1 + l2/2 ||w||^2. free_bias: the weights of the last feature,
    that of the bias, cost nothing."""

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, l1: float, l2: float,
                 free_bias: bool = False) -> None:
        from marginlinear._core.feature_cd import FeatureCD
        from marginlinear._core.margin_cd import table_of
        from marginlinear._core.smooth import SmoothLoss
        from marginlinear.algorithms.certificate import Budget

        self.run, self.y, self.cost, self.l1, self.l2 = run, np.asarray(problem.y), np.array(cost), l1, l2
        self.loss = SmoothLoss(problem.rows, problem.y, problem.n_classes, self.cost, loss="softmax",
                               threads=run.threads)
        self.free, self.bias = problem.rows.d - 1 if free_bias else -1, problem.rows.bias
        self.engine = FeatureCD(problem.rows, problem.y, self.cost, table_of((), "softplus"), l1, l2, run.seed,
                                self.free)
        # Of each feature, what its weights cost.
        self.costly = np.ones(problem.rows.d)
        if free_bias:
            self.costly[self.free] = 0.0
        self.W = np.zeros((problem.n_classes, problem.rows.d))
        if run.start is not None:
            self.W[:] = run.start["W"].T
        self.U = np.empty(self.W.shape[::-1])
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        run.enlist(self)

    def convex(self) -> Solution:
        bound, stopped = -math.inf, None
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
            self.newton(ENOUGH * certificate)
            if len(self.W) == 2:
                # What both share changes no score's difference, and costs something.
                self.W[:] = (self.W - self.W[::-1]) / 2
        status, reason = status_of(certificate, objective, self.run.tol, stopped or STALLED)
        weights = np.ascontiguousarray(self.W.T)
        info = Info(status=status, reason=reason, algorithm="cd", n_iter=self.engine.cycles, n_outer=0,
                    objective=objective, bound=bound, certificate=certificate,
                    n_support=int(np.count_nonzero(self.off)), seconds=self.budget.seconds, tol=self.run.tol,
                    history=self.budget.history,
                    notes=(f"{np.count_nonzero(weights)} of {weights.size} weights are not 0",))
        return Solution(weights, info, {"W": weights})

    def state(self) -> State:
        """The weights as they are: see Run.fits."""
        return {"W": np.ascontiguousarray(self.W.T)}

    def survey(self) -> float:
        """P at W; scores, their logarithmic sums, U and what D is made of follow."""
        self.scores = self.loss.scores(np.ascontiguousarray(self.W.T).reshape(-1))
        if self.free >= 0:
            shift = best_biases(self.scores, self.y, self.cost)
            self.W[:, self.free] += shift / self.bias
            self.scores += shift
        self.total = np.logaddexp.reduce(self.scores, axis=1)
        forces, self.of_others, self.off, losses = shares(self.scores, self.total, self.y, self.cost)
        self.loss.combine(forces, self.U.reshape(-1))
        if self.free >= 0:
            # Rounding.
            self.U[self.free] = 0.0
        return self.penalty(self.W.T) + float(self.cost @ losses)

    def penalty(self, W: FloatArray) -> float:
        """That of weights of shape (d, k)."""
        size = self.costly @ np.abs(W), self.costly @ np.square(W)
        return float(self.l1 * size[0].sum() + 0.5 * self.l2 * size[1].sum())

    def bound(self) -> float:
        """The best D."""
        return best_share(self._dual, np.abs(self.U).max(initial=0.0), self.l1, self.l2)

    def _dual(self, share: float) -> float:
        if share <= 0:
            return 0.0
        over = np.maximum(0.0, share * np.abs(self.U) - self.l1)
        if self.l2 == 0 and over.max(initial=0.0) > 1e-15 * self.l1:
            return -math.inf
        penalty = np.vdot(over, over) / (2 * self.l2) if self.l2 > 0 else 0.0
        return float(entropy(self.cost, self.of_others, self.off, share) - penalty)

    def violations(self, at: int) -> FloatArray:
        """The least subgradients' sizes of a class's features, at the last survey."""
        w = self.W[at]
        slope = self.l2 * w - self.U[:, at]
        found: FloatArray = np.where(w == 0, np.maximum(0.0, np.abs(slope) - self.l1),
                                     np.abs(slope + self.l1 * np.sign(w)))
        return found * self.costly

    def solve(self) -> None:
        """Steps on each class, those that violate optimality most at first."""
        engine, k = self.engine, len(self.W)
        sums = np.array([self.violations(at).sum() for at in range(k)])
        for at in np.argsort(-sums, kind="stable"):
            if sums[at] <= IDLE * sums.mean() or self.budget.exhausted(engine.cycles):
                return
            others = self.others(at)
            signs = np.where(self.y == at, 1.0, -1.0)
            margins = signs * (self.scores[:, at] - others)
            engine.turn_to(self.W[at], self.y == at, margins)
            wanted = features_to_solve(self.W[at], self.violations(at))
            if self.free >= 0:
                wanted = np.union1d(wanted, [self.free])
            columns = engine.gather(wanted).astype(np.intp)
            for _ in range(STEPS):
                violation, fall, _ = engine.step(columns, MODEL, CYCLES, False)
                if violation <= PART * sums[at] or fall == 0 or self.budget.exhausted(engine.cycles):
                    break
            self.scores[:, at] = others + signs * margins
            self.total = np.logaddexp(others, self.scores[:, at])

    def newton(self, enough: float) -> None:
        """Newton steps on the weights that are not 0, as long as these keep their signs, which move all classes
        together; those that would not become 0. Those that cost nothing may have any sign."""
        from scipy.sparse.linalg import LinearOperator, cg

        loss, shape = self.loss, self.U.shape
        W = np.ascontiguousarray(self.W.T)
        l1, l2 = self.l1 * self.costly[:, np.newaxis], self.l2 * self.costly[:, np.newaxis]
        bend = np.broadcast_to(l2, shape).reshape(-1)

        def free_of(W: FloatArray) -> IntArray:
            return np.flatnonzero((W != 0) | (self.costly == 0)[:, np.newaxis])

        free, signs = free_of(W), np.sign(W) * (l1 > 0)
        direction, image, gradient = (np.zeros(shape) for _ in range(3))

        def product(v: FloatArray) -> FloatArray:
            direction.reshape(-1)[free] = v
            loss.product(direction.reshape(-1), image.reshape(-1))
            return image.reshape(-1)[free] + bend[free] * v

        def value(W: FloatArray) -> float:
            return float(loss.value(W.reshape(-1))) + self.penalty(W)

        for _ in range(NEWTON if len(free) else 0):
            before = loss.value_and_gradient(W.reshape(-1), gradient.reshape(-1))
            before += self.penalty(W)
            slope = (gradient + l2 * W + l1 * signs).reshape(-1)[free]
            H = LinearOperator((len(free), len(free)), matvec=product, dtype=float)
            step = cg(H, -slope, rtol=LEFT, maxiter=PRODUCTS)[0]
            direction.reshape(-1)[free] = step
            part = 1.0
            for _ in range(HALVINGS):
                new = W + part * direction
                new[new * signs < 0] = 0.0
                after = value(new)
                if after < before:
                    break
                part /= 2
            else:
                break
            W, signs, free = new, np.sign(new) * (l1 > 0), free_of(new)
            direction[:] = 0.0
            if before - after <= enough or len(free) == 0:
                break
        self.W[:] = W.T

    def others(self, at: int) -> FloatArray:
        """r_i of this class: float64 array of shape (m,)"""
        p = np.exp(self.scores[:, at] - self.total)
        found: FloatArray = self.total + np.log1p(-np.minimum(p, NOT_ALL))
        most = np.flatnonzero(p > NOT_ALL)
        found[most] = np.logaddexp.reduce(np.delete(self.scores[most], at, axis=1), axis=1)
        return found
