"""The rule of `data.reading`, for every reader of a file: whatever stands in it, either it is read, within the
memory that its size allows, or a DataError says where and what is wrong."""

import hashlib
import json
import math
import os
import re
import tracemalloc

import numpy as np
import pytest

from marginlinear.api import train
from marginlinear.cli.data import read_names
from marginlinear.cli.rows import read_weights
from marginlinear.cli.scale import read_ranges
from marginlinear.data.columns import table_rows
from marginlinear.data.reading import MEMORY, NESTED, NUMBER, SPARE, JSONFault, json_of
from marginlinear.errors import DataError
from marginlinear.modelfile import load_model, save_model
from marginlinear.modelfile.checkpoint import read_checkpoint
from marginlinear.params import ERRORS, OF_LABEL_SETS
from marginlinear.selection.journal import Entries, Journal
from marginlinear.selection.metrics import METRICS, is_score
from marginlinear.selection.tables import is_number, read_log, read_table

SIZE = 1 << 15


def model(path):
    """What loads can be saved, and predicts."""
    found = load_model(path)
    save_model(found, os.devnull)
    if getattr(getattr(found, "kernel", None), "kind", None) != "precomputed":
        with np.errstate(all="ignore"):
            found.labels_of(found.decide(np.zeros((1, 2))))


def journal(path):
    entries = Entries([{"C": 1.0}], 2)
    Journal(path, {"metric": "accuracy"}).read_into(entries)
    if len(entries) == 2:
        assert 0 <= entries.table(["accuracy"], [3, 3])[0]["score"] <= 1


READERS = {"csv": lambda path: table_rows(str(path), "label", ["town"]), "model": model,
           "ranges": lambda path: read_ranges(path, 1), "journal": journal, "log": read_log,
           "table": read_table, "names": lambda path: read_names(path, 2),
           "weights": lambda path: read_weights(path, 2), "checkpoint": read_checkpoint}
FIT = '{"params": {"C": 1.0}, "fold": %d, "score": 0.5, "status": "converged", "n_iter": 3, "seconds": 0.1}\n'
CHECK = '{"n_iter": 4, "seconds": 0.5, "objective": 1.5, "certificate": 0.25, "residual": null'
TEXTS = {
    "csv": 'age,town,label\n1.5,"Rom",1\n-2e3,"a ""b""",2\n',
    "ranges": "y\n0 1\n2 3\nx\n-1 1\n1 0 0.5\n7 -1 1e3\n",
    "journal": '{"search": {"metric": "accuracy"}}\n' + FIT % 1 + FIT % 2,
    "log": CHECK + '}\n' + CHECK + ', "status": "converged", "tol": 0.001}\n',
    "table": "C,score,fold_1\n0.5,0.25,1\n2,0.75,0\n",
    "names": "a\nb\n",
    "weights": "1\n0.5\n",
}


