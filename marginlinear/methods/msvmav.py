"""Margin semi-variance minimised, average margin maximised, by turns (Qian, Ai, Zhang and Gao, IJCAI 2022).

With weights p_i of the rows, of sum 1, margins g_i = y_i <w, x_i>, their mean rho = <g0, w>, g0 = sum_i p_i y_i x_i:

    start   w = g0 / ||g0||
    A       I = {i : g_i < rho},  z = argmin_z sum_{i in I} p_i (rho - y_i <z, x_i>)^2 + beta ||z - w||^2
                                    = w + (beta 1 + X_I' P_I X_I)^{-1} X_I' P_I (rho y_I - X_I w)
    flip    z = -z  if <g0, z> < 0
    B       u = argmax_u <g0, u> - alpha ||u - z||^2 = z + g0 / (2 alpha)
    norm    v = u / ||u||,  the next w
    until   ||v - w|| / sqrt(d) <= tol

What is pursued is the semi-variance over the squared mean, sum_i p_i (1 - g_i/rho)_+^2, which does not know the scale
of w. It is no objective that the rounds descend on: alpha and beta are a part of the answer, the value may rise, and
the index sets I may go round in a cycle. Hence no certificate, and four ends: converged; finished, where the last
rounds that are allowed have hardly changed that value; max_iter, where they have; cycle.

p_i is proportional to instance weight times class weight. A class weight is thus the weight of the class's rows in the
mean margin and in the semi-variance alike: the method has no other place for it.

alpha goes with the size of the rows, beta with its square: as multiples of sqrt(s) and s, s = sum_i p_i ||x_i||^2, they
give one answer for all scales of X. That is how their defaults are made.

The rows of a Gram matrix K get coordinates, K = Phi Phi', and the same rounds run on Phi. To iterate on coefficients
would multiply what lies in the null space of K by 1/||u|| > 1 every round.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from marginlinear import params as P
from marginlinear.problem import Info, Solution
from marginlinear.registry import Method, Paper
from marginlinear.status import CONVERGED, CYCLE, FINISHED, SWEEPS, ended_by

if TYPE_CHECKING:
    from marginlinear._core.rows import Rows
    from marginlinear._typing import BoolArray, FloatArray, IntArray, IntpArray, Parameters, State
    from marginlinear.algorithms.certificate import Budget
    from marginlinear.problem import Problem, Run

# Defaults of alpha/sqrt(s) and beta/s. Of five pairs from {10, 100} x {0.01, 0.03, 0.1} the best in test accuracy after
# 100 rounds on imdb, magic and phishing, within 0.7 points of the best on a9a; a larger beta is slow, worse on text.
ALPHA, BETA = 100.0, 0.01
# A margin that is below the mean by no more than this part of the largest is not below it.
ROUNDING = 1e-13
# ||g0|| that is no more than this part of the root mean square of the rows' norms is 0.
NOTHING = 1e-14
# Error that the conjugate gradients may leave in z, as a part of the change of w in the round before.
ACCURACY = 1e-4
# All rounds that are allowed are enough where what is pursued has changed by no more than this part over the LAST ones.
HARDLY, LAST = 0.01, 10
# Weights that have come back to within this part of a round's change are the same.
SAME = 1e-3
# The least default of alpha and beta, where the squares of the rows vanish.
TINY = 1e-200
# A d x d or m x m system is factorised up to this size, and a d x d one beyond where that costs no more operations than
# this many for each stored value and root of a condition number; never above the last size.
SMALL, OPERATIONS, LARGE = 500, 60, 2000
# Stored values of a chunk for one thread, about 1 ms. Rows that are added in parts have so many values a part for each
# value of its sum, and make no fewer than so many parts.
CHUNK, SHARE, PARTS = 2**18, 8, 8
# Columns of a block of the pivoted Cholesky factor.
COLUMNS = 64
# A pivoted Cholesky factor may miss the Gram matrix by this part of its largest value.
INDEFINITE = 1e-7


def fit(problem: Problem, params: Parameters, run: Run) -> Solution:
    return MSVMAvFit(problem, params, run).solution()


class MSVMAvFit:
    """One fit. `form` is the class that solves step A; default: by shape, see `form_of`."""

    def __init__(self, problem: Problem, params: Parameters, run: Run, form: type[Form] | None = None) -> None:
        import numpy as np

        from marginlinear.algorithms.certificate import Budget

        self.run = run
        self.budget = Budget(run.max_iter, run.time_limit, run.progress, run.cancel)
        self.features = Coordinates(problem.rows, self.budget) if problem.rows.is_gram else None
        rows = problem.rows if self.features is None else self.features.rows
        order = slice(None) if self.features is None else self.features.order
        self.order, self.weights = order, np.asarray(problem.weights)
        self.rows, self.passes = rows, Passes(rows, run.threads)
        self.y = np.where(problem.y[order] == 1, 1.0, -1.0)
        self.p = self.weights[order] / self.weights.sum()
        with np.errstate(over="ignore"):
            square = float(self.p @ np.asarray(rows.sqnorms()))
        if not math.isfinite(square):
            raise ValueError("X: the squares of the values overflow when summed: scale the features")
        self.alpha = params["alpha"] or max(TINY, ALPHA * math.sqrt(square))
        self.g0 = self.passes.sum(self.p * self.y)
        if norm(self.g0) <= NOTHING * math.sqrt(square):
            raise ValueError("msvmav: the mean of y_i x_i over the rows is 0, so there is no margin to raise: both "
                             "classes have the same sum of rows; weigh the classes or rows differently, or give a "
                             "bias feature (bias = 1) where the classes are of different size")
        beta = params["beta"] or max(TINY, BETA * square)
        self.form = (form or form_of(rows, square / beta))(self.passes, self.p, beta, self.budget)
        self.cycle = Cycle()

    def solution(self) -> Solution:
        import numpy as np

        run, root, n_iter, change = self.run, math.sqrt(self.rows.d), 0, 1.0
        ended: str | None = None
        self.go_to(self.start())
        run.enlist(self)
        while True:
            below, found = self.round(ACCURACY * change)
            change = norm(found - self.w)
            residual = change / root
            settled = residual <= run.tol
            if settled and n_iter == 0 and run.start is not None:
                # A start that was the answer stays as it is.
                self.budget.record(0, self.score(), residual=residual)
                break
            n_iter += 1
            self.go_to(found)
            self.budget.record(n_iter, self.score(), residual=residual)
            if settled:
                break
            ended = CYCLE if self.cycle.closes(n_iter, below, found, change) else self.budget.exhausted(n_iter)
            if ended:
                ended = FINISHED if ended == SWEEPS and self.at_rest() else ended
                break
        duals = np.zeros(len(self.p))
        duals[self.order] = np.maximum(0, np.where(self.below(), self.rho - self.margins, 0))
        duals *= self.weights
        weights = self.w if self.features is None else self.features.coefficients(self.w)
        status, reason = ended_by(CONVERGED if settled else ended)
        info = Info(
            status=status,
            algorithm=self.form.name,
            n_iter=n_iter,
            n_outer=0,
            objective=self.score(),
            bound=None,
            certificate=None,
            n_support=int(np.count_nonzero(duals)),
            seconds=self.budget.seconds,
            tol=run.tol,
            history=self.budget.history,
            residual=residual,
            reason=reason,
        )
        return Solution(weights.reshape(-1, 1), info, {**self.state(), "duals": duals})

    def state(self) -> State:
        """The weights so far: see Run.fits."""
        return {"W": self.w}

    def start(self) -> FloatArray:
        """The weights of an earlier fit where their mean margin is positive, else g0/||g0||."""
        if self.run.start is not None:
            import numpy as np

            w = np.array(self.run.start["W"])
            if self.g0 @ w > 0:
                return w
        return self.g0 / norm(self.g0)

    def go_to(self, w: FloatArray) -> None:
        self.w = w
        self.scores = self.passes.scores(w)
        self.margins = self.y * self.scores
        self.rho = float(self.g0 @ w)

    def below(self) -> BoolArray:
        """Which rows are in I: bool array of shape (m,)."""
        found: BoolArray = self.rho - self.margins > ROUNDING * abs(self.margins).max()
        return found

    def round(self, accuracy: float) -> tuple[BoolArray, FloatArray]:
        """(I, w+): steps A and B from w, z to within `accuracy`."""
        import numpy as np

        below = self.below()
        lack = np.where(below, self.rho * self.y - self.scores, 0.0)
        z = self.w + self.form.step(below, lack, accuracy)
        if self.g0 @ z < 0:
            z = -z
        # u times 2 alpha, or u: whichever cannot overflow.
        twice = 2 * self.alpha
        u = z + self.g0 / twice if twice >= 1 else twice * z + self.g0
        return below, u / norm(u)

    def at_rest(self) -> bool:
        """Whether the last rounds have hardly changed the score."""
        scores = [entry["objective"] for entry in self.budget.history[-1 - LAST:]]
        return len(scores) > LAST and max(scores) - min(scores) <= HARDLY * scores[-1]

    def score(self) -> float:
        """sum_i p_i (1 - g_i/rho)_+^2"""
        import numpy as np

        return float(self.p @ np.maximum(0, 1 - self.margins / self.rho) ** 2)


class Passes:
    """Products of the rows with vectors. What they give does not depend on the number of threads.

    X w is made of dot products with the rows, X' a by adding rows up: in parts that have a sum each, where there are
    few features beside the stored values. Of many features, X' a is made of dot products with columns and X w by adding
    columns up, once `keep_columns` was called.
    """

    def __init__(self, rows: Rows, threads: int) -> None:
        self.rows, self.threads = rows, threads
        self.columns: Rows | None = None
        self.parts: FloatArray | None = None

    def keep_columns(self) -> None:
        """Hold the stored values a second time, by columns, where that is faster."""
        import numpy as np
        from scipy.sparse import csr_array

        from marginlinear._core.rows import Rows

        rows = self.rows
        if isinstance(rows.arrays, tuple) and not adds_in_parts(rows):
            stored = csr_array((rows.stored(), *rows.arrays[1:]), shape=(rows.m, rows.n)).tocsc()
            self.columns = Rows.from_csr(stored.data, stored.indices.astype(np.int32, copy=False),
                                         stored.indptr.astype(np.int64, copy=False), rows.m)
            self.parts = None

    def scores(self, w: FloatArray) -> FloatArray:
        """X w"""
        import numpy as np

        rows, columns = self.rows, self.columns
        if columns is None or not adds_in_parts(columns):
            return self._dots(rows, w, np.empty(rows.m))
        out = self._added(columns, w[:rows.n])
        if rows.bias >= 0:
            out += rows.bias * w[rows.n]
        return out

    def sum(self, a: FloatArray) -> FloatArray:
        """X' a; of rows that are added, those with a_i = 0 cost nothing."""
        import numpy as np

        rows = self.rows
        if self.columns is None:
            return self._added(rows, a)
        out = np.empty(rows.d)
        self._dots(self.columns, a, out[:rows.n])
        if rows.bias >= 0:
            out[rows.n] = rows.bias * a.sum()
        return out

    def _dots(self, rows: Rows, w: FloatArray, out: FloatArray) -> FloatArray:
        """out = the products of `rows` with w; returned."""
        from marginlinear._core.scores import scores_of
        from marginlinear.threads import run_chunks

        w, into = w.reshape(-1, 1), out.reshape(-1, 1)
        run_chunks(lambda lo, hi: scores_of(rows, w, into, lo, hi), rows.m, self.threads, rows_with(rows, CHUNK))
        return out

    def _added(self, rows: Rows, a: FloatArray) -> FloatArray:
        """sum_i a_i x_i of `rows`, the parts' sums being added in their order."""
        import numpy as np

        from marginlinear._core.scores import add_rows
        from marginlinear.threads import run_chunks

        size = rows_with(rows, max(CHUNK, SHARE * rows.d))
        # Kept: memory that is new each time costs as much as the sums.
        if self.parts is None:
            self.parts = np.empty((-(-rows.m // size), rows.d))
        parts = self.parts

        def add(lo: int, hi: int) -> None:
            out = parts[lo // size]
            out[:] = 0
            add_rows(rows, a, out, lo, hi)

        run_chunks(add, rows.m, self.threads, size)
        sums: FloatArray = parts.sum(axis=0)
        return sums

    def dense(self, which: IntArray) -> FloatArray:
        """Rows `which`, the bias feature included: float64 array of shape (len(which), d)."""
        import numpy as np

        rows = self.rows.select(which)
        out = np.zeros((rows.m, rows.d))
        if isinstance(rows.arrays, tuple):
            _, indices, indptr = rows.arrays
            out[np.repeat(np.arange(rows.m), np.diff(indptr)), indices] = rows.stored()
        else:
            out[:, :rows.n] = rows.arrays
        if rows.bias >= 0:
            out[:, rows.n] = rows.bias
        return out


def adds_in_parts(rows: Rows) -> bool:
    """Whether rows are added in parts: there is a part for each thread, and a part's sum costs little beside it."""
    return rows.nnz >= PARTS * SHARE * rows.d


def rows_with(rows: Rows, values: float) -> int:
    """How many rows, at least 1, have about so many stored values."""
    return max(1, int(values * rows.m / (1 + rows.nnz)))


def form_of(rows: Rows, spread: float) -> type[Form]:
    """The class for step A, by the shape of the rows; `spread` is sum_i p_i ||x_i||^2 / beta.

    A d x d factorisation costs d^3/3 operations, and what is factorised is summed up from m x d matrices, of which ten
    cost as much as one that is factorised: all of it is done in blocks. Conjugate gradients are passes over the stored
    values, in number as the root of the condition number, which is 1 + spread at most. An m x m system is factorised
    anew in nearly every round.
    """
    d, m = rows.d, rows.m
    if min(d, m) <= SMALL:
        return Primal if d <= m else Dual
    cheap = d**2 * (d / 3 + m / 10) <= OPERATIONS * rows.nnz * math.sqrt(1 + spread)
    return Primal if d <= min(m, LARGE) and cheap else Iterative


class Form(Protocol):
    """What solves step A."""

    name: str

    def __init__(self, passes: Passes, p: FloatArray, beta: float, budget: Budget) -> None: ...

    def step(self, below: BoolArray, lack: FloatArray, accuracy: float) -> FloatArray: ...


class Primal:
    """delta = (beta 1 + X_I' P_I X_I)^{-1} X_I' P_I lack_I: d x d.

    The paper's boost, by all rows at once that have entered or left I since the last factorisation R' R. With these
    rows times sqrt(p_i) as columns of U, and signs S on the diagonal, +1 for a row that entered, -1 for one that left,

        M = R' R + U S U' = R' (1 + W S W') R,   W = R'^{-1} U,
        M^{-1} r = R^{-1} (t - W (S + W' W)^{-1} W' t),   t = R'^{-1} r.

    W is kept, also of rows that came back, and gets the columns that are new. M is factorised anew once the corrections
    together would cost more than that, and where the residual is more than rounding: a row that leaves may take all but
    nothing of a direction with it. So nothing drifts but the sum X_I' P_I X_I that M is made of, and that hardly: rows
    are added and subtracted. It is made afresh where that takes fewer rows, and when as many rows as there are have
    come and gone.
    """

    name = "cholesky"
    # Values, and products, of a block of rows: Ctrl-C is seen between blocks.
    VALUES, PRODUCTS = 2**21, 2**29
    # What the calls of one correction cost, in operations; the residual that is rounding, as a part of |M| |delta|.
    CALLS, ROUNDING = 1e6, 1e-15
    factor: tuple[FloatArray, bool] | None
    # From the first factor on.
    held: IntpArray
    known: BoolArray
    U: FloatArray
    W: FloatArray
    operations: float
    size: float

    def __init__(self, passes: Passes, p: FloatArray, beta: float, budget: Budget) -> None:
        import numpy as np

        d = passes.rows.d
        self.passes, self.p, self.beta, self.factor = passes, p, beta, None
        # The index set of the sum and of its factor.
        self.inside, self.moved, self.sum = np.zeros(len(p), dtype=bool), 0, np.zeros((d, d))

    def step(self, below: BoolArray, lack: FloatArray, accuracy: float) -> FloatArray:
        from scipy.linalg import cho_solve

        right = self.passes.sum(self.p * lack)
        corrected = None if self.factor is None else self._corrected(below, right)
        if corrected is not None:
            return corrected
        self._factorise(below)
        delta: FloatArray = cho_solve(self.factor, right, check_finite=False)
        return delta

    def _corrected(self, below: BoolArray, right: FloatArray) -> FloatArray | None:
        """delta by the last factor; None where a new one is cheaper or has to be."""
        import numpy as np
        from scipy.linalg import cho_solve, solve_triangular

        assert self.factor is not None
        d, R, changed = len(right), self.factor[0], below != self.inside
        delta: FloatArray
        if not changed.any():
            delta = cho_solve(self.factor, right, check_finite=False)
            return delta
        new = np.flatnonzero(changed & ~self.known)
        held = len(self.held) + len(new)
        self.operations += self.CALLS + d * d * (len(new) + 4) + 2 * d * held**2 + held**3
        if self.operations > d**3 / 3:
            return None
        if len(new):
            U = self._scaled(new)
            self.held, self.known[new] = np.append(self.held, new), True
            self.U = np.vstack([self.U, U])
            self.W = np.vstack([self.W, solve_triangular(R, U.T, trans=1, check_finite=False).T])
        used = changed[self.held]
        U, W, sign = self.U[used], self.W[used], np.where(below[self.held[used]], 1.0, -1.0)
        t = solve_triangular(R, right, trans=1, check_finite=False)
        try:
            inner = np.linalg.solve(np.diag(sign) + W @ W.T, W @ t)
        except np.linalg.LinAlgError:
            return None
        delta = solve_triangular(R, t - inner @ W, check_finite=False)
        residual = right - self.beta * delta - self.sum @ delta - (sign * (U @ delta)) @ U
        return delta if norm(residual) <= self.ROUNDING * self.size * norm(delta) else None

    def _factorise(self, below: BoolArray) -> None:
        import numpy as np

        entering, leaving = np.flatnonzero(below & ~self.inside), np.flatnonzero(self.inside & ~below)
        changes = len(entering) + len(leaving)
        self.moved += changes
        if changes > np.count_nonzero(below) or self.moved > len(below):
            self.sum[:] = 0
            self.moved, entering, leaving = 0, np.flatnonzero(below), leaving[:0]
        self._add(entering, 1.0)
        self._add(leaving, -1.0)
        self.inside, self.factor, self.operations = below, factor_of(self.sum, self.beta), 0
        self.size = norm(self.sum.ravel()) + self.beta
        # The rows of which U' and W' are held.
        self.held, self.known = np.empty(0, dtype=np.intp), np.zeros(len(below), dtype=bool)
        self.U = self.W = np.empty((0, len(self.sum)))

    def _scaled(self, which: IntArray) -> FloatArray:
        """P_which^{1/2} X_which"""
        import numpy as np

        return np.sqrt(self.p[which])[:, np.newaxis] * self.passes.dense(which)

    def _add(self, which: IntArray, sign: float) -> None:
        """sum += sign X_which' P_which X_which"""
        from marginlinear.threads import ranges

        d = self.passes.rows.d
        for lo, hi in ranges(len(which), max(1, min(self.VALUES // d, self.PRODUCTS // d**2))):
            block = self._scaled(which[lo:hi])
            self.sum += sign * (block.T @ block)


class Dual:
    """delta = X_I' Q_I (beta 1 + Q_I X_I X_I' Q_I)^{-1} Q_I lack_I, Q = P^{1/2}: |I| x |I|."""

    name = "dual"

    def __init__(self, passes: Passes, p: FloatArray, beta: float, budget: Budget) -> None:
        self.passes, self.beta, self.q = passes, beta, p**0.5
        self.products = passes.rows.products()
        self.inside: BoolArray | None = None
        self.factor: tuple[FloatArray, bool] | None = None

    def step(self, below: BoolArray, lack: FloatArray, accuracy: float) -> FloatArray:
        import numpy as np
        from scipy.linalg import cho_solve

        a = np.zeros(len(lack))
        which = np.flatnonzero(below)
        if len(which) == 0:
            return self.passes.sum(a)
        q = self.q[which]
        if self.inside is None or (self.inside != below).any():
            self.factor = factor_of(q[:, np.newaxis] * self.products[np.ix_(which, which)] * q, self.beta)
            self.inside = below
        a[which] = q * cho_solve(self.factor, q * lack[which], check_finite=False)
        return self.passes.sum(a)


class Iterative:
    """The same delta by conjugate gradients on beta 1 + X_I' P_I X_I, from the last round's on.

    Its least eigenvalue is beta or more, hence ||error|| <= ||residual|| / beta.
    No preconditioner: with the diagonal as one, imdb and news20bin need a third more iterations to the same residual,
    3 to 4 a round without.
    """

    name = "cg"

    def __init__(self, passes: Passes, p: FloatArray, beta: float, budget: Budget) -> None:
        import numpy as np

        self.passes, self.p, self.beta, self.budget = passes, p, beta, budget
        self.delta, self.scores = np.zeros(passes.rows.d), np.zeros(len(p))
        passes.keep_columns()

    def step(self, below: BoolArray, lack: FloatArray, accuracy: float) -> FloatArray:
        import numpy as np

        weight = np.where(below, self.p, 0.0)
        # X delta is kept beside delta: what is left costs one pass.
        r = self.passes.sum(self.p * lack - weight * self.scores) - self.beta * self.delta
        # Of length 1, its square is a number at any scale of the rows.
        length = norm(r)
        if length <= self.beta * accuracy:
            return self.delta
        r /= length
        left, direction = r @ r, r.copy()
        further, scores = np.zeros_like(self.delta), np.zeros_like(self.scores)
        # Without rounding d steps are the exact solution.
        for _ in range(2 * len(r)):
            if length * math.sqrt(left) <= self.beta * accuracy or self.budget.exhausted(0):
                break
            along = self.passes.scores(direction)
            image = self.beta * direction + self.passes.sum(weight * along)
            size = left / (direction @ image)
            further += size * direction
            scores += size * along
            r -= size * image
            left, before = r @ r, left
            direction *= left / before
            direction += r
        self.delta = self.delta + length * further
        self.scores = self.scores + length * scores
        return self.delta


def factor_of(matrix: FloatArray, beta: float) -> tuple[FloatArray, bool]:
    """Cholesky factor of beta 1 + matrix, as scipy.linalg.cho_solve takes it."""
    import numpy as np

    from marginlinear.threads import aside

    matrix = matrix.copy()
    matrix.flat[::len(matrix) + 1] += beta
    try:
        # SciPy's own would hold the GIL, and with it the signals.
        return aside(np.linalg.cholesky, matrix).T, False
    except np.linalg.LinAlgError:
        raise ValueError(f"beta = {beta!r} is lost in rounding beside the squares of the rows: take a larger beta, or "
                         "scale the features") from None


class Cycle:
    """Whether the rounds go in a circle of more than one index set.

    Looks for the index set and the weights of an earlier round, which is set anew after 1, 2, 4, 8, ... rounds (Brent
    1980).
    """

    def __init__(self) -> None:
        self.next, self.other = 1, False
        self.weights: FloatArray | None = None
        self.members: bytes | None = None

    def closes(self, n_iter: int, below: BoolArray, w: FloatArray, change: float) -> bool:
        """To be called each round with its index set and its w+, `change` being ||w+ - w||."""
        import numpy as np

        members = np.packbits(below).tobytes()
        if members != self.members:
            self.other = True
        elif self.other and norm(w - np.asarray(self.weights)) <= SAME * change:
            return True
        if n_iter == self.next:
            self.next, self.weights, self.members, self.other = 2 * n_iter, w, members, False
        return False


class Coordinates:
    """Phi with Phi Phi' = K for the rows of a Gram matrix: a Cholesky factor with pivots, cut at the rank of K.

    Attributes
    ----------
    rows : Rows
        m rows of as many coordinates as K has rank, the pivots first.
    order : int array of shape (m,)
        The row of K that each of them is.
    """

    def __init__(self, gram: Rows, budget: Budget) -> None:
        import numpy as np

        from marginlinear._core.rows import Rows
        from marginlinear.memory import memory
        from marginlinear.threads import aside

        m = gram.m
        needed = 3 * 8 * m * m
        if needed > memory():
            raise MemoryError(f"msvmav factorises the kernel matrix: {m} rows need {needed / 2**30:.1f} GiB, the "
                              f"machine has {memory() / 2**30:.1f}: train on fewer rows")
        K = gram.products()
        factor, self.order, rank = pivoted_cholesky(aside(np.copy, K), budget)
        self.phi = aside(np.ascontiguousarray, factor[:, :rank])
        aside(self._require_definite, K, self.phi)
        self.rows = Rows.from_dense(self.phi)

    def _require_definite(self, K: FloatArray, phi: FloatArray) -> None:
        import numpy as np

        order, diagonal = self.order, np.diagonal(K)
        one = np.ones(len(K))
        allowed = INDEFINITE * diagonal.max()
        missed = abs(diagonal[order] - np.einsum("ij,ij->i", phi, phi)).max()
        if missed > allowed or norm((K @ one)[order] - phi @ (phi.T @ one)) > allowed * len(K):
            raise ValueError(P.INDEFINITE)

    def coefficients(self, w: FloatArray) -> FloatArray:
        """a with Phi' a = w, for the pivots: the rank's worth of rows spans all of them."""
        import numpy as np
        from scipy.linalg import solve_triangular

        a = np.zeros(len(self.order))
        if len(w):
            a[self.order[:len(w)]] = solve_triangular(self.phi[:len(w)], w, lower=True, trans=1, check_finite=False)
        return a


def pivoted_cholesky(A: FloatArray, budget: Budget) -> tuple[FloatArray, IntArray, int]:
    """(L, order, rank): A[order][:, order] = L L', L in place of A, columns from the rank on being of no meaning.

    The largest diagonal value that is left comes next, until it is no more than rounding. In blocks of columns, as
    LAPACK's pstrf does it; Ctrl-C and `budget.cancel` are seen between them.
    """
    import numpy as np

    from marginlinear.threads import ranges

    m = len(A)
    order, left = np.arange(m), np.diagonal(A).copy()
    least = m * np.finfo(float).eps * left.max(initial=0.0)
    for lo, hi in ranges(m, COLUMNS):
        for j in range(lo, hi):
            pivot = j + int(left[j:].argmax())
            if not left[pivot] > least:
                return lower(A), order, j
            # Only the lower triangle is there: row and column j against row and column `pivot`.
            for pair in (order, left):
                pair[[j, pivot]] = pair[[pivot, j]]
            A[[j, pivot], :j] = A[[pivot, j], :j]
            A[j, j], A[pivot, pivot] = A[pivot, pivot], A[j, j]
            A[pivot + 1:, [j, pivot]] = A[pivot + 1:, [pivot, j]]
            A[j + 1:pivot, j], A[pivot, j + 1:pivot] = A[pivot, j + 1:pivot].copy(), A[j + 1:pivot, j].copy()
            A[j, j] = math.sqrt(left[j])
            A[j + 1:, j] -= A[j + 1:, lo:j] @ A[j, lo:j]
            A[j + 1:, j] /= A[j, j]
            left[j + 1:] -= A[j + 1:, j] ** 2
        # A -= L L' on what is left
        for first in range(hi, m, 4 * COLUMNS):
            budget.exhausted(0)
            last = min(m, first + 4 * COLUMNS)
            A[first:last, hi:last] -= A[first:last, lo:hi] @ A[hi:last, lo:hi].T
    return lower(A), order, m


def lower(A: FloatArray) -> FloatArray:
    """A with zeros above its diagonal, in place."""
    for i in range(len(A)):
        A[i, i + 1:] = 0
    return A


def norm(v: FloatArray) -> float:
    """||v||, also where squares leave the range of numbers."""
    import numpy as np

    largest = float(abs(v).max(initial=0.0))
    if largest == 0 or not math.isfinite(largest):
        return largest
    scaled = v / largest
    return largest * math.sqrt(np.dot(scaled, scaled))


METHOD = Method(
    name="msvmav",
    summary="least semi-variance of the margins and largest average margin, by turns; weights of norm 1",
    objective="sum_i p_i (1 - g_i/rho)_+^2, rho = sum_i p_i g_i, roughly: alpha and beta shape the answer",
    reference="M.-Z. Qian, Z. Ai, T. Zhang and W. Gao, On the Optimization of Margin Distribution, IJCAI 2022",
    params=(P.ALPHA, P.BETA),
    fit=fit,
    joint=False,
    routes=("auto",),
    defaults={"tol": 1e-8, "max_iter": 100, "bias": 1.0},
    path=False,
    stores=False,
    paper=Paper("the linear example of its authors' program, github.com/qmznj/MSVMAv; the paper chooses both by "
                "cross-validation", {"alpha": 16.0, "beta": 0.25}, linear=True),
)
