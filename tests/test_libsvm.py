"""The reader against a slow reference, whatever cuts, blocks and threads; the writer against the reader."""

import bz2
import contextlib
import gzip
import importlib
import io
import lzma
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zlib

import numpy as np
import pytest
from libsvm_reference import Wrong, read
from scipy import sparse

from marginlinear.errors import DataError
from marginlinear.libsvm import dump_libsvm, libsvm_blocks, load_libsvm, read_libsvm
from marginlinear.libsvm.parser import Block
from marginlinear.libsvm.reader import Frames, readinto_of

GOOD = (b"\xef\xbb\xbf# made by hand\n"
        b"+1 1:0.5 3:-1.25e-3 12345:7\r\n"
        b"-1\t2:1\t\t4:.5  # why\n"
        b"\n   \n"
        b"2\n"
        b"0.1 7:123456789012345678901234567890 8:0 9:1e-400 10:5. 11:0.12345678 12:0.123456789  \n"
        b"1e0 1:1 22:22 333:333 4444:4444.5 55555:55555 666666:666666 7777777:7777777.25 "
        b"88888888:88888888#end\n"
        b"-3 2147483647:-0")


def same(got, expected):
    """Are two results of read_libsvm the same bits?"""
    for name in ("data", "indices", "indptr", "labels"):
        a, b = getattr(got, name), getattr(expected, name)
        if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            return False
    return got.n_features == expected.n_features


def outcome(data, **options):
    """What read_libsvm makes of bytes: the result, or the error."""
    try:
        return read_libsvm(io.BytesIO(data), **options)
    except DataError as error:
        return error


def assert_as_reference(data, **options):
    got = outcome(data, **options)
    flags = {name: options[name] for name in ("zero_based", "text_labels", "multilabel") if name in options}
    try:
        labels, rows = read(data, **flags)
    except Wrong as wrong:
        assert isinstance(got, DataError), (data, wrong.place)
        assert (got.line, got.column) == wrong.place, (data, got)
        return
    assert not isinstance(got, DataError), (data, str(got))
    assert got.labels.tolist() == labels
    assert got.indptr.tolist() == np.cumsum([0] + [len(row) for row in rows]).tolist()
    assert got.indices.tolist() == [index for row in rows for index, _ in row]
    expected = np.array([value for row in rows for _, value in row])
    assert got.data.tobytes() == expected.tobytes(), data
    assert got.n_features == max([index + 1 for row in rows for index, _ in row], default=0)


class FailsAtTheEnd(io.BytesIO):
    def readinto(self, room):
        n = super().readinto(room)
        if n < len(room):
            raise OSError("the disk is broken")
        return n


def test_cuts_do_not_depend_on_threads_behind_a_long_line():
    """The rows of each part, and which comes first: an error in a line, or that of the stream."""
    text = b"1 " + b" " * 3000 + b"1:1\n" + b"2 2:1\n" * 300
    bad = text + b"1 1:x\n" + b"1 1:1\n" * 50
    parts, errors = set(), set()
    for threads in (1, 2, 3, 4):
        how = {"threads": threads, "_block_size": 64}
        parts.add(tuple(len(part.labels) for part in libsvm_blocks(io.BytesIO(text), **how)))
        with pytest.raises((DataError, OSError)) as error:
            read_libsvm(FailsAtTheEnd(bad), **how)
        errors.add(str(error.value))
    assert len(parts) == 1 and len(*parts) > 2
    assert len(errors) == 1 and ":302:5: " in errors.pop()


def test_everything_accepted():
    got = read_libsvm(io.BytesIO(GOOD))
    assert got.labels.tolist() == [1, -1, 2, 0.1, 1, -3]
    assert got.labels.dtype == np.float64
    assert got.indptr.tolist() == [0, 3, 5, 5, 11, 19, 20]
    assert got.data[:5].tolist() == [0.5, -1.25e-3, 7, 1, 0.5]
    assert got.data[5:11].tolist() == [123456789012345678901234567890.0, 0, 0, 5, 0.12345678, 0.123456789]
    assert got.n_features == 2147483647
    assert np.signbit(got.data[-1])
    assert (got.data.dtype, got.indices.dtype, got.indptr.dtype) == (np.float64, np.int32, np.int64)
    assert all(array.flags.writeable for array in (got.data, got.indices, got.indptr, got.labels))
    assert_as_reference(GOOD)


@pytest.mark.parametrize(("text", "labels"), [
    (b"1\n2\n", [1, 2]), (b"+1 1:1\n1.0\n1e0\n-1", [1, 1, 1, -1]), (b"-0\n", [0]),
    (b"9007199254740991\n", [2**53 - 1]), (b"# c\n1\n", [1]), (b"1#c\n", [1]), (b"1 1:1#c\n", [1]),
    (b"1\r\n", [1]), (b" \t1 \t\r\n", [1]), (b"1", [1]), (b"\xef\xbb\xbf1\n", [1]),
    (b"1 \n\n\n2\n\n", [1, 2]),
])
def test_whole_labels_are_integers(text, labels):
    got = read_libsvm(io.BytesIO(text))
    assert got.labels.dtype == np.int64
    assert got.labels.tolist() == labels


