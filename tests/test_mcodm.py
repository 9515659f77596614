"""mcODM against generic QPs, against ODM, and against its own identities (math.md 1.1 to 1.5)."""

import warnings
from types import SimpleNamespace

import numpy as np
import oracles
import pytest

import marginlinear as ml
from marginlinear._core.block_cd import BlockCD
from marginlinear._core.rows import Rows
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.descent import Descent
from marginlinear.methods import mcodm

MU, THETA = 0.8, 0.2
SEEDS = range(36)
# Duals are compared row by row.
pytestmark = pytest.mark.usefixtures("rows_as_given")


def solve_inner(X, y, k, cost, mu, theta, tol, rival=None, fixed=None, algorithm="auto"):
    """(W, primal, bound) by the engine and the descent that mcodm uses."""
    engine = BlockCD(Rows.from_dense(X), y.astype(np.int32), k, cost, loss="squared", low=1 - theta,
                     high=1 + theta, mu=mu)
    if rival is not None:
        engine.name_rivals(rival.astype(np.int32))
    if fixed is not None:
        engine.fix_references(fixed)
    descent = Descent(engine, Budget(200_000, 20.0), tol, algorithm)
    descent.until(tol)
    assert descent.stopped is None
    return descent.incumbent.weights.reshape(-1, k), descent.incumbent.objective, descent.incumbent.bound


@pytest.mark.parametrize("seed", SEEDS)
def test_inner_problems_against_a_qp(seed):
    """mu = 0, named rivals and fixed references: the QP's objective to 1e-6, bounds on their side of it."""
    X, y, k, cost = oracles.random_problem(seed)
    lower = oracles.minimal_inner(X, y, k, cost, 0, THETA)
    # Rivals and references as the outer loops meet them: those of weights that are not yet optimal.
    near = lower.W + 0.1 * np.random.default_rng(seed).standard_normal(lower.W.shape)
    rival, score = oracles.best_rivals(near, X, y)
    for mu, references in ((0, {}), (MU, {"rival": rival}), (MU, {"fixed": score})):
        best = oracles.minimal_inner(X, y, k, cost, mu, THETA, **references)
        W, primal, bound = solve_inner(X, y, k, cost, mu, THETA, 3e-7 * min(1.0, best.value), **references)
        value = oracles.inner_objective(W, X, y, cost, mu, THETA, **references)
        assert value == pytest.approx(best.value, rel=1e-6)
        assert primal == pytest.approx(value, rel=1e-9)
        assert bound <= best.value * (1 + 1e-9)
        # P is 1-strongly convex.
        assert ((W - best.W) ** 2).sum() <= 2 * (primal - bound) + 1e-8 * best.value


def data(seed, classes=None):
    X, y, k, _ = oracles.random_problem(seed)
    if classes and k != classes:
        y = y % classes
        k = classes
    C = 10.0 ** np.random.default_rng(seed).uniform(-2, 1)
    return X, y, k, C


def fit(X, y, **params):
    """The model and its weights as a (d, k) array."""
    model = ml.train(X, y, solver="mcodm", **params)
    return model, model.coef.T


