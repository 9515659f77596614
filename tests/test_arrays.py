"""The door by which X comes in: what is wrong with foreign arrays is told, and nothing that others change is read."""

import io
import warnings

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import liblinearutil
from marginlinear.data.arrays import CSR, as_rows, held
from marginlinear.data.kernels import Kernel, gram_rows, kernel_scores
from marginlinear.data.scaling import learned
from marginlinear.libsvm import LibsvmData

M = 40


def table():
    """Square, so that it may be a Gram matrix too; symmetric, sparse, positive semidefinite."""
    X = np.random.default_rng(0).standard_normal((M, M))
    X[np.random.default_rng(1).random((M, M)) < 0.9] = 0
    return X @ X.T


Y = np.arange(M) % 2


def change(name, place, value):
    """Damage: X.name[place] = value, where flags say that X is in order."""
    def damage(X):
        getattr(X, "has_canonical_format", None)  # which is cached
        getattr(X, name)[place] = value
    return damage


def put(name, of):
    """Damage: X.name = of(X.name)."""
    def damage(X):
        getattr(X, "has_canonical_format", None)
        setattr(X, name, of(getattr(X, name)))
    return damage


def fall_far(X):
    """Damage: indices fall in the first row, and indptr by so much that a difference overflows."""
    change("indices", slice(0, 2), X.indices[1::-1].copy())(X)
    put("indptr", lambda p: np.where(np.arange(len(p)) < 4, p.astype(np.uint64), np.uint64(2**63)))(X)


# What is done to X, and in which words the error says so.
COMPRESSED = {
    "indptr huge": (change("indptr", 3, 10**6), "indptr|index pointer"),
    "indptr falls": (change("indptr", 3, 0), "indptr|index pointer"),
    "indptr negative": (change("indptr", 3, -5), "indptr"),
    "indptr falls far": (fall_far, "indptr|index pointer"),
    "indptr begins late": (change("indptr", 0, 1), "indptr|index pointer"),
    "indptr ends late": (change("indptr", -1, 10**6), "indptr|Last value of index pointer"),
    "indptr one more": (put("indptr", lambda p: np.append(p, p[-1])), "indptr|index pointer"),
    "indptr many more": (put("indptr", lambda p: np.append(p, np.full(10**5, p[-1]))), "indptr|index pointer"),
    "indptr one less": (put("indptr", lambda p: p[:-1]), "indptr|index pointer"),
    "indptr empty": (put("indptr", lambda p: p[:0]), "indptr|index pointer"),
    "indptr of two dimensions": (put("indptr", lambda p: p[:, None]), "indptr has shape"),
    "indptr floats": (put("indptr", lambda p: p.astype(float)), "indptr .*float64"),
    "index negative": (change("indices", 5, -1), "feature -1|ind(ices|ex values) must be >= 0|indices"),
    "index beyond": (change("indices", 5, M), f"feature {M}|ind(ices|ex values) must be < {M}"),
    "index far beyond": (put("indices", lambda j: j.astype(np.int64) + 2**32),
                         "feature numbers from|ind(ices|ex values) must be <"),
    "indices short": (put("indices", lambda j: j[:-3]), "indptr|indices and data"),
    "indices of two dimensions": (put("indices", lambda j: j[:, None]), "indices has shape"),
    "indices objects": (put("indices", lambda j: j.astype(object)), "indices .*object"),
    "data short": (put("data", lambda d: d[:-3]), "indptr|indices and data"),
    "data of two dimensions": (put("data", lambda d: d[:, None]), "data has shape|1-D|3-D"),
    "data complex": (put("data", lambda d: d.astype(complex)), "complex128"),
    "data words": (put("data", lambda d: d.astype(str)), "<U"),
    "data not finite": (change("data", 2, np.nan), "nan"),
}
OTHERS = {
    "coo row beyond": ("coo", change("row", 5, M), "exceeds"),
    "coo column negative": ("coo", change("col", 5, -1), "negative"),
    "coo data short": ("coo", put("data", lambda d: d[:-3]), "same length"),
    "dia offsets": ("dia", put("offsets", lambda o: np.append(o, 999)), "offsets"),
    "dia offsets floats": ("dia", put("offsets", lambda o: o + 0.5), "offsets .*float64"),
    "lil lists": ("lil", lambda X: X.rows[3].append(1), "different lengths"),
    "lil column": ("lil", lambda X: X.rows[0].__setitem__(0, 10**6), "exceeds"),
    "lil words": ("lil", lambda X: X.rows[0].__setitem__(0, "a"), "rows"),
    "dok key": ("dok", lambda X: X._dict.__setitem__((10**6, 0), 1.0), "exceeds"),
}
DAMAGES = {
    **{f"{kind} {name}": (kind, *damage) for kind in ("csr", "csc", "file") for name, damage in COMPRESSED.items()
       # A file's number of rows is what indptr says.
       if not (kind == "file" and name in ("indptr one less", "indptr one more", "indptr many more"))
       and not (name == "data not finite" and kind == "csc")},
    **{f"bsr {name}": ("bsr", *COMPRESSED[name]) for name in ("indptr huge", "indptr falls", "indices short")},
    **OTHERS,
}


