"""Fits on a Dask cluster of processes: the bits of partitions, whatever becomes of workers and driver."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from scipy.sparse import csr_array

import marginlinear as ml

pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::marginlinear.ConvergenceWarning", "ignore::DeprecationWarning",
                                        "ignore::ResourceWarning",
                                        "ignore::pytest.PytestUnraisableExceptionWarning",
                                        "ignore:.*Sending large graph.*:UserWarning")

import dask.array as da  # noqa: E402
from dask import delayed  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402

import marginlinear.dask as mld  # noqa: E402
from marginlinear.compare import compare  # noqa: E402
from marginlinear.dask import journal  # noqa: E402
from marginlinear.errors import PartitionWarning, RowError  # noqa: E402

TABLE = {"solver": "l2svc", "C": 10, "algorithm": "accelerated", "tol": 1e-7, "max_iter": 24}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
                      silence_logs=60) as made:
        yield made


@pytest.fixture
def client(cluster):
    with Client(cluster) as made:
        made.wait_for_workers(2, timeout=60)
        yield made


def table(m=400, d=8, k=2, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((m, d)) + 0.7
    return X, (X[:, :k] + generator.standard_normal((m, k))).argmax(axis=1)


def dealt(X, y, size=100):
    return da.from_array(X, chunks=(size, -1)), da.from_array(y, chunks=size)


@pytest.fixture
def rows():
    return dealt(*table())


def same(first, second):
    return first.weights.tobytes() == second.weights.tobytes() and first.info.bound == second.info.bound


def left(cluster, seconds=10):
    """Tasks that the cluster still knows after some time."""
    last = time.monotonic() + seconds
    while cluster.scheduler.tasks and time.monotonic() < last:
        time.sleep(0.05)
    return list(cluster.scheduler.tasks)


@pytest.mark.parametrize(("name", "k"), [("l2svc", 3), ("mcodm", 3), ("l1lr", 3), ("smlr", 3)])
def test_the_optimum_is_that_of_one_machine(cluster, client, name, k):
    X, y = table(k=k)
    model = mld.train(*dealt(X, y), solver=name, client=client, partitions=4)
    best = ml.train(X, y, solver=name, tol=1e-6)
    assert model.info.status == "converged" and model.info.cluster["rows"] == [100] * 4
    if name != "mcodm":
        assert best.info.bound <= model.info.objective + 1e-9 <= best.info.objective * 1.0011 + 1e-9
    assert (mld.predict(model, da.from_array(X, chunks=(150, -1))).compute() == model.predict(X)).all()
    scores = mld.decision_function(model, da.from_array(X, chunks=(150, -1))).compute()
    assert scores.tobytes() == model.decision_function(X).tobytes()
    assert left(cluster) == []


def test_collections_of_any_kind_are_the_same_rows(client):
    X, y = table()
    sparse = [csr_array(X[lo:lo + 100]) for lo in range(0, 400, 100)]
    labels = [y[lo:lo + 100] for lo in range(0, 400, 100)]
    given = [dealt(X, y), ([delayed(X[lo:lo + 100]) for lo in range(0, 400, 100)], list(map(delayed, labels))),
             (list(map(delayed, zip(sparse, labels, strict=True))), None),
             (client.scatter([part.toarray() for part in sparse]), client.scatter(labels))]
    models = [mld.train(*some, solver="l2svc", client=client, partitions="chunks") for some in given]
    for model in models:
        np.testing.assert_allclose(model.weights, models[0].weights, rtol=1e-6)
    assert same(models[0], models[1]) and same(models[0], models[3])


def test_files_and_stores(client, tmp_path):
    X, y = table()
    for number, lo in enumerate((0, 150)):
        ml.dump_libsvm(X[lo:lo + 150 if lo == 0 else 400], y[lo:lo + 150 if lo == 0 else 400],
                       tmp_path / f"{number}.svm")
        ml.Store.write(tmp_path / f"{number}.svm", tmp_path / f"{number}.store")
    paths = [[tmp_path / f"{number}.{end}" for number in range(2)] for end in ("svm", "store")]
    models = [mld.train(some, solver="l2svc", client=client, partitions="chunks") for some in paths]
    assert same(*models) and models[0].info.cluster["rows"] == [150, 250]
    (tmp_path / "bad").write_text("1 1:1\n2 1:x\n")
    with pytest.raises(ml.DataError, match="bad:2:5: value 'x' is not a number"):
        mld.train([tmp_path / "bad"], client=client)
    with pytest.raises(OSError, match=r"worker tcp.* cannot read .*nowhere.*all workers need the file"):
        mld.train([tmp_path / "nowhere"], client=client)


def test_weights_and_classes(client):
    X, y = table(k=3)
    y, w = np.array(["a", "b", "c"])[y], np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    model = mld.train(*dealt(X, y), sample_weight=da.from_array(w, chunks=100), solver="cs", client=client, tol=1e-4,
                      class_weight={"a": 2.0}, classes=["a", "b", "c", "d"])
    best = ml.train(X, y, sample_weight=w, solver="cs", tol=1e-6, class_weight={"a": 2.0})
    assert model.info.objective == pytest.approx(best.info.objective, rel=2e-4)
    assert model.classes.tolist() == ["a", "b", "c", "d"] and (model.predict(X) == best.predict(X)).mean() > 0.99


def test_units_of_rows_and_cost(client, rows):
    model = mld.train(*rows, solver="ldm", lambda1="0.5mC", C=2, client=client)
    assert model.params["lambda1"] == 0.5 * len(table()[0]) * 2


@pytest.mark.parametrize(("scale", "sparse"), [("range", False), ("range", True), ("maxabs", True), ("unit", True)])
def test_scaling_is_that_of_all_rows(threads, scale, sparse):
    X, y = table()
    X *= np.arange(1, 9)
    if sparse:
        X[np.random.default_rng(1).random(X.shape) < 0.5] = 0
    blocks = [(X[lo:lo + 100], y[lo:lo + 100]) for lo in range(0, 400, 100)]
    pairs = [delayed((csr_array(rows) if sparse else rows, labels)) for rows, labels in blocks]
    model = mld.train(pairs, solver="l2svc", client=threads, partitions=4, tol=1e-8, scale=scale)
    best = ml.train(csr_array(X) if sparse else X, y, solver="l2svc", tol=1e-8, scale=scale)
    assert model.params == best.params
    assert model.info.objective == pytest.approx(best.info.objective, rel=1e-7)
    np.testing.assert_allclose(model.decision_function(X), best.decision_function(X), atol=2e-3)


PROBABLE = "softmax", "smlr"


@pytest.mark.parametrize(("name", "k"), [("cs", 3), ("softmax", 3), ("smlr", 3)])
def test_probabilities(threads, name, k):
    X, y = table(k=k)
    labels, told = np.array(["a", "b", "c"])[y], []
    given = {"solver": name, "client": threads, "partitions": 2, "scale": "range", "classes": ["a", "b", "c"],
             "tol": 0.05}
    model = mld.train(*dealt(X, labels), **given, probability=True, progress=told.append)
    plain = mld.train(*dealt(X, labels), **given)
    assert same(model, plain)
    assert {check.get("fold") for check in told} == ({None} if name in PROBABLE else {None, 1, 2, 3, 4, 5})
    best = ml.train(X, labels, solver=name, probability=True, scale="range", classes=["a", "b", "c"], tol=1e-4)
    found = mld.predict_proba(model, da.from_array(X, chunks=(150, -1))).compute()
    assert found.tobytes() == model.predict_proba(X).tobytes()
    assert abs(found - best.predict_proba(X)).mean() < 0.05
    bare = mld.DaskMarginClassifier(name, client=threads).fit(*dealt(X, y)).to_local()
    if name in PROBABLE:
        assert bare.predict_proba(X).shape == (400, 3)
    else:
        with pytest.raises(ValueError, match="calibration"):
            mld.predict_proba(bare, X)


def numbers(m=400, d=8, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((m, d))
    return X, X @ np.arange(d) + 3 + generator.standard_normal(m)


@pytest.mark.parametrize("solver, partitions, scale", [
    ("l1svr", 1, "range"), ("l1svr", 4, None), ("l2svr", 1, None), ("l2svr", 4, "range")])
def test_regressions(threads, solver, partitions, scale):
    X, z = numbers()
    w = np.random.default_rng(0).integers(0, 3, len(z)).astype(float)
    given = {"solver": solver, "epsilon": 0.5, "bias": 1.0, "tol": 1e-6, "scale": scale}
    model = mld.train(*dealt(X, z), sample_weight=da.from_array(w, chunks=100), client=threads, partitions=partitions,
                      **given)
    best = ml.train(X, z, sample_weight=w, **given)
    assert isinstance(model, ml.RegressionModel) and model.info.converged
    assert best.info.bound - 1e-9 <= model.info.objective and model.info.bound <= best.info.objective + 1e-9
    assert model.info.objective == pytest.approx(best.info.objective, rel=3e-6)
    found = mld.predict(model, da.from_array(X, chunks=(150, -1)))
    assert found.dtype == np.float64 and (found.compute() == model.predict(X)).all()


def test_the_end_of_rounds_is_that_of_residuals_too(threads):
    """More weights than Newton steps take: rows outside of the band, or near its edges, are brought together."""
    generator = np.random.default_rng(1)
    X = generator.standard_normal((300, 4200)) * (generator.random((300, 4200)) < 0.02)
    z = X @ generator.standard_normal(4200)
    rows = [delayed((csr_array(X[lo:lo + 75]), z[lo:lo + 75])) for lo in range(0, 300, 75)]
    model = mld.train(rows, solver="l1svr", epsilon=1.0, C=0.5, tol=1e-5, client=threads, partitions=4)
    best = ml.train(csr_array(X), z, solver="l1svr", epsilon=1.0, C=0.5, tol=1e-7)
    assert model.info.converged and model.info.cluster["collections"] > 0
    assert model.info.objective == pytest.approx(best.info.objective, rel=2e-5)
    assert model.info.bound <= best.info.objective + 1e-9


def test_a_regression_has_no_classes(threads):
    X, z = numbers()
    found = mld.cross_validate(*dealt(X, z), solver="l2svr", folds=2, client=threads, partitions=2)
    best = ml.cross_validate(X, z, solver="l2svr", folds=2)
    assert found.score == pytest.approx(best.score, rel=0.1)
    for given in ({"class_weight": {1: 2.0}}, {"classes": [1, 2]}, {"probability": True}):
        with pytest.raises(ValueError, match="is for classes, which l1svr does not have"):
            mld.train(*dealt(X, z), solver="l1svr", client=threads, **given)
    with pytest.raises(ValueError, match="target nan is not finite"):
        mld.train(*dealt(X, np.where(z == z[150], np.nan, z)), solver="l1svr", client=threads)
    estimator = mld.DaskMarginRegressor(C=2.0, params={"tol": 1e-4}, client=threads).fit(*dealt(X, z))
    r = z - estimator.to_local().predict(X)
    assert estimator.score(*dealt(X, z)) == pytest.approx(1 - (r**2).sum() / ((z - z.mean())**2).sum())
    w = np.arange(400) % 3
    assert estimator.score(*dealt(X, z), sample_weight=da.from_array(w, chunks=100)) == pytest.approx(
        1 - w @ r**2 / (w @ (z - np.average(z, weights=w))**2))


def test_cross_validation(threads):
    X, y = table()
    found = mld.cross_validate(*dealt(X, y), solver="lssvm", folds=2, metric="auc", client=threads, partitions=2)
    wider = mld.cross_validate(*dealt(X, y), solver="lssvm", folds=2, client=threads, partitions=2, classes=[-1, 0, 1])
    assert 0.6 < wider.score < 1 and wider.score == pytest.approx(np.mean(wider.fold_scores))
    best = ml.cross_validate(X, y, solver="lssvm", folds=2, metric="auc")
    assert found.score == pytest.approx(best.score, abs=0.03) and found.fold_scores.shape == (2,)
    assert [sum(info.cluster["rows"]) for info in found.infos] == [200] * 2
    # One row cannot be held out: all models of a calibration learn from it.
    rare, given = np.where(np.arange(400) == 7, 9, y), {"solver": "cs", "client": threads, "partitions": 2, "tol": 0.5}
    with pytest.raises(ValueError, match=r"label 9 has rows in fold \d alone"):
        mld.cross_validate(*dealt(X, rare), **given)
    assert mld.train(*dealt(X, rare), **given, probability=True).calibration
    with pytest.raises(ValueError, match="leave it out"):
        mld.cross_validate(*dealt(X, y), client=threads, probability=True)
    with pytest.raises(ValueError, match="folds = 1"):
        mld.cross_validate(*dealt(X, y), client=threads, folds=1)
    for metric in ("log_loss", ["accuracy", "auc"]):
        with pytest.raises(ValueError, match="over partitions one metric is measured, and none of probabilities"):
            mld.cross_validate(*dealt(X, y), client=threads, metric=metric)


def test_stores_that_stay_on_disk_are_scaled_and_not_folded(threads, tmp_path, monkeypatch):
    from marginlinear.dask import collections

    X, y = table()
    stores = [ml.Store.write([(csr_array(X[lo:lo + 200]), y[lo:lo + 200])], tmp_path / f"{lo}.store")
              for lo in (0, 200)]
    given = {"solver": "l2svc", "client": threads, "scale": "range", "tol": 1e-7}
    inside = mld.train(stores, **given)
    monkeypatch.setattr(collections, "IN_MEMORY", 0)
    model = mld.train(stores, **given)
    np.testing.assert_allclose(model.weights, inside.weights, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match=r"folds are of rows in memory, .*\.store takes more"):
        mld.train(stores, **given, probability=True)


def test_rows_that_are_sorted_by_class_are_dealt_anew(client):
    X, y = table()
    order = np.argsort(y, kind="stable")
    sorted_rows = dealt(X[order], y[order])
    with pytest.warns(PartitionWarning, match="sorted by class.*dealt anew"):
        models = [mld.train(*sorted_rows, solver="l2svc", client=client, partitions=4) for _ in range(2)]
    assert same(*models) and sorted(models[0].info.cluster["rows"]) == [100] * 4
    with pytest.raises(ValueError, match=r"partition \d has no row of label \d: give shuffle = 'auto'"):
        mld.train(*sorted_rows, solver="l2svc", client=client, partitions=4, shuffle=False)


@pytest.mark.parametrize(("given", "error", "fragment"), [
    ({"solver": "msvmav"}, ValueError, "msvmav' does not go over partitions"),
    ({"solver": "oneclass"}, ValueError, "oneclass' does not go over partitions: train where all rows are"),
    ({"solver": "nusvr"}, ValueError, "nusvr' does not go over partitions: give l1svr or l2svr, or train"),
    ({"kernel": "rbf"}, ValueError, "kernel = 'rbf' does not go over partitions"),
    ({"partitions": 0}, ValueError, "partitions = 0 is not allowed"),
    ({"shuffle": "no"}, ValueError, "shuffle = 'no' is not allowed"),
    ({"resume": True}, ValueError, "resume = True is for a checkpoint"),
    ({"checkpoint_every": 0}, ValueError, "checkpoint_every = 0"),
    ({"wait_timeout": 0}, ValueError, "wait_timeout = 0"),
    ({"C": -1}, ValueError, "C = -1"), ({"scale": "log"}, ValueError, "scale = 'log'"),
    ({"probability": 2}, (ValueError, TypeError), "probability"),
    ({"memory": "1G"}, ValueError, "memory works on rows that are here")])
def test_what_is_refused(client, rows, given, error, fragment):
    with pytest.raises(error, match=fragment):
        mld.train(*rows, client=client, **given)


def test_bad_rows_are_named_by_their_chunk(client):
    X, y = table()
    X[210, 3] = np.nan
    with pytest.raises(ValueError, match="row 10, feature 3 is nan"):
        mld.train(*dealt(X, y), client=client, partitions="chunks")
    with pytest.raises(ValueError, match="X has 4 chunks, y has 3"):
        mld.train(dealt(X, y)[0], da.from_array(y, chunks=150), client=client)
    with pytest.raises(ValueError, match="rechunk"):
        mld.train(da.from_array(X, chunks=(100, 4)), dealt(X, y)[1], client=client)
    with pytest.raises(ValueError, match="at least 2 classes"):
        mld.train(dealt(*table())[0], da.from_array(np.zeros(400), chunks=100), client=client)


def test_bits_do_not_depend_on_workers_or_on_lost_ones(cluster, client, rows):
    longer = {**TABLE, "max_iter": 50}
    undisturbed = mld.train(*rows, client=client, partitions=4, **longer)
    generator, ended = random.Random(0), threading.Event()

    def kill():
        for _ in range(3):
            if ended.wait(generator.uniform(0.3, 1.0)):
                return
            pids = [nanny.pid for nanny in cluster.workers.values() if nanny.pid]
            if pids:
                os.kill(generator.choice(pids), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        disturbed = mld.train(*rows, client=client, partitions=4, **longer)
    finally:
        ended.set()
        killer.join()
    assert same(disturbed, undisturbed)
    with (LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as other,
          Client(other) as lone):
        assert same(mld.train(*rows, client=lone, partitions=4, **longer), undisturbed)
    assert left(cluster) == []


def test_sums_of_many_groups(client, rows, monkeypatch):
    """By parts: the same bits."""
    from marginlinear.dask import communicator

    found = mld.train(*rows, client=client, partitions=4, **{**TABLE, "max_iter": 8})
    monkeypatch.setattr(communicator, "FAN_IN", 2)
    monkeypatch.setattr(type(client), "nthreads", lambda client: {"some": 4})
    assert same(mld.train(*rows, client=client, partitions=4, **{**TABLE, "max_iter": 8}), found)


def test_groups_are_where_their_rows_are_and_on_all_workers():
    from marginlinear.dask.communicator import places_of

    holders = {"a": ["w0"], "b": ["w1"], "c": ["w0"], "d": ["w0"]}
    assert places_of([["a", "b"], ["c", "d"]], {"w0": 1, "w1": 1}, holders) == ["w0", "w1"]
    assert places_of([["b"], ["c", "d"]], {"w0": 1, "w1": 1}, holders) == ["w1", "w0"]
    assert places_of([["a"], ["c"], ["d"]], {"w0": 2, "w1": 1}, holders) == ["w0", "w0", "w1"]
    assert places_of([["a"]], {}, {}) == [None]


@pytest.fixture(scope="module")
def threads():
    """A cluster in this process, where tasks can be tampered with."""
    with (LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0",
                       silence_logs=60) as made, Client(made) as client):
        yield client


def test_a_slow_worker_is_told(threads, rows, monkeypatch):
    from marginlinear.algorithms.partitions.partition import Partition
    from marginlinear.dask import pace

    answer = Partition.answer

    def answered(partition, *message):
        if partition.number == 3:
            time.sleep(0.02)
        return answer(partition, *message)

    undisturbed = mld.train(*rows, client=threads, partitions=4, **TABLE)
    monkeypatch.setattr(Partition, "answer", answered)
    monkeypatch.setattr(pace, "SECONDS", 0.2)
    with pytest.warns(PartitionWarning, match=r"worker \S+ takes 0[.0-9]+ s .* times what the others do") as caught:
        model = mld.train(*rows, client=threads, partitions=4, **TABLE)
    assert [one.category for one in caught].count(PartitionWarning) == 1 and same(model, undisturbed)
    fast, slow = sorted(model.info.cluster["seconds"].values())
    assert slow > 0.02 * (model.info.cluster["messages"] - 1) and slow > fast


def test_the_third_exception_of_a_task_ends_the_fit(threads, rows, monkeypatch):
    from marginlinear.algorithms.partitions.partition import Partition

    undisturbed = mld.train(*rows, client=threads, partitions=4, **TABLE)
    answer, failures, failed = Partition.answer, 2, []

    def answered(partition, recipe, state, about, operations):
        if partition.number == 2 and about.number == 5 and len(failed) < failures:
            failed.append(about)
            raise RowError(7, "row {row} is not there")
        return answer(partition, recipe, state, about, operations)

    monkeypatch.setattr(Partition, "answer", answered)
    assert same(mld.train(*rows, client=threads, partitions=4, **TABLE), undisturbed) and len(failed) == 2
    failures, failed = 9, []
    with pytest.raises(RowError, match="row 7 is not there") as caught:
        mld.train(*rows, client=threads, partitions=4, **TABLE)
    assert len(failed) == 3 and re.fullmatch(r"in partition 2, on worker \S+", *caught.value.__notes__)


def test_a_single_partition_tells_its_progress(cluster, client, rows):
    told = []
    model = mld.train(*rows, client=client, partitions=1, progress=told.append, **TABLE)
    assert told == model.info.history and len(told) > 3
    assert left(cluster) == []
    # What is not wanted any more ends: the worker is free for others.
    endless = {**TABLE, "C": 1e9, "max_iter": 10**9, "algorithm": "cd"}
    with pytest.raises(Stop):
        mld.train(*rows, client=client, partitions=1, progress=stop_at_once, **endless)
    done = [client.submit(os.getpid, workers=[worker], pure=False) for worker in client.nthreads()]
    assert len({future.result(timeout=5) for future in done}) == 2


class Stop(Exception):
    pass


def stop_at_once(check):
    raise Stop


def test_a_lost_driver_is_gone_on_from(cluster, client, rows, tmp_path):
    undisturbed = mld.train(*rows, client=client, partitions=4, **TABLE)

    def stop(check):
        if check["n_iter"] > 10:
            raise Stop

    given = {"client": client, "partitions": 4, "checkpoint": tmp_path / "fit", **TABLE}
    with pytest.raises(Stop):
        mld.train(*rows, progress=stop, **given)
    assert left(cluster) == []
    with pytest.raises(ValueError, match="has a fit in it"):
        mld.train(*rows, **given)
    X, y = table()
    X[7, 3] += 1e-9
    for other, changed, what in ((rows, {"C": 3}, "params"), (dealt(X, y), {}, "data"),
                                 (rows, {"class_weight": {0: 2.0}}, "data")):
        with pytest.raises(ValueError, match=f"is of a fit with {what}"):
            mld.train(*other, **{**given, **changed}, resume=True)
    # Killed within a record.
    path = tmp_path / "fit" / "messages"
    path.write_bytes(path.read_bytes()[:-7])
    again = mld.train(*rows, **given, resume=True)
    assert same(again, undisturbed) and again.info.n_iter == undisturbed.info.n_iter
    # All of it is known now: no message is sent.
    assert same(mld.train(*rows, **given, resume=True), undisturbed)


def test_surveys_are_gone_on_from(client, tmp_path):
    """They leave no states with the rows; the driver's near fits are made again."""
    X, y = table(d=40)
    given = {"solver": "l1lr", "C": 3.0, "tol": 1e-6, "client": client, "partitions": 4}
    undisturbed = mld.train(*dealt(X, y), **given)
    assert len(undisturbed.info.history) > 2 and undisturbed.info.cluster["messages"] < 20

    def stop(check):
        if check["n_iter"] > 0:
            raise Stop

    with pytest.raises(Stop):
        mld.train(*dealt(X, y), **given, progress=stop, checkpoint=tmp_path / "fit")
    assert same(mld.train(*dealt(X, y), **given, checkpoint=tmp_path / "fit", resume=True), undisturbed)


