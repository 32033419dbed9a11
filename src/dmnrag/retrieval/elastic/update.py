"""Changes an index: documents come and go, and a newly trained retriever's vectors join.

In place, or by a new build from what the index holds (`rebuild_index`). In place is fast and no search misses a
document, but removed and replaced documents count in the statistics until `settle`: scores drift by about
their share of the corpus. A new build costs the writing of everything and is exact at every moment.

A document that is written again replaces the one of its id at the next refresh, in one step, so every search
finds the old one or the new one. A retriever answers only when all documents have its vectors.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from dmnrag.errors import ClusterError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.elastic.build import ElasticBuildReport, build_index, count
from dmnrag.retrieval.elastic.bulk import write_bulk
from dmnrag.retrieval.elastic.catalog import OpenedIndex, open_index, write_alias
from dmnrag.retrieval.elastic.connection import Cluster
from dmnrag.retrieval.elastic.documents import ElasticDocuments
from dmnrag.retrieval.elastic.layout import META, ShardSettings, VectorLayout
from dmnrag.retrieval.elastic.rows import IndexedDocument, delete_actions, index_actions, vector_actions
from dmnrag.retrieval.elastic.settle import refresh, settle


def add_documents(
    cluster: Cluster,
    opened: OpenedIndex,
    rows: Iterable[IndexedDocument],
    *,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Add documents, or replace those of the same id; findable when this returns.

    Scores count a replaced document's former text until `settle`.

    Args:
        cluster: where the index is.
        opened: the index as it is now; rows need the vectors of every retriever in it.
        rows: read once, in a stream.
        on_progress: called with the number of documents done since the last call.

    Returns:
        The number of documents written.

    Raises:
        DocumentsRefusedError: the server will never take some documents; the others are in the index.
        ClusterError: a batch did not arrive in time, or the index is gone; running it again does no harm.
    """
    fields = {name: opened.field(name) for name in opened.meta["retrievers"]}
    report = write_bulk(cluster, write_alias(opened.physical), index_actions(rows, fields), on_progress=on_progress)
    refresh(cluster, opened.physical)
    report.raise_refused(f"adding to {opened.name}")
    return report.n_sent


def remove_documents(cluster: Cluster, opened: OpenedIndex, doc_ids: Iterable[str]) -> int:
    """Remove documents; none of them is found when this returns. Ids that are not there are passed over.

    Scores count a removed document until `settle`.

    Returns:
        The number of documents that were removed.

    Raises:
        ClusterError: a batch did not arrive in time, or the index is gone; running it again does no harm.
    """
    report = write_bulk(cluster, write_alias(opened.physical), delete_actions(dict.fromkeys(doc_ids)))
    refresh(cluster, opened.physical)
    report.raise_refused(f"removing from {opened.name}")
    return report.n_sent - report.n_missing


def rebuild_index(
    cluster: Cluster,
    opened: OpenedIndex,
    *,
    added: Iterable[IndexedDocument] = (),
    removed: Collection[str] = (),
    shards: ShardSettings | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> ElasticBuildReport:
    """Build a new index from the documents of this one without some and with others, and switch to it.

    Nothing is segmented or encoded again. See `build_index`, whose errors come from here too.

    Args:
        cluster: where the index is.
        opened: what is copied, as it is now.
        added: read once, in a stream; a document of the same id replaces the one that is there.
        removed: ids; those that are not there are passed over.
        shards: how the new one is spread; as the former one where None.
        on_progress: called with the number of documents done since the last call.
    """
    gone = set(removed)

    def rows() -> Iterator[IndexedDocument]:
        for row in added:
            gone.add(row.document.doc_id)
            yield row
        for row in ElasticDocuments(cluster, opened).rows():
            if row.document.doc_id not in gone:
                yield row

    spread = shards or shards_of(cluster, opened)
    return build_index(cluster, opened.name, rows(), opened.layout, shards=spread, on_progress=on_progress)


def shards_of(cluster: Cluster, opened: OpenedIndex) -> ShardSettings:
    """How an index is spread."""
    answer = cluster.call(f"settings of {opened.physical}", lambda es: es.indices.get_settings(index=opened.physical))
    index = answer[opened.physical]["settings"]["index"]
    return ShardSettings(int(index["number_of_shards"]), int(index["number_of_replicas"]))


def add_vectors(
    cluster: Cluster,
    opened: OpenedIndex,
    retriever: str,
    layout: VectorLayout,
    vectors: Iterable[tuple[str, FloatMatrix]],
    *,
    on_progress: Callable[[int], None] | None = None,
) -> OpenedIndex:
    """Write a retriever's vectors into a field of its own; it answers when all documents have them.

    A retriever of that name that is there already answers until then; its vectors stay, unused, until the next
    build. Killed at any point the index answers as before.

    Args:
        cluster: where the index is.
        opened: the index as it is now.
        retriever: its name.
        layout: how its vectors are kept.
        vectors: doc_id and (n_parts, dimension) of every document, read once.
        on_progress: called with the number of documents done since the last call.

    Returns:
        The index as it is with the retriever.

    Raises:
        DocumentsRefusedError: an id that is not in the index, or vectors that the server does not take.
        ClusterError: documents are without vectors, or the cluster did not answer in time.
    """
    field_name = _free_field(cluster, opened)
    cluster.call(
        f"new field in {opened.physical}",
        lambda es: es.indices.put_mapping(index=opened.physical, properties=layout.properties(field_name)),
    )
    report = write_bulk(
        cluster, write_alias(opened.physical), vector_actions(vectors, field_name), on_progress=on_progress
    )
    report.raise_refused(f"vectors of {retriever} in {opened.name}")
    refresh(cluster, opened.physical)
    _check_complete(cluster, opened, retriever, field_name)
    settle(cluster, opened.physical)
    meta = dict(open_index(cluster, opened.name).meta)
    meta["retrievers"] = meta["retrievers"] | {retriever: layout.to_dict() | {"field": field_name}}
    cluster.call(
        f"new retriever in {opened.physical}",
        lambda es: es.indices.put_mapping(index=opened.physical, meta={META: meta}),
    )
    return OpenedIndex(opened.name, opened.physical, meta)


def _free_field(cluster: Cluster, opened: OpenedIndex) -> str:
    """A field that no retriever, and no attempt that was killed, has used."""
    answer = cluster.call(f"fields of {opened.physical}", lambda es: es.indices.get_mapping(index=opened.physical))
    used = answer[opened.physical]["mappings"]["properties"]
    number = 1
    while f"v{number}" in used:
        number += 1
    return f"v{number}"


def _check_complete(cluster: Cluster, opened: OpenedIndex, retriever: str, field_name: str) -> None:
    has_vectors: dict[str, Any] = {
        "nested": {"path": field_name, "query": {"exists": {"field": f"{field_name}.vector"}}}
    }
    n_documents = count(cluster, opened.physical)
    n_with = count(cluster, opened.physical, has_vectors)
    if n_with != n_documents:
        raise ClusterError(
            f"{n_with} of the {n_documents} documents of {opened.name} got vectors of the retriever "
            f"{retriever!r}: it is not used; give the vectors of every document"
        )
