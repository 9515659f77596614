"""Tests of paired scores: two methods on the splits of one set, or methods over several sets.

A difference d_j is a method's score less the reference's on the same rows. Each test is a function of arrays alone, and
what it returns says in a sentence which test, which assumption and which numbers its verdict rests on.

On one set the training parts of splits overlap, which makes their scores alike: for J splits with n2 rows of test to n1
of training, Nadeau and Bengio (Machine Learning 52, 2003) take

    t = mean(d)/sqrt((1/J + n2/n1) var(d)),                                             J - 1 degrees of freedom

in place of the paired t, whose 1/J alone makes differences out of noise. Over sets: J. Demsar, JMLR 7 (2006); the
Bayesian tests: A. Benavoli et al., JMLR 18 (2017).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear.compare import parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from marginlinear._typing import ArrayLike, FloatArray

LARGER, EQUAL, SMALLER, INCONCLUSIVE = "larger", "equal", "smaller", "inconclusive"
BOOTSTRAP = "bootstrap of the test rows"
LEVEL = parameters.LEVEL.default
# What the probability of a verdict has to be above.
CREDIBLE = 0.95
# Means that agree in so many digits are the same, and differences in so many of the largest score's.
DIGITS, OF_DIFFERENCES = 12, 10
# Of a sampled posterior; and the weight, in sets, of what is believed beforehand: no difference.
SAMPLES, PRIOR = 50_000, 0.5


class Difference(NamedTuple):
    """How far a method's scores are from the reference's, by one test.

    Attributes
    ----------
    test : str
    pairs : int
        Splits or sets, of a bootstrap resamples.
    mean, low, high : float
        Of the differences, and the ends of the interval; NaN where the test has none.
    p : float
        Two-sided; NaN where there are too few pairs, and no verdict but "inconclusive".
    verdict : {"larger", "equal", "smaller", "inconclusive"}
        larger, smaller: p < level. equal: not so, and the interval lies in [-rope, rope].
    level, rope : float
    """

    test: str
    pairs: int
    mean: float
    low: float
    high: float
    p: float
    verdict: str
    level: float
    rope: float

    def sentence(self, method: str, reference: str) -> str:
        if math.isnan(self.p):
            return f"{method} against {reference}: {self.pairs} pairs are too few for the {self.test}."
        interval = "" if math.isnan(self.low) else (
            f", {100 * (1 - self.level):g}% interval {self.low:.4g} to {self.high:.4g}")
        over = "resamples" if self.test == BOOTSTRAP else "pairs"
        return (f"{method} less {reference}: mean {self.mean:.4g}{interval}, p = {self.p:.3g} by the {self.test} over "
                f"{self.pairs} {over}: {self.verdict} at {self.level:g}.")


class Posterior(NamedTuple):
    """The probabilities that a method's score is smaller than the reference's, practically equal, or larger.

    Attributes
    ----------
    test : str
    pairs : int
    smaller, equal, larger : float
        They sum to 1.
    verdict : {"larger", "equal", "smaller", "inconclusive"}
        The word whose probability is above 0.95.
    rope : float
        Differences of at most this size are no practical ones.
    """

    test: str
    pairs: int
    smaller: float
    equal: float
    larger: float
    verdict: str
    rope: float

    def sentence(self, method: str, reference: str) -> str:
        return (f"{method} against {reference} by the {self.test} over {self.pairs} pairs, differences up to "
                f"{self.rope:.3g} being none: larger with probability {self.larger:.3f}, equal {self.equal:.3f}, "
                f"smaller {self.smaller:.3f}: {self.verdict} at {CREDIBLE:g}.")


class Ranking(NamedTuple):
    """Mean ranks of methods over sets, and Friedman's test that all are alike.

    Attributes
    ----------
    ranks : tuple of float
        Of each method, 1 being the best; equal scores share their ranks.
    sets : int
    chi2, p_chi2, F, p : float
        Friedman's statistic with its p, and F of Iman and Davenport with its own, which `verdict` looks at.
    critical : float
        Nemenyi's: mean ranks that are further apart differ.
    holm : tuple of float
        p of each method's mean rank against the first method's, adjusted by Holm; NaN for the first.
    level : float
    """

    ranks: tuple[float, ...]
    sets: int
    chi2: float
    p_chi2: float
    F: float
    p: float
    critical: float
    holm: tuple[float, ...]
    level: float

    @property
    def differs(self) -> bool:
        """Whether Friedman's test finds a difference among the methods."""
        return self.p < self.level

    def sentence(self, methods: Sequence[str]) -> str:
        shown = ", ".join(f"{name} {rank:.3f}" for rank, name in sorted(zip(self.ranks, methods, strict=True)))
        found = "the methods differ" if self.differs else "no difference among the methods is found"
        # Without a difference among all, no two are told apart.
        then = (f"; by Nemenyi's test two differ where their mean ranks are more than {self.critical:.3f} apart"
                if self.differs else "")
        return (f"Mean ranks over {self.sets} sets: {shown}. Friedman's chi-squared {self.chi2:.3f} "
                f"(p = {self.p_chi2:.3g}), F {self.F:.3f} (p = {self.p:.3g}): {found} at {self.level:g}{then}.")


