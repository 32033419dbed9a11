"""Writes the contents of a generation into a cluster: each change makes a new physical index.

Documents and vectors pass through files in the generation in the making, so that memory stays bounded and ids are
checked before the cluster hears of anything.
"""

import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dmnrag._io import fault_point
from dmnrag.index import alias, generations
from dmnrag.index.cluster import ClusterContents, connection_of, layout_of
from dmnrag.index.documents import DocumentStore
from dmnrag.index.manifest import ClusterPart, Segment
from dmnrag.index.models import UNTRAINED, stored_dense
from dmnrag.index.parts import dense_folder
from dmnrag.index.settings import IndexSettings, searchable_text
from dmnrag.index.writing import (
    FIRST_SEGMENT,
    SCRATCH,
    DomainCounts,
    Progress,
    SegmentWriter,
    Written,
    adding_up,
    count_domains,
    order_domains,
)
from dmnrag.protocols import Encoder, FloatMatrix
from dmnrag.retrieval.dense.vectors import document_vectors, open_vectors
from dmnrag.retrieval.elastic import (
    Cluster,
    ConnectionSettings,
    ElasticVectorKind,
    IndexedDocument,
    ShardSettings,
    WrittenIndex,
    check_name,
    check_vector_kind,
    connect,
    copy_index,
    segment_documents,
    shards_of,
    write_index,
)
from dmnrag.retrieval.elastic.layout import ONE_SHARD
from dmnrag.text import make_segmenter
from dmnrag.types import Document, Domain


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """Where an index goes, and how it is kept there."""

    connection: ConnectionSettings
    name: str
    """The alias."""
    shards: ShardSettings = ONE_SHARD
    vector_kind: ElasticVectorKind = "int8_hnsw"
    oversample: float = 3.0
    """See `VectorLayout`."""
    replace: bool = False
    """Take over a name under which another folder's index answers; that index is deleted."""

    def __post_init__(self) -> None:
        check_name(self.name)
        check_vector_kind(self.vector_kind, self.oversample)


