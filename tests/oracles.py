"""Slow, independent answers in plain NumPy: nothing here calls marginlinear.

Dense X, labels y = 0..k-1, W of shape (d, k), one positive cost a row (c_i of the objectives).
"""

import decimal
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import combinations

import numpy as np
from scipy import linalg, optimize, special

decimal.getcontext().prec = 60


def convex_qp(H, f, G, h, tol=1e-13):
    """min 1/2 z'Hz + f'z s.t. Gz <= h, by Mehrotra's predictor-corrector method. Returns (z, multipliers).

    The caller checks the answer: every multiplier is >= 0, so a dual value can be had from them.
    """
    z, slack, lam = np.zeros(len(f)), np.maximum(1.0, h), np.ones(len(h))
    best, answer = np.inf, None
    for _ in range(200):
        r_dual = H @ z + f + G.T @ lam
        r_prim = G @ z + slack - h
        mu = slack @ lam / len(h)
        off = max(slack @ lam, abs(r_dual).max(), abs(r_prim).max())
        if off < best:
            best, answer = off, (z, lam)
        if off <= tol * (1 + abs(f).max() + abs(h).max()) or slack.min() <= 1e-100:
            break
        # Not the normal equations, which lose the digits that slack/lam range over.
        factor = linalg.lu_factor(np.block([[H, G.T], [G, -np.diag(slack / lam)]]))

        def step(r_comp, factor=factor, r_dual=r_dual, r_prim=r_prim, lam=lam):
            dz, dl = np.split(linalg.lu_solve(factor, np.concatenate([-r_dual, r_comp / lam - r_prim])), [len(f)])
            return dz, -r_prim - G @ dz, dl

        def longest(ds, dl, slack=slack, lam=lam):
            falls = [-v[d < 0] / d[d < 0] for v, d in ((slack, ds), (lam, dl))]
            return min(1.0, *(0.995 * part.min() for part in falls if len(part)), 1.0)

        dz, ds, dl = step(slack * lam)
        reach = longest(ds, dl)
        ahead = (slack + reach * ds) @ (lam + reach * dl) / len(h)
        dz, ds, dl = step(slack * lam + ds * dl - (ahead / mu) ** 3 * mu)
        reach = longest(ds, dl)
        if reach < 0.3:  # the corrector led into a corner: go to the middle instead
            dz, ds, dl = step(slack * lam - 0.5 * mu)
            reach = longest(ds, dl)
        if not np.isfinite(dz).all() or reach < 1e-10:
            break
        z, slack, lam = z + reach * dz, slack + reach * ds, lam + reach * dl
    return answer


def minimal_program(quadratic, linear, *hinges):
    """(v, value) of min 1/2 v'Hv + f'v + sum_j a_j s_j + b_j s_j^2, s_j = max(0, h_r - A_r v of the rows r of j).

    Each of `hinges` is (A, h, a, b); row r of A belongs to j = r % len(a).
    """
    n, sizes = len(linear), [len(a) for _, _, a, _ in hinges]
    starts, slacks = n + np.cumsum([0, *sizes]), sum(sizes)
    H, f = np.zeros((n + slacks, n + slacks)), np.concatenate([linear, *(a for _, _, a, _ in hinges)])
    H[:n, :n], blocks, sides = quadratic, [], []
    for start, (A, at, a, b) in zip(starts, hinges, strict=False):
        block, mine = np.zeros((len(A), n + slacks)), start + np.arange(len(A)) % len(a)
        block[:, :n], block[np.arange(len(A)), mine] = -A, -1
        blocks.append(block)
        sides.append(-np.broadcast_to(at, len(A)))
        H[mine, mine] = 2 * np.resize(b, len(A))
    G, h = np.vstack([*blocks, -np.eye(n + slacks)[n:]]), np.concatenate([*sides, np.zeros(slacks)])
    v, multipliers = convex_qp(H, f, G, h)
    # The Lagrangian, where it is least over v.
    bound = v @ H @ v / 2 + f @ v + multipliers @ (G @ v - h)
    z, value = v[:n], v[:n] @ quadratic @ v[:n] / 2 + linear @ v[:n]
    for A, at, a, b in hinges:
        s = np.maximum(0, at - A @ z).reshape(-1, len(a)).max(axis=0)
        value += a @ s + b @ s**2
    assert abs(value - bound) <= 1e-10 * max(1, abs(value))
    return z, value


