"""What dual coordinate descent does whatever the loss: duals, their averages, order of the rows, passes over them.

    P(W) = 1/2 ||W||^2 + sum_i loss_i(s_i),   D(duals) = -1/2 ||U||^2 - sum_i loss_i*(duals_i)
    U    = sum_i coefficients(duals_i) x_i,   W = (kappa V + U)/(1 + kappa) around a centre V (iterates.pyx)

    P(W) - D(duals) = e + G,   e = sum of the rows' gaps loss_i(s_i) + loss_i*(duals_i) - <s_i, duals_i>

A row's step has A = theta ||x_i||^2, and W moves by theta times the change of the coefficients: theta = 1/(1 + kappa)
where rows are visited one after another, more where others are visited at the same time (`visit`), and more again, or
less, along one direction b:

    A = theta ||x_i||^2 + extra <x_i, b>^2,   s_il = <w_l, x_i> + extra <x_i, b> pull_l,   pull_l = <b, change of U_l>

A row that a visit leaves where it is has no gap, and most of those stay there. It is skipped for as many sweeps as it
had such visits in a row before (shrinking without a check at the end): no row is left out for good, and values of P and
D see all rows.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY
from libc.string cimport memset

from marginlinear._core.rows cimport FETCH, SLICE
from marginlinear._core.shrinking cimport active_rows, drawn_chunks, shuffle
from marginlinear.threads import ranges, run_chunks


cdef class DualEngine:
    """The face that a descent, Newton steps and warm starts see. Abstract: a loss is a subclass.

    Attributes
    ----------
    iterates : Iterates
        W, flat: feature j of class l at j*n_classes + l.
    n_classes : int
        Columns of W: 1 of a binary loss.
    cost : float64 array of shape (m,)
        c_i > 0.
    duals, mean_duals : float64 arrays
        Flat; the latter, their averages, is None before the first.
    parts : int
        Sums over the rows that threads may share have so many parts.
    n_iter, visits : int
        Sweeps so far, and rows that they visited.
    gap, loss, reference_gap : float
        Sums over the rows as the last sweep met them: gaps, losses, what better references would save of the losses.
    nonsmooth : bool
        Whether the derivative of a loss jumps, as the hinge's.
    piecewise_linear : bool
        Whether no loss has curvature: duals sit at the ends of their range, without a gap, and the others are noise
        that averages need as it is.
    stable : bool
        Whether sweeps without a centre cannot diverge: each raises D, or duals have bounds.
    has_references : bool
        Whether P of the sweeps may take some losses against references, so that the objective is another.
    norm_gap : float
        What P - D at W = U has beyond the sum of the gaps.
    rounding : float
        What rounding may take from D beside a part of its value.
    skip_tolerance : float
        A row whose gap is not above it is left as it is.
    before : dict or None
        Duals and costs of the fit before, for the next along a path of costs.
    lines : bool
        Whether it has margins_of(weights) and line_search(weights, margins, averaged, enough), which moves weights to
        the least P on a line towards W, or W_avg, and returns P.
    """

    lines = False
    has_references = False
    stable = True
    rounding = 0.0

    def __init__(self, Rows rows, cost, Py_ssize_t n_classes, Py_ssize_t n_duals, factors, seed, int threads):
        cdef Py_ssize_t m = rows.m
        if rows.is_gram:
            rows.complete()
        self.rows, self.cost, self.n_classes, self.rng, self.threads = rows, cost, n_classes, seed, threads
        self.iterates = Iterates(rows.d * n_classes, rows.is_gram, factors)
        self.duals, self.mean_duals, self.kept_duals = rows.zeros(n_duals), None, None
        self.sqnorms, self.order = rows.sqnorms(), np.empty(m, dtype=np.intp)
        self.skip, self.idle = np.zeros(m, dtype=np.uint8), np.zeros(m, dtype=np.uint8)
        self.scratch, self.changed = np.empty(5 * n_classes), np.empty(n_classes, dtype=np.int32)
        self.slice_rows = max(1, <Py_ssize_t>(SLICE * m / (1.0 + <double>rows.nnz * n_classes)))
        self.skip_tolerance, self.parts = -INFINITY, 1

    cdef int perform(self, task_t* task) except -1 nogil:
        """The task, until it is done or a row is absent."""
        with gil:
            raise NotImplementedError

    def set_empty_duals(self):
        """A row with x_i = 0 has s_i = 0 for any W: its duals are set so that it has no gap there."""
        raise NotImplementedError

    def primal(self, bint averaged=False):
        """(P, objective, stale) at W, or at W_avg, exactly, by one pass over the rows: P is that of the sweeps, the
        objective that of the method, with the best references, and stale counts rows that have others."""
        raise NotImplementedError

    def dual(self):
        """D at the duals."""
        raise NotImplementedError

    def averaged_dual(self):
        """D at the averaged duals."""
        raise NotImplementedError

    def recomputed_dual(self, bint averaged, weights=None):
        """D at the duals, or at their averages, with their `dual_weights`, recomputed unless they are given."""
        raise NotImplementedError

    def dual_sums(self, duals):
        """Two sums over the rows, of which, with the norm of their weights, D is made."""
        raise NotImplementedError

    def loss_at_zero(self):
        """P(0)."""
        raise NotImplementedError

    def condition(self):
        """Mean of c_i ||x_i||^2, times the loss's own weight: how far a row's loss outweighs the norm of W."""
        raise NotImplementedError

    def count_of(self, duals):
        """Rows with a dual that is not 0."""
        raise NotImplementedError

    def count_support(self, bint averaged):
        """The same, of the duals, or their averages."""
        return self.count_of(self._duals(averaged))

    def coefficients(self, duals, lo, hi):
        """What the rows lo to hi are multiplied by in U, for each class: flat float64 array of (hi - lo) n_classes."""
        raise NotImplementedError

    def adapt(self):
        """The problem of the sweeps follows the weights, where it is another than that of `primal`."""

    def take_references(self, state):
        """What a loss refers to, beside the weights, as in the `state` of another engine."""

    def weights_at(self, W):
        """The weights that a vector such as W stands for."""
        return W

    def state(self, bint averaged):
        """What `resume` needs: the duals (or their averages) and the weights."""
        return {"duals": np.asarray(self._duals(averaged)), "cost": np.asarray(self.cost),
                "W": self.iterates.vector(False), "kappa": self.iterates.kappa, "before": self.before}

    def resume(self, state):
        """Go on from the `state()` of an engine on the same rows and costs. W may be None: that of the duals."""
        self.take_references(state)
        self.skip[:] = 0
        self.before = state.get("before")
        np.asarray(self.duals)[:] = state["duals"]
        self.kept_duals = None
        U = self.weights_of(self.duals)
        self.iterates.resume(U if state["W"] is None else state["W"], U, state["kappa"])

    def restart_from(self, duals, U, before):
        """Plain sweeps from these duals, whose weights are U but for rows with x_i = 0."""
        self.skip[:] = 0
        self.before = before
        np.asarray(self.duals)[:] = duals
        self.iterates.resume(U, U, 0.0)
        self.set_empty_duals()

    def start_over(self):
        """Duals and weights of 0, plain sweeps."""
        self.skip[:] = 0
        self.duals[:] = 0
        self.iterates.plain()
        cdef double[::1] W = self.iterates.vector(False)
        W[:] = 0
        self.set_empty_duals()

    def average(self, double weight, double A, double a):
        """Add the duals to their average with this weight; returns what Iterates.average does."""
        cdef Py_ssize_t j
        if self.mean_duals is None:
            self.mean_duals = self.rows.zeros(self.duals.shape[0])
        if weight == 1:
            self._copy_duals(self.mean_duals, self.duals)
        else:
            with nogil:
                for j in range(self.duals.shape[0]):
                    self.mean_duals[j] += weight * (self.duals[j] - self.mean_duals[j])
        return self.iterates.average(weight, A, a)

    def foresee(self, double kappa, double A, double a, bint restart):
        """What `Iterates.recentre` is about to be told: who asks for sweeps from far away can do so before."""

    def adopt(self):
        """Go on from the averaged duals and weights."""
        self.skip[:] = 0
        self._copy_duals(self.duals, self.mean_duals)
        self.iterates.adopt()
        self.set_empty_duals()

    def keep_duals(self, bint averaged):
        """From here on `state`, `recomputed_dual` and `count_support` speak of these duals as they are now."""
        if self.kept_duals is None:
            self.kept_duals = self.rows.zeros(self.duals.shape[0])
        self._copy_duals(self.kept_duals, self.mean_duals if averaged else self.duals)

    def _copy_duals(self, double[::1] to, const double[::1] of):
        """Without the GIL: they may be gigabytes."""
        with nogil:
            to[:] = of

    def _duals(self, bint averaged):
        if self.kept_duals is not None:
            return self.kept_duals
        return self.mean_duals if averaged else self.duals

    def resting(self):
        """(skip, idle): uint8 arrays of shape (m,), the sweeps that a row is skipped for yet, and the visits in a row
        before that left its duals as they were."""
        return np.asarray(self.skip), np.asarray(self.idle)

    def set_skip_tolerance(self, double gap):
        """Leave rows as they are whose gaps add up to no more than `gap`, each an equal share of it."""
        self.skip_tolerance = gap / max(1, self.rows.m)

    def sweep(self):
        """Visit every row once in a new random order, but those that are skipped."""
        cdef sums_t sums, others
        memset(&sums, 0, sizeof(sums_t))
        for window in self.windows():
            others = sums
            for _ in range(self.rows.turns):
                # Of several visits to a row the last one counts.
                sums = others
                self.visited = self.draw(window)
                self._update_rows(&sums)
        self.end_sweep(sums.gap, sums.loss, sums.tight)

    def windows(self):
        """Yield the ranges of rows that are at hand together; all rows, in the order of a new sweep."""
        yield from self.rows.windows(drawn_chunks(self.rows, &self.skip[0], &self.rng))

    def draw(self, window, Py_ssize_t start=0):
        """Those rows of a list of ranges that a sweep visits take the places from `start` on in its order, at random.
        Returns the place after the last."""
        cdef Py_ssize_t lo, hi, stop = start
        for lo, hi in window:
            with nogil:
                stop += active_rows(&self.sqnorms[0], &self.skip[0], lo, hi, &self.order[stop])
        with nogil:
            shuffle(&self.order[start], stop - start, &self.rng)
        self.visits += stop - start
        return stop

    def end_sweep(self, double gap, double loss, double tight):
        """These are the sums over all rows that were visited."""
        self.gap, self.loss, self.reference_gap = gap, loss, loss - tight
        self.n_iter += 1

    def visit(self, Py_ssize_t start, Py_ssize_t stop, double[::1] W, double theta, const double[::1] along,
              double extra, double[::1] pull, double[::1] before):
        """Coordinate steps at the rows of the places start to stop of the order.

        Other threads may visit others at the same time. The duals become those of the steps, and `before` holds them as
        they were, for `shorten`.

        Parameters
        ----------
        W : float64 array
            A copy, which moves by theta times the change of the coefficients.
        theta, extra : float
        along : float64 array of shape (m,)
            <x_i, b>.
        pull : float64 array of shape (n_classes,)
            0 at the start.
        before : float64 array of as many numbers as `duals`

        Returns
        -------
        gap, loss, tight, gain, curvature : float
            Of sums_t.
        """
        cdef sums_t sums
        cdef task_t task
        cdef double[::1] scratch = np.empty(5 * self.n_classes)
        cdef int32_t[::1] changed = np.empty(self.n_classes, dtype=np.int32)
        memset(&sums, 0, sizeof(sums_t))
        task.scratch, task.changed, task.sums = &scratch[0], &changed[0], &sums
        task.W, task.theta, task.before = &W[0], theta, &before[0]
        task.along, task.extra, task.pull = &along[0], extra, &pull[0]
        self._visit(start, stop, &task)
        return sums.gap, sums.loss, sums.tight, sums.gain, sums.curvature

    def shorten(self, Py_ssize_t start, Py_ssize_t stop, const double[::1] before, double t):
        """The duals of these visits go but a part t of their way: before + t (duals - before)."""
        raise NotImplementedError

    cdef _update_rows(self, sums_t* sums):
        """Coordinate steps at the rows order[:visited], one after another."""
        cdef task_t task
        task.scratch, task.changed, task.sums = &self.scratch[0], &self.changed[0], sums
        task.W, task.theta, task.before = &self.iterates.w[0], 1 / (1 + self.iterates.kappa), NULL
        self.rows.begin_pass()
        self._visit(0, self.visited, &task)

    cdef _visit(self, Py_ssize_t start, Py_ssize_t stop, task_t* task):
        cdef Py_ssize_t at
        task.what = UPDATE_ROWS
        for at in range(start, stop, self.slice_rows):
            task.start, task.stop = at, min(stop, at + self.slice_rows)
            self._run(task)

    cdef _run(self, task_t* task):
        """The task, with rows fetched where it has stopped for them, and a look at the signals."""
        while True:
            with nogil:
                self.perform(task)
            PyErr_CheckSignals()
            if task.start == task.stop:
                return
            if task.what == ADD_ROWS:
                added = np.asarray(<const double[:self.rows.m, :self.n_classes]> task.coefficients)[task.start:]
                self.rows.fetch(task.start + np.flatnonzero(added.any(axis=1)))
            else:
                self.rows.fetch(self._absent_rows(task))

    cdef _absent_rows(self, const task_t* stopped):
        """Those, from where the visits stopped on, whose duals would change at the present scores."""
        cdef Py_ssize_t[::1] found = np.empty(FETCH, dtype=np.intp)
        cdef task_t task = stopped[0]
        task.what, task.stop, task.found, task.count = ROWS_TO_FETCH, self.visited, &found[0], 0
        with nogil:
            self.perform(&task)
        return np.asarray(found)[:task.count]

    def loss_sums(self, weights, margins=None):
        """(loss, tight, moment, stale) of sums_t at these weights; the rows' margins are written, where wanted."""
        self.rows.require()
        parts = run_chunks(lambda lo, hi: self._sum_losses(lo, hi, weights, margins), self.rows.m, self.threads)
        return [sum(part) for part in zip(*parts, strict=True)]

    def _sum_losses(self, Py_ssize_t lo, Py_ssize_t hi, double[::1] W, double[::1] margins):
        cdef Py_ssize_t start
        cdef sums_t sums
        cdef task_t task
        cdef double[::1] scratch = np.empty(2 * self.n_classes)
        memset(&sums, 0, sizeof(sums_t))
        task.what, task.scratch, task.sums, task.W = SUM_LOSSES, &scratch[0], &sums, &W[0]
        task.values = NULL if margins is None else &margins[0]
        for start in range(lo, hi, self.slice_rows):
            task.start, task.stop = start, min(hi, start + self.slice_rows)
            with nogil:
                self.perform(&task)
            PyErr_CheckSignals()
        return sums.loss, sums.tight, sums.moment, sums.stale

    cdef _add(self, const double[::1] coefficients, double[::1] W, Py_ssize_t first=0):
        """W += sum_i coefficients_i x_i, over the rows from `first` that there are coefficients of."""
        cdef task_t task
        cdef Py_ssize_t start, stop = first + coefficients.shape[0] // self.n_classes
        cdef int32_t[::1] changed = np.empty(self.n_classes, dtype=np.int32)
        self.rows.begin_pass()
        task.what, task.coefficients, task.W = ADD_ROWS, &coefficients[0] - first * self.n_classes, &W[0]
        task.changed = &changed[0]
        for start in range(first, stop, self.slice_rows):
            task.start, task.stop = start, min(stop, start + self.slice_rows)
            self._run(&task)

    def weights_of(self, duals):
        """U of these duals, summed afresh from the rows, in `parts` that have a sum each."""
        cdef Py_ssize_t m = self.rows.m
        if self.rows.single:
            return self._exact_weights(self.coefficients(duals, 0, m))
        self.rows.require()
        U, *others = run_chunks(lambda lo, hi: self._weights_of(duals, lo, hi), m, self.threads, -(-m // self.parts))
        for W in others:
            U += W
        return U

    def _weights_of(self, duals, Py_ssize_t first, Py_ssize_t stop):
        W = np.zeros(self.rows.d * self.n_classes)
        for lo, hi in ranges(stop - first, self.rows.at_once(self.n_classes)):
            self._add(self.coefficients(duals, first + lo, first + hi), W, first + lo)
        return W

    def _exact_weights(self, coefficients):
        """Scores, then coefficients, of a Gram matrix, from its float64 values."""
        table = np.asarray(coefficients).reshape(self.rows.m, self.n_classes)
        scores, which = np.zeros(table.shape), np.flatnonzero(table.any(axis=1))
        self.rows.add(which, table[which], scores)
        return np.concatenate((scores.ravel(), table.ravel()))

    def dual_weights(self, bint averaged):
        """U of the duals, or of their averages, summed afresh from the rows."""
        return self.weights_of(self._duals(averaged))

    def recompute_scores(self):
        """Over Gram rows: the scores of W, summed afresh from its coefficients."""
        W = np.asarray(self.iterates.vector(False))
        coefficients = W[self.rows.m * self.n_classes:].copy()
        if self.rows.single:
            W[:] = self._exact_weights(coefficients)
            return
        W[:] = 0
        self._add(coefficients, W)

    def refresh(self):
        """The weights summed afresh from the rows: what many small changes have rounded away comes back."""
        if self.rows.is_gram:
            self.recompute_scores()
        self.iterates.refresh(self.weights_of(self.duals))
        self.set_empty_duals()
