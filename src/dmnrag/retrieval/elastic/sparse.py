"""First layer on a cluster: BM25 (eq. 2) by Lucene, the same hits as the embedded index.

The server's score is eq. 2 with lengths rounded to one byte, as `Bm25Settings.lucene_lengths` rounds them, in
32-bit numbers; what differs by less than their rounding is a tie, and ties go by doc_id. Terms are counted
over all shards before scoring. Two things can differ from the embedded index: a document without any term
does not count in N and avgdl, and removed documents do until the index is settled (`settle`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dmnrag.errors import QueryError
from dmnrag.protocols import Segmenter
from dmnrag.retrieval.elastic.connection import Cluster
from dmnrag.retrieval.elastic.layout import WINDOW
from dmnrag.retrieval.elastic.ranking import Rounding, rank_hits
from dmnrag.retrieval.elastic.searches import dump, search_all
from dmnrag.retrieval.elastic.terms import encode_term
from dmnrag.retrieval.sparse import MAX_QUERY_TERMS, check_request, searches_labels, select_terms, weigh_queries
from dmnrag.retrieval.sparse.formulas import idf
from dmnrag.types import JOINT, Domain, DomainUse, Hit, Query

_COUNTED_TOGETHER = 1000
"""Terms whose documents are counted by one search."""

_SPARE = 16
"""Hits asked for beyond k, so that a tie at rank k is usually seen whole."""

_ROUNDING = Rounding(5e-7, 0.0)
"""Eq. 2 in 32 bits and in 64 differed by 2e-7 at most over 24,000 hits of real questions."""


def check_window(k: int) -> None:
    """Refuse more hits than the server gives.

    Raises:
        QueryError: k above 10,000.
    """
    if k > WINDOW:
        raise QueryError(f"k is {k}: Elasticsearch gives at most {WINDOW} hits of a query (index.max_result_window)")


class ElasticSparseIndex:
    """BM25 over one physical index. Safe to use from several threads."""

    def __init__(self, cluster: Cluster, physical: str, segmenter: Segmenter) -> None:
        """`segmenter` is the one that segmented the documents (`open_index` compares the settings)."""
        self._cluster = cluster
        self._physical = physical
        self._segmenter = segmenter

    def search(
        self,
        queries: Sequence[Query],
        k: int,
        *,
        use: DomainUse = JOINT,
        allowed: Sequence[Domain | None] | None = None,
    ) -> list[list[Hit]]:
        """The k best documents of each query by eq. 2, best first, ties by doc_id.

        Args:
            queries: one request serves a hundred. Queries of more than `MAX_QUERY_TERMS` distinct terms cost
                one more, which counts their terms; they are cut as the embedded index cuts them.
            k: at most 10,000, the server's limit.
            use: how the domain takes part; a weight of 0 is plain retrieval.
            allowed: for each query the labels of which a hit must carry one; None for any document,
                an empty tuple for none. Applied before scoring.

        Raises:
            QueryError: k below 1 or above 10,000, or not one filter for each query.
            ClusterError: the cluster did not answer whole and in time.
        """
        check_request(queries, k, allowed)
        check_window(k)
        field = "joint" if searches_labels(use) else "text"
        filters = [None] * len(queries) if allowed is None else list(allowed)
        weighed = self._cut_long(weigh_queries(queries, self._segmenter, use), field)
        asked = [i for i, counts in enumerate(weighed) if counts and filters[i] != ()]
        bodies = [dump(search_body(weighed[i], field, min(k + _SPARE, WINDOW), filters[i])) for i in asked]
        answers = search_all(
            self._cluster, self._physical, bodies, ("hits.hits.sort",), search_type="dfs_query_then_fetch"
        )
        rankings: list[list[Hit]] = [[] for _ in queries]
        for i, answer in zip(asked, answers, strict=True):
            found = (hit["sort"] for hit in answer.get("hits", {}).get("hits", ()))
            # A summand can be too small for 32 bits; a score of 0 is no hit.
            rankings[i] = rank_hits([(doc_id, score) for score, doc_id in found if score > 0], k, _ROUNDING)
        return rankings

    def _cut_long(self, weighed: list[dict[str, float]], field: str) -> list[dict[str, float]]:
        """Queries with at most `MAX_QUERY_TERMS` terms, the most informative ones of longer queries."""
        long = [i for i, counts in enumerate(weighed) if len(counts) > MAX_QUERY_TERMS]
        if long:
            idf_of = self._idf(sorted({term for i in long for term in weighed[i]}), field)
            for i in long:
                weighed[i] = {term: weighed[i][term] for term in select_terms(weighed[i], idf_of)}
        return weighed

    def _idf(self, terms: Sequence[str], field: str) -> dict[str, float]:
        """IDF of each term that a document has, by the documents that are there now."""
        groups = [terms[start : start + _COUNTED_TOGETHER] for start in range(0, len(terms), _COUNTED_TOGETHER)]
        bodies = [dump(_counting(group, field)) for group in groups]
        answers = search_all(
            self._cluster, self._physical, bodies, ("hits.total.value", "aggregations.n.buckets.doc_count")
        )
        idf_of = {}
        for group, answer in zip(groups, answers, strict=True):
            n_documents = answer["hits"]["total"]["value"]
            for term, bucket in zip(group, answer["aggregations"]["n"]["buckets"], strict=True):
                if bucket["doc_count"]:
                    idf_of[term] = idf(n_documents, bucket["doc_count"])
        return idf_of


def _counting(terms: Sequence[str], field: str) -> dict[str, Any]:
    filters = [{"term": {field: encode_term(term)}} for term in terms]
    return {"size": 0, "track_total_hits": True, "aggs": {"n": {"filters": {"filters": filters}}}}


def search_body(counts: Mapping[str, float], field: str, size: int, labels: Domain | None) -> dict[str, Any]:
    """The search for one query.

    Args:
        counts: weight of each term.
        field: `text` or `joint`.
        size: hits wanted.
        labels: a document must carry one of them; None for any document.
    """
    clauses: list[dict[str, Any]] = [
        {"term": {field: encode_term(term) if weight == 1 else {"value": encode_term(term), "boost": weight}}}
        for term, weight in sorted(counts.items())
    ]
    query: dict[str, Any] = {"should": clauses, "minimum_should_match": 1}
    if labels is not None:
        query["filter"] = [{"terms": {"domain": list(labels)}}]
    return {
        "query": {"bool": query},
        "sort": [{"_score": "desc"}, {"doc_id": "asc"}],
        "size": size,
        "stored_fields": "_none_",  # the sort values hold the id; unpacking a stored document takes longer than scoring
        "track_total_hits": False,
    }
