"""Learning from data that come in parts: all rows seen are kept on disk, and the fit goes on over all of them."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier  # pyright: ignore[reportAttributeAccessIssue]
from sklearn.utils.validation import _check_sample_weight, validate_data

from marginlinear.api import fit_model
from marginlinear.data.arrays import checked
from marginlinear.data.canonical import SMALL
from marginlinear.fitting import Start
from marginlinear.sklearn.base import MarginEstimator, available_if
from marginlinear.store import Store
from marginlinear.store.paging import paged

if TYPE_CHECKING:
    from typing import Self

    from marginlinear._typing import ArrayLike, FloatArray, MatrixLike, PathLike, State

LOST = ("the rows of the parts before were in a folder of another object, or of another process: fit anew, or name "
        "store=FOLDER at the first part")


def on_disk(estimator: Any) -> bool:
    """Whether its method goes over rows on disk."""
    return bool(estimator._method.stores) and getattr(estimator, "kernel", None) is None


class Parts:
    """The rows so far: a Store in a folder, which ends with this object where nobody named it, and their weights.

    Attributes
    ----------
    folder : str or None
        None: that of another object, which is gone.
    path : str or None
        The store. It is opened for each errand: maps of files that are held count as memory.
    before : str or None
        That of the call before.
    m : int
    weights : float64 array of shape (m,) or None
    memory : int, str or None
    """

    folder: str | None

    def __init__(self, folder: PathLike | None, memory: int | str | None) -> None:
        self.memory, self.m, self.own = memory, 0, folder is None
        self.path: str | None = None
        self.before: str | None = None
        self.weights: FloatArray | None = None
        if folder is None:
            self.folder = tempfile.mkdtemp(prefix="marginlinear-")
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        else:
            self.folder = os.fsdecode(folder)
            os.makedirs(folder, exist_ok=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "folder": None if self.own else self.folder}

    @property
    def lost(self) -> bool:
        """Whether the rows so far are not there any more."""
        return self.folder is None or not (self.path is None or os.path.isdir(self.path))

    def with_rows(self, X: Any, y: Any, weights: Any) -> tuple[Store, Any]:
        """(Store of the rows so far and these, the weights of all or None)"""
        m = self.m + len(y)
        before: Iterator[tuple[Any, Any]] = iter(())
        if self.path is not None:
            # The pager lets go of what was read.
            pager = paged(Store(self.path), self.memory)
            before = ((part, part.labels) for part in pager.store.parts())
        # A name of its own: what a crash or another copy of this object left stays as it is.
        path = os.path.join(str(self.folder), f"rows-{m}-{os.urandom(4).hex()}.store")
        found = Store.write(chain(before, [(X, y)]), path, n_features=X.shape[1])
        if weights is None and self.weights is None:
            return found, None
        old, new = (np.ones(size) if given is None else given
                    for given, size in ((self.weights, self.m), (weights, len(y))))
        return found, np.concatenate([old, new])

    def take(self, store: Store, weights: Any) -> None:
        """Keep these in place of those before, which in a folder that was named stay until the next ones: a pickle that
        was made before this call goes on from them."""
        gone = self.path if self.own else self.before
        if gone is not None:
            shutil.rmtree(gone, ignore_errors=True)
        self.path, self.before, self.m, self.weights = store.path, self.path, store.m, weights


def extended(state: State, k: int, new: int) -> State:
    """The state of an engine with so many rows more, whose duals are 0; k is the number of classes of a joint one,
    else 1."""
    duals, m = np.asarray(state["duals"]), len(state["cost"])
    # A joint engine has the blocks of all rows, and then a number for each row.
    blocks = [(duals, new)] if k == 1 else [(duals[:m * k], new * k), (duals[m * k:], new)]
    rivals = {name: np.append(found, np.zeros(new, found.dtype)) for name in ("rival", "fixed")
              if (found := state.get(name)) is not None}
    return {**state, "duals": np.concatenate([part for block, size in blocks for part in (block, np.zeros(size))]),
            "cost": np.append(state["cost"], np.ones(new)), "before": None, **rivals}


if TYPE_CHECKING:
    Before = MarginEstimator
else:
    Before = object


class LearnsInParts(Before):
    """`partial_fit`, for what can be trained on a Store."""

    @available_if(on_disk)
    def partial_fit(self, X: MatrixLike, y: ArrayLike, classes: ArrayLike | None = None,
                    sample_weight: ArrayLike | None = None, *, store: PathLike | None = None,
                    memory: int | str | None = None) -> Self:
        """Train on the rows of X and on those of all calls before.

        The rows are kept on disk, and each call trains on all of them, to the same objective and certificate as `fit`:
        dual_gap_ is of all rows seen. It begins at the duals of the last call, those of new rows being 0 (but for mcODM
        and multiclass="ovo" and "ecoc", which begin anew), and goes over all rows: give few large parts. `fit` forgets
        the rows.

        Parameters
        ----------
        X : array or sparse array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Of the first part at least two labels.
        classes : array of shape (n_classes,), default=None
            Of a classifier, at the first call: all labels that there will be; None: those of a `fit` before.
        sample_weight : array of shape (n_samples,), default=None
        store : str or path, default=None
            At the first call: the folder for the rows, which is kept. None: one for temporary files, gone with the
            estimator, whose copies and pickles cannot go on.
        memory : int or str, default=None
            At the first call: bytes that a fit may hold, as 2**32 or "4G". None: half of the machine's memory.

        Returns
        -------
        self
        """
        parts: Parts | None = vars(self).get("_parts")
        first = parts is None
        if parts is not None and parts.lost:
            raise ValueError(LOST)
        X, y = validate_data(self, checked(X), y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=first,
                             y_numeric=not is_classifier(self))
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        known = self._known_classes(classes, first) if is_classifier(self) else None
        if known is not None and (strange := np.setdiff1d(y, known).tolist()):
            raise ValueError(f"y: label {strange[0]!r} is not among the classes of the first call to partial_fit")
        if parts is None:
            parts = Parts(store, memory)
        elif store is not None or memory is not None:
            raise ValueError("store and memory belong to the first call to partial_fit: leave them out")
        rows, weights = parts.with_rows(X, y, sample_weight)
        try:
            labels, told = self._told(np.asarray(rows.y), weights)
            if known is not None:
                told["classes"] = known
            start = None if first else self._start_on(rows, known, weights)
            model = fit_model(rows, labels, solver=self._method.name, sample_weight=weights, start=start,
                              memory=parts.memory, callback=self._tell if self.verbose else None, **told,
                              **self._given(X))
        except BaseException:
            shutil.rmtree(rows.path)
            raise
        parts.take(rows, weights)
        self._take(model, None, told)
        self._parts = parts
        if not self.converged_:
            self._warn(model.info, {})
        return self

    def _take(self, model: Any, ground: Any, told: Any) -> None:
        # Those of a fit are not kept.
        self.__dict__.pop("_parts", None)
        super()._take(model, ground, told)

    def _known_classes(self, classes: Any, first: bool) -> Any:
        if first and classes is not None:
            return np.unique(classes)
        known = getattr(self, "classes_", None)
        if known is None:
            raise ValueError("classes must be passed on the first call to partial_fit: all labels that there will be")
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"classes = {np.unique(classes)} is not the same as on last call to partial_fit, was: "
                             f"{known}")
        return known

    def _start_on(self, rows: Store, classes: Any, weights: Any) -> Start | None:
        """What the fit over these rows goes on from: the last one's duals, and 0 for those of new rows.

        None where it begins anew: pairs of classes and codes have rows of their own, mcODM's answer depends on its
        start; and rows are merged where they are few, or left out, as are classes without rows.
        """
        method, start, old = self._method, getattr(self._trained, "_state", None), self._parts.m
        told = np.asarray(rows.y) if classes is None else np.searchsorted(classes, rows.y)
        small = old * (rows.n_features + 2) <= SMALL
        if start is None or small or not method.path or getattr(self, "multiclass", "ovr") != "ovr":
            return None
        if len(start.y) < old or not (weights is None or weights.all()) or (
                classes is not None and len(np.unique(start.y)) < len(classes)):
            return None
        if method.smooth:
            state = {**start.state, "duals": None}
        elif "columns" in start.state:
            state = {**start.state, "columns": [extended(column, 1, rows.m - old) for column in start.state["columns"]]}
        else:
            state = extended(start.state, len(np.asarray(classes)) if method.joint else 1, rows.m - old)
        return Start({**start.origin, "rows": rows.m}, told, state)
