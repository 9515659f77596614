"""The papers' tables as presets: what they name is there, and one is made, twice with the same bits."""

import csv
import lzma
import sys
from pathlib import Path

import numpy as np
import pytest

import marginlinear as ml
from marginlinear import registry
from marginlinear.cli.compare import main
from marginlinear.compare import compare
from marginlinear.compare.design import Design
from marginlinear.compare.protocols import get, msvmav2022, protocols
from marginlinear.compare.protocols.preset import PaperMethod, PaperSet, Protocol
from marginlinear.compare.protocols.published import Figure, read_published
from marginlinear.compare.protocols.reproduction import reproduce, welch
from marginlinear.compare.protocols.widths import mean_distance

ROOT = Path(__file__).resolve().parent.parent
PAPERS = ROOT / "docs" / "evidence" / "papers"
# Behind all others: marginlinear is the one that is tested; the rivals are in a clone.
sys.path.append(str(ROOT))


@pytest.mark.parametrize("name", protocols())
def test_a_preset_is_what_its_table_is(name):
    """Sets and methods are those of the figures, and all that has no words on why it lacks can be made."""
    protocol = get(name)
    figures = read_published(PAPERS / protocol.published) if protocol.published else {}
    assert not figures or {one.name for one in protocol.sets} == {of for of, _ in figures}
    own = {one.name for one in protocol.methods}
    assert own >= {method for _, method in figures} and len(own) == len(protocol.methods)
    assert all(bool(one.spec) != bool(one.why) for one in protocol.methods) and protocol.methods[0].spec
    assert all(one.files or not one.differs for one in protocol.sets) and all(one.origin for one in protocol.sets)
    for one in protocol.methods:
        if one.spec and not one.spec.startswith("sklearn:"):
            assert registry.get(one.spec.partition(";")[0])
    pytest.importorskip("sklearn")
    found, lacking = protocol.contestants()
    assert [one.label for one in found] == [one.name for one in protocol.methods if one.spec]
    assert set(lacking) == {one.name for one in protocol.methods if not one.spec}


def test_sets_are_found_by_their_names(tmp_path):
    for name in ("letter.xz", "letter.t", "glass"):
        (tmp_path / name).write_text("1 1:1\n")
    there = get("mcodm2017").at_hand(tmp_path)
    assert set(there) == {"letter", "glass", "iris", "wine"}
    assert [Path(path).name for path in there["letter"].paths] == ["letter.xz", "letter.t"]
    (tmp_path / "glass").write_text("3 1:3\n1 1:1\n2 1:2\n1 1:1.5\n")
    some = PaperSet("two", 3, 1, ("glass",), classes=2)
    data = some.source(some.found(tmp_path)).load(False)
    assert data.classes.tolist() == [1, 2] and data.y.tolist() == [0, 1, 0]
    (tmp_path / "letter.t").unlink()
    assert "letter" not in get("mcodm2017").at_hand(tmp_path)
    assert get("ldm2014-linear").at_hand(None) == {}


