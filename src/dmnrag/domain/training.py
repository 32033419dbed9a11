"""Learns a domain model: weights on all documents, calibration on held-out thirds of them.

Questions and answers are learnt from as separate texts, because answers name what a department treats; what is
calibrated and measured is the question alone, since nothing else is there when a question comes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag.domain.calibration import fit_calibration, probabilities, with_rival
from dmnrag.domain.labels import LabelTree
from dmnrag.domain.ridge import fit_ridge
from dmnrag.domain.sample import sample_documents
from dmnrag.domain.settings import DomainSettings
from dmnrag.domain.terms import TermWeights, term_segmenter
from dmnrag.errors import DataError
from dmnrag.types import Document

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

PENALTY = 1.0
"""Of the weights. From .3 to 3 accuracy and macro F1 differ by less than the noise."""
BALANCE = 0.5
"""A label on n documents counts like n^(1 - BALANCE) of them. 0 loses small departments (macro F1 .78 against .88),
1 is no better (docs/results.md)."""
FOLDS = 3
"""More cost time and change no figure; folds by groups of re-posts change none either."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How good the model is on the questions of held-out folds, each document counted for those it stands for."""

    n: int
    accuracy: float
    """Share whose likeliest top label is one of their own."""
    coverage: float
    """Share that gets a domain at the settings' threshold."""
    covered_accuracy: float
    """Accuracy among these; 1 where there are none."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """Everything that a model consists of."""

    tree: LabelTree
    terms: TermWeights
    weights: npt.NDArray[np.float16]
    """(n_terms, n_labels)."""
    intercepts: Floats
    """(n_labels,)."""
    calibration: Floats
    """(n_depths, 2, 3): of each depth the parameters with and without the rival."""
    held_out: HeldOut
    n_documents: int


def learn(documents: Iterable[Document], settings: DomainSettings) -> Learnt:
    """Learn from the documents that carry a domain; read once.

    Raises:
        DataError: no label stands on enough documents.
    """
    sample, stands_for = sample_documents(documents, settings.max_documents)
    domains = [document.domain for document in sample]
    tree = LabelTree.learn(domains, stands_for, settings.kind, settings.min_documents)
    if not len(tree):
        raise DataError(
            f"no domain stands on {settings.min_documents} documents or more ({len(sample):,} carry one at all): there "
            "is nothing to infer domains from; name the domain of each question instead"
        )
    texts = [document.question for document in sample] + ["\n".join(document.answers) for document in sample]
    terms = TermWeights.learn(texts, term_segmenter(simplify=settings.simplify), settings.max_terms)
    rows, has_label = terms.matrix(texts), tree.indicators(domains)
    scores = _held_out_scores(rows, has_label, _folds(sample))
    counted = np.array(stands_for)
    calibration = np.array([_calibrate(scores, has_label, counted, tree, depth) for depth in tree.depths])
    weights, intercepts = _fit(rows, np.concatenate([has_label, has_label]))
    return Learnt(
        tree,
        terms,
        weights.astype(np.float16),
        intercepts.astype(np.float64),
        calibration,
        _measure(scores, has_label, counted, tree, calibration, settings.threshold),
        round(sum(stands_for)),
    )


def _folds(sample: Sequence[Document]) -> npt.NDArray[np.int64]:
    """Fold of each document: those of one domain are dealt out in turn, so each fold has its share of all."""
    dealt: dict[tuple[str, ...], int] = {}
    folds = []
    for document in sample:
        folds.append(dealt.get(document.domain, 0) % FOLDS)
        dealt[document.domain] = dealt.get(document.domain, 0) + 1
    return np.array(folds)


def _held_out_scores(rows: Any, has_label: Mask, folds: npt.NDArray[np.int64]) -> Floats:
    """(n_documents, n_labels): scores of each question by the model that learnt from the other folds."""
    scores = np.full(has_label.shape, -1.0)
    questions = rows[: len(has_label)]
    for fold in range(FOLDS):
        inside, outside = folds == fold, folds != fold
        if inside.any() and outside.any():
            weights, intercepts = _fit(rows[np.tile(outside, 2)], np.tile(has_label[outside], (2, 1)))
            scores[inside] = questions[inside] @ weights + intercepts
    return scores


def _fit(rows: Any, has_label: Mask) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    rarity = np.maximum(has_label.sum(axis=0), 1) ** -BALANCE  # (n_labels,)
    n_labels = np.maximum(has_label.sum(axis=1), 1)
    weights = np.where(has_label.any(axis=1), has_label @ rarity / n_labels, rarity.min())
    targets = np.where(has_label, 1, -1).astype(np.float32)
    return fit_ridge(rows, targets, weights.astype(np.float32), PENALTY)


def _calibrate(scores: Floats, has_label: Mask, counted: Floats, tree: LabelTree, depth: int) -> list[Floats]:
    """Parameters with and without the rival, from the documents that have the label above."""
    features, truths, weights = [], [], []
    for siblings in tree.siblings:
        if siblings.depth == depth:
            rows = np.ones(len(scores), np.bool_) if siblings.above is None else has_label[:, siblings.above]
            truth = has_label[rows, siblings.columns]
            features.append(with_rival(scores[rows, siblings.columns]).reshape(-1, 3))
            truths.append(truth.ravel())
            weights.append(np.repeat(counted[rows], truth.shape[1]))
    pairs = np.concatenate(features), np.concatenate(truths), np.concatenate(weights)
    return [fit_calibration(*pairs, rivals=rivals) for rivals in (True, False)]


def calibrated(scores: Floats, tree: LabelTree, calibration: Floats) -> tuple[Floats, Floats]:
    """Probabilities with and without the rival, (n_rows, n_labels) each.

    A specific label's is P(label | label above) times that of the label above.
    """
    found, alone = np.empty_like(scores), np.empty_like(scores)
    for depth, above, columns in tree.siblings:
        for result, parameters in zip((found, alone), calibration[depth - 1], strict=True):
            given_above = 1 if above is None else result[:, [above]]
            result[:, columns] = probabilities(scores[:, columns], parameters) * given_above
    return found, alone


def _measure(
    scores: Floats, has_label: Mask, counted: Floats, tree: LabelTree, calibration: Floats, threshold: float
) -> HeldOut:
    found, alone = calibrated(scores, tree, calibration)
    chosen = found[:, tree.siblings[0].columns].argmax(axis=1)
    rows = np.arange(len(found))
    right = has_label[rows, chosen]
    covered = np.minimum(found, alone)[rows, chosen] >= threshold
    return HeldOut(
        n=round(counted.sum()),
        accuracy=float(np.average(right, weights=counted)),
        coverage=float(np.average(covered, weights=counted)),
        covered_accuracy=float(np.average(right[covered], weights=counted[covered])) if covered.any() else 1.0,
    )
