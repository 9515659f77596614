"""What the dual methods share: an engine, one descent, and a solution that is certified at its end."""

from __future__ import annotations

import math
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from marginlinear.problem import Info, Solution
from marginlinear.status import ROUNDING, STALLED, allowance, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from marginlinear._core.block_cd import BlockCD
    from marginlinear._core.dual_engine import DualEngine
    from marginlinear._core.margin_cd import MarginCD
    from marginlinear._core.row_cache import RowCache
    from marginlinear._typing import FloatArray, Parameters, State, Table
    from marginlinear.algorithms.certificate import Check
    from marginlinear.algorithms.descent import Descent, Sweeper
    from marginlinear.algorithms.newton import NewtonCost
    from marginlinear.problem import Problem, Run

Engine = TypeVar("Engine", bound="DualEngine")
# What methods are made of: (c_i, table) of a loss of the margin; (c_i, keywords) of an engine; a fit.
Loss: TypeAlias = "Callable[[Problem, Parameters], tuple[FloatArray, Table]]"
Terms: TypeAlias = "Callable[[Problem, Parameters], tuple[FloatArray, dict[str, Any]]]"
FitFunction: TypeAlias = "Callable[[Problem, Parameters, Run], Solution]"

# Sweeps that Gram rows may take to lose the coefficients of rows whose dual is 0, as a multiple of those before.
SPARSIFYING = 1
# Newton steps that they may take for the same.
POLISHING = 10
# What comes before sweeps may cost as much as these promise to.
WORTH = 1.0


def margin_engine(problem: Problem, cost: FloatArray, seed: int, threads: int, tables: Sequence[Table],
                  kind: Callable[..., MarginCD] | None = None, **others: Any) -> MarginCD:
    """MarginCD, or an engine of that `kind`: `cost` is c_i, `tables` its losses, tuples (knots, parts) as
    `margin_cd.table_of` takes them."""
    from marginlinear._core.margin_cd import MarginCD, table_of

    return (kind or MarginCD)(problem.rows, problem.y, cost, [table_of(*table) for table in tables],
                              targets=problem.targets, seed=seed, threads=threads, **others)


def joint_engine(problem: Problem, cost: FloatArray, seed: int, threads: int,
                 kind: Callable[..., BlockCD] | None = None, **loss: Any) -> BlockCD:
    """BlockCD, or an engine of that `kind`: `cost` is c_i, `loss` its loss."""
    from marginlinear._core.block_cd import BlockCD

    return (kind or BlockCD)(problem.rows, problem.y, problem.n_classes, cost, seed=seed, threads=threads, **loss)


