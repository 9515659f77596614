"""oneclass against SciPy, LIBLINEAR, and its certificate in NumPy; its files."""

from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, sparse

import marginlinear as ml
from marginlinear.algorithms import fixed_sums
from marginlinear.algorithms.certificate import Budget
from marginlinear.algorithms.fixed_sums import threshold
from marginlinear.algorithms.row_pairs import RowPairs
from marginlinear.cli import predict, train
from marginlinear.data.arrays import as_rows


def primal(w, rho, X, nu, cost):
    return w @ w / 2 - nu * cost.sum() * rho + cost @ np.maximum(0, rho - X @ w)


def least(X, nu, cost):
    """The optimum, by SLSQP on the dual."""
    K, total = X @ X.T, nu * cost.sum()
    found = optimize.minimize(
        lambda a: (a @ K @ a / 2, K @ a), nu * cost, jac=True, method="SLSQP", bounds=[(0, c) for c in cost],
        constraints=[{"type": "eq", "fun": lambda a: a.sum() - total, "jac": np.ones_like}],
        options={"maxiter": 1000, "ftol": 1e-14})
    return -found.fun


def problem(seed):
    """(X, nu, costs): of every other one the optimum is 0, or near it."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 4)) + (2 if seed % 2 else 0.8)
    X[3], X[5] = 0, X[4]
    return X, (0.1, 0.5, 0.9, 0.05)[seed % 4], rng.uniform(0.5, 2, 40) if seed > 4 else np.ones(40)


@pytest.mark.parametrize("algorithm", ["auto", "accelerated"])
@pytest.mark.parametrize("seed", range(8))
def test_certified_against_scipy(seed, algorithm):
    X, nu, cost = problem(seed)
    best = least(X, nu, cost)
    model = ml.train(sparse.csr_array(X) if seed % 2 else X, solver="oneclass", nu=nu, sample_weight=cost, tol=1e-9,
                     algorithm=algorithm)
    info, w, rho = model.info, model.coef[0], -model.intercept[0]
    assert info.converged
    assert info.objective == pytest.approx(primal(w, rho, X, nu, cost), rel=1e-9, abs=1e-12)
    assert info.objective == pytest.approx(best, rel=1e-7, abs=2e-9)
    assert info.bound <= min(best, info.objective) + 1e-9 * max(1, abs(best))
    # As many rows are outside, at most, and at least so many support it.
    if info.objective < -1e-3:
        scores = X @ w - rho
        assert cost[scores < -1e-6 * abs(rho)].sum() <= nu * cost.sum() <= cost[scores <= 1e-3 * abs(rho)].sum()


def test_the_bound_in_numpy(monkeypatch):
    """Every candidate has the sum and the bounds of a dual, and the bound is its D."""
    X, nu, cost = problem(7)
    X[5] += 0.1  # rows that are equal are one
    seen, original = [], fixed_sums.moved_to

    def feasible(total, duals, costs):
        # The fit has the rows in an order of its own, and all their costs differ.
        for moved in original(total, duals, costs):
            seen.append(np.empty(len(X)))
            seen[-1][np.argsort(cost)] = moved[np.argsort(costs)]
            yield moved

    monkeypatch.setattr(fixed_sums, "moved_to", feasible)
    model = ml.train(X, solver="oneclass", nu=nu, sample_weight=cost, tol=1e-9, algorithm="accelerated")
    total, bounds = nu * cost.sum(), [-np.sum((X.T @ a) ** 2) / 2 for a in seen]
    assert len(seen) > 4
    for a in seen:
        assert (a >= 0).all() and (a <= cost * (1 + 1e-15)).all() and a.sum() == pytest.approx(total, rel=1e-13)
    assert model.info.bound == pytest.approx(max(bounds), rel=1e-12)


def rows_about(middle, m=200, d=6):
    return np.random.default_rng(m).standard_normal((m, d)) + middle


@pytest.mark.parametrize("storage", ["csr", "float32", "dense", "ones"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_duals_of_pairs(storage, weighted):
    X = rows_about(1.0)
    if storage in ("csr", "ones"):
        X = np.where(X > 1, 1.0 if storage == "ones" else X, 0.0)
    cost = np.random.default_rng(3).uniform(0.5, 2, len(X)) if weighted else np.ones(len(X))
    given = X.astype(np.float32) if storage == "float32" else X if storage == "dense" else sparse.csr_array(X)
    pairs, X = RowPairs(as_rows(given, -1.0), cost, 0.2 * cost.sum(), 1), given if storage == "float32" else X
    pairs.begin()
    bounds = []
    while len(bounds) < 9:
        assert pairs.until(1e-10, Budget(pairs.n_iter, None)) in (True, "sweeps")
        a = pairs.duals
        assert (a >= 0).all() and (a <= cost).all() and a.sum() == pytest.approx(0.2 * cost.sum(), rel=1e-13)
        assert pairs.weights == pytest.approx(X.T.astype(float) @ a, rel=1e-12, abs=1e-12)
        assert pairs.bound == pytest.approx(-np.sum((X.T.astype(float) @ a) ** 2) / 2, rel=1e-12)
        bounds.append(pairs.bound)
        pairs._move(pairs.everyone, pairs._scores(pairs.everyone), pairs.best.rho)
    assert (np.diff(bounds) >= -1e-12 * abs(bounds[-1])).all() and bounds[0] < bounds[-1]
    pairs.visits = 0
    assert pairs.until(1e-4, Budget(None, None)) is True
    if not weighted:
        assert pairs.best.objective == pytest.approx(least(X.astype(float), 0.2, cost), rel=1e-4)


def test_where_pairs_are_slow_the_secant_goes_on():
    """All rows about the origin: the optimum is 0."""
    X = rows_about(0.0, 2000) * np.logspace(0, 3, 6)
    info = ml.train(X, solver="oneclass", nu=0.05, tol=1e-6).info
    assert info.converged and info.algorithm != "pairs" and info.n_outer > 0
    for most in (1, info.n_iter // 2):
        with pytest.warns(ml.ConvergenceWarning):
            capped = ml.train(X, solver="oneclass", nu=0.05, tol=1e-6, max_iter=most).info
        assert capped.status == "max_iter" and capped.n_iter <= most + 1 and capped.bound <= capped.objective
    easy = ml.train(rows_about(3.0), solver="oneclass", tol=1e-6).info
    assert easy.converged and easy.algorithm == "pairs" and easy.n_outer == 0


@pytest.mark.parametrize("algorithm, at", [("auto", 12), ("auto", 20), ("cd", 3), ("cd", 10)])
def test_a_secant_that_is_stopped_has_the_best_that_was_told(algorithm, at):
    rng = np.random.default_rng(2)
    X = sparse.random_array((200, 3000), density=0.01, rng=rng, data_sampler=rng.normal, format="csr")
    X = sparse.csr_array(X * 10.0 ** rng.uniform(-3, 3, 3000))
    told = []
    model = ml.train(X, solver="oneclass", nu=0.5, tol=1e-12, algorithm=algorithm,
                     callback=lambda check: told.append(check) or len(told) == at)
    best, bound = min(check.objective for check in told), max(check.bound for check in told)
    assert len(told) == at and model.info.objective <= best + 1e-9 * abs(best)
    assert model.info.bound >= bound - 1e-9 * abs(bound)


def test_the_quantile_of_scores():
    random = np.random.default_rng(0)
    for m in (1, 2, 63, 64, 65, 1000):
        scores = random.integers(0, m, m).astype(float)
        for cost in (np.full(m, 0.5), random.choice([0.25, 1.0, 2.0], m)):
            order = np.argsort(scores)
            below = np.cumsum(cost[order])
            for total in (below[0], below[m // 2], 0.3 * below[-1], below[-1]):
                rho, height = threshold(scores, cost, total)
                assert rho == scores[order[np.searchsorted(below, total)]]
                values = [total * r - cost @ np.maximum(0, r - scores) for r in scores]
                assert height == pytest.approx(max(values), rel=1e-12)


def theirs():
    return pytest.importorskip("liblinear.liblinearutil", reason="pip install liblinear-official")


def test_liblinears_objective_and_files(tmp_path):
    peer = theirs()
    X, nu, _ = problem(1)
    x = [dict(enumerate(row, 1)) for row in X.tolist()]
    known = peer.train([1] * 40, x, f"-q -s 21 -n {nu} -e 1e-8")
    value = primal(np.array(known.get_decfun()[0]), known.get_decfun_rho(), X, nu, np.ones(40))
    model = ml.train(X, solver=21, nu=nu, tol=1e-9)
    assert model.solver == "oneclass" and model.info.bound <= value * (1 - 1e-12)
    assert model.info.objective == pytest.approx(value, rel=1e-7)
    ml.save_model(model, tmp_path / "ours")
    assert (tmp_path / "ours").read_text().splitlines()[:2] == ["solver_type ONECLASS_SVM", "nr_class 2"]
    found = peer.predict([], x, peer.load_model(str(tmp_path / "ours")), "-q")
    scores = model.decision_function(X)
    # Support vectors are at the border itself.
    clear = abs(scores) > 1e-6 * abs(model.intercept[0])
    assert np.array(found[0])[clear].tolist() == model.predict(X)[clear].tolist()
    assert np.ravel(found[2]) == pytest.approx(scores, rel=1e-9, abs=1e-9)
    again = ml.load_model(tmp_path / "ours")
    assert again.decision_function(X).tolist() == scores.tolist()
    peer.save_model(str(tmp_path / "theirs"), known)
    read = ml.load_model(tmp_path / "theirs")
    assert read.predict(X)[clear].tolist() == np.array(peer.predict([], x, known, "-q")[0])[clear].tolist()
    ml.save_model(read, tmp_path / "copy")
    copied = peer.load_model(str(tmp_path / "copy"))
    assert copied.get_decfun() == known.get_decfun() and copied.get_decfun_rho() == known.get_decfun_rho()


def test_liblinearutil():
    from marginlinear import liblinearutil as ours

    peer = theirs()
    X, nu, _ = problem(3)
    x = [dict(enumerate(row, 1)) for row in X.tolist()]
    found, known = (util.train([1] * 40, x, f"-q -s 21 -n {nu} -e 1e-6") for util in (ours, peer))
    assert found.is_oneclass_model() and not found.is_regression_model() and found.get_nr_class() == 2
    assert found.get_decfun_rho() == pytest.approx(known.get_decfun_rho(), rel=1e-2)
    assert found.get_decfun()[0] == pytest.approx(known.get_decfun()[0], rel=5e-2)
    assert found.bias == -1
    agree = np.equal(ours.predict([], x, found, "-q")[0], peer.predict([], x, known, "-q")[0])
    assert agree[abs(found.classifier.decision_function(X)) > 0.05 * found.rho].all()
    for options, words in (("-s 21 -v 3", "-v and -C measure labels"), ("-s 21 -C", "no C to search for")):
        with pytest.raises(ValueError, match=words):
            ours.train([1] * 40, x, options)


def test_labels_that_it_is_measured_by():
    X = rows_about(2.0)
    y = np.where(np.arange(len(X)) % 4, 1, -1)
    assert ml.cross_validate(X, y, solver="oneclass", folds=3).score > 0.3
    for wrong in (y + 1, np.where(y > 0, "in", "out")):
        with pytest.raises(ValueError, match="oneclass predicts 1 and -1: give these as the labels"):
            ml.search(X, wrong, solver="oneclass", grid="nu=0.1,0.5", folds=3)


def test_starts_scaling_and_labels_that_do_not_matter():
    X, nu, _ = problem(1)
    model = ml.train(X, solver="oneclass", nu=nu, tol=1e-8)
    again = ml.train(X, np.arange(40), solver="oneclass", nu=nu, tol=1e-8, start=model)
    assert again.info.n_iter <= model.info.n_iter
    assert again.info.objective == pytest.approx(model.info.objective, rel=1e-7)
    scaled = ml.train(X, solver="oneclass", nu=nu, tol=1e-8, scale="maxabs")
    factors = 1 / abs(X).max(axis=0)
    plain = ml.train(X * factors, solver="oneclass", nu=nu, tol=1e-8)
    assert np.allclose(scaled.decision_function(X), plain.decision_function(X * factors), rtol=1e-6, atol=1e-6)


def test_the_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, _, _ = problem(1)
    ml.dump_libsvm(X, np.ones(40, dtype=int), "train")
    assert train.main(["-s", "21", "-n", "0.2", "-q", "train", "m"]) == 0
    assert predict.main(["train", "m", "out"]) == 0
    inside = [int(line) for line in Path("out").read_text().split()].count(1)
    assert inside >= 0.8 * 40
    assert capsys.readouterr().out == f"Accuracy = {inside / 0.4:g}% ({inside}/40)\n"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_need_no_labels(tmp_path, monkeypatch, capsys, ending):
    monkeypatch.chdir(tmp_path)
    X, _, _ = problem(1)
    np.savetxt("train.csv", X, delimiter=",", header=",".join(f"x{j}" for j in range(X.shape[1])), comments="")
    if ending == "parquet":
        pytest.importorskip("pyarrow")
        from pyarrow import csv, parquet

        parquet.write_table(csv.read_csv("train.csv"), "train.parquet")
    assert train.main(["-s", "21", "-n", "0.2", "-q", f"train.{ending}", "m"]) == 0
    assert np.array_equal(ml.load_model("m").weights, ml.train(X, solver="oneclass", nu=0.2).weights)
    assert predict.main([f"train.{ending}", "m", "out"]) == 0
    assert "40 rows predicted, nothing measured" in capsys.readouterr().out
    assert train.main(["-s", "21", "--label", "y", f"train.{ending}", "m"]) == 1
    assert "there is no column 'y'" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "text"), [
    ("-s 21 -B 1 train", "bias = 1.0 is ignored by one-class machines"),
    ("-s 21 -v 2 train", "-v: nothing is measured without classes"),
    ("-s 21 -C train", "-C: nothing is measured without classes"),
    ("-s 21 -w1 2 train", "-w1 is for classes, which -s oneclass does not learn"),
    ("-s 21 -n 0 train", "nu = 0.0 is not allowed: give number in (0, 1]"),
    ("-s 21 -c 2 train", "-c is not a parameter of -s oneclass"),
    ("-s 1 -n 0.2 train", "-n is not a parameter of -s l2svc, but of nusvc, oneclass, nusvr"),
])
def test_what_is_refused(tmp_path, monkeypatch, capsys, words, text):
    monkeypatch.chdir(tmp_path)
    Path("train").write_text("1 1:1\n1 2:1\n")
    assert train.main(words.split()) != 0
    assert text in capsys.readouterr().err


def test_damaged_files(tmp_path):
    X, _, _ = problem(1)
    ml.save_model(ml.train(X, solver="oneclass"), tmp_path / "m")
    text = (tmp_path / "m").read_text()
    rho = next(line for line in text.splitlines() if line.startswith("rho "))
    for other, words in ((text.replace(rho + "\n", ""), "rho"), (text.replace("ONECLASS_SVM", "L2R_LR"), "label"),
                         (text.replace("ONECLASS_SVM", "L2R_L2LOSS_SVR"), "unknown text in model file"),
                         (text.replace("bias -1", "bias 1"), "in place of a bias"),
                         (text.replace(rho, "rho nan"), "rho")):
        (tmp_path / "damaged").write_text(other)
        with pytest.raises(ml.DataError, match=words):
            ml.load_model(tmp_path / "damaged")


@pytest.mark.parametrize("scale", [1e-150, 1e-160, 1e-300])
def test_squares_that_vanish_leave_a_certificate(scale):
    info = ml.train(scale * np.array([[1.0], [2.0], [3.0]]), np.ones(3), solver="oneclass").info
    assert info.converged and -1e-290 <= info.bound <= info.objective * (1 - 1e-14) <= 0


@pytest.mark.parametrize("algorithm", ["auto", "newton"])
def test_sums_of_rows_that_overflow_have_no_bound(algorithm):
    """Rows that are summed to infinity by all duals: the weights of 0 are what is left."""
    X = 1e153 * (1 + np.random.default_rng(0).standard_normal((60, 4)) / 9)
    with pytest.warns(ml.ConvergenceWarning, match="stalled"):
        info = ml.train(X, solver="oneclass", nu=0.3, algorithm=algorithm, max_iter=300).info
    assert (info.objective, info.bound) == (0, -np.inf)
