"""Displays: what the artists hold are the numbers. And margin-plot."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib", reason="pip install 'marginlinear[plot]'")

import marginlinear as ml  # noqa: E402
from marginlinear import plotting  # noqa: E402
from marginlinear.cli import plot, train  # noqa: E402
from marginlinear.errors import DataError  # noqa: E402
from marginlinear.plotting import (  # noqa: E402
    ConvergenceDisplay,
    MarginDistributionDisplay,
    ReliabilityDisplay,
    SearchDisplay,
)
from marginlinear.selection.tables import read_log, read_table  # noqa: E402

ROOT = str(Path(ml.__file__).parents[1])


@pytest.fixture(autouse=True)
def off_screen():
    matplotlib.use("agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def data(k, m=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(m) % k
    X = rng.standard_normal((m, 4))
    X[np.arange(m), y] += 1.5
    return X.round(3), 3 * y + 2


def drawn(display):
    """The picture as bytes: nothing in it fails to be drawn."""
    from io import BytesIO

    stream = BytesIO()
    display.figure_.savefig(stream, format="svg")
    return stream.getvalue()


# ---- margins


@pytest.mark.parametrize("k, options", [(2, {"solver": "l2svc", "bias": 1}), (3, {"solver": "mcodm"}),
                                        (3, {"solver": "cs", "kernel": "rbf"})])
@pytest.mark.parametrize("normalise", [True, False])
def test_cumulative_curve_of_a_model(k, options, normalise):
    X, y = data(k)
    model = ml.train(X, y, **options)
    report = ml.margin_report(model, X, y)
    moments = report.normalised_margin if normalise else report.margin
    display = MarginDistributionDisplay.from_estimator(model, X, y, normalise=normalise)
    x, shares = display.line_.get_data()
    g = np.sort(model.margins(X, y)) / (report.norm if normalise else 1)
    assert np.allclose(x[1:], g, rtol=1e-12)
    assert np.allclose(shares, np.arange(61) / 60)
    assert (display.mean, display.variance) == pytest.approx((moments.mean, moments.variance))
    point, caps, _ = display.mean_
    assert point.get_xdata()[0] == display.mean
    assert point.get_ydata()[0] == np.mean(g <= display.mean)
    assert [cap.get_xdata()[0] for cap in caps] == pytest.approx(
        [display.mean - display.variance**0.5, display.mean + display.variance**0.5])
    assert display.ax_.get_xlabel().startswith("margin / norm of the weights" if normalise else "margin (score)")
    assert display.line_.get_label().startswith(f"{options['solver']}: mean ")
    drawn(display)


def test_histogram():
    X, y = data(3)
    model = ml.train(X, y)
    display = MarginDistributionDisplay.from_estimator(model, X, y, normalise=False, kind="histogram", bins=7)
    counts, edges = np.histogram(model.margins(X, y), bins=7)
    x, shares = display.line_.get_data()
    assert np.array_equal(x[:-1], edges)
    assert np.allclose(shares[1:-1] * 60, counts)
    assert display.mean_.get_xdata() == [display.mean] * 2
    ends = display.ax_.transData.inverted().transform(display.band_.get_extents())[:, 0]
    assert ends == pytest.approx([display.mean - display.variance**0.5, display.mean + display.variance**0.5])
    drawn(display)


def test_weights_are_repeated_rows():
    margins, counts = np.array([0.3, -1, 2, 0.3, 0.7]), np.array([1, 2, 0, 3, 1])
    weighted = MarginDistributionDisplay(margins, weights=counts)
    repeated = MarginDistributionDisplay(np.repeat(margins, counts))
    assert (weighted.mean, weighted.variance) == pytest.approx((repeated.mean, repeated.variance))
    ours, theirs = (display.plot(kind="histogram", bins=[-1, 0, 1, 2]).line_.get_ydata()
                    for display in (weighted, repeated))
    assert np.allclose(ours, theirs)


def test_the_rows_of_a_picture_are_those_of_the_model():
    pd = pytest.importorskip("pandas", reason="pandas is missing: pip install pandas")
    X, y = data(2)
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    model = ml.train(frame, y)
    for rows in (frame[frame.columns[::-1]], X[:, 1:]):
        with pytest.raises(ValueError, match=r"another order|features, the model"):
            MarginDistributionDisplay.from_estimator(model, rows, y)


def test_from_predictions_is_from_estimator():
    for k in (2, 3):
        X, y = data(k)
        model = ml.train(X, y, solver="ldm")
        one = MarginDistributionDisplay.from_estimator(model, X, y, normalise=False)
        other = MarginDistributionDisplay.from_predictions(y, model.decision_function(X), ax=one.ax_, name="again")
        assert np.array_equal(one.line_.get_data(), other.line_.get_data())
        assert other.ax_ is one.ax_
        # The line at 0 is drawn once.
        assert sum(line.get_gid() == "zero" for line in one.ax_.lines) == 1


# The number of iterations of "crammer_singer" is what happens to stand in memory: scikit-learn's n_iter_ is not set.
@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
def test_scikit_learns_classifiers():
    svm = pytest.importorskip("sklearn.svm", reason="pip install scikit-learn")
    X, y = data(3)
    theirs = svm.LinearSVC(multi_class="crammer_singer", fit_intercept=False, random_state=0).fit(X, y)
    model = ml.Model(theirs.coef_.T, theirs.classes_)
    display = MarginDistributionDisplay.from_estimator(theirs, X, y)
    same = MarginDistributionDisplay.from_estimator(model, X, y, ax=display.ax_)
    assert np.allclose(display.line_.get_data(), same.line_.get_data())
    assert display.name == "LinearSVC"
    kernel = svm.SVC().fit(X, y)
    with pytest.raises(ValueError, match="SVC: these margins have no norm to be divided by: give normalise=False"):
        MarginDistributionDisplay.from_estimator(kernel, X, y)
    MarginDistributionDisplay.from_estimator(kernel, X, y, normalise=False)
    # As many pairs as classes: the rows of coef_ are no classes.
    pairs = svm.SVC(kernel="linear").fit(X, y)
    assert len(pairs.coef_) == 3
    with pytest.raises(ValueError, match="SVC: these margins have no norm"):
        MarginDistributionDisplay.from_estimator(pairs, X, y)
    from sklearn.linear_model import LogisticRegression

    logistic = LogisticRegression().fit(X, y)
    assert MarginDistributionDisplay.from_estimator(logistic, X, y).name == "LogisticRegression"
    with pytest.raises(ValueError, match="SVC has scores of pairs of classes: set decision_function_shape='ovr'"):
        MarginDistributionDisplay.from_estimator(kernel.set_params(decision_function_shape="ovo"), X, y)


def test_estimators_of_a_model():
    X, y = data(3)
    words = np.array(["ham", "spam", "egg"], dtype=object)[y // 3]

    class Estimator:
        model_ = ml.train(X, words, solver="ldm")

    one, other = (MarginDistributionDisplay.from_estimator(found, X, words) for found in (Estimator, Estimator.model_))
    assert np.array_equal(one.line_.get_data(), other.line_.get_data())


def test_of_many_rows_a_curve_keeps_its_quantiles():
    g = np.random.default_rng(0).standard_normal(50_000)
    x, shares = MarginDistributionDisplay(g).plot().line_.get_data()
    assert len(x) == plotting.STEPS + 1
    assert (x[0], x[-1], shares[-1]) == (g.min(), g.max(), 1)
    assert np.allclose([np.mean(g <= at) for at in x[1:]], shares[1:])


def test_pipelines_and_searches():
    """The norm is that of the last step's weights, on what the steps before it make of the rows."""
    pytest.importorskip("sklearn", reason="pip install scikit-learn")
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    from marginlinear.sklearn import MCODMClassifier

    for k in (2, 3):
        X, y = data(k)
        Z = StandardScaler().fit_transform(X)
        for last in (LinearSVC(random_state=0), MCODMClassifier()):
            pipeline = make_pipeline(StandardScaler(), last).fit(X, y)
            alone = MarginDistributionDisplay.from_estimator(pipeline[-1], Z, y)
            other = MarginDistributionDisplay.from_estimator(pipeline, X, y, ax=alone.ax_)
            assert np.allclose(alone.line_.get_data(), other.line_.get_data(), rtol=1e-12)
            assert other.name == "Pipeline"
            assert "norm" in other.ax_.get_xlabel()
        search = GridSearchCV(pipeline, {"mcodmclassifier__C": [0.5, 2]}, cv=2).fit(X, y)
        found = MarginDistributionDisplay.from_estimator(search, X, y, name="search")
        best = MarginDistributionDisplay.from_estimator(search.best_estimator_, X, y)
        assert np.array_equal(found.line_.get_data(), best.line_.get_data())


