"""Comparisons: the tests against published numbers, nested selection that sees no test row, and the same bits again."""

import itertools
import json
import math
import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from marginlinear.cli import compare as margin_compare
from marginlinear.compare import Comparison, Forecast, compare, forecast, foresight, study
from marginlinear.compare import statistics as S
from marginlinear.compare.contestants import Fitted, Tried, best_of
from marginlinear.compare.design import Design
from marginlinear.compare.external import estimator_of
from marginlinear.compare.foresight import Expected, extrapolated
from marginlinear.compare.grids import AXES, grid_of
from marginlinear.compare.measures import Predictions, measure
from marginlinear.compare.methods import contestant_of
from marginlinear.compare.report import choices
from marginlinear.compare.result import Entrant
from marginlinear.compare.sets import Arrays
from marginlinear.data.columns import read_csv
from marginlinear.errors import DataError
from marginlinear.libsvm import dump_libsvm
from marginlinear.registry import methods
from marginlinear.sklearn import SVMClassifier

RNG = np.random.default_rng(5)
X = RNG.standard_normal((90, 3))
Y = np.where(X[:, 0] + 0.7 * RNG.standard_normal(90) > 0, "up", "down")
Y3 = np.digitize(X[:, 0] + 0.5 * RNG.standard_normal(90), [-0.5, 0.5])
FEW = {"splits": 3, "folds": 3}

# ---- Statistics

# J. Demsar, JMLR 7 (2006), Table 6: ranks of four methods on 14 sets, and Table 2: the first two methods' scores.
RANKS = np.array([[4, 3, 2, 1], [1, 2, 3, 4], [4, 1, 2, 3], [4, 1, 3, 2], [4, 2, 3, 1], [1, 2.5, 4, 2.5], [3, 2, 4, 1],
                  [2.5, 2.5, 4, 1], [4, 3, 2, 1], [2.5] * 4, [4, 2.5, 1, 2.5], [3, 2, 4, 1], [4, 1, 2, 3],
                  [3, 1, 4, 2]])
ONE = np.array([.763, .599, .954, .628, .882, .936, .661, .583, .775, 1, .940, .619, .972, .957])
TWO = np.array([.768, .591, .971, .661, .888, .931, .668, .583, .838, 1, .962, .666, .981, .978])


def test_the_numbers_of_demsar():
    found = S.friedman(-RANKS)
    assert found.ranks == pytest.approx((3.143, 2.000, 2.893, 1.964), abs=5e-4)
    assert found.chi2 == pytest.approx(9.28, abs=5e-3)
    assert pytest.approx(3.69, abs=5e-3) == found.F
    assert round(found.critical, 2) == 1.25 and round(S.critical_difference(4, 14, 0.1), 2) == 1.12
    # There z and p of the methods against the first: 0.016, 0.019 and 0.607.
    assert found.holm[1:] == pytest.approx([3 * 0.0157, 0.607, 3 * 0.0157], abs=2e-3)
    assert found.differs and "differ at 0.05" in found.sentence("abcd")
    # Ranks 93 to 12, of which the critical value at 0.05 is 21.
    p, plus, minus = S._signed_ranks(np.round(TWO - ONE, 3))
    assert (plus, minus) == (93, 12) and p < 0.05
    assert S.wilcoxon(TWO, ONE).verdict == "larger" and S.wilcoxon(ONE, TWO).verdict == "smaller"


def test_the_corrected_t_by_hand():
    found = S.corrected_t([2, 4, 6], [1, 2, 3], 0.5)
    t = 2 / math.sqrt(1 / 3 + 0.5)
    # Of two degrees of freedom.
    assert found.mean == 2 and found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))
    assert found.high - found.mean == pytest.approx(4.302653 * math.sqrt(1 / 3 + 0.5), rel=1e-6)
    naive = S.naive_t([2, 4, 6], [1, 2, 3])
    assert naive.p == pytest.approx(1 - math.sqrt(12) / math.sqrt(14)) and "naive" in naive.sentence("a", "b")
    posterior = S.bayesian_t([2, 4, 6], [1, 2, 3], 0.5, rope=0)
    assert posterior.smaller == pytest.approx(found.p / 2) and posterior.larger == pytest.approx(1 - found.p / 2)


def test_no_difference_alarms_in_five_of_a_hundred():
    rng = np.random.default_rng(0)
    J, share = 20, 1 / 3  # splits, and how their differences correlate where a third of the rows is the test part
    common, own = rng.standard_normal((2000, 1)), rng.standard_normal((2000, J))
    d = math.sqrt(share) * common + math.sqrt(1 - share) * own
    alarms = np.mean([S.corrected_t(row, 0 * row, 0.5).p < 0.05 for row in d])
    naive = np.mean([S.naive_t(row, 0 * row).p < 0.05 for row in d])
    assert 0.04 <= alarms <= 0.06 and naive > 0.4
    assert 0.04 <= np.mean([S.wilcoxon(row, 0 * row).p < 0.05 for row in own]) <= 0.06
    friedman = [S.friedman(row.reshape(10, 2)).p_chi2 < 0.05 for row in own[:200]]
    assert np.mean(friedman) < 0.12


@pytest.mark.parametrize("d", [[1.0, -2, 3, 4, 4, -4], [0, 0, 1, 2, -3], [1, 1, 1, 1], [0.5, -0.5, 0, 0]])
def test_signed_ranks_are_exact(d):
    d = np.array(d)
    p, plus, minus = S._signed_ranks(d)
    ranks = S.average_ranks(np.abs(d))
    rest, zero = ranks[d != 0], ranks[d == 0].sum() / 2
    sums = [zero + sum(r for r, up in zip(rest, ups, strict=True) if up)
            for ups in itertools.product([0, 1], repeat=len(rest))]
    assert plus + minus == pytest.approx(ranks.sum())
    assert S.wilcoxon([*d[d != 0], 0], [0] * (1 + len(d[d != 0]))).p == S.wilcoxon(d[d != 0], 0 * d[d != 0]).p
    assert p == pytest.approx(min(1, 2 * np.mean(np.array(sums) <= min(plus, minus) + 1e-9)))


def test_verdicts():
    same = S.corrected_t([0.5, 0.5], [0.5, 0.5], 1.0)
    assert (same.p, same.low, same.high, same.verdict) == (1, 0, 0, "equal")
    always = S.corrected_t([0.75, 0.75, 0.75], [0.5, 0.5, 0.5], 1.0)
    assert (always.p, always.mean, always.verdict) == (0, 0.25, "larger")
    assert S.corrected_t([0.1], [0.2], 1.0).verdict == "inconclusive" and "too few" in S.corrected_t(
        [0.1], [0.2], 1.0).sentence("a", "b")
    near = [0.5, 0.501, 0.499, 0.5005], [0.5, 0.5, 0.5, 0.5]
    assert [S.corrected_t(*near, 0.5, rope=rope).verdict for rope in (0, 0.01)] == ["inconclusive", "equal"]
    assert S.bootstrap([0.1, 0.2, 0.3], 0.2).verdict == "inconclusive"  # of three resamples p is 2/3 at least
    assert S.bootstrap(np.linspace(0.1, 0.2, 99), 0.15).verdict == "larger"
    for bad in ([1, 2], [1]), ([1, math.nan], [1, 2]):
        with pytest.raises(ValueError, match="paired scores"):
            S.naive_t(*bad)


