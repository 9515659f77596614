"""Exported models run where they were exported to, and say there what they say here."""

import ctypes
import re
import shutil
import sqlite3
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import registry
from marginlinear.calibration import Calibration
from marginlinear.cli import export
from marginlinear.model import KernelModel, Model

CLOSE = {"rtol": 1e-6, "atol": 1e-6}


def data(k, m=80, n=5, seed=0):
    """Rows of k classes, dense and with zeros, of features far from a common range; labels and targets."""
    rng = np.random.default_rng(seed)
    y = np.arange(m) % k
    X = rng.standard_normal((m, n))
    X[np.arange(m), y % n] += 1.5
    X[rng.random((m, n)) < 0.4] = 0
    X[:, 1] = 3 + 10 * X[:, 1]
    X[0] = 0
    return X.round(3), y


LABELS = {"int": lambda y: 3 * y - 2, "float": lambda y: y / 4 - 0.5, "bool": lambda y: y > 0,
          "str": lambda y: np.array(["a'b", 'größer"\\', "c??/", "d", "e"])[y]}

# Name -> (classes or 0 for targets, kind of the labels, keywords of train).
LINEAR = {
    "two classes, one column": (2, "int", {"solver": "l2svc", "bias": 1}),
    "bools": (2, "bool", {"solver": "odm"}),
    "two classes, two columns": (2, "str", {"solver": "mcodm", "bias": 1}),
    "joint": (3, "str", {"solver": "mcodm", "bias": 1}),
    "one against the rest": (3, "float", {"solver": "l1svc", "multiclass": "ovr"}),
    "one against one": (4, "int", {"solver": "l1svc", "multiclass": "ovo", "bias": 1}),
    "codes": (5, "str", {"solver": "l2svc", "multiclass": "ecoc"}),
    "sparse weights": (3, "int", {"solver": "l1l2svc", "C": 0.05, "bias": 1}),
    "a range": (3, "int", {"solver": "cs", "scale": "range", "bias": 1}),
    "unit rows": (3, "int", {"solver": "cs", "scale": "unit", "bias": 1}),
    "unit rows, one column": (2, "str", {"solver": "l2svc", "scale": "unit"}),
    "regression": (0, None, {"solver": "l2svr", "bias": 1}),
    "regression of unit rows": (0, None, {"solver": "l1svr", "scale": "unit"}),
    "one class": (1, None, {"solver": "oneclass"}),
    "a linear kernel": (3, "int", {"solver": "cs", "kernel": "linear", "bias": 1}),
    "a linear kernel of a range": (3, "int", {"solver": "cs", "kernel": "linear", "scale": "range", "bias": 1}),
    "a linear kernel of unit rows": (2, "int", {"solver": "l1svc", "kernel": "linear", "scale": "unit"}),
}
KERNEL = {
    "rbf": (2, "str", {"solver": "l1svc", "kernel": "rbf", "gamma": 0.3, "free_bias": True}),
    "rbf, joint": (3, "int", {"solver": "mcodm", "kernel": "rbf", "bias": 1}),
    "poly": (3, "float", {"solver": "cs", "kernel": "poly", "degree": 3, "coef0": 1, "gamma": 0.1, "scale": "maxabs"}),
    "sigmoid": (2, "bool", {"solver": "l2svc", "kernel": "sigmoid", "gamma": 0.1, "scale": "maxabs"}),
    "kernel, one against one": (4, "int", {"solver": "l1svc", "kernel": "rbf", "multiclass": "ovo"}),
    "kernel, codes": (5, "int", {"solver": "l2svc", "kernel": "rbf", "multiclass": "ecoc"}),
    "kernel of a range": (3, "int", {"solver": "cs", "kernel": "rbf", "scale": "range"}),
    "kernel of unit rows": (3, "int", {"solver": "cs", "kernel": "rbf", "scale": "unit"}),
    "kernel regression": (0, None, {"solver": "l1svr", "kernel": "rbf", "C": 10}),
    "nu regression": (0, None, {"solver": "nusvr", "kernel": "poly", "gamma": 0.1}),
    "kernel, one class": (1, None, {"solver": "oneclass", "kernel": "rbf"}),
}


