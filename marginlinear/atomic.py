"""Files that appear whole or not at all, and those that grow by lines, with one writer at a time."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO


@contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """Open a binary file that takes the place of `path` when the block ends well.

    Until then the bytes go to a temporary file in the same folder, which any failure removes: whoever reads
    `path` sees the old file or the whole new one. An existing file keeps its permission bits, but those that lend a
    program its owner's rights (setuid, setgid), as the contents are others; it keeps owner and group as far as this
    process may give files away, and where it may not, the new file is its own. A symbolic link goes on pointing where
    it did. `-` is standard output; it, devices and pipes are written directly.

    Raises OSError that names `path`, for the temporary file too.
    """
    if path == "-":
        sys.stdout.flush()
        # Under `python -u` the stream below is a raw one, which may write less than it is given.
        raw = io.BufferedWriter(sys.stdout.buffer) if isinstance(sys.stdout.buffer, io.RawIOBase) else None
        out: Any = sys.stdout.buffer if raw is None else raw
        try:
            yield out
            out.flush()
        finally:
            if raw is not None:
                with suppress(OSError):  # what was not flushed above failed there
                    raw.detach()
        return
    old = _status(path)
    if old is not None and not stat.S_ISREG(old.st_mode):
        # A rename would put a plain file in the place of /dev/null. The link /dev/stdout has no other name.
        with open(path, "wb") as stream:
            yield stream
        return
    target = os.path.realpath(path)
    name = f".marginlinear-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    temporary = os.path.join(os.path.dirname(target), name)
    try:
        # "xb" obeys the umask, which tempfile.mkstemp does not.
        with open(temporary, "xb") as stream:
            if old is not None:
                _give_away(temporary, old)
                os.chmod(temporary, stat.S_IMODE(old.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename in (None, temporary):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


@contextmanager
def continuing(path: str | bytes, whole: int, size: int | None = None) -> Iterator[TextIO]:
    """Open a file of ASCII lines that goes on after its first `whole` bytes; what follows them goes.

    Raises BlockingIOError that names `path` where another process has it open by this function, or has written on it
    since it was read: where it is not of `size` bytes any more.
    """
    with open(path, "a", encoding="ascii") as stream:
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            try:
                lock(stream)
            except BlockingIOError as error:
                raise _busy(path, error.errno) from None
            except OSError:  # a file system without locks
                pass
            if size is not None and os.fstat(stream.fileno()).st_size != size:
                raise _busy(path, errno.EWOULDBLOCK)
            stream.truncate(whole)
        yield stream


def _busy(path: str | bytes, number: int | None) -> BlockingIOError:
    return BlockingIOError(number, "another process writes it: wait for its end, or give another name", path)


def lock(stream: IO[Any]) -> None:
    """Hold a lock on an open file until it is closed; BlockingIOError where another process has one, OSError where
    there are none."""
    try:
        import fcntl
    except ImportError:
        raise OSError(errno.ENOTSUP, "Windows has no flock") from None
    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_writable(path: str) -> None:
    """Raise OSError now where `replacing(path)` would for want of the folder or of permission."""
    if path == "-":
        return
    old = _status(path)
    if old is not None and stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory", os.fspath(path))
    if old is not None and not stat.S_ISREG(old.st_mode):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "permission denied", os.fspath(path))
        return
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such directory", os.fspath(path))
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "permission denied", os.fspath(path))


def _give_away(path: str, old: os.stat_result) -> None:
    """Owner and group of `path` become those of the os.stat_result `old`, or the group alone, or neither."""
    if not hasattr(os, "chown"):  # Windows
        return
    for owner in (old.st_uid, -1):
        with suppress(PermissionError):
            os.chown(path, owner, old.st_gid)
            return


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
