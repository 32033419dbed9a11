import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest_index import DOCUMENTS

from dmnrag import _io
from dmnrag.errors import ConfigError, IndexDamagedError
from dmnrag.index import Index, build_index, update_index
from dmnrag.index.models import read_retriever, retriever_encoder_name
from dmnrag.index.retrievers import add_retriever
from dmnrag.index.settings import IndexSettings
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document

ANSWERS = DenseSettings(encoder="fake", passage="answer", domain_in_passage=True)
KILLED = 137


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "trained"
    (path / "1_Pooling").mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "1_Pooling" / "config.json").write_text("{}")
    return path


def add(folder: Path, name: str = "joint", model: Path | None = None) -> int:
    return add_retriever(folder, name, ANSWERS, HashEncoder(), info={"dev": {"MRR@10": 0.5}}, model_folder=model)


def best(folder: Path, retriever: str, text: str) -> str:
    with Index.open(folder, verify=True) as index:
        return index.dense(retriever).search(HashEncoder().encode_queries([text]), 1)[0][0].doc_id


def test_an_added_retriever_finds_documents_by_what_it_reads_and_the_base_one_stays(folder: Path) -> None:
    assert add(folder) == 2
    # The passage of d4 is "儿科\n三十八度五以上可以用退烧药。": the domain, then the answer alone.
    assert best(folder, "joint", "儿科\n三十八度五以上可以用退烧药。") == "d4"
    with Index.open(folder) as index:
        assert list(index.manifest.retrievers) == ["base", "joint"]
        assert index.dense_settings("joint").passage == "answer"
        assert index.dense_settings("base").passage == "question+answer"
        assert index.manifest.retrievers["joint"]["info"] == {"dev": {"MRR@10": 0.5}}
        assert len(index.examples) == 1


def test_several_retrievers_live_side_by_side(folder: Path) -> None:
    for name in ("joint", "plain", "dpr"):
        add(folder, name)
    with Index.open(folder, verify=True) as index:
        assert list(index.manifest.retrievers) == ["base", "joint", "plain", "dpr"]


def test_an_index_without_vectors_gets_its_first_retriever(tmp_path: Path) -> None:
    build_index(tmp_path / "index", DOCUMENTS, IndexSettings())
    add(tmp_path / "index", "plain")
    assert best(tmp_path / "index", "plain", "内科,消化内科\n胃疼先看饮食，反复发作要做胃镜。") == "d2"


def test_progress_counts_all_documents(folder: Path) -> None:
    seen = []
    add_retriever(folder, "joint", ANSWERS, HashEncoder(), on_progress=lambda *a: seen.append(a))
    assert seen[-1] == ("vectors", 5, 5)


def test_removed_documents_keep_their_place_and_are_not_found(folder: Path) -> None:
    update_index(folder, add=[Document("d6", "感冒", ("多喝水。",), ("内科",))], encoder_for=lambda _: HashEncoder())
    update_index(folder, remove=["d2", "d6"])
    add(folder)
    with Index.open(folder, verify=True) as index:
        hits = index.dense("joint").search(HashEncoder().encode_queries(["胃疼"]), 10)[0]
        assert {hit.doc_id for hit in hits} == {"d1", "d3", "d4", "d5"}
        first_segment = np.load(index.folder / "generations/000004/dense/joint/000/owners.npy")
        assert first_segment.tolist() == [0, 1, 2, 3, 4]


def test_an_update_encodes_for_every_retriever(folder: Path, model: Path) -> None:
    add(folder, "joint", model)
    asked = []

    def encoder_for(settings: DenseSettings) -> HashEncoder:
        asked.append(settings.encoder)
        return HashEncoder()

    update_index(folder, add=[Document("d6", "感冒", ("多喝水。",), ("呼吸内科",))], encoder_for=encoder_for)
    assert asked == ["fake", str(folder / "models/dpr-joint-000002")]
    assert best(folder, "joint", "呼吸内科\n多喝水。") == "d6"
    with Index.open(folder) as index:
        assert index.manifest.retrievers["joint"]["encoder"] == "index:models/dpr-joint-000002"


