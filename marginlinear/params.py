"""Every parameter, declared once: name, flag, type, default, domain, help.

The command line, `train`, the model file and the documentation all read these declarations. No NumPy here:
`margin-train --help` reads this module.
"""

from __future__ import annotations

import builtins
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from marginlinear._typing import Parameters

Function = TypeVar("Function", bound="Callable[..., Any] | None")

INFINITE = math.inf
# After a number: times the sum of the rows' weights, and C.
RELATIVE = "mC"


class Param(NamedTuple):
    """One parameter of a method or of a run.

    Attributes
    ----------
    name : str
        Keyword in Python. The long option is `--name` with `-` for `_`, a trailing `_` dropped.
    type : type
        int, float, bool or str. A bool is a flag without argument on the command line.
    default : object
        None means "not given".
    help : str
    domain : str
        Interval such as "(0, inf)" for numbers; "" for no limit.
    choices : tuple of str
        The admissible words of a str.
    letter : str
        LIBLINEAR's or LIBSVM's one-letter option, without the dash; "" for none.
    metavar : str
    replaces : str
        Name of the parameter in whose place this one is given; both at once are an error.
    numbered : bool
        A word of `choices` may be given by its place there.
    python : tuple
        What Python takes beyond `choices`: words, and `callable` for any function.
    needs : tuple of (str, tuple)
        Name of another parameter, and its values that make use of this one; with any other, giving this one is an
        error. Empty for a parameter that is always of use.
    grid : str
        Values that a search tries unless it is told others, as in the text of `margin-train --grid`; "" for none.
    relative : bool
        Whether a text such as 0.05mC is taken too: that number times m C, m the sum of the rows' weights.
    brief : str
        The line of `--help`, where the first clause of `help` is too long for one.
    hint : str
        What a refusal adds to the domain.
    """

    name: str
    type: builtins.type[Any]
    default: Any
    help: str
    domain: str = ""
    choices: tuple[str, ...] = ()
    letter: str = ""
    metavar: str = ""
    replaces: str = ""
    numbered: bool = False
    python: tuple[Any, ...] = ()
    needs: tuple[Any, ...] = ()
    grid: str = ""
    relative: bool = False
    brief: str = ""
    hint: str = ""

    @property
    def flag(self) -> str:
        return "--" + self.name.rstrip("_").replace("_", "-")

    @property
    def endless(self) -> bool:
        """Whether a grid could go on at both ends: what is best at an end of it may be better beyond."""
        return self.domain == "(0, inf)"

    @property
    def allowed(self) -> str:
        """The domain in words."""
        if self.choices:
            numbers = f", or 0 to {len(self.choices) - 1}" if self.numbered else ""
            return " | ".join(self.choices) + numbers
        kind = {int: "integer", float: "number"}.get(self.type, "")
        unit = f", which {RELATIVE} after it multiplies by rows and C" if self.relative else ""
        return f"{kind} in {self.domain}{unit}" if self.domain else kind

    def check(self, value: Any) -> Any:
        """Return `value` as `self.type`, one in units of m C as text; ValueError names the parameter, the value and the
        domain."""
        if self.type is str:
            word = self._word(value)
            if word is None:
                words = (", or a function" if word is callable else f" | {word}" for word in self.python)
                raise self._refusal(value, "".join(words))
            return word
        if self.type is bool:
            if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b":
                return bool(value)
            raise self._refusal(value)
        if self.relative and is_relative(value):
            return self.parse(value)
        if isinstance(value, (bool, str, bytes)):
            raise self._refusal(value)
        try:
            number = self.type(value)
            # No integer may be too large for a float either: they are multiplied by floats.
            whole = not math.isnan(number) and (self.type is float or number == value)
        except (TypeError, ValueError, OverflowError):
            raise self._refusal(value) from None
        if not whole or not self._inside(number):
            raise self._refusal(value)
        return number

    def parse(self, text: str) -> Any:
        """The value that the command line's `text` stands for; ValueError as in `check`."""
        if self.type is str:
            word = self._word(text)
            if word is None or word in self.python:
                raise self._refusal(text)
            return word
        number, unit = (text.removesuffix(RELATIVE), RELATIVE) if self.relative and is_relative(text) else (text, "")
        try:
            if "_" in text:
                raise ValueError
            value = self.type(number)
        except ValueError:
            raise self._refusal(text) from None
        value = self.check(value)
        return repr(value).removesuffix(".0") + unit if unit else value

    def _word(self, value: Any) -> Any:
        """The word that `value` means; None for no such word."""
        if not self.choices or (isinstance(value, str) and value in (*self.choices, *self.python)):
            return value
        if callable in self.python and callable(value):
            return value
        numbers = {str(number): word for number, word in enumerate(self.choices)} if self.numbered else {}
        return numbers.get(str(value))

    def _inside(self, number: float) -> bool:
        if not self.domain:
            return True
        # An end of an integer's domain may have more digits than a float.
        low, high = (float(end) if "inf" in end else self.type(end) for end in self.domain[1:-1].split(","))
        above = number > low if self.domain[0] == "(" else number >= low
        below = number < high if self.domain[-1] == ")" else number <= high
        return above and below

    def _refusal(self, value: object, beyond: str = "") -> ValueError:
        allowed = (self.allowed or "True or False") + beyond + self.hint
        return ValueError(f"{self.name.rstrip('_')} = {value!r} is not allowed: give {allowed}")


