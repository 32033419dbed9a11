"""How the two layers answer a query together: sparse, dense, cascade, hybrid, and a reranker behind them.

Knows layers through their protocols only: embedded and Elasticsearch indexes work alike. What a hit's
score means:

- sparse: BM25 (eq. 2), above 0
- dense and cascade: inner product of the query's and the best part's vector; any number
- hybrid: reciprocal rank fusion, the sum of 1 / (constant + rank); above 0, at most 2 / (constant + 1)
- with a reranker: its own score (a logit); any number

Scores of different layers cannot be compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from dmnrag.errors import ConfigError, QueryError
from dmnrag.protocols import DenseIndex, Encoder, FloatMatrix, Reranker, SparseIndex
from dmnrag.retrieval.fusion import RRF_CONSTANT, reciprocal_rank_fusion
from dmnrag.types import JOINT, LAYERS, Domain, DomainUse, Hit, Layer, Query

DomainKind = Literal["path", "set"]


@dataclass(frozen=True, slots=True)
class RetrievalSettings:
    """How to retrieve."""

    k: int = 3
    """Hits wanted for each query (the paper's value)."""
    layer: Layer = "hybrid"
    """Which layers take part and how."""
    use: DomainUse = JOINT
    """How the domain acts in the first layer."""
    domain_filter: bool = False
    """Only documents of the query's domain; a query without one is not filtered."""
    only: Domain | None = None
    """Only documents that carry one of these labels, whatever the query's domain is; None: all."""
    retriever: str | None = None
    """Which of an index's second layers; None: the one that belongs to `use`. Whoever holds the index chooses."""
    domain_in_dense_query: bool = False
    """The second layer is asked the domain labels, joined by `,`, with the question behind them."""
    candidates: int = 100
    """Depth of each layer for cascade and hybrid, and what a reranker reads; at least `k` are taken."""
    rerank: bool = False
    """Order the candidates by the reranker."""
    rrf_constant: float = RRF_CONSTANT
    """The constant of reciprocal rank fusion (hybrid)."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise QueryError(f"k is {self.k}: allowed are whole numbers from 1")
        if self.candidates < 1:
            raise ConfigError(f"candidates is {self.candidates}: allowed are whole numbers from 1")
        if self.domain_filter and self.only is not None:
            raise ConfigError("domain_filter and only are two filters for the same thing: give one of them")
        if self.layer not in LAYERS:
            close = get_close_matches(str(self.layer), LAYERS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"there is no layer {self.layer!r}: allowed are {', '.join(LAYERS)}{hint}")

    @property
    def depth(self) -> int:
        """Candidates taken where more than the hits are needed."""
        return max(self.k, self.candidates)


@dataclass(frozen=True, slots=True)
class LayerHits:
    """What a query found, and what each layer had to say of it."""

    hits: list[Hit]
    """The result, at most k."""
    sparse: list[Hit]
    """The first layer's ranking as deep as it was needed, at least what `hits` took of it; empty for layer `dense`."""
    dense: list[Hit]
    """The second layer's, of the first layer's documents for `cascade`; empty for layer `sparse`."""


class Retriever:
    """An index's layers, searched as the settings say."""

    def __init__(
        self,
        sparse: SparseIndex,
        dense: DenseIndex | None = None,
        encoder: Encoder | Callable[[], Encoder] | None = None,
        *,
        reranker: Reranker | None = None,
        passages_of: Callable[[Sequence[str]], list[str]] | None = None,
        domain_kind: DomainKind = "path",
    ) -> None:
        """Put layers together.

        Args:
            sparse: first layer.
            dense: second layer, where the index has one.
            encoder: the one that `dense` was built with, or a function that gives it, called when a
                query first needs it.
            reranker: orders candidates when the settings say so.
            passages_of: the text of each doc_id, for the reranker.
            domain_kind: `path`: the filter asks for the most specific label (the last one); `set`: for any.

        Raises:
            ConfigError: a second layer without an encoder, or a reranker without texts to read.
        """
        if dense is not None and encoder is None:
            raise ConfigError("a second layer needs the encoder that it was built with")
        if reranker is not None and passages_of is None:
            raise ConfigError("a reranker needs passages_of, which gives it the texts to read")
        self._sparse = sparse
        self._dense = dense
        self._encoder = encoder
        self._reranker = reranker
        self._passages_of = passages_of
        self._domain_kind = domain_kind

    def retrieve(self, queries: Sequence[Query], settings: RetrievalSettings = RetrievalSettings()) -> list[list[Hit]]:
        """The k best documents of each query, best first, ties by doc_id. Queries are encoded together.

        Raises:
            ConfigError: the settings need a second layer or a reranker that is not there.
        """
        return [found.hits for found in self.retrieve_layers(queries, settings)]

    def retrieve_layers(
        self, queries: Sequence[Query], settings: RetrievalSettings = RetrievalSettings()
    ) -> list[LayerHits]:
        """The hits of `retrieve` with the rankings they came from. Costs nothing more.

        Raises:
            ConfigError: the settings need a second layer or a reranker that is not there.
        """
        if settings.rerank and self._reranker is None:
            raise ConfigError("reranking was asked for without a reranker: name one (--rerank MODEL)")
        depth = settings.depth if settings.rerank else settings.k
        found = self._layers(queries, settings, depth) if queries else []
        if not settings.rerank:
            return found
        return [
            replace(layers, hits=self._rerank(query, layers.hits, settings.k))
            for query, layers in zip(queries, found, strict=True)
        ]

    def _layers(self, queries: Sequence[Query], settings: RetrievalSettings, k: int) -> list[LayerHits]:
        if settings.layer == "sparse":
            return [LayerHits(hits, hits, []) for hits in self._search_sparse(queries, settings, k)]
        dense = self._second_layer(settings.layer)
        vectors = self._encode(queries, settings)
        allowed = self._filters(queries, settings)
        if settings.layer == "dense":
            return [LayerHits(hits, [], hits) for hits in dense.search(vectors, k, allowed=allowed)]
        first = self._search_sparse(queries, settings, settings.depth)
        if settings.layer == "cascade":
            second = dense.rescore(vectors, [[hit.doc_id for hit in hits] for hits in first], k)
            return [LayerHits(hits, sparse, hits) for sparse, hits in zip(first, second, strict=True)]
        second = dense.search(vectors, settings.depth, allowed=allowed)
        return [
            LayerHits(reciprocal_rank_fusion(pair, k, settings.rrf_constant), *pair)
            for pair in zip(first, second, strict=True)
        ]

    def _search_sparse(self, queries: Sequence[Query], settings: RetrievalSettings, k: int) -> list[list[Hit]]:
        return self._sparse.search(queries, k, use=settings.use, allowed=self._filters(queries, settings))

    def _second_layer(self, layer: Layer) -> DenseIndex:
        if self._dense is None:
            raise ConfigError(
                f"layer {layer!r} needs vectors, which this index does not have: build it with an encoder "
                "(dmnrag index ... --encoder builtin), or use layer 'sparse'"
            )
        return self._dense

    def _encode(self, queries: Sequence[Query], settings: RetrievalSettings) -> FloatMatrix:
        if callable(self._encoder):
            self._encoder = self._encoder()
        assert self._encoder is not None  # held by the constructor where there is a second layer
        with_domain = settings.domain_in_dense_query
        return self._encoder.encode_queries(
            [(",".join(query.domain) if with_domain else "") + query.text for query in queries]
        )

    def _filters(self, queries: Sequence[Query], settings: RetrievalSettings) -> list[Domain | None] | None:
        if settings.only is not None:
            return [settings.only] * len(queries)
        if not settings.domain_filter:
            return None
        return [self._labels(query.domain) if query.domain else None for query in queries]

    def _labels(self, domain: Domain) -> Domain:
        return domain[-1:] if self._domain_kind == "path" else domain

    def _rerank(self, query: Query, hits: Sequence[Hit], k: int) -> list[Hit]:
        assert self._reranker is not None  # held by `retrieve`
        assert self._passages_of is not None  # held by the constructor
        if not hits:
            return []
        doc_ids = [hit.doc_id for hit in hits]
        scores = self._reranker.score(query.text, self._passages_of(doc_ids))
        ranked = sorted(zip(doc_ids, scores, strict=True), key=lambda item: (-item[1], item[0]))
        return [Hit(doc_id, score, rank) for rank, (doc_id, score) in enumerate(ranked[:k], start=1)]
