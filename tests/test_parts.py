"""partial_fit: rows in parts, and the model of all of them."""

import os
import pickle

import numpy as np
import pytest
from scipy import sparse

from marginlinear import registry

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is missing: pip install 'marginlinear[sklearn]'")

from sklearn.base import clone, is_classifier  # noqa: E402

from marginlinear import sklearn as ours  # noqa: E402
from marginlinear.store import Store  # noqa: E402

IN_PARTS = [name for name, method in registry.methods().items() if method.stores]
EXTRA = {"l2svc, codes": ours.SVMClassifier(loss="squared_hinge", multiclass="ecoc"),
         "l1svc, pairs": ours.SVMClassifier(multiclass="ovo"),
         "l2svc, C": ours.SVMClassifier(loss="squared_hinge", C=0.1),
         "logistic, free": ours.LogisticClassifier(free_bias=True),
         "cs, weighted": ours.CrammerSingerClassifier(class_weight="balanced")}


def problem(k=3, m=600):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, 5))
    y = (X @ rng.standard_normal((5, k)) + 0.5 * rng.standard_normal((m, k))).argmax(axis=1)
    return X, y


def parts(X, y, count=4):
    size = len(y) // count
    return [(X[lo:lo + size], y[lo:lo + size]) for lo in range(0, len(y), size)]


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", [*IN_PARTS, *EXTRA])
@pytest.mark.filterwarnings("ignore:ldm did not converge")
def test_the_end_is_that_of_fit_on_all_rows(name, k):
    X, y = problem(k)
    estimator = EXTRA[name] if name in EXTRA else ours.estimators.of_method(name)
    classes = {"classes": np.unique(y)} if is_classifier(estimator) else {}
    alone, estimator = clone(estimator).fit(X, y), clone(estimator)
    for rows, labels in parts(X, y):
        estimator.partial_fit(sparse.csr_array(rows), labels, **classes)
    assert estimator._parts.m == len(y) and estimator.converged_ == alone.converged_
    # Each is certified to be near the one optimum of all rows, but for mcODM, which has several.
    gap = 1e-4 * max(1, abs(alone.objective_)) if alone.converged_ else alone.dual_gap_ + estimator.dual_gap_
    if name != "mcodm":
        assert abs(estimator.objective_ - alone.objective_) <= gap + 1e-12
        assert estimator.info_.bound <= alone.objective_ + 1e-9 and alone.info_.bound <= estimator.objective_ + 1e-9
    assert abs(estimator.score(X, y) - alone.score(X, y)) < 0.02


def test_weights_words_and_a_class_that_comes_later():
    X, y = problem()
    names, weights = np.array(["ape", "bee", "cat"]), np.random.default_rng(1).uniform(0.5, 2, len(y))
    order = np.argsort(y == 2, kind="stable")
    X, y, weights = X[order], y[order], weights[order]
    estimator, alone = ours.SVMClassifier(), ours.SVMClassifier().fit(X, names[y], sample_weight=weights)
    for number, (rows, labels) in enumerate(parts(X, y, 6)):
        given = weights[100 * number:100 * number + 100]
        estimator.partial_fit(rows, names[labels], classes=names if number == 0 else None, sample_weight=given)
        assert estimator.classes_.tolist() == names.tolist() and estimator.coef_.shape == (3, 5)
        if number < 3:
            assert "cat" not in estimator.predict(X)
    assert estimator.objective_ == pytest.approx(alone.objective_, rel=1e-4)
    assert (estimator.predict(X) == "cat").any()


def test_fits_go_on():
    """From the duals before, where rows are so many that they are not merged."""
    sweeps = []
    for estimator, k in ((ours.SVMClassifier(loss="squared_hinge", algorithm="cd"), 2),
                         (ours.LogisticClassifier(free_bias=True), 3), (ours.CrammerSingerClassifier(C=0.1), 3),
                         (ours.SoftmaxClassifier(), 3), (ours.LDMClassifier(tol=1e-3), 2), (ours.MSVClassifier(), 2),
                         (ours.ODMClassifier(class_weight="balanced"), 3),
                         (ours.SVMRegressor(loss="squared_epsilon_insensitive"), 2)):
        X, y = problem(k, m=40_000)
        *some, last = parts(X, y, 8)
        classes = {"classes": np.arange(k)} if is_classifier(estimator) else {}
        for rows, labels in (tuple(np.concatenate(two) for two in zip(*some, strict=True)), last):
            estimator.partial_fit(rows, labels, **classes)
        alone = clone(estimator).fit(X, y)
        name = type(estimator).__name__
        sweeps.append((estimator.n_iter_, alone.n_iter_))
        assert estimator.converged_ and estimator.info_.bound <= alone.objective_ * (1 + 1e-9) + 1e-9, name
        assert alone.info_.bound <= estimator.objective_ * (1 + 1e-9) + 1e-9, name
    assert np.median([part / whole for part, whole in sweeps]) < 0.8, sweeps


