"""The engine against NumPy: duals, weights, values and gaps after every kind of step."""

import numpy as np
import oracles
import pytest

from marginlinear._core.block_cd import BlockCD
from marginlinear._core.rows import Rows
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.descent import Descent
from marginlinear.algorithms.warm_start import resume

THETA, MU = 0.2, 0.8
KINDS = ["hinge", "squared", "named", "fixed"]
SEEDS = range(12)


class Case:
    """A random problem, its engine, and the engine's quantities recomputed."""

    def __init__(self, kind, seed, rows=Rows.from_dense):
        self.kind = kind
        self.X, self.y, self.k, self.cost = oracles.random_problem(seed)
        self.m = len(self.y)
        self.rng = np.random.default_rng(seed)
        self.engine = self.build(rows(self.X))

    def build(self, rows):
        loss = {"loss": "hinge"} if self.kind == "hinge" else {
            "loss": "squared", "low": 1 - THETA, "high": 1 + THETA, "mu": MU}
        engine = BlockCD(rows, self.y.astype(np.int32), self.k, self.cost, seed=7, **loss)
        if self.kind == "named":
            engine.name_rivals(self.some_rivals())
        if self.kind == "fixed":
            # An empty row's scores are 0, and so is its reference in every fit.
            engine.fix_references(np.linspace(-3, 0.5, self.m) * self.X.any(axis=1))
        return engine

    def some_rivals(self):
        shift = self.rng.integers(1, self.k, self.m)
        return ((self.y + shift) % self.k).astype(np.int32)

    @property
    def W(self):
        return self.engine.iterates.W.reshape(-1, self.k)

    def coefficients(self, alpha, beta):
        out = alpha.copy()
        out[np.arange(self.m), self.y] -= beta
        if self.kind == "named":
            out[np.arange(self.m), np.asarray(self.engine.rival)] += beta
        return out

    def U(self, alpha=None, beta=None):
        alpha, beta = (np.asarray(self.engine.alpha), np.asarray(self.engine.beta)) if alpha is None else (alpha, beta)
        return self.X.T @ self.coefficients(alpha, beta)

    def dual(self, alpha=None, beta=None):
        alpha, beta = (np.asarray(self.engine.alpha), np.asarray(self.engine.beta)) if alpha is None else (alpha, beta)
        own = alpha[np.arange(self.m), self.y]
        value = -0.5 * (self.U(alpha, beta) ** 2).sum()
        if self.kind == "hinge":
            return value + own.sum()
        value += (1 - THETA) * own.sum() - (own**2 / (4 * self.cost)).sum()
        fixed = np.asarray(self.engine.fixed) if self.kind == "fixed" else 0
        return value - ((1 + THETA + fixed) * beta).sum() - (beta**2 / (4 * self.cost * MU)).sum()

    @property
    def references(self):
        """The keywords of the oracles for the upper loss."""
        return {"named": {"mu": MU, "rival": np.asarray(self.engine.rival)},
                "fixed": {"mu": MU, "fixed": np.asarray(self.engine.fixed)}}.get(self.kind, {"mu": 0})

    def primal(self):
        if self.kind == "hinge":
            return oracles.hinge_objective(self.W, self.X, self.y, self.cost)
        return oracles.inner_objective(self.W, self.X, self.y, self.cost, theta=THETA, **self.references)

    def optimum(self):
        if self.kind == "hinge":
            return oracles.minimal_hinge(self.X, self.y, self.k, self.cost)
        return oracles.minimal_inner(self.X, self.y, self.k, self.cost, theta=THETA, **self.references)

    def assert_feasible(self, alpha=None, beta=None):
        alpha, beta = (np.asarray(self.engine.alpha), np.asarray(self.engine.beta)) if alpha is None else (alpha, beta)
        own = alpha[np.arange(self.m), self.y]
        others = alpha.copy()
        others[np.arange(self.m), self.y] = 0
        assert np.isfinite(alpha).all()
        assert (others <= 0).all()
        assert (abs(alpha.sum(axis=1)) <= 1e-13 * np.maximum(own, 1e-300)).all()
        assert (beta >= 0).all()
        assert (own >= 0).all()
        if self.kind == "hinge":
            assert (own <= self.cost * (1 + 1e-15)).all()
        if self.kind in ("hinge", "squared"):
            assert (beta == 0).all()


