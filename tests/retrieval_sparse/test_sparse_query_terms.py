"""How a question becomes weighted terms, and which terms a long one keeps."""

from pathlib import Path

import pytest
from sparse_builder import Words, open_rows

from dmnrag.retrieval.sparse import MAX_QUERY_TERMS, searches_labels, select_terms, weigh_queries
from dmnrag.types import JOINT, PLAIN, DomainUse, Query

QUERY = Query("q", "pain and pain", ("heart", "heart pain"))


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (JOINT, {"pain": 3, "and": 1, "heart": 2}),
        (DomainUse(weight=0.5), {"pain": 2.5, "and": 1, "heart": 1}),
        (PLAIN, {"pain": 2, "and": 1}),
        (DomainUse(in_query=False), {"pain": 2, "and": 1}),
        (DomainUse(weight=0), {"pain": 2, "and": 1}),
    ],
)
def test_terms_count_as_often_as_they_occur(use: DomainUse, expected: dict[str, float]) -> None:
    assert weigh_queries([QUERY], Words(), use) == [expected]


def test_labels_are_segmented_one_by_one() -> None:
    class Pairs(Words):
        def segment(self, text: str) -> list[str]:
            return [text[i : i + 2] for i in range(len(text) - 1)]

    # Joined, 内科心血管 would also give 科心.
    [counts] = weigh_queries([Query("q", "", ("内科", "心血管"))], Pairs(), JOINT)
    assert sorted(counts) == sorted(["内科", "心血", "血管"])


def test_weight_0_searches_the_text_alone() -> None:
    assert [searches_labels(use) for use in (JOINT, PLAIN, DomainUse(weight=0))] == [True, False, False]


def test_long_query_keeps_the_highest_count_times_idf() -> None:
    counts = {"a": 1.0, "b": 3.0, "c": 1.0, "d": 9.0, "e": 1.0}
    idf = {"a": 2.0, "b": 1.0, "c": 2.0, "e": 2.0}  # a 2, b 3, c 2, e 2; d is unknown
    assert select_terms(counts, idf, 3) == ["a", "b", "c"]
    assert select_terms(counts, idf, 4) == ["a", "b", "c", "e"]


def test_query_beyond_the_limit_drops_its_most_frequent_terms(tmp_path: Path) -> None:
    # MAX rare terms stand in one document, one common term in all: the query asks for all of them.
    rare = " ".join(f"r{i}" for i in range(MAX_QUERY_TERMS))
    index = open_rows(tmp_path, [[("d1", f"{rare} common", ()), ("d2", "common", ())]])
    [hits] = index.search([Query("q", f"common {rare}")], 9)
    assert [hit.doc_id for hit in hits] == ["d1"]
    [hits] = index.search([Query("q", "common r1")], 9)
    assert [hit.doc_id for hit in hits] == ["d1", "d2"]
