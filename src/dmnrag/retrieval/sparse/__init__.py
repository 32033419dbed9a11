"""First layer: BM25 with joint retrieval (eq. 2), embedded: files and numpy, no server."""

from dmnrag.retrieval.sparse.embedded import EmbeddedSparseIndex
from dmnrag.retrieval.sparse.merge import merge_segments
from dmnrag.retrieval.sparse.query import (
    MAX_QUERY_TERMS,
    check_request,
    searches_labels,
    select_terms,
    weigh_queries,
)
from dmnrag.retrieval.sparse.settings import Bm25Settings
from dmnrag.retrieval.sparse.write import write_segment

__all__ = [
    "MAX_QUERY_TERMS",
    "Bm25Settings",
    "EmbeddedSparseIndex",
    "check_request",
    "merge_segments",
    "searches_labels",
    "select_terms",
    "weigh_queries",
    "write_segment",
]
