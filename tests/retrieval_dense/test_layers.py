"""Sparse, dense, cascade, hybrid and reranking over layers that are written out by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dmnrag.errors import ConfigError, QueryError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.layers import RetrievalSettings, Retriever
from dmnrag.testing.fakes import HashEncoder, OverlapReranker
from dmnrag.types import JOINT, PLAIN, Domain, Hit, Layer, Query

SPARSE_ORDER = ("d1", "d2", "d3", "d4")
DENSE_ORDER = ("d4", "d5", "d2", "d1")
TEXTS = {"d1": "甲", "d2": "头痛怎么办", "d3": "头痛", "d4": "乙", "d5": "丙"}
QUERY = Query("q", "头痛", ("内科", "神经内科"))


def hits_of(doc_ids: Sequence[str], k: int, top: float) -> list[Hit]:
    return [Hit(doc_id, top - rank, rank) for rank, doc_id in enumerate(doc_ids[:k], start=1)]


class ScriptedSparse:
    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def search(self, queries: Sequence[Query], k: int, **options: Any) -> list[list[Hit]]:
        self.calls.append({"queries": list(queries), "k": k, **options})
        return [hits_of(SPARSE_ORDER, k, 10) for _ in queries]


class ScriptedDense:
    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def search(
        self, vectors: FloatMatrix, k: int, *, allowed: Sequence[Domain | None] | None = None
    ) -> list[list[Hit]]:
        self.calls.append({"k": k, "allowed": allowed})
        return [hits_of(DENSE_ORDER, k, 1) for _ in vectors]

    def rescore(self, vectors: FloatMatrix, candidates: Sequence[Sequence[str]], k: int) -> list[list[Hit]]:
        self.calls.append({"k": k, "candidates": candidates})
        return [hits_of([d for d in DENSE_ORDER if d in given], k, 1) for given in candidates]


class ListeningEncoder(HashEncoder):
    def __init__(self) -> None:
        super().__init__(dimension=8)
        self.asked: list[list[str]] = []

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        self.asked.append(list(texts))
        return np.zeros((len(texts), 8), np.float32)


class Parts:
    """A retriever and the parts it was made of."""

    def __init__(self, **options: Any) -> None:
        self.sparse, self.dense, self.encoder = ScriptedSparse(), ScriptedDense(), ListeningEncoder()
        self.retriever = Retriever(
            self.sparse,
            self.dense,
            self.encoder,
            reranker=OverlapReranker(),
            passages_of=lambda doc_ids: [TEXTS[d] for d in doc_ids],
            **options,
        )

    def ids(self, **settings: Any) -> list[str]:
        [hits] = self.retriever.retrieve([QUERY], RetrievalSettings(**settings))
        assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
        return [hit.doc_id for hit in hits]


@pytest.fixture
def parts() -> Parts:
    return Parts()


def test_sparse_is_the_first_layer_and_needs_no_encoder(parts: Parts) -> None:
    assert parts.ids(layer="sparse", k=2, use=PLAIN) == ["d1", "d2"]
    assert parts.sparse.calls == [{"queries": [QUERY], "k": 2, "use": PLAIN, "allowed": None}]
    assert parts.encoder.asked == []


def test_dense_searches_the_whole_index(parts: Parts) -> None:
    assert parts.ids(layer="dense", k=3) == ["d4", "d5", "d2"]
    assert parts.sparse.calls == []


def test_cascade_rescores_the_first_layers_candidates(parts: Parts) -> None:
    """Of BM25's first three the second layer knows d2 before d1; d3 it does not have."""
    assert parts.ids(layer="cascade", k=2, candidates=3) == ["d2", "d1"]
    assert parts.dense.calls == [{"k": 2, "candidates": [["d1", "d2", "d3"]]}]


def test_hybrid_fuses_both_rankings(parts: Parts) -> None:
    """d1: 1/61 + 1/64 = .03202, d4: 1/64 + 1/61 = the same, d2: 1/62 + 1/63 = .03200, d5: 1/62 = .01613."""
    assert parts.ids(layer="hybrid", k=4) == ["d1", "d4", "d2", "d5"]
    assert parts.sparse.calls[0]["use"] == JOINT
    assert parts.sparse.calls[0]["k"] == parts.dense.calls[0]["k"] == 100


