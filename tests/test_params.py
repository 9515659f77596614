"""Declared parameters: what they take, what they refuse, and how they say so."""

import math
import re

import numpy as np
import pytest

from marginlinear import params as P
from marginlinear import registry
from marginlinear.params import Param

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
