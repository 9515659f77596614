"""Those who look on at a fit: callbacks, Ctrl-C, checkpoints, by every method."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from running import HARD, has_text, until
from scipy import sparse

import marginlinear as ml
from marginlinear import registry
from marginlinear.cli import train
from marginlinear.modelfile import checkpoint
from marginlinear.status import allowance

ROOT = str(Path(ml.__file__).parents[1])
CASES = [(name, kernel) for name, method in registry.methods().items() for kernel in (None, "rbf")
         if kernel is None or method.kernels]
each = pytest.mark.parametrize("name, kernel", CASES, ids=lambda value: str(value))


def problem(name, m=150, d=6, k=3):
    """(X, y) of features whose sizes differ, on which no method is done at once."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((m, d)) * 10.0 ** rng.integers(-1, 2, d)
    scores = X @ rng.standard_normal((d, k)) + rng.standard_normal((m, k))
    return X, scores[:, 0] if registry.get(name).regression else scores.argmax(axis=1)


def fit(name, kernel, **given):
    X, y = problem(name)
    kernels = {} if kernel is None else {"kernel": kernel, "gamma": 0.01}
    nu = {"nu": 0.2} if "nu" in {p.name for p in registry.get(name).takes} else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        return ml.train(X, y, solver=name, **{"tol": 1e-10, **kernels, **nu, **given})


def promises(name):
    """Whether its fits end by a certificate."""
    return name not in ("msvmav", "ldm-asgd")


@each
def test_a_callback_ends_a_fit_and_a_checkpoint_goes_on(name, kernel, tmp_path):
    seen, models = [], []

    def callback(check):
        seen.append(check)
        if not models:
            models.append(check.model())
        return len(seen) == 2

    path = tmp_path / "c"
    stopped = fit(name, kernel, callback=callback, checkpoint=path)
    undisturbed = fit(name, kernel, tol=1e-6)
    # Small fits end at their second check, which is that of the end.
    assert stopped.info.status in ("stopped", "converged", "finished")
    assert stopped.info.n_iter >= seen[1].n_iter
    assert [entry["n_iter"] for entry in stopped.info.history][:2] == [check.n_iter for check in seen[:2]]
    assert models[0].weights.shape[1] == stopped.weights.shape[1] and models[0].info.objective < np.inf
    resumed = fit(name, kernel, tol=1e-6, resume_from=path)
    assert resumed.info.status == undisturbed.info.status
    if promises(name) and name != "mcodm":
        assert stopped.info.bound <= undisturbed.info.objective + 1e-9 * abs(undisturbed.info.objective)
        assert abs(resumed.info.objective - undisturbed.info.objective) <= allowance(1e-6, resumed.info.objective)


def test_looking_on_changes_nothing(tmp_path):
    X, y = problem("cs")
    for given in ({"solver": "cs"}, {"solver": "l1svc"}, {"solver": "l2svc", "kernel": "rbf"}):
        plain = ml.train(X, y, **given, tol=1e-6)
        watched = ml.train(X, y, **given, tol=1e-6, callback=lambda check: check.model() and None,
                           checkpoint=tmp_path / "c", checkpoint_seconds=0)
        assert plain.weights.tobytes() == watched.weights.tobytes()


def test_what_a_callback_is_told():
    X, y = problem("cs")
    seen = []
    model = ml.train(X, y, solver="cs", callback=seen.append)
    assert [check.entry() for check in seen] == model.info.history
    assert isinstance(seen[0], ml.Progress) and seen[0].columns is seen[0].fold is None
    several = ml.train(X, y, solver="l2svc", callback=lambda check: check.columns == 2)
    assert several.info.status == "stopped" and several.info.history[-1]["columns"] == 3
    assert (several.weights[:, :2] != 0).any() and (several.weights[:, 2] == 0).all()
    assert several.info.objective - several.info.bound == several.info.certificate > 0
    for answer in (1, "yes", [True], None, False):
        assert ml.train(X, y, solver="cs", callback=lambda check, answer=answer: answer).info.converged
    assert ml.train(X, y, solver="cs", tol=1e-12, callback=lambda check: np.True_).info.status == "stopped"


@contextlib.contextmanager
def interrupting(after):
    """A callback that presses Ctrl-C at the check of this number."""
    count = []

    def callback(check):
        count.append(check)
        if len(count) == after:
            signal.raise_signal(signal.SIGINT)

    yield callback


