"""Contents of a generation that lie in the index folder: Parquet, postings, and vectors for FAISS."""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from dmnrag.errors import IndexDamagedError
from dmnrag.index.documents import DocumentStore
from dmnrag.index.manifest import Manifest, Segment
from dmnrag.index.parts import dense_folder, document_file, removed_file, sparse_folder
from dmnrag.index.settings import IndexSettings
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.arrays import open_array
from dmnrag.retrieval.dense import DenseSettings, FaissDenseIndex
from dmnrag.retrieval.dense.vectors import document_vectors, open_vectors
from dmnrag.retrieval.elastic import IndexedDocument
from dmnrag.retrieval.sparse import EmbeddedSparseIndex
from dmnrag.retrieval.sparse.unpack import segment_terms
from dmnrag.retrieval.table import DocumentTable
from dmnrag.text import make_segmenter
from dmnrag.types import Document


class EmbeddedContents:
    """Parts are opened when they are first used."""

    def __init__(self, generation: Path, manifest: Manifest, settings: IndexSettings) -> None:
        """`generation` is the folder that holds the parts."""
        self._generation = generation
        self._manifest = manifest
        self._settings = settings

    @cached_property
    def store(self) -> DocumentStore:
        """The documents by ordinal, removed ones included."""
        return DocumentStore([document_file(self._generation, s.name) for s in self._manifest.segments])

    @cached_property
    def table(self) -> DocumentTable:
        """Ids, labels and liveness."""
        return DocumentTable(self.store.column("doc_id"), self.store.column("domain"), self._live())

    def _live(self) -> np.ndarray:
        masks = []
        for segment, size in zip(self._manifest.segments, self.store.segment_sizes(), strict=True):
            if size != segment.n_documents:
                raise IndexDamagedError(
                    f"segment {segment.name} of {self._generation} holds {size} documents, not as stated"
                )
            mask = np.ones(size, dtype=np.bool_)
            if segment.n_removed:
                mask[self._removed(segment)] = False
            masks.append(mask)
        return np.concatenate(masks)

    def _removed(self, segment: Segment) -> np.ndarray:
        path = removed_file(self._generation, segment.name)
        ordinals = open_array(path, "i")
        if len(ordinals) != segment.n_removed or ordinals.min() < 0 or ordinals.max() >= segment.n_documents:
            raise IndexDamagedError(
                f"{path} does not list the removed documents of its segment; restore it or rebuild the index"
            )
        return ordinals

    @cached_property
    def sparse(self) -> EmbeddedSparseIndex:
        """The first layer."""
        folders = [sparse_folder(self._generation, s.name) for s in self._manifest.segments]
        return EmbeddedSparseIndex(folders, self.table, make_segmenter(self._settings.segmenter), self._settings.bm25)

    def dense(self, retriever: str, settings: DenseSettings) -> FaissDenseIndex:
        """A second layer by name."""
        folders = [dense_folder(self._generation, retriever, s.name) for s in self._manifest.segments]
        return FaissDenseIndex(folders, self.table, settings)

    def dimensions(self) -> dict[str, int]:
        """Of the vectors of each retriever."""
        first = self._manifest.segments[0].name
        folders = {name: dense_folder(self._generation, name, first) for name in self._manifest.retrievers}
        return {name: int(open_vectors(folder).vectors.shape[1]) for name, folder in folders.items()}

    def find(self, doc_ids: Sequence[str]) -> dict[str, Document]:
        """The documents of the given ids that are there, by id."""
        found = zip(doc_ids, self.table.ordinals(doc_ids), strict=True)
        return {doc_id: self.store.get(ordinal) for doc_id, ordinal in found if ordinal is not None}

    def missing(self, doc_ids: Collection[str]) -> list[str]:
        """Those of the given ids, each once, that no document has."""
        wanted = list(dict.fromkeys(doc_ids))
        found = zip(wanted, self.table.ordinals(wanted), strict=True)
        return [doc_id for doc_id, ordinal in found if ordinal is None]

    def __iter__(self) -> Iterator[Document]:
        """Every document that can be found, in order, in constant memory."""
        live = self.table.live
        return (document for ordinal, document in enumerate(self.store) if live[ordinal])

    def rows(self) -> Iterator[IndexedDocument]:
        """The same with their terms and the vectors of every retriever."""
        ordinal = 0
        for segment in self._manifest.segments:
            documents = DocumentStore([document_file(self._generation, segment.name)])
            terms = segment_terms(sparse_folder(self._generation, segment.name))
            vectors = self._vectors(segment)
            for document, (text, of_labels), parts in zip(documents, terms, vectors, strict=True):
                if self.table.live[ordinal]:
                    yield IndexedDocument(document, text, of_labels, parts)
                ordinal += 1

    def _vectors(self, segment: Segment) -> Iterator[dict[str, FloatMatrix]]:
        names = list(self._manifest.retrievers)
        of_each = [document_vectors(dense_folder(self._generation, name, segment.name)) for name in names]
        for _ in range(segment.n_documents):
            yield {name: next(vectors) for name, vectors in zip(names, of_each, strict=True)}

    def fingerprint(self) -> dict[str, str]:
        """The hashes of the documents' files."""
        return {name: part.sha256 for name, part in self._manifest.parts.items() if "documents" in name}

    def verify(self) -> None:
        """The manifest's hashes say all; see `check_parts`."""

    def close(self) -> None:
        """Nothing is open but maps, which stay valid until they are dropped."""
