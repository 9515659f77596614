"""Declared parameters: what they take, what they refuse, and how they say so."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

import marginlinear as ml
from marginlinear import params as P
from marginlinear import registry
from marginlinear.cli import train as margin_train
from marginlinear.compare.methods import contestant_of
from marginlinear.params import Param
from marginlinear.selection.grid import parse_grid, points_of

DECLARED = {p.name: p for m in registry.methods().values() for p in m.takes} | {p.name: p for p in (*P.RUN, *P.AROUND)}
NUMBERS = [p for p in DECLARED.values() if p.type in (int, float)]


def ends(param):
    low, high = (end.strip() for end in param.domain[1:-1].split(","))
    return low, param.domain[0] == "[", high, param.domain[-1] == "]"


@pytest.mark.parametrize("param", DECLARED.values(), ids=DECLARED)
def test_declarations_are_complete(param):
    assert param.help and param.name.isidentifier()
    assert param.type in (int, float, str, bool)
    assert param.flag == "--" + param.name.rstrip("_").replace("_", "-")
    assert param.default is None or param.check(param.default) == param.default
    assert not param.choices or param.default in (None, *param.choices)
    assert not param.needs or param.needs[0] in DECLARED


@pytest.mark.parametrize("param", NUMBERS, ids=lambda p: p.name)
def test_ends_of_the_domain(param):
    """The ends are taken where the interval is closed, refused where it is open; so is all beyond them."""
    low, low_in, high, high_in = ends(param)
    for end, inside, beyond in ((low, low_in, -1), (high, high_in, 1)):
        if "inf" in end:
            values = [(float(end), False)]
        else:
            value = param.type(end)
            values = [(value, inside), (value + beyond, False)]
            if param.type is float:
                values += [(math.nextafter(value, beyond * math.inf), False),
                           (math.nextafter(value, -beyond * math.inf), True)]
        for value, taken in values:
            if taken:
                assert param.check(value) == value
            else:
                with pytest.raises(ValueError, match=f"^{param.name.rstrip('_')} = .*not allowed"):
                    param.check(value)


@pytest.mark.parametrize("param", NUMBERS, ids=lambda p: p.name)
@pytest.mark.parametrize("value", [10**400, -(10**400)], ids=["10**400", "-10**400"])
def test_too_large_for_a_float(param, value):
    for refused in (lambda: param.check(value), lambda: param.parse(str(value))):
        with pytest.raises(ValueError, match=f"^{param.name.rstrip('_')} = .*not allowed"):
            refused()


@pytest.mark.parametrize("param", NUMBERS, ids=lambda p: p.name)
@pytest.mark.parametrize("value", [math.nan, "1", b"1", True, False, [1, 2], (), {}, 1j, object()],
                         ids=lambda value: repr(value).partition(" at ")[0])
def test_not_a_number(param, value):
    with pytest.raises(ValueError, match=f"^{param.name.rstrip('_')} = "):
        param.check(value)


@pytest.mark.parametrize("param", [p for p in NUMBERS if p.default is not None], ids=lambda p: p.name)
def test_none_is_no_value_where_there_is_a_default(param):
    with pytest.raises(ValueError, match=param.name):
        param.check(None)


@pytest.mark.parametrize("param", [p for p in NUMBERS if p.type is int], ids=lambda p: p.name)
def test_integers(param):
    assert param.check(3.0) == 3 and isinstance(param.check(3.0), int)
    for value in (2.5, math.inf, -math.inf):
        with pytest.raises(ValueError, match=param.name):
            param.check(value)
    for kind in (np.int8, np.uint64, np.float32):
        assert type(param.check(kind(7))) is int


RELATIVE = [p for p in NUMBERS if p.relative]


@pytest.mark.parametrize("param", RELATIVE, ids=lambda p: p.name)
def test_units_of_rows_and_cost(param):
    assert param.check("0.05mC") == param.parse("5e-2mC") == "0.05mC"
    assert P.absolute((P.C, param), {"C": 3.0, param.name: "0.05mC"}, 40.0) == {"C": 3.0, param.name: 0.05 * 40 * 3}
    for text in ("mC", "-1mC", "0.05 mc", "1_0mC", "infmC", "0.05"):
        with pytest.raises(ValueError, match=f"^{param.name} = '{text}' .*mC|^{param.name} = -?[0-9inf.]+ .*mC"):
            param.check(text)
    with pytest.raises(ValueError, match=param.name):
        P.absolute((P.C, param), {"C": 1e300, param.name: "1mC"}, 1e300)
    with pytest.raises(ValueError, match=r"^C = "):
        P.C.check("0.05mC")


def test_numpy_numbers_become_python_numbers():
    assert type(P.C.check(np.float32(0.5))) is float
    assert type(P.C.check(np.int64(2))) is float


@pytest.mark.parametrize("param", [p for p in DECLARED.values() if p.choices], ids=lambda p: p.name)
def test_choices(param):
    for word in param.choices:
        assert param.check(word) == word
    for value in (param.choices[0].upper(), "", param.choices[0] + " ", 9, None):
        refusal = re.escape(f"{param.name} = {value!r} ") + ".*" + param.choices[-1]
        with pytest.raises(ValueError, match=refusal):
            param.check(value)


def test_flag():
    flag = Param("quick", bool, False, "")
    assert flag.check(True) is True and flag.check(np.False_) is False
    for value in (1, 0, "yes", None):
        with pytest.raises(ValueError, match="quick"):
            flag.check(value)


@pytest.mark.parametrize("text, value", [("1", 1.0), ("1e-3", 1e-3), (" 2 ", 2.0), ("+4", 4.0)])
def test_parse_float(text, value):
    assert P.C.parse(text) == value


@pytest.mark.parametrize("text", ["0x1p3", "1x", "", "1_0", "1,5", "nan", "inf", "-1", "0", "1e400"])
def test_parse_float_refuses(text):
    with pytest.raises(ValueError, match=r"^C = .*\(0, inf\)"):
        P.C.parse(text)


@pytest.mark.parametrize("text", ["7", "0", "18446744073709551615"])
def test_parse_seed(text):
    assert P.SEED.parse(text) == int(text)


@pytest.mark.parametrize("text", ["7.0", "1e3", "-1", "18446744073709551616", "0x10"])
def test_parse_seed_refuses(text):
    with pytest.raises(ValueError, match=r"^seed = "):
        P.SEED.parse(text)


def test_resolve_checks_what_is_given_and_fills_the_rest():
    assert P.resolve((P.C, P.MU), {"C": 2, "other": "ignored"}) == {"C": 2.0, "mu": 0.8}
    with pytest.raises(ValueError, match=r"^mu = 2\.?0? "):
        P.resolve((P.C, P.MU), {"mu": 2})


@pytest.mark.parametrize("value, word", [
    (0, "linear"), ("0", "linear"), (np.int8(1), "poly"), ("2", "rbf"), (3, "sigmoid"), ("rbf", "rbf"),
    ("precomputed", "precomputed"), (max, max),
])
def test_kernels_by_name_number_and_function(value, word):
    assert P.KERNEL.check(value) is word


@pytest.mark.parametrize("value", [4, "4", -1, 2.0, True, "RBF", " rbf", ["rbf"], None, b"rbf"], ids=repr)
def test_no_such_kernel(value):
    with pytest.raises(ValueError, match=r"^kernel = .* 0 to 3 \| precomputed, or a function$"):
        P.KERNEL.check(value)


@pytest.mark.parametrize("text", ["precomputed", "4", "", "01"])
def test_kernels_of_the_command_line(text):
    assert P.KERNEL.parse("2") == "rbf"
    with pytest.raises(ValueError, match=r"^kernel = .* give linear \| poly \| rbf \| sigmoid, or 0 to 3$"):
        P.KERNEL.parse(text)


@pytest.mark.parametrize("given, words", [
    ({"gamma": 1}, "gamma = 1.0 is of no use without a kernel: it is for kernel = poly | rbf | sigmoid"),
    ({"kernel": "linear", "gamma": 1}, "gamma = 1.0 is of no use with kernel = linear"),
    ({"kernel": 0, "coef0": 1}, "coef0 = 1.0 is of no use with kernel = linear"),
    ({"kernel": "rbf", "degree": 2}, "degree = 2 is of no use with kernel = rbf: it is for kernel = poly"),
    ({"kernel": "rbf", "coef0": 0}, "coef0 = 0.0 is of no use with kernel = rbf"),
    ({"kernel": "sigmoid", "degree": 3}, "degree = 3 is of no use with kernel = sigmoid"),
    ({"kernel": max, "gamma": 1}, "gamma = 1.0 is of no use with kernel = a function"),
    ({"kernel": "precomputed", "cache": 9}, "cache = 9.0 is of no use with kernel = precomputed"),
    ({"cache": 9}, "cache = 9.0 is of no use without a kernel"),
])
def test_what_a_kernel_does_not_use_is_refused(given, words):
    with pytest.raises(ValueError, match="^" + re.escape(words)):
        P.resolve(P.KERNELS, given)


@pytest.mark.parametrize("given", [
    {"kernel": "poly", "gamma": 1, "degree": 2, "coef0": 1, "cache": 9}, {"kernel": max, "cache": 9},
    {"kernel": "linear", "gamma": None, "degree": None}, {"kernel": 3, "coef0": -1}, {},
])
def test_what_a_kernel_uses_is_taken(given):
    found = P.resolve(P.KERNELS, given)
    assert {name: found[name] for name in given if name != "kernel" and given[name] is not None} == {
        name: value for name, value in given.items() if name != "kernel" and value is not None}


# ---- Values of the papers


def test_values_of_papers():
    """What a paper has can be made, and grids of papers are grids; without values there is a reason, and the fix."""
    for method in registry.methods().values():
        paper = method.paper
        if paper is not None and paper.grid:
            assert points_of(parse_grid("paper", method), method, {}) == points_of(parse_grid(paper.grid, method),
                                                                                  method, {})
        else:
            with pytest.raises(ValueError, match="is not known: give NAME=VALUES"):
                parse_grid("paper", method)
        if paper is not None and paper.values:
            known = {p.name: p for p in method.params}
            assert P.resolve(method.takes, method.with_paper({})).items() >= paper.values.items()
            assert all(known[name].check(value) == value for name, value in paper.values.items())
        else:
            with pytest.raises(ValueError, match=f"paper: {method.name} has no values of its paper .*: give values"):
                method.with_paper({})
    with pytest.raises(ValueError, match=r"--grid paper.*lambda=log2:0:2:20,mu="):
        registry.get("mcodm").with_paper({})
    m3svm, msvmav = registry.get("m3svm"), registry.get("msvmav")
    assert m3svm.with_paper({}) == {"lambda_": 1e-3, "norm": 4.0, "eps": 1e-6}
    # C is another name of lambda; what is given stays.
    assert m3svm.with_paper({"C": 2.0, "norm": 3.0}) == {"eps": 1e-6, "C": 2.0, "norm": 3.0}
    assert msvmav.with_paper({"beta": 1.0, "alpha": None}) == {"alpha": 16.0, "beta": 1.0}
    with pytest.raises(ValueError, match="linear models"):
        msvmav.with_paper({"kernel": "rbf"})


def test_values_of_papers_are_reached(tmp_path, capsys):
    X, y = ml.load_libsvm(Path(__file__).parents[1] / "data" / "vehicle")
    by_name = ml.train(X, y, solver="msvmav", paper=True, threads=1)
    assert (by_name.params["alpha"], by_name.params["beta"]) == (16, 0.25)
    given = ml.train(X, y, solver="msvmav", alpha=16, beta=0.25, threads=1)
    assert np.array_equal(by_name.weights, given.weights)
    assert not np.array_equal(by_name.weights, ml.train(X, y, solver="msvmav", threads=1).weights)
    path = str(tmp_path / "d")
    ml.dump_libsvm(X, y, path)
    for words, name in ((["--paper"], "paper"), (["--alpha", "16", "--beta", "0.25"], "given")):
        assert margin_train.main(["-s", "msvmav", "-q", *words, path, str(tmp_path / name)]) == 0
    assert (tmp_path / "paper").read_bytes() == (tmp_path / "given").read_bytes()
    assert margin_train.main(["-s", "mcodm", "--paper", path]) == 2
    assert "--grid paper" in capsys.readouterr().err
    assert margin_train.main(["-s", "lpmcsvm", "-v", "2", "--grid", "paper", "-c", "1", path]) == 2
    assert "C is given as 1.0 and by the grid" in capsys.readouterr().err


def test_the_word_paper_in_a_comparison():
    found = contestant_of("mcodm;paper;theta=0.2", {"bias": 1.0})
    assert found.fixed == {"theta": 0.2, "bias": 1.0} and list(found.grid) == ["lambda_", "mu"]
    assert contestant_of("mcodm;C=1,2;paper").grid.keys() == {"mu", "theta", "C"}
    assert contestant_of("msvmav;paper").fixed == {"alpha": 16.0, "beta": 0.25} and contestant_of("m3svm;paper").grid
    with pytest.raises(ValueError, match="its text is not at hand"):
        contestant_of("odm;paper")
