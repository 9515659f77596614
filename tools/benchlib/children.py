"""Library calls, each in a fresh interpreter: measure.in_child calls what CHILDREN names."""

import os
import platform
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path

from .evaluation import draw, evaluate_all, leave_fifth, made_target, read_model, scale01
from .measure import BenchError

# LIBLINEAR's number for each method, and the objective in which both are compared.
PEERS = {"mcodm": (4, "cs"), "cs": (4, "cs"), "l1svc": (3, "l1svc"), "ldm": (3, "ldm"), "l2svc": (1, "l2svc"),
         "odm": (1, "odm")}
TOLERANCES = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


def resident(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"/proc/self/status has no {field}")


def timed(call):
    """(result, {seconds, cpu, user, system, peak}): peak is what the call added to the resident size, None off Linux.
    """
    # OpenBLAS's new threads wait busily on the cores that the call may need, about 30 ms from NumPy's import on.
    time.sleep(0.3)
    linux = sys.platform == "linux"
    if linux:
        Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM back to VmRSS
        before = resident("VmRSS")
    spent, cpu, start = os.times(), time.process_time(), time.perf_counter()
    result = call()
    seconds, cpu, ended = time.perf_counter() - start, time.process_time() - cpu, os.times()
    peak = resident("VmHWM") - before if linux else None
    return result, {"seconds": seconds, "cpu": cpu, "user": ended.user - spent.user,
                    "system": ended.system - spent.system, "peak": peak}


def svmlight(path):
    """(X, y) as scikit-learn reads them, with the indices that its own estimators take."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(path)
    X.indices, X.indptr = X.indices.astype("int32"), X.indptr.astype("int32")
    return X, y


def child_read(who, path, threads):
    if who == "ours":
        # Reading needs it for its result, and imports it then: that is start-up, as it is the others'.
        import_module("numpy")
        from marginlinear.libsvm import read_libsvm

        got, cost = timed(lambda: read_libsvm(path, threads=threads))
        arrays = [got.data, got.indices, got.indptr, got.labels]
    elif who == "sklearn":
        from sklearn.datasets import load_svmlight_file

        (X, y), cost = timed(lambda: load_svmlight_file(path))
        arrays = [X.data, X.indices, X.indptr, y]
    else:
        from liblinear.liblinearutil import svm_read_problem

        (y, X), cost = timed(lambda: svm_read_problem(path, return_scipy=True))
        arrays = [X.data, X.indices, X.indptr, y]
    size = sum(a.nbytes for a in arrays)
    return {**cost, "arrays": size, "rows": len(arrays[3]), "nonzeros": len(arrays[0])}


def child_train(who, path, model, solver, C, tol, bias, threads=None):
    if who == "ours":
        import marginlinear as ml

        X, y = ml.load_libsvm(path)
        extra = ({"bias": bias} if bias >= 0 else {}) | ({"threads": threads} if threads else {})
        fitted, cost = timed(lambda: ml.train(X, y, solver=solver, C=C, tol=tol, **extra))
        ml.save_model(fitted, model)
        return {**cost, "certificate": fitted.info.certificate, "objective": fitted.info.objective}
    if who == "sklearn":
        from sklearn.svm import LinearSVC

        X, y = svmlight(path)
        options = {"l1svc": {"loss": "hinge"}, "l2svc": {}, "cs": {"multi_class": "crammer_singer"}}[solver]
        with warnings.catch_warnings():
            # LIBLINEAR's cap on the iterations is part of what is measured.
            warnings.simplefilter("ignore")
            return timed(lambda: LinearSVC(C=C, tol=tol, dual=True, fit_intercept=False, **options).fit(X, y))[1]
    from liblinear.liblinear import problem
    from liblinear.liblinearutil import save_model, svm_read_problem, train

    y, X = svm_read_problem(path, return_scipy=True)
    data = problem(y, X, bias)
    fitted, cost = timed(lambda: train(data, f"-s {PEERS[solver][0]} -c {C:.17g} -e {tol:.17g} -B {bias:.17g} -q"))
    save_model(model, fitted)
    return cost


def child_chosen(method, path, C):
    """A fit of `method`, ours or scikit-learn's LinearSVC, scaled by the largest value of each column, with a bias."""
    from sklearn.preprocessing import MaxAbsScaler

    import marginlinear as ml

    X, y = ml.load_libsvm(path)
    X = MaxAbsScaler().fit_transform(X)
    if method == "LinearSVC":
        from sklearn.svm import LinearSVC

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its cap on the iterations is part of what is measured
            return timed(lambda: LinearSVC(C=C).fit(X, y))[1]
    return timed(lambda: ml.train(X, y, solver=method, C=C, bias=1, threads=1))[1]


