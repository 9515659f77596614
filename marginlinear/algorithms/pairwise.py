"""Joint methods with a smooth loss and a regulariser of the pairwise distances of the classes, by Newton steps.

    P(W, b) = sum_i C_i loss(t_i) + R(W) + eps (||W||_F^2 + ||b||^2),      t_il = (w_{y_i} - w_l).x_i + b_{y_i} - b_l
    R(W) = lambda sum_{j<l} ||w_j - w_l||^p                                              p >= 1, lambda, eps > 0

b are weights of the bias feature times its value. The loss depends on differences of scores alone, so the columns of
its gradient add up to 0, and so do those of W and b at the optimum: all iterates are kept so.

Lower bound. Let -U be the gradient of the loss's sum at some weights, -U_b its part for b, and rho the dual variables
that it is made of. For any flow F_jl = -F_lj between the classes and any V with U_j = sum_l F_jl + 2 eps V_j,

    P* >= D = -loss*(rho) - sum_{j<l} (p - 1) lambda (||F_jl||/(lambda p))^{p/(p-1)} - eps ||V||^2 - ||U_b||^2/(4 eps)

(p = 1: all ||F_jl|| <= lambda in place of the sum). F_jl = lambda p S_jl (v_j - v_l) with S_jl = ||w_j - w_l||^{p-2} is
such a flow, where V solves V M = U, M = lambda p (diag(S 1) - S) + 2 eps I: a k x k system, which is the regulariser's
curvature over the classes, too. D then meets P at the optimum. As -loss*(0) = 0 and loss* is convex, theta rho has
-loss*(theta rho) >= -theta loss*(rho) for theta in [0, 1]: the best theta is taken.

Corners are rounded while the steps go on, and sharpened by factors as soon as the rounding costs more than what the
steps still gain: (1 - t)_+ with a width as in _core/smooth.pyx, and for p < 2, where the curvature of R has no bound
near w_j = w_l, ||w_j - w_l|| as sqrt(||w_j - w_l||^2 + tau^2). What is reported is the objective without tau, and D
is a bound of that.

A Newton step solves H s = -gradient by conjugate gradients, in coordinates of the classes' directions in which M is
the identity and C = sum_i B_i diagonal, B_i row i's curvature in its scores. Preconditioner: (I + A x C)^-1 with
A = sum_i tr(B_i) x_i x_i' / sum_i tr(B_i), of which many features have the diagonal alone. SciPy's Newton methods take
no preconditioner, its L-BFGS needs up to 20 vectors of d k numbers; here there are 6 and what a pass over rows needs.
"""

import math

from marginlinear import params as P
from marginlinear.problem import Info, Solution
from marginlinear.status import STALLED

DEFAULT_LAMBDA = 1e-3
PARAMS = (
    P.C._replace(default=None, help="in place of lambda = 1/(2 C k), k the number of classes: with p = 2 the cost of a "
                 "unit of loss next to 1/2 ||W||^2"),
    P.LAMBDA._replace(help=f"weight of the pairs' distances (default: {DEFAULT_LAMBDA:g})"),
    P.NORM._replace(default=4.0, help="p, the exponent of the pairs' distances ||w_j - w_l||^p"),
    P.EPS,
)
# Most features whose correlations the preconditioner knows, if there are as many rows.
WHOLE = 1000
# Multiplications of one BLAS call: signals wait for its end.
AT_ONCE = 2e8
# Numbers of a vector that are worked at once: they stay in a second-level cache.
CACHED = 1 << 15
# Columns of one chunk of a product W'V.
COLUMNS = 64
# D2_jl = G_jj + G_ll - 2 G_jl has lost its digits below this part of G_jj + G_ll.
CANCELLED = 1e-8
# A stage is settled when a step promises no more than this part of what the rounding costs: the rounding then falls by
# the factor SHARPER, down to LEAST.
SETTLED, SHARPER, LEAST = 0.1, 4.0, 1e-12
# Rounds of scaling that balance the duals for the bias.
BALANCING = 100
# A Newton step is good enough when its residual is this part of the gradient's, in the preconditioner's norm: rough
# at first, in proportion to certificate/P, then fine. Rough steps of a hinge miss the bias, whose own curvature is eps,
# and stages seem settled that are not.
ROUGH, ROUGH_HINGE, FINE = 0.3, 0.03, 1e-2
# A step is taken for so much of the decrease that its slope promises; or, where values are but rounding, once the slope
# is flatter by a factor. Of TRIALS lengths, the first PATIENCE are to be flat as well; the next one is this far WITHIN
# the bracket.
ARMIJO, FLAT, ROUNDING, TRIALS = 1e-4, 0.5, 1e-13, 30
PATIENCE, WITHIN = 5, 0.3


