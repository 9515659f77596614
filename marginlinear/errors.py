"""What is wrong with data, with a row of them, or with the end of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, SupportsInt

if TYPE_CHECKING:
    from marginlinear.model import Model


class Numbers(Protocol):
    """Whole numbers by their place: an array, or a range."""

    def __getitem__(self, place: int, /) -> Any: ...


def needed(what: str, extra: str) -> str:
    """That `what` is there only with an extra, and how to install it."""
    return (f"{what}: pip install '.[{extra}]' in marginlinear's clone or, once it is published, pip install "
            f"'marginlinear[{extra}]'")


def did_you_mean(typed: str, known: Mapping[str, str]) -> str:
    """A hint at what was meant, by its name in small letters, where one of the `known` {such a name: name} is near."""
    from difflib import get_close_matches

    near = [typed] * (typed in known) or get_close_matches(typed, known, 1, 0.65) or [
        name for name in known if min(len(name), len(typed)) > 2 and (name.startswith(typed) or typed.startswith(name))]
    return f" (did you mean {known[near[0]]}?)" if near else ""


class DataError(ValueError):
    """A file holds something that must not be read: `path:line:column: what is wrong; the fix`.

    Attributes
    ----------
    path : str
        The file's name as given, `<stdin>` for standard input.
    line, column : int
        Counted from 1, column in bytes, or of a table the cell's; 0 where the error belongs to the whole file (and
        then not printed).
    reason : str
        What is wrong, and the fix.
    fix : str
        The end of `reason` that is the same of all errors of one kind; empty where they have none.
    """

    def __init__(self, path: object, line: int, column: int, reason: str, fix: str = "") -> None:
        place = f"{path}:{line}:{column}" if line else str(path)
        reason = f"{reason}; {fix}" if fix else reason
        super().__init__(f"{place}: {reason}")
        self.path, self.line, self.column, self.reason, self.fix = str(path), line, column, reason, fix

    @property
    def fault(self) -> str:
        """The error without its fix."""
        return str(self).removesuffix(f"; {self.fix}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.line, self.column, self.reason), self.__dict__


class RowError(ValueError):
    """What is wrong with a row of X, counted from 0.

    Attributes
    ----------
    row : int
    text : str
        The message, with {row} in place of the number.
    """

    def __init__(self, row: SupportsInt, text: str) -> None:
        super().__init__(text.format(row=row))
        self.row, self.text = int(row), text

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.row, self.text), self.__dict__


@contextmanager
def renumber_rows(which: Numbers | None) -> Iterator[None]:
    """Within it rows were selected: an error names them as the caller does, which[i] for row i, a range for a block of
    rows; None: as they are."""
    try:
        yield
    except RowError as error:
        if which is None:
            raise
        raise RowError(which[error.row], error.text) from None


@contextmanager
def noted(where: str) -> Iterator[None]:
    """An error within it says where it was, below its message."""
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise


class Stopped(Exception):
    """An observer of a fit has asked for its end."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C has ended a fit that had something to show.

    Attributes
    ----------
    partial : Model
        That of the best weights so far, with objective and certificate of its own: made when it is first asked for,
        which takes a pass over the rows or a few.
    """

    def __init__(self, make: Callable[[], Model]) -> None:
        super().__init__("interrupted; `partial` of this exception is the model so far")
        self._make = make
        self._made: Model | None = None

    @property
    def partial(self) -> Model:
        if self._made is None:
            self._made = self._make()
        return self._made


class ConvergenceWarning(UserWarning):
    """A solver stopped before its certificate reached the tolerance; the message says what to do."""


class PartitionWarning(UserWarning):
    """Rows are spread over partitions, or these over workers, in a way that makes fits slow."""