def test_a_full_disk_ends_the_fit(client, rows, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal, "write_record", full)
    with pytest.raises(OSError, match="No space left"):
        mld.train(*rows, client=client, partitions=4, checkpoint=tmp_path / "fit", **TABLE)


def test_damaged_copies_are_seen(client, rows, tmp_path):
    given = {"client": client, "partitions": 4, "checkpoint": tmp_path / "fit", **TABLE}
    mld.train(*rows, **given)
    path = tmp_path / "fit" / "states"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ml.DataError, match="CRC-32"):
        mld.train(*rows, **given, resume=True)


def test_a_cluster_without_workers(rows, tmp_path):
    ml.dump_libsvm(*table(), tmp_path / "rows")
    with LocalCluster(n_workers=0, threads_per_worker=1, processes=True, dashboard_address=":0",
                      silence_logs=60) as made, Client(made) as client:
        with pytest.raises(TimeoutError, match=r"has had no worker for 0\.3 seconds") as caught:
            mld.train(tmp_path / "rows", client=client, wait_timeout=0.3)
        assert caught.value.partial is None
        made.scale(1)
        assert mld.train(tmp_path / "rows", client=client).info.converged

        def gone(check):
            if check["n_iter"] > 5:
                made.scale(0)

        with pytest.raises(TimeoutError, match="has had no worker for 1 seconds") as caught:
            mld.train(*rows, client=client, partitions=2, progress=gone, wait_timeout=1, **TABLE)
    X, y = table()
    assert (caught.value.partial.predict(X) == y).mean() > 0.7 and caught.value.partial.info is None


