"""LIBLINEAR's Python names over marginlinear: what was written for `liblinear.liblinearutil` runs after

    from marginlinear.liblinearutil import *

with marginlinear's methods, certificates and files, and an exception with its reason in place of a printed error.

What differs from LIBLINEAR:

- `-s` takes the names of marginlinear's methods and LIBLINEAR's numbers: 1 is the default, as there. All options of
  `margin-train --help` that are not about files are understood, and all are read strictly.
- `-e` is the tolerance of the certificate relative to the objective, 0.001 unless given. LIBLINEAR's bounds the
  largest violation of the dual's optimality conditions, 0.1 unless given: the same number means another thing.
- Training prints nothing; one that did not converge gives a `ConvergenceWarning`.
- Cross-validation is stratified, and its folds, like all else that is random, follow from `--seed`.
- `-wi` multiplies C for the rows of class i in every binary problem; LIBLINEAR's one-against-the-rest leaves the
  factor out where the class is among the rest.
- Labels are in ascending order in `get_labels`, the greater of two first; LIBLINEAR has them as they come.
- Prediction is one pass over all rows, on all cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from marginlinear import api, fitting, libsvm, modelfile, params, registry
from marginlinear.data.arrays import checked, shape_of
from marginlinear.liblinear import SOLVERS, STARTED
from marginlinear.libsvm.reader import LARGEST_INDEX
from marginlinear.model import Model, RegressionModel
from marginlinear.modelfile.text import is_one_class
from marginlinear.options import CLASS_WEIGHT, QUIET, CommandLine, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, BinaryIO, NoReturn, TextIO

    from marginlinear._typing import AnyArray, FloatArray, PathLike
    from marginlinear.params import Param

__all__ = ["csr_find_scale_param", "csr_scale", "evaluations", "feature_node", "gen_feature_nodearray", "load_model",
           "model", "parameter", "predict", "print_null", "problem", "save_model", "solver_names", "svm_read_problem",
           "toPyModel", "train"]

solver_names: Any = IntEnum(  # type: ignore[misc]  # its members follow from SOLVERS
    "solver_names", {name: number for number, name in SOLVERS.items()}, module=__name__)
solver_names.__doc__ = """LIBLINEAR's solvers: name and number. Only those that a method has are taken after `-s`."""

DEFAULT_SOLVER = "1"
AROUND = {p.name for p in params.AROUND}


