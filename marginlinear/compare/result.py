"""What a comparison has found: its trials, and what the tests say of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from marginlinear import params as P
from marginlinear._version import version
from marginlinear.compare import statistics as S
from marginlinear.compare.design import Design, ratio
from marginlinear.compare.measures import ERRORS, metrics_of
from marginlinear.compare.parameters import ROPE
from marginlinear.compare.sets import TOLD
from marginlinear.compare.statistics import deviation_of, mean_of
from marginlinear.compare.study import Plan
from marginlinear.data.reading import JSONFault, json_of
from marginlinear.errors import DataError
from marginlinear.problem import Summary, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from marginlinear._typing import PathLike
    from marginlinear.compare.statistics import Difference, Posterior, Ranking
    from marginlinear.compare.study import Trial


# Sets with which tests over sets begin: with five Wilcoxon's cannot find anything at 0.05.
FEW = 5


class Entrant(NamedTuple):
    """A method as the results have it: its label, what it is in a line, and all that its results depend on."""

    label: str
    described: str
    key: dict[str, Any]


class OverSets(NamedTuple):
    """The tests of a method against the first one over several sets."""

    method: str
    wilcoxon: Difference
    holm: float
    bayesian: Posterior


class Counts(NamedTuple):
    """On how many of the sets that could be tested a method is better than the first one, neither, and worse."""

    win: int
    tie: int
    loss: int


class AtEnd(NamedTuple):
    """A value at an end of a method's grid, the least or the largest, and the sets most trials of which chose it."""

    method: str
    param: str
    value: float
    least: bool
    sets: list[str]


