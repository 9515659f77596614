"""What a command tells of itself: --help, its manual page, and what shells complete. No NumPy here."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from marginlinear._version import version
from marginlinear.cli.output import Failure
from marginlinear.errors import needed
from marginlinear.options import HELP, UsageError, did_you_mean, flags, nargs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from marginlinear.params import Param

NO_BREAK = "\xa0"
# Where the first clause of an option's help ends.
CLAUSE = re.compile(r"; |\. ")


class Section(NamedTuple):
    """A topic of --help, such as a method."""

    title: str
    text: str
    options: tuple[Param, ...]


class Manual(NamedTuple):
    """A command's declaration.

    Attributes
    ----------
    program : str
    usage : str
        "usage: ...", and paragraphs, the first of which is the summary; indented ones stay as they are.
    groups : dict
        Title -> options.
    common : collection of Param
        Those that --help alone shows.
    sections : callable
        Topic -> Section; one may have several names.
    topic : str
        What the topics are called.
    words : dict
        Name of an option, or of the first file -> what a shell completes there.
    statuses : str
    """

    program: str
    usage: str
    groups: Mapping[str, Iterable[Param]]
    common: Iterable[Param]
    sections: Callable[[], Mapping[str, Section]]
    topic: str
    words: Mapping[str, Iterable[str]]
    statuses: str

    def topics(self) -> list[str]:
        return [*(name for name in self.sections() if not name.isdecimal()), "all", "man"]

    def help(self, topic: str) -> str:
        """The text of --help; UsageError for a topic that there is not."""
        found = self.sections()
        if topic == "man":
            return self.roff()
        if topic in found:
            return _section(found[topic])
        if topic not in ("", "all"):
            raise UsageError(f"{HELP.flag} {topic}: no such topic{did_you_mean(topic, found)}: "
                             f"give {', '.join(self.topics())}")
        synopsis, summary, *rest = self.usage.strip().split("\n\n")
        if topic == "all":
            whole = _shown(self.program, self.groups, _told, synopsis, [summary, *rest], self.statuses)
            return "\n".join([whole, *map(_section, dict.fromkeys(found.values()))])
        some = {title: [p for p in options if p in self.common] for title, options in self.groups.items()}
        alone = f" --help {self.topic}: of one alone, {', '.join(self.topics()[:-2])}." if found else ""
        return _shown(self.program, some, _in_short, synopsis, [summary, *(p for p in rest if p.startswith(" "))],
                      f"--help all: every option, in full.{alone}")

    def roff(self) -> str:
        """The manual page."""
        synopsis, summary, *rest = self.usage.strip().split("\n\n")
        what = summary.partition(". ")[0].partition(" (")[0].rstrip(".:")
        lines = [f'.TH {self.program.upper()} 1 "" "marginlinear {version}"', ".ad l", ".nh", ".SH NAME",
                 f"{self.program} \\- {_escaped(what[0].lower() + what[1:])}", ".SH SYNOPSIS", ".nf",
                 *(_escaped(line[len("usage: "):]) for line in synopsis.splitlines()), ".fi",
                 ".SH DESCRIPTION", *_paragraphs([summary, *rest]), ".SH OPTIONS"]
        for title, options in self.groups.items():
            lines += [f".SS {_escaped(title)}", *_entries(options)]
        for section in dict.fromkeys(self.sections().values()):
            lines += [f".SH {_escaped(section.title)}", *_paragraphs(section.text.split("\n\n")),
                      *_entries(section.options)]
        return "\n".join([*lines, ".SH EXIT STATUS", _escaped(self.statuses.removeprefix("Exit status: "))]) + "\n"

    def completion(self, shell: str, declared: Iterable[Param]) -> str:
        """A script for the shell; Failure without shtab."""
        try:
            import shtab
        except ImportError:
            raise Failure(needed("shtab is needed", "completion")) from None

        places = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
        words = {"help": self.topics(), **self.words}
        # Of a letter that two have, either will do.
        parser = argparse.ArgumentParser(self.program, add_help=False, conflict_handler="resolve")
        for param in declared:
            action: Any = _add(parser, param, _in_short(param))
            action.choices = tuple(words.pop(param.name, param.choices)) or None
            place = (param.metavar or "").partition("|")[0]
            if place in places:
                action.complete = places[place]
        for name, choices in words.items():
            parser.add_argument(name, choices=tuple(choices))
        files: Any = parser.add_argument("files", nargs="*")
        files.complete = shtab.FILE
        return f"{shtab.complete(parser, shell)}\n"


class _Formatter(argparse.HelpFormatter):
    """Long names are not broken, nor are paragraphs joined."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(part if part.startswith(" ") else textwrap.fill(part, width, break_on_hyphens=False)
                           for part in text.split("\n\n"))

    if sys.version_info < (3, 13):
        def _format_action_invocation(self, action: argparse.Action) -> str:
            """With the argument once, as newer Pythons have it."""
            return " ".join(filter(None, [", ".join(action.option_strings), self._format_args(action, "")]))


