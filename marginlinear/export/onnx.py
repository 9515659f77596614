"""A model as a graph of ONNX, in float64: see `to_onnx`.

Its operators are those of ai.onnx that have not changed from opset 13 on, so that the graph is one of each later
opset too. They have no sparse tensors: rows and support vectors are dense.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from marginlinear import calibration
from marginlinear._version import version
from marginlinear.data import one_against_one
from marginlinear.errors import needed
from marginlinear.export.functions import as_linear, checked_model, labels_of_kind, support_of
from marginlinear.params import Param

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from marginlinear._typing import AnyArray, ArrayLike, Flag, FloatArray
    from marginlinear.data.scaling import Scaling
    from marginlinear.model import Model

OPSET, IR = 13, 7
DTYPE = Param("dtype", str, "float64", "type of the input", choices=("float64", "float32"))
PROBABILITY = Param("probability", bool, True, "whether a model with a calibration gives probabilities")
# A file of protobuf holds less than 2 GiB; this much is left to all but the arrays.
MOST, OTHER = 1 << 31, 1 << 20
EPS = np.finfo(np.float64).eps


def to_onnx(model: Model, *, dtype: Literal["float64", "float32"] = "float64", probability: Flag = True) -> Any:
    """The model as an ONNX graph, which needs the package onnx (extra `[onnx]`) to be made.

    It computes in float64: scores agree with `decision_function` to rounding, and to 1e-8 in onnxruntime, which takes a
    factor so near to 1 for 1. Its input is `X`, dense rows of shape (m, n_features); for a precomputed kernel the
    values of it that `decision_function` takes. A row that has a NaN, or whose scores overflow, is no error there: what
    comes out then is of no use.

    Parameters
    ----------
    model : Model
        Linear or with a kernel that is no Python function; of an estimator its `model_`.
    dtype : {"float64", "float32"}, default="float64"
        Type of the input X.
    probability : bool, default=True
        Whether a model with a calibration has the output `probabilities`.

    Returns
    -------
    onnx.ModelProto
        Of opset 13, with the outputs

        - `label`: bool, int64, float64 or string of shape (m,), as `predict`;
        - `scores`: float64 of shape (m,) or (m, columns), as `decision_function`;
        - `probabilities`: float64 of shape (m, n_classes), as `predict_proba`, where the model has a calibration;

        or for a regression the one output `prediction`, float64 of shape (m,). `onnx.save(found, path)` writes it.

    Raises
    ------
    ImportError
        Without the package onnx.
    TypeError
        For what is no Model.
    ValueError
        For a kernel that is a function, LIBSVM's probabilities of more than two classes (which are the solution of a
        linear system for each row), and weights or dense support vectors of 2 GiB or more.
    """
    model, dtype, probability = checked_model(model), DTYPE.check(dtype), PROBABILITY.check(probability)
    onnx = require_onnx()
    graph = Graph()
    given = "X" if dtype == "float64" else graph("Cast", "X", to=onnx.TensorProto.DOUBLE)
    scores = add_scores(graph, model, given)
    found: dict[str, tuple[str, int, list[Any]]]
    if model.columns == 1 and not model.joint:
        found = {"scores": (graph("Squeeze", scores, np.array([1])), onnx.TensorProto.DOUBLE, ["m"])}
    else:
        found = {"scores": (scores, onnx.TensorProto.DOUBLE, ["m", model.columns])}
    if model.classes is None:
        found = {"prediction": found["scores"]}
    else:
        ranks, places = add_places(graph, model, scores)
        labels = labels_of_kind(model)
        found = {"label": (graph("Gather", labels, places), onnx_type(labels), ["m"]), **found}
        if probability and model.calibration is not None:
            chances = add_probabilities(graph, model, ranks, places)
            found["probabilities"] = chances, onnx.TensorProto.DOUBLE, ["m", len(labels)]
    helper = onnx.helper
    for name, (value, _, _) in found.items():
        graph.add_node("Identity", [value], [name], {})
    width = None if is_precomputed(model) else model.n_features
    rows = helper.make_tensor_value_info(
        "X", onnx.TensorProto.DOUBLE if dtype == "float64" else onnx.TensorProto.FLOAT, ["m", width])
    outputs = [helper.make_tensor_value_info(name, kind, shape) for name, (_, kind, shape) in found.items()]
    made = helper.make_graph(graph.nodes, model.solver or "model", [rows], outputs, graph.initializers)
    return helper.make_model(made, producer_name="marginlinear", producer_version=version, ir_version=IR,
                             opset_imports=[helper.make_opsetid("", OPSET)])


def require_onnx() -> Any:
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise ModuleNotFoundError(needed("to_onnx needs the package onnx", "onnx"), name="onnx") from error
    return onnx


def onnx_type(array: AnyArray) -> Any:
    """ONNX's number of an array's type."""
    onnx = require_onnx()
    if array.dtype.kind == "U":
        return onnx.TensorProto.STRING
    return onnx.helper.np_dtype_to_tensor_dtype(array.dtype)


class Graph:
    """Nodes and constants of a graph in the making.

    Called with an operator, its inputs, names or arrays, and its attributes it adds a node and returns the name of its
    first output. What is made goes to the attributes `nodes` and `initializers`, or wherever `add_node` and
    `add_constant` of a subclass put it, under what its `name` returns: names that nothing else in the graph has.
    """

    nodes: list[Any]
    initializers: list[Any]

    def __init__(self) -> None:
        self._onnx = require_onnx()
        self.nodes, self.initializers = [], []
        self._bytes, self._numbers = 0, count()

    def __call__(self, operator: str, *inputs: ArrayLike, outputs: int = 1, **attributes: Any) -> str:
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        made = [self.name(operator) for _ in range(outputs)]
        self.add_node(operator, names, made, attributes)
        return made[0]

    def name(self, about: str) -> str:
        return f"{about}_{next(self._numbers)}"

    def add_node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str],
                 attributes: Mapping[str, Any]) -> None:
        self.nodes.append(self._onnx.helper.make_node(operator, inputs, outputs, **attributes))

    def add_constant(self, tensor: Any) -> None:
        self.initializers.append(tensor)

    def constant(self, values: ArrayLike) -> str:
        values = np.asarray(values, order="C")
        self.require_room(values.nbytes)
        self._bytes += values.nbytes
        name = self.name("constant")
        if values.dtype.kind == "U":
            words = [word.encode("utf-8") for word in values.tolist()]
            self.add_constant(self._onnx.helper.make_tensor(name, self._onnx.TensorProto.STRING, values.shape, words))
        else:
            self.add_constant(self._onnx.numpy_helper.from_array(values, name))
        return name

    def require_room(self, size: int) -> None:
        """ValueError where so many bytes more are too many for a file."""
        if self._bytes + size > MOST - OTHER:
            raise ValueError(f"the model needs {self._bytes + size:,} bytes of dense arrays, an ONNX file holds less "
                             f"than {MOST:,}: train on fewer features, or a model without a kernel")


def is_precomputed(model: Model) -> bool:
    kernel = getattr(model, "kernel", None)
    return kernel is not None and kernel.kind == "precomputed"


def add_scores(graph: Graph, model: Any, X: str) -> str:
    """The name of the scores, shape (m, columns), of the rows named X."""
    kernel = getattr(model, "kernel", None)
    if kernel is not None and callable(kernel.kind):
        raise ValueError("to_onnx: kernel is a Python function, which a graph does not hold: give a model of kernel = "
                         "'linear', 'poly', 'rbf', 'sigmoid' or 'precomputed'")
    if kernel is not None and kernel.kind != "precomputed":
        graph.require_room(8 * model.n_support * model.n_features)
    linear = as_linear(model)
    if linear is not None:
        X = unit_rows(graph, X) if linear.unit else X
        return graph("Add", graph("MatMul", X, linear.weights), linear.intercept)
    if model.kernel.kind == "precomputed":
        values = graph("Gather", X, np.asarray(model.support_rows, dtype=np.int64), axis=1)
    else:
        values = add_kernel(graph, model.kernel, add_scaled(graph, model.scaling, X), support_of(model))
    return graph("Add", graph("MatMul", values, model.dual_coef), model.intercept)


def add_kernel(graph: Graph, kernel: Any, X: str, support: FloatArray) -> str:
    """The name of the kernel's values of the rows X and the support vectors: (m, n_support)."""
    products = graph("MatMul", X, support.T)
    if kernel.kind == "rbf":
        # ||x - z||^2 = ||x||^2 - 2 <x, z> + ||z||^2, which rounding may take below 0.
        distances = graph("Add", graph("Mul", products, np.float64(-2)), np.square(support).sum(axis=1))
        distances = graph("Max", graph("Add", distances, row_sums(graph, graph("Mul", X, X))), np.float64(0))
        return graph("Exp", graph("Mul", distances, np.float64(-kernel.gamma)))
    inner = graph("Add", graph("Mul", products, np.float64(kernel.gamma)), np.float64(kernel.coef0))
    return graph("Tanh", inner) if kernel.kind == "sigmoid" else graph("Pow", inner, np.float64(kernel.degree))