def package_fit(who, X, y, C, tol):
    """Logistic regression by a package: the softmax of scikit-learn, and with the sum of the weights' absolute values
    that of celer and of skglm, all for C times the sum of the losses."""
    if who == "celer":
        return import_module("celer").LogisticRegression(C=C, tol=tol).fit(X, y)
    if who == "skglm":
        alpha = 1 / (C * X.shape[0])
        return import_module("skglm").SparseLogisticRegression(alpha=alpha, tol=tol, fit_intercept=False).fit(X, y)
    logistic = import_module("sklearn.linear_model").LogisticRegression
    return logistic(C=C, tol=tol, max_iter=1000, fit_intercept=False).fit(X, y)


def child_solver(who, path, solver, number, C, tol, weights):
    """A fit on one thread: ours, LIBLINEAR's of this number or a package's; the peers' weights are written, a column a
    score. A first one of ours or a package's, of some rows, imports and compiles what it needs."""
    import numpy as np

    if who == "ours":
        import marginlinear as ml

        X, y = ml.load_libsvm(path)
        z = made_target(X, y, solver)
        few = np.concatenate([np.flatnonzero(y == label)[:50] for label in np.unique(y)])
        ml.train(X[few], z[few], solver=solver, tol=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ml.ConvergenceWarning)  # the certificate tells
            own = {} if solver == "oneclass" else {"C": C}
            fitted, cost = timed(lambda: ml.train(X, z, solver=solver, tol=tol, threads=1, **own))
        return {**cost, "certificate": fitted.info.certificate,
                "objective": objective_of(X, y, solver, C, fitted.weights[:X.shape[1]])}
    if who != "liblinear":
        X, y = svmlight(path)
        if who != "sklearn":
            X = X.tocsc()  # the order that solvers for sparse weights work in
        package_fit(who, X[::50], y[::50], C, 0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the objective tells
            fitted, cost = timed(lambda: package_fit(who, X, y, C, tol))
        if weights != os.devnull:
            W = fitted.coef_.T
            # Of two classes softmax has the difference of the columns.
            np.save(weights, np.hstack([-W / 2, W / 2]) if who == "sklearn" and W.shape[1] == 1 else W)
        return cost
    from liblinear.liblinear import problem
    from liblinear.liblinearutil import svm_read_problem, train

    y, X = svm_read_problem(path, return_scipy=True)
    data = problem(made_target(X, y, solver), X, -1)
    fitted, cost = timed(lambda: train(data, f"-s {number} -c {C:.17g} -e {tol:.17g} -p 0.1 -q"))
    columns = 1 if fitted.get_nr_class() == 2 else fitted.get_nr_class()
    if weights != os.devnull:
        found = np.array([fitted.get_decfun(at)[0] for at in range(columns)])
        if columns == 1 and not solver.endswith("svr") and fitted.get_labels()[0] != max(fitted.get_labels()):
            found = -found
        order = np.argsort(fitted.get_labels()) if columns > 1 else [0]
        np.save(weights, found[order].T)
    return cost


def child_objective(path, solver, C, weights):
    """What a peer's weights make of the objective."""
    import numpy as np

    import marginlinear as ml

    return objective_of(*ml.load_libsvm(path), solver, C, np.load(weights))


def objective_of(X, y, solver, C, W):
    """Whoever's weights: the sum of the objectives of the columns, one class against the rest."""
    import numpy as np

    scores, classes = X @ W, np.unique(y)
    if solver == "oneclass":
        # At the best rho and length.
        total, ordered, square = 0.5 * len(y), np.sort(scores[:, 0]), float((W**2).sum())
        rho = ordered[int(np.ceil(total)) - 1]
        h = max(0.0, total * rho - np.maximum(0, rho - ordered).sum())
        return -h * h / (2 * square) if square else 0.0
    if solver == "softmax":
        losses = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(y)), np.searchsorted(classes, y)]
    elif solver.endswith("svr"):
        over = np.maximum(0, abs(made_target(X, y, solver)[:, None] - scores) - 0.1)
        losses = over if solver == "l1svr" else over**2
    else:
        signs = np.where(y[:, None] == (classes[1:] if len(classes) == 2 else classes), 1.0, -1.0)
        g = signs * scores
        losses = np.maximum(0, 1 - g) ** 2 if solver == "l1l2svc" else np.logaddexp(0, -g)
    penalty = abs(W).sum() if solver.startswith("l1l") else 0.5 * (W**2).sum()
    return float(penalty + C * losses.sum())


