"""Learns from an index's own documents how probable it is that a search found the evidence, and where to refuse."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from dmnrag._settings import Rule, check_settings, number, one_of, or_none, whole
from dmnrag.errors import DataError
from dmnrag.pipeline import Pipeline
from dmnrag.refusal.cases import Case, make_cases
from dmnrag.refusal.features import NAMES, measure
from dmnrag.refusal.figures import Figures, choose_threshold, figures_of
from dmnrag.refusal.files import Stored
from dmnrag.refusal.logistic import fit_logistic
from dmnrag.refusal.model import EvidenceModel
from dmnrag.types import LAYERS, Layer

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

FOLDS = 5
LEAST_OF_A_KIND = 20
"""Cases with evidence, and without, below which a dozen weights are noise."""
LEAST_OF_A_LABEL = 100
"""Cases of a top label that gets its own threshold."""
SHARED = 200
"""The common threshold counts like this many of a label's own cases: what 100 cases alone choose is mostly chance."""


@dataclass(frozen=True, slots=True)
class CalibrationSettings:
    """What is calibrated and for what."""

    layer: Layer | None = None
    """Which way of searching; None: the index's own."""
    k: int = 3
    """Hits that an answer rests on."""
    target_risk: float | None = None
    """Largest share of answered questions that may lack evidence; None: lost and unfounded answers weigh the same."""
    limit: int = 800
    """Documents whose questions are asked; each is searched twice or so."""

    def __post_init__(self) -> None:
        rules: dict[str, Rule] = {
            "layer": or_none(one_of(LAYERS)),
            "k": whole(1),
            "target_risk": or_none(number(0, 1)),
            "limit": whole(1),
        }
        check_settings(self, rules, "calibration")


def calibrate(pipeline: Pipeline, settings: CalibrationSettings = CalibrationSettings()) -> EvidenceModel:
    """Learn and measure; the same index and settings give the same model. Nothing is written.

    Raises:
        DataError: too few documents with questions, or no threshold reaches the target risk.
        ConfigError: the index has no such layer.
    """
    layer = settings.layer or pipeline.default_layer
    cases = make_cases(pipeline, layer, settings.k, settings.limit)
    return learn(cases, replace(settings, layer=layer), pipeline.index.manifest.generation)


def learn(cases: Sequence[Case], settings: CalibrationSettings, generation: int) -> EvidenceModel:
    """Learn from cases; `settings.layer` and `settings.k` are those that the cases were searched with.

    Raises:
        DataError: too few cases of a kind, or no threshold reaches the target risk.
    """
    layer = settings.layer
    assert layer is not None  # searched with one
    enough = np.array([case.enough for case in cases], np.bool_)
    own = [case for case in cases if not case.foreign]
    _check_enough(own, layer, settings.k)
    features = np.array([measure(case.found) for case in cases])
    scores = held_out_scores(features, enough, [case.group for case in cases])
    fitted = fit_logistic(features, enough)
    asked = np.array([not case.foreign for case in cases])
    cases, scores, enough = own, scores[asked], enough[asked]
    threshold = choose_threshold(scores, enough, settings.target_risk)
    thresholds = _thresholds(cases, scores, enough, threshold, settings.target_risk)
    overall, by_label = _figures(cases, scores, enough, threshold, thresholds)
    return EvidenceModel(
        Stored(
            generation=generation,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            layer=layer,
            k=settings.k,
            target_risk=settings.target_risk,
            features=list(NAMES),
            means=fitted.means.tolist(),
            scales=fitted.scales.tolist(),
            weights=fitted.weights.tolist(),
            intercept=fitted.intercept,
            threshold=threshold,
            thresholds=thresholds,
            n_questions=len({case.found.question for case in cases}),
            figures=overall,
            figures_by_label=by_label,
        )
    )


def held_out_scores(features: Floats, enough: Mask, groups: Sequence[int]) -> Floats:
    """(n,) probabilities of each case by a model that learnt from the other folds; a group is in one fold."""
    folds = np.array(groups) % FOLDS
    scores = np.zeros(len(features))
    for fold in range(FOLDS):
        inside, outside = folds == fold, folds != fold
        if inside.any():
            scores[inside] = fit_logistic(features[outside], enough[outside]).probabilities(features[inside])
    return scores


def _check_enough(cases: Sequence[Case], layer: Layer, k: int) -> None:
    n_yes = sum(case.enough for case in cases)
    n_no = len(cases) - n_yes
    if min(n_yes, n_no) < LEAST_OF_A_KIND:
        raise DataError(
            f"this index is too small to calibrate: of {len(cases) // 2} questions of its documents layer {layer!r} "
            f"found {n_yes} again among the first {k}, and {n_no} searches found none; {LEAST_OF_A_KIND} of each are "
            "needed. Add documents with questions; until then nothing is refused"
        )


def _thresholds(
    cases: Sequence[Case], scores: Floats, enough: Mask, shared: float, target_risk: float | None
) -> dict[str, float]:
    """A threshold for each frequent label, drawn towards the common one."""
    thresholds = {}
    for label, n in sorted(Counter(case.label for case in cases).items()):
        rows = np.array([case.label == label for case in cases])
        if label and n >= LEAST_OF_A_LABEL and LEAST_OF_A_KIND <= enough[rows].sum() <= n - LEAST_OF_A_KIND:
            try:
                own = choose_threshold(scores[rows], enough[rows], target_risk)
            except DataError:  # out of reach for this label alone
                continue
            thresholds[label] = (n * own + SHARED * shared) / (n + SHARED)
    return thresholds


def _figures(
    cases: Sequence[Case], scores: Floats, enough: Mask, shared: float, thresholds: dict[str, float]
) -> tuple[Figures, dict[str, Figures]]:
    answered = scores >= np.array([thresholds.get(case.label, shared) for case in cases])
    groups = [case.group for case in cases]

    def of(rows: Mask) -> Figures:
        return figures_of(
            scores[rows], enough[rows], answered[rows], [g for g, kept in zip(groups, rows, strict=True) if kept]
        )

    return of(np.ones(len(cases), np.bool_)), {
        label: of(np.array([case.label == label for case in cases])) for label in thresholds
    }