def paired(first: ArrayLike, second: ArrayLike) -> FloatArray:
    """The differences first - second, float64 array of shape (n,); ValueError unless both are finite and as long."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"paired scores have shapes {a.shape} and {b.shape}: give two arrays of one length")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("paired scores must be finite numbers: leave out the pairs without")
    return a - b


def rounded(first: ArrayLike, second: ArrayLike) -> FloatArray:
    """`paired`, of which those are equal, or 0, that rounding alone tells apart."""
    d, largest = paired(first, second), float(np.abs(np.asarray(first, dtype=np.float64)).max(initial=0.0))
    return np.round(d, OF_DIFFERENCES - 1 - math.floor(math.log10(largest))) if largest > 0 else d


def to_digits(value: float) -> float:
    """What rounding alone tells apart, as means of the same scores in another order, is equal."""
    return float(f"{value:.{DIGITS}g}")


def corrected_t(first: ArrayLike, second: ArrayLike, ratio: float, *, level: float = LEVEL,
                rope: float = 0.0) -> Difference:
    """Nadeau and Bengio's corrected resampled t of scores on splits of one set.

    Parameters
    ----------
    first, second : arrays of shape (J,)
        Scores of the method, and of the reference.
    ratio : float
        Rows of test to rows of training, n2/n1.
    level, rope : float
        See Difference.
    """
    return _student("corrected resampled t test", paired(first, second), ratio, level, rope)


def naive_t(first: ArrayLike, second: ArrayLike, *, level: float = LEVEL, rope: float = 0.0) -> Difference:
    """The paired t, as if the splits were independent: what many papers report, and wrong in far more than `level`."""
    return _student("naive paired t test", paired(first, second), 0.0, level, rope)


def _student(test: str, d: FloatArray, ratio: float, level: float, rope: float) -> Difference:
    J = len(d)
    if J < 2:
        return Difference(test, J, mean_of(d.tolist()), math.nan, math.nan, math.nan, INCONCLUSIVE,
                          level, rope)
    from scipy.special import stdtr, stdtrit

    mean, spread = mean_of(d.tolist()), deviation_of(d.tolist()) * math.sqrt(1 / J + ratio)
    # Without any spread t is infinite, or 0/0 where nothing differs.
    p = float(mean == 0) if spread == 0 else float(2 * stdtr(J - 1, -abs(mean) / spread))
    reach = spread * float(stdtrit(J - 1, 1 - level / 2))
    low, high = mean - reach, mean + reach
    return Difference(test, J, mean, low, high, p, _verdict(mean, low, high, p, level, rope), level, rope)


def mean_of(values: Sequence[float]) -> float:
    """NaN of none. Equal values have their own as the mean, to the last bit."""
    if not values:
        return math.nan
    return values[0] if values.count(values[0]) == len(values) else math.fsum(values) / len(values)


def deviation_of(values: Sequence[float]) -> float:
    """With n - 1; NaN of fewer than two."""
    if len(values) < 2:
        return math.nan
    mean = mean_of(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _verdict(mean: float, low: float, high: float, p: float, level: float, rope: float) -> str:
    if p < level:
        return LARGER if mean > 0 else SMALLER
    return EQUAL if -rope <= low and high <= rope else INCONCLUSIVE


def bootstrap(replicates: ArrayLike, mean: float, *, level: float = LEVEL, rope: float = 0.0) -> Difference:
    """Of one given test part: the interval of a difference over resamples of its rows.

    Parameters
    ----------
    replicates : array of shape (B,)
        The difference on each resample; p is twice the smaller share of those on a side of 0, ties as half.
    mean : float
        The difference on all rows.
    """
    d = np.asarray(replicates, dtype=np.float64)
    d = d[np.isfinite(d)]
    if len(d) < 2:
        return Difference(BOOTSTRAP, len(d), mean, math.nan, math.nan, math.nan, INCONCLUSIVE, level, rope)
    low, high = (float(end) for end in np.quantile(d, [level / 2, 1 - level / 2]))
    ties = np.count_nonzero(d == 0) / 2
    shares = [(np.count_nonzero(d < 0) + ties) / len(d), (np.count_nonzero(d > 0) + ties) / len(d)]
    p = min(1.0, 2 * max(min(shares), 1 / len(d)))
    return Difference(BOOTSTRAP, len(d), mean, low, high, p, _verdict(mean, low, high, p, level, rope), level, rope)


def wilcoxon(first: ArrayLike, second: ArrayLike, *, level: float = LEVEL, rope: float = 0.0) -> Difference:
    """Wilcoxon's signed ranks, two-sided and exact, of scores over sets.

    Ranks of differences of 0 are shared by both sides, as Demsar has it; one of an odd number of them is left out.
    """
    d = rounded(first, second)
    N, test = len(d), "Wilcoxon signed-rank test"
    mean = mean_of(d.tolist())
    if np.count_nonzero(d == 0) % 2:
        d = np.delete(d, int(np.flatnonzero(d == 0)[0]))
    if N < 2:
        return Difference(test, N, mean, math.nan, math.nan, math.nan, INCONCLUSIVE, level, rope)
    p, plus, minus = _signed_ranks(d)
    verdict = (LARGER if plus > minus else SMALLER) if p < level else INCONCLUSIVE
    return Difference(test, N, mean, math.nan, math.nan, p, verdict, level, rope)


def _signed_ranks(d: FloatArray) -> tuple[float, float, float]:
    """(p, sum of the ranks of positive differences, of negative ones): p over all signs, each as likely."""
    ranks = average_ranks(np.abs(d))
    zero = float(ranks[d == 0].sum())
    plus, minus = float(ranks[d > 0].sum()) + zero / 2, float(ranks[d < 0].sum()) + zero / 2
    # Ranks are halves at worst: counts of sums of doubled ones.
    doubled = np.rint(2 * ranks[d != 0]).astype(np.int64)
    share = np.zeros(int(doubled.sum()) + 1)
    share[0] = 1.0
    for rank in doubled:
        moved = np.zeros_like(share)
        moved[rank:] = share[: len(share) - rank]
        share = (share + moved) / 2
    least = round(2 * min(plus, minus) - zero)
    return min(1.0, 2 * float(share[: least + 1].sum())), plus, minus


def average_ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1 in ascending order; equal values share the mean of theirs."""
    place, counts = np.unique(values, return_inverse=True, return_counts=True)[1:]
    ranks: FloatArray = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def friedman(scores: ArrayLike, *, level: float = LEVEL) -> Ranking:
    """Friedman's test, Nemenyi's critical difference, and Holm's adjusted p against the first method.

    Parameters
    ----------
    scores : array of shape (sets, methods)
        The larger the better.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[0] < 2 or scores.shape[1] < 2 or not np.isfinite(scores).all():
        raise ValueError(f"scores of shape {scores.shape}: give finite ones of at least 2 sets and 2 methods")
    from scipy.special import chdtrc, fdtrc, ndtr

    N, k = scores.shape
    ranks = np.array([average_ranks(-row) for row in scores])
    mean = ranks.mean(axis=0)
    chi2 = float(12 * N / (k * (k + 1)) * ((mean - (k + 1) / 2) ** 2).sum())
    # All sets in one order: F is infinite.
    left = N * (k - 1) - chi2
    F = (N - 1) * chi2 / left if left > 1e-9 else math.inf
    deviation = math.sqrt(k * (k + 1) / (6 * N))
    raw = [float(2 * ndtr(-abs(r - mean[0]) / deviation)) for r in mean[1:]]
    p = 0.0 if math.isinf(F) else float(fdtrc(k - 1, (k - 1) * (N - 1), F))
    return Ranking(tuple(mean.tolist()), N, chi2, float(chdtrc(k - 1, chi2)), F, p,
                   critical_difference(k, N, level), (math.nan, *holm(raw)), level)


@lru_cache
def critical_difference(k: int, N: int, level: float = LEVEL) -> float:
    """Nemenyi's for the mean ranks of k methods over N sets: q/sqrt(2) sqrt(k (k + 1)/(6 N))."""
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(1 - level, k, math.inf)) * math.sqrt(k * (k + 1) / (12 * N))


