"""Rows on disk: what is written, what is refused, and fits that go over them."""

import gc
import gzip
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import marginlinear as ml
from marginlinear import registry
from marginlinear.cli.inspect import main as inspect_main
from marginlinear.cli.predict import main as predict_main
from marginlinear.cli.scale import main as scale_main
from marginlinear.cli.train import main as train_main
from marginlinear.errors import DataError
from marginlinear.store import layout, paging, writer

DATA = Path(__file__).resolve().parent.parent / "data"


@pytest.fixture(autouse=True)
def nothing_watches_what_is_gone():
    yield
    gc.collect()
    end = time.monotonic() + 5
    while any(thread.name == paging.WATCH for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def small(monkeypatch):
    """Chunks of 2,000 values and arrays on disk from 1 kB on, so that small sets are large."""
    monkeypatch.setattr(layout, "CHUNK", 2000)
    monkeypatch.setattr(paging, "LITTLE", 1024)


def rows_of(store):
    blocks = list(store.X_blocks())
    return (csr_array((np.concatenate([X.data for X, _ in blocks]), np.concatenate([X.indices for X, _ in blocks]),
                       store.indptr), shape=store.shape), np.concatenate([y for _, y in blocks]))


def assert_same(store, X, y):
    found, labels = rows_of(store)
    assert found.shape == X.shape and labels.dtype == y.dtype
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(X, name))
        np.testing.assert_array_equal(getattr(store, name), getattr(X, name))
    np.testing.assert_array_equal(labels, y)
    np.testing.assert_allclose(store.sqnorms, np.asarray(X.multiply(X).sum(axis=1)), rtol=1e-14)
    classes, counts = np.unique(y, return_counts=True)
    np.testing.assert_array_equal(store.classes, classes)
    np.testing.assert_array_equal(store.class_counts, counts)
    assert store.nonzeros == np.count_nonzero(X.data) and store.m == X.shape[0]


# What is written


@pytest.mark.parametrize("labels", [[True, False], [1, True], [0.5, True], [np.int8(1), np.uint16(2)], ["a", "bc"]])
def test_labels_of_any_type_open_again(tmp_path, labels):
    store = ml.Store.write([(np.eye(2), np.array([label] * 2)) for label in labels], tmp_path / "s")
    assert store.y.tolist() == [label for label in labels for _ in range(2)]
    assert len(store.classes) == len(set(labels))


@pytest.mark.parametrize("name", ["glass", "news20.train"])
@pytest.mark.parametrize("kind", ["plain", "gz", "pipe"])
def test_text_becomes_the_rows_that_load_libsvm_reads(tmp_path, small, name, kind):
    path = DATA / name
    X, y = ml.load_libsvm(path)
    source = path
    if kind == "gz":
        source = tmp_path / "x.gz"
        source.write_bytes(gzip.compress(path.read_bytes()))
    elif kind == "pipe":
        source = tmp_path / "pipe"
        os.mkfifo(source)
        threading.Thread(target=lambda: source.write_bytes(path.read_bytes()), daemon=True).start()
    store = ml.Store.write(source, tmp_path / "x.store")
    assert_same(store, X, y)
    assert len(store.chunks) > 3 or name == "glass"
    assert_same(pickle.loads(pickle.dumps(store)), X, y)
    assert [*tmp_path.glob(".*")] == []


def test_types_are_the_narrowest_that_hold_all(tmp_path, monkeypatch):
    """Whatever stands in the last rows: columns are written again in a wider type."""
    monkeypatch.setattr(writer, "NUMBERS", 7)
    texts = {("<f4", "<u2"): ["1 1:0.5 65536:2", "2 3:7"], ("<f8", "<i4"): ["1 1:0.5", "2 1:0.5 65537:0.1"],
             ("<f8", "<u2"): ["1 1:0.5", "2 7:1e-60"], ("<f4", "<i4"): ["1 1:3", "2 1000000:1"]}
    monkeypatch.setattr(writer, "BLOCK", 32)
    for (values, indices), lines in texts.items():
        path, text = tmp_path / f"{values}{indices}", "".join(f"{lines[0]}\n" * 20 + f"{lines[1]}\n")
        path.write_text(text)
        store = ml.Store.write(path, tmp_path / f"{path.name}.store")
        assert store.meta["types"]["values"] == values and store.meta["types"]["indices"] == indices
        X, y = ml.load_libsvm(path)
        assert_same(store, X, y)
    store = ml.Store.write(tmp_path / "<f8<u2", tmp_path / "single", dtype="float32")
    assert store.data.dtype == np.float32
    # NumPy itself reads the files.
    np.testing.assert_array_equal(np.load(tmp_path / "single" / "values.npy"), store.data)


