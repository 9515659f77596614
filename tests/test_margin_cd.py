"""The binary engine against NumPy: tables of pieces, the mean of the margins, duals, weights, values and gaps."""

import numpy as np
import oracles
import pytest
from scipy import sparse

from marginlinear._core.margin_cd import MarginCD, table_of
from marginlinear._core.rows import Rows
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.descent import Descent
from marginlinear.algorithms.warm_start import resume

SEEDS = range(12)
HINGE = (1,), ((0, -1, 1), (0, 0, 0))
SQUARED_HINGE = (1,), ((2, -2, 1), (0, 0, 0))
SQUARE = (), ((2, -2, 1),)
BOTH_SIDES = (0.8, 1.2), ((2, -1.6, 0.64), (0, 0, 0), (1.6, -1.92, 1.152))
LEANING = (1,), ((0, -1.3, 1), (0, -0.3, 0))
NAMED = {"hinge": HINGE, "squared": SQUARED_HINGE, "square": SQUARE, "sides": BOTH_SIDES, "leaning": LEANING}


class Loss:
    """A table in plain Python: phi, its one-sided slopes, and what is found by bisection on them."""

    def __init__(self, knots, parts):
        self.knots, self.parts = list(knots), list(parts)
        self.table = table_of(knots, parts)

    def pieces_at(self, g):
        """The pieces just below and just above g."""
        return sum(knot < g for knot in self.knots), sum(knot <= g for knot in self.knots)

    def value(self, g):
        quad, slope, level = self.parts[self.pieces_at(g)[1]]
        return quad / 2 * g * g + slope * g + level

    def slopes(self, g):
        """(phi' just below g, phi' just above g)"""
        return tuple(self.parts[j][0] * g + self.parts[j][1] for j in self.pieces_at(g))

    def where(self, function):
        """A z with 0 in d(phi + h)(z), h' = function non-decreasing and onto."""
        for knot in self.knots:
            low, high = (slope + function(knot) for slope in self.slopes(knot))
            if low <= 0 <= high:
                return knot
        low, high = -1.0, 1.0
        while self.slopes(low)[0] + function(low) > 0:
            low *= 2
        while self.slopes(high)[0] + function(high) < 0:
            high *= 2
        for _ in range(200):
            middle = (low + high) / 2
            if self.slopes(middle)[1] + function(middle) < 0:
                low = middle
            else:
                high = middle
        return high


def random_loss(rng):
    """1 to 3 pieces; quadratic and linear ones, kinks and smooth joints, equal knots, sizes from 1e-3 to 1e3."""
    count = int(rng.integers(1, 4))
    size = 10.0 ** rng.uniform(-3, 3)
    knots = np.sort(rng.normal(size=count - 1))
    if count == 3 and rng.random() < 0.2:
        knots[1] = knots[0]
    quads = size * rng.uniform(0.1, 2, count) * (rng.random(count) < 0.6)
    parts = [(quads[0], size * rng.normal(), size * rng.normal())]
    for quad, knot in zip(quads[1:], knots, strict=True):
        before = parts[-1]
        slope = before[0] * knot + before[1] + size * rng.uniform(0, 1) * (rng.random() < 0.5) - quad * knot
        level = ((before[0] - quad) / 2 * knot + before[1] - slope) * knot + before[2]
        parts.append((quad, slope, level))
    return Loss(knots, parts), size


