"""Data in every storage that `train` takes."""

import fcntl
import gc
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

# Before NumPy: threads of OpenBLAS that wait busily for each other can stop a fit for seconds on a machine at work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Hundreds of programs start: they keep what they compile, as they do by default.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import numpy as np
import pytest
from scipy import sparse

# For tools.*, behind all others: the marginlinear that is tested is the installed one.
sys.path.append(str(Path(__file__).resolve().parent.parent))


def pytest_collection_finish(session):
    """Thousands of tests are in memory now, and are no garbage: collections need not go through them each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def elsewhere(tmp_path_factory):
    """Run from an empty folder: `python -c` in a test must find the installed package, not the sources beside it."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    yield
    os.chdir(before)


@pytest.fixture(scope="session", autouse=True)
def signals_are_heard():
    """As in a terminal: what nohup, cron or a shell's `&` ignores would be ignored by every child process, too.

    Handlers are not inherited by other programs, so these start with the default action. A hang-up goes on sparing the
    tests themselves.
    """
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler)}
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda number, frame: None)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """Handles on the engines' inline kernels: kernels.pyx, compiled as setup.py compiles the engines."""
    # Processes of pytest-xdist have their folders in one, and compile them once.
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("kernels.*.so")):
            subprocess.run([sys.executable, "setup.py", "--quiet", "build_test_kernels", "--build-lib", folder,
                            "--build-temp", folder], cwd=Path(__file__).parent.parent, check=True)
    file, = folder.glob("kernels.*.so")
    spec = importlib.util.spec_from_file_location("kernels", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def alarm_interrupts():
    """A function: KeyboardInterrupt comes in this thread after so many seconds, unless the test has ended."""
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def interrupts_second_round(alarm_interrupts):
    """A callback: KeyboardInterrupt comes while the round after the first works, however fast the machine is."""
    begun = False

    def callback(check):
        nonlocal begun
        if not begun:
            begun = True
            alarm_interrupts(0.005)

    return callback


@pytest.fixture
def rows_as_given(monkeypatch):
    """Small problems are trained on as large ones are: with the rows that were given, in their order."""
    monkeypatch.setattr("marginlinear.data.canonical.SMALL", 0)


def with_int64(X):
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def mapped(folder, name, array):
    """`array` as a read-only memory map."""
    path = folder / f"{name}.npy"
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def mapped_csr(folder, X):
    arrays = [mapped(folder, name, getattr(X, name)) for name in ("data", "indices", "indptr")]
    return sparse.csr_array(tuple(arrays), shape=X.shape)


def shuffled_csr(X):
    """The same matrix with the features of each row in falling order."""
    X = sparse.csr_array(X)
    for lo, hi in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        X.indices[lo:hi], X.data[lo:hi] = X.indices[lo:hi][::-1].copy(), X.data[lo:hi][::-1].copy()
    X.has_sorted_indices = False
    return X


def split_coo(X):
    """The same matrix with every value as the sum of two entries."""
    half = sparse.coo_array(X / 2)
    coords = tuple(np.concatenate([c, c]) for c in (half.row, half.col))
    return sparse.coo_array((np.concatenate([half.data, half.data]), coords), shape=X.shape)


def explicit_zeros(X):
    full = sparse.csr_array(np.where(X == 0, 1.0, X))
    full.data = X.ravel().copy()
    return full


# (a dense float64 array with values that float32 holds, a folder) -> the same numbers, stored otherwise.
STORAGES = {
    "csr_array": lambda X, _: sparse.csr_array(X),
    "csr_matrix": lambda X, _: sparse.csr_matrix(X),
    "csr float32": lambda X, _: sparse.csr_array(X.astype(np.float32)),
    "csr int64 indices": lambda X, _: with_int64(sparse.csr_array(X)),
    "csr unsorted": lambda X, _: shuffled_csr(X),
    "csr explicit zeros": lambda X, _: explicit_zeros(X),
    "csc": lambda X, _: sparse.csc_array(X),
    "coo with duplicates": lambda X, _: split_coo(X),
    "lil": lambda X, _: sparse.lil_array(X),
    "dense": lambda X, _: X.copy(),
    "dense F order": lambda X, _: np.asfortranarray(X),
    "dense float32": lambda X, _: X.astype(np.float32),
    "dense strided": lambda X, _: np.repeat(X, 2, axis=1)[:, ::2],
    "dense big endian": lambda X, _: X.astype(">f8"),
    "list": lambda X, _: X.tolist(),
    "dense mapped": lambda X, folder: mapped(folder, "X", X),
    "dense float32 mapped": lambda X, folder: mapped(folder, "X32", X.astype(np.float32)),
    "csr mapped": lambda X, folder: mapped_csr(folder, sparse.csr_array(X)),
}


@pytest.fixture(params=list(STORAGES))
def storage(request, tmp_path):
    """A function from a dense array to the same numbers in one of the storages."""
    return lambda X: STORAGES[request.param](X, tmp_path)