def test_bayesian_signed_ranks():
    found = S.bayesian_signed_rank(TWO, ONE, rope=0.01)
    mirrored = S.bayesian_signed_rank(ONE, TWO, rope=0.01)
    assert found.larger == pytest.approx(mirrored.smaller, abs=0.01) and found == S.bayesian_signed_rank(
        TWO, ONE, rope=0.01)
    assert found.smaller + found.equal + found.larger == pytest.approx(1) and found.verdict == "inconclusive"
    # What baycomp gives for 1,000 times these, which are whole, as sums are then at an end of the rope or not: 200,000
    # draws.
    for rope, theirs in (0.01, (0, 0.331, 0.669)), (0.005, (0.000, 0.043, 0.957)):
        assert S.bayesian_signed_rank(TWO, ONE, rope=rope)[2:5] == pytest.approx(theirs, abs=0.008)
    assert S.bayesian_signed_rank(ONE + 0.05, ONE, rope=0.01).verdict == "larger"
    assert S.bayesian_signed_rank(ONE + 0.001, ONE, rope=0.01).verdict == "equal"
    assert S.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


# ---- Splits and measures


def test_splits_are_stratified_and_follow_from_names_and_numbers():
    y = np.repeat([0, 1, 2], [60, 30, 9])
    design = Design(train_size=1 / 3, seed=3)
    split = design.split("a", y, 4)
    assert np.bincount(y[split.train]).tolist() == [20, 10, 3] and len(split.test) == 66
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(99))
    assert not np.array_equal(split.train, design.split("b", y, 4).train)
    assert not np.array_equal(split.train, design.split("a", y, 5).train)
    part = design._replace(train_size=50.0, test_size=0.1).split("a", y, 0)
    assert (len(part.train), len(part.test)) == (50, 10) and not np.intersect1d(*part).size
    folds = [Design(outer_folds=3, repeats=2).split("a", y, number).test for number in range(6)]
    assert np.array_equal(np.sort(np.concatenate(folds[:3])), np.arange(99))
    assert not np.array_equal(folds[0], folds[3])
    groups = np.arange(99) // 5
    for design in Design(), Design(outer_folds=4):
        split = design.split("a", y, 0, groups)
        assert not np.intersect1d(groups[split.train], groups[split.test]).size and 20 <= len(split.test) <= 60
    inner = design.inner("a", y, 0, groups)
    assert all(len(np.unique(inner[groups == group])) == 1 for group in range(20))
    with pytest.raises(ValueError, match="train_size = 99 is 99 of 99 rows"):
        Design(train_size=99).split("a", y, 0)


def test_label_noise_is_of_training_rows():
    y = np.repeat([0, 1, 2], [60, 30, 10])
    noisy = Design(label_noise=0.2, seed=3).noisy("a", y, 4, 3)
    assert np.count_nonzero(noisy != y) == 20 and set(noisy) <= {0, 1, 2}
    assert np.array_equal(noisy, Design(label_noise=0.2, seed=3).noisy("a", y, 4, 3))
    # Where most labels of two classes are wrong, the test rows' own are met by the other class.
    data = np.repeat(np.eye(2), 50, axis=0), np.repeat([0, 1], 50)
    found = compare({"a": data}, ["l2svc;C=1"], label_noise=0.9, **FEW)
    assert all(trial["scores"]["accuracy"] == 0 for trial in found.trials)
    with pytest.raises(ValueError, match=r"label_noise = 0\.1 is for classes"):
        compare({"a": (X, X[:, 0])}, ["l2svr"], label_noise=0.1)


def test_the_rarest_class_is_thinned_in_training_parts():
    y = np.repeat([0, 1, 2], [60, 30, 10])
    design = Design(rare=0.05, seed=3)
    stay = design.thinned("a", y, 4)
    assert np.array_equal(np.bincount(y[stay]), [60, 30, 5])
    assert np.array_equal(stay, design.thinned("a", y, 4)) and not np.array_equal(stay, design.thinned("a", y, 5))
    assert np.array_equal(np.bincount(y[Design(rare=0.5).thinned("a", y, 0)]), [60, 30, 10])
    assert np.array_equal(np.bincount(y[Design(rare=1e-6).thinned("a", y, 0)]), [60, 30, 1])
    # A part of one class, as groups may make it, is told by the method.
    assert len(Design(rare=0.5).thinned("a", np.ones(9, int), 0)) == 9
    data = np.repeat(np.eye(2), 50, axis=0), np.repeat([0, 1], 50)
    found = compare({"a": data}, ["l2svc;C=1"], rare=0.2, **FEW)
    assert all((trial["train"], trial["test"]) == (31, 50) for trial in found.trials)
    with pytest.raises(ValueError, match=r"rare = 0\.1 is for classes"):
        compare({"a": (X, X[:, 0])}, ["l2svr"], rare=0.1)


def test_measures_by_hand():
    chances = np.array([[0.5, 0.5], [0.25, 0.75], [0, 1.0]])
    found = Predictions(np.array([0, 1, 0]), np.array([0, 1, 1]), np.array([-1.0, 1, 2]), chances)
    assert measure("log_loss", found) == pytest.approx(-(math.log(0.5) + math.log(0.75) + math.log(1e-15)) / 3)
    assert measure("brier", found) == pytest.approx((0.5 + 0.125 + 2) / 3)
    # The row of the largest lead is wrong; the other two are mixed.
    assert measure("aurc", found) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert measure("auc", found._replace(scores=None)) is None and measure("log_loss", found._replace(
        probabilities=None)) is None


def test_every_method_has_a_grid():
    for method in methods().values():
        grid = grid_of(method, {})
        assert grid or method.one_class
        assert not any(name in grid for name in ("outer", "multiclass", "gamma"))
        assert all(len(values) > 1 for values in grid.values())
    assert all(reason for _, reason in AXES.values())
    assert "gamma" in grid_of(methods()["l2svc"], {"kernel": "rbf"})


# ---- Trials


def test_selection_sees_no_test_row():
    """With the labels of a split's test rows turned round, its choices and its fits are what they were."""
    methods = ["l2svc", "odm;C=1,8;mu=0.2,0.8;theta=0.2"]
    design = Design(**FEW)
    for number in range(3):
        codes = np.unique(Y, return_inverse=True)[1]
        test = design.split("a", codes, number).test
        turned = Y.copy()
        turned[test] = np.where(Y[test] == "up", "down", "up")
        # The split itself would follow other labels: it is given.
        train = np.setdiff1d(np.arange(90), test)
        one, two = (compare({"a": (X[train], y[train], X[test], y[test])}, methods, folds=3, scale="range")
                    for y in (Y, turned))
        for first, second in zip(one.trials, two.trials, strict=True):
            assert {**first, "scores": 0, "replicates": 0, "seconds": 0} == {**second, "scores": 0, "replicates": 0,
                                                                            "seconds": 0}
            assert first["scores"]["accuracy"] == pytest.approx(1 - second["scores"]["accuracy"])


def test_scaling_is_learned_on_the_training_part():
    far = X.copy()
    test = Design(**FEW).split("a", np.unique(Y, return_inverse=True)[1], 0).test
    far[test] *= 100
    one, two = (compare({"a": (rows, Y)}, ["l2svc"], scale="range", **FEW).trials[0] for rows in (X, far))
    assert one["objective"] == two["objective"] and one["inner"] == two["inner"]