class _Absent:
    """A name of LIBLINEAR's that is not here: to read or to set it is an AttributeError that says why."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        if owner is None:
            return self
        raise AttributeError(f"{self.name}: {self.why}")

    def __set__(self, owner: object, value: object) -> None:
        self.__get__(owner)


def _derived(get: Callable[[Any], Any], instead: str) -> Any:
    """A property that follows from another one, which is to be set in its place."""
    def refuse(owner: object, value: object) -> NoReturn:
        raise AttributeError(f"this follows from {instead}: set that")

    return property(get, refuse)


C_MEMORY = "there is no C library that needs it: x has the rows"


@dataclass
class feature_node:
    """A feature of a row: its number, counted from 1, and its value."""

    index: int = 0
    value: float = 0.0

    def __str__(self) -> str:
        return f"{self.index}:{self.value:g}"


class problem:
    """Training data.

    Parameters
    ----------
    y : array of shape (l,)
        Labels, numbers.
    x : list of l dicts (feature number from 1 -> value) or sequences of numbers or of feature_node; or array, sparse
        array or DataFrame of shape (l, n)
        float64 and float32 CSR and C-ordered dense arrays are used as they are.
    bias : float, default=-1
        Value of the bias feature, negative for none. `-B` goes before it.

    Attributes
    ----------
    l, n : int
        Rows, and features with the bias feature.
    y : array of shape (l,)
        May be replaced by other labels.
    x : array or sparse array of shape (l, n), without the bias feature
    bias : float

    Raises
    ------
    ValueError
        y or x is not of this kind, or their lengths differ.
    """

    def __init__(self, y: Any, x: Any, bias: float = -1) -> None:
        self.x = _table(x)
        self.y: AnyArray = _labels(y)
        self.l = len(self.y)
        if self.l != shape_of(self.x)[0]:
            raise ValueError(f"x has {shape_of(self.x)[0]} rows, y has {self.l} labels")
        self.bias: float = params.BIAS.check(bias)

    x_space = _Absent(C_MEMORY)
    rowptr = _Absent(C_MEMORY)

    @property
    def n(self) -> int:
        return int(shape_of(self.x)[1] + (self.bias >= 0))

    def set_bias(self, bias: float) -> None:
        """Give the bias feature another value, or with a negative one none."""
        self.bias = params.BIAS.check(bias)

    def copy(self) -> problem:
        """A problem over the same x, which is not copied; its y may be replaced without an effect on this one."""
        other = problem.__new__(problem)
        other.__dict__.update(self.__dict__)
        return other


class parameter:
    """How to train: an option string, taken apart by the declarations that `margin-train` reads.

    Parameters
    ----------
    options : str or list of str, default=None
        -s METHOD (default 1), -c -e -B -wi -v -C -q and whatever else `margin-train --help` lists for the method.

    Attributes
    ----------
    solver : str
        The method's name.
    solver_type : solver_names
        LIBLINEAR's number of it; may be set. AttributeError for a method that LIBLINEAR does not have.
    values : dict
        Parameters by their names in Python, those that were given.
    C, eps, bias, p, nu : float
        Of `values`, or the defaults; may be set. C, p and nu are None for a method without.
    class_weight : dict
        Label -> factor of C. nr_weight, weight_label and weight, lists, follow from it.
    flag_cross_validation, flag_find_parameters : bool
        Whether `train` cross-validates, or searches for the best C, in place of training.
    nr_fold : int
        Folds of either; 0 where none was given.
    flag_C_specified, flag_p_specified, flag_solver_specified : bool
        Whether C and p are among `values`, and whether the options have `-s`.
    quiet : bool
    regularize_bias : int
        0 where the options have `-R`; may be set.
    init_sol : sequence of float, default=None
        Weights to start from, as `w` of a model has them, of `-s 0`, 2 and 11; may be set. The certificate is asked for
        as without.
    w_recalc : bool
        Without effect: the weights are always those of the duals.
    print_func
        AttributeError, which says why it is not here.

    Raises
    ------
    ValueError
        Names the option, its argument and its domain.
    TypeError
        options are neither text nor a list.

    Examples
    --------
    >>> from marginlinear.liblinearutil import parameter
    >>> param = parameter("-s 3 -c 4 -w1 2")
    >>> param.solver, param.C, param.class_weight
    ('l1svc', 4.0, {1.0: 2.0})
    """

    __slots__ = ("class_weight", "flag_cross_validation", "flag_find_parameters", "flag_solver_specified", "init_sol",
                 "nr_fold", "quiet", "solver", "values", "w_recalc")

    def __init__(self, options: str | list[str] | None = None) -> None:
        self.parse_options("" if options is None else options)

    def __str__(self) -> str:
        names = [*self.__slots__, "C", "eps", "bias", "p", "nu", "regularize_bias"]
        return "\n".join(f"{name}: {getattr(self, name)}" for name in names)

    def set_to_default_values(self) -> None:
        """As `parameter()` has them."""
        self.parse_options("")

    def parse_options(self, options: str | list[str] | None) -> None:
        """Take all from these options; what they do not name gets its default. Raises as `parameter`."""
        known = (*params.RUN, *params.AROUND, *params.OWN)
        line = _command_line(options, (params.SOLVER, params.CROSS_VALIDATION, params.SEARCH, QUIET, CLASS_WEIGHT,
                                       *known))
        method = registry.get(_value(line, params.SOLVER) or DEFAULT_SOLVER)
        self.solver = method.name
        own = {p.name for p in method.takes}
        for p in params.OWN:
            if p.name not in own and line.meant(p, method.takes):
                raise ValueError(f"options: {line.flag(p)} is not a parameter of {method.name}: it takes "
                                 f"{', '.join(taken.flag for taken in method.takes)}")
        self.values: dict[str, Any] = {p.name: _value(line, p) for p in known if line.meant(p, method.takes)}
        self.flag_solver_specified = line.given(params.SOLVER)
        self.flag_cross_validation = line.given(params.CROSS_VALIDATION)
        self.flag_find_parameters = line.value(params.SEARCH)
        self.nr_fold = (_value(line, params.CROSS_VALIDATION)
                        or (params.FOLDS.default if self.flag_find_parameters else 0))
        self.quiet: bool = line.value(QUIET)
        self.init_sol: Sequence[float] | FloatArray | None = None
        self.w_recalc = False
        if self.flag_find_parameters and params.C.name not in {p.name for p in registry.get(self.solver).params}:
            raise ValueError(f"options: -C: {self.solver} has no C to search for")
        self.class_weight: dict[float, float] = dict(_class_weight(*words) for words in line.class_weights)
        self._check(self.solver, self.values)

    @staticmethod
    def _check(solver: str, values: Mapping[str, Any]) -> None:
        try:
            fitting.resolved(registry.get(solver), {n: value for n, value in values.items() if n not in AROUND})
        except TypeError as error:
            raise ValueError(str(error)) from None

    def _get(self, name: str) -> Any:
        method = registry.get(self.solver)
        return self.values.get(name, {p.name: p.default for p in (*method.run, *method.takes)}.get(name))

    def _set(self, name: str, value: Any) -> None:
        values = {**self.values, name: value}
        self._check(self.solver, values)
        self.values = values

    @property
    def solver_type(self) -> IntEnum:
        names = {method.name: solver_names(method.liblinear) for method in registry.methods().values()
                 if method.liblinear is not None}
        if self.solver not in names:
            raise AttributeError(f"solver_type: LIBLINEAR has no number for {self.solver}: see solver")
        return names[self.solver]

    @solver_type.setter
    def solver_type(self, number: int) -> None:
        solver = registry.get(str(int(number))).name
        self._check(solver, self.values)
        self.solver = solver

    C = property(lambda self: self._get("C"), lambda self, value: self._set("C", value))
    eps = property(lambda self: self._get("tol"), lambda self, value: self._set("tol", value))
    bias = property(lambda self: self._get("bias"), lambda self, value: self._set("bias", value))
    nr_weight = _derived(lambda self: len(self.class_weight), "class_weight")
    weight_label = _derived(lambda self: list(self.class_weight), "class_weight")
    weight = _derived(lambda self: list(self.class_weight.values()), "class_weight")
    flag_C_specified = _derived(lambda self: params.C.name in self.values, "C")
    p = property(lambda self: self._get("epsilon"), lambda self, value: self._set("epsilon", value))
    flag_p_specified = _derived(lambda self: params.EPSILON.name in self.values, "p")
    nu = property(lambda self: self._get("nu"), lambda self, value: self._set("nu", value))
    regularize_bias = property(lambda self: int(not self._get("free_bias")),
                               lambda self, value: self._set("free_bias", not value))
    print_func = _Absent("training prints nothing; marginlinear.train(callback=) is told how it goes")


class model:
    """A trained model with LIBLINEAR's questions; it can be pickled.

    Attributes
    ----------
    classifier : marginlinear.Model
        The model itself, with certificate and all; a RegressionModel too.
    nr_feature, nr_class : int
        As LIBLINEAR has it a regression has 2 classes, without labels.
    label : list
        As get_labels has them.
    w : float64 array of shape (nr_feature * columns,), one more row of columns with a bias feature
        Feature by feature, the weights in the order of the labels; one column for two classes unless trained jointly.
    bias : float
    param : parameter
        What it was trained with, class weights aside. ValueError for a model of LIBLINEAR's whose method is not here.
    """

    def __init__(self, classifier: Model) -> None:
        if classifier.multilabel:
            raise ValueError("the model is multi-label, which LIBLINEAR has none of: use marginlinear's own load_model "
                             "and predict")
        self.classifier = classifier

    @property
    def nr_feature(self) -> int:
        return int(self.classifier.n_features)

    @property
    def nr_class(self) -> int:
        return 2 if self.is_regression_model() else len(self.classifier.classes)

    @property
    def bias(self) -> float:
        return -1.0 if self.is_oneclass_model() else self.classifier.bias

    @property
    def label(self) -> list[Any]:
        return self.get_labels()

    @property
    def w(self) -> FloatArray:
        self._require_columns_of_labels()
        weights = self.classifier.coef.T if self.is_oneclass_model() else self.classifier.weights
        return np.ravel(weights[:, self._order()] if weights.shape[1] == self.nr_class else weights)

    @property
    def param(self) -> parameter:
        trained, found = self.classifier, parameter()
        # A file of LIBLINEAR's has its name for the method.
        found.solver = registry.get(solver_names.__members__.get(trained.solver, trained.solver)).name
        found.values = {name: value for name, value in trained.params.items() if value is not None}
        if not self.is_oneclass_model():
            found.values[params.BIAS.name] = self.bias
        return found

    @property
    def rho(self) -> float:
        if not self.is_oneclass_model():
            raise AttributeError("rho: only one-class models have one")
        return -float(self.classifier.intercept[0])

    @rho.setter
    def rho(self, value: object) -> None:
        raise AttributeError("rho: a model stays as it was trained")

    def get_nr_feature(self) -> int:
        """Features, the bias feature not counted."""
        return self.nr_feature

    def get_nr_class(self) -> int:
        """Labels, at least two."""
        return self.nr_class

    def get_labels(self) -> list[Any]:
        """The labels, as a list: of two, the one of the positive scores first; none of a regression or of one class."""
        if self.is_regression_model() or self.is_oneclass_model():
            return []
        return list(self.classifier.classes[self._order()].tolist())

    def get_decfun_coef(self, feat_idx: int, label_idx: int = 0) -> float:
        """Weight of the feature with this number, counted from 1, for the label at this place, counted from 0.

        0.0 for a feature above the last, as the model has no weight for it. Raises IndexError for any other number
        that is out of range, ValueError for a model that does not have weights for its labels.
        """
        if feat_idx < 1:
            raise IndexError(f"feat_idx = {feat_idx}: features count from 1")
        weights, _ = self._column(label_idx)
        return float(weights[feat_idx - 1]) if feat_idx <= self.nr_feature else 0.0

    def get_decfun_bias(self, label_idx: int = 0) -> float:
        """The constant part of the score: weight of the bias feature times its value. Raises as get_decfun_coef."""
        return self._column(label_idx)[1]

    def get_decfun_rho(self) -> float:
        """What scores are less of; ValueError for a model that is not of one class."""
        if not self.is_oneclass_model():
            raise ValueError("get_decfun_rho can be used only for a one-class SVM model")
        return self.rho

    def get_decfun(self, label_idx: int = 0) -> tuple[list[float], float]:
        """(list of the weights of all features, constant part). Raises as get_decfun_coef."""
        weights, constant = self._column(label_idx)
        return weights.tolist(), constant

    def is_probability_model(self) -> bool:
        """True for a model of `--probability`, and for LIBLINEAR's of logistic regression."""
        return self.classifier.calibration is not None

    def is_regression_model(self) -> bool:
        """Whether its scores are the predictions."""
        return self.classifier.classes is None

    def is_oneclass_model(self) -> bool:
        """Whether it tells where rows are, 1, from elsewhere, -1."""
        return is_one_class(self.classifier)

    def values_of(self, scores: FloatArray) -> FloatArray:
        """Scores as LIBLINEAR has them, shape (m, columns), for those of `classifier.decision_function`.

        One column for two classes, the score of the first label; else one a label, or one for each binary problem.
        """
        if scores.ndim == 1:
            return scores[:, None]
        return scores[:, 1:] if self.nr_class == 2 else scores

    def probabilities_of(self, scores: FloatArray) -> FloatArray:
        """Probabilities of the labels, shape (m, labels), for the same scores."""
        return self.classifier.proba_of(scores)[:, self._order()]

    def _order(self) -> slice:
        """Places of the labels in `classifier.classes`."""
        return slice(None, None, -1) if self.nr_class == 2 else slice(None)

    def _column(self, label_idx: int) -> tuple[FloatArray, float]:
        """(weights, constant part) of the score for a label."""
        if not 0 <= label_idx < self.nr_class:
            raise IndexError(f"label_idx = {label_idx}: there are {self.nr_class} labels, counted from 0")
        self._require_columns_of_labels()
        coef, intercept = self.classifier.coef, self.classifier.intercept
        if self.nr_class == 2 and len(coef) == 1:
            sign = -1.0 if label_idx and not (self.is_regression_model() or self.is_oneclass_model()) else 1.0
            return sign * coef[0], sign * float(intercept[0])
        at = range(self.nr_class)[self._order()][label_idx]
        return coef[at], float(intercept[at])

    def _require_columns_of_labels(self) -> None:
        if hasattr(self.classifier, "kernel"):
            raise ValueError("a kernel model has no weights of features: see classifier.dual_coef")
        if self.classifier.voted:
            raise ValueError("the scores are those of binary problems, not of labels: see classifier.codes, and "
                             "classifier.coef for their weights")