class DualFit(Generic[Engine]):
    """A fit by dual coordinate descent.

    Parameters
    ----------
    problem : Problem
    run : Run
        With a start of sweeps together with others (batched.py), their number `n_iter` and last `gaps` are its own.
    engine : BlockCD or MarginCD
    newton_cost : class
        MarginNewtonCost or BlockNewtonCost, whichever fits the engine.
    sweeper : object, optional
        What makes the sweeps, as Descent takes it.
    """

    notes: tuple[str, ...]

    def __init__(self, problem: Problem, run: Run, engine: Engine, newton_cost: NewtonCost,
                 sweeper: Sweeper | None = None) -> None:
        # The engines, and NumPy with them, are imported when a fit starts: --help lists the methods without them.
        from marginlinear.algorithms.certificate import Budget
        from marginlinear.algorithms.descent import Descent
        from marginlinear.algorithms.partitions.rounds import rounds_on
        from marginlinear.algorithms.warm_start import resume

        self.problem, self.run, self.engine, self.notes = problem, run, engine, ()
        # Whether the engine has the weights that are to be told, in place of those of the sweeps.
        self.exchanged = False
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        if run.places is not None:
            sweeper = run.places.sweeper(engine)
        elif sweeper is None and run.shared:
            sweeper = rounds_on(engine, run.threads)
        self._descent = partial(Descent, engine, self.budget, newton=newton_cost, sweeper=sweeper)
        self.descent = self._descent(run.tol, run.algorithm)
        start = {} if run.start is None else run.start
        if start:
            resume(engine, start, stay=self._mix_is_dear())
            engine.n_iter = start.get("n_iter", 0)
            self.descent.go_on()
        self.descent.gaps = list(start.get("gaps", ()))
        # What other sweeps began goes on with sweeps, as if they were its own.
        self.unchecked_start = bool(start) and "gaps" not in start
        run.enlist(self)

    def _mix_is_dear(self) -> bool:
        """Whether a mix of duals to start from costs more than what it spares: it takes as long as a Newton step."""
        return not self.engine.rows.is_gram and self.descent.first_step == 0

    def renew(self, tol: float) -> None:
        """Go on to this tolerance, on what has become another problem, from the duals and weights of now."""
        self.run = self.run._replace(tol=tol)
        self.descent = self._descent(tol, self.run.algorithm)

    def until(self, tol: float, renewal: float = 0.0) -> Check:
        """Descent.until, but a start is checked, once, before its first sweep."""
        if self.unchecked_start:
            self.unchecked_start = False
            check = self.descent.check()
            if self.descent.certified():
                return check
            if self.run.algorithm == "cd":
                self.descent.give_up_centre()
        return self.descent.until(tol, renewal)

    def convex(self) -> Solution:
        """Minimise the problem of the engine as it stands."""
        engine, tol = self.engine, self.run.tol
        # Without a centre the weights are those of the duals.
        to_sparsify = engine.rows.is_gram and self.descent.sweeper is engine
        while True:
            self.until(tol)
            if to_sparsify and not self.descent.stopped and (
                    engine.count_support(self.descent.incumbent.from_average) < engine.rows.m):
                to_sparsify = False
                if self.descent.route == "newton":
                    self._step_to_duals()
                else:
                    self.descent = sparsify_kernel_expansion(self, tol)
            solution = self.solution_of_incumbent()
            if self.descent.stopped or solution.info.converged:
                return solution
            bound: float = solution.info.bound  # type: ignore[assignment]  # a dual fit has one
            self.descent.stopped = self.budget.spent(engine.n_iter, solution.info.objective, bound)
            if self.descent.stopped:
                return self.solution_of_incumbent()
            self.descent.refresh(solution.info.objective)
            tol /= 2

    def state(self) -> State:
        """Duals and weights so far: see Run.fits."""
        engine, incumbent = self.engine, self.descent.incumbent
        state, factors = engine.state(incumbent.from_average), engine.iterates.factors
        weights = incumbent.weights if incumbent.lowest_weights is None else incumbent.lowest_weights
        if self.exchanged or weights is None:
            return state
        if factors is not None:
            weights = weights.copy()
            engine.iterates.scale(weights, -1.0)
        return {**state, "W": weights}

    def solution_of_incumbent(self, n_outer: int = 0) -> Solution:
        """The `solution` for the incumbent; where it is not the end, the sweeps can go on."""
        weights = self.descent.incumbent.weights
        if weights is None:
            return self.solution(n_outer)
        self._exchange(weights)
        solution = self.solution(n_outer)
        if not solution.info.converged and not self.descent.stopped:
            self._exchange(weights)
        return solution

    def _exchange(self, weights: FloatArray) -> None:
        self.engine.iterates.exchange(weights)
        self.exchanged = not self.exchanged

    def solution(self, n_outer: int = 0, residual: float | None = None, **references: Any) -> Solution:
        """The weights as they are, with objective, bound and certificate recomputed from the rows.

        `references` are those of the upper slack at these weights (rival=, fixed=), for which the bound is asked.
        """
        engine, descent = self.engine, self.descent
        averaged = descent.incumbent.from_average
        objective, bound = self._values(averaged, references)
        if not math.isfinite(objective):
            # Sums have overflowed. Of weights and duals of 0 they do not.
            engine.start_over()
            objective, bound = self._values(averaged, references)
        if not bound < math.inf:
            bound = -math.inf
        rounding = self._rounding(averaged)
        if rounding > allowance(ROUNDING, objective):
            bound -= rounding
        certificate = objective - bound
        self.budget.record(engine.n_iter, objective, bound, certificate)
        # Where nothing ran out, checks have certified what the recomputed sums do not: what is left is rounding.
        status, reason = status_of(certificate, objective, self.run.tol, descent.stopped or STALLED)
        info = Info(
            status=status, reason=reason, algorithm=descent.way, n_iter=engine.n_iter, n_outer=n_outer,
            objective=objective, bound=bound, certificate=certificate, n_support=engine.count_support(averaged),
            seconds=self.budget.seconds, tol=self.run.tol, history=self.budget.history, residual=residual,
            notes=self.notes)
        weights = self._weights(engine.weights_at(engine.iterates.W))
        return Solution(weights, info, {**engine.state(averaged), **references})

    def _values(self, averaged: bool, references: Mapping[str, Any]) -> tuple[float, float]:
        """(objective, bound) at the weights as they are.

        Over Gram rows the weights of the duals are taken where they are as good: these have no coefficient where the
        dual is 0.
        """
        engine = self.engine
        if not engine.rows.is_gram:
            return engine.primal()[1], engine.recomputed_dual(averaged, **references)
        if references:
            engine.recompute_scores()
            return engine.primal()[1], engine.recomputed_dual(averaged, **references)
        certified, objective, bound, before = self._take_dual_weights(averaged)
        if certified:
            return objective, bound
        engine.iterates.W[:] = before
        engine.recompute_scores()
        return engine.primal()[1], bound

    def _take_dual_weights(self, averaged: bool = False) -> tuple[bool, float, float, FloatArray]:
        """(whether they are certified, objective, bound, the weights before), over Gram rows: the weights become those
        of the duals."""
        engine = self.engine
        weights = engine.dual_weights(averaged)
        bound = engine.recomputed_dual(averaged, weights)
        W = engine.iterates.W
        before = W.copy()
        W[:] = weights
        _, objective, stale = engine.primal()
        # Where a row's named rival is not its best one, the bound does not speak of these weights.
        certified = stale == 0 and objective - bound <= allowance(self.run.tol, objective)
        return certified, objective, bound, before

    def _step_to_duals(self) -> None:
        """A few Newton steps more over Gram rows, until the duals certify their own weights."""
        for _ in range(POLISHING):
            certified, _, _, before = self._take_dual_weights()
            self.engine.iterates.W[:] = before
            if certified or self.budget.exhausted(self.engine.n_iter):
                return
            if self.descent.newton_step() is None:
                return

    def _rounding(self, averaged: bool) -> float:
        """What rounding may add to the bound, beside a part of its value."""
        return self.engine.rounding

    def _weights(self, state: FloatArray) -> FloatArray:
        """A state as a Solution has it: a row a feature, or the coefficients of the rows."""
        rows = self.engine.rows
        weights = state.reshape(rows.d, -1)
        return weights[rows.m:] if rows.is_gram else weights


