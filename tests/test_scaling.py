"""Scalings: what becomes of values, what a model repeats, and what LIBLINEAR reads of it."""

import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from test_modelfile import sealed, unsealed

import marginlinear as ml
from marginlinear.data import scaling
from marginlinear.data.arrays import CSR
from marginlinear.data.scaling import Scaling, learned
from marginlinear.model import KernelModel
from marginlinear.modelfile import load_model, save_model

KINDS = scaling.KINDS


def table(k=3, m=60, shifted=True):
    """Rows whose features have different magnitudes, a constant one, one of zeros; and labels."""
    rng = np.random.default_rng(k)
    codes = np.arange(m) % k
    X = rng.integers(0, 4, (m, 6)) * np.array([1.0, 100.0, 0.25, 8.0, 0.0, 0.0])
    X[np.arange(m), codes % 3] *= 3
    X[:, 4] = 5
    if shifted:
        X[:, 1] -= 100
        X[:, 2] += 0.5
    return X, np.array([-1, 1] if k == 2 else [1, 2, 7])[codes]


def scaled_by_hand(kind, X, like=None):
    like = X if like is None else like
    least, most = like.min(axis=0), like.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        if kind == "range":
            return np.where(least < most, (X - least) / (most - least), 0)
        if kind == "maxabs":
            largest = np.abs(like).max(axis=0)
            return np.where(largest > 0, X / largest, 0)
        length = np.sqrt((X**2).sum(axis=1, keepdims=True))
        return np.where(length > 0, X / length, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_values_in_any_storage(kind, storage):
    X, _ = table()
    X[3] = 0
    given = storage(X)
    found = learned(kind, given).apply(given)
    assert sparse.issparse(found) == sparse.issparse(given)
    single = getattr(given, "dtype", None) == np.float32
    found = found.toarray() if sparse.issparse(found) else found
    assert found.dtype == (np.float32 if single else np.float64)
    assert np.allclose(found, scaled_by_hand(kind, X), rtol=1e-6 if single else 1e-14, atol=0)
    if kind == "range":
        used = X.min(axis=0) < X.max(axis=0)
        assert (found[:, used].min(axis=0) == 0).all() and (found[:, used].max(axis=0) == 1).all()


def test_sparse_rows_stay_sparse_where_zeros_are_the_least():
    X, _ = table(shifted=False)
    X = sparse.csr_array(X)
    found = learned("range", X).apply(X)
    assert found.nnz == X.nnz
    assert np.allclose(found.toarray(), scaled_by_hand("range", X.toarray()), rtol=1e-15)


@pytest.mark.parametrize("filled", range(6))
def test_zeros_of_some_features_that_do_not_stay_zeros(filled):
    """Sparse up to half of the features, dense from there on; some values there, some not, some rows empty."""
    X, _ = table(shifted=False)
    X[5], X[:, 5] = 0, np.arange(60) % 2
    X[:, :filled] -= 30 * (np.arange(60) % 3 > 0)[:, None]
    found = learned("range", sparse.csr_array(X)).apply(sparse.csr_array(X))
    assert sparse.issparse(found) == (filled < 3)
    found = found.toarray() if filled < 3 else found
    assert np.allclose(found, scaled_by_hand("range", X), rtol=1e-14, atol=1e-16)
    narrow, wide = X[:, :2], np.hstack([X, X])
    for other in (narrow, wide):
        of_sparse = learned("range", X).apply(sparse.csr_array(other))
        of_sparse = of_sparse.toarray() if filled < 3 else of_sparse
        assert np.array_equal(of_sparse, learned("range", X).apply(other))


def test_rows_are_not_changed():
    X = sparse.csr_array(table()[0])
    before = X.copy()
    for kind in KINDS:
        ml.train(X, table()[1], scale=kind)
    assert (before != X).nnz == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [-1.0, 0.0, 1.0, 3.0])