@pytest.mark.parametrize("name, kernel", [("cs", None), ("l1svc", "rbf"), ("ldm", None), ("l1lr", None),
                                          ("softmax", None), ("oneclass", None), ("mcodm", None)])
def test_ctrl_c(name, kernel, tmp_path):
    with interrupting(2) as callback, pytest.raises(KeyboardInterrupt) as caught:
        fit(name, kernel, callback=callback, checkpoint=tmp_path / "c")
    partial = caught.value.partial
    assert isinstance(caught.value, ml.Interrupted) and partial is caught.value.partial
    assert partial.info.status == "interrupted" and not partial.info.converged
    with interrupting(2) as callback:
        kept = fit(name, kernel, callback=callback, on_interrupt="keep")
    assert kept.info.status == "interrupted"
    assert kept.weights.tobytes() == partial.weights.tobytes()
    resumed = fit(name, kernel, tol=1e-6, resume_from=tmp_path / "c")
    assert resumed.info.converged


def test_the_model_that_is_kept_is_warned_of():
    X, y = problem("cs")
    with interrupting(2) as callback, pytest.warns(ml.ConvergenceWarning, match=r"\(interrupted\).*the best so far"):
        ml.train(X, y, solver="cs", tol=1e-12, callback=callback, on_interrupt="keep")


def test_ctrl_c_in_the_fits_of_probabilities():
    X, y = problem("cs")
    pressed = []

    def press(check):
        if check.fold and not pressed:
            pressed.append(check)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(ml.Interrupted) as caught:
        ml.train(X, y, solver="cs", probability=True, callback=press, threads=1)
    pressed.clear()
    kept = ml.train(X, y, solver="cs", probability=True, callback=press, on_interrupt="keep", threads=1)
    stopped = ml.train(X, y, solver="cs", probability=True, callback=lambda check: check.fold is not None)
    for model in (caught.value.partial, kept, stopped):
        assert model.info.converged and model.calibration is None
    assert "before its probabilities" in kept.info.notes[-1] and stopped.info.notes == kept.info.notes


def test_before_there_is_anything(alarm_interrupts):
    """An interrupt before the first check is a plain one."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1500, 4)), rng.integers(2, size=1500)

    def kernel(left, right):
        time.sleep(0.05)
        return left @ right.T

    alarm_interrupts(0.3)
    with pytest.raises(KeyboardInterrupt) as caught:
        ml.train(X, y, solver="l1svc", kernel=kernel)
    assert type(caught.value) is KeyboardInterrupt


@pytest.mark.parametrize("name, classes", [("l1svc", 2), ("l1svc", 3), ("l1svr", 0), ("nusvc", 2)])
def test_what_a_fit_over_a_kernel_had_found_is_kept(name, classes):
    """It is that of the last check; of several binary problems those that were done."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 5))
    y = np.sign(X[:, 0]) if classes == 2 else np.digitize(X[:, 0], [-1, 1]) if classes else X[:, 0] ** 2
    by_column = name == "l1svc" and classes == 3
    with interrupting(2 if by_column else 3) as callback, pytest.raises(ml.Interrupted) as caught:
        ml.train(X, y, solver=name, kernel="rbf", tol=1e-6, callback=callback, threads=1)
    found = caught.value.partial
    if by_column:
        assert found.weights.any(axis=0).sum() == 2
    else:
        assert found.info.objective == pytest.approx(found.info.history[2]["objective"], rel=1e-3)


@pytest.mark.parametrize("name", ["l1svc", "l1svr"])
def test_weights_that_are_all_0_are_nothing_to_keep(name):
    """As at the first check of these; a callback gets what it asks for."""
    X, y = problem(name, k=2)
    with interrupting(1) as callback, pytest.raises(KeyboardInterrupt) as caught:
        ml.train(X, y, solver=name, kernel="rbf", callback=callback)
    assert type(caught.value) is KeyboardInterrupt
    stopped = ml.train(X, y, solver=name, kernel="rbf", callback=lambda check: True)
    assert (stopped.info.status, stopped.n_support) == ("stopped", 0)


