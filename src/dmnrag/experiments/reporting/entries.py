"""From arms and contrasts to the entries of tables. ROUGE and shares are shown in points, 0 to 100."""

from collections.abc import Sequence
from functools import cache

from dmnrag.experiments.reporting.families import Family
from dmnrag.experiments.reporting.study import Arm, Corpus
from dmnrag.experiments.reporting.table import Entry, Figure
from dmnrag.experiments.score import LENGTH
from dmnrag.experiments.statistics import SIGNIFICANCE, Contrast
from dmnrag.metrics import Interval, bootstrap_mean

POINTS = 100
HIGHER, LOWER = " ↑", " ↓"
ABSENT = "–"
"""A place that the spec leaves empty, or a metric that means nothing there."""

INTERVALS_NOTE = "In brackets: 95 % bootstrap interval over groups of near-identical questions."
POINTS_NOTE = "ROUGE is F1 over words (jieba), in points from 0 to 100."


def mean_entry(corpus: Corpus, arm: Arm | None, metric: str, mark: str = "") -> Entry:
    """The mean of a metric with its interval; what is missing says so and is never averaged as if whole."""
    if arm is None:
        return ABSENT
    if not arm.complete:
        return incomplete_text(arm)
    if metric not in arm.values:
        return ABSENT
    interval = _interval(arm.values[metric], tuple(corpus.clusters))
    if interval is None:
        return ABSENT
    scale, decimals = (1, 0) if metric == LENGTH else (POINTS, 2)
    return Figure(
        interval.mean * scale,
        None if interval.low is None else interval.low * scale,
        None if interval.high is None else interval.high * scale,
        mark,
        decimals,
    )


def incomplete_text(arm: Arm) -> str:
    """How far an arm got; answers that are all there and have no figures yet were killed before these."""
    return "not measured yet" if arm.answered == arm.n else f"incomplete ({arm.answered} of {arm.n})"


def difference_entry(contrast: Contrast | None) -> Entry:
    """The difference with its interval, in points."""
    if contrast is None:
        return ABSENT
    scale, decimals = (1, 0) if contrast.metric.startswith(LENGTH) else (POINTS, 2)
    return Figure(
        contrast.difference * scale,
        None if contrast.low is None else contrast.low * scale,
        None if contrast.high is None else contrast.high * scale,
        decimals=decimals,
        signed=True,
    )


def p_entry(contrast: Contrast) -> Entry:
    """p after Holm's correction."""
    p = contrast.p_holm if contrast.p_holm is not None else contrast.p
    return Figure(p, decimals=4)


def detectable_entry(contrast: Contrast) -> Entry:
    """The smallest difference that a test of this n would show, in points."""
    if contrast.detectable is None:
        return ABSENT
    scale, decimals = (1, 0) if contrast.metric.startswith(LENGTH) else (POINTS, 2)
    return Figure(contrast.detectable * scale, decimals=decimals)


def verdict_text(contrast: Contrast) -> str:
    """What the test allows to be said; no difference is called one without it."""
    if contrast.verdict == "not shown":
        return "no difference shown"
    return contrast.verdict


def mark_of(family: Family, key: tuple[str, str, str, str, str]) -> str:
    """The sign behind a mean whose difference from the baseline is significant."""
    contrast = family.get(key)
    if contrast is None or contrast.verdict == "not shown":
        return ""
    return HIGHER if contrast.verdict == "higher" else LOWER


def family_note(family: Family) -> str:
    """How many tests were corrected for."""
    return (
        f"p: paired permutation test, corrected for the {len(family)} tests of this family (Holm); below "
        f"{SIGNIFICANCE} a difference is called higher or lower. Detectable: the smallest true difference that one "
        "test at 5 % shows in 80 % of studies of this size; where nothing is shown, a smaller one may be there."
    )


def n_note(corpora: Sequence[Corpus]) -> str:
    """Number of questions of each corpus."""
    return "; ".join(f"{corpus.name}: n = {len(corpus.questions):,} questions" for corpus in corpora) + "."


@cache  # the same means stand in several tables
def _interval(column: tuple[float | None, ...], clusters: tuple[str, ...]) -> Interval | None:
    kept = [(value, cluster) for value, cluster in zip(column, clusters, strict=True) if value is not None]
    if not kept:
        return None
    return bootstrap_mean([value for value, _ in kept], clusters=[cluster for _, cluster in kept])