def tiny(tmp_path, m=40):
    """A protocol of two sets, one of them in two files, with the figures that its paper prints."""
    rng = np.random.default_rng(0)
    for name, rows in (("first", m), ("second", m // 2), ("second.t", m // 2)):
        y = np.arange(rows) % 2
        X = rng.standard_normal((rows, 3)) + y[:, np.newaxis]
        ml.dump_libsvm(X, y, tmp_path / name)
    (tmp_path / "table.csv").write_text(
        "dataset,method,mean,std,unit,mark\nA,own,72.5,5.0,percent,\nA,rival,.10,.01,fraction,●\n"
        "B,own,0.70,0.05,fraction,\nB,rival,0.7,0.05,fraction,○\nB,other,N/A,,fraction,\n")
    return Protocol(
        "tiny", "Somebody, Somewhere 2000", "Table 1", "table.csv",
        (PaperSet("A", m, 3, ("first",)), PaperSet("B", m, 3, ("second", "second.t"), differs="in two files", take=30),
         PaperSet("C", 5, 3, origin="nowhere")),
        (PaperMethod("own", "ldm;C=0.1,1;lambda1=0,0.1mC"), PaperMethod("rival", "l2svc;defaults"),
         PaperMethod("other", why="lost")),
        Design(splits=3, train_size=0.5, folds=2), "range", ("What it does not say.",), marks="rivals")


def test_a_table_beside_the_paper_s_twice_with_the_same_bits(tmp_path):
    protocol = tiny(tmp_path)
    first = reproduce(protocol, tmp_path, published=tmp_path, threads=1)
    second = reproduce(protocol, tmp_path, published=tmp_path, threads=2)
    text = first.to_markdown()
    assert text == second.to_markdown()
    assert [(cell.set, cell.method) for cell in first.cells()] == [("A", "own"), ("A", "rival"), ("B", "own"),
                                                                   ("B", "rival")]
    cells = {(cell.set, cell.method): cell for cell in first.cells()}
    assert cells["A", "rival"].agrees is False and cells["A", "rival"].difference == pytest.approx(
        cells["A", "rival"].mean - 0.1)
    assert cells["A", "own"].low <= cells["A", "own"].difference <= cells["A", "own"].high
    # One mark says that the paper's own is better than the rival, the other that it is worse.
    assert first.printed_counts("rival") == (1, 0, 1)
    for part in ("2 of its 3 sets are here", "- other is not here: lost", "C (5 x 3, nowhere)", "B*: in two files",
                 "| B* ", "- What it does not say."):
        assert part in text, part
    assert "Shorter" not in text
    shorter = reproduce(protocol, tmp_path, published=tmp_path, repetitions=2, sets=["B"], methods=[],
                        grids={"own": "C=1"})
    assert "2 splits in place of 3; own has C=1; without rival, other; without the sets A" in shorter.to_markdown()
    assert shorter.comparison.trials[0]["train"] == 15  # half of the 30 rows that are taken
    for wrong in ({"sets": ["D"]}, {"methods": ["D"]}, {"grids": {"D": "C=1"}}):
        with pytest.raises(ValueError, match=r"tiny has no .* 'D': give one of"):
            reproduce(protocol, tmp_path, published=tmp_path, **wrong)
    with pytest.raises(ValueError, match="none of its sets is in"):
        reproduce(protocol, PAPERS, published=tmp_path)


def test_the_interval_of_two_means():
    """Welch's, of a textbook's form: ours 0.8 +- 0.03 of 10, theirs 0.7 +- 0.04 of 20."""
    low, high = welch(0.8, 0.03, 10, Figure(0.7, 0.04, 0.0, ""), 20)
    spread = np.sqrt(0.03**2 / 10 + 0.04**2 / 20)
    freedom = spread**4 / ((0.03**2 / 10) ** 2 / 9 + (0.04**2 / 20) ** 2 / 19)
    scipy_stats = pytest.importorskip("scipy.stats")
    half = scipy_stats.t.ppf(0.975, freedom) * spread
    assert (low, high) == pytest.approx((0.1 - half, 0.1 + half))
    # A mean of one test part has the deviation of one.
    low, high = welch(0.8, 0.03, 10, Figure(0.7, 0.0, 0.0, ""), 20, one_test_part=True)
    half = scipy_stats.t.ppf(0.975, 9) * 0.03 * np.sqrt(1.1)
    assert (low, high) == pytest.approx((0.1 - half, 0.1 + half))
    assert welch(0.8, 0.0, 10, Figure(0.8, 0.0, 0.0005, ""), 20) == pytest.approx((-0.0005, 0.0005))


def test_figures_that_are_none(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("dataset,method,mean\n")
    with pytest.raises(ml.DataError, match=r"table.csv:1:1: .*columns"):
        read_published(path)
    path.write_text("dataset,method,mean,std,unit,mark\nA,B,x,,fraction,\n")
    with pytest.raises(ml.DataError, match=r"table.csv:2:1: no figure"):
        read_published(path)


def test_widths_follow_from_the_training_rows():
    X = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]])
    assert mean_distance(X, 0) == pytest.approx((5 + 4 + 3) / 3)
    pytest.importorskip("sklearn")
    found, _ = get("ldm2014-rbf").contestants(["KM-OMD"])
    from marginlinear.compare.contestants import Task

    task = Task(X, np.array([0, 1, 1]), np.array([0, 1]), np.zeros(3, dtype=int), "accuracy", 0, 1, None)
    gammas = sorted({point["gamma"] for point in found[0].points(task)})
    assert gammas == pytest.approx([1 / (2 * (factor * 4) ** 2) for factor in (4, 2, 1, 0.5, 0.25)])
    assert len(found[0].points(task)) == 5 * 3 * 49


