"""What every BM25 backend must do, as tests to subclass.

    class TestMyIndex(SparseContract):
        def build(self, documents, *, k1, b, indexed_text):
            return ...  # a SparseIndex over the documents

Texts are Latin words between spaces, which every segmenter of this package splits alike, and documents
stay under 40 terms, where Lucene's lengths are exact; so scores are compared with a slow reference of
eq. 2. Knows the protocol only: nothing here depends on how a backend stores or scores.
Needs pytest.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from math import log

import pytest

from dmnrag.errors import QueryError
from dmnrag.protocols import SparseIndex
from dmnrag.types import JOINT, PLAIN, Document, Domain, DomainUse, Hit, Query

DOCUMENTS = (
    Document("d1", "chest pain", ("rest helps chest pain",), ("heart",)),
    Document("d2", "chest cold", ("drink water and rest",), ("lung",)),
    Document("d3", "heart beats fast", ("see the heart clinic",), ("heart", "rhythm")),
    Document("d4", "skin itches", ("use a cream on the skin and rest well every night",), ("skin",)),
    Document("d5", "cough at night", ("warm water helps", "rest helps"), ("lung", "night clinic")),
    Document("d6", "broken wrist", ("see a surgeon",)),
)
"""A small corpus: labels that also stand in texts, two labels, a label of two words, no label."""

USES = (JOINT, PLAIN, DomainUse(in_document=False), DomainUse(in_query=False), DomainUse(weight=2.5))
"""Domain in both, in neither, in the query alone, in the document alone, and weighted."""


def searched_text(document: Document, indexed_text: str) -> str:
    """Question and answers, or the answers alone."""
    answers = "\n".join(document.answers)
    return answers if indexed_text == "answer" else f"{document.question}\n{answers}"


def reference_scores(
    documents: Sequence[Document], query: Query, use: DomainUse, *, k1: float, b: float, indexed_text: str
) -> dict[str, float]:
    """Eq. 2 word by word, for texts of Latin words: the score of every document, 0 where nothing matches."""
    use = use if use.weight > 0 else PLAIN
    terms_of = {}
    for document in documents:
        labels = document.domain if use.in_document else ()
        terms_of[document.doc_id] = Counter(" ".join([searched_text(document, indexed_text), *labels]).split())
    average = sum(c.total() for c in terms_of.values()) / max(len(documents), 1) or 1.0  # nothing to score then
    weights: dict[str, float] = dict(Counter(query.text.split()))
    for term in " ".join(query.domain).split() if use.in_query else ():
        weights[term] = weights.get(term, 0) + use.weight
    scores = {}
    for doc_id, counts in terms_of.items():
        factor = k1 * (1 - b + b * counts.total() / average)
        scores[doc_id] = sum(
            weight * _idf(term, terms_of) * counts[term] * (k1 + 1) / (counts[term] + factor)
            for term, weight in sorted(weights.items())
            if counts[term]
        )
    return scores


def _idf(term: str, terms_of: dict[str, Counter[str]]) -> float:
    frequency = sum(term in counts for counts in terms_of.values())
    return log(1 + (len(terms_of) - frequency + 0.5) / (frequency + 0.5))


def expected_hits(scores: dict[str, float], k: int) -> list[tuple[str, float]]:
    """The ranking that scores imply: best first, ties by doc_id, nothing that scores 0."""
    matching = [(doc_id, score) for doc_id, score in scores.items() if score > 0]
    return sorted(matching, key=lambda hit: (-hit[1], hit[0]))[:k]


def found(hits: Sequence[Hit]) -> list[str]:
    """Ids in the order of the hits."""
    return [hit.doc_id for hit in hits]


class SparseContract(ABC):
    """Subclass it under a name that begins with Test and give `build`."""

    @abstractmethod
    def build(self, documents: Sequence[Document], *, k1: float, b: float, indexed_text: str) -> SparseIndex:
        """A searchable index; `indexed_text` is "question+answer" or "answer"."""

    @pytest.fixture(name="index")
    def index_of_all(self) -> SparseIndex:
        """An index of `DOCUMENTS` with usual settings."""
        return self.build(DOCUMENTS, k1=1.2, b=0.75, indexed_text="question+answer")

    @pytest.mark.parametrize("indexed_text", ["question+answer", "answer"])
    @pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.9, 0.4), (2.0, 0.0), (1.5, 1.0)])
    def test_scores_are_those_of_equation_2(self, k1: float, b: float, indexed_text: str) -> None:
        """Every use of the domain, several k1 and b, against the reference."""
        index = self.build(DOCUMENTS, k1=k1, b=b, indexed_text=indexed_text)
        queries = (
            Query("q1", "chest pain at night", ("lung", "night clinic")),
            Query("q2", "rest rest water", ("heart",)),
            Query("q3", "see the heart clinic"),
        )
        for use in USES:
            for query, hits in zip(queries, index.search(queries, 10, use=use), strict=True):
                scores = reference_scores(DOCUMENTS, query, use, k1=k1, b=b, indexed_text=indexed_text)
                expected = expected_hits(scores, 10)
                assert found(hits) == [doc_id for doc_id, _ in expected]
                assert [hit.score for hit in hits] == pytest.approx([s for _, s in expected], rel=1e-5)

    def test_joint_retrieval_is_the_default(self, index: SparseIndex) -> None:
        """Without `use` the domain takes part in query and document."""
        queries = [Query("q", "rest", ("lung",))]
        assert index.search(queries, 5) == index.search(queries, 5, use=JOINT)

    def test_domain_lifts_documents_of_that_domain(self, index: SparseIndex) -> None:
        """Of two documents about the chest the one of the query's domain comes first."""
        for label, first in (("heart", "d1"), ("lung", "d2")):
            [hits] = index.search([Query("q", "chest", (label,))], 1)
            assert found(hits) == [first]

    def test_weight_0_turns_the_domain_off(self, index: SparseIndex) -> None:
        """In the query and in the document: the same as plain retrieval."""
        queries = [Query("q", "heart rest", ("lung",))]
        assert index.search(queries, 9, use=DomainUse(weight=0)) == index.search(queries, 9, use=PLAIN)

    def test_label_spread_over_two_is_not_one_term(self, index: SparseIndex) -> None:
        """Labels are separate texts, so a query for one finds documents that carry it beside others."""
        [hits] = index.search([Query("q", "", ("rhythm",))], 9)
        assert found(hits) == ["d3"]

    def test_filter_keeps_documents_with_any_of_its_labels(self, index: SparseIndex) -> None:
        """Applied before scoring: k hits from the domain although others score higher."""
        query = Query("q", "rest heart chest")
        [hits] = index.search([query], 9, use=PLAIN, allowed=[("lung", "skin")])
        assert set(found(hits)) == {"d2", "d4", "d5"}
        [best] = index.search([query], 1, use=PLAIN, allowed=[("skin",)])
        assert found(best) == ["d4"]

    def test_filter_leaves_scores_as_they_are(self, index: SparseIndex) -> None:
        """Statistics are those of the whole collection."""
        query = Query("q", "rest heart", ("heart",))
        [free] = index.search([query], 9)
        [kept] = index.search([query], 9, allowed=[("heart",)])
        score_of = {hit.doc_id: hit.score for hit in free}
        assert [hit.score for hit in kept] == pytest.approx([score_of[d] for d in found(kept)], rel=1e-6)
        assert found(kept) == [d for d in found(free) if d in {"d1", "d3"}]

    @pytest.mark.parametrize("labels", [("dentistry",), (), ("hear",)])
    def test_filter_that_matches_nothing_returns_nothing(self, index: SparseIndex, labels: Domain) -> None:
        """An unknown label, no label at all, and the beginning of a label."""
        assert index.search([Query("q", "rest heart", ("heart",))], 3, allowed=[labels]) == [[]]

    def test_filters_belong_to_their_queries(self, index: SparseIndex) -> None:
        """Each query has its own; None filters nothing."""
        query = Query("q", "rest")
        free, lung, nothing = index.search([query] * 3, 9, allowed=[None, ("lung",), ()])
        assert set(found(free)) == {"d1", "d2", "d4", "d5"}
        assert set(found(lung)) == {"d2", "d5"}
        assert nothing == []

    def test_filters_of_another_number_than_queries_are_refused(self, index: SparseIndex) -> None:
        """One filter for two queries."""
        with pytest.raises(QueryError, match="filter"):
            index.search([Query("q1", "rest"), Query("q2", "rest")], 3, allowed=[None])

    @pytest.mark.parametrize("text", ["zebra", "", "   ", "。！？"])
    def test_query_without_a_known_term_finds_nothing(self, index: SparseIndex, text: str) -> None:
        """Never a hit with score 0, and no error."""
        assert index.search([Query("q", text)], 3) == [[]]

    def test_fewer_hits_than_k_when_fewer_match(self, index: SparseIndex) -> None:
        """Only documents that score above 0 are hits, k beyond the corpus included."""
        for k in (3, 1000):
            [hits] = index.search([Query("q", "chest")], k)
            assert set(found(hits)) == {"d1", "d2"}
            assert all(hit.score > 0 for hit in hits)

    @pytest.mark.parametrize("k", [0, -1])
    def test_k_below_1_is_refused(self, index: SparseIndex, k: int) -> None:
        """With the value in the message."""
        with pytest.raises(QueryError, match=str(k)):
            index.search([Query("q", "chest")], k)

    def test_ties_are_broken_by_doc_id(self) -> None:
        """Whatever the order of the documents, also where k cuts through the tie."""
        documents = [Document(doc_id, "same words", ("here",)) for doc_id in ("b", "d", "a", "c")]
        index = self.build(documents, k1=1.2, b=0.75, indexed_text="question+answer")
        for k in (2, 4):
            [hits] = index.search([Query("q", "same")], k)
            assert found(hits) == ["a", "b", "c", "d"][:k]

    def test_ranks_count_from_1(self, index: SparseIndex) -> None:
        """And scores never rise."""
        [hits] = index.search([Query("q", "rest heart water", ("heart",))], 9)
        assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    def test_many_queries_equal_one_by_one(self, index: SparseIndex) -> None:
        """In the order of the queries; none gives none."""
        queries = [
            Query("q1", "chest pain", ("heart",)),
            Query("q2", "zebra"),
            Query("q3", "night", ("lung", "night clinic")),
        ]
        together = index.search(queries, 3)
        assert together == [index.search([query], 3)[0] for query in queries]
        assert index.search([], 3) == []

    def test_long_query_finds_what_its_rare_words_name(self) -> None:
        """A query of thousands of terms works, and keeps the informative ones."""
        common = " ".join(f"word{i}" for i in range(30))
        documents = [Document(f"d{i}", f"{common} rare{i}", ("x",)) for i in range(4)]
        index = self.build(documents, k1=1.2, b=0.75, indexed_text="question+answer")
        unknown = " ".join(f"unknown{i}" for i in range(3000))
        [hits] = index.search([Query("q", f"{unknown} {common} rare2")], 1)
        assert found(hits) == ["d2"]

    def test_chinese_question_finds_its_document(self) -> None:
        """Ranking only: how Chinese is segmented is the backend's setting."""
        documents = [
            Document("bp", "高血压患者吃什么药", ("遵医嘱服用降压药物",), ("内科", "心血管内科")),
            Document("cat", "被猫抓伤要打疫苗吗", ("及时冲洗并接种疫苗",), ("外科",)),
        ]
        index = self.build(documents, k1=1.2, b=0.75, indexed_text="question+answer")
        for text, first in (("高血压用药", "bp"), ("猫抓伤", "cat")):
            [hits] = index.search([Query("q", text)], 1)
            assert found(hits) == [first]