def test_chunks_hold_whole_rows(tmp_path, small):
    lengths = [0, 0, 3000, 0, 1999, 1, 1, 2000, 2001, 0, 5, 0]
    parts = [(csr_array(np.ones((1, length)) if length else np.zeros((1, 1))), [i % 2])
             for i, length in enumerate(lengths)]
    store = ml.Store.write(parts, tmp_path / "s")
    begins = store.indptr[store.chunks]
    assert store.chunks[0] == 0 and store.chunks[-1] == len(lengths) and (np.diff(store.chunks) > 0).all()
    for first, last, size in zip(store.chunks[:-1], store.chunks[1:], np.diff(begins), strict=True):
        assert size <= 2000 or last - first == 1 or store.indptr[last - 1] == begins[list(store.chunks).index(first)]
    assert_same(store, *rows_of(store))


def test_pairs_of_anything(tmp_path):
    """Dense, sparse of any format, of other widths and types of labels."""
    rng = np.random.default_rng(0)
    X = random_array((30, 8), density=0.5, random_state=rng, format="csr")
    y = rng.integers(0, 3, 30)
    parts = [(X[:10].toarray(), y[:10]), (X[10:20].tocsc(), y[10:20].astype(np.int8)), (X[20:], list(y[20:]))]
    store = ml.Store.write(iter(parts), tmp_path / "s", n_features=9)
    full = csr_array((X.data, X.indices, X.indptr), shape=(30, 9))
    assert (rows_of(store)[0] != full).nnz == 0 and store.y.dtype == np.int64
    store = ml.Store.write([(X[:10], np.array(["a"] * 10)), (X[10:], np.array(["word"] * 20))], tmp_path / "words")
    assert store.classes.tolist() == ["a", "word"] and store.y.dtype.kind == "U"
    store = ml.Store.write([(X[:2], [1e300, 0.5]), (X[2:3], [7])], tmp_path / "floats")
    assert store.classes.tolist() == [0.5, 7, 1e300]


@pytest.mark.parametrize("parts, words", [
    ([(np.ones((2, 2)), [1, 2]), (np.array([[1.0, np.nan]]), [1])], "pair 1 of the source: X: row 0, feature 1 is nan"),
    ([(np.ones((2, 2)), [1, 2]), (np.ones((3, 2)), [1])], "pair 1 of the source: X has 3 rows, y has 1 labels"),
    ([(np.ones((2, 2)), [1, 2]), 3], "pair 1 of the source"),
    ([(np.ones((2, 2)), ["a", "b"]), (np.ones((1, 2)), [3])], "all numbers or all strings"),
    ([(np.ones((1, 2)), [2**60 + 1]), (np.ones((1, 2)), [0.5])], "all integers, or all within"),
    ([(np.ones((1, 2)), ["two words"])], "a label is one word"),
    ([], "no rows"),
])
def test_wrong_pairs_leave_nothing(tmp_path, parts, words):
    with pytest.raises(ValueError, match=words):
        ml.Store.write(parts, tmp_path / "s")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("source, how, error, words", [
    ("x", {"dtype": "int8"}, ValueError, "dtype = 'int8'"), ("x", {"threads": 0}, ValueError, "threads = 0"),
    ("x", {"n_features": 0}, ValueError, "n_features = 0"), ("x", {"progress": 3}, TypeError, "progress = 3"),
    ([], {"zero_based": True}, ValueError, "leave them out"), (np.ones((2, 2)), {}, TypeError, "source is ndarray"),
])
def test_wrong_parameters_are_refused_before_the_source_is_opened(tmp_path, source, how, error, words):
    with pytest.raises(error, match=words):
        ml.Store.write(source, tmp_path / "s", **how)


def test_a_wrong_file_leaves_nothing(tmp_path):
    path = tmp_path / "x"
    path.write_text("1 1:1\n2 2:x\n")
    with pytest.raises(DataError, match="x:2:5"):
        ml.Store.write(path, tmp_path / "s")
    with pytest.raises(ValueError, match="n_features = 1"):
        ml.Store.write([(np.ones((2, 2)), [1, 2])], tmp_path / "s", n_features=1)
    assert [*tmp_path.iterdir()] == [path]