def print_null(s: object) -> None:
    """Print nothing."""


def __getattr__(name: str) -> NoReturn:
    """Why the one name of LIBLINEAR's that has no counterpart is not here."""
    if name == "liblinear":
        raise ImportError("liblinear, the C library itself, is not here: use train, predict and a model's classifier")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def toPyModel(model_ptr: object) -> model:
    """The model with LIBLINEAR's questions of a marginlinear.Model; a `model` is returned as it is.

    Raises TypeError for anything else.
    """
    if isinstance(model_ptr, model):
        return model_ptr
    if not isinstance(model_ptr, Model):
        raise TypeError(f"a {type(model_ptr).__name__} is not a model")
    return model(model_ptr)


def gen_feature_nodearray(xi: Any, feature_max: int | None = None) -> tuple[list[feature_node], int]:
    """A row as (list of feature_node, largest feature number), zeros left out; such a list is a row for `problem`.

    Parameters
    ----------
    xi : dict (feature number from 1 -> value), sequence of numbers, or pair of arrays (feature numbers from 0, values)
    feature_max : int, optional
        Features above are left out.

    Returns
    -------
    nodes : list of feature_node
        Ascending, without the ends of -1 that LIBLINEAR's C code needs.
    max_idx : int
        0 where there is none.

    Raises
    ------
    TypeError, ValueError
        xi is not a row of this kind.

    Examples
    --------
    >>> from marginlinear.liblinearutil import gen_feature_nodearray
    >>> nodes, largest = gen_feature_nodearray({1: 1, 3: 0.5})
    >>> print(*nodes, "of", largest)
    1:1 3:0.5 of 3
    """
    if isinstance(xi, tuple) and len(xi) == 2 and all(isinstance(part, np.ndarray) for part in xi):
        xi = dict(zip((xi[0] + 1).tolist(), xi[1].tolist(), strict=True))
    row = _sparse_rows([xi])
    kept = [(number, value) for number, value in zip((row.indices + 1).tolist(), row.data.tolist(), strict=True)
            if value and (feature_max is None or number <= feature_max)]
    return [feature_node(*pair) for pair in kept], max((number for number, _ in kept), default=0)


