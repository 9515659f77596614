#!/usr/bin/env python3
"""Which defaults the study chooses: from the parts of tools/study.py that try values of a method's own parameters.

    python -m tools.defaults --study docs/evidence/study --write docs/evidence/study/defaults.md

The rule. C is chosen on each split, the method's own parameters stand still. Values are ranked by accuracy on each set,
the mean over the splits on which the fits of all are certified, and the one of best mean rank over all sets takes the
place of the default that stands if Wilcoxon's test over sets tells the two apart at 0.05, adjusted by Holm for all
values that were tried. Otherwise what stands stays. Two are compared over the splits that both have. What is lost
against tuning is the mean difference to the same method with its parameters tuned on the same splits.
"""

import argparse
import csv
import io
import lzma
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from marginlinear.compare import statistics as S
from marginlinear.compare.measures import ERRORS


class Question(NamedTuple):
    """Parts of the study that answer it, the label of what stands, where the tuned method is, and why what stands would
    stay all the same."""

    parts: tuple
    stands: str
    tuned: tuple = ()
    kept: str = ""


QUESTIONS = {
    "odm": Question(("defaults-odm", "defaults-odm-large"), "odm mu 0.8 theta 0.2", ("binary", "binary-large")),
    "mcodm": Question(("defaults-mcodm", "defaults-mcodm-many"), "mcodm mu 0.8 theta 0.2",
                      ("classes", "classes-many")),
    "ldm": Question(("defaults-ldm",), "stands", ("binary",)),
    "rmm": Question(("defaults-rmm",), "stands", ("binary",)),
    "msvmav": Question(("defaults-msvmav",), "stands", ("binary",)),
    "lpmcsvm": Question(("defaults-lpmcsvm",), "lpmcsvm norm 1.5", ("classes",)),
    "m3svm": Question(("defaults-m3svm",), "m3svm norm 4", ("classes",)),
    "solver": Question(("defaults-solver",), "mcodm"),
    "bias": Question(
        ("defaults-bias",), "none", kept="it would become the default, if -B were not LIBLINEAR's letter: a script "
        "that moves over gets LIBLINEAR's problem. The estimators and margin-compare have a bias of 1"),
}


def scores_of(folder, parts, metric="accuracy"):
    """{(set, method): {split: score}} of the trials that count in the parts that are there, and those that are not."""
    found, missing = {}, []
    for part in parts:
        path = folder / f"{part}.csv.xz"
        if not path.exists():
            missing.append(part)
            continue
        for row in csv.DictReader(io.StringIO(lzma.decompress(path.read_bytes()).decode())):
            if row["certified"] == "True" and row.get(metric):
                found.setdefault((row["set"], row["method"]), {})[row["split"]] = float(row[metric])
    return found, missing


def shared_means(found, methods):
    """{set: the methods' means over the splits on which all of them count}, without the sets that have none."""
    means = {}
    for name in dict.fromkeys(name for name, _ in found):
        scores = [found.get((name, method), {}) for method in methods]
        if splits := set.intersection(*map(set, scores)):
            means[name] = [S.to_digits(math.fsum(of[split] for split in splits) / len(splits)) for of in scores]
    return means


def differences(found, sets, method, reference, metric="accuracy"):
    """A method's means less the reference's on these sets, over the splits that the two share; errors as parts of the
    reference's, as margin-compare has them, without the sets where that is 0."""
    means = shared_means(found, [method, reference])
    pairs = [means[name] for name in sets if name in means]
    if metric in ERRORS:
        pairs = [(ours / theirs, 1) for ours, theirs in pairs if theirs > 0]
    # Two digits fewer than the means have, so that differences that are the same tie.
    return np.round([ours - theirs for ours, theirs in pairs], S.DIGITS - 2)


def answered(folder, name, question):
    """Lines of the page."""
    found, missing = scores_of(folder, question.parts)
    if not found:
        return
    order = list(dict.fromkeys([question.stands, *(method for _, method in found)]))
    means = shared_means(found, order)
    sets, scores = list(means), np.array(list(means.values()))
    ranking = S.friedman(scores)
    less = [differences(found, sets, method, question.stands) for method in order]
    holm = S.holm([S.wilcoxon(d, 0 * d).p for d in less[1:]])
    yield f"## {name}"
    yield ""
    yield f"{len(sets)} sets of {' and '.join(part for part in question.parts if part not in missing)}" + (
        f"; not there: {', '.join(missing)}." if missing else ".") + f" What stands: {question.stands}."
    yield ""
    yield "| values | mean rank | mean accuracy | less what stands | better, equal, worse on so many sets | p, Holm |"
    yield "| --- | ---: | ---: | ---: | --- | ---: |"
    for at in np.argsort(ranking.ranks, kind="stable"):
        d = less[at]
        signs = f"{(d > 0).sum()}, {(d == 0).sum()}, {(d < 0).sum()}" if at else ""
        p = f"{holm[at - 1]:.3g}" if at else ""
        yield (f"| {order[at]} | {ranking.ranks[at]:.3f} | {scores[:, at].mean():.4f} | {d.mean():+.4f} | {signs} "
               f"| {p} |")
    best = int(np.argmin(ranking.ranks))
    told = best and holm[best - 1] < S.LEVEL
    then = question.kept or "it becomes the default" if told else "the default stays"
    yield ""
    yield (f"Friedman's F {ranking.F:.3f}, p = {ranking.p:.3g}. "
           + ("What stands has the best mean rank." if not best else
              f"{order[best]} has the best mean rank, and is {'' if told else 'not '}told apart from what stands: "
              f"{then}."))
    tuned, _ = scores_of(folder, question.tuned)
    label = next((method for _, method in tuned if method.split(";")[0] == name), None)
    # A part of its own may call the tuned method as one of these.
    both = found | {(one, "tuned"): splits for (one, method), splits in tuned.items() if method == label}
    for at in dict.fromkeys((0, best)) if label else ():
        d = differences(both, sets, order[at], "tuned")
        if len(d):
            yield (f"{order[at]} less the same method tuned: {d.mean():+.4f} in the mean of {len(d)} sets, p = "
                   f"{S.wilcoxon(d, 0 * d).p:.3g} by Wilcoxon's test.")
    yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=Path("docs/evidence/study"), help="where the parts' .csv.xz are")
    parser.add_argument("--write", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    lines = ["# Which defaults the study chooses", "", *__doc__.split("\n\n")[2].strip().splitlines(), ""]
    for name, question in QUESTIONS.items():
        lines += answered(args.study, name, question)
    args.write.write_text("\n".join(lines).rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
