"""Strict command lines: options are Params, whoever declares them. No NumPy here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from marginlinear.params import Param

HELP = Param("help", bool, False, "show this and exit")
VERSION = Param("version", bool, False, "show the version and exit")
QUIET = Param("quiet", bool, False, "no result lines and no progress; warnings stay", letter="q")
ZERO_BASED = Param("zero_based", bool, False, "features are numbered from 0 in the data file")
TEXT_LABELS = Param("text_labels", bool, False, "labels are words, which may have commas (default: they are words "
                    "where the first one begins with a letter)")
MULTILABEL = Param("multilabel", bool, False, "rows have any number of labels, with commas between; one that has none "
                   "begins with a blank (default: where there is a comma in the first label)")
NO_BREAK = "\xa0"


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

    def __init__(self, argv: Iterable[str], declared: Iterable[Param], *, class_weights: bool = False) -> None:
        """Split `argv` by the options that `declared` lists; they may stand before, between and after files.

        As in LIBLINEAR, an argument follows its letter as a word of its own. After a long name it may also be
        joined by `=`. Where an option comes twice the last one counts, but see `values`. `--` ends the options. A
        letter that several have is given for all of them: who asks knows which one is meant.
        """
        by_flag: dict[str, Param] = {}
        names: dict[str, list[str]] = {}
        for param in declared:
            for flag in (param.flag, "-" + param.letter) if param.letter else (param.flag,):
                by_flag[flag] = param
                names.setdefault(flag, []).append(param.name)
        self.files: list[str] = []
        self.class_weights: list[tuple[str, str]] = []
        self._typed: dict[str, list[tuple[str, str]]] = {}
        words = iter(argv)
        for word in words:
            if word == "--":
                self.files.extend(words)
            elif not word.startswith("-") or word == "-":
                self.files.append(word)
            elif class_weights and word.startswith("-w"):
                if word == "-w":
                    raise UsageError("-w: the label is missing, give -wLABEL FACTOR, such as -w1 2")
                self.class_weights.append((word[2:], _argument(word, words, by_flag)))
            else:
                flag, joined, text = word.partition("=") if word.startswith("--") else (word, "", "")
                meant = by_flag.get(flag)
                if meant is None:
                    raise UsageError(f"unknown option: {word}{_spaced(word, by_flag)}")
                if meant.type is bool:
                    if joined:
                        raise UsageError(f"{flag} takes no argument")
                elif not joined:
                    text = _argument(flag, words, by_flag)
                for name in names[flag]:
                    self._typed.setdefault(name, []).append((flag, text))

    def given(self, param: Param) -> bool:
        """True where the option stands on the command line."""
        return param.name in self._typed

    def meant(self, param: Param, taken: Iterable[Param]) -> bool:
        """Whether it is given, and no other one of those that are `taken` by the name it is given by."""
        flags = {flag for p in taken for flag in (p.flag, f"-{p.letter}")}
        return self.given(param) and (param.name in {p.name for p in taken} or self.flag(param) not in flags)

    def flag(self, param: Param) -> str:
        """The option's name as typed."""
        return self._typed[param.name][-1][0]

    def value(self, param: Param) -> Any:
        """The checked value of the option, its default where it is not given."""
        return self._checked(param, *self._typed[param.name][-1]) if self.given(param) else param.default

    def values(self, param: Param) -> list[Any]:
        """The checked values of an option each time that it is given."""
        return [self._checked(param, flag, text) for flag, text in self._typed.get(param.name, ())]

    def _checked(self, param: Param, flag: str, text: str) -> Any:
        if param.type is bool:
            return True
        try:
            return param.parse(text)
        except ValueError as error:
            raise UsageError(f"{flag} {text}: {error}") from None


def _argument(flag: str, words: Iterator[str], by_flag: Mapping[str, Param]) -> str:
    text = next(words, None)
    if text is None or text in by_flag or text == "--":
        raise UsageError(f"{flag}: its argument is missing")
    return text


def _spaced(word: str, by_flag: Mapping[str, Param]) -> str:
    letter, rest = word[:2], word[2:]
    if letter in by_flag and rest and by_flag[letter].type is not bool:
        return f" (an argument is a word of its own: {letter} {rest})"
    return ""


def describe(params: Iterable[Param]) -> Iterator[str]:
    """Lines of `--help` for `params`."""
    for param in params:
        names = f"-{param.letter}, {param.flag}" if param.letter else f"    {param.flag}"
        if param.type is not bool:
            names += " " + (param.metavar or {int: "N", float: "X", str: "WORD"}[param.type])
        yield from entry(names, param.help + _range(param))


def other_defaults(values: Mapping[str, Any], declared: Iterable[Param]) -> Iterator[str]:
    """Lines of `--help`: defaults of one method that are not those of `declared`."""
    if values:
        yield from entry("  by default", ", ".join(flags_with(values, declared)))


def flags_with(values: Mapping[str, Any], declared: Iterable[Param]) -> list[str]:
    """`--flag value` of each declared parameter that has one of these values, by name."""
    told = {name: value if isinstance(value, str) else f"{value:g}" for name, value in values.items()}
    return [f"{p.flag} {told[p.name]}" for p in declared if p.name in told]


def wrapped(text: str) -> list[str]:
    """Lines of text under a title of `--help`."""
    import textwrap

    return textwrap.wrap(text, 104, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def entry(names: str, text: str) -> Iterator[str]:
    """One option: its names, then what it does, wrapped."""
    import textwrap

    lines = [line.replace(NO_BREAK, " ") for line in textwrap.wrap(text, 76, break_on_hyphens=False)]
    names = "  " + names
    if len(names) < 28:
        yield f"{names:<28}{lines.pop(0)}"
    else:
        yield names
    for line in lines:
        yield f"{'':28}{line}"


def _range(param: Param) -> str:
    facts = []
    if param.type is not bool and param.default is not None:
        facts.append(f"default {param.default:g}" if param.type is float else f"default {param.default}")
    if param.allowed:
        facts.append(param.allowed.replace(", ", "," + NO_BREAK))
    return f" ({'; '.join(facts)})" if facts else ""
