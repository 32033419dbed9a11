"""`dmnrag finetune`, `ask --adapter`, `evaluate --adapter` as a person runs them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lora_tiny import make_index, save_model

from dmnrag.cli.main import run

Outcome = tuple[int, str, str]
QUICK = (
    "--layer", "sparse", "-k", "2", "--template", "paper", "--epochs", "1", "--max-length", "224", "--max-tokens", "48",
    "--rank", "2", "--dev-questions", "4", "--device", "cpu",
)  # fmt: skip
ASK = ("嗓子疼能喝酒吗", "--domain", "儿科")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dmnrag", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            run()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def own_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("command") / "i")


def test_finetune_ask_and_evaluate(cli: Callable[..., Outcome], llm: str, own_index: Path, tmp_path: Path) -> None:
    code, out, err = cli(
        "finetune", own_index, "--llm", llm, *QUICK, "--name", "x", "--merge", tmp_path / "merged", "--json"
    )
    assert code == 0, err
    report = json.loads(out)
    adapter = own_index / "models" / "lora-x"
    assert report["adapter"] == str(adapter.resolve())
    assert report["method"] == "Dmn-ques-front"
    assert report["losses"]["best"] < report["losses"]["untrained"]
    assert "step 0, epoch 0.0: dev loss" in err
    assert (tmp_path / "merged" / "model.safetensors").is_file()

    code, out, err = cli("ask", own_index, *ASK, "--llm", llm, "--adapter", adapter, "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert (answer["method"], answer["llm"]) == ("Dmn-ques-front", f"{llm}+lora-x")
    assert answer["prompt"].startswith("儿科嗓子疼能喝酒吗请回答该问题")
    tokens, milliseconds = answer["usage"]["completion_tokens"], answer["timings_ms"]["generation"]
    assert answer["tokens_per_second"] == pytest.approx(tokens / milliseconds * 1000, rel=0.01)
    assert "warning" not in err

    asked = ("ask", own_index, *ASK, "-k", 1, "--llm", llm, "--adapter", adapter)
    assert "not as the adapter was trained (in brackets): k 1 (2)" in cli(*asked)[2]
    for more, message in (
        (("--method", "no-Dmn"), "trained with method Dmn-ques-front and is asked with no-Dmn"),
        (("--template", "base"), "is asked with 'base', which differs in front, rear"),
        (("--llm", save_model(tmp_path / "other", seed=3)), "has another weights"),
    ):
        code, _, err = cli(*asked, *more)
        assert (code, message in err) == (2, True), err

    code, out, err = cli("evaluate", own_index, "--llm", llm, "--adapter", adapter, "--json")
    assert code == 0, err
    assert f"LLM {llm}+lora-x: " in err
    assert " tokens in " in err
    names = {row["name"] for row in json.loads(out)["rows"] if row["metric"].startswith("ROUGE-1 ")}
    assert f"Dmn-ques-front, {llm}+lora-x" in names
    assert not names & {"no-Dmn", "Dmn"}
    assert "warning" not in err


def test_wrong_use_is_told_before_the_work(cli: Callable[..., Outcome], llm: str, own_index: Path) -> None:
    for arguments, message in (
        (("--rank", "0"), "rank is 0"),
        (("--name", "x", "--out", "y"), "leave one out"),
        (("--name", "../x"), "allowed are up to 64"),
        (("--merge", own_index), "needs a new folder"),
        (("--four-bit", "--device", "cpu"), "needs a CUDA GPU"),
        (("--method", "Dmn-front"), "there is no method"),
    ):
        code, _, err = cli("finetune", own_index, "--llm", llm, *arguments)
        assert (code, message in err) == (2, True), err
    code, _, err = cli("finetune", own_index, "--llm", "fake")
    assert (code, "has no weights here" in err) == (2, True)
    code, _, err = cli("evaluate", own_index, "--adapter", "x")
    assert (code, "--adapter act on answers" in err) == (2, True)
    assert list(own_index.glob("models/.train-*")) == []


def test_an_adapter_from_elsewhere_is_used_with_a_word(
    cli: Callable[..., Outcome], llm: str, own_index: Path, tmp_path: Path
) -> None:
    code, out, _ = cli("finetune", own_index, "--llm", llm, *QUICK, "--out", tmp_path / "a")
    assert code == 0
    assert "Use it: dmnrag ask" in out
    assert "own documents  documents of others" in out
    (tmp_path / "a" / "dmnrag.json").unlink()
    code, _, err = cli("ask", own_index, *ASK, "--llm", llm, "--adapter", tmp_path / "a", "--template", "paper")
    assert (code, "was not trained by dmnrag finetune" in err) == (0, True), err