def margins(W, X, y):
    scores = X @ W
    own = scores[np.arange(len(y)), y]
    scores[np.arange(len(y)), y] = -np.inf
    return own - scores.max(axis=1)


def best_rivals(W, X, y):
    """argmax_{l != y_i} w_l.x_i and the score there."""
    scores = X @ W
    scores[np.arange(len(y)), y] = -np.inf
    return scores.argmax(axis=1), scores.max(axis=1)


def hinge_objective(W, X, y, cost):
    """1/2 ||W||^2 + sum_i c_i (1 - g_i)_+"""
    return 0.5 * (W**2).sum() + cost @ np.maximum(0, 1 - margins(W, X, y))


def odm_objective(W, X, y, cost, mu, theta):
    """J(W) = 1/2 ||W||^2 + sum_i c_i [(1 - theta - g_i)_+^2 + mu (g_i - 1 - theta)_+^2]"""
    g = margins(W, X, y)
    below, above = np.maximum(0, 1 - theta - g), np.maximum(0, g - 1 - theta)
    return 0.5 * (W**2).sum() + cost @ (below**2 + mu * above**2)


def inner_objective(W, X, y, cost, mu, theta, rival=None, fixed=None):
    """P_r or P_M: the upper slack against the named classes, or against fixed numbers."""
    scores = X @ W
    every = np.arange(len(y))
    reference = scores[every, rival] if rival is not None else fixed
    below = np.maximum(0, 1 - theta - margins(W, X, y))
    value = 0.5 * (W**2).sum() + cost @ below**2
    if mu > 0:
        value += mu * cost @ np.maximum(0, scores[every, y] - reference - 1 - theta) ** 2
    return value


@dataclass
class Optimum:
    """Weights of shape (d, k), their objective, and a value that no weights can go below."""

    W: np.ndarray
    value: float
    bound: float

    def certified(self, tol=2e-8):
        """self, proven to be the optimum to `tol`."""
        assert -tol * max(1, self.value) <= self.value - self.bound <= tol * max(1, self.value), (
            self.value, self.bound)
        return self


def differences(X, y, k):
    """Rows (i, l), l != y_i, of the map W -> s_il - s_iy, and i of each. W is flattened in C order."""
    m, d = X.shape
    which = [(i, c) for i in range(m) for c in range(k) if c != y[i]]
    out = np.zeros((len(which), d, k))
    for at, (i, c) in enumerate(which):
        out[at, :, c] += X[i]
        out[at, :, y[i]] -= X[i]
    return out.reshape(len(which), d * k), np.array([i for i, _ in which])


def minimal_inner(X, y, k, cost, mu, theta, rival=None, fixed=None):
    """min over W of the inner problem of mcODM (math.md 1.1, 1.4), as a QP in (W, xi, eps).

    The bound is the Lagrangian of that QP at its multipliers, minimised over (W, xi, eps) in closed form: it
    holds whatever the multipliers are.
    """
    m, d = X.shape
    n = d * k
    T, of = differences(X, y, k)
    blocks = [np.hstack([T, -np.eye(m)[of]])]
    sides = [np.full(len(T), -(1 - theta))]
    diagonal = [np.ones(n), 2 * cost]
    if mu > 0:
        U = np.zeros((m, d, k))
        for i in range(m):
            U[i, :, y[i]] += X[i]
            if rival is not None:
                U[i, :, rival[i]] -= X[i]
        blocks[0] = np.hstack([blocks[0], np.zeros((len(T), m))])
        blocks.append(np.hstack([U.reshape(m, n), np.zeros((m, m)), -np.eye(m)]))
        blocks.append(np.hstack([np.zeros((m, n + m)), -np.eye(m)]))
        sides += [1 + theta + (np.zeros(m) if rival is not None else fixed), np.zeros(m)]
        diagonal.append(2 * mu * cost)
    blocks.append(np.hstack([np.zeros((m, n)), -np.eye(m), np.zeros((m, blocks[0].shape[1] - n - m))]))
    sides.append(np.zeros(m))
    H, G, h = np.concatenate(diagonal), np.vstack(blocks), np.concatenate(sides)
    z, lam = convex_qp(np.diag(H), np.zeros(len(H)), G, h)
    W = z[:n].reshape(d, k)
    pull = G.T @ lam
    value = inner_objective(W, X, y, cost, mu, theta, rival, fixed)
    return Optimum(W, value, -0.5 * (pull**2 / H).sum() - lam @ h).certified()


