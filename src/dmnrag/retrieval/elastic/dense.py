"""Second layer on a cluster: kNN by inner product over one retriever's vectors; the best part counts.

The server compares quantised vectors and scores the best of them again at full precision. It does so for one
part of each document, the best of the quantised ones, so documents of several parts are scored here, over
all their parts. Scores are inner products in 32-bit numbers; any score is a hit. Ties by doc_id.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag.errors import ConfigError, QueryError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.dense.nearest import inner_products
from dmnrag.retrieval.elastic.connection import Cluster
from dmnrag.retrieval.elastic.layout import WINDOW, VectorLayout, parts_field
from dmnrag.retrieval.elastic.ranking import Rounding, rank_hits
from dmnrag.retrieval.elastic.searches import Answer, dump, search_all
from dmnrag.retrieval.elastic.sparse import check_window
from dmnrag.types import Domain, Hit

_SPARE = 16
"""Hits asked for beyond k, so that a tie at rank k is usually seen whole."""

_ROUNDING = Rounding(3e-7, 1.0)
"""The server's 1 + p in 32 bits and the exact inner product differed by 2.2e-7 at most, vectors of length 1."""

_PARTS_PER_CANDIDATE = 10
"""Room for candidates of several parts: the server compares them all as long as there are no more parts."""

_FETCHED_TOGETHER = 1000
"""Documents whose vectors are fetched by one search; 5 kB each for 384 numbers."""

Vector = npt.NDArray[np.float32]


@dataclass(slots=True)
class _Asked:
    """How far one query's search is."""

    want: int
    """Hits to be found before the answer can be settled."""
    found: dict[str, float] = field(default_factory=dict)
    parted: set[str] = field(default_factory=set)
    """Those of several parts: their score is not final."""
    leave_out: bool = False
    """Ask for others than those found."""
    done: bool = False