@pytest.mark.parametrize("seed", range(300))
def test_pieces(kernels, seed):
    """Loss, duals, coordinate step and gap of a random table against bisection."""
    rng = np.random.default_rng(seed)
    loss, size = random_loss(rng)
    c, A = 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-3, 3)
    points = [*rng.normal(size=6) * 3, *loss.knots]
    for g in points:
        assert kernels.piece_loss(loss.table, g) == pytest.approx(loss.value(g), rel=1e-12, abs=1e-12 * size)
        low, high = (-c * slope for slope in reversed(loss.slopes(g)))
        a = kernels.piece_dual(loss.table, c, g)
        assert low <= a <= high or a == pytest.approx(min(high, max(low, 0)), abs=1e-12 * c * size)
        assert abs(a) <= min(abs(low), abs(high)) * (1 + 1e-12) + 1e-12 * c * size

    for base in points:
        base *= 1 + A * c
        z = loss.where(lambda g, base=base: (g - base) / (A * c))
        a, curvature = kernels.piece_step(loss.table, c, base, A)
        scale = c * size + (abs(z) + abs(base)) / A
        assert a == pytest.approx((z - base) / A, abs=1e-9 * scale)
        # -da/dbase, where no knot is near
        h = 1e-7 * (1 + abs(base))
        around = [kernels.piece_step(loss.table, c, base + t, A) for t in (-h, h)]
        if around[0][1] == around[1][1] == curvature:
            assert (around[0][0] - around[1][0]) / (2 * h) == pytest.approx(curvature, rel=1e-4, abs=1e-13 * scale / h)
        assert 0 <= curvature <= (1 + 1e-15) / A

    for z in points:  # duals in the range of -c phi', each with the z that solves its conjugate
        low, high = loss.slopes(z)
        u = rng.choice([low, high, (low + high) / 2])
        for g in points:
            gap = kernels.piece_gap(loss.table, c, g, -c * u)
            wanted = c * (loss.value(g) - loss.value(z) - u * (g - z))
            noise = 1e-12 * c * (size * (1 + g * g + z * z) + abs(u) * (abs(g) + abs(z)))
            assert gap == pytest.approx(wanted, rel=1e-9, abs=noise)
            assert gap >= -noise


class Case:
    """A random problem, its engine, and the engine's quantities recomputed."""

    def __init__(self, name, spread, seed, rows=Rows.from_dense):
        self.X, y, _, self.cost = oracles.random_problem(seed)
        self.y = (y % 2).astype(np.int32)
        self.m = len(y)
        rng = np.random.default_rng(seed)
        losses = [NAMED[name]]
        self.group = np.zeros(self.m, dtype=np.int32)
        if seed % 2:  # a second table for some rows: twice the loss
            knots, parts = losses[0]
            losses.append((knots, tuple((2 * quad, 2 * slope, 2 * level) for quad, slope, level in parts)))
            self.group = rng.integers(0, 2, self.m).astype(np.int32)
        self.losses = losses
        self.Z = np.where(self.y == 1, 1.0, -1.0)[:, None] * self.X
        # Relative to the whole cost: at 1 the variance matters as much as the losses.
        self.spread = spread
        self.engine = self.build(rows(self.X))

    def build(self, rows):
        return MarginCD(rows, self.y, self.cost, [table_of(*loss) for loss in self.losses], group=self.group,
                        spread=self.spread, seed=7)

    @property
    def W(self):
        return self.engine.iterates.W

    def U(self, duals=None):
        return self.Z.T @ (np.asarray(self.engine.duals) if duals is None else duals)

    def phi(self, g):
        out = np.empty(len(g))
        for i, (group, z) in enumerate(zip(self.group, g, strict=True)):
            out[i] = Loss(*self.losses[group]).value(z)
        return out

    def primal(self, w=None):
        w = self.W if w is None else w
        g = self.Z @ w
        mean = self.cost @ g / self.cost.sum()
        return 0.5 * w @ w + self.cost @ self.phi(g) + self.spread * self.cost @ (g - mean) ** 2

    def inner_minima(self, duals):
        """sum_i min_z c_i phi_i(z) + a_i z"""
        total = 0.0
        for c, a, group in zip(self.cost, duals, self.group, strict=True):
            # The slope -a/c is in the range: the least value is at a knot, or within a quadratic piece.
            loss = Loss(*self.losses[group])
            near = [*loss.knots, *((-a / c - slope) / quad for quad, slope, _ in loss.parts if quad > 0)]
            total += min(c * loss.value(z) + a * z for z in near)
        return total

    def conjugates(self, duals, v):
        """The z of min_z c_i [phi_i(z) + spread (z - v)^2] + a_i z, by bisection."""
        return np.array([Loss(*self.losses[group]).where(lambda z, c=c, a=a: 2 * self.spread * (z - v) + a / c)
                         for c, a, group in zip(self.cost, duals, self.group, strict=True)])

    def dual(self, duals=None, v=None):
        """The duals a - h'(v) c/sum c, split in those of phi and those of the spread, whose sum is 0."""
        duals = np.asarray(self.engine.duals) if duals is None else duals
        if self.spread == 0:
            return self.inner_minima(duals) - 0.5 * (self.U(duals) ** 2).sum()
        v = self.engine.mean if v is None else v
        z = self.conjugates(duals, v)
        pull = -2 * self.spread * self.cost * (z - v)
        moved = duals - self.cost * pull.sum() / self.cost.sum()
        pull -= self.cost * pull.sum() / self.cost.sum()
        own = moved - pull
        return self.cost @ self.phi(z) + own @ z - (pull**2 / self.cost).sum() / (4 * self.spread) \
            - 0.5 * (self.U(moved) ** 2).sum()

    def optimum(self):
        """(P, certificate) at the least P that many sweeps find; the engine is there."""
        descent = Descent(self.engine, Budget(20000, 20), 1e-10, "auto")
        descent.until(1e-10)
        self.engine.iterates.exchange(descent.incumbent.weights)
        return descent.incumbent.objective, descent.incumbent.certificate