def minimal_hinge(X, y, k, cost):
    """min over W of the Crammer-Singer problem, as a QP in (W, xi)."""
    m, d = X.shape
    n = d * k
    T, of = differences(X, y, k)
    G = np.vstack([np.hstack([T, -np.eye(m)[of]]), np.hstack([np.zeros((m, n)), -np.eye(m)])])
    h = np.concatenate([-np.ones(len(T)), np.zeros(m)])
    H, f = np.concatenate([np.ones(n), np.zeros(m)]), np.concatenate([np.zeros(n), cost])
    z, lam = convex_qp(np.diag(H), f, G, h)
    W = z[:n].reshape(d, k)
    # Any dual with sum_l lam_il <= c_i is feasible: scaled down where rounding left it above.
    dual = lam[: len(T)]
    total = np.bincount(of, dual, minlength=m)
    dual = dual * np.minimum(1, cost / np.maximum(total, 1e-300))[of]
    bound = dual.sum() - 0.5 * ((T.T @ dual) ** 2).sum()
    return Optimum(W, hinge_objective(W, X, y, cost), bound).certified()


def group_norm(V, p):
    """(sum_l ||v_l||^p)^{1/p} of the columns of V; p may be infinite."""
    norms = np.sqrt((V**2).sum(axis=0))
    largest = norms.max()
    if np.isinf(p) or largest == 0:
        return largest
    return largest * ((norms / largest) ** p).sum() ** (1 / p)


def lp_objective(W, X, y, cost, p):
    """1/2 (sum_l ||w_l||^p)^{2/p} + sum_i c_i (1 - g_i)_+"""
    return 0.5 * group_norm(W, p) ** 2 + cost @ np.maximum(0, 1 - margins(W, X, y))


def lp_dual(alpha, X, y, p):
    """-1/2 (sum_l ||v_l||^{p*})^{2/p*} + sum_i alpha_iy,  V = X' alpha"""
    conjugate = p / (p - 1) if p > 1 else np.inf
    return alpha[np.arange(len(y)), y].sum() - 0.5 * group_norm(X.T @ alpha, conjugate) ** 2


def minimal_weighted_hinge(X, y, k, cost, b):
    """(W, V, value) of min over W of sum_l ||w_l||^2/(2 b_l) + sum_i c_i xi_i, as a QP; w_l = b_l v_l."""
    m, d = X.shape
    n = d * k
    T, of = differences(X, y, k)
    roots = np.tile(np.sqrt(b), d)
    G = np.vstack([np.hstack([T * roots, -np.eye(m)[of]]), np.hstack([np.zeros((m, n)), -np.eye(m)])])
    h = np.concatenate([-np.ones(len(T)), np.zeros(m)])
    H, f = np.concatenate([np.ones(n), np.zeros(m)]), np.concatenate([np.zeros(n), cost])
    z, lam = convex_qp(np.diag(H), f, G, h)
    V = -(T.T @ lam[: len(T)]).reshape(d, k)
    W = (z[:n] * roots).reshape(d, k)
    return W, V, 0.5 * (z[:n] ** 2).sum() + cost @ np.maximum(0, 1 - margins(W, X, y))


def minimal_lp(X, y, k, cost, p):
    """(W, P(W)) of the lp-norm machine, p < 2: its class weights b minimised by SciPy's SLSQP.

    h(b) = min over W of sum_l ||w_l||^2/(2 b_l) + loss is convex, its slope in b_l is -||v_l||^2/2.
    """
    q = p / (2 - p)

    def h(b):
        _, V, value = minimal_weighted_hinge(X, y, k, cost, np.maximum(b, 1e-10))
        return value / scale, -0.5 * (V**2).sum(axis=0) / scale

    scale = max(1.0, cost.sum())
    ball = {"type": "ineq", "fun": lambda b: 1 - (b**q).sum(), "jac": lambda b: -q * b ** (q - 1)}
    found = optimize.minimize(h, np.full(k, k ** (-1 / q)), jac=True, bounds=[(1e-10, 1.0)] * k, constraints=[ball],
                              method="SLSQP", options={"ftol": 1e-13, "maxiter": 200})
    W = minimal_weighted_hinge(X, y, k, cost, np.maximum(found.x, 1e-10))[0]
    return W, lp_objective(W, X, y, cost, p)