def test_nothing_is_replaced_unless_asked(tmp_path):
    parts = [(np.ones((2, 2)), [1, 2])]
    (tmp_path / "mine").mkdir()
    for how in (False, True):
        with pytest.raises((FileExistsError, DataError)):
            ml.Store.write(parts, tmp_path / "mine", overwrite=how)
    ml.Store.write(parts, tmp_path / "s")
    with pytest.raises(FileExistsError, match="remove it"):
        ml.Store.write(parts, tmp_path / "s")
    (tmp_path / "link").symlink_to("s")
    assert ml.Store.write([(np.ones((3, 2)), [1, 2, 3])], tmp_path / "link", overwrite=True).m == 3
    assert ml.Store(tmp_path / "s").m == 3 and (tmp_path / "link").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "s", "link"}


def test_conversions_to_one_name_leave_each_other_alone(tmp_path):
    """The first to end is there, the other says so."""
    pair = np.ones((2, 2)), [1, 2]

    def parts():
        yield pair
        ml.Store.write([pair, pair], tmp_path / "s")
        yield pair

    with pytest.raises(OSError, match=rf"not empty.*{tmp_path}/s"):
        ml.Store.write(parts(), tmp_path / "s")
    assert ml.Store(tmp_path / "s").m == 4 and [*tmp_path.iterdir()] == [tmp_path / "s"]


# What is refused


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


@pytest.fixture
def glass(tmp_path, small):
    ml.Store.write(DATA / "glass", tmp_path / "glass.store")
    return tmp_path / "glass.store"


@pytest.mark.parametrize("name", [*layout.LARGE, *layout.SMALL])
def test_a_flipped_bit_is_found_and_its_file_named(glass, name):
    path = glass / f"{name}.npy"
    flip(path, path.stat().st_size - 3)
    with pytest.raises(DataError, match=rf"{name}\.npy.*CRC-32.*write the store again"):
        ml.train(ml.Store(glass), solver="l2svc")


@pytest.mark.parametrize("name", ["meta.json", *(f"{name}.npy" for name in (*layout.LARGE, *layout.SMALL))])
def test_what_is_cut_or_missing_is_named(glass, name):
    path = glass / name
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    if name != "meta.json":  # its last byte is the end of a line
        with pytest.raises(DataError, match=name):
            ml.Store(glass)
    path.write_bytes(data[:20])
    with pytest.raises(DataError, match=name):
        ml.Store(glass)
    path.unlink()
    with pytest.raises(DataError, match=name):
        ml.Store(glass)


def test_other_versions_and_edited_descriptions(glass):
    path = glass / "meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({**meta, "format": 2}))
    with pytest.raises(DataError, match="format '2', and this marginlinear knows format 1"):
        ml.Store(glass)
    path.write_text(json.dumps({**meta, "m": meta["m"] - 1}))
    with pytest.raises(DataError, match="sha256"):
        ml.Store(glass)
    for text in ("", "[]", "{}", '{"format": true}', "\xff"):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(DataError, match=r"meta\.json"):
            ml.Store(glass)
    with pytest.raises(DataError, match="no store"):
        ml.Store(glass.parent)


@pytest.mark.parametrize("name, value", [
    ("m", True), ("m", -1), ("nnz", 2.5), ("nonzeros", 10**6), ("chunks", None), ("n_features", 2**31), ("types", []),
    ("crc", {"indptr": 1}), ("classes", 7), ("classes", ["a"] * 6), ("classes", [2**63] * 6), ("class_counts", [214]),
    ("class_counts", [1] * 6), ("source", "glass"), ("source", {"name": 1})])
def test_descriptions_of_what_no_store_has(glass, name, value):
    """With the right digest, too."""
    layout.write_meta(glass, {**ml.Store(glass).meta, name: value})
    with pytest.raises(DataError, match=rf"meta\.json: its {name} is .*write the store again"):
        ml.Store(glass)


@pytest.mark.parametrize("name, dtype", [("values", "|O"), ("values", ">f4"), ("indices", "<i2"), ("labels", "<U0"),
                                         ("labels", "<M8[s]"), ("sqnorms", "(2,)<f8"), ("crc", "no"), ("chunks", 8)])
def test_types_that_no_store_has(glass, name, dtype):
    meta = ml.Store(glass).meta
    layout.write_meta(glass, {**meta, "types": {**meta["types"], name: dtype}})
    with pytest.raises(DataError, match=r"meta\.json: its types is"):
        ml.Store(glass)


@pytest.mark.parametrize("name, at, new, words", [
    ("indices", -2, b"\xff\xff", "row 213 has feature 65535, outside 0 to 8"),
    ("indices", -2, b"\0\0", "row 213 has repeated or falling feature numbers"),
    ("values", -4, b"\0\0\xf8\x7f", "row 213, feature 8 is nan"),
    ("values", -4, b"\0\0\xc0\x7f", "the squares of row 213's values overflow")])