@pytest.fixture(params=[(kind, seed) for kind in KINDS for seed in SEEDS], ids=lambda p: f"{p[0]}-{p[1]}")
def case(request):
    return Case(*request.param)


def close(left, right, size=1.0):
    return np.allclose(left, right, rtol=1e-11, atol=1e-11 * max(1.0, size))


def test_plain_sweeps_climb(case):
    """Duals stay feasible, W = U, D rises, D <= P, and both values are those of the formulas."""
    engine, previous = case.engine, -np.inf
    for _ in range(8):
        engine.sweep()
        case.assert_feasible()
        assert close(case.W, case.U())
        dual = engine.dual()
        primal, tight, _ = engine.primal()
        assert dual == pytest.approx(case.dual(), rel=1e-11, abs=1e-11)
        assert primal == pytest.approx(case.primal(), rel=1e-11)
        assert dual >= previous - 1e-12 * max(1, abs(dual))
        assert dual <= primal + 1e-12 * max(1, abs(primal))
        assert tight <= primal * (1 + 1e-14) or case.kind in ("fixed", "squared")
        if case.kind == "squared":
            # The objective has its upper loss before the sweeps do.
            whole = {"mu": MU, "rival": engine.best_rivals()[0]}
            found = oracles.inner_objective(case.W, case.X, case.y, case.cost, theta=THETA, **whole)
            assert tight == pytest.approx(found, rel=1e-11)
        assert engine.gap >= -1e-12 * max(1, primal)
        previous = dual


def test_sweeps_around_a_centre_climb(case):
    """W = (kappa V + U)/(1 + kappa), and the sweeps raise the dual of P(W) + kappa/2 ||W - V||^2."""
    engine = case.engine
    engine.sweep()
    V, kappa = case.W.copy(), 3.0
    engine.iterates.start(kappa)

    def proximal_dual():
        U = case.U()
        return case.dual() + 0.5 * (U**2).sum() - ((kappa * V + U) ** 2).sum() / (2 * (1 + kappa)) \
            + kappa / 2 * (V**2).sum()

    previous = proximal_dual()
    for step in range(6):
        engine.sweep()
        case.assert_feasible()
        assert close(case.W, (kappa * V + case.U()) / (1 + kappa))
        assert proximal_dual() >= previous - 1e-12 * max(1, abs(previous))
        assert engine.dual() == pytest.approx(case.dual(), rel=1e-11, abs=1e-11)
        assert engine.primal()[0] == pytest.approx(case.primal(), rel=1e-11)
        previous = proximal_dual()
        if step == 2:  # the centre moves to W (A = 0: a restart), kappa changes
            V, U, kappa = case.W.copy(), case.U(), 5.0
            engine.iterates.recentre(kappa, 0.0, 1.0, True)
            assert close(case.W, (kappa * V + U) / (1 + kappa))
            previous = proximal_dual()


def test_certificate_splits_into_e_and_G(case):
    """P(W) - D = e + G where the sweeps stand still (math.md 9.1); e is then the sum over a sweep."""
    engine, kappa = case.engine, 20.0
    engine.sweep()
    V = case.W.copy()
    engine.iterates.start(kappa)
    for _ in range(400):
        engine.sweep()
    G = kappa**2 / 2 * ((case.W - V) ** 2).sum()
    assert kappa**2 / 2 * engine.iterates.sqdistance() == pytest.approx(G, rel=1e-9, abs=1e-14)
    assert pytest.approx(0.5 * ((case.W - case.U()) ** 2).sum(), rel=1e-6, abs=1e-13) == G
    size = max(1, case.primal())
    assert case.primal() - case.dual() == pytest.approx(engine.gap + G, rel=1e-5, abs=1e-9 * size)


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_is_solved_by_one_visit(kind):
    for seed in range(20):
        case = Case.__new__(Case)
        X, y, case.k, cost = oracles.random_problem(seed)
        case.kind, case.rng, case.m = kind, np.random.default_rng(seed), 1
        case.X, case.y, case.cost = X[2:3] + 0.1, y[2:3], cost[2:3]
        case.engine = case.build(Rows.from_dense(case.X))
        before = case.primal() - case.dual()
        case.engine.sweep()
        assert case.engine.gap == pytest.approx(before, rel=1e-12)
        size = max(1e-3, case.primal())
        assert abs(case.primal() - case.dual()) <= 1e-13 * size
        case.engine.sweep()
        assert abs(case.engine.gap) <= 1e-13 * size