def svm_read_problem(data_source: PathLike | BinaryIO | TextIO, return_scipy: bool = False) -> tuple[Any, Any]:
    """Read a file in LIBSVM format.

    Parameters
    ----------
    data_source : str, path or file, of bytes or of text
        As `marginlinear.load_libsvm` takes it: compressed files, pipes and `-` too. A file is read from where it
        stands.
    return_scipy : bool, default=False

    Returns
    -------
    y : list of float, or with return_scipy float64 array of shape (l,)
    x : list of l dicts (feature number from 1 -> value), or with return_scipy csr_matrix of shape (l, n)

    Raises
    ------
    DataError
        With line and column of what is wrong, such as a feature number of 0.
    OSError
        The file cannot be read.
    """
    source: Any = data_source
    if hasattr(source, "read") and isinstance(source.read(0), str):
        source = _Encoded(source)
    X, y = libsvm.load_libsvm(source, text_labels=False, multilabel=False)
    y = y.astype(np.float64)
    if return_scipy:
        from scipy.sparse import csr_matrix

        X = csr_matrix(X)
        X.eliminate_zeros()
        return y, X
    pairs = zip((X.indices + 1).tolist(), X.data.tolist(), strict=True)
    return y.tolist(), [dict(next(pairs) for _ in range(length)) for length in np.diff(X.indptr).tolist()]