def damaged(name):
    kind, damage, words = DAMAGES[name]
    X = sparse.csr_array(table())
    if kind == "file":
        X = LibsvmData(X.data, X.indices, X.indptr.astype(np.int64), Y, M, ("file", 1, 1))
        X.__class__ = type("Flagged", (LibsvmData,), {"__slots__": (), "has_canonical_format": True})
    else:
        X = X.asformat(kind) if kind != "bsr" else X.tobsr((2, 2))
    damage(X)
    return X, words


def product(X, Z):
    values = X @ Z.T
    return values.toarray() if sparse.issparse(values) else values


MODEL = ml.train(table(), Y, solver="l1svc")
KERNEL_MODEL = ml.train(table(), Y, solver="l1svc", kernel="rbf")
CALLABLE_MODEL = ml.train(table(), Y, solver="l1svc", kernel=product, max_iter=2000)
LINEAR = {"solver": "l1svc", "max_iter": 20}
ENTRIES = {
    "held": held,
    "as_rows": lambda X: as_rows(X, -1.0),
    "train": lambda X: ml.train(X, Y, **LINEAR),
    "train jointly": lambda X: ml.train(X, Y, solver="cs"),
    "train, weights": lambda X: ml.train(X, Y, sample_weight=np.arange(M) % 3, **LINEAR),
    "train, kernel": lambda X: ml.train(X, Y, kernel="rbf", **LINEAR),
    "train, kernel of the user's": lambda X: ml.train(X, Y, kernel=product, **LINEAR),
    "train, precomputed": lambda X: ml.train(X, Y, kernel="precomputed", sample_weight=np.arange(M) % 3, **LINEAR),
    "train, scale": lambda X: ml.train(X, Y, scale="maxabs", **LINEAR),
    "train, probability": lambda X: ml.train(X, Y, probability=True, **LINEAR),
    "predict": lambda X: MODEL.predict(X),
    "decide": lambda X: MODEL.decide(X),
    "margins": lambda X: MODEL.margins(X, Y),
    "predict, kernel": lambda X: KERNEL_MODEL.predict(X),
    "predict, kernel of the user's": lambda X: CALLABLE_MODEL.predict(X),
    "margin_report": lambda X: ml.margin_report(MODEL, X, Y),
    "dump_libsvm": lambda X: ml.dump_libsvm(X, Y, io.BytesIO()),
    "cross_validate": lambda X: ml.cross_validate(X, Y, folds=2, **LINEAR),
    "out_of_fold": lambda X: list(ml.out_of_fold(X, Y, folds=2, **LINEAR)[1]),
    "search": lambda X: ml.search(X, Y, grid="C=1,2", folds=2, **LINEAR),
    "scaling": lambda X: learned("maxabs", X),
    "gram_rows": lambda X: gram_rows(Kernel("rbf"), X, M),
    "kernel_scores": lambda X: kernel_scores(Kernel("rbf", gamma=1.0), X, np.eye(M), np.ones((M, 1))),
    "liblinearutil": lambda X: liblinearutil.train(Y, X, "-s 3 -q"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_fit_is_refused_at_every_entry(damage):
    for name, entry in ENTRIES.items():
        X, words = damaged(damage)
        if name == "liblinearutil" and damage.startswith("file"):
            continue
        with pytest.raises(ValueError, match=f"X.*({words})"):
            pytest.fail(f"{name}: {entry(X)}")


def orderless(X):
    """The same numbers with indices that fall and repeat, and a flag that denies it."""
    X = sparse.csr_array(X)
    half = sparse.csr_array((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    for lo, hi in zip(half.indptr[:-1], half.indptr[1:], strict=True):
        half.indices[lo:hi], half.data[lo:hi] = half.indices[lo:hi][::-1].copy(), half.data[lo:hi][::-1].copy()
    half.has_canonical_format = half.has_sorted_indices = True
    return half


def strided(X):
    X = sparse.csr_array(X)
    for name in ("data", "indices", "indptr"):
        setattr(X, name, np.repeat(getattr(X, name), 2)[::2])
    return X


@pytest.mark.parametrize("make", [orderless, strided, lambda X: sparse.csr_matrix(X), lambda X: sparse.bsr_array(X),
                                  lambda X: sparse.dia_array(X), lambda X: sparse.dok_array(X)],
                         ids=["orderless", "strided", "matrix", "bsr", "dia", "dok"])
def test_what_can_be_read_is(make):
    X = table()
    given = make(X)
    kept = [np.array(array) for array in vars(given).values() if isinstance(array, np.ndarray)]
    assert np.array_equal(held(given).to_scipy().toarray(), X)
    expected = ml.train(sparse.csr_array(X), Y, **LINEAR)
    assert ml.train(given, Y, **LINEAR).weights.tobytes() == expected.weights.tobytes()
    assert np.array_equal(MODEL.decision_function(given), MODEL.decision_function(sparse.csr_array(X)))
    target = io.BytesIO()
    ml.dump_libsvm(given, Y, target)
    assert np.array_equal(ml.load_libsvm(io.BytesIO(target.getvalue()), n_features=M)[0].toarray(), X)
    now = [array for array in vars(given).values() if isinstance(array, np.ndarray)]
    assert all(map(np.array_equal, kept, now))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8])
def test_repeated_entries_are_summed_as_numbers(dtype):
    X = sparse.coo_array((np.array([100, 100, 1]).astype(dtype), ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    assert held(X).to_scipy().toarray().tolist() == [[2 * float(X.data[0]), 0], [0, 1]]


@pytest.mark.parametrize("params", [{"scale": "range"}, {"scale": "maxabs"}, {"scale": "unit"}, {"kernel": "rbf"},
                                    {"probability": True}, {}], ids=str)
def test_what_stands_behind_the_last_row_is_no_part_of_it(params):
    X = sparse.csr_array(table())
    spare = sparse.csr_array(X)
    spare.indices, spare.data = np.append(X.indices, [0, 3]), np.append(X.data, [1e6, -1e6, 2.0])
    one, two = (ml.train(rows, Y, solver="l2svc", **params) for rows in (X, spare))
    assert np.array_equal(one.decision_function(X), two.decision_function(spare))
    written = [io.BytesIO(), io.BytesIO()]
    for rows, target in zip((X, spare), written, strict=True):
        ml.dump_libsvm(rows, Y, target)
    assert written[0].getvalue() == written[1].getvalue()


def test_structure_is_copied_unless_its_memory_is_read_only(tmp_path):
    X = sparse.csr_array(table())
    once = held(X)
    again = held(once)
    for name in ("indices", "indptr"):
        assert not np.shares_memory(getattr(once, name), getattr(X, name))
        assert np.shares_memory(getattr(again, name), getattr(once, name))
        with pytest.raises(ValueError, match=r"read-only|WRITEABLE"):
            getattr(once, name).flags.writeable = True
    assert np.shares_memory(once.data, X.data) and np.shares_memory(as_rows(X, -1.0).arrays[0], X.data)
    # An older view may still be written to.
    X.indices.flags.writeable = False
    assert not np.shares_memory(held(X).indices, X.indices)
    np.save(tmp_path / "j.npy", X.indices)
    mapped = np.load(tmp_path / "j.npy", mmap_mode="r")
    assert np.shares_memory(held(CSR(X.data, mapped, X.indptr, M)).indices, mapped)


def test_what_was_found_in_order_is_looked_through_once_until_its_values_are_others():
    X = sparse.csr_array(np.array([[1.0, 0, 2], [0, 3, 0]]))
    once = held(X)
    with pytest.raises(ValueError, match="X"):
        as_rows(CSR(np.array([1, np.nan, 3]), once.indices, once.indptr, 3), -1.0)
    assert once.in_order and as_rows(once, -1.0).nnz == 3
    once.data = np.array([1, np.nan, 3])
    with pytest.raises(ValueError, match="X"):
        as_rows(once, -1.0)


def wreck(X, names):
    """Writes into arrays of X, and puts others into its attributes."""
    for name in names:
        getattr(X, name)[:] = np.nan if name == "data" else 10**6
        getattr(X, name).shape = (-1, 1)
        setattr(X, name, np.zeros(1))


@pytest.mark.parametrize("names", [("indices", "indptr"), ("data",)], ids=["structure", "values"])
@pytest.mark.parametrize("solver", ["l1svc", "cs", "ldm", "mcodm"])
@pytest.mark.parametrize("kernel", [None, "rbf", product], ids=["linear", "rbf", "callable"])
def test_a_function_of_the_users_may_change_the_arrays(kernel, solver, names, rows_as_given):
    """Another structure changes nothing. Other values are told, or give another model."""
    X, calls = sparse.csr_array(table()), []

    def once(check):
        calls.append(check)
        if len(calls) == 1:
            wreck(X, names)

    def function(A, B):
        values = product(A, B)
        once(None)
        A.indices[:], B.indptr[:] = 10**6, -1
        return values

    options = {"solver": solver, "max_iter": 50, "tol": 1e-9, "algorithm": "cd"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = ml.train(sparse.csr_array(table()), Y, kernel=kernel, **options)
        try:
            found = ml.train(X, Y, kernel=function if callable(kernel) else kernel, callback=once, **options)
        except ValueError as error:
            assert names == ("data",) and "finite" in str(error)
        else:
            assert names == ("data",) or found.weights.tobytes() == expected.weights.tobytes()
    assert calls


@pytest.mark.parametrize("wrong", [3 + 2**16, 3 - 2**16, 2**16])
def test_numbers_beyond_uint16_are_not_folded(wrong):
    """Where few features are copied as uint16 numbers, one outside their range is told as it is."""
    indices = np.array([0, 3], dtype=np.int32)
    assert held(CSR(np.ones(2), indices, np.array([0, 2]), 2**16)).indices.dtype == np.uint16
    assert held(CSR(np.ones(2), indices, np.array([0, 2]), 2**16 + 1)).indices.dtype == np.int32
    indices[1] = wrong
    with pytest.raises(ValueError, match=f"feature {wrong}, outside 0 to 9"):
        held(CSR(np.ones(2), indices, np.array([0, 1, 2]), 10))


def test_support_vectors_may_be_changed():
    """A model's own arrays are the user's as well."""
    for name, value in (("indptr", 10**6), ("indices", -1)):
        model = ml.train(sparse.csr_array(table()), Y, solver="l1svc", kernel="rbf")
        changed = getattr(model.support_rows, name).astype(np.int64 if name == "indptr" else np.int32)
        changed[3] = value
        setattr(model.support_rows, name, changed)
        for use in (lambda m: m.predict(table()), lambda m: ml.save_model(m, "model")):
            with pytest.raises(ValueError, match=r"indptr|column -1|feature -1"):
                use(model)
