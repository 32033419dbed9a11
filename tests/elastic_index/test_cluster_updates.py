"""Changes of an index in a cluster: exact at every moment, and folder and alias in step."""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cluster_corpus import (
    CHANGED,
    DOCUMENTS,
    EXAMPLES,
    NEW,
    QUERIES,
    SETTINGS,
    Place,
    assert_same_index,
    encoder_for,
    ids,
    rankings,
    twin,
)
from dpr_tiny import random_instances, write_encoder

from dmnrag.errors import ClusterIndexError, ClusterUnreachableError, ConfigError, DataError
from dmnrag.index import Index, alias, build_index, prune_index, roll_back, update_index
from dmnrag.index.build import UNTRAINED
from dmnrag.index.retrievers import add_retriever
from dmnrag.retrieval.dense import DenseSettings, make_encoder
from dmnrag.retrieval.elastic import delete_index, delete_physical
from dmnrag.retrieval.elastic.build import build_alias
from dmnrag.training import dpr_retriever
from dmnrag.training.dpr_retriever import RetrieverPlan, train_retriever
from dmnrag.training.negatives_settings import FirstLayer, GuardSettings, TrainingSetSettings
from dmnrag.training.settings import DprSettings
from dmnrag.types import Document

pytestmark = pytest.mark.service

Change = Callable[[Path], object]


def add(folder: Path) -> object:
    return update_index(folder, add=[NEW], encoder_for=encoder_for)


def remove(folder: Path) -> object:
    return update_index(folder, remove=["d1", "d4"])


def change_all(folder: Path) -> object:
    return update_index(folder, add=[NEW, CHANGED], remove=["d3"], replace=True, encoder_for=encoder_for)


def join(folder: Path) -> object:
    return add_retriever(folder, "joint", DenseSettings(encoder="fake", passage="answer"), encoder_for())


@pytest.mark.parametrize("change", [add, remove, change_all, join])
def test_a_changed_index_is_the_one_that_a_folder_has_after_the_same_change(
    place: Place, tmp_path: Path, change: Change
) -> None:
    place.build()
    other = twin(tmp_path / "twin")
    with Index.open(place.folder) as reader:
        before = reader.sparse.search(QUERIES, 9)
        assert str(change(place.folder)) == str(change(other))
        assert reader.sparse.search(QUERIES, 9) == before
    assert_same_index(place.folder, other)
    assert place.in_step()
    assert place.searched != f"{place.name}-000001"
    shards = place.cluster.call("", lambda es: es.indices.get_settings(index=place.searched)).body
    index = shards[place.searched]["settings"]["index"]
    assert (index["number_of_shards"], index["number_of_replicas"]) == ("2", "0")


def test_a_retriever_of_the_same_name_is_replaced_and_updates_keep_all(place: Place, tmp_path: Path) -> None:
    place.build()
    other = twin(tmp_path / "twin")
    for folder in (place.folder, other):
        join(folder)
        join(folder)
        change_all(folder)
        with Index.open(folder) as index:
            assert list(index.manifest.retrievers) == [UNTRAINED, "joint"]
    assert_same_index(place.folder, other)
    assert place.in_step()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"remove": ["d1", "never"]}, r"1 of 2 ids are not in the index \(never\); nothing was removed"),
        ({"add": [NEW, CHANGED]}, r"1 ids are in the index already \(d2\); --replace"),
        ({"add": [NEW, NEW]}, "document ids occur more than once"),
        ({}, "nothing to add and nothing to remove"),
        ({"remove": ["d1", "d2", "d3", "d4", "d5"]}, "leave the index without a document"),
        ({"add": [Document("d7", EXAMPLES[0].query.text, ("x",))]}, "held-out split"),
        ({"add": [Document("x" * 600, "太长", ("id",))]}, "longer than 512 bytes"),
    ],
)
def test_what_cannot_be_done_changes_nothing(place: Place, options: dict[str, object], words: str) -> None:
    place.build()
    with pytest.raises(DataError, match=words):
        update_index(place.folder, **options, encoder_for=encoder_for)  # type: ignore[arg-type]
    assert [index.name for index in place.physical()] == [place.searched] == [f"{place.name}-000001"]
    assert place.in_step()


