"""Buffers against NumPy, and fits of two classes in a process that cannot import it."""

import pickle
import subprocess
import sys
from array import array

import numpy as np
import pytest

from marginlinear._core import renumber
from marginlinear._core.vector import (
    Buffer,
    assign,
    clear,
    constant,
    copied,
    count_nonzero,
    distinct,
    dot,
    mark,
    product,
    put,
    same_memory,
    scaled,
    seen,
    signed_rows,
    signs_of,
    taken,
    total,
    zeros,
)

KINDS = {"d": np.float64, "f": np.float32, "i": np.int32, "q": np.int64, "H": np.uint16, "B": np.uint8, "b": np.int8}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(0,), (5,), (3, 4), (0, 4), (3, 0)])
def test_shapes_and_types(kind, shape):
    found = zeros(kind, *shape)
    view = np.asarray(found)
    assert view.shape == shape and view.dtype == KINDS[kind] and not view.any()
    assert (found.kind, found.rows, len(found), found.columns) == (kind, shape[0], shape[0], (*shape, None)[1])
    view[:] = 7
    assert (np.asarray(found) == 7).all()
    again = pickle.loads(pickle.dumps(found))
    assert again.kind == kind and np.array_equal(again, view) and np.asarray(again).shape == shape
    clear(found)
    assert not view.any()


def test_what_cannot_be_made():
    with pytest.raises(KeyError):
        Buffer("x", 1)
    for shape in ((-1,), (2, -1), (sys.maxsize, 2)):
        with pytest.raises(ValueError, match=r"^Buffer: shape \("):
            Buffer("d", *shape)
    with pytest.raises(MemoryError, match=r"^no room for an array of \d+\.\d GiB$"):
        Buffer("d", sys.maxsize // 16)


def test_one_value_for_all_rows():
    found = constant(2.5, 4)
    view = np.asarray(found)
    assert view.tolist() == [2.5] * 4 and view.strides == (0,) and not view.flags.writeable
    assert memoryview(found).readonly and total(found) == 10 and len(found) == 4
    with pytest.raises(BufferError, match="must not be written to"):
        clear(found)
    kept = copied(found)
    np.asarray(kept)[0] = 1
    assert np.asarray(kept).tolist() == [1, 2.5, 2.5, 2.5] and view[0] == 2.5
    with pytest.raises(ValueError, match="4 numbers for 2 rows"):
        found.table(2)


def test_copies():
    whole = np.arange(12.0)
    for given in (whole, whole[::3], whole[::-1], whole[:0], np.broadcast_to(1.5, 3), whole.reshape(3, 4),
                  np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int64), array("f", [1, 2])):
        found = copied(given)
        assert np.array_equal(found, given) and not np.shares_memory(np.asarray(found), np.asarray(given))
    with pytest.raises(ValueError, match="wrong number of dimensions"):
        copied(whole.reshape(3, 4).T)
    again = found.copy()
    clear(found)
    assert np.asarray(again).tolist() == [1, 2]


def test_taken():
    which = np.array([2, 0, 2])
    for given in (np.arange(3.0), np.arange(6.0)[::2], constant(0.5, 3), np.arange(3, dtype=np.int32), zeros("B", 3)):
        found = taken(given, which)
        assert np.array_equal(found, np.asarray(given)[which]) and np.asarray(found).dtype == np.asarray(given).dtype
    for number in 3, -1:
        with pytest.raises(IndexError, match=f"taken: number {number} is not among 3"):
            taken(np.arange(3.0), np.array([number]))


def test_assign():
    target = zeros("d", 2, 3)
    assign(target, np.arange(6.0))
    assert np.asarray(target).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="assign: 40 bytes for 48"):
        assign(target, np.arange(5.0))
    with pytest.raises(BufferError):
        assign(constant(1.0, 6), np.arange(6.0))
    with pytest.raises((BufferError, ValueError)):
        assign(target, np.arange(12.0)[::2])
    assert np.asarray(target).ravel().tolist() == list(range(6))


def test_a_table_is_the_same_memory():
    flat = copied(np.arange(6.0))
    table = flat.table(3)
    assert (table.rows, table.columns) == (3, 2)
    np.asarray(table)[1, 1] = -1
    assert np.asarray(flat)[3] == -1
    del flat
    assert np.asarray(table).ravel().tolist() == [0, 1, 2, -1, 4, 5]
    assert np.asarray(memoryview(table)[1:]).tolist() == [[2, -1], [4, 5]]
    for rows in (0, 4):
        with pytest.raises(ValueError, match=f"6 numbers for {rows} rows"):
            table.table(rows)


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 5000])
@pytest.mark.parametrize("step", [1, 2])
def test_sums_and_products(size, step):
    rng = np.random.default_rng(size)
    x, y = rng.normal(size=(2, size * step))[:, ::step]
    x[::7] = 0
    assert np.array_equal(product(x, y), x * y) and np.array_equal(scaled(x, 0.3), 0.3 * x)
    assert total(x) == pytest.approx(x.sum(), rel=1e-12, abs=1e-12)
    assert dot(x, y) == dot(x, np.append(y, 1.0)) == pytest.approx(x @ y, rel=1e-12, abs=1e-12)
    assert count_nonzero(x) == np.count_nonzero(x)
    for two in (product, dot):
        with pytest.raises(ValueError, match=f"{size + 1} and {size} numbers"):
            two(np.append(x, 1.0), y)


