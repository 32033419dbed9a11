"""What every second layer must do, as tests to subclass.

    class TestMyIndex(DenseContract):
        def build(self, documents):
            return ...  # a DenseIndex over the documents that are not removed

Vectors have length 1, which every backend takes. Scores are compared with a slow reference.
Knows the protocol only: nothing here depends on how a backend stores or searches. Needs pytest.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from dmnrag.errors import ConfigError, QueryError
from dmnrag.protocols import DenseIndex, FloatMatrix
from dmnrag.types import Domain, Hit


@dataclass(frozen=True, slots=True)
class VectorDocument:
    """A document as the second layer sees it."""

    doc_id: str
    parts: FloatMatrix
    """(n_parts, dimension), each of length 1."""
    domain: Domain = ()
    removed: bool = False
    """It was in the index and was taken out again."""


def unit(*rows: Sequence[float]) -> FloatMatrix:
    """Rows scaled to length 1."""
    matrix: FloatMatrix = np.array(rows, np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix


def reference_ranking(
    documents: Sequence[VectorDocument], query: npt.NDArray[np.float32], k: int, labels: Domain | None = None
) -> list[tuple[str, float]]:
    """Every document compared: the best part's inner product, best first, ties by doc_id."""
    scored = [
        (
            document.doc_id,
            float(np.float32(max(document.parts.astype(np.float64) @ query.astype(np.float64)))),
        )
        for document in documents
        if not document.removed and (labels is None or set(labels) & set(document.domain))
    ]
    return sorted(scored, key=lambda item: (-item[1], item[0]))[:k]


def random_documents(n: int, dimension: int, seed: int) -> list[VectorDocument]:
    """Documents of one to three parts with none to two of four labels; one in five is removed."""
    random = np.random.default_rng(seed)
    labels = ("heart", "lung", "skin", "night clinic")
    documents = []
    for i in range(n):
        parts = unit(*random.standard_normal((random.integers(1, 4), dimension)))
        domain = tuple(label for label in labels if random.random() < 0.25)[:2]
        documents.append(VectorDocument(f"d{i:04d}", parts, domain, removed=bool(random.random() < 0.2)))
    return documents


SMALL = (
    VectorDocument("east", unit([1, 0, 0, 0]), ("heart",)),
    VectorDocument("north", unit([0, 1, 0, 0]), ("lung", "night clinic")),
    VectorDocument("both", unit([1, 0, 0, 1], [0, 1, 0, 1]), ("skin",)),
    VectorDocument("west", unit([-1, 0, 0, 0])),
    VectorDocument("gone", unit([1, 0, 0, 0]), ("heart",), removed=True),
)
"""One document of two parts, one that opposes another, one that was removed."""

EAST = unit([1, 0, 0, 0])


def found(hits: Sequence[Hit]) -> list[str]:
    """Ids in the order of the hits."""
    return [hit.doc_id for hit in hits]


