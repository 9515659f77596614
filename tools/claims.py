#!/usr/bin/env python3
"""Claims of docs/evidence.md, each tested once on sets of KEEL, and those that it then made once more on tables of R
packages: the sets of the parts of tools/study.py whose names begin with `unseen`.

    python -m tools.claims --study docs/evidence/study --write docs/evidence/study/claims.md

Two methods are compared over sets by Wilcoxon's signed-rank test, each set by the methods' means over the splits on
which the fits of both are certified; errors as parts of the reference's, without sets where that is 0. A claim of a
difference holds where the p is below 0.05 in the direction that is claimed; Holm's adjustment is for all claims of
differences of one table. A claim that two are the same holds where the Bayesian signed-rank test says with a
probability of 0.95 that they are within 0.01.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

from marginlinear.compare import statistics as S
from marginlinear.compare.measures import TITLES
from marginlinear.compare.parameters import ROPE
from tools.defaults import differences, scores_of


class Claim(NamedTuple):
    """That a method's metric is above (+1) or below (-1) the reference's in a part, or the same (0)."""

    part: str
    metric: str
    method: str
    sign: int
    reference: str = "l2svc"


KEEL = [
    *(Claim("unseen", "accuracy", method, -1) for method in ("rmm", "msvmav", "mamc")),
    *(Claim("unseen", "accuracy", method, 0) for method in ("odm", "ldm", "msv")),
    *(Claim("unseen", "log_loss", method, 1) for method in ("logistic", "rmm", "lssvm", "msvmav", "l1svc")),
    *(Claim("unseen", "aurc", method, 1) for method in ("ldm", "l1svc", "rmm")),
    Claim("unseen-bias", "accuracy", "none", -1),
    Claim("unseen-noise-20", "log_loss", "ldm", -1),
    Claim("unseen-noise-20", "brier", "ldm", -1),
    Claim("unseen-rare", "balanced", "msvmav", -1),
    *(Claim("unseen-rare", "auc", method, -1) for method in ("ldm", "rmm")),
    *(Claim("unseen-rare", "aurc", method, 1) for method in ("msvmav", "ldm", "rmm")),
    Claim("unseen-rare", "log_loss", "rmm", 1),
    Claim("unseen-rare", "brier", "logistic", -1),
    Claim("unseen-classes", "accuracy", "softmax", 1),
    *(Claim("unseen-classes", "log_loss", method, 1) for method in ("logistic", "l1svc")),
    Claim("unseen-classes", "aurc", "ovo", 1),
    *(Claim("unseen-joint", "log_loss", method, -1) for method in ("ism3", "m3svm")),
    Claim("unseen-rbf", "accuracy", "odm", 1),
    Claim("unseen-rbf", "accuracy", "odm", 0),
]
# What the page said of all sets together when those of KEEL had been counted in.
R = [
    *(Claim("unseen-r", "accuracy", method, -1) for method in ("rmm", "lssvm", "msvmav", "mamc")),
    *(Claim("unseen-r", "accuracy", method, 0) for method in ("odm", "ldm", "msv")),
    *(Claim("unseen-r", "log_loss", method, 1) for method in ("logistic", "rmm", "l1svc", "msvmav", "ldm")),
    *(Claim("unseen-r", "aurc", method, 1) for method in ("ldm", "l1svc", "rmm", "msvmav")),
    Claim("unseen-r-bias", "accuracy", "none", -1),
    *(Claim("unseen-r-classes", metric, method, 1) for metric in ("accuracy", "balanced")
      for method in ("softmax", "ovo")),
    Claim("unseen-r-classes", "accuracy", "l1svc", -1),
    *(Claim("unseen-r-classes", "log_loss", method, 1) for method in ("logistic", "l1svc")),
    Claim("unseen-r-classes", "aurc", "softmax", -1),
    Claim("unseen-r-classes", "aurc", "ovo", 1),
    *(Claim("unseen-r-joint", "accuracy", method, 1) for method in ("ism3", "m3svm")),
    *(Claim("unseen-r-joint", "log_loss", method, -1) for method in ("ism3", "m3svm")),
    Claim("unseen-r-rbf", "accuracy", "odm", 0),
    *(Claim("unseen-r-rbf", "auc", method, -1) for method in ("ldm", "l1svc")),
]


def differences_of(folder, claim):
    """The method's scores less the reference's, a set each."""
    found, missing = scores_of(folder, [claim.part], claim.metric)
    if missing:
        raise SystemExit(f"{claim.part} is not in {folder}: make it with tools/study.py")
    return differences(found, dict.fromkeys(name for name, _ in found), claim.method, claim.reference, claim.metric)


def tested(folder, claims):
    """The lines of a table."""
    less = [differences_of(folder, claim) for claim in claims]
    tests = [S.wilcoxon(d, 0 * d) for d in less]
    adjusted = [at for at, claim in enumerate(claims) if claim.sign]
    holm = dict(zip(adjusted, S.holm([tests[at].p for at in adjusted]), strict=True))
    lines = ["| part | claim | sets | mean | more, equal, less on so many sets | p | p, Holm | |",
             "| --- | --- | ---: | ---: | --- | ---: | ---: | --- |"]
    for at, (claim, d, test) in enumerate(zip(claims, less, tests, strict=True)):
        if claim.sign:
            holds = test.p < S.LEVEL and test.mean * claim.sign > 0
            verdict = "holds" if holds else "does not" if test.mean * claim.sign < 0 else "not told apart"
            p = f"{test.p:.3g} | {holm[at]:.3g}"
        else:
            same = S.bayesian_signed_rank(d, 0 * d, rope=ROPE.default)
            verdict, p = "holds" if same.equal > 1 - S.LEVEL else "not told", f"{same.equal:.3f} the same | "
        how = {1: "more", -1: "less", 0: "the same"}[claim.sign]
        lines.append(f"| {claim.part} | {TITLES[claim.metric]} of `{claim.method}`, against `{claim.reference}`: {how} "
                     f"| {len(d)} | {d.mean():+.4f} | {(d > 0).sum()}, {(d == 0).sum()}, {(d < 0).sum()} | {p} "
                     f"| {verdict} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=Path("docs/evidence/study"), help="where the parts' .csv.xz are")
    parser.add_argument("--write", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    lines = ["# Claims on sets that were not there", "", *__doc__.split("\n\n")[2].strip().splitlines()]
    for title, claims in (("Sets of KEEL", KEEL), ("Tables of R packages", R)):
        lines += ["", f"## {title}", "", *tested(args.study, claims)]
    args.write.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
