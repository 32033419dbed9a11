"""Reads documents back: some by id, or all of them in a stream with their terms and vectors."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from dmnrag.errors import DataError, DmnragError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.elastic.catalog import OpenedIndex
from dmnrag.retrieval.elastic.connection import Cluster
from dmnrag.retrieval.elastic.dense import read_vectors
from dmnrag.retrieval.elastic.rows import IndexedDocument, from_source, to_document
from dmnrag.retrieval.elastic.searches import dump, search_all
from dmnrag.types import Document

_SHOWN_FIELDS = ("doc_id", "question", "answers", "domain", "metadata")
_ROW_FIELDS = (*_SHOWN_FIELDS, "text", "label_terms", "replaced_terms")
_READ_TOGETHER = 500
_KEEP_ALIVE = "5m"


class ElasticDocuments:
    """The documents of one physical index."""

    def __init__(self, cluster: Cluster, opened: OpenedIndex) -> None:
        self._cluster = cluster
        self._opened = opened

    def get(self, doc_ids: Sequence[str]) -> list[Document]:
        """The documents of the given ids, in that order.

        Raises:
            DataError: an id that the index does not have.
            ClusterError: the cluster did not answer whole and in time.
        """
        found = self.find(doc_ids)
        missing = [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id not in found]
        if missing:
            raise DataError(f"the index {self._opened.name!r} has no document {', '.join(missing[:5])}")
        return [found[doc_id] for doc_id in doc_ids]

    def find(self, doc_ids: Iterable[str]) -> dict[str, Document]:
        """The documents of the given ids that are there, by id.

        Raises:
            ClusterError: the cluster did not answer whole and in time.
        """
        hits = self._hits(doc_ids, list(_SHOWN_FIELDS))
        return {hit["_id"]: to_document(hit["_source"]) for hit in hits}

    def missing(self, doc_ids: Collection[str]) -> list[str]:
        """Those of the given ids, each once, that no document has.

        Raises:
            ClusterError: the cluster did not answer whole and in time.
        """
        found = {hit["_id"] for hit in self._hits(doc_ids, source=False)}
        return [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id not in found]

    def _hits(self, doc_ids: Iterable[str], source: list[str] | bool) -> Iterator[Mapping[str, Any]]:
        unique = list(dict.fromkeys(doc_ids))
        groups = [unique[start : start + _READ_TOGETHER] for start in range(0, len(unique), _READ_TOGETHER)]
        bodies = [
            dump(
                {
                    "query": {"ids": {"values": group}},
                    "size": len(group),
                    "_source": source,
                    "track_total_hits": False,
                }
            )
            for group in groups
        ]
        answers = search_all(self._cluster, self._opened.physical, bodies, ("hits.hits._id", "hits.hits._source"))
        return (hit for answer in answers for hit in answer.get("hits", {}).get("hits", ()))

    def __iter__(self) -> Iterator[Document]:
        """All documents, by doc_id, as they were when the reading began; in constant memory."""
        return (to_document(hit["_source"]) for hit in self._scan(_SHOWN_FIELDS, ()))

    def rows(self) -> Iterator[IndexedDocument]:
        """All documents with their terms and the vectors of every retriever, by doc_id; in constant memory."""
        fields = {name: self._opened.field(name) for name in self._opened.meta["retrievers"]}
        for hit in self._scan(_ROW_FIELDS, [f"{field}.vector" for field in fields.values()]):
            vectors: dict[str, FloatMatrix] = {
                name: np.array(read_vectors(hit, field), np.float32) for name, field in fields.items()
            }
            yield from_source(hit["_source"], vectors)

    def _scan(self, source: Sequence[str], fields: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Hits by doc_id from one view of the index, whatever is written meanwhile."""
        what = f"reading of {self._opened.physical}"
        view = self._cluster.call(
            what, lambda es: es.open_point_in_time(index=self._opened.physical, keep_alive=_KEEP_ALIVE)
        )["id"]
        page: dict[str, Any] = {
            "size": _READ_TOGETHER,
            "sort": [{"doc_id": "asc"}],
            "source": list(source),
            "fields": list(fields),
            "track_total_hits": False,
            "allow_partial_search_results": False,
        }
        try:
            while True:
                page["pit"] = {"id": view, "keep_alive": _KEEP_ALIVE}
                answer = self._cluster.call(what, lambda es: es.search(**page))
                hits = answer["hits"]["hits"]
                yield from hits
                if len(hits) < _READ_TOGETHER:
                    return
                view, page["search_after"] = answer["pit_id"], hits[-1]["sort"]
        finally:
            with suppress(DmnragError):  # it ends by itself; an error on the way matters more
                self._cluster.call(what, lambda es: es.options(ignore_status=404).close_point_in_time(id=view))