def child_svc(who, path, name, options, tol):
    """A fit with an RBF kernel: ours by this solver, with these words of train, or that of scikit-learn's class of this
    name, sped up by sklearnex or not, with these options. A first one, of 100 rows, imports what it needs."""
    import numpy as np

    if who == "ours":
        import marginlinear as ml

        X, y = ml.load_libsvm(path)
        ml.train(X[:100], y[:100], solver=name, kernel="rbf", **options)
        model, cost = timed(lambda: ml.train(X, y, solver=name, kernel="rbf", tol=tol, threads=1, **options))
        return {**cost, "certificate": model.info.certificate / max(1.0, abs(model.info.objective)),
                "objective": model.info.objective, "support": model.n_support}
    machine = getattr(import_module("sklearnex.svm" if who == "sklearnex" else "sklearn.svm"), name)
    X, y = svmlight(path)
    X = X.toarray() if X.nnz > 0.5 * np.prod(X.shape) else X
    machine().fit(X[:100], y[:100])
    model, cost = timed(lambda: machine(cache_size=200, **options).fit(X, y))
    return {**cost, "support": int(model.n_support_.sum())}


def child_pass(who, path):
    import numpy as np

    import marginlinear as ml

    X, y = ml.load_libsvm(path)
    classes, y = np.unique(y, return_inverse=True)
    k = len(classes)
    W = 0.1 * np.random.default_rng(0).standard_normal((X.shape[1] + 1, k))
    W -= W.mean(axis=1, keepdims=True)
    if who == "ours":
        from marginlinear._core.smooth import SmoothLoss
        from marginlinear.algorithms.pairwise.regulariser import Pairwise
        from marginlinear.data.arrays import as_rows

        loss = SmoothLoss(as_rows(X, 1.0), y.astype(np.int32), k, np.ones(len(y)), loss="hinge", width=1e-3, threads=1)
        regulariser, out = Pairwise(4.0, 1e-3, 1e-6, 1.0), np.empty_like(W)

        def work():
            loss.value_and_gradient(W.reshape(-1), out.reshape(-1))
            regulariser.evaluate(W)
            regulariser.add_gradient(W, out)
    else:
        V = np.ascontiguousarray(W[:-1])

        def work():
            X.T @ (X @ V)

    work()
    return min((timed(work)[1] for _ in range(3)), key=lambda cost: cost["seconds"])


