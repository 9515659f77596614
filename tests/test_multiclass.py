"""Binary methods on several classes: the codes, the columns, and how they run together."""

import itertools
import threading
import time
import warnings

import numpy as np
import pytest

import marginlinear as ml
from marginlinear import registry
from marginlinear.algorithms import multiclass
from marginlinear.data.arrays import as_rows
from marginlinear.data.codes import codes_of, column_count
from marginlinear.params import resolve
from marginlinear.problem import Problem, Run, Solution
from marginlinear.threads import Cancelled, in_order


def problem(k=5, m=200, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d))
    y = (X @ rng.standard_normal((d, k)) + rng.standard_normal((m, k))).argmax(axis=1)
    y[:k] = np.arange(k)
    return X, y


def nearest(codes):
    """The least Hamming distance of two classes."""
    apart = (codes[:, None] != codes[None]).sum(axis=2)
    return apart[~np.eye(len(codes), dtype=bool)].min()


@pytest.mark.parametrize("k", [3, 4, 7, 8, 9, 20, 105])
@pytest.mark.parametrize("how", ["ovr", "ovo", "ecoc"])
def test_codes(how, k):
    codes = codes_of(how, k, 0)
    assert codes.dtype == np.int8
    assert codes.shape == (k, column_count(how, k))
    # Both sides of every column have a class, and no two columns are one problem.
    assert ((codes == 1).any(axis=0) & (codes == -1).any(axis=0)).all()
    first = [column[np.flatnonzero(column)[0]] for column in codes.T]
    assert len({column.tobytes() for column in (codes * first).T}) == codes.shape[1]
    assert len({word.tobytes() for word in codes}) == k


def test_codes_in_full():
    assert codes_of("ovr", 3, 0).tolist() == [[1, -1, -1], [-1, 1, -1], [-1, -1, 1]]
    assert codes_of("ovo", 4, 0).tolist() == [
        [1, 1, 1, 0, 0, 0], [-1, 0, 0, 1, 1, 0], [0, -1, 0, -1, 0, 1], [0, 0, -1, 0, -1, -1]]
    assert codes_of("ecoc", 3, 0).tolist() == [[1, 1, 1], [-1, -1, 1], [-1, 1, -1]]


def test_random_codes():
    """The same for a seed, others for another one, and far apart: single draws are nearer."""
    codes = codes_of("ecoc", 12, 5)
    assert (codes == codes_of("ecoc", 12, 5)).all()
    assert not np.array_equal(codes, codes_of("ecoc", 12, 6))
    assert set(np.unique(codes)) == {-1, 1}
    singles = [nearest(np.random.default_rng(s).choice([-1, 1], codes.shape)) for s in range(50)]
    assert nearest(codes) > np.median(singles)
    # PCG64's bits are NumPy's promise: a model's codes are those of any other machine.
    assert codes_of("ecoc", 8, 0)[:, :4].T.tolist() == [
        [1, -1, 1, 1, 1, -1, -1, 1], [1, 1, 1, -1, -1, 1, -1, 1], [1, -1, 1, -1, -1, -1, 1, 1],
        [1, 1, -1, -1, -1, 1, -1, -1]]


