#!/usr/bin/env python3
"""Tables of R packages in LIBSVM's text, from those of Debian 12: on these docs/evidence.md tests its claims again.

    apt-get download r-cran-aer r-cran-cardata r-cran-hsaur3 r-cran-kernlab r-cran-mass r-cran-mclust r-cran-modeldata
    for package in *.deb; do dpkg -x $package DEBIAN; done
    pip install rdata
    python -m tools.rtables DEBIAN --output DIR

Columns become features as those of tools/keel.py. Rows with a value that is not known are left out, and so are columns
that number the rows or the persons, have dozens of words, or give the class away.
"""

import argparse
import bz2
import lzma
import warnings
import zlib
from pathlib import Path

import numpy as np

from marginlinear import dump_libsvm
from tools.keel import features_of

# Package, and of each of its tables the column of the class and those that are left out.
TABLES = {
    "AER": {"BankWages": ["job"], "CPS1985": ["union"], "CreditCard": ["card", "share", "expenditure"],
            "DoctorVisits": ["private"], "EquationCitations": ["journal", "authors", "volume", "startpage"],
            "GSOEP9402": ["school"], "HMDA": ["deny"], "Medicaid1986": ["enroll"], "NMES1988": ["insurance"],
            "PSID1982": ["union"], "RecreationDemand": ["ski"], "ResumeNames": ["call", "name"],
            "SwissLabor": ["participation"]},
    "HSAUR3": {"CHFLS": ["R_happy"], "skulls": ["epoch"]},
    "MASS": {"bacteria": ["y", "ID"], "crabs": ["sp", "index"]},
    "carData": {"Arrests": ["released"], "BEPS": ["vote"], "CES11": ["abortion", "id"], "Chile": ["vote"],
                "Cowles": ["volunteer"], "KosteckiDillon": ["hatype", "id"], "Mroz": ["lfp"], "Salaries": ["rank"],
                "WVS": ["poverty"], "Wells": ["switch"], "Womenlf": ["partic"]},
    "kernlab": {"musk": ["Class"]},
    "mclust": {"banknote": ["Status"], "diabetes": ["class"]},
    "modeldata": {"Sacramento": ["type", "city", "zip"], "ad_data": ["Class"], "attrition": ["Attrition"],
                  "cells": ["class", "case"], "credit_data": ["Status"], "hpc_data": ["class"], "mlc_churn": ["churn"],
                  "pd_speech": ["class"], "penguins": ["species"], "stackoverflow": ["Remote"],
                  "two_class_dat": ["Class"]},
}
RAW_LZMA = [{"id": lzma.FILTER_LZMA2}]


def converted(data):
    """The object that these bytes are a serialization of."""
    import rdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of attributes that pandas has no place for
        return rdata.conversion.convert(rdata.parser.parse_data(data))


def unpacked(block):
    """An object of a lazy-load data base: four bytes of its size, a letter unless it is by zlib, and the compressed."""
    if block[4:5] == b"2":
        return bz2.decompress(block[5:])
    if block[4:5] == b"Z":
        return lzma.decompress(block[5:], lzma.FORMAT_RAW, filters=RAW_LZMA)
    return zlib.decompress(block[4:])


def table_of(folder, name):
    """A data frame of a package's folder `data`, as a pandas DataFrame."""
    index = folder / "Rdata.rdx"
    if not index.exists():
        return converted((folder / f"{name}.rda").read_bytes())[name]
    start, size = map(int, converted(index.read_bytes())["variables"][name])
    return converted(unpacked(index.with_suffix(".rdb").read_bytes()[start:start + size]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packages are unpacked")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for package, tables in TABLES.items():
        folder = next(args.folder.glob(f"usr/lib/R/*/{package}/data"), None)
        if folder is None:
            parser.error(f"{args.folder} has no usr/lib/R/*/{package}/data: unpack r-cran-{package.lower()} there")
        for name, (label, *left_out) in tables.items():
            table = table_of(folder, name).drop(columns=left_out).dropna()
            X = np.hstack([features_of(column.astype(str) if column.dtype == bool else column.to_numpy())
                           for at, column in table.items() if at != label])
            y = table[label].astype(str).str.replace(" ", "_").to_numpy()
            dump_libsvm(X, y, args.output / name)
            print(f"{name}: {len(y)} rows, {X.shape[1]} features, {len(set(y))} classes")


if __name__ == "__main__":
    main()
