"""The questions on which two ways of answering differ most, with what each was given and said."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmnrag.experiments.reporting.families import ROUGES
from dmnrag.experiments.reporting.study import Arm, Corpus
from dmnrag.experiments.results import EvidenceDocument
from dmnrag.types import Example

_METRIC = ROUGES[2]
_EACH_WAY = 3


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two answers."""

    name: str
    answer: str
    points: float
    """ROUGE-L by word, 0 to 100, of the first repeat's mean."""
    documents: tuple[EvidenceDocument, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A question with both answers, the better one first."""

    example: Example
    sides: tuple[Side, Side]


def largest_differences(corpus: Corpus, a: Arm, b: Arm, each_way: int = _EACH_WAY) -> list[Difference]:
    """The questions on which a is furthest above b in ROUGE-L, then those on which b is; ties by their order.

    Questions on which both are equal are never shown; empty where an arm is incomplete or the spec leaves ROUGE-L out.
    """
    if not all(arm.complete and _METRIC in arm.values for arm in (a, b)):
        return []
    pairs = zip(a.values[_METRIC], b.values[_METRIC], strict=True)
    gaps = [(x - y, i) for i, (x, y) in enumerate(pairs) if x is not None and y is not None]
    for_a = sorted((gap for gap in gaps if gap[0] > 0), key=lambda gap: (-gap[0], gap[1]))[:each_way]
    for_b = sorted((gap for gap in gaps if gap[0] < 0), key=lambda gap: (gap[0], gap[1]))[:each_way]
    return [_difference(corpus, (a, b), i) for _, i in for_a] + [_difference(corpus, (b, a), i) for _, i in for_b]


def _difference(corpus: Corpus, arms: Sequence[Arm], i: int) -> Difference:
    example = corpus.questions[i]
    first, second = (_side(arm, example, i) for arm in arms)
    return Difference(example, (first, second))


def _side(arm: Arm, example: Example, i: int) -> Side:
    row = arm.evidence.get(example.query.query_id)
    return Side(
        arm.cell.row, arm.answers[0][i] or "", (arm.values[_METRIC][i] or 0) * 100, row.documents if row else ()
    )