def minimal_svc(X, sign, cost):
    """w that minimises 1/2 ||w||^2 + sum_i c_i (1 - sign_i w.x_i)_+"""
    d = X.shape[1]
    return minimal_program(np.eye(d), np.zeros(d), (sign[:, None] * X, 1.0, cost, 0 * cost))[0]


def margin_terms(g, instance):
    """(mean, twice the variance) of margins that count `instance` times each."""
    mean = instance @ g / instance.sum()
    return mean, 2 * (instance @ (g - mean) ** 2) / instance.sum()


def ldm_objective(w, X, sign, instance, factor, C, lambda1, lambda2):
    """1/2 ||w||^2 + lambda1 ghat - lambda2 gbar + C sum_i instance_i factor_i (1 - g_i)_+"""
    g = sign * (X @ w)
    mean, spread = margin_terms(g, instance)
    return 0.5 * w @ w + lambda1 * spread - lambda2 * mean + C * (instance * factor) @ np.maximum(0, 1 - g)


def ldm_certificate(w, beta, X, sign, instance, factor, C, lambda1, lambda2):
    """The bound of math.md 3 on P(w) - min P, for any w and any beta in [0, C_i]."""
    g = sign * (X @ w)
    size, cost = instance.sum(), C * instance * factor
    tau = 4 * lambda1 / size * instance * (g - instance @ g / size)
    off = w - X.T @ (sign * (beta + lambda2 / size * instance - tau))
    return (cost * np.maximum(0, 1 - g) - beta * (1 - g)).sum() + 0.5 * off @ off


def minimal_ldm(X, sign, instance, factor, C, lambda1, lambda2):
    """w that minimises ldm_objective, as a QP in (w, xi); the certificate at its multipliers proves it."""
    m, d = X.shape
    Z, size = sign[:, None] * X, instance.sum()
    total = Z.T @ instance
    Q = np.eye(d) + 4 * lambda1 / size * (Z.T @ (instance[:, None] * Z) - np.outer(total, total) / size)
    H = np.zeros((d + m, d + m))
    H[:d, :d] = Q
    G = np.vstack([np.hstack([-Z, -np.eye(m)]), np.hstack([np.zeros((m, d)), -np.eye(m)])])
    h = np.concatenate([-np.ones(m), np.zeros(m)])
    cost = C * instance * factor
    z, lam = convex_qp(H, np.concatenate([-lambda2 / size * total, cost]), G, h)
    w, beta = z[:d], np.clip(lam[:m], 0, cost)
    problem = X, sign, instance, factor, C, lambda1, lambda2
    value = ldm_objective(w, *problem)
    Optimum(w, value, value - ldm_certificate(w, beta, *problem)).certified()
    return w


def features_of(K):
    """Phi with Phi Phi' = K: the features whose linear problem is the kernel's."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0))


def rbf(X, Z, gamma):
    """exp(-gamma ||x - z||^2), shape (len(X), len(Z))"""
    return np.exp(-gamma * ((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2))


def minimal_odm(X, sign, cost, mu, theta):
    """argmin 1/2 ||w||^2 + sum_i c_i [(1-theta-g_i)_+^2 + mu (g_i-1-theta)_+^2], g_i = sign_i w.x_i.

    Semismooth Newton steps with a halving line search; 1/2 ||gradient||^2 is the gap (math.md 2).
    """
    d = X.shape[1]
    Z = sign[:, None] * X

    def value(w):
        below, above = np.maximum(0, 1 - theta - Z @ w), np.maximum(0, Z @ w - 1 - theta)
        return 0.5 * w @ w + cost @ (below**2 + mu * above**2)

    w = np.zeros(d)
    for _ in range(200):
        g = Z @ w
        slope = -2 * cost * np.maximum(0, 1 - theta - g) + 2 * mu * cost * np.maximum(0, g - 1 - theta)
        gradient = w + Z.T @ slope
        if 0.5 * gradient @ gradient <= 1e-18 * max(1, value(w)):
            break
        curvature = 2 * cost * (g < 1 - theta) + 2 * mu * cost * (g > 1 + theta)
        step = -np.linalg.solve(np.eye(d) + Z.T @ (curvature[:, None] * Z), gradient)
        size = 1.0
        while value(w + size * step) > value(w) + 1e-4 * size * gradient @ step and size > 1e-10:
            size /= 2
        w = w + size * step
    assert 0.5 * gradient @ gradient <= 1e-12 * max(1, value(w))
    return w


def logistic_objective(w, Z, cost):
    """1/2 ||w||^2 + sum_i c_i log(1 + exp(-g_i)), g = Z w."""
    return 0.5 * w @ w + cost @ np.logaddexp(0, -Z @ w)


def logistic_dual(a, Z, cost):
    """-1/2 ||Z'a||^2 - sum_i [a_i log(a_i/c_i) + (c_i - a_i) log(1 - a_i/c_i)], 0 <= a <= c."""
    u, share = Z.T @ a, a / cost
    return -0.5 * u @ u - cost @ (special.xlogy(share, share) + special.xlogy(1 - share, 1 - share))