def test_a_removed_document_is_no_gold_and_its_domain_no_longer_counted(place: Place) -> None:
    place.build()
    update_index(place.folder, remove=["d1", "d3"])
    with Index.open(place.folder) as index:
        assert [example.gold_doc_ids for example in index.examples] == [()]
        assert index.domains == {("儿科",): 1, ("内科", "心血管内科"): 1, ("内科", "消化内科"): 1}


def test_a_new_build_takes_the_place_of_the_former_one(place: Place) -> None:
    for documents in (DOCUMENTS, DOCUMENTS[:3], DOCUMENTS[1:]):
        place.build(documents)
        assert place.in_step()
    assert [index.name for index in place.physical()] == [f"{place.name}-000002", f"{place.name}-000003"]
    with Index.open(place.folder, verify=True) as index:
        assert sorted(d.doc_id for d in index.all_documents()) == ["d2", "d3", "d4", "d5"]


def test_a_build_that_fails_leaves_the_former_one(place: Place) -> None:
    place.build()
    with pytest.raises(DataError, match="no document"):
        place.build([])
    with pytest.raises(DataError, match="longer than 512 bytes"):
        place.build([NEW, Document("x" * 600, "太长", ("id",))])
    assert [index.name for index in place.physical()] == [place.searched]
    assert place.in_step()


def test_an_index_that_a_reader_holds_stays(place: Place) -> None:
    place.build()
    with Index.open(place.folder) as reader:
        before = reader.sparse.search(QUERIES, 9)
        for doc_id in ("d1", "d2"):
            update_index(place.folder, remove=[doc_id])
        assert reader.sparse.search(QUERIES, 9) == before
        assert len(place.physical()) == 3
    update_index(place.folder, remove=["d3"])
    assert place.in_step()


