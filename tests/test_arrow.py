"""From Parquet and Arrow to stores: what columns become, and what is refused."""

import gc
import json
import os
import shutil
import sys
from itertools import product

import numpy as np
import pytest

import marginlinear as ml
from marginlinear.cli.inspect import main as inspect_main
from marginlinear.cli.predict import main as predict_main
from marginlinear.cli.train import main as train_main
from marginlinear.errors import DataError

pa = pytest.importorskip("pyarrow", reason="the extra [arrow]")
pq = pytest.importorskip("pyarrow.parquet")
arrow = pytest.importorskip("marginlinear.store.arrow")

AGE = [3.5, None, 0.0, -1.0, 2.0]
TOWN = ["Rom", "Oslo", None, "Rom", ""]
SIZE = ["s", "m", "m", None, "Rom"]
LABEL = [1, 2, 1, 2, 2]


def table(**others):
    return pa.table({"town": TOWN, "age": AGE, "label": LABEL, "member": [True, False, None, True, True],
                     "size": pa.array(SIZE).dictionary_encode(), **others})


def rows_of(store):
    return np.concatenate([X.toarray() for X, _ in store.X_blocks()])


def onehot(words, values):
    return np.array([[float(word == value) for value in values] for word in words])


def fnv1a(text):
    """One byte after the other, in Python's integers."""
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def hashed(bits, **columns):
    found = np.zeros((len(AGE), 1 << bits))
    for name, words in columns.items():
        for i, word in enumerate(words):
            if word is not None:
                found[i, fnv1a(f"{name}={word}") % (1 << bits)] += 1
    return found


NUMBERS = np.column_stack([[0.0 if a is None else a for a in AGE], [1.0, 0, 0, 1, 1]])
WANTED = {
    "onehot": np.hstack([NUMBERS, onehot(TOWN, ["Rom", "Oslo", ""]), onehot(SIZE, ["s", "m", "Rom"])]),
    "hash": np.hstack([NUMBERS, hashed(3, town=TOWN, size=SIZE)]),
}
GIVEN = {"onehot": {}, "hash": {"categorical": "hash", "hash_bits": 3}}


def test_the_hash_is_the_published_one():
    """Vectors of the draft that describes FNV; words of many lengths, in a slice."""
    assert [fnv1a(text) for text in ("", "a", "foobar")] == [0xCBF29CE484222325, 0xAF63DC4C8601EC8C,
                                                             0x85944171F73967E8]
    words = ["", "foobar", "ä", "x" * 100, "a", "", "日本"]
    found = arrow.fnv1a(b"c=", pa.array(["left out", *words], pa.large_string()).slice(1))
    assert found.tolist() == [fnv1a(f"c={word}") for word in words]


@pytest.mark.parametrize("kind, how", [
    *product(["table", "dataset", "file", "folder"], ["onehot", "hash"]), ("stream", "hash")])
def test_columns_become_features(tmp_path, monkeypatch, kind, how):
    """The same of any source, in batches of one or two rows."""
    monkeypatch.setattr(arrow, "CELLS", 10)
    source = table()
    if kind == "stream":
        source = pa.RecordBatchReader.from_batches(source.schema, source.to_batches())
    elif kind == "dataset":
        source = pa.dataset.dataset(source)
    elif kind == "file":
        pq.write_table(source, tmp_path / "x.parquet", row_group_size=3)
        source = tmp_path / "x.parquet"
    elif kind == "folder":
        (tmp_path / "x").mkdir()
        for name, part in (("a", source.slice(0, 3)), ("b", source.slice(3))):
            pq.write_table(part, tmp_path / "x" / f"{name}.parquet")
        source = tmp_path / "x"
    told = []
    store = ml.Store.write(source, tmp_path / "s", progress=lambda *done: told.append(done), **GIVEN[how])
    np.testing.assert_array_equal(rows_of(store), WANTED[how])
    assert store.y.tolist() == LABEL and store.n_features == WANTED[how].shape[1]
    assert told[-1][0] > 0 and told[-1][1:] == (None, len(LABEL))
    assert store.meta["label"] == "label"
    assert (store.meta["source"] is None) == (kind not in ("file", "folder"))
    if how == "onehot":
        assert store.meta["features"] == ["age", "member", "town=Rom", "town=Oslo", "town=", "size=s", "size=m",
                                          "size=Rom"]
    else:
        assert store.meta["features"] == ["age", "member"]
        assert store.meta["hash"] == {"bits": 3, "columns": ["town", "size"], "first": 2}


