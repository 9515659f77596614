"""What a user writes, for type checkers alone: see test_types.py."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import marginlinear as ml


def told(progress: ml.Progress) -> bool:
    print(progress.n_iter, progress.objective, progress.certificate)
    return progress.seconds > 60


def trained(folder: Path) -> ml.Model:
    X, y = ml.load_libsvm(folder / "train.txt")
    model = ml.train(X, y, solver="mcodm", C=16, mu=0.4, theta=0.2, tol=1e-4, threads=2, class_weight={1: 2.0},
                     callback=told, probability=True, scale="range")
    info = model.info
    print(model.classes.tolist(), info.status, info.certificate, info.converged, info.history[-1]["objective"])
    if not info.converged:
        model = ml.train(X, y, solver="mcodm", C=16, mu=0.4, start=model, max_iter=100_000, on_interrupt="keep")
    ml.save_model(model, folder / "model")
    ml.dump_libsvm(X, y, folder / "copy.txt")
    return model


def predicted(path: Path, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    model = ml.load_model(path)
    labels, scores = model.predict(rows), model.decision_function(rows, threads=1)
    print(labels[:3], scores.shape, model.coef @ model.coef.T, model.intercept, model.params.get("C"))
    if isinstance(model, ml.KernelModel):
        print(model.n_support, model.dual_coef.shape, model.support_counts.sum())
    return model.predict_proba(rows)


def searched(X: list[list[float]], y: list[str]) -> dict[str, object]:
    found = ml.search(X, y, solver="odm", grid={"C": [0.5, 1, 2], "mu": np.linspace(0.2, 0.8, 4)}, folds=3,
                      metric="balanced", theta=0.1, log="search.log")
    if found.model is not None:
        print(found.model.predict(X))
    fitted = ml.cross_validate(X, y, solver=2, kernel="rbf", gamma=0.5, C=np.float64(4), seed=np.int64(1))
    classes, folds = ml.out_of_fold(X, y, solver="cs")
    for fold in folds:
        print(classes[fold.places], fold.rows.sum(), fold.scores.max(), fold.info.n_iter)
    print(fitted.score + found.best_score, fitted.fold_scores.std(), [info.status for info in fitted.infos])
    return {**found.best_params}


def judged(model: ml.Model, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
    report = ml.margin_report(model, X, y, n_top=3)
    numbers = ml.residual_report(ml.train(X, y, solver="l2svr", epsilon=0.1), X, y)
    print(report.macro["f1"], report.to_dict(), numbers.mse, numbers.r2)
    return report.accuracy


def labelled(folder: Path, X: npt.NDArray[np.float64], table: npt.NDArray[np.bool_]) -> list[tuple[str, ...]]:
    """`table` has a column for each of three labels."""
    words = np.array(["ant", "bee", "cat"])
    sets = [set(words[row].tolist()) for row in table]
    ml.dump_libsvm(X, sets, folder / "several.txt")
    model = ml.train(X, ml.LabelSets.of_indicator(table, words), solver="l2svc")
    assert isinstance(model, ml.MultiLabelModel)
    found = model.predict_labels(X)
    print(ml.cross_validate(X, table, solver="odm", metric="micro_f1").score, found[0], found[1:].classes)
    print(ml.train(X, sets, solver="l2svc").predict(X).shape)
    return found.tolist()


def stored(folder: Path) -> ml.Model:
    store = ml.Store.write(folder / "train.parquet", folder / "rows.store", label="y")
    try:
        return ml.train(store, solver="cs", memory="2G", sweeps_per_load=2, checkpoint=folder / "fit.checkpoint")
    except ml.Interrupted as interrupted:
        print(interrupted.partial)
        raise
    except ml.DataError as error:
        print(error.path, error.line, error.column, error.reason)
        raise
