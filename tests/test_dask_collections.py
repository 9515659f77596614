"""From Dask's collections to partitions: the same rows, in their order, and errors that name them."""

import gzip
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix, random_array, vstack

import marginlinear as ml
from marginlinear.data.arrays import held, is_sparse, shape_of
from marginlinear.errors import DataError, PartitionWarning
from marginlinear.memory import memory

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

from dask import array as da  # noqa: E402

import marginlinear.dask as mld  # noqa: E402
from marginlinear.dask import collections  # noqa: E402
from marginlinear.store import Store  # noqa: E402


@pytest.fixture(scope="module")
def client():
    with (distributed.LocalCluster(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as local,
          distributed.Client(local) as client):
        yield client


def table(m=60, d=5, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((m, d)), generator.integers(0, 3, m)


def sparse(m=60, d=40, seed=0):
    generator = np.random.default_rng(seed)
    return csr_array(random_array((m, d), density=0.1, random_state=generator)), table(m, seed=seed)[1]


def blocks(rows, cuts):
    return [dask.delayed(rows[lo:hi]) for lo, hi in pairwise(cuts)]


def parts(client, X, y=None, weights=None, partitions="chunks"):
    return client.gather(collections.parts_of(X, y, weights, client, partitions))


def dense(X):
    return held(X).to_scipy().toarray() if is_sparse(X) else X


def require_same(found, X, y):
    """The rows of Parts, in their order, are those of X and y."""
    assert np.array_equal(np.concatenate([part.y for part in found]), y)
    assert np.array_equal(np.vstack([dense(part.X) for part in found]), X.toarray() if is_sparse(X) else X)


CUTS = [0, 13, 30, 41, 60]
SIZES = tuple(np.diff(CUTS).tolist())


def array_of_sparse(X, kind):
    pieces = [da.from_delayed(dask.delayed(kind(X[lo:hi])), (hi - lo, X.shape[1]), meta=np.empty((0, 0)))
              for lo, hi in pairwise(CUTS)]
    return da.concatenate(pieces)


def text(path, X, y):
    ml.dump_libsvm(X, y, path)
    return str(path)


@pytest.mark.parametrize("partitions, sizes", [("chunks", SIZES), (None, (30, 30)), (1, (60,)), (3, (13, 17, 30))])
def test_partitions_are_neighbouring_chunks(client, partitions, sizes):
    X, y = table()
    found = parts(client, da.from_array(X, (SIZES, 5)), da.from_array(y, (SIZES,)), None, partitions)
    assert tuple(len(part.y) for part in found) == sizes
    require_same(found, X, y)
    assert all((part.weights == 1).all() for part in found)


@pytest.mark.parametrize("kind", [csr_array, csr_matrix])
def test_blocks_may_be_sparse_whatever_their_meta_says(client, kind):
    X, y = sparse()
    found = parts(client, array_of_sparse(X, kind), da.from_array(y, (SIZES,)), None, 2)
    assert len(found) == 2 and all(is_sparse(part.X) for part in found)
    require_same(found, X, y)


@pytest.mark.parametrize("name", ["delayed", "futures", "pairs", "futures of pairs", "one pair"])
def test_lists(client, name):
    X, y = sparse()
    Xs, ys = blocks(X, CUTS), blocks(y, CUTS)
    if name == "futures":
        Xs, ys = client.compute(Xs), client.compute(ys)
    elif name != "delayed":
        Xs, ys = [dask.delayed((some, labels)) for some, labels in zip(Xs, ys, strict=True)], None
    if name == "futures of pairs":
        Xs = client.compute(Xs)
    if name == "one pair":
        Xs = dask.delayed((X, y))
    require_same(parts(client, Xs, ys, None, "chunks"), X, y)


def test_sparse_rows_become_as_wide_as_the_widest_and_mix_with_tables(client):
    X, y = sparse()
    narrow, wide = X[:30, :20], X[30:].toarray()
    found, = parts(client, blocks(narrow[:13], [0, 13]) + blocks(narrow[13:], [0, 17]) + blocks(wide, [0, 30]),
                   blocks(y, [0, 13, 30, 60]), None, 1)
    assert shape_of(found.X) == (60, 40)
    require_same([found], csr_array(vstack([csr_array((narrow.data, narrow.indices, narrow.indptr), shape=(30, 40)),
                                            csr_array(wide)])), y)


def test_float32_stays(client):
    X, y = table()
    for rows in (X.astype(np.float32), csr_array(X.astype(np.float32))):
        found, = parts(client, blocks(rows, CUTS), blocks(y, CUTS), None, 1)
        assert (found.X.data if is_sparse(found.X) else found.X).dtype == np.float32


@pytest.fixture
def frames():
    """(pandas, dask.dataframe)"""
    return pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")


def test_data_frames(client, frames):
    pandas, dd = frames
    X, y = table()
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1].astype(np.float32), "c": np.arange(60) % 7,
                              "d": np.arange(60) % 2 == 0, "e": pandas.array(np.arange(60), dtype="Int64"),
                              "label": np.array(["no", "yes", "maybe"])[y]})
    given = dd.from_pandas(frame, npartitions=3)
    found = parts(client, given.drop(columns="label"), given["label"], given["e"], "chunks")
    assert len(found) == 3
    require_same(found, frame.drop(columns="label").to_numpy(dtype=float)[1:], frame["label"].to_numpy(dtype="U")[1:])
    assert np.array_equal(np.concatenate([part.weights for part in found]), np.arange(1, 60))


