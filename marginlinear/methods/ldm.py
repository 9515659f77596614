"""Large margin distribution machine (Zhang and Zhou, KDD 2014).

    P(w) = 1/2 ||w||^2 + lambda1 ghat - lambda2 gbar + sum_i C_i (1 - g_i)_+,      g_i = y_i w.x_i

gbar is the mean of the margins and ghat = (1/m^2) sum_{i,j} (g_i - g_j)^2 twice their variance, so that

    lambda1 ghat = (2 lambda1/m) min_v sum_i (g_i - v)^2

and coordinate descent with the mean as a variable solves it exactly, on features and on Gram rows alike.

algorithm=paper is the paper's Algorithm 1. With s_i = lambda2/m, K the Gram matrix and f = K alpha, the optimum is

    R alpha = Y (beta + s),   R = I + (4 lambda1/m^2)(m I - y y')K,   0 <= beta_i <= C_i,
    beta = argmin 1/2 (beta + s)'H(beta + s) - 1'beta,                H = Y K R^-1 Y,

a hinge problem in the geometry of K R^-1, so the same engine solves it over that Gram matrix. (The paper inverts K R,
which is singular wherever K is.) It takes O(m^3) operations and O(m^2) memory; the rows' own engine certifies it. A
time limit is looked at before and after, not within, the solution of a system of m equations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marginlinear import params as P
from marginlinear.algorithms.dual import MarginFit
from marginlinear.registry import Method, Paper

if TYPE_CHECKING:
    from marginlinear._core.rows import Rows
    from marginlinear._typing import FloatArray, Parameters
    from marginlinear.problem import Problem, Run, Solution


def dual(problem: Problem, params: Parameters) -> tuple[FloatArray, dict[str, Any]]:
    import numpy as np

    # The tables and the engine each have a part of a row's cost: their product is to be finite.
    problem.costs(params["C"])
    slope = params["lambda2"] / problem.size
    factors, group = np.unique(problem.factor, return_inverse=True)
    costs = [params["C"] * factor for factor in factors.tolist()]
    tables = [((1,), ((0, -C - slope, C), (0, -slope, 0))) for C in costs]
    return np.array(problem.instance), {"tables": tables, "group": group.astype(np.int32),
                                        "spread": 2 * params["lambda1"] / problem.size}


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    share, loss = dual(problem, params)
    if run.algorithm == "paper":
        return paper(problem, run, share, **loss)
    return MarginFit(problem, run, share, **loss).convex()


def paper(problem: Problem, run: Run, share: FloatArray, spread: float, **loss: Any) -> Solution:
    """Algorithm 1, for instance weights too: these stand where the paper counts a row once."""
    import numpy as np

    from marginlinear._core.rows import Rows
    from marginlinear.algorithms.warm_start import resume
    from marginlinear.status import FAILED, STALLED
    from marginlinear.threads import aside

    signs = np.where(problem.y == 1, 1.0, -1.0)
    # The inner products of the rows are asked for later.
    whole = MarginFit(problem, run._replace(start=None, overwrite_rows=False), share, spread=spread, **loss)
    engine, budget, tol, start = whole.engine, whole.budget, run.tol, None

    def certified(duals: FloatArray) -> Solution:
        resume(engine, {"duals": duals, "cost": share, "W": engine.weights_of(duals), "kappa": 0.0})
        solution = whole.solution()
        return solution._replace(info=solution.info._replace(algorithm="paper"))

    solution, whole.descent.stopped = None, budget.exhausted(0)
    if whole.descent.stopped or run.start is not None:
        solution = certified(np.zeros(len(share)) if run.start is None else run.start["duals"])
        if whole.descent.stopped or solution.info.converged:
            return solution

    def prepared(K: FloatArray) -> tuple[FloatArray, Rows]:
        """R, and the geometry K R^-1."""
        R = 2 * spread * share[:, np.newaxis] * K
        R -= np.outer(2 * spread / problem.size * share * signs, (share * signs) @ K)
        R.flat[:: len(R) + 1] += 1
        geometry = np.linalg.solve(R.T, K).T
        return R, Rows.from_gram((geometry + geometry.T) / 2)

    R, geometry = aside(prepared, problem.rows.products())
    while solution is None or not (solution.info.converged or whole.descent.stopped):
        left = None if run.time_limit is None else max(1e-9, run.time_limit - budget.seconds)
        # Its certificate is that of the whole but for rounding: asked for more where that is short of the tolerance.
        inner = MarginFit(problem._replace(rows=geometry),
                          run._replace(algorithm="cd", tol=tol, start=start, max_iter=run.max_iter - engine.n_iter,
                                       time_limit=left), share, **loss).convex()
        engine.n_iter += inner.info.n_iter
        bound: float = inner.info.bound  # type: ignore[assignment]  # a dual fit has one
        if inner.info.converged:
            whole.descent.stopped = budget.spent(engine.n_iter, inner.info.objective, bound)
        else:
            # Rounding can leave K R^-1 indefinite, and the certificate in its geometry wrong.
            whole.descent.stopped = STALLED if inner.info.status == FAILED else inner.info.reason or inner.info.status
        tol, start = tol / 4, inner.state
        solution = certified(signs * aside(np.linalg.solve, R, signs * np.asarray(inner.state["duals"])))
    return solution


METHOD = Method(
    name="ldm",
    summary="large margin distribution machine",
    objective="1/2 ||w||^2 + lambda1 ghat - lambda2 gbar + C sum_i (1 - g_i)_+",
    reference="T. Zhang and Z.-H. Zhou, Large Margin Distribution Machine, KDD 2014, Eq. 5",
    params=(P.C, P.LAMBDA1, P.LAMBDA2),
    fit=fit,
    dual=dual,
    joint=False,
    paper=Paper("its experiments choose C, lambda1 and lambda2 by 5-fold cross-validation",
                grid="C=10,50,100,lambda1=log2:-8:1:-2,lambda2=log2:-8:1:-2"),
    routes=("auto", "cd", "accelerated", "newton", "paper"),
)
