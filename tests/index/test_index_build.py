import json
import shutil
from pathlib import Path

import pytest
from conftest_index import DOCUMENTS, EXAMPLES, SETTINGS

from dmnrag import _io
from dmnrag.errors import (
    ConfigError,
    DataError,
    IndexDamagedError,
    IndexLockedError,
    IndexMissingError,
    IndexVersionError,
)
from dmnrag.index import Index, IndexSettings, build_index, generations
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document, Query


def test_an_opened_index_gives_back_documents_examples_and_settings(folder: Path) -> None:
    with Index.open(folder, verify=True) as index:
        assert list(index.all_documents()) == DOCUMENTS
        assert index.documents(["d3", "d1"]) == [DOCUMENTS[2], DOCUMENTS[0]]
        assert index.examples == EXAMPLES
        assert index.settings == SETTINGS
        assert index.domains == {
            ("内科", "心血管内科"): 2,
            ("儿科",): 1,
            ("内科", "消化内科"): 1,
            ("外科", "骨科"): 1,
        }


def test_both_layers_find_the_document(folder: Path) -> None:
    with Index.open(folder) as index:
        assert index.sparse.search([Query("1", "高血压能喝酒吗")], 1)[0][0].doc_id == "d1"
        vector = HashEncoder().encode_queries(["高血压能喝酒吗"])
        assert index.dense().search(vector, 1)[0][0].doc_id == "d1"


def test_a_document_that_is_not_there_is_an_error_that_names_it(folder: Path) -> None:
    with Index.open(folder) as index, pytest.raises(DataError, match="d9"):
        index.documents(["d1", "d9"])


def test_building_again_makes_a_new_generation_and_keeps_one_former(folder: Path) -> None:
    for n in (2, 3):
        report = build_index(folder, DOCUMENTS[:n], IndexSettings())
        assert report.generation == n
    assert generations.generation_numbers(folder) == [2, 3]
    with Index.open(folder) as index:
        assert index.n_documents == 3


def test_a_reader_keeps_its_generation_while_writers_go_on(folder: Path) -> None:
    with Index.open(folder) as reader:
        for _ in range(3):
            build_index(folder, DOCUMENTS[:1], IndexSettings())
        assert 1 in generations.generation_numbers(folder)
        assert reader.documents(["d4"]) == [DOCUMENTS[3]]
        assert reader.sparse.search([Query("1", "退烧药")], 1)[0][0].doc_id == "d4"
    build_index(folder, DOCUMENTS[:1], IndexSettings())
    assert 1 not in generations.generation_numbers(folder)


def test_repeated_ids_are_refused_and_the_former_index_stays(folder: Path) -> None:
    with pytest.raises(DataError, match="d1"):
        build_index(folder, [DOCUMENTS[0], DOCUMENTS[0]], IndexSettings())
    with Index.open(folder, verify=True) as index:
        assert index.n_documents == len(DOCUMENTS)


def test_no_documents_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no document to index"):
        build_index(tmp_path / "new", [], IndexSettings())
    with pytest.raises(IndexMissingError):
        Index.open(tmp_path / "new")


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.docx").write_text("important")
    with pytest.raises(ConfigError, match="holds other files"):
        build_index(tmp_path, DOCUMENTS, IndexSettings())
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.docx"]


def test_a_second_writer_is_told_who_holds_the_lock(folder: Path) -> None:
    with _io.writer_lock(folder), pytest.raises(IndexLockedError, match="process"):
        build_index(folder, DOCUMENTS, IndexSettings())


@pytest.mark.parametrize("part", ["documents-000.parquet", "examples.jsonl", "sparse", "dense"])
def test_a_missing_part_is_named_at_opening(folder: Path, part: str) -> None:
    path = generations.generation_folder(folder, 1) / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(IndexDamagedError, match=part.split("-", maxsplit=1)[0]):
        Index.open(folder)


def test_a_part_cut_short_is_named_at_opening(folder: Path) -> None:
    path = generations.generation_folder(folder, 1) / "documents-000.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IndexDamagedError, match=r"documents-000\.parquet"):
        Index.open(folder)


def test_an_altered_part_of_the_same_size_is_found_by_verify(folder: Path) -> None:
    path = generations.generation_folder(folder, 1) / "examples.jsonl"
    path.write_bytes(path.read_bytes().replace(b"q1", b"q2"))
    Index.open(folder).close()
    with pytest.raises(IndexDamagedError, match="altered"):
        Index.open(folder, verify=True)


def test_a_newer_format_says_to_install_a_newer_release(folder: Path) -> None:
    path = generations.generation_folder(folder, 1) / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["format_version"] = 99
    content["a key of the future"] = 1
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(IndexVersionError, match="newer dmnrag"):
        Index.open(folder)


@pytest.mark.parametrize("content", ["", "abc", "-1", "1.5", "\x00"])
def test_a_spoilt_pointer_is_a_clear_error(folder: Path, content: str) -> None:
    (folder / "CURRENT").write_text(content)
    with pytest.raises(IndexDamagedError, match="CURRENT"):
        Index.open(folder)


def test_encoder_and_dense_settings_belong_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="belong together"):
        build_index(tmp_path / "x", DOCUMENTS, IndexSettings(), encoder=HashEncoder())


def test_metadata_survives_and_needs_no_domain(tmp_path: Path) -> None:
    document = Document("a", "问", ("答案文字",), (), {"医生": "李", "科": ""})
    build_index(tmp_path / "x", [document], IndexSettings())
    with Index.open(tmp_path / "x") as index:
        assert list(index.all_documents()) == [document]
        assert index.domains == {}
