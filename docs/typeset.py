"""Formulas, in ASCII as the package has them or in LaTeX as a page has them, made MathML: a page needs no script.

`write_font` makes the font that lays them out alike everywhere: what they need of STIX Two Math.
"""

import re
import string
from importlib.resources import files

from fontTools import subset
from latex2mathml.converter import convert

GREEK = ["alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "nu", "rho", "xi"]
NAMES = {name: f"\\{name} " for name in [*GREEK, "sum", "exp", "log", "max", "min"]} | {
    "eps": r"\varepsilon ", "gbar": r"\bar{g}", "ghat": r"\hat{g}", "infinity": r"\infty ",
    "argmin": r"\operatorname{argmin}", "argmax": r"\operatorname{argmax}"}
SIGNS = {"!=": r"\ne ", "<=": r"\le ", ">=": r"\ge ", "->": r"\to ", "||": r"\|", "1/2": r"\tfrac{1}{2}", "*": "^*"}
TOKEN = re.compile(r"(?P<script>[_^])(?P<index>-?\w+|\([^()]*\))"           # indices side by side: a_il, R^-1, ^(2/p)
                   r"|(?P<product>(?<=[\w})])\.(?=[a-z]))"                  # w.x_i
                   r"|(?P<sign>!=|<=|>=|->|\|\||\*|(?<![\w/])1/2(?!\w))"
                   r"|(?<!\\)\b(?P<name>[A-Za-z]+)(?P<digits>\d*)"
                   r"|(?P<gap>(?<=\S) {2,}(?=\S))")
# Latin letters that stand for a variable, Greek ones; the signs between them.
LETTERS = [*range(0x1d434, 0x1d468), *range(0x1d6e2, 0x1d71c), 0x210e, *range(0x3b1, 0x3ca), 0x3d5, 0x3f5]
OPERATORS = [0xa0, 0xaf, 0xb7, 0xd7, 0x2c6, 0x2016, 0x2026, 0x2032, 0x2192, 0x2208, 0x2211, 0x2212, 0x221a, 0x221e,
             0x2260, 0x2264, 0x2265, 0x27e8, 0x27e9]


def display(text):
    """Lines of ASCII as formulas, each a block that scrolls by itself where a screen is narrow."""
    return blocks(map(latex, text.splitlines()))


def fence(source, *_args, **_kwargs):
    """A fence of `math`, which GitHub typesets too, for pymdownx.superfences."""
    return blocks(source.split("\n\n"))


def blocks(formulas):
    made = "".join(convert(formula, display="block") for formula in formulas if formula.strip())
    return f'<div class="formula" tabindex="0">{made}</div>'


def latex(line):
    """A line such as `1/2 ||w||^2 + C sum_i (1 - g_i)_+` in LaTeX."""
    line = re.sub(r"(?<![_^])\{([^{}]*:[^{}]*)\}", r"\\{\1\\}", line)       # a set; other braces group
    line = re.sub(r"<(\w+), ([^<>]+?)>", r"\\langle \1, \2\\rangle", line)
    line = re.sub(r"\bsqrt\(((?:[^()]|\([^()]*\))*)\)", r"\\sqrt{\1}", line)
    return TOKEN.sub(spelled, line.strip())


def spelled(found):
    if found["script"]:
        return f"{found['script']}{{{found['index'].strip('()')}}}"
    if found["product"]:
        return r" \cdot "
    if found["sign"]:
        return SIGNS[found["sign"]]
    if found["gap"]:
        return r" \quad "
    name, digits = found["name"], found["digits"]
    word = NAMES.get(name) or (name if len(name) == 1 else rf"\text{{ {name} }}")
    return f"{word.strip()}_{{{digits}}}" if digits else word


def write_font(path):
    options = subset.Options(flavor="woff")
    font = subset.load_font(str(files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf"), options)
    made = subset.Subsetter(options)
    made.populate(text=string.printable, unicodes=LETTERS + OPERATORS)
    made.subset(font)
    path.parent.mkdir(parents=True, exist_ok=True)
    subset.save_font(font, str(path), options)
