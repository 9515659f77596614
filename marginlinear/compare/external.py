"""Methods that are not ours: estimators of scikit-learn's kind, and LIBLINEAR's program. They get the same rows, folds
and metrics."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from abc import ABC, abstractmethod
from functools import partial
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from marginlinear import params as P
from marginlinear.compare.contestants import (
    NOT_STATED,
    Fitted,
    Task,
    Tried,
    chosen_by,
    described,
)
from marginlinear.compare.registered import probabilities_of
from marginlinear.compare.specs import LIBLINEAR, SKLEARN
from marginlinear.data.arrays import is_compressed, select_rows, shape_of
from marginlinear.selection import grid as G
from marginlinear.selection.cross_validation import judged
from marginlinear.selection.metrics import pooled
from marginlinear.status import CONVERGED, MAX_ITER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from marginlinear._typing import AnyArray, FloatArray
    from marginlinear.compare.specs import Spec

PROGRAM = "liblinear-train"
# It warns of much, as of inner caps that a fit gets over; by these, that it ended at a cap.
CAPPED = "WARNING: reaching max number of iterations", "WARNING: reaching max number of Newton iterations"
# LIBLINEAR draws its random numbers by the C library's rand, of which there is one in a process.
ALONE = threading.Lock()


class External(ABC):
    """What these methods have in common: points one by one, each fold by itself."""

    label: str
    fixed: dict[str, Any]
    grid: dict[str, list[Any]]
    power: float = 2.0

    def points(self, task: Task) -> list[dict[str, Any]]:
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]

    def chains(self, points: list[dict[str, Any]]) -> list[list[int]]:
        return [[p] for p in range(len(points))]

    def search(self, task: Task, points: list[dict[str, Any]]) -> list[Tried]:
        at_work = task.at_work
        scores, short = np.full((len(points), len(at_work)), math.nan), [0] * len(points)
        refused: dict[int, ValueError] = {}
        for fold in at_work:
            inside, outside = np.flatnonzero(task.fold_of != fold), np.flatnonzero(task.fold_of == fold)
            part = task._replace(X=select_rows(task.X, inside), y=task.y[inside])
            held_out, y = select_rows(task.X, outside), task.y[outside]
            for p in (p for p in range(len(points)) if p not in refused):
                task.go_on()
                try:
                    fitted = self.fit(part, points[p], False)
                    scores[p, fold] = chosen_by(task.metric, y, *fitted.predict(held_out))
                    short[p] += not fitted.certified
                except ValueError as error:
                    refused[p] = error
        if len(refused) == len(points):
            raise refused[0]
        sizes = np.bincount(task.fold_of, minlength=task.folds)[:len(at_work)]
        return [Tried(point, math.nan if p in refused else pooled(task.metric, scores[p], sizes), short[p])
                for p, point in enumerate(points)]

    @abstractmethod
    def fit(self, task: Task, point: Mapping[str, Any], probability: bool) -> Fitted:
        """As a Contestant's."""


