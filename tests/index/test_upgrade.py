"""Indexes of former formats: the checked-in one opens and answers, and the way of an upgrade works."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_1 import EXPECTED, FOLDER, answers

from dmnrag._io import write_jsonl_atomic
from dmnrag.errors import IndexDamagedError, IndexVersionError
from dmnrag.index import Index, generations, manifest, update_index, upgrade, upgrade_index
from dmnrag.index.build import EXAMPLES_FILE
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document


@pytest.fixture
def format_1(tmp_path: Path) -> Path:
    """A copy of the checked-in index, brought to this release's format as a person would."""
    folder = tmp_path / "index"
    shutil.copytree(FOLDER, folder)
    upgrade_index(folder)
    return folder


@pytest.fixture
def next_format(monkeypatch: pytest.MonkeyPatch) -> int:
    """This release reads a format that is two steps ahead; the first step replaces a file, the second a field."""
    version = manifest.FORMAT_VERSION

    def first(folder: Path, content: dict[str, Any]) -> dict[str, Any]:
        assert content["format_version"] == version
        write_jsonl_atomic(folder / EXAMPLES_FILE, [])
        return content | {"n_examples": 0}

    def second(_folder: Path, content: dict[str, Any]) -> dict[str, Any]:
        assert content["format_version"] == version + 1
        return content | {"source": {"files": ["from the second step"]}}

    monkeypatch.setattr(manifest, "FORMAT_VERSION", version + 2)
    monkeypatch.setitem(upgrade.STEPS, version, first)
    monkeypatch.setitem(upgrade.STEPS, version + 1, second)
    return version + 2


def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return found


def test_the_index_of_format_1_opens_verifies_and_answers_as_it_did(format_1: Path) -> None:
    wanted = expected()
    found = answers(format_1, np.array(wanted.pop("query_vectors"), np.float32))
    hits, wanted_hits = found.pop("hits"), wanted.pop("hits")
    assert found == wanted
    for name, rankings in wanted_hits.items():
        for ranking, wanted_ranking in zip(hits[name], rankings, strict=True):
            assert [doc_id for doc_id, _ in ranking] == [doc_id for doc_id, _ in wanted_ranking]
            np.testing.assert_allclose([s for _, s in ranking], [s for _, s in wanted_ranking], rtol=1e-6)


def test_the_index_of_format_1_has_what_a_format_can_hold() -> None:
    content = json.loads((generations.generation_folder(FOLDER, 3) / manifest.FILE_NAME).read_text(encoding="utf-8"))
    assert content["format_version"] == 1
    assert [(s["n_documents"], s["n_removed"]) for s in content["segments"]] == [(5, 1), (1, 0)]
    assert list(content["retrievers"]) == ["base"]
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 100_000


def test_the_index_of_format_1_can_be_updated(format_1: Path) -> None:
    new = Document("d7", "失眠怎么办", ("睡前少看手机。",), ("内科",))
    done = update_index(format_1, add=[new], remove=["d6"], encoder_for=lambda _: HashEncoder())
    assert (done.n_added, done.n_removed, done.n_documents) == (1, 1, 5)
    with Index.open(format_1, verify=True) as index:
        assert index.documents(["d7"]) == [new]


def test_every_former_format_has_a_step() -> None:
    assert set(upgrade.STEPS) == set(range(1, manifest.FORMAT_VERSION))


def test_a_current_index_is_left_as_it_is(folder: Path) -> None:
    done = upgrade_index(folder)
    assert (done.from_version, done.to_version, done.generation) == (manifest.FORMAT_VERSION,) * 2 + (1,)
    assert generations.generation_numbers(folder) == [1]


def test_an_older_format_is_refused_with_the_cure(folder: Path, next_format: int) -> None:
    with pytest.raises(IndexVersionError, match=f"dmnrag upgrade {folder}"):
        Index.open(folder)


def test_steps_are_taken_one_after_the_other_into_a_new_generation(folder: Path, next_format: int) -> None:
    done = upgrade_index(folder)
    assert (done.from_version, done.to_version, done.generation) == (next_format - 2, next_format, 2)
    with Index.open(folder, verify=True) as index:
        assert index.manifest.format_version == next_format
        assert index.manifest.source == {"files": ["from the second step"]}
        assert (index.examples, index.n_documents) == ([], 5)
    assert upgrade_index(folder).generation == 2


def test_the_former_generation_stays_as_it_was(folder: Path, next_format: int, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade_index(folder)
    monkeypatch.setattr(manifest, "FORMAT_VERSION", next_format - 2)
    former = generations.generation_folder(folder, 1)
    manifest.check_parts(former, manifest.Manifest.load(former).parts, hashes=True)


def test_a_step_that_is_missing_is_said_and_nothing_changes(
    folder: Path, next_format: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(upgrade.STEPS, next_format - 1)
    with pytest.raises(IndexVersionError, match=f"no step from index format {next_format - 1} to {next_format}"):
        upgrade_index(folder)
    assert generations.current_generation(folder) == 1
    assert generations.generation_numbers(folder) == [1]


def test_a_step_that_fails_changes_nothing(folder: Path, next_format: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(upgrade.STEPS, next_format - 1, lambda _folder, content: {"format_version": 0})
    with pytest.raises(IndexVersionError, match="gave no manifest"):
        upgrade_index(folder)
    assert generations.current_generation(folder) == 1


def test_a_damaged_index_is_not_upgraded(folder: Path, next_format: int) -> None:
    path = generations.generation_folder(folder, 1) / "documents-000.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(IndexDamagedError, match="altered"):
        upgrade_index(folder)
    assert generations.current_generation(folder) == 1