def copied_state(engine: DualEngine, averaged: bool) -> State:
    """The engine's `state`, in memory of its own."""
    return {name: getattr(value, "copy", lambda value=value: value)()
            for name, value in engine.state(averaged).items()}


def sparsify_kernel_expansion(fit: DualFit[Engine], tol: float) -> Descent:
    """Over Gram rows: plain sweeps from W = U on, until the duals certify their own weights. The descent to go on with.

    Around a centre W has a coefficient on every row that ever had a dual, U on those that have one now. Where plain
    sweeps do not get there soon, the incumbent stays what it was.
    """
    from marginlinear.algorithms.descent import Descent

    engine, original = fit.engine, fit.descent
    averaged = original.incumbent.from_average
    before = copied_state(engine, averaged)
    if averaged:
        engine.adopt()
    engine.iterates.plain()
    descent = Descent(engine, fit.budget.capped((1 + SPARSIFYING) * engine.n_iter), fit.run.tol, "cd")
    check = descent.check()
    while not descent.stopped and check.gap > allowance(tol, check.primal):
        check = descent.until(tol)
    if descent.stopped:
        engine.resume(before)
        original.reset()
        descent = original
    else:
        descent.budget, descent.route = fit.budget, original.route
    # From here on the solution is that of the duals of the sweeps.
    engine.keep_duals(False)
    return descent


