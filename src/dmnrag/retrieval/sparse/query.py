"""From questions to weighted terms: the rules that every BM25 backend shares.

Knows segmenters and `DomainUse`; knows nothing of how documents are stored or scored.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from dmnrag.errors import QueryError
from dmnrag.protocols import Segmenter
from dmnrag.types import Domain, DomainUse, Query

MAX_QUERY_TERMS = 256
"""Distinct terms of a query that are scored. A question of everyday length has under 100; a pasted
case file has thousands, most of them frequent words that move no ranking, and a server's clause limit
(1024 in older Elasticsearch) must hold it. Four such queries fit one request."""


def check_request(queries: Sequence[Query], k: int, allowed: Sequence[Domain | None] | None) -> None:
    """Refuse a search that cannot be answered.

    Raises:
        QueryError: k below 1, or not one filter for each query.
    """
    if k < 1:
        raise QueryError(f"k is {k}: the number of documents to find must be 1 or more")
    if allowed is not None and len(allowed) != len(queries):
        raise QueryError(
            f"{len(allowed)} domain filters for {len(queries)} queries: give one for each, None for no filter"
        )


def searches_labels(use: DomainUse) -> bool:
    """Whether the searched text of a document includes its labels; a weight of 0 turns that off as well."""
    return use.in_document and use.weight > 0


def weigh_queries(queries: Sequence[Query], segmenter: Segmenter, use: DomainUse) -> list[dict[str, float]]:
    """Terms of each query Dmn+q with how often each counts.

    A term of the question counts as often as it occurs, a term of the domain `use.weight` times that;
    a term of both counts both. Labels are segmented one by one, as those of documents are, so that no
    term spans two labels.
    """
    joins_domain = use.in_query and use.weight > 0
    labels = sorted({label for query in queries for label in query.domain}) if joins_domain else []
    terms_of = dict(zip(labels, segmenter.segment_all(labels), strict=True)) if labels else {}
    weighted = []
    for query, terms in zip(queries, segmenter.segment_all([q.text for q in queries]), strict=True):
        counts: dict[str, float] = dict(Counter(terms))
        for label in query.domain if joins_domain else ():
            for term in terms_of[label]:
                counts[term] = counts.get(term, 0) + use.weight
        weighted.append(counts)
    return weighted


def select_terms(counts: Mapping[str, float], idf: Mapping[str, float], limit: int = MAX_QUERY_TERMS) -> list[str]:
    """The most informative terms of a query, in the order of the terms themselves.

    Args:
        counts: how often each term counts in the query.
        idf: IDF of each term that the collection has; terms outside it score nothing and are left out.
        limit: how many to keep: those of the highest count times IDF, ties by term.

    Returns:
        At most `limit` terms, sorted, so that scores add up in the same order in every index.
    """
    known = [term for term in counts if term in idf]
    if len(known) > limit:
        known = sorted(known, key=lambda term: (-counts[term] * idf[term], term))[:limit]
    return sorted(known)
