"""Why a fit stopped: statuses and reasons are forced, and said in the message, the log and the model file."""

import hashlib
import io
import json
import math

import numpy as np
import pytest

import marginlinear as ml
from marginlinear.algorithms.dual import JointFit
from marginlinear.cli import train
from marginlinear.status import CAPS, CONVERGED, FAILED, MAX_ITER, STALLED, STATUSES, TIME_LIMIT, ended_by, status_of


def problem(k=3, m=60, d=4, noise=0.0):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((m, d))
    return X, (X @ rng.standard_normal((d, k)) + noise * rng.standard_normal((m, k))).argmax(axis=1)


# After one outer iteration its rivals are not those of the weights.
OUTER = problem(4, 200, 8, noise=1.0)


def short(given=None, **params):
    """The Model of a fit that falls short, and the words of its warning."""
    with pytest.warns(ml.ConvergenceWarning) as caught:
        model = ml.train(*(given or problem()), **params)
    return model, str(caught[0].message)


@pytest.mark.parametrize(("certificate", "objective", "status"), [
    (1e-3, 1.0, CONVERGED), (1.1e-3, 1.0, STALLED), (0.1, 100.0, CONVERGED), (-1e-10, 1.0, CONVERGED),
    (-1e-8, 1.0, FAILED), (math.nan, 1.0, FAILED), (0.0, math.inf, FAILED)])
def test_status_of(certificate, objective, status):
    assert status_of(certificate, objective, 1e-3, STALLED) == (status, None)


def test_a_reason_goes_with_max_iter_alone():
    assert [ended_by(reason) for reason in CAPS] == [(MAX_ITER, reason) for reason in CAPS]
    assert [ended_by(status) for status in STATUSES] == [(status, None) for status in STATUSES]


@pytest.mark.parametrize("solver", ["l1svc", "cs", "mcodm", "m3svm", "msvmav", "ldm-asgd"])
def test_the_cap_on_sweeps(solver):
    """Or on what else n_iter counts. All methods and routes: test_registry.py."""
    model, words = short(solver=solver, tol=1e-12, max_iter=1)
    assert (model.info.status, model.info.reason) == (MAX_ITER, "sweeps")
    assert "the cap on sweeps came first: " in words and words.endswith("or more max_iter")


@pytest.mark.parametrize("outer", ["ccp", "paper"])
def test_the_cap_on_outer_iterations(outer):
    model, words = short(OUTER, solver="mcodm", C=0.1, tol=1e-6, outer=outer, max_outer=1)
    assert (model.info.status, model.info.reason, model.info.n_outer) == (MAX_ITER, "outer iterations", 1)
    assert "the cap on outer iterations came first: " in words and words.endswith("or more max_outer")


def test_the_time_limit():
    model, words = short(solver="l1svc", tol=1e-12, time_limit=1e-9)
    assert (model.info.status, model.info.reason) == (TIME_LIMIT, None)
    assert words.endswith("or more time_limit")


@pytest.mark.parametrize("solver", ["cs", "mcodm"])
def test_what_recomputed_sums_never_certify_has_stalled(solver, monkeypatch):
    """Checks within the tolerance and a final certificate above it, time and again: rounding, not a cap."""
    values = JointFit._values
    monkeypatch.setattr(JointFit, "_values", lambda *given: (values(*given)[0], values(*given)[1] - 1.0))
    model, words = short(solver=solver, C=1.0, max_iter=10**6)
    assert (model.info.status, model.info.reason) == (STALLED, None)
    assert model.info.certificate == pytest.approx(1.0, rel=1e-3) and "rounding" in words


def test_the_worst_column_says_why():
    model, _ = short(solver="l1svc", C=100.0, tol=1e-12, max_iter=2, multiclass="ovo")
    assert (model.info.status, model.info.reason) == (MAX_ITER, "sweeps")
    assert ml.train(*problem(), solver="l1svc", tol=1.0, multiclass="ovo").info.reason is None


def test_the_log_and_the_model_file_have_the_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ml.dump_libsvm(*OUTER, "rows")
    assert train.main(["-q", "-c", "0.1", "--max-outer", "1", "-e", "1e-6", "--log", "log", "rows", "model"]) == 0
    *_, last = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (last["status"], last["reason"]) == ("max_iter", "outer iterations")
    assert ml.load_model("model").info.reason == "outer iterations"


def edited(data, old, new):
    """A model file with its trailer changed, and sealed again."""
    assert data.count(old) == 1
    body = data.replace(old, new)[:-67]
    return io.BytesIO(body + hashlib.sha256(body).hexdigest().encode() + b'"}\n')


def test_model_files_without_a_reason_and_with_a_wrong_one(tmp_path):
    model, _ = short(OUTER, solver="mcodm", C=0.1, tol=1e-6, max_outer=1)
    ml.save_model(model, tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    assert ml.load_model(edited(data, b', "reason": "outer iterations"', b"")).info == (
        ml.load_model(tmp_path / "model").info._replace(reason=None, seconds=pytest.approx(math.nan, nan_ok=True)))
    with pytest.raises(ml.DataError, match="info: reason is 'why not'"):
        ml.load_model(edited(data, b'"outer iterations"', b'"why not"'))