class Estimator(External):
    """An estimator of scikit-learn's kind.

    Parameters
    ----------
    template : estimator
        What is cloned for each fit.
    name : str
    fixed, grid : dict
        What `set_params` gets.
    """

    def __init__(self, template: Any, name: str, fixed: Mapping[str, Any], grid: Mapping[str, list[Any]],
                 label: str) -> None:
        self.template, self.name, self.label = template, name, label
        self.fixed, self.grid = dict(fixed), dict(grid)
        _require_estimator(template, name)
        known = template.get_params()
        for key in (*self.fixed, *self.grid):
            if key not in known:
                raise ValueError(f"{name} has no parameter {key!r}: it takes {', '.join(sorted(known))}")

    @property
    def key(self) -> dict[str, Any]:
        return {"sklearn": self.name, "fixed": {k: stated(v) for k, v in sorted(self.fixed.items())},
                "grid": {k: list(map(stated, values)) for k, values in self.grid.items()},
                "estimator": stated(self.template)}

    @property
    def described(self) -> str:
        return described(self.name, self.fixed, self.grid)

    @property
    def regression(self) -> bool | None:
        from sklearn.base import (
            is_classifier,  # pyright: ignore[reportAttributeAccessIssue]
            is_regressor,  # pyright: ignore[reportAttributeAccessIssue]
        )

        try:
            return True if is_regressor(self.template) else False if is_classifier(self.template) else None
        except AttributeError:
            # It has the four methods that are needed, and none that says what it is.
            return None

    def unfit(self, task: Task) -> str | None:
        return None

    def fit(self, task: Task, point: Mapping[str, Any], probability: bool) -> Fitted:
        from sklearn.base import clone  # pyright: ignore[reportAttributeAccessIssue]

        labels = task.y if task.classes is None else task.classes[task.y]
        with HEARING.heard() as messages, refusing():
            estimator = clone(self.template)
            # A value may be an estimator, too, such as a step of a pipeline.
            estimator.set_params(**{key: clone(value, safe=False) for key, value in {**self.fixed, **point}.items()})
            seeded = [key for key, value in estimator.get_params().items()
                      if key.split("__")[-1] == "random_state" and value is None]
            estimator.set_params(**dict.fromkeys(seeded, task.seed))
            estimator.fit(foreign(task.X, task.dense), labels)
        classes = task.classes

        def predict(X: Any) -> tuple[AnyArray, FloatArray | None]:
            rows = foreign(X, task.dense)
            with refusing():
                predicted = np.asarray(estimator.predict(rows))
                if predicted.size != shape_of(X)[0]:
                    raise ValueError(f"predictions of shape {predicted.shape} for {shape_of(X)[0]} rows")
                predicted = predicted.ravel()
                if classes is None:
                    return predicted.astype(np.float64), predicted.astype(np.float64)
                places = np.minimum(np.searchsorted(classes, predicted), len(classes) - 1)
                scores = _scores(estimator, rows, classes)
            strange = predicted[classes[places] != predicted]
            if len(strange):
                raise ValueError(f"it predicts {strange.tolist()[0]!r}, which is no class of the set: {_some(classes)}")
            return places, scores

        def probabilities(X: Any) -> FloatArray:
            assert classes is not None
            with refusing():
                found = np.asarray(estimator.predict_proba(foreign(X, task.dense)))
            of_all = np.zeros((len(found), len(classes)))
            of_all[:, np.searchsorted(classes, estimator.classes_)] = found
            return of_all

        able = probability and hasattr(estimator, "predict_proba")
        return Fitted(predict, MAX_ITER if messages else NOT_STATED, n_iter=_n_iter(estimator),
                      probabilities=probabilities if able else None)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Whatever another library raises within it is why there is no result: a ValueError, which becomes a reason."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def stated(value: Any) -> str:
    """All that is set in an estimator, or of another parameter's value, as a text that is the same in every process;
    what is too long for the text it has as a hash."""
    text = " ".join(repr(value).split())
    if "..." in text:
        # scikit-learn and NumPy leave out of what is long.
        parts = value.get_params() if hasattr(value, "get_params") else {"": value}
        with np.printoptions(threshold=sys.maxsize):
            whole = repr([(name, type(part) if hasattr(part, "get_params") else part)
                          for name, part in sorted(parts.items())])
        text += f" {hashlib.sha256(_without_places(whole).encode()).hexdigest()}"
    return _without_places(text)


def _without_places(text: str) -> str:
    """Functions are where they are, in each process elsewhere."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _some(classes: AnyArray) -> str:
    return ", ".join(map(str, classes[:5].tolist())) + (", ..." if len(classes) > 5 else "")


def _last(estimator: Any) -> Any:
    """What an estimator holds at its end, such as a pipeline's last step."""
    while True:
        inner = getattr(estimator, "best_estimator_", None)
        steps = getattr(estimator, "steps", None)
        # Of a pipeline; others may have a number by that name.
        if inner is None and isinstance(steps, list):
            inner = steps[-1][1]
        if inner is None or isinstance(inner, str):
            return estimator
        estimator = inner


def _n_iter(estimator: Any) -> int | None:
    """Iterations of an estimator; None where it does not say."""
    n_iter = np.asarray(getattr(_last(estimator), "n_iter_", None))
    return int(n_iter.max()) if n_iter.dtype.kind in "iu" and n_iter.size else None


