"""Model files, written: `modelfile` says what is in them. Nothing that reads them is imported here."""

import math

from marginlinear import liblinear
from marginlinear._core.decimal import format_rows
from marginlinear._core.vector import columns_of
from marginlinear._version import version
from marginlinear.atomic import replacing
from marginlinear.data.labels import require_words
from marginlinear.modelfile.digest import sha256
from marginlinear.params import THREADS, check_path, refusal
from marginlinear.threads import default_threads, ranges, run_chunks

TRAILER = b"marginlinear 1"
C_INT = 1 << 31
BLOCK = 1 << 18  # bytes of weights that are made text at once
AHEAD = 4  # blocks for each thread whose text is held
DIGITS = 20  # bytes that a number takes, about
LABELS = {"b": "bool", "i": "int64", "u": "int64", "f": "float64", "U": "str"}  # by NumPy's kind
PYTHON = {int: "int64", float: "float64", str: "str"}
SIGNS = {1: "+", -1: "-", 0: "0"}  # a code as it is written
# Of Info, what two equal runs share, and its types.
KEPT = {"status": str, "algorithm": str, "n_iter": int, "n_outer": int, "objective": float,
        "bound": (float, type(None)), "certificate": (float, type(None)), "n_support": int, "tol": float,
        "residual": (float, type(None)), "reason": (str, type(None))}


def save_model(model, path, *, threads=None):
    """Write `model` to the file `path`, `-` for standard output.

    The file appears whole or not at all: an interrupt, a crash or a full disk leaves the old one.

    Parameters
    ----------
    model : Model
    path : str or path-like
    threads : int, optional
        Default: all cores. The file does not depend on it.

    Raises
    ------
    OSError
        The file cannot be written.
    ValueError
        A weight is not finite, a label is no word, or the kernel is a Python function.
    TypeError
        Arguments of another kind.
    """
    if not hasattr(model, "weights") or not hasattr(model, "classes"):
        raise refusal("model", model, "a Model, as train returns it")
    threads = default_threads() if threads is None else THREADS.check(threads)
    with replacing(check_path("path", path)) as stream:
        _write(model, stream, threads)


def label_text(label):
    """A label as in a LIBSVM file: an integer without a point, another number in its shortest form."""
    if isinstance(label, str):
        return label
    label = _plain(label)
    text = repr(label) if isinstance(label, float) else str(int(label))
    return text.removesuffix(".0")


def _write(model, stream, threads):
    digest = sha256(DIGITS * memoryview(model.weights).nbytes // 8)

    def put(data):
        digest.update(data)
        stream.write(data)

    if not math.isfinite(model.bias):
        raise ValueError(f"the model is not saved: bias = {model.bias} is not finite")
    beyond = {}
    if hasattr(model, "kernel"):
        # Imported when it is needed: most models are linear.
        from marginlinear.modelfile import kernel

        beyond = kernel.beyond(model)
        for block in kernel.blocks(model):
            put(block)
    else:
        _put_linear(model, put, threads)
    put(TRAILER + b"\n")
    put(_trailer(model, beyond)[:-1].encode("ascii") + b', "sha256": "')
    stream.write(digest.hexdigest().encode("ascii") + b'"}\n')


def _put_linear(model, put, threads):
    """What stands before the trailer of a linear model, some of it at a time: `linear` has its layout."""
    # Here, as who predicts needs no methods.
    from marginlinear import registry

    weights = memoryview(model.weights)
    rows, columns = weights.shape
    kind = (liblinear.solver_type(registry.liblinear_number(model.solver), len(model.classes), columns)
            if not model.voted else liblinear.CODED)
    put((f"solver_type {kind}\n{label_lines(model)}{code_line(model)}{scaling_line(model)}"
         f"nr_feature {model.n_features}\nbias {model.bias:.17g}\nw\n").encode("ascii"))
    flipped = model.joint and columns == 2
    blocks = ranges(rows, max(1, BLOCK // (8 * columns)))
    made = []
    for first, last in ranges(len(blocks), AHEAD * threads):
        def work(at, _, first=first, made=made):
            # While one thread puts what was made before, the others make what comes next.
            if at == 0:
                for text in made:
                    put(text)
                return b""
            low, high = blocks[first + at - 1]
            part = weights[low:high]
            try:
                return format_rows(columns_of(part, 1, -1, 2) if flipped else part)
            except ValueError:
                raise ValueError("the model is not saved: it holds a weight that is not finite") from None

        made = run_chunks(work, 1 + last - first, threads, 1)
    for text in made:
        put(text)


def label_kind(model):
    """What the trailer calls the labels."""
    if isinstance(model.classes, list):
        return PYTHON[type(model.classes[0])]
    kind = model.classes.dtype.kind
    if kind not in LABELS:
        raise TypeError(f"the model is not saved: its labels are {model.classes.dtype}, not bools, numbers or text")
    return LABELS[kind]


def label_lines(model):
    """The lines of the number of classes and of the labels; of two classes classes[1] comes first."""
    kind = label_kind(model)
    classes = list(model.classes) if isinstance(model.classes, list) else model.classes.tolist()
    if len(classes) == 2:
        classes.reverse()
    require_words(classes, "the model is not saved")
    if kind == "float64" and not all(map(math.isfinite, classes)):
        raise ValueError("the model is not saved: it has a label that is not finite")
    if kind != "str" and all(c == int(c) and -C_INT <= c < C_INT for c in classes):
        labels = "label " + " ".join(str(int(c)) for c in classes)
    else:
        labels = "classes " + json_text(classes)
    return f"nr_class {len(classes)}\n{labels}\n"


def code_line(model):
    """The line of the codes; "" without."""
    if not model.voted:
        return ""
    codes = model.codes.tolist()
    if len(codes) == 2:
        codes.reverse()
    return "codes " + " ".join("".join(SIGNS[code] for code in word) for word in codes) + "\n"


def scaling_line(model):
    """The line of the scaling, which other programs do not know: they refuse the file; "" without."""
    return "" if model.scaling is None else f"scaling {model.scaling.kind}\n"


def _trailer(model, beyond):
    """The last line without its digest; `beyond` is what the layout adds."""
    info = None
    if model.info is not None:
        info = {name: _json_number(getattr(model.info, name)) for name in KEPT}
    return json_text({
        **beyond,
        **({} if model.calibration is None else {"calibration": _sorted(model.calibration._asdict())}),
        "info": info,
        "labels": label_kind(model),
        "params": _sorted(model.params),
        **({} if model.scaling is None else {"scaling": model.scaling.to_dict()}),
        "solver": model.solver,
        "version": version,
    })


def _sorted(values):
    return {name: _plain(value) for name, value in sorted(values.items())}


def _plain(value):
    """A number of NumPy's as one of Python's."""
    return value.item() if hasattr(value, "item") else value


def _json_number(value):
    """JSON has no infinity: a bound of -inf is written as its name."""
    value = _plain(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def json_text(value):
    """The JSON of a value, by the module json only where that says more: its import takes longer than most models."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json_text(name)}: {json_text(item)}" for name, item in value.items()) + "}"
    if value is None:
        return "null"
    if type(value) in (int, float) and math.isfinite(value):
        return repr(value)
    if type(value) is str and value.isascii() and value.isprintable() and not {'"', "\\"} & set(value):
        return f'"{value}"'
    import json

    return json.dumps(value, allow_nan=False)
