"""Strict command lines: options are Params, whoever declares them, and argparse reads them. No NumPy here."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marginlinear import errors, params
from marginlinear.params import Param

HELP = Param("help", str, None, "show the options that are used most and exit; all: every one in full; man: the manual "
             "page, as roff", letter="h", metavar="[TOPIC]", brief="show this; all: every option in full")
VERSION = Param("version", bool, False, "show the version and exit")
COMPLETION = Param("print_completion", str, None, "show what makes a shell complete this command and exit, "
                   "by shtab", choices=("bash", "zsh", "fish", "tcsh"), metavar="SHELL")
QUIET = Param("quiet", bool, False, "no result lines and no progress; warnings stay", letter="q")
ZERO_BASED = Param("zero_based", bool, False, "features are numbered from 0 in the data file")
TEXT_LABELS = Param("text_labels", bool, False, "labels are words, which may have commas (default: they are words "
                    "where the first one begins with a letter)")
MULTILABEL = Param("multilabel", bool, False, "rows have any number of labels, with commas between; one that has none "
                   "begins with a blank (default: where there is a comma in the first label)")
THREADS = params.THREADS._replace(help="threads for reading and for the rows (default: all cores)")
# LIBLINEAR's -wi: the label is part of the option.
CLASS_WEIGHT = Param("", float, None, "multiply C by FACTOR for one class, as in -w1 2 -w-1 0.5",
                     params.FACTOR.domain, letter="wLABEL", metavar="FACTOR",
                     brief="factor of C for one class, as in -w1 2")
# An argument, not an option.
NEGATIVE = re.compile(r"-\.?\d|-inf$")


class UsageError(Exception):
    """The command line cannot be understood: exit status 2."""


class CommandLine:
    """A command line taken apart, its values not looked at yet.

    Attributes
    ----------
    files : list of str
    class_weights : list of (str, str)
        Label and factor, as typed, of `-wLABEL FACTOR`.
    """

    def __init__(self, argv: Iterable[str], declared: Iterable[Param]) -> None:
        """Split `argv` by the options that `declared` lists; they may stand before, between and after files.

        As in LIBLINEAR, an argument follows its letter as a word of its own. After a long name it may also be
        joined by `=`. Where an option comes twice the last one counts, but see `values`. `--` ends the options. A
        letter that several have is given for all of them: who asks knows which one is meant.
        """
        words = list(argv)
        end = words.index("--") if "--" in words else len(words)
        known: dict[str, list[Param]] = {}
        for param in declared:
            for flag in flags(param):
                known.setdefault(flag, []).append(param)
        parser = argparse.ArgumentParser("", add_help=False, allow_abbrev=False, exit_on_error=False)
        parser._negative_number_matcher = NEGATIVE
        meant: dict[str, Param] = {}
        for word in words[:end]:
            flag = word.partition("=")[0] if word.startswith("--") else word
            if word.startswith("-") and word != "-" and not NEGATIVE.match(word) and flag not in meant:
                meant[flag] = known[flag][0] if flag in known else _class_weight(flag, known)
                parser.add_argument(flag, action=_Typed, dest="typed", nargs=nargs(meant[flag]), const="")
        found = argparse.Namespace(typed=[])
        try:
            _, self.files = parser.parse_known_args(words[:end], found)
        except argparse.ArgumentError as error:
            flag = str(error.argument_name)
            wrong: dict[Any, str] = {0: " takes no argument", None: ": its argument is missing"}
            raise UsageError(flag + wrong.get(nargs(meant[flag]), f": give {flag} {meant[flag].metavar}")) from None
        if negative := next(filter(NEGATIVE.match, self.files), None):
            raise UsageError(f"unknown option: {negative}")
        self.files += words[end + 1:]
        self.class_weights = [(flag[2:], text) for flag, text in found.typed if meant[flag] is CLASS_WEIGHT]
        self._typed: dict[str, list[tuple[str, str]]] = {}
        for flag, text in found.typed:
            for param in known.get(flag, ()):
                self._typed.setdefault(param.name, []).append((flag, text))

    def given(self, param: Param) -> bool:
        """True where the option stands on the command line."""
        return param.name in self._typed

    def meant(self, param: Param, taken: Iterable[Param]) -> bool:
        """Whether it is given, and no other one of those that are `taken` by the name it is given by."""
        return self.given(param) and not any(
            self.flag(param) in flags(p) and p.name != param.name for p in taken)

    def flag(self, param: Param) -> str:
        """The option's name as typed."""
        return self._typed[param.name][-1][0]

    def value(self, param: Param) -> Any:
        """The checked value of the option, its default where it is not given."""
        return _checked(param, *self._typed[param.name][-1]) if self.given(param) else param.default

    def values(self, param: Param) -> list[Any]:
        """The checked values of an option each time that it is given."""
        return [_checked(param, flag, text) for flag, text in self._typed.get(param.name, ())]


class _Typed(argparse.Action):
    """Keeps options and their arguments in the order in which they are typed."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        namespace.typed.append((option_string, values if isinstance(values, str) else " ".join(values)))


def flags(param: Param) -> tuple[str, ...]:
    """What an option is called, its letter first."""
    return tuple(flag for flag in (param.letter and "-" + param.letter, param.name and param.flag) if flag)


def nargs(param: Param) -> str | int | None:
    """How many arguments it takes, as argparse has it: metavar names them, one in brackets may be left out."""
    if param.type is bool:
        return 0
    return "?" if param.metavar.startswith("[") else len(param.metavar.split()) if " " in param.metavar else None


def _class_weight(flag: str, known: Mapping[str, Sequence[Param]]) -> Param:
    """CLASS_WEIGHT, if it is one; else UsageError."""
    if "-wLABEL" in known and flag.startswith("-w"):
        if flag == "-w":
            raise UsageError("-w: the label is missing, give -wLABEL FACTOR, such as -w1 2")
        return CLASS_WEIGHT
    letter, rest = flag[:2], flag[2:].lstrip("=")
    joined = rest and letter in known and nargs(known[letter][0]) != 0 and "-" + flag not in known
    raise UsageError(f"unknown option: {flag}" + (f" (an argument is a word of its own: {letter} {rest})" if joined
                                                  else did_you_mean(flag, known)))


# Letters of svm-train that none of ours is, not even in the other case, and what they mean here.
LIBSVM = {"-b": "probability"}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint at what was meant, where something known is near."""
    bare = {flag.lstrip("-").lower(): flag for flag in known}
    typed = LIBSVM[word] if LIBSVM.get(word) in bare else word.lstrip("-").lower()
    return errors.did_you_mean(typed, bare)


def _checked(param: Param, flag: str, text: str) -> Any:
    if param.type is bool:
        return True
    try:
        return param.parse(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text}{did_you_mean(text, param.choices)}: {error}") from None


def flags_with(values: Mapping[str, Any], declared: Iterable[Param]) -> list[str]:
    """`--flag value` of each declared parameter that has one of these values, by name."""
    told = {name: value if isinstance(value, str) else f"{value:g}" for name, value in values.items()}
    return [f"{p.flag} {told[p.name]}" for p in declared if p.name in told]
