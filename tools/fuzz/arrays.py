"""Arrays that a caller hands over: rows with every kind of damage, labels and weights of every type, parameters of any
value. Each call is refused in words, or gives a model of finite weights that predicts and can be saved and loaded.
Rows that no sound matrix has are always refused.

An input is a JSON object, a recipe.
"""

import io
import json
import os
import tempfile
import warnings
from itertools import pairwise
from types import SimpleNamespace

import numpy as np

from marginlinear import load_model, save_model, train
from marginlinear.data.arrays import CSR
from marginlinear.libsvm import dump_libsvm, load_libsvm
from marginlinear.registry import methods
from tools.fuzz import text

REFUSED = ValueError, TypeError, MemoryError
INTEGERS = "int8", "int32", "uint16", "uint32", "int64", "uint64"
NUMBERS = [0, 1, -1, 2, 3, 5, 7, 127, 255, 32768, 65535, 2**31 - 1, 2**31, -2**31, 2**32, 2**63 - 1, -2**63, 10**6]
VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, 1e308, -1e308, 5e-324, float("nan"), float("inf"), 3e38, 1e15]
LABELS = [0, 1, 2, -1, 2**53, 2**63, -2**63, 2**64 - 1, 0.5, float("nan"), float("inf"), "a", "b", "", "a b", "x\n1",
          "\0", "é", "#", "1:1", "\ud800"]
LABEL_TYPES = [None, "int64", "int8", "uint64", "float32", "float64", "bool", "S2", "U3", "object", "complex128",
               "datetime64[s]", "float16"]
START = {"call": "train", "kind": "csr_array", "solver": "l2svc", "params": {}, "columns": 4, "canonical": False,
         "indptr": [0, 2, 3, 5, 6], "indices": [0, 2, 1, 0, 3, 2], "data": [1.0, -0.5, 2.0, 0.25, 1.0, -1.0],
         "indptr_type": "int32", "indices_type": "int32", "data_type": "float64", "y": [1, 2, 1, 2], "y_type": None}
CALLS = ["train", "train", "predict", "margins", "dump", "proba"]
KINDS = ["csr_array", "csr_matrix", "CSR", "dense", "fortran", "list", "csc_array", "strided", "duck"]
PARAMS = {"C": [1.0, 0.0, 1e300, 1e-300, float("nan"), "1", None, 64], "bias": [1.0, -1.0, 1e300, float("nan")],
          "tol": [1e-3, 1e-12, 0, 1e300], "max_iter": [1, 0, 100, 2**70], "threads": [1, 2, 3, 0],
          "algorithm": ["auto", "cd", "newton", "accelerated", "paper"], "kernel": ["linear", "rbf", "poly", "sigmoid",
                                                                                   "precomputed"],
          "gamma": [0.5, 1e300, 0], "multiclass": ["ovr", "ovo", "ecoc"], "scale": ["range", "maxabs", "unit"],
          "probability": [True], "seed": [0, 2**64 - 1, 2**64],
          "sample_weight": [[1, 2, 1, 1], [0, 0, 0, 0], [1, -1, 1, 1], [1], [1e300] * 4],
          "class_weight": [{"1": 2.0}, "balanced", 3, {"a": 1}], "mu": [0.5, 1, 2], "lambda2": [0.5, 0, 10.0]}


def seeds():
    found = []
    for solver in methods():
        for extra in ({}, {"kernel": "rbf"}, {"multiclass": "ovo", "bias": 1.0}):
            found.append({**START, "solver": solver, "params": extra})
    found += [{**START, "call": call} for call in CALLS] + [{**START, "kind": kind} for kind in KINDS]
    found.append({**START, "indptr": [0, 2, 3, 5, 6, 6], "y": [1, 2, 1, 2, 3], "canonical": True})
    return [json.dumps(recipe).encode() for recipe in found]


def mutate(rng, data, other):
    recipe = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        way = rng.randrange(10)
        if way < 5:
            name, choices = rng.choice((("indptr", NUMBERS), ("indices", NUMBERS), ("data", VALUES), ("y", LABELS)))
            change(rng, recipe[name], choices)
        elif way == 5:
            recipe[rng.choice(("indptr_type", "indices_type"))] = rng.choice(INTEGERS)
        elif way == 6:
            name, choices = rng.choice((
                ("call", CALLS), ("kind", KINDS), ("canonical", [True, False]), ("y_type", LABEL_TYPES),
                ("columns", [0, 1, 3, 5, 65536, 65537, 2**31 - 1, 2**31]), ("solver", list(methods())),
                ("data_type", ["float64", "float32", "int8", "bool", "float16", "uint64", "complex64", "object",
                               "longdouble"])))
            recipe[name] = rng.choice(choices)
        elif way < 9:
            name = rng.choice(list(PARAMS))
            recipe["params"][name] = rng.choice(PARAMS[name])
        else:
            second = json.loads(other)
            name = rng.choice(list(recipe))
            recipe[name] = second[name]
    return json.dumps(recipe).encode()


