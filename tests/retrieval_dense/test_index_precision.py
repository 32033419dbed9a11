"""`dmnrag index` with a tiny encoder: in int8, and killed while it encodes."""

import csv
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tiny_models

from dmnrag.cli.main import run
from dmnrag.index import Index
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.dense.encoder import SentenceTransformerEncoder

N = 300
COLUMNS = ("--question-column", "question", "--answer-column", "answer")
INTERRUPTED = 130

Command = Callable[..., int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prompts = {"query": "a: ", "document": "b: "}
    return tiny_models.write_encoder(tmp_path_factory.mktemp("tiny"), prompts, hidden_size=64)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    def _command(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["dmnrag", *map(str, arguments)])
        try:
            run()
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    return _command


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "answer"])
        writer.writerows([f"头痛{'abcdefgh'[i % 8]}怎么办{i}", f"{'休息' * (i % 7)}吃药{i}"] for i in range(N))
    return path


@pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="needs the extra int8")
def test_an_index_in_int8_is_searched_without_openvino(
    tmp_path: Path, folder: Path, table: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "index"
    assert command("index", table, "--out", out, *COLUMNS, "--encoder", folder, "--encoder-precision", "int8") == 0
    with Index.open(out) as index:
        assert index.dense_settings().encoder_precision == "int8"
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert command("search", out, "头痛怎么办", "--layer", "dense") == 0


def test_an_unknown_precision_is_wrong_use(
    tmp_path: Path, table: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("index", table, "--out", tmp_path / "index", *COLUMNS, "--encoder-precision", "int4") == 2
    assert "allowed are fp32, bf16, int8" in capsys.readouterr().err
    assert not (tmp_path / "index").exists()


def test_a_killed_build_encodes_only_what_is_left(
    tmp_path: Path, folder: Path, table: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = SentenceTransformerEncoder.encode_passages

    def first_round_only(
        self: SentenceTransformerEncoder, texts: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> FloatMatrix:
        if encoded:
            raise KeyboardInterrupt
        encoded.append(len(texts))
        return encode(self, texts, progress)

    def counted(
        self: SentenceTransformerEncoder, texts: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> FloatMatrix:
        encoded.append(len(texts))
        return encode(self, texts, progress)

    arguments = ("index", table, "--out", tmp_path / "index", *COLUMNS, "--encoder", folder)
    monkeypatch.setattr(SentenceTransformerEncoder, "encode_passages", first_round_only)
    assert command(*arguments) == INTERRUPTED
    monkeypatch.setattr(SentenceTransformerEncoder, "encode_passages", counted)
    assert command(*arguments) == 0
    assert len(encoded) == 2
    assert sum(encoded) == N
    with Index.open(tmp_path / "index") as index:
        assert index.n_documents == N
    assert [path.name for path in (tmp_path / "index" / "generations").iterdir()] == ["000001"]