@pytest.mark.parametrize("solver", ["l2svc", "ldm", "odm", "ldm-asgd"])
@pytest.mark.parametrize("how", ["ovr", "ovo", "ecoc"])
def test_columns_are_binary_fits(solver, how, rows_as_given):
    """With the weights of rows and classes: to the last bit, where columns are not swept together, else to within the
    tolerance."""
    X, y = problem()
    rng = np.random.default_rng(1)
    weights, factors = rng.uniform(0.5, 2, len(y)), {0: 2.0, 3: 0.5}
    model = ml.train(X, y, solver=solver, multiclass=how, sample_weight=weights, class_weight=factors, threads=2)
    codes = codes_of(how, 5, 0)
    objective = bound = 0.0
    support = np.zeros(len(y), dtype=bool)
    for at, word in enumerate(codes.T):
        part = word[y] != 0
        binary = Problem(
            as_rows(X[part], -1.0), (word[y[part]] > 0).astype(np.int32), 2, weights[part],
            np.array([factors.get(label, 1.0) for label in y[part]]))
        method = registry.get(solver)
        values = resolve(method.params, {})
        run = Run(tol=1e-3, algorithm="auto", max_iter=20_000, time_limit=None, seed=0, threads=1)
        single = method.fit(binary, values, run)
        column, duals = np.asarray(single.weights)[:, 0], np.asarray(single.state["duals"])
        if how != "ovo" and method.loss is not None:
            signs = np.where(binary.y == 1, 1.0, -1.0)
            value = value_at(method.loss(binary, values), signs, X, model.weights[:, at])
            assert value <= single.info.bound + 2e-3 * single.info.objective
            continue
        assert model.weights[:, at].tobytes() == column.tobytes()
        objective, bound = objective + single.info.objective, bound + single.info.bound
        support[np.flatnonzero(part)[duals != 0]] = True
    assert len(model.info.history) == codes.shape[1]
    if how == "ovo" or method.loss is None:
        assert model.info.objective == objective
        assert model.info.bound == bound
        assert model.info.n_support == support.sum()


def value_at(loss, signs, X, w):
    """P(w) of a loss as Method.loss gives it."""
    cost, (knots, parts) = loss
    margins = signs * (X @ w)
    quad, slope, level = np.array(parts)[np.searchsorted(knots, margins)].T
    return w @ w / 2 + cost @ ((quad / 2 * margins + slope) * margins + level)


@pytest.mark.parametrize("solver", ["l1svc", "l2svc", "lssvm", "odm", "mamc"])
@pytest.mark.parametrize("k", [3, 8, 9, 20])
def test_columns_swept_together(solver, k, rows_as_given):
    """The same bits for any number of threads, and one certificate for all: the sum of the columns' own."""
    X, y = problem(k, m=400)
    models = [ml.train(X, y, solver=solver, threads=threads, bias=1.0) for threads in (1, 2, 5)]
    assert len({model.weights.tobytes() for model in models}) == 1
    info = models[0].info
    assert info.converged
    assert info.history == [entry | {"seconds": own["seconds"]} for own, entry in zip(
        info.history, models[2].info.history, strict=True)]
    whole, method = np.hstack([X, np.ones((len(y), 1))]), registry.get(solver)
    loss = method.loss(Problem(None, y, k, np.ones(len(y)), np.ones(len(y))), resolve(method.params, {}))
    total = sum(value_at(loss, np.where(y == at, 1.0, -1.0), whole, models[0].weights[:, at]) for at in range(k))
    assert total == pytest.approx(info.objective, rel=1e-12)


def test_what_takes_long_goes_on_by_itself():
    """Columns that promise a long run are those of a descent of their own, and the sweeps of both count."""
    X, y = problem(m=600)
    model = ml.train(X * 30, y, solver="l1svc", C=100.0, tol=1e-6)
    assert model.info.converged
    assert model.info.algorithm in ("accelerated", "newton", "accelerated, newton")
    assert model.info.n_iter > 4
    again = ml.train(X * 30, y, solver="l1svc", C=100.0, tol=1e-6, start=model)
    assert again.info.n_iter == 0


def test_rows_of_zeros():
    X, y = problem(m=100)
    X[:20] = 0
    for solver in ("l1svc", "l2svc", "odm"):
        assert ml.train(X, y, solver=solver).info.converged


def test_weights_exist_once():
    """What a warm start needs of them are views of the model's own."""
    X, y = problem()
    model = ml.train(X, y, solver="l2svc")
    for column in model._state.state["columns"]:
        assert np.shares_memory(column["W"], model.weights)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_callback_is_called_by_the_caller_in_order(threads):
    X, y = problem()
    calls = []
    model = ml.train(X, y, solver="l1svc", threads=threads, multiclass="ovo",
                     callback=lambda check: calls.append((threading.current_thread(), check.entry())))
    assert {thread for thread, _ in calls} == {threading.current_thread()}
    assert [entry for _, entry in calls] == model.info.history
    assert len(calls) == 10


