"""What a first fit leaves undone: which of the defaults mattered for these rows, each in a sentence.

    unscaled     a value of more than 10, or none of more than 1/100; or, where more than a tenth of the values are not
                 0, features whose largest values differ by a factor of more than 100 (`data.scaling.advised`)
    unbalanced   a class with less than a tenth of the rows of the largest one, and no weights of classes
    amounts      a classifier's labels are more than 20 numbers, and have fractions or less than 4 rows each: amounts,
                 which are a regression's
    bias         a regression without one, of targets whose mean is farther from 0 than their standard deviation
    number       a kernel, and a method by a number that is LIBSVM's for another one (on the command line)
    edge         the best point of a search has the least or the largest value that was tried of a parameter without an
                 end, such as C, and is better than all points inside

The price of all of it is a look at each value, and where features are unscaled another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear import params as P
from marginlinear import registry
from marginlinear.data.arrays import CSR, held, is_stored, shape_of, spread
from marginlinear.data.labels import labels_of
from marginlinear.data.scaling import advised, extremes
from marginlinear.status import keyword

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from marginlinear._typing import AnyArray, ArrayLike, ClassWeight, MatrixLike
    from marginlinear.model import Model
    from marginlinear.selection import Search

    # How the reader calls a Param: its keyword, or its option.
    Called = Callable[[P.Param], str]

FEW = 0.1
STEPS = 3
# Numbers that are classes are few, or whole with so many rows each.
MANY, ROWS = 20, 4
# What LIBSVM means by its numbers.
LIBSVM = {"0": "l1svc -R --multiclass ovo", "1": "nusvc", "2": "oneclass", "3": "l1svr -R", "4": "nusvr"}


class Note(NamedTuple):
    """A piece of advice: which of {"unscaled", "unbalanced", "amounts", "bias", "number", "edge"}, and a sentence."""

    name: str
    text: str


def advice(X: MatrixLike, y: ArrayLike | None, model: Model, *, search: Search | None = None,
           class_weight: ClassWeight | None = None) -> list[Note]:
    """What to change first about a fit: features that are not scaled, classes that are unbalanced or none, no bias, the
    edge of a grid.

    Parameters
    ----------
    X, y
        The rows and labels of the fit, as `train` takes them. Values of a Store, and of a precomputed kernel, are not
        looked at.
    model : Model
        What `train` made of them, or `search`.
    search : Search, optional
        The search that the model is from.
    class_weight : dict or "balanced", optional
        That of the fit.

    Returns
    -------
    list of Note
        Empty where nothing mattered.

    Raises
    ------
    ValueError, TypeError
        For an X or y that `train` would refuse, and a model that is none.
    """
    from marginlinear.model import Model

    if not isinstance(model, Model):
        raise P.refusal("model", model, "a Model, as train returns it")
    found = []
    if model.params.get(P.SCALE.name) is None and model.params.get("kernel") != "precomputed":
        found += of_features(X)
    if model.classes is not None and not model.multilabel and y is not None:
        labels = labels_of(y)
        found += of_amounts(labels) or ([] if class_weight else of_classes(labels))
    if y is not None and model.params.get(P.FREE_BIAS.name) is False and model.classes is None and model.bias <= 0:
        found += of_targets(np.asarray(y))
    if search is not None:
        found += of_search(search.table, search.best_params)
    return found


def of_features(X: Any, called: Called = keyword) -> list[Note]:
    """On the sizes of features; `called` gives a Param's name to the reader."""
    if is_stored(X):
        return []
    # Rows of a file are in order, and stay as they are: one value a row is not spread.
    X = X if isinstance(X, CSR) else held(X)
    m, n = shape_of(X)
    largest, share = _largest(X), _filled(X) / max(1, m * n)
    # With whatever other features.
    if not largest or advised(0.0, largest, share) is None:
        return []
    if isinstance(X, CSR) and X.equal is not None:
        X = CSR(spread(X.equal, X.indptr), X.indices, X.indptr, n)
    least, most = extremes(X)
    sizes = np.maximum(np.abs(least), np.abs(most))
    sizes = sizes[sizes > 0]
    smallest = float(sizes.min())
    kind = advised(smallest, largest, share)
    if kind is None:
        return []
    how = f"{P.SCALE.flag} {kind}, or margin-scale," if called is not keyword else f"scale={kind!r}"
    apart = f"from {smallest:.3g} to {largest:.3g}, a ratio of {largest / smallest:.2g}" if smallest < largest else (
        f"all {largest:.3g}")
    return [Note("unscaled", f"features are not scaled: their largest values are {apart}; {how} gives all of them one "
                 "range")]


