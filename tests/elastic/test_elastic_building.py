"""Builds on a real server: a new index behind the alias, whole or not at all, with what was refused in words."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from elastic_builder import ONE, Words, build, layout_of, rows_of, sparse_of, vector_layout

from dmnrag.errors import ClusterIndexError, ConfigError, DataError, DocumentsRefusedError
from dmnrag.retrieval.elastic import (
    Cluster,
    ElasticDocuments,
    ElasticSparseIndex,
    IndexedDocument,
    build_index,
    count,
    diagnose,
    list_physical,
    open_index,
    prune,
    roll_back,
)
from dmnrag.retrieval.elastic import build as build_module
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.testing.sparse_contract import DOCUMENTS
from dmnrag.types import Document, Query

pytestmark = pytest.mark.service

OTHERS = (Document("o1", "quiet room", ("sleep",)), Document("o2", "loud room", ("leave",)))


def answering(cluster: Cluster, name: str) -> set[str]:
    return {document.doc_id for document in ElasticDocuments(cluster, open_index(cluster, name))}


def test_each_build_is_a_new_index_and_the_last_one_stays_for_a_rollback(cluster: Cluster, name: str) -> None:
    reports = [build_index(cluster, name, rows_of(d), layout_of(), shards=ONE) for d in (DOCUMENTS, OTHERS, DOCUMENTS)]
    names = [f"{name}-00000{number}" for number in (1, 2, 3)]
    assert [report.physical for report in reports] == names
    assert [report.previous for report in reports] == [None, *names[:2]]
    assert [report.deleted for report in reports] == [(), (), (names[0],)]
    assert reports[1].n_documents == 2
    assert len(answering(cluster, name)) == len(DOCUMENTS)
    assert roll_back(cluster, name) == names[1]
    assert answering(cluster, name) == {"o1", "o2"}
    with pytest.raises(ClusterIndexError, match="no older index"):
        roll_back(cluster, name)
    assert prune(cluster, name) == [names[2]]
    assert [index.name for index in list_physical(cluster, name)] == [names[1]]


def test_documents_and_rows_are_read_back(cluster: Cluster, name: str) -> None:
    odd = [
        Document("药\u30001", "同一\n问题", ("答", ""), ("内 科", ""), {"": "x", "a.b": "y", " ": "z"}),
        Document("\U00020000", "", (), ()),
        Document("z" * 512, "q" * 100_000, ("a" * 100_000,)),
    ]
    vectors = {"base": np.array([[0.1, 1 / 3], [2.5, -1e-7]], np.float32)}
    rows = [IndexedDocument(d, ["a b", "y" * 40_000, "t", "t"], ["内"], vectors) for d in odd]
    opened = build(cluster, name, rows, layout_of(base=vector_layout(2)))
    documents = ElasticDocuments(cluster, opened)
    assert documents.get([d.doc_id for d in odd]) == odd
    found = {row.document.doc_id: row for row in documents.rows()}
    assert len(found) == 3
    for row in rows:
        again = found[row.document.doc_id]
        assert replace(again, vectors={}) == replace(row, vectors={})
        np.testing.assert_array_equal(again.vectors["base"], vectors["base"])
    with pytest.raises(DataError, match="no document never"):
        documents.get(["never"])


def test_reading_goes_over_more_than_one_page(cluster: Cluster, name: str) -> None:
    rows = [IndexedDocument(Document(f"d{i:04d}", "q", ()), ["t"]) for i in range(1203)]
    opened = build(cluster, name, rows)
    assert [d.doc_id for d in ElasticDocuments(cluster, opened)] == [f"d{i:04d}" for i in range(1203)]


def test_refused_documents_are_listed_with_reasons_and_the_former_index_stays(cluster: Cluster, name: str) -> None:
    build(cluster, name, rows_of(OTHERS))
    long_label = Document("bad", "q", ("a",), ("x" * 40_000,))
    with pytest.raises(DocumentsRefusedError, match=r"refuses 1 of 7 documents for good: 'bad'.*domain") as caught:
        build_index(cluster, name, rows_of([*DOCUMENTS, long_label]), layout_of(), shards=ONE)
    [(doc_id, reason)] = caught.value.refused
    assert doc_id == "bad"
    assert "domain" in reason
    assert answering(cluster, name) == {"o1", "o2"}
    assert [index.name for index in list_physical(cluster, name)] == [f"{name}-000001"]


def test_vectors_of_another_dimension_are_refused_documents(cluster: Cluster, name: str) -> None:
    rows = [IndexedDocument(DOCUMENTS[0], ["t"], (), {"base": np.ones((1, 3), np.float32)})]
    with pytest.raises(DocumentsRefusedError, match="dimensions"):
        build_index(cluster, name, rows, layout_of(base=vector_layout(4)), shards=ONE)


@pytest.mark.parametrize(
    ("documents", "words"), [((), "no document to index"), ((*OTHERS, OTHERS[0]), "ids came twice")]
)
def test_builds_that_cannot_be_leave_nothing(
    cluster: Cluster, name: str, documents: tuple[Document, ...], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        build_index(cluster, name, rows_of(documents), layout_of(), shards=ONE)
    assert list_physical(cluster, name) == []
    with pytest.raises(ClusterIndexError, match="build it first"):
        open_index(cluster, name)


def test_a_killed_build_leaves_the_alias_and_the_next_one_says_what_it_deletes(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(cluster, name, rows_of(OTHERS))
    monkeypatch.setattr(build_module, "_delete_quietly", lambda cluster, physical: None)  # as when killed

    def dies() -> Iterator[IndexedDocument]:
        yield from islice(rows_of(DOCUMENTS), 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(cluster, name, dies(), layout_of(), shards=ONE)
    assert answering(cluster, name) == {"o1", "o2"}
    [left] = [index.name for index in list_physical(cluster, name) if index.unfinished]
    assert left == f"{name}-000002"
    assert "unfinished" in {finding.name for finding in diagnose(cluster.settings, name)}
    said: list[str] = []
    report = build_index(cluster, name, rows_of(DOCUMENTS), layout_of(), shards=ONE, say=said.append)
    assert (report.physical, report.deleted) == (f"{name}-000003", (left,))
    assert left in said[0]
    assert len(answering(cluster, name)) == len(DOCUMENTS)


def test_an_index_deleted_while_it_is_built_is_an_error_and_not_made_by_the_server(cluster: Cluster, name: str) -> None:
    def deleted_meanwhile() -> Iterator[IndexedDocument]:
        cluster.call("test", lambda es: es.indices.delete(index=f"{name}-000001"))
        yield from rows_of(DOCUMENTS)

    with pytest.raises(ClusterIndexError, match="deleted or closed meanwhile"):
        build_index(cluster, name, deleted_meanwhile(), layout_of(), shards=ONE)
    assert list_physical(cluster, name) == []


def test_a_deleted_index_is_said_by_a_search(cluster: Cluster, name: str) -> None:
    opened = build(cluster, name, rows_of(OTHERS))
    sparse = sparse_of(cluster, opened)
    build(cluster, name, rows_of(DOCUMENTS))
    assert [hit.doc_id for hit in sparse.search([Query("q", "quiet")], 3)[0]] == ["o1"]  # what was opened
    prune(cluster, name)
    with pytest.raises(ClusterIndexError, match="open it again"):
        sparse.search([Query("q", "quiet")], 3)


def test_what_something_else_made_under_the_name_is_left_alone(cluster: Cluster, name: str) -> None:
    cluster.call("test", lambda es: es.indices.create(index=name))
    try:
        with pytest.raises(ClusterIndexError, match="made by something else"):
            build_index(cluster, name, rows_of(OTHERS), layout_of(), shards=ONE)
        with pytest.raises(ClusterIndexError, match="not made by dmnrag"):
            open_index(cluster, name)
    finally:
        cluster.call("test", lambda es: es.indices.delete(index=name))


def test_an_alias_of_something_else_is_refused_and_lookalikes_are_never_deleted(cluster: Cluster, name: str) -> None:
    foreign = f"{name}-000007"
    cluster.call("test", lambda es: es.indices.create(index=foreign, aliases={name: {}}))
    try:
        with pytest.raises(ClusterIndexError, match="not made by dmnrag"):
            open_index(cluster, name)
        with pytest.raises(ClusterIndexError, match="something else"):
            build_index(cluster, name, rows_of(OTHERS), layout_of(), shards=ONE)
        with pytest.raises(ClusterIndexError, match="something else"):
            prune(cluster, name)
        cluster.call("test", lambda es: es.indices.delete_alias(index=foreign, name=name))
        assert build_index(cluster, name, rows_of(OTHERS), layout_of(), shards=ONE).physical == f"{name}-000008"
        assert prune(cluster, name) == []
        assert cluster.call("test", lambda es: es.indices.exists(index=foreign))
    finally:
        cluster.call("test", lambda es: es.indices.delete(index=foreign))


def test_other_settings_than_the_index_has_are_named(cluster: Cluster, name: str) -> None:
    build(cluster, name, rows_of(OTHERS), layout_of(Bm25Settings(0.9, 0.4)))
    with pytest.raises(ConfigError, match=r"bm25.b is 0.4 in the index and 0.75 here; bm25.k1 is 0.9"):
        open_index(cluster, name, layout_of())


def test_a_newer_format_is_refused(cluster: Cluster, name: str) -> None:
    opened = build(cluster, name, rows_of(OTHERS))
    newer = {"dmnrag": dict(opened.meta) | {"format": 99}}
    cluster.call("test", lambda es: es.indices.put_mapping(index=opened.physical, meta=newer))
    with pytest.raises(ConfigError, match=r"format 99.*upgrade dmnrag"):
        open_index(cluster, name)


@pytest.mark.parametrize("bad", ["Med", "-med", "a,b", "", "a" * 201, "a*"])
def test_names_that_the_server_does_not_take_are_refused(cluster: Cluster, bad: str) -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        open_index(cluster, bad)


def test_progress_adds_up_and_small_batches_hold_the_same(cluster: Cluster, name: str) -> None:
    done: list[int] = []
    rows = [IndexedDocument(Document(f"d{i}", "q", ()), ["t", f"t{i}"]) for i in range(500)]
    report = build_index(cluster, name, rows, layout_of(), shards=ONE, on_progress=done.append, batch_bytes=2000)
    assert sum(done) == report.n_documents == count(cluster, report.physical) == 500
    assert len(done) > 10


@pytest.mark.slow
def test_a_repeated_batch_changes_nothing(cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the answer of a batch is lost: the statistics are those of each document once."""
    rows = [IndexedDocument(Document(f"d{i}", "q", ()), ["t", f"t{i}"]) for i in range(20)]
    once = sparse_of(cluster, build(cluster, name, rows)).search([Query("q", "t t7")], 20)
    real = build_module.write_bulk

    def twice(cluster: Cluster, alias: str, actions: object, **options: object) -> object:
        listed = list(actions)  # type: ignore[call-overload]
        real(cluster, alias, listed, **options)  # type: ignore[arg-type]
        cluster.call("test", lambda es: es.indices.flush(index=alias))  # so that it counts twice for a while
        return real(cluster, alias, listed, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(build_module, "write_bulk", twice)
    assert sparse_of(cluster, build(cluster, name, rows)).search([Query("q", "t t7")], 20) == once


def test_terms_with_white_space_or_of_40000_characters_are_found(cluster: Cluster, name: str) -> None:
    class Lines(Words):
        """Each line is a term."""

        def segment(self, text: str) -> list[str]:
            return [line for line in text.split("\n") if line]

    long = "长" * 40_000
    documents = [
        Document("a", "two words", (long,)),
        Document("b", "two", ("words",)),
        Document("c", long + "x", ("y",)),
    ]
    opened = build(cluster, name, rows_of(documents, segmenter=Lines()))
    index = ElasticSparseIndex(cluster, opened.physical, Lines())
    for text, expected in (("two words", ["a"]), ("two", ["b"]), (long, ["a"]), (long + "x", ["c"])):
        [hits] = index.search([Query("q", text)], 5)
        assert [hit.doc_id for hit in hits] == expected


def test_doctor_finds_nothing_wrong_with_a_fresh_index(cluster: Cluster, name: str) -> None:
    build(cluster, name, rows_of(OTHERS))
    findings = diagnose(cluster.settings, name)
    assert [f for f in findings if f.ok is False and f.name != "disk"] == []
    assert {"reachable", "version", "health", "disk", "rights", "index"} <= {f.name for f in findings}


def test_doctor_names_a_block(cluster: Cluster, name: str) -> None:
    opened = build(cluster, name, rows_of(OTHERS))
    block = {"index.blocks.read_only_allow_delete": True}
    cluster.call("test", lambda es: es.indices.put_settings(index=opened.physical, settings=block))
    [finding] = [f for f in diagnose(cluster.settings, name) if f.name == "blocks"]
    assert not finding.ok
    assert "read_only_allow_delete" in finding.text