C = Param("C", float, 1.0, "cost of a unit of loss, next to 1/2 ||W||^2 and a sum of losses", "(0, inf)", letter="c",
          grid="log2:-5:2:9", brief="cost of a unit of loss")
LAMBDA = Param("lambda_", float, None, "the paper's weight of the mean loss, in place of C: lambda = C m", "(0, inf)",
               replaces="C")
MU = Param("mu", float, 0.8, "weight of margins above 1 + theta against margins below 1 - theta", "[0, 1]")
THETA = Param("theta", float, 0.2, "half-width of the band of margins that costs nothing", "[0, 1)")
MARGIN_BOUND = Param("margin_bound", float, 2.0, "B, above which margins cost", "[1, inf)")
BOUND_COST = Param("bound_cost", float, None, "D, cost of a unit of margin above B (default: C)", "(0, inf)")
L1_RATIO = Param("l1_ratio", float, 1.0, "r of the penalty r ||w||_1 + (1-r)/2 ||w||^2",
                 "(0, 1]")
PENALTY = Param("penalty", str, "l1", "l1: any weight may be 0; group: the weights of a feature, those of all classes, "
                "are 0 together, by ||w||_2 of them in place of ||w||_1", choices=("l1", "group"))
K = Param("K", int, None, "how many of a row's classes count, those of highest scores (default: 5, or one less than "
          "there are)", "[1, inf)")
OUTER = Param("outer", str, "ccp", "outer loop of the non-convex problem: ccp descends on it, paper is the "
              "published fixed-point iteration", choices=("ccp", "paper"))
MAX_OUTER = Param("max_outer", int, None, "cap on outer iterations; unless given, 50 for ccp and 20 for paper",
                  "[1, inf)")
RESTARTS = Param("restarts", int, 1, "where the problem is not convex (mu > 0, three classes or more), fits with the "
                 "seeds seed, seed + 1, ...; the one of lowest objective is kept", "[1, 1000]",
                 needs=("outer", ("ccp",)))
LAMBDA1 = Param("lambda1", float, 0.25, "weight of the margins' variance (twice the population variance); it acts from "
                "about 0.05mC on", "[0, inf)", relative=True)
LAMBDA2 = Param("lambda2", float, 0.25, "weight of the margins' mean", "[0, inf)", relative=True)
NORM = Param("norm", float, None, "p, the exponent of the norms of the weights", "[1, inf)", letter="p")
EPS = Param("eps", float, 1e-6, "weight of ||W||_F^2 + ||b||^2, which makes the optimum one point", "(0, inf)")
DELTA = Param("delta", float, 1e-3, "width of the smoothed corner of the hinge", "[1e-12, 1e6]")
LOSS = Param("loss", str, "logistic", "logistic: sum over the rivals of log(1 + exp(-t)), the paper's; softmax: "
             "log(1 + sum over the rivals of exp(-t))", choices=("logistic", "softmax"))
EPSILON = Param("epsilon", float, 0.1, "half-width of the band of residuals that cost nothing", "[0, inf)", letter="p")
NU = Param("nu", float, 0.5, "part of the rows that may be outside, at most, and that are support vectors, at least",
           "(0, 1]", letter="n")
ALPHA = Param("alpha", float, None, "weight of staying near in the step that raises the mean of the margins; a small "
              "one pulls towards the mean of y_i x_i (default: 100 r, r the root mean square of the rows' norms)",
              "(0, inf)", grid="log10:0:1:3")
BETA = Param("beta", float, None, "weight of staying near in the step that lowers the semi-variance of the margins; a "
             "large one makes small steps, a small one may make them go in a circle (default: 0.01 r^2)", "(0, inf)",
             grid="log10:-3:1:0")
EPOCHS = Param("epochs", int, 5, "passes over the rows", "[1, inf)")
ETA0 = Param("eta0", float, None, "first step size (default: searched for on a sample)", "(0, 1)")