@cache
def fitted(case):
    k, kind, options = {**LINEAR, **KERNEL}[case]
    X, y = data(max(k, 2))
    rng = np.random.default_rng(1)
    if k == 0:
        y = X @ rng.standard_normal(X.shape[1]) + 0.1 * rng.standard_normal(len(X))
    elif k == 1:
        y = None
    else:
        y = LABELS[kind](y)
    return ml.train(X, y, **options)


def trained(case):
    """(model, other rows)."""
    k = {**LINEAR, **KERNEL}[case][0]
    return fitted(case), data(max(k, 2), seed=2)[0]


# ---- ONNX


def session(model, **options):
    """A function from rows to the outputs of the exported model."""
    onnx = pytest.importorskip("onnx", reason="pip install 'marginlinear[onnx]'")
    runtime = pytest.importorskip("onnxruntime", reason="pip install 'marginlinear[onnx]'")
    made = ml.to_onnx(model, **options)
    onnx.checker.check_model(made, full_check=True)
    ran = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in ran.get_outputs()]
    return lambda X: dict(zip(names, ran.run(None, {"X": X}), strict=True))


def agrees(model, X, found):
    """Whether outputs are those of the model."""
    scores = model.decision_function(X)
    if model.classes is None:
        assert list(found) == ["prediction"]
        np.testing.assert_allclose(found["prediction"], scores, **CLOSE)
        return
    np.testing.assert_allclose(found["scores"], scores, **CLOSE)
    labels = model.predict(X)
    assert found["label"].tolist() == labels.tolist()
    assert found["label"].dtype.kind in ("O" if labels.dtype.kind == "U" else labels.dtype.kind)
    if "probabilities" in found:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), **CLOSE)
        assert (model.classes[found["probabilities"].argmax(axis=1)] == labels).all()


@pytest.mark.parametrize("case", [*LINEAR, *KERNEL])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_onnx_says_the_same(case, dtype):
    model, X = trained(case)
    X = X.astype(dtype)
    agrees(model, X.astype(np.float64), session(model, dtype=dtype)(X))


@pytest.mark.parametrize("case", [*LINEAR, *KERNEL])
def test_onnx_says_the_same_by_the_book(case):
    model, X = trained(case)
    agrees(model, X, by_the_book(model, X, 13))
    agrees(model, X, by_the_book(model, X, 21))


def by_the_book(model, X, opset):
    """What onnx's own evaluator makes of the graph, as one of this opset."""
    onnx = pytest.importorskip("onnx", reason="pip install 'marginlinear[onnx]'")
    from onnx.reference import ReferenceEvaluator

    made = ml.to_onnx(model)
    made.opset_import[0].version = opset
    made.ir_version = onnx.helper.find_min_ir_version_for(made.opset_import)
    onnx.checker.check_model(made, full_check=True)
    names = [output.name for output in made.graph.output]
    return dict(zip(names, ReferenceEvaluator(made).run(None, {"X": X}), strict=True))


@pytest.mark.parametrize("kernel", [None, "rbf"])
@pytest.mark.parametrize("name", registry.methods())
@pytest.mark.filterwarnings("ignore::marginlinear.ConvergenceWarning")
def test_onnx_of_every_method(name, kernel):
    method = registry.get(name)
    if kernel and not method.kernels:
        pytest.skip("it takes no kernel")
    X, y = data(3)
    y = None if method.one_class else X @ np.arange(5) if method.regression else y
    model = ml.train(X, y, solver=name, **({"kernel": kernel} if kernel else {}))
    other = data(3, seed=6)[0]
    agrees(model, other, session(model)(other))


