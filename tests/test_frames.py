"""Data frames of pandas, polars and pyarrow, none of which the package imports."""

import io
import subprocess
import sys

import numpy as np
import pytest

import marginlinear as ml
from marginlinear.data.arrays import held

NAMES = ["b", "a", "tocsr", "windows", "indptr", "n_features", "verified", "shape"]


def rows(m=60):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, len(NAMES)))
    return X, (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)


def pandas_(columns):
    return pytest.importorskip("pandas", reason="pandas is missing: pip install pandas").DataFrame(columns)


def nullable(columns):
    return pandas_(columns).convert_dtypes()


def polars_(columns):
    return pytest.importorskip("polars", reason="polars is missing: pip install polars").DataFrame(columns)


def table(columns):
    return pytest.importorskip("pyarrow", reason="pyarrow is missing: pip install pyarrow").table(columns)


def batch(columns):
    return pytest.importorskip("pyarrow", reason="pyarrow is missing: pip install pyarrow").record_batch(columns)


each = pytest.mark.parametrize("frame_of", [pandas_, nullable, polars_, table, batch])


def column(frame, name):
    return frame.column(name) if hasattr(frame, "schema") and not hasattr(frame, "get_columns") else frame[name]


def columns_of(X):
    return dict(zip(NAMES, X.T, strict=True))


def test_the_package_imports_none_of_them():
    code = ("import sys, marginlinear as ml, numpy as np; X = np.eye(4); ml.train(X, [0, 1, 0, 1]).predict(X); "
            "print(sorted({'pandas', 'polars', 'pyarrow'} & {*sys.modules}))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@each
def test_the_same_as_arrays(frame_of):
    X, y = rows()
    frame = frame_of(columns_of(X))
    words = np.array(["no", "yes"])[y]
    for labels in (y, words):
        told = column(frame_of({"y": labels.tolist()}), "y")
        model = ml.train(frame, told)
        assert model.weights.tobytes() == ml.train(X, labels).weights.tobytes()
        assert np.array_equal(model.predict(frame), model.predict(X))
        assert np.array_equal(model.decide(frame), model.decide(X))
        assert np.array_equal(model.margins(frame, told), model.margins(X, labels))
        assert ml.cross_validate(frame, told, folds=3).score == ml.cross_validate(X, labels, folds=3).score
        found = ml.search(frame, told, grid="C=0.1,1", folds=3)
        assert found.model.weights.tobytes() == ml.search(X, labels, grid="C=0.1,1", folds=3).model.weights.tobytes()
    weights = column(frame_of({"w": (1.0 + y).tolist()}), "w")
    for given in ({"solver": "l2svr"}, {"kernel": "rbf", "solver": "l1svc"}, {"scale": "range"}):
        model = ml.train(frame, y, sample_weight=weights, **given)
        alone = ml.train(X, y, sample_weight=1.0 + y, **given)
        assert model.decision_function(frame).tobytes() == alone.decision_function(X).tobytes()
    assert ml.train(frame, solver="oneclass").weights.tobytes() == ml.train(X, solver="oneclass").weights.tobytes()
    files = [io.BytesIO(), io.BytesIO()]
    for data, file in zip((frame, X), files, strict=True):
        ml.dump_libsvm(data, y, file)
    assert files[0].getvalue() == files[1].getvalue()


@each
def test_numbers_of_several_types(frame_of):
    """Bools among numbers are objects in pandas."""
    X, y = rows()
    columns = {"i": np.arange(60), "f": X[:, 0], "b": y.astype(bool), "s": X[:, 1].astype(np.float32),
               "u": (y + 1).astype(np.uint8)}
    expected = np.column_stack([values.astype(np.float64) for values in columns.values()])
    found = held(frame_of(columns))
    assert found.dtype == np.float64 and np.array_equal(found, expected)
    singles = frame_of({"s": columns["s"], "t": columns["s"]})
    if frame_of is not nullable:
        assert held(singles).dtype == np.float32
    assert ml.train(singles, y).n_features == 2


@each
@pytest.mark.parametrize("dates", [False, True])
def test_other_columns_are_named(frame_of, dates):
    X, y = rows()
    other = np.datetime64("2026-01-01") + np.arange(60) if dates else ["word"] * 60
    with pytest.raises(ValueError, match=r"^X: column 'when' holds .*: numbers are needed"):
        ml.train(frame_of({"f": X[:, 0], "when": other}), y)


@each
def test_what_is_missing_is_refused(frame_of):
    _, y = rows()
    frame = frame_of({"a": [1.0] * 60, "b{x}": [1.0, 2.0, 3.0, None] + [2.0] * 56})
    for call in (lambda: ml.train(frame, y), lambda: ml.search(frame, y, grid="C=1"), lambda: ml.check(frame, y),
                 lambda: ml.train(np.ones((60, 2)), y).predict(frame)):
        with pytest.raises(ValueError, match=r"row 3, column 'b\{x\}' is nan: values must be finite: fill in"):
            call()
    # But in a row that is not there.
    ml.train(frame, y, sample_weight=np.arange(60) != 3)
    with pytest.raises(ValueError, match=r"row 3, column 'b\{x\}' is nan"):
        ml.train(frame, y, sample_weight=np.arange(60) != 1)
    assert held(frame_of({"a": [1e308, 1e308], "b": [1e308, 1e308]})).max() == 1e308


def test_names_that_stand_twice_are_none(tmp_path):
    """A model file could not be read with them."""
    pd = pytest.importorskip("pandas", reason="pandas is missing: pip install pandas")
    X, y = rows()
    frame = pd.DataFrame(X[:, :2], columns=["a", "a"])
    model = ml.train(frame, y)
    ml.save_model(model, tmp_path / "m")
    assert model.feature_names is None
    assert np.array_equal(ml.load_model(tmp_path / "m").predict(frame), model.predict(frame))


def test_objects_of_pandas_are_named():
    pd = pytest.importorskip("pandas", reason="pandas is missing: pip install pandas")
    for frame in (pd.DataFrame({"a": [1, "x"], "b": [1, 2]}, dtype=object), pd.DataFrame({"a": ["u", "v"]})):
        with pytest.raises(ValueError, match=r"^X: column 'a' holds (object|str): numbers are needed: convert it"):
            ml.train(frame, [0, 1])


def test_columns_of_one_type_of_pandas_are_not_copied():
    X, _ = rows()
    frame = pytest.importorskip("pandas", reason="pandas is missing: pip install pandas").DataFrame(X, copy=False)
    assert np.shares_memory(held(frame), X)


@each
def test_estimators_know_the_names(frame_of):
    pytest.importorskip("sklearn", reason="scikit-learn is missing: pip install 'marginlinear[sklearn]'")
    from marginlinear import sklearn as ours

    X, y = rows()
    columns = columns_of(X)
    frame = frame_of(columns)
    for estimator in (ours.SVMClassifier(), ours.OneClassDetector(), ours.SVMRegressor(),
                      ours.LinearMarginCV("l2svc", grid="C=1", cv=3)):
        alone = type(estimator)(**estimator.get_params(deep=False)).fit(X, y)
        estimator.fit(frame, column(frame_of({"y": y}), "y"))
        if frame_of is not batch:
            assert estimator.feature_names_in_.tolist() == NAMES
            # The best estimator of a path was given arrays.
            kept = None if hasattr(estimator, "best_estimator_") else NAMES
            assert estimator.model_.feature_names == kept
            with pytest.raises(ValueError, match="feature names"):
                estimator.predict(frame_of({"other": X[:, 0], **dict(list(columns.items())[1:])}))
        assert np.array_equal(estimator.predict(frame), alone.predict(X))
