import pytest

from dmnrag.errors import ConfigError, EndpointError, PromptTooLongError
from dmnrag.llm import FakeGenerator
from dmnrag.llm.fake import NO_SOURCE
from dmnrag.types import Excerpt, GenerationSettings, Prompt

SETTINGS = GenerationSettings(max_tokens=50)


def test_it_answers_with_the_first_source() -> None:
    prompt = Prompt("问", excerpts=(Excerpt(1, "d1", "先量血压。"), Excerpt(2, "d2", "乙")))
    (answer,) = FakeGenerator().generate([prompt], SETTINGS)
    assert (answer.text, answer.finish_reason) == ("先量血压。", "stop")
    assert FakeGenerator().generate([Prompt("问")], SETTINGS)[0].text == NO_SOURCE


def test_scripted_replies_come_in_order_and_again_from_the_first() -> None:
    fake = FakeGenerator(["甲", "乙"])
    assert [a.text for a in fake.generate([Prompt("1"), Prompt("2"), Prompt("3")], SETTINGS)] == ["甲", "乙", "甲"]
    assert [prompt.user for prompt in fake.prompts] == ["1", "2", "3"]
    assert fake.settings == [SETTINGS] * 3


def test_a_function_of_the_prompt_gives_the_reply() -> None:
    fake = FakeGenerator(lambda prompt: prompt.user.upper())
    assert fake.generate([Prompt("abc")], SETTINGS)[0].text == "ABC"


def test_tokens_are_words_or_characters() -> None:
    fake = FakeGenerator(["血压 abc12 高"])
    # 血 压 space abc12 space: five tokens.
    (answer,) = fake.generate([Prompt("一二 xyz", "系统")], GenerationSettings(max_tokens=5))
    assert (answer.text, answer.finish_reason) == ("血压 abc12 ", "length")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (6, 5)


def test_failures_come_at_the_chosen_prompts() -> None:
    fake = FakeGenerator(failures={1: EndpointError("down")})
    fake.generate([Prompt("0")], SETTINGS)
    with pytest.raises(EndpointError, match="down"):
        fake.generate([Prompt("1")], SETTINGS)
    assert fake.generate([Prompt("2")], SETTINGS)


def test_a_stream_can_break_half_way() -> None:
    stream = FakeGenerator(["甲乙丙丁"], break_after=2).stream(Prompt("问"), SETTINGS)
    assert [next(stream), next(stream)] == ["甲", "乙"]
    with pytest.raises(EndpointError, match="after 2 pieces"):
        next(stream)


def test_the_context_is_kept() -> None:
    with pytest.raises(PromptTooLongError, match="52 tokens; the fake's context is 51"):
        FakeGenerator(context_tokens=51).generate([Prompt("问题")], SETTINGS)


def test_an_empty_script_is_refused() -> None:
    with pytest.raises(ConfigError, match="replies is empty"):
        FakeGenerator([])
