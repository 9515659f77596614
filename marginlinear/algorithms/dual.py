"""What the dual methods share: an engine, one descent, and a solution that is certified at its end."""

import math

from marginlinear._core.vector import assign, largest_change
from marginlinear.problem import Info, Solution
from marginlinear.status import MAX_ITER, ROUNDING, allowance, status_of

# Sweeps that Gram rows may take to lose the coefficients of rows whose dual is 0, as a multiple of those before.
LEANING = 1
# What comes before sweeps is to cost no more than this part of them.
WORTH = 0.65


class DualFit:
    """A fit by dual coordinate descent.

    Parameters
    ----------
    problem : Problem
    run : Run
        With a start of sweeps together with others (batched.py), their number `n_iter` and last `gaps` are its own.
    engine : BlockCD or MarginCD
    newton : class
        MarginSteps or BlockSteps, whichever fits the engine.
    keep : bool
        As Descent takes it.
    """

    def __init__(self, problem, run, engine, newton, keep=False):
        # The engines, and NumPy with them, are imported when a fit starts: --help lists the methods without them.
        from marginlinear.algorithms.descent import Budget, Descent

        self.problem, self.run, self.engine = problem, run, engine
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        if run.start is not None:
            engine.resume(run.start)
            engine.n_iter = run.start.get("n_iter", 0)
        self.descent = Descent(engine, self.budget, run.tol, run.algorithm, newton, keep)
        if run.start is not None:
            self.descent.gaps = list(run.start.get("gaps", ()))
        # What other sweeps began goes on with sweeps, as if they were its own.
        self.fresh, self.lean = run.start is None or "gaps" in run.start, None

    def until(self, tol, renewal=0.0):
        """Descent.until, but a resumed fit is checked before its first sweep."""
        if not self.fresh:
            self.fresh = True
            check = self.descent.check()
            if self.descent.certified(check):
                return check
            if self.run.algorithm == "cd":
                self.descent.give_up_centre()
        return self.descent.until(tol, renewal)

    def convex(self):
        """Minimise the problem of the engine as it stands."""
        tol = self.run.tol
        while True:
            self.until(tol)
            self._lean(tol)
            solution = self.solution_at_anchor()
            if self.descent.stopped or solution.info.converged:
                return solution
            self.descent.stopped = self.budget.spent(self.engine.n_iter, solution.info.objective, solution.info.bound)
            if self.descent.stopped:
                return self.solution_at_anchor()
            self.descent.refresh(solution.info.objective)
            tol /= 2

    def _lean(self, tol):
        """Over Gram rows: plain sweeps from W = U on, until the duals certify their own weights.

        Around a centre W has a coefficient on every row that ever had a dual, U on those that have one now. Where
        plain sweeps do not get there soon, the anchor stays what it was.
        """
        from marginlinear.algorithms.descent import Descent

        engine, loose = self.engine, self.descent
        if self.lean is not None or loose.stopped or not engine.rows.is_gram:
            return
        if engine.count_support(loose.last.from_average) == engine.rows.m:
            return
        before = {name: getattr(value, "copy", lambda value=value: value)()
                  for name, value in engine.state(loose.last.from_average).items()}
        if loose.last.from_average:
            engine.adopt()
        route, most = loose.route, self.budget.max_iter
        engine.iterates.plain()
        self.budget.max_iter = min(most, (1 + LEANING) * engine.n_iter)
        lean = Descent(engine, self.budget, self.run.tol, "cd", None, loose.keep)
        check = lean.check()
        while not lean.stopped and check.gap > allowance(tol, check.primal):
            check = lean.until(tol)
        self.budget.max_iter = most
        self.lean = lean.stopped is None
        if self.lean:
            lean.route = route
            self.descent = lean
        else:
            engine.resume(before)
            loose.reset()
        self._keep_duals()

    def _keep_duals(self):
        """From here on the solution is that of the duals of the sweeps."""
        if self.descent.keep:
            self.engine.keep_duals(False)

    def solution_at_anchor(self, n_outer=0):
        """The `solution` for the descent's anchor; where it is not the end, the sweeps can go on."""
        if self.descent.anchor is None:
            return self.solution(n_outer)
        self.engine.iterates.exchange(self.descent.anchor)
        solution = self.solution(n_outer)
        if not solution.info.converged and not self.descent.stopped:
            self.engine.iterates.exchange(self.descent.anchor)
        return solution

    def solution(self, n_outer=0, residual=None, **references):
        """The weights as they are, with objective, bound and certificate recomputed from the rows.

        `references` are those of the upper slack at these weights (rival=, fixed=), for which the bound is asked.
        """
        engine, descent = self.engine, self.descent
        averaged = descent.last is not None and descent.last.from_average
        objective, bound = self._values(averaged, references)
        if not math.isfinite(objective):
            # Sums have overflowed. Of weights and duals of 0 they do not.
            engine.start_over()
            objective, bound = self._values(averaged, references)
        if not bound < math.inf:
            bound = -math.inf
        if engine.rounding > allowance(ROUNDING, objective):
            bound -= engine.rounding
        certificate = objective - bound
        self.budget.record(engine.n_iter, objective, bound, certificate)
        info = Info(
            status=status_of(certificate, objective, self.run.tol, descent.stopped or MAX_ITER),
            algorithm=descent.route,
            n_iter=engine.n_iter,
            n_outer=n_outer,
            objective=objective,
            bound=bound,
            certificate=certificate,
            n_support=engine.count_support(averaged),
            seconds=self.budget.seconds,
            tol=self.run.tol,
            history=self.budget.history,
            residual=residual,
        )
        weights = self._weights(engine.weights_at(engine.iterates.vector(False)))
        return Solution(weights, info, {**engine.state(averaged), **references})

    def _values(self, averaged, references):
        """(objective, bound) at the weights as they are.

        Over Gram rows the weights of the duals are taken where they are as good: these have no coefficient where the
        dual is 0.
        """
        engine, iterates = self.engine, self.engine.iterates
        if not engine.rows.is_gram:
            return engine.primal()[1], engine.recomputed_dual(averaged, **references)
        if references:
            engine.recompute_scores()
            return engine.primal()[1], engine.recomputed_dual(averaged, **references)
        weights = engine.dual_weights(averaged)
        bound = engine.recomputed_dual(averaged, weights)
        given = iterates.vector(False).copy()
        assign(iterates.vector(False), weights)
        _, objective, stale = engine.primal()
        # Where a row's named rival is not its best one, the bound does not speak of these weights.
        if stale == 0 and objective - bound <= allowance(self.run.tol, objective):
            return objective, bound
        assign(iterates.vector(False), given)
        engine.recompute_scores()
        return engine.primal()[1], bound

    def _weights(self, state):
        """A state as a Solution has it: a row a feature, or the coefficients of the rows."""
        import numpy as np

        rows = self.engine.rows
        weights = np.asarray(state).reshape(rows.d, -1)
        return weights[rows.m:] if rows.is_gram else weights


