"""Contents of a generation that lie in a cluster: the one physical index that the manifest names.

The folder's pointer is the truth: a reader searches that index, whatever the alias points at. The mapping's
description is compared with the manifest when it is opened, so no search uses other settings than the build.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from dmnrag.errors import ClusterIndexError, IndexDamagedError
from dmnrag.index.manifest import ClusterPart, Manifest
from dmnrag.index.models import stored_dense
from dmnrag.index.settings import IndexSettings
from dmnrag.protocols import DenseIndex
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.elastic import (
    Cluster,
    ConnectionSettings,
    ElasticDenseIndex,
    ElasticDocuments,
    ElasticSparseIndex,
    ElasticVectorKind,
    IndexedDocument,
    IndexLayout,
    OpenedIndex,
    VectorLayout,
    check_borrowed_urls,
    connect,
    count,
    open_physical,
)
from dmnrag.text import make_segmenter
from dmnrag.types import Document


def connection_of(part: ClusterPart) -> ConnectionSettings:
    """How to reach the cluster of a generation: by the environment or the file that it names, else by the URLs that
    the writer used. Users, passwords, keys and certificates come from there alone.

    Raises:
        ConfigError: a key or password would go unencrypted to a server that only the folder names.
    """
    settings = ConnectionSettings.load(defaults={"urls": part.urls})
    check_borrowed_urls(settings)
    return settings


def layout_of(
    settings: IndexSettings,
    retrievers: Mapping[str, Mapping[str, Any]],
    dimensions: Mapping[str, int],
    kind: ElasticVectorKind,
    oversample: float,
) -> IndexLayout:
    """What an index with these settings and a manifest's `retrievers` is built with."""
    return IndexLayout(
        segmenter=settings.segmenter.to_dict(),
        bm25=settings.bm25,
        indexed_text=settings.indexed_text,
        retrievers={
            name: VectorLayout(dimensions[name], stored_dense(entry), kind, oversample)
            for name, entry in retrievers.items()
        },
    )


def expected_layout(part: ClusterPart, manifest: Manifest, settings: IndexSettings) -> IndexLayout:
    """What a generation's index must have been built with.

    Raises:
        IndexDamagedError: the manifest contradicts itself.
    """
    try:
        kind: Any = part.vector_kind
        return layout_of(settings, manifest.retrievers, part.dimensions, kind, part.oversample)
    except (KeyError, ValueError) as error:
        raise IndexDamagedError(f"the manifest does not describe its index {part.physical} ({error})") from error


class ClusterContents:
    """Documents and both layers in one physical index. Safe to use from several threads."""

    def __init__(
        self, cluster: Cluster, opened: OpenedIndex, part: ClusterPart, manifest: Manifest, settings: IndexSettings
    ) -> None:
        """Use `ClusterContents.open`."""
        self.cluster = cluster
        self.opened = opened
        self.part = part
        self._manifest = manifest
        self._settings = settings
        self._documents = ElasticDocuments(cluster, opened)

    @classmethod
    def open(cls, part: ClusterPart, manifest: Manifest, settings: IndexSettings) -> "ClusterContents":
        """Connect, and compare the index with the manifest.

        Raises:
            ClusterError: the cluster cannot be used, or the index is not there.
            ConfigError: it was built with other settings; names each.
        """
        expected = expected_layout(part, manifest, settings)
        cluster = connect(connection_of(part))
        try:
            opened = open_physical(cluster, part.name, part.physical, expected, build=part.build)
        except ClusterIndexError as error:
            cluster.close()
            raise ClusterIndexError(
                f"{error}. The folder may be an old copy: fetch it anew from where the index is written. Else restore "
                "the index from a snapshot, or build it again (dmnrag index)"
            ) from error
        except BaseException:
            cluster.close()
            raise
        return cls(cluster, opened, part, manifest, settings)

    @cached_property
    def sparse(self) -> ElasticSparseIndex:
        """The first layer."""
        return ElasticSparseIndex(self.cluster, self.opened.physical, make_segmenter(self._settings.segmenter))

    def dense(self, retriever: str, settings: DenseSettings) -> DenseIndex:
        """A second layer by name; how its vectors are kept, the index knows."""
        layout = self.opened.retrievers[retriever]
        return ElasticDenseIndex(self.cluster, self.opened.physical, self.opened.field(retriever), layout)

    @property
    def n_documents(self) -> int:
        """Documents that can be found."""
        return self._manifest.n_documents

    def dimensions(self) -> dict[str, int]:
        """Of the vectors of each retriever."""
        return {name: layout.dimension for name, layout in self.opened.retrievers.items()}

    def find(self, doc_ids: Sequence[str]) -> dict[str, Document]:
        """The documents of the given ids that are there, by id."""
        return self._documents.find(doc_ids)

    def missing(self, doc_ids: Collection[str]) -> list[str]:
        """Those of the given ids, each once, that no document has."""
        return self._documents.missing(doc_ids)

    def __iter__(self) -> Iterator[Document]:
        """Every document, by doc_id, in constant memory."""
        return iter(self._documents)

    def rows(self) -> Iterator[IndexedDocument]:
        """The same with their terms and the vectors of every retriever."""
        return self._documents.rows()

    def fingerprint(self) -> dict[str, str]:
        """What identifies the physical index, which nobody changes."""
        return {"build": str(self.opened.meta["build"])}

    def verify(self) -> None:
        """Count the documents, every shard asked.

        Raises:
            IndexDamagedError: there are more or fewer than the manifest says.
        """
        found = count(self.cluster, self.opened.physical)
        if found != self._manifest.n_documents:
            raise IndexDamagedError(
                f"{self.cluster.where}: {self.opened.physical} holds {found} documents, the manifest says "
                f"{self._manifest.n_documents}: something else wrote there; restore a snapshot or build the index again"
            )

    def close(self) -> None:
        """Close the connections."""
        self.cluster.close()
