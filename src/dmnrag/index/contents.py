"""What a generation holds, wherever it is kept: the protocol of `EmbeddedContents` and `ClusterContents`.

Whoever adds a third place writes a class of this kind and a writer (see `writers`).
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from dmnrag.protocols import DenseIndex, SparseIndex
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.elastic import IndexedDocument
from dmnrag.types import Document


class Contents(Protocol):
    """Documents and both layers of one generation, read only."""

    @property
    def sparse(self) -> SparseIndex:
        """The first layer."""
        ...

    def dense(self, retriever: str, settings: DenseSettings) -> DenseIndex:
        """A second layer that the manifest names."""
        ...

    def dimensions(self) -> dict[str, int]:
        """Of the vectors of each retriever."""
        ...

    def find(self, doc_ids: Sequence[str]) -> dict[str, Document]:
        """The documents of the given ids that are there, by id."""
        ...

    def missing(self, doc_ids: Collection[str]) -> list[str]:
        """Those of the given ids, each once, that no document has."""
        ...

    def __iter__(self) -> Iterator[Document]:
        """Every document that can be found, in constant memory."""
        ...

    def rows(self) -> Iterator[IndexedDocument]:
        """The same with their terms and the vectors of every retriever."""
        ...

    def fingerprint(self) -> dict[str, str]:
        """Changes whenever the documents do."""
        ...

    def verify(self) -> None:
        """Compare what is there with the manifest as closely as its place allows."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
