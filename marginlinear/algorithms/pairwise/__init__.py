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
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear import params as P

if TYPE_CHECKING:
    from marginlinear._typing import Parameters
    from marginlinear.algorithms.pairwise.newton import NewtonFit
    from marginlinear.problem import Problem, Run, Solution

DEFAULT_LAMBDA = 1e-3
PARAMS = (
    P.C._replace(default=None, help="in place of lambda = 1/(2 C k), k the number of classes: with p = 2 the cost of a "
                 "unit of loss next to 1/2 ||W||^2"),
    P.LAMBDA._replace(help=f"weight of the pairs' distances (default: {DEFAULT_LAMBDA:g})"),
    P.NORM._replace(default=4.0, help="p, the exponent of the pairs' distances ||w_j - w_l||^p"),
    P.EPS,
)


def lambda_of(params: Parameters, k: int) -> float:
    """lambda as given, or 1/(2 C k): then p = 2 is 1/2 ||W||^2 + C sum of losses."""
    given: float | None = params["lambda_"]
    if given is not None:
        return given
    return DEFAULT_LAMBDA if params["C"] is None else 1 / (2 * params["C"] * k)


def fit_pairs(problem: Problem, params: Parameters, run: Run, loss: str, delta: float = 0.0) -> Solution:
    """Solution for the regulariser of pairs; `params` have C, lambda_, norm and eps.

    C and lambda are two names of one thing where only their ratio counts: the losses have weight 1 each.
    """
    from marginlinear.algorithms.pairwise.regulariser import Pairwise, Quadratic

    bias = problem.rows.bias if problem.rows.bias >= 0 else None
    k, lam, eps = problem.n_classes, lambda_of(params, problem.n_classes), params["eps"]
    if params["norm"] == 2:
        regulariser = Quadratic(lam * k + eps, lam, eps, bias)
    else:
        regulariser = Pairwise(params["norm"], lam, eps, bias)
    return newton_fit(run)(problem, run, problem.weights, regulariser, loss, delta).solution()


def fit_ridge(problem: Problem, params: Parameters, run: Run, loss: str) -> Solution:
    """Solution for 1/2 ||W||^2, the bias feature included; a hinge is not rounded in what is reported."""
    from marginlinear.algorithms.pairwise.regulariser import Quadratic

    return newton_fit(run)(problem, run, problem.costs(params["C"]), Quadratic(0.5), loss).solution()


def newton_fit(run: Run) -> type[NewtonFit]:
    """The class of the fit: where rows are elsewhere, what these sum up is asked for."""
    from marginlinear.algorithms.pairwise.newton import NewtonFit

    return NewtonFit if run.places is None else run.places.newton_fit
