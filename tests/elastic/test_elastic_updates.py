"""Documents come and go in place, retrievers join, and no search meanwhile finds too little."""

from collections.abc import Iterator
from dataclasses import replace
from threading import Event, Thread

import numpy as np
import pytest
from elastic_builder import build, dense_of, layout_of, rows_of, sparse_of, vector_layout

from dmnrag.errors import ClusterBlockedError, ClusterError, ConfigError, DocumentsRefusedError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.elastic import (
    Cluster,
    IndexedDocument,
    ShardSettings,
    add_documents,
    add_vectors,
    delete_index,
    open_index,
    rebuild_index,
    remove_documents,
    settle,
)
from dmnrag.testing.dense_contract import EAST, unit
from dmnrag.testing.sparse_contract import DOCUMENTS
from dmnrag.types import Document, Query

pytestmark = pytest.mark.service


def found(hits: list[list[object]]) -> list[str]:
    return [hit.doc_id for hit in hits[0]]  # type: ignore[attr-defined]


def test_added_documents_are_found_and_those_of_the_same_id_replaced(cluster: Cluster, name: str) -> None:
    opened = build(cluster, name, rows_of(DOCUMENTS))
    sparse = sparse_of(cluster, opened)
    changed = [Document("d1", "zebra", ("stripes",)), Document("d9", "zebra", ("hooves",))]
    assert add_documents(cluster, opened, rows_of(changed)) == 2
    assert found(sparse.search([Query("q", "zebra")], 5)) == ["d1", "d9"]
    assert found(sparse.search([Query("q", "chest")], 5)) == ["d2"]


def test_removed_documents_are_gone_and_unknown_ids_passed_over(cluster: Cluster, name: str) -> None:
    opened = build(cluster, name, rows_of(DOCUMENTS))
    assert remove_documents(cluster, opened, ["d1", "never", "d1"]) == 1
    assert found(sparse_of(cluster, opened).search([Query("q", "chest")], 5)) == ["d2"]


@pytest.mark.slow
def test_after_settling_scores_are_those_of_what_remains(cluster: Cluster, name: str) -> None:
    """Takes half a minute: the server's copies agree on removals that often."""
    opened = build(cluster, name, rows_of(DOCUMENTS))
    add_documents(cluster, opened, rows_of([Document("d9", "chest rest rest", ("rest",)), DOCUMENTS[0]]))
    remove_documents(cluster, opened, ["d9", "d6"])
    query = [Query("q", "chest rest heart", ("lung",))]
    drifted = sparse_of(cluster, opened).search(query, 9)
    assert settle(cluster, opened.physical)
    settled = sparse_of(cluster, opened).search(query, 9)
    fresh = build(cluster, name, rows_of(DOCUMENTS[:5]))
    assert settled == sparse_of(cluster, fresh).search(query, 9)
    assert {hit.doc_id for hit in drifted[0]} == {hit.doc_id for hit in settled[0]}


def test_a_rebuilt_index_is_exact_at_once_and_keeps_terms_and_vectors(cluster: Cluster, name: str) -> None:
    vectors = {d.doc_id: unit([1, i, 0, 0]) for i, d in enumerate(DOCUMENTS)}
    rows = [replace(row, vectors={"base": vectors[row.document.doc_id]}) for row in rows_of(DOCUMENTS)]
    opened = build(cluster, name, rows, layout_of(base=vector_layout(4)), ShardSettings(2, 0))
    changed = replace(rows[0], terms=["zebra"])
    report = rebuild_index(cluster, opened, added=[changed], removed=["d6", "never"])
    again = open_index(cluster, name, layout_of(base=vector_layout(4)))
    assert (again.physical, report.n_documents, report.previous) == (f"{name}-000002", 5, opened.physical)
    query = [Query("q", "zebra chest rest", ("lung",))]
    fresh = build(cluster, f"{name}-fresh", [changed, *rows[1:5]], layout_of(base=vector_layout(4)))
    try:
        assert sparse_of(cluster, again).search(query, 9) == sparse_of(cluster, fresh).search(query, 9)
        assert dense_of(cluster, again).search(EAST, 9) == dense_of(cluster, fresh).search(EAST, 9)
    finally:
        delete_index(cluster, f"{name}-fresh")