def test_the_estimator(client):
    X, y = table()
    dX, dy = dealt(X, y)
    estimator = mld.DaskMarginClassifier("l2svc", C=2.0, params={"tol": 1e-5}, client=client).fit(dX, dy)
    local = estimator.to_local()
    assert estimator.score(dX, dy) == (local.predict(X) == y).mean()
    assert estimator.coef_.shape == (1, 8) and estimator.classes_.tolist() == [0, 1]
    assert (estimator.predict(dX).compute() == local.predict(X)).all()
    base = pytest.importorskip("sklearn.base")
    assert base.clone(estimator).get_params()["C"] == 2.0


def addresses():
    """The names of two network namespaces with addresses of their own; None where this machine makes none."""
    here, there = (f"ml-{os.getpid()}-{name}" for name in ("here", "there"))
    made = [f"ip netns add {here}", f"ip netns add {there}",
            f"ip -n {here} link add wire type veth peer name wire netns {there}"]
    for name, number in ((here, 1), (there, 2)):
        made += [f"ip -n {name} addr add 10.211.7.{number}/24 dev wire", f"ip -n {name} link set wire up",
                 f"ip -n {name} link set lo up"]
    if shutil.which("ip") is None:
        return None
    if all(subprocess.run(one.split(), capture_output=True).returncode == 0 for one in made):
        return here, there
    for name in (here, there):
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