def test_confidence_of_votes_is_that_of_the_estimators():
    """Equal votes are ordered by the sums of the scores behind them, as in `decision_function`."""
    found = compare({"a": (X, Y3)}, ["l2svc;C=1;multiclass=ovo"], metric=["aurc"], **FEW)
    split = Design(**FEW).split("a", np.unique(Y3, return_inverse=True)[1], 0)
    model = SVMClassifier(C=1, loss="squared_hinge", multiclass="ovo", tol=1e-3).fit(X[split.train], Y3[split.train])
    scores = model.decision_function(X[split.test])
    top = np.sort(scores, axis=1)
    order = np.argsort(top[:, -2] - top[:, -1], kind="stable")
    wrong = (model.predict(X[split.test]) != Y3[split.test])[order]
    expected = (np.cumsum(wrong) / np.arange(1, len(wrong) + 1)).mean()
    assert found.trials[0]["scores"]["aurc"] == pytest.approx(expected, abs=1e-3)


def test_the_same_bits_again_threaded_and_resumed(tmp_path):
    sets, methods = {"a": (X, Y), "b": (X[:60], Y3[:60])}, ["l2svc;C=0.5,8", "odm;C=1;mu=0,0.5;theta=0.2", "cs;C=1"]
    run = partial(compare, sets, methods, metric=["accuracy", "auc"], **FEW)
    path = tmp_path / "journal"
    whole = run(threads=1, journal=path).to_json(seconds=False)
    assert run(threads=3).to_json(seconds=False) == whole
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 3 + 2 + 18
    for cut in (3, 9, 24):
        path.write_bytes(b"".join(lines[:cut]) + b'{"trial": {"se')
        made = []
        assert run(threads=2, resume=path, progress=lambda *told, made=made: made.append(told)).to_json(
            seconds=False) == whole
        assert len(made) == 24 - max(cut, 6) and path.read_bytes().count(b"\n") == 24
        assert path.read_bytes().endswith(b"}\n")
    # More splits and methods: what is there is not done again.
    more = compare(sets, [*methods, "ww;C=1"], metric=["accuracy", "auc"], splits=4, folds=3, resume=path)
    assert len(more.trials) == 2 * 4 * 4 and path.read_bytes().count(b"\n") == 24 + 1 + 2 * 4 + 3 * 2
    same = [trial for trial in more.trials if trial["method"] != "ww" and trial["split"] < 3]
    assert [trial["seconds"] for trial in same] == [json.loads(line)["trial"]["seconds"] for line in sorted(
        path.read_bytes().splitlines()[6:24], key=lambda line: order(json.loads(line)["trial"]))]
    for change, message in [({"folds": 4}, "its design folds is 3, here it is 4"), ({"metric": "auc"}, "its metrics"),
                            ({"scale": "unit"}, "its scale is None, here it is 'unit'")]:
        with pytest.raises(DataError, match=message):
            run(resume=path, **change)
    with pytest.raises(DataError, match="its set a is another one"):
        compare({"a": (X + 1, Y)}, methods, metric=["accuracy", "auc"], resume=path, **FEW)
    with pytest.raises(DataError, match="its method cs is another one"):
        compare({"a": (X, Y)}, ["cs;C=2"], metric=["accuracy", "auc"], resume=path, **FEW)
    with pytest.raises(ValueError, match="is there: go on with it"):
        run(journal=path)
    # One that an error has left without a trial is none.
    path.write_bytes(b"".join(lines[:5]))
    assert run(journal=path).to_json(seconds=False) == whole


def order(trial):
    return trial["set"], trial["split"], ["l2svc", "odm", "cs"].index(trial["method"])


def test_uncertified_fits_are_counted_and_left_out():
    methods = ["l2svc;C=0.5", "hasty=l2svc;C=1000;max_iter=1;tol=1e-9"]
    found = compare({"a": (X, Y)}, methods, **FEW)
    assert found.uncertified("a", "hasty") == 3 and found.uncertified("a", "l2svc") == 0
    assert found.scores("accuracy", "a", "hasty") == {} and math.isnan(found.table()[1]["mean"])
    assert "Fits without a certificate within their tolerance: 3, left out" in str(found)
    assert found.counts("accuracy", "hasty") == (0, 0, 0) and "3 not certified" in repr(found)
    kept = compare({"a": (X, Y)}, methods, certified_only=False, **FEW)
    assert len(kept.scores("accuracy", "a", "hasty")) == 3 and "(3 uncertified)" in str(kept)
    # A point whose inner fits fall short is not chosen where there are others.
    tried = [Tried({"C": 1}, 0.8, 0), Tried({"C": 2}, 0.9, 1), Tried({"C": 3}, 0.8, 0), Tried({"C": 4}, math.nan, 0)]
    assert best_of(tried, "accuracy").params == {"C": 1} and best_of(tried[1:2], "accuracy").params == {"C": 2}
    assert best_of(tried[:1] + tried[2:], "aurc").params == {"C": 1}
    grid = compare({"a": (X, Y)}, ["l2svc;C=0.0001,100000;max_iter=1;tol=0.1"], **FEW)
    assert all(trial["uncertified"] > 0 for trial in grid.trials)


def told(metric, scores):
    """A Comparison of set -> method -> scores on its splits, None for a fit without a certificate."""
    def trial(name, method, split, score):
        return {"set": name, "method": method, "split": split, "train": 10, "test": 10, "params": {}, "inner": None,
                "scores": {metric: score}, "certified": score is not None, "reason": None, "status": "converged",
                "fits": 0, "uncertified": 0, "seconds": dict.fromkeys(("select", "fit", "predict"), 0.0)}

    labels = list(next(iter(scores.values())))
    return Comparison(study.Plan(Design(), (metric,), "accuracy", None, False),
                      [Entrant(one, one, {}) for one in labels],
                      {name: {"test_rows": None} for name in scores},
                      [trial(name, method, split, score) for name, of in scores.items() for method, values in of.items()
                       for split, score in enumerate(values)])


def test_means_that_rounding_tells_apart_are_equal():
    found = told("accuracy", {f"s{i}": {"a": [.3, .6], "b": [.1, .8]} for i in range(6)})
    assert found.ranking("accuracy").ranks == (1.5, 1.5) and found.over_sets("accuracy")[0].wilcoxon.p == 1
    # The differences .1 and .3 - .2 have one rank.
    assert S.wilcoxon([.3, .1, .7], [.2, .2, .6]).p == S.wilcoxon([3, 1, 7], [2, 2, 6]).p