@pytest.mark.parametrize("solver, k, options", [
    ("mcodm", 2, {}), ("l2svc", 2, {}), ("cs", 4, {}), ("l1svc", 4, {"multiclass": "ovo"}), ("logistic", 2, {}),
    ("logistic", 4, {}), ("softmax", 4, {}), ("l2svc", 4, {"multiclass": "ecoc"}), ("cs", 3, {"kernel": "rbf"})])
def test_onnx_gives_probabilities(solver, k, options):
    X, y = data(k, m=120)
    model = ml.train(X, y, solver=solver, probability=True, **options)
    other = data(k, seed=3)[0]
    found = session(model)(other)
    assert set(found) == {"label", "scores", "probabilities"}
    agrees(model, other, found)
    agrees(model, other, by_the_book(model, other, 21))
    assert set(session(model, probability=False)(other)) == {"label", "scores"}


@pytest.mark.parametrize("found", [Calibration("sigmoid", 0.5, -2.0), Calibration("sigmoid", 0.0, 1.0),
                                   Calibration("pairwise", (2.0,), (3.0,)), Calibration("pairwise", (-0.7,), (0.2,))])
def test_onnx_decides_as_the_scores_do_where_the_offset_says_otherwise(found):
    model = Model([[1.0], [-2.0]], [4, 7], calibration=found)
    X = np.random.default_rng(0).standard_normal((200, 2)) * 3
    outputs = session(model)(X)
    agrees(model, X, outputs)
    contrary = (model.decision_function(X) > 0) != (found.slope * model.decision_function(X)[:, None] + found.offset
                                                    > 0)[:, 0]
    assert contrary.any() and np.abs(outputs["probabilities"][contrary] - 0.5).max() < 1e-15


def test_onnx_takes_equal_scores_as_they_are_taken_here():
    X = np.zeros((3, 2))
    for model in (Model(np.eye(2, 3), [5, 6, 7], calibration=Calibration("temperature", 2.0)),
                  Model([[1.0], [1.0]], ["no", "yes"], calibration=Calibration("sigmoid", 1.0, 0.0)),
                  Model(np.eye(2, 3), [1, 2, 3], codes="ovo", calibration=Calibration("temperature", 0.0))):
        agrees(model, X, session(model)(X))


def test_onnx_of_a_precomputed_kernel_takes_its_values():
    X, y = data(3)
    other = data(3, seed=5)[0]
    model = ml.train(X @ X.T + 1, y, solver="cs", kernel="precomputed")
    agrees(model, other @ X.T + 1, session(model)(other @ X.T + 1))


def test_onnx_of_sparse_rows_and_of_a_file_is_dense(tmp_path):
    X, y = data(3)
    for options in ({}, {"kernel": "rbf"}):
        model = ml.train(sparse.csr_array(X), y, solver="cs", **options)
        agrees(model, X, session(model)(X))
        ml.save_model(model, tmp_path / "model")
        agrees(model, X, session(ml.load_model(tmp_path / "model"))(X))


def test_onnx_of_large_values_is_finite():
    X, y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 3
    model = ml.train(X, y, solver="cs", scale="unit", kernel="rbf")
    agrees(model, 1e200 * X, session(model)(1e200 * X))


def test_one_class_alone_is_always_predicted(compiled):
    model, X = Model(np.array([[1.0], [-1.0]]), ["only"]), np.eye(2)
    agrees(model, X, session(model)(X))
    assert compiled(model)(X, True)[1] == ["only", "only"]
    database = sqlite3.connect(":memory:")
    wide_table(X, ["f1", "f2"], database.execute)
    agrees_with(model, X, asked(database, ml.to_sql(model, "the rows"), "id"))


def test_onnx_of_no_rows():
    model, X = trained("joint")
    assert {name: len(values) for name, values in session(model)(X[:0]).items()} == {"label": 0, "scores": 0}