@pytest.fixture(params=[(name, spread, seed) for name in NAMED for spread in (0.0, 0.4) for seed in SEEDS],
                ids=lambda p: f"{p[0]}-{p[1]}-{p[2]}")
def case(request):
    return Case(*request.param)


def close(left, right, size=1.0):
    return np.allclose(left, right, rtol=1e-11, atol=1e-11 * max(1.0, size))


def test_plain_sweeps(case):
    """W = U, P and D are those of the formulas, D <= P, and with a fixed mean D rises."""
    engine, previous = case.engine, -np.inf
    for _ in range(6):
        engine.sweep()
        assert close(case.W, case.U())
        primal, dual = engine.primal()[0], engine.dual()
        assert primal == pytest.approx(case.primal(), rel=1e-11, abs=1e-12)
        assert dual == pytest.approx(case.dual(), rel=1e-9, abs=1e-9)
        assert dual <= primal + 1e-12 * max(1, abs(primal))
        assert engine.gap >= -1e-12 * max(1, abs(primal))
        if case.spread == 0:
            assert dual >= previous - 1e-12 * max(1, abs(dual))
        previous = dual


@pytest.mark.parametrize("averaged", [False, True])
def test_line_search(case, averaged):
    """Weights end at the least P on the line towards W or W_avg, then on the line through 0; their margins follow."""
    engine, enough = case.engine, 1e-6
    engine.iterates.start(3.0)
    for _ in range(3):
        engine.sweep()
    engine.average(1.0, 0.0, 1.0)
    engine.sweep()
    engine.primal(averaged)
    other = (engine.iterates.averaged if averaged else case.W).copy()
    start = other + np.random.default_rng(1).normal(size=len(other)) * np.abs(other).max()
    weights, margins = start.copy(), np.asarray(engine.margins_of(start))
    assert close(margins, case.Z @ start, abs(margins).max())
    value = engine.line_search(weights, margins, averaged, enough)
    assert close(margins, case.Z @ weights, abs(margins).max())
    assert value == pytest.approx(case.primal(weights), rel=1e-11)
    places = np.concatenate((np.linspace(-2, 3, 6), 1 + np.geomspace(1e-6, 0.1, 4), 1 - np.geomspace(1e-6, 0.1, 4)))
    for t in places:
        assert case.primal(start + t * (other - start)) >= value - 2.1 * enough
        assert case.primal(t * weights) >= value - 1.1 * enough


def test_the_bound_holds_and_is_reached(case):
    """No dual value is above any objective value; in the end they meet."""
    bounds = []
    for _ in range(10):
        case.engine.sweep()
        bounds.append(case.engine.dual())
    value, certificate = case.optimum()
    assert certificate <= 1e-9 * max(1, abs(value))
    assert value == pytest.approx(min(value, case.primal()), rel=1e-9, abs=1e-9)
    assert max(bounds) <= value + 1e-12 * max(1, abs(value))
    # Local search from there finds nothing better.
    rng = np.random.default_rng(0)
    w = case.W.copy()
    here = case.primal(w)
    for size in (1e-1, 1e-3):
        for _ in range(20):
            assert case.primal(w + size * rng.standard_normal(len(w))) >= here - 1e-9 * max(1, abs(here))