class JointFit(DualFit):
    """A joint multi-class fit by block coordinate descent: `cost` is c_i of block_cd, `loss` its loss."""

    def __init__(self, problem, run, cost, **loss):
        from marginlinear._core.block_cd import BlockCD
        from marginlinear.algorithms.newton import BlockSteps

        engine = BlockCD(problem.rows, problem.y, problem.n_classes, cost, seed=run.seed, threads=run.threads, **loss)
        # Weights of other costs are no better a start than these steps make, and sweeps from them take longer.
        self.may_split = run.algorithm == "auto" and (
            run.start is None or largest_change(cost, run.start["cost"]) != 0)
        super().__init__(problem, run, engine, BlockSteps, keep=True)

    def split(self):
        """Where alternating directions promise to cost less than what is ahead, begin with them. Whether they did."""
        from marginlinear._core.admm import Splitting

        engine, descent = self.engine, self.descent
        n = Splitting.iterations(engine, descent.newton_first)
        if not self.may_split or Splitting.sweeps(engine, n) > WORTH * min(descent.sweeps, descent.steps):
            return False
        done = Splitting(engine).run(n, self.budget)
        if done:
            descent.go_on()
        self.fresh = True
        return done

    def solution(self, n_outer=0, residual=None, **references):
        kept = None if self.engine.factors is None else self.engine.factors.copy()
        self.engine.drop_classes(self.descent.last is not None and self.descent.last.from_average)
        solution = super().solution(n_outer, residual, **references)
        if kept is not None and not solution.info.converged and not self.descent.stopped:
            # The sweeps may go on.
            self.engine.factors[:] = kept
        if self.problem.n_classes == 2:
            # LIBLINEAR decides between two classes by the sign of one score: what both columns share, which changes
            # no margin, is taken out. It is rounding, except at a fixed point of mcodm's outer=paper.
            from marginlinear._core.block_cd import centred

            iterates = self.engine.iterates
            weights, shared = centred(self.engine.weights_at(iterates.vector(False)), 2)
            objective = solution.info.objective
            if iterates.factors is None:
                objective -= iterates.sqnorm_of(shared)
            return solution._replace(weights=self._weights(weights),
                                     info=solution.info._replace(objective=objective))
        return solution


class MarginFit(DualFit):
    """A binary fit by dual coordinate descent: `cost` is c_i of margin_cd, `tables` its losses.

    `tables` lists tuples (knots, parts) as `margin_cd.table_of` takes them.
    """

    def __init__(self, problem, run, cost, tables, **others):
        from marginlinear._core.margin_cd import MarginCD, table_of
        from marginlinear._core.renumber import renumber
        from marginlinear.algorithms.newton import MarginSteps

        self.renumbered = renumber(problem.rows, run.threads, run.overwrite_rows)
        rows = problem.rows if self.renumbered is None else self.renumbered.rows
        if self.renumbered is not None and run.start is not None and run.start["W"] is not None:
            run = run._replace(start={**run.start, "W": self.renumbered.to_inner(run.start["W"])})
        engine = MarginCD(rows, problem.y, cost, [table_of(*table) for table in tables], seed=run.seed,
                          threads=run.threads, **others)
        super().__init__(problem, run, engine, MarginSteps, keep=True)

    def _values(self, averaged, references):
        descent = self.descent
        moved = descent.margins is not None or descent.route == "newton"
        if descent.anchor is None or moved or self.engine.rows.is_gram:
            return super()._values(averaged, references)
        # A check has summed the anchor's objective over the rows, at these very weights.
        return descent.ceiling, self.engine.recomputed_dual(averaged)

    def solution(self, n_outer=0, residual=None, **references):
        solution = super().solution(n_outer, residual, **references)
        if self.renumbered is None:
            return solution
        weights = self.renumbered.to_outer(solution.state["W"])
        return solution._replace(weights=weights.reshape(-1, 1), state={**solution.state, "W": weights})


def fit_of(loss):
    """The `fit` of a binary method by its `loss`, both as Method has them."""
    def fit(problem, params, run):
        cost, table = loss(problem, params)
        return MarginFit(problem, run, cost, [table]).convex()

    return fit