@pytest.mark.parametrize("column, words", [
    (["x"] * 6, r"chunk 0: X: column 'b' holds \S+: numbers"),
    ([0.0, 1, 2, 3, 4, None], r"chunk 1: X: row 2, column 'b' is nan"),
])
def test_columns_that_are_no_numbers_are_named(client, frames, column, words):
    pandas, dd = frames
    X = dd.from_pandas(pandas.DataFrame({"a": np.arange(6.0), "b": column}), npartitions=2)
    y = dd.from_pandas(pandas.Series(np.arange(6) % 2), npartitions=2)
    with pytest.raises(ValueError, match=words):
        parts(client, X, y, None, 1)


def test_weights(client):
    X, y = table()
    weights = np.random.default_rng(1).random(60)
    weights[[0, 20]] = 0
    weights[30:41] = 0
    kept = weights > 0
    for given in (da.from_array(weights, (SIZES,)), blocks(weights, CUTS)):
        found = parts(client, blocks(X, CUTS), blocks(y, CUTS), given)
        assert [len(part.y) for part in found] == [12, 16, 0, 19]
        require_same([part for part in found if len(part.y)], X[kept], y[kept])
        assert np.array_equal(np.concatenate([part.weights for part in found]), weights[kept])
    pairs = [dask.delayed(pair) for pair in zip(blocks(X, CUTS), blocks(y, CUTS), strict=True)]
    found = parts(client, pairs, None, blocks(weights, CUTS), 2)
    require_same(found, X[kept], y[kept])


def test_files_are_cut_at_newlines(client, tmp_path):
    X, y = sparse()
    path = text(tmp_path / "train.svm", X, y)
    for partitions in (1, 2, 7):
        found = parts(client, path, None, None, partitions)
        assert len(found) == partitions
        assert np.array_equal(np.concatenate([part.y for part in found]), y)
    width = max(shape_of(part.X)[1] for part in found)
    assert np.array_equal(np.vstack([dense(collections.widened(part.X, width, "")) for part in found]),
                          X.toarray()[:, :width])
    assert len(parts(client, [path, path], None, None, "chunks")) == 2


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("ending", ["\n", ""])
def test_every_cut_gives_every_row_once(client, tmp_path, ending, mark):
    lines = ["# a comment", "1 1:1", "", "2 2:1 # 3 3:1", "\t\r", "3 1:1 2:1", "#" * 50, "4"]
    path = tmp_path / "train.svm"
    path.write_bytes(mark + ("\n".join(lines) + ending).encode())
    for count in range(2, path.stat().st_size):
        labels = [collections.read_piece(str(path), at, count)[1] for at in range(count)]
        assert [label for some in labels if some is not None for label in some] == [1, 2, 3, 4]


