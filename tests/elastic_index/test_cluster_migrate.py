"""Moves between folder and cluster: everything arrives, nothing is made again, a failure changes nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_corpus import (
    CHANGED,
    DOCUMENTS,
    EXAMPLES,
    NEW,
    SETTINGS,
    Place,
    asked,
    assert_same,
    assert_same_index,
    encoder_for,
    many,
    rankings,
    twin,
)

from dmnrag.errors import ClusterIndexError, ConfigError, IndexFolderError
from dmnrag.index import (
    ClusterTarget,
    Index,
    build_index,
    cluster_writer,
    embedded_writer,
    migrate,
    migrate_index,
    roll_back,
    update_index,
)
from dmnrag.index.retrievers import add_retriever
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.elastic import IndexedDocument, delete_index
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.types import Document

pytestmark = pytest.mark.service


def let_nothing_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on whoever segments or encodes a document fails."""

    def fail(*_: object) -> None:
        raise AssertionError("a text was segmented or encoded again")

    for module in (cluster_writer, embedded_writer):
        monkeypatch.setattr(module.SegmentWriter, "write_vectors", fail)
        monkeypatch.setattr(module.SegmentWriter, "write_postings", fail)
    monkeypatch.setattr(cluster_writer, "segment_documents", fail)


def prepared(folder: Path) -> Path:
    """An index with several segments, removed documents, and two retrievers, one of which splits documents."""
    documents = many(90)
    build_index(folder, documents, SETTINGS, examples=EXAMPLES, encoder=encoder_for())
    add_retriever(folder, "joint", DenseSettings(encoder="fake", passage="answer"), encoder_for())
    update_index(folder, add=[NEW, CHANGED], remove=["p004", "p050"], encoder_for=encoder_for)
    return folder


def test_there_and_back_again_everything_is_the_same(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = prepared(tmp_path / "stays")
    prepared(place.folder)
    let_nothing_be_made_again(monkeypatch)
    queries = asked(12)
    # Fusion by ranks makes much of scores that differ in the last bit, so it is not asked deep.
    settings: list[dict[str, Any]] = [{"layer": "sparse"}, {"layer": "dense"}, {"layer": "cascade"}]
    settings += [{"layer": "hybrid", "candidates": 15}]
    wanted = [rankings(stays, queries, **one) for one in settings]
    there = migrate_index(place.folder, place.target)
    assert (there.n_documents, there.backend is not None) == (90, True)
    assert place.in_step()
    assert_same_index(place.folder, stays)
    for one, expected in zip(settings, wanted, strict=True):
        assert_same(rankings(place.folder, queries, **one), expected)
    back = migrate_index(place.folder, None)
    assert (back.n_documents, back.backend) == (90, None)
    for one, expected in zip(settings, wanted, strict=True):
        assert_same(rankings(place.folder, queries, **one), expected)
    with Index.open(place.folder, verify=True) as index, Index.open(stays) as other:
        assert index.settings == other.settings
        vectors = index.contents.rows(), other.contents.rows()
        rows, other_rows = ({row.document.doc_id: row for row in of_one} for of_one in vectors)
        assert rows.keys() == other_rows.keys()
        for doc_id, row in rows.items():
            assert sorted(row.terms) == sorted(other_rows[doc_id].terms)
            assert sorted(row.label_terms) == sorted(other_rows[doc_id].label_terms)
            for name in ("base", "joint"):
                np.testing.assert_array_equal(row.vectors[name], other_rows[doc_id].vectors[name])
    assert sorted(path.name for path in (place.folder / "generations" / "000005").iterdir()) == [
        "dense", "documents-000.parquet", "domain", "examples.jsonl", "manifest.json", "sparse",
    ]  # fmt: skip


def test_a_moved_index_can_be_changed_and_the_way_back_stays_open(place: Place, tmp_path: Path) -> None:
    twin(place.folder)
    migrate_index(place.folder, place.target)
    roll_back(place.folder)
    with Index.open(place.folder) as index:
        assert index.manifest.backend is None
    roll_back(place.folder)
    update_index(place.folder, remove=["d1"])
    assert place.in_step()
    migrate_index(place.folder, None)
    update_index(place.folder, add=[NEW], encoder_for=encoder_for)
    update_index(place.folder, remove=["d2"])
    assert place.physical() == []  # nothing in the folder names one any more
    with Index.open(place.folder, verify=True) as index:
        assert sorted(d.doc_id for d in index.all_documents()) == ["d3", "d4", "d5", "d6"]


def test_lengths_are_rounded_in_the_cluster_and_the_settings_say_so(place: Place) -> None:
    exact = replace(SETTINGS, bm25=Bm25Settings())
    build_index(place.folder, DOCUMENTS, exact, examples=EXAMPLES, encoder=encoder_for())
    migrate_index(place.folder, place.target)
    with Index.open(place.folder) as index:
        assert index.settings.bm25 == Bm25Settings(lucene_lengths=True)


def test_terms_that_the_server_would_change_arrive(place: Place) -> None:
    odd = [Document("o1", "2 型" + "A" * 300, ("\u3000全角 空格",), ("内 科",)), *DOCUMENTS]
    build_index(place.folder, odd, SETTINGS, examples=EXAMPLES, encoder=encoder_for())
    wanted = rankings(place.folder, layer="sparse")
    migrate_index(place.folder, place.target)
    assert_same(rankings(place.folder, layer="sparse"), wanted)
    migrate_index(place.folder, None)
    assert_same(rankings(place.folder, layer="sparse"), wanted)


def test_where_something_else_comes_back_the_index_stays_where_it_was(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin(place.folder)
    honest = migrate._digest

    def forgetful(row: IndexedDocument) -> int:
        forgetful.calls += 1  # type: ignore[attr-defined]
        return honest(replace(row, terms=row.terms[1:]) if forgetful.calls == len(DOCUMENTS) + 3 else row)  # type: ignore[attr-defined]

    forgetful.calls = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(migrate, "_digest", forgetful)
    with pytest.raises(IndexFolderError, match=r"5 rows with the sum .* were read back where 5 .* stays as it is"):
        migrate_index(place.folder, place.target)
    monkeypatch.undo()
    with Index.open(place.folder, verify=True) as index:
        assert (index.manifest.generation, index.manifest.backend) == (1, None)
    migrate_index(place.folder, place.target)
    assert place.in_step()


def test_an_index_may_move_to_another_name_but_not_to_where_it_is(place: Place) -> None:
    place.build()
    with pytest.raises(ConfigError, match=r"is in Elasticsearch as .* already"):
        migrate_index(place.folder, place.target)
    moved = Place(place.folder, f"{place.name}-b", place.cluster)
    try:
        migrate_index(place.folder, moved.target)
        assert moved.in_step()
        assert_same(rankings(place.folder), rankings(twin(place.folder.parent / "twin")))
        migrate_index(place.folder, None)
        with pytest.raises(ConfigError, match="an embedded index already"):
            migrate_index(place.folder, None)
    finally:
        delete_index(place.cluster, moved.name)


def test_a_name_of_another_folder_is_refused(place: Place, tmp_path: Path) -> None:
    place.build()
    folder = twin(tmp_path / "other")
    with pytest.raises(ClusterIndexError, match="built by another index folder"):
        migrate_index(folder, ClusterTarget(place.cluster.settings, place.name))
    with Index.open(folder, verify=True) as index:
        assert index.manifest.generation == 1
    assert place.in_step()
