"""LIBSVM text: the reader against the slow reference of the tests; what is read is written and read again.

An input is a byte of options, then the text. What is done with it beside reading depends on its checksum, so that
what costs much is rare: comparing with the reference, places of errors included; reading in parts; by several threads;
writing.
"""

import gzip
import io
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from zlib import crc32

import numpy as np

from marginlinear import libsvm
from marginlinear.errors import DataError
from tools.fuzz import text

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

import libsvm_reference as reference

ZERO_BASED, TEXT_LABELS, SINGLE, NARROW = (1 << bit for bit in range(4))
SIZES = 16, 64, 512, 4096  # of blocks: the upper bits of the options
TOLD = None, False, True  # of labels
COMPARED, IN_PARTS, THREADED, WRITTEN = 4, 16, 64, 32  # one in so many
PACKED = b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"
WORDS = [b"1:1", b"3:-1.25e-3", b"12345:7", b"2147483647:1", b"2147483648:1", b"99999999:12345678.12345678", b"0:1",
         b"+1", b"-1", b"9007199254740991", b"1,2", b",", b"a,b",
         b"nan", b"1:nan", b"1:inf", b"1:1e999", b"65537:1e-46",
         b"65536:0.1", b"65535:3.4028235677973366e38", b"7:16777217.0000001", b"8:1.401298464324817e-45"]
TEXTS = [
    b"+1 1:0.5 3:-1.25e-3 12345:7\r\n-1\t2:1\t\t4:.5  # why\n\n   \n2\n",
    b"0.1 7:123456789012345678901234567890 8:0 9:1e-400 10:5. 11:0.12345678 12:0.123456789\n",
    b"1e0 1:1 22:22 333:333 4444:4444.5 666666:666666 7777777:7777777.25 88888888:88888888#end\n",
    b"-3 2147483647:-0",
    b"\xef\xbb\xbf1 1:1 2:2 3:3\n" * 5,
    b"0 1:0.1 2:0.2 3:0.3\n1 qid:1 1:nan 2:inf 3:1e999\n",
    b"eins 1:1\nzwei 2:2 65536:3\n\xc3\xa9t\xc3\xa9 1:0.1 65537:16777217\n",
    b"1,2 1:1\n 2:1\n2\nb,a 1:1\n", b"b,a 1:1\na\n 1:2\n",
    gzip.compress(b"1 1:1\n2 2:1\n", mtime=0),
]


def seeds():
    return [bytes([options]) + sample for sample in TEXTS for options in (0x00, 0x1F, 0x26, 0x38)]


def mutate(rng, data, other):
    options = rng.randrange(64) if rng.random() < 0.1 or not data else data[0]
    # Short texts are fast, and reach as much.
    return bytes([options]) + text.mutate(rng, data[1:], other[1:], WORDS)[:200]


def check(data):
    options, content, chance = data[0], data[1:], crc32(data)
    words = True if options & TEXT_LABELS else TOLD[chance % 3]
    flags = {"zero_based": bool(options & ZERO_BASED), "text_labels": words, "multilabel": TOLD[chance % 5 % 3]}
    how = {**flags, "_block_size": SIZES[options >> 4 & 3]}
    in_parts = chance % IN_PARTS == 0
    read = read_parts if in_parts else read_whole
    if not in_parts:
        how |= {"dtype": "float32" if options & SINGLE else "float64", "narrow": bool(options & NARROW)}
    found = read(content, how, 1)
    outcome = found[2] if isinstance(found, tuple) else min(sum(len(part.labels) for part in found), 4)
    if chance % THREADED == 0:
        # On a thread that is not watched: what code it reaches depends on the others' turns.
        with ThreadPoolExecutor(1) as pool:
            again = pool.submit(read, content, how, 2 + chance // THREADED % 2).result()
        assert same(lists(again), lists(found)), f"by threads {lists(again)}, by one {lists(found)}"
    if chance % COMPARED == 0 and not content.startswith(PACKED):
        expected = by_reference(content, single=how.get("dtype") == "float32", **flags)
        assert same(lists(found), expected), f"library {lists(found)}, reference {expected}"
    # Blanks of Unicode and byte order marks may be read in a label, and not written.
    if chance % WRITTEN == 0 and isinstance(found, list) and "".join(map(str, lists(found)[0])).isprintable():
        written_and_read(content, how)
    return outcome


def read_whole(content, how, threads):
    """What the library reads, a list of LibsvmData; (line, column, what was wrong) of an error."""
    try:
        return [libsvm.read_libsvm(io.BytesIO(content), threads=threads, **how)]
    except DataError as error:
        return error.line, error.column, text.shape_of(error.reason)


def read_parts(content, how, threads):
    """The same, some rows at a time."""
    try:
        return list(libsvm.libsvm_blocks(io.BytesIO(content), threads=threads, **how))
    except DataError as error:
        return error.line, error.column, text.shape_of(error.reason)


def lists(found):
    """(labels, row ends, indices, values), or (line, column) of an error."""
    if isinstance(found, tuple):
        return found[:2]
    labels, ends, indices, values = [], [0], [], []
    for part in found:
        ends += [len(values) + end for end in part.indptr.tolist()[1:]]
        labels += part.labels.tolist()
        indices += part.indices.tolist()
        values += part.data.tolist()
    return labels, ends, indices, values


def by_reference(content, **how):
    try:
        labels, rows = reference.read(content, **how)
    except reference.Wrong as wrong:
        return wrong.place
    ends = list(accumulate((len(row) for row in rows), initial=0))
    return labels, ends, [index for row in rows for index, _ in row], [value for row in rows for _, value in row]


def same(one, two):
    """Labels are whole numbers or floats, as parts are cut; zeros have signs, which == does not see."""
    return one == two and repr(one[3:]) == repr(two[3:])


def written_and_read(content, how):
    """Zeros are left out, and all else comes back as it was."""
    from scipy.sparse import csr_array

    found = libsvm.read_libsvm(io.BytesIO(content), threads=1, **how)
    shape = len(found.labels), found.n_features
    X = csr_array((found.data, found.indices.astype(np.int32), found.indptr), shape=shape)
    X.has_canonical_format = True
    target = io.BytesIO()
    libsvm.dump_libsvm(X, found.labels, target, zero_based=how["zero_based"])
    # float32 is written with the digits that tell it from other float32, narrow values too.
    labels = found.labels
    several = hasattr(labels, "classes")
    kinds = {"multilabel": several, "text_labels": (labels.classes if several else labels).dtype.kind == "U"}
    again = libsvm.read_libsvm(io.BytesIO(target.getvalue()), threads=1,
                               **{**how, "dtype": found.data.dtype, **kinds})
    assert again.labels.tolist() == labels.tolist()
    # A row that would be a blank line has a zero.
    assert nonzeros(again) == nonzeros(found)


def nonzeros(read):
    rows, kept = np.repeat(np.arange(len(read.labels)), np.diff(read.indptr)), read.data != 0
    return [part[kept].tolist() for part in (rows, read.indices, read.data)]