def test_values_that_meet_add_up(tmp_path):
    """At one bit the two words of a row often have one feature, and then 2."""
    store = ml.Store.write(table(), tmp_path / "s", categorical="hash", hash_bits=1)
    wanted = hashed(1, town=TOWN, size=SIZE)
    assert wanted.max() == 2
    np.testing.assert_array_equal(rows_of(store)[:, 2:], wanted)


@pytest.mark.parametrize("how", ["onehot", "hash"])
def test_a_test_set_like_the_training_set(tmp_path, how):
    """Columns in another order, words that are new, in a stream: features are those of the training set."""
    train = ml.Store.write(table(), tmp_path / "train", **GIVEN[how])
    size = ["m", "new", "s"]
    other = pa.table({"y": ["a", "b", "a"], "size": size, "extra": [1, 2, 3], "member": [1, 0, 1],
                      "town": pa.array(["Oslo", None, "Paris"], pa.large_string()), "age": [1, 2, 3]})
    test = ml.Store.write(pa.RecordBatchReader.from_batches(other.schema, other.to_batches()), tmp_path / "test",
                          label="y", like=train)
    numbers = [[1, 1], [2, 0], [3, 1]]
    if how == "onehot":
        words = np.hstack([onehot(["Oslo", None, "Paris"], ["Rom", "Oslo", ""]), onehot(size, ["s", "m", "Rom"])])
    else:
        words = hashed(3, town=["Oslo", None, "Paris"], size=size)[:3]
    np.testing.assert_array_equal(rows_of(test), np.hstack([numbers, words]))
    assert test.n_features == train.n_features and test.y.tolist() == ["a", "b", "a"]
    # A store that is like another one may be followed, too.
    assert test.meta["features"] == train.meta["features"]
    with pytest.raises(DataError, match="no column 'age': the columns are town, label"):
        ml.Store.write(table().drop_columns(["age"]), tmp_path / "no", like=train)
    with pytest.raises(DataError, match="'age' holds string, and numbers in the store"):
        ml.Store.write(table().drop_columns(["age"]).append_column("age", pa.array(["1"] * 5)), tmp_path / "no",
                       like=train)
    with pytest.raises(DataError, match="'age' is a feature in the store"):
        ml.Store.write(table(), tmp_path / "no", label="age", like=train)
    with pytest.raises(ValueError, match="categorical = 'hash' is of no use with like"):
        ml.Store.write(table(), tmp_path / "no", like=train, categorical="hash")
    with pytest.raises(DataError, match="not made of Parquet"):
        ml.Store.write(table(), tmp_path / "no", like=ml.Store.write([([[1.0]], [1])], tmp_path / "pairs"))


def test_a_store_of_other_features_is_not_predicted(tmp_path, monkeypatch, capsys):
    """Words become features in the order in which they come."""
    monkeypatch.chdir(tmp_path)
    train = ml.Store.write(table(), "train")
    turned = table().take(pa.array([4, 3, 2, 1, 0]))
    other, like = ml.Store.write(turned, "other"), ml.Store.write(turned, "like", like=train)
    model = ml.train(train, solver="l2svc")
    ml.save_model(model, "model")
    assert np.array_equal(model.predict(like), model.predict(train)[::-1])
    for call in (model.predict, model.decision_function):
        with pytest.raises(ValueError, match=r"other features than .* Store.write\(source, path, like=store\)"):
            call(other)
    for command, words in ((predict_main, ["other", "model", "out"]), (inspect_main, ["model", "other"])):
        assert command(words) == 1
        assert "other: the columns of the store became other features" in capsys.readouterr().err
    assert not os.path.exists("out") and predict_main(["like", "model", "out"]) == 0
    assert ml.train(train.in_memory(), train.y, solver="l2svc").table == train.table
    # Labels that the model cannot be measured by.
    ml.Store.write(table(what=["a"] * 5), "words", label="what")
    assert train_main(["-q", "-s", "l2svr", "words", "no"]) == 1
    assert "a regression needs numbers" in capsys.readouterr().err
    assert train_main(["-q", "-s", "l2svr", "train", "numbers"]) == 0
    ml.Store.write(table(what=["a"] * 5), "words.like", label="what", like=train)
    assert predict_main(["words.like", "numbers", "out"]) == 1
    assert "its labels are words, and the model is a regression" in capsys.readouterr().err
    several = ml.train(np.zeros((3, train.n_features)), [{"a"}, {"b"}, {"a", "b"}], solver="l2svc")
    ml.save_model(several, "several")
    assert predict_main(["train", "several", "out"]) == 1
    assert "train: a store has one label a row, and the model is multi-label" in capsys.readouterr().err