def test_constant_of_the_fusion_is_used(parts: Parts) -> None:
    [hits] = parts.retriever.retrieve([QUERY], RetrievalSettings(rrf_constant=0))
    assert hits[0].score == 1.25  # d1: 1/1 + 1/4


@pytest.mark.parametrize("layer", ["cascade", "hybrid"])
def test_candidates_are_at_least_k(parts: Parts, layer: Layer) -> None:
    parts.ids(layer=layer, k=4, candidates=2)
    assert parts.sparse.calls[0]["k"] == 4


@pytest.mark.parametrize(("kind", "labels"), [("path", ("神经内科",)), ("set", ("内科", "神经内科"))])
def test_filter_asks_for_the_last_label_or_for_any(kind: str, labels: Domain) -> None:
    """A query without a domain is not filtered; both layers are asked alike."""
    parts = Parts(domain_kind=kind)
    parts.retriever.retrieve([QUERY, Query("r", "头痛")], RetrievalSettings(domain_filter=True))
    assert parts.sparse.calls[0]["allowed"] == [labels, None]
    assert parts.dense.calls[0]["allowed"] == [labels, None]


def test_queries_are_encoded_together_and_without_domain_unless_asked(parts: Parts) -> None:
    queries = [QUERY, Query("r", "腹痛")]
    parts.retriever.retrieve(queries, RetrievalSettings(layer="dense"))
    parts.retriever.retrieve(queries, RetrievalSettings(layer="dense", domain_in_dense_query=True))
    assert parts.encoder.asked == [["头痛", "腹痛"], ["内科,神经内科头痛", "腹痛"]]


def test_reranker_orders_the_candidates_of_the_layer(parts: Parts) -> None:
    """d2 and d3 hold 头痛 whole (1.0 each, tie by id), the others nothing; BM25 alone has d1 first."""
    assert parts.ids(layer="sparse", k=3, rerank=True) == ["d2", "d3", "d1"]
    assert parts.sparse.calls[0]["k"] == 100
    [hits] = parts.retriever.retrieve([QUERY], RetrievalSettings(layer="sparse", rerank=True))
    assert [hit.score for hit in hits] == [1.0, 1.0, 0.0]


def test_reranker_reads_no_more_than_the_candidates(parts: Parts) -> None:
    assert parts.ids(layer="sparse", k=1, candidates=2, rerank=True) == ["d2"]
    assert parts.sparse.calls[0]["k"] == 2


def test_no_queries_give_no_rankings(parts: Parts) -> None:
    assert parts.retriever.retrieve([], RetrievalSettings()) == []
    assert parts.encoder.asked == []


def test_encoder_may_be_made_when_it_is_first_needed() -> None:
    made: list[ListeningEncoder] = []

    def make() -> ListeningEncoder:
        made.append(ListeningEncoder())
        return made[-1]

    retriever = Retriever(ScriptedSparse(), ScriptedDense(), make)
    retriever.retrieve([QUERY], RetrievalSettings(layer="sparse"))
    assert made == []
    for _ in range(2):
        retriever.retrieve([QUERY], RetrievalSettings(layer="dense"))
    assert len(made) == 1


@pytest.mark.parametrize("layer", ["dense", "cascade", "hybrid"])
def test_layer_without_vectors_says_how_to_get_them(layer: Layer) -> None:
    with pytest.raises(ConfigError, match=f"{layer}.*--encoder builtin"):
        Retriever(ScriptedSparse()).retrieve([QUERY], RetrievalSettings(layer=layer))


def test_parts_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="encoder"):
        Retriever(ScriptedSparse(), ScriptedDense())
    with pytest.raises(ConfigError, match="passages_of"):
        Retriever(ScriptedSparse(), reranker=OverlapReranker())
    with pytest.raises(ConfigError, match="--rerank"):
        Retriever(ScriptedSparse()).retrieve([QUERY], RetrievalSettings(layer="sparse", rerank=True))


def test_unusable_settings_are_refused() -> None:
    with pytest.raises(QueryError, match="k is 0"):
        RetrievalSettings(k=0)
    with pytest.raises(ConfigError, match="candidates is 0"):
        RetrievalSettings(candidates=0)
    with pytest.raises(ConfigError, match="did you mean 'cascade'"):
        RetrievalSettings(layer="casacde")  # type: ignore[arg-type]
