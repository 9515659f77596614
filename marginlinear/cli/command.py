"""The head of every command: its words taken apart, --help and --version. No NumPy here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear._version import version
from marginlinear.cli.output import DONE, run
from marginlinear.options import HELP, VERSION, CommandLine, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from marginlinear.params import Param

STATUSES = """
Exit status: 0 done, 1 bad data or a failure while running, 2 bad usage, 130 interrupted."""


def command(program: str, argv: Sequence[str] | None, options: Iterable[Param], help_text: Callable[[], Iterable[str]],
            work: Callable[[CommandLine], int], *, joined: Callable[[Sequence[str]], Sequence[str]] | None = None,
            class_weights: bool = False) -> int:
    """Exit status of `work` with the words of `argv`, those of the process unless given, as `joined` makes them;
    `help_text()` is what --help shows, line by line."""
    def begin(words: Sequence[str]) -> int:
        line = CommandLine(words if joined is None else joined(words), options, class_weights=class_weights)
        if line.given(HELP):
            print("\n".join(help_text()))
        elif line.given(VERSION):
            print(f"{program} {version}")
        else:
            return work(line)
        return DONE

    return run(program, begin, argv)


def usual(usage: str, options: Iterable[Param]) -> Iterator[str]:
    """The help text of a command whose options are those of one list."""
    yield usage
    yield from describe(options)
    yield STATUSES