def test_onnx_refuses_by_name():
    pytest.importorskip("onnx", reason="pip install 'marginlinear[onnx]'")
    X, y = data(3)
    model = ml.train(X, y, solver="cs", kernel=lambda a, b: a @ b.T)
    with pytest.raises(ValueError, match="to_onnx: kernel is a Python function"):
        ml.to_onnx(model)
    pairs = Model(np.eye(5, 3), [1, 2, 3], codes="ovo", calibration=Calibration("pairwise", (1.0,) * 3, (0.0,) * 3))
    with pytest.raises(ValueError, match=r"3 pairs of classes.*give probability=False"):
        ml.to_onnx(pairs)
    assert set(session(pairs, probability=False)(X)) == {"label", "scores"}
    with pytest.raises(ValueError, match=r"dtype = 'int8' is not allowed: give float64 \| float32"):
        ml.to_onnx(pairs, dtype="int8")
    with pytest.raises(TypeError, match="model = 3 is not allowed: give a Model"):
        ml.to_onnx(3)
    wide = ml.train(sparse.csr_array((np.ones(4), ([0, 1, 2, 3], [0, 3, 5, 1 << 28]))), [0, 1, 0, 1], solver="l1svc",
                    kernel="rbf")
    with pytest.raises(ValueError, match=r"needs [\d,]+ bytes of dense arrays, an ONNX file holds less than"):
        ml.to_onnx(wide)


def test_without_onnx_the_extra_is_named():
    code = ("import sys; sys.modules['onnx'] = None; import numpy as np, marginlinear as ml; "
            "ml.to_onnx(ml.Model(np.eye(2), [1, 2]))")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1 and "pip install 'marginlinear[onnx]'" in run.stderr
    # What no package would mend is told first.
    run = subprocess.run([sys.executable, "-c", code.replace("ml.Model(np.eye(2), [1, 2])", "3")], capture_output=True,
                         text=True)
    assert "model = 3 is not allowed" in run.stderr


# ---- plain C


@pytest.fixture
def compiled(tmp_path):
    """A function from a model to (decision_function, predict) of its compiled C, of dense rows or of pairs."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")

    def make(model, name="margin"):
        text = ml.to_c(model, name=name)
        (tmp_path / "model.c").write_text(text, "utf-8")
        place = tmp_path / f"{name}.so"
        subprocess.run([compiler, "-std=c99", "-O1", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror",
                        "-shared", "-fPIC", "model.c", "-o", place, "-lm"], cwd=tmp_path, check=True)
        library = ctypes.CDLL(place)
        kind = "f" if model.classes is None else model.classes.dtype.kind
        answer = {"b": ctypes.c_int, "i": ctypes.c_longlong, "f": ctypes.c_double, "U": ctypes.c_char_p}[kind]
        for function in (f"{name}_predict", f"{name}_predict_sparse"):
            getattr(library, function).restype = answer

        def arguments(row, dense):
            if dense:
                return [row.ctypes.data_as(ctypes.c_void_p)], row
            index, values = np.flatnonzero(row).astype(np.uintp)[::-1].copy(), row[row != 0][::-1].copy()
            return [ctypes.c_size_t(len(index)), index.ctypes.data_as(ctypes.c_void_p),
                    values.ctypes.data_as(ctypes.c_void_p)], (index, values)

        def run(X, dense):
            ending, scores, labels = "" if dense else "_sparse", np.empty((len(X), model.columns)), []
            for row, out in zip(np.ascontiguousarray(X, dtype=np.float64), scores, strict=True):
                given, _held = arguments(row, dense)
                getattr(library, f"{name}_decision_function{ending}")(*given, out.ctypes.data_as(ctypes.c_void_p))
                label = getattr(library, f"{name}_predict{ending}")(*given)
                labels.append(label.decode("utf-8") if kind == "U" else bool(label) if kind == "b" else label)
            return scores, labels

        return run

    return make


def rounding(model):
    """What scores may be off by: of a kernel's, the terms of the sum over the support vectors cancel."""
    return 1e-11 if isinstance(model, KernelModel) else 1e-12


