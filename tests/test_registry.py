"""What every method must do: one suite, which walks the registry."""

import contextlib
import copy
import functools
import inspect
import math
import os
import pickle
import re
import signal
import threading
import time
import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import params as P
from marginlinear import registry
from marginlinear.api import fit_model
from marginlinear.data.arrays import CSR
from marginlinear.threads import default_threads

METHODS = {name: method for name, method in registry.methods().items() if method.classifies}
HOW = P.MULTICLASS.choices


@pytest.fixture(params=list(METHODS))
def method(request):
    return METHODS[request.param]


@pytest.fixture(autouse=True)
def a_cap_may_be_the_end(request):
    """Its warning is no failure of a method that promises no convergence."""
    if "method" in request.fixturenames and alternates(request.getfixturevalue("method")):
        warnings.simplefilter("ignore", ml.ConvergenceWarning)


# Fixtures of a test that wants a method and one of its routes, and of one for methods with a property.
by_route = pytest.mark.parametrize(
    "method, algorithm", [(m, route) for m in METHODS.values() for route in m.routes],
    ids=[f"{m.name}-{route}" for m in METHODS.values() for route in m.routes])


def each_method(having):
    return pytest.mark.parametrize("method", [m for m in METHODS.values() if having(m)], ids=lambda m: m.name)


def takes(method, name):
    return any(p.name == name for p in method.takes)


def finishes(method):
    """A stochastic method: it makes its epochs and promises no certificate."""
    return takes(method, "epochs")


def has_means(method):
    """Its objective has means over the rows, which class weights leave alone."""
    return takes(method, "lambda1")


def searches(method):
    """A search along a line, between fits."""
    return method.name == "msv"


def draws(method):
    """Whether the seed has an effect: on the order of the rows."""
    return "cd" in method.routes or finishes(method) or method.name == "nusvc"


def amplifies(method):
    """Conjugate gradients, searches, and lines over the kinks of a hinge on either side magnify rounding: sums in
    another order lead to other weights within the certificate."""
    return (method.joint and not method.kernels) or searches(method) or method.name == "rmm"


def has_offset(method):
    """Its bias is a variable of its own, not the weight of a feature like others."""
    return takes(method, "eps")


def loss_at_zero(method, k):
    """What W = 0 costs a row at C = 1, at most: a joint method may sum over the k - 1 rivals, corners are rounded."""
    rounding = 1e-3 if takes(method, "delta") else 0.0
    summed = method.name == "ww" or (method.joint and not method.kernels)
    return (k - 1 if summed else 1 if method.joint else 3) + rounding


def alternates(method):
    """It goes by turns on two problems, and on no one objective: no certificate, the cap may be its end, no chance."""
    return takes(method, "beta")


def cost(method, C):
    """The parameters that give C, where the method has one."""
    return {"C": C} if takes(method, "C") else {}


def few(method):
    """A part of the rows that any class has, where the method takes one."""
    return {"nu": 0.3} if takes(method, "nu") else {}


def columns(method, k):
    """Of scores of k classes."""
    if k == 2 and not method.joint:
        return 1
    return k * (k - 1) // 2 if method.defaults.get("multiclass") == "ovo" else k


def slack(info):
    """What an objective may be above another one of the same problem."""
    return info.certificate or 0.0


def endless(method):
    """Parameters with which only a cap ends a fit that is hard enough."""
    if alternates(method):
        return {"alpha": 1e15, "beta": 1e9}
    return {"epochs": 10**9} if finishes(method) else {}