def test_averages(case):
    """The averaged duals are feasible, and their value and weights are those of the formulas."""
    engine = case.engine
    engine.sweep()
    engine.iterates.start(2.0)
    total_alpha, total_beta, weight_sum = np.zeros_like(engine.alpha), np.zeros_like(engine.beta), 0.0
    for step in range(5):
        engine.sweep()
        a = 1.0 + step
        engine.average(a / (weight_sum + a), weight_sum, a)
        total_alpha += a * np.asarray(engine.alpha)
        total_beta += a * np.asarray(engine.beta)
        weight_sum += a
    mean_alpha, mean_beta = total_alpha / weight_sum, total_beta / weight_sum
    averages = engine.split(engine.mean_duals)
    assert close(averages[0], mean_alpha)
    assert close(averages[1], mean_beta)
    case.assert_feasible(*averages)
    value = case.dual(mean_alpha, mean_beta)
    assert engine.averaged_dual() == pytest.approx(value, rel=1e-11, abs=1e-11)
    assert engine.recomputed_dual(True) == pytest.approx(value, rel=1e-11, abs=1e-11)
    assert engine.recomputed_dual(False) == pytest.approx(case.dual(), rel=1e-11, abs=1e-11)
    assert close(engine.weights_of(engine.duals).reshape(-1, case.k), case.U())


