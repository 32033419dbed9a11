"""Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): several rankings of one query into one.

Uses ranks alone, so it needs no agreement between the scores of the layers.
"""

from collections import defaultdict
from collections.abc import Sequence

from dmnrag.errors import ConfigError, QueryError
from dmnrag.types import Hit

RRF_CONSTANT = 60
"""The paper's value: how little the first ranks stand out."""


def reciprocal_rank_fusion(rankings: Sequence[Sequence[Hit]], k: int, constant: float = RRF_CONSTANT) -> list[Hit]:
    """The k documents with the highest sum of 1 / (constant + rank) over the rankings, ties by doc_id.

    A document that a ranking does not have gets nothing from it. The score is that sum, at most
    `len(rankings) / (constant + 1)`.

    Raises:
        QueryError: k below 1.
        ConfigError: a constant below 0.
    """
    if k < 1:
        raise QueryError(f"k is {k}: allowed are whole numbers from 1")
    if not 0 <= constant < float("inf"):
        raise ConfigError(f"the constant of rank fusion is {constant!r}: allowed are numbers from 0")
    scores: dict[str, float] = defaultdict(float)
    for ranking in rankings:
        for hit in ranking:
            scores[hit.doc_id] += 1 / (constant + hit.rank)
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [Hit(doc_id, score, rank) for rank, (doc_id, score) in enumerate(ranked[:k], start=1)]
