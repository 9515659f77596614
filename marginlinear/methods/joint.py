"""What the joint multi-class methods share: one engine, one descent, and a solution that is certified at its end."""

from marginlinear._core.stop import status_of
from marginlinear.problem import MAX_ITER, Info, Solution


class JointFit:
    """A fit by block coordinate descent.

    Parameters
    ----------
    problem : Problem
    run : Run
    cost : float64 array of shape (m,)
        c_i of block_cd.
    **loss
        The loss of block_cd: squared, low, high, mu.
    """

    def __init__(self, problem, run, cost, **loss):
        # The engines, and NumPy with them, are imported when a fit starts: --help lists the methods without them.
        from marginlinear._core.block_cd import BlockCD
        from marginlinear._core.descent import Budget, Descent
        from marginlinear._core.newton import Newton

        self.problem, self.run = problem, run
        self.budget = Budget(run.max_iter, run.time_limit, run.progress)
        self.engine = BlockCD(problem.rows, problem.y, problem.n_classes, cost, seed=run.seed, threads=run.threads,
                              **loss)
        if run.start is not None:
            self.engine.resume(run.start)
        self.descent = Descent(self.engine, self.budget, run.tol, run.algorithm, Newton)
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
        _, objective, _ = engine.primal()
        averaged = descent.last is not None and descent.last.from_average
        bound = engine.recomputed_dual(averaged, **references)
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
        weights = engine.iterates.W.reshape(engine.rows.d, engine.n_classes)
        if engine.n_classes == 2:
            # LIBLINEAR decides between two classes by the sign of one score: what both columns share, which changes
            # no margin, is taken out. It is rounding, except at a fixed point of mcodm's outer=paper.
            shared = (weights[:, :1] + weights[:, 1:]) / 2
            weights = weights - shared
            info.objective -= float((shared * shared).sum())
        return Solution(weights, info, {**engine.state(averaged), **references})
