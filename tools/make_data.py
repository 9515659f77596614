#!/usr/bin/env python3
"""Makes the files of data/ from the full sets, bit for bit as they are shipped.

    tools/make_data.py SOURCE [-o data]

SOURCE holds glass.xz, vehicle.xz, segment.xz, dna.xz, dna.t.xz, news20bydate.xz and news20bydate.t.xz,
compressed LIBSVM text, and digits.csv.gz as scikit-learn ships it (sklearn/datasets/data): 64 pixels, then the
label. The first five are decompressed and nothing else; of digits the zeros are left out. news20.train and
news20.test are parts of the two news20bydate, 2,000 of 11,314 and 1,000 of 7,532 documents, small without being
of another kind:

- as many documents of each class as its share of the full part asks for (largest remainders, the lower label
  first); within a class those whose line has the smallest SHA-256; in the order of the source;
- words that occur in at least two documents of news20.train, renumbered from 1 in the order of their old
  numbers; other words are left out of both parts;
- values rounded to three significant digits. So rows are close to unit length, no longer of it.

Prints the table and the checksums of data/README.md.
"""

import argparse
import gzip
import hashlib
import lzma
import sys
from collections import Counter
from pathlib import Path

WHOLE = ["glass", "vehicle", "segment", "dna", "dna.t"]
PARTS = [("news20bydate", "news20.train", 2000), ("news20bydate.t", "news20.test", 1000)]


def shares(counts, total):
    """Splits total in proportion to counts: {label: how many}."""
    whole = sum(counts.values())
    taken = {label: total * count // whole for label, count in counts.items()}
    by_remainder = sorted(counts, key=lambda label: (-(total * counts[label] % whole), label))
    for label in by_remainder[: total - sum(taken.values())]:
        taken[label] += 1
    return taken


def choose(lines, total):
    by_label = {}
    for number, line in enumerate(lines):
        by_label.setdefault(int(line.split(None, 1)[0]), []).append(number)
    chosen = []
    for label, many in shares({label: len(rows) for label, rows in by_label.items()}, total).items():
        chosen += sorted(by_label[label], key=lambda row: hashlib.sha256(lines[row]).digest())[:many]
    return [lines[row] for row in sorted(chosen)]


def pairs(line):
    label, *features = line.split()
    return label, [(int(index), value) for index, value in (f.split(b":") for f in features)]


def renumber(line, numbers):
    label, features = pairs(line)
    kept = [b"%d:%.3g" % (numbers[i], float(value)) for i, value in features if i in numbers]
    return b" ".join([label, *kept]) + b"\n"


def from_csv(line):
    """A row of numbers, the label last, as LIBSVM text."""
    *values, label = (b"%g" % float(number) for number in line.split(b","))
    return b" ".join([label, *(b"%d:%s" % (i, v) for i, v in enumerate(values, 1) if v != b"0")]) + b"\n"


def describe(path):
    """One row of the table in data/README.md."""
    text = path.read_bytes()
    parsed = [pairs(line) for line in text.splitlines()]
    labels = sorted({int(label) for label, _ in parsed})
    features = max(features[-1][0] for _, features in parsed if features)
    nonzeros = sum(len(features) for _, features in parsed)
    counts = f"{len(parsed):,} | {features:,} | {len(labels)} | {nonzeros:,} | {len(text):,}"
    return f"| `{path.name}` | {counts} | `{hashlib.sha256(text).hexdigest()}` |"


def main(argv=None):
    p = argparse.ArgumentParser(prog="make_data.py", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source", type=Path)
    p.add_argument("-o", "--output", type=Path, default=Path(__file__).resolve().parent.parent / "data")
    args = p.parse_args(argv)

    def read(name):
        return lzma.decompress((args.source / f"{name}.xz").read_bytes())

    try:
        args.output.mkdir(parents=True, exist_ok=True)
        made = []
        for name in WHOLE:
            made.append(args.output / name)
            made[-1].write_bytes(read(name))
        made.append(args.output / "digits")
        table = gzip.decompress((args.source / "digits.csv.gz").read_bytes())
        made[-1].write_bytes(b"".join(from_csv(line) for line in table.splitlines()))
        numbers = None
        for source, name, total in PARTS:
            rows = choose(read(source).splitlines(), total)
            if numbers is None:
                documents = Counter(index for row in rows for index, _ in pairs(row)[1])
                words = sorted(index for index, count in documents.items() if count >= 2)
                numbers = {old: new for new, old in enumerate(words, 1)}
            made.append(args.output / name)
            made[-1].write_bytes(b"".join(renumber(row, numbers) for row in rows))
    except (OSError, lzma.LZMAError) as error:
        print(f"make_data: error: {error}", file=sys.stderr)
        return 1
    for path in made:
        print(describe(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