class ElasticDenseIndex:
    """Nearest documents by inner product. Safe to use from several threads."""

    def __init__(self, cluster: Cluster, physical: str, field_name: str, layout: VectorLayout) -> None:
        """The vectors of one retriever (`OpenedIndex.field` and `OpenedIndex.retrievers`)."""
        self._cluster = cluster
        self._physical = physical
        self._field = field_name
        self._layout = layout
        self.dimension = layout.dimension

    def search(
        self, vectors: FloatMatrix, k: int, *, allowed: Sequence[Domain | None] | None = None
    ) -> list[list[Hit]]:
        """The k documents with the highest inner product, best first, ties by doc_id.

        One request serves a hundred queries; one more where documents of several parts are found, and where
        fewer than k are.

        Args:
            vectors: (n_queries, dimension), from the encoder that the index was built with.
            k: at most 10,000; fewer hits only where fewer documents are allowed.
            allowed: for each query labels of which a document must carry one, or None for no filter.

        Raises:
            QueryError: k below 1 or above 10,000, not one filter per query, or numbers that are not finite.
            ConfigError: vectors of another dimension than the index's.
            ClusterError: the cluster did not answer whole and in time.
        """
        queries = self._check(vectors, k)
        filters = [None] * len(queries) if allowed is None else list(allowed)
        if len(filters) != len(queries):
            raise QueryError(f"{len(filters)} filters for {len(queries)} queries: give one for each, or none at all")
        asked = [_Asked(min(k + _SPARE, WINDOW), done=labels == ()) for labels in filters]
        while open_queries := [i for i, state in enumerate(asked) if not state.done]:
            bodies = [dump(self._nearest(queries[i], asked[i], filters[i])) for i in open_queries]
            for i, answer in zip(open_queries, self._ask(bodies), strict=True):
                self._take(asked[i], answer, k)
        self._score_parted(queries, asked)
        return [rank_hits(state.found.items(), k, _ROUNDING) for state in asked]

    def rescore(self, vectors: FloatMatrix, candidates: Sequence[Sequence[str]], k: int) -> list[list[Hit]]:
        """The k best of each query's candidates, scored exactly; ids that are not there are passed over.

        One request serves a hundred queries. Where the server leaves out a candidate, one more asks for it.

        Raises:
            QueryError: k below 1, not one list per query, more than 10,000 candidates, or numbers that are not
                finite.
            ConfigError: vectors of another dimension than the index's.
            ClusterError: the cluster did not answer whole and in time.
        """
        queries = self._check(vectors, k)
        if len(candidates) != len(queries):
            raise QueryError(f"{len(candidates)} lists of candidates for {len(queries)} queries: give one for each")
        unique = [list(dict.fromkeys(doc_ids)) for doc_ids in candidates]
        check_window(max([k, *map(len, unique)]))
        asked = [i for i, doc_ids in enumerate(unique) if doc_ids]
        bodies = [dump(self._among(queries[i], unique[i])) for i in asked]
        everyone = sorted({doc_id for doc_ids in unique for doc_id in doc_ids})
        answers = self._ask(bodies + [dump(body) for body in self._fetching(everyone, parted_only=True)])
        parts = self._read_parts(answers[len(bodies) :])
        scores = [_scores(answer) for answer in answers[: len(bodies)]]
        missing = {
            d for i, known in zip(asked, scores, strict=True) for d in unique[i] if d not in known
        } - parts.keys()
        if missing:
            parts |= self._read_parts(self._ask([dump(body) for body in self._fetching(sorted(missing))]))
        rankings: list[list[Hit]] = [[] for _ in queries]
        for i, known in zip(asked, scores, strict=True):
            exact = {d: float(inner_products(queries[i], parts[d]).max()) for d in unique[i] if d in parts}
            rankings[i] = rank_hits((known | exact).items(), k, _ROUNDING)
        return rankings

    def _check(self, vectors: FloatMatrix, k: int) -> FloatMatrix:
        if k < 1:
            raise QueryError(f"k is {k}: allowed are whole numbers from 1")
        check_window(k)
        queries = np.ascontiguousarray(vectors, np.float32)
        if queries.ndim != 2 or (len(queries) and queries.shape[1] != self.dimension):
            raise ConfigError(
                f"query vectors of shape {queries.shape} for an index of dimension {self.dimension}: search "
                f"with the encoder it was built with, {self._layout.dense.encoder!r}"
            )
        if not np.isfinite(queries).all():
            raise QueryError("a query vector holds numbers that are not finite: its encoder is damaged")
        return queries

    def _ask(self, bodies: Sequence[bytes]) -> list[Answer]:
        return search_all(self._cluster, self._physical, bodies, ("hits.hits._score", "hits.hits.fields"))

    def _knn(self, query: Vector, k: int, n_candidates: int, oversample: float, filters: list[Any]) -> dict[str, Any]:
        knn: dict[str, Any] = {
            "field": f"{self._field}.vector",
            "query_vector": query,
            "k": k,
            "num_candidates": min(max(k, n_candidates), WINDOW),
        }
        if filters:
            knn["filter"] = filters
        if self._layout.quantised:
            # The server takes no more than the window for re-scoring.
            knn["rescore_vector"] = {"oversample": max(1.0, min(oversample, WINDOW / k))}
        return {
            "knn": knn,
            "size": k,
            "stored_fields": "_none_",  # unpacking a stored document takes longer than scoring it
            "docvalue_fields": ["doc_id", parts_field(self._field)],
            "track_total_hits": False,
        }

    def _nearest(self, query: Vector, state: _Asked, labels: Domain | None) -> dict[str, Any]:
        filters: list[Any] = [] if labels is None else [{"terms": {"domain": list(labels)}}]
        size = state.want
        if state.leave_out:
            filters.append({"bool": {"must_not": {"ids": {"values": list(state.found)}}}})
            size -= len(state.found)
        oversample = self._layout.oversample
        n_candidates = max(self._layout.dense.hnsw_ef_search, ceil(size * oversample))
        return self._knn(query, size, n_candidates, oversample, filters)

    def _take(self, state: _Asked, answer: Answer, k: int) -> None:
        """Note an answer, and decide whether another one is needed."""
        asked_for = state.want - len(state.found) if state.leave_out else state.want
        scores = _scores(answer)
        state.found |= scores
        state.parted |= {_doc_id(hit) for hit in _hits(answer) if parts_field(self._field) in hit["fields"]}
        if len(scores) < asked_for:
            # A graph may reach fewer documents than there are; those that are left are asked for by themselves.
            state.leave_out = True
            state.done = not scores or len(state.found) >= k
            return
        ranked = sorted(state.found.values(), reverse=True)
        state.done = not _ROUNDING.hides(ranked[k - 1], ranked[-1]) or state.want == WINDOW
        state.want, state.leave_out = min(2 * state.want, WINDOW), False

    def _score_parted(self, queries: FloatMatrix, asked: Sequence[_Asked]) -> None:
        parted = sorted({doc_id for state in asked for doc_id in state.parted})
        parts = self._read_parts(self._ask([dump(body) for body in self._fetching(parted)]))
        for query, state in zip(queries, asked, strict=True):
            for doc_id in state.parted & parts.keys():
                state.found[doc_id] = float(inner_products(query, parts[doc_id]).max())

    def _among(self, query: Vector, doc_ids: Sequence[str]) -> dict[str, Any]:
        """All of the given documents with their scores."""
        n = len(doc_ids)
        return self._knn(query, n, _PARTS_PER_CANDIDATE * n, 1.0, [{"ids": {"values": doc_ids}}])

    def _fetching(self, doc_ids: Sequence[str], *, parted_only: bool = False) -> Iterable[dict[str, Any]]:
        """Searches that give the vectors of documents, or of those among them that have several parts."""
        for start in range(0, len(doc_ids), _FETCHED_TOGETHER):
            filters: list[Any] = [{"ids": {"values": doc_ids[start : start + _FETCHED_TOGETHER]}}]
            if parted_only:
                filters.append({"exists": {"field": parts_field(self._field)}})
            yield {
                "query": {"bool": {"filter": filters}},
                "size": _FETCHED_TOGETHER,
                "_source": False,
                "track_total_hits": False,
                "fields": ["doc_id", f"{self._field}.vector"],
            }

    def _read_parts(self, answers: Iterable[Answer]) -> dict[str, FloatMatrix]:
        """(n_parts, dimension) of each document that was fetched; those without vectors are left out."""
        parts = {}
        for answer in answers:
            for hit in _hits(answer):
                if vectors := read_vectors(hit, self._field):
                    parts[_doc_id(hit)] = np.array(vectors, np.float32)
        return parts


def read_vectors(hit: Mapping[str, Any], field_name: str) -> list[list[float]]:
    """The vectors in a hit that was asked for `fields: [FIELD.vector]`."""
    return [part["vector"] for part in hit.get("fields", {}).get(field_name, ())]


def _scores(answer: Answer) -> dict[str, float]:
    """Inner product of each hit, from the server's score, which is never below 0.

    `max_inner_product` gives 1 + p for a product p from 0 up, and 1 / (1 - p) below.
    """
    hits = _hits(answer)
    given = np.array([hit["_score"] for hit in hits], np.float64)
    products = np.where(given >= 1, given - 1, 1 - 1 / np.where(given > 0, given, np.inf))
    products[given == 0] = -np.inf
    return {_doc_id(hit): float(product) for hit, product in zip(hits, products.astype(np.float32), strict=True)}


def _hits(answer: Answer) -> Sequence[Mapping[str, Any]]:
    hits: Sequence[Mapping[str, Any]] = answer.get("hits", {}).get("hits", ())
    return hits


def _doc_id(hit: Mapping[str, Any]) -> str:
    return str(hit["fields"]["doc_id"][0])
