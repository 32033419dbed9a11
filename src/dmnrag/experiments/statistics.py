"""From a value per question to means with intervals and paired comparisons.

Knows nothing of retrieval or LLMs: systems are names, metrics are names, values stand in the order
of the questions, None where a metric means nothing for a question.

A difference is called one only after Holm's correction over its family, the tests that one table shows
(`corrected`). The smallest detectable difference stands beside it: where nothing is shown, it says how large
a difference could have been missed.

Sources: Holm 1979 (correction); Cohen, "Statistical power analysis", 1988 (80 % power).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import Any, Literal

from dmnrag.metrics import bootstrap_mean, holm, paired_difference

Values = Mapping[str, Mapping[str, Sequence[float | None]]]
"""system -> metric -> a value per question."""

Verdict = Literal["higher", "lower", "not shown"]

SIGNIFICANCE = 0.05
"""Chance of any false difference in a family."""
_POWER = 0.8
_DETECTABLE_ERRORS = NormalDist().inv_cdf(1 - SIGNIFICANCE / 2) + NormalDist().inv_cdf(_POWER)
"""2.80 standard errors: a true difference of that size passes a two-sided 5 % test in 80 % of studies."""

_RESAMPLES = 2000
_RESAMPLES_A_TEST = 50
"""The smallest p is 1 / (1 + resamples) and Holm multiplies it by the number of tests: this leaves .02 of it."""


@dataclass(frozen=True, slots=True)
class Row:
    """Mean of one metric of one system with its 95 % interval."""

    name: str
    metric: str
    mean: float
    low: float | None
    """None where a single group of posts allows no interval."""
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Contrast:
    """Paired difference a - b over the questions that both have, with its 95 % interval."""

    a: str
    b: str
    metric: str
    difference: float
    low: float | None
    high: float | None
    p: float
    """Two-sided paired permutation test, not corrected for the number of comparisons."""
    n: int
    detectable: float | None = None
    """Smallest true difference that one test at 5 % shows in 80 % of studies of this size; None with one group."""
    p_holm: float | None = None
    """p corrected over a family; None where no family was named."""

    @property
    def verdict(self) -> Verdict:
        """Whether a differs from b after correction; never a difference without one."""
        if self.p_holm is None or self.p_holm >= SIGNIFICANCE or self.difference == 0:
            return "not shown"
        return "higher" if self.difference > 0 else "lower"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures of an evaluation, in the documented shape of `evaluate --json`."""

    n: int
    rows: list[Row] = field(default_factory=list)
    comparisons: list[Contrast] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    def merged(self, other: "Evaluation") -> "Evaluation":
        """Both sets of figures."""
        return Evaluation(max(self.n, other.n), self.rows + other.rows, self.comparisons + other.comparisons)


def summarise(
    values: Values,
    clusters: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    *,
    seed: int = 0,
    resamples: int = _RESAMPLES,
) -> Evaluation:
    """Means of every system and metric, and the paired differences of `pairs` (a, b).

    Args:
        values: a value per question, or None.
        clusters: the group of near-identical posts of each question, resampled together.
        pairs: systems to compare; a pair of which one is missing is passed over.
        seed: of the resampling.
        resamples: of the paired tests; `resamples_for` a family.
    """
    rows = []
    for name, by_metric in values.items():
        for metric, column in by_metric.items():
            kept = [(v, c) for v, c in zip(column, clusters, strict=True) if v is not None]
            if kept:
                mean = bootstrap_mean([v for v, _ in kept], clusters=[c for _, c in kept], seed=seed)
                rows.append(Row(name, metric, mean.mean, mean.low, mean.high, mean.n))
    comparisons = [
        found
        for a, b in pairs
        if a in values and b in values
        for metric in values[a]
        if metric in values[b]
        for found in [
            contrast((a, b), metric, (values[a][metric], values[b][metric]), clusters, seed=seed, resamples=resamples)
        ]
        if found is not None
    ]
    return Evaluation(len(clusters), rows, comparisons)


def contrast(
    names: tuple[str, str],
    metric: str,
    columns: tuple[Sequence[float | None], Sequence[float | None]],
    clusters: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = _RESAMPLES,
) -> Contrast | None:
    """Paired difference of two columns over the questions that have a value in both; None where there are none."""
    both = [(x, y, c) for x, y, c in zip(*columns, clusters, strict=True) if x is not None and y is not None]
    if not both:
        return None
    groups = [c for _, _, c in both]
    found = paired_difference(
        [x for x, _, _ in both], [y for _, y, _ in both], clusters=groups, seed=seed, resamples=resamples
    )
    smallest = detectable_difference([x - y for x, y, _ in both], groups)
    return Contrast(*names, metric, found.difference, found.low, found.high, found.p, found.n, smallest)


def detectable_difference(differences: Sequence[float], clusters: Sequence[str]) -> float | None:
    """The smallest true mean difference that a two-sided test at 5 % shows with 80 % power at this n.

    2.80 standard errors of the mean; the error is that of a ratio over clusters, whose values go together:
    sqrt(C / (C - 1) * sum_c (S_c - N_c * mean)^2) / N. For one test: after a correction it is larger.
    None with a single cluster.
    """
    sums: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for value, cluster in zip(differences, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value
        sizes[cluster] = sizes.get(cluster, 0) + 1
    if len(sums) < 2:
        return None
    mean = sum(sums.values()) / len(differences)
    squares = sum((sums[c] - sizes[c] * mean) ** 2 for c in sums)
    error = (len(sums) / (len(sums) - 1) * squares) ** 0.5 / len(differences)
    return float(_DETECTABLE_ERRORS * error)


def corrected(family: Sequence[Contrast]) -> list[Contrast]:
    """The same contrasts with p corrected for their number (Holm): together they are one family."""
    adjusted = holm([c.p for c in family])
    return [replace(c, p_holm=p) for c, p in zip(family, adjusted, strict=True)]


def resamples_for(n_tests: int) -> int:
    """Resamples that leave a corrected p of .02 within reach of a family of that many tests."""
    return max(_RESAMPLES, _RESAMPLES_A_TEST * n_tests)
