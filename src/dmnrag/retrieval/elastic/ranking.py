"""From the server's scores of 32 bits to hits: what differs by rounding alone is a tie, and ties go by doc_id.

The same product can come out in another last bit, because the server adds up in another order once its code
is compiled, and equal sums of eq. 2 can come out so on different ways.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from dmnrag.types import Hit


class Rounding(NamedTuple):
    """How far equal scores may be apart."""

    relative: float
    """To the size of the score."""
    least_size: float
    """What smaller scores count as: 1 where the server adds 1 to them."""

    def hides(self, higher: float, lower: float) -> bool:
        """Whether two scores differ by rounding alone."""
        return higher - lower <= self.relative * max(self.least_size, abs(lower))


def rank_hits(scored: Iterable[tuple[str, float]], k: int, rounding: Rounding) -> list[Hit]:
    """The k best of (doc_id, score), best first, ties by doc_id.

    Args:
        scored: in any order, each document once.
        k: at most so many hits.
        rounding: scores are a tie when it hides how each differs from the next; all of a tie get the highest
            score of it.
    """
    levelled: list[tuple[float, str]] = []
    level = last = inf
    for doc_id, score in sorted(scored, key=lambda item: -item[1]):
        if not rounding.hides(last, score):
            level = score
        last = score
        levelled.append((-level, doc_id))
    return [Hit(doc_id, -score, rank) for rank, (score, doc_id) in enumerate(sorted(levelled)[:k], start=1)]
