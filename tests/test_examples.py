"""The examples do what they print, at a small size."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import marginlinear as ml

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, *words):
    return subprocess.run([sys.executable, EXAMPLES / name, *map(str, words)], capture_output=True, text=True,
                          timeout=60)


def test_larger_than_memory(tmp_path):
    done = run("larger_than_memory.py", "--rows", 12_000, "--memory", "70M", "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    sweeps, passes = map(int, re.search(r"converged after (\d+) sweeps, (\d+) passes", done.stdout).groups())
    assert sweeps < passes
    objective, certificate = map(float, re.search(r"objective (\S+), certificate (\S+)", done.stdout).groups())
    assert 0 <= certificate <= 1e-2 * objective
    own, new = map(float, re.search(r"accuracy (\S+)% on the rows of the store, (\S+)% on new", done.stdout).groups())
    assert own > new > 60

    store = ml.Store(tmp_path / "text.store")
    there = ml.train(store, solver="l2svc", C=1, tol=1e-2, memory="70M", threads=1).info
    assert f"{there.objective:.6g}" == f"{objective:.6g}"


@pytest.mark.parametrize("words, said", [(["--rows", 3], "give 10,000 or more"), (["--memory", "4X"], "as in 4G")])
def test_larger_than_memory_refuses(tmp_path, words, said):
    done = run("larger_than_memory.py", "--folder", tmp_path, *words)
    assert done.returncode != 0 and said in done.stderr


def test_blocks_of_a_store_are_for_learners_in_parts(tmp_path):
    """Which take indices of 32 bits only."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    store = ml.Store.write([(ml.load_libsvm(EXAMPLES.parent / "data" / "glass"))], tmp_path / "s")
    learner = linear_model.SGDClassifier()
    for X, y in store.X_blocks():
        learner.partial_fit(X, y, classes=store.classes)
    assert learner.coef_.shape == (6, store.n_features)


def test_rivals_on_disk(tmp_path):
    """Its objective is the one that the fit told, and what was measured is not measured again."""
    pytest.importorskip("sklearn")
    tool = EXAMPLES.parent / "tools" / "rivals_on_disk.py"
    X, y = ml.load_libsvm(EXAMPLES.parent / "data" / "dna")
    ml.Store.write([(X, y == 1)], tmp_path / "s")
    words = [sys.executable, tool, tmp_path / "s", "--work", tmp_path / "w", "--passes", "2", "--only",
             "ours,sgd-l1svc-c"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [line.count("|") for line in done.stdout.splitlines()] == [9] * 6
    told = json.loads((tmp_path / "w" / "ours-l2svc.jsonl").read_text().splitlines()[-1])["objective"]
    assert json.loads((tmp_path / "w" / "ours-l2svc.json").read_text())[0]["l2svc"] == pytest.approx(told, rel=1e-9)
    assert subprocess.run(words, capture_output=True, text=True, timeout=60).stdout == done.stdout


def test_dask_text(tmp_path):
    pytest.importorskip("distributed")
    done = run("dask_text.py", "--rows", 6000, "--files", 3, "--partitions", 2, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "6,000 rows in 3 files" in done.stdout and "2 partitions of" in done.stdout
    assert len(re.findall(r"converged in \S+ s, objective", done.stdout)) == 2
    assert "each bound is below the other's objective: True" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"part-{number}.svm" for number in range(3)]
    there, here = map(float, re.search(r"accuracy on new rows (\S+)% and (\S+)%", done.stdout).groups())
    assert min(there, here) > 55


def test_dask_text_on_a_cluster_that_runs(tmp_path):
    distributed = pytest.importorskip("distributed")
    with (distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0",
                                   protocol="tcp://") as cluster,
          distributed.Client(cluster) as client):
        client.write_scheduler_file(tmp_path / "scheduler.json")
        done = run("dask_text.py", "--rows", 4000, "--files", 2, "--scheduler-file", tmp_path / "scheduler.json",
                   "--folder", tmp_path)
    assert done.returncode == 0 and "objective: True" in done.stdout, done.stderr


def test_dask_text_refuses(tmp_path):
    pytest.importorskip("distributed")
    done = run("dask_text.py", "--files", 0)
    assert done.returncode == 2 and "--files 0: give 1 to --rows" in done.stderr
