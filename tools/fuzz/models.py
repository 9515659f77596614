"""Model files, linear and of kernels, ours, LIBLINEAR's and LIBSVM's: each is refused in words, or is a model that
predicts, and that is the same once written and read again."""

import io
import os
import re
import tempfile
from hashlib import sha256

import numpy as np

from marginlinear import load_model, save_model
from marginlinear.data.arrays import CSR
from marginlinear.errors import DataError
from tools.fuzz import text

SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"\}\n\Z')
WORDS = [b"solver_type", b"MCSVM_CS", b"L2R_LR", b"L2R_L2LOSS_SVC_DUAL", b"L2R_L2LOSS_SVR", b"nr_class", b"label",
         b"classes", b"codes", b"++0", b"scaling", b"unit", b"range", b"nr_feature", b"bias", b"w", b"svm_type",
         b"c_svc", b"nu_svc", b"kernel_type", b"rbf", b"polynomial", b"sigmoid", b"linear", b"precomputed", b"gamma",
         b"degree", b"coef0", b"total_sv", b"rho", b"probA", b"probB", b"nr_sv", b"SV", b"marginlinear 1",
         b"marginlinear 2", b"null", b"true", b"NaN", b"Infinity", b"1e400", b"{}", b"[]", b'"str"', b'"float64"',
         b"calibration", b"pairwise", b"joint", b"1:1", b"0:1"]
# As of a file: whatever features the model has.
ROWS = CSR(np.array([0.5, -1.0, 2.0, 1e10, -3.0]), np.array([0, 1, 2, 0, 2], dtype=np.int32), np.array([0, 3, 3, 5]), 3)


def seeds():
    return []


def mutate(rng, data, other):
    data = text.mutate(rng, data, other, WORDS)
    seal = SEAL.search(data)
    if seal and rng.random() < 0.8:
        # Else little but the digest would be checked.
        data = data[: seal.start(1)] + sha256(data[: seal.start(1)]).hexdigest().encode() + data[seal.end(1) :]
    return data


def check(data):
    try:
        model = load_model(io.BytesIO(data))
    except DataError as error:
        return text.shape_of(error.reason)
    except MemoryError:
        return "memory"
    path = os.path.join(tempfile.gettempdir(), f"model-{os.getpid()}")
    save_model(model, path)
    with open(path, "rb") as stream:
        first = stream.read()
    again = load_model(path)
    save_model(again, path)
    with open(path, "rb") as stream:
        assert stream.read() == first, "written twice, the file differs"
    one, two = predictions(model), predictions(again)
    assert repr(one) == repr(two), f"read again, the model says {two}, before {one}"
    two = model.classes is not None and len(model.classes) == 2
    return type(model).__name__, model.solver, two, model.codes is None, model.scaling is None


def predictions(model):
    """What a model says of a few rows; None where its scores are not numbers, or the rows are none for it."""
    kernel = getattr(model, "kernel", None)
    if kernel is not None and kernel.kind == "precomputed":
        return None
    try:
        scores = model.decision_function(ROWS)
        if not np.isfinite(scores).all():
            return None
        labels = model.predict(ROWS)
    except ValueError as error:
        return str(error)
    assert model.classes is None or set(labels.tolist()) <= set(model.classes.tolist())
    if model.calibration is None:
        return scores.tolist(), labels.tolist()
    proba = model.predict_proba(ROWS)
    assert (np.abs(proba.sum(axis=1) - 1) < 1e-9).all() and (proba >= 0).all(), f"probabilities {proba}"
    return scores.tolist(), labels.tolist(), proba.tolist()