def change(rng, values, choices):
    at = rng.randint(0, len(values))
    values[at : at + rng.choice((0, 1, 1, 2))] = rng.choice(([], [rng.choice(choices)], values[at : at + 1] * 2,
                                                            [rng.choice(choices)] * rng.choice((1, 3, 50))))


def check(data):
    recipe = json.loads(data)
    try:
        X, y, sound = made(recipe)
    except (*REFUSED, OverflowError):
        return "not made"  # NumPy or SciPy refuse it themselves
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outcome = called(recipe, X, y)
        except REFUSED as error:
            assert str(error), "no message"
            return recipe["call"], type(error).__name__, text.shape_of(str(error))
    assert sound, "rows that are no matrix were taken"
    return outcome


def made(recipe):
    """(X, y, whether X is sound) of a recipe."""
    columns, kind = recipe["columns"], recipe["kind"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        indptr, indices = (np.array(recipe[name]).astype(recipe[f"{name}_type"]) for name in ("indptr", "indices"))
        values = np.array(recipe["data"], dtype=np.float64).astype(recipe["data_type"])
        y = np.array(recipe["y"], dtype=recipe["y_type"]) if recipe["y_type"] else recipe["y"]
    if kind in ("dense", "fortran", "list", "strided"):
        width = max(1, len(values) // 4)
        X = values[: len(values) // width * width].reshape(-1, width)
        return {"dense": X, "fortran": np.asfortranarray(X), "list": X.tolist(), "strided": np.repeat(X, 2, 0)[::2]}[
            kind], y, True
    rows = len(indptr) - 1
    # Behind the last row's end there may be more, as SciPy leaves it there.
    sound = (rows >= 0 and indptr[0] == 0 and int(indptr[-1]) <= min(len(indices), len(values))
             and all(int(a) <= int(b) for a, b in pairwise(indptr))
             and all(0 <= int(j) < columns for j in indices[: int(indptr[-1])]))
    if kind == "CSR":
        return CSR(values, indices, indptr, columns), y, sound
    if kind == "duck":
        return SimpleNamespace(data=values, indices=indices, indptr=indptr, n_features=columns), y, sound
    from scipy import sparse

    # A sound one, whose arrays are then exchanged: SciPy looks at them when it is made, and not again.
    X = getattr(sparse, kind)((max(rows, 0), columns))
    X.data, X.indices, X.indptr = values, indices, indptr
    if recipe["canonical"]:
        X.has_canonical_format = True
    if kind == "csc_array":
        # Turned into rows by SciPy's own loops, which believe what they are given.
        sound_columns = len(indptr) == columns + 1 and all(0 <= int(j) < rows for j in indices)
        if not (sound and sound_columns):
            raise ValueError("SciPy's own")
    return X, y, sound


def called(recipe, X, y):
    if recipe["call"] == "dump":
        target = io.BytesIO()
        dump_libsvm(X, np.asarray(y), target)
        load_libsvm(io.BytesIO(target.getvalue()), text_labels=True)
        return "dumped"
    params = dict(recipe["params"])
    if recipe["call"] != "train":
        model = known_model(recipe["solver"], params.get("kernel"), recipe["call"] == "proba")
        with np.errstate(all="ignore"):
            if recipe["call"] == "margins":
                return "margins", len(model.margins(X, y))
            found = model.predict(X) if recipe["call"] == "predict" else model.predict_proba(X)
        assert len(found) == (len(X.indptr) - 1 if hasattr(X, "indptr") else len(X))
        return recipe["call"]
    with np.errstate(all="ignore"):
        model = train(X, y, solver=recipe["solver"], time_limit=0.5, **{"max_iter": 200, "threads": 1, **params})
    assert np.isfinite(model.weights).all(), "weights that are not finite"
    path = os.path.join(tempfile.gettempdir(), f"arrays-{os.getpid()}")
    save_model(model, path)
    again = load_model(path)
    assert np.array_equal(again.classes, model.classes), f"labels {model.classes} came back as {again.classes}"
    return "trained", model.info.status


KNOWN = {}


def known_model(solver, kernel, probability):
    """A model of sound rows, made once."""
    key = solver, kernel, probability
    if key not in KNOWN:
        X = np.array([[1.0, 0, -0.5, 0], [0, 2, 0, 0], [0.25, 0, 0, 1], [0, 0, -1, 0]])
        how = {} if kernel is None or kernel == "precomputed" else {"kernel": kernel}
        try:
            KNOWN[key] = train(X, [1, 2, 1, 2], solver=solver, max_iter=200, probability=probability, **how)
        except REFUSED as error:
            KNOWN[key] = error
    if isinstance(KNOWN[key], Exception):
        raise KNOWN[key]
    return KNOWN[key]