MULTICLASS = Param("multiclass", str, "ovr", "more than two classes by binary problems: one class against the rest, "
                   "one against one, or error-correcting output codes", choices=("ovr", "ovo", "ecoc"),
                   brief="several classes")
# The order is LIBSVM's, which knows the kernels by their numbers.
KERNEL = Param("kernel", str, None, "kernel in place of a linear model: linear x.z, poly (gamma x.z + coef0)^degree, "
               "rbf exp(-gamma ||x-z||^2), sigmoid tanh(gamma x.z + coef0)",
               choices=("linear", "poly", "rbf", "sigmoid"), letter="t", numbered=True,
               python=("precomputed", callable), brief="a kernel")
GAMMA = Param("gamma", float, None, "gamma of poly, rbf and sigmoid (default: 1/features)", "(0, inf)", letter="g",
              needs=("kernel", ("poly", "rbf", "sigmoid")), hint=", or leave it out for 1/features, which scikit-learn "
              "calls 'auto'; its 'scale' is 1/(features * variance of all values)")
DEGREE = Param("degree", int, 3, "degree of poly", "[0, 1000]", letter="d", needs=("kernel", ("poly",)))
COEF0 = Param("coef0", float, 0.0, "coef0 of poly and sigmoid", "(-inf, inf)", letter="r",
              needs=("kernel", ("poly", "sigmoid")))
CACHE = Param("cache", float, None, "megabytes for rows of the kernel's Gram matrix; others are computed when needed "
              "(default: 200 where few rows are needed, else a quarter of the memory)", "(0, inf)", letter="m",
              metavar="MB",
              needs=("kernel", (*KERNEL.choices, callable)))
FREE_BIAS = Param("free_bias", bool, False, "a bias that costs nothing in the objective, LIBLINEAR's -R with -B 1, and "
                  "with a kernel the offset of LIBSVM's C-SVC", letter="R")
# Positive semidefinite whatever the rows and the parameters are.
DEFINITE = ("linear", "rbf")
INDEFINITE = "the kernel is not positive semidefinite on these rows, and nothing can be certified; take another one"
# What every method that works on Gram rows takes.
KERNELS = (KERNEL, GAMMA, DEGREE, COEF0, CACHE)
# What there is for methods to take: a command line is taken apart without the methods.
OWN = (C, LAMBDA, MU, THETA, MARGIN_BOUND, BOUND_COST, K, PENALTY, L1_RATIO, OUTER, MAX_OUTER, RESTARTS, LAMBDA1,
       LAMBDA2, NORM, EPS, DELTA, LOSS, EPSILON, NU, ALPHA, BETA, EPOCHS, ETA0, FREE_BIAS, MULTICLASS, *KERNELS)

TOL = Param("tol", float, 1e-3, "stop when certificate <= tol * max(1, |objective|)", "(0, inf)", letter="e",
            brief="relative gap at which to stop")
BIAS = Param("bias", float, -1.0, "value of a constant feature added to every row; negative: none", "(-inf, inf)",
             letter="B", brief="a constant feature; negative: none")
ALGORITHM = Param("algorithm", str, "auto", "route to the same optimum; newton: for few features and classes; paper: a "
                  "method's published algorithm", choices=("auto", "cd", "accelerated", "newton", "paper"))
SEED = Param("seed", int, 0, "seed of the order of the rows", "[0, 18446744073709551615]")
THREADS = Param("threads", int, None, "threads for reading, certificates, several columns or folds, and prediction "
                "(default: all cores). Given as 4 or more, they share the sweeps of a large fit too, in rounds: other "
                "weights within the tolerance, the same for any such number", "[1, 1024]",
                brief="threads (default: all cores)")
MAX_ITER = Param("max_iter", int, 20_000, "cap on sweeps over the rows, Newton steps included", "[1, inf)")
TIME_LIMIT = Param("time_limit", float, None, "stop training after this many seconds", "(0, inf)", metavar="SECONDS")

CLASS_WEIGHTS = Param("class_weight", str, None, "balanced: multiply C for each class by rows/(classes x its rows), so "
                      "that classes weigh alike, whatever their sizes; in place of -wLABEL", choices=("balanced",))