def test_refused_documents_are_named_and_the_others_are_there(cluster: Cluster, name: str) -> None:
    opened = build(cluster, name, rows_of(DOCUMENTS))
    bad = Document("bad", "q", ("a",), ("x" * 40_000,))
    with pytest.raises(DocumentsRefusedError, match="adding to"):
        add_documents(cluster, opened, rows_of([bad, Document("good", "zebra", ())]))
    assert found(sparse_of(cluster, opened).search([Query("q", "zebra")], 5)) == ["good"]


def test_a_block_for_a_full_disk_is_said_at_once(cluster: Cluster, name: str) -> None:
    opened = build(cluster, name, rows_of(DOCUMENTS))
    block = {"index.blocks.read_only_allow_delete": True}
    cluster.call("test", lambda es: es.indices.put_settings(index=opened.physical, settings=block))
    with pytest.raises(ClusterBlockedError, match="flood-stage watermark"):
        add_documents(cluster, opened, rows_of(DOCUMENTS[:1]))


def vectors_of(turn: int) -> Iterator[tuple[str, FloatMatrix]]:
    for i, document in enumerate(DOCUMENTS):
        yield document.doc_id, unit(np.roll([1.0, i + 1, 0, 0], turn))


@pytest.mark.slow
def test_a_retriever_joins_and_is_replaced_in_place(cluster: Cluster, name: str) -> None:
    opened = build(cluster, name, rows_of(DOCUMENTS))
    with pytest.raises(ConfigError, match="no retriever 'dpr'"):
        opened.field("dpr")
    layout = vector_layout(4)
    first = add_vectors(cluster, opened, "dpr", layout, vectors_of(0))
    assert open_index(cluster, name) == first
    old = dense_of(cluster, first, "dpr")
    assert found(old.search(EAST, 3)) == ["d1", "d2", "d3"]
    second = add_vectors(cluster, first, "dpr", layout, vectors_of(1))
    assert (first.field("dpr"), second.field("dpr")) == ("v1", "v2")
    # (0, 1, i+1, 0): all equally far from (1, 0, 0, 0); and whoever opened the former one keeps it
    assert found(dense_of(cluster, second, "dpr").search(EAST, 3)) == ["d1", "d2", "d3"]
    assert dense_of(cluster, second, "dpr").search(EAST, 3)[0][0].score == 0
    assert old.search(EAST, 1)[0][0].score == pytest.approx(0.5**0.5)
    assert sparse_of(cluster, second).search([Query("q", "chest")], 5)[0][0].doc_id == "d1"


def test_a_retriever_without_all_vectors_is_not_used(cluster: Cluster, name: str) -> None:
    opened = build(cluster, name, rows_of(DOCUMENTS))
    with pytest.raises(ClusterError, match=r"5 of the 6 documents .* not used"):
        add_vectors(cluster, opened, "dpr", vector_layout(4), list(vectors_of(0))[:5])
    with pytest.raises(DocumentsRefusedError, match="'never'"):
        add_vectors(cluster, opened, "dpr", vector_layout(4), [*vectors_of(0), ("never", EAST)])
    assert open_index(cluster, name) == opened


def test_no_search_misses_a_document_while_others_are_written_again(cluster: Cluster, name: str) -> None:
    rows = [
        IndexedDocument(Document(f"d{i:03d}", "q", ()), ["t"], (), {"base": unit([1, i, 0, 0])}) for i in range(300)
    ]
    opened = build(cluster, name, rows, layout_of(base=vector_layout(4)))
    sparse, dense = sparse_of(cluster, opened), dense_of(cluster, opened)
    ended = Event()

    def write() -> None:
        try:
            for _ in range(5):
                add_documents(cluster, opened, rows[:150])
        finally:
            ended.set()

    writer = Thread(target=write)
    writer.start()
    n_searches = 0
    while not ended.is_set() or n_searches < 5:
        assert len(sparse.search([Query("q", "t")], 1000)[0]) == 300
        assert len({hit.doc_id for hit in dense.search(EAST, 300)[0]}) == 300
        n_searches += 1
    writer.join()
