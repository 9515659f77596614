"""What a model reached, computed from its file and the data by NumPy alone; and data made from other data."""

import os
import warnings
from pathlib import Path

from .measure import BenchError

SCORE_BLOCK = 2**22  # products held at once while scores are computed
LAMBDA1 = LAMBDA2 = 0.25  # ldm's defaults


def parse_numbers(path, text):
    """The numbers of a text, separated by blanks, as float64."""
    import numpy as np

    with warnings.catch_warnings():
        # What is not a number raises in later versions of NumPy, and warns in earlier ones.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(text, sep=" ")
        except (DeprecationWarning, ValueError) as error:
            raise BenchError(f"{path}: {error}") from error


def read_text(path):
    """LIBSVM text as (labels, indptr, indices from 0, values), by a reader that no contestant shares.

    Well-formed files only: a label and index:value pairs in every line.
    """
    import numpy as np

    raw = Path(path).read_bytes()
    if raw and not raw.endswith(b"\n"):
        raw += b"\n"
    byte = np.frombuffer(raw, np.uint8)
    ends = np.flatnonzero(byte == 10)
    colons = np.searchsorted(np.flatnonzero(byte == 58), ends)
    indptr = np.concatenate(([0], colons))
    numbers = parse_numbers(path, raw.replace(b":", b" "))
    if len(numbers) != len(ends) + 2 * indptr[-1]:
        raise BenchError(f"{path}: not plain LIBSVM text (comments and blank lines are not read here)")
    label_at = np.arange(len(ends)) + 2 * indptr[:-1]
    pairs = np.delete(numbers, label_at)
    return numbers[label_at], indptr, pairs[0::2].astype(np.int64) - 1, pairs[1::2]


def read_model(path):
    """A LIBLINEAR model file up to its weights: (solver type, labels, bias, W of shape (features, columns)).

    With a bias the last row of W belongs to the bias feature. What follows the weights is not read.
    """
    import numpy as np

    raw = Path(path).read_bytes()
    head, mark, body = raw.partition(b"\nw\n")
    if not mark:
        raise BenchError(f"{path}: no line 'w': not a LIBLINEAR model")
    fields = dict(line.split(" ", 1) for line in head.decode().splitlines())
    classes, features, bias = int(fields["nr_class"]), int(fields["nr_feature"]), float(fields["bias"])
    labels = np.array([int(word) for word in fields["label"].split()])
    columns = 1 if classes == 2 and fields["solver_type"] != "MCSVM_CS" else classes
    rows = features + (bias >= 0)
    ends = np.flatnonzero(np.frombuffer(body, np.uint8) == 10)
    if len(ends) < rows:
        raise BenchError(f"{path}: {len(ends)} lines of weights, {rows} expected")
    weights = parse_numbers(path, body[: ends[rows - 1]])
    if len(weights) != rows * columns:
        raise BenchError(f"{path}: {len(weights)} weights, {rows} x {columns} expected")
    return fields["solver_type"], labels, bias, weights.reshape(rows, columns)


