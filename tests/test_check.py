"""margin-check and margin-subset: what they find, what they go on after, and what they copy."""

import gzip
import json
import re
import shutil

import numpy as np
import pytest

import marginlinear as ml
from marginlinear.cli.check import main as check_main
from marginlinear.cli.subset import main as subset_main
from marginlinear.data.folds import chosen
from marginlinear.libsvm.reader import good_blocks

BAD = """\
# a comment
1 1:1 2:0.5
-1 1:1 3:y 4:1

1 2:1 1:1
x 1:1
1 5:1 # and one here
 3:1 4:1
-1 1:nan
1
-1 1:1 2:0.5
1 1:2 2:0 9:0
1 1:1 2:0.5
"""
WRONG = [(3, 10), (5, 7), (6, 1), (8, 2), (9, 6)]


def names_of(report):
    return {finding.name: finding for finding in report.findings}


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_it_goes_on_after_lines_that_are_wrong(tmp_path, packed):
    """Each line as the reader alone would tell of it; the others are rows, in their lines."""
    path = tmp_path / "d"
    path.write_bytes(packed(BAD.encode()))
    for size in (1, 30, 1 << 20):
        told, lines, labels = [], [], []
        for rows, numbers in good_blocks(path, told.append, _block_size=size):
            lines += numbers.tolist()
            labels += rows.labels.tolist()
        assert [(error.line, error.column) for error in told] == WRONG
        assert (lines, labels) == ([2, 7, 10, 11, 12, 13], [1, 1, 1, -1, 1, 1])
    for error in told:
        one = tmp_path / "one"
        one.write_text("1 7:1\n" + BAD.splitlines()[error.line - 1])
        with pytest.raises(ml.DataError) as alone:
            ml.load_libsvm(one)
        assert (alone.value.column, alone.value.reason) == (error.column, error.reason)
    report = ml.check(path, max_errors=1)
    assert (report.n_errors, len(report.errors), report.ok) == (5, 4, False)
    # Two have no fix.
    assert report.fixes[""] == 2 and sum(report.fixes.values()) == 5
    assert (report.rows, report.n_features, report.values, report.labels) == (6, 9, 8, {-1: 1, 1: 5})
    found = names_of(report)
    assert found.keys() == {"zeros", "empty_rows", "duplicates", "conflicts", "single_rows", "unused", "single_values"}
    assert found["empty_rows"].examples == [10] and found["zeros"].number == 2
    assert "line 11 as 2" in found["conflicts"].text and "line 13 as 2" in found["duplicates"].text
    assert found["unused"].examples == [3, 4, 6, 7, 8] and found["single_values"].examples == [5]


@pytest.mark.parametrize("text, labels, n_errors", [
    (b"0:1\n1,2 1:1\n1 1:\xff\n 2:1\n2,\xff 1:1\n", {"1": 1, "2": 1, "none": 1}, 3),
    (b"a 1:1\n1 1:1\nb\xff 1:1\nb 1:1", {"a": 1, "b": 1, "b\\xff": 1}, 2),
    (b"\xef\xbb\xbf1 x\r\n1 1:1\r\n", {1: 1}, 1), (b"a,b,c\n1,2,3\n", {}, 2)])
def test_kinds_of_labels_are_learned_from_good_lines(tmp_path, text, labels, n_errors):
    (tmp_path / "d").write_bytes(text)
    report = ml.check(tmp_path / "d")
    assert report.n_errors == n_errors, report
    if "none" not in labels:
        assert report.labels == labels


