"""Threads, for TSan: reading, training (certificates, one-vs-rest columns, folds), predicting and writing by several,
which must give, bit for bit, what one gives, in sweeps and in rounds that threads share, in memory and in the windows
of a store. Runs at the same time on threads of the caller are tried too.

An input is a JSON object, a recipe.
"""

import io
import json
import os
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from unittest import mock

import numpy as np

from marginlinear import Store, cross_validate, fitting, save_model, train
from marginlinear.algorithms.partitions import rounds
from marginlinear.libsvm import read_libsvm
from marginlinear.registry import methods
from marginlinear.store import layout, paging
from tools.fuzz import text

JOBS = "read", "train_by", "train_stored", "predict", "folds", "save"
CHOICES = {"job": JOBS, "threads": (2, 3, 4), "rows": (7, 300, 9000, 13000), "columns": (3, 40, 300),
           "classes": (2, 3, 7), "solver": tuple(methods()), "dense": (False, True), "block": (64, 4096, 1 << 16),
           "params": ({}, {"kernel": "rbf"}, {"multiclass": "ovo"}, {"multiclass": "ecoc"}, {"algorithm": "newton"},
                      {"scale": "range"}, {"probability": True}, {"algorithm": "accelerated"}, {"bias": 1.0}),
           "rounds": (False, True), "callers": (1, 1, 2), "seed": range(1000)}


def seeds():
    start = {name: values[0] for name, values in CHOICES.items()}
    found = [{**start, "job": job, "solver": solver, "rows": rows}
             for job in JOBS for solver, rows in (("mcodm", 9000), ("l2svc", 9000), ("odm", 300))]
    found += [{**start, "job": job, "solver": solver, "rows": rows, "columns": 40, "classes": classes, "threads": 4,
               "rounds": True}
              for job in ("train_by", "train_stored")
              for solver, classes, rows in (("cs", 7, 13000), ("mcodm", 7, 9000), ("l1svc", 2, 9000))]
    return [json.dumps(recipe).encode() for recipe in found]


def mutate(rng, data, other):
    recipe = json.loads(data)
    for name in rng.sample(list(CHOICES), 3):
        recipe[name] = rng.choice(CHOICES[name])
    return json.dumps(recipe).encode()


def check(data):
    recipe = json.loads(data)
    rng = np.random.default_rng(recipe["seed"])
    X, y = made(rng, recipe)
    work = globals()[recipe["job"]]
    # Rounds are taken from so many threads on: here by each number of them, or by none.
    many = 1 if recipe["rounds"] else 1 << 30
    with ExitStack() as stack:
        for module, name, value in ((fitting, "MANY", many), (rounds, "LEAST", 10_000), (layout, "CHUNK", 2000),
                                    (paging, "LITTLE", 1024)):
            stack.enter_context(mock.patch.object(module, name, value))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        try:
            alone = work(X, y, recipe, 1)
        except (TypeError, ValueError, MemoryError) as error:  # what the method does not have, or `memory` no room for
            return text.shape_of(str(error))
        with ThreadPoolExecutor(recipe["callers"]) as pool:
            several = [pool.submit(work, X, y, recipe, recipe["threads"]) for _ in range(recipe["callers"])]
    for found in several:
        assert found.result() == alone, "threads give something else"
    return recipe["job"], recipe["solver"]


def made(rng, recipe):
    from scipy import sparse

    rows = recipe["rows"] if recipe["job"] in ("read", "predict", "save") or not recipe["params"] else 60
    y = np.arange(rows) % recipe["classes"]
    X = rng.normal(size=(rows, recipe["columns"])) * (rng.random((rows, recipe["columns"])) < 4 / recipe["columns"])
    X[:, 0] += y
    return X if recipe["dense"] else sparse.csr_array(X), y


def read(X, y, recipe, threads):
    dense = X if recipe["dense"] else X.toarray()
    lines = [f"{label} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist()) if v)
             for label, row in zip(y, dense[:2000], strict=False)]
    found = read_libsvm(io.BytesIO("\n".join(lines).encode()), threads=threads, _block_size=recipe["block"])
    return found.data.tobytes(), found.indices.tobytes(), found.indptr.tobytes(), found.labels.tobytes()


def fitted(X, y, recipe, threads, **more):
    return train(X, y, solver=recipe["solver"], threads=threads, max_iter=5, **more, **recipe["params"])


def train_by(X, y, recipe, threads):
    return fitted(X, y, recipe, threads).weights.tobytes()


def train_stored(X, y, recipe, threads):
    with tempfile.TemporaryDirectory() as folder:
        store = Store.write([(X, y)], os.path.join(folder, "s"))
        return fitted(store, None, recipe, threads, memory=200_000).weights.tobytes()


def predict(X, y, recipe, threads):
    model = fitted(X[:60], y[:60], recipe, 1)
    return model.decision_function(X, threads=threads).tobytes(), model.predict(X, threads=threads).tobytes()


def folds(X, y, recipe, threads):
    found = cross_validate(X[:300], y[:300], solver=recipe["solver"], folds=3, threads=threads, max_iter=5,
                           **recipe["params"])
    return repr(found.score)


def save(X, y, recipe, threads):
    model = fitted(X[:60], y[:60], recipe, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m")
        save_model(model, path, threads=threads)
        with open(path, "rb") as stream:
            return stream.read()
