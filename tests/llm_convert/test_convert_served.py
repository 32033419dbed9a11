"""Converted models behind a real OpenAI-compatible server, transformers' own, asked through `openai:`."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from convert_checkpoints import MODELS, Golden

from dmnrag.errors import EndpointError
from dmnrag.llm import make_generator
from dmnrag.llm.encoding import PromptEncoder
from dmnrag.protocols import Generator
from dmnrag.types import Generation, GenerationSettings, Prompt, Usage

pytestmark = pytest.mark.service
SETTINGS = GenerationSettings(max_tokens=16, temperature=0.0)
PROMPTS = [Prompt(text) for text in ("离婚了孩子归谁？", "你好", "公司拖欠工资怎么办？")]
ASKED = PROMPTS[1]
"""To it both models write whole characters: the server's streams break on others, which random models write."""
STARTED_WITHIN_S = 300.0
"""Importing torch and the model on a busy machine; a hang is what this is against."""


@dataclass
class Served:
    folder: Path
    url: str
    process: subprocess.Popen[bytes]

    def generator(self, model: str | None = None) -> Generator:
        return make_generator(f"openai:{model or self.folder}@{self.url}", retries=0)


@contextmanager
def serving(folder: Path, log: Path) -> Iterator[Served]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(Path(sys.executable).with_name("transformers"))
    options = ("--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with (
        log.open("wb") as output,
        subprocess.Popen([program, "serve", str(folder), *options], stdout=output, stderr=output, env=environment) as p,
    ):
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", p, log)
            yield Served(folder, f"http://127.0.0.1:{port}/v1", p)
        finally:
            p.kill()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTED_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="module")
def served(goldens: dict[str, Golden], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Served]]:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    open_servers: dict[str, Served] = {}
    contexts = []

    def server_of(name: str) -> Served:
        if name not in open_servers:
            context = serving(goldens[name].folder, tmp_path_factory.mktemp("served") / f"{name}.log")
            contexts.append(context)
            open_servers[name] = context.__enter__()
        return open_servers[name]

    yield server_of
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.mark.parametrize("name", MODELS)
def test_a_server_reads_the_prompt_and_writes_the_tokens_of_this_package(
    served: Callable[[str], Served], goldens: dict[str, Golden], name: str
) -> None:
    """The chat template alone gives the original's prompt: nothing is added, and users spell no control token."""
    model, tokenizer = goldens[name].model, goldens[name].tokenizer
    encoder = PromptEncoder(tokenizer)
    for prompt, found in zip(PROMPTS, served(name).generator().generate(PROMPTS, SETTINGS), strict=True):
        ids = torch.tensor([encoder.encode(prompt)])
        new = model.generate(ids, do_sample=False, max_new_tokens=SETTINGS.max_tokens)[0, ids.shape[1] :]
        # Whole texts are compared: random models write broken characters, which show differently while they grow.
        assert found.text == tokenizer.decode(new, skip_special_tokens=True)
        assert found.usage == Usage(ids.shape[1], len(new))
        assert found.finish_reason == "length"


@pytest.mark.parametrize("name", MODELS)
def test_streamed_pieces_join_to_the_text_and_usage_is_the_servers(served: Callable[[str], Served], name: str) -> None:
    generator = served(name).generator()
    (whole,) = generator.generate([ASKED], SETTINGS)
    *pieces, last = generator.stream(ASKED, SETTINGS)
    assert isinstance(last, Generation)
    assert "".join(map(str, pieces)) == last.text
    assert len(pieces) > 2
    assert last.usage == whole.usage


@pytest.mark.parametrize("name", MODELS)
def test_a_stop_string_ends_the_text_before_it(served: Callable[[str], Served], name: str) -> None:
    generator = served(name).generator()
    (whole,) = generator.generate([ASKED], SETTINGS)
    stop = next(character for character in whole.text[2:] if character != "\ufffd")
    stopped = replace(SETTINGS, stop=(stop,))
    (cut,) = generator.generate([ASKED], stopped)
    assert (cut.text, cut.finish_reason) == (whole.text[: whole.text.index(stop)], "stop")
    *_, last = generator.stream(ASKED, stopped)
    assert isinstance(last, Generation)
    assert (last.finish_reason, stop in last.text) == ("stop", False)
    assert last.usage.completion_tokens < SETTINGS.max_tokens


def test_what_the_server_refuses_is_told(served: Callable[[str], Served]) -> None:
    server = served("baichuan2")
    other = server.generator("another-model")
    with pytest.raises(EndpointError, match=r"answered 400.*check model name.*requested 'another-model'"):
        other.generate([ASKED], SETTINGS)
    with pytest.raises(EndpointError, match=r"answered 400.*check model name"):
        list(other.stream(ASKED, SETTINGS))
    with pytest.raises(EndpointError, match=r"answered 422.*leave out those it does not know \(top_k"):
        server.generator().generate([ASKED], replace(SETTINGS, top_k=5))


def test_a_server_killed_in_the_middle_of_an_answer_is_an_error(goldens: dict[str, Golden], tmp_path: Path) -> None:
    with serving(goldens["baichuan2"].folder, tmp_path / "log") as server:
        generator = server.generator()
        stream = generator.stream(ASKED, replace(SETTINGS, max_tokens=100_000))
        given = [next(stream)]
        os.kill(server.process.pid, signal.SIGKILL)
        with pytest.raises(EndpointError, match=r"127\.0\.0\.1.*(half way|lost|closed|broke|ended)") as caught:
            given.extend(stream)
        assert given[0]
        server.process.wait(60)
        with pytest.raises(EndpointError, match=r"127\.0\.0\.1"):
            generator.generate([ASKED], SETTINGS)
        assert "none" not in str(caught.value)