BAD = [
    # text, line, column, words of the reason
    (b"1 1:1\n1 0:1\n", 2, 3, ["index 0", "'0:1'", "--zero-based"]),
    (b"1 2:1 2:1\n", 1, 7, ["'2:1'", "after index 2", "rise"]),
    (b"1 3:1 2:1\n", 1, 7, ["'2:1'", "after index 3"]),
    (b"1 00000000003:1 2:1\n", 1, 17, ["after index 3"]),
    (b"1 -1:1\n", 1, 3, ["'-1:1'", "negative"]),
    (b"1 a:1\n", 1, 3, ["'a:1'", "index:value"]),
    (b"1 2147483648:1\n", 1, 3, ["2147483647"]),
    (b"1 4294967297:1\n", 1, 3, ["2147483647"]),
    (b"1 99999999999999999999999:1\n", 1, 3, ["2147483647"]),
    (b"1 1: 2:2\n", 1, 3, ["'1:'", "no value"]),
    (b"1 1:\n", 1, 3, ["no value"]),
    (b"1 1:#c\n", 1, 3, ["no value"]),
    (b"1 1:", 1, 3, ["no value"]),
    (b"1 1 :1\n", 1, 3, ["'1'", "index:value"]),
    (b"1 :1\n", 1, 3, ["':1'", "no index"]),
    (b"1 1:1 garbage\n", 1, 7, ["'garbage'", "index:value"]),
    (b"1 1:1 2\n", 1, 7, ["'2'", "index:value"]),
    (b"1 1:0x1p3\n", 1, 5, ["'0x1p3'", "not a number"]),
    (b"1 1:1_0\n", 1, 5, ["'1_0'", "not a number"]),
    (b"1 1_0:1\n", 1, 3, ["'1_0:1'"]),
    (b"1 1:1,5\n", 1, 5, ["'1,5'", "not a number"]),
    (b"1 1:1:2\n", 1, 5, ["'1:2'", "not a number"]),
    (b"1 1:--1\n", 1, 5, ["'--1'"]),
    (b"1 1:-\n", 1, 5, ["'-'"]),
    (b"1 1:.\n", 1, 5, ["'.'"]),
    (b"1 1:1e\n", 1, 5, ["'1e'"]),
    (b"1 1:1e+\n", 1, 5, ["'1e+'"]),
    (b"1 1:abc\n", 1, 5, ["'abc'"]),
    (b"1 1:1\x0b2:1\n", 1, 5, ["not a number"]),
    (b"1 1:1 2:2\x00\n", 1, 9, ["'2\\x00'", "not a number"]),
    (b"\x00\x00\n", 1, 1, ["'\\x00\\x00'", "not a number"]),
    (b"1 1:\xff\n", 1, 5, ["'\\xff'"]),
    (b"1 1:nan\n", 1, 5, ["'nan'", "not finite"]),
    (b"1 1:NaN 2:2\n", 1, 5, ["'NaN'", "not finite"]),
    (b"1 1:inf\n", 1, 5, ["not finite"]),
    (b"1 1:-Infinity\n", 1, 5, ["not finite"]),
    (b"1 1:1e400\n", 1, 5, ["'1e400'", "too large for float64"]),
    (b"1\n1 5:2 7:-1e99999999999999999\n", 2, 9, ["too large"]),
    (b" 1:1 2:2\n", 1, 2, ["'1:1'", "no label"]),
    (b"1:1 2:2\n", 1, 1, ["no label"]),
    (b"nan 1:1\n", 1, 1, ["'nan'", "not finite"]),
    (b"-inf 1:1\n", 1, 1, ["not finite"]),
    (b"1e400 1:1\n", 1, 1, ["not below 2^53"]),
    (b"9007199254740991 1:1\n9007199254740993 1:1\n", 2, 1, ["not below 2^53"]),
    (b"1 1:1\n1,2 1:1\n", 2, 1, ["'1,2'", "several labels", "--multilabel", "--text-labels"]),
    (b"1,2,3 # a:b\n", 1, 1, ["'1,2,3'", "CSV", "ends in .csv", "numpy.loadtxt", "dump_libsvm"]),
    (b"sepal,petal\n5.1,3.5\n", 1, 1, ["'sepal,petal'", "CSV"]),
    (b"1\n5.1, 3.5, ham\n", 2, 1, ["'5.1,'", "CSV"]),
    (b"1 1:1\ncat 1:1\n", 2, 1, ["'cat'", "--text-labels", "text_labels=True"]),
    (b"0x1 1:1\n", 1, 1, ["'0x1'", "not a number"]),
    (b"1 qid:1 1:1\n", 1, 3, ["'qid:1'", "not supported"]),
    (b"\xef\xbb\xbf+x\n", 1, 4, ["'+x'"]),
    (b"1\n\xef\xbb\xbf1\n", 2, 1, ["not a number"]),
    (b"# c\r\n\r\n1 1:1\r\n  # d\n1 1:1 x" + b"y" * 100 + b"\r\n", 5, 7, ["'x" + "y" * 38 + "...'"]),
    (b"", 0, 0, ["no rows", "empty"]),
    (b"\tc# 1:1 2:2\n", 1, 2, ["label 'c' ends at '#', which begins a comment", "a blank before a comment"]),
    (b"# only\n\n  \n#", 0, 0, ["no rows", "comments"]),
    (b"\xef\xbb\xbf", 0, 0, ["no rows"]),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), BAD)