class _Encoded:
    """A text file as one of bytes."""

    def __init__(self, text: TextIO) -> None:
        self.text, self.name, self.rest = text, getattr(text, "name", None), b""

    def read(self, size: int) -> bytes:
        self.rest = self.rest or self.text.read(size).encode()
        part, self.rest = self.rest[:size], self.rest[size:]
        return part


def train(arg1: Any, arg2: Any = None, arg3: Any = None) -> Any:
    """train(y, x [, options]), train(prob [, options]) or train(prob, param).

    Parameters
    ----------
    y, x
        As `problem` takes them.
    prob : problem
    options : str or list of str
    param : parameter
        Options, or what they were made into; see `parameter`.

    Returns
    -------
    model
        With `-v` a float in its place: the accuracy of the cross-validation in per cent, of a regression its mean
        squared error, which is printed too. With `-C` a tuple (best C, -1.0, its accuracy in cross-validation from 0 to
        1), printed too, by 5 folds or those of `-v`; of a regression (best C, best p, mean squared error). The values
        are those that `marginlinear.search` tries: for `-s 0`, 2 and 11 LIBLINEAR's, which begin at `-c` and `-p`.

    Raises
    ------
    ValueError, TypeError
        Name the option, or what is wrong with y or x.

    Warns
    -----
    ConvergenceWarning
        The certificate did not reach the tolerance.

    Examples
    --------
    >>> from marginlinear.liblinearutil import predict, train
    >>> m = train([1, -1, 1], [{1: 1, 3: 1}, {1: -1, 3: -1}, {2: 1}], "-s 3 -c 4")
    >>> m.get_labels()
    [1, -1]
    >>> predict([], [{3: 2}, {2: -1}], m)[0]
    [1.0, -1.0]
    """
    if isinstance(arg1, problem):
        prob, options = arg1, arg2
        if arg3 is not None:
            raise TypeError("train(prob, options): a third argument is too many")
    elif arg2 is None:
        raise TypeError("train(y, x, options): x is missing, or give a problem")
    else:
        prob, options = problem(arg1, arg2), arg3
    param = options if isinstance(options, parameter) else parameter("" if options is None else options)
    values = {**({} if registry.get(param.solver).one_class else {"bias": prob.bias}), **param.values}
    if registry.get(param.solver).one_class and (param.flag_cross_validation or param.flag_find_parameters):
        raise ValueError(f"options: -v and -C measure labels: {param.solver} learns without")
    if param.flag_find_parameters:
        return _find_C(prob, param, values)
    if param.flag_cross_validation:
        return _cross_validation(prob, param, values)
    y = _told(param, prob.y)
    return model(api.train(prob.x, y, solver=param.solver, class_weight=param.class_weight,
                           start=_start(prob, param, y, values), **values))