def test_commands(tmp_path, monkeypatch, capsys):
    """Train on a file, predict on what becomes like the store that was made of it."""
    path, folder, model = tmp_path / "x.parquet", tmp_path / "stores", tmp_path / "m"
    pq.write_table(table(), path)
    args = ["-s", "l2svc", "-q", "--store", str(folder), "--label", "label", "--categorical", "hash", "--hash-bits",
            "3", str(path), str(model)]
    assert train_main(args) == 0 and train_main(args) == 0
    made = ml.Store(folder / "x.parquet.store")
    np.testing.assert_array_equal(rows_of(made), WANTED["hash"])
    test = ml.Store.write(path, tmp_path / "test", like=made)
    predicted = [str(y) for y in ml.load_model(model).predict(rows_of(test))]
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for words in ([str(tmp_path / "test")], ["--like", made.path, str(path)], [str(path)]):
        assert predict_main([*words, str(model), str(out)]) == 0
        assert out.read_text().split() == predicted
    capsys.readouterr()
    told = []
    for words in ([str(tmp_path / "test")], ["--like", made.path, "--label", "label", str(path)]):
        assert inspect_main(["--json", str(model), *words]) == 0
        told.append({**json.loads(capsys.readouterr().out), "data": None})
    assert told[0] == told[1]
    gc.collect()
    assert [*temporary.iterdir()] == []
    capsys.readouterr()
    other = args[:]
    other[other.index("3")] = "4"
    for command, words, status in (
            ((train_main, other), "made with hash_bits = 3, not 4", 1),
            ((train_main, ["--label", "y", str(tmp_path / "x"), str(model)]), "--label is of no use with", 2),
            ((train_main, ["--store", "s", "--hash-bits", "3", str(path)]), "hash_bits = 3 is of no use with", 2),
            ((train_main, ["--store", str(tmp_path / "s"), "--zero-based", str(path)]), "--zero-based is for", 2),
            ((train_main, ["--store", "s", "--leave-out", "age", str(path)]), "--leave-out is of no use with", 2),
            ((predict_main, ["--like", made.path, made.path, str(model)]), "--like is of no use with", 2),
            ((predict_main, ["--like", str(tmp_path), str(path), str(model)]), "this is no store", 1),
            ((predict_main, ["--like", made.path, "--label", "y", str(path), str(model)]), "no column 'y'", 1),
            ((predict_main, ["--like", made.path, "--zero-based", str(path), str(model)]), "--zero-based is for", 2),
            ((train_main, ["--like", made.path, *args]), "--categorical is of no use with", 2),
            ((train_main, ["--like", made.path, made.path]), "--like is of no use with", 2)):
        assert command[0](command[1]) == status
        assert words in capsys.readouterr().err


def test_a_store_is_used_again_by_its_rule(tmp_path, capsys):
    """New rows that are trained on like those before."""
    path, new, folder = tmp_path / "x.parquet", tmp_path / "new.parquet", tmp_path / "stores"
    pq.write_table(table(), path)
    pq.write_table(table().slice(1), new)
    for how in ([], ["--categorical", "hash", "--hash-bits", "3"]):
        args = ["-s", "l2svc", "-q", "--store", str(folder)]
        assert train_main([*args, *how, str(path), str(tmp_path / "m")]) == 0
        made = folder / "x.parquet.store"
        args += ["--like", str(made), str(new), str(tmp_path / "m")]
        assert train_main(args) == 0 and train_main(args) == 0
        store = ml.Store(folder / "new.parquet.store")
        np.testing.assert_array_equal(rows_of(store), WANTED["hash" if how else "onehot"][1:])
        capsys.readouterr()
        assert train_main([word for word in args if word not in ("--like", str(made))]) == 1
        assert "made like another one, and none is given: remove the store" in capsys.readouterr().err
        other = ml.Store.write(table().drop_columns(["size"]), tmp_path / "other")
        for like, store in ((other.path, new), (str(made), path)):
            assert train_main([*args[:5], "--like", like, str(store), str(tmp_path / "m")]) == 1
            assert f"was not made like {like}: remove the store" in capsys.readouterr().err
        for store in (folder, other.path):
            shutil.rmtree(store)