def minimal_logistic(X, sign, cost):
    """argmin logistic_objective, by Newton steps with a halving line search; 1/2 ||gradient||^2 is the gap."""
    Z, w = sign[:, None] * X, np.zeros(X.shape[1])
    for _ in range(100):
        share = special.expit(-Z @ w)
        gradient = w - Z.T @ (cost * share)
        if gradient @ gradient <= 1e-22 * max(1, logistic_objective(w, Z, cost)):
            break
        step = -np.linalg.solve(np.eye(len(w)) + Z.T @ ((cost * share * (1 - share))[:, None] * Z), gradient)
        size = 1.0
        while size > 1e-10 and (logistic_objective(w + size * step, Z, cost)
                                > logistic_objective(w, Z, cost) + 1e-4 * size * gradient @ step):
            size /= 2
        w = w + size * step
    assert 0.5 * gradient @ gradient <= 1e-12 * max(1, logistic_objective(w, Z, cost))
    return w


def zero_sum(pieces):
    """[min(limit, (nu - B)/A) for (limit, B, A) in pieces], the nu that makes their sum zero, in Decimals.

    The sum is concave and rises with nu: Newton's steps from the left are few and never pass the zero.
    """
    nu = min(B for _, B, _ in pieces)
    for _ in range(4 * len(pieces)):
        values = [min(limit, (nu - B) / A) for limit, B, A in pieces]
        slope = sum(1 / A for (limit, B, A), v in zip(pieces, values, strict=True) if v < limit)
        if sum(values) >= 0:
            break
        nu -= sum(values) / slope
    return values


def least_squared_block(B, y, A, q, upper, r, F):
    """(a, b) of block_problem.solve_squared_block, with 60 digits: b by bisection on the derivative, a by zero_sum."""
    B, A, q, upper, F = [Decimal(float(v)) for v in B], *(Decimal(float(v)) for v in (A, q, upper, F))

    def given(b):
        shifted = list(B)
        shifted[y] -= A * b
        if r >= 0:
            shifted[r] += A * b
        own, other = (Decimal("Infinity"), A + q), (Decimal(0), A)
        a = zero_sum([(limit, v, slope) for v, (limit, slope) in
                      ((v, own if c == y else other) for c, v in enumerate(shifted))])
        E = (2 * A if r >= 0 else A) + upper
        return a, E * b + F - A * (a[y] - (a[r] if r >= 0 else 0))

    a, slope = given(Decimal(0))
    if upper < 0 or slope >= 0:
        return a, Decimal(0)
    low, high = Decimal(0), -slope / upper
    while high - low > Decimal("1e-30") * high:
        middle = (low + high) / 2
        low, high = (middle, high) if given(middle)[1] < 0 else (low, middle)
    return given(high)[0], high


