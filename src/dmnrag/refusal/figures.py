"""How well scores tell questions with evidence from those without, and where to draw the line.

Coverage: share of all questions that are answered. Risk: share of the answered ones whose documents hold no evidence.
Source of the terms: El-Yaniv and Wiener, "On the foundations of noise-free selective classification", 2010.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmnrag.errors import DataError

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval (percentile bootstrap over groups of re-posts)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a threshold does to questions."""

    n: int
    n_enough: int
    """Of them with evidence in the documents found."""
    auc: Estimate | None
    """Chance that a question with evidence scores higher than one without; None where one kind is missing."""
    coverage: Estimate
    risk: Estimate | None
    """None where nothing is answered."""
    kept: Estimate | None
    """Share of the questions with evidence that are answered."""
    refused: Estimate | None
    """Share of the questions without evidence that are refused."""


def area_under_roc(scores: Floats, enough: Mask) -> float:
    """AUC; ties count half; nan where one kind is missing."""
    from scipy.stats import rankdata

    n_yes, n_no = int(enough.sum()), int((~enough).sum())
    if not n_yes or not n_no:
        return float("nan")
    return float((rankdata(scores)[enough].sum() - n_yes * (n_yes + 1) / 2) / (n_yes * n_no))


def risk_at_coverages(scores: Floats, enough: Mask) -> Floats:
    """(n,): risk of answering the 1, 2, .. n questions with the highest scores. Equal scores share their mean."""
    order = np.argsort(-scores, kind="stable")
    _, starts, counts = np.unique(-scores[order], return_index=True, return_counts=True)
    # Within a tie nothing says which question comes first: each counts as much as the tie does on average.
    missing = np.repeat(np.add.reduceat((~enough)[order].astype(float), starts) / counts, counts)
    risks: Floats = np.cumsum(missing) / np.arange(1, len(scores) + 1)
    return risks


def area_under_risk_coverage(scores: Floats, enough: Mask) -> float:
    """AURC: mean risk over all coverages (Geifman and El-Yaniv 2017); lower is better."""
    return float(risk_at_coverages(scores, enough).mean())


def choose_threshold(scores: Floats, enough: Mask, target_risk: float | None = None) -> float:
    """The score from which a question is answered.

    Args:
        scores: (n,), from a model that has not seen the questions.
        enough: (n,).
        target_risk: the lowest threshold, so the largest coverage, whose risk is at most this. None: the threshold
            with the highest sum of `kept` and `refused`, the lowest of several (Youden 1950): a lost answer and an
            unfounded one are equally bad.

    Raises:
        DataError: no threshold reaches the risk; says the lowest that one does.
    """
    thresholds = np.unique(scores)
    answered = scores[None, :] >= thresholds[:, None]  # (n_thresholds, n)
    founded = (answered & enough).sum(axis=1)
    unfounded = answered.sum(axis=1) - founded
    if target_risk is None:
        balance = founded / max(1, enough.sum()) - unfounded / max(1, (~enough).sum())
        return float(thresholds[int(np.argmax(balance))])
    risks = unfounded / (founded + unfounded)
    if not (risks <= target_risk).any():
        raise DataError(
            f"no threshold keeps the risk at {target_risk:g}: the lowest that one reaches is {risks.min():.3f}; "
            "ask for a higher one, or calibrate with a better retriever (--layer)"
        )
    return float(thresholds[int(np.argmax(risks <= target_risk))])


def figures_of(scores: Floats, enough: Mask, answered: Mask, groups: Sequence[int]) -> Figures:
    """Figures with intervals that resample whole groups.

    Args:
        scores: (n,).
        enough: (n,) whether the evidence is there.
        answered: (n,) whether the threshold lets the question through.
        groups: (n,) cases that go together.
    """
    rows = np.stack([scores, enough, answered], axis=1)
    return Figures(
        len(scores),
        int(enough.sum()),
        interval(rows, groups, lambda r: area_under_roc(r[:, 0], r[:, 1] > 0)),
        interval(rows, groups, lambda r: _mean(r[:, 2])) or Estimate(0.0, 0.0, 0.0),
        interval(rows, groups, lambda r: _mean(1 - r[r[:, 2] > 0, 1])),
        interval(rows, groups, lambda r: _mean(r[r[:, 1] > 0, 2])),
        interval(rows, groups, lambda r: _mean(1 - r[r[:, 1] == 0, 2])),
    )


def interval(rows: Floats, groups: Sequence[int], measure: Callable[[Floats], float]) -> Estimate | None:
    """A measure of rows (n, n_columns) with its interval; None where the measure is not defined (nan)."""
    value = measure(rows)
    if np.isnan(value):
        return None
    members: dict[int, list[int]] = {}
    for position, group in enumerate(groups):
        members.setdefault(group, []).append(position)
    positions = [np.array(found) for found in members.values()]
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        chosen = np.concatenate([positions[i] for i in rng.integers(len(positions), size=len(positions))])
        drawn.append(measure(rows[chosen]))
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return Estimate(value, float(low), float(high))


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")
