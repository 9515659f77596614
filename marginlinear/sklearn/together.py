"""The estimators made known to other libraries: what these do for scikit-learn's own classes they then do for ours.

    from marginlinear.sklearn.together import register

    register("skl2onnx")
    register("eli5")

`TRUSTED` lists the types that a fitted estimator is made of, for `skops.io.load(path, trusted=TRUSTED)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import ClassifierMixin, OutlierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from marginlinear import sklearn as estimators
from marginlinear._typing import AnyArray
from marginlinear.calibration import Calibration
from marginlinear.data.arrays import CSR
from marginlinear.data.kernels import Kernel
from marginlinear.data.labels import labels_of
from marginlinear.data.scaling import Scaling
from marginlinear.export.onnx import (
    EPS,
    OPSET,
    Graph,
    add_places,
    add_probabilities,
    add_scores,
    largest_of,
    own_of,
    row_sums,
)
from marginlinear.model import KernelModel, KernelRegressionModel, Model, RegressionModel
from marginlinear.params import Param
from marginlinear.problem import Info
from marginlinear.sklearn.base import MarginEstimator

__all__ = ["TRUSTED", "register"]

LIBRARY = Param("library", str, None, "who is told of the estimators", choices=("skl2onnx", "eli5"))
# Of skl2onnx's classifiers; nocl: labels are the places of the classes.
OPTIONS = {"zipmap": [True, False, "columns"], "raw_scores": [False, True], "nocl": [False, True],
           "output_class_labels": [False, True]}
OF_PROBLEMS = ("the model has weights of pairs of classes, or of output codes, and none of the classes: explain one of "
               'multiclass = "ovr"')


def classes_with(mixin: Any) -> list[type[Any]]:
    """The estimators that are of a kind."""
    found = [getattr(estimators, name) for name in estimators.__all__]
    return [thing for thing in found if isinstance(thing, type) and issubclass(thing, mixin)
            and issubclass(thing, MarginEstimator)]


# What skops finds in fitted estimators and does not know.
TRUSTED = [f"{thing.__module__}.{thing.__name__}" for thing in (
    *sorted(classes_with(MarginEstimator), key=lambda cls: cls.__name__), Model, KernelModel,
    RegressionModel, KernelRegressionModel, Kernel, Scaling, Calibration, Info, CSR, csr_array, np.dtype)]


def register(library: Literal["skl2onnx", "eli5"]) -> None:
    """Make all estimators of marginlinear.sklearn known to a library; once more does no harm.

    skl2onnx: `to_onnx` and `convert_sklearn` then convert them, alone and within pipelines and searches. Scores are
    computed in float64, and given in the type of the input. The second output of a classifier has probabilities where
    `predict_proba` has them, unless the option `raw_scores` is True, else what `decision_function` gives, a column a
    class: of two the score's negative and the score, of pairs of classes the votes with their sums. Labels are those of
    `predict`; bools are 0 and 1. With an input of DoubleTensorType the option `zipmap` has to be False, as for
    skl2onnx's own.

    eli5: `explain_weights` and `explain_prediction` explain linear models, but for those of multiclass = "ovo" and
    "ecoc", and say so of others.

    Parameters
    ----------
    library : {"skl2onnx", "eli5"}

    Raises
    ------
    ImportError
        Where it is not installed.
    ValueError
        For another one.
    """
    {"skl2onnx": register_with_skl2onnx, "eli5": register_with_eli5}[LIBRARY.check(library)]()


# ---- skl2onnx


def register_with_skl2onnx() -> None:
    from skl2onnx import update_registered_converter

    for cls in classes_with(ClassifierMixin):
        update_registered_converter(cls, f"Marginlinear{cls.__name__}", set_classifier_types, convert_classifier,
                                    options=OPTIONS)
    for mixin, set_types, convert in ((RegressorMixin, set_regressor_types, convert_regressor),
                                      (OutlierMixin, set_outlier_types, convert_outliers)):
        for cls in classes_with(mixin):
            update_registered_converter(cls, f"Marginlinear{cls.__name__}", set_types, convert)


def set_classifier_types(operator: Any) -> None:
    from skl2onnx.common import data_types

    classes = labels_as_told(operator.scope_inst, operator.raw_operator)
    rows = operator.inputs[0].get_first_dimension()
    kind = {"U": data_types.StringTensorType, "f": data_types.DoubleTensorType}.get(
        classes.dtype.kind, data_types.Int64TensorType)
    operator.outputs[0].set_type(kind([rows]))
    operator.outputs[1].type.shape = [rows, len(classes)]


def labels_as_told(scope: Any, estimator: Any) -> AnyArray:
    """The classes as int64, float64 or str."""
    from skl2onnx.common.utils_classifier import get_label_classes

    labels = labels_of(get_label_classes(scope, estimator))
    return labels.astype({"U": np.str_, "f": np.float64}.get(labels.dtype.kind, np.int64))


def set_regressor_types(operator: Any) -> None:
    operator.outputs[0].type.shape = [operator.inputs[0].get_first_dimension(), 1]


def set_outlier_types(operator: Any) -> None:
    from skl2onnx.common.data_types import Int64TensorType

    rows = operator.inputs[0].get_first_dimension()
    operator.outputs[0].set_type(Int64TensorType([rows, 1]))
    operator.outputs[1].type.shape = [rows, 1]


def convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    estimator, graph = operator.raw_operator, ContainerGraph(scope, container)
    model, raw = estimator.model_, container.get_options(estimator, {"raw_scores": False})["raw_scores"]
    scores = graph.scores(operator)
    ranks, places = add_places(graph, model, scores)
    found = add_decision(graph, model, scores, ranks)
    if model.voted and getattr(estimator, "break_ties", False):
        places = graph("ArgMax", found, axis=1, keepdims=0)
    elif model.voted and not hasattr(estimator, "break_ties"):
        found = add_raised(graph, found, places, len(model.classes))
    if model.calibration is not None and hasattr(estimator, "predict_proba") and not raw:
        found = add_probabilities(graph, model, ranks, places)
    graph.give(graph("Gather", labels_as_told(scope, estimator), places), operator.outputs[0])
    graph.give(graph.cast(found, operator.outputs[1].type), operator.outputs[1])


def convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    graph = ContainerGraph(scope, container)
    graph.give(graph.cast(graph.scores(operator), operator.outputs[0].type), operator.outputs[0])


def convert_outliers(scope: Any, operator: Any, container: Any) -> None:
    graph = ContainerGraph(scope, container)
    scores = graph.scores(operator)
    # A score of 0 is inside to scikit-learn's checks, and to OneClassDetector, and outside to LIBSVM.
    inside = "GreaterOrEqual" if isinstance(operator.raw_operator, estimators.OneClassDetector) else "Greater"
    label = graph("Where", graph(inside, scores, np.float64(0)), np.int64(1), np.int64(-1))
    graph.give(label, operator.outputs[0])
    graph.give(graph.cast(scores, operator.outputs[1].type), operator.outputs[1])


def add_decision(graph: Graph, model: Any, scores: str, ranks: str) -> str:
    """The name of what speaks for each class, (m, n_classes): see `Model.ordered_ranks`."""
    if len(model.classes) == 2:
        score = graph("MatMul", ranks, np.array([[-1.0], [1.0]])) if model.voted or model.joint else scores
        return graph("Concat", graph("Neg", score), score, axis=1)
    if not model.voted:
        return scores
    sums = graph("MatMul", scores, model.codes.T.astype(np.float64))
    return graph("Add", ranks, graph("Div", sums, graph("Mul", graph("Add", graph("Abs", sums), np.float64(1)),
                                                        np.float64(3))))


def add_raised(graph: Graph, found: str, places: str, k: int) -> str:
    """The same where that of the predicted class is the largest."""
    own, largest = own_of(graph, places, k), largest_of(graph, found)
    there = row_sums(graph, graph("Where", own, found, np.float64(0)))
    above = graph("Add", largest, graph("Mul", graph("Abs", largest), np.float64(EPS)))
    return graph("Where", graph("And", own, graph("Less", there, largest)), above, found)


class ContainerGraph(Graph):
    """A Graph that is part of one that skl2onnx makes."""

    def __init__(self, scope: Any, container: Any) -> None:
        super().__init__()
        if container.target_opset_any_domain("") < OPSET:
            raise ValueError(f"target_opset = {container.target_opset_any_domain('')}: the graph needs {OPSET} or more")
        self._scope, self._container = scope, container

    def name(self, about: str) -> str:
        found: str = self._scope.get_unique_variable_name(about)
        return found

    def add_node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str],
                 attributes: Mapping[str, Any]) -> None:
        self._container.add_node(operator, inputs, outputs, name=self._scope.get_unique_operator_name(operator),
                                 **attributes)

    def add_constant(self, tensor: Any) -> None:
        self._container.initializers.append(tensor)

    def scores(self, operator: Any) -> str:
        """The name of the scores of an estimator's model."""
        estimator = operator.raw_operator
        if callable(getattr(estimator, "kernel", None)):
            raise ValueError(f"{type(estimator).__name__}: kernel is a Python function, which a graph does not hold: "
                             "take one by its name")
        rows = self("Cast", operator.inputs[0].full_name, to=self._onnx.TensorProto.DOUBLE)
        return add_scores(self, estimator.model_, rows)

    def cast(self, value: str, kind: Any) -> str:
        from skl2onnx.common.data_types import guess_proto_type

        return self("Cast", value, to=guess_proto_type(kind))

    def give(self, value: str, output: Any) -> None:
        self.add_node("Identity", [value], [output.full_name], {})


# ---- eli5


def register_with_eli5() -> None:
    from eli5.sklearn import explain_prediction, explain_weights

    kinds = {ClassifierMixin: (explain_weights.explain_linear_classifier_weights,
                               explain_prediction.explain_prediction_linear_classifier),
             RegressorMixin: (explain_weights.explain_linear_regressor_weights,
                              explain_prediction.explain_prediction_linear_regressor)}
    for mixin, (of_weights, of_prediction) in kinds.items():
        for cls in classes_with(mixin):
            explain_weights.register(cls)(explained(of_weights))
            explain_prediction.register(cls)(explained(of_prediction))


def explained(explain: Callable[..., Any]) -> Callable[..., Any]:
    """eli5's function, for what it can explain; else its own words are left to say why not."""
    def explain_ours(estimator: Any, *args: Any, **options: Any) -> Any:
        from eli5.base import Explanation

        check_is_fitted(estimator)
        if not hasattr(estimator, "coef_"):
            fault = "a kernel model has no weights of features"
        elif estimator.model_.classes is not None and estimator.model_.voted:
            fault = OF_PROBLEMS
        else:
            return explain(estimator, *args, **options)
        return Explanation(estimator=repr(estimator), error=fault)

    return explain_ours
