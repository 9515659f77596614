"""Mutate LIBSVM text at random and compare the library's reader with the slow reference of the tests.

    python tools/fuzz_libsvm.py [seconds] [seed]

Exit status 1 and the offending bytes at the first difference.
"""

import io
import random
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from libsvm_reference import Wrong, read

from marginlinear.libsvm import read_libsvm
from marginlinear.problem import DataError

SEEDS = [
    b"+1 1:0.5 3:-1.25e-3 12345:7\r\n-1\t2:1\t\t4:.5  # why\n\n   \n2\n",
    b"0.1 7:123456789012345678901234567890 8:0 9:1e-400 10:5. 11:0.12345678 12:0.123456789\n",
    b"1e0 1:1 22:22 333:333 4444:4444.5 666666:666666 7777777:7777777.25 88888888:88888888#end\n",
    b"-3 2147483647:-0",
    b"\xef\xbb\xbf1 1:1 2:2 3:3\n" * 5,
    b"0 1:0.1 2:0.2 3:0.3\n1 qid:1 1:nan 2:inf 3:1e999\n",
]
WORDS = [b" ", b"\n", b":", b"-", b"+", b".", b"e", b"0", b"9", b"#", b"\t", b"\r", b"\0", b",", b"nan",
         b"inf", b"1:1", b" 5:", b"\xff", b"\xef\xbb\xbf", b"e-30", b"2147483648", b"00000000", b"12345678",
         b"99999999999999999999"]


def mutated(pick):
    text = bytearray(b"".join(pick.choices(SEEDS, k=pick.randint(1, 3))))
    for _ in range(pick.randint(0, 4)):
        start = pick.randint(0, len(text))
        stop = min(len(text), start + pick.choice([0, 0, 1, 1, 2, 20]))
        piece = pick.choice(WORDS) if pick.random() < 0.8 else text[stop:stop + pick.randint(0, 30)]
        text[start:stop] = piece
    return bytes(text)


def by_library(text, **options):
    try:
        got = read_libsvm(io.BytesIO(text), **options)
    except DataError as error:
        return error.line, error.column
    return got.labels.tolist(), got.indptr.tolist(), got.indices.tolist(), got.data.tobytes()


def by_reference(text, **flags):
    try:
        labels, rows = read(text, **flags)
    except Wrong as wrong:
        return wrong.place
    values = np.array([value for row in rows for _, value in row])
    ends = np.cumsum([0] + [len(row) for row in rows]).tolist()
    return labels, ends, [index for row in rows for index, _ in row], values.tobytes()


def main(seconds=10.0, seed=0):
    pick = random.Random(seed)
    end = time.monotonic() + seconds
    count = good = 0
    while time.monotonic() < end:
        text = mutated(pick)
        flags = {"zero_based": pick.random() < 0.2, "text_labels": pick.random() < 0.2}
        threads, block_size = pick.choice([1, 1, 1, 2, 3]), pick.choice([1, 5, 64, 1 << 16])
        expected = by_reference(text, **flags)
        got = by_library(text, threads=threads, _block_size=block_size, **flags)
        if got != expected:
            print(f"seed {seed}, case {count}: {text!r}\n{flags} threads={threads} _block_size={block_size}\n"
                  f"library   {got}\nreference {expected}")
            return 1
        count += 1
        good += len(expected) > 2
    print(f"{count} texts, {good} of them without error: no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main(*(kind(word) for kind, word in zip((float, int), sys.argv[1:], strict=False))))