def test_the_worst_status_is_told():
    X, y = problem()
    with pytest.warns(ml.ConvergenceWarning, match="max_iter"):
        model = ml.train(X, y, solver="l1svc", tol=1e-12, C=100.0, max_iter=3)
    assert model.info.status == "max_iter"
    assert model.info.n_iter == 3
    assert model.info.certificate == model.info.objective - model.info.bound


@pytest.mark.parametrize("threads", [1, 2])
def test_the_time_limit_is_that_of_all_columns(threads):
    X, y = problem(k=8, m=4000, d=20)
    began = time.perf_counter()
    with pytest.warns(ml.ConvergenceWarning, match="time_limit"):
        model = ml.train(X * 100, y, solver="l1svc", C=1e4, tol=1e-12, time_limit=0.2, max_iter=10**9,
                         algorithm="cd", threads=threads)
    assert time.perf_counter() - began < 2
    assert model.info.bound <= model.info.objective


def test_a_column_costs_the_same_however_many_there_are():
    def seconds_a_column(k):
        """Of the process's own time, beside the columns' own fits."""
        info = ml.train([[0.0], [1.0]], [0, 1]).info
        solution = Solution(np.zeros((1, 1)), info, {"W": np.zeros(1), "duals": np.zeros(2)})
        method = registry.get("l2svc")._replace(fit=lambda *of_column: solution, loss=None)
        rows, ones = as_rows(np.ones((k, 1)), -1.0), np.ones(k)
        data = Problem(rows, np.arange(k, dtype=np.int32), k, ones, ones)
        run = Run(1e-3, "auto", None, None, 0, 1)
        began = time.process_time()
        found = multiclass.fit(method, data, {}, run, "ovo")
        assert len(found.info.history) == column_count("ovo", k)
        return (time.process_time() - began) / column_count("ovo", k)

    assert min(seconds_a_column(60) for _ in range(2)) < 3 * min(seconds_a_column(12) for _ in range(2))


def test_start_of_other_columns_is_refused():
    X, y = problem(k=9)
    start = ml.train(X, y, solver="l2svc", multiclass="ecoc", seed=1)
    for other in ({"multiclass": "ecoc", "seed": 2}, {"multiclass": "ovr", "seed": 1}):
        with pytest.raises(ValueError, match=r"^start: "):
            ml.train(X, y, solver="l2svc", start=start, **other)
    again = ml.train(X, y, solver="l2svc", start=start, multiclass="ecoc", seed=1)
    assert again.info.n_iter == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_of_one_column_ends_the_others(threads, monkeypatch):
    """Workers stop at their next look: soon after the failure none is left."""
    X, y = problem(k=6, m=2000, d=20)
    method, begun, numbers = registry.get("l1svc"), [], itertools.count(1)

    def fit(problem, params, run):
        begun.append(run)
        if next(numbers) == 3:
            raise RuntimeError("third")
        return method.fit(problem, params, run)

    before = threading.active_count()
    monkeypatch.setattr("marginlinear.methods.l1svc.METHOD", method._replace(fit=fit))
    with pytest.raises(RuntimeError, match="third"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        ml.train(X * 100, y, solver="l1svc", C=1e4, tol=1e-12, max_iter=2000, threads=threads, algorithm="cd")
    for _ in range(100):
        if threading.active_count() == before:
            break
        time.sleep(0.02)
    assert threading.active_count() == before
    assert len(begun) <= 2 + threads


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_in_order(threads):
    def work(at):
        time.sleep(0.001 * (7 - at))
        return at

    assert list(in_order(work, 7, threads, threading.Event())) == list(range(7))
    assert list(in_order(work, 0, threads, threading.Event())) == []


def test_in_order_cancels_what_runs():
    cancel, ended = threading.Event(), []

    def work(at):
        if at == 0:
            return at
        cancel.wait(5)
        ended.append(at)
        raise Cancelled

    for _ in in_order(work, 4, 2, cancel):
        break
    assert cancel.is_set()
    for _ in range(100):
        if ended:
            break
        time.sleep(0.01)
    assert ended