def add_scaled(graph: Graph, scaling: Scaling | None, X: str) -> str:
    """The name of the scaled rows: with the values of `Scaling.image` but for rounding."""
    if scaling is None:
        return X
    if not scaling.linear:
        return unit_rows(graph, X)
    varies = scaling.factor != 0
    # (x - least) factor + lower; a feature whose zeros stay zeros is multiplied alone.
    origin = np.where(varies & ~scaling.symmetric, scaling.least, 0.0)
    base = np.where(varies & ~scaling.symmetric, scaling.lower, 0.0)
    return graph("Add", graph("Mul", graph("Sub", X, origin), scaling.factor), base)


def unit_rows(graph: Graph, X: str) -> str:
    """The name of the rows divided by their lengths: first by their largest value, whose square is finite."""
    largest = largest_of(graph, graph("Abs", X))
    parts = graph("Div", X, or_one(graph, largest))
    lengths = graph("Sqrt", row_sums(graph, graph("Mul", parts, parts)))
    return graph("Div", parts, or_one(graph, lengths))


def or_one(graph: Graph, values: str) -> str:
    """The values, 1 in place of 0."""
    return graph("Where", graph("Greater", values, np.float64(0)), values, np.float64(1))


def row_sums(graph: Graph, values: str) -> str:
    return graph("ReduceSum", values, np.array([1]), keepdims=1)