def test_wrong_numbers_under_the_right_sum_are_no_rows(glass, name, at, new, words):
    """Columns become addresses."""
    path = glass / f"{name}.npy"
    data = bytearray(path.read_bytes())
    data[at:len(data) + at + len(new)] = new
    path.write_bytes(data)
    store = ml.Store(glass)
    chunk = len(store.chunks) - 2
    size = layout.mapped(glass, name, store.meta["types"][name], (store.nnz,)).itemsize
    lo, hi = (layout.HEADER + size * int(place) for place in store.indptr[store.chunks[chunk:chunk + 2]])
    store._crc[chunk, layout.LARGE.index(name)] = layout.crc_of(path, lo, hi)
    with pytest.raises(DataError, match=words):
        ml.train(store, solver="l2svc")


def test_rows_are_verified_before_some_are_chosen(tmp_path, small):
    """What is chosen is written to a store of its own, whose sums would be right."""
    rng = np.random.default_rng(0)
    X, y = random_array((2000, 30), density=0.3, random_state=rng, format="csr"), np.arange(2000) % 2
    ml.Store.write([(X, y)], tmp_path / "s")
    flip(tmp_path / "s" / "values.npy", 5001)
    for work in (lambda store: ml.cross_validate(store, solver="l2svc", folds=2),
                 lambda store: ml.train(store, solver="l2svc", sample_weight=y + (np.arange(2000) % 3 == 0))):
        with pytest.raises(DataError, match=r"values\.npy: chunk .*CRC-32"):
            work(ml.Store(tmp_path / "s"))


def test_a_changed_source(tmp_path):
    path = tmp_path / "x"
    path.write_text("1 1:1\n2 2:1\n")
    store = ml.Store.write(path, tmp_path / "s")
    store.require_source(path)
    path.write_text("1 1:2\n2 2:1\n")
    with pytest.raises(DataError, match=r"beginning.*remove the store"):
        store.require_source(path)


def test_a_source_that_is_read_otherwise(tmp_path):
    path = tmp_path / "x"
    path.write_text("1 1:1\n2 2:1\n")
    store = ml.Store.write(path, tmp_path / "s", dtype=np.float32)
    store.require_source(path, dtype="float32")
    for how, word in (({"zero_based": True, "dtype": "float32"}, "zero_based"), ({}, "dtype"),
                      ({"text_labels": True, "dtype": "float32"}, "text_labels")):
        with pytest.raises(DataError, match=rf"otherwise \({word}\)"):
            store.require_source(path, **how)


def test_a_source_that_changes_while_it_is_read(tmp_path):
    path = tmp_path / "x"
    path.write_text("1 1:1\n2 2:1\n")

    def grow(*_):
        with open(path, "a") as stream:
            stream.write("1 1:1\n")

    with pytest.raises(DataError, match="x: the file was changed while it was read"):
        ml.Store.write(path, tmp_path / "s", progress=grow)
    assert [*tmp_path.iterdir()] == [path]


def run(code, *args, **how):
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=60,
                          **how)


WRITE_SLOWLY = """
import sys, time, numpy as np, marginlinear as ml
def parts():
    yield np.ones((5, 3)), [0, 1, 0, 1, 0]
    print("begun", flush=True)
    time.sleep(60)
ml.Store.write(parts(), sys.argv[1])
"""


