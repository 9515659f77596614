"""Fits over partitions that answer messages: the optimum, bounds and bits of one machine, wherever rows are."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import marginlinear as ml
from marginlinear import registry
from marginlinear.algorithms.partitions import fit as partitioned
from marginlinear.algorithms.partitions.communicator import FAN_IN, InProcess, merged
from marginlinear.algorithms.partitions.partition import About, Partition, Recipe
from marginlinear.algorithms.partitions.places import Places
from marginlinear.data.arrays import held
from marginlinear.errors import RowError
from marginlinear.fitting import free_bias_of, require_partitions, resolved
from marginlinear.problem import Run

METHODS = [("l1svc", {}), ("l2svc", {}), ("rmm", {}), ("odm", {}), ("lssvm", {}), ("mamc", {}), ("ldm", {}),
           ("ldm", {"lambda1": 0}), ("cs", {}), ("mcodm", {"mu": 0}), ("mcodm", {"mu": 0.5}), ("lpmcsvm", {}),
           ("lpmcsvm", {"norm": 1.2}), ("softmax", {}), ("softmax", {"C": 50}), ("ism3", {}), ("m3svm", {}),
           ("m3svm", {"norm": 2.0}), ("ww", {}), ("logistic", {}), ("logistic", {"C": 50}), ("topk", {"K": 2}),
           *((name, params) for name in ("l1lr", "l1l2svc", "smlr")
             for params in ({}, {"l1_ratio": 0.5}, {"free_bias": True})),
           ("smlr", {"penalty": "group"}), ("smlr", {"penalty": "group", "l1_ratio": 0.5, "free_bias": True})]


def table(m=240, d=7, k=3, seed=0):
    """Rows with much in common, some of them empty."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((m, d)) + 0.7
    X[::11] = 0
    return X, (X[:, :k] + generator.standard_normal((m, k))).argmax(axis=1)


def text(m=400, d=6000, seed=0):
    """Sparse rows with a few words in common."""
    generator = np.random.default_rng(seed)
    X = csr_array(random_array((m, d), density=0.002, random_state=generator))
    common = csr_array((generator.random(3 * m), generator.integers(0, 20, 3 * m), 3 * np.arange(m + 1)), shape=(m, d))
    X = csr_array(X + common)
    return X, (X[:, :20].sum(axis=1) + 0.5 * generator.standard_normal(m) > 1.4).astype(int)


def cut(X, codes, cuts, bias=-1.0, weights=None):
    weights = np.ones(len(codes)) if weights is None else weights
    k = int(codes.max()) + 1
    return [Partition(held(X[lo:hi]), codes[lo:hi].astype(np.int32), k, weights[lo:hi], np.ones(hi - lo),
                      float(weights.sum()), bias, number)
            for number, (lo, hi) in enumerate(itertools.pairwise(cuts))]