@pytest.mark.parametrize("given, fragment", [
    (["--protocol", "none"], "protocol = 'none' is not known: give ldm2014-linear"),
    (["--protocol", "mcodm2017", "--repeats", "2"], "give --splits"),
    (["--protocol", "m3svm2024", "--splits", "2"], "give --repeats"),
    (["--protocol", "mcodm2017", "-c", "1"], "-c is what the paper says"),
    (["--protocol", "mcodm2017", "file"], "found by their names in --data"),
])
def test_commands_that_are_refused(given, fragment, capfd):
    assert main(given) == 2
    assert fragment in capfd.readouterr().err


def test_the_command(capfd):
    assert main(["--protocol", "list", "--data", str(ROOT / "data")]) == 0
    told = capfd.readouterr().out
    assert all(name in told for name in protocols()) and "| m3svm2024 " in told
    command = ["--protocol", "m3svm2024", "--data", str(ROOT / "data"), "--sets", "Glass", "-s", "OvR",
               "--repeats", "1", "--grid", "M3SVM:lambda=0.1,norm=2", "--published", str(PAPERS), "--threads", "2"]
    assert main(command) == 0
    told = capfd.readouterr().out
    assert "| Glass | OvR " in told and "0.6560 ± 0.0750" in told
    assert main([*command, "-q", "-o", "-"]) == 2


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    from tools.figures import curves, means_of
    from tools.figures import main as draw

    rng = np.random.default_rng(0)
    sets = {f"some-{k}": (rng.standard_normal((12 * k, 4)), np.arange(12 * k) % k) for k in (3, 2)}
    result = compare(sets, ["cs;C=1", "l2svc;C=1"], splits=2, folds=2, margins=True)
    (tmp_path / "result.json").write_text(result.to_json())
    for kind in ("classes", "seconds"):
        out = tmp_path / f"{kind}.svg"
        assert draw([kind, str(tmp_path / "result.json"), str(out)]) == 0 and out.read_text().startswith("<?xml")
    (tmp_path / "other.json").write_text(result.to_json().replace("some-", "some"))
    assert draw(["classes", str(tmp_path / "other.json"), str(tmp_path / "x.svg")]) == 1
    assert draw(["classes", str(tmp_path / "none.json"), str(tmp_path / "x.svg")]) == 1
    with lzma.open(tmp_path / "part.csv.xz", "wt", encoding="utf-8", newline="") as stream:
        stream.write(result.to_csv())
    out = tmp_path / "ranks.svg"
    assert draw(["ranks", str(tmp_path / "part.csv.xz"), str(out), "--metric", "accuracy,brier"]) == 0
    assert "critical difference" in out.read_text()
    methods, means = means_of(list(csv.DictReader(result.to_csv().splitlines())), "accuracy")
    assert methods == ["cs", "l2svc"] and means.tolist() == list(result.shared_means("accuracy", methods).values())
    from matplotlib import pyplot

    # Each curve goes through the best point of its grid.
    ml.dump_libsvm(*sets["some-3"], tmp_path / "data")
    grids = {"ldm": "C=1,10,lambda1=0.25,0.5,1,lambda2=0,1", "lpmcsvm": "C=1,norm=1,2",
             "m3svm": "lambda=0.001,0.1,norm=2,4"}
    figure = curves(tmp_path / "data", pyplot, grids)
    lines = [ax.lines[0].get_xydata() for ax in figure.axes]
    assert [len(line) for line in lines] == [3, 2, 2, 2, 2, 2]
    assert all(len({line[:, 1].max() for line in some}) == 1 for some in (lines[:3], lines[4:]))


@pytest.mark.parametrize("loss", ["squared", "plain"])
def test_regression_on_signs_is_a_margin_machine(loss):
    rng = np.random.default_rng(3)
    X, C, eps = rng.standard_normal((40, 3)), 0.7, 0.1
    y = np.where(X[:, 0] + rng.standard_normal(40) > 0, 1, -1)
    tight = {"tol": 1e-9, "max_iter": 10**6}
    if loss == "squared":
        svr = ml.train(X, y.astype(float), solver="l2svr", C=C, epsilon=eps, **tight).weights
        ours = ml.train(X, y, solver="odm", mu=1, theta=eps, C=C * (1 - eps) ** 2, **tight).weights
    else:
        svr = ml.train(X, y.astype(float), solver="l1svr", C=C, epsilon=eps, **tight).weights
        bound = float(msvmav2022.SVR.partition("margin_bound=")[2])
        ours = (1 - eps) * ml.train(X, y, solver="rmm", margin_bound=bound, C=C / (1 - eps), **tight).weights
    assert np.allclose(svr, ours, atol=1e-4)
