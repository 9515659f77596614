"""What is wrong with data, with a row of them, or with the end of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


class DataError(ValueError):
    """A file holds something that must not be read: `path:line:column: what is wrong, and the fix`.

    Attributes
    ----------
    path : str
        The file's name as given, `<stdin>` for standard input.
    line, column : int
        Counted from 1, column in bytes; 0 where the error belongs to the whole file (and then not printed).
    reason : str
    """

    def __init__(self, path: object, line: int, column: int, reason: str) -> None:
        place = f"{path}:{line}:{column}" if line else str(path)
        super().__init__(f"{place}: {reason}")
        self.path, self.line, self.column, self.reason = str(path), line, column, reason

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