@pytest.mark.parametrize("solver, k", [("mcodm", 3), ("mcodm", 2), ("ldm", 2), ("ldm", 3), ("softmax", 3)])
def test_the_model_is_that_of_the_scaled_rows(kind, bias, solver, k):
    X, y = table(k)
    Z = scaled_by_hand(kind, X)
    model = ml.train(X, y, solver=solver, bias=bias, scale=kind, tol=1e-8)
    direct = ml.train(Z, y, solver=solver, bias=bias, tol=1e-8)
    assert model.info.objective == pytest.approx(direct.info.objective, rel=1e-5)
    new = np.random.default_rng(9).standard_normal((40, 6)) * [1, 100, 1, 8, 1, 1]
    scores, expected = model.decision_function(new), direct.decision_function(scaled_by_hand(
        kind, new if kind == "unit" else np.where([True] * 4 + [kind == "maxabs", False], new, X.min(axis=0)), X))
    assert np.allclose(scores, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    assert model.params["scale"] == kind and "scale" not in direct.params
    assert (model.scaling is not None) == (kind == "unit")
    assert np.allclose(model.decision_function(sparse.csr_array(new)), scores, rtol=1e-12, atol=1e-12)


def test_folding_is_an_identity():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 4)) * [1, 1e3, 1e-3, 1] + [0, 500, 0, 2]
    for kind in ("range", "maxabs"):
        for bias in (-1.0, 0.0, 0.5):
            found = learned(kind, X)
            weights = rng.standard_normal((4 + (bias >= 0), 3))
            folded, value = found.folded(weights, bias)
            folded = ml.Model(folded, [1, 2, 3], bias=value)
            plain = ml.Model(weights, [1, 2, 3], bias=bias)
            assert np.allclose(folded.decision_function(X), plain.decision_function(found.apply(X)), rtol=0, atol=1e-12)
            if kind == "maxabs":
                assert folded.bias == bias


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse_rows", [False, True])
def test_kernels(tmp_path, kind, sparse_rows):
    X, y = table()
    given = sparse.csr_array(X) if sparse_rows else X
    model = ml.train(given, y, solver="cs", kernel="rbf", gamma=0.5, scale=kind, bias=1.0)
    direct = ml.train(scaled_by_hand(kind, X), y, solver="cs", kernel="rbf", gamma=0.5, bias=1.0)
    assert isinstance(model, KernelModel) and model.scaling.kind == kind
    assert np.allclose(model.decision_function(given), direct.decision_function(scaled_by_hand(kind, X)), atol=1e-6)
    save_model(model, tmp_path / "m")
    for again in (load_model(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        assert np.allclose(again.decision_function(given), model.decision_function(given), rtol=0, atol=1e-12)
        assert again.scaling.to_dict() == model.scaling.to_dict()
        # A feature that training did not have is left out, as a constant one is.
        wide = np.hstack([X, np.full((len(X), 1), 9.0)])
        if kind != "unit":
            assert np.allclose(again.decide(wide), model.decision_function(X), rtol=0, atol=1e-12)
        assert np.allclose(again.decide(X[:, :2]), again.decision_function(X * [1, 1, 0, 0, 0, 0]),
                           rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrap", [np.array, sparse.csr_array, sparse.coo_array], ids=str)
def test_functions_as_kernels(kind, wrap):
    X, y = table()
    seen = set()

    def linear(left, right):
        seen.add((type(left), type(right)))
        products = left @ right.T
        return products.toarray() if sparse.issparse(products) else products

    model = ml.train(wrap(X), y, solver="cs", kernel=linear, scale=kind, probability=True)
    named = ml.train(X, y, solver="cs", kernel="linear", scale=kind)
    assert np.allclose(model.decision_function(wrap(X)), named.decision_function(X), atol=1e-6)
    assert len(seen) == 1


def test_the_arrays_of_the_reader():
    X, y = table()
    csr = sparse.csr_array(X)
    rows = CSR(csr.data, csr.indices, csr.indptr, csr.shape[1])
    for kind in KINDS:
        found, expected = learned(kind, rows).apply(rows), learned(kind, csr).apply(csr)
        assert isinstance(found, CSR) and np.array_equal(found.to_scipy().toarray(), expected.toarray())
        assert np.array_equal(ml.train(rows, y, scale=kind).weights, ml.train(csr, y, scale=kind).weights)


def test_the_file_of_a_kernel_model_is_for_us_alone(tmp_path):
    X, y = table(2)
    save_model(ml.train(X, y, kernel="linear", scale="maxabs"), tmp_path / "m")
    assert b"\nscaling maxabs\nSV\n" in (tmp_path / "m").read_bytes()


def test_parts_of_many_rows(monkeypatch):
    X, y = table()
    model = ml.train(X, y, scale="unit", kernel="rbf")
    both = [X, sparse.csr_array(X)]
    whole = [model.decision_function(given) for given in both]
    monkeypatch.setattr(scaling, "PART", 20)
    for given, scores in zip(both, whole, strict=True):
        assert np.array_equal(model.decision_function(given), scores)
    assert model.decision_function(X[:0]).shape == (0, 3)


def test_files_without_scaling_have_none_of_its_words(tmp_path):
    X, y = table()
    save_model(ml.train(X, y), tmp_path / "m")
    text = (tmp_path / "m").read_bytes()
    assert b"scal" not in text and b"calibration" not in text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 3])
def test_round_trip_of_a_linear_model(tmp_path, kind, k):
    X, y = table(k)
    model = ml.train(X, y, scale=kind, probability=True)
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.params == model.params and again.calibration == model.calibration
    assert (b"\nscaling unit\n" in (tmp_path / "m").read_bytes()) == (kind == "unit")
    save_model(again, tmp_path / "n")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "n").read_bytes()