def predict(y: Any, x: Any, m: model,
            options: str | list[str] = "") -> tuple[list[float], tuple[float, float, float], list[list[float]]]:
    """Labels, metrics and scores of rows.

    Parameters
    ----------
    y : array of shape (l,)
        True labels; empty where they are not known.
    x
        l rows, as `problem` takes them. Features that the model does not have are left out.
    m : model
    options : str or list of str, default=""
        `-q`: print nothing. `-b 1`: probabilities in place of scores, for models of `--probability` and
        LIBLINEAR's of logistic regression.

    Returns
    -------
    labels : list of float
    metrics : (float, float, float)
        What `evaluations` returns; all nan without y.
    values : list of list of float
        For each row its scores in the order of `m.get_labels()`; for two classes only that of the first label.

    Raises
    ------
    ValueError, TypeError
        Name the option, or what is wrong with y, x or m.
    """
    classifier = _classifier(m)
    if not m.is_regression_model() and classifier.classes.dtype.kind == "U":
        raise TypeError("m has words for labels, which LIBLINEAR does not know: use m.classifier.predict")
    line = _command_line(options, (params.PREDICTED_PROBABILITY, QUIET))
    with_probabilities = _value(line, params.PREDICTED_PROBABILITY) != 0
    if with_probabilities and not m.is_probability_model():
        raise TypeError("probability output is only supported for logistic regression, and for models that are trained "
                        "with --probability")
    y, x = _labels(y), _table(x)
    if len(y) not in (0, shape_of(x)[0]):
        raise ValueError(f"x has {shape_of(x)[0]} rows, y has {len(y)} labels")
    scores = classifier.decide(x)
    labels = scores if m.is_regression_model() else classifier.labels_of(scores).astype(np.float64)
    values = m.probabilities_of(scores) if with_probabilities else m.values_of(scores)
    metrics = float("nan"), float("nan"), float("nan")
    if len(y):
        metrics = evaluations(y, labels)
        if not line.value(QUIET) and m.is_regression_model():
            print(f"Mean squared error = {metrics[1]:g} (regression)")
            print(f"Squared correlation coefficient = {metrics[2]:g} (regression)")
        elif not line.value(QUIET):
            print(f"Accuracy = {metrics[0]:g}% ({np.count_nonzero(y == labels)}/{len(y)}) (classification)")
    return labels.tolist(), metrics, values.tolist()


def save_model(model_file_name: PathLike, model: object) -> None:
    """Write `model` to a file that LIBLINEAR reads too. Raises OSError or ValueError as `marginlinear.save_model`."""
    modelfile.save_model(_classifier(model), model_file_name)


def load_model(model_file_name: PathLike) -> model:
    """Read a model file of marginlinear or LIBLINEAR. Raises OSError or DataError as `marginlinear.load_model`, and
    ValueError for a multi-label one."""
    return model(modelfile.load_model(model_file_name))


def evaluations(ty: Any, pv: Any, useScipy: bool = True) -> tuple[float, float, float]:
    """Compare predicted with true values.

    Parameters
    ----------
    ty, pv : array of shape (l,)
        True and predicted values, numbers.
    useScipy : bool
        Without effect.

    Returns
    -------
    (ACC, MSE, SCC) : (float, float, float)
        Accuracy in per cent, mean squared error, and squared correlation coefficient, nan where one of the two does
        not vary.

    Raises
    ------
    ValueError
        The lengths differ, or are 0.

    Examples
    --------
    >>> from marginlinear.liblinearutil import evaluations
    >>> evaluations([2, 4], [2, 3])
    (50.0, 0.5, 1.0)
    """
    ty, pv = np.asarray(ty, dtype=np.float64), np.asarray(pv, dtype=np.float64)
    if ty.shape != pv.shape or ty.ndim != 1 or not len(ty):
        raise ValueError(f"ty has shape {ty.shape}, pv {pv.shape}: as many values, at least one, are needed in both")
    l = len(ty)
    above = (l * (pv @ ty) - pv.sum() * ty.sum()) ** 2
    below = (l * (pv @ pv) - pv.sum() ** 2) * (l * (ty @ ty) - ty.sum() ** 2)
    return float(100 * (ty == pv).mean()), float(((ty - pv) ** 2).mean()), float(above / below if below else np.nan)


