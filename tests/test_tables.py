"""CSV, TSV and Parquet in the commands: what columns become, and what models keep of them."""

import gzip
import hashlib
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import marginlinear as ml
from marginlinear.cli.inspect import main as inspect_main
from marginlinear.cli.plot import main as plot_main
from marginlinear.cli.predict import main as predict_main
from marginlinear.cli.scale import main as scale_main
from marginlinear.cli.train import main as train_main
from marginlinear.data import columns
from marginlinear.data.columns import TableRule, table_blocks, table_rows
from marginlinear.errors import DataError

CSV = '''age,town,"income, EUR",sold
31,"Rom",1.5e3,1
45,Oslo,-3,2
 27 ,"Paris ""Nord""

",0,1

52,Oslo,4100,2
'''
X = [[31, 1500, 1, 0, 0], [45, -3, 0, 1, 0], [27, 0, 0, 0, 1], [52, 4100, 0, 1, 0]]
FEATURES = ("age", "income, EUR", "town=Rom", "town=Oslo", 'town=Paris "Nord"')
GIVEN = ["--label", "sold", "--categories", "town"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.csv").write_text(CSV)
    return tmp_path


def trained(*words, path="d.csv"):
    assert train_main(["-s", "l2svc", "-q", *words, path, "m"]) == 0
    return ml.load_model("m")


@pytest.mark.parametrize("cells", [1, 9, 1000])
def test_columns_become_features(folder, monkeypatch, cells):
    """Of any file, in blocks of any size, and of the rows of another one by its rule."""
    monkeypatch.setattr(columns, "CELLS", cells)
    data = table_rows("d.csv", "sold", ["town"])
    assert data.table == TableRule("sold", FEATURES, (("town", 3),))
    np.testing.assert_array_equal(data.to_scipy().toarray(), X)
    assert data.labels.tolist() == [1, 2, 1, 2] and data.labels.dtype == np.int64
    # Zeros have no place.
    assert len(data.data) == 11 and 0 not in data.data
    narrow = table_rows("d.csv", "sold", ["town"], narrow=True)
    assert (narrow.data.dtype, narrow.indices.dtype) == (np.float32, np.uint16)
    (folder / "other.tsv.gz").write_bytes(gzip.compress(
        b"income, EUR\tsold\textra\ttown\tage\r\n1\t2\tx\tOslo\t3\r\n2\t1\ty\tBonn\t0\n0\t1\tz\tUlm\t0"))
    unknown = {}
    found = list(table_blocks("other.tsv.gz", "sold", data.table, text_labels=False, unknown=unknown))
    rows = np.concatenate([part.to_scipy().toarray() for part in found])
    np.testing.assert_array_equal(rows, [[3, 1, 0, 1, 0], [0, 2, 0, 0, 0], [0, 0, 0, 0, 0]])
    assert unknown == {"town": (2, "Bonn")}
    assert np.concatenate([part.labels for part in found]).tolist() == [2, 1, 1]


def test_a_table_is_the_same_in_any_file(folder, capsys):
    """CSV, Parquet in memory, and a store of it: one model. Whole numbers are words where that is stated."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table({"age": [31, 45, 27, 52], "town": ["Rom", "Oslo", 'Paris "Nord"', "Oslo"],
                      "income, EUR": [1500.0, -3.0, None, 4100.0], "sold": [1, 2, 1, 2]})
    parquet.write_table(table, "d.parquet")
    models = [trained(*words, path=path) for words, path in (
        (GIVEN, "d.csv"), (GIVEN[:2], "d.parquet"), ([*GIVEN[:2], "--store", "s"], "d.parquet"))]
    for model in models:
        assert model.table == models[0].table and model.feature_names == list(FEATURES)
        np.testing.assert_array_equal(model.weights, models[0].weights)
    stated = trained("--label", "sold", "--leave-out", 'town,"income, EUR"', "--categories", "age", path="d.parquet")
    assert stated.feature_names == ["age=31", "age=45", "age=27", "age=52"]
    assert predict_main(["d.csv", "m", "out"]) == 0
    assert trained(*GIVEN[:2], "--categorical", "hash", "--hash-bits", "3", path="d.parquet").feature_names is None
    assert predict_main(["d.parquet", "m", "out"]) == 0 and ml.load_model("m").n_features == 10
    assert predict_main(["d.csv", "m", "out"]) == 1
    assert "the words of the columns are hashed, which is for Parquet" in capsys.readouterr().err


def test_models_keep_columns(folder, capsys):
    model = trained(*GIVEN)
    copy = folder / "copy"
    ml.save_model(model, copy)
    assert copy.read_bytes() == (folder / "m").read_bytes()
    if shutil.which("liblinear-predict"):
        (folder / "t").write_text("1 1:31 2:1500 3:1\n")
        subprocess.run(["liblinear-predict", "t", "m", "out"], check=True, capture_output=True)
    (folder / "new.csv").write_text("town,sold,age,\"income, EUR\"\nOslo,2,45,-3\nBonn,1,31,1500\n")
    assert predict_main(["new.csv", "m", "out"]) == 0
    wanted = model.predict(np.array([[45, -3, 0, 1, 0], [31, 1500, 0, 0, 0.0]]))
    assert (folder / "out").read_text().split() == [str(label) for label in wanted]
    assert "1 cell of column 'town': words that the training set did not have ('Bonn' is the first)" in (
        capsys.readouterr().err)
    assert inspect_main(["m", "d.csv"]) == 0
    assert "income, EUR +" in capsys.readouterr().out.replace("EUR -", "EUR +")
    assert inspect_main(["--json", "m", "d.csv"]) == 0
    assert 'town=Paris \\"Nord\\"' in capsys.readouterr().out
    kernel = trained(*GIVEN, "--kernel", "rbf", "--scale", "range", "--probability", path="d.csv")
    assert kernel.table == model.table and predict_main(["d.csv", "m", "out"]) == 0
    shutil.copy("new.csv", "new.txt")
    assert predict_main(["new.txt", "m", "out"]) == 1
    assert "a table's file has a name that ends in .csv" in capsys.readouterr().err
    few = trained("--label", "sold", "--leave-out", "town", "--leave-out", "age")
    assert few.feature_names == ["income, EUR"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_without_labels(folder, capsys, ending):
    """They are predicted as with labels, and nothing is measured."""
    (folder / "none.csv").write_text('town,age,"income, EUR"\nOslo,45,-3\nRom,31,1500\n')
    if ending == "parquet":
        pytest.importorskip("pyarrow")
        from pyarrow import csv, parquet

        parquet.write_table(csv.read_csv("none.csv"), "none.parquet")
    for words in ((), ("--kernel", "rbf", "--scale", "range"), ("-s", "l2svr")):
        model = trained(*GIVEN, *words)
        assert predict_main([f"none.{ending}", "m", "out"]) == 0
        assert capsys.readouterr().out == (
            f"none.{ending} has no column 'sold' of labels: 2 rows predicted, nothing measured\n")
        rows = np.array([[45, -3, 0, 1, 0], [31, 1500, 1, 0, 0.0]])
        np.testing.assert_allclose(np.loadtxt("out"), model.predict(rows))
        assert predict_main(["--json", f"none.{ending}", "m"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["data"]["n_rows"], told["scores"], told["confusion"]) == (2, None, None)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_weights_and_groups_are_columns(folder, capsys, ending):
    """As from files; a column that is one is no feature."""
    rows = [f"{at},{at % 5 + 0.5},{'abc'[at % 3]},{at % 2 + 1},{at * at % 7}" for at in range(1, 25)]
    (folder / "d.csv").write_text("\n".join(["a,w,who,label,b", *rows]) + "\n")
    for at, name in ((1, "w"), (2, "who")):
        (folder / f"{name}.txt").write_text("".join(row.split(",")[at] + "\n" for row in rows))
    if ending == "parquet":
        pytest.importorskip("pyarrow")
        from pyarrow import csv, parquet

        parquet.write_table(csv.read_csv("d.csv"), "d.parquet")
    models = [trained("--weights", "w", "--leave-out", "who", path=f"d.{ending}"),
              trained("--weights", "w.txt", "--leave-out", "who,w", path=f"d.{ending}")]
    assert models[0].feature_names == ["a", "b"] and models[0].weights.tobytes() == models[1].weights.tobytes()
    assert models[0].weights.tobytes() != trained("--leave-out", "who,w", path=f"d.{ending}").weights.tobytes()
    told = []
    for words in ("--weights w --groups who", "--groups who.txt --weights w --leave-out who"):
        assert train_main(["-s", "l2svc", "--json", "-v", "3", *words.split(), f"d.{ending}"]) == 0
        told.append(json.loads(capsys.readouterr().out)["selection"])
    assert told[0]["groups"] == 3 and told[0]["points"][0]["fold_scores"] == told[1]["points"][0]["fold_scores"]
    (folder / "b").write_text("")
    for words, text in (("--weights who", "column 'who'"),
                        ("--weights wo", "no column 'wo' for --weights, nor such a file (did you mean"),
                        ("--weights b", f"d.{ending} has such a column, and there is such a file: give ./b for")):
        assert train_main(["-q", *words.split(), f"d.{ending}"]) == 1
        assert text in capsys.readouterr().err


def test_any_names(folder):
    """Whatever stands in a header, the model has it back, on one line of ASCII."""
    (folder / "d.csv").write_text('"a\nb",é\u2028日,"{""x"": 1}",label\n1,2,3,x\n4,5,7,y\n', encoding="utf-8")
    assert trained().feature_names == ["a\nb", "é\u2028日", '{"x": 1}']
    text = (folder / "m").read_bytes()
    assert text.isascii() and json.loads(text.splitlines()[-1])["table"]["label"] == "label"


@pytest.mark.parametrize("change, words", [
    ({"onehot": [["city", 3]]}, "not those of their columns"), ({"features": ["a"] * 5}, "of their columns"),
    ({"onehot": [["town", -1]]}, "onehot is a list"), ({"onehot": [["town", 9]]}, "onehot is a list"),
    ({"features": [1, 2]}, "features are a list of names"), ({"label": 3}, "label is a name"),
    ({"features": list(FEATURES[:-1]), "onehot": [["town", 2]]}, "4 features, of a model of 5"),
    ({"hash": {}}, "either onehot or hash"), ({"more": 1}, "either onehot or hash"),
])
def test_damaged_columns(folder, change, words):
    trained(*GIVEN)
    first, _, trailer = (folder / "m").read_text().rpartition("marginlinear 1\n")
    entries = json.loads(trailer)
    del entries["sha256"]
    entries["table"] |= change
    head = f"{first}marginlinear 1\n{json.dumps(entries)[:-1]}, \"sha256\": \"".encode()
    (folder / "m").write_bytes(head + hashlib.sha256(head).hexdigest().encode() + b'"}\n')
    with pytest.raises(DataError, match=rf"m:\d+:1: .*table: .*({words})"):
        ml.load_model("m")


@pytest.mark.parametrize("text, words", [
    ("a,label\n1,2\nx,1\n", r":3:1: column 'a': 'x' is no finite number; .*--categories.*--leave-out"),
    ("a,label\n\n1,2\n\n,1\n", ":5:1: column 'a': the cell is empty; write a number"),
    ("a,label\n1_0,2\n", "'1_0' is no finite number"), ("a,label\ninf,2\n", "'inf' is no finite number"),
    ("a,label\n1,\n", ":2:2: column 'label': the cell is empty"), ("a,label\n1,2,3\n", ":2:3: 3 cells: 2 are needed"),
    ("a,b\n1,2\n", "no column 'label' of labels: the columns are a, b; name one by --label"), ("", ":1:1: the file is"),
    ("a,Lable\n1,2\n", r"no column 'label' of labels \(did you mean 'Lable'\?\): "), ("a,b,a\n", ":1:3: two columns"),
    ("a,label\n1,2\n\"3\n\n,4\n", ":3:1: not CSV"), ("a,label\n1,1\n2,nan\n", ":3:2: column 'label': 'nan' stands"),
    ("a;label\n1;2\n", "no column 'label' .* one cell with ';' in it, a;label; write it with commas, as python -c "),
    ("a\tlabel\n1\t2\n", r"one cell with '\\t' in it, .*; give the file a name that ends in .tsv"),
    ("a,label\n1e39,1\n2,2\n", "1e\\+39 is too large for float32"),
    ("a,label\n1,2\n1,9223372036854775809\n2,9223372036854775810\n",
     r":3:2: column 'label': '9223372036854775809' is not below 2\^53, .*; to read labels as text, say --text-labels"),
    ("a,label\n1,1.5\n1,9007199254740993\n2,9007199254740992\n", ":3:2: column 'label': '9007199254740993' is not"),
])
def test_what_is_refused(folder, capsys, text, words):
    (folder / "d.csv").write_text(text)
    assert train_main(["--float32", "-q", "d.csv", "m"]) == 1
    assert re.search(words, capsys.readouterr().err)


def test_large_labels_are_kept_or_refused(folder):
    texts = ["-9223372036854775808", "9223372036854775806", "9223372036854775807"]
    (folder / "d.csv").write_text("\n".join(["a,label", *(f"1,{text}" for text in texts)]) + "\n")
    assert table_rows("d.csv", "label").labels.tolist() == [*map(int, texts)]
    (folder / "d.csv").write_text("a,label\n1,18446744073709551617\n2,1\n")
    assert table_rows("d.csv", "label", text_labels=True).labels.tolist() == ["18446744073709551617", "1"]
    with pytest.raises(DataError, match="not all labels are 64-bit integers; mend it"):
        table_rows("d.csv", "label", text_labels=False)


def test_many_columns_are_looked_up_at_once(folder):
    compared = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = [f"gene{at}" for at in range(500)]
    (folder / "d.csv").write_text(f"{','.join(names)},label\n{'1,' * 500}2\n")
    assert len(table_rows("d.csv", "label", like=TableRule("label", tuple(map(Name, names)))).indices) == 500
    assert compared < 10 * len(names)


def test_bools_may_be_words(folder, capsys):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"b": [True, False, True, False], "label": [1, 2, 1, 2]}), "d.parquet")
    assert trained("--categories", "b", path="d.parquet").feature_names == ["b=true", "b=false"]
    assert predict_main(["d.parquet", "m", "out"]) == 0 and capsys.readouterr().out == "Accuracy = 100% (4/4)\n"


def test_commands_refuse(folder, capsys):
    trained(*GIVEN)
    (folder / "few.csv").write_text("age,town,sold\n1,Rom,1\n")
    (folder / "none.csv").write_text('age,town,"income, EUR"\n1,Rom,1\n')
    (folder / "word.csv").write_text('age,town,sold,"income, EUR"\n1,Rom,1,much\n')
    (folder / "t").write_text("1 1:1\n2 2:1\n")
    assert train_main(["-s", "l2svc", "-q", "t", "of_text"]) == 0
    for command, words, text, status in (
            (predict_main, "few.csv m", "there is no column 'income, EUR', which the training set has", 1),
            (predict_main, "--label solt none.csv m", "there is no column 'solt' of labels: ", 1),
            (predict_main, "--margins none.csv m", "none.csv has no column 'sold' of labels, of which margins are", 1),
            (inspect_main, "m none.csv", "there is no column 'sold' of labels: ", 1),
            (predict_main, "word.csv m", "'much' is no finite number; mend it, as the training set has numbers", 1),
            (predict_main, "--label age d.csv m", "column 'age' is a feature in the training set", 1),
            (predict_main, "d.csv of_text", "the model does not know columns by their names", 1),
            (predict_main, "--zero-based d.csv m", "--zero-based is for LIBSVM's text", 2),
            (predict_main, "--like s d.csv m", "--like is of no use with d.csv", 2),
            (predict_main, "--label sold t m", "--label is of no use with t", 2),
            (train_main, "--multilabel d.csv", "--multilabel is for LIBSVM's text", 2),
            (train_main, "--store s d.csv", "a store is made of LIBSVM's text or of Parquet", 2),
            (train_main, "--hash-bits 3 d.csv", "--hash-bits is of no use with d.csv: it is for Parquet", 2),
            (train_main, "--categories a t", "--categories is of no use with t", 2),
            (train_main, "--label sold --categories sold d.csv", "'sold' is named twice", 1),
            (train_main, "--label sold --leave-out ago d.csv", "no column 'ago' (did you mean 'age'?)", 1),
            (scale_main, "d.csv", "give margin-train --scale", 1),
            (plot_main, "margins -o x.png --label sold t m", "--label is of no use with t", 2)):
        assert command(words.split()) == status, words
        assert text in capsys.readouterr().err


def test_frames_keep_names():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"b": [1.0, 2, 3, 4], "a": [0.0, 1, 0, 2]})
    model = ml.train(frame, [1, 2, 1, 2], solver="l2svc")
    assert model.feature_names == ["b", "a"] and ml.train(frame.to_numpy(), [1, 2, 1, 2]).feature_names is None
    top = ml.margin_report(model, frame, [1, 2, 1, 2]).top_features[0]
    assert {feature.name for feature in (*top.largest, *top.smallest)} == {"a", "b"}
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame.to_numpy()))
    with pytest.raises(ValueError, match=r"in another order: give X\[model.feature_names\]"):
        model.predict(frame[["a", "b"]])
    with pytest.raises(ValueError, match=r"X has no column 'a', .* X.reindex\(columns=model.feature_names"):
        model.predict(frame[["b"]])
    assert ml.train(frame.rename(columns={"b": 1}), [1, 2, 1, 2]).feature_names is None