def test_a_folder_is_used_again_until_it_changes(tmp_path, monkeypatch, capsys):
    folder, made = tmp_path / "x", tmp_path / "stores" / "x.store"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    args = ["-s", "l2svc", "-q", "--store", "stores", "--categorical", "hash", "--hash-bits", "3", "x/"]
    for name, part in (("a", table().slice(0, 3)), ("b", table().slice(3))):
        pq.write_table(part, folder / f"{name}.parquet")
    assert train_main(args) == 0
    before = made.stat().st_ino
    (folder / "_SUCCESS").touch()
    assert train_main(args) == 0 and made.stat().st_ino == before and (tmp_path / "x.model").exists()
    np.testing.assert_array_equal(rows_of(ml.Store(made)), WANTED["hash"])
    assert predict_main(["-q", "--like", str(made), "x", "x.model", "out"]) == 0
    capsys.readouterr()
    status = (folder / "a.parquet").stat()
    for change in (lambda: pq.write_table(table().slice(0, 2), folder / "a.parquet"),
                   lambda: os.utime(folder / "a.parquet", ns=(status.st_atime_ns, status.st_mtime_ns - 10**9)),
                   lambda: pq.write_table(table(), folder / "c.parquet"),
                   lambda: (folder / "b.parquet").unlink()):
        change()
        assert train_main(args) == 1
        assert "made of another x/, or otherwise (" in (err := capsys.readouterr().err)
        assert "names, sizes and times of its files" in err and "remove the store" in err
        shutil.rmtree(made)
        assert train_main(args) == 0


def test_a_source_that_changes_between_the_passes(tmp_path, monkeypatch):
    path, read = tmp_path / "x.parquet", arrow.Columns.batches
    pq.write_table(table(), path)

    def changing(self, columns):
        yield from read(self, columns)
        pq.write_table(table().set_column(0, "town", pa.array(["Paris"] * 5)), path)

    monkeypatch.setattr(arrow.Columns, "batches", changing)
    with pytest.raises(ValueError, match="column 'town' has other values than when it was read"):
        ml.Store.write(path, tmp_path / "s")


def test_names_are_kept_up_to_a_number(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow, "NAMES", 7)
    store = ml.Store.write(table(), tmp_path / "s")
    assert store.meta["features"] is None
    with pytest.raises(DataError, match="too many features"):
        ml.Store.write(table(), tmp_path / "no", like=store)


def test_columns_that_differ_by_their_equals_sign(tmp_path):
    """Names alone would not tell column a=b, value c from column a, value b=c."""
    source = pa.table({"a": ["b=c", "d"], "a=b": ["c", "c"], "label": [1, 2]})
    train = ml.Store.write(source, tmp_path / "s")
    np.testing.assert_array_equal(rows_of(train), [[1, 0, 1], [0, 1, 1]])
    np.testing.assert_array_equal(rows_of(ml.Store.write(source, tmp_path / "t", like=train)), rows_of(train))