def csr_find_scale_param(x: Any, lower: float = -1, upper: float = 1) -> dict[str, FloatArray]:
    """The linear maps that take each feature to the range from `lower` to `upper`.

    Parameters
    ----------
    x : sparse array of shape (l, n)
    lower, upper : float
        With a lower of 0, features that are not negative stay sparse.

    Returns
    -------
    dict
        `coef` and `offset`, float64 arrays of shape (n,): a value v becomes coef v + offset. Both are 0 for a feature
        that does not vary.

    Raises
    ------
    TypeError
        x is not sparse.
    ValueError
        lower is not below upper, or x has no rows.
    """
    x = _sparse(x)
    if not lower < upper:
        raise ValueError(f"lower = {lower} is not below upper = {upper}")
    if not x.shape[0]:
        raise ValueError("x has no rows")
    least, greatest = (np.ravel(end(axis=0).toarray()).astype(np.float64) for end in (x.tocsc().min, x.tocsc().max))
    coef = (greatest - least) / (upper - lower)
    varies = coef != 0
    coef[varies] = 1 / coef[varies]
    return {"coef": coef, "offset": np.where(varies, lower - least * coef, 0.0)}


def csr_scale(x: Any, scale_param: Mapping[str, FloatArray]) -> Any:
    """Scaled rows, as csr_matrix of shape (l, n) of float64.

    Parameters
    ----------
    x : sparse array of shape (l, n)
    scale_param : dict
        Of csr_find_scale_param, for the same n features.

    Raises
    ------
    TypeError
        x is not sparse.
    ValueError
        scale_param is for another number of features: read both files with as many.
    """
    from scipy.sparse import csr_matrix, diags

    x = _sparse(x)
    coef, offset = scale_param["coef"], scale_param["offset"]
    if not len(coef) == len(offset) == x.shape[1]:
        raise ValueError(f"x has {x.shape[1]} features, scale_param {len(coef)}: read both with the same n_features")
    scaled = csr_matrix(x.tocsr() @ diags(coef))
    if offset.any():
        # A feature with an offset has a value in every row.
        scaled = scaled + csr_matrix(np.ones((x.shape[0], 1))) @ csr_matrix(offset)
    return scaled


def _told(param: parameter, y: Any) -> AnyArray:
    """y as `train` takes it for the method: labels, or targets."""
    return np.asarray(y, dtype=np.float64) if registry.get(param.solver).regression else _labels(y)


def _start(prob: problem, param: parameter, y: AnyArray, values: Mapping[str, Any]) -> Model | None:
    """The model that `init_sol` is the `w` of; None without."""
    if param.init_sol is None:
        return None
    method = registry.get(param.solver)
    if not STARTED & set(method.numbers):
        raise ValueError("Initial-solution specification supported only for solvers "
                         f"{', '.join(SOLVERS[number] for number in sorted(STARTED))}: init_sol is given for "
                         f"{param.solver}")
    classes = None if method.regression else np.unique(y)
    columns = 1 if classes is None or len(classes) == 2 else len(classes)
    bias = 1.0 if values.get(params.FREE_BIAS.name) and prob.bias < 0 else values[params.BIAS.name]
    n, weights = shape_of(prob.x)[1] + (bias >= 0), np.asarray(param.init_sol, dtype=np.float64)
    if weights.shape != (n * columns,):
        raise ValueError(f"init_sol has shape {weights.shape}: {n * columns} numbers are needed, as many as w of the "
                         "model has")
    made = RegressionModel if classes is None else Model
    return made(weights.reshape(n, columns), classes, bias=bias)


def _cross_validation(prob: problem, param: parameter, values: Mapping[str, Any]) -> float:
    """Accuracy in per cent, or mean squared error."""
    from marginlinear.selection import cross_validate

    y = _told(param, prob.y)
    found = cross_validate(prob.x, y, solver=param.solver, folds=param.nr_fold, class_weight=param.class_weight,
                           **values)
    if registry.get(param.solver).regression:
        print(f"Cross Validation Mean squared error = {found.score:g}")
        print(f"Cross Validation Squared correlation coefficient = {evaluations(y, found.predictions)[2]:g}")
        return found.score
    print(f"Cross Validation Accuracy = {100 * found.score:g}%")
    return 100 * found.score