def unconverged(X, y, **params):
    """The same for a run whose convergence is not the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        return fit(X, y, **params)


def cost_of(C, m, theta=THETA):
    return np.full(m, C / (1 - theta) ** 2)


def assert_info(model, W, X, y, cost, mu, theta):
    """Objective, bound and certificate are those of the final weights."""
    info = model.info
    assert info.objective == pytest.approx(oracles.odm_objective(W, X, y, cost, mu, theta), rel=1e-10)
    assert info.certificate == info.objective - info.bound
    assert -1e-9 * max(1, info.objective) <= info.certificate
    assert (info.status == "converged") == (info.certificate <= info.tol * max(1, info.objective))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("theta", [0.0, 0.2, 0.7])
def test_mu_zero_is_certified(seed, theta):
    X, y, k, C = data(seed)
    model, W = fit(X, y, C=C, mu=0, theta=theta, tol=1e-6)
    cost = cost_of(C, len(y), theta)
    assert_info(model, W, X, y, cost, 0, theta)
    best = oracles.minimal_inner(X, y, k, cost, 0, theta)
    slack = 1e-9 * max(1, best.value)
    assert model.info.bound <= best.value + slack
    assert model.info.objective >= best.bound - slack
    assert model.info.objective - best.value <= model.info.certificate + slack


@pytest.mark.parametrize("seed", SEEDS)
def test_mu_zero_is_scaled_l2_crammer_singer(seed):
    """W = (1 - theta) U, U the solution for theta = 0 at C/(1 - theta)^2; objectives go with its square."""
    X, y, k, C = data(seed)
    theta = 0.4
    model, W = fit(X, y, C=C, mu=0, theta=theta, tol=1e-8)
    unscaled = oracles.minimal_inner(X, y, k, cost_of(C, len(y), theta), 0, 0.0)
    assert model.info.objective == pytest.approx((1 - theta) ** 2 * unscaled.value, rel=1e-6, abs=1e-8)
    distance = ((W - (1 - theta) * unscaled.W) ** 2).sum()
    assert distance <= 2 * model.info.certificate + 1e-8 * max(1, unscaled.value)


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_two_classes_are_odm(seed):
    """ccp: w_2 - w_1 is ODM(2 lambda, mu, theta), 2 J its objective; the certificate bounds the excess."""
    X, y, _, C = data(seed, classes=2)
    sign, cost = 2.0 * y - 1, cost_of(C, len(y))
    model, W = fit(X, y, C=C, mu=MU, theta=THETA, tol=1e-8)
    assert_info(model, W, X, y, cost, MU, THETA)
    w = oracles.minimal_odm(X, sign, 2 * cost, MU, THETA)
    g = sign * (X @ w)
    below, above = np.maximum(0, 1 - THETA - g), np.maximum(0, g - 1 - THETA)
    optimum = 0.5 * w @ w + 2 * cost @ (below**2 + MU * above**2)
    slack = 1e-9 * max(1, optimum)
    assert -slack <= model.info.objective - optimum / 2 <= model.info.certificate + slack
    assert model.info.bound <= optimum / 2 + slack
    # 2 J is 1-strongly convex in w_2 - w_1.
    assert ((W[:, 1] - W[:, 0] - w) ** 2).sum() <= 4 * model.info.certificate + 1e-10
    assert np.allclose(W[:, 0], -W[:, 1], atol=np.sqrt(4 * model.info.certificate) + 1e-10)


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_two_classes_without_upper_loss_are_the_l2_svc(seed):
    """mu = 0, k = 2: w_2 - w_1 is (1 - theta) times the L2-loss SVC at 2 C/(1 - theta)^2."""
    X, y, _, C = data(seed, classes=2)
    model, W = fit(X, y, C=C, mu=0, theta=THETA, tol=1e-8)
    w = (1 - THETA) * oracles.minimal_odm(X, 2.0 * y - 1, 2 * cost_of(C, len(y)), 0, 0.0)
    assert ((W[:, 1] - W[:, 0] - w) ** 2).sum() <= 4 * model.info.certificate + 1e-10


@pytest.mark.parametrize("seed", range(4))
def test_shift_at_a_fixed_point_of_the_paper(seed):
    """math.md 1.3, k = 3: sum_l w_l = -sum_i beta_i x_i, beta = 2 c mu eps."""
    rng = np.random.default_rng(seed)
    y = np.arange(30) % 3
    X = 2 * np.eye(3)[y] + rng.standard_normal((30, 3))  # far enough apart for margins above 1 + theta
    _, W = unconverged(X, y, C=0.5, mu=MU, theta=THETA, outer="paper", max_outer=20_000, tol=1e-9)
    beta = 2 * cost_of(0.5, len(y)) * MU * np.maximum(0, oracles.margins(W, X, y) - 1 - THETA)
    assert (beta > 0.01).any()
    assert np.allclose(W.sum(axis=1), -X.T @ beta, atol=2e-3 * abs(W).max())


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_two_classes_fixed_point_of_the_paper(seed):
    """outer=paper, k = 2: the decision function of ODM(2 lambda, mu/2, theta), the shift of math.md 1.3."""
    X, y, _, C = data(seed, classes=2)
    C = min(C, 1.0)
    _, W = unconverged(X, y, C=C, mu=MU, theta=THETA, outer="paper", max_outer=20_000, tol=1e-9)
    w = oracles.minimal_odm(X, 2.0 * y - 1, 2 * cost_of(C, len(y)), MU / 2, THETA)
    scale = max(1, abs(w).max())
    assert np.allclose(W[:, 1] - W[:, 0], w, atol=2e-4 * scale)
    # The common shift -sum_i beta_i x_i of the fixed point is taken out of two-class weights.
    assert np.allclose(W.sum(axis=1), 0, atol=1e-12 * scale)


def dual(state, X, y, cost, rival=None, fixed=0.0):
    """D_r or D_M of math.md 1.4 and 1.1 at the duals of a state."""
    every, (alpha, beta) = np.arange(len(y)), oracles.split(state["duals"], len(y))
    coefficients = alpha.copy()
    coefficients[every, y] -= beta
    if rival is not None:
        coefficients[every, rival] += beta
    own = alpha[every, y]
    value = -0.5 * ((X.T @ coefficients) ** 2).sum() + (1 - THETA) * own.sum() - (own**2 / (4 * cost)).sum()
    return value - ((1 + THETA + fixed) * beta).sum() - (beta**2 / (4 * cost * MU)).sum()


@pytest.mark.parametrize("seed", SEEDS[::2])
@pytest.mark.parametrize("outer", ["ccp", "paper"])
@pytest.mark.parametrize("max_iter", [None, 12, 5])
def test_certificate_of_criticality(seed, outer, max_iter):
    """J(W) - min P, P built at W: what the QP says it is, and never above the certificate."""
    X, y, k, C = data(seed)
    C = 30 * C if max_iter else C  # so that J moves, and with it the rivals
    cost = cost_of(C, len(y))
    model, W = unconverged(X, y, C=C, mu=MU, theta=THETA, outer=outer, tol=1e-5, max_iter=max_iter)
    assert_info(model, W, X, y, cost, MU, THETA)
    J = oracles.odm_objective(W, X, y, cost, MU, THETA)
    _, score = oracles.best_rivals(W, X, y)
    if outer == "ccp":
        rival = np.asarray(model._state.state["rival"])
        # Ties at W are the rule: the class that the engine took is as good as the best up to rounding.
        assert np.allclose((X @ W)[np.arange(len(y)), rival], score, rtol=1e-9, atol=1e-9)
        best = oracles.minimal_inner(X, y, k, cost, MU, THETA, rival=rival)
    else:
        best = oracles.minimal_inner(X, y, k, cost, MU, THETA, fixed=score)
    slack = 1e-8 * max(1, J)
    references = {"rival": rival} if outer == "ccp" else {"fixed": score}
    assert model.info.bound == pytest.approx(dual(model._state.state, X, y, cost, **references), rel=1e-8, abs=1e-8)
    assert model.info.bound <= best.value + slack
    assert J - best.value <= model.info.certificate + slack


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_ccp_converges_to_a_critical_point(seed):
    X, y, k, C = data(seed)
    model, W = fit(X, y, C=C, mu=MU, theta=THETA, tol=1e-5)
    assert model.info.converged
    # At an inner optimum the weights sum to 0; near it by strong convexity.
    assert np.linalg.norm(W.sum(axis=1)) <= np.sqrt(2 * k * model.info.certificate) + 1e-9


@pytest.mark.parametrize("seed", SEEDS[2::3])
@pytest.mark.parametrize("C", [0.1, 3.0])
def test_ccp_never_increases_J(seed, C):
    """J after 1, 2, 3, ... outer iterations of the same run: it falls, up to the inner tolerance."""
    X, y, _, _ = data(seed)
    tol, values = 1e-6, []
    for max_outer in range(1, 12):
        model, W = unconverged(X, y, C=C, mu=1.0, theta=0.0, tol=tol, max_outer=max_outer)
        values.append(oracles.odm_objective(W, X, y, cost_of(C, len(y), 0.0), 1.0, 0.0))
        if model.info.n_outer < max_outer or model.info.converged:
            break
    assert (np.diff(values) <= tol * np.maximum(1, values[:-1])).all()


@pytest.mark.parametrize("seed", SEEDS[::3])
@pytest.mark.parametrize("params", [{"mu": 0}, {}, {"outer": "paper"}], ids=["mu=0", "ccp", "paper"])
def test_data_twice_at_half_the_cost(seed, params):
    """Repeating the rows at C/2, or at the same lambda, changes nothing."""
    X, y, k, C = data(seed)
    tight = {"tol": 1e-7, "theta": THETA, **params}
    if "outer" in params:
        tight |= {"max_outer": 5000}
    once, W = unconverged(X, y, C=C, **tight)
    XX, yy = np.vstack([X, X]), np.concatenate([y, y])
    for cost in ({"C": C / 2}, {"lambda_": C * len(y)}):
        twice, WW = unconverged(XX, yy, **cost, **tight)
        near = 1e-6 if k == 2 or params != {} else 1e-3
        assert twice.info.objective == pytest.approx(once.info.objective, rel=near, abs=1e-6)
        if params == {"mu": 0}:
            apart = np.sqrt(2 * once.info.certificate) + np.sqrt(2 * twice.info.certificate)
            assert np.linalg.norm(W - WW) <= apart + 1e-9


def test_lambda_is_c_times_rows():
    X, y, _, C = data(5)
    by_c, _ = fit(X, y, C=C)
    by_lambda, _ = fit(X, y, lambda_=C * len(y))
    assert by_lambda.info.objective == pytest.approx(by_c.info.objective, rel=1e-12)


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("params", [{"mu": 0}, {"mu": 0.8}], ids=str)
def test_routes_agree(k, C, params):
    """cd, accelerated and auto end at the same objective; for k >= 3 at critical points within 0.1 %."""
    rng = np.random.default_rng(k)
    X = rng.random((120, 8)) + 0.5
    y = ((X - 1) @ rng.standard_normal((8, k)) + 0.3 * rng.standard_normal((120, k))).argmax(axis=1)
    routes = ("cd", "accelerated", "auto")
    infos = [fit(X, y, C=C, tol=1e-4, algorithm=route, **params)[0].info for route in routes]
    exact = k == 2 or params["mu"] == 0
    for info in infos:
        assert info.converged
        for other in infos:
            allowed = info.certificate if exact else 1e-3 * other.objective
            assert info.objective - other.objective <= allowed + 1e-9
    # A quarter of the sweeps that are allowed, then Newton steps.
    assert infos[0].algorithm == ("cd" if infos[0].n_iter <= 5000 else "newton")
    assert C == 0.1 or infos[2].algorithm == "accelerated"


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_going_on_with_other_parameters(seed):
    """A start from other mu, theta, C or outer is only a start: it ends as certified as any."""
    X, y, k, C = data(seed)
    model, _ = fit(X, y, C=C, tol=1e-4)
    steps = [{"mu": 0}, {"mu": 0.4}, {"outer": "paper"}, {"outer": "ccp"}, {"outer": "paper", "mu": 0.1},
             {"mu": 0}, {"C": 3 * C, "theta": 0.5}]
    for step in steps:
        params = {"C": C, "mu": MU, "theta": THETA, "outer": "ccp"} | step
        model, W = unconverged(X, y, start=model, tol=1e-6, **params)
        cost = cost_of(params["C"], len(y), params["theta"])
        assert_info(model, W, X, y, cost, params["mu"], params["theta"])
        assert model.info.status in ("converged", "max_iter")
        if params["mu"] == 0:
            best = oracles.minimal_inner(X, y, k, cost, 0, params["theta"])
            assert model.info.objective <= best.value + model.info.certificate + 1e-9
            assert model.info.bound <= best.value + 1e-8 * max(1, best.value)


@pytest.mark.parametrize("seed", [3, 5, 12, 31])
@pytest.mark.parametrize("C", [1.0, 10.0])
@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-3])
def test_paper_says_how_it_ended(seed, C, tol):
    """A run that used up neither sweeps nor outer iterations has converged; a start from it costs nothing."""
    X, y, _, _ = data(seed)
    model, _ = unconverged(X, y, C=C, outer="paper", max_outer=500, tol=tol)
    info = model.info
    assert info.converged or info.n_outer == 500
    assert info.residual is not None
    if info.converged:
        assert info.residual <= tol
        assert unconverged(X, y, C=C, outer="paper", tol=tol, start=model)[0].info.n_iter == 0


def test_history_of_ccp_ends_with_the_certificate():
    X, y, _, C = data(3)
    model, _ = fit(X, y, C=C)
    last = model.info.history[-1]
    assert (last["objective"], last["bound"], last["certificate"]) == (
        model.info.objective, model.info.bound, model.info.certificate)


def raw_table(seed=0, m=366, k=6):
    """Grades 0 to 3 and an age, as a medical table has them: classes apart, features of very different sizes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=m)
    grades = rng.gamma(0.5, 1.2, (k, 33)).clip(0, 3)
    X = np.rint((grades[y] + rng.normal(0, 0.6, (m, 33))).clip(0, 3))
    return np.column_stack((X, rng.integers(5, 80, m))), y


