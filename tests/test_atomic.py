"""Files that appear whole or not at all: what of the old file the new one keeps; and those that grow by lines."""

import os
import stat

import pytest

from marginlinear.atomic import continuing, replacing

needs_owners = pytest.mark.skipif(not hasattr(os, "chown"), reason="no owners of files")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    return path


def replace(path):
    with replacing(path) as stream:
        stream.write(b"new")
    assert path.read_text() == "new" and os.listdir(path.parent) == [path.name]
    return path.stat()


@pytest.mark.skipif(os.name == "nt", reason="permission bits")
@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755, 0o4755, 0o2755, 0o6711, 0o1644])
def test_permissions_stay_but_those_of_another(path, mode):
    path.chmod(mode)
    assert stat.S_IMODE(replace(path).st_mode) == mode & ~0o6000


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_owner_and_group_stay(path):
    os.chown(path, 12345, 23456)
    path.chmod(0o4640)
    status = replace(path)
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12345, 23456, 0o640)


@needs_owners
@pytest.mark.parametrize("allowed", [(), ("group",), ("group", "owner")])
def test_owner_and_group_where_allowed(path, monkeypatch, allowed):
    given = []

    def chown(target, owner, group):
        if "group" not in allowed or (owner != -1 and "owner" not in allowed):
            raise PermissionError(1, "Operation not permitted")
        given.append((owner, group))

    monkeypatch.setattr(os, "chown", chown)
    old = path.stat()
    replace(path)
    assert given == ([(old.st_uid if "owner" in allowed else -1, old.st_gid)] if allowed else [])


@needs_owners
def test_a_failing_disk_is_no_matter_of_permission(path, monkeypatch):
    def chown(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "chown", chown)
    with pytest.raises(OSError, match="Input/output error"), replacing(path):
        pass
    assert path.read_text() == "old" and os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no flock")
def test_lines_have_one_writer_at_a_time(path):
    path.write_text("first\nsecond, cut sho")
    with continuing(os.fspath(path), 6) as stream:
        stream.write("second\n")
        stream.flush()
        for whole in (0, 6):
            with pytest.raises(BlockingIOError, match="another process writes it: wait for its end") as refused, \
                    continuing(os.fspath(path), whole):
                pass
            assert refused.value.filename == os.fspath(path)
        stream.write("third\n")
    assert path.read_text() == "first\nsecond\nthird\n"
    # Read before the lines of another process that has ended since.
    with pytest.raises(BlockingIOError, match="another process writes it"), continuing(os.fspath(path), 6, 13):
        pass
    assert path.read_text() == "first\nsecond\nthird\n"
    for _ in range(2):
        with continuing(os.devnull, 0) as one, continuing(os.devnull, 0) as two:  # anybody's
            one.write("a")
            two.write("b")