def squared_block_value(a, b, B, y, A, q, upper, r, F):
    """(value, sum of the sizes of its terms) of block_problem.solve_squared_block's objective, exactly."""
    a, b, B = [Fraction(v) for v in a], Fraction(b), [Fraction(float(v)) for v in B]
    A, q, upper, F = (Fraction(float(v)) for v in (A, q, upper, F))
    terms = [A / 2 * v * v for c, v in enumerate(a) if c != y] + [v * w for v, w in zip(a, B, strict=True)]
    terms.append((A + q) / 2 * a[y] ** 2)
    if upper >= 0:
        E = (2 * A if r >= 0 else A) + upper
        terms += [-A * (a[y] - (a[r] if r >= 0 else 0)) * b, E / 2 * b * b, F * b]
    return sum(terms), sum(map(abs, terms))


def least_hinge_block(B, y, A, cap):
    """a of block_problem.solve_hinge_block, with 60 digits."""
    A, cap = Decimal(float(A)), Decimal(float(cap))
    return zero_sum([(cap if c == y else Decimal(0), Decimal(float(v)), A) for c, v in enumerate(B)])


def least_hinge_block_by_class(B, y, A, cap):
    """a of block_problem.solve_hinge_block_by_class, with 60 digits."""
    cap = Decimal(float(cap))
    return zero_sum([(cap if c == y else Decimal(0), Decimal(float(v)), Decimal(float(w)))
                     for c, (v, w) in enumerate(zip(B, A, strict=True))])


def hinge_block_value(a, B, A):
    """A: one curvature, or one a class."""
    a, B, A = [Fraction(v) for v in a], [Fraction(float(v)) for v in B], [
        Fraction(float(v)) for v in np.broadcast_to(A, len(B))]
    terms = [w / 2 * v * v for v, w in zip(a, A, strict=True)] + [v * w for v, w in zip(a, B, strict=True)]
    return sum(terms), sum(map(abs, terms))


def random_problem(seed):
    """(X, y, k, cost): small, with what breaks naive code in turn (math.md 8)."""
    rng = np.random.default_rng(seed)
    k = 2 + seed % 5
    m = int(rng.integers(k + 2, 22 if seed % 4 else 11))
    d = int(rng.integers(1, 6)) if seed % 4 else m + 3
    X = rng.standard_normal((m, d)) * rng.choice([0.3, 1.0, 3.0])
    X[rng.random((m, d)) < 0.3] = 0
    y = np.concatenate([np.arange(k), rng.integers(0, k, m - k)])
    if seed % 2:
        X[int(rng.integers(m))] = 0  # an empty row
    if seed % 3 == 0:
        X[1], X[2] = X[0], X[0]  # duplicates, here with labels in conflict
    if seed % 5 == 1:
        X[-1], y[-1] = X[-2], y[-2]  # duplicates that agree
    if seed % 3 == 1:
        X[:, 0] = 1.0  # a constant feature
    cost = np.full(m, 10.0 ** rng.uniform(-2, 1))
    if seed % 7 == 2:
        cost *= rng.uniform(0.2, 3, m)
    return X, y, k, cost


def random_binary(seed):
    """(X, y, sign, C): as random_problem, two classes; every third with a class of a single row."""
    X, y, _, cost = random_problem(seed)
    y = y % 2
    if seed % 3 == 2:
        y[:] = 0
        y[-1] = 1
    return X, y, 2.0 * y - 1, float(cost.mean())


def shares(scores):
    """exp(s_l)/sum, by rows."""
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def pairs_objective(W, b, X, y, cost, loss, lam, p, eps, delta):
    """sum_i c_i loss(t_i) + lam sum_{j<l} ||w_j - w_l||^p + eps (||W||^2 + ||b||^2); delta = 0: the hinge itself."""
    scores = X @ W + b
    every = np.arange(len(y))
    t = scores[every, y][:, None] - scores
    rivals = np.ones_like(t, dtype=bool)
    rivals[every, y] = False
    if loss == "softmax":
        terms = np.logaddexp.reduce(-t, axis=1)
    else:
        terms = np.logaddexp(0, -t) if loss == "logistic" else (1 - t + np.sqrt((1 - t) ** 2 + delta**2)) / 2
        terms = (terms * rivals).sum(axis=1)
    k = W.shape[1]
    distances = [((W[:, j] - W[:, i]) ** 2).sum() ** 0.5 for j in range(k) for i in range(j)]
    return cost @ terms + lam * sum(r**p for r in distances) + eps * ((W**2).sum() + (b**2).sum())


