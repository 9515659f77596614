"""The list of methods. Command line, API, model files, documentation and tests walk it."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from marginlinear import liblinear
from marginlinear import params as P
from marginlinear.algorithms.dual import of_loss
from marginlinear.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from marginlinear.algorithms.dual import FitFunction, Loss, Terms
    from marginlinear.params import Param

# A method a line: its name, and its module in marginlinear.methods, whose METHOD says the rest. The first is the
# default.
MODULES = {
    "mcodm": "mcodm",
    "cs": "crammer_singer",
    "topk": "topk",
    "lpmcsvm": "lpmcsvm",
    "m3svm": "m3svm",
    "ism3": "ism3",
    "ww": "ww",
    "softmax": "softmax",
    "smlr": "smlr",
    "ldm": "ldm",
    "ldm-asgd": "ldm_asgd",
    "odm": "odm",
    "rmm": "rmm",
    "l1svc": "l1svc",
    "l2svc": "l2svc",
    "nusvc": "nusvc",
    "logistic": "logistic",
    "l1l2svc": "l1l2svc",
    "l1lr": "l1lr",
    "lssvm": "lssvm",
    "mamc": "mamc",
    "msv": "msv",
    "msvmav": "msvmav",
    "oneclass": "oneclass",
    "l1svr": "l1svr",
    "l2svr": "l2svr",
    "nusvr": "nusvr",
}
DEFAULT = next(iter(MODULES))
# What LIBSVM, scikit-learn and others call some of them, in small letters: hints, not names.
ELSEWHERE = {"c-svc": "l1svc", "csvc": "l1svc", "svc": "l1svc", "svm": "l1svc", "linearsvc": "l2svc",
             "epsilon-svr": "l1svr", "svr": "l1svr", "linearsvr": "l1svr", "nu-svc": "nusvc", "nu-svr": "nusvr",
             "lr": "logistic", "logisticregression": "logistic", "one-class": "oneclass"}


class Paper(NamedTuple):
    """What a method's paper has where ours are defaults.

    Attributes
    ----------
    place : str
        Where the values stand; without values, why there are none.
    values : dict
        Of all parameters that shape the answer, by name; none of them where the paper leaves one to be chosen.
    linear : bool
        Whether the values are of linear models alone.
    grid : str
        What the paper's experiments chose from, as the text of `margin-train --grid`; "" for nothing that is known.
    """

    place: str
    values: Mapping[str, Any] = MappingProxyType({})
    linear: bool = False
    grid: str = ""


class Method(NamedTuple):
    """A training method: what it minimises, what it takes, and the function that does it.

    Attributes
    ----------
    name : str
        The word after `-s` and `solver=`.
    summary : str
        One line for `--help`.
    objective : str
        The objective in plain text, as in the documentation.
    reference : str
        Paper and equation.
    params : tuple of Param
        The method's own parameters: what its `fit` gets. Those of every run are `params.RUN`.
    fit : callable
        `fit(problem, params, run) -> Solution`. It imports its engine when called, so that `--help` does not.
    joint : bool
        True: one column of weights a class, the largest score wins. False: one column, its sign decides.
    liblinear : int or None
        LIBLINEAR's number where that solver has the same objective: `-s` takes it, and those of LIBLINEAR's other ways
        to the same optimum, and a model file, with one class against the rest for several, has its solver_type.
    kernels : bool
        Whether it works on the rows of a Gram matrix.
    routes : tuple of str
        The values of `algorithm` that it knows.
    defaults : dict
        Defaults of parameters of every run that are others here, by name.
    probabilities : str or None
        What the scores of its model are without any fit: "softmax", logarithms of probabilities, up to a constant of
        the row; "logistic", of a model whose columns are not decoded, logarithms of odds.
    loss : callable or None
        Of a binary method that is a loss of the margin alone: `loss(problem, params) -> (c_i, (knots, parts))`, as
        `margin_cd.table_of` takes the latter; c_i does not depend on which classes are positive.
    dual : callable or None
        Of another method by dual coordinate descent: `dual(problem, params) -> (c_i, keywords)` of its engine
        (algorithms/dual.py). The sums of its loss over parts of the rows add up to that over all.
    smooth : bool
        Whether it is fitted by Newton steps on a smooth loss (algorithms/pairwise): value, gradient and products with
        the Hessian are such sums too.
    sparse : bool
        Whether it is fitted by surveys of all rows (algorithms/surveys.py), which are sums, and else on rows of the
        features that may have a weight.
    path : bool
        Whether a fit may go on from the model of a near value of a parameter: its answer does not depend on the start,
        or on which of several optima is near.
    stores : bool
        Whether its rows may be on disk: it only goes over them.
    relaxation : dict or None
        Of a method that is not convex: values of its parameters with which it is, and whose objective is nowhere above
        that of others. Its bound there is one of all weights.
    regression : bool
        Whether it learns numbers, by one column whose scores are the predictions, in place of classes.
    paper : Paper or None
        None: a classic, whose paper this package has no word on.
    offset : bool
        Whether its scores always have a bias that costs nothing.
    one_class : bool
        Whether it learns where the rows are, without labels, and predicts 1 there and -1 elsewhere.
    """

    name: str
    summary: str
    objective: str
    reference: str
    params: tuple[Param, ...]
    fit: FitFunction
    joint: bool
    liblinear: int | None = None
    kernels: bool = True
    routes: tuple[str, ...] = ("auto", "cd", "accelerated", "newton")
    defaults: Mapping[str, Any] = MappingProxyType({})
    probabilities: str | None = None
    loss: Loss | None = None
    dual: Terms | None = None
    smooth: bool = False
    sparse: bool = False
    path: bool = True
    stores: bool = True
    relaxation: Mapping[str, Any] | None = None
    regression: bool = False
    one_class: bool = False
    offset: bool = False
    paper: Paper | None = None

    @property
    def takes(self) -> tuple[Param, ...]:
        """Its own parameters, then those of what it works with: several classes, kernels."""
        several = self._with_defaults(P.MULTICLASS) if self.classifies and not self.joint else ()
        return (*self.params, *several, *(P.KERNELS if self.kernels else ()))

    @property
    def terms(self) -> Terms | None:
        """`dual`, or the same of a `loss`; None for a method that is certified otherwise."""
        return self.dual if self.loss is None else partial(of_loss, self.loss)

    @property
    def classifies(self) -> bool:
        """Whether it learns classes from labels."""
        return not (self.regression or self.one_class)

    @property
    def numbers(self) -> tuple[int, ...]:
        """LIBLINEAR's numbers that mean this method, its own first."""
        if self.liblinear is None:
            return ()
        return self.liblinear, *(number for number, same in liblinear.SAME.items() if same == self.liblinear)

    @property
    def run(self) -> tuple[Param, ...]:
        """The parameters of every run, with its own defaults."""
        return self._with_defaults(*P.RUN)

    def with_paper(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`given` parameters, and the paper's values of the others; ValueError where it has none."""
        paper = self.paper or Paper("none are known here")
        if not paper.values:
            grid = f", or grid = 'paper' (--grid paper) for what it chose from, {paper.grid}" if paper.grid else ""
            raise ValueError(f"paper: {self.name} has no values of its paper ({paper.place}): give values{grid}")
        if paper.linear and given.get(P.KERNEL.name) is not None:
            raise ValueError(f"paper: the values for {self.name} are of linear models ({paper.place}): leave out the "
                             "kernel, or give values")
        return {**given, **self.others(paper.values, [name for name, value in given.items() if value is not None])}

    def others(self, values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """The `values`, by name, without those of `names` and of what another name of one of these stands for."""
        replaces = {p.name: p.replaces for p in self.takes if p.replaces}
        named = {*names}
        named |= {replaces[name] for name in named & replaces.keys()}
        return {name: value for name, value in values.items()
                if name not in named and replaces.get(name) not in named}

    def _with_defaults(self, *params: Param) -> tuple[Param, ...]:
        return tuple(p._replace(default=self.defaults[p.name]) if p.name in self.defaults else p for p in params)


def methods() -> dict[str, Method]:
    """All methods by name, in the order of MODULES."""
    return {name: get(name) for name in MODULES}


def get(name: object) -> Method:
    """The method called `name`, or with LIBLINEAR's number `name`; ValueError lists what there is.

    A name imports its own module alone.
    """
    if isinstance(name, str) and name in MODULES:
        found: Method = import_module(f"marginlinear.methods.{MODULES[name]}").METHOD
        return found
    known = methods()
    numbers = {str(number): m for m in known.values() for number in m.numbers}
    method = numbers.get(str(name))
    if method is None:
        with_numbers = ", ".join(f"{n} ({numbers[n].name})" for n in sorted(numbers, key=int))
        typed = str(name).lower()
        near = did_you_mean(ELSEWHERE.get(typed, typed), {known: known for known in MODULES})
        raise ValueError(f"solver = {name!r} is not known{near}: give {', '.join(known)}, or LIBLINEAR's "
                         f"{with_numbers}")
    return method


def liblinear_number(name: str) -> int | None:
    """LIBLINEAR's number of the method called `name`; None without one, and for a name of another program's solver."""
    return get(name).liblinear if name in MODULES else None
