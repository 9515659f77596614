"""Numbers in and out, against Python's own exact conversions."""

import locale
import random

import numpy as np
import pytest

from marginlinear._core import decimal
from marginlinear._core.decimal import format_rows, parse_rows


def parsed(tokens):
    """parse_rows of one token a row."""
    out = np.empty((len(tokens), 1))
    text = "\n".join(tokens).encode()
    position, code = parse_rows(text, 0, out)
    assert (position, code) == (len(text), decimal.ROWS_READ)
    return out[:, 0]


def assert_as_python(tokens):
    got = parsed(tokens).view(np.uint64)
    expected = np.array([float(token) for token in tokens]).view(np.uint64)
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), [tokens[i] for i in wrong[:5]]


def significant(text):
    return text.lower().split("e")[0].replace(".", "").lstrip("-").strip("0")


def random_bits(count, seed):
    values = np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    return values[np.isfinite(values)]


def test_random_decimals():
    pick = random.Random(1)
    tokens = []
    for _ in range(100_000):
        digits = "".join(pick.choices("0123456789", k=pick.randint(1, 40)))
        point = pick.randint(0, len(digits))
        powers = "", f"e{pick.randint(-30, 30)}", f"E+{pick.randint(0, 260)}", f"e-{pick.randint(0, 400)}"
        tokens.append(f"{pick.choice(['', '-', '+'])}{digits[:point]}.{digits[point:]}{pick.choice(powers)}")
    assert_as_python(tokens)


def test_halfway_cases():
    """Exactly between two doubles, and one digit to either side, where all digits matter."""
    pick = random.Random(2)
    tokens = []
    for _ in range(2000):
        mantissa = pick.randint(2**52, 2**53 - 1)
        power = pick.randint(-1074, 960)
        numerator, denominator = 2 * mantissa + 1, 2
        scale = 2**abs(power)
        numerator, denominator = (numerator * scale, 2) if power > 0 else (numerator, 2 * scale)
        twos = denominator.bit_length() - 1
        digits = str(numerator * 5**twos)  # numerator / 2^twos = digits / 10^twos
        assert len(digits) < 1200
        for text in (digits, digits + "0001", str(int(digits) - 1) + "9"):
            tokens.append(f"{text}e{len(digits) - len(text) - twos}")
    assert_as_python(tokens)


def test_short_halfway_cases():
    tails = "", ".0", "e0", ".5", "0e-1", "00000e-5"
    tokens = [f"{2**53 + odd}{tail}" for odd in range(1, 200, 2) for tail in tails]
    assert_as_python(tokens)


def test_edges_of_the_range():
    least, most = "4.9406564584124654e-324", "1.7976931348623157e+308"
    tokens = [least, most, "2.4703282292062327e-324", "2.4703282292062328e-324", "2.2250738585072011e-308",
              "2.2250738585072014e-308", "1e-400", "0e9999999999999999999", "0." + "0" * 400 + "1e401",
              "1" + "0" * 300 + "e-300",
              "1e-99999999999999999999", "-0", "-0.0e5", "1.7976931348623158079e308", "17976931348623157e292",
              "5e-324", "3e-324", "2e-324", "0.1", "1e22", "1e23", "9007199254740993",
              "123456789012345678901234567890"]
    assert_as_python(tokens)
    assert np.signbit(parsed(["-0"])[0])


def test_many_digits():
    pick = random.Random(3)
    digits = ["".join(pick.choices("0123456789", k=900)) for _ in range(100)]
    tokens = [f"0.{text[:800]}" for text in digits]
    tokens += [f"{text[:800]}e{pick.randint(-1130, -500)}" for text in digits]
    tokens += [f"0.{'0' * 320}{text}" for text in digits]
    assert_as_python(tokens)


@pytest.mark.parametrize("step", [1, 2**20 + 7])
def test_subnormals(step):
    values = np.arange(1, 3000 * step, step, dtype=np.uint64).view(np.float64)
    tokens = [repr(v) for v in values.tolist()]
    assert_as_python(tokens)
    assert_as_python([f"{v:.40e}" for v in values.tolist()])


def test_random_bits_survive():
    W = random_bits(200_000, 4)[:, None].copy()
    out = np.empty_like(W)
    text = format_rows(W)
    assert parse_rows(text, 0, out) == (len(text), decimal.ROWS_READ)
    assert (W.view(np.uint64) == out.view(np.uint64)).all()


@pytest.mark.parametrize("kind", ["bits", "normal", "short", "powers", "whole"])
def test_shortest(kind):
    """The digits are those of repr, which is shortest and nearest by its own algorithm."""
    rng = np.random.default_rng(5)
    values = {
        "bits": random_bits(60_000, 5),
        "normal": rng.standard_normal(60_000),
        "short": np.round(rng.standard_normal(60_000) * 10.0 ** rng.integers(-5, 5, 60_000), 3),
        "powers": np.ldexp(1.0, np.arange(-1074, 1024)),
        "whole": np.append(np.arange(-1000.0, 1000), rng.integers(-2**62, 2**62, 20_000)),
    }[kind]
    tokens = format_rows(values[:, None].copy()).decode().split("\n")
    for token, value in zip(tokens, values.tolist(), strict=False):
        assert float(token) == value
        assert significant(token.strip()) == significant(repr(value)), (token, value)


