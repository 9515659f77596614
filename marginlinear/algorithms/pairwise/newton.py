"""Newton's method with conjugate gradients for a smooth loss and a regulariser of the classes' distances.

Of few rows, lbfgs.py is the quicker one where it applies, of many features sweeps.py; what they leave is Newton's.

A Newton step solves H s = -gradient by conjugate gradients, in coordinates of the classes' directions in which M is
the identity and C = sum_i B_i diagonal, B_i row i's curvature in its scores. Preconditioner: (I + A x C)^-1 with
A = sum_i tr(B_i) x_i x_i' / sum_i tr(B_i), of which many features have the diagonal alone; of a sharp hinge that of
direct.py, for few weights, or of active.py, as soon as the products have cost what it costs. SciPy's Newton methods
take no preconditioner, its L-BFGS needs up to 20 vectors of d k numbers; here there are 6, with active.py's 10, and
what a pass over rows needs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from marginlinear._core.scores import margins_of, scores_of
from marginlinear._core.smooth import SmoothLoss
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.pairwise.active import MOST, ActivePairs, sharpest
from marginlinear.algorithms.pairwise.direct import WholeHessian, curvature_of
from marginlinear.algorithms.pairwise.lbfgs import ScoreDescent
from marginlinear.algorithms.pairwise.loss import HingeDuals
from marginlinear.algorithms.pairwise.passes import CACHED, add, blocks, by_rows, dot, maximum, multiply
from marginlinear.algorithms.pairwise.sweeps import NEAR, DualSweeps
from marginlinear.problem import Info, Solution
from marginlinear.status import STALLED, allowance, status_of
from marginlinear.threads import aside, run_chunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from marginlinear._core.rows import Rows
    from marginlinear._typing import FloatArray, State
    from marginlinear.algorithms.pairwise.regulariser import Quadratic
    from marginlinear.problem import Problem, Run

# Most features whose correlations the preconditioner knows, if there are as many rows.
WHOLE = 1000
# Features above which sweeps go before the steps, and the sweeps that may crawl: fewer where the preconditioner knows
# the correlations.
SWEPT, CRAWLING, CRAWLING_KNOWN = 100, 1000, 250
# Most features whose whole Hessian is solved for; products of it, at least, before active.py is tried on more.
DIRECT, TRIED = 100, 20
# Multiplications of matrices that cost as much as one of a product of the Hessian.
QUICK = 4
# A stage is settled when a step promises no more than this part of what the rounding costs: the rounding then falls by
# the factor SHARPER, down to LEAST.
SETTLED, SHARPER, LEAST = 0.1, 4.0, 1e-12
# A Newton step is good enough when its residual is this part of the gradient's, in the preconditioner's norm: rough
# at first, in proportion to certificate/P, then fine. Rough steps of a hinge miss the bias, whose own curvature is eps,
# and stages seem settled that are not.
ROUGH, ROUGH_HINGE, FINE = 0.3, 0.1, 1e-2
# A step is taken for so much of the decrease that its slope promises; or, where values are but rounding, once the slope
# is flatter by a factor. Of TRIALS lengths, the first PATIENCE are to be flat as well; the next one is this far WITHIN
# the bracket.
ARMIJO, FLAT, ROUNDING, TRIALS = 1e-4, 0.5, 1e-13, 30
PATIENCE, WITHIN = 5, 0.3


class NewtonFit:
    """One fit from W = 0, or from a start, to a certificate.

    Parameters
    ----------
    problem : Problem
    run : Run
        `max_iter` caps the Newton steps.
    cost : float64 array of shape (m,)
    regulariser : Quadratic or Pairwise
    loss : {"hinge", "logistic", "softmax"}
    width : float
        Of the hinge's rounded corner in the objective; 0: not rounded. Other losses: any number.
    """

    # Of the hinge alone.
    duals: HingeDuals

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, regulariser: Quadratic, loss: str,
                 width: float = 0.0) -> None:
        self.problem, self.run, self.cost, self.regulariser = problem, run, cost, regulariser
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        self.hinge, self.width = loss == "hinge", width
        start = run.start or {}
        self.loss = self._loss(loss, max(width, start.get("width", 1.0)))
        self.W, self.gradient, self.step, self.residual, self.direction, self.scratch = (
            np.zeros((problem.rows.d, problem.n_classes)) for _ in range(6))
        if "W" in start:
            self.W[:] = start["W"]
        k = problem.n_classes
        regulariser.threads = run.threads
        regulariser.tau = start.get("tau", regulariser.first_tau(cost.sum() * (k - 1), k))
        self.duals = self._duals() if self.hinge else None  # type: ignore[assignment]  # as above
        self.n_iter = self.products = 0
        run.enlist(self)

    def _loss(self, name: str, width: float) -> SmoothLoss:
        problem = self.problem
        return SmoothLoss(problem.rows, problem.y, problem.n_classes, self.cost, loss=name, width=width,
                          threads=self.run.threads)

    def _duals(self) -> HingeDuals:
        return HingeDuals(self.loss, self.problem.y, self.cost)

    def _mean_square(self, weights: FloatArray) -> FloatArray | None:
        return mean_square(self.problem.rows, weights, self.budget)

    def _column_squares(self, weights: FloatArray) -> FloatArray:
        return column_squares(self.problem.rows, weights)

    def solution(self) -> Solution:
        # Values that overflow are refused where they are compared.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._solution()

    def _solution(self) -> Solution:
        tol, ended = self.run.tol, None
        if self._on_scores:
            descent = ScoreDescent(self.loss, self.regulariser, self.W, self.gradient, tol, self.budget,
                                   self.run.threads, self.state)
            self.run.enlist(descent)
            self.n_iter = descent.run()
            self.run.enlist(self)
        starts = self._starts()
        # Without time the weights to start from are the answer: sweeps would make others of the duals.
        if self._in_sweeps and not self.budget.exhausted(0):
            starts = self._swept(starts)
        first = self.n_iter
        self._evaluate(self.W, self.gradient)
        if self.hinge:
            self._begin(starts)
        while True:
            self._certify()
            ended = ended or self.budget.spent(self.n_iter, self.rounded, self.bound)
            certified = self.objective - self.bound <= allowance(tol, self.objective)
            if (certified or ended) and self._wide and self.width > 0:
                # The sharper objective is smaller, and what was certified stays so.
                self.loss.width = self.width
                self._evaluate(self.W, self.gradient)
                continue
            self.budget.record(self.n_iter, self.objective, self.bound, self.objective - self.bound)
            if certified or ended:
                break
            gain = self._newton_direction()
            if gain is None:
                continue
            moved = gain > 0 and self._search()
            self.n_iter += moved
            settled = not moved or gain <= SETTLED * self.rounding
            if settled and not self._sharpen() and not moved:
                ended = STALLED
        weights = self._centred()
        certificate = self.objective - self.bound
        status, reason = status_of(certificate, self.objective, tol, ended)
        info = Info(
            status=status,
            algorithm="newton" if self.n_iter > first or first == 0 else "cd" if self.hinge else "lbfgs",
            n_iter=self.n_iter,
            n_outer=0,
            objective=self.objective,
            bound=self.bound,
            certificate=certificate,
            n_support=self._support(),
            seconds=self.budget.seconds,
            tol=tol,
            history=self.budget.history,
            reason=reason,
        )
        return Solution(weights, info, self.state())

    def state(self) -> State:
        """The weights as they are: see Run.fits."""
        return {"W": self.W, "width": self.loss.width, "tau": self.regulariser.tau,
                "duals": self.duals.sigma if self.hinge else None}

    def _starts(self) -> list[FloatArray]:
        """sigma to begin with: those of the start, and of duals that are scaled as R's gradient at the start's W is.

        At another weight of R the optimal W are the same where losses are next to nothing, and their duals are scaled.
        """
        sigma = (self.run.start or {}).get("duals")
        if sigma is None:
            return []
        given, features = (1 + sigma) / 2, self.regulariser.features
        self.regulariser.evaluate(self.W)
        self.scratch[:] = 0
        self.regulariser.add_gradient(self.W, self.scratch)
        made = -dot(self.W[features], self._pull(given)[features])
        scale = dot(self.W[features], self.scratch[features]) / made if made > 0 else 1.0
        return [sigma, 2 * np.minimum(1, scale * given) - 1] if math.isfinite(scale) else [sigma]

    def _begin(self, starts: list[FloatArray]) -> None:
        """The duals at W: of the best start, or, without one, those of its losses."""
        bounds = []
        for sigma in starts:
            self.duals.move(self.W, 0.0, sigma)
            self._certify()
            bounds.append(self.bound)
        self.duals.move(self.W, 0.0, starts[int(np.argmax(bounds))] if starts else None)

    def _centred(self) -> FloatArray:
        """A copy of W and b, whose columns add up to 0 from here on."""
        W, copy = self.W, np.empty_like(self.W)

        def some(lo: int, hi: int) -> None:
            W[lo:hi] -= W[lo:hi].mean(axis=1, keepdims=True)
            copy[lo:hi] = W[lo:hi]

        by_rows(some, W, self.run.threads)
        return copy

    @property
    def _wide(self) -> bool:
        """Whether the hinge's corner is rounder than the objective's."""
        return self.hinge and self.loss.width > self.width

    def _evaluate(self, W: FloatArray, out: FloatArray) -> float:
        """Value of the rounded objective at W; its gradient into `out`."""
        loss, regulariser = self.loss, self.regulariser
        self.lost = loss.value_and_gradient(W.reshape(-1), out.reshape(-1))
        self.along = dot(W, out)
        self.norm, excess = map(float, regulariser.evaluate(W))
        self.rounded = self.lost + self.norm + excess
        self.rounding = excess + (self.lost - loss.hinge if self._wide else 0.0)
        regulariser.add_gradient(W, out)
        return self.rounded

    def _certify(self) -> None:
        """Objective and lower bound at the weights of the last evaluation."""
        # -loss*(rho), by Fenchel's equality, or from the dual of the hinge without rounding.
        gained = self.loss.mass if self._wide else self.lost - self.along
        self.objective = self.norm + (self.loss.hinge if self.hinge and self.width == 0 else self.lost)
        self.regulariser.factorise(self.W.shape[1])
        self.bound = maximum(gained, *self.regulariser.conjugate(self.W, self.gradient, self.scratch))
        if not self.hinge:
            return
        for balanced in (False, True) if self.regulariser.bias else (False,):
            if self.objective - self.bound > allowance(self.run.tol, self.objective):
                rho = self.duals.rho(balanced)
                self.duals.gradient(rho, self.step)
                self.regulariser.add_gradient(self.W, self.step)
                gained = self.duals.gained(rho, 0.0 if self._wide else self.width)
                self.bound = max(self.bound,
                                 maximum(gained, *self.regulariser.conjugate(self.W, self.step, self.scratch)))

    def _newton_direction(self) -> float | None:
        """Conjugate gradients for H step = -gradient; returns what the step promises, None where the budget ends."""
        if self.hinge:
            self.duals.bend()
        curvature, weights = self.loss.curvature(self.duals.H if self.hinge else None)
        curvatures = self.regulariser.align(curvature)
        found = self._preconditioner(curvatures, weights)
        if found is None:
            return None
        precondition, size = found
        step, r, p, q = self.step, self.residual, self.direction, self.scratch
        d, threads = len(step), self.run.threads
        multiply(self.gradient, -self.regulariser.basis, r, threads)
        for vector in (step, p, q):
            vector[:] = 0
        alpha = turn = 0.0

        def go(lo: int, hi: int) -> float:
            add(step[lo:hi], alpha, p[lo:hi])
            add(r[lo:hi], -alpha, q[lo:hi])
            q[lo:hi] = precondition(r, lo, hi)
            return dot(r[lo:hi], q[lo:hi])

        def head(lo: int, hi: int) -> None:
            p[lo:hi] *= turn
            p[lo:hi] += q[lo:hi]

        first = rho = sum(run_chunks(go, d, threads, size))
        gain, sharp, patience = 0.0, None, math.inf
        rough = ROUGH_HINGE if self.hinge else ROUGH
        forcing = max(FINE, rough * min(1.0, (self.objective - self.bound) / max(1.0, abs(self.objective))))
        # Without rounding d k gradients are the exact solution.
        for products in range(2 * step.size):
            if not rho > forcing**2 * first:
                break
            if self.budget.exhausted(self.n_iter):
                return None
            if products == (0 if self._few else TRIED):
                sharp, patience = self._sharp()
            if sharp is not None and products >= patience:
                inverse, sharp, turn = sharp(), None, 0.0
                if inverse is None:
                    return None
                multiply(self.gradient, -self.regulariser.basis, p, threads)
                start, along = dot(p, inverse(p, 0, d)), inverse(r, 0, d)
                # Rounding may leave it indefinite, or not a number.
                if start > 0 and dot(r, along) > 0:
                    precondition, size, first, rho, q[:] = inverse, d, start, dot(r, along), along
            run_chunks(head, d, threads, size)
            self._product(p, q)
            bend = sum(run_chunks(lambda lo, hi: dot(p[lo:hi], q[lo:hi]), d, threads, size))
            if not bend > 0:
                break
            alpha = rho / bend
            gain += alpha * rho / 2
            before = rho
            rho = sum(run_chunks(go, d, threads, size))
            turn = rho / before
        multiply(step, self.regulariser.basis.T, step, threads)
        return gain

    def _sharp(self) -> tuple[Callable[[], ActivePairs | WholeHessian | None] | None, float]:
        """What makes the inverse of a hinge's Hessian, of all weights where these are few, or of the few values of the
        curvature that count, or None where the budget ends; and what that costs, in products. None where both are many.
        """
        if not self.hinge:
            return None, math.inf
        problem, regulariser, H, W = self.problem, self.regulariser, self.duals.H, self.W
        rows, (d, k) = problem.rows, W.shape
        product = max(1, rows.nnz * k)
        if self._few:
            cost = 2 * (d * (k - 1))**3 + rows.m * k * d**2
            return self._whole, cost / (QUICK * product)
        which = sharpest(H, MOST - len(regulariser.rank_ones(k)[0]))
        if which is None:
            return None, math.inf
        return lambda: ActivePairs(rows, problem.y, H, which, regulariser, W), len(which)**3 / (QUICK * product)

    def _whole(self) -> WholeHessian | None:
        curvature = curvature_of(self.problem.rows, self.problem.y, self.duals.H, self.budget)
        return None if curvature is None else WholeHessian(curvature, self.regulariser, self.W)

    def _product(self, V: FloatArray, out: FloatArray) -> None:
        """The Hessian times V, both in the coordinates of the basis."""
        self.products += 1
        basis = self.regulariser.basis
        if self.hinge:
            self.loss.weighted_product(self.duals.H, V.reshape(-1), out.reshape(-1), basis)
        else:
            self.loss.product(V.reshape(-1), out.reshape(-1), basis)
        self.regulariser.add_product(self.W, V, out)

    @property
    def _few(self) -> bool:
        """Whether there are so few weights, for so many rows, that their whole Hessian is solved for."""
        d, k = self.W.shape
        return d <= DIRECT and d * (k - 1) <= min(MOST, self.problem.rows.m)

    @property
    def _on_scores(self) -> bool:
        """Whether L-BFGS goes first."""
        return not self.hinge and self.regulariser.quadratic and self.problem.rows.m < self.problem.rows.d

    @property
    def _in_sweeps(self) -> bool:
        """Whether dual coordinate descent goes first."""
        rows = self.problem.rows
        return (self.hinge and self.width > 0 and rows.pager is None
                and (rows.d > SWEPT or not self._correlated))

    def _swept(self, starts: list[FloatArray]) -> list[FloatArray]:
        """Sweeps, from duals of 0 or from W and a sigma; that of the end, or the start again where that is far."""
        run, regulariser, k, wide = self.run, self.regulariser, self.problem.n_classes, self.loss.width
        tau, least = regulariser.tau, LEAST * self.cost.sum() * (k - 1)
        squares = self._column_squares(self.cost)[regulariser.features]
        sweeps = DualSweeps(self.problem, run, self.cost, regulariser, self.width,
                            float(squares.sum() / self.cost.sum()), self.W, self._check, self.budget,
                            CRAWLING_KNOWN if self._correlated else CRAWLING)
        run.enlist(sweeps)
        self.loss.width, regulariser.tau = self.width, regulariser.first_tau(least, k)
        gap = sweeps.run(starts, self._pull)
        self.n_iter = sweeps.n_iter
        run.enlist(self)
        near = max(allowance(run.tol, self.objective), NEAR * abs(self.objective))
        if gap <= near or self.budget.exhausted(self.n_iter):
            # By rounding the certificate may be 0, or less.
            regulariser.tau = regulariser.first_tau(max(gap, least), k)
            return [sweeps.sigma]
        self.loss.width, regulariser.tau = wide, tau
        self.W[:] = run.start["W"] if run.start else 0.0
        return starts

    def _pull(self, rho: FloatArray) -> FloatArray:
        """The gradient of the losses that rho makes, until something else is in its place."""
        self.duals.gradient(rho, self.gradient)
        return self.gradient

    def _check(self, sigma: FloatArray) -> tuple[float, float]:
        """(objective, bound) at W and these duals."""
        self._evaluate(self.W, self.gradient)
        self.duals.move(self.W, 0.0, sigma)
        self._certify()
        return self.objective, self.bound

    @property
    def _correlated(self) -> bool:
        """Whether the preconditioner knows the features' correlations."""
        rows = self.problem.rows
        return rows.d <= min(WHOLE, rows.m)

    def _preconditioner(self, curvatures: FloatArray,
                        weights: FloatArray) -> tuple[Callable[[FloatArray, int, int], FloatArray], int] | None:
        """(I + A x diag(curvatures))^-1, A the rows' mean square by these weights.

        Returns a function of (r, lo, hi) that gives features lo to hi of its product with r, and how many at a time;
        None where the budget ends.
        """
        rows, total = self.problem.rows, weights.sum()
        own = self.regulariser.curvature_of_bias()
        if total > 0:
            weights = weights / total
        root = np.ones(rows.d)
        if own is not None and rows.bias > 0:
            root[-1] = 1 / math.sqrt(own.mean())
        if self._correlated:
            whole = self._mean_square(weights)
            if whole is None:
                return None
            whole = root[:, None] * whole * root
            if np.isfinite(whole).all():
                values, vectors = aside(np.linalg.eigh, whole)
                scale = 1 / (1 + np.maximum(values, 0)[:, None] * curvatures)
                vectors *= root[:, None]
                return lambda r, lo, hi: vectors @ (vectors.T @ r * scale), rows.d
        squares = self._column_squares(weights)

        def apply(r: FloatArray, lo: int, hi: int) -> FloatArray:
            out = r[lo:hi] / (1 + squares[lo:hi, None] * curvatures)
            if own is not None and hi == rows.d:
                out[-1] = r[-1] / (own + squares[-1] * curvatures)
            return out

        return apply, max(1, CACHED // len(curvatures))

    def _search(self) -> bool:
        """A step along the Newton direction that lowers the rounded objective; False where none is found in time."""
        W, gradient, trial, slopes = self.W, self.gradient, self.residual, self.direction
        value, slope = self.rounded, dot(gradient, self.step)
        noise = ROUNDING * max(1.0, abs(value))
        t, low, high = 1.0, 0.0, math.inf

        def move(lo: int, hi: int) -> None:
            np.multiply(self.step[lo:hi], t, out=trial[lo:hi])
            trial[lo:hi] += W[lo:hi]

        for trials in range(TRIALS):
            by_rows(move, W, self.run.threads)
            found = self._evaluate(trial, slopes)
            here = dot(slopes, self.step) if math.isfinite(found) else math.inf
            lower = found <= value + ARMIJO * t * slope or (found <= value + noise and abs(here) <= FLAT * abs(slope))
            if lower and (here >= FLAT * slope or high == math.inf or trials >= PATIENCE):
                self.W, self.residual = trial, W
                self.gradient, self.direction = slopes, gradient
                if self.hinge:
                    self.duals.move(trial, t)
                return True
            if lower and here < 0:
                low = t
            else:
                high = t
            if self.budget.exhausted(self.n_iter):
                break
            t = low + (high - low) * (WITHIN if math.isfinite(found) else WITHIN**2)
        self._evaluate(W, gradient)
        return False

    def _sharpen(self) -> bool:
        """Less rounding, where there is some to lose."""
        loss, regulariser = self.loss, self.regulariser
        wide = self._wide and loss.width > LEAST
        if not wide and regulariser.tau <= LEAST:
            return False
        if wide:
            loss.width = max(self.width, loss.width / SHARPER)
        regulariser.tau /= SHARPER
        self._evaluate(self.W, self.gradient)
        return True

    def _support(self) -> int:
        """Rows with a dual variable that is more than rounding: for the hinge one above 0.01."""
        if not self.hinge:
            return self.problem.rows.m
        rows, y = self.problem.rows, self.problem.y
        scores = np.empty((rows.m, self.W.shape[1]))
        run_chunks(lambda lo, hi: scores_of(rows, self.W, scores, lo, hi), rows.m, self.run.threads,
                   rows.slice(self.W.shape[1]))
        return int(np.count_nonzero(margins_of(scores, y) < 1 + 5 * self.loss.width))


def column_squares(rows: Rows, cost: FloatArray) -> FloatArray:
    """sum_i c_i x_ij^2, float64 array of shape (d,)."""
    squares: Any
    if isinstance(rows.arrays, tuple):
        _, indices, indptr = rows.arrays
        weights = np.repeat(cost, np.diff(indptr))
        weights *= np.square(rows.stored(), dtype=np.float64)
        squares = np.bincount(indices[: rows.nnz], weights=weights, minlength=rows.n)
    else:
        squares = np.einsum("i,ij,ij->j", cost, rows.arrays, rows.arrays)
    found: FloatArray = np.append(squares, rows.bias**2 * cost.sum()) if rows.bias >= 0 else squares
    return found


def mean_square(rows: Rows, weights: FloatArray, budget: Budget | None) -> FloatArray | None:
    """sum_i weights_i x_i x_i', float64 array of shape (d, d); None where the budget, if there is one, ends."""
    A = np.zeros((rows.d, rows.d))
    X: Any
    if isinstance(rows.arrays, tuple):
        _, indices, indptr = rows.arrays
        X = csr_array((rows.stored(), indices[: rows.nnz], indptr), shape=(rows.m, rows.n))
    else:
        X = rows.arrays
    for part in blocks(rows.m, rows.d):
        if budget is not None and budget.exhausted(0):
            return None
        some = X[part].toarray() if isinstance(rows.arrays, tuple) else X[part].astype(np.float64, copy=False)
        if rows.bias >= 0:
            some = np.column_stack([some, np.full(len(some), rows.bias)])
        A += (some * weights[part, None]).T @ some
    return A