class JointFit(DualFit["BlockCD"]):
    """A joint multi-class fit by block coordinate descent: of what `joint_engine` takes."""

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, *, cache: RowCache | None = None,
                 **loss: Any) -> None:
        from marginlinear.algorithms.newton import BlockNewtonCost

        make = joint_engine if run.places is None else run.places.joint_engine
        engine, sweeper = make(problem, cost, run.seed, run.threads, **loss), None
        if cache is not None:
            from marginlinear.algorithms.active_sets import ActiveSets

            sweeper = ActiveSets(engine, cache, run)
        super().__init__(problem, run, engine, BlockNewtonCost if run.places is None else run.places.block_newton,
                         sweeper)

    def start_with_admm(self) -> bool:
        """Where alternating directions cost no more than what is ahead, begin with them. Whether the fit goes on from
        them: from a start at other costs it does where that has the higher objective."""
        import numpy as np

        from marginlinear._core.admm import ADMM

        run, engine, descent = self.run, self.engine, self.descent
        if run.places is not None or run.algorithm != "auto":
            return False
        if run.start is not None and np.array_equal(engine.cost, run.start["cost"]):
            return False
        n = ADMM.iterations(engine, WORTH * min(descent.sweeps, descent.steps))
        if n == 0:
            return False
        given, kept = math.inf, None
        if run.start is not None:
            if not engine.named:
                engine.name_rivals(engine.best_rivals()[0])
            given, kept = engine.primal()[1], copied_state(engine, False)
        admm, objective, lowest = ADMM(engine), math.inf, None
        for schedule in admm.schedules(n):
            found = admm.run(n, self.budget, run.seed, schedule, descent.incumbent.offer)
            if found < objective:
                objective, lowest = found, copied_state(engine, False)
            elif lowest is not None:
                engine.resume(lowest)
            else:
                break
        if kept is not None and given <= objective:
            engine.resume(kept)
            descent.go_on()
            return False
        if kept is not None:
            self.notes += (f"start left: its objective is {given:.6g}, alternating directions begin at "
                           f"{objective:.6g}",)
        self.unchecked_start = False
        if objective < math.inf:
            descent.go_on()
        return objective < math.inf

    def solution_of_lowest(self, n_outer: int, residual: float | None = None, fixed: bool = False) -> Solution:
        """The `solution` for the weights of the least objective so far, against the best rivals there, or, if `fixed`,
        their scores. To be called at the end."""
        weights = self.descent.incumbent.lowest_weights
        if weights is None or self.run.places is not None:
            # Rows elsewhere have no bound against other rivals than those that are named.
            return self.solution_of_incumbent(n_outer)
        self._exchange(weights)
        rival, score = self.engine.best_rivals()
        references = {"fixed": score} if fixed else {"rival": rival}
        return self.solution(n_outer, residual, **references)

    def _values(self, averaged: bool, references: Mapping[str, Any]) -> tuple[float, float]:
        engine, incumbent = self.engine, self.descent.incumbent
        unchecked = incumbent.weights is None or self.descent.route == "newton" or engine.factors is not None
        if unchecked or references or not engine.piecewise_linear or engine.rows.is_gram:
            return super()._values(averaged, references)
        # A check has summed the incumbent's objective over the rows, at these very weights.
        return incumbent.objective, engine.recomputed_dual(averaged)

    def solution(self, n_outer: int = 0, residual: float | None = None, **references: Any) -> Solution:
        kept = None if self.engine.factors is None else self.engine.factors.copy()
        self.engine.drop_classes(self.descent.incumbent.from_average)
        solution = super().solution(n_outer, residual, **references)
        if kept is not None and not solution.info.converged and not self.descent.stopped:
            # The sweeps may go on.
            self.engine.factors[:] = kept  # type: ignore[index]  # there as before
        if self.problem.n_classes == 2:
            # LIBLINEAR decides between two classes by the sign of one score: what both columns share, which changes
            # no margin, is taken out. At a minimum it is rounding.
            iterates = self.engine.iterates
            columns = self.engine.weights_at(iterates.W).reshape(-1, 2)
            shared = columns.sum(axis=1) / 2
            objective = solution.info.objective
            if iterates.factors is None:
                objective -= iterates.sqnorm_of(shared)
            return solution._replace(weights=self._weights(columns - shared[:, None]),
                                     info=solution.info._replace(objective=objective))
        return solution


