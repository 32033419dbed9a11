"""`dmnrag convert-llm` as a person runs it."""

import sys
from pathlib import Path

import pytest
from convert_checkpoints import Golden, trained

from dmnrag.cli.main import run


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["dmnrag", "convert-llm", *map(str, arguments)])
    try:
        run()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_models_and_adapters_are_converted_and_named(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command(monkeypatch, golden.source, out) == 0
    title = {"chatglm2": "ChatGLM2-6B", "baichuan2": "Baichuan2-7B-Chat"}[golden.name]
    assert capsys.readouterr().out == f"{title} is in {out} (0.0 GB). Use it: dmnrag ask DIR QUESTION --llm {out}\n"
    assert command(monkeypatch, golden.source, out) == 2
    assert "--replace" in capsys.readouterr().err
    assert command(monkeypatch, golden.source, out, "--replace") == 0
    adapter = trained(golden, tmp_path / "adapter")
    assert command(monkeypatch, adapter, tmp_path / "lora", "--base", out) == 0
    assert "q_proj" in capsys.readouterr().out


def test_what_is_no_original_folder_is_wrong_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, tmp_path, tmp_path / "out") == 2
    assert "is not an original model folder" in capsys.readouterr().err