def test_columns_are_the_same_memory():
    whole = copied(np.arange(12.0).reshape(4, 3))
    part, one = whole.cut(1, 3), whole.cut(2)
    np.asarray(part)[0, 0] = 99
    assert np.asarray(part).tolist() == [[99, 2], [4, 5], [7, 8], [10, 11]] and (part.rows, part.columns) == (4, 2)
    assert np.asarray(one).tolist() == np.asarray(part.cut(1)).tolist() == [2, 5, 8, 11] and one.columns is None
    assert np.shares_memory(np.asarray(one), np.asarray(whole)) and whole.cut(0).copy().columns is None
    assert np.asarray(pickle.loads(pickle.dumps(one))).tolist() == [2, 5, 8, 11]
    for first, stop in ((-1, None), (3, None), (1, 1), (2, 4)):
        with pytest.raises(IndexError, match=r"^Buffer: columns -?\d to \d of 3$"):
            whole.cut(first, stop)
    with pytest.raises(ValueError, match="Buffer: 4 numbers for 2 rows"):
        one.table(2)
    for strided in (one, part, constant(1.0, 4)):
        with pytest.raises(BufferError, match="side by side"):
            assign(zeros("d", 4), strided)


def test_columns_are_written():
    table, which = zeros("d", 4, 2), copied(np.array([3, 0]))
    put(table.cut(1), np.arange(1.0, 5).reshape(4, 1))
    put(table.cut(0), np.array([[7.0], [8.0]]), which)
    assert np.asarray(table).tolist() == [[8, 1], [0, 2], [0, 3], [7, 4]]
    with pytest.raises(ValueError, match="put: 3 numbers for 2"):
        put(table.cut(0), np.ones((3, 1)), which)
    with pytest.raises(IndexError, match="put: number 3 is not among 2"):
        put(zeros("d", 2), np.ones((2, 1)), which)
    flat = table.copy()
    assert same_memory(table, table.table(8)) and not same_memory(table, flat)


def test_signs_of_rows():
    signs, classes = copied(np.array([0, 1, -1], dtype=np.int8)), np.array([2, 0, 1, 1, 0], dtype=np.int32)
    which = signed_rows(signs, classes)
    assert np.asarray(signs_of(signs, classes)).tolist() == [0, 0, 1, 1, 0]
    assert np.asarray(which).tolist() == [0, 2, 3]
    marks = zeros("B", 5)
    mark(marks, np.array([0, 1.5, np.nan]), which)
    mark(marks, np.array([0, -1.0, 0, 0, 0]))
    assert bytes(marks) == bytes([0, 1, 1, 1, 0])
    with pytest.raises(ValueError, match="mark: 3 numbers for 5"):
        mark(marks, np.ones(3))
    with pytest.raises(IndexError, match="mark: number 2 is not among 2"):
        mark(zeros("B", 2), np.ones(3), which)


def test_different_numbers():
    given = np.random.default_rng(0).integers(0, 5, 200) / 4
    for array_ in (given, given[::3], given[:1], given[:0], np.broadcast_to(2.0, 3)):
        values, places = distinct(array_)
        wanted, at = np.unique(array_, return_inverse=True)
        assert values == wanted.tolist() and np.array_equal(places, at)
    assert seen(None) is None and seen(constant(1.0, 2)).tolist() == [1, 1]


WITHOUT = """
import hashlib, random
from array import array
from marginlinear._core import renumber
from marginlinear._core.vector import constant
from marginlinear._core.rows import Rows
from marginlinear.data.canonical import canonical
from marginlinear.methods import l1svc, l2svc, ldm, odm
from marginlinear.problem import Problem, Run

renumber.FEW = 20

def fitted(method, n, algorithm, C):
    rng, m = random.Random(n), 200
    data, indices, indptr, y = array("d"), array("i"), array("q", [0]), array("i")
    for i in range(m):
        y.append(rng.randrange(2))
        for j in range(n):
            if rng.random() < 6 / n and i % 20:
                data.append(rng.gauss(0, 1) + 0.5 * (j % 2 == y[i]))
                indices.append(j)
        indptr.append(len(data))
    rows = Rows.from_csr(memoryview(data), memoryview(indices), memoryview(indptr), n, 1.0)
    values = {param.name: param.default for param in method.params} | {"C": C}
    problem = Problem(rows, y, 2, constant(1.0, m), array("d", [1.0 + label for label in y]))
    if n < 10:
        problem = canonical(problem)
    solution = method.fit(problem, values, Run(1e-3, algorithm, 5000, None, 0, 2, spend=n > 100))
    weights = memoryview(solution.weights)
    assert weights.shape == (n + 1, 1) and solution.info.converged, solution.info
    return hashlib.sha256(weights.tobytes()).hexdigest(), solution.info._replace(seconds=0, history=())

found = [fitted(module.METHOD, n, algorithm, C) for module in (l1svc, l2svc, odm, ldm) for n in (8, 400)
         for C, algorithm in ((0.01, "cd"), (10.0, "accelerated"), (1.0, "auto"))]
found += [fitted(module.METHOD, 8, "newton", 100.0) for module in (l1svc, l2svc, odm, ldm)]
"""
HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("numpy", "scipy"):
            raise ImportError(name)

sys.meta_path.insert(0, Hidden())
"""


def test_fits_without_numpy(monkeypatch):
    """Small ones in canonical form; the bits are the same."""
    here = {}
    monkeypatch.setattr(renumber, "FEW", renumber.FEW)
    exec(WITHOUT, here)
    code = f"{HIDDEN}\n{WITHOUT}\nassert 'numpy' not in sys.modules\nprint(found)"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (there.stdout.strip(), there.stderr) == (str(here["found"]), "")