def test_bad_input(text, line, column, words, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(text)
    for threads in (1, 2):
        with pytest.raises(DataError) as caught:
            read_libsvm(path, threads=threads, _block_size=8)
        assert (caught.value.line, caught.value.column) == (line, column)
        assert all(word in caught.value.reason for word in words), caught.value.reason
        assert str(caught.value).startswith(f"{path}:{line}:{column}: " if line else f"{path}: ")
    assert_as_reference(text)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("zero_based", [False, True])
@pytest.mark.parametrize(("text", "line", "column"), [
    (b"1 1:1\n", 1, 3),
    (b"# 9:1\n\r\n1 1:1  3:1 \t# 9:1\n1\n2 3:1\n", 3, 8),
    (b"\xef\xbb\xbf1 7:1 70:1\n1 7:1\n", 1, 10),
    (b"1 1:1\n" * 100 + b"2 1:1 2147483646:-1e-3#" + b"\n1 2:1" * 100, 101, 7),
    (b"1 5:1\n1\n2 5:1\n", 1, 3),
    (b"1\n2\n", 0, 0),
])
def test_where_the_largest_index_stands(text, line, column, zero_based, threads, tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(text)
    for source, name in (path, str(path)), (io.BytesIO(text), "<file object>"):
        read = read_libsvm(source, zero_based=zero_based, threads=threads, _block_size=16)
        assert read.largest == (name, line, column)
    blocks = [block.largest for block in libsvm_blocks(path, zero_based=zero_based, threads=threads, _block_size=16)]
    assert (str(path), line, column) in blocks


def test_zero_based():
    got = read_libsvm(io.BytesIO(b"1 0:5 3:6\n"), zero_based=True)
    assert (got.indices.tolist(), got.n_features) == ([0, 3], 4)
    error = outcome(b"1 2147483647:1\n", zero_based=True)
    assert (error.column, "above 2147483646" in error.reason) == (3, True)
    assert read_libsvm(io.BytesIO(b"1 2147483646:1\n"), zero_based=True).n_features == 2**31 - 1


def test_n_features():
    assert read_libsvm(io.BytesIO(b"1 3:1\n"), n_features=9).n_features == 9
    assert read_libsvm(io.BytesIO(b"1 9:1\n"), n_features=9).n_features == 9
    for text in (b"1\n1 1:1 10:1\n", b"1\n1 1:1 99999999999:1\n"):
        error = outcome(text, n_features=9)
        assert (error.line, error.column) == (2, 7)
        assert "above 9" in error.reason
    assert outcome(b"1 3:1\n", n_features=3, zero_based=True).column == 3
    for wrong in (0, -1, 2**31):
        with pytest.raises(ValueError, match="n_features"):
            read_libsvm(io.BytesIO(b"1\n"), n_features=wrong)


def test_text_labels():
    got = read_libsvm(io.BytesIO("cat 1:1\nh\u00e9 #c\n#c\n1,2 1:1#x\n1\n".encode()), text_labels=True)
    assert got.labels.tolist() == ["cat", "h\u00e9", "1,2", "1"]
    assert got.labels.dtype.kind == "U"
    error = outcome(b"cat 1:1\n2:2\n", text_labels=True)
    assert (error.line, error.column, "no label" in error.reason) == (2, 1, True)
    error = outcome(b"1# 1:1\n", text_labels=True)
    assert (error.line, error.column, "ends at '#'" in error.reason) == (1, 1, True)
    error = outcome(b"c\0 1:1\n", text_labels=True)
    assert (error.line, error.column, "control character" in error.reason) == (1, 1, True)
    for block_size in (1, 100):
        for text in (b"a 1:1\n\n# \xff\n b\xff 1:1\nc x\n", b"\xef\xbb\xbf b\xff\n"):
            error = outcome(text, text_labels=True, _block_size=block_size)
            assert (error.line, error.column) == ((4, 2) if text[:1] == b"a" else (1, 5))
            assert "UTF-8" in error.reason
            assert_as_reference(text, text_labels=True)


@pytest.mark.parametrize("zero_based", [False, True])
def test_every_cut(zero_based):
    for cut in range(len(GOOD) + 1):
        assert_as_reference(GOOD[:cut], zero_based=zero_based)
    start = GOOD.index(b"0.1")
    for cut in range(start, start + 200):
        assert_as_reference(GOOD[cut:], zero_based=zero_based)


def test_blocks_and_threads_do_not_matter():
    whole = read_libsvm(io.BytesIO(GOOD))
    for threads in (1, 2, 3, 8):
        for block_size in (*range(1, 40, 1 if threads == 2 else 5), 100, 1000):
            assert same(outcome(GOOD, threads=threads, _block_size=block_size), whole)


@pytest.mark.parametrize(("text", "line", "column", "words"), BAD)
def test_first_error_is_reported(text, line, column, words):
    """Two errors: the first in the file counts, whatever block or thread meets which."""
    if line == 0 or b"\xef" in text:
        return
    text = b"1 1:1\n" * 3 + text + (b"\n" if text[-1:] != b"\n" else b"") + b"1 1:1\n" * 20 + b"oops\n"
    for threads in (1, 2, 3, 8):
        for block_size in (1, 7, 30, 1000):
            error = outcome(text, threads=threads, _block_size=block_size)
            assert (error.line, error.column) == (line + 3, column)


def random_text(rng, rows, width=1000, per_row=20):
    """Rows of mixed shapes: decimals short and long, whole numbers, exponents."""
    lines = []
    for _ in range(rows):
        indices = np.sort(rng.choice(width, rng.integers(0, per_row), replace=False)) + 1
        features = []
        for index in indices:
            value = rng.standard_normal() * 10.0 ** rng.integers(-9, 9)
            style = rng.integers(5)
            text = ("1", str(int(value)), f"{value:.6g}", repr(float(value)), f"{value:.3f}")[style]
            features.append(f"{index}:{text}")
        lines.append(" ".join([str(rng.integers(-3, 4)), *features]))
    return ("\n".join(lines) + "\n").encode()


def test_random_files():
    rng = np.random.default_rng(0)
    for _ in range(20):
        text = random_text(rng, 60)
        assert_as_reference(text)
        whole = outcome(text)
        assert same(outcome(text, threads=3, _block_size=97), whole)


def test_float32_is_rounded_once():
    """A decimal next to the middle of two float32 rounds the wrong way if float64 stands between."""
    rng = np.random.default_rng(1)
    left = rng.uniform(0.001, 1, 2000).astype(np.float32)
    right = np.nextafter(left, np.float32(2))
    middle = (left.astype(np.float64) + right.astype(np.float64)) / 2
    tokens, expected = [], []
    for value, low, high in zip(middle.tolist(), left.tolist(), right.tolist(), strict=True):
        exact = f"{value:.60f}".rstrip("0")
        even = low if np.float32(low).view(np.uint32) % 2 == 0 else high
        below = exact[:-1] + "4999"
        tokens += [exact, exact + "0000000001", below]
        expected += [even, high, low]
    largest = np.finfo(np.float32).max
    tokens += ["16777217", "16777219", "0.1", "1e-45", "1e-46", "3.4028235e38", "3402823567797336427e20"]
    expected += [16777216, 16777220, np.float32(0.1), np.float32(1e-45), 0, largest, largest]
    got = read_libsvm(io.BytesIO("".join(f"1 1:{token}\n" for token in tokens).encode()), dtype="float32")
    assert got.data.dtype == np.float32
    assert got.data.tolist() == np.array(expected, np.float32).tolist()
    for token in ("1e39", "3.4028236e38"):
        error = outcome(f"1 1:{token}\n".encode(), dtype=np.float32)
        assert (error.column, "too large for float32" in error.reason) == (5, True)
    with pytest.raises(ValueError, match=r"dtype = .int64. is not allowed"):
        read_libsvm(io.BytesIO(b"1\n"), dtype=int)


def test_float32_equals_float64_then_rounded():
    text = random_text(np.random.default_rng(2), 300)
    single, double = outcome(text, dtype=np.float32), outcome(text)
    assert (single.data == double.data.astype(np.float32)).all()


def test_source_kinds(tmp_path):
    whole = read_libsvm(io.BytesIO(GOOD))
    path = tmp_path / "data.txt"
    path.write_bytes(GOOD)

    class OnlyRead:
        def __init__(self):
            self.inner = io.BytesIO(GOOD)

        def read(self, n):
            return self.inner.read(min(n, 7))

    for source in (path, str(path), os.fsencode(path), OnlyRead()):
        assert same(read_libsvm(source), whole)
    with open(path, "rb") as file:
        assert same(read_libsvm(file), whole)
        assert not file.closed
    with open(path) as file, pytest.raises(TypeError, match="binary mode"):
        read_libsvm(file)
    with pytest.raises(TypeError, match="int"):
        read_libsvm(3)
    with pytest.raises(FileNotFoundError):
        read_libsvm(tmp_path / "missing")
    with pytest.raises(OSError, match=r"directory|denied"):
        read_libsvm(tmp_path)


def zstd():
    """The module that packs zstd data."""
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        return pytest.importorskip("zstandard", reason="zstandard is missing: pip install zstandard")


@pytest.mark.parametrize("module", [gzip, bz2, lzma, zstd])
def test_compressed(module, tmp_path):
    module = zstd() if module is zstd else module
    text = random_text(np.random.default_rng(3), 400)
    whole = read_libsvm(io.BytesIO(text))
    path = tmp_path / "name says nothing"
    path.write_bytes(module.compress(text[:1000]) + module.compress(text[1000:]))
    for threads in (1, 3):
        assert same(read_libsvm(path, threads=threads, _block_size=1000), whole)
    whole_file = path.read_bytes()
    for cut in (12, 40, len(whole_file) // 2, len(whole_file) - 3):
        with pytest.raises(DataError, match="damaged or cut short"):
            read_libsvm(io.BytesIO(whole_file[:cut]), threads=2, _block_size=500)
    path.write_bytes(module.compress(b"1 1:1\n1 x\n"))
    with pytest.raises(DataError) as caught:
        read_libsvm(path)
    assert (caught.value.line, caught.value.column) == (2, 3)
    path.write_bytes(module.compress(b""))
    with pytest.raises(DataError, match="no rows"):
        read_libsvm(path)


def test_frames_that_are_cut_short():
    """Of zlib's, whose objects are as those of the package zstandard."""
    texts = b"1 1:1\n" * 200, b"", b"2 1:0.5\n"
    frames = [*map(zlib.compress, texts)]
    whole = b"".join(frames)
    ends = np.cumsum([0, *map(len, frames)]).tolist()
    for cut in range(len(whole) + 1):
        found = io.BufferedReader(Frames(zlib.decompressobj, io.BytesIO(whole[:cut])), 64)
        if cut in ends:
            assert found.read() == b"".join(texts[:ends.index(cut)])
        else:
            with pytest.raises(EOFError, match="within a frame"):
                found.read()


def test_frames_of_zstd_may_be_there_to_be_skipped():
    frame, skipped = zstd().compress(b"1 1:1\n"), b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    assert read_libsvm(io.BytesIO(skipped + frame + skipped + frame)).labels.tolist() == [1, 1]


def test_zstd_says_what_is_missing():
    data = b"\x28\xb5\x2f\xfd" + bytes(20)
    with pytest.raises(DataError, match=r"pip install zstandard|damaged or cut short"):
        read_libsvm(io.BytesIO(data))


def test_damage_comes_after_earlier_errors():
    """Text before the damage is read first, with any number of threads."""
    noise = np.random.default_rng(0).integers(48, 58, 300_000, np.uint8).tobytes()
    data = gzip.compress(b"1 1:1\n" * 50 + b"1 x\n" + noise + b"\n")
    for threads in (1, 2, 8):
        with pytest.raises(DataError) as caught:
            read_libsvm(io.BytesIO(data[:-20]), threads=threads, _block_size=64)
        assert (caught.value.line, caught.value.column) == (51, 3)


def test_pipe():
    for threads in (1, 3):
        out, into = os.pipe()

        def write(into=into):
            with open(into, "wb", buffering=0) as pipe:
                for i in range(0, len(GOOD), 11):
                    pipe.write(GOOD[i:i + 11])

        writer = threading.Thread(target=write)
        writer.start()
        with open(out, "rb") as pipe:
            got = read_libsvm(pipe, threads=threads, _block_size=20)
        writer.join()
        assert same(got, read_libsvm(io.BytesIO(GOOD)))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(gzip.compress(GOOD)))
    writer.start()
    got = read_libsvm(path)
    writer.join()
    assert same(got, read_libsvm(io.BytesIO(GOOD)))


def test_stdin():
    code = "from marginlinear.libsvm import *; r = read_libsvm('-'); print(r.labels.tolist(), r.data.sum())"
    run = subprocess.run([sys.executable, "-c", code], input=b"1 1:2 2:3\n-1 5:4\n", capture_output=True)
    assert run.stdout.split() == [b"[1,", b"-1]", b"9.0"]
    run = subprocess.run([sys.executable, "-c", code], input=b"1 1:2 2:x\n", capture_output=True)
    assert b"DataError: <stdin>:1:9: value 'x' is not a number" in run.stderr


def test_scipy_is_not_imported():
    code = "import sys; from marginlinear.libsvm import *; read_libsvm('-'); print('scipy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], input=b"1 1:1", capture_output=True, check=True)
    assert run.stdout.strip() == b"False"


def test_progress(tmp_path):
    path = tmp_path / "data.txt"
    text = random_text(np.random.default_rng(4), 500)
    path.write_bytes(text)
    for threads in (1, 2):
        calls = []
        read_libsvm(path, threads=threads, _block_size=500,
                    progress=lambda *call, calls=calls: calls.append(call))
        assert calls[-1] == (len(text), len(text), 500)
        assert calls == sorted(calls)
        assert 2 <= len(calls) < 20
    calls = []
    read_libsvm(io.BytesIO(gzip.compress(text)), progress=lambda *call: calls.append(call))
    assert calls[-1] == (len(text), None, 500)

    def stop(done, total, rows):
        raise RuntimeError("enough")

    with no_thread_left(), pytest.raises(RuntimeError, match="enough"):
        read_libsvm(path, progress=stop, threads=3, _block_size=500)


@contextlib.contextmanager
def no_thread_left():
    before = threading.active_count()
    yield
    for _ in range(100):
        if threading.active_count() <= before:
            break
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_a_failure_on_a_thread(tmp_path, monkeypatch):
    class Failing(Block):
        def parse(self):
            if threading.current_thread() is not threading.main_thread():
                raise MemoryError("no room")
            time.sleep(0.001)
            super().parse()

    monkeypatch.setattr("marginlinear.libsvm.reader.Block", Failing)
    path = tmp_path / "data.txt"
    path.write_bytes(b"1 1:0.5 7:2\n" * 10_000)
    with no_thread_left(), pytest.raises(MemoryError, match="no room"):
        read_libsvm(path, threads=3, _block_size=100)


def test_an_interrupted_start_of_a_thread(tmp_path, monkeypatch):
    def interrupted(work, count):
        threading.Thread(target=work).start()
        raise KeyboardInterrupt

    monkeypatch.setattr("marginlinear.libsvm.reader.started", interrupted)
    path = tmp_path / "data.txt"
    path.write_bytes(b"1 1:0.5 7:2\n" * 10_000)
    with no_thread_left(), pytest.raises(KeyboardInterrupt):
        read_libsvm(path, threads=2, _block_size=100)


INTERRUPTED = """
    import faulthandler, sys, threading
    from marginlinear.libsvm import read_libsvm
    faulthandler.dump_traceback_later(60, exit=True)
    print("ready", flush=True)
    try:
        read_libsvm("-", threads=int(sys.argv[1]))
    except KeyboardInterrupt:
        print(threading.active_count(), flush=True)
        sys.exit(130)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("flood", [False, True])
def test_interrupt(threads, flood):
    """A silent pipe, and one that runs dry only after the signal: a read that waits then must have heard it."""
    text = b"1 1:0.5 2:0.25 30000:7\n" * 100
    ended = threading.Event()
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(INTERRUPTED), threads],
                          bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def feed():
            with contextlib.suppress(BrokenPipeError):
                while flood and not ended.is_set():
                    process.stdin.write(text)

        assert process.stdout.readline() == b"ready\n"
        feeder = threading.Thread(target=feed)
        feeder.start()
        time.sleep(0.4)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        ended.set()
        left = process.stdout.readline()
        seconds = time.monotonic() - start
        feeder.join()
    print(f"interrupted after {seconds:.3f} s")
    assert process.returncode == 130
    assert left == b"1\n"  # no thread is left
    assert seconds < 1


def test_one_raw_read_at_a_time():
    """Python runs between two reads of a buffered stream, so that no signal goes unheard into the second."""
    reads = []

    class Trickle(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, room):
            reads.append(len(room))
            room[:1] = b"1"
            return 1

    room = memoryview(bytearray(1 << 16))
    with io.BufferedReader(Trickle()) as stream:
        assert readinto_of(stream)(room) == 1
    assert reads == [len(room)]


def test_eight_calls_at_once(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(random_text(np.random.default_rng(5), 2000))
    expected = read_libsvm(path)
    results = []
    callers = [threading.Thread(target=lambda: results.append(read_libsvm(path, threads=2, _block_size=5000)))
               for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 8
    assert all(same(result, expected) for result in results)


MEMORY = """
    import sys
    from marginlinear.libsvm import read_libsvm

    def peak():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    read_libsvm(sys.argv[2])
    before = peak()
    r = read_libsvm(sys.argv[1], threads=2, narrow=sys.argv[3] == "narrow")
    print((peak() - before) / sum(a.nbytes for a in (r.data, r.indices, r.indptr, r.labels)))
"""


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("block_size", [40, 1 << 18])
@pytest.mark.parametrize(("last", "value", "indices", "values"), [
    ("1 65536:2", "0.5", np.uint16, np.float32), ("1 65537:2", "0.5", np.int32, np.float32),
    ("1 65536:2", "0.1", np.uint16, np.float64), ("1 70000:2", "16777217", np.int32, np.float64),
    ("1", "1e-50", np.uint16, np.float64), ("1", "1e39", np.uint16, np.float64), ("1", "-0", np.uint16, np.float32),
])
def test_narrow(last, value, indices, values, block_size, threads):
    """Arrays become wide at the first feature, or value, that asks for it, and hold the same numbers."""
    lines = [f"{i % 3} 1:{i} {i + 2}:-0.5 60000:3" for i in range(90)]
    for at in (0, 1, 50, 89):
        text = "\n".join([*lines[:at], last, f"2 5:{value}", *lines[at:]]).encode()
        wide = read_libsvm(io.BytesIO(text))
        narrow = read_libsvm(io.BytesIO(text), narrow=True, threads=threads, _block_size=block_size)
        assert (narrow.indices.dtype, narrow.data.dtype) == (indices, values)
        assert (narrow.indices == wide.indices).all()
        assert narrow.data.astype(np.float64).tobytes() == wide.data.tobytes()
        assert (narrow.indptr == wide.indptr).all() and (narrow.labels == wide.labels).all()
        zero_based = read_libsvm(io.BytesIO(text), narrow=True, zero_based=True)
        assert zero_based.indices.dtype == (np.uint16 if last == "1" else np.int32)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("block_size", [40, 1 << 18])
@pytest.mark.parametrize(("at", "row", "is_equal"), [
    (0, "2", True), (0, "2 70001:0.5", True), (0, "2 1:0.1 2:0.1", True), (0, "2 1:0.1 2:0.2", False),
    (50, "2 1:1 2:2 3:1", False), (89, "2 1:1 2:1 3:-1", False), (89, "2 1:0 2:-0", False)])
def test_rows_of_equal_values(at, row, is_equal, block_size, dtype):
    """One value a row is held while no row has two, and features are many; the numbers are the same."""
    lines = [f"{i % 3} 1:0.{i} {i + 2}:0.{i} 300:0.{i} 500:0.{i} 70000:0.{i}" for i in range(90)]
    text = "\n".join([*lines[:at], row, *lines[at:]]).encode()
    wide = read_libsvm(io.BytesIO(text), dtype=dtype)
    narrow = read_libsvm(io.BytesIO(text), dtype=dtype, narrow=True, _block_size=block_size)
    assert (narrow.equal is not None) == is_equal and wide.equal is None
    assert narrow.data.astype(np.float64).tobytes() == wide.data.astype(np.float64).tobytes()
    assert narrow.equal is None and (narrow.indices == wide.indices).all() and (narrow.indptr == wide.indptr).all()
    few = read_libsvm(io.BytesIO(text.replace(b"7000", b"700")), narrow=True, _block_size=block_size)
    assert few.equal is None and few.indices.dtype == np.uint16
    short = read_libsvm(io.BytesIO(b"1 70000:1\n" * 9), narrow=True)
    assert short.equal is None and short.data.dtype == np.float32


def test_narrow_without_features():
    for text in (b"1\n2\n", b"1\n2 65537:0.1\n"):
        wide, narrow = read_libsvm(io.BytesIO(text)), read_libsvm(io.BytesIO(text), narrow=True, _block_size=2)
        assert narrow.n_features == wide.n_features
        assert (narrow.data.tolist(), narrow.indices.tolist()) == (wide.data.tolist(), wide.indices.tolist())


def test_one_long_label_does_not_fill_the_memory():
    """Each label of an array of text takes the room of the longest: 16 GB here."""
    words = [b"x" * 100_000, *[b"y"] * 40_000]
    assert "a label of 100000 characters is too long beside 40001 rows" in str(outcome(b"\n".join(words),
                                                                                       text_labels=True))
    assert len(read_libsvm(io.BytesIO(b"\n".join(words[:10])), text_labels=True).labels[0]) == 100_000


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_memory(width, tmp_path):
    part = random_text(np.random.default_rng(6), 2000, width=10**6 if width == "wide" else 2**16, per_row=200)
    big, small = tmp_path / "big", tmp_path / "small"
    small.write_bytes(b"1 1:1\n")
    with open(big, "wb") as file:
        for _ in range(30_000_000 // len(part)):
            file.write(part)
    code = textwrap.dedent(MEMORY)
    run = subprocess.run([sys.executable, "-c", code, big, small, width], capture_output=True, check=True)
    print(f"peak memory of reading: {float(run.stdout):.2f} x the arrays")
    assert 0.9 < float(run.stdout) < 1.3


def test_load():
    X, y = load_libsvm(io.BytesIO(b"1 1:1 3:0\n2 2:5\n"), n_features=4)
    assert isinstance(X, sparse.csr_array)
    assert X.toarray().tolist() == [[1, 0, 0, 0], [0, 5, 0, 0]]
    assert (X.dtype, X.indices.dtype, X.indptr.dtype, X.nnz) == (np.float64, np.int32, np.int32, 3)
    assert X.has_canonical_format
    assert y.tolist() == [1, 2]
    X, y = load_libsvm(io.BytesIO(b"a 0:1\nb\n"), dtype=np.float32, zero_based=True, text_labels=True)
    assert (X.dtype, X.shape, y.tolist()) == (np.float32, (2, 1), ["a", "b"])
    X, _ = load_libsvm(io.BytesIO(b"1\n2\n"))
    assert X.shape == (2, 0)


def dumped(X, y, **options):
    target = io.BytesIO()
    dump_libsvm(X, y, target, **options)
    return target.getvalue()


def test_dump_looks_like_this():
    X = np.array([[0.1, 0, -2], [0, 0, 0], [0, 1e-300, 3]])
    assert dumped(X, [1, -1, 2]) == b"1 1:0.1 3:-2\n-1\n2 2:1e-300 3:3\n"
    assert dumped(X, [0.5, -0.0, 2.0], zero_based=True) == b"0.5 0:0.1 2:-2\n0\n2 1:1e-300 2:3\n"
    text = "# two\n# lines\ncaf\u00e9 1:0.1 3:-2\n"
    assert dumped(X[:1], ["caf\u00e9"], comment="two\nlines") == text.encode()


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array, sparse.lil_array,
                                  lambda X: X.toarray(), lambda X: np.asfortranarray(X.toarray())])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dump_then_load(make, dtype, tmp_path):
    rng = np.random.default_rng(7)
    X = sparse.random_array((5000, 40), density=0.1, random_state=rng, format="csr")
    bits = rng.integers(0, 2**64, X.nnz, dtype=np.uint64).view(np.float64)
    with np.errstate(all="ignore"):
        bits = bits.astype(dtype)
    X.data = np.where(np.isfinite(bits) & (bits != 0), bits, dtype(0.1))
    y = rng.integers(-5, 5, 5000)
    for name in ("d.txt", "d.gz", "d.bz2", "d.xz") if make is sparse.csr_array else ("d.txt",):
        dump_libsvm(make(X), y, tmp_path / name)
        back, labels = load_libsvm(tmp_path / name, n_features=40, dtype=dtype)
        assert (back.indptr == X.indptr).all()
        assert (back.indices == X.indices).all()
        assert back.data.tobytes() == X.data.tobytes()
        assert (labels == y).all()
    assert (tmp_path / "d.txt").read_bytes()[:2] != b"\x1f\x8b"
    assert not list(tmp_path.glob("*.tmp"))


def test_dump_sorts_and_sums_a_copy():
    values, columns = np.array([1.0, 2, 3, 0, 4]), np.array([3, 1, 3, 0, 2])
    X = sparse.csr_array((values, columns, np.array([0, 4, 5])), shape=(2, 4))
    before = X.data.copy(), X.indices.copy(), X.indptr.copy()
    assert dumped(X, [1, 2]) == b"1 2:2 4:4\n2 3:4\n"
    assert all((a == b).all() for a, b in zip(before, (X.data, X.indices, X.indptr), strict=True))


def test_dump_index_types():
    X = sparse.csr_array(np.eye(3))
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    assert dumped(X, [1, 2, 3]) == b"1 1:1\n2 2:1\n3 3:1\n"
    X = sparse.csr_array((np.ones(1), np.array([2**31 - 2]), np.array([0, 1])), shape=(1, 2**31 - 1))
    assert dumped(X, [1]) == b"1 2147483647:1\n"
    X = sparse.csr_array((np.ones(1), np.array([2**31]), np.array([0, 1])), shape=(1, 2**32))
    with pytest.raises(ValueError, match="X has 4294967296 features: at most 2147483647"):
        dumped(X, [1])
    assert dumped(np.array([[True, False], [False, True]]), [False, True]) == b"0 1:1\n1 2:1\n"
    assert dumped(np.array([[2**53 - 1]]), [1]) == b"1 1:9007199254740991\n"


def test_float_labels_survive():
    y = np.array([0.1, -1e300 / 3e290, 1 / 3, 5])
    back = read_libsvm(io.BytesIO(dumped(np.ones((4, 1)), y))).labels
    assert back.tobytes() == y.tobytes()
    single = np.array([0.1, 0.7], np.float32)
    assert (read_libsvm(io.BytesIO(dumped(np.ones((2, 1)), single))).labels == single).all()


@pytest.mark.parametrize("label", ["a b", "", "a#", "\ta", "a\u00a0b", "\ufeffa", "12:3", "a\0b", "\x1b"])
def test_labels_that_would_not_survive(label):
    with pytest.raises(ValueError, match="label"):
        dumped(np.ones((2, 1)), ["fine", label])


@pytest.mark.parametrize(("X", "y", "words"), [
    (np.array([[np.nan]]), [1], "nan or infinity"), (sparse.csr_array([[np.inf]]), [1], "row 0, feature 0 is inf"),
    (np.ones((2, 1)), [1], "y has shape"), (np.ones(2), [1, 2], "X has shape"),
    (np.ones((0, 2)), [], "X has shape"), (np.ones((1, 1)), [np.nan], "label nan is not finite"),
    (np.ones((1, 1)), [2**53], "not below"), (np.ones((1, 1)), [b"a"], "y holds .S1"),
    (np.ones((1, 1)), np.array([None]), "row 0 has no label, but None"), (np.array([[1j]]), [1], "dtype"),
    (np.array([[2**53 + 1]]), [1], "not below"), (sparse.lil_array([[2**53 + 1]]), [1], "not below"),
    (np.array([["a"]]), [1], "dtype"),
])
def test_dump_refuses(X, y, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        dump_libsvm(X, y, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_dump_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "out"
    dump_libsvm(np.ones((1, 1)), [1], path)
    path.chmod(0o640)

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        dump_libsvm(np.zeros((1, 1)), [2], path)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert path.read_bytes() == b"1 1:1\n"
    monkeypatch.undo()
    link = tmp_path / "link"
    link.symlink_to(path)
    dump_libsvm(np.zeros((1, 1)), [2], link)
    assert link.is_symlink()
    assert path.read_bytes() == b"2\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_dump_to_stdout():
    code = "from marginlinear.libsvm import *; import numpy as np; dump_libsvm(np.eye(2), [1, 2], %s)"
    for target in ("'-'", "'/dev/stdout'") if os.path.exists("/dev/stdout") else ("'-'",):
        run = subprocess.run([sys.executable, "-c", code % target], capture_output=True, check=True)
        assert run.stdout == b"1 1:1\n2 2:1\n"
    with pytest.raises(TypeError, match="binary mode"):
        dump_libsvm(np.eye(1), [1], io.StringIO())