def even(m, count):
    return [m * at // count for at in range(count + 1)]


def sizes_of(codes, k=0, weights=None):
    return tuple(np.bincount(codes, weights, k).tolist())


def fitted(name, X, codes, cuts, weights=None, communicator=None, **params):
    """Solution over the partitions that are cut at `cuts`."""
    method = registry.get(name)
    values, run = resolved(method, params)
    bias = run.pop("bias")
    bias = free_bias_of(bias) if values.get("free_bias") else bias
    partitions = cut(X, codes, cuts, bias, weights)
    k = int(codes.max()) + 1
    whole = partitioned.Whole(X.shape[1], k, sizes_of(codes, k, weights), bias, len(partitions))
    how = None if method.joint or k == 2 else values["multiclass"]
    own = {p.name: values[p.name] for p in method.params}
    return partitioned.fit(method, whole, own, Run(**{**run, "shared": False}), how,
                           communicator or InProcess(partitions))


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize(("name", "params"), METHODS)
def test_the_optimum_is_that_of_one_machine(name, params, count):
    X, y = table(k=3 if registry.get(name).joint and "C" not in params else 2)
    best = ml.train(X, y, solver=name, tol=1e-7, **params).info
    for algorithm in registry.get(name).routes[:1] if len(registry.get(name).routes) == 1 else ("accelerated", "auto"):
        info = fitted(name, X, y, even(len(y), count), algorithm=algorithm, tol=1e-3, **params).info
        slack = 1e-3 * max(1, abs(info.objective))
        assert info.status == "converged"
        assert info.certificate <= slack
        if params.get("mu") == 0.5:
            # One of several critical points.
            continue
        assert -1e-6 * slack <= info.objective - best.bound <= slack + best.certificate + 1e-12
        assert info.bound <= best.objective + 1e-9 * abs(best.objective)


@pytest.mark.parametrize("how", ["ovr", "ovo", "ecoc"])
def test_columns_are_those_of_one_machine(how):
    X, y = table(k=3)
    solution = fitted("l2svc", X, y, even(len(y), 4), multiclass=how, tol=1e-8)
    model = ml.train(X, y, solver="l2svc", multiclass=how, tol=1e-8, bias=-1)
    np.testing.assert_allclose(solution.weights, model.weights, rtol=1e-3, atol=1e-4)
    assert solution.info.status == "converged" and len(solution.info.history) == model.weights.shape[1]


@pytest.mark.parametrize(("name", "params"), [("odm", {"lambda_": 10.0}), ("ldm", {}), ("l1svc", {})])
def test_pairs_are_divided_by_the_weight_of_their_own_rows(name, params):
    X, y = table(k=3)
    weights = np.linspace(0.5, 2.0, len(y))
    model = ml.train(X, y, solver=name, multiclass="ovo", tol=1e-6, bias=-1, sample_weight=weights, **params)
    for count in 1, 2, 4:
        solution = fitted(name, X, y, even(len(y), count), weights, multiclass="ovo", tol=1e-6, **params)
        assert solution.info.status == "converged"
        assert solution.info.objective == pytest.approx(model.info.objective, rel=6e-6)


def test_a_pair_of_which_a_partition_has_no_row_is_told():
    X, y = table(k=3)
    cuts = even(len(y), 4)
    y[:cuts[1]] = 1
    assert fitted("l1lr", X, y, cuts, multiclass="ovo").info.status == "converged"
    with pytest.raises(ValueError, match=r"partition 0 has no row of two of the classes.*give fewer partitions"):
        fitted("l2svc", X, y, cuts, multiclass="ovo")


@pytest.mark.parametrize("name", ["l1svc", "l2svc", "rmm"])
@pytest.mark.parametrize("most", [3, 8])
def test_a_cap_before_there_is_a_bound(name, most):
    X, y = text()
    solution = fitted(name, X, y, even(len(y), 8), C=10, tol=1e-6, max_iter=most)
    assert solution.info.status in ("max_iter", "converged")
    assert solution.info.bound <= solution.info.objective * (1 + 1e-9)


@pytest.mark.parametrize("name", ["l1svc", "l2svc"])
def test_the_rows_that_matter_are_collected(name):
    X, y = text()
    best = ml.train(X, y, solver=name, C=10, tol=1e-8).info
    solution = fitted(name, X, y, even(len(y), 8), C=10, tol=1e-4)
    assert solution.info.algorithm == "collected" and solution.info.status == "converged"
    assert 0 < solution.state["collections"] <= 3
    assert best.bound <= solution.info.objective * (1 + 1e-9)
    assert solution.info.objective - best.objective <= 1e-4 * best.objective
    # The objective from the weights alone.
    g = np.where(y == 1, 1, -1) * (X @ solution.weights[:, 0])
    loss = np.maximum(0, 1 - g)
    value = solution.weights[:, 0] @ solution.weights[:, 0] / 2 + 10 * (loss if name == "l1svc" else loss**2).sum()
    assert value == pytest.approx(solution.info.objective, rel=1e-12)


class Counted(InProcess):
    """Messages, and rounds that they asked for."""

    messages = visits = 0

    def run(self, recipe, about, operations):
        self.messages += 1
        self.visits += sum(name == "visit" for name, _ in operations)
        return super().run(recipe, about, operations)


@pytest.mark.parametrize(("name", "algorithm"), [("l2svc", "accelerated"), ("l2svc", "cd"), ("l1svc", "accelerated"),
                                                 ("cs", "accelerated"), ("mcodm", "accelerated")])
def test_checks_take_the_next_round_with_them(name, algorithm):
    X, y = table(m=800, k=3 if registry.get(name).joint else 2)
    params = {"mu": 0} if name == "mcodm" else {}
    communicator = Counted(cut(X, y, even(len(y), 4)))
    info = fitted(name, X, y, even(len(y), 4), communicator=communicator, algorithm=algorithm, tol=1e-4, **params).info
    assert info.status == "converged" and info.n_iter > 20
    # Visits are for nothing at the end, and where another way is taken than was foreseen.
    assert communicator.visits <= 1.05 * info.n_iter + 3
    # Beside the rounds what begins and ends the fit.
    assert communicator.messages <= 1.1 * info.n_iter + 3


@pytest.mark.parametrize("name", ["l2svc", "l1svc", "cs", "ldm"])
def test_partitions_of_any_kind(name):
    """One row, empty rows alone, one class alone; of weights."""
    X, y = table(k=3 if registry.get(name).joint else 2)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    X[100:120] = 0
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
    best = ml.train(X, y, solver=name, sample_weight=weights, tol=1e-7).info
    info = fitted(name, X, y, [0, 1, 60, 100, 120, 240], weights, tol=1e-3).info
    assert info.status == "converged"
    assert -1e-9 <= (info.objective - best.bound) / best.objective <= 1e-3 + 2e-7


@pytest.mark.parametrize("name", ["l2svc", "l1svc", "cs", "mcodm", "lpmcsvm"])
def test_the_dual_never_falls(name):
    """Whatever sigma is, and where all partitions have the same rows."""
    generator = np.random.default_rng(0)
    for copies in (False, True):
        X, y = table(k=3 if registry.get(name).joint else 2)
        X, y = (np.tile(X, (4, 1)), np.tile(y, 4)) if copies else (X, y)
        method = registry.get(name)
        values, run = resolved(method, {"mu": 0} if name == "mcodm" else {})
        run.pop("bias")
        partitions = cut(X, y, even(len(y), 4))
        signs = None if method.joint else np.array([-1, 1], np.int8)
        recipe = Recipe(method.joint, method.terms, values, signs, 0, 1)
        places = Places(InProcess(partitions), recipe, 4, Run(**{**run, "shared": False}))
        problem = partitioned.Whole(X.shape[1], int(y.max()) + 1, sizes_of(y), -1.0, 4).stand_in(
            3 if method.joint else 2)
        cost, loss = method.terms(problem, values)
        make = places.joint_engine if method.joint else places.margin_engine
        engine = make(problem, cost, 0, 1, **loss)
        rounds, found = places.sweeper(engine), []
        for _ in range(25):
            rounds.sigma, rounds.firm = generator.uniform(1, 4, 2)
            rounds.sweep()
            found.append(engine.dual())
        assert (np.diff(found) >= -1e-12 * max(map(abs, found))).all()
        assert found[-1] > found[0]
        # The bound from the weights of the duals, summed afresh.
        engine.keep_duals(False)
        assert engine.recomputed_dual(False) == pytest.approx(found[-1], rel=1e-9)


def test_an_answer_changes_nothing_and_comes_again():
    X, y = table(k=2)
    method = registry.get("l2svc")
    values, _ = resolved(method, {})
    recipe = Recipe(False, method.terms, values, np.array([-1, 1], np.int8), 0, 1)
    partition, = cut(X, y, [0, len(y)])
    about = About(1, 0.0, None, None, -np.inf)
    W = np.zeros(X.shape[1])
    state, _ = partition.answer(recipe, None, about, [("visit", (W, 1.0, 0.0)), ("keep", (False,))])
    before = {name: np.array(value) for name, value in state.items() if isinstance(value, np.ndarray)}
    # A visit proposes; the duals of empty rows are always at their best.
    there = X.any(axis=1)
    assert not before["duals"][there].any() and before["proposed"][there].any()
    operations = [("accept", (0.5,)), ("average", (1.0,)), ("visit", (W + 0.1, 2.0, 0.0)), ("average", (0.25,)),
                  ("losses", (W,)), ("terms", ("mean",)), ("adopt", ()), ("keep", (True,)), ("wake", ())]
    answers = [partition.answer(recipe, state, about._replace(number=2), operations) for _ in range(2)]
    (first, sums), (second, again) = answers
    assert all(first[name].tobytes() == second[name].tobytes() for name in before if name in first)
    assert [array.tobytes() for some in sums if some for array in some] == [
        array.tobytes() for some in again if some for array in some]
    assert all(state[name].tobytes() == value.tobytes() for name, value in before.items())


def test_sums_have_the_order_of_the_partitions():
    """Whichever are together."""
    count = FAN_IN * FAN_IN + 3
    replies = {(0, at): [(np.array([10.0**(at % 7), at]),), None] for at in range(count)}
    (whole, nothing), = merged(replies, count).values()
    sums = [float(sum(10.0**(at % 7) for at in range(lo, min(count, lo + FAN_IN)))) for lo in range(0, count, FAN_IN)]
    tops = [sum(sums[lo:lo + FAN_IN]) for lo in range(0, len(sums), FAN_IN)]
    assert whole[0].tolist() == [sum(tops), count * (count - 1) / 2] and nothing is None
    for cuts in ([0, 5, 40, count], [0, 8, 64, count]):
        parts = [merged({(0, at): replies[0, at] for at in range(lo, hi)}, count)
                 for lo, hi in itertools.pairwise(cuts)]
        (again, _), = merged({place: node for nodes in parts for place, node in nodes.items()}, count).values()
        assert again[0].tobytes() == whole[0].tobytes()
    assert replies[0, 0][0][0][1] == 0


@pytest.mark.parametrize("bias", [-1.0, 1.0])
@pytest.mark.parametrize("name", ["l2svc", "cs"])
def test_replies_name_the_features_that_rows_have(monkeypatch, name, bias):
    """And their sums are those of whole vectors."""
    X, y = text()
    y = y + (X[:, :10].sum(axis=1) > 1) if name == "cs" else y
    given = {"tol": 1e-4, "bias": bias}
    few = fitted(name, X, y, even(len(y), 9), **given)
    partition = cut(X, y, even(len(y), 9), bias)[3]
    assert len(partition.features) < X.shape[1] / 3 and (partition.features[-1] == X.shape[1]) == (bias > 0)
    monkeypatch.setattr(Partition, "_features", lambda partition: None)
    assert fitted(name, X, y, even(len(y), 9), **given).weights.tobytes() == few.weights.tobytes()


@pytest.mark.parametrize(("name", "params", "fragment"), [
    ("msvmav", {}, "does not go over partitions"), ("ldm-asgd", {}, "does not go over partitions"),
    ("mcodm", {"outer": "paper"}, "give 'ccp'"), ("ldm", {"algorithm": "paper"}, "give 'auto'"),
    ("l2svc", {"free_bias": True}, "give bias = 1")])
def test_methods_that_do_not_split(name, params, fragment):
    with pytest.raises(ValueError, match=fragment):
        require_partitions(registry.get(name), params, params.get("algorithm", "auto"))


@pytest.mark.parametrize("name", ["l2svc", "cs", "softmax", "ww"])
def test_rows_that_overflow_are_refused_or_bounded(name):
    X, y = table(k=2)
    with pytest.raises(RowError, match="row 1's values overflow"):
        fitted(name, X * 1e160, y, even(len(y), 4))
    # Squares that can be summed in a row, not over rows: bounds that hold, or words.
    try:
        info = fitted(name, X * 1e153, y, even(len(y), 4), max_iter=30).info
    except ValueError as error:
        assert "overflow" in str(error)
    else:
        assert info.bound <= info.objective < np.inf


@pytest.mark.parametrize(("name", "params"), [("ldm", {"max_iter": 1}), ("l1svc", {"time_limit": 1e-9}),
                                              ("mcodm", {"max_iter": 1}), ("m3svm", {"time_limit": 1e-9})])
def test_fits_that_end_at_once_have_a_certificate(name, params):
    X, y = table(k=3 if registry.get(name).joint else 2)
    info = fitted(name, X, y, even(len(y), 4), **params).info
    best = ml.train(X, y, solver=name, tol=1e-6).info
    assert info.status == next(iter(params)) and info.certificate == info.objective - info.bound
    assert info.bound <= best.objective and info.objective >= best.bound


def test_newton_is_refused_where_weights_are_many():
    X, y = text(m=60)
    with pytest.raises(ValueError, match="6000 weights, over partitions at most 4000: take 'auto'"):
        fitted("l2svc", X, y, [0, 30, 60], algorithm="newton")
