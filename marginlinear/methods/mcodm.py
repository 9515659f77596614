"""Multi-class optimal margin distribution machine (Zhang and Zhou, ICML 2017).

    J(W) = 1/2 sum_l ||w_l||^2 + sum_i c_i [xi_i^2 + mu eps_i^2],      g_i = w_{y_i}.x_i - max_{l != y_i} w_l.x_i
    xi_i = (1 - theta - g_i)_+,   eps_i = (g_i - 1 - theta)_+,         c_i = C_i/(1 - theta)^2

J is not convex for mu > 0 and three or more classes, since g is concave. Two outer loops:

`ccp`, the convex-concave procedure: in eps the best rival of each row is fixed at its class r_i of now, which gives a
convex P_r >= J with equality at W. J falls; the certificate J(W) - D_r, r being the best rivals at W, is zero at a
critical point of J. With two classes it is an ordinary duality gap. How far critical points differ depends on the data:
`algorithms.dual.JointFit.start_with_admm` looks for a good one, `restarts` for the best of several. What mu = 0 proves,
where J is convex, is a bound of all of them.

`paper`, Algorithm 1: in eps the best rival's score is fixed at its value M_i of now. The certificate J(W) - D_M, M
taken at W, is zero at a fixed point of that algorithm, which is no critical point of J.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from marginlinear import params as P
from marginlinear.algorithms.dual import joint_fit_of
from marginlinear.registry import Method, Paper
from marginlinear.status import OUTER_ITERATIONS, STALLED

if TYPE_CHECKING:
    from marginlinear._typing import FloatArray, Parameters
    from marginlinear.algorithms.dual import JointFit
    from marginlinear.problem import Problem, Run, Solution

# The upper loss is switched on once the lower one alone is solved this well: rivals mean something by then.
FIRST_STAGE = 0.1
# The named rivals are renewed when what is left to gain with them is this small a part of what they have brought.
RENEWAL = 0.3
# Outer iterations, unless max_outer says otherwise.
CAPS = {"ccp": 50, "paper": 20}


def dual(problem: Problem, params: Parameters) -> tuple[FloatArray, dict[str, Any]]:
    C = params["C"] if params["lambda_"] is None else params["lambda_"] / problem.size
    theta = params["theta"]
    return problem.costs(C / (1 - theta) ** 2), {"loss": "squared", "low": 1 - theta, "high": 1 + theta,
                                                 "mu": params["mu"]}


def solved(solver: JointFit, params: Parameters) -> Solution:
    if params["mu"] == 0:
        return solver.convex()
    cap = params["max_outer"] or CAPS[params["outer"]]
    return ccp(solver, cap) if params["outer"] == "ccp" else paper(solver, cap)


def ccp(solver: JointFit, cap: int) -> Solution:
    """Descend on J. Each P_r is made at the incumbent W0, r being the best rivals there: J(W0) - D_r certifies W0."""
    engine, descent, tol = solver.engine, solver.descent, solver.run.tol
    if solver.problem.n_classes == 2:
        engine.name_rivals(engine.best_rivals()[0])
        return solver.convex()
    if not solver.start_with_admm() and not engine.named:
        descent.until(FIRST_STAGE)
    n_outer, check = 0, None
    while not descent.stopped and n_outer < cap:
        averaged = check is not None and check.at_average
        objective, rivals = engine.primal()[1] if check is None else check.objective, engine.best_rivals(averaged)[0]
        # Before the duals of the rows that change their rival move the weights.
        descent.incumbent.set(objective, averaged)
        descent.incumbent.offer(objective, engine.iterates.vector(averaged))
        if check is not None:
            descent.adopt()
        engine.name_rivals(rivals)
        descent.reset(follow_best=False)
        n_outer += 1
        check = solver.until(tol, RENEWAL)
        if descent.certified():
            solution = solver.solution_of_incumbent(n_outer)
            if solution.info.converged:
                return solution
    # What the checks certify and the recomputed sums do not differs by rounding.
    descent.stopped = descent.stopped or (STALLED if descent.certified() else OUTER_ITERATIONS)
    return solver.solution_of_lowest(n_outer)


def paper(solver: JointFit, cap: int) -> Solution:
    """Algorithm 1: solve the problem with fixed M, take M anew, until M stays and the certificate says so too."""
    import numpy as np

    engine, descent, tol = solver.engine, solver.descent, solver.run.tol
    fixed = engine.best_rivals()[1]
    n_outer, residual = 0, math.inf
    if solver.unchecked_start:
        engine.fix_references(fixed)
        solution = solver.solution(0, fixed=fixed)
        if solution.info.converged:
            return solution
    while not descent.stopped and n_outer < cap:
        engine.fix_references(fixed)
        descent.reset()
        solver.until(0.1 * tol)
        n_outer += 1
        previous, fixed = fixed, engine.best_rivals()[1]
        with np.errstate(over="ignore", invalid="ignore"):
            residual = float(abs(fixed - previous).max() / (1 + abs(fixed).max()))
        if residual <= tol and not descent.stopped:
            solution = solver.solution(n_outer, residual, fixed=fixed)
            if solution.info.converged:
                return solution
    if descent.stopped:
        return solver.solution_of_lowest(n_outer, residual, fixed=True)
    descent.stopped = OUTER_ITERATIONS
    return solver.solution(n_outer, residual, fixed=fixed)


once = joint_fit_of(dual, solved)


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    """The fit of lowest objective of as many as `restarts` says. Only the first begins at `run.start`."""
    convex = params["mu"] == 0 or problem.n_classes == 2
    count = 1 if convex else params["restarts"]
    if count == 1:
        return once(problem, params, run)
    if run.places is not None:
        raise ValueError(f"restarts = {count} is for rows in one process: on a cluster give 1")
    began, best, objectives = time.perf_counter(), None, []
    for turn in range(count):
        seconds = time.perf_counter() - began
        if turn and run.time_limit is not None and seconds >= run.time_limit:
            break
        left = None if run.time_limit is None else run.time_limit - seconds
        solution = once(problem, params, run._replace(seed=(run.seed + turn) % 2**64, time_limit=left,
                                                      start=None if turn else run.start))
        objectives.append(solution.info.objective)
        if best is None or objectives[-1] < best.info.objective:
            best = solution
    assert best is not None
    told = ", ".join(f"{objective:.6g}" for objective in objectives)
    info = best.info
    return best._replace(info=info._replace(seconds=time.perf_counter() - began, notes=(
        *info.notes, f"objectives of {len(objectives)} of {count} restarts: {told}")))


METHOD = Method(
    name="mcodm",
    summary="multi-class optimal margin distribution machine",
    objective="1/2 sum_l ||w_l||^2 + C/(1-theta)^2 sum_i [(1-theta-g_i)_+^2 + mu (g_i-1-theta)_+^2]",
    reference="T. Zhang and Z.-H. Zhou, Multi-Class Optimal Margin Distribution Machine, ICML 2017",
    params=(P.C, P.LAMBDA, P.MU, P.THETA, P.OUTER, P.MAX_OUTER, P.RESTARTS),
    fit=fit,
    relaxation={"mu": 0.0},
    paper=Paper("its experiments choose lambda, mu and theta by 5-fold cross-validation",
                grid="lambda=log2:0:2:20,mu=0.2:0.2:0.8,theta=0.2:0.2:0.8"),
    dual=dual,
    joint=True,
)
