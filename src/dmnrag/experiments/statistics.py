"""From a value per question to means with intervals and paired comparisons.

Knows nothing of retrieval or LLMs: systems are names, metrics are names, values stand in the order
of the questions, None where a metric means nothing for a question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dmnrag.metrics import bootstrap_mean, paired_difference

Values = Mapping[str, Mapping[str, Sequence[float | None]]]
"""system -> metric -> a value per question."""


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
    values: Values, clusters: Sequence[str], pairs: Sequence[tuple[str, str]], *, seed: int = 0
) -> Evaluation:
    """Means of every system and metric, and the paired differences of `pairs` (a, b).

    Args:
        values: a value per question, or None.
        clusters: the group of near-identical posts of each question, resampled together.
        pairs: systems to compare; a pair of which one is missing is passed over.
        seed: of the resampling.
    """
    rows = []
    for name, by_metric in values.items():
        for metric, column in by_metric.items():
            kept = [(v, c) for v, c in zip(column, clusters, strict=True) if v is not None]
            if kept:
                mean = bootstrap_mean([v for v, _ in kept], clusters=[c for _, c in kept], seed=seed)
                rows.append(Row(name, metric, mean.mean, mean.low, mean.high, mean.n))
    comparisons = [
        contrast
        for a, b in pairs
        if a in values and b in values
        for metric in values[a]
        if metric in values[b]
        for contrast in _contrast(a, b, metric, values, clusters, seed)
    ]
    return Evaluation(len(clusters), rows, comparisons)


def _contrast(a: str, b: str, metric: str, values: Values, clusters: Sequence[str], seed: int) -> list[Contrast]:
    columns = zip(values[a][metric], values[b][metric], clusters, strict=True)
    both = [(x, y, c) for x, y, c in columns if x is not None and y is not None]
    if not both:
        return []
    found = paired_difference(
        [x for x, _, _ in both], [y for _, y, _ in both], clusters=[c for _, _, c in both], seed=seed
    )
    return [Contrast(a, b, metric, found.difference, found.low, found.high, found.p, found.n)]
