"""What goes wrong in training, with the cure: refused where nothing good can come of it, else warned of.

Knows instances and figures, nothing of models. A text where a list belongs is refused earlier, when the file is
read (`read_dpr_json`).
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from dmnrag.data.comparable import comparable
from dmnrag.data.exchange import DprInstance
from dmnrag.errors import DataError, DmnragError
from dmnrag.metrics import paired_difference
from dmnrag.protocols import FloatMatrix
from dmnrag.training.dev import DevScores
from dmnrag.training.settings import DprSettings

MANY_SHORT = 0.1
"""Share of questions with too few negatives from which it is worth a word."""

COLLAPSED = 0.98
"""Mean cosine of unrelated passages. Untrained encoders stay below: E5, whose cosines are high, is at 0.89."""

FLAT = 0.98
"""The last quarter's mean loss is at least this share of the first quarter's: nothing was learnt."""

_FEWEST_STEPS = 8
"""Steps from which a curve can be called flat."""

ZERO_LOSS = 1e-6
_ZERO_STEPS = 5
"""So many losses of 0 in a row are no accident."""

_SAMPLE = 256


class TrainingError(DmnragError, RuntimeError):
    """Training cannot go on, or its result cannot be used."""


def check_instances(instances: Sequence[DprInstance], settings: DprSettings) -> list[str]:
    """Refuse a set that nothing can be learnt from; returns warnings.

    Raises:
        DataError: fewer than two questions, or no mined negatives at all although the settings ask for them.
    """
    if len(instances) < 2:
        raise DataError(
            f"{len(instances)} training questions: at least 2 are needed, because the golds of others are what a "
            "question's own gold is told from. Check the filters and --limit"
        )
    warnings = []
    for name, n_wanted in (("negative_ctxs", settings.negatives), ("hard_negative_ctxs", settings.hard_negatives)):
        setting = name.removesuffix("_ctxs") + "s"
        empty = sum(not getattr(instance, name) for instance in instances)
        if n_wanted and empty == len(instances):
            raise DataError(
                f"{name!r} is empty for all {empty:,} questions, and the setting {setting} asks for {n_wanted}: mine "
                f"them, or set {setting} to 0 to train on the golds of other questions alone"
            )
        if n_wanted and empty > MANY_SHORT * len(instances):
            warnings.append(
                f"{name!r} is empty for {empty:,} of {len(instances):,} questions; they learn from the negatives of "
                "others in their batch only. A longer ranked list or looser guards give more"
            )
    if len({comparable(instance.positive_ctxs[0].text) for instance in instances}) == 1:
        raise DataError("every question has the same gold, so nothing tells a right passage from a wrong one")
    return warnings


def check_leakage(instances: Sequence[DprInstance], questions: Iterable[str], answers: Iterable[str]) -> None:
    """Refuse a set that holds a question or an answer of the test split (Zhang et al. 2025: none may).

    Raises:
        DataError: says how many and shows one.
    """
    held = {comparable(text) for text in questions}
    asked = [i.question for i in instances if comparable(i.question) in held]
    held_answers = {comparable(text) for text in answers} - {""}
    read = {
        context.text: None
        for instance in instances
        for context in (*instance.positive_ctxs, *instance.negative_ctxs, *instance.hard_negative_ctxs)
        if not held_answers.isdisjoint(_with_and_without_domain(context.text))
    }
    if asked or read:
        shown = (asked or list(read))[0]
        raise DataError(
            f"the training set holds {len(asked):,} questions and {len(read):,} passages of the test split "
            f"({shown[:40]!r}): figures on that split would mean nothing. Take them out, or build "
            "the set from the index"
        )


def _with_and_without_domain(passage: str) -> list[str]:
    """What a passage says, and what it says without its first line, where its labels may stand."""
    return [comparable(passage), comparable(passage.partition("\n")[2])]


class LossWatch:
    """Looks at each step's loss. What it says of the model and of a loss of 0 differs between kinds of training."""

    def __init__(
        self,
        model: str = "encoder",
        why_zero: str = "the negatives are too easy or nearly all passages of a batch count as right. Raise "
        "batch_size, or mine hard negatives",
    ) -> None:
        self._model = model
        self._why_zero = why_zero
        self._zeros = 0

    def check(self, loss: float, step: int) -> None:
        """Stop a run that cannot recover.

        Raises:
            TrainingError: the loss is no number, or 0 for several steps.
        """
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss of step {step} is {loss}: lower the learning rate, or train in fp32 (precision); if it "
                f"happens in the first steps, the {self._model}'s weights are damaged"
            )
        self._zeros = self._zeros + 1 if loss < ZERO_LOSS else 0
        if self._zeros >= _ZERO_STEPS:
            raise TrainingError(
                f"the loss is 0 for {_ZERO_STEPS} steps up to step {step}, so nothing is learnt: {self._why_zero}"
            )