def test_a_command_that_has_found_nothing_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").write_text("1 1:1\n2 2:1\n")
    (tmp_path / "m").write_text("svm_type of the old model")
    monkeypatch.setattr("marginlinear.api.fit_model", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert train.main(["d", "m"]) == 130
    assert capsys.readouterr().err == "nothing has been found yet: no model is written\nmargin-train: interrupted\n"
    assert (tmp_path / "m").read_text() == "svm_type of the old model"


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    X, y = problem("cs")
    path = tmp_path / "c"
    ml.train(X, y, solver="cs", checkpoint=path)
    for given, words in (
            ({"X": X, "y": y, "solver": "mcodm"}, "method = cs, this fit has mcodm"),
            ({"X": X, "y": (y + 1) % 3, "solver": "cs"}, "other rows or labels"),
            ({"X": 2 * X, "y": y, "solver": "cs"}, "other rows or labels"),
            ({"X": X[:, 1:], "y": y, "solver": "cs"}, "features = 6, this fit has 5"),
            ({"X": X, "y": y, "solver": "cs", "kernel": "linear"}, "kernel = None"),
            ({"X": X, "y": y, "solver": "cs", "start": ml.train(X, y, solver="cs")}, "both given")):
        with pytest.raises(ValueError, match=words):
            ml.train(**given, resume_from=path)
    with pytest.raises(FileNotFoundError, match="missing"):
        ml.train(X, y, resume_from=tmp_path / "missing")
    with pytest.raises(ValueError, match="checkpoint = '-' is not allowed: give a file"):
        ml.train(X, y, checkpoint="-")
    with pytest.raises(FileNotFoundError, match="no such directory"):
        ml.train(X, y, checkpoint=tmp_path / "no" / "c")


def test_a_checkpoint_of_columns_that_are_not_all_there(tmp_path):
    X, y = problem("cs")
    path = tmp_path / "c"
    ml.train(X, y, solver="ldm", checkpoint=path, callback=lambda check: check.columns == 1)
    state = checkpoint.read_checkpoint(path).state
    assert [column is None for column in state["columns"]] == [False, True, True]
    assert ml.train(X, y, solver="ldm", resume_from=path).info.converged


def test_the_rows_of_a_file_and_of_arrays_have_one_checkpoint(tmp_path):
    rng = np.random.default_rng(0)
    X = sparse.random_array((300, 40), density=0.3, rng=rng, format="csr")
    X.data = X.data.astype(np.float32).astype(float)
    y = rng.integers(2, size=300)
    ml.dump_libsvm(X, y, tmp_path / "d")
    ml.train(X, y, solver="l2svc", checkpoint=tmp_path / "c")
    data = ml.libsvm.read_libsvm(tmp_path / "d")
    assert ml.train(data, data.labels, solver="l2svc", resume_from=tmp_path / "c").info.converged


def test_damaged_checkpoints_are_refused(tmp_path):
    X, y = problem("cs")
    path, other = tmp_path / "c", tmp_path / "other"
    ml.train(X, y, solver="ldm", checkpoint=path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    kept = repr(checkpoint.read_checkpoint(path).state)
    for at in [0, 1, len(data) // 2, len(data) - 1, *rng.integers(len(data), size=300)]:
        changed = bytearray(data)
        changed[at] ^= 1 << int(rng.integers(8))
        other.write_bytes(changed)
        try:
            found = checkpoint.read_checkpoint(other)
        except ml.DataError as error:
            assert str(other) in str(error) and "begin the fit anew" in str(error)
        else:
            # Dates, and other things of the archive that nobody reads.
            assert repr(found.state) == kept
    for size in (0, 1, 100, len(data) - 1):
        other.write_bytes(data[:size])
        with pytest.raises(ml.DataError, match="is no checkpoint"):
            checkpoint.read_checkpoint(other)


def test_hostile_checkpoints_take_no_memory(tmp_path):
    path = tmp_path / "c"
    header = '{"format": 1, "version": "1", "rows": 1, "tree": {"dict": {}}, "arrays": [["float64", [1000000000000]]]}'
    for kind in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        with zipfile.ZipFile(path, "w", kind) as archive:
            archive.writestr(checkpoint.HEADER, header)
            archive.writestr("0", b"\0" * (1 << 20))
        with pytest.raises(ml.DataError, match=r"not stored as it is|cannot reshape"):
            checkpoint.read_checkpoint(path)


def test_a_disk_that_is_full_does_not_end_the_fit(tmp_path, monkeypatch):
    X, y = problem("cs")

    def full(start, path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(checkpoint, "write_checkpoint", full)
    with pytest.warns(RuntimeWarning, match="the fit goes on: .*No space left"):
        assert ml.train(X, y, solver="cs", checkpoint=tmp_path / "c", checkpoint_seconds=0).info.converged


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ROOT)
    X, y = problem("cs", m=2000, d=20)
    ml.dump_libsvm(X, y, "d")
    return tmp_path


def command(*arguments):
    return [sys.executable, "-m", "marginlinear.cli.train", *arguments]


def test_the_command_keeps_a_fit_and_goes_on(folder):
    with subprocess.Popen(command(*HARD, "--log", "log", "--checkpoint", "c", "d", "m"), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        until(lambda: has_text(folder / "log"))
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"(interrupted; tolerance" in out
    assert error.startswith(b"interrupted: the model so far will be written") and b"the best so far" in error
    model = ml.load_model("m")
    assert model.info.status == "interrupted" and sorted(os.listdir()) == ["c", "d", "log", "m"]
    done = subprocess.run(command("-s", "cs", "-e", "0.1", "--resume", "c", "d", "m"), capture_output=True, text=True)
    assert done.returncode == 0 and "(converged; tolerance" in done.stdout, done.stderr


@pytest.mark.parametrize("arguments, status, words", [
    (["--checkpoint", "c", "--resume", "c", "d"], 2, "--resume goes on writing its own file: leave out --checkpoint"),
    (["--checkpoint", "c", "-v", "3", "d"], 2, "--checkpoint is for a single fit"),
    (["--checkpoint", "d", "d"], 2, "d"),
    (["--checkpoint", "no/c", "d"], 1, "can't write checkpoint no/c: no such directory"),
    (["--resume", "none", "d"], 1, "can't open checkpoint none: No such file or directory"),
    (["--resume", "d.copy", "d"], 1, "d.copy: this is no checkpoint of marginlinear"),
])
def test_what_the_command_refuses(folder, arguments, status, words):
    Path("d.copy").write_bytes(Path("d").read_bytes())
    done = subprocess.run(command(*arguments), capture_output=True, text=True)
    assert done.returncode == status and words in done.stderr


def test_the_weights_of_steps_in_the_scores_are_kept():
    """L-BFGS holds coefficients of the rows: what is kept is the weights of its last step."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 400), density=0.1, rng=rng, format="csr")
    seen = []
    stopped = ml.train(X, rng.integers(4, size=60), solver="softmax", C=100, tol=1e-9,
                       callback=lambda check: seen.append(check) or len(seen) == 6)
    assert stopped.info.status == "stopped" and seen[5].n_iter == 5
    assert stopped.info.objective <= seen[5].objective * (1 + 1e-9) < seen[0].objective


@pytest.mark.parametrize("name, kernel, options", [
    ("mcodm", None, {}), ("mcodm", "rbf", {}), ("mcodm", None, {"outer": "paper"}), ("lpmcsvm", "rbf", {"norm": 1.2})])
def test_what_is_kept_is_the_best_that_a_check_has_told(name, kernel, options):
    """Sweeps against references hold fast to the weights where these were made, whatever was found since."""
    for after in (1, 2, 4, 7, 12):
        seen = []

        def callback(check, seen=seen, after=after):
            seen.append(check.entry())
            return len(seen) == after

        kept = fit(name, kernel, C=300.0, callback=callback, **options)
        limited = fit(name, kernel, C=300.0, max_iter=max(entry["n_iter"] for entry in seen), **options)
        for info, told in ((kept.info, seen), (limited.info, limited.info.history)):
            least = min(entry["objective"] for entry in told)
            assert info.converged or info.objective <= least * (1 + 1e-6), (after, info)
            assert info.certificate == info.objective - info.bound >= 0


@pytest.mark.parametrize("name, kernel", [("nusvr", None), ("l2svc", "rbf"), ("l1svr", "rbf")])
def test_pairs_keep_what_a_round_has_told(name, kernel):
    """The dual rises with the rounds, the objective need not fall."""
    X, y = problem(name, k=2, m=600)
    for after in (2, 3, 5, 9):
        seen = []

        def callback(check, seen=seen, after=after):
            seen.append(check.objective)
            return len(seen) == after

        given = {} if kernel is None else {"kernel": kernel, "gamma": 0.1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ml.ConvergenceWarning)
            kept = ml.train(X, y, solver=name, C=1000.0, tol=1e-9, callback=callback, **given)
            limited = ml.train(X, y, solver=name, C=1000.0, tol=1e-9, max_iter=max(after - 1, 1), **given)
        assert kept.info.objective <= min(seen) * (1 + 1e-4)
        told = min(entry["objective"] for entry in limited.info.history)
        assert limited.info.objective <= told * (1 + 1e-4)
        # What has risen is not lost.
        resumed = ml.train(X, y, solver=name, C=1000.0, start=kept, time_limit=20, **given)
        assert resumed.info.bound >= kept.info.bound - 1e-6 * abs(kept.info.bound)