@pytest.mark.parametrize("algorithm", ["cd", "accelerated"])
def test_sweeps_on_a_raw_table_end(algorithm):
    """Of sweeps alone 20,000 do not: Newton steps take over."""
    X, y = raw_table()
    info = fit(X, y, C=16, algorithm=algorithm)[0].info
    assert info.converged
    assert info.algorithm == "newton"
    assert 5000 < info.n_iter < 5500


def test_auto_is_as_good_as_the_best_of_other_ways():
    """Newton steps on one choice of rivals after another, and mu raised by `start`, end at worse critical points."""
    X, y = raw_table()
    raised = None
    for mu in (0, 0.05, 0.1, 0.2, 0.4, MU):
        raised = fit(X, y, C=16, mu=mu, start=raised, algorithm="newton")[0]
    others = raised.info.objective, fit(X, y, C=16, algorithm="newton")[0].info.objective
    assert fit(X, y, C=16)[0].info.objective <= 1.005 * min(others)


def test_restarts_keep_the_best_of_their_seeds():
    X, y = raw_table(1, m=120)
    by_seed = [fit(X, y, C=16, seed=seed) for seed in (7, 8, 9)]
    model, W = fit(X, y, C=16, seed=7, restarts=3)
    best, expected = min(by_seed, key=lambda found: found[0].info.objective)
    assert W.tobytes() == expected.tobytes()
    assert model.info.objective == best.info.objective
    told = ", ".join(f"{found.info.objective:.6g}" for found, _ in by_seed)
    assert model.info.notes == (f"objectives of 3 of 3 restarts: {told}",)


@pytest.mark.parametrize("params", [{"mu": 0}, {"classes": 2}])
def test_a_convex_problem_is_not_restarted(params):
    X, y, _, C = data(4, params.pop("classes", None))
    assert fit(X, y, C=C, restarts=3, **params)[0].info.notes == ()


def test_restarts_share_the_time_limit():
    X, y = raw_table()
    model, _ = unconverged(X, y, C=16, restarts=1000, time_limit=0.3)
    assert model.info.seconds < 2
    assert " of 1000 restarts: " in model.info.notes[-1]


def test_restarts_are_for_the_descent():
    X, y, _, _ = data(3)
    with pytest.raises(ValueError, match="restarts = 2 is of no use with outer = paper: it is for outer = ccp"):
        fit(X, y, outer="paper", restarts=2)


def test_restarts_are_for_one_process():
    with pytest.raises(ValueError, match="restarts = 2 is for rows in one process: on a cluster give 1"):
        mcodm.fit(SimpleNamespace(n_classes=3), {"mu": MU, "restarts": 2}, SimpleNamespace(places=object()))