def test_a_killed_conversion_leaves_nothing_that_opens(tmp_path):
    path = tmp_path / "s"
    with subprocess.Popen([sys.executable, "-c", WRITE_SLOWLY, path], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"begun\n"
        child.send_signal(signal.SIGKILL)
    assert not path.exists() and len([*tmp_path.iterdir()]) == 1
    mine = tmp_path / ".other.123.part"
    mine.mkdir()
    ml.Store.write([(np.ones((2, 2)), [1, 2])], path)
    assert {*tmp_path.iterdir()} == {path, mine}


def test_a_full_disk(tmp_path):
    """Where files may have no more than so many bytes."""
    code = ("import sys, numpy as np, marginlinear as ml\n"
            "part = np.random.default_rng(0).random((1000, 100)), np.arange(1000) % 2\n"
            "try:\n    ml.Store.write([part] * 30, sys.argv[1])\n"
            "except OSError as error:\n    print(error)\n")
    done = run(code, tmp_path / "s", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout and str(tmp_path / "s") in done.stdout
    assert [*tmp_path.iterdir()] == []


# Fits


METHODS = {name: method for name, method in registry.methods().items() if method.stores and method.classifies}
OWN = {"lpmcsvm": {"C": 0.1, "norm": 1.5}, "nusvc": {"nu": 0.3}}


@pytest.fixture(scope="module")
def vehicle():
    X, y = ml.load_libsvm(DATA / "vehicle")
    order = np.argsort(y, kind="stable")
    return X[order], y[order]


# How several binary problems are made of rows on disk is the same for all methods that solve them.
@pytest.mark.parametrize("name, how", [*((name, "ovr") for name in METHODS), ("odm", "ovo"), ("l2svc", "ovo"),
                                       ("odm", "ecoc"), ("l2svc", "ecoc")])
def test_every_method_ends_where_it_ends_in_memory(tmp_path, small, vehicle, name, how, monkeypatch):
    """Of rows that stand in the order of their classes, in windows of two chunks."""
    monkeypatch.setattr(paging, "WINDOW", paging.WINDOW / 10)
    X, y = vehicle
    params = {"solver": name, "tol": 1e-3, **OWN.get(name, {"C": 0.1})}
    if not METHODS[name].joint:
        params["multiclass"] = how
    store = ml.Store.write([(X, y)], tmp_path / "s")
    there, here = ml.train(store, memory=1_000_000, **params), ml.train(X, y, **params)
    assert there.info.status == here.info.status == "converged"
    rounding = 1e-12 * abs(here.info.objective)
    assert there.info.objective - here.info.objective <= there.info.certificate + here.info.certificate + rounding
    assert np.mean(there.predict(X) == here.predict(X)) > 0.95
    assert there.info.passes >= 1 and there.info.bytes_read > 0 and here.info.passes is None


@pytest.mark.parametrize("name, C, algorithm, windows", [
    ("l2svc", 1, "auto", 3), ("l2svc", 10, "accelerated", 40), ("l1svc", 1, "accelerated", 3), ("odm", 0.1, "cd", 40),
    ("ldm", 1, "accelerated", 40)])
def test_sweeps_do_not_depend_on_windows_nor_on_order(tmp_path, small, monkeypatch, name, C, algorithm, windows):
    """As many as in memory, and the certificate is that of all rows, recomputed here."""
    monkeypatch.setattr(layout, "CHUNK", 100)
    rng = np.random.default_rng(3)
    X = random_array((1000, 200), density=0.05, random_state=rng, format="csr")
    y = np.where(X @ rng.standard_normal(200) + 0.3 * rng.standard_normal(1000) > 0, 1, -1)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    store = ml.Store.write([(X, y)], tmp_path / "s")
    params = {"solver": name, "C": C, "tol": 1e-2, "algorithm": algorithm, "seed": 1}
    here = ml.train(X, y, **params)
    memory = int(4 * 10 * X.nnz / windows)
    there = ml.train(store, memory=memory, **params)
    assert len(list(paging.Pager(store, memory).windows(range(len(store.chunks) - 1)))) >= windows - 1
    assert there.info.status == "converged"
    assert there.info.n_iter <= 1.25 * here.info.n_iter + 2
    if name in ("l1svc", "l2svc"):
        w, duals = there.weights[:, 0], np.asarray(there._state.state["duals"])
        signs = np.where(y == 1, 1, -1)
        xi = np.maximum(0, 1 - signs * (X @ w))
        primal = w @ w / 2 + C * (xi.sum() if name == "l1svc" else (xi**2).sum())
        u = X.T @ (signs * duals)
        dual = duals.sum() - u @ u / 2 - (0 if name == "l1svc" else (duals**2).sum() / (4 * C))
        assert (duals >= 0).all() and (name == "l2svc" or (duals <= C).all())
        assert there.info.objective == pytest.approx(primal, rel=1e-10)
        assert primal - dual <= 1e-2 * primal * (1 + 1e-9)
    again = ml.train(store, memory=memory, **params)
    np.testing.assert_array_equal(again.weights, there.weights)


def test_rows_that_fit_a_window_have_the_bits_of_memory(tmp_path, small, vehicle):
    X, y = vehicle
    store = ml.Store.write([(X, y)], tmp_path / "s")
    for name in ("l2svc", "mcodm", "softmax"):
        np.testing.assert_array_equal(ml.train(store, solver=name).weights, ml.train(X, y, solver=name).weights)


def test_results_do_not_depend_on_the_disk(tmp_path, small, vehicle, monkeypatch):
    store = ml.Store.write([vehicle], tmp_path / "s")
    found = ml.train(store, solver="cs", memory=50_000).weights
    read = paging.Pager._read

    def slow(self, chunk):
        time.sleep(0.002)
        self.pages.let_go()
        read(self, chunk)

    monkeypatch.setattr(paging.Pager, "_read", slow)
    np.testing.assert_array_equal(ml.train(store, solver="cs", memory=50_000).weights, found)
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    np.testing.assert_array_equal(ml.train(store, solver="cs", memory=50_000).weights, found)


def test_what_is_read_ahead_is_what_is_asked_for(tmp_path, monkeypatch):
    """In pieces, where the system takes no advice, up to the end of the file."""
    path = tmp_path / "x"
    path.write_bytes(bytes(range(256)))
    monkeypatch.setattr(layout, "PART", 100)
    assert [bytes(piece) for piece in layout.pieces(path, 30, 240)] == [bytes(range(lo, hi)) for lo, hi in (
        (30, 130), (130, 230), (230, 240))]
    assert b"".join(map(bytes, layout.pieces(path, 200, 400))) == bytes(range(200, 256))
    asked, pieces = [], layout.pieces
    monkeypatch.setattr(layout, "pieces", lambda *given: asked.append(given[1:]) or pieces(*given))
    for _ in range(2):
        for ends in (30, 240), (30, 30), (200, 400):
            layout.read_ahead(path, *ends)
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
    assert asked[-3:] == [(30, 240), (30, 30), (200, 400)]


def test_more_sweeps_a_load_need_fewer_passes(tmp_path, small):
    rng = np.random.default_rng(3)
    X = random_array((4000, 300), density=0.05, random_state=rng, format="csr")
    y = np.where(X @ rng.standard_normal(300) + 0.3 * rng.standard_normal(4000) > 0, 1, -1)
    store = ml.Store.write([(X, y)], tmp_path / "s")
    one, three = (ml.train(store, solver="l2svc", C=1, tol=1e-3, algorithm="cd", memory=800_000, sweeps_per_load=turns)
                  for turns in (1, 3))
    assert one.info.converged and three.info.converged
    assert three.info.n_iter <= 0.7 * one.info.n_iter and three.info.passes < one.info.passes
    assert three.info.objective == pytest.approx(one.info.objective, rel=2e-3)
    with pytest.raises(ValueError, match="sweeps_per_load = 0 is not allowed"):
        ml.train(store, sweeps_per_load=0)
    with pytest.raises(ValueError, match="sweeps_per_load = 2 is for a Store"):
        ml.train(X, y, sweeps_per_load=2)


def test_what_train_does_around_a_fit(tmp_path, small, vehicle):
    X, y = vehicle
    store = ml.Store.write([(X, y)], tmp_path / "s")
    for params in ({"scale": "maxabs"}, {"scale": "range", "bias": 1}, {"scale": "unit"}, {"class_weight": "balanced"},
                   {"probability": True}, {"sample_weight": np.arange(len(y)) % 3}):
        there, here = (ml.train(*data, solver="l2svc", **params)
                       for data in ((store,), (X, y)))
        assert there.info.objective == pytest.approx(here.info.objective, rel=3e-3), params
        if "probability" in params:
            np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=0.05)
    there, here = (ml.search(*data, solver="l2svc", grid={"C": [0.01, 1]}, folds=3) for data in ((store,), (X, y)))
    assert there.best_params == here.best_params and there.best_score == pytest.approx(here.best_score, abs=0.01)
    assert [*tmp_path.glob("s/rows-*")] == []


@pytest.mark.parametrize("scale", ["unit", "range", "maxabs"])
def test_held_out_rows_are_scaled(tmp_path, small, vehicle, scale):
    """Of folds and of a calibration: they are on disk, too."""
    X, y = vehicle
    store = ml.Store.write([(X, y)], tmp_path / "s")
    there, here = (ml.cross_validate(*data, solver="l2svc", scale=scale, folds=3) for data in ((store,), (X, y)))
    assert there.score == pytest.approx(here.score, abs=0.01)
    there, here = (ml.train(*data, solver="l2svc", scale=scale, probability=True) for data in ((store,), (X, y)))
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=0.05)


