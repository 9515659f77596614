"""The text that names a method of a comparison. No NumPy here.

NAME;PARAM=VALUES;PARAM=VALUES..., where NAME is

    odm                              a method of marginlinear
    sklearn:sklearn.svm.LinearSVC    a class of scikit-learn's kind, by its module
    liblinear:-s 2 -B 1              LIBLINEAR's program, or liblinear-official, with these options

and VALUES are those of a grid (see `margin-train --grid`): several are chosen from inside each training part, a single
one is fixed, and what is not named has the grid of a comparison. The word `defaults` among the PARAMs takes that grid
away: what is not named has its default. With the word `paper` it has the grid of the method's paper, where that has
one, else its value, else its default. LABEL=NAME;... gives it a name of its own in the results.
"""

from __future__ import annotations

from typing import NamedTuple

DEFAULTS, PAPER = "defaults", "paper"
SKLEARN, LIBLINEAR = "sklearn:", "liblinear:"


class Spec(NamedTuple):
    """Such a text taken apart.

    Attributes
    ----------
    label : str or None
    name : str
    values : tuple of (str, str)
        Names of parameters, and their values as text.
    defaults, paper : bool
    """

    label: str | None
    name: str
    values: tuple[tuple[str, str], ...]
    defaults: bool
    paper: bool

    @property
    def external(self) -> bool:
        return self.name.startswith((SKLEARN, LIBLINEAR))


def parse_spec(text: str) -> Spec:
    """The Spec of a text; ValueError names the part that is wrong, and the fix."""
    name, *parts = (part.strip() for part in text.split(";"))
    label = None
    if "=" in name and not name.startswith((SKLEARN, LIBLINEAR)):
        label, name = (part.strip() for part in name.split("=", 1))
    values: list[tuple[str, str]] = []
    words: list[str] = []
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if part in (DEFAULTS, PAPER):
            words.append(part)
        elif equals and key and value:
            if key in dict(values):
                raise ValueError(f"{text}: {key} stands there twice")
            values.append((key, value))
        elif part:
            raise ValueError(f"{text}: {part!r} is no PARAM=VALUES: give one such as C=0.1,1,10, {DEFAULTS} or "
                             f"{PAPER}")
    if "." in name and not name.startswith((SKLEARN, LIBLINEAR)):
        raise ValueError(f"{text}: {name} is no method of marginlinear: a class is named as {SKLEARN}{name}")
    if not name or label == "":
        raise ValueError(f"{text}: the {'method' if not name else 'label'} is missing: give NAME, NAME;PARAM=VALUES or "
                         "LABEL=NAME")
    return Spec(label, name, tuple(values), DEFAULTS in words, PAPER in words)
