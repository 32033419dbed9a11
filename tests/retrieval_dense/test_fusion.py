"""Reciprocal rank fusion against numbers by hand."""

import pytest

from dmnrag.errors import ConfigError, QueryError
from dmnrag.retrieval.fusion import reciprocal_rank_fusion
from dmnrag.types import Hit


def ranking(*doc_ids: str) -> list[Hit]:
    return [Hit(doc_id, 9.0 - rank, rank) for rank, doc_id in enumerate(doc_ids, start=1)]


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    """b: 1/62 + 1/61 = .032522; a: 1/61 = .016393; c: 1/62 = .016129."""
    hits = reciprocal_rank_fusion([ranking("a", "b"), ranking("b", "c")], 10)
    assert [(hit.doc_id, hit.rank) for hit in hits] == [("b", 1), ("a", 2), ("c", 3)]
    assert [hit.score for hit in hits] == pytest.approx([0.032522, 0.016393, 0.016129], abs=1e-6)


def test_small_constant_favours_first_ranks() -> None:
    """Constant 0: a = 1/1 + 1/4 = 1.25, b = 1/2 + 1/2 = 1; constant 60: a = .03202, b = .03226."""
    rankings = [ranking("a", "b", "x", "y"), ranking("x", "b", "y", "a")]
    assert [h.doc_id for h in reciprocal_rank_fusion(rankings, 4, constant=0)].index("a") == 1
    assert reciprocal_rank_fusion(rankings, 4)[0].doc_id == "x"  # 1/63 + 1/61


def test_ties_are_broken_by_doc_id_also_at_k() -> None:
    assert [h.doc_id for h in reciprocal_rank_fusion([ranking("b"), ranking("a")], 1)] == ["a"]


def test_one_empty_ranking_leaves_the_other() -> None:
    assert [h.doc_id for h in reciprocal_rank_fusion([[], ranking("b", "a")], 5)] == ["b", "a"]
    assert reciprocal_rank_fusion([[], []], 5) == []


def test_unusable_parameters_are_refused() -> None:
    with pytest.raises(QueryError, match="k is 0"):
        reciprocal_rank_fusion([], 0)
    with pytest.raises(ConfigError, match="-1"):
        reciprocal_rank_fusion([], 3, constant=-1)