@pytest.mark.skipif(not shutil.which("liblinear-predict"), reason="needs liblinear-tools")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("bias", [-1.0, 1.0])
@pytest.mark.parametrize("solver", ["mcodm", "l2svc"])
def test_liblinear_serves_the_model(tmp_path, kind, k, bias, solver):
    X, y = table(k)
    model = ml.train(X, y, solver=solver, scale=kind, bias=bias, probability=True)
    save_model(model, tmp_path / "m")
    new = np.vstack([X, X + np.random.default_rng(0).standard_normal(X.shape)])
    ml.dump_libsvm(new, np.zeros(len(new)), tmp_path / "d")
    done = subprocess.run(["liblinear-predict", "d", "m", "out"], cwd=tmp_path, capture_output=True, text=True)
    if kind == "unit":
        assert done.returncode == 1 and "unknown text in model file" in done.stdout + done.stderr
    else:
        assert np.array_equal(np.loadtxt(tmp_path / "out"), model.predict(new))


def test_a_gram_matrix_has_no_features():
    with pytest.raises(ValueError, match="scale = 'unit' is for features"):
        ml.train(np.eye(4), [1, 2, 1, 2], kernel="precomputed", scale="unit")


def test_refusals(monkeypatch):
    X, y = table()
    with pytest.raises(ValueError, match=r"scale = 'std' is not allowed: give range \| maxabs \| unit"):
        ml.train(X, y, scale="std")
    for value in (np.nan, np.inf):
        for kind in KINDS:
            broken = X.copy()
            broken[2, 1] = value
            with pytest.raises(ValueError, match=r"row 2, feature 1 is .*: values must be finite"):
                ml.train(broken, y, scale=kind)
    for low, high in ((-1e308, 1e308), (0, 1e-310)):
        broken = X.copy()
        broken[:, 1], broken[3, 1] = low, high
        with pytest.raises(ValueError, match=r"feature 1 has values from .* too near"):
            ml.train(broken, y, scale="range")
    monkeypatch.setattr("marginlinear.memory.memory", lambda: 8 * 60 * 2 * 3)
    with pytest.raises(MemoryError, match=r"range fills 2 values in each of 60 sparse rows.* maxabs keeps zeros"):
        ml.train(sparse.csr_array(X), y, scale="range")
    ml.train(X, y, scale="range")
    ml.train(sparse.csr_array(X), y, scale="maxabs")
    with pytest.raises(ValueError, match="start: a model with scale = None, this fit has maxabs"):
        ml.train(X, y, scale="maxabs", start=ml.train(X, y))


def test_a_start_is_one_of_the_scaled_problem():
    X, y = table()
    model = ml.train(X, y, scale="range", bias=1.0)
    again = ml.train(X, y, scale="range", bias=1.0, start=model)
    assert again.info.n_iter == 0 and np.array_equal(again.weights, model.weights)