class ClusterWriter:
    """Use `open_cluster`."""

    def __init__(
        self,
        cluster: Cluster,
        stage: generations.Staging,
        settings: IndexSettings,
        target: ClusterTarget,
        above: int,
        on_progress: Progress,
    ) -> None:
        # Lucene rounds lengths, whatever was asked for; what the manifest says must be true.
        self.settings = replace(settings, bm25=replace(settings.bm25, lucene_lengths=True))
        self._cluster = cluster
        self._stage = stage
        self._target = target
        self._above = above
        self._on_progress = on_progress

    def build(self, documents: Iterable[Document], encoder: Encoder | None) -> Written:
        """A whole index from documents, read once."""
        with self.scratch() as scratch:
            writer = SegmentWriter(scratch, self.settings, self._on_progress)
            store = writer.write_documents(FIRST_SEGMENT, documents)
            dense, n_long = self.settings.dense, 0
            retrievers = {}
            if dense is not None and encoder is not None:
                n_long = writer.write_vectors(UNTRAINED, FIRST_SEGMENT, store, dense, encoder)
                retrievers[UNTRAINED] = dense.to_dict()
            dimensions = {name: _dimension(scratch, name) for name in retrievers}
            index = self._write(
                stored_rows(scratch, store, retrievers, self.settings), retrievers, dimensions, len(store)
            )
            return self._written(index, count_domains(store.column("domain")), dimensions, n_long)

    def take(
        self,
        rows: Iterable[IndexedDocument],
        retrievers: Mapping[str, Mapping[str, Any]],
        dimensions: Mapping[str, int],
        n_rows: int,
    ) -> Written:
        """A whole index from rows that have terms and vectors already, read once, in constant memory."""
        domains: Counter[Domain] = Counter()

        def counting() -> Iterator[IndexedDocument]:
            for row in rows:
                domains[row.document.domain] += 1
                yield row

        index = self._write(counting(), retrievers, dimensions, n_rows)
        return self._written(index, order_domains(domains), dimensions)

    def add_retriever(
        self,
        contents: ClusterContents,
        retrievers: Mapping[str, Mapping[str, Any]],
        name: str,
        encoder: Encoder,
    ) -> Written:
        """The same index with the vectors of one more retriever.

        Args:
            contents: the index as it is.
            retrievers: the manifest's entries of all retrievers, the new one included.
            name: of the new one; one of that name that is there already is replaced.
            encoder: the loaded model.
        """
        with self.scratch() as scratch:
            writer = SegmentWriter(scratch, self.settings, self._on_progress)
            writer.write_vectors(name, FIRST_SEGMENT, contents, stored_dense(retrievers[name]), encoder)
            vectors = document_vectors(dense_folder(scratch, name, FIRST_SEGMENT))
            rows = (
                replace(row, vectors={**row.vectors, name: parts})
                for row, parts in zip(contents.rows(), vectors, strict=True)  # both by doc_id
            )
            dimensions = contents.dimensions() | {name: _dimension(scratch, name)}
            return self.take(rows, retrievers, dimensions, contents.n_documents)

    def change(
        self,
        contents: ClusterContents,
        domains: DomainCounts,
        *,
        added: Iterable[IndexedDocument],
        n_added: int,
        removed: Collection[str],
    ) -> Written:
        """A changed copy of an index; `domains` are those of the documents that it holds then."""
        report = adding_up(self._on_progress, "indexed", n_added)
        index = copy_index(
            self._cluster, contents.opened, added=added, removed=removed, above=self._above, on_progress=report
        )
        return self._written(index, domains, contents.dimensions())

    def publish(self, written: Written) -> None:
        """Let the alias follow the folder.

        Raises:
            ClusterError: it could not be done; the folder is in use all the same.
        """
        assert written.backend is not None  # this writer made it
        folder = self._stage.index
        alias.publish(
            self._cluster, folder, written.backend, generations.generation_folders(folder), replace=self._target.replace
        )

    def _written(
        self, index: WrittenIndex, domains: DomainCounts, dimensions: Mapping[str, int], n_long: int = 0
    ) -> Written:
        """What the manifest says of a physical index."""
        part = ClusterPart(
            urls=list(self._cluster.settings.urls),
            name=self._target.name,
            physical=index.physical,
            build=index.build,
            shards=self._target.shards.shards,
            replicas=self._target.shards.replicas,
            vector_kind=self._target.vector_kind,
            oversample=self._target.oversample,
            dimensions=dict(dimensions),
        )
        return Written([Segment(name=index.physical, n_documents=index.n_documents)], domains, part, n_long)

    def _write(
        self,
        rows: Iterable[IndexedDocument],
        retrievers: Mapping[str, Mapping[str, Any]],
        dimensions: Mapping[str, int],
        n_documents: int,
    ) -> WrittenIndex:
        target = self._target
        layout = layout_of(self.settings, retrievers, dimensions, target.vector_kind, target.oversample)
        report = adding_up(self._on_progress, "indexed", n_documents)
        return write_index(
            self._cluster, target.name, rows, layout, shards=target.shards, above=self._above, on_progress=report
        )

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for what is needed only while the generation is made."""
        folder = self._stage.path / SCRATCH
        folder.mkdir()
        yield folder
        fault_point("delete", folder)
        shutil.rmtree(folder)  # left behind it would count as a part of the index, so a failure is an error


@contextmanager
def open_cluster(
    stage: generations.Staging, settings: IndexSettings, target: ClusterTarget, on_progress: Progress
) -> Iterator[ClusterWriter]:
    """Connect, finish or clean up what a run that was stopped left there, and give the writer.

    Raises:
        ClusterError: the cluster cannot be used, or the name there is another folder's.
    """
    with connect(target.connection) as cluster:
        current = generations.current_backend(stage.index)
        folders = generations.generation_folders(stage.index)
        above = alias.claim(cluster, target.name, current, folders, replace=target.replace)
        yield ClusterWriter(cluster, stage, settings, target, above, on_progress)


@contextmanager
def open_changing(
    stage: generations.Staging, settings: IndexSettings, contents: ClusterContents, on_progress: Progress
) -> Iterator[ClusterWriter]:
    """The writer of a change to an index that is in a cluster already; see `open_cluster`."""
    part = contents.part
    kind: Any = part.vector_kind
    shards = shards_of(contents.cluster, contents.opened)
    target = ClusterTarget(connection_of(part), part.name, shards, kind, part.oversample)
    with open_cluster(stage, settings, target, on_progress) as writer:
        yield writer


def stored_rows(
    folder: Path, store: DocumentStore, retrievers: Iterable[str], settings: IndexSettings
) -> Iterator[IndexedDocument]:
    """The documents of a first segment with their terms, and with the vectors that are in `folder`."""
    names = list(retrievers)
    of_each = [document_vectors(dense_folder(folder, name, FIRST_SEGMENT)) for name in names]

    def documents() -> Iterator[tuple[Document, str, Mapping[str, FloatMatrix]]]:
        for document in store:
            vectors = {name: next(parts) for name, parts in zip(names, of_each, strict=True)}
            yield document, searchable_text(document, settings.indexed_text), vectors

    return segment_documents(documents(), make_segmenter(settings.segmenter))


def _dimension(folder: Path, retriever: str) -> int:
    return int(open_vectors(dense_folder(folder, retriever, FIRST_SEGMENT)).vectors.shape[1])
