"""Model files: exact round trips, LIBLINEAR's reading of ours and ours of its, and every kind of damage."""

import errno
import hashlib
import io
import json
import math
import os
import re
import shutil
import stat
import subprocess

import numpy as np
import pytest
from scipy import sparse

from marginlinear import registry
from marginlinear.api import train
from marginlinear.calibration import PAIRWISE, Calibration
from marginlinear.cli import predict
from marginlinear.data.arrays import CSR
from marginlinear.data.codes import codes_of
from marginlinear.data.kernels import Kernel
from marginlinear.errors import DataError
from marginlinear.libsvm import read_libsvm
from marginlinear.model import KernelModel, Model
from marginlinear.modelfile import load_model, save_model
from marginlinear.problem import Info

TRAIN, PREDICT = shutil.which("liblinear-train"), shutil.which("liblinear-predict")
needs_liblinear = pytest.mark.skipif(not (TRAIN and PREDICT), reason="needs liblinear-tools")

INFO = Info("max_iter", "cd", n_iter=5, n_outer=2, objective=1.5, bound=-math.inf, certificate=1e-5,
            n_support=7, seconds=0.25, tol=1e-3, history=[{"n_iter": 5}])


def small_model(**changes):
    values = {"weights": [[0.5, -1.25, 1e-300], [3.0, 0.1, -2e10]], "classes": [1, 3, 7], "solver": "mcodm",
              "params": {"mu": 0.8, "C": np.float64(16), "outer": "ccp", "lambda_": None}, "info": INFO}
    return Model(**{**values, **changes})


def saved(model, path):
    save_model(model, path)
    return path.read_bytes()


def sealed(text):
    """A file whose digest is right, whatever else is wrong: `text` goes up to the digest's opening quote."""
    return text + hashlib.sha256(text).hexdigest().encode() + b'"}\n'


def unsealed(data):
    return data[:-67]


