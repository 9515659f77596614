"""l1svr and l2svr against a quadratic program, LIBLINEAR, and their certificates in NumPy; what is without classes."""

import pickle
from pathlib import Path

import numpy as np
import oracles
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import registry
from marginlinear.cli import predict, train

METHODS = ("l1svr", "l2svr")


def problem(seed=0, m=60, d=5):
    """(X, z, costs): an empty row, a feature that does not vary, a row given twice with two targets."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d))
    X[7], X[:, 2] = 0, 1
    z = X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(m) + 1
    X[9] = X[8]
    return X, z, 10.0 ** rng.uniform(-2, 2) * rng.uniform(0.5, 2, m)


def primal(solver, w, X, z, cost, epsilon):
    over = np.maximum(0, abs(z - X @ w) - epsilon)
    return w @ w / 2 + cost @ (over if solver == "l1svr" else over**2)


def dual(solver, b, X, z, cost, epsilon):
    """math-next 2; -inf out of the dual's range."""
    if solver == "l1svr" and (abs(b) > cost * (1 + 1e-12)).any():
        return -np.inf
    u = X.T @ b
    return -u @ u / 2 + z @ b - epsilon * abs(b).sum() - (0 if solver == "l1svr" else (b * b / (4 * cost)).sum())


def least(solver, X, z, cost, epsilon):
    """The optimum, by an interior-point method."""
    d, linear = X.shape[1], solver == "l1svr"
    return oracles.minimal_program(np.eye(d), np.zeros(d), (
        np.vstack((X, -X)), np.append(z, -z) - epsilon, linear * cost, (not linear) * cost))[1]


