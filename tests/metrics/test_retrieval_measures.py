"""Retrieval measures query by query, and the share of the domain."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.errors import ConfigError, DataError
from dmnrag.metrics import retrieval_measures, same_domain_at_k
from dmnrag.types import Hit


def ranking(*doc_ids: str, score: float = 1.0) -> list[Hit]:
    return [Hit(doc_id, score, rank) for rank, doc_id in enumerate(doc_ids, start=1)]


def test_measures_by_hand() -> None:
    run = {"q": ranking("x", "a", "y", "b")}
    qrels = {"q": {"a": 1, "b": 1, "c": 1, "x": 0}}
    measures = [
        "recall@3",
        "recall@10",
        "precision@3",
        "MRR@10",
        "MRR@1",
        "success@1",
        "success@2",
        "nDCG@10",
    ]
    values = {name: by_query["q"] for name, by_query in retrieval_measures(run, qrels, measures).items()}
    dcg = 1 / math.log2(3) + 1 / math.log2(5)  # ranks 2 and 4
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)  # three relevant documents at ranks 1, 2, 3
    assert values == pytest.approx(
        {
            "recall@3": 1 / 3,
            "recall@10": 2 / 3,
            "precision@3": 1 / 3,
            "MRR@10": 1 / 2,
            "MRR@1": 0,
            "success@1": 0,
            "success@2": 1,
            "nDCG@10": dcg / ideal,
        }
    )


def test_map_by_hand() -> None:
    # relevant at ranks 1 and 3 of 2 relevant: (1/1 + 2/3) / 2
    values = retrieval_measures({"q": ranking("a", "x", "b")}, {"q": {"a": 1, "b": 1}}, ["MAP@10"])
    assert values["MAP@10"]["q"] == pytest.approx(5 / 6)


def test_ndcg_takes_the_relevance_as_gain() -> None:
    # b (1) before a (2): (1 + 2 / log2 3) / (2 + 1 / log2 3)
    values = retrieval_measures({"q": ranking("b", "a")}, {"q": {"a": 2, "b": 1}}, ["nDCG@3"])
    assert values["nDCG@3"]["q"] == pytest.approx((1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3)))


@pytest.mark.parametrize("first", ["a", "z"])
def test_equal_scores_keep_our_rank(first: str) -> None:
    run = {"q": ranking(first, "m", score=0.5)}
    measures = ["MRR@10", "recall@1", "nDCG@1", "success@1"]
    assert retrieval_measures(run, {"q": {first: 1}}, measures) == {m: {"q": 1.0} for m in measures}
    assert retrieval_measures(run, {"q": {"m": 1}}, measures)["recall@1"] == {"q": 0.0}


def test_scores_play_no_part() -> None:
    run = {"q": [Hit("a", -3.0, 1), Hit("b", 9.0, 2)]}
    assert retrieval_measures(run, {"q": {"a": 1}}, ["MRR@10"])["MRR@10"]["q"] == 1


def test_query_missing_from_run_scores_zero() -> None:
    run = {"q1": ranking("a"), "q3": [], "unjudged": ranking("a")}
    qrels = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}, "q4": {"a": 0}, "q5": {}}
    values = retrieval_measures(run, qrels, ["recall@3", "MRR@10"])
    expected = {"q1": 1.0, "q2": 0.0, "q3": 0.0, "q4": 0.0, "q5": 0.0}
    assert values == {"recall@3": expected, "MRR@10": expected}


def test_an_empty_run_and_empty_qrels_are_no_error() -> None:
    assert retrieval_measures({}, {"q": {"a": 1}}, ["recall@3", "nDCG@10"]) == {
        "recall@3": {"q": 0.0},
        "nDCG@10": {"q": 0.0},
    }
    assert retrieval_measures({}, {}, ["recall@3"]) == {"recall@3": {}}


def test_two_spellings_of_a_measure_both_stand_in_the_result() -> None:
    values = retrieval_measures({"q": ranking("a")}, {"q": {"a": 1}}, ["Recall@3", "recall@3"])
    assert values == {"Recall@3": {"q": 1.0}, "recall@3": {"q": 1.0}}


def test_long_rankings_keep_their_order() -> None:
    doc_ids = [f"d{i}" for i in range(3000)]
    values = retrieval_measures({"q": ranking(*doc_ids)}, {"q": {"d1999": 1}}, ["MRR@3000", "recall@1999"])
    assert values["MRR@3000"]["q"] == pytest.approx(1 / 2000)
    assert values["recall@1999"]["q"] == 0


@given(st.permutations(["a", "b", "c", "d"]), st.integers(1, 5))
def test_reciprocal_rank_and_recall_of_one_gold_document(order: list[str], k: int) -> None:
    rank = order.index("a") + 1
    values = retrieval_measures({"q": ranking(*order)}, {"q": {"a": 1}}, [f"MRR@{k}", f"recall@{k}"])
    assert values[f"MRR@{k}"]["q"] == pytest.approx(1 / rank if rank <= k else 0)
    assert values[f"recall@{k}"]["q"] == (rank <= k)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("recal@3", r"did you mean recall@3\?"),
        ("ndgc@5", r"did you mean nDCG@5\?"),
        ("recall", r"did you mean recall@10\?"),
        ("recall@0", r"did you mean recall@10\?"),
        ("xyz@3", "k a whole number from 1$"),
    ],
)
def test_unknown_measures_are_named_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        retrieval_measures({}, {}, [name])
    assert "recall@k, precision@k, success@k, MRR@k, MAP@k, nDCG@k" in str(caught.value)


def test_a_document_twice_in_a_ranking_is_refused() -> None:
    with pytest.raises(DataError, match="query 'q' holds a document more than once"):
        retrieval_measures({"q": ranking("a", "a")}, {"q": {"a": 1}}, ["recall@3"])


HITS = [("内科", "心血管内科"), ("内科", "呼吸内科"), ("外科",), ("内科", "心血管内科")]


def test_same_domain_counts_the_most_specific_or_most_general_label() -> None:
    query = ("内科", "心血管内科")
    assert same_domain_at_k(HITS, query, 3) == pytest.approx(1 / 3)
    assert same_domain_at_k(HITS, query, 4) == pytest.approx(2 / 4)
    assert same_domain_at_k(HITS, query, 3, level="general") == pytest.approx(2 / 3)


def test_same_domain_of_sets_counts_any_shared_label() -> None:
    hits = [("a", "b"), ("c",), ("b",)]
    assert same_domain_at_k(hits, ("b", "a"), 3, kind="set") == pytest.approx(2 / 3)
    assert same_domain_at_k(hits, ("b", "a"), 3) == pytest.approx(1 / 3)


def test_places_without_a_hit_count_as_misses() -> None:
    assert same_domain_at_k([("a",), ("a",)], ("a",), 3) == pytest.approx(2 / 3)
    assert same_domain_at_k([], ("a",), 3) == 0


def test_a_query_without_domain_has_no_share() -> None:
    assert same_domain_at_k(HITS, (), 3) is None


def test_same_domain_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ConfigError, match="k is 0"):
        same_domain_at_k(HITS, ("a",), 0)
    with pytest.raises(ConfigError, match="kind 'tree'"):
        same_domain_at_k(HITS, ("a",), 3, kind="tree")  # type: ignore[arg-type]