class Hearing:
    """Who hears the ConvergenceWarnings of scikit-learn, in whatever thread they are raised: Python has one filter, and
    one way of showing warnings, for all threads."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._of_thread = threading.local()
        self._ended: contextlib.ExitStack

    @contextlib.contextmanager
    def heard(self) -> Iterator[list[str]]:
        """Within it, those of this thread are put on the list."""
        with self._lock:
            if not self._users:
                self._listen()
            self._users += 1
        messages: list[str] = []
        self._of_thread.messages = messages
        try:
            yield messages
        finally:
            self._of_thread.messages = None
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._ended.close()

    def _listen(self) -> None:
        from sklearn.exceptions import ConvergenceWarning

        self._ended = contextlib.ExitStack()
        self._ended.enter_context(warnings.catch_warnings())
        warnings.simplefilter("always", ConvergenceWarning)
        show = warnings.showwarning

        def hear(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            messages = getattr(self._of_thread, "messages", None)
            if messages is None or not issubclass(category, ConvergenceWarning):
                show(message, category, *rest, **named)
            else:
                messages.append(str(message))

        warnings.showwarning = hear


HEARING = Hearing()


def _scores(estimator: Any, rows: Any, classes: AnyArray) -> FloatArray | None:
    """Scores with a column a class of the set, or of two classes one that is positive for the second."""
    for name in ("decision_function", "predict_proba"):
        if hasattr(estimator, name):
            found = np.asarray(getattr(estimator, name)(rows), dtype=np.float64)
            break
    else:
        return None
    if not hasattr(estimator, "classes_"):
        return None
    columns = np.searchsorted(classes, estimator.classes_)
    if found.ndim == 1:
        if len(classes) == 2:
            return found
        found = np.column_stack([-found, found])
    if found.shape[1] != len(columns) or getattr(_last(estimator), "decision_function_shape", None) == "ovo":
        return None  # of pairs of classes
    if len(classes) == 2:
        return found[:, 1] - found[:, 0] if len(columns) == 2 else None
    of_all = np.full((len(found), len(classes)), -math.inf)
    of_all[:, columns] = found
    return of_all


def foreign(X: Any, dense: bool) -> Any:
    """Rows as scikit-learn takes them: an array or a csr_matrix."""
    if not is_compressed(X):
        return X
    from scipy.sparse import csr_matrix

    m, n = shape_of(X)
    found = csr_matrix((X.data, np.asarray(X.indices, dtype=np.int32),
                        np.asarray(X.indptr, dtype=np.int32 if len(X.data) < 2**31 else np.int64)), shape=(m, n))
    return found.toarray() if dense else found


def sklearn_of(spec: Spec) -> Estimator:
    """The Estimator of sklearn:MODULE.CLASS. Without a C among its values, C has the values of ours."""
    path = spec.name.removeprefix(SKLEARN)
    module, dot, name = path.rpartition(".")
    try:
        kind = getattr(import_module(module), name) if dot else None
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path} cannot be imported: {error}") from error
    if not callable(kind):
        raise ValueError(f"{path} is no class: give {SKLEARN}MODULE.CLASS, such as {SKLEARN}sklearn.svm.LinearSVC")
    try:
        template: Any = kind()
    except TypeError as error:
        raise ValueError(f"{path} cannot be made by its defaults alone, as a pipeline cannot: compare it in Python "
                         f"({error})") from error
    _require_estimator(template, path)
    grid = {key: _values(key, text) for key, text in spec.values}
    if "C" not in grid and not spec.defaults and "C" in template.get_params():
        grid = {"C": _values("C", P.C.grid), **grid}
    fixed = {key: values[0] for key, values in grid.items() if len(values) == 1}
    return Estimator(template, path, fixed, {key: values for key, values in grid.items() if len(values) > 1},
                     spec.label or name)


def _values(key: str, text: str) -> list[Any]:
    """Python's literals, words, and the ranges of a grid."""
    found: list[Any] = []
    for piece in _pieces(text):
        for word in G._words(key, piece) if _is_range(piece) else [piece]:
            try:
                value = ast.literal_eval(word)
            except (ValueError, SyntaxError):
                value = word
            found.append(value)
    return found


def _pieces(text: str) -> list[str]:
    """What stands between commas that no bracket holds."""
    found, depth = [""], 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return [piece.strip() for piece in found]


def _is_range(piece: str) -> bool:
    return piece.count(":") >= 2 and piece[0] not in "([{"


def _require_estimator(template: Any, name: str) -> None:
    if not all(hasattr(template, needed) for needed in ("fit", "predict", "get_params", "set_params")):
        raise ValueError(f"{name} is no estimator: fit, predict, get_params and set_params are needed")


def estimator_of(estimator: Any, grid: Mapping[str, list[Any]] | None, label: str | None) -> Estimator:
    """The Estimator of one that Python has, as it is but for what the grid says."""
    from sklearn.base import clone  # pyright: ignore[reportAttributeAccessIssue]

    name = type(estimator).__name__
    _require_estimator(estimator, name)
    # Of an array, Python's numbers: what NumPy's are called depends on its version, and journals are told apart by it.
    values = {key: [one.item() if isinstance(one, np.generic) else one for one in these]
              for key, these in (grid or {}).items()}
    with refusing():
        template = clone(estimator)
    return Estimator(template, name, {}, values, label or name)