def pairs_gradient(W, b, X, y, cost, loss, lam, p, eps, delta):
    scores = X @ W + b
    every = np.arange(len(y))
    t = scores[every, y][:, None] - scores
    if loss == "softmax":
        rho = shares(scores)
    elif loss == "logistic":
        rho = 1 / (1 + np.exp(t))
    else:
        rho = (1 + (1 - t) / np.sqrt((1 - t) ** 2 + delta**2)) / 2
    rho[every, y] = 0
    rho[every, y] = -rho.sum(axis=1)
    rho *= cost[:, None]
    G = X.T @ rho + 2 * eps * W
    for j in range(W.shape[1]):
        for i in range(W.shape[1]):
            away = W[:, j] - W[:, i]
            r = np.sqrt(away @ away)
            if r > 0:
                G[:, j] += lam * p * r ** (p - 2) * away
    return G, rho.sum(axis=0) + 2 * eps * b


def minimal_pairs(X, y, k, cost, loss, lam, p, eps, delta, bias=True):
    """The least value that SciPy's BFGS finds from a few starts; without `bias` b = 0."""
    d = X.shape[1]

    def split(z):
        return z[: d * k].reshape(d, k), z[d * k:] if bias else np.zeros(k)

    def value(z):
        return pairs_objective(*split(z), X, y, cost, loss, lam, p, eps, delta)

    def gradient(z):
        G, g = pairs_gradient(*split(z), X, y, cost, loss, lam, p, eps, delta)
        return np.concatenate([G.ravel(), g]) if bias else G.ravel()

    best, z = np.inf, 0.1 * np.random.default_rng(0).standard_normal((d + bias) * k)
    for _ in range(4):
        found = optimize.minimize(value, z, jac=gradient, method="BFGS", options={"gtol": 1e-10, "maxiter": 5000})
        best, z = min(best, found.fun), found.x
    return best


def minimal_ww(X, y, k, cost):
    """(W, value) of min 1/2 ||W||^2 + sum_i c_i sum_{l != y_i} (1 - t_il)_+"""
    A, of = differences(X, y, k)
    n = X.shape[1] * k
    w, value = minimal_program(np.eye(n), np.zeros(n), (-A, 1.0, cost[of], 0 * cost[of]))
    return w.reshape(-1, k), value


def minimal_topk(X, y, k, cost, K):
    """The least 1/2 ||W||^2 + sum_i c_i v_i, v_i the largest mean of K of 0 and 1 - t_il, l != y_i, and at least 0."""
    n = X.shape[1] * k
    A, at = np.zeros((len(y), k, n)), np.ones((len(y), k))
    at[np.arange(len(y)), y] = 0
    A[at > 0] = -differences(X, y, k)[0]
    some = [list(classes) for classes in combinations(range(k), K)]
    return minimal_program(np.eye(n), np.zeros(n), (
        np.vstack([A[:, classes].mean(axis=1) for classes in some]),
        np.concatenate([at[:, classes].mean(axis=1) for classes in some]), cost, 0 * cost))[1]


def msvmav_rounds(X, sign, weight, alpha, beta, rounds):
    """[w_0, w_1, ...] of math.md 4, by direct inverses, with row weights of sum 1."""
    p = weight / weight.sum()
    g0 = X.T @ (p * sign)
    found = [g0 / np.linalg.norm(g0)]
    for _ in range(rounds):
        w = found[-1]
        rho = g0 @ w
        inside = sign * (X @ w) < rho
        XI, yI, pI = X[inside], sign[inside], p[inside]
        V = np.linalg.inv(np.eye(len(w)) + XI.T @ (pI[:, None] * XI) / beta)
        z = V @ (w + rho / beta * XI.T @ (pI * yI))
        z = -z if g0 @ z < 0 else z
        u = z + g0 / (2 * alpha)
        found.append(u / np.linalg.norm(u))
    return found


def msvmav_score(w, X, sign, weight):
    """mean (1 - g_i/rho)_+^2, rho = mean g"""
    g = sign * (X @ w)
    rho = weight @ g / weight.sum()
    return weight @ np.maximum(0, 1 - g / rho) ** 2 / weight.sum()


def split(duals, m):
    """(alpha, beta) of the flat duals of m blocks."""
    duals = np.asarray(duals)
    return duals[:-m].reshape(m, -1), duals[-m:]