class MarginFit(DualFit["MarginCD"]):
    """A binary fit by dual coordinate descent: of what `margin_engine` takes."""

    def __init__(self, problem: Problem, run: Run, cost: FloatArray, tables: Sequence[Table], **others: Any) -> None:
        from marginlinear.algorithms.newton import MarginNewtonCost

        make: Callable[..., MarginCD] = margin_engine
        self.to_outer: Callable[[FloatArray], FloatArray] | None = None
        if run.places is not None:
            make = run.places.margin_engine
        else:
            problem, run, self.to_outer = renumbered(problem, run)
        engine = make(problem, cost, run.seed, run.threads, tables, **others)
        newton = MarginNewtonCost if run.places is None else run.places.margin_newton(engine)
        super().__init__(problem, run, engine, newton)

    def state(self) -> State:
        state = super().state()
        return state if self.to_outer is None else {**state, "W": self.to_outer(state["W"])}

    def _values(self, averaged: bool, references: Mapping[str, Any]) -> tuple[float, float]:
        incumbent = self.descent.incumbent
        newton = self.descent.newton
        unchecked = incumbent.weights is None or incumbent.margins is not None or (
            newton is not None and not (newton.afresh and newton.primal == incumbent.objective))
        if unchecked or self.engine.rows.is_gram:
            return super()._values(averaged, references)
        # A check has summed the incumbent's objective over the rows, at these very weights.
        return incumbent.objective, self.engine.recomputed_dual(averaged)

    def _rounding(self, averaged: bool) -> float:
        """The pieces of a loss are polynomials about 0: of a band of residuals whose ends are far from it they are
        differences of large terms, c_i epsilon^2 and less, on the rows beyond it."""
        engine = self.engine
        if self.problem.targets is None or self.run.places is not None:
            return engine.rounding
        return engine.rounding + sys.float_info.epsilon * engine.sum_of_levels(engine.state(averaged)["duals"])

    def solution(self, n_outer: int = 0, residual: float | None = None, **references: Any) -> Solution:
        solution = super().solution(n_outer, residual, **references)
        if self.to_outer is None:
            return solution
        weights = self.to_outer(solution.state["W"])
        return solution._replace(weights=weights.reshape(-1, 1), state={**solution.state, "W": weights})


def renumbered(problem: Problem, run: Run,
               rotated: bool = True) -> tuple[Problem, Run, Callable[[FloatArray], FloatArray] | None]:
    """(problem, run, to_outer) with the frequent features side by side, and what takes weights of these features to the
    given ones; as they are, and None, where that is not worth it. `rotated`: as `renumber` takes it."""
    from marginlinear._core.renumber import renumber

    inner = renumber(problem.rows, run.threads, run.overwrite_rows, rotated)
    if inner is None:
        return problem, run, None
    if run.start is not None and run.start["W"] is not None:
        run = run._replace(start={**run.start, "W": inner.to_inner(run.start["W"])})
    return problem._replace(rows=inner.rows), run, inner.to_outer


def of_loss(loss: Loss, problem: Problem, params: Parameters) -> tuple[FloatArray, dict[str, Any]]:
    """`Method.terms` of a binary method by its `loss`."""
    cost, table = loss(problem, params)
    return cost, {"tables": [table]}


