"""Labels of every type: what is trained on can be saved, loaded, predicted and read back, or is refused before."""

import datetime
from hashlib import sha256

import numpy as np
import pytest

import marginlinear as ml
from marginlinear.cli import predict, train
from marginlinear.data.labels import classes_of, word_fault

X = np.random.default_rng(0).standard_normal((30, 4))
# Two classes that the rows tell apart, then three.
CODES = {2: (X[:, 0] > 0).astype(int), 3: (X[:, 0] > 0).astype(int) + (X[:, 0] > 1)}

GOOD = [
    [False, True], np.array([3, 7, -1], np.int8), np.array([0, 1], np.uint8), np.array([5, 2**63 - 1, 1], np.uint64),
    np.array([-(2**63), 2**63 - 1, 0]), np.array([0.1, 2.5, 1e300]), np.array([0.1, 7], np.float32),
    np.array([0.5, 2], np.float16), np.array([1.0, 2.0, 3.0]), np.array([1, 2], ">i4"), ["a", "b", "caf\u00e9"],
    ["1", "nan", "labels"], np.array(["x", "yy"], object), np.array([True, False], object), ["a,b", "a:1", "-"],
    np.array([2.0, -0.0]),
]


@pytest.mark.parametrize("kernel", [None, "rbf"])
@pytest.mark.parametrize("labels", GOOD, ids=lambda labels: f"{np.asarray(labels).dtype} {labels[-1]!a}")
def test_labels_come_back(labels, kernel, tmp_path):
    labels = labels if isinstance(labels, list) else labels.astype(labels.dtype)
    y = np.asarray(labels)[CODES[len(labels)]]
    model = ml.train(X, y, solver="cs", kernel=kernel, class_weight={labels[0]: 2.0})
    predicted = model.predict(X)
    assert set(model.classes.tolist()) == set(np.asarray(labels).tolist())
    assert (predicted == y).mean() > 0.8 and (model.margins(X, y) > 0).mean() > 0.8
    assert ml.margin_report(model, X, y).accuracy == (predicted == y).mean()
    ml.save_model(model, tmp_path / "m")
    again = ml.load_model(tmp_path / "m")
    assert again.classes.tolist() == model.classes.tolist()
    assert [type(label) for label in again.classes.tolist()] == [type(label) for label in model.classes.tolist()]
    assert (again.predict(X) == predicted).all() and (again.margins(X, y) == model.margins(X, y)).all()
    ml.dump_libsvm(X, np.ones(30), tmp_path / "data")
    for options in ([], ["--scores"]):
        assert predict.main(["-q", *options, str(tmp_path / "data"), str(tmp_path / "m"), str(tmp_path / "out")]) == 0
        lines = (tmp_path / "out").read_text(encoding="utf-8").split("\n")
        assert lines.pop() == "" and len(lines) == 30
        words = [line.split()[0] for line in lines]
        kind = type(again.classes.tolist()[0])
        assert [kind(int(word)) if kind in (bool, int) else kind(word) for word in words] == predicted.tolist()


BAD = [
    (np.array([0, 2**63], np.uint64), "beyond 64-bit integers"), ([1, 2**64], "within 64 bits|holds object"),
    (np.array([b"a", b"b"]), r"y holds \|S1: .*astype"), (np.array([1j, 2j]), "y holds complex128"),
    (np.array(["2020-01-01", "2020-01-02"], "datetime64[D]"), "y holds datetime64"),
    (np.array([1, 2], "timedelta64[s]"), "y holds timedelta64"), (np.array([1, 2], np.longdouble), "y holds"),
    ([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)], "y holds object"),
    ([None, 1], r"y: row \d has no label, but None"),
    (np.array(["a", np.nan], object), r"y: row \d has no label, but nan"),
    (["a", 1], "all numbers or all strings"), (np.array(["a", True], object), "all numbers or all strings"),
    ([[1], [2]], "2 dimensions"), ([1, [2]], "y: "), ([0.0, np.inf], "label inf is not finite"),
    (["a", "b\0"], "y: labels"),
    *((["fine", label], "label .*(holds|is empty|read back|UTF-8)")
      for label in ("a\nb", "a\rb", "a b", "\ta", "", "#a", "a#b", "a\0b", "\x1b", "a\u00a0b", "a\u2028b", "\ufeffa",
                    "12:3", "\ud800")),
]


@pytest.mark.parametrize("labels, words", BAD, ids=lambda given: ascii(given)[:40])
def test_labels_that_files_cannot_hold_are_refused_before_training(labels, words):
    y = [labels[code] for code in CODES[2]] if isinstance(labels, list) else labels[CODES[2]]
    calls = []
    for fit in (ml.train, ml.cross_validate, ml.search):
        options = {ml.train: {"callback": calls.append}, ml.search: {"progress": calls.append}}.get(fit, {})
        with pytest.raises(ValueError, match=words):
            fit(X, y, solver="l2svc", **options)
    assert not calls


@pytest.mark.parametrize("label", ["a\u00a0b", "\ufeffa"])
def test_words_that_only_the_reader_takes_are_refused_by_the_command(label, tmp_path, capsys):
    """The reader ends a word at ASCII's blanks, and leaves out a byte order mark in its first line only."""
    (tmp_path / "data").write_text(f"b 1:1\n{label} 1:2\nb 1:3\n", encoding="utf-8")
    assert train.main(["-q", "-s", "l2svc", "--text-labels", str(tmp_path / "data"), str(tmp_path / "m")]) == 1
    assert "one word" in capsys.readouterr().err and not (tmp_path / "m").exists()


@pytest.mark.parametrize("old, new, words", [
    (b'["b", "a"]', b'["b", "a\\n1"]', "holds white space"), (b'"str"', b'"bool"', "calls the labels 'bool'"),
])
def test_labels_of_model_files(old, new, words, tmp_path):
    ml.save_model(ml.train(X, np.array(["b", "a"])[CODES[2]], solver="cs"), tmp_path / "m")
    text = (tmp_path / "m").read_bytes().replace(old, new)[:-67]
    (tmp_path / "m").write_bytes(text + sha256(text).hexdigest().encode() + b'"}\n')
    with pytest.raises(ml.DataError, match=words):
        ml.load_model(tmp_path / "m")


def test_a_model_with_words_that_are_none_is_not_saved(tmp_path):
    model = ml.Model(np.ones((2, 2)), ["a", "b\nc"])
    with pytest.raises(ValueError, match=r"not saved: label 'b.nc' holds white space"):
        ml.save_model(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_words():
    assert [word for word in ("a", "a:b", ":1", "1", "1:", "12:a", "", "a b", "\x7f") if not word_fault(word)] == [
        "a", "a:b", ":1", "1", "\x7f"]


@pytest.mark.parametrize("y", [[1, -1, 1], [2.5, 2.5], [True, False], [3, 1, 2], [-5, 7, 7], [0.0, -0.0, 1.0],
                               ["b", "a"]], ids=str)
def test_classes_rise_and_codes_are_their_places(y):
    classes, codes = classes_of(np.array(y))
    expected, places = np.unique(np.array(y), return_inverse=True)
    assert np.array_equal(classes, expected) and classes.dtype == expected.dtype
    assert np.array_equal(codes, places) and codes.dtype == np.int32