@functools.cache
def one_sweep(name, newton=False):
    """Whether one sweep, or a Newton step, solves any problem: there is nothing to interrupt or to cap."""
    X, y = problem(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        # Of least squares a Newton step is the solution, no sweep is.
        route = "newton" if newton else "cd" if "cd" in METHODS[name].routes else "auto"
        return ml.train(100 * X, y, solver=name, tol=1e-9, max_iter=1, algorithm=route,
                        **cost(METHODS[name], 1e4)).info.converged


def ended(method, info):
    """The run came to the end that its method has."""
    others = ("finished",) if finishes(method) else ("finished", "max_iter", "cycle") if alternates(method) else ()
    return info.converged or info.status in others


def problem(k=3, m=60, d=5, seed=0):
    """(X, y): overlapping classes, values that float32 holds, some zeros, one empty row."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d))
    X[rng.random((m, d)) < 0.3] = 0
    X = X.astype(np.float32).astype(np.float64)
    noise = rng.standard_normal((m, k))
    y = (X @ rng.standard_normal((d, k)) + noise).argmax(axis=1)
    y[:k] = np.arange(k)
    X[m // 2] = 0
    return X, y


def assert_same(left, right):
    """The same bits, in everything but the clock."""
    assert left.weights.tobytes() == right.weights.tobytes()
    for name in ("status", "n_iter", "n_outer", "objective", "bound", "certificate", "residual", "n_support"):
        assert getattr(left.info, name) == getattr(right.info, name), name


def assert_equivalent(left, right, loose=1e-3):
    """Objectives as near as the certificates say; `loose` more where a problem may have several optima."""
    a, b = left.info, right.info
    for model in (left, right):
        assert ended(METHODS[model.solver], model.info)
    allowed = slack(a) + slack(b) + loose * max(1, abs(a.objective))
    assert abs(a.objective - b.objective) <= allowed


def convex(method, k):
    """Whether all fits of the method end at one objective."""
    return k == 2 or not method.joint or not takes(method, "mu")


def loose(method, k):
    return 1e-9 if convex(method, k) else 1e-3


def test_declaration(method):
    assert registry.get(method.name) is METHODS[method.name]
    assert method.summary and method.objective and method.reference
    names = [p.name for p in (*P.RUN, *method.params)]
    assert len(set(names)) == len(names)
    assert list(inspect.signature(method.fit).parameters) == ["problem", "params", "run"]
    if method.liblinear is not None:
        assert registry.get(method.liblinear) is registry.get(str(method.liblinear)) is METHODS[method.name]


@functools.cache
def of_csr(name):
    X, y = problem()
    return ml.train(sparse.csr_array(X), y, solver=name)


def test_storages_agree(method, storage):
    X, y = problem()
    plain = of_csr(method.name)
    other = ml.train(storage(X), y, solver=method.name)
    if amplifies(method):
        assert_equivalent(plain, other, 1e-9)
        return
    assert other.info.n_iter == plain.info.n_iter
    assert other.info.objective == pytest.approx(plain.info.objective, rel=1e-12)
    assert np.allclose(other.weights, plain.weights, rtol=1e-9, atol=1e-12)
    assert np.allclose(other.decision_function(storage(X)), plain.decision_function(X), rtol=1e-9, atol=1e-12)
    assert (other.predict(storage(X)) == plain.predict(X)).all()


@by_route
def test_compact_storages_give_the_same_bits(method, algorithm):
    X, y = problem()
    csr = sparse.csr_array(X)
    plain, *others = [
        ml.train(CSR(csr.data.astype(real), csr.indices.astype(whole), csr.indptr, X.shape[1]), y, solver=method.name,
                 algorithm=algorithm, bias=1.0)
        for real, whole in ((np.float64, np.int32), (np.float64, np.uint16), (np.float32, np.uint16))]
    for other in others:
        assert_same(plain, other)


@by_route
def test_rows_of_equal_values_give_the_same_bits(method, algorithm):
    X, y = problem()
    csr = sparse.csr_array(np.where(abs(X) > 0.5, np.linspace(0.2, 1, len(X))[:, np.newaxis], 0))
    plain = ml.train(csr, y, solver=method.name, algorithm=algorithm, bias=1.0)
    each = csr.max(axis=1).toarray().ravel()
    equal = CSR(None, csr.indices.copy(), csr.indptr.astype(np.int64), X.shape[1], equal=each)
    assert_same(plain, fit_model(equal, y, solver=method.name, algorithm=algorithm, bias=1.0, overwrite_rows=True))


def test_csr_arrays_are_not_copied_or_changed(method):
    X, y = problem()
    csr = sparse.csr_array(X)
    kept = csr.data.copy(), csr.indices.copy(), csr.indptr.copy()
    for array in (csr.data, csr.indices, csr.indptr, y):
        array.flags.writeable = False
    ml.train(csr, y, solver=method.name, sample_weight=np.linspace(0, 2, len(y)))
    for array, was in zip((csr.data, csr.indices, csr.indptr), kept, strict=True):
        assert (array == was).all()


@by_route
def test_same_seed_same_bits_for_any_threads(method, algorithm):
    # Several chunks of the passes that use threads; paper's routes may factorise an m x m matrix.
    X, y = problem(m=300 if algorithm == "paper" else 9000, d=3)
    ends = {"solver": method.name, "algorithm": algorithm, "tol": 1e-2, "seed": 3}
    first, *others = [ml.train(X, y, threads=threads, **ends) for threads in (1, 2, 5)]
    scores = first.decision_function(X, threads=1)
    for other in others:
        assert_same(first, other)
        assert other.decision_function(X, threads=5).tobytes() == scores.tobytes()


@pytest.mark.parametrize("k", [2, 3])
def test_other_seeds_same_objective(method, k):
    X, y = problem(k)
    models = [ml.train(X, y, solver=method.name, seed=seed, tol=1e-5) for seed in (0, 1, 2**64 - 1)]
    for other in models[1:]:
        moved = other.weights.tobytes() != models[0].weights.tobytes()
        assert one_sweep(method.name) or alternates(method) or moved == draws(method)
        assert_equivalent(models[0], other, loose(method, k))


@pytest.mark.parametrize("k", [2, 3])
def test_weights_are_repeated_rows(method, k, rows_as_given):
    X, y = problem(k)
    times = np.random.default_rng(1).integers(1, 4, len(y))
    weighted = ml.train(X, y, solver=method.name, sample_weight=times, tol=1e-5)
    repeated = ml.train(np.repeat(X, times, axis=0), np.repeat(y, times), solver=method.name, tol=1e-5)
    assert_equivalent(weighted, repeated, loose(method, k))


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
def test_small_data_equal_data_equal_bits(method, kind):
    """Rows in another order, repeated in place of a weight, or joined by rows of weight 0: one model."""
    X, y = problem()
    rng = np.random.default_rng(2)
    times, order = rng.integers(0, 4, len(y)), rng.permutation(len(y))
    fit = functools.partial(ml.train, solver=method.name)
    repeated = fit(kind(np.repeat(X, times, axis=0)), np.repeat(y, times))
    weighted = fit(kind(X[order]), y[order], sample_weight=times[order])
    assert_same(repeated, weighted)


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array, sparse.csc_array, np.ndarray.tolist])
def test_weight_zero_is_a_row_less(method, kind):
    X, y = problem()
    weights = np.ones(len(y))
    weights[::4] = 0
    X[::4] = 77  # would change everything
    # Sparse rows are summed in another order than dense ones.
    less = ml.train(kind(X[weights > 0]), y[weights > 0], solver=method.name)
    zero = ml.train(kind(X), y, solver=method.name, sample_weight=weights)
    if amplifies(method):
        assert_equivalent(less, zero, 1e-9)
        return
    assert zero.info.objective == pytest.approx(less.info.objective, rel=1e-12)
    assert np.allclose(zero.weights, less.weights, rtol=1e-9, atol=1e-12)


def test_a_class_of_weight_zero_is_no_class(method):
    X, y = problem(3)
    model = ml.train(X, y, solver=method.name, sample_weight=(y != 1).astype(float))
    assert model.classes.tolist() == [0, 2]


def test_class_weights_multiply_the_cost(method):
    """They are instance weights, but for the means of a method, and for what its steps draw by instance weights."""
    if searches(method):
        pytest.skip("its mean goes by the instance weights")
    X, y = problem()
    factors = {0: 0.5, 2: 3.0}
    same = assert_equivalent if has_means(method) else assert_same
    without = {**{name: 0.0 for name in ("lambda1", "lambda2") if takes(method, name)}, **few(method)}
    fit = functools.partial(ml.train, X, y, solver=method.name, **without)
    by_class = fit(class_weight=factors)
    by_row = fit(sample_weight=[factors.get(label, 1.0) for label in y])
    same(by_class, by_row)
    fit = functools.partial(ml.train, X, y, solver=method.name, **few(method))
    both = fit(class_weight=factors, sample_weight=np.full(len(y), 2.0))
    doubled = fit(class_weight={0: 1.0, 1: 2.0, 2: 6.0})
    same(both, doubled)


@by_route
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("C", [0.05, 30.0])
def test_warm_restart_stops_at_once(method, algorithm, k, C):
    X, y = problem(k)
    X, given = X + 0.5, cost(method, C)  # slow enough for the accelerator at C = 30
    cold = ml.train(X, y, solver=method.name, algorithm=algorithm, tol=1e-4, max_iter=10**6, **given)
    warm = ml.train(X, y, solver=method.name, algorithm=algorithm, tol=1e-4, **given, start=cold)
    if finishes(method):
        # More epochs, from the average on: nearer, within what is left to chance.
        assert warm.info.objective <= 1.01 * cold.info.objective
        return
    assert warm.info.converged
    assert warm.info.n_iter == 0
    assert warm.info.objective == pytest.approx(cold.info.objective, rel=1e-4)
    once_more = ml.train(X, y, solver=method.name, algorithm=algorithm, tol=1e-4, **given, start=warm)
    assert once_more.info.n_iter == 0


def test_start_is_left_as_it_was_and_helps(method):
    X, y = problem(3)
    X = X + 0.5
    start = ml.train(X, y, solver=method.name, tol=1e-4, **cost(method, 10.0))
    weights, state = start.weights.copy(), pickle.dumps(start._state.state)
    ml.train(X, y, solver=method.name, tol=1e-4, start=start, **cost(method, 12.0))
    assert (start.weights == weights).all()
    assert pickle.dumps(start._state.state) == state


def test_start_must_fit(method):
    X, y = problem()
    start = ml.train(X, y, solver=method.name, bias=-1)
    for rows, labels, bias in ((X[1:], y[1:], -1), (X[:, 1:], y, -1), (X, y % 2, -1), (X, y, 1.0)):
        if bias == 1 and method.offset:
            # It had one already.
            continue
        with pytest.raises(ValueError, match=r"^start: "):
            ml.train(rows, labels, solver=method.name, start=start, bias=bias)
    # Its weights are there, which a loss of the margin can begin with.
    known = contextlib.nullcontext() if method.loss else pytest.raises(ValueError, match=r"^start: ")
    with known:
        ml.train(X, y, solver=method.name, start=pickle.loads(pickle.dumps(start)))
    for other in set(METHODS) - {method.name}:
        with pytest.raises(ValueError, match=r"^start: "):
            ml.train(X, y, solver=other, start=start)


def test_start_with_other_labels_is_refused(method):
    """The sign of a dual belongs to the label of its row: under another one the bound would be no bound."""
    X, y = problem()
    start = ml.train(X, y, solver=method.name)
    with pytest.raises(ValueError, match=r"^start: .*labels"):
        ml.train(X, np.roll(y, 1), solver=method.name, start=start)


@by_route
def test_max_iter_says_so(method, algorithm):
    X, y = problem()
    if one_sweep(method.name, algorithm == "newton"):
        assert ml.train(X, y, solver=method.name, algorithm=algorithm, max_iter=1, tol=1e-6).info.converged
        return
    criterion = "residual" if alternates(method) else "certificate"
    words = (rf"^{method.name} did not converge \(max_iter\): {criterion} .* of objective .*, "
             r"tolerance 1e-06, after 1 sweeps; .*max_iter")
    with pytest.warns(ml.ConvergenceWarning, match=words):
        model = ml.train(X, y, solver=method.name, algorithm=algorithm, max_iter=1, tol=1e-6)
    assert (model.info.status, model.info.reason) == ("max_iter", "sweeps")
    entries = [model.info.to_dict(), *model.info.history]
    assert not [value for entry in entries for value in entry.values() if isinstance(value, np.generic)]
    assert not model.info.converged
    assert model.info.n_iter == 1
    name, value, limit = model.info.criterion
    assert name == criterion
    assert value > limit


@each_method(lambda m: not one_sweep(m.name))
def test_time_limit_says_so(method):
    X, y = problem(m=3000, d=20)
    quick = amplifies(method) or takes(method, "l1_ratio") or few(method)
    limit = 1e-3 if quick else 0.15  # a few Newton steps end any fit
    began = time.perf_counter()
    with pytest.warns(ml.ConvergenceWarning, match="time_limit"):
        model = ml.train(X * 100, y, solver=method.name, tol=1e-12, time_limit=limit, **cost(method, 1e4),
                         max_iter=10**9, algorithm="cd" if "cd" in method.routes else "auto", **endless(method))
    assert model.info.status == "time_limit"
    assert limit <= model.info.seconds <= time.perf_counter() - began < 2
    assert alternates(method) or model.info.bound <= model.info.objective


def test_info_and_history(method):
    X, y = problem()
    seen = []
    model = ml.train(X, y, solver=method.name, tol=1e-6, callback=seen.append, **cost(method, 10.0))
    info = model.info
    assert ended(method, info) and info.converged == (info.status == "converged")
    assert info.tol == 1e-6
    assert info.algorithm
    if alternates(method):
        assert info.certificate is info.bound is None
    else:
        assert info.certificate == info.objective - info.bound
    assert 0 < info.n_support <= len(y)
    assert info.seconds > 0
    assert [check.entry() for check in seen] == info.history and len(seen) >= 2
    seen = info.history
    for entry in info.history:
        assert set(entry) == {"n_iter", "seconds", "objective", "bound", "certificate", "residual",
                              *([] if method.joint else ["columns"])}
        assert np.isfinite([value for value in entry.values() if value is not None]).all()
    assert all(a["n_iter"] <= b["n_iter"] and a["seconds"] <= b["seconds"]
               for a, b in pairwise(seen))
    last = seen[-1]
    for name in ("n_iter", "objective", "bound", "certificate", "residual"):
        assert last[name] == getattr(info, name), name
    assert info.to_dict()["history"] == seen
    assert {k: v for k, v in model.params.items() if k in ("tol", "seed", "algorithm")} == {
        "tol": 1e-6, "seed": 0, "algorithm": "auto"}
    assert model.params.get("C", 10.0) == 10.0


@functools.cache
def large():
    X, y = problem(m=30_000, d=60)
    return 100 * X, y


@each_method(lambda m: not one_sweep(m.name))
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_is_seen_at_once(method, threads):
    """While one sweep takes long."""
    X, y = large()
    with looks(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        ml.train(X, y, solver=method.name, tol=1e-12, threads=threads, time_limit=0.1, **cost(method, 1e4),
                 max_iter=10**9, algorithm="cd" if "cd" in method.routes else "auto", **endless(method))


@pytest.mark.parametrize("name, m, d, options", [
    ("ww", 1000, 1000, {}),
    ("ldm", 2000, 5, {"algorithm": "paper"}),
    ("msvmav", 4000, 5, {"kernel": "linear"}),
], ids=lambda value: str(value))
def test_ctrl_c_is_seen_while_large_matrices_are_worked(name, m, d, options):
    X, y = problem(2, m=m, d=d)
    with looks(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        ml.train(X, y, solver=name, threads=1, **{"time_limit": 0.5, **options})


def test_ctrl_c_is_seen_while_predicting():
    X, y = problem(100, m=100, d=4000)
    model = ml.train(X, y, solver="softmax", tol=1.0)
    X = np.tile(X, (41, 1))
    with looks():
        model.predict(X, threads=1)


@contextlib.contextmanager
def looks():
    """Nothing within it takes more than 0.2 s of each core's time between two looks at the signals.

    A timer asks for a look every few ms; the machine's other work is not counted. With every index checked all takes
    several times as long.
    """
    last, longest = time.process_time(), 0.0

    def look(number, frame):
        nonlocal last, longest
        last, since = time.process_time(), last
        longest = max(longest, last - since)

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, 0.005, 0.005)
    try:
        yield
        look(None, None)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    checked = os.environ.get("MARGINLINEAR_BOUNDS", "0") not in ("", "0")
    assert longest < 0.2 * default_threads() * (4 if checked else 1)


@by_route
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("ends", [{"max_iter": 1}, {"max_iter": 2}, {"max_iter": 3}, {"max_iter": 300},
                                  {"time_limit": 1e-6}, {"time_limit": 0.02}], ids=str)
def test_every_loop_ends(method, algorithm, k, ends):
    """At tolerances that rounding alone may keep a certificate from: by a cap, by the clock, or as stalled."""
    X, y = problem(k, m=40)
    for tol in (1e-15, 1e-300):
        with at_most(10), warnings.catch_warnings():
            warnings.simplefilter("ignore", ml.ConvergenceWarning)
            info = ml.train(X, y, solver=method.name, algorithm=algorithm, tol=tol,
                            **{"max_iter": 10**9, **endless(method), **ends}).info
        assert info.n_iter <= ends.get("max_iter", math.inf)
        assert info.status in ("converged", "stalled", *ends, "finished", "cycle")


@contextlib.contextmanager
def at_most(seconds):
    """Of the process's own time: a TimeoutError within it."""
    def stop(number, frame):
        raise TimeoutError(f"no end within {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def test_an_error_in_a_callback_comes_through(method):
    def callback(check):
        raise KeyError("mine")

    X, y = problem()
    with pytest.raises(KeyError, match="mine"):
        ml.train(X, y, solver=method.name, callback=callback)


def test_pickle_and_copy(method):
    X, y = problem()
    model = ml.train(X, np.array(["a", "b", "c"])[y], solver=method.name, bias=1.0)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert (other.predict(X) == model.predict(X)).all()
        assert other.decision_function(X).tobytes() == model.decision_function(X).tobytes()
        assert other.info == model.info
        assert other.params == model.params
        assert (other.solver, other.bias) == (model.solver, model.bias)
        assert (other.classes == model.classes).all()


@pytest.mark.parametrize("bias", [1.0, 0.25, 0.0])
@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
def test_bias_is_a_constant_feature(method, bias, kind):
    if has_offset(method) or method.offset:
        pytest.skip("its bias is no feature")
    X, y = problem()
    appended = np.hstack([X, np.full((len(y), 1), bias)])
    # Lines that are searched around a centre have kinks of hinges on them: rounding decides where within the tolerance.
    lines = method.name in ("l1svc", "ldm", "msv", "rmm")
    tol = {"tol": 1e-9} if lines else {}
    by_bias = ml.train(kind(X), y, solver=method.name, bias=bias, **tol)
    by_column = ml.train(kind(appended), y, solver=method.name, bias=-1, **tol)
    if lines:
        objective = by_column.info.objective
        assert by_bias.info.converged and by_column.info.converged
        assert by_bias.info.objective == pytest.approx(objective, rel=1e-9)
        # P grows by half the squared distance from the optimum at least.
        assert np.linalg.norm(by_bias.weights - by_column.weights) <= 2 * np.sqrt(2e-9 * abs(objective))
    else:
        assert by_bias.info.objective == pytest.approx(by_column.info.objective, rel=1e-12)
        assert np.allclose(by_bias.weights, by_column.weights, rtol=1e-9, atol=1e-12)
    assert by_bias.n_features == X.shape[1]
    assert by_bias.coef.shape == (len(by_bias.classes), X.shape[1])
    scores = X @ by_bias.coef.T + by_bias.intercept
    assert np.allclose(by_bias.decision_function(kind(X)), scores, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("labels", [
    np.array([3, 7, 100]), np.array([-5, -1, 0]), np.array([2**40, -(2**60), 5]),
    np.array([0.5, -1.25, 1e300]), np.array(["b", "a", "żółw"]), np.array([3, 7, 9], dtype=np.uint8),
    np.array([1, 5, 2], dtype=np.float32),
], ids=lambda v: f"{v.dtype}-{v[0]}")
@pytest.mark.parametrize("name", ["cs", "l2svc"])
def test_labels(name, labels):
    """What a method sees of them are the numbers of their classes."""
    X, y = problem()
    plain = ml.train(X, np.argsort(np.argsort(labels))[y], solver=name)
    model = ml.train(X, labels[y], solver=name)
    assert model.weights.tobytes() == plain.weights.tobytes()
    assert (model.classes == np.sort(labels)).all()
    assert model.classes.dtype.kind == labels.dtype.kind
    assert set(model.predict(X)) <= set(labels)
    assert (model.predict(X) == np.sort(labels)[plain.predict(X)]).all()
    as_list = ml.train(X, labels[y].tolist(), solver=name)
    as_objects = ml.train(X, labels[y].astype(object), solver=name)
    assert (as_list.predict(X) == as_objects.predict(X)).all()
    assert np.allclose(model.margins(X, labels[y]), plain.margins(X, np.argsort(np.argsort(labels))[y]))


def awkward():
    rng = np.random.default_rng(9)
    X, y = problem(4, m=40)
    one = np.array([0] * 20 + [1] * 19 + [2])
    return {
        "empty rows": (np.where(np.arange(40)[:, None] % 3 == 0, 0, X), y),
        "all rows empty": (np.zeros((6, 3)), np.arange(6) % 3),
        "duplicated rows": (np.repeat(X[:10], 4, axis=0), y),
        "duplicates that agree": (np.repeat(X[:10], 4, axis=0), np.repeat(np.arange(10) % 4, 4)),
        "constant features": (np.hstack([X[:, :2], np.ones((40, 3))]), y),
        "all rows alike": (np.ones((12, 2)), np.arange(12) % 3),
        "more features than rows": (rng.standard_normal((12, 300)), np.arange(12) % 4),
        "a class with one row": (X, one),
        "a class a row": (X[:6], np.arange(6)),
        "two rows": (X[:2], np.array([0, 1])),
        "scale 30": (X * np.array([1, 30, 1, 1e-3, 1]), y),
        "tiny": (X * 1e-9, y),
        "underflow": (X * 1e-200, y),
        "separable": (np.vstack([np.eye(4) * 5] * 10), np.tile(np.arange(4), 10)),
        "many classes": (rng.standard_normal((30, 4)), np.arange(30) % 12),
    }


@pytest.mark.parametrize("name", awkward())
@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_awkward_data(method, name, bias):
    """Every fit ends converged, with a valid bound, in both storages."""
    X, y = awkward()[name]
    if alternates(method) and bias < 0 and not X.any():
        with pytest.raises(ValueError, match="mean of y_i x_i over the rows is 0"):
            ml.train(X, y, solver=method.name, bias=bias)
        return
    if few(method) and name == "a class with one row":
        with pytest.raises(ValueError, match="more than twice the part of the smaller class: give at most 0"):
            ml.train(X, y, solver=method.name, bias=bias)
        return
    dense = ml.train(X, y, solver=method.name, bias=bias, time_limit=10)
    assert ended(method, dense.info)
    assert np.isfinite(dense.weights).all()
    if bias < 0 and X.shape[1]:
        sparse_model = ml.train(sparse.csr_array(X), y, solver=method.name, bias=bias, time_limit=10)
        apart = abs(sparse_model.info.objective - dense.info.objective)
        # Rounds that do not settle may drive apart what rounding has made different.
        assert alternates(method) or apart <= 1e-9 + max(slack(sparse_model.info), slack(dense.info))
    k = len(np.unique(y))
    assert dense.decision_function(X).reshape(len(y), -1).shape == (len(y), columns(method, k))


def test_a_bias_alone_is_a_feature(method):
    """Without features a bias still tells the frequent class from the others."""
    if method.offset:
        pytest.skip("it has no weight")
    y = np.array([0, 1, 1, 1, 2])
    model = ml.train(np.zeros((5, 0)), y, solver=method.name, bias=1.0)
    assert model.predict(np.zeros((2, 0))).tolist() == [1, 1]


@by_route
def test_badly_scaled_features(method, algorithm):
    """||x_i||^2 from 1e-6 to 1e6: a fit that does not get there says so, with a bound that holds."""
    X, y = problem(3, m=40)
    X = X * np.array([1, 1e3, 1, 1e-3, 1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = ml.train(X, y, solver=method.name, algorithm=algorithm, time_limit=0.1, max_iter=10**9)
    if any(issubclass(warning.category, ml.ConvergenceWarning) for warning in caught):
        assert model.info.status == "time_limit"
    else:
        assert ended(method, model.info), model.info
    assert all(w.category is ml.ConvergenceWarning for w in caught)
    if alternates(method):
        assert np.isfinite(model.weights).all()
        return
    assert model.info.bound <= model.info.objective + 1e-9 * max(1, abs(model.info.objective))
    # All rows at a loss of 1, or of (1 - theta)^2/(1 - theta)^2, is what W = 0 costs: in every binary problem.
    assert model.info.bound <= len(y) * loss_at_zero(method, 3)


def test_eight_fits_at_once(method):
    """Nothing is global: fits in threads give the serial bits."""
    jobs = [problem(3, m=200, seed=seed) for seed in range(8)]

    def fit(job, seed):
        return ml.train(*job, solver=method.name, seed=seed, bias=1.0, threads=2, **cost(method, 10.0))

    serial = [fit(job, seed) for seed, job in enumerate(jobs)]
    found = [None] * 8

    def work(at):
        found[at] = fit(jobs[at], at)

    workers = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for one, other in zip(serial, found, strict=True):
        assert_same(one, other)


def test_parameters_are_refused_by_name(method):
    """Each parameter that the method takes: a value outside its domain names it, the value and the domain."""
    X, y = problem(m=12)
    checked = 0
    for param in (*P.RUN, *method.params):
        wrong = [object()]
        if param.choices:
            wrong.append("no such word")
        elif param.domain:
            low, high = (end.strip() for end in param.domain[1:-1].split(","))
            wrong += [float("nan"), "1"]
            wrong += [param.type(low) - 1] if "inf" not in low else [-float("inf")]
            wrong += [param.type(high) + 1] if "inf" not in high else [float("inf")]
            wrong += [param.type(low)] if param.domain[0] == "(" and "inf" not in low else []
        for value in wrong:
            with pytest.raises(ValueError) as refusal:
                ml.train(X, y, solver=method.name, **{param.name: value})
            text = str(refusal.value)
            assert text.startswith(param.name.rstrip("_") + " = ")
            assert repr(value) in text
            assert param.allowed in text
            checked += 1
    assert checked >= 3 * len(P.RUN)


def test_unknown_parameter(method):
    X, y = problem(m=12)
    with pytest.raises(TypeError, match=f"{method.name} has no parameter 'gamma_ray'.*{method.params[0].name}"):
        ml.train(X, y, solver=method.name, gamma_ray=1)


def test_bad_input(method):
    X, y = problem(m=12)
    with_nan = X.copy()
    with_nan[3, 1] = np.nan
    cases = [
        ((X, np.zeros(12)), {}, "needs at least 2 classes, y.* has 1"),
        ((with_nan, y), {}, "row 3, feature 1 is nan"),
        ((sparse.csr_array(with_nan), y), {}, "row 3, feature 1 is nan"),
        ((X, y[1:]), {}, "12 rows, y has 11"),
        ((X, y[:, None]), {}, "y has 2 dimensions"),
        ((X[0], y), {}, "two dimensions"),
        ((X[:0], y[:0]), {}, "no rows"),
        ((X[:, :0], y), {"bias": -1}, "0 features"),
        ((sparse.csr_array(X[:, :0]), y), {"bias": -1}, "0 features"),
        ((X + 1j, y), {}, "complex"),
        ((X.astype(str), y), {}, "numbers are needed"),
        ((X, np.where(y == 0, np.nan, y)), {}, "nan is not finite"),
        ((X, np.where(y == 0, np.inf, y)), {}, "inf is not finite"),
        ((X, np.where(y == 0, np.nan, y).astype(object)), {}, "nan is not finite"),
        ((X, np.array([None, *y[1:]])), {}, "row 0 has no label, but None"),
        ((X, np.array(["a", *y[1:]], dtype=object)), {}, "labels must be all numbers or all strings"),
        ((X, y), {"sample_weight": np.ones(11)}, r"sample_weight has shape \(11,\)"),
        ((X, y), {"sample_weight": np.ones((12, 1))}, "sample_weight has shape"),
        ((X, y), {"sample_weight": -np.ones(12)}, r"sample_weight\[0\] = -1"),
        ((X, y), {"sample_weight": np.full(12, np.nan)}, r"sample_weight\[0\] = nan"),
        ((X, y), {"sample_weight": np.full(12, np.inf)}, r"sample_weight\[0\] = inf"),
        ((X, y), {"sample_weight": np.zeros(12)}, "zero for all rows"),
        ((X, y), {"sample_weight": (y == 0).astype(float)}, "its rows of weight 0 left out, has 1"),
        ((X, y), {"class_weight": {0: 0.0}}, r"class_weight\[0\] = 0.0 is not allowed"),
        ((X, y), {"class_weight": {0: -1}}, r"class_weight\[0\]"),
        ((X, y), {"class_weight": {0: np.inf}}, r"class_weight\[0\]"),
        ((X, y), {"class_weight": {0: "2"}}, r"class_weight\[0\]"),
        ((X, y), {"class_weight": {0: None}}, r"class_weight\[0\]"),
    ]
    for arguments, options, words in cases:
        with pytest.raises(ValueError, match=words):
            ml.train(*arguments, solver=method.name, **{"bias": -1.0, **options})


def test_unknown_class_in_class_weight(method):
    X, y = problem()
    with pytest.warns(UserWarning, match="class label 17"):
        model = ml.train(X, y, solver=method.name, class_weight={17: 2.0})
    assert_same(model, ml.train(X, y, solver=method.name))


def test_names_and_parameters_are_listed_beside_the_methods():
    from marginlinear import params

    assert list(registry.methods()) == list(registry.MODULES) and registry.DEFAULT == "mcodm"

    def typed(declared):
        return {(p.name, p.flag, p.letter, p.type) for p in declared}

    assert typed(params.OWN) == typed(p for method in registry.methods().values() for p in method.takes)


def test_a_name_imports_one_method():
    import subprocess
    import sys

    code = ("import sys, marginlinear.registry as r; r.get('l1svc')\n"
            "seen = sys.modules\n"
            "assert 'marginlinear.methods.l1svc' in seen and 'marginlinear.algorithms.pairwise' not in seen")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_start_up_price():
    """Listing the methods and their parameters imports no NumPy."""
    import subprocess
    import sys

    code = "import sys, marginlinear.registry as r; r.methods(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["nonsense", "", 99, None, "MCODM"])
def test_unknown_solver(name):
    with pytest.raises(ValueError, match=r"solver = .* is not known.*: give mcodm, "):
        registry.get(name)


@each_method(lambda m: "accelerated" in m.routes)
def test_a_runaway_of_the_accelerator_ends_in_plain_sweeps(method):
    """Unscaled features and a large C: extrapolation diverged to infinity, and inf was called converged."""
    rng = np.random.default_rng(7)
    X = rng.integers(0, 200, (200, 24)) * np.array([1.0, 10.0] * 12)
    y = (X @ rng.standard_normal(24) + 300 * rng.standard_normal(200) > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        model = ml.train(X, y, solver=method.name, C=1e4, algorithm="accelerated", max_iter=3000)
    info = model.info
    assert np.isfinite(model.weights).all()
    assert np.isfinite([info.objective, info.bound]).all()
    assert info.status in ("converged", "max_iter")
    assert info.certificate >= -1e-9 * max(1, abs(info.objective))
    assert all(np.isfinite(check["bound"]) for check in info.history)


@each_method(lambda m: m.kernels)
@pytest.mark.parametrize("bias", [-1.0, 1.0])
@pytest.mark.parametrize("k", [2, 3])
def test_the_linear_kernel_is_the_linear_method(method, k, bias):
    """Also as a precomputed one: the same scores."""
    if not convex(method, k):
        pytest.skip("several optima")
    X, y = problem(k, m=40)
    rounds = 20 if alternates(method) else 20_000
    ends = {"solver": method.name, "tol": 1e-13, "max_iter": rounds, "bias": bias, **cost(method, 0.3)}
    with warnings.catch_warnings():
        # Rounding may come before such a tolerance.
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        linear = ml.train(X, y, **ends).decision_function(X)
        by_kernel = ml.train(X, y, kernel="linear", **ends).decision_function(X)
        by_gram = ml.train(X @ X.T, y, kernel="precomputed", **ends).decision_function(X @ X.T)
    assert np.allclose(by_kernel, linear, rtol=1e-6, atol=1e-6 * abs(linear).max())
    assert np.allclose(by_gram, linear, rtol=1e-6, atol=1e-6 * abs(linear).max())


@each_method(lambda m: not m.joint)
@pytest.mark.parametrize("how", HOW)
def test_several_classes(method, how, tmp_path):
    """The same bits for any threads; a model file gives the scores back."""
    if few(method) and how != "ovo":
        pytest.skip("where one side has few rows, nu is too small to tell them from the others")
    X, y = problem(4, m=80)
    ends = {"solver": method.name, "multiclass": how, "bias": 1.0, "seed": 2}
    model = ml.train(X, y, threads=1, **ends)
    assert_same(model, ml.train(X, y, threads=2, **ends))
    scores = model.decision_function(X)
    assert scores.shape == (len(y), {"ovr": 4, "ovo": 6, "ecoc": 7}[how])
    assert model.weights.shape == (X.shape[1] + 1, scores.shape[1])
    if model.codes is None:
        assert how == "ovr"
        expected = scores.argmax(axis=1)
    else:
        votes = np.where(scores > 0, 1, -1)
        expected = np.argmin([(votes * word < 0).sum(axis=1) for word in model.codes], axis=0)
    assert (model.predict(X) == expected).all()
    assert (model.predict(X) == y).mean() > 0.5
    ml.save_model(model, tmp_path / "model")
    loaded = ml.load_model(tmp_path / "model")
    assert loaded.decision_function(X).tobytes() == scores.tobytes()
    assert (loaded.predict(X) == expected).all()


@each_method(lambda m: not m.joint and m.kernels)
@pytest.mark.parametrize("how", HOW)
def test_several_classes_over_a_kernel(method, how):
    X, y = problem(3, m=40)
    ends = {"solver": method.name, "multiclass": how, "kernel": "rbf", "gamma": 0.5}
    model = ml.train(X, y, threads=1, **ends)
    assert_same(model, ml.train(X, y, threads=2, **ends))
    assert (model.predict(X) == y).mean() > 0.6


@pytest.mark.parametrize("k", [2, 3])
def test_the_bound_holds_after_any_number_of_sweeps(method, k):
    """Also before the first one, where a dual of 0 may be out of its range: there is no bound then, and no optimum."""
    X, y = problem(k, m=24, d=4)
    given = {"lambda1": 0.0, "lambda2": 500.0} if has_means(method) else {}
    known = {**given, **cost(method, 3.0), **few(method)}
    same = "ldm" if finishes(method) else method.name
    for kernel in (None, "rbf") if method.kernels else (None,):
        for how in (None,) if k == 2 or method.joint else HOW:
            ends = {**known, **({"kernel": kernel} if kernel else {}), **({"multiclass": how} if how else {})}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ml.ConvergenceWarning)
                least = ml.train(X, y, solver=same, tol=1e-8, **ends).info
                found = [ml.train(X, y, solver=method.name, algorithm=route, **cap, **ends).info
                         for route in method.routes if not (kernel and route == "newton")
                         for cap in ({"time_limit": 1e-9}, {"max_iter": 1}, {"max_iter": 2})]
            for info in found:
                assert info.status != "failed"
                if alternates(method):
                    continue
                near = 1e-7 * max(1, abs(least.objective))
                assert info.certificate == info.objective - info.bound
                assert info.bound <= least.objective + near
                assert not info.converged or info.objective <= least.objective + near + info.tol * max(
                    k, abs(info.objective)) or not convex(method, k)


LARGE = [1e-300, 1e75, 1e150, 1e200, 1e300]


def assert_finite_or_refused(X, y, **ends):
    """A Model has finite weights; no score is NaN. What cannot be had is refused by what is too large."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        try:
            model = ml.train(X, y, **ends)
            scores = model.decision_function(X)
        except ValueError as error:
            assert re.search("overflow|not finite|too large|mean of y_i x_i", str(error)), error
            return
    assert np.isfinite(model.weights).all()
    assert not np.isnan(scores).any()
    info = model.info
    assert np.isfinite(info.objective)
    assert info.status != "failed"
    assert info.bound is None or info.bound <= info.objective + 1e-9 * max(1, abs(info.objective))


@pytest.mark.parametrize("scale", LARGE)
@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_values_too_large_to_be_summed(method, scale, bias):
    """One row a class, and a few."""
    rng = np.random.default_rng(0)
    for m in (2, 12):
        X, y = scale * rng.standard_normal((m, 3)), np.arange(m) % 2
        for data in (X, sparse.csr_array(X)):
            assert_finite_or_refused(data, y, solver=method.name, bias=bias, max_iter=30)
        for kernel in ("linear", "rbf", "poly") if method.kernels else ():
            assert_finite_or_refused(X, y, solver=method.name, kernel=kernel, bias=bias, max_iter=30)


@by_route
@pytest.mark.parametrize("scale", [1.0, 1e75])
def test_costs_too_large_to_be_summed(method, algorithm, scale):
    rng = np.random.default_rng(0)
    X, y = scale * rng.standard_normal((12, 3)), np.arange(12) % 3
    assert_finite_or_refused(X, y, solver=method.name, algorithm=algorithm, max_iter=100, **cost(method, 1e300))


@each_method(lambda m: any(p.name == "C" for p in m.params))
def test_squares_that_overflow_are_said_so(method):
    X, y = problem(2)
    with pytest.raises(ValueError, match=r"^X: the squares of row \d+'s values overflow when summed: scale"):
        ml.train(X * 1e160, y, solver=method.name)


@pytest.mark.parametrize("k", [2, 3])
def test_more_features_than_the_machine_holds_are_named(method, k, monkeypatch):
    """By what all methods need, before it is tried, and by what one asks for in vain."""
    columns = np.full(2 * k, 2**31 - 2)
    wide = sparse.csr_array((np.ones(2 * k), columns, np.arange(2 * k + 1)), shape=(2 * k, 2**31 - 1))
    with pytest.raises(MemoryError, match=r"^2147483647 features need \d+\.\d GiB for 3 arrays .* machine has"):
        ml.train(wide, np.arange(2 * k) % k, solver=method.name)

    def greedy(*_):
        raise MemoryError("no room for an array of 7.0 GiB")

    monkeypatch.setattr(registry, "get", lambda _: method._replace(fit=greedy, loss=None))
    with pytest.raises(MemoryError, match=r"^a fit of 5 features with \d columns of weights: no room for an array"):
        ml.train(*problem(k), solver=method.name, bias=1.0)