def _find_C(prob: problem, param: parameter, values: Mapping[str, Any]) -> tuple[float, float, float]:
    """(best C, -1.0, accuracy from 0 to 1), or (best C, best p, mean squared error)."""
    from marginlinear.selection import search

    found = search(prob.x, _told(param, prob.y), solver=param.solver, refit=False, folds=param.nr_fold,
                   class_weight=param.class_weight, **values)
    best = found.best_params[params.C.name]
    if registry.get(param.solver).regression:
        p = found.best_params.get(params.EPSILON.name, values.get(params.EPSILON.name, -1.0))
        print(f"Best C = {best:g} Best p = {p:g}  CV MSE = {found.best_score:g}")
        return best, p, found.best_score
    print(f"Best C = {best:g}  CV accuracy = {100 * found.best_score:g}%")
    return best, -1.0, found.best_score


def _classifier(m: object) -> Model:
    if not isinstance(m, model):
        raise TypeError(f"a {type(m).__name__} is not a model of liblinearutil's train or load_model")
    return m.classifier


def _command_line(options: object, declared: Sequence[Param]) -> CommandLine:
    """The options as a CommandLine without files."""
    if not isinstance(options, (str, list)):
        raise TypeError(f"options are a {type(options).__name__}: text or a list of words is needed")
    try:
        line = CommandLine(options.split() if isinstance(options, str) else options, declared)
    except UsageError as error:
        raise ValueError(f"options: {error}") from None
    if line.files:
        raise ValueError(f"options: {line.files[0]!r} is not an option")
    return line


def _value(line: CommandLine, param: Param) -> Any:
    try:
        return line.value(param)
    except UsageError as error:
        raise ValueError(f"options: {error}") from None


def _class_weight(label: str, text: str) -> tuple[float, float]:
    """(label, factor) of the words of `-wLABEL FACTOR`."""
    try:
        return float(label), params.FACTOR.parse(text)
    except ValueError:
        raise ValueError(f"options: -w{label} {text}: give a number as label and a {params.FACTOR.allowed}") from None


def _labels(y: Any) -> Any:
    """Labels as an array: of int64 where all are whole numbers, so that they are equal to those of a file."""
    y = np.asarray(y)
    if y.ndim != 1 or y.dtype.kind not in "biuf":
        raise ValueError(f"y has shape {y.shape} and type {y.dtype}: one number a row is needed")
    whole = np.isfinite(y).all() and (y == np.trunc(y)).all() and (np.abs(y) < 2**53).all()
    return y.astype(np.int64) if whole else y


def _table(x: Any) -> Any:
    """x with its rows as an array or a sparse array."""
    if not isinstance(x, (list, tuple)):
        x = x if hasattr(x, "tocsr") else np.asarray(x)
        shape_of(x)  # refuses what is not a table
        return x
    lengths = {len(row) if _is_numbers(row) else None for row in x}
    if len(lengths) == 1 and None not in lengths:
        return np.array(x, dtype=np.float64)
    return _sparse_rows(x)


def _sparse_rows(x: Any) -> Any:
    """Rows, each a dict, a sequence of numbers or one of feature_node, as a csr_array with ascending features."""
    from scipy.sparse import csr_array

    rows = [_numbered(row, number) for number, row in enumerate(x)]
    ends = np.cumsum([0, *map(len, rows)])
    numbers = np.fromiter(chain.from_iterable(rows), np.float64, ends[-1])
    values = np.fromiter(chain.from_iterable(row.values() for row in rows), np.float64, ends[-1])
    wrong = np.flatnonzero(~((numbers >= 1) & (numbers == np.trunc(numbers)) & (numbers <= LARGEST_INDEX)))
    if len(wrong):
        row = np.searchsorted(ends, wrong[0], side="right") - 1
        raise ValueError(f"x[{row}]: feature number {numbers[wrong[0]]:g}: an integer from 1 to "
                         f"{LARGEST_INDEX} is needed")
    width = int(numbers.max(initial=0))
    found = csr_array((values, numbers.astype(np.int64) - 1, ends), shape=(len(rows), width))
    found.sort_indices()
    return found


def _numbered(row: Any, place: int) -> Mapping[int, float]:
    """A row as a dict, feature number -> value."""
    if isinstance(row, dict):
        return row
    if _is_numbers(row):
        return dict(enumerate(row, 1))
    if not isinstance(row, (list, tuple)):
        raise TypeError(f"x[{place}] is a {type(row).__name__}: a dict or a sequence of numbers is needed")
    found = {node.index: node.value for node in row}
    if len(found) < len(row):
        raise ValueError(f"x[{place}]: a feature number comes twice")
    return found


def _is_numbers(row: Any) -> bool:
    return isinstance(row, (list, tuple, np.ndarray)) and not (len(row) and isinstance(row[0], feature_node))


def _sparse(x: Any) -> Any:
    if not hasattr(x, "tocsr"):
        raise TypeError(f"x is a {type(x).__name__}: a sparse array is needed, such as svm_read_problem(path, "
                        "return_scipy=True) returns")
    return checked(x)