class DenseContract(ABC):
    """Subclass it under a name that begins with Test and give `build`."""

    tolerance: ClassVar[float] = 1e-6
    """How far a score may be from the reference."""
    n_copies: ClassVar[int] = 40
    """Copies of one vector among which nothing is lost; a graph knows only so many neighbours."""

    @abstractmethod
    def build(self, documents: Sequence[VectorDocument]) -> DenseIndex:
        """A searchable index; the documents marked as removed have been removed from it."""

    @pytest.fixture(name="index")
    def index_of_small(self) -> DenseIndex:
        """An index of `SMALL`."""
        return self.build(SMALL)

    def assert_matches(self, hits: Sequence[Hit], expected: Sequence[tuple[str, float]]) -> None:
        """Same documents in the same order, scores within the tolerance."""
        assert found(hits) == [doc_id for doc_id, _ in expected]
        assert [hit.score for hit in hits] == pytest.approx([s for _, s in expected], abs=self.tolerance)
        assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))

    def test_best_part_counts_and_any_score_is_a_hit(self, index: DenseIndex) -> None:
        """1 for east, 1/sqrt(2) = .7071 for the better part of both, 0 for north, -1 for west."""
        [hits] = index.search(EAST, 10)
        self.assert_matches(hits, [("east", 1.0), ("both", 0.5**0.5), ("north", 0.0), ("west", -1.0)])

    @pytest.mark.parametrize("k", [1, 7, 60])
    def test_search_equals_comparing_everything(self, k: int) -> None:
        """Random documents with parts, labels and removals, with and without filters."""
        documents = random_documents(90, 12, seed=1)
        index = self.build(documents)
        queries = unit(*np.random.default_rng(2).standard_normal((4, 12)))
        filters: list[Domain | None] = [None, ("heart",), ("lung", "skin"), ("night clinic",)]
        for query, labels, hits in zip(queries, filters, index.search(queries, k, allowed=filters), strict=True):
            self.assert_matches(hits, reference_ranking(documents, query, k, labels))

    def test_rescore_equals_comparing_the_candidates(self) -> None:
        """Removed documents among the candidates are passed over."""
        documents = random_documents(60, 12, seed=3)
        index = self.build(documents)
        [query] = unit(*np.random.default_rng(4).standard_normal((1, 12)))
        chosen = documents[10:40]
        [hits] = index.rescore(query[None], [[document.doc_id for document in chosen]], 10)
        self.assert_matches(hits, reference_ranking(chosen, query, 10))

    def test_document_of_many_parts_is_one_hit(self) -> None:
        """All nearest vectors are of one document; the others still fill the k hits."""
        crowd = VectorDocument("crowd", unit(*([1, 0, 0, i / 1000] for i in range(50))))
        others = [VectorDocument(f"o{i}", unit([1, 1 + i, 0, 0])) for i in range(3)]
        index = self.build([*others, crowd])
        [hits] = index.search(EAST, 3)
        assert found(hits) == ["crowd", "o0", "o1"]

    def test_removed_document_is_never_found(self, index: DenseIndex) -> None:
        """Not by search, not by filter, not as a candidate."""
        [free], [kept] = index.search(EAST, 10), index.search(EAST, 10, allowed=[("heart",)])
        [scored] = index.rescore(EAST, [["gone", "east"]], 10)
        assert "gone" not in found(free)
        assert found(kept) == ["east"]
        assert found(scored) == ["east"]

    @pytest.mark.parametrize("labels", [("dentistry",), (), ("hear",)])
    def test_filter_that_matches_nothing_returns_nothing(self, index: DenseIndex, labels: Domain) -> None:
        """An unknown label, no label at all, and the beginning of a label."""
        assert index.search(EAST, 3, allowed=[labels]) == [[]]

    def test_filter_keeps_documents_with_any_of_its_labels(self, index: DenseIndex) -> None:
        """Applied before ranking: the best of the domain although others are nearer."""
        [hits] = index.search(EAST, 9, allowed=[("night clinic", "skin")])
        assert found(hits) == ["both", "north"]
        [best] = index.search(EAST, 1, allowed=[("lung",)])
        assert found(best) == ["north"]

    def test_filters_belong_to_their_queries(self, index: DenseIndex) -> None:
        """Each query has its own; None filters nothing."""
        free, lung, nothing = index.search(np.repeat(EAST, 3, axis=0), 2, allowed=[None, ("lung",), ()])
        assert (found(free), found(lung), nothing) == (["east", "both"], ["north"], [])

    def test_ties_are_broken_by_doc_id(self) -> None:
        """Whatever the order of the documents, also where k cuts through the tie."""
        half = self.n_copies // 2
        order = [*range(half, self.n_copies), *range(half)]
        documents = [VectorDocument(f"d{i:02d}", unit([3, 1, 4, 1.5])) for i in order]
        documents.insert(9, VectorDocument("z-best", unit([1, 0, 0, 0])))
        index = self.build(documents)
        for k in (1, 4, half, self.n_copies + 1):
            [hits] = index.search(EAST, k)
            assert found(hits) == ["z-best", *(f"d{i:02d}" for i in range(self.n_copies))][:k]
        [hits] = index.rescore(EAST, [[d.doc_id for d in documents]], 3)
        assert found(hits) == ["z-best", "d00", "d01"]

    def test_rescore_passes_over_unknown_ids_and_counts_repeated_ones_once(self, index: DenseIndex) -> None:
        """No candidates give no hits."""
        [hits, nothing] = index.rescore(np.repeat(EAST, 2, axis=0), [["north", "never", "both", "north"], []], 10)
        assert found(hits) == ["both", "north"]
        assert nothing == []

    def test_many_queries_equal_one_by_one(self) -> None:
        """In the order of the queries; none gives none."""
        index = self.build(random_documents(90, 12, seed=5))
        queries = unit(*np.random.default_rng(6).standard_normal((30, 12)))
        assert index.search(queries, 5) == [index.search(query[None], 5)[0] for query in queries]
        assert index.search(queries[:0], 5) == []

    def test_fewer_hits_than_k_when_there_are_fewer_documents(self, index: DenseIndex) -> None:
        """All four that are left."""
        assert len(index.search(EAST, 1000)[0]) == 4

    @pytest.mark.parametrize("k", [0, -1])
    def test_k_below_1_is_refused(self, index: DenseIndex, k: int) -> None:
        """With the value in the message."""
        with pytest.raises(QueryError, match=str(k)):
            index.search(EAST, k)
        with pytest.raises(QueryError, match=str(k)):
            index.rescore(EAST, [["east"]], k)

    def test_lists_of_another_number_than_queries_are_refused(self, index: DenseIndex) -> None:
        """Filters and candidates."""
        with pytest.raises(QueryError, match="filter"):
            index.search(EAST, 3, allowed=[None, None])
        with pytest.raises(QueryError, match="candidates"):
            index.rescore(EAST, [["east"], ["north"]], 3)

    def test_vectors_of_another_dimension_are_refused(self, index: DenseIndex) -> None:
        """They come from another encoder than the index's."""
        with pytest.raises(ConfigError, match="dimension"):
            index.search(unit([1, 0, 0]), 3)
