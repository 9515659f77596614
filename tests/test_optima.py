"""Every method that is convex, against a slow solver of another kind, to 1e-9: of the registry, on every route.

Problems of hinges and squares are quadratic programs, which an interior-point method solves; smooth ones, with or
without the sum of absolute values, are left to Newton steps on the variables that are not 0; norms other than 2 to
SciPy.
"""

import numpy as np
import oracles
import pytest
from scipy import optimize

import marginlinear as ml
from marginlinear import registry

TOL = 1e-9
m, d, k = 30, 3, 3
nu, p = 0.55, 1.5
# Methods without a certificate that tells the optimum: by steps drawn at random, and on no one objective.
OTHERS = {"ldm-asgd", "msvmav"}


class Data:
    """Rows, their classes, signs and numbers; costs C weight_i, C of no method's default."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((m, d)) + 1.5
        self.X[7], self.X[9] = 0, self.X[8]
        self.y = (self.X @ rng.standard_normal((d, k)) + rng.standard_normal((m, k))).argmax(axis=1)
        self.y[:k] = np.arange(k)
        self.sign = np.where((self.X + 0.3 * rng.standard_normal((m, d))) @ [1, -1, 0.5] > 0.7, 1.0, -1.0)
        self.sign[:2] = 1, -1
        self.z = self.X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(m)
        self.weight = rng.uniform(0.5, 2, m)
        self.C = (0.3, 3.0, 0.05, 30.0)[seed]
        self.cost = self.C * self.weight
        self.margins = self.sign[:, None] * self.X

    def rivals(self):
        """A of A W = s_il - s_iy, W flattened, of shape (k - 1, m, d k)."""
        A, _ = oracles.differences(self.X, self.y, k)
        return A.reshape(m, k - 1, d * k).swapaxes(0, 1)


def least(*program):
    return oracles.minimal_program(*program)[1]


def of_margins(*pieces):
    """1/2 ||w||^2 + sum_i c_i sum of pieces (side, at, a, b): a s + b s^2 of s = (side (at - g))_+."""
    return lambda data: least(np.eye(d), np.zeros(d), *[
        (side * data.margins, side * at, a * data.cost, b * data.cost) for side, at, a, b in pieces])


def of_residuals(a, b):
    """1/2 ||w||^2 + sum_i c_i (a s + b s^2), s = (|z - w.x| - 0.2)_+"""
    return lambda data: least(np.eye(d), np.zeros(d), (
        np.vstack([data.X, -data.X]), np.append(data.z, -data.z) - 0.2, a * data.cost, b * data.cost))


def of_rivals(a, b, at=1.0):
    """1/2 ||W||^2 + sum_i c_i (a s + b s^2), s = (at - t_il)_+ of the worst l."""
    return lambda data: least(np.eye(d * k), np.zeros(d * k), (
        -data.rivals().reshape(-1, d * k), at, a * data.cost, b * data.cost))


def margin_distribution(data):
    size = data.weight.sum()
    total = data.margins.T @ data.weight
    spread = data.margins.T @ (data.weight[:, None] * data.margins) - np.outer(total, total) / size
    return least(np.eye(d) + 4 * 2.0 / size * spread, -1.5 / size * total, (
        data.margins, 1.0, data.cost, 0 * data.cost))


def semi_variance(data):
    mean = data.weight @ data.margins / data.weight.sum()
    return least(np.eye(d), -data.weight.sum() * mean, (data.margins - mean, 0.0, 0 * data.cost, data.cost))


def sparse_squares(data):
    none = np.zeros(d)
    return least(0.4 * np.eye(d), none, (data.margins, 1.0, 0 * data.cost, data.cost),
                 *[(side * np.eye(d), 0.0, none + 0.6, none) for side in (1, -1)])


def others_free(n):
    """The quadratic form of v = (w, n variables that cost nothing)."""
    return np.diag(np.arange(d + n) < d).astype(float)


def one_class(data):
    """v = (w, rho)"""
    linear = np.append(np.zeros(d), -nu * data.weight.sum())
    return least(others_free(1), linear, (np.column_stack([data.X, -np.ones(m)]), 0.0, data.weight, 0 * data.weight))


def nu_classes(data):
    """v = (w, rho, b)"""
    linear = np.append(np.zeros(d), [-nu * data.weight.sum(), 0])
    return least(others_free(2), linear, (
        np.column_stack([data.margins, -np.ones(m), data.sign]), 0.0, data.weight, 0 * data.weight))


def nu_numbers(data):
    """v = (w, epsilon, b)"""
    linear, ones = np.append(np.zeros(d), [nu * data.cost.sum(), 0]), np.ones(m)
    A = np.vstack([np.column_stack([data.X, ones, ones]), np.column_stack([-data.X, ones, -ones])])
    return least(others_free(2), linear, (A, np.append(data.z, -data.z), data.cost, 0 * data.cost))


def average(data):
    return -((data.cost @ data.margins) ** 2).sum() / 2


def least_logarithms(A, cost, ridge, penalty=0.0):
    """min ridge/2 ||v||^2 + penalty ||v||_1 + sum_i c_i log(1 + sum_l exp(A_il v)), A of shape (rivals, rows, n)."""
    n = A.shape[-1]

    def smooth(v):
        s = np.concatenate([np.zeros((1, A.shape[1])), A @ v])
        share = oracles.shares(s.T).T[1:]
        gradient = ridge * v + np.einsum("lin,li,i->n", A, share, cost)
        each = np.einsum("lin,li->in", A, share)
        hessian = ridge * np.eye(n) + np.einsum("lia,li,i,lib->ab", A, share, cost, A) - (each.T * cost) @ each
        return ridge / 2 * v @ v + cost @ np.logaddexp.reduce(s, axis=0), gradient, hessian

    def split(u):
        value, gradient, _ = smooth(u[:n] - u[n:])
        return value + penalty * u.sum(), np.concatenate([gradient + penalty, penalty - gradient])

    u = optimize.minimize(split, np.zeros(2 * n), jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * n),
                          options={"maxiter": 10_000, "ftol": 0, "gtol": 1e-9}).x
    v = u[:n] - u[n:]
    signs = np.where(abs(v) > 1e-8, np.sign(v), 0) if penalty else np.ones(n)
    some, v = np.flatnonzero(signs), np.where(signs != 0, v, 0)
    for _ in range(5):
        _, gradient, hessian = smooth(v)
        v[some] -= np.linalg.solve(hessian[np.ix_(some, some)], (gradient + penalty * signs)[some])
    value, gradient, _ = smooth(v)
    assert abs((gradient + penalty * signs)[some]).max() <= 1e-10 * cost.sum()
    if penalty:
        assert (np.sign(v) == signs).all() and (abs(gradient) <= penalty * (1 + 1e-9)).all()
    return value + penalty * abs(v).sum()


def of_logarithms(binary, ridge, penalty=0.0):
    return lambda data: least_logarithms(
        -data.margins[None] if binary else data.rivals(), data.cost, ridge, penalty)


def pairs(loss, **given):
    return lambda data: oracles.minimal_pairs(data.X, data.y, k, data.weight, loss, 1 / (2 * k * data.C), 2.5, **given)


# The value at the optimum, and parameters other than C.
OPTIMA = {
    "mcodm": (of_rivals(0, 1 / 0.8**2, at=0.8), {"mu": 0.0, "theta": 0.2}),
    "cs": (of_rivals(1, 0), {}),
    "topk": (lambda data: oracles.minimal_topk(data.X, data.y, k, data.cost, 2), {"K": 2}),
    "lpmcsvm": (lambda data: oracles.minimal_lp(data.X, data.y, k, data.cost, p)[1], {"norm": p}),
    "m3svm": (pairs("hinge", eps=1e-2, delta=0.1), {"eps": 1e-2, "delta": 0.1, "norm": 2.5}),
    "ism3": (pairs("logistic", eps=1e-2, delta=0), {"eps": 1e-2, "loss": "logistic", "norm": 2.5}),
    "ww": (lambda data: oracles.minimal_ww(data.X, data.y, k, data.cost)[1], {}),
    "softmax": (of_logarithms(False, 1.0), {}),
    "smlr": (of_logarithms(False, 0.4, 0.6), {"l1_ratio": 0.6}),
    "ldm": (margin_distribution, {"lambda1": 2.0, "lambda2": 1.5}),
    "odm": (of_margins((1, 0.8, 0, 1 / 0.8**2), (-1, 1.2, 0, 0.7 / 0.8**2)), {"mu": 0.7, "theta": 0.2}),
    "rmm": (of_margins((1, 1.0, 1, 0), (-1, 1.2, 3, 0)), {"margin_bound": 1.2}),
    "l1svc": (of_margins((1, 1.0, 1, 0)), {}),
    "l2svc": (of_margins((1, 1.0, 0, 1)), {}),
    "nusvc": (nu_classes, {"nu": nu}),
    "logistic": (of_logarithms(True, 1.0), {}),
    "l1l2svc": (sparse_squares, {"l1_ratio": 0.6}),
    "l1lr": (of_logarithms(True, 0.4, 0.6), {"l1_ratio": 0.6}),
    "lssvm": (of_margins((1, 1.0, 0, 1), (-1, 1.0, 0, 1)), {}),
    "mamc": (average, {}),
    "msv": (semi_variance, {}),
    "oneclass": (one_class, {"nu": nu}),
    "l1svr": (of_residuals(1, 0), {"epsilon": 0.2}),
    "l2svr": (of_residuals(0, 1), {"epsilon": 0.2}),
    "nusvr": (nu_numbers, {"nu": nu}),
}


def test_no_method_is_left_out():
    assert set(OPTIMA) | OTHERS == set(registry.MODULES)


@pytest.mark.parametrize("solver", OPTIMA)
@pytest.mark.parametrize("seed", range(4))
def test_the_objective_is_the_optimum(solver, seed):
    method, data = registry.get(solver), Data(seed)
    optimum, given = OPTIMA[solver]
    names = [param.name for param in method.takes]
    given = {**given, **({"C": data.C} if "C" in names else {})}
    if "bound_cost" in names:
        given["bound_cost"] = 3 * data.C
    told = None if method.one_class else data.z if method.regression else data.y if method.joint else data.sign
    best = optimum(data)
    size = TOL * max(1, abs(best))
    assert abs(best) > 0.1
    for algorithm in method.routes:
        info = ml.train(data.X, told, solver=solver, sample_weight=data.weight, algorithm=algorithm, tol=0.1 * TOL,
                        max_iter=10**6, **given).info
        assert info.converged
        # The band of the best epsilon has as many rows on its edges as a w can have there.
        assert solver != "nusvr" or info.n_iter < 1000
        assert abs(info.objective - best) <= size
        assert info.bound <= best + 0.01 * size
