"""Stores: bytes, sizes, types and descriptions of their files changed. Half of them get the sums that belong to what is
there, so that wrong numbers are believed: they become addresses.

Opening, verifying, training in windows, predicting and margin-inspect give an error in words, or finite weights, and
one prediction in windows and in memory. What is changed without its sums is refused.

An input is a JSON object, a recipe.
"""

import copy
import io
import json
import os
import tempfile
import warnings
import zlib
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np

from marginlinear import Store, cross_validate, save_model, train
from marginlinear.algorithms.partitions import rounds
from marginlinear.cli.inspect import main as inspect
from marginlinear.errors import DataError
from marginlinear.store import layout, paging
from tools.fuzz import text
from tools.fuzz.arrays import NUMBERS, VALUES

REFUSED = ValueError, OSError, MemoryError
FILES = *layout.LARGE, *layout.SMALL
BASES = {"integers": [3, 5, 9], "floats": [0.5, 1.5], "words": ["a", "bc", "d"]}
ROWS, COLUMNS = 60, 12
TYPES = ["<f4", "<f8", "<u2", "<i4", "<i8", "<u4", "<i2", "<u8", ">f8", ">i4", "|i1", "|b1", "<c16", "|O", "<U1", "<U2",
         "<U300", "<U0", "|S4", "<M8[s]", "|V8", "<f2", "x", "", "<f4,<f4", "(2,)<f4"]
KEYS = ["m", "n_features", "nnz", "nonzeros", "chunks", "classes", "class_counts", "source", "types", "crc", "format",
        "sha256"]
JSON = [None, True, [], {}, [1, 2], [1, "a"], ["a", "b"], [[3], [5]], [20, 20, 20], {"name": "x"},
        {"name": "x", "size": 1}]
SETTINGS = {
    "sealed": [True, False], "base": list(BASES), "threads": [1, 2, 4],
    "memory": [700, 2000, 2000, 4000, 10**6], "sweeps_per_load": [None, None, 2], "folds": [None, None, 2],
    "params": [{"solver": "l2svc", **params} for params in (
                   {}, {"bias": 1.0}, {"scale": "range"}, {"multiclass": "ovo"}, {"class_weight": "balanced"},
                   {"probability": True}, {"algorithm": "newton"})]
              + [{"solver": "cs", **params} for params in ({}, {"scale": "unit"}, {"bias": 1.0}, {"algorithm": "cd"})]}
START = {**{name: values[0] for name, values in SETTINGS.items()}, "memory": 2000, "changes": []}


def seeds():
    found = [{**START, "base": base, "threads": threads, "memory": memory}
             for base in BASES for threads in (1, 4) for memory in (2000, 10**6)]
    found += [{**START, "params": params} for params in SETTINGS["params"]]
    found += [{**START, "folds": folds, "sealed": sealed, "changes": [["number", name, 3, 7]]}
              for name in FILES for sealed in (False, True) for folds in (None, 2)]
    found += [{**START, "changes": [["meta", [key], 2]]} for key in KEYS]
    found.append({**START, "changes": [["type", "indices", "<i4"]]})
    return [json.dumps(recipe).encode() for recipe in found]


def mutate(rng, data, other):
    recipe = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        way = rng.randrange(8)
        if way < 5:
            recipe["changes"].append(change(rng))
        elif way == 5 and recipe["changes"]:
            del recipe["changes"][rng.randrange(len(recipe["changes"]))]
        elif way == 6:
            recipe["changes"] += json.loads(other)["changes"][:3]
        else:
            name = rng.choice(list(SETTINGS))
            recipe[name] = rng.choice(SETTINGS[name])
    recipe["sealed"] = rng.random() < 0.5
    recipe["changes"] = recipe["changes"][-8:]
    return json.dumps(recipe).encode()