@pytest.mark.parametrize("case", LINEAR)
def test_c_says_the_same(compiled, case):
    model, X = trained(case)
    run = compiled(model)
    expected = model.decision_function(X).reshape(len(X), -1)
    for dense in (True, False):
        scores, labels = run(X, dense)
        np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=rounding(model))
        if model.classes is None:
            assert labels == scores[:, 0].tolist()
        else:
            assert labels == model.predict(X).tolist()


def test_c_leaves_unknown_features_out_but_for_the_length(compiled):
    for case in ("joint", "unit rows"):
        model, X = trained(case)
        wide = np.hstack([X, np.ones((len(X), 2))])
        scores, _ = compiled(model, case.partition(" ")[0])(wide, False)
        np.testing.assert_allclose(scores, model.decide(wide), rtol=1e-12, atol=1e-12)


def test_c_numbers_read_back(compiled):
    rng = np.random.default_rng(0)
    values = np.concatenate([np.ldexp(rng.standard_normal(20), rng.integers(-1070, 1020, 20)), [5e-324, 1.7e308, 0.1]])
    model = Model(values[:, np.newaxis], [-1, 1])
    scores, _ = compiled(model)(np.eye(len(values)), True)
    assert (scores[:, 0] == values).all()


def test_c_has_the_extreme_labels(compiled):
    labels = [-1 << 63, 0, (1 << 63) - 1]
    assert compiled(Model(np.eye(3), labels))(np.eye(3), True)[1] == labels


def test_c_refuses_by_name():
    model, _ = trained("rbf")
    with pytest.raises(ValueError, match="to_c takes linear models, kernel is 'rbf'"):
        ml.to_c(model)
    for name in ("2x", "a-b", "", 3):
        with pytest.raises(ValueError, match=r"name = .* is not allowed: give letters"):
            ml.to_c(trained("joint")[0], name=name)


# ---- SQL


def wide_table(X, names, run):
    run(f"CREATE TABLE {TABLE} ({', '.join(f'{quoted(name)} DOUBLE PRECISION' for name in ['id', *names])})")
    for i, row in enumerate(X.tolist()):
        run(f"INSERT INTO {TABLE} VALUES ({i}, {', '.join(map(number, row))})")


def long_table(X, names, run):
    kind = "INTEGER" if isinstance(names[0], int) else "VARCHAR(9)"
    run(f"CREATE TABLE {TABLE} (doc INTEGER, term {kind}, tf DOUBLE PRECISION)")
    for i, row in enumerate(X.tolist()):
        for name, value in zip(names, row, strict=True):
            word = name if isinstance(name, int) else "'" + name.replace("'", "''") + "'"
            if value or name == names[0]:
                run(f"INSERT INTO {TABLE} VALUES ({i}, {word}, {number(value)})")


TABLE = '"the rows"'


def number(value):
    return "NULL" if np.isnan(value) else repr(value)


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def sqlite():
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("SELECT SQRT(4)")
    except sqlite3.OperationalError:
        connection.create_function("SQRT", 1, np.sqrt)
    return connection


def duckdb():
    return pytest.importorskip("duckdb", reason="pip install duckdb").connect(":memory:")


@pytest.fixture(params=[sqlite, duckdb], ids=["SQLite", "DuckDB"])
def database(request):
    found = request.param()
    yield found
    found.close()


def asked(database, statement, order):
    """The names and rows of a result, as a view and as it is."""
    cursor = database.execute(f"SELECT * FROM ({statement}) AS found ORDER BY {order}")
    names, rows = [column[0] for column in cursor.description], cursor.fetchall()
    database.execute(f"CREATE VIEW predicted AS {statement}")
    assert database.execute(f"SELECT * FROM predicted ORDER BY {order}").fetchall() == rows
    return [dict(zip(names, row, strict=True)) for row in rows]