@pytest.mark.parametrize(("value", "text"), [
    (0.1, "0.1"), (1.0, "1"), (-3.0, "-3"), (1e-05, "1e-05"), (0.0001, "0.0001"), (0.0, "0"), (-0.0, "-0"),
    (1.7976931348623157e308, "1.7976931348623157e+308"), (5e-324, "5e-324"), (1e16, "10000000000000000"),
    (1e17, "1e+17"), (123456.5, "123456.5"), (2.5e-07, "2.5e-07"), (1e100, "1e+100"),
    (-1.25e-300, "-1.25e-300"),
    (2.0**53, "9007199254740992"), (1.5e16, "15000000000000000"), (12345678901234567.0, "12345678901234568"),
])
def test_looks_like_printf(value, text):
    assert format_rows(np.array([[value]])).decode() == text + " \n"


def test_rows_as_liblinear_writes_them():
    assert format_rows(np.array([[1.5, -2.0], [0.0, 3.0]])) == b"1.5 -2 \n0 3 \n"
    assert format_rows(np.empty((2, 0))) == b"\n\n"
    with pytest.raises(ValueError, match=r"W\[1, 0\] is nan"):
        format_rows(np.array([[1.0], [np.nan]]))


@pytest.mark.parametrize(("text", "position", "code"), [
    (b"1 2\n3 4\n", 8, "READ"),
    (b"1 2\n3 4", 7, "READ"),
    (b"1 2 \r\n\t3 4 \nrest", 13, "READ"),
    (b"1 2\n3\n5 6\n", 5, "SHORT_LINE"),
    (b"\n1 2\n", 0, "SHORT_LINE"),
    (b"1 2 3\n4 5\n", 4, "LONG_LINE"),
    (b"1 2\n3 x\n", 6, "NOT_A_NUMBER"),
    (b"1 2\n3 4x\n", 6, "NOT_A_NUMBER"),
    (b"1 2\n3 0x4\n", 6, "NOT_A_NUMBER"),
    (b"1 2\n3 1,5\n", 6, "NOT_A_NUMBER"),
    (b"1 2\n3 4\0\n", 6, "NOT_A_NUMBER"),
    (b"1 2\n. 4\n", 4, "NOT_A_NUMBER"),
    (b"1 2\n1e 4\n", 4, "NOT_A_NUMBER"),
    (b"1 nan\n3 4\n", 2, "NOT_FINITE"),
    (b"1 -Infinity\n3 4\n", 2, "NOT_FINITE"),
    (b"1 1e309\n3 4\n", 2, "NOT_FINITE"),
    (b"1 2\n3 ", 6, "END_OF_DATA"),
    (b"1 2\n", 4, "END_OF_DATA"),
    (b"", 0, "END_OF_DATA"),
])
@pytest.mark.parametrize("before", [b"", b"head 7\n" * 20])
def test_parse_rows(text, position, code, before):
    out = np.empty((2, 2))
    text = before + text
    if code == "READ":
        position -= text.endswith(b"rest")
    got = parse_rows(text, len(before), out)
    if text.endswith(b"rest"):
        position = text.index(b"rest") - len(before)
    assert got == (len(before) + position, getattr(decimal, "ROWS_" + code))
    if code == "READ":
        assert out.tolist() == [[1, 2], [3, 4]]


def test_every_cut_of_rows():
    W = np.array([[1.25, -3e-7], [12345.678, 1e300]])
    text = format_rows(W)
    for cut in range(len(text) + 1):
        for room in (len(text), 0):
            out = np.zeros_like(W)
            _, code = parse_rows(text[:cut] + b" " * room, 0, out)
            if code == decimal.ROWS_READ:
                lines = [line.split() for line in text[:cut].split(b"\n")]
                assert out.tolist() == [[float(word) for word in line] for line in lines[:2]]
            else:
                assert len(text[:cut].split()) < 4 or code == decimal.ROWS_NOT_A_NUMBER


def test_start_outside():
    with pytest.raises(ValueError, match="start is 3"):
        parse_rows(b"1\n", 3, np.empty((1, 1)))


def test_locale_does_not_matter():
    before = locale.setlocale(locale.LC_NUMERIC)
    for name in ("de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "German"):
        try:
            locale.setlocale(locale.LC_NUMERIC, name)
            break
        except locale.Error:
            continue
    else:
        pytest.skip("no locale with a decimal comma")
    try:
        assert parsed(["1.5", "12345678901234567890.5e-3"]).tolist() == [1.5, 12345678901234567890.5e-3]
        assert format_rows(np.array([[1.5]])) == b"1.5 \n"
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)