@pytest.mark.parametrize("classes, columns, bias", [
    ([1, 2, 3, 4], 4, -1.0), ([-1, 1], 1, 0.1), ([-1, 1], 2, 1.0), ([0.5, 1.5, 1e300, 2.0], 4, -2.5),
    ([1.0, 2.0], 1, 0.0), ([-(2**63), 2**63 - 1], 1, -1.0), (["b:c", "\u00e9", "\u4e2d"], 3, -1.0),
    ([5], 1, -1.0),
])
def test_round_trip_is_exact(tmp_path, classes, columns, bias):
    rng = np.random.default_rng(columns)
    bits = rng.integers(0, 2**64, size=4000, dtype=np.uint64).view(np.float64)
    extreme = [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1 / 3]
    bits = np.concatenate([extreme, bits[np.isfinite(bits)]])
    weights = bits[: len(bits) // columns * columns].reshape(-1, columns)
    model = small_model(weights=weights, classes=np.array(classes), bias=bias)
    path = tmp_path / "m"
    data = saved(model, path)
    back = load_model(path)
    assert back.weights.tobytes() == model.weights.tobytes()
    assert back.weights.shape == model.weights.shape
    assert back.classes.dtype.kind == model.classes.dtype.kind
    assert back.classes.tolist() == model.classes.tolist()
    assert (back.bias, back.solver, back.n_features) == (bias, "mcodm", model.n_features)
    assert back.params == model.params
    assert {**back.info.to_dict(), "seconds": 0.25, "history": INFO.history} == INFO.to_dict()
    assert saved(back, tmp_path / "again") == data


def test_layout(tmp_path):
    lines = saved(small_model(bias=0.1), tmp_path / "m").decode().split("\n")
    assert lines[:5] == ["solver_type MCSVM_CS", "nr_class 3", "label 1 3 7", "nr_feature 1",
                         "bias 0.10000000000000001"]
    assert lines[5:9] == ["w", "0.5 -1.25 1e-300 ", "3 0.1 -20000000000 ", "marginlinear 1"]
    assert list(json.loads(lines[9])["params"]) == ["C", "lambda_", "mu", "outer"]
    assert lines[10:] == [""]


def test_the_digest_is_that_of_all_before_it(tmp_path):
    data = saved(small_model(), tmp_path / "m")
    assert json.loads(data.splitlines()[-1])["sha256"] == hashlib.sha256(data[:-67]).hexdigest()


def test_one_column_names_the_positive_class_first(tmp_path):
    model = small_model(weights=[[2.0]], classes=[3, 7])
    assert b"solver_type L2R_L2LOSS_SVC_DUAL\nnr_class 2\nlabel 7 3\n" in saved(model, tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert back.classes.tolist() == [3, 7]
    assert back.predict(np.array([[1.0], [-1.0], [0.0]])).tolist() == [7, 3, 3]


def test_two_columns_have_the_first_one_decide_in_liblinear(tmp_path):
    model = small_model(weights=[[-2.0, 2.0]], classes=[3, 7])
    data = saved(model, tmp_path / "m")
    assert b"solver_type MCSVM_CS\nnr_class 2\nlabel 7 3\n" in data and b"\nw\n2 -2 \n" in data
    back = load_model(tmp_path / "m")
    assert (back.classes.tolist(), back.weights.tolist()) == ([3, 7], [[-2.0, 2.0]])


def test_equal_models_are_equal_files(tmp_path):
    info = Info(**{**INFO.to_dict(), "seconds": 99.0, "history": []})
    other = small_model(params=dict(reversed(small_model().params.items())), info=info)
    assert saved(small_model(), tmp_path / "a") == saved(other, tmp_path / "b")


def test_without_info(tmp_path):
    save_model(small_model(info=None), tmp_path / "m")
    assert load_model(tmp_path / "m").info is None


def test_blocks_of_weights(tmp_path):
    weights = np.random.default_rng(0).standard_normal((60000, 7))
    save_model(small_model(weights=weights, classes=np.arange(7)), tmp_path / "m")
    assert load_model(tmp_path / "m").weights.tobytes() == weights.tobytes()


@pytest.mark.parametrize("changes, reason", [
    ({"weights": [[1.0, math.nan, 0.0]]}, "a weight that is not finite"),
    ({"bias": math.inf, "weights": [[1.0, 2.0, 3.0]]}, "bias"),
    ({"classes": [1.0, math.inf, 2.0]}, "a label that is not finite"),
    ({"params": {"C": math.inf}}, "JSON"),
])
def test_what_cannot_be_saved_leaves_the_old_file(tmp_path, changes, reason):
    path = tmp_path / "m"
    data = saved(small_model(), path)
    with pytest.raises(ValueError, match=reason):
        save_model(small_model(**changes), path)
    assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["m"]


# ---- the file system


def test_permission_bits(tmp_path):
    old = os.umask(0o027)
    try:
        save_model(small_model(), tmp_path / "new")
        (tmp_path / "old").touch()
        (tmp_path / "old").chmod(0o604)
        save_model(small_model(), tmp_path / "old")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o604


def test_a_symbolic_link_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/m")
    data = saved(small_model(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "m").read_bytes() == data


def test_devices_are_not_replaced():
    save_model(small_model(), os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_pipe_can_be_read(tmp_path):
    data = saved(small_model(), tmp_path / "m")
    read_end, write_end = os.pipe()
    os.write(write_end, data)
    os.close(write_end)
    assert load_model(f"/dev/fd/{read_end}").weights.tolist() == small_model().weights.tolist()
    os.close(read_end)


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_failure_while_writing_leaves_the_old_file(tmp_path, monkeypatch, failure):
    path = tmp_path / "m"
    data = saved(small_model(), path)

    def fail(descriptor):
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(failure)) as caught:
        save_model(small_model(), path)
    if isinstance(failure, OSError):
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("name", ["no/such/folder", "."])
def test_a_path_that_cannot_be_written(tmp_path, name):
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        save_model(small_model(), tmp_path / name)


# ---- damage


def test_every_truncation_is_found(tmp_path):
    """Cut just after its weights, a file is one that LIBLINEAR could have written: the one cut that loads."""
    data = saved(small_model(), tmp_path / "m")
    end = data.index(b"marginlinear")
    for size in range(len(data)):
        if size == end:
            assert load_model(io.BytesIO(data[:size])).info is None
        else:
            with pytest.raises(DataError):
                load_model(io.BytesIO(data[:size]))


def test_labels_that_only_we_write_show_a_cut_after_the_weights(tmp_path):
    data = saved(small_model(classes=np.array(["a", "b", "c"])), tmp_path / "m")
    (tmp_path / "m").write_bytes(data[: data.index(b"marginlinear")])
    with pytest.raises(DataError, match="ends after its last row"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("classes", [[1, 3, 7], ["a", "b", "c"]])
def test_every_flipped_bit_is_found(tmp_path, classes):
    data = saved(small_model(classes=np.array(classes)), tmp_path / "m")
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            with pytest.raises(DataError):
                load_model(io.BytesIO(flipped))


def replaced(old, new):
    def change(data):
        assert old in data
        return sealed(unsealed(data).replace(old, new, 1))
    return change


def json_line(line):
    """The trailer's last line up to its digest replaced."""
    return lambda data: sealed(data[: data.index(b"{")] + line + b', "sha256": "')


HOSTILE = {
    "empty": (lambda data: b"", 0, 0, "ends before its weights"),
    "data file": (lambda data: b"1 1:0.5 2:1\n", 1, 1, "unknown text in model file: [1]"),
    "nul": (lambda data: b"\0" * 5000, 1, 1, "too long"),
    "libsvm": (lambda data: b"svm_type c_svc\nkernel_type rbf\n", 0, 0, "ends before its support vectors"),
    "svr": (replaced(b"MCSVM_CS", b"L2R_L2LOSS_SVR"), 3, 1, "label does not go with a model without classes"),
    "one-class": (replaced(b"MCSVM_CS", b"ONECLASS_SVM"), 3, 1, "label does not go with a model without classes"),
    "solver": (replaced(b"MCSVM_CS", b"MCSVM_CT"), 1, 13, "unknown solver type."),
    "solver empty": (replaced(b"MCSVM_CS", b""), 1, 13, "give a solver's name"),
    "unknown key": (replaced(b"bias -1", b"bias -1\nrho 0"), 6, 1, "unknown text in model file: [rho]"),
    "key twice": (replaced(b"bias -1", b"bias -1\nbias -1"), 6, 1, "bias stands in line 5 already"),
    "key missing": (replaced(b"bias -1\n", b""), 5, 1, "bias is missing"),
    "two kinds of labels": (replaced(b"label", b"classes [1, 3, 7]\nlabel"), 4, 1, "exclude each other"),
    "long word": (replaced(b"bias -1", b"bias -" + b"1" * 400), 5, 1, "too long"),
    "long key": (replaced(b"bias -1", b"b" * 400), 5, 1, "too long"),
    "nr_class": (replaced(b"nr_class 3", b"nr_class 4"), 2, 10, "nr_class is 4, and label has 3"),
    "nr_class huge": (replaced(b"nr_class 3", b"nr_class 4611686018427387904"), 2, 10, "nr_class is 46116"),
    "nr_class negative": (replaced(b"nr_class 3", b"nr_class -3"), 2, 10, "give the number of classes"),
    "no classes": (replaced(b"nr_class 3\nlabel 1 3 7", b"nr_class 0\nlabel"), 2, 10, "nr_class is 0"),
    "label twice": (replaced(b"label 1 3 7", b"label 1 3 1"), 3, 1, "'1' stands twice"),
    "label text": (replaced(b"label 1 3 7", b"label 1 x 7"), 3, 9, "'x': give an integer"),
    "label fraction": (replaced(b"label 1 3 7", b"label 1 3.5 7"), 3, 9, "'3.5': give an integer"),
    "label beyond 64 bits": (replaced(b"label 1 3 7", b"label 1 3 9223372036854775808"), 3, 11, "an integer"),
    "features 2^62": (replaced(b"nr_feature 2", b"nr_feature 4611686018427387904"), 6, 1, "do not fit"),
    "features more": (replaced(b"nr_feature 2", b"nr_feature 3"), 9, 1, "'marginlinear' is not a finite"),
    "features fewer": (replaced(b"nr_feature 2", b"nr_feature 1"), 8, 1, "-20000000000 \\n' after the last row"),
    "features not a number": (replaced(b"nr_feature 2", b"nr_feature 2x"), 4, 12, "'2x': give the number"),
    "bias nan": (replaced(b"bias -1", b"bias nan"), 5, 6, "'nan': give a finite number"),
    "bias infinite": (replaced(b"bias -1", b"bias 1e999"), 5, 6, "give a finite number"),
    "weight nan": (replaced(b"3 0.1 ", b"3 nan "), 8, 3, "'nan' is not a finite number"),
    "weight infinite": (replaced(b"3 0.1 ", b"3 1e999 "), 8, 3, "'1e999' is not a finite number"),
    "weight text": (replaced(b"3 0.1 ", b"3 0x1p3 "), 8, 3, "'0x1p3' is not a finite number"),
    "weight nul": (replaced(b"3 0.1 ", b"3 0\0001 "), 8, 3, "is not a finite number"),
    "row short": (replaced(b"3 0.1 ", b"3 "), 8, 16, "fewer than 3 weights"),
    "row long": (replaced(b"3 0.1 ", b"3 0.1 0.1 "), 8, 11, "more than 3 weights"),
    "row split": (replaced(b"3 0.1 ", b"3\n0.1 "), 8, 2, "fewer than 3 weights"),
    "row endless": (replaced(b"3 0.1 ", b"3" * 2000 + b" 0.1 "), 8, 1, "is not a finite number"),
    "text after the weights": (replaced(b"marginlinear 1", b"hello"), 9, 1, "'hello\\n' after the last row"),
    "later version": (replaced(b"marginlinear 1", b"marginlinear 2"), 9, 1, "use a newer one"),
    "no digest": (lambda data: data[: data.index(b"{")] + b"{}\n", 10, 1, "does not end with its sha256"),
    "text after the trailer": (lambda data: data + b"x", 11, 1, "text after the trailer"),
    "digest": (lambda data: data[:-4] + b'0"}\n', 10, None, "sha256 does not match"),
    "line ends": (lambda data: data.replace(b"\n", b"\r\n"), 9, 1, "after the last row"),
    "not utf-8": (json_line(b'{"solver": "\xff"'), 10, 13, "it is not UTF-8"),
    "not an object": (json_line(b'["a"'), 10, 15, "JSON cannot be read"),
    "nan in JSON": (json_line(b'{"solver": NaN'), 10, 12, "NaN is not JSON"),
    "key twice in JSON": (json_line(b'{"solver": "a", "solver": "b"'), 10, 17, "'solver' stands twice"),
    "nesting bomb": (json_line(b'{"solver": ' + b"[" * 100000), 10, 1, "nested too deeply"),
    "huge integer": (json_line(b'{"solver": ' + b"1" * 10000), 10, 12, "is beyond 64 bits"),
    "number not finite": (replaced(b'"mu": 0.8', b'"mu": 1e400'), 10, None, "'1e400' is not finite"),
    "parameter outside": (replaced(b'"mu": 0.8', b'"mu": 1.5'), 10, 1, "params: mu is '1.5', outside number in [0, 1]"),
    "parameter no word": (replaced(b'"ccp"', b'"cpp"'), 10, 1, "params: outer is 'cpp', outside ccp | paper"),
    "info below 0": (replaced(b'"n_iter": 5', b'"n_iter": -5'), 10, 1, "info: n_iter is -5, below 0"),
    "info's tolerance": (replaced(b'"tol": 0.001', b'"tol": "inf"'), 10, 1, "info: tol is 'inf', outside number in"),
    "unknown trailer key": (replaced(b'"labels"', b'"extra": 1, "labels"'), 10, 1, "'extra' is not known"),
    "missing trailer key": (replaced(b'"labels": "int64", ', b""), 10, 1, "labels is missing"),
    "wrong type": (replaced(b'"solver": "mcodm"', b'"solver": 1'), 10, 1, "'solver' is '1'"),
    "params not an object": (replaced(b'"params": {', b'"params": 1, "solve": {'), 10, 1, "'params' is '1'"),
    "nested parameter": (replaced(b'"mu": 0.8', b'"mu": [0.8]'), 10, 1, "'mu' is '[0.8]'"),
    "status": (replaced(b'"max_iter"', b'"fine"'), 10, 1, "status is 'fine'"),
    "info": (replaced(b'"n_iter": 5', b'"n_iter": 5.5'), 10, 1, "n_iter is '5.5'"),
    "info bool": (replaced(b'"n_iter": 5', b'"n_iter": true'), 10, 1, "n_iter is 'True'"),
    "label type": (replaced(b'"int64"', b'"str"'), 10, 1, "calls the labels 'str', and they are not"),
    "unknown label type": (replaced(b'"int64"', b'"object"'), 10, 1, "calls the labels 'object'"),
    "classes not a list": (replaced(b"label 1 3 7", b'classes {"a": 1}'), 3, 9, "not a list"),
    "classes of null": (replaced(b"label 1 3 7", b"classes [1, 3, null]"), 3, 9, "not a list"),
    "classes of lists": (replaced(b"label 1 3 7", b"classes [[1], 3, 7]"), 3, 9, "not a list"),
    "classes beyond 64 bits": (replaced(b"label 1 3 7", b"classes [1, 9223372036854775808, 2]"), 10, 1, "64"),
    "classes nested": (replaced(b"label 1 3 7", b"classes " + b"[" * 100000), 3, 9, "nested too deeply"),
    "classes twice": (replaced(b"label 1 3 7", b"classes [1, 3, 1.0]"), 3, 1, "stands twice"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_with_their_place(tmp_path, case):
    change, line, column, reason = HOSTILE[case]
    path = tmp_path / "m"
    path.write_bytes(change(saved(small_model(), path)))
    with pytest.raises(DataError) as caught:
        load_model(path)
    error = caught.value
    assert reason in error.reason
    assert error.path == str(path)
    assert (error.line, error.column) == (line, error.column if column is None else column)
    assert len(error.reason) < 400 and error.reason.isprintable()


def test_random_bytes_are_refused(tmp_path):
    rng = np.random.default_rng(1)
    data = saved(small_model(), tmp_path / "m")
    for _ in range(1000):
        low, high = sorted(rng.integers(0, len(data), 2))
        damaged = data[:low] + rng.bytes(int(rng.integers(0, 40))) + data[high + 1 :]
        with pytest.raises(DataError):
            load_model(io.BytesIO(damaged))


# ---- LIBLINEAR


@pytest.mark.parametrize("name", ["L2R_LR", "L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC", "L2R_L1LOSS_SVC_DUAL",
                                  "L1R_L2LOSS_SVC", "L1R_LR", "L2R_LR_DUAL"])
def test_liblinear_models_of_one_column(tmp_path, name):
    text = f"solver_type {name}\nnr_class 2\nlabel 3 -7\nnr_feature 2\nbias 1\nw\n0.5 \n-1 \n0.25 \n"
    (tmp_path / "m").write_text(text)
    model = load_model(tmp_path / "m")
    assert (model.solver, model.info, model.params) == (name, None, {})
    assert model.classes.tolist() == [-7, 3]
    assert model.decision_function(np.array([[1.0, 1.0], [1.0, 0.0]])).tolist() == [-0.25, 0.75]
    assert model.predict(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.25]])).tolist() == [-7, 3, -7]


def test_liblinear_models_of_two_columns_in_any_order_of_keys_and_line_ends(tmp_path):
    text = "nr_class 2\r\nlabel 3 -7\r\nbias -1\r\nnr_feature 1\r\nsolver_type MCSVM_CS\r\nw\r\n1 -1 \r\n"
    (tmp_path / "m").write_bytes(text.encode())
    model = load_model(tmp_path / "m")
    assert model.classes.tolist() == [-7, 3]
    assert model.predict(np.array([[1.0], [-1.0], [0.0]])).tolist() == [3, -7, -7]


def text_of(X, y):
    rows = (" ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v) for row in X.tolist())
    return "".join(f"{label} {row}\n" for label, row in zip(y, rows, strict=True))


def some_data(k, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 5)) * (rng.random((60, 5)) < 0.7)
    return X, rng.choice([3, 7, -2, 11][:k], 60)


@needs_liblinear
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("solver", range(8))
@pytest.mark.parametrize("bias", ["-1", "1.5"])
def test_models_of_liblinear_predict_as_there(tmp_path, solver, k, bias):
    X, y = some_data(k, solver)
    (tmp_path / "d").write_text(text_of(X, y))
    subprocess.run([TRAIN, "-q", "-s", str(solver), "-B", bias, "d", "m"], cwd=tmp_path, check=True)
    subprocess.run([PREDICT, "d", "m", "out"], cwd=tmp_path, check=True, capture_output=True)
    theirs = [int(label) for label in (tmp_path / "out").read_text().split()]
    assert load_model(tmp_path / "m").predict(X).tolist() == theirs


@needs_liblinear
@pytest.mark.parametrize("k, columns", [(2, 1), (2, 2), (4, 4)])
@pytest.mark.parametrize("bias", [-1.0, 1.5])
def test_liblinear_predicts_with_ours(tmp_path, k, columns, bias):
    X, _ = some_data(k, 1)
    X[:3] = 0  # equal scores
    weights = np.random.default_rng(k).standard_normal((5 + (bias >= 0), columns))
    if bias >= 0:
        weights[-1] = 0
    if k == columns == 2:
        weights[:, 0] = -weights[:, 1]
    model = small_model(weights=weights, classes=np.sort([3, 7, -2, 11][:k]), bias=bias)
    save_model(model, tmp_path / "m")
    (tmp_path / "d").write_text(text_of(X, [3] * 60))
    subprocess.run([PREDICT, "d", "m", "out"], cwd=tmp_path, check=True, capture_output=True)
    theirs = [int(label) for label in (tmp_path / "out").read_text().split()]
    assert model.predict(X).tolist() == theirs


@needs_liblinear
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("name", [name for name in registry.MODULES if name != "oneclass"])  # newer than Debian's
@pytest.mark.filterwarnings("ignore:msvmav did not converge")
def test_liblinear_serves_every_method_by_its_own_name_of_it(tmp_path, name, k):
    """The solver_type is the one that LIBLINEAR's train writes for the method's number."""
    method = registry.get(name)
    X, y = some_data(k, 2)
    ovr = {"multiclass": "ovr", "nu": 0.3} if name == "nusvc" and k > 2 else {}
    model = train(X, y, solver=name, tol=0.1, bias=1.0, **ovr)
    save_model(model, tmp_path / "m")
    (tmp_path / "d").write_text(text_of(X, y))
    head = (tmp_path / "m").read_text().splitlines()[0]
    if method.regression and method.liblinear is None:
        assert head == "solver_type L2R_L2LOSS_SVR"
    elif method.liblinear is None:
        assert head == "solver_type " + ("MCSVM_CS" if method.joint or k > 2 else "L2R_L2LOSS_SVC_DUAL")
    else:
        subprocess.run([TRAIN, "-q", "-s", str(method.liblinear), "d", "theirs"], cwd=tmp_path, check=True)
        assert (tmp_path / "theirs").read_text().splitlines()[0] == head
    subprocess.run([PREDICT, "d", "m", "out"], cwd=tmp_path, check=True, capture_output=True)
    predicted = [float(word) for word in (tmp_path / "out").read_text().split()]
    assert model.predict(X).tolist() == load_model(tmp_path / "m").predict(X).tolist()
    # Sums of numbers are in another order there.
    assert model.predict(X) == pytest.approx(predicted, rel=1e-12 if method.regression else 0)


@pytest.mark.parametrize("solver", ["l2svc", "l1svc", "cs", "mcodm", "L2R_LR", "unknown"])
@pytest.mark.parametrize("columns", [1, 2])
def test_the_solver_type_fits_the_columns(tmp_path, solver, columns):
    """LIBLINEAR reads two columns for two classes after MCSVM_CS alone, whatever the solver is said to be."""
    model = small_model(weights=np.array([[-1.0, 1.0], [2.0, -2.0]])[:, -columns:], classes=[3, 7], solver=solver)
    assert (b"MCSVM_CS" in saved(model, tmp_path / "m")) == (columns == 2)
    assert load_model(tmp_path / "m").weights.tolist() == model.weights.tolist()


@needs_liblinear
@pytest.mark.parametrize("classes", [["a", "b", "c"], ["1", "2", "3"], [0.5, 1.5, 2.5], [1.0, 2.0, 2.5],
                                     [1, 2, 2**31]])
def test_liblinear_refuses_labels_that_it_would_mistake(tmp_path, classes):
    save_model(small_model(classes=np.array(classes)), tmp_path / "m")
    (tmp_path / "d").write_text("1 1:1\n")
    done = subprocess.run([PREDICT, "d", "m", "out"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "unknown text in model file: [classes]" in done.stderr


# ---- columns with codes


CODES = [[1, 1, 0], [-1, 0, 1], [0, -1, -1]]


def coded_model(**changes):
    return small_model(weights=np.arange(6.0).reshape(2, 3) / 3, codes=CODES, **changes)


@pytest.mark.parametrize("classes", [[1, 3, 7], ["a", "b", "c"]])
@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_codes_round_trip(tmp_path, classes, bias):
    model = coded_model(classes=classes, bias=bias)
    data = saved(model, tmp_path / "m")
    assert data.startswith(b"solver_type MARGINLINEAR\nnr_class 3\n") and b"\ncodes ++0 -0+ 0--\nnr_feature" in data
    back = load_model(tmp_path / "m")
    assert back.weights.tobytes() == model.weights.tobytes()
    assert back.codes.tolist() == CODES and back.codes.dtype == np.int8
    assert saved(back, tmp_path / "again") == data


def test_codes_of_two_classes_stand_with_their_labels(tmp_path):
    model = small_model(weights=[[1.0, 2.0]], classes=[3, 7], codes=[[1, -1], [-1, 1]])
    assert b"label 7 3\ncodes -+ +-\n" in saved(model, tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert (back.codes.tolist(), back.weights.tolist()) == ([[1, -1], [-1, 1]], [[1.0, 2.0]])


@pytest.mark.parametrize("old, new, line, column, reason", [
    (b"codes ++0 -0+ 0--", b"codes ++0 -0+", 4, 7, "codes is not 3 words"),
    (b"codes ++0 -0+ 0--", b"codes ++0 -0+ 0-", 4, 7, "of one length"),
    (b"codes ++0 -0+ 0--", b"codes ++0 -0+ 0-1", 4, 7, "of +, - and 0"),
    (b"codes ++0 -0+ 0--", b"codes", 4, 7, "codes is not 3 words"),
    (b"codes ++0 -0+ 0--\n", b"", 6, 1, "codes is missing before its weights"),
    (b"solver_type MARGINLINEAR", b"solver_type MCSVM_CS", 4, 1, "codes do not go with MCSVM_CS"),
])
def test_damaged_codes(tmp_path, old, new, line, column, reason):
    (tmp_path / "m").write_bytes(replaced(old, new)(saved(coded_model(), tmp_path / "m")))
    with pytest.raises(DataError) as caught:
        load_model(tmp_path / "m")
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column)


@needs_liblinear
def test_liblinear_refuses_codes(tmp_path):
    save_model(coded_model(), tmp_path / "m")
    (tmp_path / "d").write_text("1 1:1\n")
    done = subprocess.run([PREDICT, "d", "m", "out"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "unknown solver type" in done.stderr


# ---- kernels


SVM_TRAIN, SVM_PREDICT = shutil.which("svm-train"), shutil.which("svm-predict")
needs_libsvm = pytest.mark.skipif(not (SVM_TRAIN and SVM_PREDICT), reason="needs libsvm-tools")
KERNELS = {
    "linear": {}, "poly": {"gamma": 1 / 3, "degree": 2, "coef0": 1.5}, "rbf": {"gamma": 0.5},
    "sigmoid": {"gamma": 0.1, "coef0": -0.25},
}


def kernel_model(kind="rbf", k=2, columns=1, *, codes=None, dtype=np.float64, dense=False, bias=-1.0, **changes):
    """Support vectors of k classes, the third row empty; two columns are opposite."""
    rng = np.random.default_rng(k + columns)
    counts = [4, 7, 5, 6][:k]
    support = (rng.standard_normal((sum(counts), 5)) * (rng.random((sum(counts), 5)) < 0.6)).astype(dtype)
    support[2] = 0
    csr = sparse.csr_array(support)
    rows = support if dense else CSR(csr.data, csr.indices, csr.indptr, 5)
    weights = rng.standard_normal((sum(counts), columns))
    if codes is not None and k > 2:
        weights[np.repeat(np.array(codes) == 0, counts, axis=0)] = 0
    if k == columns == 2 and codes is None:
        weights[:, 0] = -weights[:, 1]
    values = {"support_counts": counts, "intercept": (bias**2 if bias > 0 else 0.0) * weights.sum(axis=0),
              "n_features": 5, "solver": "ldm", "params": {"C": 2.0}, "info": INFO, "bias": bias, "codes": codes}
    return KernelModel(Kernel(kind, **KERNELS.get(kind, {})), rows, weights, np.sort([3, 7, -2, 11][:k]),
                       **{**values, **changes})


def own_codes(how, k):
    return codes_of(how, k, 0).tolist()


KINDS_OF_COLUMNS = {
    "sign": (2, 1, None, "c_svc"), "two columns": (2, 2, None, "c_svc"), "joint": (4, 4, None, "marginlinear"),
    "pairs of 3": (3, 3, own_codes("ovo", 3), "c_svc"), "pairs of 4": (4, 6, own_codes("ovo", 4), "c_svc"),
    "ecoc": (4, 7, own_codes("ecoc", 4), "marginlinear"),
    "two classes with codes": (2, 2, [[1, -1], [-1, 1]], "marginlinear"),
}


@pytest.mark.parametrize("columns", KINDS_OF_COLUMNS)
@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("options", [{}, {"bias": 1.5}, {"dtype": np.float32}, {"dense": True}], ids=str)
def test_kernel_models_round_trip(tmp_path, kind, columns, options):
    k, width, codes, svm_type = KINDS_OF_COLUMNS[columns]
    model = kernel_model(kind, k, width, codes=codes, **options)
    data = saved(model, tmp_path / "m")
    assert data.startswith(f"svm_type {svm_type}\nkernel_type ".encode())
    back = load_model(tmp_path / "m")
    assert back.weights.tobytes() == model.weights.tobytes()
    assert back.weights.shape == model.weights.shape
    assert back.intercept.tolist() == model.intercept.tolist()
    assert back.classes.tolist() == model.classes.tolist()
    assert (back.codes is None) if codes is None else np.array_equal(back.codes, codes)
    assert back.support_counts.tolist() == model.support_counts.tolist()
    assert (back.bias, back.solver, back.n_features, back.params) == (model.bias, "ldm", 5, model.params)
    for name in ("kind", *KERNELS[kind]):
        assert getattr(back.kernel, name) == getattr(model.kernel, name)
    X = np.random.default_rng(0).standard_normal((40, 5))
    assert np.allclose(back.decision_function(X), model.decision_function(X), rtol=1e-12, atol=1e-12)
    assert (back.predict(X) == model.predict(X)).all()
    assert saved(back, tmp_path / "again") == data


def test_kernel_layout(tmp_path):
    support = CSR(np.array([0.25, -1, 3]), np.array([0, 6, 1]), np.array([0, 2, 2, 3]), 9)
    model = KernelModel(Kernel("poly", gamma=0.5, degree=2, coef0=0.1), support, [[0.5], [1 / 3], [-2.0]], [-1, 4],
                        support_counts=[1, 2], intercept=[-0.25], n_features=9, bias=1.0, solver="ldm")
    lines = saved(model, tmp_path / "m").decode().split("\n")
    assert lines[:13] == [
        "svm_type c_svc", "kernel_type polynomial", "degree 2", "gamma 0.5", "coef0 0.10000000000000001", "nr_class 2",
        "total_sv 3", "rho 0.25", "label 4 -1", "nr_sv 2 1", "SV", "0.5 1:0.25 7:-1", "0.3333333333333333"]
    assert lines[13:15] == ["-2 2:3", "marginlinear 1"]
    trailer = json.loads(lines[15])
    assert (trailer["bias"], trailer["columns"], trailer["nr_feature"]) == (1.0, 1, 9)


def test_pairs_have_libsvms_places(tmp_path):
    """Class 0 has the pairs (0, 1), (0, 2) in places 0 and 1, class 1 (0, 1), (1, 2), class 2 (0, 2), (1, 2)."""
    weights = [[1, 2, 0], [3, 0, 4], [0, 5, 6]]
    model = KernelModel(Kernel("linear"), np.eye(3), weights, [5, 6, 7], support_counts=[1, 1, 1], intercept=[1, 2, 3],
                        n_features=3, codes=codes_of("ovo", 3, 0))
    lines = saved(model, tmp_path / "m").decode().split("\n")
    assert lines[:8] == ["svm_type c_svc", "kernel_type linear", "nr_class 3", "total_sv 3", "rho -1 -2 -3",
                         "label 5 6 7", "nr_sv 1 1 1", "SV"]
    assert lines[8:11] == ["1 2 1:1", "3 4 2:1", "5 6 3:1"]


def test_a_precomputed_kernel_has_row_numbers(tmp_path):
    model = KernelModel(Kernel("precomputed"), np.array([4, 0, 2]), [[1.0], [2.0], [-3.0]], [0, 1],
                        support_counts=[1, 2], intercept=[0.5], n_features=6)
    data = saved(model, tmp_path / "m")
    assert b"\nSV\n1 0:5\n2 0:1\n-3 0:3\nmarginlinear 1\n" in data
    back = load_model(tmp_path / "m")
    assert back.support.tolist() == [4, 0, 2] and back.n_features == 6
    assert back.decision_function(np.eye(6)).tolist() == [2.5, 0.5, -2.5, 0.5, 1.5, 0.5]
    assert saved(back, tmp_path / "again") == data


def test_no_support_vectors(tmp_path):
    model = KernelModel(Kernel("rbf", gamma=1.0), CSR(np.zeros(0), np.zeros(0, np.int32), np.zeros(1, np.int64), 4),
                        np.zeros((0, 1)), [0, 1], support_counts=[0, 0], intercept=[0.0], n_features=4)
    save_model(model, tmp_path / "m")
    assert load_model(tmp_path / "m").predict(np.eye(4)).tolist() == [0] * 4


def test_blocks_of_support_vectors(tmp_path):
    rng = np.random.default_rng(0)
    support = sparse.csr_array(rng.standard_normal((30_000, 12)))
    model = KernelModel(Kernel("rbf", gamma=1.0), CSR(support.data, support.indices, support.indptr, 12),
                        rng.standard_normal((30_000, 1)) * 10.0 ** rng.integers(-300, 300, (30_000, 1)), [0, 1],
                        support_counts=[10_000, 20_000], intercept=[0.0], n_features=12)
    save_model(model, tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert back.weights.tobytes() == model.weights.tobytes()
    assert back.support.data.tobytes() == support.data.tobytes()
    assert (back.support.indices == support.indices).all() and (back.support.indptr == support.indptr).all()


@pytest.mark.parametrize("changes, reason", [
    ({"kernel": Kernel(np.dot)}, "its kernel is a Python function"), ({"intercept": [math.nan]}, "a coefficient"),
    ({"bias": math.nan}, "bias = nan"), ({"dual_coef": np.full((11, 1), math.inf)}, "a coefficient that is not finite"),
])
def test_kernel_models_that_cannot_be_saved(tmp_path, changes, reason):
    model = kernel_model()
    values = {"kernel": model.kernel, "support": model.support_rows, "dual_coef": model.dual_coef,
              "classes": model.classes, "support_counts": model.support_counts, "intercept": model.intercept,
              "n_features": 5}
    with pytest.raises(ValueError, match=reason):
        save_model(KernelModel(**{**values, **changes}), tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_every_truncation_of_a_kernel_model_is_found(tmp_path):
    data = saved(kernel_model("poly"), tmp_path / "m")
    end = data.index(b"marginlinear")
    for size in range(len(data)):
        if size == end:
            assert load_model(io.BytesIO(data[:size])).info is None
        else:
            with pytest.raises(DataError):
                load_model(io.BytesIO(data[:size]))


@pytest.mark.parametrize("columns", ["sign", "joint"])
def test_every_flipped_bit_of_a_kernel_model_is_found(tmp_path, columns):
    k, width, codes, _ = KINDS_OF_COLUMNS[columns]
    data = saved(kernel_model("poly", k, width, codes=codes), tmp_path / "m")
    for at in range(0, len(data), 1 if k == 2 else 7):
        for bit in range(8):
            with pytest.raises(DataError):
                load_model(io.BytesIO(data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]))


def test_random_bytes_in_a_kernel_model_are_refused(tmp_path):
    rng = np.random.default_rng(1)
    data = saved(kernel_model(), tmp_path / "m")
    for _ in range(1000):
        low, high = sorted(rng.integers(0, len(data), 2))
        with pytest.raises(DataError):
            load_model(io.BytesIO(data[:low] + rng.bytes(int(rng.integers(0, 40))) + data[high + 1 :]))


SMALL = b"""svm_type c_svc
kernel_type rbf
gamma 0.5
nr_class 2
total_sv 3
rho 0.25
label 1 -1
nr_sv 1 2
SV
0.5 1:0.25 7:-1
-0.25 2:3
-0.25
"""
HOSTILE_KERNELS = {
    "svm type": (b"c_svc", b"c_svm", 1, 10, "unknown svm type."),
    "svr": (b"c_svc", b"epsilon_svr", 7, 1, "label does not go with a model without classes"),
    "one class svm": (b"c_svc", b"one_class", 7, 1, "label does not go with a model without classes"),
    "kernel": (b"rbf", b"rfb", 2, 13, "unknown kernel function."),
    "kernel missing": (b"kernel_type rbf\n", b"", 8, 1, "kernel_type is missing before its support vectors"),
    "gamma missing": (b"gamma 0.5\n", b"", 8, 1, "gamma is missing"),
    "gamma not finite": (b"gamma 0.5", b"gamma 1e999", 3, 7, "finite"),
    "gamma negative": (b"gamma 0.5", b"gamma -0.5", 3, 7, "out of range"),
    "gamma text": (b"gamma 0.5", b"gamma x", 3, 7, "'x': give a finite number"),
    "degree of rbf": (b"gamma 0.5", b"degree 2\ngamma 0.5", 3, 1, "degree does not go with kernel_type rbf"),
    "unknown key": (b"gamma 0.5", b"gamma 0.5\nbias 1", 4, 1, "unknown text in model file: [bias]"),
    "key twice": (b"gamma 0.5", b"gamma 0.5\ngamma 0.5", 4, 1, "gamma stands in line 3 already"),
    "one class": (b"nr_class 2\ntotal_sv 3\nrho 0.25\nlabel 1 -1", b"nr_class 1\ntotal_sv 3\nrho 0.25\nlabel 1", 4,
                  10, "decides nothing"),
    "rho twice": (b"rho 0.25", b"rho 0.25 1", 6, 5, "rho has 2 values in place of 1"),
    "rho nan": (b"rho 0.25", b"rho nan", 6, 5, "'nan': give a finite number"),
    "nr_sv short": (b"nr_sv 1 2", b"nr_sv 3", 8, 7, "nr_sv has 1 values in place of 2"),
    "nr_sv sum": (b"nr_sv 1 2", b"nr_sv 1 3", 8, 7, "nr_sv has a sum of 4, total_sv is 3"),
    "nr_sv negative": (b"nr_sv 1 2", b"nr_sv -1 4", 8, 7, "give a number of support vectors"),
    "total_sv huge": (b"total_sv 3\nrho 0.25\nlabel 1 -1\nnr_sv 1 2", b"total_sv 4611686018427387904\nrho 0.25\n"
                      b"label 1 -1\nnr_sv 4611686018427387903 1", 9, 1, "do not fit into"),
    "codes": (b"rho 0.25", b"rho 0.25\ncodes + -", 7, 1, "codes do not go with"),
    "probB missing": (b"rho 0.25", b"rho 0.25\nprobA -1", 10, 1, "probB is missing"),
    "probA missing": (b"rho 0.25", b"rho 0.25\nprobB -1", 10, 1, "probA is missing"),
    "probA twice": (b"rho 0.25", b"rho 0.25\nprobA -1 2\nprobB 0", 7, 7, "probA has 2 values in place of 1"),
    "probB nan": (b"rho 0.25", b"rho 0.25\nprobA -1\nprobB nan", 8, 7, "'nan': give a finite number"),
    "probA of ours": (b"svm_type c_svc", b"svm_type marginlinear\nprobA -1\nprobB 0", 2, 1, "probA does not go with"),
    "marks of classes": (b"rho 0.25", b"rho 0.25\nprob_density_marks 1", 7, 1, "prob_density_marks does not go with"),
    "coefficient nan": (b"-0.25 2:3", b"nan 2:3", 11, 1, "'nan' is not a finite number"),
    "coefficient text": (b"-0.25 2:3", b"-0.25x 2:3", 11, 1, "'-0.25x' is not a finite number"),
    "no coefficient": (b"-0.25 2:3", b"2:3", 11, 1, "'2:3' is not a finite number"),
    "two coefficients": (b"-0.25 2:3", b"-0.25 1 2:3", 11, 7, "'1' is not of the form index:value"),
    "empty line": (b"-0.25 2:3", b"", 11, 1, "fewer than 1 coefficients"),
    "value nan": (b"-0.25 2:3", b"-0.25 2:nan", 11, 9, "value 'nan' is not finite"),
    "value text": (b"-0.25 2:3", b"-0.25  2:3 4:x", 11, 14, "value 'x' is not a number"),
    "indices fall": (b"-0.25 2:3", b"-0.25 2:3 1:3", 11, 11, "comes after index 2"),
    "index 0": (b"-0.25 2:3", b"-0.25 0:3", 11, 7, "index 0"),
    "comment": (b"-0.25 2:3", b"-0.25 2:3 # 4:5", 11, 11, "'#' in a support vector"),
    "short": (b"-0.25\n", b"", 0, 0, "the file ends in support vector 3 of 3"),
    "half a line": (b"-0.25\n", b"-0.25", 0, 0, "the file ends in support vector 3 of 3"),
    "long": (b"-0.25\n", b"-0.25\n-0.25\n", 13, 1, "'-0.25\\n' after the last row"),
    "listed labels": (b"label 1 -1", b'classes ["a", "b"]', 0, 0, "the file ends after its last row"),
    "own type": (b"c_svc", b"marginlinear", 0, 0, "the file ends after its last row"),
}


def test_marks_of_one_class_are_read_over(tmp_path):
    """svm-train -s 2 -b 1 of LIBSVM 3.3 writes them."""
    marks = " ".join(f"{0.1 * at:.17g}" for at in range(10)).encode()
    text = SMALL.replace(b"c_svc", b"one_class").replace(b"label 1 -1\nnr_sv 1 2\n", b"")
    for line in (b"", b"prob_density_marks " + marks + b"\n"):
        (tmp_path / "m").write_bytes(text.replace(b"total_sv", line + b"total_sv"))
        found = load_model(tmp_path / "m")
        assert found.classes.tolist() == [-1, 1] and found.intercept.tolist() == [-0.25]
    (tmp_path / "m").write_bytes((tmp_path / "m").read_bytes().replace(b"_marks 0", b"_marks nan"))
    with pytest.raises(DataError, match="prob_density_marks is 'nan': give a finite number"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("case", HOSTILE_KERNELS)
def test_hostile_kernel_models_are_refused_with_their_place(tmp_path, case):
    old, new, line, column, reason = HOSTILE_KERNELS[case]
    assert old in SMALL
    (tmp_path / "m").write_bytes(SMALL.replace(old, new) if SMALL.count(old) == 1 else SMALL.removesuffix(old) + new)
    with pytest.raises(DataError) as caught:
        load_model(tmp_path / "m")
    error = caught.value
    assert reason in error.reason
    assert (error.path, error.line, error.column) == (str(tmp_path / "m"), line, column)
    assert len(error.reason) < 400


@pytest.mark.parametrize("old, new, reason", [
    (b'"columns": 1', b'"columns": 3', "the trailer has 3 columns"),
    (b'"bias": -1.0', b'"bias": 1e999', "'1e999' is not finite"),
    (b'"bias": -1.0', b'"bias": 1' + b"0" * 400, "is beyond 64 bits"),
    (b'"nr_feature": 5', b'"nr_feature": 4', "nr_feature is 4, and the support vectors reach 5"),
    (b'"nr_feature": 5', b'"nr_feature": 2147483648', "nr_feature is 2147483648"),
    (b'"nr_feature": 5, ', b"", "nr_feature is missing"),
    (b'"columns": 1', b'"columns": "1"', "'columns' is '1'"),
])
def test_hostile_trailers_of_kernel_models(tmp_path, old, new, reason):
    (tmp_path / "m").write_bytes(replaced(old, new)(saved(kernel_model(), tmp_path / "m")))
    with pytest.raises(DataError, match=reason):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("line", [b"0:0", b"0:1.5", b"1:1", b"0:1 1:1", b"", b"0:-1"])
def test_hostile_row_numbers(tmp_path, line):
    text = SMALL.replace(b"rbf\ngamma 0.5", b"precomputed").replace(b"1:0.25 7:-1", b"0:3").replace(b"2:3", line)
    (tmp_path / "m").write_bytes(text.replace(b"\n-0.25\n", b"\n-0.25 0:2\n"))
    with pytest.raises(DataError, match="m:10:1: not a row number of a precomputed kernel"):
        load_model(tmp_path / "m")


@needs_libsvm
@pytest.mark.parametrize("columns", [name for name, case in KINDS_OF_COLUMNS.items() if case[3] == "c_svc"])
@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("bias", [-1.0, 1.5])
def test_libsvm_predicts_with_ours(tmp_path, kind, columns, bias):
    k, width, codes, _ = KINDS_OF_COLUMNS[columns]
    model = kernel_model(kind, k, width, codes=codes, bias=bias)
    save_model(model, tmp_path / "m")
    X, y = some_data(k, 1)
    X = np.hstack([X, np.random.default_rng(2).standard_normal((60, 1))])  # a feature that was not trained on
    X[:2] = 0
    (tmp_path / "d").write_text(text_of(X, y))
    subprocess.run([SVM_PREDICT, "d", "m", "out"], cwd=tmp_path, check=True, capture_output=True)
    theirs = [int(label) for label in (tmp_path / "out").read_text().split()]
    # The rows of a file may have features that were not trained on.
    rows = read_libsvm(tmp_path / "d")
    assert model.predict(rows).tolist() == theirs
    assert load_model(tmp_path / "m").predict(rows).tolist() == theirs


@needs_libsvm
@pytest.mark.parametrize("changes", [{"classes": ["a", "b"]}, {"classes": [0.5, 1.5]}, {"k": 4, "columns": 4}])
def test_libsvm_refuses_what_it_would_mistake(tmp_path, changes):
    model = kernel_model(**{name: value for name, value in changes.items() if name != "classes"})
    model.classes = np.asarray(changes.get("classes", model.classes))
    save_model(model, tmp_path / "m")
    (tmp_path / "d").write_text("1 1:1\n")
    done = subprocess.run([SVM_PREDICT, "d", "m", "out"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "unknown" in done.stderr


@needs_libsvm
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("kernel", range(4))
@pytest.mark.parametrize("options", [[], ["-s", "1", "-n", "0.2"], ["-b", "1"]], ids=str)
def test_models_of_libsvm_predict_as_there(tmp_path, kernel, k, options):
    X, y = some_data(k, kernel)
    (tmp_path / "d").write_text(text_of(X, y))
    arguments = ["-q", "-t", str(kernel), "-g", "0.3", "-r", "0.5", "-d", "2", *options]
    subprocess.run([SVM_TRAIN, *arguments, "d", "m"], cwd=tmp_path, check=True, capture_output=True)
    X, _ = some_data(k, 99)
    (tmp_path / "d").write_text(text_of(X, y))
    subprocess.run([SVM_PREDICT, "d", "m", "out"], cwd=tmp_path, check=True, capture_output=True)
    theirs = [int(label) for label in (tmp_path / "out").read_text().split()]
    model = load_model(tmp_path / "m")
    assert model.predict(X).tolist() == theirs
    assert (model.solver, model.info) == ("nu_svc" if "-s" in options else "c_svc", None)
    save_model(model, tmp_path / "ours")
    subprocess.run([SVM_PREDICT, "d", "ours", "out"], cwd=tmp_path, check=True, capture_output=True)
    assert [int(label) for label in (tmp_path / "out").read_text().split()] == theirs


def predictions(path):
    """(labels of the head, labels, probabilities) of what svm-predict -b 1 or margin-predict -b 1 wrote."""
    head, *lines = [line.split() for line in path.read_text().splitlines()]
    return head[1:], np.array([line[0] for line in lines]), np.array([line[1:] for line in lines], dtype=float)


@needs_libsvm
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("options", [["-t", "0"], ["-t", "2", "-g", "0.3"], ["-s", "1", "-n", "0.3"]], ids=str)
def test_probabilities_of_libsvms_models(tmp_path, k, options):
    rng = np.random.default_rng(k)
    y = rng.choice([3, 7, -2, 11][:k], 120)
    X = rng.standard_normal((120, 5)) + (y / 4)[:, None] * (rng.random(5) < 0.6)
    (tmp_path / "d").write_text(text_of(X, y))
    subprocess.run([SVM_TRAIN, "-q", "-b", "1", *options, "d", "m"], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([SVM_PREDICT, "-b", "1", "d", "m", "theirs"], cwd=tmp_path, check=True, capture_output=True)
    data, model, out = (str(tmp_path / name) for name in ("d", "m", "ours"))
    assert predict.main(["-q", "-b", "1", data, model, out]) == 0
    head, labels, expected = predictions(tmp_path / "theirs")
    our_head, our_labels, found = predictions(tmp_path / "ours")
    # Ours are those of the votes, as without -b 1: where LIBSVM says another, the probabilities are moved.
    same = labels == our_labels
    assert our_head == head and same.mean() > 0.7
    assert (np.array(head)[found.argmax(axis=1)] == our_labels).all()
    # LIBSVM prints 6 digits, and of more than two classes stops iterating at a residual of 0.005/k.
    assert np.allclose(found[same], expected[same], rtol=0, atol=1e-6 if k == 2 else 0.01)
    again = load_model(model)
    save_model(again, tmp_path / "copy")
    assert load_model(tmp_path / "copy").calibration == again.calibration
    subprocess.run([SVM_PREDICT, "-b", "1", "d", "copy", "out"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "theirs").read_bytes()


@needs_libsvm
def test_libsvm_serves_our_probabilities_of_two_classes(tmp_path):
    X, y = some_data(2, 4)
    X[:, 0] += y
    model = train(X, y, solver="l1svc", kernel="rbf", probability=True)
    save_model(model, tmp_path / "m")
    (tmp_path / "d").write_text(text_of(X, y))
    subprocess.run([SVM_PREDICT, "-b", "1", "d", "m", "out"], cwd=tmp_path, check=True, capture_output=True)
    head, labels, found = predictions(tmp_path / "out")
    assert head == [str(label) for label in model.classes[::-1]]
    same = labels == model.predict(X).astype(str)
    assert same.mean() > 0.9 and np.allclose(found[same], model.predict_proba(X)[same, ::-1], rtol=1e-5)
    assert load_model(tmp_path / "m").calibration == model.calibration
    # Where votes are calibrated LIBSVM has no words for it.
    X, y = some_data(3, 4)
    save_model(train(X, y, solver="l1svc", kernel="rbf", multiclass="ovo", probability=True), tmp_path / "m")
    assert b"probA" not in (tmp_path / "m").read_bytes()


@pytest.mark.parametrize("new, reason", [
    (b'"slope": [1.0, 2.0, 3.0]', None), (b'"slope": [1.0, 2.0]', "slope has shape"),
    (b'"slope": [1.0, 2.0, "3"]', "slope is not a list of numbers"), (b'"slope": 1.0', "slope has shape"),
    (b'"slope": [1.0, 2.0, 1e999]', "'1e999' is not finite"), (b'"slope": [1.0, 2.0, true]', "slope is not a list"),
])
def test_hostile_calibrations_of_pairs(tmp_path, new, reason):
    model = kernel_model(k=3, columns=3, codes=codes_of("ovo", 3, 0))
    model.calibration = Calibration(PAIRWISE, (1.0, 2.0, 4.0), (0.0, -0.5, 0.5))
    save_model(model, tmp_path / "m")
    assert b"\nprobA -1 -2 -4\nprobB 0 0.5 -0.5\nnr_sv " in (tmp_path / "m").read_bytes()
    (tmp_path / "m").write_bytes(replaced(b'"slope": [1.0, 2.0, 4.0]', new)((tmp_path / "m").read_bytes()))
    if reason is None:
        assert load_model(tmp_path / "m").calibration.slope == (1.0, 2.0, 3.0)
        return
    with pytest.raises(DataError, match=reason):
        load_model(tmp_path / "m")


@needs_libsvm
def test_a_precomputed_model_of_libsvm(tmp_path):
    X, y = some_data(2, 5)
    K = X @ X.T
    lines = (" ".join([f"{label} 0:{i}", *(f"{j}:{v!r}" for j, v in enumerate(row, 1))])
             for i, (label, row) in enumerate(zip(y, K.tolist(), strict=True), 1))
    (tmp_path / "d").write_text("\n".join(lines) + "\n")
    subprocess.run([SVM_TRAIN, "-q", "-t", "4", "d", "m"], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([SVM_PREDICT, "d", "m", "out"], cwd=tmp_path, check=True, capture_output=True)
    theirs = [int(label) for label in (tmp_path / "out").read_text().split()]
    assert load_model(tmp_path / "m").predict(K).tolist() == theirs
