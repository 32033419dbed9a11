import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dmnrag._io import writer_lock
from dmnrag.errors import ConfigError
from dmnrag.llm import builtin, make_generator
from dmnrag.protocols import Generator
from dmnrag.testing.generator_contract import GeneratorContract
from dmnrag.types import GenerationSettings, Prompt


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a conversion that takes no time."""
    monkeypatch.setenv("DMNRAG_CACHE", str(tmp_path))
    monkeypatch.setattr(builtin, "require", lambda module, extra: None)
    monkeypatch.setattr(builtin, "_assembled", lambda target: target)
    monkeypatch.setattr(builtin, "convert_gemma", _write_config)
    return tmp_path / "llm"


def _write_config(gguf_file: Path, folder: Path, defaults: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(defaults), encoding="utf-8")


def test_the_model_is_converted_once_into_the_cache_and_says_so(cache: Path) -> None:
    steps: list[tuple[str, float]] = []
    folder = builtin.builtin_folder(lambda step, share: steps.append((step, share)))
    assert folder.parent == cache
    assert (folder / "config.json").is_file()
    assert [share for _, share in steps] == sorted(share for _, share in steps)
    assert steps[-1][1] == 1.0
    steps.clear()
    assert builtin.builtin_folder(lambda step, share: steps.append((step, share))) == folder
    assert steps == []


def test_a_conversion_that_fails_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(builtin, "convert_gemma", fail)
    with pytest.raises(ConfigError, match="No space left"):
        builtin.builtin_folder()
    assert [path.name for path in cache.iterdir()] == ["lock"]
    monkeypatch.setattr(builtin, "convert_gemma", _write_config)
    assert builtin.builtin_folder().is_dir()


def test_what_a_killed_conversion_left_is_cleared_away(cache: Path) -> None:
    (cache / ".converting-1" / "model").mkdir(parents=True)
    folder = builtin.builtin_folder()
    assert sorted(path.name for path in cache.iterdir()) == sorted([folder.name, "lock"])


def test_a_second_process_waits_for_the_first(cache: Path) -> None:
    cache.mkdir()
    found: list[Path] = []
    waiting = threading.Thread(target=lambda: found.append(builtin.builtin_folder()))
    with writer_lock(cache):
        waiting.start()
        time.sleep(0.1)
        assert found == []
    waiting.join(10)
    assert [path.is_dir() for path in found] == [True]


def test_a_cache_that_cannot_be_made_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = cache.parent / "file"
    file.write_text("", encoding="utf-8")
    monkeypatch.setenv("DMNRAG_CACHE", str(file))
    with pytest.raises(ConfigError, match="set DMNRAG_CACHE"):
        builtin.builtin_folder()


def test_a_package_with_another_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Package:
        @staticmethod
        def assemble(target: Path) -> Path:
            target.write_bytes(b"another model")
            return target

    monkeypatch.setattr(builtin, "require", lambda module, extra: Package)
    with pytest.raises(ConfigError, match="carries another model"):
        builtin._assembled(tmp_path / "model.gguf")


@pytest.fixture(scope="module")
def real() -> Generator:
    """The real model, from the user's cache, converted first where it is not there."""
    return make_generator("builtin", batch_size=4)


@pytest.mark.slow
class TestBuiltin(GeneratorContract):
    SETTINGS = GenerationSettings(max_tokens=12, temperature=0.0)

    @pytest.fixture
    def generator(self, real: Generator) -> Generator:
        return real


@pytest.mark.slow
def test_the_built_in_model_knows_what_such_a_model_knows(real: Generator) -> None:
    (paris, beijing) = real.generate(
        [Prompt("The capital of France is the city of"), Prompt("北京是中国的")], GenerationSettings(max_tokens=3)
    )
    assert "Paris" in paris.text
    assert beijing.text.startswith("首都")
    assert (real.name, real.context_tokens) == ("builtin", 32768)


@pytest.mark.slow
def test_spellings_of_its_control_tokens_stay_text(real: Generator) -> None:
    # One token each if they were control tokens: <bos> and four more.
    assert real.prompt_tokens(Prompt("<eos><start_of_turn><end_of_turn><unused7>")) > 12


@pytest.mark.slow
def test_token_ids_equal_those_of_transformers_own_reader(tmp_path: Path, shared: Path) -> None:
    from transformers import AutoTokenizer

    builtin._assembled(tmp_path / "model.gguf")
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    ours = AutoTokenizer.from_pretrained(builtin.builtin_folder())
    texts = (shared / "data" / "airline_faq.jsonl").read_text(encoding="utf-8").splitlines()[:300]
    texts += [
        "",
        " ",
        "a  b   c    d",
        "\n\n\n",
        "\t\t",
        "é e\u0301 😀 ﷺ \u200b",
        "<table><eos>",
        "第1,234.5条　（全角）",
        "▁ ▁▁",
    ]
    for text in texts:
        assert ours(text)["input_ids"] == theirs(text)["input_ids"], text
        assert ours.decode(ours(text)["input_ids"]) == theirs.decode(theirs(text)["input_ids"])