def check_losses(
    losses: Sequence[float],
    cure: str = "raise the learning rate, lower frozen_share, or look whether hard negatives are right answers",
) -> list[str]:
    """Warn of a loss that did not fall; `cure` says what to do."""
    quarter = len(losses) // 4
    if len(losses) < _FEWEST_STEPS:
        return []
    first, last = float(np.mean(losses[:quarter])), float(np.mean(losses[-quarter:]))
    if last < FLAT * first:
        return []
    return [f"the loss did not fall ({first:.3f} at first, {last:.3f} at the end): {cure}"]


def check_vectors(vectors: FloatMatrix, step: int) -> float:
    """Mean cosine of pairs of passages; refuses vectors that say nothing.

    Args:
        vectors: (n, dimension) of distinct passages.
        step: for the message.

    Raises:
        TrainingError: a number that is not finite, or nearly equal vectors for all passages.
    """
    if not np.isfinite(vectors).all():
        raise TrainingError(
            f"after step {step} the encoder gives vectors with numbers that are not finite: lower the learning rate, "
            "or train in fp32 (precision)"
        )
    mean = mean_cosine(vectors)
    if mean > COLLAPSED:
        raise TrainingError(
            f"after step {step} all passages have nearly the same vector (mean cosine {mean:.3f}): the embeddings "
            "have collapsed. Lower the learning rate, raise scale, or freeze more layers (frozen_share)"
        )
    return mean


def mean_cosine(vectors: FloatMatrix) -> float:
    """Over all pairs of a sample evenly spread over the rows; 0 for fewer than two."""
    step = max(1, len(vectors) // _SAMPLE)
    chosen = vectors[::step][:_SAMPLE]
    if len(chosen) < 2:
        return 0.0
    lengths = np.linalg.norm(chosen, axis=1, keepdims=True)
    unit = chosen / np.maximum(lengths, np.finfo(np.float32).tiny)
    n = len(unit)
    # The sum of all products is the squared length of the sum; the n products of a row with itself are 1.
    return float((np.square(unit.sum(axis=0)).sum() - n) / (n * (n - 1)))


def check_result(best: DevScores, untrained: DevScores, bm25: DevScores) -> list[str]:
    """Warn of a retriever that is no gain, or one inside the noise."""
    warnings = _doubtful_gain(best, untrained)
    if best.mrr_10 <= untrained.mrr_10:
        warnings.append(
            f"the trained encoder is not better than the untrained one (dev MRR@10 {best.mrr_10:.3f} against "
            f"{untrained.mrr_10:.3f}): give more questions, lower the learning rate, or look at the negatives: right "
            "answers among them teach the wrong thing"
        )
    if best.recall_10 < bm25.recall_10:
        warnings.append(
            f"the trained encoder finds less than BM25 (dev recall@10 {best.recall_10:.3f} against "
            f"{bm25.recall_10:.3f}): search with --layer hybrid or cascade, give more questions, or another --encoder"
        )
    return warnings


def _doubtful_gain(best: DevScores, untrained: DevScores) -> list[str]:
    """A higher MRR whose paired interval holds 0. Training is not refused for it: more questions may show the gain."""
    if best.mrr_10 <= untrained.mrr_10 or not best.reciprocal_ranks or not untrained.reciprocal_ranks:
        return []
    gain = paired_difference(best.reciprocal_ranks, untrained.reciprocal_ranks)
    if gain.low is None or gain.high is None or gain.low > 0:
        return []
    return [
        f"the gain over the untrained encoder is inside the noise (dev MRR@10 {gain.difference:+.3f} "
        f"[{gain.low:+.3f}, {gain.high:+.3f}], n = {gain.n}): compare both with `dmnrag evaluate` before you rely on it"
    ]