@pytest.mark.parametrize("algorithm", ["auto", "cd", "accelerated", "newton"])
@pytest.mark.parametrize("solver", METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_certified_against_a_program(solver, algorithm, seed):
    X, z, cost = problem(seed)
    epsilon = (0.0, 0.3, 2.0)[seed]
    best = least(solver, X, z, cost, epsilon)
    model = ml.train(sparse.csr_array(X) if seed % 2 else X, z, solver=solver, sample_weight=cost, epsilon=epsilon,
                     algorithm=algorithm, tol=1e-10, max_iter=10**6)
    info, w = model.info, model.coef[0]
    assert info.converged
    assert info.objective == pytest.approx(primal(solver, w, X, z, cost, epsilon), rel=1e-12)
    assert info.objective == pytest.approx(best, rel=1e-9)
    assert info.bound <= min(info.objective, best) * (1 + 1e-11)


@pytest.mark.parametrize("solver", METHODS)
def test_the_bound_in_numpy(solver):
    """Of duals far from the optimum, too."""
    from marginlinear._core.margin_cd import MarginCD, table_of
    from marginlinear._core.rows import Rows

    X, z, cost = problem(5)
    loss = registry.get(solver).loss
    from marginlinear.problem import Problem

    ones = np.ones(len(z))
    _, table = loss(Problem(Rows.from_dense(X), ones.astype(np.int32), 2, ones, ones), {"C": 1.0, "epsilon": 0.3})
    engine = MarginCD(Rows.from_dense(X), ones.astype(np.int32), cost, [table_of(*table)], targets=z, seed=1)
    for _ in range(4):
        engine.sweep()
        W, b = np.array(engine.iterates.W), np.array(engine.duals)
        assert np.allclose(W, X.T @ b, rtol=1e-12, atol=1e-12)
        assert engine.primal()[0] == pytest.approx(primal(solver, W, X, z, cost, 0.3), rel=1e-12)
        assert engine.dual() == pytest.approx(dual(solver, b, X, z, cost, 0.3), rel=1e-12)


@pytest.mark.parametrize("solver", METHODS)
def test_targets_that_all_are_within_epsilon_leave_no_weight(solver):
    X, z, _ = problem()
    model = ml.train(X, z, solver=solver, epsilon=float(abs(z).max()) + 1)
    assert model.info.objective == 0 and not model.weights.any() and model.info.n_support == 0


def test_scaling_weights_rows_twice_and_starts():
    X, z, _ = problem(2)
    once = ml.train(X, z, solver="l2svr", C=2, tol=1e-10)
    twice = ml.train(np.vstack((X, X)), np.concatenate((z, z)), solver="l2svr", tol=1e-10)
    assert once.info.objective == pytest.approx(twice.info.objective, rel=1e-9)
    some = np.arange(len(z)) % 3
    left = ml.train(X, z, solver="l2svr", sample_weight=some, tol=1e-10)
    assert left.info.objective == pytest.approx(ml.train(
        X[some > 0], z[some > 0], solver="l2svr", sample_weight=some[some > 0], tol=1e-10).info.objective, rel=1e-9)
    scaled = ml.train(X, z, solver="l2svr", scale="range", tol=1e-10)
    low, high = X.min(axis=0), X.max(axis=0)
    S = np.where(high > low, (X - low) / np.where(high > low, high - low, 1), 0.0)
    plain = ml.train(S, z, solver="l2svr", tol=1e-10)
    assert np.allclose(scaled.predict(X), plain.predict(S), rtol=1e-4, atol=1e-4)
    again = ml.train(X, z, solver="l2svr", C=2, tol=1e-10, start=once)
    assert again.info.n_iter <= 2


@pytest.mark.parametrize("free_bias", [False, True])
def test_a_start_at_another_cost_or_at_weights_saves_sweeps(free_bias):
    """The targets are a part of what is mixed."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20)) * np.geomspace(1, 0.05, 20)
    z = X @ rng.standard_normal(20) + rng.standard_normal(300) + 5
    given = {"solver": "l2svr", "free_bias": free_bias, "tol": 1e-6, "algorithm": "cd"}
    first = ml.train(X, z, C=1.0, **given)
    cold, warm = ml.train(X, z, C=1.5, **given), ml.train(X, z, C=1.5, start=first, **given)
    assert warm.info.n_iter < 0.8 * cold.info.n_iter
    assert warm.info.objective == pytest.approx(cold.info.objective, rel=2e-6)
    there = ml.train(X, z, C=1.0, **{**given, "tol": 1e-11})
    from_weights = ml.train(X, z, C=1.0, start=pickle.loads(pickle.dumps(there)), **given)
    assert from_weights.info.converged and from_weights.info.n_iter < 0.3 * first.info.n_iter


@pytest.mark.parametrize("C", [2.0**20, 2.0**30])
def test_the_bound_knows_what_rounding_takes_from_a_wide_band(C):
    """One row is beyond the band: D is a t - a^2 (||x||^2/2 + 1/(4 C)) at most, t what it is beyond by at w = 0."""
    X, z, _ = problem(4)
    epsilon = 0.7 * float(abs(z).max())
    row = int(abs(z).argmax())
    X, z = X[[row, (row + 1) % len(z)]] * [[1.0], [1e-9]], z[[row, row]] * [1, 0]
    model = ml.train(X, z, solver="l2svr", C=C, epsilon=epsilon)
    best = (abs(z[0]) - epsilon) ** 2 / (2 * (X[0] @ X[0] + 1 / (2 * C)))
    assert model.info.converged
    assert model.info.bound <= best * (1 + 1e-12)
    assert model.info.objective == pytest.approx(best, abs=1e-3)


def theirs():
    return pytest.importorskip("liblinear.liblinearutil", reason="pip install liblinear-official")


# LIBLINEAR's order of rows is that of the process's rand(); with it -s 13 ends at its cap on passes with up to 1.003
# of the optimum (300 seeds).
@pytest.mark.parametrize(("number", "solver", "rel"), [(11, "l2svr", 1e-9), (12, "l2svr", 1e-9), (13, "l1svr", 0.02)])
def test_liblinears_objective_and_files(tmp_path, number, solver, rel):
    peer = theirs()
    X, z, _ = problem(3)
    x = [dict(enumerate(row, 1)) for row in X.tolist()]
    known = peer.train(z.tolist(), x, f"-q -s {number} -p 0.2 -e 1e-8")
    value = primal(solver, np.array(known.get_decfun()[0]), X, z, np.ones(len(z)), 0.2)
    model = ml.train(X, z, solver=number, epsilon=0.2, tol=1e-9)
    assert model.solver == solver and model.info.bound <= value * (1 + 1e-12)
    assert model.info.objective <= value * (1 + 1e-9) and value == pytest.approx(model.info.objective, rel=rel)
    ml.save_model(model, tmp_path / "ours")
    assert peer.predict([], x, peer.load_model(str(tmp_path / "ours")), "-q")[0] == pytest.approx(
        model.predict(X).tolist(), rel=1e-12)
    peer.save_model(str(tmp_path / "theirs"), known)
    read = ml.load_model(tmp_path / "theirs")
    assert isinstance(read, ml.RegressionModel) and read.classes is None
    assert read.predict(X) == pytest.approx(peer.predict([], x, known, "-q")[0], rel=1e-12)


def test_liblinearutil(capsys):
    """Its words, its metrics, and the same search."""
    from marginlinear import liblinearutil as ours

    peer = theirs()
    X, z, _ = problem(4)
    x = [dict(enumerate(row, 1)) for row in X.tolist()]
    found, known = (util.train(z.tolist(), x, "-q -s 12 -p 0.2 -e 1e-6") for util in (ours, peer))
    assert found.is_regression_model() and found.get_nr_class() == known.get_nr_class() == 2
    assert found.get_decfun()[0] == pytest.approx(known.get_decfun()[0], rel=2e-2)
    capsys.readouterr()
    results = [util.predict(z.tolist(), x, m) for util, m in ((ours, found), (peer, known))]
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-2)
    words = [line.partition(" = ")[0] for line in capsys.readouterr().out.splitlines()]
    assert words == ["Mean squared error", "Squared correlation coefficient"] * 2
    error = ours.train(z.tolist(), x, "-q -s 11 -v 4")
    assert capsys.readouterr().out.startswith(f"Cross Validation Mean squared error = {error:g}\nCross Validation Squ")
    C, p, score = ours.train(z.tolist(), x, "-q -s 11 -C -c 0.5 -p 0.4")
    steps = abs(z).max() * np.arange(20) / 20
    assert C in [2.0**i for i in range(-1, 21)] and p in steps[steps <= 0.4] and 0 < score < np.var(z)
    C, p, best = ours.train(z.tolist(), x, "-q -s 11 -C -c 64 -v 3")
    assert C >= 64 and 0 <= p < abs(z).max() and best > 0
    param = ours.parameter("-s 13 -p 0.3")
    assert param.p == 0.3 and param.flag_p_specified and ours.parameter("-s lpmcsvm -p 1.2").values == {"norm": 1.2}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, z, _ = problem(6)
    ml.dump_libsvm(X, z, "train")
    return tmp_path


def test_the_commands(folder, capsys):
    X, z, _ = problem(6)
    assert train.main(["-s", "13", "-p", "0.2", "-q", "train", "m"]) == 0
    assert predict.main(["train", "m", "out"]) == 0
    model = ml.load_model("m")
    predicted = np.loadtxt("out")
    assert predicted.tolist() == model.predict(X).tolist()
    assert capsys.readouterr().out == (
        f"Mean squared error = {np.mean((predicted - z) ** 2):g} (regression)\n"
        f"Squared correlation coefficient = {np.corrcoef(predicted, z)[0, 1] ** 2:g} (regression)\n")
    assert Path("m").read_text().splitlines()[:2] == ["solver_type L2R_L1LOSS_SVR_DUAL", "nr_class 2"]
    assert model.params["epsilon"] == 0.2
    assert train.main(["-s", "l2svr", "-v", "3", "train"]) == 0
    found = ml.cross_validate(X, z, solver="l2svr", folds=3)
    assert f"Cross Validation Mean squared error = {found.score:g}\n" in capsys.readouterr().out
    assert found.score == pytest.approx(np.mean((found.predictions - z) ** 2), rel=1e-12)
    words = ["--grid", "C=0.1,1,epsilon=0,0.5", "--metric", "mae"]
    assert train.main(["-s", "l2svr", "-C", "-v", "3", *words, "train"]) == 0
    best = ml.search(X, z, solver="l2svr", grid={"C": [0.1, 1.0], "epsilon": [0.0, 0.5]}, folds=3, metric="mae")
    assert best.best_score == min(entry["score"] for entry in best.table)
    assert f"CV MAE = {best.best_score:g}" in capsys.readouterr().out.splitlines()[-1]


def test_a_store_and_threads_give_the_same(folder):
    assert train.main(["-s", "l1svr", "-q", "--store", "stores", "train", "stored"]) == 0
    assert train.main(["-s", "l1svr", "-q", "--threads", "4", "train", "plain"]) == 0
    stored, plain = map(ml.load_model, ("stored", "plain"))
    assert stored.weights.tolist() == plain.weights.tolist()


@pytest.mark.parametrize(("words", "status", "text"), [
    ("-s 11 -w1 2 train", 2, "-w1 is for classes, which -s l2svr does not learn"),
    ("-s 11 --class-weight balanced train", 2, "--class-weight is for classes"),
    ("-s 11 --probability train", 2, "--probability is for classes"),
    ("-s 11 --text-labels train", 2, "--text-labels is for classes"),
    ("-s 11 --multiclass ovo train", 2, "--multiclass"),
    ("-s 11 -v 2 --metric auc train", 2, "metric = 'auc' does not measure what l2svr predicts: give mse | mae | r2"),
    ("-s 1 -v 2 --metric mse train", 2, "metric = 'mse' does not measure what l2svc predicts"),
    ("-s 1 -p 0.1 train", 2, "-p"),
    ("-s 13 -p -1 train", 2, "-p -1: epsilon = -1.0 is not allowed: give number in [0, inf)"),
    ("-s 13 bad", 1, "bad:2"),
    ("-s 13 nan", 1, "nan:2"),
])
def test_what_is_refused(folder, capsys, words, status, text):
    Path("bad").write_text("1.5 1:2\nx 1:1\n")
    Path("nan").write_text("1.5 1:2\nnan 1:1\n")
    assert train.main(words.split()) == status
    assert text in capsys.readouterr().err


def test_what_is_refused_of_a_model(folder, capsys):
    X, z, _ = problem(6)
    model = ml.train(X, z, solver="l1svr")
    ml.save_model(model, "m")
    for option in (["--scores"], ["--margins"], ["-b", "1"]):
        words = [*option, "train", "m", "out"]
        assert predict.main(words) != 0
        assert "regression" in capsys.readouterr().err
    with pytest.raises(TypeError, match="it has no classes, nor margins"):
        ml.margin_report(model, X, z)
    for given, words in (({"class_weight": {1: 2}}, "is for classes"), ({"classes": [1, 2]}, "is for classes"),
                         ({"probability": True}, "is for classes"), ({"epsilon": -1}, "epsilon = -1 is not allowed")):
        with pytest.raises(ValueError, match=words):
            ml.train(X, z, solver="l1svr", **given)
    for target, words in ((np.where(z == z[5], np.inf, z), "target inf is not finite"),
                          (["a"] * len(z), "needs numbers"), (z[:-1], "has 59 targets"),
                          (np.stack((z, z), 1), "dimensions")):
        with pytest.raises(ValueError, match=words):
            ml.train(X, target, solver="l2svr")


def test_the_estimator_is_the_model():
    pytest.importorskip("sklearn", reason="pip install 'marginlinear[sklearn]'")
    from marginlinear.sklearn import SVMRegressor

    X, z, _ = problem(1)
    for loss, solver in (("epsilon_insensitive", "l1svr"), ("squared_epsilon_insensitive", "l2svr")):
        found = SVMRegressor(loss=loss, epsilon=0.2, C=3).fit(X, z)
        model = ml.train(X, z, solver=solver, epsilon=0.2, C=3, bias=1, tol=1e-4)
        assert found.coef_.tolist() == model.coef[0].tolist() and found.intercept_ == model.intercept[0]
        assert np.allclose(found.predict(X), model.predict(X), rtol=1e-12) and found.score(X, z) > 0.7
        assert found.model_ is found._trained
        found.coef_ = found.coef_ * 2
        assert found.model_.info is None and np.allclose(found.model_.predict(X), found.predict(X), rtol=1e-12)
    with pytest.raises(ValueError, match="loss = 'hinge' is not allowed"):
        SVMRegressor(loss="hinge").fit(X, z)