class Comparison(Summary):
    """What `compare` found.

    Attributes
    ----------
    methods : list of str
        Their names; the first is the one that the others are compared with.
    sets : dict
        Name -> rows, features, classes, test_rows (None without a given test part), sha256.
    metrics : tuple of str
    trials : list of dict
        One a set, split and method; see docs/compare.md.
    level, rope : float
        Of the tests: how often they may find what is not there, and up to which difference there is no practical one,
        of errors as a part of the first method's.
    certified_only : bool
        Whether trials whose fit has no certificate within its tolerance are left out of means and tests.
    """

    def __init__(self, plan: Plan, entrants: Sequence[Entrant], sets: dict[str, dict[str, Any]],
                 trials: Sequence[Trial], *, level: float = S.LEVEL, rope: float = ROPE.default,
                 certified_only: bool = True) -> None:
        self.plan, self.entrants, self.sets, self.trials = plan, tuple(entrants), sets, list(trials)
        self.level, self.rope, self.certified_only = level, rope, certified_only
        self._by_place: dict[tuple[str, str], list[Trial]] = {}
        for trial in self.trials:
            self._by_place.setdefault((trial["set"], trial["method"]), []).append(trial)

    @property
    def methods(self) -> list[str]:
        return [entrant.label for entrant in self.entrants]

    @property
    def given(self) -> int:
        """How many sets came with a test part."""
        return sum(one["test_rows"] is not None for one in self.sets.values())

    @property
    def designed(self) -> str:
        """How rows were split and parameters chosen, in words."""
        return self.plan.design.sentence(self.given, len(self.sets))

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.plan.metrics

    def of(self, name: str, method: str) -> list[Trial]:
        """The trials of a method on a set."""
        return self._by_place.get((name, method), [])

    def counts_for(self, trial: Trial, metric: str) -> bool:
        """Whether a trial is among those that means and tests are made of."""
        return (trial["reason"] is None and trial["scores"].get(metric) is not None
                and (trial["certified"] or not self.certified_only))

    def scores(self, metric: str, name: str, method: str) -> dict[int, float]:
        """Split -> score, of the trials that count."""
        return {trial["split"]: trial["scores"][metric] for trial in self.of(name, method)
                if self.counts_for(trial, metric)}

    def pairs(self, metric: str, name: str, method: str) -> tuple[list[float], list[float], float]:
        """(the method's scores, the first method's, rows of test to rows of training) on the splits that both have."""
        ours, theirs = self.scores(metric, name, method), self.scores(metric, name, self.methods[0])
        shared = sorted(ours.keys() & theirs.keys())
        sizes = [(trial["train"], trial["test"]) for trial in self.of(name, method) if trial["split"] in shared]
        return [ours[s] for s in shared], [theirs[s] for s in shared], ratio(sizes)

    def practical(self, metric: str, reference: Sequence[float]) -> float:
        """The rope of a metric: of errors the part of their mean."""
        if metric not in ERRORS:
            return self.rope
        return self.rope * math.fsum(reference) / len(reference) if reference else math.nan

    def difference(self, metric: str, name: str, method: str, naive: bool = False) -> Difference:
        """The corrected resampled t of a method against the first one on a set; of a given test part the bootstrap of
        its rows. `naive`: the paired t that takes splits for independent."""
        ours, theirs, of_test = self.pairs(metric, name, method)
        rope = self.practical(metric, theirs)
        if self.sets[name]["test_rows"] is not None:
            replicates = self._replicates(metric, name, method) if ours else []
            return S.bootstrap(replicates, ours[0] - theirs[0] if ours else math.nan, level=self.level, rope=rope)
        if naive:
            return S.naive_t(ours, theirs, level=self.level, rope=rope)
        return S.corrected_t(ours, theirs, of_test, level=self.level, rope=rope)

    def posterior(self, metric: str, name: str, method: str) -> Posterior | None:
        """The correlated Bayesian t of a method against the first one on a set; None for a given test part, or fewer
        than two pairs."""
        ours, theirs, of_test = self.pairs(metric, name, method)
        if self.sets[name]["test_rows"] is not None or len(ours) < 2:
            return None
        return S.bayesian_t(ours, theirs, of_test, rope=self.practical(metric, theirs))

    def _replicates(self, metric: str, name: str, method: str) -> list[float]:
        ours, theirs = (self.of(name, one)[0]["replicates"].get(metric) or [] for one in (method, self.methods[0]))
        return [a - b for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]

    def counts(self, metric: str, method: str, naive: bool = False) -> Counts:
        """Sets on which the method is better, neither and worse than the first one, by `difference`."""
        better, worse = (S.SMALLER, S.LARGER) if metric in ERRORS else (S.LARGER, S.SMALLER)
        tested = [self.difference(metric, name, method, naive) for name in self.sets]
        found = Counter(one.verdict for one in tested if not math.isnan(one.p))
        return Counts(found[better], found[S.EQUAL] + found[S.INCONCLUSIVE], found[worse])

    def shared_means(self, metric: str, methods: Sequence[str]) -> dict[str, list[float]]:
        """Set -> means of the methods over the splits on which all of them count; without the sets that have none."""
        found = {}
        for name in self.sets:
            scores = [self.scores(metric, name, method) for method in methods]
            shared = sorted(set.intersection(*map(set, scores)))
            if shared:
                found[name] = [S.to_digits(math.fsum(of[s] for s in shared) / len(shared)) for of in scores]
        return found

    def ranking(self, metric: str) -> Ranking | None:
        """Mean ranks over the sets; None for fewer than FEW sets that all methods have, or two methods."""
        means = list(self.shared_means(metric, self.methods).values())
        if len(means) < FEW or len(self.entrants) < 2:
            return None
        sign = -1 if metric in ERRORS else 1
        return S.friedman([[sign * value for value in row] for row in means], level=self.level)

    def over_sets(self, metric: str) -> list[OverSets]:
        """Wilcoxon's and the Bayesian signed ranks of each method against the first one, where both have FEW sets or
        more; Wilcoxon's p adjusted by Holm too. Errors are parts of the first method's: sets where that is 0 are left
        out."""
        tested: list[tuple[str, Difference, Posterior]] = []
        for method in self.methods[1:]:
            means = list(self.shared_means(metric, [self.methods[0], method]).values())
            parts = [(a, b) for a, b in means if a > 0 or metric not in ERRORS]
            if len(parts) < FEW:
                continue
            theirs, ours = map(list, zip(*parts, strict=True))
            if metric in ERRORS:
                # Sets have errors on scales of their own.
                theirs, ours = [1.0] * len(parts), [b / a for a, b in parts]
            ranks = S.wilcoxon(ours, theirs, level=self.level)
            if metric in ERRORS:
                without = f", without {counted(len(means) - len(parts), 'set')} where that is 0" if (
                    len(parts) < len(means)) else ""
                ranks = ranks._replace(test=f"{ranks.test} of errors as parts of {self.methods[0]}'s{without}")
            tested.append((method, ranks,
                           S.bayesian_signed_rank(ours, theirs, rope=self.rope, seed=self.plan.design.seed)))
        adjusted = S.holm([found.p for _, found, _ in tested])
        return [OverSets(method, found, p, posterior)
                for (method, found, posterior), p in zip(tested, adjusted, strict=True)]

    def uncertified(self, name: str, method: str) -> int:
        """Trials on a set whose fit has no certificate within its tolerance."""
        return sum(trial["reason"] is None and not trial["certified"] for trial in self.of(name, method))

    def reasons(self) -> Iterator[tuple[str, str, str, int]]:
        """(set, method, reason, trials) of what could not be tried."""
        found = Counter((trial["set"], trial["method"], trial["reason"]) for trial in self.trials if trial["reason"])
        for (name, method, reason), count in found.items():
            yield name, method, reason, count

    def choices(self) -> dict[str, dict[str, Counter[Any]]]:
        """Method -> parameter -> how often each value was chosen, of those that vary."""
        found: dict[str, dict[str, Counter[Any]]] = {label: {} for label in self.methods}
        for trial in self.trials:
            if trial["reason"] is None:
                for name, value in trial["params"].items():
                    found[trial["method"]].setdefault(name.rstrip("_"), Counter())[value] += 1
        return found

    def at_ends(self) -> Iterator[AtEnd]:
        """Where most trials of a set chose the least or the largest value of a parameter that could go on."""
        for entrant in self.entrants:
            for param in (p for p in P.OWN if p.endless):
                tried = sorted(_numbers(entrant.key.get("grid", {}).get(param.name, ())))
                for value in (tried[0], tried[-1]) if len(tried) > 2 else ():
                    sets = [name for name in self.sets if self._mostly(name, entrant.label, param.name, value)]
                    if sets:
                        yield AtEnd(entrant.label, param.name.rstrip("_"), value, value == tried[0], sets)

    def _mostly(self, name: str, method: str, param: str, value: float) -> bool:
        chosen = [trial["params"].get(param) for trial in self.of(name, method) if trial["reason"] is None]
        return chosen.count(value) > len(chosen) / 2

    def seconds(self, method: str) -> float:
        """Of all of its trials: choosing, training, predicting."""
        return math.fsum(sum(trial["seconds"].values()) for trial in self.trials if trial["method"] == method)

    def margins(self, name: str, method: str) -> list[float] | None:
        """Quantiles of the margins of test rows, the mean of those of the trials; None where none were kept."""
        kept = [trial["margins"] for trial in self.of(name, method) if "margins" in trial]
        return [mean_of(values) for values in zip(*kept, strict=True)] if kept else None

    def table(self) -> list[dict[str, Any]]:
        """One entry a set, method and metric: mean, deviation, splits that count, uncertified ones, and against the
        first method the difference with its interval, p and verdict; for pandas.DataFrame and the like."""
        rows = []
        for metric in self.metrics:
            for name in self.sets:
                for method in self.methods:
                    values = list(self.scores(metric, name, method).values())
                    found = self.difference(metric, name, method) if method != self.methods[0] else None
                    rows.append({"metric": metric, "set": name, "method": method, "mean": mean_of(values),
                                 "deviation": deviation_of(values), "splits": len(values),
                                 "uncertified": self.uncertified(name, method),
                                 **({} if found is None else {
                                     "difference": found.mean, "low": found.low, "high": found.high, "p": found.p,
                                     "verdict": found.verdict})})
        return rows

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        short = sum(trial["reason"] is None and not trial["certified"] for trial in self.trials)
        failed = sum(trial["reason"] is not None for trial in self.trials)
        metric = self.metrics[0]
        means = {method: mean_of([row["mean"] for row in self.table()
                                  if row["metric"] == metric and row["method"] == method and row["splits"]])
                 for method in self.methods}
        against = "; ".join(f"{method} {counts.win}/{counts.tie}/{counts.loss}" for method in self.methods[1:]
                            for counts in [self.counts(metric, method)])
        return f"Comparison of {', '.join(self.methods)} on {counted(len(self.sets), 'set')}", [
            ("design", self.designed),
            ("trials", f"{len(self.trials):,}, {short} not certified, {failed} not possible"),
            (metric, ", ".join(f"{method} {value:.4g}" for method, value in means.items()) + " (mean over the sets)"),
            (f"against {self.methods[0]}", f"{against} won/tied/lost sets" if against else "no other method")]

    def __str__(self) -> str:
        return self.to_markdown()

    def to_markdown(self) -> str:
        """The whole report."""
        from marginlinear.compare.report import markdown

        return markdown(self)

    def to_latex(self) -> str:
        """The tables, a tabular each."""
        from marginlinear.compare.report import latex

        return latex(self)

    def to_csv(self) -> str:
        """The trials, a line each."""
        from marginlinear.compare.report import csv_text

        return csv_text(self)

    def to_json(self, seconds: bool = True) -> str:
        """All of it. Without `seconds`, which `from_json` needs, two runs of one command have the same bytes."""
        trials = [trial if seconds else {**trial, "seconds": None} for trial in self.trials]
        told = {"marginlinear": version, "design": self.plan.design._asdict(), "metrics": self.metrics,
                "select": self.plan.select, "scale": self.plan.scale, "regression": self.plan.regression,
                "margins": self.plan.margins,
                "level": self.level, "rope": self.rope, "certified_only": self.certified_only,
                "methods": [{"method": entrant.label, "described": entrant.described, "is": entrant.key}
                            for entrant in self.entrants],
                "sets": self.sets, "tests": {metric: self._tests(metric) for metric in self.metrics}}
        # A trial a line.
        head = json.dumps(told, indent=1, default=str, allow_nan=False).removesuffix("\n}")
        lines = ",\n  ".join(json.dumps(one, allow_nan=False) for one in trials)
        return f'{head},\n "trials": [\n  {lines}\n ]\n}}\n'

    def _tests(self, metric: str) -> dict[str, Any]:
        ranking = self.ranking(metric)
        by_set: list[dict[str, Any]] = []
        for name in self.sets:
            for method in self.methods[1:]:
                posterior = self.posterior(metric, name, method)
                by_set.append({"set": name, "method": method,
                               "corrected": S.as_dict(self.difference(metric, name, method)),
                               "naive": S.as_dict(self.difference(metric, name, method, naive=True)),
                               "bayesian": None if posterior is None else S.as_dict(posterior)})
        over = [{"method": found.method, "wilcoxon": S.as_dict(found.wilcoxon), "holm": _plain(found.holm),
                 "bayesian": S.as_dict(found.bayesian)} for found in self.over_sets(metric)]
        return {"by_set": by_set, "over_sets": over, "ranking": None if ranking is None else S.as_dict(ranking)}

    @classmethod
    def joined(cls, parts: Sequence[Comparison], *, level: float | None = None, rope: float | None = None,
               certified_only: bool | None = None) -> Comparison:
        """The Comparison of the sets of several, of the same methods, design and metrics.

        Parameters
        ----------
        parts : sequence of Comparison
        level, rope, certified_only : optional
            In place of those of the first.

        Raises ValueError where the parts differ, or have a set in common.
        """
        if not parts:
            raise ValueError("parts: there is none: give one Comparison or more")
        first = parts[0]
        sets: dict[str, dict[str, Any]] = {}
        for part in parts:
            if part.plan != first.plan or part.entrants != first.entrants:
                raise ValueError(f"the comparisons of {', '.join(first.sets)} and of {', '.join(part.sets)} are not of "
                                 "the same methods, splits and metrics: they cannot be joined")
            twice = next((name for name in part.sets if name in sets), None)
            if twice is not None:
                raise ValueError(f"the set {twice} is in two of the comparisons: leave one out")
            sets |= part.sets
        return cls(first.plan, first.entrants, sets, [trial for part in parts for trial in part.trials],
                   level=first.level if level is None else level, rope=first.rope if rope is None else rope,
                   certified_only=first.certified_only if certified_only is None else certified_only)

    @classmethod
    def from_json(cls, source: PathLike | str) -> Comparison:
        """The Comparison of a file that `to_json` made; DataError for another one."""
        from marginlinear.compare.journal import trial_fault

        with open(source, "rb") as stream:
            data = stream.read()
        try:
            told = json_of(data)
        except JSONFault as error:
            raise DataError(source, error.line, error.column, f"not JSON: {error}") from None
        try:
            fault = next(filter(None, map(trial_fault, told["trials"])), None)
            if fault is None:
                plan = Plan(Design(**told["design"]), metrics_of(told["metrics"], told["regression"]), told["select"],
                            told["scale"], told["regression"], told.get("margins", False))
                entrants = [Entrant(one["method"], one["described"], one["is"]) for one in told["methods"]]
                sets = {name: {key: one[key] for key in TOLD} for name, one in told["sets"].items()}
                found = cls(plan, entrants, sets, told["trials"], level=float(told["level"]), rope=float(told["rope"]),
                            certified_only=told["certified_only"])
                list(found.at_ends())  # the report reads the grids
                return found
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            fault = f"{type(error).__name__}: {error}"
        raise DataError(source, 0, 0, f"not what margin-compare -o FILE.json writes: {fault}")


def _numbers(values: Sequence[Any]) -> list[float]:
    """Of scikit-learn's kind they are texts; none where one is a word."""
    try:
        return [float(value) for value in values]
    except ValueError:
        return []


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None