class Unreachable:
    """The cluster is lost between the folder's switch and the alias's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __enter__(self) -> None:
        self._monkeypatch.setattr(alias, "switch_alias", self._fail)

    def __exit__(self, *_: object) -> None:
        self._monkeypatch.undo()

    def _fail(self, *_: object) -> None:
        raise ClusterUnreachableError("the cluster is lost")


@pytest.mark.parametrize("change", [add, change_all, join, roll_back])
def test_where_the_alias_was_left_behind_the_next_change_moves_it_and_says_so(
    place: Place, change: Change, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place.build()
    update_index(place.folder, remove=["d5"])
    behind = place.searched
    words = f"the cluster is lost. .* has the change and searches {place.name}-.*follows with the next change"
    with Unreachable(monkeypatch), pytest.raises(ClusterUnreachableError, match=words):
        change(place.folder)
    assert place.alias == behind
    ahead = place.searched
    assert ahead != behind
    with caplog.at_level(logging.WARNING):
        update_index(place.folder, remove=["d4"])
    assert f"{place.name} now points at {ahead}" in caplog.text
    assert place.in_step()


def test_what_a_stopped_run_left_is_deleted_and_said(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.build()
    left = f"{place.name}-000007"
    meta = {"dmnrag": {"name": place.name, "build": "0" * 32}}
    aliases: dict[str, dict[str, bool]] = {build_alias(place.name): {"is_hidden": True}}
    place.cluster.call(
        "",
        lambda es: es.indices.create(index=left, mappings={"_meta": meta}, aliases=aliases, wait_for_active_shards=0),
    )
    with caplog.at_level(logging.WARNING):
        update_index(place.folder, remove=["d1"])
    assert f"{left} was left by a run that was stopped before it was in use; it is deleted" in caplog.text
    assert place.searched > left  # its number is not used again
    assert place.in_step()


def test_an_alias_that_somebody_deleted_comes_back(place: Place) -> None:
    place.build()
    place.cluster.call("", lambda es: es.indices.delete_alias(index=place.searched, name=place.name))
    update_index(place.folder, remove=["d1"])
    assert place.in_step()


def test_a_name_of_another_folder_is_left_alone_unless_it_is_to_be_replaced(place: Place, tmp_path: Path) -> None:
    place.build()
    other = Place(tmp_path / "other", place.name, place.cluster)
    with pytest.raises(ClusterIndexError, match=r"built by another index folder.*--es-index.*--es-replace"):
        other.build(DOCUMENTS[:2])
    assert place.in_step()
    other.build(DOCUMENTS[:2], target=replace(other.target, replace=True))
    assert other.in_step()
    assert len(other.physical()) == 1
    with pytest.raises(ClusterIndexError, match="old copy"):
        Index.open(place.folder)
    with pytest.raises(ClusterIndexError, match="old copy"):
        update_index(place.folder, remove=["d1"])


def test_a_folder_may_change_its_name_in_the_cluster(place: Place) -> None:
    place.build()
    moved = Place(place.folder, f"{place.name}-b", place.cluster)
    try:
        moved.build()
        assert moved.in_step()
        assert place.alias is not None  # for a rollback
        roll_back(place.folder)
        assert place.in_step()
        update_index(place.folder, remove=["d1"])
        assert moved.physical() == []
    finally:
        delete_index(place.cluster, moved.name)


def test_rolling_back_and_forth_and_pruning(place: Place) -> None:
    place.build()
    first, before = place.searched, rankings(place.folder)
    change_all(place.folder)
    second, after = place.searched, rankings(place.folder)
    assert roll_back(place.folder) == 3
    assert (place.searched, rankings(place.folder), place.in_step()) == (first, before, True)
    assert roll_back(place.folder) == 4
    assert (place.searched, rankings(place.folder), place.in_step()) == (second, after, True)
    assert prune_index(place.folder) == [3]
    assert [index.name for index in place.physical()] == [second]
    assert prune_index(place.folder) == []
    with pytest.raises(ConfigError, match="no generation before 4 to go back to"):
        roll_back(place.folder)
    assert (rankings(place.folder), place.in_step()) == (after, True)


def test_an_index_that_was_deleted_is_said_and_can_be_built_again(place: Place) -> None:
    place.build()
    delete_physical(place.cluster, place.searched)
    with pytest.raises(ClusterIndexError, match=r"has no index .*restore the index from a snapshot, or build it again"):
        update_index(place.folder, remove=["d1"])
    place.build(DOCUMENTS[:3])
    assert place.in_step()


def test_an_index_without_vectors(place: Place, tmp_path: Path) -> None:
    plain = replace(SETTINGS, dense=None)
    for folder, target in ((place.folder, place.target), (tmp_path / "twin", None)):
        build_index(folder, DOCUMENTS, plain, examples=EXAMPLES, target=target)
        update_index(folder, add=[NEW], remove=["d4"])
    assert_same_index(place.folder, tmp_path / "twin")


TRAINED = [
    Document(f"t{i}", row.question, row.answers, (("内科", "外科")[i % 2],))
    for i, row in enumerate(random_instances(40))
]


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(former)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("first_layer", ["joint", "none"])
def test_training_on_an_index_in_a_cluster(place: Place, tmp_path: Path, first_layer: FirstLayer) -> None:
    model = str(write_encoder(tmp_path / "encoder"))
    encoder = make_encoder(model, device="cpu")
    settings = replace(SETTINGS, dense=DenseSettings(encoder=model))
    training = DprSettings(epochs=1, batch_size=8, learning_rate=2e-3, dev_questions=6, mini_batch=4)
    wanted = TrainingSetSettings(first_layer=first_layer, first_rank=3, last_rank=20, guards=GuardSettings.off())
    plan = RetrieverPlan(training_set=wanted, training=training, rounds=1)
    build_index(place.folder, TRAINED, settings, examples=EXAMPLES, encoder=encoder, target=place.target)
    report = train_retriever(place.folder, plan, accept_worse=True)
    assert (report.name, report.generation) == (dpr_retriever.NAMES[first_layer], 2)
    with Index.open(place.folder, verify=True) as index:
        dense = index.dense_settings(report.name)
        assert dense.encoder == str(place.folder / "models" / f"dpr-{report.name}-000002")
        trained = make_encoder(dense.encoder, device="cpu")
        domain = f"{TRAINED[4].domain[0]}\n" if dense.domain_in_passage else ""
        vectors = trained.encode_passages([f"{domain}{TRAINED[4].answers[0]}"])
        hits = index.dense(report.name).search(vectors, 3)[0]
        assert ids(hits)[0] == "t4"
        assert hits[0].score == pytest.approx(1.0, abs=1e-5)
    assert place.in_step()