def own_of(graph: Graph, places: str, k: int) -> str:
    """Whether a column of k is that of the row's place, bool of shape (m, k)."""
    return graph("Equal", graph("Unsqueeze", places, np.array([1])), np.arange(k)[np.newaxis])


def largest_of(graph: Graph, values: str) -> str:
    """Of each row, shape (m, 1). The axes of ReduceMax became an input in opset 18."""
    return graph("TopK", values, np.array([1]), outputs=2, axis=1)


def add_places(graph: Graph, model: Model, scores: str) -> tuple[str, str]:
    """(the name of what is compared between the classes, that of the places of the predicted classes, (m,))."""
    onnx = require_onnx()
    if not model.voted and not model.joint:
        flat = graph("Squeeze", scores, np.array([1]))
        return scores, graph("Cast", graph("Greater", flat, np.float64(0)), to=onnx.TensorProto.INT64)
    ranks = add_votes(graph, model, scores) if model.voted else scores
    return ranks, graph("ArgMax", ranks, axis=1, keepdims=0)


def add_votes(graph: Graph, model: Model, scores: str) -> str:
    """The name of the votes for each class: those that all scores below 0 would give, and what scores above change."""
    onnx = require_onnx()
    codes: Any = model.codes
    above = graph("Cast", graph("Greater", scores, np.float64(0)), to=onnx.TensorProto.FLOAT)
    # Sums of 1 and -1 are exact in float32 up to 2^24 columns.
    changed = graph("MatMul", above, codes.T.astype(np.float32))
    votes = graph("Add", changed, (codes < 0).sum(axis=1).astype(np.float32))
    return graph("Cast", votes, to=onnx.TensorProto.DOUBLE)


def add_probabilities(graph: Graph, model: Model, ranks: str, places: str) -> str:
    """The name of the probabilities of the classes, (m, n_classes): those of `Calibration.probabilities`."""
    found: Any = model.calibration
    k = len(model.classes)
    if found.kind == calibration.PAIRWISE and k > 2:
        raise ValueError(f"to_onnx: the probabilities of the model are LIBSVM's, of {one_against_one.column_count(k)} "
                         "pairs of classes: each row needs a linear system solved, which ONNX has no operator for; "
                         "give probability=False")
    if k == 2:
        f = graph("MatMul", ranks, np.array([[-1.0], [1.0]])) if model.voted or model.joint else ranks
        t = graph("Add", graph("Mul", f, np.float64(np.ravel(found.slope)[0])), np.float64(np.ravel(found.offset)[0]))
        logs = graph("Concat", graph("Neg", graph("Max", t, np.float64(0))), graph("Min", t, np.float64(0)), axis=1)
        chances = graph("Softmax", logs, axis=1)
        if found.kind == calibration.PAIRWISE:
            chances = graph("Min", graph("Max", chances, np.float64(calibration.LEAST)),
                            np.float64(1 - calibration.LEAST))
    elif found.kind == calibration.TEMPERATURE:
        below = graph("Sub", ranks, largest_of(graph, ranks))
        chances = graph("Softmax", graph("Mul", below, np.float64(found.slope)), axis=1)
    else:
        rest = graph("Log", graph("Add", graph("Exp", graph("Neg", graph("Abs", ranks))), np.float64(1)))
        chances = graph("Softmax", graph("Sub", graph("Min", ranks, np.float64(0)), rest), axis=1)
    return add_decided(graph, chances, places, k)


def add_decided(graph: Graph, chances: str, places: str, k: int) -> str:
    """The name of the chances of which that of the predicted class is the largest: see `calibration._decided`."""
    own_places = own_of(graph, places, k)
    own = row_sums(graph, graph("Where", own_places, chances, np.float64(0)))
    others = graph("Where", own_places, np.float64(0), chances)
    falling = graph("Concat", own, graph("TopK", others, np.array([k]), outputs=2, axis=1), axis=1)
    means = graph("Div", graph("CumSum", falling, np.array(1)), np.arange(1, k + 2, dtype=np.float64))
    level = largest_of(graph, means)
    # The next number. onnxruntime leaves a factor of 1 + EPS out, as it does all that are so near to 1.
    above = graph("Add", level, graph("Mul", level, np.float64(EPS)))
    decided = graph("Where", own_places, above, graph("Min", others, level))
    wrong = graph("Not", graph("Greater", own, largest_of(graph, others)))
    return graph("Where", wrong, decided, chances)
