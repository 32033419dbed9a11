"""Every back end passes the same contract."""

from collections.abc import Iterator

import pytest
from llm_fake_server import echo, serving
from llm_tiny_models import CHATML, make_model, make_tokenizer

from dmnrag.llm import FakeGenerator
from dmnrag.llm.openai_compatible import EndpointSettings, OpenAIGenerator
from dmnrag.llm.transformers_lm import TransformersGenerator
from dmnrag.protocols import Generator
from dmnrag.testing.generator_contract import GeneratorContract


class TestFake(GeneratorContract):
    @pytest.fixture
    def generator(self) -> Generator:
        return FakeGenerator()


class TestOpenAI(GeneratorContract):
    @pytest.fixture
    def generator(self) -> Iterator[Generator]:
        with serving(echo) as server:
            yield OpenAIGenerator("m", EndpointSettings(url=server.url, retries=0))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
class TestTransformers(GeneratorContract):
    @pytest.fixture
    def generator(self, kind: str) -> Generator:
        tokenizer = make_tokenizer()
        model = make_model(kind, vocab_size=len(tokenizer))
        return TransformersGenerator(model, tokenizer, name=kind, batch_size=2)


class TestTransformersWithChatTemplate(GeneratorContract):
    @pytest.fixture
    def generator(self) -> Generator:
        tokenizer = make_tokenizer(CHATML)
        model = make_model("llama", vocab_size=len(tokenizer))
        return TransformersGenerator(model, tokenizer, name="chat", batch_size=2)