def test_sets_that_a_method_lacks():
    """It stands there of how many a mean is, and against how many methods a p is adjusted."""
    sets = {f"s{i}": {"a": [.8, .7], "b": [.7, .7], "c": [.9, None] if i else [None, None]} for i in range(6)}
    table = told("accuracy", sets).to_markdown()
    assert re.search(r"\| mean +\| 0.7500 +\| 0.7000 +\| 0.9000 \(5 sets\)", table)
    assert re.search(r"\| s1 +\| \*\*0.7500 ± 0.0707\*\* +\| 0.7000 ± 0.0000 +\| 0.9000", table)
    few = {name: {**of, "c": [.9, .9] if name < "s3" else [None, None]} for name, of in sets.items()}
    assert "Adjusted by Holm" not in told("accuracy", few).to_markdown()
    # Of an error of 0 nothing is a part.
    errors = told("aurc", {**sets, "s9": {"a": [0., 0.], "b": [.1, .1], "c": [.1, .1]}})
    assert [(one.method, one.wilcoxon.pairs) for one in errors.over_sets("aurc")] == [("b", 6), ("c", 5)]
    assert "of errors as parts of a's, without 1 set where that is 0" in errors.to_markdown()


def test_what_does_not_fit_is_a_row_with_its_reason():
    found = compare({"a": (X, Y3)}, ["l2svc;C=1;gamma=1", "softmax;C=1", "nusvc;nu=0.99"], kernel="rbf", **FEW)
    reasons = {method: reason for _, method, reason, count in found.reasons()}
    assert reasons["softmax"] == "softmax has no kernel" and "nu" in reasons["nusvc"]
    assert "| softmax has no kernel" in str(found) and len(found.trials) == 9
    assert found.counts("accuracy", "softmax") == (0, 0, 0)


def test_other_orders_other_signs():
    sets = {name: (X[:, :n], Y) for name, n in zip("abcdef", (1, 2, 3, 1, 2, 3), strict=True)}
    one, two = "l2svc;C=0.01", "odm;C=10;mu=0;theta=0"
    first, second = (compare(sets, pair, **FEW) for pair in ((one, two), (two, one)))
    for name in sets:
        a, b = first.difference("accuracy", name, "odm"), second.difference("accuracy", name, "l2svc")
        assert a.mean == -b.mean and a.p == b.p and {a.verdict, b.verdict} in (
            {"larger", "smaller"}, {"equal"}, {"inconclusive"})
    win, tie, loss = first.counts("accuracy", "odm")
    assert second.counts("accuracy", "l2svc") == (loss, tie, win)
    assert first.ranking("accuracy").ranks == second.ranking("accuracy").ranks[::-1]
    assert first.over_sets("accuracy")[0].wilcoxon.p == second.over_sets("accuracy")[0].wilcoxon.p


def test_regression_and_results(tmp_path):
    y = X @ [1.0, 2, 3] + RNG.standard_normal(90)
    found = compare({"a": (X, y), "b": (X, -y)}, ["l2svr;C=0.001", "best=l2svr;C=1;epsilon=0.1"], metric=["mse", "r2"],
                    splits=8, folds=3)
    assert found.counts("mse", "best") == (2, 0, 0) == found.counts("r2", "best")
    assert found.difference("mse", "a", "best").verdict == "smaller" and "The least is the best." in str(found)
    path = tmp_path / "r.json"
    path.write_text(found.to_json())
    again = Comparison.from_json(path)
    assert again.to_markdown() == found.to_markdown() and again.to_csv() == found.to_csv()
    assert len(found.to_csv().splitlines()) == 1 + 32 and len(found.table()) == 8
    assert found.to_latex().count("\\begin{tabular}") == 2 and len(repr(found).splitlines()) == 5