def child_sweeps(path, solver, C, tols):
    """Fits to these tolerances: {route, sweeps, seconds of CPU, objective}, the last of a much tighter one; the
    nonzeros, times the columns of weights, and nanoseconds of X w for one."""
    import numpy as np

    import marginlinear as ml

    X, y = ml.load_libsvm(path)

    def fit(tol):
        return timed(lambda: ml.train(X, y, solver=solver, C=C, tol=tol, threads=1))

    some = slice(None, None, max(1, len(y) // 200))
    ml.train(X[some], y[some], solver=solver)
    fits = [fit(tol) for tol in tols]
    columns = fits[0][0].weights.shape[1]
    W = np.ones((X.shape[1], columns) if columns > 1 else X.shape[1])
    products = [timed(lambda: X @ W)[1]["cpu"] for _ in range(9)]
    with warnings.catch_warnings():
        # Close enough to the optimum, whether it converges or not.
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        objective = ml.train(X, y, solver=solver, C=C, tol=1e-5, threads=1, time_limit=60).info.objective
    return {"route": fits[-1][0].info.algorithm, "sweeps": [model.info.n_iter for model, _ in fits],
            "seconds": [cost["cpu"] for _, cost in fits], "objective": objective, "values": X.nnz * columns,
            "product": 1e9 * min(products) / (X.nnz * columns)}


def child_search(who, path, solver, tol):
    import marginlinear as ml

    X, y = ml.load_libsvm(path)
    costs = [2.0**e for e in range(-5, 10, 2)]
    grids = [{"C": costs}] if who == "warm" else [{"C": [C]} for C in costs]
    with warnings.catch_warnings():
        # How many did not converge is in the table.
        warnings.simplefilter("ignore", ml.ConvergenceWarning)
        tables, cost = timed(lambda: [ml.search(X, y, solver=solver, grid=grid, folds=5, tol=tol, threads=1,
                                                refit=False).table for grid in grids])
    rows = [row for table in tables for row in table]
    return {**cost, "sweeps": sum(row["n_iter"] for row in rows),
            "unconverged": sum(row["unconverged"] for row in rows)}


def child_write(who, model, target):
    if who == "ours":
        import marginlinear as ml

        loaded = ml.load_model(model)
        return timed(lambda: ml.save_model(loaded, target))[1]
    from liblinear.liblinearutil import load_model, save_model

    loaded = load_model(model)
    if loaded is None:
        raise BenchError(f"{model}: LIBLINEAR cannot load it")
    return timed(lambda: save_model(target, loaded))[1]


def child_model_file(who, model, target):
    """Loading and saving, summed."""
    if who == "ours":
        import marginlinear as ml

        loaded, load = timed(lambda: ml.load_model(model))
        _, save = timed(lambda: ml.save_model(loaded, target))
    else:
        from liblinear.liblinearutil import load_model, save_model

        loaded, load = timed(lambda: load_model(model))
        if loaded is None:
            raise BenchError(f"{model}: LIBLINEAR cannot load it")
        _, save = timed(lambda: save_model(target, loaded))
    return {"seconds": load["seconds"] + save["seconds"], "cpu": load["cpu"] + save["cpu"], "peak": None,
            "load": load["seconds"], "save": save["seconds"]}


def child_same_weights(first, second):
    import numpy as np

    a, b = read_model(first), read_model(second)
    return bool(np.array_equal(a[1], b[1]) and np.array_equal(a[3], b[3]))


def child_rates(sizes, seconds):
    """What the machine does on one thread: {copy: bytes moved a second, gather: [(bytes of the table, ns a read)]}.

    The gather is SciPy's product of a CSR matrix of uniformly random indices, 50 a row, with a vector: 12 bytes of
    the matrix in order, and 8 at random, for each nonzero.
    """
    import numpy as np
    from scipy.sparse import csr_array

    def fastest(call):
        call()
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)

    source = np.ones(2**24)
    target = np.zeros_like(source)
    copy = 2 * source.nbytes / fastest(lambda: np.copyto(target, source))
    rng, rows, width, gather = np.random.default_rng(0), 50_000, 50, []
    for size in sizes:
        indices = rng.integers(0, size // 8, rows * width, dtype=np.int32)
        X = csr_array((np.ones(len(indices)), indices, np.arange(rows + 1, dtype=np.int32) * width),
                      shape=(rows, size // 8))
        w = np.ones(size // 8)
        gather.append((size, 1e9 * fastest(lambda X=X, w=w: X @ w) / len(indices)))
    return {"copy": copy, "gather": gather}


def child_versions():
    from importlib import metadata
    from importlib.util import find_spec

    found = {"python": platform.python_version(), "marginlinear": None}
    if find_spec("marginlinear"):
        import marginlinear

        # Not from the metadata: it may be a source tree on PYTHONPATH.
        found["marginlinear"] = marginlinear.__version__
    for name in ("numpy", "scipy", "scikit-learn", "liblinear-official", "celer", "skglm", "scikit-learn-intelex"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


CHILDREN = {"read": child_read, "train": child_train, "svc": child_svc, "solver": child_solver, "chosen": child_chosen,
            "objective": child_objective, "pass": child_pass, "search": child_search, "sweeps": child_sweeps,
            "write": child_write, "evaluate_all": evaluate_all, "scale01": scale01, "leave_fifth": leave_fifth,
            "draw": draw, "same_weights": child_same_weights, "model_file": child_model_file, "rates": child_rates,
            "versions": child_versions}