def test_edges_of_a_histogram():
    assert plotting.histogram_edges(np.array([-1.0, 2, 2])).tolist() == [-1.5, -0.5, 0.5, 1.5, 2.5]
    g = np.array([0.25, 1, 3])
    assert np.array_equal(plotting.histogram_edges(g), np.histogram_bin_edges(g, 40))
    assert np.array_equal(plotting.histogram_edges(g, 3), np.histogram_bin_edges(g, 3))
    for value in (1e-9, -3e9, 1e300):
        edges = plotting.histogram_edges(np.full(5, value))
        assert len(edges) == 41 and edges[0] < value < edges[-1] and abs(edges).max() < 2 * abs(value)


def test_a_legend_hides_nothing():
    """It stands above the Axes, whatever the names are, and a picture of the command is higher by it."""
    X, y = data(3)
    model = ml.train(X, y)
    names = ["_hidden", "a$b", "of $\\frac$", "x" * 200, *"efghijklmnop"]
    ax = None
    for name in names:
        display = MarginDistributionDisplay.from_estimator(model, X, y, name=name, ax=ax)
        ax = display.ax_
    drawn(display)
    legend = ax.get_legend()
    assert len(legend.get_texts()) == len(names)
    assert legend.get_texts()[0].get_text().startswith(" _hidden: mean ")
    assert legend.get_window_extent().y0 >= ax.get_window_extent().y1
    height = ax.get_window_extent().height
    plot._grow(display.figure_)
    drawn(display)
    assert ax.get_window_extent().height > height + 0.9 * legend.get_window_extent().height
    # A figure that makes no room has it inside, like those of scikit-learn.
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    display = MarginDistributionDisplay.from_estimator(model, X, y, ax=ax)
    drawn(display)
    assert ax.get_legend().get_window_extent().y1 <= ax.get_window_extent().y1