def test_probabilities_and_groups():
    source = Arrays("a", X, Y3, None, np.arange(90) // 3)
    found = compare([source], ["softmax;C=1", "l2svc;C=1"], metric=["log_loss", "brier", "aurc", "accuracy"],
                    outer_folds=3, folds=3)
    assert len(found.trials) == 6 and found.plan.select == "aurc"
    assert all(0 < trial["scores"]["log_loss"] < 2 for trial in found.trials)
    with pytest.raises(ValueError, match="needs probabilities"):
        compare([source], ["l2svc"], select="brier")


# ---- Others' methods


def test_estimators_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn")
    from sklearn.model_selection import GridSearchCV, PredefinedSplit
    from sklearn.svm import SVC, LinearSVC

    found = compare({"a": (X, Y)}, ["sklearn:sklearn.svm.LinearSVC;C=0.01,1;max_iter=5000", (SVC(), {"C": [0.1, 10]}),
                                    "sklearn:sklearn.naive_bayes.GaussianNB"], metric=["accuracy", "auc"], **FEW)
    assert found.methods == ["LinearSVC", "SVC", "GaussianNB"] and sklearn
    design, codes = Design(**FEW), np.unique(Y, return_inverse=True)[1]
    for number in range(3):
        train, test = design.split("a", codes, number)
        inner = PredefinedSplit(design.inner("a", codes[train], number))
        for label, estimator, grid in [("LinearSVC", LinearSVC(max_iter=5000, random_state=0), [0.01, 1]),
                                       ("SVC", SVC(random_state=0), [0.1, 10])]:
            search = GridSearchCV(estimator, {"C": grid}, cv=inner).fit(X[train], Y[train])
            trial = found.of("a", label)[number]
            assert trial["params"]["C"] == search.best_params_["C"] and trial["reason"] is None
            assert trial["scores"]["accuracy"] == pytest.approx(search.score(X[test], Y[test]))
    assert all(trial["scores"]["auc"] > 0.7 for trial in found.trials)
    with pytest.raises(ValueError, match="cannot be imported"):
        contestant_of("sklearn:sklearn.svm.Nothing")
    hasty = compare({"a": (100 * X, Y)}, [LinearSVC(max_iter=2), "l2svc;C=1"], threads=2, **FEW)
    assert [trial["status"] for trial in hasty.of("a", "LinearSVC")] == ["max_iter"] * 3
    assert hasty.uncertified("a", "LinearSVC") == 3 and hasty.of("a", "LinearSVC")[0]["n_iter"] == 2
    broken = compare({"a": (X, Y)}, [(SVC(), {"C": [-1.0]})], **FEW)
    assert "InvalidParameterError" in broken.trials[0]["reason"]

    class Silent(SVC):
        def predict(self, X):
            raise NotImplementedError("not today")

    silent = compare({"a": (X, Y)}, [Silent()], **FEW)
    assert silent.trials[0]["reason"] == "NotImplementedError: not today"


def test_estimators_among_the_values_of_a_grid():
    """They are copies: the caller's are not fitted, threads do not share them, and the seed reaches them."""
    pytest.importorskip("sklearn")
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import Pipeline

    forest = RandomForestClassifier(5)
    def method():
        return Pipeline([("last", KNeighborsClassifier())]), {"last": [KNeighborsClassifier(), forest]}

    found = [compare({"a": (X, Y)}, [method()], threads=threads, splits=4, folds=2) for threads in (1, 2)]
    assert not [trial["reason"] for trial in found[0].trials if trial["reason"]] and not hasattr(forest, "classes_")
    assert found[0].to_json(seconds=False) == found[1].to_json(seconds=False)


def test_what_an_estimator_is():
    """As the journal tells methods apart: also where scikit-learn's texts are shortened."""
    pytest.importorskip("sklearn")
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    def key(last):
        return estimator_of(GridSearchCV(SVC(), {"C": [1.0] * 40 + [last]}), None, None).key

    assert key(2.0) == key(2.0) != key(3.0)
    assert estimator_of(SVC(class_weight={0: 2}), {"C": [1]}, "mine").key == {
        "sklearn": "SVC", "fixed": {}, "grid": {"C": ["1"]}, "estimator": "SVC(class_weight={0: 2})"}
    assert " at 0x" not in estimator_of(SVC(kernel=lambda a, b: a @ b.T), None, None).key["estimator"]
    found = compare({"a": (X, Y)}, [("one", SVC()), ("two", SVC(), {"C": [0.1, math.inf]})], **FEW)
    assert found.methods == ["one", "two"] and '"C": "inf"' in found.to_json()
    literal = contestant_of('sklearn:sklearn.svm.SVC;class_weight={"up":1,"down":5};C=0.1,1', {})
    assert literal.fixed == {"class_weight": {"up": 1, "down": 5}} and literal.grid == {"C": [0.1, 1]}
    with pytest.raises(ValueError, match="a grid beside it is for methods of marginlinear"):
        contestant_of("sklearn:sklearn.svm.SVC", {}, {"SVC": "C=1"})


def test_what_an_estimator_predicts():
    pytest.importorskip("sklearn")
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    class Stranger(DummyClassifier):
        def predict(self, X):
            return np.full(len(X), "aaa")

    class Plain:
        """Of scikit-learn's kind by its methods alone."""

        def fit(self, X, y):
            self.most = sorted(y)[0]
            return self

        def predict(self, X):
            return [self.most] * len(X)

        def get_params(self, deep=True):
            return {}

        def set_params(self, **params):
            return self

    found = compare({"a": (X, Y)}, [Stranger(), Plain(), (LogisticRegression(), {"C": [-1.0, 1.0]}),
                                    (DecisionTreeClassifier(), {"max_depth": [None, 1]})],
                    metric=["accuracy", "auc"], **FEW)
    assert "predicts 'aaa', which is no class of the set: down, up" in found.trials[0]["reason"]
    assert all(trial["scores"] == {"accuracy": pytest.approx(0.5, abs=0.2), "auc": None}
               for trial in found.of("a", "Plain"))
    # Of the points that it refuses none is chosen.
    assert {trial["params"]["C"] for trial in found.of("a", "LogisticRegression")} == {1.0}
    assert "max_depth" in found.to_markdown()
    with pytest.raises(ValueError, match="y: row 2 has no label, but None"):
        compare({"a": (X, np.array(["a", "b", None] * 30, dtype=object))}, ["l2svc"])
    # Three pairs of classes are not three classes.
    pairs = compare({"a": (X, Y3)}, [("pairs", SVC(decision_function_shape="ovo")), SVC()], metric=["auc"],
                    select="accuracy", **FEW)
    assert {method: {trial["scores"]["auc"] is None for trial in pairs.of("a", method)}
            for method in pairs.methods} == {"pairs": {True}, "SVC": {False}}
    # Of one kind in all parts, whatever theirs would be.
    half = sparse.csr_array(X * (np.arange(90) % 2 == 0)[:, np.newaxis])
    half = compare({"a": (sparse.vstack([half, sparse.csr_array(X[:6])], format="csr"), np.append(Y, Y[:6]))},
                   [GaussianNB()], splits=12, folds=2)
    assert not any(trial["reason"] for trial in half.trials)


def test_a_class_of_ones_own(tmp_path, monkeypatch, capsys):
    """It is looked for in the current folder, by the installed command too."""
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    Path("own_of_mine.py").write_text("from sklearn.dummy import DummyClassifier\n\n\nclass Own(DummyClassifier):\n"
                                      "    pass\n")
    dump_libsvm(X, Y, "rows")
    words = ["-q", "-c", "1", "--splits", "2"]
    assert margin_compare.main([*words, "-s", "l2svc,sklearn:own_of_mine.Own", "-o", "found.md", "rows"]) == 0
    assert "# l2svc, Own" in Path("found.md").read_text()
    assert margin_compare.main([*words, "-s", "l2svc,own_of_mine.Own", "rows"]) == 2
    assert "a class is named as sklearn:own_of_mine.Own" in capsys.readouterr().err


def test_liblinear_joins():
    try:
        theirs = contestant_of("liblinear:-s 2 -B 1;C=0.25,4;e=0.0001")
    except ValueError as error:
        pytest.skip(str(error))
    ours = "l2svc;C=0.25,4;bias=1;tol=1e-6"
    for y in Y, Y3:
        found = compare({"a": (X, y)}, [ours, theirs], metric=["accuracy", "auc"], **FEW)
        for one, two in zip(found.of("a", "l2svc"), found.of("a", "liblinear -s 2 -B 1"), strict=True):
            assert two["reason"] is None and one["params"]["C"] == two["params"]["C"]
            assert one["scores"] == pytest.approx(two["scores"], abs=0.03)
        both = compare({"a": (X, y)}, ["logistic;C=1;bias=1;tol=1e-6", "liblinear:-s 0 -B 1 -c 1 -e 1e-6"],
                       metric=["log_loss"], **FEW)
        assert both.difference("log_loss", "a", "liblinear -s 0 -B 1 -c 1 -e 1e-6").mean == pytest.approx(0, abs=1e-3)
    capped = compare({"a": (1000 * X, Y)}, ["liblinear:-s 3 -c 1000"], **FEW)
    if theirs.program is not None:
        assert {trial["status"] for trial in capped.trials} == {"max_iter"} and capped.uncertified(
            "a", "liblinear -s 3 -c 1000") == 3


# ---- Texts, files, the command


@pytest.mark.parametrize("given, message", [
    ({"methods": []}, "methods: there is none"), ({"methods": ["xyz"]}, "'xyz' is not known"),
    ({"methods": ["odm;mu"]}, "'mu' is no PARAM=VALUES"), ({"methods": ["odm;nu=1"]}, "'nu' is not a parameter of odm"),
    ({"methods": ["odm", "odm"]}, "two methods are called odm"), ({"methods": ["oneclass"]}, "nothing to compare"),
    ({"methods": ["odm", "l2svr"]}, "l2svr predicts numbers"), ({"methods": [";C=1"]}, "the method is missing"),
    ({"metric": "mse"}, "does not measure classes"), ({"splits": 0}, "splits = 0"), ({"train_size": 0}, "_size = 0"),
    ({"sets": {}}, "sets: there is none"), ({"sets": {"a": X}}, "sets: give paths"), ({"scale": "x"}, "scale = 'x'"),
    ({"sets": {"a": (X, Y[:5])}}, "a: X has 90 rows, y has 5"), ({"sets": {"a": (X, Y == "no")}}, "at least 2 classes"),
    ({"grids": {"xyz": "C=1"}}, "there is no method xyz"), ({"gamma": 1.0}, "gamma = 1.0 is of no use"),
    ({"sets": {"a": (X, Y, X[:, :2], Y)}}, "the parts have"), ({"bias": "a"}, "bias = 'a'")])
def test_what_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        compare(**{"sets": {"a": (X, Y)}, "methods": ["l2svc"], **given})


def test_texts_of_methods():
    found = contestant_of("wide=odm;C=log2:-1:1:1;mu=0.5;tol=0.01", {"bias": 1.0, "mu": 0.1})
    assert found.label == "wide" and found.fixed == {"tol": 0.01, "mu": 0.5, "bias": 1.0}
    assert found.grid == {"theta": [0, 0.2, 0.5], "C": [0.5, 1, 2]}
    assert contestant_of("odm;defaults;C=1,2").grid == {"C": [1, 2]}
    beside = contestant_of("odm", {}, {"odm": "C=3,mu=0,1"})
    assert beside.fixed == {"C": 3} and beside.grid == {"theta": [0, 0.2, 0.5], "mu": [0, 1]}


def test_csv(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("\ufeffage, town,kind\n1,Ulm,yes\n2.5,Bonn,no\n-3,Ulm,yes\n", encoding="utf-8")
    table = read_csv(str(path), "kind", ["town"])
    assert table.rule.features == ("age", "town=Ulm", "town=Bonn") and table.y.tolist() == ["yes", "no", "yes"]
    assert table.X.tolist() == [[1, 1, 0], [2.5, 0, 1], [-3, 1, 0]]
    assert read_csv(str(path), "age", ["town", "kind"]).y.tolist() == [1, 2.5, -3]
    part = read_csv(str(path), "kind", leave_out=["town"])
    assert part.rule.features == ("age",) and part.left_out == {"town": ("Ulm", "Bonn", "Ulm")}
    other = tmp_path / "e.csv"
    other.write_text("town,age,kind\nHof,7,no\n")
    assert read_csv(str(other), "kind", like=table.rule).X.tolist() == [[7, 0, 0]]
    for text, message in [("", ":1:1: the file is empty"), ("a,a\n1,2\n", "two columns are called 'a'"),
                          ("a,b\n1,2\n", "there is no column 'kind'"), ("a,kind\n1\n", ":2:2: 1 cells: 2 are needed"),
                          ("a,kind\n,1\n", "the cell is empty"), ("a,kind\nx,1\n", "'x' is no finite number"),
                          ("a,kind\n1,\n", ":2:2: column 'kind': the cell is empty"),
                          ("a,kind\n1,2\n3,nan\n", ":3:2: column 'kind': 'nan' stands among numbers"),
                          ("a,kind\n", "no rows below"), ('a,kind\n"1,2\n', "not CSV")]:
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_csv(str(path), "kind")
    path.write_text("town,kind\nUlm,1\n,2\n")
    with pytest.raises(DataError, match=":3:1: column 'town': the cell is empty"):
        read_csv(str(path), "kind", ["town"])


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{a:.3f},{b:.3f},{label}" for (a, b, _), label in zip(X, Y, strict=True)]
    (tmp_path / "d.csv").write_text("\n".join(["a,b,what", *rows]) + "\n")
    base = ["-s", "l2svc,odm", "--grid", "odm:C=1,mu=0.5,theta=0.2", "--splits", "2", "--folds", "3", "--label", "what"]
    assert margin_compare.main([*base, "--journal", "j", "-o", "r.json", "-o", "r.md", "d.csv"]) == 0
    told = capsys.readouterr()
    assert told.out == (tmp_path / "r.md").read_text() and "| d " in told.out
    assert re.fullmatch(r"4 trials, 52 fits: about \d+ s on \d+ threads?\n", told.err)
    assert margin_compare.main([*base, "--resume", "j", "-q", "-o", "again.json", "d.csv"]) == 0
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "r.json").read_bytes()
    # Groups are a column, which is no feature then; and a test part that came with the set.
    turned = [",".join(row.split(",")[::-1]) for row in rows[:30]]
    (tmp_path / "d.t.csv").write_text("\n".join(["what,b,a", *turned]) + "\n")
    whose = [f"{at // 9},{row}" for at, row in enumerate(rows)]
    (tmp_path / "g.csv").write_text("\n".join(["who,a,b,what", *whose]) + "\n")
    assert margin_compare.main(["-s", "l2svc", "--label", "what", "-c", "1", "--groups", "who", "-q", "-o", "g.json",
                                "--splits", "2", "--folds", "2", "g.csv"]) == 0
    told = json.loads((tmp_path / "g.json").read_text())
    assert told["sets"]["g"]["features"] == 2 and told["trials"][0]["train"] == 45
    (tmp_path / "who").touch()
    assert margin_compare.main(["-s", "l2svc", "--label", "what", "--groups", "who", "-q", "g.csv"]) == 1
    assert "who is a column, and there is such a file: for groups give ./who" in capsys.readouterr().err
    assert margin_compare.main(["-s", "l2svc", "--label", "what", "-c", "1", "--given-test", "-q", "-o", "g.json",
                                "d.csv", "d.t.csv"]) == 0
    told = json.loads((tmp_path / "g.json").read_text())
    assert list(told["sets"]) == ["d"] and told["sets"]["d"]["test_rows"] == 30 and len(told["trials"]) == 1
    assert len(told["trials"][0]["replicates"]["accuracy"]) == 1000
    (tmp_path / "d.t.csv").unlink()
    capsys.readouterr()
    for words, status, message in [
            ([], 2, "the methods are missing"), (["-s", "l2svc"], 2, "the data files are missing"),
            (["-s", "l2svc", "-"], 2, "standard input is none"), (["-s", "l2svc,xs", "d.csv"], 2, "'xs' is not known"),
            (["-s", "l2svc", "--mu", "0.5", "d.csv"], 2, "--mu is a parameter of none of the methods"),
            (["-s", "l2svc", "--metric", "auc,auc", "d.csv"], 2, "metric: auc is named twice: give each metric once"),
            (["-s", "odm", "--grid", "odm:C=1", "--grid", "odm:mu=0", "d.csv"], 2, "in one, odm:C=1,mu=0"),
            (["-s", "l2svc", "-o", "x.txt", "d.csv"], 2, "-o x.txt: give a name that ends in"),
            (["-s", "l2svc", "-o", "d.csv", "d.csv"], 2, "are one file"),
            (["-s", "l2svc", "--outer-folds", "3", "--splits", "2", "d.csv"], 2, "--splits is of random splits"),
            (["-s", "l2svc", "d.csv"], 1, "of labels: the columns are a, b, what; name one by --label"),
            (["-s", "l2svc", "--label", "what", "--train-size", "99", "-q", "-o", "x.md", "d.csv"], 1,
             "nothing could be tried: train_size = 99 is 99 of 90 rows"),
            (["-s", "l2svc", "none"], 1, "can't open input file none"),
            (["-s", "l2svc", "d.parquet"], 1, "d.parquet: Parquet is not compared on; write a CSV file of it"),
            (["-s", "l2svc", "--given-test", "--label", "what", "d.csv"], 1, "there is no d.t.csv")]:
        assert margin_compare.main(words) == status
        assert message in capsys.readouterr().err
    # Results that are there, by other limits, and joined.
    found = {name: compare({name: (X[:, :n], Y)}, ["l2svc;C=1", "cs;C=1"], **FEW) for name, n in (("a", 1), ("b", 2))}
    for name, one in found.items():
        (tmp_path / f"{name}.json").write_text(one.to_json())
    assert margin_compare.main(["--rope", "0.9", "-o", "ab.json", "a.json", "b.json"]) == 0
    both = Comparison.from_json("ab.json")
    assert capsys.readouterr().out == both.to_markdown() and list(both.sets) == ["a", "b"] and both.rope == 0.9
    assert both.trials == found["a"].trials + found["b"].trials and both.counts("accuracy", "cs")[1] == 2
    assert margin_compare.main(["--rope", "0.9", "--json", "a.json", "b.json"]) == 0
    assert capsys.readouterr().out == (tmp_path / "ab.json").read_text()
    assert margin_compare.main(["-s", "l2svc", "--json", "--dry-run", "d.csv"]) == 2
    assert margin_compare.main(["a.json", "a.json"]) == 1 and "the set a is in two" in capsys.readouterr().err
    assert margin_compare.main(["a.json", "r.json"]) == 1 and "not of the same methods" in capsys.readouterr().err
    assert margin_compare.main(["-B", "1", "a.json"]) == 2 and "-B is for a comparison" in capsys.readouterr().err
    assert margin_compare.main(["--help", "all"]) == 0 and "--outer-folds N" in capsys.readouterr().out


def test_pictures(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    from marginlinear.cli import plot
    from marginlinear.plotting import CriticalDifferenceDisplay

    # Demsar's Figure 1: with a critical difference of 1.25 all four are joined.
    ranks = [3.143, 2.0, 2.893, 1.964]
    assert CriticalDifferenceDisplay("abcd", ranks, 1.25).plot().groups == [(0, 3)]
    drawn = CriticalDifferenceDisplay("abcd", ranks, 0.95).plot()
    assert drawn.groups == [(0, 2), (2, 3)] and len(drawn.bars_) == 2
    assert [label.get_text().split()[0] for label in drawn.labels_[:2]] == ["d", "b"]
    sets = {name: (X[:, :n], Y) for name, n in zip("abcdef", (1, 2, 3, 1, 2, 3), strict=True)}
    found = compare(sets, ["l2svc;C=0.01", "odm;C=1;mu=0;theta=0"], margins=True, **FEW)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.json").write_text(found.to_json())
    assert CriticalDifferenceDisplay.from_comparison(found).ranks.tolist() == list(found.ranking("accuracy").ranks)
    assert len(found.margins("b", "odm")) == 101 and np.all(np.diff(found.margins("b", "odm")) >= 0)
    for words in ("ranks -o r.svg r.json", "compared --set b -o m.svg r.json"):
        assert plot.main(words.split()) == 0
    assert (tmp_path / "r.svg").stat().st_size > 1000
    assert plot.main(["compared", "--set", "z", "-o", "m.svg", "r.json"]) == 1
    assert plot.main(["ranks", "--metric", "auc", "-o", "m.svg", "r.json"]) == 1
    assert "there is no set z" in (told := capsys.readouterr().err) and "auc' was not measured" in told


def test_damaged_results_and_journals(tmp_path):
    found = compare({"a": (X, Y)}, ["l2svc;C=1"], journal=tmp_path / "j", threads=1, **FEW)
    whole = json.loads(found.to_json())
    path = tmp_path / "r.json"
    for change, message in [(lambda told: told.pop("sets"), "KeyError: 'sets'"),
                            (lambda told: told["trials"][0].pop("inner"), "not a trial: set, method"),
                            (lambda told: told["trials"][1]["scores"].update(accuracy="x"), "'x' is not a number"),
                            (lambda told: told.update(metrics=["mse"]), "does not measure classes"),
                            (lambda told: told["methods"][0].update({"is": None}), "AttributeError: "),
                            (lambda told: told["methods"][0]["is"].update(grid={"C": 5}), "TypeError: "),
                            (lambda told: told["trials"][2].update(split="1"), "split is '1'")]:
        told = json.loads(json.dumps(whole))
        change(told)
        path.write_text(json.dumps(told))
        with pytest.raises(DataError, match=message):
            Comparison.from_json(path)
    path.write_text("{")
    with pytest.raises(DataError, match=r"r.json:1:\d: not JSON"):
        Comparison.from_json(path)
    lines = (tmp_path / "j").read_text().splitlines(keepends=True)
    for at, line, message in [(0, '{"search": {}}\n', "not the journal of a comparison"), (3, '{"a": 1}\n', "neither"),
                              (3, lines[3].replace('"split": 0', '"split": 0.5'), "split is '0.5'"),
                              (4, "[1]\n", "not a line of a journal"), (4, "{\n", "not a line of a journal: ")]:
        path.write_text("".join([*lines[:at], line, *lines[at + 1:]]))
        with pytest.raises(DataError, match=message):
            compare({"a": (X, Y)}, ["l2svc;C=1"], resume=path, **FEW)


def test_trials_on_an_executor():
    methods = ["l2svc;C=1,4", "odm;C=1;mu=0;theta=0"]
    with ThreadPoolExecutor(2) as executor:
        there = compare({"a": (X, Y)}, methods, executor=executor, **FEW)
    assert there.to_json(seconds=False) == compare({"a": (X, Y)}, methods, **FEW).to_json(seconds=False)
    for method in methods:
        made = contestant_of(method, {"bias": 1.0})
        assert pickle.loads(pickle.dumps(made)).key == made.key


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").write_text("1 1:1\n2 1:2\n" * 10)
    tell = margin_compare.Progress.__call__

    def stop(self, trial, done, total):
        tell(self, trial, done, total)
        if done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(margin_compare.Progress, "__call__", stop)
    words = ["-s", "l2svc", "-c", "1", "--splits", "4", "--threads", "1"]
    assert margin_compare.main([*words, "--journal", "j", "d"]) == 130
    assert capsys.readouterr().err.partition("\n")[2] == (
        "2 of 4 trials are in j: the same command with --resume j goes on\nmargin-compare: interrupted\n")
    assert margin_compare.main([*words, "d"]) == 130 and "nothing was kept" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert margin_compare.main([*words, "--resume", "j", "d"]) == 0 and "| d " in capsys.readouterr().out


# ---- How long it takes


class Clock:
    """A time of its own, and a contestant whose trials take a known part of it: SECOND a row of a search's fits, by
    the point's C, FIXED a fit, and SECOND a row for the last fit."""

    SECOND, FIXED = 3e-5, 0.0
    label, key, described, regression, power = "clocked", {}, "clocked", False, 1.0

    def __init__(self):
        self.now, self.searched = 0.0, []

    def perf_counter(self):
        return self.now

    def unfit(self, task):
        return None

    def points(self, task):
        return [{"C": c, "other": other} for other in range(8) for c in (1.0, 2.0)]

    def chains(self, points):
        return [[p, p + 1] for p in range(0, len(points), 2)]

    def search(self, task, points):
        self.searched.append((len(task.y), len(points), task.tried))
        rows = sum((task.fold_of != fold).sum() for fold in task.at_work)
        self.now += self.SECOND * rows * sum(point["C"] for point in points)
        self.now += self.FIXED * len(points) * len(task.at_work)
        return [Tried(point, 0.5, 0) for point in points]

    def fit(self, task, point, probability):
        self.now += self.SECOND * len(task.y)
        return Fitted(lambda X: (np.zeros(len(X), dtype=int), None), "converged")


def test_seconds_are_foreseen(monkeypatch):
    """Seconds in proportion to the rows are told exactly, of few rows, chains and folds; what is cheap is all tried."""
    X = np.random.default_rng(0).standard_normal((4000, 2))
    y = np.arange(4000) % 2
    few = [(62, 8, 1), (62, 8, 1), (250, 8, 1)]
    for splits, expected in ((3, few), (500, [*few, (1000, 8, 1), (1000, 16, None)])):
        clock = Clock()
        monkeypatch.setattr(foresight, "time", clock)
        monkeypatch.setattr(study, "time", clock)
        found = forecast({"some": (X, y)}, [clock], splits=splits, train_size=0.25, folds=4, level=0.1, threads=2)
        assert clock.searched == expected
        (part,) = found.parts
        assert (part.trials, part.fits, found.fits) == (splits, 65, 65 * splits)
        # 16 points of C = 1 or 2, each on 4 times 750 rows, and a fit on 1000.
        assert part.seconds == pytest.approx(clock.SECOND * (3000 * 24 + 1000), rel=0.02)
        assert found.wait == pytest.approx(max(part.seconds, found.seconds / 2))
    # What a fit takes whatever its rows is found, though one trial of few takes more seconds than may be spent.
    monkeypatch.setattr(Clock, "FIXED", 4.0)
    clock = Clock()
    monkeypatch.setattr(foresight, "time", clock)
    monkeypatch.setattr(study, "time", clock)
    (part,) = forecast({"some": (X, y)}, [clock], splits=3, train_size=0.25, folds=4, level=0.1).parts
    assert clock.searched == [(62, 8, 1), (16, 8, 1)]
    assert part.seconds == pytest.approx(4 * 64 + clock.SECOND * (3000 * 24 + 1000), rel=0.02)


def test_splits_without_a_class_are_passed_over_in_a_forecast():
    rng = np.random.default_rng(0)
    y = (np.arange(2000) < 3).astype(int)
    given = {"some": (rng.standard_normal((2000, 2)) + y[:, None], y)}, ["l2svc"]
    found = compare(*given, splits=2, train_size=0.5, folds=3, seed=1)
    assert [trial["reason"] is None for trial in found.trials] == [False, True]
    (part,) = forecast(*given, splits=2, train_size=0.5, folds=3, seed=1).parts
    assert part.fits == found.trials[1]["fits"] + 1 and part.seconds > 0
    (part,) = forecast(*given, splits=2, train_size=0.2, folds=3, seed=1).parts
    assert (part.fits, part.seconds) == (0, 0)


def test_seconds_of_more_rows():
    assert extrapolated([(100, 2.0)], 300, 2.0) == 6
    assert extrapolated([(50, 9.0), (100, 2.0), (400, 5.0)], 1000, 2.0) == pytest.approx(5 + 0.01 * 600)
    assert extrapolated([(100, 1.0), (400, 8.0)], 1000, 2.0) == pytest.approx(8 * 2.5**1.5)
    assert extrapolated([(100, 1.0), (400, 20.0)], 1000, 2.0) == pytest.approx(20 * 2.5**2)
    assert extrapolated([(100, 1.0), (400, 20.0)], 1000, 1.0) == pytest.approx(20 * 2.5)
    assert extrapolated([(100, 1.0), (400, 0.9)], 1000, 2.0) == pytest.approx(0.9)
    for text, power in (("l2svc", 1), ("l2svc;kernel=rbf", 2), ("l2svc;kernel=linear,rbf", 2)):
        assert contestant_of(text).power == power
    progress = margin_compare.Progress(margin_compare.StatusLine(True), False, Forecast(
        [Expected("a", "slow", 10, 1, 9.0), Expected("a", "quick", 10, 1, 1.0)], 2))
    assert progress.left(0) == pytest.approx(50)
    for done in range(10):
        progress({"set": "a", "method": "quick", "split": done}, done + 1, 20)
    # Twice as slow as expected: those that are left take 90 s of two threads, not the 10 s that as many have taken.
    assert progress.left(10) == pytest.approx(90 * (10 + 1) / (10 + 2))


def test_a_dry_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").write_text("1 1:1\n2 1:2\n1 1:1.5 2:1\n2 2:1\n" * 10)
    words = ["-s", "l2svc,lpmcsvm", "-c", "1", "--splits", "3", "--folds", "2", "--threads", "1", "d"]
    assert margin_compare.main([*words, "--dry-run", "--journal", "j", "-o", "r.json"]) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:4] for row in rows] == [["d", "l2svc", "3", "3"], ["d", "lpmcsvm", "3", "27"], ["all", "", "6", "30"]]
    assert all(float(row[4]) > 0 for row in rows) and [path.name for path in tmp_path.iterdir()] == ["d"]
    assert margin_compare.main([*words, "-q", "--journal", "j", "-o", "r.json"]) == 0
    trials = json.loads((tmp_path / "r.json").read_text())["trials"]
    assert [trial["fits"] + 1 for trial in trials] == [1, 9] * 3
    capsys.readouterr()
    # What the journal has is not made again, and tells the seconds.
    assert margin_compare.main([*words, "--dry-run", "--resume", "j", "--splits", "5"]) == 0
    line = capsys.readouterr().out.splitlines()[3].split("|")
    seconds = sum(sum(trial["seconds"].values()) for trial in trials if trial["method"] == "lpmcsvm") / 3
    assert line[3:5] == [" 2      ", " 18   "] and float(line[5]) == pytest.approx(2 * seconds, rel=0.01)