def convex_fit(made: Callable[..., DualFit[Any]], terms: Terms) -> FitFunction:
    """The `fit` of a method by a MarginFit or JointFit of its `terms`, as Method has both."""
    def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
        cost, loss = terms(problem, params)
        return made(problem, run, cost, **loss).convex()

    return fit


def margin_fit_of(loss: Loss) -> FitFunction:
    """The `fit` of a binary method whose `loss` is flat above a knot, or within a band: over a kernel by a PairFit."""
    by_rows = fit_of(loss)

    def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
        import numpy as np

        from marginlinear._core.rows import SINGLE

        rows = problem.rows
        largest = np.max(rows.sqnorms(), initial=0.0) if rows.is_gram else math.nan
        single = largest == 0 or SINGLE[0] <= largest <= SINGLE[1]
        if not rows.is_gram or not single or run.algorithm != "auto":
            if params["free_bias"] and rows.is_gram:
                if run.algorithm != "auto":
                    raise ValueError(f"free_bias = True does not go with algorithm = {run.algorithm!r}: give 'auto'")
                raise ValueError("free_bias = True: the kernel's values are too large, or too small, for float32 "
                                 "numbers: scale the features")
            return by_rows(problem, params, run)
        from marginlinear.algorithms.pairs import PairFit, ResidualPairs

        made = PairFit if problem.targets is None else ResidualPairs
        cost, table = loss(problem, params)
        pairs = made(problem, run, cost, table, params["free_bias"])
        if params["free_bias"]:
            from marginlinear.algorithms.factored import convex
            from marginlinear.algorithms.free_bias import FreeBiasFit

            return convex(pairs, partial(FreeBiasFit, made=partial(MarginFit, cost=cost, tables=[table])))
        solution = pairs.convex()
        if solution is None:
            run = pairs.budget.left(run)
            if pairs.crawled:
                run = run._replace(algorithm="newton", start={**pairs.state(), "n_iter": pairs.n_iter})
            solution = pairs.budget.whole(by_rows(problem, params, run))
        return solution

    return fit


def joint_fit_of(terms: Terms, solve: Callable[[JointFit, Parameters], Solution]) -> FitFunction:
    """The `fit` of a joint method of these `terms`: over a kernel, of more than a few rows, by active sets at first.
    `solve(fit, params)`, of a JointFit, returns the Solution."""
    def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
        import numpy as np

        from marginlinear._core.rows import SINGLE, SMALL

        cost, loss = terms(problem, params)
        rows = problem.rows
        # The published iteration is followed to where exact solutions lead it.
        by_sets = run.algorithm == "auto" and run.places is None and params.get("outer") != "paper"
        if by_sets and rows.is_gram and rows.m > SMALL and SINGLE[0] <= np.max(rows.sqnorms()) <= SINGLE[1]:
            from marginlinear.algorithms.active_sets import Crawl

            with rows.cache() as cache:
                sets = JointFit(problem._replace(rows=rows.streamed()), run._replace(algorithm="cd"), cost, cache=cache,
                                **loss)
                try:
                    return solve(sets, params)
                except Crawl:
                    start = {**sets.engine.state(False), "n_iter": sets.engine.n_iter}
                    run = sets.budget.left(run)._replace(start=start)
                    return sets.budget.whole(solve(JointFit(problem, run, cost, **loss), params))
        return solve(JointFit(problem, run, cost, **loss), params)

    return fit


def fit_of(loss: Loss) -> FitFunction:
    """The `fit` of a binary method by its `loss`, both as Method has them."""
    penalised = convex_fit(MarginFit, partial(of_loss, loss))

    def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
        if not params.get("free_bias"):
            return penalised(problem, params, run)
        if problem.rows.is_gram:
            raise ValueError("free_bias = True does not go with a kernel here: give l1svc or l2svc, or bias = 1")
        from marginlinear.algorithms.free_bias import FreeBiasFit

        cost, table = loss(problem, params)
        return FreeBiasFit(problem, run, partial(MarginFit, cost=cost, tables=[table])).solution()

    return fit