def test_no_two_curves_look_alike():
    display = None
    for _ in range(20):
        display = MarginDistributionDisplay([0.0, 1]).plot(display and display.ax_)
    curves = [line for line in display.ax_.lines if line.get_drawstyle() == "steps-post"]
    assert len({(line.get_color(), str(line._dash_pattern)) for line in curves}) == len(curves) == 20


def test_bad_margins():
    X, y = data(3)
    model = ml.train(X, y)
    for call, message in [
        (lambda: MarginDistributionDisplay([1, np.nan]), "margins must be finite"),
        (lambda: MarginDistributionDisplay([]), "margins must be finite"),
        (lambda: MarginDistributionDisplay([1], weights=[-1]), "weights must be finite numbers >= 0"),
        (lambda: MarginDistributionDisplay([1]).plot(kind="bars"), "kind = 'bars' is not allowed"),
        (lambda: MarginDistributionDisplay.from_estimator(model, X, y + 1), "label 3 is not among the classes"),
        (lambda: MarginDistributionDisplay.from_predictions(y, np.ones(60)), r"y_score has shape \(60,\) for 60"),
        (lambda: MarginDistributionDisplay.from_estimator(
            ml.train(X, y, solver="ldm", multiclass="ovo"), X, y), "ldm: these margins have no norm"),
        (lambda: MarginDistributionDisplay.from_estimator(object(), X, y), "object has no classes_"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


# ---- convergence


def test_convergence_of_a_run():
    X, y = data(3)
    model = ml.train(X, y, C=100, tol=1e-6)
    display = ConvergenceDisplay.from_estimator(model, x="n_iter")
    history = model.info.history
    assert display.line_.get_xdata().tolist() == [entry["n_iter"] for entry in history]
    certificates = [entry["certificate"] for entry in history]
    assert [v for v in display.line_.get_ydata() if v == v] == [v for v in certificates if v > 0]
    assert display.objective_.get_ydata().tolist() == [entry["objective"] for entry in history]
    upper, lower = display.axes_
    assert (upper.get_yscale(), lower.get_xlabel()) == ("log", "sweeps over the rows, or Newton steps")
    low, high = lower.get_ylim()
    assert low < history[-1]["objective"] < high
    tolerance = upper.lines[1].get_ydata()[0]
    assert tolerance == model.info.criterion[2]
    # Another run, longer, goes into the same picture.
    longer = [{**entry, "n_iter": 3 * entry["n_iter"]} for entry in history]
    ConvergenceDisplay(longer, name="longer").plot(display.axes_, x="n_iter")
    assert lower.get_xlim()[1] > longer[-1]["n_iter"]
    assert [text.get_text() for text in upper.get_legend().get_texts()] == ["mcodm", "longer"]
    drawn(display)


def test_convergence_by_residual():
    X, y = data(2)
    display = ConvergenceDisplay.from_estimator(ml.train(X, y, solver="msvmav"), log_x=True)
    assert display.axes_[0].get_ylabel().startswith("residual")
    assert display.axes_[1].get_xscale() == "log"
    ConvergenceDisplay.from_estimator(ml.train(X, y), log_x=True).plot(display.axes_)
    assert display.axes_[0].get_ylabel().startswith("certificate or residual")
    drawn(display)


def test_convergence_of_binary_problems():
    """Their sums rise: the legend says so."""
    X, y = data(3)
    display = ConvergenceDisplay.from_estimator(ml.train(X, y, solver="l2svc"), name="ovr")
    assert display.line_.get_label() == "ovr (sum over the binary problems solved so far)"
    assert len(display.line_.get_xdata()) == 3
    drawn(display)


def test_convergence_of_one_check_at_no_time():
    check = {"n_iter": 0, "seconds": 0.0, "objective": -3.0, "bound": None, "certificate": 0.0, "residual": None}
    drawn(ConvergenceDisplay([check]).plot())
    drawn(ConvergenceDisplay([check], limit=1e-3, name="x").plot(x="n_iter"))


def test_an_objective_that_falls_far_is_drawn_whole():
    checks = [{"n_iter": i, "seconds": i, "objective": 10.0 ** -i, "certificate": 1.0} for i in range(4)]
    lower = ConvergenceDisplay(checks).plot().axes_[1]
    assert lower.get_yscale() == "log"
    low, high = lower.get_ylim()
    assert low < 1e-3 and high > 1
    ConvergenceDisplay([{**checks[0], "objective": -1.0}]).plot(lower.figure.axes)
    assert lower.get_yscale() == "linear"


def test_logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = data(3)
    ml.dump_libsvm(X, y, "d")
    assert train.main(["-q", "-c", "10", "-e", "1e-5", "--log", "run.jsonl", "d", "m"]) == 0
    info = ml.load_model("m").info
    (history, limit, place), = read_log("run.jsonl")
    assert (history[-1]["certificate"], limit, place) == (info.certificate, info.criterion[2], {})
    display = ConvergenceDisplay.from_log("run.jsonl")
    assert display.line_.get_xdata().tolist() == [entry["seconds"] for entry in history]
    assert display.name == "run"
    assert train.main(["-q", "--probability", "--log", "folds.jsonl", "d", "m"]) == 0
    places = [{}, *({"fold": fold} for fold in range(1, 6))]
    assert [place for _, _, place in read_log("folds.jsonl")] == places
    with pytest.raises(ValueError, match=r"folds.jsonl: 6 runs: read_log gives the history of each"):
        ConvergenceDisplay.from_log("folds.jsonl")
    lines = Path("run.jsonl").read_text().splitlines()
    Path("interrupted").write_text("\n".join(lines[:-1]) + "\n")
    (history, limit, _), = read_log("interrupted")
    assert (len(history), limit) == (len(lines) - 1, None)
    result = json.loads(lines[-1])
    Path("failed").write_text("\n".join([*lines[:-1], json.dumps({**result, "objective": None, "status": "failed"})]))
    assert [limit for _, limit, _ in read_log("failed")] == [None]
    for text, message in [
        ("x\n", "log:1:1: not JSON"),
        ('{"a": 1}\n', "log:1:1: not a line of margin-train --log"),
        (lines[0].replace('"objective": ', '"objective": "x", "y": '), "log:1:1: objective: 'x' is not a number"),
        (json.dumps({**result, "tol": None}), "log:1:1: tol: 'None' is not a number"),
        ("", "log: no check of a run"),
        (b"\xff\n", "log:1:1: not JSON: it is not UTF-8"),
    ]:
        Path("log").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(DataError, match=message):
            read_log("log")


def test_bad_convergence():
    for call, message in [
        (lambda: ConvergenceDisplay([]), "the run has no history"),
        (lambda: ConvergenceDisplay([{"objective": 1.0}]).plot(x="time"), "x = 'time' is not allowed"),
        (lambda: ConvergenceDisplay.from_estimator(object()), "object has no info of a run"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


# ---- searches


TABLE = [{"C": 2.0**i, "mu": mu, "score": 0.8 - 0.01 * abs(i - 1) - 0.1 * mu, "std": 0.01}
         for mu in (0.2, 0.8) for i in (3, 1, -1, -3)]


def test_search():
    display = SearchDisplay.from_table(TABLE)
    assert [line.get_label() for line in display.lines_] == ["mu = 0.2", "mu = 0.8"]
    for line, rows in zip(display.lines_, (TABLE[:4], TABLE[4:]), strict=True):
        assert line.get_xdata().tolist() == [0.125, 0.5, 2, 8]
        assert line.get_ydata().tolist() == [row["score"] for row in rows[::-1]]
    assert display.best is display.table[1]
    assert (display.best_.get_xdata()[0], display.best_.get_ydata()[0]) == (2, TABLE[1]["score"])
    assert (display.ax_.get_xscale(), display.ax_.get_xlabel()) == ("log", "C")
    assert len(display.ax_.collections) == 2  # the bands
    drawn(display)


def test_search_along_another_parameter():
    display = SearchDisplay.from_table(TABLE, param="mu")
    assert [line.get_xdata().tolist() for line in display.lines_] == [[0.2, 0.8]] * 4
    assert display.ax_.get_xscale() == "linear"
    many = [{"C": 1.0, "degree": i, "accuracy": 0.5} for i in range(12)]
    assert len(SearchDisplay.from_table([*many, {**many[0], "C": 2.0}]).lines_) == 12


def test_search_by_an_error():
    """The least is the best where the table says so, or the column; a table without a metric has scores."""
    table = [{"C": C, "score": score, "metric": "mse", "auc": score} for C, score in [(1, 0.3), (2, 0.2)]]
    assert [SearchDisplay(table, score=score).best["C"] for score in (None, "auc")] == [2, 1]
    old = [{"C": row["C"], "score": row["score"], "mae": row["score"]} for row in table]
    assert [SearchDisplay(old, score=score).best["C"] for score in ("score", "mae")] == [1, 2]


def test_search_in_units_of_rows_and_cost():
    table = [{"lambda1": f"{value}mC", "score": 1 - value} for value in (0.1, 0.01, 1)]
    display = SearchDisplay.from_table(table, param="lambda1")
    assert display.lines_[0].get_xdata().tolist() == [0.01, 0.1, 1] and display.ax_.get_xlabel() == "lambda1 (mC)"
    with pytest.raises(ValueError, match=r"lambda1 = '0.1mC' in the table is not a number"):
        SearchDisplay.from_table([*table, {"lambda1": 2.0, "score": 0.5}], param="lambda1")


def test_searches():
    selection = pytest.importorskip("sklearn.model_selection", reason="pip install scikit-learn")
    from sklearn.svm import LinearSVC

    X, y = data(3)
    grid = selection.GridSearchCV(LinearSVC(max_iter=10**5), {"C": [0.5, 1, 2], "loss": ["hinge", "squared_hinge"]},
                                  cv=2).fit(X, y)
    display = SearchDisplay.from_estimator(grid)
    assert [line.get_label() for line in display.lines_] == ["loss = hinge", "loss = squared_hinge"]
    assert display.best["score"] == grid.best_score_
    assert {name: display.best[name] for name in grid.best_params_} == grid.best_params_

    from sklearn.pipeline import make_pipeline

    steps = selection.GridSearchCV(make_pipeline(LinearSVC()), {"linearsvc__C": [0.5, 2]}, cv=2, refit=False,
                                   scoring=["accuracy", "balanced_accuracy"]).fit(X, y)
    display = SearchDisplay.from_estimator(steps, metric="balanced_accuracy")
    assert display.param == "linearsvc__C"
    assert display.best["score"] == steps.cv_results_["mean_test_balanced_accuracy"].max()
    with pytest.raises(ValueError, match=r"metric = 'score' is not allowed: give accuracy \| balanced_accuracy"):
        SearchDisplay.from_estimator(steps)

    class Search:
        table = TABLE

    assert SearchDisplay.from_estimator(Search()).best == TABLE[1]
    with pytest.raises(ValueError, match="LinearSVC is no finished search"):
        SearchDisplay.from_estimator(LinearSVC())


def test_deviations_of_folds(tmp_path):
    table = [{"C": c, "score": 0.5, "n_iter": 7, "seconds": 1.5, "status": "converged",
              "fold_scores": [0.25, 0.75, None]} for c in (1.0, 2.0, 3.0)]
    (tmp_path / "t.csv").write_text("C,score,n_iter,seconds,status,fold_1,fold_2\n1,0.5,7,1.5,converged,0.25,0.75\n")
    assert read_table(tmp_path / "t.csv") == [{**table[0], "fold_scores": [0.25, 0.75]}]
    display = SearchDisplay.from_table(table)
    band, = display.ax_.collections
    assert (display.params, len(display.lines_)) == ([], 1)
    assert set(band.get_paths()[0].vertices[:, 1].tolist()) == {0.25, 0.75}
    assert display.ax_.get_ylabel() == "score (band: \u00b1 std)"


def test_tables_in_files(tmp_path):
    for name, text in [
        ("t.csv", "C,mu,score,std\n" + "".join(",".join(map(str, row.values())) + "\n" for row in TABLE)),
        ("t.json", json.dumps(TABLE)),
        ("t.jsonl", "".join(json.dumps(row) + "\n" for row in TABLE)),
    ]:
        (tmp_path / name).write_text(text)
        assert read_table(tmp_path / name) == TABLE
        assert SearchDisplay.from_file(tmp_path / name).best == TABLE[1]
    for text, message in [("", "no rows"), ("C,score\n", "no rows"), ("[]", "no rows"), ("[1]", "entry 1 of the list"),
                          ("[{]", ":1:3: not JSON"), ("C,score\n1\n", ":2:1: 2 cells are needed"),
                          ("C,score\n1,2,3\n", ":2:1: 2 cells are needed"), ("\udcff", "not UTF-8"),
                          ('C,score\n1,"2"3\n', ":2:1: not CSV")]:
        (tmp_path / "bad").write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(DataError, match=message):
            read_table(tmp_path / "bad")


def test_a_file_of_another_kind_is_named_with_what_draws_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = data(3)
    ml.dump_libsvm(X, y, "d")
    assert train.main(["-q", "--log", "run", "d", "m"]) == 0
    search = ["-q", "--grid", "C=1,2", "-v", "2", "d"]
    assert train.main([*search, "--log", "search", "--table", "t.csv"]) == 0
    # As the message about a search's log says.
    assert train.main([*search, "--resume", "search", "--table", "t.json"]) == 0
    assert train.main(["-q", "-v", "2", "--log", "folds", "d"]) == 0
    logs, tables = {"run": "convergence"}, {"t.csv": "search", "t.json": "search"}
    others = dict.fromkeys(("search", "folds"), "--resume LOG --table FILE.csv")
    for draw, known, strange in (ConvergenceDisplay.from_log, logs, {**tables, **others}), (
            SearchDisplay.from_file, tables, {**logs, **others}):
        for path in known:
            draw(path)
        for path, words in strange.items():
            with pytest.raises(DataError, match=f"{path}:1:1: the (log|table) of a .*{words}"):
                draw(path)


def test_bad_search():
    for table, options, message in [
        ([], {}, "the table of the search has no rows"),
        ([{"C": 1, "x": 2}], {}, "no column of scores: name one of C, x"),
        ([{"score": 1}], {}, "no column 'C': it has score"),
        ([{"C": "a", "score": 1}], {}, "C = 'a' in the table is not a number"),
        ([{"C": 1, "score": None}], {}, "no row of the table has a number in its column 'score'"),
        (TABLE, {"score": "auc"}, "no column 'auc'"),
    ]:
        with pytest.raises(ValueError, match=message):
            SearchDisplay.from_table(table, **options)


# ---- reliability


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_reliability_is_scikit_learns(strategy):
    calibration = pytest.importorskip("sklearn.calibration", reason="pip install scikit-learn")
    rng = np.random.default_rng(0)
    p = rng.random(500)
    y = np.where(rng.random(500) < p, "yes", "no")
    display = ReliabilityDisplay.from_predictions(y, p, n_bins=7, strategy=strategy)
    observed, predicted = calibration.calibration_curve(y == "yes", p, n_bins=7, strategy=strategy)
    x, shares = display.line_.get_data()
    assert np.allclose(x, predicted) and np.allclose(shares, observed)
    both = ReliabilityDisplay.from_predictions(y, np.column_stack((1 - p, p)), n_bins=7, strategy=strategy,
                                               ax=display.ax_)
    assert np.array_equal(both.line_.get_data(), (x, shares))
    assert display.diagonal_ is not None and both.diagonal_ is None
    other = ReliabilityDisplay.from_predictions(y, p, n_bins=7, strategy=strategy, pos_label="no")
    observed, predicted = calibration.calibration_curve(y == "no", 1 - p, n_bins=7, strategy=strategy)
    assert np.allclose(other.line_.get_data(), [predicted, observed])
    assert "class no" in other.ax_.get_xlabel()
    # A probability on the border of two bins.
    ties = np.repeat([0.25, 0.5, 0.75, 1.0, 0.0], 5)
    display = ReliabilityDisplay.from_predictions(np.arange(25) % 2, ties, n_bins=4, strategy=strategy)
    observed, predicted = calibration.calibration_curve(np.arange(25) % 2, ties, n_bins=4, strategy=strategy)
    assert np.allclose(display.line_.get_data(), [predicted, observed])
    drawn(display)


def test_reliability_of_several_classes():
    p = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.75, 0.15], [0.3, 0.3, 0.4]])
    display = ReliabilityDisplay.from_predictions([1, 2, 2, 5], p, n_bins=2)
    assert np.allclose(display.line_.get_data(), [[0.4, (0.7 + 0.6 + 0.75) / 3], [1, 2 / 3]])
    assert display.error == pytest.approx((0.6 + 3 * abs((0.7 + 0.6 + 0.75) / 3 - 2 / 3)) / 4)
    one = ReliabilityDisplay.from_predictions([1, 2, 2, 5], p, n_bins=2, pos_label=5)
    assert np.allclose(one.line_.get_data(), [[p[:, 2].mean()], [0.25]])
    low, high = plotting.wilson(np.array([0.0, 0.5, 1.0]), np.array([10, 10, 10]))
    # Wilson's intervals of 0, 5 and 10 out of 10.
    assert np.allclose([low[0], *low[1:]], [0, 0.2366, 0.7225], atol=1e-4)
    assert np.allclose(high, [0.2775, 0.7634, 1], atol=1e-4)


def test_reliability_of_an_estimator():
    class Fixed:
        classes_ = np.array([0, 1])

        def predict_proba(self, X):
            return np.column_stack((1 - X[:, 0], X[:, 0]))

    X, y = np.array([[0.1], [0.2], [0.9], [0.8]]), np.array([0, 0, 1, 0])
    display = ReliabilityDisplay.from_estimator(Fixed(), X, y, n_bins=2)
    assert np.allclose(display.line_.get_data(), [[0.15, 0.85], [0, 0.5]])
    for call, message in [
        (lambda: ReliabilityDisplay.from_estimator(object(), X, y), "object has no predict_proba"),
        (lambda: ReliabilityDisplay.from_predictions(y, X[:, 0] * 2), "y_prob: 1.8 is not a probability"),
        (lambda: ReliabilityDisplay.from_predictions(y, X[:, 0], classes=[1, 2]), "label 0 is not among the classes"),
        (lambda: ReliabilityDisplay.from_predictions(y, X[:3, 0]), r"y_prob has shape \(3,\) for 4 labels"),
        (lambda: ReliabilityDisplay.from_predictions(y, X[:, 0], n_bins=0), "n_bins = 0 is not allowed"),
        (lambda: ReliabilityDisplay.from_predictions(y, X[:, 0], strategy="x"), "strategy = 'x' is not allowed"),
        (lambda: ReliabilityDisplay.from_predictions(y, X[:, 0], pos_label=7), "pos_label = 7 is not among"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


# ---- margin-plot


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plot")
    X, y = data(3)
    ml.dump_libsvm(X, y, folder / "d")
    ml.dump_libsvm(X, np.array(["ham", "spam", "egg"])[y // 3], folder / "words")
    (folder / "strange").write_text("2 1:1\n9 2:1\n")
    (folder / "alone").write_text("9 1:1\n")
    (folder / "bad").write_text("2 1:1\n5 1:x\n")
    (folder / "t.csv").write_text("C,score\n1,0.5\n2,0.75\n")
    (folder / "tbad.csv").write_text("C,score\n1\n")
    (folder / "tnone.csv").write_text("C,points\n1,2\n")
    before = os.getcwd()
    os.chdir(folder)
    for name, *words in (("m", "--log", "run.jsonl", "d"), ("k", "-t", "2", "-s", "cs", "d"),
                         ("o", "-s", "ldm", "--multiclass", "ovo", "--log", "o.jsonl", "d"),
                         ("mt", "--text-labels", "words")):
        assert train.main(["-q", *words, name]) == 0
    assert train.main(["-q", "--probability", "--log", "folds.jsonl", "d", "p"]) == 0
    yield folder
    os.chdir(before)


HINT = r"\nTry 'margin-plot --help'\.\n"
SIGNATURE = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
UNKNOWN = r"WARNING: 1 rows have a label that the model does not know \(9\): they are left out\n"
GOLDEN = [
    ("margins -o a.png d m k", 0, "", ""),
    ("margins -o a.svg --labels one,two --title Margins d m k", 0, "", ""),
    ("--raw --output=a.svg margins d o", 0, "", ""),
    ("margins -o a.svg words mt", 0, "", ""),
    ("histogram -o a.svg --bins 12 --threads 2 d m", 0, "", ""),
    ("histogram --raw -q -o a.png --dpi 60 d m k", 0, "", ""),
    ("convergence -o a.svg run.jsonl folds.jsonl", 0, "", ""),
    ("convergence -o a.png --x sweeps --log-x run.jsonl", 0, "", ""),
    ("search -o a.svg t.csv", 0, "", ""),
    ("search -o a.pdf t.csv", 0, "", ""),
    ("convergence -o A.PNG --dpi 60 run.jsonl o.jsonl", 0, "", ""),
    ("search -o a.svg --param C --score score t.csv", 0, "", ""),
    ("--help", 0, "usage: margin-plot (.|\n)*", ""),
    ("--version", 0, r"margin-plot \S+\n", ""),
    ("margins -o a.png nothere m", 1, "", r"margin-plot: can't open input file nothere: No such .*\n"),
    ("margins -o a.png d nothere", 1, "", r"margin-plot: can't open model file nothere: No such .*\n"),
    ("margins -o no/a.png d m", 1, "", r"margin-plot: can't open output file no/a.png: no such directory\n"),
    ("margins -o a.png bad m", 1, "", r"margin-plot: bad:2:\d: .*\n"),
    ("margins -o a.png d o", 1, "", r"margin-plot: o: its margins have no norm to be divided by: give --raw\n"),
    ("margins --raw -o a.png d m o", 1, "", r"margin-plot: o: the margins of some models are votes, .*\n"),
    ("margins -o a.png d m mt", 1, "", r"margin-plot: m, mt: some have words as labels, some numbers\n"),
    ("margins -o a.svg strange m", 0, "", UNKNOWN),
    ("margins -o a.png alone m", 1, "", UNKNOWN + "margin-plot: m: alone has no row with a label that .*\n"),
    ("convergence -o a.png nothere", 1, "", r"margin-plot: can't open log file nothere: No such .*\n"),
    ("convergence -o a.png d", 1, "", r"margin-plot: d:1:\d: not JSON: .*\n"),
    ("search -o a.png nothere", 1, "", r"margin-plot: can't open table file nothere: No such .*\n"),
    ("search -o a.png tbad.csv", 1, "", r"margin-plot: tbad.csv:2:1: 2 cells are needed, .*\n"),
    ("search -o a.png tnone.csv", 1, "", r"margin-plot: tnone.csv: the table has no column of scores: .*\n"),
    ("search -o a.png --param mu t.csv", 1, "", r"margin-plot: t.csv: the table has no column 'mu': it has C, score\n"),
    ("", 2, "", r"margin-plot: the kind of picture is missing: give margins \| .*" + HINT),
    ("d m", 2, "", r"margin-plot: d is no kind of picture: give margins \| histogram \| .*" + HINT),
    ("margin d m", 2, "", r"margin-plot: margin is no kind of picture \(did you mean margins\?\): give .*" + HINT),
    ("margins -o a.png m d", 2, "", "margin-plot: m is a model, and d is none: give them the other way round" + HINT),
    ("margins d m", 2, "", "margin-plot: -o: the name of the picture is missing" + HINT),
    ("margins -o a.eps d m", 2, "", r"margin-plot: -o a.eps: .eps is not known: give a name that ends .*" + HINT),
    ("margins -o a d m", 2, "", "margin-plot: -o a: without an ending the format is not known: .*" + HINT),
    ("margins -o - d m", 2, "", "margin-plot: -o -: a picture does not go to standard output: .*" + HINT),
    ("margins -o a.png d", 2, "", r"margin-plot: margins: give data_file model_file \.\.\." + HINT),
    ("margins -o a.png - -", 2, "", "margin-plot: only a data_file can be standard input" + HINT),
    ("convergence -o a.png -", 2, "", "margin-plot: only a data_file can be standard input" + HINT),
    ("search -o a.png t.csv d", 2, "", "margin-plot: too many files: t.csv d" + HINT),
    ("margins -o a.png --labels a d m k", 2, "", "margin-plot: --labels a: 1 names for 2 files" + HINT),
    ("margins -o a.png --bins 3 d m", 2, "", "margin-plot: --bins is not an option of margins, but of histogram, .*"
     + HINT),
    ("histogram -o a.png --bins 0 d m", 2, "", "margin-plot: --bins 0: .*" + HINT),
    ("convergence --x days -o a.png run.jsonl", 2, "", r"margin-plot: --x days: .* give time \| sweeps" + HINT),
    ("margins -o a.png --dpi 5000 d m", 2, "", "margin-plot: --dpi 5000: .*" + HINT),
]


@pytest.mark.parametrize("line, status, out, err", GOLDEN, ids=[case[0] for case in GOLDEN])
def test_golden(files, capfd, line, status, out, err):
    capfd.readouterr()
    before = set(os.listdir())
    assert plot.main(line.split()) == status
    shown = capfd.readouterr()
    assert re.fullmatch(out, shown.out), shown.out
    assert re.fullmatch(err, shown.err), shown.err
    made = set(os.listdir()) - before
    assert len(made) == (status == 0 and "-o" in line)
    for name in made:
        assert Path(name).read_bytes().startswith(SIGNATURE[name[-3:].lower()])
        Path(name).unlink()


@pytest.mark.parametrize("ending", SIGNATURE)
def test_the_same_command_makes_the_same_bytes(files, ending):
    line = ["histogram", "-o", f"same.{ending}", "--dpi", "50", "d", "m"]
    assert plot.main(line) == 0
    picture = Path(f"same.{ending}").read_bytes()
    # A date has seconds.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1000000000")
        assert plot.main(line) == 0
    assert Path(f"same.{ending}").read_bytes() == picture
    assert matplotlib.__version__.encode() not in picture


def test_reliability_of_models(files, monkeypatch, capfd):
    line = ["reliability", "-o", "r.svg", "--bins", "3", "d", "m"]
    capfd.readouterr()
    assert plot.main(line) == 1
    assert capfd.readouterr().err == ("margin-plot: m: the model has no probabilities: train it with margin-train "
                                      "--probability\n")

    def predict_proba(self, X):
        scores = np.exp(self.decision_function(X))
        return scores / scores.sum(axis=1, keepdims=True)

    load = ml.load_model

    def calibrated(path):
        model = load(path)
        model.calibration = True
        return model

    monkeypatch.setattr("marginlinear.modelfile.load_model", calibrated)
    monkeypatch.setattr(ml.Model, "predict_proba", predict_proba, raising=False)
    assert plot.main(line) == 0
    picture = Path("r.svg").read_bytes()
    assert plot.main(line) == 0
    assert Path("r.svg").read_bytes() == picture


def test_a_failure_leaves_the_old_picture(files, monkeypatch):
    Path("old.svg").write_text("old")
    before = set(os.listdir())
    assert plot.main(["search", "-o", "old.svg", "tnone.csv"]) == 1

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert plot.main(["search", "-o", "old.svg", "t.csv"]) == 1
    assert (Path("old.svg").read_text(), set(os.listdir())) == ("old", before)
    Path("old.svg").unlink()


def test_what_the_user_has_set_changes_no_picture(files, monkeypatch):
    arguments = ["margins", "-o", "a.svg", "d", "m"]
    assert plot.main(arguments) == 0
    picture = Path("a.svg").read_bytes()
    Path("matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 30\nbackend: svg\n")
    with matplotlib.rc_context({"font.size": 30}):
        assert plot.main(arguments) == 0
        assert matplotlib.rcParams["font.size"] == 30
    assert Path("a.svg").read_bytes() == picture
    environment = {**os.environ, "PYTHONPATH": ROOT, "MPLBACKEND": "tkagg"}
    subprocess.run([sys.executable, "-m", "marginlinear.cli.plot", *arguments], check=True, env=environment)
    assert Path("a.svg").read_bytes() == picture
    Path("matplotlibrc").unlink()


def test_imports(files):
    code = ("import sys\nfrom marginlinear.cli import plot\nassert plot.main(['--help']) == 0\n"
            "assert plot.main(['margins', '-o', 'a.eps']) == 2\nassert 'numpy' not in sys.modules\n"
            "import marginlinear.plotting\nassert 'matplotlib' not in sys.modules and 'scipy' not in sys.modules\n"
            "sys.modules['matplotlib'] = None\n"
            "assert plot.main('margins -o a.png d m'.split()) == 1")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": ROOT})
    assert done.stderr.endswith("margin-plot: matplotlib is needed: pip install '.[plot]' in marginlinear's clone or, "
                                "once it is published, pip install 'marginlinear[plot]'\n")
    code = ("import sys\nfrom marginlinear.cli import plot\nassert plot.main('margins -o a.png d m'.split()) == 0\n"
            "assert 'scipy' not in sys.modules and 'matplotlib.pyplot' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": ROOT})