def _largest(X: Any) -> float:
    """The largest absolute value, 0 where there is none."""
    values = X if not isinstance(X, CSR) else X.data if X.equal is None else X.equal[np.diff(X.indptr) > 0]
    return max(float(values.max()), -float(values.min())) if values.size else 0.0


def _filled(X: Any) -> int:
    """How many values are not 0."""
    if not isinstance(X, CSR):
        return int(np.count_nonzero(X))
    if X.equal is None:
        return int(np.count_nonzero(X.data))
    return int(np.diff(X.indptr)[X.equal != 0].sum())


def of_amounts(y: AnyArray, called: Called = keyword) -> list[Note]:
    """On labels of a classifier that are numbers to be predicted."""
    if y.dtype.kind not in "iuf":
        return []
    count = len(np.unique(y))
    if count <= MANY or (len(y) >= ROWS * count and np.array_equal(y, np.floor(y))):
        return []
    names = [method.name for method in registry.methods().values() if method.regression]
    how = f"-s {' | '.join(names)}" if called is not keyword else f"solver={' | '.join(map(repr, names))}"
    return [Note("amounts", f"labels are {count:,} different numbers in {len(y):,} rows, and each is a class: if they "
                 f"are amounts, {how} predicts such")]


def of_classes(y: AnyArray, called: Called = keyword) -> list[Note]:
    """On how many rows classes have."""
    labels, counts = np.unique(y, return_counts=True)
    rare, common = counts.argmin(), counts.argmax()
    if counts[rare] >= FEW * counts[common]:
        return []
    few, many = labels[rare].item(), labels[common].item()
    how = f"{P.CLASS_WEIGHTS.flag} balanced" if called is not keyword else "class_weight='balanced'"
    metric = f"{P.METRIC.flag} balanced" if called is not keyword else "metric='balanced'"
    return [Note("unbalanced", f"classes are unbalanced: label {few} has {counts[rare]:,} of {len(y):,} rows, label "
                 f"{many} has {counts[common]:,}; {how} weighs them alike, {metric} measures them so")]


def of_targets(y: AnyArray, called: Called = keyword) -> list[Note]:
    """On the numbers that a regression without a bias is to predict."""
    mean = float(np.mean(y))
    if abs(mean) <= np.std(y):
        return []
    how = f"-{P.FREE_BIAS.letter}" if called is not keyword else "free_bias=True"
    return [Note("bias", f"targets are {mean:.3g} on average, and the model has no bias: {how} gives it one")]


def of_number(number: str | None, name: str) -> list[Note]:
    """On `-s number`, which is the method `name` here, beside a kernel."""
    if number not in LIBSVM:
        return []
    return [Note("number", f"-s {number} is {name}, as in LIBLINEAR: LIBSVM's -s {number} is -s {LIBSVM[number]}")]


def of_search(table: Sequence[Mapping[str, Any]], best: Mapping[str, Any], called: Called = keyword) -> list[Note]:
    """On the edges of the grid of a search, by its `table` and `best_params`."""
    notes = []
    score = next(entry["score"] for entry in table if all(entry[name] == value for name, value in best.items()))
    for param in P.OWN:
        values = [entry[param.name] for entry in table] if param.endless and param.name in best else []
        # Values in units of rows and C are text.
        values = sorted(set(values)) if all(isinstance(value, float) for value in values) else []
        if len(values) < 3 or best[param.name] not in (values[0], values[-1]):
            continue
        inside = values[1:-1]
        if any(entry["score"] == score for entry in table if entry[param.name] in inside):
            continue
        largest = best[param.name] == values[-1]
        factor = values[-1] / values[-2] if largest else values[0] / values[1]
        beyond = [float(f"{best[param.name] * factor**step:.6g}") for step in range(STEPS)]
        name = param.name.rstrip("_")
        tried = ",".join(f"{value:g}" for value in sorted(beyond))
        how = f"--grid {name}={tried}" if called is not keyword else f"grid='{name}={tried}'"
        notes.append(Note("edge", f"{name} = {best[param.name]:g} is the best, and the "
                          f"{'largest' if largest else 'least'} that was tried: go on with {how}"))
    return notes