def test_where_the_rows_are(tmp_path):
    X, y = problem(2)
    one, two = parts(X, y, 2)
    estimator = ours.ODMClassifier().partial_fit(*one, classes=[0, 1])
    folder = estimator._parts.folder
    assert [name[:9] for name in os.listdir(folder)] == ["rows-300-"]
    copy = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(copy.predict(X), estimator.predict(X))
    with pytest.raises(ValueError, match="store=FOLDER"):
        copy.partial_fit(*two)
    assert copy.fit(*one).partial_fit(*two, classes=[0, 1])._parts.m == 300
    estimator.partial_fit(*two)
    assert [name[:9] for name in os.listdir(folder)] == ["rows-600-"]
    del estimator
    assert not os.path.exists(folder)
    named = ours.ODMClassifier().partial_fit(*one, classes=[0, 1], store=tmp_path / "rows", memory="1G")
    copy = pickle.loads(pickle.dumps(named)).partial_fit(*two)
    assert copy._parts.m == 600 and Store(copy._parts.path).m == 600


def test_what_a_crash_has_left(tmp_path):
    """Of a part that a killed process had taken, or not to its end, the pickle before it knows nothing."""
    X, y = problem(2)
    one, two, three = parts(X, y, 3)
    pickled = pickle.dumps(ours.ODMClassifier().partial_fit(*one, classes=[0, 1], store=tmp_path))
    (tmp_path / "rows-400.store").mkdir()
    first, second = (pickle.loads(pickled).partial_fit(*two) for _ in range(2))
    assert np.array_equal(first.coef_, second.coef_)
    for estimator in (first, second):
        assert estimator.partial_fit(*three)._parts.m == 600
    with pytest.raises(ValueError, match="store=FOLDER"):
        pickle.loads(pickled).partial_fit(*two)


def test_what_is_refused():
    X, y = problem(2)
    estimator = ours.SVMClassifier()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        estimator.partial_fit(X, y)
    with pytest.raises(ValueError, match="at least 2 classes"):
        estimator.partial_fit(X[y == 0], y[y == 0], classes=[0, 1])
    estimator.fit(X, y).partial_fit(X, y)
    for rows, labels, given, words in ((X, y, {"classes": [0, 2]}, "is not the same as on last call"),
                                       (X, y + 1, {}, "label 2 is not among the classes"),
                                       (X[:, :2], y, {}, "features"), (X, y, {"memory": "1G"}, "first call")):
        with pytest.raises(ValueError, match=words):
            estimator.partial_fit(rows, labels, **given)
        assert estimator._parts.m == len(y)
    for machine in (ours.SVMClassifier(kernel="rbf"), ours.LDMClassifier(stochastic=True), ours.MSVMAvClassifier(),
                    ours.NuSVMClassifier(kernel="rbf")):
        assert not hasattr(machine, "partial_fit")


def test_the_rows_are_not_read_at_once(monkeypatch):
    """Those before come in chunks, and the fit gets a Store and what it may hold."""
    X, y = problem(2)
    seen, fit_model = [], ours.parts.fit_model
    monkeypatch.setattr(ours.parts, "fit_model", lambda X, *rest, **given: seen.append((X, given["memory"])) or
                        fit_model(X, *rest, **given))
    monkeypatch.setattr(Store, "in_memory", None)
    estimator = ours.SVMClassifier()
    for rows, labels in parts(X, y):
        estimator.partial_fit(rows, labels, classes=[0, 1], **({} if seen else {"memory": "300M"}))
    assert all(type(store) is Store and memory == "300M" for store, memory in seen) and len(seen) == 4
    assert "rows" not in vars(estimator._parts) and estimator._parts.m == 600


def test_the_warning_is_at_the_line_that_called():
    X, y = problem(2)
    with pytest.warns(ours.ConvergenceWarning) as caught:
        ours.SVMClassifier(C=1e4, max_iter=1).partial_fit(X, y, classes=[0, 1])
    assert [w.filename for w in caught] == [__file__]
