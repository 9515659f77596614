"""Over features: biases of several classes that cost nothing, with the loss of multinomial logistic regression.

    P(W, b) = 1/2 ||W||^2 + sum_i c_i log(1 + sum_{l != y_i} exp(s_il - s_iy_i)),      s_il = w_l.x_i + b_l

    D(p) = sum_i c_i H(p_i) - 1/2 sum_l ||U_l||^2,      U_l = sum_i c_i ([l = y_i] - p_il) x_i,
           sum_i c_i ([l = y_i] - p_il) = 0 for all l

Newton steps on W and b with eps ||b||^2 beside, then the best b for W: there p has the sums that D asks for. What eps
costs falls with its square, and eps itself where that was too much. `n_outer` counts the values of eps.
"""

import math

import numpy as np

from marginlinear._core.smooth import SmoothLoss
from marginlinear.algorithms import pairwise
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.pairwise.newton import maximum
from marginlinear.algorithms.pairwise.passes import dot, sqnorm
from marginlinear.algorithms.pairwise.regulariser import Quadratic
from marginlinear.problem import Solution
from marginlinear.status import CONVERGED, STALLED, allowance, status_of

# eps at first, as a part of the sum of the costs, which is 4 times the loss's largest curvature in b; what it falls by,
# and where it ends.
EPS, LESS, LEAST = 1e-5, 100.0, 1e-13
# The part of the tolerance that is the fit's with eps.
PART = 0.5
# Newton steps for b, and halvings; a slope of so small a part of the costs is 0, and a change of the value rounding.
STEPS, HALVINGS, ROUNDING, LOST = 100, 40, 1e-15, 1e-12


def best_biases(scores, y, cost):
    """What is best added to the columns of scores, float64 array of shape (k,): the slopes of

        sum_i c_i log sum_l exp(s_il + b_l - s_iy_i - b_y_i)

    are 0 there but for rounding. Each class has a row.
    """
    k, own = scores.shape[1], (np.arange(len(y)), y)
    sums = np.bincount(y, cost, k)
    b, b_sum = np.zeros(k), float(cost.sum())

    def at(b):
        z = scores + b
        top = z.max(axis=1)
        p = np.exp(z - top[:, np.newaxis])
        total = p.sum(axis=1)
        p /= total[:, np.newaxis]
        return float(cost @ (np.log(total) + top - z[own])), p

    value, p = at(b)
    for _ in range(STEPS):
        weighted = cost[:, np.newaxis] * p
        slopes = weighted.sum(axis=0) - sums
        if np.abs(slopes).max() <= ROUNDING * b_sum:
            break
        # The same for all classes changes nothing: that direction is held.
        bend = np.diag(weighted.sum(axis=0)) - p.T @ weighted + b_sum / k / k
        step = np.linalg.lstsq(bend, -slopes, rcond=None)[0]
        part = 1.0
        for _ in range(HALVINGS):
            new, p_new = at(b + part * step)
            # Slopes tell digits that the value has lost.
            nearer = np.abs(cost @ p_new - sums).max() < np.abs(slopes).max()
            if new < value or (nearer and new <= value + LOST * abs(value)):
                break
            part /= 2
        else:
            break
        b, value, p = b + part * step, new, p_new
    return b - b.mean()


def fit(problem, run, cost):
    """Solution with biases that cost nothing, the last feature being their feature."""
    rows, k = problem.rows, problem.n_classes
    told, budget = Budget(None, None, run.progress), Budget(run.max_iter, run.time_limit, cancel=run.cancel)
    loss = SmoothLoss(rows, problem.y, k, cost, loss="softmax", threads=run.threads)
    gradient = np.empty((rows.d, k))
    objective, bound, best, state, eps = math.inf, -math.inf, None, run.start, EPS
    n_iter = n_outer = 0
    inner_run = run._replace(tol=PART * run.tol, progress=None)
    while True:
        regulariser = Quadratic(0.5, eps=eps * float(cost.sum()), bias=rows.bias)
        left = None if run.time_limit is None else max(0.0, run.time_limit - budget.seconds)
        inner = pairwise.newton_fit(run)(problem, inner_run._replace(
            start=state, time_limit=left, max_iter=max(1, run.max_iter - n_iter)), cost, regulariser,
            "softmax").solution()
        state, n_iter, n_outer = inner.state, n_iter + inner.info.n_iter, n_outer + 1
        W = inner.weights
        W[-1] += best_biases(loss.scores(W.reshape(-1)), problem.y, cost) / rows.bias
        lost = loss.value_and_gradient(W.reshape(-1), gradient.reshape(-1))
        value = 0.5 * sqnorm(W[:-1]) + lost
        if value < objective:
            objective, best = value, W
        bound = max(bound, maximum(lost - dot(W[:-1], gradient[:-1]), 0.0, 2.0, 0.5 * sqnorm(gradient[:-1])))
        told.record(n_iter, objective, bound, objective - bound)
        certified = objective - bound <= allowance(run.tol, objective)
        if certified or inner.info.status != CONVERGED or eps <= LEAST:
            break
        eps /= LESS
    ended = inner.info.reason or inner.info.status if inner.info.status != CONVERGED else STALLED
    status, reason = status_of(objective - bound, objective, run.tol, ended)
    info = inner.info._replace(status=status, reason=reason, n_iter=n_iter, n_outer=n_outer, objective=objective,
                               bound=bound, certificate=objective - bound, tol=run.tol, seconds=told.seconds,
                               history=told.history)
    return Solution(best, info, state)