def scores(problem, bias, W):
    """X W, with the bias feature. Features that the model does not know count nothing."""
    import numpy as np

    _, indptr, indices, values = problem
    features = len(W) - (bias >= 0)
    padded = np.vstack((W[:features], np.zeros(W.shape[1])))
    out = np.zeros((len(indptr) - 1, W.shape[1]))
    step = max(1, SCORE_BLOCK // W.shape[1])
    first = 0
    while first < len(out):
        last = max(first + 1, int(np.searchsorted(indptr, indptr[first] + step, side="right")) - 1)
        begin, end = indptr[first], indptr[last]
        filled = np.flatnonzero(np.diff(indptr[first : last + 1])) + first
        if len(filled):
            terms = values[begin:end, None] * padded[np.minimum(indices[begin:end], features)]
            out[filled] = np.add.reduceat(terms, indptr[filled] - begin, axis=0)
        first = last
    return out + bias * W[features] if bias >= 0 else out


def multiclass_margins(S, column):
    """g_i = s_y - max over l != y of s_l."""
    import numpy as np

    rows = np.arange(len(S))
    own = S[rows, column]
    rival = S.copy()
    rival[rows, column] = -np.inf
    return own - rival.max(axis=1)


def cs_objective(W, g, C):
    """1/2 ||W||^2 + C sum (1 - g_i)_+"""
    import numpy as np

    return 0.5 * float(np.sum(W * W)) + C * float(np.maximum(0, 1 - g).sum())


def mcodm_objective(W, g, C, mu, theta):
    """J(W) = 1/2 ||W||^2 + C/(1-theta)^2 sum [(1 - theta - g_i)_+^2 + mu (g_i - 1 - theta)_+^2]"""
    import numpy as np

    xi = np.maximum(0, 1 - theta - g)
    eps = np.maximum(0, g - 1 - theta)
    return 0.5 * float(np.sum(W * W)) + C / (1 - theta) ** 2 * float((xi * xi + mu * eps * eps).sum())


def binary_objectives(W, margins, C, mu, theta):
    """Of one-column methods, summed over the columns: W of shape (features, columns), margins (rows, columns)."""
    import numpy as np

    half, short = 0.5 * float(np.sum(W * W)), np.maximum(0, 1 - margins)
    hinge = half + C * float(short.sum())
    ldm = hinge + 2 * LAMBDA1 * float(margins.var(axis=0).sum()) - LAMBDA2 * float(margins.mean(axis=0).sum())
    low, high = np.maximum(0, 1 - theta - margins), np.maximum(0, margins - 1 - theta)
    odm = half + C / (1 - theta) ** 2 * float((low**2 + mu * high**2).sum())
    return {"l1svc": hinge, "l2svc": half + C * float((short**2).sum()), "ldm": ldm, "odm": odm}


def evaluate(model, train, test, C, mu, theta):
    """The objectives of a model file on the training data, and the accuracy on the test data."""
    return evaluate_all([model], train, test, C, mu, theta)[0]


def evaluate_all(models, train, test, C, mu, theta):
    """`evaluate` of several models, the data read once."""
    problem, other = read_text(train), read_text(test) if test else None
    return [evaluate_on(model, problem, other, C, mu, theta) for model in models]


def evaluate_on(model, problem, test, C, mu, theta):
    import numpy as np

    _, labels, bias, W = read_model(model)
    binary = W.shape[1] == 1
    # One column w of a binary model stands for the classes (w/2, -w/2): the shortest W with the same margins.
    full = np.hstack((W / 2, -W / 2)) if binary else W

    def columns(values):
        order = np.argsort(labels)
        at = np.minimum(np.searchsorted(labels[order], values), len(labels) - 1)
        found = order[at]
        return np.where(labels[found] == values, found, -1)

    column = columns(problem[0])
    if column.min() < 0:
        raise BenchError(f"{model}: the training file has labels that the model does not know")
    S = scores(problem, bias, full)
    g = multiclass_margins(S, column)
    result = {"cs": cs_objective(full, g, C), "mcodm": mcodm_objective(full, g, C, mu, theta)}
    if len(labels) == 2:
        result |= binary_objectives(full[:, 0] - full[:, 1], g[:, None], C, mu, theta)
    else:
        S[column[:, None] != np.arange(S.shape[1])] *= -1
        result |= binary_objectives(full, S, C, mu, theta)
    if test:
        chosen = scores(test, bias, full).argmax(axis=1)
        result["accuracy"] = float(np.mean(chosen == columns(test[0])))
    return result


def scale01(train, test, train_out, test_out):
    """See --scale01 in the text above."""
    import numpy as np

    low = high = None
    for source, target in ((train, train_out), (test, test_out)):
        if source is None:
            continue
        labels, indptr, indices, values = read_text(source)
        if low is None:
            features = int(indices.max()) + 1
            low, high = np.full(features, np.inf), np.full(features, -np.inf)
            np.minimum.at(low, indices, values)
            np.maximum.at(high, indices, values)
            partial = np.bincount(indices, minlength=features) < len(labels)
            low[partial] = np.minimum(low[partial], 0)
            high[partial] = np.maximum(high[partial], 0)
            constant = high == low
            factor = np.where(constant, 0, 1 / np.where(constant, 1, high - low))
        # Where 0 is not the minimum, an entry that is left out is not 0 after scaling: rows become dense.
        with open(f"{target}.part", "w", encoding="ascii") as file:
            for i, label in enumerate(labels):
                row = np.zeros(features)
                own = slice(indptr[i], indptr[i + 1])
                known = indices[own] < features
                row[indices[own][known]] = values[own][known]
                row = (row - low) * factor
                words = [f"{j + 1}:{row[j]:.6g}" for j in np.flatnonzero(row)]
                file.write(" ".join([f"{label:g}", *words]) + "\n")
        os.replace(f"{target}.part", target)


def made_target(X, y, solver):
    """Of a regression a noisy linear function of the features, the same everywhere; else the labels."""
    import numpy as np

    if not solver.endswith("svr"):
        return y
    random = np.random.default_rng(0)
    z = X @ random.standard_normal(X.shape[1])
    return (z - z.mean()) / z.std() + 0.3 * random.standard_normal(X.shape[0])


def draw(path, out, count, standard, parity, solver=""):
    """`count` rows of a file, drawn with a fixed seed, or all; `standard`: each feature of mean 0 and deviation 1;
    `parity`: even labels against odd ones; the `made_target` of this solver."""
    import numpy as np

    import marginlinear as ml

    X, y = ml.load_libsvm(path)
    which = np.random.default_rng(0).permutation(len(y))[:count]
    X, y = X[which], y[which]
    if standard:
        X = X.toarray()
        deviation = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    ml.dump_libsvm(X, made_target(X, y % 2 if parity else y, solver), out)


def leave_fifth(source, train_out, test_out):
    """Lines of `source` cut into four fifths and one, both in their order."""
    import numpy as np

    lines = [line for line in Path(source).read_bytes().splitlines(keepends=True) if line.strip()]
    left = np.zeros(len(lines), dtype=bool)
    left[np.random.default_rng(0).permutation(len(lines))[:len(lines) // 5]] = True
    for target, part in ((train_out, ~left), (test_out, left)):
        Path(f"{target}.part").write_bytes(b"".join(lines[i] for i in np.flatnonzero(part)))
        os.replace(f"{target}.part", target)
