"""Tokens a second, counted around any generator."""

import pytest

from dmnrag.llm import FakeGenerator
from dmnrag.llm.speed import Metered, tokens_per_second
from dmnrag.protocols import Generator
from dmnrag.testing.generator_contract import GeneratorContract
from dmnrag.types import GenerationSettings, Prompt


def test_the_rate_is_tokens_over_seconds() -> None:
    assert tokens_per_second(30, 4.0) == 7.5
    assert tokens_per_second(0, 4.0) is None
    assert tokens_per_second(30, 0.0) is None


class TestMetered(GeneratorContract):
    @pytest.fixture
    def generator(self) -> Generator:
        return Metered(FakeGenerator())


def test_tokens_of_all_batches_are_counted() -> None:
    metered = Metered(FakeGenerator())
    settings = GenerationSettings(max_tokens=5)
    answers = [
        *metered.generate([Prompt("一二三四五六七八九十")], settings),
        *metered.generate([Prompt("血压")], settings),
    ]
    assert metered.completion_tokens == sum(answer.usage.completion_tokens for answer in answers) > 0
    assert metered.seconds > 0
