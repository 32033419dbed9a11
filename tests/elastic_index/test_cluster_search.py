"""An index in a cluster answers as its twin in a folder does, through every layer."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_corpus import EXAMPLES, Place, asked, assert_same, by_id, many, rankings, twin

from dmnrag.errors import ClusterIndexError, ConfigError, DataError, IndexDamagedError
from dmnrag.index import Index
from dmnrag.retrieval.elastic import Cluster, delete_index
from dmnrag.types import JOINT, PLAIN, DomainUse

pytestmark = pytest.mark.service

DOCUMENTS, QUERIES = many(160), asked(25)


@pytest.fixture(scope="module")
def both(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """The same documents in a cluster and in a folder; nobody changes them."""
    home = tmp_path_factory.mktemp("both")
    place = Place(home / "cluster", "both", cluster)
    delete_index(cluster, place.name)
    place.build(DOCUMENTS)
    yield place.folder, twin(home / "folder", DOCUMENTS)
    delete_index(cluster, place.name)


@pytest.mark.parametrize(
    "settings",
    [
        {"layer": "sparse"},
        {"layer": "sparse", "use": PLAIN},
        {"layer": "sparse", "use": DomainUse(True, True, 3.0)},
        {"layer": "sparse", "domain_filter": True},
        {"layer": "dense"},
        {"layer": "dense", "domain_filter": True},
        {"layer": "cascade", "candidates": 30},
        {"layer": "hybrid", "candidates": 30},
        {"layer": "hybrid", "candidates": 30, "domain_filter": True, "use": JOINT},
    ],
    ids=lambda settings: "-".join(str(value) if isinstance(value, str) else name for name, value in settings.items()),
)
def test_hits_are_those_of_the_index_in_the_folder(both: tuple[Path, Path], settings: dict[str, Any]) -> None:
    assert_same(rankings(both[0], QUERIES, **settings), rankings(both[1], QUERIES, **settings))


def test_documents_domains_and_examples_are_the_same(both: tuple[Path, Path]) -> None:
    with Index.open(both[0], verify=True) as there, Index.open(both[1]) as here:
        assert by_id(there.all_documents()) == by_id(DOCUMENTS)
        assert [d.doc_id for d in there.documents(["p012", "p003", "p012"])] == ["p012", "p003", "p012"]
        assert there.passages(["p003"]) == here.passages(["p003"])
        assert there.missing(["p003", "never", "p001"]) == here.missing(["p003", "never", "p001"]) == ["never"]
        assert (there.domains, there.examples, there.n_documents) == (here.domains, EXAMPLES, len(DOCUMENTS))
        with pytest.raises(DataError, match="has no document never"):
            there.documents(["p003", "never"])


def test_the_folder_holds_no_document_and_no_vector(both: tuple[Path, Path]) -> None:
    files = {path.name for path in both[0].rglob("*") if path.is_file()}
    of_domains = {"model.json", "terms.json", "idf.npy", "weights.npy"}
    assert files == {"CURRENT", "lock", "manifest.json", "examples.jsonl"} | of_domains


def altered(folder: Path, to: Path, **changes: Any) -> Path:
    """A copy of the folder with another manifest."""
    shutil.copytree(folder, to)
    path = to / "generations" / "000001" / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        inner = content
        for name in parents:
            inner = inner[name]
        inner[last] = value
    path.write_text(json.dumps(content), encoding="utf-8")
    return to


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings__bm25__b": 0.5}, r"bm25\.b is 0\.75 in the index and 0\.5 here"),
        ({"settings__segmenter__name": "jieba"}, r"segmenter\.name is 'bigram' in the index and 'jieba' here"),
        ({"settings__segmenter__stop_words": ["的"]}, r"segmenter\.stop_words is \[\] in the index and '1 entries"),
        ({"settings__indexed_text": "answer"}, r"indexed_text is 'question\+answer' in the index and 'answer' here"),
        ({"retrievers__base__encoder": "other"}, r"retrievers\.base\.encoder is 'fake' in the index and 'other' here"),
        ({"backend__vector_kind": "hnsw"}, r"retrievers\.base\.kind is 'flat' in the index and 'hnsw' here"),
    ],
)
def test_other_settings_than_the_index_has_are_named(
    both: tuple[Path, Path], tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Index.open(altered(both[0], tmp_path / "other", **changes))


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        (
            {"backend__physical": "both-000099"},
            ClusterIndexError,
            r"has no index 'both-000099'.*old copy.*dmnrag index",
        ),
        ({"backend__build": "f" * 32}, ClusterIndexError, "of another build than the one that is looked for"),
        ({"backend__dimensions": {}}, IndexDamagedError, "does not describe its index"),
    ],
)
def test_what_the_manifest_names_must_be_there(
    both: tuple[Path, Path], tmp_path: Path, changes: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        Index.open(altered(both[0], tmp_path / "other", **changes))


def test_verifying_counts_the_documents(both: tuple[Path, Path], tmp_path: Path) -> None:
    segments = [{"name": "both-000001", "n_documents": 161, "n_removed": 0}]
    with pytest.raises(IndexDamagedError, match="holds 160 documents, the manifest says 161"):
        Index.open(altered(both[0], tmp_path / "other", segments=segments), verify=True)


def test_another_host_reaches_the_cluster_by_its_own_url(
    both: tuple[Path, Path], tmp_path: Path, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = altered(both[0], tmp_path / "copy", backend__urls=["http://127.0.0.1:9"])
    monkeypatch.setenv("DMNRAG_ES_URLS", server_url)
    assert_same(rankings(folder, QUERIES[:3], layer="hybrid"), rankings(both[1], QUERIES[:3], layer="hybrid"))