def test_equal_rows_are_found(tmp_path):
    """Against a search by hand; zeros that are written out, and the type of values, make no difference."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(-1, 2, (300, 4)), rng.integers(0, 2, 300)
    first, duplicates, conflicts = {}, 0, 0
    for row, label in zip(X.tolist(), y.tolist(), strict=True):
        if any(row):
            duplicates += first.setdefault(tuple(row), [label, 0])[1] and first[tuple(row)][0] == label
            conflicts += first[tuple(row)][0] != label
            first[tuple(row)][1] = 1
    ml.dump_libsvm(X, y, tmp_path / "d")
    (tmp_path / "zeros").write_text("".join(f"{label} " + " ".join(f"{j + 1}:{value}" for j, value in enumerate(row))
                                            + "\n" for row, label in zip(X.tolist(), y.tolist(), strict=True)))
    for source in ((X.astype(np.float32), y), (tmp_path / "d",), (tmp_path / "zeros",)):
        found = names_of(ml.check(*source))
        assert (found["duplicates"].number, found["conflicts"].number) == (duplicates, conflicts)
        assert found["empty_rows"].number == np.count_nonzero(~X.any(axis=1))


def test_columns_of_no_use():
    X = np.array([[1.0, 5, 0, 1e4, 0], [2, 5, 0, 3, 7], [1, 5, 0, 0, 0], [3, 5, 0, 1, 0]])
    report = ml.check(X, [0.5, 2.5, 1, 2])
    found = names_of(report)
    assert {name: finding.examples for name, finding in found.items()} == {
        "unused": [3], "constant": [2], "single_values": [5], "unscaled": [1, 4]}
    assert report.target == (0.5, 2.5, 1.5, 4) and report.labels == {} and report.ok
    assert json.loads(json.dumps(report.to_dict()))["findings"][0]["name"] == "unused" and "unscaled" in repr(report)
    assert names_of(ml.check(X, [1, 1, 1, 1]))["one_label"].is_error
    assert ml.check(X, [{1}, {1, 2}, set(), {2}]).labels == {1: 2, 2: 2}
    for given, words in ((([[np.inf]], [1]), "row 0, column 0 is inf"), ((X,), "y is missing"),
                         (("x", [1]), "y is for an array")):
        with pytest.raises((ValueError, TypeError), match=words):
            ml.check(*given)


CHECKED = [
    ("good", 0, "^good: 3 rows, 2 features, numbered 1 to 2, 4 values .*\nlabels: 2 classes: 1 \\(2\\), 2 \\(1\\)\n"),
    ("zero", 1, "ERROR: 1 row with a feature 0 \\(line 2\\)"), ("--zero-based zero", 0, "numbered 0 to 1"),
    ("--errors 1 bad", 1, "\n5 lines with an error.*\n  bad:3:10: value 'y' is not a number\n  and 1 other; .*\n"
                          "  bad:5:7: '1:1' comes after index 2\n    indices must rise along a row\n"),
    ("--json bad", 1, '"n_errors": 5, .*"ok": false'), ("none", 1, "can't open input file none"),
    ("empty", 1, "the file has no rows"), ("good bad", 2, "one data_file is needed, not good bad"),
    ("--label a good", 2, "--label is of no use with good"), ("-q t.csv", 1, "no column 'label' of labels"),
    ("--label b t.csv", 1, "\n1 line with.*\n  t.csv:4:3: 3 cells: 2 are needed"),
    ("--label a --categories b t.csv", 1, "labels: 2 classes: 1 \\(1\\), 2 \\(1\\)"),
    ("--zero-based t.csv", 2, "--zero-based is for LIBSVM's text"), ("--label b --leave-out a t.csv", 1, "0 features"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("good", "1 1:1 2:3\n2 1:1\n1 2:1\n"), ("zero", "1 1:1\n2 0:3 1:2\n1 1:4\n2 1:5 \n"),
                       ("bad", BAD), ("empty", "# nothing\n"), ("t.csv", "a,b\n1,x\n2,y\n3,x,1\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("line, status, words", CHECKED, ids=[line for line, _, _ in CHECKED])
def test_margin_check(folder, capsys, line, status, words):
    assert check_main(line.split()) == status
    out, err = capsys.readouterr()
    assert re.search(words, out + err), out + err


def test_errors_of_a_table(folder, capsys):
    """Each fix once, with how many lines ask for it; cells as they stand there, and the column that they are in."""
    rows = ["ü,1", '"It\'s ""x""",1', "1", "2,1", ",2", *(f"x{at},2" for at in range(9)), "3,2"]
    (folder / "t.csv").write_text("größe,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    assert check_main(["--errors", "3", "t.csv"]) == 1
    out = capsys.readouterr().out
    assert ("13 lines with an error, which training would refuse:\n"
            "  t.csv:4:2: 1 cells: 2 are needed, as in the header\n"
            "    mend the row: a cell in which a separator stands is put in double quotes\n"
            "  t.csv:2:1: column 'größe': 'ü' is no finite number\n"
            "  t.csv:3:1: column 'größe': 'It's \"x\"' is no finite number\n"
            "  t.csv:7:1: column 'größe': 'x0' is no finite number\n"
            "  and 8 others; --errors N shows more\n"
            "    11 lines: mend it, or state the column") in out
    assert out.count("--leave-out") == 2 and "t.csv:6:1: column 'größe': the cell is empty\n    write a" in out
    assert [error.line for error in ml.check("t.csv", max_errors=0).errors] == []


def test_stores_are_checked(folder):
    store = ml.Store.write("good", "s")
    assert ml.check("s").labels == {1: 2, 2: 1}
    with open("s/values.npy", "r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"\x17")
    report = ml.check(store.path)
    assert report.n_errors == 1 and "CRC-32" in str(report.errors[0])


def test_a_subset_has_each_class_by_its_share():
    rng = np.random.default_rng(0)
    for _ in range(300):
        k = int(rng.integers(1, 7))
        y = np.append(np.arange(k), rng.integers(0, k, rng.integers(0, 40)) ** 2 % k)
        rows = int(rng.integers(1, len(y) + 1))
        sizes, share = np.bincount(y[chosen(y, rows, 0)], minlength=k), np.bincount(y) * rows / len(y)
        assert sizes.sum() == rows and (sizes <= np.bincount(y)).all()
        if share.min() >= 1:
            assert (abs(sizes - share) < 1).all()
        if rows >= k:
            assert sizes.min() >= 1


def test_lines_are_copied_as_they_are(folder, capsys):
    text = "1 1:1 # x\r\n# none\n\n2 2:1e0\t\n1\n2 1:01\n1 3:1\n2 4:1"
    (folder / "d").write_bytes(gzip.compress(text.encode()))
    assert subset_main(["--seed", "3", "d", "2", "one", "two"]) == 0
    assert capsys.readouterr().out == "2 of 6 rows: 1 (1), 2 (1)\n"
    one, two = ((folder / name).read_bytes() for name in ("one", "two"))
    rows = [line for line in text.encode().splitlines(True) if line[:1] in b"12" and line.strip()]
    assert sorted((one + two).replace(b"2 4:1", b"").split(b"\n")) == sorted(b"".join(rows[:-1]).split(b"\n"))
    assert [line for line in rows if line in one] + [line for line in rows if line not in one] and len(one) < len(two)
    assert subset_main(["--seed", "3", "d", "0.3"]) == 0 and capsys.readouterr().out.encode() == one
    cells = 'a,b\r\n"x\ny",1\n"z\r",2\n\nq,1\n'
    (folder / "d.tsv").write_text(cells.replace(",", "\t"), newline="")
    assert subset_main(["-q", "--label", "b", "d.tsv", "2", "one.tsv", "two.tsv"]) == 0
    one, two = ((folder / name).read_bytes().split(b"\r\n", 1) for name in ("one.tsv", "two.tsv"))
    assert one[0] == two[0] == b"a\tb" and b'"z\r"\t2\n' in one[1]
    assert len(one[1] + two[1]) == len(cells) - len("a,b\r\n")


@pytest.mark.parametrize("line, status, words", [
    ("good", 2, "the number of rows is missing"), ("good x", 2, "rows x: give a number of rows, or a share"),
    ("good 1.5", 2, "rows 1.5: give"), ("good 0", 2, "rows 0: give"), ("- 1", 2, "can be read once only"),
    ("good 4", 1, "it has 3 rows, and 4 are to be taken"), ("good 1 a a", 2, "are one file"),
    ("good 1 good", 2, "are one file"), ("good 1 a.gz", 2, "what is written is not packed"),
    ("bad 1 a", 1, "bad:3:10: "),
    ("zero 1 a", 1, "zero:2:1: index 0"), ("t.csv 1 a", 1, "no column 'label'"),
    ("--label b t.csv 1 a", 1, ":4:3: 3 cells"),
    ("--label b good 1", 2, "it is for a file whose name ends in .csv"), ("good 1 no/a", 1, "no such directory"),
    ("empty 1 a", 1, "no rows"), ("none 1 a", 1, "can't open input file none"), ("/dev/null 1", 1, "no plain file"),
])
def test_subsets_that_are_refused(folder, capsys, line, status, words):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert subset_main(line.split()) == status
    assert words in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_several_labels(folder, capsys):
    shutil.copy("good", "ml")
    (folder / "ml").write_text("1,2 1:1\n 1:3\n1,2 1:2\n2 1:5\n")
    assert subset_main(["ml", "3", "one", "two"]) == 0
    assert capsys.readouterr().out.startswith("3 of 4 rows: ")
    assert len((folder / "one").read_text().splitlines()) == 3
    # Rows of one label each, and of two each, all among 0 and 1, are label sets too.
    for text in ("1 1:1\n3 1:2\n1 2:1\n", "0,1 1:1\n1,0 1:2\n0,1 2:1\n"):
        (folder / "ml").write_text(text)
        assert subset_main(["--multilabel", "-q", "ml", "3", "one"]) == 0 and (folder / "one").read_text() == text
