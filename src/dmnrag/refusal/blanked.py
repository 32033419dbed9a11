"""An index as if some of its documents were found by their answers alone.

A document's own question finds it without fail where questions are searched too, and nobody asks in exactly its words.
Without the question it is found as by someone who has the same need and other words.

The first layer is built anew over these documents and others, in a temporary folder; the second one is the index's
own, with other vectors for these documents.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

import numpy as np

from dmnrag.index import Index
from dmnrag.index.settings import searchable_text
from dmnrag.index.writing import passage_text
from dmnrag.protocols import DenseIndex, Encoder, FloatMatrix, SparseIndex
from dmnrag.retrieval.dense import encode_documents
from dmnrag.retrieval.sparse import EmbeddedSparseIndex, write_segment
from dmnrag.retrieval.table import DocumentTable
from dmnrag.text import make_segmenter
from dmnrag.types import Document, Domain, Hit

MOST_DOCUMENTS = 20_000
"""Of a first layer that is built anew. BM25's statistics over more change little, and the time is bounded."""
_SPARE = 50
"""Hits fetched beyond twice those wanted, to make up for the documents that are left out of them."""


def blanked(document: Document) -> Document:
    """The document without its question."""
    return replace(document, question="")


def questions_are_searched(index: Index, retriever: str | None) -> bool:
    """Whether a document's own question helps to find it."""
    dense = "answer" if retriever is None else index.dense_settings(retriever).passage
    return index.settings.indexed_text != "answer" or dense != "answer"


def blanked_sparse(index: Index, doc_ids: Set[str], folder: Path) -> SparseIndex:
    """A first layer with the given documents blanked; the others are all there are, or every n-th.

    Args:
        index: open.
        doc_ids: documents to blank.
        folder: new or empty, and there as long as the layer is searched.
    """
    stride = 1 + index.n_documents // MOST_DOCUMENTS
    ids: list[str] = []
    domains: list[Domain] = []

    def texts() -> Iterator[tuple[str, Domain]]:
        for number, document in enumerate(index.all_documents()):
            chosen = document.doc_id in doc_ids
            if chosen or number % stride == 0:
                ids.append(document.doc_id)
                domains.append(document.domain)
                shown = blanked(document) if chosen else document
                yield searchable_text(shown, index.settings.indexed_text), document.domain

    segmenter = make_segmenter(index.settings.segmenter)
    write_segment(folder, texts(), segmenter)
    return EmbeddedSparseIndex([folder], DocumentTable.from_lists(ids, domains), segmenter, index.settings.bm25)


def blanked_vectors(
    index: Index, retriever: str, documents: Sequence[Document], encoder: Encoder
) -> dict[str, FloatMatrix]:
    """doc_id -> (n_parts, dimension) of the blanked documents."""
    settings = index.dense_settings(retriever)
    encoded = encode_documents([passage_text(blanked(document), settings) for document in documents], encoder)
    return {d.doc_id: encoded.vectors[encoded.owners == number] for number, d in enumerate(documents)}


class BlankedDense:
    """A second layer in which some documents have other vectors."""

    def __init__(self, dense: DenseIndex, vectors: Mapping[str, FloatMatrix]) -> None:
        self._dense = dense
        self._doc_ids = list(vectors)
        self._vectors = np.concatenate(list(vectors.values()))
        self._starts = np.cumsum([0, *(len(parts) for parts in vectors.values())])[:-1]

    def search(
        self, vectors: FloatMatrix, k: int, *, allowed: Sequence[Domain | None] | None = None
    ) -> list[list[Hit]]:
        """As `DenseIndex.search`; never filtered, as a calibration is not."""
        assert allowed is None
        others = self._dense.search(vectors, 2 * k + _SPARE)
        return [
            self._merge(hits, dict(zip(self._doc_ids, scores, strict=True)), k)
            for hits, scores in zip(others, self._scores(vectors), strict=True)
        ]

    def rescore(self, vectors: FloatMatrix, candidates: Sequence[Sequence[str]], k: int) -> list[list[Hit]]:
        """As `DenseIndex.rescore`."""
        others = self._dense.rescore(vectors, candidates, max(1, max(map(len, candidates), default=1)))
        found = []
        for hits, scores, wanted in zip(others, self._scores(vectors), candidates, strict=True):
            own = dict(zip(self._doc_ids, scores, strict=True))
            found.append(self._merge(hits, {doc_id: own[doc_id] for doc_id in wanted if doc_id in own}, k))
        return found

    def _scores(self, vectors: FloatMatrix) -> FloatMatrix:
        """(n_queries, n_documents): the best part's inner product."""
        scores: FloatMatrix = np.maximum.reduceat(vectors @ self._vectors.T, self._starts, axis=1)
        return scores

    def _merge(self, others: Sequence[Hit], own: Mapping[str, float], k: int) -> list[Hit]:
        replaced = set(self._doc_ids)
        scored = [(hit.doc_id, hit.score) for hit in others if hit.doc_id not in replaced]
        scored += [(doc_id, float(score)) for doc_id, score in own.items()]
        scored.sort(key=lambda item: (-item[1], item[0]))
        return [Hit(doc_id, score, rank) for rank, (doc_id, score) in enumerate(scored[:k], start=1)]