def holm(p: Sequence[float]) -> list[float]:
    """The p-values adjusted by Holm's step-down: each is compared with the level itself."""
    adjusted, least = [math.nan] * len(p), 0.0
    for step, at in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        least = adjusted[at] = min(1.0, max(least, (len(p) - step) * p[at]))
    return adjusted


def bayesian_t(first: ArrayLike, second: ArrayLike, ratio: float, *, rope: float) -> Posterior:
    """The correlated Bayesian t of scores on splits of one set: with a flat prior the mean difference is Student's t
    around the mean, of the corrected deviation."""
    d = paired(first, second)
    if len(d) < 2:
        raise ValueError(f"{len(d)} pairs: give at least 2")
    from scipy.special import stdtr

    mean, spread = mean_of(d.tolist()), deviation_of(d.tolist()) * math.sqrt(1 / len(d) + ratio)
    if spread == 0:
        smaller, larger = float(mean < -rope), float(mean > rope)
    else:
        smaller = float(stdtr(len(d) - 1, (-rope - mean) / spread))
        larger = float(stdtr(len(d) - 1, (mean - rope) / spread))
    return _posterior("correlated Bayesian t test", len(d), smaller, larger, rope)


def bayesian_signed_rank(first: ArrayLike, second: ArrayLike, *, rope: float, seed: int = 0,
                         samples: int = SAMPLES) -> Posterior:
    """The Bayesian signed-rank test of scores over sets.

    Weights of the differences, and of one of 0 that stands for what was believed before, are drawn from the Dirichlet
    distribution; each draw shares the sums d_i + d_j out to below -2 rope, between, and above 2 rope by w_i w_j, those
    at an end by half to either side of it. The probability of a side is the part of the draws in which it has the
    largest share.
    """
    d = rounded(first, second)
    if len(d) < 2:
        raise ValueError(f"{len(d)} pairs: give at least 2")
    d = np.concatenate(([0.0], d))
    sums = d[:, np.newaxis] + d
    below, above = (np.heaviside(np.round(sign * sums - 2 * rope, DIGITS), 0.5) for sign in (-1, 1))
    sides = [below, 1 - below - above, above]
    rng = np.random.default_rng(seed)
    weight = np.array([PRIOR] + [1.0] * (len(d) - 1))
    wins = np.zeros(3)
    for low in range(0, samples, 10_000):
        w = rng.dirichlet(weight, min(10_000, samples - low))
        shares = np.stack([((w @ side) * w).sum(axis=1) for side in sides], axis=1)
        # Equal shares, as of three sides that nothing falls on, are shared.
        best = shares >= shares.max(axis=1, keepdims=True) - 1e-12
        wins += (best / best.sum(axis=1, keepdims=True)).sum(axis=0)
    return _posterior("Bayesian signed-rank test", len(d) - 1, float(wins[0] / samples), float(wins[2] / samples), rope)


def _posterior(test: str, pairs: int, smaller: float, larger: float, rope: float) -> Posterior:
    equal = max(0.0, 1 - smaller - larger)
    chances = {LARGER: larger, EQUAL: equal, SMALLER: smaller}
    verdict = next((word for word, chance in chances.items() if chance > CREDIBLE), INCONCLUSIVE)
    return Posterior(test, pairs, smaller, equal, larger, verdict, rope)


def as_dict(found: Any) -> dict[str, Any]:
    """A record as JSON has it: None for NaN and infinity."""
    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {name: plain(value) for name, value in found._asdict().items()}