def agrees_with(model, X, found, name="margin"):
    expected = model.decision_function(X).reshape(len(X), -1)
    columns = [f"{name}_score"] if model.columns == 1 else [f"{name}_score_{c + 1}" for c in range(model.columns)]
    np.testing.assert_allclose([[row[column] for column in columns] for row in found], expected, rtol=1e-12,
                               atol=rounding(model))
    if model.classes is None:
        assert f"{name}_label" not in found[0]
    else:
        assert [row[f"{name}_label"] for row in found] == model.predict(X).tolist()


@pytest.mark.parametrize("case", LINEAR)
def test_sql_of_a_column_a_feature(database, case):
    model, X = trained(case)
    wide_table(X, [f"f{j + 1}" for j in range(X.shape[1])], database.execute)
    found = asked(database, ml.to_sql(model, "the rows"), "id")
    assert [row["f2"] for row in found] == X[:, 1].tolist()
    agrees_with(model, X, found)


@pytest.mark.parametrize("case", LINEAR)
def test_sql_of_a_row_a_value(database, case):
    model, X = trained(case)
    long_table(X, list(range(1, X.shape[1] + 1)), database.execute)
    statement = ml.to_sql(model, "the rows", long=("doc", "term", "tf"), name="of it")
    agrees_with(model, X, asked(database, statement, "doc"), "of it")


def test_sql_takes_names(database):
    model, X = trained("joint")
    names = ['a "word"', "select", "x'y", "größe", "id2"]
    wide_table(X, names, database.execute)
    agrees_with(model, X, asked(database, ml.to_sql(model, "the rows", feature_names=names), "id"))


def test_sql_of_terms(database):
    model, X = trained("codes")
    names = ["one", "it's", "zwölf", "a b", "1"]
    long_table(X, names, database.execute)
    statement = ml.to_sql(model, "the rows", feature_names=names, long=("doc", "term", "tf"))
    agrees_with(model, X, asked(database, statement, "doc"))


@pytest.mark.parametrize("case", ["joint", "two classes, one column", "one against one", "unit rows", "regression"])
@pytest.mark.parametrize("long", [None, ("doc", "term", "tf")])
def test_sql_of_null_is_null(database, case, long):
    model, X = trained(case)
    X[3, 0] = np.nan
    (long_table if long else wide_table)(X, list(range(1, 6)) if long else [f"f{j + 1}" for j in range(5)],
                                         database.execute)
    found = asked(database, ml.to_sql(model, "the rows", long=long), "doc" if long else "id")
    assert {value for key, value in found[3].items() if key.startswith("margin_s")} == {None}
    assert found[3].get("margin_label") is None
    del found[3]
    agrees_with(model, np.delete(X, 3, axis=0), found)


def test_sql_of_a_column_that_is_not_there_is_an_error(database):
    """SQLite takes a quoted name that it does not know for a string, unless it is said whose it is."""
    model, X = trained("joint")
    wide_table(X, ["f1", "f2", "f3", "f4", "g5"], database.execute)
    with pytest.raises(Exception, match="f5"):
        database.execute(ml.to_sql(model, "the rows"))


def test_sql_of_many_features_and_classes(database):
    """More terms than a tree of operators may be deep, and integers, which sums of floats are made of."""
    rng = np.random.default_rng(0)
    model = Model(rng.standard_normal((1100, 3)), ["a", "b", "c"])
    X = rng.integers(-3, 4, (4, 1100)).astype(float)
    wide_table(X, [f"f{j + 1}" for j in range(1100)], database.execute)
    agrees_with(model, X, asked(database, ml.to_sql(model, "the rows"), "id"))
    database.execute("DROP VIEW predicted")
    database.execute(f"DROP TABLE {TABLE}")
    many = Model(rng.standard_normal((3, 150)), np.arange(150))
    wide_table(X[:, :3], ["f1", "f2", "f3"], database.execute)
    agrees_with(many, X[:, :3], asked(database, ml.to_sql(many, "the rows"), "id"))