def test_values_that_were_chosen():
    few, many = {0.5: 3, 0.25: 1}, {1 / k: 1 for k in range(1, 22)}
    lines = list(choices(SimpleNamespace(choices=lambda: {"a": {"C": few, "kernel": {"rbf": 3, "poly": 1}},
                                                          "b": {"gamma": many}}, at_ends=list)))
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[-3:]] == [
        ["a", "C", "4", "0.25: 1, 0.5: 3"], ["a", "kernel", "4", "poly: 1, rbf: 3"],
        ["b", "gamma", "21", "0.04762 to 1, median 0.09091"]]


def test_values_at_the_ends_of_grids():
    """Told of parameters that could go on, where more than half of a set's trials chose them."""
    grids = {"a": {"C": [1.0, 2.0, 4.0], "mu": [0.0, 0.2, 0.8]}, "b": {"C": ["1", "2", "4"]}, "two": {"C": [1.0, 4.0]},
             "words": {"C": ["1", "4", "scale"]}}
    chosen = {"x": [1.0, 1.0, 4.0], "y": [4.0, 4.0, 4.0], "z": [1.0, 4.0, 2.0]}
    trials = [{"set": name, "method": label, "params": {"C": value, "mu": 0.0}, "reason": None}
              for name, values in chosen.items() for label in grids for value in values]
    trials.append({"set": "z", "method": "a", "params": {}, "reason": "none"})
    found = Comparison(None, [Entrant(label, label, {"grid": grid}) for label, grid in grids.items()],
                       dict.fromkeys(chosen), trials)
    assert list(found.at_ends()) == [(label, "C", value, value == 1, [name]) for label in "ab"
                                     for value, name in ((1.0, "x"), (4.0, "y"))]
    assert list(choices(found))[-1] == ("- b: C = 4 is the largest that was tried, and most trials chose it on y: what "
                                        "is best there may lie beyond.")


def test_values_of_an_array_are_those_of_a_list():
    """NumPy 1 and 2 call their numbers otherwise, and a journal is that of another comparison where a grid differs."""
    of_list, of_array = (estimator_of(SVMClassifier(), {"C": values}, None) for values in
                         ([0.25, 1.0, 4.0], np.logspace(-2, 2, 3, base=2)))
    assert of_array.key == of_list.key and of_array.key["grid"] == {"C": ["0.25", "1.0", "4.0"]}
