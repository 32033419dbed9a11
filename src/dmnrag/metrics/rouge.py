"""ROUGE-1, ROUGE-2 and ROUGE-L as F1 over tokens.

Two ways to count n-grams, since published Chinese figures come from both:
- `clipped`: an n-gram counts as often as it stands in both texts (Lin 2004; also the package rouge-score);
- `unique`: each different n-gram counts once, whatever its number (the package rouge-chinese). Repetition
  then costs nothing, so its ROUGE-1 and ROUGE-2 differ from `clipped`, in either direction.
ROUGE-L is the same in both: the longest common subsequence over the whole token lists. rouge-chinese calls
its own "summary level", but takes the plain LCS of all tokens too; it adds 1e-8 to the denominator of F1
(at most 5e-9 of difference). It also splits a token behind 。！？? and ellipses inside it; segmenters give
such marks as tokens of their own, where nothing is split.

Source: Lin, "ROUGE: A package for automatic evaluation of summaries", 2004. F1 weighs precision and recall
alike (beta = 1).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from rapidfuzz.distance import LCSseq

from dmnrag.errors import ConfigError, DataError

RougeVariant = Literal["clipped", "unique"]
Segmentation = Literal["word", "character"]


@dataclass(frozen=True, slots=True)
class RougeScores:
    """F1 values from 0 to 1 of one text."""

    rouge1: float
    rouge2: float
    rouge_l: float


@dataclass(frozen=True, slots=True)
class RougeResult:
    """Scores of many texts and how they came about: figures of different segmentation do not compare."""

    segmentation: Segmentation
    variant: RougeVariant
    scores: tuple[RougeScores, ...]
    """One for each candidate, in order."""


def rouge(candidate: Sequence[str], reference: Sequence[str], variant: RougeVariant = "clipped") -> RougeScores:
    """ROUGE of one candidate against one reference, both as tokens.

    Equal texts score 1 and an empty text 0; a text of one token has no bigram, so its ROUGE-2 is 0.
    Cost: linear in the tokens, but for the LCS, which is len(candidate) * len(reference) / 64.

    Raises:
        ConfigError: an unknown variant.
    """
    if variant == "clipped":
        f1 = _clipped_f1
    elif variant == "unique":
        f1 = _unique_f1
    else:
        raise ConfigError(f"unknown ROUGE variant {variant!r}: allowed are {', '.join(get_args(RougeVariant))}")
    # rapidfuzz compares tokens by their 64-bit hash; numbering them first would cost four times the LCS.
    common = LCSseq.similarity(candidate, reference)
    return RougeScores(
        f1(candidate, reference),
        f1(pairwise(candidate), pairwise(reference)),
        _f1(common, len(candidate) + len(reference)),
    )


def best_rouge(
    candidate: Sequence[str], references: Sequence[Sequence[str]], variant: RougeVariant = "clipped"
) -> RougeScores:
    """The highest of each figure over several right answers; they may come from different references.

    Raises:
        DataError: there is no reference.
    """
    if not references:
        raise DataError("ROUGE needs at least one reference; leave texts without a right answer out before")
    scores = [rouge(candidate, reference, variant) for reference in references]
    return RougeScores(
        max(score.rouge1 for score in scores),
        max(score.rouge2 for score in scores),
        max(score.rouge_l for score in scores),
    )


def score_texts(
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: Callable[[str], Sequence[str]],
    segmentation: Segmentation,
    variant: RougeVariant = "clipped",
) -> RougeResult:
    """Best-of-references ROUGE of each text.

    Args:
        candidates: the texts to score.
        references: right answers of each candidate, one or more.
        tokenize: makes tokens of a text, such as `dmnrag.text.tokenize_words`.
        segmentation: what `tokenize` makes; it goes into the result.
        variant: how n-grams count.

    Raises:
        DataError: the two lists differ in length, or a candidate has no reference; names which.
    """
    if len(candidates) != len(references):
        raise DataError(
            f"{len(candidates)} candidates but {len(references)} lists of references: one list each is needed"
        )
    for position, right_answers in enumerate(references):
        if not right_answers:
            raise DataError(f"candidate {position} (from 0) has no reference; leave it out before scoring")
    scores = (
        best_rouge(tokenize(candidate), [tokenize(text) for text in right_answers], variant)
        for candidate, right_answers in zip(candidates, references, strict=True)
    )
    return RougeResult(segmentation, variant, tuple(scores))


def _clipped_f1(candidate: Iterable[object], reference: Iterable[object]) -> float:
    ours, theirs = Counter(candidate), Counter(reference)
    common = ours.keys() & theirs.keys()
    overlap = sum(map(min, map(ours.__getitem__, common), map(theirs.__getitem__, common)))
    return _f1(overlap, ours.total() + theirs.total())


def _unique_f1(candidate: Iterable[object], reference: Iterable[object]) -> float:
    ours, theirs = set(candidate), set(reference)
    return _f1(len(ours & theirs), len(ours) + len(theirs))


def _f1(overlap: int, total: int) -> float:
    """2PR / (P + R) with P = overlap / a and R = overlap / b is 2 * overlap / (a + b); `total` is a + b."""
    return 2 * overlap / total if total else 0.0