def test_stores_and_files_together(client, tmp_path):
    X, y = sparse()
    store = Store.write([(X[:20], y[:20])], tmp_path / "a.store")
    packed = tmp_path / "b.svm.gz"
    with gzip.open(packed, "wb") as file:
        file.write(Path(text(tmp_path / "b.svm", X[20:40], y[20:40])).read_bytes())
    paths = [store, packed, text(tmp_path / "c.svm", X[40:], y[40:])]
    found = parts(client, paths, None, None, 3)
    assert np.array_equal(np.concatenate([part.y for part in found]), y)
    assert found[0].X.data.shape == (X[:20].nnz,)
    again = parts(client, [str(store.path), *paths[1:]], None, None, 3)
    assert all(np.array_equal(one.X.data, other.X.data) for one, other in zip(found, again, strict=True))


def test_columns_that_became_other_features_are_named(client, frames, tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow", reason="the extra [arrow]")
    pandas, dd = frames
    monkeypatch.chdir(tmp_path)
    words = pa.table({"town": ["a", "b", "c", "a"], "label": [0, 1, 0, 1]})
    first = Store.write(words, "first")
    Store.write(words.take(pa.array([3, 2, 1, 0])), "second")
    Store.write(words.take(pa.array([3, 2, 1, 0])), "like", like=first)
    for partitions in (1, 2):
        with pytest.raises(ValueError, match=r"its columns are other features than those of .*like=store"):
            mld.train(["first", "second"], solver="l2svc", partitions=partitions, client=client)
        model = mld.train(["first", "like"], solver="l2svc", partitions=partitions, client=client)
        assert model.table == first.table
    X, y = table()
    frame = dd.from_pandas(pandas.DataFrame(X, columns=list("abcde")), npartitions=2)
    model = mld.train(frame, dd.from_pandas(pandas.Series(y), npartitions=2), solver="l2svc", client=client)
    assert model.feature_names == list("abcde")
    with pytest.raises(ValueError, match=r"in another order: give X\[model.feature_names\]"):
        mld.predict(model, frame[list("edcba")])
    # A partition without rows.
    model = ml.train(X, y, solver="l1svc", multiclass="ecoc")
    some = mld.predict(model, dd.from_pandas(pandas.DataFrame(X), npartitions=3).loc[30:]).compute()
    assert np.array_equal(some, model.predict(X[30:])) and model.predict(X[:0]).shape == (0,)


def test_large_stores_stay_on_disk(client, tmp_path, monkeypatch):
    monkeypatch.setattr(collections, "IN_MEMORY", 0)
    X, y = sparse()
    stores = [Store.write([(X[lo:hi], y[lo:hi])], tmp_path / f"{lo}.store", n_features=40)
              for lo, hi in ((0, 30), (30, 60))]
    found = collections.parts_of(stores, None, None, client, 2)
    assert all(isinstance(part.X, Store) for part in client.gather(found))
    partition = client.submit(collections.partition_of, found[0], 0, np.arange(3), 40, np.ones(3), 60.0, 1.0).result()
    assert isinstance(partition.X, Store) and partition.rows.m == 30
    room = collections.room_of(client)
    assert room.memory <= memory() / room.workers
    pager = collections.partition_of(client.gather(found[0]), 0, np.arange(3), 40, np.ones(3), 60.0, 1.0,
                                     room._replace(threads=4).of_a_partition).rows.pager
    assert pager.window == room.memory // 2 // 16 and pager.memory == room.memory // 2
    with pytest.raises(ValueError, match="others have 41: write it with n_features = 41"):
        collections.widened(stores[0], 41, "partition 0")
    with pytest.raises(ValueError, match="partitions = 'chunks'"):
        parts(client, stores, None, None, 1)
    with pytest.raises(ValueError, match=r"30.store takes more .* give shuffle = False"):
        client.gather(collections.shuffled(found[1:], 0, client))


def test_what_a_worker_cannot_read_is_named_with_it(client, tmp_path):
    with pytest.raises(OSError, match=rf"worker \S+ cannot read {tmp_path}/none.svm"):
        parts(client, [tmp_path / "none.svm"])
    (tmp_path / "folder").mkdir()
    with pytest.raises((OSError, DataError), match="folder"):
        parts(client, tmp_path / "folder")
    with pytest.raises(ValueError, match="'-' is no file"):
        parts(client, "-")
    with pytest.raises(ValueError, match="these have the labels"):
        parts(client, ["train.svm"], da.ones(3))


def test_workers_that_see_other_files_are_named(client, monkeypatch):
    monkeypatch.setattr(client, "run", lambda *_: {"a": [(False, 10)], "b": [(False, 11)]})
    with pytest.raises(ValueError, match=r"train\.svm on worker b is another file than on worker a"):
        parts(client, "train.svm")


def test_errors_in_files_have_their_line(client, tmp_path):
    path = tmp_path / "train.svm"
    path.write_text("1 1:1\n" * 50 + "1 1:x\n" + "2 1:1\n" * 50)
    with pytest.raises(DataError, match=r"train.svm:51:5: ") as raised:
        parts(client, path, None, None, 4)
    assert raised.value.line == 51 and raised.value.path == str(path)


def test_rows_that_are_wrong_are_named(client):
    X, y = table()
    X[33, 2] = np.inf
    with pytest.raises(ValueError, match="chunk 2: X: row 3, feature 2 is inf"):
        parts(client, blocks(X, CUTS), blocks(y, CUTS), None, 1)
    with pytest.raises(ValueError, match="chunk 2: X: row 3, feature 2 is inf"):
        parts(client, blocks(csr_array(X), CUTS), blocks(y, CUTS), None, 2)
    weights = np.ones(60)
    # The row's number is that of the chunk, whichever rows are left out.
    weights[30] = 0
    with pytest.raises(ValueError, match="chunk 2: X: row 3, feature 2 is inf"):
        parts(client, blocks(X, CUTS), blocks(y, CUTS), blocks(weights, CUTS))
    weights[33] = 0
    parts(client, blocks(X, CUTS), blocks(y, CUTS), blocks(weights, CUTS))
    weights[1] = -1
    with pytest.raises(ValueError, match=r"chunk 0: sample_weight\[1\] = -1.0"):
        parts(client, blocks(X, CUTS), blocks(y, CUTS), blocks(weights, CUTS))
    labels = np.where(np.arange(60) == 14, np.nan, y)
    with pytest.raises(ValueError, match="chunk 1: y: label nan"):
        parts(client, blocks(table()[0], CUTS), blocks(labels, CUTS))
    with pytest.raises(ValueError, match="chunk 0: X and y must not be masked"):
        parts(client, dask.delayed(np.ma.masked_array(X)), dask.delayed(y))


def test_chunks_that_do_not_agree_are_named(client):
    X, y = table()
    with pytest.raises(ValueError, match="chunk 1: X has 17 rows, y has 16 labels"):
        parts(client, blocks(X, CUTS), blocks(y, [0, 13, 29, 41, 60]), None, 1)
    with pytest.raises(ValueError, match=r"chunk 3: sample_weight has shape \(18,\), X has 19 rows"):
        parts(client, blocks(X, CUTS), blocks(y, CUTS), blocks(np.ones(59), [*CUTS[:-1], 59]))
    with pytest.raises(ValueError, match="X has 4 chunks, y has 3"):
        parts(client, blocks(X, CUTS), blocks(y, [0, 13, 30, 60]))
    with pytest.raises(ValueError, match="chunk 1: X has 4 features, others have 5"):
        parts(client, blocks(X[:13], [0, 13]) + blocks(X[13:, :4], [0, 47]), blocks(y, [0, 13, 60]), None, 1)
    with pytest.raises(ValueError, match="partitions = 5: X has 4 chunks"):
        parts(client, blocks(X, CUTS), blocks(y, CUTS), None, 5)


def test_what_is_no_collection_is_refused(client):
    X, y = table()
    with pytest.raises(ValueError, match=r"X has 5 chunks of columns: .* X.rechunk\({1: -1}\)"):
        parts(client, da.from_array(X, (SIZES, 1)), da.from_array(y, (SIZES,)))
    for wrong in (X, [X], {"a": 1}, [(X, y)]):
        with pytest.raises(TypeError, match=r"X: block 0 is \w+: give a dask"):
            parts(client, wrong, da.from_array(y, (SIZES,)))
    with pytest.raises(TypeError, match="y: block 0 is ndarray: give a dask"):
        parts(client, blocks(X, CUTS), y)
    with pytest.raises(TypeError, match="y is missing"):
        parts(client, da.from_array(X, (SIZES, 5)))
    with pytest.raises(ValueError, match="X is an empty list"):
        parts(client, [])
    with pytest.raises(ValueError, match="chunk 0: X is ndarray, not a pair"):
        parts(client, dask.delayed(X))
    with pytest.raises(ValueError, match=r"chunk 0: .*2 dimensions"):
        parts(client, dask.delayed(X), dask.delayed(X))


def test_labels_of_chunks_and_partitions_agree_in_kind(client):
    X, y = table()
    mixed = [*blocks(y[:30].astype("U"), [0, 30]), *blocks(y[30:], [0, 30])]
    with pytest.raises(ValueError, match="y: chunk 0 has words as labels, chunk 1 has numbers"):
        parts(client, blocks(X, [0, 30, 60]), mixed, None, 1)
    found = [collections.described(part) for part in parts(client, blocks(X, [0, 30, 60]), mixed)]
    with pytest.raises(ValueError, match="y: partition 0 has words as labels, partition 1 has numbers"):
        collections.labels_of_all(found)
    for some, others, labels in ((np.array([1, 2]), np.array([0.5]), [0.5, 1, 2]), (np.array([True]), np.array([5]),
                                 [1, 5]), (np.array(["b"]), np.array(["abc"]), ["abc", "b"])):
        assert np.unique(collections.joined_labels([some, others], ["a", "b"])).tolist() == labels
    with pytest.raises(ValueError, match=f"label {2**53 + 1} of b is no float64"):
        collections.joined_labels([np.array([0.5]), np.array([1, 2**53 + 1])], ["a", "b"])


def test_descriptions(client):
    X, y = table()
    weights = np.arange(60) / 7
    found = parts(client, blocks(X, CUTS), blocks(y, CUTS), blocks(weights, CUTS), 2)
    first, second = map(collections.described, found)
    assert (first.rows, first.columns, second.rows) == (29, 5, 30)
    assert second.counts.tolist() == np.bincount(y[30:]).tolist()
    assert np.allclose(second.weights, np.bincount(y[30:], weights[30:]))
    empty = collections.described(collections.Part(None, np.empty(0), np.empty(0)))
    assert (empty.rows, len(empty.labels)) == (0, 0)


def futures(client, X, y, cuts):
    made = collections.parts_of(blocks(X, cuts), blocks(y, cuts), None, client, "chunks")
    return made, [collections.described(part) for part in client.gather(made)]


def evened(client, X, y, cuts, shuffle="auto", seed=3):
    made, told = futures(client, X, y, cuts)
    return made, collections.evened(made, told, np.unique(y), shuffle, seed, client)


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_rows_sorted_by_class_are_dealt_anew(client, kind):
    X, y = table(1200)
    order = np.argsort(y, kind="stable")
    X, y, cuts = kind(X[order]), y[order], [0, 300, 600, 900, 1200]
    with pytest.warns(PartitionWarning, match=r"partition \d are 0\.\d+ from .*: they are dealt anew"):
        made, dealt = evened(client, X, y, cuts)
    assert dealt is not made
    found = client.gather(dealt)
    labels = np.concatenate([part.y for part in found])
    assert not np.array_equal(labels, y)
    # The same rows with the same labels, in another order.
    before, after = (np.column_stack([dense(rows), some])
                     for rows, some in ((X, y), (np.vstack([dense(part.X) for part in found]), labels)))
    assert np.array_equal(before[np.lexsort(before.T)], after[np.lexsort(after.T)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = [collections.described(part) for part in found]
        assert collections.evened(dealt, told, np.unique(y), "auto", 3, client) is dealt
    # The same seed, the same bits; another seed, another order.
    with pytest.warns(PartitionWarning):
        same, other = (client.gather(evened(client, X, y, cuts, seed=seed)[1]) for seed in (3, 4))
    assert all(np.array_equal(dense(one.X), dense(two.X)) for one, two in zip(found, same, strict=True))
    assert not np.array_equal(dense(found[0].X), dense(other[0].X))


def test_shuffle(client):
    X, y = table(1200)
    cuts = [0, 400, 800, 1200]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shuffle in ("auto", False):
            made, dealt = evened(client, X, y, cuts, shuffle)
            assert dealt is made
        made, dealt = evened(client, X, y, cuts, True)
        assert dealt is not made
        # Small partitions differ by chance, and one alone from nothing.
        for some in (np.arange(0, 61, 6).tolist(), [0, 60]):
            made, dealt = evened(client, X[:60], y[:60], some)
            assert dealt is made
        evened(client, X[:60], y[:60], [0, 60], True)
    order = np.argsort(y, kind="stable")
    with pytest.raises(ValueError, match=r"partition 0 has no row of label 1: give shuffle = 'auto'"):
        evened(client, X[order], y[order], cuts, False)
    # No class is lacking, yet half of the rows of 0 are in the first partition.
    order = np.concatenate([order[:200], np.random.default_rng(0).permutation(order[200:])])
    with pytest.warns(PartitionWarning, match="rounds will be slow"):
        made, dealt = evened(client, X[order], y[order], cuts, False)
    assert dealt is made


def test_more_partitions_than_rows_can_fill(client):
    X, y = table(4)
    made, _ = futures(client, X, y, [0, 1, 2, 4])
    found = client.gather(collections.shuffled(made, 0, client))
    assert sum(len(part.y) for part in found) == 4
    assert all(shape_of(part.X) == (len(part.y), 5) for part in found)


def test_partitions_are_what_a_fit_asks(client):
    X, y = sparse()
    words = np.array(["b", "c", "a"])[y]
    made = collections.parts_of(blocks(X[:30, :20], [0, 30]) + blocks(X[30:], [0, 30]), blocks(words, [0, 30, 60]),
                                blocks(np.full(60, 2.0), [0, 30, 60]), client, "chunks")
    factors = np.array([1.0, 3.0, 0.5])
    first, second = (client.submit(collections.partition_of, part, number, np.array(["a", "b", "c"]), 40, factors,
                                   120.0, 1.0).result() for number, part in enumerate(made))
    assert (first.number, second.number, first.n_classes, first.whole, first.bias) == (0, 1, 3, 120.0, 1.0)
    assert shape_of(first.X) == (30, 40) and first.rows.d == second.rows.d == 41
    assert second.y.dtype == np.int32 and np.array_equal(second.y, np.array([1, 2, 0])[y[30:]])
    assert np.array_equal(second.factor, factors[second.y]) and (second.instance == 2).all()
    tables = client.gather(futures(client, *table(), [0, 60])[0])
    with pytest.raises(ValueError, match="partition 4: X has 5 features, others have 6"):
        collections.partition_of(tables[0], 4, np.arange(3), 6, np.ones(3), 60.0, -1.0)


def test_rows_are_made_once_and_stay_on_the_workers(client, tmp_path, monkeypatch):
    def rows(at):
        # An error where the file is there.
        (tmp_path / str(at)).touch(exist_ok=False)
        return table(20, seed=at)

    for name in ("gather", "scatter"):
        monkeypatch.setattr(client, name, None)
    made = collections.parts_of([dask.delayed(rows)(at) for at in range(4)], None, None, client, 2)
    told = [client.submit(collections.described, part).result() for part in made]
    assert [one.rows for one in told] == [40, 40]
    assert all(client.who_has(made).values())


def test_importing_marginlinear_leaves_dask_out():
    subprocess.run([sys.executable, "-c", "import sys, marginlinear; "
                    "assert not {'dask', 'distributed'} & set(sys.modules)"], check=True)
