"""margin_report against plain loops and scikit-learn's metrics, and margin-inspect."""

import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import margins
from marginlinear.cli import inspect, train
from marginlinear.cli.data import number
from marginlinear.margins import LEVELS, MarginStatistics, margin_norm, margin_report

ROOT = str(Path(ml.__file__).parents[1])


def data(k, m=90, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(m) % k
    X = rng.standard_normal((m, 5))
    X[np.arange(m), y] += 1.5
    return X.round(3), 3 * y + 2


MODELS = {
    "binary": (2, {"solver": "l2svc", "bias": 1}),
    "joint": (3, {"solver": "mcodm", "bias": 1}),
    "joint of two": (2, {"solver": "cs"}),
    "ovr": (3, {"solver": "ldm"}),
    "ovo": (4, {"solver": "l1svc", "multiclass": "ovo"}),
    "ecoc": (4, {"solver": "odm", "multiclass": "ecoc"}),
    "kernel": (2, {"solver": "l1svc", "kernel": "rbf", "gamma": 0.3, "bias": 1}),
    "joint kernel": (3, {"solver": "mcodm", "kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 1}),
}


@pytest.fixture(scope="module", params=list(MODELS))
def fitted(request):
    """(model, X, y): rows that the model has not seen, the labels of some wrong, one unknown."""
    k, options = MODELS[request.param]
    model = ml.train(*data(k), **options)
    X, y = data(k, 150, seed=1)
    y[::17] = 2
    y[40] = 99
    return model, X, y


def test_numbers_are_those_of_plain_loops(fitted):
    model, X, y = fitted
    report = margin_report(model, X, y, n_lowest=7)
    predicted, known = model.predict(X), y != 99
    g = model.margins(X[known], y[known])
    assert report.n_rows == 150
    assert report.unknown_labels == {99: 1}
    assert report.accuracy == np.mean(predicted == y)
    mean = sum(g) / len(g)
    assert report.margin.mean == pytest.approx(mean, rel=1e-12)
    assert report.margin.variance == pytest.approx(sum((v - mean) ** 2 for v in g) / len(g), rel=1e-12)
    assert report.margin.semi_variance == pytest.approx(sum(max(mean - v, 0) ** 2 for v in g) / len(g), rel=1e-12)
    assert (report.margin.minimum, report.margin.maximum) == (min(g), max(g))
    for level, value in report.margin.quantiles.items():
        assert value == min(v for v in g if np.count_nonzero(g <= v) >= level * len(g))
    pairs = Counter(zip(y[known].tolist(), predicted[known].tolist(), strict=True))
    assert {(label, other): count for label, other, count in report.confused} == pairs
    assert report.confusion.tolist() == [[pairs[i, j] for j in model.classes] for i in model.classes]
    order = np.argsort(g, kind="stable")[:7]
    rows = np.flatnonzero(known)[order]
    assert report.lowest_rows == [(i, y[i], predicted[i], at)
                                  for i, at in zip(rows.tolist(), g[order].tolist(), strict=True)]


def test_scores_of_classes_are_scikit_learns(fitted):
    metrics = pytest.importorskip("sklearn.metrics", reason="pip install scikit-learn")
    model, X, y = fitted
    report, predicted = margin_report(model, X, y), model.predict(X)
    weights = np.random.default_rng(3).uniform(0.5, 2, len(y))
    weighted = margin_report(model, X, y, sample_weight=weights)
    for found, w in ((report, None), (weighted, weights)):
        theirs = metrics.precision_recall_fscore_support(y, predicted, labels=model.classes, sample_weight=w,
                                                         zero_division=np.nan)
        for ours, expected in zip((found.precision, found.recall, found.f1, found.support), theirs, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-12)
        matrix = metrics.confusion_matrix(y, predicted, labels=model.classes, sample_weight=w)
        np.testing.assert_allclose(found.confusion, matrix, rtol=1e-12)
        assert found.accuracy == pytest.approx(metrics.accuracy_score(y, predicted, sample_weight=w), rel=1e-12)
        assert found.macro["f1"] == pytest.approx(np.mean(theirs[2]), rel=1e-12)


def test_weights_are_repeated_rows(fitted):
    model, X, y = fitted
    counts = np.arange(150) % 3
    weighted = margin_report(model, X, y, sample_weight=counts, n_lowest=1)
    repeated = margin_report(model, np.repeat(X, counts, axis=0), np.repeat(y, counts), n_lowest=1)
    for ours, theirs in ((weighted.margin, repeated.margin), (weighted.normalised_margin, repeated.normalised_margin)):
        if ours is not None:
            assert ours[:-1] == pytest.approx(theirs[:-1], rel=1e-9)
            assert ours.quantiles == theirs.quantiles
    assert weighted.confusion.tolist() == repeated.confusion.tolist()
    assert weighted.accuracy == pytest.approx(repeated.accuracy, rel=1e-12)
    row = weighted.lowest_rows[0]
    assert counts[row.row] > 0
    assert row[1:] == repeated.lowest_rows[0][1:]


def test_blocks_and_storages_agree(fitted, monkeypatch):
    model, X, y = fitted
    whole = margin_report(model, X, y, threads=2)
    monkeypatch.setattr(margins, "BLOCK", 20)
    for storage in (np.asarray, sparse.csr_array, sparse.csc_array, np.ndarray.tolist):
        found = margin_report(model, storage(X), y)
        assert found.confusion.tolist() == whole.confusion.tolist()
        assert found.margin[:-1] == pytest.approx(whole.margin[:-1], rel=1e-9)
        assert [row.row for row in found.lowest_rows] == [row.row for row in whole.lowest_rows]


def test_norm(fitted):
    model, *_ = fitted
    norm = margin_norm(model)
    if model.codes is not None:
        assert norm is None
        return
    if hasattr(model, "kernel"):
        S, A = model.support, model.dual_coef
        products = S @ S.T
        squares = np.diag(products)
        K = (np.exp(-0.3 * (squares[:, None] + squares - 2 * products)) if model.kernel.kind == "rbf"
             else (0.5 * products + 1) ** 2)
        G = A.T @ K @ A
    else:
        G = model.coef @ model.coef.T
    k = len(G)
    differences = [G[j, j] + G[l, l] - 2 * G[j, l] for j in range(k) for l in range(j)]
    assert norm == pytest.approx(math.sqrt(max(differences) if model.joint else G[0, 0]), rel=1e-9)


def test_norm_of_many_classes_is_found_in_blocks(monkeypatch):
    model = ml.Model(np.random.default_rng(0).standard_normal((5, 30)), np.arange(30))
    whole = margin_norm(model)
    monkeypatch.setattr(margins, "INNER", 70)
    assert margin_norm(model) == pytest.approx(whole, rel=1e-14)


def test_a_normalised_margin_is_a_distance():
    X, y = data(2)
    model = ml.train(X, y, solver="l2svc", bias=1)
    i = margin_report(model, X, y).lowest_rows[0].row
    # The nearest point where f is 0.
    foot = X[i] - model.decision_function(X[i : i + 1])[0] * model.coef[0] / (model.coef[0] @ model.coef[0])
    assert abs(model.decision_function(foot[None])[0]) < 1e-12
    assert abs(margin_report(model, X, y).normalised_margin.minimum) == pytest.approx(np.linalg.norm(X[i] - foot))


def test_models_without_a_norm():
    X, y = data(2)
    zero = ml.Model(np.zeros((5, 1)), [2, 5])
    assert margin_report(zero, X, y).norm is margin_report(zero, X, y).normalised_margin is None
    K = X @ X.T
    precomputed = ml.train(K, y, solver="l1svc", kernel="precomputed")
    report = margin_report(precomputed, K, y)
    assert report.norm is None
    assert report.margin.mean == pytest.approx(precomputed.margins(K, y).mean())


def test_top_features():
    W = np.array([[0.0, 3, -1], [2, 0, 1], [2, -5, 1], [-4, 1, 0], [0.5, 0.25, 7]])
    joint = ml.Model(W, ["a", "b", "c"], bias=2)  # the last row is the bias feature
    first, second, third = margins.top_features(joint, 2, ["p", "q", "r", "s"])
    assert first == (["a"], [], 1.0, [(1, "q", 2.0), (2, "r", 2.0)], [(3, "s", -4.0)])
    assert second == (["b"], [], 0.5, [(0, "p", 3.0), (3, "s", 1.0)], [(2, "r", -5.0)])
    assert third == (["c"], [], 14.0, [(1, "q", 1.0), (2, "r", 1.0)], [(0, "p", -1.0)])
    binary = margins.top_features(ml.Model(W[:, :1], [1, 2]), 1)
    assert binary == [([2], [1], 0.0, [(1, None, 2.0)], [(3, None, -4.0)])]
    codes = [[1, 1, 0], [-1, 0, 1], [0, -1, -1]]
    sides = [(top.positive, top.negative) for top in margins.top_features(ml.Model(W, [1, 2, 3], codes=codes), 0)]
    assert sides == [([1], [2]), ([1], [3]), ([2], [3])]


@pytest.mark.parametrize("count", [0, 1, 3, 9, 10, 20])
def test_smallest_is_a_stable_sort(count):
    values = np.array([3.0, 1, 2, 1, 1, 5, 0, 2, 2, 3])
    assert margins.smallest(values, count).tolist() == np.argsort(values, kind="stable")[:count].tolist()


def test_quantiles_are_numpys():
    g = np.random.default_rng(0).standard_normal(997)
    statistics = MarginStatistics.of(g)
    assert list(statistics.quantiles.values()) == np.quantile(g, LEVELS, method="inverted_cdf").tolist()


def test_no_label_is_known():
    X, y = data(2)
    report = margin_report(ml.train(X, y), X, y + 1)
    assert (report.margin, report.normalised_margin, report.accuracy) == (None, None, 0)
    assert report.unknown_labels == {3: 45, 6: 45}
    assert report.confusion.sum() == 0
    assert report.lowest_rows == report.confused == []
    json.dumps(report.to_dict(), allow_nan=False)


def test_bad_arguments():
    X, y = data(2)
    model = ml.train(X, y)
    for change, message in [
        ({"y": y[:-1]}, "X has 90 rows, y has 89 labels"),
        ({"y": y.astype(str)}, "y holds words, the model's classes are numbers"),
        ({"sample_weight": -np.ones(90)}, r"sample_weight\[0\] = -1.0 is not allowed"),
        ({"feature_names": ["a"]}, "feature_names has 1 names, the model 5 features"),
        ({"n_top": -1}, "n_top = -1 is not allowed"),
        ({"n_lowest": 2.5}, "n_lowest = 2.5 is not allowed"),
    ]:
        with pytest.raises(ValueError, match=message):
            margin_report(model, **{"X": X, "y": y, **change})
    with pytest.raises(ValueError, match="feature_names: a kernel model has no weights"):
        margin_report(ml.train(X, y, kernel="rbf"), X, y, feature_names=list("abcde"))


# ---- margin-inspect


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inspect")
    X, y = data(3, 60)
    ml.dump_libsvm(X, y, folder / "d")
    ml.dump_libsvm(X, np.array(["ham", "spam", "é"])[y // 3], folder / "words")
    ml.dump_libsvm(X[y < 8], y[y < 8], folder / "d2")
    (folder / "strange").write_text((folder / "d").read_text() + "7 1:1\n9 9:1\n9 1:2\n")
    (folder / "alone").write_text("7 1:1\n9 1:1\n")
    (folder / "zero").write_text("2 0:1 4:1\n5 1:1\n")
    (folder / "bad").write_text("2 1:1\n5 1:x\n")
    (folder / "v").write_text("red\ngreen\nblue\nwhite\nblack and white\n")
    (folder / "vfew").write_text("red\ngreen\n")
    (folder / "vmany").write_text("a\n" * 6)
    (folder / "vempty").write_text("red\n\nblue\nwhite\nblack\n")
    (folder / "vbytes").write_bytes(b"red\ngr\xffn\nblue\nwhite\nblack\n")
    (folder / "w").write_text("2\n" * 60)
    (folder / "wbad").write_text("1\n-1\n")
    (folder / "p").write_text("svm_type c_svc\nkernel_type precomputed\nnr_class 2\ntotal_sv 1\nrho 0\nlabel 2 5\n"
                              "nr_sv 1 0\nSV\n1 0:1\n")
    before = os.getcwd()
    os.chdir(folder)
    for name, *words in (("m", "d"), ("m2", "-s", "l2svc", "-B", "1", "d2"), ("k", "-t", "2", "d"),
                         ("o", "-s", "ldm", "--multiclass", "ovo", "d"), ("mt", "--text-labels", "words")):
        assert train.main(["-q", *words, name]) == 0
    yield folder
    os.chdir(before)


TABLE = r"\s+margin.*\n(  (mean|variance|semi-variance|minimum|\d+%|maximum) .*\n){14}\n"
CLASSES = r"  class +precision +recall +F1 +rows\n(  \S+( +[01]\.\d{4}){3} +\d+\n)+\n"
TEXT = (r"\S+: \w+, (linear|kernel \w+, \d+ support vectors), \d classes, 5 features\n\S+: \d+ rows\n\n"
        r"Accuracy = \S+% \(\d+/\d+\)\nBalanced accuracy = \S+%\nMacro F1 = \S+%\n\n"
        r"margin: .*\n(normalised: divided by \S+, .*\n)?" + TABLE + CLASSES
        + r"confusion: a line a label, a column a prediction\n(  .*\n)+"
        r"(\nstrongest features for .*:\n(  .*\n)*)*"
        r"(\nrows of lowest margin:\n  row +label +predicted +margin\n(  \d+ .*\n)+)?")
HINT = r"\nTry 'margin-inspect --help'\.\n"
UNKNOWN = r"WARNING: \d rows have a label that the model does not know \(7, 9\): they count as .*\n"

GOLDEN = [
    ("m d", 0, TEXT, ""),
    ("-q m2 d2", 0, TEXT, ""),
    ("k d", 0, TEXT, ""),
    ("o d", 0, TEXT, ""),
    ("mt words", 0, TEXT, ""),
    ("--names v --top 2 --rows 3 --threads 2 m d", 0, TEXT, ""),
    ("--weights w m d", 0, TEXT, ""),
    ("--top 0 --rows 0 m d", 0, TEXT, ""),
    ("m strange", 0, TEXT, "WARNING: 1 values of features above 5, the model's last, are left out\n" + UNKNOWN),
    ("m alone", 0, "(.|\n)*\n  no row has a label that the model knows\n(.|\n)*", UNKNOWN),
    ("--zero-based m zero", 0, "(.|\n)*", ""),
    ("--json m d", 0, r"\{.*\}\n", ""),
    ("--help", 0, r"usage: margin-inspect (.|\n)*", ""),
    ("--version", 0, r"margin-inspect \S+\n", ""),
    ("nothere d", 1, "", r"margin-inspect: can't open model file nothere: No such .*\n"),
    ("m nothere", 1, "", r"margin-inspect: can't open input file nothere: No such .*\n"),
    ("d d2", 1, "", r"margin-inspect: d:1:1: unknown text in model file: .*\n"),
    ("d m", 2, "", r"margin-inspect: m is a model, and d is none: give them the other way round" + HINT),
    ("p d", 1, "", r"margin-inspect: p: the kernel is precomputed, .*\n"),
    ("m bad", 1, "", r"margin-inspect: bad:2:\d: .*\n"),
    ("m zero", 1, "", r"margin-inspect: zero:1:\d: .*--zero-based.*\n"),
    ("m words", 1, "", r"margin-inspect: words:1:1: .*\n"),
    ("--names nothere m d", 1, "", r"margin-inspect: can't open names file nothere: .*\n"),
    ("--names vfew m d", 1, "", r"margin-inspect: vfew:3:1: 2 names for the model's 5 features: give one a line\n"),
    ("--names vmany m d", 1, "", r"margin-inspect: vmany:6:1: 6 names for the model's 5 features: .*\n"),
    ("--names vempty m d", 1, "", r"margin-inspect: vempty:2:1: an empty line is no name: .*\n"),
    ("--names vbytes m d", 1, "", r"margin-inspect: vbytes:2:3: not UTF-8: .*\n"),
    ("--names v k d", 1, "", r"margin-inspect: --names v: a kernel model has no weights of features to be named\n"),
    ("--weights wbad m d", 1, "", r"margin-inspect: wbad:2:1: '-1' is not a weight: .*\n"),
    ("", 2, "", "margin-inspect: the model_file or the data_file is missing" + HINT),
    ("m", 2, "", "margin-inspect: the model_file or the data_file is missing" + HINT),
    ("m d x", 2, "", "margin-inspect: too many files: m d x" + HINT),
    ("- -", 2, "", "margin-inspect: only one of .*" + HINT),
    ("--top x m d", 2, "", "margin-inspect: --top x: top = 'x' is not allowed: .*" + HINT),
    ("--classes 1.5 m d", 2, "", "margin-inspect: --classes 1.5: classes = '1.5' is not allowed: .*" + HINT),
    ("--rows -1 m d", 2, "", "margin-inspect: --rows -1: rows = -1 is not allowed: .*" + HINT),
    ("--json=1 m d", 2, "", "margin-inspect: --json takes no argument" + HINT),
    ("-c 1 m d", 2, "", "margin-inspect: unknown option: -c" + HINT),
]


@pytest.mark.parametrize("line, status, out, err", GOLDEN, ids=[case[0] for case in GOLDEN])
def test_golden(files, capfd, line, status, out, err):
    capfd.readouterr()
    assert inspect.main(line.split()) == status
    shown = capfd.readouterr()
    assert re.fullmatch(out, shown.out), shown.out
    assert re.fullmatch(err, shown.err), shown.err


def test_the_text_in_full(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    model = ml.Model([[2.0], [-1], [0]], [-1, 1], bias=1, solver="l2svc")
    ml.save_model(model, "m")
    Path("d").write_text("1 1:1\n1 1:2\n-1 2:3\n-1 2:-1\n")
    Path("v").write_text("up\ndown\n")
    ml.save_model(ml.Model([[2.0], [0], [0]], [-1, 1], bias=1), "few")
    assert inspect.main(["few", "d"]) == 0
    assert capfd.readouterr().out.splitlines()[0].endswith("2 features, 1 of them with weights")
    assert inspect.main(["--names", "v", "--rows", "1", "m", "d"]) == 0
    assert capfd.readouterr().out == """\
m: l2svc, linear, 2 classes, 2 features
d: 4 rows

Accuracy = 75% (3/4)
Balanced accuracy = 75%
Macro F1 = 73.3333%

margin: y f(x), y = +1 for 1, -1 for -1
normalised: divided by 2.23607, ||w||
                 margin  normalised
  mean                2    0.894427
  variance          3.5         0.7
  semi-variance    2.25        0.45
  minimum            -1   -0.447214
  1%                 -1   -0.447214
  5%                 -1   -0.447214
  10%                -1   -0.447214
  25%                -1   -0.447214
  50%                 2    0.894427
  75%                 3     1.34164
  90%                 4     1.78885
  95%                 4     1.78885
  99%                 4     1.78885
  maximum             4     1.78885

  class  precision  recall      F1  rows
  -1        1.0000  0.5000  0.6667     2
  1         0.6667  1.0000  0.8000     2
  mean      0.8333  0.7500  0.7333     4

confusion: a line a label, a column a prediction
      -1  1
  -1   1  1
  1    0  2

strongest features for 1 against -1:
  up +2
  down -1

rows of lowest margin:
  row  label  predicted  margin
  4       -1          1      -1
"""


def test_json_is_the_report(files, capfd):
    X, y = ml.load_libsvm("d")
    model = ml.load_model("m")
    names = Path("v").read_text().splitlines()
    report = margin_report(model, X, y, feature_names=names, n_top=2, n_lowest=3, auc=True).to_dict()
    capfd.readouterr()
    assert inspect.main(["--json", "--names", "v", "--top", "2", "--rows", "3", "m", "d"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["model"]["path"], found["data"]["path"]) == ("m", "d")
    assert (found["model"]["method"], found["model"]["kernel"]) == ("mcodm", None)
    for row in report["lowest_rows"]:
        row["row"] += 1
    for top in report["top_features"]:
        for feature in top["largest"] + top["smallest"]:
            feature["number"] += 1
    assert found["features"] == report["top_features"] and found["confusion"] == report["confused"]
    assert found["classes"] == report["classes"] and found["data"]["n_rows"] == report["n_rows"]
    assert found["data"]["unknown_labels"] == report["unknown_labels"]
    assert {name: found["scores"][name] for name in ("accuracy", "auc", "log_loss", "brier")} == {
        name: report[name] for name in ("accuracy", "auc", "log_loss", "brier")}
    assert {name: found["margins"][name] for name in ("unit", "norm", "lowest_rows")} == {
        name: report[name] for name in ("unit", "norm", "lowest_rows")}
    for name in ("margin", "normalised_margin"):
        assert [one["value"] for one in found["margins"][name].pop("quantiles")] == [
            one["margin"] for one in report[name].pop("quantiles")]
        assert found["margins"][name] == report[name]


def test_many_classes_show_the_worst_only(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    ml.save_model(ml.Model(np.eye(60), np.arange(60)), "m")
    ml.dump_libsvm(np.eye(60), np.array([1, *range(1, 59), 7]), "d")
    assert inspect.main(["--classes", "5", "m", "d"]) == 0
    text = capfd.readouterr().out
    assert """
the 5 classes of lowest F1 of 60; --classes shows more, --json all
  class  precision  recall      F1  rows
  0         0.0000     nan  0.0000     0
  59        0.0000     nan  0.0000     0
  1         1.0000  0.5000  0.6667     2
  7         1.0000  0.5000  0.6667     2
  2         1.0000  1.0000  1.0000     1
  mean      0.9667  0.9828  0.9556    60

confusion: the 2 most frequent of 2 kinds of errors
  label  predicted  rows
  1              0     1
  7             59     1

strongest features for 0:
  1 +1

strongest features for 59:
""" in text
    assert "features of 5 of 60 columns of weights; --classes shows more\n\nrows of lowest margin:" in text
    assert inspect.main(["--classes", "60", "--top", "0", "m", "d"]) == 0
    assert "--classes" not in capfd.readouterr().out
    assert inspect.main(["--json", "m", "d"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert len(found["classes"]) == len(found["features"]) == 60


def test_a_wide_confusion_matrix_is_not_shown(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    ml.save_model(ml.Model(np.eye(3), np.array(["a" * 50, "b" * 50, "c"])), "m")
    Path("d").write_text(f"{'a' * 50} 1:1\n{'b' * 50} 1:1\nc 3:1\n")
    assert inspect.main(["m", "d"]) == 0
    text = capfd.readouterr().out
    assert "confusion: the 1 most frequent of 1 kinds of errors\n" in text
    assert max(map(len, text.splitlines())) <= inspect.MATRIX


def test_many_rows_are_counted_in_full():
    assert [number(count) for count in (3, 12_345_678, 2.5, 1234567.0)] == ["3", "12345678", "2.5", "1.23457e+06"]


def test_a_million_rows_are_counted_in_full(files, monkeypatch, capfd):
    report = margin_report(ml.load_model("m"), *ml.load_libsvm("d"))
    many = report._replace(support=report.support * 1_000_000)
    monkeypatch.setattr("marginlinear.margins.margin_report", lambda *arguments, **options: many)
    capfd.readouterr()
    assert inspect.main(["m", "d"]) == 0
    text = capfd.readouterr().out
    assert "/60000000)\n" in text and re.search(r"mean .* 60000000\n", text)


def test_a_model_of_one_class(tmp_path, monkeypatch, capfd):
    """As LIBLINEAR makes of data of one class."""
    monkeypatch.chdir(tmp_path)
    Path("m").write_text("solver_type L2R_L2LOSS_SVC_DUAL\nnr_class 1\nlabel 7\nnr_feature 2\nbias -1\nw\n0.5 \n1 \n")
    Path("d").write_text("7 1:1\n7 2:1\n3 1:1\n")
    assert inspect.main(["m", "d"]) == 0
    text = capfd.readouterr().out
    assert "Accuracy = 66.6667% (2/3)\n" in text
    assert "  none: the model has one class, and no other score\n" in text
    assert "rows of lowest margin" not in text
    assert inspect.main(["--json", "m", "d"]) == 0
    assert json.loads(capfd.readouterr().out, parse_constant=pytest.fail)["margins"]["margin"] is None


def test_scores_that_overflow(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    ml.save_model(ml.Model([[1e200, -1e200], [1, 0]], [0, 1]), "m")
    for value in ("1e100", "1e200"):
        Path("d").write_text(f"0 1:{value} 2:1\n1 1:{value}\n0 2:1\n")
        assert inspect.main(["m", "d"]) == 0
        assert inspect.main(["--json", "m", "d"]) == 0
        shown = capfd.readouterr()
        assert shown.err == ""
        found = json.loads(shown.out.splitlines()[-1], parse_constant=pytest.fail)
        assert found["margins"]["margin"]["variance"] is None


def test_piped(files):
    run = [sys.executable, "-m", "marginlinear.cli.inspect"]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    whole = subprocess.run([*run, "m", "-"], input=Path("d").read_bytes(), capture_output=True, env=environment)
    assert (whole.returncode, whole.stderr) == (0, b"")
    assert inspect.main(["m", "d"]) == 0
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*run, "m", "d"], stdout=full, stderr=subprocess.PIPE, env=environment)
    assert (done.returncode, done.stderr) == (1, b"margin-inspect: standard output: No space left on device\n")


def test_imports(files):
    code = ("import sys\nfrom marginlinear.cli import inspect\nassert inspect.main(['--help']) == 0\n"
            "assert inspect.main(['--top', 'x']) == 2\nassert 'numpy' not in sys.modules\n"
            "assert inspect.main(['m', 'd']) == 0\nassert 'numpy' in sys.modules and 'scipy' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": ROOT})
