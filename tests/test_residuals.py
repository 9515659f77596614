"""residual_report against NumPy, margin-inspect and margin-plot of regressions."""

import json

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear.cli import inspect, plot, train


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(120, 6)).round(3)
    z = (X @ rng.normal(size=6) + 0.3 * rng.standard_t(2, 120) + 2).round(3)
    return ml.train(X, z, solver="l1svr", bias=1, epsilon=0.1), X, z


@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_are_numpys(fitted, weighted):
    model, X, z = fitted
    weights = np.arange(120) % 3 if weighted else np.ones(120)
    report = ml.residual_report(model, sparse.csr_array(X), z, sample_weight=weights, n_largest=4, n_top=2)
    kept = np.flatnonzero(weights)
    r, w = (z - model.predict(X))[kept], weights[kept]
    assert report.n_rows == len(kept)
    assert report.mse == pytest.approx(np.average(r**2, weights=w))
    assert report.mae == pytest.approx(np.average(abs(r), weights=w))
    center = np.average(z[kept], weights=w)
    assert report.r2 == pytest.approx(1 - report.mse / np.average((z[kept] - center) ** 2, weights=w))
    each = np.sort(np.repeat(r, w.astype(int)))
    assert report.residual.mean == pytest.approx(each.mean())
    assert report.residual.variance == pytest.approx(each.var())
    assert report.residual.quantiles[0.5] == pytest.approx(each[int(np.ceil(0.5 * len(each))) - 1])
    assert (report.residual.minimum, report.residual.maximum) == pytest.approx((r.min(), r.max()))
    assert report.absolute.maximum == pytest.approx(abs(r).max())
    order = kept[np.argsort(-abs(r), kind="stable")][:4]
    assert [row.row for row in report.largest_rows] == order.tolist()
    assert [row.target for row in report.largest_rows] == z[order].tolist()
    assert [row.predicted for row in report.largest_rows] == pytest.approx(model.predict(X)[order])
    assert [feature.number for feature in report.largest] == [
        at for at in np.argsort(-model.coef[0]) if model.coef[0, at] > 0][:2]
    assert report.intercept == model.intercept[0]


def test_targets_that_do_not_vary_have_no_r2(fitted):
    report = ml.residual_report(fitted[0], fitted[1], np.ones(120))
    assert np.isnan(report.r2)
    assert report.to_dict()["r2"] is None


def test_over_a_kernel_and_a_store(fitted, tmp_path):
    _, X, z = fitted
    model = ml.train(X, z, solver="nusvr", kernel="rbf", gamma=0.1)
    report = ml.residual_report(model, X, z)
    assert report.largest == report.smallest == []
    assert report.mse == pytest.approx(np.mean((z - model.predict(X)) ** 2))
    ml.dump_libsvm(X, z, tmp_path / "d")
    rows, z = ml.load_libsvm(tmp_path / "d")
    linear = ml.train(rows, z, solver="l1svr")
    assert train.main(["-s", "l1svr", "-q", "--store", str(tmp_path), str(tmp_path / "d"), str(tmp_path / "m")]) == 0
    assert ml.residual_report(linear, ml.Store(tmp_path / "d.store"), z) == ml.residual_report(linear, rows, z)


def test_what_is_refused(fitted):
    model, X, z = fitted
    with pytest.raises(TypeError, match="give a RegressionModel"):
        ml.residual_report(ml.train(X, z > 0, solver="l2svc"), X, z)
    with pytest.raises(TypeError, match="residual_report tells"):
        ml.margin_report(model, X, z)
    with pytest.raises(ValueError, match="n_largest = -1 is not allowed"):
        ml.residual_report(model, X, z, n_largest=-1)
    with pytest.raises(ValueError, match="feature_names has 1 names, the model 6 features"):
        ml.residual_report(model, X, z, feature_names=["a"])


@pytest.fixture
def files(fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(*fitted[1:], "d")
    assert train.main(["-q", "-s", "l1svr", "-B", "1", "d", "m"]) == 0
    return ml.residual_report(ml.load_model("m"), *ml.load_libsvm("d"))


def test_inspect_tells_the_same(files, capsys):
    report = files
    assert inspect.main(["--json", "m", "d"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["scores"]["mse"] == report.mse
    quantile = told["residuals"]["residual"]["quantiles"][4]
    assert quantile == {"level": 0.5, "value": report.residual.quantiles[0.5]}
    assert told["residuals"]["largest_rows"][0]["row"] == report.largest_rows[0].row + 1
    assert told["features"][0]["largest"][0]["number"] == report.largest[0].number + 1
    assert inspect.main(["--rows", "1", "m", "d"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("m: l1svr, linear, regression, 6 features\nd: 120 rows\n\n"
                          f"Mean squared error = {report.mse:g}\nMean absolute error = {report.mae:g}\n")
    row = report.largest_rows[0]
    assert out.splitlines()[-1].split() == [str(row.row + 1), *(f"{value:.6g}" for value in row[1:])]


def test_pictures(files, fitted, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    from marginlinear.plotting import ResidualDistributionDisplay

    assert plot.main(["margins", "-q", "-o", "a.svg", "d", "m"]) == 0
    assert plot.main(["histogram", "-q", "-o", "b.svg", "d", "m", "m"]) == 0
    assert "residual (target less prediction)" in (tmp_path / "a.svg").read_text("utf-8").replace("<!-- ", "")
    ml.save_model(ml.train([[1.0], [-1.0]], [1, 2]), "c")
    assert plot.main(["margins", "-q", "-o", "a.svg", "d", "m", "c"]) == 1
    assert "m, c: some are regressions, some have classes: draw them apart" in capsys.readouterr().err
    model, X, z = fitted
    display = ResidualDistributionDisplay.from_estimator(model, X, z, kind="histogram", bins=7)
    assert np.allclose(display.residuals, z - model.predict(X))
    assert display.mean == pytest.approx(display.residuals.mean())