FOLDS = Param("folds", int, 5, "folds of cross-validation", "[2, inf)")
OF_CLASSES, OF_NUMBERS = ("accuracy", "balanced", "f1_macro", "auc", "top3", "top5", "top10"), ("mse", "mae", "r2")
OF_LABEL_SETS = ("micro_f1", "macro_f1", "lrap", "accuracy")
# Of classes too, where there are probabilities of them.
OF_PROBABILITIES = ("log_loss", "brier")
# Those of which the least is the best.
ERRORS = ("mse", "mae", *OF_PROBABILITIES)
METRICS = (*OF_CLASSES, *OF_PROBABILITIES, *OF_LABEL_SETS[:-1], *OF_NUMBERS)
METRIC = Param("metric", str, None, "what cross-validation measures: of classes accuracy (the default), balanced (mean "
               "recall), f1_macro, auc (more than two classes: the mean of each against the rest), top3, top5 or top10 "
               "(the row's class is among so many of highest scores), log_loss or brier, which ask for probabilities; "
               "of rows with several labels micro_f1 (the default), macro_f1, lrap (label ranking average precision) "
               "or accuracy (all of a row's labels are right); of regression mse (the default), mae or r2. Of several, "
               "with commas between, the first selects, and the others are measured beside it", metavar="NAME,...",
               brief="what is measured: auc, f1_macro, ...")

# What every fit takes, in the order of --help.
RUN = (TOL, BIAS, ALGORITHM, MAX_ITER, TIME_LIMIT, SEED, THREADS)


SCALE = Param("scale", str, None, "scale the features, in the model too, so that it predicts rows as they are: range, "
              "each from 0, its least value (zeros that are left out count), to 1; maxabs, by its largest absolute "
              "value, zeros stay zeros; unit, each row to length 1", choices=("range", "maxabs", "unit"),
              brief="scale the features")
PROBABILITY = Param("probability", bool, False, "fit probabilities too, on the scores of 5-fold cross-validation: 5 "
                    "more fits, each with its own --max-iter and --time-limit; the weights stay the same",
                    brief="fit probabilities too")

MEMORY = Param("memory", str, None, "of training on a store: bytes that it may hold, as in 500M or 4G (default: half "
               "of the machine's memory)", metavar="SIZE")

SWEEPS_PER_LOAD = Param("sweeps_per_load", int, None, "of training on a store: sweeps over a part of the rows each "
                        "time it is read (default: 1); 2 or 3 where the disk is slower than the sweeps", "[1, 100]")

PAPER = Param("paper", bool, False, "the values of the method's paper, or of its authors' program, in place of the "
              "defaults; what is given beside them stays. A method whose paper recommends none refuses, and says why: "
              "--grid paper tries what such a paper chose from")

# What `train` does to the rows before a fit, and with the scores after it.
AROUND = (SCALE, PROBABILITY, MEMORY, SWEEPS_PER_LOAD)

# What columns of tables become: of CSV and TSV, and of Parquet and Arrow, in memory or in a store.
LABEL = Param("label", str, "label", "of CSV, TSV and Parquet: the column of the labels", metavar="NAME",
              brief="of a table: that of the labels")
CATEGORIES = Param("categories", str, None, "of CSV and TSV: columns of words, with commas between; each becomes a "
                   "feature for each of its words. In Parquet they have types, whole numbers may be stated",
                   metavar="A,B,...", brief="of a table: columns of words")
LEAVE_OUT = Param("leave_out", str, None, "of CSV, TSV and Parquet: columns that are no features, with commas between",
                  metavar="A,B,...")
CATEGORICAL = Param("categorical", str, "onehot", "of Parquet and Arrow: what columns of words become; onehot: a "
                    "feature for each value; hash: one of 2^bits features, by a hash of column and value",
                    choices=("onehot", "hash"))
HASH_BITS = Param("hash_bits", int, 22, "of categorical hash: log2 of the number of its features", "[1, 30]",
                  needs=("categorical", ("hash",)))
COLUMNS = (LABEL, CATEGORICAL, HASH_BITS)

# Options of the commands that `liblinearutil` takes too.
SOLVER = Param("solver", str, None, "the method", letter="s", metavar="NAME")
CROSS_VALIDATION = Param("cross_validation", int, None, "accuracy, or mean squared error, or what --metric says, by "
                         "n-fold cross-validation; no model is written", FOLDS.domain, letter="v", metavar="n",
                         brief="n-fold cross-validation; no model is written")
SEARCH = Param("search", bool, False, "search for the best C, or with --grid for other parameters, by cross-"
               f"validation with {FOLDS.default} folds or those of -v; -c is then where C begins to double, and of "
               "regression -p where epsilon falls from; a method without C has a grid of its own",
               letter="C", brief="search for the best C by cross-validation")