def lambda_of(params, k):
    """lambda as given, or 1/(2 C k): then p = 2 is 1/2 ||W||^2 + C sum of losses."""
    if params["lambda_"] is not None:
        return params["lambda_"]
    return DEFAULT_LAMBDA if params["C"] is None else 1 / (2 * params["C"] * k)


def fit_pairs(problem, params, run, loss, delta=0.0):
    """Solution for the regulariser of pairs; `params` have C, lambda_, norm and eps.

    C and lambda are two names of one thing where only their ratio counts: the losses have weight 1 each.
    """
    bias = problem.rows.bias if problem.rows.bias >= 0 else None
    k, lam, eps = problem.n_classes, lambda_of(params, problem.n_classes), params["eps"]
    if params["norm"] == 2:
        regulariser = Quadratic(lam * k + eps, lam, eps, bias)
    else:
        regulariser = Pairwise(params["norm"], lam, eps, bias)
    return NewtonFit(problem, run, problem.weights, regulariser, loss, delta).solution()


def fit_ridge(problem, params, run, loss):
    """Solution for 1/2 ||W||^2, the bias feature included; a hinge is not rounded in what is reported."""
    return NewtonFit(problem, run, problem.costs(params["C"]), Quadratic(0.5), loss).solution()


def maximum(a, A, q, B):
    """max over theta in [0, 1] of a theta - A theta^q - B theta^2; for q = inf A theta <= 1 in place of the middle."""
    if not (math.isfinite(A) and math.isfinite(B)):
        return 0.0
    low, high = 0.0, 1.0
    if q == math.inf:
        high, A, q = (1 / A if A > 1 else 1.0), 0.0, 2.0
    if a - q * A * high ** (q - 1) - 2 * B * high < 0:
        for _ in range(60):
            theta = (low + high) / 2
            if a - q * A * theta ** (q - 1) - 2 * B * theta > 0:
                low = theta
            else:
                high = theta
    return a * high - A * high**q - B * high * high


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

    def __init__(self, problem, run, cost, regulariser, loss, width=0.0):
        import numpy as np

        from marginlinear._core.smooth import SmoothLoss
        from marginlinear.algorithms.certificate import Budget

        cost = np.asarray(cost)
        self.problem, self.run, self.cost, self.regulariser = problem, run, cost, regulariser
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        self.hinge, self.width = loss == "hinge", width
        start = run.start or {}
        self.loss = SmoothLoss(problem.rows, problem.y, problem.n_classes, cost, loss=loss,
                               width=max(width, start.get("width", 1.0)), threads=run.threads)
        self.W, self.gradient, self.step, self.residual, self.direction, self.scratch = (
            np.zeros((problem.rows.d, problem.n_classes)) for _ in range(6))
        if "W" in start:
            self.W[:] = start["W"]
        k = problem.n_classes
        regulariser.threads = run.threads
        regulariser.tau = start.get("tau", regulariser.first_tau(cost.sum() * (k - 1), k))
        self.corners = Corners(self.loss, problem.y, cost) if self.hinge else None
        self.n_iter = self.products = 0

    def solution(self):
        import numpy as np

        # Values that overflow are refused where they are compared.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._solution()

    def _solution(self):
        from marginlinear.status import allowance, status_of

        tol, ended = self.run.tol, None
        self._evaluate(self.W, self.gradient)
        start = self.run.start or {}
        if self.hinge:
            self.corners.move(self.W, 0.0, start.get("duals"))
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
            algorithm="newton",
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
        state = {"W": self.W, "width": self.loss.width, "tau": self.regulariser.tau,
                 "duals": self.corners.sigma if self.hinge else None}
        return Solution(weights, info, state)

    def _centred(self):
        """A copy of W and b, whose columns add up to 0 from here on."""
        import numpy as np

        W, copy = self.W, np.empty_like(self.W)

        def some(lo, hi):
            W[lo:hi] -= W[lo:hi].mean(axis=1, keepdims=True)
            copy[lo:hi] = W[lo:hi]

        by_rows(some, W, self.run.threads)
        return copy

    @property
    def _wide(self):
        """Whether the hinge's corner is rounder than the objective's."""
        return self.hinge and self.loss.width > self.width

    def _evaluate(self, W, out):
        """Value of the rounded objective at W; its gradient into `out`."""
        loss, regulariser = self.loss, self.regulariser
        self.lost = loss.value_and_gradient(W.reshape(-1), out.reshape(-1))
        self.along = dot(W, out)
        self.norm, excess = regulariser.evaluate(W)
        self.rounded = self.lost + self.norm + excess
        self.rounding = excess + (self.lost - loss.hinge if self._wide else 0.0)
        regulariser.add_gradient(W, out)
        return self.rounded

    def _certify(self):
        """Objective and lower bound at the weights of the last evaluation."""
        from marginlinear.status import allowance

        # -loss*(rho), by Fenchel's equality, or from the dual of the hinge without rounding.
        gained = self.loss.mass if self._wide else self.lost - self.along
        self.objective = self.norm + (self.loss.hinge if self.hinge and self.width == 0 else self.lost)
        self.regulariser.factorise(self.W.shape[1])
        self.bound = maximum(gained, *self.regulariser.conjugate(self.W, self.gradient, self.scratch))
        if not self.hinge:
            return
        for balanced in (False, True) if self.regulariser.bias else (False,):
            if self.objective - self.bound > allowance(self.run.tol, self.objective):
                rho = self.corners.duals(balanced)
                self.corners.gradient(rho, self.step)
                self.regulariser.add_gradient(self.W, self.step)
                gained = self.corners.gained(rho, 0.0 if self._wide else self.width)
                self.bound = max(self.bound,
                                 maximum(gained, *self.regulariser.conjugate(self.W, self.step, self.scratch)))

    def _newton_direction(self):
        """Conjugate gradients for H step = -gradient; returns what the step promises, None where the budget ends."""
        from marginlinear.threads import run_chunks

        if self.hinge:
            self.corners.bend()
        curvature, weights = self.loss.curvature(self.corners.H if self.hinge else None)
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

        def go(lo, hi):
            add(step[lo:hi], alpha, p[lo:hi])
            add(r[lo:hi], -alpha, q[lo:hi])
            q[lo:hi] = precondition(r, lo, hi)
            return dot(r[lo:hi], q[lo:hi])

        def head(lo, hi):
            p[lo:hi] *= turn
            p[lo:hi] += q[lo:hi]

        first = rho = sum(run_chunks(go, d, threads, size))
        gain = 0.0
        rough = ROUGH_HINGE if self.hinge else ROUGH
        forcing = max(FINE, rough * min(1.0, (self.objective - self.bound) / max(1.0, abs(self.objective))))
        # Without rounding d k gradients are the exact solution.
        for _ in range(2 * step.size):
            if not rho > forcing**2 * first:
                break
            if self.budget.exhausted(self.n_iter):
                return None
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

    def _product(self, V, out):
        """The Hessian times V, both in the coordinates of the basis."""
        self.products += 1
        basis = self.regulariser.basis
        if self.hinge:
            self.loss.weighted_product(self.corners.H, V.reshape(-1), out.reshape(-1), basis)
        else:
            self.loss.product(V.reshape(-1), out.reshape(-1), basis)
        self.regulariser.add_product(self.W, V, out)

    def _preconditioner(self, curvatures, weights):
        """(I + A x diag(curvatures))^-1, A the rows' mean square by these weights.

        Returns a function of (r, lo, hi) that gives features lo to hi of its product with r, and how many at a time;
        None where the budget ends.
        """
        import numpy as np

        from marginlinear.threads import aside

        rows, total = self.problem.rows, weights.sum()
        own = self.regulariser.curvature_of_bias()
        if total > 0:
            weights = weights / total
        root = np.ones(rows.d)
        if own is not None and rows.bias > 0:
            root[-1] = 1 / math.sqrt(own.mean())
        if rows.d <= min(WHOLE, rows.m):
            whole = mean_square(rows, weights, self.budget)
            if whole is None:
                return None
            whole = root[:, None] * whole * root
            if np.isfinite(whole).all():
                values, vectors = aside(np.linalg.eigh, whole)
                scale = 1 / (1 + np.maximum(values, 0)[:, None] * curvatures)
                vectors *= root[:, None]
                return lambda r, lo, hi: vectors @ (vectors.T @ r * scale), rows.d
        squares = column_squares(rows, weights)

        def apply(r, lo, hi):
            out = r[lo:hi] / (1 + squares[lo:hi, None] * curvatures)
            if own is not None and hi == rows.d:
                out[-1] = r[-1] / (own + squares[-1] * curvatures)
            return out

        return apply, max(1, CACHED // len(curvatures))

    def _search(self):
        """A step along the Newton direction that lowers the rounded objective; False where none is found in time."""
        import numpy as np

        W, gradient, trial, slopes = self.W, self.gradient, self.residual, self.direction
        value, slope = self.rounded, dot(gradient, self.step)
        noise = ROUNDING * max(1.0, abs(value))
        t, low, high = 1.0, 0.0, math.inf

        def move(lo, hi):
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
                    self.corners.move(trial, t)
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

    def _sharpen(self):
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

    def _support(self):
        """Rows with a dual variable that is more than rounding: for the hinge one above 0.01."""
        import numpy as np

        from marginlinear._core.scores import margins_of, scores_of
        from marginlinear.threads import run_chunks

        if not self.hinge:
            return self.problem.rows.m
        rows, y = self.problem.rows, self.problem.y
        scores = np.empty((rows.m, self.W.shape[1]))
        run_chunks(lambda lo, hi: scores_of(rows, self.W, scores, lo, hi), rows.m, self.run.threads,
                   rows.slice(self.W.shape[1]))
        return int(np.count_nonzero(margins_of(scores, y) < 1 + 5 * self.loss.width))


class Corners:
    """Dual variables of the rounded hinge that follow the steps, for Newton's method in W and rho at once.

    rho = g'(x), x = 1 - t, in the form (2 rho - 1) sqrt(x^2 + width^2) = x is far nearer to linear than g' itself. Its
    linear equation taken out of the system, H is that of the loss but for h = (1 - sigma x/r)/(2 r) in place of
    width^2/(2 r^3), sigma = 2 rho - 1, r = sqrt(x^2 + width^2) (Chan, Golub and Mulet, A Nonlinear Primal-Dual Method
    for Total Variation-Based Image Restoration, 1999). rho is dual feasible, and better than g'(x) until the end.
    """

    def __init__(self, loss, y, cost):
        import numpy as np

        self.loss, self.cost, self.y = loss, cost[:, np.newaxis], y
        self.x = self.sigma = self.H = None

    def _own(self, lo, hi):
        """Where rows lo to hi have the entries of their own classes."""
        import numpy as np

        return np.arange(hi - lo), self.y[lo:hi]

    def move(self, W, t, sigma=None):
        """The weights are W now, after the part t of a step; the first time with `sigma` of an earlier fit."""
        import numpy as np

        scores, before, width = self.loss.scores(W.reshape(-1)), self.x, self.loss.width
        if before is None:
            self.sigma = np.empty_like(scores)

        def some(lo, hi):
            own, x, mine = self._own(lo, hi), scores[lo:hi], self.sigma[lo:hi]
            x[:] = 1 - x[own][:, np.newaxis] + x
            if before is None:
                mine[:] = x / np.hypot(x, width) if sigma is None else sigma[lo:hi]
            else:
                root = np.hypot(before[lo:hi], width)
                bent = before[lo:hi] / root
                turn = (1 - mine * bent) * (x - before[lo:hi]) / root
                mine += t * (bent - mine) + turn
                np.clip(mine, -1, 1, out=mine)
            mine[own] = -1.0

        by_rows(some, scores)
        self.x = scores

    def bend(self):
        """H for the weights and the width as they are."""
        import numpy as np

        if self.H is None:
            self.H = np.empty_like(self.x)

        def some(lo, hi):
            x, H = self.x[lo:hi], self.H[lo:hi]
            root = np.hypot(x, self.loss.width)
            H[:] = self.cost[lo:hi] * np.maximum(0, 1 - self.sigma[lo:hi] * x / root) / (2 * root)
            H[self._own(lo, hi)] = 0.0

        by_rows(some, self.x)

    def duals(self, balanced):
        """rho, float64 array of shape (m, k).

        The gradient's part for b is divided by eps in the bound. `balanced` rho make it 0, at the price of some loss:
        N_jl = sum over the rows of class j of c_i rho_il is to have the same sums of rows and columns, to which end
        rho_il is lowered to u_{y_i} v_l rho_il, step by step.
        """
        import numpy as np

        rho = np.empty_like(self.sigma)

        def some(lo, hi):
            rho[lo:hi] = (1 + self.sigma[lo:hi]) / 2

        by_rows(some, rho)
        if balanced:
            y, k = self.y, rho.shape[1]
            N = np.zeros((k, k))
            for j in range(k):
                of_class = y == j
                N[j] = self.cost[of_class, 0] @ rho[of_class]
            u, v = np.ones((2, k))
            for _ in range(BALANCING):
                for factor, axis in ((u, 1), (v, 0)):
                    kept = N * np.outer(u, v)
                    mine, others = kept.sum(axis=axis), kept.sum(axis=1 - axis)
                    factor *= np.minimum(1, np.divide(others, mine, out=np.ones(k), where=mine > 0))
            rho *= u[y][:, np.newaxis]
            rho *= v
        return rho

    def gradient(self, rho, out):
        """The gradient of the losses that rho makes."""
        import numpy as np

        R = np.empty_like(rho)

        def some(lo, hi):
            part = R[lo:hi]
            np.multiply(self.cost[lo:hi], rho[lo:hi], out=part)
            part[self._own(lo, hi)] = -part.sum(axis=1)

        by_rows(some, R)
        self.loss.combine(R, out.reshape(-1))

    def gained(self, rho, width):
        """-loss*(rho) = sum_i c_i sum_{l != y} (rho_il + width sqrt(rho_il (1 - rho_il)))."""
        import numpy as np

        gained = np.empty(len(rho))

        def some(lo, hi):
            part = rho[lo:hi]
            gained[lo:hi] = (part + width * np.sqrt(part * (1 - part)) if width else part).sum(axis=1)

        by_rows(some, rho)
        return float(gained @ self.cost[:, 0])


class Quadratic:
    """R(W) = square ||W||^2 - shared ||sum_l w_l||^2, and eps ||b||^2 where `bias` is the value of b's feature."""

    tau = 0.0
    threads = 1

    def __init__(self, square, shared=0.0, eps=0.0, bias=None):
        self.square, self.shared, self.bias = square, shared, bias
        self.leak = eps
        self.features = slice(None, None if bias is None else -1)

    def evaluate(self, W):
        """R(W) + eps ||b||^2, and what the rounding has added to it: 0."""
        return self._value(W[self.features]) + self._of_bias(W), 0.0

    def add_gradient(self, W, out):
        A, B = W[self.features], out[self.features]

        def some(lo, hi):
            B[lo:hi] += 2 * self.square * A[lo:hi]
            if self.shared:
                B[lo:hi] -= 2 * self.shared * A[lo:hi].sum(axis=1, keepdims=True)

        by_rows(some, A, self.threads)
        self._add_bias(W, out)

    def add_product(self, W, V, out):
        """out += Hessian at W times V, both in the coordinates of the basis."""
        features = self.features
        out[features] += V[features]
        if self.bias is not None:
            out[-1] += self._own_of_bias() * (V[-1] @ self.basis.T @ self.basis)

    def first_tau(self, lost, k):
        """A rounding to begin with, where W = 0 loses `lost`."""
        return 0.0

    def factorise(self, k):
        """Eigenvalues of M, and its eigenvectors where they are not the axes, at the weights last evaluated."""
        import numpy as np

        self.eigen = np.full(k, 2 * self.square), np.eye(k)

    def align(self, curvature):
        """A basis T of the classes' directions with T'MT = I and T' curvature T diagonal; returns its diagonal.

        The constant direction has no part in it: the last column is 0.
        """
        import numpy as np
        from scipy.linalg import helmert

        from marginlinear.threads import aside

        values, vectors = self.eigen
        k = len(values)
        free = helmert(k)
        root = free @ vectors / np.sqrt(values) @ vectors.T @ free.T
        curvatures, turn = aside(np.linalg.eigh, root @ (free @ curvature @ free.T) @ root)
        self.basis = np.zeros((k, k))
        self.basis[:, :-1] = free.T @ root @ turn
        return np.append(np.maximum(curvatures, 0), 0.0)

    def curvature_of_bias(self):
        """Of eps ||b||^2 in each direction of the basis, None without a bias."""
        import numpy as np

        if self.bias is None:
            return None
        return self._own_of_bias() * np.append((self.basis[:, :-1] ** 2).sum(axis=0), 1.0)

    def conjugate(self, W, gradient, scratch):
        """(A, q, B) with R*(theta U) <= A theta^q + B theta^2, U = -(gradient of the losses) and U_b included."""
        import numpy as np

        A, B, V = (vectors[self.features] for vectors in (W, gradient, scratch))

        def some(lo, hi):
            # V = W - gradient M^-1
            np.multiply(B[lo:hi], -0.5 / self.square, out=V[lo:hi])
            V[lo:hi] += A[lo:hi]

        by_rows(some, A, self.threads)
        return 0.0, 2.0, self.square * sqnorm(V) + self._conjugate_of_bias(W, gradient)

    def _value(self, W):
        return self.square * sqnorm(W) - (self.shared * sqnorm(W.sum(axis=1)) if self.shared else 0.0)

    def _of_bias(self, W):
        return 0.0 if self.bias is None else self.leak * self.bias**2 * sqnorm(W[-1])

    def _add_bias(self, W, out):
        if self.bias is not None:
            out[-1] += 2 * self.leak * self.bias**2 * W[-1]

    def _own_of_bias(self):
        return 2 * self.leak * self.bias**2

    def _conjugate_of_bias(self, W, gradient):
        # eps ||b - g_b/(2 eps)||^2 with b and its gradient in units of the score.
        if not self.bias:
            return 0.0
        return self.leak * sqnorm(self.bias * W[-1] - gradient[-1] / (2 * self.leak * self.bias))


class Pairwise(Quadratic):
    """R(W) = lambda sum_{j<l} (||w_j - w_l||^2 + tau^2)^{p/2} + eps (||W||^2 + ||b||^2)."""

    def __init__(self, p, lam, eps, bias):
        super().__init__(eps, 0.0, eps, bias)
        self.p, self.lam = p, lam

    def first_tau(self, lost, k):
        # A tenth of it.
        return 0.0 if self.p >= 2 else (0.2 * lost / (self.lam * k * (k - 1))) ** (1 / self.p)

    def evaluate(self, W):
        import numpy as np

        features, p = W[self.features], self.p
        pairs = distances(features)
        rounded = pairs + self.tau**2
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            true = self.lam / 2 * (pairs ** (p / 2)).sum()
            excess = 0.0 if p >= 2 else self.lam / 2 * off_diagonal(rounded ** (p / 2)).sum() - true
            self.S, self.T = (off_diagonal(rounded ** power) for power in (p / 2 - 1, p / 2 - 2))
        return true + self._value(features) + self._of_bias(W), excess

    def add_gradient(self, W, out):
        super().add_gradient(W, out)
        features = self.features
        add_product(W[features], self.lam * self.p * laplacian(self.S), out[features], self.threads)

    def add_product(self, W, V, out):
        super().add_product(W, V, out)
        features, p, basis = self.features, self.p, self.basis
        A = gram(W[features], V[features], self.threads) @ basis.T
        own = A.diagonal()
        along = self.T * (own[:, None] + own - A - A.T)  # <w_j - w_l, v_j - v_l> ||w_j - w_l||^{p-4}
        add_product(W[features], self.lam * p * (p - 2) * laplacian(along) @ basis, out[features], self.threads)

    def factorise(self, k):
        import numpy as np

        from marginlinear.threads import aside

        values, vectors = aside(np.linalg.eigh, self.lam * self.p * laplacian(self.S))
        self.eigen = np.maximum(values, 0) + 2 * self.square, vectors

    def conjugate(self, W, gradient, scratch):
        import numpy as np

        p, lam, features = self.p, self.lam, self.features
        values, vectors = self.eigen
        A, V = W[features], scratch[features]

        def copy(lo, hi):
            V[lo:hi] = A[lo:hi]

        by_rows(copy, V, self.threads)
        add_product(gradient[features], -(vectors / values) @ vectors.T, V, self.threads)
        with np.errstate(over="ignore", invalid="ignore"):
            flow = p * self.S * np.sqrt(distances(V))  # ||F_jl||/lambda
            B = self.leak * sqnorm(V) + self._conjugate_of_bias(W, gradient)
            if p == 1:
                return flow.max(), math.inf, B
            q = p / (p - 1)
            A = lam * (p - 1) / 2 * ((flow / p) ** q).sum()
        return A, q, B


def sqnorm(a):
    import numpy as np

    flat = a.reshape(-1)
    return float(np.dot(flat, flat))


def block_size(k):
    return max(64, int(AT_ONCE / (k * k)))


def blocks(n, k):
    return [slice(lo, min(n, lo + block_size(k))) for lo in range(0, n, block_size(k))]


def gram(W, V, threads=1):
    """W'V; for V = W by half the work, on one thread."""
    import numpy as np

    from marginlinear.threads import run_chunks

    total = np.zeros((W.shape[1], V.shape[1]))

    def some(lo, hi):
        for part in blocks(*W.shape):
            total[:, lo:hi] += W[part].T @ V[part, lo:hi]

    run_chunks(some, V.shape[1], threads, max(1, V.shape[1]) if V is W else COLUMNS)
    return total


def add_product(A, B, out, threads=1):
    """out += A @ B"""
    from marginlinear.threads import run_chunks

    def some(lo, hi):
        out[lo:hi] += A[lo:hi] @ B

    run_chunks(some, len(out), threads, block_size(len(B)))


def multiply(A, B, out, threads=1):
    """out = A @ B, which may be A."""
    from marginlinear.threads import run_chunks

    def some(lo, hi):
        out[lo:hi] = A[lo:hi] @ B

    run_chunks(some, len(out), threads, block_size(len(B)))


def by_rows(work, A, threads=1):
    """work(lo, hi) for all rows of A, a few at a time: signals wait for no pass over all, and caches are used."""
    from marginlinear.threads import run_chunks

    run_chunks(work, len(A), threads, max(1, CACHED // A.shape[1]))


def dot(a, b):
    import numpy as np

    return float(np.dot(a.reshape(-1), b.reshape(-1)))


def add(out, factor, a):
    """out += factor a"""
    from scipy.linalg.blas import daxpy

    daxpy(a.reshape(-1), out.reshape(-1), a=factor)


def column_squares(rows, cost):
    """sum_i c_i x_ij^2, float64 array of shape (d,)."""
    import numpy as np

    if isinstance(rows.arrays, tuple):
        data, indices, indptr = map(np.asarray, rows.arrays)
        weights = np.repeat(cost, np.diff(indptr))
        weights *= np.square(data[: rows.nnz], dtype=np.float64)
        squares = np.bincount(indices[: rows.nnz], weights=weights, minlength=rows.n)
    else:
        squares = np.einsum("i,ij,ij->j", cost, rows.arrays, rows.arrays)
    return np.append(squares, rows.bias**2 * cost.sum()) if rows.bias >= 0 else squares


def mean_square(rows, weights, budget):
    """sum_i weights_i x_i x_i', float64 array of shape (d, d); None where the budget ends."""
    import numpy as np
    from scipy.sparse import csr_array

    A = np.zeros((rows.d, rows.d))
    if isinstance(rows.arrays, tuple):
        data, indices, indptr = map(np.asarray, rows.arrays)
        X = csr_array((data[: rows.nnz], indices[: rows.nnz], indptr), shape=(rows.m, rows.n))
    else:
        X = rows.arrays
    for part in blocks(rows.m, rows.d):
        if budget.exhausted(0):
            return None
        some = X[part].toarray() if isinstance(rows.arrays, tuple) else X[part].astype(np.float64, copy=False)
        if rows.bias >= 0:
            some = np.column_stack([some, np.full(len(some), rows.bias)])
        A += (some * weights[part, None]).T @ some
    return A


def off_diagonal(S):
    """S with zeros on the diagonal and where it was not finite."""
    import numpy as np

    S[~np.isfinite(S)] = 0.0
    np.fill_diagonal(S, 0.0)
    return S


def laplacian(S):
    import numpy as np

    return np.diag(S.sum(axis=1)) - S


def distances(W):
    """||w_j - w_l||^2 of the columns, exact where they are nearly equal."""
    import numpy as np

    G = gram(W, W)
    own = G.diagonal()
    sizes = own[:, None] + own
    D2 = sizes - G - G.T
    np.fill_diagonal(D2, 0.0)
    near = np.triu(CANCELLED * sizes > D2, 1)
    for j in np.flatnonzero(near.any(axis=1)):
        others = np.flatnonzero(near[j])
        exact = np.zeros(len(others))
        for part in blocks(len(W), len(others)):
            exact += ((W[part, others] - W[part, j : j + 1]) ** 2).sum(axis=0)
        D2[j, others] = D2[others, j] = exact
    return D2