def resealed(data):
    """A model file whose digest is right again."""
    return data[:-67] + hashlib.sha256(data[:-67]).hexdigest().encode() + b'"}\n' if data[-3:] == b'"}\n' else data


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """(name of the reader, bytes of a file that it reads) of every kind of file."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((9, 2)), np.arange(9) % 3
    found = [(name, text.encode()) for name, text in TEXTS.items()]
    path = tmp_path_factory.mktemp("seeds") / "m"
    for given in ({"solver": "mcodm"}, {"solver": "ldm", "multiclass": "ovo", "scale": "unit"},
                  {"solver": "l1svc", "kernel": "poly", "coef0": 1.0, "multiclass": "ovo", "probability": True},
                  {"solver": "cs", "kernel": "rbf", "scale": "range", "probability": True, "bias": 1.0}):
        save_model(train(X, y, **given), path)
        found.append(("model", path.read_bytes()))
    sets = [set(), {0, 1}, {1}] * 3
    for given in ({"bias": 1.0, "probability": True}, {"kernel": "rbf"}):
        save_model(train(X, sets, solver="l2svc", **given), path)
        found.append(("model", path.read_bytes()))
    train(X, y, solver="cs", checkpoint=path)
    found.append(("checkpoint", path.read_bytes()))
    # As other programs write it: without a trailer, with probabilities of pairs.
    found.append(("model", b"svm_type c_svc\nkernel_type precomputed\nnr_class 3\ntotal_sv 3\nrho 0 1 2\nlabel 4 5 6\n"
                  b"probA -1 -2 -3\nprobB 0 0 0\nnr_sv 1 1 1\nSV\n1 2 0:1\n3 4 0:2\n5 6 0:3\n"))
    return found


def outcome(name, path):
    """The DataError of reading the file, or None; anything else is raised."""
    try:
        READERS[name](path)
    except DataError as error:
        assert error.path == str(path)
        assert len(error.reason) < 500 and error.reason.isprintable()
        return error
    return None


@pytest.mark.parametrize("word", [
    b"-1", b"5", b"1e400", b"NaN", b"9" * 5000, b"2147483648", b"18446744073709551616", b'"x"', b"null", b"true",
    b"[1]", b"[" * 900 + b"]" * 900, b"", b"1_0", b"\xff", b"\xd9\xa1"], ids=lambda word: repr(word[:12]))
def test_any_number_of_any_file_may_be_anything(tmp_path, seeds, word):
    path = tmp_path / "file"
    for name, data in seeds:
        for number in re.finditer(rb"(?<![\w.])-?\d+(\.\d+)?(e-?\d+)?(?![\w.])", data):
            path.write_bytes(resealed(data[:number.start()] + word + data[number.end():]))
            error = outcome(name, path)
            assert error is None or error.line or name in ("model", "log", "checkpoint"), error


def test_what_is_saved_is_what_was_loaded(tmp_path, seeds):
    path, copy = tmp_path / "file", tmp_path / "copy"
    for name, data in seeds:
        path.write_bytes(data)
        assert outcome(name, path) is None
        if name == "model":
            save_model(load_model(path), copy)
            text = copy.read_bytes()
            save_model(load_model(copy), copy)
            assert copy.read_bytes() == text


def repeated(unit, head=b"", tail=b"\n"):
    return head + unit * (SIZE // len(unit)) + tail


def linear(k, codes=b"", weights=b"0\n", features=1):
    kind = b"MARGINLINEAR" if codes else b"MCSVM_CS"
    labels = b" ".join(b"%d" % label for label in range(k))
    return (b"solver_type %b\nnr_class %d\nlabel %b\n%bnr_feature %d\nbias -1\nw\n%b"
            % (kind, k, labels, codes, features, weights))


def kernels(total, body, k=2, rho=b"0"):
    counts = b" ".join([b"%d" % (total // k)] * k)
    labels = b" ".join(b"%d" % label for label in range(k))
    return (b"svm_type c_svc\nkernel_type linear\nnr_class %d\ntotal_sv %d\nrho %b\nlabel %b\nnr_sv %b\nSV\n%b"
            % (k, total, rho, labels, counts, body))


BULK = {
    "nested lists": repeated(b"["), "nested objects": repeated(b'{"a":'), "digits": repeated(b"1"),
    "digits, then no digit": repeated(b"1", tail=b"x\n"), "zeros": repeated(b"\0"), "no text": repeated(b"\xff"),
    "empty lines": repeated(b"\n"), "blanks": repeated(b" "), "quotes": repeated(b'"'), "cells": repeated(b","),
    "lines": repeated(b"1\n"), "words": repeated(b"ab\n"), "objects": repeated(b'{"a":1}\n'),
    "lists": repeated(b"[],", b"[", b"[]]"), "objects of a list": repeated(b"{},", b"[", b"{}]"),
    "text": repeated(b'"aa",', b"[", b"0]"), "one key": repeated(b'"":0,', b"{", b'"":0}'),
    "runs": repeated(b'{"n_iter":1,"seconds":1,"objective":1,"certificate":1,"residual":1}\n'),
    "fits": b'{"search": {"metric": "accuracy"}}\n' + repeated((FIT % 1).encode()),
    "ranges": b"x\n-1 1\n" + b"".join(b"%d 0 1\n" % j for j in range(1, SIZE // 10)),
    "a far range": b"x\n0 1\n100000000 0 1\n",
    "rho, no digit": kernels(1, b"", rho=b"1" * SIZE + b"x"),
    "rho": kernels(1, b"", rho=b"0 " * (SIZE // 2)),
    "labels": linear(SIZE // 6), "labels of one column": linear(SIZE // 8, b"codes" + b" +" * (SIZE // 8) + b"\n"),
    "codes": linear(2, b"codes " + b"+" * (SIZE // 2) + b" " + b"-" * (SIZE // 2) + b"\n"),
    "weights": linear(2, weights=b"0 0\n" * (SIZE // 4), features=SIZE // 4),
    "weights that are not there": linear(3, features=10**18), "no weights": linear(3, weights=b"", features=0),
    "rows": kernels(SIZE // 2, b"0\n" * (SIZE // 2)), "a far feature": kernels(2, b"1 2147483647:1\n-1\n"),
    "pairs of classes": kernels(300, (b"1 " * 299 + b"1:1\n") * 300, 300, b"0 " * (300 * 299 // 2)),
    "rows without columns": kernels(10**10, b"", rho=b"").replace(b"c_svc", b"marginlinear"),
}


@pytest.mark.parametrize("case", BULK)
def test_memory_is_bounded_by_the_size(tmp_path, case):
    path = tmp_path / "file"
    path.write_bytes(BULK[case])
    for name in READERS:
        tracemalloc.start()
        try:
            outcome(name, path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= MEMORY * len(BULK[case]) + SPARE, name


def test_pairs_of_classes_are_read(tmp_path):
    """The case above is a model, and no error."""
    (tmp_path / "m").write_bytes(BULK["pairs of classes"])
    found = load_model(tmp_path / "m")
    assert (found.columns, found.weights.shape, found.predict(np.eye(2)).tolist()) == (44850, (300, 299), [0, 299])


@pytest.mark.parametrize("text, value", [
    (b"[1, -2.5e3, \"a\", null, true]", [1, -2500.0, "a", None, True]), (b"18446744073709551615", 2**64 - 1),
    (b"-9223372036854775808", -2**63), (b"[" * NESTED + b"]" * NESTED, None), (b"1e-400", 0.0)])
def test_json(text, value):
    found = json_of(text)
    assert found == value if value is not None else isinstance(found, list)


@pytest.mark.parametrize("text, line, column, reason", [
    (b'{"a":\n  1e400}', 2, 3, "'1e400' is not finite"), (b"[18446744073709551616]", 1, 2, "beyond 64 bits"),
    (b"[-9223372036854775809]", 1, 2, "beyond 64 bits"), (b"[1, Infinity]", 1, 5, "Infinity is not JSON"),
    (b'{"a": 1,\n"a": 2}', 2, 1, "'a' stands twice"), (b'["\xc3\xa9", x]', 1, 8, "Expecting value"),
    (b'["a",\n"\xff"]', 2, 2, "not UTF-8"), (b"[" * (NESTED + 1) + b"]" * (NESTED + 1), 1, 1, "nested too deeply"),
    (b"[" * 100_000, 1, 1, "nested too deeply"), (b"", 1, 1, "Expecting value")])
def test_json_that_is_refused(text, line, column, reason):
    with pytest.raises(JSONFault, match=reason) as caught:
        json_of(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize("text", ["0", "-1.", "+.5", "1e5", "1.5E-07"])
def test_numbers(text):
    assert NUMBER.fullmatch(text.encode()) and math.isfinite(float(text))


@pytest.mark.parametrize("text", ["", ".", "e5", "1e", "1.5.5", "0x1", "1_0", "nan", "inf", "1 "])
def test_no_numbers(text):
    assert not NUMBER.fullmatch(text.encode())


def test_what_a_metric_can_be():
    for metric in (*METRICS, *OF_LABEL_SETS):
        partial = metric in ("auc", "r2", "micro_f1", "macro_f1")
        assert is_score(metric, 0) and is_score(metric, 1.0) and is_score(metric, None) == partial
        assert is_score(metric, 5) == (metric in ERRORS) and is_score(metric, -0.1) == (metric == "r2")
        assert not any(is_score(metric, value) for value in ("x", True, [], math.nan, math.inf, 10**400))


def test_numbers_of_tables():
    assert all(map(is_number, (0, -1.5, np.float32(1), np.int64(-2**63), 10**300)))
    assert not any(map(is_number, (True, None, "1", math.nan, math.inf, 10**400)))


@pytest.mark.parametrize("key, value, reason", [
    ("score", 5, "score is '5': a score by accuracy is needed"), ("score", "x", "score is 'x'"),
    ("score", None, "score is 'None'"), ("fold", 3, "an integer from 1 to 2 is needed"),
    ("fold", True, "an integer from 1 to 2"), ("status", "fine", "status is 'fine': converged | "),
    ("n_iter", -1, "n_iter is '-1'"), ("n_iter", 1.5, "n_iter is '1.5'"), ("seconds", -1, "seconds is '-1'"),
    ("params", [1], "params is '[1]'"), ("other", 1, "not a fit")])
def test_every_value_of_a_search_is_checked(tmp_path, key, value, reason):
    path, line = tmp_path / "log", json.dumps({**json.loads(FIT % 2), key: value})
    path.write_text(f'{{"search": {{"metric": "accuracy"}}}}\n{FIT % 1}{line}\n')
    error = outcome("journal", path)
    assert reason in error.reason
    assert (error.line, error.column) == (3, 1 if key == "other" else line.index(f'"{key}"') + 1)
