"""The domain model as a part of an index: learnt in builds, taken over or learnt anew in updates, never half there."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from format_1 import FOLDER

from dmnrag import _io
from dmnrag.domain import DomainModel, DomainSettings
from dmnrag.errors import IndexDamagedError
from dmnrag.index import Index, IndexSettings, build_index, generations, roll_back, update_index, upgrade_index
from dmnrag.index.domain import model_parts
from dmnrag.index.retrievers import add_retriever
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.text import SegmenterSettings
from dmnrag.types import Document, Domain, Query

HEART, STOMACH, BONES, EYES = ("内科", "心血管内科"), ("内科", "消化内科"), ("骨科",), ("眼科",)
WORDS: dict[Domain, str] = {HEART: "血压心跳胸闷", STOMACH: "胃酸腹泻呕吐", BONES: "骨折扭伤关节", EYES: "近视散光流泪"}
PER_DOMAIN = 20
ASKED = {domain: f"{words}怎么办" for domain, words in WORDS.items()}


def documents(domain: Domain, numbers: range) -> list[Document]:
    words = WORDS[domain]
    return [
        Document(f"{domain[-1]}{n}", f"{words[n % 6]}{words}怎么办{n}", (f"{words}要注意{n}",), domain) for n in numbers
    ]


def corpus(*domains: Domain) -> list[Document]:
    return [document for domain in domains for document in documents(domain, range(PER_DOMAIN))]


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """An index of 60 documents and three domains, without vectors."""
    folder = tmp_path / "trained"
    build_index(folder, corpus(HEART, STOMACH, BONES), IndexSettings())
    return folder


def labels(folder: Path) -> tuple[Domain, ...] | None:
    """Of the model of an index that is whole."""
    with Index.open(folder, verify=True) as index:
        return None if index.domain_model is None else index.domain_model.labels


def weights_inode(folder: Path) -> int:
    number = generations.current_generation(folder)
    return (generations.generation_folder(folder, number) / "domain" / "weights.npy").stat().st_ino


def assert_learnt_from(folder: Path, rows: list[Document]) -> None:
    """The model is the one that these documents give."""
    with Index.open(folder, verify=True) as index:
        assert index.domain_model is not None
        wanted = DomainModel.train(rows, DomainSettings())
        asked = list(ASKED.values())
        assert index.domain_model.labels == wanted.labels
        np.testing.assert_allclose(index.domain_model.probabilities(asked), wanted.probabilities(asked), rtol=1e-6)


def test_a_build_learns_the_domains_of_its_documents(trained: Path) -> None:
    assert_learnt_from(trained, corpus(HEART, STOMACH, BONES))
    with Index.open(trained) as index:
        assert index.domain_model is not None
        assert [found.domain for found in index.domain_model.infer(list(ASKED.values())[:3])] == [HEART, STOMACH, BONES]
        names = {name for name in index.manifest.parts if name.startswith("domain/")}
        assert names == {f"domain/{name}" for name in ("model.json", "terms.json", "idf.npy", "weights.npy")}
        assert index.domain_model is index.domain_model


def test_the_kind_of_domains_and_the_reading_of_characters_are_the_indexs(tmp_path: Path) -> None:
    settings = IndexSettings(domain_kind="set", segmenter=SegmenterSettings(simplify=True))
    build_index(tmp_path / "i", corpus(HEART, STOMACH, BONES), settings)
    with Index.open(tmp_path / "i") as index:
        assert index.domain_model is not None
        assert (index.domain_model.settings.kind, index.domain_model.settings.simplify) == ("set", True)
        assert ("心血管内科",) in index.domain_model.labels


@pytest.mark.parametrize("domain", [(), ("内科",)])
def test_without_domains_on_enough_documents_there_is_no_model(tmp_path: Path, domain: Domain) -> None:
    rows = [Document("a", "退票", ("可以退。",), domain), Document("b", "改签", ("可以改。",), domain)]
    build_index(tmp_path / "i", rows, IndexSettings())
    with Index.open(tmp_path / "i") as index:
        assert index.domain_model is None
        assert not index.lacks_domain_model
    update_index(tmp_path / "i", add=[Document("c", "选座", ("可以选。",), domain)])
    assert labels(tmp_path / "i") == ((domain,) if domain else None)


def test_a_build_can_do_without(tmp_path: Path) -> None:
    build_index(tmp_path / "i", corpus(HEART, BONES), IndexSettings(), with_domain_model=False)
    assert labels(tmp_path / "i") is None


def test_a_small_change_takes_the_model_over_and_changes_add_up(trained: Path) -> None:
    before = weights_inode(trained)
    update_index(trained, add=documents(HEART, range(20, 21)))
    update_index(trained, remove=["骨科0"])
    update_index(trained, add=documents(BONES, range(3, 4)), replace=True)
    assert weights_inode(trained) == before  # 3 of the 60 that it learnt from
    assert labels(trained) is not None
    update_index(trained, remove=["骨科1"])
    assert weights_inode(trained) != before
    with Index.open(trained, verify=True) as index:
        assert "domain/changes.json" not in index.manifest.parts
        rows = list(index.all_documents())
    assert_learnt_from(trained, rows)


def test_the_counting_starts_again_with_a_new_model(trained: Path) -> None:
    update_index(trained, remove=[f"骨科{n}" for n in range(4)])
    after = weights_inode(trained)
    update_index(trained, remove=["骨科4", "骨科5"])
    assert weights_inode(trained) == after
    update_index(trained, remove=["骨科6"])  # 3 of 56: more than a twentieth
    assert weights_inode(trained) != after


def test_a_label_that_comes_or_goes_is_learnt_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    build_index(folder, [*corpus(HEART, STOMACH, BONES), *documents(EYES, range(2))], IndexSettings())
    assert EYES not in (labels(folder) or ())
    update_index(folder, add=documents(EYES, range(2, 3)))  # the third: as many as inference needs
    assert EYES in (labels(folder) or ())
    update_index(folder, remove=["眼科1"])
    assert EYES not in (labels(folder) or ())


def test_a_label_that_few_documents_have_may_vanish_whole(trained: Path) -> None:
    update_index(trained, remove=[document.doc_id for document in corpus(STOMACH)])
    assert labels(trained) == (("内科",), BONES, HEART)


def test_the_joining_of_segments_keeps_the_model(trained: Path) -> None:
    for n in range(20, 32):
        update_index(trained, add=documents(HEART, range(n, n + 1)))
    with Index.open(trained) as index:
        assert len(index.manifest.segments) < 12
    assert labels(trained) == (("内科",), BONES, HEART, STOMACH)


def test_a_new_retriever_leaves_the_model_as_it_is(trained: Path) -> None:
    before = weights_inode(trained)
    add_retriever(trained, "joint", DenseSettings(encoder="fake"), HashEncoder())
    assert weights_inode(trained) == before
    assert labels(trained) is not None


def test_a_rebuild_learns_anew_and_a_rollback_brings_the_former_model_back(trained: Path) -> None:
    build_index(trained, corpus(BONES, EYES), IndexSettings())
    assert labels(trained) == (EYES, BONES)
    roll_back(trained)
    assert labels(trained) == (("内科",), BONES, HEART, STOMACH)
    build_index(trained, [Document("a", "退票", ("可以退。",))], IndexSettings())
    assert labels(trained) is None


@pytest.fixture
def format_1(tmp_path: Path) -> Path:
    """An index that a release without domain inference made."""
    folder = tmp_path / "old"
    shutil.copytree(FOLDER, folder)
    return folder


def test_an_older_index_has_no_model_until_it_is_upgraded(format_1: Path) -> None:
    with Index.open(format_1) as index:
        assert index.domain_model is None
        assert index.lacks_domain_model
        rows = list(index.all_documents())
        hits = index.sparse.search([Query("1", "高血压")], 5)
    done = upgrade_index(format_1)
    assert (done.generation, done.domain_model) == (4, True)
    assert_learnt_from(format_1, rows)
    with Index.open(format_1) as index:
        assert not index.lacks_domain_model
        assert index.sparse.search([Query("1", "高血压")], 5) == hits
    again = upgrade_index(format_1)
    assert (again.generation, again.domain_model) == (4, False)


def test_an_older_index_gets_its_model_with_its_next_update(format_1: Path) -> None:
    update_index(format_1, add=[Document("d7", "失眠", ("少看手机。",))], encoder_for=lambda _: HashEncoder())
    assert ("内科",) in (labels(format_1) or ())


def test_a_model_that_cannot_be_used_is_named_and_hinders_no_search(trained: Path) -> None:
    home = generations.generation_folder(trained, 1) / "domain"
    (home / "terms.json").write_bytes((home / "terms.json").read_bytes()[::-1])
    with Index.open(trained) as index:
        assert index.sparse.search([Query("1", "血压")], 1)[0]
        with pytest.raises(IndexDamagedError, match="not a usable domain model"):
            _ = index.domain_model
    with pytest.raises(IndexDamagedError, match="altered"):
        Index.open(trained, verify=True)
    (home / "terms.json").unlink()
    with pytest.raises(IndexDamagedError, match=r"terms\.json"):
        Index.open(trained)


def test_a_count_of_changes_that_cannot_be_read_is_named(trained: Path) -> None:
    update_index(trained, remove=["骨科1"])
    path = generations.generation_folder(trained, 2) / "domain" / "changes.json"
    path.write_bytes(b" " * path.stat().st_size)
    with pytest.raises(IndexDamagedError, match=r"changes\.json cannot be used"):
        update_index(trained, remove=["骨科2"])
    assert generations.current_generation(trained) == 2


def killed_at(number: int, act: Callable[[], object]) -> bool:
    """Whether there was a place of that number to be killed at, among those that write the domain model."""
    seen = 0

    def hook(_step: str, path: Path) -> None:
        nonlocal seen
        if "domain" in path.parts:
            if seen == number:
                os._exit(137)
            seen += 1

    child = os.fork()
    if child == 0:
        _io.FAULT_HOOK = hook
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 137)
    return code == 137


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    "act",
    [
        lambda folder: build_index(folder, corpus(BONES, EYES), IndexSettings()),
        lambda folder: update_index(folder, add=documents(EYES, range(5))),
        lambda folder: update_index(folder, remove=["骨科1"]),
    ],
    ids=["rebuild", "learnt anew", "taken over"],
)
def test_killed_at_any_step_of_the_model_the_index_is_as_it_was(
    trained: Path, tmp_path: Path, act: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # a killed process loses nothing that it wrote
    wanted, number = labels(trained), 0
    while True:
        copied = shutil.copytree(trained, tmp_path / f"copy{number}")
        if not killed_at(number, lambda copied=copied: act(copied)):  # type: ignore[misc]
            break
        assert (generations.current_generation(copied), labels(copied)) == (1, wanted)
        act(copied)
        assert labels(copied) is not None
        shutil.rmtree(copied)
        number += 1
    assert number >= 5
    assert not list(tmp_path.glob("copy*/generations/.*"))


def test_vectors_and_a_domain_model_live_side_by_side(folder: Path) -> None:
    assert labels(folder) == (("内科",),)
    update_index(folder, add=documents(EYES, range(3)), encoder_for=lambda _: HashEncoder())
    assert labels(folder) == (("内科",), EYES)
    with Index.open(folder) as index:
        assert len(model_parts(index.manifest.parts)) == 4