def test_the_model_moves_with_the_index(folder: Path, model: Path) -> None:
    add(folder, "joint", model)
    shutil.rmtree(model)
    moved = folder.with_name("moved")
    folder.rename(moved)
    with Index.open(moved, verify=True) as index:
        encoder = Path(index.dense_settings("joint").encoder)
        assert encoder == moved / "models" / "dpr-joint-000002"
        assert (encoder / "model.safetensors").read_bytes() == b"weights"


def test_names_of_encoders_from_elsewhere_stay_as_they_are(tmp_path: Path) -> None:
    assert retriever_encoder_name(tmp_path, "BAAI/bge-small-zh-v1.5") == "BAAI/bge-small-zh-v1.5"
    assert read_retriever(tmp_path, ANSWERS.to_dict() | {"info": {"dev": 1}}) == ANSWERS


def test_a_model_that_was_altered_or_lost_is_noticed(folder: Path, model: Path) -> None:
    add(folder, "joint", model)
    weights = folder / "models/dpr-joint-000002/model.safetensors"
    weights.unlink()
    weights.write_bytes(b"WEIGHTS")  # the same size: only the hash tells
    Index.open(folder).close()
    with pytest.raises(IndexDamagedError, match="altered"):
        Index.open(folder, verify=True)
    weights.unlink()
    with pytest.raises(IndexDamagedError, match=r"model\.safetensors is missing"):
        Index.open(folder)


def test_a_retriever_is_replaced_and_its_former_model_goes_when_no_generation_needs_it(
    folder: Path, model: Path
) -> None:
    def models() -> list[str]:
        return sorted(path.name for path in (folder / "models").iterdir())

    add(folder, "joint", model)
    add(folder, "joint", model)
    assert models() == ["dpr-joint-000002", "dpr-joint-000003"]  # the former generation may still be read
    add(folder, "joint", model)
    assert models() == ["dpr-joint-000003", "dpr-joint-000004"]


@pytest.mark.parametrize("name", ["base", "", "a/b", "..", "-x", "名"])
def test_names_that_cannot_be_folders_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        add(folder, name)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_at_any_step_the_index_is_as_before_or_has_the_retriever(
    folder: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    add(folder, "joint", model)
    steps: list[Path] = []
    done = tmp_path / "done"
    shutil.copytree(folder, done)
    monkeypatch.setattr(_io, "FAULT_HOOK", lambda _step, path: steps.append(path))
    add(done, "joint", model)
    assert len(steps) > 20
    monkeypatch.setattr(_io, "FAULT_HOOK", None)
    for number in range(0, len(steps), 3):
        victim = tmp_path / f"killed-{number}"
        shutil.copytree(folder, victim)
        kill_at(number, victim, model)
        with Index.open(victim, verify=True) as index:
            assert index.manifest.generation in (2, 3)
        add(victim, "joint", model)
        assert best(victim, "joint", "儿科\n三十八度五以上可以用退烧药。") == "d4"
        assert not (victim / "models" / ".adding").exists()


def kill_at(number: int, folder: Path, model: Path) -> None:
    child = os.fork()
    if child == 0:
        left = [number]

        def hook(_step: str, _path: Path) -> None:
            left[0] -= 1
            if left[0] < 0:
                os._exit(KILLED)

        try:
            _io.FAULT_HOOK = hook
            add(folder, "joint", model)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


def test_a_rebuild_deletes_the_models_that_no_generation_on_disk_needs(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("w")
    add_retriever(folder, "joint", DenseSettings(encoder="fake"), HashEncoder(), model_folder=model)
    assert len(list((folder / "models").iterdir())) == 1
    build_index(folder, DOCUMENTS, IndexSettings())  # the trained generation is the former one: kept
    assert len(list((folder / "models").iterdir())) == 1
    build_index(folder, DOCUMENTS, IndexSettings())
    assert list((folder / "models").iterdir()) == []