@pytest.mark.parametrize("params", [{"solver": "cs"}, {"solver": "l2svc", "multiclass": "ovo"}, {"scale": "range"},
                                    {"solver": "cs", "kernel": "rbf"}, {"probability": True}])
def test_prediction_goes_over_verified_chunks(tmp_path, small, vehicle, params):
    X, y = vehicle
    model = ml.train(X, y, **{"solver": "l2svc", **params})
    store = ml.Store.write([(X, y)], tmp_path / "s")
    np.testing.assert_array_equal(model.predict(store), model.predict(X))
    assert store.verified.all()
    np.testing.assert_allclose(model.decision_function(store), model.decision_function(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model.margins(store, store.y), model.margins(X, y), rtol=1e-12, atol=1e-12)
    if "probability" in params:
        np.testing.assert_allclose(model.predict_proba(store), model.predict_proba(X), rtol=1e-12)
    store = ml.Store(tmp_path / "s")
    assert ml.margin_report(model, store, store.y).accuracy == np.mean(model.predict(X) == y) and store.verified.all()
    flip(tmp_path / "s" / "values.npy", 5000)
    with pytest.raises(DataError, match=r"values\.npy.*chunk"):
        model.predict(ml.Store(tmp_path / "s"))


def not_whole(store):
    raise AssertionError("all rows of the store were read into memory")


@pytest.mark.parametrize("params", [{"solver": "cs"}, {"solver": "l2svc", "multiclass": "ovo"}, {"scale": "range"},
                                    {"solver": "cs", "kernel": "rbf"}])
def test_margins_are_those_of_rows_in_memory(tmp_path, small, vehicle, monkeypatch, params):
    """A chunk at a time, the rows of weight 0 left out, and those of a chunk that has no other."""
    X, y = vehicle
    model = ml.train(X, y, **{"solver": "l2svc", **params})
    store = ml.Store.write([(X, y)], tmp_path / "s")
    monkeypatch.setattr(ml.Store, "in_memory", not_whole)
    weights = np.arange(len(y)) % 3 * 0.5
    weights[store.chunks[2]:store.chunks[3]] = 0
    for how in ({}, {"sample_weight": weights}):
        there, here = (ml.margin_report(model, rows, y, **how).to_dict() for rows in (store, X))
        lowest = [row.pop("margin") for report in (there, here) for row in report["lowest_rows"]]
        assert lowest[:10] == pytest.approx(lowest[10:], rel=1e-9)
        for name in ("margin", "normalised_margin"):
            ours, theirs = there.pop(name), here.pop(name)
            if theirs is not None:
                assert [level["margin"] for level in ours.pop("quantiles")] == pytest.approx(
                    [level["margin"] for level in theirs.pop("quantiles")], rel=1e-9)
                assert ours == pytest.approx(theirs, rel=1e-9)
        assert there == here
    assert store.verified.all()
    with pytest.raises(ValueError, match="X has 846 rows, y has 845 labels"):
        ml.margin_report(model, store, y[1:])


def test_commands_inspect_and_draw_a_store(tmp_path, small, vehicle, monkeypatch, capfd):
    """As they do its text, where some labels and features are unknown to the model."""
    X, y = vehicle
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(X, y, "text")
    ml.save_model(ml.train(X[y > 1, :-1], y[y > 1], solver="l2svc", probability=True), "m")
    ml.Store.write("text", "s")
    monkeypatch.setattr(ml.Store, "in_memory", not_whole)
    told = []
    for data in "text", "s":
        assert inspect_main(["m", data]) == 0
        out, err = capfd.readouterr()
        assert "values of features above 17" in err and "rows have a label that the model does not know (1)" in err
        told.append((out.replace(f"{data}: ", "DATA: "), err))
    assert told[0] == told[1]
    pytest.importorskip("matplotlib", reason="pip install matplotlib")
    from marginlinear.cli import plot

    for words in (["margins"], ["histogram"], ["reliability"]):
        for data in "text", "s":
            assert plot.main([*words, "-q", "-o", f"{data}.svg", data, "m"]) == 0, capfd.readouterr()
        assert Path("text.svg").read_bytes() == Path("s.svg").read_bytes()


def test_what_needs_all_rows_is_refused(glass):
    store = ml.Store(glass)
    for params, words in (({"solver": "msvmav"}, "msvmav"), ({"solver": "ldm-asgd"}, "ldm-asgd"),
                          ({"solver": "cs", "kernel": "rbf"}, "rbf"),
                          ({"solver": "ldm", "algorithm": "paper"}, "inner products")):
        with pytest.raises(ValueError, match=words):
            ml.train(store, memory=50_000, **params)
    for size in "4X", "0.5", "9" * 400, "9" * 300 + "T":
        with pytest.raises(ValueError, match=f"memory = '{size}' is not allowed"):
            ml.train(store, memory=size)
    with pytest.raises(MemoryError, match=r"need 1,296 bytes .* more than half of memory = 1,000: give at least 2,592"):
        ml.train(store, solver="cs", memory=1000)
    X, y = ml.load_libsvm(DATA / "glass")
    with pytest.raises(ValueError, match="memory = '1G' is for a Store"):
        ml.train(X, y, memory="1G")
    with pytest.raises(TypeError, match="y is missing"):
        ml.train(X)


def test_a_read_only_folder(glass):
    os.chmod(glass, 0o555)
    try:
        assert ml.train(ml.Store(glass), solver="cs", memory=50_000).info.converged
    finally:
        os.chmod(glass, 0o755)


# The most that the process has held since it began, which is a copy of the tests' own.
TRAIN = """
import sys, marginlinear as ml
with open("/proc/self/clear_refs", "w") as stream:
    stream.write("5")
model = ml.train(ml.Store(sys.argv[1]), solver="l2svc", tol=1e-2, memory="90M", threads=1)
held, = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(model.info.status, int(held) // 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what a process holds")
@pytest.mark.xfail(bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
                   reason="without a GIL a fit holds more: 204 MB on 3.13t")
def test_memory_is_bounded(tmp_path):
    """120 MB of rows, of which 90 may be held, the process's own 35 among them."""
    rng = np.random.default_rng(0)
    part = random_array((20_000, 60_000), density=0.00042, random_state=rng, format="csr", dtype=np.float64)
    w = rng.standard_normal(60_000)
    y = np.where(part @ w > 0, 1, -1)
    ml.Store.write([(part, y)] * 24, tmp_path / "s")
    assert sum(path.stat().st_size for path in (tmp_path / "s").iterdir()) > 120e6

    def held():
        done = run(TRAIN, tmp_path / "s")
        assert done.returncode == 0, done.stderr
        status, size = done.stdout.split()
        assert status == "converged"
        return int(size)

    # On a busy machine the thread that lets go of pages may have to wait for its turn.
    assert any(held() < 90 + 60 for _ in range(3))


# Commands


def test_commands(tmp_path, small, capsys):
    path, folder = tmp_path / "train", tmp_path / "stores"
    path.write_bytes((DATA / "vehicle").read_bytes())
    model, out = str(tmp_path / "m"), str(tmp_path / "out")
    args = ["-s", "cs", "-q", "--memory", "60K", str(path), model]
    assert train_main(["--store", str(folder), *args]) == 0
    made = folder / "train.store"
    before = made.stat().st_ino
    assert train_main(["--store", str(folder), *args]) == 0 and made.stat().st_ino == before
    first = (tmp_path / "m").read_bytes()
    assert train_main(["-s", "cs", "-q", "--memory", "60K", str(made), model]) == 0
    assert (tmp_path / "m").read_bytes() == first
    capsys.readouterr()
    assert predict_main([str(made), model, out]) == 0
    theirs = (tmp_path / "out").read_bytes()
    assert predict_main([str(path), model, out]) == 0 and (tmp_path / "out").read_bytes() == theirs
    assert inspect_main([model, str(made)]) == 0
    assert scale_main(["--unit", "-o", out, str(made)]) == 1
    assert train_main(["-s", "cs", "-v", "3", str(made)]) == 0
    printed = capsys.readouterr()
    assert "Cross Validation Accuracy" in printed.out and "give margin-train --scale" in printed.err
    assert train_main(["-s", "cs", str(path), model, "--memory", "1G"]) == 1
    assert "memory = '1G' is for a Store" in capsys.readouterr().err
    assert train_main(["-s", "cs", "--memory", "1X", str(made), model]) == 2
    assert "memory = '1X' is not allowed: give bytes" in capsys.readouterr().err
    path.write_text("1 1:1\n2 1:2\n")
    assert train_main(["--store", str(folder), *args]) == 1
    assert "remove the store" in capsys.readouterr().err
    assert train_main(["--store", str(folder), "-", model]) == 1
    assert "standard input" in capsys.readouterr().err


def test_a_store_tells_what_is_in_it(glass, capsys):
    told = repr(ml.Store(glass)).splitlines()
    assert told[0].endswith("214 rows, 9 features, 1,923 values") and told[2].split()[:2] == ["classes", "6"]
    assert inspect_main([str(glass)]) == 0
    text = capsys.readouterr().out
    for words in ("214 rows", "9 features", "1,923 values", "float", "uint16", "glass", "1 chunks"):
        assert words in text
    flip(glass / "values.npy", 200)
    assert inspect_main([str(glass)]) == 1
    assert "values.npy" in capsys.readouterr().err
