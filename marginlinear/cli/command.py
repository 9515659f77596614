"""The head of every command: its words taken apart, and what it tells of itself. No NumPy here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from marginlinear._version import version
from marginlinear.cli.output import DONE, run
from marginlinear.options import COMPLETION, HELP, VERSION, CommandLine, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from marginlinear.cli.manual import Manual, Section
    from marginlinear.params import Param

STATUSES = "Exit status: 0 done, 1 bad data or a failure while running, 2 bad usage, 130 interrupted."
# What svm-train's -h is followed by.
SHRINKING = ("0", "1")


def command(program: str, argv: Sequence[str] | None, options: Iterable[Param] | Mapping[str, Iterable[Param]],
            usage: str, work: Callable[[CommandLine], int], *, common: Iterable[Param] = (), also: Iterable[Param] = (),
            sections: Callable[[], Mapping[str, Section]] = dict, topic: str = "TOPIC",
            words: Mapping[str, Iterable[str]] | None = None, statuses: str = STATUSES) -> int:
    """Exit status of `work` with the words of `argv`, those of the process unless given.

    Parameters
    ----------
    program, usage, sections, topic, words, statuses
        As Manual has them.
    options : iterable of Param, or dict
        The options, or title -> options; HELP, VERSION and COMPLETION are added.
    common : iterable of Param
        The options that --help alone shows; none: all.
    also : iterable of Param
        Options that only `sections` tell of.
    """
    titled: Any = options if isinstance(options, Mapping) else {"options": options}
    groups: dict[str, list[Param]] = {title: list(group) for title, group in titled.items()}
    help_ = HELP._replace(metavar=f"[{topic}]")
    groups[list(groups)[-1]] += [help_, VERSION, COMPLETION]
    listed = [param for group in groups.values() for param in group]
    declared = list(dict.fromkeys([*listed, *also]))

    def manual() -> Manual:
        from marginlinear.cli.manual import Manual

        return Manual(program, usage, groups, {*common, help_} if common else listed, sections, topic,
                      words or {}, statuses)

    def begin(typed: Sequence[str]) -> int:
        line = CommandLine(typed, declared)
        if line.given(HELP) and line.flag(HELP) == "-h" and line.value(HELP) in SHRINKING and line.files:
            raise UsageError(f"-h {line.value(HELP)}: svm-train's -h, shrinking, has no counterpart, and -h shows help "
                             f"here: leave it out, or give {HELP.flag} {line.value(HELP)}")
        if line.given(HELP):
            print(manual().help(line.value(HELP)), end="")
        elif line.given(VERSION):
            print(f"{program} {version}")
        elif line.given(COMPLETION):
            print(manual().completion(line.value(COMPLETION), declared), end="")
        else:
            return work(line)
        return DONE

    return run(program, begin, argv)