@pytest.fixture
def hosts():
    """Two hosts, each as (prefix of commands there, address), and what cuts off the second one, given its worker, for
    some seconds."""
    names = addresses()
    if names is None:
        def stop(seconds, worker):
            worker.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            worker.send_signal(signal.SIGCONT)

        yield [([], "127.0.0.1")] * 2, stop
        return

    def cut(seconds, worker):
        for state in ("down", "up"):
            subprocess.run(["ip", "-n", names[1], "link", "set", "wire", state], check=True)
            if state == "down":
                time.sleep(seconds)

    yield [(["ip", "netns", "exec", name], f"10.211.7.{number}") for number, name in enumerate(names, 1)], cut
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=True)


def test_the_command_on_two_hosts(hosts, threads, tmp_path):
    """Against a scheduler and workers that the two commands of the page start; one of these is cut off, and back."""
    ((here, address), (there, other)), cut = hosts
    X, y = table()
    for number in range(4):
        ml.dump_libsvm(X[100 * number:100 * number + 100], y[100 * number:100 * number + 100],
                       tmp_path / f"part-{number}.svm")
    file, run, quiet = tmp_path / "scheduler.json", [sys.executable, "-m", "dask"], {"stderr": subprocess.DEVNULL}
    started = [subprocess.Popen([*here, *run, "scheduler", "--scheduler-file", str(file), "--host", address, "--port",
                                 "0", "--dashboard-address", ":0"], **quiet)]
    try:
        for _ in range(200):
            if file.exists():
                break
            time.sleep(0.1)
        worker = [*run, "worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-dashboard"]
        started += [subprocess.Popen([*host, *worker, "--host", where], cwd=tmp_path, **quiet)
                    for host, where in ((here, address), (there, other))]
        code = f"from distributed import Client; Client(scheduler_file={str(file)!r}).wait_for_workers(2, 30)"
        subprocess.run([*here, sys.executable, "-c", code], check=True, timeout=60, **quiet)
        script = [*here, sys.executable, "-m", "marginlinear.cli.train", "-s", "l2svc", "--scheduler-file", str(file),
                  "--partitions", "2", "--algorithm", "accelerated", "-e", "1e-4", str(tmp_path / "part-*.svm")]

        with subprocess.Popen([*script, tmp_path / "model"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            time.sleep(1.5)
            cut(2, started[-1])
            out, error = process.communicate(timeout=60)
        assert process.returncode == 0 and "converged" in out, error
    finally:
        for process in started[::-1]:
            process.terminate()
            process.wait(timeout=20)
    undisturbed = mld.train(sorted(map(str, tmp_path.glob("part-*.svm"))), client=threads, partitions=2,
                            solver="l2svc", algorithm="accelerated", tol=1e-4)
    assert (ml.load_model(tmp_path / "model").weights == undisturbed.weights).all()


@pytest.mark.parametrize(("given", "status", "fragment"), [
    (["--scheduler-file", "nowhere"], 1, "can't open scheduler file nowhere"),
    (["--cluster", "local:0"], 2, "give local:N"), (["--cluster", "local:1", "-v", "3"], 2, "-v works on rows"),
    (["--cluster", "a", "--scheduler-file", "b"], 2, "both name a cluster"),
    (["--cluster", "local:1", "--checkpoint", "c", "--resume", "c"], 2, "leave out --checkpoint")])
def test_commands_that_are_refused(capfd, tmp_path, given, status, fragment):
    from marginlinear.cli.train import main

    (tmp_path / "rows").write_text("1 1:1\n2 1:2\n")
    assert main([*given, str(tmp_path / "rows"), str(tmp_path / "model")]) == status
    assert fragment in capfd.readouterr().err


def test_the_command_takes_targets(capfd, tmp_path):
    from marginlinear.cli.train import main

    X, z = numbers()
    ml.dump_libsvm(X, z, tmp_path / "rows")
    assert main(["--cluster", "local:1", "-s", "l2svr", str(tmp_path / "rows"), str(tmp_path / "model")]) == 0
    assert "converged" in capfd.readouterr().out
    assert isinstance(ml.load_model(tmp_path / "model"), ml.RegressionModel)


def test_importing_marginlinear_imports_no_dask():
    code = "import sys, marginlinear as ml; ml.train; ml.Store; print({'dask', 'pyarrow'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def test_workers_import_no_scikit_learn():
    code = "import sys, marginlinear.dask as mld; mld.train, mld.predict; print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
    assert not hasattr(mld, "DaskMargin") and mld.DaskMarginRegressor.__module__ == "marginlinear.dask.estimator"


def test_without_dask_the_extra_is_named():
    code = "import sys; sys.modules['dask'] = None\nimport marginlinear.dask"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'marginlinear[dask]'" in done.stderr


def test_the_extra_does_without_scikit_learn():
    code = "import sys; sys.modules['sklearn'] = None\nimport marginlinear.dask as mld; mld.DaskMarginClassifier(C=2.0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_worker_with_another_version_is_named(client, monkeypatch):
    from marginlinear.dask import training

    monkeypatch.setattr(training, "version", "0.0.0")
    with pytest.raises(ValueError, match=r"worker tcp.* has marginlinear .*, here it is 0\.0\.0"):
        training.require_workers(client)


def test_a_comparison_on_the_workers(client):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    sets, methods = {"a": (X, X[:, 0] > 0)}, ["l2svc;C=1,4", "cs;C=1"]
    there, here = (compare(sets, methods, splits=2, folds=2, executor=executor)
                   for executor in (client.get_executor(), None))
    assert there.to_json(seconds=False) == here.to_json(seconds=False)