def _shown(program: str, groups: Mapping[str, Iterable[Param]], tell: Callable[[Param], str],
           usage: str = argparse.SUPPRESS, paragraphs: Iterable[str] = (), epilog: str | None = None) -> str:
    """Help as argparse lays it out, as wide as the terminal."""
    parser = argparse.ArgumentParser(program, usage=usage.removeprefix("usage: "), description="\n\n".join(paragraphs),
                                     epilog=epilog, add_help=False, formatter_class=_Formatter)
    for title, options in groups.items():
        group = parser.add_argument_group(title)
        for param in options:
            _add(group, param, tell(param))
    return parser.format_help().replace(NO_BREAK, " ")


def _section(section: Section) -> str:
    return _shown("", {"options": section.options}, _told, paragraphs=[section.title, section.text])


def _add(group: Any, param: Param, text: str) -> argparse.Action:
    words = _arguments(param)
    kind = {"nargs": nargs(param), "metavar": tuple(words) if len(words) > 1 else words[0]} if words else {
        "action": "store_true"}
    made: argparse.Action = group.add_argument(*flags(param), help=text.replace("%", "%%"), **kind)
    return made


def _arguments(param: Param) -> list[str]:
    if param.type is bool:
        return []
    return (param.metavar.strip("[]") or {int: "N", float: "X", str: "WORD"}[param.type]).split()


def _in_short(param: Param) -> str:
    """An option in a line or two."""
    few = " | ".join(param.choices) if len(param.choices) < 5 else ""
    return (param.brief or CLAUSE.split(param.help)[0]) + _facts(_default(param), few)


def _told(param: Param) -> str:
    return param.help + _facts(_default(param), param.allowed if param.type is not bool else "")


def _default(param: Param) -> str:
    if param.type is bool or param.default is None:
        return ""
    return f"default {param.default:g}" if param.type is float else f"default {param.default}"


def _facts(*facts: str) -> str:
    told = [fact.replace(", ", "," + NO_BREAK) for fact in facts if fact]
    return f" ({'; '.join(told)})" if told else ""


def _paragraphs(texts: Iterable[str]) -> Iterable[str]:
    """Lines of roff; indented paragraphs are examples."""
    for text in texts:
        if text.startswith(" "):
            yield from (".PP", ".nf", ".RS 4", *map(_escaped, textwrap.dedent(text).splitlines()), ".RE", ".fi")
        elif text:
            yield from (".PP", _escaped(" ".join(text.split())))


def _entries(options: Iterable[Param]) -> Iterable[str]:
    for param in options:
        names = ", ".join(f"\\fB{_escaped(flag)}\\fR" for flag in flags(param))
        argument = _escaped(" ".join(_arguments(param)))
        argument = f"[{argument}]" if nargs(param) == "?" else argument
        yield from (".TP", names + (f" \\fI{argument}\\fR" if argument else ""),
                    _escaped(_told(param).replace(NO_BREAK, " ")))


def _escaped(text: str) -> str:
    return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", "\\e").replace("-", "\\-"))