def change(rng):
    name, kind = rng.choice(FILES), rng.choice(("number",) * 6 + ("bytes", "cut", "resize", "type", "meta", "meta"))
    at = rng.choice((0, 1, -1, -2, *[rng.randrange(400)] * 4))
    if kind == "number":
        return [kind, name, at, rng.choice((rng.choice(NUMBERS), rng.choice(VALUES), rng.randrange(-2, 300)))]
    if kind == "bytes":
        changed = rng.randbytes(rng.choice((1, 1, 2, 4, 8))) if rng.random() < 0.8 else rng.choice(text.NUMBERS)
        return [kind, rng.choice((name, layout.META)), rng.randrange(1500), changed.hex()]
    if kind == "cut":
        return [kind, rng.choice((name, layout.META)), rng.choice((-1, 0, 20, layout.HEADER, rng.randrange(1500)))]
    if kind == "resize":
        return [kind, name, rng.choice((0, 1, 2, rng.randrange(400)))]
    if kind == "type":
        return [kind, name, rng.choice(TYPES)]
    key = rng.choice(KEYS)
    keys = [key, rng.choice(FILES)] if key in ("types", "crc") and rng.random() < 0.8 else [key]
    return [kind, keys, rng.choice((rng.choice(NUMBERS), rng.choice(VALUES), rng.randrange(400), rng.choice(TYPES),
                                    rng.choice(JSON)))]


# What is changed