@pytest.mark.parametrize("column, words", [
    (pa.array([1.0, 2, 3, np.nan, 5]), "column 'x' row 3 is nan"),
    (pa.array([1.0, 2, 3, 4, -np.inf]), "column 'x' row 4 is -inf"),
    (pa.array([2**53 + 1] * 5), "column 'x' of int64: .*9007199254740993"),
    (pa.array([[1]] * 5), "column 'x' holds list<.*>: cast it to numbers or strings"),
    (pa.array([0] * 5, pa.timestamp("s")), r"column 'x' holds timestamp\[s\]: cast it to numbers or strings"),
    (pa.array([b"a"] * 5), "column 'x' holds binary"),
    (pa.nulls(5), "column 'x' holds null"),
])
def test_wrong_columns_are_named(tmp_path, monkeypatch, column, words):
    monkeypatch.setattr(arrow, "CELLS", 12)
    with pytest.raises(DataError, match=f"the Table: {words}"):
        ml.Store.write(table(x=column), tmp_path / "s")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("column, words", [
    (pa.array([1, 2, None, 1, 2]), "'y' row 2 is null"), (pa.array([1.0, np.nan, 1, 2, 1]), "'y': label nan"),
    (pa.array(["a", "b c", "a", "a", "a"]), "'y': label 'b c'"), (pa.array([[1]] * 5), "'y' holds list"),
])
def test_wrong_labels_are_named(tmp_path, column, words):
    with pytest.raises(ValueError, match=f"column {words}"):
        ml.Store.write(table(y=column).drop_columns(["label"]), tmp_path / "s", label="y")
    assert [*tmp_path.iterdir()] == []


def test_wrong_calls(tmp_path, monkeypatch):
    stream = pa.RecordBatchReader.from_batches(table().schema, table().to_batches())
    for source, given, words in (
            (table(), {"label": "click"}, "no column 'click': the columns are town, age, label"),
            (stream, {}, "column 'town' holds words, and categorical = 'onehot' goes over the rows twice"),
            (table(), {"categorical": "dummy"}, "categorical = 'dummy' is not allowed: give onehot | hash"),
            (table(), {"hash_bits": 20}, "hash_bits = 20 is of no use with categorical = onehot"),
            (table(), {"categorical": "hash", "hash_bits": 31}, r"hash_bits = 31 is not allowed: .*\[1, 30\]"),
            (table(), {"dtype": "float16"}, "dtype = 'float16' is not allowed: give float64 or float32"),
            (table(), {"text_labels": True}, "zero_based and text_labels are for LIBSVM"),
            ([([[1.0]], [1])], {"label": "click"}, "are for Parquet and Arrow"),
            (pa.table([[1], [2], [1]], ["a", "a", "label"]), {}, "column 'a' stands there twice"),
            (table().slice(0, 0), {}, "no rows")):
        with pytest.raises(ValueError, match=words):
            ml.Store.write(source, tmp_path / "s", **given)
    with pytest.raises(TypeError, match="Table, RecordBatchReader or Dataset"):
        ml.Store.write(pa.array([1]), tmp_path / "s")
    with pytest.raises(TypeError, match="like = 'x' is not allowed: give a Store"):
        ml.Store.write(table(), tmp_path / "s", like="x")
    monkeypatch.delitem(sys.modules, "marginlinear.store.arrow")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'marginlinear\[arrow\]'"):
        ml.Store.write(tmp_path / "x.parquet", tmp_path / "s")
    assert [*tmp_path.iterdir()] == []


def test_wrong_files(tmp_path):
    folder = tmp_path / "x"
    with pytest.raises(FileNotFoundError, match=r"none\.parquet"):
        ml.Store.write(tmp_path / "none.parquet", tmp_path / "s")
    folder.mkdir()
    with pytest.raises(DataError, match="no Parquet file in this folder"):
        ml.Store.write(folder, tmp_path / "s")
    pq.write_table(table(), folder / "a.parquet")
    pq.write_table(table(new=[1] * 5), folder / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: its columns, or their types, are not those of"):
        ml.Store.write(folder, tmp_path / "s")
    (folder / "b.parquet").write_bytes(b"1 1:1\n")
    for source in (folder, folder / "b.parquet"):
        with pytest.raises(DataError, match=r"b\.parquet: it cannot be read as Parquet"):
            ml.Store.write(source, tmp_path / "s")
    for name, words in (("c.csv", "must"), ("day=1", "partitioning='hive'")):
        (folder / "b.parquet").rename(folder / name) if "." in name else (folder / name).mkdir()
        with pytest.raises(DataError, match=f"{name}: .*{words}"):
            ml.Store.write(folder, tmp_path / "s")
        (folder / name).rename(folder / f"_{name}")
    data = bytearray((folder / "a.parquet").read_bytes())
    data[4:400] = bytes(396)
    (folder / "a.parquet").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.parquet: it cannot be read as"):
        ml.Store.write(folder / "a.parquet", tmp_path / "s")
    assert not (tmp_path / "s").exists()