class Liblinear(External):
    """LIBLINEAR's program, with options; C is `-c`, and of regression p is `-p`."""

    SOLVERS = (*range(8), 11, 12, 13)
    power = 1.0

    def __init__(self, options: list[str], fixed: Mapping[str, Any], grid: Mapping[str, list[Any]],
                 label: str) -> None:
        self.options, self.fixed, self.grid, self.label = options, dict(fixed), dict(grid), label
        self.program = shutil.which(PROGRAM)
        if self.program is None:
            _package()
        for key in (*self.fixed, *self.grid):
            if key not in ("C", "p", "e"):
                raise ValueError(f"{key} is no parameter of LIBLINEAR's that is searched: give C, p or e, and others "
                                 f"among the options of {LIBLINEAR}")
        try:
            number = int(options[options.index("-s") + 1]) if "-s" in options else 1
        except (IndexError, ValueError):
            number = -1
        if number not in self.SOLVERS:
            raise ValueError(f"give -s with one of {', '.join(map(str, self.SOLVERS))}")
        for flag in ("-v", "-C", "-q"):
            if flag in options:
                raise ValueError(f"{LIBLINEAR}{' '.join(options)}: leave out {flag}")
        self.regression: bool | None = number >= 11

    @property
    def key(self) -> dict[str, Any]:
        return {"liblinear": self.options, "fixed": self.fixed, "grid": self.grid}

    @property
    def described(self) -> str:
        return described(f"liblinear {' '.join(self.options)}", self.fixed, self.grid)

    def unfit(self, task: Task) -> str | None:
        return None

    def fit(self, task: Task, point: Mapping[str, Any], probability: bool) -> Fitted:
        from marginlinear.modelfile import load_model

        values = {**self.fixed, **point}
        options = [*self.options]
        for key, flag in (("C", "-c"), ("p", "-p"), ("e", "-e")):
            if key in values:
                options += [flag, f"{values[key]:.17g}"]
        with tempfile.TemporaryDirectory(prefix="marginlinear-") as folder:
            path = os.path.join(folder, "model")
            status = self._train(task, options, os.path.join(folder, "rows"), path)
            model = load_model(path)
        codes = None if task.classes is None else np.arange(len(task.classes))

        def predict(X: Any) -> tuple[AnyArray, FloatArray | None]:
            places, scores = judged(model, model.decide(X, threads=1), codes)
            # LIBLINEAR has the classes in the order in which they come.
            backwards = scores.ndim == 1 and codes is not None and model.classes[0] > model.classes[1]
            return places, -scores if backwards else scores

        if not probability or codes is None or model.calibration is None:
            return Fitted(predict, status)
        return Fitted(predict, status, probabilities=partial(probabilities_of, model, codes))

    def _train(self, task: Task, options: list[str], rows: str, path: str) -> str:
        """Write the model file; returns the status."""
        if self.program is None:
            return _train_here(task, options, path)
        from marginlinear.libsvm import dump_libsvm

        dump_libsvm(task.X if not is_compressed(task.X) else task.X.to_scipy(), task.y, rows)
        done = subprocess.run([self.program, *options, rows, path], capture_output=True, text=True, check=False)
        if done.returncode or not os.path.exists(path):
            told = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise ValueError(f"{PROGRAM} failed: {told[0]}")
        return MAX_ITER if any(line.startswith(CAPPED) for line in done.stdout.splitlines()) else CONVERGED


def _package() -> Any:
    try:
        return import_module("liblinear.liblinearutil")
    except ImportError as error:
        raise ValueError(f"LIBLINEAR is not there: install its program, {PROGRAM}, as by apt install liblinear-tools, "
                         "or pip install liblinear-official") from error


def _train_here(task: Task, options: list[str], path: str) -> str:
    """Train by liblinear-official, one fit at a time in this process."""
    import ctypes

    package = _package()
    with ALONE:
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).srand(1)
        model = package.train(task.y.astype(np.float64), foreign(task.X, task.dense),
                              " ".join([*map(shlex.quote, options), "-q"]))
        package.save_model(path, model)
    return NOT_STATED


def liblinear_of(spec: Spec) -> Liblinear:
    """The Liblinear of liblinear:OPTIONS. Without a C among its values, C has the values of ours."""
    options = shlex.split(spec.name.removeprefix(LIBLINEAR))
    grid = {key: _values(key, text) for key, text in spec.values}
    if "C" not in grid and "-c" not in options and not spec.defaults:
        grid = {"C": _values("C", P.C.grid), **grid}
    wrong = next((key for key, values in grid.items() if not all(isinstance(v, (int, float)) for v in values)), None)
    if wrong is not None:
        raise ValueError(f"{wrong} = {grid[wrong]}: numbers are needed")
    fixed = {key: values[0] for key, values in grid.items() if len(values) == 1}
    return Liblinear(options, fixed, {key: values for key, values in grid.items() if len(values) > 1},
                     spec.label or " ".join(["liblinear", *options]))