@pytest.mark.parametrize("seed", SEEDS)
def test_hinge_optimum_is_that_of_the_oracle(seed):
    case = Case("hinge", 0.0, seed)
    case.engine = MarginCD(Rows.from_dense(case.X), case.y, case.cost, [table_of(*HINGE)])
    case.group[:] = 0
    value, _ = case.optimum()
    w = oracles.minimal_svc(case.X, np.where(case.y == 1, 1.0, -1.0), case.cost)
    assert value == pytest.approx(case.primal(w), rel=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_spread_of_the_square_is_a_linear_system(seed):
    """All is quadratic: w from its normal equations."""
    case = Case("square", 0.4, seed)
    weight = case.cost * np.where(case.group == 1, 2.0, 1.0)
    share = case.cost / case.cost.sum()
    centred = case.Z - share @ case.Z
    H = np.eye(case.X.shape[1]) + 2 * case.Z.T @ (weight[:, None] * case.Z) \
        + 2 * case.spread * centred.T @ (case.cost[:, None] * centred)
    w = np.linalg.solve(H, 2 * case.Z.T @ weight)
    value, _ = case.optimum()
    assert value == pytest.approx(case.primal(w), rel=1e-8)


def test_certificate_splits_into_e_and_G(case):
    """P(W) - D = e + G where the sweeps stand still (math.md 9.1); e is then the sum over a sweep."""
    engine, kappa = case.engine, 20.0
    engine.sweep()
    V = case.W.copy()
    engine.iterates.start(kappa)
    for _ in range(2000):
        engine.sweep()
    assert close(case.W, (kappa * V + case.U()) / (1 + kappa))
    G = kappa**2 / 2 * ((case.W - V) ** 2).sum()
    assert 0.5 * ((case.W - case.U()) ** 2).sum() == pytest.approx(G, rel=1e-6, abs=1e-13)
    size = max(1, abs(case.primal()))
    assert engine.primal()[0] - engine.dual() == pytest.approx(engine.gap + G, rel=1e-5, abs=1e-9 * size)


@pytest.mark.parametrize("name", NAMED)
def test_one_row_is_solved_by_one_visit(name):
    for seed in range(20):
        case = Case.__new__(Case)
        X, y, _, cost = oracles.random_problem(seed)
        case.X, case.y, case.cost, case.m = X[2:3] + 0.1, (y[2:3] % 2).astype(np.int32), cost[2:3], 1
        case.losses, case.group, case.spread = [NAMED[name]], np.zeros(1, dtype=np.int32), 0.0
        case.Z = case.X * (2 * case.y - 1)
        case.engine = case.build(Rows.from_dense(case.X))
        before = case.primal() - case.dual() if name != "leaning" else None
        case.engine.sweep()
        if before is not None:
            assert case.engine.gap == pytest.approx(before, rel=1e-12)
        size = max(1e-3, abs(case.primal()))
        assert abs(case.primal() - case.dual()) <= 1e-13 * size
        case.engine.sweep()
        assert abs(case.engine.gap) <= 1e-13 * size


def test_averages(case):
    """The averaged duals have the value and the weights of the formulas."""
    engine = case.engine
    engine.sweep()
    engine.iterates.start(2.0)
    total, weight_sum = np.zeros(case.m), 0.0
    for step in range(5):
        engine.sweep()
        a = 1.0 + step
        engine.average(a / (weight_sum + a), weight_sum, a)
        total += a * np.asarray(engine.duals)
        weight_sum += a
    mean = total / weight_sum
    assert close(np.asarray(engine.mean_duals), mean)
    value = case.dual(mean)
    assert engine.averaged_dual() == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert engine.recomputed_dual(True) == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert engine.recomputed_dual(False) == pytest.approx(case.dual(), rel=1e-9, abs=1e-9)
    assert close(engine.weights_of(np.asarray(engine.duals)), case.U())
    assert engine.count_support(False) == np.count_nonzero(np.asarray(engine.duals))


def test_state_goes_on(case):
    """An engine that resumes has the same duals, weights and values."""
    engine = case.engine
    engine.sweep()
    engine.iterates.start(3.0)
    engine.sweep()
    other = case.build(Rows.from_dense(case.X))
    other.resume(engine.state(False))
    assert close(other.duals, np.asarray(engine.duals))
    assert close(other.iterates.W, engine.iterates.W)
    assert other.primal()[0] == pytest.approx(engine.primal()[0], rel=1e-11)
    assert other.iterates.kappa == 3.0


@pytest.mark.parametrize("name", ["squared", "sides", "hinge", "leaning"])
@pytest.mark.parametrize("factor", [4.0, 0.25])
@pytest.mark.parametrize("seed", SEEDS)
def test_other_costs_begin_at_good_duals(name, factor, seed):
    """Along a path of costs: duals that are feasible, with their own weights, and a D not below that of the old ones
    at one scale, where these are feasible and on the same pieces."""
    case, state = Case(name, 0.0, seed), None
    for _ in range(4):
        low, high = np.array([Loss(*case.losses[g]).slopes(-1e9)[0] for g in case.group]), \
            np.array([Loss(*case.losses[g]).slopes(1e9)[1] for g in case.group])
        if state is not None:
            resume(case.engine, state)
            assert (np.asarray(case.engine.duals) <= -case.cost * low).all()
            assert (np.asarray(case.engine.duals) >= -case.cost * high).all()
            assert close(case.W, case.U())
            assert case.engine.dual() == pytest.approx(case.dual(), rel=1e-10, abs=1e-10)
            scales = {"squared": (1.0, factor), "hinge": (1.0,) if factor > 1 else (factor,)}.get(name, ())
            for scale in scales:
                value = case.dual(scale * np.asarray(state["duals"]))
                assert case.engine.dual() >= value - 1e-6 * abs(value)
        for _ in range(200):
            case.engine.sweep()
        state = case.engine.state(False)
        case.cost = factor * case.cost
        case.engine = case.build(Rows.from_dense(case.X))


@pytest.mark.parametrize("seed", SEEDS)
def test_hinge_duals_at_their_bound_follow_it_where_that_is_best(seed):
    """At small costs all duals are at their bound, and there they stay."""
    case = Case("hinge", 0.0, seed)
    case.cost = 1e-9 * case.cost
    case.engine = case.build(Rows.from_dense(case.X))
    case.engine.sweep()
    state = case.engine.state(False)
    force = np.array([-Loss(*case.losses[g]).slopes(-1e9)[0] for g in case.group])
    assert (np.asarray(state["duals"]) == force * case.cost).all()
    case.cost = 10 * case.cost
    case.engine = case.build(Rows.from_dense(case.X))
    resume(case.engine, state)
    assert close(np.asarray(case.engine.duals), force * case.cost)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("old", ["square", "sides"])
@pytest.mark.parametrize("new", ["hinge", "squared", "leaning"])
def test_duals_of_another_loss_are_brought_into_range(seed, old, new):
    case = Case(old, 0.0, seed)
    for _ in range(3):
        case.engine.sweep()
    state = case.engine.state(False)
    case = Case(new, 0.0, seed)
    resume(case.engine, state)
    kept = state["W"].copy()
    assert close(case.W, kept)
    for _ in range(3):
        low, high = np.array([Loss(*case.losses[g]).slopes(-1e9)[0] for g in case.group]), \
            np.array([Loss(*case.losses[g]).slopes(1e9)[1] for g in case.group])
        assert (np.asarray(case.engine.duals) <= -case.cost * low).all()
        assert (np.asarray(case.engine.duals) >= -case.cost * high).all()
        assert case.engine.dual() == pytest.approx(case.dual(), rel=1e-10, abs=1e-10)
        assert case.engine.dual() <= case.engine.primal()[0]
        case.engine.sweep()


@pytest.mark.parametrize("name", ["hinge", "sides"])
@pytest.mark.parametrize("spread", [0.0, 0.4])
@pytest.mark.parametrize("seed", SEEDS)
def test_storages_agree(name, spread, seed):
    """CSR and dense rows, both precisions, and the Gram matrix."""
    case = Case(name, spread, seed)
    X32 = case.X.astype(np.float32)

    def csr(X):
        A = sparse.csr_array(X)
        return Rows.from_csr(A.data, A.indices.astype(np.int32), A.indptr.astype(np.int64), X.shape[1])

    def trained(rows):
        engine = case.build(rows)
        for _ in range(4):
            engine.sweep()
        engine.iterates.start(5.0)
        for _ in range(4):
            engine.sweep()
        return engine

    wanted = trained(Rows.from_dense(case.X))
    for rows, precise in ((csr(case.X), True), (Rows.from_dense(X32), False), (csr(X32), False)):
        engine = trained(rows)
        tolerance = 1e-10 if precise else 1e-3
        assert np.allclose(engine.iterates.W, wanted.iterates.W, rtol=tolerance, atol=tolerance)
        assert engine.primal()[0] == pytest.approx(wanted.primal()[0], rel=tolerance)
    engine = trained(Rows.from_gram(case.X @ case.X.T))
    scores, coefficients = engine.iterates.W[:case.m], engine.iterates.W[case.m:]
    assert np.allclose(scores, case.X @ wanted.iterates.W, rtol=1e-8, atol=1e-8)
    assert np.allclose(case.X.T @ coefficients, wanted.iterates.W, rtol=1e-8, atol=1e-8)
    assert np.allclose(np.asarray(engine.duals), np.asarray(wanted.duals), rtol=1e-8, atol=1e-8)
    assert engine.primal() == pytest.approx(wanted.primal(), rel=1e-9)
    assert engine.dual() == pytest.approx(wanted.dual(), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_weights_are_repeated_rows(spread):
    case = Case("hinge", spread, 2)
    times = 1 + np.arange(case.m) % 3
    repeated = Case("hinge", spread, 2)
    case.cost = np.full(case.m, 0.5) * times
    case.engine = case.build(Rows.from_dense(case.X))
    for name in ("X", "y", "group", "Z"):
        setattr(repeated, name, np.repeat(getattr(repeated, name), times, axis=0))
    repeated.m, repeated.cost = len(repeated.y), np.full(len(repeated.y), 0.5)
    repeated.engine = repeated.build(Rows.from_dense(repeated.X))
    assert case.optimum()[0] == pytest.approx(repeated.optimum()[0], rel=1e-8)
    assert np.allclose(case.engine.iterates.W, repeated.engine.iterates.W, atol=1e-4)


@pytest.mark.parametrize("name", NAMED)
def test_empty_rows_leave_no_gap(name):
    """Their duals follow the mean."""
    case = Case(name, 0.4, 3)
    empty = ~case.X.any(axis=1)
    assert empty.any()
    value, certificate = case.optimum()
    assert certificate <= 1e-9 * max(1, abs(value))


def test_adopt_and_start_over(case):
    engine = case.engine
    at_zero = engine.loss_at_zero()
    assert at_zero == pytest.approx(case.primal(np.zeros(case.X.shape[1])), rel=1e-12)
    engine.sweep()
    engine.iterates.start(2.0)
    for n in range(3):
        engine.sweep()
        engine.average(1 / (n + 1), float(n), 1.0)
    averaged = np.asarray(engine.mean_duals).copy()
    engine.adopt()
    filled = case.X.any(axis=1)
    assert close(np.asarray(engine.duals)[filled], averaged[filled])
    engine.iterates.plain()
    assert close(case.W, case.U(averaged))
    engine.start_over()
    assert not engine.iterates.W.any()
    assert engine.primal()[0] == pytest.approx(at_zero, rel=1e-12)


def test_idle_rows_are_skipped():
    """A row whose dual does not move is visited at sweeps 1, 2, 4, 7, 11, ...; the values see it all the same."""
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    engine = MarginCD(Rows.from_dense(X), np.ones(2, dtype=np.int32), np.array([1.0, 1.0]),
                      [table_of(*HINGE), table_of((1,), ((0, 0, 0), (0, 0, 0)))],
                      group=np.array([0, 1], dtype=np.int32))
    seen = []
    for _ in range(200):
        before = engine.visits
        engine.sweep()
        seen.append(engine.visits - before)
    # The first row moves at sweep 1 and is calm from 2 on; the second is calm from the start.
    calm = np.array([1, *(1 + np.cumsum([min(n, 17) for n in range(1, 40)]))])
    wanted = np.bincount(np.concatenate([[1], calm + 1, calm]), minlength=500)[1:201]
    assert seen == wanted.tolist()
    assert engine.primal()[0] == pytest.approx(engine.dual())


def test_sweeps_to_skip_are_counted_down(kernels):
    skip = np.array([0, 3, 0, 1], dtype=np.uint8)
    assert kernels.active_rows(np.array([1.0, 2.0, 0.0, 1.0]), skip).tolist() == [0]
    assert skip.tolist() == [0, 2, 0, 0]
    assert kernels.active_rows(np.array([1.0, 2.0, 0.0, 1.0]), skip).tolist() == [0, 3]
