"""What the dual methods share: an engine, one descent, and a solution that is certified at its end."""

from marginlinear._core.stop import allowance, status_of
from marginlinear.problem import MAX_ITER, Info, Solution

# Weights with fewer support vectors are looked for where these are at most this part of them: each look is a pass.
FEWER = 0.9


class DualFit:
    """A fit by dual coordinate descent.

    Parameters
    ----------
    problem : Problem
    run : Run
    engine : BlockCD or MarginCD
    newton : class
        The Newton steps that fit the engine.
    keep : bool
        As Descent takes it.
    """

    def __init__(self, problem, run, engine, newton, keep=False):
        # The engines, and NumPy with them, are imported when a fit starts: --help lists the methods without them.
        from marginlinear._core.descent import Budget, Descent

        self.problem, self.run, self.engine = problem, run, engine
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        if run.start is not None:
            engine.resume(run.start)
        self.descent = Descent(engine, self.budget, run.tol, run.algorithm, newton, keep)
        self.fresh = run.start is None

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
            solution = self.solution_at_anchor()
            if self.descent.stopped or solution.info.converged:
                return solution
            self.descent.refresh(solution.info.objective)
            tol /= 2

    def solution_at_anchor(self, n_outer=0):
        """The `solution` for the descent's anchor; where it is not the end, the sweeps can go on."""
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
        return Solution(self._weights(engine.iterates.W), info, {**engine.state(averaged), **references})

    def _values(self, averaged, references):
        """(objective, bound) at the weights as they are.

        Over Gram rows weights without the rows whose dual is 0 are taken where they are as good, for fewer support
        vectors: those of the duals, or the weights as they are with these rows left out.
        """
        engine, iterates = self.engine, self.engine.iterates
        if not engine.rows.is_gram:
            return engine.primal()[1], engine.recomputed_dual(averaged, **references)
        if references:
            engine.recompute_scores()
            return engine.primal()[1], engine.recomputed_dual(averaged, **references)
        weights, given = engine.dual_weights(averaged), iterates.W.copy()
        bound = engine.recomputed_dual(averaged, weights)
        supported = self._weights(weights).any(axis=1)
        if supported.sum() > FEWER * self._weights(given).any(axis=1).sum():
            engine.recompute_scores()
            return engine.primal()[1], bound
        iterates.W[:] = weights
        for attempt in range(3):
            _, objective, stale = engine.primal()
            # Where a row's named rival is not its best one, the bound does not speak of these weights.
            if attempt == 2 or (stale == 0 and objective - bound <= allowance(self.run.tol, objective)):
                return objective, bound
            iterates.W[:] = given
            if attempt == 0:
                self._weights(iterates.W)[~supported] = 0
            engine.recompute_scores()

    def _weights(self, state):
        """A state as a Solution has it: a row a feature, or the coefficients of the rows."""
        rows = self.engine.rows
        weights = state.reshape(rows.d, -1)
        return weights[rows.m:] if rows.is_gram else weights


class JointFit(DualFit):
    """A joint multi-class fit by block coordinate descent: `cost` is c_i of block_cd, `loss` its loss."""

    def __init__(self, problem, run, cost, **loss):
        from marginlinear._core.block_cd import BlockCD
        from marginlinear._core.newton import Newton

        engine = BlockCD(problem.rows, problem.y, problem.n_classes, cost, seed=run.seed, threads=run.threads, **loss)
        super().__init__(problem, run, engine, Newton, keep=True)

    def solution(self, n_outer=0, residual=None, **references):
        solution = super().solution(n_outer, residual, **references)
        if self.problem.n_classes == 2:
            # LIBLINEAR decides between two classes by the sign of one score: what both columns share, which changes
            # no margin, is taken out. It is rounding, except at a fixed point of mcodm's outer=paper.
            iterates = self.engine.iterates
            columns = iterates.W.reshape(-1, 2)
            shared = columns.mean(axis=1, keepdims=True)
            objective = solution.info.objective - iterates.sqnorm_of(shared[:, 0])
            return solution._replace(weights=self._weights(columns - shared),
                                     info=solution.info._replace(objective=objective))
        return solution


class MarginFit(DualFit):
    """A binary fit by dual coordinate descent: `cost` is c_i of margin_cd, `tables` its losses.

    `tables` lists tuples (knots, parts) as `margin_cd.table_of` takes them.
    """

    def __init__(self, problem, run, cost, tables, **others):
        from marginlinear._core.margin_cd import MarginCD, table_of
        from marginlinear._core.margin_newton import MarginNewton

        engine = MarginCD(problem.rows, problem.y, cost, [table_of(*table) for table in tables], seed=run.seed,
                          threads=run.threads, **others)
        super().__init__(problem, run, engine, MarginNewton, keep=True)
