#!/usr/bin/env python3
"""The sets of several parts of tools/study.py taken together: mean ranks, and Wilcoxon's tests with Holm's adjustment.

    python -m tools.pooled binary binary-large --study docs/evidence/study --write docs/evidence/study/binary-all.md

The methods are those of all the parts, the first one of the first part is the reference; a set counts where they share
splits on which the fits of each are certified, and the reference has an error other than 0, of which the others' are
parts. Ranks and means are over those splits, a method is tested against the reference over all that the two share.
Parts may differ in how many rows train and in how many points a grid has: what is compared stands on the same rows of
the same set.
"""

import argparse
from pathlib import Path

import numpy as np

from marginlinear.compare import statistics as S
from marginlinear.compare.measures import ERRORS, KNOWN, TITLES
from tools.defaults import differences, scores_of, shared_means


def pooled(folder, parts, metric):
    """Lines of a metric; none where fewer than two sets have it."""
    found, each = {}, []
    for part in parts:
        of_part, missing = scores_of(folder, [part], metric)
        if missing:
            raise SystemExit(f"{part} is not in {folder}: make it with tools/study.py, or leave it out")
        if twice := {one for one, _ in found} & {one for one, _ in of_part}:
            raise SystemExit(f"{part} has sets of a part before it, {', '.join(sorted(twice))}: give one of them")
        found.update(of_part)
        each.append(dict.fromkeys(method for _, method in of_part))
    methods = [method for method in each[0] if all(method in one for one in each)]
    means = shared_means(found, methods)
    sets = [name for name, of in means.items() if metric not in ERRORS or of[0] > 0]
    if len(sets) < 2:  # which no test over sets can tell anything of
        return
    scores = np.array([means[name] for name in sets])
    ranking = S.friedman(-scores if metric in ERRORS else scores)
    less = [differences(found, sets, method, methods[0], metric) for method in methods]
    p = [S.wilcoxon(d, 0 * d).p for d in less[1:]]
    holm = S.holm(p)
    title = TITLES[metric]
    yield f"## {title[0].upper()}{title[1:]}"
    yield ""
    yield (f"{len(scores)} sets; Friedman's F {ranking.F:.3f}, p = {ranking.p:.3g}; mean ranks differ by Nemenyi's "
           f"test from {ranking.critical:.3f} on.")
    yield ""
    head = "error, as a part of the reference's" if metric in ERRORS else "less the reference"
    yield f"| method | mean rank | mean | {head} | better, equal, worse on so many sets | p | p, Holm |"
    yield "| --- | ---: | ---: | ---: | --- | ---: | ---: |"
    for at in np.argsort(ranking.ranks, kind="stable"):
        d = less[at]
        better, worse = (d < 0, d > 0) if metric in ERRORS else (d > 0, d < 0)
        cells = [f"{d.mean():+.4f}", f"{better.sum()}, {(d == 0).sum()}, {worse.sum()}", f"{p[at - 1]:.3g}",
                 f"{holm[at - 1]:.3g}"] if at else [""] * 4
        yield f"| {methods[at]} | {ranking.ranks[at]:.3f} | {scores[:, at].mean():.4f} | {' | '.join(cells)} |"
    yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", metavar="PART")
    parser.add_argument("--study", type=Path, default=Path("docs/evidence/study"), help="where the parts' .csv.xz are")
    parser.add_argument("--write", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    first = ", ".join(args.parts[:-1])
    lines = [f"# The sets of {first}{' and ' if first else ''}{args.parts[-1]}", "",
             *__doc__.split("\n\n")[2].strip().splitlines(), ""]
    for metric in KNOWN[False]:
        lines += pooled(args.study, args.parts, metric)
    args.write.write_text("\n".join(lines).rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
