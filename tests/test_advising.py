"""Notes on which of the defaults mattered, and the first run that shows what to type."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear.cli import predict, train
from marginlinear.libsvm import read_libsvm
from marginlinear.selection import advising
from marginlinear.status import option

ROOT = Path(__file__).parent.parent


def names(notes):
    return [note.name for note in notes]


@pytest.mark.parametrize("X, told", [
    ([[0.5, -1.0], [1.0, 0.2]], None),
    ([[0.5, -300.0], [1.0, 0.2]], "from 1 to 300, a ratio of 3e+02; scale='range'"),
    ([[0.001, 0.002], [0.003, 0.0]], "from 0.002 to 0.003, a ratio of 1.5; scale='range'"),
    ([[5.0, 0.01], [1.0, 0.02]], "from 0.02 to 5, a ratio of 2.5e+02; scale='range'"),
    # Rare words of a text, and counts of them.
    (sparse.csr_array(np.diag(np.linspace(0.02, 5, 30))), None),
    (sparse.csr_array(np.diag(np.linspace(1, 60, 30))), "from 1 to 60, a ratio of 60; scale='maxabs'"),
    (sparse.csr_array((3, 4)), None),
    (sparse.csr_array(np.diag([70.0] * 20)), "are all 70; scale='maxabs'"),
])
def test_features(X, told):
    notes = advising.of_features(X)
    assert [told is not None] == [bool(notes)] and all(told in note.text for note in notes)


@pytest.mark.parametrize("X", [
    [[0.5, -300.0], [1.0, 0.2]], [[0.5, -1.0], [1.0, 0.2]], [[70.0], [70.0]], np.diag(np.linspace(0.02, 5, 30)),
    np.diag(np.linspace(1, 60, 30)), np.eye(12)[:, :3] * [1, 5, 20]])
def test_check_advises_the_same(X):
    """Of rows in either storage."""
    for rows in (np.array(X), sparse.csr_array(X)):
        note = [note.text for note in advising.of_features(rows, option)]
        found = [finding.advice for finding in ml.check(rows, np.arange(len(X)) % 2).findings
                 if finding.name == "unscaled"]
        assert len(note) == len(found) and all(
            words.split("--scale ")[1].split()[0].strip(",") in note[0] for words in found)


def test_equal_values_of_rows_stay_in_one_number(tmp_path):
    """As of binary text scaled to length 1, of which a file keeps one value a row."""
    lines = [f"{i % 2} " + " ".join(f"{j}:2.5" for j in range(1 + i, 90_000, 9_000)) for i in range(9)]
    (tmp_path / "d").write_text("\n".join(lines) + "\n")
    data = read_libsvm(tmp_path / "d", narrow=True)
    assert data.equal is not None and advising.of_features(data) == []
    data.equal *= 10
    assert names(advising.of_features(data)) == ["unscaled"] and data.equal is not None


def test_classes():
    y = np.repeat([1, 2, 3], [400, 39, 100])
    note, = advising.of_classes(y, option)
    assert note.name == "unbalanced"
    assert "label 2 has 39 of 539 rows, label 1 has 400; --class-weight balanced weighs them alike" in note.text
    assert advising.of_classes(y[:-60][y[:-60] != 2]) == [] == advising.of_classes(np.array(["a", "b"]))


@pytest.mark.parametrize("y, told", [
    (np.arange(42) // 2, True), (np.arange(400) % 25 + 0.5, True),
    # Classes: many, with rows enough; fractions, but few; words.
    (np.arange(400) % 25, False), (np.arange(40) % 4 / 2, False), (np.arange(42).astype("U"), False),
])
def test_labels_that_are_amounts(y, told):
    assert names(advising.of_amounts(y, option)) == ["amounts"] * told


def test_a_regression_without_a_bias():
    X, y = np.arange(60.0)[:, None] / 60, np.arange(60.0) + 100
    assert names(ml.advice(X, y, ml.train(X, y, solver="l1svr"))) == ["bias"]
    assert ml.advice(X, y - 120, ml.train(X, y - 120, solver="l1svr")) == []
    for bias in ({"bias": 1}, {"free_bias": True}):
        assert ml.advice(X, y, ml.train(X, y, solver="l2svr", **bias)) == []
    assert ml.advice(X, y, ml.train(X, y, solver="nusvr")) == []


@pytest.mark.parametrize("scores, told", [
    ([0.1, 0.2, 0.3, 0.4], "C = 8 is the best, and the largest that was tried: go on with grid='C=8,16,32'"),
    ([0.4, 0.2, 0.1, 0.1], "C = 1 is the best, and the least that was tried: go on with grid='C=0.25,0.5,1'"),
    ([0.1, 0.2, 0.4, 0.3], None),
    # Equally good inside.
    ([0.4, 0.2, 0.4, 0.3], None),
])
def test_edges(scores, told):
    table = [{"C": 2.0**at, "mu": 1.0, "score": score} for at, score in enumerate(scores)]
    best = max(table, key=lambda entry: entry["score"])
    notes = advising.of_search(table, {"C": best["C"], "mu": 1.0})
    assert [note.text for note in notes] == [told] * (told is not None)
    table[1]["C"] = "1mC"
    assert advising.of_search(table, {"C": best["C"], "mu": 1.0}) == []


def test_advice_of_a_model_and_its_search():
    rng = np.random.default_rng(0)
    y = (np.arange(120) < 8).astype(int)
    X = (rng.standard_normal((120, 3)) + y[:, None]) * [1, 1, 1e4]
    found = ml.search(X, y, solver="l2svc", grid="C=1e-9,1e-8,1e-7", metric="auc")
    assert names(ml.advice(X, y, found.model)) == ["unscaled", "unbalanced"]
    assert set(names(ml.advice(X, y, found.model, search=found))) >= {"unscaled", "unbalanced"}
    scaled = ml.train(X, y, solver="l2svc", scale="range")
    assert ml.advice(X, y, scaled, class_weight="balanced") == []
    gram = 100 * (scaled_rows := X / [1, 1, 1e4]) @ scaled_rows.T
    assert names(ml.advice(gram, y, ml.train(gram, y, solver="l2svc", kernel="precomputed", C=0.01))) == ["unbalanced"]
    assert names(ml.advice(X, X[:, 0], ml.train(X, X[:, 0], solver="l2svr"))) == ["unscaled"]
    with pytest.raises(TypeError, match="model = 1 is not allowed"):
        ml.advice(X, y, 1)


def test_numbers_that_are_classes(tmp_path, monkeypatch, capsys):
    """Regressions are named, before the fit; the targets of a regression are fine."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).uniform(size=(60, 2))
    assert ml.advice(X, X[:, 0], ml.train(X, X[:, 0])) == advising.of_amounts(X[:, 0]) != []
    assert "solver='l1svr' | 'l2svr' | 'nusvr'" in advising.of_amounts(X[:, 0])[0].text
    ml.dump_libsvm(X, X[:, 0], "d")
    monkeypatch.setattr("marginlinear.api.fit_model", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train.main(["d", "m"])
    assert capsys.readouterr().err.startswith("note: labels are 60 different numbers in 60 rows, and each ")
    with pytest.raises(ZeroDivisionError):
        train.main(["-s", "l2svr", "d", "m"])
    assert "note" not in capsys.readouterr().err


def test_the_command_tells_and_can_be_silenced(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("d").write_text("".join(f"{1 if i else 2} 1:{i * 100} 2:0.5\n" for i in range(40)))
    assert train.main(["d", "m"]) == 0
    notes = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in notes] == ["note", "note"] and "--scale range, or margin-scale," in notes[0]
    assert "--class-weight balanced" in notes[1]
    for words in (["--no-advice"], ["-q"], ["--scale", "range", "-w2", "9"],
                  ["--scale", "range", "--class-weight", "balanced"]):
        assert train.main([*words, "d", "m"]) == 0
        assert capsys.readouterr().err == ""
    Path("r").write_text("".join(f"{100 + i / 2} 1:{i / 80}\n" for i in range(80)))
    for words, told in ("-s l2svc", "predicts such"), ("-s l2svr", "-R gives"), ("-s l2svr -B 1", ""), (
            "-s l2svr -C --grid C=1,2,free_bias=true", ""), ("-s nusvr", ""), ("-s 11 -t 2 -R", ""), (
            "-s 13 -t 2 -R", ""):
        assert train.main([*words.split(), "r"]) == 0
        notes = capsys.readouterr().err
        assert told in notes and notes.count("\n") == bool(told)
    Path("s").write_text("".join(f"{i % 2} 1:{i / 80}\n" for i in range(80)))
    for words, told in ("-s 3 -t 2", "LIBSVM's -s 3 is -s l1svr -R"), ("-s 3", ""), ("-s l1svc -t 2", ""), (
            "-t 2", ""):
        assert train.main([*words.split(), "s"]) == 0
        notes = capsys.readouterr().err
        assert told in notes and notes.count("\n") == bool(told)
    for name in ("dna", "news20.train"):
        assert train.main(["-s", "l2svc", str(ROOT / "data" / name), "m"]) == 0
        assert capsys.readouterr().err == ""


def test_without_arguments_three_commands_are_shown_that_run(tmp_path, monkeypatch, capsys):
    assert train.main([]) == 2
    shown = capsys.readouterr()
    commands = [shlex.split(line.strip().partition("   ")[0]) for line in shown.err.splitlines() if line[:2] == "  "]
    assert shown.out == "" and len(commands) == 3 and "margin-train --help" in shown.err
    monkeypatch.chdir(tmp_path)
    Path("data").symlink_to(ROOT / "data")
    programs = {"margin-train": train.main, "margin-predict": predict.main}
    for name, *words in commands:
        assert programs[name](words) == 0
    assert "Accuracy = 9" in capsys.readouterr().out and Path("dna.out").exists()
