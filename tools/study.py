"""The study behind docs/evidence.md: margin-compare on the sets of a folder, cut into parts that resume.

    python -m tools.study list
    python -m tools.study --dry-run binary --data DIR       # how long it takes, about
    python -m tools.study binary noise-10 --data DIR --output docs/evidence/study --journals build/study

A part writes PART.md, its tables and tests, and PART.csv.xz, each trial's choice, scores, seconds and certificate. An
interrupted one goes on from its journal.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import marginlinear as ml
from marginlinear.cli import compare
from marginlinear.params import C

SMALL = ["breast-cancer", "breastw", "colic", "fourclass", "german", "heart", "house", "pbcseq", "planning-relax",
         "promoters", "sonar", "splice", "svmguide1", "titanic", "vehicle2", "vertebra", "vote", "wdbc"]
LARGE = ["a9a", "bank", "cod-rna30k", "farm-ads", "ijcnn1", "jm1", "magic", "phishing", "pol", "rcv1-small"]
# Fits of ldm on few rows of text, and of odm and ldm over kernels of more rows, take minutes for each split.
TABLES = [one for one in LARGE if one not in ("farm-ads", "rcv1-small")]
HALVED = ["rcv1-small", "farm-ads", "amazon-reviews", "imdb", "news20bin"]
KERNELS = ["breast-cancer", "breastw", "colic", "fourclass", "heart", "house", "planning-relax", "promoters", "sonar",
           "vertebra", "vote", "wdbc"]
CLASSES = ["dna", "glass", "segment", "svmguide2", "vehicle", "webkb4"]
WIDE = ["cornell", "isolet1560", "protein-val", "digits"]
MANY = ["satimage", "shuttle", "connect-4", "usps", "letter", "mnist"]
GIVEN = ["svmguide1", "dna", "satimage", "webkb4", "usps", "letter"]
GIVEN_TEXT = ["news20bydate", "news20", "sector"]
# Of the KEEL repository, by tools/keel.py, of other origins than those above: tools/claims.py tests claims on them.
UNSEEN = ["australian", "banana", "bands", "bupa", "chess", "ionosphere", "mammographic", "monk-2", "mushroom",
          "phoneme", "pima", "ring", "saheart", "spambase", "tic-tac-toe", "twonorm", "haberman"]
UNSEEN_CLASSES = ["contraceptive", "hayes-roth", "iris", "led7digit", "marketing", "movement_libras", "penbased", "tae",
                  "texture", "vowel", "wine"]
UNSEEN_RARE = ["abalone9-18", "car-good", "cleveland-0_vs_4", "dermatology-6", "ecoli4", "flare-F",
               "kddcup-land_vs_satan", "kr-vs-k-zero_vs_eight", "lymphography-normal-fibrosis", "new-thyroid1",
               "page-blocks0", "poker-8_vs_6", "winequality-red-4", "yeast6", "zoo-3"]
UNSEEN_KERNELS = [one for one in UNSEEN if one not in ("banana", "chess", "mushroom", "phoneme", "ring", "spambase",
                                                       "twonorm")]
# Of packages of R, by tools/rtables.py, on which the claims are tested again.
TABLES_OF_R = ["ad_data", "Arrests", "attrition", "bacteria", "banknote", "cells", "CES11", "Cowles", "CPS1985",
               "crabs", "credit_data", "CreditCard", "DoctorVisits", "HMDA", "Medicaid1986", "mlc_churn", "Mroz",
               "musk", "NMES1988", "pd_speech", "PSID1982", "RecreationDemand", "ResumeNames", "stackoverflow",
               "SwissLabor", "two_class_dat", "Wells"]
CLASSES_OF_R = ["BankWages", "BEPS", "CHFLS", "Chile", "diabetes", "EquationCitations", "GSOEP9402", "hpc_data",
                "KosteckiDillon", "penguins", "Sacramento", "Salaries", "skulls", "Womenlf", "WVS"]
# Of up to 1,500 rows.
KERNELS_OF_R = ["ad_data", "attrition", "bacteria", "banknote", "Cowles", "CPS1985", "crabs", "CreditCard",
                "Medicaid1986", "Mroz", "musk", "pd_speech", "PSID1982", "RecreationDemand", "SwissLabor",
                "two_class_dat"]

# Weights of ldm's variance and mean: none, a tenth, and as much as all losses.
LDM = "ldm;lambda1=0,0.1mC,1mC;lambda2=0,0.1mC,1mC"
BINARY = ["l2svc", "l1svc", "logistic", "lssvm", "l1l2svc", "odm", LDM, "rmm", "msv", "msvmav", "mamc"]
JOINT = ["l2svc", "l1svc", "logistic", "ovo=l2svc;multiclass=ovo", "odm", "cs", "ww", "softmax", "mcodm", "lpmcsvm",
         "topk", "m3svm;norm=2,4", "ism3;norm=2,4"]
TEXT = JOINT[:9]
BEYOND = ["l2svc", "cs", *JOINT[9:]]
# Without m3svm, a fit of which takes up to a minute on text.
BEYOND_LARGE = [one for one in BEYOND if not one.startswith("m3svm")]
# Where a fit takes seconds, 3 folds and a quarter of the points of odm and mcodm.
LONG = [f"{one};mu=0,0.2,0.8;theta=0.2" if one in ("odm", "mcodm") else one for one in TEXT]
# Left out to save time: thousands of pairs of classes over 55,000 features.
NO_PAIRS = [one for one in LONG if not one.startswith("ovo")]
OF_TEXT = ["l2svc", "l1svc", "logistic", "lssvm", "odm;mu=0,0.2,0.8;theta=0.2", "ldm;lambda1=0,0.1mC;lambda2=0,0.1mC",
           "rmm;margin_bound=2", "l1l2svc", "msv", "msvmav;alpha=10,1000;beta=0.001,0.1", "mamc"]
FEW = ["l2svc", "logistic", "odm", LDM, "rmm"]
KERNELS_MORE = ["vehicle2", "german", "titanic", "pbcseq", "svmguide1", "splice"]
KERNELS_CLASSES = ["glass", "svmguide2", "vehicle", "dna"]
# Of which a trial of the joint methods takes seconds; then those of which it takes minutes, and still longer.
KERNELS_JOINT = ["segment", "cornell", "digits", "isolet1560"]
KERNELS_JOINT_LONG = ["protein-val"]
KERNELS_CLASSES_MORE = [*KERNELS_JOINT, *KERNELS_JOINT_LONG, "webkb4", "satimage"]
KERNEL_MORE = ["l2svc", "l1svc", "odm;mu=0,0.2,0.8;theta=0.2", "ldm;lambda1=0,0.1mC;lambda2=0,0.1mC", "lssvm"]
KERNEL_CLASSES = ["l2svc", "ovo=l2svc;multiclass=ovo", "cs", "mcodm;mu=0,0.2,0.8;theta=0.2"]
KERNEL = ["l2svc", "l1svc", "odm", LDM, "rmm", "lssvm"]
HALF, ROWS = ["--scale", "range"], ["--scale", "range", "--train-size", "2000"]
SCORES = ["--metric", "accuracy,balanced,auc,log_loss,brier,aurc"]
SCORES_OF_RARE = ["--metric", "balanced,accuracy,auc,log_loss,brier,aurc"]
SCORES_OF_CLASSES = ["--metric", "accuracy,balanced,log_loss,aurc"]
TESTS = ["--given-test", "--scale", "maxabs", "--metric", "accuracy,aurc", "--folds", "3"]

TESTS_OF_TEXT = [word.replace("maxabs", "unit") for word in TESTS]
# The larger the norm the larger is the best C; with norm 2 a large one is slow.
M3SVM_OF_NORMS = ["m3svm;norm=4;C=0.5,2,8,32,128,512,2048,8192", "m3svm norm 2=m3svm;norm=2;C=0.125,0.5,2,8,32"]


def fixed(method: str, **values: str) -> list[str]:
    """The method with each combination of values, C being tuned."""
    found = [""]
    for name, texts in values.items():
        found = [f"{one};{name}={text}" for one in found for text in texts.split()]
    return [f"{method}{one.replace(';', ' ').replace('=', ' ')}={method}{one}" for one in found]


def costs(methods: list[str], values: str) -> list[str]:
    """The methods, each with these values of C."""
    return [f"{one};C={values}" for one in methods]


class Part(NamedTuple):
    """One comparison: its sets, methods and options."""

    sets: list[str]
    methods: list[str]
    options: list[str]


# LOW goes below the grid of the others, HIGH above it, for sets of which most trials of several methods chose its end.
GRID, LOW, HIGH = C.grid, "log2:-13:2:9", "log2:-5:2:15"
SLICE, SLICES = "slice", 10  # the column of a row's place along the first principal component
ODM = fixed("odm", mu="0 0.2 0.5 0.8", theta="0 0.2 0.5")
MCODM = fixed("mcodm", mu="0 0.2 0.5 0.8", theta="0 0.2 0.5")
LAMBDAS = [*fixed("ldm", lambda1="0 0.01mC 0.1mC 1mC", lambda2="0 0.1mC 1mC"), f"stands=ldm;defaults;C={GRID}"]
PARTS = {
    "binary": Part(SMALL, BINARY, [*HALF, *SCORES]),
    "binary-large": Part(TABLES, BINARY, [*ROWS, *SCORES]),
    "binary-low": Part(SMALL, costs(BINARY[:-2], LOW), [*HALF, *SCORES]),
    "binary-large-low": Part(TABLES, costs(BINARY[:-2], LOW), [*ROWS, *SCORES]),
    "binary-large-high": Part(["cod-rna30k"], costs(BINARY[:-2], HIGH), [*ROWS, *SCORES]),
    "classes": Part(CLASSES, JOINT, [*HALF, *SCORES_OF_CLASSES]),
    "classes-low": Part(CLASSES, costs(TEXT, LOW), [*HALF, *SCORES_OF_CLASSES]),
    "classes-high": Part(["segment", "vehicle"], costs(TEXT, HIGH), [*HALF, *SCORES_OF_CLASSES]),
    "classes-wide": Part(WIDE, LONG, [*HALF, "--folds", "3", *SCORES_OF_CLASSES]),
    "classes-many": Part(MANY, LONG, [*ROWS, "--folds", "3", *SCORES_OF_CLASSES]),
    "classes-many-high": Part(["shuttle"], costs(LONG, HIGH), [*ROWS, "--folds", "3", *SCORES_OF_CLASSES]),
    "joint-wide": Part(WIDE, BEYOND, [*HALF, "--folds", "3", *SCORES_OF_CLASSES]),
    # mnist was told to take longer than all others together.
    "joint-many": Part(MANY[:-1], [f"{one};norm=1.25,1.5" if one == "lpmcsvm" else one for one in BEYOND],
                       [*ROWS, "--folds", "3", *SCORES_OF_CLASSES]),
    "defaults-odm": Part(SMALL, ODM, HALF),
    "defaults-odm-large": Part(LARGE, ODM, ROWS),
    "defaults-mcodm": Part(CLASSES, MCODM, HALF),
    "defaults-mcodm-many": Part(MANY[:3], MCODM, ROWS),
    "defaults-ldm": Part(SMALL, LAMBDAS, HALF),
    "defaults-rmm": Part(SMALL, [*fixed("rmm", margin_bound="1.25 1.5 2 4", bound_cost="0.01 0.1 1"),
                                 f"stands=rmm;defaults;C={GRID}"], HALF),
    "defaults-msvmav": Part(SMALL, [*fixed("msvmav", alpha="1 10 100 1000", beta="0.001 0.01 0.1 1"),
                                    "stands=msvmav;defaults"], HALF),
    "defaults-lpmcsvm": Part(CLASSES, fixed("lpmcsvm", norm="1 1.2 1.33 1.5 1.75 2"), HALF),
    "defaults-m3svm": Part(CLASSES[1:-1], fixed("m3svm", norm="1 2 3 4 6 8") + fixed("m3svm", delta="1e-6 0.01 0.1 1"),
                           HALF),
    "defaults-bias": Part(SMALL + CLASSES, ["l2svc", "none=l2svc;bias=-1", "ten=l2svc;bias=10",
                                            "free=l2svc;free_bias=true"], HALF),
    "defaults-solver": Part(SMALL + CLASSES, [f"{method};defaults;C={GRID}" for method in (
        "mcodm", "l2svc", "l1svc", "logistic", "odm", "ldm", "rmm", "cs", "ww", "softmax", "lpmcsvm")], HALF),
    **{f"noise-{100 * part:.0f}": Part(SMALL, FEW, [*HALF, *SCORES, "--label-noise", str(part)])
       for part in (0.05, 0.1, 0.2)},
    **{f"classes-noise-{100 * part:.0f}": Part(CLASSES, TEXT, [*HALF, *SCORES_OF_CLASSES, "--label-noise",
                                                              str(part)]) for part in (0.1, 0.2)},
    **{f"few-{100 * part:.0f}": Part(TABLES, FEW, [*HALF, *SCORES, "--folds", "3", "--train-size", str(part)])
       for part in (0.01, 0.05, 0.1)},
    "rare-5": Part(SMALL, [*FEW, "msvmav"], [*HALF, *SCORES_OF_RARE, "--rare", "0.05"]),
    "shifted": Part(SMALL, [*FEW, "odm-convex=odm;mu=0", "msvmav"], [*HALF, *SCORES, "--groups", SLICE]),
    "rbf": Part(KERNELS, KERNEL, [*HALF, "--kernel", "rbf", "--metric", "accuracy,balanced,auc"]),
    "rbf-more": Part(KERNELS_MORE, KERNEL_MORE, [*HALF, "--kernel", "rbf", "--folds", "3",
                                                 "--metric", "accuracy,balanced,auc"]),
    **{name: Part(sets, methods, [*HALF, "--kernel", "rbf", "--folds", "3", "--metric", "accuracy,balanced"])
       for name, sets, methods in (("rbf-classes", KERNELS_CLASSES, KERNEL_CLASSES),
                                   ("rbf-classes-joint", KERNELS_JOINT, KERNEL_CLASSES),
                                   ("rbf-classes-joint-long", KERNELS_JOINT_LONG, KERNEL_CLASSES),
                                   ("rbf-classes-joint-text", ["webkb4"], KERNEL_CLASSES),
                                   ("rbf-classes-joint-pixels", ["satimage"], KERNEL_CLASSES),
                                   ("rbf-classes-more", KERNELS_CLASSES_MORE, KERNEL_CLASSES[:2]))},
    "given": Part(GIVEN, LONG, TESTS),
    "given-text": Part(GIVEN_TEXT, NO_PAIRS, TESTS),
    # Rows of length 1, as text mostly is: there the best C of a logistic loss is large.
    "given-text-unit": Part(GIVEN_TEXT, [f"{one};C=0.5,2,8,32,128,512,2048,8192,32768,131072" if one in
                                         ("logistic", "softmax") else one for one in NO_PAIRS], TESTS_OF_TEXT),
    "given-text-joint": Part(GIVEN_TEXT, [f"{one};norm=1.25,1.5" if one == "lpmcsvm" else one for one in BEYOND_LARGE],
                             TESTS_OF_TEXT),
    "given-text-m3svm": Part(GIVEN_TEXT, ["l2svc", *M3SVM_OF_NORMS], TESTS_OF_TEXT),
    "given-pairs": Part(GIVEN_TEXT, ["l2svc", LONG[3]], TESTS_OF_TEXT),
    "given-images": Part(["mnist"], [*LONG, *BEYOND_LARGE[2:]], TESTS_OF_TEXT),
    "given-images-m3svm": Part(["mnist"], ["l2svc", *M3SVM_OF_NORMS], TESTS_OF_TEXT),
    "unseen": Part(UNSEEN, BINARY, [*HALF, *SCORES]),
    "unseen-low": Part(UNSEEN, costs(BINARY[:-2], LOW), [*HALF, *SCORES]),
    "unseen-noise-20": Part(UNSEEN, FEW, [*HALF, *SCORES, "--label-noise", "0.2"]),
    "unseen-rare": Part(UNSEEN_RARE, [*FEW, "msvmav"], [*HALF, *SCORES_OF_RARE]),
    "unseen-classes": Part(UNSEEN_CLASSES, LONG, [*HALF, "--folds", "3", *SCORES_OF_CLASSES]),
    "unseen-classes-high": Part(["penbased", "texture", "vowel"], costs(LONG, HIGH),
                                [*HALF, "--folds", "3", *SCORES_OF_CLASSES]),
    "unseen-joint": Part(UNSEEN_CLASSES, ["l2svc", *JOINT[-2:]], [*HALF, "--folds", "3", *SCORES_OF_CLASSES]),
    "unseen-rbf": Part(UNSEEN_KERNELS, KERNEL_MORE, [*HALF, "--kernel", "rbf", "--folds", "3",
                                                     "--metric", "accuracy,balanced,auc"]),
    "unseen-bias": Part(UNSEEN + UNSEEN_CLASSES, ["l2svc", "none=l2svc;bias=-1", "ten=l2svc;bias=10",
                                                  "free=l2svc;free_bias=true"], HALF),
    "unseen-r": Part(TABLES_OF_R, BINARY, [*HALF, *SCORES]),
    "unseen-r-low": Part(TABLES_OF_R, costs(BINARY[:-2], LOW), [*HALF, *SCORES]),
    "unseen-r-noise-20": Part(TABLES_OF_R, FEW, [*HALF, *SCORES, "--label-noise", "0.2"]),
    "unseen-r-classes": Part(CLASSES_OF_R, LONG, [*HALF, "--folds", "3", *SCORES_OF_CLASSES]),
    "unseen-r-joint": Part(CLASSES_OF_R, ["l2svc", *JOINT[-2:]], [*HALF, "--folds", "3", *SCORES_OF_CLASSES]),
    "unseen-r-rbf": Part(KERNELS_OF_R, KERNEL_MORE, [*HALF, "--kernel", "rbf", "--folds", "3",
                                                     "--metric", "accuracy,balanced,auc"]),
    "unseen-r-bias": Part(TABLES_OF_R + CLASSES_OF_R, ["l2svc", "none=l2svc;bias=-1"], HALF),
    # No scaling: rows of text have their weights.
    "text": Part(HALVED, OF_TEXT, ["--given-test", *SCORES, "--folds", "3"]),
    # Its set of the most features, once more for sparse weights.
    "text-sparse": Part(["news20bin"], ["l2svc", "l1l2svc"], ["--given-test", *SCORES, "--folds", "3"]),
}


def halved(path: Path, folder: Path) -> Path:
    """The set with a test part of its own, or a copy whose test part is every second row, by class."""
    if path.with_name(f"{path.name}.t").exists():
        return path
    X, y = ml.load_libsvm(path)
    order = np.argsort(y, kind="stable")
    for name, rows in ((path.name, order[::2]), (f"{path.name}.t", order[1::2])):
        rows = np.sort(rows)
        ml.dump_libsvm(X[rows], y[rows], folder / name)
    return folder / path.name


def sliced(path: Path, folder: Path) -> Path:
    """A CSV of the set's rows, each with its slice: tenths of the rows along the first principal component, of features
    scaled to [0, 1]. Parts that share no slice are samples of shifted distributions."""
    X, y = ml.load_libsvm(path)
    X = X.toarray()
    spread = np.ptp(X, axis=0)
    scaled = X / np.where(spread > 0, spread, 1)
    along = np.linalg.svd(scaled - scaled.mean(axis=0), full_matrices=False)[0][:, 0]
    places = np.argsort(np.argsort(along, kind="stable"), kind="stable") * SLICES // len(along)
    table = folder / f"{path.name}.csv"
    with open(table, "w", encoding="ascii", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["label", SLICE, *(f"x{j}" for j in range(X.shape[1]))])
        rows.writerows([label, f"s{place}", *row] for label, place, row in zip(y, places, X.tolist(), strict=True))
    return table


def run(name: str, args: argparse.Namespace) -> int:
    """One part."""
    part, journal = PARTS[name], args.journals / f"{name}.jsonl"
    table = args.output / f"{name}.csv"
    sets = [args.data / one for one in part.sets]
    if SLICE in part.options:
        sets = [sliced(path, args.journals) for path in sets]
    elif "--given-test" in part.options:
        sets = [halved(path, args.journals) for path in sets]
    words = [word for method in part.methods for word in ("-s", method)]
    words += [*part.options, "--splits", str(args.splits), "--threads", str(args.threads), "-q",
              "--resume" if journal.exists() else "--journal", str(journal), "-o", str(args.output / f"{name}.md"),
              "-o", str(table), *map(str, sets)]
    if "--given-test" in part.options:
        at = words.index("--splits")
        del words[at:at + 2]
    if args.dry_run:
        return compare.main([*words, "--dry-run"])
    began = time.process_time()
    status = compare.main(words)
    print(f"{name}: status {status}, {time.process_time() - began:.0f} CPU s", flush=True)
    if status == 0:
        (args.output / f"{name}.csv.xz").write_bytes(lzma.compress(table.read_bytes()))
        table.unlink()
    return status


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["list", *PARTS])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="where the sets are")
    parser.add_argument("--output", type=Path, default=Path("docs/evidence/study"))
    parser.add_argument("--journals", type=Path, default=Path("build/study"))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dry-run", action="store_true", help="only say how many fits there are, and how long they "
                        "take, about")
    args = parser.parse_args(argv)
    if "list" in args.parts:
        for name, part in PARTS.items():
            print(f"{name}: {len(part.sets)} sets, {len(part.methods)} methods")
        return 0
    if not args.dry_run:
        args.journals.mkdir(parents=True, exist_ok=True)
        args.output.mkdir(parents=True, exist_ok=True)
    return max(run(name, args) for name in args.parts)


if __name__ == "__main__":
    sys.exit(main())