FACTOR = Param("factor", float, 1.0, "what C is multiplied by", "(0, inf)")
PREDICTED_PROBABILITY = Param("probability", int, 0, "1: after each label the probabilities of the classes, in the "
                              "order of a first line `labels ...`; for models of margin-train --probability, of "
                              "LIBLINEAR's logistic regression and of svm-train -b 1. The label stays that of the "
                              "scores or votes, and is made the most probable where a sigmoid's offset, or LIBSVM's "
                              "coupling, would say another", "[0, 1]", letter="b")


def resolve(declared: Iterable[Param], given: Mapping[str, Any]) -> Parameters:
    """Checked values of `declared` parameters: from the dict `given`, else, and for None, their defaults."""
    for p in declared:
        if p.replaces in given and given.get(p.name) is not None:
            raise ValueError(f"{p.replaces} and {p.name.rstrip('_')} are two names of one thing: give one of them")
    values = {p.name: p.default if given.get(p.name) is None else p.check(given[p.name]) for p in declared}
    for p in declared:
        if given.get(p.name) is not None and not is_used(p, values):
            other, useful = p.needs[0], [word for word in p.needs[1] if word is not callable]
            raise ValueError(f"{p.name} = {values[p.name]!r} is of no use {_with(other, values[other])}: it is for "
                             f"{other} = {' | '.join(useful)}")
    return values


def is_relative(value: object) -> bool:
    """Whether it is a text in units of m C."""
    return isinstance(value, str) and value.endswith(RELATIVE)


def amount(value: float | str) -> float:
    """The number of a value, without its unit."""
    return float(value.removesuffix(RELATIVE)) if isinstance(value, str) else value


def absolute(declared: Iterable[Param], values: Mapping[str, Any], size: float) -> Parameters:
    """The `values`, those in units of m C as numbers: `size` is m."""
    found = dict(values)
    for p in declared:
        if is_relative(found.get(p.name)):
            found[p.name] = p.check(amount(found[p.name]) * size * found[C.name])
    return found


class Predicting(Protocol):
    """What a metric has to know of a Method."""

    @property
    def name(self) -> str: ...

    @property
    def regression(self) -> bool: ...


def metrics_of(method: Predicting, metric: str | Sequence[str] | None, multilabel: bool = False) -> tuple[str, ...]:
    """The names of the metrics, of a list or of text with commas between; None stands for the first of those of the
    kind of the method and the labels. ValueError for others."""
    kind = OF_NUMBERS if method.regression else OF_LABEL_SETS if multilabel else (*OF_CLASSES, *OF_PROBABILITIES)
    if metric is None:
        return kind[:1]
    if not isinstance(metric, (str, list, tuple)):
        raise refusal("metric", metric, "a name, or a list of names")
    if not metric:
        raise refusal("metric", metric, " | ".join(kind), ValueError)
    names = [part.strip() for part in metric.split(",")] if isinstance(metric, str) else metric
    for name in names:
        if name not in METRICS:
            raise refusal("metric", name, " | ".join(kind), ValueError)
        if name not in kind:
            what = f"{method.name} predicts{' of rows of several labels' if multilabel else ''}"
            raise ValueError(f"metric = {name!r} does not measure what {what}: give {' | '.join(kind)}")
    return once_each(names)


def once_each(metrics: Sequence[str]) -> tuple[str, ...]:
    """The names; ValueError for one that is there twice."""
    for at, name in enumerate(metrics):
        if name in metrics[:at]:
            raise ValueError(f"metric: {name} is named twice: give each metric once")
    return tuple(metrics)


def is_used(param: Param, values: Mapping[str, Any]) -> bool:
    """Whether `param` has an effect beside the `values` of the others."""
    if not param.needs:
        return True
    value = values[param.needs[0]]
    return value in param.needs[1] if isinstance(value, str) else callable in param.needs[1] and callable(value)


def _with(name: str, value: object) -> str:
    if value is None:
        return f"without a {name}"
    return f"with {name} = {value if isinstance(value, str) else 'a function'}"


# Arguments in Python that are no parameters of a run: ValueError or TypeError names them, and what is allowed.


def refusal(name: str, value: object, allowed: str,
            error: type[TypeError] | type[ValueError] = TypeError) -> TypeError | ValueError:
    return error(f"{name} = {value!r} is not allowed: give {allowed}")


def check_flag(name: str, value: object) -> bool:
    found: bool = Param(name, bool, False, "").check(value)
    return found


def check_function(name: str, value: Function) -> Function:
    """A function, or None."""
    if value is not None and not callable(value):
        raise refusal(name, value, "a function, or None")
    return value


def check_path(name: str, value: object) -> str:
    """The path as a str. Not an int, which `open` would take for a descriptor of this process's own."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise refusal(name, value, "a path")
    return os.fsdecode(value)