def test_every_dual_value_is_below_the_optimum_and_sweeps_reach_it(case):
    optimum = case.optimum()
    for _ in range(10):
        case.engine.sweep()
        assert case.engine.dual() <= optimum.value + 1e-9 * max(1, optimum.value)
    for _ in range(20):
        if case.engine.primal()[0] - case.engine.dual() <= 1e-6 * optimum.value:
            break
        for _ in range(500):
            case.engine.sweep()
    assert case.engine.primal()[0] == pytest.approx(optimum.value, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kappa", [0.0, 4.0])
def test_a_new_rival_takes_its_beta_along(seed, kappa):
    case = Case("named", seed)
    engine = case.engine
    engine.sweep()
    V = case.W.copy()
    if kappa:
        engine.iterates.start(kappa)
    engine.sweep()
    engine.name_rivals(case.some_rivals())
    assert close(case.W, (kappa * V + case.U()) / (1 + kappa))
    assert engine.dual() == pytest.approx(case.dual(), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("kind", ["named", "fixed"])
def test_a_row_whose_rival_is_another_gets_its_block_solved(kind):
    """Its gap is 0 then, and D is above that of its beta_i beside the new class; no other row's duals move."""
    case = Case(kind, 7)
    engine = case.engine
    for _ in range(3):
        engine.sweep()
    i = np.flatnonzero(np.asarray(engine.beta) > 0)[0]
    others = np.arange(case.m) != i
    if kind == "fixed":
        np.asarray(engine.beta)[others] = 0
        engine.refresh()
    case.kind = "named"
    alpha, beta, y = np.asarray(engine.alpha).copy(), np.asarray(engine.beta).copy(), case.y[i]
    rivals = np.asarray(engine.rival).copy()
    rivals[i] = (y + 1) % case.k if rivals[i] != (y + 1) % case.k else (y + 2) % case.k
    engine.name_rivals(rivals)
    assert (np.asarray(engine.alpha)[others] == alpha[others]).all()
    assert (np.asarray(engine.beta)[others] == beta[others]).all()
    case.assert_feasible()
    assert close(case.W, case.U())
    assert case.dual() > case.dual(alpha, beta)
    s, c, a, b = case.W.T @ case.X[i], case.cost[i], np.asarray(engine.alpha)[i], np.asarray(engine.beta)[i]
    xi = max(0, 1 - THETA + np.delete(s, y).max() - s[y])
    eps = max(0, s[y] - s[rivals[i]] - 1 - THETA)
    gap = c * xi**2 + c * MU * eps**2 + a @ s + a[y] ** 2 / (4 * c) - (1 - THETA) * a[y] \
        + b**2 / (4 * c * MU) + (1 + THETA - s[y] + s[rivals[i]]) * b
    assert gap == pytest.approx(0, abs=1e-11)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("steps", [("named", "fixed"), ("fixed", "named"), ("named", "fixed", "named")])
def test_references_of_either_kind_follow_each_other(seed, steps):
    """beta_i belongs to the class r_i with named rivals and to none with fixed references: W must follow."""
    case = Case("squared", seed)
    engine, moved = case.engine, 0
    for _ in range(3):
        engine.sweep()
    for kind in steps:
        moved += (np.asarray(engine.beta) > 0).sum()
        case.kind = kind
        if kind == "named":
            engine.name_rivals(case.some_rivals())
        else:
            engine.fix_references(np.full(case.m, -4.0))
        assert close(case.W, case.U())
        engine.sweep()
        assert close(case.W, case.U())
        assert engine.dual() == pytest.approx(case.dual(), rel=1e-11, abs=1e-11)
    assert moved > 0 or steps[0] == "named"


@pytest.mark.parametrize("kind", ["named", "fixed"])
def test_a_state_with_an_upper_loss_serves_a_problem_without(kind):
    """mu = 0 after mu > 0: beta has no place in the new problem."""
    case = Case(kind, 1)
    for _ in range(5):
        case.engine.sweep()
    state = case.engine.state(False)
    assert (case.engine.split(state["duals"])[1] > 0).any()
    case.kind = "squared"
    case.engine = BlockCD(Rows.from_dense(case.X), case.y.astype(np.int32), case.k, case.cost, loss="squared",
                          low=1 - THETA, high=1 + THETA, mu=0.0)
    case.engine.resume(state)
    case.engine.iterates.plain()
    for _ in range(3):
        case.assert_feasible()
        assert close(case.W, case.U())
        assert case.engine.dual() == pytest.approx(case.dual(), rel=1e-11)
        case.engine.sweep()


def test_best_rivals(case):
    engine = case.engine
    engine.sweep()
    rival, score = engine.best_rivals()
    scores = case.X @ case.W
    assert (rival != case.y).all()
    assert close(scores[np.arange(case.m), rival], score)
    scores[np.arange(case.m), case.y] = -np.inf
    assert close(scores.max(axis=1), score)
    if case.kind == "named":
        stale = engine.primal()[2]
        exact = oracles.best_rivals(case.W, case.X, case.y)[1]
        named = scores[np.arange(case.m), np.asarray(engine.rival)]
        assert (named < exact - 1e-9).sum() <= stale <= (named < exact + 1e-9).sum()


def test_state_goes_on(case):
    """An engine that resumes has the same duals, weights and values."""
    engine = case.engine
    engine.sweep()
    engine.iterates.start(3.0)
    engine.sweep()
    other = case.build(Rows.from_dense(case.X))
    other.resume(engine.state(False))
    assert close(other.iterates.W, engine.iterates.W)
    assert other.dual() == pytest.approx(engine.dual(), rel=1e-11)
    assert other.primal()[:2] == pytest.approx(engine.primal()[:2], rel=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [4.0, 0.25])
@pytest.mark.parametrize("seed", range(6))
def test_other_costs_begin_at_good_duals(kind, factor, seed):
    """Along a path of costs: duals that are feasible, with their own weights, and a D not below that of the old ones
    where these are feasible."""
    case, state = Case(kind, seed), None
    for _ in range(4):
        if state is not None:
            resume(case.engine, state)
            case.assert_feasible()
            assert close(case.W, case.U())
            assert case.engine.dual() == pytest.approx(case.dual(), rel=1e-10, abs=1e-10)
            if kind in ("hinge", "squared") and factor > 1:
                kept = case.dual(*case.engine.split(state["duals"]))
                assert case.engine.dual() >= kept - 1e-6 * abs(kept)
        for _ in range(200):
            case.engine.sweep()
        state = case.engine.state(False)
        case.cost = factor * case.cost
        case.engine = case.build(Rows.from_dense(case.X))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 4, 6])