def test_sql_of_no_weights(database):
    model = Model(np.zeros((2, 1)), ["a", "b"])
    long_table(np.ones((2, 2)), [1, 2], database.execute)
    found = asked(database, ml.to_sql(model, "the rows", long=("doc", "term", "tf")), "doc")
    agrees_with(model, np.ones((2, 2)), found)


def test_sql_refuses_by_name():
    model, _ = trained("joint")
    with pytest.raises(ValueError, match="to_sql takes linear models, kernel is 'rbf'"):
        ml.to_sql(trained("rbf")[0], "rows")
    with pytest.raises(ValueError, match="feature_names has 2 names: 5 are needed"):
        ml.to_sql(model, "rows", feature_names=["a", "b"])
    with pytest.raises(ValueError, match="long has 2 names: 3 are needed"):
        ml.to_sql(model, "rows", long=("a", "b"))
    for given in ({"table": 3}, {"table": "rows", "name": 3}, {"table": "rows", "long": (1, 2, 3)}):
        with pytest.raises(TypeError, match="is not allowed: give text"):
            ml.to_sql(model, **given)


# ---- LIBLINEAR's Python package


@pytest.fixture
def liblinear():
    return pytest.importorskip("liblinear.liblinearutil", reason="pip install liblinear-official")


@pytest.mark.parametrize("solver", [*range(8), 11, 12, 13, 21])
@pytest.mark.parametrize("bias", [-1, 1])
@pytest.mark.parametrize("k", [2, 3])
def test_from_liblinear(liblinear, solver, bias, k):
    X, y = data(k)
    if solver == 21 and bias >= 0:
        pytest.skip("a one-class machine has no bias")
    theirs = liblinear.train(3 * y - 2, X, f"-s {solver} -B {bias} -q")
    model = ml.from_liblinear(theirs)
    other = data(k, seed=4)[0]
    labels, _, values = liblinear.predict([], other, theirs, "-q")
    assert np.array_equal(model.predict(other), labels) if solver not in (11, 12, 13) else np.allclose(
        model.predict(other), labels, rtol=1e-12, atol=1e-12)
    # Of two classes theirs has a score of the first label, which is ours of classes[1].
    order = [0] if model.columns == 1 else [theirs.get_labels().index(label) for label in model.classes]
    scores = model.decision_function(other).reshape(len(other), -1)
    np.testing.assert_allclose(scores, np.asarray(values)[:, order], rtol=1e-12, atol=1e-12)
    if solver in (0, 6, 7):
        chances = np.asarray(liblinear.predict([], other, theirs, "-q -b 1")[2])
        order = [theirs.get_labels().index(label) for label in model.classes]
        np.testing.assert_allclose(model.predict_proba(other), chances[:, order], rtol=1e-9)


@pytest.mark.parametrize("case", ["two classes, one column", "sparse weights", "a range", "regression", "one class"])
def test_to_liblinear_and_back(liblinear, case):
    model, X = trained(case)
    made = ml.to_liblinear(model)
    labels = liblinear.predict([], X, made, "-q")[0]
    np.testing.assert_allclose(labels, model.predict(X), rtol=1e-12, atol=0 if model.classes is not None else 1e-12)
    back = ml.from_liblinear(made)
    assert np.array_equal(back.decision_function(X), model.decision_function(X))
    assert back.info is None


@pytest.mark.parametrize("case, fault", [("rbf", "kernels"), ("unit rows", "rows of unit length"),
                                         ("one against one", "columns that vote"), ("codes", "columns that vote"),
                                         ("joint", "labels other than 32-bit integers"),
                                         ("one against the rest", "labels other than 32-bit integers")])
def test_to_liblinear_refuses_by_name(case, fault):
    with pytest.raises(ValueError, match=f"LIBLINEAR has no models of {fault}: "):
        ml.to_liblinear(trained(case)[0])