@cache
def base(name):
    """(bytes of the arrays, description) of a sound store, and the bytes of a model of it."""
    rng, labels = np.random.default_rng(1), BASES[name]
    X = rng.normal(size=(ROWS, COLUMNS)).round(2) * (rng.random((ROWS, COLUMNS)) < 0.4)
    if name != "floats":
        X = X.astype(np.float32)
    y = np.array(labels)[np.arange(ROWS) % len(labels)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sound.store")
        store = Store.write([(X, y)], path)
        save_model(train(X, y, solver="cs", max_iter=5), Path(folder, "m"))
        return ({name: bytes_in(path, name) for name in FILES}, store.meta, Path(folder, "m").read_bytes())


def bytes_in(folder, name):
    return Path(layout.place(folder, name)).read_bytes()


def written(recipe, folder):
    """Write the store of a recipe; whether an array is another one than that which the sums were made of."""
    sound, described, _ = base(recipe["base"])
    files, meta = {name: bytearray(data) for name, data in sound.items()}, copy.deepcopy(described)
    for kind, *words in recipe["changes"]:
        # What cannot be changed so is left as it is.
        with suppress(TypeError, ValueError, OverflowError, KeyError, IndexError, MemoryError):
            if kind == "number":
                put_number(files, meta, *words)
            elif kind == "resize":
                name, count = words
                size = layout.HEADER + np.dtype(meta["types"][name]).itemsize * count
                files[name] = files[name][:size].ljust(size, b"\0")
            elif kind == "type":
                convert(files, meta, *words)
            elif kind == "meta":
                keys, value = words
                inner = meta
                for key in keys[:-1]:
                    inner = inner[key]
                inner[keys[-1]] = value
    if recipe["sealed"]:
        seal(files, meta)
    for name, data in files.items():
        Path(layout.place(folder, name)).write_bytes(data)
    layout.write_meta(folder, {key: value for key, value in meta.items() if key != "sha256"})
    for kind, name, *words in recipe["changes"]:
        path = Path(folder, layout.META if name == layout.META else f"{name}.npy") if kind in ("bytes", "cut") else None
        if kind == "bytes" and path.exists():
            at, new = words[0], bytes.fromhex(words[1])
            data = path.read_bytes()
            path.write_bytes(data[:at] + new + data[at + len(new):])
        elif kind == "cut" and path.exists():
            os.truncate(path, words[0]) if words[0] >= 0 else path.unlink()
    return any(not os.path.exists(layout.place(folder, name)) or bytes_in(folder, name) != files[name]
               for name in FILES) or (not recipe["sealed"] and files != sound)


def put_number(files, meta, name, at, value):
    data, dtype = files[name], np.dtype(meta["types"][name])
    with np.errstate(all="ignore"):
        new = np.array([value]).astype(dtype).tobytes()
    at = layout.HEADER + dtype.itemsize * at if at >= 0 else len(data) + dtype.itemsize * at
    if layout.HEADER <= at < len(data):
        data[at:at + len(new)] = new


def convert(files, meta, name, dtype):
    """The same numbers in another type."""
    array = np.frombuffer(bytes(files[name]), meta["types"][name], offset=layout.HEADER)
    meta["types"][name] = dtype
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        files[name][layout.HEADER:] = array.astype(dtype).tobytes()


def seal(files, meta):
    """Give the files the sizes, headers and sums that belong to them, as far as they have some."""
    refused = TypeError, ValueError, OverflowError, KeyError, IndexError
    shapes = {"indptr": lambda: (meta["m"] + 1,), "chunks": lambda: (meta["chunks"] + 1,),
              "crc": lambda: (meta["chunks"], 2), "values": lambda: (meta["nnz"],), "indices": lambda: (meta["nnz"],)}
    for name, data in files.items():
        with suppress(*refused):
            dtype, shape = np.dtype(meta["types"][name]), shapes.get(name, lambda: (meta["m"],))()
            size = dtype.itemsize * int(np.prod(shape))
            if 0 <= size <= 1 << 20:
                files[name] = bytearray(layout.header_of(dtype, shape) + data[layout.HEADER:][:size].ljust(size, b"\0"))
    with suppress(*refused):
        indptr, chunks = (np.frombuffer(files[name], "<i8", offset=layout.HEADER) for name in ("indptr", "chunks"))
        begins = indptr[chunks].tolist()
        sums = [[zlib.crc32(files[name][layout.HEADER + step * lo:layout.HEADER + step * hi]) for name, step in (
            (name, np.dtype(meta["types"][name]).itemsize) for name in layout.LARGE)]
            for lo, hi in pairwise(begins)]
        new = np.array(sums, "<u4").tobytes()
        files["crc"][layout.HEADER:layout.HEADER + len(new)] = new
    for name in layout.SMALL:
        with suppress(*refused):
            meta["crc"][name] = zlib.crc32(files[name])


# What is tried


@contextmanager
def small():
    """Chunks of a few values, all arrays of rows on disk, and rounds, so that small stores are large."""
    with ExitStack() as stack:
        for module, name, value in ((layout, "CHUNK", 32), (paging, "LITTLE", 64), (rounds, "LEAST", 1),
                                    (rounds, "WORTH", 0)):
            stack.enter_context(mock.patch.object(module, name, value))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(np.errstate(all="ignore"))
        yield


def check(data):
    recipe = json.loads(data)
    with small(), tempfile.TemporaryDirectory() as folder:
        path, model = os.path.join(folder, "s"), os.path.join(folder, "m")
        os.mkdir(path)
        Path(model).write_bytes(base(recipe["base"])[2])
        damaged = written(recipe, path)
        outcomes = {work.__name__: tried(work, recipe, path) for work in (verified, trained, of_source)}
        assert not damaged or outcomes["verified"], "damage that nobody has seen"
        for words in ([path], ["--json", path], [model, path]):
            told, complaint = io.TextIOWrapper(io.BytesIO()), io.StringIO()
            with redirect_stdout(told), redirect_stderr(complaint):
                status = inspect(words)
            assert told.buffer.getvalue() if status == 0 else status < 3 and complaint.getvalue(), words
            # By a description whose labels the store has not, or for labels that are no words.
            assert status == 0 or outcomes["verified"] or words[0] == model, complaint.getvalue()
    assert not outcomes["verified"] or outcomes["trained"], "a store that is refused was trained on"
    return tuple(outcomes.values())


def tried(work, recipe, path):
    """How a refusal is worded, or None."""
    try:
        work(recipe, path)
    except REFUSED as error:
        # Those that nobody meant, of decoding for one, have types of their own.
        assert type(error) in (DataError, ValueError, MemoryError) or isinstance(error, OSError), type(error).__name__
        assert str(error), "no message"
        return type(error).__name__, text.shape_of(str(error).replace(path, ""))


def verified(recipe, path):
    store = Store(path)
    repr(store)
    for chunk in range(len(store.verified)):
        store.verify(chunk)
    rows = store.in_memory()
    assert sum(X.shape[0] for X, _ in store.X_blocks()) == len(rows.labels) == store.m


def trained(recipe, path):
    params = {name: recipe[name] for name in ("threads", "memory", "sweeps_per_load")}
    if recipe["folds"]:
        cross_validate(Store(path), folds=recipe["folds"], max_iter=3, **params, **recipe["params"])
        return
    store = Store(path)
    model = train(store, max_iter=3, time_limit=5.0, **params, **recipe["params"])
    assert np.isfinite(model.weights).all(), "weights that are not finite"
    assert model.info.bytes_read > 0
    assert (model.predict(Store(path), threads=1) == model.predict(store.in_memory())).all(), "another prediction"


def of_source(recipe, path):
    """What a store says of its source."""
    with suppress(DataError):
        Store(path).require_source(os.path.join(path, layout.META))