def test_gram_matrix_and_features_walk_together(kind, seed):
    """The same engine on X X' holds the scores X W and their coefficients instead of W, and takes the same steps."""
    linear = Case(kind, seed)
    gram = Case(kind, seed, lambda X: Rows.from_gram(X @ X.T))
    gram.rng = np.random.default_rng(seed)
    for engine in (linear.engine, gram.engine):
        engine.sweep()
        engine.sweep()
        engine.iterates.start(2.0)
        engine.sweep()
    assert np.allclose(np.asarray(gram.engine.alpha), np.asarray(linear.engine.alpha), rtol=1e-8, atol=1e-9)
    assert np.allclose(gram.W[:gram.m], linear.X @ linear.W, rtol=1e-8, atol=1e-9)
    assert np.allclose(linear.X.T @ gram.W[gram.m:], linear.W, rtol=1e-8, atol=1e-9)
    assert gram.engine.primal()[:2] == pytest.approx(linear.engine.primal()[:2], rel=1e-9)
    assert gram.engine.dual() == pytest.approx(linear.engine.dual(), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_rows_have_no_gap(kind):
    case = Case.__new__(Case)
    case.kind, case.rng, case.m, case.k = kind, np.random.default_rng(0), 4, 3
    case.X, case.y, case.cost = np.zeros((4, 2)), np.array([0, 1, 2, 1]), np.array([0.5, 1.0, 2.0, 3.0])
    case.engine = case.build(Rows.from_dense(case.X))
    case.engine.sweep()
    case.assert_feasible()
    assert case.engine.primal()[0] == pytest.approx(case.primal())
    assert case.engine.dual() == pytest.approx(case.primal(), rel=1e-14)


def test_threads_give_the_same_bits():
    """Passes are cut by rows alone, whatever the number of threads."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((10_000, 3)), rng.integers(0, 4, 10_000).astype(np.int32)
    results = []
    for threads in (1, 2, 8):
        engine = BlockCD(Rows.from_dense(X), y, 4, np.ones(10_000), loss="squared", low=0.8, high=1.2, mu=0.5,
                         seed=1, threads=threads)
        engine.name_rivals(engine.best_rivals()[0])
        engine.sweep()
        results.append((engine.primal(), np.asarray(engine.best_rivals()[1]).tobytes(), engine.iterates.W.tobytes()))
    assert results[0] == results[1] == results[2]


def test_checks_without_sweeps_put_off_no_check():
    """The interval between checks grew with each of them, at last beyond a float."""
    case = Case("squared", 3)
    descent = Descent(case.engine, Budget(None, None), 1e-3, "auto")
    for _ in range(3):
        case.engine.sweep()
        for _ in range(3000):
            descent.check()
        assert descent.next_check <= case.engine.n_iter + 4


def test_idle_rows_are_skipped():
    """A row whose block moves at sweep 1 is visited at 2, 3, 5, 8, 12, ...; the values see it all the same."""
    X = np.array([[10.0, 0.0], [0.0, 1.0]])
    engine = BlockCD(Rows.from_dense(X), np.array([0, 1], dtype=np.int32), 2, np.array([1.0, 0.25]), loss="hinge")
    seen = []
    for _ in range(40):
        before = engine.visits
        engine.sweep()
        seen.append(engine.visits - before)
    # Both move at sweep 1 alone: to the kink of the loss and to the cost.
    calm = np.cumsum([2, *(min(n, 7) for n in range(1, 12))]).tolist()
    assert [at + 1 for at, visits in enumerate(seen) if visits] == [1, *(at for at in calm if at <= 40)]
    assert engine.primal()[0] == pytest.approx(engine.dual())