def test_from_liblinear_refuses_others():
    with pytest.raises(TypeError, match="found is a Model: give a model of the package liblinear-official"):
        ml.from_liblinear(trained("bools")[0])


def test_without_liblinear_its_package_is_named():
    code = ("import sys; sys.modules['liblinear'] = None; import numpy as np, marginlinear as ml; "
            "ml.to_liblinear(ml.Model(np.eye(2), [1, 2]))")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1 and "pip install liblinear-official" in run.stderr


# ---- margin-export


@pytest.fixture
def exported(tmp_path, monkeypatch, capfd):
    """A function from a command line to (status, what was told), in a folder of models and names."""
    monkeypatch.chdir(tmp_path)
    for name, case in (("m", "joint"), ("k", "rbf"), ("p", "two classes, one column")):
        ml.save_model(trained(case)[0], name)
    (tmp_path / "names").write_text("one\ntwo\nthree\nfour\nfive\n")
    (tmp_path / "few").write_text("one\n")

    def run(line):
        status = export.main(line.split())
        out, err = capfd.readouterr()
        return status, out + err

    return run


@pytest.mark.parametrize("line, path, made", [
    ("m x.c", "x.c", lambda m: ml.to_c(m)),
    ("--name f m x.c", "x.c", lambda m: ml.to_c(m, name="f")),
    ("m x.sql", "x.sql", lambda m: ml.to_sql(m, "rows") + ";\n"),
    ("--from-table t --names names --long a,b,c --name f m x.sql", "x.sql", lambda m: ml.to_sql(
        m, "t", feature_names=["one", "two", "three", "four", "five"], long=["a", "b", "c"], name="f") + ";\n"),
])
def test_command_writes_text(exported, line, path, made, tmp_path):
    assert exported(line) == (0, "")
    assert (tmp_path / path).read_text("utf-8") == made(ml.load_model("m"))


@pytest.mark.parametrize("options, given", [("", {}), ("--float32 --no-probability ", {"dtype": "float32",
                                                                                     "probability": False})])
def test_command_writes_onnx(exported, tmp_path, options, given):
    onnx = pytest.importorskip("onnx", reason="pip install 'marginlinear[onnx]'")
    assert exported(f"{options}k x.onnx") == (0, "")
    assert onnx.load(tmp_path / "x.onnx") == ml.to_onnx(ml.load_model("k"), **given)


@pytest.mark.parametrize("line, status, told", [
    ("", 2, "a model_file and an output_file are needed"), ("m", 2, "are needed, not m"),
    ("m x", 2, r"x: the name of the output_file ends in \.onnx, \.c, \.sql"),
    ("--float32 m x.c", 2, r"--float32 is not for a file that ends in \.c"),
    ("--name f m x.onnx", 2, r"--name is not for a file that ends in \.onnx"),
    ("--long a,b m x.sql", 2, "--long a,b: give 3 names, with commas between"),
    ("nothere x.c", 1, "can't open model file nothere: No such"), ("names x.c", 1, "names:1:1: unknown text"),
    ("k x.c", 1, "to_c takes linear models, kernel is 'rbf'"), ("--name 1f m x.c", 1, "name = '1f' is not allowed"),
    ("--names few m x.sql", 1, "few:2:1: 1 names for the model's 5 features"),
    ("m nofolder/x.c", 1, "can't open output file nofolder/x.c"),
])
def test_command_refuses(exported, tmp_path, line, status, told):
    before = sorted(path.name for path in tmp_path.iterdir())
    found, text = exported(line)
    assert found == status and re.search(f"^margin-export: .*{told}", text), text
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_command_names_the_extra(exported):
    code = "import sys; sys.modules['onnx'] = None; from marginlinear.cli.export import main; sys.exit(main())"
    run = subprocess.run([sys.executable, "-c", code, "m", "x.onnx"], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr == (
        "margin-export: to_onnx needs the package onnx: pip install '.[onnx]' in marginlinear's clone or, once it is "
        "published, pip install 'marginlinear[onnx]'\n")