def test_lengths_of_huge_and_tiny_rows():
    X = np.array([[3e200, 4e200], [3e-200, 4e-200], [0, 0], [3, 4]])
    expected = np.array([[0.6, 0.8], [0.6, 0.8], [0, 0], [0.6, 0.8]])
    for given in (X, sparse.csr_array(X)):
        found = Scaling("unit").apply(given)
        found = found.toarray() if sparse.issparse(found) else found
        assert np.allclose(found, expected, rtol=1e-15)


def test_files_are_scaled_without_scipy(tmp_path):
    X, y = table()
    ml.dump_libsvm(X, y, tmp_path / "d")
    code = ("import sys; from marginlinear.cli import predict, train; "
            "assert train.main(['-q', '--scale', 'KIND', '--probability', 'd', 'm']) == 0; "
            "assert predict.main(['-q', '-b', '1', 'd', 'm', 'out']) == 0; assert 'scipy' not in sys.modules")
    for kind in KINDS:
        subprocess.run([sys.executable, "-c", code.replace("KIND", kind)], cwd=tmp_path, check=True,
                       env={"PYTHONPATH": str(ml.__path__[0]).rsplit("/", 1)[0]})


# (scaled and calibrated?, what is changed in the trailer, the message)
DAMAGE = {
    "no slope": ('"slope": ', '"pitch": ', "calibration: 'pitch' is not known"),
    "slope text": ('"slope": ', '"slope": "1", "o": ', "calibration: 'slope' is '1'|'o' is not known"),
    "negative slope": ('"slope": ', '"slope": -', "calibration: slope is -"),
    "kind": ('"kind": "temperature"', '"kind": "sigmoid"', "calibration: kind is 'sigmoid': for 3 classes"),
    "not an object": ('"calibration": {', '"calibration": [1], "c": {', "'c' is not known|'calibration' is"),
    "scaling kind": ('"kind": "range"', '"kind": "maxabs"', "scaling is 'maxabs' in the trailer, 'range' above"),
    "no scaling": ('"scaling": ', '"scaled": ', "'scaled' is not known"),
    "long list": ('"least": [', '"least": [0.0, ', "the 6 ranges do not fit"),
    "text in a list": ('"most": [', '"most": ["0", ', "most is not a list of numbers"),
    "true in a list": ('"most": [', '"most": [true, ', "most is not a list of numbers"),
    "huge integer": ('"most": [', '"most": [1' + "0" * 400 + ", ", "is beyond 64 bits"),
    "least above most": ('"least": [', '"least": [1e300], "l": [', "'l' is not known|do not fit"),
    "ends": ('"upper": 1.0', '"upper": -1.0', "do not fit"),
    "end infinite": ('"upper": 1.0', '"upper": 1e999', "'1e999' is not finite"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_hostile_trailers(tmp_path, case):
    X, y = table()
    path = tmp_path / "m"
    save_model(ml.train(X, y, kernel="rbf", scale="range", probability=True), path)
    old, new, words = DAMAGE[case]
    text = unsealed(path.read_bytes())
    assert text.count(old.encode()) == 1
    path.write_bytes(sealed(text.replace(old.encode(), new.encode())))
    with pytest.raises(ml.DataError, match=words):
        load_model(path)


def test_a_scaling_that_the_trailer_lacks(tmp_path):
    X, y = table()
    path = tmp_path / "m"
    save_model(ml.train(X, y, scale="unit"), path)
    text = unsealed(path.read_bytes())
    for old, new, words in ((b"\nscaling unit", b"", "scaling is 'unit' in the trailer, 'None' above"),
                            (b'"scaling": {"kind": "unit"}, ', b"", "scaling is 'None' in the trailer, 'unit' above"),
                            (b'{"kind": "unit"}', b'{"kind": 1}', "scaling is '1' in the trailer"),
                            (b'"scale": "unit"', b'"scale": "cube"', "params: scale is 'cube', outside range"),
                            (b"unit", b"cube", "'cube' is not known")):
        # params has the word too.
        changed = text.replace(old, new)
        if b"scale" not in old:
            changed = changed.replace(b'"scale": "cube"', b'"scale": "unit"')
        path.write_bytes(sealed(changed))
        with pytest.raises(ml.DataError, match=words):
            load_model(path)
    path.write_bytes(text[: text.index(b"marginlinear 1")])
    with pytest.raises(ml.DataError, match="ends after its last row"):
        load_model(path)
